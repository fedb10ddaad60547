//! The inputs of a command besides the state and its arguments.
use crate::id::CallId;
use spindle::MemberId;
use std::time::Duration;
use twox_hash::XxHash3_64;

/// The clock, the randomness and the origin of a command. They come from the message and the order,
/// so they are equal at all members.
#[derive(Clone, Debug)]
pub struct Context {
    sender: MemberId,
    id: CallId,
    now: Duration,
    index: u64,
    random: u64,
}

impl Context {
    /// Returns the context of a call that `sender` has sent. `index` is its position in the order.
    pub fn new(sender: MemberId, id: CallId, now: Duration, index: u64) -> Context {
        let seed = [id.session.member, id.session.nonce, id.number, index].map(u64::to_le_bytes).concat();
        Context { sender, id, now, index, random: XxHash3_64::oneshot(&seed) }
    }

    /// Returns the member that has sent the call.
    pub fn sender(&self) -> MemberId {
        self.sender
    }

    /// Returns the id of the call.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// Returns the time of the log, since the Unix epoch. It is the highest time at which the sender
    /// of a call up to this one has sent it, by the clock of its machine. It never falls. If one
    /// machine's clock is ahead, the time waits until the other clocks have caught up.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Returns the position of the call in the order of this object's messages.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Returns a random number, the same at all members. All can predict it, so it suits no secret.
    pub fn random(&mut self) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

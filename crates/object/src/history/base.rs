//! The state with which a member has joined, on its way to the disk.
//!
//! The polling thread keeps the bytes that came from another member, and the messages that it has
//! learned since. The thread that writes snapshots makes one state of both.
use super::{CHUNK_BYTES, History, HistoryError};
use crate::machine::Machine;
use crate::settings::Settings;
use crate::snapshot::RestoreError;
use crate::state_machine::StateMachine;
use crate::waiting::Inside;
use spindle::MemberId;
use spindle_log::{PreparedSnapshot, Version};

/// The most bytes of messages that are kept. A member that learns more has no first snapshot.
const LEARNED_BYTES_MAX: u64 = 256 << 20;

/// The state of another member, and the messages behind it that came before the first view.
pub(crate) struct Joined {
    state: Vec<u8>,
    learned: Vec<(MemberId, Vec<u8>)>,
    learned_bytes: u64,
}

impl Joined {
    /// `state` is a machine, encoded.
    pub(crate) fn new(state: Vec<u8>) -> Joined {
        Joined { state, learned: vec![], learned_bytes: 0 }
    }

    /// Keeps a message. Returns false if there are too many.
    pub(crate) fn learn(&mut self, sender: MemberId, payload: &[u8]) -> bool {
        self.learned_bytes += payload.len() as u64;
        let has_room = self.learned_bytes <= LEARNED_BYTES_MAX;
        if has_room {
            self.learned.push((sender, payload.to_vec()));
        }
        has_room
    }

    /// Returns the state after all messages, encoded.
    fn encode<T: StateMachine>(&self, settings: &Settings) -> Result<Vec<u8>, HistoryError> {
        let restored = Machine::<T>::restore(&self.state, settings.clone());
        let mut machine = restored.map_err(|error: RestoreError| HistoryError::Stopped(error.into()))?;
        machine.skip_digests();
        // A command that calls through the handle gets the same error as on the polling thread.
        let _inside = Inside::enter();
        for (sender, payload) in &self.learned {
            machine.apply(*sender, payload)?;
        }
        machine.try_snapshot().map_err(|_| HistoryError::Encode)
    }
}

/// The state with which a member has joined, and its version and clock.
pub(crate) struct Base {
    pub(crate) at: (Version, u64),
    pub(crate) joined: Joined,
}

impl Base {
    /// Writes the state to the disk, where it does not count yet.
    ///
    /// # Errors
    /// [`HistoryError`]. Nothing is left on the disk.
    pub(super) fn prepare<T: StateMachine>(
        &self,
        history: &History<T>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<PreparedSnapshot, HistoryError> {
        let Base { at: (version, clock), joined } = self;
        let made = if joined.learned.is_empty() { None } else { Some(joined.encode::<T>(&history.settings)?) };
        let mut writer = history.log.snapshots.begin(*version, *clock)?;
        for chunk in made.as_ref().unwrap_or(&joined.state).chunks(CHUNK_BYTES) {
            if is_cancelled() {
                return Err(HistoryError::Cancelled);
            }
            writer.write(chunk)?;
        }
        Ok(writer.prepare()?)
    }
}

//! The subgroups of a group, and the messages that a member has to send in them.
use super::ledger::MessageId;
use super::objects::{OBJECT_BYTES_MIN, content};
use super::process::SimProcess;
use crate::random::Random;
use spindle_core::wire::ring::Kind;
use spindle_core::{MemberId, Order, Rank, Rule, SubgroupSpec, View, ViewId};
use std::collections::VecDeque;

/// The length of the shortest message: it contains its sender and its number there.
pub(super) const SHORT_BYTES: usize = 8;
/// The length of the longest message.
pub(super) const LONG_BYTES: u64 = 16;
/// The maximum number of messages of an application that wait in a subgroup.
pub(super) const UNSENT_MAX: usize = 20;

/// Returns a subgroup of all members, with a total order.
pub(super) fn total(name: &str) -> SubgroupSpec {
    SubgroupSpec { window: 3, message_bytes_max: LONG_BYTES, ..SubgroupSpec::of_everyone(name) }
}

/// Returns two subgroups of all members, with a total order.
pub(super) fn plain() -> Vec<SubgroupSpec> {
    vec![total("a"), total("b")]
}

/// Draws the subgroups of a seed's group. In a third of the scenes they are [plain].
pub(super) fn drawn(seed: u64) -> Vec<SubgroupSpec> {
    let mut random = Random::new(seed, 24);
    let fifo = |name| SubgroupSpec { order: Order::Fifo, ..total(name) };
    match random.below(6) {
        0 | 1 => plain(),
        2 => vec![total("a"), fifo("b")],
        3 => {
            let few = Rule::First(random.range(1, 3) as u32);
            let more = SubgroupSpec { member_rule: Rule::First(random.range(2, 5) as u32), ..fifo("c") };
            vec![fifo("a"), SubgroupSpec { sender_rule: few, ..fifo("b") }, more]
        }
        _ => {
            let mut specs = vec![if random.one_in(2) { total("a") } else { fifo("a") }];
            let (least, most) = (random.range(1, 3) as u32, random.pick(&[2, 3, 64]));
            for name in ["s", "t", "u"].iter().take(random.range(1, 3) as usize) {
                let order = if random.one_in(3) { Order::Total } else { Order::Fifo };
                let member_rule = Rule::Shard { set: 0, least: least.min(most), most };
                specs.push(SubgroupSpec { order, member_rule, ..total(name) });
            }
            specs
        }
    }
}

/// Returns the view that begins a group with these subgroups, as the library makes it of its
/// configuration.
pub(super) fn first_view(specs: &[SubgroupSpec], ids: Vec<MemberId>) -> View {
    let all: Vec<Rank> = (0..ids.len() as u32).map(Rank).collect();
    let fill = |spec: &SubgroupSpec| {
        let is_shard = matches!(spec.member_rule, Rule::Shard { .. });
        let members = if is_shard { vec![] } else { spec.member_rule.pick(&ids, &all) };
        let senders = spec.sender_rule.pick(&ids, &members);
        SubgroupSpec { members, senders, ..spec.clone() }
    };
    let subgroups = specs.iter().map(fill).collect();
    let mut view = View { id: ViewId(1), members: ids, nonvoters: vec![], subgroups };
    view.share_out();
    view
}

/// Returns true if all members have delivered the same messages there, in whatever view they
/// joined: the subgroup contains all members in all views, and has a total order.
pub(super) fn is_common(initial: &[SubgroupSpec], name: &str) -> bool {
    let is_it = |spec: &SubgroupSpec| spec.order == Order::Total && spec.member_rule == Rule::Everyone;
    initial.iter().any(|spec| spec.name == name && is_it(spec))
}

/// A message to send, or to send again, or the space of a message that was given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unsent {
    pub(super) kind: Kind,
    pub(super) bytes: Vec<u8>,
    /// True if it was accepted in an earlier view.
    pub(super) again: bool,
    /// The name of its object, if it has one.
    pub(super) own: Option<u64>,
}

impl Unsent {
    /// Returns a message of `len` bytes, or of the bytes that it needs at least.
    pub(super) fn message(sent: MessageId, len: usize) -> Unsent {
        let mut bytes = (u64::from(sent.0) << 32 | u64::from(sent.1)).to_le_bytes().to_vec();
        bytes.resize(len.max(SHORT_BYTES), sent.1 as u8);
        Unsent { kind: Kind::Message, bytes, again: false, own: None }
    }

    /// Returns a message of `len` bytes, which is sent as an object.
    pub(super) fn object(sent: MessageId, len: usize) -> Unsent {
        Unsent { kind: Kind::Object, bytes: content(sent, len).to_vec(), again: false, own: None }
    }

    pub(super) fn void(len: usize) -> Unsent {
        Unsent { kind: Kind::Void, bytes: vec![0; len], again: false, own: None }
    }

    /// Returns the message's number.
    pub(super) fn number(&self) -> Option<u32> {
        (self.kind != Kind::Void).then(|| decode(&self.bytes).1)
    }
}

/// Returns the message of these bytes. If they are not as the sender wrote them, it is a message
/// that was never sent.
pub(super) fn decode(bytes: &[u8]) -> MessageId {
    let word = bytes.first_chunk().map_or(u64::MAX, |word| u64::from_le_bytes(*word));
    let (sender, number) = ((word >> 32) as u32, word as u32);
    if bytes.len() >= OBJECT_BYTES_MIN {
        let is_whole = *content((sender, number), bytes.len()) == *bytes;
        return if is_whole { (sender, number) } else { (u32::MAX, u32::MAX) };
    }
    match bytes[SHORT_BYTES.min(bytes.len())..].iter().all(|byte| *byte == number as u8) {
        true => (sender, number),
        false => (u32::MAX, u32::MAX),
    }
}

impl SimProcess {
    /// Returns the messages to send in a subgroup.
    pub(super) fn unsent_in(&mut self, name: &str) -> &mut VecDeque<Unsent> {
        if !self.unsent.contains_key(name) {
            self.unsent.insert(name.into(), VecDeque::new());
        }
        self.unsent.get_mut(name).expect("it is there")
    }

    /// Returns true if there are messages to send.
    pub(super) fn has_unsent(&self) -> bool {
        self.unsent.values().any(|unsent| !unsent.is_empty())
    }
}

//! Letters, and their bytes. One letter is one datagram; numbers are little endian.
//!
//! Every letter starts with magic, version and kind. That header never changes, nor do the numbers of the kinds that ask
//! for something or refuse it; so two versions of Spindle can tell each other that they differ ([`stranger`]). Whatever
//! the bytes, decoding answers with a letter or a [`WireError`].
use super::bytes::{Reader, WireError, Writer};
use super::limits::{LETTER_BYTES_MAX, WANTED_MAX};
use crate::net::{Address, RackName, put_rack, rack};
use crate::ofi::OfiAddress;
use spindle_core::limits::MEMBERS_MAX;
use spindle_core::{MemberId, Rank, SubgroupId, ViewId};
use std::num::NonZeroU64;

/// The version of everything in a letter after its header.
pub const VERSION: u32 = 7;
const MAGIC: u64 = u64::from_le_bytes(*b"spndmail");

const PARTS: u32 = 1;
const ASK: u32 = 2;
const REFUSED: u32 = 3;
const WAIT: u32 = 4;
const VIEW: u32 = 5;
const REQUEST: u32 = 6;
const ANSWER: u32 = 7;
const STATE: u32 = 8;
const PORT: u32 = 9;
const BULK: u32 = 10;
const WANT: u32 = 11;
const OBJECTS: u32 = 12;

/// What processes of a group write to each other.
///
/// A letter whose `from` is not the mailbox that sent it is never received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Letter {
    /// My memory for that view. With three descriptors: row, doorbell and process; and with the doorbell's eventfd behind them, if it has
    /// one.
    Parts {
        /// Which group of this name.
        incarnation: u128,
        /// The view that the memory is for.
        view: ViewId,
        /// Whose memory it is.
        from: MemberId,
        /// Its process.
        pid: u32,
        /// Whether the doorbell has an eventfd.
        event: bool,
        /// The rack that it stands in, if it has been told.
        rack: Option<RackName>,
    },
    /// May I join?
    Ask {
        /// Who wants to; its mailbox is bound, so the id is free.
        from: MemberId,
        /// Its process.
        pid: u32,
        /// The digest of everything that all members must have configured alike.
        config: u64,
        /// How many members it would found the group with; 1 if it minds no number.
        members: u32,
        /// It only wants to follow.
        observer: bool,
        /// Where it can be reached from other hosts, if it can.
        address: Option<Address>,
        /// The rack that it stands in, if it has been told.
        rack: Option<RackName>,
        /// The digest of the seeds among which it waits, if it has them from names that stand for several.
        seeds: Option<NonZeroU64>,
    },
    /// No. The answer to [`Letter::Ask`], and to any request of another version.
    Refused {
        /// The reason.
        why: Refusal,
    },
    /// Noted. The other answer to [`Letter::Ask`].
    Wait {
        /// How many members the group has.
        members: u32,
        /// Who would lead the next change.
        leader: MemberId,
        /// The group exists and can't go on: too few members are left, which are those that are present.
        blocked: bool,
        /// Who is here or waits, with their processes, 0 for one that is not known; at most 1024 of them are told.
        present: Vec<(MemberId, u32)>,
    },
    /// A view that was decided, for somebody who joins or was left behind. With one descriptor: the encoded view, as
    /// [`enclose`](super::enclose) makes it.
    View {
        /// Which group of this name.
        incarnation: u128,
        /// The view's number.
        view: ViewId,
        /// Who tells it.
        from: MemberId,
        /// The length of the encoded view.
        bytes: u64,
    },
    /// Another process of this user wants something.
    Request {
        /// Who asks, which may be a visitor.
        from: MemberId,
        /// Comes back in the answer; means nothing to who answers.
        reply: u64,
        /// What it wants.
        what: Request,
    },
    /// The answer to [`Letter::Request`]. With one descriptor: JSON, as [`enclose`](super::enclose) makes it.
    Answer {
        /// That of the request.
        reply: u64,
        /// The length of the text.
        bytes: u64,
    },
    /// The application's state, for a joiner. With two descriptors: the data and the ends of the [pipe](crate::pipe) through which it
    /// comes.
    State {
        /// The view in which the state was taken.
        view: ViewId,
        /// Whose state it is.
        from: MemberId,
    },
    /// Where I can be called through libfabric, for that view; for members of lower ranks, on other hosts.
    Port {
        /// Which group of this name.
        incarnation: u128,
        /// The view that the connection is for.
        view: ViewId,
        /// Who is there.
        from: MemberId,
        /// Where.
        address: OfiAddress,
    },
    /// What I lend in a bulk group of that view comes through this. With one descriptor: a connected socket.
    Bulk {
        /// Which group of this name.
        incarnation: u128,
        /// The view.
        view: ViewId,
        /// Who wrote it.
        from: MemberId,
        /// Which of the view's bulk groups, by the members' own count.
        number: u64,
    },
    /// Objects of that view that who follows it needs; at most [`WANTED_MAX`](super::WANTED_MAX) of them are asked for at once.
    Want {
        /// Which group of this name.
        incarnation: u128,
        /// The view.
        view: ViewId,
        /// Who follows.
        from: MemberId,
        /// Comes back in the answer; means nothing to who answers.
        reply: u64,
        /// Which.
        objects: Vec<Wanted>,
    },
    /// The answer to [`Letter::Want`], on the same machine. With two descriptors: the data and the ends of the [pipe](crate::pipe) through
    /// which they come.
    Objects {
        /// Whose objects.
        from: MemberId,
        /// That of the question.
        reply: u64,
    },
}

/// An object of a view.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Wanted {
    /// Where.
    pub subgroup: SubgroupId,
    /// Whose it is.
    pub sender: Rank,
    /// Its number among that sender's there.
    pub number: u64,
}

/// Why somebody can't join. The values are those of who refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It speaks another version.
    #[error("the group speaks version {0}; update the older")]
    Version(u32),
    /// It has another configuration.
    #[error(
        "the group has another configuration (digest {0:016x}); give all members the same subgroups, windows, \
             message sizes and time of suspicion"
    )]
    Config(u64),
    /// It is being founded, by another number of members.
    #[error("the group is being founded by {0} members; give all the same number")]
    Founders(u32),
    /// There is no room for more members than these.
    #[error("the group is full with {0} members; wait until one leaves")]
    Full(u32),
    /// Another process has its id, and lives: a member, or who waits to be one.
    #[error("id {0} is in use by another process of the group, which lives; choose another, or none")]
    InUse(MemberId),
    /// Who was asked for its state can give none. The answer to [`Request::State`].
    #[error(
        "the members' applications can't give their state: receivers deliver their messages, or their snapshots panic; \
             let handlers deliver, and see the members' logs"
    )]
    NoState,
}

/// What another process of this user may want.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Request {
    /// To know how you and your group stand.
    Status,
    /// That you leave the group, without loss.
    Leave,
    /// That the group goes on without this member.
    Evict(MemberId),
    /// The application's state, to begin from.
    State,
    /// That you forget the one who asks, which observed your group and does so no more. Not answered.
    Forget,
    /// To know the view. Answered by [`Letter::View`].
    View,
    /// That you count on nothing of the one who asks in any view behind this one: it has begun none of them and never will. Not answered.
    Stopped {
        /// Of which group.
        incarnation: u128,
        /// The last view that it has begun.
        view: ViewId,
    },
}

impl Letter {
    /// How many descriptors come with it.
    pub fn fds(&self) -> usize {
        match self {
            Self::Parts { event, .. } => 3 + usize::from(*event),
            Self::State { .. } | Self::Objects { .. } => 2,
            Self::View { .. } | Self::Answer { .. } | Self::Bulk { .. } => 1,
            Self::Ask { .. }
            | Self::Refused { .. }
            | Self::Wait { .. }
            | Self::Request { .. }
            | Self::Port { .. }
            | Self::Want { .. } => 0,
        }
    }

    /// Who says that it wrote it, where it says so.
    pub(crate) fn from(&self) -> Option<MemberId> {
        match self {
            Self::Parts { from, .. }
            | Self::Ask { from, .. }
            | Self::View { from, .. }
            | Self::Request { from, .. }
            | Self::State { from, .. }
            | Self::Port { from, .. }
            | Self::Bulk { from, .. }
            | Self::Want { from, .. }
            | Self::Objects { from, .. } => Some(*from),
            Self::Refused { .. } | Self::Wait { .. } | Self::Answer { .. } => None,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        self.encode_as(VERSION)
    }

    /// As a program of another version would write it.
    pub(super) fn encode_as(&self, version: u32) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(128));
        out.u64(MAGIC);
        out.u32(version);
        out.u32(self.kind());
        match self {
            Self::Parts { incarnation, view, from, pid, event, rack } => {
                out.u128(*incarnation);
                out.u64(view.0);
                out.u64(from.0);
                out.u32(*pid);
                out.u32(u32::from(*event));
                put_rack(&mut out, rack.as_ref());
            }
            Self::Ask { from, pid, config, members, observer, address, rack, seeds } => {
                out.u64(from.0);
                out.u32(*pid);
                out.u64(*config);
                out.u32(*members);
                out.u32(u32::from(*observer));
                out.text(&address.as_ref().map(Address::to_string).unwrap_or_default());
                put_rack(&mut out, rack.as_ref());
                out.u64(seeds.map_or(0, NonZeroU64::get));
            }
            Self::Refused { why } => put_refusal(&mut out, *why),
            Self::Wait { members, leader, blocked, present } => {
                out.u32(*members);
                out.u64(leader.0);
                out.u32(u32::from(*blocked));
                let present = &present[..present.len().min(MEMBERS_MAX)];
                out.u32(present.len() as u32);
                for (id, pid) in present {
                    out.u64(id.0);
                    out.u32(*pid);
                }
            }
            Self::View { incarnation, view, from, bytes } => {
                out.u128(*incarnation);
                [view.0, from.0, *bytes].into_iter().for_each(|value| out.u64(value));
            }
            Self::Request { from, reply, what } => {
                out.u64(from.0);
                out.u64(*reply);
                put_request(&mut out, *what);
            }
            Self::Answer { reply, bytes } => {
                out.u64(*reply);
                out.u64(*bytes);
            }
            Self::State { view, from } => [view.0, from.0].into_iter().for_each(|value| out.u64(value)),
            Self::Port { incarnation, view, from, address } => {
                out.u128(*incarnation);
                [view.0, from.0].into_iter().for_each(|value| out.u64(value));
                out.bytes(&address.to_bytes());
            }
            Self::Bulk { incarnation, view, from, number } => {
                out.u128(*incarnation);
                [view.0, from.0, *number].into_iter().for_each(|value| out.u64(value));
            }
            Self::Want { incarnation, view, from, reply, objects } => {
                out.u128(*incarnation);
                [view.0, from.0, *reply].into_iter().for_each(|value| out.u64(value));
                let objects = &objects[..objects.len().min(WANTED_MAX)];
                out.u32(objects.len() as u32);
                for Wanted { subgroup, sender, number } in objects {
                    out.u32(subgroup.0);
                    out.u32(sender.0);
                    out.u64(*number);
                }
            }
            Self::Objects { from, reply } => [from.0, *reply].into_iter().for_each(|value| out.u64(value)),
        }
        debug_assert!(out.0.len() <= LETTER_BYTES_MAX);
        out.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader(bytes);
        let (version, kind) = header(&mut from)?;
        if version != VERSION {
            return Err(WireError::Version { got: version });
        }
        let letter = match kind {
            PARTS => Self::Parts {
                incarnation: from.u128()?,
                view: ViewId(from.u64()?),
                from: MemberId(from.u64()?),
                pid: from.u32()?,
                event: truth(&mut from, "eventfd of a doorbell")?,
                rack: rack(&mut from)?,
            },
            ASK => ask(&mut from)?,
            REFUSED => Self::Refused { why: refusal(&mut from)? },
            WAIT => wait(&mut from)?,
            VIEW => Self::View {
                incarnation: from.u128()?,
                view: ViewId(from.u64()?),
                from: MemberId(from.u64()?),
                bytes: from.u64()?,
            },
            REQUEST => Self::Request { from: MemberId(from.u64()?), reply: from.u64()?, what: request(&mut from)? },
            ANSWER => Self::Answer { reply: from.u64()?, bytes: from.u64()? },
            STATE => Self::State { view: ViewId(from.u64()?), from: MemberId(from.u64()?) },
            PORT => Self::Port {
                incarnation: from.u128()?,
                view: ViewId(from.u64()?),
                from: MemberId(from.u64()?),
                address: OfiAddress::from_bytes(from.bytes()?).ok_or(WireError::Value { field: "port" })?,
            },
            BULK => Self::Bulk {
                incarnation: from.u128()?,
                view: ViewId(from.u64()?),
                from: MemberId(from.u64()?),
                number: from.u64()?,
            },
            WANT => want(&mut from)?,
            OBJECTS => Self::Objects { from: MemberId(from.u64()?), reply: from.u64()? },
            got => return Err(WireError::Kind { got }),
        };
        match from.0.len() {
            0 => Ok(letter),
            extra => Err(WireError::Long { extra: extra as u64 }),
        }
    }

    fn kind(&self) -> u32 {
        match self {
            Self::Parts { .. } => PARTS,
            Self::Ask { .. } => ASK,
            Self::Refused { .. } => REFUSED,
            Self::Wait { .. } => WAIT,
            Self::View { .. } => VIEW,
            Self::Request { .. } => REQUEST,
            Self::Answer { .. } => ANSWER,
            Self::State { .. } => STATE,
            Self::Bulk { .. } => BULK,
            Self::Port { .. } => PORT,
            Self::Want { .. } => WANT,
            Self::Objects { .. } => OBJECTS,
        }
    }
}

/// What can be understood of a letter of another version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stranger {
    /// It wants an answer.
    Asks,
    /// It is the answer to a letter that it did not understand.
    Refuses { version: u32 },
    /// It may be anything.
    Else,
}

/// The meaning of bytes whose version is not ours. `None`: they are no letter of another version.
pub(super) fn stranger(bytes: &[u8]) -> Option<Stranger> {
    match header(&mut Reader(bytes)) {
        Ok((VERSION, _)) | Err(_) => None,
        Ok((_, ASK | REQUEST)) => Some(Stranger::Asks),
        Ok((version, REFUSED)) => Some(Stranger::Refuses { version }),
        Ok(_) => Some(Stranger::Else),
    }
}

fn header(from: &mut Reader<'_>) -> Result<(u32, u32), WireError> {
    if from.u64().map_err(|_| WireError::Magic)? != MAGIC {
        return Err(WireError::Magic);
    }
    Ok((from.u32()?, from.u32()?))
}

fn ask(from: &mut Reader<'_>) -> Result<Letter, WireError> {
    Ok(Letter::Ask {
        from: MemberId(from.u64()?),
        pid: from.u32()?,
        config: from.u64()?,
        members: from.u32()?,
        observer: truth(from, "wish to observe")?,
        address: match from.text("address")? {
            "" => None,
            text => {
                // What a sender writes is the one form of it.
                let address = text.parse().ok().filter(|address: &Address| address.to_string() == text);
                Some(address.ok_or(WireError::Value { field: "address" })?)
            }
        },
        rack: rack(from)?,
        seeds: NonZeroU64::new(from.u64()?),
    })
}

fn truth(from: &mut Reader<'_>, field: &'static str) -> Result<bool, WireError> {
    match from.u32()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::Value { field }),
    }
}

fn put_refusal(out: &mut Writer, refusal: Refusal) {
    match refusal {
        Refusal::Version(version) => {
            out.u32(1);
            out.u32(version);
        }
        Refusal::Config(config) => {
            out.u32(2);
            out.u64(config);
        }
        Refusal::Founders(members) => {
            out.u32(3);
            out.u32(members);
        }
        Refusal::NoState => out.u32(5),
        Refusal::InUse(id) => {
            out.u32(6);
            out.u64(id.0);
        }
        Refusal::Full(members) => {
            out.u32(4);
            out.u32(members);
        }
    }
}

fn refusal(from: &mut Reader<'_>) -> Result<Refusal, WireError> {
    Ok(match from.u32()? {
        1 => Refusal::Version(from.u32()?),
        2 => Refusal::Config(from.u64()?),
        3 => Refusal::Founders(from.u32()?),
        4 => Refusal::Full(from.u32()?),
        5 => Refusal::NoState,
        6 => Refusal::InUse(MemberId(from.u64()?)),
        _ => return Err(WireError::Value { field: "reason" }),
    })
}

fn wait(from: &mut Reader<'_>) -> Result<Letter, WireError> {
    let members = from.u32()?;
    let leader = MemberId(from.u64()?);
    let blocked = truth(from, "standstill")?;
    let count = from.count()?;
    let mut present = Vec::new();
    for _ in 0..count {
        present.push((MemberId(from.u64()?), from.u32()?));
    }
    Ok(Letter::Wait { members, leader, blocked, present })
}

fn want(from: &mut Reader<'_>) -> Result<Letter, WireError> {
    let (incarnation, view) = (from.u128()?, ViewId(from.u64()?));
    let (asker, reply, count) = (MemberId(from.u64()?), from.u64()?, from.u32()?);
    if count as usize > WANTED_MAX {
        return Err(WireError::Value { field: "number of objects" });
    }
    let mut objects = Vec::new();
    for _ in 0..count {
        let (subgroup, sender) = (SubgroupId(from.u32()?), Rank(from.u32()?));
        objects.push(Wanted { subgroup, sender, number: from.u64()? });
    }
    Ok(Letter::Want { incarnation, view, from: asker, reply, objects })
}

fn put_request(out: &mut Writer, request: Request) {
    match request {
        Request::Status => out.u32(1),
        Request::Leave => out.u32(2),
        Request::State => out.u32(4),
        Request::Forget => out.u32(5),
        Request::View => out.u32(6),
        Request::Evict(id) => {
            out.u32(3);
            out.u64(id.0);
        }
        Request::Stopped { incarnation, view } => {
            out.u32(7);
            out.u128(incarnation);
            out.u64(view.0);
        }
    }
}

fn request(from: &mut Reader<'_>) -> Result<Request, WireError> {
    Ok(match from.u32()? {
        1 => Request::Status,
        2 => Request::Leave,
        3 => Request::Evict(MemberId(from.u64()?)),
        4 => Request::State,
        5 => Request::Forget,
        6 => Request::View,
        7 => Request::Stopped { incarnation: from.u128()?, view: ViewId(from.u64()?) },
        _ => return Err(WireError::Value { field: "request" }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(count: u64) -> Vec<Wanted> {
        let wanted = |number| Wanted { subgroup: SubgroupId(3), sender: Rank(number as u32), number: number << 40 };
        (0..count).map(wanted).collect()
    }

    fn samples() -> Vec<Letter> {
        let (view, from, incarnation) = (ViewId(7), MemberId(3), u128::MAX - 5);
        let present = |count: u64| (0..count).map(|i| (MemberId(i << 40), i as u32)).collect();
        vec![
            Letter::Parts { incarnation, view, from, pid: 4242, event: false, rack: None },
            Letter::Parts { incarnation, view, from, pid: 1, event: true, rack: Some("r".repeat(64).parse().unwrap()) },
            Letter::Ask {
                from,
                pid: 1,
                config: 0xfeed,
                members: 2,
                observer: true,
                address: None,
                rack: None,
                seeds: None,
            },
            Letter::Ask {
                from,
                pid: u32::MAX,
                config: u64::MAX,
                members: 0,
                observer: false,
                address: Some("[fd00::7]:7411".parse().unwrap()),
                rack: Some("row-1".parse().unwrap()),
                seeds: Some(NonZeroU64::MAX),
            },
            Letter::Refused { why: Refusal::Version(9) },
            Letter::Refused { why: Refusal::Config(u64::MAX) },
            Letter::Refused { why: Refusal::Founders(3) },
            Letter::Refused { why: Refusal::Full(64) },
            Letter::Refused { why: Refusal::NoState },
            Letter::Refused { why: Refusal::InUse(MemberId(u64::MAX)) },
            Letter::Wait { members: 2, leader: from, blocked: true, present: present(0) },
            Letter::Wait { members: 1024, leader: from, blocked: false, present: present(MEMBERS_MAX as u64) },
            Letter::View { incarnation, view, from, bytes: 1 << 40 },
            Letter::Request { from, reply: 99, what: Request::Status },
            Letter::Request { from, reply: 99, what: Request::Leave },
            Letter::Request { from, reply: 99, what: Request::Evict(MemberId(5)) },
            Letter::Answer { reply: 99, bytes: 12 },
            Letter::Request { from, reply: 9, what: Request::State },
            Letter::Request { from, reply: 0, what: Request::Forget },
            Letter::Request { from, reply: 0, what: Request::View },
            Letter::Request { from, reply: 0, what: Request::Stopped { incarnation, view } },
            Letter::State { view, from },
            Letter::Bulk { incarnation, view, from, number: u64::MAX - 1 },
            Letter::Want { incarnation, view, from, reply: 7, objects: vec![] },
            Letter::Want { incarnation, view, from, reply: u64::MAX, objects: wanted(WANTED_MAX as u64) },
            Letter::Objects { from, reply: 1 << 50 },
            Letter::Port { incarnation, view, from, address: OfiAddress::from_bytes(&[7; 68]).unwrap() },
            Letter::Port { incarnation, view, from, address: OfiAddress::from_bytes(&[9; 5]).unwrap() },
        ]
    }

    #[test]
    fn every_letter_survives_the_trip() {
        for letter in samples() {
            let bytes = letter.encode();
            assert!(bytes.len() <= LETTER_BYTES_MAX);
            assert_eq!(Letter::decode(&bytes), Ok(letter));
        }
    }

    #[test]
    fn every_cut_and_every_addition_is_noticed() {
        for letter in samples() {
            let mut bytes = letter.encode();
            for cut in 0..bytes.len() {
                let expected = if cut < 8 { WireError::Magic } else { WireError::Short };
                assert_eq!(Letter::decode(&bytes[..cut]), Err(expected), "{letter:?} cut to {cut}");
            }
            bytes.push(0);
            assert_eq!(Letter::decode(&bytes), Err(WireError::Long { extra: 1 }));
        }
    }

    #[test]
    fn no_more_are_told_than_a_letter_takes() {
        let present: Vec<_> = (0..MEMBERS_MAX as u64 + 5).map(|i| (MemberId(i), 1)).collect();
        let sent = Letter::Wait { members: 1, leader: MemberId(0), blocked: false, present: present.clone() };
        let received =
            Letter::Wait { members: 1, leader: MemberId(0), blocked: false, present: present[..MEMBERS_MAX].to_vec() };
        assert_eq!(Letter::decode(&sent.encode()), Ok(received));
        let want = |objects| Letter::Want { incarnation: 1, view: ViewId(2), from: MemberId(3), reply: 4, objects };
        let most = wanted(WANTED_MAX as u64);
        let mut bytes = want(wanted(WANTED_MAX as u64 + 1)).encode();
        assert_eq!(Letter::decode(&bytes), Ok(want(most)));
        bytes[56] += 1;
        assert_eq!(Letter::decode(&bytes), Err(WireError::Value { field: "number of objects" }));
    }

    #[test]
    fn wrong_fields_are_named() {
        let (from, address, rack, seeds) = (MemberId(1), None, None, None);
        let ask = Letter::Ask { from, pid: 1, config: 1, members: 1, observer: true, address, rack, seeds };
        let mut bytes = ask.encode();
        bytes[40] = 2;
        assert_eq!(Letter::decode(&bytes), Err(WireError::Value { field: "wish to observe" }), "{bytes:?}");
        bytes[12] = 77;
        assert_eq!(Letter::decode(&bytes), Err(WireError::Kind { got: 77 }));
    }

    #[test]
    fn other_versions_can_ask_and_refuse_and_nothing_else() {
        for letter in samples() {
            assert_eq!(stranger(&letter.encode()), None);
            let mut bytes = letter.encode_as(VERSION + 1);
            assert_eq!(Letter::decode(&bytes), Err(WireError::Version { got: VERSION + 1 }));
            // Whatever they have after the header.
            bytes.truncate(16);
            let expected = match letter {
                Letter::Ask { .. } | Letter::Request { .. } => Stranger::Asks,
                Letter::Refused { .. } => Stranger::Refuses { version: VERSION + 1 },
                _ => Stranger::Else,
            };
            assert_eq!(stranger(&bytes), Some(expected));
        }
        assert_eq!(stranger(b"spndmail"), None);
        assert_eq!(stranger(b"GET / HTTP/1.1\r\n"), None);
    }

    /// Whatever arrives, the answer is a letter or an error, and a letter says what its bytes say.
    #[test]
    fn garbage_letters_never_panic() {
        let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_u64);
        println!("replay: SEED={seed} cargo test -p spindle-fabric garbage_letters_never_panic");
        let mut state = seed | 1;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let valid: Vec<_> = samples().iter().map(Letter::encode).filter(|bytes| bytes.len() < 200).collect();
        let mut understood = 0_u32;
        for i in 0..100_000_u32 {
            let mut bytes = if i % 4 == 0 {
                let length = random() % 200;
                (0..length).map(|_| random() as u8).collect()
            } else {
                valid[random() as usize % valid.len()].clone()
            };
            for _ in 0..random() % 4 {
                let at = random() as usize % bytes.len().max(1);
                match bytes.get_mut(at) {
                    Some(byte) => *byte ^= 1 << (random() % 8),
                    None => bytes.push(random() as u8),
                }
            }
            stranger(&bytes);
            if let Ok(letter) = Letter::decode(&bytes) {
                // An address can be written in more ways than one.
                assert_eq!(Letter::decode(&letter.encode()), Ok(letter));
                understood += 1;
            }
        }
        // Most were a valid letter with up to three bits turned.
        assert!((10_000..90_000).contains(&understood), "{understood}");
    }
}

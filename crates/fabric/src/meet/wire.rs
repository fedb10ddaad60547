//! What founder and joiner say to each other, as bytes. One message is one packet; numbers are little endian.
//!
//! Every message starts with magic, version and kind, and that header never changes, so that two versions of Spindle
//! can tell each other that they differ. Whatever the bytes, decoding answers with a message or a [`WireError`].
use super::error::Loss;
use super::limits::MEMBERS_PER_PART;
use super::{Gathering, Member, Present, Roster};
use crate::mail::GroupName;
use crate::mail::bytes::{Reader, WireError, Writer};
use crate::mail::limits::GROUP_NAME_BYTES_MAX;
use spindle_core::limits::MEMBERS_MAX;
use spindle_core::{MemberId, Rank};

/// The version of everything after the header.
pub const VERSION: u32 = 1;
const MAGIC: u64 = u64::from_le_bytes(*b"spindle\0");

/// A joiner's first message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub(super) group: GroupName,
    pub(super) members: u32,
    pub(super) id: Option<MemberId>,
    pub(super) config: u64,
    pub(super) pid: u32,
}

/// Why a newcomer is turned away; the values are the founder's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// The header tells the version.
    Version,
    /// The founder serves another group.
    Group,
    Members(u32),
    Config(u64),
    IdInUse {
        id: MemberId,
        pid: u32,
    },
    Running {
        pids: Vec<u32>,
    },
    NotYours {
        uid: u32,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Message {
    Hello(Hello),
    Refusal(Refusal),
    /// Who is here so far.
    Here(Gathering),
    /// The roster is complete.
    View(Roster),
    /// From a member, with its descriptors.
    Offer,
    /// With the descriptors of `count` members from rank `first`.
    Part {
        first: u32,
        count: u32,
    },
    /// From a member that holds everybody's descriptors.
    Ready,
    /// Everybody is ready.
    Go,
    /// The meeting failed.
    Lost {
        id: MemberId,
        pid: u32,
        why: Loss,
    },
}

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        self.encode_as(VERSION)
    }

    /// As a program of another version would write it.
    pub(super) fn encode_as(&self, version: u32) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(128));
        out.u64(MAGIC);
        out.u32(version);
        out.u32(self.kind());
        match self {
            Self::Hello(hello) => put_hello(&mut out, hello),
            Self::Refusal(refusal) => put_refusal(&mut out, refusal),
            Self::Here(gathering) => put_gathering(&mut out, gathering),
            Self::View(roster) => put_roster(&mut out, roster),
            Self::Part { first, count } => {
                out.u32(*first);
                out.u32(*count);
            }
            Self::Lost { id, pid, why } => {
                out.u64(id.0);
                out.u32(*pid);
                out.u32(match why {
                    Loss::Gone => 0,
                    Loss::Misbehaved => 1,
                    Loss::Late => 2,
                });
            }
            Self::Offer | Self::Ready | Self::Go => {}
        }
        out.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader(bytes);
        if from.u64().map_err(|_| WireError::Magic)? != MAGIC {
            return Err(WireError::Magic);
        }
        let version = from.u32()?;
        if version != VERSION {
            return Err(WireError::Version { got: version });
        }
        let message = match from.u32()? {
            1 => Self::Hello(hello(&mut from)?),
            2 => Self::Refusal(refusal(&mut from)?),
            3 => Self::Here(gathering(&mut from)?),
            4 => Self::View(roster(&mut from)?),
            5 => Self::Offer,
            6 => part(&mut from)?,
            7 => Self::Ready,
            8 => Self::Go,
            9 => lost(&mut from)?,
            got => return Err(WireError::Kind { got }),
        };
        match from.0.len() {
            0 => Ok(message),
            extra => Err(WireError::Long { extra: extra as u64 }),
        }
    }

    fn kind(&self) -> u32 {
        match self {
            Self::Hello(_) => 1,
            Self::Refusal(_) => 2,
            Self::Here(_) => 3,
            Self::View(_) => 4,
            Self::Offer => 5,
            Self::Part { .. } => 6,
            Self::Ready => 7,
            Self::Go => 8,
            Self::Lost { .. } => 9,
        }
    }
}

fn put_hello(out: &mut Writer, hello: &Hello) {
    out.u32(hello.members);
    out.optional_id(hello.id);
    out.u64(hello.config);
    out.u32(hello.pid);
    out.u32(hello.group.as_str().len() as u32);
    out.0.extend_from_slice(hello.group.as_str().as_bytes());
}

fn hello(from: &mut Reader<'_>) -> Result<Hello, WireError> {
    let members = from.u32()?;
    let id = from.optional_id()?;
    let config = from.u64()?;
    let pid = from.u32()?;
    let bytes = from.u32()? as usize;
    if bytes > GROUP_NAME_BYTES_MAX {
        return Err(WireError::Value { field: "group name" });
    }
    let name = str::from_utf8(from.take(bytes)?).ok().and_then(|name| GroupName::new(name).ok());
    let group = name.ok_or(WireError::Value { field: "group name" })?;
    Ok(Hello { group, members, id, config, pid })
}

fn put_refusal(out: &mut Writer, refusal: &Refusal) {
    match refusal {
        Refusal::Version => out.u32(1),
        Refusal::Group => out.u32(2),
        Refusal::Members(members) => {
            out.u32(3);
            out.u32(*members);
        }
        Refusal::Config(config) => {
            out.u32(4);
            out.u64(*config);
        }
        Refusal::IdInUse { id, pid } => {
            out.u32(5);
            out.u64(id.0);
            out.u32(*pid);
        }
        Refusal::Running { pids } => {
            out.u32(6);
            out.u32(pids.len() as u32);
            pids.iter().for_each(|pid| out.u32(*pid));
        }
        Refusal::NotYours { uid } => {
            out.u32(7);
            out.u32(*uid);
        }
    }
}

fn refusal(from: &mut Reader<'_>) -> Result<Refusal, WireError> {
    Ok(match from.u32()? {
        1 => Refusal::Version,
        2 => Refusal::Group,
        3 => Refusal::Members(from.u32()?),
        4 => Refusal::Config(from.u64()?),
        5 => Refusal::IdInUse { id: MemberId(from.u64()?), pid: from.u32()? },
        6 => {
            let count = from.count()?;
            Refusal::Running { pids: (0..count).map(|_| from.u32()).collect::<Result<_, _>>()? }
        }
        7 => Refusal::NotYours { uid: from.u32()? },
        _ => return Err(WireError::Value { field: "reason" }),
    })
}

fn put_gathering(out: &mut Writer, gathering: &Gathering) {
    out.u32(gathering.members);
    out.u32(gathering.present.len() as u32);
    for present in &gathering.present {
        out.optional_id(present.id);
        out.u32(present.pid);
    }
}

fn gathering(from: &mut Reader<'_>) -> Result<Gathering, WireError> {
    let members = from.u32()?;
    let count = from.count()?;
    let mut present = Vec::new();
    for _ in 0..count {
        present.push(Present { id: from.optional_id()?, pid: from.u32()? });
    }
    Ok(Gathering { members, present, dropped: None })
}

fn put_roster(out: &mut Writer, roster: &Roster) {
    out.u64(roster.incarnation as u64);
    out.u64((roster.incarnation >> 64) as u64);
    out.u32(roster.me.0);
    out.u32(roster.founder.0);
    out.u32(roster.members.len() as u32);
    for member in &roster.members {
        out.u64(member.id.0);
        out.u32(member.pid);
    }
}

fn roster(from: &mut Reader<'_>) -> Result<Roster, WireError> {
    let incarnation = u128::from(from.u64()?) | u128::from(from.u64()?) << 64;
    let me = Rank(from.u32()?);
    let founder = Rank(from.u32()?);
    let count = from.count()?;
    let mut members: Vec<Member> = Vec::new();
    for _ in 0..count {
        members.push(Member { id: MemberId(from.u64()?), pid: from.u32()? });
    }
    if !members.windows(2).all(|pair| pair[0].id < pair[1].id) {
        return Err(WireError::Value { field: "order of members" });
    }
    if me.index() >= members.len() || founder.index() >= members.len() {
        return Err(WireError::Value { field: "rank" });
    }
    Ok(Roster { members, me, founder, incarnation })
}

fn part(from: &mut Reader<'_>) -> Result<Message, WireError> {
    let first = from.u32()?;
    let count = from.u32()?;
    if first as usize >= MEMBERS_MAX || count == 0 || count as usize > MEMBERS_PER_PART {
        return Err(WireError::Value { field: "part" });
    }
    Ok(Message::Part { first, count })
}

fn lost(from: &mut Reader<'_>) -> Result<Message, WireError> {
    let id = MemberId(from.u64()?);
    let pid = from.u32()?;
    let why = match from.u32()? {
        0 => Loss::Gone,
        1 => Loss::Misbehaved,
        2 => Loss::Late,
        _ => return Err(WireError::Value { field: "reason" }),
    };
    Ok(Message::Lost { id, pid, why })
}

#[cfg(test)]
mod tests {
    use super::super::limits::MESSAGE_BYTES_MAX;
    use super::*;

    fn samples() -> Vec<Message> {
        let group = GroupName::new("trading-1").unwrap();
        let hello = Hello { group, members: 3, id: Some(MemberId(7)), config: 0xfeed, pid: 4242 };
        let present = vec![Present { id: None, pid: 1 }, Present { id: Some(MemberId(0)), pid: 2 }];
        let members = (0..MEMBERS_MAX as u64).map(|i| Member { id: MemberId(3 * i), pid: i as u32 }).collect();
        vec![
            Message::Hello(hello.clone()),
            Message::Hello(Hello { id: None, ..hello }),
            Message::Refusal(Refusal::Version),
            Message::Refusal(Refusal::Group),
            Message::Refusal(Refusal::Members(4)),
            Message::Refusal(Refusal::Config(u64::MAX)),
            Message::Refusal(Refusal::IdInUse { id: MemberId(7), pid: 9 }),
            Message::Refusal(Refusal::Running { pids: vec![1, 2, 3] }),
            Message::Refusal(Refusal::NotYours { uid: 1000 }),
            Message::Here(Gathering { members: 3, present, dropped: None }),
            Message::View(Roster { members, me: Rank(1023), founder: Rank(2), incarnation: u128::MAX - 5 }),
            Message::Offer,
            Message::Part { first: 80, count: 80 },
            Message::Ready,
            Message::Go,
            Message::Lost { id: MemberId(1), pid: 2, why: Loss::Late },
        ]
    }

    #[test]
    fn every_message_survives_the_trip() {
        for message in samples() {
            let bytes = message.encode();
            assert!(bytes.len() <= MESSAGE_BYTES_MAX);
            assert_eq!(Message::decode(&bytes), Ok(message));
        }
    }

    #[test]
    fn every_cut_and_every_addition_is_noticed() {
        for message in samples() {
            let mut bytes = message.encode();
            for cut in 0..bytes.len() {
                let expected = if cut < 8 { WireError::Magic } else { WireError::Short };
                assert_eq!(Message::decode(&bytes[..cut]), Err(expected), "{message:?} cut to {cut}");
            }
            bytes.push(0);
            assert_eq!(Message::decode(&bytes), Err(WireError::Long { extra: 1 }));
        }
    }

    #[test]
    fn wrong_fields_are_named() {
        assert_eq!(Message::decode(&Message::Go.encode_as(2)), Err(WireError::Version { got: 2 }));
        let member = |id| Member { id: MemberId(id), pid: 1 };
        let view = |members, me| Message::View(Roster { members, me: Rank(me), founder: Rank(0), incarnation: 1 });
        let wrong = |message: Message| Message::decode(&message.encode()).unwrap_err();
        assert_eq!(wrong(view(vec![member(1), member(1)], 0)), WireError::Value { field: "order of members" });
        assert_eq!(wrong(view(vec![member(1), member(2)], 2)), WireError::Value { field: "rank" });
        assert_eq!(wrong(view(vec![], 0)), WireError::Value { field: "rank" });
        let pids = vec![0; MEMBERS_MAX + 1];
        assert_eq!(wrong(Message::Refusal(Refusal::Running { pids })), WireError::Value { field: "number of members" });
        assert_eq!(wrong(Message::Part { first: 0, count: 81 }), WireError::Value { field: "part" });
    }

    /// Whatever arrives, the answer is a message or an error, and a message says what its bytes say.
    #[test]
    fn garbage_never_panics() {
        let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_u64);
        println!("replay: SEED={seed} cargo test -p spindle-fabric garbage_never_panics");
        let mut state = seed | 1;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let valid: Vec<_> = samples().iter().map(Message::encode).filter(|bytes| bytes.len() < 200).collect();
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
            if let Ok(message) = Message::decode(&bytes) {
                assert_eq!(message.encode(), bytes);
                understood += 1;
            }
        }
        // Most were a valid message with up to three bits turned.
        assert!((10_000..90_000).contains(&understood), "{understood}");
    }
}

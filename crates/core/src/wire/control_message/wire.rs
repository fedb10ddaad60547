//! The encoding of control messages. Numbers are little endian.
use super::{ControlMessage, Refusal, Request, VERSION, Wanted};
use crate::clock::ClockSkew;
use crate::ids::{MemberId, Rank, SubgroupId, ViewId};
use crate::limits::{BOOTSTRAP_WORDS_MAX, CONTROL_MESSAGE_BYTES_MAX, MEMBERS_MAX, WANTED_MAX};
use crate::wire::address::Address;
use crate::wire::birth::Birth;
use crate::wire::bytes::{Reader, WireError, Writer};
use crate::wire::port::PortAddress;
use crate::wire::query::NoAnswer;
use crate::wire::rack::{put_rack, rack};
use crate::wire::records::{NoRecords, WantedRecords};
use crate::wire::settings::SharedSettings;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU64;

const MAGIC: u64 = u64::from_le_bytes(*b"spndmail");

const ROW_DESCRIPTORS: u32 = 1;
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
const BOOTSTRAP: u32 = 13;
const WANT_RECORDS: u32 = 14;
const RECORDS: u32 = 15;
const NO_RECORDS: u32 = 16;
const QUERY: u32 = 17;
const QUERY_ANSWER: u32 = 18;
const NO_ANSWER: u32 = 19;

impl ControlMessage {
    /// Returns the message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_as(VERSION)
    }

    /// Returns the message as a program of another version would write it.
    pub fn encode_as(&self, version: u32) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(128));
        out.u64(MAGIC);
        out.u32(version);
        out.u32(self.kind());
        match self {
            Self::RowDescriptors { incarnation, view, from, pid, birth, at, bytes, event, address, rack } => {
                out.u128(*incarnation);
                out.u64(view.0);
                out.u64(from.0);
                out.u32(*pid);
                put_birth(&mut out, *birth);
                out.u64(*at);
                out.u64(*bytes);
                out.u32(u32::from(*event));
                put_address(&mut out, address.as_ref());
                put_rack(&mut out, rack.as_ref());
            }
            Self::Ask { from, pid, birth, nonce, config, members, observer, follows, address, rack, seeds, clock } => {
                out.u64(from.0);
                out.u32(*pid);
                put_birth(&mut out, *birth);
                out.u32(*nonce);
                out.u64(*config);
                out.u32(*members);
                out.u32(u32::from(*observer));
                out.u64(follows.0);
                put_address(&mut out, address.as_ref());
                put_rack(&mut out, rack.as_ref());
                out.u64(seeds.map_or(0, NonZeroU64::get));
                out.u64(*clock);
            }
            Self::Refused { why } => put_refusal(&mut out, why),
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
                put_request(&mut out, what);
            }
            Self::Answer { reply, bytes } => {
                out.u64(*reply);
                out.u64(*bytes);
            }
            Self::State { view, from } => [view.0, from.0].into_iter().for_each(|value| out.u64(value)),
            Self::Port { incarnation, view, from, address } => {
                out.u128(*incarnation);
                [view.0, from.0].into_iter().for_each(|value| out.u64(value));
                out.bytes(address.as_bytes());
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
            Self::Bootstrap { from, pid, birth, nonce, config, clock, words } => {
                out.u64(from.0);
                out.u32(*pid);
                put_birth(&mut out, *birth);
                out.u32(*nonce);
                out.u64(*config);
                out.u64(*clock);
                let words = &words[..words.len().min(BOOTSTRAP_WORDS_MAX)];
                out.u32(words.len() as u32);
                words.iter().for_each(|word| out.u64(*word));
            }
            Self::WantRecords { incarnation, from, reply, wanted } => {
                out.u128(*incarnation);
                [from.0, *reply].into_iter().for_each(|value| out.u64(value));
                wanted.put(&mut out);
            }
            Self::NoRecords { from, reply, why } => {
                [from.0, *reply].into_iter().for_each(|value| out.u64(value));
                why.put(&mut out);
            }
            Self::Query { incarnation, from, reply, bytes } => {
                out.u128(*incarnation);
                [from.0, *reply, *bytes].into_iter().for_each(|value| out.u64(value));
            }
            Self::QueryAnswer { from, reply, bytes } => {
                [from.0, *reply, *bytes].into_iter().for_each(|value| out.u64(value));
            }
            Self::NoAnswer { from, reply, why } => {
                [from.0, *reply].into_iter().for_each(|value| out.u64(value));
                why.put(&mut out);
            }
            Self::Objects { from, reply } | Self::Records { from, reply } => {
                [from.0, *reply].into_iter().for_each(|value| out.u64(value))
            }
        }
        debug_assert!(out.0.len() <= CONTROL_MESSAGE_BYTES_MAX);
        out.0
    }

    /// Decodes a control message.
    ///
    /// # Errors
    /// The bytes are no control message or one of another version (see [`stranger`]), or a field
    /// has no meaning.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader(bytes);
        let (version, kind) = header(&mut from)?;
        if version != VERSION {
            return Err(WireError::Version { got: version });
        }
        let message = match kind {
            ROW_DESCRIPTORS => Self::RowDescriptors {
                incarnation: from.u128()?,
                view: ViewId(from.u64()?),
                from: MemberId(from.u64()?),
                pid: from.u32()?,
                birth: birth(&mut from)?,
                at: from.u64()?,
                bytes: from.u64()?,
                event: truth(&mut from, "eventfd of a doorbell")?,
                address: address(&mut from)?,
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
                address: PortAddress::new(from.bytes()?).ok_or(WireError::Value { field: "port" })?,
            },
            BULK => Self::Bulk {
                incarnation: from.u128()?,
                view: ViewId(from.u64()?),
                from: MemberId(from.u64()?),
                number: from.u64()?,
            },
            WANT => want(&mut from)?,
            BOOTSTRAP => initial_view(&mut from)?,
            OBJECTS => Self::Objects { from: MemberId(from.u64()?), reply: from.u64()? },
            RECORDS => Self::Records { from: MemberId(from.u64()?), reply: from.u64()? },
            WANT_RECORDS => Self::WantRecords {
                incarnation: from.u128()?,
                from: MemberId(from.u64()?),
                reply: from.u64()?,
                wanted: WantedRecords::read(&mut from)?,
            },
            NO_RECORDS => {
                Self::NoRecords { from: MemberId(from.u64()?), reply: from.u64()?, why: NoRecords::read(&mut from)? }
            }
            QUERY => Self::Query {
                incarnation: from.u128()?,
                from: MemberId(from.u64()?),
                reply: from.u64()?,
                bytes: from.u64()?,
            },
            QUERY_ANSWER => Self::QueryAnswer { from: MemberId(from.u64()?), reply: from.u64()?, bytes: from.u64()? },
            NO_ANSWER => {
                Self::NoAnswer { from: MemberId(from.u64()?), reply: from.u64()?, why: NoAnswer::read(&mut from)? }
            }
            got => return Err(WireError::Kind { got }),
        };
        from.end()?;
        Ok(message)
    }

    fn kind(&self) -> u32 {
        match self {
            Self::RowDescriptors { .. } => ROW_DESCRIPTORS,
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
            Self::Bootstrap { .. } => BOOTSTRAP,
            Self::WantRecords { .. } => WANT_RECORDS,
            Self::Records { .. } => RECORDS,
            Self::NoRecords { .. } => NO_RECORDS,
            Self::Query { .. } => QUERY,
            Self::QueryAnswer { .. } => QUERY_ANSWER,
            Self::NoAnswer { .. } => NO_ANSWER,
        }
    }
}

/// The part of a control message of another version that can be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stranger {
    /// The sender expects an answer.
    Asks,
    /// The sender refuses a message that it did not understand.
    Refuses {
        /// The sender's version.
        version: u32,
    },
    /// Any other kind.
    Else,
}

/// Returns the meaning of bytes whose version is not ours, or `None` if they are no control message
/// of another version.
pub fn stranger(bytes: &[u8]) -> Option<Stranger> {
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

fn ask(from: &mut Reader<'_>) -> Result<ControlMessage, WireError> {
    Ok(ControlMessage::Ask {
        from: MemberId(from.u64()?),
        pid: from.u32()?,
        birth: birth(from)?,
        nonce: from.u32()?,
        config: from.u64()?,
        members: from.u32()?,
        observer: truth(from, "request to observe")?,
        follows: ViewId(from.u64()?),
        address: address(from)?,
        rack: rack(from)?,
        seeds: NonZeroU64::new(from.u64()?),
        clock: from.u64()?,
    })
}

fn put_address(out: &mut Writer, address: Option<&Address>) {
    out.text(&address.map(Address::to_string).unwrap_or_default());
}

fn address(from: &mut Reader<'_>) -> Result<Option<Address>, WireError> {
    match from.text("address")? {
        "" => Ok(None),
        text => {
            // A sender writes only the canonical form of an address.
            let address = text.parse().ok().filter(|address: &Address| address.to_string() == text);
            Ok(Some(address.ok_or(WireError::Value { field: "address" })?))
        }
    }
}

fn put_birth(out: &mut Writer, birth: Birth) {
    out.u64(birth.namespace);
    out.u64(birth.started);
}

fn birth(from: &mut Reader<'_>) -> Result<Birth, WireError> {
    Ok(Birth { namespace: from.u64()?, started: from.u64()? })
}

fn truth(from: &mut Reader<'_>, field: &'static str) -> Result<bool, WireError> {
    match from.u32()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(WireError::Value { field }),
    }
}

fn put_refusal(out: &mut Writer, refusal: &Refusal) {
    match refusal {
        Refusal::Version(version) => {
            out.u32(1);
            out.u32(*version);
        }
        Refusal::Config { settings, incarnation } => {
            out.u32(2);
            out.u128(*incarnation);
            settings.put(out);
        }
        Refusal::Founders(members) => {
            out.u32(3);
            out.u32(*members);
        }
        Refusal::NoState(id) => {
            out.u32(5);
            out.u64(id.0);
        }
        Refusal::InUse(id) => {
            out.u32(6);
            out.u64(id.0);
        }
        Refusal::Full(members) => {
            out.u32(4);
            out.u32(*members);
        }
        Refusal::Clock(ClockSkew { member, theirs, ours, max_ns, is_running }) => {
            out.u32(7);
            [member.0, *theirs, *ours, *max_ns].into_iter().for_each(|value| out.u64(value));
            out.u32(u32::from(*is_running));
        }
    }
}

fn refusal(from: &mut Reader<'_>) -> Result<Refusal, WireError> {
    Ok(match from.u32()? {
        1 => Refusal::Version(from.u32()?),
        2 => {
            let incarnation = from.u128()?;
            Refusal::Config { settings: SharedSettings::read(from)?, incarnation }
        }
        3 => Refusal::Founders(from.u32()?),
        4 => Refusal::Full(from.u32()?),
        5 => Refusal::NoState(MemberId(from.u64()?)),
        6 => Refusal::InUse(MemberId(from.u64()?)),
        7 => Refusal::Clock(ClockSkew {
            member: MemberId(from.u64()?),
            theirs: from.u64()?,
            ours: from.u64()?,
            max_ns: from.u64()?,
            is_running: truth(from, "running group")?,
        }),
        _ => return Err(WireError::Value { field: "reason" }),
    })
}

fn wait(from: &mut Reader<'_>) -> Result<ControlMessage, WireError> {
    let members = from.u32()?;
    let leader = MemberId(from.u64()?);
    let blocked = truth(from, "standstill")?;
    let count = from.count()?;
    let mut present = vec![];
    for _ in 0..count {
        present.push((MemberId(from.u64()?), from.u32()?));
    }
    Ok(ControlMessage::Wait { members, leader, blocked, present })
}

fn want(from: &mut Reader<'_>) -> Result<ControlMessage, WireError> {
    let (incarnation, view) = (from.u128()?, ViewId(from.u64()?));
    let (asker, reply, count) = (MemberId(from.u64()?), from.u64()?, from.u32()?);
    if count as usize > WANTED_MAX {
        return Err(WireError::Value { field: "number of objects" });
    }
    let mut objects = vec![];
    for _ in 0..count {
        let (subgroup, sender) = (SubgroupId(from.u32()?), Rank(from.u32()?));
        objects.push(Wanted { subgroup, sender, number: from.u64()? });
    }
    Ok(ControlMessage::Want { incarnation, view, from: asker, reply, objects })
}

fn initial_view(from: &mut Reader<'_>) -> Result<ControlMessage, WireError> {
    let (sender, pid, birth) = (MemberId(from.u64()?), from.u32()?, birth(from)?);
    let (nonce, config, clock, count) = (from.u32()?, from.u64()?, from.u64()?, from.u32()?);
    if count as usize > BOOTSTRAP_WORDS_MAX {
        return Err(WireError::Value { field: "length of a message" });
    }
    let words = (0..count).map(|_| from.u64()).collect::<Result<_, _>>()?;
    Ok(ControlMessage::Bootstrap { from: sender, pid, birth, nonce, config, clock, words })
}

fn put_request(out: &mut Writer, request: &Request) {
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
        Request::Recover(lost) => {
            out.u32(8);
            out.u32(lost.len() as u32);
            lost.iter().for_each(|id| out.u64(id.0));
        }
        Request::Stopped { incarnation, view, nonce } => {
            out.u32(7);
            out.u128(*incarnation);
            out.u64(view.0);
            out.u32(*nonce);
        }
        Request::Patience { incarnation, view } => {
            out.u32(9);
            out.u128(*incarnation);
            out.u64(view.0);
        }
        Request::RaiseClocks(clock) => {
            out.u32(10);
            out.u64(*clock);
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
        8 => {
            let count = from.u32()?;
            if count as usize > MEMBERS_MAX {
                return Err(WireError::Value { field: "number of members" });
            }
            Request::Recover((0..count).map(|_| from.u64().map(MemberId)).collect::<Result<_, _>>()?)
        }
        7 => Request::Stopped { incarnation: from.u128()?, view: ViewId(from.u64()?), nonce: from.u32()? },
        9 => Request::Patience { incarnation: from.u128()?, view: ViewId(from.u64()?) },
        10 => Request::RaiseClocks(from.u64()?),
        _ => return Err(WireError::Value { field: "request" }),
    })
}

#[cfg(test)]
mod tests;

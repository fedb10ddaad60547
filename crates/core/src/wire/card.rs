//! The card that identifies a process to other hosts, and the purpose of a connection to it.
use super::address::Address;
use super::bytes::{Reader, WireError, Writer};
use super::rack::{RackName, put_rack, rack};
use crate::ids::{MemberId, ViewId};
use alloc::string::ToString;

/// The identity of a process on other hosts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Card {
    /// Its id in the group.
    pub id: MemberId,
    /// The key of its host. Processes with the same key share memory and the runtime directory.
    pub host: u128,
    /// The address at which it can be reached.
    pub address: Address,
    /// Its rack, if it was configured.
    pub rack: Option<RackName>,
}

/// The purpose of a connection, from its beginning to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Purpose {
    /// Rendezvous: control messages of the process that dialled.
    Control,
    /// The memory of a view. The rest of the connection's data belongs to the fabric.
    Part {
        /// The incarnation of the group with this name.
        incarnation: u128,
        /// The view.
        view: ViewId,
    },
    /// The memory of a view, for an observer, which has no row.
    Observer {
        /// The incarnation of the group with this name.
        incarnation: u128,
        /// The view.
        view: ViewId,
    },
    /// The application's state, as bytes.
    State {
        /// The view in which it was taken.
        view: ViewId,
    },
    /// Large messages in blocks.
    Bulk {
        /// The incarnation of the group with this name.
        incarnation: u128,
        /// The view.
        view: ViewId,
        /// The index of the bulk group in the view, by the members' own count.
        number: u64,
    },
    /// Large messages, as bytes, for an observer.
    Objects {
        /// The view.
        view: ViewId,
        /// The number of the request.
        reply: u64,
    },
    /// Records of a log, as bytes.
    Records {
        /// The number of the request.
        reply: u64,
    },
    /// Liveness: the connection carries no data. Its end shows that the process at the other end
    /// has ended.
    Life {
        /// The incarnation of the group with this name.
        incarnation: u128,
        /// The first view in which both processes monitor each other.
        view: ViewId,
    },
}

impl Card {
    /// Appends the card.
    pub fn put(&self, out: &mut Writer) {
        out.u64(self.id.0);
        out.u128(self.host);
        out.text(&self.address.to_string());
        put_rack(out, self.rack.as_ref());
    }

    /// Reads a card that [`put`](Self::put) wrote.
    ///
    /// # Errors
    /// The bytes end too early, or a field has no meaning.
    pub fn read(from: &mut Reader<'_>) -> Result<Card, WireError> {
        let field = "address";
        let (id, host) = (MemberId(from.u64()?), from.u128()?);
        let text = from.text(field)?;
        let address: Address = text.parse().map_err(|_| WireError::Value { field })?;
        // An address can be written in other ways than the canonical one.
        if address.to_string() != text {
            return Err(WireError::Value { field });
        }
        Ok(Card { id, host, address, rack: rack(from)? })
    }
}

impl Purpose {
    /// Appends the purpose.
    pub fn put(self, out: &mut Writer) {
        let (kind, incarnation, view, number) = match self {
            Purpose::Control => (1, 0, ViewId(0), 0),
            Purpose::Part { incarnation, view } => (2, incarnation, view, 0),
            Purpose::Observer { incarnation, view } => (3, incarnation, view, 0),
            Purpose::State { view } => (4, 0, view, 0),
            Purpose::Bulk { incarnation, view, number } => (5, incarnation, view, number),
            Purpose::Objects { view, reply } => (6, 0, view, reply),
            Purpose::Life { incarnation, view } => (7, incarnation, view, 0),
            Purpose::Records { reply } => (8, 0, ViewId(0), reply),
        };
        out.u32(kind);
        out.u128(incarnation);
        out.u64(view.0);
        out.u64(number);
    }

    /// Reads a purpose that [`put`](Self::put) wrote.
    ///
    /// # Errors
    /// The bytes end too early, or a field has no meaning.
    pub fn read(from: &mut Reader<'_>) -> Result<Purpose, WireError> {
        let (kind, incarnation, view, number) = (from.u32()?, from.u128()?, ViewId(from.u64()?), from.u64()?);
        Ok(match (kind, incarnation, view, number) {
            (1, 0, ViewId(0), 0) => Purpose::Control,
            (2, incarnation, view, 0) => Purpose::Part { incarnation, view },
            (3, incarnation, view, 0) => Purpose::Observer { incarnation, view },
            (4, 0, view, 0) => Purpose::State { view },
            (5, incarnation, view, number) => Purpose::Bulk { incarnation, view, number },
            (6, 0, view, reply) => Purpose::Objects { view, reply },
            (7, incarnation, view, 0) => Purpose::Life { incarnation, view },
            (8, 0, ViewId(0), reply) => Purpose::Records { reply },
            _ => return Err(WireError::Value { field: "purpose" }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn bytes(put: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut out = Writer::default();
        put(&mut out);
        out.0
    }

    fn samples() -> Vec<Vec<u8>> {
        let (incarnation, view) = (u128::MAX - 1, ViewId(7));
        // A new purpose does not compile until it has a number here, and the test fails until it
        // has a sample.
        let number = |purpose: &Purpose| match purpose {
            Purpose::Control => 0,
            Purpose::Part { .. } => 1,
            Purpose::Observer { .. } => 2,
            Purpose::State { .. } => 3,
            Purpose::Bulk { .. } => 4,
            Purpose::Objects { .. } => 5,
            Purpose::Life { .. } => 6,
            Purpose::Records { .. } => 7,
        };
        let purposes = [
            Purpose::Control,
            Purpose::Part { incarnation, view },
            Purpose::Observer { incarnation, view },
            Purpose::State { view },
            Purpose::Bulk { incarnation, view, number: u64::MAX },
            Purpose::Objects { view, reply: u64::MAX },
            Purpose::Life { incarnation, view },
            Purpose::Records { reply: u64::MAX - 1 },
        ];
        assert!(purposes.iter().map(number).eq(0..8));
        let card = |address: &str, rack: &str| Card {
            id: MemberId(u64::MAX),
            host: u128::MAX - 7,
            address: address.parse().unwrap(),
            rack: rack.parse().ok(),
        };
        let cards = [card("[::1]:4117", ""), card("unix:/run/a", "row-1"), card("host.example:1", "r")];
        let mut samples = vec![];
        samples.extend(purposes.map(|purpose| bytes(|out| purpose.put(out))));
        samples.extend(cards.map(|card| bytes(|out| card.put(out))));
        samples
    }

    /// Bytes that decode encode to the same bytes again.
    #[test]
    fn garbage_never_panics() {
        let valid = samples();
        let mut state = 0x5eed_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut understood = 0;
        for _ in 0..50_000 {
            let mut garbage = valid[random() as usize % valid.len()].clone();
            for _ in 0..random() % 4 {
                let at = random() as usize % garbage.len();
                garbage[at] ^= 1 << (random() % 8);
            }
            garbage.truncate(garbage.len() - (random() % 3 / 2) as usize);
            let mut from = Reader(&garbage);
            if let (Ok(card), true) = (Card::read(&mut from), from.0.is_empty()) {
                assert_eq!(bytes(|out| card.put(out)), garbage);
                understood += 1;
            }
            let mut from = Reader(&garbage);
            if let (Ok(purpose), true) = (Purpose::read(&mut from), from.0.is_empty()) {
                assert_eq!(bytes(|out| purpose.put(out)), garbage);
                understood += 1;
            }
        }
        assert!((5_000..45_000).contains(&understood), "{understood}");
    }
}

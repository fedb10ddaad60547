//! The announcement of a view to processes that join or were left behind.
use crate::ids::{MemberId, Process};
use crate::view::View;
use crate::wire::Birth;
use crate::wire::Card;
use crate::wire::RackName;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// The announcement of a view to joiners, with the data that they need to take part in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ViewAnnouncement {
    /// The view.
    pub view: View,
    /// The words of the decision that ended the view before, if they are known.
    pub decision: Vec<u64>,
    /// The processes that were not in the view before. The number is 0 if the sender does not know
    /// it.
    pub newcomers: Vec<Process>,
    /// The observers and their processes.
    pub observers: Vec<(MemberId, u32)>,
    /// The processes of the members, as far as the sender knows them. The kernels of their hosts
    /// report when they have ended.
    pub processes: Vec<HostProcess>,
    /// The cards of all processes that are on another host than some other process, as far as the
    /// sender knows.
    pub cards: Vec<Card>,
}

/// A member's process, as the kernel of its host identifies it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostProcess {
    /// The member.
    pub id: MemberId,
    /// The key of its host, as on a [`Card`]; 0 in a group of one host.
    pub host: u128,
    /// Its process number on that host.
    pub pid: u32,
    /// The start of the process.
    pub birth: Birth,
}

impl ViewAnnouncement {
    /// Returns the announcement as bytes: 64-bit words, little endian.
    pub fn encode(&self) -> Vec<u8> {
        let view = self.view.encode();
        let mut words = vec![view.len() as u64];
        words.extend(view);
        words.push(self.decision.len() as u64);
        words.extend(&self.decision);
        words.push(self.newcomers.len() as u64);
        words.extend(self.newcomers.iter().flat_map(|process| [process.id.0, process.nonce.into()]));
        words.push(self.observers.len() as u64);
        words.extend(self.observers.iter().flat_map(|(id, pid)| [id.0, u64::from(*pid)]));
        words.push(self.processes.len() as u64);
        for HostProcess { id, host, pid, birth } in &self.processes {
            words.extend([id.0, *host as u64, (host >> 64) as u64, u64::from(*pid), birth.namespace, birth.started]);
        }
        words.push(self.cards.len() as u64);
        for card in &self.cards {
            words.extend([card.id.0, card.host as u64, (card.host >> 64) as u64]);
            put_text(&mut words, &card.address.to_string());
            put_text(&mut words, card.rack.as_ref().map_or("", RackName::as_str));
        }
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes an announcement; `None` if the bytes are none.
    pub fn decode(bytes: &[u8]) -> Option<ViewAnnouncement> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let mut from = words.as_slice();
        let view = View::decode(counted(&mut from)?)?;
        let decision = counted(&mut from)?.to_vec();
        let mut newcomers = vec![];
        for _ in 0..*from.split_off_first()? {
            let [id, nonce] = *from.split_off(..2)? else { return None };
            newcomers.push(Process { id: MemberId(id), nonce: u32::try_from(nonce).ok()? });
        }
        let mut observers = vec![];
        for _ in 0..*from.split_off_first()? {
            let [id, pid] = *from.split_off(..2)? else { return None };
            observers.push((MemberId(id), u32::try_from(pid).ok()?));
        }
        let mut processes = vec![];
        for _ in 0..*from.split_off_first()? {
            let [id, low, high, pid, namespace, started] = *from.split_off(..6)? else { return None };
            let (host, birth) = (u128::from(low) | u128::from(high) << 64, Birth { namespace, started });
            processes.push(HostProcess { id: MemberId(id), host, pid: u32::try_from(pid).ok()?, birth });
        }
        let mut cards = vec![];
        for _ in 0..*from.split_off_first()? {
            let [id, low, high] = *from.split_off(..3)? else { return None };
            let address = text(&mut from)?.parse().ok()?;
            let rack = text(&mut from)?;
            let rack = if rack.is_empty() { None } else { Some(rack.parse().ok()?) };
            cards.push(Card { id: MemberId(id), host: u128::from(low) | u128::from(high) << 64, address, rack });
        }
        let told = ViewAnnouncement { view, decision, newcomers, observers, processes, cards };
        (from.is_empty() && rest.is_empty()).then_some(told)
    }
}

/// Appends the length of the text in bytes, and then its bytes, eight per word.
fn put_text(words: &mut Vec<u64>, text: &str) {
    words.push(text.len() as u64);
    words.extend(text.as_bytes().chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    }));
}

fn text(from: &mut &[u64]) -> Option<String> {
    let bytes = usize::try_from(*from.split_off_first()?).ok()?;
    let words = from.split_off(..bytes.div_ceil(8))?;
    let mut text: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    text.truncate(bytes);
    String::from_utf8(text).ok()
}

/// Takes as many words as the first word says.
fn counted<'a>(from: &mut &'a [u64]) -> Option<&'a [u64]> {
    let count = usize::try_from(*from.split_off_first()?).ok()?;
    from.split_off(..count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Rank, ViewId};
    use crate::view::{Durability, Order, Rule, SubgroupSpec};

    fn view(members: Vec<MemberId>) -> View {
        let ranks: Vec<Rank> = (0..members.len() as u32).map(Rank).collect();
        let subgroup = SubgroupSpec {
            member_rule: Rule::Everyone,
            sender_rule: Rule::Everyone,
            name: "all".into(),
            members: ranks.clone(),
            senders: ranks,
            order: Order::Total,
            window: 16,
            message_bytes_max: 64,
            leftover_bytes_max: 0,
            durability: Durability::InMemory,
            clock: 0,
            epoch: None,
        };
        View { id: ViewId(1), members, nonvoters: vec![], subgroups: vec![subgroup].into() }
    }

    fn told() -> ViewAnnouncement {
        let card = |id, host, address: &str, rack: &str| Card {
            id: MemberId(id),
            host,
            address: address.parse().unwrap(),
            rack: rack.parse().ok(),
        };
        ViewAnnouncement {
            decision: vec![1, 2],
            view: view([4, 7, 9].map(MemberId).to_vec()),
            newcomers: vec![Process { id: MemberId(9), nonce: 3 }],
            observers: vec![(MemberId(11), 4711), (MemberId(u64::MAX), u32::MAX)],
            processes: vec![HostProcess {
                id: MemberId(2),
                host: 3 << 64 | 7,
                pid: 4712,
                birth: Birth { namespace: u64::MAX, started: 5 },
            }],
            cards: vec![
                card(4, 1 << 100, "10.0.0.7:7411", ""),
                card(7, 2, "[fd00::7]:1", "row-1"),
                card(9, 0, "host.name.example:65535", "r"),
            ],
        }
    }

    #[test]
    fn announcements_survive_encoding_and_cuts_are_noticed() {
        let told = told();
        let bytes = told.encode();
        assert_eq!(ViewAnnouncement::decode(&bytes), Some(told));
        for cut in 0..bytes.len() {
            assert_eq!(ViewAnnouncement::decode(&bytes[..cut]), None, "cut to {cut}");
        }
        assert_eq!(ViewAnnouncement::decode(&[bytes, vec![0; 8]].concat()), None);
    }

    /// The length and the FNV-1a digest of the sample's bytes. Peers of this version send nothing
    /// else.
    #[test]
    fn bytes_are_those_of_this_version() {
        let bytes = told().encode();
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        assert_eq!((bytes.len(), bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)), (512, 0x205d_582f_18fa_ef3c));
    }

    #[test]
    fn garbage_tells_nothing_and_does_no_harm() {
        let bytes = told().encode();
        let mut random = 0x9e37_79b9_u64;
        for _ in 0..20_000 {
            let mut garbage = bytes.clone();
            for _ in 0..3 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (random >> 33) as usize % garbage.len();
                garbage[at] = (random >> 24) as u8;
            }
            if let Some(told) = ViewAnnouncement::decode(&garbage) {
                ViewAnnouncement::decode(&told.encode()).expect("what was understood can be said");
            }
        }
    }
}

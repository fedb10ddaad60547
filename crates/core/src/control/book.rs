//! The address book of a process in a group that spans hosts. It contains the addresses of
//! processes, the connections that are being made, and the seeds.
//!
//! A process with the same host key is reached by the rendezvous of this host, and shares its
//! memory. Every other process has a [`Card`] here, and gets control messages over the network. It
//! also has one stream, or one libfabric connection, for each view.
use super::{ASK_EVERY, Address, Card, Purpose, RackName, SeedClaim, Seeds};
use crate::ids::{MemberId, Time, ViewId};
use crate::limits::MEMBERS_MAX;
use crate::mutation::mutation;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// The maximum number of cards that are kept although they may no longer be needed.
const CARDS_MAX: usize = 2 * MEMBERS_MAX;
/// How long the id of a process that asks for admission is reserved after its last request.
const ASKS_FOR: Duration = Duration::from_millis(3 * ASK_EVERY.as_millis() as u64);

/// This process's knowledge of the processes on other hosts.
#[derive(Debug)]
pub struct Book {
    mine: Card,
    cards: BTreeMap<MemberId, Card>,
    /// The racks of processes of this host, as they report them.
    near_racks: BTreeMap<MemberId, RackName>,
    /// The processes that ask for admission: the time of the last request, and the number of
    /// requests.
    asking: BTreeMap<MemberId, (Time, u64)>,
    seeds: Seeds,
    /// The streams that are being made.
    dialling: BTreeMap<(ViewId, MemberId), Address>,
    /// The processes that were to be monitored from a view on.
    watching: BTreeSet<(ViewId, MemberId)>,
    /// True if streams carry the rows; false if libfabric does.
    streams_rows: bool,
}

/// The reason why a connection attempt failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DialError {
    /// The address is this process's own.
    Myself,
    /// Another process than `wanted` is at the address.
    Elsewhere {
        /// The member that was expected there.
        wanted: MemberId,
    },
    /// Id conflict: the process there has the id of another process that the group knows.
    IdConflict(String),
    /// Its host reports that nothing listens there.
    Refused(String),
    /// Too many control messages for it are pending. The connection stays open.
    Full,
    /// Any other reason, in words.
    Other(String),
}

impl Book {
    /// Returns the book of the process with the card `mine`.
    pub fn new(mine: Card, seeds: Seeds, streams_rows: bool) -> Book {
        let (cards, near_racks, asking, dialling, watching) = Default::default();
        Book { mine, cards, near_racks, asking, seeds, dialling, watching, streams_rows }
    }

    /// Returns this process's own card.
    pub fn card(&self) -> &Card {
        &self.mine
    }

    /// Returns the seeds.
    pub fn seeds(&self) -> &Seeds {
        &self.seeds
    }

    /// Returns the seeds for changes.
    pub fn seeds_mut(&mut self) -> &mut Seeds {
        &mut self.seeds
    }

    /// True if streams carry rows to other hosts.
    pub fn streams_rows(&self) -> bool {
        self.streams_rows
    }

    /// Returns the address of `id` if it is on another host. If it is a seed, that is the seed's
    /// address, whatever address it advertises. So one connection carries control messages to it.
    pub fn far(&self, id: MemberId) -> Option<&Address> {
        let card = self.cards.get(&id).filter(|card| card.host != self.mine.host)?;
        Some(self.seeds.address_of(id, &card.address).unwrap_or(&card.address))
    }

    /// Returns the key of the host on which `id` is. A process without a card is on this host: any
    /// report about processes of other hosts comes with their cards.
    pub fn host(&self, id: MemberId) -> u128 {
        self.cards.get(&id).map_or(self.mine.host, |card| card.host)
    }

    /// True if `id` is on another host.
    pub fn is_far(&self, id: MemberId) -> bool {
        self.host(id) != self.mine.host
    }

    /// Notes the card of a process.
    pub(super) fn learn(&mut self, mut card: Card) {
        if card.id != self.mine.id {
            card.rack = card.rack.filter(|_| !mutation!(RacksForgotten));
            self.cards.insert(card.id, card);
        }
    }

    /// Forgets the address of `id`, which is that of an earlier process with its id.
    pub(super) fn forget(&mut self, id: MemberId) {
        self.cards.remove(&id);
        self.asking.remove(&id);
    }

    /// Returns the address of the process with this id, as far as it is known.
    pub(super) fn address_of(&self, id: MemberId) -> Option<&Address> {
        self.cards.get(&id).map(|card| &card.address)
    }

    /// Returns the card of the process with this id, if it is known and another one.
    pub(super) fn card_of(&self, id: MemberId) -> Option<&Card> {
        self.cards.get(&id)
    }

    /// True if the location of `id` is unknown.
    pub(super) fn is_unknown(&self, id: MemberId) -> bool {
        !self.cards.contains_key(&id)
    }

    /// True if `card` belongs to another process than the one that has its id. That one is a
    /// member, which is where it was when it joined, or a process that asked for admission before
    /// and still does.
    ///
    /// If that process has no card, `lives_here` says that it is certainly on this host; otherwise
    /// its location is unknown.
    pub(super) fn is_id_conflict(&self, card: &Card, is_member: bool, lives_here: bool, now: Time) -> bool {
        if (!is_member && self.asks(card.id, now).is_none()) || mutation!(ConflictsBelieved) {
            return false;
        }
        match self.cards.get(&card.id) {
            Some(known) => (known.host, &known.address) != (card.host, &card.address),
            None => lives_here && card.host != self.mine.host,
        }
    }

    /// Returns how often `id` has asked for admission, if it still does.
    pub(super) fn asks(&self, id: MemberId, now: Time) -> Option<u64> {
        self.asking.get(&id).filter(|(asked, _)| now.since(*asked) < ASKS_FOR).map(|(_, count)| *count)
    }

    /// Notes that the process with this card asks for admission. The caller has
    /// [checked](Self::is_id_conflict) that no other process has its id.
    pub(super) fn asked(&mut self, card: Card, now: Time) {
        if self.asking.len() > CARDS_MAX {
            self.asking.retain(|_, (asked, _)| now.since(*asked) < ASKS_FOR);
        }
        let (asked, count) = self.asking.entry(card.id).or_insert((now, 0));
        (*asked, *count) = (now, *count + 1);
        self.learn(card);
    }

    /// Notes that the process with this card no longer asks for admission.
    pub(super) fn asks_no_more(&mut self, card: &Card) {
        if self.cards.get(&card.id) == Some(card) {
            self.asking.remove(&card.id);
        }
    }

    /// Returns the rack of a member of a view that has begun, if it was configured. Processes of
    /// this host report it with their row descriptors, and those of other hosts on their cards.
    pub fn rack(&self, id: MemberId) -> Option<&RackName> {
        match self.cards.get(&id) {
            _ if id == self.mine.id => self.mine.rack.as_ref(),
            Some(card) if card.host != self.mine.host => card.rack.as_ref(),
            _ => self.near_racks.get(&id),
        }
    }

    /// Notes the rack of a process of this host.
    pub(super) fn learn_rack(&mut self, id: MemberId, rack: Option<RackName>) {
        if let Some(card) = self.cards.get_mut(&id) {
            card.rack.clone_from(&rack);
        }
        match rack {
            Some(rack) => self.near_racks.insert(id, rack),
            None => self.near_racks.remove(&id),
        };
    }

    /// Forgets the processes that no longer matter in `view`, which has begun, and those that
    /// `have_gone`. Returns the latter: the next process with such an id is another one at another
    /// place.
    pub(super) fn retain(
        &mut self,
        view: ViewId,
        is_wanted: impl Fn(MemberId) -> bool,
        have_gone: impl Fn(MemberId) -> bool,
        now: Time,
    ) -> Vec<MemberId> {
        let gone = self.cards.extract_if(.., |id, _| have_gone(*id)).map(|(id, _)| id).collect();
        self.watching.retain(|(of, _)| *of >= view);
        self.asking.retain(|_, (asked, _)| now.since(*asked) < ASKS_FOR);
        // A process that asks for admission is needed soon.
        if self.cards.len() > CARDS_MAX {
            self.cards.retain(|id, _| is_wanted(*id));
        }
        self.near_racks.retain(|id, _| is_wanted(*id));
        self.dialling.retain(|(_, id), _| is_wanted(*id));
        gone
    }

    /// Returns the addresses of other processes on other hosts, and the process at each: the seeds
    /// except this process, and all cards.
    pub fn addresses(&self) -> impl Iterator<Item = (&Address, Option<MemberId>)> {
        let seeds = self.seeds.list().iter().filter(|seed| !self.seeds.is_own(seed));
        let far = self.cards.keys().filter_map(|id| Some((self.far(*id)?, Some(*id))));
        let far = far.filter(|(address, _)| !self.seeds.list().contains(address));
        seeds.map(|seed| (seed, None)).chain(far)
    }

    /// Returns all known cards, including this process's.
    pub fn cards(&self) -> Vec<Card> {
        self.cards.values().chain([&self.mine]).cloned().collect()
    }

    /// Returns the claim about the seeds among which this process waits, for a message to other
    /// processes.
    pub(super) fn make_claim(&mut self, now: Time) -> SeedClaim {
        self.seeds.make_claim(now)
    }

    /// Returns the processes at `address` whose control messages were lost.
    fn unreached(&self, address: &Address, why: &DialError) -> Vec<MemberId> {
        // Another process may be there now; its own messages are not lost.
        let only = if let DialError::Elsewhere { wanted } = why { Some(*wanted) } else { None };
        let is_it = |id: &MemberId| self.far(*id) == Some(address) && only.is_none_or(|only| only == *id);
        self.cards.keys().copied().filter(is_it).collect()
    }

    /// Returns the address for the stream to `id` in a view, if it has to be made now. From then on
    /// it counts as being made.
    pub(super) fn dial(&mut self, id: MemberId, view: ViewId) -> Option<Address> {
        let address = self.far(id).cloned()?;
        if self.dialling.contains_key(&(view, id)) {
            return None;
        }
        self.dialling.insert((view, id), address.clone());
        Some(address)
    }

    /// Returns the address at which to monitor the process of `id` from this view on, if that has
    /// to begin. From then on it counts as monitored.
    pub(super) fn watch(&mut self, id: MemberId, view: ViewId) -> Option<Address> {
        let address = self.far(id).cloned()?;
        self.watching.insert((view, id)).then_some(address)
    }

    /// Notes that the stream to `id` in a view was made.
    pub(super) fn dialled(&mut self, view: ViewId, id: MemberId) {
        self.dialling.remove(&(view, id));
    }

    /// Notes that a connection was not made. Returns the processes whose control messages are lost,
    /// and the members to which streams were not made, with their views.
    pub(super) fn not_dialled(
        &mut self,
        address: &Address,
        purpose: &Purpose,
        why: &DialError,
    ) -> (Vec<MemberId>, Vec<(ViewId, MemberId)>) {
        let is_control = *purpose == Purpose::Control;
        match why {
            DialError::Myself => self.seeds.is_myself(address),
            // Either a connection exists, or the reason why none exists was reported before.
            DialError::Elsewhere { .. } | DialError::Full => {}
            DialError::IdConflict(why) | DialError::Refused(why) | DialError::Other(why) if is_control => {
                self.seeds.not_reached(address, why.clone());
            }
            _ => {}
        }
        match purpose {
            Purpose::Control => (self.unreached(address, why), Vec::new()),
            Purpose::Part { view, .. } | Purpose::Observer { view, .. } => {
                let failed = self.dialling.extract_if(.., |(of, _), dialled| of == view && dialled == address);
                (Vec::new(), failed.map(|(key, _)| key).collect())
            }
            _ => Default::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const NOW: Time = Time(0);

    fn at(text: &str) -> Address {
        text.parse().unwrap()
    }

    fn card(id: u64, address: &str) -> Card {
        Card { id: MemberId(id), host: 1, address: at(address), rack: None }
    }

    fn book(seeds: &[&str]) -> Book {
        let mine = Card { id: MemberId(1), host: 7, address: at("near:1"), rack: None };
        let seeds = Seeds::new(seeds.iter().map(|seed| at(seed)).collect(), None, mine.address.clone());
        Book::new(mine, seeds, true)
    }

    /// A member was dialled at an old address, and has advertised its new one meanwhile.
    #[test]
    fn a_dial_that_failed_under_an_old_address_is_made_again_to_the_new_one() {
        let mut book = book(&[]);
        let (id, view) = (MemberId(2), ViewId(3));
        let purpose = Purpose::Part { incarnation: 7, view };
        book.learn(card(2, "nobody:1"));
        assert_eq!(book.dial(id, view), Some(at("nobody:1")));
        book.learn(card(2, "far:1"));
        assert_eq!(book.dial(id, view), None, "one attempt at a time");
        let failed = book.not_dialled(&at("nobody:1"), &purpose, &DialError::Refused("refused".into()));
        assert_eq!(failed, (vec![], vec![(view, id)]));
        assert_eq!(book.dial(id, view), Some(at("far:1")));
    }

    /// For example two names for one address. The process creates the group if it is the first
    /// seed, whichever other seeds it is.
    #[test]
    fn two_seeds_may_be_one_process() {
        let mut book = book(&["near:1", "alias:1", "far:1"]);
        assert!(book.seeds().is_seed());
        book.not_dialled(&at("alias:1"), &Purpose::Control, &DialError::Myself);
        assert!(book.seeds().is_seed());
        assert_eq!(book.seeds().own_indices().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(book.addresses().collect::<Vec<_>>(), [(&at("far:1"), None)]);
    }

    #[test]
    fn cards_are_kept_for_processes_that_wait_to_be_let_in_and_not_for_ever() {
        let mut book = book(&[]);
        let ids = 2..2 + CARDS_MAX as u64;
        for id in ids.clone() {
            book.learn(card(id, "somewhere:1"));
        }
        book.retain(ViewId(0), |_| false, |_| false, NOW);
        assert!(ids.clone().all(|id| book.far(MemberId(id)).is_some()));
        book.learn(card(ids.end, "somewhere:1"));
        book.retain(ViewId(0), |id| id.0 % 2 == 0, |_| false, NOW);
        assert!((2..=ids.end).all(|id| book.far(MemberId(id)).is_some() == (id % 2 == 0)));
        let gone = book.retain(ViewId(1), |_| true, |id| id == MemberId(4), NOW);
        assert!(gone == [MemberId(4)] && book.is_unknown(MemberId(4)) && !book.is_far(MemberId(4)));
    }

    #[test]
    fn a_process_that_asks_keeps_its_id_for_a_while() {
        let mut book = book(&[]);
        let (one, other) = (card(2, "a:1"), card(2, "b:1"));
        assert!(!book.is_id_conflict(&one, false, false, NOW));
        book.asked(one.clone(), NOW);
        assert!(!book.is_id_conflict(&one, false, false, NOW) && book.is_id_conflict(&other, false, false, NOW));
        assert!(!book.is_id_conflict(&other, false, false, NOW + ASKS_FOR));
        book.asks_no_more(&other);
        assert_eq!(book.asks(MemberId(2), NOW), Some(1));
        book.asks_no_more(&one);
        assert!(!book.is_id_conflict(&other, false, false, NOW));
        // A member that has come from another host is first known by its id alone.
        assert!(
            book.is_id_conflict(&card(3, "c:1"), true, true, NOW)
                && !book.is_id_conflict(&card(3, "c:1"), true, false, NOW)
        );
    }

    #[cfg(mutation)]
    #[test]
    #[ignore = "wants a process of its own: cargo xtask mutations"]
    fn mutations_of_addresses_fail_their_test() {
        use crate::mutation::{Mutation, failure};
        failure(Mutation::ConflictsBelieved, a_process_that_asks_keeps_its_id_for_a_while);
    }
}

//! The address book of a process in a group that spans hosts: who is where, which connections are being made, and where the group is
//! looked for.
//!
//! A process with the same host key is reached by the mail of its host and shares its memory. Every other process has a [`Card`] here, gets letters
//! over the network, and one stream, or one connection of libfabric, for each view.
use super::{ASK_EVERY, Address, Card, Claim, Purpose, RackName, Seeds};
use crate::ids::{MemberId, Time, ViewId};
use crate::limits::MEMBERS_MAX;
use crate::planted::planted;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Cards that are kept although they may not be needed any more.
const CARDS_MAX: usize = 2 * MEMBERS_MAX;
/// The id of a process that asks to be let in is reserved for so long after it has asked last.
const ASKS_FOR: Duration = Duration::from_millis(3 * ASK_EVERY.as_millis() as u64);

/// The processes on other hosts, as far as this one knows them.
#[derive(Debug)]
pub struct Book {
    mine: Card,
    cards: BTreeMap<MemberId, Card>,
    /// The racks of processes of this host, by their own word.
    near_racks: BTreeMap<MemberId, RackName>,
    /// The processes that ask to be let in: when they did last, and how often.
    asking: BTreeMap<MemberId, (Time, u64)>,
    seeds: Seeds,
    /// The streams that are being made.
    dialling: BTreeMap<(ViewId, MemberId), Address>,
    /// The processes that were to be watched in a view.
    watching: BTreeSet<(ViewId, MemberId)>,
    /// Whether rows go over streams; if not, libfabric carries them.
    streams_rows: bool,
}

/// Why an attempt to connect came to nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DialError {
    /// The address is this process's own.
    Myself,
    /// Another process than `wanted` is there.
    Elsewhere {
        /// The member that was to be there.
        wanted: MemberId,
    },
    /// The process there has the id of another, which the group knows.
    Namesake(String),
    /// Nothing listens there, by the word of its host.
    Refused(String),
    /// Too many letters wait for it already. The connection stands.
    Full,
    /// Anything else, in words.
    Other(String),
}

impl Book {
    /// That of the process with this card.
    pub fn new(mine: Card, seeds: Seeds, streams_rows: bool) -> Book {
        let (cards, near_racks, asking, dialling, watching) = Default::default();
        Book { mine, cards, near_racks, asking, seeds, dialling, watching, streams_rows }
    }

    /// This process's own card.
    pub fn card(&self) -> &Card {
        &self.mine
    }

    /// Where the group is looked for.
    pub fn seeds(&self) -> &Seeds {
        &self.seeds
    }

    /// The same, to be changed.
    pub fn seeds_mut(&mut self) -> &mut Seeds {
        &mut self.seeds
    }

    /// Whether streams carry rows to other hosts.
    pub fn streams_rows(&self) -> bool {
        self.streams_rows
    }

    /// The address of `id`, if it is on another host: that of a seed, if it is one, whatever address it has by its own word. So one connection
    /// carries letters to it.
    pub fn far(&self, id: MemberId) -> Option<&Address> {
        let card = self.cards.get(&id).filter(|card| card.host != self.mine.host)?;
        Some(self.seeds.place(id, &card.address).unwrap_or(&card.address))
    }

    /// The key of the host on which `id` is. A process without a card is on this one: what is said of those of other hosts comes with their cards.
    pub fn host(&self, id: MemberId) -> u128 {
        self.cards.get(&id).map_or(self.mine.host, |card| card.host)
    }

    /// Whether `id` is on another host.
    pub fn is_far(&self, id: MemberId) -> bool {
        self.host(id) != self.mine.host
    }

    /// Notes where a process is.
    pub(super) fn learn(&mut self, card: Card) {
        if card.id != self.mine.id {
            self.cards.insert(card.id, card);
        }
    }

    /// The address of `id` is that of a process before it.
    pub(super) fn forget(&mut self, id: MemberId) {
        self.cards.remove(&id);
        self.asking.remove(&id);
    }

    /// Where the process with this id is, as far as is known.
    pub(super) fn address_of(&self, id: MemberId) -> Option<&Address> {
        self.cards.get(&id).map(|card| &card.address)
    }

    /// Whether nothing is known of where `id` is.
    pub(super) fn is_unknown(&self, id: MemberId) -> bool {
        !self.cards.contains_key(&id)
    }

    /// Whether `card` is that of another process than the one that has its id: than a member, which is where it was when it became one, or than
    /// a process that asked to be let in before and still does. One without a card `lives_here` for certain, or nothing is known of where it is.
    pub(super) fn is_namesake(&self, card: &Card, is_member: bool, lives_here: bool, now: Time) -> bool {
        if (!is_member && self.asks(card.id, now).is_none()) || planted!(ConflictsBelieved) {
            return false;
        }
        match self.cards.get(&card.id) {
            Some(known) => (known.host, &known.address) != (card.host, &card.address),
            None => lives_here && card.host != self.mine.host,
        }
    }

    /// How often `id` has asked to be let in, if it still does.
    pub(super) fn asks(&self, id: MemberId, now: Time) -> Option<u64> {
        self.asking.get(&id).filter(|(asked, _)| now.since(*asked) < ASKS_FOR).map(|(_, count)| *count)
    }

    /// Notes that the process with this card, which is no [namesake](Self::is_namesake), asks to be let in.
    pub(super) fn asked(&mut self, card: Card, now: Time) {
        if self.asking.len() > CARDS_MAX {
            self.asking.retain(|_, (asked, _)| now.since(*asked) < ASKS_FOR);
        }
        let (asked, count) = self.asking.entry(card.id).or_insert((now, 0));
        (*asked, *count) = (now, *count + 1);
        self.learn(card);
    }

    /// The process with this card asks no more, if it did.
    pub(super) fn asks_no_more(&mut self, card: &Card) {
        if self.cards.get(&card.id) == Some(card) {
            self.asking.remove(&card.id);
        }
    }

    /// The rack of a member of a view that has begun, if it has been told: by its letter with its memory on this host,
    /// and by its card on others.
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

    /// Forgets the processes that do not matter any more in `view`, which has begun, and those that `have_gone`, which it returns: the next process with
    /// such an id is another one, somewhere else.
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
        // A process that waits to be let in is needed soon.
        if self.cards.len() > CARDS_MAX {
            self.cards.retain(|id, _| is_wanted(*id));
        }
        self.near_racks.retain(|id, _| is_wanted(*id));
        self.dialling.retain(|(_, id), _| is_wanted(*id));
        gone
    }

    /// Where other processes may be, on other hosts: the seeds but for this process, and all cards; with the process that is there.
    pub fn addresses(&self) -> impl Iterator<Item = (&Address, Option<MemberId>)> {
        let seeds = self.seeds.list().iter().filter(|seed| !self.seeds.is_own(seed));
        let far = self.cards.keys().filter_map(|id| Some((self.far(*id)?, Some(*id))));
        let far = far.filter(|(address, _)| !self.seeds.list().contains(address));
        seeds.map(|seed| (seed, None)).chain(far)
    }

    /// All cards that are known here, and this process's.
    pub fn cards(&self) -> Vec<Card> {
        self.cards.values().chain([&self.mine]).cloned().collect()
    }

    /// Among which seeds this process waits, to be told to others.
    pub(super) fn make_claim(&mut self, now: Time) -> Claim {
        self.seeds.make_claim(now)
    }

    /// The processes that did not get letters that came to nothing at `address`.
    fn unreached(&self, address: &Address, why: &DialError) -> Vec<MemberId> {
        // Another process may be there now, which gets its own.
        let only = if let DialError::Elsewhere { wanted } = why { Some(*wanted) } else { None };
        let is_it = |id: &MemberId| self.far(*id) == Some(address) && only.is_none_or(|only| only == *id);
        self.cards.keys().copied().filter(is_it).collect()
    }

    /// Whether the stream to `id` in a view is to be made now, and where. It counts as being made then.
    pub(super) fn dial(&mut self, id: MemberId, view: ViewId) -> Option<Address> {
        let address = self.far(id).cloned()?;
        if self.dialling.contains_key(&(view, id)) {
            return None;
        }
        self.dialling.insert((view, id), address.clone());
        Some(address)
    }

    /// Whether the process of `id` is to be watched from this view on, and where. It counts as watched then.
    pub(super) fn watch(&mut self, id: MemberId, view: ViewId) -> Option<Address> {
        let address = self.far(id).cloned()?;
        self.watching.insert((view, id)).then_some(address)
    }

    /// The stream to `id` in a view was made.
    pub(super) fn dialled(&mut self, view: ViewId, id: MemberId) {
        self.dialling.remove(&(view, id));
    }

    /// A connection was not made. Returns the processes whose letters are lost, and to which members streams were not made, with their views.
    pub(super) fn not_dialled(
        &mut self,
        address: &Address,
        purpose: &Purpose,
        why: &DialError,
    ) -> (Vec<MemberId>, Vec<(ViewId, MemberId)>) {
        let is_mail = *purpose == Purpose::Mail;
        match why {
            DialError::Myself => self.seeds.is_myself(address),
            // There is a connection, or it was told before why there is none.
            DialError::Elsewhere { .. } | DialError::Full => {}
            DialError::Namesake(why) | DialError::Refused(why) | DialError::Other(why) if is_mail => {
                self.seeds.not_reached(address, why.clone());
            }
            _ => {}
        }
        match purpose {
            Purpose::Mail => (self.unreached(address, why), Vec::new()),
            Purpose::Part { view, .. } | Purpose::Guest { view, .. } => {
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

    /// A member was dialled where it is no more, and has told meanwhile where it is.
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

    /// Names for one address, say. It founds the group if it is the first seed, whatever else it is.
    #[test]
    fn two_seeds_may_be_one_process() {
        let mut book = book(&["near:1", "alias:1", "far:1"]);
        assert!(book.seeds().is_seed());
        book.not_dialled(&at("alias:1"), &Purpose::Mail, &DialError::Myself);
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
        assert!(!book.is_namesake(&one, false, false, NOW));
        book.asked(one.clone(), NOW);
        assert!(!book.is_namesake(&one, false, false, NOW) && book.is_namesake(&other, false, false, NOW));
        assert!(!book.is_namesake(&other, false, false, NOW + ASKS_FOR));
        book.asks_no_more(&other);
        assert_eq!(book.asks(MemberId(2), NOW), Some(1));
        book.asks_no_more(&one);
        assert!(!book.is_namesake(&other, false, false, NOW));
        // A member that has come from another host is first known by its id alone.
        assert!(
            book.is_namesake(&card(3, "c:1"), true, true, NOW) && !book.is_namesake(&card(3, "c:1"), true, false, NOW)
        );
    }
}

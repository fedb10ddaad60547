//! Where a process looks for its group, and who founds it: the seeds.
//!
//! Either each of the addresses that were given is one, in the order in which they were given. Or they stand for a number of processes that was
//! given, too, and names among them for several ([ADR 0026](../../../docs/adr/0026-a-name-for-several-seeds.md)): then the seeds are what they resolve
//! to, sorted, and that changes. Two processes that have other addresses in mind must not both found a group, so
//! - nobody founds but with exactly as many addresses as there are to be, none of which is known for longer than [`KNOWN_FOR`];
//! - who waits says among which seeds it does, by their digest, its *claim*, and a founder counts only those with its own, for [`CLAIM_FOR`];
//! - who has made a claim makes another only after [`CHANGE_AFTER`], when nobody counts the first any more.
//!
//! Time is an argument here.
use crate::gathering::{SeedsKnown, Unreached};
use spindle_core::MemberId;
use spindle_core::limits::MEMBERS_MAX;
use spindle_fabric::net::Address;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// The digest of the seeds among which somebody waits; `None`: their number was not given, or is not that of their addresses just now.
pub(crate) type Claim = Option<NonZeroU64>;

/// A name is looked up so often, at most.
const LOOK_UP_EVERY: Duration = Duration::from_secs(1);
/// Who knows names has to have said them again within this time.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// How long a founder counts who does not repeat its claim.
pub(crate) const CLAIM_FOR: Duration = Duration::from_secs(1);
/// The pause between a claim and one to other seeds.
const CHANGE_AFTER: Duration = Duration::from_secs(3);
/// Who is where, other than at the seeds, is forgotten when so many are noted.
const PLACES_MAX: usize = 2 * MEMBERS_MAX;

// The rest is for what a letter may take.
const _: () = assert!(CHANGE_AFTER.as_millis() > 2 * CLAIM_FOR.as_millis());
const _: () = assert!(KNOWN_FOR.as_millis() > 2 * LOOK_UP_EVERY.as_millis());

#[derive(Debug)]
pub(crate) struct Seeds {
    /// At which others reach this process, as they are told.
    me: Address,
    /// In their order. The first founds.
    list: Vec<Address>,
    /// Which of them have turned out to be this process.
    own: BTreeSet<Address>,
    /// Who is there, and where it says that it is; at other addresses as well, which may be seeds tomorrow: a connection that stands is
    /// not made again then.
    at: BTreeMap<Address, (MemberId, Address)>,
    /// Those that could not be used when that was tried last, and why.
    unreached: BTreeMap<Address, String>,
    /// If they stand for a number of processes that was given.
    many: Option<Many>,
}

#[derive(Debug)]
struct Many {
    wanted: u32,
    /// As they were given.
    given: Vec<Address>,
    /// Those of them that are names.
    names: Vec<Name>,
    /// The last claim, and when it was made.
    claimed: Option<(NonZeroU64, Instant)>,
}

/// A name, and what it stands for.
#[derive(Debug)]
struct Name {
    address: Address,
    /// Since when it is being looked up.
    asked: Option<Instant>,
    /// When that was begun last.
    last: Option<Instant>,
    /// What was found, and when that was asked for.
    found: Vec<Address>,
    as_of: Option<Instant>,
    /// Why the last attempt came to nothing.
    failed: Option<String>,
}

impl Seeds {
    /// Those of a process that is reached at `me`; `count` of them, if that was given.
    pub(crate) fn new(given: Vec<Address>, count: Option<u32>, me: Address) -> Seeds {
        let (own, at, unreached) = Default::default();
        let many = count.map(|wanted| Many {
            wanted,
            names: given.iter().filter(|seed| seed.is_name()).cloned().map(Name::new).collect(),
            given: given.clone(),
            claimed: None,
        });
        let mut seeds = Seeds { me, list: given, own, at, unreached, many };
        seeds.list_anew();
        seeds
    }

    fn list_anew(&mut self) {
        let Some(many) = &self.many else { return };
        let fixed = many.given.iter().filter(|seed| !seed.is_name());
        let found = many.names.iter().flat_map(|name| &name.found);
        let sorted: BTreeSet<Address> = fixed.chain(found).cloned().collect();
        self.list = sorted.into_iter().collect();
        let list = &self.list;
        self.own.retain(|own| list.contains(own));
        self.unreached.retain(|seed, _| list.contains(seed));
    }

    /// In their order.
    pub(crate) fn list(&self) -> &[Address] {
        &self.list
    }

    pub(crate) fn is_own(&self, seed: &Address) -> bool {
        *seed == self.me || self.own.contains(seed)
    }

    /// Notes that this process is at `address`.
    pub(crate) fn is_myself(&mut self, address: &Address) {
        if self.list.contains(address) {
            self.own.insert(address.clone());
        }
    }

    /// Notes who is at `address`, and says that it is at `own`.
    pub(crate) fn reached(&mut self, address: &Address, id: MemberId, own: &Address) {
        self.unreached.remove(address);
        self.at.insert(address.clone(), (id, own.clone()));
        if self.at.len() > PLACES_MAX {
            let list = &self.list;
            self.at.retain(|seed, _| list.contains(seed));
        }
    }

    /// Notes why `address` can't be used.
    pub(crate) fn not_reached(&mut self, address: &Address, why: String) {
        if self.list.contains(address) {
            self.unreached.insert(address.clone(), why);
        }
    }

    /// Those that could not be used when that was tried last.
    pub(crate) fn unreached(&self) -> Vec<Unreached> {
        let unreached = |seed: &Address| Some(Unreached { seed: seed.clone(), why: self.unreached.get(seed)?.clone() });
        self.list.iter().filter_map(unreached).collect()
    }

    /// At which seed somebody is who says that it is at `own`. Another process with its id, before it or beside it, may be at another.
    pub(crate) fn place(&self, id: MemberId, own: &Address) -> Option<&Address> {
        let is_there = |(other, at): &(MemberId, Address)| *other == id && at == own;
        self.list.iter().find(|seed| self.at.get(*seed).is_some_and(is_there))
    }

    /// How many of the seeds are this process or among `ids`; and how many there are.
    pub(crate) fn among(&self, ids: &[MemberId]) -> (usize, usize) {
        let is_here = |seed: &&Address| self.is_own(seed) || self.at.get(*seed).is_some_and(|(id, _)| ids.contains(id));
        (self.list.iter().filter(is_here).count(), self.list.len())
    }

    /// Whether this process may turn out to be the one that founds the group.
    pub(crate) fn may_found(&self, now: Instant) -> bool {
        self.many.is_some() || self.founds(now)
    }

    /// Whether the group is founded by this process, as far as can be known now.
    pub(crate) fn founds(&self, now: Instant) -> bool {
        let is_first = self.list.first().is_none_or(|first| self.is_own(first));
        is_first && (self.many.is_none() || self.claim(now).is_some())
    }

    /// Among which seeds this process waits.
    pub(crate) fn claim(&self, now: Instant) -> Claim {
        let many = self.many.as_ref()?;
        if self.list.len() != many.wanted as usize || !many.names.iter().all(|name| name.is_fresh(now)) {
            return None;
        }
        let digest = digest(&self.list);
        let is_free = many.claimed.is_none_or(|(other, at)| other == digest || at + CHANGE_AFTER <= now);
        is_free.then_some(digest)
    }

    /// The same, to be told to others.
    pub(crate) fn make_claim(&mut self, now: Instant) -> Claim {
        let claim = self.claim(now);
        if let (Some(digest), Some(many)) = (claim, &mut self.many) {
            many.claimed = Some((digest, now));
        }
        claim
    }

    /// The names that are to be looked up now, which has to be done: until it is told what was [found](Self::found) for one, that is not
    /// looked up again.
    pub(crate) fn begin_look_ups(&mut self, now: Instant) -> Vec<Address> {
        let names = self.many.iter_mut().flat_map(|many| &mut many.names);
        let is_due =
            |name: &&mut Name| name.asked.is_none() && name.last.is_none_or(|last| last + LOOK_UP_EVERY <= now);
        let begin = |name: &mut Name| {
            (name.asked, name.last) = (Some(now), Some(now));
            name.address.clone()
        };
        names.filter(is_due).map(begin).collect()
    }

    /// What a name stands for, or why that is not known.
    pub(crate) fn found(&mut self, address: &Address, found: Result<&[Address], String>) {
        let names = self.many.iter_mut().flat_map(|many| &mut many.names);
        for name in names.filter(|name| name.address == *address) {
            let asked = name.asked.take();
            match &found {
                Ok(found) => {
                    (name.found, name.as_of, name.failed) = (one_of_each(found), asked, None);
                }
                // What it stood for is asked all the same, and founds nothing when it gets old.
                Err(why) => name.failed = Some(why.clone()),
            }
        }
        self.list_anew();
    }

    /// What is known of them, if their number was given.
    pub(crate) fn known(&self, now: Instant) -> Option<SeedsKnown> {
        let many = self.many.as_ref()?;
        let old = many.names.iter().find(|name| !name.is_fresh(now));
        let failed = old.and_then(|name| name.failed.clone());
        Some(SeedsKnown { given: many.given.clone(), wanted: many.wanted, known: self.list.clone(), failed, unlike: 0 })
    }
}

impl Name {
    fn new(address: Address) -> Name {
        let (asked, last, found, as_of, failed) = Default::default();
        Name { address, asked, last, found, as_of, failed }
    }

    fn is_fresh(&self, now: Instant) -> bool {
        self.as_of.is_some_and(|as_of| now < as_of + KNOWN_FOR)
    }
}

/// A process may have an address of either kind; so those of one kind count, which is IPv4 if there are any. An address that stands for all of a
/// host leads everybody to itself.
fn one_of_each(found: &[Address]) -> Vec<Address> {
    let is_v4 = |seed: &Address| seed.ip().is_some_and(|ip| ip.is_ipv4());
    let has_v4 = found.iter().any(is_v4);
    found.iter().filter(|seed| !seed.is_wildcard() && (!has_v4 || is_v4(seed))).cloned().collect()
}

fn digest(list: &[Address]) -> NonZeroU64 {
    let text = list.iter().flat_map(|seed| format!("{seed} ").into_bytes());
    // FNV-1a.
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    NonZeroU64::new(text.fold(0xcbf2_9ce4_8422_2325, mix)).unwrap_or(NonZeroU64::MIN)
}

/// What is wrong with a number of seeds, if anything is.
pub(crate) fn mistake(given: &[Address], count: u32) -> Option<String> {
    let distinct = given.iter().collect::<BTreeSet<_>>().len();
    if count == 0 || count as usize > MEMBERS_MAX {
        Some(format!("there can be 1 to {MEMBERS_MAX}"))
    } else if distinct == 0 {
        Some("there are no seeds to count; name some, such as spindle:7411, or leave the number out".into())
    } else if distinct > count as usize {
        Some(format!(
            "{distinct} seeds are named, and each stands for one at least; give the number of all processes that they stand for"
        ))
    } else if distinct < count as usize && !given.iter().any(Address::is_name) {
        Some(format!("the seeds are {distinct} addresses, and no name among them stands for others; name all of them"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "spindle:7411";

    fn at(text: &str) -> Address {
        text.parse().unwrap()
    }

    fn all(texts: &[&str]) -> Vec<Address> {
        texts.iter().map(|text| at(text)).collect()
    }

    /// Of a process at 10.0.0.`me`, for a name that stands for three.
    fn seeds(me: u8) -> (Seeds, Instant) {
        (Seeds::new(all(&[NAME]), Some(3), at(&format!("10.0.0.{me}:7411"))), Instant::now())
    }

    /// The name stands for these.
    fn answer(seeds: &mut Seeds, lasts: &[u8], now: Instant) {
        assert_eq!(seeds.begin_look_ups(now), [at(NAME)]);
        let found: Vec<String> = lasts.iter().map(|last| format!("10.0.0.{last}:7411")).collect();
        seeds.found(&at(NAME), Ok(&found.iter().map(|text| at(text)).collect::<Vec<_>>()));
    }

    #[test]
    fn seeds_without_a_number_are_what_was_given() {
        let (now, given) = (Instant::now(), all(&["b:1", NAME, "10.0.0.1:1"]));
        let mut seeds = Seeds::new(given.clone(), None, at("b:1"));
        assert_eq!((seeds.list(), seeds.claim(now), seeds.known(now)), (&given[..], None, None));
        assert!(seeds.founds(now) && seeds.begin_look_ups(now).is_empty());
        assert!(!Seeds::new(given, None, at(NAME)).may_found(now));
        assert!(Seeds::new(vec![], None, at(NAME)).founds(now));
    }

    #[test]
    fn the_first_address_founds_while_as_many_are_known_as_there_are_to_be() {
        for (me, founds) in [(3, true), (4, false), (20, false)] {
            let (mut seeds, mut now) = self::seeds(me);
            assert!(!seeds.founds(now) && seeds.may_found(now) && seeds.list().is_empty());
            for (lasts, is_complete) in
                [(&[3, 20][..], false), (&[20, 3, 4], true), (&[20, 4, 5, 3], false), (&[4, 3, 20], true)]
            {
                answer(&mut seeds, lasts, now);
                assert_eq!(seeds.list().first(), Some(&at("10.0.0.3:7411")));
                assert_eq!(seeds.list().len(), lasts.len());
                assert_eq!((seeds.founds(now), seeds.claim(now).is_some()), (founds && is_complete, is_complete));
                now += LOOK_UP_EVERY;
            }
        }
    }

    #[test]
    fn the_order_of_an_answer_and_repeated_addresses_mean_nothing() {
        let claims = [[3, 4, 20], [20, 3, 4], [4, 20, 3]].map(|lasts| {
            let (mut seeds, now) = self::seeds(4);
            answer(&mut seeds, &[lasts, lasts].concat(), now);
            assert_eq!(seeds.list(), all(&["10.0.0.3:7411", "10.0.0.4:7411", "10.0.0.20:7411"]));
            seeds.claim(now).unwrap()
        });
        assert!(claims[0] == claims[1] && claims[1] == claims[2]);
        let (mut seeds, now) = self::seeds(4);
        answer(&mut seeds, &[3, 4, 21], now);
        assert_ne!(seeds.claim(now), Some(claims[0]));
    }

    #[test]
    fn a_process_has_an_address_of_each_kind_and_counts_once() {
        let (mut seeds, now) = self::seeds(3);
        seeds.begin_look_ups(now);
        let found = ["[fd00::9]:7411", "10.0.0.4:7411", "[fd00::3]:7411", "10.0.0.3:7411", "0.0.0.0:7411"];
        seeds.found(&at(NAME), Ok(&all(&found)));
        assert_eq!(seeds.list(), all(&["10.0.0.3:7411", "10.0.0.4:7411"]));
        let mut seeds = Seeds::new(all(&[NAME]), Some(2), at("[fd00::3]:7411"));
        seeds.begin_look_ups(now);
        seeds.found(&at(NAME), Ok(&all(&["[fd00::9]:7411", "[fd00::3]:7411"])));
        assert!(seeds.founds(now));
    }

    #[test]
    fn names_and_addresses_go_together() {
        let given = all(&["z:1", "10.0.0.9:1", "a:1"]);
        let (mut seeds, now) = (Seeds::new(given, Some(4), at("10.0.0.1:1")), Instant::now());
        assert_eq!(seeds.begin_look_ups(now), all(&["z:1", "a:1"]));
        seeds.found(&at("z:1"), Ok(&all(&["10.0.0.7:1", "10.0.0.1:1"])));
        assert!(seeds.claim(now).is_none());
        seeds.found(&at("a:1"), Ok(&all(&["10.0.0.8:1", "10.0.0.9:1"])));
        assert_eq!(seeds.list(), all(&["10.0.0.1:1", "10.0.0.7:1", "10.0.0.8:1", "10.0.0.9:1"]));
        assert!(seeds.founds(now));
    }

    #[test]
    fn a_name_is_looked_up_by_one_at_a_time_and_not_too_often() {
        let (mut seeds, start) = self::seeds(3);
        assert_eq!(seeds.begin_look_ups(start), [at(NAME)]);
        // However long that takes.
        assert!(seeds.begin_look_ups(start + 60 * LOOK_UP_EVERY).is_empty());
        seeds.found(&at(NAME), Ok(&all(&["10.0.0.3:7411"])));
        assert!(seeds.begin_look_ups(start + LOOK_UP_EVERY / 2).is_empty());
        assert_eq!(seeds.begin_look_ups(start + LOOK_UP_EVERY), [at(NAME)]);
    }

    #[test]
    fn what_is_not_said_again_is_asked_and_founds_nothing() {
        let (mut seeds, start) = self::seeds(3);
        answer(&mut seeds, &[3, 4, 5], start);
        let late = start + KNOWN_FOR;
        assert!(seeds.founds(late - LOOK_UP_EVERY));
        assert_eq!(seeds.begin_look_ups(late), [at(NAME)]);
        seeds.found(&at(NAME), Err("nobody knows".into()));
        assert!(!seeds.founds(late) && seeds.claim(late).is_none());
        let known = seeds.known(late).unwrap();
        assert_eq!((known.known.len(), known.failed.as_deref()), (3, Some("nobody knows")));
        answer(&mut seeds, &[3, 4, 5], late + LOOK_UP_EVERY);
        assert!(seeds.founds(late + LOOK_UP_EVERY));
        assert_eq!(seeds.known(late + LOOK_UP_EVERY).unwrap().failed, None);
        // It counts from when it was asked for: an answer that was long on its way is as old.
        let asked = late + 2 * LOOK_UP_EVERY;
        assert_eq!(seeds.begin_look_ups(asked), [at(NAME)]);
        seeds.found(&at(NAME), Ok(&all(&["10.0.0.3:7411", "10.0.0.4:7411", "10.0.0.6:7411"])));
        assert!(!seeds.founds(asked + KNOWN_FOR));
    }

    #[test]
    fn nobody_waits_among_two_lists_of_seeds_at_once() {
        let (mut seeds, start) = self::seeds(3);
        answer(&mut seeds, &[3, 4, 5], start);
        let first = seeds.make_claim(start);
        assert!(first.is_some());
        let now = start + LOOK_UP_EVERY;
        answer(&mut seeds, &[3, 4, 6], now);
        // Who was told of the first may count it for a while.
        assert!(seeds.make_claim(now).is_none() && !seeds.founds(now));
        answer(&mut seeds, &[3, 4, 5], now + LOOK_UP_EVERY);
        assert_eq!(seeds.make_claim(now + LOOK_UP_EVERY), first);
        answer(&mut seeds, &[3, 4, 6], now + 2 * LOOK_UP_EVERY);
        let free = now + LOOK_UP_EVERY + CHANGE_AFTER;
        assert!(seeds.make_claim(free - Duration::from_millis(1)).is_none());
        assert!(seeds.founds(free) && seeds.make_claim(free).is_some_and(|claim| Some(claim) != first));
    }

    #[test]
    fn who_is_where_is_known_before_it_is_a_seed() {
        let (mut seeds, now) = self::seeds(3);
        answer(&mut seeds, &[3, 4], now);
        let own = |last: u64| at(&format!("h{last}:7411"));
        seeds.reached(&at("10.0.0.4:7411"), MemberId(9), &own(4));
        seeds.reached(&at("10.0.0.8:7411"), MemberId(8), &own(8));
        let both = [MemberId(8), MemberId(9)];
        assert_eq!((seeds.among(&both), seeds.place(MemberId(8), &own(8))), ((2, 2), None));
        answer(&mut seeds, &[3, 8, 5], now + LOOK_UP_EVERY);
        assert_eq!((seeds.among(&both), seeds.place(MemberId(9), &own(4))), ((2, 3), None));
        assert_eq!(seeds.place(MemberId(8), &own(8)), Some(&at("10.0.0.8:7411")));
        // Another process with its id.
        assert_eq!(seeds.place(MemberId(8), &own(7)), None);
        // Many come and go.
        for last in 0..PLACES_MAX as u64 {
            seeds.reached(&at(&format!("10.1.{}.{}:1", last >> 8, last & 255)), MemberId(last), &own(last));
        }
        assert!(seeds.at.len() < PLACES_MAX && seeds.place(MemberId(8), &own(8)).is_some());
    }

    #[test]
    fn why_a_seed_can_not_be_used_is_kept_until_it_is_reached_or_is_none() {
        let (mut seeds, now) = self::seeds(3);
        answer(&mut seeds, &[3, 4], now);
        for last in [3, 4, 8] {
            seeds.not_reached(&at(&format!("10.0.0.{last}:7411")), format!("why {last}"));
        }
        let told = |seeds: &Seeds| seeds.unreached().into_iter().map(|one| one.why).collect::<Vec<_>>();
        assert_eq!(told(&seeds), ["why 3", "why 4"]);
        seeds.not_reached(&at("10.0.0.4:7411"), "another".into());
        seeds.reached(&at("10.0.0.3:7411"), MemberId(9), &at("10.0.0.3:7411"));
        assert_eq!(told(&seeds), ["another"]);
        answer(&mut seeds, &[3, 5], now + LOOK_UP_EVERY);
        assert_eq!(told(&seeds), [""; 0]);
    }

    #[test]
    fn numbers_that_can_not_be_are_told() {
        let told = |given: &[&str], count| mistake(&all(given), count).unwrap_or_default();
        assert_eq!(told(&[NAME], 3), "");
        assert_eq!(told(&["10.0.0.1:1", "unix:/a"], 2), "");
        assert!(told(&[NAME], 0).contains("1 to 1024") && told(&[NAME], 1025).contains("1 to 1024"));
        assert!(told(&[], 3).contains("no seeds"));
        assert!(told(&["a:1", "b:1", "a:1"], 1).starts_with("2 seeds are named"));
        assert!(told(&["10.0.0.1:1"], 3).starts_with("the seeds are 1 addresses"));
    }
}

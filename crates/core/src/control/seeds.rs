//! The addresses at which a process looks for its group: the seeds. [`Bootstrap`](super::Bootstrap)
//! decides whether they create it.
//!
//! Either each given address is one seed, in the given order. Or the given addresses represent a
//! given number of processes, and the names among them resolve to several addresses each
//! (docs/adr/0026). Then the seeds are the resolved addresses, sorted, and they change. Two
//! processes with different seeds must not both create a group, so
//! - a group is created only with exactly the given number of addresses, none of which is known for
//!   longer than [`KNOWN_FOR`];
//! - a process that waits sends the digest of its seeds, its *claim*, and a seed counts only
//!   processes with its own claim;
//! - a process that has made a claim makes a different one only after [`CHANGE_AFTER`], when no
//!   seed counts the first one any more.
//!
//! [`Seeds`] has no I/O: time is an argument, and the caller resolves the names.
use super::Address;
use crate::ids::{MemberId, Time};
use crate::limits::MEMBERS_MAX;
use crate::mutation::mutation;
use crate::wire::bytes;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;

/// The digest of the seeds of a process that waits; `None` if the number of seeds was not given, or
/// differs from the number of known addresses.
pub type SeedClaim = Option<NonZeroU64>;

/// The shortest time between two look-ups of a name.
const LOOK_UP_EVERY: Duration = Duration::from_secs(1);
/// The age from which an answer for a name no longer allows a group to be created.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// How long a founder counts a process that does not repeat its claim.
pub const CLAIM_FOR: Duration = Duration::from_secs(1);
/// The pause between a claim and one with different seeds.
const CHANGE_AFTER: Duration = Duration::from_secs(3);
/// The number of noted addresses above which those that are no seeds are forgotten.
const PLACES_MAX: usize = 2 * MEMBERS_MAX;

// The remaining time is the longest delay of a message.
const _: () = assert!(CHANGE_AFTER.as_millis() > 2 * CLAIM_FOR.as_millis());
const _: () = assert!(KNOWN_FOR.as_millis() > 2 * LOOK_UP_EVERY.as_millis());

/// A seed that could not be used at the last attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreached {
    /// The seed.
    pub seed: Address,
    /// The reason, in words.
    pub why: String,
}

/// The state of seeds that come from names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeedsKnown {
    /// The seeds as they were given: names, and perhaps addresses.
    pub given: Vec<Address>,
    /// The number of processes that they represent. The group can be created only while exactly
    /// this many addresses are known.
    pub wanted: u32,
    /// The known addresses, in their order.
    pub known: Vec<Address>,
    /// The reason why the last answer for a name is old.
    pub failed: Option<String>,
    /// At a seed: the number of waiting processes that have different addresses and so do not
    /// count.
    pub unlike: u32,
}

impl fmt::Display for SeedsKnown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SeedsKnown { given, wanted, known, failed, unlike } = self;
        let given: Vec<String> = given.iter().map(Address::to_string).collect();
        let given = given.join(", ");
        match known.first() {
            Some(_) if known.len() == *wanted as usize => {
                write!(f, "all {wanted} addresses of {given} are known")?;
            }
            _ if known.len() > *wanted as usize => {
                write!(f, "{} addresses of {given} are known, and {wanted} of them could create a group", known.len())?;
            }
            _ => write!(f, "{} of {wanted} addresses of {given} are known", known.len())?,
        }
        if let Some(why) = failed {
            write!(f, " ({why})")?;
        }
        match unlike {
            0 => Ok(()),
            unlike => write!(f, ", and {unlike} of the waiting processes with other addresses"),
        }
    }
}

/// The seeds of one process.
#[derive(Debug)]
pub struct Seeds {
    /// The address at which other processes reach this one.
    me: Address,
    /// In their order.
    list: Vec<Address>,
    /// The seeds that have turned out to be this process.
    own: BTreeSet<Address>,
    /// The process at an address, and the address that it advertises. Addresses that are no seeds
    /// now are included, because they may become seeds: an existing connection is not made again
    /// then.
    at: BTreeMap<Address, (MemberId, Address)>,
    /// The seeds that could not be used at the last attempt, and the reasons.
    unreached: BTreeMap<Address, String>,
    /// Set if the seeds represent a given number of processes.
    many: Option<Many>,
}

#[derive(Debug)]
struct Many {
    wanted: u32,
    /// The addresses as they were given.
    given: Vec<Address>,
    /// The given addresses that are names.
    names: Vec<Name>,
    /// The last claim, and when it was made.
    claimed: Option<(NonZeroU64, Time)>,
}

/// A name and the addresses to which it resolves.
#[derive(Debug)]
struct Name {
    address: Address,
    /// The start of the look-up that is under way.
    asked: Option<Time>,
    /// The start of the last look-up.
    last: Option<Time>,
    /// The last answer, and the start of its look-up.
    found: Vec<Address>,
    as_of: Option<Time>,
    /// The reason why the last look-up failed.
    failed: Option<String>,
}

impl Seeds {
    /// Returns the seeds of a process that is reached at `me`; `count` of them, if that was given.
    pub fn new(given: Vec<Address>, count: Option<u32>, me: Address) -> Seeds {
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

    /// Returns the seeds in their order.
    pub fn list(&self) -> &[Address] {
        &self.list
    }

    /// True if no seeds exist and no names can yield any: this process is the only place to look.
    pub fn is_nowhere(&self) -> bool {
        self.list.is_empty() && self.many.is_none()
    }

    /// Returns the indices of the seeds that are this process.
    pub fn own_indices(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.list).filter(|(_, seed)| self.is_own(seed)).map(|(index, _)| index)
    }

    /// Returns the digest of the list if a group may be created among these seeds now; otherwise 0.
    pub fn digest_now(&self, now: Time) -> u64 {
        match self.many {
            Some(_) => self.claim(now).map_or(0, NonZeroU64::get),
            None => digest(&self.list).get(),
        }
    }

    /// Returns the process at a seed, and whether the seed can't be reached.
    pub fn known_at(&self, seed: &Address) -> (Option<MemberId>, bool) {
        (self.at.get(seed).map(|(id, _)| *id), self.unreached.contains_key(seed))
    }

    /// True if `seed` is this process.
    pub fn is_own(&self, seed: &Address) -> bool {
        *seed == self.me || self.own.contains(seed)
    }

    /// Notes that this process is at `address`.
    pub fn is_myself(&mut self, address: &Address) {
        if self.list.contains(address) {
            self.own.insert(address.clone());
        }
    }

    /// Notes that process `id` is at `address` and advertises `own` as its address.
    pub fn reached(&mut self, address: &Address, id: MemberId, own: &Address) {
        self.unreached.remove(address);
        self.at.insert(address.clone(), (id, own.clone()));
        if self.at.len() > PLACES_MAX {
            let list = &self.list;
            self.at.retain(|seed, _| list.contains(seed));
        }
    }

    /// Notes the reason why `address` can't be used.
    pub fn not_reached(&mut self, address: &Address, why: String) {
        if self.list.contains(address) {
            self.unreached.insert(address.clone(), why);
        }
    }

    /// Returns the seeds that could not be used at the last attempt.
    pub fn unreached(&self) -> Vec<Unreached> {
        let unreached = |seed: &Address| Some(Unreached { seed: seed.clone(), why: self.unreached.get(seed)?.clone() });
        self.list.iter().filter_map(unreached).collect()
    }

    /// Returns the seed at which process `id` is, if that process advertises `own`. Another process
    /// with its id, earlier or at the same time, may be at a different seed.
    pub fn address_of(&self, id: MemberId, own: &Address) -> Option<&Address> {
        let is_there = |(other, at): &(MemberId, Address)| *other == id && (at == own || mutation!(SeedPlacesKept));
        self.list.iter().find(|seed| self.at.get(*seed).is_some_and(is_there))
    }

    /// True if this process is one of the seeds, or the only place to look.
    pub fn is_seed(&self) -> bool {
        self.is_nowhere() || self.list.iter().any(|seed| self.is_own(seed))
    }

    /// Returns the claim of this process.
    pub fn claim(&self, now: Time) -> SeedClaim {
        let many = self.many.as_ref()?;
        if self.list.len() != many.wanted as usize || !many.names.iter().all(|name| name.is_fresh(now)) {
            return None;
        }
        let digest = digest(&self.list);
        let is_free = many.claimed.is_none_or(|(other, at)| other == digest || at + CHANGE_AFTER <= now);
        is_free.then_some(digest)
    }

    /// Returns the [claim](Self::claim) for a message to other processes, and notes that it was
    /// made.
    pub fn make_claim(&mut self, now: Time) -> SeedClaim {
        let claim = self.claim(now);
        if let (Some(digest), Some(many)) = (claim, &mut self.many) {
            many.claimed = Some((digest, now));
        }
        claim
    }

    /// Returns the names to look up now. The caller has to report each answer by
    /// [`found`](Self::found). Until then the name is not returned again.
    pub fn begin_look_ups(&mut self, now: Time) -> Vec<Address> {
        let names = self.many.iter_mut().flat_map(|many| &mut many.names);
        let is_due =
            |name: &&mut Name| name.asked.is_none() && name.last.is_none_or(|last| last + LOOK_UP_EVERY <= now);
        let begin = |name: &mut Name| {
            (name.asked, name.last) = (Some(now), Some(now));
            name.address.clone()
        };
        names.filter(is_due).map(begin).collect()
    }

    /// Notes the addresses to which a name resolves, or the reason why the look-up failed.
    pub fn found(&mut self, address: &Address, found: Result<&[Address], String>) {
        let names = self.many.iter_mut().flat_map(|many| &mut many.names);
        for name in names.filter(|name| name.address == *address) {
            let asked = name.asked.take();
            match &found {
                Ok(found) => {
                    (name.found, name.as_of, name.failed) = (one_of_each(found), asked, None);
                }
                // The old addresses are still asked, but when they are too old no group is created
                // with them.
                Err(why) => name.failed = Some(why.clone()),
            }
        }
        self.list_anew();
    }

    /// Returns the state of the seeds if their number was given.
    pub fn known(&self, now: Time) -> Option<SeedsKnown> {
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

    fn is_fresh(&self, now: Time) -> bool {
        self.as_of.is_some_and(|as_of| now < as_of + KNOWN_FOR)
    }
}

/// Returns one address for each process. A process may have an IPv4 and an IPv6 address, so if any
/// IPv4 addresses exist, only those count. A wildcard address leads every process to itself and
/// counts for none.
fn one_of_each(found: &[Address]) -> Vec<Address> {
    let is_v4 = |seed: &Address| seed.ip().is_some_and(|ip| ip.is_ipv4());
    let has_v4 = found.iter().any(is_v4);
    found.iter().filter(|seed| !seed.is_wildcard() && (!has_v4 || is_v4(seed))).cloned().collect()
}

fn digest(list: &[Address]) -> NonZeroU64 {
    let text = list.iter().flat_map(|seed| format!("{seed} ").into_bytes());
    NonZeroU64::new(bytes::digest(text)).unwrap_or(NonZeroU64::MIN)
}

/// Checks a number of seeds against the given addresses. Returns the mistake and its remedy, if
/// any.
pub fn mistake(given: &[Address], count: u32) -> Option<String> {
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
    use alloc::vec;

    const NAME: &str = "spindle:7411";

    fn at(text: &str) -> Address {
        text.parse().unwrap()
    }

    fn all(texts: &[&str]) -> Vec<Address> {
        texts.iter().map(|text| at(text)).collect()
    }

    /// Returns the seeds of process 10.0.0.`me`, for a name that represents three processes.
    fn seeds(me: u8) -> (Seeds, Time) {
        (Seeds::new(all(&[NAME]), Some(3), at(&format!("10.0.0.{me}:7411"))), Time(0))
    }

    /// Reports that the name resolves to these addresses.
    fn answer(seeds: &mut Seeds, lasts: &[u8], now: Time) {
        assert_eq!(seeds.begin_look_ups(now), [at(NAME)]);
        let found: Vec<String> = lasts.iter().map(|last| format!("10.0.0.{last}:7411")).collect();
        seeds.found(&at(NAME), Ok(&found.iter().map(|text| at(text)).collect::<Vec<_>>()));
    }

    #[test]
    fn seeds_without_a_number_are_what_was_given() {
        let (now, given) = (Time(0), all(&["b:1", NAME, "10.0.0.1:1"]));
        let mut seeds = Seeds::new(given.clone(), None, at("b:1"));
        assert_eq!((seeds.list(), seeds.claim(now), seeds.known(now)), (&given[..], None, None));
        assert!(seeds.digest_now(now) != 0 && seeds.begin_look_ups(now).is_empty());
        assert_eq!(seeds.own_indices().collect::<Vec<_>>(), [0]);
        assert!(!Seeds::new(given, None, at("a:1")).is_seed());
        assert!(Seeds::new(vec![], None, at(NAME)).is_seed());
    }

    #[test]
    fn a_group_is_founded_while_as_many_are_known_as_there_are_to_be() {
        for (me, own) in [(3, Some(0)), (5, None), (20, Some(1))] {
            let (mut seeds, mut now) = self::seeds(me);
            assert!(seeds.digest_now(now) == 0 && !seeds.is_seed() && seeds.list().is_empty());
            for (lasts, is_complete) in
                [(&[3, 20][..], false), (&[20, 3, 22], true), (&[20, 22, 23, 3], false), (&[22, 3, 20], true)]
            {
                answer(&mut seeds, lasts, now);
                assert_eq!(seeds.list().first(), Some(&at("10.0.0.3:7411")));
                assert_eq!(seeds.list().len(), lasts.len());
                assert_eq!((seeds.digest_now(now) != 0, seeds.claim(now).is_some()), (is_complete, is_complete));
                assert_eq!(seeds.own_indices().next(), own);
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
        assert!(seeds.digest_now(now) != 0);
    }

    #[test]
    fn names_and_addresses_go_together() {
        let given = all(&["z:1", "10.0.0.9:1", "a:1"]);
        let (mut seeds, now) = (Seeds::new(given, Some(4), at("10.0.0.1:1")), Time(0));
        assert_eq!(seeds.begin_look_ups(now), all(&["z:1", "a:1"]));
        seeds.found(&at("z:1"), Ok(&all(&["10.0.0.7:1", "10.0.0.1:1"])));
        assert!(seeds.claim(now).is_none());
        seeds.found(&at("a:1"), Ok(&all(&["10.0.0.8:1", "10.0.0.9:1"])));
        assert_eq!(seeds.list(), all(&["10.0.0.1:1", "10.0.0.7:1", "10.0.0.8:1", "10.0.0.9:1"]));
        assert!(seeds.digest_now(now) != 0);
    }

    #[test]
    fn a_name_is_looked_up_by_one_at_a_time_and_not_too_often() {
        let (mut seeds, start) = self::seeds(3);
        assert_eq!(seeds.begin_look_ups(start), [at(NAME)]);
        // The duration of the look-up does not matter.
        assert!(seeds.begin_look_ups(start + 60 * LOOK_UP_EVERY).is_empty());
        seeds.found(&at(NAME), Ok(&all(&["10.0.0.3:7411"])));
        assert!(seeds.begin_look_ups(start + LOOK_UP_EVERY / 2).is_empty());
        assert_eq!(seeds.begin_look_ups(start + LOOK_UP_EVERY), [at(NAME)]);
    }

    #[test]
    fn a_lapsed_claim_is_asked_again_and_creates_nothing() {
        let (mut seeds, start) = self::seeds(3);
        answer(&mut seeds, &[3, 4, 5], start);
        let late = start + KNOWN_FOR;
        assert!(seeds.digest_now(start + (KNOWN_FOR - LOOK_UP_EVERY)) != 0);
        assert_eq!(seeds.begin_look_ups(late), [at(NAME)]);
        seeds.found(&at(NAME), Err("no such name".into()));
        assert!(seeds.digest_now(late) == 0 && seeds.claim(late).is_none());
        let known = seeds.known(late).unwrap();
        assert_eq!((known.known.len(), known.failed.as_deref()), (3, Some("no such name")));
        answer(&mut seeds, &[3, 4, 5], late + LOOK_UP_EVERY);
        assert!(seeds.digest_now(late + LOOK_UP_EVERY) != 0);
        assert_eq!(seeds.known(late + LOOK_UP_EVERY).unwrap().failed, None);
        // The age counts from the start of the look-up, however long the answer took.
        let asked = late + 2 * LOOK_UP_EVERY;
        assert_eq!(seeds.begin_look_ups(asked), [at(NAME)]);
        seeds.found(&at(NAME), Ok(&all(&["10.0.0.3:7411", "10.0.0.4:7411", "10.0.0.6:7411"])));
        assert!(seeds.digest_now(asked + KNOWN_FOR) == 0);
    }

    #[test]
    fn no_process_claims_two_lists_of_seeds_at_once() {
        let (mut seeds, start) = self::seeds(3);
        answer(&mut seeds, &[3, 4, 5], start);
        let first = seeds.make_claim(start);
        assert!(first.is_some());
        let now = start + LOOK_UP_EVERY;
        answer(&mut seeds, &[3, 4, 6], now);
        // Processes that have received the first claim may count it for a while.
        assert!(seeds.make_claim(now).is_none() && seeds.digest_now(now) == 0);
        answer(&mut seeds, &[3, 4, 5], now + LOOK_UP_EVERY);
        assert_eq!(seeds.make_claim(now + LOOK_UP_EVERY), first);
        answer(&mut seeds, &[3, 4, 6], now + 2 * LOOK_UP_EVERY);
        let claimed = now + LOOK_UP_EVERY;
        assert!(seeds.make_claim(claimed + (CHANGE_AFTER - Duration::from_millis(1))).is_none());
        let free = claimed + CHANGE_AFTER;
        assert!(seeds.digest_now(free) != 0 && seeds.make_claim(free).is_some_and(|claim| Some(claim) != first));
    }

    #[test]
    fn the_address_of_a_process_is_known_before_it_is_a_seed() {
        let (mut seeds, now) = self::seeds(3);
        answer(&mut seeds, &[3, 4], now);
        let own = |last: u64| at(&format!("h{last}:7411"));
        seeds.reached(&at("10.0.0.4:7411"), MemberId(9), &own(4));
        seeds.reached(&at("10.0.0.8:7411"), MemberId(8), &own(8));
        assert_eq!(seeds.known_at(&at("10.0.0.4:7411")), (Some(MemberId(9)), false));
        assert_eq!(seeds.address_of(MemberId(8), &own(8)), None);
        answer(&mut seeds, &[3, 8, 5], now + LOOK_UP_EVERY);
        assert_eq!(seeds.address_of(MemberId(9), &own(4)), None);
        assert_eq!(seeds.address_of(MemberId(8), &own(8)), Some(&at("10.0.0.8:7411")));
        // Another process with its id.
        assert_eq!(seeds.address_of(MemberId(8), &own(7)), None);
        // The table of addresses is bounded although many processes come and go.
        for last in 0..PLACES_MAX as u64 {
            seeds.reached(&at(&format!("10.1.{}.{}:1", last >> 8, last & 255)), MemberId(last), &own(last));
        }
        assert!(seeds.at.len() < PLACES_MAX && seeds.address_of(MemberId(8), &own(8)).is_some());
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

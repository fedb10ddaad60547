//! Runs [`Bootstrap`] in a process of a group that spans hosts: it takes in what is known of the
//! seeds, and turns messages into [`ControlMessage`]s.
//!
//! The driver has the data directory. It writes each record that is to [persist](Act::Persist), and
//! confirms that the record is [written](Bootstrapping::persisted). After a record that could not
//! be written, it carries out no further actions. So this process keeps every promise that it has
//! sent.
//!
//! A decision comes with the cards of the founders ([`BootstrapMessage::Decided`]): its sender may end
//! before it announces the first view, and founders may have heard of no other founder.
use super::{
    Address, Bootstrap, BootstrapMessage, BootstrapOutput, BootstrapRecord, BootstrapWait, Card, ControlMessage,
    Incarnation, InitialView, Me, Need, SeedList, SeedState, Seeds, Setup, To,
};
use crate::ids::{MemberId, Process, Time};
use crate::limits::MEMBERS_MAX;
use crate::mutation::mutation;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

/// A process that looks for its group between hosts, or a member that other processes find.
#[derive(Debug)]
pub struct Bootstrapping {
    boot: Bootstrap,
    me: Me,
    nonce: u32,
    config: u64,
    /// The seeds and their states, as last passed to the state machine.
    list: Vec<Address>,
    told: SeedList,
    fed: Vec<(Option<MemberId>, bool)>,
    /// True if members of a group live on this host, so that none is created.
    is_held: bool,
    begun: Option<InitialView>,
    /// The cards of founders of this group, as other processes have sent them.
    places: Option<(Incarnation, BTreeMap<MemberId, Card>)>,
    /// Messages that are sent next.
    sending: VecDeque<(To, BootstrapMessage)>,
    waiting: Option<BootstrapWait>,
    conflict: Option<(u128, u128)>,
}

/// An action that the driver carries out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// Send a control message.
    Send(To, ControlMessage),
    /// Write a record to the data directory, and then call [`Bootstrapping::persisted`]. Only a
    /// [durable](Setup::durable) process gets this action.
    Persist(Box<BootstrapRecord>),
}

/// The reason why a process still looks for its group between hosts, and the state of each seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeedWait {
    /// The reason.
    pub need: Need,
    /// The seeds, in their order.
    pub seeds: Vec<(Address, SeedState)>,
}

impl Bootstrapping {
    /// Returns the process `me` with the configuration digest `config`. With an operator's `word`
    /// it creates a group even if one may be alive.
    pub fn new(setup: Setup, me: Me, config: u64, word: bool, now: Time) -> Bootstrapping {
        let nonce = setup.me.nonce;
        let mut boot = Bootstrap::new(setup, now);
        if word {
            boot.force_create();
        }
        let (list, told, fed, is_held, begun, places, sending, waiting, conflict) = Default::default();
        Bootstrapping { boot, me, nonce, config, list, told, fed, is_held, begun, places, sending, waiting, conflict }
    }

    /// Returns the time until the next [step](Self::step); zero if it is due.
    pub fn patience(&self, now: Time) -> Duration {
        self.boot.wake_at().since(now)
    }

    /// Takes over the digest of the settings of a running group, or its own again.
    pub fn adopt(&mut self, config: u64) {
        self.config = config;
    }

    /// Takes in a message of a process. A process with another configuration takes no part in the
    /// bootstrap, but it may report that a group exists.
    pub fn hear(&mut self, from: MemberId, nonce: u32, config: u64, words: &[u64], now: Time) {
        let is_report = |message: &BootstrapMessage| matches!(message, BootstrapMessage::Exists { .. });
        let message = BootstrapMessage::decode(words).filter(|message| config == self.config || is_report(message));
        let Some(mut message) = message else { return };
        match &mut message {
            BootstrapMessage::Places { incarnation, cards } => self.keep_places(*incarnation, core::mem::take(cards)),
            BootstrapMessage::Decided { initial_view, cards } => {
                self.keep_places(initial_view.incarnation, core::mem::take(cards));
            }
            _ => {}
        }
        self.boot.hear(Process { id: from, nonce }, message, now);
    }

    fn keep_places(&mut self, of: Incarnation, cards: Vec<Card>) {
        if cards.is_empty() {
            return;
        }
        let (_, places) = match self.places.take() {
            Some(known) if known.0 == of => self.places.insert(known),
            _ => self.places.insert((of, BTreeMap::new())),
        };
        for card in cards {
            if places.len() < MEMBERS_MAX || places.contains_key(&card.id) {
                places.insert(card.id, card);
            }
        }
    }

    /// Takes in what is known of the seeds, and the current time.
    pub fn step(&mut self, seeds: &Seeds, now: Time) {
        let alone = seeds.is_nowhere();
        let list = SeedList {
            count: if alone { 1 } else { seeds.list().len() as u32 },
            own: if alone { [0].into() } else { seeds.own_indices().collect() },
            digest: if self.is_held { 0 } else { seeds.digest_now(now) },
        };
        if self.list != seeds.list() || self.told != list {
            (self.list, self.told) = (seeds.list().to_vec(), list.clone());
            self.fed = vec![(None, false); self.list.len()];
        }
        self.boot.set_seeds(list, now);
        for (seed, (known, fed)) in (0..).zip(self.list.iter().map(|seed| seeds.known_at(seed)).zip(&mut self.fed)) {
            if let Some(id) = known.0.filter(|id| fed.0 != Some(*id) || fed.1 && !known.1) {
                self.boot.reached(seed, id, now);
            }
            if known.1 && !fed.1 {
                self.boot.not_reached(seed, now);
            }
            *fed = known;
        }
        self.boot.poll(now);
    }

    /// Returns the next action. After a record it returns only other records until that record is
    /// [written](Self::persisted). `card_of` returns the card of a process, if it is known.
    pub fn next_act(&mut self, card_of: impl Fn(Process) -> Option<Card>) -> Option<Act> {
        loop {
            if let Some((to, message)) = self.sending.pop_front() {
                let Me { id: from, pid, birth } = self.me;
                let (nonce, config, words) = (self.nonce, self.config, message.encode());
                let message = ControlMessage::Bootstrap { from, pid, birth, nonce, config, clock: 0, words };
                return Some(Act::Send(to, message));
            }
            match self.boot.next_output()? {
                BootstrapOutput::Send { to, message: BootstrapMessage::Decided { initial_view, .. } } => {
                    let cards = self.places_of(&initial_view, &card_of);
                    let messages = BootstrapMessage::decided(initial_view, cards);
                    self.sending.extend(messages.into_iter().map(|message| (to, message)));
                }
                BootstrapOutput::Send { to, message } => self.sending.push_back((to, message)),
                BootstrapOutput::Persist(record) => return Some(Act::Persist(record)),
                BootstrapOutput::Begin(initial_view) => self.begun = Some(initial_view),
                BootstrapOutput::Join(_) => {}
                BootstrapOutput::Waits(waiting) => self.waiting = Some(waiting),
                BootstrapOutput::Conflict { mine, theirs } => self.conflict = Some((mine.0, theirs.0)),
            }
        }
    }

    /// Returns the cards of the founders, as far as this process knows them or has been sent them.
    fn places_of(&self, initial_view: &InitialView, card_of: impl Fn(Process) -> Option<Card>) -> Vec<Card> {
        if mutation!(FoundersUnplaced) {
            return Vec::new();
        }
        let places = self.places.as_ref().filter(|(of, _)| *of == initial_view.incarnation);
        let heard = |id| places?.1.get(&id).cloned();
        initial_view.members.iter().filter_map(|process| card_of(*process).or_else(|| heard(process.id))).collect()
    }

    /// Notes that the oldest pending record is written.
    pub fn persisted(&mut self, now: Time) {
        self.boot.persisted(now);
    }

    /// Notes that this process has become a member of an existing group.
    pub fn joined(&mut self, incarnation: u128, now: Time) {
        self.boot.joined(Incarnation(incarnation), now);
    }

    /// Notes whether members of a group live on this host.
    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Takes the outcome of the bootstrap, once, if this process is a member of the group's first
    /// view: the view, and the cards of its members that other processes have sent. The driver passes both
    /// to [`Roster::hear_of_founders`](super::Roster::hear_of_founders).
    pub fn take_begun(&mut self) -> Option<(InitialView, Vec<Card>)> {
        let begun = self.begun.take()?;
        let places = self.places.as_ref().filter(|(of, _)| *of == begun.incarnation);
        let cards = places.map(|(_, cards)| cards.values().cloned().collect()).unwrap_or_default();
        Some((begun, cards))
    }

    /// Returns the reason why the process waits.
    pub fn waits(&self) -> Option<SeedWait> {
        let BootstrapWait { need, seeds, .. } = self.waiting.as_ref()?;
        Some(SeedWait { need: *need, seeds: self.list.iter().cloned().zip(seeds.iter().copied()).collect() })
    }

    /// Takes the incarnations of this process's group and of another group that was found, if that
    /// is new.
    pub fn take_conflict(&mut self) -> Option<(u128, u128)> {
        self.conflict.take()
    }
}

impl SeedWait {
    /// The number of seeds that have yet to answer, if the process waits for seeds; otherwise 0.
    pub fn seeds_missing(&self) -> u32 {
        let is_missing =
            |state: &SeedState| matches!(state, SeedState::Silent | SeedState::Unreachable | SeedState::Unlike);
        match self.need {
            Need::Seeds => self.seeds.iter().filter(|(_, state)| is_missing(state)).count() as u32,
            _ => 0,
        }
    }
}

impl fmt::Display for SeedWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.need {
            Need::Group(incarnation) => write!(
                f,
                "; group {incarnation} was created before, and none of its members answers; if all of them have ended, create the group again with --force-create"
            )?,
            Need::Admission(incarnation) => {
                write!(f, "; a member of group {incarnation} answers, which has to let it in")?
            }
            Need::SeedList | Need::Seeds | Need::Members(_) | Need::Votes | Need::Founder => {}
        }
        let told = |states: &[SeedState], what| {
            let of: Vec<String> = self
                .seeds
                .iter()
                .filter(|(_, state)| states.contains(state))
                .map(|(seed, _)| seed.to_string())
                .collect();
            if of.is_empty() { String::new() } else { format!("; {what}: {}", of.join(", ")) }
        };
        write!(f, "{}", told(&[SeedState::Silent], "seeds that have not answered"))?;
        write!(f, "{}", told(&[SeedState::Unlike], "seeds that have another list of seeds"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Process = Process { id: MemberId(1), nonce: 7 };
    const CONFIG: u64 = 9;

    fn process(id: MemberId) -> Me {
        Me { id, pid: 1, birth: Default::default() }
    }

    /// A durable process without seeds, which creates a group of `members` members.
    fn bootstrapping(members: u32) -> (Bootstrapping, Seeds) {
        let setup = Setup { me: ME, members, random: 5, durable: true, record: BootstrapRecord::default() };
        let seeds = Seeds::new(vec![], None, "a:1".parse().unwrap());
        (Bootstrapping::new(setup, process(ME.id), CONFIG, false, Time(0)), seeds)
    }

    /// Runs it for a second. Returns the control messages and the number of records.
    fn run(boot: &mut Bootstrapping, seeds: &Seeds, writes: bool) -> (Vec<(To, ControlMessage)>, u32) {
        let (mut messages, mut records) = (vec![], 0);
        for now in (0..100).map(|tick| Time(tick * 10_000_000)) {
            boot.step(seeds, now);
            while let Some(act) = boot.next_act(|_| None) {
                match act {
                    Act::Send(to, message) => messages.push((to, message)),
                    Act::Persist(_) => {
                        records += 1;
                        if writes {
                            boot.persisted(now);
                        }
                    }
                }
            }
        }
        (messages, records)
    }

    #[test]
    fn a_group_begins_only_when_its_record_is_written() {
        for writes in [true, false] {
            let (mut boot, seeds) = bootstrapping(1);
            let (messages, records) = run(&mut boot, &seeds, writes);
            assert!(records > 0, "{messages:?}");
            assert_eq!(boot.take_begun().is_some_and(|(begun, _)| begun.members == [ME]), writes);
        }
    }

    /// Seed 5703 of whole processes: the only process that knew the addresses of all founders ended
    /// after the decision. The others began the view, and never dialled each other.
    #[test]
    fn a_decision_brings_the_places_of_the_founders_and_they_are_passed_on() {
        let card = |id: u64| Card {
            id: MemberId(id),
            host: id.into(),
            address: format!("h{id}:1").parse().unwrap(),
            rack: None,
        };
        let other = |id: u64| Process { id: MemberId(id), nonce: 8 };
        let initial_view = InitialView { incarnation: Incarnation(5), members: vec![ME, other(2), other(3)] };
        let cards: Vec<Card> = [1, 2, 3].map(card).to_vec();
        let (mut boot, seeds) = bootstrapping(3);
        let mut hear = |message: BootstrapMessage| {
            boot.hear(MemberId(2), 8, CONFIG, &message.encode(), Time(0));
        };
        let places = |of, cards| BootstrapMessage::Places { incarnation: Incarnation(of), cards };
        hear(places(6, vec![card(9)]));
        hear(places(5, vec![card(3)]));
        hear(BootstrapMessage::Decided { initial_view: initial_view.clone(), cards: [1, 2].map(card).to_vec() });
        run(&mut boot, &seeds, true);
        assert_eq!(boot.take_begun(), Some((initial_view.clone(), cards.clone())));
        assert_eq!(boot.take_begun(), None);
        // Founder 3 has not heard of it.
        let hello = BootstrapMessage::Hello { seeds: 1, belongs: None };
        boot.hear(MemberId(3), 8, CONFIG, &hello.encode(), Time(2_000_000_000));
        let (messages, _) = run(&mut boot, &seeds, true);
        let told = messages.iter().find_map(|(to, message)| match message {
            ControlMessage::Bootstrap { words, .. } if *to == To::Process(other(3)) => BootstrapMessage::decode(words),
            _ => None,
        });
        assert_eq!(told, Some(BootstrapMessage::Decided { initial_view, cards }));
    }

    #[test]
    fn a_host_with_members_founds_no_second_group() {
        let (mut boot, seeds) = bootstrapping(1);
        boot.hold(true);
        assert_eq!(run(&mut boot, &seeds, true), (vec![], 0));
        assert_eq!(boot.take_begun(), None);
        boot.hold(false);
        run(&mut boot, &seeds, true);
        assert!(boot.take_begun().is_some());
    }

    #[test]
    fn a_process_with_another_configuration_is_not_counted() {
        let hello = |config| {
            let (mut boot, seeds) = bootstrapping(2);
            let (mut other, _) = bootstrapping(2);
            let mut list = Seeds::new(vec!["b:1".parse().unwrap()], None, "a:1".parse().unwrap());
            list.reached(&"b:1".parse().unwrap(), ME.id, &"b:1".parse().unwrap());
            (other.me, other.nonce, other.config) = (process(MemberId(2)), 8, config);
            let (messages, _) = run(&mut other, &list, true);
            boot.step(&seeds, Time(0));
            for (_, message) in messages {
                let ControlMessage::Bootstrap { from, nonce, config, words, .. } = message else {
                    panic!("{message:?}")
                };
                boot.hear(from, nonce, config, &words, Time(0));
            }
            run(&mut boot, &seeds, true).0.iter().any(|(to, _)| matches!(to, To::Process(_)))
        };
        assert_eq!([CONFIG, CONFIG + 1].map(hello), [true, false]);
    }
}

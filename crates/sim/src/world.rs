//! The world: members, memory and time. One heap of events, one seed, nothing else decides what happens next.
//!
//! An engine is polled when something has happened to it (a post landed, an application committed, a consumer reported)
//! and as long as it says that there is more to do; never otherwise, so that a forgotten wake-up shows.
/// Adds a line to the trace, if there is one.
macro_rules! note {
    ($world:expr, $($text:tt)*) => {
        if let Some(trace) = &mut $world.trace {
            trace.line($world.now, format_args!($($text)*));
        }
    };
}

mod consumers;
mod senders;

use crate::apps::{App, Consumer, digest};
use crate::checkers::determinism::TraceHash;
use crate::checkers::monotone::{self, Monotone};
use crate::checkers::null_rule::{self, NullRule};
use crate::checkers::total_order::TotalOrder;
use crate::checkers::{Violation, bounded, frame_safety, liveness, no_invention, no_storms, sequence, stability};
use crate::ledger::Ledger;
use crate::options::Visibility;
use crate::plan::Plan;
use crate::random::Random;
use crate::table::{Action, SimTable, Travel};
use crate::trace::Trace;
use spindle_core::layout::{entry, membership};
use spindle_core::ring::HEADER_BYTES;
use spindle_core::{Batch, Engine, Layout, Order, Rank, State, SubgroupId, Time, Upcalls};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// What a run came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What was broken; a run ends at the first.
    pub violations: Vec<Violation>,
    /// Messages delivered, and checked, at all members together.
    pub deliveries: u64,
    /// Messages committed.
    pub messages: u64,
    /// Nulls announced.
    pub nulls: u64,
    /// Polls of engines.
    pub polls: u64,
    /// Posts, each counted once whatever the number of peers.
    pub posts: u64,
    /// Stores of engines into their rows.
    pub stores: u64,
    /// Faults that happened: delays, merges, tears, pauses met, clock jumps.
    pub faults: u64,
    /// Events.
    pub events: u64,
    /// Virtual time at the end, in ns.
    pub virtual_ns: u64,
    /// A hash of all that happened, in order.
    pub trace_hash: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Poll(Rank),
    Land { owner: Rank, peer: Rank },
    App(usize),
    Consume(usize),
    Report(usize),
    Clock(Rank, usize),
    Close(SubgroupId, usize),
}

/// What a word of a control block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    Unused,
    Membership(&'static str),
    Entry(SubgroupId, &'static str),
    BySender(SubgroupId, usize),
}

struct Member {
    engine: Engine,
    scheduled: bool,
    finished: bool,
    /// Its clock's offset, in ns.
    clock: i64,
    /// Polls that it will still make without having anything to do.
    spins: u64,
    words: Vec<Word>,
    subgroups: u64,
    /// By subgroup: how far it was stable when the trace was last told.
    stable: Vec<u64>,
}

/// What an engine told its application in one poll.
struct Told {
    random: Random,
    partial: bool,
    delivered: Vec<Delivered>,
    rooms: Vec<SubgroupId>,
    handed_off: Vec<SubgroupId>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    pub(crate) subgroup: SubgroupId,
    pub(crate) sender: Rank,
    pub(crate) round: u64,
    pub(crate) len: u64,
    pub(crate) digest: u64,
}

impl Told {
    /// How many messages a handler takes out of a batch.
    fn appetite(&mut self) -> usize {
        if !self.partial || self.random.one_in(8) {
            return usize::MAX;
        }
        let most = self.random.pick(&[4, 64, 1024]);
        self.random.below(most) as usize
    }
}

impl Told {
    /// Takes messages out of a batch, by either of the ways that there are.
    pub(crate) fn take(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_, SimTable>) {
        let most = self.appetite();
        let delivered = &mut self.delivered;
        let take = |message: spindle_core::Message<'_>| {
            let spindle_core::Message { sender, round, payload } = message;
            delivered.push(Delivered { subgroup, sender, round, len: payload.len() as u64, digest: digest(payload) });
        };
        match most {
            usize::MAX => batch.for_each(take),
            most => batch.take(most).for_each(take),
        }
    }
}

impl Upcalls<SimTable> for Told {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_, SimTable>) {
        self.take(subgroup, batch);
    }

    fn room(&mut self, subgroup: SubgroupId) {
        self.rooms.push(subgroup);
    }

    fn handed_off(&mut self, subgroup: SubgroupId) {
        self.handed_off.push(subgroup);
    }
}

type Checked = Result<(), Violation>;

pub(crate) struct World<'a> {
    plan: &'a Plan,
    layout: Layout,
    now: u64,
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pushed: u64,
    random: Random,
    members: Vec<Member>,
    tables: Vec<SimTable>,
    apps: Vec<App>,
    consumers: Vec<Consumer>,
    told: Told,
    ledger: Ledger,
    total_order: TotalOrder,
    monotone: Monotone,
    null_rule: NullRule,
    hash: TraceHash,
    outcome: Outcome,
    trace: Option<&'a mut Trace>,
}

impl<'a> World<'a> {
    pub(crate) fn new(plan: &'a Plan, trace: Option<&'a mut Trace>) -> World<'a> {
        let view = &plan.view;
        let layout = Layout::new(view).expect("a plan's view is well formed");
        let sizes: Vec<(u64, u64)> = layout.rows().iter().map(|row| (row.size, row.control)).collect();
        let mid_poll = |rank: Rank| plan.faults.mid_poll_arrivals.then_some(plan.seed ^ u64::from(rank.0));
        let tables = view.ranks().map(|me| SimTable::new(me, &sizes, !plan.faults.late_copies, mid_poll(me)));
        let ring = |rank: Rank, id| layout.row(rank).place(id).and_then(|place| place.ring).expect("a sender's ring");
        let mut consumers = vec![];
        let members: Vec<Member> = view
            .ranks()
            .map(|me| {
                let mut engine = Engine::new(view.clone(), me, plan.ablation).expect("a plan's view is well formed");
                for &id in &plan.members[me.index()].hand_offs {
                    let (cursor, handoff) = engine.hand_off(id).expect("a member of the subgroup");
                    consumers.push(Consumer::new(me, id, cursor, handoff));
                }
                Member {
                    engine,
                    scheduled: false,
                    finished: false,
                    clock: 0,
                    spins: 0,
                    words: words_of(&layout, plan, me),
                    subgroups: view.subgroups_of(me).count() as u64,
                    stable: vec![0; view.subgroups.len()],
                }
            })
            .collect();
        let apps = plan.apps.iter().map(|app| {
            let claims = members[app.member.index()].engine.claims(app.subgroup).expect("a sender has claims");
            let sender = view.subgroups[app.subgroup.index()].sender_rank(app.member).expect("a sender");
            let twins = |other: &&crate::plan::AppPlan| (other.member, other.subgroup) == (app.member, app.subgroup);
            App::new(*app, claims, sender, plan.apps.iter().filter(twins).count() == 1)
        });
        let control: Vec<u64> = sizes.iter().map(|(_, control)| *control).collect();
        World {
            now: 0,
            heap: BinaryHeap::with_capacity(1024),
            pushed: 0,
            random: Random::new(plan.seed, 1),
            tables: tables.collect(),
            apps: apps.collect(),
            consumers,
            told: Told {
                random: Random::new(plan.seed, 2),
                partial: plan.faults.partial_batches,
                delivered: vec![],
                rooms: vec![],
                handed_off: vec![],
            },
            ledger: Ledger::new(view, ring),
            total_order: TotalOrder::new(view.subgroups.len(), members.len()),
            monotone: Monotone::new(&control),
            null_rule: NullRule::new(view.subgroups.iter().map(|spec| spec.senders.len())),
            hash: TraceHash::default(),
            outcome: Outcome { seed: plan.seed, ..Outcome::default() },
            members,
            layout,
            plan,
            trace,
        }
    }

    /// Runs to the end, or to the first violation.
    pub(crate) fn run(mut self) -> Outcome {
        if let Err(violation) = self.play() {
            self.outcome.violations.push(Violation { at: self.now, ..violation });
        }
        for group in &self.ledger.groups {
            self.outcome.deliveries += group.deliveries;
            self.outcome.messages += group.lanes.iter().map(|lane| lane.messages).sum::<u64>();
        }
        self.outcome.nulls = self.null_rule.nulls();
        self.outcome.virtual_ns = self.now;
        self.outcome.trace_hash = self.hash.value();
        self.outcome
    }

    fn play(&mut self) -> Checked {
        self.start();
        self.drain()?;
        liveness::at_rest(&self.ledger)?;
        self.compare_copies()?;
        if !self.plan.faults.early_close {
            note!(self, "-- at rest: everybody is polled, nobody may find anything to do");
            self.poke()?;
            note!(self, "-- claims are closed");
            for (id, sender) in self.lanes() {
                let at = self.now + self.random.below(20_000);
                self.push(at, Event::Close(id, sender));
            }
        }
        self.drain()?;
        for member in &self.members {
            liveness::ended(member.engine.me(), member.engine.state())?;
        }
        self.compare_copies()
    }

    fn start(&mut self) {
        for i in 0..self.apps.len() {
            let at = self.random.below(self.apps[i].plan.think_ns);
            self.push(at, Event::App(i));
        }
        for rank in self.plan.view.ranks() {
            for (i, (at, _)) in self.plan.members[rank.index()].clock_jumps.iter().enumerate() {
                self.push(*at, Event::Clock(rank, i));
            }
            self.wake(rank);
        }
        if self.plan.faults.early_close {
            for (id, sender) in self.lanes() {
                let member = self.ledger.lane(id, sender).sender;
                if !self.apps.iter().any(|app| app.plan.member == member && app.plan.subgroup == id) {
                    let at = self.random.below(50_000);
                    self.push(at, Event::Close(id, sender));
                }
            }
        }
    }

    fn lanes(&self) -> Vec<(SubgroupId, usize)> {
        let groups = (0..).map(SubgroupId).zip(&self.ledger.groups);
        groups.flat_map(|(id, group)| (0..group.lanes.len()).map(move |sender| (id, sender))).collect()
    }

    /// Lets things happen until nothing is left to happen.
    fn drain(&mut self) -> Checked {
        while let Some(Reverse((at, _, event))) = self.heap.pop() {
            self.now = at;
            self.outcome.events += 1;
            self.hash.add(at);
            if self.outcome.events > self.plan.events_max {
                return match self.ledger.everything_is_delivered() {
                    true => null_rule::restless(self.outcome.events),
                    false => liveness::endless(self.outcome.events),
                };
            }
            self.happen(event)?;
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Checked {
        let stopped = match event {
            Event::Poll(rank) => Some(rank),
            Event::App(i) => Some(self.apps[i].plan.member),
            Event::Consume(i) | Event::Report(i) => Some(self.consumers[i].member),
            _ => None,
        };
        if let Some(until) = stopped.and_then(|rank| self.paused(rank)) {
            self.outcome.faults += 1;
            self.push(until, event);
            return Ok(());
        }
        match event {
            Event::Poll(rank) => {
                self.members[rank.index()].scheduled = false;
                self.poll(rank).map(|_| ())
            }
            Event::Land { owner, peer } => self.land(owner, peer),
            Event::App(i) => self.step(i),
            Event::Consume(i) => self.consume(i),
            Event::Report(i) => self.report(i),
            Event::Clock(rank, i) => {
                let by = self.plan.members[rank.index()].clock_jumps[i].1;
                self.members[rank.index()].clock += by;
                self.outcome.faults += 1;
                note!(self, "m{rank} clock jumps by {by} ns");
                Ok(())
            }
            Event::Close(id, sender) => {
                self.close(id, sender);
                Ok(())
            }
        }
    }

    fn push(&mut self, at: u64, event: Event) {
        self.pushed += 1;
        self.heap.push(Reverse((at, self.pushed, event)));
    }

    fn paused(&self, rank: Rank) -> Option<u64> {
        let pauses = &self.plan.members[rank.index()].pauses;
        pauses.iter().find(|(from, to)| (*from..*to).contains(&self.now)).map(|(_, to)| *to)
    }

    /// Something has happened to `rank`: its engine is polled soon.
    fn wake(&mut self, rank: Rank) {
        let member = &mut self.members[rank.index()];
        if member.scheduled || member.finished {
            return;
        }
        member.scheduled = true;
        let at = self.now + self.random.range(50, self.plan.members[rank.index()].poll_ns);
        self.push(at, Event::Poll(rank));
    }

    /// Polls an engine and carries what it did into the world. Answers whether it worked and how many posts it made.
    fn poll(&mut self, rank: Rank) -> Result<(bool, u64), Violation> {
        let me = rank.index();
        if self.members[me].finished {
            return Ok((false, 0));
        }
        self.outcome.polls += 1;
        self.told.delivered.clear();
        self.tables[me].begin_poll();
        self.interrupt(rank);
        // A clock that runs from an origin far enough for every jump back.
        let clock = Time((self.now as i64 + self.members[me].clock + (1 << 60)) as u64);
        let progress = self.members[me].engine.poll(clock, &mut self.tables[me], &mut self.told);
        self.tables[me].end_poll();
        no_storms::polled(rank, self.members[me].engine.state())?;
        self.went_back(rank)?;

        let actions = std::mem::take(&mut self.tables[me].actions);
        let carried = self.carry(rank, &actions);
        self.note_stable(rank);
        let delivered = std::mem::take(&mut self.told.delivered);
        let checked = carried.and_then(|posts| {
            for message in &delivered {
                self.deliver(rank, *message, true)?;
            }
            self.believe(rank, &actions)?;
            Ok(posts)
        });
        self.tables[me].actions = actions;
        self.told.delivered = delivered;
        let posts = checked?;
        bounded::posted(rank, self.members[me].subgroups, posts)?;
        self.outcome.posts += posts;

        self.pass_on(rank);
        let member = &mut self.members[me];
        if *member.engine.state() == State::Finished {
            member.finished = true;
            note!(self, "m{rank} has finished");
            return Ok((progress.worked, posts));
        }
        let busy = progress.worked || progress.wake_at.is_some();
        if busy && self.plan.faults.spinning {
            member.spins = 10;
        }
        if busy || member.spins > 0 {
            member.spins = member.spins.saturating_sub(u64::from(!busy));
            self.wake(rank);
        }
        if self.tables[me].missed.get() {
            self.wake(rank);
        }
        Ok((progress.worked, posts))
    }

    /// Now and then an application commits in the middle of the poll that begins.
    fn interrupt(&mut self, rank: Rank) {
        if !self.plan.faults.mid_poll_arrivals {
            return;
        }
        let Some(i) = self.apps.iter().position(|app| app.plan.member == rank && app.holding.is_some()) else { return };
        if self.apps[i].left > 0 && !self.random.one_in(4) {
            return;
        }
        let interruption = self.commit(i);
        self.apps[i].early = true;
        // A quiet poll loads four words of every peer in every subgroup.
        let accesses = 5 * self.members[rank.index()].subgroups * self.members.len() as u64;
        let access = self.random.range(1, accesses);
        self.tables[rank.index()].interrupt_at(access, interruption);
        self.tables[rank.index()].missed.set(true);
    }

    /// What an engine stored and posted goes its way. Answers how many posts it made.
    fn carry(&mut self, rank: Rank, actions: &[Action]) -> Result<u64, Violation> {
        let mut posts = 0;
        for action in actions {
            match action {
                Action::Store { at, value } => self.stored(rank, *at, *value)?,
                Action::Post { peers, range, copied } => {
                    posts += 1;
                    self.posted(rank, *peers, range, *copied);
                }
            }
        }
        Ok(posts)
    }

    fn stored(&mut self, rank: Rank, at: u64, value: u64) -> Checked {
        self.outcome.stores += 1;
        self.hash.add(at ^ u64::from(rank.0) << 48);
        self.hash.add(value);
        if at >= self.layout.row(rank).control {
            let groups = (0..).map(SubgroupId).zip(&mut self.ledger.groups);
            let mut mine = groups.filter_map(|(id, group)| Some((id, group.sender_rank(rank)?, group)));
            let within = |lane: &crate::ledger::Lane| (lane.ring.at..lane.ring.at + lane.ring.size()).contains(&at);
            if let Some((_, sender, group)) = mine.find(|(_, sender, group)| within(&group.lanes[*sender])) {
                monotone::stamped(&group.lanes[sender], at)?;
            }
        } else {
            let before = self.monotone.stored(rank, rank, at, value)?;
            match self.members[rank.index()].words[at as usize / 8] {
                Word::Membership(name) => note!(self, "m{rank} is {name}"),
                Word::Entry(id, name) => {
                    if name != "delivered" {
                        note!(self, "m{rank} s{id} {name} {before} -> {value}");
                    }
                    let group = &mut self.ledger.groups[id.index()];
                    match (name, group.sender_rank(rank)) {
                        ("published", Some(sender)) => {
                            let row = &self.tables[rank.index()].rows[rank.index()];
                            let lane = &mut group.lanes[sender];
                            let count = monotone::announced(lane, value, |at| row.word(at))?;
                            for frame in &lane.frames[lane.announced - count..lane.announced] {
                                self.null_rule.stamped(id, sender, frame.round.expect("announced"))?;
                            }
                        }
                        ("rounds", Some(sender)) => self.null_rule.announced(group, id, sender, value)?,
                        _ => {}
                    }
                }
                // `believe` looks at them, after the deliveries.
                Word::BySender(..) | Word::Unused => {}
            }
        }
        self.spread(rank, at, value);
        Ok(())
    }

    /// In shared memory a store travels to every peer by itself.
    fn spread(&mut self, rank: Rank, at: u64, value: u64) {
        if self.plan.visibility == Visibility::Posted {
            return;
        }
        for peer in self.plan.view.ranks().filter(|peer| *peer != rank) {
            let due = self.next_moment(rank, peer);
            self.tables[peer.index()].expect_word(rank, at, value, due);
            self.schedule(rank, peer);
        }
    }

    /// When the next store of `rank` is seen by `peer`: mostly together with the one before it, now and then later.
    fn next_moment(&mut self, rank: Rank, peer: Rank) -> u64 {
        let due = self.tables[peer.index()].inbound[rank.index()].borrow().due.max(self.now);
        if !self.random.one_in(4) {
            return due;
        }
        let slow = self.plan.link_ns[rank.index()][peer.index()];
        let most = if self.plan.faults.delayed_posts && self.random.one_in(64) {
            self.outcome.faults += 1;
            20_000
        } else {
            slow / 10
        };
        due + self.random.range(1, most)
    }

    fn posted(&mut self, rank: Rank, peers: u64, range: &Range<u64>, copied: usize) {
        for peer in self.plan.view.ranks().filter(|peer| *peer != rank && peers >> peer.0 & 1 == 1) {
            if self.plan.visibility == Visibility::Shared {
                let due = self.next_moment(rank, peer);
                self.tables[peer.index()].expect_bell(rank, due);
                self.schedule(rank, peer);
                continue;
            }
            let faults = self.plan.faults;
            let longest = self.plan.link_ns[rank.index()][peer.index()];
            let mut due = self.now + self.random.range(longest / 4, longest);
            if faults.delayed_posts && self.random.one_in(16) {
                due += self.random.range(5_000, 100_000);
                self.outcome.faults += 1;
            }
            let torn = faults.tearing && self.random.one_in(2);
            let steps = if torn { self.random.range(2, 4) } else { 1 };
            let merge = faults.merged_posts && self.random.one_in(2);
            let travel = Travel { due, steps, salt: self.random.word(), merge };
            let [from, to] = self.pair(rank, peer);
            let merged = to.expect_post(from, range, copied, travel);
            self.outcome.faults += u64::from(merged) + u64::from(torn);
            self.schedule(rank, peer);
        }
    }

    fn pair(&mut self, from: Rank, to: Rank) -> [&mut SimTable; 2] {
        self.tables.get_disjoint_mut([from.index(), to.index()]).expect("two members")
    }

    /// Sees to it that there is an event for what is on the way from `owner` to `peer`.
    fn schedule(&mut self, owner: Rank, peer: Rank) {
        let mut link = self.tables[peer.index()].inbound[owner.index()].borrow_mut();
        if !std::mem::replace(&mut link.scheduled, true) {
            drop(link);
            let due = self.tables[peer.index()].next_due(owner).expect("something is on the way");
            self.push(due, Event::Land { owner, peer });
        }
    }

    fn land(&mut self, owner: Rank, peer: Rank) -> Checked {
        let gap = self.random.range(20, 3_000);
        let now = self.now;
        let [from, to] = self.pair(owner, peer);
        let landed = to.land(from, now, gap);
        to.inbound[owner.index()].borrow_mut().scheduled = landed.next.is_some();
        self.went_back(peer)?;
        if let Some(next) = landed.next {
            self.push(next, Event::Land { owner, peer });
        }
        if landed.woken {
            note!(self, "m{peer} <- m{owner} arrives");
            self.wake(peer);
        }
        Ok(())
    }

    fn went_back(&mut self, holder: Rank) -> Checked {
        match self.tables[holder.index()].went_back.take() {
            Some((owner, at, before, now)) => monotone::went_back(holder, owner, at, before, now),
            None => Ok(()),
        }
    }

    /// `rank` takes a message out of a batch, and is done with it unless it is only lent.
    fn deliver(&mut self, rank: Rank, message: Delivered, done: bool) -> Result<usize, Violation> {
        let Delivered { subgroup, sender: from, round, len, digest } = message;
        note!(self, "m{rank} s{subgroup} delivers round {round} of m{from}, {len} bytes");
        self.hash.add(digest ^ round);
        let group = &self.ledger.groups[subgroup.index()];
        let (order, sender) = (group.order, group.sender_rank(from).expect("a sender of the subgroup"));
        no_invention::delivered(&self.ledger, subgroup, rank, sender, len, digest)?;
        let index = sequence::delivered(&mut self.ledger, subgroup, rank, sender, round, digest)?;
        if done {
            self.ledger.groups[subgroup.index()].lanes[sender].done[rank.index()] = index + 1;
        }
        if order == Order::Total && self.total_order.delivered(subgroup, rank, from, round, digest)? {
            let group = &self.ledger.groups[subgroup.index()];
            let lane = &group.lanes[sender];
            let frame = &lane.frames[index];
            let bytes = self.tables[from.index()].rows[from.index()].slice(frame.at + HEADER_BYTES, len);
            for holder in &group.members {
                let rows = &Still(&self.tables[holder.index()]);
                stability::held(rows, *holder, subgroup, from, &lane.ring, frame, bytes)?;
            }
        }
        Ok(index)
    }

    /// What an engine says about its deliveries, compared with them.
    fn believe(&mut self, rank: Rank, actions: &[Action]) -> Checked {
        for action in actions {
            let Action::Store { at, value } = action else { continue };
            let (id, by_sender) = match self.members[rank.index()].words.get(*at as usize / 8) {
                Some(Word::BySender(id, sender)) => (*id, Some(*sender)),
                Some(Word::Entry(id, "delivered")) => (*id, None),
                _ => continue,
            };
            match by_sender {
                Some(sender) => note!(self, "m{rank} s{id} delivered[{sender}] -> {value}"),
                None => note!(self, "m{rank} s{id} delivered -> {value}"),
            }
            let group = &mut self.ledger.groups[id.index()];
            // The sum over senders says nothing that they don't.
            if by_sender.is_some() == (group.order == Order::Fifo) {
                frame_safety::says_delivered(group, id, rank, by_sender.unwrap_or(0), *value)?;
            }
        }
        Ok(())
    }

    /// Tells the trace how far the stability frontiers of `rank` have come.
    fn note_stable(&mut self, rank: Rank) {
        if self.trace.is_none() {
            return;
        }
        for (id, _) in self.plan.view.subgroups_of(rank) {
            let stable = self.members[rank.index()].engine.stable(id).unwrap_or(0);
            let before = std::mem::replace(&mut self.members[rank.index()].stable[id.index()], stable);
            if before != stable {
                note!(self, "m{rank} s{id} stable {before} -> {stable}");
            }
        }
    }

    /// Upcalls that others wait for.
    fn pass_on(&mut self, rank: Rank) {
        while let Some(id) = self.told.rooms.pop() {
            for i in 0..self.apps.len() {
                let app = &mut self.apps[i];
                if app.parked && app.plan.member == rank && app.plan.subgroup == id {
                    app.parked = false;
                    let at = self.now + self.random.range(10, 500);
                    self.push(at, Event::App(i));
                }
            }
        }
        while let Some(id) = self.told.handed_off.pop() {
            let mine = |consumer: &Consumer| consumer.member == rank && consumer.subgroup == id;
            let i = self.consumers.iter().position(mine).expect("it was handed off to somebody");
            self.expect_consumer(i);
        }
    }

    /// Polls everybody at rest.
    fn poke(&mut self) -> Checked {
        for _ in 0..3 {
            for rank in self.plan.view.ranks() {
                let (worked, posts) = self.poll(rank)?;
                null_rule::at_rest(rank, worked, posts)?;
            }
        }
        self.drain()
    }

    /// At rest, every peer's copy of every word that concerns it is what its owner stored last.
    fn compare_copies(&self) -> Checked {
        for owner in self.plan.view.ranks() {
            let common = (membership::ASLEEP..membership::LEFT + 8).step_by(8);
            for peer in self.plan.view.ranks() {
                let shared = self.plan.view.subgroups_of(owner).filter(|(_, spec)| spec.members.contains(&peer));
                let entries = shared.filter_map(|(id, _)| self.layout.row(owner).place(id));
                let words = entries.flat_map(|place| (place.entry..place.end).step_by(8));
                for at in common.clone().chain(words) {
                    let copy = self.tables[peer.index()].rows[owner.index()].word(at);
                    liveness::copied(peer, owner, at, copy, self.monotone.newest(owner, at))?;
                }
            }
        }
        Ok(())
    }
}

/// A member's copies as they are, without letting anything in.
struct Still<'a>(&'a SimTable);

impl spindle_core::Rows for Still<'_> {
    fn load(&self, member: Rank, at: u64) -> u64 {
        self.0.rows[member.index()].word(at)
    }

    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        self.0.rows[member.index()].slice(at, len)
    }

    type Frames<'a>
        = spindle_core::Lookup<'a, Self>
    where
        Self: 'a;

    fn frames(&self, member: Rank, ring: &spindle_core::Ring) -> spindle_core::Lookup<'_, Self> {
        spindle_core::Lookup::new(self, member, ring)
    }
}

fn words_of(layout: &Layout, plan: &Plan, me: Rank) -> Vec<Word> {
    let mut words = vec![Word::Unused; layout.row(me).control as usize / 8];
    words[membership::FINISHED as usize / 8] = Word::Membership("finished sending");
    words[membership::LEFT as usize / 8] = Word::Membership("leaving");
    for (id, spec) in plan.view.subgroups_of(me) {
        let place = layout.row(me).place(id).expect("a member has a place");
        let names = [
            (entry::PUBLISHED, "published"),
            (entry::ROUNDS, "rounds"),
            (entry::SPOKEN, "spoken"),
            (entry::FREED, "freed"),
            (entry::RECEIVED, "received"),
            (entry::DELIVERED, "delivered"),
            (entry::PERSISTED, "persisted"),
        ];
        for (at, name) in names {
            words[(place.entry + at) as usize / 8] = Word::Entry(id, name);
        }
        if spec.order == Order::Fifo {
            for sender in 0..spec.senders.len() {
                words[place.by_sender as usize / 8 + sender] = Word::BySender(id, sender);
            }
        }
    }
    words
}

//! Searches all states of the group, breadth first, so that each error found comes with a shortest
//! path to it.
use crate::intern::{Id, Mix};
use crate::member::{ALL, Event, Memory, Message, word};
use crate::world::{CUT, Chances, Choice, MEMBERS, Midway, Scope, Standing, World};
use spindle_core::Rank;
use std::collections::HashSet;
use std::fmt::Write;
use std::hash::BuildHasherDefault;
use std::hash::Hasher;
use std::rc::Rc;
use std::time::Instant;

/// Actors, links by writer and reader, suspicions used, waits used, recoveries used.
const WORDS: usize = MEMBERS + MEMBERS * MEMBERS + 3;
const RECOVERIES: usize = WORDS - 3;
const SUSPICIONS: usize = WORDS - 2;
const WAITS: usize = WORDS - 1;

/// An agreement that takes longer counts as blocked, in ns.
const OVERDUE_NS: u64 = 4_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
struct State([Id; WORDS]);

/// The result of a search.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) states: usize,
    pub(crate) transitions: u64,
    /// States in which no step changes anything any more.
    pub(crate) ends: u64,
    /// The number of these in which a member is left blocked.
    pub(crate) blocked: u64,
    /// The number of these in which no member continues.
    pub(crate) nobody: u64,
    /// States in which a recovery is decided.
    pub(crate) recovered: u64,
    /// The number of these in which members that were given up have made a different decision.
    pub(crate) split: u64,
    /// Decisions, by content.
    pub(crate) decisions: usize,
    pub(crate) seconds: f64,
    pub(crate) detail: String,
    pub(crate) wrong: Option<String>,
}

/// The step of a member, and whether it dies in it.
struct Step {
    member: usize,
    choice: (Rc<Vec<Choice>>, usize),
    dies_behind: Option<usize>,
    /// Whether the step need not happen.
    chance: bool,
    to: State,
}

pub(crate) struct Search {
    world: World,
    members: usize,
    visited: HashSet<u64, BuildHasherDefault<Mix>>,
    /// By number of state: the state before it, and the index of the step that led from there.
    ways: Vec<(u32, u32)>,
    compared: HashSet<[Id; MEMBERS], BuildHasherDefault<Mix>>,
    transitions: u64,
    ends: u64,
    blocked: u64,
    nobody: u64,
    recovered: u64,
    split: u64,
    first: State,
}

impl State {
    fn link(&self, from: usize, to: usize) -> Id {
        self.0[MEMBERS + from * MEMBERS + to]
    }

    fn set_link(&mut self, from: usize, to: usize, link: Id) {
        self.0[MEMBERS + from * MEMBERS + to] = link;
    }

    /// 64 bits: the chance that two of 100 million states get the same hash is less than one in
    /// 3,000.
    fn hash(&self) -> u64 {
        let mut mix = Mix::default();
        self.0.iter().for_each(|word| mix.write_u32(*word));
        mix.finish()
    }
}

impl Search {
    pub(crate) fn new(scope: Scope) -> Search {
        let members = scope.members;
        assert!(members <= MEMBERS);
        let (world, link, actors) = World::new(scope);
        let mut first = State([CUT; WORDS]);
        first.0[..members].copy_from_slice(&actors);
        for (from, to) in (0..members).flat_map(|from| (0..members).map(move |to| (from, to))) {
            if from != to {
                first.set_link(from, to, link);
            }
        }
        Search {
            world,
            members,
            visited: HashSet::default(),
            ways: Vec::new(),
            compared: HashSet::default(),
            transitions: 0,
            ends: 0,
            blocked: 0,
            nobody: 0,
            recovered: 0,
            split: 0,
            first,
        }
    }

    /// Visits every state, or at most `most`.
    pub(crate) fn run(mut self, most: usize) -> Report {
        #[expect(clippy::disallowed_methods, reason = "how long it took is for people")]
        let started = Instant::now();
        let mut frontier = vec![(self.first, 0u32)];
        let (mut wrong, mut steps) = (None, Vec::new());
        self.visited.insert(self.first.hash());
        self.ways.push((0, 0));
        'search: while !frontier.is_empty() {
            let mut next = Vec::new();
            for (state, number) in std::mem::take(&mut frontier) {
                self.steps(&state, &mut steps);
                self.transitions += steps.len() as u64;
                let fault = self.world.wrong.take().or_else(|| {
                    let moves = steps.iter().any(|step| !step.chance);
                    if moves { None } else { self.check_rest(&state) }
                });
                if let Some(fault) = fault {
                    wrong = Some((fault, number));
                    break 'search;
                }
                for (nth, step) in (0..).zip(&steps) {
                    if !self.visited.insert(step.to.hash()) {
                        continue;
                    }
                    let to = self.ways.len() as u32;
                    self.ways.push((number, nth));
                    self.note_recovery(&step.to);
                    if let Some(fault) = self.check(&step.to).or_else(|| self.check_read_barriers(&step.to)) {
                        wrong = Some((fault, to));
                        break 'search;
                    }
                    next.push((step.to, to));
                }
                if self.ways.len() > most {
                    wrong = Some((format!("more than {most} states"), number));
                    break 'search;
                }
            }
            frontier = next;
        }
        let wrong = wrong.map(|(fault, number)| {
            self.world.wrong = None;
            format!("{fault}\n{}", self.tell(number))
        });
        Report {
            states: self.ways.len(),
            transitions: self.transitions,
            ends: self.ends,
            blocked: self.blocked,
            nobody: self.nobody,
            recovered: self.recovered,
            split: self.split,
            decisions: self.world.decided(),
            seconds: started.elapsed().as_secs_f64(),
            detail: self.world.describe(),
            wrong,
        }
    }

    fn standing(&self, state: &State, member: usize) -> Standing {
        self.world.actor_of(state.0[member]).standing
    }

    fn steps(&mut self, state: &State, steps: &mut Vec<Step>) {
        steps.clear();
        let is_dead = |member: &usize| self.standing(state, *member) == Standing::Dead;
        let dead = (0..self.members).filter(is_dead).fold(0, |dead, member| dead | 1 << member);
        let crashes = self.world.scope.crashes - u32::count_ones(dead);
        let scope = &self.world.scope;
        let may = Chances {
            suspect: state.0[SUSPICIONS] < u32::from(scope.suspicions),
            wait: state.0[WAITS] < u32::from(scope.waits),
            recover: state.0[RECOVERIES] < u32::from(scope.recoveries),
        };
        for member in 0..self.members {
            if self.standing(state, member) != Standing::Running {
                continue;
            }
            let links: [Id; MEMBERS] = std::array::from_fn(|from| state.link(from, member));
            let links = &links[..self.members];
            let choices = self.world.choices(member, state.0[member], links, dead, may);
            for nth in 0..choices.len() {
                self.polls(state, member, &choices, nth, crashes > 0, steps);
            }
            // A crash between two polls is no step of its own, but is combined with the first
            // report of it: until then the member has done nothing.
            for dying in 1..1u32 << self.members {
                if dying.count_ones() > crashes || dying & (dead | 1 << member) != 0 {
                    continue;
                }
                let mut state = *state;
                for rank in (0..self.members).filter(|rank| dying >> rank & 1 == 1) {
                    let actor = self.world.dead(rank, state.0[rank]);
                    state = self.go(&state, rank, actor, 0, &[CUT; MEMBERS]);
                }
                let choices = self.world.choices(member, state.0[member], links, dead | dying, Chances::default());
                for nth in (0..choices.len()).filter(|nth| choices[*nth].news & dying == dying) {
                    let before = steps.len();
                    self.polls(&state, member, &choices, nth, crashes > dying.count_ones(), steps);
                    steps[before..].iter_mut().for_each(|step| step.chance = true);
                }
            }
        }
    }

    /// A member polls, and does or does not die in the middle of it.
    fn polls(
        &mut self,
        state: &State,
        member: usize,
        choices: &Rc<Vec<Choice>>,
        nth: usize,
        may_crash: bool,
        steps: &mut Vec<Step>,
    ) {
        let choice = &choices[nth];
        let is_false = !choice.inputs.suspected.is_empty();
        let gives_up = !choice.inputs.given_up.is_empty();
        let is_chance = is_false || gives_up || choice.inputs.leaves || !choice.inputs.trusted.is_empty();
        let is_late = choice.inputs.late;
        let deaths = if may_crash { &choice.deaths[..] } else { &[] };
        for behind in 0..=deaths.len() {
            let mut to = match behind.checked_sub(1) {
                None => self.go(state, member, choice.after, choice.output, &choice.links),
                Some(nth) => self.go(state, member, deaths[nth].0, deaths[nth].1, &[CUT; MEMBERS]),
            };
            to.0[SUSPICIONS] += u32::from(is_false);
            to.0[WAITS] += u32::from(is_late);
            to.0[RECOVERIES] += u32::from(gives_up);
            let choice = (Rc::clone(choices), nth);
            let dies_behind = (behind > 0).then_some(behind);
            steps.push(Step { member, choice, dies_behind, chance: is_chance || behind > 0, to });
        }
    }

    /// The state in which `member` has become `after`, with these links to it, and has shown
    /// `output`.
    fn go(&mut self, state: &State, member: usize, after: Id, output: Id, links: &[Id]) -> State {
        let mut to = *state;
        to.0[member] = after;
        for other in (0..self.members).filter(|other| *other != member) {
            to.set_link(other, member, links[other]);
            to.set_link(member, other, self.world.extend(state.link(member, other), output));
        }
        to
    }

    /// Checks the conditions of every state: one decision, one order, and a member that has ended
    /// has everything that any member delivered.
    fn check(&mut self, state: &State) -> Option<String> {
        let mut actors = [0; MEMBERS];
        actors[..self.members].copy_from_slice(&state.0[..self.members]);
        if !self.compared.insert(actors) {
            return None;
        }
        let faces: Vec<_> = actors[..self.members]
            .iter()
            .map(|actor| self.world.actor_of(*actor))
            .map(|actor| (actor.standing, actor.delivered, actor.decision))
            .collect();
        if let Err([one, other]) = self.check_decisions(&actors[..self.members]) {
            let [one, other] = [one, other].map(|id| self.world.decision(id));
            return Some(format!("two decisions: {one:?} and {other:?}"));
        }
        let dead =
            (0..).zip(&faces).filter(|(_, face)| face.0 == Standing::Dead).fold(0, |dead, (rank, _)| dead | 1 << rank);
        let mut decided = faces.iter().filter_map(|(_, _, decision)| *decision);
        if let Some(decision) = decided.find(|decision| !self.world.may_decide(*decision, dead)) {
            return Some(format!("too few consent to {:?}", self.world.decision(decision)));
        }
        if self.world.scope.suspicions == 0 {
            let running =
                actors.iter().take(self.members).filter_map(|actor| self.world.actor_of(*actor).running.as_ref());
            for engine in running.map(|running| &running.engine) {
                let lives = |rank: &Rank| matches!(faces[rank.index()].0, Standing::Running | Standing::Ended);
                if let Some(rank) = engine.view().ranks().find(|rank| engine.suspects(*rank) && lives(rank)) {
                    return Some(format!("member {} suspects {rank} for nothing", engine.me()));
                }
            }
        }
        let lists: Vec<&[Message]> = faces.iter().map(|(_, list, _)| &self.world.lists.get(*list)[..]).collect();
        for ((standing, _, decision), list) in faces.iter().zip(&lists) {
            for ((.., others), other) in faces.iter().zip(&lists) {
                let agree = match standing {
                    // Members of the two sides may deliver different messages when they end the
                    // view.
                    _ if self.world.differ(*decision, *others) => true,
                    // Nothing is added to its list any more.
                    Standing::Ended => list.starts_with(other),
                    _ => list.starts_with(other) || other.starts_with(list),
                };
                if !agree {
                    return Some(format!("two orders: {lists:?}"));
                }
            }
        }
        None
    }

    /// Checks INV-LATEST, where members share memory: no read barrier passes at a member that lacks a message
    /// of another one, or while another one has ended the view and may deliver more in the next.
    fn check_read_barriers(&self, state: &State) -> Option<String> {
        if self.world.scope.memory != Memory::Shared {
            return None;
        }
        let actor = |rank: usize| self.world.actor_of(state.0[rank]);
        let delivered = |rank: usize| self.world.lists.get(actor(rank).delivered).len();
        for me in 0..self.members {
            let is_ahead = |rank| delivered(rank) > delivered(me) || actor(rank).standing == Standing::Ended;
            let (Some(running), true) = (&actor(me).running, (0..self.members).any(is_ahead)) else { continue };
            let row = |rank: usize| match &actor(rank).running {
                Some(running) => Some(self.world.row(running.row)),
                None => self.world.newest(state.link(rank, me)),
            };
            // Where the connection to a dead member is broken, its row is not known here.
            let Some(rows) = (0..self.members).map(row).collect::<Option<Vec<_>>>() else { continue };
            let load = |member: Rank, at| word(&rows[member.index()], at);
            let barrier = running.engine.read_barrier(ALL, self.members);
            if barrier.is_some_and(|barrier| barrier.is_passed(load, load)) {
                return Some(format!("the read barrier of member {me} passes, and others have delivered more"));
            }
        }
        None
    }

    /// Checks that only one decision exists. Members that were given up may have made another one,
    /// if
    ///
    /// - the decision of the other members is a recovery, which begins an era, so it is newer, and
    /// - none of the other members had accepted the first decision before it was decided. So they
    ///   could not know of it, whether the members that decided it have died, or live and are
    ///   unreachable. Or the recovery has adopted its trims, and its members that are left.
    ///
    /// Otherwise returns two decisions that differ.
    fn check_decisions(&self, actors: &[Id]) -> Result<(), [Id; 2]> {
        let scope = &self.world.scope;
        let is_lost = |rank: usize| scope.recoveries > 0 && scope.is_lost(rank);
        let decided = |lost: bool| {
            let of = actors.iter().enumerate().filter(move |(rank, _)| is_lost(*rank) == lost);
            of.filter_map(|(_, actor)| self.world.actor_of(*actor).decision)
        };
        let Some(one) = decided(false).chain(decided(true)).next() else { return Ok(()) };
        if let Some(other) = decided(false).find(|other| *other != one) {
            return Err([one, other]);
        }
        let Some(other) = decided(true).find(|other| *other != one) else { return Ok(()) };
        if let Some(third) = decided(true).find(|third| *third != one && *third != other) {
            return Err([other, third]);
        }
        let is_by = |rank: usize| {
            let actor = |actor: &Id| self.world.actor_of(*actor);
            actors.iter().map(actor).any(|it| it.decision == Some(other) && it.counted >> rank & 1 == 1)
        };
        let has_helped = (0..self.members).any(|rank| !is_lost(rank) && is_by(rank));
        let is_excused = decided(false).next().is_some()
            && self.world.is_recovery(one)
            && !self.world.is_recovery(other)
            && (!has_helped || self.world.is_adopted(one, other));
        if is_excused { Ok(()) } else { Err([one, other]) }
    }

    fn note_recovery(&mut self, state: &State) {
        if self.world.scope.recoveries == 0 {
            return;
        }
        let (mut recovered, mut split) = (false, false);
        for decision in state.0[..self.members].iter().filter_map(|actor| self.world.actor_of(*actor).decision) {
            match self.world.is_recovery(decision) {
                true => recovered = true,
                false => split = true,
            }
        }
        self.recovered += u64::from(recovered);
        self.split += u64::from(recovered && split);
    }

    /// Checks the conditions of states without further steps: no member waits for an event that
    /// will not happen.
    fn check_rest(&mut self, state: &State) -> Option<String> {
        self.ends += 1;
        let actors: Vec<_> = state.0[..self.members].iter().map(|id| self.world.actor_of(*id)).collect();
        let is_calm = actors.iter().all(|actor| actor.running.as_ref().is_some_and(|it| !it.engine.is_changing()));
        let all: usize = self.world.scope.messages.iter().map(|count| usize::from(*count)).sum();
        if is_calm {
            let missed = actors.iter().position(|actor| self.world.lists.get(actor.delivered).len() != all);
            return missed.map(|member| format!("member {member} misses messages, and nothing moves any more"));
        }
        let wants_time =
            actors.iter().any(|actor| actor.running.as_ref().is_some_and(|running| running.wake_at.is_some()));
        let mut goes_on = false;
        let mut blocked = false;
        for (member, actor) in actors.iter().enumerate() {
            goes_on |= actor.standing == Standing::Ended;
            let Some(running) = &actor.running else { continue };
            let engine = &running.engine;
            blocked = true;
            let has_quorum = self.world.has_quorum(state.0[member]);
            // A member that has no waits left waits for its turn.
            let is_out_of_time = state.0[WAITS] == u32::from(self.world.scope.waits) && wants_time;
            if has_quorum && !is_out_of_time {
                return Some(format!("member {member} waits for ever, although it has nothing to wait for"));
            }
            let is_overdue = running.now.0 > OVERDUE_NS;
            if engine.is_blocked() == has_quorum && !is_overdue || !engine.is_blocked() && !has_quorum {
                return Some(format!("member {member} is wrong about whether it is blocked"));
            }
        }
        self.blocked += u64::from(blocked);
        let nobody = !goes_on && !blocked && actors.iter().any(|actor| actor.standing != Standing::Dead);
        self.nobody += u64::from(nobody);
        if nobody && self.world.scope.crashes == 0 {
            return Some("no member is left, although none crashed".to_owned());
        }
        None
    }

    /// Describes the path to a state in words.
    fn tell(&mut self, number: u32) -> String {
        let mut way = Vec::new();
        let mut at = number;
        while at != 0 {
            let (before, nth) = self.ways[at as usize];
            way.push(nth);
            at = before;
        }
        let mut text = String::new();
        let (mut state, mut steps) = (self.first, Vec::new());
        for nth in way.into_iter().rev() {
            self.steps(&state, &mut steps);
            let step = steps.swap_remove(nth as usize);
            self.tell_step(&state, &step, &mut text);
            state = step.to;
        }
        for member in 0..self.members {
            let actor = self.world.actor_of(state.0[member]);
            let list = self.world.lists.get(actor.delivered);
            let _ = writeln!(text, "  in the end member {member} is {:?} and has delivered {list:?}", actor.standing);
        }
        text
    }

    fn tell_step(&self, state: &State, step: &Step, text: &mut String) {
        let member = step.member;
        let _ = write!(text, "  member {member}");
        let (choices, nth) = &step.choice;
        let choice = &choices[*nth];
        for (from, take) in choice.takes.iter().enumerate().filter(|(_, take)| **take > 0) {
            let _ = write!(text, ", with {take} writes of {from}");
        }
        if let Some(Midway { rank, before, loads }) = choice.midway {
            let _ = write!(text, ", of which those behind {before} of {rank} land behind {loads} loads of its ballots");
        }
        let inputs = &choice.inputs;
        let news = [
            ("told of the death of", &inputs.died),
            ("told of the death of, and not of all that it wrote,", &inputs.gone),
            ("cut off from", &inputs.lost),
            ("suspecting", &inputs.suspected),
            ("trusting again", &inputs.trusted),
        ];
        for (what, ranks) in news {
            if !ranks.is_empty() {
                let _ = write!(text, ", {what} {ranks:?}");
            }
        }
        if !inputs.given_up.is_empty() {
            let _ = writeln!(text, ", is told that {:?} are lost", inputs.given_up);
            return;
        }
        if inputs.late {
            let _ = write!(text, ", when its time has come");
        }
        if inputs.leaves {
            let _ = write!(text, ", leaving");
        }
        if inputs.commits > 0 {
            let _ = write!(text, ", with {} messages more", inputs.commits);
        }
        let _ = write!(text, ", polls:");
        let events = self.world.outputs.get(choice.output);
        let _ = write!(text, " {} writes", events.iter().filter(|event| matches!(event, Event::Shown(_))).count());
        for event in events.iter() {
            match event {
                Event::Delivered(message) => drop(write!(text, ", delivers {message:?}")),
                Event::Decided => drop(write!(text, ", decides")),
                Event::Shown(_) => {}
            }
        }
        let engine = |actor: Id| self.world.actor_of(actor).running.as_ref().map(|running| &running.engine);
        if let (Some(before), Some(after)) = (engine(state.0[member]), engine(choice.after)) {
            if after.is_changing() && !before.is_changing() {
                let _ = write!(text, ", wedges");
            }
            if after.ballot() != before.ballot() {
                let _ = write!(text, ", promises {:?}", after.ballot());
            }
        }
        if self.world.actor_of(choice.after).standing != Standing::Running {
            let _ = write!(text, ", is {:?}", self.world.actor_of(choice.after).standing);
        }
        if let Some(behind) = step.dies_behind {
            let _ = write!(text, "; dies behind event {behind}");
        }
        let _ = writeln!(text);
    }
}

impl Report {
    pub(crate) fn line(&self) -> String {
        let recovered = match self.recovered {
            0 => String::new(),
            states => format!("{states} states with a recovery ({} and another decision), ", self.split),
        };
        format!(
            "{} states, {} transitions, {} states of rest ({} with somebody blocked, {} with nobody left), {recovered}\
             {} decisions, {:.1} s; {}",
            self.states,
            self.transitions,
            self.ends,
            self.blocked,
            self.nobody,
            self.decisions,
            self.seconds,
            self.detail
        )
    }
}

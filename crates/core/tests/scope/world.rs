//! The steps that each member can take next, and their results: computed once on the real core,
//! then looked up.
//!
//! A poll depends only on the member's own state and the rows as it sees them. So it is made once
//! for all states of the group that agree in these. Three kinds of steps are left out, because
//! another step does the same:
//!
//! - A write lands when its reader polls, not before: no other member can observe when it landed.
//! - A reader takes no writes that make no difference to its poll. A reader that has not taken them
//!   can take them with the next poll. All other members can do the same in both states.
//! - A poll that takes nothing and changes nothing is no step. A write that changes nothing is none.
use crate::intern::{Id, Interner, Memo};
use crate::member::{Event, Inputs, Landing, Memory, Message, Row, Running, Write, word};
use spindle_core::ids::Time;
use spindle_core::wire::layout::membership;
use spindle_core::*;
use std::fmt;
use std::rc::Rc;

/// How much is tried.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) members: usize,
    /// How many messages each sender commits, by rank; a member without a number is no sender.
    pub(crate) messages: Vec<u8>,
    /// Whether all messages are committed before the first poll, and not at any time.
    pub(crate) early: bool,
    pub(crate) crashes: u32,
    pub(crate) proofs: Proofs,
    /// Suspicions of members that live.
    pub(crate) suspicions: u8,
    /// Whether suspicions of members that live may be taken back.
    pub(crate) revocable: bool,
    /// How often, in all, a member waits until the time at which it wanted to be polled.
    pub(crate) waits: u8,
    /// Whether the member of the highest rank may leave: the view ends then without a suspicion.
    pub(crate) leaves: bool,
    /// How often, in all, an operator gives up the members that are lost.
    pub(crate) recoveries: u8,
    /// How many members are lost, as the operator says: those of the highest ranks. If there are any, a suspicion of a member that
    /// lives is one of a whole side: of all that are lost, or, by one of these, of all others.
    pub(crate) lost: usize,
    pub(crate) memory: Memory,
    /// Whether writes of one peer, an acceptance among them, may land between any two loads of its ballots in one poll.
    pub(crate) landings: bool,
    /// Whether members wedge when they hear of a ballot, and not when they hear that the view is to end.
    pub(crate) epochs: bool,
}

/// How a death becomes known to the survivors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Proofs {
    /// It is proven, and all that the dead one wrote is there.
    Final,
    /// It is proven, and the tail of what the dead one wrote is lost.
    Torn,
    /// The connection breaks, and the tail is lost.
    Missing,
    /// It is missing for those that are lost, and there is one, with a final row, for all others.
    MissingForLost,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Standing {
    Running,
    Ended,
    Evicted,
    Dead,
}

pub(crate) struct Actor {
    pub(crate) standing: Standing,
    /// As long as it runs.
    pub(crate) running: Option<Running>,
    pub(crate) delivered: Id,
    /// The members whose ends it has heard of, and those of them whose deaths are proven, with
    /// final rows: one bit a rank.
    told: u8,
    proven: u8,
    pub(crate) decision: Option<Id>,
    /// The members whose acceptances it counted when it decided, in a scope with recoveries: one
    /// bit a rank. No bit is set if it learned the decision from another member.
    pub(crate) counted: u8,
}

/// Two actors with the same are the same.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ActorKey {
    me: usize,
    standing: Standing,
    engine: [u64; 2],
    row: Id,
    shown: Id,
    sent: u8,
    delivered: Id,
    told: u8,
    proven: u8,
    times: [Option<u64>; 2],
    decision: Option<Id>,
    counted: u8,
}

/// Writes that land in the middle of a poll.
#[derive(Clone, Copy)]
pub(crate) struct Midway {
    /// The peer that wrote them.
    pub(crate) rank: usize,
    /// How many of those that the poll takes have landed before.
    pub(crate) before: usize,
    /// Behind how many loads of its ballots the others land.
    pub(crate) loads: u32,
}

/// One step of one member.
pub(crate) struct Choice {
    pub(crate) inputs: Inputs,
    /// The members whose ends it hears of: one bit a rank.
    pub(crate) news: u32,
    /// By rank, how many writes it takes.
    pub(crate) takes: Vec<usize>,
    pub(crate) midway: Option<Midway>,
    /// By rank, the links to it behind that.
    pub(crate) links: Vec<Id>,
    pub(crate) after: Id,
    pub(crate) output: Id,
    /// The same if it dies in the middle of its poll, behind the first, the second and so on of its events.
    pub(crate) deaths: Vec<(Id, Id)>,
}

/// Members at the most.
pub(crate) const MEMBERS: usize = 5;

/// A link on which nothing will be read any more.
pub(crate) const CUT: Id = 0;

/// Loads of one row's ballots in one poll behind which writes may land: the promise, the acceptance, and the acceptance again before its
/// value is read, and behind that.
const LOADS: u32 = 4;

pub(crate) struct World {
    pub(crate) scope: Scope,
    rows: Interner<Row>,
    writes: Interner<Write>,
    pub(crate) outputs: Interner<Vec<Event>>,
    pub(crate) lists: Interner<Vec<Message>>,
    decisions: Interner<(spindle_core::View, Trims)>,
    /// From one member to another: the row as the reader has it, and what it will be after each write on the way.
    links: Interner<Vec<Id>>,
    keys: Interner<ActorKey>,
    actors: Vec<Rc<Actor>>,
    landed: Memo<(Id, Id), Id>,
    extended: Memo<(Id, Id), Id>,
    deaths: Memo<Id, Id>,
    polls: Memo<[Id; 4 + MEMBERS], (Id, Id)>,
    choices: Memo<[Id; 2 + MEMBERS], Rc<Vec<Choice>>>,
    pub(crate) polled: u64,
    /// The first error that was found.
    pub(crate) wrong: Option<String>,
}

impl World {
    /// The world, and the links and the actors of its first state.
    pub(crate) fn new(scope: Scope) -> (World, Id, Vec<Id>) {
        let members: Vec<Rank> = (0..scope.members as u32).map(Rank).collect();
        let subgroup = SubgroupSpec {
            member_rule: Rule::Everyone,
            sender_rule: Rule::Everyone,
            name: "s".to_owned(),
            senders: members[..scope.messages.len()].to_vec(),
            order: Order::Total,
            window: scope.messages.iter().copied().max().unwrap_or(0).max(1).into(),
            message_bytes_max: 2,
            leftover_bytes_max: 0,
            durability: Durability::InMemory,
            clock: 0,
            epoch: None,
            members,
        };
        let members = (0..scope.members as u64).map(MemberId).collect();
        let view = spindle_core::View { id: ViewId(1), members, nonvoters: vec![], subgroups: vec![subgroup].into() };
        let mut world = World {
            scope,
            rows: Interner::new(),
            writes: Interner::new(),
            outputs: Interner::new(),
            lists: Interner::new(),
            decisions: Interner::new(),
            links: Interner::new(),
            keys: Interner::new(),
            actors: Vec::new(),
            landed: Memo::default(),
            extended: Memo::default(),
            deaths: Memo::default(),
            polls: Memo::default(),
            choices: Memo::default(),
            polled: 0,
            wrong: None,
        };
        assert_eq!(world.links.id(Vec::new()), CUT);
        assert_eq!(world.outputs.id(Vec::new()), 0);
        let delivered = world.lists.id(Vec::new());
        let ablation = Ablation { epochs: world.scope.epochs, ..Ablation::default() };
        let engine = |rank| Engine::new(view.clone(), rank, ablation).unwrap();
        let bytes = engine(Rank(0)).layout().rows().iter().map(|row| row.size).max().unwrap();
        let row = world.rows.id(vec![0; bytes as usize].into());
        let link = world.links.id(vec![row]);
        let actors = view
            .ranks()
            .map(|rank| {
                let engine = engine(rank).fork();
                let running = Running { engine, row, shown: row, sent: 0, now: Time(0), wake_at: None };
                world.actor(
                    rank.index(),
                    Actor {
                        standing: Standing::Running,
                        running: Some(running),
                        delivered,
                        told: 0,
                        proven: 0,
                        decision: None,
                        counted: 0,
                    },
                )
            })
            .collect();
        (world, link, actors)
    }

    pub(crate) fn row(&self, id: Id) -> Rc<Row> {
        Rc::clone(self.rows.get(id))
    }

    /// The row that a link leads to, when all writes on their way have landed.
    pub(crate) fn newest(&self, link: Id) -> Option<Rc<Row>> {
        self.links.get(link).last().map(|row| self.row(*row))
    }

    pub(crate) fn actor_of(&self, id: Id) -> &Rc<Actor> {
        &self.actors[id as usize]
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "{} polls of {} states of members, {} rows, {} links",
            self.polled,
            self.actors.len(),
            self.rows.len(),
            self.links.len()
        )
    }

    /// How many decisions were made, by content.
    pub(crate) fn decided(&self) -> usize {
        self.decisions.len()
    }

    pub(crate) fn decision(&self, id: Id) -> &(spindle_core::View, Trims) {
        self.decisions.get(id)
    }

    fn actor(&mut self, me: usize, actor: Actor) -> Id {
        let running = actor.running.as_ref();
        let key = ActorKey {
            me,
            standing: actor.standing,
            engine: running.map_or([0; 2], Running::print),
            row: running.map_or(0, |running| running.row),
            shown: running.map_or(0, |running| running.shown),
            sent: running.map_or(0, |running| running.sent),
            delivered: actor.delivered,
            told: actor.told,
            proven: actor.proven,
            times: running.map_or([None; 2], |running| [Some(running.now.0), running.wake_at.map(|at| at.0)]),
            decision: actor.decision,
            counted: actor.counted,
        };
        let id = self.keys.id(key);
        if id as usize == self.actors.len() {
            self.actors.push(Rc::new(actor));
        }
        id
    }

    /// Returns the steps that `me` can take.
    ///
    /// `links` are the links to it, by rank. `dead` are the members that have died: one bit a rank.
    pub(crate) fn choices(&mut self, me: usize, actor: Id, links: &[Id], dead: u32, may: Chances) -> Rc<Vec<Choice>> {
        let Chances { suspect, wait, recover } = may;
        let mask = u32::from(suspect) << 31 | u32::from(wait) << 30 | u32::from(recover) << 29 | dead;
        let mut key = [CUT; 2 + MEMBERS];
        key[..2].copy_from_slice(&[actor, mask]);
        key[2..2 + links.len()].copy_from_slice(links);
        if let Some(known) = self.choices.get(&key) {
            return Rc::clone(known);
        }
        let mut choices = Vec::new();
        for inputs in self.inputs(me, actor, dead, may) {
            self.choose(me, actor, links, dead, inputs, &mut choices);
        }
        let choices = Rc::new(choices);
        self.choices.insert(key, Rc::clone(&choices));
        choices
    }

    /// All that may happen to it before its poll.
    fn inputs(&self, me: usize, actor: Id, dead: u32, may: Chances) -> Vec<Inputs> {
        let actor = self.actor_of(actor);
        let running = actor.running.as_ref().expect("who has stopped has no choice");
        let left = self.scope.messages.get(me).map_or(0, |count| count - running.sent);
        let untold = dead & !u32::from(actor.told);
        let untold: Vec<Rank> =
            (0..self.scope.members as u32).filter(|rank| untold >> rank & 1 == 1).map(Rank).collect();
        let mut all = Vec::new();
        // Messages that are committed early are all committed at the first poll.
        let least = if self.scope.early { left } else { 0 };
        for commits in least..=left {
            for mask in 0..1u32 << untold.len() {
                let told = (0..).zip(&untold).filter(|(i, _)| mask >> i & 1 == 1).map(|(_, rank)| *rank);
                let told: Vec<Rank> = told.collect();
                let (mut died, mut gone, mut lost) = <(Vec<Rank>, Vec<Rank>, Vec<Rank>)>::default();
                for rank in told {
                    let news = match self.scope.proofs {
                        Proofs::MissingForLost if self.scope.is_lost(rank.index()) => &mut lost,
                        Proofs::Final | Proofs::MissingForLost => &mut died,
                        Proofs::Torn => &mut gone,
                        Proofs::Missing => &mut lost,
                    };
                    news.push(rank);
                }
                all.push(Inputs { commits, died, gone, lost, ..Inputs::default() });
            }
            for ranks in self.suspects_of(me, dead) {
                let suspects = |rank: &Rank| running.engine.suspects(*rank);
                if !ranks.iter().all(suspects) && may.suspect {
                    all.push(Inputs { commits, suspected: ranks, ..Inputs::default() });
                } else if ranks.iter().any(suspects) && self.scope.revocable {
                    all.push(Inputs { commits, trusted: ranks, ..Inputs::default() });
                }
            }
            if may.wait && running.wake_at.is_some() {
                all.push(Inputs { commits, late: true, ..Inputs::default() });
            }
            if self.scope.leaves && me + 1 == self.scope.members && !running.engine.is_changing() {
                all.push(Inputs { commits, leaves: true, ..Inputs::default() });
            }
        }
        if may.recover && !self.scope.is_lost(me) && !self.has_given_up(&running.engine) {
            all.push(Inputs { given_up: self.scope.lost().collect(), ..Inputs::default() });
        }
        all
    }

    /// Returns the sets of members that a live member may suspect, or hear again, at once.
    fn suspects_of(&self, me: usize, dead: u32) -> Vec<Vec<Rank>> {
        let alive = (0..self.scope.members as u32).map(Rank);
        let alive = alive.filter(|rank| rank.index() != me && dead >> rank.0 & 1 == 0);
        if self.scope.lost == 0 {
            return alive.map(|rank| vec![rank]).collect();
        }
        let others: Vec<Rank> =
            alive.filter(|rank| self.scope.is_lost(rank.index()) != self.scope.is_lost(me)).collect();
        if others.is_empty() { Vec::new() } else { vec![others] }
    }

    /// Whether it has given up those that are lost.
    pub(crate) fn has_given_up(&self, engine: &Engine) -> bool {
        self.scope.lost > 0 && self.scope.lost().all(|rank| engine.is_given_up(rank))
    }

    fn choose(&mut self, me: usize, actor: Id, links: &[Id], dead: u32, inputs: Inputs, choices: &mut Vec<Choice>) {
        let ranks = || (0..links.len() as u32).map(Rank);
        let most: Vec<usize> = links.iter().map(|link| self.links.get(*link).len().saturating_sub(1)).collect();
        // A death is proven when nothing of it is on the way any more.
        let least: Vec<usize> =
            ranks().map(|rank| if inputs.died.contains(&rank) { most[rank.index()] } else { 0 }).collect();
        // Without proof a death is noticed by a connection that breaks: what is on the way is lost with it.
        let breaks: Vec<bool> =
            ranks().map(|rank| inputs.lost.contains(&rank) || inputs.gone.contains(&rank)).collect();
        // A refusal to give members up changes nothing.
        let idle = (inputs == Inputs::default() || !inputs.given_up.is_empty()).then_some((actor, 0));
        let news = inputs.died.iter().chain(&inputs.gone).chain(&inputs.lost).fold(0, |news, rank| news | 1 << rank.0);
        let may_die = dead.count_ones() < self.scope.crashes;
        let mut found: Vec<(Vec<usize>, (Id, Id))> = Vec::new();
        for (takes, midway) in self.takes(links, &least, &most) {
            let mut sources = [0; MEMBERS];
            let sources = &mut sources[..links.len()];
            let row = |rank: usize, take: usize| self.links.get(links[rank]).get(take).copied().unwrap_or(0);
            for (rank, source) in sources.iter_mut().enumerate() {
                *source = row(rank, takes[rank]);
            }
            let lands = midway.map(|Midway { rank, before, loads }| {
                let after = std::mem::replace(&mut sources[rank], row(rank, before));
                (rank, loads, after)
            });
            let result = self.poll(me, actor, sources, lands, &inputs);
            let as_smaller = |(other, same): &(Vec<usize>, _)| {
                *same == result && other.iter().zip(&takes).all(|(other, mine)| other <= mine)
            };
            if Some(result) != idle && !found.iter().any(as_smaller) {
                found.push((takes.clone(), result));
                let (after, output) = result;
                let stopped = self.actor_of(after).running.is_none();
                let behind = |rank: usize| {
                    let left = self.links.get(links[rank]).get(takes[rank]..).filter(|left| !left.is_empty())?;
                    Some(if breaks[rank] { left[..1].to_vec() } else { left.to_vec() })
                };
                let left: Vec<Option<Vec<Id>>> =
                    (0..links.len()).map(|rank| behind(rank).filter(|_| !stopped)).collect();
                let links = left.into_iter().map(|left| left.map_or(CUT, |left| self.links.id(left))).collect();
                let events = if may_die { self.outputs.get(output).len() } else { 0 };
                let deaths = (1..events).map(|count| self.dies(me, actor, after, output, count)).collect();
                choices.push(Choice { inputs: inputs.clone(), news, takes, midway, links, after, output, deaths });
            }
        }
    }

    /// How many writes of each peer a poll may take, smaller ones first; and then with some of them landing in the middle of it, an
    /// acceptance among them.
    fn takes(&self, links: &[Id], least: &[usize], most: &[usize]) -> Vec<(Vec<usize>, Option<Midway>)> {
        let mut all = vec![(least.to_vec(), None)];
        let mut takes = least.to_vec();
        // Like an odometer.
        while let Some(wheel) = (0..takes.len()).find(|rank| takes[*rank] < most[*rank]) {
            takes[wheel] += 1;
            takes[..wheel].copy_from_slice(&least[..wheel]);
            all.push((takes.clone(), None));
        }
        let whole = if self.scope.landings { all.len() } else { 0 };
        for nth in 0..whole {
            let takes = all[nth].0.clone();
            for rank in 0..takes.len() {
                let accepted = |take: usize| self.accepted(links[rank], take);
                let befores = (least[rank]..takes[rank]).filter(|before| accepted(*before) != accepted(takes[rank]));
                let midway = |before| (1..=LOADS).map(move |loads| Midway { rank, before, loads });
                all.extend(befores.flat_map(midway).map(|midway| (takes.clone(), Some(midway))));
            }
        }
        all
    }

    /// The acceptance that the row at the end of a link shows when so many of the writes on it have landed.
    fn accepted(&self, link: Id, take: usize) -> u64 {
        word(self.rows.get(self.links.get(link)[take]), membership::ACCEPTED)
    }

    /// Returns the member's state after a poll, and the events that others may notice.
    fn poll(
        &mut self,
        me: usize,
        actor: Id,
        sources: &[Id],
        lands: Option<(usize, u32, Id)>,
        inputs: &Inputs,
    ) -> (Id, Id) {
        let bits = |ranks: &[Rank]| ranks.iter().fold(0u32, |bits, rank| bits | 1 << rank.0);
        let (died, lost, suspected) = (bits(&inputs.died), bits(&inputs.lost), bits(&inputs.suspected));
        let (gone, trusted) = (bits(&inputs.gone), bits(&inputs.trusted));
        let sets = [gone, died, lost, suspected, trusted].into_iter().fold(0, |sets, set| sets << MEMBERS | set);
        let gives_up = !inputs.given_up.is_empty();
        let flags = u32::from(inputs.leaves) << 31 | u32::from(inputs.late) << 30 | u32::from(gives_up) << 29;
        let happens = flags | u32::from(inputs.commits) << (5 * MEMBERS) | sets;
        let mut key = [0; 4 + MEMBERS];
        key[..2].copy_from_slice(&[actor, happens]);
        key[2..2 + sources.len()].copy_from_slice(sources);
        if let Some((rank, loads, row)) = lands {
            key[2 + MEMBERS..].copy_from_slice(&[1 + rank as Id + loads * MEMBERS as u32, row]);
        }
        if let Some(known) = self.polls.get(&key) {
            return *known;
        }
        self.polled += 1;
        let before = Rc::clone(self.actor_of(actor));
        let running = before.running.as_ref().expect("who has stopped polls no more");
        let own = Rc::clone(self.rows.get(running.row));
        let others: Vec<Rc<Row>> = sources.iter().map(|row| Rc::clone(self.rows.get(*row))).collect();
        let landing = lands.map(|(rank, loads, row)| {
            let row = Rc::clone(self.rows.get(row));
            Landing { rank: Rank(rank as u32), loads, row }
        });
        let landed = landing.as_ref().map(|landing| (landing.rank, Rc::clone(&landing.row)));
        let memory = self.scope.memory;
        let polled = match gives_up {
            true => running.give_up(memory, &own, &others, &inputs.given_up),
            false => Some(running.poll(memory, &own, &others, landing, inputs)),
        };
        let Some(polled) = polled else {
            self.polls.insert(key, (actor, 0));
            return (actor, 0);
        };
        let engine = &polled.engine;

        let mut delivered = self.lists.get(before.delivered).to_vec();
        delivered.extend(polled.events.iter().filter_map(|event| match event {
            Event::Delivered(message) => Some(*message),
            _ => None,
        }));
        self.check_list(me, &delivered);
        let (told, proven) = (before.told | (died | gone | lost) as u8, before.proven | died as u8);
        let knows = |row: &Row| word(row, membership::DECIDED) != 0;
        let mut seen: Vec<(Rank, &Row)> = (0..).map(Rank).zip(others.iter().map(|row| &**row)).collect();
        seen.extend(landed.as_ref().map(|(rank, row)| (*rank, &**row)));
        seen.retain(|(rank, _)| *rank != engine.me());
        // Members that are given up report nothing.
        let is_heard = |rank: &Rank| !engine.is_given_up(*rank);
        let is_first = before.decision.is_none() && !seen.iter().any(|(rank, row)| is_heard(rank) && knows(row));
        let mut counted = before.counted;
        if let Some(decision) = engine.decision().filter(|_| is_first) {
            let ballot = decision.ballot;
            seen.push((engine.me(), &polled.row));
            let with = self.check_quorum(engine, ballot, &seen, proven);
            counted = if self.scope.recoveries > 0 { with } else { 0 };
        }
        let decision = engine.decision().map(|decision| (decision.next.clone(), decision.trims.clone()));
        let decision = decision.map(|decision| self.decisions.id(decision));
        let standing = match engine.state() {
            State::Running => Standing::Running,
            State::Ended if engine.has_rest() => Standing::Running,
            State::Ended => Standing::Ended,
            State::Evicted => Standing::Evicted,
            state => {
                self.fail(format!("member {me} is {state:?}"));
                Standing::Ended
            }
        };
        if !engine.faults().is_empty() {
            self.fail(format!("member {me} blames {:?}", engine.faults()));
        }
        let sent = running.sent + inputs.commits;
        let row = polled.row;
        let mut shown = running.shown;
        let mut events = polled.events;
        events.retain(|event| {
            let Event::Shown(write) = event else { return true };
            // A write that changes nothing is none.
            let (before, after) = (shown, self.land(shown, write.clone()));
            shown = after;
            before != after
        });
        let (now, wake_at) = (polled.now, polled.wake_at);
        let row_id = self.rows.id(row.clone());
        let running = Running { row: row_id, shown, engine: polled.engine.fork(), sent, now, wake_at };
        if standing == Standing::Ended {
            self.check_end(me, polled.engine, &running, &row, &delivered);
        }
        let delivered = self.lists.id(delivered);
        let runs = standing == Standing::Running;
        let after = match runs {
            true => Actor { standing, running: Some(running), delivered, told, proven, decision, counted },
            false => Actor { standing, running: None, delivered, told: 0, proven: 0, decision, counted },
        };
        let after = self.actor(me, after);
        let output = self.outputs.id(events);
        self.polls.insert(key, (after, output));
        (after, output)
    }

    /// A member that dies between two polls.
    pub(crate) fn dead(&mut self, me: usize, actor: Id) -> Id {
        if let Some(dead) = self.deaths.get(&actor) {
            return *dead;
        }
        let (dead, _) = self.dies(me, actor, actor, 0, 0);
        self.deaths.insert(actor, dead);
        dead
    }

    /// A member in the middle of its poll, dead, behind the first `count` of its events.
    fn dies(&mut self, me: usize, before: Id, after: Id, output: Id, count: usize) -> (Id, Id) {
        let events = self.outputs.get(output)[..count].to_vec();
        let cut = self.outputs.id(events.clone());
        let was = Rc::clone(self.actor_of(before));
        let mut delivered = self.lists.get(was.delivered).to_vec();
        let (mut decision, mut counted) = (was.decision, was.counted);
        for event in events {
            match event {
                Event::Shown(_) => {}
                Event::Delivered(message) => delivered.push(message),
                Event::Decided => {
                    let after = self.actor_of(after);
                    (decision, counted) = (after.decision, after.counted);
                }
            }
        }
        let delivered = self.lists.id(delivered);
        let dead = Actor { standing: Standing::Dead, running: None, delivered, told: 0, proven: 0, decision, counted };
        (self.actor(me, dead), cut)
    }

    /// A link when its writer has done that.
    pub(crate) fn extend(&mut self, link: Id, output: Id) -> Id {
        if link == CUT || output == 0 {
            return link;
        }
        if let Some(known) = self.extended.get(&(link, output)) {
            return *known;
        }
        let mut rows = self.links.get(link).to_vec();
        for event in self.outputs.get(output).to_vec() {
            let Event::Shown(write) = event else { continue };
            rows.push(self.land(rows[rows.len() - 1], write));
        }
        if self.scope.memory == Memory::Shared {
            rows.drain(..rows.len() - 1);
        }
        let id = self.links.id(rows);
        self.extended.insert((link, output), id);
        id
    }

    fn land(&mut self, row: Id, write: Write) -> Id {
        let write = self.writes.id(write);
        if let Some(known) = self.landed.get(&(row, write)) {
            return *known;
        }
        let mut bytes = self.rows.get(row).to_vec();
        let landing = self.writes.get(write);
        bytes[landing.at..landing.at + landing.bytes.len()].copy_from_slice(&landing.bytes);
        let id = self.rows.id(bytes.into());
        self.landed.insert((row, write), id);
        id
    }

    /// Returns whether the members that this one trusts, with the deaths that it knows of, are
    /// enough.
    ///
    /// The member runs, and knows everything that it can learn.
    pub(crate) fn has_quorum(&self, actor: Id) -> bool {
        let actor = self.actor_of(actor);
        let engine = &actor.running.as_ref().expect("it runs").engine;
        let (with, without): (Vec<Rank>, Vec<Rank>) = engine.view().ranks().partition(|rank| !engine.suspects(*rank));
        let is_proven = |rank: &Rank| actor.proven >> rank.0 & 1 == 1;
        if self.has_given_up(engine) {
            return without.iter().all(|rank| is_proven(rank) || engine.is_given_up(*rank));
        }
        let dead = without.iter().filter(|rank| is_proven(rank)).count();
        2 * with.len() + dead > self.scope.members
    }

    /// Whether enough members go on, or leave, to leave out the others where `dead` have died: one bit a rank.
    pub(crate) fn may_decide(&self, decision: Id, dead: u32) -> bool {
        let members = self.scope.members;
        let leaves = |rank: usize| self.scope.leaves && rank + 1 == members;
        let next = &self.decision(decision).0;
        let consents = |rank: usize| next.rank_of(MemberId(rank as u64)).is_some() || leaves(rank);
        let (with, without): (Vec<usize>, Vec<usize>) = (0..members).partition(|rank| consents(*rank));
        let is_dead = |rank: &usize| dead >> *rank & 1 == 1;
        if self.is_recovery(decision) {
            // It leaves out those that are lost, and no others that live.
            let is_lost = |rank: &usize| self.scope.is_lost(*rank);
            let stays = |rank: usize| next.rank_of(MemberId(rank as u64)).is_some();
            let none_lost = !(0..members).any(|rank| is_lost(&rank) && stays(rank));
            let is_made = none_lost && without.iter().all(|rank| is_lost(rank) || is_dead(rank));
            if is_made {
                return true;
            }
            // It is adopted: others proposed it before.
        }
        let dead = without.iter().filter(|rank| is_dead(rank)).count();
        2 * with.len() + dead > members
    }

    /// Whether the decision was made by those who had given up the others.
    pub(crate) fn is_recovery(&self, decision: Id) -> bool {
        self.decision(decision).0.id.era() > 0
    }

    /// Whether one of the decisions is a recovery that has adopted the other: it has the same trims, and of the members those that were not given up.
    /// If there are none of these, there is nothing to adopt: the trims are about what the lost deliver.
    pub(crate) fn is_adopted(&self, one: Id, other: Id) -> bool {
        let (one, other) = if self.is_recovery(one) { (one, other) } else { (other, one) };
        let [(recovered, trims), (old, others)] = [one, other].map(|id| self.decision(id));
        let is_left = |id: &&MemberId| !self.scope.is_lost(id.0 as usize);
        let left = || old.members.iter().filter(is_left);
        left().next().is_none() || (trims == others && recovered.members.iter().eq(left()))
    }

    /// Whether two members have made decisions of which none has adopted the other.
    pub(crate) fn differ(&self, one: Option<Id>, other: Option<Id>) -> bool {
        matches!((one, other), (Some(one), Some(other)) if one != other && !self.is_adopted(one, other))
    }

    fn fail(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// Each sender's messages come in order, without a gap and once.
    fn check_list(&mut self, me: usize, list: &[Message]) {
        for sender in 0..self.scope.members as u8 {
            let of = list.iter().filter(|(from, _)| *from == sender);
            if of.zip(0..).any(|((_, nth), count)| *nth != count) {
                return self.fail(format!("member {me} delivers {list:?}"));
            }
        }
    }

    /// Checks INV-QUORUM by the rows as the member that decides sees them. One of these rows may
    /// change meanwhile.
    ///
    /// More members accept the ballot than may know of something else. If the member has given
    /// others up, all members but these accept the ballot, and have given up the same members.
    ///
    /// Returns the members that accept the ballot: one bit a rank.
    fn check_quorum(&mut self, engine: &Engine, ballot: Ballot, seen: &[(Rank, &Row)], proven: u8) -> u8 {
        let rows = |rank: &Rank| {
            let rank = *rank;
            seen.iter().filter(move |(of, _)| *of == rank).map(|(_, row)| *row)
        };
        let read = |row: &Row, at| word(row, at) & !1;
        let all: Vec<Rank> = engine.view().ranks().filter(|rank| !engine.is_given_up(*rank)).collect();
        let is_recovery = all.len() < self.scope.members;
        let given_up = self.scope.lost().fold(0, |ranks, rank| ranks | 1 << rank.0);
        let at = membership::given_up(self.scope.members);
        let code = u64::from(ballot.round) << 32 | (u64::from(ballot.leader.0) + 1) << 1;
        let agrees = |row: &Row| !is_recovery || word(row, at) == given_up;
        let accepts = |rank: &Rank| rows(rank).any(|row| read(row, membership::ACCEPTED) == code && agrees(row));
        let (with, without): (Vec<Rank>, Vec<Rank>) = all.iter().partition(|rank| accepts(rank));
        let promises = |row: &Row| read(row, membership::PROMISED).max(read(row, membership::ACCEPTED));
        let is_final = |rank: &Rank| proven >> rank.0 & 1 == 1 || rows(rank).any(is_final);
        let dead = without.iter().filter(|rank| is_final(rank) && rows(rank).all(|row| promises(row) <= code)).count();
        let is_enough = if is_recovery { with.len() + dead >= all.len() } else { 2 * with.len() + dead > all.len() };
        if !is_enough {
            self.fail(format!("{} decides with {} of {}, {dead} dead", engine.me(), with.len(), all.len()));
        }
        with.iter().fold(0, |ranks, rank| ranks | 1 << rank.0)
    }

    /// Checks that each message of a member that ends the view is delivered or sent again, and not
    /// both.
    fn check_end(&mut self, me: usize, mut engine: Engine, running: &Running, row: &Row, delivered: &[Message]) {
        let mut mine: Vec<Message> =
            delivered.iter().copied().filter(|(sender, _)| usize::from(*sender) == me).collect();
        mine.extend(running.resends(row));
        let all: Vec<Message> = (0..running.sent).map(|nth| (me as u8, nth)).collect();
        if mine != all {
            self.fail(format!("of the messages of member {me} these are delivered or sent again: {mine:?}"));
        }
        let decision = engine.decision().cloned().expect("a view ends by a decision");
        let goes_on = decision.next.rank_of(MemberId(me as u64)).is_some();
        if !goes_on && word(row, membership::LEAVING) == 0 {
            self.fail(format!("member {me} ends as if it had wanted to leave, by {decision:?}"));
        }
        let next = engine.successor();
        if next.as_ref().map(Engine::view) != Some(&decision.next).filter(|_| goes_on) {
            self.fail(format!("member {me} goes on in {next:?} after {decision:?}"));
        }
    }
}

/// The events that may happen once more.
#[derive(Clone, Copy, Default)]
pub(crate) struct Chances {
    pub(crate) suspect: bool,
    pub(crate) wait: bool,
    pub(crate) recover: bool,
}

impl Scope {
    /// Whether the operator says that it is lost.
    pub(crate) fn is_lost(&self, rank: usize) -> bool {
        rank + self.lost >= self.members
    }

    fn lost(&self) -> impl Iterator<Item = Rank> + use<> {
        (self.members - self.lost..self.members).map(|rank| Rank(rank as u32))
    }
}

/// Whether its owner says in it that it will write no more.
fn is_final(row: &Row) -> bool {
    word(row, membership::LEFT) != 0 || word(row, membership::ABANDONED) != 0
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scope { members, messages, early, crashes, proofs, suspicions, revocable, waits, .. } = self;
        let when = if *early { "first" } else { "at any time" };
        write!(f, "{members} members, {messages:?} messages sent {when}, {crashes} crashes ({proofs:?}), ")?;
        let leaving = if self.leaves { "one may leave, " } else { "" };
        let back = if *revocable { " that may be taken back" } else { "" };
        write!(f, "{suspicions} false suspicions{back}, {waits} waits, {leaving}")?;
        if self.recoveries > 0 {
            write!(f, "{} recoveries without the last {}, ", self.recoveries, self.lost)?;
        }
        write!(f, "memory {:?}", self.memory)?;
        if self.landings {
            write!(f, ", read while writes land")?;
        }
        if self.epochs { write!(f, ", wedged by ballots") } else { Ok(()) }
    }
}

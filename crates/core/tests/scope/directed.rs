//! Schedules that are too long for the search: larger groups, and longer sequences of events.
use crate::member::{Event, Inputs, Landing, Memory, Row, Running, Write};
use crate::silent;
use crate::world::{Scope, World};
use spindle_core::ids::Time;
use spindle_core::wire::layout::membership;
use spindle_core::*;
use std::collections::VecDeque;
use std::rc::Rc;

/// A group whose members poll, and whose writes land, when the schedule says so.
struct Group {
    members: Vec<Running>,
    own: Vec<Row>,
    /// By reader and owner.
    seen: Vec<Vec<Rc<Row>>>,
    /// Writes in transit, by owner and reader.
    links: Vec<Vec<VecDeque<Write>>>,
}

fn suspecting(ranks: &[u32]) -> Inputs {
    Inputs { suspected: ranks.iter().copied().map(Rank).collect(), ..Inputs::default() }
}

fn late() -> Inputs {
    Inputs { late: true, ..Inputs::default() }
}

impl Group {
    fn new(members: usize) -> Group {
        let scope = Scope { members, ..silent(Memory::Posted) };
        let (world, _, actors) = World::new(scope);
        let running = |id: &u32| {
            let it = world.actor_of(*id).running.as_ref().unwrap();
            Running { engine: it.engine.fork(), ..*it }
        };
        let members: Vec<Running> = actors.iter().map(running).collect();
        let row = world.row(members[0].row);
        let own = members.iter().map(|_| (*row).clone()).collect();
        let seen = members.iter().map(|_| vec![Rc::clone(&row); members.len()]).collect();
        let links = members.iter().map(|_| vec![VecDeque::new(); members.len()]).collect();
        Group { members, own, seen, links }
    }

    /// The writes of a poll of `me`, which are in transit to all peers.
    fn poll_with(&mut self, me: usize, landing: Option<Landing>, inputs: Inputs) -> Vec<Write> {
        let running = &self.members[me];
        let polled = running.poll(Memory::Posted, &self.own[me], &self.seen[me], landing, &inputs);
        let engine = polled.engine.fork();
        self.members[me] = Running { engine, now: polled.now, wake_at: polled.wake_at, ..*running };
        self.own[me] = polled.row;
        let shown = |event| if let Event::Shown(write) = event { Some(write) } else { None };
        let writes: Vec<Write> = polled.events.into_iter().filter_map(shown).collect();
        self.links[me].iter_mut().for_each(|link| link.extend(writes.iter().cloned()));
        writes
    }

    /// Polls `me` with these inputs, and then until it does nothing more.
    fn run(&mut self, me: usize, inputs: Inputs) {
        self.poll_with(me, None, inputs);
        while self.members[me].engine.decision().is_none() && !self.poll_with(me, None, Inputs::default()).is_empty() {}
    }

    /// An operator gives up `lost` at `me`, which then polls until it does nothing more.
    fn give_up(&mut self, me: usize, lost: &[u32]) {
        let lost: Vec<Rank> = lost.iter().copied().map(Rank).collect();
        let running = &self.members[me];
        let word = running.give_up(Memory::Posted, &self.own[me], &self.seen[me], &lost);
        let engine = word.expect("nothing speaks against it").engine.fork();
        self.members[me] = Running { engine, ..*running };
        self.run(me, Inputs::default());
    }

    /// The first `count` writes of `owner` land at `reader`.
    fn land_some(&mut self, owner: usize, reader: usize, count: usize) {
        let mut row = (*self.seen[reader][owner]).clone();
        for write in self.links[owner][reader].drain(..count) {
            row[write.at..write.at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
        self.seen[reader][owner] = Rc::new(row);
    }

    /// All writes of `owner` land at these.
    fn land(&mut self, owner: usize, readers: &[usize]) {
        readers.iter().for_each(|reader| self.land_some(owner, *reader, self.links[owner][*reader].len()));
    }

    /// `leader` leads, `followers` promise, and it receives their promises.
    fn lead(&mut self, leader: usize, followers: &[usize], inputs: Inputs) {
        self.run(leader, inputs);
        self.land(leader, followers);
        for follower in followers {
            self.run(*follower, Inputs::default());
            self.land(*follower, &[leader]);
        }
    }

    /// `leader` proposes, `followers` accept, and it receives their acceptances and decides.
    fn propose(&mut self, leader: usize, followers: &[usize]) {
        self.run(leader, Inputs::default());
        self.land(leader, followers);
        for follower in followers {
            self.run(*follower, Inputs::default());
            self.land(*follower, &[leader]);
        }
        self.run(leader, Inputs::default());
    }

    fn next(&self, member: usize) -> Option<Vec<u64>> {
        let decision = self.members[member].engine.decision()?;
        Some(decision.next.members.iter().map(|id| id.0).collect())
    }
}

/// The members 0, 2 and 3 of five have decided, and only 0 knows. The leader 1 reads the row of 2
/// while the acceptance and then the promise of its own ballot land in it.
#[test]
pub(crate) fn an_acceptance_that_lands_while_its_row_is_read_binds() {
    let mut group = Group::new(5);
    group.lead(0, &[2, 3], suspecting(&[1, 4]));
    group.land(2, &[1]);
    group.propose(0, &[2, 3]);
    assert_eq!(group.next(0), Some(vec![0, 2, 3]));
    group.run(1, suspecting(&[0, 3]));
    group.run(1, late());
    group.land(1, &[2, 4]);
    for follower in [2, 4] {
        group.run(follower, Inputs::default());
    }
    group.land(4, &[1]);
    let before = Rc::clone(&group.seen[1][2]);
    group.land(2, &[1]);
    let row = std::mem::replace(&mut group.seen[1][2], before);
    group.poll_with(1, Some(Landing { rank: Rank(2), loads: 1, row: Rc::clone(&row) }), Inputs::default());
    group.seen[1][2] = row;
    group.propose(1, &[2, 4]);
    assert_eq!(group.next(1), group.next(0), "two decisions");
}

/// The members 0, 1 and 2 of five have decided, and only 0 knows. The leader 1 of a second ballot
/// dies while it writes the same value once more. The leader 3 of a third ballot, which reads 2 and
/// the final row of 1, finds the value that both accepted first.
#[test]
pub(crate) fn a_value_that_was_being_replaced_at_the_death_of_its_holder_binds() {
    let mut group = Group::new(5);
    group.lead(0, &[1, 2], suspecting(&[3, 4]));
    group.run(3, suspecting(&[0, 1]));
    group.run(3, late());
    group.land(3, &[4]);
    group.run(4, Inputs::default());
    group.propose(0, &[1, 2]);
    assert_eq!(group.next(0), Some(vec![0, 1, 2]));
    group.lead(1, &[3, 4], suspecting(&[0, 2]));
    let writes = group.poll_with(1, None, Inputs::default());
    let accepts = |write: &Write| write.at as u64 == membership::ACCEPTED;
    let lost = writes.len() - writes.iter().position(accepts).expect("the leader has a quorum");
    assert!(lost < writes.len(), "the value is written before");
    for survivor in [2, 3, 4] {
        let landed = group.links[1][survivor].len() - lost;
        group.links[1][survivor].truncate(landed);
    }
    group.land(1, &[3]);
    group.run(3, Inputs { died: vec![Rank(1)], ..Inputs::default() });
    group.lead(3, &[2, 4], late());
    group.propose(3, &[2, 4]);
    assert_eq!(group.next(3), group.next(0), "two decisions");
}

/// The members 0 and 1 of six give up 3, 4 and 5. Member 2 can read their rows again before it
/// learns of that, and decides with them.
#[test]
pub(crate) fn a_recovery_needs_all_that_are_not_given_up() {
    let mut group = Group::new(6);
    for member in 0..3 {
        group.run(member, suspecting(&[3, 4, 5]));
        group.land(member, &[0, 1, 2]);
    }
    group.give_up(0, &[3, 4, 5]);
    group.run(0, suspecting(&[2]));
    group.land(0, &[1]);
    group.run(1, Inputs::default());
    group.land(1, &[0]);
    group.propose(0, &[1]);
    let hears_again = Inputs { trusted: vec![Rank(3), Rank(4), Rank(5)], ..suspecting(&[0, 1]) };
    group.lead(2, &[3, 4, 5], hears_again);
    group.run(2, Inputs::default());
    group.run(2, late());
    group.propose(2, &[3, 4, 5]);
    assert_eq!(group.next(2), Some(vec![2, 3, 4, 5]));
    assert_eq!(group.next(0), None, "two decisions");
}

/// The members 0, 1 and 4 of five have decided, and only 4 knows. When 1, 2 and 3 have died, the
/// last two of which have promised a higher ballot, 0 gives up 4. The rows that it reads are too
/// few for that decision, but 4 may have made it.
#[test]
pub(crate) fn a_recovery_adopts_what_may_be_decided() {
    let mut group = Group::new(5);
    group.lead(0, &[1, 4], suspecting(&[2, 3]));
    group.run(0, Inputs::default());
    group.land(0, &[1, 4]);
    group.run(1, Inputs::default());
    group.land(1, &[0, 4]);
    group.run(4, Inputs::default());
    assert_eq!(group.next(4), Some(vec![0, 1, 4]));
    group.run(2, suspecting(&[0, 1]));
    group.land(2, &[0, 3]);
    group.run(3, Inputs::default());
    group.land(3, &[0]);
    group.run(0, Inputs { died: vec![Rank(1), Rank(2), Rank(3)], ..suspecting(&[4]) });
    assert_eq!(group.next(0), None);
    group.give_up(0, &[4]);
    group.run(0, late());
    assert_eq!((group.next(4), group.next(0)), (Some(vec![0, 1, 4]), Some(vec![0, 1])), "two decisions");
}

/// The members 0 to 3 of seven have decided a view with 4, which does not know, and the other three
/// have given them up. A control message informs 6 of that view. It ends, and its row has no effect
/// on 4, with which 5 has decided.
#[test]
fn a_decision_of_members_that_were_given_up_ends_one_that_is_told_and_no_other() {
    let mut group = Group::new(7);
    group.lead(0, &[1, 2, 3, 4], suspecting(&[5, 6]));
    group.propose(0, &[1, 2, 3]);
    assert_eq!(group.next(0), Some(vec![0, 1, 2, 3, 4]));
    let decided = group.members[0].engine.decided().expect("it is decided").to_vec();
    for member in 4..7 {
        group.run(member, suspecting(&[0, 1, 2, 3]));
        group.land(member, &[4, 5, 6].map(|other| if other == member { 0 } else { other }));
    }
    group.give_up(4, &[0, 1, 2, 3]);
    group.land(4, &[5, 6]);
    for follower in [5, 6] {
        group.run(follower, Inputs::default());
        group.land(follower, &[4, 11 - follower]);
    }
    group.run(4, late());
    group.land(4, &[5, 6]);
    group.run(6, Inputs::default());
    group.land(6, &[5]);
    group.run(5, Inputs::default());
    assert_eq!((group.next(5), group.next(4)), (Some(vec![4, 5, 6]), None));
    let mut engine = group.members[6].engine.fork();
    engine.learn(decided);
    group.members[6].engine = engine;
    group.run(6, Inputs::default());
    assert_eq!((group.members[6].engine.state(), group.next(6)), (&State::Evicted, None));
    group.land(6, &[4]);
    group.run(4, Inputs::default());
    assert_eq!(group.next(4), None, "two decisions");
    group.land(5, &[4]);
    group.run(4, Inputs::default());
    assert_eq!(group.next(4), group.next(5));
}

/// The leader 1 of five waits no longer for incomplete values. It reads the row of 2 while 2
/// accepts another value: that is no fault of 2.
#[test]
fn a_member_that_accepts_while_its_row_is_read_is_not_blamed() {
    let mut group = Group::new(5);
    group.lead(0, &[2, 3], suspecting(&[1, 4]));
    group.propose(0, &[2, 3]);
    group.run(1, suspecting(&[0, 3]));
    group.run(1, late());
    group.land(1, &[2, 4]);
    for follower in [2, 4] {
        group.run(follower, Inputs::default());
        group.land(follower, &[1]);
    }
    let mut row = (*group.seen[1][2]).clone();
    let accepted = 2u64 << 32 | 4 << 1 | 1;
    row[membership::ACCEPTED as usize..][..8].copy_from_slice(&accepted.to_le_bytes());
    group.members[1].now = Time(60_000_000_000);
    let landing = Landing { rank: Rank(2), loads: 2, row: Rc::new(row) };
    group.poll_with(1, Some(landing), Inputs::default());
    let engine = &group.members[1].engine;
    assert!(engine.faults().is_empty() && !engine.suspects(Rank(2)), "{:?}", engine.faults());
}

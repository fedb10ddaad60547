//! Id conflicts: processes that ask for admission with the id of a process on another host. No
//! runtime directory refuses the second one there.
//!
//! The first process may be dead. Then the second one is its successor and waits until the members
//! know of the death. So a duplicate id alone refuses no process. The second one is refused only if
//! the first one certainly lives: its activity has changed several times while the second one
//! asked.
//!
//! [`IdConflicts`] has no I/O: time is an argument.
use super::{ASK_EVERY, Instance};
use crate::{MemberId, Time};
use alloc::collections::BTreeMap;
use core::time::Duration;

/// The number of changes that prove a living process. A dead process's earlier activity may become
/// visible late, but not so often.
const SIGNS: u32 = 3;
/// The shortest time between two looks at a process. A process that asks over several paths asks
/// several times at once.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The time after which a process that has stopped asking is forgotten.
const GIVES_UP: Duration = Duration::from_secs(10);

const _: () = assert!(LOOK_EVERY.as_millis() < ASK_EVERY.as_millis());

/// The processes that ask with the id of another process.
#[derive(Debug, Default)]
pub struct IdConflicts(BTreeMap<(MemberId, Instance), IdConflict>);

#[derive(Debug)]
struct IdConflict {
    /// The time of its last request.
    asked: Time,
    /// The activity of the other process at that time, and how often that has changed.
    done: u64,
    signs: u32,
}

impl IdConflicts {
    /// Notes that `instance` asks with the id of another process, whose activity so far is `done`.
    /// True if that process certainly lives.
    pub fn ask(&mut self, id: MemberId, instance: Instance, done: u64, now: Time) -> bool {
        self.0.retain(|_, id_conflict| now < id_conflict.asked + GIVES_UP);
        let id_conflict = self.0.entry((id, instance)).or_insert(IdConflict { asked: now, done, signs: 0 });
        if now >= id_conflict.asked + LOOK_EVERY {
            id_conflict.signs += u32::from(id_conflict.done != done);
            (id_conflict.asked, id_conflict.done) = (now, done);
        }
        id_conflict.signs >= SIGNS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: MemberId = MemberId(2);

    #[test]
    fn a_duplicate_of_a_living_process_is_refused_after_a_while() {
        let (mut id_conflicts, now) = (IdConflicts::default(), Time(0));
        let mut ask = |i: u32, done| id_conflicts.ask(ID, Instance::Far(7), done, now + i * ASK_EVERY);
        assert_eq!([0, 1, 2].map(|i| ask(i, i.into())), [false; 3]);
        assert!(ask(3, 3));
        // A third process with the id starts from zero.
        assert!(!id_conflicts.ask(ID, Instance::Far(8), 4, now + 4 * ASK_EVERY));
    }

    #[test]
    fn the_successor_of_a_dead_process_waits_whatever_becomes_visible_late() {
        let (mut id_conflicts, now) = (IdConflicts::default(), Time(0));
        let mut ask = |i: u32, done| id_conflicts.ask(ID, Instance::Near(7), done, now + i * ASK_EVERY);
        assert!(!ask(0, 5) && !ask(1, 6) && !ask(2, 7));
        assert!((3..40).all(|i| !ask(i, 7)));
    }

    #[test]
    fn asking_over_several_ways_counts_once() {
        let (mut id_conflicts, now) = (IdConflicts::default(), Time(0));
        let mut ask = |done| id_conflicts.ask(ID, Instance::Far(7), done, now);
        assert!((0..40).all(|i| !ask(i)));
    }
}

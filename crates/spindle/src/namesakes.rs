//! Processes that ask to be let in with an id that another has, on another host, where no runtime directory could refuse it.
//!
//! The other may be dead, and who asks its successor, which waits until the members know that. So nobody is refused for having a namesake, but for
//! one that lives beyond doubt: it was seen to do something again and again while the newer one asked.
use crate::crew::Process;
use crate::following::ASK_EVERY;
use spindle_core::MemberId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often the other has to have done something. What it did before it died may be seen late, but not so often.
const SIGNS: u32 = 3;
/// Who asks by several ways asks several times at once.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Who has not asked for so long has given up.
const GIVES_UP: Duration = Duration::from_secs(10);

const _: () = assert!(LOOK_EVERY.as_millis() < ASK_EVERY.as_millis());

/// Those who ask and may have to be refused.
#[derive(Debug, Default)]
pub(crate) struct Namesakes(BTreeMap<(MemberId, Process), Namesake>);

#[derive(Debug)]
struct Namesake {
    /// When it asked last.
    asked: Instant,
    /// What the other had done by then, and how often it has been seen to do more.
    done: u64,
    signs: u32,
}

impl Namesakes {
    /// `process` asks with the id of another, which has `done` so much. Whether that one lives beyond doubt.
    pub(crate) fn ask(&mut self, id: MemberId, process: Process, done: u64, now: Instant) -> bool {
        self.0.retain(|_, namesake| now < namesake.asked + GIVES_UP);
        let namesake = self.0.entry((id, process)).or_insert(Namesake { asked: now, done, signs: 0 });
        if now >= namesake.asked + LOOK_EVERY {
            namesake.signs += u32::from(namesake.done != done);
            (namesake.asked, namesake.done) = (now, done);
        }
        namesake.signs >= SIGNS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: MemberId = MemberId(2);

    #[test]
    fn who_has_a_living_namesake_is_told_after_a_while() {
        let (mut namesakes, now) = (Namesakes::default(), Instant::now());
        let mut ask = |i: u32, done| namesakes.ask(ID, Process::Far(7), done, now + i * ASK_EVERY);
        assert_eq!([0, 1, 2].map(|i| ask(i, i.into())), [false; 3]);
        assert!(ask(3, 3));
        // Another that comes later is not taken for it.
        assert!(!namesakes.ask(ID, Process::Far(8), 4, now + 4 * ASK_EVERY));
    }

    #[test]
    fn who_follows_a_dead_one_waits_whatever_is_seen_of_that_late() {
        let (mut namesakes, now) = (Namesakes::default(), Instant::now());
        let mut ask = |i: u32, done| namesakes.ask(ID, Process::Near(7), done, now + i * ASK_EVERY);
        assert!(!ask(0, 5) && !ask(1, 6) && !ask(2, 7));
        assert!((3..40).all(|i| !ask(i, 7)));
    }

    #[test]
    fn asking_by_several_ways_counts_once() {
        let (mut namesakes, now) = (Namesakes::default(), Instant::now());
        let mut ask = |done| namesakes.ask(ID, Process::Far(7), done, now);
        assert!((0..40).all(|i| !ask(i)));
    }
}

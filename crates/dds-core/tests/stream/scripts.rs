//! Schedules in which the state machines of an earlier version waited for ever, or broke a promise.
use crate::world::{Dice, Gone, Leader, Seen, World, guid};
use crate::{check_events, check_publications, check_settled};
use spindle_dds_core::directory::EntityChange;

/// The only order domain.
const DOMAIN: u32 = 0;

/// A group of three processes whose steps a script chooses.
struct Script {
    world: World,
    dice: Dice,
}

impl Script {
    fn new() -> Script {
        Script { world: World::new(0, Leader::Newest, false), dice: Dice(0) }
    }

    fn writer(&mut self, process: usize, entity: usize) {
        self.world.put_writer(guid(process, entity), "a", (0, true), "");
        self.world.processes[process].writers.push(guid(process, entity));
    }

    fn reader(&mut self, process: usize, entity: usize) {
        self.world.put_reader(guid(process, entity), "a", "", true);
        self.world.processes[process].readers.push(guid(process, entity));
    }

    fn delete_reader(&mut self, process: usize, entity: usize) {
        self.world.change(process, EntityChange::Delete(guid(process, entity)));
        self.world.processes[process].readers.retain(|own| *own != guid(process, entity));
    }

    /// Lets a process apply the commands up to a version.
    fn know(&mut self, process: usize, version: u64) {
        while self.world.processes[process].directory.version() < version {
            assert!(self.world.apply(process));
        }
    }

    fn epoch(&mut self, members: &[u64], senders: &[u64]) {
        self.world.begin_epoch(DOMAIN, members.to_vec(), senders.to_vec(), &mut self.dice);
    }

    /// Lets the group order the messages of a process.
    fn order(&mut self, process: usize) {
        while self.world.order(DOMAIN, process as u64) {}
    }

    /// Lets processes take the steps that there are.
    fn deliver(&mut self, processes: &[usize]) {
        for process in processes {
            while self.world.deliver(*process, DOMAIN, &mut self.dice) {}
        }
    }

    fn fence(&mut self, process: usize) {
        assert!(self.world.fence(process));
        self.order(process);
    }

    fn send(&mut self, process: usize, entity: usize) {
        let own = vec![guid(process, entity)];
        let all = std::mem::replace(&mut self.world.processes[process].writers, own);
        // The dice choose a sample.
        self.world.send(process, &mut Dice(7));
        self.world.processes[process].writers = all;
        self.order(process);
    }

    fn is_blocked(&self, process: usize) -> bool {
        self.world.processes[process].streams.is_blocked(DOMAIN)
    }

    fn is_active(&self, process: usize, entity: usize) -> bool {
        self.world.processes[process].streams.active_domain(guid(process, entity)).is_some()
    }

    /// Returns the changes of the matches that an endpoint has heard of, and the number of its samples.
    fn heard(&self, process: usize, entity: usize) -> (Vec<bool>, usize) {
        let seen = self.world.processes[process].seen.get(&(guid(process, entity), DOMAIN));
        let seen = || seen.into_iter().flatten().map(|(_, event)| event);
        let matches = seen().filter_map(|event| match event {
            Seen::Matched(..) | Seen::Publication(_, true) => Some(true),
            Seen::Unmatched(..) | Seen::Publication(_, false) => Some(false),
            _ => None,
        });
        (matches.collect(), seen().filter(|event| matches!(event, Seen::Change(..))).count())
    }

    fn finish(mut self) {
        self.world.settle(&mut self.dice);
        check_settled(&self.world);
        check_events(&self.world);
        check_publications(&self.world);
    }
}

/// The epoch waited for a plan that names the process, and it had gone by already.
/// Also seed 10002 of `views_follow_the_plans_that_a_process_has`.
#[test]
fn an_epoch_by_a_plan_that_the_process_has_left_behind_begins() {
    let mut script = Script::new();
    script.writer(0, 1);
    script.reader(1, 1);
    script.delete_reader(1, 1);
    (0..2).for_each(|process| script.know(process, 6));
    for _ in 0..2 {
        script.epoch(&[0, 1], &[0]);
        script.deliver(&[0, 1]);
        assert!(!script.is_blocked(1));
        script.epoch(&[0], &[0]);
        script.deliver(&[0, 1]);
        assert!(!script.is_blocked(1) && script.world.processes[1].streams.stream(DOMAIN).is_none());
    }
    script.finish();
}

/// The end waited for a plan that leaves the process out, and the view followed one from before it came. A writer
/// that knows that it is out was allowed to send, and the writer of another process did not hear that it misses
/// samples.
#[test]
fn a_process_that_an_older_plan_leaves_out_comes_again() {
    let mut script = Script::new();
    script.writer(0, 1);
    script.writer(1, 1);
    script.reader(1, 2);
    (0..2).for_each(|process| script.know(process, 6));
    script.epoch(&[0, 1], &[0, 1]);
    script.deliver(&[0, 1]);
    script.fence(0);
    script.deliver(&[0, 1]);
    script.send(0, 1);
    script.deliver(&[0, 1]);
    assert!(script.is_active(1, 1));
    assert_eq!((script.heard(1, 2), script.heard(0, 1)), ((vec![true, true], 1), (vec![true], 0)));
    // By the plan of version 4.
    script.epoch(&[0], &[0]);
    script.deliver(&[0, 1]);
    assert!(script.is_blocked(1) && !script.is_active(1, 1));
    assert_eq!(script.heard(0, 1).0, [true, false]);
    script.fence(0);
    script.send(0, 1);
    script.epoch(&[0, 1], &[0, 1]);
    script.deliver(&[0, 1]);
    assert!(!script.is_blocked(1));
    assert_eq!(script.heard(1, 2), (vec![true, true, false, false], 1));
    script.fence(0);
    script.deliver(&[0, 1]);
    script.send(0, 1);
    script.deliver(&[0, 1]);
    assert!(script.is_active(1, 1));
    assert_eq!(script.heard(1, 2).0, [true, true, false, false, true, true]);
    assert_eq!(script.heard(0, 1).0, [true, false, true]);
    script.finish();
}

/// The end took effect with the plan by which the process was out, and forgot that a later plan named it and
/// another one left it out again. The end of the second epoch waited for ever.
#[test]
fn a_process_leaves_twice_after_its_directory_has_seen_both() {
    let mut script = Script::new();
    script.writer(0, 1);
    for entity in 1..4 {
        script.reader(1, entity);
        if entity < 3 {
            script.delete_reader(1, entity);
        }
    }
    (0..2).for_each(|process| script.know(process, 9));
    for _ in 0..2 {
        script.epoch(&[0, 1], &[0]);
        script.epoch(&[0], &[0]);
    }
    script.epoch(&[0, 1], &[0]);
    script.deliver(&[0, 1]);
    assert!(!script.is_blocked(1));
    script.finish();
}

/// The first sender has come with a directory that is behind the fences of the epoch before. At its fence the
/// writer of a process that has stayed heard of a reader whose process had not applied the match, and a sample was
/// lost. Also seed 10000 of `views_follow_the_plans_that_a_process_has`.
#[test]
fn a_fence_of_an_old_version_tells_no_writer_of_a_reader() {
    let mut script = Script::new();
    script.writer(1, 1);
    script.writer(0, 1);
    script.reader(2, 1);
    script.writer(1, 2);
    [(0, 5), (1, 7), (2, 7)].into_iter().for_each(|(process, version)| script.know(process, version));
    script.epoch(&[1], &[1]);
    script.deliver(&[1]);
    script.fence(1);
    script.deliver(&[1]);
    script.epoch(&[0, 1, 2], &[0, 1]);
    script.deliver(&[0, 1, 2]);
    script.fence(0);
    script.deliver(&[0, 1, 2]);
    assert_eq!(script.world.processes[0].streams.stream(DOMAIN).map(|stream| stream.fenced()), Some(5));
    script.send(1, 1);
    // A writer that the first sender does not know yet: it is no stray.
    script.send(1, 2);
    script.deliver(&[0, 1, 2]);
    assert_eq!((script.heard(1, 1), script.heard(1, 2), script.heard(2, 1)), Default::default());
    script.know(0, 7);
    script.fence(0);
    script.deliver(&[0, 1, 2]);
    script.send(1, 1);
    script.send(1, 2);
    script.deliver(&[0, 1, 2]);
    assert_eq!((script.heard(1, 1).0, script.heard(1, 2).0), (vec![true], vec![true]));
    assert_eq!(script.heard(2, 1), (vec![true; 3], 2));
    script.finish();
}

/// The view does not name the version of its plan, so a process that leaves does not know up to which version its
/// readers have to hear how their writers ended. One that stays hears that a writer was deleted. One that is behind,
/// and comes again meanwhile, hears only that the writer matches no more.
#[test]
fn a_reader_that_leaves_and_comes_again_may_not_hear_how_a_writer_ended() {
    let mut script = Script::new();
    script.writer(0, 1);
    script.reader(1, 1);
    script.reader(2, 1);
    script.world.change(0, EntityChange::Delete(guid(0, 1)));
    script.world.processes[0].writers.clear();
    script.writer(0, 2);
    (0..3).for_each(|process| script.know(process, 6));
    script.epoch(&[0, 1, 2], &[0]);
    script.deliver(&[0, 1, 2]);
    script.fence(0);
    script.deliver(&[0, 1, 2]);
    script.know(1, 7);
    // By the plan of version 7, which has no members, and by that of version 8.
    script.epoch(&[], &[]);
    script.deliver(&[1, 2]);
    assert!(!script.is_blocked(1) && script.is_blocked(2));
    script.epoch(&[0, 1, 2], &[0]);
    script.deliver(&[0, 1, 2]);
    assert!(!script.is_blocked(2));
    let ends = [1, 2].map(|process| {
        let seen = &script.world.processes[process].seen[&(guid(process, 1), DOMAIN)];
        seen.last().map(|(_, event)| event.clone())
    });
    assert_eq!(ends, [Gone::Deleted, Gone::Unmatched].map(|gone| Some(Seen::Unmatched(guid(0, 1), gone))));
    script.finish();
}

use super::*;
use crate::chaos::record::digest;

/// A round described in a few words.
struct Story(Judge);

impl Story {
    /// Returns a story of processes 1 to `count`, which created one group. Their ids are their
    /// numbers.
    fn new(count: u32) -> Story {
        let mut story = Story(Judge::default());
        for instance in 1..=count {
            story.0.started(instance);
            story.joins(instance, 7).unwrap();
            story.view(instance, 1, &(1..=count.into()).collect::<Vec<_>>()).unwrap();
            for lane in 0..4 {
                story.says(instance, Record::new(Kind::Reserve, lane, [100, 0, 0])).unwrap();
            }
        }
        story
    }

    fn says(&mut self, instance: u32, record: Record) -> Result<(), Breach> {
        self.0.record(instance, &record)
    }

    fn joins(&mut self, instance: u32, incarnation: u64) -> Result<(), Breach> {
        self.says(instance, Record::new(Kind::Joined, NO_SUBGROUP, [instance.into(), incarnation, 0]))
    }

    fn view(&mut self, instance: u32, view: u64, members: &[u64]) -> Result<(), Breach> {
        self.view_at(instance, view, members, 10)
    }

    fn view_at(&mut self, instance: u32, view: u64, members: &[u64], at: u64) -> Result<(), Breach> {
        self.says(instance, Record::new(Kind::View, NO_SUBGROUP, [view, members.len() as u64, at]))?;
        for id in members {
            self.says(instance, Record::new(Kind::Member, NO_SUBGROUP, [view, 0, *id]))?;
        }
        (0..4).try_for_each(|subgroup| self.says(instance, Record::new(Kind::Stretch, subgroup, [view, 0, at])))
    }

    fn delivers(&mut self, instance: u32, subgroup: u8, sender: u32, number: u64) -> Result<(), Breach> {
        let words = [number, u64::from(sender) << 32 | digest(sender, subgroup, 0, number) & 0xffff_ffff, number];
        self.says(instance, Record::new(Kind::Deliver, subgroup, words).extra(sender as u8 - 1))
    }

    fn finishes(&mut self, instance: u32) -> Result<(), Breach> {
        self.says(instance, Record::new(Kind::End, NO_SUBGROUP, [End::Finished as u64, 0, 0]))?;
        self.0.gone(instance)
    }

    fn sent(&mut self, instance: u32, subgroup: u8, count: u64) {
        self.says(instance, Record::new(Kind::Sent, subgroup, [count, 0, 0])).unwrap();
    }
}

fn number<T: fmt::Debug>(result: Result<T, Breach>) -> u8 {
    result.unwrap_err().number
}

#[test]
fn a_good_history_passes_with_its_sums() {
    let mut story = Story::new(3);
    for instance in 1..=3 {
        story.delivers(instance, 0, 1, 0).unwrap();
        story.delivers(instance, 0, 2, 0).unwrap();
    }
    // Process 3 is killed. The messages that only it has sent may be missing.
    story.0.gone(3).unwrap();
    for instance in 1..=2 {
        story.view(instance, 2, &[1, 2]).unwrap();
        story.delivers(instance, 0, 2, 1).unwrap();
    }
    story.0.trim();
    story.sent(1, 0, 1);
    story.sent(2, 0, 2);
    story.finishes(1).unwrap();
    story.finishes(2).unwrap();
    let sums = story.0.finish().unwrap();
    assert_eq!((sums.views, sums.accepted, sums.deliveries), (2, 3, 8));
}

#[test]
fn a_recovery_begins_an_era_and_forgets_what_the_lost_made_of_the_view() {
    let recovered = 1 << 48 | 7 << 32 | 2;
    assert!(follows(recovered, 1) && follows(recovered + 1, recovered) && follows(2, 1));
    assert!(!follows(recovered, 2) && !follows(2 << 48 | 3, 1) && !follows(recovered + 2, recovered) && !follows(1, 1));
    let lose = |is_told: bool| {
        let mut story = Story::new(3);
        story.delivers(1, 0, 1, 0).unwrap();
        // The lost members end the view one message earlier, among themselves, and no other
        // member learns of it.
        story.view(2, 2, &[1, 2, 3]).unwrap_or(());
        story.0.gone(2).unwrap();
        story.0.gone(3).unwrap();
        if is_told {
            story.0.given_up(&[2, 3]);
        }
        story.view(1, recovered, &[1])
    };
    assert_eq!(number(lose(false)), 4);
    lose(true).unwrap();
}

#[test]
fn two_orders_are_found() {
    let mut story = Story::new(2);
    story.delivers(1, 0, 1, 0).unwrap();
    assert_eq!(number(story.delivers(2, 0, 2, 0)), 1);
    // In a Fifo subgroup both orders are right.
    story.delivers(1, 2, 1, 0).unwrap();
    story.delivers(2, 2, 2, 0).unwrap();
}

#[test]
fn inventions_are_found() {
    let mut story = Story::new(2);
    assert_eq!(number(story.delivers(1, 0, 9, 0)), 2, "of nobody");
    story.delivers(1, 0, 2, 100).unwrap();
    assert_eq!(number(story.0.gone(2)), 2, "a number that was not asked for");
    assert_eq!(number(story.says(1, Record::new(Kind::Garbage, 0, [0; 3]))), 2, "other bytes");
    let mut story = Story::new(2);
    let words = [0, 2 << 32 | digest(2, 0, 0, 0) & 0xffff_ffff, 0];
    assert_eq!(number(story.says(1, Record::new(Kind::Deliver, 0, words).extra(0))), 2, "another's rank");
}

#[test]
fn duplicates_and_gaps_are_found_across_views() {
    let next = |number| {
        let mut story = Story::new(2);
        story.delivers(1, 3, 2, 4).unwrap();
        story.view(1, 2, &[1, 2]).unwrap();
        story.delivers(1, 3, 2, number)
    };
    next(5).unwrap();
    assert_eq!(number(next(4)), 3, "a duplicate");
    assert_eq!(number(next(6)), 3, "a gap");
}

#[test]
fn members_that_go_on_with_less_or_more_are_found() {
    let mut story = Story::new(3);
    story.delivers(1, 0, 1, 0).unwrap();
    story.view(1, 2, &[1, 2]).unwrap();
    assert_eq!(number(story.view(2, 2, &[1, 2])), 4);
    let mut story = Story::new(3);
    story.delivers(3, 0, 1, 0).unwrap();
    story.0.gone(3).unwrap();
    assert_eq!(number(story.view(1, 2, &[1, 2])), 8, "a dead one had more");
    let mut story = Story::new(3);
    story.view(1, 2, &[1, 2]).unwrap();
    assert_eq!(number(story.delivers(3, 0, 1, 0)), 8, "and was heard later");
}

#[test]
fn states_that_differ_are_found() {
    let mut story = Story::new(2);
    let state = |subgroup, sum| Record::new(Kind::State, subgroup, [2, sum, 10]);
    story.says(1, state(0, 5)).unwrap();
    story.says(2, state(0, 5)).unwrap();
    story.says(1, state(1, 6)).unwrap();
    assert_eq!(number(story.says(2, state(1, 7))), 4);
}

#[test]
fn views_that_fork_or_jump_are_found() {
    let mut story = Story::new(3);
    story.view(1, 2, &[1, 2]).unwrap();
    assert_eq!(number(story.view(3, 2, &[3])), 5);
    assert_eq!(number(story.view(2, 3, &[2])), 5);
    assert_eq!(number(Story::new(3).view(3, 2, &[1, 2])), 5, "not in its own view");
}

#[test]
fn two_groups_at_once_are_found() {
    let mut story = Story::new(2);
    story.0.started(3);
    story.joins(3, 8).unwrap();
    story.view_at(3, 1, &[3], 20).unwrap();
    story.says(1, Record::new(Kind::Batch, 0, [19, 0, 0])).unwrap();
    assert_eq!(number(story.says(1, Record::new(Kind::Batch, 0, [21, 0, 0]))), 6);
}

#[test]
fn a_second_group_is_found_where_there_may_be_one() {
    let mut story = Story::new(2);
    story.0.one_group = true;
    story.0.started(3);
    story.joins(3, 7).unwrap();
    assert_eq!(number(story.joins(3, 8)), 18);
}

#[test]
fn a_recovery_lasts_until_the_last_has_delivered_something_in_a_total_order() {
    let batch = |subgroup, time| Record::new(Kind::Batch, subgroup, [time, 0, 0]);
    let mut story = Story::new(3);
    story.0.recovers(100, BTreeSet::from([1, 2, 3]));
    story.says(1, batch(0, 99)).unwrap();
    story.says(1, batch(2, 105)).unwrap();
    story.says(2, batch(1, 110)).unwrap();
    assert_eq!(story.0.overdue(200, 100), None);
    assert_eq!(story.0.overdue(201, 100).as_deref(), Some("1, 3"));
    story.says(3, batch(0, 120)).unwrap();
    story.says(1, batch(0, 150)).unwrap();
    assert_eq!(story.0.recovered, [[20, 50]]);
    // If one process has ended, the other two are more than half.
    story.0.recovers(100, BTreeSet::from([1, 2, 3]));
    story.says(2, batch(1, 110)).unwrap();
    story.0.gone(3).unwrap();
    story.says(1, batch(0, 150)).unwrap();
    assert_eq!((story.0.overdue(999, 100), &story.0.recovered[..]), (None, &[[20, 50], [50, 50]][..]));
    // A recovery that is blurred, or disturbed again, is no measurement.
    story.0.recovers(200, BTreeSet::from([1, 2]));
    story.0.lost(2, 220);
    story.0.blurs(230);
    story.says(1, batch(0, 260)).unwrap();
    story.0.recovers(300, BTreeSet::from([1]));
    story.0.upset();
    story.says(1, batch(0, 310)).unwrap();
    assert_eq!((story.0.overdue(999, 100), &story.0.recovered[..]), (None, &[[20, 50], [50, 50]][..]));
}

#[test]
fn members_without_a_vote_are_known() {
    let mut story = Story::new(2);
    story.says(1, Record::new(Kind::View, NO_SUBGROUP, [2, 2, 10])).unwrap();
    assert!(story.0.votes(1));
    story.says(1, Record::new(Kind::Member, NO_SUBGROUP, [2, 1, 1])).unwrap();
    story.says(1, Record::new(Kind::Member, NO_SUBGROUP, [2, 0, 2])).unwrap();
    assert!(!story.0.votes(1) && story.0.votes(2) && !story.0.votes(9));
}

#[test]
fn undelivered_messages_are_found() {
    let mut story = Story::new(2);
    for instance in 1..=2 {
        story.delivers(instance, 2, 1, 0).unwrap();
    }
    story.delivers(1, 2, 1, 1).unwrap();
    story.sent(1, 2, 2);
    story.finishes(1).unwrap();
    story.finishes(2).unwrap();
    assert_eq!(number(story.0.finish()), 7);
}

#[test]
fn the_gap_after_a_kill_is_that_to_a_later_view() {
    let mut story = Story::new(3);
    story.0.gone(3).unwrap();
    story.0.killed(3, 100, BTreeSet::from([1, 2]), true);
    story.says(1, Record::new(Kind::Batch, 0, [110, 0, 0])).unwrap();
    story.view_at(1, 2, &[1, 2], 120).unwrap();
    story.says(1, Record::new(Kind::Batch, 0, [130, 0, 0])).unwrap();
    story.says(1, Record::new(Kind::Batch, 0, [140, 0, 0])).unwrap();
    assert_eq!(story.0.measured, [(30, true)]);
}

use super::*;
use crate::ids::ViewId;
use alloc::string::ToString;
use alloc::vec;

const BOUND: RecordBound = RecordBound::Before(ViewId(9));

fn at(epoch: u64, sequence: u64) -> Position {
    Position { epoch: ViewId(epoch), sequence }
}

fn ids(ids: &[u64]) -> Vec<MemberId> {
    ids.iter().copied().map(MemberId).collect()
}

/// A catch-up, and the time.
struct Scene {
    catch_up: CatchUp,
    now: Time,
}

impl Scene {
    /// Process `me` lacks what comes after 1:5, and asks `sources`.
    fn new(me: u64, aim: CatchUpAim, sources: &[u64]) -> Scene {
        let now = Time(0);
        let mut catch_up = CatchUp::new("ledger".to_string(), Some(at(1, 5)), BOUND, aim, (me, 70), now);
        catch_up.set_sources(ids(sources), now);
        Scene { catch_up, now }
    }

    /// Waits for the next request. Returns the source, and what it is asked for.
    fn asks(&mut self) -> Option<(u64, WantedRecords)> {
        for _ in 0..1000 {
            if let Some((source, _, wanted)) = self.catch_up.ask(self.now) {
                return Some((source.0, wanted));
            }
            if self.catch_up.end().is_some() {
                return None;
            }
            let patience = self.catch_up.patience(self.now);
            assert!(patience > Duration::ZERO, "it would spin");
            self.now += patience;
        }
        panic!("it waits for ever: {:?}", self.catch_up);
    }

    fn asks_whom(&mut self) -> Option<u64> {
        self.asks().map(|(source, _)| source)
    }

    /// The source that was asked sends records from `first` to `last`, and the end.
    fn sends(&mut self, first: Position, last: Position, bytes: u64, end: RecordStreamEnd) {
        let (source, reply) = self.begins();
        assert!(!self.catch_up.comes(source, reply), "it came before");
        self.catch_up.ended(end, Some(last), Some(first), bytes, self.now);
    }

    fn begins(&mut self) -> (MemberId, u64) {
        let (source, reply) = (self.catch_up.source().unwrap(), self.catch_up.reply);
        assert!(self.catch_up.comes(source, reply));
        (source, reply)
    }

    /// The source sends nothing but the end.
    fn sends_nothing(&mut self, end: RecordStreamEnd) {
        self.begins();
        self.catch_up.ended(end, self.catch_up.at, None, 0, self.now);
    }

    fn refuses(&mut self, why: NoRecords) {
        let (source, reply) = (self.catch_up.source().unwrap(), self.catch_up.reply);
        self.catch_up.refused(source, reply, why, self.now);
    }
}

#[test]
fn processes_begin_with_different_sources_and_go_on_where_the_log_ends() {
    let mut first = Scene::new(1, CatchUpAim::All, &[2, 3, 4]);
    assert_eq!(first.asks_whom(), Some(3));
    let mut scene = Scene::new(2, CatchUpAim::All, &[1, 3, 4]);
    let (source, wanted) = scene.asks().unwrap();
    assert_eq!((source, wanted.after, wanted.bound, wanted.may_skip), (4, Some(at(1, 5)), BOUND, false));
    scene.sends(at(1, 6), at(2, 9), 5 << 20, RecordStreamEnd::NotYet);
    // The same source is asked for the rest, at once.
    let before = scene.now;
    let (source, wanted) = scene.asks().unwrap();
    assert_eq!((source, wanted.after, scene.now), (4, Some(at(2, 9)), before));
    scene.sends(at(2, 10), at(3, 0), 10, RecordStreamEnd::Complete);
    assert_eq!(scene.asks(), None);
    assert_eq!(scene.catch_up.end(), Some(CatchUpEnd::Complete { gap: None }));
}

#[test]
fn a_source_that_dies_in_the_middle_is_followed_by_the_next_one() {
    let mut scene = Scene::new(0, CatchUpAim::All, &[1, 2]);
    assert_eq!(scene.asks_whom(), Some(1));
    scene.sends(at(1, 6), at(1, 8), 100, RecordStreamEnd::Broken);
    let (source, wanted) = scene.asks().unwrap();
    assert_eq!((source, wanted.after), (2, Some(at(1, 8))));
    // An answer that comes too late is not taken.
    assert!(!scene.catch_up.comes(MemberId(1), 71) && !scene.catch_up.comes(MemberId(2), 71));
    // It does not answer, and is asked again later.
    assert_eq!(scene.asks_whom(), Some(1));
    assert!(scene.now >= Time(0) + ANSWER_WAIT);
    scene.catch_up.lost(MemberId(1), scene.now);
    assert_eq!(scene.asks_whom(), Some(2));
}

#[test]
fn a_source_that_leaves_the_subgroup_is_asked_no_more() {
    let mut scene = Scene::new(0, CatchUpAim::All, &[1, 2]);
    assert_eq!(scene.asks_whom(), Some(1));
    scene.catch_up.set_sources(ids(&[2]), scene.now);
    assert_eq!(scene.asks_whom(), Some(2));
    // A stream that has begun is read to its end.
    scene.begins();
    scene.catch_up.set_sources(vec![], scene.now);
    assert_eq!(scene.catch_up.source(), Some(MemberId(2)));
    scene.catch_up.ended(RecordStreamEnd::NotYet, Some(at(1, 6)), Some(at(1, 6)), 1, scene.now);
    assert_eq!(scene.asks(), None);
    let end = CatchUpEnd::Stopped { why: CatchUpFailure::NoSource, gap: None };
    assert_eq!(scene.catch_up.end(), Some(end));
}

#[test]
fn the_pauses_grow_while_nothing_comes_and_there_is_an_end() {
    let mut scene = Scene::new(0, CatchUpAim::All, &[1, 2]);
    let mut pauses = vec![];
    while scene.asks().is_some() {
        let before = scene.now;
        scene.sends_nothing(RecordStreamEnd::NotYet);
        pauses.push(scene.catch_up.patience(before));
    }
    assert_eq!((pauses[0], pauses[1], pauses[20]), (PAUSE_MIN, 2 * PAUSE_MIN, PAUSE_MAX));
    assert_eq!(pauses.len(), FRUITLESS_MAX as usize);
    let end = CatchUpEnd::Stopped { why: CatchUpFailure::Broken, gap: None };
    assert_eq!(scene.catch_up.end(), Some(end));
    // A record begins the count anew.
    let mut scene = Scene::new(0, CatchUpAim::All, &[1]);
    for i in 0..3 * u64::from(FRUITLESS_MAX) {
        scene.asks().unwrap();
        match i % 10 {
            0 => scene.sends(at(1, 6 + i), at(1, 6 + i), 1, RecordStreamEnd::NotYet),
            _ => scene.sends_nothing(RecordStreamEnd::Broken),
        }
    }
}

#[test]
fn sources_that_can_serve_later_are_asked_again() {
    let mut scene = Scene::new(0, CatchUpAim::All, &[1, 2]);
    for why in [NoRecords::Busy, NoRecords::CatchingUp, NoRecords::Busy] {
        scene.asks().unwrap();
        scene.refuses(why);
    }
    assert_eq!(scene.asks_whom(), Some(2));
    scene.refuses(NoRecords::NotMember);
    assert_eq!(
        [scene.asks_whom(), {
            scene.refuses(NoRecords::Busy);
            scene.asks_whom()
        }],
        [Some(1), Some(1)]
    );
    scene.refuses(NoRecords::NotMember);
    assert_eq!(scene.asks(), None);
    let why = CatchUpFailure::Refused(NoRecords::NotMember);
    assert_eq!(scene.catch_up.end(), Some(CatchUpEnd::Stopped { why, gap: None }));
}

/// Track record: a member that came back after a restart without it kept records that the group did not
/// have.
#[test]
fn records_that_the_group_does_not_have_are_cut() {
    for last in [Some(at(1, 3)), None] {
        let mut scene = Scene::new(0, CatchUpAim::All, &[1, 2]);
        scene.asks().unwrap();
        scene.refuses(NoRecords::Pruned { oldest: at(7, 0) });
        scene.asks().unwrap();
        scene.refuses(NoRecords::Lacks { last });
        assert_eq!(scene.catch_up.cut(), Some(last));
        assert_eq!(scene.catch_up.ask(scene.now), None);
        scene.catch_up.has_cut(last, scene.now);
        // Both may have what comes now.
        assert_eq!(scene.asks().map(|(_, wanted)| wanted.after), Some(last));
        scene.sends(at(2, 0), at(2, 9), 10, RecordStreamEnd::Complete);
        assert_eq!((scene.catch_up.end(), scene.catch_up.cut()), (Some(CatchUpEnd::Complete { gap: None }), None));
    }
    // A source that contradicts itself.
    let mut scene = Scene::new(0, CatchUpAim::All, &[1]);
    scene.asks().unwrap();
    scene.refuses(NoRecords::Lacks { last: Some(at(1, 5)) });
    assert_eq!((scene.asks(), scene.catch_up.cut()), (None, None));
}

#[cfg(mutation)]
#[test]
#[ignore = "wants a process of its own: cargo xtask mutations"]
fn mutations_of_cuts_fail_their_test() {
    use crate::mutation::{Mutation, failure};
    failure(Mutation::ForeignRecordsKept, records_that_the_group_does_not_have_are_cut);
}

#[test]
fn members_that_all_catch_up_do_not_wait_for_each_other_for_ever() {
    let mut scene = Scene::new(0, CatchUpAim::All, &[1]);
    while scene.asks().is_some() {
        scene.refuses(NoRecords::CatchingUp);
    }
    let why = CatchUpFailure::Refused(NoRecords::CatchingUp);
    assert_eq!(scene.catch_up.end(), Some(CatchUpEnd::Stopped { why, gap: None }));
}

#[test]
fn records_that_no_source_has_are_a_gap_and_the_rest_comes_from_the_longest_log() {
    let mut scene = Scene::new(0, CatchUpAim::All, &[1, 2, 3]);
    for oldest in [at(4, 0), at(3, 7), at(5, 1)] {
        assert!(!scene.asks().unwrap().1.may_skip);
        scene.refuses(NoRecords::Pruned { oldest });
    }
    let (source, wanted) = scene.asks().unwrap();
    assert_eq!((source, wanted.after, wanted.may_skip), (2, Some(at(1, 5)), true));
    scene.sends(at(3, 7), at(3, 9), 100, RecordStreamEnd::Broken);
    // From now on none may be left out.
    let (source, wanted) = scene.asks().unwrap();
    assert_eq!((source, wanted.after, wanted.may_skip), (3, Some(at(3, 9)), false));
    scene.refuses(NoRecords::Pruned { oldest: at(5, 1) });
    scene.asks().unwrap();
    scene.sends(at(4, 0), at(8, 8), 100, RecordStreamEnd::Complete);
    let gap = RecordGap { after: Some(at(1, 5)), before: Some(at(3, 7)) };
    assert_eq!(scene.catch_up.end(), Some(CatchUpEnd::Complete { gap: Some(gap) }));
}

#[test]
fn a_catch_up_that_may_leave_out_nothing_stops() {
    let mut scene = Scene::new(0, CatchUpAim::Whole, &[1]);
    scene.asks().unwrap();
    let why = NoRecords::Pruned { oldest: at(4, 0) };
    scene.refuses(why);
    assert_eq!((scene.asks(), scene.catch_up.is_whole()), (None, true));
    let end = CatchUpEnd::Stopped { why: CatchUpFailure::Refused(why), gap: None };
    assert_eq!(scene.catch_up.end(), Some(end));
}

#[test]
fn a_source_without_any_older_record_leaves_a_gap_without_an_end() {
    let mut scene = Scene::new(0, CatchUpAim::All, &[1]);
    scene.asks().unwrap();
    scene.refuses(NoRecords::Pruned { oldest: at(9, 0) });
    scene.asks().unwrap();
    scene.sends_nothing(RecordStreamEnd::Complete);
    let gap = RecordGap { after: Some(at(1, 5)), before: None };
    assert_eq!(scene.catch_up.end(), Some(CatchUpEnd::Complete { gap: Some(gap) }));
}

#[test]
fn a_process_that_is_no_member_stops_once_little_is_missing() {
    let mut scene = Scene::new(0, CatchUpAim::Most, &[1]);
    scene.asks().unwrap();
    scene.sends(at(1, 6), at(2, 6), LITTLE_BYTES, RecordStreamEnd::NotYet);
    scene.asks().unwrap();
    scene.sends(at(2, 7), at(2, 9), LITTLE_BYTES - 1, RecordStreamEnd::NotYet);
    assert_eq!(scene.catch_up.end(), Some(CatchUpEnd::Little));
    // The group sends faster.
    let mut scene = Scene::new(0, CatchUpAim::Most, &[1]);
    for i in 0..u64::from(ROUNDS_MAX) {
        scene.asks().unwrap();
        scene.sends(at(2, 2 * i), at(2, 2 * i + 1), 5 * LITTLE_BYTES, RecordStreamEnd::NotYet);
    }
    assert_eq!(scene.catch_up.end(), Some(CatchUpEnd::Little));
}

#[test]
fn a_bound_that_rises_meanwhile_is_reached_as_well() {
    let mut scene = Scene::new(0, CatchUpAim::All, &[1]);
    scene.asks().unwrap();
    let later = RecordBound::Before(ViewId(12));
    scene.catch_up.set_bound(later, scene.now);
    scene.sends(at(1, 6), at(2, 0), 1, RecordStreamEnd::Complete);
    assert_eq!(scene.asks().map(|(_, wanted)| (wanted.after, wanted.bound)), Some((Some(at(2, 0)), later)));
    scene.sends_nothing(RecordStreamEnd::Complete);
    assert_eq!(scene.catch_up.end(), Some(CatchUpEnd::Complete { gap: None }));
    scene.catch_up.set_bound(RecordBound::Before(ViewId(13)), scene.now);
    assert_eq!(scene.asks_whom(), Some(1));
}

#[test]
fn a_position_is_within_its_bound() {
    assert!(BOUND.contains(at(8, u64::MAX)) && !BOUND.contains(at(9, 0)));
    let through = RecordBound::Through(at(3, 3));
    assert!(through.contains(at(3, 3)) && !through.contains(at(3, 4)));
}

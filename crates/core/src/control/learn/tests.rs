use super::*;
use crate::control::{ASK_EVERY, Birth, Me, RosterOrder, RowsState};
use crate::ids::Process;
use crate::membership::{Ballot, Decision};
use crate::view::SubgroupSpec;
use alloc::vec;

const GROUP: u128 = 7;
const ME: Process = Process { id: MemberId(9), nonce: 33 };

fn me(id: u64) -> Me {
    Me { id: MemberId(id), pid: id as u32, birth: Birth::default() }
}

fn view(id: u64, members: &[u64]) -> View {
    let members: Vec<MemberId> = members.iter().copied().map(MemberId).collect();
    View { id: ViewId(id), members, nonvoters: vec![], subgroups: Default::default() }
}

/// Process 9, on the members' host.
struct Case {
    learn: Learn,
    follow: Follow,
    roster: Roster<()>,
    now: Time,
}

impl Case {
    /// Observes view 3 of members 1 and 2 from sequence number 5 on.
    fn following(failed: Option<MemberId>) -> Case {
        let now = Time(0);
        let (learn, follow) = (Learn::new(failed, now), Follow::new(4, 1, now));
        let mut case = Case { learn, follow, roster: Roster::new(me(9), ME.nonce, None), now };
        case.hear_of(3, &[1, 2]);
        case.arrives(3, &[1, 2]).unwrap();
        case
    }

    /// Returns a learner that has the state and has caught up.
    fn learned() -> Case {
        let mut case = Case::following(None);
        case.asks();
        assert!(case.opened(3, 5));
        case.learn.note_waiting(0);
        case
    }

    fn hear(&mut self, news: ControlEvent) -> Result<Option<ControlEvent>, LearnError> {
        self.learn.hear(news, &mut self.follow, &mut self.roster, self.now)
    }

    fn hear_of(&mut self, id: u64, members: &[u64]) {
        let told = ControlEvent::View { incarnation: GROUP, view: view(id, members), decision: vec![] };
        self.hear(told).unwrap();
    }

    /// Begins a view whose rows have come.
    fn arrives(&mut self, id: u64, members: &[u64]) -> Result<bool, LearnError> {
        for member in members {
            self.roster.handed_over(GROUP, ViewId(id), me(*member), ());
        }
        self.follow.look(&mut self.roster, self.now).unwrap();
        let start = self.follow.arrive(RowsState::Complete, &mut self.roster, self.now).unwrap();
        self.learn.begin(start, vec![5], &mut self.follow, self.now)
    }

    /// Returns the member that is asked for its state.
    fn asks(&mut self) -> Option<u64> {
        while self.roster.next_order().is_some() {}
        if !self.learn.is_due(&mut self.follow, self.now) {
            return None;
        }
        self.learn.ask(&[MemberId(1)], &mut self.follow, &mut self.roster, self.now).unwrap();
        core::iter::from_fn(|| self.roster.next_order()).find_map(|order| match order {
            RosterOrder::Near { to, message: ControlMessage::Request { what: Request::State, .. }, .. } => Some(to.0),
            _ => None,
        })
    }

    /// Delivers a state of this view that contains `place` messages. Returns whether it is
    /// taken.
    fn opened(&mut self, view: u64, place: u64) -> bool {
        let view = ViewId(view);
        let source = self.learn.source.unwrap().0;
        self.learn.state_comes(view, source, &self.follow)
            && self.learn.state_opened(view, &[Some(place)], &mut self.follow, self.now).is_some()
    }

    /// Ends the observed view; the processes in `joined` join with the next. Returns whether
    /// this process is admitted.
    fn ends(&mut self, next: View, joined: &[Process]) -> Result<bool, LearnError> {
        let (ballot, trims) = (Ballot { round: 1, leader: crate::Rank(0) }, Default::default());
        let decision = Decision { ballot, next, joined: joined.to_vec(), trims };
        let next = self.follow.end(&decision, &mut self.roster, self.now);
        self.learn.end(&next, &self.roster)
    }
}

#[test]
fn the_next_member_is_asked_when_one_is_slow_dies_or_refuses() {
    let mut case = Case::following(None);
    // The first member is the one at index 9 % 2.
    assert_eq!((case.asks(), case.asks()), (Some(2), None));
    case.now += STATE_WAIT;
    assert_eq!(case.asks(), Some(1));
    case.hear(ControlEvent::Died(MemberId(2))).unwrap();
    assert_eq!(case.asks(), None, "another one was asked");
    let refused = |id| ControlEvent::Refused(Refusal::NoState(MemberId(id)));
    for news in [ControlEvent::Died(MemberId(1)), ControlEvent::Lost(MemberId(2)), refused(1)] {
        let last = case.learn.source.unwrap().0;
        let is_lost = matches!(news, ControlEvent::Lost(_));
        assert!(case.hear(news).is_ok());
        if is_lost {
            // The next regular request is early enough: control messages may repeatedly fail at
            // once.
            assert!(!case.learn.is_due(&mut case.follow, case.now));
            case.now += ASK_EVERY;
        }
        assert!(case.learn.is_due(&mut case.follow, case.now));
        assert_eq!(case.asks(), Some(3 - last.0));
    }
    // The same refusal arrives twice; only then the other member refuses.
    assert!(case.hear(refused(1)).is_ok());
    assert_eq!(case.hear(refused(2)), Err(LearnError::Refused(Refusal::NoState(MemberId(2)))));
    // The state that broke off was that of member 2.
    assert_eq!(Case::following(Some(MemberId(2))).asks(), Some(1));
}

#[test]
fn a_state_that_leaves_a_gap_or_is_of_another_view_is_not_taken() {
    let mut case = Case::following(None);
    case.asks();
    assert!(!case.opened(3, 4), "place 4 was not observed");
    assert_eq!(case.asks(), Some(1));
    assert!(!case.opened(2, 5) && !case.learn.has_state());
    case.learn.state_failed(&mut case.follow, case.now);
    assert_eq!(case.asks(), Some(2));
    assert!(case.opened(3, 5) && case.learn.has_state());
    case.learn.state_failed(&mut case.follow, case.now);
    assert_eq!((case.asks(), case.opened(3, 5)), (None, false), "one is enough");
}

#[test]
fn the_observation_begins_anew_with_a_view_that_comes_before_the_state() {
    let mut case = Case::following(None);
    case.asks();
    assert_eq!(case.ends(view(4, &[1, 2]), &[]), Ok(false));
    assert!(!case.opened(3, 5) && !case.opened(4, 5), "no view is followed");
    assert_eq!(case.arrives(4, &[1, 2]), Ok(true));
    assert_eq!(case.asks(), Some(1));
    assert!(case.opened(4, 5));
}

#[test]
fn it_asks_to_be_let_in_once_it_has_caught_up_and_again_in_each_view() {
    let mut case = Case::following(None);
    case.learn.note_waiting(0);
    assert!(!case.learn.is_catching_up(), "there is no state");
    case.asks();
    case.opened(3, 5);
    case.learn.note_waiting(CAUGHT_UP);
    assert!(case.learn.is_catching_up() && !case.learn.is_due(&mut case.follow, case.now));
    case.learn.note_waiting(CAUGHT_UP - 1);
    assert!(case.learn.is_due(&mut case.follow, case.now) && case.learn.has_asked());
    case.learn.ask(&[MemberId(1)], &mut case.follow, &mut case.roster, case.now).unwrap();
    let wants_in =
        |order| matches!(order, RosterOrder::Near { message: ControlMessage::Ask { observer: false, .. }, .. });
    assert!(core::iter::from_fn(|| case.roster.next_order()).any(wants_in));
    assert_eq!(case.ends(view(4, &[1, 2]), &[]), Ok(false));
    assert_eq!(case.arrives(4, &[1, 2]), Ok(false), "what was kept is behind the state");
    assert!(!case.learn.has_asked() && case.learn.is_due(&mut case.follow, case.now) && case.learn.has_asked());
}

/// Track record 122: an attempt gave up that was admitted in place of the previous attempt with
/// its id.
#[test]
fn the_admission_of_a_process_with_its_id_is_none() {
    let mut case = Case::learned();
    let other = Process { nonce: 32, ..ME };
    assert_eq!(case.ends(view(4, &[1, 2, 9]), &[other]), Ok(false));
    let mut case = Case::learned();
    assert_eq!(case.ends(view(4, &[1, 2, 9]), &[ME]), Ok(true));
    let mut case = Case::following(None);
    assert_eq!(case.ends(view(4, &[1, 2, 9]), &[other]), Ok(false), "it follows until that has gone");
    let mut case = Case::following(None);
    case.asks();
    assert!(case.opened(3, 5));
    assert_eq!(case.ends(view(4, &[1, 2, 9]), &[ME]), Ok(false), "the state is on its way");
    assert_eq!(Case::learned().ends(view(4, &[]), &[]), Err(LearnError::GroupGone));
}

/// Track record 121: a gap between the state and the messages after it went unnoticed if the
/// wait for a view ended between two checks.
#[test]
fn a_view_that_is_passed_over_behind_the_state_ends_the_attempt() {
    let mut case = Case::learned();
    case.ends(view(4, &[1, 2, 5]), &[]).unwrap();
    case.hear_of(6, &[1, 2]);
    assert_eq!(case.learn.check(&case.follow, &case.roster, case.now), Ok(()));
    case.now += Duration::from_secs(1);
    assert_eq!(case.learn.check(&case.follow, &case.roster, case.now), Err(LearnError::PassedOver));
    assert_eq!(case.arrives(6, &[1, 2]), Err(LearnError::PassedOver));
    // Without the state it is a fresh start.
    let mut case = Case::following(None);
    case.ends(view(4, &[1, 2, 5]), &[]).unwrap();
    case.hear_of(6, &[1, 2]);
    case.now += Duration::from_secs(1);
    assert_eq!(case.learn.check(&case.follow, &case.roster, case.now), Ok(()));
    assert_eq!(case.arrives(6, &[1, 2]), Ok(true));
}

#[test]
fn messages_that_the_state_contains_are_not_applied_again() {
    let spec = SubgroupSpec { senders: [0, 1].map(Rank).to_vec(), ..SubgroupSpec::of_everyone("a") };
    let view = Arc::new(View { subgroups: vec![spec.clone(), spec].into(), ..view(3, &[1, 2]) });
    let mut restored = Restored::new(Arc::clone(&view), vec![Some(5), None]);
    let lacks =
        |restored: &Restored, subgroup, sender, round| restored.lacks(SubgroupId(subgroup), Rank(sender), round);
    // Sequence numbers 4 and 5.
    assert!(!lacks(&restored, 0, 0, 2) && lacks(&restored, 0, 1, 2) && lacks(&restored, 1, 0, 0));
    restored.begin(Arc::new(View { id: ViewId(4), ..(*view).clone() }));
    assert!(lacks(&restored, 0, 0, 0) && restored.view().id == ViewId(4));
}

#[test]
fn only_a_founder_on_one_host_begins_without_the_state() {
    let created = |id, members: &[u64]| {
        let (learn, mut follow) = (Learn::new(None, Time(0)), Follow::new(4, 2, Time(0)));
        let mut roster: Roster<()> = Roster::new(me(9), ME.nonce, None);
        let news = ControlEvent::View { incarnation: GROUP, view: view(id, members), decision: vec![] };
        follow.hear(news, &mut roster, Time(0)).unwrap();
        learn.created(&follow, &roster).is_some()
    };
    assert!(created(1, &[1, 9]) && !created(1, &[1, 2]) && !created(2, &[1, 9]));
}

#[test]
fn five_attempts_fail_but_being_left_out_is_no_failure() {
    let mut attempts = Attempts::default();
    for error in [LearnError::Source, LearnError::Lapped, LearnError::PassedOver, LearnError::GroupGone] {
        assert!(attempts.try_again(error));
        assert!((0..9).all(|_| attempts.try_again(LearnError::LeftOut)));
    }
    assert!(!attempts.try_again(LearnError::CutOff));
    assert!(!Attempts::default().try_again(LearnError::Refused(Refusal::NoState(MemberId(2)))));
}

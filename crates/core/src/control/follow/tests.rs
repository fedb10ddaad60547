use super::*;
use crate::control::{Birth, ControlMessage, Me, RosterOrder};
use crate::membership::Ballot;
use alloc::vec;

const MS: Duration = Duration::from_millis(1);
const GROUP: u128 = 7;

fn me(id: u64) -> Me {
    Me { id: MemberId(id), pid: id as u32, birth: Birth::default() }
}

fn view(id: u64, members: &[u64]) -> View {
    let members: Vec<MemberId> = members.iter().copied().map(MemberId).collect();
    View { id: ViewId(id), members, nonvoters: vec![], subgroups: Default::default() }
}

fn told(id: u64, members: &[u64]) -> ControlEvent {
    ControlEvent::View { incarnation: GROUP, view: view(id, members), decision: vec![] }
}

fn decision(id: u64, members: &[u64]) -> Decision {
    let (ballot, joined, trims) = (Ballot { round: 1, leader: crate::Rank(0) }, vec![], Default::default());
    Decision { ballot, next: view(id, members), joined, trims }
}

/// Process 9 of the members' host.
struct Case {
    follow: Follow,
    roster: Roster<u64>,
    now: Time,
}

impl Case {
    fn new() -> Case {
        let now = Time(0);
        Case { follow: Follow::new(4, 1, now), roster: Roster::new(me(9), 1, None), now }
    }

    fn hear(&mut self, news: ControlEvent) -> Result<Option<ControlEvent>, FollowError> {
        self.follow.hear(news, &mut self.roster, self.now)
    }

    /// These members hand over their rows of a view.
    fn hand_over(&mut self, view: u64, members: &[u64]) {
        for id in members {
            self.roster.handed_over(GROUP, ViewId(view), me(*id), *id);
        }
    }

    fn look(&mut self) -> Option<u64> {
        Some(self.follow.look(&mut self.roster, self.now)?.0.id.0)
    }

    fn arrive(&mut self, rows: RowsState) -> Option<ViewStart> {
        self.follow.arrive(rows, &mut self.roster, self.now)
    }

    /// Follows a view of members 1 and 2.
    fn following(id: u64) -> Case {
        let mut case = Case::new();
        case.hear(told(id, &[1, 2])).unwrap();
        case.hand_over(id, &[1, 2]);
        assert_eq!((case.look(), case.arrive(RowsState::Complete)), (Some(id), Some(ViewStart::Newest)));
        case
    }

    fn end(&mut self, next: u64, members: &[u64]) {
        self.follow.end(&decision(next, members), &mut self.roster, self.now);
    }
}

#[test]
fn a_view_begins_once_all_of_its_rows_are_here() {
    let mut case = Case::new();
    case.hear(told(3, &[1, 2])).unwrap();
    assert_eq!(case.follow.incarnation(), GROUP);
    case.hand_over(3, &[1]);
    assert_eq!(case.look(), None);
    case.hand_over(3, &[2]);
    let (view, rows) = case.follow.look(&mut case.roster, case.now).unwrap();
    assert_eq!((view.id, rows), (ViewId(3), vec![Some(1), Some(2)]));
    assert_eq!((case.look(), case.arrive(RowsState::Filling)), (None, None));
    assert!(!case.follow.is_following());
    assert_eq!(case.arrive(RowsState::Complete), Some(ViewStart::Newest));
    assert!(case.follow.is_following() && case.follow.arriving().is_none());
}

#[test]
fn the_next_view_is_followed_from_its_beginning() {
    let mut case = Case::following(3);
    case.end(4, &[1, 2, 5]);
    assert!(!case.follow.is_following() && case.follow.is_due(case.now), "newcomers have to be asked");
    case.hand_over(4, &[1, 2, 5]);
    assert_eq!((case.look(), case.arrive(RowsState::Complete)), (Some(4), Some(ViewStart::Next)));
}

#[test]
fn a_view_that_is_passed_over_is_waited_for_no_more() {
    let mut case = Case::following(3);
    case.end(4, &[1, 2, 5]);
    case.hand_over(4, &[1, 2]);
    case.hear(told(6, &[1, 2])).unwrap();
    case.hand_over(6, &[1, 2]);
    assert!(!case.follow.is_passed_over(&case.roster, case.now) && case.look().is_none());
    case.now += PARTS_WAIT;
    assert!(case.follow.is_passed_over(&case.roster, case.now));
    assert_eq!((case.look(), case.arrive(RowsState::Complete)), (Some(6), Some(ViewStart::Newest)));
    // A row that comes in time is worth the wait.
    let mut case = Case::following(3);
    case.end(4, &[1, 2, 5]);
    case.hear(told(6, &[1, 2])).unwrap();
    case.hand_over(4, &[1, 2, 5]);
    case.now += PARTS_WAIT;
    assert!(!case.follow.is_passed_over(&case.roster, case.now));
    assert_eq!(case.look(), Some(4));
}

/// Its row would be missing for ever.
#[test]
fn no_view_of_its_own_is_followed() {
    let mut case = Case::new();
    case.hear(told(3, &[1, 9])).unwrap();
    case.hand_over(3, &[1, 9]);
    assert_eq!(case.look(), None);
}

#[test]
fn another_group_of_the_same_name_is_not_followed() {
    let mut case = Case::following(3);
    let other = ControlEvent::View { incarnation: 8, view: view(1, &[4]), decision: vec![] };
    assert_eq!(case.hear(other), Err(FollowError::GroupGone));
    let settings = SharedSettings::new([("window".into(), "3".into())]);
    let other = |incarnation| Refusal::Config { settings: settings.clone(), incarnation };
    assert_eq!(case.hear(ControlEvent::Refused(other(5))), Err(FollowError::Refused(other(5))));
    assert_eq!(case.hear(ControlEvent::Refused(other(0))), Ok(None), "the group does not exist yet");
    assert_eq!(case.follow.take_differing(), Some(settings.clone()));
    let no_state = ControlEvent::Refused(Refusal::NoState(MemberId(2)));
    assert_eq!(case.hear(no_state.clone()), Ok(Some(no_state)), "that is for learners to judge");
}

#[test]
fn it_asks_while_it_follows_no_view_or_wants_in() {
    let asked = |case: &mut Case, wants_in| {
        while case.roster.next_order().is_some() {}
        case.follow.ask(&[MemberId(1)], wants_in, &mut case.roster, case.now).unwrap();
        let orders: Vec<RosterOrder> = core::iter::from_fn(|| case.roster.next_order()).collect();
        orders.into_iter().find_map(|order| match order {
            RosterOrder::Near { message: ControlMessage::Ask { observer, .. }, .. } => Some(observer),
            _ => None,
        })
    };
    let mut case = Case::new();
    assert!(case.follow.is_due(case.now));
    assert_eq!(asked(&mut case, false), Some(true));
    assert!(!case.follow.is_due(case.now + ASK_EVERY - MS) && case.follow.is_due(case.now + ASK_EVERY));
    let mut case = Case::following(3);
    assert_eq!((asked(&mut case, false), asked(&mut case, true)), (None, Some(false)));
    assert!(!case.follow.is_due(case.now));
    case.hear(ControlEvent::Died(MemberId(77))).unwrap();
    assert!(!case.follow.is_due(case.now), "it was no member");
    case.hear(ControlEvent::Died(MemberId(2))).unwrap();
    assert!(case.follow.is_due(case.now), "it may have been the last one");
    // Track record 124: a group was followed whose members were all dead, beside another one of
    // its name.
    assert_eq!(asked(&mut case, false), Some(true));
    let gone = case.follow.ask(&[], false, &mut case.roster, case.now);
    assert_eq!(gone, Err(FollowError::GroupGone));
}

#[test]
fn a_lost_stream_counts_after_a_while_unless_the_view_changes() {
    let mut case = Case::following(3);
    case.follow.note_cut(case.now);
    assert!(!case.follow.is_cut_off(case.now + CUT_MAX) && case.follow.is_cut_off(case.now + CUT_MAX + MS));
    case.end(4, &[1, 2]);
    assert!(!case.follow.is_cut_off(case.now + CUT_MAX + MS));
}

#[test]
fn rows_that_never_fill_are_given_up() {
    for (rows, wait) in [(RowsState::Broken, Duration::ZERO), (RowsState::Filling, CUT_MAX + MS)] {
        let mut case = Case::new();
        case.hear(told(3, &[1, 2])).unwrap();
        case.hand_over(3, &[1, 2]);
        case.follow.ask(&[MemberId(1)], false, &mut case.roster, case.now).unwrap();
        assert_eq!(case.look(), Some(3));
        case.now += wait;
        assert_eq!(case.arrive(rows), None);
        assert!(case.follow.arriving().is_none() && case.follow.is_due(case.now));
    }
}

/// Track record 120: the rows of a view whose stream had broken were taken no more, so it was
/// followed only if the members changed it.
#[test]
fn a_view_whose_rows_were_given_up_begins_when_they_come_again() {
    let mut first = Case::new();
    first.hear(told(3, &[1, 2])).unwrap();
    let mut next = Case::following(3);
    next.end(4, &[1, 2]);
    for (mut case, id, start) in [(first, 3, ViewStart::Newest), (next, 4, ViewStart::Next)] {
        case.hand_over(id, &[1, 2]);
        assert_eq!((case.look(), case.arrive(RowsState::Broken)), (Some(id), None));
        case.hear(told(id, &[1, 2])).unwrap();
        case.hand_over(id, &[1, 2]);
        assert_eq!((case.look(), case.arrive(RowsState::Complete)), (Some(id), Some(start)));
        // Memory that arrives after its view has begun is not kept.
        case.hand_over(id, &[1]);
        assert!(!case.roster.has_parts(ViewId(id), MemberId(1)));
    }
}

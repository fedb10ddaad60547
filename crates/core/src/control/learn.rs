//! Joining with the state of the group's application, without making the group wait for it.
//!
//! A learner first [follows](Follow) the order from outside. Then a member sends its state as it is
//! at that moment. The later messages come in order. Once the learner has nearly caught up, it asks
//! for admission. It follows the view in which that is decided to its end, as the members do. So it
//! begins the next view with exactly the state that the members have.
//!
//! [`Learn`] decides which member is asked for the state, when the next one is asked, and when the
//! process asks for admission. [`Attempts`] decides which failures lead to another attempt. The
//! driver holds the state and the messages. Each attempt is made by a process with its own nonce,
//! so a view that admits the previous attempt does not admit this one.
use super::{ControlEvent, ControlMessage, Follow, FollowError, Refusal, Request, Roster, ViewStart};
use crate::ids::{MemberId, Rank, SubgroupId, Time, ViewId};
use crate::view::View;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

/// The longest time until the state of a member begins to come.
pub const STATE_WAIT: Duration = Duration::from_secs(2);
/// A learner has caught up when fewer messages than this wait to be applied.
pub const CAUGHT_UP: usize = 1000;
/// The number of consecutive failed attempts that is an error.
const ATTEMPTS_MAX: u32 = 5;

/// The reason why an attempt to learn has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LearnError {
    /// All members of the group are gone.
    GroupGone,
    /// A member refuses this process, or no member can send a state.
    Refused(Refusal),
    /// The stream from a member is lost, and the members have not changed the view.
    CutOff,
    /// The group has passed over a view between the state and the current view.
    PassedOver,
    /// Messages after the state were overwritten before they were read.
    Lapped,
    /// The transfer of the state broke off.
    Source,
    /// The group admitted this process, and continued without it before the process's first view
    /// began.
    LeftOut,
}

impl From<FollowError> for LearnError {
    fn from(error: FollowError) -> LearnError {
        match error {
            FollowError::GroupGone => LearnError::GroupGone,
            FollowError::Refused(why) => LearnError::Refused(why),
        }
    }
}

/// The attempts of a process to join with the state.
#[derive(Debug, Default)]
pub struct Attempts {
    failed: u32,
}

impl Attempts {
    /// Notes that an attempt has failed. Returns whether another one is made. Failures at the
    /// source and lost races with the group count. A process that was left out waits for the group
    /// like any joiner, so that does not count.
    pub fn try_again(&mut self, error: LearnError) -> bool {
        match error {
            LearnError::Refused(_) => return false,
            LearnError::LeftOut => return true,
            _ => self.failed += 1,
        }
        self.failed < ATTEMPTS_MAX
    }
}

/// A process that learns the state of the group's application.
#[derive(Debug)]
pub struct Learn {
    /// The member that was asked for the state last, and the time until which it may begin to send
    /// it.
    source: Option<(MemberId, Time)>,
    /// The members that can't send a state.
    refused: BTreeSet<MemberId>,
    has_state: bool,
    has_caught_up: bool,
    /// True if it has asked for admission in this view.
    has_asked: bool,
    /// The first sequence number that was observed, by subgroup of the view in which the
    /// observation began.
    start: Vec<u64>,
}

impl Learn {
    /// Returns an attempt. If the state of member `failed` broke off before, the attempt asks the
    /// member after it first.
    pub fn new(failed: Option<MemberId>, now: Time) -> Learn {
        let (refused, has_state, has_caught_up, has_asked, start) = Default::default();
        Learn { source: failed.map(|id| (id, now)), refused, has_state, has_caught_up, has_asked, start }
    }

    /// True if the state is here, or begins to arrive.
    pub fn has_state(&self) -> bool {
        self.has_state
    }

    /// True if this process has asked for admission in this view.
    pub fn has_asked(&self) -> bool {
        self.has_asked
    }

    /// True if the number of [waiting](Self::note_waiting) messages matters.
    pub fn is_catching_up(&self) -> bool {
        self.has_state && !self.has_caught_up
    }

    /// Notes the number of messages that wait to be applied. The state is restored.
    pub fn note_waiting(&mut self, messages: usize) {
        self.has_caught_up |= self.has_state && messages < CAUGHT_UP;
    }

    /// True if it wants admission. A process between two views asks for the rows of the next one:
    /// newcomers have yet to send theirs.
    fn wants_in(&self, follow: &Follow) -> bool {
        self.has_state && self.has_caught_up && follow.is_following()
    }

    /// True if it is time to [ask](Self::ask).
    pub fn is_due(&mut self, follow: &mut Follow, now: Time) -> bool {
        if self.wants_in(follow) && !core::mem::replace(&mut self.has_asked, true) {
            follow.ask_again();
        }
        follow.is_due(now)
    }

    /// Asks for whatever is missing: the view, its rows, the state, or admission. `here` are the
    /// members on this host, as listed in its directory.
    ///
    /// # Errors
    /// [`LearnError::GroupGone`].
    pub fn ask<W>(
        &mut self,
        here: &[MemberId],
        follow: &mut Follow,
        roster: &mut Roster<W>,
        now: Time,
    ) -> Result<(), LearnError> {
        follow.ask(here, self.wants_in(follow), roster, now)?;
        if self.has_state || self.source.is_some_and(|(_, until)| now < until) {
            return Ok(());
        }
        let Some(view) = follow.view().filter(|_| follow.is_following()) else { return Ok(()) };
        // The first member depends on this process's id, because many learners may come at once.
        // Then the next one follows.
        let (ids, from) = (&view.members, roster.me());
        let last = self.source.and_then(|(id, _)| ids.iter().position(|member| *member == id));
        let next = last.map_or(from.0, |last| last as u64 + 1) % ids.len() as u64;
        let source = ids[next as usize];
        self.source = Some((source, now + STATE_WAIT));
        roster.post(source, ControlMessage::Request { from, reply: 0, what: Request::State });
        Ok(())
    }

    /// Stops waiting for the state of the member that was asked.
    fn ask_the_next(&mut self, follow: &mut Follow, now: Time) {
        follow.ask_again();
        self.give_up_source(now);
    }

    fn give_up_source(&mut self, now: Time) {
        if let Some((_, until)) = &mut self.source {
            *until = now;
        }
    }

    /// Takes in a control event. Returns it if it concerns neither the views nor the state.
    ///
    /// # Errors
    /// [`LearnError::Refused`], [`LearnError::GroupGone`].
    pub fn hear<W>(
        &mut self,
        news: ControlEvent,
        follow: &mut Follow,
        roster: &mut Roster<W>,
        now: Time,
    ) -> Result<Option<ControlEvent>, LearnError> {
        let news = follow.hear(news, roster, now)?;
        let source = self.source.map(|(id, _)| id);
        match news {
            Some(ControlEvent::Died(id)) if Some(id) == source => self.state_failed(follow, now),
            // The next control message to that member may also fail at once.
            Some(ControlEvent::Lost(id)) if Some(id) == source => self.give_up_source(now),
            Some(ControlEvent::Refused(Refusal::NoState(id))) => {
                self.refused.insert(id);
                let has_refused = |view: &Arc<View>| view.members.iter().all(|id| self.refused.contains(id));
                if !self.has_state && follow.view().is_none_or(has_refused) {
                    return Err(LearnError::Refused(Refusal::NoState(id)));
                }
                if Some(id) == source {
                    self.state_failed(follow, now);
                }
                return Ok(None);
            }
            _ => {}
        }
        Ok(news)
    }

    /// Notes that the state of the member `from` in `view` begins to arrive. Returns whether it is
    /// wanted. If so, no other member is asked.
    pub fn state_comes(&mut self, view: ViewId, from: MemberId, follow: &Follow) -> bool {
        let is_wanted = self.wants_state_of(view, follow).is_some_and(|view| view.rank_of(from).is_some());
        if let Some((source, _)) = self.source.as_mut().filter(|_| is_wanted) {
            *source = from;
        }
        is_wanted && self.source.is_some()
    }

    /// Returns the view `id` if it is the observed one and a state from it is still missing.
    fn wants_state_of<'f>(&self, id: ViewId, follow: &'f Follow) -> Option<&'f Arc<View>> {
        let view = follow.view().filter(|_| follow.is_following() && !self.has_state);
        view.filter(|view| view.id == id)
    }

    /// Takes in the head of a state of `view`, which says how much of each subgroup's order the
    /// state contains. Returns the view if the state is taken.
    ///
    /// The state is not taken if its member had not delivered up to the start of this process's
    /// observation, or if the view has ended. Then another member is asked.
    pub fn state_opened(
        &mut self,
        view: ViewId,
        sequences: &[Option<u64>],
        follow: &mut Follow,
        now: Time,
    ) -> Option<Arc<View>> {
        // The messages between the state and the start of the observation would be missing.
        let reaches = sequences.iter().zip(&self.start).all(|(place, start)| place.is_none_or(|place| place >= *start));
        let view = self.wants_state_of(view, follow).filter(|_| reaches).map(Arc::clone);
        match view {
            Some(view) => {
                self.has_state = true;
                Some(view)
            }
            None => {
                self.state_failed(follow, now);
                None
            }
        }
    }

    /// Notes that the expected state does not come.
    pub fn state_failed(&mut self, follow: &mut Follow, now: Time) {
        if !self.has_state {
            self.ask_the_next(follow, now);
        }
    }

    /// Fails if the group has passed over a view after the state. Otherwise the attempt continues.
    ///
    /// # Errors
    /// [`LearnError::PassedOver`].
    pub fn check<W>(&self, follow: &Follow, roster: &Roster<W>, now: Time) -> Result<(), LearnError> {
        match self.has_state && follow.is_passed_over(roster, now) {
            true => Err(LearnError::PassedOver),
            false => Ok(()),
        }
    }

    /// Notes that the observation of a view begins. `sequences` holds the number of earlier messages
    /// in each subgroup's order. Returns whether messages that were kept for the state are now
    /// useless.
    ///
    /// # Errors
    /// [`LearnError::PassedOver`].
    pub fn begin(
        &mut self,
        start: ViewStart,
        sequences: Vec<u64>,
        follow: &mut Follow,
        now: Time,
    ) -> Result<bool, LearnError> {
        self.has_asked = false;
        if self.has_state {
            return if start == ViewStart::Next { Ok(false) } else { Err(LearnError::PassedOver) };
        }
        self.start = sequences;
        self.ask_the_next(follow, now);
        Ok(true)
    }

    /// Returns the first view of the group if this process is one of its founders on one host: no
    /// other process is a member without the state. Between hosts only the outcome of the bootstrap
    /// makes a process a founder.
    pub fn created<W>(&self, follow: &Follow, roster: &Roster<W>) -> Option<View> {
        let may_found = !self.has_state && !follow.is_following() && roster.book().is_none();
        let is_mine = |view: &&View| may_found && view.id == ViewId(1) && view.rank_of(roster.me()).is_some();
        follow.told().filter(is_mine).cloned()
    }

    /// Notes that the observed view has ended, and that `next` follows. Returns whether `next`
    /// admits this process, which then begins it as a member.
    ///
    /// # Errors
    /// [`LearnError::GroupGone`] if the last member has left.
    pub fn end<W>(&self, next: &View, roster: &Roster<W>) -> Result<bool, LearnError> {
        if next.members.is_empty() {
            return Err(LearnError::GroupGone);
        }
        // Before it caught up it had asked only as a founder. Then it begins no view: the members
        // continue without it.
        Ok(self.has_caught_up && roster.joins_with(next.id))
    }
}

/// A state that was restored, and how much of the group's order it contains.
#[derive(Clone, Debug)]
pub struct Restored {
    view: Arc<View>,
    /// The number of contained messages, by subgroup of the view in which the state was taken,
    /// while that view is observed.
    sequences: Vec<Option<u64>>,
}

impl Restored {
    /// Returns a state that was taken in `view` and contains the first `sequences` messages of each
    /// subgroup's order.
    pub fn new(view: Arc<View>, sequences: Vec<Option<u64>>) -> Restored {
        Restored { view, sequences }
    }

    /// Returns the view of the messages that arrive.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Notes that the next view has begun. All its messages come after the state.
    pub fn begin(&mut self, view: Arc<View>) {
        self.view = view;
        self.sequences.clear();
    }

    /// True if the message of this round comes after the state, so it has to be applied.
    pub fn lacks(&self, subgroup: SubgroupId, sender: Rank, round: u64) -> bool {
        let senders = &self.view.subgroups[subgroup.index()].senders;
        let place = senders.binary_search(&sender).ok().map(|rank| round * senders.len() as u64 + rank as u64);
        let known = self.sequences.get(subgroup.index()).copied().flatten().zip(place);
        known.is_none_or(|(contained, place)| place >= contained)
    }
}

#[cfg(test)]
mod tests {
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
                RosterOrder::Near { to, message: ControlMessage::Request { what: Request::State, .. }, .. } => {
                    Some(to.0)
                }
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
}

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
mod tests;

//! Following a group from outside, from view to view: what observers and learners have in common.
//!
//! [`Follow`] asks the members for the newest view and for their memory in it, and goes with them
//! to the next view. It says which view is followed; the driver holds the rows, reads them with an
//! [`Observer`](crate::Observer), and reports what it finds. No member waits for a process that
//! follows: if the members pass over a view before their rows are here, it continues with the
//! newest.
//!
//! One view leads to the next like this:
//!
//! 1. The observer has yielded everything of the view: [`Follow::end`].
//! 2. [`Follow::look`] says when the rows of all members are here that belong to the next view, or
//!    to the newest. The driver maps them.
//! 3. [`Follow::arrive`] says whether they are complete, and how the view begins: [`ViewStart`].
use super::{ASK_EVERY, ControlEvent, INSTALL_LOOK, Question, Refusal, Roster, SharedSettings};
use crate::ids::{MemberId, Time, ViewId};
use crate::membership::Decision;
use crate::view::View;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

/// The number of members on its host that a process asks at once, beside those whose rows are
/// missing. Each of them answers with all that it knows of the view, and hundreds of processes may
/// ask.
const ASKED_AT_ONCE: usize = 3;
/// A process waits one more [`ASK_EVERY`] between two questions for each so many members that it
/// asks, and for each so many processes that wait or are members, as all of them may ask. Up to a
/// maximum.
const ASKED_PER_PAUSE: usize = 16;
const PAUSES_MAX: usize = 8;
/// The number of members whose rows are missing that are asked once more, in turn. The memory of
/// most is only not made yet, and they remember who has asked.
const ASKED_AGAIN: usize = 8;
/// After so long without a word from other hosts the group counts as gone.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long a view may continue after the stream from one of its members was lost.
const CUT_MAX: Duration = Duration::from_secs(3);
/// How long the rows of a view may be on their way while the members are in a newer one already.
const PARTS_WAIT: Duration = Duration::from_millis(200);

/// How a view that is followed begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ViewStart {
    /// It is the one behind the last, and is followed from its beginning.
    Next,
    /// It is the newest, and is followed from its present.
    Newest,
}

/// Why the group can't be followed any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FollowError {
    /// All members of the group are gone.
    GroupGone,
    /// A member refuses this process.
    Refused(Refusal),
}

/// The rows of a view that is about to begin, as the driver finds them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowsState {
    /// All of them are here.
    Complete,
    /// Some have yet to fill.
    Filling,
    /// A stream that was to fill one has ended.
    Broken,
}

/// A process that follows a group.
#[derive(Debug)]
pub struct Follow {
    digest: u64,
    /// How many members it would create the group with; 1 if it minds no number.
    founders: u32,
    /// The group that is followed; 0: not known yet.
    incarnation: u128,
    followed: Option<FollowedView>,
    /// The view that is about to begin, and since when its rows are here as far as they are.
    arriving: Option<(Arc<View>, Time)>,
    /// The newest view that a member has told of, if it is newer than the one that is followed.
    told: Option<View>,
    asked: Option<Time>,
    /// The time to the next question.
    pause: Duration,
    /// The number of questions before. It is the turn of other members each time.
    questions: usize,
    /// The newest view whose rows all members were asked for that had not sent theirs.
    asked_for: ViewId,
    /// The number of processes that were members or waited, as a member has told.
    present: usize,
    /// When streams were made last, by view. An attempt may fail at once, for want of descriptors
    /// say.
    dialled: BTreeMap<ViewId, Time>,
    /// When anything was heard last.
    heard: Time,
    /// The settings of a process that waits to create the group with other settings than this one,
    /// until they are taken.
    differing: Option<SharedSettings>,
}

/// The newest view that has begun.
#[derive(Debug)]
struct FollowedView {
    view: Arc<View>,
    /// Once it is followed to its end: the one that was decided on, and since when that is waited
    /// for.
    next: Option<(Arc<View>, Time)>,
    /// Since when a member's stream has been down.
    cut: Option<Time>,
    /// A member has ended: all may have, and another group of this name may have been created
    /// since.
    is_doubtful: bool,
}

impl Follow {
    /// A process that shows the members `digest` as its configuration's, and would create the group
    /// with so many.
    pub fn new(digest: u64, founders: u32, now: Time) -> Follow {
        let (followed, arriving, told, asked, dialled) = Default::default();
        Follow {
            digest,
            founders,
            incarnation: 0,
            followed,
            arriving,
            told,
            asked,
            pause: ASK_EVERY,
            questions: 0,
            asked_for: ViewId(0),
            present: 0,
            dialled,
            heard: now,
            differing: None,
        }
    }

    /// The group that is followed; 0: not known yet.
    pub fn incarnation(&self) -> u128 {
        self.incarnation
    }

    /// Whether a view is being followed; if not, the next one has yet to begin.
    pub fn is_following(&self) -> bool {
        self.followed.as_ref().is_some_and(|followed| followed.next.is_none())
    }

    /// The newest view that has begun.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.followed.as_ref().map(|followed| &followed.view)
    }

    /// The view behind the one that was followed to its end.
    pub fn next(&self) -> Option<&Arc<View>> {
        self.followed.as_ref().and_then(|followed| Some(&followed.next.as_ref()?.0))
    }

    /// The newest view that a member has told of and that has not begun here.
    pub fn told(&self) -> Option<&View> {
        self.told.as_ref()
    }

    /// Whether it is time to [ask](Self::ask).
    pub fn is_due(&self, now: Time) -> bool {
        self.asked.is_none_or(|at| now.since(at) >= self.pause)
    }

    /// Asks at the next opportunity, whenever it did last.
    pub fn ask_again(&mut self) {
        self.asked = None;
    }

    /// Asks for the newest view and its members' rows, if none is being followed, or not for
    /// certain; or to be let in, if it `wants_in`. `here` are the members on this host, by its
    /// directory.
    ///
    /// # Errors
    /// [`FollowError::GroupGone`].
    pub fn ask<W>(
        &mut self,
        here: &[MemberId],
        wants_in: bool,
        roster: &mut Roster<W>,
        now: Time,
    ) -> Result<(), FollowError> {
        self.asked = Some(now);
        let is_silent = self.incarnation != 0 && now.since(self.heard) > SILENCE_MAX;
        if here.is_empty() && (roster.book().is_none() || is_silent) {
            return Err(FollowError::GroupGone);
        }
        let is_certain =
            self.followed.as_ref().is_some_and(|followed| followed.next.is_none() && !followed.is_doubtful);
        if wants_in || !is_certain {
            let follows = self.view().filter(|_| wants_in).map_or(ViewId(0), |view| view.id);
            let question = Question { config: self.digest, members: self.founders, observer: !wants_in, follows };
            roster.ask_afar(question, now);
            let asked = self.next_asked(here, wants_in, roster);
            let pauses = (asked.len().max(self.present) / ASKED_PER_PAUSE).clamp(1, PAUSES_MAX);
            self.pause = ASK_EVERY * pauses as u32;
            self.questions += 1;
            for member in asked {
                roster.ask(member, question, now);
            }
        }
        Ok(())
    }

    /// Returns the members to ask of those that are `here`: those of the lowest ranks, because the
    /// leader admits processes; a few in turn, because any of them may hang; and those whose rows
    /// are missing, all of them once and then some in turn.
    fn next_asked<W>(&mut self, here: &[MemberId], wants_in: bool, roster: &Roster<W>) -> BTreeSet<MemberId> {
        // Processes that ask at once begin with different members.
        let first = roster.me().0 as usize;
        let turn = |of: &[MemberId], many: usize| -> Vec<MemberId> {
            let from = first + self.questions * many;
            (0..of.len().min(many)).map(|i| of[(from + i) % of.len()]).collect()
        };
        let in_turn = turn(here, ASKED_AT_ONCE);
        let next = self.next().map(Arc::as_ref);
        let newest = self.told.as_ref().or(next).or(self.view().map(Arc::as_ref));
        let awaited = next.or(self.told.as_ref()).filter(|_| !wants_in);
        let known: BTreeSet<MemberId> = here.iter().copied().collect();
        let listed = |view: &View| view.members.iter().copied().filter(|id| known.contains(id)).collect::<Vec<_>>();
        let first_ranks = newest.into_iter().flat_map(|view| listed(view).into_iter().take(ASKED_AT_ONCE));
        let missing_of = |view: &View| -> Vec<MemberId> {
            listed(view).into_iter().filter(|id| !roster.has_parts(view.id, *id)).collect()
        };
        let (of, missing) = awaited.map_or((ViewId(0), Vec::new()), |view| (view.id, missing_of(view)));
        let missing = if of > self.asked_for { missing } else { turn(&missing, ASKED_AGAIN) };
        let asked = in_turn.into_iter().chain(first_ranks).chain(missing).collect();
        self.asked_for = self.asked_for.max(of);
        asked
    }

    /// Takes the settings of a process that waits to create the group with other settings.
    pub fn take_differing(&mut self) -> Option<SharedSettings> {
        self.differing.take()
    }

    /// Notes that something has come from a member.
    pub fn note_life(&mut self, now: Time) {
        self.heard = now;
    }

    /// Takes in what has happened. Returns news that is not about the views alone.
    ///
    /// # Errors
    /// [`FollowError::Refused`]; [`FollowError::GroupGone`] if it is another group of the same name
    /// by now.
    pub fn hear<W>(
        &mut self,
        news: ControlEvent,
        roster: &mut Roster<W>,
        now: Time,
    ) -> Result<Option<ControlEvent>, FollowError> {
        self.note_life(now);
        match news {
            // The group may yet be created, with the settings of this process.
            ControlEvent::Refused(Refusal::Config { settings, incarnation: 0 }) => {
                self.differing = Some(settings);
                return Ok(None);
            }
            // The processes that wait to create it may have the wrong clocks.
            ControlEvent::Refused(Refusal::Clock(skew)) if !skew.is_running => return Ok(None),
            ControlEvent::Refused(why) if !matches!(why, Refusal::NoState(_)) => return Err(FollowError::Refused(why)),
            ControlEvent::View { incarnation, view, .. } => {
                self.hear_of(incarnation, view, roster)?;
                return Ok(None);
            }
            ControlEvent::Waits { ref present, .. } => self.present = present.len(),
            ControlEvent::Died(id) => {
                // It may have been the last one. Members may tell again and again of other
                // processes that have ended.
                if let Some(followed) = self.followed.as_mut().filter(|followed| followed.view.rank_of(id).is_some()) {
                    followed.is_doubtful = true;
                    self.ask_again();
                }
            }
            _ => {}
        }
        Ok(Some(news))
    }

    fn hear_of<W>(&mut self, incarnation: u128, view: View, roster: &mut Roster<W>) -> Result<(), FollowError> {
        if self.incarnation == 0 {
            self.incarnation = incarnation;
            roster.set_incarnation(incarnation);
        }
        if incarnation != self.incarnation {
            // All of the group that was followed are dead, and another has been created.
            return Err(FollowError::GroupGone);
        }
        let arriving = self.arriving.as_ref().map(|(view, _)| view.id);
        let newest = self.told.as_ref().map(|told| told.id).max(self.view().map(|view| view.id)).max(arriving);
        if newest.is_none_or(|newest| newest < view.id) {
            self.told = Some(view);
            // The rows that are missing are known now.
            self.ask_again();
        }
        Ok(())
    }

    /// A stream from a member of the view that is followed has ended.
    pub fn note_cut(&mut self, now: Time) {
        if let Some(followed) = &mut self.followed {
            followed.cut.get_or_insert(now);
        }
    }

    /// Whether a member's stream has ended, and no view without it has come since.
    pub fn is_cut_off(&self, now: Time) -> bool {
        let is_cut = |followed: &FollowedView| {
            followed.next.is_none() && followed.cut.is_some_and(|since| now.since(since) > CUT_MAX)
        };
        self.followed.as_ref().is_some_and(is_cut)
    }

    /// Whether the members are in a newer view than the one that comes next, and the rows of that
    /// one are not here.
    pub fn is_passed_over<W>(&self, roster: &Roster<W>, now: Time) -> bool {
        let Some((next, since)) = self.followed.as_ref().and_then(|followed| followed.next.as_ref()) else {
            return false;
        };
        let is_newer = self.told.as_ref().is_some_and(|told| told.id > next.id);
        let is_here = is_whole(next) && has_all_of(next, roster);
        is_newer && now.since(*since) >= PARTS_WAIT && self.arriving.is_none() && !is_here
    }

    /// Says which view is about to begin, once the rows of all its members are here: the next, or
    /// the newest if that one was passed over or is the first. Returns it once, with the rows, for
    /// the driver to map. To be called until then, while no view is [followed](Self::is_following)
    /// and none arrives.
    pub fn look<W>(&mut self, roster: &mut Roster<W>, now: Time) -> Option<(Arc<View>, Vec<Option<W>>)> {
        if self.arriving.is_some() {
            return None;
        }
        let view = self.next_view(roster, now)?;
        let rows = view.members.iter().map(|id| roster.take_part(view.id, *id)).collect();
        self.told.take_if(|told| told.id <= view.id);
        self.arriving = Some((Arc::clone(&view), now));
        Some((view, rows))
    }

    fn next_view<W>(&mut self, roster: &mut Roster<W>, now: Time) -> Option<Arc<View>> {
        if let Some(followed) = &self.followed {
            let next = Arc::clone(&followed.next.as_ref()?.0);
            let is_whole = is_whole(&next);
            if is_whole && has_all_of(&next, roster) {
                return Some(next);
            }
            if !self.is_passed_over(roster, now) {
                if is_whole {
                    self.dial(&next, roster, now);
                }
                return None;
            }
        }
        // A view of this process itself is not for following.
        let is_for_me = |told: &View| told.rank_of(roster.me()).is_none() && is_whole(told);
        let told = Arc::new(self.told.clone().filter(is_for_me)?);
        roster.pass_over_until(told.id);
        self.dial(&told, roster, now);
        has_all_of(&told, roster).then_some(told)
    }

    /// Makes the streams to the members of a view that are not here, at most every
    /// [`INSTALL_LOOK`].
    fn dial<W>(&mut self, view: &View, roster: &mut Roster<W>, now: Time) {
        self.dialled.retain(|_, at| now.since(*at) < INSTALL_LOOK);
        if let Entry::Vacant(dialled) = self.dialled.entry(view.id) {
            dialled.insert(now);
            roster.dial_as_observer(view);
        }
    }

    /// The view that is about to begin, whose rows the driver has mapped.
    pub fn arriving(&self) -> Option<&Arc<View>> {
        self.arriving.as_ref().map(|(view, _)| view)
    }

    /// Begins the view that is about to begin, if its rows are in this state. If they never fill
    /// the view is given up: the driver drops what it has of it once [none arrives](Self::arriving)
    /// any more.
    pub fn arrive<W>(&mut self, rows: RowsState, roster: &mut Roster<W>, now: Time) -> Option<ViewStart> {
        let (_, since) = self.arriving.as_ref()?;
        if rows != RowsState::Complete {
            if rows == RowsState::Broken || now.since(*since) > CUT_MAX {
                // A member has ended, or does not answer. The members tell what has come of it.
                self.arriving = None;
                self.ask_again();
            }
            return None;
        }
        let (view, _) = self.arriving.take()?;
        roster.begin(&view, now);
        let is_next = |followed: &FollowedView| followed.next.as_ref().is_some_and(|(next, _)| next.id == view.id);
        let start = match self.followed.as_ref().is_some_and(is_next) {
            true => ViewStart::Next,
            false => ViewStart::Newest,
        };
        self.followed = Some(FollowedView { view, next: None, cut: None, is_doubtful: false });
        Some(start)
    }

    /// The view that is followed has ended by this decision, and everything of it was yielded.
    /// Returns the next view.
    ///
    /// # Panics
    /// If no view is followed.
    pub fn end<W>(&mut self, decision: &Decision, roster: &mut Roster<W>, now: Time) -> Arc<View> {
        let followed = self.followed.as_mut().filter(|followed| followed.next.is_none());
        let next = Arc::new(decision.next.clone());
        roster.note_joined(next.id, &decision.joined);
        followed.expect("a view is followed").next = Some((Arc::clone(&next), now));
        // Newcomers do not know of this process.
        self.ask_again();
        next
    }
}

/// Whether all that happens in a view is in its rows. If not, members that are asked go on to one
/// of which that is so.
fn is_whole(view: &View) -> bool {
    view.subgroups.iter().all(|spec| spec.epoch.is_none())
}

fn has_all_of<W>(view: &View, roster: &Roster<W>) -> bool {
    view.members.iter().all(|id| roster.has_parts(view.id, *id))
}

#[cfg(test)]
mod tests;

//! Following a group without being a member: what it delivers, in its order, and the changes of its view. Nobody waits for an
//! observer, so it may be too slow; then it is told what it has missed.
//!
//! [`Observing`] is the handle; [`Follower`] does the work, also for those who [learn](Config::learn) before they join.
use crate::config::Config;
use crate::crew::{Crew, News, after};
use crate::error::{JoinError, ObserveError};
use crate::following::Follower;
use crate::gathering::Gathering;
use crate::joining::random_id;
use crate::{Message, ViewChange};
use spindle_core::control::{self, ViewStart};
use spindle_core::ids::VISITOR_IDS_FROM;
use spindle_core::{Gap, Lapped, MemberId, Seen, SubgroupId, View, ViewId};
use spindle_fabric::mail::Mailbox;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long to wait for an answer before looking at the clock and the flag again.
const TICK: Duration = Duration::from_millis(20);
/// The pause when there is nothing to follow: nobody rings for an observer. A hundredth of the time since there was something, in
/// these bounds: the longer it is, the fewer can be sent meanwhile without lapping the observer.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// A process that follows a group as it goes on from view to view. It takes no part: its messages are copies, and what it does not
/// read in time it misses, and is told so.
///
/// It begins at the present: what was delivered before is not told, nor is any state of the application.
/// [`next`](Self::next) has to be called again soon. How long a pause may be depends on the senders: half of each ring stays readable
/// behind what is sent, for as long as somebody observes. Messages that no ring holds are asked for of a member, which keeps the newest of
/// them a while; those up to this process's [`object_bytes_max`](Config::object_bytes_max) are told.
#[derive(Debug)]
pub struct Observing {
    follower: Follower,
    view: Arc<View>,
    /// What comes before the next message.
    untold: VecDeque<Untold>,
    spin_for: Duration,
    /// Since when there has been nothing.
    quiet_since: Option<Instant>,
    /// No member lives. What stands in their memory can be read still.
    gone: bool,
    end: Option<ObserveError>,
}

/// What an observer is told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Observed<'a> {
    /// A message that was delivered, in its place in the order.
    Message {
        /// The view in which it was: who `message.sender` is, and the subgroup's name.
        view: &'a Arc<View>,
        /// Where.
        subgroup: SubgroupId,
        /// The message. It has to be copied to be kept.
        message: Message<'a>,
    },
    /// One view has ended and another begun, between two messages, as [the members were told](crate::Handler::view_changed). After
    /// [`Observed::ViewsMissed`] they do not follow each other.
    ViewChanged(ViewChange),
    /// The observer was too slow.
    Missed(Missed),
    /// The members went through whole views before this process had their memory for it. [`Observed::Missed`] says then what is missing
    /// of the one that it goes on with.
    ViewsMissed {
        /// The first of them.
        first: ViewId,
        /// The last of them.
        last: ViewId,
    },
}

/// What an observer has missed of one subgroup, and from where it goes on.
#[derive(Clone, Debug)]
pub struct Missed {
    /// In which view.
    pub view: Arc<View>,
    /// Where.
    pub subgroup: SubgroupId,
    /// Which rounds of which senders, by rank. In a total order that is one piece of it, from the first round to the last of all
    /// senders, and everything behind it is told. Otherwise it concerns one sender alone.
    pub gaps: Vec<Gap>,
}

#[derive(Debug)]
enum Untold {
    ViewChanged(ViewChange),
    Missed(Missed),
    ViewsMissed(ViewId, ViewId),
}

/// What one look found.
enum Look {
    Seen(Seen),
    Untold(Untold),
    /// Something else: look again at once.
    Worked,
    Nothing,
}

impl Missed {
    /// How many places of the order those are. Each was a message, or the null of a sender that had nothing to send.
    pub fn places(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.rounds.end - gap.rounds.start).sum()
    }
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (places, view, name) = (self.places(), self.view.id, &self.view.subgroups[self.subgroup.index()].name);
        let plural = if places == 1 { "" } else { "s" };
        write!(f, "missed {places} place{plural} of the order of subgroup {name:?} in view {view}: ")?;
        for (i, Gap { sender, rounds }) in self.gaps.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let id = self.view.members[sender.index()];
            match rounds.end - rounds.start {
                1 => write!(f, "{comma}round {} of member {id}", rounds.start)?,
                _ => write!(f, "{comma}rounds {} to {} of member {id}", rounds.start, rounds.end - 1)?,
            }
        }
        Ok(())
    }
}

impl Config {
    /// Begins to observe the group, which has to run: to follow it without being a member. Of this configuration counts the group's
    /// name and place; the subgroups must be the members', or none at all, which takes them as they are.
    ///
    /// # Errors
    /// [`JoinError`]: above all [`NoGroup`](JoinError::NoGroup), and [`Refused`](JoinError::Refused) by members of another
    /// configuration or version.
    pub fn observe(self) -> Result<Observing, JoinError> {
        self.observe_with(&mut |_| {}, &AtomicBool::new(false))
    }

    /// As [`observe`](Self::observe); tells `progress` who is there, if the group is being founded just now, and gives up soon after
    /// `cancelled` is set.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn observe_with(
        self,
        progress: &mut dyn FnMut(&Gathering),
        cancelled: &AtomicBool,
    ) -> Result<Observing, JoinError> {
        let (dir, group) = self.place()?;
        // Before the address: who asks for a group that nobody knows shall leave nothing behind.
        if self.network.is_none() && Mailbox::present(&dir, &group)?.is_empty() {
            return Err(JoinError::NoGroup { group: self.group, dir: dir.path().to_path_buf() });
        }
        let crew = match &self.network {
            Some(network) => {
                let id = MemberId(VISITOR_IDS_FROM + random_id()?.0);
                Crew::new(Mailbox::visit_as(&dir, &group, id)?, None, Some((network, &dir, &group)))?
            }
            None => Crew::new(Mailbox::visit(&dir, &group)?, None, None)?,
        };
        let mut follower = Follower::new(crew, self.observer_digest(), 1, self.object_bytes_max, (dir, group));
        let start = Instant::now();
        let deadline = after(start, self.gather_timeout);
        let nobody = Gathering::of(1, vec![]);
        let mut seen = nobody.clone();
        loop {
            follower.ask()?;
            let mut now = seen.clone();
            for news in follower.news()? {
                if let News::Control(control::News::Waits { members, blocked, present }) = news {
                    let gathering = Gathering::heard(members, blocked, present);
                    now = gathering.behind(&seen);
                }
            }
            now.unreached = follower.crew().book().map(|book| book.seeds().unreached()).unwrap_or_default();
            if now != seen {
                progress(&now);
                seen = now;
            }
            follower.begin()?;
            if let Some(view) = follower.view() {
                let (view, untold, quiet_since, end) = (Arc::clone(view), VecDeque::new(), None, None);
                return Ok(Observing {
                    follower,
                    view,
                    untold,
                    spin_for: self.spin_for,
                    quiet_since,
                    gone: false,
                    end,
                });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if cancelled.load(Ordering::Relaxed) {
                return Err(JoinError::Cancelled { gathering: seen });
            }
            if left.is_zero() && seen == nobody {
                return Err(JoinError::Silent { group: self.group, waited: start.elapsed() });
            }
            if left.is_zero() {
                return Err(JoinError::TimedOut { gathering: seen });
            }
            follower.wait(left.min(TICK));
        }
    }
}

impl Observing {
    /// The view of what was told last, or of what it began with.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// What is next, after a wait for it of `at_most`.
    ///
    /// # Errors
    /// [`ObserveError`]; all but [`TimedOut`](ObserveError::TimedOut) come when everything has been told, and every time from then on.
    pub fn next(&mut self, at_most: Duration) -> Result<Observed<'_>, ObserveError> {
        let mut since = None;
        loop {
            match self.look()? {
                Look::Seen(Seen { subgroup, sender, round }) => {
                    self.quiet_since = None;
                    let message = Message { sender, round, payload: self.follower.payload() };
                    return Ok(Observed::Message { view: &self.view, subgroup, message });
                }
                Look::Untold(untold) => return Ok(self.tell(untold)),
                Look::Worked => {}
                Look::Nothing => {
                    let now = Instant::now();
                    let waited = now.duration_since(*since.get_or_insert(now));
                    if waited >= at_most {
                        return Err(ObserveError::TimedOut { waited });
                    }
                    let quiet = now.duration_since(*self.quiet_since.get_or_insert(now));
                    let pause = (quiet / 100).clamp(PAUSE_MIN, PAUSE_MAX);
                    match quiet < self.spin_for {
                        true => std::thread::yield_now(),
                        false => self.follower.wait(pause.min(at_most - waited)),
                    }
                }
            }
        }
    }

    fn tell(&mut self, untold: Untold) -> Observed<'static> {
        match untold {
            Untold::ViewChanged(change) => {
                self.view = Arc::clone(&change.new);
                Observed::ViewChanged(change)
            }
            Untold::Missed(missed) => Observed::Missed(missed),
            Untold::ViewsMissed(first, last) => Observed::ViewsMissed { first, last },
        }
    }

    fn look(&mut self) -> Result<Look, ObserveError> {
        if let Some(untold) = self.untold.pop_front() {
            return Ok(Look::Untold(untold));
        }
        if let Some(end) = &self.end {
            return Err(end.clone());
        }
        if self.follower.has_news()
            && let Err(error) = self.follower.news()
        {
            self.fail(error);
        }
        self.follower.progress();
        match self.follower.next() {
            Ok(Some(seen)) => Ok(Look::Seen(seen)),
            Ok(None) => Ok(self.look_around()),
            Err(lapped) => {
                self.go_on(&lapped);
                Ok(Look::Worked)
            }
        }
    }

    /// There is nothing to deliver: has the view ended, or the group?
    fn look_around(&mut self) -> Look {
        if let Some(change) = self.follower.end() {
            if change.new.members.is_empty() {
                self.end = Some(ObserveError::Finished);
            }
            return Look::Worked;
        }
        if self.follower.is_finished() {
            self.end = Some(ObserveError::Finished);
            return Look::Worked;
        }
        if self.follower.is_cut_off() {
            self.end = Some(ObserveError::Stuck("the connection to a member is lost".to_string()));
            return Look::Worked;
        }
        match self.follower.begin() {
            Ok(Some(start)) => {
                self.begin(start);
                return Look::Worked;
            }
            Ok(None) => {}
            Err(error) => self.fail(error),
        }
        if self.gone {
            self.end = Some(ObserveError::GroupGone);
        } else if let Err(error) = self.ask() {
            self.fail(error);
        }
        if self.gone || self.end.is_some() { Look::Worked } else { Look::Nothing }
    }

    /// Asks for what is missing, and sends what could not be sent before.
    fn ask(&mut self) -> Result<(), JoinError> {
        self.follower.ask()?;
        self.follower.news().map(drop)
    }

    fn begin(&mut self, start: ViewStart) {
        let Some(new) = self.follower.view().map(Arc::clone) else { return };
        let change = ViewChange::new(Arc::clone(&self.view), Arc::clone(&new));
        if start == ViewStart::Next {
            return self.untold.push_back(Untold::ViewChanged(change));
        }
        let missed = self.view.id.next()..new.id;
        if missed.start < missed.end && missed.end.ahead_of(missed.start) > 0 {
            self.untold.push_back(Untold::ViewsMissed(missed.start, ViewId(missed.end.0 - 1)));
        }
        self.untold.push_back(Untold::ViewChanged(change));
        for subgroup in (0..new.subgroups.len() as u32).map(SubgroupId) {
            let gaps = self.follower.behind(subgroup);
            self.miss(&new, subgroup, gaps.into_iter().filter(|gap| !gap.rounds.is_empty()).collect());
        }
    }

    fn go_on(&mut self, lapped: &Lapped) {
        let gaps = self.follower.go_on(lapped);
        let view = Arc::clone(&self.view);
        self.miss(&view, lapped.subgroup, gaps);
    }

    fn miss(&mut self, view: &Arc<View>, subgroup: SubgroupId, gaps: Vec<Gap>) {
        if !gaps.is_empty() {
            self.untold.push_back(Untold::Missed(Missed { view: Arc::clone(view), subgroup, gaps }));
        }
    }

    fn fail(&mut self, error: JoinError) {
        match error {
            // What they had agreed on by then is read first.
            JoinError::GroupGone => self.gone = true,
            error => self.end = Some(ObserveError::Stuck(error.to_string())),
        }
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        self.follower.take_leave();
    }
}

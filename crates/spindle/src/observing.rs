//! Follows a group without being a member: its deliveries, in order, and the changes of its view.
//! No member waits for an observer, so an observer may be too slow. It then learns what it has
//! missed.
//!
//! [`Observing`] is the handle. [`Follower`] does the work, also for processes that
//! [learn](Config::learn) before they join.
use crate::bootstrap_progress::BootstrapProgress;
use crate::change::ViewChange;
use crate::config::Config;
use crate::control_plane::{ControlPlane, ControlPlaneEvent, after};
use crate::error::{JoinError, ObserveError};
use crate::joining::Follower;
use crate::random::random_id;
use spindle_core::control::{self, ViewStart};
use spindle_core::ids::CLIENT_IDS_FROM;
use spindle_core::{Gap, Lapped, MemberId, Message, Seen, SubgroupId, View, ViewId};
use spindle_transport::rendezvous::ControlSocket;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long to wait for an answer before checking the clock and the flag again.
const TICK: Duration = Duration::from_millis(20);
/// The pause when there is nothing to follow: members do not wake an observer. It is a hundredth of
/// the time since something was found, within these bounds. A longer pause permits fewer messages
/// before they lap the observer.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// A process that follows a group from view to view without taking part. Its messages are copies.
/// It misses the messages that it does not read in time, and reports that.
///
/// It begins at the present: it receives no earlier deliveries and no state of the application.
/// [`next`](Self::next) has to be called again soon. How long a pause may be depends on the
/// senders: half of each ring stays readable behind the newest message for as long as an observer
/// exists.
///
/// The observer requests messages that no ring contains from a member, which caches the newest of
/// them for a while. It receives those up to this process's
/// [`object_bytes_max`](Config::object_bytes_max).
#[derive(Debug)]
pub struct Observing {
    follower: Follower,
    view: Arc<View>,
    /// Events to report before the next message.
    untold: VecDeque<Untold>,
    spin_for: Duration,
    /// When the observer last ran out of work.
    quiet_since: Option<Instant>,
    /// No member lives. Their memory can still be read.
    gone: bool,
    end: Option<ObserveError>,
}

/// An event that an observer receives.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Observed<'a> {
    /// A message that was delivered, at its position in the order.
    Message {
        /// The view of the message: it identifies `message.sender` and names the subgroup.
        view: &'a Arc<View>,
        /// The subgroup of the message.
        subgroup: SubgroupId,
        /// The message. It has to be copied to be kept.
        message: Message<'a>,
    },
    /// One view has ended and another has begun, between two messages, as [the members report
    /// it](crate::Handler::view_changed). After [`Observed::ViewsMissed`] the two views are not
    /// consecutive.
    ViewChanged(ViewChange),
    /// The observer was too slow.
    Missed(Missed),
    /// The members have ended whole views before this process had their memory for them.
    /// [`Observed::Missed`] then reports the gap in the view with which the observer continues.
    ViewsMissed {
        /// The first missed view.
        first: ViewId,
        /// The last missed view.
        last: ViewId,
    },
}

/// The part of one subgroup's order that an observer has missed, and where it continues.
#[derive(Clone, Debug)]
pub struct Missed {
    /// The view.
    pub view: Arc<View>,
    /// The subgroup.
    pub subgroup: SubgroupId,
    /// The missed rounds of each sender, by rank. In a total order they are one contiguous piece,
    /// from the first round to the last round of all senders, and the observer receives everything
    /// after it. Otherwise a gap concerns one sender only.
    pub gaps: Vec<Gap>,
}

#[derive(Debug)]
enum Untold {
    ViewChanged(ViewChange),
    Missed(Missed),
    ViewsMissed(ViewId, ViewId),
}

/// The result of one look.
enum Look {
    Seen(Seen),
    Untold(Untold),
    /// Something else was found: look again at once.
    Worked,
    Nothing,
}

impl Missed {
    /// Returns how many sequence numbers are missing. Each was a message, or the null of a sender
    /// that had nothing to send.
    pub fn sequence_numbers(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.rounds.end - gap.rounds.start).sum()
    }
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, view, name) =
            (self.sequence_numbers(), self.view.id, &self.view.subgroups[self.subgroup.index()].name);
        let plural = if count == 1 { "" } else { "s" };
        write!(f, "missed {count} sequence number{plural} of subgroup {name:?} in view {view}: ")?;
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
    /// Begins to observe a running group, without becoming a member. Only the group's name and
    /// address in this configuration count. The subgroups must be those of the members, or empty,
    /// which accepts theirs.
    ///
    /// # Errors
    /// [`JoinError`]: above all [`NoGroup`](JoinError::NoGroup), and
    /// [`Refused`](JoinError::Refused) by members with another configuration or version.
    pub fn observe(self) -> Result<Observing, JoinError> {
        self.observe_with(&mut |_| {}, &AtomicBool::new(false))
    }

    /// As [`observe`](Self::observe). Reports the present members to `progress` if the group is
    /// being created, and gives up soon after `cancelled` is set.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn observe_with(
        self,
        progress: &mut dyn FnMut(&BootstrapProgress),
        cancelled: &AtomicBool,
    ) -> Result<Observing, JoinError> {
        let (dir, group) = self.place()?;
        // Before this process takes an address: a process that asks for an unknown group leaves
        // nothing behind.
        if self.network.is_none() && ControlSocket::present(&dir, &group)?.is_empty() {
            return Err(JoinError::NoGroup { group: self.group, dir: dir.path().to_path_buf() });
        }
        let control_plane = match &self.network {
            Some(network) => {
                let id = MemberId(CLIENT_IDS_FROM + random_id()?.0);
                ControlPlane::new(ControlSocket::client_as(&dir, &group, id)?, None, Some((network, &dir, &group)))?
            }
            None => ControlPlane::new(ControlSocket::client(&dir, &group)?, None, None)?,
        };
        let mut follower = Follower::new(control_plane, self.observer_digest(), 1, self.object_bytes_max, (dir, group));
        let start = Instant::now();
        let deadline = after(start, self.gather_timeout);
        let nobody = BootstrapProgress::of(1, vec![]);
        let mut seen = nobody.clone();
        loop {
            follower.ask()?;
            let mut now = seen.clone();
            for news in follower.news()? {
                if let ControlPlaneEvent::Control(control::ControlEvent::Waits { members, blocked, present }) = news {
                    let progress = BootstrapProgress::heard(members, blocked, present);
                    now = progress.behind(&seen);
                }
            }
            now.unreached = follower.control_plane().book().map(|book| book.seeds().unreached()).unwrap_or_default();
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
                return Err(JoinError::Cancelled { progress: Box::new(seen) });
            }
            if left.is_zero() && seen == nobody {
                return Err(JoinError::Silent { group: self.group, waited: start.elapsed() });
            }
            if left.is_zero() {
                return Err(JoinError::TimedOut { progress: Box::new(seen) });
            }
            follower.wait(left.min(TICK));
        }
    }
}

impl Observing {
    /// Returns the view of the last event, or the first view.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Returns the next event, after a wait of `at_most` for it.
    ///
    /// # Errors
    /// [`ObserveError`]. All but [`TimedOut`](ObserveError::TimedOut) come after every event was
    /// returned, and are repeated by every later call.
    pub fn next(&mut self, at_most: Duration) -> Result<Observed<'_>, ObserveError> {
        let mut since = None;
        loop {
            match self.look()? {
                Look::Seen(Seen { subgroup, sender, round }) => {
                    self.quiet_since = None;
                    let sender_id = self.view.members[sender.index()];
                    let message = Message { sender, sender_id, round, payload: self.follower.payload() };
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

    /// Checks, when there is nothing to deliver, whether the view or the group has ended.
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

    /// Requests the missing data, and retries what could not be sent.
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
            // The observer first reads what the members had agreed on by then.
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

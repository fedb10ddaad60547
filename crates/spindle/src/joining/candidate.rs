//! How a process becomes a member: it creates the group with others, or asks the members of a
//! group.
use super::learner::AdmittedLearner;
use super::preparing::First;
use crate::bootstrap_progress::BootstrapProgress;
use crate::config::{Config, Network, Terms, take_over};
use crate::control_plane::{BootstrapDriver, BootstrapTerms, ControlPlane, ControlPlaneEvent, RestartDriver, after};
use crate::data_dir::DataDir;
use crate::error::JoinError;
use crate::handler::{Batch, Handler};
use crate::logs::{self, Logs};
use crate::old_logs::OldLogs;
use crate::random::{random_id, random_word};
use crate::transfer::TARGET;
use spindle_core::control::{Attempts, FoundGroup, LearnError, Refusal, Roster, Seek, SharedSettings, Wants};
use spindle_core::{Engine, MemberId, Rank, SubgroupId, Time, View, limits};
use spindle_fabric::{Arena, LogClock, MemberEventCount, MeshError, RegionError};
use spindle_transport::rendezvous::{
    ControlSocket, CreateOutcome, GroupName, RendezvousError, Role, RuntimeDir, found_or_find,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

mod catching_up;
mod clocks;
mod levelling;
mod restoring;
mod showing;

use levelling::RestartCatchUps;

/// The pause of a process that lets another one create or restart the group.
const YIELDS_FOR: Duration = Duration::from_millis(100);
/// How long to wait for control events before checking the clock and the flag again.
const TICK: Duration = Duration::from_millis(10);
/// The same for a thread that an event always wakes. Hundreds of processes may wait to join.
const LONG_TICK: Duration = Duration::from_millis(50);
/// The handler of a process without state. It is never called.
struct NoState;

impl Handler for NoState {
    fn deliver(&mut self, _: SubgroupId, _: &mut Batch<'_>) {}
}

/// The result of a search for a group.
enum Sought {
    /// The view to begin with.
    View(View),
    /// A group exists, whose state comes first.
    Group,
    /// A group existed on this host and has ended.
    Gone,
    /// Another process has to create or restart the group: this one lacks its logs.
    Yields,
}

/// A process whose first view begins.
pub(crate) struct Joined {
    /// It is dropped before the control plane, so that a process that gives up reports this before
    /// its address is gone.
    pub(crate) first: First,
    pub(crate) logs: Option<Logs>,
    /// Whether the handler has taken over the state of a member.
    pub(crate) is_restored: bool,
    pub(crate) control_plane: ControlPlane,
    pub(crate) terms: Terms,
}

/// A process that is not a member yet.
pub(crate) struct Candidate<'a> {
    /// The configuration as its user gave it.
    own: &'a Config,
    /// The shared settings of `own`.
    own_settings: SharedSettings,
    /// The same, with the settings of a running group if this process has adopted them.
    config: Config,
    dir: RuntimeDir,
    group: GroupName,
    /// The shared settings of `config`.
    settings: SharedSettings,
    /// It is made before the members wait for this process: in a process with threads this takes
    /// milliseconds.
    event_count: MemberEventCount,
    /// The clock that members compare with theirs.
    clock: LogClock,
    deadline: Instant,
    cancelled: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&BootstrapProgress),
    seen: BootstrapProgress,
    /// The member whose state transfer broke off last.
    failed_source: Option<MemberId>,
    /// Whether the handler has begun to take over a state.
    has_restored: bool,
    /// The state machine that decided, between hosts, that a group exists, while that group is
    /// followed.
    bootstrap: Option<BootstrapDriver>,
    /// The group that admitted this process and continued without it.
    left_out: Option<u128>,
    /// A group that exists, and its newest view.
    known: Option<(u128, View)>,
    /// The logs that get records before a restart is decided.
    levels: RestartCatchUps,
    /// When this process, as the leader, has last heard that other logs get records.
    moved_at: Option<Time>,
}

impl<'a> Candidate<'a> {
    pub(crate) fn new(
        config: &'a Config,
        progress: &'a mut dyn FnMut(&BootstrapProgress),
        cancelled: &'a AtomicBool,
    ) -> Result<Candidate<'a>, JoinError> {
        config.check()?;
        logs::check(config)?;
        let (dir, group) = config.place()?;
        let event_count =
            if config.network.is_some() { MemberEventCount::with_event() } else { MemberEventCount::create() };
        let (settings, event_count) = (config.shared_settings(), event_count.map_err(no_event_count)?);
        let deadline = after(Instant::now(), config.gather_timeout);
        let (seen, clock) = (BootstrapProgress::of(config.founders, vec![]), LogClock::new(config.clock.clone()));
        clock.bound(config.clock_skew_max);
        Ok(Candidate {
            own: config,
            own_settings: settings.clone(),
            config: config.clone(),
            dir,
            group,
            settings,
            event_count,
            clock,
            deadline,
            cancelled,
            progress,
            seen,
            failed_source: None,
            has_restored: false,
            bootstrap: None,
            left_out: None,
            known: None,
            levels: RestartCatchUps::default(),
            moved_at: None,
        })
    }

    /// Joins, and tries again until the wait is over.
    pub(crate) fn join(&mut self) -> Result<Joined, JoinError> {
        loop {
            match self.attempt(&mut None::<&mut NoState>) {
                Err(JoinError::LeftOut { .. }) => {}
                joined => return joined,
            }
        }
    }

    /// Joins with the state of a member, and tries again with other members.
    pub(crate) fn learn(&mut self, handler: &mut impl Handler) -> Result<Joined, JoinError> {
        let mut handler = Some(handler);
        let mut attempts = Attempts::default();
        loop {
            match self.attempt(&mut handler) {
                // Members were asked that know only their own settings.
                Err(JoinError::Refused(Refusal::Config { settings, .. })) => self.adopt(&settings)?,
                Err(error) if failure(&error).is_some_and(|why| attempts.try_again(why)) => {
                    tracing::info!(target: TARGET, reason = %error, "joins again");
                }
                joined => return joined,
            }
        }
    }

    fn attempt<H: Handler>(&mut self, handler: &mut Option<&mut H>) -> Result<Joined, JoinError> {
        loop {
            // The logs of the last attempt are closed.
            self.levels = RestartCatchUps::default();
            let joined = match &self.own.network {
                Some(network) => self.attempt_afar(network, handler)?,
                None => self.attempt_here(handler)?,
            };
            if let Some(joined) = joined {
                return Ok(joined);
            }
            std::thread::sleep(self.tick(YIELDS_FOR)?);
        }
    }

    /// Joins a group on this host. `None` if another process has to create or restart the group.
    fn attempt_here<H: Handler>(&mut self, handler: &mut Option<&mut H>) -> Result<Option<Joined>, JoinError> {
        self.known = None;
        let old = OldLogs::open(self.own)?;
        self.check_clock(old.as_ref())?;
        let id = old.as_ref().map(OldLogs::member).or(self.config.id);
        let role = found_or_find(&self.dir, &self.group, id, self.deadline, self.cancelled);
        let role = role.map_err(|error| self.named(error))?;
        let (control_socket, mut standing) = match role {
            Role::Founder { control_socket, incarnation } => (control_socket, CreateOutcome::Founder { incarnation }),
            Role::Joiner { control_socket, members } => (control_socket, CreateOutcome::Joiner { members }),
        };
        let mut control_plane = ControlPlane::new(control_socket, Some(&self.event_count), None)?;
        self.set_clock(&mut control_plane);
        self.see_myself(&control_plane);
        let restarts = old.as_ref().map(|old| (old.incarnation(), old.record().view.members.len() as u32));
        if let Some(old) = old {
            control_plane.set_restart(self.restart(old, &control_plane));
        }
        loop {
            let control_socket = control_plane.control_socket().expect("a process that joins has an address");
            let seek = match (standing, restarts) {
                // A new group begins without state, and the handler now contains the state of the
                // dead group.
                (CreateOutcome::Founder { .. }, _) if self.has_restored => return Err(JoinError::GroupGone),
                (CreateOutcome::Founder { .. }, Some((incarnation, members))) => {
                    if !control_socket.restart(incarnation)? {
                        return Ok(None);
                    }
                    self.use_own();
                    control_plane.set_incarnation(incarnation);
                    Some(Seek::founder(Wants { members, ..self.wants(false) }, limits::MEMBERS_MAX as u32).restarting())
                }
                (CreateOutcome::Founder { incarnation }, None) => {
                    self.use_own();
                    control_plane.set_incarnation(incarnation);
                    Some(Seek::founder(self.wants(false), self.config.founders))
                }
                // If the group lives, the logs get records from its members first.
                (CreateOutcome::Joiner { .. }, Some(_)) => Some(Seek::joiner(self.wants(true)).restarting()),
                (CreateOutcome::Joiner { .. }, None) => match handler {
                    Some(_) => None,
                    None => Some(Seek::joiner(self.wants(false))),
                },
            };
            let sought = seek.map_or(Ok(Sought::Group), |seek| self.seek(&mut control_plane, seek))?;
            let again = handler.is_none().then(|| Seek::joiner(self.wants(false)).restarting());
            let sought = self.catch_up_if_old(&mut control_plane, sought, again)?;
            match (sought, &mut *handler) {
                (Sought::View(view), _) => return self.begin(control_plane, view).map(Some),
                (Sought::Group, Some(handler)) => {
                    let admitted = self.restore(control_plane, *handler)?;
                    return self.install(admitted).map(Some);
                }
                (Sought::Yields, _) => return Ok(None),
                // All members had ended before they admitted this process.
                (Sought::Group | Sought::Gone, _) => {}
            }
            if restarts.is_some() && control_plane.restart().is_none_or(|restart| restart.has_begun()) {
                // This process took the group for one that lives. Now it restarts it.
                return Ok(None);
            }
            let control_socket = control_plane.control_socket().expect("a process that joins has an address");
            standing = control_socket.create(self.deadline, self.cancelled).map_err(|error| self.named(error))?;
        }
    }

    /// Returns the part of this process in the restart of the group whose logs it has.
    fn restart(&self, old: OldLogs, control_plane: &ControlPlane) -> RestartDriver {
        let roster = control_plane.roster();
        let process = (roster.as_process(), roster.process(), roster.host());
        let patience = self.config.log.restart_wait.unwrap_or(Duration::MAX);
        let others = (self.config.lost.iter().copied().collect(), patience);
        RestartDriver::new(old, process, self.own_settings.digest(), others, control_plane.now())
    }

    /// Joins a group that spans hosts: asks its members on this host, and the seeds. `None` if it has to
    /// be looked for again.
    fn attempt_afar<H: Handler>(
        &mut self,
        network: &Network,
        handler: &mut Option<&mut H>,
    ) -> Result<Option<Joined>, JoinError> {
        self.known = None;
        let old = OldLogs::open(self.own)?;
        self.check_clock(old.as_ref())?;
        let id = match old.as_ref().map(OldLogs::member).or(self.config.id) {
            Some(id) => id,
            None => random_id()?,
        };
        let control_socket = ControlSocket::open(&self.dir, &self.group, id)?;
        let mut control_plane =
            ControlPlane::new(control_socket, Some(&self.event_count), Some((network, &self.dir, &self.group)))?;
        self.set_clock(&mut control_plane);
        self.see_myself(&control_plane);
        // The bootstrap of the last attempt has the data directory open.
        self.bootstrap = None;
        self.use_own();
        let belongs = old.as_ref().map(OldLogs::incarnation);
        let bootstrap = self.begin_bootstrap(control_plane.roster(), belongs, control_plane.now())?;
        control_plane.set_bootstrap(bootstrap);
        let room = limits::MEMBERS_MAX as u32;
        let mut seek = Seek::afar(self.wants(handler.is_some() || old.is_some()), room);
        if let Some(old) = old {
            control_plane.set_restart(self.restart(old, &control_plane));
            seek = seek.restarting();
        }
        let again = handler.is_none().then(|| Seek::afar(self.wants(false), room).restarting());
        let sought = self.seek(&mut control_plane, seek)?;
        match (self.catch_up_if_old(&mut control_plane, sought, again)?, handler) {
            // A new group begins without state, and the handler now contains the state of the dead group.
            (Sought::View(_), _) if self.has_restored => Err(JoinError::GroupGone),
            (Sought::View(view), _) => self.begin(control_plane, view).map(Some),
            (Sought::Group, Some(handler)) => {
                // Until this process is admitted, it takes no part in the creation of another group.
                self.bootstrap = control_plane.take_bootstrap();
                self.seen.waits = None;
                // From now on this process does not wait for seeds.
                self.seen.seeds = None;
                let admitted = self.restore(control_plane, *handler)?;
                self.install(admitted).map(Some)
            }
            (Sought::Group | Sought::Gone | Sought::Yields, _) => Ok(None),
        }
    }

    fn wants(&self, learns: bool) -> Wants {
        // A process that looks for its group again accepts any number of founders: other
        // processes may create a group with another number meanwhile.
        let members = if self.was_in().is_some() && !self.config.force_create { 1 } else { self.config.founders };
        let (settings, adoption) = (self.own_settings.clone(), self.own.adoption.clone());
        Wants { settings, adoption, members, learns }
    }

    /// Returns the group that this process was a member of, if any.
    fn was_in(&self) -> Option<u128> {
        self.left_out.or(self.config.was_member_of)
    }

    /// Returns the state machine that decides whether a group is created between hosts.
    fn begin_bootstrap<W>(
        &self,
        roster: &Roster<W>,
        belongs: Option<u128>,
        now: Time,
    ) -> Result<BootstrapDriver, JoinError> {
        let dir = self.config.data_dir.as_ref().map(|path| DataDir::open(path, &self.config.group)).transpose()?;
        let random = [random_word()?, random_word()?];
        let (members, word) = (self.config.founders, self.config.force_create);
        let (me, process, belongs) = (roster.as_process(), roster.process(), self.was_in().or(belongs));
        let config = self.settings.digest();
        let terms = BootstrapTerms { me, process, config, members, random, dir, belongs, word };
        Ok(BootstrapDriver::new(terms, now))
    }

    /// Looks for the group until a view contains this process, or none can.
    fn seek(&mut self, control_plane: &mut ControlPlane, mut seek: Seek) -> Result<Sought, JoinError> {
        let founds = seek.founds();
        if let Some(restart) = control_plane.restart().filter(|_| founds) {
            restart.set_leaders(true, vec![]);
        }
        loop {
            if seek.is_due(control_plane.now()) {
                let members = ControlSocket::members(&self.dir, &self.group)?;
                if let Some(bootstrap) = control_plane.bootstrap() {
                    bootstrap.hold(!members.is_empty());
                }
                if let Some(restart) = control_plane.restart().filter(|_| self.config.network.is_none()) {
                    restart.set_leaders(false, members.clone());
                }
                if let Some(FoundGroup::Gone) = control_plane.act(|roster, now| seek.ask(&members, roster, now)) {
                    return Ok(Sought::Gone);
                }
            }
            let news = self.news(control_plane)?.into_iter();
            let news = news.filter_map(|news| match self.levels.take(news, control_plane)? {
                ControlPlaneEvent::Control(news) => Some(news),
                _ => None,
            });
            let news = news.collect();
            self.levels.step(control_plane)?;
            let moved = control_plane.restart().and_then(|restart| restart.moved_at());
            let before = std::mem::replace(&mut self.moved_at, moved);
            if before.is_some_and(|before| moved.is_some_and(|moved| moved > before)) || self.levels.is_moving() {
                // The timeout limits a wait, not a transfer.
                self.deadline = after(Instant::now(), self.config.gather_timeout);
            }
            if let Some(error) = control_plane.bootstrap().and_then(BootstrapDriver::take_failure) {
                return Err(error.into());
            }
            let hears_restart = control_plane.hears_restart();
            match control_plane.restart() {
                Some(restart) => {
                    if let Some(error) = restart.take_failure() {
                        return Err(error.into());
                    }
                    seek.restarts_with(restart.votes_for());
                    if founds && restart.has_to_yield() {
                        return Ok(Sought::Yields);
                    }
                }
                None if founds && hears_restart => return Ok(Sought::Yields),
                None => {}
            }
            let found = control_plane.act(|roster, now| seek.step(news, roster, now));
            let found = found.or_else(|| control_plane.take_begun().map(FoundGroup::from));
            if let Some(restarted) = control_plane.take_restarted() {
                // Its logs have all records.
                self.levels.end()?;
                let incarnation = control_plane.restart().map(|restart| restart.incarnation());
                match self.create(control_plane, &seek, incarnation, restarted.view)? {
                    Some(view) => return Ok(Sought::View(view)),
                    None => return Ok(Sought::Gone),
                }
            }
            seek.take_heard().into_iter().for_each(|here| self.hear_of(here));
            let now = control_plane.now();
            self.see_settings(&seek, now);
            // Values without a meaning are noticed before the group admits this process.
            let asks_with = seek.settings(now).clone();
            if asks_with != self.settings {
                self.take_over(&asks_with)?;
                if let Some(bootstrap) = control_plane.bootstrap() {
                    bootstrap.adopt(asks_with.digest());
                }
            }
            self.see_seeds(control_plane, seek.unlike());
            self.see_waits(control_plane);
            let view = match found {
                None => continue,
                Some(FoundGroup::Refused(Refusal::Config { settings, .. })) => {
                    self.use_own();
                    return Err(self.other_settings(&settings));
                }
                Some(FoundGroup::Refused(why)) => return Err(JoinError::Refused(why)),
                Some(FoundGroup::Group) => return Ok(Sought::Group),
                Some(FoundGroup::Gone) => return Ok(Sought::Gone),
                Some(FoundGroup::View { incarnation, view }) => {
                    self.take_over(&seek.settings_in(incarnation).clone())?;
                    Self::enter(control_plane, incarnation)?.then_some(view)
                }
                Some(FoundGroup::Founders { incarnation, members }) => {
                    self.use_own();
                    let view = self.config.view(members);
                    view.check()?;
                    self.create(control_plane, &seek, incarnation, view)?
                }
            };
            if let Some(view) = view {
                return Ok(Sought::View(view));
            }
        }
    }

    /// Joins with the shared settings that its user gave.
    fn use_own(&mut self) {
        self.config = self.own.clone();
        self.settings = self.own_settings.clone();
    }

    /// Joins with the shared settings of a running group, if this process may adopt them.
    fn adopt(&mut self, settings: &SharedSettings) -> Result<(), JoinError> {
        match self.own.adoption.check(&self.own_settings, settings) {
            Ok(()) => self.take_over(settings),
            Err(_) => Err(self.other_settings(settings)),
        }
    }

    /// Joins with these shared settings.
    fn take_over(&mut self, settings: &SharedSettings) -> Result<(), JoinError> {
        if *settings == self.own_settings {
            self.use_own();
            return Ok(());
        }
        let unreadable = || JoinError::UnreadableSettings { settings: settings.text().to_string() };
        let taken = take_over(self.own, settings).ok_or_else(unreadable)?;
        taken.check()?;
        logs::check(&taken)?;
        if self.settings != *settings {
            let differences = self.own_settings.differences(settings);
            let told: Vec<String> = differences.iter().map(ToString::to_string).collect();
            tracing::info!(target: TARGET, settings = told.join(", "), "adopts the settings of the group");
        }
        (self.config, self.settings) = (taken, settings.clone());
        Ok(())
    }

    fn other_settings(&self, group: &SharedSettings) -> JoinError {
        let differences = self.own.adoption.check(&self.own_settings, group).err().unwrap_or_default();
        JoinError::OtherSettings { differences }
    }

    /// Registers this process as a member of the group on this host. Returns false if another group
    /// of this name has members here.
    fn enter(control_plane: &mut ControlPlane, incarnation: u128) -> Result<bool, JoinError> {
        let control_socket = control_plane.control_socket().expect("a process that joins has an address");
        let enters = if control_plane.net().is_some() {
            control_socket.enter_afar(incarnation)?
        } else {
            control_socket.enter(incarnation)?
        };
        if enters {
            control_plane.set_incarnation(incarnation);
        }
        Ok(enters)
    }

    /// Enters a group that is created or restarted with this `view`. `None` if a member of another
    /// group lives on this host.
    fn create(
        &self,
        control_plane: &mut ControlPlane,
        seek: &Seek,
        incarnation: Option<u128>,
        view: View,
    ) -> Result<Option<View>, JoinError> {
        if let Some(incarnation) = incarnation
            && !Self::enter(control_plane, incarnation)?
        {
            return Ok(None);
        }
        control_plane.act(|roster, now| seek.creates(&view, roster, now));
        Ok(Some(view))
    }

    /// Begins the view that admits this process, or the first view of the group.
    fn begin(&mut self, mut control_plane: ControlPlane, view: View) -> Result<Joined, JoinError> {
        let me = view.rank_of(control_plane.me).expect("it is in the view");
        let terms = self.config.terms(&self.clock);
        // Before others can see that this process begins the view.
        let logs = Logs::open(&terms, &view, &mut control_plane)?;
        let engine = Engine::new(view, me, terms.ablation)?;
        let arena = Arena::new(self.event_count.clone());
        let first = First::new(engine, &[], &mut control_plane, arena, terms.suspect_after, None)?;
        self.install(AdmittedLearner { first, logs, control_plane })
    }

    /// Begins the first view of this process.
    fn install(&mut self, admitted: AdmittedLearner) -> Result<Joined, JoinError> {
        let AdmittedLearner { mut first, mut logs, mut control_plane } = admitted;
        if let Some(bootstrap) = self.bootstrap.take() {
            control_plane.set_bootstrap(bootstrap);
        }
        if let Err(error) = self.await_first(&mut first, &mut control_plane) {
            logs.iter_mut().for_each(|logs| logs.end(&control_plane));
            return Err(self.note_left_out(error));
        }
        let is_restored = self.has_restored;
        Ok(Joined { first, logs, is_restored, control_plane, terms: self.config.terms(&self.clock) })
    }

    /// Waits until the first view begins.
    fn await_first(&self, first: &mut First, control_plane: &mut ControlPlane) -> Result<(), JoinError> {
        control_plane.has_joined()?;
        while !first.look(control_plane) {
            control_plane.wait(self.tick(LONG_TICK)?.min(first.patience()));
            first.attend(control_plane, &self.settings)?;
        }
        Ok(())
    }

    /// Stores the group that has continued without this process, if that is the error.
    fn note_left_out(&mut self, error: JoinError) -> JoinError {
        if let JoinError::LeftOut { incarnation, .. } = error {
            self.left_out = Some(incarnation);
        }
        error
    }

    /// Returns the next events, after a short wait for them.
    fn news(&mut self, control_plane: &mut ControlPlane) -> Result<Vec<ControlPlaneEvent>, JoinError> {
        let tick = self.tick(TICK)?;
        control_plane.wait(tick);
        let news = control_plane.news();
        news.iter().for_each(|news| self.note_view(news));
        Ok(news)
    }

    /// Returns how long to wait for the next event, up to `at_most`; an error if the wait is over.
    fn tick(&self, at_most: Duration) -> Result<Duration, JoinError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(JoinError::Cancelled { progress: Box::new(self.seen.clone()) });
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(JoinError::TimedOut { progress: Box::new(self.seen.clone()) });
        }
        Ok(left.min(at_most))
    }

    fn named(&self, error: RendezvousError) -> JoinError {
        match error {
            RendezvousError::Cancelled => JoinError::Cancelled { progress: Box::new(self.seen.clone()) },
            error => error.into(),
        }
    }
}

/// Returns why an attempt to learn has failed, if another attempt may be made: with another source,
/// from the start.
fn failure(error: &JoinError) -> Option<LearnError> {
    Some(match error {
        JoinError::Source(_) => LearnError::Source,
        JoinError::Lapped(_) => LearnError::Lapped,
        JoinError::GroupGone => LearnError::GroupGone,
        JoinError::LeftOut { .. } => LearnError::LeftOut,
        _ => return None,
    })
}

pub(crate) fn no_event_count(source: RegionError) -> MeshError {
    MeshError::Region { rank: Rank(0), part: "doorbell", source }
}

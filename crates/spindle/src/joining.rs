//! How a process becomes a member: it creates the group with others, or asks the members of a
//! group.
use crate::bootstrap::{self, Bootstrapping};
use crate::bootstrap_progress::BootstrapProgress;
use crate::config::Config;
use crate::control_plane::{ControlPlane, ControlPlaneEvent, after};
use crate::data_dir::DataDir;
use crate::error::JoinError;
use crate::learning::Admitted;
use crate::network::Network;
use crate::node::Node;
use crate::preparing::First;
use crate::random::{random_id, random_word};
use crate::shared_settings;
use crate::state::TARGET;
use crate::terms::Terms;
use crate::{Batch, Handler};
use spindle_core::control::{Attempts, Found, LearnError, Refusal, Roster, Seek, SharedSettings, Wants};
use spindle_core::{Engine, MemberId, Rank, SubgroupId, Time, View, limits};
use spindle_fabric::{Arena, MemberEventCount, MeshError, RegionError};
use spindle_transport::rendezvous::{
    ControlSocket, GroupName, RendezvousError, Role, RuntimeDir, Standing, found_or_find,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

mod learning;
mod showing;

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
}

/// A process that is not a member yet.
struct Candidate<'a> {
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
    bootstrap: Option<Bootstrapping>,
    /// The group that admitted this process and continued without it.
    left_out: Option<u128>,
}

impl Config {
    /// Joins the group, or creates it together with the other processes of this configuration.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(self) -> Result<Node, JoinError> {
        self.join_with(&mut |_| {}, &AtomicBool::new(false))
    }

    /// As [`join`](Self::join). Reports the present and missing processes to `progress`, and gives
    /// up soon after `cancelled` is set.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join_with(
        self,
        progress: &mut dyn FnMut(&BootstrapProgress),
        cancelled: &AtomicBool,
    ) -> Result<Node, JoinError> {
        let mut candidate = Candidate::new(&self, progress, cancelled)?;
        loop {
            match candidate.join(&mut None::<&mut NoState>) {
                // Try again until the wait is over.
                Err(JoinError::LeftOut { .. }) => {}
                joined => return joined,
            }
        }
    }

    /// As [`join_with`](Self::join_with), for applications that have a state.
    ///
    /// `handler` [restores](Handler::restore) the state of a member and [learns](Handler::learn)
    /// the messages since then. When the call returns, it has the same state as all members. The
    /// group does not wait meanwhile. If the group is just being created, no state exists and
    /// nothing is learned.
    ///
    /// # Errors
    /// [`JoinError`]; [`JoinError::Restore`] if the handler could not restore the state;
    /// [`JoinError::GroupGone`] if all members ended after it had restored it. The handler then
    /// contains the state of no group, so begin with a new handler.
    pub fn learn(
        self,
        handler: &mut impl Handler,
        progress: &mut dyn FnMut(&BootstrapProgress),
        cancelled: &AtomicBool,
    ) -> Result<Node, JoinError> {
        let mut candidate = Candidate::new(&self, progress, cancelled)?;
        let mut handler = Some(handler);
        let mut attempts = Attempts::default();
        loop {
            match candidate.join(&mut handler) {
                // Members were asked that know only their own settings.
                Err(JoinError::Refused(Refusal::Config { settings, .. })) => candidate.adopt(&settings)?,
                Err(error) if failure(&error).is_some_and(|why| attempts.try_again(why)) => {
                    tracing::info!(target: TARGET, reason = %error, "begins to join anew");
                }
                joined => return joined,
            }
        }
    }

    pub(crate) fn place(&self) -> Result<(RuntimeDir, GroupName), JoinError> {
        let dir = self.runtime_dir.clone().unwrap_or_else(RuntimeDir::default_path);
        Ok((RuntimeDir::new(dir)?, GroupName::new(&self.group)?))
    }

    /// Returns all members of the group, in this process: for tests and experiments.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn local(&self) -> Result<Vec<Node>, JoinError> {
        self.check()?;
        let board = Arc::default();
        let view = self.view((1..=u64::from(self.members)).map(MemberId).collect());
        // Nodes of one process may be polled by one thread, which is then silent at all but one of
        // them.
        let terms = Terms { suspect_after: None, ..self.terms() };
        let installing = |id: &MemberId| -> Result<_, JoinError> {
            let mut control_plane = ControlPlane::local(&board, *id);
            let event_count = MemberEventCount::create().map_err(no_event_count)?;
            let me = view.rank_of(*id).expect("a member of its own view");
            let engine = Engine::new(view.clone(), me, terms.ablation)?;
            let first =
                First::new(engine, &[], &mut control_plane, Arena::new(event_count), terms.suspect_after, None)?;
            Ok((control_plane, first))
        };
        let members: Vec<_> = view.members.iter().map(installing).collect::<Result<_, _>>()?;
        members.into_iter().map(|(control_plane, first)| Node::new(control_plane, first, terms.clone())).collect()
    }

    fn check(&self) -> Result<(), JoinError> {
        if self.subgroups.is_empty() {
            return Err(JoinError::NoSubgroup);
        }
        if self.members == 0 || self.members as usize > limits::MEMBERS_MAX {
            return Err(JoinError::Members { got: self.members });
        }
        Ok(self.view((1..=u64::from(self.members)).map(MemberId).collect()).check()?)
    }
}

impl<'a> Candidate<'a> {
    fn new(
        config: &'a Config,
        progress: &'a mut dyn FnMut(&BootstrapProgress),
        cancelled: &'a AtomicBool,
    ) -> Result<Candidate<'a>, JoinError> {
        config.check()?;
        let (dir, group) = config.place()?;
        let event_count =
            if config.network.is_some() { MemberEventCount::with_event() } else { MemberEventCount::create() };
        let (settings, event_count) = (config.shared_settings(), event_count.map_err(no_event_count)?);
        let deadline = after(Instant::now(), config.gather_timeout);
        let seen = BootstrapProgress::of(config.members, vec![]);
        Ok(Candidate {
            own: config,
            own_settings: settings.clone(),
            config: config.clone(),
            dir,
            group,
            settings,
            event_count,
            deadline,
            cancelled,
            progress,
            seen,
            failed_source: None,
            has_restored: false,
            bootstrap: None,
            left_out: None,
        })
    }

    fn join<H: Handler>(&mut self, handler: &mut Option<&mut H>) -> Result<Node, JoinError> {
        if let Some(network) = &self.own.network {
            return self.join_afar(network, handler);
        }
        let role = found_or_find(&self.dir, &self.group, self.config.id.map(MemberId), self.deadline, self.cancelled);
        let role = role.map_err(|error| self.named(error))?;
        let (control_socket, mut standing) = match role {
            Role::Founder { control_socket, incarnation } => (control_socket, Standing::Founder { incarnation }),
            Role::Joiner { control_socket, members } => (control_socket, Standing::Joiner { members }),
        };
        let mut control_plane = ControlPlane::new(control_socket, Some(&self.event_count), None)?;
        self.see_myself(&control_plane);
        loop {
            let seek = match standing {
                // A new group begins without state, and the handler now contains the state of the
                // dead group.
                Standing::Founder { .. } if self.has_restored => return Err(JoinError::GroupGone),
                Standing::Founder { incarnation } => {
                    self.use_own();
                    control_plane.set_incarnation(incarnation);
                    Seek::founder(self.wants(false), self.config.members)
                }
                Standing::Joiner { .. } => match handler {
                    Some(handler) => {
                        let Admitted { control_plane, first } = self.learn(control_plane, *handler)?;
                        return self.install(control_plane, first);
                    }
                    None => Seek::joiner(self.wants(false)),
                },
            };
            if let Sought::View(view) = self.seek(&mut control_plane, seek)? {
                return self.begin(control_plane, view);
            }
            // All members had ended before they admitted this process.
            let control_socket = control_plane.control_socket().expect("a process that joins has an address");
            standing = control_socket.create(self.deadline, self.cancelled).map_err(|error| self.named(error))?;
        }
    }

    /// Joins a group that spans hosts: asks its members on this host, and the seeds.
    fn join_afar<H: Handler>(&mut self, network: &Network, handler: &mut Option<&mut H>) -> Result<Node, JoinError> {
        let id = match self.config.id {
            Some(id) => MemberId(id),
            None => random_id()?,
        };
        let control_socket = ControlSocket::open(&self.dir, &self.group, id)?;
        let mut control_plane =
            ControlPlane::new(control_socket, Some(&self.event_count), Some((network, &self.dir, &self.group)))?;
        self.see_myself(&control_plane);
        // The bootstrap of the last attempt has the data directory open.
        self.bootstrap = None;
        self.use_own();
        let bootstrap = self.begin_bootstrap(control_plane.roster(), control_plane.now())?;
        control_plane.set_bootstrap(bootstrap);
        let seek = Seek::afar(self.wants(handler.is_some()), limits::MEMBERS_MAX as u32);
        let Sought::View(view) = self.seek(&mut control_plane, seek)? else {
            // Until this process is admitted, it takes no part in the creation of another group.
            self.bootstrap = control_plane.take_bootstrap();
            self.seen.waits = None;
            // From now on this process does not wait for seeds.
            self.seen.seeds = None;
            let handler = handler.as_mut().expect("only a process that learns has met a group without being let in");
            let Admitted { control_plane, first } = self.learn(control_plane, *handler)?;
            return self.install(control_plane, first);
        };
        if self.has_restored {
            // A new group begins without state, and the handler now contains the state of the dead
            // group.
            return Err(JoinError::GroupGone);
        }
        self.begin(control_plane, view)
    }

    fn wants(&self, learns: bool) -> Wants {
        // A process that looks for its group again accepts any number of first members: other
        // processes may create a group with another number meanwhile.
        let members = if self.was_in().is_some() && !self.config.force_create { 1 } else { self.config.members };
        let (settings, adoption) = (self.own_settings.clone(), self.own.adoption.clone());
        Wants { settings, adoption, members, learns }
    }

    /// Returns the group that this process was a member of, if any.
    fn was_in(&self) -> Option<u128> {
        self.left_out.or(self.config.was_member_of)
    }

    /// Returns the state machine that decides whether a group is created between hosts.
    fn begin_bootstrap<W>(&self, roster: &Roster<W>, now: Time) -> Result<Bootstrapping, JoinError> {
        let dir = self.config.data_dir.as_ref().map(|path| DataDir::open(path, &self.config.group)).transpose()?;
        let random = [random_word()?, random_word()?];
        let (members, word) = (self.config.members, self.config.force_create);
        let (me, process, belongs) = (roster.as_process(), roster.process(), self.was_in());
        let config = self.settings.digest();
        let terms = bootstrap::Terms { me, process, config, members, random, dir, belongs, word };
        Ok(Bootstrapping::new(terms, now))
    }

    /// Looks for the group until a view contains this process, or none can.
    fn seek(&mut self, control_plane: &mut ControlPlane, mut seek: Seek) -> Result<Sought, JoinError> {
        loop {
            if seek.is_due(control_plane.now()) {
                let members = ControlSocket::members(&self.dir, &self.group)?;
                if let Some(bootstrap) = control_plane.bootstrap() {
                    bootstrap.hold(!members.is_empty());
                }
                if let Some(Found::Gone) = control_plane.act(|roster, now| seek.ask(&members, roster, now)) {
                    return Ok(Sought::Gone);
                }
            }
            let news = self.news(control_plane)?.into_iter().filter_map(|news| match news {
                ControlPlaneEvent::Control(news) => Some(news),
                _ => None,
            });
            let news = news.collect();
            if let Some(error) = control_plane.bootstrap().and_then(Bootstrapping::take_failure) {
                return Err(error.into());
            }
            let found = control_plane.act(|roster, now| seek.step(news, roster, now));
            let found = found.or_else(|| control_plane.take_begun().map(Found::from));
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
                Some(Found::Refused(Refusal::Config { settings, .. })) => {
                    self.use_own();
                    return Err(self.other_settings(&settings));
                }
                Some(Found::Refused(why)) => return Err(JoinError::Refused(why)),
                Some(Found::Group) => return Ok(Sought::Group),
                Some(Found::Gone) => return Ok(Sought::Gone),
                Some(Found::View { incarnation, view }) => {
                    self.take_over(&seek.settings_in(incarnation).clone())?;
                    Self::enter(control_plane, incarnation)?.then_some(view)
                }
                Some(Found::Founders { incarnation, members }) => {
                    self.use_own();
                    self.create(control_plane, &seek, incarnation, members)?
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
        let taken = shared_settings::take_over(self.own, settings).ok_or_else(unreadable)?;
        taken.check()?;
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

    /// Returns the first view of a group that is created with this process. `None` if a member of
    /// another group lives on this host.
    fn create(
        &self,
        control_plane: &mut ControlPlane,
        seek: &Seek,
        incarnation: Option<u128>,
        members: Vec<MemberId>,
    ) -> Result<Option<View>, JoinError> {
        if let Some(incarnation) = incarnation
            && !Self::enter(control_plane, incarnation)?
        {
            return Ok(None);
        }
        let view = self.config.view(members);
        view.check()?;
        control_plane.act(|roster, now| seek.creates(&view, roster, now));
        Ok(Some(view))
    }

    /// Begins the view that admits this process, or the first view of the group.
    fn begin(&mut self, mut control_plane: ControlPlane, view: View) -> Result<Node, JoinError> {
        let me = view.rank_of(control_plane.me).expect("it is in the view");
        let terms = self.config.terms();
        let engine = Engine::new(view, me, terms.ablation)?;
        let arena = Arena::new(self.event_count.clone());
        let first = First::new(engine, &[], &mut control_plane, arena, terms.suspect_after, None)?;
        self.install(control_plane, first)
    }

    /// Begins the first view of this process.
    fn install(&mut self, mut control_plane: ControlPlane, mut first: First) -> Result<Node, JoinError> {
        if let Some(bootstrap) = self.bootstrap.take() {
            control_plane.set_bootstrap(bootstrap);
        }
        control_plane.has_joined()?;
        while !first.look(&mut control_plane) {
            control_plane.wait(self.tick(LONG_TICK)?.min(first.patience()));
            if let Err(error) = first.attend(&mut control_plane, &self.settings) {
                return Err(self.note_left_out(error));
            }
        }
        Node::new(control_plane, first, self.config.terms())
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
        Ok(control_plane.news())
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

fn no_event_count(source: RegionError) -> MeshError {
    MeshError::Region { rank: Rank(0), part: "doorbell", source }
}

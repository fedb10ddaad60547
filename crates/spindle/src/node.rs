//! A member of a group before, or without, a polling thread.
use crate::cause::{Cause, trace_back};
use crate::config::Config;
use crate::error::{Ended, HandleError, JoinError};
use crate::group::Group;
use crate::publisher::Publisher;
use crate::receiver::Receiver;
use crate::shared::{End, Shared, Upcall};
use crate::status::{MemberStatus, Status, SubgroupStatus};
use crate::{Batch, Handler};
use spindle_core::layout::membership;
use spindle_core::{Engine, Fault, MemberId, Rank, Rows, State, SubgroupId, Time, Upcalls, View};
use spindle_fabric::meet::{Gathering, GroupName, MeetError, Offer, RuntimeDir, Terms, Watcher, meet};
use spindle_fabric::{Bell, Event, Fabric, OwnRegion, OwnRow, PeerParts, Room, ShmError, ShmFabric};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A member that the caller drives: by calling [`poll`](Self::poll) in a loop of its own, or by [`start`](Self::start), which
/// gives the node to a thread.
///
/// Polling oneself saves the hand-over between threads: it is the fastest way on a machine with few cores. A node that is
/// not polled acknowledges nothing and holds everybody up.
#[derive(Debug)]
pub struct Node {
    /// Tells the fabric of deaths. Stops when dropped, before the fabric goes.
    _watcher: Option<Watcher>,
    engine: Engine,
    fabric: ShmFabric,
    publishers: Vec<Slot<spindle_fabric::Publisher>>,
    ports: Ports,
    /// The first member that died.
    dead: Option<Rank>,
    /// Whether it has been polled: no more handles are given out.
    running: bool,
    shared: Arc<Shared>,
    spin_for: Duration,
    start: Instant,
}

/// What one poll of a [`Node`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Poll {
    /// Something to do: poll again at once.
    Worked,
    /// Nothing.
    Idle,
    /// Every member has finished, and everything is delivered here.
    Finished,
}

/// A handle that is given out once.
#[derive(Debug)]
enum Slot<T> {
    None,
    Here(T),
    Taken,
}

/// Who is woken by what the engine does, by subgroup.
#[derive(Debug)]
struct Ports {
    rooms: Vec<Option<Room>>,
    receivers: Vec<Option<Bell>>,
}

/// Longer than anybody waits, and no moment that overflows.
const GATHER_TIMEOUT_MAX: Duration = Duration::from_secs(u32::MAX as u64);

impl Config {
    /// Joins the group: waits until all its members are there.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(self) -> Result<Node, JoinError> {
        self.join_with(&mut |_| {}, &AtomicBool::new(false))
    }

    /// As [`join`](Self::join); tells `progress` who is there and who is missing, and gives up soon after `cancelled` is set.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join_with(self, progress: &mut dyn FnMut(&Gathering), cancelled: &AtomicBool) -> Result<Node, JoinError> {
        let mut row = None;
        let joined = self.meet(progress, cancelled, &mut row);
        if let (Err(_), Some(row)) = (&joined, row) {
            // The others hold it and may have started. This process lives, so no death will tell them.
            row.store(membership::ABANDONED, Cause::Own.encode());
        }
        joined
    }

    /// Joins the group; puts the memory of this member into `row` once the others may have it.
    fn meet(
        self,
        progress: &mut dyn FnMut(&Gathering),
        cancelled: &AtomicBool,
        row: &mut Option<Arc<OwnRegion>>,
    ) -> Result<Node, JoinError> {
        self.check()?;
        let dir = match &self.runtime_dir {
            Some(path) => RuntimeDir::new(path),
            None => RuntimeDir::default_for_user(None),
        };
        let dir = dir.map_err(MeetError::from)?;
        let group = GroupName::new(&self.group).map_err(MeetError::from)?;
        let terms = Terms {
            dir: &dir,
            group: &group,
            members: self.members,
            id: self.id.map(MemberId),
            config: self.digest(),
            deadline: Instant::now() + self.gather_timeout.min(GATHER_TIMEOUT_MAX),
            cancelled,
        };
        let mut own = None;
        let meeting = meet(&terms, progress, |roster| -> Result<Offer, JoinError> {
            let view = self.view(roster.members.iter().map(|member| member.id).collect());
            let engine = Engine::new(view, roster.me, self.ablation)?;
            let (own_row, parts) = OwnRow::create(engine.layout(), roster.me)?;
            *row = Some(own_row.region());
            own = Some((engine, own_row));
            Ok(Offer { row: parts.row, bell: parts.bell })
        })?;
        let (engine, own_row) = own.expect("a meeting makes the member's memory");
        let me = meeting.roster.me;
        let mut pidfds = Vec::new();
        let mut parts = Vec::new();
        for (rank, peer) in (0..).map(Rank).zip(meeting.peers).filter(|(rank, _)| *rank != me) {
            parts.push((rank, PeerParts { row: peer.row, bell: peer.bell }));
            pidfds.push((rank, peer.pidfd));
        }
        let fabric = ShmFabric::new(engine.layout(), own_row, parts)?;
        let deaths = fabric.death_sink();
        let watcher = Watcher::spawn(pidfds, meeting.keeper, move |rank| deaths.report(rank));
        let members = meeting.roster.members.iter().map(|member| (member.id, member.pid)).collect();
        Ok(Node::new(engine, fabric, Some(watcher?), members, self.spin_for))
    }

    /// All members of the group, in this process: for tests and for trying things out.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn local(&self) -> Result<Vec<Node>, JoinError> {
        self.check()?;
        let view = self.view((1..=u64::from(self.members)).map(MemberId).collect());
        let members: Vec<_> = view.members.iter().map(|id| (*id, std::process::id())).collect();
        let mut own = Vec::new();
        let mut fds = Vec::new();
        for rank in view.ranks() {
            let engine = Engine::new(view.clone(), rank, self.ablation)?;
            let (row, parts) = OwnRow::create(engine.layout(), rank)?;
            own.push((engine, row));
            fds.push(parts);
        }
        let mut nodes = Vec::new();
        for (engine, row) in own {
            let others = view.ranks().filter(|rank| *rank != engine.me());
            let parts: io::Result<Vec<_>> = others.map(|rank| Ok((rank, fds[rank.index()].try_clone()?))).collect();
            let parts = parts.map_err(JoinError::Descriptors)?;
            let fabric = ShmFabric::new(engine.layout(), row, parts)?;
            nodes.push(Node::new(engine, fabric, None, members.clone(), self.spin_for));
        }
        Ok(nodes)
    }

    fn check(&self) -> Result<(), JoinError> {
        if self.subgroups.is_empty() {
            return Err(JoinError::NoSubgroup);
        }
        Ok(self.view((1..=u64::from(self.members)).map(MemberId).collect()).check()?)
    }
}

impl Node {
    fn new(
        engine: Engine,
        fabric: ShmFabric,
        watcher: Option<Watcher>,
        members: Vec<(MemberId, u32)>,
        spin_for: Duration,
    ) -> Node {
        let subgroups = engine.view().subgroups.len() as u32;
        let publisher = |id| match engine.claims(SubgroupId(id)) {
            Some(claims) => Slot::Here(fabric.publisher(claims)),
            None => Slot::None,
        };
        let publishers: Vec<_> = (0..subgroups).map(publisher).collect();
        let room = |slot: &Slot<spindle_fabric::Publisher>| match slot {
            Slot::Here(publisher) => Some(publisher.room()),
            _ => None,
        };
        let ports =
            Ports { rooms: publishers.iter().map(room).collect(), receivers: (0..subgroups).map(|_| None).collect() };
        Node {
            engine,
            fabric,
            _watcher: watcher,
            publishers,
            ports,
            dead: None,
            running: false,
            shared: Arc::new(Shared::new(members)),
            spin_for,
            start: Instant::now(),
        }
    }

    /// The view: who is in, in which subgroups.
    pub fn view(&self) -> &View {
        self.engine.view()
    }

    /// This member's rank in the view.
    pub fn rank(&self) -> Rank {
        self.engine.me()
    }

    /// This member's id.
    pub fn id(&self) -> MemberId {
        self.engine.view().members[self.rank().index()]
    }

    /// The way to send in `subgroup`, given out once, before the first poll. One that nobody has taken by then counts as
    /// dropped: this member sends nothing there.
    ///
    /// # Errors
    /// [`HandleError`].
    pub fn publisher(&mut self, subgroup: &str) -> Result<Publisher, HandleError> {
        let id = find(self.engine.view(), self.rank(), subgroup)?;
        if self.running {
            return Err(HandleError::Running { name: subgroup.to_string() });
        }
        take(&mut self.publishers, id, subgroup).map(|inner| Publisher::new(inner, Arc::clone(&self.shared)))
    }

    /// The deliveries of `subgroup`, for another thread than the one that polls; before the first poll. The handler gets
    /// nothing of this subgroup then.
    ///
    /// # Errors
    /// [`HandleError`].
    pub fn receiver(&mut self, subgroup: &str) -> Result<Receiver, HandleError> {
        let id = find(self.engine.view(), self.rank(), subgroup)?;
        let name = subgroup.to_string();
        if self.ports.receivers[id.index()].is_some() {
            return Err(HandleError::Taken { what: "receiver", name });
        }
        if self.running {
            return Err(HandleError::Running { name });
        }
        let (cursor, handoff) = self.engine.hand_off(id).expect("this member is in the subgroup");
        let bell = Bell::new();
        self.ports.receivers[id.index()] = Some(bell.clone());
        let (rows, engine) = (self.fabric.reader(), self.fabric.doorbell());
        Ok(Receiver { cursor, handoff, rows, bell, engine, shared: Arc::clone(&self.shared) })
    }

    /// Does what there is to do, and returns. Never blocks.
    ///
    /// # Errors
    /// Why the group ended before everything was delivered.
    pub fn poll(&mut self, handler: &mut impl Handler) -> Result<Poll, Ended> {
        if !self.running {
            self.running = true;
            self.publishers.clear();
        }
        while let Some(Event::Dead(member)) = self.fabric.event() {
            self.engine.member_died(member);
            self.dead.get_or_insert(member);
        }
        let mut upcalls = Relay { handler, ports: &self.ports };
        // The core has no timers yet: it needs no precise time, and reading the clock costs as much as a message.
        let progress = self.engine.poll(Time(0), &mut self.fabric, &mut upcalls);
        if let Some(fault) = self.loss() {
            let word = self.fabric.load(fault.member(), membership::ABANDONED);
            let fault = trace_back(fault, word, self.rank(), self.view().members.len() as u32);
            let ended = self.shared.ended_by(fault);
            self.end(End::Broken(ended.clone()));
            return Err(self.shared.broken().cloned().unwrap_or(ended));
        }
        match self.engine.state() {
            State::Running if progress.worked || progress.wake_at.is_some() => Ok(Poll::Worked),
            State::Running => Ok(Poll::Idle),
            State::Finished => {
                self.end(End::Finished);
                Ok(Poll::Finished)
            }
            // What stops the engine wedges it before.
            State::Ended | State::Evicted | State::Failed(_) => Ok(Poll::Idle),
        }
    }

    /// Why the view has to end, if it does. Until views follow each other here, that is the end of the group.
    fn loss(&self) -> Option<Fault> {
        if !self.engine.is_wedged() {
            return None;
        }
        let abandoned = |rank: &Rank| self.fabric.load(*rank, membership::ABANDONED) != 0;
        let fault = self.engine.faults().first().copied();
        let died = self.dead.filter(|rank| self.engine.suspects(*rank)).map(|member| Fault::Died { member });
        let gone = || self.view().ranks().find(abandoned).map(|member| Fault::Abandoned { member });
        let suspected =
            || self.view().ranks().find(|rank| self.engine.suspects(*rank)).map(|member| Fault::Died { member });
        fault.or(died).or_else(gone).or_else(suspected)
    }

    /// Sleeps until something happens for this member, or `at_most` that long. For callers that poll: only after a poll that
    /// was [`Poll::Idle`], and poll again after it.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn sleep(&mut self, handler: &mut impl Handler, at_most: Duration) -> Result<Poll, Ended> {
        self.sleep_unless(handler, at_most, || false)
    }

    /// As [`sleep`](Self::sleep), unless `called` says, after the announcement, that somebody wants this thread.
    pub(crate) fn sleep_unless(
        &mut self,
        handler: &mut impl Handler,
        at_most: Duration,
        called: impl FnOnce() -> bool,
    ) -> Result<Poll, Ended> {
        self.fabric.begin_sleep();
        // What happened before the announcement is seen now; what happens after it rings.
        let poll = self.poll(handler);
        if matches!(poll, Ok(Poll::Idle)) && !called() {
            self.fabric.sleep(at_most);
        } else {
            self.fabric.end_sleep();
        }
        poll
    }

    /// Gives the node to a thread that polls until the group ends. `handler` runs on that thread, for the subgroups whose
    /// [`receiver`](Self::receiver) was not taken.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(self, handler: impl Handler + Send + 'static) -> Result<Group, JoinError> {
        Group::start(self, handler)
    }

    /// How the group stands, as this member knows it.
    pub fn status(&self) -> Status {
        let me = self.rank();
        let subgroups = self.view().subgroups_of(me).map(|(id, spec)| {
            let stable = self.engine.stable(id).unwrap_or(0);
            let members = self.engine.frontiers(id).map(|(rank, frontier)| {
                let (member, pid) = self.shared.members[rank.index()];
                let flag = |word| self.fabric.load(rank, word) != 0;
                MemberStatus {
                    id: member,
                    rank,
                    pid,
                    asleep: flag(membership::ASLEEP),
                    finished: flag(membership::FINISHED),
                    frontier,
                    lag: stable.saturating_sub(frontier.delivered),
                }
            });
            let stats = self.engine.subgroup_stats(id).unwrap_or_default();
            SubgroupStatus { name: spec.name.clone(), stats, stable, members: members.collect() }
        });
        Status { engine: self.engine.stats(), subgroups: subgroups.collect() }
    }

    pub(crate) fn spin_for(&self) -> Duration {
        self.spin_for
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn doorbell(&self) -> spindle_fabric::Doorbell {
        self.fabric.doorbell()
    }

    /// How long this member has been in.
    pub fn uptime(&self) -> Duration {
        self.start.elapsed()
    }

    fn end(&self, end: End) {
        self.shared.set_end(end);
        for (id, _) in self.view().subgroups_of(self.rank()) {
            if let Some(claims) = self.engine.claims(id) {
                claims.revoke();
            }
        }
        for room in self.ports.rooms.iter().flatten() {
            room.end();
        }
        for bell in self.ports.receivers.iter().flatten() {
            bell.ring();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Without an end of its own the group ends here, for everybody: a member that is gone can't acknowledge.
        self.engine.abandon(Cause::of(self.shared.broken()).encode(), &mut self.fabric);
        self.end(End::Broken(Ended::Dropped));
    }
}

/// The engine's upcalls, passed on to the handler and to whoever waits.
struct Relay<'a, H> {
    handler: &'a mut H,
    ports: &'a Ports,
}

impl<H: Handler> Upcalls<ShmFabric> for Relay<'_, H> {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        let _running = Upcall::enter();
        self.handler.deliver(subgroup, batch);
    }

    fn room(&mut self, subgroup: SubgroupId) {
        if let Some(room) = &self.ports.rooms[subgroup.index()] {
            room.ring_if_waiting();
        }
    }

    fn handed_off(&mut self, subgroup: SubgroupId) {
        if let Some(bell) = &self.ports.receivers[subgroup.index()] {
            bell.ring();
        }
    }
}

impl From<ShmError> for JoinError {
    fn from(error: ShmError) -> JoinError {
        JoinError::Memory(error)
    }
}

fn find(view: &View, me: Rank, name: &str) -> Result<SubgroupId, HandleError> {
    let found = view.subgroups_of(me).find(|(_, spec)| spec.name == name);
    found.map(|(id, _)| id).ok_or_else(|| {
        let known: Vec<&str> = view.subgroups_of(me).map(|(_, spec)| spec.name.as_str()).collect();
        HandleError::NoSuchSubgroup { name: name.to_string(), known: known.join(", ") }
    })
}

fn take<T>(slots: &mut [Slot<T>], id: SubgroupId, name: &str) -> Result<T, HandleError> {
    let name = name.to_string();
    match std::mem::replace(&mut slots[id.index()], Slot::Taken) {
        Slot::Here(handle) => Ok(handle),
        Slot::Taken => Err(HandleError::Taken { what: "publisher", name }),
        Slot::None => {
            slots[id.index()] = Slot::None;
            Err(HandleError::NoSender { name })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(node: &mut Node) -> Ended {
        let mut handler = |_: SubgroupId, _: &mut Batch<'_>| {};
        let patience = Instant::now() + Duration::from_secs(10);
        loop {
            match node.poll(&mut handler) {
                Err(ended) => return ended,
                Ok(_) => assert!(Instant::now() < patience, "the group did not end"),
            }
        }
    }

    #[test]
    fn a_group_may_be_waited_for_without_end() {
        let dir = std::env::temp_dir().join(format!("spindle-patient-test-{}", std::process::id()));
        let mut config = Config::new("g", 1);
        (config.runtime_dir, config.gather_timeout) = (Some(dir.clone()), Duration::MAX);
        assert_eq!(config.join().unwrap().view().members.len(), 1);
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// A peer whose memory can't be mapped keeps this member out, but may have started: it must learn of it from my row.
    #[test]
    fn who_fails_after_the_meeting_tells_the_others() {
        let dir = std::env::temp_dir().join(format!("spindle-node-test-{}", std::process::id()));
        let mut config = Config::new("g", 2);
        (config.runtime_dir, config.gather_timeout) = (Some(dir.clone()), Duration::from_secs(20));
        let view = config.view(vec![MemberId(1), MemberId(2)]);
        let size = spindle_core::Layout::new(&view).unwrap().row(Rank(0)).size;
        let digest = config.digest();
        config.id = Some(1);
        let joining = std::thread::spawn(move || config.join());
        let terms = Terms {
            dir: &RuntimeDir::new(&dir).unwrap(),
            group: &GroupName::new("g").unwrap(),
            members: 2,
            id: Some(MemberId(2)),
            config: digest,
            deadline: Instant::now() + Duration::from_secs(20),
            cancelled: &AtomicBool::new(false),
        };
        let meeting = meet(&terms, &mut |_| {}, |_| -> Result<Offer, JoinError> {
            let (_, row) = OwnRegion::create("too short", 4096, 64).unwrap();
            let (_, bell) = OwnRegion::create("bell", 4096, 64).unwrap();
            Ok(Offer { row, bell })
        });
        assert!(matches!(joining.join().unwrap(), Err(JoinError::Memory(_))));
        let row = spindle_fabric::PeerRegion::open("row", &meeting.unwrap().peers[0].row, size).unwrap();
        assert_ne!(row.load(membership::ABANDONED), 0);
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// Each way in which a member may hear of the end of another, and who it then blames.
    #[test]
    fn a_death_is_traced_back_to_the_first() {
        for died in [false, true] {
            let [mut one, mut two, mut three, four] = Config::new("g", 4).local().unwrap().try_into().unwrap();
            one.fabric.death_sink().report(Rank(3));
            assert!(matches!(ended(&mut one), Ended::Died { rank: Rank(3), .. }));
            drop(one);
            // Of the fourth's death these two have not heard, of the first's end they have.
            if died {
                two.fabric.death_sink().report(Rank(0));
            }
            assert!(matches!(ended(&mut two), Ended::Died { rank: Rank(3), .. }));
            drop(two);
            assert!(matches!(ended(&mut three), Ended::Died { rank: Rank(3), .. }));
            drop(four);
        }
    }

    #[test]
    fn giving_up_is_told_from_dying_and_traced_back_too() {
        let [mut one, mut two, three] = Config::new("g", 3).local().unwrap().try_into().unwrap();
        drop(three);
        two.fabric.death_sink().report(Rank(2));
        assert!(matches!(ended(&mut two), Ended::Abandoned { rank: Rank(2), .. }));
        drop(two);
        one.fabric.death_sink().report(Rank(1));
        assert!(matches!(ended(&mut one), Ended::Abandoned { rank: Rank(2), .. }));
    }
}

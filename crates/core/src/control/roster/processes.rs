//! The processes that are known by their ids.
//!
//! At any time an id belongs to one process: the member, or the process that has identified itself
//! last with it, when it asked for admission or took part in the bootstrap. An earlier process with
//! the id is remembered only among the `former` ones, because the group may have admitted that one.
//! A process of this host is known by its pid and start, and a process of another host by its number
//! there.
use super::{FORMER_MAX, Me, RosterOrder};
use crate::control::{Birth, HostProcess, Instance};
use crate::ids::{CLIENT_IDS_FROM, MemberId, Process};
use crate::mutation::mutation;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// The table of the processes that this process knows, and which of them are watched.
#[derive(Debug)]
pub(super) struct Processes {
    /// This process, which is never watched.
    me: MemberId,
    /// The nonces of the processes that have identified themselves last with their ids.
    nonces: BTreeMap<MemberId, u32>,
    pids: BTreeMap<MemberId, u32>,
    instances: BTreeMap<MemberId, Instance>,
    /// The pids and starts of processes of this host. The start differs from that of other
    /// processes with the same pid.
    births: BTreeMap<MemberId, (u32, Birth)>,
    /// The processes of other hosts that have identified themselves, each with its nonce, as they
    /// reported them. Other processes of their hosts may never have heard of them, and then cannot
    /// ask the kernel for their ends.
    far: BTreeMap<MemberId, (u32, HostProcess)>,
    /// The processes of this host that identified themselves before the last one with their id: their
    /// nonces, pids and starts. The group may have admitted one of them.
    former: BTreeMap<MemberId, Vec<(u32, u32, Birth)>>,
    watched: BTreeSet<MemberId>,
    /// Members that write nothing any more, each with its process if that was known. The kernel
    /// reported their ends, or they reported themselves that they never took part.
    dead: BTreeMap<MemberId, Option<(u32, Birth)>>,
}

impl Processes {
    /// Returns the table of a process that has met no other.
    pub(super) fn new(me: MemberId) -> Processes {
        let (nonces, pids, instances, births, far, former, watched, dead) = Default::default();
        Processes { me, nonces, pids, instances, births, far, former, watched, dead }
    }

    /// Returns the nonce of the process that has identified itself last with this id.
    pub(super) fn nonce(&self, id: MemberId) -> Option<u32> {
        self.nonces.get(&id).copied()
    }

    /// Notes the nonce of the process that has this id. Returns whether it is another process than
    /// the one that has identified itself last.
    pub(super) fn note_nonce(&mut self, Process { id, nonce }: Process) -> bool {
        self.nonces.insert(id, nonce) != Some(nonce)
    }

    /// Returns the pid of the process of `id`.
    pub(super) fn pid(&self, id: MemberId) -> Option<u32> {
        self.pids.get(&id).copied()
    }

    /// Notes the pid of a process, if none is known.
    pub(super) fn note_pid(&mut self, id: MemberId, pid: u32) {
        self.pids.entry(id).or_insert(pid);
    }

    /// Returns the instance of `id`.
    pub(super) fn instance(&self, id: MemberId) -> Option<Instance> {
        self.instances.get(&id).copied()
    }

    /// Notes the instance of `id`.
    pub(super) fn set_instance(&mut self, id: MemberId, instance: Instance) {
        self.instances.insert(id, instance);
    }

    /// Returns the number of the process of `id` on its host, if that is another host.
    pub(super) fn far_instance(&self, id: MemberId) -> Option<u128> {
        match self.instance(id) {
            Some(Instance::Far(process)) => Some(process),
            _ => None,
        }
    }

    /// Returns the pid and start of a process of this host.
    pub(super) fn near(&self, id: MemberId) -> Option<(u32, Birth)> {
        self.births.get(&id).copied()
    }

    /// True if a process of this host is known by this id.
    pub(super) fn is_near(&self, id: MemberId) -> bool {
        self.births.contains_key(&id)
    }

    /// Notes the pid and start of a process of this host, if none are known.
    pub(super) fn note_near(&mut self, id: MemberId, process: (u32, Birth)) {
        self.births.entry(id).or_insert(process);
    }

    /// Returns the processes of this `host`.
    pub(super) fn all_near(&self, host: u128) -> impl Iterator<Item = HostProcess> {
        self.births.iter().map(move |(id, (pid, birth))| HostProcess { id: *id, host, pid: *pid, birth: *birth })
    }

    /// Returns the processes of other hosts that have identified themselves last with their ids.
    pub(super) fn all_far(&self) -> impl Iterator<Item = HostProcess> {
        // Another process with the id of a member may have asked since.
        let is_it = |(id, (nonce, _)): &(&MemberId, &(u32, HostProcess))| self.nonces.get(id) == Some(nonce);
        self.far.iter().filter(is_it).map(|(_, (_, process))| *process)
    }

    /// True if `id` writes nothing any more, and is on another host if `is_far`.
    pub(super) fn is_dead(&self, id: MemberId, is_far: impl Fn() -> bool) -> bool {
        // If the known process is not the one that died, another process has the id by now. Nothing
        // proves a death on another host.
        let is_it = |of: &Option<(u32, Birth)>| *of == self.near(id) && !is_far();
        self.dead.get(&id).is_some_and(|of| is_it(of) || mutation!(DeathOfAnother))
    }

    /// Notes that the known process of `id` writes nothing any more.
    pub(super) fn die(&mut self, id: MemberId) {
        self.dead.insert(id, self.near(id));
    }

    /// True if the process of `id` is watched.
    pub(super) fn is_watched(&self, id: MemberId) -> bool {
        self.watched.contains(&id)
    }

    /// Notes that the driver watches the process of `id`. Returns whether it is new.
    pub(super) fn note_watched(&mut self, id: MemberId) -> bool {
        self.watched.insert(id)
    }

    /// Notes that the driver does not watch the process of `id`. Returns whether it did.
    pub(super) fn note_unwatched(&mut self, id: MemberId) -> bool {
        self.watched.remove(&id)
    }

    /// Orders a watch of the process of this host that is known as `id`, unless it is watched. The
    /// process may have ended.
    pub(super) fn watch(&mut self, id: MemberId, orders: &mut VecDeque<RosterOrder>) {
        let Some((pid, birth)) = self.near(id).filter(|_| id != self.me) else { return };
        if self.watched.insert(id) {
            orders.push_back(RosterOrder::Watch { id, pid, birth: Some(birth) });
        }
    }

    /// Orders a watch of a client, of which only the pid is known.
    pub(super) fn watch_client(&mut self, id: MemberId, orders: &mut VecDeque<RosterOrder>) {
        if let Some(pid) = self.pid(id)
            && self.watched.insert(id)
        {
            // The reported end may be that of the previous process. If this process has ended as
            // well, the watch reports that.
            self.dead.remove(&id);
            orders.push_back(RosterOrder::Watch { id, pid, birth: None });
        }
    }

    /// Watches this process, and no other, as the process of `id`.
    fn watch_instead(&mut self, id: MemberId, process: Option<(u32, Birth)>, orders: &mut VecDeque<RosterOrder>) {
        if self.watched.remove(&id) {
            orders.push_back(RosterOrder::Unwatch(id));
        }
        if let Some(process) = process {
            self.births.insert(id, process);
            self.watch(id, orders);
        }
    }

    /// Notes a process that has identified itself. `far` is its host, and its number there, if it
    /// is on another host.
    pub(super) fn note(
        &mut self,
        Process { id: from, nonce }: Process,
        (pid, birth): (u32, Birth),
        far: Option<(u128, u128)>,
        is_member: bool,
        orders: &mut VecDeque<RosterOrder>,
    ) {
        if let Some((host, _)) = far.filter(|_| !is_member) {
            self.far.insert(from, (nonce, HostProcess { id: from, host, pid, birth }));
        }
        let instance = Instance::of(pid, far);
        if is_member {
            self.pids.entry(from).or_insert(pid);
            self.instances.entry(from).or_insert(instance);
            return;
        }
        let asked_before = self.nonces.insert(from, nonce);
        if self.instances.insert(from, instance) != Some(instance) || !self.watched.contains(&from) {
            self.dead.remove(&from);
            let known = self.births.remove(&from);
            if let Some(((pid, birth), nonce)) = known.zip(asked_before).filter(|(_, before)| *before != nonce) {
                let former = self.former.entry(from).or_default();
                former.push((nonce, pid, birth));
                former.drain(..former.len().saturating_sub(FORMER_MAX));
            }
            // Clients are watched if they observe.
            let is_near = instance == Instance::Near(pid) && from.0 < CLIENT_IDS_FROM;
            self.pids.insert(from, pid);
            self.watch_instead(from, is_near.then_some((pid, birth)), orders);
        }
    }

    /// Notes that a process of this host has identified itself by its memory.
    pub(super) fn note_handed_over(&mut self, Me { id, pid, birth }: Me) {
        self.pids.insert(id, pid);
        let process = (pid, birth);
        if self.births.insert(id, process).is_some_and(|known| known != process) {
            // Another process with this id is watched.
            self.watched.remove(&id);
        }
        self.instances.insert(id, Instance::Near(pid));
    }

    /// Notes that the id belongs to this process of this host, and to no other.
    pub(super) fn replace(&mut self, id: MemberId, (pid, birth): (u32, Birth), orders: &mut VecDeque<RosterOrder>) {
        self.pids.insert(id, pid);
        self.instances.insert(id, Instance::Near(pid));
        self.watch_instead(id, Some((pid, birth)), orders);
    }

    /// Notes that the id belongs to the process with this nonce, and to no other.
    ///
    /// If this process asked earlier, it is watched again, and may have ended.
    pub(super) fn admit(&mut self, Process { id, nonce }: Process, orders: &mut VecDeque<RosterOrder>) {
        let former = self.former.get_mut(&id).and_then(|former| former.extract_if(.., |of| of.0 == nonce).next());
        let process = former.map(|(_, pid, birth)| (pid, birth));
        self.births.remove(&id);
        self.dead.remove(&id);
        self.pids.remove(&id);
        self.instances.remove(&id);
        match process {
            Some(process) => self.replace(id, process, orders),
            None => self.watch_instead(id, None, orders),
        }
    }

    /// Notes that a view has begun. Forgets processes that are not `wanted`, and earlier processes with the
    /// ids of all but the `joiners`.
    pub(super) fn begin(
        &mut self,
        wanted: &BTreeSet<MemberId>,
        joiners: &BTreeSet<MemberId>,
        orders: &mut VecDeque<RosterOrder>,
    ) {
        for id in self.watched.extract_if(.., |id| !wanted.contains(id)) {
            orders.push_back(RosterOrder::Unwatch(id));
        }
        self.pids.retain(|id, _| wanted.contains(id));
        self.instances.retain(|id, _| wanted.contains(id));
        self.nonces.retain(|id, _| wanted.contains(id));
        self.births.retain(|id, _| wanted.contains(id));
        self.far.retain(|id, _| wanted.contains(id));
        self.former.retain(|id, _| joiners.contains(id));
        self.dead.retain(|id, _| wanted.contains(id));
    }
}

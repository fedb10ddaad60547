//! The processes that the roster knows by an id: their pids and starts, their watches, and their ends.
use super::{ControlEvent, FORMER_MAX, Me, Order, Roster};
use crate::control::{Birth, HostProcess, Instance};
use crate::ids::{CLIENT_IDS_FROM, MemberId, Process};
use crate::mutation::mutation;

impl<W> Roster<W> {
    /// Returns the pid of the process of `id`; 0 if it is not known.
    pub fn pid(&self, id: MemberId) -> u32 {
        if id == self.me.id { self.me.pid } else { self.pids.get(&id).copied().unwrap_or(0) }
    }

    /// Returns the process of member `id` of this host, if its memory has arrived.
    pub fn process_of(&self, id: MemberId) -> Option<Me> {
        self.births.get(&id).map(|(pid, birth)| Me { id, pid: *pid, birth: *birth })
    }

    /// True if `instance` has, or is to have, the part of member `id`.
    pub fn is_instance(&self, id: MemberId, instance: Instance) -> bool {
        self.instances.get(&id) == Some(&instance) || mutation!(NoncesIgnored)
    }

    /// True if `id` writes nothing any more.
    pub fn is_dead(&self, id: MemberId) -> bool {
        // If the known process is not the one that died, another process has the id by now. Nothing
        // proves a death on another host.
        let is_it = |of: &Option<(u32, Birth)>| *of == self.births.get(&id).copied() && !self.is_far(id);
        self.dead.get(&id).is_some_and(|of| is_it(of) || mutation!(DeathOfAnother))
    }

    /// Notes that the watched process of `id` has ended, as the kernel reports.
    pub fn watched_ended(&mut self, id: MemberId) {
        if self.observers.remove(&id) || !self.members.contains(&id) {
            // Another process may have the id next.
            self.watched.remove(&id);
        }
        self.has_ended(id);
    }

    /// Notes that the process with this pid and start as `id` had ended when it was to be watched.
    pub fn found_ended(&mut self, id: MemberId, pid: u32, birth: Birth) {
        // Another process may have the id by now.
        if self.births.get(&id) == Some(&(pid, birth)) {
            self.has_ended(id);
        }
    }

    /// Notes that the process of `id` writes nothing any more.
    pub fn has_ended(&mut self, id: MemberId) {
        if self.members.contains(&id) && self.is_far(id) {
            // This process of this host waited for admission with the id of a member of another
            // host.
            self.watched.remove(&id);
            return self.news.push(ControlEvent::Lost(id));
        }
        // A request that it wrote before may have arrived after its end.
        self.observers.remove(&id);
        self.orders.push_back(Order::Forget(id));
        if !self.is_dead(id) {
            self.dead.insert(id, self.births.get(&id).copied());
            self.news.push(ControlEvent::Died(id));
        }
    }

    /// Notes that the process of `id` cannot be watched now.
    pub fn unwatched(&mut self, id: MemberId) {
        self.watched.remove(&id);
    }

    /// Orders a watch of the process of this host that is known as `id`, unless it is watched. The
    /// process may have ended.
    pub(super) fn watch(&mut self, id: MemberId) {
        let Some((pid, birth)) = self.births.get(&id).copied().filter(|_| id != self.me.id) else { return };
        if self.watched.insert(id) {
            self.orders.push_back(Order::Watch { id, pid, birth: Some(birth) });
        }
    }

    /// True if `id` is a process of this host whose end the kernel has not reported.
    pub fn runs_here(&self, id: MemberId) -> bool {
        self.births.contains_key(&id) && !self.is_dead(id)
    }

    /// Notes a process that has identified itself. `far` is its host, and its number there, if it is
    /// on another host.
    pub(super) fn note_process(&mut self, process: Process, pid: u32, birth: Birth, far: Option<(u128, u128)>) {
        let Process { id: from, nonce } = process;
        if let Some((host, _)) = far.filter(|_| !self.members.contains(&from)) {
            self.far_processes.insert(from, (nonce, HostProcess { id: from, host, pid, birth }));
        }
        let instance = Instance::of(pid, far);
        if self.members.contains(&from) {
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
            self.watch_instead(from, is_near.then_some((pid, birth)));
        }
    }

    /// Watches this process, and no other, as the process of `id`.
    pub(super) fn watch_instead(&mut self, id: MemberId, process: Option<(u32, Birth)>) {
        if self.watched.remove(&id) {
            self.orders.push_back(Order::Unwatch(id));
        }
        if let Some(process) = process {
            self.births.insert(id, process);
            self.watch(id);
        }
    }

    /// Notes that the driver watches the process of `id`. Returns whether the driver has to begin:
    /// it may watch the process already.
    pub fn begin_watch(&mut self, id: MemberId) -> bool {
        self.watched.insert(id)
    }
}

//! The watches of processes of this host, and the ends that they report.
use super::{ControlEvent, Me, Roster, RosterOrder};
use crate::control::{Birth, Instance};
use crate::ids::{MemberId, Process};
use crate::mutation::mutation;

impl<W> Roster<W> {
    /// Returns the pid of the process of `id`; 0 if it is not known.
    pub fn pid(&self, id: MemberId) -> u32 {
        if id == self.me.id { self.me.pid } else { self.processes.pid(id).unwrap_or(0) }
    }

    /// Returns the process of member `id` of this host, if its memory has arrived.
    pub fn process_of(&self, id: MemberId) -> Option<Me> {
        self.processes.near(id).map(|(pid, birth)| Me { id, pid, birth })
    }

    /// True if `instance` has, or is to have, the part of member `id`.
    pub fn is_instance(&self, id: MemberId, instance: Instance) -> bool {
        self.processes.instance(id) == Some(instance) || mutation!(NoncesIgnored)
    }

    /// True if `id` writes nothing any more.
    pub fn is_dead(&self, id: MemberId) -> bool {
        self.processes.is_dead(id, || self.is_far(id))
    }

    /// Notes that the watched process of `id` has ended, as the kernel reports.
    pub fn watched_ended(&mut self, id: MemberId) {
        if self.observers.remove(id) || !self.members.contains(&id) {
            // Another process may have the id next.
            self.processes.note_unwatched(id);
        }
        self.has_ended(id);
    }

    /// Notes that the process with this pid and start as `id` had ended when it was to be watched.
    pub fn found_ended(&mut self, id: MemberId, pid: u32, birth: Birth) {
        // Another process may have the id by now.
        if self.processes.near(id) == Some((pid, birth)) {
            self.has_ended(id);
        }
    }

    /// Notes that the process of `id` writes nothing any more.
    pub fn has_ended(&mut self, id: MemberId) {
        if self.members.contains(&id) && self.is_far(id) {
            // This process of this host waited for admission with the id of a member of another
            // host.
            self.processes.note_unwatched(id);
            return self.news.push(ControlEvent::Lost(id));
        }
        // A request that it wrote before may have arrived after its end.
        self.observers.remove(id);
        self.orders.push_back(RosterOrder::Forget(id));
        if !self.is_dead(id) {
            self.processes.die(id);
            self.news.push(ControlEvent::Died(id));
        }
    }

    /// Notes that the process of `id` cannot be watched now.
    pub fn unwatched(&mut self, id: MemberId) {
        self.processes.note_unwatched(id);
    }

    /// True if `id` is a process of this host whose end the kernel has not reported.
    pub fn runs_here(&self, id: MemberId) -> bool {
        self.processes.is_near(id) && !self.is_dead(id)
    }

    /// Notes a process that has identified itself. `far` is its host, and its number there, if it
    /// is on another host.
    pub(super) fn note_process(&mut self, process: Process, pid: u32, birth: Birth, far: Option<(u128, u128)>) {
        let is_member = self.members.contains(&process.id);
        self.processes.note(process, (pid, birth), far, is_member, &mut self.orders);
    }

    /// Notes that the driver watches the process of `id`. Returns whether the driver has to begin:
    /// it may watch the process already.
    pub fn begin_watch(&mut self, id: MemberId) -> bool {
        self.processes.note_watched(id)
    }
}

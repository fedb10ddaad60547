//! How a process reaches the others: control sockets on its host, connections to other hosts, or a
//! board for members of one process.
use super::BulkLink;
use super::net::Net;
use crate::shared::{Notices, lock};
use spindle_core::{MemberId, ViewId};
use spindle_fabric::RowDescriptors;
use spindle_transport::rendezvous::{ControlSocket, Outbox, RendezvousError, Watch, enclose};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of them in a process")]
pub(super) enum Ways {
    Rendezvous(Rendezvous),
    /// All members are in this process.
    Local(Arc<Board>),
}

/// The ways of a process with an address of its own.
#[derive(Debug)]
pub(super) struct Rendezvous {
    pub(super) control_socket: ControlSocket,
    pub(super) outbox: Outbox,
    pub(super) watch: Watch,
    /// The watch over each watched process.
    watched: BTreeMap<MemberId, u64>,
    pub(super) pidfd: Arc<OwnedFd>,
    /// The connections to other hosts.
    pub(super) net: Option<Net>,
    /// The last attachment, and its file.
    enclosed: Option<(Arc<[u8]>, Arc<OwnedFd>)>,
}

impl Rendezvous {
    pub(super) fn new(control_socket: ControlSocket, watch: Watch, pidfd: OwnedFd, net: Option<Net>) -> Rendezvous {
        Rendezvous {
            control_socket,
            outbox: Outbox::new(),
            watch,
            watched: BTreeMap::new(),
            pidfd: Arc::new(pidfd),
            net,
            enclosed: None,
        }
    }

    /// Watches the process of `id`, and no other with that id.
    pub(super) fn watch(&mut self, id: MemberId, pidfd: OwnedFd) -> Result<(), RendezvousError> {
        self.watched.remove(&id);
        self.watched.insert(id, self.watch.watch(id.0, pidfd)?);
        Ok(())
    }

    pub(super) fn unwatch(&mut self, id: MemberId) {
        self.watched.remove(&id);
        self.watch.unwatch(id.0);
    }

    /// Returns whether this watch reports the death of the process that is watched now. Another
    /// process with its id may be watched by now.
    pub(super) fn is_death(&mut self, id: MemberId, watch: u64) -> bool {
        let is_it = self.watched.get(&id) == Some(&watch);
        if is_it {
            self.watched.remove(&id);
        }
        is_it
    }

    /// Returns these bytes as a file, which is made once for all simultaneous receivers. `None` if
    /// the system has no room for it.
    pub(super) fn enclose(&mut self, bytes: &Arc<[u8]>) -> Option<Arc<OwnedFd>> {
        if let Some((_, fd)) = self.enclosed.as_ref().filter(|(last, _)| Arc::ptr_eq(last, bytes)) {
            return Some(Arc::clone(fd));
        }
        let fd = Arc::new(enclose(bytes).ok()?);
        self.enclosed = Some((Arc::clone(bytes), Arc::clone(&fd)));
        Some(fd)
    }

    /// Drops the last attachment, which is not sent again.
    pub(super) fn forget_enclosed(&mut self) {
        self.enclosed = None;
    }
}

/// The board on which the members of one process leave their memory for each other.
#[derive(Debug, Default)]
pub(crate) struct Board {
    pub(super) parts: Mutex<BTreeMap<(ViewId, MemberId, MemberId), RowDescriptors>>,
    pub(super) event_counts: Mutex<BTreeMap<MemberId, Arc<Notices>>>,
    pub(super) bulk_links: Mutex<BTreeMap<MemberId, Vec<(ViewId, BulkLink)>>>,
    /// The members that hand over no more memory.
    pub(super) gone: Mutex<BTreeSet<MemberId>>,
}

impl Board {
    /// Leaves an item for `to`, and wakes it.
    pub(super) fn leave(&self, to: MemberId, put: impl FnOnce()) {
        put();
        if let Some(notices) = lock(&self.event_counts).get(&to) {
            notices.ring();
        }
    }

    /// Takes the items for `me`.
    pub(super) fn take(&self, me: MemberId) -> Vec<(ViewId, MemberId, RowDescriptors)> {
        let mut parts = lock(&self.parts);
        let mine = parts.extract_if(.., |(_, _, to), _| *to == me);
        mine.map(|((view, from, _), parts)| (view, from, parts)).collect()
    }
}

/// The parts that a member hands to all others.
#[derive(Debug)]
pub(crate) struct SharedRowDescriptors {
    pub(super) row: Arc<OwnedFd>,
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) lease: Arc<OwnedFd>,
    pub(super) event_count: Arc<OwnedFd>,
    pub(super) event: Option<Arc<OwnedFd>>,
}

impl SharedRowDescriptors {
    pub(crate) fn new(parts: RowDescriptors) -> SharedRowDescriptors {
        let RowDescriptors { row, at, bytes, lease, event_count, event } = parts;
        let [row, lease, event_count] = [row, lease, event_count].map(Arc::new);
        SharedRowDescriptors { row, at, bytes, lease, event_count, event: event.map(Arc::new) }
    }

    pub(super) fn try_clone(&self) -> std::io::Result<RowDescriptors> {
        let event = self.event.as_ref().map(|event| event.try_clone()).transpose()?;
        let [row, lease, event_count] = [&self.row, &self.lease, &self.event_count].map(|fd| fd.try_clone());
        Ok(RowDescriptors {
            row: row?,
            at: self.at,
            bytes: self.bytes,
            lease: lease?,
            event_count: event_count?,
            event,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control_plane::tests::Hosts;
    use spindle_transport::rendezvous::disclose;

    #[test]
    fn an_attachment_to_many_is_made_once() {
        let hosts = Hosts::new("enclosed-once");
        let mut control_plane = hosts.control_plane(0, 1, "a", &[]);
        let Ways::Rendezvous(rendezvous) = &mut control_plane.ways else { unreachable!() };
        let told = Arc::<[u8]>::from(*b"told");
        let fd = rendezvous.enclose(&told).unwrap();
        assert!(Arc::ptr_eq(&fd, &rendezvous.enclose(&told).unwrap()));
        assert_eq!(disclose(&fd, 4, 4).unwrap(), b"told");
        assert!(!Arc::ptr_eq(&fd, &rendezvous.enclose(&Arc::from(*b"else")).unwrap()));
    }
}

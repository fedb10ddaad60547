//! The address of a process, and the mark and the name that show that it is a member.
use crate::fork::{Owner, Socket};
use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::group_files::{GroupFiles, GroupLock, Spot, new_socket};
use crate::rendezvous::limits::SEND_BUFFER_BYTES;
use crate::rendezvous::living::BoundName;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{SocketAddrUnix, bind};
use spindle_core::MemberId;
use spindle_core::ids::CLIENT_IDS_FROM;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An address, and whether its owner is a member, as others see it.
#[derive(Debug)]
pub(in crate::rendezvous) struct SocketAddress {
    pub(super) place: GroupFiles,
    pub(super) id: MemberId,
    /// A forked child has a copy of everything, and gives nothing up.
    pub(super) owner: Owner,
    pub(super) state: Mutex<AddressState>,
}

#[derive(Debug)]
pub(super) struct AddressState {
    /// The device and inode of the socket, so that a socket of another process is never removed.
    pub(super) made: (u64, u64),
    /// The incarnation of the group that it is a member of.
    pub(super) member: Option<u128>,
    /// Its name that outlives the directory.
    pub(super) name: Option<BoundName>,
}

impl SocketAddress {
    pub(super) fn state(&self) -> MutexGuard<'_, AddressState> {
        // No code here panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the path of the address, as shown to operators.
    pub(in crate::rendezvous) fn shown(&self) -> PathBuf {
        self.place.shown(self.id)
    }

    /// Returns whether others find this process at its address. Closes the connections of those
    /// that have checked.
    pub(in crate::rendezvous) fn is_in_place(&self) -> bool {
        let state = self.state();
        if let Some(name) = &state.name {
            name.see_probes();
        }
        let is_mine = |spot: Result<Spot, _>| spot.is_ok_and(|spot: Spot| spot.found() == Some(state.made));
        self.place.dir.is_current()
            && is_mine(self.place.address(self.id))
            && (state.member.is_none() || is_mine(self.place.mark(self.id)))
    }

    pub(super) fn put_mark(&self, _held: &GroupLock, incarnation: u128) -> Result<(), RendezvousError> {
        assert!(self.id.0 < CLIENT_IDS_FROM, "a client takes no part in its group");
        let mut state = self.state();
        if state.member.is_none() {
            state.name = self.place.key.live(self.id, incarnation)?;
        }
        state.member = Some(incarnation);
        let (spot, mark) = (self.place.address(self.id)?, self.place.mark(self.id)?);
        if mark.found() == Some(state.made) {
            return Ok(());
        }
        mark.remove()?;
        match spot.link(&mark) {
            // Its address was removed, and both are made again together. Meanwhile its abstract
            // name shows that it is a member.
            Err(Errno::NOENT) if state.name.is_some() => Ok(()),
            linked => linked.map_err(|source| RendezvousError::io("make", Some(&mark), source)),
        }
    }

    pub(super) fn leave(&self) {
        if self.owner.is_copy() {
            return;
        }
        let mut state = self.state();
        if state.member.take().is_some() {
            state.name = self.place.key.wait(self.id).unwrap_or(None);
        }
        drop(state);
        self.remove_mine(self.place.mark(self.id).ok());
    }

    /// Needs no lock: while this socket is open no process takes its names over.
    pub(super) fn remove_mine(&self, spot: Option<Spot>) {
        if let Some(spot) = spot.filter(|spot| spot.found() == Some(self.state().made)) {
            let _ = spot.remove();
        }
    }
}

/// Returns a socket with a name, and its device and inode.
pub(super) fn bind_at(spot: &Spot) -> Result<(Socket, (u64, u64)), RendezvousError> {
    let failed = |doing| move |errno: Errno| RendezvousError::io(doing, Some(spot), errno);
    let socket = new_socket()?;
    // Control messages in others' queues count against it. The system may allow less.
    let _ = set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES);
    let address = SocketAddrUnix::new(&**spot).map_err(failed("name the socket"))?;
    bind(&socket, &address).map_err(failed("make the socket"))?;
    let made = spot.found().ok_or_else(|| failed("look at the socket")(Errno::NOENT))?;
    Ok((Socket::new(socket), made))
}

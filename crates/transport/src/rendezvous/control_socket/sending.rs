//! Sends control messages to the addresses of others, without waiting.
use super::ControlSocket;
use crate::rendezvous::TARGET;
use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::limits::CONTROL_MESSAGE_FDS_MAX;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr};
use spindle_core::MemberId;
use spindle_core::control::ControlMessage;
use spindle_core::ids::CLIENT_IDS_FROM;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use tracing::trace;

/// The result of sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum SendOutcome {
    /// The control message is in the peer's queue and stays there, even if this process dies.
    Done,
    /// The peer's queue is full, or too many control messages or descriptors of this process are in
    /// transit. No event reports when that changes: try again after a moment, as an
    /// [`Outbox`](crate::rendezvous::Outbox) does.
    Full,
    /// The address leads to no process now. The peer may live.
    Gone,
}

impl ControlSocket {
    /// Sends a control message without waiting.
    ///
    /// # Errors
    /// What the system refuses for another reason than that the peer is gone or its queue is full.
    ///
    /// # Panics
    /// If the number of descriptors is not the one that [`ControlMessage::fds`] returns, or if the
    /// control message names another sender.
    pub fn send(
        &self,
        to: MemberId,
        message: &ControlMessage,
        fds: &[BorrowedFd<'_>],
    ) -> Result<SendOutcome, RendezvousError> {
        assert_eq!(fds.len(), message.fds(), "descriptors that do not belong to {message:?}");
        assert!(message.from().is_none_or(|from| from == self.id), "{message:?} is not from {}", self.id);
        let delivery = self.send_bytes(to, &message.encode(), fds);
        trace!(target: TARGET, me = self.id.0, to = to.0, ?message, ?delivery, "message");
        delivery
    }

    /// Sends through the socket that is held, or to the process that has the address now.
    fn send_bytes(&self, to: MemberId, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<SendOutcome, RendezvousError> {
        let spot = self.spot.place.address(to)?;
        let mut peers = self.peers();
        if let Some(path) = peers.get(&to).and_then(|held| spot.path_of(held.as_fd())) {
            match self.send_to(&path, to, bytes, fds)? {
                // The process has ended, or has another socket.
                SendOutcome::Gone => drop(peers.remove(&to)),
                delivery => return Ok(delivery),
            }
        }
        // Observers and admin clients come and go, so their sockets are not held.
        let held = if to.0 < CLIENT_IDS_FROM { spot.hold().ok() } else { None };
        let path = held.as_ref().and_then(|held| spot.path_of(held.as_fd()));
        let delivery = self.send_to(path.as_deref().unwrap_or(&spot), to, bytes, fds)?;
        if let Some(held) = held.filter(|_| delivery != SendOutcome::Gone) {
            peers.insert(to, held);
        }
        Ok(delivery)
    }

    fn send_to(
        &self,
        path: &Path,
        to: MemberId,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<SendOutcome, RendezvousError> {
        let failed = |errno| RendezvousError::io("send a control message to", Some(&self.spot.place.shown(to)), errno);
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CONTROL_MESSAGE_FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            let pushed = control.push(SendAncillaryMessage::ScmRights(fds));
            assert!(pushed, "{} descriptors are more than a control message takes", fds.len());
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match sendmsg_addr(&self.socket, &address, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => Ok(SendOutcome::Done),
            // The cause is the queue, the socket's own buffer, the kernel's memory, or the
            // descriptors in transit.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM | Errno::TOOMANYREFS) => {
                Ok(SendOutcome::Full)
            }
            Err(Errno::CONNREFUSED | Errno::NOENT | Errno::PIPE | Errno::CONNRESET) => Ok(SendOutcome::Gone),
            // A foreign socket has taken the address.
            Err(Errno::PROTOTYPE | Errno::PERM) => Ok(SendOutcome::Gone),
            Err(errno) => Err(failed(errno)),
        }
    }
}

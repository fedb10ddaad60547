//! Receives control messages. A message is looked at first and taken out of the queue when its
//! descriptors are here.
use super::ControlSocket;
use crate::fork::Socket;
use crate::rendezvous::TARGET;
use crate::rendezvous::kernel::is_pidfd;
use crate::rendezvous::limits::{CONTROL_MESSAGE_FDS_MAX, GARBAGE_PER_LOOK};
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, ReturnFlags, SocketAddrUnix, recv, recvmsg,
};
use spindle_core::MemberId;
use spindle_core::control::{ControlMessage, Refusal, Stranger, VERSION, stranger};
use spindle_core::wire::bytes::WireError;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use tracing::{debug, trace, warn};

/// Counts of what a control socket discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ControlSocketDrops {
    /// Bytes that were no control message, and control messages with the wrong descriptors.
    pub garbage: u64,
    /// Control messages whose sender has no address in this group, or another one than it says.
    pub forged: u64,
    /// Control messages of other versions of Spindle; those that ask for something were refused.
    pub foreign: u64,
}

/// The result of one look into the queue.
enum QueueLook {
    ControlMessage(ControlMessage, Vec<OwnedFd>),
    Dropped,
    /// This process has no room for the descriptors.
    Starved,
    Empty,
}

impl ControlSocket {
    /// Returns the next control message with its descriptors, without waiting.
    ///
    /// Bytes that are no control message, and messages of foreign senders, are
    /// [counted](Self::dropped) and discarded. After many of those the answer is `None` although
    /// there may be more; the descriptor stays readable then.
    pub fn receive(&mut self) -> Option<(ControlMessage, Vec<OwnedFd>)> {
        let was_starved = std::mem::take(&mut self.starved);
        self.drained = false;
        let mut empty = 0;
        // The oldest socket first: its messages were sent before.
        for socket in 0..=self.old.len() {
            for _ in 0..GARBAGE_PER_LOOK {
                match self.look(socket) {
                    QueueLook::ControlMessage(message, fds) => {
                        trace!(target: TARGET, me = self.id.0, ?message, "control message received");
                        self.take_out(socket);
                        return Some((message, fds));
                    }
                    QueueLook::Dropped => {
                        let ControlSocketDrops { garbage, forged, foreign } = self.dropped;
                        debug!(target: TARGET, me = self.id.0, garbage, forged, foreign, "control message dropped");
                        self.take_out(socket);
                    }
                    QueueLook::Starved => {
                        if !was_starved {
                            warn!(target: TARGET, me = self.id.0, "no file descriptor left for control messages (ulimit -n)");
                        }
                        self.starved = true;
                        return None;
                    }
                    QueueLook::Empty => {
                        empty += 1;
                        break;
                    }
                }
            }
        }
        self.drained = empty > self.old.len();
        None
    }

    /// Returns one of its sockets, of which the last is the newest.
    fn socket(&self, number: usize) -> &Socket {
        self.old.get(number).unwrap_or(&self.socket)
    }

    /// Removes the message that was looked at, and its descriptors; those that were taken are
    /// copies.
    fn take_out(&self, socket: usize) {
        // If this were interrupted, the control message would stay and be read again.
        let _ = retry_on_intr(|| recv(self.socket(socket), &mut [0_u8; 1], RecvFlags::DONTWAIT));
    }

    /// Looks at the first message of the queue, which stays there.
    fn look(&mut self, socket: usize) -> QueueLook {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(CONTROL_MESSAGE_FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let socket = self.old.get(socket).unwrap_or(&self.socket);
        let Ok(received) = recvmsg(socket, &mut [IoSliceMut::new(&mut self.bytes)], &mut control, flags) else {
            return QueueLook::Empty;
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        self.judge(received, fds)
    }

    fn judge(&mut self, received: RecvMsg, fds: Vec<OwnedFd>) -> QueueLook {
        let address = received.address.and_then(|address| SocketAddrUnix::try_from(address).ok());
        let sender = address.and_then(|address| self.spot.place.owner(address.path()?.to_bytes()));
        let message = match self.bytes.get(..received.bytes) {
            Some(bytes) if !received.flags.contains(ReturnFlags::TRUNC) => ControlMessage::decode(bytes),
            _ => Err(WireError::Magic),
        };
        let (message, sender) = match (message, sender) {
            (Err(WireError::Version { .. }), Some(sender)) => return self.answer_stranger(sender, received.bytes),
            (Err(_), _) => {
                self.dropped.garbage += 1;
                return QueueLook::Dropped;
            }
            (Ok(_), None) => {
                self.dropped.forged += 1;
                return QueueLook::Dropped;
            }
            (Ok(message), Some(sender)) => (message, sender),
        };
        if message.from().is_some_and(|from| from != sender) {
            self.dropped.forged += 1;
            return QueueLook::Dropped;
        }
        let cut = received.flags.contains(ReturnFlags::CTRUNC);
        if cut && fds.len() < message.fds() {
            return QueueLook::Starved;
        }
        let sound = match &message {
            ControlMessage::RowDescriptors { .. } => fds.get(2).is_some_and(|fd| is_pidfd(fd.as_fd())),
            _ => true,
        };
        if cut || fds.len() != message.fds() || !sound {
            self.dropped.garbage += 1;
            return QueueLook::Dropped;
        }
        QueueLook::ControlMessage(message, fds)
    }

    /// Tells a process of another version, as far as it can understand, that the versions differ.
    fn answer_stranger(&mut self, sender: MemberId, bytes: usize) -> QueueLook {
        self.dropped.foreign += 1;
        match self.bytes.get(..bytes).and_then(stranger) {
            Some(Stranger::Refuses { version }) => {
                return QueueLook::ControlMessage(
                    ControlMessage::Refused { why: Refusal::Version(version) },
                    Vec::new(),
                );
            }
            Some(Stranger::Asks) => {
                // If the refusal can't be sent now, the process will ask again.
                let _ = self.send(sender, &ControlMessage::Refused { why: Refusal::Version(VERSION) }, &[]);
            }
            Some(Stranger::Else) | None => {}
        }
        QueueLook::Dropped
    }
}

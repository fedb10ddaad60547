//! The observers of a member's row, to which it sends.
use super::TcpLinks;
use crate::region::OwnRegion;
use crate::tcp::observer::TcpObserver;
use rustix::event::epoll::{self, EventData, EventFlags};
use spindle_transport::Connection;
use std::io;

impl TcpLinks {
    /// Adds an observer: from now on `stream` gets all that any peer gets, and all of the row
    /// before.
    ///
    /// # Errors
    /// The system's reason.
    pub(crate) fn add_observer(&mut self, stream: Connection, row: &OwnRegion) -> io::Result<()> {
        epoll::add(&self.epoll, stream.fd(), EventData::new_u64(self.next_observer), EventFlags::IN)?;
        self.observers.insert(self.next_observer, TcpObserver::new(stream, row));
        self.next_observer += 1;
        self.untried = true;
        Ok(())
    }

    /// Returns whether everything for observers is handed to the system.
    pub(crate) fn has_served(&self) -> bool {
        self.observers.values().all(TcpObserver::is_flushed)
    }

    pub(crate) fn observers(&self) -> usize {
        self.observers.len()
    }

    /// Sends to an observer; returns whether anything left.
    pub(super) fn serve(&mut self, event: u64, row: &OwnRegion) -> bool {
        let Some(observer) = self.observers.get_mut(&event) else { return false };
        let Ok(moved) = observer.send(row, &self.image, &self.freed) else {
            self.dismiss(event);
            return false;
        };
        let blocks = !observer.is_flushed();
        if blocks != observer.blocked {
            observer.blocked = blocks;
            // It was added, with the same descriptor, and is open.
            let modified =
                epoll::modify(&self.epoll, observer.stream.fd(), EventData::new_u64(event), observer.interest());
            debug_assert!(modified.is_ok());
        }
        moved
    }

    pub(super) fn dismiss(&mut self, event: u64) {
        if let Some(observer) = self.observers.remove(&event) {
            // Another owner may hold a duplicate of the descriptor.
            let _ = epoll::delete(&self.epoll, observer.stream.fd());
        }
    }
}

//! The end of a view: links to other machines last until all data has arrived.
use super::Mesh;
use crate::connections::{Connections, NoConnections};
use crate::far::Far;
use crate::region::OwnRegion;
use crate::tcp::Down;
use spindle_core::Rank;
use spindle_transport::Connection;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The links to other machines of a view that is over: posted data is still in flight, and peers
/// may not have sent everything.
#[derive(Debug)]
pub struct Retired<C: Connections = NoConnections> {
    far: Far<C>,
    row: Arc<OwnRegion>,
    told: bool,
}

/// The time that a finish sleeps before it checks whether everything has left.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl<C: Connections> Mesh<C> {
    /// Hands out the links to other machines, if there are any, when the view is over. They need
    /// some more [progress](Retired::progress), because posted data is still to be sent. From now
    /// on nothing is posted over them, and nothing arrives.
    pub fn retire(&mut self) -> Option<Retired<C>> {
        let mut far = std::mem::take(&mut self.far);
        // If the system refuses, waits end early.
        let _ = far.stand_apart();
        (!far.is_empty()).then(|| Retired { far, row: self.row.clone(), told: false })
    }

    /// As [`retire`](Self::retire), and waits for at most `at_most` until every peer has closed its
    /// side, too. Returns true if all have; then everything has arrived.
    pub fn finish(&mut self, at_most: Duration) -> bool {
        self.finish_heard(at_most, at_most)
    }

    /// As [`finish`](Self::finish), but waits up to `unheard` for peers on other machines whose
    /// systems have not confirmed all posted data. When a process ends, its unconfirmed data is
    /// lost if the peer's next bytes come before the system has sent the data again.
    pub fn finish_heard(&mut self, at_most: Duration, unheard: Duration) -> bool {
        let start = Instant::now();
        let Some(mut retired) = self.retire() else { return true };
        let all = retired.far.open() > 0;
        self.event_count.clear();
        while !retired.step() {
            let limit = if retired.is_heard() { at_most } else { at_most.max(unheard) };
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                return false;
            }
            // Not all providers report when data has left, and the system does not report what was
            // confirmed.
            retired.far.wait(left.min(LOOK_AGAIN));
        }
        all
    }
}

impl<C: Connections> Retired<C> {
    /// Sends unsent data, and takes in arriving data. When all is sent, it reports to the peers and
    /// observers that nothing more comes. Returns true once all peers have closed their sides, too.
    ///
    /// Until then the links must be kept. If one were closed while bytes of the peer are in flight,
    /// the system would reset the connection, and data in flight to the peer could be lost. Peers
    /// that were [cut off](Self::is_cut) have not closed.
    pub fn progress(&mut self) -> bool {
        self.step() && !self.is_cut()
    }

    /// As [`progress`](Self::progress), but ignores peers without a connection.
    fn step(&mut self) -> bool {
        self.far.progress(&self.row);
        self.far.drop_turned();
        if !self.told && self.far.is_flushed() && self.far.has_served() {
            self.far.finish();
            self.told = true;
        }
        self.told && self.far.open() == 0
    }
}

impl<C: Connections> Retired<C> {
    /// As [`Mesh::attach`], for a peer that had a stream, and has not confirmed that it has all of
    /// the view.
    ///
    /// # Errors
    /// Error of the system, or that the peer had no stream.
    pub fn attach(&mut self, rank: Rank, stream: Connection) -> io::Result<()> {
        // The end of the view is sent over this stream, too.
        self.told = false;
        self.far.replace(rank, stream)
    }

    /// As [`Mesh::next_down`].
    pub fn next_down(&mut self) -> Option<(Rank, Down)> {
        self.far.next_down()
    }

    /// Returns true if there is an open link that needs [progress](Self::progress), rather than
    /// only peers that were cut off.
    pub fn is_open(&self) -> bool {
        !self.told || self.far.open() > 0
    }

    /// Returns true if connections are being made again, which needs [progress](Self::progress),
    /// too: they end no sleep of another view.
    pub fn is_calling(&self) -> bool {
        self.far.is_calling()
    }

    /// Returns true if peers were cut off in the middle of their streams. They may be
    /// [attached](Self::attach) again, and lack the end of the view until then.
    pub fn is_cut(&self) -> bool {
        self.far.cut() > 0
    }

    /// Returns true if the systems of all peers have confirmed all posted data, as far as this one
    /// knows.
    fn is_heard(&self) -> bool {
        self.told && self.far.is_confirmed()
    }
}

impl<C: Connections> Drop for Retired<C> {
    fn drop(&mut self) {
        // It had its time: a peer that still delays it is gone.
        self.far.give_up();
    }
}

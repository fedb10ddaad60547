//! The links of one member to all processes on other machines: streams, and
//! [connections](Connections) that another crate makes.
//!
//! A view's peers have the one or the other. Observers have streams, so both kinds may exist at
//! once. Then one sleep serves both, because the event that the streams wait for is one of the
//! events that the connections wait for.
use crate::connections::Connections;
use crate::region::{CopyRegion, OwnRegion};
use crate::tcp::{Down, TcpLinks, Traffic};
use spindle_core::{Layout, Rank, ViewId};
use spindle_transport::Connection;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Streams, if there are any, and connections, if there are any.
#[derive(Debug)]
pub(crate) struct Far<C> {
    streams: Option<TcpLinks>,
    connections: Option<C>,
}

impl<C> Default for Far<C> {
    fn default() -> Far<C> {
        Far { streams: None, connections: None }
    }
}

impl<C: Connections> Far<C> {
    pub(crate) fn new(streams: Option<TcpLinks>, connections: Option<C>) -> io::Result<Far<C>> {
        if let (Some(streams), Some(connections)) = (&streams, &connections) {
            connections.wake_by(streams.fd())?;
        }
        Ok(Far { streams, connections })
    }

    /// Returns true if this process has no data to move.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.streams.is_none() && self.connections.is_none()
    }

    /// As [`Mesh::add_observer`](crate::Mesh::add_observer), for `me` with `row`, whose event count
    /// is `event_count`.
    pub(crate) fn add_observer(
        &mut self,
        layout: &Layout,
        (me, row): (Rank, &OwnRegion),
        event_count: BorrowedFd<'_>,
        stream: Connection,
    ) -> io::Result<()> {
        self.streams(layout, (me, row), event_count)?.add_observer(stream, row)
    }

    /// Returns the streams, which it creates empty at the first call.
    fn streams(
        &mut self,
        layout: &Layout,
        own: (Rank, &OwnRegion),
        event_count: BorrowedFd<'_>,
    ) -> io::Result<&mut TcpLinks> {
        Ok(match &mut self.streams {
            Some(streams) => streams,
            none => {
                let peers = layout.rows().iter().map(|_| None).collect();
                let streams =
                    TcpLinks::new(layout, Some(own), Some(event_count), peers).map_err(|(_, source)| source)?;
                if let Some(connections) = &self.connections {
                    connections.wake_by(streams.fd())?;
                }
                none.insert(streams)
            }
        })
    }

    /// As [`Mesh::stand_apart`](crate::Mesh::stand_apart). Connections wait for
    /// streams themselves.
    pub(crate) fn stand_apart(&mut self) -> io::Result<()> {
        self.streams.as_mut().filter(|_| self.connections.is_none()).map_or(Ok(()), TcpLinks::stand_apart)
    }

    /// Returns true if data has arrived that the system does not report.
    pub(crate) fn has_unread(&self) -> bool {
        self.streams.as_ref().is_some_and(TcpLinks::has_unread)
    }

    /// Lets data that arrives over the streams of `older` wake this member, too.
    pub(crate) fn wake_by(
        &mut self,
        layout: &Layout,
        own: (Rank, &OwnRegion),
        event_count: BorrowedFd<'_>,
        older: &Far<C>,
    ) -> io::Result<()> {
        let Some(older) = &older.streams else { return Ok(()) };
        self.streams(layout, own, event_count)?.wake_by(older)
    }

    /// Gives `rank` its first stream, which fills `copy`.
    pub(crate) fn introduce(
        &mut self,
        layout: &Layout,
        own: (Rank, &OwnRegion),
        event_count: BorrowedFd<'_>,
        (rank, copy): (Rank, Arc<CopyRegion>),
        stream: Connection,
    ) -> io::Result<()> {
        let streams = self.streams(layout, own, event_count)?;
        streams.introduce((rank, layout.row(rank)), stream, copy, own.1)
    }

    /// Replaces the stream to `rank`, which has or had one.
    pub(crate) fn replace(&mut self, rank: Rank, stream: Connection) -> io::Result<()> {
        let streams = self.streams.as_mut().filter(|streams| streams.knows(rank));
        streams.ok_or(io::ErrorKind::NotConnected)?.replace(rank, stream)
    }

    /// As [`Mesh::turn`](crate::Mesh::turn).
    pub(crate) fn turn(&mut self, rank: Rank, next: ViewId, row: &OwnRegion) {
        if let Some(streams) = &mut self.streams {
            streams.turn(rank, next, row);
        }
        if let Some(connections) = &mut self.connections {
            connections.turn(rank, next);
        }
    }

    /// As [`Mesh::carry`](crate::Mesh::carry).
    pub(crate) fn carry(&mut self, next: &mut C, rank_of: impl Fn(Rank) -> Option<Rank>) {
        if let Some(connections) = &mut self.connections {
            connections.carry(next, rank_of);
        }
    }

    /// Returns the connections, if there may be any.
    pub(crate) fn connections(&self) -> Option<&C> {
        self.connections.as_ref()
    }

    /// The same, to make more.
    pub(crate) fn connections_mut(&mut self) -> Option<&mut C> {
        self.connections.as_mut()
    }

    /// As [`Mesh::take_turned`](crate::Mesh::take_turned).
    pub(crate) fn take_turned(&mut self, next: ViewId) -> Vec<(Rank, Connection)> {
        self.streams.as_mut().map(|streams| streams.take_turned(next)).unwrap_or_default()
    }

    /// Drops the links of peers that need nothing more of this view.
    pub(crate) fn drop_turned(&mut self) {
        if let Some(streams) = &mut self.streams {
            streams.drop_turned();
        }
        if let Some(connections) = &mut self.connections {
            connections.drop_turned();
        }
    }

    /// Returns true if the link to `rank` is, or was, a stream.
    pub(crate) fn is_stream(&self, rank: Rank) -> bool {
        self.streams.as_ref().is_some_and(|streams| streams.knows(rank))
    }

    /// Returns the copy that takes the data arriving from `rank`, if it is on another machine.
    pub(crate) fn copy(&self, rank: Rank) -> Option<&Arc<CopyRegion>> {
        let stream = self.streams.as_ref().and_then(|streams| streams.copy(rank));
        stream.or_else(|| self.connections.as_ref()?.copy(rank))
    }

    /// Returns the number of peers that were cut off in the middle of a stream.
    pub(crate) fn cut(&self) -> u32 {
        self.streams.as_ref().map_or(0, TcpLinks::cut) + self.connections.as_ref().map_or(0, C::cut)
    }

    /// Returns true if connections are being made again.
    pub(crate) fn is_calling(&self) -> bool {
        self.connections.as_ref().is_some_and(|connections| connections.cut() > 0)
    }

    pub(crate) fn observers(&self) -> usize {
        self.streams.as_ref().map_or(0, TcpLinks::observers)
    }

    /// Returns the number of links that are still open.
    pub(crate) fn open(&self) -> u32 {
        self.streams.as_ref().map_or(0, TcpLinks::open) + self.connections.as_ref().map_or(0, C::open)
    }

    pub(crate) fn is_open(&self, rank: Rank) -> bool {
        self.streams.as_ref().is_some_and(|streams| streams.is_open(rank))
            || self.connections.as_ref().is_some_and(|connections| connections.is_open(rank))
    }

    pub(crate) fn traffic(&self, rank: Rank) -> Option<Traffic> {
        let streams = self.streams.as_ref().and_then(|streams| streams.traffic(rank));
        streams.or_else(|| self.connections.as_ref()?.traffic(rank))
    }

    pub(crate) fn next_down(&mut self) -> Option<(Rank, Down)> {
        let streams = self.streams.as_mut().and_then(TcpLinks::next_down);
        streams.or_else(|| self.connections.as_mut()?.next_down())
    }

    /// Returns a peer whose connection is made late, or again.
    pub(crate) fn next_up(&mut self) -> Option<Rank> {
        self.connections.as_mut()?.next_up()
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.streams.as_ref().is_none_or(TcpLinks::is_flushed) && self.connections.as_ref().is_none_or(C::is_flushed)
    }

    /// Returns true if the peers' systems have confirmed all data that was handed to this one.
    /// Connections don't report that.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.streams.as_ref().is_none_or(TcpLinks::is_confirmed)
    }

    /// Returns true if `rank` lacks nothing that was posted, or its system has it. Connections
    /// don't report that.
    pub(crate) fn is_heard(&self, rank: Rank) -> bool {
        self.streams.as_ref().is_none_or(|streams| streams.is_heard(rank))
    }

    /// Returns true if all data for observers has been handed to the system.
    pub(crate) fn has_served(&self) -> bool {
        self.streams.as_ref().is_none_or(TcpLinks::has_served)
    }

    /// Posts words and frames of `row`.
    #[inline]
    pub(crate) fn post(&mut self, row: &OwnRegion, peers: &[Rank], words: Range<u64>, frames: Range<u64>) {
        if let Some(connections) = &mut self.connections {
            connections.post(peers, words.clone(), frames.clone());
        }
        if let Some(streams) = &mut self.streams {
            streams.post(row, peers, words, frames);
        }
    }

    /// Sends to all peers that can take data and have not been tried.
    pub(crate) fn flush(&mut self, row: &OwnRegion) {
        if let Some(streams) = &mut self.streams {
            streams.flush(row);
        }
        if let Some(connections) = &mut self.connections {
            connections.flush();
        }
    }

    /// Sends as much as possible and takes in arrived data. Returns whether data was sent, and
    /// whether data arrived.
    #[inline]
    pub(crate) fn progress(&mut self, row: &OwnRegion) -> (bool, bool) {
        let (mut sent, mut arrived) = (false, false);
        if let Some(streams) = &mut self.streams {
            (sent, arrived) = streams.progress(row);
        }
        if let Some(connections) = &mut self.connections {
            let (more_sent, more_arrived) = connections.advance();
            (sent, arrived) = (sent | more_sent, arrived | more_arrived);
        }
        (sent, arrived)
    }

    /// Waits until something can be done or the event count rings, for at most `at_most`. Returns
    /// true if data has arrived.
    pub(crate) fn wait(&mut self, at_most: Duration) -> bool {
        match (&mut self.connections, &self.streams) {
            (Some(connections), _) => connections.rest(at_most),
            (None, Some(streams)) => streams.wait(at_most),
            (None, None) => false,
        }
    }

    /// Reports to all peers that nothing more comes.
    pub(crate) fn finish(&mut self) {
        if let Some(streams) = &mut self.streams {
            streams.finish();
        }
        if let Some(connections) = &mut self.connections {
            connections.finish();
        }
    }

    /// Stops waiting for anything, even for data in flight.
    pub(crate) fn give_up(&mut self) {
        if let Some(connections) = &mut self.connections {
            connections.give_up();
        }
    }

    /// Does as much of a finish as needs no waiting for peers.
    pub(crate) fn hang_up(&mut self, row: &OwnRegion) {
        // Connections do that by themselves when they are dropped.
        if let Some(streams) = &mut self.streams {
            streams.progress(row);
            streams.finish();
            streams.progress(row);
        }
    }
}

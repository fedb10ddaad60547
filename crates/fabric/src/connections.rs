//! Connections to peers on other machines that another crate makes, for a [`Mesh`](crate::Mesh).
//!
//! A mesh makes streams itself. Another network, such as libfabric, implements [`Connections`] in a
//! crate of its own, so this crate needs no library of it. A mesh has the type of its connections
//! as a parameter: calls of them are direct. [`NoConnections`] stands for streams alone.
//!
//! Connections belong to one member in one view. Peers are named by their ranks there, and a call
//! for a rank that is not of the view panics.
use crate::error::MeshError;
use crate::region::CopyRegion;
use crate::tcp::{Down, Traffic};
use spindle_core::{Rank, ViewId};
use std::convert::Infallible;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// The connections of one member to its peers in one view.
pub trait Connections: Debug + Sized + 'static {
    /// The address at which a member is called.
    type Address;
    /// The reason why connections can't be made.
    type Error: Into<MeshError>;

    /// Makes the connections those of a view that has begun. Once `event_count` is readable, their
    /// waits end as well. Peers that are not connected and have no [copy](Self::copy) of their rows
    /// are to be [introduced](Self::introduce).
    ///
    /// # Errors
    /// The system has no descriptors left.
    fn begin(&mut self, event_count: BorrowedFd<'_>) -> Result<(), Self::Error>;

    /// Ends the connection to `peer`, without a report: its row comes by other means.
    fn leave_out(&mut self, peer: Rank);

    /// Lets a [wait](Self::rest) end as well once `fd` is readable.
    ///
    /// # Errors
    /// Error of the system.
    fn wake_by(&self, fd: BorrowedFd<'_>) -> io::Result<()>;

    /// Returns the address at which this member listens.
    fn address(&self) -> &Self::Address;

    /// Returns true if there is no connection to `peer`, unless none is wanted any more.
    fn lacks(&self, peer: Rank) -> bool;

    /// Returns the copy of the row of `peer`, if it was ever connected, or is about to be.
    fn copy(&self, peer: Rank) -> Option<&Arc<CopyRegion>>;

    /// Sets, while the view runs, the copy of the row of `peer`, which was not connected before.
    fn introduce(&mut self, peer: Rank, copy: Arc<CopyRegion>);

    /// Lets `peer`, which has a lower rank, call from now on.
    fn expect(&mut self, peer: Rank);

    /// Calls `peer`, which has a higher rank, unless that is done already.
    ///
    /// # Errors
    /// The call fails at once. The caller may try it again.
    fn call(&mut self, peer: Rank, address: &Self::Address) -> Result<(), Self::Error>;

    /// Lets the connection to `peer` continue in `next`, the view after this one: this member has
    /// nothing more to post to it here.
    fn turn(&mut self, peer: Rank, next: ViewId);

    /// Lets the connections that both ends have [turned](Self::turn) to `next` continue there, with
    /// the members that have these ranks in `next`.
    fn carry(&mut self, next: &mut Self, rank_of: impl Fn(Rank) -> Option<Rank>);

    /// Closes the connections of peers that have turned, and can't continue.
    fn drop_turned(&mut self);

    /// Returns the number of peers whose connections ended before all data was sent, and are made
    /// again.
    fn cut(&self) -> u32;

    /// Returns the number of open connections.
    fn open(&self) -> u32;

    /// Returns true if the connection to `peer` is open.
    fn is_open(&self, peer: Rank) -> bool;

    /// Returns the traffic with `peer`, if it has a connection.
    fn traffic(&self, peer: Rank) -> Option<Traffic>;

    /// Returns a peer whose connection has ended, and the reason. Each end is reported once.
    fn next_down(&mut self) -> Option<(Rank, Down)>;

    /// Returns a peer that is connected late, or again. Each time is reported once.
    fn next_up(&mut self) -> Option<Rank>;

    /// Returns true if all posted data has left, or is for peers that are gone.
    fn is_flushed(&self) -> bool;

    /// Posts `words` and `frames`, two ranges of the member's row, to those of `peers` that have a
    /// connection.
    fn post(&mut self, peers: &[Rank], words: Range<u64>, frames: Range<u64>);

    /// Sends as much of the posted data as possible.
    fn flush(&mut self);

    /// Sends as much as possible, takes in arrived data, and makes connections again. Returns
    /// whether data was sent, and whether data arrived or there is something to report.
    fn advance(&mut self) -> (bool, bool);

    /// Waits until data has arrived or the event count rings, for at most `at_most`. Returns true
    /// if data has arrived.
    fn rest(&mut self, at_most: Duration) -> bool;

    /// Reports to all peers that nothing more comes.
    fn finish(&mut self);

    /// Stops waiting for anything, even for data in flight.
    fn give_up(&mut self);
}

/// The connections of a mesh that has none: no value of this type exists.
#[derive(Debug)]
pub enum NoConnections {}

impl Connections for NoConnections {
    type Address = Infallible;
    type Error = Infallible;

    fn begin(&mut self, _: BorrowedFd<'_>) -> Result<(), Infallible> {
        match *self {}
    }

    fn leave_out(&mut self, _: Rank) {
        match *self {}
    }

    fn wake_by(&self, _: BorrowedFd<'_>) -> io::Result<()> {
        match *self {}
    }

    fn address(&self) -> &Infallible {
        match *self {}
    }

    fn lacks(&self, _: Rank) -> bool {
        match *self {}
    }

    fn copy(&self, _: Rank) -> Option<&Arc<CopyRegion>> {
        match *self {}
    }

    fn introduce(&mut self, _: Rank, _: Arc<CopyRegion>) {
        match *self {}
    }

    fn expect(&mut self, _: Rank) {
        match *self {}
    }

    fn call(&mut self, _: Rank, _: &Infallible) -> Result<(), Infallible> {
        match *self {}
    }

    fn turn(&mut self, _: Rank, _: ViewId) {
        match *self {}
    }

    fn carry(&mut self, _: &mut Self, _: impl Fn(Rank) -> Option<Rank>) {
        match *self {}
    }

    fn drop_turned(&mut self) {
        match *self {}
    }

    fn cut(&self) -> u32 {
        match *self {}
    }

    fn open(&self) -> u32 {
        match *self {}
    }

    fn is_open(&self, _: Rank) -> bool {
        match *self {}
    }

    fn traffic(&self, _: Rank) -> Option<Traffic> {
        match *self {}
    }

    fn next_down(&mut self) -> Option<(Rank, Down)> {
        match *self {}
    }

    fn next_up(&mut self) -> Option<Rank> {
        match *self {}
    }

    fn is_flushed(&self) -> bool {
        match *self {}
    }

    fn post(&mut self, _: &[Rank], _: Range<u64>, _: Range<u64>) {
        match *self {}
    }

    fn flush(&mut self) {
        match *self {}
    }

    fn advance(&mut self) -> (bool, bool) {
        match *self {}
    }

    fn rest(&mut self, _: Duration) -> bool {
        match *self {}
    }

    fn finish(&mut self) {
        match *self {}
    }

    fn give_up(&mut self) {
        match *self {}
    }
}

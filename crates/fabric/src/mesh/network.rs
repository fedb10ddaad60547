//! The peers and observers of a mesh on other machines.
use super::Mesh;
use crate::connections::Connections;
use crate::error::MeshError;
use crate::reader::RowMemory;
use crate::tcp::{Down, Traffic};
use spindle_core::{Layout, Rank, ViewId};
use spindle_transport::Connection;
use std::io;
use std::sync::Arc;

impl<C: Connections> Mesh<C> {
    /// Returns true if the link to `rank` is, or was, a stream, so that another may
    /// [replace](Self::attach) it.
    ///
    /// # Panics
    /// If it is not of this view.
    pub fn is_stream(&self, rank: Rank) -> bool {
        self.far.is_stream(rank)
    }

    /// Returns a peer on another machine whose connection has ended, and the reason. Each end is
    /// reported once.
    ///
    /// If the connection was [a stream](Self::is_stream), the peer may be [attached](Self::attach)
    /// again; until then nothing arrives from it, and posts for it wait. A connection
    /// that was broken, rather than [closed](Down::Closed), is made again.
    pub fn next_down(&mut self) -> Option<(Rank, Down)> {
        self.far.next_down()
    }

    /// Returns a peer whose connection had [ended](Self::next_down), was made
    /// again and continues, or was [made late](Self::meet). Each time is reported once.
    pub fn next_up(&mut self) -> Option<Rank> {
        self.far.next_up()
    }

    /// Returns true if there is an open link to `peer` on another machine.
    ///
    /// # Panics
    /// If it is not of this view.
    pub fn is_connected(&self, peer: Rank) -> bool {
        self.far.is_open(peer)
    }

    /// Returns the network traffic with `peer`, if it is on another machine.
    ///
    /// # Panics
    /// If it is not of this view.
    pub fn traffic(&self, peer: Rank) -> Option<Traffic> {
        self.far.traffic(peer)
    }

    /// Sends over `stream` everything that peers get from now on, and first the whole contents of
    /// the row: for a process that [observes](crate::Watched) the view without being a member. No
    /// member waits for it.
    ///
    /// # Errors
    /// Error of the system.
    ///
    /// # Panics
    /// If `layout` is not that of the view, or the member's event count is [without an
    /// eventfd](crate::MemberEventCount::with_event).
    pub fn add_observer(&mut self, layout: &Layout, stream: Connection) -> io::Result<()> {
        assert_eq!(layout.row(self.me).size, self.row.size(), "the layout of another view");
        let event = self
            .event_count
            .event()
            .expect("a member with observers on other machines needs an event count with an eventfd");
        self.far.add_observer(layout, (self.me, &self.row), event, stream)
    }

    /// Marks this as the mesh of a view that has ended. It no longer sleeps: the mesh of another
    /// view is [woken](Self::wake_by) in its place.
    ///
    /// # Errors
    /// Error of the system.
    pub fn stand_apart(&mut self) -> io::Result<()> {
        self.far.stand_apart()
    }

    /// Lets data over the streams of `older` wake this mesh, too. `older` is the mesh of a view
    /// that has ended and [stands apart](Self::stand_apart). This lasts until `older` is dropped.
    ///
    /// # Errors
    /// Error of the system.
    ///
    /// # Panics
    /// As [`add_observer`](Self::add_observer), if `older` has streams.
    pub fn wake_by(&mut self, layout: &Layout, older: &Mesh<C>) -> io::Result<()> {
        if older.far.is_empty() {
            return Ok(());
        }
        let event = self
            .event_count
            .event()
            .expect("a member with peers on other machines needs an event count with an eventfd");
        self.far.wake_by(layout, (self.me, &self.row), event, &older.far)
    }

    /// Hands data posted over streams to the system, as far as it takes that. A mesh that
    /// [sleeps](crate::Fabric::sleep) does so itself. Returns true if there is data to [take
    /// in](crate::Fabric::progress) that the system does not report.
    pub fn flush(&mut self) -> bool {
        self.far.flush(&self.row);
        self.far.has_unread()
    }

    /// Drops the streams that their peers have turned. These peers need nothing more of this view,
    /// which has ended here.
    pub fn drop_turned(&mut self) {
        self.far.drop_turned();
    }

    /// Returns the number of observers.
    pub fn observers(&self) -> usize {
        self.far.observers()
    }

    /// Lets the link to `peer` continue in `next`, the view after this one, in which both are
    /// members: this member has nothing more to post to the peer here.
    ///
    /// When the peer has done the same, a stream can be [taken out](Self::take_turned), and a
    /// connection can be [carried on](Self::carry). The call has no effect if there is
    /// no such link, or if it was turned before.
    ///
    /// # Panics
    /// If `peer` is not of this view.
    pub fn turn(&mut self, peer: Rank, next: ViewId) {
        self.far.turn(peer, next, &self.row);
    }

    /// Takes the streams out that both sides have turned to `next`. All data posted in this view
    /// has arrived at both sides, and the next byte is the first of `next`. If more has arrived
    /// already, the stream yields that first.
    ///
    /// A stream that does not get so far stays: it ends with this view.
    pub fn take_turned(&mut self, next: ViewId) -> Vec<(Rank, Connection)> {
        self.far.take_turned(next)
    }

    /// Lets the connections that both sides have turned to `next` continue there, with the members
    /// that have these ranks in `next`, as [`Connections::carry`] does. Others stay, and end with
    /// this view.
    pub fn carry(&mut self, next: &mut C, rank_of: impl Fn(Rank) -> Option<Rank>) {
        self.far.carry(next, rank_of);
    }

    /// Returns the address at which peers find this member on the network, if some of its rows go
    /// over [`Connections`].
    pub fn port(&self) -> Option<&C::Address> {
        self.far.connections().map(C::address)
    }

    /// Returns true if `peer` has none of the [`Connections`], and can have one.
    ///
    /// # Panics
    /// If it is not of this view.
    pub fn lacks(&self, peer: Rank) -> bool {
        self.far.connections().is_some_and(|connections| connections.lacks(peer))
    }

    /// Connects `peer` by one of the [`Connections`] while the view runs: its row was not here when
    /// the view began.
    ///
    /// A peer with a higher rank is called at `address`; one with a lower rank is expected to call.
    /// When there is a connection, it is [reported](Self::next_up), and readers that were given out
    /// before see the arriving data. The call has no effect if there is a connection, or one is
    /// being made.
    ///
    /// # Errors
    /// [`MeshError::Attached`], [`MeshError::Region`], or [`MeshError::Connections`] for a call that
    /// fails at once. The caller may try it again.
    ///
    /// # Panics
    /// If `peer` is my own rank or not in `layout`, or `layout` is that of another view.
    pub fn meet(&mut self, layout: &Layout, peer: Rank, address: Option<&C::Address>) -> Result<(), MeshError> {
        assert_eq!(layout.row(self.me).size, self.row.size(), "the layout of another view");
        assert_ne!(peer, self.me, "a way to oneself");
        let given = "a connection";
        let Some(connections) = self.far.connections_mut().filter(|connections| connections.lacks(peer)) else {
            return Ok(());
        };
        if connections.copy(peer).is_none() {
            let RowMemory::Vacant(vacant) = self.rows.held(peer) else {
                return Err(MeshError::Attached { rank: peer, given });
            };
            let copy = vacant.copy(&format!("the copy of the row of member {peer}"));
            let copy = copy.map_err(|source| MeshError::Region { rank: peer, part: "row", source })?;
            connections.introduce(peer, Arc::new(copy.ok_or(MeshError::Attached { rank: peer, given })?));
        }
        match address {
            _ if peer < self.me => connections.expect(peer),
            Some(address) => connections.call(peer, address).map_err(C::Error::into)?,
            None => {}
        }
        Ok(())
    }

    /// Returns the connections to peers that were met over another network, if there may be any.
    pub fn connections(&self) -> Option<&C> {
        self.far.connections()
    }

    /// The same, to change them.
    pub fn connections_mut(&mut self) -> Option<&mut C> {
        self.far.connections_mut()
    }
}

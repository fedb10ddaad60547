//! Links to other members that come late or break while a view runs.
//!
//! A row that was not here when the view began is attached when it comes, and so is a stream that
//! replaces a broken one. A late row or a broken stream is no reason for suspicion: the engine
//! judges the member's silence. The member is suspected only if its host refuses connections, if
//! another process has its address, or if it has sent data that is no row of this view.
use super::{Node, Older};
use crate::joining::{AGAIN, Preparing, connect_late, hasten};
use crate::mesh::{Mesh, Retired};
use spindle_core::control::Arrival;
use spindle_core::{Rank, View};
use spindle_fabric::tcp::Down;
use spindle_fabric::{Fabric, MeshError, Peer};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the ways of an ended view are kept for data on its way, at most. If all ways were cut
/// off, this time begins anew when one is back.
const RETIRED_MAX: Duration = Duration::from_secs(2);

/// An ended view, and its ways that still have data to send.
#[derive(Debug)]
pub(super) struct Over {
    view: Arc<View>,
    ways: Retired,
    since: Instant,
    /// The start of the time in which a way has been open.
    open_since: Instant,
}

impl Over {
    /// Returns whether data is on its way, or connections are made again.
    pub(super) fn needs_looks(&self) -> bool {
        self.ways.is_open() || self.ways.is_calling()
    }
}

impl Node {
    /// Handles the connections that have ended.
    pub(super) fn heed_broken_streams(&mut self) {
        while let Some((rank, why)) = self.fabric.next_down() {
            self.stream_down(rank, &why);
        }
        while let Some(rank) = self.fabric.next_up() {
            if self.fabric.is_connected(rank) {
                let view = self.member.view();
                let (view, from) = (view.id, view.members[rank.index()]);
                self.control_plane.act(|roster, now| self.member.stream_up(view, from, roster, now));
            }
        }
    }

    #[cold]
    fn stream_down(&mut self, rank: Rank, why: &Down) {
        let view = self.member.view();
        let (view, id) = (view.id, view.members[rank.index()]);
        // A connection of libfabric that was closed in order is not made again.
        let for_good = breaks_protocol(why) || matches!(why, Down::Closed) && !self.fabric.is_stream(rank);
        self.control_plane.act(|roster, now| self.member.stream_down(view, id, for_good, roster, now));
        self.has_chores = true;
    }

    /// Moves the data that was posted in older views in which subgroups continue, in both
    /// directions. Returns whether there was any.
    pub(super) fn move_older(&mut self) -> bool {
        let mut moved = false;
        for Older { view, fabric, .. } in &mut self.older {
            moved |= fabric.progress();
            // A late member has ended the view, and its stream should have continued in the next
            // one.
            fabric.drop_turned();
            while let Some((rank, why)) = fabric.next_down() {
                let (id, for_good) = (view.members[rank.index()], breaks_protocol(&why));
                self.control_plane.act(|roster, now| self.member.stream_down(view.id, id, for_good, roster, now));
                self.has_chores = true;
            }
        }
        moved
    }

    /// Moves the ways to remaining members of other hosts to the next view, which is decided. All
    /// data that was posted in this view leaves first.
    #[cold]
    pub(super) fn continue_ways(&mut self) {
        let Some(next) = self.member.next().map(|next| Arc::clone(next.view())) else { return };
        let mut continuing = vec![];
        for (rank, id) in self.member.staying(self.control_plane.roster(), |rank| self.fabric.is_connected(rank)) {
            self.fabric.turn(rank, next.id);
            continuing.push(id);
        }
        let view = Arc::clone(self.member.view());
        if let Some(meeting) = self.preparing.as_mut().and_then(Preparing::meeting_mut) {
            self.fabric.carry(meeting, |rank| next.rank_of(view.members[rank.index()]));
        }
        let turned = self.fabric.take_turned(next.id);
        self.heed_broken_streams();
        self.control_plane.act(|roster, _| {
            for (rank, stream) in turned {
                roster.keep_continued(next.id, view.members[rank.index()], Peer::There(stream));
            }
            roster.continue_ways(continuing);
        });
    }

    /// Connects members through libfabric that were not connected when the view began, or have lost
    /// their connections.
    pub(super) fn connect_late(&mut self) {
        if self.lacks_since.is_some_and(|tried| tried.elapsed() < AGAIN) {
            return;
        }
        let (view, layout) = (Arc::clone(self.member.view()), self.member.engine().layout());
        let lacks = connect_late(&mut self.fabric, &mut self.control_plane, &view, layout);
        self.lacks_since = lacks.then(Instant::now);
    }

    /// Attaches the ways that have come. Returns whether there were any.
    pub(super) fn attach_arrivals(&mut self) -> bool {
        let arrivals = self.control_plane.act(|roster, _| roster.take_arrivals());
        let any = !arrivals.is_empty();
        arrivals.into_iter().for_each(|arrival| self.attach(arrival));
        any
    }

    fn attach(&mut self, Arrival { view, from, way }: Arrival<Peer>) {
        if let Some(over) = self.over.iter_mut().find(|over| over.view.id == view) {
            if let (Some(rank), Peer::There(stream)) = (over.view.rank_of(from), way) {
                let is_attached = over.ways.attach(rank, stream).is_ok();
                self.control_plane.act(|roster, now| match is_attached {
                    true => self.member.stream_up(view, from, roster, now),
                    false => self.member.not_attached(view, from, now),
                });
            }
            return;
        }
        let older = self.older.iter_mut().find(|older| older.view.id == view).map(|older| &mut older.fabric);
        let newest = (view == self.member.view().id).then_some(&mut self.fabric);
        let Some((fabric, engine)) = older.or(newest).zip(self.member.engine_of(view)) else { return };
        let Some(rank) = engine.view().rank_of(from).filter(|rank| *rank != engine.me()) else { return };
        hasten(&way, self.terms.suspect_after);
        let attached = fabric.attach(engine.layout(), rank, way);
        self.control_plane.act(|roster, now| match attached {
            Ok(()) => self.member.stream_up(view, from, roster, now),
            Err(MeshError::Os { .. }) => self.member.not_attached(view, from, now),
            // One bad way must not end all others.
            Err(_) => {}
        });
    }

    /// Suspects the members whose connections show that their processes have ended. Their last
    /// posts come first, if they are here.
    pub(super) fn suspect_the_ended(&mut self) {
        for rank in self.control_plane.act(|roster, now| self.member.newly_ended(roster, now)) {
            self.fabric.progress();
            self.member.suspect(rank);
        }
    }

    /// Suspects members that are about to be dead: they write little any more, and their deaths may
    /// be reported late. The others continue without them meanwhile, if they are enough to do so
    /// without proof.
    pub(super) fn suspect_the_dying(&mut self) {
        for rank in self.fabric.dying() {
            self.member.suspect(rank);
        }
    }

    /// Retires an ended view in which no subgroup continues: its remaining posts are sent, and its
    /// streams are dialled again.
    pub(super) fn retire(&mut self, view: Arc<View>, mut fabric: Mesh) {
        let since = Instant::now();
        self.over.extend(fabric.retire().map(|ways| Over { view, ways, since, open_since: since }));
    }

    /// Moves the remaining data of ended views.
    pub(super) fn look_after_retired(&mut self) {
        let now = self.control_plane.now();
        // A peer that was cut off comes back within the time after which it would be suspected, or
        // is missed.
        let longest = self.terms.suspect_after.unwrap_or_default().max(RETIRED_MAX);
        let Node { member, control_plane, .. } = self;
        self.over.retain_mut(|Over { view, ways, since, open_since }| {
            let is_done = ways.progress();
            while let Some((rank, _)) = ways.next_down() {
                control_plane
                    .act(|roster, _| member.stream_down(view.id, view.members[rank.index()], false, roster, now));
            }
            if !ways.is_open() {
                *open_since = Instant::now();
            }
            !is_done && since.elapsed() < longest && open_since.elapsed() < RETIRED_MAX
        });
        self.forget_old_streams();
    }

    /// Stops dialling streams of ended views whose ways are no longer kept.
    pub(super) fn forget_old_streams(&mut self) {
        let over = &self.over;
        self.member.retain_old(|view| over.iter().any(|over| over.view.id == view));
    }
}

/// Returns whether the peer has sent data that is no row of its view, so that its data is ignored
/// there.
fn breaks_protocol(why: &Down) -> bool {
    matches!(
        why,
        Down::Garbage { .. } | Down::NoHello { .. } | Down::ReorderBuffer { .. } | Down::Astray { .. } | Down::Refused
    )
}

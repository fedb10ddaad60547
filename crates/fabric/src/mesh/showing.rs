//! A member's next row, in memory that its peers have mapped.
use super::{Mesh, set_bit};
use crate::arena::Arena;
use crate::connections::Connections;
use crate::error::MeshError;
use crate::reader::RowMemory;
use crate::readings::has_looked;
use crate::region::SharedRegion;
use crate::shm::{OwnRow, ShownRow};
use spindle_core::control::Me;
use spindle_core::wire::layout::membership;
use spindle_core::{Rank, Rows, ViewId};
use std::sync::Arc;

impl Arena {
    /// Shows `next`, this member's row for `view`, which follows that of `mesh`, to the peers of
    /// this machine that have mapped its memory and are `wanted` there. Returns the peers that find
    /// it this way, which have to be [woken](spindle_core::Table::wake). All others need a control
    /// message.
    pub fn show<C: Connections>(
        &mut self,
        mesh: &Mesh<C>,
        next: &OwnRow,
        view: ViewId,
        wanted: impl Fn(Rank) -> Option<Me>,
    ) -> Vec<Rank> {
        let Some(at) = next.row.place_beside(mesh.row()) else { return vec![] };
        let mut shown = vec![];
        let readers = mesh.mapped_by().filter_map(|(rank, event_count)| {
            let reader = wanted(rank)?;
            shown.push(rank);
            Some((reader, Arc::clone(event_count)))
        });
        if !self.note_readers(&next.row, view, readers) {
            return vec![];
        }
        mesh.show(&shown, view, at);
        shown.retain(|rank| mesh.event_count_of(*rank).is_some_and(|event_count| !has_looked(event_count, view)));
        shown
    }
}

impl<C: Connections> Mesh<C> {
    /// Returns the peers of this machine that have mapped the memory of my row, and their
    /// doorbells' segments.
    pub(crate) fn mapped_by(&self) -> impl Iterator<Item = (Rank, &Arc<SharedRegion>)> {
        let at = membership::mapped(self.doorbells.len());
        self.lives
            .iter()
            .filter(move |(rank, _)| self.has_bit(*rank, at, self.me))
            .map(|(rank, event_count)| (*rank, event_count))
    }

    /// Returns the bit of `member` among those that begin at `at` in the row of `of`.
    fn has_bit(&self, of: Rank, at: u64, member: Rank) -> bool {
        self.rows.load(of, at + 8 * u64::from(member.0 / 64)) >> (member.0 % 64) & 1 == 1
    }

    /// Publishes in my row the offset at which the row for `view` begins, in the same memory, and
    /// that `peers` may take it: they have been [noted](crate::Arena::show) as its readers.
    pub(crate) fn show(&self, peers: &[Rank], view: ViewId, at: u64) {
        self.row.store(membership::NEXT_AT, at);
        for peer in peers {
            set_bit(&self.row, membership::shown_to(self.doorbells.len()), *peer);
        }
        self.row.store(membership::NEXT_VIEW, view.0);
    }

    /// Returns the doorbell's segment of a peer that is here.
    pub(crate) fn event_count_of(&self, peer: Rank) -> Option<&Arc<SharedRegion>> {
        self.lives.iter().find(|(rank, _)| *rank == peer).map(|(_, event_count)| event_count)
    }

    /// Announces that this member looks for [shown](Self::shown) rows of `view` once more, after
    /// this, and never again. With peers that show theirs later it exchanges control messages.
    pub fn look_last(&self, view: ViewId) {
        self.readings.look_last(view);
    }

    /// Returns the row of `peer`, of `bytes`, for `view`, if that peer has
    /// [shown](crate::Arena::show) it and it can be found from here.
    ///
    /// # Errors
    /// [`MeshError::Region`], if the announced place can't contain the row.
    ///
    /// # Panics
    /// If the peer is not of this view.
    pub fn shown(&self, peer: Rank, view: ViewId, bytes: u64) -> Result<Option<ShownRow>, MeshError> {
        let RowMemory::Peer(row) = self.rows.held(peer) else { return Ok(None) };
        // The place and the bits were stored before the view. A row that was shown only to others
        // has a lease, and comes in a control message.
        let is_shown = row.load(membership::NEXT_VIEW) == view.0
            && self.has_bit(peer, membership::shown_to(self.doorbells.len()), self.me);
        if !is_shown || !row.is_of_chunk() {
            return Ok(None);
        }
        let found = self.event_count_of(peer).zip(self.doorbells[peer.index()].as_ref());
        let Some((event_count, doorbell)) = found else { return Ok(None) };
        let next = row.beside(row.load(membership::NEXT_AT), bytes, self.readings.begin(view));
        let next = next.map_err(|source| MeshError::Region { rank: peer, part: "row", source })?;
        Ok(Some(ShownRow { row: next, event_count: Arc::clone(event_count), event: doorbell.event().cloned() }))
    }
}

//! The parts that members have handed over for views: their memory, streams and libfabric
//! addresses.
//!
//! The number of parts is at most [`PARTS_MAX`] of each kind. The number of views ahead for which
//! they are kept is at most [`VIEWS_AHEAD_MAX`]. A view that has begun takes its memory and streams
//! from here, and late ones are [arrivals](super::Arrival).
use crate::control::PortAddress;
use crate::ids::{MemberId, ViewId};
use crate::limits;
use alloc::collections::{BTreeMap, BTreeSet};

/// The number of views ahead for which memory is kept.
pub(super) const VIEWS_AHEAD_MAX: u64 = 4;
/// The maximum number of parts that are kept for later views. Without it, the number of views of
/// eras that no recovery has begun would be unlimited.
const PARTS_MAX: usize = 8 * limits::MEMBERS_MAX;

/// The parts of members, by view.
#[derive(Debug)]
pub(super) struct Parts<W> {
    /// The memory and streams that members have handed over for later views, each with the
    /// incarnation of the group.
    ways: BTreeMap<(ViewId, MemberId), (u128, W)>,
    /// The libfabric addresses of members, in the view that has begun and in later ones.
    ports: BTreeMap<(ViewId, MemberId), PortAddress>,
}

impl<W> Parts<W> {
    /// Returns the parts of a process that has received none.
    pub(super) fn new() -> Parts<W> {
        Parts { ways: BTreeMap::new(), ports: BTreeMap::new() }
    }

    /// Keeps the way of a member, `of` a group and view, if the view is later than `begun` and near
    /// enough. Returns whether it is kept.
    pub(super) fn keep(&mut self, (incarnation, view): (u128, ViewId), from: MemberId, way: W, begun: ViewId) -> bool {
        // A process that waits for admission does not know yet in which view it will be. A late
        // process hands over its memory for a view that is long over.
        let oldest = self.ways.keys().next().map_or(view, |(oldest, _)| *oldest);
        let is_near = begun.0 == 0 || view.ahead_of(oldest) <= VIEWS_AHEAD_MAX;
        let is_kept = view > begun && is_near && self.ways.len() < PARTS_MAX;
        if is_kept {
            self.ways.insert((view, from), (incarnation, way));
        }
        is_kept
    }

    /// Keeps the libfabric address of a member in a current or later view.
    pub(super) fn keep_port(&mut self, view: ViewId, from: MemberId, address: PortAddress, begun: ViewId) {
        let is_near = begun.0 == 0 || (view >= begun && view.ahead_of(begun) <= VIEWS_AHEAD_MAX);
        let is_known = self.ports.contains_key(&(view, from));
        if is_near && (is_known || self.ports.len() < PARTS_MAX) {
            self.ports.insert((view, from), address);
        }
    }

    /// True if the way of `member` for `view` is here.
    pub(super) fn has(&self, view: ViewId, member: MemberId) -> bool {
        self.ways.contains_key(&(view, member))
    }

    /// Returns the way of `member` for `view`, and keeps it no more.
    pub(super) fn take(&mut self, view: ViewId, member: MemberId) -> Option<W> {
        self.ways.remove(&(view, member)).map(|(_, way)| way)
    }

    /// Returns the libfabric address of `member` for `view`.
    pub(super) fn port(&self, view: ViewId, member: MemberId) -> Option<&PortAddress> {
        self.ports.get(&(view, member))
    }

    /// Drops the parts of a member for a view.
    pub(super) fn drop_of(&mut self, view: ViewId, from: MemberId) {
        self.ways.remove(&(view, from));
        self.ports.remove(&(view, from));
    }

    /// Drops the ways that are for other groups.
    pub(super) fn retain_incarnation(&mut self, incarnation: u128) {
        self.ways.retain(|_, (of, _)| *of == incarnation);
    }

    /// Drops the parts for views before this one.
    pub(super) fn pass_over_until(&mut self, view: ViewId) {
        self.ways.retain(|(id, _), _| *id >= view);
        self.ports.retain(|(id, _), _| *id >= view);
    }

    /// Notes that a view has begun, which has taken its ways.
    pub(super) fn begin(&mut self, view: ViewId) {
        self.ways.retain(|(id, _), _| *id > view);
        self.ports.retain(|(id, _), _| *id >= view);
    }

    /// Returns the members that have handed over parts.
    pub(super) fn members(&self) -> impl Iterator<Item = MemberId> {
        self.ways.keys().chain(self.ports.keys()).map(|(_, from)| *from)
    }
}

/// The views for which this member's memory was handed over.
#[derive(Debug)]
pub(super) struct HandOvers {
    /// The newest view for which the memory was handed over.
    newest: ViewId,
    /// Members whose control messages were dropped because they may be on other hosts.
    ///
    /// Each has the newest view for which this member has handed over its memory. The memory is
    /// handed over again to each of them that is found on this host.
    forgotten: BTreeMap<MemberId, ViewId>,
}

impl HandOvers {
    /// Returns the state of a process that has handed over nothing.
    pub(super) fn new() -> HandOvers {
        HandOvers { newest: ViewId(0), forgotten: BTreeMap::new() }
    }

    /// Notes that the memory for `view` is handed over.
    pub(super) fn note(&mut self, view: ViewId) {
        self.newest = self.newest.max(view);
    }

    /// Notes that the control messages to a member were dropped.
    pub(super) fn forget(&mut self, id: MemberId) {
        self.forgotten.insert(id, self.newest);
    }

    /// Returns the view for which the memory is to be handed over again to a member of this host.
    pub(super) fn resume(&mut self, id: MemberId) -> Option<ViewId> {
        self.forgotten.remove(&id)
    }

    /// Forgets processes that are not `wanted`.
    pub(super) fn retain(&mut self, wanted: &BTreeSet<MemberId>) {
        self.forgotten.retain(|id, _| wanted.contains(id));
    }
}

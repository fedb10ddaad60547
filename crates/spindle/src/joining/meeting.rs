//! Makes the connections of a view that begins, where libfabric carries the rows between hosts.
//!
//! Connections to members that stay continue from the view before. For every other pair, the member
//! of the lower rank calls. The other member sends its address in a control message,
//! [`spindle_core::control::ControlMessage::Port`], and repeats it until it is called. New members
//! have the higher ranks, and know the addresses of the older ones. The control message also says
//! that a call for this view will be answered. A failed call is repeated, even when the view has
//! begun without the member ([`connect_late`]).
use crate::control_plane::{ControlPlane, Net};
use crate::mesh::Mesh;
use spindle_core::{Layout, MemberId, Rank, View};
use spindle_fabric::OwnRow;
use spindle_fabric_ofi::{LinkPurpose, OfiAddress, OfiError, OfiMeeting};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long to wait before repeating a control message or a call to a peer.
pub(crate) const AGAIN: Duration = Duration::from_millis(100);
/// How often to check connections that are being made: not all providers report when there is work.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// This member's connections to members of other hosts, for one view, while they are made.
#[derive(Debug)]
pub(crate) struct Meeting {
    ofi: OfiMeeting,
    /// When each peer was sent the address or called last.
    tried: BTreeMap<Rank, Instant>,
}

impl Meeting {
    /// Creates the meeting for the owner of `own`. Returns `None` if all members of `view` are
    /// known to be on this host, or if libfabric carries no rows. A first view can be announced
    /// before the cards of its members come.
    pub(crate) fn new(
        control_plane: &ControlPlane,
        view: &View,
        layout: &Layout,
        own: &OwnRow,
    ) -> Result<Option<Meeting>, OfiError> {
        let roster = control_plane.roster();
        let has_far = || {
            let mut others = view.members.iter().copied().filter(|id| *id != control_plane.me);
            others.any(|id| roster.is_far(id) || roster.may_be_elsewhere(id))
        };
        let Some(port) = control_plane.net().and_then(Net::port).filter(|_| has_far()) else { return Ok(None) };
        let purpose = LinkPurpose { incarnation: control_plane.incarnation(), view: view.id };
        let mut ofi = port.meet(layout, own, purpose)?;
        if let Some(me) = view.rank_of(control_plane.me) {
            let lower = view.ranks().zip(&view.members).filter(|(rank, id)| *rank < me && roster.is_far(**id));
            // Connections that continue may break before they continue here.
            lower.for_each(|(rank, _)| ofi.expect(rank));
        }
        Ok(Some(Meeting { ofi, tried: BTreeMap::new() }))
    }

    /// Continues with the `missing` members. It never waits.
    pub(crate) fn look(&mut self, control_plane: &mut ControlPlane, view: &View, missing: &[MemberId]) {
        // Each failure is reported once, and failed connections are tried again below.
        for _ in 0..=view.members.len() {
            if self.ofi.progress().is_ok() {
                break;
            }
        }
        let Some(me) = view.rank_of(control_plane.me) else { return };
        for (id, peer) in missing.iter().filter_map(|id| Some((*id, view.rank_of(*id)?))) {
            let is_early = self.tried.get(&peer).is_some_and(|tried| tried.elapsed() < AGAIN);
            if is_early || self.is_connected(peer) || !control_plane.is_far(id) || control_plane.roster().continues(id)
            {
                continue;
            }
            if peer < me {
                self.ofi.expect(peer);
                let port = self.ofi.address().clone().into();
                control_plane.act(|roster, _| roster.tell_port(view.id, id, port));
            } else if let Some(address) = control_plane.roster().port_of(view.id, id).cloned().map(OfiAddress::from) {
                // A call that fails now may succeed later.
                let _ = self.ofi.call(peer, &address);
            } else {
                continue;
            }
            self.tried.insert(peer, Instant::now());
        }
    }

    /// Returns whether `peer` is connected, or was.
    pub(crate) fn is_connected(&self, peer: Rank) -> bool {
        self.ofi.is_connected(peer)
    }

    /// Returns the meeting for connections of the view before, which continue in it.
    pub(crate) fn ofi_mut(&mut self) -> &mut OfiMeeting {
        &mut self.ofi
    }

    /// Returns the connections, for the view's table.
    pub(crate) fn end(self) -> OfiMeeting {
        self.ofi
    }
}

/// Connects the members of other hosts that are not connected, while a view runs, or sends them
/// this member's address. Returns whether such members exist, so that the caller tries
/// [again](AGAIN).
pub(crate) fn connect_late(mesh: &mut Mesh, control_plane: &mut ControlPlane, view: &View, layout: &Layout) -> bool {
    let Some(port) = mesh.port().cloned() else { return false };
    let Some(me) = view.rank_of(control_plane.me) else { return false };
    let lacking = view.ranks().zip(view.members.iter().copied());
    let lacking = lacking
        .filter(|(peer, id)| mesh.lacks(*peer) && control_plane.is_far(*id) && !control_plane.roster().is_dead(*id));
    let lacking: Vec<(Rank, MemberId)> = lacking.collect();
    for (peer, id) in &lacking {
        let address = control_plane.roster().port_of(view.id, *id).cloned().map(OfiAddress::from);
        // A call that fails now may succeed later.
        let _ = mesh.meet(layout, *peer, address.as_ref());
        if *peer < me {
            control_plane.act(|roster, _| roster.tell_port(view.id, *id, port.clone().into()));
        }
    }
    !lacking.is_empty()
}

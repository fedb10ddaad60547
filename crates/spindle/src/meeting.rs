//! The connections of a view that begins, where libfabric carries the rows between hosts.
//!
//! Of two members the lower rank calls. Where, it is told by the other, in a [letter](spindle_core::control::Letter::Port) that goes again and
//! again until it has called: those who are new have the higher ranks, and know where those are who were there before. What fails is tried again,
//! for as long as the view waits for who is missing.
use crate::crew::Crew;
use spindle_core::{Layout, MemberId, Rank, View};
use spindle_fabric::ofi::{OfiAddress, OfiMeeting, Purpose};
use spindle_fabric::{OfiError, OwnRow};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long to wait before a peer is told or called again.
const AGAIN: Duration = Duration::from_millis(100);
/// How often to look after connections that are being made: not all providers say when there is something to do.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// This member on its way to be connected with those of other hosts, for one view.
#[derive(Debug)]
pub(crate) struct Meeting {
    ofi: OfiMeeting,
    /// When they were told or called last.
    tried: BTreeMap<Rank, Instant>,
}

impl Meeting {
    /// For the owner of `own`; `None` if all members of `view` are known to be on this host, or libfabric carries no rows. A first view can be told before the
    /// cards of its members come.
    pub(crate) fn new(crew: &Crew, view: &View, layout: &Layout, own: &OwnRow) -> Result<Option<Meeting>, OfiError> {
        let roster = crew.roster();
        let has_far = || {
            let mut others = view.members.iter().copied().filter(|id| *id != crew.me);
            others.any(|id| roster.is_far(id) || roster.may_be_elsewhere(id))
        };
        let Some(net) = crew.net().filter(|net| net.uses_ofi() && has_far()) else { return Ok(None) };
        let Some(port) = net.open_port(view.members.len() as u32 - 1)? else { return Ok(None) };
        let purpose = Purpose { incarnation: crew.incarnation(), view: view.id };
        Ok(Some(Meeting { ofi: port.meet(layout, own, purpose)?, tried: BTreeMap::new() }))
    }

    /// Goes on with those who are `missing`. It waits for nothing.
    pub(crate) fn look(&mut self, crew: &mut Crew, view: &View, missing: &[MemberId]) {
        // Each failure is told once, and what has failed is tried again below.
        for _ in 0..=view.members.len() {
            if self.ofi.progress().is_ok() {
                break;
            }
        }
        let Some(me) = view.rank_of(crew.me) else { return };
        for (id, peer) in missing.iter().filter_map(|id| Some((*id, view.rank_of(*id)?))) {
            let is_early = self.tried.get(&peer).is_some_and(|tried| tried.elapsed() < AGAIN);
            if is_early || self.is_connected(peer) || !crew.is_far(id) {
                continue;
            }
            if peer < me {
                self.ofi.expect(peer);
                let port = self.ofi.address().clone().into();
                crew.act(|roster, _| roster.tell_port(view.id, id, port));
            } else if let Some(address) = crew.roster().port_of(view.id, id).cloned().map(OfiAddress::from) {
                // What fails now may do later.
                let _ = self.ofi.call(peer, &address);
            } else {
                continue;
            }
            self.tried.insert(peer, Instant::now());
        }
    }

    /// Whether `peer` is connected, or has been.
    pub(crate) fn is_connected(&self, peer: Rank) -> bool {
        self.ofi.is_connected(peer)
    }

    /// The connections, for the view's table.
    pub(crate) fn end(self) -> OfiMeeting {
        self.ofi
    }
}

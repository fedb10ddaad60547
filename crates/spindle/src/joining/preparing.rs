//! This member's memory for a view that has not begun here, and the ways to others that have come
//! for it.
use super::meeting::{self, Meeting};
use crate::control_plane::{ControlPlane, ControlPlaneEvent, EndNotice, SharedRowDescriptors};
use crate::error::JoinError;
use crate::mesh::Mesh;
use spindle_core::control::{Begun, INSTALL_LOOK, Install, SharedSettings};
use spindle_core::wire::layout::{RowLayout, membership};
use spindle_core::{Engine, Layout, MemberId, Rank, SubgroupId, View};
use spindle_fabric::{Arena, MeshError, OwnRow, Peer, RowDescriptors};
use spindle_fabric_ofi::OfiMeeting;
use spindle_transport::limit_silence;
use std::collections::BTreeSet;
use std::time::Duration;

/// A stream counts as broken if its bytes are not acknowledged for this fraction of the suspicion
/// time.
const BROKEN_PER_SILENCE: u32 = 4;

/// The memory and connections of a view that may begin.
#[derive(Debug)]
pub(crate) struct Preparing {
    /// The connections to members whose rows come through libfabric. They are closed before the row
    /// is released.
    meeting: Option<Meeting>,
    row: PendingRow,
}

/// A preallocated row of a member in a view that may come, made while no member waits for it.
#[derive(Debug)]
pub(crate) struct PreallocatedRow {
    me: Rank,
    layout: RowLayout,
    row: OwnRow,
    parts: RowDescriptors,
}

/// A pending row: this member's row in a view that it has not begun, and that others may have. If
/// the member never begins the view, the others find that in this row, if it [may say so](EndNotice).
#[derive(Debug)]
struct PendingRow(Option<OwnRow>, EndNotice);

impl Drop for PendingRow {
    fn drop(&mut self) {
        if let Some(row) = self.0.as_ref().filter(|_| !self.1.is_held()) {
            row.control_block().store(membership::ABANDONED, 1);
        }
    }
}

impl PreallocatedRow {
    /// Preallocates the row of `me` in the view after `view` if all stay and `joining` come. `None`
    /// if there is no memory for it, which does not matter yet.
    pub(crate) fn new(view: &View, joining: &[MemberId], me: MemberId, arena: &mut Arena) -> Option<PreallocatedRow> {
        let next = view.next(|_| true, joining, &[]);
        let (me, layout) = (next.rank_of(me)?, Layout::new(&next).ok()?);
        let (row, parts) = OwnRow::create(&layout, me, arena).ok()?;
        Some(PreallocatedRow { me, layout: layout.row(me).clone(), row, parts })
    }

    /// Returns whether it was made for a row like that of `me`.
    fn fits(&self, layout: &Layout, me: Rank) -> bool {
        self.me == me && self.layout == *layout.row(me)
    }
}

impl Preparing {
    /// Makes this member's memory for the view of `install`, unless that is the `spare`.
    pub(crate) fn new(
        install: &Install,
        control_plane: &mut ControlPlane,
        arena: &mut Arena,
        spare: Option<PreallocatedRow>,
    ) -> Result<Preparing, MeshError> {
        let engine = install.engine();
        let (row, parts) = match spare.filter(|spare| spare.fits(engine.layout(), engine.me())) {
            Some(PreallocatedRow { row, parts, .. }) => (row, parts),
            None => OwnRow::create(engine.layout(), engine.me(), arena)?,
        };
        let meeting = Meeting::new(control_plane, install.view(), engine.layout(), &row)?;
        control_plane.set_handover(install.view().id, SharedRowDescriptors::new(parts));
        Ok(Preparing { meeting, row: PendingRow(Some(row), control_plane.end_notice().clone()) })
    }

    /// Returns this member's row.
    pub(crate) fn row(&self) -> Option<&OwnRow> {
        self.row.0.as_ref()
    }

    /// Returns whether the row of `rank` comes through libfabric, and can come.
    pub(crate) fn has_met(&self, rank: Rank) -> bool {
        self.meeting.as_ref().is_some_and(|meeting| meeting.is_connected(rank))
    }

    /// Returns the meeting in which connections of the view before continue, if some do.
    pub(crate) fn meeting_mut(&mut self) -> Option<&mut OfiMeeting> {
        self.meeting.as_mut().map(Meeting::ofi_mut)
    }

    /// Shows that this member lives, and continues with connections through libfabric, if any are
    /// needed.
    pub(crate) fn go_on(&mut self, install: &mut Install, control_plane: &mut ControlPlane) {
        if let Some(row) = &self.row.0 {
            install.show_life(|at, word| row.control_block().store(at, word));
        }
        if self.meeting.is_some() {
            let missing = install.missing(control_plane.roster(), |rank| self.has_met(rank));
            if let Some(meeting) = &mut self.meeting {
                meeting.look(control_plane, install.view(), &missing);
            }
        }
    }

    /// Returns how long to wait for control events, at most, before the next [step](Self::go_on).
    pub(crate) fn patience(&self) -> Duration {
        if self.meeting.is_some() { meeting::LOOK } else { INSTALL_LOOK }
    }

    /// Takes the sound ways to others that have come for a view, and the members whose rows are
    /// here or come through libfabric.
    pub(crate) fn take_ways(
        &self,
        (view, layout): (&View, &Layout),
        control_plane: &mut ControlPlane,
        suspect_after: Option<Duration>,
    ) -> (Vec<(Rank, Option<Peer>)>, BTreeSet<MemberId>) {
        let me = control_plane.me;
        let others = view.members.iter().copied().zip((0..).map(Rank)).filter(|(id, _)| *id != me);
        let (mut ways, mut here): (Vec<_>, BTreeSet<MemberId>) = Default::default();
        for (id, rank) in others {
            let theirs = control_plane.act(|roster, _| roster.take_part(view.id, id));
            // One bad member must not end all others.
            let theirs = theirs.filter(|peer| peer.check(layout, rank).is_ok());
            theirs.iter().for_each(|peer| hasten(peer, suspect_after));
            if theirs.is_some() || self.has_met(rank) {
                here.insert(id);
            }
            ways.push((rank, theirs));
        }
        (ways, here)
    }

    /// Returns the table of the view.
    pub(crate) fn table(mut self, layout: &Layout, ways: Vec<(Rank, Option<Peer>)>) -> Result<Mesh, MeshError> {
        let row = self.row.0.take().expect("a view begins once");
        let control = row.control_block();
        let mesh = Mesh::over(layout, row, ways, self.meeting.take().map(Meeting::end));
        mesh.inspect_err(|_| control.store(membership::ABANDONED, 1))
    }
}

/// The first view of this process, until it begins.
#[derive(Debug)]
pub(crate) struct First {
    install: Install,
    preparing: Preparing,
    arena: Arena,
    suspect_after: Option<Duration>,
}

impl First {
    /// Prepares the first view of `engine`; the application already has the given first rounds.
    pub(crate) fn new(
        mut engine: Engine,
        known: &[(SubgroupId, Rank, u64)],
        control_plane: &mut ControlPlane,
        mut arena: Arena,
        suspect_after: Option<Duration>,
        spare: Option<PreallocatedRow>,
    ) -> Result<First, JoinError> {
        for (subgroup, sender, rounds) in known {
            engine.pass_over(*subgroup, *sender, *rounds);
        }
        let mut install = control_plane.act(|roster, now| Install::first(engine, suspect_after, roster, now));
        let preparing = Preparing::new(&install, control_plane, &mut arena, spare)?;
        preparing.row.0.iter().for_each(|row| control_plane.set_doorbell(row.doorbell()));
        control_plane.act(|roster, now| install.prepared(roster, now));
        control_plane.flush_now();
        let mut first = First { install, preparing, arena, suspect_after };
        first.preparing.go_on(&mut first.install, control_plane);
        Ok(first)
    }

    /// Lets the view begin only with a row of one of these members of the view before.
    pub(crate) fn await_voucher(&mut self, vouchers: Vec<MemberId>) {
        self.install.await_voucher(vouchers);
    }

    /// Returns whether the view begins now.
    pub(crate) fn look(&mut self, control_plane: &mut ControlPlane) -> bool {
        self.preparing.go_on(&mut self.install, control_plane);
        let has_sent_all = control_plane.has_sent_all(self.install.view());
        let has_met = |rank| self.preparing.has_met(rank);
        control_plane.act(|roster, now| self.install.look(roster, false, has_sent_all, has_met, now))
    }

    /// Returns how long to wait for control events, at most, before the next [look](Self::look).
    pub(crate) fn patience(&self) -> Duration {
        self.preparing.patience()
    }

    /// Handles messages of others, and answers processes with this `digest` that ask: they may not
    /// know of the view yet.
    ///
    /// # Errors
    /// [`JoinError::LeftOut`] if the group has a later view.
    pub(crate) fn attend(&self, control_plane: &mut ControlPlane, settings: &SharedSettings) -> Result<(), JoinError> {
        for news in control_plane.news_now() {
            if let ControlPlaneEvent::Control(news) = news
                && control_plane.act(|roster, _| self.install.attend(&news, settings, roster))
            {
                return Err(JoinError::LeftOut {
                    incarnation: control_plane.incarnation(),
                    view: self.install.view().id,
                });
            }
        }
        Ok(())
    }

    /// Begins the view.
    pub(crate) fn begin(self, control_plane: &mut ControlPlane) -> Result<(Begun, Mesh, Arena), MeshError> {
        let First { install, preparing, arena, suspect_after } = self;
        let of = (&**install.view(), &**install.engine().layout());
        let (ways, here) = preparing.take_ways(of, control_plane, suspect_after);
        let mut table = preparing.table(install.engine().layout(), ways)?;
        table.set_clock(control_plane.clock().clone());
        let begun = control_plane.act(|roster, now| install.begin(&here, roster, now));
        control_plane.has_begun(begun.view.id);
        Ok((begun, table, arena))
    }
}

/// Makes a stream break long before its peer is suspected. The system doubles its pauses while
/// nothing is acknowledged, so after a cut it would resend as late as the cut was long.
pub(crate) fn hasten(peer: &Peer, suspect_after: Option<Duration>) {
    if let (Peer::There(stream), Some(after)) = (peer, suspect_after) {
        // If this fails, the stream only breaks later.
        let _ = limit_silence(&**stream, after / BROKEN_PER_SILENCE);
    }
}

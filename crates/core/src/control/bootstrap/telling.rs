//! Events of the bootstrap, for a subscriber of `tracing`: why the process waits, attempts, votes,
//! and the outcome. The code in this file decides nothing.
use super::{BootstrapBallot, BootstrapMessage, BootstrapRecord, BootstrapWait, Incarnation, InitialView, Process};
use crate::ids::MemberId;
use core::fmt;
use tracing::{debug, info, trace, warn};

/// The target of these events.
const TARGET: &str = "spindle::bootstrap";

#[derive(Clone, Copy)]
pub(super) struct BootstrapTeller {
    pub(super) me: MemberId,
}

impl BootstrapTeller {
    pub(super) fn heard(self, from: Process, message: &BootstrapMessage) {
        trace!(target: TARGET, me = self.me.0, from = from.id.0, ?message, "message received");
    }

    pub(super) fn reached(self, seed: u32, id: MemberId) {
        debug!(target: TARGET, me = self.me.0, seed, member = id.0, "seed reached");
    }

    pub(super) fn not_reached(self, seed: u32) {
        debug!(target: TARGET, me = self.me.0, seed, "seed not reached");
    }

    /// Reports that the reason why the process waits, or the state of the seeds, differs from
    /// `before`.
    pub(super) fn waits(self, waiting: &BootstrapWait, before: Option<&BootstrapWait>) {
        let BootstrapWait { need, seeds, here } = waiting;
        match before.is_none_or(|before| before.need != *need) {
            true => info!(target: TARGET, me = self.me.0, ?need, ?seeds, here, "waiting"),
            false => debug!(target: TARGET, me = self.me.0, ?need, ?seeds, here, "waiting"),
        }
    }

    pub(super) fn attempts(self, ballot: BootstrapBallot, incarnation: Incarnation, forced: bool) {
        let (ballot, incarnation) = (ShownSeeds(ballot), Hex(incarnation));
        debug!(target: TARGET, me = self.me.0, %ballot, %incarnation, forced, "attempt begun");
    }

    pub(super) fn outbid(self, by: Process, promised: BootstrapBallot) {
        debug!(target: TARGET, me = self.me.0, by = by.id.0, promised = %ShownSeeds(promised), "attempt outbid");
    }

    pub(super) fn failed(self, failures: u32, pause_ns: u64) {
        let pause_ms = pause_ns / super::MS;
        debug!(target: TARGET, me = self.me.0, failures, pause_ms, "attempt failed");
    }

    pub(super) fn pledged(self, from: Process) {
        debug!(target: TARGET, me = self.me.0, from = from.id.0, "pledge received");
    }

    pub(super) fn proposes(self, ballot: BootstrapBallot, initial_view: &InitialView) {
        let members = Members(initial_view);
        debug!(target: TARGET, me = self.me.0, ballot = %ShownSeeds(ballot), %members, "votes asked for");
    }

    pub(super) fn promise_received(self, from: Process, ballot: BootstrapBallot, durable: bool) {
        debug!(target: TARGET, me = self.me.0, from = from.id.0, ballot = %ShownSeeds(ballot), durable, "promise received");
    }

    pub(super) fn vote_received(self, from: Process, ballot: BootstrapBallot, durable: bool) {
        debug!(target: TARGET, me = self.me.0, from = from.id.0, ballot = %ShownSeeds(ballot), durable, "vote received");
    }

    pub(super) fn promised(self, to: Process, ballot: BootstrapBallot) {
        debug!(target: TARGET, me = self.me.0, to = to.id.0, ballot = %ShownSeeds(ballot), "ballot promised");
    }

    pub(super) fn voted(self, to: Process, ballot: BootstrapBallot, initial_view: &InitialView) {
        let (ballot, members) = (ShownSeeds(ballot), Members(initial_view));
        debug!(target: TARGET, me = self.me.0, to = to.id.0, %ballot, %members, "vote given");
    }

    pub(super) fn is_behind(self, from: Process, ballot: BootstrapBallot, promised: BootstrapBallot) {
        let (ballot, promised) = (ShownSeeds(ballot), ShownSeeds(promised));
        debug!(target: TARGET, me = self.me.0, from = from.id.0, %ballot, %promised, "ballot refused");
    }

    /// Reports that this process does not vote on a proposal of `from`.
    pub(super) fn votes_not(self, from: Process, same_seeds: bool, belongs: Option<Incarnation>) {
        let belongs = belongs.map(Hex);
        debug!(target: TARGET, me = self.me.0, from = from.id.0, same_seeds, ?belongs, "vote refused");
    }

    pub(super) fn persisted(self, record: &BootstrapRecord) {
        let belongs = record.belongs.map(Hex);
        debug!(target: TARGET, me = self.me.0, promised = %ShownSeeds(record.promised), ?belongs, "record written");
    }

    pub(super) fn created(self, initial_view: &InitialView, after_ns: u64) {
        let (incarnation, after_ms) = (Hex(initial_view.incarnation), after_ns / super::MS);
        info!(target: TARGET, me = self.me.0, %incarnation, members = %Members(initial_view), after_ms, "group is created");
    }

    pub(super) fn exists(self, incarnation: Incarnation) {
        info!(target: TARGET, me = self.me.0, incarnation = %Hex(incarnation), "group exists");
    }

    pub(super) fn is_member(self, incarnation: Incarnation) {
        debug!(target: TARGET, me = self.me.0, incarnation = %Hex(incarnation), "member of the group");
    }

    pub(super) fn conflict(self, mine: Incarnation, theirs: Incarnation) {
        let (mine, theirs) = (Hex(mine), Hex(theirs));
        warn!(target: TARGET, me = self.me.0, %mine, %theirs, "two groups of this name exist");
    }
}

/// An incarnation in hexadecimal.
struct Hex(Incarnation);

/// A ballot as `round.seed`.
struct ShownSeeds(BootstrapBallot);

/// The ids of the first view, separated by commas.
struct Members<'a>(&'a InitialView);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0.0)
    }
}

impl fmt::Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ShownSeeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.round, self.0.seed)
    }
}

impl fmt::Display for Members<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.members.iter().map(|process| process.id.0)).finish()
    }
}

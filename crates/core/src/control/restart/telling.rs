//! Events of a restart, for a subscriber of `tracing`. The code in this file decides nothing.
use super::{RestartBallot, RestartMessage, RestartView, RestartWait};
use crate::ids::{MemberId, Process, ViewId};
use alloc::vec::Vec;
use tracing::{debug, info, trace};

/// The target of these events.
const TARGET: &str = "spindle::restart";

#[derive(Clone, Copy)]
pub(super) struct RestartTeller {
    pub(super) me: MemberId,
}

impl RestartTeller {
    pub(super) fn heard(self, from: Process, message: &RestartMessage) {
        trace!(target: TARGET, me = self.me.0, from = from.id.0, ?message, "message received");
    }

    pub(super) fn waits(self, wait: &RestartWait) {
        let RestartWait { base, members, missing, not_lost, behind, goes_on } = wait;
        info!(target: TARGET, me = self.me.0, base = base.0, members, ?missing, ?not_lost, ?behind, goes_on, "waits for members of the last view");
    }

    pub(super) fn learns_base(self, base: ViewId) {
        info!(target: TARGET, me = self.me.0, base = base.0, "a later view was decided");
    }

    pub(super) fn attempts(self, ballot: RestartBallot, base: ViewId) {
        debug!(target: TARGET, me = self.me.0, round = ballot.round, base = base.0, "attempt begun");
    }

    pub(super) fn failed(self, failures: u32, pause_ns: u64) {
        debug!(target: TARGET, me = self.me.0, failures, pause_ms = pause_ns / super::MS, "attempt failed");
    }

    pub(super) fn promised(self, ballot: RestartBallot, base: ViewId) {
        let (round, leader) = (ballot.round, ballot.leader.0);
        debug!(target: TARGET, me = self.me.0, round, leader, base = base.0, "ballot promised");
    }

    pub(super) fn proposes(self, ballot: RestartBallot, value: &RestartView) {
        let members: Vec<u64> = value.members.iter().map(|process| process.id.0).collect();
        debug!(target: TARGET, me = self.me.0, round = ballot.round, view = value.view.id.0, ?members, "view proposed");
    }

    pub(super) fn decided(self, value: &RestartView, is_in: bool) {
        let members: Vec<u64> = value.members.iter().map(|process| process.id.0).collect();
        info!(target: TARGET, me = self.me.0, view = value.view.id.0, ?members, is_in, "restart decided");
    }
}

//! The members of the last view that are enough for a restart.
//!
//! A view that ends another one is decided with `w` voters that have it on disk as accepted, and `d` voters
//! that are dead, if `2 w + d > n`, of `n` voters. A death is known to members on the same host, from the
//! kernel, and to all members if the process has said itself that it writes nothing more. With `m` absent
//! voters, and `d` others whose death an absent member may have known, `2 m + d <= n` says that no view was
//! decided by absent members alone. `2 m < n` says the same of two restarts.
use super::Restart;
use crate::ids::{MemberId, Rank, Time};
use crate::mutation::mutation;
use alloc::collections::BTreeSet;

impl Restart {
    /// Returns the members of the base that vote.
    pub(super) fn voters(&self) -> impl Iterator<Item = Rank> {
        let view = &self.record.view;
        view.ranks().filter(|rank| view.is_voter(*rank))
    }

    /// Returns when the restart stops to wait for members that have not come.
    pub(super) fn goes_on_at(&self) -> Time {
        self.arrived + self.setup.patience
    }

    /// True if these members are a restart quorum. Members that `said_last` may be known as dead to all.
    pub(super) fn is_enough(&self, is_here: impl Fn(MemberId) -> bool, said_last: impl Fn(MemberId) -> bool) -> bool {
        let (view, hosts) = (&self.record.view, &self.record.hosts);
        let is_unknown = hosts.len() != view.members.len() || hosts.contains(&0);
        if !self.setup.lost.is_empty() || is_unknown {
            return false;
        }
        let absent: BTreeSet<u128> =
            view.members.iter().zip(hosts).filter(|(id, _)| !is_here(**id)).map(|(_, host)| *host).collect();
        let (mut voters, mut missing, mut dead) = (0, 0, 0);
        for (id, host) in self.voters().map(|rank| (view.members[rank.index()], hosts[rank.index()])) {
            voters += 1;
            match is_here(id) {
                false => missing += 1,
                true => dead += usize::from(said_last(id) || absent.contains(&host)),
            }
        }
        let forgets_dead = mutation!(RestartForgetsDead);
        2 * missing + if forgets_dead { 0 } else { dead } <= voters && 2 * missing < voters
    }
}

//! The watch of a view that works: heartbeats, silence, and the reasons why the view has to end.
use super::agreement::Membership;
use super::opinions::Liveness;
use super::proposal::ProposedChanges;
use super::ranks::Ranks;
use crate::ids::{Rank, Time};
use crate::mutation::mutation;
use crate::table::{Rows, Table};
use crate::wire::layout::{Layout, membership};
use alloc::vec::Vec;

/// The value of `CLOSING` of a member that wants all epochs to end.
pub(super) const CLOSING_ALL: u64 = 2;

impl Membership {
    pub(crate) fn before_sleep(&mut self) {
        // A member that fails before it begins a view, or that has not found this view yet,
        // notifies no peer.
        self.moved |= !mutation!(MovesUnnoticed);
        // With a suspicion time, the checks for silent members trigger the next step.
        self.stirred |= self.opinions.suspect_after().is_none();
        self.opinions.before_sleep();
    }

    /// Shows that this member is alive, and checks the others. Returns the time of the next check.
    ///
    /// `await_peers` gets the leader's rank, and adds the members for which this member waits while
    /// the view works.
    #[inline]
    pub(crate) fn beat<T: Table>(
        &mut self,
        now: Time,
        table: &mut T,
        await_peers: impl FnOnce(&T, Rank, &mut Ranks),
    ) -> Option<Time> {
        if let Err(wake_at) = self.opinions.is_time(now) {
            return wake_at;
        }
        let mut awaited = Ranks::none(self.everyone.len());
        // Ending the view needs all members, and so does making members voters.
        let all =
            self.opinions.liveness() == Liveness::Constant || self.closing || self.voters.len() < self.everyone.len();
        match all {
            true => self.peers.iter().for_each(|peer| _ = awaited.add(*peer)),
            false => {
                self.opinions.await_beginnings(&mut awaited);
                await_peers(table, self.leader(), &mut awaited);
            }
        }
        let looked = self.opinions.looked();
        let (is_new, wake_at) = self.opinions.look(now, &awaited, table);
        self.closing |= is_new;
        // A member that fails before it begins a view notifies no peer.
        let has_looked = self.opinions.looked() != looked;
        self.stirred |= has_looked;
        self.moved |= has_looked && !mutation!(MovesUnnoticed);
        wake_at
    }

    pub(crate) fn next_heartbeat(&mut self) -> u64 {
        self.opinions.next_heartbeat()
    }

    /// Notes that words of the others' membership blocks may have changed.
    pub(crate) fn note_moved(&mut self) {
        self.moved = !mutation!(MovesUnnoticed);
        self.stirred = true;
        self.opinions.note_moved();
    }

    /// True if this view has to end, for a reason of this member or of any other.
    #[inline]
    pub(crate) fn watch<T: Table>(&mut self, table: &T) -> bool {
        if core::mem::take(&mut self.moved) {
            for peer in &self.peers {
                // One cache line of the peer's row.
                self.abandoned |= table.load(*peer, membership::ABANDONED) != 0;
                self.closing |= table.load(*peer, membership::CLOSING) != 0;
            }
        }
        if self.abandoned {
            self.closing |= self.opinions.see_final_words(table);
        }
        if self.voters.len() < self.everyone.len() {
            self.closing |= self.may_promote(table);
        }
        self.closing
    }

    /// True if the next view has to make nonvoters voters. Each of them has begun this view or is
    /// suspected, and the view is not so new that observers are still finding it.
    #[cold]
    fn may_promote<R: Rows>(&self, rows: &R) -> bool {
        let nonvoters = || self.peers.iter().filter(|rank| !self.voters.has(**rank) && !self.suspects(**rank));
        let has_begun = |rank: &Rank| rows.load(*rank, membership::HEARTBEAT) != 0;
        self.opinions.has_settled()
            && self.leader() == self.me
            && self.is_voter()
            && nonvoters().next().is_some()
            && nonvoters().all(has_begun)
    }

    /// Begins the agreement, for a reason of this member or of any other.
    pub(crate) fn close<T: Table>(&mut self, now: Time, layout: &Layout, table: &mut T) {
        self.stirred = true;
        let suspected: Vec<Rank> = self.peers.iter().copied().filter(|rank| self.suspects(*rank)).collect();
        self.teller.closing(&suspected, self.proposed.joins.len(), self.leaving);
        (self.changing, self.closing) = (true, true);
        (self.changes_since, self.turns.since) = (now, now);
        self.store_proposed(layout, table);
        if self.leaving {
            table.store(membership::LEAVING, 1);
        }
        self.opinions.publish(table);
        // The first member that closes the view wakes all members. Only the leader waits for the
        // others, and its ballot wakes all.
        let is_first = !self.peers.iter().any(|peer| table.load(*peer, membership::CLOSING) != 0);
        let ends_all = self.renewing || !self.epochs;
        table.store(membership::CLOSING, if ends_all { CLOSING_ALL } else { 1 });
        table.post_quietly(&self.peers, membership::CLOSING..membership::LEAVING + 8);
        self.wake(if is_first { None } else { Some(self.leader()) }, table);
    }

    /// Wakes `member`. Wakes all if `member` is `None`, this member, or suspected: a suspected
    /// member may hang, so another one has to be awake.
    pub(super) fn wake<T: Table>(&self, member: Option<Rank>, table: &mut T) {
        match member.filter(|member| *member != self.me && !self.suspects(*member)) {
            Some(_) if mutation!(LeaderUnwoken) => {}
            Some(member) => table.wake(&[member]),
            None => table.wake(&self.peers),
        }
    }

    /// Writes as many proposed changes as fit. The rest is for the view after the next.
    fn store_proposed<T: Table>(&self, layout: &Layout, table: &mut T) {
        let range = &layout.row(self.me).proposed;
        let mut proposed = self.proposed.clone();
        while proposed != ProposedChanges::default() {
            let words = proposed.encode();
            if words.len() as u64 * 8 <= range.end - range.start {
                return self.write(range.start, &words, table);
            }
            if proposed.joins.len() > 1 {
                proposed.joins.truncate(proposed.joins.len() / 2);
            } else if proposed.changes.pop().is_none() {
                return;
            }
        }
    }

    /// Stores `words` from `at` on in this member's row, and posts them. Peers that wait for the
    /// words have to be [woken](Self::wake).
    pub(super) fn write<T: Table>(&self, at: u64, words: &[u64], table: &mut T) {
        for (at, word) in (at..).step_by(8).zip(words) {
            table.store(at, *word);
        }
        table.post_quietly(&self.peers, at..at + 8 * words.len() as u64);
    }
}

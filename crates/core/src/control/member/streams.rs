//! The streams of a member to members on other hosts: those that break, those that are dialled
//! again, and those that continue in the next view.
use super::Member;
use crate::control::Roster;
use crate::ids::{MemberId, Rank, Time, ViewId};
use crate::mutation::mutation;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl Member {
    /// Whether the row of a member of this view is here, and the stream that carries it, if there
    /// is one, works.
    pub(super) fn is_connected(&self, rank: Rank) -> bool {
        let id = self.view.members[rank.index()];
        !self.absent.contains(&id) && !self.down.contains(&id)
    }

    /// The stream of a view to a member has ended: of this view, of an [older](Self::older) one, or
    /// of one that is over. If `for_good`, because its peer breaks the protocol or can't come back
    /// in a view that continues, it is suspected.
    pub fn stream_down<W>(&mut self, view: ViewId, id: MemberId, for_good: bool, roster: &mut Roster<W>, now: Time) {
        if let Some(rank) = self.rank_of(id).filter(|_| for_good) {
            self.engine.suspect(rank);
        }
        if view == self.view.id {
            self.down.insert(id);
            if !self.redials.has(view, id) {
                roster.is_cut_off(id, view, now);
            }
        }
        self.redials.down(view, id, now);
    }

    /// There is a new way to a member, in this view or in one that is over.
    pub fn stream_up<W>(&mut self, view: ViewId, id: MemberId, roster: &mut Roster<W>, now: Time) {
        if view == self.view.id {
            self.absent.remove(&id);
            self.down.remove(&id);
            roster.has_come_back(id);
            self.weigh_epochs(roster);
        }
        self.redials.up(view, id, now);
    }

    /// The system refused a new way to a member, whose stream is dialled again.
    pub fn not_attached(&mut self, view: ViewId, id: MemberId, now: Time) {
        self.redials.up(view, id, now);
        self.redials.down(view, id, now);
    }

    /// Only these views that are over have ways that may be dialled again, beside those in which
    /// subgroups go on.
    pub fn retain_old(&mut self, is_over: impl Fn(ViewId) -> bool) {
        let (newest, sharing) = (self.view.id, &self.sharing);
        let goes_on = |view, id| sharing.contains(&(view, id)) && !mutation!(OlderStreamsLost);
        self.redials.retain(|view, id| view == newest || is_over(view) || goes_on(view, id));
    }

    /// The members whose processes stay in the next view, with their ranks in this one, of those
    /// with streams that are open: these streams [continue](Roster::continue_ways) there. Streams
    /// over which subgroups go on that begin no new epoch stay with this view, and others are made
    /// for the next.
    pub fn staying<W>(&self, roster: &Roster<W>, is_open: impl Fn(Rank) -> bool) -> Vec<(Rank, MemberId)> {
        let Some(next) = &self.next else { return Vec::new() };
        let members = self.view.ranks().zip(self.view.members.iter().copied());
        let mut open: Vec<(Rank, MemberId)> = members.filter(|(rank, _)| is_open(*rank)).collect();
        if open.is_empty() {
            // Members of one host have no streams, and this is asked while they wait for the next
            // view.
            return open;
        }
        let me = roster.me();
        let here = next.view().sharers(me).filter(|(epoch, _)| *epoch == self.view.id);
        let sharing: BTreeSet<MemberId> = here.map(|(_, id)| id).collect();
        open.retain(|(_, id)| {
            next.has(*id) && *id != me && !roster.is_new(next.view().id, *id) && !sharing.contains(id)
        });
        open
    }

    pub(super) fn begin_redials<W>(&mut self, roster: &Roster<W>, now: Time) {
        for id in roster.dialled_by_me(&self.view) {
            if self.redials.has(self.view.id, id) {
                continue;
            }
            self.redials.add(self.view.id, id, now);
            if self.absent.contains(&id) {
                self.redials.down(self.view.id, id, now);
            }
        }
    }
}

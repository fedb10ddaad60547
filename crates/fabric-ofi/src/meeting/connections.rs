//! A meeting as the connections of a mesh, while their view runs.
use super::{MeetingState, OfiMeeting};
use crate::address::OfiAddress;
use crate::error::OfiError;
use spindle_core::{Rank, ViewId};
use spindle_fabric::tcp::{Down, Traffic};
use spindle_fabric::{Connections, CopyRegion};
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

impl Connections for OfiMeeting {
    type Address = OfiAddress;
    type Error = OfiError;

    fn begin(&mut self, event_count: BorrowedFd<'_>) -> Result<(), OfiError> {
        for known in &mut self.peers {
            if known.copy.is_none() {
                known.seat = MeetingState::Empty;
            }
        }
        (self.has_begun, self.is_broken) = (true, true);
        self.links.wake_by(event_count).map_err(|source| OfiError::Os { call: "epoll_ctl", source })
    }

    fn leave_out(&mut self, rank: Rank) {
        self.links.forget(rank);
        let known = &mut self.peers[rank.index()];
        (known.seat, known.copy, known.has_met, known.is_done) = (MeetingState::Over, None, false, true);
    }

    fn wake_by(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.links.wake_by(fd)
    }

    fn address(&self) -> &OfiAddress {
        OfiMeeting::address(self)
    }

    fn lacks(&self, peer: Rank) -> bool {
        peer != self.me && !matches!(self.peers[peer.index()].seat, MeetingState::Taken(_) | MeetingState::Over)
    }

    fn copy(&self, rank: Rank) -> Option<&Arc<CopyRegion>> {
        self.peers[rank.index()].copy.as_ref()
    }

    fn introduce(&mut self, peer: Rank, copy: Arc<CopyRegion>) {
        self.keep_copy(peer, copy);
    }

    fn expect(&mut self, peer: Rank) {
        OfiMeeting::expect(self, peer);
    }

    fn call(&mut self, peer: Rank, address: &OfiAddress) -> Result<(), OfiError> {
        OfiMeeting::call(self, peer, address)
    }

    fn turn(&mut self, peer: Rank, next: ViewId) {
        OfiMeeting::turn(self, peer, next);
    }

    fn carry(&mut self, next: &mut OfiMeeting, rank_of: impl Fn(Rank) -> Option<Rank>) {
        OfiMeeting::carry(self, next, rank_of);
    }

    fn drop_turned(&mut self) {
        for rank in self.links.drop_turned() {
            let known = &mut self.peers[rank.index()];
            (known.seat, known.is_done) = (MeetingState::Over, true);
        }
    }

    fn cut(&self) -> u32 {
        self.peers.iter().filter(|peer| peer.has_met && peer.seat.is_open()).count() as u32
    }

    fn open(&self) -> u32 {
        self.links.connected()
    }

    fn is_open(&self, peer: Rank) -> bool {
        self.links.is_open(peer)
    }

    fn traffic(&self, peer: Rank) -> Option<Traffic> {
        self.links.traffic(peer)
    }

    fn next_down(&mut self) -> Option<(Rank, Down)> {
        self.down.pop_front()
    }

    fn next_up(&mut self) -> Option<Rank> {
        self.up.pop_front()
    }

    fn is_flushed(&self) -> bool {
        self.links.is_flushed()
    }

    #[inline]
    fn post(&mut self, peers: &[Rank], words: Range<u64>, frames: Range<u64>) {
        self.links.post(peers, words, frames);
    }

    fn flush(&mut self) {
        self.links.flush();
    }

    #[inline]
    fn advance(&mut self) -> (bool, bool) {
        let (sent, arrived) = self.links.progress();
        if self.is_broken || self.links.has_news() {
            // Failed calls are tried again.
            let _ = self.attend();
        }
        let is_up = std::mem::take(&mut self.is_up);
        (sent, arrived || is_up || !self.down.is_empty())
    }

    fn rest(&mut self, at_most: Duration) -> bool {
        let at_most = if self.is_broken { at_most.min(self.patience()) } else { at_most };
        self.links.wait(at_most)
    }

    fn finish(&mut self) {
        self.links.finish();
    }

    fn give_up(&mut self) {
        self.links.give_up();
    }
}

//! One connection of a member: what it has sent, and what it has received.
use super::Known;
use crate::region::{CopyRegion, OwnRegion};
use crate::tcp::backlog::{Backlog, Image};
use crate::tcp::error::Down;
use crate::tcp::inbox::RowInbox;
use crate::tcp::resume::Posted;
use crate::tcp::wire::{self, TURN_BYTES};
use rustix::event::epoll::EventFlags;
use spindle_core::ViewId;
use spindle_transport::Connection;
use std::io::{self, IoSlice};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct TcpLink {
    pub(super) stream: Connection,
    pub(super) copy: Arc<CopyRegion>,
    pub(super) backlog: Backlog,
    pub(super) inbox: RowInbox,
    /// Whether it waits until the system accepts more.
    pub(super) blocked: bool,
    /// Whether posts skip it: nothing can be sent, or what the peer has applied is not known yet.
    pub(super) is_mute: bool,
    /// The reason why nothing can be sent any more. Bytes from the peer are still read.
    pub(super) deaf: Option<io::Error>,
    /// The last frame of the view, once nothing more is posted, and how much of it has left.
    pub(super) turn: Option<([u8; TURN_BYTES], usize)>,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

impl TcpLink {
    /// Creates a link over which nothing has gone, for a row of so many `rings`; without a row it
    /// sends no hello.
    pub(super) fn new(stream: Connection, peer: &Known, rings: Option<usize>) -> TcpLink {
        let Known { copy, control_bytes, announcements, .. } = peer;
        let inbox = RowInbox::new(copy.size(), *control_bytes, rings);
        let applied = || announcements.iter().map(|at| copy.load(*at)).collect::<Vec<u64>>();
        let backlog = rings.map_or(Backlog::default(), |_| Backlog::greeting(&wire::hello(&applied())));
        let (blocked, is_mute, deaf, turn, sent_bytes, received_bytes) = Default::default();
        TcpLink {
            stream,
            copy: Arc::clone(copy),
            backlog,
            inbox,
            blocked,
            is_mute,
            deaf,
            turn,
            sent_bytes,
            received_bytes,
        }
    }

    /// Prepares the data that the peer lacks, if it has `applied` so much of my row. Returns the
    /// ring bytes among it.
    ///
    /// # Errors
    /// The peer can't have applied so much.
    pub(super) fn catch_up(
        &mut self,
        posted: &[Posted],
        applied: &[u64],
        row: &OwnRegion,
        image: &Image,
    ) -> Result<u64, Down> {
        let mut bytes = 0;
        for (ring, applied) in posted.iter().zip(applied) {
            for range in ring.lacking(*applied, row, image)? {
                bytes += range.end - range.start;
                self.backlog.add_range(range);
            }
        }
        self.backlog.add_control(&(0..image.bytes().len() as u64));
        self.is_mute = false;
        Ok(bytes)
    }

    pub(super) fn send(&mut self, row: &OwnRegion, image: &Image) -> io::Result<()> {
        self.sent_bytes += self.backlog.send(row, image, &mut *self.stream)?;
        if let Some((bytes, sent)) = &mut self.turn
            && self.backlog.is_empty()
            && !self.is_mute
        {
            while *sent < bytes.len() {
                match self.stream.send(&[IoSlice::new(&bytes[*sent..])]) {
                    Ok(now) => (*sent, self.sent_bytes) = (*sent + now, self.sent_bytes + now as u64),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        self.stream.send_held()
    }

    /// Returns whether there is nothing to send now.
    pub(super) fn is_sent(&self) -> bool {
        let turns = self.turn.is_some_and(|(bytes, sent)| sent < bytes.len() && !self.is_mute);
        self.deaf.is_some() || self.backlog.is_empty() && !turns && !self.stream.holds_back()
    }

    /// Returns whether both sides have said that the stream continues in `next`, and nothing of
    /// this view is in transit.
    pub(super) fn has_turned(&self, next: ViewId) -> bool {
        self.inbox.turn() == Some(next) && self.turn.is_some() && !self.is_mute && self.deaf.is_none() && self.is_sent()
    }

    /// Returns the events that the system is asked for. Bytes after a turn are not for this view,
    /// and neither is the end.
    pub(super) fn interest(&self) -> EventFlags {
        let out = if self.blocked { EventFlags::OUT } else { EventFlags::empty() };
        if self.inbox.turn().is_some() { out } else { out | EventFlags::IN }
    }

    /// Returns whether all posts were sent, or never will be.
    pub(super) fn is_flushed(&self) -> bool {
        self.is_sent() && (self.deaf.is_some() || !self.is_mute)
    }
}

//! Following a view from outside: an observer reads the rows as the members do, delivers what they deliver, and acknowledges
//! nothing. So it delays nobody, and may be *lapped*: a frame may be written over before it has read it.
//!
//! It copies each frame, and looks then whether the sender had given the space free meanwhile ([`entry::FREED`]): if not, the copy
//! is good. A learner is an observer that is let in later: it follows a view to its end, which it finds in the rows as the
//! members do, and has then delivered exactly what they have.
use crate::cursor::ROUNDS_MAX;
use crate::ids::{Rank, SubgroupId};
use crate::layout::{Layout, entry};
use crate::membership::{Decision, read_decision};
use crate::ring::{HEADER_BYTES, Header, Kind, Ring};
use crate::table::Rows;
use crate::view::{Order, View, ViewError};
use alloc::vec::Vec;

/// One view, as somebody follows it who is no member of it.
#[derive(Debug)]
pub struct Observer {
    view: View,
    layout: Layout,
    streams: Vec<Stream>,
    decision: Option<Decision>,
    /// A frame's payload.
    copy: Vec<u8>,
}

/// One subgroup.
#[derive(Debug)]
struct Stream {
    id: SubgroupId,
    order: Order,
    lanes: Vec<Lane>,
    /// Offsets of the members' `received`.
    received: Vec<(Rank, u64)>,
    round: u64,
    lane: usize,
}

/// One sender.
#[derive(Debug)]
struct Lane {
    sender: Rank,
    ring: Ring,
    entry: u64,
    position: u64,
    /// No frame from `position` on has a smaller round.
    next: u64,
    /// Rounds from this one on do not belong to the view.
    trim: u64,
}

/// An observer was too slow: what it has to read next is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "lapped in subgroup {subgroup}: what the member of rank {sender} sent from its round {round} on was overwritten before it was read"
)]
pub struct Lapped {
    /// Where.
    pub subgroup: SubgroupId,
    /// Whose messages.
    pub sender: Rank,
    /// The first round that may be missed.
    pub round: u64,
}

/// A frame as it stands in a ring.
struct Seen {
    round: u64,
    span: u64,
    /// Bytes of payload, of a message.
    len: Option<u64>,
}

impl Observer {
    /// An observer of `view`, from its present on.
    ///
    /// # Errors
    /// What [`View::check`] finds.
    pub fn new<R: Rows>(view: View, rows: &R) -> Result<Observer, ViewError> {
        let mut observer = Observer::at_start(view)?;
        for stream in &mut observer.streams {
            stream.begin(rows);
        }
        Ok(observer)
    }

    /// An observer of `view` from its beginning: of one who has followed the view before it to the end.
    ///
    /// # Errors
    /// What [`View::check`] finds.
    pub fn at_start(view: View) -> Result<Observer, ViewError> {
        let layout = Layout::new(&view)?;
        let mut observer = Observer { streams: Vec::new(), decision: None, copy: Vec::new(), view, layout };
        for (id, spec) in (0..).map(SubgroupId).zip(&observer.view.subgroups) {
            let place = |rank: Rank| observer.layout.row(rank).place(id).expect("a member has a place");
            let lanes = spec.senders.iter().map(|&sender| {
                let place = place(sender);
                let ring = place.ring.expect("a sender has a ring");
                Lane { sender, ring, entry: place.entry, position: 0, next: 0, trim: ROUNDS_MAX }
            });
            let received = spec.members.iter().map(|&rank| (rank, place(rank).entry + entry::RECEIVED));
            let (order, lanes, received) = (spec.order, lanes.collect(), received.collect());
            observer.streams.push(Stream { id, order, lanes, received, round: 0, lane: 0 });
        }
        Ok(observer)
    }

    /// The view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Where everything stands in the rows.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How the view ends, once that is decided and was seen.
    pub fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// How many places of the order of `subgroup`, which is totally ordered, lie behind the observer.
    pub fn place(&self, subgroup: SubgroupId) -> u64 {
        let stream = &self.streams[subgroup.index()];
        stream.round * stream.lanes.len() as u64 + stream.lane as u64
    }

    /// Whether the view has ended and everything that belongs to it was yielded.
    pub fn is_at_end<R: Rows>(&self, rows: &R) -> bool {
        self.decision.is_some() && self.streams.iter().all(|stream| stream.is_at_end(rows))
    }

    /// Yields, as (subgroup, sender, round, payload), what is deliverable and was not yielded: of each subgroup in its order. Whether
    /// there was any.
    ///
    /// # Errors
    /// [`Lapped`]. What comes next is unknown then: a new observer begins at the present.
    pub fn follow<R: Rows>(
        &mut self,
        rows: &R,
        mut sink: impl FnMut(SubgroupId, Rank, u64, &[u8]),
    ) -> Result<bool, Lapped> {
        let mut any = false;
        if self.decision.is_none()
            && let Some(decision) = read_decision(&self.view, &self.layout, rows)
        {
            for stream in &mut self.streams {
                for (lane, trim) in stream.lanes.iter_mut().zip(&decision.trims[stream.id.index()]) {
                    lane.trim = *trim;
                }
            }
            self.decision = Some(decision);
            any = true;
        }
        let is_over = self.decision.is_some();
        for stream in &mut self.streams {
            any |= stream.follow(rows, is_over, &mut self.copy, &mut sink)?;
        }
        Ok(any)
    }
}

impl Stream {
    /// Goes to the present: in a total order to what is stable, which nobody has delivered further than.
    fn begin<R: Rows>(&mut self, rows: &R) {
        if self.order == Order::Fifo || self.lanes.is_empty() {
            for lane in &mut self.lanes {
                lane.position = rows.load(lane.sender, lane.entry + entry::PUBLISHED);
            }
            return;
        }
        let place = self.stable(rows);
        let senders = self.lanes.len() as u64;
        (self.round, self.lane) = (place / senders, (place % senders) as usize);
        for (rank, lane) in (0..).zip(&mut self.lanes) {
            let first = self.round + u64::from(rank < self.lane);
            // What is freed while it is passed over was delivered everywhere, so it lies before `first`.
            loop {
                lane.position = lane.position.max(rows.load(lane.sender, lane.entry + entry::FREED));
                let Some(seen) = lane.look(rows) else { break };
                if lane.is_lapped(rows) {
                    continue;
                }
                if seen.round >= first {
                    break;
                }
                lane.pass(&seen);
            }
            lane.next = lane.next.max(first);
        }
    }

    fn stable<R: Rows>(&self, rows: &R) -> u64 {
        self.received.iter().map(|(rank, at)| rows.load(*rank, *at)).min().unwrap_or(0)
    }

    fn follow<R: Rows>(
        &mut self,
        rows: &R,
        is_over: bool,
        copy: &mut Vec<u8>,
        sink: &mut impl FnMut(SubgroupId, Rank, u64, &[u8]),
    ) -> Result<bool, Lapped> {
        let mut any = false;
        if self.order == Order::Fifo {
            let id = self.id;
            for lane in &mut self.lanes {
                while let Some(seen) = lane.take(id, rows, copy)? {
                    any |= seen.len.is_some();
                    if seen.len.is_some() {
                        sink(id, lane.sender, seen.round, copy);
                    }
                }
            }
            return Ok(any);
        }
        let senders = self.lanes.len() as u64;
        let end =
            self.lanes.iter().zip(0..).map(|(lane, rank)| (lane.trim * senders + rank + 1).saturating_sub(senders));
        let frontier = if is_over { end.max().unwrap_or(0) } else { self.stable(rows) };
        while self.round * senders + (self.lane as u64) < frontier {
            let (id, round) = (self.id, self.round);
            let lane = &mut self.lanes[self.lane];
            // The round is announced, or beyond the trim: a frame that is not there is a null.
            if lane.next <= round
                && round < lane.trim
                && let Some(seen) = lane.take_round(id, rows, round, copy)?
                && seen.len.is_some()
            {
                any = true;
                sink(id, lane.sender, round, copy);
            }
            self.lane += 1;
            if self.lane == self.lanes.len() {
                (self.lane, self.round) = (0, round + 1);
            }
        }
        Ok(any)
    }

    fn is_at_end<R: Rows>(&self, rows: &R) -> bool {
        match self.order {
            Order::Fifo => self.lanes.iter().all(|lane| lane.look(rows).is_none()),
            Order::Total => {
                let senders = self.lanes.len() as u64;
                let end = |(lane, rank): (&Lane, u64)| (lane.trim * senders + rank + 1).saturating_sub(senders);
                let here = self.round * senders + self.lane as u64;
                self.lanes.iter().zip(0..).map(end).all(|end| end <= here)
            }
        }
    }
}

impl Lane {
    /// The frame at the position, if one is announced that belongs to the view. Whether it still was there, `is_lapped` tells.
    fn look<R: Rows>(&self, rows: &R) -> Option<Seen> {
        if self.position >= rows.load(self.sender, self.entry + entry::PUBLISHED) {
            return None;
        }
        let at = self.ring.offset(self.position);
        let (word, round) = (rows.load(self.sender, at), rows.load(self.sender, at + 8));
        // Garbage ends the lane, as it does at the members; a frame that was overwritten looks like it.
        let header = Header::decode(word, &self.ring).filter(|_| (self.next..self.trim).contains(&round))?;
        Some(Seen { round, span: header.span, len: (header.kind == Kind::Message).then_some(header.len) })
    }

    /// Whether what was read at the position may have been written over meanwhile.
    fn is_lapped<R: Rows>(&self, rows: &R) -> bool {
        // Loads are acquiring, so this one comes after those of the frame.
        rows.load(self.sender, self.entry + entry::FREED) > self.position
    }

    fn pass(&mut self, seen: &Seen) {
        self.position = self.ring.after(self.position, seen.span);
        self.next = seen.round + 1;
    }

    /// The next frame, copied.
    fn take<R: Rows>(&mut self, id: SubgroupId, rows: &R, copy: &mut Vec<u8>) -> Result<Option<Seen>, Lapped> {
        let seen = self.look(rows);
        if let Some(len) = seen.as_ref().and_then(|seen| seen.len) {
            self.copy(rows, len, copy);
        }
        if self.is_lapped(rows) {
            return Err(Lapped { subgroup: id, sender: self.sender, round: self.next });
        }
        if let Some(seen) = &seen {
            self.pass(seen);
        }
        Ok(seen)
    }

    /// The frame of this round, copied, if there is one; passes over voids before it.
    fn take_round<R: Rows>(
        &mut self,
        id: SubgroupId,
        rows: &R,
        round: u64,
        copy: &mut Vec<u8>,
    ) -> Result<Option<Seen>, Lapped> {
        loop {
            let before = (self.position, self.next);
            match self.take(id, rows, copy)? {
                Some(seen) if seen.round < round => {}
                Some(seen) if seen.round == round => return Ok(Some(seen)),
                Some(seen) => {
                    // For later: this round is a null.
                    self.position = before.0;
                    self.next = seen.round;
                    return Ok(None);
                }
                None => return Ok(None),
            }
        }
    }

    fn copy<R: Rows>(&self, rows: &R, len: u64, copy: &mut Vec<u8>) {
        let at = self.ring.offset(self.position) + HEADER_BYTES;
        copy.clear();
        for at in (at..at + len).step_by(8) {
            copy.extend_from_slice(&rows.load(self.sender, at).to_le_bytes());
        }
        copy.truncate(len as usize);
    }
}

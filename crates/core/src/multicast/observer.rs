//! Observes a view from outside: an observer reads the rows as the members do, delivers what they
//! deliver, and acknowledges nothing. So it delays no member, and may be *lapped*: a frame may be
//! overwritten before the observer has read it. The observer then knows which rounds it has missed,
//! and continues at the present.
//!
//! It copies each frame, and then checks whether the sender has freed the space meanwhile
//! ([`entry::FREED`]). If not, the copy is good. It follows a view to its end, which it finds in
//! the rows as the members do. By then it has delivered exactly the messages that they have
//! delivered, and so it can begin the next view where they do.
use crate::ids::{MemberId, Rank, SubgroupId};
use crate::membership::{Decision, read_decision};
use crate::multicast::cursor::{ROUNDS_MAX, sequence_end};
use crate::table::Rows;
use crate::view::{Again, Order, View, ViewError};
use crate::wire::layout::{Layout, entry, membership};
use crate::wire::ring::{HEADER_BYTES, Header, Kind, Ring};
use alloc::vec::Vec;
use core::ops::Range;

/// One view, as an observer follows it: a process that is no member of the view.
#[derive(Debug)]
pub struct Observer {
    view: View,
    layout: Layout,
    streams: Vec<Stream>,
    /// The index of the stream that is being read.
    current: usize,
    decision: Option<Decision>,
    /// The payload of a frame.
    copy: Vec<u8>,
}

/// A message that was delivered. [`Observer::payload`] returns its bytes until the next message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The subgroup of the message.
    pub subgroup: SubgroupId,
    /// The rank of its sender.
    pub sender: Rank,
    /// Its round.
    pub round: u64,
}

/// The state of one subgroup.
#[derive(Debug)]
struct Stream {
    id: SubgroupId,
    order: Order,
    lanes: Vec<Lane>,
    /// Offsets of the members' `received`.
    received: Vec<(Rank, u64)>,
    round: u64,
    lane: usize,
    /// The limit up to which to read before it is computed again: a sequence number in a total
    /// order, otherwise a position in the ring of this lane.
    frontier: u64,
    /// Whether the view has ended and has not touched the subgroup. Its end comes with a later
    /// view, and is not seen here.
    goes_on: bool,
    /// The value of `known` for senders that have no lane here because their subgroup is
    /// unavailable.
    waiting: Vec<(MemberId, u64)>,
}

/// The state of one sender.
#[derive(Debug)]
struct Lane {
    sender: Rank,
    ring: Ring,
    entry: u64,
    position: u64,
    /// No frame from `position` on has a smaller round.
    next: u64,
    /// Rounds before this one were yielded in the view before.
    known: u64,
    /// Rounds from this one on are not part of the view.
    trim: u64,
}

/// The error of an observer that has to miss messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("missed in subgroup {subgroup} from round {round} of the member of rank {sender} on: {}", self.why())]
pub struct Lapped {
    /// The subgroup of the messages.
    pub subgroup: SubgroupId,
    /// The rank of their sender.
    pub sender: Rank,
    /// The first round that may be missed.
    pub round: u64,
    /// Whether only this round is missed, because its message is an object, which is not stored in
    /// the rows. The name of the object is the observer's [`payload`](Observer::payload). A caller
    /// that gets the object by this name has missed nothing.
    ///
    /// Otherwise the observer was too slow: the frames that it has to read next are overwritten.
    pub is_object: bool,
}

impl Lapped {
    fn why(&self) -> &'static str {
        match self.is_object {
            true => "a large message, which no member has any more",
            false => "it was overwritten before it was read",
        }
    }
}

/// Rounds of one sender that an observer has missed. Each was a message, a null or a void, and it
/// is unknown which.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The rank of the sender.
    pub sender: Rank,
    /// The missed rounds. The observer continues with the first round after them.
    pub rounds: Range<u64>,
}

/// A frame as stored in a ring.
struct Found {
    round: u64,
    span: u64,
    /// Bytes of the content of the frame: a message, or the name of an object.
    len: Option<u64>,
    is_object: bool,
}

impl Observer {
    /// Returns an observer of `view` that begins at the present.
    ///
    /// # Errors
    /// The error of [`View::check`].
    pub fn new<R: Rows>(view: View, rows: &R) -> Result<Observer, ViewError> {
        let mut observer = Observer::at_start(view)?;
        for stream in &mut observer.streams {
            stream.go_to_present(rows);
        }
        Ok(observer)
    }

    /// Returns an observer of the view `next`, from its beginning. Call it [at the
    /// end](Self::is_at_end) of this view.
    ///
    /// # Errors
    /// The error of [`View::check`].
    pub fn successor(&self, next: View) -> Result<Observer, ViewError> {
        let mut observer = Observer::at_start(next)?;
        for stream in observer.streams.iter_mut().filter(|stream| stream.order == Order::Fifo) {
            let Some(old) = self.view.subgroup(&observer.view.subgroups[stream.id.index()].name) else { continue };
            let old = &self.streams[old.index()];
            // In the next view, a sender first sends again everything from its trim on.
            let known = |lane: &Lane| lane.next.max(lane.known).saturating_sub(lane.trim);
            let lanes = old.lanes.iter().map(|lane| (self.view.members[lane.sender.index()], known(lane)));
            for (sender, known) in lanes.chain(old.waiting.iter().copied()).filter(|(_, known)| *known > 0) {
                match observer.view.sends_again(stream.id, sender) {
                    Some(Again::Here(sender)) => stream.lanes[sender].known = known,
                    Some(Again::Later) => stream.waiting.push((sender, known)),
                    None => {}
                }
            }
        }
        Ok(observer)
    }

    fn at_start(view: View) -> Result<Observer, ViewError> {
        let layout = Layout::new(&view)?;
        let (streams, current, decision, copy) = Default::default();
        let mut observer = Observer { streams, current, decision, copy, view, layout };
        for (id, spec) in (0..).map(SubgroupId).zip(&observer.view.subgroups) {
            let at = |rank: Rank| observer.layout.row(rank).subgroup(id).expect("a member has a place");
            let lanes = spec.senders.iter().map(|&sender| {
                let at = at(sender);
                let ring = at.ring.expect("a sender has a ring");
                Lane { sender, ring, entry: at.entry, position: 0, next: 0, known: 0, trim: ROUNDS_MAX }
            });
            let received = spec.members.iter().map(|&rank| (rank, at(rank).entry + entry::RECEIVED));
            let (order, lanes, received) = (spec.order, lanes.collect(), received.collect());
            observer.streams.push(Stream {
                id,
                order,
                lanes,
                received,
                round: 0,
                lane: 0,
                frontier: 0,
                goes_on: false,
                waiting: Vec::new(),
            });
        }
        Ok(observer)
    }

    /// The view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The layout of the rows.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The decision that ends the view, once the observer has seen it.
    pub fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// The number of sequence numbers of `subgroup`, which is totally ordered, that are behind the
    /// observer.
    pub fn sequence(&self, subgroup: SubgroupId) -> u64 {
        self.streams[subgroup.index()].sequence()
    }

    /// The rounds of `subgroup` that are behind the observer, by sender, yielded or not.
    pub fn behind(&self, subgroup: SubgroupId) -> Vec<Gap> {
        let stream = &self.streams[subgroup.index()];
        stream.rounds().zip(&stream.lanes).map(|(next, lane)| Gap { sender: lane.sender, rounds: 0..next }).collect()
    }

    /// The number of a sender's first rounds in this view that are behind the observer since the
    /// [view before](Self::successor). They were not part of that view, and are sent again.
    /// Contains only senders with such rounds, and none of a total order.
    pub fn known(&self) -> impl Iterator<Item = (SubgroupId, Rank, u64)> {
        self.streams.iter().flat_map(|stream| {
            let lanes = stream.lanes.iter().map(|lane| (lane.sender, lane.known));
            let waiting = stream.waiting.iter().filter_map(|(id, rounds)| Some((self.view.rank_of(*id)?, *rounds)));
            lanes.chain(waiting).filter(|(_, known)| *known > 0).map(|(sender, known)| (stream.id, sender, known))
        })
    }

    /// Whether the view has ended and all messages of it were yielded.
    pub fn is_at_end<R: Rows>(&self, rows: &R) -> bool {
        self.decision.is_some() && self.streams.iter().all(|stream| stream.is_at_end(rows))
    }

    /// Whether all members have finished and every message that they sent was yielded.
    pub fn is_finished<R: Rows>(&self, rows: &R) -> bool {
        // The flags refer to counters that were stored before them.
        let is_finished = |rank| rows.load(rank, membership::FINISHED) != 0;
        self.view.ranks().all(is_finished) && self.streams.iter().all(|stream| stream.is_finished(rows))
    }

    /// Returns the next message that is deliverable and was not yielded; within each subgroup, in
    /// its order. Returns `None` if none exists now, possibly because the view has ended. After a
    /// bounded number of messages of one subgroup the next subgroup has its turn.
    ///
    /// # Errors
    /// [`Lapped`], until the caller [continues](Self::go_on) at the present.
    pub fn next<R: Rows>(&mut self, rows: &R) -> Result<Option<Seen>, Lapped> {
        // Visits the stream in which it stopped once more: the other streams may have been read in
        // between.
        for _ in 0..=self.streams.len() {
            if let Some(stream) = self.streams.get_mut(self.current)
                && let Some(seen) = stream.next(rows, &mut self.copy)?
            {
                return Ok(Some(seen));
            }
            self.turn(rows);
        }
        Ok(None)
    }

    /// The bytes of the message that was [yielded](Self::next) last, or the name of the object that
    /// could not be yielded.
    pub fn payload(&self) -> &[u8] {
        &self.copy
    }

    /// Continues at the present of a subgroup in which this observer was lapped, or after an
    /// object. Returns the rounds that it has missed: in a total order they may be of all senders,
    /// otherwise of the one sender.
    pub fn go_on<R: Rows>(&mut self, lapped: &Lapped, rows: &R) -> Vec<Gap> {
        if lapped.is_object {
            return alloc::vec![Gap { sender: lapped.sender, rounds: lapped.round..lapped.round + 1 }];
        }
        let stream = &mut self.streams[lapped.subgroup.index()];
        let before: Vec<u64> = stream.rounds().collect();
        match stream.order {
            Order::Total => stream.go_to_present(rows),
            Order::Fifo => {
                let lane = stream.lanes.iter_mut().find(|lane| lane.sender == lapped.sender);
                lane.expect("a sender of the subgroup").go_to_present(rows);
            }
        }
        let after: Vec<u64> = stream.rounds().collect();
        let gaps = stream.lanes.iter().zip(before).zip(after);
        let gaps = gaps.map(|((lane, before), after)| Gap { sender: lane.sender, rounds: before..after });
        gaps.filter(|gap| !gap.rounds.is_empty()).collect()
    }

    /// Continues with the next subgroup. Before the first subgroup, checks whether the view has
    /// ended.
    fn turn<R: Rows>(&mut self, rows: &R) {
        self.current += 1;
        if self.current >= self.streams.len() {
            self.current = 0;
            self.look_for_the_end(rows);
        }
        if let Some(stream) = self.streams.get_mut(self.current) {
            stream.enter(rows, self.decision.is_some());
        }
    }

    fn look_for_the_end<R: Rows>(&mut self, rows: &R) {
        if self.decision.is_some() {
            return;
        }
        let Some(decision) = read_decision(&self.view, &self.layout, rows) else { return };
        for (stream, touched) in self.streams.iter_mut().zip(self.view.touched_by(&decision.next)) {
            stream.goes_on = !touched;
            for (lane, trim) in stream.lanes.iter_mut().zip(&decision.trims[stream.id.index()]) {
                lane.trim = *trim;
            }
        }
        self.decision = Some(decision);
    }
}

impl Stream {
    fn senders(&self) -> u64 {
        self.lanes.len() as u64
    }

    /// The number of sequence numbers of the total order behind the observer.
    fn sequence(&self) -> u64 {
        self.round * self.senders() + self.lane as u64
    }

    fn go_to(&mut self, sequence: u64) {
        let senders = self.senders();
        (self.round, self.lane) = (sequence / senders, (sequence % senders) as usize);
    }

    /// The first round, by sender, that is not behind the observer.
    fn rounds(&self) -> impl Iterator<Item = u64> {
        let (order, round, current) = (self.order, self.round, self.lane);
        self.lanes.iter().enumerate().map(move |(rank, lane)| match order {
            Order::Total => round + u64::from(rank < current),
            Order::Fifo => lane.next,
        })
    }

    /// Moves to the present: in a total order to the stable frontier, as far as these rows show it.
    fn go_to_present<R: Rows>(&mut self, rows: &R) {
        if self.order == Order::Fifo || self.lanes.is_empty() {
            self.lanes.iter_mut().for_each(|lane| lane.go_to_present(rows));
            return;
        }
        loop {
            // A view that has ended may have been read beyond that.
            self.go_to(self.delivered(rows).max(self.stable(rows)).max(self.sequence()));
            let mut is_lost = false;
            for (rank, lane) in self.lanes.iter_mut().enumerate() {
                let first = self.round + u64::from(rank < self.lane);
                // Its row may be the older one. Then frames of earlier rounds arrive later, and are
                // passed over then.
                let announced = lane.announced(rows);
                is_lost |= lane.pass_until(rows, first);
                lane.next = lane.next.max(first.min(announced));
            }
            // A frame that is freed while it is passed over was delivered by its sender before,
            // perhaps after this sequence number.
            if !is_lost || self.delivered(rows) <= self.sequence() {
                return;
            }
        }
    }

    /// The highest `delivered` of any member. Rows of other members may be older here than the row
    /// of a sender that has freed what they delivered.
    fn delivered<R: Rows>(&self, rows: &R) -> u64 {
        let delivered =
            |(rank, received): &(Rank, u64)| rows.load(*rank, received - entry::RECEIVED + entry::DELIVERED);
        self.received.iter().map(delivered).max().unwrap_or(0)
    }

    fn stable<R: Rows>(&self, rows: &R) -> u64 {
        self.received.iter().map(|(rank, at)| rows.load(*rank, *at)).min().unwrap_or(0)
    }

    /// Computes the limit up to which the stream may be read now.
    fn enter<R: Rows>(&mut self, rows: &R, is_over: bool) {
        self.frontier = match self.order {
            Order::Total if is_over && !self.goes_on => self.arrived(rows),
            Order::Total => self.stable(rows),
            Order::Fifo => {
                self.lane = 0;
                self.lanes.first().map_or(0, |lane| lane.published(rows))
            }
        };
    }

    fn next<R: Rows>(&mut self, rows: &R, copy: &mut Vec<u8>) -> Result<Option<Seen>, Lapped> {
        match self.order {
            Order::Total => self.next_in_order(rows, copy),
            Order::Fifo => self.next_of_anybody(rows, copy),
        }
    }

    fn next_of_anybody<R: Rows>(&mut self, rows: &R, copy: &mut Vec<u8>) -> Result<Option<Seen>, Lapped> {
        let subgroup = self.id;
        while let Some(lane) = self.lanes.get_mut(self.lane) {
            while lane.position < self.frontier
                && let Some(found) = lane.take(subgroup, rows, copy)?
            {
                if found.is_object && found.round >= lane.known {
                    return Err(Lapped { subgroup, sender: lane.sender, round: found.round, is_object: true });
                }
                if found.len.is_some() && found.round >= lane.known {
                    return Ok(Some(Seen { subgroup, sender: lane.sender, round: found.round }));
                }
            }
            self.lane += 1;
            self.frontier = self.lanes.get(self.lane).map_or(0, |lane| lane.published(rows));
        }
        Ok(None)
    }

    fn next_in_order<R: Rows>(&mut self, rows: &R, copy: &mut Vec<u8>) -> Result<Option<Seen>, Lapped> {
        // Consecutive lanes that had nothing in their round.
        let mut silent = 0;
        while self.sequence() < self.frontier {
            let (subgroup, round, announced) = (self.id, self.round, self.announced(self.lane));
            let lane = &mut self.lanes[self.lane];
            let found = match lane.next <= round && round < lane.trim {
                true => lane.take_round(subgroup, rows, round, announced, copy)?,
                false => None,
            };
            let sender = lane.sender;
            self.lane += 1;
            if self.lane == self.lanes.len() {
                (self.lane, self.round) = (0, round + 1);
            }
            if found.as_ref().is_some_and(|found| found.is_object) {
                return Err(Lapped { subgroup, sender, round, is_object: true });
            }
            silent = if found.is_some() { 0 } else { silent + 1 };
            if found.is_some_and(|found| found.len.is_some()) {
                return Ok(Some(Seen { subgroup, sender, round }));
            }
            if silent == self.lanes.len() {
                self.pass_silence();
                silent = 0;
            }
        }
        Ok(None)
    }

    /// Rounds of a lane before the frontier.
    fn announced(&self, lane: usize) -> u64 {
        self.frontier.saturating_sub(lane as u64).div_ceil(self.senders())
    }

    /// Moves to the first sequence number at which a sender may have a message, after a whole round
    /// of nulls. Millions of rounds may be skipped.
    fn pass_silence(&mut self) {
        let senders = self.senders();
        let next = self.lanes.iter().zip(0..).filter(|(lane, _)| lane.next < lane.trim);
        let next = next.map(|(lane, rank)| lane.next * senders + rank).min().unwrap_or(u64::MAX);
        self.go_to(next.min(self.frontier).max(self.sequence()));
    }

    /// Sequence numbers of a total order that are part of the view, once its end is known.
    fn end(&self) -> u64 {
        let ends = self.lanes.iter().enumerate().map(|(rank, lane)| sequence_end(lane.trim, rank, self.lanes.len()));
        ends.max().unwrap_or(0)
    }

    /// The frontier up to which all messages of the view have arrived, once its end is known. A
    /// process that shares memory with all members finds all of them at once. Over a network, one
    /// member may report the end before the last messages of another have arrived.
    fn arrived<R: Rows>(&self, rows: &R) -> u64 {
        let missing = self.lanes.iter().zip(0..).filter(|(lane, _)| !lane.has_all(rows));
        let missing = missing.map(|(lane, rank)| lane.announced(rows) * self.senders() + rank);
        missing.min().unwrap_or(u64::MAX).min(self.end())
    }

    fn is_at_end<R: Rows>(&self, rows: &R) -> bool {
        match self.order {
            _ if self.goes_on => true,
            Order::Fifo => self.lanes.iter().all(|lane| lane.has_all(rows) && lane.look(rows).is_none()),
            Order::Total => self.end() <= self.sequence(),
        }
    }

    fn is_finished<R: Rows>(&self, rows: &R) -> bool {
        self.lanes.iter().zip(self.rounds()).all(|(lane, next)| match self.order {
            Order::Fifo => lane.position >= lane.published(rows),
            Order::Total => next >= rows.load(lane.sender, lane.entry + entry::SPOKEN),
        })
    }
}

impl Lane {
    fn published<R: Rows>(&self, rows: &R) -> u64 {
        rows.load(self.sender, self.entry + entry::PUBLISHED)
    }

    /// The number of rounds that the sender has announced, as far as this row shows it.
    fn announced<R: Rows>(&self, rows: &R) -> u64 {
        rows.load(self.sender, self.entry + entry::ROUNDS)
    }

    /// Whether all rounds of the view have arrived, once its end is known.
    fn has_all<R: Rows>(&self, rows: &R) -> bool {
        self.announced(rows) >= self.trim
    }

    /// The frame at the position, if a frame of the view is announced there. `is_lapped` returns
    /// whether it was still there.
    fn look<R: Rows>(&self, rows: &R) -> Option<Found> {
        if self.position >= self.published(rows) {
            return None;
        }
        let at = self.ring.offset(self.position);
        let (word, round) = (rows.load(self.sender, at), rows.load(self.sender, at + 8));
        // Garbage ends the lane, as it does at the members. A frame that was overwritten looks like
        // garbage.
        let header = Header::decode(word, &self.ring).filter(|_| (self.next..self.trim).contains(&round))?;
        let is_object = header.kind == Kind::Object;
        let len = (is_object || header.kind == Kind::Message).then_some(header.len);
        Some(Found { round, span: header.span, len, is_object })
    }

    /// Whether the data read at the position may have been overwritten meanwhile.
    fn is_lapped<R: Rows>(&self, rows: &R) -> bool {
        // Loads have acquire order, so this one comes after those of the frame.
        self.freed(rows) > self.position
    }

    fn freed<R: Rows>(&self, rows: &R) -> u64 {
        rows.load(self.sender, self.entry + entry::FREED)
    }

    fn pass(&mut self, found: &Found) {
        self.position = self.ring.after(self.position, found.span);
        self.next = found.round + 1;
    }

    /// Passes over the frames stored so far whose round is before `round`. Returns whether any
    /// frames were already overwritten.
    fn pass_until<R: Rows>(&mut self, rows: &R, round: u64) -> bool {
        let published = self.published(rows);
        let mut is_lost = false;
        loop {
            let freed = self.freed(rows);
            is_lost |= freed > self.position;
            self.position = self.position.max(freed);
            if self.position >= published {
                return is_lost;
            }
            let found = self.look(rows);
            if self.is_lapped(rows) {
                continue;
            }
            match found {
                Some(found) if found.round < round => self.pass(&found),
                _ => return is_lost,
            }
        }
    }

    /// Moves to the present of a sender whose messages wait for no other sender's, and finds its
    /// next round.
    fn go_to_present<R: Rows>(&mut self, rows: &R) {
        self.pass_until(rows, ROUNDS_MAX);
        loop {
            self.position = self.position.max(self.freed(rows));
            let found = self.look(rows);
            if self.is_lapped(rows) {
                continue;
            }
            let rounds = self.announced(rows);
            match found {
                Some(found) => self.next = found.round,
                // `rounds` is announced after `published`: if that has changed meanwhile, this may
                // be beyond the position.
                None if self.published(rows) <= self.position => self.next = self.next.max(rounds),
                None if self.look(rows).is_some() => continue,
                None => {}
            }
            return;
        }
    }

    /// Takes the next frame, copied.
    fn take<R: Rows>(&mut self, id: SubgroupId, rows: &R, copy: &mut Vec<u8>) -> Result<Option<Found>, Lapped> {
        let found = self.look(rows);
        if let Some(len) = found.as_ref().and_then(|found| found.len) {
            self.copy(rows, len, copy);
        }
        if self.is_lapped(rows) {
            return Err(Lapped { subgroup: id, sender: self.sender, round: self.next, is_object: false });
        }
        if let Some(found) = &found {
            self.pass(found);
        }
        Ok(found)
    }

    /// Takes the frame of this round, copied, if it exists. Passes over frames before it. All
    /// rounds before `announced` are announced.
    fn take_round<R: Rows>(
        &mut self,
        id: SubgroupId,
        rows: &R,
        round: u64,
        announced: u64,
        copy: &mut Vec<u8>,
    ) -> Result<Option<Found>, Lapped> {
        loop {
            let position = self.position;
            match self.take(id, rows, copy)? {
                Some(found) if found.round < round => {}
                Some(found) if found.round == round => return Ok(Some(found)),
                Some(found) => {
                    // The frame is for later: this round is a null.
                    self.position = position;
                    self.next = found.round;
                    return Ok(None);
                }
                None => {
                    // So are all rounds that are announced.
                    self.next = self.next.max(announced);
                    return Ok(None);
                }
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

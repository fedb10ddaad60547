//! Observes a view from outside: an observer reads the rows as the members do, delivers what they
//! deliver, and acknowledges nothing. So it delays no member, and may be *lapped*: a frame may be
//! overwritten before the observer has read it. The observer then knows which rounds it has missed,
//! and continues at the present.
//!
//! It copies each frame, and then checks whether the sender has freed the space meanwhile
//! ([`entry::FREED`]). If not, the copy is good. It follows a view to its end, which it finds in
//! the rows as the members do. By then it has delivered exactly the messages that they have
//! delivered, and so it can begin the next view where they do.
mod lane;
mod stream;

use crate::ids::{Rank, SubgroupId};
use crate::membership::{Decision, read_decision};
use crate::multicast::cursor::ROUNDS_MAX;
use crate::table::Rows;
use crate::view::{Again, Order, View, ViewError};
use crate::wire::layout::{Layout, entry, membership};
use alloc::vec::Vec;
use core::ops::Range;
use lane::Lane;
use stream::Stream;

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
            let (delivers_durable, lacks_copies) = (spec.durability.delivers_durable(), spec.lacks_copies());
            observer.streams.push(Stream {
                id,
                order,
                lanes,
                received,
                delivers_durable,
                lacks_copies,
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

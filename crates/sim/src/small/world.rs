//! The events, and their times.
use super::bench::{SmallBench, SmallTiming};
use super::memory::SmallMemory;
use crate::Violation;
use crate::checkers::Checked;
use crate::checkers::Invariant;
use crate::checkers::total_order::TotalOrder;
use spindle_core::wire::ring::{HEADER_BYTES, Kind};
use spindle_core::{Claims, Engine, Exclusive, Layout, Rank, SubgroupId, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// If there are many latencies, one in so many is kept.
const KEPT_ONE_IN: u64 = 13;
/// The number of messages that are sent one at a time before the measurement, and again during it.
const LONE_MESSAGES: u64 = 10;
/// If only one message is in flight at a time: the time from its last delivery to the next send.
const GAP_NS: u64 = 1_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum SmallEvent {
    /// The processor of a member is free, and work may exist.
    Poll(usize),
    /// The last byte of the oldest batch has left the NIC.
    Left { from: usize, to: usize },
    /// The last byte of the oldest batch that has left would arrive now, without other traffic.
    Reached { from: usize, to: usize },
    /// The batch has arrived.
    Landed { from: usize, to: usize },
    /// The only sender may send the next message.
    Send,
}

/// The data that goes to a peer at once.
#[derive(Clone, Debug, Default)]
struct SmallBatch {
    bytes: u64,
    /// Control words: the offset and the value of each.
    words: Vec<(u64, u64)>,
}

/// A link from one member to another.
#[derive(Debug, Default)]
struct SmallLink {
    /// Frames that are to be sent, and the span of control words.
    ranges: Vec<Range<u64>>,
    span: Option<Range<u64>>,
    /// Bytes that were handed to the NIC and are unsent.
    unsent_bytes: u64,
    /// Batches in flight, in order: in the NIC, on the wire, and landed but not yet read.
    batches: VecDeque<SmallBatch>,
    /// The number of batches that have left the NIC; how many of these have landed; and how many
    /// are arriving at the peer.
    left: usize,
    landed: usize,
    coming: usize,
}

struct SmallMember {
    engine: Engine,
    /// Its ring, if it sends.
    sending: Option<(Arc<Claims>, Exclusive)>,
    /// Messages that it may still build; 0 if messages are sent one at a time.
    left: u64,
    scheduled: bool,
    busy_until: u64,
    /// The time that it was busy during the measurement.
    busy_ns: u64,
    /// By sender: messages delivered.
    delivered: Vec<u64>,
    total: u64,
}

pub(super) struct SmallWorld<'a> {
    bench: &'a SmallBench,
    lone: bool,
    /// The messages that every member must deliver before the measurement, and again during it.
    goal: u64,
    /// The time at which the measurement began.
    begun: Option<u64>,
    memory: SmallMemory,
    members: Vec<SmallMember>,
    /// By sender and receiver.
    links: Vec<Vec<SmallLink>>,
    /// By host: the times at which its NIC is free to send and to receive.
    sending: Vec<u64>,
    receiving: Vec<u64>,
    /// By host: the time that its NIC has sent during the measurement.
    sent_ns: Vec<u64>,
    now: u64,
    heap: BinaryHeap<Reverse<(u64, u64, SmallEvent)>>,
    pushed: u64,
    order: TotalOrder,
    /// By sender: the times at which its messages were committed.
    committed: Vec<Vec<u64>>,
    /// Deliveries of the only message in flight.
    confirmed: u32,
    latencies: Vec<u64>,
    counted: u64,
    calls: u64,
    batches: u64,
}

impl<'a> SmallWorld<'a> {
    /// `lone` means one message at a time.
    pub(super) fn new(bench: &'a SmallBench, lone: bool) -> SmallWorld<'a> {
        let view = bench.view();
        let layout = Layout::new(&view).expect("a bench within the limits");
        let count = bench.members as usize;
        let member = |rank: Rank| {
            let engine = Engine::new(view.clone(), rank, bench.ablation).expect("a bench within the limits");
            let claims = engine.claims(SUBGROUP);
            let sending = claims.map(|claims| {
                let exclusive = claims.begin_exclusive();
                (claims, exclusive)
            });
            SmallMember {
                engine,
                sending,
                left: if lone { 0 } else { u64::MAX },
                scheduled: false,
                busy_until: 0,
                busy_ns: 0,
                delivered: vec![0; count],
                total: 0,
            }
        };
        SmallWorld {
            bench,
            lone,
            goal: if lone { LONE_MESSAGES } else { bench.laps * bench.window * u64::from(bench.senders) },
            begun: None,
            memory: SmallMemory::new(&layout, bench.size),
            members: view.ranks().map(member).collect(),
            links: (0..count).map(|_| (0..count).map(|_| SmallLink::default()).collect()).collect(),
            sending: vec![0; count],
            receiving: vec![0; count],
            sent_ns: vec![0; count],
            now: 0,
            heap: BinaryHeap::new(),
            pushed: 0,
            order: TotalOrder::new(1, count),
            committed: vec![vec![]; count],
            confirmed: 0,
            latencies: vec![],
            counted: 0,
            calls: 0,
            batches: 0,
        }
    }

    /// Runs until the measurement is complete.
    pub(super) fn run(mut self) -> Result<SmallTiming, Violation> {
        for member in 0..self.members.len() {
            self.wake(member);
        }
        if self.lone {
            self.push(GAP_NS, SmallEvent::Send);
        }
        while let Some(Reverse((at, _, event))) = self.heap.pop() {
            self.now = at;
            match event {
                SmallEvent::Poll(_) if self.is_done() => return Ok(self.timing()),
                SmallEvent::Poll(member) => self.poll(member).map_err(|violation| Violation { at, ..violation })?,
                SmallEvent::Left { from, to } => self.left(from, to),
                SmallEvent::Reached { from, to } => self.reached(from, to),
                SmallEvent::Landed { from, to } => {
                    self.links[from][to].landed += 1;
                    self.links[from][to].coming -= 1;
                    self.wake(to);
                }
                SmallEvent::Send => {
                    self.members[0].left = 1;
                    self.wake(0);
                }
            }
        }
        let (now, least) = (self.now, self.least());
        let broken =
            LIVENESS.broken(format!("nothing happens any more, and a member has delivered only {least} messages"));
        broken.map_err(|violation| Violation { at: now, ..violation })
    }

    /// Returns the smallest number of messages that a member has delivered.
    fn least(&self) -> u64 {
        self.members.iter().map(|member| member.total).min().unwrap_or(0)
    }

    /// Returns true if the measurement is complete. It also starts the measurement at the right
    /// time.
    fn is_done(&mut self) -> bool {
        let least = self.least();
        if least >= self.goal && self.begun.is_none() {
            self.begun = Some(self.now);
        }
        least >= 2 * self.goal
    }

    fn timing(mut self) -> SmallTiming {
        self.latencies.sort_unstable();
        let seconds = (self.now - self.begun.unwrap_or(0)).max(1) as f64 / 1e9;
        let members = self.members.len() as f64;
        let messages = self.counted as f64 / members;
        let busiest = |ns: &mut dyn Iterator<Item = u64>| (ns.max().unwrap_or(0) as f64 / 1e9 / seconds).min(1.0);
        SmallTiming {
            messages_per_second: messages / seconds,
            latency_ns: self.latencies.get(self.latencies.len() / 2).copied().unwrap_or(0),
            latency_max_ns: self.latencies.last().copied().unwrap_or(0),
            link_use: busiest(&mut self.sent_ns.iter().copied()),
            processor_use: busiest(&mut self.members.iter().map(|member| member.busy_ns)),
            batches_per_message: self.batches as f64 / messages.max(1.0),
            messages_per_delivery: self.counted as f64 / self.calls.max(1) as f64,
        }
    }

    fn is_counted(&self) -> bool {
        self.begun.is_some()
    }

    fn push(&mut self, at: u64, event: SmallEvent) {
        self.pushed += 1;
        self.heap.push(Reverse((at, self.pushed, event)));
    }

    /// Schedules a poll of a member, because data has arrived for it or its NIC has room.
    fn wake(&mut self, member: usize) {
        let SmallMember { scheduled, busy_until, .. } = &mut self.members[member];
        if !std::mem::replace(scheduled, true) {
            let at = self.now.max(*busy_until);
            self.push(at, SmallEvent::Poll(member));
        }
    }

    /// Runs one turn of a member's thread.
    fn poll(&mut self, me: usize) -> Checked {
        let costs = &self.bench.costs;
        self.members[me].scheduled = false;
        let mut took = costs.poll_ns + costs.look_ns * self.members.len() as u64;
        took += self.take_in(me);
        let built = self.build(me, took);
        took += built * costs.build_ns;

        let memory = &self.memory;
        let mut desk = memory.desk(Rank(me as u32));
        let mut messages: Vec<(Rank, u64)> = vec![];
        let mut calls = 0;
        let engine = &mut self.members[me].engine;
        let progress =
            engine.poll(Time(self.now), &mut desk, &mut |_: SubgroupId, batch: &mut spindle_core::Batch<'_, _>| {
                calls += 1;
                batch.for_each(|message| messages.push((message.sender, message.round)));
            });
        let posts = desk.posts;
        took += messages.len() as u64 * costs.deliver_ns;
        self.calls += u64::from(self.is_counted()) * calls;
        for (sender, round) in messages {
            self.deliver(me, sender, round, self.now + took)?;
        }
        for (peers, range) in posts {
            (0..self.members.len())
                .filter(|peer| peers >> peer & 1 == 1)
                .for_each(|to| self.links[me][to].add(&self.memory, me, &range));
        }
        for to in 0..self.members.len() {
            took += self.hand_over(me, to, self.now + took);
        }

        let member = &mut self.members[me];
        member.busy_until = self.now + took;
        let counted = self.begun.is_some() && (progress.worked || built > 0);
        member.busy_ns += u64::from(counted) * took;
        // Only the membership asks for a poll at some later time, and the membership has nothing to
        // do here.
        let again = built > 0 || progress.has_more(Time(self.now));
        if again {
            self.wake(me);
        }
        Ok(())
    }

    /// Reads the data that has landed, and returns how long that takes.
    fn take_in(&mut self, me: usize) -> u64 {
        let (costs, mut took) = (&self.bench.costs, 0);
        for from in 0..self.members.len() {
            let link = &mut self.links[from][me];
            if link.landed == 0 {
                continue;
            }
            took += costs.read_ns;
            for batch in link.batches.drain(..link.landed) {
                took += costs.copy_ns(batch.bytes);
                for (at, value) in batch.words {
                    self.memory.land(Rank(me as u32), Rank(from as u32), at, value);
                }
            }
            link.left -= link.landed;
            link.landed = 0;
        }
        took
    }

    /// Builds messages, and returns how many.
    fn build(&mut self, me: usize, after: u64) -> u64 {
        let (costs, size) = (&self.bench.costs, self.bench.size);
        let member = &mut self.members[me];
        let Some((claims, exclusive)) = &mut member.sending else { return 0 };
        let mut built = 0;
        while built < self.bench.burst.min(member.left) {
            let Ok(claim) = claims.claim_exclusive(exclusive, size, |_| {}) else { break };
            let (ring, round) = (*claims.ring(), claims.guess_round(exclusive));
            let own = |at: u64, value: u64| self.memory.own(Rank(me as u32), at).set(value);
            own(claim.payload_offset(&ring) - HEADER_BYTES + 8, round);
            claims.commit_exclusive(exclusive, claim, Kind::Message, size, |position, header| {
                own(ring.offset(position), header)
            });
            built += 1;
            self.committed[me].push(self.now + after + built * costs.build_ns);
        }
        if member.left != u64::MAX {
            member.left -= built;
        }
        built
    }

    fn deliver(&mut self, me: usize, sender: Rank, round: u64, at: u64) -> Checked {
        self.order.delivered(SUBGROUP, Rank(me as u32), sender, round, 0)?;
        let member = &mut self.members[me];
        let number = member.delivered[sender.index()];
        member.delivered[sender.index()] += 1;
        member.total += 1;
        if self.is_counted() {
            self.counted += 1;
            if me != sender.index() && (self.lone || number.is_multiple_of(KEPT_ONE_IN)) {
                self.latencies.push(at - self.committed[sender.index()][number as usize]);
            }
        }
        if self.lone {
            self.confirmed += 1;
            if self.confirmed == self.bench.members {
                self.confirmed = 0;
                self.push(at + GAP_NS, SmallEvent::Send);
            }
        }
        Ok(())
    }

    /// Hands the data for a peer to the NIC, if the NIC takes it, and returns how long that takes.
    fn hand_over(&mut self, me: usize, to: usize, at: u64) -> u64 {
        let costs = &self.bench.costs;
        let link = &mut self.links[me][to];
        if link.unsent_bytes >= costs.buffer_bytes || (link.ranges.is_empty() && link.span.is_none()) {
            return 0;
        }
        let ranges = link.ranges.len() as u64 + u64::from(link.span.is_some());
        let span = link.span.take().unwrap_or(0..0);
        let frames: u64 = link.ranges.drain(..).map(|range| range.end - range.start).sum();
        let words = span.clone().step_by(8).map(|at| (at, self.memory.own(Rank(me as u32), at).get()));
        let bytes = frames + (span.end - span.start) + ranges * costs.range_bytes;
        link.batches.push_back(SmallBatch { bytes, words: words.collect() });
        link.unsent_bytes += bytes;
        let took = costs.write_ns + ranges * costs.range_ns + costs.copy_ns(bytes);
        let begins = (at + took).max(self.sending[me]);
        self.sending[me] = begins + costs.link_ns(bytes);
        if self.is_counted() {
            self.sent_ns[me] += costs.link_ns(bytes);
            self.batches += 1;
        }
        self.push(self.sending[me], SmallEvent::Left { from: me, to });
        took
    }

    fn left(&mut self, from: usize, to: usize) {
        let link = &mut self.links[from][to];
        link.unsent_bytes -= link.batches[link.left].bytes;
        link.left += 1;
        let waits = !link.ranges.is_empty() || link.span.is_some();
        self.push(self.now + self.bench.costs.latency_ns, SmallEvent::Reached { from, to });
        if waits {
            self.wake(from);
        }
    }

    fn reached(&mut self, from: usize, to: usize) {
        let link = &mut self.links[from][to];
        let bytes = link.batches[link.landed + link.coming].bytes;
        link.coming += 1;
        let free = &mut self.receiving[to];
        // The NIC forwards data as it arrives, so a free NIC costs no time.
        *free = self.now.max(*free + self.bench.costs.link_ns(bytes));
        let at = *free;
        self.push(at, SmallEvent::Landed { from, to });
    }
}

impl SmallLink {
    /// Adds a posted range of `owner`'s row.
    fn add(&mut self, memory: &SmallMemory, owner: usize, range: &Range<u64>) {
        if memory.is_control(Rank(owner as u32), range) {
            let span = self.span.take().unwrap_or(range.clone());
            self.span = Some(span.start.min(range.start)..span.end.max(range.end));
            return;
        }
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.ranges.push(range.clone()),
        }
    }
}

/// The same invariant as in [`liveness`](crate::checkers::liveness).
const LIVENESS: Invariant = Invariant(15, "liveness");
/// The only subgroup.
const SUBGROUP: SubgroupId = SubgroupId(0);

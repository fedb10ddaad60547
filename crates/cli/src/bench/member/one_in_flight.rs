//! A member that sends when it is its turn, one message at a time in the whole group, and measures
//! the latency of the others' messages.
use super::super::wire::{BenchSetup, EngineCounts, Ran};
use super::{GATHER, Worker, drain, histogram, name};
use crate::clock::now_ns;
use anyhow::bail;
use hdrhistogram::Histogram;
use spindle::{Batch, Node, Poll, Publisher, SubgroupId};
use std::time::Instant;

/// Polls between two readings of the clock.
const LOOK: u32 = 64;
/// Bytes of the time at the start of a message.
const STAMP: usize = 8;

/// Writes the time into `payload`. The caller does this just before the commit.
#[inline]
pub(super) fn stamp(payload: &mut [u8]) {
    payload[STAMP..].fill(0x5a);
    payload[..STAMP].copy_from_slice(&now_ns().to_le_bytes());
}

/// Reads messages that carry a [`stamp`].
#[derive(Debug)]
pub(super) struct Stopwatch {
    rank: u32,
    /// Messages read, including this member's own.
    seen: u64,
    /// Round and sender of the newest message.
    newest: Option<(u64, u32)>,
}

impl Stopwatch {
    pub(super) fn new(rank: u32) -> Stopwatch {
        Stopwatch { rank, seen: 0, newest: None }
    }

    /// Takes the messages of an upcall that began at `now`. Reports each message's latency, and
    /// whether it is this member's own.
    #[inline]
    pub(super) fn see(&mut self, now: u64, batch: &mut Batch<'_>, mut took: impl FnMut(u64, bool)) {
        for message in batch {
            self.seen += 1;
            self.newest = Some((message.round, message.sender.0));
            if let Some((stamp, _)) = message.payload.split_first_chunk::<STAMP>() {
                took(now.saturating_sub(u64::from_le_bytes(*stamp)), message.sender.0 == self.rank);
            }
        }
    }
}

/// A member with one message in flight.
#[derive(Debug)]
pub(super) struct OneInFlight {
    node: Node,
    publisher: Option<Publisher>,
    stopwatch: Stopwatch,
    histogram: Histogram<u64>,
    own: Histogram<u64>,
    rank: u32,
    senders: u64,
    size: u64,
    in_flight: bool,
}

impl OneInFlight {
    pub(super) fn new(mut node: Node, setup: &BenchSetup) -> anyhow::Result<OneInFlight> {
        let sends = setup.rank < setup.plan.senders;
        Ok(OneInFlight {
            publisher: if sends { Some(node.publisher(&name(0))?) } else { None },
            node,
            stopwatch: Stopwatch::new(setup.rank),
            histogram: histogram(),
            own: histogram(),
            rank: setup.rank,
            senders: u64::from(setup.plan.senders),
            size: setup.plan.size,
            in_flight: false,
        })
    }

    fn poll(&mut self, begin_ns: u64) -> anyhow::Result<Poll> {
        let OneInFlight { node, stopwatch, histogram, own, .. } = self;
        let before = stopwatch.seen;
        let mut handler = |_: SubgroupId, batch: &mut Batch<'_>| {
            let now = now_ns();
            stopwatch.see(now, batch, |took, is_own| {
                // A message sent before this slice has waited for the slice to begin.
                if now - took >= begin_ns {
                    let histogram = if is_own { &mut *own } else { &mut *histogram };
                    histogram.saturating_record(took);
                }
            });
        };
        let poll = node.poll(&mut handler)?;
        self.in_flight &= self.stopwatch.seen == before;
        Ok(poll)
    }

    /// Returns true if it is this member's turn and every member has delivered the previous
    /// message.
    fn may_send(&self) -> bool {
        if self.publisher.is_none() || self.in_flight || self.stopwatch.seen % self.senders != u64::from(self.rank) {
            return false;
        }
        let Some((round, sender)) = self.stopwatch.newest else { return true };
        let place = round * self.senders + u64::from(sender) + 1;
        self.node.frontiers(SubgroupId(0)).all(|(_, frontier)| frontier.delivered >= place)
    }
}

impl Worker for OneInFlight {
    fn run(&mut self, begin_ns: u64, end_ns: u64) -> anyhow::Result<Ran> {
        loop {
            for _ in 0..LOOK {
                if self.may_send()
                    && let Some(publisher) = &mut self.publisher
                    && let Some(mut frame) = publisher.try_claim(self.size)?
                {
                    stamp(&mut frame);
                    frame.commit();
                    self.in_flight = true;
                }
                self.poll(begin_ns)?;
            }
            if now_ns() >= end_ns {
                let (latencies, own_latencies) = (drain(&mut self.histogram), drain(&mut self.own));
                return Ok(Ran { elapsed_ns: end_ns - begin_ns, latencies, own_latencies, ..Ran::default() });
            }
        }
    }

    fn counts(&self) -> EngineCounts {
        EngineCounts::of(&self.node.status())
    }

    fn rest(&mut self) -> anyhow::Result<bool> {
        self.poll(0)?;
        Ok(true)
    }

    fn finish(mut self: Box<Self>) -> anyhow::Result<EngineCounts> {
        self.publisher = None;
        let until = Instant::now() + GATHER;
        while self.poll(u64::MAX)? != Poll::Finished {
            if Instant::now() > until {
                bail!("the group did not finish within {GATHER:?}");
            }
        }
        Ok(self.counts())
    }
}

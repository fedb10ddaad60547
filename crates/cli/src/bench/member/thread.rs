//! A member that sends on this thread while the library's thread polls its node.
use super::super::args::DeliveryArg;
use super::super::clock::sleep_until;
use super::super::wire::{BenchPlan, BenchSetup, EngineCounts, Ran, SliceJob};
use super::one_in_flight::{Stopwatch, stamp};
use super::read::PayloadReader;
use super::{GATHER, Worker, drain, first_number, name, publishers};
use crate::clock::now_ns;
use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use spindle::{Group, Node, Publisher, ReceiveError, Receiver, SendError, SubgroupId};
use spindle_fabric::probe::{fill, seed};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A wait for room that lasts this long is a stall.
const STALL: Duration = Duration::from_millis(100);
/// Longest single wait of a receiver.
const RECEIVE: Duration = Duration::from_secs(1);

/// A member with a polling thread of the library.
#[derive(Debug)]
pub(super) struct Threaded {
    group: Option<Group>,
    publishers: Vec<Publisher>,
    /// Number of the next message, by subgroup.
    numbers: Vec<u64>,
    readers: Vec<JoinHandle<Result<(), ReceiveError>>>,
    wrong: Vec<Arc<AtomicU64>>,
    /// Latencies of messages from others, and of this member's own messages, if the job measures
    /// them.
    latencies: Option<Arc<Mutex<[Histogram<u64>; 2]>>>,
    rank: u32,
    plan: BenchPlan,
}

impl Threaded {
    pub(super) fn new(mut node: Node, setup: &BenchSetup) -> anyhow::Result<Threaded> {
        let plan = setup.plan;
        let publishers = publishers(&mut node, setup)?;
        let reader = || PayloadReader::new(setup.rank, setup.members, plan.subgroups, plan.size);
        let mut wrong = Vec::new();
        let mut readers = Vec::new();
        if plan.delivery == DeliveryArg::Receiver && plan.job == SliceJob::Stream {
            for i in 0..plan.active {
                let (receiver, reader) = (node.receiver(&name(i))?, reader());
                wrong.push(Arc::clone(reader.wrong()));
                readers.push(thread::Builder::new().spawn(move || read_all(SubgroupId(i), receiver, reader))?);
            }
        }
        let mut latencies = None;
        let group = match plan.job {
            SliceJob::Stream => {
                let reader = reader();
                wrong.push(Arc::clone(reader.wrong()));
                node.start(reader)?
            }
            _ => {
                let mut stopwatch = Stopwatch::new(setup.rank);
                let shared = latencies.insert(Arc::new(Mutex::new([super::histogram(), super::histogram()])));
                let shared = Arc::clone(shared);
                node.start(move |_, batch: &mut spindle::Batch<'_>| {
                    let now = now_ns();
                    stopwatch.see(now, batch, |took, is_own| {
                        let mut histograms = shared.lock().unwrap_or_else(PoisonError::into_inner);
                        histograms[usize::from(is_own)].saturating_record(took);
                    });
                })?
            }
        };
        let numbers = (0..publishers.len()).map(|i| first_number(i, setup.rank)).collect();
        let (rank, group) = (setup.rank, Some(group));
        Ok(Threaded { group, publishers, numbers, readers, wrong, latencies, rank, plan })
    }

    fn delivered(&self) -> (u64, u64) {
        let delivered = self.counts().delivered;
        (now_ns(), delivered)
    }

    /// Sends as many messages as there is room for. Returns the moment after `begin_ns` with the
    /// count delivered by then, and the stalls.
    fn stream(&mut self, begin_ns: u64, end_ns: u64) -> anyhow::Result<((u64, u64), u64)> {
        let mut stalls = 0;
        let mut begin = None;
        loop {
            for (publisher, number) in self.publishers.iter_mut().zip(&mut self.numbers) {
                for _ in 0..self.plan.burst {
                    match publisher.claim(self.plan.size, STALL) {
                        Ok(mut frame) => {
                            fill(&mut frame, seed(*number));
                            frame.commit();
                            *number += 1;
                        }
                        Err(SendError::Full { .. }) => stalls += 1,
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            let now = now_ns();
            if begin.is_none() && now >= begin_ns {
                begin = Some(self.delivered());
            }
            if now >= end_ns {
                return Ok((begin.unwrap_or_else(|| self.delivered()), stalls));
            }
        }
    }

    /// Sends one message in each of this member's turns. It sleeps in those of others: hundreds of
    /// threads that wake up at the same time would delay the message that is measured.
    fn pulse(&mut self, begin_ns: u64, end_ns: u64, every: Duration) -> anyhow::Result<()> {
        if self.rank < self.plan.senders {
            let turns = (u64::from(self.rank)..).step_by(self.plan.senders as usize);
            let starts = turns.map(|turn| begin_ns + turn * every.as_nanos() as u64);
            for at in starts.take_while(|at| *at < end_ns) {
                sleep_until(at);
                let publisher = self.publishers.first_mut().context("this member sends")?;
                let mut frame = publisher.claim(self.plan.size, STALL)?;
                stamp(&mut frame);
                frame.commit();
            }
        }
        sleep_until(end_ns);
        Ok(())
    }
}

fn read_all(subgroup: SubgroupId, mut receiver: Receiver, mut reader: PayloadReader) -> Result<(), ReceiveError> {
    loop {
        match receiver.receive(RECEIVE) {
            Ok(deliveries) => {
                let mut reading = reader.of(subgroup);
                deliveries.for_each(|message| reading.take(message));
            }
            Err(ReceiveError::TimedOut { .. }) => {}
            Err(ReceiveError::Finished) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

impl Worker for Threaded {
    fn run(&mut self, begin_ns: u64, end_ns: u64) -> anyhow::Result<Ran> {
        if let SliceJob::Pulse { every_us } = self.plan.job {
            self.pulse(begin_ns, end_ns, Duration::from_micros(every_us))?;
            let measured = self.latencies.as_ref().context("this job measures latencies")?;
            let [latencies, own_latencies] =
                measured.lock().unwrap_or_else(PoisonError::into_inner).each_mut().map(drain);
            return Ok(Ran { elapsed_ns: end_ns - begin_ns, latencies, own_latencies, ..Ran::default() });
        }
        let ((began, before), stalls) = if self.publishers.is_empty() {
            sleep_until(begin_ns);
            let begin = self.delivered();
            sleep_until(end_ns);
            (begin, 0)
        } else {
            self.stream(begin_ns, end_ns)?
        };
        let (now, delivered) = self.delivered();
        Ok(Ran { delivered: delivered - before, elapsed_ns: now - began, stalls, ..Ran::default() })
    }

    fn counts(&self) -> EngineCounts {
        self.group.as_ref().map(|group| EngineCounts::of(&group.status())).unwrap_or_default()
    }

    fn finish(mut self: Box<Self>) -> anyhow::Result<EngineCounts> {
        self.publishers.clear();
        let group = self.group.take().context("a member finishes once")?;
        let status = group.finish(GATHER)?;
        for reader in self.readers.drain(..) {
            // The reader ends with the group, which has ended.
            reader.join().ok().context("a reader panicked")??;
        }
        let wrong = self.wrong.iter().any(|wrong| wrong.load(Ordering::Relaxed) != 0);
        ensure!(!wrong, "a message was not what its sender wrote");
        Ok(EngineCounts::of(&status))
    }
}

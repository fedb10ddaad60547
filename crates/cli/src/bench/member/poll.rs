//! A member with one thread: it claims a few messages, polls, and repeats.
use super::super::args::DeliveryArg;
use super::super::wire::{BenchSetup, EngineCounts, Ran};
use super::read::PayloadReader;
use super::{GATHER, Worker, first_number, name, publishers};
use crate::clock::now_ns;
use anyhow::{bail, ensure};
use spindle::{Node, Poll, Publisher, ReceiveError, Receiver, SubgroupId};
use spindle_fabric::probe::{fill, seed};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

/// Polls between two readings of the clock.
const LOOK: u32 = 32;

/// A member that polls on its only thread.
#[derive(Debug)]
pub(super) struct Polling {
    node: Node,
    reader: PayloadReader,
    sending: Vec<SubgroupSending>,
    receivers: Vec<(SubgroupId, Receiver)>,
    size: u64,
    burst: u64,
    /// True if other members may need this core, because this member shares it.
    crowded: bool,
}

#[derive(Debug)]
struct SubgroupSending {
    publisher: Publisher,
    /// Number of the next message.
    number: u64,
}

impl Polling {
    pub(super) fn new(mut node: Node, setup: &BenchSetup) -> anyhow::Result<Polling> {
        let plan = setup.plan;
        let publishers = publishers(&mut node, setup)?;
        let sending = publishers.into_iter().enumerate().map(|(i, publisher)| {
            let number = first_number(i, setup.rank);
            SubgroupSending { publisher, number }
        });
        let mut receivers = Vec::new();
        if plan.delivery == DeliveryArg::Receiver {
            for i in 0..plan.active {
                receivers.push((SubgroupId(i), node.receiver(&name(i))?));
            }
        }
        Ok(Polling {
            reader: PayloadReader::new(setup.rank, setup.members, plan.subgroups, plan.size),
            sending: sending.collect(),
            receivers,
            node,
            size: plan.size,
            burst: plan.burst,
            crowded: setup.core.is_none(),
        })
    }

    /// Claims messages and polls once.
    #[inline]
    fn turn(&mut self) -> anyhow::Result<Poll> {
        for SubgroupSending { publisher, number } in &mut self.sending {
            for _ in 0..self.burst {
                let Some(mut frame) = publisher.try_claim(self.size)? else { break };
                fill(&mut frame, seed(*number));
                frame.commit();
                *number += 1;
            }
        }
        let poll = self.node.poll(&mut self.reader)?;
        for (subgroup, receiver) in &mut self.receivers {
            match receiver.try_receive() {
                Ok(Some(deliveries)) => {
                    let mut reading = self.reader.of(*subgroup);
                    deliveries.for_each(|message| reading.take(message));
                }
                Ok(None) | Err(ReceiveError::Finished) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if self.crowded && poll == Poll::Idle {
            thread::yield_now();
        }
        Ok(poll)
    }
}

impl Worker for Polling {
    fn run(&mut self, begin_ns: u64, end_ns: u64) -> anyhow::Result<Ran> {
        let mut begin = None;
        loop {
            for _ in 0..LOOK {
                self.turn()?;
            }
            let now = now_ns();
            if begin.is_none() && now >= begin_ns {
                begin = Some((now, self.counts().delivered));
            }
            if now >= end_ns {
                let (began, before) = begin.unwrap_or((now, self.counts().delivered));
                let delivered = self.counts().delivered - before;
                return Ok(Ran { delivered, elapsed_ns: now - began, ..Ran::default() });
            }
        }
    }

    fn counts(&self) -> EngineCounts {
        EngineCounts::of(&self.node.status())
    }

    fn rest(&mut self) -> anyhow::Result<bool> {
        self.node.poll(&mut self.reader)?;
        Ok(true)
    }

    fn finish(mut self: Box<Self>) -> anyhow::Result<EngineCounts> {
        self.sending.clear();
        let until = Instant::now() + GATHER;
        while self.turn()? != Poll::Finished {
            if Instant::now() > until {
                bail!("the group did not finish within {GATHER:?}");
            }
        }
        ensure!(self.reader.wrong().load(Ordering::Relaxed) == 0, "a message was not what its sender wrote");
        Ok(self.counts())
    }
}

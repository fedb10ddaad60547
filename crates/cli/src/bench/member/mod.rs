//! A member process: it joins, works in slices on the orders of the benchmark, and leaves.
mod one_in_flight;
mod poll;
mod read;
mod thread;

use super::args::{Drive, WaitArg};
use super::clock::Usage;
use super::wire::{BenchOrder, BenchReply, BenchSetup, EngineCounts, MemberNetwork, Ran, SliceJob};
use crate::clock::now_ns;
use crate::parent;
use anyhow::Context;
use hdrhistogram::Histogram;
use rustix::event::{self, PollFd, PollFlags, Timespec};
use rustix::thread::{CpuSet, sched_setaffinity};
use spindle::{Config, Durability, MemberId, Network, Node, OfiOptions, Security, Subgroup, Transport, Who};
use std::io::{self, BufRead, Write};
use std::time::Duration;

/// How long to wait for the other members to join, and to finish.
/// The length at which the logs of a benchmark are pruned.
const LOG_BYTES_MAX: u64 = 256 << 20;
const GATHER: Duration = Duration::from_secs(60);
/// The time between two polls of a member without a polling thread while others still join.
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// The part of a member that does the work of a slice.
trait Worker {
    /// Works until `end_ns` and counts from `begin_ns`. The caller adds usage and counts.
    fn run(&mut self, begin_ns: u64, end_ns: u64) -> anyhow::Result<Ran>;

    /// Returns the counts since the start.
    fn counts(&self) -> EngineCounts;

    /// Takes part in the group for a moment without sending. Returns false if a thread of the
    /// library does that.
    fn rest(&mut self) -> anyhow::Result<bool> {
        Ok(false)
    }

    /// Leaves in agreement with the others. It fails if any message that was read differs from the
    /// one written.
    fn finish(self: Box<Self>) -> anyhow::Result<EngineCounts>;
}

/// Runs a member that takes its orders from standard input.
pub(super) fn run() -> anyhow::Result<()> {
    let mut lines = io::stdin().lock().lines();
    let setup = lines.next().context("this is started by `spindle bench`, not by hand")??;
    let setup: BenchSetup = serde_json::from_str(&setup).context("this is started by `spindle bench`, not by hand")?;
    parent::stay_with(setup.parent)?;
    match serve(&setup, lines) {
        Ok(()) => Ok(()),
        Err(error) => answer(&BenchReply::Failed(format!("{error:#}"))),
    }
}

fn serve(setup: &BenchSetup, lines: impl Iterator<Item = io::Result<String>>) -> anyhow::Result<()> {
    if let Some(core) = setup.core {
        let mut only = CpuSet::new();
        only.set(core as usize);
        sched_setaffinity(None, &only).context("can't stay on one core")?;
    }
    let node = config(setup)?.join()?;
    let mut worker = worker(node, setup)?;
    answer(&BenchReply::Ready)?;
    while worker.rest()? && event::poll(&mut [PollFd::new(&io::stdin(), PollFlags::IN)], Some(&REST))? == 0 {}
    let mut before = (worker.counts(), Usage::mine()?);
    // This member ends with its input, or with the benchmark.
    for order in lines {
        match serde_json::from_str(&order?)? {
            BenchOrder::Run { begin_ns, end_ns } => {
                let (start, start_ns) = (Usage::mine()?, now_ns());
                let mut ran = worker.run(begin_ns, end_ns)?;
                let now = (worker.counts(), Usage::mine()?);
                (ran.counts, ran.usage) = (now.0.since(before.0), now.1.since(before.1));
                (ran.busy_ns, ran.took_ns) = (now.1.since(start).cpu_ns, now_ns() - start_ns);
                before = now;
                answer(&BenchReply::Ran(Box::new(ran)))?;
            }
            BenchOrder::Finish => return answer(&BenchReply::Finished(worker.finish()?)),
        }
    }
    Ok(())
}

fn worker(node: Node, setup: &BenchSetup) -> anyhow::Result<Box<dyn Worker>> {
    // A member without an active subgroup sleeps.
    let drive = if setup.rank < setup.plan.span { setup.plan.drive } else { Drive::Thread };
    Ok(match (drive, setup.plan.job) {
        (Drive::Poll, SliceJob::Stream) => Box::new(poll::Polling::new(node, setup)?),
        (Drive::Poll, _) => Box::new(one_in_flight::OneInFlight::new(node, setup)?),
        (Drive::Thread, _) => Box::new(thread::Threaded::new(node, setup)?),
    })
}

/// Takes part without orders from a benchmark: joins, works for `length` from then on, and leaves.
/// The first tenth of `length` does not count, and another tenth follows that does not count
/// either, because the members don't all join at the same moment. Returns the measurements and the
/// counts at the end.
pub(super) fn alone(setup: &BenchSetup, length: Duration) -> anyhow::Result<(Ran, EngineCounts)> {
    let mut worker = worker(config(setup)?.join()?, setup)?;
    let (now, length_ns) = (now_ns(), length.as_nanos() as u64);
    let end = now + length_ns;
    let ran = worker.run(now + length_ns / 10, end)?;
    worker.run(end, end + length_ns / 10)?;
    Ok((ran, worker.finish()?))
}

fn answer(reply: &BenchReply) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(reply)?)?;
    Ok(out.flush()?)
}

fn config(setup: &BenchSetup) -> anyhow::Result<Config> {
    let plan = setup.plan;
    let mut config = Config::new(setup.group.clone(), setup.members);
    config.id = Some(MemberId(u64::from(setup.rank) + 1));
    config.runtime_dir = Some(setup.runtime_dir.clone());
    config.network = setup.network.as_ref().map(network).transpose()?;
    config.spin_for = match plan.wait {
        WaitArg::Polling => Duration::MAX,
        WaitArg::Hybrid => config.spin_for,
        WaitArg::Interrupt => Duration::ZERO,
    };
    config.gather_timeout = GATHER;
    config.data_dir = setup.data_dir.clone();
    config.log.bytes_max = Some(LOG_BYTES_MAX);
    let subgroup = |i| {
        let mut subgroup = Subgroup::new(name(i));
        if plan.span < setup.members {
            subgroup.members = Who::Ranks(plan.ranks(i, setup.members));
        }
        subgroup.senders = Who::First(plan.senders);
        subgroup.window = plan.window;
        subgroup.message_bytes_max = plan.size;
        if plan.logged {
            subgroup.durability = Durability::Logged { copies: plan.span };
        }
        subgroup
    };
    config.subgroups = (0..plan.subgroups).map(subgroup).collect();
    Ok(config)
}

pub(super) fn network(place: &MemberNetwork) -> anyhow::Result<Network> {
    let seeds = place.seeds.iter().map(|seed| Ok(seed.parse()?)).collect::<anyhow::Result<_>>()?;
    let mut network = Network::new(place.listen.parse()?, seeds);
    network.advertise = place.advertise.as_ref().map(|address| address.parse()).transpose()?;
    if place.insecure {
        network.security = Security::Insecure;
    }
    if let Some(provider) = &place.provider {
        network.transport = Transport::Ofi(OfiOptions { provider: Some(provider.clone()), ..OfiOptions::default() });
    }
    Ok(network)
}

fn name(subgroup: u32) -> String {
    format!("s{subgroup}")
}

/// Returns the publishers of the active subgroups, if this member sends.
fn publishers(node: &mut Node, setup: &BenchSetup) -> anyhow::Result<Vec<spindle::Publisher>> {
    let active = if setup.rank < setup.plan.senders { setup.plan.active } else { 0 };
    (0..active).map(|i| Ok(node.publisher(&name(i))?)).collect()
}

/// Returns the number of a member's first message in a subgroup. No two streams contain the same
/// bytes.
fn first_number(subgroup: usize, rank: u32) -> u64 {
    ((subgroup as u64) << 16 | u64::from(rank)) << 40
}

/// Returns a histogram of latencies up to a minute, with three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order")
}

/// Returns (value, how often) for each value of `histogram`, and empties it.
fn drain(histogram: &mut Histogram<u64>) -> Vec<(u64, u64)> {
    let values = histogram.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value()));
    let values = values.collect();
    histogram.reset();
    values
}

//! The delays, losses and cuts of messages between hosts.
use super::plan::BootstrapScene;
use crate::random::Random;
use std::collections::BTreeMap;

/// The outcome of sending a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendFate {
    /// The message arrives at this time, unless the connection breaks before.
    Arrives(u64),
    /// The message is lost.
    Lost,
}

/// All links, each of one direction. Messages on a link arrive in order.
#[derive(Debug)]
pub(super) struct BootstrapLinks {
    delays: Vec<Vec<u64>>,
    jitter_ns: u64,
    loss_one_in: u64,
    /// The time until which each link is cut.
    cut_until: Vec<Vec<u64>>,
    /// The arrival time of the last message of each link.
    last: BTreeMap<(u32, u32), u64>,
    /// The number of connections that each link has had.
    connections: BTreeMap<(u32, u32), u64>,
}

impl BootstrapLinks {
    pub(super) fn new(scene: &BootstrapScene) -> BootstrapLinks {
        let hosts = scene.hosts as usize;
        let (last, connections) = Default::default();
        let (delays, jitter_ns, loss_one_in) = (scene.delays.clone(), scene.jitter_ns, scene.loss_one_in);
        BootstrapLinks { delays, jitter_ns, loss_one_in, cut_until: vec![vec![0; hosts]; hosts], last, connections }
    }

    pub(super) fn cut(&mut self, from: u64, to: u64, until: u64) {
        for (a, row) in self.cut_until.iter_mut().enumerate() {
            for (b, cut) in row.iter_mut().enumerate() {
                if from >> a & to >> b & 1 == 1 && a != b {
                    *cut = until.max(*cut);
                }
            }
        }
    }

    /// Ends all cuts and all losses.
    pub(super) fn heal(&mut self) {
        self.cut_until.iter_mut().flatten().for_each(|cut| *cut = 0);
        self.loss_one_in = 0;
    }

    pub(super) fn passes(&self, from: u32, to: u32, now: u64) -> bool {
        self.cut_until[from as usize][to as usize] <= now
    }

    /// Returns true if the two hosts hear each other.
    pub(super) fn joins(&self, a: u32, b: u32, now: u64) -> bool {
        a == b || self.passes(a, b, now) && self.passes(b, a, now)
    }

    /// Breaks the connection between two hosts. Messages in flight are lost.
    pub(super) fn reset(&mut self, a: u32, b: u32) {
        for pair in [(a, b), (b, a)] {
            *self.connections.entry(pair).or_default() += 1;
        }
    }

    pub(super) fn connection(&self, from: u32, to: u32) -> u64 {
        self.connections.get(&(from, to)).copied().unwrap_or(0)
    }

    pub(super) fn send(&mut self, random: &mut Random, from: u32, to: u32, now: u64) -> SendFate {
        if self.loss_one_in > 0 && random.one_in(self.loss_one_in) {
            self.reset(from, to);
        }
        if !self.passes(from, to, now) {
            return SendFate::Lost;
        }
        let delay = self.delays[from as usize][to as usize] + random.below(self.jitter_ns + 1);
        let last = self.last.entry((from, to)).or_default();
        *last = (*last).max(now + delay);
        SendFate::Arrives(*last)
    }
}

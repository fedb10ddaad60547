//! The network between hosts: delays, cuts, and connections. A connection carries packets in order,
//! and loses all of them when it breaks.
use super::blocks::BulkPacket;
use super::learning::AppSnapshot;
use super::logs::RecordStream;
use super::plan::HostsScene;
use super::rows::PostedRange;
use crate::random::Random;
use spindle_core::ViewId;
use spindle_core::control::Card;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The due time of a packet that is not in flight, because its link is cut.
const HELD: u64 = u64::MAX;
/// The time after which, plus a round trip, the operating system sends a lost packet again, if no
/// later packet shows the loss.
const REPEATED_NS: u64 = 200_000_000;

/// All links, each of one direction.
#[derive(Debug)]
pub(super) struct HostLinks {
    delays: Vec<Vec<u64>>,
    jitter_ns: u64,
    lost_percent: u64,
    /// The number of faults that cut each link now.
    cuts: Vec<Vec<u32>>,
    /// The time at which each link was last cut.
    cut_at: Vec<Vec<u64>>,
}

impl HostLinks {
    pub(super) fn new(scene: &HostsScene) -> HostLinks {
        let hosts = scene.hosts as usize;
        HostLinks {
            delays: scene.delays.clone(),
            jitter_ns: scene.jitter_ns,
            lost_percent: scene.lost_percent,
            cuts: vec![vec![0; hosts]; hosts],
            cut_at: vec![vec![0; hosts]; hosts],
        }
    }

    /// Cuts, or restores, the links from the hosts in `from` to those in `to`. Returns the pairs
    /// that changed.
    pub(super) fn set(&mut self, from: u64, to: u64, is_cut: bool, now: u64) -> Vec<(usize, usize)> {
        let mut changed = vec![];
        for a in 0..self.cuts.len() {
            for b in 0..self.cuts.len() {
                if from >> a & to >> b & 1 == 0 || a == b {
                    continue;
                }
                let cuts = &mut self.cuts[a][b];
                let before = *cuts > 0;
                *cuts = if is_cut { *cuts + 1 } else { *cuts - 1 };
                if before != (*cuts > 0) {
                    changed.push((a, b));
                    if is_cut {
                        self.cut_at[a][b] = now;
                    }
                }
            }
        }
        changed
    }

    pub(super) fn passes(&self, from: usize, to: usize) -> bool {
        self.cuts[from][to] == 0
    }

    /// Returns true if the two hosts hear each other.
    pub(super) fn joins(&self, a: usize, b: usize) -> bool {
        self.passes(a, b) && self.passes(b, a)
    }

    pub(super) fn delay(&self, random: &mut Random, from: usize, to: usize) -> u64 {
        if from == to {
            return random.range(5_000, 40_000);
        }
        let mut delay = self.delays[from][to] + random.below(self.jitter_ns + 1);
        if self.lost_percent > 0 {
            let round_trip = self.delays[from][to] + self.delays[to][from];
            let mut pause = REPEATED_NS + round_trip;
            while random.below(100) < self.lost_percent {
                delay += pause;
                pause *= 2;
            }
        }
        delay
    }

    /// Ends all packet losses.
    pub(super) fn lose_none(&mut self) {
        self.lost_percent = 0;
    }

    pub(super) fn round_trip(&self, random: &mut Random, a: usize, b: usize) -> u64 {
        self.delay(random, a, b) + self.delay(random, b, a)
    }

    /// Returns how long a restored link was cut: the operating system repeats lost packets with
    /// growing pauses.
    pub(super) fn was_cut_for(&self, from: usize, to: usize, now: u64) -> u64 {
        now - self.cut_at[from][to]
    }
}

/// The content of a packet.
#[derive(Clone, Debug)]
pub(super) enum PacketLoad {
    /// A control message, as bytes, and its attachment.
    ControlMessage(Rc<[u8]>, Rc<[u8]>),
    /// Posts of one poll.
    Posts(Vec<PostedRange>),
    /// A whole row: the first packet of a stream.
    Row(PostedRange),
    /// The end of the stream: the sender's view is over.
    Fin,
    /// The following packets belong to this view, the next one.
    Turn(ViewId),
    /// The number of messages that a state contains, and the state. It is complete once its body
    /// has arrived.
    StateHead(Rc<AppSnapshot>),
    /// The rest of a state.
    StateBody,
    /// A part of a stream of records.
    Records(RecordStream),
    /// A block of an object, or a message about one.
    Bulk(BulkPacket),
    /// The connection has ended at the other side.
    Reset,
}

#[derive(Debug)]
pub(super) struct Packet {
    pub(super) due: u64,
    pub(super) load: PacketLoad,
}

/// One side of a connection.
#[derive(Debug)]
pub(super) struct ConnectionEnd {
    pub(super) process: usize,
    pub(super) host: usize,
    pub(super) is_open: bool,
    /// Packets in flight to the other side.
    pub(super) out: VecDeque<Packet>,
    due: u64,
    /// Since when packets of this side are not acknowledged.
    pub(super) stuck: Option<u64>,
    /// True if the other side has ended its stream.
    pub(super) has_fin: bool,
    /// True if this side has sent its turn to the next view.
    pub(super) has_turned: bool,
    /// The view to which the other side has turned. Its packets are stored until this side
    /// continues in that view.
    pub(super) turned: Option<ViewId>,
}

impl ConnectionEnd {
    fn new(process: usize, host: usize) -> ConnectionEnd {
        ConnectionEnd {
            process,
            host,
            is_open: true,
            out: VecDeque::new(),
            due: 0,
            stuck: None,
            has_fin: false,
            has_turned: false,
            turned: None,
        }
    }
}

#[derive(Debug)]
pub(super) struct SimConnection {
    /// The dialling side, and the other side.
    pub(super) ends: [ConnectionEnd; 2],
    /// The cards and numbers of both processes.
    pub(super) cards: [(Card, u128); 2],
    /// The silence after which the connection counts as broken.
    pub(super) silence_ns: u64,
    /// True if no packet passes any more; a side may not know that.
    pub(super) is_black: bool,
}

impl SimConnection {
    pub(super) fn new(ends: [(usize, usize); 2], cards: [(Card, u128); 2], silence_ns: u64) -> SimConnection {
        SimConnection {
            ends: ends.map(|(process, host)| ConnectionEnd::new(process, host)),
            cards,
            silence_ns,
            is_black: false,
        }
    }

    /// Returns the index of the end at `process`.
    pub(super) fn end_of(&self, process: usize) -> usize {
        usize::from(self.ends[0].process != process)
    }

    pub(super) fn hosts(&self) -> (usize, usize) {
        (self.ends[0].host, self.ends[1].host)
    }
}

/// All connections that were ever made, by number.
#[derive(Debug, Default)]
pub(super) struct SimConnections {
    all: BTreeMap<usize, SimConnection>,
    made: usize,
}

/// The result of sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PacketFate {
    /// The packet arrives at this time.
    Due(u64),
    /// The packet waits for the link; the silence is checked at this time.
    Stuck(u64),
    /// The packet waits behind earlier ones.
    Held,
    /// The connection is closed.
    Closed,
}

impl SimConnections {
    pub(super) fn add(&mut self, connection: SimConnection) -> usize {
        self.made += 1;
        self.all.insert(self.made, connection);
        self.made
    }

    pub(super) fn get(&self, number: usize) -> Option<&SimConnection> {
        self.all.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut SimConnection> {
        self.all.get_mut(&number)
    }

    /// Drops connections that neither side has open.
    pub(super) fn forget_closed(&mut self) {
        self.all.retain(|_, connection| connection.ends.iter().any(|end| end.is_open));
    }

    /// Returns the sides of connections that a process has open.
    pub(super) fn open_of(&self, process: usize) -> Vec<(usize, usize)> {
        let sides = |(number, connection): (&usize, &SimConnection)| {
            let (number, ends) = (*number, [0, 1]);
            let is_its = ends.map(|end| connection.ends[end].process == process && connection.ends[end].is_open);
            ends.into_iter().filter(move |end| is_its[*end]).map(move |end| (number, end))
        };
        self.all.iter().flat_map(sides).collect()
    }

    pub(super) fn between(&self, a: usize, b: usize) -> Vec<usize> {
        let is_it = |connection: &SimConnection| connection.hosts() == (a, b) || connection.hosts() == (b, a);
        self.all.iter().filter(|(_, connection)| is_it(connection)).map(|(number, _)| *number).collect()
    }

    /// Sends over the side `end` of a connection.
    pub(super) fn send(
        &mut self,
        (number, end): (usize, usize),
        load: PacketLoad,
        links: &HostLinks,
        random: &mut Random,
        now: u64,
    ) -> PacketFate {
        let Some(connection) = self.all.get_mut(&number).filter(|connection| connection.ends[end].is_open) else {
            return PacketFate::Closed;
        };
        let (from, to) = (connection.ends[end].host, connection.ends[1 - end].host);
        let (silence_ns, is_black) = (connection.silence_ns, connection.is_black);
        let side = &mut connection.ends[end];
        let is_held = is_black || !links.passes(from, to) || side.out.back().is_some_and(|packet| packet.due == HELD);
        let due = if is_held { HELD } else { side.due.max(now + links.delay(random, from, to)) };
        side.out.push_back(Packet { due, load });
        if !is_held {
            side.due = due;
        }
        if !links.joins(from, to) && side.stuck.is_none() {
            side.stuck = Some(now);
            return PacketFate::Stuck(now + silence_ns);
        }
        if is_held { PacketFate::Held } else { PacketFate::Due(due) }
    }

    /// Releases the packets that wait for a restored link. Returns the sides that sent them, each
    /// with the arrival time of the first packet.
    pub(super) fn release(
        &mut self,
        (from, to): (usize, usize),
        links: &HostLinks,
        random: &mut Random,
        now: u64,
    ) -> Vec<(usize, u64)> {
        let mut released = vec![];
        for number in self.between(from, to) {
            let connection = self.all.get_mut(&number).expect("it is there");
            let is_black = connection.is_black;
            for end in 0..2 {
                if !is_black && links.joins(from, to) {
                    connection.ends[end].stuck = None;
                }
                let other = connection.ends[1 - end].process;
                let side = &mut connection.ends[end];
                if is_black || side.host != from || side.out.back().is_none_or(|packet| packet.due != HELD) {
                    continue;
                }
                let pause = random.below(links.was_cut_for(from, to, now).min(1_000_000_000) / 2 + 1);
                let due = side.due.max(now + pause + links.delay(random, from, to));
                side.due = due;
                side.out.iter_mut().filter(|packet| packet.due == HELD).for_each(|packet| packet.due = due);
                released.push((other, due));
            }
        }
        released
    }
}

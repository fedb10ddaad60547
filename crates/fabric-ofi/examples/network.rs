//! Compares a fabric between hosts with a bare TCP stream, between two processes of this machine:
//! `cargo run --release -p spindle-fabric-ofi --example network`, and with ` -- ofi` through
//! libfabric.
//!
//! Both carry blocks of 10 KB one way, and bounce a byte (the fabric: a counter) back and forth.
//! They run in turns of well under a second, so that both meet the machine in the same modes, each
//! process on its own core. A ratio is that of two turns side by side; the medians of all are
//! printed. The two sides fill and check no bytes, except for the first word of each block.
//!
//! With engines on both sides, blocks are messages, filled by their sender and delivered by both. A
//! round trip is then the time until the sender delivers a message of its own. At that moment it
//! knows that both have it.
//!
//! For libfabric, `SPINDLE_OFI_PROVIDER`, `SPINDLE_OFI_DOMAIN` and `SPINDLE_OFI_ADDRESS` choose the
//! network; otherwise it is the `tcp` provider on loopback. The stream is always on loopback, so
//! with real cards only the fabric's own figures are meaningful.
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use spindle_core::{
    Ablation, Batch, Durability, Engine, Layout, MemberId, Order, Rank, Ring, Rows, Rule, SubgroupId, SubgroupSpec,
    Table, Time, Upcalls, View, ViewId,
};
use spindle_fabric::{Arena, Fabric, MemberEventCount, OwnRow, Peer, Publisher};
use spindle_fabric_ofi::{LinkPurpose, OfiAddress, OfiMeeting, OfiOptions, OfiPort};
use spindle_transport::{Connection, SocketOptions, SocketStream};
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

type Mesh = spindle_fabric::Mesh<OfiMeeting>;
type Outcome<T> = Result<T, Box<dyn Error>>;

const BLOCK_BYTES: u64 = 10_240;
/// Bytes from one block of the ring to the next.
const PLACE_BYTES: u64 = BLOCK_BYTES + 16;
const BLOCKS: u64 = 8_000;
const ROUND_TRIPS: u64 = 2_000;
const TURNS: usize = 15;
/// Bytes of the ring.
const RING_BYTES: u64 = 1 << 20;
/// Blocks between two announcements.
const BURST: u64 = 12;
const PATIENCE: Duration = Duration::from_secs(60);
const SENDER: Rank = Rank(0);
const RECEIVER: Rank = Rank(1);

/// The jobs that the child does next, with the parent at the other end.
const PLAIN_BLOCKS: u8 = 1;
const PLAIN_BOUNCE: u8 = 2;
const FABRIC_BLOCKS: u8 = 3;
const FABRIC_BOUNCE: u8 = 4;
const SLEEPY_BOUNCE: u8 = 5;
const BLOCKING_BOUNCE: u8 = 6;
const MESSAGES: u8 = 7;
const STABLE: u8 = 8;
const JOBS: [u8; 8] =
    [PLAIN_BLOCKS, FABRIC_BLOCKS, MESSAGES, PLAIN_BOUNCE, FABRIC_BOUNCE, STABLE, BLOCKING_BOUNCE, SLEEPY_BOUNCE];

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] => measure(Network::Streams),
        ["ofi"] => measure(Network::Libfabric),
        // A child of such a run.
        [network, port] => {
            let network = if network == "ofi" { Network::Libfabric } else { Network::Streams };
            Side::new(network, SENDER, || Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port.parse()?))?))?.obey()
        }
        _ => Err("say nothing, for streams, or ofi, for libfabric".into()),
    }
}

/// The network that carries rows.
#[derive(Clone, Copy)]
enum Network {
    Streams,
    Libfabric,
}

fn measure(network: Network) -> Outcome<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port().to_string();
    let name = match network {
        Network::Streams => "tcp",
        Network::Libfabric => "ofi",
    };
    let mut child = Killed(Command::new(std::env::current_exe()?).args([name, &port]).spawn()?);
    let mut side = Side::new(network, RECEIVER, || Ok(listener.accept()?.0))?;
    let mut times: [Vec<f64>; 9] = Default::default();
    for turn in 0..=TURNS {
        for job in JOBS {
            let took = side.order(job)?;
            if turn > 0 {
                times[job as usize].push(took.as_secs_f64());
            }
        }
    }
    side.orders.write_all(&[0])?;
    child.0.wait()?;
    let bytes = (BLOCKS * BLOCK_BYTES) as f64;
    let rate = |job: u8| bytes / median(times[job as usize].clone()) / 1e9;
    let round = |job: u8| median(times[job as usize].clone()) / ROUND_TRIPS as f64 * 1e6;
    let ratio =
        |of: u8, to: u8| median(times[to as usize].iter().zip(&times[of as usize]).map(|(a, b)| a / b).collect());
    println!("{:<34}{:>10}{:>10}{:>10}", side.network, "stream", "fabric", "ratio");
    for (name, of) in [("10 KB blocks, GB/s", FABRIC_BLOCKS), ("the same, with engines", MESSAGES)] {
        println!("{name:<34}{:>10.2}{:>10.2}{:>10.2}", rate(PLAIN_BLOCKS), rate(of), ratio(of, PLAIN_BLOCKS));
    }
    for (name, of, to) in [
        ("round trip, looking, us", FABRIC_BOUNCE, PLAIN_BOUNCE),
        ("until stable, looking, us", STABLE, PLAIN_BOUNCE),
        ("round trip, sleeping, us", SLEEPY_BOUNCE, BLOCKING_BOUNCE),
    ] {
        println!("{name:<34}{:>10.2}{:>10.2}{:>10.2}", round(to), round(of), ratio(to, of));
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A child process that ends with its parent.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One of the two processes.
struct Side {
    me: Rank,
    network: String,
    orders: TcpStream,
    plain: TcpStream,
    fabric: Mesh,
    layout: Layout,
    ring: Ring,
    /// Blocks and bounces over the fabric so far.
    blocks: u64,
    bounces: u64,
    member: Member,
}

/// A member with an engine, over a fabric of its own.
struct Member {
    engine: Engine,
    fabric: Mesh,
    publisher: Option<Publisher>,
    delivered: Delivered,
    sent: u64,
}

struct Delivered(u64);

impl<R: Rows> Upcalls<R> for Delivered {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_, R>) {
        batch.for_each(|_| self.0 += 1);
    }
}

impl Network {
    /// Returns the fabric of one of two members on machines of their own, where `orders` leads to
    /// the other one, and its name.
    fn fabric(
        self,
        layout: &Layout,
        me: Rank,
        orders: &mut TcpStream,
        connect: &mut impl FnMut() -> Outcome<TcpStream>,
    ) -> Outcome<(Mesh, String)> {
        let (own, other) =
            (OwnRow::create(layout, me, &mut Arena::new(MemberEventCount::with_event()?))?.0, Rank(1 - me.0));
        if let Network::Streams = self {
            let stream: Connection = Box::new(SocketStream::new(connect()?, &SocketOptions::default())?);
            return Ok((Mesh::over(layout, own, [(other, Some(Peer::There(stream)))], None)?, "streams".to_string()));
        }
        let port = OfiPort::open(&options()?, 1)?;
        let (provider, domain) = port.provider();
        let address = port.address().to_bytes();
        orders.write_all(&[address.len() as u8])?;
        orders.write_all(&address)?;
        let mut len = [0];
        orders.read_exact(&mut len)?;
        let mut theirs = vec![0; len[0].into()];
        orders.read_exact(&mut theirs)?;
        let theirs = OfiAddress::from_bytes(&theirs).ok_or("the other side has sent no address")?;
        let mut meeting = port.meet(layout, &own, LinkPurpose { incarnation: 1, view: ViewId(1) })?;
        if other < me {
            meeting.expect(other);
        } else {
            meeting.call(other, &theirs)?;
        }
        meeting.wait(PATIENCE)?;
        let fabric = Mesh::over(layout, own, [(other, None)], Some(meeting))?;
        Ok((fabric, format!("libfabric's {provider}, {domain}")))
    }
}

fn options() -> Outcome<OfiOptions> {
    let told = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let provider = told("SPINDLE_OFI_PROVIDER");
    let address = match told("SPINDLE_OFI_ADDRESS") {
        Some(address) => Some(address.parse()?),
        None => provider.is_none().then_some(IpAddr::from(Ipv4Addr::LOCALHOST)),
    };
    Ok(OfiOptions { provider: provider.or(Some("tcp".to_string())), domain: told("SPINDLE_OFI_DOMAIN"), address })
}

impl Member {
    fn new(engine: Engine, fabric: Mesh) -> Member {
        let publisher = engine.claims(SubgroupId(0)).map(|claims| fabric.publisher(claims));
        Member { engine, fabric, publisher, delivered: Delivered(0), sent: 0 }
    }

    /// Sends, if this is the sender, and delivers `messages` of `len` bytes, with up to `in_flight`
    /// of them in flight.
    fn run(&mut self, messages: u64, len: u64, in_flight: u64) -> Outcome<()> {
        let end = self.delivered.0 + messages;
        let mut pace = Pace::new();
        while self.delivered.0 < end {
            if let Some(publisher) = &mut self.publisher {
                for _ in 0..BURST {
                    if self.sent == end || self.sent == self.delivered.0 + in_flight {
                        break;
                    }
                    let Ok(mut frame) = publisher.claim(len) else { break };
                    frame.fill(self.sent as u8);
                    frame.commit();
                    self.sent += 1;
                }
            }
            let moved = self.fabric.progress();
            let worked = self.engine.poll(Time(0), &mut self.fabric, &mut self.delivered).worked;
            if moved || worked { pace = Pace::new() } else { pace.wait()? }
        }
        Ok(())
    }
}

/// Gives each side a core of its own, if there are two.
fn pin(me: Rank) {
    let ours = sched_getaffinity(None).unwrap_or_default();
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| ours.is_set(*core)).collect();
    if let [first, second, ..] = cores[..] {
        let mut only = CpuSet::new();
        only.set(if me == SENDER { first } else { second });
        // Without it the figures depend on the system's scheduling.
        let _ = sched_setaffinity(None, &only);
    }
}

impl Side {
    fn new(network: Network, me: Rank, mut connect: impl FnMut() -> Outcome<TcpStream>) -> Outcome<Side> {
        pin(me);
        let everyone = vec![SENDER, RECEIVER];
        let subgroup = SubgroupSpec {
            member_rule: Rule::Everyone,
            sender_rule: Rule::Everyone,
            name: "blocks".to_string(),
            members: everyone.clone(),
            senders: everyone,
            order: Order::Total,
            window: RING_BYTES / PLACE_BYTES,
            message_bytes_max: BLOCK_BYTES,
            leftover_bytes_max: 0,
            durability: Durability::InMemory,
            clock: 0,
            epoch: None,
        };
        let mut view = View {
            id: ViewId(1),
            members: vec![MemberId(1), MemberId(2)],
            nonvoters: vec![],
            subgroups: vec![subgroup].into(),
        };
        let layout = Layout::new(&view)?;
        let (mut orders, plain) = (connect()?, connect()?);
        for stream in [&orders, &plain] {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
        }
        let (fabric, name) = network.fabric(&layout, me, &mut orders, &mut connect)?;
        view.subgroups[0].senders = vec![SENDER];
        let engine = Engine::new(view, me, Ablation::default())?;
        let member = network.fabric(engine.layout(), me, &mut orders, &mut connect)?.0;
        let member = Member::new(engine, member);
        let ring = layout.row(SENDER).subgroup(SubgroupId(0)).and_then(|place| place.ring).ok_or("no ring")?;
        Ok(Side { me, network: name, orders, plain, fabric, layout, ring, blocks: 0, bounces: 0, member })
    }

    fn obey(mut self) -> Outcome<()> {
        loop {
            let mut job = [0];
            self.orders.read_exact(&mut job)?;
            if job == [0] {
                return Ok(());
            }
            self.work(job[0])?;
        }
    }

    /// Lets both sides do `job`. Returns the time that it took.
    fn order(&mut self, job: u8) -> Outcome<Duration> {
        let start = Instant::now();
        self.orders.write_all(&[job])?;
        self.work(job)?;
        Ok(start.elapsed())
    }

    fn work(&mut self, job: u8) -> Outcome<()> {
        match job {
            PLAIN_BLOCKS if self.me == SENDER => self.write_blocks(),
            PLAIN_BLOCKS => self.read_blocks(),
            PLAIN_BOUNCE => {
                self.plain.set_nonblocking(true)?;
                self.bounce_byte()?;
                Ok(self.plain.set_nonblocking(false)?)
            }
            BLOCKING_BOUNCE => self.bounce_byte(),
            FABRIC_BLOCKS if self.me == SENDER => self.post_blocks(),
            FABRIC_BLOCKS => self.take_blocks(),
            FABRIC_BOUNCE => self.bounce_counter(false),
            MESSAGES => self.member.run(BLOCKS, BLOCK_BYTES, u64::MAX / 2),
            STABLE => self.member.run(ROUND_TRIPS, 16, 1),
            _ => self.bounce_counter(true),
        }
    }

    fn write_blocks(&mut self) -> Outcome<()> {
        let block = [1; BLOCK_BYTES as usize];
        (0..BLOCKS).try_for_each(|_| Ok(self.plain.write_all(&block)?))
    }

    fn read_blocks(&mut self) -> Outcome<()> {
        let mut buffer = vec![0; 128 << 10];
        let mut left = (BLOCKS * BLOCK_BYTES) as usize;
        while left > 0 {
            let most = buffer.len().min(left);
            left -= self.plain.read(&mut buffer[..most])?;
        }
        Ok(())
    }

    fn bounce_byte(&mut self) -> Outcome<()> {
        for round in 0..ROUND_TRIPS * 2 {
            if round % 2 == u64::from(self.me.0) {
                self.plain.write_all(&[7])?;
                continue;
            }
            let mut pace = Pace::new();
            loop {
                match self.plain.read(&mut [0]) {
                    Ok(0) => return Err("the other side is gone".into()),
                    Ok(_) => break,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => pace.wait()?,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Returns the offset of the counter of `rank`.
    fn counter(&self, rank: Rank) -> u64 {
        self.layout.row(rank).subgroup(SubgroupId(0)).expect("both are in it").entry
    }

    /// Returns the offset of block `index`.
    fn place(&self, index: u64) -> u64 {
        let slots = self.ring.capacity / PLACE_BYTES;
        self.ring.at + index % slots * PLACE_BYTES
    }

    fn post_counter(&mut self, at: u64, value: u64) {
        self.fabric.store(at, value);
        self.fabric.post(&[SENDER, RECEIVER], at..at + 8);
    }

    fn post_blocks(&mut self) -> Outcome<()> {
        let slots = self.ring.capacity / PLACE_BYTES;
        let (end, taken) = (self.blocks + BLOCKS, self.counter(RECEIVER));
        let mut pace = Pace::new();
        while self.fabric.load(RECEIVER, taken) < end {
            let moved = self.fabric.progress();
            let room = (self.fabric.load(RECEIVER, taken) + slots).min(end) - self.blocks;
            let burst = room.min(BURST);
            for index in self.blocks..self.blocks + burst {
                let at = self.place(index);
                self.fabric.store(at, index);
                self.fabric.post(&[SENDER, RECEIVER], at..at + PLACE_BYTES);
            }
            if burst > 0 {
                self.blocks += burst;
                let at = self.counter(SENDER);
                self.post_counter(at, self.blocks);
            }
            if moved || burst > 0 { pace = Pace::new() } else { pace.wait()? }
        }
        Ok(())
    }

    fn take_blocks(&mut self) -> Outcome<()> {
        let (end, announced) = (self.blocks + BLOCKS, self.counter(SENDER));
        let mut pace = Pace::new();
        while self.blocks < end {
            let moved = self.fabric.progress();
            let count = self.fabric.load(SENDER, announced);
            for index in self.blocks..count {
                if self.fabric.load(SENDER, self.place(index)) != index {
                    return Err(format!("block {index} is not there").into());
                }
            }
            if count > self.blocks {
                self.blocks = count;
                let at = self.counter(RECEIVER);
                self.post_counter(at, count);
            }
            if moved { pace = Pace::new() } else { pace.wait()? }
        }
        let mut pace = Pace::new();
        while !self.fabric.is_flushed() {
            self.fabric.progress();
            pace.wait()?;
        }
        Ok(())
    }

    fn bounce_counter(&mut self, sleepy: bool) -> Outcome<()> {
        let other = Rank(1 - self.me.0);
        let (mine, theirs) = (self.counter(self.me) + 8, self.counter(other) + 8);
        for _ in 0..ROUND_TRIPS {
            self.bounces += 1;
            let awaited = self.bounces - u64::from(self.me == SENDER);
            let mut pace = Pace::new();
            loop {
                self.fabric.progress();
                if self.fabric.load(other, theirs) >= awaited {
                    break;
                }
                if !sleepy {
                    pace.wait()?;
                    continue;
                }
                self.fabric.begin_sleep();
                self.fabric.progress();
                if self.fabric.load(other, theirs) < awaited && !self.fabric.sleep(PATIENCE) {
                    pace.wait()?;
                }
                self.fabric.end_sleep();
            }
            let value = self.bounces;
            self.post_counter(mine, value);
        }
        Ok(())
    }
}

/// Looks again and again, yields now and then, and fails after a limit.
struct Pace {
    looks: u32,
    start: Option<Instant>,
}

impl Pace {
    fn new() -> Pace {
        Pace { looks: 0, start: None }
    }

    fn wait(&mut self) -> Outcome<()> {
        self.looks += 1;
        if self.looks.is_multiple_of(32) {
            if self.start.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return Err("the other side does not move".into());
            }
            std::thread::yield_now();
        }
        std::hint::spin_loop();
        Ok(())
    }
}

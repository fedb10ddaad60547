//! A process of `spindle bench bulk`: a member of a bulk group that takes its orders from standard
//! input.
use super::wire::{BulkJob, BulkOrder, BulkReply, BulkSetup};
use super::{AlgorithmArg, BulkFabric, WaitMode};
use crate::clock::{cpu_ns, now_ns};
use crate::parent;
use anyhow::{Context, bail};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};
use spindle::Rank;
use spindle::bulk::{
    self, BulkEvent, BulkNode, BulkSettings, Connection, LocalPart, Object, Racks, SocketOptions, SocketStream, Stream,
};
use spindle_transport::Space;
use std::hint::black_box;
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

/// Longest wait for any step of a trial.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long to spin before sleeping.
const SPIN: Duration = Duration::from_micros(50);
/// Bytes of one write to the plain stream.
const WRITE_BYTES: usize = 256 << 10;
/// Announces the plain stream, in place of a rank.
const PLAIN: u32 = u32::MAX;

/// Runs a process that takes its orders from standard input.
pub(in crate::bench) fn run() -> anyhow::Result<()> {
    let mut lines = io::stdin().lock().lines();
    let setup = lines.next().context("this is started by `spindle bench`, not by hand")??;
    let setup: BulkSetup = serde_json::from_str(&setup).context("this is started by `spindle bench`, not by hand")?;
    parent::stay_with(setup.parent)?;
    match serve(&setup, lines) {
        Ok(()) => Ok(()),
        Err(error) => answer(&BulkReply::Failed(format!("{error:#}"))),
    }
}

fn answer(reply: &BulkReply) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(reply)?)?;
    Ok(out.flush()?)
}

fn serve(setup: &BulkSetup, mut orders: impl Iterator<Item = io::Result<String>>) -> anyhow::Result<()> {
    let mut order = || -> anyhow::Result<Option<BulkOrder>> {
        orders.next().transpose()?.map(|line| Ok(serde_json::from_str(&line)?)).transpose()
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let local = Local::listen(setup)?;
    answer(&BulkReply::Listening(listener.local_addr()?.port()))?;
    let Some(BulkOrder::Connect(ports)) = order()? else { bail!("no ports came") };
    let mut member = BulkMember::connect(setup, &listener, local, &ports)?;
    answer(&BulkReply::Ready)?;
    while let Some(next) = order()? {
        match next {
            BulkOrder::Trial { bytes, job } => {
                member.prepare(bytes, job)?;
                answer(&BulkReply::Ready)?;
                if setup.rank == 0 {
                    let Some(BulkOrder::Go) = order()? else { bail!("no order to begin") };
                }
                answer(&member.run(bytes, job)?)?;
            }
            BulkOrder::Finish => {
                member.node.destroy(PATIENCE, &mut vec![])?;
                return answer(&BulkReply::Ready);
            }
            other => bail!("can't {other:?} now"),
        }
    }
    Ok(())
}

/// The sockets at which the other members meet the root of a group on this machine, one for each
/// member.
struct Local(Vec<OwnedFd>);

fn meeting_point(setup: &BulkSetup, rank: u32) -> anyhow::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(setup.dir.join(rank.to_string()))?)
}

fn message_socket() -> anyhow::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

impl Local {
    fn listen(setup: &BulkSetup) -> anyhow::Result<Local> {
        let mut listeners = vec![];
        for rank in (1..setup.members).filter(|_| setup.rank == 0 && setup.plan.fabric == BulkFabric::Shm) {
            let listener = message_socket()?;
            bind(&listener, &meeting_point(setup, rank)?)?;
            listen(&listener, 1)?;
            listeners.push(listener);
        }
        Ok(Local(listeners))
    }

    fn part(self, setup: &BulkSetup) -> anyhow::Result<LocalPart> {
        let fds = if setup.rank == 0 {
            let accept = |listener| accept_with(listener, SocketFlags::CLOEXEC);
            self.0.iter().map(accept).collect::<Result<_, _>>()?
        } else {
            let socket = message_socket()?;
            connect(&socket, &meeting_point(setup, setup.rank)?)?;
            vec![socket]
        };
        Ok(LocalPart::from_fds(setup.members, Rank(setup.rank), Rank(0), fds)?)
    }
}

struct BulkMember {
    fabric: BulkFabric,
    waiting: WaitMode,
    is_root: bool,
    node: BulkNode,
    /// The plain stream from the root to rank 1.
    plain: Option<TcpStream>,
    /// The root's object. Before it is sent: the memory for the next object.
    object: Option<Object>,
    /// Memory to receive into, to copy into, and for the root to create objects in.
    buffer: Vec<u8>,
    made: u64,
    /// Bytes sent to other racks so far. The next field holds their number before this trial.
    across: Arc<AtomicU64>,
    across_before: u64,
}

impl BulkMember {
    fn connect(setup: &BulkSetup, listener: &TcpListener, local: Local, ports: &[u16]) -> anyhow::Result<BulkMember> {
        let mut plain = None;
        let mut streams: Vec<(Rank, TcpStream)> = vec![];
        let call = |rank: u32, word: u32| -> anyhow::Result<TcpStream> {
            let port = *ports.get(rank as usize).context("a port is missing")?;
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.set_nodelay(true)?;
            stream.write_all(&word.to_le_bytes())?;
            Ok(stream)
        };
        let is_mesh = setup.plan.fabric == BulkFabric::Tcp;
        for rank in (setup.rank + 1..setup.members).filter(|_| is_mesh) {
            streams.push((Rank(rank), call(rank, setup.rank)?));
        }
        if setup.rank == 0 {
            plain = Some(call(1, PLAIN)?);
        }
        let callers = if is_mesh { setup.rank } else { 0 } + u32::from(setup.rank == 1);
        for _ in 0..callers {
            let (mut stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            let mut word = [0; 4];
            stream.read_exact(&mut word)?;
            match u32::from_le_bytes(word) {
                PLAIN => plain = Some(stream),
                rank => streams.push((Rank(rank), stream)),
            }
        }
        let settings = settings(setup);
        let across = Arc::new(AtomicU64::new(0));
        let node = match setup.plan.fabric {
            BulkFabric::Tcp => {
                let open = |(rank, stream): (Rank, TcpStream)| -> io::Result<(Rank, Connection)> {
                    let stream = SocketStream::new(stream, &SocketOptions::default())?;
                    let stays = rack(setup, setup.rank) == rack(setup, rank.0);
                    Ok((
                        rank,
                        if stays { Box::new(stream) } else { Box::new(CountedStream(stream, Arc::clone(&across))) },
                    ))
                };
                let streams = streams.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
                BulkNode::over_streams(setup.members, Rank(setup.rank), Rank(0), &settings, streams)?
            }
            _ => BulkNode::on_one_machine(&settings, local.part(setup)?)?,
        };
        Ok(BulkMember {
            fabric: setup.plan.fabric,
            waiting: setup.plan.waiting,
            is_root: setup.rank == 0,
            node,
            plain,
            object: None,
            buffer: vec![],
            made: 0,
            across,
            across_before: 0,
        })
    }

    /// Does the part that is not timed. The root creates an object with bytes that were never sent,
    /// and the others allocate memory for it.
    fn prepare(&mut self, bytes: u64, job: BulkJob) -> anyhow::Result<()> {
        let is_lent =
            self.fabric == BulkFabric::Shm && matches!(job, BulkJob::Multicast | BulkJob::Read | BulkJob::Copy);
        if self.is_root {
            self.made += 1;
            let object = self.object.take().and_then(|object| object.into_vec().ok());
            self.object = Some(if is_lent {
                let mut segment = self.node.segment(bytes)?;
                fill(&mut segment, self.made);
                segment.into()
            } else {
                let mut vec = object.unwrap_or_default();
                vec.resize(bytes as usize, 0);
                fill(&mut vec, self.made);
                vec.into()
            });
        }
        if self.buffer.len() as u64 != bytes {
            self.buffer = vec![1; bytes as usize];
        }
        Ok(())
    }

    fn run(&mut self, bytes: u64, job: BulkJob) -> anyhow::Result<BulkReply> {
        let (begin_ns, before) = (now_ns(), cpu_ns());
        match job {
            BulkJob::Multicast | BulkJob::Read | BulkJob::Copy => return self.multicast(bytes, job, begin_ns, before),
            BulkJob::Stream => {
                let plain = self.plain.as_mut().context("no plain stream")?;
                match &self.object {
                    Some(object) => object.chunks(WRITE_BYTES).try_for_each(|bytes| plain.write_all(bytes))?,
                    None => plain.read_exact(&mut self.buffer)?,
                }
            }
            BulkJob::Memcpy => self.buffer.copy_from_slice(self.object.as_ref().context("no object")?),
        }
        let (end_ns, cpu_ns) = (now_ns(), cpu_ns() - before);
        let digest = XxHash3_64::oneshot(self.object.as_deref().unwrap_or(&self.buffer));
        Ok(BulkReply::Done { begin_ns, end_ns, cpu_ns, across: 0, digest })
    }

    fn multicast(&mut self, bytes: u64, job: BulkJob, begin_ns: u64, before: u64) -> anyhow::Result<BulkReply> {
        if let Some(object) = self.object.take() {
            self.node.send(object)?;
        }
        let mut events = vec![];
        let mut last_worked = Instant::now();
        let until = last_worked + PATIENCE;
        let mut data = None;
        loop {
            let worked = self.node.poll(&mut events);
            for event in events.drain(..) {
                match event {
                    BulkEvent::Allocate { object, .. } => {
                        self.node.post_receive_buffer(object, std::mem::take(&mut self.buffer))?;
                    }
                    BulkEvent::Complete { data: complete, .. } => data = Some(complete),
                    BulkEvent::Everywhere { .. } => {
                        let object = data.take().context("it is everywhere and was never sent")?;
                        return Ok(self.done(object, begin_ns, now_ns(), cpu_ns() - before));
                    }
                    BulkEvent::Failed(failure) => bail!("{failure}"),
                }
            }
            if let Some(complete) = data.take_if(|_| !self.is_root) {
                // With this poll the root learns that the object is complete.
                self.node.poll(&mut events);
                let end_ns = self.end(&complete, job);
                return Ok(self.done(complete, begin_ns, end_ns, cpu_ns() - before));
            }
            if worked {
                last_worked = Instant::now();
                continue;
            }
            if Instant::now() > until {
                bail!("an object of {bytes} bytes has not arrived in {PATIENCE:?}");
            }
            match self.waiting {
                WaitMode::Interrupt => self.node.wait(PATIENCE),
                WaitMode::Hybrid if last_worked.elapsed() >= SPIN => self.node.wait(PATIENCE),
                WaitMode::Hybrid | WaitMode::Polling => std::thread::yield_now(),
            }
        }
    }

    /// Does a receiver's work with a complete object. Returns the time at which it is done.
    fn end(&mut self, data: &[u8], job: BulkJob) -> u64 {
        match job {
            BulkJob::Read => _ = black_box(sum(data)),
            BulkJob::Copy => self.buffer.copy_from_slice(data),
            _ => {}
        }
        now_ns()
    }

    fn done(&mut self, data: Object, begin_ns: u64, end_ns: u64, cpu_ns: u64) -> BulkReply {
        let digest = XxHash3_64::oneshot(&data);
        if self.is_root {
            self.object = Some(data);
        } else if let Ok(buffer) = data.into_vec() {
            self.buffer = buffer;
        }
        let across = self.across.load(Ordering::Relaxed);
        let sent = across - std::mem::replace(&mut self.across_before, across);
        BulkReply::Done { begin_ns, end_ns, cpu_ns, across: sent, digest }
    }
}

/// A stream that counts the bytes sent over it.
#[derive(Debug)]
struct CountedStream(SocketStream, Arc<AtomicU64>);

impl Stream for CountedStream {
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send(parts).inspect(|bytes| _ = self.1.fetch_add(*bytes as u64, Ordering::Relaxed))
    }

    fn receive(&mut self, spaces: &mut [Space<'_>]) -> io::Result<usize> {
        self.0.receive(spaces)
    }

    fn finish(&mut self) {
        self.0.finish();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
}

/// Returns the rack of a rank.
fn rack(setup: &BulkSetup, rank: u32) -> u32 {
    setup.plan.racks.map_or(0, |racks| rank % racks)
}

fn settings(setup: &BulkSetup) -> BulkSettings {
    let usual = BulkSettings::default();
    let plan = &setup.plan;
    BulkSettings {
        algorithm: match plan.algorithm {
            AlgorithmArg::Pipeline => bulk::Algorithm::BinomialPipeline,
            AlgorithmArg::Chain => bulk::Algorithm::Chain,
            AlgorithmArg::Tree => bulk::Algorithm::BinomialTree,
            AlgorithmArg::Sequential => bulk::Algorithm::Sequential,
            AlgorithmArg::Hybrid => {
                bulk::Algorithm::Hybrid(Racks::grouped((0..setup.members).map(|rank| rack(setup, rank))))
            }
        },
        block_bytes: plan.block.unwrap_or(usual.block_bytes),
        ahead: plan.ahead.unwrap_or(usual.ahead),
        posts_max: plan.posts.unwrap_or(usual.posts_max),
        direct_below: plan.direct.unwrap_or(usual.direct_below),
        ..usual
    }
}

/// Fills `bytes` with words that all depend on `number`.
fn fill(bytes: &mut [u8], number: u64) {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in bytes.chunks_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}

/// Reads all bytes.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    rest.iter().fold(words, |sum, byte| sum.wrapping_add((*byte).into()))
}

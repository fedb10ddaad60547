//! Measures whether io_uring would carry streams better than plain calls do:
//! `cargo run --release --example io_uring`.
//!
//! It contains no fabric, only the calls that a fabric would make. One job sends 120 KB of blocks
//! at once, as a batch of posts does, received into a buffer of 128 KB. The other bounces a byte
//! between processes that look again and again, or that sleep (plain: in `epoll`, as the fabric
//! does). With io_uring, the next receive is posted in the same call as the send, so a half of a
//! round trip is one call instead of two or three. Two processes run on a core each, all jobs in
//! turns. It prints medians, and the ratio of two jobs side by side.
use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::error::Error;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

const BATCH_BYTES: usize = 120 << 10;
const BUFFER_BYTES: usize = 128 << 10;
const BATCHES: usize = 700;
const ROUND_TRIPS: usize = 2_000;
const TURNS: usize = 15;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
enum Job {
    Blocks,
    Bounce,
    SleepyBounce,
}

const JOBS: [(Job, &str); 3] = [
    (Job::Blocks, "blocks, GB/s"),
    (Job::Bounce, "round trip, looking, us"),
    (Job::SleepyBounce, "the same, sleeping"),
];

fn main() -> Outcome<()> {
    if let Some(port) = std::env::args().nth(1) {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port.parse()?))?;
        return Side::new(stream, false)?.run(|_, _, _| {});
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port().to_string();
    let mut child = Killed(Command::new(std::env::current_exe()?).arg(port).spawn()?);
    let mut times: [[Vec<f64>; 2]; 3] = Default::default();
    let mut side = Side::new(listener.accept()?.0, true)?;
    side.run(|job, by_ring, took| times[job as usize][usize::from(by_ring)].push(took.as_secs_f64()))?;
    drop(side);
    child.0.wait()?;
    println!("{:<26}{:>10}{:>10}{:>10}", "", "calls", "io_uring", "ratio");
    for (job, name) in JOBS {
        let [calls, ring] = &times[job as usize];
        let figure = |times: &[f64]| match job {
            Job::Blocks => (BATCHES * BATCH_BYTES) as f64 / median(times.to_vec()) / 1e9,
            _ => median(times.to_vec()) / ROUND_TRIPS as f64 * 1e6,
        };
        let better = match job {
            Job::Blocks => calls.iter().zip(ring).map(|(calls, ring)| calls / ring).collect(),
            _ => calls.iter().zip(ring).map(|(calls, ring)| ring / calls).collect(),
        };
        println!("{name:<26}{:>10.2}{:>10.2}{:>10.2}", figure(calls), figure(ring), median(better));
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

struct Side {
    stream: TcpStream,
    begins: bool,
    epoll: OwnedFd,
    // Dropped before the buffers, because requests in the ring may write there until it is dropped.
    ring: IoUring,
    out: Box<[u8]>,
    buffer: Box<[u8]>,
}

/// The way in which a process waits for bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Look,
    Sleep,
}

impl Side {
    fn new(stream: TcpStream, begins: bool) -> Outcome<Side> {
        let ours = sched_getaffinity(None)?;
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| ours.is_set(*core)).collect();
        if let [first, second, ..] = cores[..] {
            let mut only = CpuSet::new();
            only.set(if begins { first } else { second });
            sched_setaffinity(None, &only)?;
        }
        stream.set_nodelay(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &stream, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let ring = IoUring::builder().setup_single_issuer().build(8)?;
        let (out, buffer) = (vec![1; BATCH_BYTES].into(), vec![0; BUFFER_BYTES].into());
        Ok(Side { stream, begins, epoll, ring, out, buffer })
    }

    /// Runs all jobs in turns, and reports how long each took; the first turn does not count.
    fn run(&mut self, mut tell: impl FnMut(Job, bool, Duration)) -> Outcome<()> {
        for turn in 0..=TURNS {
            for (job, _) in JOBS {
                for by_ring in [false, true] {
                    let start = Instant::now();
                    match (job, by_ring) {
                        (Job::Blocks, _) => self.blocks(by_ring)?,
                        (Job::Bounce, _) => self.bounce(by_ring, Wait::Look)?,
                        (Job::SleepyBounce, _) => self.bounce(by_ring, Wait::Sleep)?,
                    }
                    if turn > 0 {
                        tell(job, by_ring, start.elapsed());
                    }
                }
            }
        }
        Ok(())
    }

    fn blocks(&mut self, by_ring: bool) -> Outcome<()> {
        if self.begins {
            for _ in 0..BATCHES {
                let mut sent = 0;
                while sent < BATCH_BYTES {
                    sent += if by_ring { self.send_by_ring(sent)? } else { self.send(sent)? };
                }
            }
            return self.receive(1, Wait::Look);
        }
        let mut left = BATCHES * BATCH_BYTES;
        while left > 0 {
            left -= if by_ring { self.receive_by_ring()? } else { self.receive_some(BUFFER_BYTES, Wait::Sleep)? };
        }
        self.send(BATCH_BYTES - 1).map(drop)
    }

    fn bounce(&mut self, by_ring: bool, wait: Wait) -> Outcome<()> {
        if by_ring {
            return self.bounce_by_ring(wait);
        }
        for _ in 0..ROUND_TRIPS {
            if self.begins {
                self.send(BATCH_BYTES - 1)?;
            }
            self.receive(1, wait)?;
            if !self.begins {
                self.send(BATCH_BYTES - 1)?;
            }
        }
        Ok(())
    }

    /// Sends the bytes from `from` on, or some of them.
    fn send(&self, from: usize) -> Outcome<usize> {
        Ok(send(&self.stream, &self.out[from..], SendFlags::NOSIGNAL)?)
    }

    fn receive(&mut self, bytes: usize, wait: Wait) -> Outcome<()> {
        self.receive_some(bytes, wait).map(drop)
    }

    fn receive_some(&mut self, most: usize, wait: Wait) -> Outcome<usize> {
        let start = Instant::now();
        for looks in 1u32.. {
            match recv(&self.stream, &mut self.buffer[..most], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err("the other side is gone".into()),
                Ok((got, _)) => return Ok(got),
                Err(Errno::AGAIN | Errno::INTR) if wait == Wait::Sleep => {
                    let mut events = [const { std::mem::MaybeUninit::uninit() }; 1];
                    let second = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
                    epoll::wait(&self.epoll, &mut events, Some(&second))?;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            give_way(looks, start)?;
        }
        unreachable!("it looks until its patience ends")
    }

    fn push(&mut self, entry: &squeue::Entry) -> Outcome<()> {
        // SAFETY: the entry refers to this side's stream and to its buffers, which are neither
        // moved nor used before it has completed, and which outlive the ring.
        Ok(unsafe { self.ring.submission().push(entry) }?)
    }

    fn send_entry(&self, from: usize) -> squeue::Entry {
        let out = &self.out[from..];
        opcode::Send::new(types::Fd(self.stream.as_raw_fd()), out.as_ptr(), out.len() as u32).build().user_data(SEND)
    }

    fn receive_entry(&mut self, most: usize) -> squeue::Entry {
        let fd = types::Fd(self.stream.as_raw_fd());
        opcode::Recv::new(fd, self.buffer.as_mut_ptr(), most as u32).build().user_data(RECEIVE)
    }

    fn send_by_ring(&mut self, from: usize) -> Outcome<usize> {
        let entry = self.send_entry(from);
        self.push(&entry)?;
        self.ring.submit_and_wait(1)?;
        self.completed(SEND, Wait::Sleep)
    }

    fn receive_by_ring(&mut self) -> Outcome<usize> {
        let entry = self.receive_entry(BUFFER_BYTES);
        self.push(&entry)?;
        self.ring.submit_and_wait(1)?;
        self.completed(RECEIVE, Wait::Sleep)
    }

    fn bounce_by_ring(&mut self, wait: Wait) -> Outcome<()> {
        for round in 0..ROUND_TRIPS {
            if self.begins || round > 0 {
                let entry = self.send_entry(BATCH_BYTES - 1);
                self.push(&entry)?;
            }
            let entry = self.receive_entry(1);
            self.push(&entry)?;
            self.ring.submit()?;
            self.completed(RECEIVE, wait)?;
        }
        if !self.begins {
            self.send(BATCH_BYTES - 1)?;
        }
        Ok(())
    }

    /// Waits until the requested operation is done, and discards other completions.
    fn completed(&mut self, what: u64, wait: Wait) -> Outcome<usize> {
        let start = Instant::now();
        for looks in 1u32.. {
            while let Some(done) = self.ring.completion().next() {
                if done.result() <= 0 {
                    return Err(format!("the other side is gone ({})", done.result()).into());
                }
                if done.user_data() == what {
                    return Ok(done.result() as usize);
                }
            }
            match wait {
                Wait::Sleep => _ = self.ring.submit_and_wait(1)?,
                Wait::Look => give_way(looks, start)?,
            }
        }
        unreachable!("it looks until its patience ends")
    }
}

const SEND: u64 = 1;
const RECEIVE: u64 = 2;

/// Yields now and then, and fails after a limit.
fn give_way(looks: u32, start: Instant) -> Outcome<()> {
    if looks.is_multiple_of(32) {
        if start.elapsed() > PATIENCE {
            return Err("the other side does not move".into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

//! Calls all the time, with so many on the way: from inside a member, or as a client of its socket.
use crate::frames::{Incoming, parse_reply, request};
use crate::measured::{CallsRun, Measuring};
use crate::store::{DurabilityArg, Operation, Replying, Store, get, key, put};
use crate::tasks::Tasks;
use serde::{Deserialize, Serialize};
use spindle_object::Replicated;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a call may take until the measurement is given up.
pub(crate) const CALL_MAX: Duration = Duration::from_secs(20);

/// One run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) operation: Operation,
    pub(crate) size: u32,
    pub(crate) keys: u32,
    pub(crate) outstanding: u32,
    pub(crate) time: Duration,
}

impl Job {
    fn check(&self, reply: &[u8]) -> io::Result<()> {
        let expected = match self.operation {
            Operation::Put => 8,
            Operation::Get => self.size as usize,
        };
        let len = reply.len();
        if len == expected { Ok(()) } else { Err(io::Error::other(format!("a reply of {len} bytes, not {expected}"))) }
    }

    fn value(&self) -> Vec<u8> {
        vec![1; self.size as usize]
    }
}

/// Sets all keys once, so that each get finds a value.
pub(crate) fn fill(store: &Replicated<Store>, job: &Job) -> io::Result<()> {
    let value = job.value();
    let start = |number: u32| put(store, DurabilityArg::Memory, &key(number % job.keys), &value);
    let mut left = job.keys.saturating_sub(job.outstanding);
    run(job.outstanding, start, |_, _| {
        let has_more = left > 0;
        left = left.saturating_sub(1);
        Ok(has_more)
    })
}

/// Calls from inside the member.
pub(crate) fn call_inside(store: &Replicated<Store>, durability: DurabilityArg, job: &Job) -> io::Result<CallsRun> {
    let value = job.value();
    let start = |number: u32| match job.operation {
        Operation::Put => put(store, durability, &key(number % job.keys), &value),
        Operation::Get => get(store, &key(number % job.keys)),
    };
    let mut measuring = Measuring::new(job.time);
    run(job.outstanding, start, |called, reply| {
        job.check(&reply)?;
        Ok(measuring.note(called).is_some())
    })?;
    Ok(measuring.finish())
}

/// Has `outstanding` futures on the way, which `start` makes from numbers. `then` gets the time at
/// which one was started and its reply, and returns whether another is to be started.
fn run<'a>(
    outstanding: u32,
    start: impl Fn(u32) -> Replying<'a>,
    mut then: impl FnMut(Instant, Vec<u8>) -> io::Result<bool>,
) -> io::Result<()> {
    let mut tasks = Tasks::new(outstanding)?;
    let (mut starting, mut number, mut failed) = (outstanding, 0_u32, None);
    let mut worked = Instant::now();
    loop {
        for _ in 0..starting {
            tasks.start(Instant::now(), start(number));
            number = number.wrapping_add(1);
        }
        starting = 0;
        tasks.finished(|called, reply| match reply.map_err(io::Error::other).and_then(|reply| then(called, reply)) {
            Ok(goes_on) => starting += u32::from(goes_on),
            Err(error) => failed = Some(error),
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if starting == 0 && tasks.is_idle() {
            return Ok(());
        }
        if starting > 0 {
            worked = Instant::now();
        } else if !tasks.yields(worked) && !tasks.wait(None, CALL_MAX)? {
            return Err(io::Error::other(format!("no call was answered in {CALL_MAX:?}")));
        }
    }
}

/// Calls through the socket of a member, with one connection.
pub(crate) fn call_by_socket(address: SocketAddr, job: &Job) -> io::Result<CallsRun> {
    let mut stream = TcpStream::connect_timeout(&address, CALL_MAX)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(CALL_MAX))?;
    stream.set_write_timeout(Some(CALL_MAX))?;
    let value = job.value();
    let (mut input, mut output, mut number) = (Incoming::default(), Vec::new(), 0_u32);
    let mut ask = |output: &mut Vec<u8>, call| {
        request(output, call, job.operation, number % job.keys, &value);
        number = number.wrapping_add(1);
    };
    let mut measuring = Measuring::new(job.time);
    let mut called = vec![Instant::now(); job.outstanding as usize];
    (0..job.outstanding).for_each(|call| ask(&mut output, call));
    let mut left = job.outstanding;
    while left > 0 {
        stream.write_all(&output)?;
        output.clear();
        if input.read(&mut stream)? == 0 {
            return Err(io::Error::other("the member has closed the connection"));
        }
        while let Some((call, byte, rest)) = input.next()? {
            job.check(parse_reply(byte, rest).map_err(io::Error::other)?)?;
            let no_call = || io::Error::other(format!("a reply to call {call}, which was not made"));
            let called = called.get_mut(call as usize).ok_or_else(no_call)?;
            match measuring.note(*called) {
                Some(now) => {
                    *called = now;
                    ask(&mut output, call);
                }
                None => left -= 1,
            }
        }
    }
    Ok(measuring.finish())
}

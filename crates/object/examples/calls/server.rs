//! A member's socket: each connection has a thread, which runs the calls of its client.
use crate::frames::{Incoming, parse_request, reply};
use crate::store::{DurabilityArg, Operation, Store, get, put};
use crate::tasks::Tasks;
use rustix::event::PollFlags;
use spindle_object::Replicated;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

/// The calls of one connection that are on the way. The next ones wait in the socket.
const CALLS_MAX: u32 = 256;
/// How long a connection may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(3600);

/// Starts to accept connections on loopback. Returns the address.
pub(crate) fn listen(store: &Replicated<Store>, durability: DurabilityArg) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (address, store) = (listener.local_addr()?, store.clone());
    // It ends with the process.
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let store = store.clone();
            thread::spawn(move || {
                if let Err(error) = serve(&store, durability, stream) {
                    eprintln!("a connection failed: {error}");
                }
            });
        }
    });
    Ok(address)
}

fn serve(store: &Replicated<Store>, durability: DurabilityArg, mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut tasks = Tasks::new(CALLS_MAX)?;
    let (mut input, mut output) = (Incoming::default(), Vec::new());
    let (mut has_ended, mut worked) = (false, Instant::now());
    loop {
        if !has_ended && !tasks.is_full() {
            match input.read(&mut stream) {
                Ok(read) => (has_ended, worked) = (read == 0, Instant::now()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        while !tasks.is_full()
            && let Some((call, byte, rest)) = input.next()?
        {
            let (operation, key, value) = parse_request(byte, rest)?;
            let replying = match operation {
                Operation::Put => put(store, durability, key, value),
                Operation::Get => get(store, key),
            };
            tasks.start(call, replying);
        }
        let any = tasks.finished(|call, result| reply(&mut output, call, &result));
        send(&mut stream, &mut output)?;
        if any {
            // Requests that have come already may have a slot now.
            worked = Instant::now();
            continue;
        }
        if has_ended && tasks.is_idle() {
            return Ok(());
        }
        if tasks.yields(worked) {
            continue;
        }
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::OUT, !output.is_empty());
        wanted.set(PollFlags::IN, !has_ended && !tasks.is_full());
        let socket = (!wanted.is_empty()).then(|| (stream.as_fd(), wanted));
        if !tasks.wait(socket, SILENCE_MAX)? {
            return Err(io::Error::new(ErrorKind::TimedOut, format!("nothing happened in {SILENCE_MAX:?}")));
        }
    }
}

/// Sends as much as the socket takes.
fn send(stream: &mut TcpStream, output: &mut Vec<u8>) -> io::Result<()> {
    while !output.is_empty() {
        match stream.write(output) {
            Ok(written) => drop(output.drain(..written)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

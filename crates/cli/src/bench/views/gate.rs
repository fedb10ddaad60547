//! A proxy in front of a member, which breaks the connections that pass through it.
use crate::bench::cluster::free_address;
use anyhow::Context;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The proxy. It runs until the process ends.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    /// The address announced to other members.
    pub(super) front: String,
    /// Where the member listens.
    pub(super) back: String,
    /// Both ends of each connection that has passed since the last break.
    ends: Arc<Mutex<Vec<TcpStream>>>,
}

impl Gate {
    pub(super) fn open() -> anyhow::Result<Gate> {
        let listener = TcpListener::bind("127.0.0.1:0").context("can't listen on loopback")?;
        let front = listener.local_addr().context("a listener without an address")?.to_string();
        let gate = Gate { front, back: free_address()?, ends: Arc::default() };
        let it = gate.clone();
        thread::Builder::new().name("gate".into()).spawn(move || {
            // A connection that can't be passed on is closed. The member that made it then makes it
            // again.
            listener.incoming().flatten().for_each(|client| drop(it.pass(client)));
        })?;
        Ok(gate)
    }

    fn pass(&self, client: TcpStream) -> anyhow::Result<()> {
        let server = TcpStream::connect(&self.back)?;
        for end in [&client, &server] {
            end.set_nodelay(true)?;
        }
        let ends = [client.try_clone()?, server.try_clone()?];
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).extend(ends);
        let (from, to) = (client.try_clone()?, server.try_clone()?);
        for (from, to) in [(from, to), (server, client)] {
            thread::Builder::new().name("gate".into()).spawn(move || pump(from, &to))?;
        }
        Ok(())
    }

    /// Breaks all connections, with the data on its way in them.
    pub(super) fn break_all(&self) {
        for end in self.ends.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

fn pump(mut from: TcpStream, mut to: &TcpStream) {
    let mut buffer = vec![0; 256 << 10];
    while let Ok(got @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..got]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

//! Seeds that are evicted because the network between hosts loses their traffic for a while, and
//! that join again.
//!
//! Each member is reached through a proxy, which knows the two members of each connection.
mod common;

use common::{Running, Scratch, seeds};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// The proxies for connections between the members.
struct Network {
    /// The addresses of the proxies. The next field has the addresses at which members listen.
    fronts: Vec<String>,
    backs: Vec<String>,
    /// The members that are cut off from all others.
    cut: Mutex<BTreeSet<usize>>,
    changed: Condvar,
}

impl Network {
    fn of(count: usize) -> Arc<Network> {
        let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let fronts = listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
        let (cut, changed) = (Mutex::default(), Condvar::new());
        let network = Arc::new(Network { fronts, backs: seeds(count as u32), cut, changed });
        for (to, listener) in listeners.into_iter().enumerate() {
            let network = Arc::clone(&network);
            thread::spawn(move || {
                for client in listener.incoming().map_while(Result::ok) {
                    let network = Arc::clone(&network);
                    thread::spawn(move || network.pass(client, to));
                }
            });
        }
        network
    }

    /// Forwards a connection to a member.
    fn pass(self: Arc<Network>, mut client: TcpStream, to: usize) -> Option<()> {
        // The connection begins with a header of 16 bytes, which contains the length of the hello.
        // The hello contains the address of the connecting member.
        let mut hello = vec![0; 16];
        client.read_exact(&mut hello).ok()?;
        let len = u32::from_le_bytes(hello[12..].try_into().unwrap()) as usize;
        hello.resize(16 + len, 0);
        client.read_exact(&mut hello[16..]).ok()?;
        let holds = |address: &String| hello.windows(address.len()).any(|bytes| bytes == address.as_bytes());
        let from = self.fronts.iter().position(holds)?;
        self.wait_until_open(from, to);
        let mut server = TcpStream::connect(&self.backs[to]).ok()?;
        server.write_all(&hello).ok()?;
        [&client, &server].iter().for_each(|stream| stream.set_nodelay(true).unwrap());
        let (there, back) = ((client.try_clone().ok()?, server.try_clone().ok()?), (server, client));
        let network = Arc::clone(&self);
        thread::spawn(move || network.pump(there, from, to));
        self.pump(back, from, to);
        Some(())
    }

    fn pump(&self, (mut source, mut sink): (TcpStream, TcpStream), from: usize, to: usize) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(got @ 1..) = source.read(&mut buffer) {
            self.wait_until_open(from, to);
            if sink.write_all(&buffer[..got]).is_err() {
                break;
            }
        }
        self.wait_until_open(from, to);
        let _ = sink.shutdown(Shutdown::Write);
    }

    /// Waits until traffic can pass. It is delayed and not lost, because the hosts would send lost
    /// traffic again.
    fn wait_until_open(&self, from: usize, to: usize) {
        let cut = self.cut.lock().unwrap();
        let is_lost = |cut: &mut BTreeSet<usize>| cut.contains(&from) || cut.contains(&to);
        drop(self.changed.wait_while(cut, is_lost).unwrap());
    }

    fn cut(&self, members: impl IntoIterator<Item = usize>) {
        *self.cut.lock().unwrap() = members.into_iter().collect();
        self.changed.notify_all();
    }
}

/// Starts a group of `count` members, the first `seeds` of which are seeds. Cuts off `cut` until
/// the others have evicted them, and waits until all have joined again.
fn come_back(count: usize, seeds: usize, cut: &[usize]) {
    let (scratch, network) = (Scratch::new(), Network::of(count));
    let seeds = network.fronts[..seeds].join(",");
    let members = (0..count).map(|i| {
        let mut command = scratch.member("lossy", count as u32);
        command.args(["--id", &(i + 1).to_string(), "--seeds", &seeds, "--suspect-after", "1", "--rejoin"]);
        command.args(["--listen", &network.backs[i], "--advertise", &network.fronts[i]]);
        command.arg("--runtime-dir").arg(scratch.path(&format!("host{i}"))).stdin(Stdio::piped());
        Running::start(&mut command)
    });
    let mut members: Vec<Running> = members.collect();
    members.iter_mut().for_each(|member| drop(member.event("joined")));
    network.cut(cut.iter().copied());
    let left: Vec<usize> = (0..count).filter(|i| !cut.contains(i)).collect();
    let ids: Vec<u64> = left.iter().map(|i| *i as u64 + 1).collect();
    left.iter().for_each(|i| drop(members[*i].view(&ids)));
    network.cut([]);
    for i in cut {
        assert_eq!(members[*i].event("evicted")["given_up"], false);
    }
    // They have new ids, and are listed after the members that stayed.
    members[left[0]].larger_view(&ids, count);
    members[left[0]].send(b"late\n");
    for done in Running::all_done(members) {
        assert!(done.expect(0).stdout.ends_with(b"late\n"));
    }
}

#[test]
fn a_seed_that_is_evicted_because_its_traffic_is_lost_comes_back() {
    come_back(3, 3, &[0]);
}

#[test]
fn seeds_that_are_all_evicted_because_their_traffic_is_lost_come_back() {
    come_back(5, 2, &[0, 1]);
}

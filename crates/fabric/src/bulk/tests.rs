//! Bulk streams over TLS: bytes that a stream has read before its user took it over are not lost.
use super::{BlockHead, BlockStore, BulkDown, BulkLinks, LinkReadiness, PeerWord};
use crate::conformance::PATIENCE;
use spindle_core::Rank;
use spindle_core::rdmc::{Columns, Slot};
use spindle_transport::net::{Identity, TlsStream};
use spindle_transport::testing::Authority;
use spindle_transport::{Connection, SocketOptions, SocketStream, Space, Stream};
use std::io::{self, IoSlice};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// One member of a pair: the block that it sends, the memory for the one it receives, and the
/// counters that arrived.
#[derive(Default)]
struct End {
    block: Vec<u8>,
    place: Vec<u8>,
    told: Vec<PeerWord>,
}

impl BlockStore for End {
    fn block(&self, _: &BlockHead) -> &[u8] {
        &self.block
    }

    fn expect(&mut self, _: Rank, block: &BlockHead) -> Result<bool, BulkDown> {
        self.place = vec![0; block.bytes as usize];
        Ok(true)
    }

    fn place(&mut self, _: Rank, _: &BlockHead) -> Option<&mut [u8]> {
        Some(&mut self.place)
    }

    fn arrived(&mut self, _: Rank, word: PeerWord) -> Result<(), BulkDown> {
        self.told.push(word);
        Ok(())
    }
}

fn receive(stream: &mut dyn Stream, mut bytes: usize, other: &mut dyn Stream) {
    let start = Instant::now();
    while bytes > 0 {
        match stream.receive(&mut [Space::of(&mut vec![0; bytes])]) {
            Ok(got) => bytes -= got,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}"),
        }
        // It takes part in the handshake, and is sent nothing else meanwhile.
        assert!(other.receive(&mut [Space::of(&mut [0])]).is_err());
        assert!(start.elapsed() < PATIENCE);
    }
}

/// The dialling and the accepting end. The accepting end has read the hello and answered; the
/// dialling end has not read the answer.
fn handed_over(identity: &Identity) -> [TlsStream; 2] {
    let (near, far) = UnixStream::pair().unwrap();
    let stream = |socket, dialled| {
        TlsStream::new(SocketStream::new(socket, &SocketOptions::default()).unwrap(), identity, dialled).unwrap()
    };
    let (mut near, mut far) = (stream(near, true), stream(far, false));
    assert_eq!(near.send(&[IoSlice::new(b"hello")]).unwrap(), 5);
    receive(&mut far, 5, &mut near);
    assert_eq!(far.send(&[IoSlice::new(b"welcome")]).unwrap(), 7);
    [near, far]
}

fn links(me: u32, stream: TlsStream) -> BulkLinks {
    let peer = Rank(1 - me);
    BulkLinks::new(Rank(me), &[peer], 7, [(peer, Box::new(stream) as Connection)]).unwrap()
}

fn columns(steps: u64) -> Columns {
    Columns { steps, ..Columns::default() }
}

fn send(links: &mut BulkLinks, to: u32, end: &End) {
    links.send(Rank(to), end, &mut vec![]);
}

/// Makes one step as a member of a bulk group does: it looks only at what is ready.
fn step(links: &mut BulkLinks, peer: u32, end: &mut End, at_most: Duration) {
    let mut ready = vec![];
    links.ready(at_most, &mut ready);
    for LinkReadiness { to_receive, to_send, .. } in ready {
        if to_send {
            send(links, peer, end);
        }
        if to_receive {
            let (_, down) = links.receive(Rank(peer), end);
            assert!(down.is_none(), "{down:?}");
        }
    }
}

/// The dialled side begins at once, so its first frames come with its answer to the hello.
#[test]
fn bytes_that_tls_read_with_the_hello_are_received() {
    let identity = Authority::new().identity();
    let [mut near, far] = handed_over(&identity);
    let mut far_links = links(1, far);
    let mut far = End::default();
    far_links.post_columns(Rank(0), Slot(0), columns(3));
    send(&mut far_links, 0, &far);
    receive(&mut near, 7, &mut Idle);
    let (mut near_links, mut near) = (links(0, near), End::default());
    let start = Instant::now();
    while near.told.is_empty() {
        step(&mut near_links, 1, &mut near, Duration::ZERO);
        assert!(start.elapsed() < PATIENCE, "its counters were read before and are not told of");
    }
    assert_eq!(near.told, [PeerWord::Columns { slot: Slot(0), columns: columns(3) }]);
    step(&mut far_links, 0, &mut far, Duration::ZERO);
}

#[test]
fn blocks_of_every_size_pass_over_tls_both_ways_at_once() {
    let identity = Authority::new().identity();
    let sizes = [0, 1, 7, 2_047, 2_048, 4_096, 16_383, 16_384, 16_385, 65_536, 200_000, 262_145, 1 << 20];
    for (i, size) in (0..).zip(sizes) {
        let [mut near, far] = handed_over(&identity);
        receive(&mut near, 7, &mut Idle);
        let mut members = [(links(0, near), End::default()), (links(1, far), End::default())];
        for (me, (links, end)) in (0..).zip(&mut members) {
            // The other direction has another size.
            let bytes = sizes[(i + 5 * me as usize) % sizes.len()].max(size * me as usize);
            end.block = (0..bytes).map(|n| (n * 31 + me as usize) as u8).collect();
            let head = BlockHead { slot: Slot(0), at: 0, bytes: bytes as u64, columns: columns(1) };
            links.post_block(Rank(1 - me), head);
            links.post_columns(Rank(1 - me), Slot(1), columns(2));
            links.send(Rank(1 - me), end, &mut vec![]);
        }
        let start = Instant::now();
        while members.iter().any(|(_, end)| end.told.len() < 2) {
            for (me, (links, end)) in (0..).zip(&mut members) {
                step(links, 1 - me, end, Duration::ZERO);
            }
            let told = members.each_ref().map(|(_, end)| end.told.len());
            assert!(start.elapsed() < PATIENCE, "of {size} bytes {told:?} came");
        }
        assert!(members[0].1.place == members[1].1.block && members[1].1.place == members[0].1.block);
    }
}

/// A stream that is not used.
#[derive(Debug)]
struct Idle;

impl Stream for Idle {
    fn send(&mut self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(0)
    }

    fn receive(&mut self, _: &mut [Space<'_>]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn finish(&mut self) {}

    fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        unreachable!("nobody waits for it")
    }
}

//! Cases of publishers over a fabric, with real engines on both sides: exactly the committed
//! messages are delivered.
use super::harness::{ConnectedGroup, Harness, PATIENCE, assert_panics, view};
use crate::fabric::Fabric;
use crate::publisher::{Frame, PublishError, Publisher, Room};
use spindle_core::{Ablation, Batch, ClaimError, Engine, Rank, Rows, State, SubgroupId, Time, Upcalls};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

pub mod threaded;

const EVERYONE: SubgroupId = SubgroupId(0);

/// Everything that one member has delivered, and the room that its upcall rings.
struct DeliveryLog {
    messages: Vec<(Rank, Vec<u8>)>,
    /// The room of the ring whose publisher the case holds.
    room: Option<Room>,
}

impl<R: Rows> Upcalls<R> for DeliveryLog {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_, R>) {
        self.messages.extend(batch.map(|message| (message.sender, message.payload.to_vec())));
    }

    fn room(&mut self, _: SubgroupId) {
        self.room.iter().for_each(Room::ring_if_waiting);
    }
}

struct PublishingMember<F> {
    engine: Engine,
    fabric: F,
    log: DeliveryLog,
}

impl<F: Fabric> PublishingMember<F> {
    fn poll(&mut self) -> bool {
        self.fabric.progress() | self.engine.poll(Time(0), &mut self.fabric, &mut self.log).worked
    }

    fn publisher(&mut self) -> Publisher {
        let publisher = self.fabric.publisher(self.engine.claims(EVERYONE).expect("everybody sends"));
        self.log.room = Some(publisher.room());
        publisher
    }
}

/// Engines over connected fabrics. Rings hold 8 messages of 100 bytes, or more.
struct Nodes<H: Harness> {
    fabrics: Vec<H::Fabric>,
    engines: Vec<(Engine, DeliveryLog)>,
}

impl<H: Harness> Nodes<H> {
    fn new(members: u32) -> Nodes<H> {
        let view = view(members, 8);
        let ConnectedGroup { fabrics, .. } = ConnectedGroup::<H>::of(&view);
        let engine = |rank| Engine::new(view.clone(), rank, Ablation::default()).expect("the view is sound");
        let log = || DeliveryLog { messages: Vec::new(), room: None };
        Nodes { fabrics, engines: view.ranks().map(|rank| (engine(rank), log())).collect() }
    }

    fn publisher(&mut self, index: usize) -> Publisher {
        let (engine, log) = &mut self.engines[index];
        let publisher = self.fabrics[index].publisher(engine.claims(EVERYONE).expect("everybody sends"));
        log.room = Some(publisher.room());
        publisher
    }

    /// Polls all members until none has work.
    fn run(&mut self) {
        for _ in 0..10_000 {
            let polled = self.fabrics.iter_mut().zip(&mut self.engines);
            let worked =
                polled.fold(false, |worked, (fabric, (engine, log))| engine.poll(Time(0), fabric, log).worked | worked);
            H::settle(&mut self.fabrics);
            if !worked {
                return;
            }
        }
        panic!("the engines don't come to rest");
    }

    /// Returns the messages that all members have delivered, which must be the same everywhere, and
    /// forgets them.
    #[track_caller]
    fn delivered(&mut self) -> Vec<(Rank, Vec<u8>)> {
        self.run();
        let mut logs = self.engines.iter_mut().map(|(_, log)| std::mem::take(&mut log.messages));
        let first = logs.next().expect("there is a member");
        assert!(logs.all(|log| log == first), "members differ");
        first
    }

    #[track_caller]
    fn payloads(&mut self) -> Vec<Vec<u8>> {
        self.delivered().into_iter().map(|(_, payload)| payload).collect()
    }

    fn finished(&self) -> bool {
        self.engines.iter().all(|(engine, _)| *engine.state() == State::Finished)
    }

    fn into_nodes(self) -> Vec<PublishingMember<H::Fabric>> {
        let pairs = self.fabrics.into_iter().zip(self.engines);
        pairs.map(|(fabric, (engine, log))| PublishingMember { engine, fabric, log }).collect()
    }
}

fn fill(mut frame: Frame<'_>, payload: &[u8]) {
    frame[..payload.len()].copy_from_slice(payload);
    frame.commit_len(payload.len() as u64);
}

fn send(publisher: &mut Publisher, payload: &[u8]) {
    fill(publisher.claim(payload.len() as u64).expect("there is room"), payload);
}

/// Commits frames until the ring is full. Returns their number.
fn fill_up(publisher: &mut Publisher) -> usize {
    for sent in 0.. {
        match publisher.claim(100) {
            Ok(frame) => fill(frame, &[sent as u8; 100]),
            Err(ClaimError::Full) => return sent,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("a ring is finite")
}

/// Counts wakes.
#[derive(Default)]
struct WakeCount(AtomicU64);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll_once<T>(future: &mut (impl Future<Output = T> + Unpin), woken: &Arc<WakeCount>) -> Poll<T> {
    Pin::new(future).poll(&mut Context::from_waker(&Waker::from(woken.clone())))
}

/// All members read a frame that was filled in place, in one order.
pub fn frames_are_read_by_everyone<H: Harness>() {
    for members in [1, 2, 5, 16] {
        let mut nodes = Nodes::<H>::new(members);
        let mut publishers: Vec<Publisher> = (0..members as usize).map(|index| nodes.publisher(index)).collect();
        for publisher in &mut publishers {
            send(publisher, b"first");
            send(publisher, b"second");
        }
        let delivered = nodes.delivered();
        assert_eq!(delivered.len(), members as usize * 2);
        for rank in (0..members).map(Rank) {
            let mine: Vec<&[u8]> = delivered.iter().filter(|m| m.0 == rank).map(|m| &m.1[..]).collect();
            assert_eq!(mine, [&b"first"[..], b"second"]);
        }
    }
}

/// No part of a frame is seen before it is committed.
pub fn a_frame_is_seen_after_its_commit<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let mut publisher = nodes.publisher(0);
    let mut frame = publisher.claim(3).unwrap();
    frame.copy_from_slice(b"abc");
    assert_eq!(nodes.payloads(), Vec::<Vec<u8>>::new());
    frame.commit();
    assert_eq!(nodes.payloads(), [b"abc"]);
}

/// Every length from zero to the maximum, over many laps of the ring.
pub fn messages_of_every_length_survive_many_laps<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let mut publisher = nodes.publisher(0);
    for round in 0..3u8 {
        for len in 0..=100u8 {
            let payload: Vec<u8> = (0..len).map(|byte| byte.wrapping_mul(7) ^ len ^ round).collect();
            send(&mut publisher, &payload);
            assert_eq!(nodes.payloads(), [payload]);
        }
    }
}

/// A full ring refuses at once; delivery everywhere makes room again.
pub fn a_full_ring_has_room_again_after_delivery<H: Harness>() {
    let mut nodes = Nodes::<H>::new(3);
    let mut publisher = nodes.publisher(1);
    for _ in 0..4 {
        let sent = fill_up(&mut publisher);
        assert!(sent >= 8);
        assert_eq!(publisher.claim(100).err(), Some(ClaimError::Full));
        assert_eq!(nodes.delivered().len(), sent);
    }
}

/// The limit is that of the subgroup, and the error names it.
pub fn a_message_over_the_limit_is_refused<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let mut publisher = nodes.publisher(0);
    assert_eq!(publisher.claim(101).err(), Some(ClaimError::TooLong { len: 101, max: 100 }));
    assert_eq!(publisher.claim(u64::MAX).err(), Some(ClaimError::TooLong { len: u64::MAX, max: 100 }));
    let late = publisher.claim_timeout(101, Duration::ZERO).err();
    assert_eq!(late, Some(PublishError::TooLong { len: 101, max: 100 }));
    send(&mut publisher, b"fits");
    assert_eq!(nodes.payloads(), [b"fits"]);
}

/// A committed message may be shorter than its claim.
pub fn a_frame_may_be_committed_in_part<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let mut publisher = nodes.publisher(0);
    let mut frame = publisher.claim(100).unwrap();
    assert_eq!(frame.len(), 100);
    frame[..4].copy_from_slice(b"part");
    frame.commit_len(4);
    publisher.claim(50).unwrap().commit_len(0);
    assert_eq!(nodes.payloads(), [b"part".to_vec(), vec![]]);
}

/// A longer commit would show bytes that were never claimed.
pub fn committing_more_than_was_claimed_panics<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let mut publisher = nodes.publisher(0);
    assert_panics("a longer commit", || publisher.claim(4).unwrap().commit_len(5));
    send(&mut publisher, b"after");
    assert_eq!(nodes.payloads(), [b"after"]);
}

/// A dropped frame is a void; its space is used again.
pub fn a_dropped_frame_is_not_delivered<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let mut publisher = nodes.publisher(0);
    for round in 0..100 {
        drop(publisher.claim(100).unwrap());
        if round % 3 == 0 {
            send(&mut publisher, b"between");
            assert_eq!(nodes.payloads(), [b"between"]);
        }
        nodes.run();
    }
    assert!(nodes.payloads().is_empty());
}

/// A panic of the filler does not stop the ring either.
pub fn a_panic_while_filling_gives_the_frame_up<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let mut publisher = nodes.publisher(0);
    assert_panics("the filler", || {
        let mut frame = publisher.claim(8).unwrap();
        frame[0] = 1;
        panic!("while filling");
    });
    send(&mut publisher, b"after");
    assert_eq!(nodes.payloads(), [b"after"]);
}

/// Once its last publisher is dropped, a member has finished. Once all members have finished, so
/// has the group.
pub fn dropping_the_publishers_finishes_the_group<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let (mut first, second) = (nodes.publisher(0), nodes.publisher(1));
    send(&mut first, b"last words");
    drop(first);
    assert_eq!(nodes.payloads(), [b"last words"]);
    assert!(!nodes.finished());
    drop(second);
    nodes.run();
    assert!(nodes.finished());
}

/// A ring closes with the last of its publishers, not with the first.
pub fn a_shared_ring_closes_with_its_last_publisher<H: Harness>() {
    let mut nodes = Nodes::<H>::new(1);
    let first = nodes.publisher(0).share();
    let second = first.clone();
    drop(first);
    nodes.run();
    assert!(!nodes.finished());
    fill(second.claim(5).unwrap(), b"still");
    assert_eq!(nodes.payloads(), [b"still"]);
    drop(second);
    nodes.run();
    assert!(nodes.finished());
}

/// Several frames may be open at once and committed in any order; they are delivered in the order
/// of their claims.
pub fn shared_frames_overlap_and_keep_the_order_of_claims<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let publisher = nodes.publisher(0).share();
    let frames: Vec<Frame<'_>> = (0..3).map(|_| publisher.claim(1).unwrap()).collect();
    for (i, frame) in frames.into_iter().enumerate().rev() {
        assert_eq!(nodes.payloads(), Vec::<Vec<u8>>::new());
        fill(frame, &[i as u8]);
    }
    assert_eq!(nodes.payloads(), [[0], [1], [2]]);
}

/// Two publishers could be given the same memory.
pub fn a_second_publisher_for_a_ring_panics<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let mut publisher = nodes.publisher(0);
    assert_panics("a second publisher", || _ = nodes.publisher(0));
    send(&mut publisher, b"fine");
    drop(publisher);
    assert_panics("a later publisher", || _ = nodes.publisher(0));
    assert_eq!(nodes.payloads(), [b"fine"]);
}

/// Commits, voids, skipped rounds and the end are work for a sleeping engine; a claim is not.
pub fn publishing_ends_a_sleep<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let mut publisher = Some(nodes.publisher(0));
    let mut after = |action: &mut dyn FnMut(&mut Option<Publisher>)| {
        nodes.fabrics[0].begin_sleep();
        action(&mut publisher);
        nodes.fabrics[0].sleep(Duration::ZERO)
    };
    assert!(after(&mut |publisher| publisher.as_mut().unwrap().claim(4).unwrap().commit()));
    assert!(after(&mut |publisher| drop(publisher.as_mut().unwrap().claim(4).unwrap())));
    assert!(after(&mut |publisher| publisher.as_mut().unwrap().skip_rounds(3)));
    assert!(!after(&mut |publisher| _ = publisher.as_mut().unwrap().claim(1000).err()));
    assert!(after(&mut |publisher| *publisher = None));
}

/// The group advances over declared rounds of silence without nulls of any member.
pub fn skipped_rounds_let_others_deliver<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let (quiet, mut busy) = (nodes.publisher(0), nodes.publisher(1));
    quiet.skip_rounds(5);
    for i in 0..5 {
        send(&mut busy, &[i]);
    }
    assert_eq!(nodes.payloads(), [[0], [1], [2], [3], [4]]);
}

/// A wait for room ends at its deadline, and reports its length.
pub fn a_claim_gives_up_at_its_deadline<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let mut publisher = nodes.publisher(0);
    let sent = fill_up(&mut publisher);
    assert!(matches!(publisher.claim_timeout(100, Duration::ZERO), Err(PublishError::Full { .. })));
    let wait = Duration::from_millis(5);
    let error = publisher.claim_timeout(100, wait).err();
    assert!(matches!(error, Some(PublishError::Full { waited }) if waited >= wait / 2), "{error:?}");
    // The failed call claimed nothing.
    assert_eq!(nodes.delivered().len(), sent);
    fill(publisher.claim_timeout(5, Duration::ZERO).unwrap(), b"later");
    assert_eq!(nodes.payloads(), [b"later"]);
}

/// A task is woken when there is room, and only then.
pub fn an_async_claim_is_woken_by_room<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let mut publisher = nodes.publisher(0);
    let sent = fill_up(&mut publisher);
    let woken = Arc::new(WakeCount::default());
    let mut claiming = publisher.claim_async(4);
    assert!(poll_once(&mut claiming, &woken).is_pending());
    assert!(poll_once(&mut claiming, &woken).is_pending());
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    assert_eq!(nodes.delivered().len(), sent);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    let Poll::Ready(Ok(frame)) = poll_once(&mut claiming, &woken) else { panic!("there is room") };
    fill(frame, b"task");
    assert_eq!(nodes.payloads(), [b"task"]);
}

/// A cancelled task leaves nothing behind.
pub fn a_dropped_async_claim_is_forgotten<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let mut publisher = nodes.publisher(0);
    fill_up(&mut publisher);
    let woken = Arc::new(WakeCount::default());
    let mut claiming = publisher.claim_async(4);
    assert!(poll_once(&mut claiming, &woken).is_pending());
    drop(claiming);
    nodes.run();
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    assert_eq!(Arc::strong_count(&woken), 1);
}

/// Every task that waits is woken, each once.
pub fn all_waiting_tasks_are_woken<H: Harness>() {
    let mut nodes = Nodes::<H>::new(1);
    let mut publisher = nodes.publisher(0);
    fill_up(&mut publisher);
    let publisher = publisher.share();
    let wakers: Vec<Arc<WakeCount>> = (0..3).map(|_| Arc::default()).collect();
    let mut claims: Vec<_> = wakers.iter().map(|_| publisher.claim_async(4)).collect();
    for (claim, woken) in claims.iter_mut().zip(&wakers) {
        assert!(poll_once(claim, woken).is_pending());
    }
    nodes.run();
    assert!(wakers.iter().all(|woken| woken.0.load(Ordering::Relaxed) == 1));
    for (claim, woken) in claims.iter_mut().zip(&wakers) {
        assert!(matches!(poll_once(claim, woken), Poll::Ready(Ok(_))));
    }
}

/// When the engine stops, no claimer waits for it.
pub fn the_end_of_the_engine_ends_waits<H: Harness>() {
    let mut nodes = Nodes::<H>::new(2);
    let mut publisher = nodes.publisher(0);
    fill_up(&mut publisher);
    let room = publisher.room();
    let woken = Arc::new(WakeCount::default());
    let mut claiming = publisher.claim_async(4);
    assert!(poll_once(&mut claiming, &woken).is_pending());
    room.end();
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(matches!(poll_once(&mut claiming, &woken), Poll::Ready(Err(PublishError::Ended))));
    drop(claiming);
    let error = publisher.claim_timeout(4, PATIENCE).err();
    assert_eq!(error, Some(PublishError::Ended));
}

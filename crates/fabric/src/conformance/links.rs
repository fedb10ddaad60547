//! Properties that hold for every kind of link to other hosts, and the parts that their tests
//! share.
use super::harness::{PATIENCE, view};
use crate::connections::Connections;
use crate::fabric::Fabric;
use crate::mesh::Mesh;
use crate::tcp::Down;
use spindle_core::{Ablation, Batch, Engine, Layout, Rank, Rows, State, SubgroupId, Table, Time, Upcalls, View};
use std::ops::Range;
use std::time::{Duration, Instant};

/// The ranks of a view of three members.
pub const EVERYONE: [Rank; 3] = [Rank(0), Rank(1), Rank(2)];

/// A word of a control block that only tests use.
pub const COUNT: u64 = 64;
/// Another such word.
pub const OTHER: u64 = 88;

/// Returns a view whose rings hold some tens of kilobytes.
pub fn layout(members: u32) -> Layout {
    Layout::new(&view(members, 400)).unwrap()
}

/// Returns the ring that rank 0 has in `layout`, as a range of its row.
pub fn ring(layout: &Layout) -> Range<u64> {
    layout.row(Rank(0)).control..layout.row(Rank(0)).size
}

/// Stores a word of `fabric`, and posts it to all members.
pub fn put<C: Connections>(fabric: &mut Mesh<C>, at: u64, value: u64) {
    fabric.store(at, value);
    fabric.post(&EVERYONE[..fabric.members() as usize], at..at + 8);
}

/// Makes progress until `ready`.
///
/// # Panics
/// If it takes longer than [`PATIENCE`].
pub fn progress_until<C: Connections>(fabric: &mut Mesh<C>, what: &str, mut ready: impl FnMut(&mut Mesh<C>) -> bool) {
    let start = Instant::now();
    while !ready(fabric) {
        assert!(start.elapsed() < PATIENCE, "{what}: nothing after {PATIENCE:?}");
        fabric.progress();
        std::thread::yield_now();
    }
}

/// Makes progress until a connection has ended, and returns its peer and the reason.
pub fn down<C: Connections>(fabric: &mut Mesh<C>) -> (Rank, Down) {
    let mut down = None;
    progress_until(fabric, "the end of a connection", |fabric| {
        down = down.take().or_else(|| fabric.next_down());
        down.is_some()
    });
    down.expect("it was told")
}

/// For each seed, fills rings by random appends over many laps, freed by the reader's
/// acknowledgements, with pauses on both sides. Checks that announced data is there, and that no
/// word goes back.
pub fn nothing_is_announced_before_it_is_there<C: Connections + Send>(
    seeds: Range<u64>,
    connect: impl Fn(u64, &Layout) -> Vec<Mesh<C>>,
) {
    for seed in seeds {
        let layout = layout(2);
        let [mut writer, mut reader]: [Mesh<C>; 2] = connect(seed, &layout).try_into().unwrap();
        let ring = ring(&layout);
        let words = (ring.end - ring.start) / 8;
        let total = 40 * words;
        let place = move |index: u64| ring.start + index % words * 8;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut random = TestRandom(seed);
                let (mut written, start) = (0, Instant::now());
                while writer.load(Rank(1), COUNT) < total {
                    assert!(start.elapsed() < PATIENCE, "seed {seed}: {written} of {total} written");
                    let free = writer.load(Rank(1), COUNT) + words - written;
                    let most = if random.below(4) == 0 { words } else { 20 };
                    let append = free.min(total - written).min(1 + random.below(most));
                    let mut from = written;
                    for index in written..written + append {
                        writer.store(place(index), index + 1);
                        if place(index + 1) < place(index) || index + 1 == written + append {
                            writer.post(&EVERYONE[..2], place(from)..place(index) + 8);
                            from = index + 1;
                        }
                    }
                    written += append;
                    if append > 0 && random.below(3) > 0 || written == total || free == 0 {
                        // The second word before the first, because the first word refers to it, as
                        // `rounds` does to `spoken`.
                        put(&mut writer, OTHER, written);
                        put(&mut writer, COUNT, written);
                    }
                    if random.below(50) == 0 {
                        std::thread::yield_now();
                    }
                    writer.progress();
                }
            });
            let mut random = TestRandom(!seed);
            let (mut seen, start) = (0, Instant::now());
            while seen < total {
                assert!(start.elapsed() < PATIENCE, "seed {seed}: {seen} of {total} read");
                reader.progress();
                let announced = reader.load(Rank(0), COUNT);
                assert!(announced >= seen, "seed {seed}: back from {seen} to {announced}");
                assert!(reader.load(Rank(0), OTHER) >= announced, "seed {seed}: one word overtook another");
                for index in seen..announced {
                    assert_eq!(reader.load(Rank(0), place(index)), index + 1, "seed {seed}, word {index}");
                }
                seen = announced;
                if random.below(3) == 0 || seen == total {
                    put(&mut reader, COUNT, seen);
                }
                if random.below(20) == 0 {
                    std::thread::yield_now();
                }
            }
            progress_until(&mut reader, "the last acknowledgement", |reader| !reader.is_connected(Rank(0)));
        });
    }
}

/// Everything that one member delivered: the sender, and a digest.
#[derive(Default)]
struct SenderLog(Vec<(Rank, u64)>);

impl<R: Rows> Upcalls<R> for SenderLog {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_, R>) {
        self.0.extend(batch.map(|message| (message.sender, digest(message.payload))));
    }
}

fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |digest, byte| digest.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte))
}

/// For each seed, runs members with engines, each on a thread of its own that sleeps if there is
/// nothing to do, and messages of all lengths.
pub fn engines_agree<C: Connections + Send>(seeds: Range<u64>, connect: impl Fn(u64, &Layout) -> Vec<Mesh<C>>) {
    for seed in seeds {
        let mut view = view(3, 6);
        view.subgroups[0].message_bytes_max = 30_000;
        let layout = Layout::new(&view).unwrap();
        let fabrics = connect(seed, &layout);
        let ended: Vec<(Vec<u64>, SenderLog, Mesh<C>)> = std::thread::scope(|scope| {
            let members = fabrics.into_iter().map(|fabric| {
                let view = view.clone();
                scope.spawn(move || run_member(fabric, view, seed))
            });
            let members: Vec<_> = members.collect();
            members.into_iter().map(|member| member.join().unwrap()).collect()
        });
        for (_, log, _) in &ended {
            assert!(log.0 == ended[0].1.0, "seed {seed}: members differ");
        }
        for ((sent, ..), rank) in ended.iter().zip(EVERYONE) {
            let theirs: Vec<u64> = ended[0].1.0.iter().filter(|m| m.0 == rank).map(|m| m.1).collect();
            assert!(theirs == *sent, "seed {seed}: not what member {rank} sent");
        }
    }
}

/// Sends 300 messages, delivers those of all members, and leaves once all its data is in flight.
fn run_member<C: Connections>(mut fabric: Mesh<C>, view: View, seed: u64) -> (Vec<u64>, SenderLog, Mesh<C>) {
    let start = Instant::now();
    let mut random = TestRandom((seed << 8) | u64::from(fabric.me().0));
    let mut engine = Engine::new(view, fabric.me(), Ablation::default()).unwrap();
    let mut publisher = Some(fabric.publisher(engine.claims(SubgroupId(0)).unwrap()));
    let (mut sent, mut log) = (vec![], SenderLog::default());
    while *engine.state() != State::Finished {
        assert!(start.elapsed() < PATIENCE, "seed {seed}: {} sent, {} delivered", sent.len(), log.0.len());
        while let Some(sender) = &mut publisher {
            if sent.len() == 300 {
                publisher = None;
                break;
            }
            let long = random.below(4) == 0;
            let len = random.below(if long { 30_001 } else { 200 });
            let Ok(mut frame) = sender.claim(len) else { break };
            frame.iter_mut().for_each(|byte| *byte = random.below(256) as u8);
            sent.push(digest(&frame));
            frame.commit();
        }
        let mut poll = |fabric: &mut Mesh<C>| fabric.progress() | engine.poll(Time(0), fabric, &mut log).worked;
        if poll(&mut fabric) {
            continue;
        }
        fabric.begin_sleep();
        if poll(&mut fabric) || *engine.state() == State::Finished {
            fabric.end_sleep();
        } else {
            // Short while there may be room to send again, which nothing reports here.
            fabric.sleep(if publisher.is_some() { Duration::from_millis(1) } else { PATIENCE });
        }
    }
    progress_until(&mut fabric, "the last words to leave", |fabric| fabric.is_flushed());
    (sent, log, fabric)
}

/// Pseudo-random numbers, the same for each seed (splitmix64).
#[derive(Debug)]
pub struct TestRandom(pub u64);

impl TestRandom {
    /// Returns a number less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound.max(1)
    }
}

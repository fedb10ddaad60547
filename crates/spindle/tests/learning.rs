//! Joining a group that runs, with the state of its application: members with mailboxes of their own, on threads of this process.
use spindle::{Batch, Config, Handler, JoinError, Message, Node, Snapshot, State, SubgroupId, View, ViewChange};
use std::io::{Cursor, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("spindle-{name}-{}", std::process::id())))
    }

    fn config(&self, members: u32) -> Config {
        let mut config = Config::new("g", members);
        config.runtime_dir = Some(self.0.clone());
        config.gather_timeout = LONG;
        config.subgroups[0].window = 1000;
        config.subgroups[0].message_bytes_max = 64;
        config
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A state machine: the digest of all messages in their order, and how many there were.
#[derive(Clone, Default)]
struct Machine {
    count: Arc<AtomicU64>,
    digest: Arc<AtomicU64>,
    /// Bytes of ballast in a snapshot.
    ballast: u64,
    views: Arc<Mutex<Vec<u64>>>,
}

impl Machine {
    fn apply(&self, payload: &[u8]) {
        let digest = payload.iter().fold(self.digest.load(Ordering::Relaxed), |digest, byte| {
            (digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3).rotate_left(5)
        });
        self.digest.store(digest, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
    }

    fn state(&self) -> (u64, u64) {
        (self.count.load(Ordering::Acquire), self.digest.load(Ordering::Relaxed))
    }
}

impl Handler for Machine {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| self.apply(message.payload));
    }

    fn view_changed(&mut self, change: &ViewChange) {
        self.views.lock().unwrap().push(change.new.id.0);
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        let (count, digest) = self.state();
        let head = [count.to_le_bytes(), digest.to_le_bytes()].concat();
        let len = Some(16 + self.ballast);
        Some(Snapshot { len, bytes: Box::new(Cursor::new(head).chain(std::io::repeat(7).take(self.ballast))) })
    }

    fn restore(&mut self, state: &mut State) -> std::io::Result<()> {
        let mut words = [0; 16];
        state.read_exact(&mut words)?;
        let mut ballast = vec![];
        state.read_to_end(&mut ballast)?;
        assert_eq!(state.len, Some(state.taken));
        assert!(ballast.iter().all(|byte| *byte == 7));
        self.ballast = ballast.len() as u64;
        self.count.store(u64::from_le_bytes(words[..8].try_into().unwrap()), Ordering::Release);
        self.digest.store(u64::from_le_bytes(words[8..].try_into().unwrap()), Ordering::Release);
        Ok(())
    }

    fn learn(&mut self, _: &View, _: SubgroupId, message: &Message<'_>) {
        self.apply(message.payload);
    }
}

fn join(config: Config, machine: &mut Machine) -> Result<Node, JoinError> {
    config.learn(machine, &mut |_| {}, &AtomicBool::new(false))
}

#[test]
fn a_joiner_ends_up_with_the_state_of_all() {
    for ballast in [0, 30 << 20] {
        let scratch = Scratch::new(&format!("learn-{ballast}"));
        let stop = AtomicBool::new(false);
        let sent = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let founders: Vec<_> = (0..2)
                .map(|_| {
                    let (config, stop, sent) = (scratch.config(2), &stop, &sent);
                    scope.spawn(move || {
                        let mut machine = Machine { ballast, ..Machine::default() };
                        let mut node = join(config, &mut machine).unwrap();
                        let mut publisher = node.publisher("all").unwrap();
                        let kept = machine.clone();
                        let group = node.start(machine).unwrap();
                        let mut i = 0u64;
                        while !stop.load(Ordering::Relaxed) {
                            publisher.send(&i.to_le_bytes(), LONG).unwrap();
                            sent.fetch_add(1, Ordering::Relaxed);
                            i += 1;
                            if i.is_multiple_of(64) {
                                std::thread::sleep(Duration::from_micros(500));
                            }
                        }
                        drop(publisher);
                        group.finish(LONG).unwrap();
                        kept
                    })
                })
                .collect();
            while sent.load(Ordering::Relaxed) < 1000 {
                std::thread::yield_now();
            }
            let mut machine = Machine::default();
            let mut node = join(scratch.config(1), &mut machine).unwrap();
            assert_eq!(node.view().members.len(), 3);
            assert!(machine.state().0 >= 1000);
            let mut publisher = node.publisher("all").unwrap();
            let kept = machine.clone();
            let group = node.start(machine).unwrap();
            publisher.send(b"from the new one", LONG).unwrap();
            let before = sent.load(Ordering::Relaxed);
            let patience = Instant::now() + LONG;
            while sent.load(Ordering::Relaxed) < before + 1000 {
                assert!(Instant::now() < patience);
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
            drop(publisher);
            group.finish(LONG).unwrap();
            let all: Vec<_> = founders.into_iter().map(|founder| founder.join().unwrap().state()).collect();
            assert_eq!(all[0], all[1]);
            assert_eq!(kept.state(), all[0], "the joiner has another state");
            assert_eq!(all[0].0, sent.load(Ordering::Relaxed) + 1);
        });
    }
}

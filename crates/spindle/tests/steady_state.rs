//! In steady state a message costs no system call, no lock for which a thread waits, and no
//! allocation.
//!
//! A child process runs two members, each polled by a thread of its own, which stream to each
//! other. One delivers inline, the other through a receiver. After a warm-up each thread forbids
//! itself, by a seccomp filter, every system call but the one that ends the process. A wait for a
//! lock is a system call (futex), so locks are covered. Allocations are counted. The verdict is the
//! exit status: a system call would kill the child. Two more children break the rule on purpose, to
//! prove that the test detects it.
//!
//! The test has no harness, because the child is this program with an argument.
use spindle::{Batch, Config, Node, Publisher, Receiver, SubgroupId};
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::spin_loop;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const WARM_UP: u64 = 2_000;
/// Messages of each member, after the warm-up.
const MESSAGES: u64 = 100_000;
const ALLOCATED: i32 = 3;
const NO_SECCOMP: i32 = 4;

/// The system's allocator, which counts allocations while `COUNTS` is set.
struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn count() {
    if COUNTS.load(Ordering::Relaxed) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to `System` unchanged; counting touches atomics only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is System's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`, and the pointer came
        // from System.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`, and the pointer came
        // from System.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Forbids every system call of this thread but `exit_group`: any other kills the process. Returns
/// false if the kernel has no filters.
fn forbid_system_calls() -> bool {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let is_exit = libc::sock_filter {
        jt: 0,
        jf: 1,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_exit_group as u32)
    };
    let mut filter = [
        // The number of the call is the first word.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        is_exit,
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: changes nothing but this thread's right to gain privileges.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return false;
    }
    // SAFETY: the program and its filter are alive and well formed; the kernel copies them.
    unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) == 0 }
}

fn exit(status: i32) -> ! {
    // SAFETY: ends the process at once, whatever others do; nothing needs to be put in order.
    unsafe { libc::_exit(status) }
}

/// The progress of both threads.
#[derive(Default)]
struct Stage {
    warm: AtomicU64,
    filtered: AtomicU64,
    done: AtomicU64,
}

/// Raises a word that both threads raise once, and returns when both have.
fn meet(word: &AtomicU64, mut meanwhile: impl FnMut()) {
    word.fetch_add(1, Ordering::AcqRel);
    while word.load(Ordering::Acquire) < 2 {
        meanwhile();
        spin_loop();
    }
}

struct Member {
    node: Node,
    publisher: Publisher,
    receiver: Option<Receiver>,
    sent: u64,
    delivered: u64,
    bytes: u64,
}

impl Member {
    /// Sends up to `end` messages as far as the ring has room, polls, and takes the messages that
    /// have come.
    fn turn(&mut self, end: u64) {
        while self.sent < end {
            let Some(mut frame) = self.publisher.try_claim(self.sent % 65).unwrap() else { break };
            frame.fill(self.sent as u8);
            frame.commit();
            self.sent += 1;
        }
        let (delivered, bytes) = (&mut self.delivered, &mut self.bytes);
        let mut take = |_: SubgroupId, batch: &mut Batch<'_>| {
            batch.for_each(|message| {
                *delivered += 1;
                *bytes += message.payload.len() as u64;
            });
        };
        self.node.poll(&mut take).unwrap();
        let Some(receiver) = &mut self.receiver else { return };
        if let Some(deliveries) = receiver.try_receive().unwrap() {
            let (delivered, bytes) = (&mut self.delivered, &mut self.bytes);
            deliveries.for_each(|message| {
                *delivered += 1;
                *bytes += message.payload.len() as u64;
            });
        }
    }

    fn run(mut self, stage: &Stage, fault: &str) {
        while self.sent < WARM_UP || self.delivered < 2 * WARM_UP {
            self.turn(WARM_UP);
        }
        meet(&stage.warm, || {
            self.node.poll(&mut |_: SubgroupId, _: &mut Batch<'_>| {}).unwrap();
        });
        if !forbid_system_calls() {
            exit(NO_SECCOMP);
        }
        meet(&stage.filtered, || {});
        COUNTS.store(true, Ordering::Relaxed);
        let all = 2 * (WARM_UP + MESSAGES);
        while self.sent < all / 2 || self.delivered < all {
            self.turn(all / 2);
            match fault {
                // SAFETY: has no effect but to be a system call.
                "call" if self.delivered > all / 2 => drop(unsafe { libc::getppid() }),
                "allocate" if self.delivered > all / 2 => drop(std::hint::black_box(Box::new(self.sent))),
                _ => {}
            }
        }
        // The peer may still need my acknowledgements.
        let mut member = self;
        meet(&stage.done, || member.turn(all / 2));
        exit(if ALLOCATIONS.load(Ordering::Relaxed) == 0 { 0 } else { ALLOCATED });
    }
}

fn child(fault: &str) {
    let mut config = Config::new("steady-state", 2);
    config.subgroups[0].message_bytes_max = 64;
    config.subgroups[0].window = 128;
    let stage = Stage::default();
    std::thread::scope(|scope| {
        for (i, mut node) in config.local().unwrap().into_iter().enumerate() {
            let publisher = node.publisher("all").unwrap();
            let receiver = (i == 1).then(|| node.receiver("all").unwrap());
            let member = Member { node, publisher, receiver, sent: 0, delivered: 0, bytes: 0 };
            let stage = &stage;
            scope.spawn(move || member.run(stage, fault));
        }
    });
}

/// Returns the exit status of a child with this fault; `None` if a system call killed it.
fn status(fault: &str) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    let status = Command::new(std::env::current_exe().unwrap()).args(["child", fault]).status().unwrap();
    if status.code().is_none() {
        assert_eq!(status.signal(), Some(libc::SIGSYS), "{fault}: {status}");
    }
    status.code()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, fault] = &arguments[..]
        && mode == "child"
    {
        return child(fault);
    }
    let clean = status("none");
    if clean == Some(NO_SECCOMP) {
        println!("steady_state: skipped, this kernel has no seccomp filters");
        return;
    }
    assert_eq!(
        clean,
        Some(0),
        "None: a system call was made (`strace -f` names it); {ALLOCATED}: something was allocated"
    );
    assert_eq!(status("call"), None, "a system call in steady state goes unnoticed");
    assert_eq!(status("allocate"), Some(ALLOCATED), "an allocation in steady state goes unnoticed");
    println!("steady_state: {MESSAGES} messages of each of two members, no system call, no allocation");
}

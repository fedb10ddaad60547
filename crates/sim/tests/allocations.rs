//! INV-14, bounded: in steady state, polls, claims, commits, deliveries and hand-offs do not
//! allocate.
use spindle_core::wire::ring::Kind;
use spindle_core::*;
use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;
use std::ops::Range;

/// The system's allocator, with a count of the current thread's allocations.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to `System` unchanged; counting touches a thread-local without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Memory) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is System's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Memory) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`, and the pointer came from System.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Memory, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`, and the pointer came from System.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One member's view of rows that all members share: a store is a post.
struct Seat<'a> {
    me: Rank,
    rows: &'a mut [Vec<u8>],
}

impl Rows for Seat<'_> {
    fn load(&self, member: Rank, at: u64) -> u64 {
        u64::from_le_bytes(self.bytes(member, at, 8).try_into().expect("8 bytes"))
    }

    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        &self.rows[member.index()][at as usize..(at + len) as usize]
    }

    type Frames<'a>
        = spindle_core::Lookup<'a, Self>
    where
        Self: 'a;

    fn frames(&self, member: spindle_core::Rank, ring: &spindle_core::Ring) -> spindle_core::Lookup<'_, Self> {
        spindle_core::Lookup::new(self, member, ring)
    }
}

impl Table for Seat<'_> {
    fn store(&mut self, at: u64, value: u64) {
        self.rows[self.me.index()][at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn post(&mut self, _: &[Rank], _: Range<u64>) {}
}

/// Runs rounds of sending and polling, in which all members of every subgroup send. Returns the
/// number of deliveries.
fn rounds(
    engines: &mut [Engine],
    consumers: &mut [(Cursor, std::sync::Arc<Handoff>)],
    rows: &mut [Vec<u8>],
    count: u64,
) -> u64 {
    let mut delivered = 0;
    for step in 0..count {
        for (i, engine) in engines.iter_mut().enumerate() {
            let me = Rank(i as u32);
            let mut seat = Seat { me, rows };
            for subgroup in (0..3).map(SubgroupId) {
                let claims = engine.claims(subgroup).expect("all send");
                // Not all members send all the time, so nulls are needed.
                if (step + i as u64).is_multiple_of(3) {
                    while let Ok(claim) = claims.claim(step % 60, |_| {}) {
                        let kind = if step % 7 == 0 { Kind::Void } else { Kind::Message };
                        claims.commit(claim, kind, step % 60, |position, word| {
                            seat.store(claims.ring().offset(position), word)
                        });
                    }
                }
            }
            let mut upcall = |_: SubgroupId, batch: &mut Batch<'_, Seat<'_>>| delivered += batch.count() as u64;
            engine.poll(Time(step), &mut seat, &mut upcall);
            let (cursor, handoff) = &mut consumers[i];
            let mut batch = cursor.advance(&seat, handoff.frontier());
            let (messages, bytes) = (batch.by_ref().count() as u64, batch.bytes());
            handoff.report(cursor, messages, bytes);
            delivered += messages;
        }
    }
    delivered
}

#[test]
fn nothing_is_allocated_in_steady_state() {
    let subgroup = |i: u32, order| SubgroupSpec {
        member_rule: Rule::Everyone,
        sender_rule: Rule::Everyone,
        name: format!("s{i}"),
        members: (0..3).map(Rank).collect(),
        senders: (0..3).map(Rank).collect(),
        order,
        window: 5,
        message_bytes_max: 60,
        leftover_bytes_max: 0,
        durability: Durability::InMemory,
        clock: 0,
        epoch: None,
    };
    let subgroups = vec![subgroup(0, Order::Total), subgroup(1, Order::Fifo), subgroup(2, Order::Total)];
    let view =
        View { id: ViewId(1), members: (1..4).map(MemberId).collect(), nonvoters: vec![], subgroups: subgroups.into() };
    let engine = |me| Engine::new(view.clone(), me, Ablation::default()).expect("a good view");
    let mut engines: Vec<Engine> = view.ranks().map(engine).collect();
    let mut rows: Vec<Vec<u8>> = engines[0].layout().rows().iter().map(|row| vec![0; row.size as usize]).collect();
    let mut consumers: Vec<_> = engines.iter_mut().map(|e| e.hand_off(SubgroupId(2)).expect("a member")).collect();
    rounds(&mut engines, &mut consumers, &mut rows, 1_000);
    let before = ALLOCATIONS.get();
    let delivered = rounds(&mut engines, &mut consumers, &mut rows, 20_000);
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!(delivered > 100_000, "it was busy: {delivered}");
    assert!(before > 0, "the allocator counts");
}

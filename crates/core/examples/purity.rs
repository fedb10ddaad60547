//! Proof that the core needs nothing from outside. For wasm it is built as a module that must
//! import nothing. It has an allocator and a panic handler of its own, so that std can't be linked
//! unnoticed.
#![cfg_attr(target_family = "wasm", no_std)]
extern crate alloc;

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use spindle_core::wire::ring::Kind;
use spindle_core::{
    Ablation, Batch, Durability, Engine, Lookup, MemberId, Order, Rank, Ring, Rows, Rule, SubgroupId, SubgroupSpec,
    Table, Time, View, ViewId,
};

const ALL: SubgroupId = SubgroupId(0);

/// Sends `messages` messages through a group of `members` in which only rank 0 sends. Returns the
/// number of deliveries at all of them in `polls` polls each; 0 if no such group can exist.
#[unsafe(no_mangle)]
pub extern "C" fn spindle_purity(members: u32, messages: u32, polls: u32) -> u64 {
    let ranks: Vec<Rank> = (0..members).map(Rank).collect();
    let subgroup = SubgroupSpec {
        member_rule: Rule::Everyone,
        sender_rule: Rule::Everyone,
        name: String::from("all"),
        members: ranks.clone(),
        senders: ranks,
        order: Order::Total,
        window: 16,
        message_bytes_max: 64,
        leftover_bytes_max: 0,
        durability: Durability::InMemory,
        clock: 0,
        epoch: None,
    };
    let ids = (0..u64::from(members)).map(MemberId).collect();
    let view = View { id: ViewId(1), members: ids, nonvoters: vec![], subgroups: vec![subgroup].into() };
    run(&view, messages, polls).unwrap_or(0)
}

fn run(view: &View, messages: u32, polls: u32) -> Option<u64> {
    let engines: Result<Vec<Engine>, _> =
        view.ranks().map(|me| Engine::new(view.clone(), me, Ablation::default())).collect();
    let mut engines = engines.ok()?;
    let rows = engines.first()?.layout().rows().iter().map(|row| vec![0; (row.size / 8) as usize]).collect();
    let mut memory = Memory { me: Rank(0), rows };
    let (mut sent, mut delivered) = (0, 0);
    for now in 0..polls {
        sent += u32::from(sent < messages && send(&engines[0], &mut memory));
        for engine in &mut engines {
            memory.me = engine.me();
            let mut upcall = |_: SubgroupId, batch: &mut Batch<'_, Memory>| delivered += batch.count() as u64;
            engine.poll(Time(now.into()), &mut memory, &mut upcall);
        }
    }
    Some(delivered)
}

/// Sends an empty message from rank 0, if there is room.
fn send(engine: &Engine, memory: &mut Memory) -> bool {
    let Some(claims) = engine.claims(ALL) else { return false };
    let Ok(claim) = claims.claim(0, |_| {}) else { return false };
    memory.me = engine.me();
    claims.commit(claim, Kind::Message, 0, |position, word| memory.store(claims.ring().offset(position), word));
    true
}

/// The rows of all members, visible to all at once. `me` is the member that writes.
struct Memory {
    me: Rank,
    rows: Vec<Vec<u64>>,
}

impl Rows for Memory {
    fn load(&self, member: Rank, at: u64) -> u64 {
        self.rows[member.index()][(at / 8) as usize]
    }

    fn bytes(&self, _: Rank, _: u64, len: u64) -> &[u8] {
        assert_eq!(len, 0, "every message is empty");
        &[]
    }

    type Frames<'a> = Lookup<'a, Memory>;

    fn frames(&self, member: Rank, ring: &Ring) -> Lookup<'_, Memory> {
        Lookup::new(self, member, ring)
    }
}

impl Table for Memory {
    fn store(&mut self, at: u64, value: u64) {
        self.rows[self.me.index()][(at / 8) as usize] = value;
    }

    fn post(&mut self, _: &[Rank], _: Range<u64>) {}
}

/// The parts that std would supply.
#[cfg(target_family = "wasm")]
mod alone {
    use core::alloc::{GlobalAlloc, Layout};
    use core::arch::wasm32::{memory_grow, unreachable};
    use core::panic::PanicInfo;
    use core::ptr;

    const PAGE_BYTES: usize = 65_536;

    /// Gives each allocation fresh pages and takes none back: the module is built, never run for
    /// long.
    struct Pages;

    #[global_allocator]
    static PAGES: Pages = Pages;

    // SAFETY: fresh pages belong to no other allocation, are zero, and are aligned to more than any
    // layout here asks for.
    unsafe impl GlobalAlloc for Pages {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let page = memory_grow::<0>(layout.size().div_ceil(PAGE_BYTES));
            if page == usize::MAX || layout.align() > PAGE_BYTES {
                return ptr::null_mut();
            }
            ptr::with_exposed_provenance_mut(page * PAGE_BYTES)
        }

        unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
    }

    #[panic_handler]
    fn panic(_: &PanicInfo<'_>) -> ! {
        unreachable()
    }
}

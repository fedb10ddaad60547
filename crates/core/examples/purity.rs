//! Proof that the core needs nothing from outside: for wasm it is built as a module that must import nothing, with an
//! allocator and a panic handler of its own, so that std can't come in unnoticed.
#![cfg_attr(target_family = "wasm", no_std)]
extern crate alloc;

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use spindle_core::ring::{Header, Kind, frame_bytes};
use spindle_core::{Layout, MemberId, Order, Rank, SubgroupId, SubgroupSpec, View, ViewId};

/// Lays out a view of `members` with one subgroup in which all send, and answers the bytes of all rows; 0 if there is
/// no such view.
#[unsafe(no_mangle)]
pub extern "C" fn spindle_purity(members: u32, message_bytes: u32) -> u64 {
    let ranks: Vec<Rank> = (0..members).map(Rank).collect();
    let subgroup = SubgroupSpec {
        name: String::from("all"),
        members: ranks.clone(),
        senders: ranks,
        order: Order::Total,
        window: 16,
        message_bytes_max: u64::from(message_bytes),
    };
    let members = (0..u64::from(members)).map(MemberId).collect();
    let view = View { id: ViewId(1), members, subgroups: vec![subgroup] };
    let Ok(layout) = Layout::new(&view) else { return 0 };
    let framed = layout.rows().iter().filter_map(|row| row.place(SubgroupId(0))?.ring).filter(|ring| {
        let header = Header { kind: Kind::Message, span: frame_bytes(1), len: 1 };
        Header::decode(header.encode(), ring) == Some(header)
    });
    framed.map(|ring| ring.size()).sum::<u64>() + layout.rows().iter().map(|row| row.size).sum::<u64>()
}

/// What std would bring.
#[cfg(target_family = "wasm")]
mod alone {
    use core::alloc::{GlobalAlloc, Layout};
    use core::arch::wasm32::{memory_grow, unreachable};
    use core::panic::PanicInfo;
    use core::ptr;

    const PAGE_BYTES: usize = 65_536;

    /// Gives each allocation fresh pages and takes none back: the module is built, never run for long.
    struct Pages;

    #[global_allocator]
    static PAGES: Pages = Pages;

    // SAFETY: fresh pages belong to nobody else, are zero, and are aligned to more than any layout here asks for.
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

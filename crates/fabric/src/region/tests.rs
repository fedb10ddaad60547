//! Tests of regions of two processes, and of what is refused.
use super::memory::Memory;
use super::*;
use rustix::fs::MemfdFlags;
use rustix::fs::{FallocateFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use spindle_core::Ring;
use std::os::fd::OwnedFd;
use std::sync::Arc;

const LEN: u64 = 3 * 4096;

fn file(len: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

#[test]
#[cfg_attr(miri, ignore = "it maps files")]
fn a_peer_loads_the_words_that_the_owner_stores() {
    let (own, fd) = OwnRegion::create("test", LEN, 64).unwrap();
    let peer = PeerRegion::open("test", &fd, LEN).unwrap();
    assert_eq!(peer.load(LEN - 8), 0);
    own.store(LEN - 8, 0x0102_0304_0506_0708);
    assert_eq!(peer.load(LEN - 8), 0x0102_0304_0506_0708);
    own.store(64, u64::from_le_bytes(*b"hello, B"));
    assert_eq!(peer.bytes(64, 5), b"hello");
}

#[test]
#[cfg_attr(miri, ignore = "it maps files")]
fn a_peer_gets_no_way_to_write_or_resize() {
    let (_own, fd) = OwnRegion::create("test", LEN, 64).unwrap();
    let writable = ProtFlags::READ | ProtFlags::WRITE;
    let error = Memory::map("test", &fd, 0..LEN, writable).unwrap_err();
    assert!(matches!(error, RegionError::Os { call: "mmap", ref source, .. } if source.raw_os_error() == Some(1)));
    assert_eq!(rustix::io::pwrite(&fd, b"x", 0), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&fd, LEN - 4096), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&fd, LEN + 4096), Err(Errno::PERM));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&fd, punch, 0, 4096), Err(Errno::PERM));
    assert_eq!(rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE), Err(Errno::PERM));
}

#[test]
#[cfg_attr(miri, ignore = "it maps files")]
fn every_page_is_there_from_the_start() {
    let len = 100 * 4096;
    let (_own, fd) = OwnRegion::create("test", len, 64).unwrap();
    assert!(rustix::fs::fstat(&fd).unwrap().st_blocks as u64 * 512 >= len);
}

#[test]
#[cfg_attr(miri, ignore = "it maps files")]
fn a_segment_without_its_seals_is_refused() {
    let size_only = SealFlags::SHRINK | SealFlags::GROW;
    for seals in [SealFlags::empty(), size_only, SealFlags::FUTURE_WRITE | SealFlags::SHRINK] {
        let error = PeerRegion::open("test", file(LEN, seals), LEN).unwrap_err();
        assert!(matches!(error, RegionError::Unsealed { got, .. } if got == seals.bits()), "{error}");
    }
    assert!(SharedRegion::open("test", file(LEN, size_only), LEN).is_ok());
    assert!(SharedRegion::open("test", file(LEN, SealFlags::GROW), LEN).is_err());
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    assert!(matches!(PeerRegion::open("test", socket, LEN), Err(RegionError::Unsealed { got: 0, .. })));
}

#[test]
#[cfg_attr(miri, ignore = "it maps files")]
fn a_segment_of_the_wrong_size_is_refused() {
    let (_own, fd) = OwnRegion::create("test", LEN, 64).unwrap();
    for expected in [LEN - 64, LEN + 64, 0] {
        let error = PeerRegion::open("test", &fd, expected).unwrap_err();
        assert!(matches!(error, RegionError::Size { got: LEN, .. }), "{error}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "it maps files")]
fn more_memory_than_there_is_is_an_error_at_once() {
    let available = available_bytes().unwrap();
    let error = OwnRegion::create("test", available * 2, 64).unwrap_err();
    assert!(matches!(error, RegionError::NoMemory { available, .. } if available > 0), "{error}");
    for len in [0, u64::MAX] {
        assert!(matches!(OwnRegion::create("test", len, 64), Err(RegionError::TooLong { .. })));
        assert!(matches!(OwnRegion::on_heap("test", len, 64), Err(RegionError::TooLong { .. })));
    }
}

#[test]
fn a_lease_covers_frames_only_and_is_given_once() {
    let region = Arc::new(OwnRegion::on_heap("test", LEN, 128).unwrap());
    // 128 bytes, and 64 for the end of the last frame.
    let ring = |at| Ring::new(at, 1, 32);
    assert_eq!(ring(0).size(), 192);
    assert!(region.lease(&ring(64)).is_none());
    assert!(region.lease(&ring(LEN - 64)).is_none());
    assert!(region.lease(&ring(u64::MAX - 63)).is_none());
    let lease = region.lease(&ring(384)).unwrap();
    assert!(region.lease(&ring(320)).is_none());
    assert!(region.lease(&ring(448)).is_none());
    assert!(region.lease(&ring(128)).is_some());
    drop(lease);
    assert!(region.lease(&ring(384)).is_none());
}

#[test]
#[cfg_attr(miri, ignore = "it maps files")]
fn accesses_outside_or_unaligned_panic() {
    let (own, fd) = OwnRegion::create("test", LEN, 64).unwrap();
    let own = Arc::new(own);
    let peer = PeerRegion::open("test", &fd, LEN).unwrap();
    let panics = |access: &dyn Fn()| {
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(access)).is_err());
    };
    for at in [LEN, LEN - 4, 1, u64::MAX - 7, u64::MAX] {
        panics(&|| own.store(at, 1));
        panics(&|| _ = own.word(at));
        panics(&|| _ = peer.load(at));
    }
    for (at, len) in [(LEN, 1), (0, LEN + 1), (u64::MAX, 2), (8, u64::MAX - 4)] {
        panics(&|| _ = peer.bytes(at, len).len());
    }
    let ring = Ring::new(64, 1, 32);
    for capacity in [0, 1, 8, 1 << 63] {
        panics(&|| _ = own.span().ring(&Ring { capacity, ..ring }));
        panics(&|| _ = own.span().ring(&Ring { capacity, frame_bytes_max: u64::MAX - 63, ..ring }));
    }
    panics(&|| _ = own.span().ring(&Ring { capacity: 1 << 63, frame_bytes_max: 1 << 63, ..ring }));
    panics(&|| _ = own.span().ring(&Ring::new(LEN - 64, 1, 32)));
    assert_eq!(peer.bytes(LEN, 0), b"");
}

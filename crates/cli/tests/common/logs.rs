//! Data directories that tests write with the library.
use spindle_log::{Config, FileDisk, Identity, PayloadKind, Record, Store, Version};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// 2020-11-22T20:00:00Z, in ns since 1970.
pub(crate) const BEGIN: u64 = 1_606_075_200_000_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Opens the directory of member 3 of the group `shop`, with small segments.
pub(crate) fn store(dir: &Path) -> Store {
    let identity = Identity { group: "shop".into(), member: 3, incarnation: 0x17, payloads: PayloadKind::Opaque };
    let config = Config { segment_bytes: 8192, journal_bytes: 64 << 10, reserve_bytes: 0, ..Config::default() };
    Store::open(Arc::new(FileDisk::new(dir).unwrap()), &identity, config).unwrap()
}

/// Appends records of epoch 1, a second apart.
pub(crate) fn append(store: &mut Store, number: u32, sequences: Range<u64>, payload: impl Fn(u64) -> String) {
    for sequence in sequences {
        let (version, clock) = (Version::new(1, sequence), BEGIN + sequence * SECOND);
        let payload = payload(sequence);
        let record = Record { version, clock, payload: payload.as_bytes() };
        store.log(number).unwrap().append([record]).unwrap();
    }
}

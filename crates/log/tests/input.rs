//! Bad input: bytes that are cut off, changed or random never cause a panic or a wrong record.
mod model;
use model::{Random, SUBGROUP, config, identity, read_all};
use spindle_log::disk::SimDisk;
use spindle_log::{Disk, Record, Store, Version, verify};
use std::sync::Arc;

/// A log of a few segments with a snapshot and some values in the journal.
fn small() -> (SimDisk, Vec<model::Owned>) {
    let disk = SimDisk::new(1, 1 << 24);
    let mut store = Store::open(Arc::new(disk.clone()), &identity(), config()).expect("no faults");
    store.open_log(SUBGROUP, &mut |_| ()).expect("no faults");
    for sequence in 0..18 {
        let payload = vec![sequence as u8 + 1; 40 * sequence as usize];
        let record = Record { version: Version::new(2, sequence * 2), clock: sequence / 3, payload: &payload };
        store.log(SUBGROUP).expect("open").append([record]).expect("no faults");
    }
    store.journal().put(1, b"promise").expect("no faults");
    let mut writer = store.snapshots(SUBGROUP).expect("open").begin(Version::new(2, 8), 2).expect("no faults");
    writer.write(b"state").expect("no faults");
    writer.finish().expect("no faults");
    store.record_frontiers().expect("no faults");
    let all = read_all(&mut store.log(SUBGROUP).expect("open").readers().reader()).expect("no faults");
    (disk, all)
}

/// Opens whatever is on the disk. If it opens, it holds a prefix of the records, none of them changed.
fn check(disk: &SimDisk, all: &[model::Owned]) -> bool {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let _ = verify(&shared, SUBGROUP, &mut |_| ());
    let Ok(mut store) = Store::open(shared, &identity(), config()) else { return false };
    if let Some(value) = store.journal().value(1) {
        assert_eq!(value, b"promise");
    }
    if store.open_log(SUBGROUP, &mut |_| ()).is_err() {
        return false;
    }
    let Ok(found) = read_all(&mut store.log(SUBGROUP).expect("open").readers().reader()) else { return false };
    assert!(found.len() <= all.len() && found == all[..found.len()], "a record is not what was written");
    found.len() == all.len()
}

fn files(disk: &SimDisk) -> Vec<String> {
    disk.paths().into_iter().filter(|path| path != "lock" && !path.contains("spare")).collect()
}

#[test]
fn every_byte_changed() {
    let (disk, all) = small();
    let (mut whole, mut refused) = (0, 0);
    for path in files(&disk) {
        let content = disk.content(&path).expect("it is listed");
        let used = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        // The journal is long and holds the same frame again and again.
        let step = if path.starts_with("journal") { 5 } else { 1 };
        for offset in (0..used).step_by(step) {
            let copy = disk.fork(offset as u64);
            copy.flip(&path, offset as u64, 1 << (offset % 8));
            match check(&copy, &all) {
                true => whole += 1,
                false => refused += 1,
            }
        }
    }
    println!("{whole} changes do no harm, {refused} are refused");
    assert!(refused > 5000, "{refused} changes were noticed");
}

#[test]
fn every_record_after_a_change_is_refused_and_not_cut() {
    let (disk, all) = small();
    for path in files(&disk).into_iter().filter(|path| path.contains("segment-")) {
        let content = disk.content(&path).expect("it is listed");
        // The frontier is recorded, so a shorter log is never accepted.
        for offset in (0..content.len()).step_by(3) {
            let copy = disk.fork(offset as u64);
            copy.flip(&path, offset as u64, 0x10);
            let mut store = Store::open(Arc::new(copy.clone()), &identity(), config()).expect("no faults");
            if store.open_log(SUBGROUP, &mut |_| ()).is_ok() {
                let found =
                    read_all(&mut store.log(SUBGROUP).expect("open").readers().reader()).expect("it is verified");
                assert!(found == all, "{path} at {offset}");
            }
        }
    }
}

#[test]
fn every_length() {
    let (disk, all) = small();
    for path in files(&disk) {
        let content = disk.content(&path).expect("it is listed");
        for length in (0..content.len()).step_by(if path.starts_with("journal") { 511 } else { 37 }) {
            let copy = disk.fork(length as u64);
            copy.put(&path, content[..length].to_vec());
            check(&copy, &all);
        }
    }
}

#[test]
fn random_bytes() {
    let (disk, all) = small();
    for seed in 0..3000 {
        let mut random = Random(seed);
        let copy = disk.fork(seed);
        let paths = files(&copy);
        let path = &paths[random.below(paths.len() as u64) as usize];
        let mut content = copy.content(path).expect("it is listed");
        let start = random.below(content.len() as u64) as usize;
        let end = (start + 1 + random.below(300) as usize).min(content.len());
        match random.below(3) {
            // Random bytes, lengths that are extreme, or bytes of another place.
            0 => content[start..end].iter_mut().for_each(|byte| *byte = random.below(256) as u8),
            1 => content[start..end].fill(0xFF),
            _ => {
                let from = random.below((content.len() - (end - start)) as u64 + 1) as usize;
                let other = content[from..from + end - start].to_vec();
                content[start..end].copy_from_slice(&other);
            }
        }
        copy.put(path, content);
        check(&copy, &all);
    }
}

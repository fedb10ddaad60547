//! Names of logs: one log for each name, through crashes and damage.
mod model;
use model::{config, identity, read_all};
use spindle_log::disk::{Faults, SimDisk};
use spindle_log::limits::LOG_NAME_BYTES_MAX;
use spindle_log::{DataDirectory, Error, Record, Result, Store, Version};
use std::sync::Arc;

fn open(disk: &SimDisk) -> Store {
    Store::open(Arc::new(disk.clone()), &identity(), config()).expect("the directory is ours")
}

fn open_named(store: &mut Store, name: &str) -> Result<u32> {
    store.open_named(name, &mut |_| ()).map(|(subgroup, _)| subgroup)
}

fn append(store: &mut Store, subgroup: u32, sequence: u64, payload: &str) -> Result<()> {
    let record = Record { version: Version::new(1, sequence), clock: 0, payload: payload.as_bytes() };
    store.log(subgroup)?.append([record]).map(drop)
}

/// The names and their numbers. Panics if one is damaged.
fn names(disk: &SimDisk) -> Vec<(u32, Option<String>)> {
    let entries = DataDirectory::logs(disk).expect("the directory is readable");
    entries.into_iter().map(|entry| (entry.subgroup, entry.name.expect("the name is intact"))).collect()
}

/// A directory with two names and a number.
fn three() -> SimDisk {
    let disk = SimDisk::new(1, 1 << 24);
    let mut store = open(&disk);
    store.open_log(1, &mut |_| ()).expect("no faults");
    for (name, number) in [("orders", 0), ("prices", 2)] {
        assert_eq!(open_named(&mut store, name).expect("no faults"), number);
        append(&mut store, number, 0, name).expect("no faults");
    }
    disk
}

#[test]
fn a_name_is_found_again_beside_numbers() {
    let disk = three();
    let listed = [(0, Some("orders".into())), (1, None), (2, Some("prices".into()))];
    assert_eq!(names(&disk), listed);
    assert_eq!(DataDirectory::find(&disk, "prices").expect("readable"), Some(2));
    assert_eq!(DataDirectory::find(&disk, "none").expect("readable"), None);
    let mut store = open(&disk);
    assert_eq!(open_named(&mut store, "prices").expect("it is intact"), 2);
    let records = read_all(&mut store.log(2).expect("open").readers().reader()).expect("intact");
    assert_eq!(records[0].payload, b"prices");
    assert_eq!(names(&disk), listed);
    let longest = "ü".repeat(LOG_NAME_BYTES_MAX / 2);
    assert_eq!(open_named(&mut store, &longest).expect("it is a name"), 3);
    assert_eq!(DataDirectory::find(&disk, &longest).expect("readable"), Some(3));
    for name in [String::new(), format!("{longest}x")] {
        let refused = open_named(&mut store, &name).expect_err("it is no name");
        assert!(matches!(refused, Error::Range { min: 1, max: 64, .. }), "{refused}");
    }
    // Directories of something else are no logs.
    disk.put("subgroup-7", Vec::new());
    disk.put("subgroup-+0000007", Vec::new());
    assert_eq!(names(&disk).len(), 4);
}

#[test]
fn one_damaged_copy_is_written_again() {
    for offset in [9, 17, 40, 4096 + 9, 4096 + 41] {
        let disk = three();
        let path = "subgroup-00000002/name";
        let whole = disk.content(path).expect("it is there");
        disk.flip(path, offset, 4);
        assert_eq!(names(&disk)[2].1.as_deref(), Some("prices"));
        assert_eq!(open_named(&mut open(&disk), "prices").expect("one copy is intact"), 2);
        assert!(disk.content(path).expect("it is there") == whole, "offset {offset}");
    }
}

type Damage = fn(&SimDisk, &str);

#[test]
fn a_lost_name_begins_no_second_log() {
    let damages: [Damage; 4] = [
        |disk, path| [40, 4096 + 40].into_iter().for_each(|offset| disk.flip(path, offset, 1)),
        |disk, path| disk.put(path, Vec::new()),
        |disk, path| spindle_log::Disk::remove(disk, path).expect("no faults"),
        // The name of another log, which the checksum does not bind to this one.
        |disk, path| disk.put(path, disk.content("subgroup-00000000/name").expect("it is there")),
    ];
    for damage in damages {
        let disk = three();
        let path = "subgroup-00000002/name";
        damage(&disk, path);
        let mut store = open(&disk);
        for name in ["prices", "new"] {
            let error = open_named(&mut store, name).expect_err("the name may have been this");
            assert!(matches!(&error, Error::CorruptFile { path: found, .. } if found == path), "{error}");
        }
        assert_eq!(open_named(&mut store, "orders").expect("that name is intact"), 0);
        let entries = DataDirectory::logs(&disk).expect("readable");
        assert!(entries[2].name.is_err() && entries[0].name.is_ok(), "{entries:?}");
    }
    // A copy of a directory under another number does not bind, either.
    let disk = three();
    spindle_log::Disk::create_directory(&disk, "subgroup-00000009").expect("no faults");
    disk.put("subgroup-00000009/name", disk.content("subgroup-00000002/name").expect("it is there"));
    assert!(DataDirectory::logs(&disk).expect("readable")[3].name.is_err());
}

#[test]
fn a_later_format_is_named() {
    let disk = three();
    [12, 4096 + 12].into_iter().for_each(|offset| disk.flip("subgroup-00000002/name", offset, 2));
    let error = open_named(&mut open(&disk), "prices").expect_err("it is of a later format");
    assert!(matches!(error, Error::Format { found: 3, expected: 1, .. }), "{error}");
}

/// A run that opens two names and appends, and ends after any operation of the disk.
#[test]
fn every_crash_point_leaves_one_log_for_each_name() {
    let mut points = 0;
    for seed in 0..20 {
        for tear_bytes in [512, 4096] {
            for after in 0.. {
                let disk = SimDisk::new(seed + after, 1 << 24);
                disk.set_faults(Faults { crash_after: Some(after), tear_bytes, ..Faults::default() });
                let mut acked = Vec::new();
                let mut live = || {
                    let mut store = Store::open(Arc::new(disk.clone()), &identity(), config())?;
                    for name in ["orders", "prices"] {
                        let number = open_named(&mut store, name)?;
                        append(&mut store, number, 0, name)?;
                        acked.push(name);
                    }
                    Ok::<(), Error>(())
                };
                let is_whole = live().is_ok();
                match seed % 2 {
                    0 => disk.crash(),
                    _ => disk.kill(),
                }
                let mut store = open(&disk);
                for name in ["prices", "orders"] {
                    let number = open_named(&mut store, name)
                        .unwrap_or_else(|error| panic!("seed {seed}, operation {after}, {name}: {error}"));
                    let records = read_all(&mut store.log(number).expect("open").readers().reader()).expect("intact");
                    assert!(records.iter().all(|record| record.payload == name.as_bytes()));
                    assert!(!records.is_empty() || !acked.contains(&name), "seed {seed}, operation {after}: {name}");
                    append(&mut store, number, 1, name).expect("no faults");
                }
                let mut found: Vec<_> = names(&disk).into_iter().map(|(_, name)| name).collect();
                found.sort();
                assert_eq!(found, [Some("orders".into()), Some("prices".into())], "seed {seed}, operation {after}");
                points += 1;
                if is_whole {
                    break;
                }
            }
        }
    }
    println!("{points} crash points");
    assert!(points > 500, "the runs are too short: {points} crash points");
}

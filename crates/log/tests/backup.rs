//! Backups: what belongs to a cut is copied, verified and restored, and nothing that was not finished
//! looks like a backup.
use spindle_log::disk::{Faults, SimDisk};
use spindle_log::{
    BackupError, BackupManifest, BackupWriter, Config, CutSource, Disk, Error, Identity, PayloadKind, Record,
    Retention, Snapshots, Store, Version, open_read_only, read_manifest, restore, verify, verify_backup,
};
use std::sync::Arc;

const INCARNATION: u128 = 7;

fn identity(member: u64, incarnation: u128) -> Identity {
    Identity { group: "shop".into(), member, incarnation, payloads: PayloadKind::Messages }
}

fn config() -> Config {
    Config { segment_bytes: 8192, journal_bytes: 32 << 10, reserve_bytes: 0, ..Config::default() }
}

/// Record `i` has the clock `10 * i`.
fn append(store: &mut Store, number: u32, sequences: std::ops::Range<u64>) {
    for sequence in sequences {
        let payload = format!("record {sequence} of {number} {}", "x".repeat(300));
        let record = Record { version: Version::new(1, sequence), clock: 10 * sequence, payload: payload.as_bytes() };
        store.log(number).unwrap().append([record]).unwrap();
    }
}

fn snapshot(snapshots: &Snapshots, sequence: u64, kept: Option<Version>) {
    let mut writer = snapshots.begin(Version::new(1, sequence), 10 * sequence).unwrap();
    writer.write(format!("state {sequence}").repeat(20_000).as_bytes()).unwrap();
    writer.finish_beside(kept).unwrap();
}

/// A directory with the logs `orders` (0), with two snapshots and 200 records, and `prices` (1) with 50.
fn source() -> (SimDisk, Store) {
    let disk = SimDisk::new(3, 1 << 26);
    let mut store = Store::open(Arc::new(disk.clone()), &identity(1, INCARNATION), config()).unwrap();
    for name in ["orders", "prices"] {
        store.open_named(name, &mut |_| ()).unwrap();
    }
    append(&mut store, 0, 0..200);
    append(&mut store, 1, 0..50);
    let snapshots = store.snapshots(0).unwrap();
    snapshot(&snapshots, 60, None);
    snapshot(&snapshots, 120, Some(Version::new(1, 60)));
    store.journal().put(1, b"view").unwrap();
    (disk, store)
}

fn sources(disk: &SimDisk, cut: u64) -> Vec<CutSource> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let names = ["orders", "prices"];
    (0..).zip(names).map(|(number, name)| CutSource::open(&disk, number, Some(name.into()), cut).unwrap()).collect()
}

fn take(from: &SimDisk, to: &SimDisk, cut: u64) -> Result<BackupManifest, BackupError> {
    let mut writer = BackupWriter::begin(Arc::new(to.clone()), identity(1, INCARNATION), cut)?;
    for source in sources(from, cut) {
        writer.add(source, &mut |_| true)?;
    }
    writer.finish(b"view".to_vec(), (99, true), "test 1")
}

fn shared(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

type Records = Vec<(Version, u64, Vec<u8>)>;

fn records(disk: &SimDisk, number: u32) -> Records {
    let (readers, _) = open_read_only(&shared(disk), number, &mut |_| ()).unwrap();
    let (mut reader, mut all) = (readers.reader(), vec![]);
    while let Some(record) = reader.next().unwrap() {
        all.push((record.version, record.clock, record.payload.to_vec()));
    }
    all
}

fn restored(backup: &SimDisk) -> SimDisk {
    let target = SimDisk::new(5, 1 << 26);
    let manifest = read_manifest(backup).unwrap();
    let (new, record) = (identity(2, 11), Some((1, &b"new view"[..])));
    restore(&shared(backup), &manifest, &shared(&target), &new, record, config(), &mut |_| true).unwrap();
    target
}

#[test]
fn a_backup_has_what_belongs_to_the_cut_and_is_restored_under_another_identity() {
    let (disk, store) = source();
    let backup = SimDisk::new(4, 1 << 26);
    // The snapshot of 1:120 is later than the cut.
    let manifest = take(&disk, &backup, 1190).unwrap();
    let verification = verify_backup(&shared(&backup), &mut |_| true).unwrap();
    assert!(verification.findings.is_empty() && verification.manifest == manifest, "{verification:?}");
    let [orders, prices] = &manifest.logs[..] else { panic!("{manifest:?}") };
    assert_eq!(
        (orders.records, orders.first, orders.last),
        (120, Some(Version::new(1, 0)), Some((Version::new(1, 119), 1190)))
    );
    assert_eq!((&orders.snapshots[..], prices.records), (&[Version::new(1, 60)][..], 50));
    assert_eq!((&manifest.group[..], manifest.incarnation, manifest.cut, manifest.is_settled), ("shop", 7, 1190, true));
    assert_eq!((&manifest.record[..], &manifest.software[..]), (&b"view"[..], "test 1"));

    let target = restored(&backup);
    assert_eq!(records(&target, 0), records(&disk, 0)[..120]);
    assert_eq!(records(&target, 1), records(&disk, 1));
    for number in 0..2 {
        let verification = verify(&shared(&target), number, &mut |_| ()).unwrap();
        assert!(verification.findings.is_empty(), "{:?}", verification.findings);
    }
    drop(store);
    let error = Store::open(shared(&target), &identity(2, INCARNATION), config()).err();
    assert!(matches!(error, Some(Error::Foreign { field: "incarnation", .. })), "{error:?}");
    let mut store = Store::open(shared(&target), &identity(2, 11), config()).unwrap();
    assert_eq!(store.journal().value(1), Some(&b"new view"[..]));
    assert_eq!(store.open_named("orders", &mut |_| ()).unwrap().0, 0);
    let snapshots = store.snapshots(0).unwrap();
    let found = snapshots.list().unwrap();
    assert_eq!((found.len(), found[0].version, found[0].clock), (1, Version::new(1, 60), 600));
    let (mut reader, mut state) = (snapshots.open(Version::new(1, 60)).unwrap(), vec![]);
    while let Some(bytes) = reader.next().unwrap() {
        state.extend_from_slice(bytes);
    }
    assert_eq!(state, "state 60".repeat(20_000).into_bytes());
    append(&mut store, 0, 120..130);
    assert_eq!(store.log(0).unwrap().last(), Some(Version::new(1, 129)));
}

#[test]
fn two_backups_at_one_cut_have_the_same_bytes() {
    let (disk, _store) = source();
    let (other, mut longer) = source();
    append(&mut longer, 0, 200..230);
    append(&mut longer, 1, 140..150);
    let backups = [SimDisk::new(1, 1 << 26), SimDisk::new(2, 1 << 26)];
    // Log `prices` of the second one has records behind the cut.
    take(&disk, &backups[0], 1300).unwrap();
    take(&other, &backups[1], 1300).unwrap();
    let files =
        |backup: &SimDisk| backup.paths().into_iter().map(|path| (backup.content(&path), path)).collect::<Vec<_>>();
    assert_eq!(files(&backups[0]), files(&backups[1]));
}

#[test]
fn a_pruned_log_is_restored_with_its_floor_and_snapshot() {
    let (disk, mut store) = source();
    let rule = Retention { snapshot: Some(Version::new(1, 60)), ..Retention::default() };
    assert!(store.log(0).unwrap().retain(&rule).unwrap() > 0);
    let floor = store.log(0).unwrap().floor();
    let backup = SimDisk::new(4, 1 << 26);
    let manifest = take(&disk, &backup, 1500).unwrap();
    assert_eq!(manifest.logs[0].floor.map(|(floor, _)| floor), floor);
    assert_eq!(manifest.logs[0].snapshots, [60, 120].map(|sequence| Version::new(1, sequence)));
    let target = restored(&backup);
    let expected: Records = records(&disk, 0).into_iter().filter(|(_, clock, _)| *clock <= 1500).collect();
    assert_eq!(records(&target, 0), expected);
    let (readers, _) = open_read_only(&shared(&target), 0, &mut |_| ()).unwrap();
    assert_eq!(readers.floor(), floor);
    assert!(matches!(readers.reader().get(Version::new(1, 0)), Err(Error::Pruned { .. })));
}

/// The owner prunes and uses segments again while they are copied.
#[test]
fn pruning_meanwhile_is_noticed_and_leaves_a_whole_backup() {
    let (disk, mut store) = source();
    let backup = SimDisk::new(4, 1 << 26);
    let cut = 1990;
    let mut writer = BackupWriter::begin(shared(&backup), identity(1, INCARNATION), cut).unwrap();
    let mut calls = 0;
    for source in sources(&disk, cut) {
        let mut go_on = |_| {
            calls += 1;
            if calls == 20 {
                snapshot(&store.snapshots(0).unwrap(), 180, Some(Version::new(1, 120)));
                let rule = Retention { snapshot: Some(Version::new(1, 180)), ..Retention::default() };
                store.log(0).unwrap().retain(&rule).unwrap();
                // These are written into the segments that were pruned.
                append(&mut store, 0, 200..400);
            }
            true
        };
        writer.add(source, &mut go_on).unwrap();
    }
    writer.finish(vec![], (0, true), "").unwrap();
    let verification = verify_backup(&shared(&backup), &mut |_| true).unwrap();
    assert!(verification.findings.is_empty(), "{:?}", verification.findings);
    let orders = &verification.manifest.logs[0];
    assert_eq!((orders.last.map(|(last, _)| last), orders.floor.is_some()), (Some(Version::new(1, 199)), true));
    // All records between the floor and the cut are here.
    let first = orders.first.unwrap().sequence;
    assert_eq!((orders.floor.unwrap().0.sequence + 1, orders.records), (first, 200 - first));
    assert_eq!((first > 150, &orders.snapshots[..]), (true, &[Version::new(1, 180)][..]));
}

#[test]
fn records_that_only_later_snapshots_contain_are_an_error() {
    let (disk, mut store) = source();
    let mut opened = sources(&disk, 500);
    let rule = Retention { snapshot: Some(Version::new(1, 60)), ..Retention::default() };
    store.log(0).unwrap().retain(&rule).unwrap();
    let backup = SimDisk::new(4, 1 << 26);
    let mut writer = BackupWriter::begin(shared(&backup), identity(1, INCARNATION), 500).unwrap();
    let error = writer.add(opened.remove(0), &mut |_| true).unwrap_err();
    assert!(matches!(error, BackupError::Overtaken { subgroup: 0, .. }), "{error}");
    drop(writer);
    assert!(matches!(read_manifest(&backup), Err(BackupError::Unfinished { .. })));
    // The snapshot of a source that was opened before is kept, although the owner has removed the file.
    let opened = sources(&disk, 600).remove(0);
    let snapshots = store.snapshots(0).unwrap();
    snapshot(&snapshots, 180, Some(Version::new(1, 120)));
    assert_eq!(snapshots.list().unwrap().len(), 2);
    let backup = SimDisk::new(4, 1 << 26);
    let mut writer = BackupWriter::begin(shared(&backup), identity(1, INCARNATION), 600).unwrap();
    assert_eq!(writer.add(opened, &mut |_| true).unwrap().snapshots, [Version::new(1, 60)]);
}

#[test]
fn every_file_that_is_changed_cut_off_or_missing_is_named() {
    let (disk, _store) = source();
    let backup = SimDisk::new(4, 1 << 26);
    let manifest = take(&disk, &backup, 1500).unwrap();
    assert_eq!(manifest.files.len(), 4);
    let named = |backup: &SimDisk| match verify_backup(&shared(backup), &mut |_| true) {
        Ok(verification) => verification.findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        Err(error) => vec![error.to_string()],
    };
    assert_eq!(named(&backup), Vec::<String>::new());
    let paths = manifest.files.iter().map(|file| file.path.clone()).chain(["manifest".to_string()]);
    for path in paths {
        let whole = backup.content(&path).unwrap();
        let step = (whole.len() / 23).max(1);
        for at in (0..whole.len()).step_by(step).chain([whole.len() - 1]) {
            let mut changed = whole.clone();
            changed[at] ^= 1 << (at % 8);
            let longer = [&whole[..], &[0]].concat();
            for (bytes, what) in [(changed, "changed"), (whole[..at].to_vec(), "cut off"), (longer, "longer")] {
                let copy = backup.fork(1);
                copy.put(&path, bytes);
                let found = named(&copy);
                let is_named = found.len() == 1 && found[0].starts_with(&format!("{path} "));
                assert!(is_named, "{path} is {what} at {at}: {found:?}");
            }
        }
        let copy = backup.fork(1);
        copy.remove(&path).unwrap();
        let found = named(&copy);
        assert!(
            found.len() == 1 && found[0].contains(if path == "manifest" { "not finished" } else { &path }),
            "{found:?}"
        );
        // A restore refuses what it meets, too.
        if path != "manifest" {
            let target = shared(&SimDisk::new(5, 1 << 26));
            let (new, mut go_on) = (identity(2, 11), |_| true);
            let error = restore(&shared(&copy), &manifest, &target, &new, None, config(), &mut go_on).unwrap_err();
            assert!(error.to_string().contains(&path), "{error}");
        }
    }
    // A manifest of another version.
    let mut other = backup.content("manifest").unwrap();
    other[12] = 2;
    backup.put("manifest", other);
    assert!(matches!(read_manifest(&backup), Err(BackupError::Format { found: 2, expected: 1, .. })));
}

/// At each operation of the disk of the backup the machine crashes, or the process dies.
#[test]
fn a_backup_that_was_not_finished_never_looks_whole() {
    let (disk, _store) = source();
    let (mut whole, mut count) = (0, 0);
    loop {
        let mut is_over = true;
        for is_crash in [false, true] {
            let backup = SimDisk::new(count, 1 << 26);
            backup.set_faults(Faults { crash_after: Some(count), ..Faults::default() });
            let taken = take(&disk, &backup, 1500);
            is_over &= taken.is_ok();
            backup.set_faults(Faults::default());
            if is_crash {
                backup.crash()
            } else {
                backup.kill()
            }
            match verify_backup(&shared(&backup), &mut |_| true) {
                Ok(verification) => {
                    assert!(verification.findings.is_empty(), "after {count}: {:?}", verification.findings);
                    whole += 1;
                }
                Err(error) => {
                    assert!(taken.is_err(), "after {count}: {error}");
                    assert!(matches!(error, BackupError::Unfinished { .. }), "after {count}: {error}");
                }
            }
        }
        count += 1;
        if is_over {
            break;
        }
    }
    assert!(count > 20 && whole > 0, "{count} {whole}");
}

#[test]
fn a_full_disk_reports_what_is_missing_and_leaves_no_file() {
    let (disk, _store) = source();
    let need = {
        let backup = SimDisk::new(4, 1 << 26);
        take(&disk, &backup, 1500).unwrap().bytes()
    };
    let mut full = 0;
    for capacity in (0..need + 3000).step_by(need as usize / 40) {
        let backup = SimDisk::new(4, capacity);
        match take(&disk, &backup, 1500) {
            Ok(_) => assert!(capacity >= need),
            Err(BackupError::Full { needed, free, .. }) => {
                full += 1;
                assert!(needed > 0 && free <= capacity, "{needed} {free}");
                let left: Vec<String> =
                    backup.paths().into_iter().filter(|path| backup.content(path).is_some()).collect();
                assert!(left.is_empty(), "{left:?}");
            }
            Err(error) => panic!("{capacity}: {error}"),
        }
    }
    assert!(full > 30, "{full}");
}

#[test]
fn a_directory_that_is_not_empty_or_of_the_same_group_is_refused() {
    let (disk, _store) = source();
    let backup = SimDisk::new(4, 1 << 26);
    take(&disk, &backup, 1500).unwrap();
    let again = take(&disk, &backup, 1500).unwrap_err();
    assert!(matches!(again, BackupError::NotEmpty { .. }), "{again}");
    assert!(verify_backup(&shared(&backup), &mut |_| true).unwrap().findings.is_empty());
    let manifest = read_manifest(&backup).unwrap();
    let restore_to = |target: &SimDisk, new| {
        restore(&shared(&backup), &manifest, &shared(target), &new, None, config(), &mut |_| true).unwrap_err()
    };
    assert!(matches!(restore_to(&disk, identity(2, 11)), BackupError::NotEmpty { .. }));
    let same = restore_to(&SimDisk::new(6, 1 << 26), identity(2, INCARNATION));
    assert!(matches!(same, BackupError::Log(Error::Foreign { field: "incarnation", .. })), "{same}");
    let small = restore_to(&SimDisk::new(6, 100 << 10), identity(2, 11));
    assert!(matches!(small, BackupError::Log(Error::Full { .. } | Error::Io { .. })), "{small}");
    // A stop.
    let mut writer = BackupWriter::begin(shared(&SimDisk::new(4, 1 << 26)), identity(1, INCARNATION), 1500).unwrap();
    let stopped = writer.add(sources(&disk, 1500).remove(0), &mut |_| false).unwrap_err();
    assert!(matches!(stopped, BackupError::Stopped), "{stopped}");
}

//! The formats: what is written equals the files in `tests/golden`, byte by byte, and those are read.
//! `BLESS=1 cargo test -p spindle-log --test golden` writes them anew, for a new format number only.
mod model;
use model::{SUBGROUP, config, identity, read_all};
use spindle_log::disk::SimDisk;
use spindle_log::{DataDirectory, Disk, Record, Store, Version, export, verify};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of a log without records.
const NAME: &str = "prices";

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn payload(sequence: u64) -> Vec<u8> {
    (0..sequence * 300).map(|at| (at % 251) as u8).collect()
}

fn written() -> SimDisk {
    let disk = SimDisk::new(1, 1 << 24);
    let mut store = Store::open(Arc::new(disk.clone()), &identity(), config()).expect("no faults");
    store.open_log(SUBGROUP, &mut |_| ()).expect("no faults");
    for sequence in 0..8 {
        let payload = payload(sequence);
        let record = Record { version: Version::new(1, sequence), clock: 1000 + sequence, payload: &payload };
        store.log(SUBGROUP).expect("open").append([record]).expect("no faults");
    }
    store.journal().put(1, b"promise").expect("no faults");
    store.journal().put(2, b"view").expect("no faults");
    let mut writer = store.snapshots(SUBGROUP).expect("open").begin(Version::new(1, 3), 1003).expect("no faults");
    writer.write(&payload(300)).expect("no faults");
    writer.finish().expect("no faults");
    store.record_frontiers().expect("no faults");
    store.open_named(NAME, &mut |_| ()).expect("no faults");
    disk
}

/// Content without the zeros at its end, which make most of a file.
fn trimmed(content: &[u8]) -> &[u8] {
    &content[..content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)]
}

fn golden_name(path: &str) -> String {
    path.replace('/', "__")
}

#[test]
fn what_is_written_has_not_changed() {
    let disk = written();
    for path in disk.paths().into_iter().filter(|path| path != "lock" && !path.contains("spare")) {
        let content = disk.content(&path).expect("it is listed");
        let golden = directory().join(golden_name(&path));
        if std::env::var_os("BLESS").is_some() {
            std::fs::create_dir_all(directory()).expect("the repository is writable");
            std::fs::write(&golden, trimmed(&content)).expect("the repository is writable");
        }
        let expected = std::fs::read(&golden).unwrap_or_else(|error| panic!("{}: {error}", golden.display()));
        assert!(trimmed(&content) == expected, "the format of {path} has changed");
    }
}

#[test]
fn golden_files_are_read() {
    let disk = SimDisk::new(1, 1 << 24);
    disk.create_directory("subgroup-00000007").expect("no faults");
    disk.create_directory("subgroup-00000000").expect("no faults");
    for entry in std::fs::read_dir(directory()).expect("the files are there") {
        let entry = entry.expect("the files are there");
        let path = entry.file_name().to_string_lossy().replace("__", "/");
        let mut content = std::fs::read(entry.path()).expect("the files are there");
        let is_long = path.contains("segment") || path.ends_with("state") || path.ends_with("name");
        let length = if is_long { 8192 } else { content.len() };
        content.resize(length.max(content.len()), 0);
        if path.starts_with("journal") {
            content.resize(32 << 10, 0);
        }
        disk.put(&path, content);
    }
    let shared: Arc<dyn Disk> = Arc::new(disk);
    let mut sequence = 0;
    let count = export(&shared, SUBGROUP, None, &mut |record| {
        assert_eq!((record.version, record.clock), (Version::new(1, sequence), 1000 + sequence));
        assert!(record.payload == payload(sequence));
        sequence += 1;
        true
    });
    assert_eq!(count.expect("the files are valid"), 8);
    let verification = verify(&shared, SUBGROUP, &mut |_| ()).expect("the files are readable");
    assert!(verification.findings.is_empty(), "{:?}", verification.findings);
    let entries = DataDirectory::logs(&*shared).expect("the files are valid");
    let names = entries.into_iter().map(|entry| (entry.subgroup, entry.name.expect("the names are valid")));
    assert_eq!(names.collect::<Vec<_>>(), [(0, Some(NAME.into())), (SUBGROUP, None)]);
    let mut store = Store::open(shared, &identity(), config()).expect("the files are valid");
    assert_eq!(store.open_named(NAME, &mut |_| ()).expect("the files are valid").0, 0);
    assert_eq!(store.journal().value(1), Some(&b"promise"[..]));
    assert_eq!(store.journal().value(2), Some(&b"view"[..]));
    store.open_log(SUBGROUP, &mut |_| ()).expect("the files are valid");
    assert_eq!(store.snapshots(SUBGROUP).expect("open").list().expect("valid")[0].version, Version::new(1, 3));
    assert_eq!(read_all(&mut store.log(SUBGROUP).expect("open").readers().reader()).expect("valid").len(), 8);
}

//! Records go from the log of one process to that of another.
use super::fetching::{Fetch, FetchCounts, Fetched};
use super::position;
use super::serving::{RecordSource, first, send};
use crate::config::LogSettings;
use crate::shared::Notices;
use crate::transfer::{PATIENCE, TransferWay};
use spindle_core::ViewId;
use spindle_core::control::{NoRecords, RecordBound, RecordStreamEnd, WantedRecords};
use spindle_fabric::pipe::PipeWriter;
use spindle_log::{
    Appender, Error, FileDisk, Identity, PayloadKind, Readers, Retention, Store, StreamEnd, Version, Writer,
};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

/// A log in a directory that is removed with it.
struct TestLog {
    writer: Option<Writer>,
    number: u32,
    dir: PathBuf,
}

impl TestLog {
    fn new(name: &str) -> TestLog {
        let dir = std::env::temp_dir().join(format!("spindle-records-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let disk = Arc::new(FileDisk::new(&dir).unwrap());
        let identity = Identity { group: "g".to_string(), member: 1, incarnation: 7, payloads: PayloadKind::Messages };
        let files = LogSettings { segment_bytes: 64 << 10, ..LogSettings::default() }.files();
        let mut store = Store::open(disk, &identity, files).unwrap();
        let (number, _) = store.open_named("ledger", &mut |_| {}).unwrap();
        TestLog { writer: Some(Writer::start(store, |_| {}).unwrap()), number, dir }
    }

    /// Prunes all that it may.
    fn prune(&self) {
        let (number, rule) = (self.number, Retention { bytes_max: Some(1), ..Retention::default() });
        self.writer().call(move |store| store.log(number)?.retain(&rule)).unwrap().unwrap();
    }

    fn writer(&self) -> &Writer {
        self.writer.as_ref().unwrap()
    }

    /// Appends the records 1:0, 1:2, .. up to `count` of them, of 1000 bytes.
    fn fill(&self, count: u64) {
        let mut appender = self.writer().appender(self.number).unwrap();
        for i in 0..count {
            appender.append_parts(Version::new(1, 2 * i), i, &[&[i as u8; 1000]]).unwrap();
        }
        appender.flush().unwrap();
        while appender.durable_records() < count {
            thread::yield_now();
        }
    }

    fn readers(&self) -> Readers {
        let number = self.number;
        // A second appender would replace the first.
        self.writer().call(move |store| store.log(number).map(|log| log.readers())).unwrap().unwrap()
    }

    fn source(&self, is_complete: bool) -> RecordSource {
        RecordSource { readers: self.readers(), is_complete, is_settled: true, begins: Version::new(9, 0) }
    }

    fn versions(&self) -> Vec<Version> {
        let (mut reader, mut versions) = (self.readers().reader(), vec![]);
        while let Some(record) = reader.next().unwrap() {
            versions.push(record.version);
        }
        versions
    }

    /// Takes a stream that `sends` writes into a pipe.
    fn fetch(
        &self,
        last: Option<(Version, u64)>,
        sends: impl FnOnce(PipeWriter) -> io::Result<()> + Send + 'static,
    ) -> (Fetched, Arc<FetchCounts>) {
        let (pipe, ends) = PipeWriter::create(None, PATIENCE).unwrap();
        thread::spawn(move || sends(pipe));
        let counts = Arc::default();
        let (log, notices) = ((self.writer().handle(), self.number), Arc::new(Notices::default()));
        let fetch = Fetch::begin(TransferWay::Pipe(ends), log, (last, false), &counts, &notices).unwrap();
        let start = Instant::now();
        loop {
            if let Some(fetched) = fetch.result() {
                return (fetched.unwrap(), counts);
            }
            assert!(start.elapsed().as_secs() < 20);
            thread::yield_now();
        }
    }
}

impl Drop for TestLog {
    fn drop(&mut self) {
        self.writer = None;
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn wanted(after: Option<Version>, bound: RecordBound, may_skip: bool) -> WantedRecords {
    WantedRecords { subgroup: "ledger".to_string(), after: after.map(position), bound, may_skip }
}

fn before(view: u64) -> RecordBound {
    RecordBound::Before(ViewId(view))
}

/// A transport that breaks after some bytes.
struct Breaking(PipeWriter, usize);

impl Write for Breaking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.1 == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let len = bytes.len().min(self.1);
        self.1 -= len;
        self.0.write(&bytes[..len])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_log_continues_with_another_source_where_the_first_one_died() {
    let (source, log) = (TestLog::new("died-source"), TestLog::new("died"));
    source.fill(5000);
    let from = source.source(true);
    let (fetched, counts) = log.fetch(None, move |pipe| {
        // The fifth part is not complete. A pipe may lose what its reader has not taken by then.
        send(&from, &wanted(None, before(2), false), Breaking(pipe, 4_500_000)).map(drop)
    });
    let last = fetched.last;
    let at = last.map(|(version, _)| version);
    assert_eq!((fetched.end, fetched.first), (RecordStreamEnd::Broken, Some(Version::new(1, 0))));
    assert!(at > Some(Version::new(1, 1000)) && at < Some(Version::new(1, 9998)), "{at:?}");
    assert_eq!(fetched.appender.unwrap().last(), last);
    assert_eq!(log.versions().last().copied(), at);
    let from = source.source(true);
    let (fetched, _) = log.fetch(last, move |pipe| {
        let (pipe, (_, end)) = send(&from, &wanted(at, before(2), false), pipe)?;
        assert_eq!(end, StreamEnd::Complete);
        pipe.finish();
        Ok(())
    });
    assert_eq!(
        (fetched.end, fetched.first),
        (RecordStreamEnd::Complete, at.map(|at| Version::new(1, at.sequence + 2)))
    );
    assert!(counts.records.load(Ordering::Relaxed) > 500 && fetched.bytes > 500_000);
    assert_eq!(log.versions(), source.versions());
    // The log continues.
    let mut appender = fetched.appender.unwrap();
    appender.append_parts(Version::new(2, 0), 5000, &[b"new"]).unwrap();
    appender.flush().unwrap();
    while appender.durable() != Some(Version::new(2, 0)) {
        thread::yield_now();
    }
}

#[test]
fn records_that_the_log_has_are_not_taken_twice() {
    let log = TestLog::new("twice");
    log.fill(10);
    let (from, last) = (log.source(true), Some((Version::new(1, 18), 9)));
    let (fetched, _) = log.fetch(last, move |pipe| send(&from, &wanted(None, before(2), false), pipe).map(drop));
    assert_eq!((fetched.end, fetched.first, fetched.last), (RecordStreamEnd::Broken, None, last));
    assert_eq!(log.versions().len(), 10);
}

#[test]
fn a_log_whose_writer_has_stopped_reports_that() {
    let (source, mut log) = (TestLog::new("stopped-source"), TestLog::new("stopped"));
    source.fill(3);
    let (from, handle) = (source.source(false), log.writer().handle());
    let (pipe, ends) = PipeWriter::create(None, PATIENCE).unwrap();
    log.writer = None;
    let log = (handle, log.number);
    let fetch = Fetch::begin(TransferWay::Pipe(ends), log, (None, false), &Arc::default(), &Arc::default()).unwrap();
    send(&from, &wanted(None, before(2), false), pipe).unwrap().0.finish();
    let fetched = loop {
        if let Some(fetched) = fetch.result() {
            break fetched.unwrap();
        }
        thread::yield_now();
    };
    assert!(matches!(fetched.appender, Err(Error::Stopped)));
}

#[test]
fn a_source_sends_what_it_has_and_says_what_it_lacks() {
    let source = TestLog::new("source");
    let sends = |is_complete, after: Option<(u64, u64)>, bound, may_skip| {
        let after = after.map(|(epoch, sequence)| Version::new(epoch, sequence));
        send(&source.source(is_complete), &wanted(after, bound, may_skip), vec![]).unwrap().1
    };
    // A log without records.
    assert_eq!(sends(true, None, before(9), false), (0, StreamEnd::Complete));
    assert_eq!(sends(false, Some((1, 4)), before(9), false), (0, StreamEnd::NotYet));
    // It was never pruned, so that record is not the group's.
    assert_eq!(sends(true, Some((1, 4)), before(9), false), (0, StreamEnd::Lacks { last: None }));
    assert_eq!(sends(true, Some((1, 4)), before(9), true), (0, StreamEnd::Complete));
    source.fill(300);
    assert_eq!(sends(true, None, before(2), false), (300, StreamEnd::Complete));
    assert_eq!(sends(false, Some((1, 4)), before(2), false), (297, StreamEnd::NotYet));
    assert_eq!(sends(true, Some((1, 4)), RecordBound::Through(position(Version::new(1, 9))), false).0, 2);
    assert_eq!(sends(true, None, before(1), false), (0, StreamEnd::Complete));
    // It has no record 1:5, and nothing after 1:598.
    let lacks = |sequence| StreamEnd::Lacks { last: Some(Version::new(1, sequence)) };
    assert_eq!(sends(true, Some((1, 5)), before(2), false), (0, lacks(4)));
    let unsettled = RecordSource { is_settled: false, ..source.source(true) };
    let request = wanted(Some(Version::new(1, 5)), before(2), false);
    assert_eq!(send(&unsettled, &request, vec![]).unwrap().1, (0, StreamEnd::NotYet));
    assert_eq!(sends(true, Some((1, 301)), before(2), false), (0, lacks(300)));
    assert_eq!(sends(true, Some((1, 600)), before(2), false), (0, lacks(598)));
    // Its first record is a later one.
    assert_eq!(sends(true, Some((0, 7)), before(2), false), (0, StreamEnd::Lacks { last: None }));
    assert_eq!(sends(false, Some((1, 600)), before(2), false), (0, StreamEnd::NotYet));
    source.prune();
    let oldest = source.versions()[0];
    assert!(oldest > Version::new(1, 4));
    assert_eq!(sends(true, Some((1, 4)), before(2), false), (0, StreamEnd::Pruned { oldest }));
    let kept = source.versions().len() as u64;
    assert_eq!(sends(true, Some((1, 4)), before(2), true), (kept, StreamEnd::Complete));
    assert_eq!(sends(true, Some((1, 598)), before(2), true), (0, StreamEnd::Complete));
    let (end, _) = (sends(true, None, before(2), false).1, 0);
    assert!(matches!(end, StreamEnd::Pruned { .. }), "{end:?}");
}

/// Appends records to a log whenever something is written here.
struct Growing {
    appender: Appender,
    appended: u64,
}

impl Growing {
    fn grow(&mut self, count: u64) {
        for _ in 0..count {
            let version = Version::new(1, 2 * self.appended);
            self.appender.append_parts(version, self.appended, &[&[0; 1000]]).unwrap();
            self.appended += 1;
        }
        self.appender.flush().unwrap();
        while self.appender.durable_records() < self.appended {
            thread::yield_now();
        }
    }
}

impl Write for Growing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // As many records as go out, and some more.
        if self.appended < 40_000 {
            self.grow(bytes.len() as u64 / 1000 + 100);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Track record: a process that joined a group whose senders were faster than its catch-up got one stream
/// that did not end, and was never admitted.
#[test]
fn a_stream_ends_though_the_log_grows_faster() {
    const FIRST: u64 = 5_000;
    let log = TestLog::new("grows");
    let mut to = Growing { appender: log.writer().appender(log.number).unwrap(), appended: 0 };
    to.grow(FIRST);
    let (to, (records, end)) = send(&log.source(false), &wanted(None, before(2), false), to).unwrap();
    assert_eq!((records, end), (FIRST, StreamEnd::NotYet));
    assert!(to.appended > FIRST, "the log grew meanwhile");
}

#[test]
fn records_that_are_being_sent_are_not_pruned() {
    let source = TestLog::new("held");
    source.fill(300);
    let first = first(&source.source(true), &wanted(Some(Version::new(1, 4)), before(2), false)).unwrap();
    let (from, hold) = first.unwrap();
    source.prune();
    assert_eq!((from, source.versions()[0]), (Version::new(1, 5), Version::new(1, 0)));
    drop(hold);
    source.prune();
    assert!(source.versions()[0] > from);
}

#[test]
fn a_refusal_comes_with_the_stream() {
    let log = TestLog::new("refused");
    let (fetched, _) = log.fetch(None, |pipe| {
        let oldest = Version::new(4, 2);
        let pipe = spindle_log::StreamWriter::new(pipe).finish(StreamEnd::Pruned { oldest })?;
        pipe.finish();
        Ok(())
    });
    let oldest = position(Version::new(4, 2));
    assert_eq!(fetched.end, RecordStreamEnd::Refused(NoRecords::Pruned { oldest }));
}

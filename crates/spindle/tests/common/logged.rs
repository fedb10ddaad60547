//! Reads the logs that members have left.
use spindle_log::{DataDirectory, Disk, FileDisk, LoggedMessage, Version, open_read_only};
use std::path::Path;
use std::sync::Arc;

/// Returns what `seen` makes of each durable record of a log: of its version, its clock and its message.
pub(crate) fn read_log<T>(dir: &Path, name: &str, seen: impl Fn(Version, u64, LoggedMessage<'_>) -> T) -> Vec<T> {
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::read_only(dir).unwrap());
    let number = DataDirectory::find(&*disk, name).unwrap().unwrap();
    let (readers, _) = open_read_only(&disk, number, &mut |_| {}).unwrap();
    let (mut reader, mut records) = (readers.reader(), vec![]);
    while let Some(record) = reader.next().unwrap() {
        let message = LoggedMessage::parse(record.payload).unwrap();
        records.push(seen(record.version, record.clock, message));
    }
    records
}

//! The messages of a round's members, and the files in which members leave what the judge reads:
//! logs, deliveries and acknowledgements.
//!
//! A message is `INSTANCE.NUMBER.DIGEST` and padding, so each byte of it follows from its sender and
//! number.
use super::super::record::mix;
use super::judge::{Ack, Delivered, Deliveries, Logged, Sent};
use anyhow::{Context, Result, bail};
use spindle_log::{DataDirectory, Disk, FileDisk, LoggedMessage, Version, open_read_only};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// The name of the logged subgroup, which is the only one.
const SUBGROUP: &str = "all";
/// The longest padding, and how many messages there are for one with that.
const PADDING_MAX: u64 = 2000;
const LONG_ONE_IN: u64 = 40;
const PADDING_USUAL: u64 = 60;

/// Appends a message and the end of its line.
pub(super) fn write_line(sent: Sent, line: &mut Vec<u8>) {
    let digest = mix(u64::from(sent.instance) << 32 | u64::from(sent.number));
    line.extend_from_slice(format!("{}.{}.{digest:016x}", sent.instance, sent.number).as_bytes());
    let most = if digest.is_multiple_of(LONG_ONE_IN) { PADDING_MAX } else { PADDING_USUAL };
    line.resize(line.len() + ((digest >> 8) % most) as usize, b'a' + (digest % 26) as u8);
    line.push(b'\n');
}

/// Reads a message.
///
/// # Errors
/// A byte differs from what was sent.
fn parse_line(text: &[u8]) -> Result<Sent> {
    let numbers = text.split(|byte| *byte == b'.').take(2).map(|number| str::from_utf8(number).ok()?.parse().ok());
    let numbers: Option<Vec<u32>> = numbers.collect();
    let Some(&[instance, number]) = numbers.as_deref() else {
        bail!("{:?} is no message that was sent", String::from_utf8_lossy(text));
    };
    let sent = Sent { instance, number };
    let mut expected = vec![];
    write_line(sent, &mut expected);
    if expected[..expected.len() - 1] != *text {
        bail!("message {number} of process {instance} is not as it was sent: {:?}", String::from_utf8_lossy(text));
    }
    Ok(sent)
}

/// The directory of a member, as its identity names it.
pub(super) fn member_of(data: &Path) -> Result<Option<u64>> {
    let path = data.join("log");
    if !path.exists() {
        return Ok(None);
    }
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::read_only(&path)?);
    Ok(DataDirectory::identity_of(&*disk)?.map(|identity| identity.member))
}

/// Reads the log in a data directory. Empty if the process ended before it had one.
pub(super) fn read_log(data: &Path) -> Result<Vec<Logged>> {
    let path = data.join("log");
    if !path.exists() {
        return Ok(vec![]);
    }
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::read_only(&path)?);
    if DataDirectory::identity_of(&*disk)?.is_none() {
        return Ok(vec![]);
    }
    let Some(number) = DataDirectory::find(&*disk, SUBGROUP)? else { return Ok(vec![]) };
    // The process ended before the log had a state, so nothing was logged.
    if !path.join(format!("subgroup-{number:08x}/state")).exists() {
        return Ok(vec![]);
    }
    let (readers, _) = open_read_only(&disk, number, &mut |_| {})?;
    let (mut reader, mut records) = (readers.reader(), vec![]);
    while let Some(record) = reader.next()? {
        let message = LoggedMessage::parse(record.payload).context("a record is too short for a message")?;
        let sent =
            parse_line(message.payload).with_context(|| format!("record {} of {}", record.version, path.display()))?;
        records.push(Logged { version: record.version, sent });
    }
    Ok(records)
}

/// Reads the deliveries of a process, as `--with-origin` writes them.
pub(super) fn read_deliveries(path: &Path, instance: u32) -> Result<Deliveries> {
    let mut list = vec![];
    for line in lines(&read(path)?) {
        let place = || format!("{}: {:?}", path.display(), String::from_utf8_lossy(line));
        let at = line.iter().position(|byte| *byte == b' ').with_context(place)?;
        let view = str::from_utf8(&line[..at]).ok().and_then(|origin| origin.split(':').next()?.parse().ok());
        list.push(Delivered {
            view: view.with_context(place)?,
            sent: parse_line(&line[at + 1..]).with_context(place)?,
        });
    }
    Ok(Deliveries { instance, list })
}

/// The acknowledgements of a process, and how many messages it called not durable.
pub(super) fn read_acks(path: &Path, instance: u32) -> Result<(Vec<Ack>, u64)> {
    let (mut acks, mut refused) = (vec![], 0);
    for line in lines(&read(path)?) {
        let text = str::from_utf8(line)?;
        let parsed = text.split_once(' ').and_then(|(number, rest)| Some((number.parse().ok()?, rest)));
        let (number, rest) = parsed.with_context(|| format!("{}: {text:?}", path.display()))?;
        if rest.starts_with("- ") {
            refused += 1;
            continue;
        }
        let version = rest
            .split_once(':')
            .and_then(|(epoch, sequence)| Some(Version::new(epoch.parse().ok()?, sequence.parse().ok()?)));
        let version = version.with_context(|| format!("{}: {text:?}", path.display()))?;
        acks.push(Ack { sent: Sent { instance, number }, version });
    }
    Ok((acks, refused))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(vec![]),
        bytes => bytes.with_context(|| format!("can't read {}", path.display())),
    }
}

/// Returns the whole lines. The end of the last one may be missing after a kill.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    bytes[..end].split(|byte| *byte == b'\n').filter(move |_| end > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_sent_and_in_no_other_way() {
        let sent = Sent { instance: 7, number: 1203 };
        let mut line = vec![];
        write_line(sent, &mut line);
        assert_eq!(line.pop(), Some(b'\n'));
        assert_eq!(parse_line(&line).unwrap(), sent);
        let last = line.len() - 1;
        line[last] ^= 1;
        assert!(parse_line(&line).unwrap_err().to_string().contains("not as it was sent"));
        assert!(parse_line(b"hello").is_err());
        assert!(parse_line(b"7.1203").is_err());
    }

    #[test]
    fn a_line_that_a_kill_cut_off_does_not_count() {
        assert_eq!(lines(b"1 2:0\n2 2:").collect::<Vec<_>>(), [b"1 2:0"]);
        assert_eq!(lines(b"1 2:0").count() + lines(b"").count(), 0);
    }
}

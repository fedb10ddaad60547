//! The messages that a member sends: lines or length-prefixed frames, read in large blocks and
//! copied once into the ring.
use super::acks::AckSource;
use super::counts::MemberCounts;
use crate::exit::{CliError, CliResult, FAILED};
use anyhow::Context;
use memchr::{memchr, memchr_iter};
use rustix::event::{PollFd, PollFlags, poll};
use spindle::bulk::BulkSettings;
use spindle::{Publisher, SendError};
use std::fs::File;
use std::io::{self, Read, stdin};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Number of bytes per read.
const BLOCK_BYTES: usize = 256 << 10;
/// Longest line whose end is looked for, so that the error can report the line's length.
const LINE_BYTES_SOUGHT: u64 = 1 << 30;
/// Longest single wait for room. Waits repeat while the group lives and the input is not halted.
const ROOM_WAIT: Duration = Duration::from_millis(200);
/// Bytes of the length in front of a frame.
const PREFIX_BYTES: usize = 4;

/// A source of messages.
#[derive(Debug)]
pub(super) struct MessageInput {
    file: File,
    name: String,
    frames: bool,
    /// The longest message, which need not fit a ring.
    bytes_max: u64,
    /// The bytes at `start..end` were read and not sent. No line ends in those before `seen`.
    buffer: Vec<u8>,
    start: usize,
    seen: usize,
    end: usize,
    /// Number of messages sent.
    count: u64,
    /// Number of bytes of these messages.
    bytes: u64,
    /// True if the input has ended.
    at_end: bool,
    /// Number of earlier groups that this input has sent to.
    groups: u64,
    /// Takes the receipt of each message.
    acks: Option<AckSource>,
}

/// The result of sending.
#[derive(Debug)]
pub(super) enum SendResult {
    /// All messages were sent.
    All,
    /// The input was [halted](MemberCounts::halt).
    Halted,
    /// The input can't be read or sent. The publisher must not be dropped before the group, because
    /// that would declare that this member has finished.
    Failed(CliError, Publisher),
    /// The group has ended for this member, and there is no next group.
    Ended,
}

/// The reason why sending stopped.
enum SendStop {
    Halted,
    Ended,
    Failed(CliError),
}

impl MessageInput {
    pub(super) fn open(path: &Path, frames: bool, bytes_max: u64) -> CliResult<MessageInput> {
        let (file, name) = if path == Path::new("-") {
            let own = stdin().as_fd().try_clone_to_owned();
            (File::from(own.context("can't use the standard input")?), "the standard input".to_string())
        } else {
            let file = File::open(path);
            (file.with_context(|| format!("can't open the input {}", path.display()))?, path.display().to_string())
        };
        if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return Err(CliError::new(FAILED, format_args!("the input {name} is a directory; name a file")));
        }
        let (buffer, start, seen, end, count, bytes, at_end, groups, acks) = Default::default();
        Ok(MessageInput { file, name, frames, bytes_max, buffer, start, seen, end, count, bytes, at_end, groups, acks })
    }

    /// Has the receipt of each message noted.
    pub(super) fn acknowledge(&mut self, acks: AckSource) {
        self.acks = Some(acks);
    }

    /// Sets the longest message, as the settings of the group have it.
    pub(super) fn set_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
    }

    /// Sends all messages, to one group after the other if a group ends before. The first message
    /// that a group does not take is the first message of the next group.
    pub(super) fn send_all(mut self, publishers: &Receiver<Publisher>, counts: &MemberCounts) -> SendResult {
        while let Ok(mut publisher) = publishers.recv() {
            match self.send_rest(&mut publisher, counts) {
                Ok(()) => return SendResult::All,
                Err(SendStop::Halted) => return SendResult::Halted,
                Err(SendStop::Failed(failure)) => return SendResult::Failed(failure, publisher),
                Err(SendStop::Ended) => self.groups += 1,
            }
        }
        SendResult::Ended
    }

    fn send_rest(&mut self, publisher: &mut Publisher, counts: &MemberCounts) -> Result<(), SendStop> {
        loop {
            let sending = counts.begin_sending().ok_or(SendStop::Halted)?;
            let sent =
                if self.frames { self.send_frames(publisher, counts) } else { self.send_lines(publisher, counts) };
            // Only this thread writes these counts.
            counts.sent.store(self.count, Ordering::Relaxed);
            counts.sent_bytes.store(self.bytes, Ordering::Relaxed);
            drop(sending);
            sent?;
            if self.at_end {
                return Ok(self.check_rest()?);
            }
            self.at_end = !self.read()?;
        }
    }

    fn send_lines(&mut self, publisher: &mut Publisher, counts: &MemberCounts) -> Result<(), SendStop> {
        let (buffer, base) = (&self.buffer[..self.end], self.seen);
        for newline in memchr_iter(b'\n', &buffer[base..]).map(|at| at + base) {
            let line = &buffer[self.start..newline];
            if line.len() as u64 > self.bytes_max {
                let len = line.len() as u64;
                return Err(self.too_long(&format!("has {len} bytes"), Some(len)).into());
            }
            send(publisher, line, self.groups, counts, self.acks.as_ref().map(|acks| (acks, self.count + 1)))?;
            (self.start, self.seen) = (newline + 1, newline + 1);
            self.count += 1;
            self.bytes += line.len() as u64;
        }
        self.seen = self.end;
        let rest = &buffer[self.start..];
        if rest.len() as u64 > self.bytes_max {
            return Err(self.measure_long_line().into());
        }
        if self.at_end && !rest.is_empty() {
            send(publisher, rest, self.groups, counts, self.acks.as_ref().map(|acks| (acks, self.count + 1)))?;
            self.bytes += rest.len() as u64;
            self.start = self.end;
            self.count += 1;
        }
        Ok(())
    }

    fn send_frames(&mut self, publisher: &mut Publisher, counts: &MemberCounts) -> Result<(), SendStop> {
        while let Some((prefix, rest)) = self.buffer[self.start..self.end].split_first_chunk::<PREFIX_BYTES>() {
            let len = u32::from_le_bytes(*prefix);
            if u64::from(len) > self.bytes_max {
                let len = u64::from(len);
                return Err(self.too_long(&format!("has {len} bytes"), Some(len)).into());
            }
            let Some(payload) = rest.get(..len as usize) else { break };
            send(publisher, payload, self.groups, counts, self.acks.as_ref().map(|acks| (acks, self.count + 1)))?;
            self.start += PREFIX_BYTES + len as usize;
            self.count += 1;
            self.bytes += u64::from(len);
        }
        Ok(())
    }

    fn check_rest(&self) -> CliResult {
        let rest = self.end - self.start;
        if rest == 0 {
            return Ok(());
        }
        let message = format!(
            "{} ends in the middle of frame {}, after {rest} bytes of it; all frames before it were sent",
            self.name,
            self.count + 1
        );
        Err(CliError::new(FAILED, message))
    }

    /// Reads a block behind the unsent bytes. Returns false at the end of the input.
    fn read(&mut self) -> CliResult<bool> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.seen = self.seen.saturating_sub(self.start);
        self.start = 0;
        if self.buffer.len() < self.end + BLOCK_BYTES {
            self.buffer.resize(self.end + BLOCK_BYTES, 0);
        }
        let count = read(&mut self.file, &mut self.buffer[self.end..]);
        let count = count.with_context(|| format!("can't read {} (after message {})", self.name, self.count))?;
        self.end += count;
        Ok(count > 0)
    }

    /// Looks for the end of a line that the buffer contains in part. Only files are searched,
    /// because the end may never arrive through a pipe.
    fn measure_long_line(&mut self) -> CliError {
        let mut len = (self.end - self.start) as u64;
        let is_file = self.file.metadata().is_ok_and(|metadata| metadata.is_file());
        while is_file && len < LINE_BYTES_SOUGHT {
            match read(&mut self.file, &mut self.buffer) {
                Ok(count) if count > 0 => match memchr(b'\n', &self.buffer[..count]) {
                    Some(newline) => len += newline as u64,
                    None => {
                        len += count as u64;
                        continue;
                    }
                },
                _ => {}
            }
            return self.too_long(&format!("has {len} bytes"), Some(len));
        }
        self.too_long(&format!("has more than {len} bytes"), None)
    }

    fn too_long(&self, what: &str, len: Option<u64>) -> CliError {
        let kind = if self.frames { "frame" } else { "line" };
        let enough = match len {
            Some(len) if len <= BulkSettings::OBJECT_BYTES_MAX => {
                format!("set group.object_bytes_max to {len} at all members, or split it")
            }
            Some(_) => "split it: no message can be so long".to_string(),
            None => "raise group.object_bytes_max at all members, or split it".to_string(),
        };
        let (count, max, name) = (self.count + 1, self.bytes_max, &self.name);
        CliError::new(FAILED, format_args!("{kind} {count} of {name} {what}, the limit is {max}; {enough}"))
    }
}

impl From<CliError> for SendStop {
    fn from(failure: CliError) -> SendStop {
        SendStop::Failed(failure)
    }
}

/// Sends a message, and notes its receipt under its number if `ack` has one.
fn send(
    publisher: &mut Publisher,
    payload: &[u8],
    group: u64,
    counts: &MemberCounts,
    ack: Option<(&AckSource, u64)>,
) -> Result<(), SendStop> {
    while !counts.is_halted() {
        if counts.ended() != group {
            return Err(SendStop::Ended);
        }
        let sent = match ack {
            None => publisher.send(payload, ROOM_WAIT),
            Some((acks, number)) => {
                publisher.send_tracked(payload, ROOM_WAIT).map(|receipt| acks.push(number, receipt, counts))
            }
        };
        match sent {
            Ok(()) => return Ok(()),
            Err(SendError::Full { .. } | SendError::TooMany { .. }) => {}
            Err(SendError::Ended(_)) => return Err(SendStop::Ended),
            Err(error) => return Err(SendStop::Failed(CliError::new(FAILED, error))),
        }
    }
    Err(SendStop::Halted)
}

/// Reads once. A signal does not interrupt it, and the descriptor may be non-blocking.
fn read(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(file, PollFlags::IN)], None)?;
            }
            outcome => return outcome,
        }
    }
}

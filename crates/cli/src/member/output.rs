//! The deliveries of a member, written in the order of the group.
//!
//! A message counts as delivered, here and at the other members, once it is written.
use super::counts::MemberCounts;
use crate::exit::{CliError, CliResult, FAILED};
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use spindle::{Ended, MemberId, Message, ReceiveError, Receiver, View};
use std::fs::File;
use std::io::{self, Write, stdout};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Approximate number of bytes per write.
pub(crate) const BLOCK_BYTES: usize = 128 << 10;
/// Longest single wait. Waits repeat while the group lives.
const WAIT: Duration = Duration::from_secs(1);

/// The destination of deliveries.
#[derive(Debug)]
pub(crate) struct DeliveryOutput {
    file: File,
    name: String,
    frames: bool,
    with_origin: bool,
}

/// The result of writing.
#[derive(Debug)]
pub(super) enum WriteResult {
    /// Every member has finished, and everything is written.
    All,
    /// The group has ended for this member. Everything delivered by then is written.
    Ended(Ended, DeliveryOutput),
    /// The output accepts no more data.
    Failed(CliError),
}

impl DeliveryOutput {
    pub(crate) fn open(path: &Path, input: &Path, frames: bool, with_origin: bool) -> CliResult<DeliveryOutput> {
        if path == Path::new("-") {
            let own = stdout().as_fd().try_clone_to_owned();
            let file = File::from(own.context("can't use the standard output")?);
            return Ok(DeliveryOutput { file, name: "the standard output".to_string(), frames, with_origin });
        }
        let name = path.display().to_string();
        if are_same(input, path) {
            return Err(CliError::new(FAILED, format_args!("{name} is input and output; name another output")));
        }
        let file = File::create(path).with_context(|| format!("can't create the output {name}"))?;
        Ok(DeliveryOutput { file, name, frames, with_origin })
    }

    /// Writes all deliveries of a group to member `me`, until the group ends.
    pub(super) fn write_all(mut self, mut receiver: Receiver, me: MemberId, counts: &MemberCounts) -> WriteResult {
        let mut buffer = Vec::with_capacity(2 * BLOCK_BYTES);
        loop {
            let mut deliveries = match receiver.receive(WAIT) {
                Ok(deliveries) => deliveries,
                Err(ReceiveError::TimedOut { .. }) => continue,
                Err(ReceiveError::Finished) => return WriteResult::All,
                Err(ReceiveError::Ended(ended)) => return WriteResult::Ended(ended, self),
                Err(error) => return WriteResult::Failed(CliError::new(FAILED, error)),
            };
            buffer.clear();
            let (mut messages, mut bytes, mut own) = (0, 0, 0);
            let view = deliveries.view();
            for message in &mut deliveries {
                messages += 1;
                bytes += message.payload.len() as u64;
                own += u64::from(message.sender_id == me);
                self.append(&message, view, &mut buffer);
                if buffer.len() >= BLOCK_BYTES {
                    break;
                }
            }
            counts.set_writing(true);
            let written = self.write(&buffer);
            counts.set_writing(false);
            if let Err(failure) = written {
                return WriteResult::Failed(failure);
            }
            drop(deliveries);
            counts.delivered.fetch_add(messages, Ordering::Relaxed);
            counts.delivered_bytes.fetch_add(bytes, Ordering::Relaxed);
            counts.settled.fetch_add(own, Ordering::Relaxed);
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Writes the messages that were [appended](Self::append) to `buffer`.
    pub(crate) fn write(&mut self, buffer: &[u8]) -> CliResult {
        let written = write(&mut self.file, buffer);
        Ok(written.with_context(|| format!("can't write to {}; the others go on", self.name))?)
    }

    /// Appends a message in the format of this output.
    pub(crate) fn append(&self, message: &Message<'_>, view: &View, buffer: &mut Vec<u8>) {
        let Message { sender_id, round, payload, .. } = *message;
        let (view, sender) = (view.id.0, sender_id.0);
        if self.frames {
            buffer.extend_from_slice(&(payload.len() as u32).to_le_bytes());
            if self.with_origin {
                for number in [view, sender, round] {
                    buffer.extend_from_slice(&number.to_le_bytes());
                }
            }
            buffer.extend_from_slice(payload);
        } else {
            if self.with_origin {
                // A write to a vector can't fail.
                let _ = write!(buffer, "{view}:{sender}:{round} ");
            }
            buffer.extend_from_slice(payload);
            buffer.push(b'\n');
        }
    }
}

/// Returns whether both paths name one regular file.
pub(super) fn are_same(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (one.metadata(), other.metadata()) else { return false };
    one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Writes all of `bytes`. Signals do not interrupt it, and the descriptor may be non-blocking.
pub(super) fn write(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(file, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

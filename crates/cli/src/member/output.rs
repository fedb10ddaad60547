//! What a member delivers, written in the order of the group.
//!
//! A message counts as delivered, here and at the other members, once it is written.
use super::Counts;
use crate::exit::{ENDED, FAILED, Failure, Outcome};
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use spindle::{Message, ReceiveError, Receiver};
use std::fs::{File, Metadata};
use std::io::{self, Write, stdout};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes written at once, about.
const BLOCK_BYTES: usize = 128 << 10;
/// The longest single wait; there are as many as it takes while the group lives.
const WAIT: Duration = Duration::from_secs(1);

/// Where deliveries go.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    name: String,
    frames: bool,
    with_origin: bool,
}

impl Output {
    pub(super) fn open(path: &Path, input: &Path, frames: bool, with_origin: bool) -> Outcome<Output> {
        if path == Path::new("-") {
            let own = stdout().as_fd().try_clone_to_owned();
            let file = File::from(own.context("can't use the standard output")?);
            return Ok(Output { file, name: "the standard output".to_string(), frames, with_origin });
        }
        let name = path.display().to_string();
        if let (Ok(from), Ok(to)) = (input.metadata(), path.metadata())
            && is_same(&from, &to)
        {
            return Err(Failure::new(FAILED, format_args!("{name} is input and output; name another output")));
        }
        let file = File::create(path).with_context(|| format!("can't create the output {name}"))?;
        Ok(Output { file, name, frames, with_origin })
    }

    /// Writes everything that is delivered until every member has finished.
    pub(super) fn write_all(mut self, mut receiver: Receiver, counts: &Counts) -> Outcome {
        let mut buffer = Vec::with_capacity(2 * BLOCK_BYTES);
        loop {
            let mut deliveries = match receiver.receive(WAIT) {
                Ok(deliveries) => deliveries,
                Err(ReceiveError::TimedOut { .. }) => continue,
                Err(ReceiveError::Finished) => return Ok(()),
                Err(ReceiveError::Ended(ended)) => {
                    let written = counts.delivered.load(Ordering::Relaxed);
                    let told = format!("{} holds the {written} messages delivered before; start all again", self.name);
                    return Err(Failure::new(ENDED, format_args!("{ended}; {told}")));
                }
                Err(error) => return Err(Failure::new(FAILED, error)),
            };
            buffer.clear();
            let (mut messages, mut bytes) = (0, 0);
            for message in &mut deliveries {
                messages += 1;
                bytes += message.payload.len() as u64;
                self.append(&message, &mut buffer);
                if buffer.len() >= BLOCK_BYTES {
                    break;
                }
            }
            let written = write(&mut self.file, &buffer);
            written.with_context(|| format!("can't write to {}; the other members are told", self.name))?;
            drop(deliveries);
            counts.delivered.fetch_add(messages, Ordering::Relaxed);
            counts.delivered_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn append(&self, message: &Message<'_>, buffer: &mut Vec<u8>) {
        let Message { sender, round, payload } = *message;
        if self.frames {
            buffer.extend_from_slice(&(payload.len() as u32).to_le_bytes());
            if self.with_origin {
                buffer.extend_from_slice(&sender.0.to_le_bytes());
                buffer.extend_from_slice(&round.to_le_bytes());
            }
            buffer.extend_from_slice(payload);
        } else {
            if self.with_origin {
                // Writing to a vector can't fail.
                let _ = write!(buffer, "{sender}:{round} ");
            }
            buffer.extend_from_slice(payload);
            buffer.push(b'\n');
        }
    }
}

fn is_same(from: &Metadata, to: &Metadata) -> bool {
    from.is_file() && (from.dev(), from.ino()) == (to.dev(), to.ino())
}

/// Writes all of `bytes`, whatever signals come, also to a descriptor that somebody made non-blocking.
fn write(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
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

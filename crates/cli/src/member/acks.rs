//! The messages of a member that are durable, a line each, in the order of its input.
//!
//! The input notes the receipt of each message in a bounded queue. A thread waits for the oldest one,
//! and writes its line. A message without a line is not known to be durable, also after a crash.
use super::counts::MemberCounts;
use super::output;
use crate::exit::{CliError, CliResult, FAILED, USAGE};
use anyhow::Context;
use spindle::{NotDurable, Outcome, Receipt, SubgroupSpec};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Write, stdout};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most messages that wait to become durable. Behind that the input waits.
const RECEIPTS_MAX: usize = 1 << 16;
/// Longest single wait. Waits repeat.
const WAIT: Duration = Duration::from_millis(200);
/// Approximate number of bytes per write.
const BLOCK_BYTES: usize = 16 << 10;

/// The receipts of sent messages, by their numbers in the input, from 1.
#[derive(Debug, Default)]
pub(super) struct AckQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    receipts: VecDeque<(u64, Receipt)>,
    /// True if no more messages are sent.
    closed: bool,
    /// True if all lines are written, or can't be.
    done: bool,
}

impl AckQueue {
    /// Notes a message. Waits for room unless the input is halted, in which case the line is missing.
    pub(super) fn push(&self, number: u64, receipt: Receipt, counts: &MemberCounts) {
        let mut state = self.lock();
        while state.receipts.len() >= RECEIPTS_MAX && !state.done {
            if counts.is_halted() {
                return;
            }
            state = self.wait(state, WAIT);
        }
        if !state.done {
            state.receipts.push_back((number, receipt));
            self.changed.notify_all();
        }
    }

    /// Records that no more messages are sent.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits until the lines of all messages are written.
    pub(super) fn wait_for_all(&self, at_most: Duration) {
        self.close();
        drop(self.changed.wait_timeout_while(self.lock(), at_most, |state| !state.done));
    }

    /// Removes the oldest messages, and waits for one; empty: there are no more.
    fn take(&self, taken: &mut VecDeque<(u64, Receipt)>) {
        let mut state = self.lock();
        while state.receipts.is_empty() && !state.closed {
            state = self.wait(state, WAIT);
        }
        std::mem::swap(&mut state.receipts, taken);
        self.changed.notify_all();
    }

    fn end(&self) {
        self.lock().done = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, QueueState>, at_most: Duration) -> MutexGuard<'a, QueueState> {
        self.changed.wait_timeout(state, at_most).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Closes the queue when the input ends, however it does.
#[derive(Debug)]
pub(super) struct AckSource(Arc<AckQueue>);

impl AckSource {
    pub(super) fn new(queue: &Arc<AckQueue>) -> AckSource {
        AckSource(Arc::clone(queue))
    }

    pub(super) fn push(&self, number: u64, receipt: Receipt, counts: &MemberCounts) {
        self.0.push(number, receipt, counts);
    }
}

impl Drop for AckSource {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The destination of the lines.
#[derive(Debug)]
pub(super) struct AckOutput {
    file: File,
    name: String,
}

impl AckOutput {
    /// Creates the file `path`; `-` is the standard output.
    ///
    /// # Errors
    /// The file can't be created, or it is that of the input or of the deliveries.
    pub(super) fn open(path: &Path, others: [&Path; 2]) -> CliResult<AckOutput> {
        if others[1] == path {
            let message =
                format!("--durable-acks {}: the deliveries are written there; name another file", path.display());
            return Err(CliError::new(USAGE, message));
        }
        if path == Path::new("-") {
            let own = stdout().as_fd().try_clone_to_owned();
            let file = File::from(own.context("can't use the standard output")?);
            return Ok(AckOutput { file, name: "the standard output".to_string() });
        }
        let name = path.display().to_string();
        if others.iter().any(|other| output::are_same(other, path)) {
            let message = format!("{name} is also input or output; name another file for --durable-acks");
            return Err(CliError::new(FAILED, message));
        }
        let file = File::create(path).with_context(|| format!("can't create {name}"))?;
        Ok(AckOutput { file, name })
    }

    /// Writes the lines of the messages in `queue` until the queue is closed.
    ///
    /// # Errors
    /// The file takes no more data.
    pub(super) fn write_all(mut self, queue: &AckQueue) -> CliResult {
        let (mut taken, mut lines) = (VecDeque::new(), Vec::new());
        let result = loop {
            queue.take(&mut taken);
            if taken.is_empty() {
                break Ok(());
            }
            if let Err(failure) = self.write_taken(&mut taken, &mut lines) {
                break Err(failure);
            }
        };
        queue.end();
        result
    }

    fn write_taken(&mut self, taken: &mut VecDeque<(u64, Receipt)>, lines: &mut Vec<u8>) -> CliResult {
        for (number, receipt) in taken.drain(..) {
            let mut outcome = receipt.durable().wait(Duration::ZERO);
            if is_open(outcome) || lines.len() >= BLOCK_BYTES {
                self.write(lines)?;
            }
            while is_open(outcome) {
                outcome = receipt.durable().wait(WAIT);
            }
            append(number, outcome, receipt.outcome(), lines);
        }
        self.write(lines)
    }

    fn write(&mut self, lines: &mut Vec<u8>) -> CliResult {
        let written = output::write(&mut self.file, lines);
        lines.clear();
        Ok(written.with_context(|| format!("can't write to {}; the others go on", self.name))?)
    }
}

/// Checks that messages of this subgroup can become durable.
///
/// # Errors
/// The subgroup keeps no log.
pub(super) fn check(subgroup: &SubgroupSpec) -> CliResult {
    if subgroup.durability.copies().is_some() {
        return Ok(());
    }
    let message = format!("--durable-acks: subgroup {:?} keeps no log; use it with --durability logged", subgroup.name);
    Err(CliError::new(USAGE, message))
}

/// Returns whether the message may still become durable.
fn is_open(outcome: Result<(), NotDurable>) -> bool {
    matches!(outcome, Err(NotDurable::Undelivered { .. } | NotDurable::Unsynced { .. }))
}

fn append(number: u64, durable: Result<(), NotDurable>, outcome: Option<Outcome>, lines: &mut Vec<u8>) {
    // A write to a vector can't fail.
    let _ = match (durable, outcome) {
        (Ok(()), Some(Outcome::Delivered { epoch, sequence })) => writeln!(lines, "{number} {epoch}:{sequence}"),
        (Err(why), _) => writeln!(lines, "{number} - {why}"),
        (Ok(()), _) => writeln!(lines, "{number} - {}", NotDurable::Unknown),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use spindle::ViewId;

    #[test]
    fn a_line_has_the_number_and_the_version_or_the_reason() {
        let mut lines = vec![];
        let delivered = Some(Outcome::Delivered { epoch: ViewId(2), sequence: 14 });
        append(3, Ok(()), delivered, &mut lines);
        append(4, Err(NotDurable::MembersLost), delivered, &mut lines);
        let text = String::from_utf8(lines).unwrap();
        let (first, second) = text.trim().split_once('\n').unwrap();
        assert_eq!(first, "3 2:14");
        assert!(second.starts_with("4 - the message was delivered, and members"), "{second}");
    }

    #[test]
    fn a_queue_that_is_closed_and_empty_ends_the_writer() {
        let queue = Arc::new(AckQueue::default());
        drop(AckSource::new(&queue));
        let output = AckOutput { file: File::options().write(true).open("/dev/null").unwrap(), name: "null".into() };
        output.write_all(&queue).unwrap();
        queue.wait_for_all(Duration::from_secs(60));
        assert!(queue.lock().done);
    }
}

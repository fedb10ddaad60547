//! Replay: a member that is started again gives the messages in its logs to the handler, before those
//! of its first view.
//!
//! Meanwhile the subgroup delivers nothing: its messages wait in the rings, as they do for a handler
//! that takes none. Each poll replays a bounded part.
use super::Node;
use crate::error::Ended;
use crate::handler::{Handler, ReplayedMessage};
use crate::handles::SubgroupHandles;
use crate::logs::Replay;
use crate::old_logs::position;
use spindle_core::{MemberId, ViewId};
use spindle_log::{Error, Hold, LoggedMessage, Reader, Version};
use tracing::info;

/// The tracing target of logs.
const TARGET: &str = "spindle::log";
/// The messages, and the bytes, that one poll replays at most.
const MESSAGES_MAX: usize = 256;
const BYTES_MAX: usize = 1 << 20;

impl Node {
    /// Takes a step of the replays of all logs. Returns whether it has replayed something.
    ///
    /// # Errors
    /// [`Ended::Log`]: a log can't be read.
    #[cold]
    pub(super) fn replay(&mut self, handler: &mut impl Handler) -> Result<bool, Ended> {
        let Node { handles, shared, .. } = self;
        let wants = !self.is_restored && handler.replays();
        let (mut has_worked, mut failed) = (false, Ok(()));
        self.replays = false;
        for of_subgroup in handles {
            let (Some((_, id)), name) = (of_subgroup.home(), &of_subgroup.name) else { continue };
            let Some(log) = of_subgroup.log.as_mut().filter(|log| log.replay.is_some()) else { continue };
            if !wants {
                log.replay = None;
                continue;
            }
            self.replays = true;
            let Some(before) = log.replayed_before() else { continue };
            let _running = shared.handler.enter();
            if matches!(log.replay, Some(Replay::Due)) {
                let extent = log.access.extent();
                let from = handler.replay_from(id, &extent).zip(extent.first).map(|(from, first)| from.max(first));
                let begun = from.map(|from| {
                    info!(target: TARGET, subgroup = name, from = %from, "the log is replayed");
                    let (readers, from) = (log.readers(), Version::new(from.epoch.0, from.sequence));
                    let (mut reader, hold) = (Box::new(readers.reader()), readers.hold(from)?);
                    reader.seek(from);
                    Ok(Replay::Runs { reader, hold, messages: 0 })
                });
                match begun.transpose() {
                    Ok(begun) => log.replay = begun,
                    Err(error) => failed = Err(unreadable(name, &error)),
                }
            }
            let Some(Replay::Runs { reader, hold, messages }) = &mut log.replay else { continue };
            has_worked = true;
            match step(reader, hold, messages, before, |message| handler.replay(id, message)) {
                Ok(false) => {}
                Ok(true) => {
                    info!(target: TARGET, subgroup = name, messages, "the log was replayed");
                    log.replay = None;
                }
                Err(error) => failed = Err(unreadable(name, &error)),
            }
        }
        failed.map_err(|ended| self.broken(ended))?;
        if !self.replays {
            self.open_read_barriers();
        }
        Ok(has_worked)
    }

    /// Notes that subgroups have begun whose logs may have to be replayed.
    pub(super) fn note_replays(&mut self) {
        let is_due = |of_subgroup: &SubgroupHandles| {
            of_subgroup.home().is_some() && of_subgroup.log.as_ref().is_some_and(|log| log.replay.is_some())
        };
        self.replays = self.handles.iter().any(is_due);
    }
}

fn unreadable(name: &str, error: &Error) -> Ended {
    Ended::Log { subgroup: name.to_string(), reason: error.to_string() }
}

/// Replays a bounded part of a log. Returns whether that was the rest.
fn step(
    reader: &mut Reader,
    hold: &Hold,
    messages: &mut u64,
    before: ViewId,
    mut replay: impl FnMut(&ReplayedMessage<'_>),
) -> Result<bool, Error> {
    let mut bytes = 0;
    for _ in 0..MESSAGES_MAX {
        let Some(record) = reader.next()?.filter(|record| record.version.epoch < before.0) else {
            return Ok(true);
        };
        let (version, position) = (record.version, position(record.version));
        // Another program may have written the log.
        let Some(message) = LoggedMessage::parse(record.payload) else { continue };
        let LoggedMessage { sender, time, payload } = message;
        replay(&ReplayedMessage { position, clock: record.clock, time, sender: MemberId(sender), payload });
        hold.advance(version);
        *messages += 1;
        bytes += payload.len();
        if bytes >= BYTES_MAX {
            break;
        }
    }
    Ok(false)
}

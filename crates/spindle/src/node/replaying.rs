//! Replay: a member that is started again gives the messages in its logs to the handler, before those
//! of its first view.
//!
//! Meanwhile the subgroup delivers nothing: its messages wait in the rings, as they do for a handler
//! that takes none. Each poll replays a bounded part.
use super::Node;
use crate::error::Ended;
use crate::handler::{Handler, ReplayedMessage};
use crate::logs::Replay;
use spindle_core::{MemberId, Position, ViewId};
use spindle_log::{Error, LoggedMessage, Reader, Version};
use tracing::info;

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
        let Node { handles, logs, shared, first_view, is_restored, .. } = self;
        let (mut has_worked, mut failed) = (false, Ok(()));
        self.replays = false;
        for of_subgroup in handles {
            let Some((_, id)) = of_subgroup.home() else { continue };
            let name = &of_subgroup.name;
            let Some(log) = of_subgroup.log.as_mut().filter(|log| log.replay.is_some()) else { continue };
            self.replays = true;
            if log.is_catching_up() {
                continue;
            }
            if matches!(log.replay, Some(Replay::Due)) {
                let is_complete = logs.as_ref().is_some_and(|logs| logs.is_complete(name));
                let extent = log.extent(name, is_complete);
                let _running = shared.handler.enter();
                let from = if *is_restored { None } else { handler.replay_from(id, &extent) };
                log.replay = from.map(|from| {
                    info!(target: "spindle::log", subgroup = name, from = %from, "the log is replayed");
                    let mut reader = log.reader();
                    reader.seek(Version::new(from.epoch.0, from.sequence));
                    Replay::Runs { reader: Box::new(reader), messages: 0 }
                });
            }
            let Some(Replay::Runs { reader, messages }) = &mut log.replay else { continue };
            has_worked = true;
            let _running = shared.handler.enter();
            let replayed = step(reader, messages, *first_view, |message| handler.replay(id, message));
            match replayed {
                Ok(false) => {}
                Ok(true) => {
                    info!(target: "spindle::log", subgroup = name, messages, "the log was replayed");
                    log.replay = None;
                }
                Err(error) => {
                    failed = Err(Ended::Log { subgroup: name.clone(), reason: error.to_string() });
                }
            }
        }
        failed.map_err(|ended| self.broken(ended))?;
        Ok(has_worked)
    }
}

/// Replays a bounded part of a log. Returns whether that was the rest.
fn step(
    reader: &mut Reader,
    messages: &mut u64,
    first_view: ViewId,
    mut replay: impl FnMut(&ReplayedMessage<'_>),
) -> Result<bool, Error> {
    let mut bytes = 0;
    for _ in 0..MESSAGES_MAX {
        let Some(record) = reader.next()?.filter(|record| record.version.epoch < first_view.0) else {
            return Ok(true);
        };
        let position = Position { epoch: ViewId(record.version.epoch), sequence: record.version.sequence };
        // Another program may have written the log.
        let Some(message) = LoggedMessage::parse(record.payload) else { continue };
        let LoggedMessage { sender, time, payload } = message;
        replay(&ReplayedMessage { position, clock: record.clock, time, sender: MemberId(sender), payload });
        *messages += 1;
        bytes += payload.len();
        if bytes >= BYTES_MAX {
            break;
        }
    }
    Ok(false)
}

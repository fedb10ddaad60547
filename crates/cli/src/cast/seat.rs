//! The membership of a cast or a receiver: one thread that takes messages and answers, beside the
//! library's own.
//!
//! Changes of the view are read in their place among the messages. So every member that reads a
//! message reads it in the same view.
use super::pieces::PIECES_MAX;
use super::wire::PIECE_BYTES_MAX;
use crate::exit::{CliError, CliResult, ENDED, FAILED, USAGE};
use crate::member::tell_warnings;
use crate::membership::MembershipArgs;
use crate::settings::GroupLocation;
use crate::signals::Stop;
use crate::views;
use crate::waiting::WaitReporter;
use spindle::bulk::Object;
use spindle::settings::Settings;
use spindle::{
    Adoption, Batch, Ended, Group, Handler, JoinError, MemberId, Publisher, ReceiveError, Receiver, SendError,
    Subgroup, SubgroupId, ViewId,
};
use std::collections::VecDeque;
use std::sync::mpsc::{self, Sender, channel};
use std::time::Duration;

/// Name of the subgroup for files.
const SUBGROUP: &str = "files";
/// Longest message in the rings. Pieces and long lists are sent as objects.
const MESSAGE_BYTES_MAX: u64 = 4096;
const WINDOW: u64 = 64;
/// The shared setting that a cast takes over from the group.
const SUSPICION: &str = "group.suspect_after";
/// Longest object, longer than any piece or offer.
const OBJECT_BYTES_MAX: u64 = 1 << 30;
const _: () = assert!(OBJECT_BYTES_MAX > 2 * PIECE_BYTES_MAX && OBJECT_BYTES_MAX > 64 * PIECES_MAX);
/// How long the others may take to agree that this member leaves.
const LEAVE_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct CastMember {
    pub(super) me: MemberId,
    pub(super) gather_timeout: Duration,
    group: Group,
    publisher: Publisher,
    receiver: Receiver,
    blocked: mpsc::Receiver<bool>,
    /// The view of the last message that was read.
    view: ViewId,
    /// Messages to send, in order.
    pub(super) outbox: VecDeque<Vec<u8>>,
    json: bool,
}

/// The next input.
#[derive(Debug)]
pub(super) enum GroupInput<T> {
    Nothing,
    /// A view with these members. The messages that follow belong to it.
    View(Vec<MemberId>),
    /// The result for a message.
    Message(T),
}

/// Forwards the library's reports, because the polling thread must not wait for a terminal.
struct BlockedForwarder(Sender<bool>);

impl Handler for BlockedForwarder {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(drop);
    }

    fn blocked(&mut self, is_blocked: bool) {
        // This fails only when the end is known and the reader is gone.
        let _ = self.0.send(is_blocked);
    }
}

impl CastMember {
    /// Joins the group, or creates it. `place` is the place of the group's name on the command
    /// line, for the error if no settings contain the name.
    pub(super) fn take(
        mut settings: Settings,
        place: &str,
        membership: &MembershipArgs,
        stop: &Stop,
        json: bool,
    ) -> CliResult<CastMember> {
        membership.say(&mut settings);
        let effective = settings.effective()?;
        let found = GroupLocation::said(&effective, place)?;
        tell_warnings(&effective, json);
        let mut config = effective.config()?;
        // The cast sets these subgroups for any settings file, because only casts and receivers
        // send in this group.
        config.subgroups =
            vec![Subgroup { window: WINDOW, message_bytes_max: MESSAGE_BYTES_MAX, ..Subgroup::new(SUBGROUP) }];
        config.object_bytes_max = OBJECT_BYTES_MAX;
        // Only the time of suspicion may be another one.
        if let Adoption::Except(mut given) = effective.adoption() {
            given.extend(
                config.shared_settings().pairs().map(|(key, _)| key.to_string()).filter(|key| key != SUSPICION),
            );
            config.adoption = Adoption::Except(given);
        }
        let gather_timeout = config.gather_timeout;
        let waiting = WaitReporter::start(&found.group, json)?;
        let joined = config.join_with(&mut |progress| waiting.see(progress), &stop.flag);
        drop(waiting);
        let mut node = joined.map_err(|error| match error {
            JoinError::Cancelled { progress } => {
                CliError::stopped(stop.signal(), format_args!("while waiting for the group: {progress}"))
            }
            error => error.into(),
        })?;
        let broken = |error| CliError::new(USAGE, error);
        let (publisher, receiver) =
            (node.publisher(SUBGROUP).map_err(broken)?, node.receiver(SUBGROUP).map_err(broken)?);
        let (me, (tell, blocked)) = (node.id(), channel());
        let group = node.start(BlockedForwarder(tell))?;
        let (view, outbox) = (ViewId(0), VecDeque::new());
        Ok(CastMember { me, gather_timeout, group, publisher, receiver, blocked, view, outbox, json })
    }

    /// Waits for a view, or for a message, and calls `hear` with the message.
    pub(super) fn hear<T>(
        &mut self,
        at_most: Duration,
        hear: impl FnOnce(MemberId, &[u8]) -> T,
    ) -> CliResult<GroupInput<T>> {
        while let Ok(is_blocked) = self.blocked.try_recv() {
            views::tell_blocked(self.view, is_blocked, self.json);
        }
        let heard = match self.receiver.receive(at_most) {
            Ok(mut deliveries) => {
                let view = deliveries.view();
                // If the message belongs to a new view, the view is returned first. The next call
                // gets the message again.
                let message = if view.id == self.view { deliveries.iter().next() } else { None };
                if let Some(message) = message {
                    return Ok(GroupInput::Message(hear(message.sender_id, message.payload)));
                }
                GroupInput::Nothing
            }
            Err(ReceiveError::TimedOut { .. }) => GroupInput::Nothing,
            Err(ReceiveError::Ended(ended)) => return Err(gone(&ended)),
            Err(error) => return Err(CliError::new(FAILED, error)),
        };
        let view = self.receiver.view();
        if view.id == self.view {
            return Ok(heard);
        }
        self.view = view.id;
        Ok(GroupInput::View(view.members.clone()))
    }

    /// Sends as many messages as there is room for.
    pub(super) fn flush(&mut self) -> CliResult {
        while let Some(message) = self.outbox.front() {
            match self.publisher.send(message, Duration::ZERO) {
                Ok(()) => drop(self.outbox.pop_front()),
                // The next call tries again.
                Err(SendError::Full { .. } | SendError::TooMany { .. } | SendError::NoSender) => break,
                Err(error) => return Err(refused(error)),
            }
        }
        Ok(())
    }

    /// Returns true if there was room for the object within `at_most`.
    pub(super) fn try_send(&mut self, object: &Object, at_most: Duration) -> CliResult<bool> {
        match self.publisher.send_object(object.clone(), at_most) {
            Ok(()) => Ok(true),
            Err(SendError::Full { .. } | SendError::TooMany { .. } | SendError::NoSender) => Ok(false),
            Err(error) => Err(refused(error)),
        }
    }

    /// Leaves after everything sent is delivered at every member. Messages that arrive from now on
    /// are not read.
    pub(super) fn leave(mut self) -> CliResult {
        self.flush()?;
        // The publisher is kept until then. Without it this member would have finished sending, and
        // could not leave.
        let CastMember { group, publisher: _publisher, receiver, .. } = self;
        drop(receiver);
        group.leave(LEAVE_WAIT).map(drop).map_err(|error| CliError::new(ENDED, error))
    }
}

fn gone(ended: &Ended) -> CliError {
    CliError::new(ENDED, format_args!("{ended}; start it again: it goes on with what is there"))
}

fn refused(error: SendError) -> CliError {
    match error {
        SendError::Ended(ended) => gone(&ended),
        error => CliError::new(FAILED, error),
    }
}

//! One member's copy of an object: messages in, outcomes out. It does no I/O and reads no clock.
//!
//! - INV-OBJECT: machines that began alike and were given the same messages by the same senders are
//!   equal, sessions and digests included. Nothing but messages changes a machine.
//! - INV-ONCE: see `sessions.rs`.
use crate::answer::{Answer, Refusal};
use crate::context::Context;
use crate::id::CallId;
use crate::message::Message;
use crate::sessions::{At, Sessions};
use crate::settings::Settings;
use crate::snapshot::{self, Head, RestoreError};
use crate::state_machine::{ExecuteError, StateMachine, command, fingerprint};
use spindle::{MemberId, Position};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The most members whose announcements are kept. One more replaces the oldest.
const ANNOUNCED_MAX: usize = 4096;

/// The version of a group at its beginning.
const FIRST_VERSION: u32 = 1;

/// A copy of an object.
#[derive(Debug)]
pub struct Machine<T> {
    object: T,
    head: Head,
    stopped: Option<Stopped>,
    /// Whether no digests are due: other machines compare them.
    skips_digests: bool,
}

/// Why a machine applies no more messages.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stopped {
    /// A command has panicked, so the state may be half changed.
    #[error("the command {command} (call {id}) panicked: {message}; correct it, and join again")]
    Panicked {
        /// The name of the command.
        command: &'static str,
        /// The call.
        id: CallId,
        /// The message of the panic.
        message: String,
    },
    /// The group is at a later version than this program.
    #[error("the group is at version {group} now, and this program at {mine}: run a newer program")]
    Version {
        /// The version of this program.
        mine: u32,
        /// The version of the group.
        group: u32,
    },
    /// The group has other commands, another state or other settings.
    #[error(
        "version {version} of this program has fingerprint {mine:016x}, and the group's has {group:016x}: commands, state number or \
         settings differ; run the same program with the same settings"
    )]
    Fingerprint {
        /// The version of the group.
        version: u32,
        /// The fingerprint of this program.
        mine: u64,
        /// The fingerprint of the group.
        group: u64,
    },
    /// The log of a member that was started again lacks the first messages, and no snapshot is valid
    /// that contains them.
    #[error(
        "the log of the object's subgroup does not begin with the first message (first: {}), and no valid snapshot contains those before: \
         join a group that runs, or start with the data directory of another member",
        first.map_or_else(|| "none".to_owned(), |first| first.to_string())
    )]
    LogIncomplete {
        /// The first message that it has.
        first: Option<Position>,
    },
    /// The log or the snapshots of a member that was started again can't be read.
    #[error("the state can't be made from the disk: {reason}")]
    Unreadable {
        /// The error, with the file.
        reason: String,
    },
    /// Most members have another state than this one. The state differs since a command after
    /// `agreed`, up to `commands`: with [`Settings::digest_every`] of 1, since the command named here.
    #[error(
        "the state of this member differs from that of most members: both were equal after {agreed} commands, and differ after \
         {commands}, of which the last is {command} (call {id}); its digest is {mine:016x}, theirs {theirs:016x}; a command depends \
         on more than its arguments and the state"
    )]
    Diverged {
        /// The number of commands after the last comparison in which most members agreed with this
        /// one; 0 if there was none.
        agreed: u64,
        /// The number of commands after the first comparison in which they did not.
        commands: u64,
        /// The name of the last of these commands.
        command: &'static str,
        /// Its call.
        id: CallId,
        /// The digest of this member.
        mine: u64,
        /// The digest of most members.
        theirs: u64,
    },
    /// A snapshot could not be restored.
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

/// The effect of one message.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Applied {
    /// A session was opened, or existed.
    Opened(crate::id::SessionId),
    /// A call has this outcome.
    Called {
        /// The call.
        id: CallId,
        /// Its outcome.
        answer: Answer,
        /// The digest after this command, if one is due.
        digest: Option<Checkpoint>,
    },
    /// The outcome of a call was asked for.
    Asked {
        /// The number of the question.
        nonce: u64,
        /// The outcome.
        answer: Answer,
    },
    /// A tick.
    Ticked {
        /// Its number.
        nonce: u64,
    },
    /// A member has announced itself.
    Announced,
    /// The group is at this version.
    Raised {
        /// The version.
        version: u32,
    },
    /// The sender has this digest.
    Digest(Checkpoint),
    /// The sender could make its state from its disk.
    Stored,
    /// The bytes are no message of an object.
    Foreign,
}

/// The digest of a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// The number of commands that had been executed.
    pub commands: u64,
    /// The digest of the machine.
    pub digest: u64,
}

impl<T: StateMachine> Machine<T> {
    /// Creates a machine. All members that create a group begin with equal objects.
    pub fn new(object: T, settings: Settings) -> Machine<T> {
        let head = Head {
            settings,
            enabled: FIRST_VERSION,
            fingerprint: None,
            messages: 0,
            commands: 0,
            time_us: 0,
            sessions: Sessions::default(),
            announced: BTreeMap::new(),
        };
        Machine { object, head, stopped: None, skips_digests: false }
    }

    /// Returns the object.
    pub fn object(&self) -> &T {
        &self.object
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.head.settings
    }

    /// Returns the number of messages that were applied.
    pub fn messages(&self) -> u64 {
        self.head.messages
    }

    /// Returns the number of commands that were executed.
    pub fn commands(&self) -> u64 {
        self.head.commands
    }

    /// Returns the version of the group: the commands up to this version are executed.
    pub fn enabled(&self) -> u32 {
        self.head.enabled
    }

    /// Returns the number of sessions.
    pub fn sessions(&self) -> u64 {
        self.head.sessions.len() as u64
    }

    /// Returns the time of the log, since the Unix epoch.
    pub fn time(&self) -> Duration {
        Duration::from_micros(self.head.time_us)
    }

    /// Returns why the machine has stopped, if it has.
    pub fn stopped(&self) -> Option<&Stopped> {
        self.stopped.as_ref()
    }

    /// Stops the machine.
    pub fn stop(&mut self, why: Stopped) {
        self.stopped.get_or_insert(why);
    }

    /// Returns the announcement of this program.
    pub fn announcement(&self) -> Message<'static> {
        Message::Announce { version: T::VERSION, fingerprint: fingerprint::<T>(&self.head.settings, self.head.enabled) }
    }

    /// Returns the message that raises the version of the group, if all these members have announced
    /// a later one.
    pub fn raise(&self, members: impl IntoIterator<Item = MemberId>) -> Option<Message<'static>> {
        let mut announced = members.into_iter().map(|id| self.head.announced.get(&id.0).map(|(version, _)| *version));
        let least = announced.try_fold(T::VERSION, |least, version| version.map(|version| least.min(version)))?;
        (least > self.head.enabled)
            .then(|| Message::Raise { version: least, fingerprint: fingerprint::<T>(&self.head.settings, least) })
    }

    /// Applies the next message of the order.
    ///
    /// # Errors
    /// Why the machine has stopped: now, or before. It is then of no more use. Bytes of other members
    /// never make it panic, and a command that panics stops it.
    pub fn apply(&mut self, sender: MemberId, bytes: &[u8]) -> Result<Applied, Stopped> {
        if let Some(stopped) = &self.stopped {
            return Err(stopped.clone());
        }
        let applied = match Message::decode(bytes) {
            Some(message) => self.apply_message(sender, &message),
            None => Ok(Applied::Foreign),
        };
        applied.inspect_err(|why| self.stop(why.clone()))
    }

    fn apply_message(&mut self, sender: MemberId, message: &Message<'_>) -> Result<Applied, Stopped> {
        match *message {
            Message::Tick { nonce } => return Ok(Applied::Ticked { nonce }),
            Message::Digest { commands, digest } => return Ok(Applied::Digest(Checkpoint { commands, digest })),
            Message::Stored => return Ok(Applied::Stored),
            _ => self.head.messages += 1,
        }
        match *message {
            Message::Open { session, time_us } => {
                let at = self.advance(time_us);
                self.head.sessions.open(session, at, &self.head.settings);
                Ok(Applied::Opened(session))
            }
            Message::Call { id, time_us, command, since, arguments } => {
                let at = self.advance(time_us);
                self.call(sender, id, at, (command, since, arguments))
            }
            Message::Ask { id, nonce } => {
                let at = self.advance(0);
                let answer = self.head.sessions.ask(id, at, &self.head.settings);
                Ok(Applied::Asked { nonce, answer })
            }
            Message::Announce { version, fingerprint } => self.announced(sender, version, fingerprint),
            Message::Raise { version, fingerprint } => self.raised(version, fingerprint),
            Message::Tick { .. } | Message::Digest { .. } | Message::Stored => Ok(Applied::Foreign),
        }
    }

    /// Moves the time of the log, and ends the sessions that have expired.
    fn advance(&mut self, time_us: u64) -> At {
        self.head.time_us = self.head.time_us.max(time_us);
        self.head.sessions.expire(self.head.time_us, self.head.settings.session_idle);
        At { index: self.head.messages, time_us: self.head.time_us }
    }

    fn call(
        &mut self,
        sender: MemberId,
        id: CallId,
        at: At,
        (number, since, arguments): (u32, u32, &[u8]),
    ) -> Result<Applied, Stopped> {
        if let Some(answer) = self.head.sessions.outcome(id, at) {
            return Ok(Applied::Called { id, answer, digest: None });
        }
        let mut context = Context::new(sender, id, Duration::from_micros(at.time_us), at.index);
        // The version is checked first: members of older versions, which do not know the command,
        // refuse it for the same reason.
        let (answer, was_executed) = match since > self.head.enabled {
            true => (Answer::Refused(Refusal::NotEnabled { needs: since, enabled: self.head.enabled }), false),
            false => self.execute(number, arguments, &mut context)?,
        };
        self.head.sessions.keep(id, &answer, &self.head.settings);
        self.head.commands += u64::from(was_executed);
        let digest = if was_executed { self.checkpoint() } else { None };
        Ok(Applied::Called { id, answer, digest })
    }

    /// Executes a command. Returns its outcome, and whether it may have changed the object.
    fn execute(&mut self, number: u32, arguments: &[u8], context: &mut Context) -> Result<(Answer, bool), Stopped> {
        let id = context.id();
        let executed = catch_unwind(AssertUnwindSafe(|| self.object.execute(number, arguments, context)));
        Ok(match executed {
            Ok(Ok(reply)) => (Answer::Done(reply), true),
            Ok(Err(ExecuteError::UnknownCommand { id: command })) => {
                (Answer::Refused(Refusal::UnknownCommand { command }), false)
            }
            Ok(Err(ExecuteError::Arguments(_))) => (Answer::Refused(Refusal::Arguments), false),
            Ok(Err(ExecuteError::Reply(_))) => (Answer::ReplyNotKept { len: 0 }, true),
            Err(panic) => {
                let command = command::<T>(number).map_or("?", |command| command.name);
                return Err(Stopped::Panicked { command, id, message: text(&*panic) });
            }
        })
    }

    fn checkpoint(&self) -> Option<Checkpoint> {
        let (commands, every) = (self.head.commands, self.head.settings.digest_every);
        (every > 0 && !self.skips_digests && commands.is_multiple_of(every))
            .then(|| Checkpoint { commands, digest: self.digest() })
    }

    fn announced(&mut self, sender: MemberId, version: u32, fingerprint: u64) -> Result<Applied, Stopped> {
        let group = *self.head.fingerprint.get_or_insert(fingerprint);
        self.check(self.head.enabled, group)?;
        if self.head.announced.len() >= ANNOUNCED_MAX
            && let Some(oldest) = self.head.announced.iter().min_by_key(|(_, (_, index))| *index)
        {
            let oldest = *oldest.0;
            self.head.announced.remove(&oldest);
        }
        self.head.announced.insert(sender.0, (version, self.head.messages));
        Ok(Applied::Announced)
    }

    fn raised(&mut self, version: u32, fingerprint: u64) -> Result<Applied, Stopped> {
        if version > self.head.enabled {
            if version > T::VERSION {
                return Err(Stopped::Version { mine: T::VERSION, group: version });
            }
            self.check(version, fingerprint)?;
            (self.head.enabled, self.head.fingerprint) = (version, Some(fingerprint));
        }
        Ok(Applied::Raised { version: self.head.enabled })
    }

    /// Compares the fingerprint of this program with that of the group.
    fn check(&self, version: u32, group: u64) -> Result<(), Stopped> {
        let mine = fingerprint::<T>(&self.head.settings, version);
        if mine == group { Ok(()) } else { Err(Stopped::Fingerprint { version, mine, group }) }
    }

    /// Returns the digest of the object, its sessions and the rest of the machine.
    ///
    /// # Panics
    /// As [`snapshot`](Self::snapshot).
    pub fn digest(&self) -> u64 {
        snapshot::digest(&self.snapshot())
    }

    /// Computes no digests from here on, which changes nothing else.
    pub(crate) fn skip_digests(&mut self) {
        self.skips_digests = true;
    }

    /// As [`snapshot`](Self::snapshot), without a panic.
    pub(crate) fn try_snapshot(&self) -> Result<Vec<u8>, postcard::Error> {
        snapshot::encode(&self.head, &self.object)
    }

    /// Returns the machine as bytes, for [`restore`](Self::restore).
    ///
    /// # Panics
    /// If the object can't be encoded: its `Serialize` fails.
    pub fn snapshot(&self) -> Vec<u8> {
        match self.try_snapshot() {
            Ok(bytes) => bytes,
            Err(error) => panic!("the object can't be encoded: {error}; correct its `Serialize`"),
        }
    }

    /// Creates a machine from a snapshot.
    ///
    /// # Errors
    /// [`RestoreError`], for any bytes: also if this program is older than the group, or differs
    /// from it.
    pub fn restore(bytes: &[u8], settings: Settings) -> Result<Machine<T>, RestoreError> {
        let (head, object) = snapshot::decode::<T>(bytes)?;
        let version = head.enabled;
        if version > T::VERSION.max(FIRST_VERSION) {
            return Err(RestoreError::Version { mine: T::VERSION, group: version });
        }
        let mine = fingerprint::<T>(&settings, version);
        let group = head.fingerprint.unwrap_or_else(|| fingerprint::<T>(&head.settings, version));
        if mine != group {
            return Err(RestoreError::Fingerprint { version, mine, group });
        }
        Ok(Machine { object, head: Head { settings, ..head }, stopped: None, skips_digests: false })
    }
}

/// Returns the message of a panic.
fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

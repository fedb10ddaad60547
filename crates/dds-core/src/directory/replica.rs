//! The directory at one process of the group, and how a process that comes gets it.
//!
//! The members of the group send [`DirectoryMessage`]s in one subgroup. In each of its epochs the members are
//! fixed, and all of them deliver the same messages.
//!
//! - INV-REPLICA: the members that have the directory have the same one after the same messages.
//! - A member without the directory says so at the begin of each epoch. The first member that has it sends it,
//!   with the number of messages of the epoch that it contains; a member that gets it applies the others after
//!   it.
//! - If all members of an epoch have said that they lack it, none has it, and it is empty. So the first members
//!   of a domain begin, and so do members whose predecessors have all failed before they sent it.
//! - Messages that an epoch has not delivered are sent again in the next one, so each of these two names its
//!   epoch.
//!
//! A driver calls [`DirectoryReplica::begin_epoch`] and [`DirectoryReplica::deliver`] in the order of the
//! subgroup, and sends the messages that are [due](DirectoryReplica::due).
use super::command::DirectoryCommand;
use super::directory::{Applied, Directory};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};

/// A message of the directory's subgroup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum DirectoryMessage {
    /// A command. A process sends its first one once it has the directory: a command that an epoch delivers in
    /// which no member has it, and none gets it, is lost.
    Command(DirectoryCommand),
    /// The sender lacks the directory, in this epoch.
    Lacking {
        /// The view with which the epoch began.
        epoch: u64,
    },
    /// The directory after the first messages of this epoch.
    State {
        /// The view with which the epoch began.
        epoch: u64,
        /// The number of messages.
        after: u64,
        /// The directory.
        directory: Box<Directory>,
    },
}

/// Why the bytes are no message of a directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes are no message of a directory: {reason}; the sender runs another version, or is broken")]
pub struct DirectoryMessageError {
    /// The number of bytes.
    pub bytes: usize,
    /// The first fault.
    pub reason: String,
}

impl DirectoryMessage {
    /// Returns the message as bytes (postcard).
    ///
    /// # Panics
    /// Never: all parts have an encoding.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("all parts have an encoding")
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`DirectoryMessageError`].
    pub fn decode(bytes: &[u8]) -> Result<DirectoryMessage, DirectoryMessageError> {
        let fault = |reason: String| DirectoryMessageError { bytes: bytes.len(), reason };
        let (message, rest) = postcard::take_from_bytes(bytes).map_err(|error| fault(error.to_string()))?;
        if !rest.is_empty() {
            return Err(fault(format!("{} bytes follow it", rest.len())));
        }
        Ok(message)
    }
}

/// The directory at one process.
#[derive(Clone, Debug)]
pub struct DirectoryReplica {
    /// The process.
    member: u64,
    /// `None` while the process lacks it.
    directory: Option<Directory>,
    /// The members that have it, as far as this one has it itself.
    complete: BTreeSet<u64>,
    epoch: u64,
    /// The members of the epoch, by rank.
    members: Vec<u64>,
    /// The members that have said in this epoch that they lack it.
    lacking: BTreeSet<u64>,
    /// The messages of this epoch that were delivered.
    count: u64,
    /// The commands that a process without the directory has got in this epoch, with their numbers.
    early: VecDeque<(u64, u64, DirectoryCommand)>,
    /// Whether the state, or the lack of it, has been sent in this epoch.
    has_said: bool,
}

impl DirectoryReplica {
    /// Makes the replica of a process that has come, and lacks the directory.
    pub fn new(member: u64) -> DirectoryReplica {
        DirectoryReplica {
            member,
            directory: None,
            complete: BTreeSet::new(),
            epoch: 0,
            members: Vec::new(),
            lacking: BTreeSet::new(),
            count: 0,
            early: VecDeque::new(),
            has_said: false,
        }
    }

    /// Returns the directory; `None` as long as this process lacks it.
    pub fn directory(&self) -> Option<&Directory> {
        self.directory.as_ref()
    }

    /// Returns whether this process is the first member that has the directory. It takes the decisions that one
    /// member takes for all.
    pub fn leads(&self) -> bool {
        let mut members = self.members.iter();
        self.directory.is_some() && members.find(|id| self.complete.contains(id)) == Some(&self.member)
    }

    /// Begins the epoch of a view, with these members by rank.
    pub fn begin_epoch(&mut self, epoch: u64, members: &[u64]) {
        self.epoch = epoch;
        self.members = members.to_vec();
        self.complete.retain(|id| members.contains(id));
        self.lacking.clear();
        self.early.clear();
        (self.count, self.has_said) = (0, false);
    }

    /// Returns the message that this process has to send about its state; `None` if none is due. Call
    /// [`DirectoryReplica::sent`] once it is sent.
    pub fn due(&self) -> Option<DirectoryMessage> {
        if self.has_said || self.members.is_empty() {
            return None;
        }
        let Some(directory) = &self.directory else { return Some(DirectoryMessage::Lacking { epoch: self.epoch }) };
        let is_needed = self.complete.len() < self.members.len();
        (is_needed && self.leads()).then(|| {
            let directory = Box::new(directory.clone());
            DirectoryMessage::State { epoch: self.epoch, after: self.count, directory }
        })
    }

    /// Notes that the message that was due is sent.
    pub fn sent(&mut self) {
        self.has_said = true;
    }

    /// Delivers the next message of the epoch. `applied` gets the outcome of each command that is applied to the
    /// directory, with its sender; a process that has just got the directory gets no outcome of the commands in it.
    pub fn deliver(
        &mut self,
        sender: u64,
        message: DirectoryMessage,
        mut applied: impl FnMut(&Directory, u64, &DirectoryCommand, Applied),
    ) {
        let number = self.count;
        self.count += 1;
        match message {
            DirectoryMessage::Command(command) => match &mut self.directory {
                Some(directory) => {
                    let outcome = directory.apply(sender, &command);
                    applied(directory, sender, &command, outcome);
                }
                None => self.early.push_back((number, sender, command)),
            },
            DirectoryMessage::Lacking { epoch } if epoch == self.epoch => {
                self.lacking.insert(sender);
                if self.directory.is_none() && self.members.iter().all(|id| self.lacking.contains(id)) {
                    self.take(Directory::default(), 0, applied);
                }
            }
            DirectoryMessage::State { epoch, after, directory } if epoch == self.epoch => {
                self.take(*directory, after, applied);
            }
            DirectoryMessage::Lacking { .. } | DirectoryMessage::State { .. } => {}
        }
    }

    /// Takes over the directory after the first messages of the epoch, if this process lacks it. All members have
    /// it now.
    fn take(
        &mut self,
        mut directory: Directory,
        after: u64,
        mut applied: impl FnMut(&Directory, u64, &DirectoryCommand, Applied),
    ) {
        self.complete = self.members.iter().copied().collect();
        if self.directory.is_some() {
            return;
        }
        for (_, sender, command) in self.early.drain(..).filter(|(number, ..)| *number >= after) {
            let outcome = directory.apply(sender, &command);
            applied(&directory, sender, &command, outcome);
        }
        self.directory = Some(directory);
    }
}

//! The orders of a bootstrap to its driver, and the reasons why a process waits.
use super::{BootstrapMessage, BootstrapRecord, Incarnation, InitialView};
use crate::ids::Process;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The reason why a process waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// The list of seeds is not known.
    SeedList,
    /// More seeds have to answer.
    Seeds,
    /// This many more processes have to wait with this one.
    Members(u32),
    /// The votes on the first view are under way.
    Votes,
    /// A seed will create the group.
    Founder,
    /// The process, or a seed that answered, belongs to this group. None of its members has
    /// answered.
    Group(Incarnation),
    /// A member of this group has answered. It has to admit the process.
    Admission(Incarnation),
}

/// The reason why a process waits, and the state of each seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BootstrapWait {
    /// The reason.
    pub need: Need,
    /// The seeds, by index.
    pub seeds: Vec<SeedState>,
    /// The number of processes that wait for the group, including this one, as far as it knows.
    pub here: u32,
}

/// The receiver of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// The seed with this index.
    Seed(u32),
    /// A process that has sent a message.
    Process(Process),
}

/// An order to the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BootstrapOutput {
    /// Send a message.
    Send {
        /// The receiver.
        to: To,
        /// The message.
        message: BootstrapMessage,
    },
    /// Write the record to the data directory, durably, and then call
    /// [`Bootstrap::persisted`](super::Bootstrap::persisted). Only with
    /// [`Setup::durable`](super::Setup::durable).
    Persist(Box<BootstrapRecord>),
    /// Begin the first view of this group. This process is in it.
    Begin(InitialView),
    /// Ask the members of this group for admission.
    Join(Incarnation),
    /// Report the reason why the process waits.
    Waits(BootstrapWait),
    /// Report, as an error, that two groups of the name exist.
    Conflict {
        /// The group of this process.
        mine: Incarnation,
        /// The group of a process that has sent a message.
        theirs: Incarnation,
    },
}

/// The state of a seed, as this process knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeedState {
    /// The seed is this process.
    Own,
    /// The seed has answered and belongs to no group.
    Answers,
    /// The seed has answered. It was a member of this group, or knows that the group was created.
    Belongs(Incarnation),
    /// The seed is a member of this group.
    Member(Incarnation),
    /// The seed has a different list of seeds.
    Unlike,
    /// The last attempt to reach the seed failed.
    Unreachable,
    /// The seed has not answered yet, or not for some time.
    Silent,
}

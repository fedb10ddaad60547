//! Creates a group between hosts: [`control::Bootstrapping`] decides, and the data directory stores
//! its records.
//!
//! Control messages are passed by the [`ControlPlane`](crate::control_plane::ControlPlane), which
//! contains this for as long as the process takes part.
use crate::data_dir::{DataDir, DataDirError};
use spindle_core::control::{self, Act, BootstrapRecord, Card, ControlMessage, Incarnation, Me, Setup, To};
use spindle_core::{Process, Time};
use std::ops::{Deref, DerefMut};
use tracing::{error, trace};

/// The tracing target of the creation of a group.
const TARGET: &str = "spindle::bootstrap";

/// The properties of a process that looks for its group.
#[derive(Debug)]
pub(crate) struct BootstrapTerms {
    pub(crate) me: Process,
    pub(crate) process: Me,
    pub(crate) config: u64,
    pub(crate) members: u32,
    pub(crate) random: [u64; 2],
    pub(crate) dir: Option<DataDir>,
    /// The group that it was a member of.
    pub(crate) belongs: Option<u128>,
    /// Whether an operator forces the creation of a group.
    pub(crate) word: bool,
}

/// The state machine, and its disk.
#[derive(Debug)]
pub(crate) struct BootstrapDriver {
    inner: control::Bootstrapping,
    dir: Option<DataDir>,
    failed: Option<DataDirError>,
}

impl BootstrapDriver {
    pub(crate) fn new(terms: BootstrapTerms, now: Time) -> BootstrapDriver {
        let BootstrapTerms { me, process, config, members, random, dir, belongs, word } = terms;
        let durable = dir.as_ref().is_some_and(|dir| dir.is_initialised);
        let mut record = dir.as_ref().map_or_else(BootstrapRecord::default, |dir| dir.record.clone());
        record.belongs = belongs.map(Incarnation).or(record.belongs);
        let random = u128::from(random[0]) << 64 | u128::from(random[1]);
        let setup = Setup { me, members, random, durable, record };
        BootstrapDriver { inner: control::Bootstrapping::new(setup, process, config, word, now), dir, failed: None }
    }

    /// Returns the next control message, with its destination. The records that it depends on are
    /// written first. `card_of` returns the card of a process, if it is known.
    pub(crate) fn next_message(
        &mut self,
        card_of: impl Fn(Process) -> Option<Card>,
        now: Time,
    ) -> Option<(To, ControlMessage)> {
        loop {
            match self.inner.next_act(&card_of)? {
                Act::Send(to, message) => {
                    trace!(target: TARGET, ?to, ?message, "message");
                    return Some((to, message));
                }
                Act::Persist(record) => match self.dir.as_ref().map(|dir| dir.write(&record)) {
                    None | Some(Ok(())) => self.inner.persisted(now),
                    // No control message follows that depends on the record.
                    Some(Err(error)) => {
                        error!(target: TARGET, reason = %error, "record can't be written");
                        self.failed = Some(error);
                        return None;
                    }
                },
            }
        }
    }

    /// Takes the error of a record that could not be written.
    pub(crate) fn take_failure(&mut self) -> Option<DataDirError> {
        self.failed.take()
    }
}

impl Deref for BootstrapDriver {
    type Target = control::Bootstrapping;

    fn deref(&self) -> &control::Bootstrapping {
        &self.inner
    }
}

impl DerefMut for BootstrapDriver {
    fn deref_mut(&mut self) -> &mut control::Bootstrapping {
        &mut self.inner
    }
}

//! The messages of a restart, as words.
use super::ballot::{RestartBallot, ballot, put_ballot, take_word};
use super::record::{self, LogOrigin, LogState, LongestLog, RestartView};
use crate::control::card_words::{cards, put_cards};
use crate::ids::{Process, ViewId};
use crate::view::View;
use crate::wire::Card;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// A message of one process that restarts to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RestartMessage {
    /// The sender restarts.
    Hello {
        /// The newest view that it knows to be decided.
        base: ViewId,
    },
    /// The answer to a process that knows an earlier view only.
    Base {
        /// A decided view.
        view: View,
        /// The hosts of its members.
        hosts: Vec<u128>,
    },
    /// Asks a member of the base to accept no lower ballot, and to return what it has accepted.
    Prepare {
        /// The process that is asked.
        to: Process,
        /// The ballot.
        ballot: RestartBallot,
        /// The view after which the group continues.
        base: View,
        /// The hosts of its members.
        hosts: Vec<u128>,
    },
    /// The answer to [`Prepare`](RestartMessage::Prepare).
    Promise {
        /// The view after which the group continues.
        base: ViewId,
        /// The ballot.
        ballot: RestartBallot,
        /// The newest accepted view.
        accepted: Option<Box<(RestartBallot, RestartView)>>,
        /// The logs of the sender.
        logs: Vec<LogState>,
        /// As in [`RestartRecord`](super::RestartRecord).
        origins: Vec<LogOrigin>,
        /// As in [`RestartRecord`](super::RestartRecord).
        said_last: bool,
        /// The host of the sender.
        host: u128,
    },
    /// Asks a member of the base to get the records that its logs lack from processes that have
    /// them, and to send another [`Promise`](RestartMessage::Promise) with its logs.
    CatchUp {
        /// The process that is asked.
        to: Process,
        /// The ballot.
        ballot: RestartBallot,
        /// The view after which the group continues.
        base: ViewId,
        /// The longest logs.
        logs: Vec<LongestLog>,
        /// The places of processes that have them, as far as the driver of the sender knows them.
        cards: Vec<Card>,
    },
    /// The sender has promised a higher ballot.
    Behind {
        /// The view after which the group continues.
        base: ViewId,
        /// The promised ballot.
        promised: RestartBallot,
    },
    /// Asks a member of the base to accept a view.
    Accept {
        /// The process that is asked.
        to: Process,
        /// The ballot.
        ballot: RestartBallot,
        /// The view after which the group continues, and the view.
        value: Box<(ViewId, RestartView)>,
    },
    /// The answer to [`Accept`](RestartMessage::Accept): the view is on the sender's disk.
    Accepted {
        /// The view after which the group continues.
        base: ViewId,
        /// The ballot.
        ballot: RestartBallot,
    },
    /// The view is decided.
    Decided {
        /// The view after which the group continues.
        base: ViewId,
        /// The view.
        value: Box<RestartView>,
    },
}

// The messages of the bootstrap, which travel beside these, have lower numbers.
const HELLO: u64 = 101;
const BASE: u64 = 102;
const PREPARE: u64 = 103;
const PROMISE: u64 = 104;
const BEHIND: u64 = 105;
const ACCEPT: u64 = 106;
const ACCEPTED: u64 = 107;
const DECIDED: u64 = 108;
const CATCH_UP: u64 = 109;

impl RestartMessage {
    /// Returns the message as words.
    pub fn encode(&self) -> Vec<u64> {
        let mut out = vec![];
        match self {
            RestartMessage::Hello { base } => out.extend([HELLO, base.0]),
            RestartMessage::Base { view, hosts } => {
                out.push(BASE);
                record::put_view(&mut out, view);
                record::put_hosts(&mut out, hosts);
            }
            RestartMessage::Prepare { to, ballot, base, hosts } => {
                out.push(PREPARE);
                record::put_process(&mut out, *to);
                put_ballot(&mut out, *ballot);
                record::put_view(&mut out, base);
                record::put_hosts(&mut out, hosts);
            }
            RestartMessage::Promise { base, ballot, accepted, logs, origins, said_last, host } => {
                out.extend([PROMISE, base.0]);
                put_ballot(&mut out, *ballot);
                record::put_accepted(&mut out, accepted.as_deref());
                record::put_logs(&mut out, logs);
                record::put_origins(&mut out, origins);
                out.push(u64::from(*said_last));
                record::put_hosts(&mut out, &[*host]);
            }
            RestartMessage::CatchUp { to, ballot, base, logs, cards } => {
                out.push(CATCH_UP);
                record::put_process(&mut out, *to);
                put_ballot(&mut out, *ballot);
                out.push(base.0);
                record::put_longest(&mut out, logs);
                put_cards(&mut out, cards);
            }
            RestartMessage::Behind { base, promised } => {
                out.extend([BEHIND, base.0]);
                put_ballot(&mut out, *promised);
            }
            RestartMessage::Accept { to, ballot, value } => {
                out.push(ACCEPT);
                record::put_process(&mut out, *to);
                put_ballot(&mut out, *ballot);
                out.push(value.0.0);
                record::put_value(&mut out, &value.1);
            }
            RestartMessage::Accepted { base, ballot } => {
                out.extend([ACCEPTED, base.0]);
                put_ballot(&mut out, *ballot);
            }
            RestartMessage::Decided { base, value } => {
                out.extend([DECIDED, base.0]);
                record::put_value(&mut out, value);
            }
        }
        out
    }

    /// Decodes a message; `None` if the words are none.
    pub fn decode(words: &[u64]) -> Option<RestartMessage> {
        let from = &mut &words[..];
        let message = match take_word(from)? {
            HELLO => RestartMessage::Hello { base: ViewId(take_word(from)?) },
            BASE => {
                let view = record::view(from)?;
                RestartMessage::Base { hosts: record::hosts(from, &view)?, view }
            }
            PREPARE => {
                let to = record::process(from)?;
                let (ballot, base) = (ballot(from)?, record::view(from)?);
                RestartMessage::Prepare { to, ballot, hosts: record::hosts(from, &base)?, base }
            }
            PROMISE => RestartMessage::Promise {
                base: ViewId(take_word(from)?),
                ballot: ballot(from)?,
                accepted: record::accepted(from)?.map(Box::new),
                logs: record::logs(from)?,
                origins: record::origins(from)?,
                said_last: record::flag(from)?,
                host: record::host(from)?,
            },
            CATCH_UP => RestartMessage::CatchUp {
                to: record::process(from)?,
                ballot: ballot(from)?,
                base: ViewId(take_word(from)?),
                logs: record::longest(from)?,
                cards: cards(from)?,
            },
            BEHIND => RestartMessage::Behind { base: ViewId(take_word(from)?), promised: ballot(from)? },
            ACCEPT => {
                let (to, ballot) = (record::process(from)?, ballot(from)?);
                let value = Box::new((ViewId(take_word(from)?), record::value(from)?));
                RestartMessage::Accept { to, ballot, value }
            }
            ACCEPTED => RestartMessage::Accepted { base: ViewId(take_word(from)?), ballot: ballot(from)? },
            DECIDED => {
                let base = ViewId(take_word(from)?);
                RestartMessage::Decided { base, value: Box::new(record::value(from)?) }
            }
            _ => return None,
        };
        from.is_empty().then_some(message)
    }
}

//! The messages of the bootstrap, and the record that a seed writes to its disk, both as words.
use crate::control::card_words::{self, put_cards, words_of};
use crate::ids::{MemberId, Process};
use crate::limits::{BOOTSTRAP_WORDS_MAX, MEMBERS_MAX};
use crate::wire::Card;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::iter::Peekable;

/// The incarnation of a group, which distinguishes groups with the same name. It is drawn at random
/// when the group is created.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Incarnation(pub u128);

/// An attempt to create the group. Ballots are ordered by round; no two seeds have the same one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct BootstrapBallot {
    /// The number of the attempt, from 1. Round 0 is below all attempts.
    pub round: u64,
    /// The index of the seed that leads it.
    pub seed: u32,
}

/// The value that the seeds vote on: the group's incarnation, and the processes of its first view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InitialView {
    /// The incarnation.
    pub incarnation: Incarnation,
    /// The members of the first view, ascending. Each has acknowledged this incarnation.
    pub members: Vec<Process>,
}

/// A message of one process to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BootstrapMessage {
    /// The sender looks for the group.
    Hello {
        /// The digest of its seed list; 0 while it is not known.
        seeds: u64,
        /// The group of which it was a member, or that it knows to have been created.
        belongs: Option<Incarnation>,
    },
    /// The answer of a process that also looks for the group.
    Here {
        /// As in [`Hello`](BootstrapMessage::Hello).
        seeds: u64,
        /// True if its votes are durable.
        durable: bool,
        /// The group of a member that has sent a message recently, or as in
        /// [`Hello`](BootstrapMessage::Hello).
        belongs: Option<Incarnation>,
    },
    /// Asks a seed to vote for no lower ballot, and to return its newest vote.
    Prepare {
        /// The ballot.
        ballot: BootstrapBallot,
        /// The digest of the sender's seed list.
        seeds: u64,
    },
    /// The answer to [`Prepare`](BootstrapMessage::Prepare).
    Promise {
        /// The ballot.
        ballot: BootstrapBallot,
        /// True if the promise is on disk.
        durable: bool,
        /// The newest vote of this seed.
        accepted: Option<(BootstrapBallot, InitialView)>,
    },
    /// The sender has promised a higher ballot.
    Behind {
        /// The promised ballot.
        promised: BootstrapBallot,
    },
    /// Asks a process whether it accepts a place in the first view of this incarnation.
    Invite {
        /// The incarnation.
        incarnation: Incarnation,
        /// True if an operator requested it, so that earlier groups do not count.
        forced: bool,
    },
    /// The answer to [`Invite`](BootstrapMessage::Invite): the process accepts.
    Pledge {
        /// The incarnation.
        incarnation: Incarnation,
    },
    /// Asks a seed to vote.
    Accept {
        /// The ballot.
        ballot: BootstrapBallot,
        /// The digest of the sender's seed list.
        seeds: u64,
        /// The bootstrap to vote for.
        initial_view: InitialView,
    },
    /// The answer to [`Accept`](BootstrapMessage::Accept): the seed has voted.
    Accepted {
        /// The ballot.
        ballot: BootstrapBallot,
        /// True if the vote is on disk.
        durable: bool,
    },
    /// The group is created.
    Decided {
        /// The decided first view.
        initial_view: InitialView,
        /// The cards of its members, as far as the driver of the sender knows them and they fit; the
        /// others come before, as [`Places`](BootstrapMessage::Places). The sender may end before it
        /// announces the view, and members may have heard of no other member.
        cards: Vec<Card>,
    },
    /// Cards of members of a first view that is decided. [`Decided`](BootstrapMessage::Decided) follows.
    Places {
        /// The incarnation of the group.
        incarnation: Incarnation,
        /// The cards.
        cards: Vec<Card>,
    },
    /// The sender is a member of a group.
    Exists {
        /// The group.
        incarnation: Incarnation,
    },
}

/// The promise and the vote of a seed, and the group to which its process belonged. With a data
/// directory, the record is on disk before any message reports it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BootstrapRecord {
    /// The digest of the seed list in which it votes; 0 before the first vote.
    pub seeds: u64,
    /// The promised ballot. No lower ballot gets its vote.
    pub promised: BootstrapBallot,
    /// Its newest vote.
    pub accepted: Option<(BootstrapBallot, InitialView)>,
    /// The group of which this process, or an earlier one, was a member, or that it knows to have
    /// been created.
    pub belongs: Option<Incarnation>,
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

const HELLO: u64 = 1;
const HERE: u64 = 2;
const PREPARE: u64 = 3;
const PROMISE: u64 = 4;
const BEHIND: u64 = 5;
const INVITE: u64 = 6;
const PLEDGE: u64 = 7;
const ACCEPT: u64 = 8;
const ACCEPTED: u64 = 9;
const DECIDED: u64 = 10;
const EXISTS: u64 = 11;
const PLACES: u64 = 12;

impl BootstrapMessage {
    /// Returns the message as words.
    pub fn encode(&self) -> Vec<u64> {
        let mut out = vec![];
        match self {
            BootstrapMessage::Hello { seeds, belongs } => {
                out.extend([HELLO, *seeds]);
                put_belongs(&mut out, *belongs);
            }
            BootstrapMessage::Here { seeds, durable, belongs } => {
                out.extend([HERE, *seeds, u64::from(*durable)]);
                put_belongs(&mut out, *belongs);
            }
            BootstrapMessage::Prepare { ballot, seeds } => {
                out.extend([PREPARE, *seeds]);
                put_ballot(&mut out, *ballot);
            }
            BootstrapMessage::Promise { ballot, durable, accepted } => {
                out.extend([PROMISE, u64::from(*durable)]);
                put_ballot(&mut out, *ballot);
                put_accepted(&mut out, accepted.as_ref());
            }
            BootstrapMessage::Behind { promised } => {
                out.push(BEHIND);
                put_ballot(&mut out, *promised);
            }
            BootstrapMessage::Invite { incarnation, forced } => {
                out.extend([INVITE, u64::from(*forced)]);
                put_incarnation(&mut out, *incarnation);
            }
            BootstrapMessage::Pledge { incarnation } => {
                out.push(PLEDGE);
                put_incarnation(&mut out, *incarnation);
            }
            BootstrapMessage::Accept { ballot, seeds, initial_view } => {
                out.extend([ACCEPT, *seeds]);
                put_ballot(&mut out, *ballot);
                put_founding(&mut out, initial_view);
            }
            BootstrapMessage::Accepted { ballot, durable } => {
                out.extend([ACCEPTED, u64::from(*durable)]);
                put_ballot(&mut out, *ballot);
            }
            BootstrapMessage::Decided { initial_view, cards } => {
                out.push(DECIDED);
                put_founding(&mut out, initial_view);
                put_cards(&mut out, cards);
            }
            BootstrapMessage::Places { incarnation, cards } => {
                out.push(PLACES);
                put_incarnation(&mut out, *incarnation);
                put_cards(&mut out, cards);
            }
            BootstrapMessage::Exists { incarnation } => {
                out.push(EXISTS);
                put_incarnation(&mut out, *incarnation);
            }
        }
        out
    }

    /// Decodes a message; `None` if the words are none.
    pub fn decode(words: &[u64]) -> Option<BootstrapMessage> {
        let from = &mut &words[..];
        let message = match word(from)? {
            HELLO => BootstrapMessage::Hello { seeds: word(from)?, belongs: belongs(from)? },
            HERE => BootstrapMessage::Here { seeds: word(from)?, durable: truth(from)?, belongs: belongs(from)? },
            PREPARE => {
                let seeds = word(from)?;
                BootstrapMessage::Prepare { ballot: ballot(from)?, seeds }
            }
            PROMISE => {
                let durable = truth(from)?;
                BootstrapMessage::Promise { ballot: ballot(from)?, durable, accepted: accepted(from)? }
            }
            BEHIND => BootstrapMessage::Behind { promised: ballot(from)? },
            INVITE => {
                let forced = truth(from)?;
                BootstrapMessage::Invite { incarnation: incarnation(from)?, forced }
            }
            PLEDGE => BootstrapMessage::Pledge { incarnation: incarnation(from)? },
            ACCEPT => {
                let seeds = word(from)?;
                BootstrapMessage::Accept { ballot: ballot(from)?, seeds, initial_view: initial_view(from)? }
            }
            ACCEPTED => {
                let durable = truth(from)?;
                BootstrapMessage::Accepted { ballot: ballot(from)?, durable }
            }
            DECIDED => BootstrapMessage::Decided { initial_view: initial_view(from)?, cards: card_words::cards(from)? },
            PLACES => BootstrapMessage::Places { incarnation: incarnation(from)?, cards: card_words::cards(from)? },
            EXISTS => BootstrapMessage::Exists { incarnation: incarnation(from)? },
            _ => return None,
        };
        from.is_empty().then_some(message)
    }

    /// Returns the messages that report a decision with these cards, in the order in which they are sent.
    /// Each fits a control message.
    pub(in crate::control) fn decided(initial_view: InitialView, cards: Vec<Card>) -> Vec<BootstrapMessage> {
        let incarnation = initial_view.incarnation;
        let room = |message: BootstrapMessage| BOOTSTRAP_WORDS_MAX - message.encode().len();
        let mut cards = cards.into_iter().peekable();
        let decided = |cards| BootstrapMessage::Decided { initial_view: initial_view.clone(), cards };
        let last = decided(first_that_fit(&mut cards, room(decided(Vec::new()))));
        let places = |cards| BootstrapMessage::Places { incarnation, cards };
        let mut messages = vec![];
        while cards.peek().is_some() {
            messages.push(places(first_that_fit(&mut cards, room(places(Vec::new())))));
        }
        messages.push(last);
        messages
    }
}

/// Takes the first cards that have at most so many words together.
fn first_that_fit(cards: &mut Peekable<impl Iterator<Item = Card>>, mut room: usize) -> Vec<Card> {
    let mut fit = vec![];
    while let Some(card) = cards.next_if(|card| words_of(card) <= room) {
        room -= words_of(&card);
        fit.push(card);
    }
    fit
}

impl BootstrapRecord {
    /// Returns the record as words.
    pub fn encode(&self) -> Vec<u64> {
        let mut out = vec![self.seeds];
        put_ballot(&mut out, self.promised);
        put_accepted(&mut out, self.accepted.as_ref());
        put_belongs(&mut out, self.belongs);
        out
    }

    /// Decodes a record; `None` if the words are none.
    pub fn decode(words: &[u64]) -> Option<BootstrapRecord> {
        let from = &mut &words[..];
        let seeds = word(from)?;
        let record =
            BootstrapRecord { seeds, promised: ballot(from)?, accepted: accepted(from)?, belongs: belongs(from)? };
        from.is_empty().then_some(record)
    }
}

fn put_incarnation(out: &mut Vec<u64>, incarnation: Incarnation) {
    out.extend([incarnation.0 as u64, (incarnation.0 >> 64) as u64]);
}

fn put_belongs(out: &mut Vec<u64>, belongs: Option<Incarnation>) {
    out.push(u64::from(belongs.is_some()));
    belongs.into_iter().for_each(|incarnation| put_incarnation(out, incarnation));
}

fn put_ballot(out: &mut Vec<u64>, ballot: BootstrapBallot) {
    out.extend([ballot.round, u64::from(ballot.seed)]);
}

fn put_founding(out: &mut Vec<u64>, initial_view: &InitialView) {
    put_incarnation(out, initial_view.incarnation);
    out.push(initial_view.members.len() as u64);
    out.extend(initial_view.members.iter().map(|process| process.id.0));
    let nonce = |process: Option<&Process>| process.map_or(0, |process| u64::from(process.nonce));
    out.extend(initial_view.members.chunks(2).map(|pair| nonce(pair.first()) | nonce(pair.get(1)) << 32));
}

fn put_accepted(out: &mut Vec<u64>, accepted: Option<&(BootstrapBallot, InitialView)>) {
    out.push(u64::from(accepted.is_some()));
    if let Some((ballot, initial_view)) = accepted {
        put_ballot(out, *ballot);
        put_founding(out, initial_view);
    }
}

fn word(from: &mut &[u64]) -> Option<u64> {
    from.split_off_first().copied()
}

fn truth(from: &mut &[u64]) -> Option<bool> {
    match word(from)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn incarnation(from: &mut &[u64]) -> Option<Incarnation> {
    let (low, high) = (word(from)?, word(from)?);
    Some(Incarnation(u128::from(low) | u128::from(high) << 64))
}

fn belongs(from: &mut &[u64]) -> Option<Option<Incarnation>> {
    Some(if truth(from)? { Some(incarnation(from)?) } else { None })
}

fn ballot(from: &mut &[u64]) -> Option<BootstrapBallot> {
    let round = word(from)?;
    Some(BootstrapBallot { round, seed: u32::try_from(word(from)?).ok()? })
}

fn initial_view(from: &mut &[u64]) -> Option<InitialView> {
    let incarnation = incarnation(from)?;
    let count = usize::try_from(word(from)?).ok().filter(|count| *count <= MEMBERS_MAX)?;
    let ids = from.split_off(..count)?;
    let nonces = from.split_off(..count.div_ceil(2))?.iter().flat_map(|pair| [*pair as u32, (*pair >> 32) as u32]);
    let members: Vec<Process> =
        ids.iter().zip(nonces).map(|(id, nonce)| Process { id: MemberId(*id), nonce }).collect();
    // The first view has one process of each id, in ascending order.
    members.is_sorted_by(|a, b| a.id < b.id).then_some(InitialView { incarnation, members })
}

fn accepted(from: &mut &[u64]) -> Option<Option<(BootstrapBallot, InitialView)>> {
    if !truth(from)? {
        return Some(None);
    }
    let ballot = ballot(from)?;
    Some(Some((ballot, initial_view(from)?)))
}

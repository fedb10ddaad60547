//! Decides whether a history of one key is linearizable.
//!
//! A history is linearizable if each operation can be given one point in time between its call and
//! its end, so that all replies are those of the operations one after the other (Herlihy and Wing,
//! Linearizability, 1990). A history of many keys is linearizable if that of each key is.
//!
//! The search is that of Wing and Gong (Testing and Verifying Concurrent Objects, 1993): any
//! operation that was called before the earliest end of the others may be the next one. It notes what
//! it has reached, as Lowe proposes (Testing for Linearizability, 2017): the set of operations so far
//! and the value. An operation whose outcome is not known may take effect at any time after its call,
//! or never.
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The most states that a search notes.
const STATES_MAX: usize = 2_000_000;

/// An operation on a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Action {
    /// Sets the value. The reply is the old one.
    Put(u64),
    /// Adds to the value. The reply is the new one.
    Add(u64),
    /// The reply is the value.
    Read,
}

/// A reply: a value, if the key has one.
pub(crate) type Reply = Option<u64>;

impl Action {
    /// Returns the new value and the reply.
    pub(crate) fn apply(self, value: Option<u64>) -> (Option<u64>, Reply) {
        match self {
            Action::Put(new) => (Some(new), value),
            Action::Add(more) => {
                let sum = Some(value.unwrap_or(0).wrapping_add(more));
                (sum, sum)
            }
            Action::Read => (value, value),
        }
    }
}

/// An operation of a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Operation {
    pub(crate) action: Action,
    /// The time of the call.
    pub(crate) called: u64,
    /// The time of its end and the reply, if the outcome is known.
    pub(crate) ended: Option<(u64, Reply)>,
}

/// Why a history was not found to be linearizable.
#[derive(Debug)]
#[allow(dead_code, reason = "printed by tests that fail")]
pub(crate) enum Violation {
    /// No order explains the replies.
    NotLinearizable {
        /// How many operations the longest order contains.
        explained: usize,
        /// The operations of which none can follow.
        next: Vec<Operation>,
    },
    /// The search has noted as many states as it may.
    TooManyStates,
}

/// A history by key.
pub(crate) type History = BTreeMap<String, Vec<Operation>>;

/// Reads the operations of a process from its answers: `call N KEY ACTION VALUE TIME`, and
/// `end N TIME REPLY`. An operation without an end was interrupted.
#[allow(dead_code, reason = "histories of the simulator are no text")]
pub(crate) fn parse(answers: &[String]) -> History {
    let mut operations: Vec<(String, Operation)> = vec![];
    for answer in answers {
        match answer.split(' ').collect::<Vec<_>>()[..] {
            ["call", _, key, action, value, time] => {
                let value = value.parse().unwrap();
                let action = match action {
                    "put" => Action::Put(value),
                    "add" => Action::Add(value),
                    _ => Action::Read,
                };
                operations
                    .push((format!("key {key}"), Operation { action, called: time.parse().unwrap(), ended: None }));
            }
            ["end", number, time, reply] => {
                let number: usize = number.parse().unwrap();
                operations[number].1.ended = Some((time.parse().unwrap(), reply.parse().ok()));
            }
            // The last line may be cut off.
            _ => {}
        }
    }
    let mut history = History::new();
    operations.into_iter().for_each(|(key, operation)| history.entry(key).or_default().push(operation));
    history
}

/// Checks each key.
pub(crate) fn check_keys(history: &History) -> Result<(), (String, Violation)> {
    history.iter().try_for_each(|(key, operations)| check(operations).map_err(|violation| (key.clone(), violation)))
}

/// A state of the search.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct Reached {
    /// All operations with a known outcome below this index have taken effect.
    first: usize,
    /// Others that have taken effect: indices above `first`.
    ahead: BTreeSet<usize>,
    /// The operations with an unknown outcome that have taken effect.
    unknown: BTreeSet<usize>,
    value: Option<u64>,
}

impl Reached {
    fn len(&self) -> usize {
        self.first + self.ahead.len() + self.unknown.len()
    }

    fn with_known(&self, i: usize, value: Option<u64>) -> Reached {
        let mut next = Reached { value, ..self.clone() };
        next.ahead.insert(i);
        while next.ahead.remove(&next.first) {
            next.first += 1;
        }
        next
    }

    fn with_unknown(&self, i: usize, value: Option<u64>) -> Reached {
        let mut next = Reached { value, ..self.clone() };
        next.unknown.insert(i);
        next
    }
}

/// Checks the history of one key, which has no value at the beginning.
pub(crate) fn check(history: &[Operation]) -> Result<(), Violation> {
    let (mut known, mut unknown): (Vec<Operation>, Vec<Operation>) =
        history.iter().partition(|operation| operation.ended.is_some());
    known.sort_by_key(|operation| operation.called);
    unknown.retain(|operation| operation.action != Action::Read);
    let mut seen = HashSet::new();
    let mut open = vec![Reached::default()];
    let mut best = Reached::default();
    while let Some(reached) = open.pop() {
        if reached.first == known.len() {
            return Ok(());
        }
        if reached.len() > best.len() {
            best = reached.clone();
        }
        let (candidates, until) = candidates(&known, &reached);
        for (i, operation) in unknown.iter().enumerate().filter(|(i, _)| !reached.unknown.contains(i)) {
            if operation.called <= until {
                push(&mut open, &mut seen, reached.with_unknown(i, operation.action.apply(reached.value).0));
            }
        }
        // The one that was called first is tried first.
        for i in candidates.into_iter().rev() {
            let (value, reply) = known[i].action.apply(reached.value);
            if known[i].ended.is_some_and(|(_, got)| got == reply) {
                push(&mut open, &mut seen, reached.with_known(i, value));
            }
        }
        if seen.len() > STATES_MAX {
            return Err(Violation::TooManyStates);
        }
    }
    let next = candidates(&known, &best).0.into_iter().map(|i| known[i]).collect();
    Err(Violation::NotLinearizable { explained: best.len(), next })
}

fn push(open: &mut Vec<Reached>, seen: &mut HashSet<Reached>, reached: Reached) {
    if seen.insert(reached.clone()) {
        open.push(reached);
    }
}

/// Returns the operations that may be next, and the earliest end of those that have not taken effect.
fn candidates(known: &[Operation], reached: &Reached) -> (Vec<usize>, u64) {
    let (mut found, mut until) = (vec![], u64::MAX);
    for (i, operation) in known.iter().enumerate().skip(reached.first) {
        if operation.called > until {
            break;
        }
        if !reached.ahead.contains(&i) {
            until = operation.ended.map_or(until, |(end, _)| until.min(end));
            found.push(i);
        }
    }
    // Some were called after the end of one that was found later.
    found.retain(|i| known[*i].called <= until);
    (found, until)
}

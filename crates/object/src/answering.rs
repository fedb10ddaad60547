//! The thread that answers queries of other members from this member's object.
//!
//! The polling thread only puts a query into a bounded queue. The thread answers it as a local read does:
//! commands wait while one query is answered, and no longer, since each query takes the lock for itself.
//!
//! - INV-QUERY-AFTER: an answer is from a state that contains at least as many messages of the order as
//!   the query says. All members have the same messages in the same order, so it is that state or a later
//!   one.
use crate::query_message::{QueryOutcome, QueryReply, QueryRequest};
use crate::shared::Shared;
use crate::state_machine::{ExecuteError, StateMachine};
use crate::waiting::Inside;
use spindle::IncomingQuery;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The most queries that wait at a member. One more is refused as too many.
const QUERIES_MAX: usize = 256;
/// The longest time that a query waits, whatever it says.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// The polling thread's part, which ends the thread when it is dropped.
#[derive(Debug)]
pub(crate) struct Answering(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether the thread waits for the object to come to a message.
    waits: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    arrived: Vec<(IncomingQuery, Instant)>,
    /// The queries that the thread has and that wait.
    waiting: usize,
    has_moved: bool,
    is_over: bool,
}

impl Answering {
    /// Starts the thread, unless the type has no queries.
    pub(crate) fn start<T: StateMachine>(shared: &Arc<Shared<T>>) -> std::io::Result<Option<Answering>> {
        if T::QUERIES.is_empty() {
            return Ok(None);
        }
        let queue = Arc::<Queue>::default();
        let (of_thread, shared) = (Arc::clone(&queue), Arc::clone(shared));
        // A query that does not return keeps the thread, and nothing waits for it.
        thread::Builder::new().name("spindle-query".to_owned()).spawn(move || run(&shared, &of_thread))?;
        Ok(Some(Answering(queue)))
    }

    /// Takes a query of another member.
    pub(crate) fn take(&self, query: IncomingQuery) {
        let mut state = self.0.lock();
        if state.arrived.len() + state.waiting >= QUERIES_MAX {
            drop(state);
            return query.refuse_as_busy();
        }
        state.arrived.push((query, Instant::now()));
        self.0.changed.notify_one();
    }

    /// Notes that messages were applied.
    pub(crate) fn note_moved(&self) {
        // SeqCst, as in `run`: that thread sees the messages, or this one sees that it waits.
        if self.0.waits.load(Ordering::SeqCst) {
            self.0.lock().has_moved = true;
            self.0.changed.notify_one();
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_over = true;
        let arrived = std::mem::take(&mut state.arrived);
        drop(state);
        // The members that have asked learn that they get no answer.
        drop(arrived);
        self.0.changed.notify_one();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for queries, for messages, or until a time. Returns the queries; `None` at the end.
    fn next(&self, until: Option<Instant>) -> Option<Vec<(IncomingQuery, Instant)>> {
        let idle = |state: &mut State| state.arrived.is_empty() && !state.has_moved && !state.is_over;
        let state = self.lock();
        let mut state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
            None => self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
            Some(left) => self.changed.wait_timeout_while(state, left, idle).unwrap_or_else(PoisonError::into_inner).0,
        };
        state.has_moved = false;
        let arrived = std::mem::take(&mut state.arrived);
        state.waiting += arrived.len();
        (!state.is_over).then_some(arrived)
    }
}

/// A query that has no answer yet.
struct Waiting {
    query: IncomingQuery,
    until: Instant,
}

fn run<T: StateMachine>(shared: &Shared<T>, queue: &Queue) {
    let mut waiting: Vec<Waiting> = vec![];
    while let Some(arrived) = queue.next(waiting.iter().map(|waiting| waiting.until).min()) {
        for (query, since) in arrived {
            // Bytes of another program are dropped, and so the asker learns that they have no answer.
            let Some(QueryRequest { wait_ms, .. }) = QueryRequest::decode(query.bytes()) else { continue };
            waiting.push(Waiting { query, until: since + Duration::from_millis(wait_ms).min(WAIT_MAX) });
        }
        // Before the look at the object: see `note_moved`.
        queue.waits.store(true, Ordering::SeqCst);
        waiting = waiting.into_iter().filter_map(|waiting| answer(shared, waiting)).collect();
        queue.waits.store(!waiting.is_empty(), Ordering::SeqCst);
        queue.lock().waiting = waiting.len();
    }
}

/// Answers a query, or returns it if it has to wait.
fn answer<T: StateMachine>(shared: &Shared<T>, waiting: Waiting) -> Option<Waiting> {
    let request = QueryRequest::decode(waiting.query.bytes())?;
    let Some(reply) = reply(shared, &request, Instant::now() >= waiting.until) else { return Some(waiting) };
    waiting.query.answer(&reply);
    None
}

/// Returns the encoded answer to a query; `None` if the object has not come to its state, and may still in
/// time (INV-QUERY-AFTER).
fn reply<T: StateMachine>(shared: &Shared<T>, request: &QueryRequest<'_>, is_late: bool) -> Option<Vec<u8>> {
    let machine = shared.read();
    let messages = machine.messages();
    let is_behind = messages < request.after;
    let made = match machine.stopped() {
        Some(_) => Err(QueryOutcome::Stopped),
        None if is_behind && is_late => Err(QueryOutcome::Behind),
        None if is_behind => return None,
        None => execute(machine.object(), request),
    };
    // Commands continue while the answer is encoded.
    drop(machine);
    let answer = match &made {
        Ok(reply) => QueryOutcome::Done(reply),
        Err(outcome) => *outcome,
    };
    Some(QueryReply { messages, answer }.encode())
}

/// Answers from this object.
pub(crate) fn execute<T: StateMachine>(
    object: &T,
    asking: &QueryRequest<'_>,
) -> Result<Vec<u8>, QueryOutcome<'static>> {
    let spec = T::QUERIES.iter().find(|spec| spec.id == asking.query).ok_or(QueryOutcome::Unknown)?;
    if spec.types() != asking.types {
        return Err(QueryOutcome::OtherTypes);
    }
    // A call in the query would wait for its lock.
    let _inside = Inside::enter();
    match catch_unwind(AssertUnwindSafe(|| object.answer(asking.query, asking.arguments))) {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(ExecuteError::UnknownCommand { .. })) => Err(QueryOutcome::Unknown),
        Ok(Err(ExecuteError::Arguments(_) | ExecuteError::Reply(_))) => Err(QueryOutcome::NotEncoded),
        Err(_) => {
            tracing::error!(target: "spindle::object", query = spec.name, "a query has panicked");
            Err(QueryOutcome::Panicked)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::id::SessionId;
    use crate::machine::{Machine, Stopped};
    use crate::message::Message;
    use crate::settings::Settings;
    use crate::state_machine::{CommandSpec, QuerySpec, decode_arguments, encode_reply};
    use serde::{Deserialize, Serialize};
    use spindle::MemberId;

    const SUM: QuerySpec = QuerySpec { id: 4, name: "sum", signature: "(u64)->u64" };

    #[derive(Serialize, Deserialize)]
    struct Fixed(u64);

    impl StateMachine for Fixed {
        const COMMANDS: &'static [CommandSpec] = &[];
        const STATE: u32 = 0;
        const VERSION: u32 = 1;
        const QUERIES: &'static [QuerySpec] = &[SUM];

        fn execute(&mut self, id: u32, _: &[u8], _: &mut Context) -> Result<Vec<u8>, ExecuteError> {
            Err(ExecuteError::UnknownCommand { id })
        }

        fn answer(&self, _: u32, arguments: &[u8]) -> Result<Vec<u8>, ExecuteError> {
            let (more,): (u64,) = decode_arguments(arguments)?;
            assert_ne!(more, 13, "on purpose");
            encode_reply(&(self.0 + more))
        }
    }

    #[test]
    fn an_answer_is_from_a_state_at_or_after_that_of_the_query() {
        let mut machine = Machine::new(Fixed(5), Settings::default());
        for nonce in 0..3 {
            let open = Message::Open { session: SessionId { member: 1, nonce }, time_us: 1 }.encode();
            machine.apply(MemberId(1), &open).unwrap();
        }
        let shared = Shared::new(machine);
        let arguments = postcard::to_stdvec(&(2_u64,)).unwrap();
        let request =
            |after| QueryRequest { after, wait_ms: 9, query: SUM.id, types: SUM.types(), arguments: &arguments };
        let answer = |request: &QueryRequest<'_>, is_late| {
            let reply = reply(&shared, request, is_late)?;
            let QueryReply { messages, answer } = QueryReply::decode(&reply).unwrap();
            assert_eq!(messages, 3);
            Some(format!("{answer:?}"))
        };
        for after in 0..=3 {
            assert_eq!(answer(&request(after), after == 1), Some("Done([7])".to_owned()));
        }
        assert_eq!(answer(&request(4), false), None);
        assert_eq!(answer(&request(4), true), Some("Behind".to_owned()));
        let wrong = [
            (QueryRequest { query: 5, ..request(0) }, "Unknown"),
            (QueryRequest { types: 5, ..request(0) }, "OtherTypes"),
            (QueryRequest { arguments: &[1, 1], ..request(0) }, "NotEncoded"),
            (QueryRequest { arguments: &[13], ..request(0) }, "Panicked"),
        ];
        for (request, outcome) in wrong {
            assert_eq!(answer(&request, false), Some(outcome.to_owned()));
        }
        let stopped = Stopped::Version { mine: 1, group: 2 };
        let mut machine = Machine::new(Fixed(5), Settings::default());
        machine.stop(stopped);
        let reply = reply(&Shared::new(machine), &request(9), false).unwrap();
        assert_eq!(QueryReply::decode(&reply).unwrap().answer, QueryOutcome::Stopped);
    }
}

//! Threads and tasks that wait for their messages to be applied.
use crate::answer::Answer;
use crate::error::End;
use crate::id::{CallId, SessionId};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

/// The message that is waited for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    Open(SessionId),
    Call(CallId),
    Ask(u64),
    Tick(u64),
}

#[derive(Debug, Default)]
struct Slot {
    result: Option<Result<Answer, End>>,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct Inner {
    slots: BTreeMap<Key, Vec<Arc<Mutex<Slot>>>>,
    end: Option<End>,
    session: Option<SessionId>,
    next_number: u64,
    /// The calls that are on the way.
    admitted: BTreeSet<CallId>,
    /// Tasks that wait to be admitted.
    wakers: Vec<Waker>,
}

/// All that wait in this process, and the session of its calls.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<Inner>);

/// One wait.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    waiting: &'a Waiting,
    key: Key,
    slot: Arc<Mutex<Slot>>,
}

/// A call that is on the way, until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted<'a> {
    waiting: &'a Waiting,
    pub(crate) id: CallId,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.0)
    }

    /// Begins to wait, before the message is sent.
    pub(crate) fn wait(&self, key: Key) -> Wait<'_> {
        let slot: Arc<Mutex<Slot>> = Arc::default();
        let mut inner = self.lock();
        match inner.end.clone() {
            Some(end) => lock(&slot).result = Some(Err(end)),
            None => inner.slots.entry(key).or_default().push(Arc::clone(&slot)),
        }
        Wait { waiting: self, key, slot }
    }

    /// Gives the outcome to all that wait for it.
    pub(crate) fn resolve(&self, key: Key, answer: &Answer) {
        let slots = self.lock().slots.remove(&key).unwrap_or_default();
        slots.iter().for_each(|slot| set(slot, Ok(answer.clone())));
    }

    /// Ends all waits, now and later. The first reason counts.
    pub(crate) fn end(&self, end: End) {
        let mut inner = self.lock();
        let end = inner.end.get_or_insert(end).clone();
        let (slots, wakers) = (std::mem::take(&mut inner.slots), std::mem::take(&mut inner.wakers));
        drop(inner);
        slots.values().flatten().for_each(|slot| set(slot, Err(end.clone())));
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn ended(&self) -> Option<End> {
        self.lock().end.clone()
    }

    /// Uses this session from now on, instead of `old`.
    pub(crate) fn set_session(&self, old: Option<SessionId>, new: SessionId) {
        let mut inner = self.lock();
        if inner.session == old {
            (inner.session, inner.next_number) = (Some(new), 0);
        }
    }

    /// Gives a call its id. It waits while the oldest call on the way is `kept` numbers behind, whose
    /// outcome would not be kept.
    pub(crate) async fn admit(&self, kept: u64) -> Result<Admitted<'_>, End> {
        poll_fn(|context| {
            let mut inner = self.lock();
            if let Some(end) = &inner.end {
                return Poll::Ready(Err(end.clone()));
            }
            let session = inner.session.expect("a member opens a session when it joins");
            let oldest = inner.admitted.iter().find(|id| id.session == session).map(|id| id.number);
            let number = inner.next_number;
            if oldest.is_some_and(|oldest| number - oldest >= kept) {
                push(&mut inner.wakers, context);
                return Poll::Pending;
            }
            inner.next_number += 1;
            let id = CallId { session, number };
            inner.admitted.insert(id);
            Poll::Ready(Ok(Admitted { waiting: self, id }))
        })
        .await
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut inner = self.waiting.lock();
        inner.admitted.remove(&self.id);
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Wait<'_> {
    /// Returns the outcome once it is known.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<Answer, End>> {
        let mut slot = lock(&self.slot);
        match &slot.result {
            Some(result) => Poll::Ready(result.clone()),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    pub(crate) async fn result(&self) -> Result<Answer, End> {
        poll_fn(|context| self.poll(context)).await
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut inner = self.waiting.lock();
        if let Some(slots) = inner.slots.get_mut(&self.key) {
            slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
            if slots.is_empty() {
                inner.slots.remove(&self.key);
            }
        }
    }
}

fn set(slot: &Mutex<Slot>, result: Result<Answer, End>) {
    let waker = {
        let mut slot = lock(slot);
        slot.result.get_or_insert(result);
        slot.waker.take()
    };
    waker.into_iter().for_each(Waker::wake);
}

fn push(wakers: &mut Vec<Waker>, context: &Context<'_>) {
    if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
        wakers.push(context.waker().clone());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread until `deadline`. Returns `None` if it is not ready by then.
pub(crate) fn block_on<F: Future>(future: F, deadline: Instant) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as running a command or an upcall, for as long as it lives.
pub(crate) struct Inside(bool);

impl Inside {
    pub(crate) fn enter() -> Inside {
        Inside(INSIDE.replace(true))
    }

    pub(crate) fn is_running() -> bool {
        INSIDE.get()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

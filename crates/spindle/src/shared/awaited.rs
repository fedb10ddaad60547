//! A state that threads and tasks wait for.
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The longest single sleep of a wait, which is repeated.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// A value, and the threads and tasks that wait until it has changed in some way.
#[derive(Debug, Default)]
pub(crate) struct Awaited<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State<T> {
    value: T,
    wakers: BTreeMap<u64, Waker>,
    /// The number of the next waker.
    next: u64,
}

/// The registration of one future. Its waker is removed when the future is dropped.
pub(crate) struct Ticket<T>(Option<(Arc<Awaited<T>>, u64)>);

impl<T> Awaited<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.lock().value)
    }

    /// Changes the value and wakes all that wait.
    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        let wakers = {
            let mut state = self.lock();
            change(&mut state.value);
            std::mem::take(&mut state.wakers)
        };
        self.changed.notify_all();
        wakers.into_values().for_each(Waker::wake);
    }

    /// Looks until the result is final, or `timeout` has passed since `start`, or `may_wait` returns
    /// false. Returns the last result.
    pub(crate) fn wait<R>(
        &self,
        (start, timeout): (Instant, Duration),
        may_wait: impl Fn() -> bool,
        look: impl Fn(&T) -> R,
        is_final: impl Fn(&R) -> bool,
    ) -> R {
        let mut state = self.lock();
        loop {
            let found = look(&state.value);
            let left = timeout.saturating_sub(start.elapsed()).min(SLEEP_MAX);
            if is_final(&found) || left.is_zero() || !may_wait() {
                return found;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Looks once. If the result is not final, the next change wakes the task that holds the ticket.
    pub(crate) fn poll<R>(
        self: &Arc<Self>,
        ticket: &mut Ticket<T>,
        context: &Context<'_>,
        look: impl FnOnce(&T) -> R,
        is_final: impl FnOnce(&R) -> bool,
    ) -> Poll<R> {
        let mut state = self.lock();
        let found = look(&state.value);
        if is_final(&found) {
            return Poll::Ready(found);
        }
        let State { wakers, next, .. } = &mut *state;
        let (_, number) = ticket.0.get_or_insert_with(|| {
            *next += 1;
            (Arc::clone(self), *next)
        });
        let waker = wakers.entry(*number).or_insert_with(|| context.waker().clone());
        waker.clone_from(context.waker());
        Poll::Pending
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.lock().wakers.len()
    }
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        if let Some((awaited, number)) = self.0.take() {
            // Dropped after the lock is free: a waker may run any code.
            let waker = awaited.lock().wakers.remove(&number);
            drop(waker);
        }
    }
}

impl<T> Default for Ticket<T> {
    fn default() -> Ticket<T> {
        Ticket(None)
    }
}

/// A clone of a future registers itself.
impl<T> Clone for Ticket<T> {
    fn clone(&self) -> Ticket<T> {
        Ticket(None)
    }
}

impl<T> fmt::Debug for Ticket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ticket").field(&self.0.as_ref().map(|(_, number)| number)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_future_leaves_no_waker() {
        let awaited = Arc::new(Awaited::<u32>::default());
        let context = Context::from_waker(Waker::noop());
        let (mut first, mut second) = (Ticket::default(), Ticket::default());
        let poll = |ticket: &mut Ticket<u32>| awaited.poll(ticket, &context, |value| *value, |value| *value > 0);
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending() && poll(&mut first).is_pending());
        assert_eq!(awaited.waiting(), 2);
        drop((first.clone(), first));
        assert_eq!(awaited.waiting(), 1);
        awaited.change(|value| *value = 1);
        assert_eq!(awaited.waiting(), 0);
        drop(second);
        let wait = |timeout| awaited.wait((Instant::now(), timeout), || true, |value| *value, |value| *value > 0);
        assert_eq!(wait(Duration::MAX), 1);
    }
}

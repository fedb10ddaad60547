//! The durable frontier of a subgroup, for threads and tasks that wait for it.
use crate::shared::Upcall;
use spindle_core::{Durability, DurableRise, Position, SubgroupSpec, ViewId};
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The longest single sleep of a wait, which is repeated.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// The frontier, and the threads and tasks that wait for it.
#[derive(Debug, Default)]
pub(crate) struct DurableFrontier {
    state: Mutex<State>,
    risen: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// All messages before it are on the disks of all members, but for those in `lost`.
    frontier: Option<Position>,
    /// Messages that are on too few disks for ever.
    lost: Vec<Range<Position>>,
    copies: Copies,
    /// Whether this member is no longer in the subgroup.
    has_ended: bool,
    wakers: Vec<Waker>,
}

/// The members of a subgroup, and how many it needs for a message to become durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Copies {
    pub(crate) present: u32,
    pub(crate) needed: u32,
}

impl Copies {
    pub(crate) fn of(spec: &SubgroupSpec) -> Copies {
        let Durability::Logged { copies: needed } = spec.durability else { return Copies::default() };
        Copies { present: spec.members.len() as u32, needed }
    }
}

/// The result of a look at one message.
pub(crate) enum Found {
    Durable,
    /// It is on too few disks, and stays so.
    Lost,
    Pending(Copies),
    Ended,
}

impl State {
    fn find(&self, epoch: ViewId, sequence: u64) -> Found {
        let position = Position { epoch, sequence };
        match self.has_ended {
            _ if self.lost.iter().any(|lost| lost.contains(&position)) => Found::Lost,
            _ if self.frontier.is_some_and(|frontier| position < frontier) => Found::Durable,
            true => Found::Ended,
            false => Found::Pending(self.copies),
        }
    }
}

impl DurableFrontier {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes all that wait.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let wakers = {
            let mut state = self.lock();
            change(&mut state);
            std::mem::take(&mut state.wakers)
        };
        self.risen.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn raise(&self, DurableRise { frontier, covers_older }: DurableRise) {
        self.change(|state| {
            let first = |epoch| Position { epoch, sequence: 0 };
            let known = state.frontier.unwrap_or(first(ViewId(0)));
            if !covers_older && known.epoch < frontier.epoch {
                state.lost.push(known..first(frontier.epoch));
            }
            state.frontier = state.frontier.max(Some(frontier));
        });
    }

    /// Notes the members of a new epoch, which this member is in.
    pub(crate) fn set_copies(&self, copies: Copies) {
        self.change(|state| (state.copies, state.has_ended) = (copies, false));
    }

    /// Notes that this member is no longer in the subgroup.
    pub(crate) fn end(&self) {
        self.change(|state| state.has_ended = true);
    }

    /// Waits for the message up to `timeout` from `start`. In a handler it does not wait, because
    /// the waiting thread is the one that raises the frontier.
    pub(crate) fn wait(&self, epoch: ViewId, sequence: u64, start: Instant, timeout: Duration) -> Found {
        let mut state = self.lock();
        loop {
            let found = state.find(epoch, sequence);
            let left = timeout.saturating_sub(start.elapsed()).min(SLEEP_MAX);
            if !matches!(found, Found::Pending(_)) || left.is_zero() || Upcall::is_running() {
                return found;
            }
            state = self.risen.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn poll(&self, epoch: ViewId, sequence: u64, context: &Context<'_>) -> Poll<Found> {
        let mut state = self.lock();
        match state.find(epoch, sequence) {
            Found::Pending(_) => {
                if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    state.wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
            found => Poll::Ready(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rise(epoch: u64, sequence: u64, covers_older: bool) -> DurableRise {
        DurableRise { frontier: Position { epoch: ViewId(epoch), sequence }, covers_older }
    }

    #[test]
    fn messages_that_an_epoch_left_on_too_few_disks_stay_lost() {
        let frontier = DurableFrontier::default();
        let found = |epoch, sequence| frontier.lock().find(ViewId(epoch), sequence);
        frontier.raise(rise(1, 3, true));
        assert!(matches!(found(1, 2), Found::Durable) && matches!(found(1, 3), Found::Pending(_)));
        frontier.raise(rise(2, 0, true));
        assert!(matches!(found(1, 3), Found::Durable) && matches!(found(2, 0), Found::Pending(_)));
        frontier.raise(rise(4, 0, false));
        assert!(matches!(found(2, 0), Found::Lost) && matches!(found(1, 9), Found::Durable));
        frontier.raise(rise(4, 5, false));
        assert!(matches!(found(4, 4), Found::Durable) && matches!(found(3, 7), Found::Lost));
        frontier.end();
        assert!(matches!(found(4, 5), Found::Ended));
    }
}

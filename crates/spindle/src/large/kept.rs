//! Objects that a member has delivered and keeps for those who follow, as a ring keeps what was delivered in its other half
//! ([ADR 0025](../../../../docs/adr/0025-members-keep-large-messages-for-those-who-follow.md)).
//!
//! Nobody waits for what is kept: it is the object itself, so its sender can't use that memory again so long, and takes new memory instead
//! (INV-LENT). Nothing is kept unless somebody follows.
use spindle_core::control::Wanted;
use spindle_core::{Layout, Rank, Ring, SubgroupId, View, ViewId};
use spindle_fabric::Reader;
use spindle_fabric::bulk::Object;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Objects that a member keeps, at most.
const KEPT_MAX: usize = 128;
/// Their bytes, at most; the newest is kept however long it is.
const KEPT_BYTES_MAX: u64 = 256 << 20;

/// What one member keeps, of the view that runs and of those before.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether somebody follows.
    is_on: bool,
    current: Option<Current>,
    objects: BTreeMap<(ViewId, Wanted), Object>,
    /// The oldest first.
    order: VecDeque<(ViewId, Wanted)>,
    bytes: u64,
}

/// What is not delivered yet is on the shelf of the view that runs.
#[derive(Debug)]
struct Current {
    view: ViewId,
    rows: Reader,
    rings: BTreeMap<(SubgroupId, Rank), Ring>,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A view begins, in which this member has rank `me`.
    pub(crate) fn begin(&self, view: &View, layout: &Layout, me: Rank, rows: Reader) {
        let mut rings = BTreeMap::new();
        for (id, spec) in view.subgroups_of(me) {
            let ring = |sender: &Rank| Some(((id, *sender), layout.row(*sender).place(id)?.ring?));
            rings.extend(spec.senders.iter().filter_map(ring));
        }
        let last = self.lock().current.replace(Current { view: view.id, rows, rings });
        drop(last);
    }

    /// The view has ended. What is on its shelf is kept: who follows may not be that far.
    pub(crate) fn end_view(&self) {
        let mut state = self.lock();
        let Some(Current { view, rows, rings }) = state.current.take() else { return };
        let mut given_up = vec![];
        if state.is_on {
            for ((subgroup, sender), ring) in &rings {
                for (number, object) in rows.objects(*sender, ring) {
                    state.put(view, Wanted { subgroup: *subgroup, sender: *sender, number }, object, &mut given_up);
                }
            }
        }
        drop(state);
    }

    /// Whether somebody follows. If not, nothing is kept.
    pub(crate) fn set_on(&self, is_on: bool) {
        let mut state = self.lock();
        state.is_on = is_on;
        if !is_on && !state.order.is_empty() {
            state.order.clear();
            state.bytes = 0;
            let objects = std::mem::take(&mut state.objects);
            drop(state);
            drop(objects);
        }
    }

    /// Whether anything is kept, and somebody follows.
    pub(crate) fn is_any(&self) -> bool {
        !self.lock().order.is_empty()
    }

    /// Keeps what `forget` takes from the shelf, which are objects of `sender`: at no moment they are in neither place.
    pub(crate) fn keep(&self, subgroup: SubgroupId, sender: Rank, forget: impl FnOnce() -> Vec<(u64, Object)>) {
        let mut state = self.lock();
        let objects = forget();
        let mut given_up = vec![];
        match state.current.as_ref().map(|current| current.view).filter(|_| state.is_on) {
            Some(view) => {
                for (number, object) in objects {
                    state.put(view, Wanted { subgroup, sender, number }, object, &mut given_up);
                }
            }
            None => given_up.extend(objects.into_iter().map(|(_, object)| object)),
        }
        // Objects are dropped behind the lock: that may take system calls.
        drop(state);
    }

    /// The object, if it is here still.
    pub(crate) fn find(&self, view: ViewId, wanted: &Wanted) -> Option<Object> {
        let state = self.lock();
        let on_shelf = || {
            let Current { rows, rings, .. } = state.current.as_ref().filter(|current| current.view == view)?;
            rows.object(wanted.sender, rings.get(&(wanted.subgroup, wanted.sender))?, wanted.number)
        };
        state.objects.get(&(view, *wanted)).cloned().or_else(on_shelf)
    }

    /// One that keeps these objects of view 1, by number, of rank 1 in the first subgroup.
    #[cfg(test)]
    pub(super) fn of(objects: &[(u64, &[u8])]) -> Kept {
        let kept = Kept::default();
        kept.set_on(true);
        for (number, bytes) in objects {
            let wanted = Wanted { subgroup: SubgroupId(0), sender: Rank(1), number: *number };
            kept.lock().put(ViewId(1), wanted, bytes.to_vec().into(), &mut vec![]);
        }
        kept
    }

    /// The member ends: keeps nothing alive any more.
    pub(crate) fn end(&self) {
        let last = self.lock().current.take();
        drop(last);
        self.set_on(false);
    }
}

impl State {
    /// Keeps one more. What that costs others goes to `given_up`.
    fn put(&mut self, view: ViewId, wanted: Wanted, object: Object, given_up: &mut Vec<Object>) {
        let key = (view, wanted);
        self.bytes += object.len() as u64;
        match self.objects.insert(key, object) {
            None => self.order.push_back(key),
            Some(same) => {
                self.bytes -= same.len() as u64;
                given_up.push(same);
            }
        }
        while self.order.len() > 1 && (self.order.len() > KEPT_MAX || self.bytes > KEPT_BYTES_MAX) {
            let oldest = self.order.pop_front().and_then(|oldest| self.objects.remove(&oldest));
            self.bytes -= oldest.as_ref().map_or(0, |oldest| oldest.len() as u64);
            given_up.extend(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(number: u64) -> Wanted {
        Wanted { subgroup: SubgroupId(0), sender: Rank(1), number }
    }

    fn put(state: &mut State, number: u64, bytes: usize) -> usize {
        let mut given_up = vec![];
        state.put(ViewId(1), wanted(number), vec![0; bytes].into(), &mut given_up);
        given_up.len()
    }

    fn numbers(state: &State) -> Vec<u64> {
        assert!(state.objects.keys().eq(state.order.iter()), "one after the other, as their numbers are");
        assert_eq!(state.bytes, state.objects.values().map(|object| object.len() as u64).sum::<u64>());
        state.order.iter().map(|(_, wanted)| wanted.number).collect()
    }

    #[test]
    fn the_oldest_are_given_up_first_for_their_number_and_for_their_bytes() {
        let mut state = State::default();
        let count = KEPT_MAX as u64;
        assert!((0..count).all(|number| put(&mut state, number, 10) == 0));
        assert_eq!((put(&mut state, count, 10), numbers(&state)), (1, (1..=count).collect()));
        assert_eq!((put(&mut state, count, 10), state.order.len()), (1, KEPT_MAX), "the same again");
        assert_eq!(put(&mut state, count + 1, KEPT_BYTES_MAX as usize - 15), KEPT_MAX - 1);
        assert_eq!(numbers(&state), [count, count + 1]);
        assert_eq!(put(&mut state, count + 2, KEPT_BYTES_MAX as usize + 1), 2);
        assert_eq!(numbers(&state), [count + 2], "the newest is kept however long it is");
    }

    #[test]
    fn nothing_is_kept_unless_somebody_follows() {
        let kept = Kept::default();
        kept.set_on(true);
        put(&mut kept.lock(), 3, 1);
        assert!(kept.find(ViewId(1), &wanted(3)).is_some());
        assert!(kept.find(ViewId(2), &wanted(3)).is_none() && kept.find(ViewId(1), &wanted(4)).is_none());
        kept.set_on(false);
        assert!(kept.find(ViewId(1), &wanted(3)).is_none());
        kept.keep(SubgroupId(0), Rank(1), || vec![(4, vec![1].into())]);
        assert_eq!(numbers(&kept.lock()), [0; 0]);
    }
}

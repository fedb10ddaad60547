//! State shared by the handles of one member: how the group ended, and who is in it.
use crate::error::Ended;
use spindle_core::View;
use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;

/// The state that all handles of one member see: the newest view, and the end.
#[derive(Debug)]
pub(crate) struct Shared {
    view: Mutex<Arc<View>>,
    end: OnceLock<End>,
}

/// How a group came to its end.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Finished,
    Broken(Ended),
}

impl Shared {
    pub(crate) fn new(view: Arc<View>) -> Shared {
        Shared { view: Mutex::new(view), end: OnceLock::new() }
    }

    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_view(&self, view: Arc<View>) {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = view;
    }

    pub(crate) fn end(&self) -> Option<&End> {
        self.end.get()
    }

    /// Returns the reason, if the group has ended here before everything was delivered.
    #[inline]
    pub(crate) fn broken(&self) -> Option<&Ended> {
        match self.end.get() {
            Some(End::Broken(ended)) => Some(ended),
            _ => None,
        }
    }

    /// Sets the end, unless one was set before.
    pub(crate) fn set_end(&self, end: End) {
        let _ = self.end.set(end);
    }
}

/// Adds a waker to a list of wakers, unless it is there.
pub(crate) fn note_waker(wakers: &mut Vec<Waker>, waker: &Waker) {
    if !wakers.iter().any(|noted| noted.will_wake(waker)) {
        wakers.push(waker.clone());
    }
}

thread_local! {
    static IN_UPCALL: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as running an upcall for as long as it lives. Upcalls may nest: a handler may
/// poll a node of another group.
pub(crate) struct Upcall {
    inside: bool,
}

impl Upcall {
    pub(crate) fn enter() -> Upcall {
        Upcall { inside: IN_UPCALL.replace(true) }
    }

    /// Returns whether the calling thread runs an upcall.
    pub(crate) fn is_running() -> bool {
        IN_UPCALL.get()
    }
}

impl Drop for Upcall {
    fn drop(&mut self) {
        IN_UPCALL.set(self.inside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upcall_inside_another_leaves_it_running() {
        let outer = Upcall::enter();
        drop(Upcall::enter());
        assert!(Upcall::is_running());
        drop(outer);
        assert!(!Upcall::is_running());
    }
}

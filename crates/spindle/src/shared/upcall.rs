//! Marks the threads that run an upcall of an application: such a thread must not wait for itself.
use std::cell::Cell;

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

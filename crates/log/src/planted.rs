//! Bugs that a test switches on, one at a time, to prove that the tests of crashes find them.
//!
//! Only builds with the feature `testing` contain them. In other builds `planted!` is the constant
//! `false`. A bug is active on the thread that switched it on.

/// Whether the named bug is active.
macro_rules! planted {
    ($bug:ident) => {{
        #[cfg(any(test, feature = "testing"))]
        let active = $crate::planted::is_active($crate::planted::Bug::$bug);
        #[cfg(not(any(test, feature = "testing")))]
        let active = false;
        active
    }};
}
pub(crate) use planted;

#[cfg(any(test, feature = "testing"))]
pub use bugs::*;

#[cfg(any(test, feature = "testing"))]
mod bugs {
    use std::cell::Cell;

    macro_rules! bugs {
        ($($(#[$doc:meta])* $bug:ident,)*) => {
            /// The bugs.
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            pub enum Bug { $($(#[$doc])* $bug,)* }

            impl Bug {
                /// All bugs.
                pub const ALL: &[Bug] = &[$(Bug::$bug,)*];
            }
        };
    }

    bugs! {
        /// Checksums bind neither the segment nor the generation, and generations are not compared.
        ChecksumsBindNothing,
        /// A new segment is acknowledged before its name is durable.
        NamesNotSynced,
        /// A batch carries the frontier that it will reach itself.
        FrontierBeforeSync,
        /// A failed sync is tried again.
        FailedSyncRetried,
        /// A cut of a suffix is returned before it is durable.
        CutNotSynced,
        /// Every bad record is taken for a torn tail.
        EveryTailCut,
        /// Records that recovery has read are taken for durable without a sync.
        RecoveredNotSynced,
        /// A snapshot is renamed before it is synced.
        SnapshotNotSynced,
        /// Segments are recycled before the new beginning of the log is durable.
        RecycledBeforeRecorded,
        /// A value of the journal is returned before it is durable.
        JournalNotSynced,
        /// A batch is acknowledged when the first of its files is synced.
        OnlyFirstFileSynced,
        /// A log continues in the same generation after recovery.
        SameGeneration,
    }

    thread_local! {
        static ACTIVE: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Switches a bug on for this thread, or all off.
    pub fn activate(bug: Option<Bug>) {
        ACTIVE.set(bug);
    }

    pub(crate) fn is_active(bug: Bug) -> bool {
        ACTIVE.get() == Some(bug)
    }
}

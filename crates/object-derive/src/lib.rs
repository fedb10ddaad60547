//! The attribute `commands` of `spindle-object`, which exports it.

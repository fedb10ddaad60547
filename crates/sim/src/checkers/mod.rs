//! The invariants, one file each, under the numbers and names of the project's list.
//!
//! The simulator reports each event to a checker when it occurs, and the checker returns a
//! [`Violation`] if the event is not permitted. A checker never looks into an engine. It looks only
//! at the [`Ledger`](crate::ledger::Ledger), at memory, and at the output of engines.
pub mod accepted_on_disk;
pub mod atomicity;
pub mod bounded;
pub mod clock_bound;
pub mod deliver_durable;
pub mod determinism;
pub mod durable_prefix;
pub mod frame_safety;
pub mod liveness;
pub mod monotone;
pub mod no_invention;
pub mod no_storms;
pub mod null_rule;
pub mod one_incarnation;
pub mod primary;
pub mod read_barrier;
pub mod restart_chain;
pub mod restart_history;
pub mod sequence;
pub mod stability;
pub mod total_order;
pub mod uniformity;
pub mod validity;
pub mod view_sequence;
pub mod waiting;

use std::fmt;

/// An invariant that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The invariant's number.
    pub number: u8,
    /// The invariant's name.
    pub name: &'static str,
    /// The virtual time in ns. Set by the simulator.
    pub at: u64,
    /// The observed and the expected state.
    pub what: String,
}

/// The result of a check.
pub(crate) type Checked = Result<(), Violation>;

/// An invariant's number and name.
pub(crate) struct Invariant(pub(crate) u8, pub(crate) &'static str);

impl Invariant {
    pub(crate) fn broken<T>(&self, what: String) -> Result<T, Violation> {
        Err(Violation { number: self.0, name: self.1, at: 0, what })
    }
}

impl Violation {
    /// Returns the violation for a failed assertion of the core or of the simulator itself. It has
    /// number 0, which is no invariant of the list.
    pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Violation {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Violation { number: 0, name: "no panic", at: 0, what: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {} ({}) broken at {} ns: {}", self.number, self.name, self.at, self.what)
    }
}

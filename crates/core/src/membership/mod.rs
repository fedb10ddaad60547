//! The agreement that ends a view: one single-decree Paxos. Its acceptors are the rows of the
//! view's voters, and its value is the next view with the trims (docs/protocol/views.md).
//!
//! [`Membership`] is one member's side of it. [`Membership::watch`] runs while the view works and
//! says when the view has to end ([`watch`], from the [`opinions`] and [`reports`]).
//! [`Membership::agree`] runs from there to the decision ([`agreement`]): a member is an
//! [`acceptor`], and may be the [`leader`], which proposes its [`choice`]. [`ballot`] defines how
//! the rows count proposals, and [`slots`] where they are. [`touch`] holds the subgroups that have
//! to wedge. [`recovery`] is how the remaining members of a view continue without a quorum, on an
//! operator's order.
//!
//! Invariants of these files together:
//! - INV-PROMISE: a voter accepts no ballot below its effective promise;
//! - INV-QUORUM: a decision and each later choice meet in a row that the later leader reads;
//! - INV-BIND: a leader takes the newest value that may be decided;
//! - INV-CUT: a member promises a ballot after it has wedged the subgroups that the ballot touches,
//!   and written its cuts of them;
//! - INV-TRIM: a trim is a count that every continuing member has reached.
mod acceptor;
mod agreement;
mod ballot;
mod choice;
mod decision;
mod leader;
mod opinions;
pub(crate) mod proposal;
mod ranks;
mod recovery;
mod reports;
mod slots;
mod telling;
mod touch;
mod watch;

pub(crate) use agreement::Membership;
pub use ballot::Ballot;
pub use decision::Decision;
pub(crate) use decision::read_decision;
pub use opinions::Liveness;
pub use proposal::Trims;
pub(crate) use ranks::Ranks;
pub use recovery::Unrecoverable;

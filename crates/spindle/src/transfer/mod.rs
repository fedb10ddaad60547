//! Long data on its way to one process: the state of an application, as a [`State`] and its
//! [`Snapshot`], and bytes over a connection that a thread may wait for.
mod carry;
mod state;

pub(crate) use carry::{CarryReader, CarryWriter};
pub(crate) use state::{PATIENCE, STREAM_WAIT, TARGET, TransferWay, send_state, send_state_afar};
pub use state::{Snapshot, State};

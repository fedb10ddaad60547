//! Replicated objects over Spindle.
//!
//! The methods of a type become commands. All members of a group apply the same commands in the same
//! order, so all have the same object.
//!
//! ```text
//! commands (attribute) --> StateMachine, calls
//! StateMachine --> Machine: messages in, outcomes out; no I/O
//! Machine --> Replicated: a handle over a subgroup
//! ```
//!
//! Read [`Machine`] for what happens to a command.
#![forbid(unsafe_code)]

mod answer;
mod answering;
mod context;
mod durable;
mod error;
mod history;
mod id;
mod machine;
mod member;
mod message;
mod query;
mod query_message;
mod read_at;
mod replicated;
mod sessions;
mod settings;
mod shared;
mod snapshot;
mod state_machine;
mod waiting;
mod watch;

pub use answer::{Answer, Refusal};
pub use context::Context;
pub use error::{CallError, DurableError, End, NotDone, QueryError, ReadAtError, ReadError, StartError, UnknownCause};
pub use id::{CallId, CallIdError, SessionId};
pub use machine::{Applied, Checkpoint, Machine, Stopped};
pub use message::Message;
pub use read_at::At;
pub use replicated::Replicated;
pub use settings::Settings;
pub use snapshot::RestoreError;
pub use spindle_object_derive::commands;
pub use state_machine::{
    Call, CommandSpec, ExecuteError, Query, QuerySpec, StateMachine, decode_arguments, encode_reply, fingerprint,
};
pub use watch::{Changed, Watch};

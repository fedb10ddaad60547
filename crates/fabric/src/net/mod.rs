//! How processes of a group on different hosts reach each other. Between hosts there is no directory: each process has an
//! [`Endpoint`], one [`Address`](spindle_core::control::Address) to be reached at, and everything comes over connections to it. Start reading there.
//!
//! A connection is for one [`Purpose`](spindle_core::control::Purpose), which is said at its start (`hello.rs`) and answered before it is used (`attempt.rs` is who
//! dials, `stranger.rs` who is dialled): letters (`post.rs` and `letters.rs`), nothing but its end, which tells of a death (`keeper.rs`), or a stream that is handed to who asked for it. Connections for letters carry
//! only those of who dialled: so two who dial each other at once have two, and nothing has to be decided between them. `switch.rs` is
//! the thread that moves it all.
//!
//! What holds:
//! - *Nothing waits.* Callers leave what they want with the thread, which waits for what the kernel has to tell and for
//!   deadlines; names are looked up elsewhere. Every queue has a maximum (`limits.rs`).
//! - *Letters to one address arrive in order, once or not at all.* What was lost shows as [`Event::Lost`] or [`Event::Failed`], a
//!   letter that was on its way at a loss only as the former.
//! - *Bytes cost only their sender.* Who says no hello, a wrong one, or none in time is closed and counted, and so are letters that are
//!   none or name another sender.
//! - *A silent connection delays no member.* Every connection is accepted, and peers have half-open slots of their own (`crowd.rs`).
//!
//! This is not membership, and no proof of anything: that a connection ends or can't be made is a reason to suspect.
mod attempt;
mod crowd;
mod endpoint;
mod error;
mod exchange;
mod hello;
mod keeper;
mod letters;
mod limits;
mod listen;
mod poller;
mod post;
mod refusals;
mod resolve;
mod stranger;
mod switch;
#[cfg(test)]
pub(crate) mod test_authority;
#[cfg(test)]
mod tests;
mod tls;

pub use endpoint::{Dropped, Endpoint, Event, Options, Security};
pub use error::NetError;
pub use hello::Declined;
pub use resolve::Names;
pub use tls::{Certificate, Identity, Rule, TlsError, TlsStream, TlsWarning};

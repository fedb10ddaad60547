//! Sockets of a group: everything that processes exchange without sharing memory.
//!
//! Start with [`rendezvous`], the rendezvous of processes on one host over Unix sockets, and [`net`], the
//! connections between hosts, with TLS. A [`Stream`] is a connection that is handed over for data.
//!
//! The crate moves bytes and descriptors and holds no policy: which process is admitted, suspected
//! or asked is decided in `spindle-core`. Its `unsafe` code is system calls that `rustix` lacks,
//! and the memory that a [`Space`] receives into.
//!
//! Invariants:
//! - *Nothing waits without a bound*, and every queue has a maximum.
//! - *A path proves nothing.* A broken or missing connection is a reason to suspect, never a proof
//!   of death. Only the kernel's report on a process is final.
#[cfg(not(target_os = "linux"))]
compile_error!("Spindle runs on Linux only: it uses epoll, pidfd and descriptors sent over Unix sockets");

pub mod fork;
pub mod net;
pub mod rendezvous;
pub mod stream;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod waiting;

pub use stream::{Certificate, Connection, SocketOptions, SocketStream, Space, Stream, limit_silence};

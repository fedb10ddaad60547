//! This machine's limits, as two bare processes meet them: what any protocol over shared memory is measured against.
//!
//! [`raw_ring`] is the throughput of a ring without a protocol, [`hop`] the time for one cache line to reach the other
//! core, [`futex_wake`] the time to get a sleeping process running; [`stream`] and [`stream_round_trip`] are TCP's over loopback;
//! [`memcpy`] and [`clock`] need one thread only.
//! [`fill`] and [`check`] are the work done per byte, public so that a benchmark of the product does exactly the same.
//!
//! Nothing here uses the fabric: each probe maps its own memory, forks a child that only touches that memory (or its end of a
//! stream) and exits, and has killed and reaped it when the call returns, whatever it returns. Parent and child are pinned to two
//! cores where the process may use two. Every wait has a bound.
//!
//! The figures are of one moment. On a virtual machine of two cores, hop and ring have been seen to change by a factor
//! of five from one second to the next, together, as if the host had moved a core. So a ratio needs both sides measured
//! in turns, in slices well under a second, with a [`hop`] beside them that tells which machine it was.

mod cores;
mod error;
mod hop;
mod local;
mod pair;
mod pattern;
mod percentiles;
mod raw_ring;
mod stream;
mod wake;

pub use cores::Cores;
pub use error::{ChildEnd, ProbeError};
pub use hop::{Hop, hop};
pub use local::{Clock, Memcpy, clock, memcpy, memcpy_fresh};
pub use pattern::{check, expected, fill, seed};
pub use percentiles::Percentiles;
pub use raw_ring::{RawRing, raw_ring};
pub use stream::{StreamRate, StreamRoundTrip, stream, stream_round_trip};
pub use wake::{FutexWake, futex_wake};

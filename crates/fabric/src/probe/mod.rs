//! This machine's limits, as measured by two bare processes: the reference for any protocol over
//! shared memory.
//!
//! [`raw_ring`] is the throughput of a ring without a protocol, [`hop`] the time for one cache line
//! to reach the other core, [`futex_wake`] the time to get a sleeping process running. [`stream`]
//! and [`stream_round_trip`] are those of TCP over loopback. [`memcpy`] and [`clock`] need one
//! thread only. [`fill`] and [`check`] are the work done per byte, public so that a benchmark of
//! the product does exactly the same.
//!
//! Nothing here uses the fabric. Each probe maps its own memory and forks a child that only touches
//! that memory (or its end of a stream) and exits. When the call returns, with whatever result, the
//! child has been killed and reaped. If the process may use two cores, parent and child are pinned
//! to two cores. Every wait has a bound.
//!
//! The figures are of one moment. On a virtual machine of two cores, hop and ring have been seen to
//! change by a factor of five from one second to the next, together, as if the host had moved a
//! core. So for a ratio, measure both sides in turns, in slices well under a second, with a [`hop`]
//! beside them that shows the state of the machine.

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
pub use hop::{HopCost, hop};
pub use local::{ClockCost, MemcpyCost, clock, memcpy, memcpy_fresh};
pub use pattern::{check, expected, fill, seed};
pub use percentiles::Percentiles;
pub use raw_ring::{RawRingRate, raw_ring};
pub use stream::{StreamRate, StreamRoundTrip, stream, stream_round_trip};
pub use wake::{FutexWake, futex_wake};

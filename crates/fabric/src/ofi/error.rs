//! Why libfabric could not be used, or a peer not be reached.
use super::hello::Mismatch;
use crate::region::RegionError;
use spindle_core::Rank;
use std::fmt;
use std::time::Duration;

/// Why members could not be connected through libfabric.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OfiError {
    /// There is no `libfabric.so.1`.
    #[error(
        "libfabric could not be loaded ({reason}): install it (Debian: apt-get install libfabric1), or use another fabric"
    )]
    NoLibrary {
        /// What the loader said.
        reason: String,
    },
    /// The library lacks what is needed of it.
    #[error("libfabric {major}.{minor} is too old or lacks {symbol}: 1.9 or later is needed")]
    TooOld {
        /// Its version.
        major: u32,
        /// Its version.
        minor: u32,
        /// What was missed.
        symbol: &'static str,
    },
    /// No provider is like what was asked for.
    #[error("libfabric has no provider {asked} here; it has {there}")]
    NoProvider {
        /// Provider, domain and address that were asked for.
        asked: String,
        /// Those that are there.
        there: String,
    },
    /// The provider is there and can't do what is needed.
    #[error(
        "provider {provider} can't carry a group: it has no connected endpoints with one-sided writes in order (FI_EP_MSG, FI_RMA, \
         FI_ORDER_RMA_WAW, FI_ORDER_SAW), or is known not to work; those that can are {usable}"
    )]
    Unsupported {
        /// The provider.
        provider: String,
        /// Those that can.
        usable: String,
    },
    /// The provider is there and does not know which address to use.
    #[error("provider {provider} has to be told the address of this side: that of the network card's interface")]
    NoAddress {
        /// The provider.
        provider: String,
    },
    /// A limit is below what is needed.
    #[error("{what} of provider {provider} has room for {allowed}, and {needed} is needed")]
    Limit {
        /// The provider.
        provider: String,
        /// What is limited.
        what: &'static str,
        /// Its limit.
        allowed: u64,
        /// What is needed.
        needed: u64,
    },
    /// The provider refuses a queue that is long enough for the connections of one view.
    #[error(
        "provider {provider} refuses a queue of {entries} completions: {source}; use another, or make the group smaller"
    )]
    Queue {
        /// The provider.
        provider: String,
        /// The entries that are needed.
        entries: u64,
        /// What the library said.
        source: Failure,
    },
    /// Memory could not be registered.
    #[error(
        "{bytes} bytes could not be registered for {what}: {source}; if memory that may be locked is short, raise `ulimit -l` \
         (LimitMEMLOCK), or lower window or message_bytes_max"
    )]
    Registration {
        /// What the memory is.
        what: String,
        /// Its size.
        bytes: u64,
        /// What the library said.
        source: Failure,
    },
    /// There is no memory for a row.
    #[error("no memory for the row of member {rank}: {source}")]
    Region {
        /// Whose row.
        rank: Rank,
        /// Why.
        source: RegionError,
    },
    /// An address is none of this provider's.
    #[error("{address} is no address of the kind that provider {provider} uses")]
    Address {
        /// The address.
        address: String,
        /// The provider.
        provider: String,
    },
    /// A peer refused the connection, or nobody listens there.
    #[error("member {rank} can't be connected to at {address}: {source}; it may have ended, or be in another view")]
    Refused {
        /// Who.
        rank: Rank,
        /// Where.
        address: String,
        /// What the library said.
        source: Failure,
    },
    /// Who answered is not who was called.
    #[error("whoever answered for member {rank} can't be it: {source}")]
    Stranger {
        /// Who was called.
        rank: Rank,
        /// Why not.
        source: Mismatch,
    },
    /// Some peers were not connected in time.
    #[error("no connection to members {missing:?} within {waited:?}: they may have ended, or a firewall is between")]
    TimedOut {
        /// The ranks that are missing.
        missing: Vec<u32>,
        /// The bound.
        waited: Duration,
    },
    /// Another call failed.
    #[error("provider {provider}: {source}")]
    Call {
        /// The provider.
        provider: String,
        /// What failed.
        source: Failure,
    },
    /// A system call failed.
    #[error("{call} failed: {source}; raise the limit of open files if it was that (ulimit -n)")]
    Os {
        /// The call.
        call: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A call of libfabric that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The call.
    pub call: &'static str,
    /// The error number: that of the system, or one of libfabric's own above 255.
    pub code: i32,
}

impl Failure {
    /// As an error of the system.
    pub(super) fn to_io(self) -> std::io::Error {
        if self.code < OWN_CODES {
            return std::io::Error::from_raw_os_error(self.code);
        }
        std::io::Error::other(self.to_string())
    }
}

/// Error numbers from here on are libfabric's.
const OWN_CODES: i32 = 256;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { call, code } = *self;
        if code < OWN_CODES {
            return write!(f, "{call} failed: {}", std::io::Error::from_raw_os_error(code));
        }
        let what = match code {
            257 => "the buffer is too small",
            258 => "not possible in this state",
            262 => "not possible in this domain",
            263 | 288 => "no queue",
            265 => "the message was cut off",
            266 => "the key is taken or unknown",
            268 => "a queue has overrun",
            269 => "the peer was not ready",
            _ => return write!(f, "{call} failed with libfabric's error {code}"),
        };
        write!(f, "{call} failed: {what} (libfabric's error {code})")
    }
}

impl std::error::Error for Failure {}

//! The reasons why libfabric could not be used, or a peer not be reached.
use crate::hello::HelloMismatch;
use spindle_core::Rank;
use spindle_fabric::{MeshError, RegionError};
use std::fmt;
use std::time::Duration;

/// The reason why members could not be connected through libfabric.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OfiError {
    /// No `libfabric.so.1` is installed.
    #[error(
        "libfabric could not be loaded ({reason}): install it (Debian: apt-get install libfabric1), or use another fabric; \
             a static (musl) binary can't load it"
    )]
    NoLibrary {
        /// Error of the loader.
        reason: String,
    },
    /// The library lacks a required part.
    #[error("libfabric {major}.{minor} is too old or lacks {symbol}: 1.9 or later is needed")]
    TooOld {
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
        /// The missing symbol.
        symbol: &'static str,
    },
    /// No provider matches the request.
    #[error("libfabric has no provider {asked} here; it has {there}")]
    NoProvider {
        /// Provider, domain and address that were requested.
        asked: String,
        /// The available ones.
        there: String,
    },
    /// The provider exists and lacks a required capability.
    #[error(
        "provider {provider} can't carry a group: it has no connected endpoints with one-sided writes in order (FI_EP_MSG, FI_RMA, \
         FI_ORDER_RMA_WAW, FI_ORDER_SAW), or is known not to work; those that can are {usable}"
    )]
    Unsupported {
        /// The provider.
        provider: String,
        /// The providers with all capabilities.
        usable: String,
    },
    /// The provider exists and can't determine which address to use.
    #[error("provider {provider} has to be told the address of this side: that of the network card's interface")]
    NoAddress {
        /// The provider.
        provider: String,
    },
    /// A limit is below the required value.
    #[error("{what} of provider {provider} has room for {allowed}, and {needed} is needed")]
    Limit {
        /// The provider.
        provider: String,
        /// The limited resource.
        what: &'static str,
        /// Its limit.
        allowed: u64,
        /// The required value.
        needed: u64,
    },
    /// The provider refuses a queue that is long enough for the connections of one view.
    #[error(
        "provider {provider} refuses a queue of {entries} completions: {source}; use another, or make the group smaller"
    )]
    Queue {
        /// The provider.
        provider: String,
        /// The required number of entries.
        entries: u64,
        /// Error of the library.
        source: CallFailure,
    },
    /// Memory could not be registered.
    #[error(
        "{bytes} bytes could not be registered for {what}: {source}; if memory that may be locked is short, raise `ulimit -l` \
         (LimitMEMLOCK), or lower window or message_bytes_max"
    )]
    Registration {
        /// The use of the memory.
        what: String,
        /// Its size.
        bytes: u64,
        /// Error of the library.
        source: CallFailure,
    },
    /// There is no memory for a row.
    #[error("no memory for the row of member {rank}: {source}")]
    Region {
        /// Rank of the row's owner.
        rank: Rank,
        /// The cause.
        source: RegionError,
    },
    /// An address does not have this provider's form.
    #[error("{address} is no address of the kind that provider {provider} uses")]
    Address {
        /// The address.
        address: String,
        /// The provider.
        provider: String,
    },
    /// A peer refused the connection, or no process listens there.
    #[error("member {rank} can't be connected to at {address}: {source}; it may have ended, or be in another view")]
    Refused {
        /// Rank of the peer.
        rank: Rank,
        /// Its address.
        address: String,
        /// Error of the library.
        source: CallFailure,
    },
    /// The process that answered is not the member that was called.
    #[error("whoever answered for member {rank} can't be it: {source}")]
    Stranger {
        /// Rank of the member that was called.
        rank: Rank,
        /// The cause.
        source: HelloMismatch,
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
        /// The failed call.
        source: CallFailure,
    },
    /// A system call failed.
    #[error("{call} failed: {source}; raise the limit of open files if it was that (ulimit -n)")]
    Os {
        /// The call.
        call: &'static str,
        /// Error of the system.
        source: std::io::Error,
    },
}

impl From<OfiError> for MeshError {
    fn from(error: OfiError) -> MeshError {
        MeshError::Connections(Box::new(error))
    }
}

/// A call of libfabric that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallFailure {
    /// The call.
    pub call: &'static str,
    /// The error number: that of the system, or one of libfabric's own above 255.
    pub code: i32,
}

/// Converts the result of a call: a count, or an error number below zero.
pub(crate) fn outcome(call: &'static str, returned: impl Into<i64>) -> Result<u64, CallFailure> {
    let returned = returned.into();
    u64::try_from(returned).map_err(|_| CallFailure { call, code: -returned as i32 })
}

impl CallFailure {
    /// Converts it to an error of the system.
    pub(crate) fn to_io(self) -> std::io::Error {
        if self.code < OWN_CODES {
            return std::io::Error::from_raw_os_error(self.code);
        }
        std::io::Error::other(self.to_string())
    }
}

/// Error numbers from here on are libfabric's.
const OWN_CODES: i32 = 256;

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CallFailure { call, code } = *self;
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

impl std::error::Error for CallFailure {}

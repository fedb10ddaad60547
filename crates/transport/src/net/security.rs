//! The protection of connections: what carries them, and how its faults are told from others.
#[cfg(feature = "tls")]
use super::tls::{self, Identity};
use std::io;

/// The protection of connections.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Security {
    /// No protection. All connections therefore stay on this host: over its loopback addresses or
    /// Unix sockets.
    #[default]
    Local,
    /// No protection. Any process that can connect, or reach the network between, can read and
    /// forge everything.
    Insecure,
    /// TLS, with every process that has a certificate of the same authority.
    #[cfg(feature = "tls")]
    Tls(Identity),
}

/// Returns whether a connection failed because the two sides could not agree on TLS.
pub(super) fn is_tls_fault(error: &io::Error) -> bool {
    #[cfg(feature = "tls")]
    return tls::is_fault(error);
    #[cfg(not(feature = "tls"))]
    {
        let _ = error;
        false
    }
}

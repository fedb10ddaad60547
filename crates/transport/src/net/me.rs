//! This process, as all its connections state it: its card, its group, and its security.
use super::security::Security;
#[cfg(feature = "tls")]
use super::tls::TlsStream;
use crate::rendezvous::GroupName;
use crate::stream::{Connection, SocketOptions, SocketStream, Stream};
use spindle_core::MemberId;
use spindle_core::control::Card;
use std::io;
use std::os::fd::OwnedFd;

/// The data that every connection of an endpoint states about it.
#[derive(Debug)]
pub(super) struct LocalEndpoint {
    pub(super) group: GroupName,
    pub(super) card: Card,
    pub(super) process: u128,
    pub(super) security: Security,
    pub(super) socket: SocketOptions,
}

impl LocalEndpoint {
    /// Returns whether the peer may have this id.
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "only TLS knows ids"))]
    pub(super) fn admits(&self, id: MemberId, stream: &dyn Stream) -> bool {
        match &self.security {
            Security::Local | Security::Insecure => true,
            #[cfg(feature = "tls")]
            Security::Tls(identity) => identity.admits(id, stream.peer()),
        }
    }

    /// Wraps a connected socket in the stream that this process speaks over.
    #[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "only TLS knows who dialled"))]
    pub(super) fn wrap(&self, socket: OwnedFd, dialled: bool) -> io::Result<Connection> {
        let stream = SocketStream::new(socket, &self.socket)?;
        Ok(match &self.security {
            Security::Local | Security::Insecure => Box::new(stream),
            #[cfg(feature = "tls")]
            Security::Tls(identity) => Box::new(TlsStream::new(stream, identity, dialled)?),
        })
    }
}

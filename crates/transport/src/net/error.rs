//! The reasons why a process can't be reached from other hosts, or can't reach them.
use super::hello::Declined;
use super::limits::QUEUE_CONTROL_MESSAGES_MAX;
use spindle_core::MemberId;
use spindle_core::control::Address;
use std::io;
use std::time::Duration;

/// An error of the connections between hosts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// There is no address to listen at.
    #[error("no address to listen at; name one, such as 10.0.0.7:0 with an address of this host")]
    Nowhere,
    /// A wildcard address, or one that is unknown, can't be advertised to others.
    #[error("others can't reach this process at {address}; name the address to advertise, such as 10.0.0.7:0")]
    Advertise {
        /// The address that would be advertised.
        address: Address,
    },
    /// The address leads off this host, and there is no TLS.
    #[error(
        "{address} leads off this host, where whoever can connect could read and forge everything; give a certificate, a key and \
         the group's authority (TLS), or say that the network is trusted (insecure)"
    )]
    Insecure {
        /// The address.
        address: Address,
    },
    /// The process can't listen at the address.
    #[error("can't listen at {address}: {source}; name an address of this host and a free port, or port 0")]
    Listen {
        /// The address.
        address: Address,
        /// The system's reason.
        source: io::Error,
    },
    /// The address's name can't be resolved.
    #[error("can't resolve {address}: {source}")]
    Resolve {
        /// The address.
        address: Address,
        /// The resolver's reason.
        source: io::Error,
    },
    /// No connection can be made.
    #[error("can't connect to {address}: {source}; see that its process runs and that no firewall is between")]
    Connect {
        /// The address.
        address: Address,
        /// The system's reason.
        source: io::Error,
    },
    /// The peer took too long.
    #[error("{address} did not {what} within {after:?}; see that its process runs and that no firewall is between")]
    TimedOut {
        /// The address.
        address: Address,
        /// The action that was expected of the peer.
        what: &'static str,
        /// How long it had.
        after: Duration,
    },
    /// The process that answers is no Spindle process, or is one that is ending.
    #[error("the process at {address} does not speak Spindle's protocol: {what}; check the address")]
    Incoming {
        /// The address.
        address: Address,
        /// The behaviour of the process that answers.
        what: &'static str,
    },
    /// TLS failed: this side or the other rejected it.
    #[error(
        "no TLS with {address}: {why}; see that both have certificates of the same authority and within their dates"
    )]
    Tls {
        /// The address.
        address: Address,
        /// The reason.
        why: String,
    },
    /// The certificate of this process is not valid for its id.
    #[error(
        "the certificate of this process does not name {name}, as that of id {id} must; make one with that DNS name (SAN), or set          another id", name = super::names::name_of(*id)
    )]
    OwnIdentity {
        /// The id of this process.
        id: MemberId,
    },
    /// The certificate of a peer is not valid for the id that the peer states.
    #[error(
        "the process at {address} states that it is member {id}, and its certificate does not name {name}; give that member a \
         certificate with that DNS name (SAN)",
        name = super::names::name_of(*id)
    )]
    Identity {
        /// The address.
        address: Address,
        /// The id that the peer states.
        id: MemberId,
    },
    /// The peer refused the connection.
    #[error("{address} refused: {why}")]
    Declined {
        /// The address.
        address: Address,
        /// Its reason.
        why: Declined,
    },
    /// The address is the caller's own.
    #[error("{address} is this process itself")]
    Myself {
        /// The address.
        address: Address,
    },
    /// Another process has the address.
    #[error("at {address} is member {found}, and not member {wanted}")]
    Elsewhere {
        /// The address.
        address: Address,
        /// The member that was expected there.
        wanted: MemberId,
        /// The member that is there.
        found: MemberId,
    },
    /// Too many control messages wait for one address; those that were sent before stay.
    #[error("{messages} control messages, or too large ones, wait for {address} (at most {max}); what was sent last is dropped", max = QUEUE_CONTROL_MESSAGES_MAX)]
    QueueFull {
        /// The address.
        address: Address,
        /// How many control messages wait.
        messages: u64,
    },
    /// The connection failed before it could be used.
    #[error("the connection to {address} failed: {source}")]
    Broken {
        /// The address.
        address: Address,
        /// The system's reason.
        source: io::Error,
    },
    /// The system refused something.
    #[error("can't {doing}: {source}; if it is a limit, raise it (ulimit -n)")]
    Os {
        /// The action that was refused.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl NetError {
    /// Returns the cause, without the address and without a remedy, for callers that list several
    /// addresses.
    pub fn reason(&self) -> String {
        match self {
            Self::Insecure { .. } => {
                "it leads off this host, and neither TLS nor an insecure network is configured".into()
            }
            Self::Resolve { source, .. } => format!("can't be resolved: {source}"),
            Self::Connect { source, .. } => source.to_string(),
            Self::TimedOut { what, after, .. } => format!("did not {what} within {after:?}"),
            Self::Incoming { what, .. } => format!("does not speak as Spindle does: {what}"),
            Self::Tls { why, .. } => format!("no TLS: {why}"),
            Self::Declined { why, .. } => format!("refused: {why}"),
            Self::Identity { id, .. } => format!("its certificate is not that of member {id}"),
            Self::Broken { source, .. } => format!("the connection failed: {source}"),
            other => other.to_string(),
        }
    }

    /// Returns whether it is useless to try again soon.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Declined { why, .. } => !matches!(why, Declined::TooMany(_)),
            Self::Insecure { .. }
            | Self::Tls { .. }
            | Self::Identity { .. }
            | Self::Myself { .. }
            | Self::Elsewhere { .. } => true,
            _ => false,
        }
    }
}

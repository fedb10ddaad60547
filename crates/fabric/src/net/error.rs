//! Why a process can't be reached from other hosts, or can't reach them.
use super::hello::Declined;
use super::limits::QUEUE_LETTERS_MAX;
use spindle_core::MemberId;
use spindle_core::control::Address;
use std::io;
use std::time::Duration;

/// What went wrong between hosts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// There is nowhere to listen.
    #[error("no address to listen at; name one, such as 10.0.0.7:0 with an address of this host")]
    Nowhere,
    /// An address that means every address of a host, or none that is known, can't be told to others.
    #[error("others can't reach this process at {address}; name the address to advertise, such as 10.0.0.7:0")]
    Advertise {
        /// What would be told.
        address: Address,
    },
    /// Without TLS, and not only on this host.
    #[error(
        "{address} leads off this host, where whoever can connect could read and forge everything; give a certificate, a key and \
         the group's authority (TLS), or say that the network is trusted (insecure)"
    )]
    Insecure {
        /// Where.
        address: Address,
    },
    /// It can't listen there.
    #[error("can't listen at {address}: {source}; name an address of this host and a free port, or port 0")]
    Listen {
        /// Where.
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
    /// No connection comes about.
    #[error("can't connect to {address}: {source}; see that its process runs and that no firewall is between")]
    Connect {
        /// The address.
        address: Address,
        /// The system's reason.
        source: io::Error,
    },
    /// It took too long.
    #[error("{address} did not {what} within {after:?}; see that its process runs and that no firewall is between")]
    TimedOut {
        /// The address.
        address: Address,
        /// What it was to do.
        what: &'static str,
        /// How long it had.
        after: Duration,
    },
    /// Who answers is no Spindle process, or one that ends just now.
    #[error("who answers at {address} does not speak as Spindle does: {what}; see that the address is right")]
    Stranger {
        /// The address.
        address: Address,
        /// What it did.
        what: &'static str,
    },
    /// TLS came to nothing, by this side's judgement or the other's.
    #[error(
        "no TLS with {address}: {why}; see that both have certificates of the same authority and within their dates"
    )]
    Tls {
        /// The address.
        address: Address,
        /// What is wrong.
        why: String,
    },
    /// The certificate of this process is not good for its id.
    #[error(
        "the certificate of this process does not name {name}, as that of id {id} must; make one with that DNS name (SAN), or set          another id", name = super::tls::name_of(*id)
    )]
    OwnIdentity {
        /// The id of this process.
        id: MemberId,
    },
    /// The certificate of a peer is not good for the id that it says.
    #[error(
        "who answers at {address} says that it is member {id}, and its certificate does not name {name}; give that member a          certificate with that DNS name (SAN)", name = super::tls::name_of(*id)
    )]
    Identity {
        /// The address.
        address: Address,
        /// The id that it says.
        id: MemberId,
    },
    /// It refused.
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
    /// Somebody else has the address.
    #[error("at {address} is member {found}, and not member {wanted}")]
    Elsewhere {
        /// The address.
        address: Address,
        /// Who was to be there.
        wanted: MemberId,
        /// Who is.
        found: MemberId,
    },
    /// Too much waits for one address; what was sent before stays.
    #[error("{letters} letters, or too large ones, wait for {address} (at most {max}); what was sent last is dropped", max = QUEUE_LETTERS_MAX)]
    QueueFull {
        /// The address.
        address: Address,
        /// How many wait.
        letters: u64,
    },
    /// The connection failed before it was of use.
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
        /// What was refused.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl NetError {
    /// What is wrong, without the address and without a remedy: for who lists several addresses.
    pub fn reason(&self) -> String {
        match self {
            Self::Insecure { .. } => {
                "it leads off this host, and there is neither TLS nor word of a trusted network".into()
            }
            Self::Resolve { source, .. } => format!("can't be resolved: {source}"),
            Self::Connect { source, .. } => source.to_string(),
            Self::TimedOut { what, after, .. } => format!("did not {what} within {after:?}"),
            Self::Stranger { what, .. } => format!("does not speak as Spindle does: {what}"),
            Self::Tls { why, .. } => format!("no TLS: {why}"),
            Self::Declined { why, .. } => format!("refused: {why}"),
            Self::Identity { id, .. } => format!("its certificate is not that of member {id}"),
            Self::Broken { source, .. } => format!("the connection failed: {source}"),
            other => other.to_string(),
        }
    }

    /// Whether trying again soon is of no use.
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

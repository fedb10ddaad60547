//! The connections of a member to processes on other hosts.
//!
//! Processes with the same [host key](host_key) reach each other through the rendezvous of the
//! runtime directory and share memory. Every other process has a
//! [`Card`](spindle_core::control::Card) in the [`Book`], gets control messages over the network,
//! and has a stream or a [connection of libfabric](crate::joining) for each view. Everything else
//! about a group is the same.
use crate::config::{Network, Transport};
use crate::error::JoinError;
use spindle_core::control::{self, Address, Book, DialError, Purpose, Seeds};
use spindle_core::{MemberId, ViewId};
use spindle_fabric_ofi::OfiPort;
use spindle_transport::SocketOptions;
use spindle_transport::net::{Declined, EndpointOptions, NetEndpoint, NetError, NetEvent, Security};
use spindle_transport::rendezvous::{GroupName, RuntimeDir};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// The initial capacity for connections through libfabric.
const LINKS: u32 = 64;
/// The pause after a stream for a bulk group has failed.
const BULK_RETRY: Duration = Duration::from_millis(100);

/// The connections of this process to processes of other hosts. The [`Book`] has the addresses.
#[derive(Debug)]
pub(crate) struct Net {
    endpoint: NetEndpoint,
    /// The streams that are being dialled for bulk groups, by view and number.
    bulk_dialling: BTreeMap<(ViewId, u64, MemberId), Dialled>,
    /// The port at which peers call this process through libfabric, if rows use it.
    port: Option<OfiPort>,
}

#[derive(Debug)]
struct Dialled {
    address: Address,
    /// When the last connection attempt failed, if it has.
    failed: Option<Instant>,
}

impl Net {
    pub(crate) fn open(
        network: &Network,
        group: GroupName,
        dir: &RuntimeDir,
        me: MemberId,
        has_row: bool,
        tell: impl Fn() + Send + Sync + 'static,
    ) -> Result<(Net, Book), JoinError> {
        if let Some((count, why)) =
            network.seed_count.and_then(|count| Some((count, control::mistake(&network.seeds, count)?)))
        {
            return Err(JoinError::SeedCount { count, why });
        }
        // A process that only observes always uses streams.
        let port = if has_row { open_port(network)? } else { None };
        let host = host_key(dir).map_err(JoinError::Host)?;
        let silence_ms = u32::try_from(network.silence.as_millis()).unwrap_or(u32::MAX);
        let options = EndpointOptions {
            group,
            me,
            host,
            listen: network.listen.clone(),
            advertise: network.advertise.clone(),
            rack: network.rack.clone(),
            security: network.security.clone(),
            socket: SocketOptions { silence_ms: Some(silence_ms), ..SocketOptions::default() },
            names: network.names.clone(),
        };
        let endpoint = NetEndpoint::open(options, tell)?;
        let seeds = Seeds::new(network.seeds.clone(), network.seed_count, endpoint.card().address.clone());
        let book = Book::new(endpoint.card().clone(), seeds, port.is_none());
        Ok((Net { endpoint, bulk_dialling: BTreeMap::new(), port }, book))
    }

    pub(crate) fn endpoint(&self) -> &NetEndpoint {
        &self.endpoint
    }

    /// Returns the port at which peers call this process through libfabric; `None` if it needs only
    /// streams.
    pub(crate) fn port(&self) -> Option<&OfiPort> {
        self.port.as_ref()
    }

    /// Dials the stream to `id`, which is at `address`, for a bulk group of a view, unless it is
    /// being dialled. After a failure it waits first.
    pub(crate) fn dial_bulk(&mut self, address: Address, id: MemberId, incarnation: u128, view: ViewId, number: u64) {
        let key = (view, number, id);
        let is_due = |dialled: &Dialled| dialled.failed.is_some_and(|failed| failed.elapsed() >= BULK_RETRY);
        if self.bulk_dialling.get(&key).is_none_or(is_due) {
            self.endpoint.dial(&address, Some(id), Purpose::Bulk { incarnation, view, number });
            self.bulk_dialling.insert(key, Dialled { address, failed: None });
        }
    }

    /// Returns the next event.
    pub(crate) fn next(&mut self) -> Option<NetEvent> {
        let event = self.endpoint.receive()?;
        if let NetEvent::Failed { address, purpose: Purpose::Bulk { view, number, .. }, .. } = &event {
            let is_it = |(key, dialled): &(&(ViewId, u64, MemberId), &mut Dialled)| {
                (key.0, key.1) == (*view, *number) && dialled.address == *address
            };
            let failed = self.bulk_dialling.iter_mut().filter(is_it);
            failed.for_each(|(_, dialled)| dialled.failed = Some(Instant::now()));
        }
        Some(event)
    }

    /// Removes the data of views before this one.
    pub(crate) fn begin(&mut self, view: ViewId) {
        self.bulk_dialling.retain(|(of, ..), _| *of >= view);
    }
}

/// Opens the port for rows through libfabric, if they use it.
///
/// # Errors
/// The port can't be opened with this configuration or on this machine.
fn open_port(network: &Network) -> Result<Option<OfiPort>, JoinError> {
    let Transport::Ofi(options) = &network.transport else { return Ok(None) };
    #[cfg(feature = "tls")]
    if let Security::Tls(_) = network.security {
        return Err(JoinError::Unencrypted);
    }
    let mut options = options.clone();
    options.address = options.address.or_else(|| network.listen.iter().chain(&network.advertise).find_map(Address::ip));
    let port = OfiPort::open(&options, LINKS)?;
    let is_local = port.address().socket_address().is_some_and(|address| address.ip().is_loopback());
    if matches!(network.security, Security::Local) && !is_local {
        return Err(JoinError::Exposed { address: port.address().to_string() });
    }
    Ok(Some(port))
}

/// Returns what a failed connection attempt shows about the process at the other end.
pub(crate) fn dial_error(why: &NetError) -> DialError {
    match why {
        NetError::Myself { .. } => DialError::Myself,
        NetError::Elsewhere { wanted, .. } => DialError::Elsewhere { wanted: *wanted },
        NetError::QueueFull { .. } => DialError::Full,
        NetError::Declined { why: Declined::IdConflict(_), .. } => DialError::IdConflict(why.reason()),
        NetError::Connect { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused => {
            DialError::Refused(why.reason())
        }
        why => DialError::Other(why.reason()),
    }
}

/// Returns a number that processes share exactly if they use the same runtime directory under the
/// same kernel. The number survives the removal and re-creation of the directory: the new one has
/// the same path on the same file system.
fn host_key(dir: &RuntimeDir) -> io::Result<u128> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let place = std::fs::metadata(dir.path())?;
    let text = format!("{} {} {}", boot.trim(), place.dev(), dir.path().display());
    // FNV-1a.
    let mix = |hash: u128, byte| (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    Ok(text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, mix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_a_host_of_its_own() {
        let path = std::env::temp_dir().join(format!("spindle-host-key-{}", std::process::id()));
        let dirs = ["a", "b"].map(|name| RuntimeDir::new(path.join(name)).unwrap());
        let [one, other] = dirs.each_ref().map(|dir| host_key(dir).unwrap());
        assert_eq!(one, host_key(&dirs[0]).unwrap());
        assert_ne!(one, other);
        std::fs::remove_dir(dirs[0].path()).unwrap();
        assert!(dirs[0].renew().unwrap());
        assert_eq!(one, host_key(&dirs[0]).unwrap(), "those who had it before are on this host");
        std::fs::remove_dir_all(path).unwrap();
    }
}

//! Connections that have not said hello, and which of them is closed when there are too many.
//!
//! An incoming connection is always accepted, so a silent one never delays a member that dials.
//! Three kinds have slots of their own: connections with a verified TLS certificate, those from an
//! address to or from which a control connection is open, and all others. If a kind has no free
//! slot, a connection of the source with the most of them is closed: the oldest one that has sent
//! nothing, or else the oldest. A handshake takes a round trip or two, so a slot is lost only to as
//! many newer connections of the same kind within that time.
//!
//! No I/O and no clock.
use super::limits::{HALF_OPEN_MAX, SOURCE_HALF_OPEN_MAX};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The origin of connections, as far as they are counted together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ConnectionOrigin {
    /// An IPv4 address.
    V4([u8; 4]),
    /// An IPv6 network: the first 64 bits, because a host has all of the rest.
    V6([u8; 8]),
    /// This host, through a Unix socket that only its owner can open.
    Unix,
}

impl fmt::Display for ConnectionOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionOrigin::V4(ip) => Ipv4Addr::from(*ip).fmt(f),
            ConnectionOrigin::V6(network) => {
                let mut ip = [0; 16];
                ip[..8].copy_from_slice(network);
                write!(f, "{}/64", Ipv6Addr::from(ip))
            }
            ConnectionOrigin::Unix => f.write_str("this host"),
        }
    }
}

impl From<SocketAddr> for ConnectionOrigin {
    fn from(address: SocketAddr) -> ConnectionOrigin {
        match address.ip().to_canonical() {
            IpAddr::V4(ip) => ConnectionOrigin::V4(ip.octets()),
            IpAddr::V6(ip) => ConnectionOrigin::V6(*ip.octets().first_chunk().expect("it has 16 bytes")),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OriginProof {
    Unknown,
    /// From the address of a peer.
    Known,
    /// With a certificate of the group's authority.
    Proven,
}

#[derive(Debug)]
struct HalfOpenEntry {
    source: ConnectionOrigin,
    kind: OriginProof,
    /// Whether it has sent anything.
    heard: bool,
}

/// The half-open connections, by increasing numbers.
#[derive(Debug, Default)]
pub(super) struct HalfOpen(BTreeMap<u64, HalfOpenEntry>);

impl HalfOpen {
    /// Records an accepted connection, from the address of a peer or not. Returns the one to be
    /// closed for it if there is no slot.
    pub(super) fn admit(&mut self, id: u64, source: ConnectionOrigin, is_known: bool) -> Option<u64> {
        let kind = if is_known || source == ConnectionOrigin::Unix { OriginProof::Known } else { OriginProof::Unknown };
        let victim = self.victim(kind, source);
        self.0.insert(id, HalfOpenEntry { source, kind, heard: false });
        victim.inspect(|id| self.remove(*id))
    }

    /// Records that the connection has sent something.
    pub(super) fn heard(&mut self, id: u64) {
        if let Some(entry) = self.0.get_mut(&id) {
            entry.heard = true;
        }
    }

    /// Records that its certificate is verified. Returns the connection to be closed for it if
    /// there is no slot.
    pub(super) fn proven(&mut self, id: u64) -> Option<u64> {
        let entry = self.0.get(&id).filter(|entry| entry.kind != OriginProof::Proven)?;
        let victim = self.victim(OriginProof::Proven, entry.source);
        if let Some(entry) = self.0.get_mut(&id) {
            entry.kind = OriginProof::Proven;
        }
        victim.inspect(|id| self.remove(*id))
    }

    /// Removes a connection that is closed or has said hello.
    pub(super) fn remove(&mut self, id: u64) {
        self.0.remove(&id);
    }

    /// Returns the connection to be closed before another one of this kind comes from `source`.
    fn victim(&self, kind: OriginProof, source: ConnectionOrigin) -> Option<u64> {
        let mut counts: BTreeMap<ConnectionOrigin, usize> = BTreeMap::new();
        for entry in self.0.values().filter(|entry| entry.kind == kind) {
            *counts.entry(entry.source).or_default() += 1;
        }
        let own = counts.get(&source).copied().unwrap_or(0);
        let heaviest = if kind == OriginProof::Unknown && own >= SOURCE_HALF_OPEN_MAX {
            source
        } else if counts.values().sum::<usize>() >= HALF_OPEN_MAX {
            counts.into_iter().max_by_key(|(_, count)| *count)?.0
        } else {
            return None;
        };
        let of_it = self.0.iter().filter(|(_, entry)| entry.kind == kind && entry.source == heaviest);
        of_it.min_by_key(|(id, entry)| (entry.heard, **id)).map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> ConnectionOrigin {
        SocketAddr::from(([10, 0, 0, last], 1)).into()
    }

    #[test]
    fn an_address_without_peers_has_part_of_the_slots() {
        let mut half_open = HalfOpen::default();
        let mut ids = 0..;
        let mut admit = |half_open: &mut HalfOpen, last| half_open.admit(ids.next().unwrap(), source(last), false);
        for _ in 0..SOURCE_HALF_OPEN_MAX {
            assert_eq!(admit(&mut half_open, 1), None);
        }
        assert_eq!(admit(&mut half_open, 1), Some(0), "the oldest");
        half_open.heard(1);
        assert_eq!(admit(&mut half_open, 1), Some(2), "the oldest silent one");
        assert_eq!(admit(&mut half_open, 2), None, "another address has slots");
    }

    #[test]
    fn the_address_with_the_most_connections_makes_room() {
        let mut half_open = HalfOpen::default();
        assert_eq!(half_open.admit(1, source(100), false), None);
        let mut closed = vec![];
        for id in 2..2000 {
            closed.extend(half_open.admit(id, source((id % 7) as u8), false));
        }
        assert!(!closed.contains(&1), "it has one connection, and others have many");
        assert_eq!(half_open.0.len(), HALF_OPEN_MAX);
    }

    #[test]
    fn peers_and_proven_connections_have_slots_of_their_own() {
        let mut half_open = HalfOpen::default();
        assert_eq!(half_open.admit(1, source(1), true), None);
        assert_eq!(half_open.admit(2, source(2), false), None);
        assert_eq!(half_open.proven(2), None);
        assert_eq!(half_open.admit(3, ConnectionOrigin::Unix, false), None);
        let mut closed = vec![];
        for id in 10..2000 {
            closed.extend(half_open.admit(id, source(id as u8), false));
        }
        assert!(closed.iter().all(|id| *id >= 10));
        assert_eq!(half_open.0.len(), HALF_OPEN_MAX + 3);
        // Known addresses have a bound, too.
        let mut closed = vec![];
        for id in 2000..4000 {
            closed.extend(half_open.admit(id, source(1), true));
        }
        assert_eq!((half_open.0.len(), closed.first()), (2 * HALF_OPEN_MAX + 1, Some(&1)));
        for id in 4000..5000 {
            half_open.admit(id, source(4), false);
            half_open.proven(id);
        }
        assert_eq!(half_open.0.values().filter(|entry| entry.kind == OriginProof::Proven).count(), HALF_OPEN_MAX);
    }

    #[test]
    fn a_network_of_ipv6_is_one_source_and_mapped_ipv4_is_ipv4() {
        let of = |text: &str| ConnectionOrigin::from(text.parse::<SocketAddr>().unwrap());
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:1]:2"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
        assert_eq!(of("[::ffff:10.0.0.1]:1"), of("10.0.0.1:2"));
    }
}

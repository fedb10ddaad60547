//! The address at which other hosts can reach a process.
use crate::limits::{ADDRESS_BYTES_MAX, SOCKET_PATH_BYTES_MAX};
use alloc::string::String;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;

/// The address at which a process can be reached: `host:port` or `unix:PATH`.
///
/// The host is an IPv4 address, an IPv6 address in brackets, or a DNS name, which is resolved at
/// each connection attempt. `unix:PATH` is for processes that share the file system.
///
/// Two addresses are equal if their texts are equal, ignoring case and the different ways to write
/// an IP address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address(Endpoint);

/// The parts of an [`Address`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Endpoint {
    /// An IP address and a port.
    Ip(SocketAddr),
    /// A DNS name, in lower case.
    Name {
        /// The name.
        host: String,
        /// The port.
        port: u16,
    },
    /// The absolute path of a Unix socket.
    Unix(String),
}

/// The reason why a text is no address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// More than 260 bytes.
    #[error("an address of {bytes} bytes; at most {max} are possible", max = ADDRESS_BYTES_MAX)]
    Length {
        /// The length.
        bytes: u64,
    },
    /// No port at the end.
    #[error("address {text:?} has no port from 0 to 65535 at its end; write host:port, [IPv6]:port or unix:/path")]
    Port {
        /// The address.
        text: String,
    },
    /// The part before the port is neither an IP address nor a DNS name.
    #[error(
        "address {text:?} has no host; write an IPv4 address, an IPv6 address in brackets, or a DNS name before the port"
    )]
    Host {
        /// The address.
        text: String,
    },
    /// The path is relative, or no socket can have it.
    #[error("address {text:?} has no path for a socket; write an absolute one of at most {max} bytes", max = SOCKET_PATH_BYTES_MAX)]
    Path {
        /// The address.
        text: String,
    },
}

impl Address {
    /// Returns the parts of the address.
    pub fn endpoint(&self) -> &Endpoint {
        &self.0
    }

    /// Returns this address with another port, if it has one.
    pub fn with_port(&self, port: u16) -> Address {
        Address(match self.0.clone() {
            Endpoint::Ip(mut ip) => {
                ip.set_port(port);
                Endpoint::Ip(ip)
            }
            Endpoint::Name { host, .. } => Endpoint::Name { host, port },
            unix @ Endpoint::Unix(_) => unix,
        })
    }

    /// Returns the port, if it has one.
    pub fn port(&self) -> Option<u16> {
        match &self.0 {
            Endpoint::Ip(ip) => Some(ip.port()),
            Endpoint::Name { port, .. } => Some(*port),
            Endpoint::Unix(_) => None,
        }
    }

    /// True if it contains a DNS name, which may resolve to any number of addresses.
    pub fn is_name(&self) -> bool {
        matches!(self.0, Endpoint::Name { .. })
    }

    /// Returns the IP address, if the address names exactly one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self.0 {
            Endpoint::Ip(ip) if !ip.ip().is_unspecified() => Some(ip.ip()),
            _ => None,
        }
    }

    /// True if it means all addresses of its host, as `0.0.0.0` does. A process can listen at such
    /// an address but can't be reached at it.
    pub fn is_wildcard(&self) -> bool {
        matches!(self.0, Endpoint::Ip(ip) if ip.ip().is_unspecified())
    }
}

impl From<SocketAddr> for Address {
    fn from(ip: SocketAddr) -> Address {
        Address(Endpoint::Ip(ip))
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        if text.len() > ADDRESS_BYTES_MAX {
            return Err(AddressError::Length { bytes: text.len() as u64 });
        }
        if let Some(path) = text.strip_prefix("unix:") {
            let fits = path.starts_with('/') && path.len() <= SOCKET_PATH_BYTES_MAX && !path.contains('\0');
            return if fits {
                Ok(Address(Endpoint::Unix(path.into())))
            } else {
                Err(AddressError::Path { text: text.into() })
            };
        }
        if let Ok(ip) = text.parse() {
            return Ok(Address(Endpoint::Ip(ip)));
        }
        let no_port = || AddressError::Port { text: text.into() };
        let (host, port) = text.rsplit_once(':').ok_or_else(no_port)?;
        // Reject "+80", which `parse` accepts.
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|_| digits).ok_or_else(no_port)?;
        if !is_dns_name(host) {
            return Err(AddressError::Host { text: text.into() });
        }
        Ok(Address(Endpoint::Name { host: host.to_ascii_lowercase(), port }))
    }
}

/// True for a name that can't be meant as an IP address. Some systems accept IP addresses in
/// unusual forms ("127.1").
fn is_dns_name(host: &str) -> bool {
    let labels = host.strip_suffix('.').unwrap_or(host);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(allowed) && !label.starts_with('-');
    let number =
        |label: &str| label.bytes().all(|byte| byte.is_ascii_digit()) || label.to_ascii_lowercase().starts_with("0x");
    host.len() <= 253 && labels.split('.').all(label) && !labels.rsplit('.').next().is_some_and(number)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Endpoint::Ip(ip) => ip.fmt(f),
            Endpoint::Name { host, port } => write!(f, "{host}:{port}"),
            Endpoint::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    fn address(text: &str) -> Result<Address, AddressError> {
        text.parse()
    }

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in [
            "10.0.0.7:4117",
            "0.0.0.0:0",
            "[::1]:4117",
            "[fe80::1%3]:80",
            "db-1.example_net.org:65535",
            "host:1",
            "host.:1",
            "unix:/run/spindle/a b.sock",
            "1host.x1:1",
        ] {
            assert_eq!(address(text).unwrap().to_string(), text);
        }
        let longest = format!("{}.{}.{}.{}:65535", "a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(61));
        assert_eq!(address(&longest).unwrap().to_string(), longest);
        let longest = format!("unix:/{}", "a".repeat(SOCKET_PATH_BYTES_MAX - 1));
        assert_eq!(address(&longest).unwrap().to_string(), longest);
    }

    #[test]
    fn equivalent_addresses_are_equal() {
        assert_eq!(address("[0::0:1]:9").unwrap(), address("[::1]:9").unwrap());
        assert_eq!(address("Host.Example:9").unwrap(), address("host.example:9").unwrap());
        assert_ne!(address("host:9").unwrap(), address("host:8").unwrap());
    }

    #[test]
    fn invalid_settings_are_reported() {
        let long = "x".repeat(ADDRESS_BYTES_MAX + 1);
        assert_eq!(address(&long), Err(AddressError::Length { bytes: 261 }));
        for text in ["", "host", "host:", "host:65536", "host:-1", "host:+1", "host: 1", "10.0.0.7", "[::1]", "/run/a"]
        {
            assert_eq!(address(text), Err(AddressError::Port { text: text.into() }));
        }
        let long = format!("{}:1", "a".repeat(64));
        for text in
            [":1", "::1:80", "127.1:80", "1.2.3.4.5:80", "0x7f000001:1", "a..b:1", "-a:1", "a b:1", "é:1", ".:1", &long]
        {
            assert_eq!(address(text), Err(AddressError::Host { text: text.into() }), "{text}");
        }
        let long = format!("unix:/{}", "a".repeat(SOCKET_PATH_BYTES_MAX));
        for text in ["unix:", "unix:run/a", "unix:/a\0b", &long] {
            assert_eq!(address(text), Err(AddressError::Path { text: text.into() }));
        }
    }

    #[test]
    fn ports_and_wildcards() {
        assert_eq!(address("[::]:0").unwrap().with_port(7).to_string(), "[::]:7");
        assert_eq!(address("a:0").unwrap().with_port(7).port(), Some(7));
        assert_eq!(address("unix:/a").unwrap().with_port(7).port(), None);
        assert!(address("0.0.0.0:1").unwrap().is_wildcard() && address("[::]:1").unwrap().is_wildcard());
        assert!(!address("10.0.0.1:1").unwrap().is_wildcard() && !address("a:1").unwrap().is_wildcard());
        assert!(address("a:1").unwrap().is_name());
        assert!(!address("10.0.0.1:1").unwrap().is_name() && !address("unix:/a").unwrap().is_name());
    }
}

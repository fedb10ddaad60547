//! Sockets that others connect to.
use super::error::NetError;
use super::limits::BACKLOG;
use super::resolve::{ConnectTarget, Names, resolve_now};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use spindle_core::control::Address;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// A listening socket. If it has a path, the path is removed with it.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    path: Option<(String, u64)>,
}

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Returns sockets that listen at `addresses`, and these with the ports that the system chose. With
/// `only_here`, no address may lead off this host.
pub(super) fn listen(
    addresses: &[Address],
    names: &Names,
    only_here: bool,
) -> Result<(Vec<Listener>, Vec<Address>), NetError> {
    let (mut listeners, mut bound) = (vec![], vec![]);
    for address in addresses {
        let failed = |source: io::Error| NetError::Listen { address: address.clone(), source };
        let targets =
            resolve_now(names, address).map_err(|source| NetError::Resolve { address: address.clone(), source })?;
        let off_host = |target: &ConnectTarget| matches!(target, ConnectTarget::Ip(ip) if !is_loopback(ip));
        if only_here && targets.iter().any(off_host) {
            return Err(NetError::Insecure { address: address.clone() });
        }
        let mut port = address.port().unwrap_or(0);
        for target in targets {
            match target {
                ConnectTarget::Unix(path) => listeners.push(listen_unix(path).map_err(failed)?),
                ConnectTarget::Ip(mut ip) => {
                    // A name with port 0 has the same port at all its addresses.
                    ip.set_port(port);
                    let (listener, chosen) = listen_ip(ip).map_err(failed)?;
                    listeners.push(listener);
                    port = chosen;
                }
            }
        }
        bound.push(address.with_port(port));
    }
    Ok((listeners, bound))
}

/// Returns whether only processes of this host can connect to it.
pub(super) fn is_loopback(ip: &SocketAddr) -> bool {
    ip.ip().to_canonical().is_loopback()
}

fn listen_ip(ip: SocketAddr) -> io::Result<(Listener, u16)> {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if ip.is_ipv6() {
        // Otherwise `[::]` and `0.0.0.0` could not be listened at with the same port.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    net::bind(&socket, &ip)?;
    net::listen(&socket, BACKLOG)?;
    let chosen = SocketAddr::try_from(net::getsockname(&socket)?)?.port();
    Ok((Listener { socket, path: None }, chosen))
}

fn listen_unix(path: String) -> io::Result<Listener> {
    let address = SocketAddrUnix::new(path.as_str())?;
    let new = || net::socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None);
    let socket = new()?;
    if let Err(errno) = net::bind(&socket, &address) {
        // A process that crashed leaves its path behind, and no process answers there.
        let is_socket = fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket());
        if errno != Errno::ADDRINUSE || !is_socket || net::connect(new()?, &address) != Err(Errno::CONNREFUSED) {
            return Err(errno.into());
        }
        fs::remove_file(&path)?;
        net::bind(&socket, &address)?;
    }
    // Before any process can connect.
    rustix::fs::chmod(path.as_str(), Mode::RUSR | Mode::WUSR)?;
    net::listen(&socket, BACKLOG)?;
    let inode = fs::symlink_metadata(&path)?.ino();
    Ok(Listener { socket, path: Some((path, inode)) })
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another process may have the path by now.
        if let Some((path, inode)) = &self.path
            && fs::symlink_metadata(path).is_ok_and(|found| found.ino() == *inode)
        {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn loopback_is_known_in_all_its_forms() {
        for (text, expected) in
            [("127.3.2.1:1", true), ("[::1]:1", true), ("[::ffff:127.0.0.1]:1", true), ("[::2]:1", false)]
        {
            assert_eq!(is_loopback(&text.parse().unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn all_of_ipv6_is_not_all_of_ipv4() {
        // Another process may have the port.
        let both = (0..100).find_map(|_| {
            let (first, port) = listen_ip((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
            let (second, _) = listen_ip((Ipv6Addr::UNSPECIFIED, port).into()).ok()?;
            Some((first, second))
        });
        assert!(both.is_some());
    }
}

//! The resolution of an [`Address`] to targets that can be connected to. Names are looked up on
//! separate threads, because the system may take long. A thread that the system never answers
//! stays, even after its endpoint.
use super::limits::{NAME_ADDRESSES_MAX, RESOLVING_MAX};
use spindle_core::control::{Address, Endpoint};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// The resolver of host names: the system, or the application if that knows better.
#[derive(Clone, Default)]
pub struct Names(Option<Arc<LookUp>>);

type LookUp = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

impl Names {
    /// Creates a resolver that asks only `look_up`. It is called on separate threads, several of
    /// them at once, and may take long.
    pub fn known_by(look_up: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Names {
        Names(Some(Arc::new(look_up)))
    }

    fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let Some(look_up) = &self.0 else { return Ok((host, port).to_socket_addrs()?.collect()) };
        // The thread serves others, too.
        let found = catch_unwind(AssertUnwindSafe(|| look_up(host)));
        let found = found.unwrap_or_else(|_| Err(io::Error::other("the application's look-up of names panicked")))?;
        Ok(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Names(the application's)" } else { "Names(the system's)" })
    }
}

/// A target that a socket can be connected to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ConnectTarget {
    Ip(SocketAddr),
    Unix(String),
}

/// The result of looking up a name.
pub(super) type Resolved = io::Result<Vec<ConnectTarget>>;

/// The names that are being looked up, and those that wait for it.
#[derive(Debug)]
pub(super) struct Resolver {
    shared: Arc<Mutex<ResolverState>>,
}

#[derive(Default)]
struct ResolverState {
    names: Names,
    waiting: VecDeque<(u64, String, u16)>,
    found: VecDeque<(u64, Resolved)>,
    threads: usize,
    wake: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for ResolverState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResolverState")
            .field("waiting", &self.waiting)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl Resolver {
    /// Creates a resolver that calls `wake`, on any thread, when there is a result to
    /// [take](Self::take).
    pub(super) fn new(names: Names, wake: impl Fn() + Send + Sync + 'static) -> Resolver {
        let shared = ResolverState { names, wake: Some(Arc::new(wake)), ..ResolverState::default() };
        Resolver { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Returns the targets of `address` if no name has to be looked up for it; otherwise starts the
    /// look-up.
    pub(super) fn resolve(&self, ticket: u64, address: &Address) -> Option<Resolved> {
        let (host, port) = match address.endpoint() {
            Endpoint::Ip(ip) => return Some(Ok(vec![ConnectTarget::Ip(*ip)])),
            Endpoint::Unix(path) => return Some(Ok(vec![ConnectTarget::Unix(path.clone())])),
            Endpoint::Name { host, port } => (host.clone(), *port),
        };
        let mut shared = lock(&self.shared);
        shared.waiting.push_back((ticket, host, port));
        if shared.threads < RESOLVING_MAX {
            let theirs = Arc::clone(&self.shared);
            let started = std::thread::Builder::new().name("spindle-dns".into()).spawn(move || look_up_all(&theirs));
            match started {
                Ok(_) => shared.threads += 1,
                // The running threads take it over.
                Err(_) if shared.threads > 0 => {}
                Err(error) => {
                    shared.waiting.pop_back();
                    return Some(Err(error));
                }
            }
        }
        None
    }

    /// Returns a result, with its ticket.
    pub(super) fn take(&self) -> Option<(u64, Resolved)> {
        lock(&self.shared).found.pop_front()
    }

    /// Cancels a look-up whose result is no longer needed.
    pub(super) fn forget(&self, ticket: u64) {
        lock(&self.shared).waiting.retain(|(other, ..)| *other != ticket);
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        shared.waiting.clear();
        shared.wake = None;
    }
}

fn lock(shared: &Mutex<ResolverState>) -> std::sync::MutexGuard<'_, ResolverState> {
    // No code here panics halfway.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one thread, as long as there is something to look up.
fn look_up_all(shared: &Mutex<ResolverState>) {
    loop {
        let (names, (ticket, host, port)) = {
            let mut shared = lock(shared);
            match shared.waiting.pop_front() {
                Some(next) => (shared.names.clone(), next),
                None => {
                    shared.threads -= 1;
                    return;
                }
            }
        };
        let found = look_up(&names, &host, port);
        let wake = {
            let mut shared = lock(shared);
            let wake = shared.wake.clone();
            if wake.is_some() {
                shared.found.push_back((ticket, found));
            }
            wake
        };
        if let Some(wake) = wake {
            wake();
        }
    }
}

/// Returns the addresses of a name, with IPv4 and IPv6 in turns, so that an unreachable kind does
/// not delay the other.
fn look_up(names: &Names, host: &str, port: u16) -> Resolved {
    let all = names.addresses(host, port)?;
    let first_is_v4 = all.first().is_some_and(SocketAddr::is_ipv4);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) =
        all.into_iter().partition(|ip| ip.is_ipv4() == first_is_v4);
    let (mut targets, mut seen) = (vec![], BTreeSet::new());
    while targets.len() < NAME_ADDRESSES_MAX {
        let Some(ip) = first.pop_front().or_else(|| second.pop_front()) else { break };
        // The system lists an address once for each kind of socket.
        if seen.insert(ip) {
            targets.push(ConnectTarget::Ip(ip));
            std::mem::swap(&mut first, &mut second);
        }
    }
    match targets.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
        false => Ok(targets),
    }
}

/// Returns the targets of `address`, and waits for them.
pub(super) fn resolve_now(names: &Names, address: &Address) -> Resolved {
    match address.endpoint() {
        Endpoint::Ip(ip) => Ok(vec![ConnectTarget::Ip(*ip)]),
        Endpoint::Unix(path) => Ok(vec![ConnectTarget::Unix(path.clone())]),
        Endpoint::Name { host, port } => look_up(names, host, *port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn names_are_looked_up_elsewhere_and_the_rest_at_once() {
        let (tell, told) = mpsc::channel();
        // The system knows without asking a server that this is no name.
        assert!(look_up(&Names::default(), "no..name", 1).is_err());
        let resolver = Resolver::new(Names::default(), move || tell.send(()).unwrap());
        let at_once = |text: &str| resolver.resolve(0, &text.parse().unwrap()).unwrap().unwrap();
        assert_eq!(at_once("127.0.0.1:5"), [ConnectTarget::Ip("127.0.0.1:5".parse().unwrap())]);
        assert_eq!(at_once("unix:/a"), [ConnectTarget::Unix("/a".into())]);
        for ticket in 1..=20 {
            assert!(resolver.resolve(ticket, &"localhost:7".parse().unwrap()).is_none());
        }
        let mut tickets = vec![];
        while tickets.len() < 20 {
            told.recv().unwrap();
            while let Some((ticket, found)) = resolver.take() {
                let found = found.unwrap();
                let loopback = |target: &ConnectTarget| matches!(target, ConnectTarget::Ip(ip) if ip.ip().is_loopback() && ip.port() == 7);
                assert!(!found.is_empty() && found.iter().all(loopback), "{found:?}");
                tickets.push(ticket);
            }
        }
        tickets.sort_unstable();
        assert!(tickets.into_iter().eq(1..=20));
    }

    #[test]
    fn resolvers_may_alternate_kinds_repeat_addresses_and_panic() {
        let names = Names::known_by(|host| match host {
            "both" => Ok(["10.0.0.1", "10.0.0.2", "10.0.0.1", "fd00::1"].map(|ip| ip.parse().unwrap()).to_vec()),
            "none" => Ok(vec![]),
            _ => panic!("{host}"),
        });
        let found = look_up(&names, "both", 7).unwrap();
        let expected = ["10.0.0.1:7", "[fd00::1]:7", "10.0.0.2:7"].map(|ip| ConnectTarget::Ip(ip.parse().unwrap()));
        assert_eq!(found, expected);
        assert_eq!(look_up(&names, "none", 7).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(look_up(&names, "worse", 7).unwrap_err().to_string().contains("panicked"));
    }
}

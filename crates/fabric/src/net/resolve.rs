//! From an [`Address`] to what can be connected to. Names are looked up on threads of their own, because the system may take its time; a
//! thread that it never answers stays until then, even after its endpoint.
use super::limits::{NAME_ADDRESSES_MAX, RESOLVING_MAX};
use spindle_core::control::{Address, Place};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// Who knows the addresses of a host by its name: the system, or the application if it knows better.
#[derive(Clone, Default)]
pub struct Names(Option<Arc<LookUp>>);

type LookUp = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

impl Names {
    /// Names that `look_up` knows, and nobody else is asked. It is called on threads of its own, several of them at once, and may take its time.
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

/// Something that a socket can be connected to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    Ip(SocketAddr),
    Unix(String),
}

/// What came of looking up a name.
pub(super) type Found = io::Result<Vec<Target>>;

/// The names that are being looked up, and those that wait for it.
#[derive(Debug)]
pub(super) struct Resolver {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    names: Names,
    waiting: VecDeque<(u64, String, u16)>,
    found: VecDeque<(u64, Found)>,
    threads: usize,
    wake: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("waiting", &self.waiting).field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Resolver {
    /// One that calls `wake`, on any thread, when there is something to [take](Self::take).
    pub(super) fn new(names: Names, wake: impl Fn() + Send + Sync + 'static) -> Resolver {
        let shared = Shared { names, wake: Some(Arc::new(wake)), ..Shared::default() };
        Resolver { shared: Arc::new(Mutex::new(shared)) }
    }

    /// What `address` leads to, if no name has to be looked up for it; otherwise that is begun.
    pub(super) fn resolve(&self, ticket: u64, address: &Address) -> Option<Found> {
        let (host, port) = match address.place() {
            Place::Ip(ip) => return Some(Ok(vec![Target::Ip(*ip)])),
            Place::Unix(path) => return Some(Ok(vec![Target::Unix(path.clone())])),
            Place::Name { host, port } => (host.clone(), *port),
        };
        let mut shared = lock(&self.shared);
        shared.waiting.push_back((ticket, host, port));
        if shared.threads < RESOLVING_MAX {
            let theirs = Arc::clone(&self.shared);
            let started = std::thread::Builder::new().name("spindle-dns".into()).spawn(move || look_up_all(&theirs));
            match started {
                Ok(_) => shared.threads += 1,
                // Those that run take it over.
                Err(_) if shared.threads > 0 => {}
                Err(error) => {
                    shared.waiting.pop_back();
                    return Some(Err(error));
                }
            }
        }
        None
    }

    /// What was found, with its ticket.
    pub(super) fn take(&self) -> Option<(u64, Found)> {
        lock(&self.shared).found.pop_front()
    }

    /// Nobody waits for this one any more.
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

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    // Nothing in here panics halfway.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread's life: as long as there is something to look up.
fn look_up_all(shared: &Mutex<Shared>) {
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

/// The addresses of a name, the kinds in turns, so that one that leads nowhere does not hold up the other.
fn look_up(names: &Names, host: &str, port: u16) -> Found {
    let all = names.addresses(host, port)?;
    let first_is_v4 = all.first().is_some_and(SocketAddr::is_ipv4);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) =
        all.into_iter().partition(|ip| ip.is_ipv4() == first_is_v4);
    let (mut targets, mut seen) = (vec![], BTreeSet::new());
    while targets.len() < NAME_ADDRESSES_MAX {
        let Some(ip) = first.pop_front().or_else(|| second.pop_front()) else { break };
        // The system names one as often as there are kinds of sockets.
        if seen.insert(ip) {
            targets.push(Target::Ip(ip));
            std::mem::swap(&mut first, &mut second);
        }
    }
    match targets.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
        false => Ok(targets),
    }
}

/// What `address` leads to, waiting for it.
pub(super) fn resolve_now(names: &Names, address: &Address) -> Found {
    match address.place() {
        Place::Ip(ip) => Ok(vec![Target::Ip(*ip)]),
        Place::Unix(path) => Ok(vec![Target::Unix(path.clone())]),
        Place::Name { host, port } => look_up(names, host, *port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn names_are_looked_up_elsewhere_and_the_rest_at_once() {
        let (tell, told) = mpsc::channel();
        // One that the system knows without asking anybody to be none.
        assert!(look_up(&Names::default(), "no..name", 1).is_err());
        let resolver = Resolver::new(Names::default(), move || tell.send(()).unwrap());
        let at_once = |text: &str| resolver.resolve(0, &text.parse().unwrap()).unwrap().unwrap();
        assert_eq!(at_once("127.0.0.1:5"), [Target::Ip("127.0.0.1:5".parse().unwrap())]);
        assert_eq!(at_once("unix:/a"), [Target::Unix("/a".into())]);
        for ticket in 1..=20 {
            assert!(resolver.resolve(ticket, &"localhost:7".parse().unwrap()).is_none());
        }
        let mut tickets = vec![];
        while tickets.len() < 20 {
            told.recv().unwrap();
            while let Some((ticket, found)) = resolver.take() {
                let found = found.unwrap();
                let loopback =
                    |target: &Target| matches!(target, Target::Ip(ip) if ip.ip().is_loopback() && ip.port() == 7);
                assert!(!found.is_empty() && found.iter().all(loopback), "{found:?}");
                tickets.push(ticket);
            }
        }
        tickets.sort_unstable();
        assert!(tickets.into_iter().eq(1..=20));
    }

    #[test]
    fn who_knows_names_may_take_turns_with_kinds_repeat_itself_and_panic() {
        let names = Names::known_by(|host| match host {
            "both" => Ok(["10.0.0.1", "10.0.0.2", "10.0.0.1", "fd00::1"].map(|ip| ip.parse().unwrap()).to_vec()),
            "none" => Ok(vec![]),
            _ => panic!("{host}"),
        });
        let found = look_up(&names, "both", 7).unwrap();
        let expected = ["10.0.0.1:7", "[fd00::1]:7", "10.0.0.2:7"].map(|ip| Target::Ip(ip.parse().unwrap()));
        assert_eq!(found, expected);
        assert_eq!(look_up(&names, "none", 7).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(look_up(&names, "worse", 7).unwrap_err().to_string().contains("panicked"));
    }
}

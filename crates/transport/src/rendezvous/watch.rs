//! The watch: one thread that sleeps in the kernel until a watched process ends, a control message
//! arrives, or it has to stop. The set of watched processes may change at any time. Every two
//! seconds it checks whether others still find this process's address; otherwise it costs nothing
//! while nothing happens. Its own end shows the others early that its process is dying.
use super::TARGET;
use super::control_socket::{ControlSocket, SocketAddress};
use super::error::RendezvousError;
use super::limits::{EVENTS_PER_WAIT, OLD_SOCKETS_MAX, PLACE_LOOK};
use crate::fork::{Owner, Socket};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

/// The pause after a wait that the system refused, for lack of memory.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// Event values, beside the serial numbers of watched processes.
const STOP: u64 = 0;
const MAIL: u64 = 1;
const SERIALS_FROM: u64 = 2;

/// A report of a [`Watch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A watched process has ended, and is not watched any more. Its control messages may not have
    /// been read yet, but all of them are in the queue by now.
    Death {
        /// The token under which it was watched.
        token: u64,
        /// The number of this watch: by now another process may be watched under the token.
        serial: u64,
    },
    /// There are control messages in the queue. Not reported again before [`Watch::messages_read`].
    Messages,
    /// Other processes don't find this process at its address, so it has to call
    /// [`ControlSocket::restore`]. Reported again after a while if that is not done.
    Displaced,
}

/// Watches processes and a control socket until it is dropped.
#[derive(Debug)]
pub struct Watch {
    owner: Owner,
    shared: Arc<WatchState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct WatchState {
    epoll: OwnedFd,
    event_count: OwnedFd,
    /// The control sockets of the process, from the oldest to the newest.
    control_socket: Mutex<Vec<Socket>>,
    stopped: AtomicBool,
    watched: Mutex<WatchedTokens>,
}

/// An event may be taken from the kernel when its process is no longer watched and its token
/// belongs to another. So the kernel is given serial numbers, each of which is used once.
#[derive(Debug)]
struct WatchedTokens {
    next: u64,
    tokens: BTreeMap<u64, u64>,
    by_token: BTreeMap<u64, (u64, OwnedFd)>,
}

impl Watch {
    /// Starts the thread, on which `on_notice` is called. `on_notice` must not panic, because
    /// nothing would be watched any more. The value that `hold` returns on
    /// the thread lives as long as the thread: it shows the others that this process lives.
    ///
    /// # Errors
    /// [`RendezvousError::FdLimit`], or [`RendezvousError::Io`] if there can be no more threads.
    pub fn spawn<T>(
        control_socket: &ControlSocket,
        hold: impl FnOnce() -> T + Send + 'static,
        on_notice: impl FnMut(Notice) + Send + 'static,
    ) -> Result<Watch, RendezvousError> {
        let failed = |errno: Errno| RendezvousError::io("set up the watch", None, errno);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let event_count = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        let (address, control_socket) = (Arc::clone(control_socket.address()), copy(control_socket)?);
        epoll::add(&epoll, &event_count, EventData::new_u64(STOP), EventFlags::IN).map_err(failed)?;
        epoll::add(&epoll, &control_socket, EventData::new_u64(MAIL), ONCE).map_err(failed)?;
        let control_socket = Mutex::new(vec![control_socket]);
        let watched = WatchedTokens { next: SERIALS_FROM, tokens: BTreeMap::new(), by_token: BTreeMap::new() };
        let stopped = AtomicBool::new(false);
        let shared = Arc::new(WatchState { epoll, event_count, control_socket, stopped, watched: Mutex::new(watched) });
        let seen = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("spindle-watch".into())
            .spawn(move || {
                let _held = hold();
                watch(&seen, &address, on_notice);
            })
            .map_err(|source| RendezvousError::io("start the watch's thread", None, source))?;
        Ok(Watch { owner: Owner::new(), shared, thread: Some(thread) })
    }

    /// Watches a process, which may be dead already. Its death is reported once, as
    /// [`Notice::Death`] with `token` and the number that is returned. A process that was watched
    /// under the same token is no longer watched. Events call the token the member's id.
    ///
    /// # Errors
    /// [`RendezvousError::Io`] if this is no descriptor that can be watched, or the system has no
    /// memory for it.
    pub fn watch(&self, token: u64, pidfd: OwnedFd) -> Result<u64, RendezvousError> {
        let mut watched = self.shared.watched();
        self.shared.forget(&mut watched, token);
        let serial = watched.next;
        watched.next += 1;
        epoll::add(&self.shared.epoll, &pidfd, EventData::new_u64(serial), EventFlags::IN)
            .map_err(|errno| RendezvousError::io("watch over a process", None, errno))?;
        debug!(target: TARGET, member = token, "process watched");
        watched.tokens.insert(serial, token);
        watched.by_token.insert(token, (serial, pidfd));
        Ok(serial)
    }

    /// Ends the watch of a process. If the answer is true its death was not reported and never will
    /// be. Otherwise the death was reported, is being reported now, or no process was watched under
    /// this token.
    pub fn unwatch(&self, token: u64) -> bool {
        let mut watched = self.shared.watched();
        self.shared.forget(&mut watched, token)
    }

    /// Reports control messages again from now on, at once if there are any. The reader calls it
    /// when the queue was found empty, or when it has done enough for one turn. A reader that is
    /// starved ([`super::ControlSocket::is_starved`]) calls it after a pause.
    pub fn messages_read(&self) {
        for socket in &*self.shared.control_socket() {
            // It is registered for as long as this lives, and this call can't fail for another
            // reason.
            let _ = epoll::modify(&self.shared.epoll, socket, EventData::new_u64(MAIL), ONCE);
        }
    }

    /// Adds a new control socket beside the earlier ones.
    ///
    /// # Errors
    /// [`RendezvousError::FdLimit`], or [`RendezvousError::Io`] if the system has no memory for it.
    pub fn renew(&self, control_socket: &ControlSocket) -> Result<(), RendezvousError> {
        let socket = copy(control_socket)?;
        epoll::add(&self.shared.epoll, &socket, EventData::new_u64(MAIL), ONCE)
            .map_err(|errno| RendezvousError::io("watch over a control socket", None, errno))?;
        let mut sockets = self.shared.control_socket();
        sockets.push(socket);
        if sockets.len() > 1 + OLD_SOCKETS_MAX {
            let oldest = sockets.remove(0);
            let _ = epoll::delete(&self.shared.epoll, &oldest);
        }
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.owner.is_copy() {
            // The thread and its eventfd belong to the parent.
            return;
        }
        self.shared.stopped.store(true, Ordering::Relaxed);
        // An eventfd takes eight bytes unless its count overflows, which one write can't do.
        let _ = rustix::io::write(&self.shared.event_count, &1_u64.to_ne_bytes());
        let Some(thread) = self.thread.take() else { return };
        // `on_notice` itself dropped the watch: the thread stops after it.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

/// One event each time, because a full queue would wake the thread repeatedly until another thread
/// has read it.
const ONCE: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);

impl WatchState {
    fn watched(&self) -> MutexGuard<'_, WatchedTokens> {
        // No code here panics halfway.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn control_socket(&self) -> MutexGuard<'_, Vec<Socket>> {
        self.control_socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, watched: &mut WatchedTokens, token: u64) -> bool {
        let Some((serial, pidfd)) = watched.by_token.remove(&token) else { return false };
        watched.tokens.remove(&serial);
        // Closing would not suffice: other processes hold copies of the descriptor.
        let _ = epoll::delete(&self.epoll, &pidfd);
        true
    }

    /// Returns the present meaning of an event.
    fn notice(&self, event: u64) -> Option<Notice> {
        if event == MAIL {
            return Some(Notice::Messages);
        }
        let mut watched = self.watched();
        let token = *watched.tokens.get(&event)?;
        self.forget(&mut watched, token);
        info!(target: TARGET, member = token, evidence = "its pidfd: the kernel says so", "process has ended");
        Some(Notice::Death { token, serial: event })
    }
}

fn copy(control_socket: &ControlSocket) -> Result<Socket, RendezvousError> {
    control_socket
        .as_fd()
        .try_clone_to_owned()
        .map(Socket::new)
        .map_err(|source| RendezvousError::io("set up the watch", None, source))
}

fn watch(shared: &WatchState, address: &SocketAddress, mut on_notice: impl FnMut(Notice)) {
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS_PER_WAIT);
    let pause = Timespec { tv_sec: PLACE_LOOK.as_secs() as i64, tv_nsec: PLACE_LOOK.subsec_nanos().into() };
    let mut looked = Instant::now();
    let mut was_in_place = true;
    while !shared.stopped.load(Ordering::Relaxed) {
        events.clear();
        match epoll::wait(&shared.epoll, rustix::buffer::spare_capacity(&mut events), Some(&pause)) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => std::thread::sleep(REFUSED_PAUSE),
        }
        for event in &events {
            if shared.stopped.load(Ordering::Relaxed) {
                return;
            }
            if let Some(notice) = shared.notice(event.data.u64()) {
                on_notice(notice);
            }
        }
        if looked.elapsed() >= PLACE_LOOK {
            looked = Instant::now();
            let is_in_place = address.is_in_place();
            if !is_in_place && !shared.stopped.load(Ordering::Relaxed) {
                if was_in_place {
                    warn!(target: TARGET, address = %address.shown().display(), "address was removed");
                }
                on_notice(Notice::Displaced);
            }
            was_in_place = is_in_place;
        }
    }
}

//! A process's address in its group: opens it, keeps it, makes the process a member, and gives both
//! up. `sending.rs` and `receiving.rs` carry the control messages, `address.rs` has the files.
use super::TARGET;
use super::dir::{GroupName, RuntimeDir, again_if};
use super::error::RendezvousError;
use super::group_files::{Census, GroupFiles, GroupLock, Probe, keep_cleaners_out};
use super::kernel::random;
use super::limits::{LOCK_WAIT, OLD_SOCKETS_MAX};
use crate::fork::{Owner, Socket};
use spindle_core::MemberId;
use spindle_core::ids::CLIENT_IDS_FROM;
use spindle_core::limits::CONTROL_MESSAGE_BYTES_MAX;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::info;

mod address;
mod receiving;
mod sending;

pub(super) use address::SocketAddress;
use address::{AddressState, bind_at};
pub use receiving::ControlSocketDrops;
pub use sending::SendOutcome;

/// A process's address in a group: a datagram socket in the runtime directory, `<group>.<id>.sock`,
/// which is its control socket. Nothing here waits, except for the group's lock where the
/// documentation says so.
///
/// Dropping it gives the address up, and the mark of a member with it. Wait for control messages
/// with [`Watch`](super::Watch), or poll its descriptor.
///
/// If its socket is removed, [`restore`](Self::restore) makes another. Processes that have sent to
/// it before continue to use the old one.
#[derive(Debug)]
pub struct ControlSocket {
    spot: Arc<SocketAddress>,
    id: MemberId,
    socket: Socket,
    /// Sockets whose names were removed, from the oldest to the newest.
    old: Vec<Socket>,
    /// Sockets of others, by which they are reached even if their names are removed.
    peers: Mutex<BTreeMap<MemberId, OwnedFd>>,
    /// Whether the id was given out, and may not be given out again.
    given: bool,
    bytes: Vec<u8>,
    dropped: ControlSocketDrops,
    starved: bool,
    /// Whether the last look found nothing.
    drained: bool,
    /// Opened early, so that a process without free descriptors can check which processes live.
    probe: Probe,
    _cleaners_out: Option<OwnedFd>,
}

/// The role of a process that had its address already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CreateOutcome {
    /// No member lived: it is the first one of a new group.
    Founder {
        /// Random, new for each group.
        incarnation: u128,
    },
    /// It may ask to join, with [`spindle_core::control::ControlMessage::Ask`].
    Joiner {
        /// The members to ask, by ascending id. At least one.
        members: Vec<MemberId>,
    },
}

impl ControlSocket {
    /// Binds the address of `id`, or takes it over if its process is gone. This does not make the
    /// process a member.
    ///
    /// Waits up to ten seconds for the group's lock.
    ///
    /// # Errors
    /// [`RendezvousError::IdInUse`], [`RendezvousError::IdReserved`], or what the system refuses.
    pub fn open(dir: &RuntimeDir, group: &GroupName, id: MemberId) -> Result<ControlSocket, RendezvousError> {
        let place = GroupFiles::new(dir, group);
        let control_socket = again_if_it_vanishes(|| {
            let lock = lock_briefly(&place)?;
            Self::bind_member(&place, id, &lock, false)
        })?;
        if place.known_members().is_ok_and(|members| members.is_empty()) {
            place.sweep_others(dir);
        }
        Ok(control_socket)
    }

    /// Opens an address for an observer or an admin client, which is no member and only sends
    /// requests. Members answer it, and [`present`](Self::present) does not count it.
    ///
    /// Waits up to ten seconds for the group's lock.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn client(dir: &RuntimeDir, group: &GroupName) -> Result<ControlSocket, RendezvousError> {
        let place = GroupFiles::new(dir, group);
        again_if_it_vanishes(|| {
            let lock = lock_briefly(&place)?;
            let taken = place.addressees()?;
            let id = smallest_free(CLIENT_IDS_FROM, &taken);
            Self::bind(&place, id, &lock, false)
        })
    }

    /// Does the same as [`client`](Self::client), with a given id, from [`CLIENT_IDS_FROM`] on: for
    /// clients that use several hosts.
    ///
    /// # Errors
    /// [`RendezvousError::IdInUse`], or what the system refuses.
    ///
    /// # Panics
    /// If the id is a member's.
    pub fn client_as(dir: &RuntimeDir, group: &GroupName, id: MemberId) -> Result<ControlSocket, RendezvousError> {
        assert!(id.0 >= CLIENT_IDS_FROM, "{id} is no client's");
        let place = GroupFiles::new(dir, group);
        again_if_it_vanishes(|| Self::bind(&place, id, &lock_briefly(&place)?, false))
    }

    /// Returns whether `id` is a live member, by its name that outlives the directory. False where
    /// the system lists no such names.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn lives(dir: &RuntimeDir, group: &GroupName, id: MemberId) -> Result<bool, RendezvousError> {
        Ok(GroupFiles::new(dir, group).key.living()?.contains(&id))
    }

    /// Returns the live processes that have an address in this group, by ascending id: members and
    /// those that want to be. Observers and admin clients don't count.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn present(dir: &RuntimeDir, group: &GroupName) -> Result<Vec<MemberId>, RendezvousError> {
        let mut ids = GroupFiles::new(dir, group).addressees()?;
        ids.retain(|id| id.0 < CLIENT_IDS_FROM);
        Ok(ids)
    }

    /// Returns which of the present processes are members: they created the group, or
    /// [entered](Self::enter) it.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn members(dir: &RuntimeDir, group: &GroupName) -> Result<Vec<MemberId>, RendezvousError> {
        GroupFiles::new(dir, group).members()
    }

    /// Returns the same as [`members`](Self::members) in a group that is not large. In a large one,
    /// asks only some of the members whether they live; others may have ended.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn known_members(dir: &RuntimeDir, group: &GroupName) -> Result<Vec<MemberId>, RendezvousError> {
        GroupFiles::new(dir, group).known_members()
    }

    /// Creates the group unless a member lives. For a process that is no member, and that waited to
    /// be admitted by members that died meanwhile.
    ///
    /// # Errors
    /// [`RendezvousError::Locked`] at the deadline, [`RendezvousError::Cancelled`], or what the
    /// system refuses.
    ///
    /// # Panics
    /// In a group without members, if this is a [client](Self::client).
    pub fn create(&self, deadline: Instant, cancelled: &AtomicBool) -> Result<CreateOutcome, RendezvousError> {
        let place = &self.spot.place;
        again_if_it_vanishes(|| {
            let lock = place.lock(deadline, cancelled)?;
            // An attempt that failed halfway may have left its name.
            self.create_under(&lock, self.census_of_others(&lock)?)
        })
    }

    /// Returns the live processes, with this one only among those that have an address.
    fn census_of_others(&self, lock: &GroupLock) -> Result<Census, RendezvousError> {
        let mut census = self.spot.place.census(lock)?;
        census.members.retain(|id| *id != self.id);
        Ok(census)
    }

    /// Makes this process a member of the group `incarnation`, which has decided a view with it.
    /// From then on no process can create another group of this name while this process lives.
    ///
    /// Returns false if another group exists already: all members died before this process had read
    /// that it was a member. Then it must have no part in that view, and may ask the new group to
    /// join.
    ///
    /// Waits up to ten seconds for the group's lock.
    ///
    /// # Errors
    /// What the system refuses.
    ///
    /// # Panics
    /// If this is a [client](Self::client).
    #[must_use = "a group that was superseded must not be entered"]
    pub fn enter(&self, incarnation: u128) -> Result<bool, RendezvousError> {
        let place = &self.spot.place;
        again_if_it_vanishes(|| {
            let lock = lock_briefly(place)?;
            let last = lock.incarnation()?;
            if last != Some(incarnation) {
                // The lock file may have been removed, and another group created since.
                if !place.key.are_of(incarnation)?.unwrap_or(last.is_none()) {
                    return Ok(false);
                }
                lock.set_incarnation(incarnation)?;
            }
            self.spot.put_mark(&lock, incarnation)?;
            Ok(true)
        })
    }

    /// Makes this process the first member, on this host, of the group `incarnation`, which restarts.
    /// Returns false if other members live here.
    ///
    /// Waits up to ten seconds for the group's lock.
    ///
    /// # Errors
    /// What the system refuses.
    ///
    /// # Panics
    /// If this is a [client](Self::client).
    #[must_use = "a group that lives must not be entered so"]
    pub fn restart(&self, incarnation: u128) -> Result<bool, RendezvousError> {
        let place = &self.spot.place;
        again_if_it_vanishes(|| {
            let lock = lock_briefly(place)?;
            if !self.census_of_others(&lock)?.members.is_empty() {
                return Ok(false);
            }
            // Its mark names another group.
            self.spot.leave();
            lock.set_incarnation(incarnation)?;
            self.spot.put_mark(&lock, incarnation)?;
            Ok(true)
        })
    }

    /// Does the same as [`enter`](Self::enter), for a group that spans hosts. Another host may have
    /// created the group again, which is not known here. So the last group on this host counts only
    /// while a member of it lives here.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    ///
    /// # Panics
    /// As [`enter`](Self::enter).
    #[must_use = "a group that was superseded must not be entered"]
    pub fn enter_afar(&self, incarnation: u128) -> Result<bool, RendezvousError> {
        let place = &self.spot.place;
        again_if_it_vanishes(|| {
            let lock = lock_briefly(place)?;
            if lock.incarnation()? != Some(incarnation) {
                let may_enter = match place.key.are_of(incarnation)? {
                    Some(are_of_it) => are_of_it,
                    None => self.census_of_others(&lock)?.members.is_empty(),
                };
                if !may_enter {
                    return Ok(false);
                }
                lock.set_incarnation(incarnation)?;
            }
            self.spot.put_mark(&lock, incarnation)?;
            Ok(true)
        })
    }

    /// Ends the membership that [`enter`](Self::enter) or [`create`](Self::create) began. The process
    /// keeps its address. An evicted process calls this before it asks to join again: as long as it
    /// counts as a member no process can create the group, even if all others are dead.
    pub fn leave(&self) {
        self.spot.leave();
    }

    /// Returns whether a process is at the address of `id`. If not, nothing can be sent to it. That
    /// is no proof that its process has ended: its socket may have been removed.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn reaches(&self, id: MemberId) -> Result<bool, RendezvousError> {
        let spot = self.spot.place.address(id)?;
        if let Some(held) = self.peers().get(&id).and_then(|held| spot.path_of(held.as_fd()))
            && self.probe.answers(&held)?
        {
            return Ok(true);
        }
        self.probe.answers(&spot)
    }

    /// Releases the sockets of processes that are not wanted any more.
    pub fn retain_peers(&self, is_wanted: impl Fn(MemberId) -> bool) {
        self.peers().retain(|id, _| is_wanted(*id));
    }

    /// Makes this address again, and the mark of a member, if they or the directory were removed,
    /// so that other processes find this one again. Returns true if there is a new socket to
    /// [watch](super::Watch::renew). Never waits: if the group's lock is not free, it does nothing.
    ///
    /// # Errors
    /// [`RendezvousError::IdInUse`] if another process has this address by now, or what the system
    /// refuses.
    pub fn restore(&mut self) -> Result<bool, RendezvousError> {
        if self.spot.is_in_place() {
            return Ok(false);
        }
        let place = &self.spot.place;
        let Some(lock) = place.try_lock()? else { return Ok(false) };
        let (spot, mark) = (place.address(self.id)?, place.mark(self.id)?);
        let (made, incarnation) = {
            let state = self.spot.state();
            (state.made, state.member)
        };
        let mut fresh = None;
        if spot.found() != Some(made) {
            if self.probe.answers(&spot)? {
                return Err(RendezvousError::IdInUse {
                    id: self.id,
                    group: place.group.clone(),
                    path: place.shown(self.id),
                });
            }
            spot.remove()?;
            if mark.found() != Some(made) || mark.link(&spot).is_err() {
                let (socket, made) = bind_at(&spot)?;
                self.spot.state().made = made;
                fresh = Some(socket);
            }
        }
        if let Some(incarnation) = incarnation {
            if lock.incarnation()?.is_none() {
                lock.set_incarnation(incarnation)?;
            }
            self.spot.put_mark(&lock, incarnation)?;
        }
        if self.given && lock.highest_given()? < self.id.0 {
            lock.set_highest_given(self.id.0)?;
        }
        drop(lock);
        self._cleaners_out = keep_cleaners_out(&self.spot.place.dir);
        info!(target: TARGET, me = self.id.0, address = %self.spot.shown().display(), "address is made again");
        let Some(socket) = fresh else { return Ok(false) };
        self.old.push(std::mem::replace(&mut self.socket, socket));
        if self.old.len() > OLD_SOCKETS_MAX {
            // Processes that still use it find the newest.
            self.old.remove(0);
        }
        Ok(true)
    }

    /// Returns the address, which shows whether [`restore`](Self::restore) has anything to do.
    pub(super) fn address(&self) -> &Arc<SocketAddress> {
        &self.spot
    }

    fn peers(&self) -> MutexGuard<'_, BTreeMap<MemberId, OwnedFd>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the id of its owner.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// Returns what was discarded so far.
    pub fn dropped(&self) -> ControlSocketDrops {
        self.dropped
    }

    /// Returns whether the last [`receive`](Self::receive) left a control message in the queue
    /// because this process has no room for its descriptors. The control message is not lost:
    /// receive it after a moment, or raise the limit (`ulimit -n`). Until then the descriptor is
    /// readable, and nothing is received.
    pub fn is_starved(&self) -> bool {
        self.starved
    }

    /// Returns whether the last [`receive`](Self::receive) found the queue empty. If a process had
    /// ended by then, all of its control messages were received. That does not hold if this process
    /// [is starved](Self::is_starved), or if the queue was full of garbage.
    pub fn is_drained(&self) -> bool {
        self.drained
    }

    pub(super) fn bind_member(
        place: &GroupFiles,
        id: MemberId,
        lock: &GroupLock,
        given: bool,
    ) -> Result<ControlSocket, RendezvousError> {
        if id.0 >= CLIENT_IDS_FROM {
            return Err(RendezvousError::IdReserved { id });
        }
        // The directory may be new, and that process about to make its socket again.
        if place.key.has(id)? {
            return Err(RendezvousError::IdInUse { id, path: place.shown(id), group: place.group.clone() });
        }
        Self::bind(place, id, lock, given)
    }

    fn bind(
        place: &GroupFiles,
        id: MemberId,
        _held: &GroupLock,
        given: bool,
    ) -> Result<ControlSocket, RendezvousError> {
        let (spot, mark) = (place.address(id)?, place.mark(id)?);
        if Probe::new()?.answers(&spot)? {
            return Err(RendezvousError::IdInUse { id, path: place.shown(id), group: place.group.clone() });
        }
        mark.remove()?;
        spot.remove()?;
        let (socket, made) = bind_at(&spot)?;
        let (bytes, dropped) = (vec![0; CONTROL_MESSAGE_BYTES_MAX], ControlSocketDrops::default());
        let (starved, drained, probe, old, peers) = (false, false, Probe::new()?, vec![], Mutex::default());
        let _cleaners_out = keep_cleaners_out(&place.dir);
        let name = if id.0 < CLIENT_IDS_FROM { place.key.wait(id)? } else { None };
        let state = Mutex::new(AddressState { made, member: None, name });
        let spot = Arc::new(SocketAddress { place: place.clone(), id, owner: Owner::new(), state });
        Ok(Self { spot, id, socket, old, peers, given, bytes, dropped, starved, drained, probe, _cleaners_out })
    }

    pub(super) fn create_under(
        &self,
        lock: &GroupLock,
        Census { addressees, members }: Census,
    ) -> Result<CreateOutcome, RendezvousError> {
        if !members.is_empty() {
            return Ok(CreateOutcome::Joiner { members });
        }
        // In a new group all ids are new, except those of processes that wait already.
        let highest = lock.highest_given()?;
        let given = addressees.iter().map(|id| id.0).chain([self.id.0]).filter(|id| *id <= highest);
        lock.set_highest_given(given.max().unwrap_or(0))?;
        let incarnation = random().map_err(|source| RendezvousError::io("draw random bits", None, source))?;
        // Before the mark, so that a process that finds the mark finds the incarnation.
        lock.set_incarnation(incarnation)?;
        self.spot.put_mark(lock, incarnation)?;
        Ok(CreateOutcome::Founder { incarnation })
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if self.spot.owner.is_copy() {
            return;
        }
        self.leave();
        let place = &self.spot.place;
        self.spot.remove_mine(place.address(self.id).ok());
        // The last process to leave removes the lock file, unless another one comes just now.
        if place.is_deserted()
            && let Ok(Some(lock)) = place.try_lock()
        {
            place.remove_if_deserted(lock);
        }
    }
}

/// Runs an action under the lock, and repeats it if files that it makes are removed meanwhile, with
/// or without their directory.
pub(super) fn again_if_it_vanishes<T>(
    attempt: impl FnMut() -> Result<T, RendezvousError>,
) -> Result<T, RendezvousError> {
    let is_missing = |source: &io::Error| source.kind() == io::ErrorKind::NotFound;
    again_if(|error| matches!(error, RendezvousError::Io { source, .. } if is_missing(source)), attempt)
}

/// Returns the smallest id from `from` on that no process has; `taken` is ascending.
pub(super) fn smallest_free(from: u64, taken: &[MemberId]) -> MemberId {
    let mut free = from;
    for id in taken.iter().filter(|id| id.0 >= from) {
        if id.0 != free {
            break;
        }
        free += 1;
    }
    MemberId(free)
}

/// Takes the lock for calls that have no deadline of their own.
fn lock_briefly(place: &GroupFiles) -> Result<GroupLock, RendezvousError> {
    place.lock(Instant::now() + LOCK_WAIT, &AtomicBool::new(false))
}

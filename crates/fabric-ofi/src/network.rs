//! The parts that all meetings of a process share: the adapter with its queues, the listener, and
//! the table that says to which view each connection belongs.
//!
//! A process has one [`OfiNetwork`] for as long as it is a member. Each of its meetings has a [`ViewDesk`]
//! there, for one view. All of them read the same queues. If a desk finds an entry for another
//! desk, it puts the entry into that desk's tray. So a completion reaches its connection whichever
//! desk looks first. No entry of one view is taken for one of another view, because each connection
//! has a number and each call names its view.
use crate::address::OfiAddress;
use crate::error::OfiError;
use crate::hello::{LinkPurpose, OfiHello};
use crate::limits::TRAY_EVENTS_MAX;
use crate::objects::{Adapter, Completion, ConnectionEvent, EndpointId, PassiveEndpoint, Registered};
use spindle_fabric::OwnRegion;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The access of one process to others through libfabric.
#[derive(Debug)]
pub(crate) struct OfiNetwork {
    // Closed from the top. Registrations keep the adapter.
    rows: Mutex<Vec<RegisteredRow>>,
    pub(crate) listener: PassiveEndpoint,
    adapter: Arc<Adapter>,
    address: OfiAddress,
    /// Completions of one connection that may wait to be read.
    each: u64,
    numbers: AtomicU32,
    keys: AtomicU64,
    desks: Mutex<Desks>,
    /// True if there is no room for other connections.
    #[cfg(test)]
    pub(crate) is_full: AtomicBool,
}

/// Memory of this member's rows that is registered for reading. It stays registered when another
/// row takes the place.
#[derive(Debug)]
struct RegisteredRow {
    range: Range<usize>,
    /// The memory of which the row is a range.
    memory: Arc<dyn Any + Send + Sync>,
    registered: Arc<Registered>,
}

#[derive(Debug, Default)]
struct Desks {
    desks: Vec<Arc<Tray>>,
    /// Connections by their numbers.
    connections: BTreeMap<u32, ConnectionOwner>,
    /// For each queue, the number of connections that it has room for, and the number that it has.
    queues: Vec<(u32, u32)>,
}

/// The owner of a connection.
#[derive(Debug)]
struct ConnectionOwner {
    queue: usize,
    /// Set once there is an endpoint.
    endpoint: Option<EndpointId>,
    tray: Arc<Tray>,
}

/// Entries of one view that other desks have found.
#[derive(Debug)]
struct Tray {
    purpose: LinkPurpose,
    /// True if the tray may have entries: a hint.
    is_full: AtomicBool,
    queues: Mutex<Queues>,
}

/// The entries of a tray.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(crate) completions: VecDeque<Completion>,
    pub(crate) events: VecDeque<ConnectionEvent>,
}

/// A view's share of the network.
#[derive(Debug)]
pub(crate) struct ViewDesk {
    network: Arc<OfiNetwork>,
    tray: Arc<Tray>,
}

/// The room of one connection in a queue, and its number.
#[derive(Debug)]
pub(crate) struct EndpointAddress {
    network: Arc<OfiNetwork>,
    number: u32,
    queue: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OfiNetwork {
    /// Creates a network with room for `links` connections at first, each of which may have `each`
    /// completions that wait to be read.
    ///
    /// # Errors
    /// The provider refuses a queue of that length.
    pub(crate) fn new(
        adapter: Arc<Adapter>,
        listener: PassiveEndpoint,
        address: OfiAddress,
        (links, each): (u32, u64),
    ) -> Result<Arc<OfiNetwork>, OfiError> {
        let (rows, numbers, keys, desks) = Default::default();
        let network = OfiNetwork {
            rows,
            listener,
            adapter,
            address,
            each,
            numbers,
            keys,
            desks,
            #[cfg(test)]
            is_full: AtomicBool::new(false),
        };
        network.add_queue(&mut lock(&network.desks), links.max(1))?;
        Ok(Arc::new(network))
    }

    fn add_queue(&self, desks: &mut Desks, links: u32) -> Result<(), OfiError> {
        let entries = u64::from(links) * self.each;
        let provider = || self.adapter.info().provider();
        let opened = self.adapter.open_queue(entries);
        opened.map_err(|source| OfiError::Queue { provider: provider(), entries, source })?;
        desks.queues.push((links, 0));
        Ok(())
    }

    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    pub(crate) fn address(&self) -> &OfiAddress {
        &self.address
    }

    /// Creates a desk for the view of `purpose`.
    pub(crate) fn desk(self: &Arc<Self>, purpose: LinkPurpose) -> ViewDesk {
        let tray = Arc::new(Tray { purpose, is_full: AtomicBool::new(false), queues: Mutex::default() });
        lock(&self.desks).desks.push(Arc::clone(&tray));
        ViewDesk { network: Arc::clone(self), tray }
    }
}

impl ViewDesk {
    pub(crate) fn network(&self) -> &Arc<OfiNetwork> {
        &self.network
    }

    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.network.adapter
    }

    /// Returns a key that no memory of this network has had, for providers that require the caller
    /// to choose one.
    pub(crate) fn key(&self) -> u64 {
        self.network.keys.fetch_add(1, Ordering::Relaxed)
    }

    /// Allocates a number for another connection, and room in a queue: in a new one if the others
    /// are full.
    ///
    /// # Errors
    /// The provider refuses another queue.
    pub(crate) fn place(&self) -> Result<EndpointAddress, OfiError> {
        let network = &self.network;
        #[cfg(test)]
        if network.is_full.load(Ordering::Relaxed) {
            let provider = network.adapter.info().provider();
            return Err(OfiError::Limit { provider, what: "a test", allowed: 0, needed: 1 });
        }
        let mut desks = lock(&network.desks);
        let has_room = |(room, taken): &(u32, u32)| taken < room;
        let queue = match desks.queues.iter().position(has_room) {
            Some(queue) => queue,
            None => {
                let links = desks.queues.iter().map(|(room, _)| room).sum();
                network.add_queue(&mut desks, links)?;
                desks.queues.len() - 1
            }
        };
        desks.queues[queue].1 += 1;
        // Live connections never have numbers so far apart that two would be equal.
        let number = network.numbers.fetch_add(1, Ordering::Relaxed);
        let connection = ConnectionOwner { queue, endpoint: None, tray: Arc::clone(&self.tray) };
        desks.connections.insert(number, connection);
        drop(desks);
        Ok(EndpointAddress { network: Arc::clone(network), number, queue })
    }

    /// Returns true if other desks have found entries for this one.
    #[inline]
    pub(crate) fn has_messages(&self) -> bool {
        self.tray.is_full.load(Ordering::Acquire)
    }

    pub(crate) fn take_completions(&self) -> VecDeque<Completion> {
        let mut queues = lock(&self.tray.queues);
        self.tray.is_full.store(!queues.events.is_empty(), Ordering::Release);
        mem::take(&mut queues.completions)
    }

    pub(crate) fn take_events(&self) -> VecDeque<ConnectionEvent> {
        let mut queues = lock(&self.tray.queues);
        self.tray.is_full.store(!queues.completions.is_empty(), Ordering::Release);
        mem::take(&mut queues.events)
    }

    /// Passes on a completion of the connection `number`, which is not this desk's. Returns true if
    /// it is another desk's.
    #[cold]
    pub(crate) fn pass_on(&self, number: u32, completion: Completion) -> bool {
        let desks = lock(&self.network.desks);
        let Some(ConnectionOwner { tray, .. }) = desks.connections.get(&number) else { return false };
        let is_others = !Arc::ptr_eq(tray, &self.tray);
        if is_others {
            tray.put(|queues| queues.completions.push_back(completion));
        }
        is_others
    }

    /// Passes on to all other desks a completion that concerns all connections.
    #[cold]
    pub(crate) fn tell_all(&self, completion: Completion) {
        let desks = lock(&self.network.desks);
        let others = desks.desks.iter().filter(|tray| !Arc::ptr_eq(tray, &self.tray));
        others.for_each(|tray| tray.put(|queues| queues.completions.push_back(completion)));
    }

    /// Passes on an event if it is another desk's, or returns it if it is this desk's, or belongs
    /// to none.
    #[cold]
    pub(crate) fn sort(&self, event: ConnectionEvent) -> Option<ConnectionEvent> {
        let desks = lock(&self.network.desks);
        let owner = match &event {
            ConnectionEvent::Request { data, .. } => {
                let purpose = OfiHello::purpose(data);
                desks.desks.iter().find(|tray| Some(tray.purpose) == purpose)
            }
            ConnectionEvent::Connected { endpoint, .. }
            | ConnectionEvent::Shutdown { endpoint }
            | ConnectionEvent::Failed { endpoint, .. } => {
                let is_its = |other: &&ConnectionOwner| other.endpoint == Some(*endpoint);
                desks.connections.values().find(is_its).map(|connection| &connection.tray)
            }
            ConnectionEvent::Other => None,
        };
        let Some(tray) = owner.filter(|tray| !Arc::ptr_eq(tray, &self.tray)) else { return Some(event) };
        let is_call = matches!(event, ConnectionEvent::Request { .. });
        if is_call && lock(&tray.queues).events.len() >= TRAY_EVENTS_MAX {
            return Some(event);
        }
        tray.put(|queues| queues.events.push_back(event));
        None
    }

    /// Drops the events of a connection that is about to be closed, because another endpoint may
    /// get the address of this one.
    pub(crate) fn forget_events(&self, closing: EndpointId) {
        lock(&self.tray.queues).events.retain(|event| !event.is_of(closing));
    }

    /// Lets the network read `range` of `row`, unless it may already.
    ///
    /// # Errors
    /// The memory can't be registered.
    pub(crate) fn register_row(&self, row: &OwnRegion, range: &Range<u64>) -> Result<Arc<Registered>, OfiError> {
        let (start, bytes) = (row.pointer(range), range.end - range.start);
        let wanted = start.addr().get()..start.addr().get() + bytes as usize;
        let mut rows = lock(&self.network.rows);
        let memory = row.memory();
        // Drops memory that the arena has given up and that only this keeps.
        rows.retain(|other| Arc::strong_count(&other.memory) > OWN_COPIES || Arc::strong_count(&other.registered) > 1);
        if let Some(known) = rows.iter().find(|other| other.range == wanted) {
            return Ok(Arc::clone(&known.registered));
        }
        // The memory contained rows of another length.
        let overlaps = |other: &Range<usize>| other.start < wanted.end && wanted.start < other.end;
        rows.retain(|other| !overlaps(&other.range) || Arc::strong_count(&other.registered) > 1);
        let registered = register_row(self, &memory, row, range, None)?;
        let registered = Arc::new(registered);
        rows.push(RegisteredRow { range: wanted, memory, registered: Arc::clone(&registered) });
        Ok(registered)
    }
}

/// A [`RegisteredRow`] keeps the memory, and so does its registration.
const OWN_COPIES: usize = 2;

/// Lets the network read `range` of `row`, which is a range of `memory`.
pub(crate) fn register_row(
    desk: &ViewDesk,
    memory: &Arc<dyn Any + Send + Sync>,
    row: &OwnRegion,
    range: &Range<u64>,
    endpoint: Option<&crate::objects::ActiveEndpoint>,
) -> Result<Registered, OfiError> {
    let (start, bytes) = (row.pointer(range), range.end - range.start);
    let access = crate::ffi::FI_WRITE;
    // SAFETY: the range is inside the row, which is inside the memory, which is kept.
    let registered = unsafe { desk.adapter().register(Arc::clone(memory), start, bytes, access, desk.key(), endpoint) };
    registered.map_err(|source| OfiError::Registration { what: "my row".to_string(), bytes, source })
}

impl Drop for ViewDesk {
    fn drop(&mut self) {
        let mut desks = lock(&self.network.desks);
        desks.desks.retain(|tray| !Arc::ptr_eq(tray, &self.tray));
    }
}

impl Tray {
    fn put(&self, add: impl FnOnce(&mut Queues)) {
        add(&mut lock(&self.queues));
        self.is_full.store(true, Ordering::Release);
    }
}

impl EndpointAddress {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Returns the number of its queue.
    pub(crate) fn queue(&self) -> usize {
        self.queue
    }

    /// Sets the endpoint of the connection.
    pub(crate) fn take(&self, endpoint: EndpointId) {
        if let Some(connection) = lock(&self.network.desks).connections.get_mut(&self.number) {
            connection.endpoint = Some(endpoint);
        }
    }

    /// Gives the connection to another view.
    pub(crate) fn give_to(&self, desk: &ViewDesk) {
        if let Some(connection) = lock(&self.network.desks).connections.get_mut(&self.number) {
            connection.tray = Arc::clone(&desk.tray);
        }
    }
}

impl Drop for EndpointAddress {
    fn drop(&mut self) {
        let mut desks = lock(&self.network.desks);
        if let Some(ConnectionOwner { queue, .. }) = desks.connections.remove(&self.number) {
            desks.queues[queue].1 -= 1;
        }
    }
}

//! libfabric's objects. Each is closed when it is dropped, and after the objects that depend on it.
//!
//! Read [`Adapter`] first: the fabric, the domain and the queues, one adapter for a process. A
//! [`PassiveEndpoint`], an [`ActiveEndpoint`] and a [`Registered`] piece of memory hold it, so it is closed
//! after them. An owner of several of these determines the order of closing by the order of its
//! fields (endpoints before memory: nothing may move when a registration ends).
//!
//! Several views have objects of one adapter, and nothing keeps their owners on one thread. So the
//! library is asked for objects that any thread may use at any time (`FI_THREAD_SAFE`).
use crate::error::{CallFailure, outcome};
use crate::ffi::{self, *};
use crate::info::Info;
use libc::{c_int, c_void, iovec};
use std::any::Any;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of connection data that are read.
const DATA_BYTES_MAX: usize = 256;
/// Queues of completions of one adapter, each as long as all before it: enough for the largest
/// group if the first is for 64 connections.
const QUEUES_MAX: usize = 6;
/// Bytes of an address that are read.
const ADDRESS_BYTES_MAX: usize = 128;

/// Calls a function of one of the tables that an object carries. Missing functions return the same
/// error as libfabric's.
macro_rules! call {
    ($name:literal, $object:expr, $table:ident.$method:ident($($arg:expr),*)) => {{
        let object = $object;
        // SAFETY: the library made the object, and it is open as long as its owner here lives.
        let table = unsafe { ptr::addr_of!((*object.as_ptr()).$table).read() };
        // SAFETY: the library fills in the table, which lives as long as the object.
        let method = unsafe { ptr::addr_of!((*table).$method).read() };
        match method {
            // SAFETY: it has that type (`ffi.rs`), and the call site passes valid arguments.
            Some(method) => outcome($name, unsafe { method($($arg),*) } as i64),
            None => Err(CallFailure { call: $name, code: FI_ENOSYS }),
        }
    }};
}

/// Closes the object that it holds. `T` begins with a [`Fid`].
struct OwnedFid<T>(NonNull<T>);

// SAFETY: the library binds no object to a thread.
unsafe impl<T> Send for OwnedFid<T> {}
// SAFETY: the library was asked for objects that all threads may use at the same time
// (`provider.rs`).
unsafe impl<T> Sync for OwnedFid<T> {}

impl<T> OwnedFid<T> {
    /// # Safety
    /// `raw` is null, or an open object that no other code closes.
    unsafe fn of(call: &'static str, raw: *mut T) -> Result<OwnedFid<T>, CallFailure> {
        NonNull::new(raw).map(OwnedFid).ok_or(CallFailure { call, code: FI_ENOSYS })
    }

    fn fid(&self) -> NonNull<Fid> {
        self.0.cast()
    }

    fn control(&self, call: &'static str, command: c_int, argument: *mut c_void) -> Result<u64, CallFailure> {
        let fid = self.fid();
        call!("fi_control", fid, ops.control(fid.as_ptr(), command, argument))
            .map_err(|failure| CallFailure { call, ..failure })
    }

    fn bind<O>(&self, call: &'static str, other: &OwnedFid<O>, flags: u64) -> Result<u64, CallFailure> {
        let fid = self.fid();
        call!("fi_bind", fid, ops.bind(fid.as_ptr(), other.fid().as_ptr(), flags))
            .map_err(|failure| CallFailure { call, ..failure })
    }
}

impl<T> Drop for OwnedFid<T> {
    fn drop(&mut self) {
        let fid = self.fid();
        let closed = call!("fi_close", fid, ops.close(fid.as_ptr()));
        debug_assert!(closed.is_ok(), "{closed:?}");
    }
}

impl<T> fmt::Debug for OwnedFid<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

/// The objects that exist once per process: the access to a network, and the queues of its events.
#[derive(Debug)]
pub(crate) struct Adapter {
    // Closed from the top.
    queues: [OnceLock<CompletionQueue>; QUEUES_MAX],
    events: OwnedFid<FidEq>,
    domain: OwnedFid<FidDomain>,
    fabric: OwnedFid<FidFabric>,
    info: Info,
    events_fd: RawFd,
    /// The number of queues.
    open_queues: AtomicUsize,
}

/// A queue of completions, whose descriptor becomes readable when there is one.
#[derive(Debug)]
struct CompletionQueue {
    object: OwnedFid<FidCq>,
    fd: RawFd,
}

/// An operation that has ended. Its context is the one that it was started with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Completion {
    Done { context: usize, bytes: usize },
    Failed { context: usize, code: i32 },
}

/// An event of a connection.
#[derive(Debug)]
pub(crate) enum ConnectionEvent {
    Request { info: Info, data: Vec<u8> },
    Connected { endpoint: EndpointId, data: Vec<u8> },
    Shutdown { endpoint: EndpointId },
    Failed { endpoint: EndpointId, code: i32 },
    Other,
}

impl ConnectionEvent {
    /// Returns true if it is an event of the connection over this endpoint.
    pub(crate) fn is_of(&self, of: EndpointId) -> bool {
        match self {
            ConnectionEvent::Connected { endpoint, .. }
            | ConnectionEvent::Shutdown { endpoint }
            | ConnectionEvent::Failed { endpoint, .. } => *endpoint == of,
            ConnectionEvent::Request { .. } | ConnectionEvent::Other => false,
        }
    }
}

/// An identity of open endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EndpointId(usize);

impl Adapter {
    /// Opens the adapter that `info` describes, without a queue of completions.
    pub(crate) fn open(info: Info) -> Result<Arc<Adapter>, CallFailure> {
        let mut raw = ptr::null_mut();
        // SAFETY: the info's attributes are whole.
        let code = unsafe { (info.library().fabric)(info.fabric_attributes(), &raw mut raw, ptr::null_mut()) };
        outcome("fi_fabric", code)?;
        // SAFETY: it was just made.
        let fabric = unsafe { OwnedFid::of("fi_fabric", raw) }?;
        let mut raw = ptr::null_mut();
        let of = fabric.0;
        call!("fi_domain", of, ops.domain(of.as_ptr(), info.as_ptr(), &raw mut raw, ptr::null_mut()))?;
        // SAFETY: as above.
        let domain = unsafe { OwnedFid::of("fi_domain", raw) }?;
        let (mut raw, wait_set) = (ptr::null_mut(), ptr::null_mut());
        let mut attr = EqAttr { size: 0, flags: 0, wait_obj: FI_WAIT_FD, signaling_vector: 0, wait_set };
        call!("fi_eq_open", of, ops.eq_open(of.as_ptr(), &raw mut attr, &raw mut raw, ptr::null_mut()))?;
        // SAFETY: as above.
        let events = unsafe { OwnedFid::of("fi_eq_open", raw) }?;
        let events_fd = descriptor(&events)?;
        let (queues, open_queues) = Default::default();
        Ok(Arc::new(Adapter { queues, events, domain, fabric, info, events_fd, open_queues }))
    }

    /// Opens another queue, with room for `completions` unread ones. It has the next number.
    ///
    /// # Errors
    /// The provider refuses it, or the maximum number of queues exists already.
    pub(crate) fn open_queue(&self, completions: u64) -> Result<(), CallFailure> {
        let call = "fi_cq_open";
        let place = self.queues.iter().find(|queue| queue.get().is_none());
        let place = place.ok_or(CallFailure { call, code: libc::ENOSPC })?;
        let (mut raw, of) = (ptr::null_mut(), self.domain.0);
        let mut attr = CqAttr {
            size: completions as usize,
            flags: 0,
            format: FI_CQ_FORMAT_MSG,
            wait_obj: FI_WAIT_FD,
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: ptr::null_mut(),
        };
        call!("fi_cq_open", of, ops.cq_open(of.as_ptr(), &raw mut attr, &raw mut raw, ptr::null_mut()))?;
        // SAFETY: it was just made.
        let object = unsafe { OwnedFid::of(call, raw) }?;
        let fd = descriptor(&object)?;
        if place.set(CompletionQueue { object, fd }).is_ok() {
            self.open_queues.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Returns the number of queues. They have the numbers from 0 on.
    #[inline]
    pub(crate) fn queues(&self) -> usize {
        self.open_queues.load(Ordering::Acquire)
    }

    fn queue(&self, number: usize) -> Option<&CompletionQueue> {
        self.queues.get(number)?.get()
    }

    pub(crate) fn info(&self) -> &Info {
        &self.info
    }

    /// Returns the descriptor that becomes readable when there is an event. The caller calls
    /// [`may_sleep`](Self::may_sleep) before it waits for the descriptor.
    pub(crate) fn events_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the queue owns it, and lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(self.events_fd) }
    }

    /// Returns the same for completions in the queue of this `number`, if there is one.
    pub(crate) fn completions_fd(&self, number: usize) -> Option<BorrowedFd<'_>> {
        let fd = self.queue(number)?.fd;
        // SAFETY: the queue owns it, and is closed with `self`.
        Some(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Returns true if there is nothing to read, so that the descriptors report the next event.
    pub(crate) fn may_sleep(&self) -> bool {
        let mut fids = [self.events.fid().as_ptr(); QUEUES_MAX + 1];
        let queues = self.queues.iter().map_while(OnceLock::get);
        let count = 1 + queues.zip(&mut fids[1..]).map(|(queue, fid)| *fid = queue.object.fid().as_ptr()).count();
        let of = self.fabric.0;
        call!("fi_trywait", of, ops.trywait(of.as_ptr(), fids.as_mut_ptr(), count as c_int)).is_ok()
    }

    /// Lets the provider work, and takes completions of the queue of this `number` into the
    /// beginning of `into`. Returns their number.
    ///
    /// # Errors
    /// The queue is no longer usable.
    pub(crate) fn completions(&self, number: usize, into: &mut [Completion]) -> Result<usize, CallFailure> {
        let Some(queue) = self.queue(number) else { return Ok(0) };
        const NONE: CqMsgEntry = CqMsgEntry { op_context: ptr::null_mut(), flags: 0, len: 0 };
        let mut entries = [NONE; 16];
        let most = into.len().min(entries.len());
        let of = queue.object.0;
        match call!("fi_cq_read", of, ops.read(of.as_ptr(), entries.as_mut_ptr().cast(), most)) {
            Ok(count) => {
                let count = (count as usize).min(most);
                for (completion, entry) in into.iter_mut().zip(&entries[..count]) {
                    *completion = Completion::Done { context: entry.op_context.addr(), bytes: entry.len };
                }
                Ok(count)
            }
            Err(CallFailure { code: FI_EAGAIN, .. }) => Ok(0),
            Err(CallFailure { code: FI_EAVAIL, .. }) => {
                // SAFETY: all zeros are a valid, empty entry.
                let mut entry: CqErrEntry = unsafe { MaybeUninit::zeroed().assume_init() };
                match call!("fi_cq_readerr", of, ops.readerr(of.as_ptr(), &raw mut entry, 0)) {
                    Ok(_) => {
                        into[0] = Completion::Failed { context: entry.op_context.addr(), code: entry.err };
                        Ok(1)
                    }
                    Err(CallFailure { code: FI_EAGAIN, .. }) => Ok(0),
                    Err(failure) => Err(failure),
                }
            }
            Err(failure) => Err(failure),
        }
    }

    /// Takes an event, if there is one.
    ///
    /// # Errors
    /// The queue is no longer usable.
    pub(crate) fn event(&self) -> Result<Option<ConnectionEvent>, CallFailure> {
        const ENTRY: usize = size_of::<EqCmEntry>();
        // Words, so that it is aligned.
        let mut buffer = [0u64; (ENTRY + DATA_BYTES_MAX) / 8];
        let mut kind = 0;
        let of = self.events.0;
        let (into, room) = (buffer.as_mut_ptr().cast::<u8>(), size_of_val(&buffer));
        let read = call!("fi_eq_read", of, ops.read(of.as_ptr(), &raw mut kind, into.cast(), room, 0));
        let bytes = match read {
            Ok(bytes) => (bytes as usize).min(room),
            Err(CallFailure { code: FI_EAGAIN, .. }) => return Ok(None),
            Err(CallFailure { code: FI_EAVAIL, .. }) => {
                // SAFETY: all zeros are a valid, empty entry.
                let mut entry: EqErrEntry = unsafe { MaybeUninit::zeroed().assume_init() };
                return match call!("fi_eq_readerr", of, ops.readerr(of.as_ptr(), &raw mut entry, 0)) {
                    Ok(_) => {
                        Ok(Some(ConnectionEvent::Failed { endpoint: EndpointId(entry.fid.addr()), code: entry.err }))
                    }
                    Err(CallFailure { code: FI_EAGAIN, .. }) => Ok(None),
                    Err(failure) => Err(failure),
                };
            }
            Err(failure) => return Err(failure),
        };
        if ![FI_CONNREQ, FI_CONNECTED, FI_SHUTDOWN].contains(&kind) || bytes < ENTRY {
            return Ok(Some(ConnectionEvent::Other));
        }
        // SAFETY: the events of connections begin with this, and the buffer has room for it,
        // aligned.
        let entry = unsafe { into.cast::<EqCmEntry>().read() };
        let data = || buffer.iter().flat_map(|word| word.to_ne_bytes()).take(bytes).skip(ENTRY).collect();
        let endpoint = EndpointId(entry.fid.addr());
        Ok(Some(match kind {
            FI_CONNREQ => ConnectionEvent::Request { info: Info::of(self.info.library(), entry.info)?, data: data() },
            FI_CONNECTED => ConnectionEvent::Connected { endpoint, data: data() },
            _ => ConnectionEvent::Shutdown { endpoint },
        }))
    }

    /// Begins to listen.
    pub(crate) fn listen(self: &Arc<Self>) -> Result<PassiveEndpoint, CallFailure> {
        let (mut raw, of) = (ptr::null_mut(), self.fabric.0);
        let info = self.info.as_ptr();
        call!("fi_passive_ep", of, ops.passive_ep(of.as_ptr(), info, &raw mut raw, ptr::null_mut()))?;
        // SAFETY: it was just made.
        let object = unsafe { OwnedFid::of("fi_passive_ep", raw) }?;
        object.bind("fi_pep_bind", &self.events, 0)?;
        let of = object.0;
        call!("fi_listen", of, cm.listen(of.as_ptr()))?;
        Ok(PassiveEndpoint { object, _adapter: self.clone() })
    }

    /// Creates an endpoint for a call to `address`, whose operations complete in the queue of this
    /// number.
    pub(crate) fn endpoint_to(self: &Arc<Self>, queue: usize, address: &[u8]) -> Result<ActiveEndpoint, CallFailure> {
        let mut hints = self.info.try_clone()?;
        hints.lead_to(address)?;
        self.endpoint_for(queue, &hints)
    }

    /// Creates an endpoint to answer a request.
    pub(crate) fn endpoint_for(self: &Arc<Self>, queue: usize, info: &Info) -> Result<ActiveEndpoint, CallFailure> {
        let queue = self.queue(queue).ok_or(CallFailure { call: "fi_ep_bind", code: libc::EINVAL })?;
        let (mut raw, of) = (ptr::null_mut(), self.domain.0);
        call!("fi_endpoint", of, ops.endpoint(of.as_ptr(), info.as_ptr(), &raw mut raw, ptr::null_mut()))?;
        // SAFETY: it was just made.
        let object = unsafe { OwnedFid::of("fi_endpoint", raw) }?;
        object.bind("fi_ep_bind", &self.events, 0)?;
        object.bind("fi_ep_bind", &queue.object, FI_SEND | FI_RECV)?;
        object.control("fi_enable", FI_ENABLE, ptr::null_mut())?;
        Ok(ActiveEndpoint { object, _adapter: self.clone() })
    }

    /// Lets the network access `bytes` bytes of `memory`, which is kept for as long as that.
    ///
    /// # Safety
    /// The bytes at `start` belong to `memory`, and live as long as it does.
    pub(crate) unsafe fn register(
        self: &Arc<Self>,
        memory: Arc<dyn Any + Send + Sync>,
        start: NonNull<u8>,
        bytes: u64,
        access: u64,
        key: u64,
        endpoint: Option<&ActiveEndpoint>,
    ) -> Result<Registered, CallFailure> {
        let (mut raw, of) = (ptr::null_mut(), self.domain.0);
        let (fid, at) = (self.domain.fid().as_ptr(), start.as_ptr().cast_const().cast());
        call!("fi_mr_reg", of, mr.reg(fid, at, bytes as usize, access, 0, key, 0, &raw mut raw, ptr::null_mut()))?;
        // SAFETY: it was just made.
        let object = unsafe { OwnedFid::of("fi_mr_reg", raw) }?;
        if let Some(endpoint) = endpoint {
            object.bind("fi_mr_bind", &endpoint.object, 0)?;
            object.control("fi_mr_enable", FI_ENABLE, ptr::null_mut())?;
        }
        Ok(Registered { object, start, _memory: memory, adapter: self.clone() })
    }
}

fn descriptor<T>(queue: &OwnedFid<T>) -> Result<RawFd, CallFailure> {
    let mut fd: c_int = -1;
    queue.control("fi_control(FI_GETWAIT)", FI_GETWAIT, (&raw mut fd).cast())?;
    if fd < 0 { Err(CallFailure { call: "fi_control(FI_GETWAIT)", code: FI_ENOSYS }) } else { Ok(fd) }
}

/// A listener that accepts calls.
#[derive(Debug)]
pub(crate) struct PassiveEndpoint {
    object: OwnedFid<FidPep>,
    _adapter: Arc<Adapter>,
}

impl PassiveEndpoint {
    /// Returns the address at which it listens, in the provider's form.
    pub(crate) fn address(&self) -> Result<Vec<u8>, CallFailure> {
        let mut address = [0u8; ADDRESS_BYTES_MAX];
        let mut len = address.len();
        let of = self.object.0;
        let fid = self.object.fid().as_ptr();
        call!("fi_getname", of, cm.getname(fid, address.as_mut_ptr().cast(), &raw mut len))?;
        Ok(address[..len.min(ADDRESS_BYTES_MAX)].to_vec())
    }

    /// Returns the bytes that can be sent along with a call or an answer; `None` if the provider
    /// does not report it.
    pub(crate) fn data_bytes_max(&self) -> Option<u64> {
        let (mut bytes, mut len) = (0usize, size_of::<usize>());
        let of = self.object.0;
        let fid = self.object.fid().as_ptr();
        let into = (&raw mut bytes).cast();
        call!("fi_getopt", of, ops.getopt(fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, into, &raw mut len)).ok()?;
        Some(bytes as u64)
    }

    /// Refuses a request.
    pub(crate) fn reject(&self, request: &Info) -> Result<(), CallFailure> {
        let of = self.object.0;
        call!("fi_reject", of, cm.reject(of.as_ptr(), request.handle(), ptr::null(), 0)).map(|_| ())
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct ActiveEndpoint {
    object: OwnedFid<FidEp>,
    _adapter: Arc<Adapter>,
}

/// A piece of registered memory, or of memory that needs none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) start: NonNull<u8>,
    pub(crate) bytes: u64,
    pub(crate) description: *mut c_void,
}

impl ActiveEndpoint {
    pub(crate) fn id(&self) -> EndpointId {
        EndpointId(self.object.0.addr().get())
    }

    pub(crate) fn connect(&self, address: &[u8], data: &[u8]) -> Result<(), CallFailure> {
        let of = self.object.0;
        let (to, data, len) = (address.as_ptr().cast(), data.as_ptr().cast(), data.len());
        call!("fi_connect", of, cm.connect(of.as_ptr(), to, data, len)).map(|_| ())
    }

    pub(crate) fn accept(&self, data: &[u8]) -> Result<(), CallFailure> {
        let of = self.object.0;
        call!("fi_accept", of, cm.accept(of.as_ptr(), data.as_ptr().cast(), data.len())).map(|_| ())
    }

    /// Reports to the other side that this one ends.
    pub(crate) fn shut_down(&self) {
        let of = self.object.0;
        // It may be shut down already.
        let _ = call!("fi_shutdown", of, cm.shutdown(of.as_ptr(), 0));
    }

    /// Starts to receive a message into the piece.
    ///
    /// # Safety
    /// The piece may be written, and no code reads it, until the operation has ended or the
    /// endpoint is closed.
    pub(crate) unsafe fn receive(&self, piece: Piece, context: usize) -> Result<(), CallFailure> {
        let of = self.object.0;
        let (at, context) = (piece.start.as_ptr().cast(), ptr::without_provenance_mut(context));
        call!("fi_recv", of, msg.recv(of.as_ptr(), at, piece.bytes as usize, piece.description, 0, context)).map(|_| ())
    }

    /// Sends a message.
    ///
    /// # Safety
    /// The piece does not change until the operation has ended or the endpoint is closed.
    pub(crate) unsafe fn send(&self, piece: Piece, context: usize, flags: u64) -> Result<(), CallFailure> {
        let iov = iovec { iov_base: piece.start.as_ptr().cast(), iov_len: piece.bytes as usize };
        let mut description = piece.description;
        let message = FiMsg {
            msg_iov: &raw const iov,
            desc: &raw mut description,
            iov_count: 1,
            addr: 0,
            context: ptr::without_provenance_mut(context),
            data: 0,
        };
        let of = self.object.0;
        call!("fi_sendmsg", of, msg.sendmsg(of.as_ptr(), &raw const message, flags)).map(|_| ())
    }

    /// Writes into the other side's memory, at `address` under `key`.
    ///
    /// # Safety
    /// As [`send`](Self::send).
    pub(crate) unsafe fn write(&self, piece: Piece, address: u64, key: u64, context: usize) -> Result<(), CallFailure> {
        let iov = iovec { iov_base: piece.start.as_ptr().cast(), iov_len: piece.bytes as usize };
        let there = RmaIov { addr: address, len: piece.bytes as usize, key };
        let mut description = piece.description;
        let message = FiMsgRma {
            msg_iov: &raw const iov,
            desc: &raw mut description,
            iov_count: 1,
            addr: 0,
            rma_iov: &raw const there,
            rma_iov_count: 1,
            context: ptr::without_provenance_mut(context),
            data: 0,
        };
        let of = self.object.0;
        call!("fi_writemsg", of, rma.writemsg(of.as_ptr(), &raw const message, ffi::FI_COMPLETION)).map(|_| ())
    }
}

/// Memory that the network may use.
#[derive(Debug)]
pub(crate) struct Registered {
    object: OwnedFid<FidMr>,
    start: NonNull<u8>,
    _memory: Arc<dyn Any + Send + Sync>,
    adapter: Arc<Adapter>,
}

// SAFETY: an address in memory that it keeps, beside objects that are Send.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    pub(crate) fn key(&self) -> u64 {
        // SAFETY: open as long as `self` is, and the key does not change.
        unsafe { self.object.0.as_ref() }.key
    }

    /// Returns the start address of the memory in a peer's requests.
    pub(crate) fn remote_start(&self) -> u64 {
        if self.adapter.info.memory_mode() & FI_MR_VIRT_ADDR != 0 { self.start.addr().get() as u64 } else { 0 }
    }

    /// Returns the descriptor of the memory for operations of this side.
    pub(crate) fn description(&self) -> *mut c_void {
        // SAFETY: as for the key.
        unsafe { self.object.0.as_ref() }.mem_desc
    }
}

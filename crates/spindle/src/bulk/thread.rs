//! A thread that serves bulk groups, and its handles.
use super::error::{BulkError, BulkSendError, DestroyError, PostError};
use super::event::{BulkEvent, BulkFailure, ObjectId};
use super::node::BulkNode;
use super::settings::BulkWaiting;
use crate::pace::{Idle, PollPace, SLEEP_MAX};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use spindle_fabric::bulk::{Buffer, Object, Segment};
use spindle_transport::waiting::wait_readable;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};

/// The application's part on the polling thread. It must not wait: all groups of the thread wait
/// with it.
pub trait BulkUpcalls: Send {
    /// Returns the memory for an object that is coming, of exactly this length. With `None`,
    /// [`post_receive_buffer`](BulkGroup::post_receive_buffer) has to be called later.
    fn allocate(&mut self, object: ObjectId, bytes: u64) -> Option<Buffer>;

    /// Takes an object that is all here; see [`BulkEvent::Complete`].
    fn complete(&mut self, object: ObjectId, data: Object);

    /// Reports at the root that every member has all of an object.
    fn everywhere(&mut self, _object: ObjectId) {}

    /// Reports at the root that a [submitted](BulkGroup::submit) object is not sent.
    fn refused(&mut self, _error: BulkSendError) {}

    /// Reports that the group is closed. It is the last upcall, and comes at most once.
    fn failed(&mut self, failure: BulkFailure);
}

/// A thread that serves any number of bulk groups. Dropping it ends it, and leaves all groups at
/// once.
#[derive(Debug)]
pub struct BulkThread {
    shared: Arc<ThreadState>,
    thread: Option<JoinHandle<()>>,
}

/// A member of a bulk group, polled by a [`BulkThread`]. Dropping it leaves the group at once,
/// which the others take for a death; [`destroy`](Self::destroy) leaves it in order.
#[derive(Debug)]
pub struct BulkGroup {
    id: u64,
    shared: Arc<ThreadState>,
}

#[derive(Debug)]
struct ThreadState {
    orders: Mutex<Orders>,
    /// Whether there are orders, or the thread has to end.
    ordered: AtomicBool,
    event: OwnedFd,
    thread: Mutex<Option<ThreadId>>,
}

#[derive(Debug, Default)]
struct Orders {
    list: Vec<ThreadOrder>,
    groups: u64,
    stop: bool,
    has_ended: bool,
}

enum ThreadOrder {
    Run(u64, Box<BulkNode>, Box<dyn BulkUpcalls>),
    Send(u64, Object, SyncSender<Result<ObjectId, BulkSendError>>),
    Submit(u64, Object),
    Post(u64, ObjectId, Buffer, SyncSender<Result<(), PostError>>),
    Segment(u64, u64, SyncSender<Result<Segment, BulkSendError>>),
    Destroy(u64, Instant, SyncSender<Result<(), DestroyError>>),
    Drop(u64),
}

impl std::fmt::Debug for ThreadOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, group) = match self {
            ThreadOrder::Run(group, ..) => ("Run", group),
            ThreadOrder::Send(group, ..) => ("Send", group),
            ThreadOrder::Submit(group, ..) => ("Submit", group),
            ThreadOrder::Post(group, ..) => ("Post", group),
            ThreadOrder::Segment(group, ..) => ("Segment", group),
            ThreadOrder::Destroy(group, ..) => ("Destroy", group),
            ThreadOrder::Drop(group) => ("Drop", group),
        };
        write!(f, "{name}({group})")
    }
}

impl BulkThread {
    /// Starts a thread that waits in this way.
    ///
    /// # Errors
    /// [`BulkError::Thread`].
    pub fn start(waiting: BulkWaiting) -> Result<BulkThread, BulkError> {
        let os = |errno: rustix::io::Errno| BulkError::Thread(errno.into());
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(os)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(os)?;
        epoll::add(&epoll, &event, EventData::new_u64(u64::MAX), EventFlags::IN).map_err(os)?;
        let shared =
            ThreadState { orders: Mutex::default(), ordered: AtomicBool::default(), event, thread: Mutex::default() };
        let shared = Arc::new(shared);
        let server = BulkServer { shared: shared.clone(), epoll, members: vec![], events: vec![] };
        let thread = thread::Builder::new().name("spindle-bulk".to_string()).spawn(move || server.run(waiting));
        let thread = thread.map_err(BulkError::Thread)?;
        *shared.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread.thread().id());
        Ok(BulkThread { shared, thread: Some(thread) })
    }

    /// Lets the thread poll a member from now on.
    ///
    /// # Errors
    /// [`BulkError::Thread`]: the thread has ended, since an upcall panicked.
    pub fn run(&self, node: BulkNode, upcalls: impl BulkUpcalls + 'static) -> Result<BulkGroup, BulkError> {
        let mut orders = self.shared.lock();
        if orders.has_ended {
            return Err(BulkError::Thread(io::Error::other("it has ended")));
        }
        orders.groups += 1;
        let id = orders.groups;
        orders.list.push(ThreadOrder::Run(id, Box::new(node), Box::new(upcalls)));
        drop(orders);
        self.shared.wake();
        Ok(BulkGroup { id, shared: self.shared.clone() })
    }
}

impl Drop for BulkThread {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.wake();
        // An upcall that drops it runs on that very thread, which stops after the upcall.
        if !self.shared.is_this_thread()
            && let Some(thread) = self.thread.take()
        {
            // An upcall's panic was printed.
            let _ = thread.join();
        }
    }
}

impl BulkGroup {
    /// As [`BulkNode::send`]. Waits until the thread has accepted the object, not until it arrives.
    ///
    /// # Errors
    /// [`BulkSendError`].
    pub fn send(&self, object: impl Into<Object>) -> Result<ObjectId, BulkSendError> {
        if self.shared.is_this_thread() {
            return Err(BulkSendError::InUpcall);
        }
        let object = object.into();
        self.order(|answer| ThreadOrder::Send(self.id, object, answer)).unwrap_or(Err(BulkSendError::Destroyed))
    }

    /// As [`send`](Self::send), without waiting for an answer, so upcalls may call it. Objects are
    /// sent in the order of the calls. [`BulkUpcalls::refused`] reports an object that is not sent.
    pub fn submit(&self, object: impl Into<Object>) {
        self.shared.push(ThreadOrder::Submit(self.id, object.into()));
    }

    /// As [`BulkNode::segment`].
    ///
    /// # Errors
    /// [`BulkSendError`].
    pub fn segment(&self, bytes: u64) -> Result<Segment, BulkSendError> {
        if self.shared.is_this_thread() {
            return Err(BulkSendError::InUpcall);
        }
        self.order(|answer| ThreadOrder::Segment(self.id, bytes, answer)).unwrap_or(Err(BulkSendError::Destroyed))
    }

    /// As [`BulkNode::post_receive_buffer`].
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post_receive_buffer(&self, object: ObjectId, buffer: impl Into<Buffer>) -> Result<(), PostError> {
        if self.shared.is_this_thread() {
            return Err(PostError::InUpcall);
        }
        let buffer = buffer.into();
        self.order(|answer| ThreadOrder::Post(self.id, object, buffer, answer)).unwrap_or(Err(PostError::Destroyed))
    }

    /// As [`BulkNode::destroy`].
    ///
    /// # Errors
    /// [`DestroyError`].
    pub fn destroy(self, at_most: Duration) -> Result<(), DestroyError> {
        if self.shared.is_this_thread() {
            return Err(DestroyError::InUpcall);
        }
        // Longer than the life of any process.
        let now = Instant::now();
        let until = now.checked_add(at_most).unwrap_or(now + Duration::from_secs(1 << 32));
        self.order(|answer| ThreadOrder::Destroy(self.id, until, answer)).unwrap_or(Err(DestroyError::Destroyed))
    }

    /// Gives the thread an order and waits for the result; `None` if the thread has ended.
    fn order<T>(&self, order: impl FnOnce(SyncSender<T>) -> ThreadOrder) -> Option<T> {
        let (answer, answered) = sync_channel(1);
        self.shared.push(order(answer));
        // The ending thread drops the orders that it has not carried out, together with their
        // senders.
        answered.recv().ok()
    }
}

impl Drop for BulkGroup {
    fn drop(&mut self) {
        self.shared.push(ThreadOrder::Drop(self.id));
    }
}

impl ThreadState {
    fn lock(&self) -> std::sync::MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, order: ThreadOrder) {
        let mut orders = self.lock();
        if !orders.has_ended {
            orders.list.push(order);
            drop(orders);
            self.wake();
        }
    }

    fn wake(&self) {
        self.ordered.store(true, Ordering::Release);
        // It is ready then, even if it can count no further.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    fn is_this_thread(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        *thread == Some(thread::current().id())
    }
}

/// The thread's side.
struct BulkServer {
    shared: Arc<ThreadState>,
    /// The epoll instance for the members' descriptors and the event.
    epoll: OwnedFd,
    members: Vec<ThreadMember>,
    events: Vec<BulkEvent>,
}

struct ThreadMember {
    id: u64,
    node: BulkNode,
    upcalls: Box<dyn BulkUpcalls>,
    leaving: Option<LeavingGroup>,
}

struct LeavingGroup {
    since: Instant,
    until: Instant,
    answer: SyncSender<Result<(), DestroyError>>,
}

impl BulkServer {
    fn run(mut self, waiting: BulkWaiting) {
        let mut pace = match waiting {
            BulkWaiting::Hybrid { spin_for } => PollPace::new(spin_for),
            BulkWaiting::Polling | BulkWaiting::Interrupt => PollPace::new(Duration::MAX),
        };
        loop {
            let mut worked = false;
            if self.shared.ordered.swap(false, Ordering::AcqRel) {
                worked = true;
                if self.obey() {
                    return;
                }
            }
            for member in &mut self.members {
                worked |= member.poll(&mut self.events);
            }
            self.members.retain_mut(|member| member.goes_on());
            if worked {
                pace.worked();
            } else if self.members.is_empty()
                || waiting == BulkWaiting::Interrupt
                || (pace.idle() == Idle::Sleep && waiting != BulkWaiting::Polling)
            {
                self.sleep();
            }
        }
    }

    /// Carries out the orders. Returns whether to stop.
    fn obey(&mut self) -> bool {
        // Cleared before the orders are taken: an order that comes meanwhile makes it ready again.
        let _ = rustix::io::read(&self.shared.event, &mut [0; 8]);
        let mut orders = self.shared.lock();
        let list = std::mem::take(&mut orders.list);
        if orders.stop {
            return true;
        }
        drop(orders);
        for order in list {
            self.carry_out(order);
        }
        false
    }

    fn carry_out(&mut self, order: ThreadOrder) {
        let members = &mut self.members;
        // A caller that no longer waits for the answer does not need it.
        let _ = match order {
            ThreadOrder::Run(id, node, upcalls) => {
                // Without it only the longest sleep would end: the member lives on, slowly.
                let added = epoll::add(&self.epoll, &*node, EventData::new_u64(id), EventFlags::IN);
                debug_assert!(added.is_ok());
                members.push(ThreadMember { id, node: *node, upcalls, leaving: None });
                true
            }
            ThreadOrder::Send(id, object, answer) => {
                let sent = find(members, id).map_or(Err(BulkSendError::Destroyed), |i| members[i].node.send(object));
                answer.try_send(sent).is_ok()
            }
            ThreadOrder::Submit(id, object) => {
                if let Some(member) = find(members, id).map(|i| &mut members[i])
                    && let Err(error) = member.node.send(object)
                {
                    member.upcalls.refused(error);
                }
                true
            }
            ThreadOrder::Post(id, object, buffer, answer) => {
                let found = find(members, id);
                let post = |i: usize| members[i].node.post_receive_buffer(object, buffer);
                answer.try_send(found.map_or(Err(PostError::Destroyed), post)).is_ok()
            }
            ThreadOrder::Segment(id, bytes, answer) => {
                let found = find(members, id).ok_or(BulkSendError::Destroyed);
                answer.try_send(found.and_then(|i| Ok(members[i].node.segment(bytes)?))).is_ok()
            }
            ThreadOrder::Destroy(id, until, answer) => match find(members, id) {
                Some(i) => {
                    members[i].node.finish();
                    members[i].leaving = Some(LeavingGroup { since: Instant::now(), until, answer });
                    true
                }
                None => answer.try_send(Err(DestroyError::Destroyed)).is_ok(),
            },
            ThreadOrder::Drop(id) => {
                // A member that leaves in order is dropped when it has left.
                members.retain(|member| member.id != id || member.leaving.is_some());
                true
            }
        };
    }

    fn sleep(&mut self) {
        if self.members.iter_mut().any(|member| member.node.has_unread()) {
            return;
        }
        let until = self.members.iter().filter_map(|member| Some(member.leaving.as_ref()?.until)).min();
        let left = until.map_or(SLEEP_MAX, |until| until.saturating_duration_since(Instant::now()));
        wait_readable(&self.epoll, left.min(SLEEP_MAX));
    }
}

fn find(members: &[ThreadMember], id: u64) -> Option<usize> {
    members.iter().position(|member| member.id == id)
}

impl Drop for BulkServer {
    fn drop(&mut self) {
        // Also when an upcall panics: no caller may wait for an answer that never comes.
        let mut orders = self.shared.lock();
        orders.has_ended = true;
        let list = std::mem::take(&mut orders.list);
        drop(orders);
        drop(list);
    }
}

impl ThreadMember {
    fn poll(&mut self, events: &mut Vec<BulkEvent>) -> bool {
        let worked = self.node.poll(events);
        for event in events.drain(..) {
            match event {
                BulkEvent::Allocate { object, bytes } => {
                    if let Some(buffer) = self.upcalls.allocate(object, bytes) {
                        match self.node.post_receive_buffer(object, buffer) {
                            // The group may have been closed since.
                            Ok(()) | Err(PostError::NotAwaited { .. }) => {}
                            // A mistake of the application, reported like any panic in an upcall.
                            Err(error) => panic!("allocate: {error}"),
                        }
                    }
                }
                BulkEvent::Complete { object, data } => self.upcalls.complete(object, data),
                BulkEvent::Everywhere { object } => self.upcalls.everywhere(object),
                BulkEvent::Failed(failure) => self.upcalls.failed(failure),
            }
        }
        worked
    }

    /// Returns whether it has not finished leaving.
    fn goes_on(&mut self) -> bool {
        let Some(leaving) = &self.leaving else { return true };
        let now = Instant::now();
        if !self.node.is_finished() && now < leaving.until {
            return true;
        }
        let _ = leaving.answer.try_send(self.node.finished(now - leaving.since));
        false
    }
}

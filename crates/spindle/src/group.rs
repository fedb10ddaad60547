//! A member whose node is polled by a thread of the library.
use crate::error::{Ended, FinishError, HandleError, JoinError};
use crate::handler::Handler;
use crate::handles::Publisher;
use crate::node::{Node, Poll};
use crate::pace::{Idle, PollPace, SLEEP_MAX};
use crate::queries::Queries;
use crate::shared::{End, Notices, Shared, Upcall};
use crate::status::Status;
use spindle_core::{Change, MemberId, Rank, View};
use spindle_transport::fork::Owner;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a status request may take: the polling thread answers between two polls.
const STATUS_WAIT: Duration = Duration::from_secs(1);

/// A member of a group, polled by a thread of the library.
///
/// Dropping it takes this member out at once, and the others continue without it.
/// [`leave`](Self::leave) does so without loss, and [`finish`](Self::finish) ends the group in
/// agreement.
#[derive(Debug)]
pub struct Group {
    owner: Owner,
    id: MemberId,
    control: Arc<Control>,
    shared: Arc<Shared>,
    notices: Arc<Notices>,
    queries: Queries,
    thread: Option<JoinHandle<()>>,
}

/// Reads the status of a [`Group`], from any thread. It stays valid after the end of the group.
#[derive(Clone, Debug)]
pub struct Monitor {
    control: Arc<Control>,
    notices: Arc<Notices>,
    shared: Arc<Shared>,
}

/// Wakes the polling thread of a [`Group`], from any thread, so that it calls
/// what [`Node::start_with`] was given. It stays valid after the end of the group.
#[derive(Clone, Debug)]
pub struct GroupWaker {
    control: Arc<Control>,
    notices: Arc<Notices>,
}

impl GroupWaker {
    /// Ends the sleep of the polling thread, or the next one if it does not sleep now.
    pub fn wake(&self) {
        // Release: the thread that takes the flag sees what was written before.
        self.control.woken.store(true, Ordering::Release);
        self.notices.ring();
    }
}

impl Monitor {
    /// As [`Group::status`].
    pub fn status(&self) -> Status {
        self.control.status(&self.notices, &self.shared)
    }
}

/// The flags and orders that the polling thread and its handle exchange.
#[derive(Debug)]
struct Control {
    stop: AtomicBool,
    leave: AtomicBool,
    seal: AtomicBool,
    woken: AtomicBool,
    orders: Mutex<Vec<Order>>,
    ordered: AtomicBool,
    status_wanted: AtomicBool,
    answers: Mutex<Answers>,
    answered: Condvar,
}

/// A request of the handle to the polling thread, which answers.
#[derive(Debug)]
enum Order {
    Change(Change, SyncSender<Result<bool, HandleError>>),
    Publisher(String, SyncSender<Result<Publisher, HandleError>>),
}

impl Order {
    fn carry_out(self, node: &mut Node) {
        // A caller that no longer waits for the answer does not need it.
        let _ = match self {
            Order::Change(change, answer) => answer.try_send(node.propose_change(change)).is_ok(),
            Order::Publisher(name, answer) => answer.try_send(node.publisher(&name)).is_ok(),
        };
    }
}

#[derive(Debug)]
struct Answers {
    status: Status,
    /// How many times `status` was written.
    count: u64,
    /// Whether the thread has ended.
    ended: bool,
}

impl Node {
    /// Gives the node to a thread that polls until the group ends. `handler` runs on that thread,
    /// for the subgroups whose [`receiver`](Self::receiver) was not taken.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(self, handler: impl Handler + Send + 'static) -> Result<Group, JoinError> {
        self.start_with(handler, |_, _| None)
    }

    /// As [`start`](Self::start). The thread calls `after_poll` after each poll, between two upcalls: it may
    /// take publishers of the node and propose changes of its subgroups, and must not block or poll. It returns
    /// the longest time for which the thread may sleep when nothing happens; `None` for any time.
    /// [`Group::waker`] ends a sleep.
    ///
    /// # Errors
    /// As there.
    pub fn start_with<H: Handler + Send + 'static>(
        self,
        handler: H,
        after_poll: impl FnMut(&mut H, &mut Node) -> Option<Duration> + Send + 'static,
    ) -> Result<Group, JoinError> {
        Group::start(self, handler, after_poll)
    }
}

impl Group {
    fn start<H: Handler + Send + 'static>(
        node: Node,
        handler: H,
        after_poll: impl FnMut(&mut H, &mut Node) -> Option<Duration> + Send + 'static,
    ) -> Result<Group, JoinError> {
        let control = Arc::new(Control::new(node.status()));
        let (id, shared, notices) = (node.id(), Arc::clone(node.shared()), Arc::clone(node.notices()));
        let queries = node.queries();
        let for_thread = Arc::clone(&control);
        let name = format!("spindle-{}", node.id());
        let (watched, suspect_after) = (Arc::clone(&shared), node.terms.suspect_after);
        let watch = move || watched.handler.run(id.0, suspect_after);
        // It ends by itself, soon after the polling thread.
        let watcher = thread::Builder::new().name(format!("spindle-{id}-watch"));
        watcher.spawn(watch).map_err(JoinError::Thread)?;
        let thread = thread::Builder::new().name(name).spawn(move || {
            let _ends = Ends(Arc::clone(&for_thread), Arc::clone(node.shared()));
            run(node, handler, after_poll, &for_thread);
        });
        let thread = Some(thread.map_err(|error| {
            shared.handler.stop();
            JoinError::Thread(error)
        })?);
        Ok(Group { owner: Owner::new(), id, control, shared, notices, queries, thread })
    }

    /// Returns the newest view: its members and subgroups.
    pub fn view(&self) -> Arc<View> {
        self.shared.view()
    }

    /// Returns this member's rank in the newest view.
    pub fn rank(&self) -> Rank {
        self.view().rank_of(self.id).unwrap_or(Rank(0))
    }

    /// Returns this member's id.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// Returns a handle that asks the applications of other members.
    pub fn queries(&self) -> Queries {
        self.queries.clone()
    }

    /// Returns why the group ended before everything was delivered, if it did.
    pub fn ended(&self) -> Option<Ended> {
        self.shared.broken().cloned()
    }

    /// Returns the state of the group as this member knows it. After the end of the group, it is
    /// the final state. If the polling thread does not answer within a second, because a handler
    /// runs that long, it is the state of the last answer.
    pub fn status(&self) -> Status {
        self.control.status(&self.notices, &self.shared)
    }

    /// Returns a handle that reads the status, for a thread that monitors this member.
    pub fn monitor(&self) -> Monitor {
        let (control, notices) = (Arc::clone(&self.control), Arc::clone(&self.notices));
        Monitor { control, notices, shared: Arc::clone(&self.shared) }
    }

    /// Returns a handle that wakes the polling thread.
    pub fn waker(&self) -> GroupWaker {
        GroupWaker { control: Arc::clone(&self.control), notices: Arc::clone(&self.notices) }
    }

    /// Waits until every member has finished sending and everything is delivered, and leaves. Every
    /// publisher must have been dropped.
    ///
    /// # Errors
    /// [`FinishError`]. If the group does not finish in time, this member gives it up.
    pub fn finish(mut self, timeout: Duration) -> Result<Status, FinishError> {
        let start = Instant::now();
        self.control.seal.store(true, Ordering::Release);
        self.notices.ring();
        let answers = self.control.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.control.answered.wait_timeout_while(answers, timeout, |answers| !answers.ended);
        drop(waited);
        match self.shared.end() {
            Some(End::Finished) => {
                self.join();
                Ok(self.status())
            }
            Some(End::Broken(ended)) => Err(ended.clone().into()),
            None => Err(FinishError::TimedOut { waited: start.elapsed(), unfinished: unfinished(&self.status()) }),
        }
    }

    /// As [`Node::propose_change`]. Waits until the polling thread has answered, which it does between two
    /// upcalls.
    ///
    /// # Errors
    /// [`HandleError`].
    pub fn propose_change(&self, change: Change) -> Result<bool, HandleError> {
        self.order(|answer| Order::Change(change, answer))?
    }

    /// As [`Node::publisher`], for a subgroup that was created, or that this member came into, while
    /// the group ran. Waits as [`propose_change`](Self::propose_change) does.
    ///
    /// # Errors
    /// [`HandleError`].
    pub fn publisher(&self, subgroup: &str) -> Result<Publisher, HandleError> {
        let name = subgroup.to_string();
        self.order(|answer| Order::Publisher(name, answer))?
    }

    /// Gives the polling thread an order and waits for its answer.
    fn order<T>(&self, order: impl FnOnce(SyncSender<T>) -> Order) -> Result<T, HandleError> {
        if Upcall::is_running() {
            return Err(HandleError::InUpcall);
        }
        let (answer, answered) = sync_channel(1);
        self.control.orders.lock().unwrap_or_else(PoisonError::into_inner).push(order(answer));
        self.control.ordered.store(true, Ordering::Release);
        self.notices.ring();
        if self.control.answers.lock().unwrap_or_else(PoisonError::into_inner).ended {
            self.control.drop_orders();
        }
        // The ending thread drops the orders that it has not carried out, together with their
        // senders.
        answered.recv().map_err(|_| HandleError::Ended)
    }

    /// Leaves the group without loss: everything that this member has sent is delivered everywhere
    /// first. The others continue.
    ///
    /// # Errors
    /// [`FinishError`]: the group did not agree in time, or has ended otherwise. After a timeout the
    /// error names the members for which the change of the view waits, as far as this member knows
    /// them, and this member gives the group up.
    pub fn leave(mut self, timeout: Duration) -> Result<Status, FinishError> {
        let start = Instant::now();
        self.control.leave.store(true, Ordering::Release);
        self.notices.ring();
        let answers = self.control.answers.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.control.answered.wait_timeout_while(answers, timeout, |answers| !answers.ended));
        match self.shared.end() {
            Some(End::Finished | End::Broken(Ended::Left)) => {
                self.join();
                Ok(self.status())
            }
            Some(End::Broken(ended)) => Err(ended.clone().into()),
            None => {
                let unfinished = obstacles(&self.status());
                Err(FinishError::TimedOut { waited: start.elapsed(), unfinished })
            }
        }
    }

    fn join(&mut self) {
        // A handler that drops its own group runs on that very thread, which stops after the
        // handler.
        if let Some(thread) = self.thread.take_if(|thread| thread.thread().id() != thread::current().id()) {
            // A handler's panic was printed and ended the group.
            let _ = thread.join();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.owner.is_copy() {
            // The thread belongs to the parent.
            return;
        }
        self.control.stop.store(true, Ordering::Release);
        self.notices.ring();
        self.join();
    }
}

/// Reports the end of the thread to the handle, also when a handler panics.
struct Ends(Arc<Control>, Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.answers.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.0.answered.notify_all();
        self.0.drop_orders();
        self.1.handler.stop();
    }
}

impl Control {
    fn new(status: Status) -> Control {
        let answers = Mutex::new(Answers { status, count: 1, ended: false });
        let (stop, leave, seal, woken, orders, ordered, status_wanted, answered) = Default::default();
        Control { stop, leave, seal, woken, orders, ordered, status_wanted, answers, answered }
    }

    /// Drops the orders that the thread will not carry out. Callers that wait for an answer see the
    /// end.
    fn drop_orders(&self) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Asks the polling thread for its status, and waits for it a while.
    fn status(&self, notices: &Notices, shared: &Shared) -> Status {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let before = answers.count;
        self.status_wanted.store(true, Ordering::Release);
        notices.ring();
        let pending = |answers: &mut Answers| answers.count == before && !answers.ended;
        let waited = self.answered.wait_timeout_while(answers, STATUS_WAIT, pending);
        answers = waited.unwrap_or_else(PoisonError::into_inner).0;
        // A handler that runs long lets the polling thread answer no more, but it is watched.
        Status { handler: shared.handler.status(), ..answers.status.clone() }
    }

    fn answer(&self, node: &Node) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.status = node.status();
        answers.count += 1;
        self.answered.notify_all();
    }
}

/// Runs the polling thread.
fn run<H: Handler>(
    mut node: Node,
    mut handler: H,
    mut after_poll: impl FnMut(&mut H, &mut Node) -> Option<Duration>,
    control: &Control,
) {
    let mut pace = PollPace::new(node.terms.spin_for);
    // A cheap check first: other threads write to this cache line only when they have a request.
    let requested = || {
        let Control { stop, status_wanted, leave, seal, woken, ordered, .. } = control;
        let flags = [stop, status_wanted, leave, seal, woken, ordered];
        flags.iter().any(|flag| flag.load(Ordering::Acquire))
    };
    loop {
        let mut poll = node.poll(&mut handler);
        let patience = after_poll(&mut handler, &mut node).unwrap_or(SLEEP_MAX);
        if let Ok(Poll::Idle) = poll
            && pace.idle() == Idle::Sleep
        {
            poll = node.sleep_unless(&mut handler, patience.min(SLEEP_MAX), requested);
        }
        if requested() {
            control.woken.store(false, Ordering::Relaxed);
            if control.status_wanted.swap(false, Ordering::AcqRel) {
                control.answer(&node);
            }
            if control.leave.swap(false, Ordering::AcqRel) {
                node.leave();
            }
            if control.seal.swap(false, Ordering::AcqRel) {
                node.seal();
                node.await_end();
            }
            if control.ordered.swap(false, Ordering::AcqRel) {
                let orders = std::mem::take(&mut *control.orders.lock().unwrap_or_else(PoisonError::into_inner));
                orders.into_iter().for_each(|order| order.carry_out(&mut node));
            }
            if control.stop.load(Ordering::Acquire) {
                break;
            }
        }
        match poll {
            Ok(Poll::Idle) => {}
            Ok(Poll::Worked) => pace.worked(),
            Ok(Poll::Finished) | Err(_) => {
                handler.ended(poll.as_ref().err());
                break;
            }
        }
    }
    control.answer(&node);
}

/// The most members that a message lists; the others are counted.
const OPEN_TOLD: usize = 8;

/// Returns which members have not finished, in words.
fn unfinished(status: &Status) -> String {
    let members = status.subgroups.iter().flat_map(|subgroup| &subgroup.members);
    match listed(members.filter(|member| !member.finished).map(|member| member.id)) {
        None => "all members have finished sending, but not everything has been received everywhere".to_string(),
        Some(open) => format!("members that still hold a publisher: {open}"),
    }
}

/// Returns what keeps the members from a view without this one, in words.
fn obstacles(status: &Status) -> String {
    if let Some(running) = status.handler.running_for {
        return format!(
            "a call of this member's handler has been running for {running:.1?}, and the member can't leave meanwhile; \
             let the handler return"
        );
    }
    let others = || status.members.iter().filter(|member| member.id != status.id);
    let silent = listed(others().filter(|member| member.suspected || member.given_up).map(|member| member.id));
    if status.is_blocked {
        let silent = silent.map(|silent| format!(", because members {silent} are silent")).unwrap_or_default();
        return format!(
            "the group is blocked: too few members agree on a view without this member{silent}; resume or end those \
             processes, or see `spindle status`"
        );
    }
    if let Some(silent) = silent {
        return format!("the others have not agreed on a view without this member and the silent members {silent}");
    }
    let lags = status.subgroups.iter().flat_map(|subgroup| &subgroup.members);
    let lags = lags.filter(|member| member.lagging_for.is_some() && member.id != status.id);
    if let Some(lags) = listed(lags.map(|member| member.id)) {
        return format!("the others have not agreed on a view without this member: members {lags} lag");
    }
    let leader = others().find(|member| member.leads).map(|leader| format!(", which member {} leads", leader.id));
    format!("the others have not agreed on a view without this member{}", leader.unwrap_or_default())
}

/// Returns the ids in order, the first [`OPEN_TOLD`] of them by name. `None`: there are none.
fn listed(ids: impl Iterator<Item = MemberId>) -> Option<String> {
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    let named: Vec<String> = ids.iter().take(OPEN_TOLD).map(ToString::to_string).collect();
    let more = match ids.len().saturating_sub(OPEN_TOLD) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!ids.is_empty()).then(|| named.join(", ") + &more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Config, SubgroupId};
    use std::sync::mpsc::{Sender, channel};

    #[test]
    fn a_handler_may_drop_its_own_group() {
        let mut node = Config::new("g", 1).local().unwrap().remove(0);
        let mut publisher = node.publisher("all").unwrap();
        let (give, take) = channel();
        let (say, hear) = channel();
        let group = node.start(move |_: SubgroupId, _: &mut Batch<'_>| {
            drop(take.recv());
            say.send(()).unwrap();
        });
        let group = group.unwrap();
        let control = std::sync::Arc::clone(&group.control);
        give.send(group).unwrap();
        publisher.send(b"go", Duration::from_secs(10)).unwrap();
        hear.recv_timeout(Duration::from_secs(10)).unwrap();
        let answers = control.answers.lock().unwrap();
        let ended = control.answered.wait_timeout_while(answers, Duration::from_secs(10), |answers| !answers.ended);
        assert!(ended.unwrap().0.ended);
    }

    /// Reports the end of its group, with the number of messages that it had taken by then.
    struct Witness {
        taken: u32,
        say: Sender<(u32, Option<Ended>)>,
    }

    impl Handler for Witness {
        fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
            self.taken += batch.count() as u32;
        }

        fn ended(&mut self, reason: Option<&Ended>) {
            self.say.send((self.taken, reason.cloned())).unwrap();
        }
    }

    #[test]
    fn a_handler_is_told_the_end_of_its_group_after_the_last_message() {
        for leaves in [false, true] {
            let (say, hear) = channel();
            let mut node = Config::new("g", 1).local().unwrap().remove(0);
            let mut publisher = node.publisher("all").unwrap();
            let group = node.start(Witness { taken: 0, say }).unwrap();
            (0..3).for_each(|_| publisher.send(b"go", Duration::from_secs(10)).unwrap());
            drop(publisher);
            if leaves {
                group.leave(Duration::from_secs(10)).unwrap();
            } else {
                group.finish(Duration::from_secs(10)).unwrap();
            }
            let (taken, reason) = hear.recv_timeout(Duration::from_secs(10)).unwrap();
            assert_eq!(taken, 3);
            assert!(if leaves { matches!(reason, Some(Ended::Left)) } else { reason.is_none() }, "{reason:?}");
        }
        // A program that drops the group knows it. The publisher keeps the group from finishing before.
        let (say, hear) = channel();
        let mut node = Config::new("g", 1).local().unwrap().remove(0);
        let _publisher = node.publisher("all").unwrap();
        drop(node.start(Witness { taken: 0, say }).unwrap());
        assert!(hear.recv_timeout(Duration::from_secs(10)).is_err());
    }

    #[test]
    fn a_leave_in_vain_reports_the_member_that_it_waits_for() {
        let mut nodes = Config::new("g", 2).local().unwrap();
        let silent = nodes.pop().unwrap();
        let group = nodes.remove(0).start(|_: SubgroupId, _: &mut Batch<'_>| ()).unwrap();
        // The other node is never polled, so no view can come.
        let error = group.leave(Duration::from_millis(10)).unwrap_err().to_string();
        assert!(error.contains("the others have not agreed on a view without this member"), "{error}");
        drop(silent);
    }

    #[test]
    fn the_obstacles_to_a_leave_are_named() {
        let nodes = Config::new("g", 3).local().unwrap();
        let mut status = nodes[1].status();
        assert!(obstacles(&status).ends_with("without this member, which member 1 leads"), "{}", obstacles(&status));
        status.subgroups[0].members[2].lagging_for = Some(Duration::from_secs(2));
        assert!(obstacles(&status).ends_with("members 3 lag"), "{}", obstacles(&status));
        status.members[0].suspected = true;
        assert!(obstacles(&status).ends_with("and the silent members 1"), "{}", obstacles(&status));
        status.is_blocked = true;
        assert!(obstacles(&status).contains("because members 1 are silent; resume"), "{}", obstacles(&status));
        status.handler.running_for = Some(Duration::from_secs(3));
        assert!(obstacles(&status).contains("has been running for 3.0s"), "{}", obstacles(&status));
    }

    #[test]
    fn a_handler_that_runs_long_shows_in_the_status_meanwhile() {
        let mut node = Config::new("g", 1).local().unwrap().remove(0);
        let mut publisher = node.publisher("all").unwrap();
        let (end, ended) = channel();
        let handler = move |_: SubgroupId, batch: &mut Batch<'_>| {
            batch.for_each(drop);
            ended.recv().unwrap();
        };
        let group = node.start(handler).unwrap();
        let monitor = group.monitor();
        publisher.send(b"go", Duration::from_secs(10)).unwrap();
        let patience = Instant::now() + Duration::from_secs(20);
        while monitor.status().handler.running_for.is_none() {
            assert!(Instant::now() < patience);
        }
        assert_eq!(group.status().handler.slow_calls, 1);
        end.send(()).unwrap();
        drop(publisher);
        let last = group.finish(Duration::from_secs(10)).unwrap();
        assert_eq!((last.handler.slow_calls, last.handler.running_for), (1, None));
    }

    #[test]
    fn an_order_is_answered_by_the_end_and_refused_in_an_upcall() {
        let mut node = Config::new("g", 1).local().unwrap().remove(0);
        let mut publisher = node.publisher("all").unwrap();
        let (give, take) = channel::<std::sync::Arc<Group>>();
        let (say, hear) = channel();
        let group = node.start(move |_: SubgroupId, batch: &mut Batch<'_>| {
            batch.for_each(drop);
            let group = take.recv().unwrap();
            say.send(group.publisher("all").err()).unwrap();
            // Wait without a guess at a duration: until the handle asks for the end.
            while !group.control.stop.load(Ordering::Acquire) {
                thread::yield_now();
            }
        });
        let group = std::sync::Arc::new(group.unwrap());
        publisher.send(b"go", Duration::from_secs(10)).unwrap();
        give.send(std::sync::Arc::clone(&group)).unwrap();
        assert_eq!(hear.recv_timeout(Duration::from_secs(10)).unwrap(), Some(HandleError::InUpcall));
        let asker = {
            let group = std::sync::Arc::clone(&group);
            thread::spawn(move || group.propose_change(crate::Change::Drop("all".to_string())))
        };
        let patience = Instant::now() + Duration::from_secs(10);
        while group.control.orders.lock().unwrap().is_empty() {
            assert!(Instant::now() < patience);
            thread::yield_now();
        }
        group.control.stop.store(true, Ordering::Release);
        // The thread carries the order out, or ends before.
        assert!(matches!(asker.join().unwrap(), Ok(true) | Err(HandleError::Ended)));
        drop(publisher);
        let patience = Instant::now() + Duration::from_secs(10);
        while !group.control.answers.lock().unwrap().ended {
            assert!(Instant::now() < patience);
            thread::yield_now();
        }
        assert_eq!(group.publisher("all").err(), Some(HandleError::Ended));
    }
}

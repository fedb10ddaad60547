//! The handle of a replicated object.
use crate::answer::{Answer, Refusal};
use crate::error::{CallError, End, NotDone, ReadError, StartError, UnknownCause};
use crate::history::Preloading;
use crate::id::{CallId, SessionId};
use crate::machine::Machine;
use crate::member::Member;
use crate::message::Message;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::state_machine::{Call, StateMachine};
use crate::waiting::{Inside, Key, Wait, block_on};
use crate::watch::Watch;
use serde::de::DeserializeOwned;
use spindle::{Config, Group, MemberId, Order, Outcome, Queries, ReadBarrier, Receipt, SendError, SharedPublisher};
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::hint;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

/// How often a linearizable read looks at the barrier before it sends a message.
const BARRIER_LOOKS: u32 = 16;

/// A handle of a replicated object. Clones are for other threads.
///
/// When all clones are dropped, this member has finished sending, so
/// [`Group::finish`](spindle::Group::finish) can end the group.
#[derive(Debug)]
pub struct Replicated<T> {
    pub(crate) shared: Arc<Shared<T>>,
    publisher: Arc<SharedPublisher>,
    me: MemberId,
    nonces: Arc<AtomicU64>,
    pub(crate) queries: Queries,
    read_barrier: ReadBarrier,
    /// The most messages that the state of an answer of another member contained.
    pub(crate) seen: Arc<AtomicU64>,
}

impl<T> Clone for Replicated<T> {
    fn clone(&self) -> Replicated<T> {
        let (shared, publisher) = (Arc::clone(&self.shared), Arc::clone(&self.publisher));
        let (queries, seen) = (self.queries.clone(), Arc::clone(&self.seen));
        let (nonces, read_barrier) = (Arc::clone(&self.nonces), self.read_barrier.clone());
        Replicated { shared, publisher, me: self.me, nonces, queries, read_barrier, seen }
    }
}

/// How far a call has come, for the case that its time is over.
pub(crate) type Sent = Mutex<Option<CallId>>;

impl<T: StateMachine> Replicated<T> {
    /// Joins the group with the object of its members, or creates the group with `object` together
    /// with the other founders, which give equal objects. `subgroup` has the order
    /// [`Order::Total`], and carries nothing else. A group has one object.
    ///
    /// Dropping the [`Group`] takes this member out.
    ///
    /// # Errors
    /// [`StartError`]. After [`StartError::Join`], the group has perhaps gone on without this member.
    pub fn join(
        config: Config,
        subgroup: &str,
        object: T,
        settings: Settings,
    ) -> Result<(Group, Replicated<T>), StartError> {
        let no_total_order = || StartError::NoTotalOrder { subgroup: subgroup.to_owned() };
        if config.subgroups.iter().any(|spec| spec.name == subgroup && spec.order != Order::Total) {
            return Err(no_total_order());
        }
        let timeout = config.gather_timeout;
        let shared = Arc::new(Shared::new(Machine::new(object, settings)));
        // The first state, for a log that has all messages.
        let is_logged = config.data_dir.is_some();
        let first = is_logged.then(|| shared.read().try_snapshot().ok()).flatten();
        let preloading = preload(&config, subgroup, shared.read().settings());
        let mut member = Member::new(Arc::clone(&shared), subgroup, is_logged);
        let mut node = config.learn(&mut member, &mut |_| {}, &AtomicBool::new(false))?;
        if let Some(stopped) = shared.read().stopped() {
            return Err(stopped.clone().into());
        }
        if node.view().subgroups.iter().any(|spec| spec.name == subgroup && spec.order != Order::Total) {
            return Err(no_total_order());
        }
        let publisher = Arc::new(node.publisher(subgroup)?.share());
        member.enter(node.id(), node.view(), Arc::downgrade(&publisher));
        match node.log(subgroup) {
            Some(access) => member.begin_history(access, (first, preloading), node.view())?,
            None => member.forget_state(),
        }
        let (me, nonces) = (node.id(), Arc::new(AtomicU64::new(random())));
        member.begin_answers()?;
        let (queries, read_barrier, seen) = (node.queries(), node.read_barrier(subgroup)?, Arc::default());
        let group = node.start(member)?;
        let replicated = Replicated { shared, publisher, me, nonces, queries, read_barrier, seen };
        let announced = block_on(replicated.announce(), deadline(timeout));
        match announced.unwrap_or(Err(NotDone::TimedOut { waited: timeout })) {
            Ok(()) => Ok((group, replicated)),
            Err(NotDone::End(End::Stopped(stopped))) => Err(stopped.into()),
            Err(error) => Err(error.into()),
        }
    }

    async fn announce(&self) -> Result<(), NotDone> {
        let bytes = self.shared.read().announcement().encode();
        self.send(&bytes).await?;
        self.open(None).await
    }

    /// Opens a session, instead of `old`.
    async fn open(&self, old: Option<SessionId>) -> Result<(), NotDone> {
        let session = SessionId { member: self.me.0, nonce: random() };
        let wait = self.shared.waiting.wait(Key::Open(session));
        self.send(&Message::Open { session, time_us: now_us() }.encode()).await?;
        wait.result().await?;
        self.shared.waiting.set_session(old, session);
        Ok(())
    }

    pub(crate) fn sender(&self) -> SharedPublisher {
        SharedPublisher::clone(&self.publisher)
    }

    async fn send(&self, bytes: &[u8]) -> Result<(), NotDone> {
        self.sender().send_async(bytes).await.map_err(|error| self.not_sent(error))
    }

    fn not_sent(&self, error: SendError) -> NotDone {
        self.end_behind(&error).map_or_else(|| error.into(), NotDone::End)
    }

    /// Returns how this member ended, if a message was not sent because its group has. A machine that
    /// stops ends the group, which does not know why.
    pub(crate) fn end_behind(&self, error: &SendError) -> Option<End> {
        let is_over = matches!(error, SendError::Ended(_));
        is_over.then(|| self.shared.waiting.ended()).flatten()
    }

    /// Returns a number that names a question or a tick of this process.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonces.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the id of this member.
    pub fn member(&self) -> MemberId {
        self.me
    }

    /// Calls a command, and returns its reply once this member has executed it. Every member that
    /// continues executes it at the same position of the order.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn call<R: DeserializeOwned>(&self, call: &Call<T, R>, timeout: Duration) -> Result<R, CallError> {
        let sent = Sent::default();
        self.block(self.call_noting(call, &sent), &sent, timeout)
    }

    /// As [`call`](Self::call), asynchronously, in any runtime. If the caller drops the future, the
    /// command is executed if the message was sent.
    ///
    /// # Errors
    /// [`CallError`], without timeouts.
    pub async fn call_async<R: DeserializeOwned>(&self, call: &Call<T, R>) -> Result<R, CallError> {
        self.call_noting(call, &Sent::default()).await
    }

    /// Calls a command with the id of an earlier call, whose outcome is not known. The command is
    /// executed once, however often it is called, and the reply is that of the first execution.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn call_again<R: DeserializeOwned>(
        &self,
        call: &Call<T, R>,
        id: CallId,
        timeout: Duration,
    ) -> Result<R, CallError> {
        let sent = Sent::new(Some(id));
        let again = async {
            refuse_inside().map_err(|why| unknown(id, UnknownCause::NotAsked(why)))?;
            let called = self.send_call(call, id, &sent).await;
            settle(id, called.map_err(|error| uncertain(id, error))?.answer, false)
        };
        self.block(again, &sent, timeout)
    }

    /// Returns the outcome of a call, also of another member or of an earlier process. The answer is
    /// final: if the command was not executed, it never will be.
    ///
    /// # Errors
    /// [`CallError`]: as [`call`](Self::call) would have returned. [`CallError::Unknown`] if the
    /// group does not know the call any more (see [`Settings`]), or did not answer in time.
    pub fn outcome<R: DeserializeOwned>(&self, id: CallId, timeout: Duration) -> Result<R, CallError> {
        self.block(self.outcome_async(id), &Sent::new(Some(id)), timeout)
    }

    /// As [`outcome`](Self::outcome), asynchronously, in any runtime.
    ///
    /// # Errors
    /// As there.
    pub async fn outcome_async<R: DeserializeOwned>(&self, id: CallId) -> Result<R, CallError> {
        let asked = async {
            refuse_inside()?;
            let nonce = self.nonce();
            let wait = self.shared.waiting.wait(Key::Ask(nonce));
            self.send(&Message::Ask { id, nonce }.encode()).await?;
            Ok(wait.result().await?)
        };
        let answer = asked.await.map_err(|why: NotDone| unknown(id, UnknownCause::NotAsked(why)))?;
        settle(id, answer, false)
    }

    /// Reads this member's object. Other members may be ahead. Commands wait while `read` runs.
    ///
    /// # Errors
    /// [`ReadError::InHandler`], and [`ReadError::End`] if a command has panicked here.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> Result<R, ReadError> {
        if Inside::is_running() {
            return Err(ReadError::InHandler);
        }
        let machine = self.shared.read();
        if let Some(stopped) = machine.stopped() {
            return Err(End::Stopped(stopped.clone()).into());
        }
        // A command or a call in `read` would wait for its lock.
        let _inside = Inside::enter();
        Ok(read(machine.object()))
    }

    /// Reads the object with all calls that were answered anywhere before this call. A member that was
    /// evicted reads nothing.
    ///
    /// On one host it costs no message, unless messages are on their way or the view changes: this
    /// member sees in memory that it [has everything](ReadBarrier). Else it sends a message and
    /// reads when that is delivered.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read_latest<R>(&self, read: impl FnOnce(&T) -> R, timeout: Duration) -> Result<R, ReadError> {
        let latest = block_on(self.read_latest_async(read), deadline(timeout));
        latest.unwrap_or(Err(ReadError::TimedOut { waited: timeout }))
    }

    /// As [`read_latest`](Self::read_latest), asynchronously, in any runtime.
    ///
    /// # Errors
    /// [`ReadError`], without timeouts.
    pub async fn read_latest_async<R>(&self, read: impl FnOnce(&T) -> R) -> Result<R, ReadError> {
        if Inside::is_running() {
            return Err(ReadError::InHandler);
        }
        if !self.is_up_to_date() {
            self.tick().await?;
        }
        let value = self.read(read)?;
        // This member may have been evicted since.
        self.shared.waiting.ended().map_or(Ok(value), |end| Err(end.into()))
    }

    /// Returns whether this member is known to have applied all calls that were answered anywhere.
    /// Messages on their way may be delivered meanwhile.
    fn is_up_to_date(&self) -> bool {
        (0..BARRIER_LOOKS).any(|_| {
            hint::spin_loop();
            self.read_barrier.is_passed()
        })
    }

    /// Sends a message that changes nothing, and waits until it is delivered here.
    async fn tick(&self) -> Result<(), ReadError> {
        let nonce = self.nonce();
        let wait = self.shared.waiting.wait(Key::Tick(nonce));
        if let Err(error) = self.sender().send_async(&Message::Tick { nonce }.encode()).await {
            return Err(self.end_behind(&error).map_or_else(|| error.into(), ReadError::End));
        }
        Ok(wait.result().await.map(drop)?)
    }

    /// Watches a value of the object: `select` computes it from the object after each command, and the
    /// watch returns each value that differs from the one before, beginning with the value now. The values
    /// and their order are those of all members.
    ///
    /// `select` runs on the polling thread, so it is cheap, like the look-up of a key. The watch ends when
    /// it is dropped.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn watch<R: PartialEq + Clone + Send + 'static>(
        &self,
        select: impl Fn(&T) -> R + Send + 'static,
    ) -> Result<Watch<R>, ReadError> {
        let watch = self.read(|object| self.shared.watches.add(object, select))?;
        if let Some(end) = self.shared.waiting.ended() {
            self.shared.watches.end(&end);
        }
        Ok(watch)
    }

    /// Returns the number of commands that this member has executed.
    pub fn commands(&self) -> u64 {
        self.shared.read().commands()
    }

    /// Returns the version of the group: the lowest that all members had when it was raised last.
    pub fn version(&self) -> u32 {
        self.shared.read().enabled()
    }

    /// Returns the digest of this member's object and sessions. It is equal at all members after the
    /// same messages. It encodes the whole object.
    pub fn digest(&self) -> u64 {
        let machine = self.shared.read();
        // A call in the object's `Serialize` would wait for its lock.
        let _inside = Inside::enter();
        machine.digest()
    }

    /// Returns how this member's part in the group ended, if it did.
    pub fn ended(&self) -> Option<End> {
        self.shared.waiting.ended()
    }

    pub(crate) fn block<R>(
        &self,
        call: impl Future<Output = Result<R, CallError>>,
        sent: &Sent,
        timeout: Duration,
    ) -> Result<R, CallError> {
        let waited = timeout;
        block_on(call, deadline(timeout)).unwrap_or_else(|| {
            Err(match *sent.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(id) => unknown(id, UnknownCause::TimedOut { waited }),
                None => NotDone::TimedOut { waited }.into(),
            })
        })
    }

    async fn call_noting<R: DeserializeOwned>(&self, call: &Call<T, R>, sent: &Sent) -> Result<R, CallError> {
        let Called { id, answer, .. } = self.call_once(call, sent).await?;
        settle(id, answer, true)
    }

    /// Calls a command with an id of its own. Notes in `sent` when its message is sent.
    pub(crate) async fn call_once<R>(&self, call: &Call<T, R>, sent: &Sent) -> Result<Called, CallError> {
        refuse_inside()?;
        let (waiting, kept) = (&self.shared.waiting, self.shared.calls_kept);
        let mut admitted = waiting.admit(kept).await.map_err(NotDone::from)?;
        let mut called = self.send_call(call, admitted.id, sent).await?;
        if called.answer == Answer::Refused(Refusal::NoSession) {
            // The session has expired, so this call was not executed. It is called once more.
            *sent.lock().unwrap_or_else(PoisonError::into_inner) = None;
            self.open(Some(admitted.id.session)).await?;
            drop(admitted);
            admitted = waiting.admit(kept).await.map_err(NotDone::from)?;
            called = self.send_call(call, admitted.id, sent).await?;
        }
        Ok(called)
    }

    /// Sends a call, and returns its outcome.
    async fn send_call<R>(&self, call: &Call<T, R>, id: CallId, sent: &Sent) -> Result<Called, CallError> {
        let arguments = call.arguments.as_ref().map_err(|error| NotDone::Encode(error.clone()))?;
        let (command, since) = (call.command.id, call.command.since);
        let message = Message::Call { id, time_us: now_us(), command, since, arguments };
        let wait = self.shared.waiting.wait(Key::Call(id));
        let tracked = self.sender().send_tracked_async(&message.encode()).await;
        let receipt = tracked.map_err(|error| self.not_sent(error))?;
        *sent.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
        let answer = answered(id, &wait, receipt.clone()).await?;
        Ok(Called { id, answer, receipt })
    }
}

/// Begins to read the snapshot of an earlier process.
fn preload<T: StateMachine>(config: &Config, subgroup: &str, settings: &Settings) -> Preloading<T> {
    match config.old_snapshots(subgroup) {
        Ok(Some(snapshots)) => Preloading::start(snapshots, settings.clone()),
        // The start will report what can't be read.
        Ok(None) | Err(_) => Preloading::none(),
    }
}

/// A call that was executed, or refused.
pub(crate) struct Called {
    pub(crate) id: CallId,
    pub(crate) answer: Answer,
    pub(crate) receipt: Receipt,
}

/// Waits for the outcome of a call, or for the certainty that it has none here.
async fn answered(id: CallId, wait: &Wait<'_>, mut receipt: Receipt) -> Result<Answer, CallError> {
    poll_fn(|context| {
        let end = match wait.poll(context) {
            Poll::Ready(Ok(answer)) => return Poll::Ready(Ok(answer)),
            Poll::Ready(Err(end)) => Some(end),
            Poll::Pending => None,
        };
        match (Pin::new(&mut receipt).poll(context), end) {
            (Poll::Ready(Outcome::NotDelivered(why)), _) => Poll::Ready(Err(NotDone::NotDelivered(why).into())),
            (Poll::Ready(_), Some(end)) => Poll::Ready(Err(unknown(id, end.into()))),
            (Poll::Ready(_), None) | (Poll::Pending, _) => Poll::Pending,
        }
    })
    .await
}

/// Turns the outcome of a call into its reply. `is_first` if no message with this id was sent
/// before, so that a refusal means that it was not executed.
pub(crate) fn settle<R: DeserializeOwned>(id: CallId, answer: Answer, is_first: bool) -> Result<R, CallError> {
    match answer {
        Answer::Done(reply) => match postcard::take_from_bytes(&reply) {
            Ok((reply, [])) => Ok(reply),
            Ok(_) => Err(CallError::Reply { id, error: postcard::Error::DeserializeBadEncoding }),
            Err(error) => Err(CallError::Reply { id, error }),
        },
        Answer::ReplyNotKept { .. } => Err(CallError::ReplyNotKept { id }),
        Answer::Refused(refusal) => {
            let is_certain = !matches!(refusal, Refusal::NoSession | Refusal::Forgotten | Refusal::Ahead);
            Err(if is_certain || is_first { NotDone::Refused(refusal).into() } else { unknown(id, refusal.into()) })
        }
    }
}

fn unknown(id: CallId, why: UnknownCause) -> CallError {
    CallError::Unknown { id, why }
}

/// An earlier message of this call may have been sent, so a repetition that fails proves nothing.
fn uncertain(id: CallId, error: CallError) -> CallError {
    match error {
        CallError::NotDone(why) => unknown(id, UnknownCause::NotAsked(why)),
        other => other,
    }
}

fn refuse_inside() -> Result<(), NotDone> {
    if Inside::is_running() { Err(NotDone::InHandler) } else { Ok(()) }
}

/// A time that is too far away for the clock becomes a year.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + timeout.min(YEAR)
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Returns a number that other processes do not draw. The standard library seeds its hashers with
/// such numbers.
fn random() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(now_us());
    hasher.finish()
}

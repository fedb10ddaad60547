//! Queries of one member to the application of another one, beside the order of messages. It drives the
//! core's [`Queries`](spindle_core::control::Queries).
//!
//! A query and its answer are control messages. The thread that polls the member that is asked only
//! hands the query to its handler, which may give it to another thread.
use crate::shared::{Awaited, Notices, Ticket, Upcall, lock};
use spindle_core::MemberId;
use spindle_core::control::{ControlMessage, NoAnswer, NotAsked, QUERIES_MAX, QueryAnswer, QueryOrder};
use spindle_core::limits::QUERY_BYTES_MAX;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How one query ends.
type Ending = Result<Arc<[u8]>, QueryError>;
type Slot = Awaited<Option<Ending>>;

/// The open queries of a member.
pub(crate) type OpenQueries = Mutex<spindle_core::control::Queries<Arc<Slot>>>;

/// Asks the applications of other members. Clones are for other threads. See
/// [`Node::queries`](crate::Node::queries).
#[derive(Clone)]
pub struct Queries {
    me: MemberId,
    incarnation: u128,
    open: Arc<OpenQueries>,
    notices: Arc<Notices>,
    /// Whether all members are in this process, where there are no control messages.
    is_local: bool,
}

impl fmt::Debug for Queries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queries").field("me", &self.me).finish_non_exhaustive()
    }
}

/// Why a query has no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The process is no other member of the view.
    #[error("{0} is no other member of the view: ask one of `Group::view`")]
    NoMember(MemberId),
    /// The view changed, and the member is no longer in it.
    #[error("member {0} died or left before it answered: ask another member")]
    Gone(MemberId),
    /// The member's application answers no queries, or did not answer this one.
    #[error("the application of member {0} answers no such queries: run the same program at all members")]
    Unanswered(MemberId),
    /// The member has as many queries as it takes at once.
    #[error("member {0} has as many queries as it takes at once: ask later, or another member")]
    Busy(MemberId),
    /// The query is too long.
    #[error("the query has {bytes} bytes, and may have {max}: send a large value as a message")]
    TooLong {
        /// Its bytes.
        bytes: u64,
        /// The most.
        max: u64,
    },
    /// The answer is too long.
    #[error("the answer of member {member} has {bytes} bytes, and may have {max}: ask for less")]
    AnswerTooLong {
        /// The member that was asked.
        member: MemberId,
        /// The bytes of the answer.
        bytes: u64,
        /// The most.
        max: u64,
    },
    /// Too many queries of this process have no answer yet.
    #[error("{QUERIES_MAX} queries of this process wait for an answer: ask later")]
    TooMany,
    /// The members are in one process, and exchange no control messages.
    #[error("members of one process can't ask each other: read their objects")]
    Local,
    /// No answer came in time.
    #[error("member {member} has not answered within {waited:?}: see `spindle status`, or ask another member")]
    TimedOut {
        /// The member that was asked.
        member: MemberId,
        /// How long the caller waited.
        waited: Duration,
    },
    /// The caller is an upcall, which runs on the thread that would take the answer.
    #[error("an upcall can't wait for an answer: ask on another thread")]
    InUpcall,
    /// The group has ended for this member.
    #[error("the group has ended for this member")]
    Ended,
}

impl Queries {
    pub(crate) fn new(
        (me, incarnation): (MemberId, u128),
        open: &Arc<OpenQueries>,
        notices: &Arc<Notices>,
        is_local: bool,
    ) -> Queries {
        Queries { me, incarnation, open: Arc::clone(open), notices: Arc::clone(notices), is_local }
    }

    /// Sends a query to a member of the view. It is not ordered with messages and in no log, and the
    /// application of that member decides what it means. A query may have 1 MiB, and so may its answer.
    ///
    /// A query may be lost with the connection to another host, or while the member begins its first view.
    /// So it needs a deadline.
    pub fn ask(&self, member: MemberId, query: &[u8]) -> Asked {
        let slot: Arc<Slot> = Arc::default();
        let reply = self.send(member, query, &slot).map_err(|error| end(&slot, Err(error))).ok();
        let (open, notices) = (Arc::clone(&self.open), Arc::clone(&self.notices));
        Asked { member, slot, open, notices, reply, ticket: Ticket::default() }
    }

    fn send(&self, to: MemberId, query: &[u8], slot: &Arc<Slot>) -> Result<u64, QueryError> {
        if self.is_local {
            return Err(QueryError::Local);
        }
        if to == self.me {
            return Err(QueryError::NoMember(to));
        }
        let (bytes, max) = (query.len() as u64, QUERY_BYTES_MAX as u64);
        if bytes > max {
            return Err(QueryError::TooLong { bytes, max });
        }
        let asked = lock(&self.open).ask(to, Arc::clone(slot));
        let reply = asked.map_err(|why| match why {
            NotAsked::NoMember => QueryError::NoMember(to),
            NotAsked::TooMany => QueryError::TooMany,
            NotAsked::Ended => QueryError::Ended,
        })?;
        let (incarnation, from) = (self.incarnation, self.me);
        let message = ControlMessage::Query { incarnation, from, reply, bytes };
        self.notices.tell_of_message(to, message, Arc::from(query));
        Ok(reply)
    }
}

/// A query that was sent: a wait, or a future in any runtime, for its answer. If it is dropped, an answer
/// that comes is ignored.
#[must_use = "it does nothing unless it is waited for"]
pub struct Asked {
    member: MemberId,
    slot: Arc<Slot>,
    open: Arc<OpenQueries>,
    notices: Arc<Notices>,
    reply: Option<u64>,
    ticket: Ticket<Option<Ending>>,
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked").field("member", &self.member).finish_non_exhaustive()
    }
}

impl Asked {
    /// Waits for the answer.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn wait(self, timeout: Duration) -> Result<Arc<[u8]>, QueryError> {
        let until = (Instant::now(), timeout);
        let ended = self.slot.wait(until, || !Upcall::is_running(), Option::clone, Option::is_some);
        ended.unwrap_or_else(|| match Upcall::is_running() {
            true => Err(QueryError::InUpcall),
            false => Err(QueryError::TimedOut { member: self.member, waited: timeout }),
        })
    }
}

/// Without timeouts.
impl Future for Asked {
    type Output = Result<Arc<[u8]>, QueryError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Asked { slot, ticket, .. } = &mut *self;
        slot.poll(ticket, context, Option::clone, Option::is_some).map(|ended| ended.expect("it is final"))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(reply) = self.reply {
            lock(&self.open).forget(reply);
            // A member whose polling thread is busy keeps no queries for which no thread waits.
            self.notices.withdraw_query(reply);
        }
    }
}

fn end(slot: &Slot, ending: Ending) {
    slot.change(|known| _ = known.get_or_insert(ending));
}

/// Ends the query that this answer is for, if it is open.
pub(crate) fn answered(open: &OpenQueries, from: MemberId, reply: u64, answer: QueryAnswer) {
    let Some(slot) = lock(open).answered(from, reply) else { return };
    let max = QUERY_BYTES_MAX as u64;
    end(
        &slot,
        match answer {
            Ok(bytes) => Ok(bytes.into()),
            Err(NoAnswer::Busy) => Err(QueryError::Busy(from)),
            Err(NoAnswer::TooLong { bytes }) => Err(QueryError::AnswerTooLong { member: from, bytes, max }),
            Err(_) => Err(QueryError::Unanswered(from)),
        },
    );
}

/// Ends the queries to members that are not in the view that begins.
pub(crate) fn view_began(open: &OpenQueries, members: &[MemberId]) {
    let gone = lock(open).begin(members);
    gone.into_iter().for_each(|(member, slot)| end(&slot, Err(QueryError::Gone(member))));
}

/// Ends all queries, now and later.
pub(crate) fn end_all(open: &OpenQueries) {
    let ended = lock(open).end();
    ended.into_iter().for_each(|(_, slot)| end(&slot, Err(QueryError::Ended)));
}

/// A query of another member. It may be answered on any thread, at any time before the asker's deadline.
/// If it is dropped, the asker learns that it gets no answer.
pub struct IncomingQuery {
    me: MemberId,
    order: QueryOrder,
    /// `None` once it is answered.
    notices: Option<Arc<Notices>>,
}

impl fmt::Debug for IncomingQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingQuery").field("from", &self.order.from).finish_non_exhaustive()
    }
}

impl IncomingQuery {
    pub(crate) fn new(me: MemberId, order: QueryOrder, notices: &Arc<Notices>) -> IncomingQuery {
        IncomingQuery { me, order, notices: Some(Arc::clone(notices)) }
    }

    /// Returns the member that asks.
    pub fn from(&self) -> MemberId {
        self.order.from
    }

    /// Returns the query.
    pub fn bytes(&self) -> &[u8] {
        &self.order.bytes
    }

    /// Answers. If the answer has more than 1 MiB, the asker gets [`QueryError::AnswerTooLong`].
    pub fn answer(mut self, answer: &[u8]) {
        let (from, reply, bytes) = (self.me, self.order.reply, answer.len() as u64);
        match answer.len() <= QUERY_BYTES_MAX {
            true => self.send(ControlMessage::QueryAnswer { from, reply, bytes }, Arc::from(answer)),
            false => self.refuse(NoAnswer::TooLong { bytes }),
        }
    }

    /// Refuses: the asker gets [`QueryError::Busy`].
    pub fn refuse_as_busy(mut self) {
        self.refuse(NoAnswer::Busy);
    }

    fn refuse(&mut self, why: NoAnswer) {
        let (from, reply) = (self.me, self.order.reply);
        self.send(ControlMessage::NoAnswer { from, reply, why }, Arc::default());
    }

    fn send(&mut self, message: ControlMessage, attachment: Arc<[u8]>) {
        if let Some(notices) = self.notices.take() {
            notices.tell_of_message(self.order.from, message, attachment);
        }
    }
}

impl Drop for IncomingQuery {
    fn drop(&mut self) {
        self.refuse(NoAnswer::Unanswered);
    }
}

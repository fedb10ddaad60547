//! The events about other processes that a [`Roster`](super::Roster) reports to its owner.
use crate::control::{
    Address, Card, Instance, NoRecords, ObjectOrder, QueryAnswer, QueryOrder, RecordOrder, Refusal, Request, SeedClaim,
};
use crate::ids::{MemberId, ViewId};
use crate::view::View;
use alloc::vec::Vec;

/// An event about a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlEvent {
    /// The process has ended, as the kernel reports, or it has reported itself that it never takes
    /// part.
    Died(MemberId),
    /// Control messages do not reach the process. It may have ended.
    ///
    /// Either it is on another host, and its connection has ended or was never made. Or it is on
    /// this host, is no member, and has no address now.
    Lost(MemberId),
    /// The process asks for admission, or to follow.
    Asks(Asks),
    /// The process makes a request.
    Requests {
        /// The process.
        from: MemberId,
        /// The number to repeat in the answer.
        reply: u64,
        /// The request.
        what: Request,
    },
    /// A member refuses this process.
    Refused(Refusal),
    /// This process has to wait.
    Waits {
        /// The number of members that the group has, or is to have.
        members: u32,
        /// True if the group cannot continue now.
        blocked: bool,
        /// The processes that are present.
        present: Vec<(MemberId, u32)>,
    },
    /// A member reports a view.
    View {
        /// The incarnation of the group.
        incarnation: u128,
        /// The view.
        view: View,
        /// The words of the decision that ended the previous view, if the member has them.
        decision: Vec<u64>,
    },
    /// A connection for control messages was made with a process that is no member. The process may
    /// have been a member, and may not know of the views after its last one.
    Reached(Card),
    /// A process on another host reports that it is a member of this group, but it is in no view
    /// that is known here.
    ///
    /// One of the two processes has missed a change: the other's side was given up, or it was
    /// itself left out.
    Meets(Card),
    /// A message about the bootstrap of a group.
    Bootstrap {
        /// The process.
        from: MemberId,
        /// The nonce of the process, which differs from that of others with its id.
        nonce: u32,
        /// The digest of its configuration.
        config: u64,
        /// The message.
        words: Vec<u64>,
    },
    /// The process follows, and requests objects.
    Wants(ObjectOrder),
    /// The process lacks records of a log, and requests them.
    WantsRecords(RecordOrder),
    /// The process asks the application of this one.
    Asked(QueryOrder),
    /// A process answers a query, or does not.
    Answered {
        /// The process.
        from: MemberId,
        /// The number of the query.
        reply: u64,
        /// The answer.
        answer: QueryAnswer,
    },
    /// A process sends no records.
    NoRecords {
        /// The process.
        from: MemberId,
        /// The number of the request.
        reply: u64,
        /// The reason.
        why: NoRecords,
    },
}

/// A question of this process to members: for admission, or only for the view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// The digest of its configuration.
    pub config: u64,
    /// The number of members with which it would create the group; 1 if any number will do.
    pub members: u32,
    /// True if it only wants to observe.
    pub observer: bool,
    /// The view that it follows, and at whose end it wants to be admitted; 0: none.
    pub follows: ViewId,
}

/// The request of a process for admission, or to follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asks {
    /// Its id.
    pub id: MemberId,
    /// Its pid on its host.
    pub pid: u32,
    /// The instance, which differs from that of other processes with its id.
    pub instance: Instance,
    /// The digest of its configuration.
    pub config: u64,
    /// The number of members with which it would create the group; 1 if any number will do.
    pub members: u32,
    /// True if it only wants to observe.
    pub observer: bool,
    /// The view that it follows, and at whose end it wants to be admitted; 0: none.
    pub follows: ViewId,
    /// Its claim about the seeds among which it waits.
    pub seeds: SeedClaim,
    /// Its address, if its id belongs to another process on another host: to a member, or to a
    /// process that asked before.
    pub id_conflict: Option<Address>,
}

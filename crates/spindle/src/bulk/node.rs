//! One member of a bulk group, polled by its creator.
use super::error::{BulkError, BulkSendError, DestroyError, PostError};
use super::event::{BulkEvent, BulkFailure, ObjectId};
use super::host_gateway::HostGateway;
use super::settings::BulkSettings;
use super::shared_memory_bulk::SharedMemoryBulk;
use super::stream_bulk::StreamBulk;
use spindle_core::Rank;
use spindle_core::rdmc::Algorithm;
use spindle_core::rdmc::Hosts;
use spindle_fabric::RegionError;
use spindle_fabric::bulk::{Buffer, LocalPart, Object, Segment};
use spindle_transport::Connection;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// One member of a bulk group, which acts when it is polled.
///
/// Dropping it leaves the group at once, which the others take for a death;
/// [`destroy`](Self::destroy) leaves it in order.
#[derive(Debug)]
pub struct BulkNode {
    carrier: Carrier,
    finishing: Finishing,
}

#[derive(Debug)]
enum Carrier {
    Streams(Box<StreamBulk>),
    Local(Box<SharedMemoryBulk>),
    Both(Box<HostGateway>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Finishing {
    No,
    Wanted,
    Reported,
}

macro_rules! carrier {
    ($self:ident, $carrier:ident => $what:expr) => {
        match &mut $self.carrier {
            Carrier::Streams($carrier) => $what,
            Carrier::Local($carrier) => $what,
            Carrier::Both($carrier) => $what,
        }
    };
}

impl BulkNode {
    /// Creates the member `me` of a group of `members`, with a stream to every other member, in any
    /// order. The streams are the group's own: the first byte on each belongs to it. Ranks are
    /// those of the list of members that the application has agreed on.
    ///
    /// # Errors
    /// [`BulkError`].
    pub fn over_streams(
        members: u32,
        me: Rank,
        root: Rank,
        settings: &BulkSettings,
        streams: impl IntoIterator<Item = (Rank, Connection)>,
    ) -> Result<BulkNode, BulkError> {
        check_ranks(members, me, root)?;
        BulkNode::across_hosts(me, Hosts::apart(members, root), settings, streams, None)
    }

    /// Creates a member of a group whose members are all on this machine; `part` identifies it
    /// ([`LocalPart::parts`]). Objects are lent: a receiver is asked for no buffer, and gets the
    /// root's memory, mapped.
    ///
    /// # Errors
    /// [`BulkError`].
    pub fn on_one_machine(settings: &BulkSettings, part: LocalPart) -> Result<BulkNode, BulkError> {
        check_ranks(part.members(), part.me(), part.root())?;
        let (me, hosts) = (part.me(), Hosts::one(part.members(), part.root()));
        BulkNode::across_hosts(me, hosts, settings, [], Some(part))
    }

    /// Creates the member `me` of a group in which some members share hosts.
    ///
    /// The [leader](Hosts::head) of a host passes a stream to every other host leader, in any
    /// order; no other member passes any. A member that shares its host passes its `part` among the
    /// members of that host ([`LocalPart::parts_among`]), to whom the leader lends. As [on one
    /// machine](Self::on_one_machine), none of them is asked for a buffer. A leader has an object
    /// when all of its host do.
    ///
    /// # Errors
    /// [`BulkError`].
    pub fn across_hosts(
        me: Rank,
        hosts: Hosts,
        settings: &BulkSettings,
        streams: impl IntoIterator<Item = (Rank, Connection)>,
        part: Option<LocalPart>,
    ) -> Result<BulkNode, BulkError> {
        let members = hosts.members();
        check_ranks(members, me, hosts.root())?;
        if let Algorithm::Hybrid(racks) = &settings.algorithm
            && racks.members() != hosts.count()
        {
            return Err(BulkError::Racks { found: racks.members(), hosts: hosts.count() });
        }
        let (head, root) = (hosts.head(me), hosts.root());
        let others: Vec<Rank> = hosts.on_the_host_of(me).filter(|other| *other != me).collect();
        let peers = if me == head { &others[..] } else { &[head] };
        let is_mine = |part: &LocalPart| {
            (part.members(), part.me(), part.root()) == (members, me, head) && part.peers().eq(peers.iter().copied())
        };
        if !part.as_ref().map_or(others.is_empty(), is_mine) {
            return Err(BulkError::Part { me, others: others.len() as u32, head });
        }
        let shared_memory = part.map(|part| SharedMemoryBulk::new(&hosts, settings, part)).transpose()?;
        let has_streams = me == head && hosts.count() > 1;
        let carrier = match shared_memory {
            Some(shared_memory) if !has_streams => Carrier::Local(Box::new(shared_memory)),
            None => Carrier::Streams(Box::new(StreamBulk::new(me, hosts, settings, streams)?)),
            Some(shared_memory) => {
                let streams = StreamBulk::new(me, hosts, settings, streams)?;
                Carrier::Both(Box::new(HostGateway::new(streams, shared_memory, me, root, settings.slots)?))
            }
        };
        Ok(BulkNode { carrier, finishing: Finishing::No })
    }

    /// Begins to send an object at the root. On one machine, an object that is not stored in a
    /// [`Segment`] is copied into one, once.
    ///
    /// # Errors
    /// [`BulkSendError`].
    pub fn send(&mut self, object: impl Into<Object>) -> Result<ObjectId, BulkSendError> {
        if self.finishing != Finishing::No {
            return Err(BulkSendError::Destroyed);
        }
        let object = object.into();
        carrier!(self, carrier => carrier.send(object))
    }

    /// Returns memory for the root's next object, of this many bytes with arbitrary content. On one
    /// machine it reuses that of an earlier object, if all members have dropped it: they have it
    /// mapped already, and mapping memory takes about as long as copying it.
    ///
    /// # Errors
    /// As [`Segment::create`].
    pub fn segment(&mut self, bytes: u64) -> Result<Segment, RegionError> {
        match &mut self.carrier {
            Carrier::Streams(_) => Segment::create(bytes),
            Carrier::Local(shared_memory) => shared_memory.segment(bytes),
            Carrier::Both(gateway) => gateway.segment(bytes),
        }
    }

    /// Passes the memory for an object that [`BulkEvent::Allocate`] has announced, any time after that.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post_receive_buffer(&mut self, object: ObjectId, buffer: impl Into<Buffer>) -> Result<(), PostError> {
        let buffer = buffer.into();
        match &mut self.carrier {
            Carrier::Streams(streams) => streams.post_receive_buffer(object, buffer),
            Carrier::Local(_) | Carrier::Both(_) => Err(PostError::NotAwaited { object }),
        }
    }

    /// Does the work that is possible now, adds events to `events`, and returns whether there was
    /// any work. It does not wait.
    pub fn poll(&mut self, events: &mut Vec<BulkEvent>) -> bool {
        let worked = carrier!(self, carrier => carrier.poll(events));
        if self.finishing == Finishing::Wanted && carrier!(self, carrier => carrier.is_at_rest()) {
            carrier!(self, carrier => carrier.tell_finished());
            self.finishing = Finishing::Reported;
            return true;
        }
        worked
    }

    /// Waits until there may be work, up to `at_most`.
    pub fn wait(&mut self, at_most: Duration) {
        carrier!(self, carrier => carrier.wait(at_most));
    }

    /// Returns whether polling has work that the descriptor does not show.
    pub(super) fn has_unread(&mut self) -> bool {
        carrier!(self, carrier => carrier.has_unread())
    }

    /// Returns how the group was closed, if it was.
    pub fn failure(&self) -> Option<&BulkFailure> {
        match &self.carrier {
            Carrier::Streams(streams) => streams.failure(),
            Carrier::Local(shared_memory) => shared_memory.failure(),
            Carrier::Both(gateway) => gateway.failure(),
        }
    }

    /// Begins to leave in order: sends nothing new, and reports to the others when it has done its
    /// part.
    pub(super) fn finish(&mut self) {
        if self.finishing == Finishing::No {
            self.finishing = Finishing::Wanted;
        }
    }

    /// Returns whether it has left in order, or can't any more.
    pub(super) fn is_finished(&mut self) -> bool {
        let has_failed = self.failure().is_some();
        match self.finishing {
            Finishing::No => false,
            Finishing::Wanted => has_failed && carrier!(self, carrier => carrier.is_flushed()),
            Finishing::Reported => {
                carrier!(self, carrier => carrier.is_flushed() && (has_failed || carrier.open() == 0))
            }
        }
    }

    /// Returns the result of leaving in order.
    pub(super) fn finished(&mut self, waited: Duration) -> Result<(), DestroyError> {
        if let Some(failure) = self.failure() {
            return Err(DestroyError::Failed(failure.clone()));
        }
        match (self.is_finished(), carrier!(self, carrier => carrier.open())) {
            (true, _) => Ok(()),
            (false, open) => Err(DestroyError::TimedOut { waited, open }),
        }
    }

    /// Leaves the group in order: completes the known objects, reports this to the others, and
    /// waits until they do the same, up to `at_most`. Events of this time are added to `events`.
    ///
    /// # Errors
    /// [`DestroyError`].
    pub fn destroy(mut self, at_most: Duration, events: &mut Vec<BulkEvent>) -> Result<(), DestroyError> {
        let start = Instant::now();
        self.finish();
        loop {
            let worked = self.poll(events);
            let left = at_most.saturating_sub(start.elapsed());
            if self.is_finished() || left.is_zero() {
                return self.finished(start.elapsed());
            }
            if !worked {
                self.wait(left);
            }
        }
    }
}

/// Readable when [`poll`](BulkNode::poll) would find something to do.
impl AsFd for BulkNode {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.carrier {
            Carrier::Streams(streams) => streams.as_fd(),
            Carrier::Local(shared_memory) => shared_memory.as_fd(),
            Carrier::Both(gateway) => gateway.as_fd(),
        }
    }
}

fn check_ranks(members: u32, me: Rank, root: Rank) -> Result<(), BulkError> {
    match [me, root].into_iter().find(|rank| rank.0 >= members) {
        Some(rank) => Err(BulkError::Rank { rank, members }),
        None => Ok(()),
    }
}

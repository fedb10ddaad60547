//! The leader of a host with several members: it takes part in the group over streams, and lends
//! the objects to the other members of its host.
//!
//! The session over streams takes an object that is complete here for complete on this host. So a
//! receiving host leader reports an object as complete only when all its borrowers have it, too.
use super::error::BulkSendError;
use super::event::{BulkEvent, BulkFailure, FailureCause, ObjectId};
use super::shared_memory_bulk::SharedMemoryBulk;
use super::stream_bulk::StreamBulk;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use spindle_core::Rank;
use spindle_core::rdmc::SessionSendError;
use spindle_fabric::RegionError;
use spindle_fabric::bulk::{Buffer, BulkDown, BulkLinksError, Object, Segment};
use spindle_transport::waiting::wait_readable;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct HostGateway {
    streams: StreamBulk,
    shared_memory: SharedMemoryBulk,
    me: Rank,
    root: Rank,
    is_root: bool,
    slots: u64,
    /// Readable when `streams` or `shared_memory` is.
    epoll: OwnedFd,
    /// Lent objects that were not yet reported to the application as complete, the oldest first.
    lent: VecDeque<Object>,
    /// The numbers of objects reported to the application: as complete, and, at the root, as
    /// everywhere.
    told: u64,
    told_everywhere: u64,
    /// The number of objects that are complete at this member.
    complete: u64,
    /// The numbers of objects that the other members of this host have, and that all heads report
    /// to have.
    near: u64,
    far: u64,
    /// The error that left no memory for an incoming object.
    shortage: Option<RegionError>,
    failure: Option<BulkFailure>,
    events: Vec<BulkEvent>,
    /// Kept for its memory.
    heard: Vec<BulkEvent>,
}

impl HostGateway {
    pub(super) fn new(
        streams: StreamBulk,
        shared_memory: SharedMemoryBulk,
        me: Rank,
        root: Rank,
        slots: u32,
    ) -> Result<HostGateway, BulkLinksError> {
        let os = |call| move |errno: rustix::io::Errno| BulkLinksError::Os { call, source: errno.into() };
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(os("epoll_create"))?;
        for (i, fd) in [streams.as_fd(), shared_memory.as_fd()].into_iter().enumerate() {
            epoll::add(&epoll, fd, EventData::new_u64(i as u64), EventFlags::IN).map_err(os("epoll_ctl"))?;
        }
        let (lent, events, heard) = Default::default();
        let (told, told_everywhere, complete, near, far) = (0, 0, 0, 0, 0);
        let (slots, shortage, failure) = (slots.into(), None, None);
        Ok(HostGateway {
            streams,
            shared_memory,
            me,
            root,
            is_root: me == root,
            slots,
            epoll,
            lent,
            told,
            told_everywhere,
            complete,
            near,
            far,
            shortage,
            failure,
            events,
            heard,
        })
    }

    pub(super) fn send(&mut self, object: Object) -> Result<ObjectId, BulkSendError> {
        if let Some(failure) = &self.failure {
            return Err(SessionSendError::Closed { dead: failure.dead }.into());
        }
        // One side may have a slot again before the other.
        let sent = self.told + self.lent.len() as u64;
        if self.is_root && sent - self.told_everywhere >= self.slots {
            return Err(SessionSendError::Full { slots: self.slots as u32 }.into());
        }
        let object = if self.is_root { self.shared_memory.shareable(object)? } else { object };
        let id = self.streams.send(object.clone())?;
        self.lend(object);
        Ok(id)
    }

    /// Lends an object that is sent, or complete here.
    fn lend(&mut self, object: Object) {
        self.lent.push_back(object.clone());
        match self.shared_memory.send(object) {
            // The side that closed the group reports that.
            Ok(_) | Err(BulkSendError::Session(SessionSendError::Closed { .. })) => {}
            Err(error) => unreachable!("it stands in memory that can be lent, and there is a slot for it: {error}"),
        }
    }

    pub(super) fn segment(&mut self, bytes: u64) -> Result<Segment, RegionError> {
        self.shared_memory.segment(bytes)
    }

    pub(super) fn poll(&mut self, events: &mut Vec<BulkEvent>) -> bool {
        let mut worked = !self.events.is_empty();
        let mut heard = std::mem::take(&mut self.heard);
        if self.failure.is_none() {
            worked |= self.streams.poll(&mut heard);
            for event in heard.drain(..) {
                if self.failure.is_none() {
                    self.hear_from_afar(event);
                }
            }
            if let Some(error) = self.shortage.take() {
                self.close(self.me, FailureCause::Memory(Arc::new(error)));
            }
        }
        if self.failure.is_none() {
            worked |= self.shared_memory.poll(&mut heard);
            heard.drain(..).for_each(|event| self.hear_from_mates(event));
        } else {
            // Both sides end what they have begun: they inform their peers, and read what the peers
            // send.
            worked |= self.streams.poll(&mut heard) | self.shared_memory.poll(&mut heard);
            heard.clear();
        }
        self.heard = heard;
        events.append(&mut self.events);
        worked
    }

    fn hear_from_afar(&mut self, event: BulkEvent) {
        match event {
            BulkEvent::Allocate { object, bytes } => {
                let memory: Result<Buffer, RegionError> = match self.shared_memory.goes_inside(bytes) {
                    true => Ok(vec![0; bytes as usize].into()),
                    false => self.shared_memory.segment(bytes).map(Into::into),
                };
                match memory {
                    // The session may be closed by now, and need no buffer.
                    Ok(buffer) => _ = self.streams.post_receive_buffer(object, buffer),
                    Err(error) => self.shortage = Some(error),
                }
            }
            BulkEvent::Complete { object, .. } if !self.is_root && self.lent.len() as u64 >= self.slots => {
                // The root uses a slot again before this member has reported that its object is
                // here.
                self.close(self.root, FailureCause::Down(Arc::new(BulkDown::Garbage { word: object.0 })));
            }
            BulkEvent::Complete { object, data } => {
                self.complete = object.0 + 1;
                if !self.is_root {
                    self.streams.withhold(object);
                    self.lend(data);
                }
                self.settle();
            }
            BulkEvent::Everywhere { object } => {
                self.far = object.0 + 1;
                self.settle();
            }
            BulkEvent::Failed(failure) => {
                self.shared_memory.close(failure.dead, failure.cause.clone());
                self.fail(failure);
            }
        }
    }

    fn hear_from_mates(&mut self, event: BulkEvent) {
        match event {
            BulkEvent::Everywhere { object } => {
                self.near = object.0 + 1;
                if !self.is_root {
                    self.streams.release(object);
                }
                self.settle();
            }
            BulkEvent::Failed(failure) => self.close(failure.dead, failure.cause),
            BulkEvent::Allocate { .. } | BulkEvent::Complete { .. } => {}
        }
    }

    /// Reports to the application what both sides have done.
    fn settle(&mut self) {
        while self.told < self.near.min(self.complete)
            && let Some(data) = self.lent.pop_front()
        {
            self.events.push(BulkEvent::Complete { object: ObjectId(self.told), data });
            self.told += 1;
        }
        while self.is_root && self.told_everywhere < self.near.min(self.far) {
            self.events.push(BulkEvent::Everywhere { object: ObjectId(self.told_everywhere) });
            self.told_everywhere += 1;
        }
    }

    fn fail(&mut self, mut failure: BulkFailure) {
        if self.failure.is_some() {
            return;
        }
        let lent = std::mem::take(&mut self.lent);
        if self.is_root {
            failure.objects = (self.told_everywhere..self.told + lent.len() as u64).map(ObjectId).collect();
        } else {
            // These objects are complete here, whichever other members have them.
            for data in lent {
                self.events.push(BulkEvent::Complete { object: ObjectId(self.told), data });
                self.told += 1;
            }
        }
        self.events.push(BulkEvent::Failed(failure.clone()));
        self.failure = Some(failure);
    }

    /// Closes the group on both sides.
    fn close(&mut self, dead: Rank, cause: FailureCause) {
        self.shared_memory.close(dead, cause.clone());
        self.streams.close(dead, cause);
        // The failure that the streams report lists the objects that are incomplete here.
        let mut last = vec![];
        self.streams.poll(&mut last);
        for event in last {
            match event {
                // The object is complete here. The other members of this host are not informed of
                // it any more.
                BulkEvent::Complete { data, .. } if !self.is_root => self.lent.push_back(data),
                BulkEvent::Failed(failure) => self.fail(failure),
                _ => {}
            }
        }
    }

    pub(super) fn wait(&mut self, at_most: Duration) {
        if !self.has_unread() {
            wait_readable(&self.epoll, at_most);
        }
    }

    pub(super) fn has_unread(&self) -> bool {
        !self.events.is_empty() || self.streams.has_unread() || self.shared_memory.has_unread()
    }

    pub(super) fn failure(&self) -> Option<&BulkFailure> {
        self.failure.as_ref()
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.events.is_empty() && self.streams.is_at_rest() && self.shared_memory.is_at_rest()
    }

    pub(super) fn tell_finished(&mut self) {
        self.streams.tell_finished();
        self.shared_memory.tell_finished();
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.streams.is_flushed() && self.shared_memory.is_flushed()
    }

    /// Returns the number of peers that have not reported that their part is done.
    pub(super) fn open(&self) -> u32 {
        self.streams.open() + self.shared_memory.open()
    }
}

impl AsFd for HostGateway {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

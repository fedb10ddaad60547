//! A member of a bulk group on one machine: the root lends its objects, the others map them.
use super::error::{BulkError, BulkSendError};
use super::event::{BulkEvent, BulkFailure, FailureCause, ObjectId};
use super::settings::BulkSettings;
use spindle_core::Rank;
use spindle_core::rdmc::Hosts;
use spindle_core::rdmc::{Session, SessionSendError};
use spindle_fabric::RegionError;
use spindle_fabric::bulk::{BulkDown, LocalEvent, LocalLinks, LocalPart, Object, Segment};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct SharedMemoryBulk {
    links: LocalLinks,
    me: Rank,
    /// The lender: the root of the group, or the host leader that receives for this host.
    root: Rank,
    slots: u32,
    direct_below: u64,
    object_bytes_max: u64,
    /// At the root, the objects that are not everywhere, the oldest first; empty elsewhere.
    lent: VecDeque<Object>,
    /// The number of objects before those. At the root they are everywhere; elsewhere they are
    /// here.
    done: u64,
    /// By rank: the number of objects that the member has, as far as the root knows.
    have: Vec<u64>,
    finished: Vec<bool>,
    failure: Option<BulkFailure>,
    events: Vec<BulkEvent>,
    /// Whether the arrival of an object is being reported to the application. The next poll then
    /// reports it to the root.
    is_telling: bool,
    ready: Vec<Rank>,
}

impl SharedMemoryBulk {
    /// Creates the part of a member among the members of its host, whose head lends.
    pub(super) fn new(hosts: &Hosts, settings: &BulkSettings, part: LocalPart) -> Result<SharedMemoryBulk, BulkError> {
        let (members, me, root) = (part.members(), part.me(), part.root());
        // Settings that would be refused over streams are refused here.
        Session::new(settings.session(hosts, me), &mut vec![])?;
        let links = LocalLinks::new(part, settings.digest(hosts))?;
        let have = (0..members).map(|rank| if links.is_open(Rank(rank)) { 0 } else { u64::MAX }).collect();
        Ok(SharedMemoryBulk {
            links,
            me,
            root,
            slots: settings.slots,
            direct_below: settings.direct_below,
            object_bytes_max: settings.object_bytes_max,
            lent: VecDeque::new(),
            done: 0,
            have,
            finished: vec![false; members as usize],
            failure: None,
            events: vec![],
            is_telling: false,
            ready: vec![],
        })
    }

    pub(super) fn send(&mut self, object: Object) -> Result<ObjectId, BulkSendError> {
        if let Some(failure) = &self.failure {
            return Err(SessionSendError::Closed { dead: failure.dead }.into());
        }
        if self.me != self.root {
            return Err(SessionSendError::NotRoot { me: self.me }.into());
        }
        if self.lent.len() as u64 >= u64::from(self.slots) {
            return Err(SessionSendError::Full { slots: self.slots }.into());
        }
        let has_left = |rank: &Rank| self.have[rank.index()] < u64::MAX && !self.links.is_open(*rank);
        if let Some(gone) = (0..self.have.len() as u32).map(Rank).find(has_left) {
            self.close(gone, FailureCause::Left);
            return Err(SessionSendError::Closed { dead: gone }.into());
        }
        let object = self.shareable(object)?;
        let number = self.done + self.lent.len() as u64;
        self.links.post_object(number, &object);
        self.lent.push_back(object);
        self.settle();
        Ok(ObjectId(number))
    }

    /// Returns memory for an object. It is that of an earlier object if no process reads that
    /// object any more.
    pub(super) fn segment(&mut self, bytes: u64) -> Result<Segment, RegionError> {
        // A receiver may have reported just now that it dropped an object.
        self.look();
        self.links.segment(bytes)
    }

    /// True if an object of so many bytes goes inside a message, and needs no segment.
    pub(super) fn goes_inside(&self, bytes: u64) -> bool {
        bytes < self.direct_below && LocalLinks::fits(bytes)
    }

    /// Returns the object in a segment of its own, unless it goes inside a message.
    pub(super) fn shareable(&mut self, object: Object) -> Result<Object, RegionError> {
        let bytes = object.len() as u64;
        if object.segment().is_some() || self.goes_inside(bytes) {
            return Ok(object);
        }
        let mut segment = self.segment(bytes)?;
        segment.copy_from_slice(&object);
        Ok(segment.into())
    }

    pub(super) fn poll(&mut self, events: &mut Vec<BulkEvent>) -> bool {
        let told = self.events.is_empty() && std::mem::take(&mut self.is_telling);
        if told {
            self.links.post_have(self.done);
        }
        let worked = self.look() || told || !self.events.is_empty();
        events.append(&mut self.events);
        worked
    }

    /// Takes in what has come. Returns whether anything has.
    fn look(&mut self) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        if ready.is_empty() {
            self.links.ready(Duration::ZERO, &mut ready);
        }
        let worked = !ready.is_empty();
        for peer in ready.drain(..) {
            let mut news = vec![];
            let down = self.links.receive(peer, &mut news);
            let nonsense = news.into_iter().find_map(|news| self.hear(peer, news).err());
            if let Some(down) = nonsense.or(down) {
                self.lose(peer, down);
            }
        }
        self.ready = ready;
        worked
    }

    pub(super) fn wait(&mut self, at_most: Duration) {
        if !self.has_unread() {
            self.links.ready(at_most, &mut self.ready);
        }
    }

    pub(super) fn has_unread(&self) -> bool {
        self.is_telling || !self.events.is_empty() || !self.ready.is_empty()
    }

    pub(super) fn failure(&self) -> Option<&BulkFailure> {
        self.failure.as_ref()
    }

    /// True if nothing is on the way. The root knows this; the others know it when the root has
    /// reported it.
    pub(super) fn is_at_rest(&self) -> bool {
        !self.is_telling && self.lent.is_empty() && (self.me == self.root || self.finished[self.root.index()])
    }

    pub(super) fn tell_finished(&mut self) {
        self.links.post_finished();
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.links.is_flushed()
    }

    /// Returns the number of peers that have not reported that their part is done.
    pub(super) fn open(&self) -> u32 {
        let is_open = |rank: &usize| self.links.is_open(Rank(*rank as u32)) && !self.finished[*rank];
        (0..self.finished.len()).filter(is_open).count() as u32
    }

    fn hear(&mut self, from: Rank, news: LocalEvent) -> Result<(), BulkDown> {
        let nonsense = |word| Err(BulkDown::Garbage { word });
        match news {
            LocalEvent::Finished => self.finished[from.index()] = true,
            _ if self.failure.is_some() => {}
            LocalEvent::Object { number, .. } if from != self.root || number != self.done => return nonsense(number),
            LocalEvent::Object { object, .. } if object.len() as u64 > self.object_bytes_max => {
                return Err(BulkDown::TooLong { bytes: object.len() as u64, max: self.object_bytes_max });
            }
            LocalEvent::Object { number, object } => {
                self.done += 1;
                self.events.push(BulkEvent::Complete { object: ObjectId(number), data: object });
                self.is_telling = true;
            }
            LocalEvent::Have { objects } => {
                let known = self.have[from.index()]..=self.done + self.lent.len() as u64;
                if self.me != self.root || !known.contains(&objects) {
                    return nonsense(objects);
                }
                self.have[from.index()] = objects;
                self.settle();
            }
            LocalEvent::Closed { dead } if dead.index() >= self.have.len() => {
                return nonsense(dead.0.into());
            }
            LocalEvent::Closed { dead } => self.close(dead, FailureCause::Reported { by: from }),
        }
        Ok(())
    }

    /// Reports to the root's application the objects that every member has.
    fn settle(&mut self) {
        let everywhere = self.have.iter().copied().min().unwrap_or(u64::MAX);
        while self.done < everywhere
            && let Some(data) = self.lent.pop_front()
        {
            let object = ObjectId(self.done);
            self.events.extend([BulkEvent::Complete { object, data }, BulkEvent::Everywhere { object }]);
            self.done += 1;
        }
    }

    fn lose(&mut self, peer: Rank, down: BulkDown) {
        let has_left = self.finished[peer.index()];
        // A peer that left while an object was on the way to it has not had that object.
        let is_missed = self.me == self.root && self.have[peer.index()] < self.done + self.lent.len() as u64;
        match down {
            BulkDown::Closed | BulkDown::Os { .. } if has_left && !is_missed => {}
            BulkDown::Closed | BulkDown::Os { .. } if has_left => self.close(peer, FailureCause::Left),
            // The lender is not at fault.
            BulkDown::Segment(error) => self.close(self.me, FailureCause::Memory(Arc::new(error))),
            down => self.close(peer, FailureCause::Down(Arc::new(down))),
        }
    }

    /// Closes the group because of a failure, which may be reported from elsewhere.
    pub(super) fn close(&mut self, dead: Rank, cause: FailureCause) {
        if self.failure.is_some() {
            return;
        }
        self.links.close(dead);
        let objects = (self.done..).take(self.lent.len()).map(ObjectId).collect();
        self.lent.clear();
        let failure = BulkFailure { dead, cause, objects };
        failure.tell(self.me);
        self.failure = Some(failure.clone());
        self.events.push(BulkEvent::Failed(failure));
    }
}

impl AsFd for SharedMemoryBulk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.links.as_fd()
    }
}

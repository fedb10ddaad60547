//! The state that the threads of the application and the polling thread of a participant share.
use crate::reader_core::ReaderCore;
use crate::sync::{Deadline, lock};
use crate::topic_core::TopicCore;
use crate::writer_core::WriterCore;
use spindle::GroupWaker;
use spindle_dds_core::directory::{Directory, DirectoryReplica, EntityChange, ParticipantEntry};
use spindle_dds_core::{DdsDuration, DdsError, Guid};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

/// The state of a participant.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) participant: Guid,
    state: Mutex<State>,
    /// Signalled when the directory has changed, and when the participant ends.
    changed: Condvar,
    waker: OnceLock<GroupWaker>,
    /// Whether the polling thread has to look at the state.
    is_requested: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) replica: DirectoryReplica,
    /// The requests that the polling thread sends next.
    pub(crate) outbox: VecDeque<Request>,
    /// The entities of the changes that were sent, and whose results are to come, by command.
    pub(crate) in_flight: VecDeque<Vec<Guid>>,
    pub(crate) readers: BTreeMap<Guid, Arc<ReaderCore>>,
    pub(crate) writers: BTreeMap<Guid, Arc<WriterCore>>,
    pub(crate) topics: BTreeMap<Guid, Arc<TopicCore>>,
    /// Rises when the maps of entities change.
    pub(crate) entities_version: u64,
    /// The writers that are deleted once their samples have been delivered.
    pub(crate) closing: Vec<Arc<WriterCore>>,
    /// How the group ended for this participant.
    pub(crate) ended: Option<DdsError>,
}

/// A request of the application to the polling thread.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// The participant comes, or has other data.
    Announce(ParticipantEntry),
    /// Changes that belong together, of one entity.
    Change(Guid, Vec<EntityChange>),
    /// The participant goes.
    Withdraw,
}

impl Request {
    /// Returns the request that deletes an entity.
    pub(crate) fn deletion(guid: Guid) -> Request {
        Request::Change(guid, vec![EntityChange::Delete(guid)])
    }
}

impl Shared {
    pub(crate) fn new(participant: Guid, member: u64) -> Shared {
        let state = State {
            replica: DirectoryReplica::new(member),
            outbox: VecDeque::new(),
            in_flight: VecDeque::new(),
            readers: BTreeMap::new(),
            writers: BTreeMap::new(),
            topics: BTreeMap::new(),
            entities_version: 0,
            closing: Vec::new(),
            ended: None,
        };
        Shared {
            participant,
            state: Mutex::new(state),
            changed: Condvar::new(),
            waker: OnceLock::new(),
            is_requested: AtomicBool::new(true),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Sets the handle that wakes the polling thread, once.
    pub(crate) fn set_waker(&self, waker: GroupWaker) {
        let _ = self.waker.set(waker);
    }

    /// Wakes the polling thread.
    pub(crate) fn wake(&self) {
        // Release: the polling thread sees what was written before.
        self.is_requested.store(true, Ordering::Release);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Returns whether the polling thread has to look at the state, once for each [`Shared::wake`] or several.
    pub(crate) fn take_request(&self) -> bool {
        self.is_requested.load(Ordering::Relaxed) && self.is_requested.swap(false, Ordering::AcqRel)
    }

    /// Adds a request.
    pub(crate) fn request(&self, request: Request) {
        self.lock().outbox.push_back(request);
        self.wake();
    }

    /// Adds an entity and the request that makes it known.
    ///
    /// # Errors
    /// How the participant ended: a later end finds the entity.
    pub(crate) fn enlist(&self, request: Request, add: impl FnOnce(&mut State)) -> Result<(), DdsError> {
        let mut state = self.lock();
        if let Some(ended) = &state.ended {
            return Err(ended.clone());
        }
        add(&mut state);
        state.entities_version += 1;
        state.outbox.push_back(request);
        drop(state);
        self.wake();
        Ok(())
    }

    /// Removes an entity, and asks for its deletion.
    pub(crate) fn retire(&self, guid: Guid, remove: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        remove(&mut state);
        state.entities_version += 1;
        state.outbox.push_back(Request::deletion(guid));
        drop(state);
        self.wake();
    }

    /// Tells the threads that wait that the directory has changed.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits until `found` finds something.
    pub(crate) fn wait_until<R>(
        &self,
        what: &'static str,
        timeout: DdsDuration,
        mut found: impl FnMut(&State) -> Option<R>,
    ) -> Result<R, DdsError> {
        let deadline = Deadline::after(timeout);
        let mut state = self.lock();
        loop {
            if let Some(found) = found(&state) {
                return Ok(found);
            }
            if let Some(ended) = &state.ended {
                return Err(ended.clone());
            }
            state = deadline.wait(&self.changed, state).ok_or(DdsError::Timeout { what, after: timeout })?;
        }
    }

    /// Ends the participant: nothing is sent or comes any more.
    pub(crate) fn end(&self, why: DdsError) {
        let mut state = self.lock();
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(why.clone());
        let (readers, writers) = (state.readers.clone(), state.writers.clone());
        let closing = std::mem::take(&mut state.closing);
        drop(state);
        readers.values().for_each(|reader| reader.end(why.clone()));
        writers.values().chain(&closing).for_each(|writer| writer.end(why.clone()));
        self.changed.notify_all();
    }
}

impl State {
    /// Returns the directory.
    ///
    /// # Errors
    /// How the participant ended.
    pub(crate) fn directory(&self) -> Result<&Directory, DdsError> {
        match (self.replica.directory(), &self.ended) {
            (_, Some(ended)) => Err(ended.clone()),
            (Some(directory), None) => Ok(directory),
            (None, None) => Err(DdsError::NotEnabled("participant")),
        }
    }
}

//! An instance in the cache: its state, its writers, its owner and its samples.
use super::sample::Stored;
use super::states::{InstanceState, ViewState};
use crate::id::{Guid, InstanceHandle, Position};
use crate::time::DdsTime;
use std::collections::VecDeque;
use std::sync::Arc;

/// A writer of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) writer: Guid,
    /// Whether the writer may own the instance: it has written, and kept its deadline since.
    pub(crate) candidate: bool,
    /// The position of its last change; `None` if it has registered only.
    pub(crate) last: Option<Position>,
}

/// An instance.
#[derive(Clone, Debug)]
pub(crate) struct Instance<P> {
    pub(crate) handle: InstanceHandle,
    /// The serialised key; `None` while the application knows nothing of the instance.
    key: Option<Arc<[u8]>>,
    pub(crate) state: InstanceState,
    pub(crate) view: ViewState,
    /// The number of this life of the instance, unique in the cache.
    pub(crate) life: u64,
    pub(crate) disposed_generation: u32,
    pub(crate) no_writers_generation: u32,
    pub(crate) writers: Vec<Registration>,
    pub(crate) owner: Option<Guid>,
    /// The samples, in the order in which they became visible.
    pub(crate) samples: VecDeque<Stored<P>>,
    /// The samples with data.
    pub(crate) valid: usize,
    pub(crate) unread: usize,
    /// The source timestamp and the writer of the newest change.
    pub(crate) newest: Option<(DdsTime, Guid)>,
    /// When a sample became visible last.
    pub(crate) accepted: Option<DdsTime>,
    /// The sample that waits for the minimum separation.
    pub(crate) pending: Option<Stored<P>>,
    /// When the current period of the DEADLINE began; `None` while the instance is not alive.
    pub(crate) period_from: Option<DdsTime>,
    /// When the instance ceased to be alive; `None` while it is, and after its samples were purged.
    pub(crate) ended: Option<DdsTime>,
    pub(crate) deadline_at: Option<DdsTime>,
    pub(crate) purge_at: Option<DdsTime>,
    pub(crate) release_at: Option<DdsTime>,
    pub(crate) loans: u32,
    /// The samples that one loan alone has taken out of the cache.
    pub(crate) taken: u32,
}

impl<P> Instance<P> {
    /// Makes the record of an instance of which the application knows nothing.
    ///
    /// It has the writers and the owner, which follow from the stream, whichever samples the reader gets.
    pub(crate) fn new(handle: InstanceHandle) -> Instance<P> {
        Instance {
            handle,
            key: None,
            state: InstanceState::Alive,
            view: ViewState::New,
            life: 0,
            disposed_generation: 0,
            no_writers_generation: 0,
            writers: Vec::new(),
            owner: None,
            samples: VecDeque::new(),
            valid: 0,
            unread: 0,
            newest: None,
            accepted: None,
            pending: None,
            period_from: None,
            ended: None,
            deadline_at: None,
            purge_at: None,
            release_at: None,
            loans: 0,
            taken: 0,
        }
    }

    /// Returns whether the application may know the instance.
    pub(crate) fn is_known(&self) -> bool {
        self.key.is_some()
    }

    /// Returns the serialised key. It is empty while the instance is unknown.
    pub(crate) fn key(&self) -> Arc<[u8]> {
        self.key.clone().unwrap_or_default()
    }

    pub(crate) fn set_key(&mut self, key: Arc<[u8]>) {
        self.key = Some(key);
    }

    /// Adds a writer, and returns whether that is news. A writer that has written may own the instance.
    pub(crate) fn register(&mut self, writer: Guid, wrote: Option<Position>) -> bool {
        let writes = wrote.is_some();
        match self.writers.iter_mut().find(|own| own.writer == writer) {
            Some(own) => {
                let is_news = writes && !own.candidate;
                own.candidate |= writes;
                own.last = wrote.or(own.last);
                is_news
            }
            None => {
                self.writers.push(Registration { writer, candidate: writes, last: wrote });
                true
            }
        }
    }

    /// Says whether a writer may own the instance.
    pub(crate) fn set_candidate(&mut self, writer: Guid, candidate: bool) {
        self.writers.iter_mut().filter(|own| own.writer == writer).for_each(|own| own.candidate = candidate);
    }

    /// Sets the owner: the candidate with the largest strength, of equal ones the smallest identity
    /// (DDS 2.2.3.9.2).
    pub(crate) fn choose_owner(&mut self, strength: impl Fn(Guid) -> i32) {
        let candidates = self.writers.iter().filter(|own| own.candidate).map(|own| own.writer);
        self.owner = candidates.max_by_key(|writer| (strength(*writer), std::cmp::Reverse(*writer)));
    }

    /// Brings the instance to its next life (DDS 2.2.2.5.1.3, figure 2.11).
    pub(crate) fn revive(&mut self, life: u64) {
        match self.state {
            InstanceState::Alive => return,
            InstanceState::NotAliveDisposed => {
                self.disposed_generation = self.disposed_generation.saturating_add(1);
            }
            InstanceState::NotAliveNoWriters => {
                self.no_writers_generation = self.no_writers_generation.saturating_add(1);
            }
        }
        self.state = InstanceState::Alive;
        self.view = ViewState::New;
        self.life = life;
    }

    pub(crate) fn generations(&self) -> u32 {
        self.disposed_generation.saturating_add(self.no_writers_generation)
    }

    /// Returns whether nothing refers to the instance any more.
    pub(crate) fn is_garbage(&self) -> bool {
        self.is_garbage_without_loans() && self.loans == 0
    }

    /// Returns whether only loans refer to the instance, if anything does.
    pub(crate) fn is_garbage_without_loans(&self) -> bool {
        self.writers.is_empty() && self.samples.is_empty() && self.pending.is_none()
    }

    /// Returns whether the sample that a new one replaces has an open loan, so its memory is not free.
    pub(crate) fn is_oldest_lent(&self) -> bool {
        self.lent_of_oldest(1) > 0
    }

    /// Returns how many of the oldest samples with data have open loans.
    pub(crate) fn lent_of_oldest(&self, count: usize) -> usize {
        let oldest = self.samples.iter().filter(|sample| sample.data.is_some()).take(count);
        oldest.filter(|sample| sample.loans > 0).count()
    }

    /// Returns the number of read and of unread samples.
    pub(crate) fn counts(&self) -> [usize; 2] {
        [self.samples.len() - self.unread, self.unread]
    }

    /// Adds a sample.
    pub(crate) fn push(&mut self, sample: Stored<P>) {
        self.valid += usize::from(sample.data.is_some());
        self.unread += usize::from(!sample.read);
        self.samples.push_back(sample);
    }

    /// Returns the index of a sample.
    pub(crate) fn find(&self, arrival: u64) -> Option<usize> {
        self.samples.binary_search_by_key(&arrival, |sample| sample.arrival).ok()
    }

    /// Removes the sample at an index.
    pub(crate) fn remove(&mut self, index: usize) -> Option<Stored<P>> {
        let sample = self.samples.remove(index)?;
        self.valid -= usize::from(sample.data.is_some());
        self.unread -= usize::from(!sample.read);
        Some(sample)
    }
}

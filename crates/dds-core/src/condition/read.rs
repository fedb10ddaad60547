//! The conditions of a reader: samples with some states, and those that pass a query.
use super::core::{Condition, Trigger};
use super::sync::{Mutex, lock};
use crate::cache::{GroupCaches, ReaderCache, Select};
use crate::error::DdsError;
use crate::filter::{FilterError, Query};
use crate::id::Guid;
use crate::instance::StateMask;
use std::fmt;
use std::sync::{Arc, PoisonError};

/// The samples of a reader, as its conditions see them.
pub trait SampleSource: Send + Sync {
    /// Returns whether a sample with these states exists that passes the query.
    fn has_match(&self, states: StateMask, query: Option<&Query>) -> bool;
}

impl<P: Clone + AsRef<[u8]> + Send + Sync> SampleSource for std::sync::Mutex<ReaderCache<P>> {
    fn has_match(&self, states: StateMask, query: Option<&Query>) -> bool {
        self.lock().unwrap_or_else(PoisonError::into_inner).has_match(states, query)
    }
}

/// The samples of a reader at GROUP scope, as its conditions see them: within an access, those at its begin.
#[derive(Debug)]
pub struct GroupSource<P> {
    /// The caches of the subscriber.
    pub caches: Arc<std::sync::Mutex<GroupCaches<P>>>,
    /// The reader.
    pub reader: Guid,
}

impl<P: Clone + AsRef<[u8]> + Send + Sync> SampleSource for GroupSource<P> {
    fn has_match(&self, states: StateMask, query: Option<&Query>) -> bool {
        let caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.reader(self.reader).is_some_and(|cache| cache.has_match(states, query))
    }
}

/// The condition that a reader has samples with some states (DDS 2.2.2.5.8). A reader makes it.
#[derive(Clone, Debug)]
pub struct ReadCondition {
    condition: Condition,
    states: StateMask,
}

struct Selected {
    source: Arc<dyn SampleSource>,
    states: StateMask,
    query: Option<Arc<Mutex<Arc<Query>>>>,
}

impl Trigger for Selected {
    fn is_triggered(&self) -> bool {
        match &self.query {
            None => self.source.has_match(self.states, None),
            Some(query) => {
                // The lock is not held, since the source has a lock of its own.
                let query = lock(query).clone();
                self.source.has_match(self.states, Some(&query))
            }
        }
    }
}

impl ReadCondition {
    /// Returns the states of the samples: the three `get_*_state_mask`.
    pub fn states(&self) -> StateMask {
        self.states
    }

    /// Returns the selection of the samples that the condition is about: `read_w_condition`
    /// (DDS 2.2.2.5.3.10). It has the states of the condition.
    pub fn select(&self) -> Select<'static> {
        Select::any().states(self.states)
    }

    /// Returns the condition, to attach it.
    pub fn condition(&self) -> &Condition {
        &self.condition
    }
}

/// The condition that a reader has samples with some states that pass a query (DDS 2.2.2.5.9).
#[derive(Clone)]
pub struct QueryCondition {
    read: ReadCondition,
    query: Arc<Mutex<Arc<Query>>>,
}

impl QueryCondition {
    /// Returns the read condition that this one is, too.
    pub fn read_condition(&self) -> &ReadCondition {
        &self.read
    }

    /// Returns the condition, to attach it.
    pub fn condition(&self) -> &Condition {
        &self.read.condition
    }

    /// Returns the states of the samples.
    pub fn states(&self) -> StateMask {
        self.read.states
    }

    /// Returns the query with its current parameters.
    pub fn query(&self) -> Arc<Query> {
        lock(&self.query).clone()
    }

    /// Returns the selection of the samples that the condition is about, by the query that
    /// [`QueryCondition::query`] has returned. It has the states of the condition and the query.
    pub fn select<'q>(&self, query: &'q Query) -> Select<'q> {
        self.read.select().query(query)
    }

    /// Changes the parameters of the query: `set_query_parameters`.
    ///
    /// # Errors
    /// [`FilterError`] if a parameter does not fit. The former ones stay.
    pub fn set_query_parameters<S: AsRef<str>>(&self, parameters: &[S]) -> Result<(), FilterError> {
        Arc::make_mut(&mut lock(&self.query)).set_parameters(parameters)?;
        self.read.condition.signal();
        Ok(())
    }
}

impl fmt::Debug for QueryCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryCondition").field("read", &self.read).finish_non_exhaustive()
    }
}

/// The conditions that a reader has made.
pub struct ReadConditions {
    source: Arc<dyn SampleSource>,
    /// Replaced as a whole at each change, so a signal copies none.
    conditions: Mutex<Arc<[Condition]>>,
}

impl ReadConditions {
    /// Makes the conditions of a reader without any.
    pub fn new(source: Arc<dyn SampleSource>) -> ReadConditions {
        ReadConditions { source, conditions: Mutex::new(Arc::from([])) }
    }

    fn add(&self, states: StateMask, query: Option<Arc<Mutex<Arc<Query>>>>) -> ReadCondition {
        let condition = Condition::new(Arc::new(Selected { source: self.source.clone(), states, query }));
        let mut conditions = lock(&self.conditions);
        *conditions = conditions.iter().chain([&condition]).cloned().collect();
        drop(conditions);
        ReadCondition { condition, states }
    }

    /// Makes a condition: `create_readcondition` (DDS 2.2.2.5.3.5).
    pub fn create_readcondition(&self, states: StateMask) -> ReadCondition {
        self.add(states, None)
    }

    /// Makes a condition with a query: `create_querycondition` (DDS 2.2.2.5.3.6).
    pub fn create_querycondition(&self, states: StateMask, query: Query) -> QueryCondition {
        let query = Arc::new(Mutex::new(Arc::new(query)));
        QueryCondition { read: self.add(states, Some(query.clone())), query }
    }

    /// Deletes a condition: `delete_readcondition` (DDS 2.2.2.5.3.7). Its wait sets lose it.
    ///
    /// # Errors
    /// `PreconditionNotMet` if this reader did not make it, or if it was deleted.
    pub fn delete_readcondition(&self, condition: &Condition) -> Result<(), DdsError> {
        let mut conditions = lock(&self.conditions);
        if !conditions.contains(condition) {
            let what = format!("{condition:?} is none of this reader");
            return Err(DdsError::PreconditionNotMet { what, remedy: "delete it at the reader that made it" });
        }
        *conditions = conditions.iter().filter(|own| *own != condition).cloned().collect();
        drop(conditions);
        condition.delete();
        Ok(())
    }

    /// Deletes all conditions: a part of `delete_contained_entities` (DDS 2.2.2.5.3.30).
    pub fn delete_all(&self) {
        let all = std::mem::replace(&mut *lock(&self.conditions), Arc::from([]));
        all.iter().for_each(Condition::delete);
    }

    /// Returns the number of conditions. A reader with conditions can't be deleted.
    pub fn len(&self) -> usize {
        lock(&self.conditions).len()
    }

    /// Returns whether there is no condition.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Signals that samples or states have changed. The reader calls it after each event, and after each
    /// read and take. It may hold the lock of its cache.
    pub fn data_changed(&self) {
        let conditions = lock(&self.conditions).clone();
        conditions.iter().for_each(Condition::signal);
    }
}

impl fmt::Debug for ReadConditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadConditions").field("conditions", &self.len()).finish_non_exhaustive()
    }
}

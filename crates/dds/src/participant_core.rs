//! A participant as its entities hold it: its identity, its member of the group, and its end.
use crate::config::DomainConfig;
use crate::driver::{Driver, INCARNATION};
use crate::planner::directory_subgroup;
use crate::shared::{Request, Shared};
use crate::sync::lock;
use spindle::{Config, Group};
use spindle_dds_core::directory::ParticipantEntry;
use spindle_dds_core::qos::DomainParticipantQos;
use spindle_dds_core::{DdsDuration, DdsError, Guid};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// The part of a [`Guid`] that all entities of a participant have.
const PREFIX_BYTES: usize = 12;

/// A participant. It ends when the last entity of it is dropped.
#[derive(Debug)]
pub(crate) struct ParticipantCore {
    pub(crate) config: DomainConfig,
    pub(crate) guid: Guid,
    pub(crate) shared: Arc<Shared>,
    pub(crate) qos: Mutex<DomainParticipantQos>,
    group: Mutex<Option<Group>>,
    member: u64,
    next_entity: AtomicU32,
    is_closed: AtomicBool,
}

/// Returns a number that no other process draws.
fn random() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

impl ParticipantCore {
    /// Joins the group of the domain, or creates it, and waits until the others know the participant.
    pub(crate) fn join(config: DomainConfig, qos: DomainParticipantQos) -> Result<ParticipantCore, DdsError> {
        let mut guid = [0; 16];
        guid[..8].copy_from_slice(&random().to_le_bytes());
        guid[8..PREFIX_BYTES].copy_from_slice(&random().to_le_bytes()[..4]);
        let guid = Guid(guid);
        let failed = |what: &dyn std::fmt::Display| {
            DdsError::Error(format!("domain {} can't be joined: {what}", config.domain_id))
        };
        let group = Config {
            subgroups: vec![directory_subgroup()],
            gather_timeout: config.join_timeout,
            runtime_dir: config.runtime_dir.clone(),
            network: config.network.clone(),
            spin_for: config.spin_for,
            suspect_after: config.suspect_after,
            ..Config::new(config.group(), 1)
        };
        let mut node = group.join().map_err(|error| failed(&error))?;
        let member = node.id().0;
        let shared = Arc::new(Shared::new(guid, member));
        let driver = Driver::new(&shared, &mut node, config.ring_bytes)?;
        let group = node.start_with(driver, Driver::after_poll).map_err(|error| failed(&error))?;
        shared.set_waker(group.waker());
        let core = ParticipantCore {
            guid,
            shared,
            qos: Mutex::new(qos),
            group: Mutex::new(Some(group)),
            member,
            next_entity: AtomicU32::new(1),
            is_closed: AtomicBool::new(false),
            config,
        };
        core.announce();
        core.shared.wait_until("the announcement of a participant", core.config.join_timeout.into(), |state| {
            state.replica.directory()?.participant(guid).map(|_| ())
        })?;
        Ok(core)
    }

    /// Returns the identity of a new entity.
    pub(crate) fn new_guid(&self) -> Guid {
        let mut guid = self.guid;
        guid.0[PREFIX_BYTES..].copy_from_slice(&self.next_entity.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        guid
    }

    /// Tells the others of the participant, with its USER_DATA.
    pub(crate) fn announce(&self) {
        let entry = ParticipantEntry {
            guid: self.guid,
            member: self.member,
            incarnation: INCARNATION,
            name: self.config.name.clone(),
            user_data: lock(&self.qos).user_data.clone(),
        };
        self.shared.request(Request::Announce(entry));
    }

    /// Returns an error if the participant is closed or has ended.
    pub(crate) fn check(&self) -> Result<(), DdsError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(DdsError::AlreadyDeleted("participant"));
        }
        self.shared.lock().ended.clone().map_or(Ok(()), Err)
    }

    /// Ends the participant: its last samples are delivered, its entities go, and it leaves the group.
    pub(crate) fn close(&self) -> Result<(), DdsError> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let timeout = self.config.close_timeout;
        let goes = self.withdraw(timeout.into());
        let group = lock(&self.group).take();
        self.shared.end(DdsError::AlreadyDeleted("participant"));
        if let Some(group) = group {
            let left = group.leave(timeout);
            goes?;
            left.map_err(|error| DdsError::Error(format!("the participant did not leave in order: {error}")))?;
        }
        Ok(())
    }

    /// Waits for the last samples, and tells the others that the participant goes.
    fn withdraw(&self, timeout: DdsDuration) -> Result<(), DdsError> {
        let mut state = self.shared.lock();
        if let Some(ended) = &state.ended {
            return Err(ended.clone());
        }
        let writers = std::mem::take(&mut state.writers);
        writers.values().for_each(|writer| writer.close());
        state.closing.extend(writers.into_values());
        state.entities_version += 1;
        drop(state);
        self.shared.wake();
        let what = "the delivery of the last samples of a participant";
        self.shared.wait_until(what, timeout, |state| state.closing.is_empty().then_some(()))?;
        self.shared.request(Request::Withdraw);
        self.shared.wait_until("the end of a participant", timeout, |state| {
            state.replica.directory()?.participant(self.guid).is_none().then_some(())
        })
    }
}

impl Drop for ParticipantCore {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::debug!(target: "spindle::dds", participant = %self.guid, "{error}");
        }
    }
}

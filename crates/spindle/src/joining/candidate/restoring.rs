//! Joins with the state of the application: a thread follows the group, and this one applies its
//! items.
use super::{Candidate, LONG_TICK};
use crate::bootstrap_progress::BootstrapProgress;
use crate::control_plane::{ControlPlane, after};
use crate::error::JoinError;
use crate::handler::Handler;
use crate::joining::follower::Follower;
use crate::joining::learner::{AdmittedLearner, Learner, LearnerItem, LearnerQueue};
use crate::transfer::TARGET;
use spindle_core::Message;
use spindle_core::control::Restored;
use spindle_fabric::Arena;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;
use tracing::{info, warn};

impl Candidate<'_> {
    /// Joins as a process that has found members and needs their application's state.
    pub(super) fn restore<H: Handler>(
        &mut self,
        control_plane: ControlPlane,
        handler: &mut H,
    ) -> Result<AdmittedLearner, JoinError> {
        let queue = Arc::new(LearnerQueue::default());
        let seen = Arc::new(Mutex::new(self.seen.clone()));
        let (dir, group) = (self.dir.clone(), self.group.clone());
        let bytes_max = self.config.object_bytes_max;
        let follower =
            Follower::new(control_plane, self.settings.digest(), self.config.founders, bytes_max, (dir, group));
        let begin = (Arena::new(self.event_count.clone()), self.config.terms(&self.clock));
        let learner = Learner::new(follower, begin, self.failed_source, Arc::clone(&queue), Arc::clone(&seen));
        let thread = thread::Builder::new().name("spindle-learn".into()).spawn(move || learner.run());
        let thread = thread.map_err(JoinError::Thread)?;
        let learned = self.apply(handler, &queue, &seen);
        queue.stop.store(true, Ordering::Release);
        let _ = thread.join();
        learned
    }

    /// Applies the follower's items until this process is admitted.
    fn apply<H: Handler>(
        &mut self,
        handler: &mut H,
        queue: &LearnerQueue,
        seen: &Mutex<BootstrapProgress>,
    ) -> Result<AdmittedLearner, JoinError> {
        // Nothing is applied before the state.
        let mut restored: Option<Restored> = None;
        loop {
            let here = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
            self.show(here);
            let tick = self.tick(LONG_TICK)?;
            let item = queue.take(tick);
            let came = item.is_some();
            match item {
                None => {}
                Some(LearnerItem::State { state: mut taken, source, view }) => {
                    self.has_restored = true;
                    let begin = Instant::now();
                    if let Err(error) = handler.restore(&mut taken) {
                        if !taken.broken {
                            return Err(JoinError::Restore(error));
                        }
                        warn!(target: TARGET, member = source.0, view = view.id.0, reason = %error, "state broke off");
                        self.failed_source = Some(source);
                        return Err(JoinError::Source(error));
                    }
                    info!(
                        target: TARGET, member = source.0, view = view.id.0, restore_ms = begin.elapsed().as_secs_f64() * 1e3,
                        "state is restored"
                    );
                    queue.restored.store(true, Ordering::Release);
                    restored = Some(Restored::new(view, taken.sequences));
                }
                Some(LearnerItem::Message { subgroup, sender, sender_id, round, payload }) => {
                    if let Some(restored) = restored.as_ref().filter(|state| state.lacks(subgroup, sender, round)) {
                        let message = Message { sender, sender_id, round, payload: &payload };
                        handler.learn(restored.view(), subgroup, &message);
                    }
                }
                Some(LearnerItem::Changed(change)) => {
                    if let Some(restored) = &mut restored {
                        restored.begin(Arc::clone(&change.new));
                        handler.view_changed(&change);
                    }
                }
                Some(LearnerItem::Admitted(admitted)) => return Ok(*admitted),
                Some(LearnerItem::Failed(error)) => return Err(self.note_left_out(error)),
            }
            if came {
                // The timeout limits a wait, not a transfer.
                self.deadline = after(Instant::now(), self.config.gather_timeout);
            }
        }
    }
}

//! Measurements of a member for monitoring: the time from claim to delivery, and the
//! durations of view changes.
use super::Node;
use crate::histogram::Histogram;
use crate::shared::Sample;
use crate::status::ClockStatus;
use spindle_core::{SubgroupId, Time, ViewId};

/// The measurements of a member.
#[derive(Debug, Default)]
pub(super) struct Measurements {
    /// The sample whose delivery is awaited.
    awaited: Option<Awaited>,
    /// Since when the view changes, if it does.
    changing_since: Option<Time>,
    pub(super) view_changes: Histogram,
}

/// A sampled message of this member.
#[derive(Debug)]
struct Awaited {
    sample: Sample,
    /// The index of the subgroup's handles.
    handles: usize,
    /// The view with which the subgroup's epoch began, and its number there.
    home: (ViewId, SubgroupId),
    /// The member's rank among the senders.
    sender: usize,
    /// The number of rounds that this member had announced once it had announced the message.
    rounds: Option<u64>,
}

impl Node {
    /// Looks whether the sampled message is delivered here.
    #[cold]
    pub(super) fn look_at_sample(&mut self) {
        if self.measurements.awaited.is_none() {
            self.measurements.awaited = self.find_sample();
        }
        let Some(awaited) = &mut self.measurements.awaited else { return self.shared.clear_sample() };
        let (view, id) = awaited.home;
        let Some(engine) = self.member.engine_of(view) else { return self.drop_sample() };
        if awaited.rounds.is_none() && engine.is_announced(id, awaited.sample.position) {
            awaited.rounds = engine.announced_rounds(id);
        }
        let is_delivered = |rounds| engine.delivered_rounds(id, awaited.sender) >= rounds;
        if awaited.rounds.is_some_and(is_delivered) {
            self.handles[awaited.handles].latency.record(awaited.sample.at.elapsed());
            self.drop_sample();
        }
    }

    /// Finds the ring of the sample, if it belongs to an epoch that continues.
    fn find_sample(&self) -> Option<Awaited> {
        let sample = self.shared.sample()?;
        self.handles.iter().enumerate().find_map(|(handles, of_subgroup)| {
            let home = of_subgroup.home()?;
            let engine = self.member.engine_of(home.0)?;
            engine.claims(home.1).filter(|claims| std::sync::Arc::ptr_eq(claims, &sample.claims))?;
            let spec = &engine.view().subgroups[home.1.index()];
            let sender = spec.senders.iter().position(|rank| *rank == engine.me())?;
            Some(Awaited { sample: sample.clone(), handles, home, sender, rounds: None })
        })
    }

    /// Gives the sample up, if there is one.
    pub(super) fn drop_sample(&mut self) {
        self.measurements.awaited = None;
        self.shared.clear_sample();
    }

    /// Returns how this member's clock agrees with those of others, if it may have logs.
    pub(super) fn clock_status(&self) -> Option<ClockStatus> {
        let clock = &self.terms.clock;
        self.terms.may_log.then(|| ClockStatus {
            skew_max: self.terms.clock_skew_max,
            ahead: clock.ahead(),
            stepped_ns: clock.stepped_ns(),
            refusals: self.control_plane.roster().clock_refusals(),
        })
    }

    /// Notes that the change of the view has begun here.
    #[cold]
    pub(super) fn note_change(&mut self) {
        let now = self.control_plane.now();
        self.measurements.changing_since.get_or_insert(now);
    }

    /// Notes that the next view has begun here.
    pub(super) fn note_changed(&mut self) {
        let now = self.control_plane.now();
        if let Some(since) = self.measurements.changing_since.take() {
            self.measurements.view_changes.record(now.since(since));
        }
        // The message may be sent again in another ring.
        self.drop_sample();
        self.shared.ask_for_sample();
    }

    /// Returns whether the change of the view was [noted](Self::note_change).
    #[inline]
    pub(super) fn is_change_noted(&self) -> bool {
        self.measurements.changing_since.is_some()
    }
}

//! A sleep of a member, and the rows of ended views whose users may wake it.
use crate::event_count::{Announced, EventCount};
use std::sync::Weak;
use std::time::Instant;

/// A sleep that was announced, and the means that will end it.
#[derive(Debug)]
pub(super) struct Sleeper {
    pub(super) announced: Announced,
    /// True if the eventfd ends it, among other descriptors.
    pub(super) by_event: bool,
    /// The time of the announcement.
    pub(super) since: Instant,
    /// True if the look at all work that precedes the sleep begins so long after the announcement
    /// that it misses nothing.
    pub(super) settled: bool,
    /// True if the member is awake while the announcement is in force.
    pub(super) is_awake: bool,
    /// The number of times that work was found since the last sleep.
    pub(super) worked: u32,
}

/// A row of an ended view whose ring applications of this process still use. Their commits there
/// ring the member, too.
#[derive(Debug)]
pub struct Lingering {
    pub(super) event_count: EventCount,
    pub(super) announced: Option<Announced>,
    /// The applications that use the ring; this entry is of no use once it is gone.
    pub(super) user: Weak<()>,
}

impl Lingering {
    /// Listens there as well. The event count itself is announced after this.
    pub(super) fn announce(&mut self) {
        self.announced = Some(self.event_count.announce_too());
    }

    pub(super) fn withdraw(&mut self) {
        if let Some(announced) = self.announced.take() {
            self.event_count.withdraw(announced);
        }
    }
}

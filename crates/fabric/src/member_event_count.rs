//! The event count that wakes one member in all its views, with the descriptors that its peers get.
use crate::event_count::{EVENT_COUNT_BYTES, LIFE, describe, new_event};
use crate::region::{RegionError, SharedRegion};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// The event count that wakes one member, in every view that it is in.
#[derive(Clone, Debug)]
pub struct MemberEventCount {
    pub(crate) region: Arc<SharedRegion>,
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) event: Option<Arc<OwnedFd>>,
}

impl MemberEventCount {
    /// Creates the event count of a member whose peers are all on this machine.
    ///
    /// # Errors
    /// As [`OwnRegion::create`](crate::OwnRegion::create).
    pub fn create() -> Result<MemberEventCount, RegionError> {
        let (region, fd) = SharedRegion::create("spindle-event_count", EVENT_COUNT_BYTES)?;
        describe(&region);
        Ok(MemberEventCount { region: Arc::new(region), fd: Arc::new(fd), event: None })
    }

    /// Creates the event count of a member that may have peers on other machines, for which it
    /// waits among descriptors. It takes one more descriptor, in this process and in each peer on
    /// this machine.
    ///
    /// # Errors
    /// As [`OwnRegion::create`](crate::OwnRegion::create).
    pub fn with_event() -> Result<MemberEventCount, RegionError> {
        let os = |errno: rustix::io::Errno| RegionError::Os {
            call: "eventfd",
            name: "a doorbell".to_string(),
            source: errno.into(),
        };
        let event = Some(Arc::new(new_event().map_err(os)?));
        Ok(MemberEventCount { event, ..MemberEventCount::create()? })
    }

    /// Returns the futex that shows the end of the thread that [holds](crate::LivenessThread) it.
    pub(crate) fn life(&self) -> &AtomicU32 {
        self.region.half_word(LIFE)
    }

    pub(crate) fn region(&self) -> &Arc<SharedRegion> {
        &self.region
    }
}

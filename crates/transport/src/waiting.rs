//! Waits for descriptors, each with a maximum. An interruption counts as a timeout.
use rustix::event::epoll::{self, Event, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Space into which the system writes up to `N` events of epoll.
#[derive(Debug)]
pub struct EpollSpace<const N: usize>([MaybeUninit<Event>; N]);

impl<const N: usize> Default for EpollSpace<N> {
    fn default() -> EpollSpace<N> {
        EpollSpace([const { MaybeUninit::uninit() }; N])
    }
}

impl<const N: usize> EpollSpace<N> {
    /// Waits for events of `epoll`, for at most `at_most`. Returns the data and the flags of each.
    pub fn wait<'r>(
        &'r mut self,
        epoll: BorrowedFd<'_>,
        at_most: Duration,
    ) -> impl Iterator<Item = (u64, EventFlags)> + use<'r, N> {
        let events: &[Event] = match epoll::wait(epoll, &mut self.0, Some(&timespec(at_most))) {
            Ok((events, _)) => events,
            Err(_) => &[],
        };
        events.iter().map(|event| {
            // Copied, because it may be unaligned.
            let (flags, data) = (event.flags, event.data);
            (data.u64(), flags)
        })
    }
}

/// Waits until `fd` is readable, for at most `at_most`.
pub fn wait_readable(fd: impl AsFd, at_most: Duration) {
    let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timespec(at_most)));
}

/// Returns `time` in the form that system calls take.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().min(i32::MAX as u64) as i64, tv_nsec: time.subsec_nanos().into() }
}

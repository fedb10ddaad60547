//! The death watch: one thread that sleeps in the kernel until a member's process ends, somebody knocks at the group's
//! door, or it is told to stop. While nothing happens it costs nothing.
use super::error::MeetError;
use super::keeper::Keeper;
use super::sock::wait;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use spindle_core::Rank;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The pause after a wait that the system refused: for want of memory, or because the limit of descriptors was lowered
/// below those watched.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// Watches over the members of a group until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Reports the death of each process in `pidfds` once, by `on_death` on the watcher's thread, and answers
    /// newcomers for `keeper` meanwhile.
    ///
    /// A member that is already dead is reported at once. `on_death` must not panic: nothing would be watched any more.
    ///
    /// # Errors
    /// [`MeetError::FdLimit`], or [`MeetError::Io`] if there can be no more threads.
    pub fn spawn(
        pidfds: Vec<(Rank, OwnedFd)>,
        keeper: Keeper,
        on_death: impl Fn(Rank) + Send + 'static,
    ) -> Result<Self, MeetError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| MeetError::io("make the watcher's bell", None, errno))?;
        let stop = Arc::new(stop);
        let heard = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("spindle-watch".into())
            .spawn(move || watch(&heard, pidfds, keeper, on_death))
            .map_err(|source| MeetError::Io { doing: "start the watcher's thread", path: None, source })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // An eventfd takes eight bytes unless its count overflows, which one write can't do.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        let Some(thread) = self.thread.take() else { return };
        // Dropped by `on_death` itself: the thread stops after it.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

fn watch(stop: &OwnedFd, mut pidfds: Vec<(Rank, OwnedFd)>, mut keeper: Keeper, on_death: impl Fn(Rank)) {
    loop {
        let watched = pidfds.iter().map(|(_, pidfd)| pidfd.as_fd());
        let all = [stop.as_fd()].into_iter().chain(watched).chain(keeper.waits_for());
        let mut fds: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        if wait(&mut fds, keeper.patience(Instant::now())).is_err() {
            std::thread::sleep(REFUSED_PAUSE);
            continue;
        }
        let events: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if events[0] {
            return;
        }
        let mut dead = events[1..=pidfds.len()].iter();
        pidfds.retain(|(rank, _)| {
            let dead = *dead.next().unwrap_or(&false);
            if dead {
                on_death(*rank);
            }
            !dead
        });
        keeper.serve(Instant::now());
    }
}

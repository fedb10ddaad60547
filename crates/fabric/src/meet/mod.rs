//! How a fixed number of processes of one user on one host become a group: [`meet`]; and how each learns at once that
//! another died: [`Watcher`]. Start reading there.
//!
//! There is no daemon. Whoever gets the lock of the group's name is the *founder*: it hears the others at a socket in
//! the user's private [`RuntimeDir`], and when all are there it tells everyone the [`Roster`], collects from each its
//! memory, its doorbell and a descriptor of its process, and hands all of them to all. What travels is descriptors,
//! never names, so nothing outlives the processes but an empty lock file and, after a crash, a socket that the next
//! founder replaces.
//!
//! What holds:
//! - a meeting is all or nothing: a member that is lost after the roster was complete ends it for everyone;
//! - before that, anybody may come and go, the founder too (another takes its place);
//! - nothing waits longer than the deadline, and a stranger's bytes cost only the stranger its connection.
//!
//! This is not membership: the roster never changes, and what to do about a death is the caller's business.
mod error;
mod founder;
mod joiner;
mod keeper;
mod limits;
mod sock;
#[cfg(test)]
mod tests;
mod watch;
mod wire;

pub use crate::mail::bytes::WireError;
pub use error::{Fault, Loss, MeetError};
pub use keeper::Keeper;
pub use watch::Watcher;
pub use wire::VERSION;

use crate::mail::limits::{BACK_OFF_MAX, BACK_OFF_MIN};
use crate::mail::{GroupName, RuntimeDir};
use joiner::Outcome;
use limits::TICK;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use sock::Door;
use spindle_core::limits::MEMBERS_MAX;
use spindle_core::{MemberId, Rank};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a process asks for.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Where the group meets.
    pub dir: &'a RuntimeDir,
    /// Its name.
    pub group: &'a GroupName,
    /// How many members it has, 1 to 1024; the same at all.
    pub members: u32,
    /// The id to have in the group; `None`: the smallest from 1 up that nobody asked for.
    pub id: Option<MemberId>,
    /// A digest of everything that all members must have configured alike.
    pub config: u64,
    /// Until when to wait.
    pub deadline: Instant,
    /// Ends the wait within 50 ms once it is true.
    pub cancelled: &'a AtomicBool,
}

/// Somebody who waits for the group to be complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Present {
    /// The id that it asked for.
    pub id: Option<MemberId>,
    /// Its process; 0 if it can't be named here.
    pub pid: u32,
}

/// Who waits. A process that has found no founder yet knows of itself only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gathering {
    /// How many members the group has when it is complete.
    pub members: u32,
    /// Who is here: the founder first, then in the order of arrival; by rank once all are here.
    pub present: Vec<Present>,
    /// Told to the founder alone: the connection that it dropped just now, by process, and why.
    pub dropped: Option<(u32, Fault)>,
}

impl Gathering {
    /// How many have yet to come.
    pub fn missing(&self) -> u32 {
        self.members.saturating_sub(self.present.len() as u32)
    }
}

/// A member of a complete group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its id.
    pub id: MemberId,
    /// Its process; 0 if the founder could not name it (another pid namespace).
    pub pid: u32,
}

/// Who takes part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Roster {
    /// The members, by ascending id: a member's index is its rank.
    pub members: Vec<Member>,
    /// This process's rank.
    pub me: Rank,
    /// The founder's rank.
    pub founder: Rank,
    /// Random, new for each meeting, the same at all members.
    pub incarnation: u128,
}

impl Roster {
    fn gathering(&self) -> Gathering {
        let present: Vec<_> = self.members.iter().map(|m| Present { id: Some(m.id), pid: m.pid }).collect();
        Gathering { members: present.len() as u32, present, dropped: None }
    }
}

/// What a member hands to all the others.
#[derive(Debug)]
pub struct Offer {
    /// Its row: memory that it writes and the others read.
    pub row: OwnedFd,
    /// Its doorbell.
    pub bell: OwnedFd,
}

/// What a member gets from each member.
#[derive(Debug)]
pub struct PeerFds {
    /// The member's row.
    pub row: OwnedFd,
    /// The member's doorbell.
    pub bell: OwnedFd,
    /// The member's process: readable once it is dead.
    pub pidfd: OwnedFd,
}

/// A group that is complete, at one of its members.
#[derive(Debug)]
pub struct Meeting {
    /// Who takes part, and which of them this process is.
    pub roster: Roster,
    /// By rank, this process's own among them.
    pub peers: Vec<PeerFds>,
    /// Holds the group's name for its lifetime; to be given to the [`Watcher`].
    pub keeper: Keeper,
}

/// Waits for the group to be complete and trades memory with all its members.
///
/// `progress` is called whenever somebody comes or goes. `make` is called once, when everybody is there, to make what
/// this member hands to the others.
///
/// # Errors
/// Everything that keeps this process out; see [`MeetError`]. After an error nothing of this process is left behind.
///
/// # Panics
/// If `progress` or `make` does.
pub fn meet<E>(
    terms: &Terms<'_>,
    progress: &mut dyn FnMut(&Gathering),
    make: impl FnOnce(&Roster) -> Result<Offer, E>,
) -> Result<Meeting, MeetError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if terms.members == 0 || terms.members as usize > MEMBERS_MAX {
        return Err(MeetError::Members { got: terms.members });
    }
    let mut make = Some(make);
    // Only the last attempt gets as far as calling it.
    let mut make = |roster: &Roster| match make.take() {
        Some(make) => make(roster).map_err(|e| MeetError::Make(e.into())),
        None => unreachable!("a complete roster ends the meeting, one way or the other"),
    };
    let alone = Gathering { members: terms.members, present: vec![], dropped: None };
    let mut session = Session { terms: *terms, progress, make: &mut make, seen: alone };
    let mut back_off = BACK_OFF_MIN;
    loop {
        session.see_myself();
        let tick = session.tick()?;
        if let Some(door) = Door::open(terms.dir, terms.group)? {
            return founder::found(&mut session, door);
        }
        if let Some(socket) = sock::reach(terms.dir, terms.group)? {
            match joiner::join(&mut session, socket)? {
                Outcome::Met(meeting) => return Ok(*meeting),
                Outcome::FounderGone => {}
            }
        }
        std::thread::sleep(back_off.min(tick));
        back_off = (2 * back_off).min(BACK_OFF_MAX);
    }
}

/// A call of [`meet`]: what was asked for, and how far it got.
struct Session<'a> {
    terms: Terms<'a>,
    progress: &'a mut dyn FnMut(&Gathering),
    make: &'a mut dyn FnMut(&Roster) -> Result<Offer, MeetError>,
    seen: Gathering,
}

impl Session<'_> {
    /// How long to wait for the next event at most; an error if the meeting is over.
    fn tick(&self) -> Result<Duration, MeetError> {
        if self.terms.cancelled.load(Ordering::Relaxed) {
            return Err(MeetError::Cancelled { gathering: self.seen.clone() });
        }
        let left = self.terms.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(MeetError::TimedOut { gathering: self.seen.clone() });
        }
        Ok(left.min(TICK))
    }

    /// Tells the caller who is here, if that is news.
    fn see(&mut self, gathering: Gathering) {
        if gathering != self.seen {
            (self.progress)(&gathering);
            self.seen = Gathering { dropped: None, ..gathering };
        }
    }

    fn see_myself(&mut self) {
        let members = self.terms.members;
        self.see(Gathering { members, present: vec![self.myself()], dropped: None });
    }

    fn myself(&self) -> Present {
        Present { id: self.terms.id, pid: std::process::id() }
    }

    /// What this member hands over.
    fn make(&mut self, roster: &Roster) -> Result<PeerFds, MeetError> {
        let Offer { row, bell } = (self.make)(roster)?;
        let pidfd = pidfd_open(getpid(), PidfdFlags::empty())
            .map_err(|errno| MeetError::io("open a descriptor of this process", None, errno))?;
        Ok(PeerFds { row, bell, pidfd })
    }
}

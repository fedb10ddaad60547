//! The role of a process that takes its address: it creates the group, or finds its members.
use super::control_socket::{ControlSocket, CreateOutcome, again_if_it_vanishes, smallest_free};
use super::dir::{GroupName, RuntimeDir};
use super::error::RendezvousError;
use super::group_files::{Census, GroupFiles, GroupLock};
use super::living::NamePrefix;
use spindle_core::MemberId;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// The role of a process that has just taken its address.
#[derive(Debug)]
pub enum Role {
    /// No member lived: it is the first one of a new group.
    Founder {
        /// Its address.
        control_socket: ControlSocket,
        /// Random, new for each group.
        incarnation: u128,
    },
    /// It may ask to join, with [`spindle_core::control::ControlMessage::Ask`].
    Joiner {
        /// Its address.
        control_socket: ControlSocket,
        /// The members to ask, by ascending id. At least one.
        members: Vec<MemberId>,
    },
}

/// Finds the group, or creates it if no member lives. Takes the address of `id`, or else of the
/// smallest id from 1 that no process has had in this group. Returns the role that results for this
/// process. No other process can create the group meanwhile, nor later while this process is a
/// member (see [`ControlSocket::leave`]).
///
/// # Errors
/// [`RendezvousError::IdInUse`], [`RendezvousError::Locked`] at the deadline,
/// [`RendezvousError::Cancelled`], or what the system refuses.
pub fn found_or_find(
    dir: &RuntimeDir,
    group: &GroupName,
    id: Option<MemberId>,
    deadline: Instant,
    cancelled: &AtomicBool,
) -> Result<Role, RendezvousError> {
    let place = GroupFiles::new(dir, group);
    let role = again_if_it_vanishes(|| {
        let lock = place.lock(deadline, cancelled)?;
        let census = place.brief_census(&lock)?;
        let given = id.is_none();
        let id = match id {
            Some(id) => id,
            None => unused(&census, &place.key, &lock)?,
        };
        let control_socket = ControlSocket::bind_member(&place, id, &lock, given)?;
        Ok(match control_socket.create_under(&lock, census)? {
            CreateOutcome::Founder { incarnation } => Role::Founder { control_socket, incarnation },
            CreateOutcome::Joiner { members } => Role::Joiner { control_socket, members },
        })
    })?;
    if matches!(role, Role::Founder { .. }) {
        place.sweep_others(dir);
    }
    Ok(role)
}

/// Ids from here on are hardly ever given out: processes have chosen them.
const IDS_CHOSEN_FROM: u64 = 1 << 32;

/// Returns the smallest id that no process has or had in this group. Members that don't know yet
/// that an id's former owner is dead would take the new owner for it. A former owner that was
/// stopped meanwhile would create a group of dead members with it. Live processes may have no
/// socket now; their names show them.
fn unused(census: &Census, key: &NamePrefix, lock: &GroupLock) -> Result<MemberId, RendezvousError> {
    let has_members = !census.members.is_empty();
    let mut highest = lock.highest_given()?;
    if has_members && lock.incarnation()?.is_none() {
        // The lock file is new, so it is not known which ids were given out before those of the
        // live processes.
        let present = key.present()?.into_iter().map(|id| id.0);
        highest = present.filter(|id| *id < IDS_CHOSEN_FROM).max().unwrap_or(0).max(highest);
    }
    let from = if has_members { highest + 1 } else { 1 };
    let mut taken = [&census.addressees[..], &key.present_from(from)?].concat();
    taken.sort_unstable();
    taken.dedup();
    let id = smallest_free(from, &taken);
    lock.set_highest_given(highest.max(id.0))?;
    Ok(id)
}

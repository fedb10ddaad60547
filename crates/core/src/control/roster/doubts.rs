//! The members on other hosts whose processes have ended, or may have ended.
//!
//! Nothing proves the end of a process of another host. A member in doubt is asked for a sign of
//! life, and counts as ended if it gives none in time. Each doubt is about one membership: it is
//! forgotten when the id leaves the view, or belongs to another process.
use super::TARGET;
use crate::control::{Address, DialError};
use crate::ids::{MemberId, Time, ViewId};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;
use tracing::debug;

/// The number of times that a member is asked for a sign of life while the attempts fail.
const CHECKS_MAX: u32 = 3;

/// The members that have ended, and those that are asked for a sign of life.
#[derive(Default, Debug)]
pub(super) struct Doubts {
    /// The first view of the membership of each member of the view that has begun.
    since: BTreeMap<MemberId, ViewId>,
    /// Members whose processes have ended, each with the view since which it was watched.
    ended: BTreeMap<MemberId, ViewId>,
    /// Members whose processes may have ended.
    asked: BTreeMap<MemberId, Doubt>,
}

/// A member on another host that is asked for a sign of life. Its connections report that its
/// process has ended, or that the way to it is broken.
#[derive(Debug)]
struct Doubt {
    /// The view since which it was watched, or had a way to this process.
    view: ViewId,
    /// The address at which it is asked.
    address: Address,
    since: Time,
    /// The time until which it may answer; `None`: without limit.
    ///
    /// In that case only a broken way suggests its end. A way also breaks in a network that falls
    /// silent.
    until: Option<Time>,
    /// The number of failed attempts to ask it.
    failed: u32,
}

impl Doubts {
    /// Returns the members that count as ended.
    pub(super) fn ended(&self) -> Vec<MemberId> {
        self.ended.keys().copied().collect()
    }

    /// True if the member counts as ended.
    pub(super) fn has_ended(&self, id: MemberId) -> bool {
        self.ended.contains_key(&id)
    }

    /// True if the process that was watched as `id` since `view` is the present member.
    pub(super) fn is_member_since(&self, id: MemberId, view: ViewId) -> bool {
        self.since.get(&id).is_none_or(|since| view >= *since)
    }

    /// Counts a member as ended that cannot be asked for a sign of life.
    pub(super) fn end(&mut self, id: MemberId, view: ViewId) {
        self.ended.insert(id, view);
    }

    /// Limits the time of a member that is asked already. Returns false if it is not asked.
    pub(super) fn limit(&mut self, id: MemberId, until: Option<Time>, now: Time) -> bool {
        let Some(doubt) = self.asked.get_mut(&id) else { return false };
        if doubt.until.is_none() {
            (doubt.since, doubt.until) = (now, until);
        }
        true
    }

    /// Notes that a member is asked at this address.
    pub(super) fn ask(&mut self, (id, address): (MemberId, Address), view: ViewId, until: Option<Time>, now: Time) {
        self.asked.insert(id, Doubt { view, address, since: now, until, failed: 0 });
    }

    /// Notes a sign of life of a member. Returns whether it was in doubt.
    pub(super) fn refute(&mut self, id: MemberId) -> bool {
        self.asked.remove(&id).is_some() | self.ended.remove(&id).is_some()
    }

    /// Notes that members at `address` could not be asked. Returns the members to ask again.
    pub(super) fn not_asked(&mut self, address: &Address, why: &DialError) -> Vec<MemberId> {
        // The kernel of its host, or another process there, reports its end. Otherwise the fault
        // may be this host's or the network's.
        let is_gone = match why {
            DialError::Refused(_) | DialError::Elsewhere { .. } | DialError::IdConflict(_) => true,
            DialError::Myself | DialError::Full | DialError::Other(_) => false,
        };
        let mut again = Vec::new();
        for (id, doubt) in self.asked.iter_mut().filter(|(_, doubt)| doubt.address == *address && !is_gone) {
            doubt.failed += 1;
            // A process that ends accepts connections until it has closed its listener.
            if doubt.failed < CHECKS_MAX {
                again.push(*id);
            }
        }
        // It may be asked again when its next way breaks.
        self.asked.retain(|_, doubt| doubt.until.is_some() || doubt.failed < CHECKS_MAX);
        let over = self.asked.extract_if(.., |_, doubt| doubt.address == *address && is_gone);
        self.ended.extend(over.map(|(id, doubt)| (id, doubt.view)));
        again
    }

    /// Counts members as ended that have given no sign of life in time. `me` is this process, for
    /// the log.
    ///
    /// An answer takes longer on a busy machine. So a member gets at least a quarter of `patience`,
    /// or all of it if its stream `is_down` too.
    pub(super) fn settle(&mut self, me: MemberId, is_down: impl Fn(MemberId) -> bool, patience: Duration, now: Time) {
        for (id, doubt) in &mut self.asked {
            let least = if is_down(*id) { patience } else { patience / 4 };
            doubt.until = doubt.until.map(|until| until.max(doubt.since + least));
        }
        let over = self.asked.extract_if(.., |_, doubt| doubt.until.is_some_and(|until| until <= now));
        self.ended.extend(over.map(|(id, doubt)| {
            let (failed, waited_ms) = (doubt.failed, now.since(doubt.since).as_millis() as u64);
            debug!(target: TARGET, me = me.0, member = id.0, failed, waited_ms, "no sign of life");
            (id, doubt.view)
        }));
    }

    /// Returns the times at which members count as ended if they give no sign of life.
    pub(super) fn ends(&self) -> impl Iterator<Item = Time> {
        self.asked.values().filter_map(|doubt| doubt.until)
    }

    /// Notes that `view` has begun, with these members. Forgets other members.
    pub(super) fn begin(&mut self, view: ViewId, members: &BTreeSet<MemberId>) {
        self.since.retain(|id, _| members.contains(id));
        for id in members {
            self.since.entry(*id).or_insert(view);
        }
        let since = &self.since;
        self.ended.retain(|id, watched| since.get(id).is_some_and(|since| *watched >= *since));
        self.asked.retain(|id, doubt| since.get(id).is_some_and(|since| doubt.view >= *since));
    }
}

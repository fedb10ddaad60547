//! A host: its directory with the addresses of processes, its lock of the group, and its kernel.
//!
//! Entries of the directory may vanish. The lock, the marks of members and the knowledge of
//! processes outlive them.
use spindle_core::MemberId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct SimHost {
    /// The addresses in the directory, with their processes.
    pub(super) bound: BTreeMap<MemberId, usize>,
    /// The live members, each with its process and its group.
    marks: BTreeMap<MemberId, (usize, u128)>,
    /// The group that was created or entered last.
    incarnation: Option<u128>,
    highest_given: u64,
    /// The live processes of the host.
    pub(super) living: BTreeSet<usize>,
}

/// The role of a process that has looked for its group under the lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LockedRole {
    Founder,
    Joiner(Vec<MemberId>),
}

impl SimHost {
    /// Creates the address of a process, unless another live process has it.
    pub(super) fn bind(&mut self, id: MemberId, process: usize) -> bool {
        if self.bound.get(&id).is_some_and(|other| *other != process && self.living.contains(other)) {
            return false;
        }
        self.bound.insert(id, process);
        true
    }

    /// Returns an id that no process has or had here.
    pub(super) fn unused(&mut self) -> MemberId {
        let taken = |id: &u64| self.bound.contains_key(&MemberId(*id)) || self.marks.contains_key(&MemberId(*id));
        let from = if self.marks.is_empty() { 1 } else { self.highest_given + 1 };
        let id = (from..).find(|id| !taken(id)).expect("there are many");
        self.highest_given = self.highest_given.max(id);
        MemberId(id)
    }

    /// Returns the lowest id that no process has here.
    pub(super) fn lowest(&mut self) -> MemberId {
        (1..).map(MemberId).find(|id| !self.bound.contains_key(id)).expect("there are many")
    }

    /// Returns the live members.
    pub(super) fn members(&self) -> Vec<MemberId> {
        self.marks.keys().copied().collect()
    }

    /// Creates the group unless a member lives.
    pub(super) fn create(&mut self, id: MemberId, process: usize, incarnation: u128) -> LockedRole {
        if !self.marks.is_empty() {
            return LockedRole::Joiner(self.members());
        }
        self.incarnation = Some(incarnation);
        self.marks.insert(id, (process, incarnation));
        LockedRole::Founder
    }

    /// Makes a process a member of the group that was created here last. Returns false if another
    /// group was created since.
    pub(super) fn enter(&mut self, id: MemberId, process: usize, incarnation: u128) -> bool {
        let is_it = self.incarnation == Some(incarnation);
        if is_it {
            self.marks.insert(id, (process, incarnation));
        }
        is_it
    }

    /// Makes a process a member of a group that spans hosts. This host may know nothing of that
    /// group.
    pub(super) fn enter_afar(&mut self, id: MemberId, process: usize, incarnation: u128) -> bool {
        let is_free = self.marks.iter().all(|(other, (_, of))| *of == incarnation || *other == id);
        if is_free {
            self.incarnation = Some(incarnation);
            self.marks.insert(id, (process, incarnation));
        }
        is_free
    }

    /// Records the end of a process.
    pub(super) fn end(&mut self, process: usize) {
        self.living.remove(&process);
        self.marks.retain(|_, (other, _)| *other != process);
        self.bound.retain(|_, other| *other != process);
    }

    /// Removes all addresses.
    pub(super) fn vanish(&mut self) {
        self.bound.clear();
    }
}

//! The handles that a node gives out, one for each subgroup and direction, and proposed changes of
//! subgroups.
use super::Node;
use super::older::Homes;
use crate::error::HandleError;
use crate::handles::{Publisher, ReadBarrier, Receiver, SubgroupHandles};
use crate::logs::LogAccess;
use spindle_core::{Change, Rank, SubgroupId, View};
use spindle_fabric::region::check_room;
use std::sync::Arc;

impl Node {
    /// Returns the publisher of `subgroup`, once, before the first poll. A publisher that is not
    /// taken by then counts as dropped: this member sends nothing there.
    ///
    /// In a subgroup that was created later, or that this member came into later, it may be taken at
    /// any time. Until then, or until [`seal`](Self::seal), the group does not finish.
    ///
    /// # Errors
    /// [`HandleError`].
    pub fn publisher(&mut self, subgroup: &str) -> Result<Publisher, HandleError> {
        find(self.member.view(), self.rank(), subgroup)?;
        let name = subgroup.to_string();
        let of_subgroup = self
            .handles
            .iter_mut()
            .find(|of_subgroup| of_subgroup.name == subgroup)
            .expect("handles for each subgroup");
        match of_subgroup.publisher() {
            Some(publisher) => Ok(publisher),
            None if of_subgroup.is_taken() => Err(HandleError::Taken { what: "publisher", name }),
            None if self.running => Err(HandleError::Running { name }),
            None => Err(HandleError::NoSender { name }),
        }
    }

    /// Returns the log of a logged subgroup that this member is in, for other threads.
    pub fn log(&self, subgroup: &str) -> Option<LogAccess> {
        let of_subgroup = self.named(subgroup)?;
        of_subgroup.home().and(of_subgroup.log.as_ref()).map(|log| log.access.clone())
    }

    /// Returns the read barrier of a subgroup that this member is in, for other threads. It passes in
    /// later views, too, while this member is in the subgroup.
    ///
    /// # Errors
    /// [`HandleError::NoSuchSubgroup`].
    pub fn read_barrier(&self, subgroup: &str) -> Result<ReadBarrier, HandleError> {
        find(self.member.view(), self.rank(), subgroup)?;
        Ok(self.named(subgroup).expect("handles for each subgroup").read_barrier().clone())
    }

    fn named(&self, subgroup: &str) -> Option<&SubgroupHandles> {
        self.handles.iter().find(|of_subgroup| of_subgroup.name == subgroup)
    }

    /// Opens the read barriers in the newest view. While logs are replayed the application lacks
    /// messages of earlier views.
    pub(super) fn open_read_barriers(&mut self) {
        let Node { handles, member, fabric, older, replays, .. } = self;
        if *replays {
            return handles.iter().for_each(SubgroupHandles::close_read_barrier);
        }
        let members = member.view().members.len();
        let homes = Homes { newest: fabric, older };
        for of_subgroup in handles.iter() {
            let (engine, rows) = homes.of(of_subgroup, member);
            of_subgroup.open_read_barrier(engine, rows, fabric, members);
        }
    }

    #[cfg(test)]
    pub(crate) fn handles_mut(&mut self) -> &mut [SubgroupHandles] {
        &mut self.handles
    }

    /// Declares that no more publishers are needed: those that were not taken count as dropped.
    pub fn seal(&mut self) {
        self.handles.iter_mut().for_each(SubgroupHandles::seal);
    }

    /// Makes this member wait for the others to finish, so that a hung member is detected.
    pub(crate) fn await_end(&mut self) {
        self.member.engine_mut().await_end();
        if let Some(next) = self.member.next_mut() {
            next.engine_mut().await_end();
        }
    }

    /// Asks all members for a view with a change of its subgroups. Returns false if the change
    /// makes no sense in this view, or is already in effect.
    ///
    /// If changes contradict each other, that of the older member counts.
    /// [`Handler::view_changed`](crate::Handler::view_changed) reports the result.
    ///
    /// # Errors
    /// [`HandleError::Memory`]: a view that was agreed on and fits into the memory of no member
    /// would end all members. [`HandleError::Unsupported`]: another durability.
    pub fn propose_change(&mut self, change: Change) -> Result<bool, HandleError> {
        if let Change::Create(spec) | Change::Alter(spec) = &change {
            let view = self.member.view();
            let known = view.subgroup(&spec.name).map(|id| view.subgroups[id.index()].durability);
            if known.unwrap_or_default() != spec.durability {
                return Err(HandleError::Unsupported { name: spec.name.clone() });
            }
        }
        self.member.propose_change(change, |bytes| {
            let check = check_room("the members' rows", bytes);
            check.map_err(|why| HandleError::Memory { bytes, why: why.to_string() })
        })
    }

    /// Returns the receiver of `subgroup`, for another thread than the one that polls; before the
    /// first poll. The handler then gets no messages of this subgroup.
    ///
    /// # Errors
    /// [`HandleError`].
    pub fn receiver(&mut self, subgroup: &str) -> Result<Receiver, HandleError> {
        let id = find(self.member.view(), self.rank(), subgroup)?;
        let name = subgroup.to_string();
        let of_subgroup = self
            .handles
            .iter_mut()
            .find(|of_subgroup| of_subgroup.name == subgroup)
            .expect("handles for each subgroup");
        if of_subgroup.has_receiver() {
            return Err(HandleError::Taken { what: "receiver", name });
        }
        if self.running {
            return Err(HandleError::Running { name });
        }
        let view = Arc::clone(self.member.view());
        Ok(of_subgroup.receiver(id, self.member.engine_mut(), &self.fabric, &view))
    }
}

fn find(view: &View, me: Rank, name: &str) -> Result<SubgroupId, HandleError> {
    let found = view.subgroups_of(me).find(|(_, spec)| spec.name == name);
    found.map(|(id, _)| id).ok_or_else(|| {
        let known: Vec<&str> = view.subgroups_of(me).map(|(_, spec)| spec.name.as_str()).collect();
        HandleError::NoSuchSubgroup { name: name.to_string(), known: known.join(", ") }
    })
}

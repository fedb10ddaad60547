//! Messages that no ring contains, as far as a node manages them: the bulk groups of the view, and
//! objects of delivered messages.
use super::Node;
use super::older::Homes;
use crate::error::Ended;
use crate::handles::SubgroupHandles;
use std::sync::Arc;

impl Node {
    /// Removes the objects of delivered messages: others' objects that are delivered here, and this
    /// member's own that are delivered everywhere.
    #[cold]
    pub(super) fn look_after_objects(&mut self, worked: bool) {
        let Node { handles, member, fabric, older, object_cache, .. } = self;
        let homes = Homes { newest: fabric, older };
        for of_subgroup in handles {
            let (engine, _) = homes.of(of_subgroup, member);
            of_subgroup.look_after_objects(engine, object_cache);
        }
        if !worked {
            return;
        }
        let view = Arc::clone(self.member.view());
        let engine = self.member.engine();
        // Others' objects come with the view, and end with the epochs that contain any.
        for (id, spec) in view.subgroups_of(engine.me()).filter(|(_, spec)| spec.epoch.is_none()) {
            for (sender, member) in spec.senders.iter().enumerate().filter(|(_, member)| **member != self.rank()) {
                let place = engine.layout().row(*member).subgroup(id);
                let ring = place.and_then(|place| place.ring).expect("it sends there");
                let rounds = engine.delivered_rounds(id, sender);
                let is_read = !self.handles[self.by_id[id.index()]].delivers_to_none();
                self.object_cache
                    .keep(id, *member, || self.fabric.forget_objects(*member, &ring, is_read.then_some(rounds)));
            }
        }
    }

    /// Opens bulk groups for subgroups in which this member has objects, and joins those of others.
    pub(super) fn open_large(&mut self) -> Result<(), Ended> {
        let view = Arc::clone(self.member.view());
        if let Err(why) = self.large.look(view.id, &self.control_plane) {
            return Err(self.broken(Ended::Stuck(why)));
        }
        if self.member.engine().is_changing() {
            return Ok(());
        }
        let wants = |of_subgroup: &&SubgroupHandles| of_subgroup.outbound().wants_group();
        let wanted = self
            .handles
            .iter()
            .filter(wants)
            .filter_map(|of_subgroup| Some((of_subgroup.home()?, of_subgroup.outbound())));
        let (wanted, outdated): (Vec<_>, Vec<_>) = wanted.partition(|((epoch, _), _)| *epoch == view.id);
        let are_there = self.large.has_groups() || !wanted.is_empty() || !outdated.is_empty();
        self.control_plane.act(|roster, _| self.member.note_object_groups(are_there, !outdated.is_empty(), roster));
        for remedy in self.large.overdue(&view, self.rank(), &self.control_plane) {
            self.member.remedy(remedy);
        }
        let wanted = wanted.into_iter().map(|((_, id), outbound)| (id, outbound));
        self.large.open(&mut self.control_plane, &view, self.member.engine(), &self.fabric, wanted);
        if !self.control_plane.is_calm() {
            self.control_plane.flush_now();
        }
        Ok(())
    }
}

//! Reports the wait of a process for a group: the present and the missing processes.
use super::Candidate;
use crate::bootstrap_progress::{BootstrapProgress, Present};
use crate::control_plane::ControlPlane;
use spindle_core::control::{Here, SeedWait, SeedsKnown, Seek};
use spindle_core::{MemberId, Time};

impl Candidate<'_> {
    /// Handles another process's report of the present ones.
    pub(super) fn hear_of(&mut self, Here { members, blocked, present }: Here) {
        let progress = BootstrapProgress::heard(members, blocked, present).behind(&self.seen);
        self.see(progress);
    }

    fn see(&mut self, progress: BootstrapProgress) {
        let BootstrapProgress { seeds, unreached, waits, seeds_missing, differing, differing_here, restart, .. } =
            self.seen.clone();
        self.show(BootstrapProgress {
            seeds,
            unreached,
            waits,
            seeds_missing,
            differing,
            differing_here,
            restart,
            ..progress
        });
    }

    /// Reports what this process waits for, and the missing seeds.
    pub(super) fn see_waits(&mut self, control_plane: &mut ControlPlane) {
        let restart = control_plane.restart().map(|restart| Box::new(restart.waiting()));
        let waits = control_plane.waits();
        let seeds_missing = waits.as_ref().map_or(0, SeedWait::seeds_missing);
        self.show(BootstrapProgress { waits: waits.map(Box::new), seeds_missing, restart, ..self.seen.clone() });
    }

    /// Reports this process, to begin with. Between hosts only processes that create the group, or
    /// are in it, know which are present.
    pub(super) fn see_myself(&mut self, control_plane: &ControlPlane) {
        let creates = control_plane.book().is_none_or(|book| book.seeds().is_seed());
        let present = if creates { vec![present(control_plane, control_plane.me)] } else { vec![] };
        self.show(BootstrapProgress { members: self.config.founders, present, seeds_missing: 0, ..self.seen.clone() });
    }

    /// Reports the state of the seeds; `unlike` of the waiting processes have other seeds.
    pub(super) fn see_seeds(&mut self, control_plane: &ControlPlane, unlike: u32) {
        let Some(book) = control_plane.book() else { return };
        let seeds = book.seeds().known(control_plane.now()).map(|seeds| Box::new(SeedsKnown { unlike, ..seeds }));
        self.show(BootstrapProgress { seeds, unreached: book.seeds().unreached(), ..self.seen.clone() });
    }

    /// Reports which settings differ from those of other processes that wait to create the group.
    pub(super) fn see_settings(&mut self, seek: &Seek, now: Time) {
        let differing = seek.differing(now).map(|theirs| self.settings.differences(theirs)).unwrap_or_default();
        let differing = differing.into();
        self.show(BootstrapProgress { differing, differing_here: seek.differing_here(now), ..self.seen.clone() });
    }

    pub(super) fn show(&mut self, progress: BootstrapProgress) {
        // Between hosts, members meet at the seeds.
        let dir = self.config.network.is_none().then(|| self.dir.path().to_path_buf());
        let progress = BootstrapProgress { dir, ..progress };
        if progress != self.seen {
            (self.progress)(&progress);
            self.seen = progress;
        }
    }
}

fn present(control_plane: &ControlPlane, id: MemberId) -> Present {
    Present { id, pid: control_plane.pid(id) }
}

//! Creates a group between hosts: passes control messages between [`BootstrapDriver`] and the seeds.
use super::ControlPlane;
use super::bootstrapping::BootstrapDriver;
use crate::data_dir::DataDirError;
use spindle_core::control::{InitialView, SeedWait, To};

impl ControlPlane {
    /// Lets this process take part in the creation of a group, or be found as a member.
    pub(crate) fn set_bootstrap(&mut self, bootstrap: BootstrapDriver) {
        self.bootstrap = Some(bootstrap);
    }

    /// Ends this process's part in the creation of a group.
    pub(crate) fn take_bootstrap(&mut self) -> Option<BootstrapDriver> {
        self.bootstrap.take()
    }

    pub(crate) fn bootstrap(&mut self) -> Option<&mut BootstrapDriver> {
        self.bootstrap.as_mut()
    }

    /// Returns the conditions that this process waits for.
    pub(crate) fn waits(&self) -> Option<SeedWait> {
        self.bootstrap.as_ref()?.waits()
    }

    /// Notes that this process is now a member of a group that it has not created.
    ///
    /// # Errors
    /// The record could not be written.
    pub(crate) fn has_joined(&mut self) -> Result<(), DataDirError> {
        let (incarnation, now) = (self.incarnation(), self.now());
        if let Some(bootstrap) = &mut self.bootstrap {
            bootstrap.joined(incarnation, now);
        }
        self.step_bootstrap();
        self.bootstrap.as_mut().and_then(BootstrapDriver::take_failure).map_or(Ok(()), Err)
    }

    /// Makes the next look find [`news`](Self::news) if a message has to be sent to the seeds.
    pub(crate) fn look_at_bootstrap(&self) {
        if self.bootstrap.as_ref().is_some_and(|bootstrap| bootstrap.patience(self.now()).is_zero()) {
            self.notices.note();
        }
    }

    /// Runs a step of the bootstrap, and sends its messages.
    pub(super) fn step_bootstrap(&mut self) {
        let Some(mut bootstrap) = self.bootstrap.take() else { return };
        let now = self.now();
        if let Some(book) = self.roster.book() {
            bootstrap.step(book.seeds(), now);
        }
        while let Some((to, message)) = bootstrap.next_message(|process| self.roster.founder_card(process), now) {
            match to {
                To::Seed(seed) => {
                    let address = self.roster.book().and_then(|book| book.seeds().list().get(seed as usize)).cloned();
                    if let Some(address) = address {
                        self.roster.write_to(address, None, message);
                    }
                }
                To::Process(process) => self.roster.post(process.id, message),
            }
        }
        self.bootstrap = Some(bootstrap);
        self.carry_out();
    }

    /// Returns the group that this process has to begin, if it was just created.
    pub(crate) fn take_begun(&mut self) -> Option<InitialView> {
        let (begun, cards) = self.bootstrap.as_mut()?.take_begun()?;
        self.roster.hear_of_founders(spindle_core::ViewId(1), &begun.members, cards);
        Some(begun)
    }
}

//! The group that a process finds: its members that answer, the admission to it, and a second group
//! of the same name.
use super::{Bootstrap, BootstrapMessage, BootstrapOutput, Incarnation, InitialView, SeedState, To};
use crate::ids::{Process, Time};
use crate::mutation::mutation;
use alloc::vec::Vec;

impl Bootstrap {
    /// Notes that a member of this group was found by other means than a message to this state
    /// machine.
    pub fn group_found(&mut self, incarnation: Incarnation, now: Time) {
        self.at(now);
        self.exists(incarnation);
    }

    /// Notes that this process has become a member of this group, which existed before. It may act
    /// as one when [`is_settled`](Self::is_settled).
    pub fn joined(&mut self, incarnation: Incarnation, now: Time) {
        self.at(now);
        let first = self.member.take().and_then(|(of, first)| first.filter(|_| of == incarnation));
        self.become_member(incarnation, first);
    }

    /// Returns the group of which this process is a member.
    pub fn member_of(&self) -> Option<Incarnation> {
        self.member.as_ref().map(|(incarnation, _)| *incarnation)
    }

    /// Returns the group of a member that has answered recently.
    pub(super) fn known_group(&self) -> Option<Incarnation> {
        self.known.filter(|(_, at)| self.is_fresh(*at)).map(|(incarnation, _)| incarnation)
    }

    /// Returns a group that may be alive, as this process or a seed remembers.
    pub(super) fn remembered(&self) -> Option<Incarnation> {
        let of_seed = |seed| match self.state_of(seed) {
            SeedState::Belongs(incarnation) | SeedState::Member(incarnation) => Some(incarnation),
            _ => None,
        };
        let own = self.record.belongs.filter(|_| !mutation!(EvictedFound));
        own.or_else(|| (0..self.seeds.count).find_map(of_seed).filter(|_| !mutation!(EvictedFound)))
    }

    pub(super) fn hear_invite(&mut self, from: Process, incarnation: Incarnation, forced: bool) {
        let is_free = self.known_group().is_none() && (forced || self.record.belongs.is_none());
        // If two processes have an operator's word, the one with the higher id yields.
        let yields = !self.word || from.id <= self.setup.me.id;
        if is_free && yields {
            self.send(To::Process(from), BootstrapMessage::Pledge { incarnation });
        }
    }

    /// Makes this process a member of this group, permanently.
    pub(super) fn become_member(&mut self, incarnation: Incarnation, first: Option<InitialView>) {
        (self.attempt, self.told) = (None, None);
        let is_new = self.member.as_ref().is_none_or(|(of, _)| *of != incarnation);
        self.member = Some((incarnation, first.clone()));
        self.hello_at = self.now;
        if is_new {
            self.teller().is_member(incarnation);
        }
        if self.record.belongs != Some(incarnation) {
            self.record.belongs = Some(incarnation);
            self.persist();
        }
        if let Some(initial_view) = first.filter(|_| is_new) {
            self.put(BootstrapOutput::Begin(initial_view));
        }
    }

    /// Notes a message from a member of this group.
    pub(super) fn exists(&mut self, incarnation: Incarnation) {
        if mutation!(MembersUnheard) {
            return;
        }
        if let Some(mine) = self.record.belongs.filter(|mine| *mine != incarnation) {
            self.report_conflict(mine, incarnation);
        }
        let is_new = self.known_group() != Some(incarnation);
        self.known = Some((incarnation, self.now));
        self.give_up_attempt();
        if is_new {
            self.teller().exists(incarnation);
            self.put(BootstrapOutput::Join(incarnation));
        }
    }

    fn report_conflict(&mut self, mine: Incarnation, theirs: Incarnation) {
        if self.conflict.replace(theirs) != Some(theirs) {
            self.teller().conflict(mine, theirs);
            self.put(BootstrapOutput::Conflict { mine, theirs });
        }
    }

    pub(super) fn hear_as_member(
        &mut self,
        from: Process,
        message: BootstrapMessage,
        mine: Incarnation,
        first: Option<InitialView>,
    ) {
        match message {
            BootstrapMessage::Hello { .. }
            | BootstrapMessage::Prepare { .. }
            | BootstrapMessage::Invite { .. }
            | BootstrapMessage::Accept { .. } => {
                if let Some(initial_view) = first.filter(|initial_view| initial_view.members.contains(&from)) {
                    // The sender does not know the outcome yet.
                    self.send(To::Process(from), BootstrapMessage::Decided { initial_view, cards: Vec::new() });
                }
                self.send(To::Process(from), BootstrapMessage::Exists { incarnation: mine });
            }
            BootstrapMessage::Exists { incarnation: theirs }
            | BootstrapMessage::Decided { initial_view: InitialView { incarnation: theirs, .. }, .. }
                if theirs != mine =>
            {
                self.report_conflict(mine, theirs);
            }
            _ => {}
        }
    }
}

//! The way from one view to the next: its end, the preparation of the next, and its beginning.
use super::{Leaving, Member, TARGET, Words, ids};
use crate::control::{ASK_EVERY, Begun, ControlMessage, Install, Request, Roster};
use crate::ids::{MemberId, Process, Rank, Time};
use crate::multicast::engine::{Engine, State};
use crate::mutation::mutation;
use crate::view::View;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use tracing::info;

/// The number of times per suspicion timeout that a member reports to other hosts that it lives,
/// while it delivers the rest of a view.
const PATIENCE_PART: u32 = 8;

impl Member {
    /// Until when at most the next view is not [made](Self::end_view), because the
    /// [rest](Self::has_rest) of this one is not delivered, or an application that takes its
    /// messages itself `is_behind`, and this member leaves or some members of the next view are on
    /// other hosts. Streams to those would turn to it, and nothing would read them meanwhile.
    /// Members that share memory see there that this one lives; these are told so.
    pub fn waits_for_rest<W>(&mut self, roster: &mut Roster<W>, is_behind: bool, now: Time) -> Option<Time> {
        let has_rest = is_behind || self.has_rest();
        let next = self.engine.decision().map(|decision| &decision.next).filter(|_| has_rest)?;
        let goes_on = next.rank_of(roster.me()).is_some();
        if goes_on && !next.members.iter().any(|id| roster.is_far(*id)) {
            return None;
        }
        let Some(every) = self.terms.suspect_after.filter(|_| goes_on).map(|after| after / PATIENCE_PART) else {
            return Some(now + ASK_EVERY);
        };
        if self.told_rest.is_none_or(|told| now.since(told) >= every) {
            self.told_rest = Some(now);
            let what = Request::Patience { incarnation: roster.incarnation(), view: self.view.id };
            let from = roster.me();
            for to in next.members.iter().copied().filter(|id| *id != from) {
                roster.post(to, ControlMessage::Request { from, reply: 0, what: what.clone() });
            }
        }
        Some(now + every)
    }

    /// The view has ended here, and this member does not [wait](Self::waits_for_rest). Makes the
    /// next one, for which the driver has to make memory. `None`: it is without this member, which
    /// has left.
    pub fn end_view<W>(&mut self, roster: &mut Roster<W>, now: Time) -> Option<&mut Install> {
        debug_assert!(matches!(self.engine.state(), State::Ended));
        if let (Some(decision), Some(words)) = (self.engine.decision(), self.engine.decided()) {
            roster.note_decision(decision.next.id, words.to_vec());
            roster.note_joined(decision.next.id, &decision.joined);
        }
        let mut engine = self.engine.successor()?;
        for (id, spec) in self.view.subgroups_of(self.engine.me()) {
            // Its epoch began before this view, and has ended with it.
            let older = self.home(id).filter(|(home, _)| home.view().id != self.view.id);
            if let (Some((older, _)), Some(id)) = (older, engine.view().subgroup(&spec.name)) {
                engine.follow(older, id);
            }
        }
        self.next = Some(Install::new(engine, self.terms.suspect_after, roster, false, now));
        self.next.as_mut()
    }

    /// The driver has made memory for the next view, which goes to all others.
    pub fn prepared<W>(&mut self, roster: &mut Roster<W>, now: Time) {
        if let Some(next) = &mut self.next {
            next.prepared(roster, now);
        }
    }

    /// Whether the application has yet to get messages of epochs that have ended; see
    /// [`Engine::has_rest`].
    pub fn has_rest(&self) -> bool {
        self.engines().any(Engine::has_rest)
    }

    /// Whether the next view begins now; see [`Install::look`]. Never while this member
    /// [has](Self::has_rest) something to deliver of those before, or an application that takes its
    /// messages itself `is_behind`.
    pub fn look<W>(
        &mut self,
        roster: &mut Roster<W>,
        is_behind: bool,
        has_sent_all: bool,
        has_met: impl Fn(Rank) -> bool,
        now: Time,
    ) -> bool {
        let has_rest = is_behind || self.has_rest();
        self.next.as_mut().is_some_and(|next| next.look(roster, has_rest, has_sent_all, has_met, now))
    }

    /// Continues in the next view with the rows of these members. Returns the view that is over.
    ///
    /// `before` reads words of the rows of that view.
    ///
    /// # Panics
    /// If there is no next view.
    pub fn begin<W>(
        &mut self,
        here: &BTreeSet<MemberId>,
        before: Words,
        roster: &mut Roster<W>,
        now: Time,
    ) -> Arc<View> {
        let next = self.next.take().expect("a view is about to begin");
        let install_ms = next.age(now).as_secs_f64() * 1e3;
        self.note_readmissions(next.view(), &before, roster, now);
        roster.set_older(self.engines().map(|engine| engine.view().id).filter(|view| next.engine().needs(*view)));
        if !mutation!(JoinersForgotten) {
            roster.set_joiners(self.joins.ids());
        }
        let Begun { mut engine, view, absent } = next.begin(here, roster, now);
        engine.keep_pace(&self.engine);
        // The engine was made before the log had all of the epochs that ended.
        for (id, spec) in self.view.subgroups_of(self.engine.me()).filter(|(_, spec)| spec.is_logged()) {
            if let (Some((home, _)), Some(next)) = (self.home(id), view.subgroup(&spec.name)) {
                engine.follow_log(home, next);
            }
        }
        // Members that were heard after their ends had been told would be suspected in each view again.
        let has_been_heard = |id: &&MemberId| self.view.rank_of(**id).is_some_and(|rank| !self.engine.suspects(rank));
        self.told_ended.iter().filter(has_been_heard).for_each(|id| roster.has_come_back(*id));
        let old = core::mem::replace(&mut self.view, view);
        self.before = (!absent.is_empty()).then(|| (Arc::clone(&old), before));
        self.absent = absent;
        self.older.push(core::mem::replace(&mut self.engine, engine));
        for over in self.older.extract_if(.., |older| !self.engine.needs(older.view().id)) {
            self.gone += over.stats();
        }
        self.sharing = self.view.sharers(roster.me()).collect();
        self.older.iter_mut().for_each(|older| older.rename(&self.view));
        self.has_object_groups = false;
        self.weigh_epochs(roster);
        info!(
            target: TARGET, me = roster.me().0, view = self.view.id.0, members = ?ids(&self.view.members),
            absent = ?ids(&self.absent), install_ms, "view begins"
        );
        self.told_ended.clear();
        self.told_rest = None;
        self.told_newcomers = false;
        self.down.clear();
        (self.seeks, self.sought) = (true, now - ASK_EVERY);
        self.begin_redials(roster, now);
        if self.leaving != Leaving::No {
            // The old view was about to end, or had ended, without this proposed change.
            self.leaving = Leaving::Wanted;
        }
        self.joins.begin(&self.view, now);
        let admitted: Vec<Process> = self.joins.admitted().filter(|_| !mutation!(AdmissionsLost)).collect();
        for process in admitted {
            // The old view's engine heard of it when this one had been made already.
            self.admit(process, roster);
        }
        self.evicting.retain(|id| self.view.members.contains(id));
        for rank in self.evicting.iter().filter_map(|id| self.view.rank_of(*id)) {
            self.engine.evict(rank);
        }
        for id in self.absent.clone() {
            if roster.is_dead(id) {
                self.died(id, roster);
            }
        }
        old
    }
}

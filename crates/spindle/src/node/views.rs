//! The change from one view to the next, and the chores beside the engine's work.
use super::catching_up::show_completeness;
use super::older::Homes;
use super::{Node, Poll, begin_handles};
use crate::change::ViewChange;
use crate::control_plane::ControlPlaneEvent;
use crate::error::Ended;
use crate::handler::Handler;
use crate::handles::SubgroupHandles;
use crate::joining::{PreallocatedRow, Preparing};
use crate::logs::Logs;
use crate::queries::{self, IncomingQuery};
use crate::transfer::{STREAM_WAIT, send_state, send_state_afar};
use spindle_core::control::{
    ControlEvent, ControlMessage, Heard, Incarnation, Install, Me, Purpose, QUERIES_MAX, QueryOrder,
};
use spindle_core::wire::layout::membership;
use spindle_core::{MemberId, Rank, Rows, SubgroupId, Table};
use spindle_fabric::{Fabric, Peer};
use spindle_transport::rendezvous::{KernelAnswer, fate};
use std::collections::BTreeSet;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tracing::{debug, warn};

/// The rows of members of this host for the next view, as far as they need no control messages.
#[derive(Debug, Default)]
pub(super) struct Shows {
    /// Members, by their ranks in this view, whose rows may be shown and were not found yet.
    unfound: Vec<Rank>,
    /// Members that this one wakes when all are found.
    to_wake: Vec<Rank>,
}

/// Streams that are kept for views to come, at most.
const OBSERVERS_MAX: usize = 64;
/// Queries that the handler gets at one look.
const QUERIES_PER_LOOK: usize = 16;
/// Views that a receiver may be behind before the next one has to wait for it.
const VIEWS_BEHIND_MAX: usize = 8;

impl Node {
    /// Does the rare work beside the engine's work. Returns whether anything happened.
    #[cold]
    pub(super) fn do_chores(&mut self, handler: &mut impl Handler) -> Result<bool, Ended> {
        let mut worked = self.attend()?;
        if let Some((mine, theirs)) = self.control_plane.bootstrap().and_then(|bootstrap| bootstrap.take_conflict()) {
            let _running = self.shared.handler.enter();
            handler.conflict(Incarnation(mine), Incarnation(theirs));
        }
        self.hand_queries(handler);
        self.object_server.serve(&mut self.control_plane, &self.object_cache);
        let runs = self.preparing.is_none();
        if runs {
            self.open_large()?;
            // While logs are replayed, the application has no state yet.
            if self.member.has_state_requests() && !self.replays {
                self.give_state(handler);
            }
            worked |= self.member.is_leaving() && self.go();
            self.connect_late();
        }
        self.logs.as_mut().map_or(Ok(()), Logs::look_after_record).map_err(|ended| self.broken(ended))?;
        let catches_up = self.catch_up()?;
        let Node { handles, member, fabric, older, .. } = self;
        let homes = Homes { newest: fabric, older };
        let mut tracks = false;
        let mut failed = Ok(());
        for of_subgroup in handles.iter_mut() {
            let (engine, rows) = homes.of(of_subgroup, member);
            tracks |= of_subgroup.look_after_receipts(engine, rows);
            failed = failed.and(of_subgroup.look_after_log(engine));
        }
        failed.map_err(|ended| self.broken(ended))?;
        self.look_after_waiting_logs()?;
        self.has_chores = tracks
            || catches_up
            || !runs
            || self.member.is_leaving()
            || self.member.has_state_requests()
            || self.large.is_pending()
            || self.lacks_since.is_some()
            || self.member.engine().have_all_finished()
                && self.logs.as_ref().is_some_and(|logs| logs.patience().is_some())
            || !self.queries.is_empty()
            || !self.control_plane.is_calm()
            || self.member.is_pending(self.control_plane.roster());
        Ok(worked)
    }

    /// Takes a step towards leaving. Returns whether anything happened.
    #[cold]
    fn go(&mut self) -> bool {
        if self.member.gives_up() {
            self.handles.iter_mut().for_each(SubgroupHandles::give_up_waiting);
        }
        self.member.go(self.handles.iter().any(SubgroupHandles::has_backlog))
    }

    /// Handles the end of the view here: prepares the next one, while the application gets the rest
    /// of this one, if all members share memory. Members that have begun the next see in this
    /// member's row there that it lives, however long that takes.
    #[cold]
    pub(super) fn end_view(&mut self) -> Result<Poll, Ended> {
        if let Some(ended) = self.shared.broken() {
            return Err(ended.clone());
        }
        if !self.is_change_noted() {
            self.note_change();
        }
        let is_behind = self.is_far_behind();
        if let Some(at) = self.control_plane.act(|roster, now| self.member.waits_for_rest(roster, is_behind, now)) {
            self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
            return Ok(if self.member.has_rest() { Poll::Worked } else { Poll::Idle });
        }
        if !self.control_plane.act(|roster, now| self.member.end_view(roster, now).is_some()) {
            // The next view is without this member, as it asked. It is on this disk, too: perhaps no other
            // member of this view is in it.
            if let (Some(logs), Some(decision)) = (&mut self.logs, self.member.engine().decision()) {
                logs.record(&decision.next, self.control_plane.roster().hosts_of(&decision.next));
            }
            self.end_epochs();
            return Err(self.broken(Ended::Left));
        }
        self.forget_readers();
        let install = self.member.next().expect("a view follows");
        let preparing = Preparing::new(install, &mut self.control_plane, &mut self.arena, self.spare.take());
        let preparing = preparing.map_err(|error| self.broken(Ended::Stuck(error.to_string())))?;
        self.preparing = Some(preparing);
        self.continue_ways();
        self.has_chores = true;
        match (&mut self.logs, self.member.next()) {
            (Some(logs), Some(next)) => {
                let hosts = self.control_plane.roster().hosts_of(next.view());
                logs.record(next.view(), hosts);
            }
            _ => self.show_next(),
        }
        Ok(Poll::Worked)
    }

    /// Writes the vote of this member for the next view, and its end notice, and lets them count once they are on
    /// disk. Both are of a view with logs.
    ///
    /// # Errors
    /// [`Ended::Log`]: the disk fails.
    #[cold]
    pub(super) fn write_vote_and_end_notice(&mut self) -> Result<(), Ended> {
        let Node { logs, member, control_plane, .. } = self;
        let (engine, Some(logs)) = (member.engine_mut(), logs) else { return Ok(()) };
        if let Some((ballot, next)) = engine.take_acceptance() {
            let hosts = control_plane.roster().hosts_of(&next);
            logs.accept(ballot, next, hosts);
        }
        let accepted = logs.take_accepted();
        if let Ok(Some(ballot)) = accepted {
            engine.note_persisted_acceptance(ballot);
        }
        let may_say_last = if engine.wants_end_notice() { logs.say_last() } else { Ok(false) };
        if let Ok(true) = may_say_last {
            engine.allow_end_notice();
        }
        accepted.and(may_say_last).map(drop).map_err(|ended| self.broken(ended))
    }

    /// Shows the next view to the others: this member's memory for it, and to joiners the view itself.
    /// It is on disk by now, if the group has logs (INV-RECORD in restart.rs).
    fn show_next(&mut self) {
        let shown = self.show_row();
        self.control_plane.act_without(shown, |roster, now| self.member.prepared(roster, now));
        self.control_plane.flush_now();
        self.control_plane.act(|roster, _| self.member.tell_joiners(roster));
        self.is_next_shown = true;
    }

    /// True if an application that takes its messages itself has to catch up before another view
    /// begins.
    fn is_far_behind(&self) -> bool {
        self.handles.iter().any(|of_subgroup| of_subgroup.behind() >= VIEWS_BEHIND_MAX)
    }

    /// Ends the epochs that the end of the view touches. The application has got all of them.
    fn end_epochs(&mut self) {
        let Node { handles, member, fabric, older, by_id, object_cache, .. } = self;
        let view = Arc::clone(member.view());
        let Some(touched) = member.engine().decision().map(|decision| view.touched_by(&decision.next)) else { return };
        let homes = Homes { newest: fabric, older };
        let touched = by_id.iter().zip(touched).filter(|(_, touched)| *touched);
        for of_subgroup in touched.map(|(of_subgroup, _)| *of_subgroup) {
            // This member is in that subgroup, or was.
            let Some(of_subgroup) = handles.get_mut(of_subgroup) else { continue };
            let (engine, rows) = homes.of(of_subgroup, member);
            of_subgroup.end_epoch(engine, rows, object_cache);
        }
        self.object_cache.end_view();
        self.large.end_view();
    }

    /// Forgets the readers of this member's rows of earlier views whose processes have ended.
    fn forget_readers(&mut self) {
        let (view, roster) = (self.member.view(), self.control_plane.roster());
        let has_ended = |reader: &Me| {
            let is_member = roster.process_of(reader.id) == Some(*reader) && view.rank_of(reader.id).is_some();
            match is_member {
                true => roster.is_dead(reader.id),
                // The roster has no information on that process any more.
                false => matches!(fate(reader.pid, reader.birth), KernelAnswer::Ended),
            }
        };
        self.arena.forget(has_ended);
    }

    /// Shows this member's row for the next view to the members that find it in memory that they
    /// have mapped.
    fn show_row(&mut self) -> BTreeSet<MemberId> {
        let (view, next) = (self.member.view(), self.member.next().map(Install::view));
        let row = self.preparing.as_ref().and_then(Preparing::row);
        let Some((next, row)) = next.zip(row).filter(|_| self.control_plane.may_show()) else { return BTreeSet::new() };
        let stays = |rank: Rank| Some(view.members[rank.index()]).filter(|id| next.rank_of(*id).is_some());
        let roster = self.control_plane.roster();
        let reader = |rank: Rank| stays(rank).and_then(|id| roster.process_of(id));
        let shown = self.arena.show(&self.fabric, row, next.id, reader);
        let me = self.member.engine().me();
        let others = view.ranks().filter(|rank| *rank != me && stays(*rank).is_some() && self.fabric.is_here(*rank));
        let mut shows = Shows { unfound: others.collect(), to_wake: vec![] };
        // One member waits for all rows to be shown, and wakes the others once.
        let first = view.rank_of(next.members[0]).filter(|first| *first == me || shown.contains(first));
        match first {
            Some(first) if first == me => shows.to_wake.clone_from(&shown),
            Some(first) => self.fabric.wake(&[first]),
            None => self.fabric.wake(&shown),
        }
        let (me, at) = (self.control_plane.me.0, row.offset());
        debug!(target: "spindle::view", me, view = next.id.0, at, shown = shown.len(), of = shows.unfound.len(), "row is shown");
        self.shows = shows;
        shown.into_iter().map(|rank| view.members[rank.index()]).collect()
    }

    /// Finds the rows for the next view that other members have shown.
    fn find_shown(&mut self) {
        let (view, Some(next)) = (self.member.view(), self.member.next()) else { return };
        let (control_plane, fabric, layout) = (&mut self.control_plane, &self.fabric, next.engine().layout());
        self.shows.unfound.retain(|was| {
            let id = view.members[was.index()];
            let Some(rank) = next.view().rank_of(id) else { return false };
            // If a member shows something that can't be its row, its row counts as not coming.
            match fabric.shown(*was, next.view().id, layout.row(rank).size) {
                Ok(None) => true,
                Ok(Some(row)) => !control_plane.act(|roster, _| roster.found(next.view().id, id, Peer::Shown(row))),
                Err(error) => {
                    warn!(target: "spindle::view", view = next.view().id.0, member = id.0, %error, "row can't be taken");
                    false
                }
            }
        });
        if self.shows.unfound.is_empty() {
            self.fabric.wake(&std::mem::take(&mut self.shows.to_wake));
        }
    }

    /// Works between two views, until the memory of every member is here or its owner is known not
    /// to come.
    #[cold]
    pub(super) fn install(&mut self, handler: &mut impl Handler) -> Result<Poll, Ended> {
        if let Some(ended) = self.shared.broken() {
            return Err(ended.clone());
        }
        if self.replays {
            // The rest of the view is delivered after that.
            self.replay(handler)?;
        }
        // The latest posts of this member may not have left yet.
        self.fabric.progress();
        self.heed_broken_streams();
        self.continue_ways();
        self.look_after_retired();
        if !self.is_next_shown
            && self.logs.as_mut().map_or(Ok(true), Logs::is_recorded).map_err(|ended| self.broken(ended))?
        {
            self.show_next();
        }
        self.find_shown();
        self.older_due = true;
        let goes_on = self.poll_older(handler);
        self.clock.worked = goes_on;
        let is_behind = self.is_far_behind();
        let Some(preparing) = &mut self.preparing else { return Ok(Poll::Idle) };
        // The old view's silence has no meaning any more, but a member that reads it must not take
        // this one for dead.
        self.wake_at = Some(self.clock.now + preparing.patience());
        let Some(next) = self.member.next_mut() else { return Ok(Poll::Idle) };
        preparing.go_on(next, &mut self.control_plane);
        let has_sent_all = self.control_plane.has_sent_all(next.view());
        let has_met = |rank| preparing.has_met(rank);
        if !self.control_plane.act(|roster, now| self.member.look(roster, is_behind, has_sent_all, has_met, now)) {
            return Ok(if goes_on { Poll::Worked } else { Poll::Idle });
        }
        if !has_sent_all {
            // Before anything is written in the new row.
            self.fabric.store(membership::UNSENT, 1);
        }
        self.begin_next(handler)?;
        Ok(Poll::Worked)
    }

    /// Continues in the next view.
    fn begin_next(&mut self, handler: &mut impl Handler) -> Result<(), Ended> {
        self.end_epochs();
        self.is_next_shown = false;
        let next = self.member.next().expect("it is prepared");
        self.fabric.look_last(next.view().id);
        self.find_shown();
        // This member waits no longer for rows that it has not found, and neither do the others.
        self.fabric.wake(&std::mem::take(&mut self.shows.to_wake));
        let preparing = self.preparing.take().expect("it is prepared");
        let next = self.member.next().expect("it is prepared");
        let of = (&**next.view(), &**next.engine().layout());
        let (ways, here) = preparing.take_ways(of, &mut self.control_plane, self.terms.suspect_after);
        let table = preparing.table(next.engine().layout(), ways);
        let mut fabric = table.map_err(|error| self.broken(Ended::Stuck(error.to_string())))?;
        fabric.set_clock(self.terms.clock.clone());
        let before = self.fabric.reader();
        let words = Box::new(move |rank: Rank, at| before.load(rank, at));
        let old = self.control_plane.act(|roster, now| self.member.begin(&here, words, roster, now));
        let view = Arc::clone(self.member.view());
        self.note_changed();
        self.control_plane.has_begun(view.id);
        let mut lingering = self.fabric.take_lingering();
        lingering.extend(
            self.handles.iter_mut().flat_map(SubgroupHandles::relays).filter_map(|relay| relay.lingering.take()),
        );
        let (notices, bytes_max) = (self.control_plane.notices(), self.terms.object_bytes_max);
        let (shared, logs) = (&self.shared, &mut self.logs);
        let of_subgroup = |name: &str| {
            let log = logs.as_mut().and_then(|logs| logs.take(name));
            SubgroupHandles::new(name.to_string(), shared, notices, bytes_max, log)
        };
        self.by_id = begin_handles(&mut self.handles, of_subgroup, self.member.engine_mut(), &fabric, &view);
        show_completeness(&self.handles, &mut self.member);
        self.note_replays();
        let engine = self.member.engine();
        self.object_cache.begin(&view, engine.layout(), engine.me(), fabric.reader());
        let ended = std::mem::replace(&mut self.fabric, fabric);
        let object_cache = self.keep_older(Arc::clone(&old), ended);
        lingering.extend(object_cache.map_err(|error| self.broken(Ended::Stuck(error.to_string())))?);
        self.fabric.listen_to(lingering);
        self.control_plane.set_doorbell(self.fabric.doorbell());
        (self.relaying, self.waiting, self.has_chores) = (true, true, true);
        (self.spare, self.lacks_since) = (None, None);
        self.clock.pause = Duration::ZERO;
        self.let_observers_in();
        self.shared.set_view(Arc::clone(&view));
        queries::view_began(&self.open_queries, &view.members);
        {
            let _running = self.shared.handler.enter();
            handler.view_changed(&ViewChange::new(old, view));
        }
        self.open_read_barriers();
        Ok(())
    }

    /// Takes in what others have written and which processes have died, and lets in the processes
    /// that wait.
    #[cold]
    pub(super) fn attend(&mut self) -> Result<bool, Ended> {
        self.clock.look();
        // All members wait for these control messages.
        let news = if self.preparing.is_some() { self.control_plane.news_now() } else { self.control_plane.news() };
        // Arrivals precede the deaths, because the final row of a dead member may be among them.
        let worked = self.attach_arrivals() | !news.is_empty();
        for news in news {
            match news {
                ControlPlaneEvent::Control(news) => {
                    let heard = self.control_plane.act(|roster, now| self.member.hear(news, &self.fabric, roster, now));
                    self.heed(heard)?;
                }
                ControlPlaneEvent::Observer { view, stream } if self.observers.len() < OBSERVERS_MAX => {
                    self.observers.push((view, stream))
                }
                ControlPlaneEvent::Records { from, reply, way } => self.take_records(from, reply, way),
                ControlPlaneEvent::Objects { .. }
                | ControlPlaneEvent::Observer { .. }
                | ControlPlaneEvent::State { .. } => {}
            }
        }
        self.suspect_the_ended();
        self.let_observers_in();
        self.heed_observers();
        if let Some(joining) = self.member.take_newcomers() {
            self.spare = PreallocatedRow::new(self.member.view(), &joining, self.control_plane.me, &mut self.arena);
        }
        self.control_plane.act(|roster, now| self.member.step(roster, now));
        Ok(worked)
    }

    fn heed(&mut self, heard: Option<Heard>) -> Result<(), Ended> {
        match heard {
            Some(Heard::Answer { to, reply, refused }) => {
                self.has_chores |= self.member.is_leaving();
                let text = self.status().answer(refused);
                self.control_plane.act(|roster, _| roster.answer(to, reply, &text));
            }
            Some(Heard::Evicted { next }) => {
                // The others need not wait until this node is dropped.
                self.member.engine_mut().abandon(1, &mut self.fabric);
                return Err(self.left_out(next));
            }
            Some(Heard::Send(order)) => self.object_server.ask(order),
            Some(Heard::SendRecords(order)) => self.send_records(order),
            Some(Heard::Other(ControlEvent::NoRecords { from, reply, why })) => self.no_records(from, reply, why),
            Some(Heard::Other(ControlEvent::Asked(order))) => self.take_query(order),
            Some(Heard::Other(ControlEvent::Answered { from, reply, answer })) => {
                queries::answered(&self.open_queries, from, reply, answer);
            }
            Some(Heard::Other(_)) | None => {}
        }
        Ok(())
    }

    /// Keeps a query until the handler can get it.
    fn take_query(&mut self, order: QueryOrder) {
        if self.queries.len() < QUERIES_MAX {
            return self.queries.push_back(order);
        }
        IncomingQuery::new(self.id(), order, self.notices()).refuse_as_busy();
    }

    /// Hands queries of other members to the handler, a few at a time.
    fn hand_queries(&mut self, handler: &mut impl Handler) {
        // While logs are replayed, the application has no state yet.
        let count = if self.replays { 0 } else { QUERIES_PER_LOOK };
        for _ in 0..count {
            let Some(order) = self.queries.pop_front() else { return };
            let query = IncomingQuery::new(self.id(), order, self.notices());
            let _running = self.shared.handler.enter();
            handler.query(query);
        }
    }

    /// Checks whether processes follow the group. They need delivered objects for a while, so these
    /// are kept then.
    pub(super) fn heed_observers(&mut self) {
        let is_followed = self.member.note_followers(self.fabric.observers(), self.control_plane.roster());
        self.object_cache.set_on(is_followed);
    }

    /// Lets the processes that have made a stream for the view follow it.
    pub(super) fn let_observers_in(&mut self) {
        if self.preparing.is_some() {
            return;
        }
        let view = self.member.view().id;
        self.observers.retain(|(wanted, _)| *wanted >= view);
        if !self.member.may_be_followed() {
            return;
        }
        for (_, stream) in self.observers.extract_if(.., |(wanted, _)| *wanted == view) {
            // If the system refuses, the process finds its stream closed.
            let _ = self.fabric.add_observer(self.member.engine().layout(), stream);
            self.member.engine_mut().set_observed(true);
            self.had_observers = true;
        }
    }

    /// Hands this application's state to one of the processes that want it, as it is between two
    /// deliveries.
    #[cold]
    fn give_state(&mut self, handler: &mut impl Handler) {
        // With a receiver, it is not known which messages were delivered, and which of them the
        // state contains.
        let is_known = !self.handles.iter().any(SubgroupHandles::has_receiver);
        let Some(to) = self.control_plane.act(|roster, _| self.member.next_state(is_known, roster)) else { return };
        let ids = (0..self.member.view().subgroups.len() as u32).map(SubgroupId);
        let sequence = |id| {
            let (home, there) = self.member.home(id)?;
            home.delivered(there)
        };
        let sequences: Vec<Option<u64>> = ids.map(sequence).collect();
        let state = {
            let _running = self.shared.handler.enter();
            // All members run the same code: if this were the end of one of them, a joiner would
            // end them one after the other.
            panic::catch_unwind(AssertUnwindSafe(|| handler.snapshot()))
        };
        let Ok(state) = state else { return self.control_plane.act(|roster, _| self.member.refuse_state(to, roster)) };
        let (view, notices) = (self.member.view().id, Arc::clone(self.notices()));
        let thread = thread::Builder::new().name("spindle-state".into());
        // Without a thread or memory for it, the joiner receives no answer, and asks another
        // member.
        if self.control_plane.is_far(to) {
            let stream = self.control_plane.dial_for(to, Purpose::State { view });
            let send = move || match stream.recv_timeout(STREAM_WAIT) {
                Ok(stream) => send_state_afar(state, &sequences, stream),
                Err(_) => Ok(()),
            };
            let _ = thread.spawn(send);
            return;
        }
        let message = ControlMessage::State { view, from: self.control_plane.me };
        let _ = thread.spawn(move || send_state(state, &sequences, |pipe| notices.tell_of_pipe(to, message, pipe)));
    }
}

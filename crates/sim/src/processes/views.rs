//! A process's views, from the first to its end: how they begin and end, and which messages are
//! sent again.
use super::entry::CLOCK_SKEW_MAX_NS;
use super::network::PacketLoad;
use super::plan::{MS, S};
use super::process::{EndedView, Made, ProcessPhase, SimProcess, StreamedTable};
use super::rows::PolledTable;
use super::subgroups::Unsent;
use super::world::{Broken, HostsWorld, ProcessEvent};
use crate::Violation;
use crate::checkers::{Checked, Invariant, clock_bound};
use spindle_core::control::{Adoption, ControlEvent, INSTALL_LOOK, Incarnation, Install, Member, Terms};
use spindle_core::wire::layout::membership;
use spindle_core::wire::ring::Kind;
use spindle_core::{Ablation, Engine, Rank, State, SubgroupId, Time, View, ViewId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const SETTINGS: Invariant = Invariant(26, "one configuration");

/// The longest time that an ending member stays, until its final row has been sent.
pub(super) const FAREWELL_NS: u64 = 200 * MS;
/// The time after which a process gives its first view up, as the library does.
const GATHER_NS: u64 = 60 * S;

pub(super) type NextView = Result<u64, Violation>;

impl HostsWorld<'_> {
    fn terms(&self, process: &SimProcess) -> Terms {
        let settings = process.settings.clone();
        Terms { settings, suspect_after: Some(Duration::from_nanos(self.scene.suspect_after_ns)) }
    }

    /// Begins the first view of a process.
    pub(super) fn begin_first(
        &mut self,
        process: &mut SimProcess,
        view: View,
        known: &[(SubgroupId, Rank, u64)],
    ) -> NextView {
        let now = Time(self.now);
        let me = view.rank_of(process.me.id).expect("it is in the view");
        let ablation = Ablation { epochs: self.scene.epochs, ..Ablation::default() };
        let mut engine = Engine::new(view, me, ablation).expect("a view of the simulator");
        for (subgroup, sender, rounds) in known {
            engine.pass_over(*subgroup, *sender, *rounds);
        }
        let mut install = Install::first(engine, self.terms(process).suspect_after, &mut process.roster, now);
        self.make_row(process, install.view().id, install.engine());
        install.prepared(&mut process.roster, now);
        process.phase = ProcessPhase::Installs(Box::new(install));
        self.carry_out(process)?;
        if let Some(boot) = &mut process.boot {
            boot.joined(process.roster.incarnation(), now);
        }
        self.step_boot(process)?;
        Ok(self.now + 1_000)
    }

    /// Makes a process's row for a view.
    fn make_row(&mut self, process: &mut SimProcess, view: ViewId, engine: &Engine) {
        let layout = engine.layout().row(engine.me());
        let row = self.store.add(layout.size, layout.control);
        process.made = Some(Made { view, row, since: self.now });
    }

    /// Installs the first view of a process, when it has to wait for no other member.
    pub(super) fn install_first(&mut self, process: &mut SimProcess, news: Vec<ControlEvent>) -> NextView {
        let now = Time(self.now);
        let made = process.made.as_ref().expect("its row is made");
        if self.now > made.since + GATHER_NS {
            // It may wait for a member whose end it can't know. The others have continued without
            // it.
            self.note(|| format!("process {} gives its first view up", process.number));
            return self.go_away(process);
        }
        if process.is_leaving {
            return self.go_away(process);
        }
        let row = made.row;
        let ProcessPhase::Installs(install) = &mut process.phase else { return Ok(u64::MAX) };
        install.show_life(|at, word| self.store.row_mut(row).set(at, word));
        let mut is_over = false;
        for one in news.iter().filter(|_| self.broken != Broken::InstallsUnread) {
            is_over |= install.attend(one, &process.settings, &mut process.roster);
        }
        self.carry_out(process)?;
        if is_over {
            self.note(|| format!("process {}: the group has continued without it", process.number));
            self.tell(process.number, || "learns that the group has continued without it".into());
            self.check_end(process)?;
            return self.go_away(process);
        }
        let ProcessPhase::Installs(install) = &mut process.phase else { return Ok(u64::MAX) };
        let has_sent_all = !process.outbox.iter().any(|(to, _)| process.roster.waits_to_reach(*to, install.view()));
        if !install.look(&mut process.roster, false, has_sent_all, |_| false, now) {
            return Ok(self.now + INSTALL_LOOK.as_nanos() as u64);
        }
        let ProcessPhase::Installs(install) = std::mem::replace(&mut process.phase, ProcessPhase::Out) else {
            unreachable!("it installs")
        };
        let view = Arc::clone(install.view());
        let layout = install.engine().layout().clone();
        let here = self.take_rows(process, &view, &layout);
        let begun = install.begin(&here, &mut process.roster, now);
        let terms = self.terms(process);
        process.phase = ProcessPhase::Member(Box::new(Member::new(begun, terms, &process.roster, now)));
        self.has_begun(process, &view)?;
        Ok(self.now + 1_000)
    }

    /// Installs the next view, after the end of the one before.
    pub(super) fn install_next(&mut self, process: &mut SimProcess) -> NextView {
        let now = Time(self.now);
        self.continue_streams(process);
        self.send(process)?;
        let goes_on_at = self.poll_older(process)?;
        let ProcessPhase::Member(member) = &mut process.phase else { unreachable!("a member") };
        let row = process.made.as_ref().expect("its row is made").row;
        let next = member.next_mut().expect("a view follows");
        next.show_life(|at, word| self.store.row_mut(row).set(at, word));
        let has_sent_all = !process.outbox.iter().any(|(to, _)| process.roster.waits_to_reach(*to, next.view()));
        let begins = member.look(&mut process.roster, false, has_sent_all, |_| false, now);
        let is_alone = member.next().is_some_and(|next| next.view().members.len() == 1);
        self.carry_out(process)?;
        if !begins {
            return Ok(goes_on_at.min(self.now + INSTALL_LOOK.as_nanos() as u64));
        }
        self.end_epochs(process)?;
        if self.broken == Broken::SoleSurvivorEnds && is_alone {
            return self.leave_group(process, "is alone");
        }
        let Some(table) = &process.table else { unreachable!("a member") };
        let mine = table.places.rows[table.places.me.index()].expect("its own");
        if !has_sent_all {
            self.store.row_mut(mine).set(membership::UNSENT, 1);
        }
        let before: Vec<_> = table.places.rows.iter().map(|row| row.map(|row| self.store.words(row))).collect();
        let words = Box::new(move |rank: Rank, at: u64| {
            before[rank.index()].as_ref().map_or(0, |words| words[at as usize / 8].load(Ordering::Relaxed))
        });
        let ProcessPhase::Member(member) = &process.phase else { unreachable!("a member") };
        let next = member.next().expect("a view follows");
        let (view, layout) = (Arc::clone(next.view()), next.engine().layout().clone());
        self.check_goes_on(process, member.view(), &view)?;
        let here = self.take_rows(process, &view, &layout);
        let ProcessPhase::Member(member) = &mut process.phase else { unreachable!("a member") };
        member.begin(&here, words, &mut process.roster, now);
        let older: Vec<ViewId> = member.older().collect();
        let goes_on = |table: &StreamedTable| older.contains(&table.view.id);
        let ended = process.older.extract_if(.., |table| !goes_on(table));
        process.over.extend(ended.map(|table| EndedView { table, since: now.0 }));
        process.older.extend(process.over.extract_if(.., |over| goes_on(&over.table)).map(|over| over.table));
        for rank in member.newly_ended(&mut process.roster, now) {
            member.suspect(rank);
        }
        self.has_begun(process, &view)?;
        self.carry_out(process)?;
        Ok(self.now + 500)
    }

    /// Handles the begin of a view.
    fn has_begun(&mut self, process: &mut SimProcess, view: &Arc<View>) -> Checked {
        let of = process.roster.incarnation();
        let mut seen = (**view).clone();
        if self.broken == Broken::ViewForged && process.number == 1 {
            seen.members.reverse();
        }
        self.look_for_another_group(process, of, view);
        self.places[process.place].knows = Some(Incarnation(of));
        self.check_settings(process, of)?;
        let is_new = self.ledger.begins(of, &seen, process.number, process.me.id)?;
        if is_new {
            let before = self.ledger.view_before(of, view.id);
            self.note_logged_view(of, before.as_ref(), view)?;
        }
        self.begin_logs(process, view)?;
        self.kill_waiting(view);
        if is_new {
            self.recent_views.push(self.now);
            let ids: Vec<String> = view.members.iter().map(ToString::to_string).collect();
            self.note(|| format!("view {} of group {of:032x}: {}", view.id, ids.join(" ")));
        }
        self.note(|| format!("process {} begins view {}", process.number, view.id));
        let over: Vec<ViewId> = process.over.iter().map(|over| over.table.view.id).collect();
        let ended = process.over.iter().filter(|over| over.since == self.now);
        for connection in ended.flat_map(|over| over.table.streams.iter().flatten()).copied().collect::<Vec<_>>() {
            if let Some(end) = self.connections.get(connection).map(|found| found.end_of(process.number)) {
                self.send_over(connection, end, PacketLoad::Fin, false);
            }
        }
        if let ProcessPhase::Member(member) = &mut process.phase {
            member.retain_old(|view| over.contains(&view));
        }
        self.begin_large(process, view);
        self.settle(process, view);
        Ok(())
    }

    /// Checks that all members of a group have the same settings, and that no process has given up
    /// a setting that its user gave.
    fn check_settings(&mut self, process: &SimProcess, of: u128) -> Checked {
        self.check_clocks(process, of)?;
        let settings = self.group_settings.entry(of).or_insert_with(|| process.settings.clone());
        let number = process.number;
        if *settings != process.settings {
            return SETTINGS.broken(format!("process {number} is in a group of other settings"));
        }
        let (own, adoption) = self.scene.settings(process.place);
        if own
            .differences(settings)
            .iter()
            .any(|it| matches!(&adoption, Adoption::Except(given) if given.contains(&it.key)))
        {
            return SETTINGS.broken(format!("process {number} has adopted a value in place of one that was given"));
        }
        self.outcome.counts.adopted += u64::from(own != *settings);
        Ok(())
    }

    /// Checks that the clocks of the members of a group differ by no more than they may.
    fn check_clocks(&self, process: &SimProcess, of: u128) -> Checked {
        let others = self.processes.iter().flatten().filter(|other| {
            let is_member = matches!(other.phase, ProcessPhase::Member(_)) && other.is_alive;
            is_member && other.roster.incarnation() == of
        });
        others.into_iter().try_for_each(|other| clock_bound::together(process.clock, other.clock, CLOCK_SKEW_MAX_NS))
    }

    /// Permits a second group if no seed remembers the first one: no seed has a disk that contains
    /// it, and none has lived since.
    fn look_for_another_group(&mut self, process: &SimProcess, of: u128, view: &View) {
        // The first group needs no permission.
        if !self.scene.is_afar || view.id != ViewId(1) || self.ledger.bootstraps() == 0 || self.ledger.knows(of) {
            return;
        }
        let remembers = |(number, place): (usize, &super::plan::ProcessPlace)| {
            let state = &self.places[number];
            let on_disk = place.is_durable && state.disk.belongs.is_some_and(|belongs| belongs.0 != of);
            let is_known = state.knows.is_some_and(|knows| knows.0 != of);
            let running = state.process.and_then(|running| self.processes[running].as_deref());
            let running = running.filter(|running| running.number != process.number);
            let lives = running.map_or(0, |running| running.roster.incarnation());
            on_disk || is_known || ![0, of].contains(&lives)
        };
        let seeds = self.scene.places.iter().enumerate().filter(|(_, place)| place.is_seed);
        self.ledger.may_be_two |= !seeds.into_iter().any(remembers);
    }

    /// Sends again the undelivered messages of ended epochs, after the application has received all
    /// deliveries of these epochs.
    fn end_epochs(&mut self, process: &mut SimProcess) -> Checked {
        let Some(table) = &process.table else { unreachable!("a member") };
        let key = (table.incarnation, table.view.id.0);
        let (view, me) = (Arc::clone(&table.view), table.places.me);
        let ProcessPhase::Member(member) = &process.phase else { unreachable!("a member") };
        let decision = member.engine().decision().expect("the view has ended").clone();
        let touched = view.touched_by(&decision.next);
        self.check_state(process, key, &view, &touched)?;
        let mut again: Vec<(String, Vec<Unsent>)> = vec![];
        for (id, spec) in view.subgroups_of(me).filter(|(id, _)| touched[id.index()]) {
            let (engine, table, there) = process.home(id).expect("it is there");
            let home = (key.0, table.view.id.0);
            self.ledger.ends(home, process.number, there, &decision.trims[id.index()])?;
            self.check_epoch_log(process, home, (spec, there), &decision.trims[id.index()])?;
            let Some(claims) = engine.claims(there) else { continue };
            claims.revoke();
            let Some(mut resend) = engine.resend(there) else { continue };
            let board =
                PolledTable { store: &mut self.store, places: &table.places, posts: &mut vec![], object_table: None };
            let mut unsent = vec![];
            while let Some(resent) = resend.next(&board) {
                let bytes = spindle_core::Rows::bytes(&board, engine.me(), resent.at, resent.len).to_vec();
                unsent.push(Unsent { kind: resent.kind, bytes, again: true, own: None });
            }
            let frames = unsent.len();
            if frames > 0 {
                self.tell(process.number, || format!("sends its {frames} undelivered messages again"));
            }
            again.push((spec.name.clone(), unsent));
        }
        self.end_large(process, &view);
        for (name, mut unsent) in again {
            self.end_objects(process, &name, &mut unsent);
            if self.broken == Broken::SentTwice && self.random.one_in(4) {
                unsent.extend(unsent.clone());
            }
            if self.broken == Broken::VoidsForgotten {
                unsent.retain(|unsent| unsent.kind != Kind::Void);
            }
            if self.broken == Broken::OlderForgotten && view.subgroup(&name).is_some_and(|id| view.epoch(id) != view.id)
            {
                unsent.clear();
            }
            if self.broken == Broken::ObjectsForgotten {
                unsent.retain(|unsent| unsent.kind != Kind::Object);
            }
            let rest = process.unsent_in(&name);
            unsent.into_iter().rev().for_each(|unsent| rest.push_front(unsent));
        }
        Ok(())
    }

    /// Ends the view here, and prepares the next one.
    pub(super) fn end_view(&mut self, process: &mut SimProcess) -> NextView {
        let now = Time(self.now);
        let ProcessPhase::Member(member) = &mut process.phase else { unreachable!("a member") };
        if member.waits_for_rest(&mut process.roster, false, now).is_some() {
            self.carry_out(process)?;
            return Ok(self.now + self.random.range(300, 3_000));
        }
        if member.end_view(&mut process.roster, now).is_none() {
            self.end_epochs(process)?;
            self.outcome.counts.leaves += 1;
            return self.leave_group(process, "has left");
        }
        let ProcessPhase::Member(member) = &process.phase else { unreachable!("a member") };
        let next = member.next().expect("it was made");
        let (view, layout) = (next.view().id, next.engine().layout().row(next.engine().me()).clone());
        let row = self.store.add(layout.size, layout.control);
        process.made = Some(Made { view, row, since: self.now });
        self.continue_streams(process);
        let ProcessPhase::Member(member) = &mut process.phase else { unreachable!("a member") };
        member.prepared(&mut process.roster, now);
        self.carry_out(process)?;
        let ProcessPhase::Member(member) = &mut process.phase else { unreachable!("a member") };
        member.tell_joiners(&mut process.roster);
        self.carry_out(process)?;
        Ok(self.now + 1_000)
    }

    /// Ends the part of a process in its group.
    pub(super) fn leave_group(&mut self, process: &mut SimProcess, why: &str) -> NextView {
        self.note(|| format!("process {} {why}", process.number));
        self.tell(process.number, || why.into());
        self.check_end(process)?;
        let (ProcessPhase::Member(member), Some(table)) = (&mut process.phase, &process.table) else {
            unreachable!("a member")
        };
        let mut posts = vec![];
        let mut board =
            PolledTable { store: &mut self.store, places: &table.places, posts: &mut posts, object_table: None };
        member.engine_mut().abandon(1, &mut board);
        let (is_finished, view) = (*member.engine().state() == State::Finished, member.view().id);
        self.serve_observers(process, !posts.is_empty());
        let table = process.table.take().expect("a member");
        self.send_posts(process.number, &table, posts);
        process.table = Some(table);
        if !is_finished {
            process.roster.say_stopped(view);
        }
        if let Some(made) = &process.made {
            self.store.row_mut(made.row).set(membership::ABANDONED, 1);
        }
        process.phase = ProcessPhase::Out;
        let stays = self.random.below(FAREWELL_NS);
        self.push(self.now + stays, ProcessEvent::Exit { process: process.number });
        Ok(u64::MAX)
    }
}

//! A step of a member: it takes its inputs, its applications send, and its engine is polled.
use super::large::forget_sent;
use super::ledger::MessageId;
use super::logs::LogUpcalls;
use super::objects::OBJECT_BYTES_MIN;
use super::plan::MS;
use super::process::{ProcessPhase, SimProcess};
use super::recovery::MISTAKE;
use super::rows::PolledTable;
use super::streams::RETIRED_NS;
use super::subgroups::{LONG_BYTES, UNSENT_MAX, Unsent, decode};
use super::views::NextView;
use super::world::{Broken, HostsWorld};
use crate::checkers::Checked;
use spindle_core::control::{ControlEvent, Heard, Request};
use spindle_core::wire::layout::membership;
use spindle_core::wire::ring::{HEADER_BYTES, Kind, TIME_BYTES};
use spindle_core::{
    Batch, DurableRise, Engine, MemberId, Order, Position, Rank, Records, State, SubgroupId, SubgroupSpec, Time,
    Upcalls, View,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The messages that a poll delivers, by subgroup, and how many of them were sent as objects.
struct Taken<'a> {
    logs: &'a mut LogUpcalls,
    delivered: &'a mut Vec<(u32, MessageId)>,
    large: &'a mut u64,
}

impl<'a> Upcalls<PolledTable<'a>> for Taken<'_> {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_, PolledTable<'a>>) {
        batch.for_each(|message| {
            *self.large += u64::from(message.payload.len() >= OBJECT_BYTES_MIN);
            self.delivered.push((subgroup.0, decode(message.payload)));
        });
    }

    fn log(&mut self, subgroup: SubgroupId, records: &mut Records<'_, PolledTable<'a>>) {
        self.logs.log(subgroup, records);
    }

    fn cut_log(&mut self, subgroup: SubgroupId, from: Position) {
        self.logs.cut(subgroup, from);
    }

    fn durable(&mut self, subgroup: SubgroupId, rise: DurableRise) {
        self.logs.durable(subgroup, rise);
    }
}

impl HostsWorld<'_> {
    /// Runs a step of a member.
    pub(super) fn take_part(&mut self, process: &mut SimProcess, news: Vec<ControlEvent>) -> NextView {
        let now = Time(self.now);
        self.check_control_socket(process)?;
        self.attach_arrivals(process);
        let is_heard = |news: &ControlEvent| {
            self.broken != Broken::ViewsUntold || !matches!(news, ControlEvent::Requests { what: Request::View, .. })
        };
        let news: Vec<ControlEvent> = news.into_iter().filter(is_heard).collect();
        for news in news {
            let (ProcessPhase::Member(member), Some(table)) = (&mut process.phase, &process.table) else {
                unreachable!("a member")
            };
            let board =
                PolledTable { store: &mut self.store, places: &table.places, posts: &mut vec![], object_table: None };
            match member.hear(news, &board, &mut process.roster, now) {
                Some(Heard::Answer { to, reply, refused }) => {
                    if reply == MISTAKE && refused.is_none() && !std::mem::replace(&mut self.is_mistaken, true) {
                        self.outcome.counts.mistakes += 1;
                    }
                    process.roster.answer(to, reply, "{}");
                    if let Some(why) = refused {
                        self.note(|| format!("member {} refuses: {why}", process.me.id));
                        self.tell(process.number, || format!("refuses: {why}"));
                        self.refusal = why.to_string();
                    }
                }
                Some(Heard::Evicted { .. }) => return self.leave_group(process, "was left out of a view"),
                Some(Heard::Send(order)) => process.objects.serving.ask(order),
                Some(Heard::SendRecords(order)) => self.send_records(process, &order),
                Some(Heard::Other(ControlEvent::NoRecords { from, reply, why })) => {
                    process.no_records.push((from, reply, why));
                }
                Some(Heard::Other(_)) | None => {}
            }
            self.carry_out(process)?;
        }
        let downs = self.progress(process);
        let logs_at = self.look_after_logs(process)?;
        for arrival in std::mem::take(&mut process.record_arrivals) {
            // No log wants it.
            self.close_side(arrival.connection, process.number);
        }
        process.no_records.clear();
        if process.disk_failed {
            self.outcome.counts.sync_failures += 1;
            self.excused.insert(process.me.id, self.now);
            return self.leave_group(process, "can't write its log");
        }
        let ProcessPhase::Member(member) = &mut process.phase else { unreachable!("a member") };
        for rank in member.newly_ended(&mut process.roster, now) {
            member.suspect(rank);
        }
        for (view, rank, id) in downs {
            if view == member.view().id && self.broken == Broken::BreakIsDeath {
                member.engine_mut().member_died(rank);
            }
            member.stream_down(view, id, false, &mut process.roster, now);
        }
        if self.broken != Broken::RedialForgotten {
            member.step(&mut process.roster, now);
        }
        if process.is_leaving && self.broken != Broken::LeaverKept {
            member.leave();
        }
        let (goes, gives_up) = (member.is_leaving() && member.next().is_none(), member.gives_up());
        if goes && gives_up {
            self.give_up_waiting(process);
        }
        let has_unsent = process.has_unsent();
        let ProcessPhase::Member(member) = &mut process.phase else { unreachable!("a member") };
        if goes {
            member.go(has_unsent);
        }
        let is_last = process.is_leaving && member.view().members.len() == 1 && !has_unsent;
        if is_last && member.next().is_none() {
            return self.leave_group(process, "has left as the last member");
        }
        self.carry_out(process)?;
        self.look_after_retired(process);
        let serves_at = self.serve_objects(process);
        let ProcessPhase::Member(member) = &mut process.phase else { unreachable!("a member") };
        if member.next().is_some() {
            return Ok(self.install_next(process)?.min(serves_at).min(logs_at));
        }
        self.serve_observers(process, false);
        self.heed_observers(process);
        self.give_state(process)?;
        self.send(process)?;
        let moves_at = self.move_objects(process)?;
        Ok(self.poll(process)?.min(serves_at).min(moves_at).min(logs_at))
    }

    /// Polls the engine.
    fn poll(&mut self, process: &mut SimProcess) -> NextView {
        let now = Time(self.now);
        let (ProcessPhase::Member(member), Some(table)) = (&mut process.phase, &process.table) else {
            unreachable!("a member")
        };
        for (rank, near) in (0..).map(Rank).zip(&table.near) {
            let is_dying =
                near.is_some_and(|near| self.processes[near].as_deref().is_some_and(|other| !other.is_alive));
            if is_dying && self.broken != Broken::DeathsUntold {
                member.suspect(rank);
            }
        }
        if self.broken == Broken::EvictsFreely && process.number == 0 && self.random.one_in(200) && table.near.len() > 1
        {
            member.engine_mut().evict(Rank(u32::from(table.places.me == Rank(0))));
        }
        let goes_on_at = self.poll_older(process)?;
        let mut logs = self.log_rooms(process);
        let (ProcessPhase::Member(member), Some(table)) = (&mut process.phase, &process.table) else {
            unreachable!("a member")
        };
        let (mut posts, mut delivered, mut large) = (vec![], vec![], 0);
        let each_ns = self.takes_ns(process.place);
        let mut again = each_ns.map_or_else(|| 1 + self.random.below(3), |_| 1);
        let progress = loop {
            let object_table = Some(&process.objects.object_table);
            let mut board =
                PolledTable { store: &mut self.store, places: &table.places, posts: &mut posts, object_table };
            // The engine may sleep after any poll.
            member.engine_mut().before_sleep();
            let mut upcalls = Taken { logs: &mut logs, delivered: &mut delivered, large: &mut large };
            let progress = member.engine_mut().poll(now, &mut board, &mut upcalls);
            if let Some((ballot, _)) = member.engine_mut().take_acceptance() {
                // Records have no hosts here, as in the library: votes count at once.
                member.engine_mut().note_persisted_acceptance(ballot);
            }
            if member.engine().wants_end_notice() {
                member.engine_mut().allow_end_notice();
            }
            process.busy_ns += took(member.engine_mut(), each_ns, delivered.len());
            again -= 1;
            if !progress.worked || again == 0 {
                break progress;
            }
        };
        self.outcome.counts.large += large;
        member.after_poll(&mut process.roster, now);
        let key = (table.incarnation, table.view.id.0);
        if self.broken == Broken::OrderSwapped && process.number == 1 && delivered.len() > 1 {
            delivered.swap(0, 1);
        }
        let fifo = |subgroup: u32| table.view.subgroups[subgroup as usize].order == Order::Fifo;
        if self.broken == Broken::LastForgotten && *member.engine().state() == State::Ended {
            delivered.retain(|(subgroup, _)| !fifo(*subgroup));
        }
        if self.broken == Broken::MessageSkipped && self.random.one_in(50) {
            delivered.pop();
        }
        // The decision must be recorded before the deliveries at the end of the view.
        if let Some(decision) = member.engine().decision() {
            let next = decision.next.clone();
            if self.ledger.sees(key.0, &next)? {
                let before = self.ledger.view_before(key.0, next.id);
                self.note_logged_view(key.0, before.as_ref(), &next)?;
                self.recent_views.push(self.now);
                self.decided(key.0, &table.view, &next)?;
            }
        }
        let view = Arc::clone(&table.view);
        self.look_at(process);
        self.deliver(process, key.0, &view, delivered)?;
        self.carry_out_logs(process, logs)?;
        if self.scene.large.is_some() {
            self.settle_objects(process, false);
            self.check_kept(process)?;
        }
        let (ProcessPhase::Member(member), Some(table)) = (&mut process.phase, &process.table) else {
            unreachable!("a member")
        };
        let state = member.engine().state().clone();
        let is_suspected = |row: &usize| self.store.row(*row).word(membership::SUSPECTED) >> table.places.me.0 & 1 == 1;
        let ends = self.broken == Broken::EndsWhenSuspected && table.places.rows.iter().flatten().any(is_suspected);
        if ends && state == State::Running {
            return self.leave_group(process, "is suspected");
        }
        self.serve_observers(process, !posts.is_empty());
        let table = process.table.take().expect("a member");
        self.send_posts(process.number, &table, posts);
        process.table = Some(table);
        self.carry_out(process)?;
        match state {
            State::Running => {
                let ProcessPhase::Member(member) = &process.phase else { unreachable!("a member") };
                let patience = member.patience(&process.roster, now).map_or(u64::MAX, |wait| (now + wait).0);
                let wake_at = progress.wake_at.map_or(u64::MAX, |at| at.0);
                let wake_at = if progress.worked { self.now + self.random.range(300, 3_000) } else { wake_at };
                let retired = process.over.iter().map(|over| over.since + RETIRED_NS).min().unwrap_or(u64::MAX);
                let sends_at = if process.is_leaving { u64::MAX } else { process.sends_at };
                let wake_at = wake_at.min(goes_on_at).min(patience).min(sends_at).min(retired.max(self.now + 10 * MS));
                Ok(wake_at.max(self.now + 200))
            }
            State::Finished => self.leave_group(process, "has finished"),
            State::Ended => self.end_view(process),
            State::Evicted => self.leave_group(process, "was evicted"),
            State::Incomplete => {
                self.outcome.counts.incomplete += 1;
                self.leave_group(process, "may not go on without a complete log")
            }
        }
    }

    /// Polls the engines of ended views in which subgroups continue. Returns the time of the next
    /// poll.
    pub(super) fn poll_older(&mut self, process: &mut SimProcess) -> NextView {
        let now = Time(self.now);
        let mut wake_at = u64::MAX;
        let ProcessPhase::Member(member) = &process.phase else { unreachable!("a member") };
        let each_ns = self.takes_ns(process.place);
        for view in member.older().collect::<Vec<_>>() {
            let mut table = process.table_of(view).expect("the tables of older views are kept").clone();
            table.places.unheard = self.lacking(process.number, &table);
            let (mut posts, mut delivered, mut large) = (vec![], vec![], 0);
            let object_table = Some(&process.objects.object_table)
                .filter(|_| process.table.as_ref().is_some_and(|newest| newest.view.id == view));
            let mut logs = self.log_rooms(process);
            let mut board =
                PolledTable { store: &mut self.store, places: &table.places, posts: &mut posts, object_table };
            let mut upcalls = Taken { logs: &mut logs, delivered: &mut delivered, large: &mut large };
            let ProcessPhase::Member(member) = &mut process.phase else { unreachable!("a member") };
            let progress = member.poll_older(view, now, &mut board, &mut upcalls);
            if let Some(engine) = member.engine_of_mut(view) {
                process.busy_ns += took(engine, each_ns, delivered.len());
            }
            self.outcome.counts.older += delivered.len() as u64;
            self.deliver(process, table.incarnation, &table.view, delivered)?;
            self.carry_out_logs(process, logs)?;
            self.send_posts(process.number, &table, posts);
            if progress.has_more(now) {
                wake_at = self.now + self.random.range(300, 3_000);
            }
        }
        Ok(wake_at)
    }

    /// Returns how long the application of a place's process takes for each message, if it is slow.
    fn takes_ns(&self, place: usize) -> Option<u64> {
        let slow = self.scene.slow.filter(|slow| slow.place as usize == place && self.now < self.calm_ns);
        slow.map(|slow| slow.each_ns)
    }

    /// Records deliveries in epochs that began with this view. Subgroups have the numbers of the
    /// newest view.
    fn deliver(
        &mut self,
        process: &mut SimProcess,
        of: u128,
        view: &Arc<View>,
        delivered: Vec<(u32, MessageId)>,
    ) -> Checked {
        let newest = Arc::clone(&process.table.as_ref().expect("a member").view);
        for (subgroup, message) in delivered {
            let there = view.subgroup(&newest.subgroups[subgroup as usize].name).expect("its epoch began there").0;
            self.ledger.delivers((of, view.id.0), process.number, there, message, self.now)?;
            self.tell_message(process.number, "delivers", &newest, subgroup, message);
            if self.scene.learns {
                process.app.apply(&newest, subgroup, message);
            }
        }
        Ok(())
    }

    /// Records the decision of a view. A member that is evicted must have asked to leave, or have
    /// had a fault.
    fn decided(&mut self, of: u128, old: &View, next: &View) -> Checked {
        let gone: Vec<MemberId> = old.members.iter().copied().filter(|id| !next.members.contains(id)).collect();
        for id in gone {
            self.check_eviction(of, id)?;
            // The excuse does not apply to the next process with this id.
            self.excused.remove(&id);
        }
        Ok(())
    }

    /// Lets the applications of a process send.
    pub(super) fn send(&mut self, process: &mut SimProcess) -> Checked {
        if process.sends_at <= self.now && !process.is_leaving {
            process.sends_at = self.now + self.random.range(self.scene.send_every_ns / 2, 2 * self.scene.send_every_ns);
            self.add_message(process);
        }
        let mut waiting = std::mem::take(&mut process.unsent);
        for (name, unsent) in &mut waiting {
            let view = &process.table.as_ref().expect("a member").view;
            let Some((engine, table, id)) = view.subgroup(name).and_then(|id| process.home(id)) else { continue };
            let Some(claims) = engine.claims(id) else { continue };
            let row = table.places.rows[table.places.me.index()].expect("its own");
            let (key, me, number) = ((table.incarnation, table.view.id.0), table.places.me, process.number as u32);
            let longest = table.view.subgroups[id.index()].message_bytes_max as usize;
            while let Some(first) = unsent.front_mut() {
                if first.kind == Kind::Object {
                    if !self.commit_object(&mut process.objects, (&claims, row, me), name, first) {
                        break;
                    }
                    self.ledger.commits(key, number, id.0, first.number());
                    unsent.pop_front();
                    continue;
                }
                if !first.again {
                    first.bytes.truncate(longest);
                }
                let len = first.bytes.len() as u64;
                let claim = if first.again { claims.claim_again(None, len, |_| {}) } else { claims.claim(len, |_| {}) };
                let Ok(claim) = claim else { break };
                let ring = *claims.ring();
                let at = claim.payload_offset(&ring);
                self.store.row_mut(row).fill(at, &first.bytes);
                if claims.trailer_bytes() > 0 {
                    // The clocks of hosts differ.
                    let time = self.now + 7 * MS * process.host as u64;
                    let end = at - HEADER_BYTES + claim.span();
                    self.store.row_mut(row).fill(end - TIME_BYTES, &time.to_le_bytes());
                }
                claims.commit(claim, first.kind, len, |position, header| {
                    self.store.row_mut(row).set(ring.offset(position), header);
                });
                self.ledger.commits(key, number, id.0, first.number());
                unsent.pop_front();
            }
        }
        process.unsent = waiting;
        forget_sent(process);
        Ok(())
    }

    /// Lets an application send a message in one of its subgroups, or abandon one in the middle.
    fn add_message(&mut self, process: &mut SimProcess) {
        let Some(table) = &process.table else { unreachable!("a member") };
        let (view, me, number) = (Arc::clone(&table.view), table.places.me, process.number as u32);
        let sends = |spec: &&SubgroupSpec| spec.senders.contains(&me) || spec.keeps(me);
        let specs: Vec<&SubgroupSpec> = view.subgroups.iter().filter(sends).collect();
        if specs.is_empty() {
            return;
        }
        let mut spec = specs[self.random.below(specs.len() as u64) as usize];
        let proved: BTreeSet<String> = process.probes.keys().cloned().collect();
        let lacks = |spec: &&SubgroupSpec| spec.is_available() && !spec.lacks_copies() && !proved.contains(&spec.name);
        if self.is_calm
            && let Some(unproved) = specs.iter().find(|spec| lacks(spec))
        {
            spec = unproved;
        }
        if process.unsent_in(&spec.name).len() >= UNSENT_MAX {
            return;
        }
        let len = self.random.range(0, LONG_BYTES) as usize;
        if self.random.one_in(10) {
            process.unsent_in(&spec.name).push_back(Unsent::void(len));
            return;
        }
        let sent = self.ledger.sends(number, &spec.name);
        let unsent = match self.draw_large(self.is_calm && lacks(&spec)) {
            Some(len) => Unsent::object((number, sent), len),
            None => Unsent::message((number, sent), len),
        };
        process.unsent_in(&spec.name).push_back(unsent);
        if self.is_calm && lacks(&spec) {
            process.probes.insert(spec.name.clone(), sent);
        }
    }

    /// Draws the length of an application's next message, if the message is too large for a ring. A
    /// message that `is_probe` always is; a probe shows that a subgroup works.
    fn draw_large(&mut self, is_probe: bool) -> Option<usize> {
        let large = self.scene.large.as_ref()?;
        let is_large = self.random.one_in(large.one_in) || is_probe;
        is_large.then(|| self.random.range(OBJECT_BYTES_MIN as u64, large.longest) as usize)
    }

    /// Adapts the unsent messages to a view that has begun. Messages that wait for a subgroup with
    /// too few members are kept. Messages for a subgroup in which the member no longer sends are
    /// given up.
    pub(super) fn settle(&mut self, process: &mut SimProcess, view: &View) {
        let me = view.rank_of(process.me.id).expect("it is in the view");
        let forgets = self.broken == Broken::KeptForgotten;
        // Messages of the previous view prove nothing about this one, but waiting messages belong
        // to this one.
        process.probes.retain(|name, _| process.unsent.get(name).is_some_and(|unsent| !unsent.is_empty()));
        process.unsent.retain(|name, unsent| {
            let spec = view.subgroup(name).map(|id| &view.subgroups[id.index()]);
            let is_sender = spec.is_some_and(|spec| spec.senders.contains(&me));
            let is_kept = spec.is_some_and(|spec| spec.keeps(me));
            if is_sender || (is_kept && !forgets) {
                return true;
            }
            for number in unsent.iter().filter_map(Unsent::number).filter(|_| !is_kept) {
                self.ledger.gives_up(process.number as u32, name, number);
            }
            false
        });
    }

    /// Gives up the messages that wait for subgroups with too few members, because the member is
    /// about to leave.
    fn give_up_waiting(&mut self, process: &mut SimProcess) {
        let Some(table) = &process.table else { unreachable!("a member") };
        let view = &table.view;
        process.unsent.retain(|name, unsent| {
            let spec = view.subgroup(name).map(|id| &view.subgroups[id.index()]);
            if spec.is_some_and(|spec| spec.senders.contains(&table.places.me)) {
                return true;
            }
            for number in unsent.iter().filter_map(Unsent::number) {
                self.ledger.gives_up(process.number as u32, name, number);
            }
            false
        });
    }
}

/// Records that the application has received so many messages, each of which takes it `each_ns`.
/// Informs the engine, and returns the time for all of them.
fn took(engine: &mut Engine, each_ns: Option<u64>, messages: usize) -> u64 {
    let Some(each_ns) = each_ns else { return 0 };
    let ns = messages as u64 * each_ns;
    if engine.has_filled_upcalls() {
        engine.upcalls_took(Some(ns));
    }
    ns
}

//! Polls of engines, and their results.
use super::{Event, ProcessLife, World};
use crate::apps::Consumer;
use crate::checkers::{Checked, Violation, bounded, no_storms};
use crate::options::Visibility;
use crate::seat::Seat;
use crate::table::TableAction;
use spindle_core::{Progress, State, Time};
use std::rc::Rc;

/// The longest sleep of a member whose view changes, in ns: longer than the time after which an
/// agreement counts as blocked.
const SLEEP_MAX_NS: u64 = 5_000_000_000;

impl World<'_> {
    /// Polls an engine and carries its actions into the world. Returns whether it worked, and how
    /// many posts it made.
    pub(super) fn poll(&mut self, seat: Seat) -> Result<(bool, u64), Violation> {
        let Seat { stage, rank } = seat;
        let me = rank.index();
        if self.stages[stage].member(rank).finished {
            return Ok((false, 0));
        }
        self.outcome.counts.polls += 1;
        self.told.delivered.clear();
        self.allow_logs(self.process_of(seat));
        self.stages[stage].tables[me].begin_poll();
        self.interrupt(seat);
        let clock = self.clock(seat);
        let on = &mut self.stages[stage];
        self.told.count = Rc::clone(&on.count);
        let engine = &mut on.members[me].as_mut().expect("it has installed the view").engine;
        // The engine may sleep after any poll.
        engine.before_sleep();
        let progress = engine.poll(clock, &mut on.tables[me], &mut self.told);
        on.tables[me].end_poll();
        no_storms::polled(rank, engine.faults())?;
        self.went_back(stage, rank)?;

        let actions = std::mem::take(&mut self.stages[stage].tables[me].actions);
        let checked = self.compare(seat, &actions);
        self.stages[stage].tables[me].actions = actions;
        let posts = checked?;
        if !self.is_member(self.process_of(seat)) {
            self.told.forget();
            return Ok((true, posts));
        }
        let beats = u64::from(self.plan.suspect_after_ns.is_some());
        if !self.stages[stage].member(rank).engine.is_changing() {
            bounded::posted(rank, self.stages[stage].member(rank).subgroups, posts.saturating_sub(beats))?;
        }
        self.outcome.counts.posts += posts;
        self.note_decision(seat)?;

        self.pass_on(seat);
        self.send_again(seat)?;
        let engine = &self.stages[stage].member(rank).engine;
        let state = engine.state().clone();
        let has_rest = state == State::Ended && self.has_rest(seat);
        let member = self.stages[stage].member_mut(rank);
        if member.has_ended {
            member.finished = !member.engine.goes_on();
        } else if has_rest {
            self.wake(seat);
        } else if state != State::Running {
            self.has_stopped(seat, &state)?;
            if self.stages[stage].member(rank).has_ended {
                self.ask_for_more(seat, progress);
            }
            return Ok((progress.worked, posts));
        }
        self.ask_for_more(seat, progress);
        self.tend(self.process_of(seat))?;
        Ok((progress.worked, posts))
    }

    /// Carries the actions of a poll, as far as its process lived, and compares them with the
    /// deliveries. Returns the number of posts.
    pub(super) fn compare(&mut self, seat: Seat, actions: &[TableAction]) -> Result<u64, Violation> {
        let (carried, posts) = self.carry(seat, actions)?;
        self.note_stable(seat);
        let delivered = std::mem::take(&mut self.told.delivered);
        // A process that crashes in the middle of a poll has made the deliveries before the crash.
        for message in delivered.iter().filter(|message| message.after <= carried as u64) {
            self.deliver(seat, *message, true)?;
        }
        self.told.delivered = delivered;
        if !self.told.delivered.is_empty() {
            self.check_read_barriers()?;
        }
        self.append(seat, carried as u64)?;
        self.write_acceptance(seat);
        self.write_end_notice(seat);
        self.believe(seat, &actions[..carried])?;
        Ok(posts)
    }

    /// Handles an engine that stopped and will not be polled again.
    fn has_stopped(&mut self, seat: Seat, state: &State) -> Checked {
        let process = self.process_of(seat);
        if *state == State::Ended {
            return self.end(seat);
        }
        self.stages[seat.stage].member_mut(seat.rank).finished = true;
        if *state == State::Evicted {
            self.outcome.counts.evictions += 1;
            self.processes[process].life = ProcessLife::Evicted;
            note!(self, "{seat} learns that the others go on without it");
            // The process then exits, and the host reports that.
            if self.plan.visibility == Visibility::Shared {
                self.bury(process);
            }
        } else {
            note!(self, "{seat} has finished");
            self.check_logs_are_written(process)?;
            self.check_end_notice_is_on_disk(seat)?;
        }
        Ok(())
    }

    /// Schedules the next poll of the engine, if it asked for one.
    fn ask_for_more(&mut self, seat: Seat, progress: Progress) {
        let clock = self.clock(seat);
        let at_once = progress.has_more(clock);
        let member = self.stages[seat.stage].member_mut(seat.rank);
        let later = progress.wake_at.filter(|wake_at| *wake_at > clock).map(|wake_at| wake_at.0 - clock.0);
        // Each sleep of a driver has a maximum. An engine whose agreement does not end reports that
        // only when it is polled.
        let is_late = member.engine.is_changing() && !member.engine.is_blocked() && member.engine.decision().is_none();
        if let Some(ns) = later.or(is_late.then_some(SLEEP_MAX_NS)) {
            let at = self.now + ns;
            if member.alarm.is_none_or(|alarm| alarm > at || alarm <= self.now) {
                member.alarm = Some(at);
                self.push(at, Event::Alarm(seat));
            }
        }
        let member = self.stages[seat.stage].member_mut(seat.rank);
        if at_once && self.plan.faults.spinning {
            member.spins = 10;
        }
        if at_once || member.spins > 0 {
            member.spins = member.spins.saturating_sub(u64::from(!at_once));
            self.wake(seat);
        }
        if self.stages[seat.stage].tables[seat.rank.index()].missed.get() {
            self.wake(seat);
        }
    }

    /// Returns the time on the clock of the process at `seat`. The clock's origin is far enough
    /// back for every backward jump.
    pub(super) fn clock(&self, seat: Seat) -> Time {
        Time((self.now as i64 + self.processes[self.process_of(seat)].clock + (1 << 60)) as u64)
    }

    /// Now and then schedules a commit of an application in the middle of the poll that begins.
    fn interrupt(&mut self, seat: Seat) {
        if !self.plan.faults.mid_poll_arrivals {
            return;
        }
        let Some(i) = self
            .apps
            .iter()
            .position(|app| app.holding.is_some() && app.ring.as_ref().is_some_and(|ring| ring.seat == seat))
        else {
            return;
        };
        if self.apps[i].left > 0 && !self.random.one_in(4) {
            return;
        }
        let interruption = self.commit(i);
        self.apps[i].early = true;
        let stage = &mut self.stages[seat.stage];
        // A quiet poll loads four words of every peer in every subgroup.
        let accesses = 5 * stage.member(seat.rank).subgroups * stage.members.len() as u64;
        let access = self.random.range(1, accesses);
        stage.tables[seat.rank.index()].interrupt_at(access, interruption);
        stage.tables[seat.rank.index()].missed.set(true);
    }

    /// Writes the progress of the stability frontiers at `seat` to the trace.
    fn note_stable(&mut self, seat: Seat) {
        if self.trace.is_none() {
            return;
        }
        let rank = seat.rank;
        let Self { stages, trace, now, .. } = self;
        let Some(trace) = trace else { return };
        let on = &mut stages[seat.stage];
        let member = on.members[rank.index()].as_mut().expect("it has installed the view");
        for (id, _) in on.view.subgroups_of(rank) {
            let stable = member.engine.stable(id).unwrap_or(0);
            let before = std::mem::replace(&mut member.stable[id.index()], stable);
            if before != stable {
                trace.line(*now, format_args!("{seat} s{id} stable {before} -> {stable}"));
            }
        }
    }

    /// Passes on the upcalls for which applications and consumers wait.
    pub(super) fn pass_on(&mut self, seat: Seat) {
        while let Some(id) = self.told.rooms.pop() {
            for i in 0..self.apps.len() {
                let app = &mut self.apps[i];
                if app.parked && app.is_at(seat, id) {
                    app.parked = false;
                    let at = self.now + self.random.range(10, 500);
                    self.push(at, Event::App(i));
                }
            }
        }
        while let Some(id) = self.told.handed_off.pop() {
            let mine = |consumer: &Consumer| consumer.member == seat.rank && consumer.subgroup == id;
            let consumers = &self.stages[seat.stage].consumers;
            let consumer = consumers.iter().position(mine).expect("it was handed off to a consumer");
            self.expect_consumer(seat.stage, consumer);
        }
    }
}

//! Polls of engines, and what comes of them.
use super::stage::Seat;
use super::{Event, World};
use crate::apps::Consumer;
use crate::checkers::{Violation, bounded, no_storms};
use spindle_core::{State, Time};

impl World<'_> {
    /// Polls an engine and carries what it did into the world. Answers whether it worked and how many posts it made.
    pub(super) fn poll(&mut self, seat: Seat) -> Result<(bool, u64), Violation> {
        let Seat { stage, rank } = seat;
        let me = rank.index();
        if self.stages[stage].member(rank).finished {
            return Ok((false, 0));
        }
        self.outcome.polls += 1;
        self.told.delivered.clear();
        self.stages[stage].tables[me].begin_poll();
        self.interrupt(seat);
        let clock = self.clock(seat);
        let on = &mut self.stages[stage];
        let engine = &mut on.members[me].as_mut().expect("it has installed the view").engine;
        let progress = engine.poll(clock, &mut on.tables[me], &mut self.told);
        on.tables[me].end_poll();
        no_storms::polled(rank, engine.state())?;
        self.went_back(stage, rank)?;

        let actions = std::mem::take(&mut self.stages[stage].tables[me].actions);
        let carried = self.carry(seat, &actions);
        self.note_stable(seat);
        let delivered = std::mem::take(&mut self.told.delivered);
        let checked = carried.and_then(|posts| {
            for message in &delivered {
                self.deliver(seat, *message, true)?;
            }
            self.believe(seat, &actions)?;
            Ok(posts)
        });
        self.stages[stage].tables[me].actions = actions;
        self.told.delivered = delivered;
        let posts = checked?;
        bounded::posted(rank, self.stages[stage].member(rank).subgroups, posts)?;
        self.outcome.posts += posts;

        self.pass_on(seat);
        let member = self.stages[stage].member_mut(rank);
        if *member.engine.state() == State::Finished {
            member.finished = true;
            note!(self, "m{rank} has finished");
            return Ok((progress.worked, posts));
        }
        let busy = progress.worked || progress.wake_at.is_some();
        if busy && self.plan.faults.spinning {
            member.spins = 10;
        }
        if busy || member.spins > 0 {
            member.spins = member.spins.saturating_sub(u64::from(!busy));
            self.wake(seat);
        }
        if self.stages[stage].tables[me].missed.get() {
            self.wake(seat);
        }
        Ok((progress.worked, posts))
    }

    /// What the process at `seat` takes for the time: a clock that runs from an origin far enough for every jump back.
    fn clock(&self, seat: Seat) -> Time {
        Time((self.now as i64 + self.processes[self.process_of(seat)].clock + (1 << 60)) as u64)
    }

    /// Now and then an application commits in the middle of the poll that begins.
    fn interrupt(&mut self, seat: Seat) {
        if !self.plan.faults.mid_poll_arrivals {
            return;
        }
        let Some(i) = self.apps.iter().position(|app| app.seat == seat && app.holding.is_some()) else { return };
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

    /// Tells the trace how far the stability frontiers at `seat` have come.
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
                trace.line(*now, format_args!("m{rank} s{id} stable {before} -> {stable}"));
            }
        }
    }

    /// Upcalls that others wait for.
    fn pass_on(&mut self, seat: Seat) {
        while let Some(id) = self.told.rooms.pop() {
            for i in 0..self.apps.len() {
                let app = &mut self.apps[i];
                if app.parked && app.seat == seat && app.plan.subgroup == id {
                    app.parked = false;
                    let at = self.now + self.random.range(10, 500);
                    self.push(at, Event::App(i));
                }
            }
        }
        while let Some(id) = self.told.handed_off.pop() {
            let mine = |consumer: &Consumer| consumer.member == seat.rank && consumer.subgroup == id;
            let consumers = &self.stages[seat.stage].consumers;
            let consumer = consumers.iter().position(mine).expect("it was handed off to somebody");
            self.expect_consumer(seat.stage, consumer);
        }
    }
}

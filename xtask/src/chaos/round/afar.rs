//! The part of a round among hosts: disturbances of networks, kills during them, and the time that
//! the group takes to recover.
use super::{DOUBTS, LATE_MAX, RECOVERY_MAX, Round, RoundTrouble, UNNOTICED, now};
use crate::chaos::cluster::ChaosProcess;
use crate::chaos::hosts::{self, ChaosHosts};
use crate::chaos::plan::{EventKind, PlannedEvent};
use std::time::{Duration, Instant};

/// A process that is to be killed during a cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct DueKill {
    at: Instant,
    instance: u32,
    /// The host that is cut off.
    cut: usize,
    /// Time before which no view without that host can have been decided, and the newest view at
    /// the start of the cut.
    unnoticed: Option<(Instant, u64)>,
    restarts: bool,
}

/// The kind of disturbance of a host's network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Disturbance {
    Outage,
    Other,
}

impl Round<'_> {
    /// Does the same as [`carry_out`](Self::carry_out) among hosts, where no death is proven to
    /// other hosts. It omits events that would leave less than a majority of a view able to
    /// continue, because the group would rightly wait for ever.
    pub(super) fn carry_out_among_hosts(
        &mut self,
        event: PlannedEvent,
        alone: bool,
        [any, second, leader, newest]: [usize; 4],
    ) -> Result<(), RoundTrouble> {
        if self.creating {
            return Ok(());
        }
        let (one, other, first) = (self.processes[any].host, self.processes[second].host, self.processes[leader].host);
        let pick = event.pick >> 40;
        let other = if other == one { (one + 1) % self.plan.hosts as usize } else { other };
        let end = [hosts::CutEnd::Host, hosts::CutEnd::Bridge, hosts::CutEnd::Port][(pick % 3) as usize];
        let all = 0..self.plan.hosts as usize;
        let minority: Vec<usize> = (0..(all.len() - 1) / 2).map(|i| (one + i) % all.len()).collect();
        let on_one: Vec<usize> = self.living().into_iter().filter(|i| self.processes[*i].host == one).collect();
        let (whom, where_): (Vec<usize>, Vec<usize>) = match event.what {
            EventKind::Kill | EventKind::Stop(_) | EventKind::Leave => (vec![any], vec![]),
            EventKind::KillLeader | EventKind::StopLeader(_) | EventKind::LeaveLeader => (vec![leader], vec![]),
            EventKind::KillNewest => (vec![newest], vec![]),
            EventKind::KillHost => (on_one, vec![]),
            EventKind::Cut(_) | EventKind::Dumb(_) | EventKind::Deaf(_) | EventKind::Flap(_) | EventKind::Slow(_) => {
                (vec![], vec![one])
            }
            EventKind::CutCrash(_) | EventKind::CutRestart(_) => (vec![], vec![one]),
            EventKind::CutLeader(_) => (vec![], vec![first]),
            EventKind::OneWay(_) | EventKind::Pair(_) => (vec![], vec![one, other]),
            EventKind::Part(_) => (vec![], minority),
            EventKind::Outage(_) => (vec![], vec![]),
            EventKind::RestartSeeds(count) => (self.seeds_to_restart(count, pick), vec![]),
            EventKind::Delay(ms) => return self.delay(ms),
            EventKind::Recover if self.lose_majority(&minority)? => return Ok(()),
            _ => return self.join(1),
        };
        let is_nothing = matches!(event.what, EventKind::RestartSeeds(_)) && whom.is_empty();
        // In an early kill, the host that is cut off is still a part of the view when the other
        // member dies.
        let is_early = matches!(event.what, EventKind::CutCrash(_)) && pick & 1 << 8 == 0 && self.is_at_rest();
        // If two hosts lose each other, one of them stays.
        let lost: Vec<&[usize]> = match event.what {
            EventKind::OneWay(_) | EventKind::Pair(_) => where_.chunks(1).collect(),
            _ => vec![&where_],
        };
        let majority_stays = || lost.iter().all(|lost| self.majority_stays(&whom, lost));
        if is_nothing || !is_early && !majority_stays() {
            return self.join(1);
        }
        let ms = match event.what {
            EventKind::Cut(ms) | EventKind::CutLeader(ms) | EventKind::Dumb(ms) | EventKind::Deaf(ms) => ms,
            EventKind::OneWay(ms) | EventKind::Pair(ms) | EventKind::Part(ms) | EventKind::Slow(ms) => ms,
            EventKind::Outage(ms) | EventKind::CutCrash(ms) | EventKind::CutRestart(ms) => ms,
            EventKind::Flap(turn) if turn >= 300 => turn * (10 + pick % 7),
            EventKind::Flap(turn) => turn * (4 + pick % 7),
            _ => 0,
        };
        let time = Duration::from_millis(ms);
        match event.what {
            EventKind::Outage(_) => {
                self.disturb(&all.clone().collect::<Vec<_>>(), event.what, time, Disturbance::Outage)
            }
            _ => self.disturb(&where_, event.what, time, Disturbance::Other),
        }
        match event.what {
            EventKind::Outage(_) if pick & 1 << 9 == 0 => self.crash_in_outage(second, time),
            EventKind::CutCrash(_) => self.crash_in_cut(one, pick, time, is_early),
            EventKind::CutRestart(_) => self.restart_in_cut(one, pick, time),
            _ => {}
        }
        let Some(hosts) = &mut self.hosts else { return Ok(()) };
        match event.what {
            EventKind::Kill | EventKind::KillLeader | EventKind::KillNewest | EventKind::KillHost => {
                return self.kill(&whom, alone);
            }
            EventKind::RestartSeeds(_) => return self.restart_seeds(&whom),
            EventKind::Stop(ms) | EventKind::StopLeader(ms) => return self.stop(&whom, ms),
            EventKind::Leave | EventKind::LeaveLeader => return self.leave(whom[0], event.pick & 1 << 40 == 0),
            EventKind::Cut(_) | EventKind::CutLeader(_) | EventKind::CutCrash(_) | EventKind::CutRestart(_) => {
                self.tally.cuts += 1;
                hosts.cut(where_[0], end, time);
            }
            EventKind::Dumb(_) => all.for_each(|to| hosts.mute(one, to, time)),
            EventKind::Deaf(_) => all.for_each(|from| hosts.mute(from, one, time)),
            EventKind::OneWay(_) => hosts.mute(one, other, time),
            EventKind::Pair(_) => {
                [(one, other), (other, one)].iter().for_each(|(from, to)| hosts.mute(*from, *to, time))
            }
            EventKind::Part(_) => {
                for (inside, outside) in where_.iter().flat_map(|inside| all.clone().map(move |other| (*inside, other)))
                {
                    if !where_.contains(&outside) {
                        hosts.mute(inside, outside, time);
                        hosts.mute(outside, inside, time);
                    }
                }
            }
            EventKind::Flap(turn) => {
                self.tally.flaps += 1;
                hosts.flap(one, end, time, Duration::from_millis(turn));
            }
            EventKind::Slow(_) => self.tally.slows += u64::from(hosts.slow(one, time)),
            EventKind::Outage(_) => {
                self.tally.outages += 1;
                all.for_each(|host| hosts.cut(host, end, time));
            }
            _ => {}
        }
        self.tally.one_ways +=
            u64::from(matches!(event.what, EventKind::Dumb(_) | EventKind::Deaf(_) | EventKind::OneWay(_)));
        self.tally.cuts += u64::from(matches!(event.what, EventKind::Pair(_) | EventKind::Part(_)));
        Ok(())
    }

    /// Records a disturbance of `hosts`. Members there may be evicted because of it.
    fn disturb(&mut self, hosts: &[usize], what: EventKind, time: Duration, cause: Disturbance) {
        if hosts.is_empty() {
            return;
        }
        self.note(format!("{what} of hosts {hosts:?} for {} ms", time.as_millis()));
        for host in hosts {
            let until = Instant::now() + time;
            let disturbed_until = &mut self.disturbed_until[*host][usize::from(cause == Disturbance::Outage)];
            *disturbed_until = (*disturbed_until).max(until);
            self.doubts[*host] = self.doubts[*host].max(until + DOUBTS * self.options.suspect_after);
            for process in self.processes.iter_mut().filter(|process| process.host == *host) {
                process.disturbed |= cause == Disturbance::Other;
                process.had_outage |= cause == Disturbance::Outage;
            }
        }
    }

    /// Gives all links a delay from now on, and lets a process join over them.
    fn delay(&mut self, ms: u64) -> Result<(), RoundTrouble> {
        if let Some(hosts) = self.hosts.as_mut().filter(|hosts| hosts.can_delay()) {
            hosts.delay(Duration::from_millis(ms));
            self.tally.delays += 1;
            self.note(format!("a delay of {ms} ms on all links"));
        }
        self.join(1)
    }

    /// Returns seeds that may be killed and restarted, as many as a majority can do without.
    fn seeds_to_restart(&self, count: u64, pick: u64) -> Vec<usize> {
        let mut seeds = self.seeds();
        let turn = pick as usize % seeds.len().max(1);
        seeds.rotate_left(turn);
        seeds.truncate(count as usize);
        while !seeds.is_empty() && !self.majority_stays(&seeds, &[]) {
            seeds.pop();
        }
        seeds
    }

    /// Returns members at seeds that may be restarted.
    fn seeds(&self) -> Vec<usize> {
        let is_one = |i: &usize| {
            let process = &self.processes[*i];
            process.is_seed && self.remembers(process.host) && self.judge.view_of(process.instance).is_some()
        };
        self.living().into_iter().filter(is_one).collect()
    }

    /// Kills seeds, and restarts them with the same ids and addresses.
    fn restart_seeds(&mut self, seeds: &[usize]) -> Result<(), RoundTrouble> {
        let ids = seeds.iter().map(|i| {
            let process = &self.processes[*i];
            (process.host, self.judge.witnesses.get(&process.instance).and_then(|witness| witness.id))
        });
        let ids: Vec<(usize, Option<u64>)> = ids.collect();
        self.kill(seeds, false)?;
        self.tally.seed_restarts += seeds.len() as u64;
        ids.into_iter().try_for_each(|(host, id)| self.start(host, true, id))
    }

    /// Returns true if no network or process was disturbed lately.
    pub(super) fn is_at_rest(&self) -> bool {
        let now = Instant::now();
        self.doubts.iter().all(|doubt| *doubt < now) && self.is_quiet && self.majority_stays(&[], &[])
    }

    /// Plans the kill of a member on another host than `cut`, during the cut.
    fn crash_in_cut(&mut self, cut: usize, pick: u64, time: Duration, is_early: bool) {
        let elsewhere = |i: &usize| self.processes[*i].host != cut;
        let whom: Vec<usize> = self.living().into_iter().filter(elsewhere).collect();
        if whom.is_empty() {
            return;
        }
        let now = Instant::now();
        let end = if is_early { self.options.suspect_after / UNNOTICED } else { time };
        let at = now + end.mul_f64((pick >> 10 & 0xff) as f64 / 256.0);
        let instance = self.processes[whom[pick as usize % whom.len()]].instance;
        let unnoticed = self.newest_view().filter(|_| is_early).map(|(view, _)| (now + end, view));
        self.due.push(DueKill { at, instance, cut, unnoticed, restarts: false });
    }

    /// Plans the restart of a seed during the cut, possibly on the host that is cut off.
    fn restart_in_cut(&mut self, cut: usize, pick: u64, time: Duration) {
        let seeds = self.seeds();
        if seeds.is_empty() {
            return;
        }
        let at = Instant::now() + time.mul_f64((pick >> 10 & 0xff) as f64 / 256.0);
        let instance = self.processes[seeds[pick as usize % seeds.len()]].instance;
        self.due.push(DueKill { at, instance, cut, unnoticed: None, restarts: true });
    }

    /// Plans the kill of `whom` while no host can reach any other, if no host has enough members to
    /// continue by itself.
    fn crash_in_outage(&mut self, whom: usize, time: Duration) {
        let Some((view, members)) = self.newest_view() else { return };
        let on =
            |host: usize| self.processes.iter().filter(|process| process.is_alive() && process.host == host).count();
        let largest = (0..self.doubts.len()).map(on).max().unwrap_or(0);
        if 2 * largest <= members.len() {
            let (now, instance, cut) = (Instant::now(), self.processes[whom].instance, self.processes[whom].host);
            self.due.push(DueKill {
                at: now + time / 2,
                instance,
                cut,
                unnoticed: Some((now + time, view)),
                restarts: false,
            });
        }
    }

    /// Kills the process that is due.
    pub(super) fn crash(&mut self, now: Instant) -> Result<(), RoundTrouble> {
        let Some(at) = self.due.iter().position(|due| due.at <= now) else { return Ok(()) };
        let due = self.due.swap_remove(at);
        let is_it = |i: &usize| self.processes[*i].instance == due.instance;
        let Some(whom) = self.living().into_iter().find(is_it) else { return Ok(()) };
        let view = self.newest_view().map(|(view, _)| view);
        let is_unnoticed = due.unnoticed.is_some_and(|(until, then)| now < until && view == Some(then));
        let may_die = if is_unnoticed { self.majority_lives(whom) } else { self.majority_stays(&[whom], &[due.cut]) };
        match (may_die, due.restarts) {
            (false, _) => Ok(()),
            (true, true) => self.restart_seeds(&[whom]),
            (true, false) => {
                self.tally.crashes += 1;
                self.kill(&[whom], false)
            }
        }
    }

    /// Returns the newest view that a live process reports.
    pub(super) fn newest_view(&self) -> Option<(u64, &[u64])> {
        let views = self.processes.iter().filter(|process| process.is_alive());
        views.filter_map(|process| self.judge.view_of(process.instance)).max_by_key(|(view, _)| *view)
    }

    pub(super) fn is_member(&self, process: &ChaosProcess, members: &[u64]) -> bool {
        let id = self.judge.witnesses.get(&process.instance).and_then(|witness| witness.id);
        id.is_some_and(|id| members.contains(&id))
    }

    /// Returns how many processes may be in the next view that are not in the newest one.
    fn coming(&self, members: &[u64]) -> usize {
        let may_come = |process: &&ChaosProcess| {
            !self.is_member(process, members)
                && (process.is_alive() || process.killed.is_some_and(|at| at.elapsed() < LATE_MAX))
        };
        self.processes.iter().filter(may_come).count()
    }

    /// Returns true if a majority lives and votes without `whom`, on any hosts. It is counted among
    /// the members of the newest view and those that may be in the next one.
    fn majority_lives(&self, whom: usize) -> bool {
        let Some((_, members)) = self.newest_view() else { return false };
        let lives = |(i, process): &(usize, &ChaosProcess)| {
            let votes = self.is_member(process, members) && self.judge.votes(process.instance);
            votes && process.is_alive() && !process.told_to_leave && *i != whom
        };
        2 * self.processes.iter().enumerate().filter(lives).count() > members.len() + self.coming(members)
    }

    /// Returns true if a majority can continue together without `whom` and all members on `hosts`.
    /// It is counted among the members of the newest view and those that may be in the next one.
    fn majority_stays(&self, whom: &[usize], hosts: &[usize]) -> bool {
        let now = Instant::now();
        let Some((_, members)) = self.newest_view() else { return false };
        let goes_on = |(i, process): &(usize, &ChaosProcess)| {
            let is_awake = process.stopped.is_none_or(|(since, until)| until - since < self.options.suspect_after / 2);
            let recovered = process
                .resumed
                .is_none_or(|(at, stop)| stop < self.options.suspect_after / 2 || at.elapsed() > LATE_MAX);
            self.is_member(process, members)
                && self.judge.votes(process.instance)
                && process.is_alive()
                && is_awake
                && recovered
                && !process.told_to_leave
                && !whom.contains(i)
                && !hosts.contains(&process.host)
                && self.doubts[process.host] < now
        };
        2 * self.processes.iter().enumerate().filter(goes_on).count() > members.len() + self.coming(members)
    }

    /// Checks whether the driver stood still. If so, members may have stood still, too, and
    /// disturbances of networks have lasted longer than planned.
    pub(super) fn look_at_the_clock(&mut self, now: Instant) {
        let late = now - std::mem::replace(&mut self.ticked, now);
        if self.hosts.is_none() || late < self.options.suspect_after / 2 {
            return;
        }
        self.held_up = self.held_up.max(late);
        self.note(format!("this process stood still for {} ms", late.as_millis()));
        let until = now + DOUBTS * self.options.suspect_after;
        self.doubts.iter_mut().for_each(|doubt| *doubt = (*doubt).max(until));
        self.judge.blurs(self::now());
    }

    /// Checks that, after the last disturbance of a network, all present members continue, even if
    /// some of them are evicted.
    pub(super) fn look_for_recovery(&mut self) -> Result<(), RoundTrouble> {
        let is_stopped = self.processes.iter().any(|process| process.is_alive() && process.stopped.is_some());
        let is_quiet = !is_stopped && self.lost.is_none() && !self.hosts.as_ref().is_some_and(ChaosHosts::is_disturbed);
        match (std::mem::replace(&mut self.is_quiet, is_quiet), is_quiet) {
            (false, true) => {
                let is_member = |process: &&ChaosProcess| {
                    process.is_alive() && !process.told_to_leave && self.judge.view_of(process.instance).is_some()
                };
                let members = self.processes.iter().filter(is_member).map(|process| process.instance).collect();
                self.judge.recovers(now(), members);
            }
            (_, false) => self.judge.upset(),
            _ => {}
        }
        let within = RECOVERY_MAX * self.options.suspect_after;
        match self.judge.overdue(now(), within.as_nanos() as u64) {
            Some(whom) if !self.stood_still() => Err(RoundTrouble::Stuck(format!(
                "{within:?} after the last disturbance of a network, processes {whom} have delivered nothing in any total order"
            ))),
            _ => Ok(()),
        }
    }
}

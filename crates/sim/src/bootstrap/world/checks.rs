//! The checks of a run at each tick and at its end.
use super::{BootstrapEvent, BootstrapHost, BootstrapWorld, CALM_FOR_NS, LIVENESS, RunningProcess, TICK_NS};
use crate::bootstrap::plan::MS;
use crate::checkers::waiting::{self, SeedReport};
use crate::checkers::{Checked, Violation};
use spindle_core::control::BootstrapRecord;
use spindle_core::control::{Incarnation, Need, SeedState};
use std::collections::{BTreeMap, BTreeSet};

impl<'s> BootstrapWorld<'s> {
    fn is_at_work(&self, process: u32, incarnation: u128) -> bool {
        let host = &self.hosts[self.places[&process] as usize];
        let is_it = |running: &&RunningProcess| {
            running.process.nonce == process && running.boot.member_of() == Some(Incarnation(incarnation))
        };
        host.paused_until <= self.now && host.running.as_ref().filter(is_it).is_some()
    }

    pub(super) fn joins(&self, a: u32, b: u32) -> bool {
        self.links.joins(self.places[&a], self.places[&b], self.now)
    }

    pub(super) fn operative(&self, incarnation: u128) -> Option<BTreeSet<u32>> {
        let group = &self.groups[&incarnation];
        group.operative(|process| self.is_at_work(process, incarnation), |a, b| self.joins(a, b))
    }

    pub(super) fn tick(&mut self) -> Checked {
        self.push(self.now + TICK_NS, BootstrapEvent::Tick);
        for incarnation in self.groups.keys().copied().collect::<Vec<_>>() {
            self.act(incarnation)?;
        }
        let seeds = self.scene.seeds as usize;
        for host in &self.hosts {
            let Some(running) = host.running.as_ref().filter(|_| host.paused_until <= self.now) else { continue };
            // After a pause a process gets time to read what has arrived.
            let has_paused = host.resumed.is_some_and(|resumed| resumed + waiting::TRUE_FOR_NS > self.now);
            if running.boot.member_of().is_some() || has_paused {
                continue;
            }
            let told = running.told.as_ref();
            let state = |seed: usize| told.map_or(SeedState::Own, |told| told.seeds[seed]);
            let heard: Vec<SeedReport> = (0..seeds)
                .filter(|seed| state(*seed) != SeedState::Own)
                .map(|seed| SeedReport {
                    told_answers: !matches!(state(seed), SeedState::Silent | SeedState::Unreachable),
                    last: running.heard[seed].1.back().copied(),
                    recent: running.heard[seed].1.iter().filter(|at| **at + 1_500 * MS > self.now).count() as u32,
                    since: running.heard[seed].0,
                })
                .collect();
            waiting::judge(self.now, running.since, told.is_some(), &heard).map_err(|violation| Violation {
                what: format!("process {}: {}", running.process.nonce, violation.what),
                ..violation
            })?;
        }
        if self.is_calm {
            self.rest()?;
        }
        Ok(())
    }

    /// Checks, once the faults are over, that all processes are in one group, or that this is
    /// impossible.
    pub(super) fn rest(&mut self) -> Checked {
        let living: Vec<u128> =
            self.groups.keys().copied().filter(|incarnation| self.operative(*incarnation).is_some()).collect();
        // Members of a group without a quorum wait for an operator while another group lives. The
        // operator sees reports of both.
        let is_stranded = |running: &RunningProcess| {
            let of = running.boot.member_of().map(|of| of.0);
            of.is_some_and(|of| !living.contains(&of) && !living.is_empty())
        };
        let is_in = |host: &BootstrapHost| {
            host.running.as_ref().is_some_and(|running| {
                let of = running.boot.member_of().map(|of| of.0);
                let is_in = |of: &u128| living.contains(of) && self.groups[of].view.contains(&running.process.nonce);
                of.as_ref().is_some_and(is_in) || is_stranded(running)
            })
        };
        if living.len() == 1 && self.hosts.iter().all(is_in) {
            self.outcome.united = true;
            return Ok(());
        }
        if self.now < self.ends_at {
            return Ok(());
        }
        if self.has_forgotten && self.outcome.conflicts > 0 {
            // Two groups are permitted in this case; only the report of them is promised.
            (self.outcome.united, self.outcome.forgotten) = (true, true);
            return Ok(());
        }
        if living.len() > 1 {
            return LIVENESS.broken(format!("{} groups live at the end", living.len()));
        }
        if !living.is_empty() || self.has_word || !self.is_lost() {
            let told: Vec<_> = self
                .hosts
                .iter()
                .map(|host| {
                    let running = host.running.as_ref()?;
                    Some((running.boot.member_of(), running.boot.waiting().need))
                })
                .collect();
            return LIVENESS.broken(format!("faults are over for long, and not all are in one group: {told:?}"));
        }
        self.outcome.lost = true;
        for host in &self.hosts {
            let Some(running) = &host.running else { continue };
            let need = running.told.as_ref().map(|told| told.need);
            if running.boot.member_of().is_none() && !matches!(need, Some(Need::Group(_) | Need::Admission(_))) {
                return LIVENESS.broken(format!(
                    "a group is lost for good, and process {} is told that it waits for {need:?}",
                    running.process.nonce
                ));
            }
        }
        self.say_the_word()
    }

    /// Returns true if a group that a process remembers has no majority left that could continue.
    fn is_lost(&self) -> bool {
        let records = self.hosts.iter().filter_map(|host| host.running.as_ref()).map(|running| running.boot.record());
        let mut views: BTreeMap<u128, BTreeSet<u32>> = BTreeMap::new();
        for record in records {
            if let Some((_, initial_view)) = &record.accepted {
                let members = initial_view.members.iter().map(|process| process.nonce).collect();
                views.insert(initial_view.incarnation.0, members);
            }
            if let Some(belongs) = record.belongs {
                views.entry(belongs.0).or_default();
            }
        }
        views.extend(
            self.groups
                .iter()
                .map(|(incarnation, group)| (*incarnation, group.view.clone()))
                .filter(|(of, _)| views.contains_key(of))
                .collect::<Vec<_>>(),
        );
        let runs = |process: &&u32| self.runs(**process);
        views.values().any(|view| 2 * view.iter().filter(runs).count() <= view.len())
    }

    pub(super) fn runs(&self, process: u32) -> bool {
        let running = self.hosts[self.places[&process] as usize].running.as_ref();
        running.is_some_and(|running| running.process.nonce == process)
    }
}

impl<'s> BootstrapWorld<'s> {
    /// Returns the groups that the seeds remember, in running processes or on disk.
    pub(super) fn remembered(&self) -> BTreeSet<u128> {
        let of = |record: &BootstrapRecord| {
            let voted = record.accepted.iter().map(|(_, initial_view)| initial_view.incarnation.0);
            voted.chain(record.belongs.map(|incarnation| incarnation.0)).collect::<Vec<_>>()
        };
        let seeds = &self.hosts[..self.scene.seeds as usize];
        let disks = seeds.iter().filter(|host| host.is_durable).flat_map(|host| of(&host.disk));
        disks.chain(seeds.iter().filter_map(|host| host.running.as_ref()).flat_map(|r| of(r.boot.record()))).collect()
    }

    /// Plays an operator that stops the remaining members and creates a new group.
    fn say_the_word(&mut self) -> Checked {
        self.note(|| "an operator wants a new group".into());
        self.has_word = true;
        self.ends_at = self.now + CALM_FOR_NS;
        for host in 0..self.scene.hosts {
            let is_member = |running: &RunningProcess| running.boot.member_of().is_some();
            if self.hosts[host as usize].running.as_ref().is_some_and(is_member) {
                self.stop(host);
                self.start(host, None)?;
            }
        }
        if let Some(running) = &mut self.hosts[0].running {
            running.boot.force_create();
        }
        Ok(())
    }
}

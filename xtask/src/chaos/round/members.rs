//! The processes of a round start, stop, leave and end.
use super::{REPLACE_MS, Round, RoundTrouble, UNPROVOKED_MAX, UNPROVOKED_MAX_AFAR, now};
use crate::chaos::cluster::ChaosProcess;
use crate::chaos::hosts;
use crate::chaos::judge::Breach;
use crate::chaos::record::End;
use anyhow::Result;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

impl<'a> Round<'a> {
    pub(super) fn spawn(&mut self) -> Result<(), RoundTrouble> {
        let (host, is_seed) = self.seat();
        self.start(host, is_seed, None)
    }

    pub(super) fn start(&mut self, host: usize, is_seed: bool, id: Option<u64>) -> Result<(), RoundTrouble> {
        let instance = self.next_instance;
        self.next_instance += 1;
        let members = if self.creating { self.plan.founders } else { 1 };
        let mut arguments = vec![
            self.group.clone(),
            members.to_string(),
            instance.to_string(),
            self.options.suspect_after.as_millis().to_string(),
            std::process::id().to_string(),
            if self.plan.states { "states" } else { "receivers" }.to_owned(),
        ];
        arguments.push(self.options.bug.clone().unwrap_or_else(|| "-".to_owned()));
        let mut namespace = None;
        if self.hosts.is_none() {
            arguments.push(self.runtime_dir().display().to_string());
        }
        if let Some(hosts) = &self.hosts {
            let port = if is_seed { hosts::SEED_PORT } else { 0 };
            let dash = || "-".to_owned();
            arguments.push(self.folder.path().join(format!("host{host}")).display().to_string());
            arguments.push(format!("{}:{port}", hosts::address(host)));
            arguments.push(self.options.fabric.clone());
            arguments.push(id.map_or_else(dash, |id| id.to_string()));
            arguments.push(if is_seed && self.plan.disks { self.data_dir(host) } else { dash() });
            arguments.extend(hosts.seeds(self.plan.seeds));
            namespace = Some(hosts.name(host));
        }
        self.judge.started(instance);
        let traces = self.options.traces.as_deref();
        let left = if self.creating { None } else { self.left_logs.pop() };
        let logs = self.options.logs.then(|| left.unwrap_or(instance));
        let mut process =
            ChaosProcess::start(self.program, namespace, self.folder, instance, &arguments, traces, logs)?;
        (process.host, process.is_seed) = (host, is_seed);
        if let Some(until) = self.disturbed_until.get(host) {
            [process.disturbed, process.had_outage] = until.map(|until| Instant::now() < until);
        }
        let place = if self.hosts.is_some() { format!(" on host {host}") } else { String::new() };
        let place = if is_seed { format!("{place}, a seed") } else { place };
        let place = id.map_or(place.clone(), |id| format!("{place} with id {id}"));
        self.processes.push(process);
        let with = left.map_or(String::new(), |owner| format!(" with the logs of process {owner}"));
        self.note(format!("start process {instance}{place}{with}"));
        Ok(())
    }

    /// Returns the directory in which the seed of `host` stores its votes.
    fn data_dir(&self, host: usize) -> String {
        self.folder.path().join(format!("{}-data{host}", self.group)).display().to_string()
    }

    /// Returns the host on which the next process is started, and whether others look for the group
    /// there. Seeds without data directories forget their votes. In that case the seed of the first
    /// host is not replaced, so that some seed has not forgotten. When all seeds are gone, the
    /// group is found only from hosts with live members.
    fn seat(&self) -> (usize, bool) {
        let on = |host: usize| self.processes.iter().filter(move |process| process.is_alive() && process.host == host);
        let is_found_at_seeds = |process: &ChaosProcess| {
            process.is_alive() && process.is_seed && self.judge.view_of(process.instance).is_some()
        };
        let anywhere = self.creating || self.processes.iter().any(is_found_at_seeds);
        let hosts = (0..self.doubts.len()).filter(|host| anywhere || on(*host).count() > 0);
        let host = hosts.min_by_key(|host| on(*host).count()).unwrap_or(0);
        let may_be_seed = host < self.plan.seeds as usize && (self.creating || self.remembers(host));
        (host, may_be_seed && !on(host).any(|process| process.is_seed))
    }

    /// Returns true if a seed of `host` may be restarted without a risk that all seeds have
    /// forgotten their votes.
    pub(super) fn remembers(&self, host: usize) -> bool {
        host > 0 || self.plan.disks
    }

    /// Kills all members. New processes create the group again.
    pub(super) fn restart(&mut self) -> Result<(), RoundTrouble> {
        self.tally.restarts += 1;
        let all: Vec<usize> = (0..self.processes.len()).filter(|i| self.processes[*i].is_alive()).collect();
        self.kill(&all, false)?;
        // The next group is another one.
        self.left_logs.clear();
        self.found()
    }

    pub(super) fn kill(&mut self, victims: &[usize], alone: bool) -> Result<(), RoundTrouble> {
        self.note(format!("kill {}", self.instances(victims)));
        let killed_at = now();
        for victim in victims {
            self.processes[*victim].kill();
        }
        for victim in victims {
            self.tally.kills += 1;
            self.processes[*victim].wait()?;
        }
        let is_awake = |process: &&ChaosProcess| process.is_alive() && process.stopped.is_none();
        let survivors: BTreeSet<u32> = self.processes.iter().filter(is_awake).map(|process| process.instance).collect();
        for victim in victims {
            let instance = self.processes[*victim].instance;
            self.read(*victim)?;
            self.left_logs.extend(self.processes[*victim].logs);
            self.judge.gone(instance)?;
            self.judge.lost(instance, killed_at);
            self.judge.killed(instance, killed_at, survivors.clone(), alone);
        }
        Ok(())
    }

    pub(super) fn stop(&mut self, whom: &[usize], ms: u64) -> Result<(), RoundTrouble> {
        let whom: BTreeSet<usize> = whom.iter().copied().collect();
        let whom: Vec<usize> = whom.into_iter().collect();
        self.note(format!("stop {} for {ms} ms", self.instances(&whom)));
        for i in whom {
            self.tally.stops += 1;
            self.tally.long_stops += u64::from(u128::from(ms) >= self.options.suspect_after.as_millis());
            self.processes[i].stop(Duration::from_millis(ms));
        }
        Ok(())
    }

    pub(super) fn join(&mut self, count: u32) -> Result<(), RoundTrouble> {
        for _ in 0..count {
            // More processes would only make all of them slow.
            if self.living().len() > self.most() + 1 {
                return Ok(());
            }
            self.tally.joins += 1;
            self.spawn()?;
        }
        Ok(())
    }

    /// Lets a member leave: while it sends, or after it has sent everything.
    pub(super) fn leave(&mut self, who: usize, sending: bool) -> Result<(), RoundTrouble> {
        let how = if sending { "leave" } else { "retire" };
        self.note(format!("{how} {}", self.instances(&[who])));
        self.tally.leaves += 1;
        self.processes[who].told_to_leave = true;
        self.processes[who].say(how);
        if !sending {
            self.judge.retires(self.processes[who].instance);
        }
        Ok(())
    }

    /// Starts replacements for lost members, after a while.
    pub(super) fn replace(&mut self, now: Instant) -> Result<(), RoundTrouble> {
        let joined = self.processes.iter().any(|process| {
            process.is_alive() && self.judge.witnesses.get(&process.instance).is_some_and(|witness| witness.view > 0)
        });
        self.creating &= !joined;
        if self.finishing || self.living().len() >= self.least() {
            self.replace_at = None;
            return Ok(());
        }
        let wait = Duration::from_millis(self.dice.within(REPLACE_MS));
        if now >= *self.replace_at.get_or_insert(now + wait) {
            self.replace_at = None;
            self.tally.joins += 1;
            self.spawn()?;
        }
        Ok(())
    }

    /// Handles the end of a process that was not killed.
    pub(super) fn ended(&mut self, i: usize) -> Result<(), RoundTrouble> {
        self.read(i)?;
        let instance = self.processes[i].instance;
        self.judge.gone(instance)?;
        let process = &self.processes[i];
        let end = self.judge.witnesses[&instance].end;
        let (stop, allowed) = (process.longest_stop, self.options.suspect_after);
        let what = match end {
            Some(End::Finished) if self.finishing => "finished",
            Some(End::Left) if process.told_to_leave => "left",
            Some(End::Evicted) => {
                self.tally.evictions += 1;
                // A stop of less than nine tenths of the silence must be safe.
                let was_awake = 10 * stop < 9 * allowed && !process.disturbed;
                self.tally.unprovoked += u64::from(was_awake && !process.had_outage);
                self.tally.after_outages += u64::from(was_awake && process.had_outage);
                let most = if self.hosts.is_some() { UNPROVOKED_MAX_AFAR } else { UNPROVOKED_MAX };
                if self.tally.unprovoked > most {
                    let what = format!("{} members were evicted that never were silent", self.tally.unprovoked);
                    return Err(Breach { number: 16, name: "no false storms", what }.into());
                }
                "was evicted"
            }
            _ => {
                let text = String::from_utf8_lossy(&self.judge.witnesses[&instance].text).trim().to_owned();
                let status = process.status.map_or_else(String::new, |status| status.to_string());
                return Err(RoundTrouble::Stuck(format!("process {instance} ended with {end:?} ({status}): {text}")));
            }
        };
        let what = format!("process {instance} {what} (longest stop {} ms)", stop.as_millis());
        self.note(what);
        Ok(())
    }
}

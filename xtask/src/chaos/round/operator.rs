//! An operator's order: most members are lost for good, and the rest of the group continues without
//! them.
use super::{Round, RoundTrouble};
use crate::chaos::cluster::Operator;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time between two tries of the operator. A try fails, for instance, if the remaining members have
/// not missed the others yet.
const TRY_EVERY: Duration = Duration::from_millis(200);
/// How long the group may take to continue: the silence that is suspected, some tries, and the rest
/// for a busy machine.
const RECOVER_MAX: Duration = Duration::from_secs(30);
/// How long the operator does not name members that may be among the joining processes.
const JOINERS_WAIT: Duration = Duration::from_secs(5);

/// A group that has lost its majority, and waits for the operator's order.
#[derive(Debug)]
pub(super) struct Lost {
    since: Instant,
    try_at: Instant,
    operator: Option<Operator>,
    /// The outcome of the last try.
    said: String,
}

impl Round<'_> {
    /// Kills all processes on most of the hosts, if their members have at least half of the votes.
    /// Returns whether it did.
    pub(super) fn lose_majority(&mut self, staying: &[usize]) -> Result<bool, RoundTrouble> {
        let Some((_, members)) = self.newest_view() else { return Ok(false) };
        let voters: BTreeSet<usize> = (0..self.processes.len())
            .filter(|i| {
                let process = &self.processes[*i];
                process.is_alive() && self.is_member(process, members) && self.judge.votes(process.instance)
            })
            .collect();
        let left = voters.iter().filter(|i| staying.contains(&self.processes[**i].host)).count();
        if !self.is_at_rest() || self.lost.is_some() || left == 0 || 2 * left > voters.len() {
            return Ok(false);
        }
        let is_lost = |i: &usize| self.processes[*i].is_alive() && !staying.contains(&self.processes[*i].host);
        let lost: Vec<usize> = (0..self.processes.len()).filter(is_lost).collect();
        self.note(format!("all on other hosts than {staying:?} are lost for good"));
        self.kill(&lost, false)?;
        let lost: Vec<u32> = lost.into_iter().map(|i| self.processes[i].instance).collect();
        self.judge.given_up(&lost);
        let since = Instant::now();
        self.lost = Some(Lost { since, try_at: since, operator: None, said: "was not tried".to_owned() });
        Ok(true)
    }

    /// Names the lost members, until the others continue without them.
    pub(super) fn recover(&mut self, now: Instant) -> Result<(), RoundTrouble> {
        let Some(mut lost) = self.lost.take() else { return Ok(()) };
        if let Some(operator) = &mut lost.operator {
            match operator.answer()? {
                None => {}
                Some((true, said)) => {
                    self.tally.recoveries += 1;
                    self.note(format!("the operator's word was taken: {said}"));
                    return Ok(());
                }
                Some((false, said)) => {
                    (lost.operator, lost.said, lost.try_at) = (None, said, now + TRY_EVERY);
                }
            }
        } else if lost.try_at <= now {
            match self.lost_members(now - lost.since >= JOINERS_WAIT) {
                Some((host, ids)) if !ids.is_empty() => {
                    self.note(format!("an operator on host {host} names the members {ids} as lost"));
                    lost.operator = Some(self.operator(host, &ids)?);
                }
                _ => lost.try_at = now + TRY_EVERY,
            }
        }
        if now - lost.since < RECOVER_MAX {
            self.lost = Some(lost);
            return Ok(());
        }
        match self.stood_still() {
            true => Err(RoundTrouble::Apart),
            false => Err(RoundTrouble::Stuck(format!(
                "{RECOVER_MAX:?} after most members were lost, the others have not gone on: {}",
                lost.said
            ))),
        }
    }

    /// Returns the dead members of the newest view of a live process, and a host with a live
    /// member. With `all`, the result contains members that may be joining.
    fn lost_members(&self, all: bool) -> Option<(usize, String)> {
        let (_, members) = self.newest_view()?;
        let asked = self.processes.iter().find(|process| process.is_alive() && self.is_member(process, members))?;
        let id = |instance: &u32| self.judge.witnesses.get(instance).and_then(|witness| witness.id);
        let of = |is_alive: bool| {
            let instances = self.processes.iter().filter(move |process| process.is_alive() == is_alive);
            instances.filter_map(move |process| id(&process.instance)).collect::<BTreeSet<u64>>()
        };
        let (living, dead) = (of(true), of(false));
        let is_joining = self.processes.iter().any(|process| process.is_alive() && id(&process.instance).is_none());
        let is_lost = |id: &&u64| !living.contains(id) && (all || !is_joining || dead.contains(id));
        let ids: Vec<String> = members.iter().filter(is_lost).map(u64::to_string).collect();
        Some((asked.host, ids.join(",")))
    }

    fn operator(&self, host: usize, ids: &str) -> anyhow::Result<Operator> {
        let dir = self.folder.path().join(format!("host{host}"));
        let namespace = self.hosts.as_ref().map(|hosts| hosts.name(host));
        Operator::recover(self.program, namespace, &dir, &self.group, ids)
    }

    /// Waits until the group continues.
    pub(super) fn wait_for_operator(&mut self) -> Result<(), RoundTrouble> {
        while self.lost.is_some() {
            self.tick()?;
            std::thread::sleep(super::TICK);
        }
        Ok(())
    }
}

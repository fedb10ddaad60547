//! The checks that look at a run from outside: whether all comes to rest, and whether evictions have causes.
use super::plan::{MS, S};
use super::process::{Phase, Process};
use super::world::{BOUNDED, Checked, World};
use crate::checkers::Invariant;
use spindle_core::{MemberId, Rank, View};

const LIVENESS: Invariant = Invariant(15, "liveness");
const TOLD: Invariant = Invariant(21, "nobody waits in the dark");
const CAUSE: Invariant = Invariant(12, "no eviction without a cause");

/// A process that waits is told something within this time.
const TOLD_NS: u64 = 3 * S;
/// A group that has lost its quorum is looked at for so long after all is calm.
const LOST_NS: u64 = 5 * S;
/// Views within ten seconds.
const VIEWS_MAX: usize = 400;
/// Rounds of ballots in one view.
const ROUNDS_MAX: u32 = 200;

/// How a run stands.
enum Rest {
    /// All processes that can be are in one view, and deliver.
    United,
    /// The group has lost its quorum, or no process can found it.
    Lost,
    /// Not yet, for this reason.
    Not(String),
}

impl Process {
    /// Whether it has begun a view, or is about to.
    fn is_in_group(&self) -> bool {
        matches!(self.phase, Phase::Member(_) | Phase::Installs(_))
    }
}

impl World<'_> {
    /// The time within which all comes to rest when nothing goes wrong any more: suspicions may have been doubled up to sixteen times, founders
    /// that failed pause longer and longer, and a process that was evicted starts again.
    fn patience_ns(&self) -> u64 {
        80 * self.scene.suspect_after_ns + 40 * self.scene.worst_delay_ns() + 120 * S
    }

    /// A member is left out of a view. It must have asked for it, or something must have gone wrong with it, not long ago.
    pub(super) fn check_eviction(&mut self, id: MemberId) -> Checked {
        let lives = |process: &&Process| process.me.id == id && process.is_alive;
        let found = self.processes.iter().flatten().map(|process| &**process).find(lives);
        let Some(process) = found.filter(|_| !self.excused.contains_key(&id)) else { return Ok(()) };
        let here = self.troubled[process.host].max(process.troubled);
        let within = self.cause_ns();
        let (number, is_unreachable) = (process.number, self.unreachable.contains(&process.address));
        let is_new = self.now < process.started + within;
        if here + within < self.now && !is_unreachable && !is_new {
            return CAUSE.broken(format!(
                "member {id}, process {number}, is left out of a view, and nothing has gone wrong with it for {} ms",
                (self.now - here) / MS
            ));
        }
        self.outcome.evictions += 1;
        Ok(())
    }

    /// What goes wrong has an effect within this time.
    fn cause_ns(&self) -> u64 {
        20 * self.scene.suspect_after_ns + 20 * self.scene.worst_delay_ns() + 5 * S
    }

    /// Looks at everything.
    pub(super) fn tick(&mut self) -> Checked {
        self.check_bounds()?;
        self.check_told()?;
        let is_calm = self.now >= self.scene.calm_ns;
        if is_calm && !self.is_calm {
            self.note(|| "all is calm".into());
            self.is_calm = true;
        }
        if !self.is_calm {
            return Ok(());
        }
        match self.rest() {
            Rest::United => {
                self.outcome.united = true;
                self.is_done = true;
            }
            Rest::Lost if self.now >= self.scene.calm_ns + LOST_NS => {
                self.outcome.lost = true;
                self.is_done = true;
            }
            Rest::Not(why) if self.now >= self.scene.calm_ns + self.patience_ns() => {
                return LIVENESS
                    .broken(format!("{why}, {} ms after all was calm", (self.now - self.scene.calm_ns) / MS));
            }
            _ => {}
        }
        Ok(())
    }

    fn check_bounds(&mut self) -> Checked {
        let now = self.now;
        self.recent_views.retain(|at| *at + 10 * S >= now);
        if self.recent_views.len() > VIEWS_MAX {
            return BOUNDED.broken(format!("{} views within 10 s", self.recent_views.len()));
        }
        for process in self.processes.iter().flatten() {
            if let Phase::Member(member) = &process.phase
                && let Some(ballot) = member.engine().ballot()
                && ballot.round > ROUNDS_MAX
            {
                return BOUNDED.broken(format!("process {} has promised round {}", process.number, ballot.round));
            }
        }
        Ok(())
    }

    /// Each process that waits is told what it waits for.
    fn check_told(&self) -> Checked {
        for process in self.processes.iter().flatten().filter(|process| process.is_alive) {
            // A member that stands still answers nothing.
            let troubled = self.processes.iter().flatten().map(|process| process.troubled).max().unwrap_or(0);
            let since = process.started.max(troubled).max(self.troubled[process.host]);
            let waits = matches!(process.phase, Phase::Seeks(_)) && !process.is_told;
            if waits && self.now > since + TOLD_NS + 8 * self.scene.worst_delay_ns() {
                return TOLD.broken(format!("process {} was not told what it waits for", process.number));
            }
        }
        Ok(())
    }

    fn rest(&self) -> Rest {
        let living: Vec<&Process> =
            self.processes.iter().flatten().map(|process| &**process).filter(|process| process.is_alive).collect();
        if self.places.iter().any(|place| place.process.is_none() && !place.is_over) {
            return Rest::Not("a process is about to start".into());
        }
        if self.ledger.may_be_two {
            return Rest::Lost;
        }
        let Some((of, newest)) = self.newest_view(&living) else { return self.rest_without_group(&living) };
        if !self.has_quorum(&living, of, &newest) {
            return Rest::Lost;
        }
        let is_expected = |process: &&&Process| {
            !self.unreachable.contains(&process.address)
                && (self.finds_group(process, of, &living) || process.is_in_group())
        };
        for process in living.iter().filter(is_expected) {
            if let Some(why) = self.misses(process, of, &living) {
                return Rest::Not(format!("process {}, member {}, {why}", process.number, process.me.id));
            }
        }
        Rest::United
    }

    /// Whether a process has where to ask for the group: a member on its host, or at the address of a seed.
    fn finds_group(&self, process: &Process, of: u128, living: &[&Process]) -> bool {
        living.iter().any(|other| {
            let is_there = other.host == process.host || self.scene.places[other.place].is_seed;
            is_there && other.is_in_group() && other.roster.incarnation() == of
        })
    }

    /// The newest view that a member knows.
    fn newest_view(&self, living: &[&Process]) -> Option<(u128, View)> {
        let known = living.iter().filter_map(|process| match &process.phase {
            Phase::Member(member) => {
                let decided = member.engine().decision().map(|decision| &decision.next);
                let next = member.next().map(|next| &**next.view());
                Some((process.roster.incarnation(), next.or(decided).unwrap_or(member.view()).clone()))
            }
            Phase::Installs(install) => Some((process.roster.incarnation(), (**install.view()).clone())),
            _ => None,
        });
        known.max_by_key(|(_, view)| view.id)
    }

    /// Whether the members that live, and those whose deaths they can prove, are enough to change the view.
    fn has_quorum(&self, living: &[&Process], of: u128, view: &View) -> bool {
        let is_in = |id: &MemberId| {
            living.iter().any(|process| {
                process.me.id == *id && process.roster.incarnation() == of && !matches!(process.phase, Phase::Seeks(_))
            })
        };
        let voters: Vec<MemberId> = view
            .ranks()
            .filter(|rank: &Rank| !view.nonvoters.contains(rank))
            .map(|rank| view.members[rank.index()])
            .collect();
        let alive = voters.iter().filter(|id| is_in(id)).count();
        match self.scene.hosts {
            1 => alive > 0,
            _ => 2 * alive > voters.len(),
        }
    }

    fn rest_without_group(&self, living: &[&Process]) -> Rest {
        let waiting = living.iter().filter(|process| !self.unreachable.contains(&process.address)).count() as u32;
        // A group may exist that has lost all of its members, or there are too few processes.
        if self.scene.is_afar || waiting < self.scene.members {
            return Rest::Lost;
        }
        Rest::Not(format!("{waiting} processes found no group"))
    }

    /// What a process lacks to be at work with all others.
    fn misses(&self, process: &Process, of: u128, living: &[&Process]) -> Option<String> {
        let Phase::Member(member) = &process.phase else { return Some("is no member".into()) };
        if process.roster.incarnation() != of {
            return Some("is in another group".into());
        }
        if member.next().is_some() || member.engine().is_wedged() {
            return Some(format!("is between two views, behind view {}", member.view().id));
        }
        let Some(table) = &process.table else { return Some("has no table".into()) };
        let delivered = self.ledger.delivered((table.incarnation, table.view.id.0), process.number);
        for id in &member.view().members {
            let Some(other) = living.iter().find(|other| other.me.id == *id) else {
                return Some(format!("is in view {} with member {id}, which has ended", member.view().id));
            };
            let is_heard = |(sender, number): &(u32, u32)| {
                *sender == other.number as u32 && other.probe.is_some_and(|probe| *number >= probe)
            };
            if !delivered.iter().any(is_heard) {
                return Some(format!("has delivered no message of member {id} in view {}", member.view().id));
            }
        }
        let is_alone = living.iter().any(|other| {
            let is_out = !member.view().members.contains(&other.me.id) && !self.unreachable.contains(&other.address);
            is_out && (other.is_in_group() || self.finds_group(other, of, living))
        });
        is_alone.then(|| "is not in a view with all others".into())
    }
}

//! The checks of a run from outside: whether everything comes to rest, and whether evictions have
//! causes.
use super::plan::{MS, S};
use super::process::{ProcessPhase, SimProcess, StreamedTable};
use super::subgroups::UNSENT_MAX;
use super::world::{BOUNDED, HostsWorld};
use crate::checkers::Checked;
use crate::checkers::Invariant;
use spindle_core::{MemberId, Rank, SubgroupId, SubgroupSpec, View};

const LIVENESS: Invariant = Invariant(15, "liveness");
const TOLD: Invariant = Invariant(21, "a waiting process is informed");
const CAUSE: Invariant = Invariant(23, "no eviction without a cause");

/// The time within which a waiting process must report what it waits for.
const TOLD_NS: u64 = 3 * S;
/// The time after the last fault at which a group that has lost its quorum is checked.
const LOST_NS: u64 = 5 * S;
/// The time after which a log that gets no records from its sources gives up, and its member joins again.
const RECORDS_NS: u64 = 75 * S;
/// The maximum number of views within ten seconds.
const VIEWS_MAX: usize = 400;
/// The number of delays between hosts per message, if little may be in flight at once and messages
/// are large.
const MESSAGE_DELAYS: u64 = 3;
/// The maximum number of rounds of ballots in one view.
const ROUNDS_MAX: u32 = 200;

/// The state of a run.
enum RunRest {
    /// All processes that can be members are in one view, and deliver.
    United,
    /// The group has lost its quorum, or no process can create it.
    Lost,
    /// Two groups exist, which is permitted.
    Two,
    /// The run has not come to rest, for this reason.
    Not(String),
}

impl SimProcess {
    /// Returns true if it has begun a view, or is about to.
    fn is_in_group(&self) -> bool {
        matches!(self.phase, ProcessPhase::Member(_) | ProcessPhase::Installs(_))
    }
}

impl HostsWorld<'_> {
    /// Returns the time within which everything comes to rest after the last fault. Suspicion times
    /// may have been doubled up to sixteen times. Founders that failed pause longer and longer.
    /// Leaders pause longer the longer they were cut off. An evicted process is restarted. The time
    /// is less than that after which a process gives its first view up, unless suspicion times or
    /// cuts are long. A log waits about a minute for records that no other log has.
    fn patience_ns(&self) -> u64 {
        let logs = if self.scene.logs.is_some() { RECORDS_NS } else { 0 };
        12 * self.scene.suspect_after_ns
            + 12 * self.scene.worst_delay_ns()
            + self.scene.longest_cut_ns()
            + 25 * S
            + logs
    }

    /// Checks the eviction of a member. It must have asked to leave, or must have had a fault not
    /// long ago.
    pub(super) fn check_eviction(&mut self, of: u128, id: MemberId) -> Checked {
        // Two groups may have members with the same ids, if no process remembered the first group.
        let is_its = |process: &&SimProcess| [0, of].contains(&process.roster.incarnation());
        let lives = |process: &&SimProcess| process.me.id == id && process.is_alive && is_its(process);
        let found = self.processes.iter().flatten().map(|process| &**process).find(lives);
        let Some(process) = found.filter(|_| !self.excused.contains_key(&id)) else { return Ok(()) };
        // A paused member may have lost its streams, and this member may have been suspected by the
        // paused one.
        let here = self.troubled[process.host].max(self.suspended);
        let within = self.cause_ns();
        let (number, is_unreachable) = (process.number, self.unreachable.contains(&process.address));
        // The process that was to inform it of the view may have ended.
        let has_begun = !matches!(process.phase, ProcessPhase::Seeks(_) | ProcessPhase::Installs(_));
        let is_new = !has_begun && self.now < self.ended + within;
        let is_calm = here == 0 || here + within < self.now;
        if is_calm && !is_unreachable && !is_new {
            return CAUSE.broken(format!(
                "member {id}, process {number}, is left out of a view, and nothing has gone wrong with it for {} ms",
                (self.now - here) / MS
            ));
        }
        self.outcome.counts.evictions += 1;
        Ok(())
    }

    /// Checks the end of a process for its group. Only a decision ends a member that does not want
    /// to leave: a view without it, or a view later than the first one for which a process waits.
    pub(super) fn check_end(&self, process: &SimProcess) -> Checked {
        let (of, id) = (process.roster.incarnation(), process.me.id);
        if let ProcessPhase::Member(member) = &process.phase
            && let Some((id, _)) = member.engine().incomplete()
        {
            return self.check_incomplete(process, member.view(), id);
        }
        let (view, is_decided) = match &process.phase {
            ProcessPhase::Member(member) => (member.view().id, self.ledger.is_left_out(of, member.view().id.0, id)),
            ProcessPhase::Installs(install) => (install.view().id, self.ledger.has_later(of, install.view().id.0)),
            ProcessPhase::Seeks(_) | ProcessPhase::Learns(_) | ProcessPhase::Watches(_) | ProcessPhase::Out => {
                return Ok(());
            }
        };
        match is_decided || process.is_leaving || process.disk_failed {
            true => Ok(()),
            false => CAUSE.broken(format!(
                "process {}, member {id}, ends in view {view}, and no later view was decided without it",
                process.number
            )),
        }
    }

    /// Returns the time within which a fault has an effect.
    pub(super) fn cause_ns(&self) -> u64 {
        20 * self.scene.suspect_after_ns + 20 * self.scene.worst_delay_ns() + 5 * S
    }

    /// Runs all checks.
    pub(super) fn tick(&mut self) -> Checked {
        self.check_bounds()?;
        self.check_told()?;
        let is_recoverable = self.recover();
        let is_calm = self.now >= self.calm_ns;
        if is_calm && !self.is_calm {
            self.note(|| "all is calm".into());
            self.is_calm = true;
            self.links.lose_none();
        }
        if !self.is_calm {
            return Ok(());
        }
        self.mark_logs();
        match self.rest() {
            RunRest::United => match self.kept_for() {
                None => {
                    for process in self.processes.iter().flatten().filter(|process| process.is_alive) {
                        self.check_logs(process)?;
                    }
                    self.outcome.united = true;
                    self.is_done = true;
                }
                Some(why) if self.now >= self.calm_ns + 2 * self.patience_ns() => return BOUNDED.broken(why),
                Some(_) => {}
            },
            RunRest::Two if self.now >= self.calm_ns + LOST_NS => {
                self.outcome.lost = true;
                self.is_done = true;
            }
            RunRest::Lost if !is_recoverable && self.now >= self.calm_ns + LOST_NS => match self.unaware() {
                None => {
                    self.outcome.lost = true;
                    self.is_done = true;
                }
                Some(why) if self.now >= self.calm_ns.max(self.recovered_at) + self.patience_ns() => {
                    return TOLD.broken(format!("the group has lost its quorum, and {why}"));
                }
                Some(_) => {}
            },
            RunRest::Lost if is_recoverable && self.now >= self.calm_ns + 2 * self.patience_ns() => {
                return LIVENESS.broken(format!(
                    "the group does not go on, though all that are lost were given up: {}",
                    self.refusal
                ));
            }
            // Processes that no member reaches change views ever more rarely. After each change
            // members have to hear each other again, and the messages that show it wait behind all
            // others.
            RunRest::Not(_) if !self.recent_views.is_empty() && self.now < self.calm_ns + 2 * self.patience_ns() => {}
            RunRest::Not(why) if self.now >= self.calm_ns.max(self.recovered_at) + self.patience_ns() => {
                self.tell_states();
                return LIVENESS.broken(format!("{why}, {} ms after all was calm", (self.now - self.calm_ns) / MS));
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds what each member knows to the history of a run that does not come to rest.
    fn tell_states(&mut self) {
        let processes = self.processes.iter().flatten().filter(|process| process.is_alive);
        let states: Vec<String> = processes.filter_map(|process| state_of(process)).collect();
        states.into_iter().for_each(|state| self.note(|| state));
    }

    fn check_bounds(&mut self) -> Checked {
        let now = self.now;
        let settles_ns = 10 * S + MESSAGE_DELAYS * UNSENT_MAX as u64 * self.scene.worst_delay_ns();
        self.recent_views.retain(|at| *at + settles_ns >= now);
        let views = self.recent_views.iter().filter(|at| **at + 10 * S >= now).count();
        if views > VIEWS_MAX {
            return BOUNDED.broken(format!("{views} views within 10 s"));
        }
        for process in self.processes.iter().flatten() {
            if let ProcessPhase::Member(member) = &process.phase
                && let Some(ballot) = member.engine().ballot()
                && ballot.round > ROUNDS_MAX
            {
                return BOUNDED.broken(format!("process {} has promised round {}", process.number, ballot.round));
            }
        }
        Ok(())
    }

    /// Checks that each waiting process reports what it waits for.
    fn check_told(&self) -> Checked {
        for process in self.processes.iter().flatten().filter(|process| process.is_alive) {
            // A paused member answers nothing.
            let troubled = self.processes.iter().flatten().map(|process| process.troubled).max().unwrap_or(0);
            let since = process.started.max(troubled).max(self.troubled[process.host]);
            let waits = matches!(process.phase, ProcessPhase::Seeks(_)) && !process.is_told;
            if waits && self.now > since + TOLD_NS + 8 * self.scene.worst_delay_ns() {
                return TOLD.broken(format!("process {} was not told what it waits for", process.number));
            }
        }
        Ok(())
    }

    /// Returns a process that does not know that the group can't continue, although it is a member,
    /// or asks one.
    fn unaware(&self) -> Option<String> {
        let living = || {
            let processes = self.processes.iter().flatten().map(|process| &**process);
            let is_awake = |process: &&SimProcess| process.is_alive && process.paused_until <= self.now;
            processes.filter(is_awake).filter(|process| !self.ledger.is_given_up(process.number))
        };
        let members: Vec<&SimProcess> =
            living().filter(|process| matches!(process.phase, ProcessPhase::Member(_))).collect();
        let is_unaware = |process: &&&SimProcess| match &process.phase {
            ProcessPhase::Member(member) => !member.engine().is_blocked(),
            _ => false,
        };
        if let Some(process) = members.iter().find(is_unaware) {
            return Some(format!("process {}, member {}, does not know it", process.number, process.me.id));
        }
        let asks = |process: &&SimProcess| {
            let is_there = |other: &&SimProcess| other.host == process.host || self.scene.places[other.place].is_seed;
            matches!(process.phase, ProcessPhase::Seeks(_))
                && !self.unreachable.contains(&process.address)
                && members.iter().any(is_there)
        };
        let is_unaware = |process: &SimProcess| asks(&process) && !process.knows_blocked;
        living()
            .find(|process| is_unaware(process))
            .map(|process| format!("process {} waits, and was not told of it", process.number))
    }

    /// Returns a process that has ended, for which a member still keeps data for observers.
    fn kept_for(&self) -> Option<String> {
        let living = || self.processes.iter().flatten().filter(|process| process.is_alive);
        living().find_map(|process| {
            let lives = |id: &&MemberId| living().any(|other| other.me.id == **id);
            let gone = process.roster.observers().iter().find(|id| !lives(id))?;
            Some(format!("process {} keeps what it has delivered for process {gone}, which has ended", process.number))
        })
    }

    fn rest(&self) -> RunRest {
        let living: Vec<&SimProcess> =
            self.processes.iter().flatten().map(|process| &**process).filter(|process| process.is_alive).collect();
        let (observers, living): (Vec<&SimProcess>, Vec<&SimProcess>) =
            living.into_iter().partition(|process| self.scene.places[process.place].is_observer);
        let is_missing = |(number, place): (usize, &super::world::PlaceState)| {
            let is_expected = !place.is_over && !self.scene.places[number].is_observer && !self.cannot_learn(number);
            place.process.is_none() && is_expected
        };
        if self.ledger.may_be_two && self.are_two(&living) {
            return RunRest::Two;
        }
        if self.places.iter().enumerate().any(is_missing) {
            return RunRest::Not("a process is about to start".into());
        }
        let Some((of, newest)) = self.newest_view(&living) else { return self.rest_without_group(&living) };
        if !self.has_quorum(&living, of, &newest) {
            return RunRest::Lost;
        }
        let is_expected = |process: &&&SimProcess| self.is_expected(process, of, &living);
        for process in living.iter().filter(is_expected) {
            if let Some(why) = self.misses(process, of, &living) {
                return RunRest::Not(format!("process {}, member {}, {why}", process.number, process.me.id));
            }
        }
        let members: Vec<&SimProcess> =
            living.iter().copied().filter(|process| is_member_of(process, &newest)).collect();
        if let Some(why) = misplaced(&members) {
            return RunRest::Not(why);
        }
        // No member waits for a hung observer. A case that is not checked: if the members of a
        // group have died, its observer may miss that another group was created.
        let is_expected = |process: &&&SimProcess| process.paused_until <= self.now && self.ledger.bootstraps() == 1;
        for process in observers.iter().filter(is_expected) {
            let finds = self.finds_group(process, of, &living);
            if let ProcessPhase::Watches(watching) = &process.phase
                && finds
                && let Some(why) = HostsWorld::check_observer(watching, &newest)
            {
                return RunRest::Not(format!("observer {} {why}", process.number));
            }
        }
        RunRest::United
    }

    /// Returns true if members of several groups live.
    fn are_two(&self, living: &[&SimProcess]) -> bool {
        let mut groups =
            living.iter().filter(|process| process.is_in_group()).map(|process| process.roster.incarnation());
        groups.next().is_some_and(|first| groups.any(|other| other != first))
    }

    /// Returns true if a process has to be a member at the end.
    fn is_expected(&self, process: &SimProcess, of: u128, living: &[&SimProcess]) -> bool {
        let is_given_up = |other: &SimProcess| self.ledger.is_given_up(other.number);
        let comes = match process.is_in_group() {
            // The process was given up by mistake: it is in no view of the others, and they look
            // for it at the seeds.
            true if is_given_up(process) => {
                let others: Vec<&SimProcess> = living.iter().copied().filter(|other| !is_given_up(other)).collect();
                self.finds_group(process, of, &others)
            }
            true => true,
            false => self.finds_group(process, of, living) && !self.cannot_learn(process.place),
        };
        comes && !self.unreachable.contains(&process.address)
    }

    /// Returns true if processes of a place may never be fast enough to complete a state transfer.
    /// A ring holds few messages, and a sender may send one in each half of the drawn pause. If a
    /// link takes longer than that, the messages are overwritten before they can be read.
    fn cannot_learn(&self, place: usize) -> bool {
        self.places[place].is_lapped && self.scene.worst_delay_ns() >= 3 * self.scene.send_every_ns / 2
    }

    /// Returns true if a process can ask for the group: a member runs on its host, or at the
    /// address of a seed.
    fn finds_group(&self, process: &SimProcess, of: u128, living: &[&SimProcess]) -> bool {
        living.iter().any(|other| {
            let is_there = other.host == process.host || self.scene.places[other.place].is_seed;
            is_there && other.is_in_group() && other.roster.incarnation() == of
        })
    }

    /// Returns the newest view that a member knows.
    pub(super) fn newest_view(&self, living: &[&SimProcess]) -> Option<(u128, View)> {
        let known = living.iter().filter_map(|process| match &process.phase {
            ProcessPhase::Member(member) => {
                let decided = member.engine().decision().map(|decision| &decision.next);
                let next = member.next().map(|next| &**next.view());
                Some((process.roster.incarnation(), next.or(decided).unwrap_or(member.view()).clone()))
            }
            ProcessPhase::Installs(install) => Some((process.roster.incarnation(), (**install.view()).clone())),
            _ => None,
        });
        known.max_by_key(|(_, view)| view.id)
    }

    /// Returns true if the live members, and those whose deaths they can prove, are enough to
    /// change the view.
    pub(super) fn has_quorum(&self, living: &[&SimProcess], of: u128, view: &View) -> bool {
        let is_in = |id: &MemberId| {
            living.iter().any(|process| {
                process.me.id == *id
                    && process.roster.incarnation() == of
                    && !matches!(process.phase, ProcessPhase::Seeks(_) | ProcessPhase::Learns(_))
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

    fn rest_without_group(&self, living: &[&SimProcess]) -> RunRest {
        let waiting = living.iter().filter(|process| !self.unreachable.contains(&process.address)).count() as u32;
        // A group may exist that has lost all of its members, the number of processes is too small,
        // or processes wait that have other settings than the first one.
        if self.scene.is_afar || waiting < self.scene.members || !self.scene.differing.is_empty() {
            return RunRest::Lost;
        }
        RunRest::Not(format!("{waiting} processes found no group"))
    }

    /// Returns a subgroup in which a member has delivered no message that another has sent since
    /// all faults are over, if one exists.
    fn unheard<'t>(&self, process: &SimProcess, table: &'t StreamedTable, other: &SimProcess) -> Option<&'t str> {
        let rank = table.view.rank_of(other.me.id)?;
        let is_unheard = |(id, spec): &(SubgroupId, &SubgroupSpec)| {
            let Some((_, home, there)) = process.home(*id) else { return true };
            let key = (home.incarnation, home.view.id.0);
            let newest = self.ledger.newest(key, (process.number, there.0, other.number as u32));
            // A subgroup that is logged before delivery delivers nothing while it has too few members for
            // its copies (`Durability::LoggedBeforeDelivery`).
            let delivers = !spec.lacks_copies();
            delivers && spec.senders.contains(&rank) && other.probes.get(&spec.name).is_none_or(|probe| newest < *probe)
        };
        table.view.subgroups_of(table.places.me).find(is_unheard).map(|(_, spec)| spec.name.as_str())
    }

    /// Returns what a process lacks to work with all others.
    fn misses(&self, process: &SimProcess, of: u128, living: &[&SimProcess]) -> Option<String> {
        let ProcessPhase::Member(member) = &process.phase else { return Some("is no member".into()) };
        if process.roster.incarnation() != of {
            return Some("is in another group".into());
        }
        if member.next().is_some() || member.engine().is_changing() {
            return Some(format!("is between two views, behind view {}", member.view().id));
        }
        let Some(table) = &process.table else { return Some("has no table".into()) };
        for id in &member.view().members {
            let Some(other) = living.iter().find(|other| other.me.id == *id) else {
                return Some(format!("is in view {} with member {id}, which has ended", member.view().id));
            };
            if let Some(name) = self.unheard(process, table, other) {
                let view = member.view().id;
                return Some(format!("has delivered no message of member {id} in subgroup {name} of view {view}"));
            }
        }
        if let Some(why) = self.unsettled(process).or_else(|| self.lacks_in_logs(process)) {
            return Some(why);
        }
        let is_alone = living
            .iter()
            .any(|other| !member.view().members.contains(&other.me.id) && self.is_expected(other, of, living));
        is_alone.then(|| "is not in a view with all others".into())
    }
}

/// Returns what a member knows, in words.
fn state_of(process: &SimProcess) -> Option<String> {
    let ProcessPhase::Member(member) = &process.phase else { return None };
    let (engine, view) = (member.engine(), member.view());
    let is_suspected = |id: &&MemberId| view.rank_of(**id).is_some_and(|rank| engine.suspects(rank));
    let suspected: Vec<_> = view.members.iter().filter(is_suspected).collect();
    Some(format!(
        "process {}, member {}: view {} of {:?}, suspects {suspected:?}, changing: {}, blocked: {}, ballot: {:?}, \
         decided: {:?}, prepares: {:?}",
        process.number,
        process.me.id,
        view.id,
        view.members,
        engine.is_changing(),
        engine.is_blocked(),
        engine.ballot(),
        engine.decision().map(|decision| &decision.next.members),
        member.next().map(|next| (next.view().id, &next.view().members)),
    ))
}

/// Returns true if the process has begun this view.
fn is_member_of(process: &SimProcess, view: &View) -> bool {
    matches!(&process.phase, ProcessPhase::Member(member) if member.view().id == view.id)
}

/// Returns a member that has another's host or rack wrong: it has kept them from an earlier process
/// with that id.
fn misplaced(members: &[&SimProcess]) -> Option<String> {
    let pairs = members.iter().flat_map(|member| members.iter().map(move |other| (member, other)));
    pairs.into_iter().find_map(|(member, other)| {
        let (book, theirs) = (member.roster.book()?, other.roster.book()?);
        let id = other.me.id;
        let is_right = book.host(id) == theirs.card().host && book.rack(id) == theirs.card().rack.as_ref();
        (!is_right).then(|| {
            format!(
                "process {} takes member {id} for one of host {} and rack {:?}",
                member.number,
                book.host(id),
                book.rack(id)
            )
        })
    })
}

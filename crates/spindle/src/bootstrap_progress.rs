//! The processes that are present while a group is created, or while a process waits for admission.
use spindle_core::MemberId;
use spindle_core::control::{Difference, RestartWait, SeedWait, SeedsKnown, Unreached};
use std::fmt;
use std::path::PathBuf;

/// A process that waits for the group to be complete, or is a member of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Present {
    /// Its id.
    pub id: MemberId,
    /// The process id; 0 if the reporting process does not know it.
    pub pid: u32,
}

/// The processes that are present.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BootstrapProgress {
    /// How many members create the group; in a running group, how many it has.
    pub members: u32,
    /// The processes that are present, by id. In a group that spans hosts they are reported by the
    /// processes that create it, or by its members. The list is empty if none of these has
    /// answered.
    pub present: Vec<Present>,
    /// Whether the group runs and can't continue, so that it admits no process: too few of its
    /// members are left to agree on who is in it. [`present`](Self::present) lists them.
    pub blocked: bool,
    /// The directory in which the members meet, if all of them are on this host.
    pub dir: Option<PathBuf>,
    /// The knowledge about the seeds, if names stand for several
    /// ([`Network::seed_count`](crate::Network::seed_count)).
    pub seeds: Option<Box<SeedsKnown>>,
    /// The condition for which this process waits between hosts, and the seeds that have answered.
    pub waits: Option<Box<SeedWait>>,
    /// How many more seeds have to answer before the group can be created.
    pub seeds_missing: u32,
    /// The settings that differ from those of another process that waits to create the group, with
    /// both values. The group can't be created with both processes.
    pub differing: Box<[Difference]>,
    /// How many processes that wait have other settings than this one, as far as they have asked
    /// it.
    pub differing_here: u32,
    /// The seeds that this process could not use in its last try, in their order.
    pub unreached: Vec<Unreached>,
    /// The members for which the restart of a group waits, at the process that leads it.
    pub restart: Option<Box<RestartWait>>,
}

/// The most members that are listed; the others are counted.
const PRESENT_TOLD: usize = 8;
/// The most differing settings that are listed; the others are counted.
const DIFFERENCES_TOLD: usize = 8;
/// The most unusable seeds that are listed; the others are counted.
const UNREACHED_TOLD: usize = 4;

impl BootstrapProgress {
    /// Returns a bootstrap progress without knowledge about seeds.
    pub(crate) fn of(members: u32, present: Vec<Present>) -> BootstrapProgress {
        BootstrapProgress { members, present, ..BootstrapProgress::default() }
    }

    /// Returns a bootstrap progress as another process reports it.
    pub(crate) fn heard(members: u32, blocked: bool, present: Vec<(MemberId, u32)>) -> BootstrapProgress {
        let present = present.into_iter().map(|(id, pid)| Present { id, pid }).collect();
        BootstrapProgress { blocked, ..BootstrapProgress::of(members, present) }
    }

    /// Returns how many have yet to come.
    pub fn missing(&self) -> u32 {
        self.members.saturating_sub(self.present.len() as u32)
    }

    /// Adds the process ids that were known before: not every process that reports the present ones
    /// knows all of them.
    pub(crate) fn behind(mut self, before: &BootstrapProgress) -> BootstrapProgress {
        for present in self.present.iter_mut().filter(|present| present.pid == 0) {
            let known = before.present.iter().find(|known| known.id == present.id);
            present.pid = known.map_or(0, |known| known.pid);
        }
        self
    }

    /// Returns the remedy.
    pub(crate) fn remedy(&self) -> &'static str {
        match self.present.is_empty() {
            _ if !self.differing.is_empty() || self.differing_here > 0 => "start all with the same settings",
            _ if self.restart.as_ref().is_some_and(|restart| !restart.missing.is_empty()) => {
                "start the missing members with their data directories; name those that are lost for good as lost"
            }
            true => "see that the seeds run and can be reached, or wait longer",
            false if self.dir.is_some() => "start the missing members, with the same directory, or wait longer",
            false => "start the missing members, or wait longer",
        }
    }

    fn write_present(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (here, members) = (self.present.len(), self.members);
        match self.blocked {
            true => write!(f, "the group runs, and only {here} of its {members} members are left (")?,
            false => {
                write!(f, "{here} of {members} members are here ")?;
                self.dir.iter().try_for_each(|dir| write!(f, "in {} ", dir.display()))?;
                write!(f, "(")?;
            }
        }
        for (i, Present { id, pid }) in self.present.iter().take(PRESENT_TOLD).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}member {id}")?;
            if *pid != 0 {
                write!(f, ": process {pid}")?;
            }
        }
        match here.saturating_sub(PRESENT_TOLD) {
            0 => {}
            more => write!(f, ", and {more} more")?,
        }
        match (self.missing(), self.seeds_missing) {
            _ if self.blocked => write!(
                f,
                "), too few to admit a process; it continues when others of them are back, and if those have died, end the members that are left and create it again"
            ),
            (0, 0) => write!(f, "), not all of them ready"),
            (0, seeds) => write!(f, "), and {seeds} more of the seeds must be"),
            (missing, _) => write!(f, "), {missing} missing"),
        }
    }
}

/// Reports the members for which a restart waits.
fn write_restart(restart: &RestartWait, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let told = |ids: &[MemberId]| {
        let mut told: Vec<String> = ids.iter().take(PRESENT_TOLD).map(ToString::to_string).collect();
        told.extend(ids.len().checked_sub(PRESENT_TOLD + 1).map(|more| format!("and {} more", more + 1)));
        told.join(", ")
    };
    let RestartWait { base, missing, not_lost, behind, goes_on, .. } = restart;
    if !not_lost.is_empty() {
        write!(
            f,
            "; the group restarts after view {base}, and these members are named as lost and are here: {}",
            told(not_lost)
        )?;
    }
    match missing.is_empty() {
        true if !behind.is_empty() => {
            write!(
                f,
                "; before the group restarts, the logs of these members get records from others: {}",
                told(behind)
            )
        }
        true => Ok(()),
        false if *goes_on => {
            write!(
                f,
                "; the group restarts soon without these members of its last view, {base}, if they do not come: {}",
                told(missing)
            )
        }
        false => {
            write!(f, "; the group restarts when these members of its last view, {base}, are back: {}", told(missing))
        }
    }
}

/// Returns differences in words.
pub(crate) fn tell_differences(differences: &[Difference]) -> String {
    if differences.is_empty() {
        return "too many to compare".to_string();
    }
    let mut told: Vec<String> = differences.iter().take(DIFFERENCES_TOLD).map(ToString::to_string).collect();
    told.extend(differences.len().checked_sub(DIFFERENCES_TOLD + 1).map(|more| format!("and {} more", more + 1)));
    told.join(", ")
}

/// Returns the remedy for settings that differ from those of a running group.
pub(crate) fn settings_remedy(differences: &[Difference]) -> String {
    match differences {
        [one] if !one.is_adoptable() => format!("give the same {}", one.key),
        _ if !differences.iter().all(Difference::is_adoptable) => "give the same settings".to_string(),
        [] => "start it with the settings of the members".to_string(),
        [one] => format!("leave {} out to join with the group's value, or give the same", one.key),
        _ => "leave these settings out to join with the group's values, or give the same".to_string(),
    }
}

impl fmt::Display for BootstrapProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.present.is_empty() {
            // On one host no other process is asked.
            true if self.seeds.is_none() && self.unreached.is_empty() => write!(f, "no process has answered")?,
            true => write!(f, "no seed has answered")?,
            false => self.write_present(f)?,
        }
        if !self.differing.is_empty() {
            write!(f, "; a process that waits has other settings: {}", tell_differences(&self.differing))?;
        }
        match self.differing_here {
            0 => {}
            1 => write!(f, "; 1 more process waits with other settings, and reports them")?,
            more => write!(f, "; {more} more processes wait with other settings, and report them")?,
        }
        if let Some(restart) = &self.restart {
            write_restart(restart, f)?;
        }
        self.waits.iter().try_for_each(|waits| write!(f, "{waits}"))?;
        self.seeds.iter().try_for_each(|seeds| write!(f, "; {seeds}"))?;
        let told = self.unreached.iter().take(UNREACHED_TOLD);
        told.into_iter().try_for_each(|Unreached { seed, why }| write!(f, "; {seed}: {why}"))?;
        match self.unreached.len().saturating_sub(UNREACHED_TOLD) {
            0 => Ok(()),
            more => write!(f, "; and {more} more seeds can't be used"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_members_is_shortened() {
        let present = (1..=200).map(|id| Present { id: MemberId(id), pid: 0 }).collect();
        let told = BootstrapProgress::of(200, present).to_string();
        let list = "200 of 200 members are here (member 1, member 2, member 3, member 4, member 5, member 6, member 7, member 8, and 192 \
                    more), not all of them ready";
        assert!(told.starts_with(list), "{told}");
    }

    #[test]
    fn a_process_that_waits_for_a_blocked_group_is_told_so() {
        let present = |pid| vec![Present { id: MemberId(4), pid }, Present { id: MemberId(5), pid: 0 }];
        let progress = |pid| BootstrapProgress { blocked: true, ..BootstrapProgress::of(4, present(pid)) };
        // First from a process that knows the process id, then from one that does not.
        let told = progress(0).behind(&progress(77));
        assert_eq!(told, progress(77));
        let left = "the group runs, and only 2 of its 4 members are left (member 4: process 77, member 5), too few";
        assert!(told.to_string().starts_with(left), "{told}");
    }

    #[test]
    fn a_waiting_process_is_told_what_it_waits_for() {
        let present = vec![Present { id: MemberId(4), pid: 77 }];
        let mut progress = BootstrapProgress::of(3, present);
        let here = "1 of 3 members are here (member 4: process 77), 2 missing";
        assert_eq!(progress.to_string(), here);
        let on_host = BootstrapProgress { dir: Some("/tmp/spindle-7".into()), ..progress.clone() };
        assert_eq!(on_host.to_string(), here.replace("here (", "here in /tmp/spindle-7 ("));
        let addresses = |count: u8| (1..=count).map(|last| format!("10.0.0.{last}:7411").parse().unwrap()).collect();
        let mut told = |known, failed: Option<&str>, unlike| {
            let (given, failed) = (vec!["spindle:7411".parse().unwrap()], failed.map(str::to_string));
            let seeds = SeedsKnown { given, wanted: 3, known: addresses(known), failed, unlike };
            progress.seeds = Some(Box::new(seeds));
            progress.to_string().strip_prefix(here).unwrap().to_string()
        };
        assert_eq!(told(2, None, 0), "; 2 of 3 addresses of spindle:7411 are known");
        assert_eq!(told(0, Some("no such name"), 0), "; 0 of 3 addresses of spindle:7411 are known (no such name)");
        let all = "; all 3 addresses of spindle:7411 are known";
        assert_eq!(told(3, None, 0), all);
        assert_eq!(told(3, None, 1), format!("{all}, and 1 of the waiting processes with other addresses"));
        assert_eq!(told(5, None, 0), "; 5 addresses of spindle:7411 are known, and 3 of them could create a group");
    }

    #[test]
    fn a_waiting_process_is_told_why_seeds_are_out_of_reach() {
        let unreached = |last: u8| Unreached { seed: format!("10.0.0.{last}:1").parse().unwrap(), why: "gone".into() };
        let mut progress = BootstrapProgress { unreached: vec![unreached(1)], ..BootstrapProgress::of(1, vec![]) };
        assert_eq!(progress.to_string(), "no seed has answered; 10.0.0.1:1: gone");
        progress.present.push(Present { id: MemberId(4), pid: 77 });
        progress.seeds_missing = 2;
        progress.unreached.push(unreached(2));
        let here = "1 of 1 members are here (member 4: process 77), and 2 more of the seeds must be";
        assert_eq!(progress.to_string(), format!("{here}; 10.0.0.1:1: gone; 10.0.0.2:1: gone"));
        progress.unreached = (1..=9).map(unreached).collect();
        assert!(progress.to_string().ends_with("; 10.0.0.4:1: gone; and 5 more seeds can't be used"), "{progress}");
    }
}

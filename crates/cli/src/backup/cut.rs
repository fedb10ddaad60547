//! The cut of a backup of a running member: a clock that no further message can get, and up to which
//! all messages are durable.
//!
//! The member says how far the clocks of its logs have come, and which position is durable. The clock of
//! a busy log passes the cut by itself. For the others the member is asked to raise the clocks: the
//! group agrees on a view in which these subgroups begin an epoch with the cut as their clock.
use crate::admin_client::{ANSWER_WAIT, AdminClient};
use crate::exit::{CliError, CliResult, FAILED};
use crate::lines;
use crate::settings::GroupLocation;
use crate::signals::Stop;
use serde_json::{Value, json};
use spindle::MemberId;
use spindle_core::control::Request;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How often the member is asked.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// How long clocks may pass the cut by themselves before they are raised.
const RAISE_AFTER: Duration = Duration::from_millis(200);
/// How long a raise may take before it is requested again: the view may have been changing.
const RAISE_EVERY: Duration = Duration::from_secs(1);
/// How long a wait lasts that is not reported.
const SILENT_FOR: Duration = Duration::from_secs(1);

/// The owner of a data directory.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) found: GroupLocation,
    pub(super) member: MemberId,
    /// Its process id, or 0.
    pub(super) pid: u32,
}

/// The limits of the wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience<'a> {
    pub(super) until: Instant,
    pub(super) timeout: Duration,
    pub(super) stop: &'a Stop,
    pub(super) json: bool,
}

/// A cut that has come.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    pub(super) clock: u64,
    /// The logged subgroups of the member.
    pub(super) logs: Vec<String>,
}

/// The state of a log, as its member reports it.
#[derive(Clone, Copy, Debug)]
struct LogState {
    epoch: u64,
    /// The sequence numbers of the epoch that the log has.
    taken: u64,
    clock: u64,
    durable: Option<u64>,
    catches_up: bool,
}

/// The reason why a log has not come to the cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lacks {
    /// It gets records from other members.
    Records,
    /// Messages with earlier clocks may come.
    Clock,
    /// Its messages are not on enough disks.
    Copies,
}

impl Owner {
    /// Waits until the logs of the member have come to a cut: the given clock, or the present.
    ///
    /// # Errors
    /// The member does not answer, the time is over, or a signal stops the command.
    pub(super) fn cut(&self, at: Option<u64>, patience: Patience<'_>) -> CliResult<Cut> {
        let mut client = AdminClient::open(&self.found)?;
        let first = self.ask(&mut client, Request::Status)?;
        let states = logs_of(&first);
        let newest = states.values().map(|state| state.clock).max().unwrap_or(0);
        // Clocks may be ahead of this host: what is durable by now belongs to the backup.
        let clock = at.unwrap_or_else(|| now().max(newest));
        let (begun, mut raised, mut said) = (Instant::now(), None::<Instant>, None);
        // By log, the position that has to be durable.
        let mut needed: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let mut states = states;
        loop {
            for (name, state) in &states {
                // A log may have taken messages that its epoch did not deliver. Then its clock falls.
                if state.clock < clock && needed.get(name).is_some_and(|(epoch, _)| *epoch != state.epoch) {
                    needed.remove(name);
                }
                if state.clock >= clock && !state.catches_up {
                    needed.entry(name.clone()).or_insert((state.epoch, state.taken));
                }
            }
            let lacking = states.iter().find_map(|(name, state)| {
                let lacks = state.lacks(needed.get(name).copied())?;
                Some((name.clone(), lacks))
            });
            let Some((name, lacks)) = lacking else {
                return Ok(Cut { clock, logs: states.into_keys().collect() });
            };
            if patience.stop.flag.load(Ordering::Acquire) {
                let when = "before the cut of the backup had come; nothing was written";
                return Err(CliError::interrupted(patience.stop.signal(), when));
            }
            if Instant::now() >= patience.until {
                let message = format!(
                    "the cut has not come after {:?}: log {name} {}; see `spindle status {}`",
                    patience.timeout,
                    lacks.reason(),
                    self.found.group
                );
                return Err(CliError::new(FAILED, message));
            }
            if begun.elapsed() >= SILENT_FOR && said.as_ref() != Some(&(name.clone(), lacks)) {
                match patience.json {
                    true => lines::tell(json!({"event": "waiting", "log": name, "why": lacks.reason()})),
                    false => lines::tell(format_args!("waits: log {name} {}", lacks.reason())),
                }
                said = Some((name, lacks));
            }
            let is_due = raised.map_or(begun.elapsed() >= RAISE_AFTER, |raised| raised.elapsed() >= RAISE_EVERY);
            let is_behind = states.values().any(|state| state.clock < clock);
            let request = match is_due && is_behind {
                true => {
                    raised = Some(Instant::now());
                    Request::RaiseClocks(clock)
                }
                false => Request::Status,
            };
            thread::sleep(ASK_EVERY);
            let answer = self.ask(&mut client, request)?;
            if let Some(why) = answer["refused"].as_str() {
                return Err(CliError::new(FAILED, format!("member {} refuses the cut: {why}", self.member)));
            }
            states = logs_of(&answer);
        }
    }

    fn ask(&self, client: &mut AdminClient, request: Request) -> CliResult<Value> {
        let (member, group) = (self.member, &self.found.group);
        let answer = client.ask(&[member], request)?.remove(&member).ok_or_else(|| {
            let message = format!(
                "member {member} of group {group}, which owns the directory, did not answer within {ANSWER_WAIT:?} at {}; name its \
                 --runtime-dir, resume it, or end it",
                self.found.dir.display()
            );
            CliError::new(FAILED, message)
        })?;
        let found = answer["members"].as_array().into_iter().flatten().find(|found| found["id"] == member.0);
        let pid = found.and_then(|found| found["pid"].as_u64());
        if self.pid != 0 && pid.is_some_and(|pid| pid != u64::from(self.pid)) {
            let message = format!(
                "process {} owns the directory, and member {member} of group {group} at {} is process {}; name the --runtime-dir of the \
                 member",
                self.pid,
                self.found.dir.display(),
                pid.unwrap_or(0)
            );
            return Err(CliError::new(FAILED, message));
        }
        Ok(answer)
    }
}

impl LogState {
    fn of(log: &Value) -> Option<LogState> {
        Some(LogState {
            epoch: log["epoch"].as_u64()?,
            taken: log["taken"].as_u64()?,
            clock: log["clock"].as_u64()?,
            durable: log["durable"].as_u64(),
            catches_up: !log["catching_up"].is_null(),
        })
    }

    /// Returns what it lacks. `needed` is the position that has to be durable, once the clock has
    /// passed the cut.
    fn lacks(&self, needed: Option<(u64, u64)>) -> Option<Lacks> {
        match needed {
            None if self.catches_up => Some(Lacks::Records),
            None => Some(Lacks::Clock),
            // The durable messages of a later epoch follow those of all older ones.
            Some((epoch, taken)) => {
                let least = if self.epoch == epoch { taken } else { 0 };
                (self.durable.is_none_or(|durable| durable < least)).then_some(Lacks::Copies)
            }
        }
    }
}

impl Lacks {
    fn reason(self) -> &'static str {
        match self {
            Lacks::Records => "gets records from other members that it lacks",
            Lacks::Clock => "may get messages with earlier times: the group has not agreed on a later clock",
            Lacks::Copies => {
                "has messages that are not durable: a disk is slow or full, or the subgroup has fewer members than durable_copies"
            }
        }
    }
}

/// Returns the logs in an answer, by name.
fn logs_of(answer: &Value) -> BTreeMap<String, LogState> {
    let subgroups = answer["subgroups"].as_array().into_iter().flatten();
    let of = |subgroup: &Value| Some((subgroup["name"].as_str()?.to_string(), LogState::of(&subgroup["log"])?));
    subgroups.filter_map(of).collect()
}

/// The present, in ns since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(epoch: u64, taken: u64, durable: Option<u64>) -> LogState {
        LogState { epoch, taken, clock: 5, durable, catches_up: false }
    }

    #[test]
    fn a_log_lacks_clocks_first_and_then_copies() {
        let catches_up = LogState { catches_up: true, ..state(1, 9, None) };
        assert_eq!(catches_up.lacks(None), Some(Lacks::Records));
        assert_eq!(state(1, 9, Some(9)).lacks(None), Some(Lacks::Clock));
        assert_eq!(state(1, 12, Some(8)).lacks(Some((1, 9))), Some(Lacks::Copies));
        assert_eq!(state(1, 12, None).lacks(Some((1, 9))), Some(Lacks::Copies));
        assert_eq!(state(1, 12, Some(9)).lacks(Some((1, 9))), None);
        assert_eq!(state(2, 0, None).lacks(Some((1, 9))), Some(Lacks::Copies), "older epochs may not be durable");
        assert_eq!(state(2, 0, Some(0)).lacks(Some((1, 9))), None);
    }

    #[test]
    fn the_logs_of_an_answer_are_those_of_logged_subgroups() {
        let log = json!({"epoch": 3, "taken": 7, "clock": 99, "durable": null, "catching_up": null});
        let answer = json!({"subgroups": [{"name": "a", "log": log}, {"name": "b", "log": null}]});
        let logs = logs_of(&answer);
        assert_eq!(logs.len(), 1);
        assert_eq!((logs["a"].epoch, logs["a"].taken, logs["a"].clock, logs["a"].durable), (3, 7, 99, None));
    }
}

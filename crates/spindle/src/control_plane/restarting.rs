//! Restarts a group whose processes have all ended: the core's [`Restart`] decides, and the data
//! directory stores its records.
use super::ControlPlane;
use crate::old_logs::OldLogs;
use spindle_core::control::{
    Card, ControlMessage, LogState, LongestLog, Me, Restart, RestartMessage, RestartOutput, RestartSetup, RestartTo,
    RestartView, RestartWait,
};
use spindle_core::limits::BOOTSTRAP_WORDS_MAX;
use spindle_core::{MemberId, Position, Process, Time, ViewId};
use spindle_log::Error;
use std::collections::BTreeSet;
use std::time::Duration;
use tracing::{error, trace};

/// The tracing target of a restart.
const TARGET: &str = "spindle::restart";

/// The state machine, and its disk.
#[derive(Debug)]
pub(crate) struct RestartDriver {
    inner: Restart,
    /// `None` once a view has begun with these logs.
    old: Option<OldLogs>,
    incarnation: u128,
    me: Me,
    nonce: u32,
    config: u64,
    /// The processes of this host that may lead.
    leaders: Vec<MemberId>,
    begun: Option<RestartView>,
    /// The last record of each log, once the restart is decided.
    decided: Option<Vec<LogState>>,
    /// The logs that have to get records from others.
    behind: Vec<LongestLog>,
    failed: Option<Error>,
}

impl RestartDriver {
    /// Returns the driver of the process `me` on `host`, with the configuration digest `config`. An operator has
    /// given up the `lost` members. A restart quorum waits for the others with `patience`.
    pub(crate) fn new(
        old: OldLogs,
        (me, process, host): (Process, Me, u128),
        config: u64,
        (lost, patience): (BTreeSet<MemberId>, Duration),
        now: Time,
    ) -> RestartDriver {
        let (record, logs) = (old.record().clone(), old.states().to_vec());
        let setup = RestartSetup { me, record, logs, lost, host, patience };
        let (leaders, begun, decided, behind, failed) = Default::default();
        let (inner, incarnation) = (Restart::new(setup, now), old.incarnation());
        // Groups with one name, such as one that is restored from a backup of the other, restart apart.
        let config = config ^ (incarnation as u64) ^ (incarnation >> 64) as u64;
        let (old, nonce, me) = (Some(old), me.nonce, process);
        RestartDriver { inner, old, incarnation, me, nonce, config, leaders, begun, decided, behind, failed }
    }

    /// Notes whether this process may lead, and which processes of its host may.
    pub(crate) fn set_leaders(&mut self, leads: bool, leaders: Vec<MemberId>) {
        self.inner.set_leads(leads);
        self.leaders = leaders;
    }

    /// The group that restarts.
    pub(crate) fn incarnation(&self) -> u128 {
        self.incarnation
    }

    /// Notes that a process has ended.
    pub(crate) fn gone(&mut self, id: MemberId) {
        self.inner.gone(id);
    }

    /// Whether another process has to lead.
    pub(crate) fn has_to_yield(&self) -> bool {
        self.inner.has_to_yield()
    }

    /// The view that this process votes on, if it does.
    pub(crate) fn votes_for(&self) -> Option<ViewId> {
        self.inner.votes_for()
    }

    /// The reason why the process waits.
    pub(crate) fn waiting(&self) -> RestartWait {
        self.inner.waiting()
    }

    /// When this process, as the leader, has last heard that logs get records.
    pub(crate) fn moved_at(&self) -> Option<Time> {
        self.inner.moved_at()
    }

    /// Takes the view that this process has to begin, once.
    pub(crate) fn take_begun(&mut self) -> Option<RestartView> {
        self.begun.take()
    }

    /// Takes the error of the disk.
    pub(crate) fn take_failure(&mut self) -> Option<Error> {
        self.failed.take()
    }

    /// Takes the logs that have to get records from others. They are named again until they have them.
    pub(crate) fn take_behind(&mut self) -> Vec<LongestLog> {
        std::mem::take(&mut self.behind)
    }

    /// The logs on disk, until a view has begun with them.
    pub(crate) fn old_logs(&mut self) -> Option<&mut OldLogs> {
        self.old.as_mut()
    }

    /// Reports the logs on disk, to which records have been appended, and those for which all others have
    /// pruned the next ones.
    pub(crate) fn report_logs(&mut self, cut_off: &[String], now: Time) {
        if let Some(old) = &self.old {
            self.inner.set_logs(old.states().to_vec(), cut_off, now);
        }
    }

    /// Notes that a log is to lose the records after `last`. Returns whether it may.
    pub(crate) fn begin_cut(&mut self, name: &str, last: Option<Position>, now: Time) -> bool {
        let may = self.inner.begin_cut(name, last, now);
        if let Some(old) = self.old.as_mut().filter(|_| may) {
            old.note_cut(name, last);
        }
        may
    }

    /// Whether it has begun a view.
    pub(crate) fn has_begun(&self) -> bool {
        self.decided.is_some()
    }

    fn patience(&self, now: Time) -> Duration {
        self.inner.wake_at().since(now)
    }

    /// Takes in a message. Returns the places of processes that it names.
    fn hear(&mut self, from: MemberId, nonce: u32, config: u64, words: &[u64], now: Time) -> Vec<Card> {
        let Some(mut message) = RestartMessage::decode(words).filter(|_| config == self.config) else {
            return vec![];
        };
        let places = match &mut message {
            RestartMessage::CatchUp { cards, .. } => std::mem::take(cards),
            _ => vec![],
        };
        self.inner.hear(Process { id: from, nonce }, message, now);
        places
    }

    /// Returns the next control message. The records that it depends on are written first.
    fn next_message(&mut self, places: &[Card], now: Time) -> Option<(RestartTo, ControlMessage)> {
        while self.failed.is_none() {
            match self.inner.next_output()? {
                RestartOutput::Send { to, mut message } => {
                    if let RestartMessage::CatchUp { logs, cards, .. } = &mut message {
                        let holds = |id: MemberId| logs.iter().any(|log| log.holders.iter().any(|it| it.id == id));
                        *cards = places.iter().filter(|card| holds(card.id)).cloned().collect();
                    }
                    trace!(target: TARGET, ?to, ?message, "message");
                    let Me { id: from, pid, birth } = self.me;
                    let words = message.encode();
                    if words.len() > BOOTSTRAP_WORDS_MAX {
                        error!(target: TARGET, words = words.len(), "the last view is too large for a message");
                        continue;
                    }
                    let (nonce, config) = (self.nonce, self.config);
                    return Some((to, ControlMessage::Bootstrap { from, pid, birth, nonce, config, clock: 0, words }));
                }
                RestartOutput::Persist(record) => match self.old.as_mut().map(|old| old.write(&record)) {
                    None | Some(Ok(())) => self.inner.persisted(now),
                    // No control message follows that depends on the record.
                    Some(Err(error)) => {
                        error!(target: TARGET, reason = %error, "record can't be written");
                        self.failed = Some(error);
                    }
                },
                RestartOutput::CatchUp(logs) => self.behind = logs,
                RestartOutput::Begin(value) => {
                    self.decided = Some(value.logs.clone());
                    self.begun = Some(*value);
                }
            }
        }
        None
    }
}

/// Whether the words of a message between processes without a group are about a restart.
pub(super) fn is_of_restart(words: &[u64]) -> bool {
    RestartMessage::decode(words).is_some()
}

impl ControlPlane {
    /// Lets this process take part in the restart of its group.
    pub(crate) fn set_restart(&mut self, restart: RestartDriver) {
        self.restart = Some(restart);
    }

    /// Ends this process's part in the restart of its group, which lives. Returns the old logs.
    pub(crate) fn end_restart(&mut self) -> Option<OldLogs> {
        self.restart.take()?.old
    }

    /// Keeps old logs until this process continues them.
    pub(crate) fn keep_old_logs(&mut self, old: OldLogs) {
        self.old_logs = Some(old);
    }

    /// Takes the old logs, to continue them, and the last record of each log, if all processes of the group
    /// had ended and this one restarts it with the others.
    pub(crate) fn take_old_logs(&mut self) -> Option<(OldLogs, Option<Vec<LogState>>)> {
        if let Some(old) = self.old_logs.take() {
            return Some((old, None));
        }
        let mut restart = self.restart.take()?;
        let logs = restart.old.take().map(|old| (old, restart.decided.clone()));
        // A process that has joined votes no more. One that restarts its group answers those that have
        // missed the decision.
        self.restart = Some(restart).filter(RestartDriver::has_begun);
        logs
    }

    pub(crate) fn restart(&mut self) -> Option<&mut RestartDriver> {
        self.restart.as_mut()
    }

    /// Whether a process has sent a message that restarts its group.
    pub(crate) fn hears_restart(&self) -> bool {
        self.hears_restart
    }

    /// Returns how long to wait until the restart has to do something.
    pub(super) fn restart_patience(&self) -> Option<Duration> {
        self.restart.as_ref().map(|restart| restart.patience(self.now()))
    }

    /// Passes on a message about a restart.
    pub(super) fn hear_of_restart(&mut self, from: MemberId, nonce: u32, config: u64, words: &[u64]) {
        self.hears_restart = true;
        let now = self.now();
        if let Some(restart) = &mut self.restart {
            let places = restart.hear(from, nonce, config, words, now);
            self.act(|roster, _| roster.hear_of_places(places));
        }
    }

    /// Runs a step of the restart, and sends its messages.
    pub(super) fn step_restart(&mut self) {
        let Some(mut restart) = self.restart.take() else { return };
        let now = self.now();
        let places = self.roster.book().map(|book| book.cards()).unwrap_or_default();
        let seeds: Option<Vec<_>> = self.roster.book().map(|book| book.seeds().list().to_vec());
        if let Some(book) = self.roster.book() {
            restart.inner.set_leads(book.seeds().is_seed());
        }
        restart.inner.poll(now);
        while let Some((to, message)) = restart.next_message(&places, now) {
            match (to, &seeds) {
                (RestartTo::Process(process), _) => self.roster.post(process.id, message),
                (RestartTo::Leaders, Some(seeds)) => {
                    for address in seeds {
                        self.roster.write_to(address.clone(), None, message.clone());
                    }
                }
                (RestartTo::Leaders, None) => {
                    for id in restart.leaders.iter().copied().filter(|id| *id != self.me) {
                        self.roster.post(id, message.clone());
                    }
                }
            }
        }
        self.restart = Some(restart);
        self.carry_out();
    }

    /// Returns the view with which this process has to restart its group, if that was just decided.
    pub(crate) fn take_restarted(&mut self) -> Option<RestartView> {
        let begun = self.restart.as_mut()?.take_begun()?;
        self.roster.hear_of_founders(begun.view.id, &begun.members, vec![]);
        Some(begun)
    }
}

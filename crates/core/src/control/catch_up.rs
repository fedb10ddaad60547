//! Catching up: a log that lacks records gets them from the logs of other processes.
//!
//! [`CatchUp`] decides for one log which process is asked, when it is asked again, when the next one
//! is asked, and when to stop. The driver sends the requests, reads the records that come as a stream,
//! and writes them to the log. A stream begins after the last record of the log, so whatever ends it,
//! the next one continues from there.
//!
//! A source that lacks records at the beginning of the request refuses. If all sources refuse, the one
//! with the oldest records is asked for what it has, and the records before them stay missing: a
//! [`RecordGap`].
//!
//! A source that lacks the last record of the log names its own last record before that one. The group
//! has restarted without this member, and the records behind are not the group's: the log is *cut*.
//!
//! Invariant INV-CATCH-UP: a log counts as complete only if a source said so that had all records below
//! the bound on its disk, or if the missing ones are reported as a gap.
use super::{NoRecords, RecordBound, WantedRecords};
use crate::ids::{MemberId, Position, Time};
use crate::mutation::mutation;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// The most processes that one process sends records to at once. Others are refused for the moment.
pub const RECORD_STREAMS_MAX: usize = 2;
/// The longest time until the answer of a source begins to come. The driver itself gives up a stream
/// that stalls.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// The pauses between two requests that brought nothing. They double.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The most requests in a row that bring no record before sources that can't serve now count as
/// sources that can't serve at all. With pauses, that takes about a minute.
const FRUITLESS_MAX: u32 = 120;
/// How many requests in a row count at most after a source has answered that it serves others. Pauses
/// are the longest then.
const WAITS_MAX: u32 = 6;
/// A log lacks little if a source has sent all that it has, and that were fewer bytes.
const LITTLE_BYTES: u64 = 1 << 20;
/// The most streams with all that a source has, after which a log counts as lacking little: the group may
/// send faster than records come.
const ROUNDS_MAX: u32 = 8;

/// A request of a process for records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordOrder {
    /// The process.
    pub from: MemberId,
    /// The group whose records it wants.
    pub incarnation: u128,
    /// The number that the answer repeats.
    pub reply: u64,
    /// The records.
    pub wanted: WantedRecords,
}

/// When a catch-up ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CatchUpAim {
    /// When the log has all records below the bound.
    All,
    /// As [`All`](Self::All), but no records may be left out: if all sources have pruned the next ones, the
    /// catch-up stops.
    Whole,
    /// When the log lacks little: for a process that is no member yet, so that new records follow.
    Most,
}

/// The end of one stream of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordStreamEnd {
    /// The source has sent all records below the bound.
    Complete,
    /// The source has sent all that it has now, and more may come.
    NotYet,
    /// The source refused.
    Refused(NoRecords),
    /// The source died, stalled, or sent something else than was asked for.
    Broken,
}

/// Records that no source could send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordGap {
    /// The last record before them, if there is one.
    pub after: Option<Position>,
    /// The first record behind them, if there is one.
    pub before: Option<Position>,
}

/// The reason why a catch-up has stopped before its aim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CatchUpFailure {
    /// No other process has a log of the subgroup.
    #[error("no other member has a log of the subgroup")]
    NoSource,
    /// No source can send the records, for this reason of the last one.
    #[error("no member can send them, the last one because {0}")]
    Refused(NoRecords),
    /// The sources did not answer, or their streams broke off.
    #[error("the members do not answer, or their streams break off")]
    Broken,
}

/// The result of a catch-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CatchUpEnd {
    /// The log has all records below the bound, but for a gap.
    Complete {
        /// The records that no source has.
        gap: Option<RecordGap>,
    },
    /// The log lacks little.
    Little,
    /// The log lacks records, and none come.
    Stopped {
        /// The reason.
        why: CatchUpFailure,
        /// The records that no source has, as far as it is known.
        gap: Option<RecordGap>,
    },
}

/// Whether a log has all records of the epochs before those in which it takes messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogCompleteness {
    /// It lacks none that a member may have.
    #[default]
    Complete,
    /// It lacks some, which may come.
    CatchingUp,
    /// It lacks some, which no member has sent: a member that may have them did not answer.
    Incomplete,
}

impl CatchUpEnd {
    /// Whether a log is complete after this end.
    pub fn completeness(&self) -> LogCompleteness {
        match self {
            CatchUpEnd::Little => LogCompleteness::CatchingUp,
            CatchUpEnd::Stopped { why: CatchUpFailure::Broken, .. } => LogCompleteness::Incomplete,
            // No other member is in the subgroup, or none of them has more.
            CatchUpEnd::Complete { .. } | CatchUpEnd::Stopped { .. } => LogCompleteness::Complete,
        }
    }
}

/// A request that was sent.
#[derive(Debug)]
struct Asked {
    source: MemberId,
    reply: u64,
    bound: RecordBound,
    /// When the answer has to begin. `None`: the records come.
    until: Option<Time>,
}

/// The catch-up of one log.
#[derive(Debug)]
pub struct CatchUp {
    subgroup: String,
    bound: RecordBound,
    aim: CatchUpAim,
    /// The last record of the log.
    at: Option<Position>,
    /// The processes that may have the records, without this one.
    sources: Vec<MemberId>,
    /// The next of them, without regard to how many they are.
    next: usize,
    /// Sources that can't send the records at all.
    refused: BTreeMap<MemberId, NoRecords>,
    asked: Option<Asked>,
    reply: u64,
    /// Streams that a source ended because it had no more.
    rounds: u32,
    /// Requests in a row that brought nothing, and why the last of them did not.
    fruitless: u32,
    why: CatchUpFailure,
    /// When the next request may leave.
    again: Time,
    /// Whether sources may leave out records that they lack.
    may_skip: bool,
    gap: Option<RecordGap>,
    /// The last record that stays, while records behind it have to be removed.
    cut: Option<Option<Position>>,
    end: Option<CatchUpEnd>,
}

impl CatchUp {
    /// Returns the catch-up of the log of `subgroup`, whose last record is `at`. `first` is a number
    /// that differs between processes, so that they begin with different sources. The numbers of
    /// requests follow `reply`; those of other catch-ups of the process must differ.
    pub fn new(
        subgroup: String,
        at: Option<Position>,
        bound: RecordBound,
        aim: CatchUpAim,
        (first, reply): (u64, u64),
        now: Time,
    ) -> CatchUp {
        let (sources, refused, asked, gap, cut, end) = Default::default();
        CatchUp {
            subgroup,
            bound,
            aim,
            at,
            sources,
            next: first as usize,
            refused,
            asked,
            reply,
            rounds: 0,
            fruitless: 0,
            why: CatchUpFailure::NoSource,
            again: now,
            may_skip: false,
            gap,
            cut,
            end,
        }
    }

    /// The bound.
    pub fn bound(&self) -> RecordBound {
        self.bound
    }

    /// Raises the bound: a later epoch has begun, and the log has taken nothing of those before. A
    /// catch-up that has reached the bound before continues.
    pub fn set_bound(&mut self, bound: RecordBound, now: Time) {
        if bound != self.bound {
            (self.bound, self.fruitless, self.again) = (bound, 0, now);
            self.end = None;
        }
    }

    /// Sets the processes that may have the records: the members of the subgroup in the newest view
    /// other than this one. A request to a process that is none of them is over.
    pub fn set_sources(&mut self, sources: Vec<MemberId>, now: Time) {
        if sources == self.sources {
            return;
        }
        self.sources = sources;
        self.refused.retain(|id, _| self.sources.contains(id));
        if let Some(asked) = self.asked.take_if(|asked| asked.until.is_some() && !self.sources.contains(&asked.source))
        {
            self.failed(asked.source, now);
        }
    }

    /// The process whose records come now, or that was asked for them.
    pub fn source(&self) -> Option<MemberId> {
        self.asked.as_ref().map(|asked| asked.source)
    }

    /// The result, once there is one.
    pub fn end(&self) -> Option<CatchUpEnd> {
        self.end
    }

    /// Whether no record is missing between the last one that the log had and those that have come.
    pub fn is_whole(&self) -> bool {
        self.gap.is_none() && !self.may_skip
    }

    /// How long the driver may wait until the next [`ask`](Self::ask), if no event comes.
    pub fn patience(&self, now: Time) -> Duration {
        match &self.asked {
            Some(Asked { until: Some(until), .. }) => until.since(now),
            Some(_) => PAUSE_MAX,
            None => self.again.since(now),
        }
    }

    /// Returns the next request, if it is due: the source, the number of the request, and the records.
    pub fn ask(&mut self, now: Time) -> Option<(MemberId, u64, WantedRecords)> {
        if let Some(asked) = self.asked.take_if(|asked| asked.until.is_some_and(|until| until <= now)) {
            self.failed(asked.source, now);
        }
        if self.end.is_some() || self.asked.is_some() || self.cut.is_some() || now < self.again {
            return None;
        }
        let source = self.find_source()?;
        self.reply += 1;
        self.asked = Some(Asked { source, reply: self.reply, bound: self.bound, until: Some(now + ANSWER_WAIT) });
        let (after, may_skip) = (self.at, self.may_skip);
        let wanted = WantedRecords { subgroup: self.subgroup.clone(), after, bound: self.bound, may_skip };
        Some((source, self.reply, wanted))
    }

    /// Returns the source to ask. If there is none, the catch-up ends.
    fn find_source(&mut self) -> Option<MemberId> {
        let count = self.sources.len();
        if count == 0 {
            self.stop(CatchUpFailure::NoSource);
            return None;
        }
        let can_send = |id: &MemberId| !self.refused.contains_key(id);
        if self.fruitless < FRUITLESS_MAX
            && let Some(ahead) = (0..count).find(|ahead| can_send(&self.sources[(self.next + ahead) % count]))
        {
            self.next = (self.next + ahead) % count;
            return Some(self.sources[self.next]);
        }
        // No source has all of them: the one whose log begins first has most.
        let begins = |(id, why): (&MemberId, &NoRecords)| match why {
            NoRecords::Pruned { oldest } => Some((*oldest, *id)),
            _ => None,
        };
        match self.refused.iter().filter_map(begins).min().filter(|_| !self.may_skip && self.aim != CatchUpAim::Whole) {
            Some((_, source)) => {
                (self.may_skip, self.fruitless) = (true, 0);
                self.refused.clear();
                self.next = self.sources.iter().position(|id| *id == source).unwrap_or(0);
                Some(source)
            }
            None => {
                self.stop(self.why);
                None
            }
        }
    }

    fn stop(&mut self, why: CatchUpFailure) {
        self.end = Some(CatchUpEnd::Stopped { why, gap: self.gap });
    }

    /// Returns the last record of the log that stays, if the records behind it have to be removed. The
    /// driver removes them, and then calls [`has_cut`](Self::has_cut).
    pub fn cut(&self) -> Option<Option<Position>> {
        self.cut
    }

    /// Notes that the log was cut, and ends with the record `at` now.
    pub fn has_cut(&mut self, at: Option<Position>, now: Time) {
        (self.cut, self.at, self.again) = (None, at, now);
        self.refused.clear();
    }

    /// Notes that the answer to a request begins to come. Returns whether it is wanted.
    pub fn comes(&mut self, from: MemberId, reply: u64) -> bool {
        let asked = self.asked.as_mut().filter(|asked| asked.source == from && asked.reply == reply);
        asked.and_then(|asked| asked.until.take()).is_some()
    }

    /// Notes a refusal by control message.
    pub fn refused(&mut self, from: MemberId, reply: u64, why: NoRecords, now: Time) {
        if self.comes(from, reply) {
            self.ended(RecordStreamEnd::Refused(why), self.at, None, 0, now);
        }
    }

    /// Notes that control messages do not reach a process, or that it has ended. A stream that has
    /// begun ends by itself.
    pub fn lost(&mut self, id: MemberId, now: Time) {
        if let Some(asked) = self.asked.take_if(|asked| asked.source == id && asked.until.is_some()) {
            self.failed(asked.source, now);
        }
    }

    /// Notes the end of the stream that came. The log ends with the record `at` now; `first` is the
    /// first record that came, and `bytes` are those that came.
    pub fn ended(
        &mut self,
        end: RecordStreamEnd,
        at: Option<Position>,
        first: Option<Position>,
        bytes: u64,
        now: Time,
    ) {
        let Some(Asked { source, bound, .. }) = self.asked.take() else { return };
        if let Some(first) = first.filter(|_| self.may_skip && self.gap.is_none()) {
            self.gap = Some(RecordGap { after: self.at, before: Some(first) });
            // From here on the log has all of them.
            self.may_skip = false;
            self.refused.clear();
        }
        let has_grown = at > self.at;
        self.at = at;
        if has_grown {
            self.fruitless = 0;
        }
        match end {
            // The bound has risen meanwhile.
            RecordStreamEnd::Complete if bound != self.bound => self.again = now,
            RecordStreamEnd::Complete => {
                let skipped = self.may_skip.then_some(RecordGap { after: at, before: None });
                self.end = Some(CatchUpEnd::Complete { gap: self.gap.or(skipped) });
            }
            RecordStreamEnd::NotYet if self.aim == CatchUpAim::Most => {
                self.rounds += 1;
                (self.again, self.fruitless) = (now, 0);
                if bytes < LITTLE_BYTES || self.rounds == ROUNDS_MAX {
                    self.end = Some(CatchUpEnd::Little);
                }
            }
            RecordStreamEnd::NotYet if has_grown => self.again = now,
            RecordStreamEnd::NotYet => self.failed(source, now),
            RecordStreamEnd::Refused(why) => {
                self.why = CatchUpFailure::Refused(why);
                match why {
                    NoRecords::Busy => self.wait(now),
                    NoRecords::CatchingUp => self.pause(now),
                    NoRecords::Lacks { last } if last < self.at && !mutation!(ForeignRecordsKept) => {
                        self.cut = Some(last);
                        self.again = now;
                    }
                    _ => {
                        self.refused.insert(source, why);
                        self.next += 1;
                        self.again = now;
                    }
                }
            }
            RecordStreamEnd::Broken => self.failed(source, now),
        }
    }

    /// Asks the next source, after a pause.
    fn failed(&mut self, source: MemberId, now: Time) {
        if self.sources.contains(&source) {
            self.why = CatchUpFailure::Broken;
        }
        self.pause(now);
    }

    /// Asks the next source, after a pause. The source that answered serves others now.
    fn wait(&mut self, now: Time) {
        self.pause(now);
        self.fruitless = self.fruitless.min(WAITS_MAX);
    }

    fn pause(&mut self, now: Time) {
        let pause = PAUSE_MIN.saturating_mul(1 << self.fruitless.min(16)).min(PAUSE_MAX);
        self.fruitless += 1;
        self.next += 1;
        self.again = now + pause;
    }
}

#[cfg(test)]
mod tests;

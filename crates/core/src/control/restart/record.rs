//! The record of a member for a restart, the value of the agreement, and both as words.
use super::ballot::{RestartBallot, ballot, put_ballot, take_word};
use crate::control::card_words::bytes;
use crate::ids::{MemberId, Position, Process, ViewId};
use crate::limits::{MEMBERS_MAX, NAME_BYTES_MAX, SUBGROUPS_MAX};
use crate::membership::Ballot;
use crate::membership::proposal::encode_name;
use crate::view::View;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// A log whose member entered the subgroup when the subgroup existed already: the log lacks the
/// messages that were sent since its record before the epoch that began with this view, or all
/// messages before that epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogOrigin {
    /// The subgroup.
    pub name: String,
    /// The view with which the log begins.
    pub since: ViewId,
}

impl LogOrigin {
    /// Returns the origin of a log that lacks all messages since its last record: all others have pruned
    /// what comes next. It counts until the member enters a view.
    pub fn cut_off(name: String) -> LogOrigin {
        LogOrigin { name, since: ViewId(u64::MAX) }
    }

    /// Whether the log lacks all messages since its last record, and no other log has those.
    pub fn is_cut_off(&self) -> bool {
        self.since == ViewId(u64::MAX)
    }
}

/// The contents of one log of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogState {
    /// The subgroup.
    pub name: String,
    /// The last record; `None` if there is no record.
    pub last: Option<Position>,
    /// The clock of the last record, or 0.
    pub clock: u64,
}

/// The longest log of a subgroup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LongestLog {
    /// Its contents.
    pub state: LogState,
    /// The processes that have it, by ascending id.
    pub holders: Vec<Process>,
}

/// A view that follows the last one: the group continues with it after a restart, or a member accepted it
/// while the group ran.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestartView {
    /// The view.
    pub view: View,
    /// The hosts of its members, in its order; 0: unknown. Members with the same number share memory.
    pub hosts: Vec<u128>,
    /// Its processes, in its order. Empty if it was accepted while the group ran: no process begins it any
    /// more, and the next restart continues after it.
    pub members: Vec<Process>,
    /// The last record of each logged subgroup, which the logs of all its members have. Empty, too, if it
    /// was accepted while the group ran.
    pub logs: Vec<LogState>,
}

/// A member's record on disk. The record is written before any message reports it, and before the
/// view begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestartRecord {
    /// The newest view that this member knows to be decided.
    pub view: View,
    /// The hosts of its members, in its order; 0: unknown.
    pub hosts: Vec<u128>,
    /// True if the last process of this member may have said that it writes nothing more. Others may have
    /// counted it as dead.
    pub said_last: bool,
    /// The logs of this member that do not begin with the first message of their subgroups.
    pub origins: Vec<LogOrigin>,
    /// The highest promised ballot for the view after it.
    pub promised: RestartBallot,
    /// The newest accepted view after it.
    pub accepted: Option<(RestartBallot, RestartView)>,
}

/// The most origins of one log that a record keeps.
const ORIGINS_MAX: usize = 8;
/// The version of the encoding.
const FORMAT: u64 = 2;

impl RestartRecord {
    /// Returns the hosts of the members of a view, if none is known. A restart then waits for all members.
    pub fn unknown_hosts(view: &View) -> Vec<u128> {
        vec![0; view.members.len()]
    }

    /// Returns the record of a member `me` whose first view is `view`, on these hosts. `is_first` says that
    /// the group begins with this view.
    pub fn first(view: View, hosts: Vec<u128>, me: MemberId, is_first: bool) -> RestartRecord {
        let origin = |name: &String| LogOrigin { name: name.clone(), since: view.id };
        let origins = match is_first {
            true => Vec::new(),
            false => logged(&view, me).map(origin).collect(),
        };
        let (promised, accepted) = Default::default();
        RestartRecord { view, hosts, said_last: false, origins, promised, accepted }
    }

    /// True if fewer than all members of the view may be a restart quorum (`quorum.rs`). Only then have votes
    /// for the next view, and end notices, to be on disk. On one host all members know of each death, so that no
    /// member may be absent; and two voters are no majority without each other. Members without a vote may be
    /// absent anyway.
    pub fn has_smaller_quorums(&self) -> bool {
        let voters = self.view.ranks().filter(|rank| self.view.is_voter(*rank)).count();
        !self.view.nonvoters.is_empty()
            || voters > 2 && self.hosts.iter().any(|host| *host == 0 || *host != self.hosts[0])
    }

    /// Notes that this member has accepted `view` under a ballot of the agreement that ends its view.
    pub fn accept(&mut self, ballot: Ballot, view: View, hosts: Vec<u128>) {
        let (members, logs) = Default::default();
        let value = RestartView { view, hosts, members, logs };
        self.accepted = Some((RestartBallot::of_agreement(ballot), value));
    }

    /// Notes that `view` was decided after the view of this record. `me` is the member.
    pub fn learn(&mut self, view: View, hosts: Vec<u128>, me: MemberId) {
        // A member that stays learns of each view. If it has missed one, it was left out meanwhile.
        if !view.id.follows(self.view.id) {
            return self.enter(view, hosts, me);
        }
        let was_in: BTreeSet<&String> = logged(&self.view, me).collect();
        let existed: BTreeSet<&String> =
            self.view.subgroups.iter().filter(|spec| spec.is_logged()).map(|spec| &spec.name).collect();
        let is_new = |name: &&String| existed.contains(name) && !was_in.contains(name);
        let entered: Vec<String> = logged(&view, me).filter(is_new).cloned().collect();
        self.begin_logs(view, hosts, &entered);
    }

    /// Notes that this member enters `view` with a process that was in no view before. Its logs lack
    /// what was sent since its earlier process ended.
    pub fn enter(&mut self, view: View, hosts: Vec<u128>, me: MemberId) {
        let entered: Vec<String> = logged(&view, me).cloned().collect();
        self.begin_logs(view, hosts, &entered);
    }

    /// Takes over a decided view, with which these logs begin.
    fn begin_logs(&mut self, view: View, hosts: Vec<u128>, entered: &[String]) {
        for name in entered {
            self.note_origin(&LogOrigin { name: name.clone(), since: view.id });
        }
        let mut origins = self.origins.clone();
        // The log of a member that continues begins again behind its last record.
        origins.iter_mut().filter(|origin| origin.is_cut_off()).for_each(|origin| origin.since = view.id);
        // A subgroup that was dropped may begin again.
        origins.retain(|origin| view.subgroup(&origin.name).is_some());
        let (promised, accepted) = Default::default();
        *self = RestartRecord { view, hosts, said_last: self.said_last, origins, promised, accepted };
    }

    /// Notes that a log lacks messages.
    pub(super) fn note_origin(&mut self, origin: &LogOrigin) {
        if self.origins.contains(origin) {
            return;
        }
        self.origins.retain(|known| known.name != origin.name || !known.is_cut_off());
        // The oldest one says whether the log can become complete, and the newest one behind which it has
        // records since when it is.
        if self.origins.iter().filter(|known| known.name == origin.name).count() >= ORIGINS_MAX {
            let second = self.origins.iter().enumerate().filter(|(_, known)| known.name == origin.name).nth(1);
            let second = second.map(|(second, _)| second);
            second.map(|second| self.origins.remove(second));
        }
        self.origins.push(origin.clone());
    }

    /// Notes that a log has got all records after `last`, its last record before, from a complete log;
    /// `None` if it had none.
    pub fn caught_up(&mut self, name: &str, last: Option<Position>) {
        let last = last.map_or(ViewId(0), |last| last.epoch);
        self.origins.retain(|origin| origin.name != name || origin.since <= last);
    }

    /// Returns the view since which a log has all messages; `None`: it has all.
    pub fn complete_since(&self, name: &str) -> Option<ViewId> {
        self.origins_of(name).max()
    }

    /// Returns the view before which a log that ended with the record `last` may lack messages; `None`: it
    /// lacks none up to `last`. An origin after `last` is no gap: what the log lacks is behind its end.
    pub fn gap_before(&self, name: &str, last: Option<Position>) -> Option<ViewId> {
        let last = last.map_or(ViewId(0), |last| last.epoch);
        self.origins_of(name).filter(|since| *since <= last).max()
    }

    fn origins_of(&self, name: &str) -> impl Iterator<Item = ViewId> {
        self.origins.iter().filter(move |origin| origin.name == name).map(|origin| origin.since)
    }

    /// Returns the record as words.
    pub fn encode(&self) -> Vec<u64> {
        let mut out = vec![FORMAT];
        put_view(&mut out, &self.view);
        put_hosts(&mut out, &self.hosts);
        out.push(u64::from(self.said_last));
        put_origins(&mut out, &self.origins);
        put_ballot(&mut out, self.promised);
        put_accepted(&mut out, self.accepted.as_ref());
        out
    }

    /// Decodes a record; `None` if the words are none.
    pub fn decode(words: &[u64]) -> Option<RestartRecord> {
        let from = &mut &words[..];
        if take_word(from)? != FORMAT {
            return None;
        }
        let view = view(from)?;
        let (hosts, said_last) = (hosts(from, &view)?, flag(from)?);
        let (origins, promised, accepted) = (origins(from)?, ballot(from)?, accepted(from)?);
        let record = RestartRecord { view, hosts, said_last, origins, promised, accepted };
        from.is_empty().then_some(record)
    }
}

/// Returns the names of the logged subgroups of a member.
fn logged(view: &View, me: MemberId) -> impl Iterator<Item = &String> {
    let me = view.rank_of(me);
    let is_mine = move |members: &Vec<crate::ids::Rank>| me.is_some_and(|me| members.contains(&me));
    view.subgroups.iter().filter(move |spec| spec.is_logged() && is_mine(&spec.members)).map(|spec| &spec.name)
}

pub(super) fn put_view(out: &mut Vec<u64>, view: &View) {
    let words = view.encode();
    out.push(words.len() as u64);
    out.extend(words);
}

pub(super) fn view(from: &mut &[u64]) -> Option<View> {
    let count = usize::try_from(take_word(from)?).ok()?;
    let view = View::decode(from.split_off(..count)?)?;
    view.check().is_ok().then_some(view)
}

pub(super) fn put_hosts(out: &mut Vec<u64>, hosts: &[u128]) {
    out.extend(hosts.iter().flat_map(|host| [*host as u64, (*host >> 64) as u64]));
}

/// Reads the hosts of the members of a view.
pub(super) fn hosts(from: &mut &[u64], view: &View) -> Option<Vec<u128>> {
    view.members.iter().map(|_| host(from)).collect()
}

pub(super) fn host(from: &mut &[u64]) -> Option<u128> {
    Some(u128::from(take_word(from)?) | u128::from(take_word(from)?) << 64)
}

pub(super) fn flag(from: &mut &[u64]) -> Option<bool> {
    match take_word(from)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn name(from: &mut &[u64]) -> Option<String> {
    String::from_utf8(bytes(from, NAME_BYTES_MAX)?).ok()
}

fn count(from: &mut &[u64], most: usize) -> Option<usize> {
    usize::try_from(take_word(from)?).ok().filter(|count| *count <= most)
}

pub(super) fn put_origins(out: &mut Vec<u64>, origins: &[LogOrigin]) {
    out.push(origins.len() as u64);
    for LogOrigin { name, since } in origins {
        encode_name(name, out);
        out.push(since.0);
    }
}

pub(super) fn origins(from: &mut &[u64]) -> Option<Vec<LogOrigin>> {
    (0..count(from, ORIGINS_MAX * SUBGROUPS_MAX)?)
        .map(|_| Some(LogOrigin { name: name(from)?, since: ViewId(take_word(from)?) }))
        .collect()
}

pub(super) fn put_logs(out: &mut Vec<u64>, logs: &[LogState]) {
    out.push(logs.len() as u64);
    logs.iter().for_each(|log| put_log(out, log));
}

fn put_log(out: &mut Vec<u64>, LogState { name, last, clock }: &LogState) {
    encode_name(name, out);
    out.push(u64::from(last.is_some()));
    out.extend(last.iter().flat_map(|last| [last.epoch.0, last.sequence]));
    out.push(*clock);
}

pub(super) fn logs(from: &mut &[u64]) -> Option<Vec<LogState>> {
    (0..count(from, SUBGROUPS_MAX)?).map(|_| log(from)).collect()
}

fn log(from: &mut &[u64]) -> Option<LogState> {
    let name = name(from)?;
    let last = match take_word(from)? {
        0 => None,
        1 => Some(Position { epoch: ViewId(take_word(from)?), sequence: take_word(from)? }),
        _ => return None,
    };
    Some(LogState { name, last, clock: take_word(from)? })
}

pub(super) fn put_value(out: &mut Vec<u64>, value: &RestartView) {
    put_view(out, &value.view);
    put_hosts(out, &value.hosts);
    out.push(u64::from(!value.members.is_empty()));
    out.extend(value.members.iter().map(|process| u64::from(process.nonce)));
    put_logs(out, &value.logs);
}

pub(super) fn put_longest(out: &mut Vec<u64>, logs: &[LongestLog]) {
    out.push(logs.len() as u64);
    for LongestLog { state, holders } in logs {
        put_log(out, state);
        out.push(holders.len() as u64);
        holders.iter().for_each(|holder| put_process(out, *holder));
    }
}

pub(super) fn longest(from: &mut &[u64]) -> Option<Vec<LongestLog>> {
    let one = |from: &mut &[u64]| {
        let state = log(from)?;
        let holders = (0..count(from, MEMBERS_MAX)?).map(|_| process(from)).collect::<Option<_>>()?;
        Some(LongestLog { state, holders })
    };
    (0..count(from, SUBGROUPS_MAX)?).map(|_| one(from)).collect()
}

pub(super) fn put_process(out: &mut Vec<u64>, process: Process) {
    out.extend([process.id.0, u64::from(process.nonce)]);
}

pub(super) fn process(from: &mut &[u64]) -> Option<Process> {
    let id = MemberId(take_word(from)?);
    Some(Process { id, nonce: u32::try_from(take_word(from)?).ok()? })
}

pub(super) fn value(from: &mut &[u64]) -> Option<RestartView> {
    let view = view(from)?;
    debug_assert!(view.members.len() <= MEMBERS_MAX);
    let process =
        |id: &MemberId, from: &mut &[u64]| Some(Process { id: *id, nonce: u32::try_from(take_word(from)?).ok()? });
    let hosts = hosts(from, &view)?;
    let members = match flag(from)? {
        true => view.members.iter().map(|id| process(id, from)).collect::<Option<Vec<_>>>()?,
        false => Vec::new(),
    };
    Some(RestartView { view, hosts, members, logs: logs(from)? })
}

pub(super) fn put_accepted(out: &mut Vec<u64>, accepted: Option<&(RestartBallot, RestartView)>) {
    out.push(u64::from(accepted.is_some()));
    if let Some((ballot, value)) = accepted {
        put_ballot(out, *ballot);
        put_value(out, value);
    }
}

pub(super) fn accepted(from: &mut &[u64]) -> Option<Option<(RestartBallot, RestartView)>> {
    Some(match take_word(from)? {
        0 => None,
        1 => Some((ballot(from)?, value(from)?)),
        _ => return None,
    })
}

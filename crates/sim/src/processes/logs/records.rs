//! Records on their way from a member's log to a log that lacks them. The decisions are those of
//! [`CatchUp`]; the transport is a connection, as for a state.
use super::{LogLack, OlderRecords, ProcessLog};
use crate::processes::disks::{DiskRecord, sync_takes};
use crate::processes::network::PacketLoad;
use crate::processes::plan::{MS, S};
use crate::processes::process::{Near, ProcessPhase, SimProcess};
use crate::processes::views::NextView;
use crate::processes::world::{Broken, HostsWorld};
use spindle_core::control::{
    CatchUp, CatchUpAim, CatchUpEnd, ControlMessage, NoRecords, Purpose, RECORD_STREAMS_MAX, RecordBound, RecordOrder,
    RecordStreamEnd,
};
use spindle_core::{MemberId, Position, SubgroupId, Time, View, ViewId};
use std::rc::Rc;

/// The time without data after which a stream has broken.
const PATIENCE_NS: u64 = 5 * S;
/// The longest time between the halves of a stream.
const PAUSE_NS: u64 = 200 * MS;

/// A part of a stream of records. The last part has the end.
#[derive(Clone, Debug)]
pub(in crate::processes) struct RecordStream {
    records: Rc<[DiskRecord]>,
    end: Option<RecordStreamEnd>,
}

/// A stream that a source sends.
#[derive(Debug)]
pub(in crate::processes) struct RecordSending {
    to: MemberId,
    reply: u64,
    connection: Option<usize>,
    due: u64,
    parts: Vec<RecordStream>,
}

/// A stream that comes.
#[derive(Clone, Copy, Debug)]
pub(in crate::processes) struct RecordArrival {
    pub(in crate::processes) from: MemberId,
    pub(in crate::processes) reply: u64,
    pub(in crate::processes) connection: usize,
}

/// A stream that a log reads.
#[derive(Debug)]
pub(in crate::processes) struct RecordFetch {
    connection: usize,
    since: u64,
    first: Option<Position>,
    /// The time at which all that has come is on disk, and the end.
    ends: Option<(u64, RecordStreamEnd)>,
}

impl OlderRecords {
    pub(super) fn before(before: ViewId) -> OlderRecords {
        let (lacks_rest, has_skipped, catch_up, fetch, may_skip) = Default::default();
        OlderRecords { before, lacks_rest, has_skipped, catch_up, fetch, may_skip }
    }
}

impl HostsWorld<'_> {
    /// Sends records to a process that lacks them, or the reason why it gets none.
    pub(in crate::processes) fn send_records(&mut self, process: &mut SimProcess, order: &RecordOrder) {
        let parts = match process.record_sendings.len() < RECORD_STREAMS_MAX {
            true => self.records_for(process, order),
            false => Err(NoRecords::Busy),
        };
        let (to, reply, from) = (order.from, order.reply, process.me.id);
        let parts = match parts {
            Ok(parts) => parts,
            Err(why) => return process.roster.post(to, ControlMessage::NoRecords { from, reply, why }),
        };
        let mut sending = RecordSending { to, reply, connection: None, due: u64::MAX, parts };
        let far = process.roster.book().and_then(|book| book.far(to)).cloned();
        if let Some(address) = far {
            self.begin_attempt(process.number, address, Some(to), Purpose::Records { reply });
            sending.due = self.now + PATIENCE_NS;
        } else if let Some(learner) = self.control_socket_of(process, to) {
            let connection = self.connect_here(process, learner);
            let message = ControlMessage::Records { from, reply };
            let near =
                Near { message: message.encode().into(), attachment: [].into(), row: Some((connection, learner)) };
            process.outbox.push_back((to, near));
            (sending.connection, sending.due) = (Some(connection), self.now);
        }
        process.record_sendings.push(sending);
    }

    /// Uses an established connection for records.
    pub(in crate::processes) fn send_records_over(
        &mut self,
        process: &mut SimProcess,
        to: MemberId,
        reply: u64,
        connection: usize,
    ) {
        let now = self.now;
        match process.record_sendings.iter_mut().find(|sending| sending.to == to && sending.reply == reply) {
            Some(sending) => (sending.connection, sending.due) = (Some(connection), now),
            None => self.close_side(connection, process.number),
        }
    }

    /// Sends the next parts of streams. Returns the time of the next ones.
    pub(in crate::processes) fn send_record_parts(&mut self, process: &mut SimProcess) -> u64 {
        let mut sendings = std::mem::take(&mut process.record_sendings);
        for sending in &mut sendings {
            if sending.due > self.now {
                continue;
            }
            let Some(connection) = sending.connection else {
                // It was not reached.
                sending.parts.clear();
                continue;
            };
            if !sending.parts.is_empty() {
                let end = self.connections.get(connection).map(|found| found.end_of(process.number));
                let part = sending.parts.remove(0);
                if let Some(end) = end {
                    self.send_over(connection, end, PacketLoad::Records(part), false);
                }
                sending.due = self.now + self.random.range(MS / 10, PAUSE_NS);
            }
        }
        sendings.retain(|sending| !sending.parts.is_empty());
        process.record_sendings = sendings;
        process.record_sendings.iter().map(|sending| sending.due).min().unwrap_or(u64::MAX)
    }

    /// Returns the parts of the answer to a request.
    fn records_for(&self, process: &SimProcess, order: &RecordOrder) -> Result<Vec<RecordStream>, NoRecords> {
        let wanted = &order.wanted;
        let ProcessPhase::Member(member) = &process.phase else { return Err(NoRecords::NotMember) };
        let view = member.view();
        let found = view.subgroup(&wanted.subgroup).and_then(|id| member.home(id));
        let (Some((engine, there)), Some(log)) = (found, process.logs.get(&wanted.subgroup)) else {
            return Err(NoRecords::NotMember);
        };
        let epoch = engine.view().id;
        let disk = &self.places[process.place].log_disk;
        let none = Default::default();
        let on_disk = disk.logs.get(&wanted.subgroup).unwrap_or(&none);
        let durable = on_disk.on_disk();
        let begins = Position { epoch, sequence: 0 };
        let gap = match (log.is_lacking(), &disk.record) {
            (true, Some(record)) if self.broken != Broken::GapsServed => {
                record.gap_before(&wanted.subgroup, log.last_before)
            }
            (true, _) => None,
            (false, _) => self.complete_since(process.place, &wanted.subgroup),
        };
        if let Some(why) = wanted.refusal(gap) {
            return Err(why);
        }
        let (is_complete, is_settled) = if log.is_lacking() {
            if durable <= wanted.after {
                return Err(NoRecords::CatchingUp);
            }
            (false, false)
        } else {
            if log.cut.is_some() {
                return Err(NoRecords::CatchingUp);
            }
            let is_settled = engine.persisted(there).is_some() || self.broken == Broken::AnswersUnsettled;
            let is_complete = match wanted.bound {
                RecordBound::Before(view) => is_settled && view <= epoch,
                RecordBound::Through(last) => durable >= Some(last) || is_settled && last.epoch < epoch,
            };
            (is_complete, true)
        };
        let records = &on_disk.records[..on_disk.synced];
        let (oldest, floor) = (records.first().map(|record| record.position), on_disk.floor);
        let end = |end| Ok(vec![RecordStream { records: [].into(), end: Some(end) }]);
        let is_whole = is_settled && floor.is_none();
        let is_pruned = wanted.after.is_some_and(|after| oldest.unwrap_or(begins) > after) && !is_whole;
        if (is_pruned || (wanted.after < floor)) && !wanted.may_skip {
            return match oldest {
                None if !is_complete => end(RecordStreamEnd::NotYet),
                oldest => end(RecordStreamEnd::Refused(NoRecords::Pruned { oldest: oldest.unwrap_or(begins) })),
            };
        }
        if let Some(after) = wanted.after.filter(|_| !wanted.may_skip) {
            if durable < Some(after) {
                return end(match is_complete {
                    true => RecordStreamEnd::Refused(NoRecords::Lacks { last: durable }),
                    false => RecordStreamEnd::NotYet,
                });
            }
            if !on_disk.has_on_disk(after) && floor != Some(after) {
                let before = records.iter().map(|record| record.position).take_while(|at| *at < after).last();
                return end(match is_settled {
                    true => RecordStreamEnd::Refused(NoRecords::Lacks { last: before.or(floor) }),
                    false => RecordStreamEnd::NotYet,
                });
            }
        }
        let is_wanted = |record: &&DiskRecord| {
            (wanted.after.is_none_or(|after| record.position > after)
                || (wanted.may_skip && Some(record.position) == wanted.after))
                && wanted.bound.contains(record.position)
        };
        let found: Vec<DiskRecord> = records.iter().filter(is_wanted).copied().collect();
        let (first, rest) = found.split_at(found.len() / 2);
        let end = if is_complete { RecordStreamEnd::Complete } else { RecordStreamEnd::NotYet };
        Ok(vec![
            RecordStream { records: first.into(), end: None },
            RecordStream { records: rest.into(), end: Some(end) },
        ])
    }

    /// Takes a step towards the records that a log lacks. Returns the time of the next step.
    pub(super) fn catch_up(&mut self, process: &mut SimProcess, view: &View, id: SubgroupId) -> NextView {
        let (now, name) = (Time(self.now), &view.subgroups[id.index()].name);
        let Some(mut log) = process.logs.remove(name) else { return Ok(u64::MAX) };
        let done = match log.lack {
            LogLack::Older(_) => self.catch_up_log(process, (view, id), &mut log, now),
            _ => Ok(u64::MAX),
        };
        process.logs.insert(name.clone(), log);
        done
    }

    fn catch_up_log(
        &mut self,
        process: &mut SimProcess,
        (view, id): (&View, SubgroupId),
        log: &mut ProcessLog,
        now: Time,
    ) -> NextView {
        let spec = &view.subgroups[id.index()];
        let name = &spec.name;
        let LogLack::Older(older) = &mut log.lack else { return Ok(u64::MAX) };
        let at = self.places[process.place].log_disk.logs.entry(name.clone()).or_default().last();
        let bound = RecordBound::Before(older.before);
        let reply = (process.number as u64) << 44 | u64::from(id.0) << 32;
        let mut running = older.catch_up.take().unwrap_or_else(|| {
            Box::new(CatchUp::new(name.clone(), at, bound, CatchUpAim::All, (process.me.id.0, reply), now))
        });
        running.set_bound(bound, now);
        let sources = spec.members.iter().map(|rank| view.members[rank.index()]).filter(|id| *id != process.me.id);
        running.set_sources(sources.collect(), now);
        for RecordArrival { connection, .. } in
            process.record_arrivals.extract_if(.., |arrival| running.comes(arrival.from, arrival.reply))
        {
            older.fetch = Some(RecordFetch { connection, since: now.0, first: None, ends: None });
        }
        for (from, reply, why) in &process.no_records {
            running.refused(*from, *reply, *why, now);
        }
        self.read_records(process, name, older);
        let on_disk = self.places[process.place].log_disk.logs.entry(name.clone()).or_default();
        if let Some(RecordFetch { first, ends: Some((_, end)), connection, .. }) =
            older.fetch.take_if(|fetch| fetch.ends.is_some_and(|(at, _)| at <= now.0))
        {
            on_disk.synced = on_disk.records.len();
            let bytes = 16;
            running.ended(end, on_disk.last(), first, bytes, now);
            let last = on_disk.last();
            self.note(|| {
                format!("process {} has got records of {name} from {first:?} to {last:?}: {end:?}", process.number)
            });
            self.outcome.counts.record_streams += 1;
            self.close_side(connection, process.number);
        }
        let on_disk = self.places[process.place].log_disk.logs.entry(name.clone()).or_default();
        if let Some(last) = running.cut() {
            let from = last.map_or(Position { epoch: ViewId(0), sequence: 0 }, |last| Position {
                sequence: last.sequence + 1,
                ..last
            });
            on_disk.cut_from(from);
            log.last_before = on_disk.last();
            running.has_cut(on_disk.last(), now);
            self.outcome.counts.foreign += 1;
        }
        if let Some((source, reply, wanted)) = running.ask(now) {
            older.may_skip = wanted.may_skip;
            self.note(|| format!("process {} asks member {source} for records of {name}: {wanted:?}", process.number));
            let incarnation = process.roster.incarnation();
            process
                .roster
                .post(source, ControlMessage::WantRecords { incarnation, from: process.me.id, reply, wanted });
        }
        let wake_at = match &older.fetch {
            Some(RecordFetch { ends: Some((at, _)), .. }) => *at,
            Some(fetch) => fetch.since + PATIENCE_NS,
            None => (now + running.patience(now)).0.max(now.0 + MS),
        };
        let end = running.end();
        let is_early = self.broken == Broken::CaughtUpEarly && running.source().is_some();
        older.catch_up = Some(running);
        let Some(end) = end.or(is_early.then_some(CatchUpEnd::Complete { gap: None })) else { return Ok(wake_at) };
        if older.lacks_rest {
            return Ok(now.0 + 10 * MS);
        }
        let has_all = matches!(end, CatchUpEnd::Complete { gap: None });
        log.completeness = end.completeness();
        self.note(|| format!("process {} has caught up in {name}: {end:?}", process.number));
        if older.has_skipped && !has_all {
            process.disk_failed = true;
            return Ok(now.0);
        }
        if has_all && let Some(record) = &mut self.places[process.place].log_disk.record {
            record.caught_up(name, log.last_before);
        }
        if has_all {
            let (of, before) = (process.roster.incarnation(), older.before);
            let since = self.complete_since(process.place, name);
            let own = &self.places[process.place].log_disk.logs[name];
            if let Some(order) = self.orders.get(&(of, name.clone()))
                && !self.ledger.is_given_up(process.number)
            {
                order.check(process.number, own, since, before)?;
            }
        }
        self.outcome.counts.caught_up += u64::from(has_all);
        (log.lack, log.told) = (LogLack::Nothing, None);
        Ok(now.0)
    }

    /// Reads the stream of a log.
    fn read_records(&mut self, process: &mut SimProcess, name: &str, older: &mut OlderRecords) {
        let Some(fetch) = older.fetch.as_mut().filter(|fetch| fetch.ends.is_none()) else { return };
        let now = self.now;
        let disks = self.scene.logs.expect("there are logs");
        let mut is_broken = now >= fetch.since + PATIENCE_NS;
        while fetch.ends.is_none() && !is_broken {
            let Some(connection) = self.connections.get_mut(fetch.connection) else {
                is_broken = true;
                break;
            };
            let end = connection.end_of(process.number);
            is_broken = !connection.ends[end].is_open;
            if is_broken || connection.ends[1 - end].out.front().is_none_or(|packet| packet.due > now) {
                break;
            }
            fetch.since = now;
            let RecordStream { records, end } =
                match connection.ends[1 - end].out.pop_front().expect("it is there").load {
                    PacketLoad::Records(part) => part,
                    PacketLoad::Reset => {
                        is_broken = true;
                        break;
                    }
                    _ => continue,
                };
            let on_disk = self.places[process.place].log_disk.logs.entry(name.into()).or_default();
            let mut records = &records[..];
            if let Some(last) = records.last().filter(|_| older.may_skip && fetch.first.is_none()) {
                // The log continues behind these.
                on_disk.reset(last.position);
                (fetch.first, records) = (Some(last.position), &[]);
            }
            fetch.first = fetch.first.or(records.first().map(|record| record.position));
            // A source that catches up itself may send records that it has to cut: they are checked once
            // this log is whole.
            self.outcome.counts.fetched_records += records.len() as u64;
            on_disk.records.extend(records);
            if let Some(end) = end {
                let full_until = self.places[process.place].log_disk.full_until;
                let at = now.max(full_until) + sync_takes(&disks, (process.place, self.is_calm), &mut self.random);
                fetch.ends = Some((at, end));
            }
        }
        if is_broken && fetch.ends.is_none() {
            fetch.ends = Some((now, RecordStreamEnd::Broken));
        }
    }
}

//! Checks whether the members' records can be true of one group. It checks the invariants of the
//! simulator's checkers, by the same numbers and names, for processes that are killed, are
//! replaced, and are read with a delay.
//!
//! The simulator's own checkers need a ledger of the real events, with ranks of one view. Here only
//! the members' records are known, one by one, each in its own time. The first member that is read
//! makes the list, and the others are compared with it. Memory is bounded by how far the members'
//! logs are apart.
mod messages;

use super::record::{End, Kind, NO_SUBGROUP, Record};
use spindle_log::Version;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;

/// The subgroups with a total order. In the others only each sender's own order counts.
const TOTAL: [u8; 2] = [0, 1];
/// Number of all subgroups.
const SUBGROUPS: usize = 4;

/// An invariant that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Breach {
    pub(super) number: u8,
    pub(super) name: &'static str,
    pub(super) what: String,
}

/// The records of one process.
#[derive(Debug, Default)]
pub(super) struct Witness {
    era: Option<usize>,
    pub(super) id: Option<u64>,
    /// The newest view of its engine.
    pub(super) view: u64,
    /// A view whose members are being read: their number, and those read so far.
    reading: Option<(u64, u64, Vec<u64>)>,
    /// Nonvoters of its newest view, or of the view that is being read.
    nonvoters: BTreeSet<u64>,
    streams: [StreamPosition; SUBGROUPS],
    /// The number of the next message, by the sender's instance, subgroup and thread.
    next: HashMap<LaneKey, u64>,
    pub(super) end: Option<End>,
    /// True if it was asked to send all its messages, and to leave then.
    retires: bool,
    /// True if all its records were read.
    gone: bool,
    pub(super) text: Vec<u8>,
    pub(super) delivered: u64,
}

type LaneKey = (u32, u8, u8);
/// A state, and the process that reported it.
type ReportedState = ((u64, u64), u32);

#[derive(Clone, Copy, Debug, Default)]
struct StreamPosition {
    view: u64,
    place: u64,
    time: u64,
}

/// The messages of one lane, as the sender and its receivers report them.
#[derive(Clone, Copy, Debug, Default)]
struct LaneRecord {
    reserved: u64,
    accepted: u64,
    /// One more than the highest number that a member delivered.
    heard: u64,
}

/// One incarnation of the group.
#[derive(Debug)]
struct GroupEra {
    incarnation: (u64, u64),
    views: BTreeMap<u64, Vec<u64>>,
    /// Time at which its first view began at any member, as far as records were read.
    began: u64,
}

/// The order of a subgroup in a view.
#[derive(Debug, Default)]
struct List {
    /// Number of entries dropped at the front, which all members have passed.
    base: u64,
    entries: VecDeque<u64>,
    /// The number of all entries, and the process that reported it.
    ended: Option<(u64, u32)>,
    /// The process that delivered farthest.
    farthest: u32,
}

/// A message that a process called durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Acknowledged {
    pub(super) instance: u32,
    pub(super) version: Version,
}

/// A kill, and the survivors that have not delivered a message in a later view yet.
#[derive(Debug)]
struct KillGap {
    killed_at: u64,
    view: u64,
    waiting: BTreeSet<u32>,
    alone: bool,
}

/// The time after the end of a disturbance, until all members that should continue have delivered a
/// message in a total order.
#[derive(Debug)]
struct Recovery {
    since: u64,
    /// Number of members that should deliver a message.
    of: usize,
    waiting: BTreeSet<u32>,
    /// The times, in ns, after which members delivered.
    delivered: Vec<u64>,
    /// True if the machine stood still meanwhile. The length of the recovery then means nothing.
    blurred: bool,
}

/// The checker of one round.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// True if no process may ever find another group.
    one_group: bool,
    pub(super) witnesses: BTreeMap<u32, Witness>,
    eras: Vec<GroupEra>,
    lists: BTreeMap<(usize, u64, u8), List>,
    /// The application's state of a subgroup at the start of a view, and the process that reported
    /// it first.
    states: BTreeMap<(usize, u64, u8), ReportedState>,
    sent: HashMap<LaneKey, LaneRecord>,
    pub(super) acknowledged: Vec<Acknowledged>,
    gaps: Vec<KillGap>,
    recovery: Option<Recovery>,
    /// Views that were not known before, for the history.
    news: Vec<(u32, u64, Vec<u64>)>,
    /// Times from ends of disturbances until more than half of the members have delivered a
    /// message, and until the last one has, in ns.
    pub(super) recovered: Vec<[u64; 2]>,
    /// Times from kills to the next delivery at each survivor, in ns, and whether no other event
    /// happened meanwhile.
    pub(super) measured: Vec<(u64, bool)>,
}

/// The result of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Sums {
    pub(super) views: u64,
    pub(super) eras: u64,
    pub(super) accepted: u64,
    pub(super) deliveries: u64,
    /// Messages that members accepted after a request to leave, and that no member delivered.
    pub(super) lost_by_leavers: u64,
    /// Messages that their senders called durable.
    pub(super) durable: u64,
}

pub(super) fn breach<T>(number: u8, name: &'static str, what: String) -> Result<T, Breach> {
    Err(Breach { number, name, what })
}

/// Returns true if `view` may follow `old`. The upper half of the number is an era. A recovery
/// raises the upper half of the era by one.
fn follows(view: u64, old: u64) -> bool {
    let is_recovered = view >> 48 == (old >> 48) + 1;
    view as u32 == (old as u32).wrapping_add(1) && (view >> 32 == old >> 32 || is_recovered)
}

impl Judge {
    /// Returns a checker. With `one_group`, a second group of the processes is a breach.
    pub(super) fn new(one_group: bool) -> Judge {
        Judge { one_group, ..Judge::default() }
    }

    pub(super) fn started(&mut self, instance: u32) {
        self.witnesses.insert(instance, Witness::default());
    }

    /// Records that `instance` was asked to send all its messages, and to leave then.
    pub(super) fn retires(&mut self, instance: u32) {
        self.witness(instance).retires = true;
    }

    /// Records that `victim`'s log was read to its end. `survivors` should deliver a message
    /// without it.
    pub(super) fn killed(&mut self, victim: u32, killed_at: u64, survivors: BTreeSet<u32>, alone: bool) {
        let view = self.witnesses[&victim].view;
        if view > 0 {
            self.gaps.push(KillGap { killed_at, view, waiting: survivors, alone });
        }
    }

    /// Records that another event happened, or will happen. The kills without a delivery so far no
    /// longer count as alone.
    pub(super) fn disturbed(&mut self) {
        self.gaps.iter_mut().for_each(|gap| gap.alone = false);
    }

    /// Records that a disturbance is over by `since`. Each of `whom` should deliver a message from
    /// now on.
    pub(super) fn recovers(&mut self, since: u64, whom: BTreeSet<u32>) {
        self.recovery = Some(Recovery { since, of: whom.len(), waiting: whom, delivered: vec![], blurred: false });
    }

    /// Records that a new disturbance has begun. Its end counts instead of the previous one.
    pub(super) fn upset(&mut self) {
        self.recovery = None;
    }

    /// Records that the machine stood still until `until`. The time of members that have not
    /// delivered yet is counted from then on.
    pub(super) fn blurs(&mut self, until: u64) {
        if let Some(recovery) = &mut self.recovery {
            (recovery.since, recovery.blurred) = (until, true);
        }
    }

    /// Records that `victim` was killed. The time of the others is counted from then on.
    pub(super) fn lost(&mut self, victim: u32, killed_at: u64) {
        if let Some(recovery) = &mut self.recovery {
            recovery.waiting.remove(&victim);
            recovery.since = recovery.since.max(killed_at);
        }
    }

    /// Records that all of `lost`, which were killed, are given up. The others continue by
    /// themselves, even if the lost members have ended the view among themselves. No other member
    /// may have followed the lost members out of it.
    pub(super) fn given_up(&mut self, lost: &[u32]) {
        // The others deliver nothing until the operator has given the order.
        self.gaps.clear();
        let living: Vec<&Witness> = self.witnesses.values().filter(|witness| !witness.gone).collect();
        for ((era, view, subgroup), list) in &mut self.lists {
            let has_passed =
                |witness: &&Witness| witness.era == Some(*era) && witness.streams[usize::from(*subgroup)].view > *view;
            list.ended = list.ended.filter(|(_, by)| !lost.contains(by) || living.iter().any(has_passed));
        }
    }

    /// Returns the processes that have not delivered a message since the last disturbance, if that
    /// was over more than `within` ns ago.
    pub(super) fn overdue(&self, now: u64, within: u64) -> Option<String> {
        let recovery = self.recovery.as_ref().filter(|recovery| now.saturating_sub(recovery.since) > within)?;
        let waiting: Vec<String> = recovery.waiting.iter().map(u32::to_string).collect();
        Some(waiting.join(", "))
    }

    /// Describes the views that were reported since the last call.
    pub(super) fn take_news(&mut self) -> Vec<String> {
        let news = std::mem::take(&mut self.news);
        let named = |id: &u64| {
            let is_it = |(_, witness): &(&u32, &Witness)| witness.id == Some(*id);
            let instance = self.witnesses.iter().rfind(is_it).map(|(instance, _)| instance.to_string());
            instance.unwrap_or_else(|| "a newcomer".to_owned())
        };
        let told = |(by, view, members): (u32, u64, Vec<u64>)| {
            let members: Vec<String> = members.iter().map(named).collect();
            format!("view {view} of processes {}, at {by}", members.join(", "))
        };
        news.into_iter().map(told).collect()
    }

    pub(super) fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    fn recovered_at(&mut self, instance: u32, time: u64) {
        let Some(recovery) = &mut self.recovery else { return };
        if time > recovery.since && recovery.waiting.remove(&instance) {
            recovery.delivered.push(time - recovery.since);
        }
        self.end_recovery();
    }

    fn end_recovery(&mut self) {
        let Some(mut recovery) = self.recovery.take_if(|recovery| recovery.waiting.is_empty()) else { return };
        recovery.delivered.sort_unstable();
        // If other members were evicted or have ended, the remaining ones may be fewer than half.
        let last = recovery.delivered.last().copied().filter(|_| !recovery.blurred);
        let majority = recovery.delivered.get(recovery.of / 2).copied();
        self.recovered.extend(last.map(|last| [majority.unwrap_or(last), last]));
    }

    /// Checks a `record` of `instance`.
    pub(super) fn record(&mut self, instance: u32, record: &Record) -> Result<(), Breach> {
        let subgroup = record.subgroup;
        if subgroup != NO_SUBGROUP && usize::from(subgroup) >= SUBGROUPS {
            return breach(2, "no invention", format!("process {instance} speaks of subgroup {subgroup}"));
        }
        match record.kind {
            Kind::Start => Ok(()),
            Kind::Joined => self.joined(instance, record.a, (record.b, record.c)),
            Kind::View => {
                self.overlap(instance, record.c)?;
                let witness = self.witness(instance);
                (witness.reading, witness.nonvoters) = (Some((record.a, record.b, vec![])), BTreeSet::new());
                Ok(())
            }
            Kind::Member => {
                if record.b == 1 {
                    self.witness(instance).nonvoters.insert(record.c);
                }
                self.member(instance, record.c)
            }
            Kind::State => self.state(instance, subgroup, record.a, (record.b, record.c)),
            Kind::Stretch => self.stretch(instance, subgroup, record.a),
            Kind::Batch => self.batch(instance, subgroup, record.a),
            Kind::Deliver => self.delivered(instance, record),
            Kind::Garbage => breach(
                2,
                "no invention",
                format!(
                    "process {instance} was given bytes in subgroup {subgroup} that was not sent: view {}, round {}, sender's \
                     rank {}, process {}, word {:#x}",
                    self.witnesses[&instance].streams[usize::from(subgroup)].view,
                    record.a,
                    record.extra,
                    record.b >> 32,
                    record.c
                ),
            ),
            Kind::Reserve => {
                self.sent.entry((instance, subgroup, record.thread)).or_default().reserved = record.a;
                Ok(())
            }
            Kind::Sent => {
                self.sent.entry((instance, subgroup, record.thread)).or_default().accepted = record.a;
                Ok(())
            }
            Kind::End => self.ended(instance, record.a),
            Kind::Text => {
                let text = record.text();
                self.witness(instance).text.extend(text);
                Ok(())
            }
            Kind::Durable => {
                self.acknowledged.push(Acknowledged { instance, version: Version::new(record.a, record.b) });
                Ok(())
            }
        }
    }

    fn witness(&mut self, instance: u32) -> &mut Witness {
        self.witnesses.entry(instance).or_default()
    }

    fn joined(&mut self, instance: u32, id: u64, incarnation: (u64, u64)) -> Result<(), Breach> {
        let known = self.eras.iter().position(|era| era.incarnation == incarnation);
        if let (true, None, Some(first)) = (self.one_group, known, self.eras.first()) {
            let (first, second) = (first.incarnation.0, incarnation.0);
            let what = format!("process {instance} is a member of group {second:x}, and others are of group {first:x}");
            return breach(18, "one incarnation", what);
        }
        let era = known.unwrap_or_else(|| {
            self.eras.push(GroupEra { incarnation, views: BTreeMap::new(), began: u64::MAX });
            self.eras.len() - 1
        });
        let witness = self.witness(instance);
        (witness.era, witness.id) = (Some(era), Some(id));
        Ok(())
    }

    fn era_of(&self, instance: u32) -> Result<usize, Breach> {
        let era = self.witnesses.get(&instance).and_then(|witness| witness.era);
        era.map_or_else(|| breach(5, "one view sequence", format!("process {instance} is in no group")), Ok)
    }

    /// 6: no group continues after another one has begun.
    fn overlap(&mut self, instance: u32, time: u64) -> Result<(), Breach> {
        let era = self.era_of(instance)?;
        self.eras[era].began = self.eras[era].began.min(time);
        let later = self.eras.iter().enumerate().find(|(i, other)| *i > era && other.began < time);
        match later {
            Some((other, _)) => breach(
                6,
                "primary component",
                format!("process {instance} goes on in group {era} of this round after group {other} has begun"),
            ),
            None => Ok(()),
        }
    }

    fn member(&mut self, instance: u32, id: u64) -> Result<(), Breach> {
        let Some((view, count, members)) = &mut self.witness(instance).reading else { return Ok(()) };
        members.push(id);
        if members.len() as u64 == *count {
            let (view, members) = (*view, std::mem::take(members));
            self.witness(instance).reading = None;
            return self.installed(instance, view, members);
        }
        Ok(())
    }

    /// 5: the views form one chain.
    fn installed(&mut self, instance: u32, view: u64, members: Vec<u64>) -> Result<(), Breach> {
        const NAME: &str = "one view sequence";
        let era = self.era_of(instance)?;
        let witness = self.witness(instance);
        if witness.view > 0 && !follows(view, witness.view) {
            return breach(5, NAME, format!("process {instance} goes from view {} to view {view}", witness.view));
        }
        if !witness.id.is_some_and(|id| members.contains(&id)) {
            return breach(5, NAME, format!("process {instance} is in view {view} and not among {members:?}"));
        }
        witness.view = view;
        if !self.eras[era].views.contains_key(&view) {
            self.news.push((instance, view, members.clone()));
        }
        let known = self.eras[era].views.entry(view).or_insert_with(|| members.clone());
        if *known == members {
            return Ok(());
        }
        breach(5, NAME, format!("view {view} of process {instance} has members {members:?}, and elsewhere {known:?}"))
    }

    /// Records that `instance` is dead, and that its log was read to its end.
    pub(super) fn gone(&mut self, instance: u32) -> Result<(), Breach> {
        self.witness(instance).gone = true;
        for gap in &mut self.gaps {
            gap.waiting.remove(&instance);
        }
        if let Some(recovery) = &mut self.recovery {
            recovery.waiting.remove(&instance);
        }
        self.end_recovery();
        let invented = self.sent.iter().find(|((of, ..), sent)| *of == instance && sent.heard > sent.reserved);
        match invented {
            Some(((_, subgroup, thread), sent)) => breach(
                2,
                "no invention",
                format!(
                    "message {} of process {instance}, thread {thread}, was delivered in subgroup {subgroup}, and only {} could be sent",
                    sent.heard - 1,
                    sent.reserved
                ),
            ),
            None => Ok(()),
        }
    }

    /// Drops the entries that all members have passed.
    pub(super) fn trim(&mut self) {
        let living: Vec<&Witness> = self.witnesses.values().filter(|witness| !witness.gone).collect();
        for ((era, view, subgroup), list) in &mut self.lists {
            let place = |witness: &&Witness| match (witness.era, witness.streams[usize::from(*subgroup)]) {
                (Some(other), _) if other != *era => None,
                (_, stream) if stream.view > *view => None,
                (_, stream) if stream.view == *view => Some(stream.place),
                // The member may still reach this view.
                _ => Some(0),
            };
            let end = list.base + list.entries.len() as u64;
            let passed = living.iter().filter_map(place).min().unwrap_or(end).min(end);
            if passed > list.base {
                list.entries.drain(..(passed - list.base) as usize);
                list.base = passed;
            }
        }
    }

    /// 7: at the end, all members that stayed have delivered every message accepted by a member
    /// that stayed. A message that a member accepted before a request to leave was delivered by
    /// some member.
    pub(super) fn finish(&self) -> Result<Sums, Breach> {
        let stayed =
            |instance: &u32| self.witnesses.get(instance).is_some_and(|witness| witness.end == Some(End::Finished));
        let mut sums = Sums { eras: self.eras.len() as u64, ..Sums::default() };
        for (lane @ (sender, subgroup, thread), sent) in &self.sent {
            sums.accepted += sent.accepted;
            if self.witnesses.get(sender).is_some_and(|witness| witness.end == Some(End::Left)) {
                let lost = sent.accepted.saturating_sub(sent.heard);
                if lost > 0 && self.witnesses[sender].retires {
                    return breach(
                        7,
                        "validity",
                        format!(
                            "process {sender} left, and {lost} of the {} messages that it had sent before in subgroup {subgroup} by thread \
                             {thread} were delivered by no process",
                            sent.accepted
                        ),
                    );
                }
                sums.lost_by_leavers += lost;
            }
            if !stayed(sender) {
                continue;
            }
            for (instance, witness) in self.witnesses.iter().filter(|(instance, _)| stayed(instance)) {
                let got = witness.next.get(lane).copied().unwrap_or(0);
                if got != sent.accepted {
                    return breach(
                        7,
                        "validity",
                        format!(
                            "process {sender} sent {} messages in subgroup {subgroup} by thread {thread}, and process {instance}, \
                             which stayed to the end, delivered those before {got}",
                            sent.accepted
                        ),
                    );
                }
            }
        }
        sums.views = self.eras.iter().map(|era| era.views.len() as u64).sum();
        sums.durable = self.acknowledged.len() as u64;
        sums.deliveries = self.witnesses.values().map(|witness| witness.delivered).sum();
        Ok(sums)
    }

    /// Returns true if `instance` reports that it votes in its newest view.
    pub(super) fn votes(&self, instance: u32) -> bool {
        let id = |witness: &Witness| witness.id.is_some_and(|id| !witness.nonvoters.contains(&id));
        self.witnesses.get(&instance).is_some_and(id)
    }

    /// Returns the newest view that `instance` reports, and its members by rank.
    pub(super) fn view_of(&self, instance: u32) -> Option<(u64, &[u64])> {
        let witness = self.witnesses.get(&instance)?;
        let members = self.eras.get(witness.era?)?.views.get(&witness.view)?;
        Some((witness.view, members))
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {} ({}): {}", self.number, self.name, self.what)
    }
}

#[cfg(test)]
mod tests;

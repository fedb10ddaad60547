//! The trace of a story: what the processes did, as their rows, engines and drivers show it.
use super::super::ledger::MessageId;
use super::super::plan::MS;
use super::super::process::{ProcessPhase, SimProcess};
use super::super::world::HostsWorld;
use spindle_core::control::{BootstrapRecord, Need};
use spindle_core::wire::layout::membership;
use spindle_core::{MemberId, Rank, Rule, SubgroupSpec, View, ViewId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Deliveries with no longer pause between them share an entry.
const PAUSE_NS: u64 = 50 * MS;

/// An entry of the trace.
#[derive(Clone, PartialEq, Eq, Debug)]
struct TraceEntry {
    at: u64,
    /// The time of the last delivery of the entry.
    until: u64,
    process: usize,
    what: EntryKind,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum EntryKind {
    Text(String),
    /// Messages in the order of their delivery.
    Delivers {
        verb: &'static str,
        subgroup: Option<String>,
        messages: Vec<MessageId>,
    },
}

/// The state of a process after its last step, as far as the trace shows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Glimpse {
    view: Option<(u128, ViewId)>,
    need: Option<Need>,
    closing: bool,
    leaving: bool,
    suspected: u64,
    given_up: u64,
    promised: u64,
    accepted: u64,
    decided: bool,
    blocked: bool,
}

/// The recorder.
#[derive(Debug)]
pub(in super::super) struct Telling {
    /// The names of the places, and those of the processes by number.
    places: Vec<String>,
    names: Vec<String>,
    /// By id, the last process that had it.
    ids: BTreeMap<MemberId, usize>,
    glimpses: BTreeMap<usize, Glimpse>,
    /// The nulls that a process has announced, by subgroup and the view with which its epoch began.
    nulls: BTreeMap<(usize, String, ViewId), u64>,
    /// The nulls of this block, by process.
    new_nulls: BTreeMap<usize, u64>,
    blocks: u64,
    told_blocks: u64,
    delivered: BTreeMap<usize, Vec<MessageId>>,
    newest_view: u64,
    entries: Vec<TraceEntry>,
}

impl Telling {
    pub(in super::super) fn new(places: Vec<String>) -> Telling {
        let (names, ids, glimpses, nulls, new_nulls, delivered, entries) = Default::default();
        let (blocks, told_blocks, newest_view) = (0, 0, 0);
        Telling { places, names, ids, glimpses, nulls, new_nulls, blocks, told_blocks, delivered, newest_view, entries }
    }

    /// Records that a process starts.
    fn starts(&mut self, place: usize, id: MemberId) {
        let before = self.names.iter().filter(|name| name.trim_end_matches('\'') == self.places[place]).count();
        self.ids.insert(id, self.names.len());
        self.names.push(format!("{}{}", self.places[place], "'".repeat(before)));
    }

    fn add(&mut self, at: u64, process: usize, text: String) {
        self.entries.push(TraceEntry { at, until: at, process, what: EntryKind::Text(text) });
    }

    fn delivers(&mut self, at: u64, process: usize, verb: &'static str, subgroup: Option<String>, message: MessageId) {
        self.delivered.entry(process).or_default().push(message);
        let last = self.entries.iter_mut().rev().find(|entry| entry.process == process);
        if let Some(TraceEntry { what: EntryKind::Delivers { verb: known, subgroup: there, messages }, until, .. }) =
            last
            && (*known, &*there) == (verb, &subgroup)
            && at < *until + PAUSE_NS
        {
            *until = at;
            messages.push(message);
            return;
        }
        let what = EntryKind::Delivers { verb, subgroup, messages: vec![message] };
        self.entries.push(TraceEntry { at, until: at, process, what });
    }

    fn message(&self, (sender, number): MessageId) -> String {
        format!("{}{number}", self.names[sender as usize])
    }

    /// Returns the messages, with runs of one sender shortened.
    fn messages(&self, all: &[MessageId]) -> String {
        let mut runs: Vec<(MessageId, MessageId)> = vec![];
        for message in all {
            match runs.last_mut().filter(|(_, last)| *message == (last.0, last.1 + 1)) {
                Some((_, last)) => *last = *message,
                None => runs.push((*message, *message)),
            }
        }
        let run = |(first, last): &(MessageId, MessageId)| match first == last {
            true => self.message(*first),
            false => format!("{}..{}", self.message(*first), last.1),
        };
        runs.iter().map(run).collect::<Vec<_>>().join(" ")
    }

    fn text(&self, what: &EntryKind) -> String {
        match what {
            EntryKind::Text(text) => text.clone(),
            EntryKind::Delivers { verb, subgroup: None, messages } => format!("{verb} {}", self.messages(messages)),
            EntryKind::Delivers { verb, subgroup: Some(name), messages } => {
                format!("{verb} in {name}: {}", self.messages(messages))
            }
        }
    }

    /// Returns true if this block has an entry of the process that begins so.
    pub(super) fn has(&self, process: &str, text: &str) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| self.names[entry.process] == process && self.text(&entry.what).starts_with(text))
    }

    /// Forgets all entries of this block but the begins of views.
    pub(super) fn keep_views(&mut self) {
        self.entries.retain(|entry| matches!(&entry.what, EntryKind::Text(text) if text.starts_with("begins view")));
    }

    pub(super) fn newest_view(&self) -> u64 {
        self.newest_view
    }

    /// Returns the messages that the process of this name has delivered.
    pub(super) fn delivered_by(&self, name: &str) -> Vec<String> {
        let process = self.names.iter().rposition(|known| known == name);
        let messages = process.and_then(|process| self.delivered.get(&process));
        messages.into_iter().flatten().map(|message| self.message(*message)).collect()
    }

    /// Returns the processes that have delivered a message.
    pub(super) fn who_delivered(&self, message: &str) -> Vec<String> {
        let has = |(_, all): &(&usize, &Vec<MessageId>)| all.iter().any(|sent| self.message(*sent) == message);
        self.delivered.iter().filter(has).map(|(process, _)| self.names[*process].clone()).collect()
    }

    /// Returns the trace since the last call: a line for each entry. Equal entries of several
    /// processes within a millisecond share a line, and so do equal deliveries, and begins of a
    /// view, within ten.
    pub(super) fn take(&mut self) -> String {
        let mut lines: Vec<(u64, BTreeSet<usize>, String)> = vec![];
        for TraceEntry { at, process, what, .. } in std::mem::take(&mut self.entries) {
            let text = self.text(&what);
            let is_loose = matches!(what, EntryKind::Delivers { .. }) || text.starts_with("begins view");
            let last_own = lines.iter().rposition(|(_, processes, _)| processes.contains(&process));
            let near = |(before, _, known): &(u64, BTreeSet<usize>, String)| {
                *known == text && if is_loose { at - before < 10 * MS } else { at / MS == before / MS }
            };
            let from = last_own.map_or(0, |at| at + 1);
            match lines[from..].iter_mut().find(|line| near(line)) {
                Some((_, processes, _)) => drop(processes.insert(process)),
                None => lines.push((at, BTreeSet::from([process]), text)),
            }
        }
        let mut trace = String::new();
        for (at, processes, text) in lines {
            let names: Vec<&str> = processes.iter().map(|process| self.names[*process].as_str()).collect();
            let _ = writeln!(trace, "{:>6} ms  {}: {text}", at / MS, names.join(" "));
        }
        let nulls = std::mem::take(&mut self.new_nulls);
        let nulls: Vec<String> =
            nulls.iter().map(|(process, count)| format!("{} {count}", self.names[*process])).collect();
        if !nulls.is_empty() {
            let _ = writeln!(trace, "           nulls: {}", nulls.join(", "));
        }
        let blocks = self.blocks - std::mem::replace(&mut self.told_blocks, self.blocks);
        if blocks > 0 {
            let _ = writeln!(trace, "           blocks of large messages between hosts: {blocks}");
        }
        trace
    }
}

impl HostsWorld<'_> {
    /// Records an event of a process in the trace of a story.
    pub(in super::super) fn tell(&mut self, process: usize, text: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(telling) = &mut self.telling {
            telling.add(now, process, text());
        }
    }

    /// Records that a process starts.
    pub(in super::super) fn tell_start(&mut self, process: usize, place: usize, id: MemberId) {
        let now = self.now;
        if let Some(telling) = &mut self.telling {
            telling.starts(place, id);
            let role = if self.scene.places[place].is_observer { " as an observer" } else { "" };
            telling.add(now, process, format!("starts{role}"));
        }
    }

    /// Records a delivery, or what an observer receives.
    pub(in super::super) fn tell_message(
        &mut self,
        process: usize,
        verb: &'static str,
        view: &View,
        subgroup: u32,
        message: MessageId,
    ) {
        let now = self.now;
        if let Some(telling) = &mut self.telling {
            let name = (view.subgroups.len() > 1).then(|| view.subgroups[subgroup as usize].name.clone());
            telling.delivers(now, process, verb, name, message);
        }
    }

    /// Records the vote of a seed that is about to be written to its disk.
    pub(in super::super) fn tell_vote(&mut self, process: usize, place: usize, record: &BootstrapRecord) {
        let old = &self.places[place].disk;
        let Some((ballot, group)) = record.accepted.as_ref().filter(|new| Some(*new) != old.accepted.as_ref()) else {
            return;
        };
        let ids = group.members.iter().map(|member| self.name_of(0, ViewId(0), member.id));
        let names: Vec<String> = ids.collect();
        let Some(telling) = &self.telling else { return };
        // The seeds are the first places.
        let seed = &telling.places[ballot.seed as usize];
        let text = format!("votes for a group of {} (round {} of {seed})", names.join(" "), ballot.round);
        self.tell(process, || text);
    }

    /// Returns the name of a member.
    pub(in super::super) fn name_of(&self, of: u128, view: ViewId, id: MemberId) -> String {
        let Some(telling) = &self.telling else { return id.to_string() };
        let known = self.ledger.process_of((of, view.0), id).or_else(|| telling.ids.get(&id).copied());
        known.map_or_else(|| id.to_string(), |process| telling.names[process].clone())
    }

    pub(super) fn member_names(&self, of: u128, view: &View) -> Vec<String> {
        view.members.iter().map(|id| self.name_of(of, view.id, *id)).collect()
    }

    /// Records the changes of a process's state in its last step.
    pub(in super::super) fn look(&mut self, number: usize) {
        if self.telling.is_none() {
            return;
        }
        if let Some(process) = self.processes[number].take() {
            self.look_at(&process);
            self.processes[number] = Some(process);
        }
    }

    /// Records the changes of a process's state since it was last looked at.
    pub(in super::super) fn look_at(&mut self, process: &SimProcess) {
        let number = process.number;
        let Some(telling) = &self.telling else { return };
        let before = telling.glimpses.get(&number).cloned().unwrap_or_default();
        let (glimpse, texts) = self.compare(process, before);
        let nulls = nulls_of(process);
        let (now, blocks) = (self.now, self.outcome.counts.blocks);
        let telling = self.telling.as_mut().expect("a story");
        telling.blocks = blocks;
        telling.newest_view = telling.newest_view.max(glimpse.view.map_or(0, |(_, view)| view.count()));
        telling.glimpses.insert(number, glimpse);
        texts.into_iter().for_each(|text| telling.add(now, number, text));
        for (name, view, count) in nulls {
            let known = telling.nulls.entry((number, name, view)).or_default();
            if count > *known {
                *telling.new_nulls.entry(number).or_default() += count - *known;
                *known = count;
            }
        }
    }

    /// Returns the state of a process, and how it differs from the one before.
    fn compare(&self, process: &SimProcess, before: Glimpse) -> (Glimpse, Vec<String>) {
        let mut texts = vec![];
        let (ProcessPhase::Member(member), Some(table)) = (&process.phase, &process.table) else {
            let need = process.waits.as_ref().map(|waits| waits.need);
            let need = need.filter(|_| matches!(process.phase, ProcessPhase::Seeks(_)));
            if let Some(need) = need.as_ref().filter(|need| before.need.as_ref() != Some(need)) {
                texts.push(format!("waits for {}", awaited(need)));
            }
            return (Glimpse { need, ..Glimpse::default() }, texts);
        };
        let (of, view, engine) = (process.roster.incarnation(), &table.view, member.engine());
        let row = self.store.row(table.places.rows[table.places.me.index()].expect("its own"));
        let count = view.members.len();
        let word = |at| row.word(at);
        let now = Glimpse {
            view: Some((of, view.id)),
            need: None,
            closing: word(membership::CLOSING) > 0,
            leaving: word(membership::LEAVING) > 0,
            suspected: word(membership::SUSPECTED),
            given_up: word(membership::given_up(count)),
            promised: word(membership::PROMISED) & !1,
            accepted: word(membership::ACCEPTED),
            decided: engine.decision().is_some(),
            blocked: engine.is_blocked(),
        };
        let is_new = before.view != now.view;
        let before = if is_new { Glimpse::default() } else { before };
        let name = |rank: usize| self.name_of(of, view.id, view.members[rank]);
        let of_bits =
            |bits: u64| (0..count).filter(|rank| bits >> rank & 1 == 1).map(name).collect::<Vec<_>>().join(" ");
        if is_new {
            texts.push(format!("begins {}", self.describe(of, view)));
        }
        let changes = [
            (now.suspected & !before.suspected, "suspects"),
            (before.suspected & !now.suspected, "suspects no more"),
            (now.given_up & !before.given_up, "gives up"),
        ];
        let changes = changes.into_iter().filter(|(bits, _)| *bits != 0);
        texts.extend(changes.map(|(bits, verb)| format!("{verb} {}", of_bits(bits))));
        if now.leaving && !before.leaving {
            texts.push("asks to leave".into());
        }
        if now.closing && !before.closing {
            texts.push(format!("closes view {}", view_number(view.id)));
        }
        let ballot = |word: u64| {
            let leader = (word as u32 as usize >> 1).wrapping_sub(1);
            (leader, format!("ballot {} of {}", word >> 32, if leader < count { name(leader) } else { "?".into() }))
        };
        let me = table.places.me.index();
        let mut promise = None;
        if now.promised != before.promised && now.promised != 0 {
            let (leader, ballot) = ballot(now.promised);
            let verb = if leader == me { "takes" } else { "promises" };
            let mut cuts = vec![];
            for (id, spec) in view.subgroups_of(table.places.me) {
                let Some(at) = engine.layout().row(table.places.me).cut(id) else { continue };
                let rounds: Vec<u64> = (0..spec.senders.len() as u64).map(|sender| word(at + 8 * sender)).collect();
                cuts.extend(self.rounds(of, view, spec, &rounds));
            }
            let cuts = if cuts.is_empty() { String::new() } else { format!(", has the rounds {}", cuts.join("; ")) };
            promise = Some(format!("{verb} {ballot}{cuts}"));
        }
        if now.accepted != before.accepted && now.accepted != 0 {
            let (leader, ballot) = ballot(now.accepted & !1);
            let slots = &engine.layout().row(table.places.me).proposals;
            // checksum | count | ballot | view id | members: count, ids ...
            let slot = slots.start + (now.accepted & 1) * (slots.end - slots.start) / 2;
            let ids = (0..word(slot + 32).min(64)).map(|at| MemberId(word(slot + 40 + 8 * at)));
            let names: Vec<String> = ids.map(|id| self.name_of(of, view.id, id)).collect();
            let (verb, next) =
                (if leader == me { "proposes" } else { "accepts" }, view_number(ViewId(word(slot + 24))));
            let acceptance = format!("{verb} view {next}: {} ({ballot})", names.join(" "));
            // Both may be of one step. An acceptance is visible before a later promise.
            let is_earlier = now.accepted & !1 < now.promised;
            texts.extend(promise.take_if(|_| !is_earlier));
            texts.push(acceptance);
        }
        texts.extend(promise);
        if let Some(decision) = engine.decision().filter(|_| !before.decided) {
            let trims: Vec<String> = view
                .subgroups
                .iter()
                .zip(&decision.trims)
                .filter_map(|(spec, trims)| self.rounds(of, view, spec, trims))
                .collect();
            let trims = if trims.is_empty() { "no trims".into() } else { format!("trims {}", trims.join("; ")) };
            texts.push(format!("knows the decision: {}, {trims}", self.describe(of, &decision.next)));
        }
        if now.blocked != before.blocked {
            texts.push(if now.blocked { "is blocked".into() } else { "is blocked no more".to_owned() });
        }
        (now, texts)
    }

    /// Returns the rounds of the senders of a subgroup, such as `a 3, b 2`; `None` if there are none.
    fn rounds(&self, of: u128, view: &View, spec: &SubgroupSpec, rounds: &[u64]) -> Option<String> {
        let name = |rank: &Rank| self.name_of(of, view.id, view.members[rank.index()]);
        let by_sender: Vec<String> =
            spec.senders.iter().zip(rounds).map(|(rank, rounds)| format!("{} {rounds}", name(rank))).collect();
        let subgroup = if view.subgroups.len() > 1 { format!("in {} ", spec.name) } else { String::new() };
        rounds.iter().any(|rounds| *rounds > 0).then(|| format!("{subgroup}{}", by_sender.join(", ")))
    }

    /// Returns the number of a view, its members, and the members of its shards.
    fn describe(&self, of: u128, view: &View) -> String {
        let names = self.member_names(of, view);
        let mut text = format!("view {}: {}", view_number(view.id), names.join(" "));
        let of_ranks =
            |ranks: &[Rank]| ranks.iter().map(|rank| names[rank.index()].as_str()).collect::<Vec<_>>().join(" ");
        if !view.nonvoters.is_empty() {
            let _ = write!(text, ", without a vote {}", of_ranks(&view.nonvoters));
        }
        for spec in &view.subgroups {
            if matches!(spec.member_rule, Rule::Shard { .. }) {
                let is_available = if spec.is_available() { "" } else { " (unavailable)" };
                let _ = write!(text, "; shard {}: {}{is_available}", spec.name, of_ranks(&spec.members));
            }
        }
        text
    }
}

/// Returns the number of a view as a story names it: with the count of recoveries, if there are any.
fn view_number(view: ViewId) -> String {
    let count = view.count();
    match view.era() {
        0 => count.to_string(),
        era => format!("{count} of era {}", era >> 16),
    }
}

fn awaited(need: &Need) -> String {
    match need {
        Need::SeedList => "the list of seeds".into(),
        Need::Seeds => "answers of more seeds".into(),
        Need::Members(count) => format!("{count} more processes"),
        Need::Votes => "the votes on the first view".into(),
        Need::Founder => "a seed that creates the group".into(),
        Need::Group(_) => "a member of its group".into(),
        Need::Admission(_) => "its admission".into(),
    }
}

/// Returns the nulls that a member has announced in each subgroup of its view.
fn nulls_of(process: &SimProcess) -> Vec<(String, ViewId, u64)> {
    let (ProcessPhase::Member(_), Some(table)) = (&process.phase, &process.table) else { return vec![] };
    let count = |(id, spec): (spindle_core::SubgroupId, &SubgroupSpec)| {
        let (engine, _, there) = process.home(id)?;
        Some((spec.name.clone(), engine.view().id, engine.subgroup_stats(there)?.nulls))
    };
    table.view.subgroups_of(table.places.me).filter_map(count).collect()
}

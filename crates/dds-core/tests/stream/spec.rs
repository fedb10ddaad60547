//! The events that the endpoints of a process have to get, computed of whole directories in place of their changes.
use crate::world::{Gone, Seen, Step, guid, process_of};
use spindle_dds_core::Guid;
use spindle_dds_core::cache::SetId;
use spindle_dds_core::directory::Directory;
use spindle_dds_core::stream::StreamMessage;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

/// The directories by version.
type Versions = BTreeMap<u64, Directory>;

/// A step that a driver has taken, with its place in the order of the domain.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named {
    Begin(usize),
    End(usize),
    Message(usize),
}

/// The part of an endpoint in a domain.
#[derive(Default)]
struct Endpoint {
    /// The writers that match, if it is a reader.
    writers: BTreeMap<Guid, (i32, bool)>,
    /// The readers that match, if it is a writer.
    readers: BTreeSet<Guid>,
    open: BTreeSet<SetId>,
    expected: Vec<(usize, Seen)>,
}

/// An order domain at a process.
#[derive(Default)]
struct Domain {
    taken: VecDeque<Named>,
    is_in: bool,
    members: Vec<u64>,
    /// The version with which the stream began, if there is one, and the newest one that has taken effect.
    since: Option<u64>,
    fenced: u64,
    endpoints: BTreeMap<Guid, Endpoint>,
    /// The versions that the process had, and that had taken effect, at each step that was not passed over.
    trace: BTreeMap<usize, (u64, u64)>,
}

/// The domains of a process.
pub(crate) struct Spec {
    member: u64,
    known: u64,
    domains: BTreeMap<u32, Domain>,
}

/// Returns whether the plan of a domain names a process.
fn names(directory: &Directory, domain: u32, member: u64) -> bool {
    directory.plan(domain).is_some_and(|plan| plan.members.contains(&member) || plan.observers.contains(&member))
}

/// Returns whether two endpoints match in a domain.
pub(crate) fn is_match(directory: &Directory, domain: u32, writer: Guid, reader: Guid) -> bool {
    let topic = directory.writer(writer).map(|own| own.description.topic.name.as_str());
    topic.and_then(|topic| directory.domain_of(topic)) == Some(domain)
        && directory.matches().any(|(own, other, _)| (own, other) == (writer, reader))
}

/// Returns the directories after a version, up to another one.
fn after(versions: &Versions, before: u64, last: u64) -> impl DoubleEndedIterator<Item = (u64, &Directory)> {
    let range = versions.range((Bound::Excluded(before), Bound::Included(last)));
    range.map(|(version, directory)| (*version, directory))
}

impl Spec {
    pub(crate) fn new(member: u64) -> Spec {
        Spec { member, known: 0, domains: BTreeMap::new() }
    }

    /// The directory of the process has the next version.
    pub(crate) fn note(&mut self, versions: &Versions, version: u64) {
        self.known = version;
        let directory = &versions[&version];
        for plan in directory.plans() {
            self.domains.entry(plan.domain).or_default();
        }
        for (domain, own) in &mut self.domains {
            let is_named = names(directory, *domain, self.member);
            if is_named && own.since.is_none() {
                (own.since, own.fenced) = (directory.domain_version(*domain), 0);
            } else if !is_named && !own.is_in {
                own.since = None;
            }
        }
    }

    /// The driver takes a step.
    pub(crate) fn take(&mut self, domain: u32, step: Named) {
        self.domains.entry(domain).or_default().taken.push_back(step);
    }

    pub(crate) fn is_waiting(&self, domain: u32) -> bool {
        self.domains.get(&domain).is_some_and(|own| !own.taken.is_empty())
    }

    /// Returns whether the process has a stream of a domain.
    pub(crate) fn has_stream(&self, domain: u32) -> bool {
        self.domains.get(&domain).is_some_and(|own| own.since.is_some())
    }

    /// Returns the events of an endpoint.
    pub(crate) fn expected(&self, endpoint: Guid, domain: u32) -> &[(usize, Seen)] {
        let own = self.domains.get(&domain).and_then(|own| own.endpoints.get(&endpoint));
        own.map_or(&[], |own| &own.expected)
    }

    /// Returns the version that the process had at a step, and the newest one that had taken effect after it.
    pub(crate) fn at(&self, domain: u32, place: usize) -> Option<(u64, u64)> {
        self.domains.get(&domain)?.trace.get(&place).copied()
    }

    /// Takes the steps that need no newer directory.
    pub(crate) fn advance(&mut self, versions: &Versions, domain: u32, steps: &[Step], endpoints: &[Guid]) {
        let Some(own) = self.domains.get_mut(&domain) else { return };
        for endpoint in endpoints {
            own.endpoints.entry(*endpoint).or_default();
        }
        while let Some(step) = own.taken.front() {
            match *step {
                Named::Begin(at) => {
                    let Step::Epoch { members, .. } = &steps[at] else { unreachable!() };
                    own.begin(at, members);
                }
                Named::End(at) => {
                    if !own.end(versions, domain, self.known, self.member, at) {
                        return;
                    }
                }
                Named::Message(at) => {
                    let Step::Message { bytes, .. } = &steps[at] else { unreachable!() };
                    let message = StreamMessage::decode(bytes).unwrap();
                    if matches!(message, StreamMessage::Fence(version) if version > self.known) {
                        return;
                    }
                    own.message(versions, domain, at, &message);
                    own.trace.insert(at, (self.known, own.fenced));
                }
            }
            own.taken.pop_front();
        }
    }
}

impl Domain {
    fn begin(&mut self, at: usize, members: &[u64]) {
        (self.is_in, self.members) = (true, members.to_vec());
        for own in self.endpoints.values_mut() {
            let gone = own.readers.extract_if(.., |reader| !members.contains(&(process_of(*reader) as u64)));
            own.expected.extend(gone.map(|reader| (at + 1, Seen::Publication(reader, false))));
        }
    }

    /// The process has left. It may have to wait for the plan that says so.
    fn end(&mut self, versions: &Versions, domain: u32, known: u64, member: u64, at: usize) -> bool {
        if let Some(since) = self.since {
            let is_named = names(&versions[&known], domain, member);
            let mut before = after(versions, since.max(self.fenced), known).rev();
            let left_out = before.find(|(_, directory)| !names(directory, domain, member)).map(|(version, _)| version);
            let is_in_again = self.taken.iter().any(|step| matches!(step, Named::Begin(_)));
            if is_named && left_out.is_none() && !is_in_again {
                return false;
            }
            let version = left_out.unwrap_or(self.fenced);
            self.members.clear();
            if version >= since {
                self.look(versions, domain, self.fenced, version, true, at);
            }
            self.fenced = version;
            for own in self.endpoints.values_mut() {
                let writers = std::mem::take(&mut own.writers).into_keys();
                own.expected.extend(writers.map(|writer| (at, Seen::Unmatched(writer, Gone::Unmatched))));
                let readers = std::mem::take(&mut own.readers).into_iter();
                own.expected.extend(readers.map(|reader| (at, Seen::Publication(reader, false))));
                let sets = std::mem::take(&mut own.open).into_iter();
                own.expected.extend(sets.map(|set| (at, Seen::SetAbandoned(set))));
            }
            if !is_named {
                self.since = None;
            }
        }
        self.is_in = false;
        true
    }

    fn message(&mut self, versions: &Versions, domain: u32, at: usize, message: &StreamMessage<'_>) {
        let Some(since) = self.since else { return };
        match message {
            StreamMessage::Fence(version) => {
                let (before, is_newest) = (self.fenced, *version >= self.fenced);
                self.fenced = before.max(*version);
                if self.fenced >= since {
                    self.look(versions, domain, before, self.fenced, is_newest, at);
                }
            }
            StreamMessage::Change(change) => {
                let directory = &versions[&self.fenced];
                let number = Some(change.writer);
                let own = directory.writers().find(|it| directory.writer_number(it.description.guid) == number);
                let Some(writer) = own else { return };
                let set = change.set.map(|number| SetId { source: writer.publisher, number });
                let writer = writer.description.guid;
                for own in self.endpoints.values_mut().filter(|own| own.writers.contains_key(&writer)) {
                    own.expected.push((at, Seen::Change(writer, change.payload.to_vec(), set)));
                    own.open.extend(set);
                }
            }
            StreamMessage::SetEnd { set, .. } => {
                let directory = &versions[&self.fenced];
                let is_of = |own: &Guid| directory.writer(*own).is_some_and(|it| it.publisher == set.source);
                for own in self.endpoints.values_mut() {
                    if own.open.remove(set) || own.writers.keys().any(is_of) {
                        own.expected.push((at, Seen::SetEnd(*set)));
                    }
                }
            }
            other => panic!("{other:?}"),
        }
    }

    /// The changes between two versions take effect. A match begins once both processes are members, and a writer
    /// hears of it at a fence of the newest version.
    fn look(&mut self, versions: &Versions, domain: u32, before: u64, last: u64, is_newest: bool, at: usize) {
        let directory = &versions[&last];
        let between = || after(versions, before, last).map(|(_, directory)| directory);
        let is_here = |own: Guid| self.members.contains(&(process_of(own) as u64));
        let has_source = |directory: &Directory, source: Guid| {
            let mut writers = directory.writers().filter(|own| own.publisher == source);
            writers.any(|own| directory.domain_of(&own.description.topic.name) == Some(domain))
        };
        for (endpoint, own) in &mut self.endpoints {
            let of_writer = |writer: Guid| between().find(|it| !is_match(it, domain, writer, *endpoint));
            let gone = own.writers.extract_if(.., |writer, _| of_writer(*writer).is_some());
            let gone: Vec<Guid> = gone.map(|(writer, _)| writer).collect();
            for writer in gone {
                let end = of_writer(writer).expect("it matches no more");
                let gone = match end.participant(guid(process_of(writer), 0)) {
                    None => Gone::Lost,
                    Some(_) if end.writer(writer).is_none() => Gone::Deleted,
                    Some(_) => Gone::Unmatched,
                };
                own.expected.push((at, Seen::Unmatched(writer, gone)));
            }
            let of_reader = |reader: Guid| between().any(|it| !is_match(it, domain, *endpoint, reader));
            let gone = own.readers.extract_if(.., |reader| of_reader(*reader));
            own.expected.extend(gone.map(|reader| (at, Seen::Publication(reader, false))));
            for (writer, reader, _) in directory.matches() {
                if !is_match(directory, domain, writer, reader) {
                    continue;
                }
                let entry = directory.writer(writer).expect("it matches");
                let state = (entry.description.qos.ownership_strength.value, entry.alive);
                if reader == *endpoint
                    && (own.writers.contains_key(&writer) || is_here(writer))
                    && own.writers.insert(writer, state) != Some(state)
                {
                    own.expected.push((at, Seen::Matched(writer, state)));
                }
                if writer == *endpoint && is_here(reader) && is_newest && own.readers.insert(reader) {
                    own.expected.push((at, Seen::Publication(reader, true)));
                }
            }
            // A set without a writer is given up.
            let is_lost = |set: &SetId| between().any(|it| !has_source(it, set.source));
            let lost: Vec<SetId> = own.open.extract_if(.., |set| is_lost(set)).collect();
            own.expected.extend(lost.into_iter().map(|set| (at, Seen::SetAbandoned(set))));
        }
    }
}

//! The streams of one process: which order domains it takes part in, and what waits for its directory.
use super::domain_stream::{Behind, DomainStream, StreamEvent};
use super::message::{MessageError, StreamMessage};
use crate::directory::{Applied, Directory, DirectoryEvent, DomainPlan};
use crate::id::{Guid, Position};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The streams of the order domains of one process.
///
/// A driver tells it of each command of the directory ([`ProcessStreams::note`]), and of the epochs and
/// messages of each subgroup, each in their order. A step that needs a newer directory waits, and those behind it
/// in its domain, too; a driver takes no more messages of a domain that is [blocked](ProcessStreams::is_blocked).
#[derive(Clone, Debug)]
pub struct ProcessStreams {
    member: u64,
    /// The version of the directory that was noted.
    known: u64,
    domains: BTreeMap<u32, Tracked>,
    /// The domains whose plans name the process.
    planned: BTreeSet<u32>,
    /// The domains that named it, and are no more. A view that was proposed before may still have them.
    gone: BTreeSet<u32>,
}

/// An order domain at this process.
#[derive(Clone, Debug, Default)]
struct Tracked {
    /// The stream; `None` while the directory of this process does not have the plan that names it.
    stream: Option<DomainStream>,
    /// The stream that follows it: a plan has left the process out, and another one names it again.
    following: Option<DomainStream>,
    /// The newest version by whose plan the process is out, since it was in.
    left_out: Option<u64>,
    /// The epoch of the subgroup that has begun here.
    epoch: Option<Epoch>,
    /// The steps that wait for the directory.
    waiting: VecDeque<Step>,
}

#[derive(Clone, Debug)]
struct Epoch {
    view: u64,
    members: Vec<u64>,
    senders: Vec<u64>,
    /// The messages that came in it.
    count: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Begin(Epoch),
    End,
    Message(Vec<u8>),
}

/// An event of an endpoint of this process, with its position.
#[derive(Clone, Debug)]
pub struct PlacedEvent<P> {
    /// The position in the order of the domain.
    pub position: Position,
    /// The event.
    pub event: StreamEvent<P>,
}

impl ProcessStreams {
    /// Makes the streams of a process that takes part in no order domain.
    pub fn new(member: u64) -> ProcessStreams {
        ProcessStreams { member, known: 0, domains: BTreeMap::new(), planned: BTreeSet::new(), gone: BTreeSet::new() }
    }

    /// Takes over the outcome of a command that the directory has applied.
    pub fn note(&mut self, directory: &Directory, applied: &Applied) {
        for tracked in self.domains.values_mut() {
            let streams = tracked.stream.iter_mut().chain(&mut tracked.following);
            streams.for_each(|stream| stream.note(directory, applied));
        }
        self.known = directory.version();
        let names_me =
            |plan: &&DomainPlan| plan.members.contains(&self.member) || plan.observers.contains(&self.member);
        let planned: BTreeSet<u32> = directory.plans().filter(names_me).map(|plan| plan.domain).collect();
        for domain in planned.difference(&self.planned) {
            let stream = DomainStream::new(*domain, self.member, directory);
            let tracked = self.domains.entry(*domain).or_default();
            if tracked.stream.is_some() {
                tracked.following = Some(stream);
            } else {
                tracked.stream = Some(stream);
            }
        }
        for domain in self.planned.difference(&planned) {
            if let Some(tracked) = self.domains.get_mut(domain) {
                tracked.left_out = Some(self.known);
            }
        }
        self.planned = planned;
        for event in &applied.events {
            if let DirectoryEvent::DomainGone(domain) = event
                && self.domains.contains_key(domain)
            {
                self.gone.insert(*domain);
            }
        }
    }

    /// Begins an epoch of a domain's subgroup that has this process as a member.
    pub fn begin_epoch(&mut self, domain: u32, view: u64, members: &[u64], senders: &[u64]) {
        let epoch = Epoch { view, members: members.to_vec(), senders: senders.to_vec(), count: 0 };
        self.domains.entry(domain).or_default().waiting.push_back(Step::Begin(epoch));
    }

    /// Ends the part of this process in a domain: its subgroup has the process as a member no more, or is gone.
    pub fn end(&mut self, domain: u32) {
        if let Some(tracked) = self.domains.get_mut(&domain) {
            tracked.waiting.push_back(Step::End);
        }
    }

    /// Adds the next message of a domain's subgroup. [`ProcessStreams::advance`] delivers it.
    pub fn push(&mut self, domain: u32, message: Vec<u8>) {
        self.domains.entry(domain).or_default().waiting.push_back(Step::Message(message));
    }

    /// Delivers the next message of a domain's subgroup, if no step waits before it. `payload` makes a payload of
    /// its bytes, and `take` gets the events. A message that has to wait is copied.
    ///
    /// # Errors
    /// [`MessageError`] if the bytes are no message; it is passed over, at all members alike.
    pub fn deliver<P: Clone>(
        &mut self,
        domain: u32,
        message: &[u8],
        payload: impl FnOnce(&[u8]) -> P,
        mut take: impl FnMut(PlacedEvent<P>),
    ) -> Result<(), MessageError> {
        let tracked = self.domains.entry(domain).or_default();
        if !tracked.waiting.is_empty() || tracked.epoch.is_none() {
            tracked.waiting.push_back(Step::Message(message.to_vec()));
            return Ok(());
        }
        match tracked.message(domain, message, payload, &mut take) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Behind { .. })) => {
                tracked.waiting.push_back(Step::Message(message.to_vec()));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the steps that wait, as far as the directory allows. Returns the number of messages among them that
    /// were none.
    pub fn advance<P: Clone>(&mut self, payload: impl Fn(&[u8]) -> P, mut take: impl FnMut(PlacedEvent<P>)) -> u64 {
        let mut faults = 0;
        for (domain, tracked) in &mut self.domains {
            while let Some(step) = tracked.waiting.front() {
                let done = match step {
                    // A stream stays as long as its domain exists: without one, the plan is still to come.
                    Step::Begin(epoch) if tracked.stream.is_some() || self.gone.contains(domain) => {
                        let epoch = epoch.clone();
                        tracked.begin(epoch);
                        true
                    }
                    Step::Begin(_) => false,
                    Step::End => tracked.end(*domain, self.known, &mut take),
                    Step::Message(bytes) => {
                        let bytes = bytes.clone();
                        match tracked.message(*domain, &bytes, &payload, &mut take) {
                            Ok(outcome) => outcome.is_ok(),
                            Err(_) => {
                                faults += 1;
                                true
                            }
                        }
                    }
                };
                if !done {
                    break;
                }
                tracked.waiting.pop_front();
            }
        }
        let gone = &self.gone;
        self.domains
            .retain(|domain, tracked| !gone.contains(domain) || tracked.epoch.is_some() || !tracked.waiting.is_empty());
        faults
    }

    /// Returns whether messages of a domain wait for the directory.
    pub fn is_blocked(&self, domain: u32) -> bool {
        self.domains.get(&domain).is_some_and(|tracked| !tracked.waiting.is_empty())
    }

    /// Returns the fences that this process has to send, each with its domain and its version. Call
    /// [`ProcessStreams::fence_sent`] for each that is sent.
    pub fn fences_due(&self) -> impl Iterator<Item = (u32, u64)> {
        self.domains.iter().filter_map(|(domain, tracked)| {
            let epoch = tracked.epoch.as_ref().filter(|_| tracked.waiting.is_empty())?;
            Some((*domain, tracked.stream.as_ref()?.fence_due(&epoch.senders)?))
        })
    }

    /// Notes that a fence was sent.
    pub fn fence_sent(&mut self, domain: u32, version: u64) {
        if let Some(stream) = self.domains.get_mut(&domain).and_then(|tracked| tracked.stream.as_mut()) {
            stream.fence_sent(version);
        }
    }

    /// Returns the order domain in which a writer of this process may send; `None` if it may not yet, or no more.
    pub fn active_domain(&self, writer: Guid) -> Option<u32> {
        self.domains.iter().find_map(|(domain, tracked)| {
            let is_active = tracked.epoch.is_some() && tracked.stream.as_ref()?.is_active(writer);
            is_active.then_some(*domain)
        })
    }

    /// Returns the stream of a domain, if this process has one.
    pub fn stream(&self, domain: u32) -> Option<&DomainStream> {
        self.domains.get(&domain)?.stream.as_ref()
    }

    /// Returns the number of messages that named no writer of their domain. It stays 0 while all senders keep the
    /// rules.
    pub fn strays(&self) -> u64 {
        self.domains.values().filter_map(|tracked| tracked.stream.as_ref()).map(DomainStream::strays).sum()
    }
}

impl Tracked {
    fn begin(&mut self, epoch: Epoch) {
        if let Some(stream) = &mut self.stream {
            stream.begin_epoch(&epoch.members);
        }
        self.epoch = Some(epoch);
    }

    /// Ends the stream with its epoch. Returns false if the directory does not have the plan yet by which the
    /// process is out.
    fn end<P: Clone>(&mut self, domain: u32, known: u64, take: &mut impl FnMut(PlacedEvent<P>)) -> bool {
        let Some(epoch) = &self.epoch else { return true };
        let position = Position { domain, view: epoch.view, seq: epoch.count, index: 0 };
        if let Some(stream) = &mut self.stream {
            if self.left_out.is_none() {
                return false;
            }
            let ended = stream.end(known, |event| take(PlacedEvent { position, event }));
            debug_assert!(ended.is_ok(), "the version is known");
        }
        (self.stream, self.left_out, self.epoch) = (self.following.take(), None, None);
        true
    }

    fn message<P: Clone>(
        &mut self,
        domain: u32,
        bytes: &[u8],
        payload: impl FnOnce(&[u8]) -> P,
        take: &mut impl FnMut(PlacedEvent<P>),
    ) -> Result<Result<(), Behind>, MessageError> {
        let (Some(epoch), Some(stream)) = (&mut self.epoch, &mut self.stream) else { return Ok(Ok(())) };
        let position = Position { domain, view: epoch.view, seq: epoch.count, index: 0 };
        let outcome = match StreamMessage::decode(bytes) {
            Ok(message) => {
                Ok(stream.deliver(position, &message, payload, |event| take(PlacedEvent { position, event })))
            }
            Err(error) => Err(error),
        };
        epoch.count += u64::from(!matches!(outcome, Ok(Err(_))));
        outcome
    }
}

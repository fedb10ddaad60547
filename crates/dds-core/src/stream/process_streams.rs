//! The streams of one process: which order domains it takes part in, and what waits for its directory.
use super::domain_stream::{Behind, DomainStream, StreamEvent};
use super::message::{MessageError, StreamMessage};
use crate::directory::{Applied, Directory, DomainPlan};
use crate::id::{Guid, Position};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The streams of the order domains of one process.
///
/// A driver tells it of each command of the directory ([`ProcessStreams::note`]), and of the epochs and
/// messages of each subgroup, each in their order. A step that needs a newer directory waits, and those behind it
/// in its domain, too; a driver takes no more messages of a domain that is [blocked](ProcessStreams::is_blocked).
///
/// A view does not name the versions of the plans that it follows, and the directory of the process may be behind
/// these versions or ahead of them. So a stream exists while a plan names the process, or until it leaves the
/// subgroup, and an epoch begins without one as well: its messages are for others, up to a fence that waits for the
/// directory. The end of the part of a process waits only while its directory names the process, and no other
/// epoch of it has come.
#[derive(Clone, Debug)]
pub struct ProcessStreams {
    member: u64,
    /// The version of the directory that was noted.
    known: u64,
    domains: BTreeMap<u32, Tracked>,
    /// The domains whose plans name the process.
    planned: BTreeSet<u32>,
    /// The strays of the streams that are no more.
    strays: u64,
}

/// An order domain at this process.
#[derive(Clone, Debug, Default)]
struct Tracked {
    /// The stream; `None` while the directory of this process has no plan that names it.
    stream: Option<DomainStream>,
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
        ProcessStreams { member, known: 0, domains: BTreeMap::new(), planned: BTreeSet::new(), strays: 0 }
    }

    /// Takes over the outcome of a command that the directory has applied.
    pub fn note(&mut self, directory: &Directory, applied: &Applied) {
        let streams = self.domains.values_mut().filter_map(|tracked| tracked.stream.as_mut());
        streams.for_each(|stream| stream.note(directory, applied));
        self.known = directory.version();
        let names_me =
            |plan: &&DomainPlan| plan.members.contains(&self.member) || plan.observers.contains(&self.member);
        let planned: BTreeSet<u32> = directory.plans().filter(names_me).map(|plan| plan.domain).collect();
        for domain in planned.difference(&self.planned) {
            let tracked = self.domains.entry(*domain).or_default();
            // A stream that has not ended has noted all that happened since.
            if tracked.stream.is_none() {
                let mut stream = DomainStream::new(*domain, self.member, directory);
                if let Some(epoch) = &tracked.epoch {
                    stream.begin_epoch::<()>(&epoch.members, |_| {});
                }
                (tracked.stream, tracked.left_out) = (Some(stream), None);
            }
        }
        for (_, tracked) in self.domains.iter_mut().filter(|(domain, _)| !planned.contains(domain)) {
            tracked.left_out = Some(self.known);
            if tracked.epoch.is_none() {
                self.strays += tracked.drop_stream();
            }
        }
        self.planned = planned;
        self.domains.retain(|_, tracked| !tracked.is_idle());
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
        if !tracked.waiting.is_empty() {
            tracked.waiting.push_back(Step::Message(message.to_vec()));
            return Ok(());
        }
        match tracked.message(domain, self.known, message, payload, &mut take) {
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
            while let Some(step) = tracked.waiting.pop_front() {
                let done = match &step {
                    Step::Begin(epoch) => {
                        tracked.begin(*domain, epoch.clone(), &mut take);
                        true
                    }
                    Step::End => {
                        let ended = tracked.end(*domain, self.known, self.planned.contains(domain), &mut take);
                        self.strays += ended.unwrap_or(0);
                        ended.is_some()
                    }
                    Step::Message(bytes) => match tracked.message(*domain, self.known, bytes, &payload, &mut take) {
                        Ok(outcome) => outcome.is_ok(),
                        Err(_) => {
                            faults += 1;
                            true
                        }
                    },
                };
                if !done {
                    tracked.waiting.push_front(step);
                    break;
                }
            }
        }
        self.domains.retain(|_, tracked| !tracked.is_idle());
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
            let has_left = || tracked.waiting.iter().any(|step| matches!(step, Step::End));
            (is_active && !has_left()).then_some(*domain)
        })
    }

    /// Returns the stream of a domain, if this process has one.
    pub fn stream(&self, domain: u32) -> Option<&DomainStream> {
        self.domains.get(&domain)?.stream.as_ref()
    }

    /// Returns the number of messages that named a writer after its end. It stays 0 while all senders keep the
    /// rules.
    pub fn strays(&self) -> u64 {
        self.strays
            + self.domains.values().filter_map(|tracked| tracked.stream.as_ref()).map(DomainStream::strays).sum::<u64>()
    }
}

impl Tracked {
    /// Returns whether nothing is left to track.
    fn is_idle(&self) -> bool {
        self.stream.is_none() && self.epoch.is_none() && self.waiting.is_empty()
    }

    /// Drops the stream, and returns its strays.
    fn drop_stream(&mut self) -> u64 {
        self.left_out = None;
        self.stream.take().map_or(0, |stream| stream.strays())
    }

    fn begin<P>(&mut self, domain: u32, epoch: Epoch, take: &mut impl FnMut(PlacedEvent<P>)) {
        let position = Position { domain, view: epoch.view, seq: 0, index: 0 };
        if let Some(stream) = &mut self.stream {
            stream.begin_epoch(&epoch.members, |event| take(PlacedEvent { position, event }));
        }
        self.epoch = Some(epoch);
    }

    /// Ends the part of this process. Returns the strays of a stream that is no more; `None` if the directory may
    /// be behind the plan by which the process is out.
    fn end<P: Clone>(
        &mut self,
        domain: u32,
        known: u64,
        is_planned: bool,
        take: &mut impl FnMut(PlacedEvent<P>),
    ) -> Option<u64> {
        let is_in_again = self.waiting.iter().any(|step| matches!(step, Step::Begin(_)));
        if let (Some(epoch), Some(stream)) = (&self.epoch, &mut self.stream) {
            let left_out = self.left_out.filter(|version| *version > stream.fenced());
            if is_planned && left_out.is_none() && !is_in_again {
                return None;
            }
            let version = if is_planned { left_out.unwrap_or(stream.fenced()) } else { known };
            let position = Position { domain, view: epoch.view, seq: epoch.count, index: 0 };
            let ended = stream.end(version, |event| take(PlacedEvent { position, event }));
            debug_assert!(ended.is_ok(), "the version is known");
        }
        self.epoch = None;
        Some(if is_planned { 0 } else { self.drop_stream() })
    }

    fn message<P: Clone>(
        &mut self,
        domain: u32,
        known: u64,
        bytes: &[u8],
        payload: impl FnOnce(&[u8]) -> P,
        take: &mut impl FnMut(PlacedEvent<P>),
    ) -> Result<Result<(), Behind>, MessageError> {
        let Some(epoch) = &mut self.epoch else { return Ok(Ok(())) };
        let position = Position { domain, view: epoch.view, seq: epoch.count, index: 0 };
        let outcome = StreamMessage::decode(bytes).map(|message| match (&mut self.stream, message) {
            (Some(stream), message) => {
                stream.deliver(position, &message, payload, |event| take(PlacedEvent { position, event }))
            }
            // The plan that names this process may be among those that are to come.
            (None, StreamMessage::Fence(version)) if version > known => Err(Behind { version }),
            (None, _) => Ok(()),
        });
        epoch.count += u64::from(!matches!(outcome, Ok(Err(_))));
        outcome
    }
}

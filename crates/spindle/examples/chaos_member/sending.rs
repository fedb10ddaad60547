//! The threads that send, and the messages that they send.
use super::record::{Kind, Record, digest};
use super::{CLAIM_WAIT, Dice, HEADER_BYTES, LARGE_BYTES_MAX, Log, RESERVE, SUBGROUPS};
use spindle::{Frame, Outcome, Publisher, Receipt, SendError, SharedPublisher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

pub(super) fn fill(bytes: &mut [u8], instance: u32, subgroup: u8, thread: u8, number: u64) {
    let sum = digest(instance, subgroup, thread, number);
    let head = u64::from(instance) << 16 | u64::from(subgroup) << 8 | u64::from(thread);
    for (at, word) in [(0, head), (8, number), (16, sum)] {
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes[HEADER_BYTES as usize..].fill(sum as u8);
}

/// Both kinds of senders.
pub(super) enum Sender {
    Own(Publisher),
    Shared(SharedPublisher),
}

impl Sender {
    fn claim(&mut self, len: u64, waits: bool) -> Result<Option<Frame<'_>>, SendError> {
        let claimed = match (self, waits) {
            (Sender::Own(publisher), true) => publisher.claim(len, CLAIM_WAIT).map(Some),
            (Sender::Own(publisher), false) => publisher.try_claim(len),
            (Sender::Shared(publisher), true) => publisher.claim(len, CLAIM_WAIT).map(Some),
            (Sender::Shared(publisher), false) => publisher.try_claim(len),
        };
        match claimed {
            Err(SendError::Full { .. }) => Ok(None),
            claimed => claimed,
        }
    }

    fn send_tracked(&mut self, bytes: &[u8], wait: Duration) -> Result<Receipt, SendError> {
        match self {
            Sender::Own(publisher) => publisher.send_tracked(bytes, wait),
            Sender::Shared(publisher) => publisher.send_tracked(bytes, wait),
        }
    }
}

/// One stream of numbered messages.
pub(super) struct Stream {
    pub(super) subgroup: u8,
    pub(super) thread: u8,
    pub(super) sender: Sender,
    pub(super) next: u64,
    pub(super) reserved: u64,
    pub(super) told: u64,
}

/// A thread that sends in some streams.
pub(super) struct Sending {
    pub(super) instance: u32,
    /// The usual pause between bursts is shorter than this.
    pub(super) pause_us: u64,
    pub(super) log: Log,
    pub(super) streams: Vec<Stream>,
    pub(super) dice: Dice,
    pub(super) stop: Arc<AtomicBool>,
    /// The subgroup that is logged, if one is.
    pub(super) logged: Option<u8>,
    /// Those of messages of that subgroup that are not known to be durable.
    pub(super) receipts: Vec<Receipt>,
}

/// Receipts that a thread keeps.
const RECEIPTS_MAX: usize = 64;

impl Sending {
    /// Sends until `stop` is set, and then sends one last message in each stream. An error that is
    /// not the end of the group is reported.
    pub(super) fn run(mut self) -> Result<(), SendError> {
        let result = self.send_all();
        (0..self.streams.len()).for_each(|i| self.tell(i));
        self.note_durable();
        result
    }

    /// Records which messages are durable.
    fn note_durable(&mut self) {
        let Some(subgroup) = self.logged else { return };
        let mut records = vec![];
        self.receipts.retain(|receipt| {
            let is_durable = receipt.durable().wait(Duration::ZERO).is_ok();
            if let (true, Some(Outcome::Delivered { epoch, sequence })) = (is_durable, receipt.outcome()) {
                records.push(Record::new(Kind::Durable, subgroup, [epoch.0, sequence, 0]));
            }
            !is_durable && !matches!(receipt.outcome(), Some(Outcome::NotDelivered(_) | Outcome::Unknown))
        });
        if !records.is_empty() {
            self.log.write(&records);
        }
    }

    fn send_all(&mut self) -> Result<(), SendError> {
        while !self.stop.load(Ordering::Acquire) {
            let i = self.dice.below(self.streams.len() as u64) as usize;
            let burst = if self.dice.one_in(50) { 300 } else { 1 + self.dice.below(24) };
            for _ in 0..burst {
                if !self.send(i)? {
                    break;
                }
            }
            self.tell(i);
            self.note_durable();
            let pause_us = if self.dice.one_in(40) { self.dice.below(30_000) } else { self.dice.below(self.pause_us) };
            thread::sleep(Duration::from_micros(pause_us));
        }
        for i in 0..self.streams.len() {
            while !self.send(i)? {}
        }
        Ok(())
    }

    fn send(&mut self, i: usize) -> Result<bool, SendError> {
        let (instance, dice, stream) = (self.instance, &mut self.dice, &mut self.streams[i]);
        if stream.next == stream.reserved {
            stream.reserved += RESERVE;
            let record = Record::new(Kind::Reserve, stream.subgroup, [stream.reserved, 0, 0]);
            self.log.write(&[record.thread(stream.thread)]);
        }
        let most = SUBGROUPS[stream.subgroup as usize].2;
        let len = HEADER_BYTES + if dice.one_in(20) { most - HEADER_BYTES } else { dice.below(100) };
        let waits = !dice.one_in(3);
        let is_logged = self.logged == Some(stream.subgroup);
        if is_logged && dice.one_in(8) && self.receipts.len() < RECEIPTS_MAX {
            let mut bytes = vec![0; len as usize];
            fill(&mut bytes, instance, stream.subgroup, stream.thread, stream.next);
            let wait = if waits { CLAIM_WAIT } else { Duration::ZERO };
            return match stream.sender.send_tracked(&bytes, wait) {
                Ok(receipt) => {
                    stream.next += 1;
                    self.receipts.push(receipt);
                    Ok(true)
                }
                Err(SendError::Full { .. }) => Ok(false),
                Err(error) => Err(error),
            };
        }
        // A log takes no objects.
        if dice.one_in(60) && !is_logged {
            return self.send_large(i);
        }
        let Some(mut frame) = stream.sender.claim(len, waits)? else { return Ok(false) };
        match dice.below(600) {
            // The sender holds the frame while views may change.
            0 => thread::sleep(Duration::from_micros(dice.below(20_000))),
            // The sender gives the frame up: a void.
            1..4 => return Ok(true),
            _ => {}
        }
        fill(&mut frame, instance, stream.subgroup, stream.thread, stream.next);
        frame.commit();
        stream.next += 1;
        Ok(true)
    }

    /// Sends a message that no ring holds, otherwise as [`send`](Self::send).
    fn send_large(&mut self, i: usize) -> Result<bool, SendError> {
        let (instance, dice, stream) = (self.instance, &mut self.dice, &mut self.streams[i]);
        let len = if dice.one_in(20) { LARGE_BYTES_MAX } else { dice.below(100_000) };
        let mut bytes = vec![0; (HEADER_BYTES + len) as usize];
        fill(&mut bytes, instance, stream.subgroup, stream.thread, stream.next);
        let wait = if dice.one_in(3) { Duration::ZERO } else { CLAIM_WAIT };
        let sent = match &mut stream.sender {
            Sender::Own(publisher) => publisher.send_object(bytes, wait),
            Sender::Shared(publisher) => publisher.send_object(bytes, wait),
        };
        match sent {
            Ok(()) => stream.next += 1,
            Err(SendError::Full { .. } | SendError::TooMany { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    fn tell(&mut self, i: usize) {
        let stream = &mut self.streams[i];
        if stream.next > stream.told {
            stream.told = stream.next;
            let record = Record::new(Kind::Sent, stream.subgroup, [stream.next, 0, 0]);
            self.log.write(&[record.thread(stream.thread)]);
        }
    }
}

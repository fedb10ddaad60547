//! Consumers that deliver on threads of their own: they take, keep for a while, and report.
use super::{Checked, Event, World};
use crate::apps::{Lent, digest};
use crate::checkers::{frame_safety, no_storms};
use spindle_core::ring::HEADER_BYTES;

impl World<'_> {
    pub(super) fn expect_consumer(&mut self, i: usize) {
        if !std::mem::replace(&mut self.consumers[i].scheduled, true) {
            let at = self.now + self.random.range(20, self.plan.consumer_ns);
            self.push(at, Event::Consume(i));
        }
    }

    pub(super) fn consume(&mut self, i: usize) -> Checked {
        let consumer = &mut self.consumers[i];
        let (rank, subgroup) = (consumer.member, consumer.subgroup);
        self.told.delivered.clear();
        consumer.frontier = consumer.handoff.frontier();
        let mut batch = consumer.cursor.advance(&self.tables[rank.index()], consumer.frontier);
        self.told.take(subgroup, &mut batch);
        consumer.more = batch.has_next();
        (consumer.messages, consumer.bytes) = (batch.messages(), batch.bytes());
        if let Some(defect) = consumer.cursor.defect() {
            return no_storms::consumer_stopped(rank, subgroup, defect);
        }
        let delivered = std::mem::take(&mut self.told.delivered);
        for message in &delivered {
            let index = self.deliver(rank, *message, false)?;
            let group = &self.ledger.groups[subgroup.index()];
            let sender = group.sender_rank(message.sender).expect("a sender of the subgroup");
            self.consumers[i].lent.push(Lent { sender, index, len: message.len, digest: message.digest });
        }
        self.told.delivered = delivered;
        self.went_back(rank)?;
        if self.plan.faults.loans {
            let at = self.now + self.random.range(20, self.plan.consumer_ns);
            self.push(at, Event::Report(i));
            return Ok(());
        }
        self.report(i)
    }

    /// A consumer gives back what it was lent and tells its engine.
    pub(super) fn report(&mut self, i: usize) -> Checked {
        let consumer = &mut self.consumers[i];
        let (rank, id) = (consumer.member, consumer.subgroup);
        let group = &mut self.ledger.groups[id.index()];
        for lent in consumer.lent.drain(..) {
            let lane = &mut group.lanes[lent.sender];
            let at = lane.frames[lent.index].at + HEADER_BYTES;
            let bytes = self.tables[rank.index()].rows[lane.sender.index()].slice(at, lent.len);
            frame_safety::given_back(rank, lane.sender, id, lent.digest, digest(bytes))?;
            lane.done[rank.index()] = lent.index + 1;
        }
        consumer.handoff.report(&consumer.cursor, consumer.messages, consumer.bytes);
        consumer.scheduled = false;
        if consumer.more || consumer.handoff.frontier() != consumer.frontier {
            self.expect_consumer(i);
        }
        note!(self, "m{rank} s{id} consumer reports");
        self.wake(rank);
        Ok(())
    }
}

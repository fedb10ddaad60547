//! Consumers that deliver on threads of their own: they take frames, hold them for a while, and
//! report.
use super::{Event, World};
use crate::apps::{Consumer, LentFrame, digest};
use crate::checkers::Checked;
use crate::checkers::{frame_safety, no_storms};
use crate::seat::Seat;
use spindle_core::wire::ring::HEADER_BYTES;

impl World<'_> {
    pub(super) fn expect_consumer(&mut self, stage: usize, consumer: usize) {
        let on = &mut self.stages[stage].consumers[consumer];
        if on.behind.is_none() && !on.at_end && !std::mem::replace(&mut on.scheduled, true) {
            let at = self.now + self.random.range(20, self.plan.consumer_ns);
            self.push(at, Event::Consume { stage, consumer });
        }
    }

    pub(super) fn consume(&mut self, stage: usize, i: usize) -> Checked {
        let on = &mut self.stages[stage];
        let consumer = &mut on.consumers[i];
        let (rank, subgroup) = (consumer.member, consumer.subgroup);
        self.told.delivered.clear();
        consumer.frontier = consumer.handoff.frontier();
        if let Some(trims) = consumer.handoff.trims().filter(|_| !consumer.closed) {
            consumer.closed = true;
            consumer.cursor.close(&on.tables[rank.index()], &trims);
        }
        let mut batch = consumer.cursor.advance(&on.tables[rank.index()], consumer.frontier);
        self.told.take(subgroup, &mut batch);
        consumer.more = batch.has_next();
        (consumer.messages, consumer.bytes) = (batch.messages(), batch.bytes());
        if let Some(defect) = consumer.cursor.defect() {
            return no_storms::consumer_stopped(rank, subgroup, defect);
        }
        let delivered = std::mem::take(&mut self.told.delivered);
        for message in &delivered {
            let index = self.deliver(Seat { stage, rank }, *message, false)?;
            let on = &mut self.stages[stage];
            let group = &on.ledger.groups[subgroup.index()];
            let sender = group.sender_rank(message.sender).expect("a sender of the subgroup");
            on.consumers[i].lent.push(LentFrame { sender, index, len: message.len, digest: message.digest });
        }
        self.told.delivered = delivered;
        self.went_back(stage, rank)?;
        if self.plan.faults.loans {
            let at = self.now + self.random.range(20, self.plan.consumer_ns);
            self.push(at, Event::Report { stage, consumer: i });
            return Ok(());
        }
        self.report(stage, i)
    }

    /// Lets a consumer return its frames and report to its engine.
    pub(super) fn report(&mut self, stage: usize, i: usize) -> Checked {
        let on = &mut self.stages[stage];
        let consumer = &mut on.consumers[i];
        let (rank, id) = (consumer.member, consumer.subgroup);
        let seat = Seat { stage, rank };
        let group = &mut on.ledger.groups[id.index()];
        for lent in consumer.lent.drain(..) {
            let lane = &mut group.lanes[lent.sender];
            let at = lane.frames[lent.index].at + HEADER_BYTES;
            let bytes = on.tables[rank.index()].rows[lane.sender.index()].slice(at, lent.len);
            frame_safety::given_back(rank, lane.sender, id, lent.digest, digest(bytes))?;
            lane.done[rank.index()] = lent.index + 1;
        }
        consumer.handoff.report(&consumer.cursor, consumer.messages, consumer.bytes);
        consumer.scheduled = false;
        let end = consumer.closed && consumer.cursor.is_at_end();
        if end {
            consumer.at_end = true;
            self.consumer_ends(stage, i)?;
        } else if consumer.handoff.trims().is_some()
            || consumer.more
            || consumer.handoff.frontier() != consumer.frontier
        {
            self.expect_consumer(stage, i);
        }
        note!(self, "{seat} s{id} consumer reports");
        self.wake(seat);
        Ok(())
    }

    /// Ends a consumer that has delivered all messages of its view: the next view's consumer
    /// begins.
    fn consumer_ends(&mut self, stage: usize, i: usize) -> Checked {
        let consumer = &self.stages[stage].consumers[i];
        let (rank, id) = (consumer.member, consumer.subgroup);
        let seat = Seat { stage, rank };
        note!(self, "{seat} s{id} consumer is at the end of the view");
        self.ended(seat, id)?;
        let behind = |(_, consumer): &(usize, &Consumer)| consumer.behind == Some((stage, i));
        let later = (stage + 1..self.stages.len())
            .find_map(|later| Some((later, self.stages[later].consumers.iter().enumerate().find(behind)?.0)));
        if let Some((later, next)) = later {
            self.follow(later, next);
        }
        Ok(())
    }
}

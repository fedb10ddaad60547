//! Checks of deliveries: against the messages that were sent, against each other, and against the
//! reports of engines.
use super::stage::{Stage, Still, WordMeaning};
use super::{SimDelivery, World};
use crate::checkers::{Checked, Violation, frame_safety, no_invention, sequence, stability};
use crate::seat::Seat;
use crate::table::TableAction;

use spindle_core::wire::ring::HEADER_BYTES;
use spindle_core::{Order, Rank};

impl World<'_> {
    /// Lets `seat` take a message out of a batch. The member has then finished with the message,
    /// unless it is only lent.
    pub(super) fn deliver(&mut self, seat: Seat, message: SimDelivery, done: bool) -> Result<usize, Violation> {
        let rank = seat.rank;
        let SimDelivery { subgroup, sender: from, round, len, digest, .. } = message;
        self.last_change = self.last_change.max(self.now);
        note!(self, "{seat} s{subgroup} delivers round {round} of m{from}, {len} bytes");
        self.hash.add(digest ^ round);
        let stage = &mut self.stages[seat.stage];
        let group = &stage.ledger.groups[subgroup.index()];
        let (order, sender) = (group.order, group.sender_rank(from).expect("a sender of the subgroup"));
        no_invention::delivered(&stage.ledger, subgroup, rank, sender, len, digest)?;
        let index = sequence::delivered(&mut stage.ledger, subgroup, rank, sender, round, digest)?;
        let number = stage.ledger.lane(subgroup, sender).frames[index].number;
        let (receiver, sending) = (stage.cast[rank.index()], stage.cast[from.index()]);
        let ids = [rank, from].map(|rank| stage.view.members[rank.index()]);
        // A member that was in the subgroup when the sender came has to deliver the sender's first
        // message.
        let mut before = self.history.delivered(receiver, subgroup, sending, number);
        if before.is_none() {
            let stages = &self.stages[..=seat.stage];
            let began = |stage: &&Stage| stage.role(sending, subgroup).is_some_and(|sends| sends);
            let with_it = |stage: &Stage| stage.role(receiver, subgroup).is_some();
            before = stages.iter().find(began).is_some_and(with_it).then_some(0);
        }
        sequence::across_views(ids[0], ids[1], subgroup, before, number, self.history.sent(sending, subgroup))?;
        // At the end of an epoch the members that continue hold the rest of the epoch.
        let goes_on = self.epoch_end(seat, subgroup).map(|decision| decision.next.members.clone());
        let stage = &mut self.stages[seat.stage];
        if done {
            stage.ledger.groups[subgroup.index()].lanes[sender].done[rank.index()] = index + 1;
        }
        if order == Order::Total {
            let (place, _) = stage.total_order.counts(subgroup, rank);
            stage.uniformity.delivered(subgroup, rank, place)?;
        }
        self.check_delivered_durable(seat, subgroup, from, round)?;
        let stage = &mut self.stages[seat.stage];
        if order == Order::Total && stage.total_order.delivered(subgroup, rank, from, round, digest)? {
            let group = &stage.ledger.groups[subgroup.index()];
            let lane = &group.lanes[sender];
            let frame = &lane.frames[index];
            let bytes = stage.tables[from.index()].rows[from.index()].slice(frame.at + HEADER_BYTES, len);
            let goes_on = |holder: &&Rank| {
                let id = stage.view.members[holder.index()];
                goes_on.as_ref().is_none_or(|members| members.contains(&id))
            };
            for holder in group.members.iter().filter(goes_on) {
                let rows = &Still(&stage.tables[holder.index()]);
                stability::held(rows, *holder, subgroup, from, &lane.ring, frame, bytes)?;
            }
        }
        Ok(index)
    }

    /// Compares an engine's reports on its deliveries with the deliveries.
    pub(super) fn believe(&mut self, seat: Seat, actions: &[TableAction]) -> Checked {
        let rank = seat.rank;
        let stage = &mut self.stages[seat.stage];
        for action in actions {
            let TableAction::Store { at, value } = action else { continue };
            let (id, by_sender) = match stage.member(rank).words.get(*at as usize / 8) {
                Some(WordMeaning::BySender(id, sender)) => (*id, Some(*sender)),
                Some(WordMeaning::Entry(id, "delivered")) => (*id, None),
                _ => continue,
            };
            match by_sender {
                Some(sender) => note!(self, "{seat} s{id} delivered[{sender}] -> {value}"),
                None => note!(self, "{seat} s{id} delivered -> {value}"),
            }
            let group = &mut stage.ledger.groups[id.index()];
            // The sum over senders adds no information to the counts by sender.
            if by_sender.is_some() == (group.order == Order::Fifo) {
                frame_safety::says_delivered(group, id, rank, by_sender.unwrap_or(0), *value)?;
            }
        }
        Ok(())
    }
}

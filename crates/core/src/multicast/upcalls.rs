//! Calls from the engine to the application.
use crate::ids::{Position, SubgroupId};
use crate::multicast::cursor::Batch;
use crate::multicast::logging::{DurableRise, Records};

/// The events that the engine reports to the application while it is polled. A closure over
/// (subgroup, batch) implements this trait.
pub trait Upcalls<R> {
    /// Delivers messages of `subgroup`, in order. Messages that are left in the batch are offered
    /// again at the next poll.
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_, R>);

    /// Offers messages of the logged subgroup `subgroup` for the log, in order. All of them are
    /// stable, and the application may get them earlier or later. The default takes none.
    fn log(&mut self, _subgroup: SubgroupId, _records: &mut Records<'_, R>) {}

    /// Reports that the log of `subgroup` has to lose what it has taken from the position `from` on, itself
    /// included. The epoch has ended before these messages, and their senders send them again. They were
    /// delivered nowhere, and no message of a later epoch may be logged before they are gone. Comes only
    /// where [what is not durable is not delivered](crate::Durability::LoggedBeforeDelivery). The default
    /// does nothing.
    fn cut_log(&mut self, _subgroup: SubgroupId, _from: Position) {}

    /// Reports that messages of the logged subgroup `subgroup` became durable. The default does
    /// nothing.
    fn durable(&mut self, _subgroup: SubgroupId, _rise: DurableRise) {}

    /// Reports that this member's ring in `subgroup` has more room than before.
    fn room(&mut self, _subgroup: SubgroupId) {}

    /// Reports that the consumer of `subgroup` on another thread has more to deliver.
    fn handed_off(&mut self, _subgroup: SubgroupId) {}
}

impl<R, F: FnMut(SubgroupId, &mut Batch<'_, R>)> Upcalls<R> for F {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_, R>) {
        self(subgroup, batch);
    }
}

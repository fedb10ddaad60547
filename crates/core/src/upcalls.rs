//! From the engine to the application.
use crate::cursor::Batch;
use crate::ids::SubgroupId;

/// What the engine tells the application while it is polled. A closure over (subgroup, batch) is one.
pub trait Upcalls<R> {
    /// Messages of `subgroup`, in order. Those that are not taken out of the batch are offered again at the next poll.
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_, R>);

    /// My ring in `subgroup` has more room than before.
    fn room(&mut self, _subgroup: SubgroupId) {}

    /// The consumer of `subgroup` on another thread has more to deliver.
    fn handed_off(&mut self, _subgroup: SubgroupId) {}
}

impl<R, F: FnMut(SubgroupId, &mut Batch<'_, R>)> Upcalls<R> for F {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_, R>) {
        self(subgroup, batch);
    }
}

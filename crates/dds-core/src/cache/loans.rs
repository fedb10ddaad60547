//! Samples that the application has, and the loans of them.
use crate::id::InstanceHandle;
use crate::instance::Sample;

/// A loan of samples, which keeps their instances (DDS 2.2.2.5.3.20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoanId(pub(super) u64);

/// Samples that were read or taken.
#[derive(Clone, Debug)]
#[must_use = "the loan is to be returned"]
pub struct Selection<P> {
    /// The samples.
    pub samples: Vec<Sample<P>>,
    /// The loan. [`ReaderCache::return_loan`](super::ReaderCache::return_loan) ends it.
    pub loan: LoanId,
}

/// A sample that was selected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) instance: InstanceHandle,
    pub(super) arrival: u64,
    /// The life of the instance at the selection.
    pub(super) life: u64,
    pub(super) has_data: bool,
}

/// The instances and samples of an open loan.
#[derive(Debug, Default)]
pub(super) struct Loan {
    /// The instances, with the samples that this loan alone has taken out of the cache.
    pub(super) instances: Vec<(InstanceHandle, u32)>,
    /// The other samples with data: the instance and the number in the cache.
    pub(super) samples: Vec<(InstanceHandle, u64)>,
}

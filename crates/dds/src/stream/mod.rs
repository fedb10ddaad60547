//! The stream of an order domain: its messages, and what a process makes of them.
//!
//! The messages of an order domain are in one order at all members of its subgroup. The changes of the
//! [directory](crate::directory) are in another, and the two are not ordered against each other. So a change
//! of a match takes effect at a [fence](StreamMessage::Fence), a message that names a version of the
//! directory: each process applies the changes up to this version when it delivers the fence. A process whose
//! directory is not that far waits before it delivers on.
//!
//! - INV-FENCE: between two fences the matches of a domain are those of the directory at the version of the
//!   first. So all readers see a writer come, change and go at the same position.
//! - A writer sends no sample before a fence of a version that has it ([`DomainStream::is_active`]), and is
//!   deleted after its last sample has been delivered. So no sample of it is outside of its matches.
//! - The first sender of the subgroup sends fences that are due ([`DomainStream::fence_due`]). If it goes, the
//!   next one does, so a change is never without a fence for long. More fences than needed do no harm.
//!
//! **Absent on purpose:** the retained samples of late joiners, and I/O.
mod domain_stream;
mod message;
mod writers;

pub use domain_stream::{Behind, Delivery, DomainStream};
pub use message::{ChangeMessage, MessageError, StreamMessage};

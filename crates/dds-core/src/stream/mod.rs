//! The stream of an order domain: its messages, and how a process turns them into events of its readers.
//!
//! The messages of an order domain are in one order at all members of its subgroup. The changes of the
//! [directory](crate::directory) are in another, and the two are not ordered against each other. So a change
//! of a match takes effect at a [fence](StreamMessage::Fence), a message that names a version of the
//! directory: each process applies the changes up to this version when it delivers the fence. A process whose
//! directory is not that far waits before it delivers on.
//!
//! - INV-FENCE: after a fence, the matches in a domain are those of the directory at the newest version that a
//!   fence has named, as far as both processes were members of the subgroup at a fence since. So all readers see a
//!   writer come, change and go at one position, and a writer hears of a reader when its samples reach it.
//! - A writer sends no sample before a fence that has it ([`DomainStream::is_active`]), and is deleted after its
//!   last sample has been delivered. So no sample of it is outside of its matches.
//! - The first sender of the subgroup sends the fences that are due ([`DomainStream::fence_due`]): one in each
//!   epoch, for the processes that have come, and one for each change. If it goes, the next one does so.
//! - A fence may name an older version than one before it: its sender may have come with a directory that is behind.
//!   A writer hears of no reader then.
//! - Where the process leaves the subgroup, the end of the epoch is the fence ([`DomainStream::end`]).
//! - Only a fence waits for a newer directory, and the end of a part that the directory still plans. Views may follow
//!   plans that the directory of the process has not reached, or has left behind ([`ProcessStreams`]).
//!
//! **Absent on purpose:** the retained samples of late joiners, and I/O.
mod domain_stream;
mod message;
mod process_streams;
mod writers;

pub use domain_stream::{Behind, DomainStream, StreamEvent};
pub use message::{ChangeMessage, MessageError, StreamMessage};
pub use process_streams::{PlacedEvent, ProcessStreams};

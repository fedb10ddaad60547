//! Matching of writers and readers: a function of the descriptions of both, and of nothing else.
//!
//! Both sides compute the same answer from the same descriptions. A pair that does not match has a
//! [`Mismatch`] for each reason, which prints both values. Endpoints of different topics are no pair;
//! [`near_miss`] finds those whose topic names are so close that one is probably a mistake.
mod endpoint;
mod hint;
mod reason;

pub(crate) use endpoint::check_topics;
pub use endpoint::{EndpointMatch, ReaderDescription, TopicRef, WriterDescription, match_endpoints};
pub use hint::near_miss;
pub use reason::{Mismatch, PartitionHint};

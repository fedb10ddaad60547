//! The handles with which an application sends and receives, and their state at the polling thread.
//!
//! A [`Publisher`] sends and a [`Receiver`] or a [`DeliveryStream`] receives, each in one subgroup,
//! on any thread. [`SubgroupHandles`] is the polling thread's side of them and follows the subgroup
//! from view to view. A [`Receipt`] reports the outcome of one message,
//! and a [`ReadBarrier`] whether this member has delivered everything.
mod publisher;
mod publisher_slot;
mod read_barrier;
mod receipt;
mod receiver;
mod stream;
mod subgroup_handles;
mod tracking;

pub use publisher::{Publisher, SharedPublisher};
pub use read_barrier::ReadBarrier;
pub use receipt::{Durable, NotDelivered, NotDurable, Outcome, Receipt};
pub use receiver::{Deliveries, Messages, Receiver};
pub use stream::{Delivery, DeliveryStream};
pub(crate) use subgroup_handles::SubgroupHandles;

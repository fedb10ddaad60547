//! Small messages in a model of a network: the real [`Engine`](spindle_core::Engine)s, on hosts with a NIC and one processor each, in
//! virtual time. It answers how a group scales, up to 64 members, on networks that are not here.
//!
//! A [`Bench`] says how many members there are, who sends, and what things cost ([`Costs`], of RDMA and of TCP); [`Bench::flood`] lets them send as
//! fast as they can, [`Bench::one_in_flight`] one message after the other. There are no faults and no chance: that is the business of the
//! [simulator](crate) proper. Of the invariants only the total order is watched, so that no figure comes from engines that have gone wrong.
//!
//! The model is simple on purpose. The thread that polls also builds the messages and takes the deliveries, and does one thing at a time: it takes in
//! what has come, builds, polls, and hands to the NIC what is to be sent. What a peer's NIC can't take yet melts together
//! ([ADR 0014](../../../docs/adr/0014-posts-melt-together.md)). A NIC sends one batch at a time and receives one at a time, each for as long as its bytes take. Nothing is
//! known of caches, switches, or a scheduler. So the figures are for comparing: members with members, a schedule with another, a change with what was
//! before. They are no promise.
mod bench;
mod costs;
mod memory;
mod world;

pub use bench::{Bench, Timing};
pub use costs::Costs;

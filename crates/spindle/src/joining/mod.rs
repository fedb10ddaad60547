//! How a process comes to a view that it has not begun.
//!
//! A [`Candidate`] is a process without a view: it creates the group with others, or asks its
//! members. A [`Follower`] follows the order of a group from outside, and [`learner`] adds the state
//! of the application. [`preparing`] makes this process's memory for a view, its first or the next,
//! and [`meeting`] the connections that libfabric carries.
mod candidate;
mod follower;
mod learner;
mod meeting;
mod preparing;

pub(crate) use candidate::{Candidate, Joined, no_event_count};
pub(crate) use follower::Follower;
pub(crate) use meeting::{AGAIN, connect_late};
pub(crate) use preparing::{First, PreallocatedRow, Preparing, hasten};

//! A deterministic simulator of a Spindle group: the real engines over simulated memory, in virtual time, from one seed.
//!
//! [`Plan::from_seed`] draws a view, its applications and a set of faults; [`run`] plays it and checks the invariants in
//! [`checkers`] at every step; [`campaign`] does so for many seeds, and [`explain`] tells the story of one. A seed means
//! the same run on every machine and in every build: there is no clock, no thread, no map order in a run.
//!
//! Read `world` for what happens, [`ledger`] for what is believed to have happened, `table` for how memory behaves.
//! [`bootstrap`] has processes that found a group between hosts, or find it; [`processes`] has whole processes, with both.
//!
//! What it is not: a model of speed. Virtual times only shuffle the order of things. The exceptions are [`bulk`], the block
//! multicast, and [`small`], small messages: each in a model of a network, whose times are its point.
#![forbid(unsafe_code)]

mod apps;
pub mod bootstrap;
pub mod bulk;
mod campaign;
pub mod checkers;
mod counts;
mod happenings;
pub mod history;
pub mod ledger;
mod options;
mod plan;
#[cfg(planted)]
pub mod planted;
pub mod processes;
mod random;
pub mod small;
mod table;
mod trace;
mod world;

pub use campaign::{Summary, campaign, explain, replay_line, run};
pub use checkers::Violation;
pub use counts::Counts;
pub use happenings::{Happening, Step, What, When};
pub use options::{Faults, Options, Setting, Visibility};
pub use plan::{AppPlan, MemberPlan, Plan};
pub use world::Outcome;

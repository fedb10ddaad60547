//! A deterministic simulator of a Spindle group: it runs the real engines over simulated memory, in
//! virtual time, from one seed.
//!
//! [`Plan::from_seed`] draws a view, its applications and a set of faults. [`run`] plays the plan
//! and checks the invariants in [`checkers`] at every step. [`campaign()`] does so for many seeds,
//! and [`explain`] prints the event log of one seed. A seed gives the same run on every machine and
//! in every build: a run reads no clock, uses no thread, and depends on no map order.
//!
//! Read `world` for the events, [`ledger`] for the record of what happened, and `table` for the
//! behaviour of memory. [`bootstrap`] simulates processes that create a group between hosts, or
//! find it. [`processes`] simulates whole processes, with bootstrap and views.
//!
//! The simulator is no model of speed: virtual times only shuffle the order of events. The
//! exceptions are [`bulk`], the block multicast, and [`small`], small messages. Each of the two
//! measures times in a model of a network.
#![forbid(unsafe_code)]

mod actions;
mod apps;
pub mod bootstrap;
pub mod bulk;
mod campaign;
pub mod checkers;
mod counts;
pub mod history;
pub mod ledger;
#[cfg(mutation)]
pub mod mutation;
mod options;
mod plan;
pub mod processes;
mod random;
pub mod restart;
mod seat;
pub mod small;
mod table;
mod trace;
mod world;

pub use actions::{Action, ActionKind, InstallStep, When};
pub use campaign::{Summary, campaign, explain, replay_line, run};
pub use checkers::Violation;
pub use counts::Counts;
pub use options::{Faults, Options, Setting, Visibility};
pub use plan::{AppPlan, MemberPlan, Plan};
pub use world::Outcome;

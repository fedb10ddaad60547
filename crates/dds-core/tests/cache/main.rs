//! The cache of a reader: scenarios after the clauses of DDS 2.2.2.5 and 2.2.3, and a model.
#![expect(clippy::disallowed_methods, reason = "the seed of a random test is a variable")]
mod group;
mod instances;
mod limits;
mod model;
mod model_reading;
mod random;
mod reading;
mod sets;
mod snapshots;
mod support;
mod time;

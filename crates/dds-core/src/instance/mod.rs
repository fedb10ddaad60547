//! Instances and samples: their states, and the information about a sample (DDS 2.2.2.5.1).
mod record;
mod sample;
mod states;

pub(crate) use record::{Instance, Registration};
pub(crate) use sample::{OrderKey, Stored};
pub use sample::{Sample, SampleData, SampleInfo};
pub(crate) use states::StateTally;
pub use states::{InstanceState, SampleState, StateMask, ViewState};

//! Quality-of-service profiles: the policies of entities in a file, as OMG DDS-XML 1.0 or as TOML.
//!
//! A profile has sets of policies, one of each kind of entity, or several for topics with different
//! names. It may inherit from another profile. Read [`QosProvider`] first.
//!
//! A policy that no file names has the default of the specification. Both formats are read into one
//! tree, and one validator checks it: an unknown name, a name that occurs twice and a value that is not
//! allowed are errors with the place, and so are policies that contradict each other
//! ([`QosSet::check_consistent`](crate::qos::QosSet::check_consistent)). The check against a driver
//! ([`Supported`](crate::qos::Supported)) takes place when an entity is created.
//!
//! ```text
//! xml, toml --> tree --> read --> provider --> the sets of policies --> write
//!                         ^          ^
//!                  fields, value (names and values of each policy)
//! ```
//!
//! **Absent on purpose:** files. The caller reads them.
mod error;
mod fields;
mod provider;
mod read;
mod set;
mod text;
mod toml;
mod tree;
mod value;
mod write;
mod xml;

pub use error::{Place, ProfileError, ProfileErrors, ProfileProblem};
pub use provider::{ExplainedValue, ProfileSource, QosProvider};
pub use set::{EntityKind, ProfileSets};
pub use write::{to_toml, to_xml};

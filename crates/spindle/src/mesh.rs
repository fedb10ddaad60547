//! The fabric of groups: memory on one host, and streams or connections of libfabric between hosts.
use spindle_fabric_ofi::OfiMeeting;

pub(crate) type Mesh = spindle_fabric::Mesh<OfiMeeting>;
pub(crate) type Retired = spindle_fabric::Retired<OfiMeeting>;

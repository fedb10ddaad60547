//! Ways to other members of bulk groups, as they are handed over.
use spindle_core::MemberId;
use spindle_transport::Connection;
use std::os::fd::OwnedFd;

/// The way to another member of a bulk group.
#[derive(Debug)]
pub(crate) struct BulkLink {
    /// The number of the group in the view.
    pub(crate) number: u64,
    /// The member that made the way.
    pub(crate) from: MemberId,
    pub(crate) way: BulkWay,
}

#[derive(Debug)]
pub(crate) enum BulkWay {
    /// The host leader shares objects through this socket.
    Lend(OwnedFd),
    Stream(Connection),
}

//! The reasons why a view is not valid.
use crate::ids::{MemberId, ViewId};
use crate::limits;
use alloc::string::String;

/// Why a [`View`](super::View) can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// No member, or too many.
    #[error("a view holds 1 to {max} members, not {got}", max = limits::MEMBERS_MAX)]
    Members {
        /// How many there are.
        got: usize,
    },
    /// The same member twice.
    #[error("member {id} is listed twice in the view")]
    MemberTwice {
        /// The member.
        id: MemberId,
    },
    /// A list of members that don't vote that is not ascending, names a member that is not there,
    /// or leaves no voter.
    #[error("the {got} nonvoters of a view of {members} must be ascending ranks, and fewer than its members")]
    Voters {
        /// How many nonvoters are listed.
        got: usize,
        /// How many members there are.
        members: usize,
    },
    /// Too many subgroups.
    #[error("a view holds at most {max} subgroups, not {got}", max = limits::SUBGROUPS_MAX)]
    Subgroups {
        /// How many there are.
        got: usize,
    },
    /// A name that is empty, too long, or in use.
    #[error("subgroup name {name:?} is empty, longer than {max} bytes, or used twice", max = limits::NAME_BYTES_MAX)]
    Name {
        /// The name.
        name: String,
    },
    /// A member or sender list that is not ascending, or has a rank that is not allowed there.
    #[error("the {list} of subgroup {name:?} must be ascending ranks of {of}")]
    Ranks {
        /// The subgroup.
        name: String,
        /// "members" or "senders".
        list: &'static str,
        /// The list that the ranks are drawn from.
        of: &'static str,
    },
    /// An epoch that began with this view, or begins with a later one.
    #[error("the epoch of subgroup {name:?} began with view {epoch}, which is no earlier view than {view}")]
    Epoch {
        /// The subgroup.
        name: String,
        /// The view with which its epoch is said to have begun.
        epoch: ViewId,
        /// The view.
        view: ViewId,
    },
    /// A logged subgroup without a common order, whose logs would differ.
    #[error("subgroup {name:?} is logged and Fifo: logs need one order, so use the order \"total\" or no log")]
    LoggedFifo {
        /// The subgroup.
        name: String,
    },
    /// A number outside its limits.
    #[error("{field} of subgroup {name:?} is {got}; it may be {min} to {max}")]
    Range {
        /// The subgroup.
        name: String,
        /// Which number.
        field: &'static str,
        /// Its value.
        got: u64,
        /// The smallest it may be.
        min: u64,
        /// The largest it may be.
        max: u64,
    },
}

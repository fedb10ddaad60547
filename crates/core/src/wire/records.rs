//! Requests for records of a log, and refusals, in control messages.
use super::bytes::{Reader, WireError, Writer};
use crate::ids::{Position, ViewId};
use crate::limits::NAME_BYTES_MAX;
use alloc::string::{String, ToString};

/// Records that a process wants of another one: those of one log after a position, up to a bound.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WantedRecords {
    /// The name of the subgroup.
    pub subgroup: String,
    /// The last record that the process has. `None`: it wants them from the beginning.
    pub after: Option<Position>,
    /// The bound.
    pub bound: RecordBound,
    /// Whether records that the source lacks may be left out. If not, a source that lacks some refuses.
    pub may_skip: bool,
}

/// The end of the records that a process wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordBound {
    /// Up to this position, inclusive.
    Through(Position),
    /// All epochs that began before this view.
    Before(ViewId),
}

impl RecordBound {
    /// Returns whether a position is within the bound.
    pub fn contains(self, position: Position) -> bool {
        match self {
            RecordBound::Through(last) => position <= last,
            RecordBound::Before(epoch) => position.epoch < epoch,
        }
    }
}

/// The reason why a process sends no records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoRecords {
    /// It has no log of the subgroup, or is no member of it.
    #[error("it is not in the subgroup")]
    NotMember,
    /// Its own log lacks records that it gets from another member now.
    #[error("its own log catches up")]
    CatchingUp,
    /// It serves as many processes as it may.
    #[error("it sends records to others")]
    Busy,
    /// Its log begins above the requested position.
    #[error("its log begins at {oldest}")]
    Pruned {
        /// The oldest record that it has, or the position at which its log begins.
        oldest: Position,
    },
    /// Its log does not contain the record after which the wanted ones come.
    #[error("its log lacks the record before them")]
    Lacks {
        /// The last record of its log before that one, if there is one.
        last: Option<Position>,
    },
}

impl WantedRecords {
    /// Returns the refusal of a source whose log is complete since the view `since` only, if the request
    /// reaches further back; `None`: the log begins with the first message.
    pub fn refusal(&self, since: Option<ViewId>) -> Option<NoRecords> {
        let reaches_back = |since: &ViewId| !self.may_skip && self.after.is_none_or(|after| after.epoch < *since);
        since.filter(reaches_back).map(|epoch| NoRecords::Pruned { oldest: Position { epoch, sequence: 0 } })
    }

    pub(super) fn put(&self, out: &mut Writer) {
        out.text(&self.subgroup);
        out.u32(u32::from(self.after.is_some()));
        put_position(out, self.after.unwrap_or(Position { epoch: ViewId(0), sequence: 0 }));
        let (kind, bound) = match self.bound {
            RecordBound::Through(last) => (0, last),
            RecordBound::Before(epoch) => (1, Position { epoch, sequence: 0 }),
        };
        out.u32(kind);
        put_position(out, bound);
        out.u32(u32::from(self.may_skip));
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<WantedRecords, WireError> {
        let field = "name of a log";
        let subgroup = from.text(field)?.to_string();
        if subgroup.is_empty() || subgroup.len() > NAME_BYTES_MAX {
            return Err(WireError::Value { field });
        }
        let nothing = Position { epoch: ViewId(0), sequence: 0 };
        let after = match (from.u32()?, position(from)?) {
            (0, position) if position == nothing => None,
            (1, position) => Some(position),
            _ => return Err(WireError::Value { field: "position of a record" }),
        };
        let bound = match (from.u32()?, position(from)?) {
            (0, last) => RecordBound::Through(last),
            (1, Position { epoch, sequence: 0 }) => RecordBound::Before(epoch),
            _ => return Err(WireError::Value { field: "bound of records" }),
        };
        let may_skip = match from.u32()? {
            0 => false,
            1 => true,
            _ => return Err(WireError::Value { field: "records that may be left out" }),
        };
        Ok(WantedRecords { subgroup, after, bound, may_skip })
    }
}

impl NoRecords {
    pub(super) fn put(self, out: &mut Writer) {
        let (kind, position) = match self {
            NoRecords::NotMember => (0, None),
            NoRecords::CatchingUp => (1, None),
            NoRecords::Busy => (2, None),
            NoRecords::Pruned { oldest } => (3, Some(oldest)),
            NoRecords::Lacks { last: None } => (4, None),
            NoRecords::Lacks { last } => (5, last),
        };
        out.u32(kind);
        position.into_iter().for_each(|position| put_position(out, position));
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<NoRecords, WireError> {
        Ok(match from.u32()? {
            0 => NoRecords::NotMember,
            1 => NoRecords::CatchingUp,
            2 => NoRecords::Busy,
            3 => NoRecords::Pruned { oldest: position(from)? },
            4 => NoRecords::Lacks { last: None },
            5 => NoRecords::Lacks { last: Some(position(from)?) },
            _ => return Err(WireError::Value { field: "reason for no records" }),
        })
    }
}

fn put_position(out: &mut Writer, position: Position) {
    out.u64(position.epoch.0);
    out.u64(position.sequence);
}

fn position(from: &mut Reader<'_>) -> Result<Position, WireError> {
    Ok(Position { epoch: ViewId(from.u64()?), sequence: from.u64()? })
}

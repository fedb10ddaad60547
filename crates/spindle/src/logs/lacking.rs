//! The records that a log lacks.
use super::{CatchUpStatus, LogCatchUp};
use spindle_core::{Records, Rows, ViewId};

/// The records that a log lacks.
pub(super) enum Lack {
    Nothing,
    /// An earlier process has written it, and this one is not in the subgroup yet.
    Unknown,
    /// Records of the epochs before a view.
    Older(OlderRecords),
}

pub(super) struct OlderRecords {
    pub(super) before: ViewId,
    /// Whether messages of later epochs were not taken, so that they are missing as well. A view
    /// begins soon, which tells how many.
    pub(super) lacks_rest: bool,
    /// Whether messages of epochs in which this member was were not taken.
    pub(super) has_skipped: bool,
    pub(super) catch_up: Option<Box<LogCatchUp>>,
}

impl Lack {
    /// Whether records are missing that others may send.
    pub(super) fn is_some(&self) -> bool {
        matches!(self, Lack::Older(_))
    }

    /// Begins an epoch with a view, which this member is in or not.
    pub(super) fn begin(&mut self, view: ViewId, is_in: bool) {
        match self {
            Lack::Unknown if is_in => {
                *self =
                    Lack::Older(OlderRecords { before: view, lacks_rest: false, has_skipped: false, catch_up: None });
            }
            Lack::Older(older) => (older.before, older.lacks_rest) = (view, false),
            Lack::Nothing | Lack::Unknown => {}
        }
    }

    /// Takes messages that the log gets from others: those of an epoch that has ended. The others
    /// stay in the rings.
    pub(super) fn take<R: Rows>(&mut self, records: &mut Records<'_, R>) {
        if let Lack::Older(older) = self
            && records.is_rest()
        {
            older.lacks_rest = true;
            records.offer(|_| {
                older.has_skipped = true;
                true
            });
        }
    }

    pub(super) fn status(&self) -> Option<CatchUpStatus> {
        match self {
            Lack::Older(older) => Some(older.catch_up.as_ref().map(|catch_up| catch_up.status()).unwrap_or_default()),
            Lack::Nothing | Lack::Unknown => None,
        }
    }

    pub(super) fn catch_up(&mut self) -> Option<&mut LogCatchUp> {
        match self {
            Lack::Older(older) => older.catch_up.as_deref_mut(),
            Lack::Nothing | Lack::Unknown => None,
        }
    }
}

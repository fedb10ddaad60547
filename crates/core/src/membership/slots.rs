//! The slots of a row, which hold the proposed values.
use super::ballot::Ballot;
use super::proposal;
use crate::ids::Rank;
use crate::table::Rows;
use crate::wire::layout::Layout;
use alloc::vec::Vec;
use core::ops::Range;

pub(super) fn slot_bytes(layout: &Layout, member: Rank) -> u64 {
    let slots = &layout.row(member).proposals;
    (slots.end - slots.start) / 2
}

/// Returns the range of the row of `member` in which the value with this slot is stored.
pub(super) fn slot_range(layout: &Layout, member: Rank, slot: u64) -> Range<u64> {
    let bytes = slot_bytes(layout, member);
    let start = layout.row(member).proposals.start + slot * bytes;
    start..start + bytes
}

/// Reads the words in `range` of the row of `member`. The second word is the number of words after
/// it.
pub(super) fn read<R: Rows>(member: Rank, range: &Range<u64>, rows: &R) -> Vec<u64> {
    let count = rows.load(member, range.start + 8).saturating_add(2).min((range.end - range.start) / 8);
    (0..count).map(|i| rows.load(member, range.start + 8 * i)).collect()
}

/// Reads the value that the word at `at` of the row of `member` names; `None` if it names none, or
/// if the value is incomplete.
pub(super) fn read_value<R: Rows>(member: Rank, at: u64, layout: &Layout, rows: &R) -> Option<(Ballot, Vec<u64>)> {
    let word = rows.load(member, at);
    let (ballot, slot) = Ballot::decode(word, layout.rows().len())?;
    let words = read(member, &slot_range(layout, member, slot), rows);
    // Two values later the slot is written again, after the word has changed.
    let is_current = rows.load(member, at) == word;
    let is_whole = proposal::ballot_of(&words) == Some(ballot.encode(0));
    (is_current && is_whole).then_some((ballot, words))
}

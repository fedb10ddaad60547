//! A copy of a row, and its extent.
use std::cell::Cell;
use std::ops::Range;

/// One member's copy of one row.
#[derive(Debug)]
pub(crate) struct RowCopy {
    /// The control block, by word. It consists of cells, because words arrive while an engine
    /// reads.
    pub(super) control: Box<[Cell<u64>]>,
    /// The words of the control block that may take any value: those of proposals.
    pub(super) free: [Range<u64>; 2],
    pub(super) membership: u64,
    /// The rings after the control block.
    pub(super) rings: Box<[u8]>,
}

/// The extent of one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// The size of the whole row in bytes.
    pub(crate) size: u64,
    /// The size of its control block in bytes.
    pub(crate) control: u64,
    /// The size of its membership block in bytes.
    pub(crate) membership: u64,
    /// Words that may decrease.
    pub(crate) free: [Range<u64>; 2],
}

impl RowCopy {
    pub(super) fn new(extent: &Extent) -> RowCopy {
        let Extent { size, control, membership, free } = extent.clone();
        RowCopy {
            free,
            membership,
            control: (0..control / 8).map(|_| Cell::new(0)).collect(),
            rings: vec![0; (size - control) as usize].into(),
        }
    }

    pub(super) fn control_bytes(&self) -> u64 {
        self.control.len() as u64 * 8
    }

    pub(crate) fn word(&self, at: u64) -> u64 {
        assert!(at.is_multiple_of(8), "offset {at} is unaligned");
        if at < self.control_bytes() {
            return self.control[at as usize / 8].get();
        }
        u64::from_le_bytes(self.slice(at, 8).try_into().expect("8 bytes"))
    }

    pub(crate) fn slice(&self, at: u64, len: u64) -> &[u8] {
        let start = at.checked_sub(self.control_bytes()).expect("only rings are read as bytes") as usize;
        &self.rings[start..start + len as usize]
    }

    pub(crate) fn slice_mut(&mut self, at: u64, len: u64) -> &mut [u8] {
        let start = (at - self.control_bytes()) as usize;
        &mut self.rings[start..start + len as usize]
    }

    pub(super) fn set(&mut self, at: u64, value: u64) {
        if at < self.control_bytes() {
            self.control[at as usize / 8].set(value);
        } else {
            self.slice_mut(at, 8).copy_from_slice(&value.to_le_bytes());
        }
    }
}

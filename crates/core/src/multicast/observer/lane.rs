//! The ring of one sender as an observer reads it.
//!
//! No sender waits for an observer. A frame counts only if the sender had not freed it after it was
//! copied.
use super::Lapped;
use crate::ids::{Rank, SubgroupId};
use crate::multicast::cursor::ROUNDS_MAX;
use crate::table::Rows;
use crate::wire::layout::entry;
use crate::wire::ring::{HEADER_BYTES, Header, Kind, Ring};
use alloc::vec::Vec;

/// The state of one sender.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) sender: Rank,
    pub(super) ring: Ring,
    pub(super) entry: u64,
    pub(super) position: u64,
    /// No frame from `position` on has a smaller round.
    pub(super) next: u64,
    /// Rounds before this one were yielded in the view before.
    pub(super) known: u64,
    /// Rounds from this one on are not part of the view.
    pub(super) trim: u64,
}

/// A frame as stored in a ring.
pub(super) struct Found {
    pub(super) round: u64,
    pub(super) span: u64,
    /// Bytes of the content of the frame: a message, or the name of an object.
    pub(super) len: Option<u64>,
    pub(super) is_object: bool,
}

impl Lane {
    pub(super) fn published<R: Rows>(&self, rows: &R) -> u64 {
        rows.load(self.sender, self.entry + entry::PUBLISHED)
    }

    /// The number of rounds that the sender has announced, as far as this row shows it.
    pub(super) fn announced<R: Rows>(&self, rows: &R) -> u64 {
        rows.load(self.sender, self.entry + entry::ROUNDS)
    }

    /// Whether all rounds of the view have arrived, once its end is known.
    pub(super) fn has_all<R: Rows>(&self, rows: &R) -> bool {
        self.announced(rows) >= self.trim
    }

    /// The frame at the position, if a frame of the view is announced there. `is_lapped` returns
    /// whether it was still there.
    pub(super) fn look<R: Rows>(&self, rows: &R) -> Option<Found> {
        if self.position >= self.published(rows) {
            return None;
        }
        let at = self.ring.offset(self.position);
        let (word, round) = (rows.load(self.sender, at), rows.load(self.sender, at + 8));
        // Garbage ends the lane, as it does at the members. A frame that was overwritten looks like
        // garbage.
        let header = Header::decode(word, &self.ring).filter(|_| (self.next..self.trim).contains(&round))?;
        let is_object = header.kind == Kind::Object;
        let len = (is_object || header.kind == Kind::Message).then_some(header.len);
        Some(Found { round, span: header.span, len, is_object })
    }

    /// Whether the data read at the position may have been overwritten meanwhile.
    fn is_lapped<R: Rows>(&self, rows: &R) -> bool {
        // Loads have acquire order, so this one comes after those of the frame.
        self.freed(rows) > self.position
    }

    pub(super) fn freed<R: Rows>(&self, rows: &R) -> u64 {
        rows.load(self.sender, self.entry + entry::FREED)
    }

    fn pass(&mut self, found: &Found) {
        self.position = self.ring.after(self.position, found.span);
        self.next = found.round + 1;
    }

    /// Passes over the frames stored so far whose round is before `round`. Returns whether any
    /// frames were already overwritten.
    pub(super) fn pass_until<R: Rows>(&mut self, rows: &R, round: u64) -> bool {
        let published = self.published(rows);
        let mut is_lost = false;
        loop {
            let freed = self.freed(rows);
            is_lost |= freed > self.position;
            self.position = self.position.max(freed);
            if self.position >= published {
                return is_lost;
            }
            let found = self.look(rows);
            if self.is_lapped(rows) {
                continue;
            }
            match found {
                Some(found) if found.round < round => self.pass(&found),
                _ => return is_lost,
            }
        }
    }

    /// Moves to the present of a sender whose messages wait for no other sender's, and finds its
    /// next round.
    pub(super) fn go_to_present<R: Rows>(&mut self, rows: &R) {
        self.pass_until(rows, ROUNDS_MAX);
        loop {
            self.position = self.position.max(self.freed(rows));
            let found = self.look(rows);
            if self.is_lapped(rows) {
                continue;
            }
            let rounds = self.announced(rows);
            match found {
                Some(found) => self.next = found.round,
                // `rounds` is announced after `published`: if that has changed meanwhile, this may
                // be beyond the position.
                None if self.published(rows) <= self.position => self.next = self.next.max(rounds),
                None if self.look(rows).is_some() => continue,
                None => {}
            }
            return;
        }
    }

    /// Takes the next frame, copied.
    pub(super) fn take<R: Rows>(
        &mut self,
        id: SubgroupId,
        rows: &R,
        copy: &mut Vec<u8>,
    ) -> Result<Option<Found>, Lapped> {
        let found = self.look(rows);
        if let Some(len) = found.as_ref().and_then(|found| found.len) {
            self.copy(rows, len, copy);
        }
        if self.is_lapped(rows) {
            return Err(Lapped { subgroup: id, sender: self.sender, round: self.next, is_object: false });
        }
        if let Some(found) = &found {
            self.pass(found);
        }
        Ok(found)
    }

    /// Takes the frame of this round, copied, if it exists. Passes over frames before it. All
    /// rounds before `announced` are announced.
    pub(super) fn take_round<R: Rows>(
        &mut self,
        id: SubgroupId,
        rows: &R,
        round: u64,
        announced: u64,
        copy: &mut Vec<u8>,
    ) -> Result<Option<Found>, Lapped> {
        loop {
            let position = self.position;
            match self.take(id, rows, copy)? {
                Some(found) if found.round < round => {}
                Some(found) if found.round == round => return Ok(Some(found)),
                Some(found) => {
                    // The frame is for later: this round is a null.
                    self.position = position;
                    self.next = found.round;
                    return Ok(None);
                }
                None => {
                    // So are all rounds that are announced.
                    self.next = self.next.max(announced);
                    return Ok(None);
                }
            }
        }
    }

    pub(super) fn copy<R: Rows>(&self, rows: &R, len: u64, copy: &mut Vec<u8>) {
        let at = self.ring.offset(self.position) + HEADER_BYTES;
        copy.clear();
        for at in (at..at + len).step_by(8) {
            copy.extend_from_slice(&rows.load(self.sender, at).to_le_bytes());
        }
        copy.truncate(len as usize);
    }
}

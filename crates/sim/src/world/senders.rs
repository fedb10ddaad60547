//! Application threads that send: they claim, build a message for a while, and commit.
use super::stage::Seat;
use super::{Checked, Event, World};
use crate::apps::{App, digest, fill};
use crate::checkers::{bounded, frame_safety};
use crate::ledger::Fate;
use crate::options::Visibility;
use crate::table::Interruption;
use spindle_core::ring::{HEADER_BYTES, Header, Kind, frame_bytes};
use spindle_core::{Order, SubgroupId};
use std::sync::Arc;

impl World<'_> {
    /// An application thread does its next thing: claims, or commits what it has claimed.
    pub(super) fn step(&mut self, i: usize) -> Checked {
        let committed = if self.apps[i].holding.is_some() {
            self.commit(i)();
            self.wake(self.apps[i].seat);
            true
        } else {
            std::mem::take(&mut self.apps[i].early)
        };
        if !committed {
            return self.claim(i);
        }
        if self.apps[i].left > 0 {
            let at = self.now + self.think(i);
            self.push(at, Event::App(i));
        }
        Ok(())
    }

    fn claim(&mut self, i: usize) -> Checked {
        let faults = &self.plan.faults;
        let app = &mut self.apps[i];
        let (seat, id) = (app.seat, app.plan.subgroup);
        let Seat { stage, rank } = seat;
        if faults.skips && self.random.one_in(20) {
            let rounds = self.random.range(1, 30);
            app.claims.skip_rounds(rounds);
            if self.stages[stage].ledger.groups[id.index()].order == Order::Total {
                self.stages[stage].null_rule.skipped(id, app.sender, rounds);
            }
            note!(self, "m{rank} s{id} skips {rounds} rounds");
            self.wake(seat);
        }
        let app = &mut self.apps[i];
        let most = app.claims.ring().message_bytes_max;
        let len = match self.random.below(8) {
            0 | 1 if faults.empty_messages => 0,
            2 | 3 if faults.full_messages => most,
            4 | 5 => self.random.below(most.min(64) + 1),
            _ => self.random.below(most + 1),
        };
        let claimed = match &app.exclusive {
            Some(exclusive) => app.claims.claim_exclusive(&mut exclusive.borrow_mut(), len),
            None => app.claims.claim(len),
        };
        let Ok(claim) = claimed else {
            note!(self, "m{rank} s{id} has no room for {len} bytes");
            app.parked = true;
            return Ok(());
        };
        let at = claim.payload_offset(app.claims.ring()) - HEADER_BYTES;
        let span = frame_bytes(len);
        let sender = app.sender;
        app.left -= 1;
        let ledger = &mut self.stages[stage].ledger;
        let group = &mut ledger.groups[id.index()];
        frame_safety::claimed(group, id, sender, at, span)?;
        bounded::claimed(&group.lanes[sender], id, at, span)?;
        let number = self.history.claimed(self.apps[i].plan.member, id);
        let index = ledger.claimed(id, sender, at, span, number);
        note!(self, "m{rank} s{id} claims {len} bytes: claim {index}");
        self.hash.add(at);
        self.apps[i].holding = Some((claim, index, at));
        // A half-built message: whoever still reads what stood here will notice.
        self.write(seat, at + HEADER_BYTES, len, |bytes| bytes.fill(0xee));
        let held = self.now + self.random.range(10, self.apps[i].plan.hold_ns);
        self.push(held, Event::App(i));
        Ok(())
    }

    /// An application writes into its row; in shared memory all peers see it at once.
    fn write(&mut self, seat: Seat, at: u64, len: u64, write: impl Fn(&mut [u8])) {
        let (tables, me) = (&mut self.stages[seat.stage].tables, seat.rank.index());
        if self.plan.visibility == Visibility::Posted {
            write(tables[me].rows[me].slice_mut(at, len));
            return;
        }
        for table in tables {
            write(table.rows[me].slice_mut(at, len));
        }
    }

    /// An application ends its claim; answers the last step of that, which the engine sees, and with which the claims are
    /// closed if it was the last.
    pub(super) fn commit(&mut self, i: usize) -> Interruption {
        let app = &mut self.apps[i];
        let process = app.plan.member;
        let (seat, id, sender) = (app.seat, app.plan.subgroup, app.sender);
        let Seat { stage, rank } = seat;
        let me = rank.index();
        let (claim, index, at) = app.holding.take().expect("a claim");
        let void = self.plan.faults.voids && self.random.one_in(10);
        let len = if self.random.one_in(8) { self.random.below(claim.len() + 1) } else { claim.len() };
        let content = crate::random::mix(u64::from(id.0) << 48 | (sender as u64) << 32 | index as u64);
        self.write(seat, at + HEADER_BYTES, len, |bytes| fill(bytes, content));
        let bytes = self.stages[stage].tables[me].rows[me].slice(at + HEADER_BYTES, len);
        let fate = if void { Fate::Void } else { Fate::Message { len, digest: digest(bytes) } };
        let kind = if void { Kind::Void } else { Kind::Message };
        // The header that `Claims::commit` is going to store, a moment earlier: the engine looks at it only behind the mark.
        let span = frame_bytes(claim.len());
        let word = Header { kind, span, len }.encode();
        self.stages[stage].tables[me].set_own(at, word);
        self.spread(seat, at, word);
        let ledger = &mut self.stages[stage].ledger;
        ledger.committed(id, sender, index, fate);
        let number = ledger.lane(id, sender).frames[index].number;
        self.history.committed(process, id, number, fate);
        self.hash.add(word);
        note!(self, "m{rank} s{id} commits claim {index}: {kind:?} of {len} bytes");
        let same = |app: &App| app.seat == seat && app.plan.subgroup == id;
        let closes = self.plan.faults.early_close
            && self.apps.iter().all(|app| !same(app) || (app.left == 0 && app.holding.is_none()));
        if closes {
            note!(self, "m{rank} s{id} closes its claims");
        }
        let claims = Arc::clone(&self.apps[i].claims);
        let exclusive = self.apps[i].exclusive.clone();
        if let Some(exclusive) = &exclusive {
            let round = claims.guess_round(&exclusive.borrow());
            self.stages[stage].tables[me].set_own(at + 8, round);
            self.spread(seat, at + 8, round);
        }
        Box::new(move || {
            let ring = *claims.ring();
            let stores = |position, header| assert_eq!((ring.offset(position), header), (at, word));
            match exclusive {
                Some(exclusive) => claims.commit_exclusive(&mut exclusive.borrow_mut(), claim, kind, len, stores),
                None => claims.commit(claim, kind, len, stores),
            }
            if closes {
                claims.close();
            }
        })
    }

    fn think(&mut self, i: usize) -> u64 {
        let longest = self.apps[i].plan.think_ns;
        if !self.plan.faults.bursts {
            return self.random.range(10, longest);
        }
        match self.random.below(16) {
            0 => self.random.range(longest, longest * 16),
            _ => self.random.range(10, 60),
        }
    }

    pub(super) fn close(&mut self, seat: Seat, id: SubgroupId) {
        let Seat { stage, rank } = seat;
        self.stages[stage].member(rank).engine.claims(id).expect("a sender").close();
        note!(self, "m{rank} s{id} closes its claims");
        self.wake(seat);
    }
}

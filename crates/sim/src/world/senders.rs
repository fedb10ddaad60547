//! Sending application threads: they claim, build a message for a while, and commit.
use super::{Event, World};
use crate::apps::{App, OpenRing, digest, fill};
use crate::checkers::clock_bound::SKEW_MAX_NS;
use crate::checkers::{Checked, Violation, bounded, frame_safety};
use crate::ledger::ClaimState;
use crate::options::Visibility;
use crate::random::mix;
use crate::seat::Seat;
use crate::table::Interruption;
use spindle_core::clock::bounded as bounded_clock;
use spindle_core::wire::ring::{HEADER_BYTES, Header, Kind, TIME_BYTES};
use spindle_core::{Claim, Order, SubgroupId};
use std::sync::Arc;

/// The longest time until all members have an object.
const OBJECT_NS_MAX: u64 = 60_000;

impl World<'_> {
    /// Runs the next step of an application thread: it claims, or commits its claim.
    pub(super) fn step(&mut self, i: usize) -> Checked {
        let committed = if self.apps[i].holding.is_some() {
            self.commit(i)();
            true
        } else {
            std::mem::take(&mut self.apps[i].early)
        };
        if !committed {
            return self.claim(i);
        }
        if let Some(ring) = &self.apps[i].ring {
            self.wake(ring.seat);
        }
        // If the epoch of the ring has ended, the next view's engine has to send this message
        // again.
        if let Some(seat) = self.processes[self.apps[i].plan.member].seat {
            self.wake(seat);
        }
        if self.apps[i].left > 0 {
            let at = self.now + self.think(i);
            self.push(at, Event::App(i));
        } else {
            self.leave_ended_ring(i);
        }
        Ok(())
    }

    fn claim(&mut self, i: usize) -> Checked {
        let faults = &self.plan.faults;
        let app = &mut self.apps[i];
        // The application waits for its next ring.
        let Some(ring) = app.ring.clone() else { return Ok(()) };
        let (seat, id) = (ring.seat, ring.subgroup);
        if faults.skips && self.random.one_in(20) {
            let rounds = self.random.range(1, 30);
            ring.claims.skip_rounds(rounds);
            let stage = &mut self.stages[seat.stage];
            if stage.ledger.groups[id.index()].order == Order::Total {
                stage.null_rule.skipped(id, ring.sender, rounds);
            }
            note!(self, "{seat} s{id} skips {rounds} rounds");
            self.wake(seat);
        }
        let most = ring.claims.ring().message_bytes_max;
        let len = match self.random.below(8) {
            0 | 1 if faults.empty_messages => 0,
            2 | 3 if faults.full_messages => most,
            4 | 5 => self.random.below(most.min(64) + 1),
            _ => self.random.below(most + 1),
        };
        let Some(claim) = ring.claim(len) else {
            note!(self, "{seat} s{id} has no room for {len} bytes");
            self.apps[i].parked = true;
            drop(ring);
            self.leave_ended_ring(i);
            return Ok(());
        };
        let app = &mut self.apps[i];
        app.left -= 1;
        let number = self.history.claimed(app.plan.member, id);
        let held = self.now + self.random.range(10, app.plan.hold_ns);
        let (index, at) = self.enter(&ring, &claim, number)?;
        self.apps[i].holding = Some((claim, index, at));
        // This makes a half-built message visible: a member that still reads the old frame in this
        // place gets wrong bytes.
        self.write(seat, at + HEADER_BYTES, len, |bytes| bytes.fill(0xee));
        self.push(held, Event::App(i));
        Ok(())
    }

    /// Enters a claim in the ledger. Returns its index there and the offset of the frame.
    pub(super) fn enter(&mut self, ring: &OpenRing, claim: &Claim, number: u64) -> Result<(usize, u64), Violation> {
        let (seat, id, sender) = (ring.seat, ring.subgroup, ring.sender);
        let at = claim.payload_offset(ring.claims.ring()) - HEADER_BYTES;
        let span = claim.span();
        let ledger = &mut self.stages[seat.stage].ledger;
        let group = &mut ledger.groups[id.index()];
        frame_safety::claimed(group, id, sender, at, span)?;
        bounded::claimed(&group.lanes[sender], id, at, span)?;
        let index = ledger.claimed(id, sender, at, span, number);
        note!(self, "{seat} s{id} claims {} bytes: claim {index}, message {number}", claim.len());
        self.hash.add(at);
        Ok((index, at))
    }

    /// Writes into a row for an application, or for a member that sends again. In shared memory all
    /// peers see it at once.
    pub(super) fn write(&mut self, seat: Seat, at: u64, len: u64, write: impl Fn(&mut [u8])) {
        let (tables, me) = (&mut self.stages[seat.stage].tables, seat.rank.index());
        if self.plan.visibility == Visibility::Posted {
            write(tables[me].rows[me].slice_mut(at, len));
            return;
        }
        for table in tables {
            write(table.rows[me].slice_mut(at, len));
        }
    }

    /// Ends a claim of an application. Returns the last step of the commit, which the engine sees.
    /// If the claim was the last one, this step also closes the claims.
    pub(super) fn commit(&mut self, i: usize) -> Interruption {
        let app = &mut self.apps[i];
        let process = app.plan.member;
        let ring = app.ring.clone().expect("it claims somewhere");
        let (seat, id) = (ring.seat, ring.subgroup);
        let (claim, index, at) = app.holding.take().expect("a claim");
        let void = self.plan.faults.voids && self.random.one_in(10);
        let len = if self.random.one_in(8) { self.random.below(claim.len() + 1) } else { claim.len() };
        let number = self.stages[seat.stage].ledger.lane(id, ring.sender).frames[index].number;
        // The payload depends on the sender and its own number for the message, in every view.
        let content = mix(u64::from(id.0) << 48 | (process as u64) << 32 | number);
        self.write(seat, at + HEADER_BYTES, len, |bytes| fill(bytes, content));
        let kind = match void {
            true => Kind::Void,
            // This is not drawn, so that seeds without objects stay the same.
            false if self.plan.faults.objects && mix(content).is_multiple_of(4) => Kind::Object,
            false => Kind::Message,
        };
        let (fate, commit) = self.seal(&ring, claim, index, kind, len);
        self.history.committed(process, id, number, fate);
        let same = |app: &App| app.is_at(seat, id);
        let closes = self.plan.faults.early_close
            && self.apps.iter().all(|app| !same(app) || (app.left == 0 && app.holding.is_none()));
        if closes {
            note!(self, "{seat} s{id} closes its claims");
        }
        let claims = Arc::clone(&ring.claims);
        Box::new(move || {
            commit();
            if closes {
                claims.close();
            }
        })
    }

    /// Writes the header of a frame whose payload is in the row, and enters the frame in the
    /// ledger. Returns the frame's state, and the last step of the commit.
    pub(super) fn seal(
        &mut self,
        ring: &OpenRing,
        claim: Claim,
        index: usize,
        kind: Kind,
        len: u64,
    ) -> (ClaimState, Interruption) {
        let (seat, id, sender) = (ring.seat, ring.subgroup, ring.sender);
        let Seat { stage, rank } = seat;
        let me = rank.index();
        let at = claim.payload_offset(ring.claims.ring()) - HEADER_BYTES;
        let bytes = self.stages[stage].tables[me].rows[me].slice(at + HEADER_BYTES, len);
        let fate =
            if kind == Kind::Void { ClaimState::Void } else { ClaimState::Message { len, digest: digest(bytes) } };
        // This is the header that `Claims::commit` will store, a moment earlier: the engine reads
        // it only after the mark.
        let span = claim.span();
        if ring.claims.trailer_bytes() > 0 {
            // The origin of the clocks, as in `clock`.
            let time = bounded_clock(self.clock(seat).0, self.now + (1 << 60), SKEW_MAX_NS).to_le_bytes();
            self.write(seat, at + span - TIME_BYTES, TIME_BYTES, |bytes| bytes.copy_from_slice(&time));
        }
        let word = Header { kind, span, len }.encode();
        self.stages[stage].tables[me].set_own(at, word);
        self.spread(seat, at, word);
        self.stages[stage].ledger.committed(id, sender, index, fate);
        self.hash.add(word);
        note!(self, "{seat} s{id} commits claim {index}: {kind:?} of {len} bytes");
        let position = claim.position();
        if kind == Kind::Object {
            self.stages[stage].ledger.hold(id, sender, index);
            ring.held.borrow_mut().insert(position);
            // The object must first arrive at all members, after a delay of its own.
            let whole = self.now + 1 + mix(self.hash.value()) % OBJECT_NS_MAX;
            self.push(whole, Event::Release(self.objects.len()));
            self.objects.push((ring.clone(), position, index));
        }
        if let Some(exclusive) = &ring.exclusive {
            let round = ring.claims.guess_round(&exclusive.borrow());
            self.stages[stage].tables[me].set_own(at + 8, round);
            self.spread(seat, at + 8, round);
        }
        let opened = ring.clone();
        let commit = move || {
            if kind == Kind::Object {
                opened.set_gate();
            }
            let OpenRing { claims, exclusive, .. } = opened;
            let ring = *claims.ring();
            let stores = |position, header| assert_eq!((ring.offset(position), header), (at, word));
            match exclusive {
                Some(exclusive) => claims.commit_exclusive(&mut exclusive.borrow_mut(), claim, kind, len, stores),
                None => claims.commit(claim, kind, len, stores),
            }
        };
        (fate, Box::new(commit))
    }

    /// Releases an object that every member has.
    pub(super) fn release(&mut self, i: usize) -> Checked {
        let (ring, position, index) = self.objects[i].clone();
        note!(self, "{} s{} every member has the object of claim {index}", ring.seat, ring.subgroup);
        self.stages[ring.seat.stage].ledger.release(ring.subgroup, ring.sender, index);
        ring.held.borrow_mut().remove(&position);
        ring.set_gate();
        self.wake(ring.seat);
        Ok(())
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
        self.stages[seat.stage].member(seat.rank).engine.claims(id).expect("a sender").close();
        note!(self, "{seat} s{id} closes its claims");
        self.wake(seat);
    }
}

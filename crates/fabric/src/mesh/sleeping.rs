//! How a member sleeps, and what wakes it.
use super::Mesh;
use super::sleeper::{Lingering, Sleeper};
use crate::connections::Connections;
use crate::event_count::Doorbell;
use crate::fabric::Fabric;
use crate::publisher::Publisher;
use crate::reader::Reader;
use spindle_core::{Claims, Rank};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An announcement is withdrawn when work was found this many times in a row.
pub(super) const WORKED_MAX: u32 = 64;
/// The time after an announcement at which the member looks once more. At the moment of the
/// announcement a ring may be missed ([`crate::barrier`]), and this look finds the work that the
/// ring was for. By then every peer sees the announcement.
pub(super) const NAP: Duration = Duration::from_millis(1);

impl<C: Connections> Mesh<C> {
    /// Returns the part of this view that lasts as long as applications of this process still use
    /// its rings: until `user` is dropped.
    pub fn linger(&self, user: &Arc<()>) -> Lingering {
        Lingering { event_count: self.event_count.clone(), announced: None, user: Arc::downgrade(user) }
    }

    /// Listens to applications that still use rings of ended views, in which the same event count
    /// woke this member.
    pub fn listen_to(&mut self, lingering: Vec<Lingering>) {
        self.withdraw();
        self.lingering = lingering;
        self.forget_unused();
    }

    fn forget_unused(&mut self) {
        self.lingering.retain_mut(|lingering| {
            let is_used = lingering.user.strong_count() > 0;
            if !is_used {
                lingering.withdraw();
            }
            is_used
        });
    }

    /// Takes back the entries that [`listen_to`](Self::listen_to) was given.
    pub fn take_lingering(&mut self) -> Vec<Lingering> {
        self.withdraw();
        std::mem::take(&mut self.lingering)
    }

    /// A function of its own, because an announcement is in force after few of the polls that found
    /// work.
    #[cold]
    fn stay_awake(&mut self) {
        let Some(sleeper) = &mut self.announced else { return };
        if !std::mem::replace(&mut sleeper.is_awake, true) {
            self.event_count.disarm();
        }
        sleeper.worked += 1;
        if sleeper.worked >= WORKED_MAX {
            self.withdraw();
        }
    }
}

impl<C: Connections> Fabric for Mesh<C> {
    type Reader = Reader;

    fn me(&self) -> Rank {
        self.me
    }

    fn members(&self) -> u32 {
        self.rows.members()
    }

    fn reader(&self) -> Reader {
        self.rows.clone()
    }

    fn doorbell(&self) -> Doorbell {
        self.event_count.doorbell()
    }

    #[inline]
    fn progress(&mut self) -> bool {
        if self.far.is_empty() {
            return false;
        }
        let (sent, arrived) = self.far.progress(&self.row);
        self.arrived |= arrived;
        self.note_arrival(arrived);
        sent | arrived
    }

    fn is_flushed(&self) -> bool {
        self.far.is_flushed()
    }

    fn begin_sleep(&mut self) {
        let by_event = !self.far.is_empty();
        if self.announced.as_ref().is_some_and(|sleeper| sleeper.by_event != by_event) {
            self.withdraw();
        }
        self.arrived = false;
        match &mut self.announced {
            Some(sleeper) => {
                sleeper.settled = sleeper.settled || sleeper.since.elapsed() >= NAP;
                if std::mem::take(&mut sleeper.is_awake) {
                    sleeper.worked = 0;
                    self.event_count.rearm(&mut sleeper.announced, by_event);
                    self.forget_unused();
                }
            }
            None => {
                self.forget_unused();
                self.lingering.iter_mut().for_each(Lingering::announce);
                let announced =
                    if by_event { self.event_count.announce_for_event() } else { self.event_count.announce() };
                let (since, settled, is_awake, worked) = (Instant::now(), false, false, 0);
                self.announced = Some(Sleeper { announced, by_event, since, settled, is_awake, worked });
            }
        }
    }

    fn sleep(&mut self, at_most: Duration) -> bool {
        let sleeper = self.announced.as_mut().filter(|sleeper| !sleeper.is_awake);
        let Some(Sleeper { announced, by_event, settled, .. }) = sleeper else { return true };
        let at_most = if *settled { at_most } else { at_most.min(NAP) };
        // By the means that was announced, and not by the links that exist now: ringers go by the
        // announcement.
        let woken = if *by_event {
            self.far.flush(&self.row);
            let mut rung = self.event_count.is_rung(announced);
            let mut arrived = self.arrived;
            if !rung && !arrived {
                arrived = self.far.wait(at_most);
                self.moved |= arrived;
                self.arrivals += u64::from(arrived);
                rung = self.event_count.is_rung(announced);
            }
            // Also if it was neither: a ring that was late for an earlier sleep may have woken the
            // member.
            if rung || !arrived {
                self.event_count.clear();
            }
            rung || arrived
        } else {
            self.event_count.wait_on(announced, at_most)
        };
        if woken {
            self.end_sleep();
        }
        woken
    }

    #[inline]
    fn end_sleep(&mut self) {
        if self.announced.is_some() {
            self.stay_awake();
        }
    }

    fn publisher(&self, claims: Arc<Claims>) -> Publisher {
        Publisher::new(&self.row, claims, self.event_count.doorbell(), self.clock.clone())
    }
}

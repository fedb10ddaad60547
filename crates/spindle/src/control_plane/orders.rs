//! Carries out the roster's orders: control messages, watches, and this process's memory for
//! others.
use super::ways::Ways;
use super::{ControlPlane, Death, Handover, STARVED_PAUSE, lock};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use spindle_core::control::{self, Book, Letter, Me, Order};
use spindle_core::ids::CLIENT_IDS_FROM;
use spindle_core::{MemberId, ViewId};
use spindle_transport::mail::{Fate, fate};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

impl ControlPlane {
    /// Carries out the orders of the roster.
    pub(super) fn carry_out(&mut self) {
        while let Some(order) = self.roster.next_order() {
            match &mut self.ways {
                Ways::Mail(_) => self.carry_out_one(order),
                Ways::Local(board) => {
                    if let Order::HandOver { view, to } = order {
                        let Some(handover) = self.handovers.get(&view) else { continue };
                        for to in to {
                            let Ok(parts) = handover.try_clone() else { continue };
                            board.leave(to, || drop(lock(&board.parts).insert((view, self.me, to), parts)));
                        }
                    }
                }
            }
        }
        if let Ways::Mail(mail) = &mut self.ways {
            mail.forget_enclosed();
        }
        if self.roster.has_news() {
            self.notices.note();
        }
    }

    fn carry_out_one(&mut self, order: Order) {
        let Ways::Mail(mail) = &mut self.ways else { return };
        match order {
            Order::Near { to, letter, attachment } => {
                let fds = match letter.fds() {
                    0 => vec![],
                    _ => match mail.enclose(&attachment) {
                        Some(fd) => vec![fd],
                        None => return,
                    },
                };
                // If the outbox is full: a process that takes no control messages is suspected
                // soon.
                let _ = mail.outbox.push(to, letter, &fds);
            }
            Order::Far { address, whom, letter, attachment } => {
                if let Some(net) = &mail.net {
                    net.endpoint().send(&address, whom, &letter, &attachment);
                }
            }
            Order::HandOver { view, to } => self.hand_over(view, &to),
            Order::Dial { address, whom, purpose } => {
                if let Some(net) = &mail.net {
                    net.endpoint().dial(&address, Some(whom), purpose);
                }
            }
            Order::Watch { id, pid, birth } => self.watch(id, pid, birth),
            Order::Unwatch(id) => mail.unwatch(id),
            Order::WatchFar { address, id, view } => {
                if let Some(net) = &mail.net {
                    net.endpoint().watch(&address, id, self.roster.incarnation(), view);
                }
            }
            Order::CheckFar { address, id, view } => {
                if let Some(net) = &mail.net {
                    net.endpoint().check(&address, id, self.roster.incarnation(), view);
                }
            }
            Order::UnwatchFar(id) => {
                if let Some(net) = &mail.net {
                    net.endpoint().unwatch(id);
                }
            }
            Order::Forget(id) => mail.outbox.forget(id),
            Order::Retain(wanted) => {
                mail.mailbox.retain_peers(|id| wanted.contains(&id));
                // A process that waits for admission asks again, and an admin client waits for one
                // answer only.
                let is_outside = |id: &MemberId| id.0 < CLIENT_IDS_FROM && !wanted.contains(id);
                let outside: BTreeSet<MemberId> = mail.outbox.addressees().filter(is_outside).collect();
                outside.into_iter().for_each(|id| mail.outbox.forget(id));
            }
            Order::Restore => self.restore(),
            Order::LookUp(name) => {
                if let Some(net) = &mail.net {
                    net.endpoint().look_up(&name);
                }
            }
            Order::Probe(ids) => {
                let is_gone = |id: &MemberId| mail.mailbox.reaches(*id).is_ok_and(|reaches| !reaches);
                self.roster.unreached(ids.into_iter().filter(is_gone));
            }
        }
    }

    /// Watches a process of this host. If the system has no room for the watch, the process's
    /// memory comes with a descriptor of it, or the process is suspected.
    fn watch(&mut self, id: MemberId, pid: u32, birth: Option<control::Birth>) {
        let Ways::Mail(mail) = &mut self.ways else { return };
        let fate = match birth {
            Some(birth) => fate(pid, birth),
            None => i32::try_from(pid)
                .ok()
                .and_then(Pid::from_raw)
                .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
                .map_or(Fate::Unknown, Fate::Lives),
        };
        match fate {
            Fate::Lives(pidfd) => {
                if mail.watch(id, pidfd).is_err() {
                    self.roster.unwatched(id);
                }
            }
            Fate::Unknown => self.roster.unwatched(id),
            Fate::Ended => {
                self.roster.unwatched(id);
                self.deaths.extend(birth.map(|birth| (id, Death::Found(pid, birth))));
                self.notices.note_mail();
                self.notices.note();
            }
        }
    }

    /// Makes the socket of this process again, if it was removed. If that fails now, the watch
    /// reports the removal again.
    pub(super) fn restore(&mut self) {
        let Ways::Mail(mail) = &mut self.ways else { return };
        let is_renewed = mail.mailbox.restore().unwrap_or(false);
        if is_renewed && mail.watch.renew(&mail.mailbox).is_err() {
            // No descriptor is left. The control socket is read without a notice.
            self.starved_until = Some(Instant::now() + STARVED_PAUSE);
        }
    }

    /// Hands this member's memory for `view` to processes of this host.
    fn hand_over(&mut self, view: ViewId, others: &[MemberId]) {
        let card = self.roster.book().map(Book::card);
        let (address, rack) = card.map(|card| (card.address.clone(), card.rack.clone())).unzip();
        let rack = rack.flatten();
        let incarnation = self.incarnation();
        let Ways::Mail(mail) = &mut self.ways else { return };
        let Some(handover) = self.handovers.get(&view) else { return };
        let Handover { row, bell, lease, at, bytes, .. } = handover;
        let mut fds = [row, bell, &mail.pidfd, lease].map(Arc::clone).to_vec();
        fds.extend(handover.event.clone());
        for other in others.iter().filter(|id| !self.shown.contains(id)) {
            let (Me { id: from, pid, birth }, event) = (self.roster.process(), handover.event.is_some());
            let letter = Letter::Parts {
                incarnation,
                view,
                from,
                pid,
                birth,
                at: *at,
                bytes: *bytes,
                event,
                address: address.clone(),
                rack: rack.clone(),
            };
            // If the outbox is full: a process that takes no control messages is suspected soon.
            let _ = mail.outbox.push(*other, letter, &fds);
        }
    }
}

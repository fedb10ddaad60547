//! Carries out the roster's orders: control messages, watches, and this process's memory for
//! others.
use super::ways::Ways;
use super::{ControlPlane, Death, STARVED_PAUSE, SharedRowDescriptors};
use crate::shared::lock;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use spindle_core::control::{self, Book, ControlMessage, Me, RosterOrder};
use spindle_core::ids::CLIENT_IDS_FROM;
use spindle_core::{MemberId, ViewId};
use spindle_transport::rendezvous::{KernelAnswer, fate};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

impl ControlPlane {
    /// Carries out the orders of the roster.
    pub(super) fn carry_out(&mut self) {
        while let Some(order) = self.roster.next_order() {
            match &mut self.ways {
                Ways::Rendezvous(_) => self.carry_out_one(order),
                Ways::Local(board) => {
                    if let RosterOrder::HandOver { view, to } = order {
                        let Some(handover) = self.shared_rows.get(&view) else { continue };
                        for to in to {
                            let Ok(parts) = handover.try_clone() else { continue };
                            board.leave(to, || drop(lock(&board.parts).insert((view, self.me, to), parts)));
                        }
                    }
                }
            }
        }
        if let Ways::Rendezvous(rendezvous) = &mut self.ways {
            rendezvous.forget_enclosed();
        }
        if self.roster.has_news() {
            self.notices.note();
        }
    }

    fn carry_out_one(&mut self, order: RosterOrder) {
        let Ways::Rendezvous(rendezvous) = &mut self.ways else { return };
        match order {
            RosterOrder::Near { to, message, attachment } => {
                let fds = match message.fds() {
                    0 => vec![],
                    _ => match rendezvous.enclose(&attachment) {
                        Some(fd) => vec![fd],
                        None => return,
                    },
                };
                // If the outbox is full: a process that takes no control messages is suspected
                // soon.
                let _ = rendezvous.outbox.push(to, message, &fds);
            }
            RosterOrder::Far { address, whom, message, attachment } => {
                if let Some(net) = &rendezvous.net {
                    net.endpoint().send(&address, whom, &message, &attachment);
                }
            }
            RosterOrder::HandOver { view, to } => self.hand_over(view, &to),
            RosterOrder::Dial { address, whom, purpose } => {
                if let Some(net) = &rendezvous.net {
                    net.endpoint().dial(&address, Some(whom), purpose);
                }
            }
            RosterOrder::Watch { id, pid, birth } => self.watch(id, pid, birth),
            RosterOrder::Unwatch(id) => rendezvous.unwatch(id),
            RosterOrder::WatchFar { address, id, view } => {
                if let Some(net) = &rendezvous.net {
                    net.endpoint().watch(&address, id, self.roster.incarnation(), view);
                }
            }
            RosterOrder::CheckFar { address, id, view } => {
                if let Some(net) = &rendezvous.net {
                    net.endpoint().check(&address, id, self.roster.incarnation(), view);
                }
            }
            RosterOrder::UnwatchFar(id) => {
                if let Some(net) = &rendezvous.net {
                    net.endpoint().unwatch(id);
                }
            }
            RosterOrder::Forget(id) => rendezvous.outbox.forget(id),
            RosterOrder::Retain(wanted) => {
                rendezvous.control_socket.retain_peers(|id| wanted.contains(&id));
                // A process that waits for admission asks again, and an admin client waits for one
                // answer only.
                let is_outside = |id: &MemberId| id.0 < CLIENT_IDS_FROM && !wanted.contains(id);
                let outside: BTreeSet<MemberId> = rendezvous.outbox.addressees().filter(is_outside).collect();
                outside.into_iter().for_each(|id| rendezvous.outbox.forget(id));
            }
            RosterOrder::Restore => self.restore(),
            RosterOrder::LookUp(name) => {
                if let Some(net) = &rendezvous.net {
                    net.endpoint().look_up(&name);
                }
            }
            RosterOrder::Probe(ids) => {
                let is_gone = |id: &MemberId| rendezvous.control_socket.reaches(*id).is_ok_and(|reaches| !reaches);
                self.roster.unreached(ids.into_iter().filter(is_gone));
            }
        }
    }

    /// Watches a process of this host. If the system has no room for the watch, the process's
    /// memory comes with a descriptor of it, or the process is suspected.
    fn watch(&mut self, id: MemberId, pid: u32, birth: Option<control::Birth>) {
        let Ways::Rendezvous(rendezvous) = &mut self.ways else { return };
        let fate = match birth {
            Some(birth) => fate(pid, birth),
            None => i32::try_from(pid)
                .ok()
                .and_then(Pid::from_raw)
                .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
                .map_or(KernelAnswer::Unknown, KernelAnswer::Lives),
        };
        match fate {
            KernelAnswer::Lives(pidfd) => {
                if rendezvous.watch(id, pidfd).is_err() {
                    self.roster.unwatched(id);
                }
            }
            KernelAnswer::Unknown => self.roster.unwatched(id),
            KernelAnswer::Ended => {
                self.roster.unwatched(id);
                self.deaths.extend(birth.map(|birth| (id, Death::Found(pid, birth))));
                self.notices.note_messages();
                self.notices.note();
            }
        }
    }

    /// Makes the socket of this process again, if it was removed. If that fails now, the watch
    /// reports the removal again.
    pub(super) fn restore(&mut self) {
        let Ways::Rendezvous(rendezvous) = &mut self.ways else { return };
        let is_renewed = rendezvous.control_socket.restore().unwrap_or(false);
        if is_renewed && rendezvous.watch.renew(&rendezvous.control_socket).is_err() {
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
        let Ways::Rendezvous(rendezvous) = &mut self.ways else { return };
        let Some(handover) = self.shared_rows.get(&view) else { return };
        let SharedRowDescriptors { row, event_count, lease, at, bytes, .. } = handover;
        let mut fds = [row, event_count, &rendezvous.pidfd, lease].map(Arc::clone).to_vec();
        fds.extend(handover.event.clone());
        for other in others.iter().filter(|id| !self.shown.contains(id)) {
            let (Me { id: from, pid, birth }, event) = (self.roster.process(), handover.event.is_some());
            let message = ControlMessage::RowDescriptors {
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
            let _ = rendezvous.outbox.push(*other, message, &fds);
        }
    }
}

//! The duties of a driver: a process takes its inputs, lets the control plane act, and carries out
//! the resulting orders.
use super::entry::CLOCK_BEGIN;
use super::host::LockedRole;
use super::keeping::ObjectAnswer;
use super::logs::RecordArrival;
use super::network::PacketLoad;
use super::plan::{MS, S};
use super::process::{DeathNotice, Near, NetworkEvent, ProcessPhase, RowAccess, SimProcess};
use super::watching::ObserverStream;
use super::world::{BOUNDED, Broken, HostsWorld, ProcessEvent};
use crate::checkers::Checked;
use crate::checkers::Invariant;
use spindle_core::control::{Act, ControlEvent, ControlMessage, Me, Purpose, RosterOrder, To};
use spindle_core::ids::CLIENT_IDS_FROM;
use spindle_core::{MemberId, Time, ViewId};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The time within which a control message to a process of this host arrives.
const CONTROL_NS: (u64, u64) = (3_000, 60_000);
/// The pauses between two attempts to reach a process without an address.
const UNREACHED_NS: (u64, u64) = (MS, 100 * MS);
/// The number of control messages to one process that are stored while it has no address.
const UNREACHED_CONTROL_MESSAGES_MAX: usize = 64;
const DEATH: Invariant = Invariant(25, "a death is the end of a process");

/// The maximum number of orders of one process in a second.
const ORDERS_MAX: u64 = 60_000;
/// The maximum number of control messages that wait at one process.
const CONTROL_MESSAGES_MAX: usize = 20_000;

impl HostsWorld<'_> {
    /// Runs one step of a process.
    pub(super) fn step(&mut self, number: usize) -> Checked {
        let Some(mut process) = self.processes[number].take() else { return Ok(()) };
        let done = if !process.is_alive {
            Ok(())
        } else if process.paused_until.max(process.busy_until) > self.now {
            self.wake(number, process.paused_until.max(process.busy_until));
            Ok(())
        } else {
            self.act(&mut process)
        };
        self.processes[number] = Some(process);
        done
    }

    fn act(&mut self, process: &mut SimProcess) -> Checked {
        let now = Time(self.now);
        process.roster.set_clock((CLOCK_BEGIN + self.now).saturating_add_signed(process.clock));
        let news = self.take_news(process)?;
        let wake_at = match process.phase {
            ProcessPhase::Seeks(_) => self.seek(process, news)?,
            ProcessPhase::Installs(_) => self.install_first(process, news)?,
            ProcessPhase::Member(_) => self.take_part(process, news)?,
            ProcessPhase::Learns(_) => self.learn(process, news)?,
            ProcessPhase::Watches(_) => self.watch_group(process, news)?,
            ProcessPhase::Out => u64::MAX,
        };
        self.carry_out(process)?;
        let sends = self.send_states(process).min(self.send_record_parts(process));
        let posts = self.move_posts(process);
        let messages = self.flush(process);
        self.carry_out(process)?;
        let boot = process.boot.as_ref().map_or(u64::MAX, |boot| (now + boot.patience(now)).0.max(self.now + 1));
        // This step itself may have caused more input.
        let again = if process.roster.has_news() || !process.heard.is_empty() { self.now + 1_000 } else { u64::MAX };
        self.check_deaths(process)?;
        process.busy_until = self.now + std::mem::take(&mut process.busy_ns);
        self.wake(process.number, wake_at.min(posts).min(sends).min(messages).min(boot).min(again));
        Ok(())
    }

    /// Returns the events since the last step, in the order in which a driver processes them.
    fn take_news(&mut self, process: &mut SimProcess) -> Result<Vec<ControlEvent>, crate::Violation> {
        let now = Time(self.now);
        if std::mem::take(&mut process.is_displaced) && self.broken != Broken::RestoreForgotten {
            self.restore(process);
        }
        // Control messages come before the deaths, because messages of a dead process have arrived.
        // A message with memory waits until the process has room for the descriptors, and all later
        // ones wait behind it.
        let has_room = process.full_until <= self.now;
        while let Some(near) = process.control_socket.pop_front_if(|near| has_room || near.row.is_none()) {
            self.read(process, &near);
        }
        self.carry_out(process)?;
        for (load, card, nonce) in self.take_messages(process) {
            if let PacketLoad::ControlMessage(message, attachment) = load {
                let message = ControlMessage::decode(&message).expect("a control message of this version");
                process.roster.hear(message, Some((card, nonce)), &attachment, now);
                self.carry_out(process)?;
            }
        }
        while let Some(heard) = process.heard.pop_front() {
            self.hear_of_net(process, heard);
            self.carry_out(process)?;
        }
        let is_read = process.control_socket.is_empty() || self.broken == Broken::DeathsBeforeMessages;
        while let Some((id, death)) = process.deaths.pop_front_if(|_| is_read) {
            match death {
                DeathNotice::Found(of) => {
                    let Me { pid, birth, .. } = self.processes[of].as_ref().expect("another process").me;
                    process.roster.found_ended(id, pid, birth);
                }
                DeathNotice::Reported(of) if process.watched.get(&id) == Some(&of) => {
                    process.watched.remove(&id);
                    process.roster.watched_ended(id);
                }
                // The process watches another process with this id by now.
                DeathNotice::Reported(_) => {}
            }
        }
        let mut news = vec![];
        self.gather(process, &mut news)?;
        self.step_boot(process)?;
        let _ = self.flush(process);
        self.gather(process, &mut news)?;
        Ok(news)
    }

    fn gather(&mut self, process: &mut SimProcess, news: &mut Vec<ControlEvent>) -> Checked {
        self.carry_out(process)?;
        for one in process.roster.take_news() {
            if let ControlEvent::Bootstrap { from, nonce, config, words } = &one {
                if let Some(boot) = &mut process.boot {
                    boot.hear(*from, *nonce, *config, words, Time(self.now));
                }
            } else {
                news.push(one);
            }
        }
        Ok(())
    }

    /// Reads a control message of this host.
    fn read(&mut self, process: &mut SimProcess, near: &Near) {
        let message = ControlMessage::decode(&near.message).expect("a control message of this version");
        match (message, near.row) {
            (
                ControlMessage::RowDescriptors { incarnation, view, from, pid, birth, address, rack, .. },
                Some((row, owner)),
            ) => {
                let me = Me { id: from, pid, birth };
                let is_taken = process.roster.handed_over(incarnation, view, me, RowAccess::Near(row, owner));
                if is_taken {
                    process.roster.learn_near(from, address, rack);
                }
                if is_taken && process.roster.begin_watch(from) {
                    self.watch(process, from, owner);
                }
            }
            (ControlMessage::State { view, from }, Some((connection, _))) => {
                process.incoming.push((view, from, connection))
            }
            (ControlMessage::Bulk { incarnation, view, from, number }, Some((connection, _))) => {
                self.keep_link(process, (incarnation, view, number), from, (connection, true));
            }
            (ControlMessage::Records { from, reply }, Some((connection, _))) => {
                process.record_arrivals.push(RecordArrival { from, reply, connection });
            }
            (ControlMessage::Objects { from, reply }, Some((connection, _))) => {
                process.objects.answers.push(ObjectAnswer { from, reply, connection });
            }
            (message, _) => process.roster.hear(message, None, &near.attachment, Time(self.now)),
        }
    }

    fn hear_of_net(&mut self, process: &mut SimProcess, heard: NetworkEvent) {
        if !matches!(heard, NetworkEvent::Reached(..) | NetworkEvent::Delayed(..)) {
            self.note(|| format!("process {} hears: {heard:?}", process.number));
        }
        let (roster, now) = (&mut process.roster, Time(self.now));
        match heard {
            NetworkEvent::Reached(address, with) => roster.reached(&address, &with),
            NetworkEvent::Delayed(address, why) => roster.delayed(&address, why),
            NetworkEvent::Lost(with) => roster.lost(&with),
            NetworkEvent::Failed(address, purpose, why) => {
                roster.not_dialled(&address, &purpose, &why);
                self.head_not_dialled(process, &address, purpose);
                self.follower_not_dialled(process, &address, purpose);
            }
            NetworkEvent::Ended { id, incarnation, view, answer_within } => {
                roster.seems_ended(id, incarnation, view, answer_within, now);
            }
            NetworkEvent::Answers(with, process) => roster.answers(&with, process),
            NetworkEvent::Stream { with, process: nonce, purpose, connection, dialled } => {
                let is_known = roster.recognises(&with, &purpose, now);
                match purpose {
                    Purpose::Part { incarnation, view } if is_known => {
                        roster.keep_stream((incarnation, view), (with.id, nonce), RowAccess::Stream(connection));
                    }
                    Purpose::Observer { incarnation, view } if is_known && dialled => {
                        roster.keep_observer_stream(incarnation, view, with.id, RowAccess::Stream(connection));
                    }
                    Purpose::Observer { incarnation, view } if is_known && incarnation == roster.incarnation() => {
                        process.observers.push(ObserverStream { view, connection, is_served: false });
                    }
                    Purpose::State { view } if dialled => self.send_pledged(process, with.id, view, connection),
                    Purpose::State { view } if is_known => process.incoming.push((view, with.id, connection)),
                    Purpose::Bulk { incarnation, view, number } if is_known => {
                        self.keep_link(process, (incarnation, view, number), with.id, (connection, false));
                    }
                    Purpose::Records { reply } if dialled => {
                        self.send_records_over(process, with.id, reply, connection)
                    }
                    Purpose::Records { reply } if is_known => {
                        process.record_arrivals.push(RecordArrival { from: with.id, reply, connection });
                    }
                    Purpose::Objects { view, reply } if dialled => {
                        self.serve_pledged(process, with.id, (view, reply), connection);
                    }
                    Purpose::Objects { reply, .. } if is_known => {
                        process.objects.answers.push(ObjectAnswer { from: with.id, reply, connection });
                    }
                    _ => {
                        let end = self.connections.get(connection).map(|found| found.end_of(process.number));
                        if let Some(end) = end {
                            self.close(connection, end);
                        }
                    }
                }
            }
        }
    }

    /// Lets the bootstrap continue, and sends its messages.
    pub(super) fn step_boot(&mut self, process: &mut SimProcess) -> Checked {
        let Some(mut boot) = process.boot.take() else { return Ok(()) };
        let now = Time(self.now);
        if let Some(book) = process.roster.book() {
            boot.step(book.seeds(), now);
        }
        while let Some(act) = boot.next_act(|of| process.roster.founder_card(of)) {
            match act {
                Act::Persist(record) => {
                    self.tell_vote(process.number, process.place, &record);
                    self.places[process.place].disk = *record;
                    boot.persisted(now);
                }
                Act::Send(To::Seed(seed), message) => {
                    let address =
                        process.roster.book().and_then(|book| book.seeds().list().get(seed as usize)).cloned();
                    if let Some(address) = address {
                        process.roster.write_to(address, None, message);
                    }
                }
                Act::Send(To::Process(of), message) => process.roster.post(of.id, message),
            }
        }
        let waits = boot.waits();
        process.is_told |= waits.is_some();
        if waits != process.waits {
            let need = waits.as_ref().map(|waits| waits.need);
            self.note(|| format!("process {} waits: {need:?}", process.number));
            process.waits = waits;
        }
        process.boot = Some(boot);
        self.carry_out(process)
    }

    /// Carries out the orders of the roster.
    pub(super) fn carry_out(&mut self, process: &mut SimProcess) -> Checked {
        while let Some(order) = process.roster.next_order() {
            let second = self.now / S;
            if process.orders.0 != second {
                process.orders = (second, 0);
            }
            process.orders.1 += 1;
            if process.orders.1 > ORDERS_MAX {
                return BOUNDED
                    .broken(format!("process {} has more than {ORDERS_MAX} orders in a second", process.number));
            }
            if let RosterOrder::Dial { .. }
            | RosterOrder::HandOver { .. }
            | RosterOrder::Watch { .. }
            | RosterOrder::WatchFar { .. } = &order
            {
                self.note(|| format!("process {}: {order:?}", process.number));
            }
            self.carry_out_one(process, order);
        }
        Ok(())
    }

    fn carry_out_one(&mut self, process: &mut SimProcess, order: RosterOrder) {
        match order {
            RosterOrder::Near { to, message, attachment } => {
                let near = Near { message: message.encode().into(), attachment: (*attachment).into(), row: None };
                process.outbox.push_back((to, near));
            }
            RosterOrder::Far { message: ControlMessage::Ask { .. }, .. } if self.looks_here_only(process) => {}
            RosterOrder::Far { address, whom, message, attachment } => {
                let load = PacketLoad::ControlMessage(message.encode().into(), (*attachment).into());
                self.post(process, address, whom, load);
            }
            RosterOrder::HandOver { view, to } => self.hand_over(process, view, &to),
            RosterOrder::Dial { address, whom, purpose } => {
                self.begin_attempt(process.number, address, Some(whom), purpose)
            }
            RosterOrder::Watch { id, pid, birth } => {
                let owner = self.processes.iter().position(|other| {
                    other
                        .as_deref()
                        .is_some_and(|other| other.me.pid == pid && birth.is_none_or(|birth| other.me.birth == birth))
                });
                match owner {
                    Some(owner) if self.hosts[process.host].living.contains(&owner) => self.watch(process, id, owner),
                    Some(owner) => {
                        process.roster.unwatched(id);
                        process.deaths.push_back((id, DeathNotice::Found(owner)));
                        self.wake(process.number, self.now + 1_000);
                    }
                    None => process.roster.unwatched(id),
                }
            }
            RosterOrder::Unwatch(id) => drop(process.watched.remove(&id)),
            RosterOrder::WatchFar { address, id, view } => {
                let incarnation = process.roster.incarnation();
                self.watch_far(process, address, id, incarnation, view);
            }
            RosterOrder::CheckFar { address, id, view } => {
                let incarnation = process.roster.incarnation();
                self.begin_attempt(process.number, address, Some(id), Purpose::Life { incarnation, view });
            }
            RosterOrder::UnwatchFar(id) => self.unwatch_far(process, id),
            RosterOrder::Forget(id) => {
                process.outbox.retain(|(to, _)| *to != id);
                process.tries.remove(&id);
            }
            RosterOrder::Retain(wanted) => {
                process.held.retain(|id, _| wanted.contains(id));
                process.outbox.retain(|(to, _)| to.0 >= CLIENT_IDS_FROM || wanted.contains(to));
            }
            RosterOrder::Restore if self.broken == Broken::RestoreForgotten => {}
            RosterOrder::Restore => self.restore(process),
            RosterOrder::LookUp(name) => self.look_up(process.number, name),
            RosterOrder::Probe(ids) => {
                let gone: Vec<MemberId> =
                    ids.into_iter().filter(|id| self.control_socket_of(process, *id).is_none()).collect();
                self.note_missing(process, &gone);
                process.roster.unreached(gone);
            }
        }
    }

    fn looks_here_only(&self, process: &SimProcess) -> bool {
        let is_first = self.process_places.iter().position(|place| *place == process.place) == Some(process.number);
        self.broken == Broken::LooksHereOnly && !is_first
    }

    /// Watches the process of `owner`, which may have ended. The kernel reports its end.
    fn watch(&mut self, process: &mut SimProcess, id: MemberId, owner: usize) {
        process.watched.insert(id, owner);
        if !self.hosts[process.host].living.contains(&owner) {
            let at = self.now + self.random.below(MS);
            self.push(at, ProcessEvent::Death { process: process.number, id, of: owner });
        }
    }

    /// Creates the address of a process again, if it has vanished.
    fn restore(&mut self, process: &SimProcess) {
        let id = process.me.id;
        if !self.hosts[process.host].bound.contains_key(&id) {
            self.note(|| format!("process {} makes its address again", process.number));
            self.hosts[process.host].bound.insert(id, process.number);
        }
    }

    /// Returns the process that is reached as `id` on this host.
    pub(super) fn control_socket_of(&self, process: &SimProcess, id: MemberId) -> Option<usize> {
        let host = &self.hosts[process.host];
        let held = process.held.get(&id).copied().filter(|held| host.living.contains(held));
        held.or_else(|| host.bound.get(&id).copied().filter(|bound| host.living.contains(bound)))
    }

    /// Hands a row to processes of this host.
    fn hand_over(&mut self, process: &mut SimProcess, view: ViewId, to: &[MemberId]) {
        let made = process.made.as_ref().filter(|made| made.view == view).map(|made| made.row);
        let table = process.table.as_ref().filter(|table| table.view.id == view);
        let Some(row) = made.or_else(|| table.and_then(|table| table.places.rows[table.places.me.index()])) else {
            return;
        };
        let Me { id: from, pid, birth } = process.me;
        let incarnation = process.roster.incarnation();
        let address = process.roster.book().map(|book| book.card().address.clone());
        let (at, bytes, event, rack) = (0, 0, true, process.card.rack.clone());
        let message =
            ControlMessage::RowDescriptors { incarnation, view, from, pid, birth, at, bytes, event, address, rack };
        let message: Rc<[u8]> = message.encode().into();
        for to in to {
            let near = Near { message: message.clone(), attachment: [].into(), row: Some((row, process.number)) };
            process.outbox.push_back((*to, near));
        }
    }

    /// Sends the control messages to processes of this host that have an address. Returns the time
    /// of the next attempt.
    fn flush(&mut self, process: &mut SimProcess) -> u64 {
        let mut unreached = vec![];
        let messages = std::mem::take(&mut process.outbox);
        for (to, near) in messages {
            let is_due = process.tries.get(&to).is_none_or(|(at, _)| *at <= self.now) || unreached.contains(&to);
            match self.control_socket_of(process, to).filter(|_| is_due) {
                Some(other) => {
                    process.tries.remove(&to);
                    process.held.insert(to, other);
                    self.deliver_near(process.number, other, near);
                }
                None => {
                    if is_due && !unreached.contains(&to) {
                        unreached.push(to);
                    }
                    process.outbox.push_back((to, near));
                }
            }
        }
        for id in &unreached {
            let pause = process.tries.get(id).map_or(UNREACHED_NS.0, |(_, pause)| *pause);
            process.tries.insert(*id, (self.now + pause, (2 * pause).min(UNREACHED_NS.1)));
            let excess =
                process.outbox.iter().filter(|(to, _)| to == id).count().saturating_sub(UNREACHED_CONTROL_MESSAGES_MAX);
            let mut left = excess;
            process.outbox.retain(|(to, _)| {
                let drops = to == id && left > 0;
                left -= usize::from(drops);
                !drops
            });
        }
        self.note_missing(process, &unreached);
        process.roster.unreached(unreached);
        let outbox = &process.outbox;
        process.roster.forget_the_deaf(|id| outbox.iter().any(|(to, _)| *to == id), Time(self.now));
        next_try(process.outbox.iter().map(|(to, _)| *to), &process.tries)
    }

    fn note_missing(&self, process: &mut SimProcess, ids: &[MemberId]) {
        if self.broken == Broken::MissingIsDead {
            ids.iter().for_each(|id| process.roster.has_ended(*id));
        }
    }

    fn deliver_near(&mut self, from: usize, to: usize, near: Near) {
        let delay = self.random.range(CONTROL_NS.0, CONTROL_NS.1);
        let due = self.messages_due.entry((from, to)).or_default();
        *due = (*due).max(self.now + delay);
        let due = *due;
        self.push(due, ProcessEvent::Messages { process: to, near });
    }

    pub(super) fn check_control_socket(&self, process: &SimProcess) -> Checked {
        if process.control_socket.len() > CONTROL_MESSAGES_MAX || process.outbox.len() > CONTROL_MESSAGES_MAX {
            return BOUNDED.broken(format!(
                "{} control messages wait at process {}",
                process.control_socket.len(),
                process.number
            ));
        }
        Ok(())
    }

    /// Checks that no member counts a live one as dead, because members treat the row of a dead
    /// member as final.
    fn check_deaths(&self, process: &SimProcess) -> Checked {
        let ProcessPhase::Member(member) = &process.phase else { return Ok(()) };
        let (of, view) = (process.roster.incarnation(), member.view());
        let is_at_work = |other: &&SimProcess, id: MemberId| {
            let takes_part = matches!(&other.phase, ProcessPhase::Member(it) if it.view().id == view.id);
            other.me.id == id && other.is_alive && takes_part && other.roster.incarnation() == of
        };
        for id in view.members.iter().copied().filter(|id| process.roster.is_dead(*id)) {
            let mut others = self.processes.iter().flatten().map(|other| &**other);
            if let Some(other) = others.find(|other| is_at_work(other, id)) {
                let (mine, theirs) = (process.number, other.number);
                return DEATH.broken(format!(
                    "process {mine} counts member {id} as dead, and process {theirs} is that member in view {} and lives",
                    view.id
                ));
            }
        }
        Ok(())
    }

    /// Looks for the group on this host alone, under the host's lock.
    pub(super) fn stand(&mut self, process: &mut SimProcess) -> LockedRole {
        let random = u128::from(self.random.word()) << 64 | u128::from(self.random.word());
        let (id, number) = (process.me.id, process.number);
        let standing = match self.broken {
            Broken::LockIgnored => LockedRole::Founder,
            _ => self.hosts[process.host].create(id, number, random.max(1)),
        };
        if standing == LockedRole::Founder {
            self.note(|| format!("process {number} creates group {random:032x}"));
            process.roster.set_incarnation(random.max(1));
        }
        standing
    }
}

/// Returns the time of the next attempt to reach one of these addressees. Others may have a pause, too: their
/// control messages were dropped.
fn next_try(addressees: impl Iterator<Item = MemberId>, tries: &BTreeMap<MemberId, (u64, u64)>) -> u64 {
    addressees.filter_map(|id| tries.get(&id)).map(|(at, _)| *at).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a member was woken at one instant without end, because control messages to one process had been
    /// dropped after an attempt, and others waited for a later attempt (seed 8309).
    #[test]
    fn a_pause_for_dropped_control_messages_wakes_no_sender() {
        let tries = [(MemberId(2), (4 * MS, 4 * MS)), (MemberId(3), (2 * MS, 2 * MS))].into();
        assert_eq!(next_try([MemberId(2), MemberId(2)].into_iter(), &tries), 4 * MS);
        assert_eq!(next_try([].into_iter(), &tries), u64::MAX);
    }
}

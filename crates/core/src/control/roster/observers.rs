//! The processes that follow without being members.
//!
//! Each observer gets every view and the control messages of the members. An observer that has
//! ended, is lost, or does not read its control messages is forgotten. Members wait for no observer.
use super::{Roster, RosterOrder};
use crate::ids::{CLIENT_IDS_FROM, MemberId, Time};
use crate::mutation::mutation;
use crate::view::View;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

/// The time for which control messages to an observer that does not read them are kept. Hundreds of
/// members may write to it at once, on few cores.
const DEAF_MAX: Duration = Duration::from_secs(2);

/// The observers, and for how long each has not read its control messages.
#[derive(Default, Debug)]
pub(super) struct Observers {
    ids: BTreeSet<MemberId>,
    /// Observers that do not read their control messages, each with the time since when.
    deaf: BTreeMap<MemberId, Time>,
}

impl Observers {
    /// Returns the ids of the observers.
    pub(super) fn ids(&self) -> &BTreeSet<MemberId> {
        &self.ids
    }

    /// Adds an observer. Returns whether it is new.
    pub(super) fn insert(&mut self, id: MemberId) -> bool {
        self.ids.insert(id)
    }

    /// Removes an observer. Returns whether it was one.
    pub(super) fn remove(&mut self, id: MemberId) -> bool {
        self.ids.remove(&id)
    }

    /// Removes and returns the observers that have been `deaf` for long.
    fn extract_deaf(&mut self, is_deaf: impl Fn(MemberId) -> bool, now: Time) -> Vec<MemberId> {
        self.deaf.retain(|id, _| is_deaf(*id));
        for id in self.ids.iter().copied().filter(|id| is_deaf(*id)) {
            self.deaf.entry(id).or_insert(now);
        }
        let gone = self.deaf.extract_if(.., |_, since| now.since(*since) >= DEAF_MAX);
        let gone: Vec<MemberId> = gone.map(|(id, _)| id).collect();
        self.ids.retain(|id| !gone.contains(id));
        gone
    }

    /// Notes that a view has begun, whose members observe no more.
    pub(super) fn begin(&mut self, view: &View) {
        self.ids.retain(|id| !view.members.contains(id));
    }
}

impl<W> Roster<W> {
    /// Returns the processes that follow without being members.
    pub fn observers(&self) -> &BTreeSet<MemberId> {
        self.observers.ids()
    }

    /// Adds an observer, to which this process reports each view. Returns whether it is new.
    ///
    /// The observer is forgotten when it ends, when the connection with it is lost, or when it does
    /// not read its control messages.
    pub fn add_observer(&mut self, id: MemberId) -> bool {
        let is_new = self.observers.insert(id);
        // A client is never a member. If its pid is wrong, it is only forgotten, and asks again. If
        // a process may become a member, its own report of its process is not sufficient.
        if !self.is_far(id) && id.0 >= CLIENT_IDS_FROM {
            self.processes.watch_client(id, &mut self.orders);
        }
        is_new
    }

    /// Adds the observers that a newcomer learns of with its first view.
    ///
    /// These processes followed the other members by the time of `view`. They need the messages of
    /// this process before it can know of them in another way. Observers on other hosts are known
    /// by their streams. Some may have ended since, and have no address any more.
    pub(super) fn hear_of_observers(&mut self, view: &View, observers: Vec<(MemberId, u32)>) {
        let is_near = |id: &MemberId| *id != self.me.id && !view.members.contains(id) && !self.is_far(*id);
        let mut near = observers;
        near.retain(|(id, _)| is_near(id));
        for (id, pid) in &near {
            self.processes.note_pid(*id, *pid);
        }
        let new = near.into_iter().map(|(id, _)| id).filter(|id| self.add_observer(*id)).collect();
        self.probe(new);
    }

    /// Forgets a process that observes no more.
    pub fn forget_observer(&mut self, id: MemberId) {
        if mutation!(ObserversKept) || !self.observers.remove(id) {
            return;
        }
        self.orders.push_back(RosterOrder::Forget(id));
        if id.0 >= CLIENT_IDS_FROM && self.processes.note_unwatched(id) {
            self.orders.push_back(RosterOrder::Unwatch(id));
        }
    }

    /// Forgets observers for which control messages have waited for long, with these messages:
    /// members wait for no observer. It asks again when it looks. An observer that is a member of
    /// the next view waits for its messages, and all others wait for it. `holds` returns for which
    /// processes messages wait to be taken.
    pub fn forget_the_deaf(&mut self, holds: impl Fn(MemberId) -> bool, now: Time) {
        for id in self.observers.extract_deaf(|id| holds(id) && !self.members.contains(&id), now) {
            self.orders.push_back(RosterOrder::Forget(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ask, me};
    use super::*;
    use crate::control::{Birth, Card, Me};
    use crate::ids::{Process, ViewId};
    use crate::view::View;
    use alloc::vec;

    /// Ids of clients are assigned again.
    #[test]
    fn the_successor_of_a_client_that_has_ended_is_answered() {
        let mut roster: Roster<()> = Roster::new(me(1), 1, None);
        let client = MemberId(CLIENT_IDS_FROM + 1);
        roster.add_observer(client);
        roster.watched_ended(client);
        while roster.next_order().is_some() {}
        roster.answer(client, 7, "status");
        assert!(matches!(roster.next_order(), Some(RosterOrder::Near { to, .. }) if to == client));
    }

    /// Track record 120: a member was stopped while an observer was started again. It read the
    /// question of the second observer before it learned of the end of the first. It then gave the
    /// second one nothing any more.
    #[test]
    fn the_successor_of_a_client_whose_end_is_told_late_is_given_the_rows() {
        let mut roster: Roster<()> = Roster::new(me(1), 1, None);
        let client = MemberId(CLIENT_IDS_FROM + 1);
        let asks = |roster: &mut Roster<()>, pid: u32| {
            let birth = Birth { namespace: 1, started: pid.into() };
            roster.hear(ask(Me { id: client, pid, birth }, pid, true), None, &[], Time(0));
        };
        asks(&mut roster, 7);
        roster.add_observer(client);
        asks(&mut roster, 8);
        roster.watched_ended(client);
        roster.add_observer(client);
        while roster.next_order().is_some() {}
        roster.hand_over(ViewId(1), [client]);
        assert!(matches!(roster.next_order(), Some(RosterOrder::HandOver { .. })));
    }

    /// Seeds 3535 and 5772 of whole processes: members that prepared a view kept what they had
    /// delivered for a process that had ended.
    #[test]
    fn a_process_that_has_ended_or_is_lost_observes_no_more() {
        let observer = MemberId(9);
        let (process, birth) = (Process { id: observer, nonce: 3 }, Birth::default());
        let ends: [fn(&mut Roster<()>, MemberId); 4] = [
            |roster, id| roster.watched_ended(id),
            |roster, id| roster.found_ended(id, 9, Birth::default()),
            |roster, id| roster.unreached([id]),
            |roster, id| {
                let address = "b:1".parse().unwrap();
                roster.lost(&Card { id, host: 2, address, rack: None });
            },
        ];
        // Another member may report it later.
        let view = View {
            id: ViewId(2),
            members: [1, 2].map(MemberId).to_vec(),
            nonvoters: Vec::new(),
            subgroups: Default::default(),
        };
        for (at, end) in ends.into_iter().enumerate() {
            let mut roster: Roster<()> = Roster::new(me(1), 1, None);
            roster.note_process(process, 9, birth, None);
            roster.add_observer(observer);
            end(&mut roster, observer);
            assert!(roster.observers().is_empty(), "end {at}");
            roster.hear_of_observers(&view, vec![(observer, 9)]);
            let orders = core::iter::from_fn(|| roster.next_order()).collect::<Vec<_>>();
            assert!(orders.contains(&RosterOrder::Probe(vec![observer])), "end {at}: {orders:?}");
        }
    }

    /// Track record 188: the memory for a joiner's first view was dropped when many members sent
    /// theirs to it at once.
    #[test]
    fn an_observer_that_reads_slowly_is_forgotten_unless_it_joins() {
        let (observer, joiner) = (MemberId(8), MemberId(9));
        let view = |id, members: &[u64]| View {
            id: ViewId(id),
            members: members.iter().copied().map(MemberId).collect(),
            nonvoters: Vec::new(),
            subgroups: Default::default(),
        };
        let mut roster: Roster<()> = Roster::new(me(1), 1, None);
        roster.begin(&view(1, &[1, 2]), Time(0));
        assert!([observer, joiner].into_iter().all(|id| roster.add_observer(id)));
        roster.forget_the_deaf(|_| true, Time(0));
        roster.expect(&view(2, &[1, 2, 9]));
        while roster.next_order().is_some() {}
        roster.forget_the_deaf(|_| true, Time(0) + DEAF_MAX);
        roster.forget_the_deaf(|_| true, Time(0) + 3 * DEAF_MAX);
        let forgotten: Vec<RosterOrder> = core::iter::from_fn(|| roster.next_order()).collect();
        assert!(matches!(forgotten[..], [RosterOrder::Forget(id)] if id == observer), "{forgotten:?}");
        assert_eq!(roster.observers().iter().copied().collect::<Vec<_>>(), [joiner]);
    }
}

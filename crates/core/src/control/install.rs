//! A view that is decided and has not begun here, because rows of its members are missing and may
//! still come.
use super::{ASK_EVERY, ControlEvent, ControlMessage, Refusal, Request, Roster, SharedSettings, admits};
use crate::ids::{MemberId, Rank, Time};
use crate::membership::Liveness;
use crate::multicast::engine::Engine;
use crate::mutation::mutation;
use crate::view::View;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

/// The interval at which a starting view is checked for completeness, in addition to wake-ups.
pub const INSTALL_LOOK: Duration = Duration::from_millis(10);

const _: () = assert!(INSTALL_LOOK.as_millis() < ASK_EVERY.as_millis());

/// A view that is decided and has not begun here.
#[derive(Debug)]
pub struct Install {
    engine: Engine,
    view: Arc<View>,
    since: Time,
    /// The last time at which the missing members were looked for.
    looked: Time,
    suspect_after: Option<Duration>,
    /// True if this process was in no view before.
    is_first: bool,
    /// The last time at which processes of other hosts were asked for a later view.
    asked: Time,
    /// True once this member's memory exists and is shown to the others.
    is_prepared: bool,
    /// Members of the view before. A row of one of them shows that this view is on its disk. Empty
    /// if this process needs no such evidence.
    vouchers: Vec<MemberId>,
}

/// A view that begins here.
#[derive(Debug)]
pub struct Begun {
    /// Its engine.
    pub engine: Engine,
    /// The view.
    pub view: Arc<View>,
    /// The members whose rows are not here.
    pub absent: BTreeSet<MemberId>,
}

impl Install {
    /// Returns the view of `engine`. Next the driver makes its memory, and then reports that the
    /// view is [prepared](Self::prepared).
    pub(super) fn new<W>(
        mut engine: Engine,
        suspect_after: Option<Duration>,
        roster: &mut Roster<W>,
        is_first: bool,
        now: Time,
    ) -> Install {
        engine.set_suspect_after(suspect_after.map(|after| after.as_nanos() as u64));
        engine.set_liveness(if roster.book().is_some() { Liveness::Constant } else { Liveness::OnDemand });
        roster.expect(engine.view());
        let view = Arc::new(engine.view().clone());
        let (is_prepared, vouchers) = Default::default();
        Install { engine, view, since: now, looked: now, suspect_after, is_first, asked: now, is_prepared, vouchers }
    }

    /// Lets the view begin only with a row of one of these members of the view before, in which this
    /// process was not (INV-RECORD in restart.rs). It has read the decision in their rows, where the
    /// decision is before it is on any disk.
    pub fn await_voucher(&mut self, vouchers: impl IntoIterator<Item = MemberId>) {
        let is_in = |id: &MemberId| self.view.rank_of(*id).is_some();
        self.vouchers = vouchers.into_iter().filter(is_in).collect();
    }

    /// Whether this member's memory for the view is shown to the others.
    pub(super) fn is_prepared(&self) -> bool {
        self.is_prepared
    }

    /// Returns the first view of this process.
    pub fn first<W>(engine: Engine, suspect_after: Option<Duration>, roster: &mut Roster<W>, now: Time) -> Install {
        Install::new(engine, suspect_after, roster, true, now)
    }

    /// Returns the view.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Returns its engine, which is not polled yet.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns its engine for proposed changes.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Returns the time since this member could begin the view.
    pub(super) fn age(&self, now: Time) -> Duration {
        now.since(self.since)
    }

    /// Notes that this member's memory for the view exists. Sends it to all other members, and to
    /// the observers.
    pub fn prepared<W>(&mut self, roster: &mut Roster<W>, now: Time) {
        self.since = now;
        self.is_prepared = true;
        let observers = roster.observers().iter().copied().filter(|id| !self.view.members.contains(id));
        let to: Vec<MemberId> = self.view.members.iter().copied().chain(observers).collect();
        roster.hand_over(self.view.id, to);
        roster.connect(&self.view);
    }

    /// Returns the members that have not come and still may. `has_met` is true for a member whose
    /// rows come through libfabric and are connected.
    pub fn missing<W>(&self, roster: &Roster<W>, has_met: impl Fn(Rank) -> bool) -> Vec<MemberId> {
        let others = (0..).map(Rank).zip(self.view.members.iter().copied()).filter(|(_, id)| *id != roster.me());
        let never_comes = |id| roster.is_dead(id) || roster.never_begins(self.view.id, id);
        let is_missing = |(rank, id): &(Rank, MemberId)| {
            !roster.has_parts(self.view.id, *id) && !has_met(*rank) && !never_comes(*id)
        };
        others.filter(is_missing).map(|(_, id)| id).collect()
    }

    /// True if this member may begin the view: it waits for no other member any more, and has no
    /// message of the previous view left to deliver (`has_rest`). `has_sent_all` says that its own
    /// memory is on its way to all members of its host.
    ///
    /// Meanwhile the driver shows that this member is alive ([`Engine::show_life`]). Otherwise
    /// members that have begun the view already would suspect it before it suspects the members for
    /// which it waits.
    pub fn look<W>(
        &mut self,
        roster: &mut Roster<W>,
        has_rest: bool,
        has_sent_all: bool,
        has_met: impl Fn(Rank) -> bool,
        now: Time,
    ) -> bool {
        let missing = self.missing(roster, &has_met);
        // Members of other hosts see no activity of this member before the view begins here.
        // Missing rows may come later.
        let part = if mutation!(BeginsHastily) { 64 } else { 2 };
        let late = self.suspect_after.is_some_and(|after| now.since(self.since) >= after / part);
        let is_complete = (late && !self.is_first) || (has_sent_all && (late || missing.is_empty()));
        let is_vouched = self.vouchers.is_empty()
            || self.vouchers.iter().any(|id| roster.has_parts(self.view.id, *id) || self.has_met(*id, &has_met));
        if self.is_prepared && is_vouched && is_complete && (!has_rest || mutation!(RestCutOff)) {
            return true;
        }
        if now.since(self.looked) >= INSTALL_LOOK {
            self.looked = now;
            // A missing member may end before its memory is here.
            roster.seek(&missing, now);
            // Streams may have failed.
            roster.connect(&self.view);
        }
        let patience = self.suspect_after.map_or(ASK_EVERY, |after| after / 2);
        if self.is_first && now.since(self.since) >= patience && now.since(self.asked) >= ASK_EVERY {
            self.asked = now;
            // The other members may have continued without this process. All members of this host
            // that know it may be in the same position.
            roster.ask_view_afar(now);
        }
        false
    }

    fn has_met(&self, id: MemberId, has_met: impl Fn(Rank) -> bool) -> bool {
        self.view.rank_of(id).is_some_and(has_met)
    }

    /// Shows that this member is alive, in its row of the view.
    pub fn show_life(&mut self, store: impl FnOnce(u64, u64)) {
        self.engine.show_life(store);
    }

    /// True if `id` is a member of the view.
    pub fn has(&self, id: MemberId) -> bool {
        self.view.rank_of(id).is_some()
    }

    /// Takes in a control event before the first view of this process begins. Answers processes
    /// that ask and have the same `settings`: they may not know the view yet. Refuses the others.
    ///
    /// Returns true if the attempt is over because the group has a later view. A member continues
    /// in the next view only if it has promised a ballot, and this process has not. So it was left
    /// out, or admitted again as a newcomer after this view. In both cases its row of zeros may be
    /// counted as final, so it never begins this view. It [reports](Roster::farewell) that it has
    /// stopped, and looks for the group as a new process does.
    #[must_use]
    pub fn attend<W>(&self, news: &ControlEvent, settings: &SharedSettings, roster: &mut Roster<W>) -> bool {
        match news {
            ControlEvent::View { incarnation, view, .. } => {
                let is_later = *incarnation == roster.incarnation() && view.id > self.view.id;
                return is_later && !mutation!(FirstViewNeverOver);
            }
            ControlEvent::Requests { from, what: Request::View, .. } => roster.tell_view(&self.view, [*from]),
            ControlEvent::Asks(asks) if asks.id_conflict.is_none() => {
                if !admits(settings.digest(), asks.config, asks.observer) {
                    let why = Refusal::Config { settings: settings.clone(), incarnation: roster.incarnation() };
                    roster.post(asks.id, ControlMessage::Refused { why });
                    return false;
                }
                let is_in = self.has(asks.id);
                if is_in && (!self.may_be_told(asks.id, roster) || !roster.is_instance(asks.id, asks.instance)) {
                    return false;
                }
                if asks.observer && !is_in {
                    roster.add_observer(asks.id);
                }
                self.hand_over_to(asks.id, roster);
            }
            _ => {}
        }
        false
    }

    fn may_be_told<W>(&self, id: MemberId, roster: &Roster<W>) -> bool {
        !roster.is_far(id) || roster.is_new(self.view.id, id)
    }

    /// Announces the view again to a process that asks although it is a member, or that observes. A
    /// process that asks before the view is [prepared](Self::prepared) asks again.
    pub fn hand_over_to<W>(&self, id: MemberId, roster: &mut Roster<W>) {
        if !self.is_prepared {
            return;
        }
        roster.tell_view(&self.view, [id]);
        roster.hand_over(self.view.id, [id]);
    }

    /// Begins the view with the rows of the members in `here`, and waits for no other. A member
    /// whose row is not here has a row of zeros. Its row may come later.
    pub fn begin<W>(mut self, here: &BTreeSet<MemberId>, roster: &mut Roster<W>, now: Time) -> Begun {
        let mut absent = BTreeSet::new();
        let view = Arc::clone(&self.view);
        for (rank, id) in view.ranks().zip(view.members.iter().copied()).filter(|(_, id)| *id != roster.me()) {
            match (here.contains(&id), roster.is_dead(id)) {
                _ if roster.never_begins(view.id, id) => self.engine.member_died(rank),
                (true, true) => self.engine.member_died(rank),
                // Other members may have its row, and may have agreed with it on a view without
                // this member.
                (false, true) => self.engine.member_gone(rank),
                (_, false) => {}
            }
            if !here.contains(&id) {
                absent.insert(id);
            }
        }
        roster.begin(&view, now);
        // The observers are those that have asked by now and have not gone.
        self.engine.set_observed(!roster.observers().is_empty());
        Begun { engine: self.engine, view, absent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Address, Book, Card, ControlMessage, Me, RosterOrder, Seeds};
    use crate::view::{SubgroupSpec, View};
    use crate::{Ablation, ViewId};
    use alloc::vec;

    const NOW: Time = Time(0);

    fn view(id: u64, members: &[u64]) -> View {
        let members: Vec<MemberId> = members.iter().copied().map(MemberId).collect();
        let all: Vec<Rank> = (0..members.len() as u32).map(Rank).collect();
        let spec = SubgroupSpec { members: all.clone(), senders: all, ..SubgroupSpec::of_everyone("all") };
        View { id: ViewId(id), members, nonvoters: vec![], subgroups: vec![spec].into() }
    }

    fn at(name: &str) -> Address {
        alloc::format!("{name}:1").parse().unwrap()
    }

    /// Returns the roster of member 1 of a group, on host 0.
    fn roster() -> Roster<()> {
        let mine = Card { id: MemberId(1), host: 0, address: at("a"), rack: None };
        let book = Book::new(mine, Seeds::new(vec![], None, at("a")), true);
        let me = Me { id: MemberId(1), pid: 7, birth: Default::default() };
        let mut roster = Roster::new(me, 1, Some(book));
        roster.set_incarnation(7);
        roster
    }

    fn install(view: View, after: Option<Duration>, roster: &mut Roster<()>) -> Install {
        let engine = Engine::new(view, Rank(0), Ablation::default()).unwrap();
        let mut install = Install::first(engine, after, roster, NOW);
        install.prepared(roster, NOW);
        install
    }

    fn far(id: u64, name: &str) -> Card {
        Card { id: MemberId(id), host: 100 + u128::from(id), address: at(name), rack: None }
    }

    fn settings() -> SharedSettings {
        SharedSettings::new([("window".into(), "4".into())])
    }

    fn asks(id: u64, name: &str, process: u128, roster: &mut Roster<()>) -> ControlEvent {
        let message = ControlMessage::Ask {
            from: MemberId(id),
            pid: 7,
            birth: Default::default(),
            nonce: 3,
            config: settings().digest(),
            members: 1,
            observer: false,
            follows: ViewId(0),
            address: Some(at(name)),
            rack: None,
            seeds: None,
            clock: 0,
        };
        roster.hear(message, Some((far(id, name), process)), &[], NOW);
        roster.take_news().pop().unwrap()
    }

    /// Lets a process of this host ask.
    fn asks_beside(id: u64, roster: &mut Roster<()>) {
        let ask = ControlMessage::Ask {
            from: MemberId(id),
            pid: 8,
            birth: Default::default(),
            nonce: 3,
            config: settings().digest(),
            members: 1,
            observer: false,
            follows: ViewId(0),
            address: Some(at("near")),
            rack: None,
            seeds: None,
            clock: 0,
        };
        roster.hear(ask, None, &[], NOW);
    }

    /// Returns whether a process that asks from `name` gets the announcement of the view.
    fn is_told(install: &Install, id: u64, name: &str, roster: &mut Roster<()>) -> bool {
        while roster.next_order().is_some() {}
        let news = asks(id, name, id.into(), roster);
        assert!(!install.attend(&news, &settings(), roster));
        let orders: Vec<RosterOrder> = core::iter::from_fn(|| roster.next_order()).collect();
        orders.iter().any(|order| matches!(order, RosterOrder::Far { message: ControlMessage::View { .. }, .. }))
    }

    /// Members that have begun see no activity of a member of another host that has not, and soon
    /// suspect it. Missing rows may come later.
    #[test]
    fn a_member_begins_without_missing_rows_before_it_is_suspected() {
        let after = Duration::from_secs(80);
        for members in [&[1, 2][..], &[1, 2, 3]] {
            let mut roster = roster();
            roster.begin(&view(1, members), NOW);
            asks(3, "c", 3, &mut roster);
            let mut install = install(view(2, members), Some(after), &mut roster);
            // The view no longer waits for this member.
            let what = Request::Stopped { incarnation: 7, view: ViewId(1), nonce: 3 };
            roster.hear(ControlMessage::Request { from: MemberId(3), reply: 0, what }, None, &[], NOW);
            for (at, begins) in [(0, false), (20, false), (39, false), (40, true)] {
                let now = NOW + Duration::from_secs(at);
                assert_eq!(install.look(&mut roster, false, true, |_| false, now), begins, "after {at} s");
            }
            assert!(!install.look(&mut roster, false, false, |_| false, NOW + 2 * after), "its memory has not left");
            assert!(!install.look(&mut roster, true, true, |_| false, NOW + 2 * after), "it has messages to deliver");
        }
    }

    /// A process that asks with the id of a member of another host is that member or a later
    /// process. Only a process that was not in the view before needs the announcement again.
    #[test]
    fn between_two_views_only_newcomers_of_other_hosts_are_told_of_the_next() {
        let mut roster = roster();
        roster.begin(&view(1, &[1, 5]), NOW);
        let install = install(view(2, &[1, 5, 6]), None, &mut roster);
        for (id, told) in [(5, false), (6, true)] {
            assert_eq!(is_told(&install, id, "b", &mut roster), told, "member {id}");
        }
    }

    /// Two processes may have the same pid, as here.
    #[test]
    fn between_two_views_a_newcomer_of_another_host_is_told_from_one_that_has_its_id() {
        let mut roster = roster();
        roster.begin(&view(1, &[1]), NOW);
        let install = install(view(2, &[1, 6]), None, &mut roster);
        assert!(is_told(&install, 6, "first", &mut roster));
        let ControlEvent::Asks(second) = asks(6, "second", 9, &mut roster) else { unreachable!() };
        assert_eq!(second.id_conflict, Some(at("second")));
        assert_eq!(roster.book().unwrap().far(MemberId(6)), Some(&at("first")));
    }

    /// No member that answers knows the dead member of this host. So the kernel is never asked
    /// whether it has ended, and control messages to it are never sent.
    #[test]
    fn a_first_view_is_over_when_the_group_has_a_later_one() {
        let mut roster = roster();
        asks_beside(2, &mut roster);
        asks(3, "c", 3, &mut roster);
        let after = Duration::from_secs(80);
        let mut install = install(view(5, &[1, 2, 3]), Some(after), &mut roster);
        let is_asked = |install: &mut Install, roster: &mut Roster<()>, at: u64| {
            while roster.next_order().is_some() {}
            assert!(!install.look(roster, false, false, |_| false, NOW + Duration::from_secs(at)), "after {at} s");
            let asks = |order: &RosterOrder| {
                matches!(order, RosterOrder::Far { message: ControlMessage::Request { what: Request::View, .. }, .. })
            };
            core::iter::from_fn(|| roster.next_order()).any(|order| asks(&order))
        };
        assert!(!is_asked(&mut install, &mut roster, 39) && is_asked(&mut install, &mut roster, 40));
        let hears = |incarnation, view, roster: &mut Roster<()>| {
            install.attend(&ControlEvent::View { incarnation, view, decision: vec![] }, &settings(), roster)
        };
        assert!(
            !hears(7, view(5, &[1, 2, 3]), &mut roster) && !hears(7, view(4, &[3]), &mut roster),
            "it is no later one"
        );
        assert!(!hears(8, view(6, &[3]), &mut roster), "it is another group");
        assert!(hears(7, view(6, &[3]), &mut roster), "it is left out");
        assert!(hears(7, view(7, &[1, 3]), &mut roster), "it was left out between");
    }

    /// Runs of whole processes show the mutation in fewer than one seed of 10,000.
    #[cfg(mutation)]
    #[test]
    #[ignore = "wants a process of its own: cargo xtask mutations"]
    fn mutations_of_first_views_fail_their_test() {
        use crate::mutation::{Mutation, failure};
        let over = failure(Mutation::FirstViewNeverOver, a_first_view_is_over_when_the_group_has_a_later_one);
        assert_eq!(over, "it is left out");
        let hasty = failure(Mutation::BeginsHastily, a_member_begins_without_missing_rows_before_it_is_suspected);
        assert_eq!(hasty, "values differ");
    }

    /// A founder dies before the first view begins. Control messages to it would be kept, and the
    /// view would wait for them.
    #[test]
    fn nothing_is_handed_to_a_member_that_is_dead() {
        let mut roster = roster();
        asks_beside(6, &mut roster);
        roster.watched_ended(MemberId(6));
        while roster.next_order().is_some() {}
        let mut install = install(view(1, &[1, 6]), None, &mut roster);
        let orders: Vec<RosterOrder> = core::iter::from_fn(|| roster.next_order()).collect();
        assert!(!orders.iter().any(|order| matches!(order, RosterOrder::HandOver { .. })), "{orders:?}");
        assert!(install.look(&mut roster, false, true, |_| false, NOW));
    }
}

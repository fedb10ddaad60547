//! A process that looks for its group: it creates the group with others, or asks members until one
//! admits it.
//!
//! On one host a lock of the host decides which process creates the group ([`Seek::founder`]); the
//! others ask its members ([`Seek::joiner`]). Between hosts [`Bootstrap`](super::Bootstrap) decides
//! ([`Seek::afar`]), and the process asks at the same time.
use super::clock_refusals::ClockRefusals;
use super::{
    ASK_EVERY, Adoption, Asks, ControlEvent, ControlMessage, Founder, InitialView, Question, Refusal, Roster,
    SeedClaim, SharedSettings,
};
use crate::ids::{MemberId, Time, ViewId};
use crate::mutation::mutation;
use crate::view::View;
use alloc::vec::Vec;
use core::time::Duration;

/// The properties of a process that looks for its group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wants {
    /// Its settings.
    pub settings: SharedSettings,
    /// Whether it adopts those of a running group.
    pub adoption: Adoption,
    /// The number of members with which it would create the group; 1 if any number will do. If it
    /// [restarts](Seek::restarting) a group, the number of members of the last view.
    pub members: u32,
    /// True if it wants the state of the application first, if the group exists.
    pub learns: bool,
}

/// The outcome of the search for a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FoundGroup {
    /// A member refuses this process.
    Refused(Refusal),
    /// This process is in the view of a group. Next it enters the group on its host.
    View {
        /// The group.
        incarnation: u128,
        /// The view.
        view: View,
    },
    /// This process creates the group with these members, including itself.
    Founders {
        /// The group, unless it is known already.
        incarnation: Option<u128>,
        /// All members, in order.
        members: Vec<MemberId>,
    },
    /// A group exists. This process needs its state first.
    Group,
    /// All members on this host have gone.
    Gone,
}

impl From<InitialView> for FoundGroup {
    fn from(begun: InitialView) -> FoundGroup {
        let members = begun.members.iter().map(|process| process.id).collect();
        FoundGroup::Founders { incarnation: Some(begun.incarnation.0), members }
    }
}

/// The processes that are present, as far as is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Here {
    /// The number of members that create the group, or that it has.
    pub members: u32,
    /// True if the group exists and has lost its quorum.
    pub blocked: bool,
    /// The present processes, with their process numbers.
    pub present: Vec<(MemberId, u32)>,
}

/// The way in which the group is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SeekWay {
    /// This process creates it, on this host.
    Founds,
    /// Members of this host admit the process.
    Joins,
    /// The group spans hosts.
    Afar,
}

/// A process that looks for its group.
#[derive(Debug)]
pub struct Seek {
    way: SeekWay,
    wants: Wants,
    founder: Founder,
    asked: Option<Time>,
    heard: Vec<Here>,
    /// The last time at which a member reported that its group has lost its quorum.
    blocked: Option<Time>,
    /// The running group whose settings this process has adopted.
    adopted: Option<Adopted>,
    /// The settings of another process that waits to create the group with them, and the time of
    /// its last refusal.
    differing: Option<(SharedSettings, Time)>,
    clock_refusals: ClockRefusals,
    /// True if this process creates no group: it [restarts](super::Restart) one, or finds it.
    restarts: bool,
    /// The view with which its group restarts, if it takes part in that decision.
    restarts_with: Option<ViewId>,
}

/// The settings of a running group, as adopted.
#[derive(Debug)]
struct Adopted {
    incarnation: u128,
    settings: SharedSettings,
    /// The last time at which a process answered that has these settings.
    heard: Time,
}

/// How long a report that the group has lost its quorum outweighs reports of processes that wait to
/// create the group, which know less.
const BLOCKED_COUNTS: Duration = ASK_EVERY.saturating_mul(5);
/// How long a process asks with adopted settings although no process that has them answers. After
/// that the group counts as gone, and the process asks with its own settings again.
const ADOPTED_COUNTS: Duration = ASK_EVERY.saturating_mul(25);
/// How long a report of other settings counts after the last refusal.
const DIFFERING_COUNTS: Duration = ASK_EVERY.saturating_mul(10);

impl Seek {
    /// Returns a process that creates the group on its host.
    pub fn founder(wants: Wants, room: u32) -> Seek {
        Seek::new(SeekWay::Founds, wants, room)
    }

    /// Returns a process that has found members on its host.
    pub fn joiner(wants: Wants) -> Seek {
        Seek::new(SeekWay::Joins, wants, 0)
    }

    /// Returns a process of a group that spans hosts.
    pub fn afar(wants: Wants, room: u32) -> Seek {
        Seek::new(SeekWay::Afar, wants, room)
    }

    fn new(way: SeekWay, wants: Wants, room: u32) -> Seek {
        let founder = Founder::new(wants.settings.clone(), wants.members, room);
        let (asked, heard, blocked, adopted, differing, restarts, restarts_with) = Default::default();
        Seek {
            way,
            wants,
            founder,
            asked,
            heard,
            blocked,
            adopted,
            differing,
            clock_refusals: ClockRefusals::default(),
            restarts,
            restarts_with,
        }
    }

    /// True if this process creates or restarts the group on its host.
    pub fn founds(&self) -> bool {
        self.way == SeekWay::Founds
    }

    /// Notes that this process restarts its group, and creates no other.
    #[must_use]
    pub fn restarting(mut self) -> Seek {
        self.founder.create_none();
        Seek { restarts: true, ..self }
    }

    /// True if this process asks as an observer, because it needs the state of a running group first.
    fn observes(&self) -> bool {
        self.wants.learns && (self.way == SeekWay::Afar || self.restarts)
    }

    /// Notes the view that [this process votes on](super::Restart::votes_for). Members that have begun
    /// it announce it, and only the outcome of the vote names the processes in it.
    pub fn restarts_with(&mut self, view: Option<ViewId>) {
        self.restarts_with = view;
    }

    /// True if it is time to [ask](Self::ask).
    pub fn is_due(&self, now: Time) -> bool {
        self.way != SeekWay::Founds && self.asked.is_none_or(|at| now.since(at) >= ASK_EVERY)
    }

    /// Asks for admission. `here` are the members on this host, as listed in its directory.
    pub fn ask<W>(&mut self, here: &[MemberId], roster: &mut Roster<W>, now: Time) -> Option<FoundGroup> {
        self.asked = Some(now);
        let (observes, members) = (self.observes(), if self.restarts { 0 } else { self.wants.members });
        let config = self.settings(now).digest();
        let question = |observer| Question { config, members, observer, follows: ViewId(0) };
        if self.way == SeekWay::Afar {
            roster.ask_afar(question(observes), now);
        } else if here.is_empty() {
            return Some(FoundGroup::Gone);
        }
        for member in here {
            roster.ask(*member, question(observes), now);
        }
        None
    }

    /// Takes in control events. Returns the outcome of the search, if it is known.
    pub fn step<W>(&mut self, news: Vec<ControlEvent>, roster: &mut Roster<W>, now: Time) -> Option<FoundGroup> {
        let (is_seed, claim) = self.claim(roster, now);
        if self.way == SeekWay::Afar {
            self.founder.take_up(is_seed, claim, now);
        }
        let creates = self.way == SeekWay::Founds || is_seed;
        let mut rest = Vec::new();
        for news in news {
            match news {
                ControlEvent::Refused(why) => {
                    if let Some(found) = self.refused(why, now) {
                        return Some(found);
                    }
                }
                ControlEvent::Waits { members, blocked, present } => {
                    // Only a process with the settings of the question answers so.
                    self.adopted.iter_mut().for_each(|adopted| adopted.heard = now);
                    // The clock of an observer does not matter.
                    if !self.observes() {
                        self.clock_refusals.awaited();
                    }
                    if !creates || blocked {
                        self.note_here(Here { members, blocked, present }, now);
                    }
                }
                ControlEvent::View { incarnation, view, .. } if view.rank_of(roster.me()).is_some() => {
                    if !self.is_founding(&view) && self.restarts_with != Some(view.id) {
                        return Some(FoundGroup::View { incarnation, view });
                    }
                }
                ControlEvent::View { .. } if self.observes() => {
                    return Some(FoundGroup::Group);
                }
                ControlEvent::View { .. } => {}
                news => rest.push(news),
            }
        }
        let is_settled = creates && self.gather(rest, roster, now);
        if let Some(skew) = self.clock_refusals.outcome(roster.agreed_clocks(), roster.refused_clocks(now), now) {
            return Some(FoundGroup::Refused(Refusal::Clock(skew)));
        }
        let founds_alone = self.way == SeekWay::Founds && is_settled && !self.restarts;
        founds_alone.then(|| FoundGroup::Founders { incarnation: None, members: self.founder.members(roster.me()) })
    }

    /// Handles a refusal. Returns the outcome, unless this process can ask again.
    fn refused(&mut self, why: Refusal, now: Time) -> Option<FoundGroup> {
        let (settings, incarnation) = match why {
            Refusal::Config { settings, incarnation } => (settings, incarnation),
            Refusal::Clock(skew) => {
                self.clock_refusals.note(skew, now);
                return None;
            }
            why => return Some(FoundGroup::Refused(why)),
        };
        let is_late = settings.digest() == self.settings(now).digest();
        if is_late || self.adopts(now) {
            // It answers a question from before the adoption, or its group is another one.
            return None;
        }
        if incarnation == 0 && !mutation!(WaitersAdopted) {
            self.differing = Some((settings, now));
            return None;
        }
        if self.wants.adoption.check(&self.wants.settings, &settings).is_err() {
            return Some(FoundGroup::Refused(Refusal::Config { settings, incarnation }));
        }
        self.adopted = Some(Adopted { incarnation, settings, heard: now });
        self.asked = None;
        None
    }

    /// True if this process asks with the settings of a running group.
    fn adopts(&self, now: Time) -> bool {
        self.adopted.as_ref().is_some_and(|adopted| now.since(adopted.heard) < ADOPTED_COUNTS)
    }

    /// Returns the settings with which this process asks: its own, or those of a running group that
    /// it has adopted.
    pub fn settings(&self, now: Time) -> &SharedSettings {
        self.adopted.as_ref().filter(|_| self.adopts(now)).map_or(&self.wants.settings, |adopted| &adopted.settings)
    }

    /// Returns the settings with which this process takes part in a group that has admitted it.
    pub fn settings_in(&self, incarnation: u128) -> &SharedSettings {
        let adopted = self.adopted.as_ref().filter(|adopted| adopted.incarnation == incarnation);
        adopted.map_or(&self.wants.settings, |adopted| &adopted.settings)
    }

    /// Returns the settings of a process that waits to create the group with other settings than
    /// this one, if one has answered lately.
    pub fn differing(&self, now: Time) -> Option<&SharedSettings> {
        let recent = self.differing.as_ref().filter(|(_, at)| now.since(*at) < DIFFERING_COUNTS);
        recent.map(|(settings, _)| settings)
    }

    /// Returns the number of processes that wait here with other settings. They know the
    /// differences.
    pub fn differing_here(&self, now: Time) -> u32 {
        self.founder.differing(now)
    }

    /// True if the process with this process's id in `view` may be an earlier one. Only the outcome
    /// of the bootstrap names a founder with its nonce.
    fn is_founding(&self, view: &View) -> bool {
        self.way == SeekWay::Afar && view.id == ViewId(1)
    }

    fn claim<W>(&self, roster: &Roster<W>, now: Time) -> (bool, SeedClaim) {
        let seeds = roster.book().filter(|_| self.way == SeekWay::Afar).map(|book| book.seeds());
        seeds.map_or((false, None), |seeds| (seeds.is_seed(), seeds.claim(now)))
    }

    /// Takes in the processes that ask and those that have gone, and reports any change to all that
    /// wait. True if the group can be created: enough processes are present, they have been told
    /// which are present, and they are still alive at this later time.
    fn gather<W>(&mut self, news: Vec<ControlEvent>, roster: &mut Roster<W>, now: Time) -> bool {
        for news in news {
            match news {
                ControlEvent::Asks(asks) => self.asked(asks, roster, now),
                ControlEvent::Died(id) | ControlEvent::Lost(id) => self.founder.forget(id),
                _ => {}
            }
        }
        let (present, is_settled) = self.founder.settle((roster.me(), roster.pid(roster.me())));
        if !is_settled {
            for id in self.founder.waiting() {
                let wait = self.told_to_wait(roster);
                roster.post(id, wait);
            }
        }
        let is_complete = present.len() as u32 >= self.wants.members;
        self.note_here(Here { members: self.wants.members, blocked: false, present }, now);
        is_settled && is_complete
    }

    fn note_here(&mut self, here: Here, now: Time) {
        if here.blocked {
            self.blocked = Some(now);
        } else if self.blocked.is_some_and(|at| now.since(at) < BLOCKED_COUNTS) {
            return;
        }
        self.heard.push(here);
    }

    fn asked<W>(&mut self, asks: Asks, roster: &mut Roster<W>, now: Time) {
        let wait = self.told_to_wait(roster);
        let answer = match asks.id_conflict {
            Some(_) => Some(roster.turn_away(&asks, None, wait, now)),
            None => self
                .founder
                .asked(&asks, now)
                .map(|refusal| refusal.map_or(wait, |why| ControlMessage::Refused { why })),
        };
        if let Some(answer) = answer {
            roster.post_at(asks.id_conflict, asks.id, answer);
        }
    }

    fn told_to_wait<W>(&self, roster: &Roster<W>) -> ControlMessage {
        let present = self.founder.present().to_vec();
        ControlMessage::Wait { members: self.wants.members, leader: roster.me(), blocked: false, present }
    }

    /// Returns the reports about present processes since the last call.
    pub fn take_heard(&mut self) -> Vec<Here> {
        core::mem::take(&mut self.heard)
    }

    /// Returns the number of waiting processes that have different seeds.
    pub fn unlike(&self) -> u32 {
        self.founder.unlike()
    }

    /// Announces the first view, on this host, to all founders that may not know it. The driver has
    /// entered the group.
    pub fn creates<W>(&self, view: &View, roster: &mut Roster<W>, now: Time) {
        roster.expect_first(view);
        let (is_seed, _) = self.claim(roster, now);
        // Every process has sent its address to the seeds. Other processes may know fewer
        // addresses.
        if self.way == SeekWay::Founds || is_seed {
            let me = roster.me();
            roster.tell_view(view, view.members.iter().copied().filter(|id| *id != me));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Book, Card, Me, Seeds, ViewAnnouncement};
    use crate::view::SubgroupSpec;
    use crate::{Process, Rank, Time};
    use alloc::collections::BTreeSet;
    use alloc::string::ToString;
    use alloc::vec;

    fn settings(window: u64) -> SharedSettings {
        SharedSettings::new([("window".into(), window.to_string())])
    }

    fn wants(adoption: Adoption, learns: bool) -> Wants {
        Wants { settings: settings(9), adoption, members: 2, learns }
    }

    /// Announces a view, with the members that were not in the view before.
    fn view(id: u64, members: &[u64], newcomers: &[u64]) -> ViewAnnouncement {
        let newcomers = newcomers.iter().map(|id| Process { id: MemberId(*id), nonce: 1 }).collect();
        let members: Vec<MemberId> = members.iter().copied().map(MemberId).collect();
        let all: Vec<Rank> = (0..members.len() as u32).map(Rank).collect();
        let spec = SubgroupSpec { members: all.clone(), senders: all, ..SubgroupSpec::of_everyone("all") };
        let view = View { id: ViewId(id), members, nonvoters: vec![], subgroups: vec![spec].into() };
        let (decision, observers, processes, cards) = Default::default();
        ViewAnnouncement { view, decision, newcomers, observers, processes, cards }
    }

    /// Returns the outcome for process 1 when it receives the announcement of a view.
    fn found(learns: bool, told: ViewAnnouncement) -> Option<FoundGroup> {
        let address: crate::control::Address = "a:1".parse().unwrap();
        let mine = Card { id: MemberId(1), host: 0, address: address.clone(), rack: None };
        let book = Book::new(mine, Seeds::new(vec![], None, address), true);
        let me = Me { id: MemberId(1), pid: 7, birth: Default::default() };
        let mut roster: Roster<()> = Roster::new(me, 1, Some(book));
        let bytes = told.encode();
        let message =
            ControlMessage::View { incarnation: 5, view: told.view.id, from: MemberId(2), bytes: bytes.len() as u64 };
        roster.hear(message, None, &bytes, Time(0));
        let heard = roster.take_news();
        Seek::afar(wants(Adoption::Never, learns), 8).step(heard, &mut roster, Time(0))
    }

    /// Other founders may begin the first view, and announce it, before this one learns the outcome
    /// of the bootstrap. If such a founder learned the state of the group first, the first view
    /// would wait for it, and it for the view.
    #[test]
    fn a_process_in_the_first_view_waits_for_the_word_of_the_founding() {
        for learns in [false, true] {
            assert_eq!(found(learns, view(1, &[1, 2], &[1, 2])), None, "learns: {learns}");
            assert!(matches!(found(learns, view(2, &[1, 2], &[1])), Some(FoundGroup::View { .. })), "learns: {learns}");
            assert_eq!(found(learns, view(1, &[2, 3], &[2, 3])), learns.then_some(FoundGroup::Group));
        }
    }

    /// Track record: a process was started again at the same address, with the same id, and took an
    /// answer to its predecessor for its own admission. It had a row of zeros in a view in which
    /// its predecessor may have promised.
    #[test]
    fn a_process_enters_no_view_in_which_its_predecessor_was_before() {
        for learns in [false, true] {
            assert_eq!(found(learns, view(6, &[1, 2, 3], &[3])), None, "learns: {learns}");
            assert!(
                matches!(found(learns, view(6, &[1, 2, 3], &[1])), Some(FoundGroup::View { .. })),
                "learns: {learns}"
            );
        }
    }

    #[test]
    fn the_word_of_a_member_of_a_group_that_is_blocked_counts_more_for_a_while() {
        let me = Me { id: MemberId(1), pid: 7, birth: Default::default() };
        let mut roster: Roster<()> = Roster::new(me, 1, None);
        let mut seek = Seek::joiner(wants(Adoption::Never, false));
        let mut heard = |blocked, now| {
            let waits = ControlEvent::Waits { members: 2, blocked, present: vec![] };
            assert_eq!(seek.step(vec![waits], &mut roster, now), None);
            seek.take_heard().len()
        };
        let now = Time(0);
        assert_eq!([heard(false, now), heard(true, now), heard(false, now)], [1, 1, 0]);
        assert_eq!(heard(true, now + ASK_EVERY), 1);
        assert_eq!(heard(false, now + BLOCKED_COUNTS), 0, "it has said so again");
        assert_eq!(heard(false, now + ASK_EVERY + BLOCKED_COUNTS), 1);
    }

    fn refusal(window: u64, incarnation: u128) -> Refusal {
        Refusal::Config { settings: settings(window), incarnation }
    }

    /// Returns a process that has found members on its host, and the way in which it takes news in.
    fn joiner(adoption: Adoption) -> (Seek, impl FnMut(&mut Seek, ControlEvent, Time) -> Option<FoundGroup>) {
        let me = Me { id: MemberId(1), pid: 7, birth: Default::default() };
        let mut roster: Roster<()> = Roster::new(me, 1, None);
        let step = move |seek: &mut Seek, news, now| seek.step(vec![news], &mut roster, now);
        (Seek::joiner(wants(adoption, false)), step)
    }

    #[test]
    fn the_settings_of_a_running_group_are_adopted_and_count_in_that_group_only() {
        let (mut seek, mut step) = joiner(Adoption::Except(BTreeSet::new()));
        let now = Time(0);
        assert_eq!(step(&mut seek, ControlEvent::Refused(refusal(50, 7)), now), None);
        assert!(seek.is_due(now), "it asks again at once");
        assert_eq!(seek.settings(now), &settings(50));
        assert_eq!([seek.settings_in(7), seek.settings_in(8)], [&settings(50), &settings(9)]);
        // Another group does not change that, and neither does a process that waits.
        for other in [refusal(60, 8), refusal(60, 0), refusal(9, 0)] {
            assert_eq!(step(&mut seek, ControlEvent::Refused(other), now), None);
            assert_eq!((seek.settings(now), seek.differing(now)), (&settings(50), None));
        }
    }

    #[test]
    fn a_group_that_answers_no_more_is_not_asked_with_its_settings() {
        let (mut seek, mut step) = joiner(Adoption::Except(BTreeSet::new()));
        step(&mut seek, ControlEvent::Refused(refusal(50, 7)), Time(0));
        let waits = || ControlEvent::Waits { members: 2, blocked: false, present: vec![] };
        let later = Time(0) + ADOPTED_COUNTS / 2;
        step(&mut seek, waits(), later);
        assert_eq!(seek.settings(Time(0) + ADOPTED_COUNTS), &settings(50));
        let late = later + ADOPTED_COUNTS;
        assert_eq!(seek.settings(late), &settings(9));
        assert_eq!(seek.settings_in(7), &settings(50), "it may have admitted this process");
        assert_eq!(step(&mut seek, ControlEvent::Refused(refusal(60, 8)), late), None);
        assert_eq!(seek.settings(late), &settings(60));
    }

    #[test]
    fn settings_that_were_given_are_not_adopted() {
        let given = Adoption::Except(["window".to_string()].into());
        for adoption in [given, Adoption::Never] {
            let (mut seek, mut step) = joiner(adoption);
            let refused = Some(FoundGroup::Refused(refusal(50, 7)));
            assert_eq!(step(&mut seek, ControlEvent::Refused(refusal(50, 7)), Time(0)), refused);
            assert_eq!(seek.settings_in(7), &settings(9));
        }
    }

    #[test]
    fn the_settings_of_a_process_that_waits_are_reported_and_not_adopted() {
        for adoption in [Adoption::Except(BTreeSet::new()), Adoption::Never] {
            let (mut seek, mut step) = joiner(adoption);
            assert_eq!(step(&mut seek, ControlEvent::Refused(refusal(50, 0)), Time(0)), None);
            assert_eq!((seek.settings(Time(0)), seek.differing(Time(0))), (&settings(9), Some(&settings(50))));
            assert_eq!(seek.differing(Time(0) + DIFFERING_COUNTS), None, "it has answered no more");
        }
    }

    #[cfg(mutation)]
    #[test]
    #[ignore = "wants a process of its own: cargo xtask mutations"]
    fn mutations_of_adoption_fail_their_test() {
        use crate::mutation::{Mutation, failure};
        failure(Mutation::GivenKeyAdopted, settings_that_were_given_are_not_adopted);
        failure(Mutation::WaitersAdopted, the_settings_of_a_process_that_waits_are_reported_and_not_adopted);
    }
}

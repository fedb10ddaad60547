//! A process that looks for its group: it creates the group with others, or asks members until one
//! admits it.
//!
//! On one host a lock of the host decides which process creates the group ([`Seek::founder`]); the
//! others ask its members ([`Seek::joiner`]). Between hosts [`Bootstrap`](super::Bootstrap) decides
//! ([`Seek::afar`]), and the process asks at the same time.
use super::{ASK_EVERY, Asks, Claim, ControlEvent, ControlMessage, Founder, InitialView, Question, Refusal, Roster};
use crate::ids::{MemberId, Time, ViewId};
use crate::view::View;
use alloc::vec::Vec;
use core::time::Duration;

/// The properties of a process that looks for its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wants {
    /// The digest of its configuration.
    pub digest: u64,
    /// The number of members with which it would create the group; 1 if any number will do.
    pub members: u32,
    /// True if it wants the state of the application first, if the group exists.
    pub learns: bool,
}

/// The outcome of the search for a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
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

impl From<InitialView> for Found {
    fn from(begun: InitialView) -> Found {
        let members = begun.members.iter().map(|process| process.id).collect();
        Found::Founders { incarnation: Some(begun.incarnation.0), members }
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
enum Way {
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
    way: Way,
    wants: Wants,
    founder: Founder,
    asked: Option<Time>,
    heard: Vec<Here>,
    /// The last time at which a member reported that its group has lost its quorum.
    blocked: Option<Time>,
}

/// How long a report that the group has lost its quorum outweighs reports of processes that wait to
/// create the group, which know less.
const BLOCKED_COUNTS: Duration = ASK_EVERY.saturating_mul(5);

impl Seek {
    /// Returns a process that creates the group on its host.
    pub fn founder(wants: Wants, room: u32) -> Seek {
        Seek::new(Way::Founds, wants, room)
    }

    /// Returns a process that has found members on its host.
    pub fn joiner(wants: Wants) -> Seek {
        Seek::new(Way::Joins, wants, 0)
    }

    /// Returns a process of a group that spans hosts.
    pub fn afar(wants: Wants, room: u32) -> Seek {
        Seek::new(Way::Afar, wants, room)
    }

    fn new(way: Way, wants: Wants, room: u32) -> Seek {
        let founder = Founder::new(wants.digest, wants.members, room);
        Seek { way, wants, founder, asked: None, heard: Vec::new(), blocked: None }
    }

    /// True if it is time to [ask](Self::ask).
    pub fn is_due(&self, now: Time) -> bool {
        self.way != Way::Founds && self.asked.is_none_or(|at| now.since(at) >= ASK_EVERY)
    }

    /// Asks for admission. `here` are the members on this host, as listed in its directory.
    pub fn ask<W>(&mut self, here: &[MemberId], roster: &mut Roster<W>, now: Time) -> Option<Found> {
        self.asked = Some(now);
        let Wants { digest: config, members, learns } = self.wants;
        let question = |observer| Question { config, members, observer, follows: ViewId(0) };
        if self.way == Way::Afar {
            roster.ask_afar(question(learns), now);
        } else if here.is_empty() {
            return Some(Found::Gone);
        }
        for member in here {
            roster.ask(*member, question(learns && self.way == Way::Afar), now);
        }
        None
    }

    /// Takes in control events. Returns the outcome of the search, if it is known.
    pub fn step<W>(&mut self, news: Vec<ControlEvent>, roster: &mut Roster<W>, now: Time) -> Option<Found> {
        let (is_seed, claim) = self.claim(roster, now);
        if self.way == Way::Afar {
            self.founder.take_up(is_seed, claim, now);
        }
        let creates = self.way == Way::Founds || is_seed;
        let mut rest = Vec::new();
        for news in news {
            match news {
                ControlEvent::Refused(why) => return Some(Found::Refused(why)),
                ControlEvent::Waits { members, blocked, present } => {
                    if !creates || blocked {
                        self.note_here(Here { members, blocked, present }, now);
                    }
                }
                ControlEvent::View { incarnation, view, .. } if view.rank_of(roster.me()).is_some() => {
                    if !self.is_founding(&view) {
                        return Some(Found::View { incarnation, view });
                    }
                }
                ControlEvent::View { .. } if self.wants.learns && self.way == Way::Afar => return Some(Found::Group),
                ControlEvent::View { .. } => {}
                news => rest.push(news),
            }
        }
        let is_settled = creates && self.gather(rest, roster, now);
        let founds_alone = self.way == Way::Founds && is_settled;
        founds_alone.then(|| Found::Founders { incarnation: None, members: self.founder.members(roster.me()) })
    }

    /// True if the process with this process's id in `view` may be an earlier one. Only the outcome
    /// of the bootstrap names a founder with its nonce.
    fn is_founding(&self, view: &View) -> bool {
        self.way == Way::Afar && view.id == ViewId(1)
    }

    fn claim<W>(&self, roster: &Roster<W>, now: Time) -> (bool, Claim) {
        let seeds = roster.book().filter(|_| self.way == Way::Afar).map(|book| book.seeds());
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
        if self.way == Way::Founds || is_seed {
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
    use alloc::vec;

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
    fn found(learns: bool, told: ViewAnnouncement) -> Option<Found> {
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
        Seek::afar(Wants { digest: 9, members: 2, learns }, 8).step(heard, &mut roster, Time(0))
    }

    /// Other founders may begin the first view, and announce it, before this one learns the outcome
    /// of the bootstrap. If such a founder learned the state of the group first, the first view
    /// would wait for it, and it for the view.
    #[test]
    fn a_process_in_the_first_view_waits_for_the_word_of_the_founding() {
        for learns in [false, true] {
            assert_eq!(found(learns, view(1, &[1, 2], &[1, 2])), None, "learns: {learns}");
            assert!(matches!(found(learns, view(2, &[1, 2], &[1])), Some(Found::View { .. })), "learns: {learns}");
            assert_eq!(found(learns, view(1, &[2, 3], &[2, 3])), learns.then_some(Found::Group));
        }
    }

    /// Track record: a process was started again at the same address, with the same id, and took an
    /// answer to its predecessor for its own admission. It had a row of zeros in a view in which
    /// its predecessor may have promised.
    #[test]
    fn a_process_enters_no_view_in_which_its_predecessor_was_before() {
        for learns in [false, true] {
            assert_eq!(found(learns, view(6, &[1, 2, 3], &[3])), None, "learns: {learns}");
            assert!(matches!(found(learns, view(6, &[1, 2, 3], &[1])), Some(Found::View { .. })), "learns: {learns}");
        }
    }

    #[test]
    fn the_word_of_a_member_of_a_group_that_is_blocked_counts_more_for_a_while() {
        let me = Me { id: MemberId(1), pid: 7, birth: Default::default() };
        let mut roster: Roster<()> = Roster::new(me, 1, None);
        let mut seek = Seek::joiner(Wants { digest: 9, members: 2, learns: false });
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
}

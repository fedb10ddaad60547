//! How a process becomes a member: it founds the group with others, or asks those who are in it.
use crate::config::Config;
use crate::crew::{Crew, Handover, News, after};
use crate::error::JoinError;
use crate::following::{ASK_EVERY, Follower};
use crate::gathering::{Gathering, Present, SeedsKnown};
use crate::learning::{Admitted, Item, Learner, Queue};
use crate::network::Network;
use crate::node::{Installing, Node, Terms};
use crate::seeds::{CLAIM_FOR, Claim};
use crate::{Batch, Handler};
use rustix::rand::{GetRandomFlags, getrandom};
use spindle_core::{Engine, MemberId, Message, Rank, SubgroupId, View, limits};
use spindle_fabric::mail::{
    GroupName, Letter, MailError, Mailbox, Refusal, Role, RuntimeDir, Standing, VISITOR_IDS_FROM, found_or_find,
};
use spindle_fabric::{MemberBell, MeshError, RegionError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long to wait for news before looking at the clock and the flag again.
const TICK: Duration = Duration::from_millis(10);
/// How long those who ask are collected before a view lets them in, if nobody is on the way.
const QUIET: Duration = Duration::from_millis(1);
/// How often a state is asked for before that is an error.
const LEARN_ATTEMPTS: u32 = 5;
/// The longest that anybody waits for others to come along, and the longest that others wait for anybody.
const COLLECT_MAX: Duration = Duration::from_secs(2);
/// How often those who are waited for are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Who wants to join, at a member; and when the leader lets them in.
///
/// A view for each of many would keep the group busy with itself, and those who learn with following it. So who asks waits for those
/// who have begun to learn and have yet to ask. If there are none it is let in at once.
#[derive(Debug)]
pub(crate) struct Joins {
    asking: BTreeSet<MemberId>,
    /// When the first of them asked, and the newest.
    since: Option<(Instant, Instant)>,
    /// Who learns and has not asked yet, since when.
    learning: BTreeMap<MemberId, Instant>,
    looked: Option<Instant>,
    /// Who has been passed on to the engine.
    admitted: BTreeSet<MemberId>,
    handover: Handover,
}

impl Joins {
    pub(crate) fn new(handover: Handover) -> Joins {
        let (asking, since, learning, looked, admitted) = Default::default();
        Joins { asking, since, learning, looked, admitted, handover }
    }

    /// This member's memory in the view, for those who have to be told again.
    pub(crate) fn handover(&self) -> &Handover {
        &self.handover
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.since.is_some()
    }

    /// Whether somebody asks, and nobody else is expected.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_pending() && self.learning.is_empty()
    }

    pub(crate) fn asking(&self) -> impl Iterator<Item = MemberId> {
        self.asking.iter().copied()
    }

    /// `id` has begun to follow, and will ask when it has learned enough.
    pub(crate) fn expect(&mut self, id: MemberId, now: Instant) {
        // Those whom nobody waits for any more.
        self.learning.retain(|_, came| *came + COLLECT_MAX > now);
        if id.0 < VISITOR_IDS_FROM && !self.admitted.contains(&id) && !self.asking.contains(&id) {
            self.learning.entry(id).or_insert(now);
        }
    }

    pub(crate) fn ask(&mut self, id: MemberId, now: Instant) {
        self.learning.remove(&id);
        if self.admitted.contains(&id) || !self.asking.insert(id) {
            return;
        }
        let first = self.since.map_or(now, |(first, _)| first);
        self.since = Some((first, now));
    }

    pub(crate) fn forget(&mut self, id: MemberId) {
        self.learning.remove(&id);
        self.asking.remove(&id);
        self.admitted.remove(&id);
        if self.asking.is_empty() {
            self.since = None;
        }
    }

    fn due_at(&self) -> Option<Instant> {
        let (first, newest) = self.since?;
        let expected = self.learning.values().max().map(|came| *came + COLLECT_MAX);
        let quiet = newest + QUIET;
        Some(expected.map_or(quiet, |expected| expected.max(quiet)).min(first + COLLECT_MAX))
    }

    /// When to come again, for [`due`](Self::due) or [`expected`](Self::expected).
    pub(crate) fn patience(&self, now: Instant) -> Option<Duration> {
        let left = self.due_at()?.saturating_duration_since(now);
        Some(if self.learning.is_empty() { left } else { left.min(LOOK_EVERY) })
    }

    /// Now and then, while they keep others waiting: those who learn.
    pub(crate) fn expected(&mut self, now: Instant) -> Vec<MemberId> {
        if self.since.is_none() || self.learning.is_empty() || self.looked.is_some_and(|at| now < at + LOOK_EVERY) {
            return vec![];
        }
        self.looked = Some(now);
        self.learning.keys().copied().collect()
    }

    /// Those who are to be let in now.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<MemberId> {
        if self.due_at().is_none_or(|at| at > now) {
            return vec![];
        }
        self.all()
    }

    /// All who ask: they are to be let in by a view that begins anyway.
    pub(crate) fn all(&mut self) -> Vec<MemberId> {
        self.since = None;
        let all: Vec<MemberId> = std::mem::take(&mut self.asking).into_iter().collect();
        self.admitted.extend(&all);
        all
    }

    /// Those who were passed on to an engine and are in no view yet.
    pub(crate) fn admitted(&self) -> impl Iterator<Item = MemberId> {
        self.admitted.iter().copied()
    }

    /// A view has begun.
    pub(crate) fn begin(&mut self, handover: Handover, view: &View) {
        self.handover = handover;
        let is_outside = |id: &MemberId| !view.members.contains(id);
        self.admitted.retain(is_outside);
        self.learning.retain(|id, _| is_outside(id));
        // Others may have let them in.
        self.asking.retain(is_outside);
        if self.asking.is_empty() {
            self.since = None;
        }
    }
}

/// Who waits at a founder.
struct Founding {
    digest: u64,
    /// How many are needed to found the group, and how many it can be founded by.
    members: u32,
    room: u32,
    /// Who waits among the same seeds.
    asking: BTreeMap<MemberId, Waiter>,
    /// Among which seeds this process founds it.
    claim: Claim,
    /// Who waits among others, and when it asked last.
    unlike: BTreeMap<MemberId, Instant>,
    /// When a member of a group that exists answered last, or somebody who founds one among other seeds.
    answered: Option<Instant>,
    /// Who was here last, as those who wait were told.
    present: Vec<Present>,
}

struct Waiter {
    pid: u32,
    asked: Instant,
}

impl Founding {
    fn new(digest: u64, members: u32, room: u32) -> Founding {
        let (asking, claim, unlike, answered, present) = Default::default();
        Founding { digest, members, room, asking, claim, unlike, answered, present }
    }

    /// The group is founded among these seeds, if it `founds` by this process. Who waited before asks again.
    fn take_up(&mut self, founds: bool, claim: Claim) {
        if !founds || claim != self.claim {
            self.asking.clear();
            self.unlike.clear();
        }
        self.claim = claim;
        self.unlike.retain(|_, asked| asked.elapsed() < CLAIM_FOR);
        if claim.is_some() {
            // Who does not repeat its claim may be about to make another.
            self.asking.retain(|_, waiter| waiter.asked.elapsed() < CLAIM_FOR);
        }
    }

    /// Takes in what has happened, and tells all who wait if somebody has come or gone. Who is here, and whether
    /// the group can be founded: everybody is here who is needed, has been told who is here, and still lives by the time of that.
    fn settle(&mut self, crew: &mut Crew, news: Vec<News>) -> (Gathering, bool) {
        let changed = self.hear(crew, news);
        let present = self.present(crew);
        let is_settled = !changed && present == self.present;
        if !is_settled {
            self.tell(crew, &present);
            self.present.clone_from(&present);
        }
        let seeds_missing = self.seeds_missing(crew);
        let is_complete = present.len() as u32 >= self.members && seeds_missing == 0 && !self.exists();
        (Gathering { seeds_missing, ..Gathering::of(self.members, present) }, is_settled && is_complete)
    }

    /// How many more of the seeds have to be here, which takes more than half of them, so that no two processes can found the group.
    fn seeds_missing(&self, crew: &Crew) -> u32 {
        let ids: Vec<MemberId> = self.asking.keys().copied().collect();
        let (here, all) = crew.net().map_or((0, 0), |net| net.seeds().among(&ids));
        if all == 0 { 0 } else { (all / 2 + 1).saturating_sub(here) as u32 }
    }

    /// Whether the group goes on somewhere.
    fn exists(&self) -> bool {
        self.answered.is_some_and(|at| at.elapsed() < 5 * ASK_EVERY)
    }

    /// Takes in who asks, and who has gone. Whether anybody has to be told who is there.
    fn hear(&mut self, crew: &mut Crew, news: Vec<News>) -> bool {
        let (mut changed, wanted, digest) = (false, self.members, self.digest);
        for news in news {
            match news {
                News::Asks { id, process, namesake: Some(address), .. } => {
                    let wait = self.told_to_wait(crew);
                    let answer = crew.turn_away((id, process), None, wait);
                    crew.post_at(Some(&address), id, answer);
                }
                News::Asks { id, config, observer, .. } if !Config::admits(digest, config, observer) => {
                    crew.post(id, Letter::Refused { why: Refusal::Config(digest) });
                }
                News::Asks { id, members, .. } if ![1, wanted].contains(&members) => {
                    crew.post(id, Letter::Refused { why: Refusal::Founders(wanted) });
                }
                // Who only observes takes no part in the founding.
                News::Asks { id, .. } if id.0 >= VISITOR_IDS_FROM => {
                    let wait = self.told_to_wait(crew);
                    crew.post(id, wait);
                }
                // It may found a group, or be needed for another one. The answer keeps it from founding while this process is about to.
                News::Asks { id, seeds, .. } if seeds != self.claim => {
                    changed |= self.asking.remove(&id).is_some();
                    if self.unlike.contains_key(&id) || (self.unlike.len() as u32) < self.room {
                        self.unlike.insert(id, Instant::now());
                    }
                    let wait = self.told_to_wait(crew);
                    crew.post(id, wait);
                }
                News::Asks { id, pid, .. } => {
                    changed = true;
                    self.unlike.remove(&id);
                    if self.asking.contains_key(&id) || (self.asking.len() as u32) + 1 < self.room {
                        self.asking.insert(id, Waiter { pid, asked: Instant::now() });
                    }
                }
                News::Died(id) | News::Lost(id) => {
                    changed |= self.asking.remove(&id).is_some();
                    self.unlike.remove(&id);
                }
                _ => {}
            }
        }
        changed
    }

    /// What those are told who are not counted.
    fn told_to_wait(&self, crew: &Crew) -> Letter {
        let present = self.present.iter().map(|present| (present.id, present.pid)).collect();
        Letter::Wait { members: self.members, leader: crew.me, blocked: false, present }
    }

    fn present(&self, crew: &Crew) -> Vec<Present> {
        let others = self.asking.iter().map(|(id, waiter)| Present { id: *id, pid: waiter.pid });
        let mut present: Vec<Present> = others.chain([present(crew, crew.me)]).collect();
        present.sort_by_key(|present| present.id);
        present
    }

    /// Tells all who wait who is there. Who waits and ends closes its mailbox, which shows when it is written to.
    fn tell(&self, crew: &mut Crew, here: &[Present]) {
        let told: Vec<(MemberId, u32)> = here.iter().map(|present| (present.id, present.pid)).collect();
        for id in self.asking.keys() {
            let wait = Letter::Wait { members: self.members, leader: crew.me, blocked: false, present: told.clone() };
            crew.post(*id, wait);
        }
    }
}

/// The handler of those who have no state. Nobody calls it.
struct NoState;

impl Handler for NoState {
    fn deliver(&mut self, _: SubgroupId, _: &mut Batch<'_>) {}
}

/// A process that is not a member yet.
struct Candidate<'a> {
    config: &'a Config,
    dir: RuntimeDir,
    group: GroupName,
    digest: u64,
    /// Made before the members wait for this process: for a process with threads it takes milliseconds.
    bell: MemberBell,
    deadline: Instant,
    cancelled: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&Gathering),
    seen: Gathering,
    /// When a member of a group that can't go on has said so last.
    blocked: Option<Instant>,
    /// The member whose state broke off last.
    failed_source: Option<MemberId>,
    /// The handler has begun to take over a state.
    has_restored: bool,
    /// The members may have let in the last attempt, or are about to.
    is_wanted: bool,
}

impl Config {
    /// Joins the group, or founds it together with the others that this configuration asks for.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(self) -> Result<Node, JoinError> {
        self.join_with(&mut |_| {}, &AtomicBool::new(false))
    }

    /// As [`join`](Self::join); tells `progress` who is there and who is missing, and gives up soon after `cancelled` is set.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join_with(self, progress: &mut dyn FnMut(&Gathering), cancelled: &AtomicBool) -> Result<Node, JoinError> {
        Candidate::new(&self, progress, cancelled)?.join(&mut None::<&mut NoState>)
    }

    /// As [`join_with`](Self::join_with), for applications that have a state: `handler` [restores](Handler::restore) that of a member,
    /// [learns](Handler::learn) what was sent since, and has the same state as all members when the answer is there. The group does not
    /// wait meanwhile. If the group is founded just now there is no state, and nothing to learn.
    ///
    /// # Errors
    /// [`JoinError`]; [`JoinError::Restore`] if the handler could not restore the state; [`JoinError::GroupGone`] if all members were gone
    /// after it had: what the handler holds then is the state of no group, so begin with a new one.
    pub fn learn(
        self,
        handler: &mut impl Handler,
        progress: &mut dyn FnMut(&Gathering),
        cancelled: &AtomicBool,
    ) -> Result<Node, JoinError> {
        let mut candidate = Candidate::new(&self, progress, cancelled)?;
        let mut handler = Some(handler);
        for _ in 1..LEARN_ATTEMPTS {
            match candidate.join(&mut handler) {
                // The source died, or the group was too fast for a moment: another one, from the start.
                Err(JoinError::Source(_) | JoinError::Lapped(_)) if candidate.may_try_again() => {}
                Err(JoinError::GroupGone) => {}
                joined => return joined,
            }
        }
        candidate.join(&mut handler)
    }

    pub(crate) fn place(&self) -> Result<(RuntimeDir, GroupName), JoinError> {
        let dir = match &self.runtime_dir {
            Some(path) => RuntimeDir::new(path),
            None => RuntimeDir::default_for_user(None),
        };
        Ok((dir?, GroupName::new(&self.group)?))
    }

    /// All members of the group, in this process: for tests and for trying things out.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn local(&self) -> Result<Vec<Node>, JoinError> {
        self.check()?;
        let board = Arc::default();
        let view = self.view((1..=u64::from(self.members)).map(MemberId).collect());
        // Nodes of one process may be polled by one thread, which is silent at all but one of them.
        let terms = Terms { suspect_after: None, ..self.terms() };
        let installing = |id: &MemberId| -> Result<_, JoinError> {
            let mut crew = Crew::local(&board, *id);
            let bell = MemberBell::create().map_err(no_bell)?;
            let me = view.rank_of(*id).expect("a member of its own view");
            let engine = Engine::new(view.clone(), me, terms.ablation)?;
            let installing = Installing::new(engine, &mut crew, &bell, &terms, None)?;
            Ok((crew, installing, bell))
        };
        let members: Vec<_> = view.members.iter().map(installing).collect::<Result<_, _>>()?;
        members.into_iter().map(|(crew, installing, bell)| Node::new(crew, installing, bell, terms)).collect()
    }

    fn check(&self) -> Result<(), JoinError> {
        if self.subgroups.is_empty() {
            return Err(JoinError::NoSubgroup);
        }
        if self.members == 0 || self.members as usize > limits::MEMBERS_MAX {
            return Err(JoinError::Members { got: self.members });
        }
        Ok(self.view((1..=u64::from(self.members)).map(MemberId).collect()).check()?)
    }

    pub(crate) fn terms(&self) -> Terms {
        Terms {
            object_bytes_max: self.object_bytes_max,
            spin_for: self.spin_for,
            suspect_after: self.suspect_after,
            ablation: self.ablation,
            digest: self.digest(),
        }
    }
}

impl<'a> Candidate<'a> {
    fn new(
        config: &'a Config,
        progress: &'a mut dyn FnMut(&Gathering),
        cancelled: &'a AtomicBool,
    ) -> Result<Candidate<'a>, JoinError> {
        config.check()?;
        let (dir, group) = config.place()?;
        let bell = if config.network.is_some() { MemberBell::with_event() } else { MemberBell::create() };
        let (digest, bell) = (config.digest(), bell.map_err(no_bell)?);
        let deadline = after(Instant::now(), config.gather_timeout);
        let seen = Gathering::of(config.members, vec![]);
        Ok(Candidate {
            config,
            dir,
            group,
            digest,
            bell,
            deadline,
            cancelled,
            progress,
            seen,
            blocked: None,
            failed_source: None,
            has_restored: false,
            is_wanted: false,
        })
    }

    /// Whether another attempt can't be taken for the last one, which may be a member by now and answers nobody: it has an id of its
    /// own, or the last one was not so far.
    fn may_try_again(&self) -> bool {
        self.config.id.is_none() || !self.is_wanted
    }

    fn join<H: Handler>(&mut self, handler: &mut Option<&mut H>) -> Result<Node, JoinError> {
        if let Some(network) = &self.config.network {
            return self.join_afar(network, handler);
        }
        let role = found_or_find(&self.dir, &self.group, self.config.id.map(MemberId), self.deadline, self.cancelled);
        let role = role.map_err(|error| self.named(error))?;
        let (mailbox, mut standing) = match role {
            Role::Founder { mailbox, incarnation } => (mailbox, Standing::Founder { incarnation }),
            Role::Joiner { mailbox, members } => (mailbox, Standing::Joiner { members }),
        };
        let mut crew = Crew::new(mailbox, Some(&self.bell), None)?;
        self.see_myself(&crew);
        let view = loop {
            let came = match standing {
                // A new group begins with nothing, and what the handler holds by now is the dead one's state.
                Standing::Founder { .. } if self.has_restored => return Err(JoinError::GroupGone),
                Standing::Founder { incarnation } => {
                    crew.set_incarnation(incarnation);
                    Some(self.gather(&mut crew)?)
                }
                Standing::Joiner { members } => match handler {
                    Some(handler) => {
                        let Admitted { crew, installing } = self.learn(crew, *handler)?;
                        return self.install(crew, installing);
                    }
                    None => self.ask(&mut crew, members)?,
                },
            };
            if let Some(view) = came {
                break view;
            }
            // All members were gone before they let this process in.
            let mailbox = crew.mailbox().expect("a process that joins has an address");
            standing = mailbox.found(self.deadline, self.cancelled).map_err(|error| self.named(error))?;
        };
        let installing = Installing::first(view, &[], &mut crew, &self.bell, &self.config.terms(), None)?;
        self.install(crew, installing)
    }

    /// Joins a group that spans hosts: asks its members on this one, and the seeds.
    fn join_afar<H: Handler>(&mut self, network: &Network, handler: &mut Option<&mut H>) -> Result<Node, JoinError> {
        let id = match self.config.id {
            Some(id) => MemberId(id),
            None => random_id()?,
        };
        let mailbox = Mailbox::open(&self.dir, &self.group, id)?;
        let mut crew = Crew::new(mailbox, Some(&self.bell), Some((network, &self.dir, &self.group)))?;
        self.see_myself(&crew);
        // Who has a state to learn only follows, and is let in by those who found the group as by those who are it.
        let founds = handler.is_none() || crew.net().is_some_and(|net| net.seeds().may_found(Instant::now()));
        let view = if founds { self.meet(&mut crew, handler.is_some())? } else { None };
        let Some(view) = view else {
            // They have nothing to do with what is waited for from now on.
            self.seen.seeds = None;
            let handler = handler.as_mut().expect("only who learns has met a group without being let in");
            let Admitted { crew, installing } = self.learn(crew, *handler)?;
            return self.install(crew, installing);
        };
        if self.has_restored {
            // A new group begins with nothing, and what the handler holds by now is the dead one's state.
            return Err(JoinError::GroupGone);
        }
        let installing = Installing::first(view, &[], &mut crew, &self.bell, &self.config.terms(), None)?;
        self.install(crew, installing)
    }

    /// Asks members and seeds until one tells the view that lets this process in; or founds the group, if that is its part. `None`: there is a
    /// group, of which this process wants the state first.
    fn meet(&mut self, crew: &mut Crew, learns: bool) -> Result<Option<View>, JoinError> {
        let mut founding = Founding::new(self.digest, self.config.members, limits::MEMBERS_MAX as u32);
        let mut asked: Option<Instant> = None;
        loop {
            if asked.is_none_or(|at| at.elapsed() >= ASK_EVERY) {
                asked = Some(Instant::now());
                crew.ask_afar(self.digest, self.config.members, learns);
                for member in Mailbox::members(&self.dir, &self.group)? {
                    crew.ask(member, self.digest, self.config.members, learns);
                }
            }
            let news = self.news(crew)?;
            let now = Instant::now();
            let seeds = crew.net().map(|net| (net.seeds().founds(now), net.seeds().claim(now)));
            let (founds, claim) = seeds.unwrap_or_default();
            founding.take_up(founds, claim);
            let unlike = founding.unlike.len() as u32;
            self.see_seeds(crew, unlike);
            let mut rest = vec![];
            for news in news {
                match news {
                    News::Refused(why) => return Err(JoinError::Refused(why)),
                    News::Waits(gathering) => {
                        // Nobody but members answers who founds, and who founds among other seeds.
                        founding.answered = Some(Instant::now());
                        if !founds || gathering.blocked {
                            self.hear_who_is_here(gathering);
                        }
                    }
                    News::View { incarnation, view } if view.rank_of(crew.me).is_some() => {
                        let mailbox = crew.mailbox().expect("a process that joins has an address");
                        if mailbox.enter_afar(incarnation)? {
                            crew.set_incarnation(incarnation);
                            return Ok(Some(view));
                        }
                    }
                    News::View { .. } if learns => return Ok(None),
                    News::View { .. } => founding.answered = Some(Instant::now()),
                    news => rest.push(news),
                }
            }
            if founds && let Some(view) = self.found(crew, &mut founding, rest)? {
                return Ok(Some(view));
            }
        }
    }

    /// Founds the group if everybody is here who is needed for it.
    fn found(&mut self, crew: &mut Crew, founding: &mut Founding, news: Vec<News>) -> Result<Option<View>, JoinError> {
        let (here, settled) = founding.settle(crew, news);
        self.hear_who_is_here(here);
        if !settled {
            return Ok(None);
        }
        let mailbox = crew.mailbox().expect("a process that joins has an address");
        let standing = mailbox.found(self.deadline, self.cancelled).map_err(|error| self.named(error))?;
        // Otherwise a member lives on this host, and answers.
        let Standing::Founder { incarnation } = standing else { return Ok(None) };
        crew.set_incarnation(incarnation);
        self.first_view(crew, founding.asking.keys().copied().collect()).map(Some)
    }

    /// The view that begins the group, told to all who are in it.
    fn first_view(&self, crew: &mut Crew, others: Vec<MemberId>) -> Result<View, JoinError> {
        let mut ids = others.clone();
        ids.push(crew.me);
        ids.sort_unstable();
        let view = self.config.view(ids);
        view.check()?;
        crew.expect(&view);
        crew.tell_view(&view, others);
        Ok(view)
    }

    /// As the founder: waits for the others, and makes the first view.
    fn gather(&mut self, crew: &mut Crew) -> Result<View, JoinError> {
        let members = self.config.members;
        let mut founding = Founding::new(self.digest, members, members);
        let mut settled = members == 1;
        while !settled {
            let news = self.news(crew)?;
            let here;
            (here, settled) = founding.settle(crew, news);
            self.see(here);
        }
        self.first_view(crew, founding.asking.into_keys().collect())
    }

    /// As somebody who finds members: asks until one tells the view that lets this process in. `None` if they are all gone.
    fn ask(&mut self, crew: &mut Crew, mut members: Vec<MemberId>) -> Result<Option<View>, JoinError> {
        let mut asked: Option<Instant> = None;
        loop {
            if asked.is_none_or(|at| at.elapsed() >= ASK_EVERY) {
                if asked.is_some() {
                    members = Mailbox::members(&self.dir, &self.group)?;
                }
                if members.is_empty() {
                    return Ok(None);
                }
                for member in &members {
                    crew.ask(*member, self.digest, self.config.members, false);
                }
                asked = Some(Instant::now());
            }
            for news in self.news(crew)? {
                match news {
                    News::Refused(why) => return Err(JoinError::Refused(why)),
                    News::Waits(gathering) => self.hear_who_is_here(gathering),
                    News::View { incarnation, view } if view.rank_of(crew.me).is_some() => {
                        let mailbox = crew.mailbox().expect("a process that joins has an address");
                        if !mailbox.enter(incarnation)? {
                            continue;
                        }
                        crew.set_incarnation(incarnation);
                        return Ok(Some(view));
                    }
                    _ => {}
                }
            }
        }
    }

    /// As somebody who finds members and wants their application's state.
    fn learn<H: Handler>(&mut self, crew: Crew, handler: &mut H) -> Result<Admitted, JoinError> {
        let queue = Arc::new(Queue::default());
        let seen = Arc::new(Mutex::new(self.seen.clone()));
        let (dir, group) = (self.dir.clone(), self.group.clone());
        let bytes_max = self.config.object_bytes_max;
        let follower = Follower::new(crew, self.digest, self.config.members, bytes_max, (dir, group));
        let begin = (self.bell.clone(), self.config.terms());
        let learner = Learner::new(follower, begin, self.failed_source, Arc::clone(&queue), Arc::clone(&seen));
        let thread = thread::Builder::new().name("spindle-learn".into()).spawn(move || learner.run());
        let thread = thread.map_err(JoinError::Thread)?;
        let learned = self.apply(handler, &queue, &seen);
        queue.stop.store(true, Ordering::Release);
        let _ = thread.join();
        self.is_wanted = queue.is_wanted.load(Ordering::Relaxed);
        learned
    }

    /// Applies what the follower brings, until it says that this process is let in.
    fn apply<H: Handler>(
        &mut self,
        handler: &mut H,
        queue: &Queue,
        seen: &Mutex<Gathering>,
    ) -> Result<Admitted, JoinError> {
        // Places of the view in which the state was taken; nothing is applied before it.
        let mut state: Option<(Arc<View>, Vec<Option<u64>>)> = None;
        loop {
            let here = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
            self.show(here);
            let tick = self.tick()?;
            let item = queue.take(tick);
            let came = item.is_some();
            match item {
                None => {}
                Some(Item::State { state: mut taken, source, view }) => {
                    self.has_restored = true;
                    if let Err(error) = handler.restore(&mut taken) {
                        if !taken.broken {
                            return Err(JoinError::Restore(error));
                        }
                        self.failed_source = Some(source);
                        return Err(JoinError::Source(error));
                    }
                    queue.restored.store(true, Ordering::Relaxed);
                    state = Some((view, taken.places));
                }
                Some(Item::Message { subgroup, sender, round, payload }) => {
                    let Some((view, places)) = &state else { continue };
                    let senders = &view.subgroups[subgroup.index()].senders;
                    let place =
                        senders.binary_search(&sender).ok().map(|rank| round * senders.len() as u64 + rank as u64);
                    let is_known = places.get(subgroup.index()).copied().flatten().zip(place);
                    if is_known.is_none_or(|(state, place)| place >= state) {
                        handler.learn(view, subgroup, &Message { sender, round, payload: &payload });
                    }
                }
                Some(Item::Changed(change)) => {
                    if let Some((view, places)) = &mut state {
                        // Everything in the new view comes after the state.
                        *view = Arc::clone(&change.new);
                        places.clear();
                        handler.view_changed(&change);
                    }
                }
                Some(Item::Admitted(admitted)) => return Ok(*admitted),
                Some(Item::Failed(error)) => return Err(error),
            }
            if came {
                // The time is that of a wait, not of a transfer.
                self.deadline = after(Instant::now(), self.config.gather_timeout);
            }
        }
    }

    /// Begins the first view of this process.
    fn install(&mut self, mut crew: Crew, mut installing: Installing) -> Result<Node, JoinError> {
        while !installing.look(&mut crew) {
            crew.wait(self.tick()?.min(installing.patience()));
            installing.attend(&mut crew, self.digest);
        }
        Node::new(crew, installing, self.bell.clone(), self.config.terms())
    }

    /// What has happened, after a short wait for it.
    fn news(&mut self, crew: &mut Crew) -> Result<Vec<News>, JoinError> {
        let tick = self.tick()?;
        crew.wait(tick);
        Ok(crew.news())
    }

    /// How long to wait for the next event at most; an error if the wait is over.
    fn tick(&self) -> Result<Duration, JoinError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(JoinError::Cancelled { gathering: self.seen.clone() });
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(JoinError::TimedOut { gathering: self.seen.clone() });
        }
        Ok(left.min(TICK))
    }

    /// Somebody tells who is here. Those who wait to found the group know less than those of one that can't go on, and say otherwise.
    fn hear_who_is_here(&mut self, gathering: Gathering) {
        if gathering.blocked {
            self.blocked = Some(Instant::now());
        } else if self.blocked.is_some_and(|at| at.elapsed() < 5 * ASK_EVERY) {
            return;
        }
        let gathering = gathering.behind(&self.seen);
        self.see(gathering);
    }

    fn see(&mut self, gathering: Gathering) {
        let Gathering { seeds, unreached, .. } = self.seen.clone();
        self.show(Gathering { seeds, unreached, ..gathering });
    }

    /// To begin with. Between hosts nobody knows who is here but who founds the group, or is in it.
    fn see_myself(&mut self, crew: &Crew) {
        let founds = crew.net().is_none_or(|net| net.seeds().founds(Instant::now()));
        let present = if founds { vec![present(crew, crew.me)] } else { vec![] };
        self.show(Gathering { members: self.config.members, present, seeds_missing: 0, ..self.seen.clone() });
    }

    /// What is known of the seeds; `unlike` of those who wait have others in mind.
    fn see_seeds(&mut self, crew: &Crew, unlike: u32) {
        let Some(net) = crew.net() else { return };
        let seeds = net.seeds_known().map(|seeds| Box::new(SeedsKnown { unlike, ..seeds }));
        self.show(Gathering { seeds, unreached: net.unreached_seeds(), ..self.seen.clone() });
    }

    fn show(&mut self, gathering: Gathering) {
        if gathering != self.seen {
            (self.progress)(&gathering);
            self.seen = gathering;
        }
    }

    fn named(&self, error: MailError) -> JoinError {
        match error {
            MailError::Cancelled => JoinError::Cancelled { gathering: self.seen.clone() },
            error => error.into(),
        }
    }
}

fn no_bell(source: RegionError) -> MeshError {
    MeshError::Region { rank: Rank(0), part: "doorbell", source }
}

fn present(crew: &Crew, id: MemberId) -> Present {
    Present { id, pid: crew.pid(id) }
}

/// An id that nobody else takes, in all likelihood: there is nobody who could give one out.
pub(crate) fn random_id() -> Result<MemberId, JoinError> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|errno| JoinError::Host(errno.into()))?;
    Ok(MemberId((u64::from_le_bytes(bytes) % VISITOR_IDS_FROM).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::Process;
    use crate::crew::tests::{Hosts, PATIENCE};
    use spindle_fabric::PeerParts;
    use std::fs::File;
    use std::num::NonZeroU64;

    const MS: Duration = Duration::from_millis(1);

    fn joins() -> (Joins, Instant) {
        (Joins::new(handover()), Instant::now())
    }

    fn handover() -> Handover {
        let fd = || File::open("/dev/null").unwrap().into();
        Handover::new(PeerParts { row: fd(), bell: fd(), event: None })
    }

    #[test]
    fn who_is_alone_is_let_in_at_once() {
        let (mut joins, now) = joins();
        joins.expect(MemberId(4), now);
        assert_eq!(joins.patience(now), None);
        joins.ask(MemberId(4), now);
        assert_eq!(joins.patience(now), Some(QUIET));
        assert_eq!(joins.due(now), []);
        assert_eq!(joins.due(now + QUIET), [MemberId(4)]);
        // It may ask again before its view begins.
        joins.ask(MemberId(4), now + QUIET);
        assert_eq!(joins.due(now + COLLECT_MAX), []);
        assert_eq!(joins.admitted().collect::<Vec<_>>(), [MemberId(4)]);
    }

    #[test]
    fn who_asks_waits_for_those_who_learn() {
        let (mut joins, now) = joins();
        for id in 4..=6 {
            joins.expect(MemberId(id), now);
        }
        joins.ask(MemberId(5), now);
        assert!(!joins.is_complete());
        assert_eq!(joins.due(now + 100 * MS), []);
        assert_eq!(joins.expected(now + 100 * MS), [MemberId(4), MemberId(6)]);
        joins.ask(MemberId(4), now + 200 * MS);
        joins.forget(MemberId(6));
        assert!(joins.is_complete());
        assert_eq!(joins.due(now + 200 * MS + QUIET), [MemberId(4), MemberId(5)]);
    }

    #[test]
    fn nobody_waits_for_long_and_nobody_is_waited_for_for_long() {
        let (mut joins, now) = joins();
        joins.expect(MemberId(4), now);
        joins.ask(MemberId(5), now + COLLECT_MAX - 10 * MS);
        assert_eq!(joins.due(now + COLLECT_MAX - MS), []);
        assert_eq!(joins.due(now + COLLECT_MAX), [MemberId(5)]);

        let (mut joins, now) = self::joins();
        joins.expect(MemberId(4), now);
        joins.ask(MemberId(5), now);
        // They keep coming.
        joins.expect(MemberId(6), now + COLLECT_MAX - MS);
        assert_eq!(joins.due(now + COLLECT_MAX - MS), []);
        assert_eq!(joins.due(now + COLLECT_MAX), [MemberId(5)]);
    }

    #[test]
    fn visitors_never_ask_and_are_not_waited_for() {
        let (mut joins, now) = joins();
        joins.expect(MemberId(VISITOR_IDS_FROM), now);
        joins.ask(MemberId(4), now);
        assert_eq!(joins.due(now + QUIET), [MemberId(4)]);
    }

    #[test]
    fn a_view_forgets_whom_it_lets_in() {
        let (mut joins, now) = joins();
        for id in 4..=6 {
            joins.ask(MemberId(id), now);
        }
        let view = Config::new("g", 1).view([1, 4, 5].map(MemberId).to_vec());
        joins.begin(handover(), &view);
        assert_eq!(joins.asking().collect::<Vec<_>>(), [MemberId(6)]);
        // It has waited for long enough.
        assert_eq!(joins.due(now + QUIET), [MemberId(6)]);
        joins.begin(handover(), &Config::new("g", 1).view([1, 6].map(MemberId).to_vec()));
        assert!(!joins.is_pending() && joins.admitted().next().is_none());
    }

    #[test]
    fn who_waits_among_other_seeds_is_told_and_founds_nothing_here() {
        let hosts = Hosts::new("unlike");
        let mut crew = hosts.crew(0, 1, "a", &[]);
        let claim = |number| NonZeroU64::new(number);
        let asks = |id, seeds| News::Asks {
            id: MemberId(id),
            pid: 7,
            process: Process::Far(id.into()),
            config: 9,
            members: 2,
            observer: false,
            seeds,
            namesake: None,
        };
        let mut founding = Founding::new(9, 2, 10);
        founding.take_up(true, claim(5));
        let heard = |founding: &mut Founding, crew: &mut Crew, news| {
            founding.hear(crew, news);
            let ids = |ids: Vec<&MemberId>| ids.into_iter().map(|id| id.0).collect::<Vec<_>>();
            (ids(founding.asking.keys().collect()), ids(founding.unlike.keys().collect()))
        };
        let news = vec![asks(2, claim(5)), asks(3, claim(6)), asks(4, None)];
        assert_eq!(heard(&mut founding, &mut crew, news), (vec![2], vec![3, 4]));
        // They change their minds.
        let news = vec![asks(2, claim(6)), asks(3, claim(5)), asks(4, claim(5))];
        assert_eq!(heard(&mut founding, &mut crew, news), (vec![3, 4], vec![2]));
        assert_eq!(heard(&mut founding, &mut crew, vec![News::Lost(MemberId(2))]), (vec![3, 4], vec![]));
        // So does this process. Who waits among the same has not said so yet.
        founding.take_up(true, claim(6));
        assert_eq!(heard(&mut founding, &mut crew, vec![]), (vec![], vec![]));
        // Where each seed is one process, none is counted that takes it for several.
        founding.take_up(true, None);
        let news = vec![asks(2, claim(6)), asks(3, None)];
        assert_eq!(heard(&mut founding, &mut crew, news), (vec![3], vec![2]));
        founding.take_up(false, None);
        assert_eq!(heard(&mut founding, &mut crew, vec![]), (vec![], vec![]));
    }

    #[test]
    fn who_does_not_repeat_its_claim_is_not_waiting_any_more() {
        let mut founding = Founding::new(9, 2, 10);
        let claim = NonZeroU64::new(5);
        founding.take_up(true, claim);
        let asked = Instant::now() - CLAIM_FOR;
        founding.asking.insert(MemberId(2), Waiter { pid: 7, asked });
        founding.asking.insert(MemberId(3), Waiter { pid: 7, asked: asked + 100 * CLAIM_FOR });
        founding.take_up(true, claim);
        assert!(founding.asking.keys().eq(&[MemberId(3)]));
    }

    /// More than half of the seeds start again while the group goes on: one of them that `answers` is in it, and asks.
    fn meet(name: &str, answers: bool, gather_timeout: Duration) -> Result<Option<View>, JoinError> {
        let hosts = Hosts::new(name);
        let seeds = ["a", "b", "c"];
        let network = Some(hosts.network("a", &seeds));
        let config = Config { gather_timeout, runtime_dir: Some(hosts.dir(0)), network, ..Config::new("g", 1) };
        let (mut crew, mut other) = (hosts.crew(0, 1, "a", &seeds), hosts.crew(1, 2, "b", &seeds));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let meeting = scope.spawn(|| {
                let (mut progress, cancelled) = (|_: &Gathering| {}, AtomicBool::new(false));
                let met = Candidate::new(&config, &mut progress, &cancelled).unwrap().meet(&mut crew, false);
                over.store(true, Ordering::Release);
                met
            });
            while !over.load(Ordering::Acquire) {
                other.wait(TICK);
                for news in other.news() {
                    let News::Asks { id, .. } = news else { continue };
                    if answers {
                        other.post(id, Letter::Wait { members: 1, leader: other.me, blocked: false, present: vec![] });
                    }
                    other.ask(id, config.digest(), 1, false);
                }
            }
            meeting.join().unwrap()
        })
    }

    #[test]
    fn nobody_founds_a_group_while_one_answers() {
        let met = meet("answers", true, 800 * MS);
        assert!(matches!(met, Err(JoinError::TimedOut { .. })), "{met:?}");
        let view = meet("no-answer", false, PATIENCE).unwrap().unwrap();
        assert_eq!(view.members, [1, 2].map(MemberId));
    }
}

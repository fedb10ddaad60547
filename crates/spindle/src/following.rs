//! How a process follows a group from outside, from view to view: what those who [observe](crate::Observing) it and those who
//! [learn](crate::Config::learn) its state have in common.
//!
//! It asks the members for the newest view and for their memory in it, reads what they deliver there, and goes with them to the
//! next view. What stands in no ring it has members [send](Ahead). Nobody waits for it. If the members pass over a view before it has their
//! memory of it, it goes on with the newest.
use crate::ViewChange;
use crate::crew::{Crew, News};
use crate::error::JoinError;
use crate::large::{Ahead, Next};
use spindle_core::control::{self, ASK_EVERY, Letter, Refusal, Request};
use spindle_core::{Gap, Lapped, Layout, MemberId, Observer, Rank, Seen, SubgroupId, View, ViewId};
use spindle_fabric::Watched;
use spindle_fabric::mail::{GroupName, Mailbox, RuntimeDir};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After so long without a word from other hosts the group counts as gone.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long a view may go on after the stream from one of its members was lost.
const CUT_MAX: Duration = Duration::from_secs(3);
/// How long the memory of a view may be on its way while the members are in a newer one already.
const PARTS_WAIT: Duration = Duration::from_millis(200);

/// Messages that are read on at once while an object is still to come, at most.
const READ_ON_MAX: usize = 1024;

/// Somebody who follows.
#[derive(Debug)]
pub(crate) struct Follower {
    crew: Crew,
    digest: u64,
    /// How many members it would found the group with; 1 if it minds no number.
    founders: u32,
    dir: RuntimeDir,
    group: GroupName,
    incarnation: u128,
    followed: Option<Followed>,
    /// The one that is about to begin.
    arriving: Option<Arriving>,
    /// The newest view that a member has told of, if it is newer than the one that is followed.
    told: Option<View>,
    asked: Option<Instant>,
    /// In a group that spans hosts: when anything was heard from anybody last.
    heard: Instant,
    /// What was read behind an object that has yet to come.
    ahead: Ahead,
    /// The newest message, if it was among that.
    payload: Option<Vec<u8>>,
    /// The longest object that it takes.
    object_bytes_max: u64,
}

/// The newest view that was begun.
#[derive(Debug)]
struct Followed {
    observer: Observer,
    rows: Watched,
    view: Arc<View>,
    /// Once it is followed to its end: the one that was decided on, and since when it is waited for.
    next: Option<(Arc<View>, Instant)>,
    /// Since when somebody's stream has been down.
    cut: Option<Instant>,
}

/// A view of which all members have handed over something, and not all of it may be here.
#[derive(Debug)]
struct Arriving {
    view: Arc<View>,
    rows: Watched,
    since: Instant,
}

/// Which view begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begun {
    /// The one behind the last, at its beginning.
    Next,
    /// The newest, at its present.
    Newest,
}

impl Follower {
    /// One with an address in `group`, which shows the members `digest` as its configuration's.
    pub(crate) fn new(
        crew: Crew,
        digest: u64,
        founders: u32,
        object_bytes_max: u64,
        (dir, group): (RuntimeDir, GroupName),
    ) -> Follower {
        let (incarnation, followed, arriving, told, asked, ahead, payload) = Default::default();
        Follower {
            crew,
            digest,
            founders,
            dir,
            group,
            incarnation,
            followed,
            arriving,
            told,
            asked,
            heard: Instant::now(),
            ahead,
            payload,
            object_bytes_max,
        }
    }

    /// Whether this process joins with the view `id`, and no other that has its id.
    pub(crate) fn joins_with(&self, id: ViewId) -> bool {
        self.crew.roster().joins_with(id)
    }

    pub(crate) fn spans_hosts(&self) -> bool {
        self.crew.net().is_some()
    }

    pub(crate) fn me(&self) -> MemberId {
        self.crew.me
    }

    pub(crate) fn crew(&mut self) -> &mut Crew {
        &mut self.crew
    }

    /// What is needed to take part in the group.
    pub(crate) fn into_crew(self) -> (Crew, u128) {
        (self.crew, self.incarnation)
    }

    /// Whether a view is being followed; if not, the next one has yet to begin.
    pub(crate) fn is_following(&self) -> bool {
        self.followed.as_ref().is_some_and(|followed| followed.next.is_none())
    }

    /// The newest view that was begun.
    pub(crate) fn view(&self) -> Option<&Arc<View>> {
        self.followed.as_ref().map(|followed| &followed.view)
    }

    /// The newest view that a member has told of and that has not begun here.
    pub(crate) fn told(&self) -> Option<&View> {
        self.told.as_ref()
    }

    /// By subgroup of the view that was begun: how many places of its order lie behind.
    pub(crate) fn places(&self) -> Vec<u64> {
        let place = |followed: &Followed| {
            let ids = (0..followed.view.subgroups.len() as u32).map(SubgroupId);
            ids.map(|id| followed.observer.place(id)).collect()
        };
        self.followed.as_ref().map(place).unwrap_or_default()
    }

    /// What of `subgroup` lies behind.
    pub(crate) fn behind(&self, subgroup: SubgroupId) -> Vec<Gap> {
        self.followed.as_ref().map(|followed| followed.observer.behind(subgroup)).unwrap_or_default()
    }

    /// Asks for the newest view and its members' memory, if none is being followed; or to be let in, if it `wants_in`. Whether it
    /// was time to ask.
    ///
    /// # Errors
    /// [`JoinError::GroupGone`], and what the system refuses.
    pub(crate) fn ask(&mut self, wants_in: bool) -> Result<bool, JoinError> {
        if self.asked.is_some_and(|at| at.elapsed() < ASK_EVERY) {
            return Ok(false);
        }
        self.asked = Some(Instant::now());
        let members = Mailbox::members(&self.dir, &self.group)?;
        let spans_hosts = self.spans_hosts();
        if members.is_empty() && (!spans_hosts || self.incarnation != 0 && self.heard.elapsed() > SILENCE_MAX) {
            return Err(JoinError::GroupGone);
        }
        if wants_in || !self.is_following() {
            let (digest, founders) = (self.digest, self.founders);
            self.crew.act(|roster, now| {
                roster.ask_afar(digest, founders, !wants_in, now);
                for member in members {
                    roster.ask(member, digest, founders, !wants_in, now);
                }
            });
        }
        Ok(true)
    }

    /// Asks at the next opportunity, whenever it did last.
    pub(crate) fn ask_again(&mut self) {
        self.asked = None;
    }

    /// Takes in what members have written. What is not about the views is passed on.
    ///
    /// # Errors
    /// [`JoinError::Refused`]; [`JoinError::GroupGone`] if it is another group of the same name by now.
    pub(crate) fn news(&mut self) -> Result<Vec<News>, JoinError> {
        self.progress();
        if self.crew.is_calm() {
            return Ok(vec![]);
        }
        let mut rest = vec![];
        for news in self.crew.news() {
            self.heard = Instant::now();
            match news {
                News::Control(control::News::Refused(why)) if why != Refusal::NoState => {
                    return Err(JoinError::Refused(why));
                }
                News::Control(control::News::View { incarnation, view, .. }) => self.hear_of(incarnation, view)?,
                News::Control(control::News::Died(id)) => {
                    // It may have been the last one.
                    self.ask_again();
                    self.ahead.lost(id);
                    rest.push(News::Control(control::News::Died(id)));
                }
                News::Control(control::News::Lost(id)) => self.ahead.lost(id),
                News::Objects { from, reply, way } => {
                    let notices = Arc::clone(self.crew.notices());
                    self.ahead.answered(from, reply, way, &notices);
                }
                news => rest.push(news),
            }
        }
        Ok(rest)
    }

    /// Takes in what members on other hosts have sent. To be called before every look.
    pub(crate) fn progress(&mut self) {
        if let Some(followed) = &mut self.followed {
            if followed.rows.progress() {
                self.heard = Instant::now();
            }
            while followed.rows.next_down().is_some() {
                followed.cut.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Whether a member's stream has ended, and no view without it has come since.
    pub(crate) fn is_cut_off(&self) -> bool {
        let cut =
            |followed: &Followed| followed.next.is_none() && followed.cut.is_some_and(|at| at.elapsed() > CUT_MAX);
        self.ahead.is_empty() && self.followed.as_ref().is_some_and(cut)
    }

    /// Whether there may be [`news`](Self::news).
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.crew.has_notice()
    }

    fn hear_of(&mut self, incarnation: u128, view: View) -> Result<(), JoinError> {
        if self.incarnation == 0 {
            self.incarnation = incarnation;
            self.crew.set_incarnation(incarnation);
        }
        if incarnation != self.incarnation {
            // All of the group that was followed are dead, and another has been founded.
            return Err(JoinError::GroupGone);
        }
        let arriving = self.arriving.as_ref().map(|arriving| arriving.view.id);
        let newest = self.told.as_ref().map(|told| told.id).max(self.view().map(|view| view.id)).max(arriving);
        if newest.is_none_or(|newest| newest < view.id) {
            self.told = Some(view);
        }
        Ok(())
    }

    /// Waits for news, `at_most` that long.
    pub(crate) fn wait(&self, at_most: Duration) {
        self.crew.wait(at_most);
    }

    /// Whether the members are in a newer view than the one that comes next, and it is not here as a whole.
    pub(crate) fn is_passed_over(&self) -> bool {
        let Some((next, since)) = self.followed.as_ref().and_then(|followed| followed.next.as_ref()) else {
            return false;
        };
        let is_newer = self.told.as_ref().is_some_and(|told| told.id > next.id);
        is_newer && since.elapsed() >= PARTS_WAIT && self.arriving.is_none() && !self.has_all_of(next)
    }

    /// Begins the next view, or the newest if that one was passed over or is the first; once the rows of all its members are here.
    ///
    /// # Errors
    /// What the members have handed over is no memory of theirs, or the system has no room for it.
    pub(crate) fn begin(&mut self) -> Result<Option<Begun>, JoinError> {
        if self.arriving.is_none() {
            self.arriving = self.next_rows()?;
        }
        let Some(arriving) = &mut self.arriving else { return Ok(None) };
        arriving.rows.progress();
        if !arriving.rows.is_complete() {
            if arriving.since.elapsed() > CUT_MAX || arriving.rows.next_down().is_some() {
                // Somebody has ended, or does not answer. The members tell what has come of it.
                self.arriving = None;
                self.asked = None;
            }
            return Ok(None);
        }
        let Some(Arriving { view, rows, .. }) = self.arriving.take() else { return Ok(None) };
        let is_next = |followed: &mut Followed| followed.next.as_ref().is_some_and(|(next, _)| next.id == view.id);
        let (observer, begun) = match self.followed.take_if(is_next) {
            Some(last) => (last.observer.successor(View::clone(&view))?, Begun::Next),
            None => (Observer::new(View::clone(&view), rows.rows())?, Begun::Newest),
        };
        self.followed = Some(Followed { observer, rows, view, next: None, cut: None });
        self.ahead.begin();
        Ok(Some(begun))
    }

    /// The rows of the view that is to begin, if they are there. Those of other hosts have yet to fill.
    fn next_rows(&mut self) -> Result<Option<Arriving>, JoinError> {
        if let Some(followed) = &self.followed {
            let Some((next, _)) = &followed.next else { return Ok(None) };
            let next = Arc::clone(next);
            self.crew.act(|roster, _| roster.visit(&next));
            if self.has_all_of(&next) {
                return self.take_rows(next).map(Some);
            }
            if !self.is_passed_over() {
                return Ok(None);
            }
        }
        let me = self.me();
        // A view of my own is not for following.
        let Some(told) = self.told.as_ref().filter(|told| told.rank_of(me).is_none()) else { return Ok(None) };
        self.crew.act(|roster, _| {
            roster.pass_over_until(told.id);
            roster.visit(told);
        });
        if !self.has_all_of(told) {
            return Ok(None);
        }
        self.take_rows(Arc::new(told.clone())).map(Some)
    }

    fn has_all_of(&self, view: &View) -> bool {
        view.members.iter().all(|id| self.crew.roster().has_parts(view.id, *id))
    }

    fn take_rows(&mut self, view: Arc<View>) -> Result<Arriving, JoinError> {
        let layout = Layout::new(&view)?;
        let parts = view.members.iter().map(|id| self.crew.act(|roster, _| roster.take_part(view.id, *id))).collect();
        let rows = Watched::new(&layout, parts)?;
        self.crew.act(|roster, now| roster.begin(&view, now));
        self.crew.has_begun(view.id);
        self.told.take_if(|told| told.id <= view.id);
        Ok(Arriving { view, rows, since: Instant::now() })
    }

    /// The next message, of those that are deliverable now. Its bytes are the [`payload`](Self::payload).
    ///
    /// # Errors
    /// [`Lapped`], until it is told to [go on](Self::go_on).
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Seen>, Lapped> {
        self.payload = None;
        if self.ahead.is_empty() {
            match &mut self.followed {
                Some(Followed { observer, rows, next: None, .. }) => match observer.next(rows.rows()) {
                    Err(lapped) if lapped.is_object => {
                        self.ahead.want(&lapped, observer.payload(), self.object_bytes_max);
                    }
                    next => return next,
                },
                _ => return Ok(None),
            }
        }
        self.next_behind()
    }

    /// The same while an object is still to come.
    fn next_behind(&mut self) -> Result<Option<Seen>, Lapped> {
        let Some(Followed { observer, rows, view, .. }) = &mut self.followed else { return Ok(None) };
        for _ in 0..READ_ON_MAX {
            if !self.ahead.has_room() {
                break;
            }
            match observer.next(rows.rows()) {
                Ok(Some(seen)) => self.ahead.put(seen, observer.payload()),
                Err(lapped) if lapped.is_object => {
                    self.ahead.want(&lapped, observer.payload(), self.object_bytes_max);
                }
                // If it was lapped, it says so again when that is what comes next.
                Ok(None) | Err(_) => break,
            }
        }
        self.ahead.step(&mut self.crew, view);
        match self.ahead.take() {
            Some(Next::Message(seen, payload)) => {
                self.payload = Some(payload);
                Ok(Some(seen))
            }
            Some(Next::Gone(lapped)) => Err(lapped),
            None => Ok(None),
        }
    }

    /// The bytes of the newest message.
    pub(crate) fn payload(&self) -> &[u8] {
        let in_its_frame = || self.followed.as_ref().map_or(&[][..], |followed| followed.observer.payload());
        self.payload.as_deref().unwrap_or_else(in_its_frame)
    }

    /// The same, to be kept.
    pub(crate) fn take_payload(&mut self) -> Vec<u8> {
        self.payload.take().unwrap_or_else(|| self.payload().to_vec())
    }

    /// Goes on at the present. What was missed by that.
    pub(crate) fn go_on(&mut self, lapped: &Lapped) -> Vec<Gap> {
        let Some(Followed { observer, rows, .. }) = &mut self.followed else { return vec![] };
        observer.go_on(lapped, rows.rows())
    }

    /// If the view has ended, and everything in it was yielded: the change to the next one. Told once.
    pub(crate) fn end(&mut self) -> Option<ViewChange> {
        let followed = self.followed.as_mut().filter(|followed| followed.next.is_none() && self.ahead.is_empty())?;
        let decision = followed.observer.decision().filter(|_| followed.observer.is_at_end(followed.rows.rows()))?;
        let next = Arc::new(decision.next.clone());
        self.crew.act(|roster, _| roster.note_joined(next.id, &decision.joined));
        followed.next = Some((Arc::clone(&next), Instant::now()));
        // Who has just come does not know of this process.
        self.asked = None;
        Some(ViewChange::new(Arc::clone(&followed.view), next))
    }

    /// By subgroup and sender of `next`, which comes behind the view that was followed to its end: how many of the first rounds were
    /// yielded already, and come again.
    ///
    /// # Errors
    /// What is wrong with `next`.
    pub(crate) fn known_in(&self, next: &View) -> Result<Vec<(SubgroupId, Rank, u64)>, JoinError> {
        let Some(followed) = &self.followed else { return Ok(vec![]) };
        Ok(followed.observer.successor(next.clone())?.known().collect())
    }

    /// Tells the members that it follows no more, if they take letters now. If not, they notice when they write to it.
    pub(crate) fn take_leave(&mut self) {
        let Some(view) = self.view().map(Arc::clone) else { return };
        for member in &view.members {
            let farewell = Letter::Request { from: self.crew.me, reply: 0, what: Request::Forget };
            self.crew.post(*member, farewell);
        }
        self.crew.news();
    }

    /// Whether all members have finished, and everything that they have sent was yielded.
    pub(crate) fn is_finished(&self) -> bool {
        let is_finished = |followed: &Followed| followed.observer.is_finished(followed.rows.rows());
        self.ahead.is_empty() && self.followed.as_ref().is_some_and(is_finished)
    }
}

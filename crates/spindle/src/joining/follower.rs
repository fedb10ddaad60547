//! Follows a group from outside, from view to view: the common part of processes that
//! [observe](crate::Observing) a group and processes that [learn](crate::Config::learn) its state.
//! It drives the core's [`Follow`].
//!
//! It asks the members for the newest view and for their memory in it, reads their deliveries
//! there, and enters the next view with them. Members [send](ReorderBuffer) it the messages that no
//! ring contains. No member waits for it. If the members end a view before it has their memory, it
//! continues with the newest view.
use crate::change::ViewChange;
use crate::control_plane::{ControlPlane, ControlPlaneEvent};
use crate::error::JoinError;
use crate::large::ReorderBuffer;
use spindle_core::control::{
    self, ControlMessage, Fetched, Follow, FollowError, Learn, Request, Roster, RowsState, SharedSettings, ViewStart,
};
use spindle_core::{Gap, Lapped, Layout, MemberId, Observer, Rank, Seen, SubgroupId, Time, View};
use spindle_fabric::{Mirror, Peer, Watched};
use spindle_transport::rendezvous::{ControlSocket, GroupName, RuntimeDir};
use std::sync::Arc;
use std::time::Duration;

/// The most messages that are read ahead at once while an object is still to come.
const READ_ON_MAX: usize = 1024;

/// A process that follows a group from outside.
#[derive(Debug)]
pub(crate) struct Follower {
    control_plane: ControlPlane,
    follow: Follow,
    dir: RuntimeDir,
    group: GroupName,
    /// The newest view that was begun.
    followed: Option<FollowedRows>,
    /// The rows of the view that is about to begin.
    arriving: Option<Watched>,
    /// The memory for copies of rows.
    mirror: Mirror,
    /// The messages read behind an object that has yet to come.
    reorder_buffer: ReorderBuffer,
    /// The newest message, if it was read ahead.
    payload: Option<Vec<u8>>,
    /// The longest object that it accepts.
    object_bytes_max: u64,
}

/// The rows of a view, and the position in them.
#[derive(Debug)]
struct FollowedRows {
    observer: Observer,
    rows: Watched,
}

impl From<FollowError> for JoinError {
    fn from(error: FollowError) -> JoinError {
        match error {
            FollowError::GroupGone => JoinError::GroupGone,
            FollowError::Refused(why) => JoinError::Refused(why),
        }
    }
}

impl Follower {
    /// Creates a follower with an address in `group`. It sends `digest` to the members as its
    /// configuration's.
    pub(crate) fn new(
        control_plane: ControlPlane,
        digest: u64,
        founders: u32,
        object_bytes_max: u64,
        (dir, group): (RuntimeDir, GroupName),
    ) -> Follower {
        let (followed, arriving, mirror, reorder_buffer, payload) = Default::default();
        let follow = Follow::new(digest, founders, control_plane.now());
        Follower {
            control_plane,
            follow,
            dir,
            group,
            followed,
            arriving,
            mirror,
            reorder_buffer,
            payload,
            object_bytes_max,
        }
    }

    /// Takes the settings of a process that waits to create the group with other settings.
    pub(crate) fn take_differing(&mut self) -> Option<SharedSettings> {
        self.follow.take_differing()
    }

    pub(crate) fn me(&self) -> MemberId {
        self.control_plane.me
    }

    pub(crate) fn control_plane(&mut self) -> &mut ControlPlane {
        &mut self.control_plane
    }

    /// Returns the parts that a member of the group needs.
    pub(crate) fn into_control_plane(self) -> (ControlPlane, u128) {
        let incarnation = self.follow.incarnation();
        (self.control_plane, incarnation)
    }

    /// Returns the time as the control plane counts it.
    pub(crate) fn now(&self) -> Time {
        self.control_plane.now()
    }

    /// Runs a step of the control plane with the current time.
    pub(crate) fn act<R>(&mut self, act: impl FnOnce(&mut Follow, &mut Roster<Peer>, Time) -> R) -> R {
        let follow = &mut self.follow;
        self.control_plane.act(|roster, now| act(follow, roster, now))
    }

    /// Returns whether a view is being followed; if not, the next one has yet to begin.
    pub(crate) fn is_following(&self) -> bool {
        self.follow.is_following()
    }

    /// Returns whether rows of the next view are about to come over streams.
    pub(crate) fn is_filling(&self) -> bool {
        self.arriving.is_some()
    }

    /// Returns the newest view that was begun.
    pub(crate) fn view(&self) -> Option<&Arc<View>> {
        self.follow.view()
    }

    /// Returns, by subgroup of the view that was begun, how many sequence numbers of its order were
    /// passed.
    pub(crate) fn sequences(&self) -> Vec<u64> {
        let place = |followed: &FollowedRows| {
            let ids = (0..followed.observer.view().subgroups.len() as u32).map(SubgroupId);
            ids.map(|id| followed.observer.sequence(id)).collect()
        };
        self.followed.as_ref().map(place).unwrap_or_default()
    }

    /// Returns the passed part of `subgroup`.
    pub(crate) fn behind(&self, subgroup: SubgroupId) -> Vec<Gap> {
        self.followed.as_ref().map(|followed| followed.observer.behind(subgroup)).unwrap_or_default()
    }

    /// Requests the newest view and its members' memory, if none is being followed.
    ///
    /// # Errors
    /// [`JoinError::GroupGone`], and what the system refuses.
    pub(crate) fn ask(&mut self) -> Result<(), JoinError> {
        if self.follow.is_due(self.control_plane.now()) {
            let here = self.members_here()?;
            self.act(|follow, roster, now| follow.ask(&here, false, roster, now))?;
        }
        Ok(())
    }

    /// Returns the members on this host, from its runtime directory. If there are many, some may
    /// have ended.
    pub(crate) fn members_here(&self) -> Result<Vec<MemberId>, JoinError> {
        Ok(ControlSocket::known_members(&self.dir, &self.group)?)
    }

    /// Handles messages of members. Events that do not concern the views are returned.
    ///
    /// # Errors
    /// [`JoinError::Refused`]; [`JoinError::GroupGone`] if another group has this name now.
    pub(crate) fn news(&mut self) -> Result<Vec<ControlPlaneEvent>, JoinError> {
        self.hear(|news, follow, roster, now| Ok(follow.hear(news, roster, now)?))
    }

    /// As [`news`](Self::news), for a learner.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn news_by(&mut self, learn: &mut Learn) -> Result<Vec<ControlPlaneEvent>, JoinError> {
        self.hear(|news, follow, roster, now| Ok(learn.hear(news, follow, roster, now)?))
    }

    fn hear(
        &mut self,
        mut hear: impl FnMut(
            control::ControlEvent,
            &mut Follow,
            &mut Roster<Peer>,
            Time,
        ) -> Result<Option<control::ControlEvent>, JoinError>,
    ) -> Result<Vec<ControlPlaneEvent>, JoinError> {
        self.progress();
        if self.control_plane.is_calm() {
            return Ok(vec![]);
        }
        let mut rest = vec![];
        for news in self.control_plane.news() {
            match news {
                ControlPlaneEvent::Control(news) => {
                    let news = self.act(|follow, roster, now| hear(news, follow, roster, now))?;
                    if let Some(control::ControlEvent::Died(id) | control::ControlEvent::Lost(id)) = news {
                        self.reorder_buffer.lost(id);
                    }
                    rest.extend(news.map(ControlPlaneEvent::Control));
                }
                ControlPlaneEvent::Objects { from, reply, way } => {
                    self.follow.note_life(self.control_plane.now());
                    let notices = Arc::clone(self.control_plane.notices());
                    self.reorder_buffer.answered(from, reply, way, &notices, self.control_plane.now());
                }
                news => {
                    self.follow.note_life(self.control_plane.now());
                    rest.push(news);
                }
            }
        }
        Ok(rest)
    }

    /// Reads the data from members on other hosts. It has to be called before every look.
    pub(crate) fn progress(&mut self) {
        if let Some(followed) = &mut self.followed {
            if followed.rows.progress() {
                self.follow.note_life(self.control_plane.now());
            }
            while followed.rows.next_down().is_some() {
                self.follow.note_cut(self.control_plane.now());
            }
        }
    }

    /// Returns whether a member's stream has ended, without a new view that excludes the member.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.reorder_buffer.is_empty() && self.follow.is_cut_off(self.control_plane.now())
    }

    /// Returns whether there may be [`news`](Self::news).
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.control_plane.has_notice()
    }

    /// Waits for events, up to `at_most`.
    pub(crate) fn wait(&self, at_most: Duration) {
        self.control_plane.wait(at_most);
    }

    /// Begins the next view once the rows of all its members are here. It begins the newest view
    /// instead if the next one was passed over, or if it is the first.
    ///
    /// # Errors
    /// The memory that the members have handed over is not theirs, or the system has no room for
    /// it.
    pub(crate) fn begin(&mut self) -> Result<Option<ViewStart>, JoinError> {
        if let Some((view, parts)) = self.act(|follow, roster, now| follow.look(roster, now)) {
            self.arriving = Some(Watched::new(&Layout::new(&view)?, parts, &self.mirror)?);
        }
        let Some(rows) = &mut self.arriving else { return Ok(None) };
        rows.progress();
        let state = match rows.is_complete() {
            true => RowsState::Complete,
            false if rows.next_down().is_some() => RowsState::Broken,
            false => RowsState::Filling,
        };
        let start = self.act(|follow, roster, now| follow.arrive(state, roster, now));
        if self.follow.arriving().is_some() {
            return Ok(None);
        }
        let (Some(rows), Some(start)) = (self.arriving.take(), start) else { return Ok(None) };
        let view = View::clone(self.follow.view().expect("it has begun"));
        self.control_plane.has_begun(view.id);
        let observer = match self.followed.take().filter(|_| start == ViewStart::Next) {
            Some(last) => last.observer.successor(view)?,
            None => Observer::new(view, rows.rows())?,
        };
        self.followed = Some(FollowedRows { observer, rows });
        self.reorder_buffer.begin();
        Ok(Some(start))
    }

    /// Returns the next deliverable message. Its bytes are the [`payload`](Self::payload).
    ///
    /// # Errors
    /// [`Lapped`], until a call of [`go_on`](Self::go_on).
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Seen>, Lapped> {
        self.payload = None;
        if self.reorder_buffer.is_empty() {
            match &mut self.followed {
                Some(FollowedRows { observer, rows }) if self.follow.is_following() => match observer.next(rows.rows())
                {
                    Err(lapped) if lapped.is_object => {
                        self.reorder_buffer.want(&lapped, observer.payload(), self.object_bytes_max);
                    }
                    next => return next,
                },
                _ => return Ok(None),
            }
        }
        self.next_behind()
    }

    /// As [`next`](Self::next), while an object is still to come.
    fn next_behind(&mut self) -> Result<Option<Seen>, Lapped> {
        let Some(FollowedRows { observer, rows }) = &mut self.followed else { return Ok(None) };
        for _ in 0..READ_ON_MAX {
            if !self.reorder_buffer.has_room() {
                break;
            }
            match observer.next(rows.rows()) {
                Ok(Some(seen)) => self.reorder_buffer.put(seen, observer.payload()),
                Err(lapped) if lapped.is_object => {
                    self.reorder_buffer.want(&lapped, observer.payload(), self.object_bytes_max);
                }
                // If the follower was lapped, the error comes again when that message is the next
                // one.
                Ok(None) | Err(_) => break,
            }
        }
        if let Some(view) = self.follow.view() {
            self.reorder_buffer.step(&mut self.control_plane, view);
        }
        match self.reorder_buffer.take() {
            Some(Fetched::Message(seen, payload)) => {
                self.payload = Some(payload);
                Ok(Some(seen))
            }
            Some(Fetched::Gone(lapped)) => Err(lapped),
            None => Ok(None),
        }
    }

    /// Returns the bytes of the newest message.
    pub(crate) fn payload(&self) -> &[u8] {
        let in_its_frame = || self.followed.as_ref().map_or(&[][..], |followed| followed.observer.payload());
        self.payload.as_deref().unwrap_or_else(in_its_frame)
    }

    /// Returns the bytes of the newest message, for storage.
    pub(crate) fn take_payload(&mut self) -> Vec<u8> {
        self.payload.take().unwrap_or_else(|| self.payload().to_vec())
    }

    /// Continues at the present. Returns the messages that are missed.
    pub(crate) fn go_on(&mut self, lapped: &Lapped) -> Vec<Gap> {
        let Some(FollowedRows { observer, rows }) = &mut self.followed else { return vec![] };
        observer.go_on(lapped, rows.rows())
    }

    /// Returns the change to the next view, once, if the view has ended and everything in it was
    /// yielded.
    pub(crate) fn end(&mut self) -> Option<ViewChange> {
        if !self.is_following() || !self.reorder_buffer.is_empty() {
            return None;
        }
        let FollowedRows { observer, rows } = self.followed.as_ref()?;
        let decision = observer.decision().filter(|_| observer.is_at_end(rows.rows()))?;
        let old = Arc::clone(self.follow.view()?);
        let follow = &mut self.follow;
        let next = self.control_plane.act(|roster, now| follow.end(decision, roster, now));
        Some(ViewChange::new(old, next))
    }

    /// Returns, by subgroup and sender of `next`, how many of the first rounds were already yielded
    /// and come again. `next` follows the view that was followed to its end.
    ///
    /// # Errors
    /// `next` is invalid.
    pub(crate) fn known_in(&self, next: &View) -> Result<Vec<(SubgroupId, Rank, u64)>, JoinError> {
        let Some(followed) = &self.followed else { return Ok(vec![]) };
        Ok(followed.observer.successor(next.clone())?.known().collect())
    }

    /// Reports to the members that it stops to follow, if they accept control messages now. If not,
    /// they notice it when they write to it.
    pub(crate) fn take_leave(&mut self) {
        let Some(view) = self.view().map(Arc::clone) else { return };
        for member in &view.members {
            let farewell = ControlMessage::Request { from: self.control_plane.me, reply: 0, what: Request::Forget };
            self.control_plane.post(*member, farewell);
        }
        self.control_plane.news();
    }

    /// Returns whether all members have finished and all their messages were yielded.
    pub(crate) fn is_finished(&self) -> bool {
        let is_finished = |followed: &FollowedRows| followed.observer.is_finished(followed.rows.rows());
        self.reorder_buffer.is_empty() && self.followed.as_ref().is_some_and(is_finished)
    }
}

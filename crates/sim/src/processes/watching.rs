//! Processes that follow the group from outside: the rows that they read, and observers.
//!
//! An observer has a place of its own. It reads the rows of this host directly, and copies that
//! members of other hosts send it.
use super::keeping::SimReorderBuffer;
use super::network::PacketLoad;
use super::plan::MS;
use super::process::{ProcessPhase, RowAccess, SimProcess};
use super::rows::{PolledTable, RowPlaces};
use super::views::NextView;
use super::world::{Broken, HostsWorld, ProcessEvent};
use crate::Violation;
use crate::checkers::Checked;
use spindle_core::control::{
    ANY_CONFIG, ControlEvent, ControlMessage, Follow, FollowError, Request, RowsState, ViewStart,
};
use spindle_core::{Lapped, Layout, Observer, Order, Rank, Seen, SubgroupId, SubgroupSpec, Time, View};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The pauses of an observer or learner, which no member wakes.
pub(super) const PAUSE_NS: (u64, u64) = (MS, 10 * MS);

/// The number of unread rows of a process after which posts are merged.
const UNREAD_MAX: usize = 64;

/// A message of the ledger.
type LedgerMessage = (u32, u32);

/// The rows of a view.
#[derive(Debug)]
struct WatchedRows {
    places: RowPlaces,
    streams: Vec<Option<usize>>,
    /// A bit mask of the streams that have brought a row.
    filled: u64,
}

/// The state that the driver of an observer or learner holds.
#[derive(Debug)]
pub(super) struct Following {
    pub(super) follow: Follow,
    followed: Option<(Observer, WatchedRows)>,
    arriving: Option<WatchedRows>,
    /// Messages that wait for objects.
    pub(super) ahead: SimReorderBuffer,
}

/// An observer.
#[derive(Debug)]
pub(super) struct Watching {
    following: Following,
    /// By subgroup of the view that is followed.
    checks: Vec<ObserverCheck>,
    /// The view of the checks.
    before: Option<Arc<View>>,
    /// Messages that it received, or was reported to have missed, since all faults are over.
    pub(super) heard: u64,
}

/// The progress of an observer in the order of a subgroup.
#[derive(Clone, Debug, Default)]
struct ObserverCheck {
    /// The number of messages of the order before its position, as far as that is known.
    at: usize,
    /// True if it was reported to have missed messages after that position.
    may_skip: bool,
    /// In a Fifo subgroup: the last message of each sender after which it has missed none.
    last: BTreeMap<u32, u32>,
}

/// A stream over which a process of another host follows a view.
#[derive(Debug)]
pub(super) struct ObserverStream {
    pub(super) view: spindle_core::ViewId,
    pub(super) connection: usize,
    pub(super) is_served: bool,
}

impl Following {
    pub(super) fn new(config: u64, members: u32, now: Time) -> Following {
        Following {
            follow: Follow::new(config, members, now),
            followed: None,
            arriving: None,
            ahead: SimReorderBuffer::default(),
        }
    }

    /// Returns true if a member's stream has ended, and no view without that member has arrived
    /// since. Objects that have yet to arrive may come from other members.
    pub(super) fn is_cut_off(&self, now: Time) -> bool {
        self.ahead.is_empty() && self.follow.is_cut_off(now)
    }

    pub(super) fn places(&self) -> Vec<u64> {
        let Some((observer, _)) = &self.followed else { return vec![] };
        (0..observer.view().subgroups.len() as u32).map(|id| observer.sequence(SubgroupId(id))).collect()
    }

    /// Returns the first rounds of the view after the ended one that were already yielded.
    pub(super) fn known_in(&self, next: &View) -> Vec<(SubgroupId, Rank, u64)> {
        let Some((observer, _)) = &self.followed else { return vec![] };
        observer.successor(next.clone()).expect("a view of the simulator").known().collect()
    }
}

impl HostsWorld<'_> {
    /// Applies the data that has arrived for the rows of a view. Returns whether any has, and
    /// whether a stream has ended.
    fn fill(&mut self, number: usize, watched: &mut WatchedRows) -> (bool, bool) {
        let now = self.now;
        let (mut came, mut down) = (false, false);
        for rank in 0..watched.streams.len() {
            let Some(stream) = watched.streams[rank] else { continue };
            let row = watched.places.rows[rank].expect("a stream fills it");
            let mut is_open = false;
            if let Some(connection) = self.connections.get_mut(stream) {
                let end = connection.end_of(number);
                is_open = connection.ends[end].is_open;
                while is_open && connection.ends[1 - end].out.front().is_some_and(|packet| packet.due <= now) {
                    match connection.ends[1 - end].out.pop_front().expect("it is there").load {
                        PacketLoad::Row(posted) => {
                            self.store.apply(row, &posted);
                            watched.filled |= 1 << rank;
                            came = true;
                        }
                        PacketLoad::Reset => is_open = false,
                        _ => {}
                    }
                }
            }
            if !is_open {
                self.close_side(stream, number);
                watched.streams[rank] = None;
                down = true;
            }
        }
        (came, down)
    }

    /// Closes the side of a process.
    pub(super) fn close_side(&mut self, connection: usize, number: usize) {
        if let Some(end) = self.connections.get(connection).map(|found| found.end_of(number)) {
            self.close(connection, end);
        }
    }

    fn drop_rows(&mut self, number: usize, watched: Option<WatchedRows>) {
        for stream in watched.into_iter().flat_map(|watched| watched.streams).flatten() {
            self.close_side(stream, number);
        }
    }

    /// Ends the following of a group.
    pub(super) fn stop_following(&mut self, number: usize, following: &mut Following) {
        let (followed, arriving) = (following.followed.take(), following.arriving.take());
        self.drop_rows(number, followed.map(|(_, watched)| watched));
        self.drop_rows(number, arriving);
        following.ahead.begin();
        self.give_up_ways(number, following);
    }

    /// Applies the data that has arrived for the followed view.
    pub(super) fn progress_following(&mut self, number: usize, following: &mut Following) {
        let now = Time(self.now);
        let Some((_, watched)) = &mut following.followed else { return };
        let (came, down) = self.fill(number, watched);
        if came {
            following.follow.note_life(now);
        }
        if down {
            following.follow.note_cut(now);
        }
    }

    /// Begins a view once its rows have arrived.
    pub(super) fn begin_following(
        &mut self,
        process: &mut SimProcess,
        following: &mut Following,
    ) -> Result<Option<ViewStart>, Violation> {
        let now = Time(self.now);
        if let Some((view, ways)) = following.follow.look(&mut process.roster, now) {
            let layout = Layout::new(&view).expect("a view of the simulator");
            let mut watched = WatchedRows {
                places: RowPlaces { me: Rank(0), rows: vec![], far: 0, unheard: 0, membership: 0, seen: Cell::new(0) },
                streams: vec![None; ways.len()],
                filled: 0,
            };
            for (rank, way) in ways.into_iter().enumerate() {
                let row = match way.expect("all have come") {
                    RowAccess::Near(row, _) => {
                        watched.filled |= 1 << rank;
                        row
                    }
                    RowAccess::Stream(connection) => {
                        watched.streams[rank] = Some(connection);
                        let row = layout.row(Rank(rank as u32));
                        self.store.add(row.size, row.control)
                    }
                };
                watched.places.rows.push(Some(row));
            }
            following.arriving = Some(watched);
        }
        self.carry_out(process)?;
        let Some(watched) = &mut following.arriving else { return Ok(None) };
        let (_, down) = self.fill(process.number, watched);
        let state = match watched.filled.count_ones() as usize == watched.streams.len() {
            true => RowsState::Complete,
            false if down => RowsState::Broken,
            false => RowsState::Filling,
        };
        let start = following.follow.arrive(state, &mut process.roster, now);
        self.carry_out(process)?;
        if following.follow.arriving().is_some() {
            return Ok(None);
        }
        let watched = following.arriving.take();
        let Some(start) = start else {
            self.drop_rows(process.number, watched);
            return Ok(None);
        };
        let watched = watched.expect("it was arriving");
        if down {
            following.follow.note_cut(now);
        }
        let view = Arc::clone(following.follow.view().expect("it has begun"));
        let incarnation = following.follow.incarnation();
        if self.ledger.sees(incarnation, &view)? {
            self.recent_views.push(self.now);
        }
        let last = following.followed.take();
        let observer = match &last {
            Some((last, _)) if start == ViewStart::Next => last.successor((*view).clone()),
            _ => {
                let board = PolledTable {
                    store: &mut self.store,
                    places: &watched.places,
                    posts: &mut vec![],
                    object_table: None,
                };
                Observer::new((*view).clone(), &board)
            }
        };
        self.drop_rows(process.number, last.map(|(_, watched)| watched));
        following.followed = Some((observer.expect("a view of the simulator"), watched));
        following.ahead.begin();
        self.give_up_ways(process.number, following);
        self.note(|| format!("process {} follows view {}: {start:?}", process.number, view.id));
        self.tell(process.number, || format!("follows view {}", view.id.count()));
        Ok(Some(start))
    }

    /// Returns the next message.
    pub(super) fn next_seen(
        &mut self,
        process: &mut SimProcess,
        following: &mut Following,
    ) -> Result<Option<(Seen, LedgerMessage)>, Lapped> {
        let Following { follow, followed, ahead, .. } = following;
        let (Some((observer, watched)), true) = (followed, follow.is_following()) else { return Ok(None) };
        let Some(view) = follow.view() else { return Ok(None) };
        self.next_or_ahead(process, (observer, &watched.places), ahead, view)
    }

    /// Returns the change of the view, if the whole view was yielded.
    pub(super) fn end_following(
        &mut self,
        process: &mut SimProcess,
        following: &mut Following,
    ) -> Option<(Arc<View>, Arc<View>)> {
        let (observer, watched) = following.followed.as_ref().filter(|_| following.follow.is_following())?;
        if !following.ahead.is_empty() {
            return None;
        }
        let board =
            PolledTable { store: &mut self.store, places: &watched.places, posts: &mut vec![], object_table: None };
        let decision = observer.decision().filter(|_| observer.is_at_end(&board))?;
        let old = Arc::clone(following.follow.view()?);
        let next = following.follow.end(decision, &mut process.roster, Time(self.now));
        Some((old, next))
    }

    /// Runs a step of an observer.
    pub(super) fn watch_group(&mut self, process: &mut SimProcess, news: Vec<ControlEvent>) -> NextView {
        let ProcessPhase::Watches(mut watching) = std::mem::replace(&mut process.phase, ProcessPhase::Out) else {
            return Ok(u64::MAX);
        };
        match self.look_on(process, &mut watching, news)? {
            Ok(wake_at) => {
                process.phase = ProcessPhase::Watches(watching);
                Ok(wake_at)
            }
            Err(why) => {
                self.note(|| format!("process {} observes no more: {why}", process.number));
                self.tell(process.number, || format!("observes no more: {why}"));
                if let Some(view) = watching.following.follow.view().filter(|_| self.random.one_in(2)) {
                    for id in &view.members {
                        let what = Request::Forget;
                        process.roster.post(*id, ControlMessage::Request { from: process.me.id, reply: 0, what });
                    }
                }
                self.stop_following(process.number, &mut watching.following);
                self.push(self.now + 2 * MS, ProcessEvent::Exit { process: process.number });
                Ok(u64::MAX)
            }
        }
    }

    /// Checks a message that an observer receives.
    fn observe(&mut self, number: usize, watching: &mut Watching, seen: &Seen, message: LedgerMessage) -> Checked {
        self.outcome.counts.observed += 1;
        watching.heard += u64::from(self.is_calm);
        let view = watching.following.follow.view().expect("it is followed");
        let key = (watching.following.follow.incarnation(), view.id.0);
        self.tell_message(number, "is told", view, seen.subgroup.0, message);
        let check = &mut watching.checks[seen.subgroup.index()];
        if view.subgroups[seen.subgroup.index()].order == Order::Fifo {
            let last = check.last.insert(message.0, message.1);
            return self.ledger.observes_fifo(key, number, seen.subgroup.0, last, message);
        }
        let at = (check.at, check.may_skip);
        if let Some(at) = self.ledger.observes(key, number, seen.subgroup.0, at, message)? {
            (check.at, check.may_skip) = (at, false);
        }
        Ok(())
    }

    fn look_on(
        &mut self,
        process: &mut SimProcess,
        watching: &mut Watching,
        news: Vec<ControlEvent>,
    ) -> Result<Result<u64, String>, Violation> {
        let now = Time(self.now);
        let following = &mut watching.following;
        for one in news {
            if let ControlEvent::Died(id) | ControlEvent::Lost(id) = &one {
                following.ahead.lost(*id);
            }
            match following.follow.hear(one, &mut process.roster, now) {
                Ok(_) => {}
                Err(FollowError::GroupGone) => return Ok(Err("another group was created".into())),
                Err(FollowError::Refused(why)) => return Ok(Err(why.to_string())),
            }
        }
        self.progress_following(process.number, following);
        loop {
            match self.next_seen(process, &mut watching.following) {
                Ok(Some((seen, message))) => {
                    let times = 1 + u32::from(self.broken == Broken::ToldTwice && self.random.one_in(20));
                    (0..times).try_for_each(|_| self.observe(process.number, watching, &seen, message))?;
                }
                Ok(None) => break,
                Err(lapped) => {
                    if let Some(view) = watching.following.follow.view().cloned().filter(|_| lapped.is_object) {
                        self.check_missed(process, &view, lapped.subgroup)?;
                    }
                    let Some((observer, watched)) = &mut watching.following.followed else { break };
                    let board = PolledTable {
                        store: &mut self.store,
                        places: &watched.places,
                        posts: &mut vec![],
                        object_table: None,
                    };
                    let before = observer.sequence(lapped.subgroup);
                    let gaps = observer.go_on(&lapped, &board);
                    let after = observer.sequence(lapped.subgroup);
                    let number = process.number;
                    self.note(|| format!("observer {number} was {lapped:?} from {before} to {after}: {gaps:?}"));
                    self.tell(number, || {
                        let missed: u64 = gaps.iter().map(|gap| gap.rounds.end - gap.rounds.start).sum();
                        format!("is lapped, and is told that it missed {missed} rounds")
                    });
                    if !gaps.is_empty() && self.broken != Broken::GapUntold {
                        self.outcome.counts.gaps += 1;
                        watching.heard += u64::from(self.is_calm);
                        let check = &mut watching.checks[lapped.subgroup.index()];
                        check.may_skip = true;
                        check.last.clear();
                    }
                }
            }
        }
        let following = &mut watching.following;
        if let Some((old, next)) = self.end_following(process, following) {
            let key = (following.follow.incarnation(), old.id.0);
            let is_total = |spec: &SubgroupSpec| spec.order == Order::Total;
            let mut all = watching.checks.iter().zip(&old.subgroups);
            if all.all(|(check, spec)| !check.may_skip || !is_total(spec)) {
                let counts = watching.checks.iter().map(|check| check.at).collect();
                self.ledger.observed(key, process.number, counts)?;
            }
            if next.members.is_empty() {
                return Ok(Err("the last member has left".into()));
            }
        }
        if following.is_cut_off(now) {
            return Ok(Err("the connection to a member is lost".into()));
        }
        if let Some(start) = self.begin_following(process, following)? {
            let view = following.follow.view().expect("it has begun");
            let may_skip = start == ViewStart::Newest;
            let old = std::mem::take(&mut watching.checks);
            let mut lasts: BTreeMap<&str, BTreeMap<u32, u32>> = BTreeMap::new();
            if let Some(before) = watching.before.as_ref().filter(|_| !may_skip) {
                lasts = before
                    .subgroups
                    .iter()
                    .map(|spec| spec.name.as_str())
                    .zip(old.into_iter().map(|check| check.last))
                    .collect();
            }
            let check = |spec: &SubgroupSpec| ObserverCheck {
                at: 0,
                may_skip,
                last: lasts.remove(spec.name.as_str()).unwrap_or_default(),
            };
            watching.checks = view.subgroups.iter().map(check).collect();
            watching.before = Some(Arc::clone(view));
        }
        if following.follow.is_due(now) {
            let here = self.hosts[process.host].members();
            if following.follow.ask(&here, false, &mut process.roster, now).is_err() {
                return Ok(Err("the group has gone".into()));
            }
        }
        self.carry_out(process)?;
        Ok(Ok(self.now + self.random.range(PAUSE_NS.0, PAUSE_NS.1)))
    }

    /// Begins to observe.
    pub(super) fn begin_watching(&mut self, process: &mut SimProcess) {
        let following = Following::new(ANY_CONFIG, 1, Time(self.now));
        process.phase = ProcessPhase::Watches(Box::new(Watching { following, checks: vec![], before: None, heard: 0 }));
    }

    /// Serves the processes that follow a member's view over streams. `posted` is true if new posts
    /// exist.
    pub(super) fn serve_observers(&mut self, process: &mut SimProcess, posted: bool) {
        let number = process.number;
        let Some(table) = process.table.as_ref().filter(|_| !process.observers.is_empty()) else { return };
        let (view, mine) = (table.view.id, table.places.rows[table.places.me.index()].expect("its own"));
        let mut gone = vec![];
        let now = self.now;
        let may_begin = matches!(&process.phase, ProcessPhase::Member(member) if member.may_be_followed());
        for (at, observer) in process.observers.iter_mut().enumerate() {
            let is_open = self.connections.get(observer.connection).is_some_and(|connection| {
                let end = connection.end_of(number);
                let is_reset = connection.ends[1 - end].out.front().is_some_and(|packet| packet.due <= now);
                connection.ends[end].is_open && !is_reset
            });
            if !is_open || (observer.view < view && !observer.is_served) {
                gone.push(at);
            } else if observer.view == view && (if observer.is_served { posted } else { may_begin }) {
                observer.is_served = true;
                let connection = self.connections.get_mut(observer.connection).expect("it is open");
                let end = connection.end_of(number);
                if connection.ends[end].out.len() >= UNREAD_MAX {
                    connection.ends[end].out.pop_back();
                }
                let row = self.store.snapshot(mine);
                self.send_over(observer.connection, end, PacketLoad::Row(row), false);
            }
        }
        for at in gone.into_iter().rev() {
            let observer = process.observers.swap_remove(at);
            self.close_side(observer.connection, number);
        }
    }

    /// Records whether the group has observers or learners, which need the deliveries for a while
    /// yet.
    pub(super) fn heed_observers(&self, process: &mut SimProcess) {
        let ProcessPhase::Member(member) = &mut process.phase else { return };
        let observers = process.observers.iter().filter(|observer| observer.is_served).count();
        let is_followed = member.note_followers(observers, &process.roster);
        process.objects.set_followed(is_followed);
    }

    /// Returns what an observer lacks to receive all messages that the members of the newest view
    /// deliver.
    pub(super) fn check_observer(watching: &Watching, newest: &View) -> Option<String> {
        let follow = &watching.following.follow;
        match follow.view().filter(|_| follow.is_following()) {
            Some(view) if view.id == newest.id && watching.heard > 0 => None,
            Some(view) if view.id == newest.id => Some("has been told nothing in the newest view".into()),
            _ => {
                let (next, told) = (follow.next().map(|view| view.id), follow.told().map(|view| view.id));
                let follows = follow.view().map(|view| view.id);
                Some(format!(
                    "does not follow view {}, but {follows:?}, before {next:?}, and was told of {told:?}",
                    newest.id
                ))
            }
        }
    }
}

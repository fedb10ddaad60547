//! A process on its way into a group and from view to view: the duties of a driver there, and the memory of the views.
use super::host::Standing;
use super::network::Load;
use super::plan::{MS, S};
use super::process::{Made, Over, Phase, Process, Table, Way, birth};
use super::rows::{Board, Places, Post};
use super::world::{Broken, Checked, Event, World};
use crate::Violation;
use spindle_core::control::{
    Address, Book, Bootstrapping, Card, Found, Heard, INSTALL_LOOK, Install, Letter, Me, Member, News, Refusal,
    Request, Roster, Seeds, Seek, Setup, Terms, Wants,
};
use spindle_core::layout::membership;
use spindle_core::ring::Kind;
use spindle_core::{
    Ablation, Engine, Layout, MemberId, Rank, State, SubgroupId, SubgroupSpec, Time, View, ViewId, limits,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The digest of the configuration.
const DIGEST: u64 = 0x5eed;
/// Streams of a view that is over are kept so long.
const RETIRED_NS: u64 = 2 * S;
/// A near peer is woken within this time.
const BELL_NS: (u64, u64) = (500, 20_000);
/// A member that ends stays so long at most, until its last words have left.
const FAREWELL_NS: u64 = 200 * MS;

type Next = Result<u64, Violation>;

/// A process gives its first view up after so long, as the library does.
const GATHER_NS: u64 = 60 * S;

impl World<'_> {
    fn terms(&self) -> Terms {
        Terms { digest: DIGEST, suspect_after: Some(Duration::from_nanos(self.scene.suspect_after_ns)) }
    }

    /// Starts a process in a place, with this id if it is given.
    pub(super) fn start(&mut self, place: usize, id: Option<MemberId>) -> Checked {
        if self.places[place].process.is_some() || self.places[place].is_over {
            return Ok(());
        }
        let plan = &self.scene.places[place];
        let (host, is_seed, is_unreachable) = (plan.host as usize, plan.is_seed, plan.is_unreachable);
        let number = self.processes.len();
        let kept = id.or(self.places[place].last_id);
        let id = match kept {
            Some(id) => id,
            None if self.scene.is_afar || !self.scene.seed.is_multiple_of(3) => MemberId(1 + place as u64),
            None => self.hosts[host].unused(),
        };
        if !self.hosts[host].bind(id, number) {
            // Another process has the id. It may be one that got it since from its host.
            if !self.scene.is_afar {
                self.places[place].last_id = None;
            }
            self.push(self.now + 100 * MS, Event::Start { place, id: None });
            return Ok(());
        }
        self.outcome.restarts += u64::from(self.places[place].last_id.is_some());
        self.places[place].process = Some(number);
        self.places[place].last_id = Some(id);
        self.hosts[host].living.insert(number);
        let port = match (is_seed, is_unreachable) {
            (true, _) => 7411,
            // A process that advertises a wrong address does so again when it is restarted.
            (false, true) => 7412,
            (false, false) => 8000 + number,
        };
        let address: Address = format!("10.0.{host}.{}:{port}", place + 1).parse().expect("an address");
        self.listeners.insert(address.clone(), (host, Some(number)));
        if is_unreachable {
            self.unreachable.insert(address.clone());
        }
        self.process_places.push(place);
        let me = Me { id, pid: 100 + number as u32, birth: birth(number) };
        let card = Card { id, host: host as u128, address: address.clone(), rack: None };
        let nonce = u128::from(self.random.word());
        let mut process = self.new_process((number, place, host), me, card, address);
        process.nonce = nonce;
        self.note(|| format!("process {number} starts in place {place} on host {host}, as member {id}"));
        if self.scene.is_afar {
            process.boot = Some(self.begin_boot(&process));
        } else if let Standing::Joiner(_) = self.stand(&mut process) {
            process.phase = Phase::Seeks(Seek::joiner(self.wants()));
        }
        self.add_process(process);
        self.wake(number, self.now + 1_000);
        Ok(())
    }

    fn wants(&self) -> Wants {
        Wants { digest: DIGEST, members: self.scene.members, learns: false }
    }

    fn new_process(
        &mut self,
        (number, place, host): (usize, usize, usize),
        me: Me,
        card: Card,
        address: Address,
    ) -> Process {
        let book =
            self.scene.is_afar.then(|| Book::new(card.clone(), Seeds::new(self.seeds(), None, address.clone()), true));
        let (mailbox, heard, deaths, outbox, tries, held, watched, posts) = Default::default();
        let room = limits::MEMBERS_MAX as u32;
        let seek = match self.scene.is_afar {
            true => Seek::afar(self.wants(), room),
            false => Seek::founder(self.wants(), self.scene.members),
        };
        Process {
            number,
            place,
            host,
            me,
            nonce: 0,
            address,
            card,
            is_alive: true,
            paused_until: 0,
            started: self.now,
            roster: Roster::new(me, 1 + number as u32, book),
            boot: None,
            phase: Phase::Seeks(seek),
            mailbox,
            heard,
            deaths,
            is_displaced: false,
            outbox,
            tries,
            held,
            watched,
            posts,
            inlets: BTreeSet::new(),
            table: None,
            made: None,
            over: vec![],
            unsent: VecDeque::new(),
            sends_at: self.now,
            is_told: false,
            waits: None,
            is_refused: false,
            is_leaving: false,
            probe: None,
            orders: (0, 0),
            troubled: 0,
        }
    }

    fn seeds(&self) -> Vec<Address> {
        let seeds = self.scene.places.iter().enumerate().filter(|(_, place)| place.is_seed);
        seeds
            .map(|(number, place)| format!("10.0.{}.{}:7411", place.host, number + 1).parse().expect("an address"))
            .collect()
    }

    fn begin_boot(&mut self, process: &Process) -> Bootstrapping {
        let durable = self.scene.places[process.place].is_durable;
        let belongs = self.places[process.place].belongs.take();
        let mut record = if durable { self.places[process.place].disk.clone() } else { Default::default() };
        record.belongs = belongs.or(record.belongs);
        let random = u128::from(self.random.word()) << 64 | u128::from(self.random.word());
        let me = process.roster.as_process();
        let setup = Setup { me, members: self.scene.members, random, durable, record };
        Bootstrapping::new(setup, DIGEST, false, Time(self.now))
    }

    /// The view that begins a group.
    fn first_view(members: Vec<MemberId>) -> View {
        let all: Vec<Rank> = (0..members.len() as u32).map(Rank).collect();
        let subgroup = |name: &str| SubgroupSpec {
            members: all.clone(),
            senders: all.clone(),
            window: 3,
            message_bytes_max: 16,
            ..SubgroupSpec::of_everyone(name)
        };
        View { id: ViewId(1), subgroups: vec![subgroup("a"), subgroup("b")], members, nonvoters: vec![] }
    }

    /// A process looks for its group.
    pub(super) fn seek(&mut self, process: &mut Process, news: Vec<News>) -> Next {
        let now = Time(self.now);
        let Phase::Seeks(seek) = &mut process.phase else { return Ok(u64::MAX) };
        if process.is_leaving {
            return self.go_away(process);
        }
        let mut found = None;
        let may_ask = self.broken != Broken::AsksOnce || self.now < process.started + 100 * MS;
        if (seek.is_due(now) && may_ask) || self.broken == Broken::AsksAlways {
            let here = self.hosts[process.host].members();
            if let Some(boot) = &mut process.boot {
                boot.hold(!here.is_empty());
            }
            found = seek.ask(&here, &mut process.roster, now);
        }
        let found = match found {
            Some(found) => Some(found),
            None => seek.step(news, &mut process.roster, now),
        };
        let found = found.or_else(|| {
            let begun = process.boot.as_mut()?.take_begun()?;
            process.roster.hear_of_founders(&begun.members);
            Some(begun.into())
        });
        process.is_told |= !seek.take_heard().is_empty();
        self.carry_out(process)?;
        match found {
            Some(Found::Refused(why)) => return self.refused(process, why),
            Some(Found::Gone) => {
                if self.stand(process) == Standing::Founder {
                    process.phase = Phase::Seeks(Seek::founder(self.wants(), self.scene.members));
                }
            }
            Some(Found::Group) => unreachable!("no state is wanted"),
            Some(Found::View { incarnation, view }) if self.enter(process, incarnation) => {
                self.note(|| {
                    format!("process {} is let in to view {} of group {incarnation:032x}", process.number, view.id)
                });
                self.outcome.joins += 1;
                process.roster.set_incarnation(incarnation);
                return self.begin_first(process, view);
            }
            Some(Found::Founders { incarnation, members })
                if incarnation.is_none_or(|incarnation| self.enter(process, incarnation)) =>
            {
                if let Some(incarnation) = incarnation {
                    process.roster.set_incarnation(incarnation);
                }
                let view = World::first_view(members);
                let Phase::Seeks(seek) = &process.phase else { unreachable!("it seeks") };
                seek.founds(&view, &mut process.roster, now);
                self.carry_out(process)?;
                return self.begin_first(process, view);
            }
            Some(Found::View { .. } | Found::Founders { .. }) | None => {}
        }
        // What it asks next, and whether a founder's mind has changed.
        Ok(self.now + if self.broken == Broken::AsksAlways { MS / 100 } else { 10 * MS })
    }

    fn enter(&mut self, process: &Process, incarnation: u128) -> bool {
        let (id, number, host) = (process.me.id, process.number, &mut self.hosts[process.host]);
        match self.scene.is_afar {
            _ if self.broken == Broken::LockIgnored => true,
            true => host.enter_afar(id, number, incarnation),
            false => host.enter(id, number, incarnation),
        }
    }

    fn refused(&mut self, process: &mut Process, why: Refusal) -> Next {
        self.note(|| format!("process {} is refused: {why}", process.number));
        self.outcome.refusals += 1;
        process.is_refused = true;
        if let Refusal::InUse(_) = why {
            let id = self.new_id(process.place);
            self.places[process.place].last_id = Some(id);
        }
        self.go_away(process)
    }

    /// A process that is no member ends, and tells so those that may wait for it.
    fn go_away(&mut self, process: &mut Process) -> Next {
        let what = Request::Stopped { incarnation: process.roster.incarnation(), view: ViewId(0) };
        let counterparts: Vec<MemberId> =
            process.roster.counterparts().filter(|id| !process.roster.is_far(*id)).collect();
        for id in counterparts {
            process.roster.post(id, Letter::Request { from: process.me.id, reply: 0, what });
        }
        process.phase = Phase::Out;
        self.push(self.now + 2 * MS, Event::Exit { process: process.number });
        Ok(u64::MAX)
    }

    /// The first view of a process.
    fn begin_first(&mut self, process: &mut Process, view: View) -> Next {
        let now = Time(self.now);
        let me = view.rank_of(process.me.id).expect("it is in the view");
        let engine = Engine::new(view, me, Ablation::default()).expect("a view of the simulator");
        let mut install = Install::first(engine, self.terms().suspect_after, &mut process.roster, now);
        self.make_row(process, install.view().id, install.engine());
        install.prepared(&mut process.roster, now);
        process.phase = Phase::Installs(Box::new(install));
        self.carry_out(process)?;
        if let Some(boot) = &mut process.boot {
            boot.joined(process.roster.incarnation(), now);
        }
        self.step_boot(process)?;
        Ok(self.now + 1_000)
    }

    /// Makes a process's row for a view.
    fn make_row(&mut self, process: &mut Process, view: ViewId, engine: &Engine) {
        let layout = engine.layout().row(engine.me());
        let row = self.store.add(layout.size, layout.control);
        process.made = Some(Made { view, row, since: self.now });
    }

    /// The first view of a process begins, when no member has to be waited for any more.
    pub(super) fn install_first(&mut self, process: &mut Process, news: Vec<News>) -> Next {
        let now = Time(self.now);
        let made = process.made.as_ref().expect("its row is made");
        if self.now > made.since + GATHER_NS {
            // It may wait for a member whose end it can't know. The others have gone on without it.
            self.note(|| format!("process {} gives its first view up", process.number));
            return self.go_away(process);
        }
        let row = made.row;
        let Phase::Installs(install) = &mut process.phase else { return Ok(u64::MAX) };
        install.show_life(|at, word| self.store.row_mut(row).set(at, word));
        let mut is_over = false;
        for one in &news {
            is_over |= install.attend(one, DIGEST, &mut process.roster);
        }
        self.carry_out(process)?;
        if is_over {
            self.note(|| format!("process {}: the group has continued without it", process.number));
            return self.go_away(process);
        }
        let Phase::Installs(install) = &mut process.phase else { return Ok(u64::MAX) };
        let has_sent_all = !process.outbox.iter().any(|(to, _)| install.view().members.contains(to));
        if !install.look(&mut process.roster, has_sent_all, |_| false, now) {
            return Ok(self.now + INSTALL_LOOK.as_nanos() as u64);
        }
        let Phase::Installs(install) = std::mem::replace(&mut process.phase, Phase::Out) else {
            unreachable!("it installs")
        };
        let view = Arc::clone(install.view());
        let layout = install.engine().layout().clone();
        let here = self.take_rows(process, &view, &layout);
        let begun = install.begin(&here, &mut process.roster, now);
        process.phase = Phase::Member(Box::new(Member::new(begun, self.terms(), &process.roster, now)));
        self.has_begun(process, &view)?;
        Ok(self.now + 1_000)
    }

    /// Makes the table of a view, with the rows that have come. Returns whose they are.
    fn take_rows(&mut self, process: &mut Process, view: &Arc<View>, layout: &Layout) -> BTreeSet<MemberId> {
        let me = view.rank_of(process.me.id).expect("it is in the view");
        let count = view.members.len();
        let mut rows = vec![None; count];
        rows[me.index()] = Some(process.made.take().expect("its row is made").row);
        let table = Table {
            incarnation: process.roster.incarnation(),
            view: Arc::clone(view),
            places: Places { me, rows, far: 0 },
            streams: vec![None; count],
            near: vec![None; count],
            sizes: layout.rows().iter().map(|row| (row.size, row.control)).collect(),
        };
        let before = process.table.replace(table);
        process.over.extend(before.map(|table| Over { table, since: self.now }));
        let mut here = BTreeSet::new();
        for (rank, id) in view.ranks().zip(view.members.iter().copied()).filter(|(rank, _)| *rank != me) {
            if let Some(way) = process.roster.take_part(view.id, id) {
                let table = process.table.as_mut().expect("it is there");
                self.attach(process.number, table, rank, way);
                here.insert(id);
            }
        }
        here
    }

    /// Attaches a way to a member. What had arrived over an old stream is applied, and nothing after that.
    fn attach(&mut self, number: usize, table: &mut Table, rank: Rank, way: Way) {
        match way {
            Way::Near(row, owner) => {
                table.places.rows[rank.index()] = Some(row);
                table.near[rank.index()] = Some(owner);
                // It may sleep, and was not rung for what was posted before.
                let at = self.now + self.random.range(BELL_NS.0, BELL_NS.1);
                self.wake(owner, at);
            }
            Way::Stream(connection) => {
                if table.places.rows[rank.index()].is_none() {
                    let (size, control) = table.sizes[rank.index()];
                    table.places.rows[rank.index()] = Some(self.store.add(size, control));
                }
                table.places.far |= 1 << rank.0;
                if let Some(old) = table.streams[rank.index()].replace(connection) {
                    self.drain(table, rank, old, number);
                    if let Some(end) = self.connections.get(old).map(|found| found.end_of(number)) {
                        self.close(old, end);
                    }
                }
                let mine = table.places.rows[table.places.me.index()].expect("its own");
                let row = self.store.snapshot(mine);
                if let Some(end) = self.connections.get(connection).map(|found| found.end_of(number)) {
                    self.send_over(connection, end, Load::Row(row), false);
                }
            }
        }
    }

    /// Applies what has arrived over a stream. Returns whether it stands.
    fn drain(&mut self, table: &Table, rank: Rank, number: usize, process: usize) -> bool {
        let now = self.now;
        let row = table.places.rows[rank.index()].expect("a stream fills it");
        let Some(connection) = self.connections.get_mut(number) else { return false };
        let end = connection.end_of(process);
        if !connection.ends[end].is_open {
            return false;
        }
        while connection.ends[1 - end].out.front().is_some_and(|packet| packet.due <= now) {
            match connection.ends[1 - end].out.pop_front().expect("it is there").load {
                Load::Row(posted) => self.store.apply(row, &posted),
                Load::Posts(posts) => posts.iter().for_each(|posted| self.store.apply(row, posted)),
                Load::Fin => connection.ends[end].has_fin = true,
                Load::Reset => {
                    connection.ends[end].is_open = false;
                    return false;
                }
                Load::Letter(..) => {}
            }
        }
        true
    }

    /// Applies what has arrived over all streams. Returns the members whose streams have ended, with the views.
    fn progress(&mut self, process: &mut Process) -> Vec<(ViewId, Rank, MemberId)> {
        let number = process.number;
        let mut downs = vec![];
        let mut over = std::mem::take(&mut process.over);
        let mut table = process.table.take();
        for table in table.iter_mut().chain(over.iter_mut().map(|over| &mut over.table)) {
            for rank in table.view.ranks() {
                if let Some(connection) = table.streams[rank.index()]
                    && !self.drain(table, rank, connection, number)
                {
                    table.streams[rank.index()] = None;
                    downs.push((table.view.id, rank, table.view.members[rank.index()]));
                }
            }
        }
        (process.over, process.table) = (over, table);
        downs
    }

    /// A view has begun.
    fn has_begun(&mut self, process: &mut Process, view: &Arc<View>) -> Checked {
        let of = process.roster.incarnation();
        let mut seen = (**view).clone();
        if self.broken == Broken::ViewForged && process.number == 1 {
            seen.members.reverse();
        }
        self.look_for_another_group(process, of, view);
        let is_new = self.ledger.begins(of, &seen)?;
        if is_new {
            self.recent_views.push(self.now);
            let ids: Vec<String> = view.members.iter().map(ToString::to_string).collect();
            self.note(|| format!("view {} of group {of:032x}: {}", view.id, ids.join(" ")));
        }
        self.note(|| format!("process {} begins view {}", process.number, view.id));
        let over: Vec<ViewId> = process.over.iter().map(|over| over.table.view.id).collect();
        for connection in
            process.over.last().iter().flat_map(|over| over.table.streams.iter().flatten()).copied().collect::<Vec<_>>()
        {
            if let Some(end) = self.connections.get(connection).map(|found| found.end_of(process.number)) {
                self.send_over(connection, end, Load::Fin, false);
            }
        }
        if let Phase::Member(member) = &mut process.phase {
            member.retain_old(|view| over.contains(&view));
        }
        Ok(())
    }

    /// A second group may be founded if no seed remembers the first: none has a disk that does, and none has lived since.
    fn look_for_another_group(&mut self, process: &Process, of: u128, view: &View) {
        // The first group needs no excuse.
        if !self.scene.is_afar || view.id != ViewId(1) || self.ledger.foundings() == 0 || self.ledger.knows(of) {
            return;
        }
        let remembers = |(number, place): (usize, &super::plan::Place)| {
            let state = &self.places[number];
            let on_disk = place.is_durable && state.disk.belongs.is_some_and(|belongs| belongs.0 != of);
            let running = state.process.and_then(|running| self.processes[running].as_deref());
            let running = running.filter(|running| running.number != process.number);
            let lives = running.map_or(0, |running| running.roster.incarnation());
            on_disk || ![0, of].contains(&lives)
        };
        let seeds = self.scene.places.iter().enumerate().filter(|(_, place)| place.is_seed);
        self.ledger.may_be_two |= !seeds.into_iter().any(remembers);
    }

    /// A member does what there is to do.
    pub(super) fn take_part(&mut self, process: &mut Process, news: Vec<News>) -> Next {
        let now = Time(self.now);
        self.check_mailbox(process)?;
        self.attach_arrivals(process);
        for news in news {
            let (Phase::Member(member), Some(table)) = (&mut process.phase, &process.table) else {
                unreachable!("a member")
            };
            let board = Board { store: &mut self.store, places: &table.places, posts: &mut vec![] };
            match member.hear(news, &board, &mut process.roster, now) {
                Some(Heard::Answer { to, reply }) => process.roster.answer(to, reply, "{}"),
                Some(Heard::State(to)) => process.roster.post(to, Letter::Refused { why: Refusal::NoState }),
                Some(Heard::Evicted) => return self.leave_group(process, "was left out of a view"),
                Some(Heard::Other(_)) | None => {}
            }
            self.carry_out(process)?;
        }
        let downs = self.progress(process);
        let Phase::Member(member) = &mut process.phase else { unreachable!("a member") };
        for rank in member.newly_ended(&process.roster) {
            member.suspect(rank);
        }
        for (view, rank, id) in downs {
            match view == member.view().id {
                true => member.stream_down(rank, false, now),
                false => member.old_stream_down(view, id, now),
            }
        }
        if self.broken != Broken::RedialForgotten {
            member.step(&mut process.roster, now);
        }
        if process.is_leaving {
            member.leave();
        }
        if member.is_leaving() && member.next().is_none() {
            member.go(!process.unsent.is_empty());
        }
        let is_last = process.is_leaving && member.view().members.len() == 1 && process.unsent.is_empty();
        if is_last && member.next().is_none() {
            return self.leave_group(process, "has left as the last member");
        }
        self.carry_out(process)?;
        self.look_after_retired(process);
        let Phase::Member(member) = &mut process.phase else { unreachable!("a member") };
        if member.next().is_some() {
            return self.install_next(process);
        }
        self.send(process)?;
        self.poll(process)
    }

    fn attach_arrivals(&mut self, process: &mut Process) {
        let now = Time(self.now);
        for arrival in process.roster.take_arrivals() {
            let Phase::Member(member) = &mut process.phase else { return };
            let over = process.over.iter_mut().map(|over| &mut over.table);
            let table = process.table.iter_mut().chain(over).find(|table| table.view.id == arrival.view);
            let found = table.and_then(|table| Some((table.view.rank_of(arrival.from)?, table)));
            let Some((rank, table)) = found.filter(|(rank, table)| *rank != table.places.me) else { continue };
            if let Way::Near(..) = arrival.way
                && table.places.rows[rank.index()].is_some()
            {
                continue;
            }
            self.attach(process.number, table, rank, arrival.way);
            member.stream_up(arrival.view, arrival.from, &mut process.roster, now);
        }
    }

    /// The streams of views that are over are kept until both sides have said that nothing follows, or for a while.
    fn look_after_retired(&mut self, process: &mut Process) {
        let number = process.number;
        let mut closed = vec![];
        let longest = self.scene.suspect_after_ns.max(RETIRED_NS);
        process.over.retain(|over| {
            let is_cut = over
                .table
                .view
                .ranks()
                .any(|rank| over.table.places.far >> rank.0 & 1 == 1 && over.table.streams[rank.index()].is_none());
            let has_fin = |stream: &usize| {
                self.connections.get(*stream).is_none_or(|found| found.ends[found.end_of(number)].has_fin)
            };
            let is_done = !is_cut && over.table.streams.iter().flatten().all(has_fin);
            let stays = !is_done && self.now < over.since + if is_cut { longest } else { RETIRED_NS };
            if !stays {
                closed.extend(over.table.streams.iter().flatten().copied());
            }
            stays
        });
        let over: Vec<ViewId> = process.over.iter().map(|over| over.table.view.id).collect();
        if let Phase::Member(member) = &mut process.phase {
            member.retain_old(|view| over.contains(&view));
        }
        for connection in closed {
            if let Some(end) = self.connections.get(connection).map(|found| found.end_of(number)) {
                self.close(connection, end);
            }
        }
    }

    /// Polls the engine.
    fn poll(&mut self, process: &mut Process) -> Next {
        let now = Time(self.now);
        let (Phase::Member(member), Some(table)) = (&mut process.phase, &process.table) else {
            unreachable!("a member")
        };
        for (rank, near) in (0..).map(Rank).zip(&table.near) {
            let is_dying =
                near.is_some_and(|near| self.processes[near].as_deref().is_some_and(|other| !other.is_alive));
            if is_dying && self.broken != Broken::DeathsUntold {
                member.suspect(rank);
            }
        }
        if self.broken == Broken::EvictsFreely && process.number == 0 && self.random.one_in(200) && table.near.len() > 1
        {
            member.engine_mut().evict(Rank(u32::from(table.places.me == Rank(0))));
        }
        let (mut posts, mut delivered) = (vec![], vec![]);
        let mut again = 1 + self.random.below(3);
        let progress = loop {
            let mut board = Board { store: &mut self.store, places: &table.places, posts: &mut posts };
            let progress = member.engine_mut().poll(now, &mut board, &mut |subgroup: SubgroupId,
                                                                           batch: &mut spindle_core::Batch<
                '_,
                Board<'_>,
            >| {
                batch.for_each(|message| delivered.push((subgroup.0, decode(message.payload))));
            });
            again -= 1;
            if !progress.worked || again == 0 {
                break progress;
            }
        };
        member.after_poll(&mut process.roster, now);
        let key = (table.incarnation, table.view.id.0);
        if self.broken == Broken::OrderSwapped && process.number == 1 && delivered.len() > 1 {
            delivered.swap(0, 1);
        }
        for (subgroup, message) in delivered {
            self.ledger.delivers(key, process.number, subgroup, message, self.now)?;
        }
        if let Some(decision) = member.engine().decision() {
            let next = decision.next.clone();
            if self.ledger.sees(key.0, &next)? {
                self.recent_views.push(self.now);
                self.decided(&table.view, &next)?;
            }
        }
        let state = member.engine().state().clone();
        self.send_posts(process, posts);
        self.carry_out(process)?;
        match state {
            State::Running => {
                let Phase::Member(member) = &process.phase else { unreachable!("a member") };
                let patience = member.patience(now).map_or(u64::MAX, |wait| (now + wait).0);
                let wake_at = progress.wake_at.map_or(u64::MAX, |at| at.0);
                let wake_at = if progress.worked { self.now + self.random.range(300, 3_000) } else { wake_at };
                let retired = process.over.iter().map(|over| over.since + RETIRED_NS).min().unwrap_or(u64::MAX);
                let sends_at = if process.is_leaving { u64::MAX } else { process.sends_at };
                let wake_at = wake_at.min(patience).min(sends_at).min(retired.max(self.now + 10 * MS));
                Ok(wake_at.max(self.now + 200))
            }
            State::Finished => self.leave_group(process, "has finished"),
            State::Ended => self.end_view(process),
            State::Evicted => self.leave_group(process, "was evicted"),
        }
    }

    /// A view was decided. A member that is left out has asked for it, or something has gone wrong with it.
    fn decided(&mut self, old: &View, next: &View) -> Checked {
        let gone: Vec<MemberId> = old.members.iter().copied().filter(|id| !next.members.contains(id)).collect();
        for id in gone {
            self.check_eviction(id)?;
            // The next process with this id has no excuse.
            self.excused.remove(&id);
        }
        Ok(())
    }

    /// Sends what a poll has posted.
    fn send_posts(&mut self, process: &Process, posts: Vec<Post>) {
        let Some(table) = &process.table else { return };
        let mut bells = 0u64;
        let mut far: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for Post { peers, content, quiet } in posts {
            if !quiet {
                bells |= peers;
            }
            if let Some(content) = content {
                for rank in (0..table.streams.len()).filter(|rank| peers & table.places.far & 1 << rank != 0) {
                    far.entry(rank).or_default().push(content.clone());
                }
            }
        }
        for (rank, near) in table.near.iter().enumerate() {
            if let Some(near) = near.filter(|_| bells >> rank & 1 == 1) {
                let at = self.now + self.random.range(BELL_NS.0, BELL_NS.1);
                self.wake(near, at);
            }
        }
        for (rank, posts) in far {
            if let Some(connection) = table.streams[rank]
                && let Some(end) = self.connections.get(connection).map(|found| found.end_of(process.number))
            {
                self.send_over(connection, end, Load::Posts(posts), bells >> rank & 1 == 0);
            }
        }
    }

    /// The applications of a process send.
    fn send(&mut self, process: &mut Process) -> Checked {
        if process.sends_at <= self.now && !process.is_leaving {
            process.sends_at = self.now + self.random.range(self.scene.send_every_ns / 2, 2 * self.scene.send_every_ns);
            if process.unsent.len() < 20 {
                let number = self.ledger.sends(process.number as u32);
                let subgroup = self.random.below(2) as u32;
                process.unsent.push_back((subgroup, encode(process.number as u32, number)));
                if self.is_calm && process.probe.is_none() {
                    process.probe = Some(number);
                }
            }
        }
        let (Phase::Member(member), Some(table)) = (&process.phase, &process.table) else { unreachable!("a member") };
        let row = table.places.rows[table.places.me.index()].expect("its own");
        while let Some((subgroup, payload)) = process.unsent.front().copied() {
            let Some(claims) = member.engine().claims(SubgroupId(subgroup)) else { break };
            let Ok(claim) = claims.claim_again(None, payload.len() as u64) else { break };
            let ring = *claims.ring();
            self.store.row_mut(row).fill(claim.payload_offset(&ring), &payload);
            claims.commit(claim, Kind::Message, payload.len() as u64, |position, header| {
                self.store.row_mut(row).set(ring.offset(position), header);
            });
            process.unsent.pop_front();
        }
        Ok(())
    }

    /// The view has ended here: what was not delivered in it is sent again, and the next one is prepared.
    fn end_view(&mut self, process: &mut Process) -> Next {
        let now = Time(self.now);
        let (Phase::Member(member), Some(table)) = (&mut process.phase, &process.table) else {
            unreachable!("a member")
        };
        let key = (table.incarnation, table.view.id.0);
        self.ledger.ends(key, process.number)?;
        let mut unsent = VecDeque::new();
        for (id, _) in table.view.subgroups_of(table.places.me) {
            let Some(claims) = member.engine().claims(id) else { continue };
            claims.revoke();
            let Some(mut resend) = member.engine().resend(id) else { continue };
            let mut board = Board { store: &mut self.store, places: &table.places, posts: &mut vec![] };
            while let Some(resent) = resend.next(&board) {
                let bytes = spindle_core::Rows::bytes(&board, table.places.me, resent.at, resent.len);
                unsent.push_back((id.0, bytes.try_into().expect("a message of 8 bytes")));
            }
            let _ = &mut board;
        }
        if self.broken == Broken::SentTwice && self.random.one_in(4) {
            unsent.extend(unsent.clone());
        }
        unsent.append(&mut process.unsent);
        process.unsent = unsent;
        if member.end_view(&mut process.roster, now).is_none() {
            self.outcome.leaves += 1;
            return self.leave_group(process, "has left");
        }
        let Phase::Member(member) = &process.phase else { unreachable!("a member") };
        let next = member.next().expect("it was made");
        let (view, layout) = (next.view().id, next.engine().layout().row(next.engine().me()).clone());
        let row = self.store.add(layout.size, layout.control);
        process.made = Some(Made { view, row, since: self.now });
        let Phase::Member(member) = &mut process.phase else { unreachable!("a member") };
        member.prepared(&mut process.roster, now);
        self.carry_out(process)?;
        let Phase::Member(member) = &mut process.phase else { unreachable!("a member") };
        member.tell_joiners(&mut process.roster);
        self.carry_out(process)?;
        Ok(self.now + 1_000)
    }

    /// Between two views.
    fn install_next(&mut self, process: &mut Process) -> Next {
        let now = Time(self.now);
        let Phase::Member(member) = &mut process.phase else { unreachable!("a member") };
        let row = process.made.as_ref().expect("its row is made").row;
        let next = member.next_mut().expect("a view follows");
        next.show_life(|at, word| self.store.row_mut(row).set(at, word));
        let has_sent_all = !process.outbox.iter().any(|(to, _)| next.view().members.contains(to));
        let begins = member.look(&mut process.roster, has_sent_all, |_| false, now);
        self.carry_out(process)?;
        if !begins {
            return Ok(self.now + INSTALL_LOOK.as_nanos() as u64);
        }
        let Some(table) = &process.table else { unreachable!("a member") };
        let mine = table.places.rows[table.places.me.index()].expect("its own");
        if !has_sent_all {
            self.store.row_mut(mine).set(membership::UNSENT, 1);
        }
        let before: Vec<_> = table.places.rows.iter().map(|row| row.map(|row| self.store.words(row))).collect();
        let words = Box::new(move |rank: Rank, at: u64| {
            before[rank.index()].as_ref().map_or(0, |words| words[at as usize / 8].load(Ordering::Relaxed))
        });
        let Phase::Member(member) = &process.phase else { unreachable!("a member") };
        let next = member.next().expect("a view follows");
        let (view, layout) = (Arc::clone(next.view()), next.engine().layout().clone());
        let here = self.take_rows(process, &view, &layout);
        let Phase::Member(member) = &mut process.phase else { unreachable!("a member") };
        member.begin(&here, words, &mut process.roster, now);
        for rank in member.newly_ended(&process.roster) {
            member.suspect(rank);
        }
        self.has_begun(process, &view)?;
        self.carry_out(process)?;
        Ok(self.now + 500)
    }

    /// A process takes part in its group no more.
    fn leave_group(&mut self, process: &mut Process, why: &str) -> Next {
        self.note(|| format!("process {} {why}", process.number));
        let (Phase::Member(member), Some(table)) = (&mut process.phase, &process.table) else {
            unreachable!("a member")
        };
        let mut posts = vec![];
        let mut board = Board { store: &mut self.store, places: &table.places, posts: &mut posts };
        member.engine_mut().abandon(1, &mut board);
        let (is_finished, view) = (*member.engine().state() == State::Finished, member.view().id);
        self.send_posts(process, posts);
        if !is_finished {
            process.roster.say_stopped(view);
        }
        if let Some(made) = &process.made {
            self.store.row_mut(made.row).set(membership::ABANDONED, 1);
        }
        process.phase = Phase::Out;
        let stays = self.random.below(FAREWELL_NS);
        self.push(self.now + stays, Event::Exit { process: process.number });
        Ok(u64::MAX)
    }
}

fn encode(process: u32, number: u32) -> [u8; 8] {
    (u64::from(process) << 32 | u64::from(number)).to_le_bytes()
}

fn decode(payload: &[u8]) -> (u32, u32) {
    let word = payload.try_into().map_or(u64::MAX, u64::from_le_bytes);
    ((word >> 32) as u32, word as u32)
}

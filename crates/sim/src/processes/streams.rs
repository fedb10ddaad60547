//! The memory of a process's views: rows of this host, streams that fill copies of other rows, and
//! the streams of views that are over.
use super::network::PacketLoad;
use super::plan::S;
use super::process::{EndedView, ProcessPhase, RowAccess, SimProcess, StreamedTable};
use super::rows::{RowPlaces, RowPost};
use super::world::{Broken, HostsWorld};
use spindle_core::{Layout, MemberId, Rank, Time, View, ViewId};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The time for which streams of an ended view are kept.
pub(super) const RETIRED_NS: u64 = 2 * S;
/// The time within which a peer on the same host is woken.
const BELL_NS: (u64, u64) = (500, 20_000);

impl HostsWorld<'_> {
    /// Makes the table of a view, with the rows that have arrived. Returns the members whose rows
    /// these are.
    pub(super) fn take_rows(
        &mut self,
        process: &mut SimProcess,
        view: &Arc<View>,
        layout: &Layout,
    ) -> BTreeSet<MemberId> {
        let me = view.rank_of(process.me.id).expect("it is in the view");
        let count = view.members.len();
        let mut rows = vec![None; count];
        rows[me.index()] = Some(process.made.take().expect("its row is made").row);
        let table = StreamedTable {
            incarnation: process.roster.incarnation(),
            view: Arc::clone(view),
            places: RowPlaces {
                me,
                rows,
                far: 0,
                unheard: 0,
                membership: layout.row(me).membership,
                seen: Cell::new(0),
            },
            streams: vec![None; count],
            near: vec![None; count],
            continued: 0,
            sizes: layout.rows().iter().map(|row| (row.size, row.control)).collect(),
        };
        let before = process.table.replace(table);
        process.over.extend(before.map(|table| EndedView { table, since: self.now }));
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

    /// Attaches the access to a member's row. Data that arrived over an old stream is applied, and
    /// nothing after that.
    fn attach(&mut self, number: usize, table: &mut StreamedTable, rank: Rank, way: RowAccess) {
        match way {
            RowAccess::Near(row, owner) => {
                table.places.rows[rank.index()] = Some(row);
                table.near[rank.index()] = Some(owner);
                self.store.row_mut(row).mark();
                // The owner may sleep, and earlier posts did not ring its doorbell.
                let at = self.now + self.random.range(BELL_NS.0, BELL_NS.1);
                self.wake(owner, at);
            }
            RowAccess::Stream(connection) => {
                let is_again = table.places.far >> rank.0 & 1 == 1;
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
                let resumes = self.broken == Broken::ResumesWithoutRow && is_again;
                if let Some(end) =
                    self.connections.get(connection).map(|found| found.end_of(number)).filter(|_| !resumes)
                {
                    self.send_over(connection, end, PacketLoad::Row(row), false);
                }
            }
        }
    }

    /// Applies the data that has arrived over a stream. Returns true if the stream is open.
    fn drain(&mut self, table: &StreamedTable, rank: Rank, number: usize, process: usize) -> bool {
        let now = self.now;
        let row = table.places.rows[rank.index()].expect("a stream fills it");
        let Some(connection) = self.connections.get_mut(number) else { return false };
        let end = connection.end_of(process);
        if !connection.ends[end].is_open {
            return false;
        }
        if connection.ends[end].turned.is_some() && self.broken != Broken::TurnIgnored {
            return true;
        }
        while connection.ends[1 - end].out.front().is_some_and(|packet| packet.due <= now) {
            match connection.ends[1 - end].out.pop_front().expect("it is there").load {
                PacketLoad::Row(posted) => self.store.apply(row, &posted),
                PacketLoad::Posts(posts) => posts.iter().for_each(|posted| self.store.apply(row, posted)),
                PacketLoad::Fin => connection.ends[end].has_fin = true,
                PacketLoad::Turn(view) => {
                    connection.ends[end].turned = Some(view);
                    if self.broken != Broken::TurnIgnored {
                        return true;
                    }
                }
                PacketLoad::Reset => {
                    connection.ends[end].is_open = false;
                    return false;
                }
                PacketLoad::ControlMessage(..)
                | PacketLoad::StateHead(_)
                | PacketLoad::StateBody
                | PacketLoad::Records(_)
                | PacketLoad::Bulk(_) => {}
            }
        }
        true
    }

    /// Applies the data that has arrived over all streams. Returns the members whose streams have
    /// ended, with the views.
    pub(super) fn progress(&mut self, process: &mut SimProcess) -> Vec<(ViewId, Rank, MemberId)> {
        let number = process.number;
        let mut downs = vec![];
        let (mut over, mut older) = (std::mem::take(&mut process.over), std::mem::take(&mut process.older));
        let mut table = process.table.take();
        for table in table.iter_mut().chain(&mut older).chain(over.iter_mut().map(|over| &mut over.table)) {
            for rank in table.view.ranks() {
                if let Some(connection) = table.streams[rank.index()]
                    && !self.drain(table, rank, connection, number)
                {
                    table.streams[rank.index()] = None;
                    downs.push((table.view.id, rank, table.view.members[rank.index()]));
                }
            }
        }
        (process.over, process.older, process.table) = (over, older, table);
        downs
    }

    /// Lets the streams to members that stay continue in the next view, which is decided.
    pub(super) fn continue_streams(&mut self, process: &mut SimProcess) {
        let (ProcessPhase::Member(member), Some(mut table)) = (&process.phase, process.table.take()) else {
            unreachable!("a member")
        };
        let next = Arc::clone(member.next().expect("a view follows").view());
        let mut continuing = vec![];
        for (rank, id) in member.staying(&process.roster, |rank| table.streams[rank.index()].is_some()) {
            let Some(stream) = table.streams[rank.index()] else { continue };
            let Some(connection) = self.connections.get_mut(stream) else { continue };
            let end = connection.end_of(process.number);
            if !connection.ends[end].is_open {
                continue;
            }
            continuing.push(id);
            let has_turned = std::mem::replace(&mut connection.ends[end].has_turned, true);
            let turned = connection.ends[end].turned;
            if !has_turned {
                self.send_over(stream, end, PacketLoad::Turn(next.id), false);
            }
            if turned == Some(next.id) || (has_turned && self.broken == Broken::ContinuesEarly) {
                let connection = self.connections.get_mut(stream).expect("it is there");
                (connection.ends[end].has_turned, connection.ends[end].turned) = (false, None);
                table.streams[rank.index()] = None;
                table.continued |= 1 << rank.0;
                process.roster.keep_continued(next.id, id, RowAccess::Stream(stream));
                self.outcome.counts.continued += 1;
            }
        }
        process.roster.continue_ways(continuing);
        process.table = Some(table);
    }

    pub(super) fn attach_arrivals(&mut self, process: &mut SimProcess) {
        let now = Time(self.now);
        for arrival in process.roster.take_arrivals() {
            let ProcessPhase::Member(member) = &mut process.phase else { return };
            let over = process.over.iter_mut().map(|over| &mut over.table);
            let table = process
                .table
                .iter_mut()
                .chain(&mut process.older)
                .chain(over)
                .find(|table| table.view.id == arrival.view);
            let found = table.and_then(|table| Some((table.view.rank_of(arrival.from)?, table)));
            let Some((rank, table)) = found.filter(|(rank, table)| *rank != table.places.me) else { continue };
            if let RowAccess::Near(..) = arrival.way
                && table.places.rows[rank.index()].is_some()
            {
                continue;
            }
            self.attach(process.number, table, rank, arrival.way);
            member.stream_up(arrival.view, arrival.from, &mut process.roster, now);
        }
    }

    /// Closes the streams of ended views once both sides have ended them, or after a while.
    pub(super) fn look_after_retired(&mut self, process: &mut SimProcess) {
        let number = process.number;
        let mut closed = vec![];
        for table in process.over.iter_mut().map(|over| &mut over.table).chain(&mut process.older) {
            for rank in 0..table.streams.len() {
                let found = table.streams[rank].and_then(|stream| Some((stream, self.connections.get(stream)?)));
                // The peer needs nothing more of this view.
                if let Some((stream, found)) = found
                    && found.ends[found.end_of(number)].turned.is_some()
                {
                    closed.push(stream);
                    table.streams[rank] = None;
                    table.continued |= 1 << rank;
                }
            }
        }
        let longest = self.scene.suspect_after_ns.max(RETIRED_NS);
        process.over.retain(|over| {
            let is_cut = over
                .table
                .view
                .ranks()
                .filter(|rank| over.table.places.far & !over.table.continued & 1 << rank.0 != 0)
                .any(|rank| over.table.streams[rank.index()].is_none());
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
        if let ProcessPhase::Member(member) = &mut process.phase {
            member.retain_old(|view| over.contains(&view));
        }
        for connection in closed {
            if let Some(end) = self.connections.get(connection).map(|found| found.end_of(number)) {
                self.close(connection, end);
            }
        }
    }

    /// Returns a bit mask of the members whose hosts lack a post of the process of this number in a
    /// view.
    pub(super) fn lacking(&self, number: usize, table: &StreamedTable) -> u64 {
        let lacks = |rank: &usize| {
            let connection = table.streams[*rank].and_then(|stream| self.connections.get(stream));
            connection.is_none_or(|found| found.ends[found.end_of(number)].out.iter().any(|sent| sent.due > self.now))
        };
        let far = table.places.far & !table.continued;
        (0..table.streams.len())
            .filter(|rank| far >> rank & 1 == 1)
            .filter(lacks)
            .fold(0, |bits, rank| bits | 1 << rank)
    }

    /// Sends the posts of a poll of the process of this number.
    pub(super) fn send_posts(&mut self, number: usize, table: &StreamedTable, posts: Vec<RowPost>) {
        let mut event_counts = 0u64;
        let mut far: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for RowPost { peers, content, quiet } in posts {
            if !quiet {
                event_counts |= peers;
            }
            if let Some(content) = content {
                for rank in (0..table.streams.len()).filter(|rank| peers & table.places.far & 1 << rank != 0) {
                    far.entry(rank).or_default().push(content.clone());
                }
            }
        }
        for (rank, near) in table.near.iter().enumerate() {
            if let Some(near) = near.filter(|_| event_counts >> rank & 1 == 1) {
                let at = self.now + self.random.range(BELL_NS.0, BELL_NS.1);
                self.wake(near, at);
            }
        }
        for (rank, posts) in far {
            if let Some(connection) = table.streams[rank]
                && let Some(end) = self.connections.get(connection).map(|found| found.end_of(number))
            {
                self.send_over(connection, end, PacketLoad::Posts(posts), event_counts >> rank & 1 == 0);
            }
        }
    }
}

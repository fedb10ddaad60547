//! The memory of one member, for all its views.
//!
//! A row occupies a range of a [`ArenaChunk`], called its place. Each peer of this machine maps the
//! chunk once. With the place a peer gets a *lease*: the writing end of a pipe. The peer keeps the
//! lease as long as it reads the place. When all copies of the lease are closed, also the copies in
//! unread control messages, the kernel reports that at the other end. Only then is the place reused
//! for another row. No peer has to send anything for that. A peer that is stopped, or was left out
//! of the view, reads the same contents as before.
//!
//! Peers that have mapped the chunk of the row of this view need no control message for the row of
//! the next view: it is [shown](Arena::show) to them in that memory. They have no lease, and
//! [report](crate::readings) which views they read. If a peer never reports that it has finished, a
//! chunk whose other rows are no longer used is given up, and the peer keeps its memory.
use crate::error::MeshError;
use crate::member_event_count::MemberEventCount;
use crate::mirror::Mirror;
use crate::places::{Places, is_gone};
use crate::readings::{Readings, is_through};
use crate::region::{ArenaChunk, OwnRegion, SharedRegion, page_bytes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use spindle_core::control::Me;
use spindle_core::{Layout, Rank, ViewId};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

/// The memory of one member: its rows, its copies of the rows of other hosts, and the doorbell that
/// wakes it in all views.
#[derive(Debug)]
pub struct Arena {
    event_count: MemberEventCount,
    rows: Places<ArenaChunk, User>,
    mirror: Mirror,
    readings: Arc<Readings>,
}

/// The uses of a row's place, here and in other processes.
#[derive(Debug)]
struct User {
    /// The place is used in this process as long as this lives.
    row: Weak<OwnRegion>,
    /// The other ends of this pipe are closed when no peer uses the place.
    lease: OwnedFd,
    /// The view that it was [shown](Arena::show) for, and the peers to which it was shown.
    readers: Vec<(Me, Arc<SharedRegion>, ViewId)>,
}

/// A row, in the form that peers receive.
#[derive(Debug)]
pub(crate) struct LentRow {
    pub(crate) chunk: OwnedFd,
    pub(crate) at: u64,
    pub(crate) lease: OwnedFd,
}

impl Arena {
    /// Creates the memory of the member that is woken by `event_count`, without rows.
    pub fn new(event_count: MemberEventCount) -> Arena {
        let readings = Readings::new(Arc::clone(event_count.region()));
        Arena { event_count, rows: Places::default(), mirror: Mirror::default(), readings }
    }

    /// Returns the doorbell that wakes the member.
    pub fn event_count(&self) -> &MemberEventCount {
        &self.event_count
    }

    /// Returns the memory of its copies.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    pub(crate) fn readings(&self) -> &Arc<Readings> {
        &self.readings
    }

    /// Notes `readers` of `row`, which it was shown to for `view`, with the regions in which they
    /// report that they have finished. Returns false if `row` is not a row of this arena.
    pub(crate) fn note_readers(
        &mut self,
        row: &Arc<OwnRegion>,
        view: ViewId,
        readers: impl Iterator<Item = (Me, Arc<SharedRegion>)>,
    ) -> bool {
        let is_it = |user: &&mut User| std::ptr::eq(user.row.as_ptr(), Arc::as_ptr(row));
        let Some(user) = self.rows.users_mut().find(is_it) else { return false };
        user.readers.extend(readers.map(|(reader, event_count)| (reader, event_count, view)));
        true
    }

    /// Forgets the readers that have finished reading their rows, and those whose processes have
    /// ended according to the kernel.
    pub fn forget(&mut self, has_ended: impl Fn(&Me) -> bool) {
        for user in self.rows.users_mut() {
            user.readers.retain(|(reader, event_count, view)| !is_through(event_count, *view) && !has_ended(reader));
        }
    }

    /// Returns the bytes of all chunks of its rows. Only a part of that is resident memory.
    pub fn size(&self) -> u64 {
        self.rows.bytes()
    }

    /// Creates the row of `me`, all zero.
    pub(crate) fn row(&mut self, layout: &Layout, me: Rank) -> Result<(Arc<OwnRegion>, LentRow), MeshError> {
        let size = layout.row(me);
        let of = |source| MeshError::Region { rank: me, part: "row", source };
        let os = |call| move |errno: Errno| MeshError::Os { call, source: errno.into() };
        self.forget(|_| false);
        self.rows.retain(|user| !is_gone(&user.row) || !user.readers.is_empty() || !is_closed(&user.lease));
        let bytes = size.size.next_multiple_of(page_bytes());
        if self.rows.find(bytes).is_none() {
            let pending = Places::<ArenaChunk, User>::chunk_bytes(bytes).next_multiple_of(page_bytes());
            let chunk = ArenaChunk::create("spindle-rows", pending);
            // If files or address spaces are limited, there may still be room for one row.
            let chunk = chunk.or_else(|_| ArenaChunk::create("spindle-rows", bytes)).map_err(of)?;
            let size = chunk.size();
            // Readers that do not report that they have finished keep the memory that they have
            // mapped. This process no longer needs it.
            self.rows.give_up(|user| is_gone(&user.row) && !user.readers.is_empty());
            self.rows.add(chunk, size);
        }
        let gap = self.rows.find(bytes).expect("a chunk has room");
        let (lease, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(os("pipe2"))?;
        let clone = |fd: &OwnedFd| fd.try_clone().map_err(|source| MeshError::Os { call: "dup", source });
        let chunk = self.rows.chunk_mut(gap);
        let lent = LentRow { chunk: clone(chunk.fd())?, at: gap.at, lease: theirs };
        // SAFETY: no place contains the range. A place is forgotten only when no region of it lives
        // and no peer reads it: all copies of its lease are closed, and each reader to which it was
        // shown has finished with its view, or has ended.
        let row = unsafe { chunk.region(&format!("spindle-row-{me}"), gap.at, size.size, size.control) };
        let row = Arc::new(row.map_err(of)?);
        self.rows.take(gap, bytes, User { row: Arc::downgrade(&row), lease, readers: vec![] });
        // Chunks that are empty now are more than are needed, or too small.
        self.rows.drop_empty(0);
        Ok((row, lent))
    }
}

/// Returns true if all other ends of this pipe are closed.
fn is_closed(lease: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(lease, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A failed call proves nothing.
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fabric;
    use crate::conformance::view;
    use crate::mesh::{Mesh, Peer};
    use crate::places::SMALL_BYTES_MAX;
    use crate::region::{PeerRegion, RegionError};
    use crate::shm::{OwnRow, RowDescriptors};
    use rustix::cmsg_space;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use spindle_core::control::Birth;
    use spindle_core::{MemberId, Rows, View};
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const ME: Rank = Rank(0);

    fn layout(window: u64) -> Layout {
        Layout::new(&view(2, window)).unwrap()
    }

    fn arena() -> Arena {
        Arena::new(MemberEventCount::create().unwrap())
    }

    fn row(layout: &Layout, arena: &mut Arena) -> (OwnRow, RowDescriptors) {
        OwnRow::create(layout, ME, arena).unwrap()
    }

    /// Opens all of a row, as a peer sees it.
    fn peer(layout: &Layout, parts: &RowDescriptors) -> PeerRegion {
        parts.try_clone().unwrap().open_row(layout, ME).unwrap()
    }

    fn words(region: &PeerRegion) -> Vec<u64> {
        (0..region.size()).step_by(8).map(|at| region.load(at)).collect()
    }

    fn fill(row: &OwnRow, word: u64) {
        (0..row.row.size()).step_by(8).for_each(|at| row.row.store(at, word));
    }

    #[test]
    fn the_place_of_a_row_that_nothing_uses_is_the_next_rows_and_holds_zeros() {
        let (layout, mut arena) = (layout(8), arena());
        let (first, parts) = row(&layout, &mut arena);
        fill(&first, 7);
        let seen = peer(&layout, &parts);
        let (second, other) = row(&layout, &mut arena);
        assert_ne!(parts.at, other.at, "the first one's place is used");
        drop((first, parts));
        let (third, again) = row(&layout, &mut arena);
        assert_ne!(again.at, 0, "a peer reads there");
        assert!(words(&seen).iter().all(|word| *word == 7));
        drop((seen, third, again));
        let (fourth, parts) = row(&layout, &mut arena);
        assert_eq!(parts.at, 0);
        assert!(words(&peer(&layout, &parts)).iter().all(|word| *word == 0));
        fill(&fourth, 8);
        assert!(words(&peer(&layout, &other)).iter().all(|word| *word == 0));
        assert!(words(&peer(&layout, &parts)).iter().all(|word| *word == 8));
        drop((second, other));
    }

    #[test]
    fn a_row_that_is_used_here_keeps_its_place() {
        let (layout, mut arena) = (layout(8), arena());
        let (first, parts) = row(&layout, &mut arena);
        drop(parts);
        let (_second, parts) = row(&layout, &mut arena);
        assert_ne!(parts.at, 0);
        drop(first);
        assert_eq!(row(&layout, &mut arena).1.at, 0);
    }

    /// If the addressee ever reads the control message, it reads the row of that view.
    #[test]
    fn a_row_in_a_message_that_was_not_read_keeps_its_place() {
        let (layout, mut arena) = (layout(8), arena());
        let (first, parts) = row(&layout, &mut arena);
        let (from, to) = UnixStream::pair().unwrap();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [parts.lease.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(&from, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        drop((first, parts, from));
        assert_ne!(row(&layout, &mut arena).1.at, 0);
        drop(to);
        assert_eq!(row(&layout, &mut arena).1.at, 0);
    }

    /// A reader that was given out before the row came reads it where it saw zeros, and may outlive
    /// everything else of the view.
    #[test]
    fn a_row_that_came_late_keeps_its_place_as_long_as_it_is_read() {
        let (layout, mut ours) = (layout(8), arena());
        let (first, parts) = row(&layout, &mut ours);
        let (theirs, _) = OwnRow::create(&layout, Rank(1), &mut arena()).unwrap();
        let mut mesh = Mesh::new(&layout, theirs, [(ME, None)]).unwrap();
        let reader = mesh.reader();
        mesh.attach(&layout, ME, Peer::Here(parts)).unwrap();
        first.row.store(0, 7);
        drop((first, mesh));
        assert_ne!(row(&layout, &mut ours).1.at, 0);
        assert_eq!(reader.load(ME, 0), 7);
        drop(reader);
        assert_eq!(row(&layout, &mut ours).1.at, 0);
    }

    #[test]
    fn a_peer_maps_the_memory_of_all_views_once() {
        let (layout, mut arena) = (layout(8), arena());
        let rows = [(); 3].map(|()| row(&layout, &mut arena));
        let seen = rows.each_ref().map(|(_, parts)| peer(&layout, parts));
        let start = |region: &PeerRegion| std::ptr::from_ref(region.word_to_load(0)) as u64;
        for ((_, parts), seen_at) in rows.iter().zip(seen.each_ref().map(start)) {
            assert_eq!(seen_at - start(&seen[0]), parts.at);
        }
        // The next view's region keeps the mappings of the one before.
        let (_, parts) = row(&layout, &mut arena);
        let [.., last] = seen;
        assert_eq!(start(&peer(&layout, &parts)) - start(&last), parts.at - rows[2].1.at);
    }

    fn process(id: u64) -> Me {
        Me { id: MemberId(id), pid: 0, birth: Birth::default() }
    }

    /// Two members that go from view to view.
    struct Two {
        view: u64,
        arenas: [Arena; 2],
        meshes: [Mesh; 2],
        /// The number of times a row had to be sent in a control message.
        messages: u32,
    }

    impl Two {
        fn layout(number: u64) -> Layout {
            Layout::new(&View { id: ViewId(number), ..view(2, 8) }).unwrap()
        }

        fn new() -> Two {
            let (layout, mut arenas) = (Two::layout(1), [arena(), arena()]);
            let [zero, one] = [0, 1].map(|i| OwnRow::create(&layout, Rank(i as u32), &mut arenas[i]).unwrap());
            let meshes = [
                Mesh::new(&layout, zero.0, [(Rank(1), Some(Peer::Here(one.1)))]).unwrap(),
                Mesh::new(&layout, one.0, [(Rank(0), Some(Peer::Here(zero.1)))]).unwrap(),
            ];
            Two { view: 1, arenas, meshes, messages: 0 }
        }

        /// Reads a word of its ring, which the member of this rank has written.
        fn word(&self, reader: &crate::Reader, rank: u32) -> u64 {
            reader.load(Rank(rank), Two::layout(1).row(Rank(0)).size - 8)
        }

        /// Creates, shows and finds the rows of the next view, and begins the view.
        fn go_on(&mut self) {
            self.view += 1;
            let (layout, next) = (Two::layout(self.view), ViewId(self.view));
            let size = layout.row(ME).size;
            let rows = [0, 1].map(|i| OwnRow::create(&layout, Rank(i as u32), &mut self.arenas[i]).unwrap());
            let mut peers = vec![];
            let mut own = vec![];
            for (i, (row, parts)) in rows.into_iter().enumerate() {
                assert!((0..size).step_by(8).all(|at| row.row.load(at) == 0), "view {next}");
                row.row.store(size - 8, self.view);
                let (me, id) = (Rank(i as u32), |rank: Rank| Some(process(rank.0.into())));
                let finds = |mesh: &Mesh| mesh.shown(me, next, size).unwrap();
                assert!(finds(&self.meshes[1 - i]).is_none());
                let shown = self.arenas[i].show(&self.meshes[i], &row, next, id);
                self.messages += u32::from(shown.is_empty());
                let found = finds(&self.meshes[1 - i]);
                assert_eq!(shown.len(), found.iter().len());
                peers.push((me, Some(found.map_or(Peer::Here(parts), Peer::Shown))));
                own.push(row);
            }
            let meshes = own.into_iter().zip(peers.into_iter().rev());
            let meshes: Vec<Mesh> = meshes.map(|(row, peer)| Mesh::new(&layout, row, [peer]).unwrap()).collect();
            self.meshes = <[Mesh; 2]>::try_from(meshes).unwrap();
            for (i, mesh) in self.meshes.iter().enumerate() {
                assert_eq!(self.word(&mesh.reader(), 1 - i as u32), self.view);
            }
        }
    }

    #[test]
    fn rows_that_are_shown_take_turns_in_memory_that_is_mapped() {
        let mut two = Two::new();
        let size = two.arenas[0].size();
        for _ in 0..50 {
            two.go_on();
        }
        assert_eq!((two.arenas[0].size(), two.messages), (size, 0));
    }

    /// A receiver that is views behind reads the same contents as before, and delays no view. When
    /// it has finished, its places are reused.
    #[test]
    fn a_row_that_was_shown_is_no_other_before_its_readers_say_that_they_are_through() {
        let mut two = Two::new();
        let size = two.arenas[0].size();
        for held in 1..6 {
            let behind = (0..held).map(|_| {
                two.go_on();
                (two.view, two.meshes[1].reader())
            });
            let behind: Vec<_> = behind.collect();
            for _ in 0..4 {
                two.go_on();
            }
            for (view, reader) in &behind {
                assert_eq!(two.word(reader, 0), *view);
            }
        }
        let messages = two.messages;
        for _ in 0..20 {
            two.go_on();
        }
        assert!(two.messages <= messages + 1, "its next row may be in another chunk yet");
        assert!(two.arenas[0].size() <= 2 * size, "{} bytes of chunks of {size}", two.arenas[0].size());
    }

    /// The reader is stopped, or was left out, and reports nothing. Its memory stays as it is, and
    /// the others' chunk is another one by then.
    #[test]
    fn a_reader_that_is_never_through_keeps_a_chunk_to_itself() {
        let mut two = Two::new();
        two.go_on();
        let (view, stopped) = (two.view, two.meshes[1].reader());
        let (layout, size) = (Two::layout(9), two.arenas[0].size());
        let mut rows = Vec::new();
        for _ in 0..40 {
            rows.push(OwnRow::create(&layout, ME, &mut two.arenas[0]).unwrap().0);
            if rows.len() == 3 {
                rows.remove(0);
            }
        }
        assert_eq!(two.word(&stopped, 0), view);
        assert!(two.arenas[0].size() <= 2 * size);
        two.arenas[0].forget(|reader| *reader == process(1));
        assert_eq!(two.word(&stopped, 0), view, "this member reads its own row yet");
    }

    /// The row comes in either case: the member has looked for the last time, or it finds the row
    /// when it does.
    #[test]
    fn a_row_that_is_shown_too_late_needs_a_message() {
        let mut two = Two::new();
        let (layout, next) = (Two::layout(2), ViewId(2));
        let size = layout.row(ME).size;
        let (row, _) = OwnRow::create(&layout, ME, &mut two.arenas[0]).unwrap();
        two.meshes[1].look_last(next);
        assert_eq!(two.arenas[0].show(&two.meshes[0], &row, next, |_| Some(process(1))), []);
        assert!(two.meshes[1].shown(ME, next, size).unwrap().is_some());
        let (row, _) = OwnRow::create(&layout, ME, &mut two.arenas[0]).unwrap();
        assert_eq!(two.arenas[0].show(&two.meshes[0], &row, ViewId(3), |_| Some(process(1))), [Rank(1)]);
        assert_eq!(two.arenas[0].show(&two.meshes[0], &row, ViewId(3), |_| None), [], "it is in no next view");
    }

    /// The owner began its view before the memory of that member had come, and knows of no reader.
    #[test]
    fn a_row_is_not_found_by_a_member_that_its_owner_does_not_know() {
        let (layout, mut arenas) = (Two::layout(1), [arena(), arena()]);
        let [zero, one] = [0, 1].map(|i| OwnRow::create(&layout, Rank(i as u32), &mut arenas[i]).unwrap());
        let mut early = Mesh::new(&layout, zero.0, [(Rank(1), None)]).unwrap();
        let late = Mesh::new(&layout, one.0, [(ME, Some(Peer::Here(zero.1)))]).unwrap();
        let (layout, next) = (Two::layout(2), ViewId(2));
        let size = layout.row(ME).size;
        let (row, _) = OwnRow::create(&layout, ME, &mut arenas[0]).unwrap();
        assert_eq!(arenas[0].show(&early, &row, next, |_| Some(process(1))), []);
        assert!(late.shown(ME, next, size).unwrap().is_none());
        // The owner knows the member by now, though the member's memory is mapped elsewhere.
        early.attach(&Two::layout(1), Rank(1), Peer::Here(one.1)).unwrap();
        let (row, _) = OwnRow::create(&layout, ME, &mut arenas[0]).unwrap();
        assert_eq!(arenas[0].show(&early, &row, next, |_| Some(process(1))), [Rank(1)]);
        assert!(late.shown(ME, next, size).unwrap().is_some());
    }

    #[test]
    fn a_place_that_can_t_be_is_not_taken_for_a_row() {
        let two = Two::new();
        let size = Two::layout(1).row(ME).size;
        for at in [8, 4096 * 1024, u64::MAX - 4095] {
            two.meshes[0].show(&[Rank(1)], ViewId(2), at);
            let error = two.meshes[1].shown(ME, ViewId(2), size).unwrap_err();
            assert!(matches!(error, MeshError::Region { source: RegionError::Place { .. }, .. }), "{error}");
        }
    }

    /// As if many members and subgroups came and went.
    #[test]
    fn rows_of_all_sizes_come_and_go_for_years_in_memory_that_stays_bounded() {
        let mut arena = arena();
        let layouts = [1, 8, 30, 100, 500].map(layout);
        let longest = layouts.iter().map(|layout| layout.row(ME).size).max().unwrap();
        let (mut random, mut live) = (1_u64, Vec::new());
        for number in 1..5_000_u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let layout = &layouts[(random >> 33) as usize % layouts.len()];
            let (own, parts) = row(layout, &mut arena);
            let seen = peer(layout, &parts);
            assert!(words(&seen).iter().all(|word| *word == 0), "row {number}");
            fill(&own, number);
            live.push((number, own, seen));
            if live.len() > (random >> 50) as usize % 4 {
                live.remove((random >> 40) as usize % live.len());
            }
            for (number, _, seen) in &live {
                assert!(words(seen).iter().all(|word| word == number), "row {number} was overwritten");
            }
            assert!(arena.size() <= 40 * longest, "{} bytes for rows of {longest} at most", arena.size());
        }
    }

    /// Large rows have chunks of their own, and use them in turn.
    #[test]
    fn large_rows_use_the_memory_of_those_before_them() {
        let view = crate::conformance::view(2, 1 << 20);
        let (layout, mut arena) = (Layout::new(&view).unwrap(), arena());
        assert!(layout.row(ME).size > SMALL_BYTES_MAX);
        let (mut last, mut seen) = (row(&layout, &mut arena), Vec::new());
        for _ in 0..4 {
            let next = row(&layout, &mut arena);
            let file = rustix::fs::fstat(&next.1.row).unwrap();
            seen.push(file.st_ino);
            last = next;
        }
        drop(last);
        assert!(seen[0] == seen[2] && seen[1] == seen[3] && seen[0] != seen[1], "{seen:?}");
    }

    #[test]
    fn a_place_that_is_none_is_refused() {
        let (layout, mut arena) = (layout(8), arena());
        let (_own, parts) = row(&layout, &mut arena);
        for at in [8, 4096 * 1024, u64::MAX, u64::MAX - 4095] {
            let wrong = RowDescriptors { at, ..parts.try_clone().unwrap() };
            let error = wrong.check(&layout, ME).unwrap_err();
            assert!(matches!(error, MeshError::Region { source: RegionError::Place { .. }, .. }), "{error}");
            wrong.open_row(&layout, ME).unwrap_err();
        }
    }
}

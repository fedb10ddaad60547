//! Connections that continue in the next view.
use crate::tests::{Mesh, PURPOSE, begun, hardware_port, is_here, port, shut};
use crate::{LinkPurpose, OfiError, OfiMeeting, OfiPort};
use spindle_core::{Layout, Rank, Rows, Table, ViewId};
use spindle_fabric::conformance::links::{COUNT, OTHER, TestRandom, ring};
use spindle_fabric::conformance::{PATIENCE, view};
use spindle_fabric::{Arena, Fabric, MemberEventCount, OwnRow};
use std::time::Instant;

const BOTH: [Rank; 2] = [Rank(0), Rank(1)];

/// One of two members, in a view that it may have ended.
struct OfiMember {
    port: OfiPort,
    mesh: Mesh,
    over: Vec<spindle_fabric::Retired<OfiMeeting>>,
    /// Its row and meeting for the next view, once it has ended this one.
    next: Option<(OwnRow, OfiMeeting)>,
    view: u64,
    posted: u64,
    begun: u32,
}

fn row(layout: &Layout, me: Rank) -> OwnRow {
    OwnRow::create(layout, me, &mut Arena::new(MemberEventCount::with_event().unwrap())).unwrap().0
}

fn purpose(view: u64) -> LinkPurpose {
    LinkPurpose { view: ViewId(view), ..PURPOSE }
}

/// Returns a mesh of two over the connections of `meeting`.
fn over(layout: &Layout, own: OwnRow, meeting: OfiMeeting) -> Mesh {
    let other = Rank(1 - own.me().0);
    Mesh::over(layout, own, [(other, None)], Some(meeting)).unwrap()
}

/// Returns two members, connected in view 1 of this layout.
fn members(layout: &Layout, port: impl Fn() -> OfiPort) -> [OfiMember; 2] {
    let ports = [port(), port()];
    let address = ports[1].address().clone();
    let mut forming = [0, 1].map(|i| {
        let own = row(layout, Rank(i));
        let meeting = ports[i as usize].meet(layout, &own, purpose(1)).unwrap();
        (own, meeting)
    });
    forming[1].1.expect(Rank(0));
    forming[0].1.call(Rank(1), &address).unwrap();
    let start = Instant::now();
    while !forming.iter_mut().fold(true, |all, (_, meeting)| meeting.progress().unwrap() & all) {
        assert!(start.elapsed() < PATIENCE, "members are not connected");
        std::thread::yield_now();
    }
    let mut ports = ports.into_iter();
    forming.map(|(own, meeting)| OfiMember {
        port: ports.next().unwrap(),
        mesh: over(layout, own, meeting),
        over: vec![],
        next: None,
        view: 1,
        posted: 0,
        begun: 0,
    })
}

impl OfiMember {
    fn me(&self) -> Rank {
        self.mesh.me()
    }

    fn other(&self) -> Rank {
        Rank(1 - self.me().0)
    }

    fn put(&mut self, at: u64, value: u64) {
        self.mesh.store(at, value);
        self.mesh.post(&BOTH, at..at + 8);
    }

    /// Posts frames, and a count of them. Each word contains its view.
    fn post(&mut self, layouts: &[Layout; 2], random: &mut TestRandom) {
        let ring = ring(&layouts[self.view as usize % 2]);
        let words = (ring.end - ring.start) / 8;
        let more = random.below(words - self.posted + 1);
        let (from, to) = (self.posted, self.posted + more);
        for index in from..to {
            self.mesh.store(ring.start + index * 8, self.view << 32 | index);
        }
        self.mesh.post(&BOTH, ring.start + from * 8..ring.start + to * 8);
        self.posted = to;
        self.put(COUNT, self.view << 32 | to);
    }

    /// Checks that all announced data is there, and nothing of another view.
    fn check(&self, layouts: &[Layout; 2], case: &str) {
        let ring = ring(&layouts[self.view as usize % 2]);
        let count = self.mesh.load(self.other(), COUNT);
        assert!(count == 0 || count >> 32 == self.view, "{case}: {count:#x} in view {}", self.view);
        for index in 0..(ring.end - ring.start) / 8 {
            let word = self.mesh.load(self.other(), ring.start + index * 8);
            let is_announced = index < count & 0xffff_ffff;
            let expected = self.view << 32 | index;
            assert!(word == expected || word == 0 && !is_announced, "{case}: word {index} of {count:#x} is {word:#x}");
        }
    }

    /// Creates its row for the next view, of this layout.
    fn end(&mut self, layout: &Layout) {
        let own = row(layout, self.me());
        let mut meeting = self.port.meet(layout, &own, purpose(self.view + 1)).unwrap();
        if self.other() < self.me() {
            meeting.expect(self.other());
        }
        self.next = Some((own, meeting));
    }

    /// Lets the connection continue, if both have turned. Returns true if it does.
    fn turn(&mut self) -> bool {
        let other = self.other();
        self.mesh.turn(other, ViewId(self.view + 1));
        let Some((_, next)) = &mut self.next else { return false };
        self.mesh.carry(next, Some);
        let _ = next.progress();
        next.is_connected(other)
    }

    fn begin(&mut self, layout: &Layout) {
        let (own, meeting) = self.next.take().unwrap();
        let next = over(layout, own, meeting);
        self.over.extend(self.mesh.retire());
        (self.mesh, self.view, self.posted) = (next, self.view + 1, 0);
        self.begun += begun(&self.mesh);
    }

    fn progress(&mut self) {
        self.mesh.progress();
        self.over.retain_mut(|over| !over.progress());
    }
}

/// Two members go through views of two kinds over one connection. In each view they post at random
/// and end the view at any time. They begin the next view at any time once the connection continues
/// there.
fn continues(name: &str, port: impl Fn() -> OfiPort) {
    let layouts = [40, 90].map(|window| Layout::new(&view(2, window)).unwrap());
    for seed in 0..20 {
        let case = format!("{name}, seed {seed}");
        let mut random = TestRandom(seed);
        let mut members = members(&layouts[1], &port);
        let start = Instant::now();
        while members.iter().any(|member| member.view < 12) {
            assert!(start.elapsed() < PATIENCE, "{case}: the connection did not go on");
            let i = random.below(2) as usize;
            let others = members[1 - i].posted | members[1 - i].view << 32;
            let member = &mut members[i];
            (0..random.below(4)).for_each(|_| member.progress());
            member.check(&layouts, &case);
            assert!(member.mesh.next_down().is_none() && member.mesh.next_up().is_none(), "{case}");
            let next = &layouts[(member.view as usize + 1) % 2];
            if member.next.is_some() {
                if member.turn() && random.below(3) == 0 {
                    // All of the other's posts have arrived before its turn.
                    let last = member.mesh.load(member.other(), COUNT);
                    let has_gone_on = others >> 32 > member.view;
                    let has_all = last & 0xffff_ffff == others & 0xffff_ffff;
                    assert!(has_gone_on || has_all, "{case}: {last:#x}, {others:#x}");
                    member.begin(next);
                }
            } else {
                member.post(&layouts, &mut random);
                if random.below(4) == 0 {
                    member.end(next);
                }
            }
            std::thread::yield_now();
        }
        let begun: u32 = members.iter().map(|member| member.begun).sum();
        assert_eq!(begun, 0, "{case}: connections were made anew");
    }
}

#[test]
fn a_connection_continues_from_view_to_view() {
    if is_here("tcp") {
        continues("tcp", || port(1));
        continues("tcp as hardware", || hardware_port("tcp"));
    }
}

/// Lets both make progress until `is_done`.
fn until(members: &mut [OfiMember; 2], what: &str, mut is_done: impl FnMut(&mut [OfiMember; 2]) -> bool) {
    let start = Instant::now();
    while !is_done(members) {
        assert!(start.elapsed() < PATIENCE, "{what}: nothing after {PATIENCE:?}");
        members.iter_mut().for_each(OfiMember::progress);
        std::thread::yield_now();
    }
}

/// A connection that breaks between the two turns is made again in the view that ends, and
/// transfers all of it. Then it continues.
#[test]
fn a_connection_that_breaks_between_the_turns_is_made_again_and_continues() {
    if !is_here("tcp") {
        return;
    }
    let layout = Layout::new(&view(2, 90)).unwrap();
    for (turns, breaks) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut members = members(&layout, || port(1));
        members[turns].put(COUNT, 7);
        members[turns].end(&layout);
        members[turns].turn();
        let peer = members[breaks].other();
        shut(&mut members[breaks].mesh, peer);
        until(&mut members, "the break", |members| members[breaks].mesh.next_down().is_some());
        // It has not ended the view, and lacks nothing of it.
        until(&mut members, "the last post", |members| members[1 - turns].mesh.load(Rank(turns as u32), COUNT) == 7);
        members[1 - turns].end(&layout);
        let address = members[1].port.address().clone();
        until(&mut members, "the turns", |members| {
            let all = members.iter_mut().fold(true, |all, member| member.turn() & all);
            if let (false, Some((_, next))) = (members[0].mesh.is_connected(Rank(1)), &mut members[0].next) {
                // The peer may have the connection in the next view already.
                let _ = next.call(Rank(1), &address);
            }
            all
        });
        members.iter_mut().for_each(|member| member.begin(&layout));
        members[0].put(COUNT, 9);
        until(&mut members, "a post", |members| members[1].mesh.load(Rank(0), COUNT) == 9);
    }
}

/// A peer that does not turn keeps its connection in the view that is over, and has all of it.
#[test]
fn a_peer_that_never_turns_has_the_whole_view() {
    if !is_here("tcp") {
        return;
    }
    let layout = Layout::new(&view(2, 90)).unwrap();
    let mut members = members(&layout, || port(1));
    members[0].put(COUNT, 7);
    members[0].end(&layout);
    assert!(!members[0].turn());
    until(&mut members, "the last post", |members| {
        assert!(!members[0].turn(), "its peer has not");
        members[1].mesh.load(Rank(0), COUNT) == 7
    });
    members[1].put(OTHER, 8);
    until(&mut members, "the peer's post", |members| members[0].mesh.load(Rank(1), OTHER) == 8);
    members[0].begin(&layout);
    assert!(!members[0].mesh.is_connected(Rank(1)) && members[0].mesh.lacks(Rank(1)));
    members[0].progress();
    assert!(members[0].over[0].is_open(), "its peer may have to send more");
    assert!(members[1].mesh.is_connected(Rank(0)) && members[1].mesh.next_down().is_none());
    // It is late: the connection that it continues with ends in the next view, and no end of this
    // one is missing.
    members[1].end(&layout);
    until(&mut members, "the end of the old connection", |members| {
        members[1].turn();
        members[0].over.is_empty()
    });
    members[1].begin(&layout);
    // The connection is made in the view.
    let address = members[1].port.address().clone();
    members[1].mesh.meet(&layout, Rank(0), None).unwrap();
    members[0].mesh.meet(&layout, Rank(1), Some(&address)).unwrap();
    members[0].put(COUNT, 9);
    until(&mut members, "a post", |members| members[1].mesh.load(Rank(0), COUNT) == 9);
}

/// A row that was not here when the view began becomes visible to readers that were given out
/// before, with everything that was posted meanwhile.
#[test]
fn a_connection_that_is_late_to_a_view_attaches() {
    if !is_here("tcp") {
        return;
    }
    let layout = Layout::new(&view(2, 90)).unwrap();
    let ports = [port(1), port(1)];
    let mut meshes = [0, 1].map(|me| {
        let own = row(&layout, Rank(me));
        let meeting = ports[me as usize].meet(&layout, &own, purpose(1)).unwrap();
        over(&layout, own, meeting)
    });
    let readers = [meshes[0].reader(), meshes[1].reader()];
    let ring = ring(&layout);
    for (mesh, value) in meshes.iter_mut().zip([7, 8]) {
        mesh.store(ring.start, value);
        mesh.post(&BOTH, ring.start..ring.start + 8);
        mesh.store(COUNT, value);
        mesh.post(&BOTH, COUNT..COUNT + 8);
    }
    assert!(meshes[0].lacks(Rank(1)) && meshes[1].lacks(Rank(0)));
    // No process listens there any more, and the peer's address is given again.
    let gone = port(1).address().clone();
    let _ = meshes[0].meet(&layout, Rank(1), Some(&gone));
    meshes[1].meet(&layout, Rank(0), None).unwrap();
    let address = ports[1].address().clone();
    let (start, mut ups) = (Instant::now(), 0);
    while ups < 2 || readers[0].load(Rank(1), COUNT) != 8 || readers[1].load(Rank(0), COUNT) != 7 {
        assert!(start.elapsed() < PATIENCE, "they are not connected: {ups}");
        let _ = meshes[0].meet(&layout, Rank(1), Some(&address));
        for mesh in &mut meshes {
            mesh.progress();
            ups += u32::from(mesh.next_up().is_some());
            assert!(mesh.next_down().is_none());
        }
    }
    assert!(!meshes[0].lacks(Rank(1)) && begun(&meshes[0]) >= 1);
}

/// A call for a view that this process does not take part in is refused. A call for another of its
/// views reaches that view, whichever looks first.
#[test]
fn calls_reach_the_view_that_they_name() {
    if !is_here("tcp") {
        return;
    }
    let layout = Layout::new(&view(2, 90)).unwrap();
    let callee = port(1);
    let rows = [row(&layout, Rank(1)), row(&layout, Rank(1))];
    let mut answering = [1, 2].map(|view| callee.meet(&layout, &rows[view as usize - 1], purpose(view)).unwrap());
    answering.iter_mut().for_each(|meeting| meeting.expect(Rank(0)));
    let (caller, own) = (port(1), row(&layout, Rank(0)));
    for (view, looks) in [(1, 1), (2, 0), (3, 0)] {
        let mut calling = caller.meet(&layout, &own, purpose(view)).unwrap();
        calling.call(Rank(1), callee.address()).unwrap();
        let start = Instant::now();
        let outcome = loop {
            assert!(start.elapsed() < PATIENCE, "nothing comes of a call for view {view}");
            let _ = answering[looks].progress();
            let _ = answering[1 - looks].progress();
            match calling.progress() {
                Ok(false) => {}
                outcome => break outcome,
            }
        };
        assert_eq!(outcome.is_ok(), view < 3, "{outcome:?}");
        assert!(view == 3 || answering[view as usize - 1].is_connected(Rank(0)));
        if let Err(error) = outcome {
            assert!(matches!(&error, OfiError::Refused { source, .. } if source.code == libc::ECONNREFUSED), "{error}");
        }
    }
}

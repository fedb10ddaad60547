//! One member: its engine and its row, and one poll of it on the real core.
use crate::intern::Id;
use spindle_core::ids::Time;
use spindle_core::wire::layout::membership;
use spindle_core::wire::ring::Kind;
use spindle_core::*;
use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::rc::Rc;

/// The only subgroup.
pub(crate) const ALL: SubgroupId = SubgroupId(0);

/// The sender of a message, and its index, from 0.
pub(crate) type Message = (u8, u8);

/// The bytes of a row.
pub(crate) type Row = Box<[u8]>;

/// A change of a row.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Write {
    pub(crate) at: usize,
    pub(crate) bytes: Box<[u8]>,
}

/// The events of a poll that other members, or the member's application, may notice, in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Event {
    /// Becomes visible at all peers.
    Shown(Write),
    Delivered(Message),
    /// The word for this is stored in the member's own row.
    Decided,
}

/// The way in which memory reaches the other members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Memory {
    /// By posts: each lands on each link at a moment of its own, complete, after those before it.
    Posted,
    /// By stores: each lands on each link at a moment of its own, in the order of the stores.
    Stored,
    /// By stores that all members see at once.
    Shared,
}

/// The events at a member before it polls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inputs {
    /// Messages that its application commits.
    pub(crate) commits: u8,
    /// Deaths that are proven to it.
    pub(crate) died: Vec<Rank>,
    /// Deaths that are proven to it, where the tail of the row is lost.
    pub(crate) gone: Vec<Rank>,
    /// Dead members whose connections break.
    pub(crate) lost: Vec<Rank>,
    /// Live members that become suspected.
    pub(crate) suspected: Vec<Rank>,
    /// Members whose suspicion is taken back.
    pub(crate) trusted: Vec<Rank>,
    pub(crate) leaves: bool,
    /// Members that an operator gives up. This is no poll: the next poll writes it into the row.
    pub(crate) given_up: Vec<Rank>,
    /// Whether the time has come at which it asked to be polled.
    pub(crate) late: bool,
}

/// A member that runs.
pub(crate) struct Running {
    pub(crate) engine: Engine,
    pub(crate) row: Id,
    /// The part of its row that is in transit to the others, or has arrived.
    pub(crate) shown: Id,
    /// Messages committed.
    pub(crate) sent: u8,
    pub(crate) now: Time,
    /// The time at which it asked to be polled even if nothing happens.
    pub(crate) wake_at: Option<Time>,
}

/// Writes that land in the middle of a poll: the row of `rank` becomes this one after this number
/// of its ballots have been loaded.
#[derive(Clone)]
pub(crate) struct Landing {
    pub(crate) rank: Rank,
    pub(crate) loads: u32,
    pub(crate) row: Rc<Row>,
}

/// The table of one poll.
struct View<'a> {
    me: Rank,
    memory: Memory,
    /// By rank; this member's own row is `own`.
    others: &'a [Rc<Row>],
    own: Row,
    landing: Option<Landing>,
    /// The number of ballots of the changing row that have been loaded.
    loaded: Cell<u32>,
    events: Rc<RefCell<Vec<Event>>>,
}

impl View<'_> {
    fn row(&self, member: Rank) -> &[u8] {
        match &self.landing {
            _ if member == self.me => &self.own,
            Some(Landing { rank, loads, row }) if *rank == member && self.loaded.get() >= *loads => row,
            _ => &self.others[member.index()],
        }
    }

    fn note_load(&self, member: Rank, at: u64) {
        let is_ballot = at == membership::PROMISED || at == membership::ACCEPTED;
        if is_ballot && self.landing.as_ref().is_some_and(|landing| landing.rank == member) {
            self.loaded.set(self.loaded.get() + 1);
        }
    }

    fn show(&self, range: Range<usize>) {
        let write = Write { at: range.start, bytes: self.own[range].into() };
        self.events.borrow_mut().push(Event::Shown(write));
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.own[at..at + bytes.len()].copy_from_slice(bytes);
        if self.memory != Memory::Posted {
            self.show(at..at + bytes.len());
        }
    }
}

impl Rows for View<'_> {
    fn load(&self, member: Rank, at: u64) -> u64 {
        let word = word(self.row(member), at);
        self.note_load(member, at);
        word
    }

    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        &self.row(member)[at as usize..(at + len) as usize]
    }

    type Frames<'a>
        = Lookup<'a, Self>
    where
        Self: 'a;

    fn frames(&self, member: Rank, ring: &Ring) -> Lookup<'_, Self> {
        Lookup::new(self, member, ring)
    }
}

impl Table for View<'_> {
    fn store(&mut self, at: u64, value: u64) {
        self.write(at as usize, &value.to_le_bytes());
        if at == membership::DECIDED {
            self.events.borrow_mut().push(Event::Decided);
        }
    }

    fn post(&mut self, peers: &[Rank], range: Range<u64>) {
        let others = peers.iter().filter(|peer| **peer != self.me).count();
        assert_eq!(others + 1, self.others.len(), "in this scope everybody is concerned by everything");
        if self.memory == Memory::Posted {
            self.show(range.start as usize..range.end as usize);
        }
    }
}

/// The result of a poll.
pub(crate) struct Polled {
    pub(crate) engine: Engine,
    pub(crate) row: Row,
    pub(crate) events: Vec<Event>,
    pub(crate) now: Time,
    pub(crate) wake_at: Option<Time>,
}

impl Running {
    /// The member after `inputs` happen and it then polls while it sees `others`, by rank.
    pub(crate) fn poll(
        &self,
        memory: Memory,
        own: &Row,
        others: &[Rc<Row>],
        landing: Option<Landing>,
        inputs: &Inputs,
    ) -> Polled {
        let mut engine = self.engine.fork();
        let me = engine.me();
        let events = Rc::new(RefCell::new(Vec::new()));
        let (own, loaded) = (own.clone(), Cell::new(0));
        let mut view = View { me, memory, others, own, landing, loaded, events: Rc::clone(&events) };
        for nth in self.sent..self.sent + inputs.commits {
            commit(&engine, &mut view, (me.0 as u8, nth));
        }
        inputs.died.iter().for_each(|rank| engine.member_died(*rank));
        inputs.gone.iter().for_each(|rank| engine.member_gone(*rank));
        inputs.lost.iter().chain(&inputs.suspected).for_each(|rank| engine.suspect(*rank));
        inputs.trusted.iter().for_each(|rank| engine.trust(*rank));
        if inputs.leaves {
            engine.leave();
        }
        if memory != Memory::Shared {
            // Right after a poll that did work a member does not check whether the view has to end.
            // It might as well have seen that later, because the words for it come after all others
            // on their link. So the order makes no difference here. (The member asks to admit
            // itself, which has no effect.)
            engine.admit(Process { id: engine.view().members[me.index()], nonce: 1 });
        }
        let mut upcall = |_: SubgroupId, batch: &mut Batch<'_, View<'_>>| {
            batch.for_each(|message| {
                let [sender, nth] = *message.payload else { panic!("nobody has sent {:?}", message.payload) };
                assert_eq!(u32::from(sender), message.sender.0, "another's message");
                events.borrow_mut().push(Event::Delivered((sender, nth)));
            });
        };
        let now = self.wake_at.filter(|_| inputs.late).unwrap_or(self.now);
        let wake_at = engine.poll(now, &mut view, &mut upcall).wake_at.filter(|at| *at > now);
        if memory != Memory::Shared {
            engine.admit(Process { id: engine.view().members[me.index()], nonce: 1 });
        }
        let own = view.own;
        Polled { engine, row: own, events: events.take(), now, wake_at }
    }

    /// The member after an operator gives up `lost` while it sees `others`, by rank; `None` if it
    /// refuses.
    pub(crate) fn give_up(&self, memory: Memory, own: &Row, others: &[Rc<Row>], lost: &[Rank]) -> Option<Polled> {
        let mut engine = self.engine.fork();
        let (me, loaded, events) = (engine.me(), Cell::new(0), Rc::default());
        let view = View { me, memory, others, own: own.clone(), landing: None, loaded, events };
        engine.recover(lost, &view).ok()?;
        Some(Polled { engine, row: view.own, events: Vec::new(), now: self.now, wake_at: self.wake_at })
    }

    /// The messages that the member's application sends again, if it has ended.
    pub(crate) fn resends(&self, own: &Row) -> Vec<Message> {
        let others = self.engine.view().ranks().map(|_| Rc::new(own.clone())).collect::<Vec<_>>();
        let me = self.engine.me();
        let (memory, own_row) = (Memory::Posted, own.clone());
        let (loaded, events) = (Cell::new(0), Rc::default());
        let view = View { me, memory, others: &others, own: own_row, landing: None, loaded, events };
        let Some(mut resend) = self.engine.fork().resend(ALL) else { return Vec::new() };
        let next = std::iter::from_fn(|| resend.next(&view));
        next.map(|resent| {
            assert_eq!((resent.kind, resent.len), (Kind::Message, 2));
            let at = resent.at as usize;
            (own[at], own[at + 1])
        })
        .collect()
    }

    /// Distinguishes states of one member's engine: 128 bits, so that no two of them are confused
    /// by chance.
    pub(crate) fn print(&self) -> [u64; 2] {
        [0, 1].map(|salt: u64| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            self.engine.fingerprint(&mut hasher);
            hasher.finish()
        })
    }
}

pub(crate) fn word(row: &[u8], at: u64) -> u64 {
    u64::from_le_bytes(row[at as usize..at as usize + 8].try_into().unwrap())
}

fn commit(engine: &Engine, view: &mut View<'_>, (sender, nth): Message) {
    let claims = engine.claims(ALL).expect("who commits is a sender");
    let claim = claims.claim(2, |_| {}).expect("the ring takes all messages of the scope");
    let at = claim.payload_offset(claims.ring()) as usize;
    view.write(at, &[sender, nth]);
    claims.commit(claim, Kind::Message, 2, |position, word| {
        view.write(claims.ring().offset(position) as usize, &word.to_le_bytes());
    });
}

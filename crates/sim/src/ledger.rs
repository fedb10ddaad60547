//! The record of what happened: every claim, commit, round and delivery, as the simulator saw them
//! from outside.
//!
//! The checkers compare the actions of engines with this ledger. It shares no bookkeeping with the
//! core: positions come from the claims, rounds from the frames' own words in memory, deliveries
//! from the upcalls.
use spindle_core::wire::ring::Kind;
use spindle_core::{Order, Rank, Ring, SubgroupId, View};

/// The state of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClaimState {
    /// It is being filled.
    Claimed,
    /// It was committed as a message.
    Message {
        /// Bytes of payload.
        len: u64,
        /// A digest of the payload.
        digest: u64,
    },
    /// It was given up.
    Void,
}

/// One claim and the frame that it became.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClaimedFrame {
    /// Offset of the frame in its sender's row.
    pub at: u64,
    /// Bytes of the row that it takes.
    pub span: u64,
    /// Its state.
    pub fate: ClaimState,
    /// Its round, once it is announced.
    pub round: Option<u64>,
    /// Its number at its sender. It keeps the number if it is sent again in the next view.
    pub number: u64,
    /// Its kind, once it is committed.
    pub kind: Kind,
    /// True if it is an object that some members do not have yet.
    pub held: bool,
}

/// The frames of one sender in one subgroup.
#[derive(Clone, Debug)]
pub struct SenderFrames {
    /// The sender.
    pub sender: Rank,
    /// The sender's ring.
    pub ring: Ring,
    /// Its claims, in order.
    pub frames: Vec<ClaimedFrame>,
    /// How many of the frames are announced, and so have a round.
    pub announced: usize,
    /// The position in the ring after the announced frames.
    pub position: u64,
    /// By rank: the first number that a member has yet to deliver. It delivered the lower ones in
    /// earlier views.
    pub since: Vec<u64>,
    /// By rank: how many of the frames a member has taken out of its batches. Voids after the last
    /// one are not counted.
    pub taken: Vec<usize>,
    /// By rank: as `taken`, but only the frames that the member has finished with.
    pub done: Vec<usize>,
    /// The first frame that some member has not finished with.
    pub oldest: usize,
    /// The rounds up to and including that of the newest frame.
    pub spoken: u64,
    /// Messages committed.
    pub messages: u64,
}

/// The record of one subgroup.
#[derive(Clone, Debug)]
pub struct SubgroupRecord {
    /// Its order.
    pub order: Order,
    /// Its members.
    pub members: Vec<Rank>,
    /// The lanes, by sender rank.
    pub lanes: Vec<SenderFrames>,
    /// By rank, and by sender in a Fifo subgroup: the number of deliveries that a member reports.
    pub delivered: Vec<Vec<u64>>,
    /// Messages that members have delivered, counted once per member.
    pub deliveries: u64,
}

/// The record of one view.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// The subgroups, by id.
    pub groups: Vec<SubgroupRecord>,
}

impl Ledger {
    /// Returns an empty ledger of `view`; `ring` returns the ring of each sender.
    pub fn new(view: &View, ring: impl Fn(Rank, SubgroupId) -> Ring) -> Ledger {
        let members = view.members.len();
        let groups = (0..).map(SubgroupId).zip(&view.subgroups).map(|(id, spec)| {
            let lane = |&sender: &Rank| SenderFrames {
                sender,
                ring: ring(sender, id),
                frames: vec![],
                announced: 0,
                position: 0,
                since: vec![0; members],
                taken: vec![0; members],
                done: vec![0; members],
                oldest: 0,
                spoken: 0,
                messages: 0,
            };
            let counts = if spec.order == Order::Total { 1 } else { spec.senders.len() };
            SubgroupRecord {
                order: spec.order,
                members: spec.members.clone(),
                lanes: spec.senders.iter().map(lane).collect(),
                delivered: vec![vec![0; counts]; members],
                deliveries: 0,
            }
        });
        Ledger { groups: groups.collect() }
    }

    /// Records a claim of `span` bytes at offset `at` of the sender's row, and returns the claim's
    /// index.
    pub fn claimed(&mut self, subgroup: SubgroupId, sender: usize, at: u64, span: u64, number: u64) -> usize {
        let frames = &mut self.groups[subgroup.index()].lanes[sender].frames;
        frames.push(ClaimedFrame {
            at,
            span,
            fate: ClaimState::Claimed,
            round: None,
            number,
            kind: Kind::Message,
            held: false,
        });
        frames.len() - 1
    }

    /// Records that the claim with this index was committed.
    pub fn committed(&mut self, subgroup: SubgroupId, sender: usize, index: usize, fate: ClaimState) {
        let lane = &mut self.groups[subgroup.index()].lanes[sender];
        lane.frames[index].fate = fate;
        lane.messages += u64::from(fate != ClaimState::Void);
    }

    /// Records that the claim with this index is being committed as an object that some members do
    /// not have yet.
    pub fn hold(&mut self, subgroup: SubgroupId, sender: usize, index: usize) {
        let frame = &mut self.groups[subgroup.index()].lanes[sender].frames[index];
        (frame.kind, frame.held) = (Kind::Object, true);
    }

    /// Records that all members have the object with this index.
    pub fn release(&mut self, subgroup: SubgroupId, sender: usize, index: usize) {
        self.groups[subgroup.index()].lanes[sender].frames[index].held = false;
    }

    /// Returns the lane of `sender`, a sender rank.
    pub fn lane(&self, subgroup: SubgroupId, sender: usize) -> &SenderFrames {
        &self.groups[subgroup.index()].lanes[sender]
    }

    /// Returns true if every member has delivered every message.
    pub fn everything_is_delivered(&self) -> bool {
        let done = |group: &SubgroupRecord, lane: &SenderFrames| {
            group.members.iter().all(|member| lane.next_message(*member) == lane.frames.len())
        };
        self.groups.iter().all(|group| group.lanes.iter().all(|lane| done(group, lane)))
    }
}

impl SubgroupRecord {
    /// Returns the sender rank of `member`.
    pub fn sender_rank(&self, member: Rank) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.sender == member)
    }

    /// Returns true if `member` has finished with the frame `index` of `lane`.
    pub fn is_done(&self, member: Rank, lane: usize, index: usize) -> bool {
        let frame = &self.lanes[lane].frames[index];
        match (frame.fate, frame.round) {
            (ClaimState::Message { .. }, _) => {
                index < self.lanes[lane].done[member.index()] || !self.lanes[lane].is_due(member, frame)
            }
            // No member delivers a void, so the member's own counter decides.
            (ClaimState::Void, Some(round)) => match self.order {
                Order::Total => round * self.lanes.len() as u64 + (lane as u64) < self.delivered[member.index()][0],
                Order::Fifo => round < self.delivered[member.index()][lane],
            },
            _ => false,
        }
    }
}

impl SenderFrames {
    /// Returns the index of the next message that `member` has to deliver: the first due one after
    /// those it took.
    pub fn next_message(&self, member: Rank) -> usize {
        let taken = self.taken[member.index()];
        taken + self.frames[taken..].iter().take_while(|frame| !self.is_due(member, frame)).count()
    }

    /// Returns true if `member` has to deliver `frame`: the frame is no void, and the member did
    /// not deliver it in an earlier view.
    pub fn is_due(&self, member: Rank, frame: &ClaimedFrame) -> bool {
        frame.fate != ClaimState::Void && frame.number >= self.since[member.index()]
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use spindle_core::{Durability, MemberId, Rule, SubgroupSpec, ViewId};

    /// Three members, one subgroup, senders 0 and 2.
    pub(crate) fn example(order: Order) -> Ledger {
        let spec = SubgroupSpec {
            member_rule: Rule::Everyone,
            sender_rule: Rule::Everyone,
            name: "all".into(),
            members: vec![Rank(0), Rank(1), Rank(2)],
            senders: vec![Rank(0), Rank(2)],
            order,
            window: 4,
            message_bytes_max: 48,
            leftover_bytes_max: 0,
            durability: Durability::InMemory,
            clock: 0,
            epoch: None,
        };
        let members = vec![MemberId(1), MemberId(2), MemberId(3)];
        let view = View { id: ViewId(1), members, nonvoters: vec![], subgroups: vec![spec].into() };
        Ledger::new(&view, |_, _| Ring::new(256, 4, 48))
    }

    /// Adds a committed message of sender rank `sender`, with a round.
    pub(crate) fn message(ledger: &mut Ledger, sender: usize, digest: u64, round: u64) -> usize {
        let number = ledger.groups[0].lanes[sender].frames.len() as u64;
        let index = ledger.claimed(SubgroupId(0), sender, 256 + number * 64 % 256, 64, number);
        ledger.committed(SubgroupId(0), sender, index, ClaimState::Message { len: 48, digest });
        let lane = &mut ledger.groups[0].lanes[sender];
        lane.frames[index].round = Some(round);
        (lane.announced, lane.spoken) = (index + 1, round + 1);
        index
    }

    #[test]
    fn voids_are_passed_over_and_done_with_by_word() {
        let mut ledger = example(Order::Total);
        let void = ledger.claimed(SubgroupId(0), 0, 256, 64, 0);
        ledger.committed(SubgroupId(0), 0, void, ClaimState::Void);
        ledger.groups[0].lanes[0].frames[void].round = Some(0);
        let next = message(&mut ledger, 0, 5, 1);
        assert_eq!(ledger.lane(SubgroupId(0), 0).next_message(Rank(1)), next);
        assert!(!ledger.groups[0].is_done(Rank(1), 0, void));
        ledger.groups[0].delivered[1][0] = 1;
        assert!(ledger.groups[0].is_done(Rank(1), 0, void));
        assert!(!ledger.groups[0].is_done(Rank(1), 0, next));
        ledger.groups[0].lanes[0].done[1] = next + 1;
        assert!(ledger.groups[0].is_done(Rank(1), 0, next));
    }

    #[test]
    fn objects_of_an_earlier_view_are_not_due_again() {
        let mut ledger = example(Order::Fifo);
        let again = message(&mut ledger, 0, 5, 0);
        let next = message(&mut ledger, 0, 6, 1);
        let lane = &mut ledger.groups[0].lanes[0];
        lane.since[1] = 1;
        assert_eq!((lane.next_message(Rank(0)), lane.next_message(Rank(1))), (again, next));
        assert!(ledger.groups[0].is_done(Rank(1), 0, again) && !ledger.groups[0].is_done(Rank(0), 0, again));
    }
}

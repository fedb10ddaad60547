//! The layout of every member's row, which each member computes from the view alone.
//!
//! ```text
//! row      = control block | rings, one per subgroup in which the member sends
//! control  = membership block | counts of posts | one entry per subgroup of the member | cuts | proposed changes | two slots for proposals | touched subgroups
//! membership = two lines of words | one bit per member: suspected | to be evicted | asked for a sign of life | given up | mapped | shown to
//! counts of posts = one line for all | one word for each subgroup, modulo 64
//! entry    = one 64-byte line: published rounds spoken freed received delivered persisted closed
//!            and, in a Fifo subgroup, one word per sender behind it: how many of its messages I delivered
//! ```
//!
//! A row contains entries and rings of the subgroups whose epochs begin with the view. Other
//! subgroups keep theirs in the row of the view with which their epochs began. A row contains cuts
//! of all subgroups of the member.
//!
//! All counters of a member are contiguous, so that one post per peer and loop carries every
//! acknowledgement and announcement of every subgroup. An entry is *one* line, not two:
//! announcements and acknowledgements are written by the same thread, and a peer that waits for
//! either gets both with one cache miss.
use crate::ids::{Rank, SubgroupId, ViewId};
use crate::membership::proposal;
use crate::view::{Order, SubgroupSpec, View, ViewError};
use crate::wire::ring::Ring;
use alloc::vec::Vec;
use core::ops::Range;

/// Bytes of a cache line, the unit of alignment.
pub const LINE_BYTES: u64 = 64;

/// Words of the membership block, by offset in the row. Zero means "nothing yet".
pub mod membership {
    /// Set while the member's engine sleeps and wants its doorbell rung.
    pub const ASLEEP: u64 = 0;
    /// Set when the member's applications will send nothing more and everything that they sent is
    /// announced.
    pub const FINISHED: u64 = 8;
    /// Set when the member has delivered everything and will read nothing more: its exit is no
    /// failure, and its row is final.
    pub const LEFT: u64 = 16;
    /// Set when the member gives up the group before it has left: it will acknowledge nothing more,
    /// and its row is final.
    pub const ABANDONED: u64 = 24;
    /// Changes while the member lives, if members watch for silence.
    pub const HEARTBEAT: u64 = 32;
    /// Set when the member wants this view to end, and its proposed changes for the next view are
    /// stored in its row. The value is 1, or 2 if the epochs of all subgroups are to end.
    pub const CLOSING: u64 = 40;
    /// In a view with logged subgroups, one bit for each of them in whose log this member lacks no record of
    /// older epochs. From the 64th subgroup on, all share the last bit: none of them lacks any. Not 0 once it is
    /// written, which is before the first promise, unless all logs lack records.
    pub const COMPLETE: u64 = 48;
    /// Set when the member wants to be left out of the next view.
    pub const LEAVING: u64 = 56;
    /// The highest ballot that the member has promised: it accepts no lower ballot. When this word
    /// is read, it is at least `ACCEPTED`, or becomes so a little later.
    pub const PROMISED: u64 = 72;
    /// The ballot of the newest proposal that the member has accepted, and the slot in which its
    /// value is stored.
    pub const ACCEPTED: u64 = 64;
    /// The ballot that the member knows to be decided, and the slot in which the value is stored.
    pub const DECIDED: u64 = 80;
    /// Set when the view has ended for the member: it announces and receives nothing more in the
    /// epochs that end.
    pub const ENDED: u64 = 88;
    /// Set when the member begins the next view before its row of that view is on its way to all
    /// members of its host.
    pub const UNSENT: u64 = 96;
    /// The view for which the member shows its row at [`NEXT_AT`]. Fabrics with shared memory write
    /// it.
    pub const NEXT_VIEW: u64 = 104;
    /// Offset of that row, in bytes, in the memory of which this row is a range.
    pub const NEXT_AT: u64 = 112;
    /// The ballot of the newest acceptance that is on the member's disk, in a view with logged
    /// subgroups: there the agreement counts this word in place of [`ACCEPTED`].
    pub const PERSISTED: u64 = 120;
    /// The first word of the bits of members that this member suspects by its own observation. They
    /// are hints, which may be taken back.
    pub const SUSPECTED: u64 = 128;

    /// The first word of the bits of members that this one is asked to evict, in a view of
    /// `members` members. It follows the bits of [`SUSPECTED`]. They are hints.
    pub const fn evicting(members: usize) -> u64 {
        SUSPECTED + 8 * members.div_ceil(64) as u64
    }

    /// The first word of the bits of members that this one asks for a sign of life, in a view of
    /// `members` members. It follows the bits of [`evicting`]. They are hints.
    pub const fn asking(members: usize) -> u64 {
        SUSPECTED + 16 * members.div_ceil(64) as u64
    }

    /// The first word of the bits of members that this one has given up, in a view of `members`
    /// members. It follows the bits of [`asking`]. No bit is taken back.
    pub const fn given_up(members: usize) -> u64 {
        SUSPECTED + 24 * members.div_ceil(64) as u64
    }

    /// The first word of the bits of members whose memory this one has mapped, so that it finds
    /// their next rows there, in a view of `members` members. It follows the bits of [`given_up`].
    /// No bit is taken back. Fabrics with shared memory write them.
    pub const fn mapped(members: usize) -> u64 {
        SUSPECTED + 32 * members.div_ceil(64) as u64
    }

    /// The first word of the bits of members that may take the row shown at [`NEXT_AT`], because
    /// this member knows that they read it, in a view of `members` members. It follows the bits of
    /// [`mapped`]. Written once, before [`NEXT_VIEW`].
    pub const fn shown_to(members: usize) -> u64 {
        SUSPECTED + 40 * members.div_ceil(64) as u64
    }
}

/// The counts of a member's posts.
pub(crate) mod moves {
    use super::LINE_BYTES;

    /// Number of counts by subgroup. Subgroups whose numbers are equal modulo this number share
    /// one.
    pub(crate) const COUNTS: usize = 64;
    /// Bytes of the words: a line for the number of all posts, followed by one word for each count.
    pub(crate) const BYTES: u64 = LINE_BYTES + 8 * COUNTS as u64;
}

/// Words of a subgroup's entry, by offset in the entry. All are counts: zero means "nothing yet".
pub mod entry {
    /// Bytes of its ring that the member announced (a ring position).
    pub const PUBLISHED: u64 = 0;
    /// Rounds that the member announced, nulls included.
    pub const ROUNDS: u64 = 8;
    /// Rounds up to and including the member's newest message: the other senders must announce as
    /// many for it to be delivered.
    pub const SPOKEN: u64 = 16;
    /// Position below which the member's ring may be overwritten.
    pub const FREED: u64 = 24;
    /// Sequence numbers of the subgroup's order that the member has received.
    pub const RECEIVED: u64 = 32;
    /// Sequence numbers of the subgroup's order that the member has delivered.
    pub const DELIVERED: u64 = 40;
    /// In a logged subgroup: one more than the sequence numbers of the subgroup's order that the
    /// member's log has on disk, or 0 until it has everything of earlier epochs on disk.
    pub const PERSISTED: u64 = 48;
    /// Set when the member's applications will send nothing more here and everything that they sent
    /// is announced.
    pub const CLOSED: u64 = 56;
}

/// The offsets of one subgroup in one member's row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SubgroupLayout {
    /// Offset of the entry's line.
    pub entry: u64,
    /// Offset of the first of the per-sender words; the end of the entry in a subgroup with a total
    /// order.
    pub by_sender: u64,
    /// Offset of the end of the entry.
    pub end: u64,
    /// The member's ring, if it sends.
    pub ring: Option<Ring>,
}

/// The layout of one member's row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowLayout {
    /// Bytes of the whole row; a multiple of [`LINE_BYTES`].
    pub size: u64,
    /// Bytes of the membership block.
    pub membership: u64,
    /// Bytes of the control block.
    pub control: u64,
    /// Offset of the counts of posts, which are loaded by peers that read the row in place.
    pub moves: u64,
    /// The range of the cuts.
    pub cuts: Range<u64>,
    /// The range of the two slots for proposals, each of half the bytes. See [`free`](Self::free).
    pub proposals: Range<u64>,
    /// The range that lists the subgroups that the member's ballot touches: checksum, count of the
    /// words after it, ballot, one bit per subgroup.
    pub touched: Range<u64>,
    /// The range of the changes that the member proposes for the next view, written before it
    /// wedges.
    pub proposed: Range<u64>,
    hints_end: u64,
    /// One for each subgroup that contains the member and whose epoch begins with the view, in
    /// their order.
    subgroups: Vec<(SubgroupId, SubgroupLayout)>,
    /// Offsets of the cuts, one for each subgroup that contains the member.
    cut_places: Vec<(SubgroupId, u64)>,
}

/// The layout of the rows of all members of a view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    view: ViewId,
    rows: Vec<RowLayout>,
}

impl Layout {
    /// Computes the layout of `view`.
    ///
    /// # Errors
    /// The error of [`View::check`].
    pub fn new(view: &View) -> Result<Layout, ViewError> {
        view.check()?;
        let slot_words = proposal::words_max(view) as u64;
        // In many subgroups most members are in only a few of them.
        let mut mine: Vec<Vec<SubgroupId>> = alloc::vec![Vec::new(); view.members.len()];
        for (id, spec) in (0..).map(SubgroupId).zip(&view.subgroups) {
            spec.members.iter().for_each(|rank| mine[rank.index()].push(id));
        }
        let row = |(rank, mine): (Rank, Vec<SubgroupId>)| RowLayout::new(view, rank, &mine, slot_words);
        Ok(Layout { view: view.id, rows: view.ranks().zip(mine).map(row).collect() })
    }

    /// The view.
    pub fn view(&self) -> ViewId {
        self.view
    }

    /// The row of `member`.
    ///
    /// # Panics
    /// If `member` is not a member of the view.
    pub fn row(&self, member: Rank) -> &RowLayout {
        &self.rows[member.index()]
    }

    /// All rows, by rank.
    pub fn rows(&self) -> &[RowLayout] {
        &self.rows
    }
}

impl RowLayout {
    /// The offsets of `subgroup` in this row; `None` if the member is not in it, or its epoch began
    /// with an earlier view.
    pub fn subgroup(&self, subgroup: SubgroupId) -> Option<SubgroupLayout> {
        let found = self.subgroups.binary_search_by_key(&subgroup, |(id, _)| *id).ok()?;
        Some(self.subgroups[found].1)
    }

    /// Offset of the first of the words that contain, by sender of `subgroup`, the number of rounds
    /// that the member had when it wedged; `None` if the member is not in the subgroup. In a logged
    /// subgroup a word follows that is no earlier than the clock of any of these messages.
    pub fn cut(&self, subgroup: SubgroupId) -> Option<u64> {
        let found = self.cut_places.binary_search_by_key(&subgroup, |(id, _)| *id).ok()?;
        Some(self.cut_places[found].1)
    }

    /// The offsets of the subgroups that contain the member, and whose epochs begin with the view.
    pub fn subgroups(&self) -> impl Iterator<Item = &SubgroupLayout> {
        self.subgroups.iter().map(|(_, place)| place)
    }

    /// The ranges whose words may take any value at any time: hints, and words that count only
    /// through a ballot that names them.
    pub fn free(&self) -> [Range<u64>; 2] {
        [membership::SUSPECTED..self.hints_end, self.proposals.start..self.touched.end]
    }

    /// The row of `member`, which is in the subgroups `mine`.
    fn new(view: &View, member: Rank, mine: &[SubgroupId], slot_words: u64) -> RowLayout {
        let mut subgroups = Vec::with_capacity(mine.len());
        let hints_end = membership::given_up(view.members.len());
        let words = 8 * view.members.len().div_ceil(64) as u64;
        let membership = (membership::shown_to(view.members.len()) + words).next_multiple_of(LINE_BYTES);
        let moves = membership;
        let mut at = moves + moves::BYTES;
        for id in mine.iter().copied().filter(|id| view.subgroups[id.index()].epoch.is_none()) {
            let spec = &view.subgroups[id.index()];
            let by_sender = at + LINE_BYTES;
            let extra = match spec.order {
                Order::Total => 0,
                Order::Fifo => (spec.senders.len() as u64 * 8).next_multiple_of(LINE_BYTES),
            };
            let end = by_sender + extra;
            subgroups.push((id, SubgroupLayout { entry: at, by_sender, end, ring: None }));
            at = end;
        }
        let cuts = at;
        let mut cut_places = Vec::with_capacity(mine.len());
        for id in mine.iter().copied() {
            cut_places.push((id, at));
            let spec = &view.subgroups[id.index()];
            at += 8 * (spec.senders.len() as u64 + u64::from(spec.is_logged()));
        }
        let cuts = cuts..at;
        at = at.next_multiple_of(LINE_BYTES);
        let slot = in_steps(slot_words * 8);
        let proposed = at..at + slot;
        at += slot;
        let slots = 2 * slot;
        let proposals = at..at + slots;
        at += slots;
        let touched = at..at + in_steps(8 * proposal::touched_words(view) as u64);
        at = touched.end;
        let control = at;
        for (id, place) in &mut subgroups {
            let spec = &view.subgroups[id.index()];
            if spec.sender_rank(member).is_some() {
                let SubgroupSpec { window, message_bytes_max, leftover_bytes_max, .. } = *spec;
                let trailer_bytes = spec.trailer_bytes();
                let ring = Ring::with_leftovers(at, window, message_bytes_max, leftover_bytes_max, trailer_bytes);
                at += ring.size();
                place.ring = Some(ring);
            }
        }
        RowLayout {
            size: at,
            membership,
            control,
            moves,
            cuts,
            proposals,
            touched,
            proposed,
            hints_end,
            subgroups,
            cut_places,
        }
    }
}

/// Rounds up `bytes` by at most a quarter, in steps: rows of views that differ by little have the
/// same length, so that one can take the space of another.
fn in_steps(bytes: u64) -> u64 {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(LINE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{MemberId, ViewId};
    use crate::view::{Durability, Rule};
    use alloc::string::ToString;
    use alloc::vec;

    fn spec(name: &str, members: &[u32], senders: &[u32], order: Order) -> SubgroupSpec {
        let ranks = |list: &[u32]| list.iter().copied().map(Rank).collect();
        SubgroupSpec {
            member_rule: Rule::Everyone,
            sender_rule: Rule::Everyone,
            name: name.to_string(),
            members: ranks(members),
            senders: ranks(senders),
            order,
            window: 4,
            message_bytes_max: 100,
            leftover_bytes_max: 0,
            durability: Durability::InMemory,
            clock: 0,
            epoch: None,
        }
    }

    #[test]
    fn places_are_disjoint_and_aligned() {
        let view = View {
            id: ViewId(1),
            members: vec![MemberId(7), MemberId(3), MemberId(9)],
            nonvoters: vec![],
            subgroups: vec![
                spec("a", &[0, 1, 2], &[0, 2], Order::Total),
                spec("b", &[1, 2], &[1, 2], Order::Fifo),
                spec("c", &[0, 2], &[2], Order::Total),
            ]
            .into(),
        };
        let layout = Layout::new(&view).unwrap();
        for row in layout.rows() {
            let mut spans: Vec<(u64, u64)> = vec![
                (0, membership::SUSPECTED),
                (row.cuts.start, row.cuts.end),
                (row.proposals.start, row.proposals.end),
                (row.touched.start, row.touched.end),
            ];
            for place in row.subgroups() {
                spans.push((place.entry, place.end));
                spans.extend(place.ring.iter().map(|ring| (ring.at, ring.at + ring.size())));
            }
            spans.sort_unstable();
            assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            assert!(spans.iter().all(|(start, end)| start % LINE_BYTES == 0 && *end <= row.size), "{spans:?}");
        }
        assert!(layout.row(Rank(1)).subgroup(SubgroupId(0)).unwrap().ring.is_none());
        assert!(layout.row(Rank(0)).subgroup(SubgroupId(1)).is_none());
    }

    #[test]
    fn a_bad_view_is_refused_with_what_is_wrong() {
        let mut view = View {
            id: ViewId(1),
            members: vec![MemberId(1), MemberId(2)],
            nonvoters: vec![],
            subgroups: vec![spec("a", &[0, 1], &[1], Order::Total)].into(),
        };
        assert!(Layout::new(&view).is_ok());
        view.subgroups[0].senders = vec![Rank(2)];
        assert!(matches!(Layout::new(&view), Err(ViewError::Ranks { list: "senders", .. })));
        view.subgroups[0].senders = vec![];
        view.subgroups[0].window = 0;
        assert!(matches!(Layout::new(&view), Err(ViewError::Range { field: "window", .. })));
        view.subgroups.clear();
        view.members[1] = MemberId(1);
        assert!(matches!(Layout::new(&view), Err(ViewError::MemberTwice { .. })));
    }
}

//! Identifiers that members exchange, and the time that the caller passes in. All are plain counts
//! or names. None has a meaning outside the view for which it was made, except [`MemberId`].
use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// The identity of a member for as long as it lives: unique in its group, unrelated to its
/// [`Rank`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(pub u64);

/// A process: a member id, and a number that no other process has, so that a restarted process is a
/// different one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Process {
    /// The member id of this process.
    pub id: MemberId,
    /// Drawn at random when the process starts.
    pub nonce: u32,
}

/// A member's index in its view, from 0: the index of its row in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rank(pub u32);

/// The number of a view: its *count* in the lower 32 bits, and its *era* in the upper 32 bits.
///
/// The count is 1 for the first view. A recovery begins a new era (docs/protocol/views.md). The
/// upper 16 bits of the era count the recoveries that led to the view, and its lower 16 bits are a
/// tag of the members that continued. So a view of a recovered group is newer than all views of the
/// members that were given up. If two parts of a group have given up each other, the views of one
/// part are newer than those of the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ViewId(pub u64);

/// A subgroup's index in its view's list, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubgroupId(pub u32);

/// A moment, in nanoseconds since an origin that the caller chose. The core compares times and
/// never reads a clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

/// The lowest id of an observer or admin client: a process that sends to a group and receives its
/// answers, but is never a member.
pub const CLIENT_IDS_FROM: u64 = 1 << 63;

impl ViewId {
    /// The era of this view: 0 until a recovery. A later era is larger.
    pub const fn era(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The number of views up to this one, itself included.
    pub const fn count(self) -> u64 {
        self.0 & u32::MAX as u64
    }

    /// The view after this one.
    pub const fn next(self) -> ViewId {
        ViewId(self.0 + 1)
    }

    /// The view after this one, if a recovery ends this one and the members with this `tag`
    /// continue.
    pub const fn recovered(self, tag: u16) -> ViewId {
        ViewId(((self.0 >> 48) + 1) << 48 | (tag as u64) << 32 | (self.count() + 1))
    }

    /// Whether this may be the view after `other`, with or without a recovery.
    pub const fn follows(self, other: ViewId) -> bool {
        let is_recovered = self.0 >> 48 == (other.0 >> 48) + 1;
        self.count() == other.count() + 1 && (self.era() == other.era() || is_recovered)
    }

    /// The number of views by which this one is later than `other`; 0 if it is not later.
    pub const fn ahead_of(self, other: ViewId) -> u64 {
        self.count().saturating_sub(other.count())
    }
}

/// Tells the members that continue after a recovery from those of other recoveries of the same view.
pub(crate) fn recovery_tag(members: impl Iterator<Item = MemberId>) -> u16 {
    // FNV-1a, by words.
    let digest = members.fold(0xcbf2_9ce4_8422_2325_u64, |digest, id| (digest ^ id.0).wrapping_mul(0x0100_0000_01b3));
    (digest ^ digest >> 16 ^ digest >> 32 ^ digest >> 48) as u16
}

impl Rank {
    /// This rank as an index into a list with one element for each member.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Time {
    /// The time that has passed since `earlier`; zero if `earlier` is later than this moment.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The position of a message among all of its subgroup: its epoch, and its sequence number there
/// ([`SubgroupSpec::sequence`](crate::view::SubgroupSpec::sequence)). Positions ascend in the order of
/// delivery.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// The view with which the epoch began.
    pub epoch: ViewId,
    /// The sequence number in the epoch.
    pub sequence: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.sequence)
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    /// The moment that is later by `wait`, or the last possible moment.
    fn add(self, wait: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    /// The moment that is earlier by `before`, or the first possible moment.
    fn sub(self, before: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(before.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, wait: Duration) {
        *self = *self + wait;
    }
}

impl SubgroupId {
    /// This subgroup as an index into its view's list.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for ViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for SubgroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

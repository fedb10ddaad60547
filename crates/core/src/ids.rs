//! The identifiers that members exchange and the time that they are told. All are plain counts or names; none has a
//! meaning outside the view it was made for, except [`MemberId`].
use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// Who a member is, for as long as it lives: unique in its group, unrelated to its [`Rank`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberId(pub u64);

/// A process: a member id, and a number that no other process has, so that a restarted process is another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Process {
    /// The id under which it takes part.
    pub id: MemberId,
    /// Drawn at random when the process starts.
    pub nonce: u32,
}

/// A member's place in its view, from 0: the index of its row in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rank(pub u32);

/// The number of a view: its *count*, from 1 for the first view, in the lower 32 bits, and above them its *era*, which a recovery begins
/// (docs/protocol/views.md): how many recoveries led to it in the upper 16 bits, and a tag of those that went on. So a view of a recovered group
/// is newer than all those of the members that were given up, and of two parts of a group that have given up each other, the views of one are
/// newer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ViewId(pub u64);

/// A subgroup's place in its view's list, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubgroupId(pub u32);

/// A moment, in nanoseconds since an origin that the caller chose. The core compares times and never reads one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

/// From here on ids are those of visitors: processes that write to a group and hear its answers, but never take part.
pub const VISITOR_IDS_FROM: u64 = 1 << 63;

impl ViewId {
    /// The era of this view: 0 until a recovery. A later one is larger.
    pub const fn era(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// How many views led to this one, with this one.
    pub const fn count(self) -> u64 {
        self.0 & u32::MAX as u64
    }

    /// The view behind this one.
    pub const fn next(self) -> ViewId {
        ViewId(self.0 + 1)
    }

    /// The view behind this one, if a recovery ends this by which members with this `tag` go on.
    pub const fn recovered(self, tag: u16) -> ViewId {
        ViewId(((self.0 >> 48) + 1) << 48 | (tag as u64) << 32 | (self.count() + 1))
    }

    /// Whether this may be the view behind `other`, by a recovery or without.
    pub const fn follows(self, other: ViewId) -> bool {
        let is_recovered = self.0 >> 48 == (other.0 >> 48) + 1;
        self.count() == other.count() + 1 && (self.era() == other.era() || is_recovered)
    }

    /// How many views this one is ahead of `other`; 0 if it is no later one.
    pub const fn ahead_of(self, other: ViewId) -> u64 {
        self.count().saturating_sub(other.count())
    }
}

impl Rank {
    /// This rank as an index into a list with one element a member.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Time {
    /// The time that has passed since `earlier`; zero if that is later.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    /// The moment so much later, or the last that there is.
    fn add(self, wait: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    /// The moment so much earlier, or the first.
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

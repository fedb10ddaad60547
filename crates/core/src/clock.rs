//! The wall clocks of members: how far they may differ, and the times with which members send.
//!
//! The hybrid logical clock of a log follows the times in its messages. So one member whose clock is
//! a year ahead would move the log ahead by a year, for good. Two rules prevent that (INV-CLOCK-BOUND):
//!
//! - A process whose clock differs from that of a member by more than the bound is not admitted. It
//!   decides itself whether a refusal holds: messages take time, and only it knows how much.
//! - A member that has been admitted sends with its wall clock as long as that agrees with the time
//!   that has passed since ([`bounded`]). A step of the clock by more than the bound changes no message.
//!
//! Both rules are local: no member refuses or changes a message that another one has sent, so all
//! compute the same clocks.
use crate::ids::MemberId;
use crate::mutation::mutation;
use core::fmt;
use core::time::Duration;

/// How long two processes that wait count as disagreeing after one of them has refused the other for its
/// clock. They ask each other several times meanwhile.
pub(crate) const DISAGREES_FOR: Duration = Duration::from_millis(2_500);

/// Returns the time with which a member sends, in ns since 1970: its wall clock, or `steady` if the two
/// differ by more than `max_ns`. `steady` is the wall clock when the process asked for admission, plus
/// the time that has passed since.
#[inline]
pub fn bounded(wall: u64, steady: u64, max_ns: u64) -> u64 {
    match wall.abs_diff(steady) > max_ns && !mutation!(ClockUnbounded) {
        true => steady,
        false => wall,
    }
}

/// Two clocks that differ by more than the members of a group may.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClockSkew {
    /// The process that compared the clocks.
    pub member: MemberId,
    /// Its clock, in ns since 1970.
    pub theirs: u64,
    /// The clock of the process that asked for admission, in ns since 1970.
    pub ours: u64,
    /// The largest difference that is allowed, in ns.
    pub max_ns: u64,
    /// Whether the group runs. If not, `member` waits to create or restart it.
    pub is_running: bool,
}

impl ClockSkew {
    /// Whether the two clocks differ by more than allowed, if the clock of the process that asked is
    /// `now` when it learns of the refusal. `theirs` was read at some time between `ours` and `now`. So
    /// the answer is no if they may have been close enough then.
    pub fn holds(&self, now: u64) -> bool {
        let is_ahead = self.ours > self.theirs.saturating_add(self.max_ns);
        let is_behind = now.saturating_add(self.max_ns) < self.theirs;
        is_ahead || is_behind
    }
}

impl fmt::Display for ClockSkew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ours, theirs) = (ShownTime(self.ours), ShownTime(self.theirs));
        let word = if self.ours > self.theirs { "ahead of" } else { "behind" };
        let by = Duration::from_nanos(self.ours.abs_diff(self.theirs));
        let max = Duration::from_nanos(self.max_ns);
        write!(
            f,
            "the clock of this process ({ours}) is {by:.1?} {word} that of member {} ({theirs}), and clock_skew_max is {max:.1?}",
            self.member
        )
    }
}

/// A clock to which the logs of a group are not raised: it is too far ahead of that of the member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[error(
    "the clock of the request ({}) is ahead of that of the member ({}) by more than clock_skew_max, {:.1?}; set the clock of the \
     machine that asks",
    ShownTime(*clock), ShownTime(*now), Duration::from_nanos(*max_ns)
)]
pub struct ClockAhead {
    /// The clock, in ns since 1970.
    pub clock: u64,
    /// The clock of the member, in ns since 1970.
    pub now: u64,
    /// The bound, in ns.
    pub max_ns: u64,
}

/// A time in ns since 1970, shown as in RFC 3339 with milliseconds, in UTC.
#[derive(Clone, Copy, Debug)]
pub struct ShownTime(pub u64);

impl fmt::Display for ShownTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ms, seconds) = (self.0 / 1_000_000 % 1_000, self.0 / 1_000_000_000);
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

/// Returns year, month and day of a number of days after 1 January 1970.
pub fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that the leap day is the last of one. 719,468 days lie between
    // 1 March of year 0 and 1970.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_member_sends_with_its_wall_clock_unless_that_has_stepped_too_far() {
        for (wall, sent) in [(100, 100), (105, 105), (106, 100), (95, 95), (94, 100), (0, 100), (u64::MAX, 100)] {
            assert_eq!(bounded(wall, 100, 5), sent, "{wall}");
            assert_eq!(bounded(wall, 100, u64::MAX), wall);
        }
    }

    #[test]
    fn a_refusal_holds_only_if_no_delay_explains_it() {
        let refusal = |ours, theirs| ClockSkew { member: MemberId(1), theirs, ours, max_ns: 5, is_running: true };
        // The clock of this process, of the member, and of this process when the refusal comes.
        for (ours, theirs, now, holds) in [
            (100, 106, 101, false),
            (100, 106, 100, true),
            (100, 90, 100, true),
            (100, 90, 1_000, true),
            (100, 95, 1_000, false),
            (100, 1_000, 1_000, false),
            (100, 1_006, 1_000, true),
            (u64::MAX, 0, u64::MAX, true),
            (0, u64::MAX, 0, true),
        ] {
            assert_eq!(refusal(ours, theirs).holds(now), holds, "{ours} {theirs} {now}");
        }
    }

    #[test]
    fn both_clocks_and_the_bound_are_named() {
        let at = 1_795_996_800 * S;
        let skew = ClockSkew {
            member: MemberId(3),
            theirs: at,
            ours: at + 366 * 86_400 * S + S / 2,
            max_ns: 300 * S,
            is_running: true,
        };
        let text = skew.to_string();
        let expected = "the clock of this process (2027-12-01T00:00:00.500Z) is 31622400.5s ahead of that of member 3 \
                        (2026-11-30T00:00:00.000Z), and clock_skew_max is 300.0s";
        assert_eq!(text, expected);
        assert!(
            ClockSkew { ours: 0, ..skew }
                .to_string()
                .starts_with("the clock of this process (1970-01-01T00:00:00.000Z)")
        );
        assert_eq!(ShownTime(951_782_400 * S).to_string(), "2000-02-29T00:00:00.000Z");
        assert_eq!(ShownTime(u64::MAX).to_string(), "2554-07-21T23:34:33.709Z");
    }
}

//! Processes that were admitted to one view and left out of the next.
//!
//! Some members may be unable to reach such a process, because it advertises a wrong address or a
//! network lets only others through. Each admission costs the group two view changes. So a process
//! at the same address is admitted again after pauses that double. Ids do not count: a process that
//! returns takes another one.
//!
//! [`Readmissions`] has no I/O: time is an argument.
use super::Address;
use crate::ids::Time;
use crate::mutation::mutation;
use alloc::collections::BTreeMap;
use core::time::Duration;

/// The pause after the second failure, if silence has no limit.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause, in multiples of the first one.
const PAUSE_MAX: u32 = 64;
/// The maximum number of remembered addresses.
const ADDRESSES_MAX: usize = 1024;

/// The addresses of processes that could not stay.
#[derive(Debug)]
pub struct Readmissions {
    first: Duration,
    failed: BTreeMap<Address, Failed>,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    count: u32,
    /// The time before which no process at the address is admitted.
    until: Time,
}

impl Readmissions {
    /// Returns a list without failures. The pauses depend on the silence after which a member is
    /// suspected, if there is a limit.
    pub fn new(suspect_after: Option<Duration>) -> Readmissions {
        Readmissions { first: suspect_after.unwrap_or(FIRST_PAUSE), failed: BTreeMap::new() }
    }

    /// Notes that a process at `address` was left out of its second view. It may have been killed,
    /// so the first failure delays nothing.
    pub fn failed(&mut self, address: &Address, now: Time) {
        let longest = self.first * PAUSE_MAX;
        self.failed.retain(|_, failed| now < failed.until + 2 * longest);
        let count = self.failed.get(address).map_or(0, |failed| failed.count) + 1;
        let factor = count.checked_sub(2).map_or(0, |doublings| 1 << doublings.min(PAUSE_MAX.ilog2()));
        if self.failed.len() < ADDRESSES_MAX || self.failed.contains_key(address) {
            self.failed.insert(address.clone(), Failed { count, until: now + self.first * factor });
        }
    }

    /// Notes that the process at `address` is in a second view, so the members reach it.
    pub fn stays(&mut self, address: &Address) {
        self.failed.remove(address);
    }

    /// True if a process at `address` may be admitted now.
    pub fn admits(&self, address: &Address, now: Time) -> bool {
        self.failed.get(address).is_none_or(|failed| now >= failed.until) || mutation!(ReadmittedAtOnce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    const SECOND: Duration = Duration::from_secs(1);

    fn address(port: u32) -> Address {
        format!("a:{port}").parse().unwrap()
    }

    /// Returns the pause after each failure of one address, in seconds.
    fn pauses(failures: u32) -> std::vec::Vec<u64> {
        let mut readmissions = Readmissions::new(Some(SECOND));
        let mut now = Time(0);
        let mut pause = || {
            readmissions.failed(&address(1), now);
            let begin = now;
            while !readmissions.admits(&address(1), now) {
                now += SECOND;
            }
            now.since(begin).as_secs()
        };
        (0..failures).map(|_| pause()).collect()
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        assert_eq!(pauses(10), [0, 1, 2, 4, 8, 16, 32, 64, 64, 64]);
    }

    #[test]
    fn a_process_that_stays_and_other_addresses_are_not_delayed() {
        let mut readmissions = Readmissions::new(None);
        let now = Time(0);
        (0..5).for_each(|_| readmissions.failed(&address(1), now));
        assert!(!readmissions.admits(&address(1), now) && readmissions.admits(&address(2), now));
        readmissions.stays(&address(1));
        assert!(readmissions.admits(&address(1), now));
    }

    #[test]
    fn failures_are_forgotten_and_few_addresses_are_kept() {
        let mut readmissions = Readmissions::new(Some(SECOND));
        (0..5000).for_each(|port| readmissions.failed(&address(1 + port), Time(0)));
        assert_eq!(readmissions.failed.len(), ADDRESSES_MAX);
        readmissions.failed(&address(1), Time(0) + 3 * PAUSE_MAX * SECOND);
        assert_eq!(readmissions.failed.len(), 1);
    }
}

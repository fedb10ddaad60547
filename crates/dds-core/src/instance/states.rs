//! The three states of a sample, and masks of them.
use std::fmt;

/// Whether the application has read a sample (DDS 2.2.2.5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SampleState {
    /// It was read, and not taken.
    Read,
    /// It was not read.
    NotRead,
}

/// Whether the application has seen an instance since it came to life (DDS 2.2.2.5.1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ViewState {
    /// No sample of this life was read.
    New,
    /// A sample was read.
    NotNew,
}

/// Whether an instance is alive (DDS 2.2.2.5.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InstanceState {
    /// It has samples and writers.
    Alive,
    /// A writer has disposed it.
    NotAliveDisposed,
    /// All writers have unregistered it, or are not alive.
    NotAliveNoWriters,
}

/// A set of sample states, view states and instance states.
///
/// A sample is selected if each of its three states is in the set.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StateMask(u8);

const SAMPLE: u8 = 0b11;
const VIEW: u8 = 0b1100;
const INSTANCE: u8 = 0b111_0000;

impl StateMask {
    /// All states.
    pub const ANY: StateMask = StateMask(SAMPLE | VIEW | INSTANCE);

    /// Restricts the sample states to these.
    #[must_use]
    pub fn sample(self, states: &[SampleState]) -> StateMask {
        self.only(SAMPLE, states.iter().map(|state| 1 << *state as u8))
    }

    /// Restricts the view states to these.
    #[must_use]
    pub fn view(self, states: &[ViewState]) -> StateMask {
        self.only(VIEW, states.iter().map(|state| 0b100 << *state as u8))
    }

    /// Restricts the instance states to these.
    #[must_use]
    pub fn instance(self, states: &[InstanceState]) -> StateMask {
        self.only(INSTANCE, states.iter().map(|state| 0b1_0000 << *state as u8))
    }

    /// Restricts the instance states to the two that are not alive.
    #[must_use]
    pub fn not_alive(self) -> StateMask {
        self.instance(&[InstanceState::NotAliveDisposed, InstanceState::NotAliveNoWriters])
    }

    /// Returns whether the states of a sample are in the set.
    pub fn contains(self, sample: SampleState, view: ViewState, instance: InstanceState) -> bool {
        let bits = (1 << sample as u8) | (0b100 << view as u8) | (0b1_0000 << instance as u8);
        self.0 & bits == bits
    }

    fn only(self, group: u8, bits: impl Iterator<Item = u8>) -> StateMask {
        let wanted = bits.fold(0, |all, bit| all | bit);
        StateMask(self.0 & (!group | wanted))
    }
}

impl fmt::Debug for StateMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateMask({:#09b})", self.0)
    }
}

/// The number of combinations of states.
const CELLS: usize = 12;

/// The numbers of samples with each combination of states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StateTally([usize; CELLS]);

impl StateTally {
    fn cell(sample: SampleState, view: ViewState, instance: InstanceState) -> usize {
        sample as usize + 2 * (view as usize + 2 * instance as usize)
    }

    pub(crate) fn add(&mut self, view: ViewState, instance: InstanceState, [read, unread]: [usize; 2]) {
        self.0[StateTally::cell(SampleState::Read, view, instance)] += read;
        self.0[StateTally::cell(SampleState::NotRead, view, instance)] += unread;
    }

    pub(crate) fn subtract(&mut self, view: ViewState, instance: InstanceState, [read, unread]: [usize; 2]) {
        self.0[StateTally::cell(SampleState::Read, view, instance)] -= read;
        self.0[StateTally::cell(SampleState::NotRead, view, instance)] -= unread;
    }

    /// Returns the number of samples whose states are in a set.
    pub(crate) fn count(&self, mask: StateMask) -> usize {
        let mut count = 0;
        for sample in [SampleState::Read, SampleState::NotRead] {
            for view in [ViewState::New, ViewState::NotNew] {
                for instance in
                    [InstanceState::Alive, InstanceState::NotAliveDisposed, InstanceState::NotAliveNoWriters]
                {
                    if mask.contains(sample, view, instance) {
                        count += self.0[StateTally::cell(sample, view, instance)];
                    }
                }
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_restrict_each_state_apart() {
        let all = |mask: StateMask| {
            let mut tally = StateTally::default();
            for view in [ViewState::New, ViewState::NotNew] {
                for instance in
                    [InstanceState::Alive, InstanceState::NotAliveDisposed, InstanceState::NotAliveNoWriters]
                {
                    tally.add(view, instance, [1, 1]);
                }
            }
            tally.count(mask)
        };
        assert_eq!(all(StateMask::ANY), 12);
        assert_eq!(all(StateMask::ANY.sample(&[SampleState::NotRead])), 6);
        assert_eq!(all(StateMask::ANY.view(&[ViewState::New])), 6);
        assert_eq!(all(StateMask::ANY.not_alive()), 8);
        assert_eq!(all(StateMask::ANY.instance(&[])), 0);
        let mask = StateMask::ANY.sample(&[SampleState::Read]).instance(&[InstanceState::Alive]);
        assert!(mask.contains(SampleState::Read, ViewState::New, InstanceState::Alive));
        assert!(!mask.contains(SampleState::NotRead, ViewState::New, InstanceState::Alive));
        assert_eq!(all(mask), 2);
    }
}

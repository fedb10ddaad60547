//! Optimisations that can be switched off for measurements.

/// The optimisations of the Spindle paper, each of which can be switched off to measure its effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ablation {
    /// Announce all committed messages at once, instead of one per poll (III-A).
    pub send_batch: bool,
    /// Acknowledge all received messages at once, instead of one per poll (III-A).
    pub receive_batch: bool,
    /// Deliver all stable messages at once, instead of one per poll (III-A).
    pub delivery_batch: bool,
    /// Fill the rounds of a lagging sender with nulls (III-B). Without nulls an idle sender stops
    /// its subgroup.
    pub null_sends: bool,
    /// Send one control post per peer and loop for all subgroups together, instead of one per
    /// subgroup.
    pub coalesced_control: bool,
    /// Post at the end of the loop, instead of after each predicate (III-C).
    pub deferred_posts: bool,
    /// Let subgroups that a change of the view does not touch continue. If this is off, a change
    /// ends the epochs of all subgroups.
    pub epochs: bool,
}

impl Default for Ablation {
    fn default() -> Self {
        Ablation {
            send_batch: true,
            receive_batch: true,
            delivery_batch: true,
            null_sends: true,
            coalesced_control: true,
            deferred_posts: true,
            epochs: true,
        }
    }
}

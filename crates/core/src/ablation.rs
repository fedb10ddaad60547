//! The optimisations that can be switched off, for measuring.

/// The optimisations of the Spindle paper, each of which can be switched off to measure what it brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ablation {
    /// Announce all committed messages at once, not one a poll (III-A).
    pub send_batch: bool,
    /// Acknowledge all received messages at once, not one a poll (III-A).
    pub receive_batch: bool,
    /// Deliver all stable messages at once, not one a poll (III-A).
    pub delivery_batch: bool,
    /// Fill a lagging sender's rounds with nulls (III-B). Without them an idle sender stops its subgroup.
    pub null_sends: bool,
    /// One control post per peer and loop for all subgroups together, not one per subgroup.
    pub coalesced_control: bool,
    /// Post at the end of the loop, not after each predicate (III-C).
    pub deferred_posts: bool,
    /// Let subgroups go on that a change of the view does not touch. Switched off, a change ends the epochs of all.
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

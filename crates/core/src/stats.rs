//! What an engine counts while it runs: plain integers, read between polls.

/// What one subgroup did at this member since the view began.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SubgroupStats {
    /// Messages that I announced.
    pub sent: u64,
    /// Times that I announced at least one.
    pub send_batches: u64,
    /// Nulls that I announced (rounds, not posts).
    pub nulls: u64,
    /// Times that I announced at least one null.
    pub null_batches: u64,
    /// Times that my `received` moved.
    pub receive_batches: u64,
    /// Messages that were delivered here.
    pub delivered: u64,
    /// Payload bytes that were delivered here.
    pub delivered_bytes: u64,
    /// Times that at least one message was delivered.
    pub delivery_batches: u64,
}

/// What an engine did since the view began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineStats {
    /// Polls.
    pub polls: u64,
    /// Polls that did something.
    pub productive_polls: u64,
    /// Posts of ring data, each counted once whatever the number of peers.
    pub data_posts: u64,
    /// Posts of control words, each counted once whatever the number of peers.
    pub control_posts: u64,
}

/// How far a member is in one subgroup, as this member knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Frontier {
    /// Rounds announced (0 for a member that does not send).
    pub rounds: u64,
    /// Places of the order received.
    pub received: u64,
    /// Places of the order delivered.
    pub delivered: u64,
}

//! The costs of the model.

/// Costs, in ns and in bytes per µs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// The bytes per µs that a NIC sends; the same number applies to receiving.
    pub bytes_per_us: u64,
    /// The latency from a NIC to another, without the time of the bytes.
    pub latency_ns: u64,
    /// The overhead in bytes of each range on the wire.
    pub range_bytes: u64,
    /// The time to hand one batch for one peer to the system.
    pub write_ns: u64,
    /// The time to hand one range of a batch to the NIC.
    pub range_ns: u64,
    /// The time to read what has arrived from one peer since the last look.
    pub read_ns: u64,
    /// The bytes per µs that a processor copies when it sends; the same number applies to
    /// receiving. 0: the NIC copies.
    pub copy_bytes_per_us: u64,
    /// The bytes that may wait in the NIC for one peer; further posts are then merged.
    pub buffer_bytes: u64,
    /// The time of one poll that finds nothing, without the looks at the rows.
    pub poll_ns: u64,
    /// The time to look at one row.
    pub look_ns: u64,
    /// The time to build one message.
    pub build_ns: u64,
    /// The time to take one delivery.
    pub deliver_ns: u64,
}

impl Costs {
    /// Costs of one-sided writes: links of 12.5 GB/s, 1.7 µs of latency and 1 µs for a post, as in
    /// the papers and in [`NetworkModel::rdma`](crate::bulk::NetworkModel::rdma). Nothing is copied,
    /// and arriving data costs only a look.
    pub fn rdma() -> Costs {
        Costs {
            bytes_per_us: 12_500,
            latency_ns: 1_700,
            range_bytes: 30,
            write_ns: 0,
            range_ns: 1_000,
            read_ns: 0,
            copy_bytes_per_us: 0,
            buffer_bytes: 256 << 10,
            poll_ns: 150,
            look_ns: 15,
            build_ns: 50,
            deliver_ns: 50,
        }
    }

    /// Costs of streams through a kernel, on the same links: 10 µs of latency, 1.5 µs for a call,
    /// and every byte copied once on each side at 4 GB/s. These are orders of magnitude, not
    /// measurements.
    pub fn tcp() -> Costs {
        Costs {
            latency_ns: 10_000,
            range_bytes: 24,
            write_ns: 1_500,
            range_ns: 50,
            read_ns: 1_500,
            copy_bytes_per_us: 4_000,
            ..Costs::rdma()
        }
    }

    /// Returns the time that a link takes for so many bytes.
    pub fn link_ns(&self, bytes: u64) -> u64 {
        (bytes * 1_000).div_ceil(self.bytes_per_us)
    }

    /// Returns the time that a processor takes to copy so many bytes.
    pub fn copy_ns(&self, bytes: u64) -> u64 {
        (bytes * 1_000).checked_div(self.copy_bytes_per_us).unwrap_or(0)
    }
}

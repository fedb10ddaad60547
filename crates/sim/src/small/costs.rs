//! What things cost.

/// Costs, in ns and in bytes per µs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Bytes per µs that a NIC sends, and as many that it receives.
    pub bytes_per_us: u64,
    /// From a NIC to another, beyond the time of the bytes.
    pub latency_ns: u64,
    /// Bytes that each range on the wire has around it.
    pub range_bytes: u64,
    /// To hand one batch for one peer to the system.
    pub write_ns: u64,
    /// To hand one range of it to the NIC.
    pub range_ns: u64,
    /// To take in what has come from one peer since the last look.
    pub read_ns: u64,
    /// Bytes per µs that a processor copies on the way out, and as many on the way in; 0: the NIC does it.
    pub copy_bytes_per_us: u64,
    /// Bytes that may wait in the NIC for one peer until what comes next melts together.
    pub buffer_bytes: u64,
    /// One poll that finds nothing, beyond the looks at the rows.
    pub poll_ns: u64,
    /// To look at one row.
    pub look_ns: u64,
    /// To build one message.
    pub build_ns: u64,
    /// To take one delivery.
    pub deliver_ns: u64,
}

impl Costs {
    /// One-sided writes: links of 12.5 GB/s, 1.7 µs of latency and 1 µs for a post, as in the papers and in
    /// [`bulk::Network::rdma`](crate::bulk::Network::rdma). Nothing is copied, and what comes costs nothing but a look.
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

    /// Streams through a kernel, on the same links: 10 µs of latency, 1.5 µs for a call, and every byte copied once on each side at 4 GB/s.
    /// Those are orders of magnitude, not measurements.
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

    /// How long a link takes for so many bytes.
    pub fn link_ns(&self, bytes: u64) -> u64 {
        (bytes * 1_000).div_ceil(self.bytes_per_us)
    }

    /// How long a processor copies so many bytes.
    pub fn copy_ns(&self, bytes: u64) -> u64 {
        (bytes * 1_000).checked_div(self.copy_bytes_per_us).unwrap_or(0)
    }
}

//! The costs of sending, and the times at which wires and NICs are free.

/// A link that is slower than the others, in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlowLink {
    /// The sending host.
    pub from: u32,
    /// The receiving host.
    pub to: u32,
    /// Its speed, in thousandths of the speed of the other links.
    pub permille: u64,
}

/// Racks whose members share an uplink to the other racks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uplinks {
    /// The rack of each host.
    pub rack_of: Vec<u32>,
    /// The bytes per µs out of a rack; the same number applies into it.
    pub bytes_per_us: u64,
}

/// Costs. The defaults are those of the RDMA network in the papers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkModel {
    /// The number of hosts.
    pub hosts: u32,
    /// The bytes per µs that a NIC sends; the same number applies to receiving.
    pub bytes_per_us: u64,
    /// The latency from a NIC to another, without the time of the bytes, in ns.
    pub latency_ns: u64,
    /// The largest random addition to the latency, in ns.
    pub jitter_ns: u64,
    /// The processor time of one post, in ns.
    pub post_ns: u64,
    /// The processor time to look at one input, in ns.
    pub input_ns: u64,
    /// Slow links.
    pub slow_links: Vec<SlowLink>,
    /// Slow hosts, each with the time that its processor takes, in thousandths of the usual time.
    pub slow_hosts: Vec<(u32, u64)>,
    /// The racks, if they have a bandwidth of their own.
    pub uplinks: Option<Uplinks>,
    /// True if newer counters replace older ones that are still unsent.
    pub merges: bool,
}

impl NetworkModel {
    /// A network of `hosts` hosts with links of 12.5 GB/s, 1.7 µs of latency, and 1 µs for a post.
    pub fn rdma(hosts: u32) -> NetworkModel {
        NetworkModel {
            hosts,
            bytes_per_us: 12_500,
            latency_ns: 1_700,
            jitter_ns: 0,
            post_ns: 1_000,
            input_ns: 200,
            slow_links: vec![],
            slow_hosts: vec![],
            uplinks: None,
            merges: false,
        }
    }

    /// Returns the time that `bytes` bytes take at full speed, in ns.
    pub fn bytes_ns(&self, bytes: u64) -> u64 {
        (bytes * 1_000).div_ceil(self.bytes_per_us)
    }

    fn link_ns(&self, from: u32, to: u32, bytes: u64) -> u64 {
        let slow = self.slow_links.iter().find(|link| (link.from, link.to) == (from, to));
        self.bytes_ns(bytes) * 1_000 / slow.map_or(1_000, |link| link.permille)
    }

    /// Returns the time that `host` needs for work that takes other hosts `ns`.
    pub(super) fn on(&self, host: u32, ns: u64) -> u64 {
        let slow = self.slow_hosts.iter().find(|(slow, _)| *slow == host);
        ns * slow.map_or(1_000, |(_, permille)| *permille) / 1_000
    }
}

/// The times at which NICs and uplinks are free again.
#[derive(Clone, Debug)]
pub(super) struct Wires {
    sending: Vec<u64>,
    receiving: Vec<u64>,
    up: Vec<u64>,
    down: Vec<u64>,
}

impl Wires {
    pub(super) fn new(network: &NetworkModel) -> Wires {
        let racks = network.uplinks.iter().flat_map(|uplinks| &uplinks.rack_of).max().map_or(0, |rack| rack + 1);
        let (hosts, racks) = (vec![0; network.hosts as usize], vec![0; racks as usize]);
        Wires { sending: hosts.clone(), receiving: hosts, up: racks.clone(), down: racks }
    }

    /// Returns when the last byte of a block leaves, if the block is posted at `at`.
    pub(super) fn leave(&mut self, network: &NetworkModel, from: u32, to: u32, bytes: u64, at: u64) -> u64 {
        let free = &mut self.sending[from as usize];
        *free = at.max(*free) + network.link_ns(from, to, bytes);
        *free
    }

    /// Returns when the last byte of a block arrives, if it would arrive at `at` without other
    /// traffic.
    pub(super) fn arrive(&mut self, network: &NetworkModel, from: u32, to: u32, bytes: u64, mut at: u64) -> u64 {
        // All of them forward bytes as they arrive, so a free one costs no time.
        let mut pass = |free: &mut u64, ns: u64| {
            at = at.max(*free + ns);
            *free = at;
        };
        if let Some(uplinks) = &network.uplinks {
            let [rack, other] = [from, to].map(|host| uplinks.rack_of[host as usize] as usize);
            if rack != other {
                let ns = (bytes * 1_000).div_ceil(uplinks.bytes_per_us);
                pass(&mut self.up[rack], ns);
                pass(&mut self.down[other], ns);
            }
        }
        pass(&mut self.receiving[to as usize], network.bytes_ns(bytes));
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_sends_and_receives_one_block_at_a_time() {
        let mut network = NetworkModel::rdma(4);
        network.slow_links.push(SlowLink { from: 0, to: 2, permille: 500 });
        let mut wires = Wires::new(&network);
        assert_eq!(wires.leave(&network, 0, 1, 125_000, 5), 10_005);
        assert_eq!(wires.leave(&network, 0, 2, 125_000, 5), 30_005, "a slow link, behind the other");
        assert_eq!(wires.leave(&network, 1, 2, 125_000, 5), 10_005, "another NIC");
        assert_eq!(wires.arrive(&network, 0, 3, 125_000, 20_000), 20_000);
        assert_eq!(wires.arrive(&network, 1, 3, 125_000, 21_000), 30_000);
        assert_eq!(network.on(1, 200), 200);
    }

    #[test]
    fn racks_share_their_uplink() {
        let mut network = NetworkModel::rdma(4);
        network.uplinks = Some(Uplinks { rack_of: vec![0, 0, 1, 1], bytes_per_us: 1_250 });
        let mut wires = Wires::new(&network);
        assert_eq!(wires.arrive(&network, 0, 1, 125_000, 200_000), 200_000);
        assert_eq!(wires.arrive(&network, 0, 2, 125_000, 200_000), 200_000);
        assert_eq!(wires.arrive(&network, 1, 3, 125_000, 200_000), 300_000);
    }
}

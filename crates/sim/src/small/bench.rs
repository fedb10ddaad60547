//! The throughput and the latency of messages in the model.
use super::costs::Costs;
use spindle_core::wire::ring::HEADER_BYTES;
use spindle_core::{Ablation, MemberId, Order, Rank, SubgroupSpec, View, ViewId};

/// A group of one subgroup with a total order. Each member has a host of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SmallBench {
    /// The costs.
    pub costs: Costs,
    /// The number of members, at most 64.
    pub members: u32,
    /// The number of senders: the members of the lowest ranks.
    pub senders: u32,
    /// The size of a message in bytes.
    pub size: u64,
    /// The number of messages that each sender may have in flight.
    pub window: u64,
    /// The maximum number of messages that a sender builds between two polls.
    pub burst: u64,
    /// How many times all rings are filled before the measurement, and again during it.
    pub laps: u64,
    /// The optimisations that are switched off.
    pub ablation: Ablation,
}

/// The result of a bench.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SmallTiming {
    /// Messages that were delivered at every member, per second.
    pub messages_per_second: f64,
    /// The median time from the commit of a message to its delivery at each other member, in ns.
    pub latency_ns: u64,
    /// The longest of these times, in ns.
    pub latency_max_ns: u64,
    /// The fraction of the time in which the busiest NIC was sending.
    pub link_use: f64,
    /// The fraction of the time in which the busiest processor did not wait.
    pub processor_use: f64,
    /// Batches that were handed to NICs, per message.
    pub batches_per_message: f64,
    /// The mean number of messages in a delivery.
    pub messages_per_delivery: f64,
}

impl SmallBench {
    /// A bench in which all members send messages of `size` bytes. The rings have 1 MiB or 1,000
    /// messages, and a sender builds 128 KiB or 256 messages between two polls.
    pub fn new(costs: Costs, members: u32, size: u64) -> SmallBench {
        let window = ((1 << 20) / (size + HEADER_BYTES)).clamp(4, 1_000);
        let burst = ((128 << 10) / size.max(1)).clamp(1, 256);
        SmallBench { costs, members, senders: members, size, window, burst, laps: 2, ablation: Ablation::default() }
    }

    pub(super) fn view(&self) -> View {
        assert!((1..=64).contains(&self.members), "1 to 64 members, not {}", self.members);
        assert!((1..=self.members).contains(&self.senders), "1 to {} senders, not {}", self.members, self.senders);
        let ranks = |count: u32| (0..count).map(Rank).collect();
        let spec = SubgroupSpec {
            members: ranks(self.members),
            senders: ranks(self.senders),
            order: Order::Total,
            window: self.window,
            message_bytes_max: self.size,
            ..SubgroupSpec::of_everyone("all")
        };
        let members = (1..=u64::from(self.members)).map(MemberId).collect();
        View { id: ViewId(1), members, nonvoters: vec![], subgroups: vec![spec].into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64, part: f64) {
        assert!((value / expected - 1.0).abs() <= part, "{value} is not within {part} of {expected}");
    }

    #[test]
    fn large_messages_take_the_whole_link_and_no_more() {
        for members in [2, 5, 16] {
            let bench = SmallBench { senders: 1, ..SmallBench::new(Costs::rdma(), members, 10_240) };
            let timing = bench.flood().unwrap();
            // The sender's link carries one copy for each peer.
            near(timing.messages_per_second * 10_240.0 * f64::from(members - 1), 12.5e9, 0.1);
            assert!(timing.link_use > 0.9 && timing.processor_use < 0.5, "{timing:?}");
        }
    }

    #[test]
    fn small_messages_take_the_whole_processor() {
        let timing = SmallBench::new(Costs::rdma(), 4, 64).flood().unwrap();
        assert!(timing.processor_use > 0.95 && timing.link_use < 0.2, "{timing:?}");
        // A member builds one of four messages and takes all four, which costs at least this.
        assert!(timing.messages_per_second < 1e9 / (50.0 + 50.0 / 4.0), "{timing:?}");
        assert!(timing.messages_per_delivery > 4.0);
    }

    #[test]
    fn one_message_takes_its_way_there_and_the_word_that_all_have_it() {
        let one =
            |costs, members| SmallBench { senders: 1, ..SmallBench::new(costs, members, 1) }.one_in_flight().unwrap();
        let two = one(Costs::rdma(), 2);
        // Post, wire, look, deliver: a sender acknowledges the message by sending it.
        let least = 1_000 + 1_700 + 150 + 2 * 15 + 50;
        assert!((least..2 * least).contains(&two.latency_ns), "{two:?}");
        assert_eq!(two.latency_ns, two.latency_max_ns, "nothing differs from one message to the next");
        // With more members, one member also has to learn of the acknowledgements of the others.
        assert!(one(Costs::rdma(), 3).latency_ns > 2 * 1_700 + least);
        let times: Vec<u64> = [2, 4, 8, 16].map(|members| one(Costs::tcp(), members).latency_ns).into();
        assert!(times.is_sorted() && times[0] > two.latency_ns, "{times:?}");
    }

    #[test]
    fn batching_pays() {
        let usual = SmallBench::new(Costs::tcp(), 4, 128);
        let ablation = Ablation { send_batch: false, receive_batch: false, delivery_batch: false, ..usual.ablation };
        let without = SmallBench { ablation, laps: 1, window: 100, ..usual };
        assert!(usual.flood().unwrap().messages_per_second > 5.0 * without.flood().unwrap().messages_per_second);
    }

    #[test]
    fn a_group_that_stands_still_is_noticed() {
        let usual = SmallBench::new(Costs::rdma(), 3, 128);
        let stuck = SmallBench { ablation: Ablation { null_sends: false, ..usual.ablation }, ..usual };
        assert_eq!(stuck.one_in_flight().unwrap_err().name, "liveness");
        assert!(usual.one_in_flight().is_ok());
    }

    #[test]
    fn a_bench_comes_to_the_same_each_time() {
        let bench = SmallBench { laps: 1, ..SmallBench::new(Costs::tcp(), 5, 1_000) };
        assert_eq!(bench.flood().unwrap(), bench.flood().unwrap());
    }

    #[test]
    fn sixty_four_members_agree() {
        let bench = SmallBench { window: 8, burst: 8, laps: 1, ..SmallBench::new(Costs::rdma(), 64, 100) };
        assert!(bench.flood().unwrap().messages_per_second > 0.0);
    }
}

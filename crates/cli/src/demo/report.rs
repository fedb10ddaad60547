//! Reports from a member of the demo to the process that shows them: one JSON object a line, over a
//! pipe.
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// One line of a member's output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum OutputLine {
    /// The member has joined the group.
    Joined {
        /// Time of the join.
        at_ns: u64,
        /// The number of its first view.
        view: u64,
    },
    /// A view has begun at this member.
    View(ViewBegun),
    /// The first message of a view was delivered at this member.
    First {
        /// The view's number.
        view: u64,
        /// Time of the delivery.
        at_ns: u64,
    },
    /// The member's current counts.
    Report(MemberReport),
    /// Everything is delivered everywhere.
    Final(Final),
    /// The member could not continue.
    Failed {
        /// The reason.
        message: String,
    },
}

/// A view that has begun at a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ViewBegun {
    pub(crate) view: u64,
    pub(crate) at_ns: u64,
    pub(crate) members: Vec<u64>,
    pub(crate) joined: Vec<u64>,
    pub(crate) left: Vec<u64>,
}

/// The state of one member at one moment. Counts are since the start, over all subgroups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct MemberReport {
    pub(crate) at_ns: u64,
    pub(crate) sent: u64,
    pub(crate) delivered: u64,
    pub(crate) delivered_bytes: u64,
    /// Messages, as the engines counted them. The counts of the moments between the last report of
    /// a view and its end are missing in this field and the ones below.
    pub(crate) announced: u64,
    /// Sequence numbers of the order, nulls included.
    pub(crate) received: u64,
    pub(crate) send_batches: u64,
    pub(crate) receive_batches: u64,
    pub(crate) delivery_batches: u64,
    pub(crate) nulls: u64,
    /// Lag by id, as this member knows it.
    pub(crate) lag: Vec<(u64, u64)>,
    /// Latency since the last report; in the final one, of the whole run.
    pub(crate) latency: Latency,
}

/// Percentiles, in nanoseconds; all 0 if nothing was sampled.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) samples: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) max_ns: u64,
}

/// The result of a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Final {
    pub(crate) totals: MemberReport,
    /// The views of the member, from its first.
    pub(crate) views: Vec<ViewDeliveries>,
}

/// The deliveries in one view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ViewDeliveries {
    pub(crate) view: u64,
    pub(crate) subgroups: Vec<SubgroupDeliveries>,
}

/// The deliveries in one subgroup in one view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SubgroupDeliveries {
    pub(crate) name: String,
    pub(crate) delivered: u64,
    /// Digest in 16 hexadecimal digits.
    pub(crate) digest: String,
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Latency {
        Latency {
            samples: histogram.len(),
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            max_ns: histogram.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_the_pipe() {
        let stream = SubgroupDeliveries { name: "s0".into(), delivered: 7, digest: "00ff".into() };
        let views = vec![ViewDeliveries { view: 1, subgroups: vec![stream] }];
        let totals = MemberReport { sent: 3, lag: [(2, 5)].into(), ..MemberReport::default() };
        let line = OutputLine::Final(Final { totals, views });
        let text = serde_json::to_string(&line).unwrap();
        let OutputLine::Final(back) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        assert_eq!((back.totals.sent, back.totals.lag[0].1, back.views[0].subgroups[0].delivered), (3, 5, 7));
    }
}

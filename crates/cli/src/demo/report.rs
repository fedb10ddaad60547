//! What a member of the demo tells the process that shows it: one JSON object a line, over a pipe.
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Line {
    /// It is in the group.
    Joined {
        /// Since when.
        at_ns: u64,
        /// The number of its first view.
        view: u64,
    },
    /// A view has begun here.
    View(ViewBegun),
    /// The first message of a view was delivered here.
    First {
        /// The view's number.
        view: u64,
        /// When.
        at_ns: u64,
    },
    /// How it stands.
    Report(Report),
    /// Everything is delivered everywhere.
    Final(Final),
    /// It could not go on.
    Failed {
        /// Why.
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

/// A moment of one member. Counts are since the start, over all subgroups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) at_ns: u64,
    pub(crate) sent: u64,
    pub(crate) delivered: u64,
    pub(crate) delivered_bytes: u64,
    /// Messages, as the engines counted them: those of the moments between the last look at a view and its end are missing in
    /// this and what follows.
    pub(crate) announced: u64,
    /// Places of the order, nulls among them.
    pub(crate) received: u64,
    pub(crate) send_batches: u64,
    pub(crate) receive_batches: u64,
    pub(crate) delivery_batches: u64,
    pub(crate) nulls: u64,
    /// By id, as this member knows it.
    pub(crate) lag: Vec<(u64, u64)>,
    /// Since the last report; in the final one, of all.
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

/// What a member came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Final {
    pub(crate) totals: Report,
    /// The views that it was in, from the first.
    pub(crate) views: Vec<Delivered>,
}

/// What was delivered in one view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delivered {
    pub(crate) view: u64,
    pub(crate) subgroups: Vec<Stream>,
}

/// What was delivered in one subgroup in one view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stream {
    pub(crate) name: String,
    pub(crate) delivered: u64,
    /// 16 hexadecimal digits.
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
        let stream = Stream { name: "s0".into(), delivered: 7, digest: "00ff".into() };
        let views = vec![Delivered { view: 1, subgroups: vec![stream] }];
        let totals = Report { sent: 3, lag: [(2, 5)].into(), ..Report::default() };
        let line = Line::Final(Final { totals, views });
        let text = serde_json::to_string(&line).unwrap();
        let Line::Final(back) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        assert_eq!((back.totals.sent, back.totals.lag[0].1, back.views[0].subgroups[0].delivered), (3, 5, 7));
    }
}

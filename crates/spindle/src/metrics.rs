//! Metrics of a member for Prometheus: a collector for the registry of `prometheus-client`.
//!
//! All families are defined in one table, [`FAMILIES`]. The page `docs/guide/monitoring.md` explains
//! them, and a test compares both.
use crate::histogram::Histogram;
use crate::logs::LogStatus;
use crate::status::{Status, SubgroupStatus};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use spindle_core::multicast::stats::SubgroupStats;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The metrics of a member, read from its [`Status`] whenever the registry is encoded.
///
/// ```
/// # use prometheus_client::{encoding::text, registry::Registry};
/// # use spindle::{Batch, Config, Metrics, SubgroupId};
/// # let node = Config::new("g", 1).local()?.remove(0);
/// let group = node.start(|_: SubgroupId, _: &mut Batch<'_>| {})?;
/// let monitor = group.monitor();
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(Metrics::new("g", move || monitor.status())));
/// let mut page = String::new();
/// text::encode(&mut page, &registry)?;
/// assert!(page.contains("spindle_members{group=\"g\"} 1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Metrics {
    group: String,
    status: Arc<dyn Fn() -> Status + Send + Sync>,
}

/// The name, meaning and values of a metric.
struct Family {
    /// The name, without the unit and without `_total`.
    name: &'static str,
    unit: Option<Unit>,
    help: &'static str,
    values: MetricValues,
}

/// How the values of a metric are read.
enum MetricValues {
    Counter(fn(&Status) -> u64),
    Gauge(fn(&Status) -> f64),
    Histogram(fn(&Status) -> &Histogram),
    /// A counter of each subgroup.
    OfSubgroup(fn(&SubgroupStats) -> u64),
    /// The time from claim to delivery in each subgroup.
    Latency,
    /// The time that commits took in each logged subgroup.
    Commits,
    /// A gauge of each logged subgroup.
    OfLog(fn(&SubgroupStatus, &LogStatus) -> f64),
    /// A gauge of each member of each subgroup.
    OfMember(fn(&crate::MemberStatus) -> f64),
}

use MetricValues::{Counter, Gauge, OfLog, OfMember, OfSubgroup};

/// All metrics.
const FAMILIES: &[Family] = &[
    Family {
        name: "spindle_view",
        unit: None,
        help: "Number of the newest view that has begun at this member",
        values: Gauge(|status| status.view.0 as f64),
    },
    Family {
        name: "spindle_members",
        unit: None,
        help: "Members of the view",
        values: Gauge(|status| status.members.len() as f64),
    },
    Family {
        name: "spindle_members_suspected",
        unit: None,
        help: "Members of the view that this member considers dead or hung",
        values: Gauge(|status| status.members.iter().filter(|member| member.suspected).count() as f64),
    },
    Family {
        name: "spindle_view_changing",
        unit: None,
        help: "1 while the view is ending, else 0",
        values: Gauge(|status| f64::from(u8::from(status.is_changing))),
    },
    Family {
        name: "spindle_view_blocked",
        unit: None,
        help: "1 while the view can't end because too few members agree, else 0",
        values: Gauge(|status| f64::from(u8::from(status.is_blocked))),
    },
    Family {
        name: "spindle_clock_ahead",
        unit: Some(Unit::Seconds),
        help: "The farthest that the time of a logged message was ahead of this member's clock when the message came",
        values: Gauge(|status| status.clock.map_or(0.0, |clock| clock.ahead.as_secs_f64())),
    },
    Family {
        name: "spindle_clock_step",
        unit: Some(Unit::Seconds),
        help: "How far this member's clock has stepped since it joined, if that is beyond group.clock_skew_max, else 0",
        values: Gauge(|status| status.clock.and_then(|clock| clock.stepped_ns).unwrap_or(0) as f64 / 1e9),
    },
    Family {
        name: "spindle_clock_refusals",
        unit: None,
        help: "Requests for admission that this member has refused for a clock that was too far off",
        values: Counter(|status| status.clock.map_or(0, |clock| clock.refusals)),
    },
    Family {
        name: "spindle_observers",
        unit: None,
        help: "Processes that follow the view through this member",
        values: Gauge(|status| status.observers as f64),
    },
    Family {
        name: "spindle_view_change_duration",
        unit: Some(Unit::Seconds),
        help: "Time from the moment at which this member learnt of the end of a view until the next one began here",
        values: MetricValues::Histogram(|status| &status.view_changes),
    },
    Family {
        name: "spindle_messages_sent",
        unit: None,
        help: "Messages that this member announced; a message that a later view sends again counts again",
        values: OfSubgroup(|stats| stats.sent),
    },
    Family {
        name: "spindle_send_batches",
        unit: None,
        help: "Times that this member announced at least one message",
        values: OfSubgroup(|stats| stats.send_batches),
    },
    Family {
        name: "spindle_nulls_sent",
        unit: None,
        help: "Rounds in which this member announced that it sends nothing",
        values: OfSubgroup(|stats| stats.nulls),
    },
    Family {
        name: "spindle_null_batches",
        unit: None,
        help: "Times that this member announced at least one such round",
        values: OfSubgroup(|stats| stats.null_batches),
    },
    Family {
        name: "spindle_receive_batches",
        unit: None,
        help: "Times that this member received at least one round",
        values: OfSubgroup(|stats| stats.receive_batches),
    },
    Family {
        name: "spindle_messages_delivered",
        unit: None,
        help: "Messages that were delivered to this member",
        values: OfSubgroup(|stats| stats.delivered),
    },
    Family {
        name: "spindle_delivered",
        unit: Some(Unit::Bytes),
        help: "Payload that was delivered to this member",
        values: OfSubgroup(|stats| stats.delivered_bytes),
    },
    Family {
        name: "spindle_delivery_batches",
        unit: None,
        help: "Times that at least one message was delivered to this member",
        values: OfSubgroup(|stats| stats.delivery_batches),
    },
    Family {
        name: "spindle_delivery_latency",
        unit: Some(Unit::Seconds),
        help: "Time from the claim of a message of this member until its delivery here, of a sample of them",
        values: MetricValues::Latency,
    },
    Family {
        name: "spindle_member_lag",
        unit: None,
        help: "Sequence numbers that every member has received and that the member has not delivered",
        values: OfMember(|member| member.lag as f64),
    },
    Family {
        name: "spindle_member_lag",
        unit: Some(Unit::Seconds),
        help: "How long the member has not delivered what every member had received a second before, 0 if it has",
        values: OfMember(|member| member.lagging_for.unwrap_or_default().as_secs_f64()),
    },
    Family {
        name: "spindle_log_commit_duration",
        unit: Some(Unit::Seconds),
        help: "Time of a commit: the write and the sync of one or more messages",
        values: MetricValues::Commits,
    },
    Family {
        name: "spindle_log_persist_lag",
        unit: None,
        help: "Sequence numbers that every member has received and that are not on the disk of this member",
        values: OfLog(|subgroup, log| lag(subgroup.stable, log.persisted)),
    },
    Family {
        name: "spindle_log_durable_lag",
        unit: None,
        help: "Sequence numbers that every member has received and that are not on the disks of all members",
        values: OfLog(|subgroup, log| lag(subgroup.stable, log.durable)),
    },
    Family {
        name: "spindle_log_queued",
        unit: Some(Unit::Bytes),
        help: "Bytes that wait for the disk",
        values: OfLog(|_, log| log.queued_bytes as f64),
    },
    Family {
        name: "spindle_log_disk",
        unit: Some(Unit::Bytes),
        help: "Bytes of the log's files, with space for messages to come",
        values: OfLog(|_, log| log.disk_bytes as f64),
    },
    Family {
        name: "spindle_log_full",
        unit: None,
        help: "1 while the disk has no space for the log, else 0",
        values: OfLog(|_, log| f64::from(u8::from(log.is_full))),
    },
    Family {
        name: "spindle_log_catching_up",
        unit: None,
        help: "1 while the log gets records that it lacks from other members, else 0",
        values: OfLog(|_, log| f64::from(u8::from(log.catching_up.is_some()))),
    },
    Family {
        name: "spindle_handler_slow_calls",
        unit: None,
        help: "Upcalls that took longer than an eighth of suspect_after",
        values: Counter(|status| status.handler.slow_calls),
    },
    Family {
        name: "spindle_handler_running",
        unit: Some(Unit::Seconds),
        help: "How long such an upcall has been running by now, 0 if there is none",
        values: Gauge(|status| status.handler.running_for.unwrap_or_default().as_secs_f64()),
    },
    Family {
        name: "spindle_messages_lost",
        unit: None,
        help: "Messages of this member that were lost because no later view had a ring for them",
        values: Counter(|status| status.lost),
    },
    Family {
        name: "spindle_polls",
        unit: None,
        help: "Polls of this member's engine",
        values: Counter(|status| status.engine.polls),
    },
    Family {
        name: "spindle_productive_polls",
        unit: None,
        help: "Polls that had work to do",
        values: Counter(|status| status.engine.productive_polls),
    },
    Family {
        name: "spindle_data_posts",
        unit: None,
        help: "Posts of messages, each counted once for any number of peers",
        values: Counter(|status| status.engine.data_posts),
    },
    Family {
        name: "spindle_control_posts",
        unit: None,
        help: "Posts of counters, each counted once for any number of peers",
        values: Counter(|status| status.engine.control_posts),
    },
];

impl Metrics {
    /// Returns the metrics of a member of `group`. `status` returns its present status, for example
    /// that of a [`Monitor`](crate::Monitor).
    pub fn new(group: impl Into<String>, status: impl Fn() -> Status + Send + Sync + 'static) -> Metrics {
        Metrics { group: group.into(), status: Arc::new(status) }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status = (self.status)();
        for family in FAMILIES {
            let kind = match family.values {
                Counter(_) | OfSubgroup(_) => MetricType::Counter,
                Gauge(_) | OfMember(_) | OfLog(_) => MetricType::Gauge,
                MetricValues::Histogram(_) | MetricValues::Latency | MetricValues::Commits => MetricType::Histogram,
            };
            let metric = encoder.encode_descriptor(family.name, family.help, family.unit.as_ref(), kind)?;
            family.values.encode(metric, &self.group, &status)?;
        }
        Ok(())
    }
}

impl MetricValues {
    fn encode(&self, mut metric: MetricEncoder<'_>, group: &str, status: &Status) -> fmt::Result {
        let group = ("group", group);
        let subgroups = status.subgroups.iter().map(|of| (&*of.name, &of.stats, &of.latency));
        let subgroups = subgroups.chain(status.former.iter().map(|of| (&*of.name, &of.stats, &of.latency)));
        let logs = status.subgroups.iter().filter_map(|subgroup| Some((subgroup, subgroup.log.as_ref()?)));
        match self {
            Counter(read) => counter(metric.encode_family(&[group])?, read(status)),
            Gauge(read) => metric.encode_family(&[group])?.encode_gauge(&read(status)),
            MetricValues::Histogram(read) => histogram(metric.encode_family(&[group])?, read(status)),
            OfSubgroup(read) => {
                for (name, stats, _) in subgroups {
                    counter(metric.encode_family(&[group, ("subgroup", name)])?, read(stats))?;
                }
                Ok(())
            }
            MetricValues::Latency => {
                for (name, _, latency) in subgroups {
                    histogram(metric.encode_family(&[group, ("subgroup", name)])?, latency)?;
                }
                Ok(())
            }
            MetricValues::Commits => {
                for (subgroup, log) in logs {
                    histogram(metric.encode_family(&[group, ("subgroup", &*subgroup.name)])?, &log.commits)?;
                }
                Ok(())
            }
            OfLog(read) => {
                for (subgroup, log) in logs {
                    let labels = [group, ("subgroup", &*subgroup.name)];
                    metric.encode_family(&labels)?.encode_gauge(&read(subgroup, log))?;
                }
                Ok(())
            }
            OfMember(read) => {
                for subgroup in &status.subgroups {
                    for member in &subgroup.members {
                        let id = member.id.0.to_string();
                        let labels = [group, ("subgroup", &*subgroup.name), ("member", &*id)];
                        metric.encode_family(&labels)?.encode_gauge(&read(member))?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// How many sequence numbers a frontier is behind. While older epochs are not complete, it counts as 0.
fn lag(stable: u64, frontier: Option<u64>) -> f64 {
    stable.saturating_sub(frontier.unwrap_or(0)) as f64
}

fn counter(mut metric: MetricEncoder<'_>, value: u64) -> fmt::Result {
    metric.encode_counter::<NoLabelSet, u64, f64>(&value, None)
}

fn histogram(mut metric: MetricEncoder<'_>, histogram: &Histogram) -> fmt::Result {
    let bound = |bound: Option<Duration>| bound.map_or(f64::INFINITY, |bound| bound.as_secs_f64());
    let buckets: Vec<(f64, u64)> = histogram.buckets().map(|(upper, count)| (bound(upper), count)).collect();
    metric.encode_histogram::<NoLabelSet>(histogram.sum().as_secs_f64(), histogram.count(), &buckets, None)
}

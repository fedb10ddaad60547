//! The demo on a screen: rates from the last two reports of each member, redrawn in place on a
//! terminal.
use super::report::{Final, Latency, MemberReport, SubgroupDeliveries, ViewDeliveries};
use crate::quantity::short;
use serde_json::{Value, json};
use std::time::Duration;

/// The rows of all members.
#[derive(Debug)]
pub(super) struct MemberTable {
    title: String,
    length: Duration,
    rows: Vec<MemberRow>,
    /// Events of the group, shown below the rows.
    notes: Vec<String>,
}

#[derive(Debug, Default)]
struct MemberRow {
    pid: u32,
    /// The fate of a member that is gone.
    fate: Option<&'static str>,
    before: MemberReport,
    now: MemberReport,
    /// True if a report came since the last drawing.
    fresh: bool,
}

/// The values of a row.
#[derive(Clone, Copy, Debug, Default)]
struct RowRates {
    messages: f64,
    bytes: f64,
    sent: f64,
    send_batch: f64,
    receive_batch: f64,
    delivery_batch: f64,
    nulls: f64,
    lag: u64,
    latency: Latency,
}

impl MemberTable {
    pub(super) fn new(title: String, pids: Vec<u32>, length: Duration) -> MemberTable {
        let rows = pids.into_iter().map(|pid| MemberRow { pid, ..MemberRow::default() });
        MemberTable { title, length, rows: rows.collect(), notes: vec![] }
    }

    /// Adds a row for one more member.
    pub(super) fn add(&mut self, pid: u32) {
        self.rows.push(MemberRow { pid, ..MemberRow::default() });
    }

    /// Marks the member in this row as gone.
    pub(super) fn lose(&mut self, slot: usize, fate: &'static str) {
        self.rows[slot].fate = Some(fate);
    }

    /// Adds a note about an event.
    pub(super) fn remark(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Sets the time from which the member in this row counts.
    pub(super) fn start(&mut self, slot: usize, at_ns: u64) {
        self.rows[slot].now.at_ns = at_ns;
    }

    pub(super) fn note(&mut self, slot: usize, report: MemberReport) {
        let row = &mut self.rows[slot];
        row.before = std::mem::replace(&mut row.now, report);
        row.fresh = true;
    }

    /// Returns true if every member has reported since the last drawing.
    pub(super) fn is_fresh(&self) -> bool {
        self.rows.iter().filter(|row| row.fate.is_none()).all(|row| row.fresh)
    }

    pub(super) fn seen(&mut self) {
        self.rows.iter_mut().for_each(|row| row.fresh = false);
    }

    /// Returns the lines of the whole table.
    pub(super) fn lines(&self, elapsed: Duration) -> Vec<String> {
        let (elapsed, length) = (elapsed.as_secs_f64(), self.length.as_secs());
        let mut lines = vec![format!("{}   {elapsed:.1} of {length} s", self.title), String::new()];
        lines.push("                                  mean batches                        latency".to_string());
        lines.push(row([
            "",
            "process",
            "deliv/s",
            "bandwidth",
            "send",
            "recv",
            "deliv",
            "nulls/s",
            "lag",
            "p50",
            "p99",
        ]));
        for (i, (row, rates)) in self.rows.iter().zip(self.rates()).enumerate() {
            let id = (i + 1).to_string();
            lines.push(match row.fate {
                None => rates.line(&id, &row.pid.to_string()),
                Some(fate) => format!("{id:>3} {:>7} {fate:>8}", row.pid),
            });
        }
        lines.push(self.total().line("all", ""));
        lines.extend(self.notes.iter().cloned());
        lines
    }

    /// Returns one line for all members.
    pub(super) fn summary(&self, elapsed: Duration) -> String {
        let all = self.total();
        let (elapsed, rate, bytes) = (elapsed.as_secs_f64(), short(all.messages), short(all.bytes));
        let rate = rate.trim_end();
        let (p50, p99) = (time(all.latency.p50_ns), time(all.latency.p99_ns));
        let (nulls, lag, batch) = (short(all.nulls), all.lag, all.delivery_batch);
        let nulls = nulls.trim_end();
        format!(
            "{elapsed:6.1} s  {rate} deliveries/s  {bytes}B/s  p50 {p50}  p99 {p99}  batch {batch:.1}  {nulls} nulls/s  lag {lag}"
        )
    }

    pub(super) fn json(&self, elapsed: Duration) -> Value {
        let members = self.rows.iter().zip(self.rates()).zip(1..).filter(|((row, _), _)| row.fate.is_none());
        let members = members.map(|((row, rates), id): (_, u64)| {
            json!({
                "member": id,
                "pid": row.pid,
                "messages_per_second": rates.messages,
                "bytes_per_second": rates.bytes,
                "sent_per_second": rates.sent,
                "send_batch": rates.send_batch,
                "receive_batch": rates.receive_batch,
                "delivery_batch": rates.delivery_batch,
                "nulls_per_second": rates.nulls,
                "lag": rates.lag,
                "latency": rates.latency,
            })
        });
        let members: Vec<Value> = members.collect();
        json!({"event": "interval", "elapsed_s": elapsed.as_secs_f64(), "members": members})
    }

    fn rates(&self) -> Vec<RowRates> {
        let here = || self.rows.iter().filter(|row| row.fate.is_none());
        let all = self.rows.iter().zip(1u64..).map(|(row, id)| {
            if row.fate.is_some() {
                return RowRates::default();
            }
            // A member that lags may not know it, but the others do.
            let lag = here().flat_map(|row| &row.now.lag).filter(|(of, _)| *of == id).map(|(_, lag)| lag).max();
            RowRates { lag: lag.copied().unwrap_or(0), ..RowRates::between(&row.before, &row.now) }
        });
        all.collect()
    }

    /// Returns sums of rates, means of batches, and the worst of lag and latency.
    fn total(&self) -> RowRates {
        let rates = self.rates();
        let sum = |of: fn(&RowRates) -> f64| rates.iter().map(of).sum::<f64>();
        let mean =
            |of: fn(&RowRates) -> f64| ratio(sum(of), rates.iter().filter(|rates| of(rates) > 0.0).count() as f64);
        let worst = |of: fn(&RowRates) -> u64| rates.iter().map(of).max().unwrap_or(0);
        RowRates {
            messages: sum(|r| r.messages),
            bytes: sum(|r| r.bytes),
            sent: sum(|r| r.sent),
            send_batch: mean(|r| r.send_batch),
            receive_batch: mean(|r| r.receive_batch),
            delivery_batch: mean(|r| r.delivery_batch),
            nulls: sum(|r| r.nulls),
            lag: worst(|r| r.lag),
            latency: Latency {
                samples: rates.iter().map(|r| r.latency.samples).sum(),
                p50_ns: worst(|r| r.latency.p50_ns),
                p99_ns: worst(|r| r.latency.p99_ns),
                p999_ns: worst(|r| r.latency.p999_ns),
                max_ns: worst(|r| r.latency.max_ns),
            },
        }
    }
}

impl RowRates {
    fn between(before: &MemberReport, now: &MemberReport) -> RowRates {
        if before.at_ns == 0 || now.at_ns <= before.at_ns {
            return RowRates::default();
        }
        let seconds = (now.at_ns - before.at_ns) as f64 / 1e9;
        let more = |of: fn(&MemberReport) -> u64| of(now).saturating_sub(of(before)) as f64;
        RowRates {
            messages: more(|r| r.delivered) / seconds,
            bytes: more(|r| r.delivered_bytes) / seconds,
            sent: more(|r| r.sent) / seconds,
            send_batch: ratio(more(|r| r.announced), more(|r| r.send_batches)),
            receive_batch: ratio(more(|r| r.received), more(|r| r.receive_batches)),
            delivery_batch: ratio(more(|r| r.delivered), more(|r| r.delivery_batches)),
            nulls: more(|r| r.nulls) / seconds,
            lag: 0,
            latency: now.latency,
        }
    }

    fn line(&self, member: &str, process: &str) -> String {
        row([
            member,
            process,
            short(self.messages).trim_end(),
            &(short(self.bytes) + "B/s"),
            &batch(self.send_batch),
            &batch(self.receive_batch),
            &batch(self.delivery_batch),
            short(self.nulls).trim_end(),
            &self.lag.to_string(),
            &time(self.latency.p50_ns),
            &time(self.latency.p99_ns),
        ])
    }
}

/// Formats a row of the table: 79 columns.
fn row(cells: [&str; 11]) -> String {
    let [member, process, messages, bytes, send, receive, deliver, nulls, lag, p50, p99] = cells;
    format!(
        "{member:>3} {process:>7} {messages:>8} {bytes:>9} {send:>5} {receive:>5} {deliver:>5} {nulls:>7} {lag:>6} {p50:>7} {p99:>7}"
    )
}

/// Returns lines with the members' results and ids.
pub(super) fn final_lines(finals: &[(u64, Final)]) -> Vec<String> {
    let mut lines = vec![String::new()];
    let head = ["p50", "p99", "p99.9", "max"].map(|name| format!(" {name:>9}")).concat();
    lines.push(format!("{:>6}  {:>13} {:>14}  {:<16} {head}", "member", "sent", "delivered", "digest"));
    for (id, done) in finals {
        let MemberReport { sent, delivered, latency, .. } = &done.totals;
        let streams: Vec<(String, &SubgroupDeliveries)> =
            done.views.iter().flat_map(|view| named(view, done.views.len())).collect();
        let times =
            [latency.p50_ns, latency.p99_ns, latency.p999_ns, latency.max_ns].map(|ns| format!(" {:>9}", time(ns)));
        let times = times.concat();
        // A single stream is part of the member's own line.
        if let [(_, stream)] = streams.as_slice() {
            lines.push(format!("{id:>6}  {sent:>13} {delivered:>14}  {} {times}", stream.digest));
            continue;
        }
        lines.push(format!("{id:>6}  {sent:>13} {delivered:>14}  {:<16} {times}", ""));
        for (name, stream) in streams.iter().take(STREAMS_SHOWN) {
            lines.push(format!("{:>6}  {name:>13} {:>14}  {}", "", stream.delivered, stream.digest));
        }
        if streams.len() > STREAMS_SHOWN {
            lines.push(format!("{:>37}  and {} more", "", streams.len() - STREAMS_SHOWN));
        }
    }
    lines.push(String::new());
    lines
}

fn named(delivered: &ViewDeliveries, views: usize) -> impl Iterator<Item = (String, &SubgroupDeliveries)> {
    let (view, several) = (delivered.view, delivered.subgroups.len() > 1);
    delivered.subgroups.iter().map(move |stream| match (views > 1, several) {
        (true, true) => (format!("view {view} {}", stream.name), stream),
        (true, false) => (format!("view {view}"), stream),
        (false, _) => (stream.name.clone(), stream),
    })
}

/// Number of digests shown for each member. All digests are compared.
const STREAMS_SHOWN: usize = 6;

fn ratio(part: f64, of: f64) -> f64 {
    if of > 0.0 { part / of } else { 0.0 }
}

/// Formats the mean size of batches in five columns.
fn batch(mean: f64) -> String {
    if mean < 999.95 { format!("{mean:.1}") } else { short(mean.round()).replace(' ', "") }
}

/// Formats a time with three significant digits.
pub(super) fn time(ns: u64) -> String {
    match ns as f64 {
        0.0 => "-".to_string(),
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e5 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e6 => format!("{:.0} µs", ns / 1e3),
        ns if ns < 1e8 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(at_s: u64, delivered: u64) -> MemberReport {
        let (sent, send_batches, delivery_batches) = (delivered / 2, 10, delivered / 10);
        let at_ns = at_s * 1_000_000_000;
        let lag = [(1, 3), (2, 0)].into();
        MemberReport {
            at_ns,
            delivered,
            sent,
            announced: sent,
            send_batches,
            delivery_batches,
            lag,
            ..MemberReport::default()
        }
    }

    #[test]
    fn rates_are_those_between_the_last_two_reports() {
        let mut table = MemberTable::new("title".into(), vec![11, 12], Duration::from_secs(5));
        assert!(!table.is_fresh());
        table.note(0, report(1, 1000));
        assert_eq!(table.rates()[0].messages, 0.0, "one report makes no rate");
        table.note(0, report(3, 5000));
        table.note(1, report(3, 4000));
        assert!(table.is_fresh());
        let rates = table.rates();
        assert_eq!((rates[0].messages, rates[0].sent, rates[0].delivery_batch), (2000.0, 1000.0, 10.0));
        assert_eq!((rates[0].lag, rates[1].lag), (3, 0));
        let lines = table.lines(Duration::from_secs(1));
        assert_eq!(lines.len(), 7);
        assert!(lines.iter().all(|line| line.chars().count() < 80), "{lines:#?}");
        assert_eq!(table.json(Duration::from_secs(1))["members"][0]["messages_per_second"], 2000.0);
        table.lose(0, "killed");
        table.add(13);
        assert!(!table.is_fresh(), "the new one has not reported");
        table.note(2, report(4, 10));
        assert!(table.is_fresh(), "the lost one is not waited for");
        assert_eq!(table.json(Duration::from_secs(1))["members"].as_array().unwrap().len(), 2);
        assert_eq!(table.lines(Duration::from_secs(1))[4], "  1      11   killed");
    }

    #[test]
    fn times_keep_three_figures() {
        let all = [(0, "-"), (999, "999 ns"), (12_345, "12.3 µs"), (123_456, "123 µs"), (9_999_999, "10.0 ms")];
        for (ns, text) in all {
            assert_eq!(time(ns), text);
        }
    }
}

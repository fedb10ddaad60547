//! `spindle dds hz` and `spindle dds bw`: the rate and the bytes of the samples of a topic.
use super::domain::DomainArgs;
use super::echo::{next, reader};
use super::output::{count, line};
use crate::exit::CliResult;
use crate::quantity::{self, short};
use serde_json::{Value, json};
use spindle_dds::DynamicSample;
use std::time::{Duration, Instant};

/// Arguments of `spindle dds hz` and `spindle dds bw`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic
    topic: String,

    /// End after so long, instead of at Ctrl-C
    #[arg(long, value_name = "TIME", value_parser = quantity::seconds)]
    duration: Option<Duration>,

    /// The longest wait for the topic
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = quantity::seconds)]
    timeout: Duration,

    /// Print one JSON object a second, and one at the end.
    ///
    /// "event" ("second" or "summary"), "seconds", "samples", "hz", "interval_ms" ({min, mean, max} or null),
    /// "bytes", "bytes_per_second", "sample_bytes" ({min, mean, max} or null). Samples that only change a state
    /// don't count.
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    domain: DomainArgs,
}

/// The quantity that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    Rate,
    Bytes,
}

/// The time between two lines.
const EVERY: Duration = Duration::from_secs(1);

pub(super) fn run(args: &Args, measure: Measure) -> CliResult {
    let name = if measure == Measure::Rate { "spindle dds hz" } else { "spindle dds bw" };
    args.domain.visit(args.json, name, |session| {
        let Some(reader) = reader(session, &args.topic, Some(args.timeout))? else { return Ok(()) };
        let print = |event: &str, figures: &Figures, since: Instant| {
            let seconds = since.elapsed().as_secs_f64();
            match args.json {
                true => line(figures.to_json(event, seconds)),
                false => line(format_args!("{}{}", head(event), figures.to_text(measure, seconds))),
            }
        };
        let (start, mut total) = (Instant::now(), Figures::default());
        let (mut since, mut second) = (start, Figures::default());
        let is_over = || args.duration.is_some_and(|duration| start.elapsed() >= duration);
        while !session.is_stopped() && !is_over() {
            for sample in next(&reader)? {
                second.add(&sample, total.last);
                total.add(&sample, total.last);
            }
            if since.elapsed() >= EVERY {
                print("second", &second, since)?;
                (since, second) = (Instant::now(), Figures::default());
            }
        }
        print("summary", &total, start)
    })
}

fn head(event: &str) -> &'static str {
    if event == "summary" { "all: " } else { "" }
}

/// The smallest, the largest and the sum of some values.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    count: u64,
    min: f64,
    max: f64,
    sum: f64,
}

impl Spread {
    fn add(&mut self, value: f64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.sum += value;
        self.count += 1;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }

    fn to_json(self) -> Value {
        match self.count {
            0 => Value::Null,
            _ => json!({"min": rounded(self.min), "mean": rounded(self.mean()), "max": rounded(self.max)}),
        }
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The samples of a time.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    bytes: Spread,
    intervals_ms: Spread,
    /// When the last sample became visible here, in ns since 1970.
    last: Option<i64>,
}

impl Figures {
    /// Counts a sample. `before` is the time of the one before it.
    fn add(&mut self, sample: &DynamicSample, before: Option<i64>) {
        let Some(bytes) = sample.bytes() else { return };
        let at = sample.info().reception_timestamp.as_nanos();
        self.bytes.add(bytes.len() as f64);
        if let Some(before) = before {
            self.intervals_ms.add(at.saturating_sub(before) as f64 / 1e6);
        }
        self.last = Some(at);
    }

    fn to_text(self, measure: Measure, seconds: f64) -> String {
        let (samples, seconds) = (self.bytes.count, seconds.max(1e-9));
        let what = count(usize::try_from(samples).unwrap_or(usize::MAX), "sample");
        match (measure, samples) {
            (_, 0) => format!("no samples in {seconds:.1} s"),
            (Measure::Rate, _) => {
                let Spread { min, max, .. } = self.intervals_ms;
                let mean = self.intervals_ms.mean();
                let hz = samples as f64 / seconds;
                format!("{what} in {seconds:.1} s, {hz:.1} Hz; interval {mean:.2} ms, {min:.2} to {max:.2} ms")
            }
            (Measure::Bytes, _) => {
                let Spread { min, max, sum, .. } = self.bytes;
                let (rate, mean) = (short(sum / seconds), self.bytes.mean());
                format!("{what} in {seconds:.1} s, {rate}B/s; {mean:.0} B each, {min:.0} to {max:.0} B")
            }
        }
    }

    fn to_json(self, event: &str, seconds: f64) -> Value {
        let samples = self.bytes.count;
        json!({
            "event": event,
            "seconds": rounded(seconds),
            "samples": samples,
            "hz": rounded(samples as f64 / seconds.max(1e-9)),
            "interval_ms": self.intervals_ms.to_json(),
            "bytes": self.bytes.sum,
            "bytes_per_second": rounded(self.bytes.sum / seconds.max(1e-9)),
            "sample_bytes": self.bytes.to_json(),
        })
    }
}

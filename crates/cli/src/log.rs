//! Events of the library on the standard error, as `-v` or `$SPINDLE_LOG` selects them: one line
//! each.
//!
//! Without either nothing is printed, warnings and errors included, because the command itself
//! prints all that its user has to know.
use crate::calendar::Utc;
use crate::exit::{CliError, CliResult, USAGE};
use crate::settings::LOG_VARIABLE;
use crate::{lines, settings};
use clap::{ArgAction, Args};
use serde_json::{Map, Value, json};
use std::fmt::{self, Write};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, Registry};

/// The targets of the library's events.
const TARGETS: [&str; 9] = [
    "spindle::view",
    "spindle::bootstrap",
    "spindle::net",
    "spindle::rendezvous",
    "spindle::state",
    "spindle::object",
    "spindle::handler",
    "spindle::lag",
    "spindle::dds",
];
const FILTERS: &str = "a filter is a level (error, warn, info, debug, trace, off), or TARGET=LEVEL with commas between, \
                       such as info,spindle::net=trace";

/// The flags that choose which events of the library are printed.
#[derive(Clone, Debug, Args)]
pub(crate) struct Verbosity {
    /// Print the library's events on the standard error: views, suspicions and connections; -vv:
    /// decisions too; -vvv: each control message
    ///
    /// One line an event, with the time (UTC); with --json, if the command has it, one JSON object,
    /// whose "event" is "log". $SPINDLE_LOG takes precedence: it is a filter such as
    /// warn,spindle::view=debug. Targets are spindle::view, spindle::bootstrap, spindle::net,
    /// spindle::rendezvous, spindle::state, spindle::object, spindle::handler, spindle::lag and
    /// spindle::dds.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
}

/// The number of `-v` that is passed on to other processes of this command.
static HANDED_ON: AtomicU8 = AtomicU8::new(0);

impl Verbosity {
    /// Starts to print events, as `$SPINDLE_LOG` or, without it, these flags select them. Call this
    /// once.
    pub(crate) fn begin(&self, json: bool) -> CliResult {
        HANDED_ON.store(self.verbose, Ordering::Relaxed);
        let text = settings::log_filter().map_or_else(|| Ok(self.filter()), |filter| filter.map(Some))?;
        let Some(text) = text else { return Ok(()) };
        let filter = parse(&text).map_err(|why| CliError::new(USAGE, format_args!("{LOG_VARIABLE}={text}: {why}")))?;
        let subscriber = Registry::default().with(filter).with(Lines { json });
        tracing::subscriber::set_global_default(subscriber).map_err(anyhow::Error::from)?;
        Ok(())
    }

    fn filter(&self) -> Option<String> {
        let level = match self.verbose {
            0 => return None,
            1 => "info",
            2 => "debug",
            _ => "trace",
        };
        Some(format!("spindle={level}"))
    }
}

/// Lets another process of this command print as much. That process inherits the variable.
pub(crate) fn hand_on(command: &mut Command) {
    for _ in 0..HANDED_ON.load(Ordering::Relaxed) {
        command.arg("-v");
    }
}

/// Parses a filter that lets some event of the library pass, or none because it is `off`.
fn parse(text: &str) -> Result<EnvFilter, String> {
    // Brackets contain spans and fields, which only the parser understands.
    for directive in text.split(',').filter(|directive| !text.contains('[') && !directive.trim().is_empty()) {
        let name = directive.split('=').next().unwrap_or_default().trim();
        let is_level = name.parse::<LevelFilter>().is_ok();
        if !is_level && !TARGETS.iter().any(|target| target.starts_with(name)) {
            let targets = TARGETS.join(", ");
            return Err(format!("{name:?} is no level, and no event has it as its target ({targets}); {FILTERS}"));
        }
    }
    // The parser accepts no blanks.
    let text = text.split(',').map(str::trim).collect::<Vec<_>>().join(",");
    EnvFilter::builder().parse(text).map_err(|error| format!("{error}; {FILTERS}"))
}

/// Writes each event as a line.
struct Lines {
    json: bool,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut fields = Fields::default();
        event.record(&mut fields);
        match self.json {
            true => lines::tell(fields.to_json(event.metadata(), since)),
            false => lines::tell(fields.to_text(event.metadata(), since)),
        }
    }
}

/// The message of an event, and its other fields in their order.
#[derive(Default)]
struct Fields {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => self.fields.push((name, value)),
        }
    }

    fn to_text(&self, metadata: &Metadata<'_>, since: Duration) -> String {
        let mut line = format!("{} {:<5} {}: {}", Utc(since), metadata.level(), metadata.target(), self.message);
        for (name, value) in &self.fields {
            let _ = write!(line, " {name}={}", Plain(value));
        }
        line
    }

    fn to_json(&self, metadata: &Metadata<'_>, since: Duration) -> Value {
        let level = metadata.level().as_str().to_lowercase();
        let mut object = Map::new();
        object.insert("event".into(), "log".into());
        object.insert("time".into(), Utc(since).to_string().into());
        object.insert("level".into(), level.into());
        object.insert("target".into(), metadata.target().into());
        object.insert("message".into(), self.message.as_str().into());
        // The fields are in an object of their own, so that none has the name of a key above.
        let fields: Map<String, Value> =
            self.fields.iter().map(|(name, value)| ((*name).to_string(), value.clone())).collect();
        object.insert("fields".into(), fields.into());
        Value::Object(object)
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        // The value is rounded to microseconds, because measured times are in ms.
        self.put(field, json!((value * 1000.0).round() / 1000.0));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
}

/// A value in the form for people, on one line.
struct Plain<'a>(&'a Value);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) if text.contains(char::is_control) => write!(f, "{text:?}"),
            // A text without quotes has a visible end if it is one word, or has its own brackets.
            Value::String(text) if !text.contains(' ') || text.ends_with([']', ')', '}']) => f.write_str(text),
            Value::String(text) => write!(f, "\"{text}\""),
            other => other.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_by_which_nothing_could_pass_are_wrong() {
        for good in ["info", "WARN", "spindle", "spindle=debug", "off", "error,spindle::net=trace, spindle::view=debug"]
        {
            parse(good).unwrap();
        }
        for bad in
            ["verbose", "view=debug", "spindle=loud", "spindle::views", "info,spindel=debug", "spindle::net[=info"]
        {
            let why = parse(bad).unwrap_err();
            assert!(why.contains("TARGET=LEVEL"), "{bad}: {why}");
        }
    }

    #[test]
    fn a_value_is_on_one_line_and_shows_where_it_ends() {
        let shown = |text: &str| Plain(&text.into()).to_string();
        assert_eq!(shown("[1, 2]"), "[1, 2]");
        assert_eq!(shown("silence"), "silence");
        assert_eq!(shown("no route to host"), "\"no route to host\"");
        assert_eq!(shown("two\nlines\u{1b}[2J"), "\"two\\nlines\\u{1b}[2J\"");
    }
}

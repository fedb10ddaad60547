//! The phases of a change of the view, from the library's events: the time at which a member last
//! reached each of them.
use crate::clock::now_ns;
use anyhow::Context as _;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// The phases, and the first words of the events that end them. One more phase ends with the next
/// delivery, which is no event.
const PHASES: [(&str, &[&str]); 5] = [
    ("the process is suspected, or known to be dead", &["suspected", "member is dead"]),
    ("a ballot is promised", &["ballot promised"]),
    ("the next view is decided", &["next view decided"]),
    ("the rest of the view is delivered", &["view ended"]),
    ("the next view begins", &["view begins"]),
];

/// Returns the names of all phases.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PHASES.iter().map(|(name, _)| *name).chain(["a message of it is delivered"])
}

/// The times of the events, on the clock of all processes; 0: no event since the last change.
static MOMENTS: [AtomicU64; PHASES.len()] = [const { AtomicU64::new(0) }; PHASES.len()];

/// Subscribes to the library's events from now on.
pub(super) fn listen() -> anyhow::Result<()> {
    let subscriber = Registry::default().with(EnvFilter::new("spindle::view=debug")).with(PhaseListener);
    tracing::subscriber::set_global_default(subscriber).context("events are printed, and can't be timed, too")
}

/// Returns the end of each phase since the last call; empty if no event was received.
pub(super) fn take() -> Vec<u64> {
    let moments: Vec<u64> = MOMENTS.iter().map(|moment| moment.swap(0, Ordering::Relaxed)).collect();
    if moments.iter().all(|moment| *moment == 0) { vec![] } else { moments }
}

struct PhaseListener;

impl<S: Subscriber> Layer<S> for PhaseListener {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = DecodedEvent(String::new());
        event.record(&mut message);
        let phase = PHASES.iter().position(|(_, ends)| ends.contains(&message.0.as_str()));
        if let Some(phase) = phase {
            let now = now_ns();
            // Phase 0, the end of a process, keeps its first event. Later phases keep the last
            // one, because a ballot may be promised after another.
            let _ = match phase {
                0 => MOMENTS[0].compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed),
                _ => Ok(MOMENTS[phase].swap(now, Ordering::Relaxed)),
            };
        }
    }
}

struct DecodedEvent(String);

impl Visit for DecodedEvent {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

//! The progress of work on a file or a log, on the standard error: a bar on a terminal, a line now and then
//! elsewhere, nothing with `--json`.
use crate::quantity::short;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// Shortest time between two lines.
const LINE_EVERY: Duration = Duration::from_secs(1);
const BAR_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct ProgressLine {
    name: String,
    total: u64,
    begun: Instant,
    /// The bar; `None`: progress is printed as lines.
    bar: Option<ProgressBar>,
    silent: bool,
    told: Option<Instant>,
    bytes: u64,
}

impl ProgressLine {
    /// Returns the progress of work on `total` bytes.
    pub(crate) fn new(name: &str, total: u64, json: bool) -> ProgressLine {
        let bar = (!json && stderr().is_terminal()).then(|| {
            let form = "{msg} [{bar:30}] {percent} %, {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
            // The template is valid. If it were not, the bar would use its default.
            let style = ProgressStyle::with_template(form).unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(total).with_style(style.progress_chars("=> ")).with_message(name.to_string())
        });
        ProgressLine { name: name.to_string(), total, begun: Instant::now(), bar, silent: json, told: None, bytes: 0 }
    }

    /// Shows the number of complete bytes. `bytes` returns it, and is called only if progress is
    /// printed now.
    pub(crate) fn show(&mut self, bytes: impl FnOnce() -> u64) {
        let every = if self.bar.is_some() { BAR_EVERY } else { LINE_EVERY };
        if self.silent || self.told.unwrap_or(self.begun).elapsed() < every {
            return;
        }
        self.told = Some(Instant::now());
        let bytes = bytes();
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        } else if bytes != self.bytes {
            let percent = bytes.saturating_mul(100) / self.total.max(1);
            eprintln!("{}: {percent} %, {}B of {}B", self.name, short(bytes as f64), short(self.total as f64));
        }
        self.bytes = bytes;
    }

    /// Prints a line that stays on the terminal.
    pub(crate) fn line(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

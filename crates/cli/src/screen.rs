//! The standard output: drawn over in place on a terminal, lines below each other elsewhere.
use rustix::termios::tcgetwinsize;
use std::fmt::Write as _;
use std::io::{self, Write, stdout};

/// The standard output, as a terminal or not.
#[derive(Debug)]
pub(crate) struct Screen {
    live: bool,
    /// Lines of the last drawing, above which the next one starts.
    drawn: usize,
}

impl Screen {
    pub(crate) fn new(live: bool) -> Screen {
        Screen { live, drawn: 0 }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// Prints a line below everything else.
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        self.drawn = 0;
        writeln!(stdout().lock(), "{line}")
    }

    /// Draws over the last drawing, cut to the terminal: a line that wraps would never be drawn over.
    pub(crate) fn redraw(&mut self, lines: &[String]) -> io::Result<()> {
        let size = tcgetwinsize(stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 1);
        let (columns, rows) = size.map_or((80, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        let lines = &lines[..lines.len().min(rows - 1)];
        let mut text = String::new();
        if self.drawn > 0 {
            let _ = write!(text, "\x1b[{}A", self.drawn);
        }
        for line in lines {
            let _ = write!(text, "\r{}\x1b[K\n", line.chars().take(columns).collect::<String>());
        }
        // What is left of a longer drawing.
        text.push_str("\x1b[J");
        self.drawn = lines.len();
        let mut out = stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Whatever comes next stands below.
    pub(crate) fn leave(&mut self) {
        self.drawn = 0;
    }
}

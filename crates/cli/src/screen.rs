//! The standard output: redrawn in place on a terminal, one line below the other elsewhere.
use rustix::termios::tcgetwinsize;
use std::fmt::Write as _;
use std::io::{self, Write, stdout};

/// The standard output, and whether it is a terminal.
#[derive(Debug)]
pub(crate) struct Screen {
    live: bool,
    /// Lines of the last drawing. The next drawing starts above them.
    drawn: usize,
}

impl Screen {
    pub(crate) fn new(live: bool) -> Screen {
        Screen { live, drawn: 0 }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// Prints a line below all other output.
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        self.drawn = 0;
        writeln!(stdout().lock(), "{line}")
    }

    /// Draws over the last drawing. Lines are cut to the terminal, because a wrapped line would
    /// never be overdrawn.
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
        // This clears the rest of a longer drawing.
        text.push_str("\x1b[J");
        self.drawn = lines.len();
        let mut out = stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Ends drawing, so that further output appears below.
    pub(crate) fn leave(&mut self) {
        self.drawn = 0;
    }
}

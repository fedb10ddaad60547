//! Tables for people.
use std::io::{self, Write};

/// Rows of cells; the first column is aligned to the left, the others to the right.
#[derive(Debug, Default)]
pub(super) struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    pub(super) fn new(heads: &[&str]) -> TextTable {
        TextTable { rows: vec![heads.iter().map(ToString::to_string).collect()] }
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |i: usize| self.rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|i| width(i).unwrap_or(0)).collect();
        for row in &self.rows {
            let cells = row.iter().enumerate().map(|(i, cell)| match i {
                0 => format!("{cell:<width$}", width = widths[i]),
                _ => format!("{cell:>width$}", width = widths[i]),
            });
            writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// Formats a number with three significant digits and k, M or G.
pub(super) fn short(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 999.5e6 => (v / 1e9, " G"),
        v if v >= 999.5e3 => (v / 1e6, " M"),
        v if v >= 999.5 => (v / 1e3, " k"),
        v => (v, ""),
    };
    let digits = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let short = [0.0, 0.5, 12.34, 123.4, 999.7, 1234.0, 57e6, 21e9].map(short);
        assert_eq!(short, ["0.00", "0.50", "12.3", "123", "1.00 k", "1.23 k", "57.0 M", "21.0 G"]);
    }

    #[test]
    fn columns_line_up() {
        let mut table = TextTable::new(&["a", "b"]);
        table.row(vec!["long".into(), "1".into()]);
        table.row(vec!["x".into(), "100".into()]);
        let mut out = Vec::new();
        table.print(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a       b\nlong    1\nx     100\n");
    }
}

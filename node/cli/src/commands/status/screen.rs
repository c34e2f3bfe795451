//! A page that takes the place of the one before it.

use std::io;

use console::{Term, truncate_str};

/// The terminal, and how much of it the last page took.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: Term,
    lines: usize,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self { terminal: Term::buffered_stdout(), lines: 0 }
    }

    /// Draws a page over the last one. What does not fit is cut: what scrolls away can't be drawn over.
    pub(super) fn draw(&mut self, page: &str) -> io::Result<()> {
        let (rows, columns) = self.terminal.size();
        self.terminal.clear_last_lines(self.lines)?;
        self.lines = 0;
        for line in fit(page, rows.into(), columns.into()) {
            self.terminal.write_line(&line)?;
            self.lines += 1;
        }
        self.terminal.flush()
    }
}

/// As much of a page as a terminal of this size has room for, with the cursor below it.
fn fit(page: &str, rows: usize, columns: usize) -> Vec<String> {
    let line = |line: &str| truncate_str(line, columns.saturating_sub(1), "").into_owned();
    page.lines().take(rows.saturating_sub(1)).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_never_scrolls() {
        let page = "x".repeat(100) + "\n" + &"y\n".repeat(100);
        let fitted = fit(&page, 24, 80);
        assert_eq!((fitted.len(), fitted[0].len(), fitted[1].as_str()), (23, 79, "y"));
        assert!(fit(&page, 0, 0).is_empty());
    }
}

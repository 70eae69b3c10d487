//! Tables: columns aligned by the width of what is in them, two spaces between.

/// A table with a heading. Cells hold no line breaks: they are shown as spaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

/// What an empty cell shows, so that columns stay countable.
const EMPTY: &str = "-";

impl Table {
    /// A table with these column headings.
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self {
            rows: vec![headings.iter().map(ToString::to_string).collect()],
        }
    }

    /// Adds a row, with as many cells as there are headings.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows
            .push(cells.into_iter().map(|cell| tidy(&cell)).collect());
    }

    /// Whether there is nothing below the heading.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The text, each line with a newline.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                let padding = width - cell.chars().count() + 2;
                line.extend(std::iter::repeat_n(' ', padding));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// The cell on one line, without what a terminal would act on.
fn tidy(cell: &str) -> String {
    if cell.is_empty() {
        return EMPTY.to_owned();
    }
    cell.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_line_up_and_lines_have_no_trailing_space() {
        let mut table = Table::new(&["NAME", "STATE", "SINCE"]);
        assert!(table.is_empty());
        table.row(["é".to_owned(), "a\nb\u{1b}".to_owned(), String::new()]);
        table.row(["longer-name".to_owned(), "x".to_owned(), "5m".to_owned()]);
        assert!(!table.is_empty());
        assert_eq!(
            table.render(),
            "NAME         STATE  SINCE\né            a b    -\nlonger-name  x      5m\n"
        );
    }
}

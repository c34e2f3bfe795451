//! Tables for people, without lines between columns, which would take the room of figures.

use comfy_table::presets::{ASCII_HORIZONTAL_ONLY, UTF8_HORIZONTAL_ONLY};
use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent};

/// The least that terminals have.
pub const COLUMNS: u16 = 80;

/// A table within [`COLUMNS`]. Figures line up on the right, the columns `texts` on the left.
pub fn table<const N: usize>(head: [&str; N], rows: Vec<[String; N]>, texts: &[usize], is_ascii: bool) -> String {
    let mut table = unwrapped(head, rows, texts, is_ascii);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(COLUMNS);
    table.to_string()
}

/// The same as wide as it is, a line per row: for pipes and files, which have no edge to wrap at.
pub fn wide_table<const N: usize>(head: [&str; N], rows: Vec<[String; N]>, texts: &[usize], is_ascii: bool) -> String {
    unwrapped(head, rows, texts, is_ascii).to_string()
}

fn unwrapped<const N: usize>(head: [&str; N], rows: Vec<[String; N]>, texts: &[usize], is_ascii: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(if is_ascii { ASCII_HORIZONTAL_ONLY } else { UTF8_HORIZONTAL_ONLY });
    // Rows are told apart without lines, too.
    for part in [
        TableComponent::HorizontalLines,
        TableComponent::MiddleIntersections,
        TableComponent::LeftBorderIntersections,
        TableComponent::RightBorderIntersections,
    ] {
        table.remove_style(part);
    }
    table.set_content_arrangement(ContentArrangement::Disabled).set_header(head);
    table.add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, u16::from(at + 1 < N)));
        if !texts.contains(&at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

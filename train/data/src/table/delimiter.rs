//! How what stands between the cells of a table is found, and what it separates read.

use std::io::Read;

use ::csv::{ByteRecord, ReaderBuilder};
use starling_run::Delimiter;
use starling_run::data::columns::is_gap;

use crate::table::lines::Lines;

/// Rows that are looked at to find out what separates cells.
const MAX_ROWS: usize = 100;

/// A reader of the rows of `text`.
pub(crate) fn rows<'t>(delimiter: Delimiter, text: impl Read + 't) -> ::csv::Reader<Box<dyn Read + 't>> {
    let byte = byte(delimiter);
    let text: Box<dyn Read + 't> = Box::new(Lines::new(text, byte, delimiter == Delimiter::Space));
    ReaderBuilder::new().has_headers(false).flexible(true).delimiter(byte).from_reader(text)
}

/// A reader of rows that were made, by [`push`](super::row_text::push).
pub(crate) fn made<'t>(text: Box<dyn Read + 't>) -> ::csv::Reader<Box<dyn Read + 't>> {
    ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text)
}

/// The byte that it is.
pub(crate) fn byte(delimiter: Delimiter) -> u8 {
    match delimiter {
        Delimiter::Comma => b',',
        Delimiter::Tab => b'\t',
        Delimiter::Semicolon => b';',
        Delimiter::Pipe => b'|',
        Delimiter::Space => b' ',
    }
}

/// What separates the cells of the table that begins with `start`, which may be cut off: what gives all rows equally
/// many cells, two at least; of several such, what makes most of them numbers or gaps.
pub(crate) fn found(start: &[u8], is_whole: bool) -> Delimiter {
    let fit = |delimiter| Fit::of(delimiter, start, is_whole);
    let (mut best, by_tabs) = ((Delimiter::Comma, fit(Delimiter::Comma)), fit(Delimiter::Tab));
    for candidate in &Delimiter::ALL[1..] {
        let found = fit(*candidate);
        // Where each row has as many tabs, those behind each other have empty cells between them: as one, they would move the others.
        let moves_cells = *candidate == Delimiter::Space && by_tabs.is_even && found.columns <= by_tabs.columns;
        if found > best.1 && !moves_cells {
            best = (*candidate, found);
        }
    }
    best.0
}

/// Whether tabs that lie behind each other, or at the ends of a line, are taken as one, or as none, in the table that begins so.
pub(crate) fn merges_tabs(delimiter: Delimiter, start: &[u8]) -> bool {
    let are_several =
        |pair: &[u8]| [b"\t\t", b"\n\t", b"\r\t", b"\t\n", b"\t\r"].iter().any(|several| pair == *several);
    delimiter == Delimiter::Space && (start.starts_with(b"\t") || start.windows(2).any(are_several))
}

/// How well a delimiter fits; what comes first counts most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Fit {
    /// Whether all rows have equally many cells, two at least.
    is_even: bool,
    /// Whether the first row has two cells at least.
    splits: bool,
    /// Thousandths of the cells that are numbers, or none. The first row may have names.
    numbers: usize,
    columns: usize,
}

impl Fit {
    fn of(delimiter: Delimiter, start: &[u8], is_whole: bool) -> Self {
        let mut rows: Vec<ByteRecord> =
            rows(delimiter, start).into_byte_records().map_while(Result::ok).take(MAX_ROWS + 1).collect();
        if rows.len() > 1 && (!is_whole || rows.len() > MAX_ROWS) {
            // It may be a part of a row.
            rows.pop();
        }
        let columns = rows.first().map_or(0, ByteRecord::len);
        let cells = || rows.iter().skip(usize::from(rows.len() > 1)).flat_map(ByteRecord::iter);
        let numbers = cells().filter(|cell| is_number(cell, delimiter) || is_no_number(cell)).count();
        Self {
            is_even: columns > 1 && rows.iter().all(|row| row.len() == columns),
            splits: columns > 1,
            numbers: (numbers * 1000).checked_div(cells().count()).unwrap_or(0),
            columns,
        }
    }
}

/// Whether a cell is a number, if need be with a decimal comma: it tells that commas separate nothing.
fn is_number(cell: &[u8], delimiter: Delimiter) -> bool {
    let Ok(cell) = std::str::from_utf8(cell) else { return false };
    let is_number = |text: &str| text.trim().parse::<f64>().is_ok();
    is_number(cell) || (delimiter != Delimiter::Comma && has_decimal_comma(cell))
}

/// Whether there is no number in a cell where others may have one.
fn is_no_number(cell: &[u8]) -> bool {
    std::str::from_utf8(cell).is_ok_and(|cell| is_gap(cell.trim()))
}

/// Whether a cell would be a number if its comma were a point.
pub(crate) fn has_decimal_comma(cell: &str) -> bool {
    cell.matches(',').count() == 1 && cell.trim().replace(',', ".").parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(text: &str) -> Delimiter {
        found(text.as_bytes(), true)
    }

    fn cells(delimiter: Delimiter, text: &str) -> Vec<Vec<String>> {
        let row = |row: Result<ByteRecord, _>| {
            row.expect("in memory").iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect()
        };
        rows(delimiter, text.as_bytes()).into_byte_records().map(row).collect()
    }

    #[test]
    fn each_delimiter_is_found_and_has_a_name() {
        for delimiter in Delimiter::ALL {
            let between = match delimiter {
                Delimiter::Comma => ",",
                Delimiter::Tab => "\t",
                Delimiter::Semicolon => ";",
                Delimiter::Pipe => "|",
                Delimiter::Space => "  ",
            };
            let text = "a,b,kind\n1,2.5,x\n3,-4e2,y\n".replace(',', between);
            assert_eq!(found_in(&text), delimiter, "{text}");
            assert_eq!(cells(delimiter, &text)[2], ["3", "-4e2", "y"]);
            assert_eq!(delimiter.name().parse(), Ok(delimiter));
        }
        assert!("dot".parse::<Delimiter>().is_err_and(|error| error.contains("comma, tab, semicolon")));
    }

    #[test]
    fn what_stands_in_cells_separates_nothing() {
        for (text, expected) in [
            // Quoted, in a header, in names of classes, behind commas, as decimal commas.
            ("\"a;b\",\"c;d\"\n1,x\n2,y\n", Delimiter::Comma),
            ("\"a,b\";\"c,d\"\n1;x\n2;y\n", Delimiter::Semicolon),
            ("sepal length,sepal width,class\n5,3,x\n4,2,y\n", Delimiter::Comma),
            ("1\t2\tIris setosa\n3\t4\tIris virginica\n", Delimiter::Tab),
            ("1|2|Doe, Jane\n3|4|Doe, John\n", Delimiter::Pipe),
            ("1, 2, 0\n3, 4, 1\n", Delimiter::Comma),
            ("1,5;2,5;a\n3,5;4,5;b\n", Delimiter::Semicolon),
            // Several tabs in a row, as some programs align columns.
            ("1\t\t2\t0\n3\t4\t1\n", Delimiter::Space),
            ("1 2\t0\n3 4\t1\n", Delimiter::Space),
            // But as many in each: there are empty cells, wherever they are.
            ("1\t\t2\t0\n3\t4\t\t1\n", Delimiter::Tab),
            ("\t2\t3\n1\t\t3\n1\t2\t\n", Delimiter::Tab),
            ("1;;2;0\n;3,5;4;1\n", Delimiter::Semicolon),
            // A row that is too short is an error to be told, not a sign of other delimiters.
            ("1,2,0\n3,4\n", Delimiter::Comma),
            ("1;2;0\n3;4\n", Delimiter::Semicolon),
            ("1\n2\n", Delimiter::Comma),
            ("", Delimiter::Comma),
        ] {
            assert_eq!(found_in(text), expected, "{text}");
        }
    }

    #[test]
    fn tabs_that_are_taken_as_one_are_seen() {
        for text in ["1\t\t2\n3\t4\n", "\t1\t2\n", "1 2\n\t3\t4\n", "1\t2\t\r\n3\t4\r\n"] {
            assert!(merges_tabs(Delimiter::Space, text.as_bytes()), "{text:?}");
            assert!(!merges_tabs(Delimiter::Tab, text.as_bytes()), "{text:?}");
        }
        assert!(!merges_tabs(Delimiter::Space, b"1  2\n3\t4\n"));
    }

    #[test]
    fn a_row_that_is_cut_off_does_not_count() {
        let text = "1;2;0\n3;4;1\n5;6";
        assert_eq!(found(text.as_bytes(), false), Delimiter::Semicolon);
        let fit = |is_whole| Fit::of(Delimiter::Semicolon, text.as_bytes(), is_whole).is_even;
        assert!(fit(false) && !fit(true));
        // Nor does a quote that is still open.
        let text = format!("1\t2\tx\n3\t4\t\"{}", "a,b\n".repeat(9));
        assert_eq!(found(text.as_bytes(), false), Delimiter::Tab);
    }

    #[test]
    fn blanks_are_taken_as_one_but_between_quotes() {
        let text = "  1   2\t \"a  b\"  \n3 4 c\r\n";
        assert_eq!(cells(Delimiter::Space, text), [vec!["1", "2", "a  b"], vec!["3", "4", "c"]]);
    }
}

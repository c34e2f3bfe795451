//! The columns of a table, and how the cells of each become features.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::shorten;

/// Categories that a message names.
const MAX_SHOWN: usize = 5;

/// A column of a table other than the label's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// What it is called; empty without a header.
    pub name: String,
    /// How its cells become features.
    pub coding: ColumnKind,
}

/// How the cells of a column become features.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnKind {
    /// A number is one feature. A [gap](is_gap) counts as the mean of those to train on.
    Number,
    /// As [`Self::Number`], and a second feature is 1 where there is a gap and 0 elsewhere: there were some.
    Gaps,
    /// One feature for each of these texts, in the order of their bytes: 1 for what the cell holds, 0 for the others (one-hot). An
    /// empty cell is a text like others.
    Category(Vec<String>),
    /// None: its user left it out.
    Ignored,
}

impl ColumnKind {
    /// How many features it gives.
    pub fn width(&self) -> usize {
        match self {
            Self::Number => 1,
            Self::Gaps => 2,
            Self::Category(texts) => texts.len(),
            Self::Ignored => 0,
        }
    }

    /// Whether the texts of a category are in order, each once.
    pub fn is_canonical(&self) -> bool {
        match self {
            Self::Category(texts) => !texts.is_empty() && texts.is_sorted_by(|a, b| a < b),
            Self::Number | Self::Gaps | Self::Ignored => true,
        }
    }

    /// Appends the features of `cell`, before scaling: a gap among numbers is NaN.
    ///
    /// # Errors
    /// Why there are none, as a sentence.
    pub fn encode(&self, cell: &str, features: &mut Vec<f64>) -> Result<(), CellError> {
        let number = || match is_gap(cell) {
            true => Ok(f64::NAN),
            false => cell.parse().ok().filter(|number: &f64| number.is_finite()).ok_or(CellError::Number),
        };
        match self {
            Self::Number => features.push(number()?),
            Self::Gaps => features.extend([number()?, f64::from(u8::from(is_gap(cell)))]),
            Self::Category(texts) => {
                let at = texts.binary_search_by(|text| text.as_str().cmp(cell)).map_err(|_| CellError::Category)?;
                let first = features.len();
                features.resize(first + texts.len(), 0.0);
                features[first + at] = 1.0;
            }
            Self::Ignored => {}
        }
        Ok(())
    }
}

impl fmt::Display for ColumnKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number => f.write_str("a number"),
            Self::Gaps => f.write_str("a number, or empty"),
            Self::Category(texts) => {
                let shown: Vec<String> = texts.iter().take(MAX_SHOWN).map(|text| shorten(text)).collect();
                let more = if texts.len() > MAX_SHOWN { ", ..." } else { "" };
                write!(f, "one of {}: {}{more}", texts.len(), shown.join(", "))
            }
            Self::Ignored => f.write_str("left out"),
        }
    }
}

/// Why a cell has no features.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellError {
    /// It is no finite number.
    Number,
    /// It is none of the column's texts.
    Category,
}

/// Whether a cell among numbers says that there is none: it is empty, `?`, or in any case `NA`, `N/A`, `NaN`, `null` or `none`.
pub fn is_gap(cell: &str) -> bool {
    cell.is_empty()
        || cell == "?"
        || ["na", "n/a", "nan", "null", "none"].iter().any(|gap| cell.eq_ignore_ascii_case(gap))
}

/// What the features of these columns are called, in their order.
pub fn feature_names(columns: &[Column]) -> Vec<String> {
    let names = columns.iter().flat_map(|Column { name, coding }| match coding {
        ColumnKind::Number => vec![name.clone()],
        ColumnKind::Gaps => vec![name.clone(), format!("{name} is empty")],
        ColumnKind::Category(texts) => texts.iter().map(|text| format!("{name} = {text}")).collect(),
        ColumnKind::Ignored => Vec::new(),
    });
    names.collect()
}

/// For each feature of these columns, whether it is a number as it was measured, and so is scaled; the others are 0 or 1.
pub fn measured(columns: &[Column]) -> Vec<bool> {
    let measured = columns.iter().flat_map(|column| match &column.coding {
        ColumnKind::Number => vec![true],
        ColumnKind::Gaps => vec![true, false],
        ColumnKind::Category(texts) => vec![false; texts.len()],
        ColumnKind::Ignored => Vec::new(),
    });
    measured.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, coding: ColumnKind) -> Column {
        Column { name: name.to_owned(), coding }
    }

    #[test]
    fn each_cell_has_the_features_of_its_column() {
        let texts = ["", "blue", "red"].map(ToOwned::to_owned).to_vec();
        let columns = [
            column("age", ColumnKind::Gaps),
            column("id", ColumnKind::Ignored),
            column("color", ColumnKind::Category(texts)),
            column("height", ColumnKind::Number),
        ];
        assert_eq!(
            feature_names(&columns),
            ["age", "age is empty", "color = ", "color = blue", "color = red", "height"]
        );
        assert_eq!(measured(&columns), [true, false, false, false, false, true]);
        let encode = |cells: [&str; 4]| {
            let mut features = Vec::new();
            let coded = columns.iter().zip(cells).try_for_each(|(it, cell)| it.coding.encode(cell, &mut features));
            coded.map(|()| features)
        };
        assert_eq!(encode(["2.5", "x", "red", "-1e3"]), Ok(vec![2.5, 0.0, 0.0, 0.0, 1.0, -1000.0]));
        let gaps = encode(["na", "", "", "?"]).expect("gaps");
        assert!(gaps[0].is_nan() && gaps[5].is_nan() && gaps[1..5] == [1.0, 1.0, 0.0, 0.0], "{gaps:?}");
        assert_eq!(encode(["2.5", "", "green", "1"]), Err(CellError::Category));
        assert_eq!(encode(["two", "", "red", "1"]), Err(CellError::Number));
        assert_eq!(encode(["inf", "", "red", "1"]), Err(CellError::Number));
        assert_eq!(columns.iter().map(|it| it.coding.width()).sum::<usize>(), 6);
    }

    #[test]
    fn what_stands_for_a_gap_is_no_number() {
        for gap in ["", "?", "NA", "n/a", "NaN", "nan", "NULL", "None"] {
            assert!(is_gap(gap), "{gap}");
        }
        for cell in ["0", "-", "x", "nano", "inf"] {
            assert!(!is_gap(cell), "{cell}");
        }
    }

    #[test]
    fn texts_come_in_order_each_once() {
        let category = |texts: &[&str]| ColumnKind::Category(texts.iter().map(|&text| text.to_owned()).collect());
        assert!(category(&["a", "b"]).is_canonical() && ColumnKind::Ignored.is_canonical());
        assert!(!category(&["b", "a"]).is_canonical() && !category(&["a", "a"]).is_canonical());
        assert!(!category(&[]).is_canonical());
    }
}

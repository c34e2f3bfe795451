//! On which side each row of a table is, trained on or held out, where a column says it.

use std::sync::Arc;

use ::csv::ByteRecord;

use crate::error::DataError;
use crate::samples::labels::by_digits;
use crate::table::rows::Rows;

/// What the texts of such a column are where they say the side itself.
const TRAINED_ON: [&str; 2] = ["train", "training"];
const HELD_OUT: [&str; 11] =
    ["test", "testing", "val", "valid", "validation", "dev", "eval", "held_out", "held-out", "holdout", "hold-out"];
/// In what is noted of a row: that its text is one of the first, or one of the others. Else, where it lies among a thousand.
const SAYS_TRAINED_ON: u16 = 1 << 10;
const SAYS_HELD_OUT: u16 = 1 << 11;

/// The column by which rows are held out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sides {
    pub(crate) column: usize,
    /// In thousandths, which share.
    pub(crate) permille: u32,
    pub(crate) seed: u64,
}

impl Sides {
    /// What is to be noted of a row.
    ///
    /// # Errors
    /// If there is nothing in its cell, or no text.
    pub(crate) fn note(&self, rows: &Rows, record: &ByteRecord) -> Result<u16, DataError> {
        let cell = rows.cell(record, self.column)?;
        if cell.is_empty() {
            let reason =
                "it is empty, but says which rows stay together (--split-by); fill it in, or leave the row out";
            return Err(rows.fault(record, Some(self.column), reason.to_owned()));
        }
        let lower = cell.to_ascii_lowercase();
        let says = match &*lower {
            word if TRAINED_ON.contains(&word) => SAYS_TRAINED_ON,
            word if HELD_OUT.contains(&word) => SAYS_HELD_OUT,
            _ => 0,
        };
        Ok(says | self.thousandth(cell))
    }

    /// Whether a text of which this was noted says the side itself. Those of all rows of a table do, or none.
    pub(crate) fn says(noted: u16) -> bool {
        noted & (SAYS_TRAINED_ON | SAYS_HELD_OUT) != 0
    }

    /// Whether a row of which this was noted is held out.
    pub(crate) fn is_held_out(&self, noted: u16) -> bool {
        match Self::says(noted) {
            true => noted & SAYS_HELD_OUT != 0,
            false => u32::from(noted) < self.permille,
        }
    }

    /// Where a text lies among a thousand: those below the share are held out. A number does by its value: other programs may have written it otherwise.
    fn thousandth(&self, text: &str) -> u16 {
        let text = by_digits(text);
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"starling held-out group").update(&self.seed.to_le_bytes()).update(text.as_bytes());
        let mut number = [0; 8];
        number.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        (u64::from_le_bytes(number) % 1000) as u16
    }

    /// The rows that are held out of all, of which this was noted.
    ///
    /// # Errors
    /// If none is left to train on, or none is held out although some should be, or only some texts say a side, as a sentence.
    pub(crate) fn held_out(&self, noted: &[u16]) -> Result<Arc<[u32]>, String> {
        let other = noted.iter().position(|noted| !Self::says(*noted));
        let are_said = other.is_none();
        let is_said = noted.iter().any(|noted| Self::says(*noted));
        if let Some(other) = other.filter(|_| is_said) {
            return Err(format!(
                "the column of --split-by says of some rows whether they are to train on or held out, and not of sample {other} (counted from 0); write one of {} or {} there, or leave the row out",
                TRAINED_ON.join(", "),
                HELD_OUT.join(", "),
            ));
        }
        let is_held_out = |noted: &u16| self.is_held_out(*noted);
        let rows: Arc<[u32]> = (0..).zip(noted).filter(|(_, noted)| is_held_out(noted)).map(|(row, _)| row).collect();
        let few = if are_said { "says so of no row" } else { "has few different texts" };
        match rows.len() {
            all if all == noted.len() => {
                Err(format!("--split-by leaves no row to train on: its column {few}; take another one"))
            }
            0 if self.permille > 0 || are_said => Err(format!(
                "--split-by holds no row out: its column {few}; take another one, or another --held-out or --seed"
            )),
            _ => Ok(rows),
        }
    }
}

//! What a table says of its rows besides features and labels: how much they count, and which of them a run held out.

use ::csv::ByteRecord;

use crate::table::rows::Rows;
use crate::table::survey::sides::Sides;

/// By what a run weighed and split the rows of its table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowSpec {
    /// The column of the run's table, from 0, that said how much each row counts.
    pub weights: Option<u32>,
    /// The column by which rows were held out.
    pub split_by: Option<SplitSpec>,
    /// How many rows at its end were held out, because a file of their own had them.
    pub held_out_last: Option<u64>,
}

/// How a column says which rows are held out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitSpec {
    /// The column of the run's table, from 0.
    pub column: u32,
    /// How its texts do.
    pub sides: SidePolicy,
}

/// How texts say on which side their rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SidePolicy {
    /// They are words for the sides.
    Said,
    /// They are drawn.
    Drawn {
        /// In thousandths, which share is held out.
        permille: u32,
        /// By which seed.
        seed: u64,
    },
}

impl SplitSpec {
    /// The same, to be asked; the column is found elsewhere.
    pub(super) fn sides(&self, column: usize) -> Sides {
        let (permille, seed) = match self.sides {
            SidePolicy::Said => (0, 0),
            SidePolicy::Drawn { permille, seed } => (permille, seed),
        };
        Sides { column, permille, seed }
    }
}

/// What a row says of itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RowRecord {
    /// How much it counts; `None` if nothing says it, or what is no weight.
    pub weight: Option<f32>,
    /// Of the text that says its side, what [`Sides`] notes.
    pub(super) side: Option<u16>,
}

impl RowRecord {
    /// Whether the run that splits rows so has held it out; `None` if nothing says it, or its text does in another way than those of the run's
    /// rows.
    pub fn is_held_out(&self, split: &SplitSpec) -> Option<bool> {
        let is_same = self.says_side() == Some(split.sides == SidePolicy::Said);
        self.side.filter(|_| is_same).map(|side| split.sides(0).is_held_out(side))
    }

    /// Whether its text is a word for a side, as those of all rows are, or of none; `None` if it has no text.
    pub fn says_side(&self) -> Option<bool> {
        self.side.map(Sides::says)
    }
}

/// Where the columns are in the table that is read.
#[derive(Debug, Clone, Default)]
pub(super) struct RowRecords {
    weights: Option<usize>,
    sides: Option<Sides>,
}

impl RowRecords {
    /// Of columns of which `place` says where they are, if they are there.
    pub(super) fn new(spec: &RowSpec, place: impl Fn(u32) -> Option<usize>) -> Self {
        let sides = spec.split_by.and_then(|split| Some(split.sides(place(split.column)?)));
        Self { weights: spec.weights.and_then(place), sides }
    }

    /// What a row says; `None` if the table has none of these columns.
    pub(super) fn of(&self, rows: &Rows, record: &ByteRecord) -> Option<RowRecord> {
        let note = RowRecord {
            weight: self.weights.and_then(|column| rows.weight(record, column).ok()),
            side: self.sides.as_ref().and_then(|sides| sides.note(rows, record).ok()),
        };
        (self.weights.is_some() || self.sides.is_some()).then_some(note)
    }

    /// Whether they say of rows on which side they are.
    pub(super) fn have_sides(&self) -> bool {
        self.sides.is_some()
    }
}

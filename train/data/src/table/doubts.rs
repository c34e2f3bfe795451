//! Signs that a table was not meant as it was read, each with the flag that mends it.

use crate::shorten;

/// With at most so many classes, it does not matter how few samples they have.
const FEW_CLASSES: usize = 10;
/// With more classes, labels are looked at twice if a class has fewer samples, on average.
const SAMPLES_OF_MANY: usize = 10;
/// From here on they are classes by the hundred,
pub(crate) const HUNDREDS: usize = 100;
/// of which each should have so many samples, on average.
const SAMPLES_OF_HUNDREDS: usize = 100;
/// Names that a sentence has room for.
const MAX_NAMES: usize = 3;
/// A row of at least so many numbers 0, 1, 2 and so on is a header, whatever the labels are.
const COUNTING_COLUMNS: usize = 5;

/// A table as it was read.
pub(crate) struct Understood<'a> {
    /// The label's column.
    pub(crate) label: usize,
    /// Whether the user named it.
    pub(crate) is_label_said: bool,
    /// The columns' names; empty without a header.
    pub(crate) names: &'a [String],
    /// The first column that gives features.
    pub(crate) first_taken: usize,
    /// The first row, if it was taken for a sample and nobody said that it is one.
    pub(crate) first: Option<&'a [String]>,
    /// The first row, if it was taken for names, nobody said that it has them, and nothing below it is a number that tells, or a
    /// cell of it is a word for a gap.
    pub(crate) taken_for_names: Option<&'a [String]>,
    /// How many rows have nothing but whole numbers as features, each larger than the one before.
    pub(crate) rising_rows: u64,
    /// The features of the first row, and how many different values the first feature has, if they may be classes; none if there are
    /// features that are no numbers as they are written.
    pub(crate) first_row: &'a [f64],
    pub(crate) distinct: Option<usize>,
    pub(crate) rows: u64,
    /// The class of the first row.
    pub(crate) first_class: u32,
    pub(crate) classes: &'a [String],
    /// How many samples each class has.
    pub(crate) counts: &'a [u64],
}

impl Understood<'_> {
    /// All doubts, as sentences, and apart from them those about labels as classes.
    pub(crate) fn doubts(&self) -> [Vec<String>; 2] {
        let shown = |first: &[String]| {
            let row = first.iter().map(|cell| shorten(cell)).take(6).collect::<Vec<_>>().join(",");
            let more = if first.len() > 6 { ",..." } else { "" };
            format!("the first row, `{row}{more}`,")
        };
        let header = self.first.filter(|first| self.is_header_like(first)).map(|first| {
            format!(
                "{} looks like the columns' names, but was read as a sample: pass --header if it has the names, --no-header if it is a \
                 sample",
                shown(first)
            )
        });
        let names = self.taken_for_names.map(|first| {
            format!(
                "{} was taken for the columns' names: pass --no-header if it is a sample, --header if it has the names",
                shown(first)
            )
        });
        let header = header.or(names);
        let own = header.as_ref().and_then(|_| self.own_class());
        let labels = self.label_doubt().or_else(|| self.lonely_classes(own));
        [header, labels].map(|doubt| doubt.into_iter().collect())
    }

    /// The class of the first row, if it has no other row.
    fn own_class(&self) -> Option<usize> {
        let class = self.first_class as usize;
        (self.counts[class] == 1).then_some(class)
    }

    fn is_header_like(&self, first: &[String]) -> bool {
        let rows = self.rows;
        let numbers: Vec<Option<f64>> = first.iter().map(|cell| cell.parse().ok()).collect();
        let counts_up = |from: f64| (0..).zip(&numbers).all(|(at, number)| *number == Some(from + f64::from(at)));
        if first.len() >= COUNTING_COLUMNS && self.rising_rows * 10 <= rows && [0.0, 1.0].into_iter().any(counts_up) {
            return true;
        }
        let Some(own) = self.own_class() else { return false };
        let is_number = |name: &String| name.parse::<f64>().is_ok();
        // A name among numbers is no label.
        let is_name = !is_number(&self.classes[own])
            && self.classes.iter().enumerate().all(|(class, name)| class == own || is_number(name));
        is_name && rows > 2 || is_rising(self.first_row) && self.rising_rows * 10 <= rows
    }

    /// Whether the labels look like a measurement.
    fn label_doubt(&self) -> Option<String> {
        let (rows, classes) = (self.rows, self.classes.len());
        let has_fewer = |samples: usize| rows < (classes * samples) as u64;
        let are_many = classes > FEW_CLASSES && has_fewer(SAMPLES_OF_MANY);
        let are_hundreds = classes > HUNDREDS && has_fewer(SAMPLES_OF_HUNDREDS);
        if !are_many && !are_hundreds {
            return None;
        }
        let told = format!(
            "the label, {}, has {classes} different values in {rows} rows, and each is learned as a class of its own: if it is \
             a measurement, take --model regression, which learns numbers, or name the column of the classes with --label",
            column(self.names, self.label)
        );
        let at = self.first_taken;
        let first = self.distinct_in_first().filter(|_| !self.is_label_said && at < self.label);
        let Some(distinct) = first else { return Some(told) };
        let is_alone = |name: &&String| self.names.iter().filter(|other| other == name).count() == 1;
        let flag = self.names.get(at).filter(is_alone).cloned().unwrap_or_else(|| at.to_string());
        Some(format!("{told}; {} has only {distinct} values: --label {}", column(self.names, at), quoted(&flag)))
    }

    /// How many different values the first column with features has, if they may be classes: few whole numbers.
    fn distinct_in_first(&self) -> Option<usize> {
        self.distinct.filter(|distinct| *distinct > 1 && (distinct * 10) as u64 <= self.rows)
    }

    /// Classes with one sample, but for one that is accounted for.
    fn lonely_classes(&self, but: Option<usize>) -> Option<String> {
        let lonely: Vec<usize> =
            (0..self.classes.len()).filter(|class| self.counts[*class] == 1 && Some(*class) != but).collect();
        let names: Vec<String> =
            lonely.iter().take(MAX_NAMES).map(|class| format!("`{}`", shorten(&self.classes[*class]))).collect();
        let names = names.join(", ");
        let (told, rows) = match lonely.len() {
            0 => return None,
            1 => (format!("the class {names} has a single sample"), "its row"),
            few if few <= MAX_NAMES => (format!("the classes {names} have a single sample each"), "their rows"),
            many => (format!("{many} classes, as {names}, have a single sample each"), "their rows"),
        };
        Some(format!(
            "{told}, which is either trained on or held out: leave {rows} out, or, if {} does not hold the classes, name the \
             column that does with --label",
            column(self.names, self.label)
        ))
    }
}

/// Whether all are whole numbers, each larger than the one before.
pub(crate) fn is_rising(numbers: &[f64]) -> bool {
    numbers.len() > 1 && numbers.iter().all(|number| number.fract() == 0.0) && numbers.is_sorted_by(|a, b| a < b)
}

/// A column for messages: its index, and its name if it has one.
pub(crate) fn column(names: &[String], column: usize) -> String {
    match names.get(column) {
        Some(name) => format!("column {column} (`{}`)", shorten(name)),
        None => format!("column {column}"),
    }
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = !word.is_empty() && word.chars().all(|letter| letter.is_alphanumeric() || "._-+".contains(letter));
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

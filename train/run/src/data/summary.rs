//! What was understood of a data set, for its user.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Delimiter, TEXT, TOKENS};
use crate::manifest::MAX_CLASSES;

/// Classes whose samples are counted one by one for programs.
const MAX_COUNTED: usize = 100;
/// Classes that are all named in the sentence.
const MAX_NAMED: usize = 12;
/// Of a longer list, its beginning.
const MAX_NAMED_OF_MANY: usize = 5;

/// A class, and how many samples it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassSummary {
    /// What it is called; the start of a long name.
    pub name: String,
    /// Its samples, those held out included.
    pub samples: u64,
}

/// What was understood of a data set. Its `Display` is one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataSummary {
    /// Where it comes from.
    pub source: String,
    /// The name of its [`Kind`](super::Kind).
    pub kind: String,
    /// How many samples there are, those held out included.
    pub samples: u64,
    /// How many of them are kept from training.
    pub held_out: u64,
    /// How many features a sample has.
    pub features: u32,
    /// A sample as an image: channels, height, width.
    pub shape: [u32; 3],
    /// Of a table: the column that holds the labels, from 0.
    pub label: Option<u32>,
    /// What that column is called, if it has a name.
    pub label_name: Option<String>,
    /// Further columns of labels, by their names or numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_labels: Vec<String>,
    /// Of a table: whether the first row holds the columns' names.
    pub header: Option<bool>,
    /// Of a table: what separates its cells.
    pub delimiter: Option<Delimiter>,
    /// Of a table: the columns that hold categories, the first hundred.
    pub category_columns: Vec<String>,
    /// Of a table: how many columns of numbers have gaps.
    pub gap_columns: u32,
    /// Of a table: how many columns are left out.
    pub ignored_columns: u32,
    /// Of a table: the column that says how much each row counts, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
    /// Of a table: the column that says which rows are held out, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_by: Option<String>,
    /// Whether the labels are learned as numbers, which are no classes. It makes a difference to words alone.
    #[serde(skip)]
    pub are_numbers: bool,
    /// How many classes there are. 0: more different numbers than there may be classes.
    pub classes: u32,
    /// The first classes, with their samples.
    pub counts: Vec<ClassSummary>,
}

impl DataSummary {
    /// How many samples each of the first classes has.
    ///
    /// # Panics
    /// If a label has no name.
    pub fn count<'a>(names: &[String], labels: impl Iterator<Item = &'a u32>) -> Vec<u64> {
        let mut counts = vec![0; names.len()];
        labels.for_each(|label| counts[*label as usize] += 1);
        counts
    }

    /// The first classes, as they are told.
    pub fn told(names: &[String], counts: &[u64]) -> Vec<ClassSummary> {
        let told = names.iter().zip(counts).take(MAX_COUNTED);
        told.map(|(name, samples)| ClassSummary { name: shorten(name), samples: *samples }).collect()
    }

    fn classes(&self) -> String {
        let all = self.classes as usize;
        if !self.more_labels.is_empty() {
            return "numbers".to_owned();
        }
        if all == 0 {
            return format!("more than {MAX_CLASSES} different numbers");
        }
        let shown = if all > MAX_NAMED { MAX_NAMED_OF_MANY } else { all };
        let mut named: Vec<String> = self.counts.iter().take(shown).map(ToString::to_string).collect();
        if all > named.len() {
            named.push("...".to_owned());
        }
        let noun = if self.are_numbers { "label values" } else { "classes" };
        format!("{} {noun}: {}", self.classes, named.join(", "))
    }
}

impl fmt::Display for ClassSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A number beside a number needs marks.
        let is_number = self.name.parse::<f64>().is_ok();
        if is_number {
            write!(f, "`{}` {}", self.name, self.samples)
        } else {
            write!(f, "{} {}", self.name, self.samples)
        }
    }
}

impl fmt::Display for DataSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, samples, features, held_out, .. } = self;
        if self.kind == TEXT {
            return write!(f, "{source}: a text of {samples} windows of {features} bytes, {held_out} held out");
        }
        if self.kind == TOKENS {
            let classes = self.classes;
            return write!(
                f,
                "{source}: a text of {samples} windows of {features} tokens ({classes} different ones), {held_out} held out"
            );
        }
        if self.label.is_none() {
            let [channels, height, width] = self.shape;
            let depth = if channels == 1 { String::new() } else { format!("{channels}x") };
            return write!(
                f,
                "{source}: {samples} images of {depth}{height}x{width} ({}), {held_out} held out",
                self.classes()
            );
        }
        let noun = if *features == 1 { "feature" } else { "features" };
        let named = |names: &[String]| match names.len() {
            0..=MAX_NAMED => names.join(", "),
            _ => format!("{}, ...", names[..MAX_NAMED_OF_MANY].join(", ")),
        };
        let categories =
            (!self.category_columns.is_empty()).then(|| format!("categories: {}", named(&self.category_columns)));
        let counted = [(self.gap_columns, "with empty cells"), (self.ignored_columns, "left out")];
        let counted = counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| {
            let noun = if *count == 1 { "column" } else { "columns" };
            format!("{count} {noun} {what}")
        });
        let weights = self.weights.as_ref().map(|name| format!("weights: {name}"));
        let sides = self.split_by.as_ref().map(|name| format!("held out by: {name}"));
        let coded = counted.chain(weights).chain(sides).chain(categories).collect::<Vec<_>>().join(", ");
        let coded = if coded.is_empty() { coded } else { format!(" ({coded})") };
        write!(
            f,
            "{source}: {samples} rows, {features} {noun}{coded}, label column {}",
            self.label.unwrap_or_default()
        )?;
        if let Some(name) = &self.label_name {
            write!(f, " `{name}`")?;
        }
        if !self.more_labels.is_empty() {
            write!(f, " and {}", named(&self.more_labels))?;
        }
        let header = if self.header == Some(true) { "header found" } else { "no header" };
        write!(f, " ({}), {header}, {held_out} held out", self.classes())?;
        match self.delimiter {
            Some(Delimiter::Comma) | None => Ok(()),
            Some(delimiter) => write!(f, ", separated by {delimiter}"),
        }
    }
}

/// The start of a long text, on one line: a message is read by people.
pub fn shorten(text: &str) -> String {
    let (start, more) = match text.char_indices().nth(40) {
        Some((end, _)) => (&text[..end], "..."),
        None => (text, ""),
    };
    let shown = |letter: char| if letter.is_control() { ' ' } else { letter };
    start.chars().map(shown).chain(more.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> DataSummary {
        let counts = [("a", 59), ("b", 71), ("c", 48)];
        DataSummary {
            source: "table.csv".to_owned(),
            kind: "csv".to_owned(),
            samples: 178,
            held_out: 36,
            features: 13,
            shape: [1, 1, 13],
            label: Some(0),
            label_name: Some("cultivar".to_owned()),
            more_labels: Vec::new(),
            header: Some(true),
            delimiter: Some(Delimiter::Comma),
            category_columns: Vec::new(),
            gap_columns: 0,
            ignored_columns: 0,
            weights: None,
            split_by: None,
            are_numbers: false,
            classes: 3,
            counts: counts.map(|(name, samples)| ClassSummary { name: name.to_owned(), samples }).to_vec(),
        }
    }

    #[test]
    fn a_table_is_one_line() {
        assert_eq!(
            summary().to_string(),
            "table.csv: 178 rows, 13 features, label column 0 `cultivar` (3 classes: a 59, b 71, c 48), header found, 36 held out"
        );
        let bare = DataSummary {
            label_name: None,
            header: Some(false),
            delimiter: Some(Delimiter::Tab),
            features: 1,
            ..summary()
        };
        let line = bare.to_string();
        assert!(line.contains("1 feature, label column 0 (3 classes"), "{line}");
        assert!(line.ends_with("no header, 36 held out, separated by tab"), "{line}");
    }

    #[test]
    fn columns_that_are_no_plain_numbers_are_counted() {
        let category_columns = ["sex", "port"].map(ToOwned::to_owned).to_vec();
        let coded = DataSummary { category_columns, gap_columns: 1, ignored_columns: 3, ..summary() };
        let line = coded.to_string();
        let told = "13 features (1 column with empty cells, 3 columns left out, categories: sex, port), label column 0";
        assert!(line.contains(told), "{line}");
        let [weights, split_by] = ["counts", "user"].map(|name| Some(name.to_owned()));
        let line = DataSummary { weights, split_by, ..summary() }.to_string();
        assert!(line.contains("13 features (weights: counts, held out by: user), label column 0"), "{line}");
    }

    #[test]
    fn numbers_that_are_learned_as_such_are_no_classes() {
        let line = DataSummary { are_numbers: true, ..summary() }.to_string();
        assert!(line.contains("`cultivar` (3 label values: a 59"), "{line}");
    }

    #[test]
    fn long_lists_of_classes_are_cut() {
        let names: Vec<String> = (0..300).map(|class| class.to_string()).collect();
        let labels: Vec<u32> = (0..600).map(|sample| sample % 300).collect();
        let counts = DataSummary::count(&names, labels.iter());
        assert_eq!(counts, vec![2; 300]);
        let told = DataSummary { classes: 300, counts: DataSummary::told(&names, &counts), ..summary() };
        assert_eq!(told.counts.len(), MAX_COUNTED);
        let line = told.to_string();
        assert!(line.contains("300 classes: `0` 2, `1` 2, ") && line.contains("`4` 2, ...)"), "{line}");
    }

    #[test]
    fn texts_are_shown_on_one_line() {
        assert_eq!(shorten("two\nlines\u{1b}[2J"), "two lines [2J");
        assert_eq!(shorten(&"ä".repeat(41)), format!("{}...", "ä".repeat(40)));
        assert_eq!(shorten(&"ä".repeat(40)), "ä".repeat(40));
    }

    #[test]
    fn images_are_one_line() {
        let (kind, source) = ("digits".to_owned(), "digits".to_owned());
        let images = DataSummary { kind, source, shape: [1, 8, 8], label: None, ..summary() };
        assert_eq!(images.to_string(), "digits: 178 images of 8x8 (3 classes: a 59, b 71, c 48), 36 held out");
    }
}

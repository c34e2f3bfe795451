//! Labels as they are written, to class indices.

use std::borrow::Cow;
use std::collections::BTreeMap;

use starling_run::data::shorten;
use starling_run::manifest::MAX_CLASSES;

use crate::samples::raw::bits;

/// From here on, a number that has a fraction in other places tells whole numbers apart no longer.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Maps labels to indices into the sorted list of distinct ones: in numeric order if all are numbers (`3` and `3.0`, or `2.5` and `2.50`
/// are the same), else in the order of their bytes.
///
/// # Errors
/// Why the labels name no classes, as a sentence.
pub(crate) fn classify(labels: &[String]) -> Result<(Vec<u32>, Vec<String>), String> {
    classify_texts(labels, labels.len() as u64)
}

/// The same in the order of their bytes, if they are numbers, too.
///
/// # Errors
/// Those of [`classify`].
pub(crate) fn classify_names(names: &[String]) -> Result<(Vec<u32>, Vec<String>), String> {
    let (indices, distinct) = index(names);
    check(&distinct, names.len() as u64)?;
    Ok((indices, distinct))
}

/// The same of so many labels, of which these are written, each once at least.
fn classify_texts(labels: &[String], count: u64) -> Result<(Vec<u32>, Vec<String>), String> {
    let whole: Option<Vec<i64>> = labels.iter().map(|label| integer(label)).collect();
    let numbers = || {
        let numbers = labels.iter().map(|label| Some(in_order(bits(finite(label)?).cast_signed())));
        numbers.collect::<Option<Vec<i64>>>()
    };
    let (indices, names) = match whole {
        Some(whole) => {
            let (indices, names) = index(&whole);
            (indices, names.into_iter().map(|number| number.to_string()).collect::<Vec<_>>())
        }
        None => match numbers() {
            Some(numbers) => {
                let (indices, distinct) = index(&numbers);
                let name = |number: i64| written(f64::from_bits(in_order(number).cast_unsigned()));
                (indices, distinct.into_iter().map(name).collect())
            }
            None => index(labels),
        },
    };
    check(&names, count)?;
    Ok((indices, names))
}

/// Checks that classes can be learned which so many labels name, or numbers, if they are such.
fn check(names: &[String], count: u64) -> Result<(), String> {
    let is_number = |name: &String| name.parse().is_ok_and(f64::is_finite);
    match names.len() {
        1 => Err(format!("all {count} labels are `{}`; training needs at least two classes", shorten(&names[0]))),
        numbers if numbers > MAX_NUMBERS => Err(too_many()),
        classes if classes > MAX_CLASSES as usize && !names.iter().all(is_number) => {
            Err(format!("there are {classes} different labels, but at most {MAX_CLASSES} are possible"))
        }
        _ => Ok(()),
    }
}

/// Labels as they are written, each once, by the order in which they came, and how often each did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spellings {
    numbers: BTreeMap<String, u32>,
    counts: Vec<u64>,
    /// How many bytes they have.
    bytes: usize,
}

/// What labels stand for.
pub(crate) struct Classes {
    /// The class of each spelling.
    pub(crate) of_spellings: Vec<u32>,
    pub(crate) names: Vec<String>,
    /// How often each came.
    pub(crate) counts: Vec<u64>,
}

/// So many different numbers are told apart, and so many ways to write labels, which have so many bytes in all.
const MAX_NUMBERS: usize = 1 << 22;
const MAX_SPELLED_BYTES: usize = 128 << 20;

fn too_many() -> String {
    format!(
        "there are more than {MAX_NUMBERS} different labels, or they have more than {} MiB; round them to fewer digits, or name another column \
         (`--label`)",
        MAX_SPELLED_BYTES >> 20
    )
}

impl Spellings {
    /// The number of this label, which came once more.
    pub(crate) fn note(&mut self, label: &str) -> u32 {
        self.note_often(label, 1)
    }

    fn note_often(&mut self, label: &str, count: u64) -> u32 {
        let next = u32::try_from(self.counts.len()).expect("invariant: there are not so many");
        let number = match self.numbers.get(label) {
            Some(number) => *number,
            None => {
                self.bytes = self.bytes.saturating_add(label.len());
                self.counts.push(0);
                *self.numbers.entry(label.to_owned()).or_insert(next)
            }
        };
        self.counts[number as usize] += count;
        number
    }

    /// Adds labels that came behind these. Returns the number that each has here.
    ///
    /// # Errors
    /// If there are too many different ones, as a sentence.
    pub(crate) fn add(&mut self, others: &Self) -> Result<Vec<u32>, String> {
        let numbers = others.texts().into_iter().zip(&others.counts).map(|(text, count)| self.note_often(text, *count));
        let numbers = numbers.collect();
        if self.counts.len() > MAX_NUMBERS || self.bytes > MAX_SPELLED_BYTES {
            return Err(too_many());
        }
        Ok(numbers)
    }

    /// All of them.
    pub(crate) fn texts(&self) -> Vec<&str> {
        let mut texts = vec![""; self.counts.len()];
        for (text, number) in &self.numbers {
            texts[*number as usize] = text;
        }
        texts
    }

    /// The classes that they are; of rows with several labels, which combinations of these there are.
    ///
    /// # Errors
    /// Why they name no classes, as a sentence.
    pub(crate) fn classify(&self, columns: usize) -> Result<Classes, String> {
        let texts: Vec<String> = self.texts().into_iter().map(ToOwned::to_owned).collect();
        let (classes, names) = match columns {
            0 | 1 => classify_texts(&texts, self.counts.iter().sum())?,
            _ if texts.len() > MAX_NUMBERS => return Err(too_many()),
            _ => index(&texts),
        };
        let mut counts = vec![0; names.len()];
        classes.iter().zip(&self.counts).for_each(|(class, count)| counts[*class as usize] += count);
        Ok(Classes { of_spellings: classes, names, counts })
    }
}

/// The classes that a model knows, by the labels that stand for them.
#[derive(Debug, Clone)]
pub struct LabelTable {
    known: Known,
}

/// Their names, with their classes.
#[derive(Debug, Clone)]
enum Known {
    /// All are whole numbers.
    Whole(BTreeMap<i64, u32>),
    /// All are numbers, by their bits.
    Numbers(BTreeMap<u64, u32>),
    Texts(BTreeMap<String, u32>),
}

impl LabelTable {
    /// Of classes with these names, in their order.
    pub fn new(names: &[String]) -> Self {
        let named = || (0..).zip(names);
        let whole: Option<BTreeMap<_, _>> = named().map(|(class, name)| Some((name.parse().ok()?, class))).collect();
        // Folders of images may be called `1` and `01`.
        if let Some(whole) = whole.filter(|whole| whole.len() == names.len()) {
            return Self { known: Known::Whole(whole) };
        }
        let numbers: Option<BTreeMap<_, _>> = named().map(|(class, name)| Some((bits(finite(name)?), class))).collect();
        if let Some(numbers) = numbers.filter(|numbers| numbers.len() == names.len()) {
            return Self { known: Known::Numbers(numbers) };
        }
        Self { known: Known::Texts(named().map(|(class, name)| (name.clone(), class)).collect()) }
    }

    /// The class that a label stands for, as it was read for training: `3` and `3.0` are the same where all are numbers.
    /// `None` if there is no such class.
    pub fn class(&self, label: &str) -> Option<u32> {
        match &self.known {
            Known::Whole(whole) => whole.get(&integer(label)?).copied(),
            Known::Numbers(numbers) => numbers.get(&bits(finite(label)?)).copied(),
            Known::Texts(texts) => texts.get(label).copied(),
        }
    }
}

/// Each item's position among the distinct ones, and these in ascending order.
pub(crate) fn index<T: Ord + Clone>(items: &[T]) -> (Vec<u32>, Vec<T>) {
    let mut positions: BTreeMap<&T, u32> = items.iter().map(|item| (item, 0)).collect();
    for (next, position) in (0..).zip(positions.values_mut()) {
        *position = next;
    }
    (items.iter().map(|item| positions[item]).collect(), positions.into_keys().cloned().collect())
}

/// The label as a whole number, if it is one, also if it is written with a point.
fn integer(label: &str) -> Option<i64> {
    label.parse().ok().or_else(|| {
        let number: f64 = label.parse().ok()?;
        (number.fract() == 0.0 && number.abs() < MAX_WHOLE).then_some(number as i64)
    })
}

/// The number that a label is, if it is one.
fn finite(label: &str) -> Option<f64> {
    label.parse().ok().filter(|number: &f64| number.is_finite())
}

/// The bits of a number as one that is less where the number is. Of that one, the bits of the number again.
fn in_order(bits: i64) -> i64 {
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

/// How a number is written, however that was done where it was read.
fn written(number: f64) -> String {
    match number.fract() == 0.0 && number.abs() < MAX_WHOLE {
        true => (number as i64).to_string(),
        false => format!("{number:?}"),
    }
}

/// A number as [`written`]; what is none as it is.
pub(crate) fn by_value(text: &str) -> Cow<'_, str> {
    let value = finite(text).map(written).filter(|value| value != text);
    value.map_or_else(|| text.into(), Cow::from)
}

/// The same of a text that only has to be told from others: whole numbers keep all their digits.
pub(crate) fn by_digits(text: &str) -> Cow<'_, str> {
    let digits = text.parse::<i64>().ok().map(|number| number.to_string());
    digits.map_or_else(|| by_value(text), Cow::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(labels: &[&str]) -> Vec<String> {
        labels.iter().map(|label| (*label).to_owned()).collect()
    }

    #[test]
    fn whole_numbers_are_ordered_by_value_and_text_by_its_bytes() {
        let (indices, names) = classify(&labels(&["10", "9", "-1", "9.0"])).expect("classes");
        assert_eq!((indices, names), (vec![2, 1, 0, 1], labels(&["-1", "9", "10"])));
        // Measurements, which some models learn as numbers.
        let (indices, names) = classify(&labels(&["2.5", "1", "2.5"])).expect("labels");
        assert_eq!((indices, names), (vec![1, 0, 1], labels(&["1", "2.5"])));
        let (indices, names) = classify(&labels(&["10", "9", "cat"])).expect("classes");
        assert_eq!((indices, names), (vec![0, 1, 2], labels(&["10", "9", "cat"])));
        let (indices, names) = classify(&labels(&["10.5", "9", "-2.50", "1e-5", "9.0", "-2.5"])).expect("labels");
        assert_eq!((indices, names), (vec![3, 2, 0, 1, 2, 0], labels(&["-2.5", "1e-5", "9", "10.5"])));
    }

    /// Whatever wrote them.
    #[test]
    fn numbers_are_the_same_labels_however_they_are_written() {
        let of = |list: &[&str]| classify(&labels(list)).expect("labels");
        let first = of(&["0.00001", "2.5", "-0.0", "100000000000000000000.5"]);
        assert_eq!(of(&["1e-5", "2.50", "0", "1e20"]), first);
        assert_eq!(of(&["1e-05", "+2.5", "-0", "100000000000000000000"]), first);
        assert_eq!(first.1, labels(&["0", "1e-5", "2.5", "1e20"]));
        for (text, value, digits) in [
            ("2.50", "2.5", "2.5"),
            ("7.0", "7", "7"),
            ("007", "7", "7"),
            ("-0", "0", "0"),
            ("1e3", "1000", "1000"),
            ("9007199254740993", "9007199254740992.0", "9007199254740993"),
            ("nan", "nan", "nan"),
            ("u1", "u1", "u1"),
        ] {
            assert_eq!((&*by_value(text), &*by_digits(text)), (value, digits), "{text}");
        }
    }

    #[test]
    fn a_label_stands_for_the_class_that_training_gave_it() {
        for (written, others) in [
            (labels(&["10", "9", "-1", "9.0"]), ["8", "x", "9.5", ""]),
            (labels(&["10", "9", "cat", "9.0"]), ["8", "x", "9.00", ""]),
            (labels(&["10", "9.50", "-1e-5", "9.5"]), ["8", "x", "9.51", ""]),
        ] {
            let (indices, names) = classify(&written).expect("classes");
            let known = LabelTable::new(&names);
            let found: Vec<_> = written.iter().map(|label| known.class(label)).collect();
            assert_eq!(found, indices.into_iter().map(Some).collect::<Vec<_>>());
            assert!(others.iter().all(|other| known.class(other).is_none()), "{names:?}");
        }
    }

    #[test]
    fn labels_of_parts_are_those_of_the_whole() {
        let all = ["b", "1", "b", "1.0", "a", "b", "01"];
        for cut in 0..=all.len() {
            let part = |labels: &[&str]| {
                let mut part = Spellings::default();
                let numbers: Vec<u32> = labels.iter().map(|label| part.note(label)).collect();
                (part, numbers)
            };
            let ((mut first, mut numbers), (second, others)) = (part(&all[..cut]), part(&all[cut..]));
            let places = first.add(&second).expect("few");
            numbers.extend(others.iter().map(|number| places[*number as usize]));
            assert_eq!(
                (first.texts(), numbers),
                (vec!["b", "1", "1.0", "a", "01"], vec![0, 1, 0, 2, 3, 0, 4]),
                "{cut}"
            );
            let classes = first.classify(1).expect("classes");
            assert_eq!((classes.names, classes.counts), (labels(&["01", "1", "1.0", "a", "b"]), vec![1, 1, 1, 1, 3]));
        }
        let mut many = Spellings::default();
        many.note(&"x".repeat(MAX_SPELLED_BYTES + 1));
        assert!(Spellings::default().add(&many).expect_err("too many").contains("more than 4194304 different labels"));
    }

    #[test]
    fn labels_that_name_no_classes_are_refused() {
        let reason = |list: &[&str]| classify(&labels(list)).expect_err("no classes");
        assert!(reason(&["1", "1"]).contains("all 2 labels are `1`"));
        let many: Vec<String> = (0..=MAX_CLASSES).map(|label| format!("x{label}")).collect();
        assert!(classify(&many).expect_err("too many").contains("65537 different labels"));
    }
}

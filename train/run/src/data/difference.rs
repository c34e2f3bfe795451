//! In what two copies of a table differ, as far as their preprocessings tell: for someone whose copy is not the run's.

use std::collections::BTreeSet;

use super::columns::{Column, ColumnKind};
use super::preprocessing::{FeatureScale, PreprocessingSpec, TokenizerSpec};
use super::shorten;

/// Columns, categories and classes that are named; of more, how many there are.
const MAX_NAMED: usize = 3;

impl PreprocessingSpec {
    /// In what `theirs` differs from this one, as sentences in which this one is here: columns, their names and kinds, categories,
    /// classes, and means. Empty if it is in none of these.
    pub fn told(&self, theirs: &Self) -> Vec<String> {
        let mut told = Vec::new();
        let label = |names: &Self| match &*names.label {
            [] => "no name".to_owned(),
            [name] => format!("the name `{}`", shorten(name)),
            names => format!(
                "the names {}",
                names.iter().map(|name| format!("`{}`", shorten(name))).collect::<Vec<_>>().join(", ")
            ),
        };
        if self.label != theirs.label {
            told.push(format!("the label has {} here, {} there", label(self), label(theirs)));
        }
        // A model of numbers has no classes, but numbers that labels are.
        let mut all = [&self.classes, &theirs.classes].into_iter().flatten();
        let [one, several] = match all.all(|class| class.parse::<f64>().is_ok()) {
            true => ["the label value", "the label values"],
            false => ["the class", "the classes"],
        };
        told.extend(only(one, several, &self.classes, &theirs.classes));
        told.extend(of_tokenizers(self.tokenizer(), theirs.tokenizer()));
        if [&self.scales, &theirs.scales].iter().any(|scales| !matches!(scales, FeatureScale::Standardize { .. })) {
            // Images and texts have no columns.
            return told;
        }
        let (ours, others) = (self.table_columns(), theirs.table_columns());
        if ours.len() != others.len() {
            told.push(format!("{} columns besides the label here, {} there", ours.len(), others.len()));
        }
        let names = |columns: &[Column]| columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
        told.extend(only("the column", "the columns", &names(&ours), &names(&others)));
        if ours.len() == others.len() {
            told.extend(self.told_of_columns(theirs, &ours, &others));
        }
        told
    }

    /// The same of as many columns, one by one.
    fn told_of_columns(&self, theirs: &Self, ours: &[Column], others: &[Column]) -> Vec<String> {
        let mut told = Vec::new();
        let (mut kinds, mut means) = (Vec::new(), Vec::new());
        let (mut at, mut other_at) = (0, 0);
        for (place, (our, other)) in ours.iter().zip(others).enumerate() {
            let name = match &*our.name {
                "" => format!("column {place} but for the label"),
                name => format!("`{}`", shorten(name)),
            };
            match (&our.coding, &other.coding) {
                (ColumnKind::Category(our), ColumnKind::Category(other)) if our != other => {
                    let what = [format!("{name} has the category"), format!("{name} has the categories")];
                    told.extend(only(&what[0], &what[1], our, other));
                }
                (our, other) if kind(our) != kind(other) => {
                    kinds.push(format!("{name} is {} here, {} there", kind(our), kind(other)));
                }
                (ColumnKind::Number | ColumnKind::Gaps, _) => {
                    let found = [self.mean(at), theirs.mean(other_at)];
                    if let [Some(here), Some(there)] = found
                        && here != there
                    {
                        means.push(format!("{name} has the mean {here} here, {there} there"));
                    }
                }
                _ => {}
            }
            at += our.coding.width();
            other_at += other.coding.width();
        }
        told.truncate(MAX_NAMED);
        told.extend(few(kinds));
        told.extend(few(means));
        told
    }

    /// The columns of a table but for the label's, also where each is a number.
    fn table_columns(&self) -> Vec<Column> {
        let count = match &self.scales {
            FeatureScale::Standardize { means, .. } if self.columns.is_empty() => means.len(),
            FeatureScale::Standardize { .. } | FeatureScale::Divide(_) | FeatureScale::Tokenize(_) => {
                return self.columns.clone();
            }
        };
        let name = |at: usize| self.features.get(at).cloned().unwrap_or_default();
        (0..count).map(|at| Column { name: name(at), coding: ColumnKind::Number }).collect()
    }

    /// The mean of a feature over the samples to train on.
    fn mean(&self, feature: usize) -> Option<f64> {
        let FeatureScale::Standardize { means, .. } = &self.scales else { return None };
        means.get(feature).copied()
    }
}

/// How two tokenizers differ, as a sentence.
fn of_tokenizers(ours: Option<&TokenizerSpec>, theirs: Option<&TokenizerSpec>) -> Option<String> {
    let said = |tokenizer: &TokenizerSpec| {
        let (digest, bytes, end) = (tokenizer.digest().to_string(), tokenizer.json.len(), tokenizer.end);
        format!("{bytes} bytes with the blake3 {}... and the end token {end}", &digest[..16])
    };
    let (ours, theirs) = (ours?, theirs?);
    (ours != theirs)
        .then(|| format!("the tokenizer (`tokenizer.json`) has {} here, {} there", said(ours), said(theirs)))
}

/// What a column is, without its categories.
fn kind(coding: &ColumnKind) -> &'static str {
    match coding {
        ColumnKind::Number => "numbers",
        ColumnKind::Gaps => "numbers with gaps",
        ColumnKind::Category(_) => "categories",
        ColumnKind::Ignored => "left out",
    }
}

/// What is in one of two lists alone, as sentences; `one` and `several` begin them.
fn only(one: &str, several: &str, ours: &[String], theirs: &[String]) -> Vec<String> {
    let [here, there] = [ours, theirs].map(|list| list.iter().collect::<BTreeSet<_>>());
    let told = |names: Vec<&&String>, place: &str| {
        let shown: Vec<String> = names.iter().take(MAX_NAMED).map(|name| format!("`{}`", shorten(name))).collect();
        let more = names.len().saturating_sub(MAX_NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let what = if names.len() == 1 { one } else { several };
        (!names.is_empty()).then(|| format!("{what} {}{more} {place} alone", shown.join(", ")))
    };
    let alone = [told(here.difference(&there).collect(), "here"), told(there.difference(&here).collect(), "there")];
    alone.into_iter().flatten().collect()
}

/// The first of many sentences, and how many more there are.
fn few(mut told: Vec<String>) -> Vec<String> {
    let more = told.len().saturating_sub(MAX_NAMED);
    told.truncate(MAX_NAMED);
    if let Some(last) = told.last_mut().filter(|_| more > 0) {
        last.push_str(&format!(", and so for {more} more"));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    fn plain(features: &[&str], means: &[f64]) -> PreprocessingSpec {
        let (means, deviations) = (means.to_vec(), vec![1.0; means.len()]);
        PreprocessingSpec {
            scales: FeatureScale::Standardize { means, deviations },
            classes: texts(&["a", "b"]),
            features: texts(features),
            label: vec!["kind".to_owned()],
            columns: Vec::new(),
            labels: Vec::new(),
        }
    }

    fn coded(codings: Vec<ColumnKind>, means: &[f64]) -> PreprocessingSpec {
        let name = |at: usize| ["x", "y", "z"][at].to_owned();
        let columns = codings.into_iter().enumerate().map(|(at, coding)| Column { name: name(at), coding }).collect();
        PreprocessingSpec { columns, ..plain(&[], means) }
    }

    #[test]
    fn copies_are_told_apart_by_what_they_hold() {
        let ours = plain(&["x", "y"], &[1.5, 2.0]);
        assert_eq!(ours.told(&ours), texts(&[]));
        let other = PreprocessingSpec { label: Vec::new(), classes: texts(&["a", "c", "d"]), ..ours.clone() };
        let expected = [
            "the label has the name `kind` here, no name there",
            "the class `b` here alone",
            "the classes `c`, `d` there alone",
        ];
        assert_eq!(ours.told(&other), texts(&expected));
        let [ones, others] =
            [&["1", "2.5"], &["1", "3"]].map(|classes| PreprocessingSpec { classes: texts(classes), ..ours.clone() });
        assert_eq!(ones.told(&others), ["the label value `2.5` here alone", "the label value `3` there alone"]);
        let expected = ["2 columns besides the label here, 1 there", "the column `y` here alone"];
        assert_eq!(ours.told(&plain(&["x"], &[1.5])), texts(&expected));
        let expected =
            ["the column `y` here alone", "the column `z` there alone", "`x` has the mean 1.5 here, 1.25 there"];
        assert_eq!(ours.told(&plain(&["x", "z"], &[1.25, 2.0])), texts(&expected));
        let bare = ["column 1 but for the label has the mean 2 here, 3 there"];
        assert_eq!(plain(&[], &[1.0, 2.0]).told(&plain(&[], &[1.0, 3.0])), texts(&bare));
        let many = plain(&[], &[1.0; 9]).told(&plain(&[], &[2.0; 9]));
        assert!(many.len() == 3 && many[2].ends_with("there, and so for 6 more"), "{many:?}");
    }

    #[test]
    fn kinds_of_columns_and_their_categories_are_told() {
        let category = |list: &[&str]| ColumnKind::Category(texts(list));
        let ours =
            coded(vec![category(&["blue", "red"]), ColumnKind::Number, ColumnKind::Gaps], &[0.0, 0.0, 5.0, 7.0, 0.0]);
        let theirs =
            coded(vec![category(&["green", "red"]), ColumnKind::Number, ColumnKind::Gaps], &[0.0, 0.0, 5.0, 8.0, 0.0]);
        let expected = [
            "`x` has the category `blue` here alone",
            "`x` has the category `green` there alone",
            "`z` has the mean 7 here, 8 there",
        ];
        assert_eq!(ours.told(&theirs), texts(&expected));
        let theirs = coded(vec![ColumnKind::Number, ColumnKind::Ignored, ColumnKind::Number], &[1.0, 7.0]);
        let expected = [
            "`x` is categories here, numbers there",
            "`y` is numbers here, left out there",
            "`z` is numbers with gaps here, numbers there",
        ];
        assert_eq!(ours.told(&theirs), texts(&expected));
        // Images have none of this.
        assert_eq!(
            plain(&["x"], &[1.0]).told(&PreprocessingSpec { scales: FeatureScale::Divide(16.0), ..plain(&[], &[]) }),
            texts(&[])
        );
        // One that has columns of plain numbers alone.
        let numbers = coded(vec![ColumnKind::Number, ColumnKind::Number], &[1.0, 2.0]);
        assert_eq!(plain(&["x", "y"], &[1.0, 2.0]).told(&numbers), texts(&[]));
    }
}

//! What an experiment found.

use std::fmt::Display;

use serde_json::{Map, Value, json};

/// Figures, and broken promises.
#[derive(Debug)]
pub struct Verdict {
    experiment: &'static str,
    seed: u64,
    figures: Map<String, Value>,
    broken: Vec<String>,
}

impl Verdict {
    /// Nothing found so far.
    pub fn new(experiment: &'static str, seed: u64) -> Self {
        Self { experiment, seed, figures: Map::new(), broken: Vec::new() }
    }

    /// Takes down a figure.
    pub fn figure(&mut self, name: &str, value: impl Into<Value>) {
        self.figures.insert(name.to_owned(), value.into());
    }

    /// Takes down a figure with two digits behind the point.
    pub fn decimal(&mut self, name: &str, value: f64) {
        self.figure(name, (value * 100.0).round() / 100.0);
    }

    /// Takes down whether a promise was kept, and what was promised and seen instead if it was not.
    pub fn promise(&mut self, kept: bool, instead: impl Display) {
        if !kept {
            eprintln!("  BROKEN: {instead}");
            self.broken.push(instead.to_string());
        }
    }

    /// What was broken.
    pub fn broken(&self) -> &[String] {
        &self.broken
    }

    /// A figure; `Null` if it was not taken.
    pub fn get(&self, name: &str) -> &Value {
        self.figures.get(name).unwrap_or(&Value::Null)
    }

    /// One line.
    pub fn to_json(&self) -> String {
        let mut whole = Map::new();
        whole.insert("experiment".to_owned(), json!(self.experiment));
        whole.insert("seed".to_owned(), json!(self.seed));
        whole.insert("kept".to_owned(), json!(self.broken.is_empty()));
        whole.extend(self.figures.clone());
        whole.insert("broken".to_owned(), json!(self.broken));
        Value::Object(whole).to_string()
    }
}

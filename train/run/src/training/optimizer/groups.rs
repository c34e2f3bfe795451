//! Parameters whose learning rate or weight decay is another than that of the rest.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{OptimizerSpec, StepFactors, Update};
use crate::manifest::freeze::{check_path, is_under};
use crate::manifest::schema::{Entry, LeafKind, Schema};

/// The most groups of a run.
const MAX_GROUPS: usize = 64;
/// What a learning rate or a weight decay may be multiplied by.
const MOST: f32 = 1e3;

/// What is different for some parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    /// Of which: a parameter's path, that of a module, or `*.` and the last part of a path.
    pub path: String,
    /// What their learning rate is multiplied by.
    pub rate: f32,
    /// What their weight decay is multiplied by.
    pub decay: f32,
}

impl GroupSpec {
    /// Checks groups, which may be a stranger's.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub(crate) fn check(groups: &[Self]) -> Result<(), String> {
        if groups.len() > MAX_GROUPS {
            return Err(format!("there are {}, but {MAX_GROUPS} are possible", groups.len()));
        }
        for Self { path, rate, decay } in groups {
            check_path(path)?;
            if !(1.0 / MOST..=MOST).contains(rate) || !(0.0..=MOST).contains(decay) {
                return Err(format!(
                    "a learning rate is multiplied by {rate} and a weight decay by {decay}, but {} to {MOST} and 0 to {MOST} are possible",
                    1.0 / MOST
                ));
            }
        }
        Ok(())
    }
}

impl fmt::Display for GroupSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if self.rate != 1.0 {
            write!(f, ":rate={}", self.rate)?;
        }
        if self.decay != 1.0 { write!(f, ":decay={}", self.decay) } else { Ok(()) }
    }
}

impl FromStr for GroupSpec {
    type Err = String;

    /// As in `convolutions:rate=0.1` or `*.bias:decay=0`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(':').map(str::trim);
        let path = parts.next().unwrap_or_default().to_owned();
        let mut group = Self { path, rate: 1.0, decay: 1.0 };
        for part in parts {
            let (name, factor) = part.split_once('=').unwrap_or((part, ""));
            let factor = factor.trim().parse().map_err(|_| format!("`{part}` is none of rate=FACTOR and decay=FACTOR"));
            match name.trim() {
                "rate" => group.rate = factor?,
                "decay" => group.decay = factor?,
                _ => return Err(format!("`{part}` is none of rate=FACTOR and decay=FACTOR")),
            }
        }
        Self::check(std::slice::from_ref(&group))?;
        Ok(group)
    }
}

/// Parameters one after another that are updated alike.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Segment {
    /// Where they end.
    end: usize,
    rate: f32,
    decay: f32,
}

/// Which trained parameters are updated how: they lie in the order of the schema. As it is, all alike.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupLayout(Vec<Segment>);

impl GroupLayout {
    /// That of a model in a run with these groups. Of those that a parameter is in, the last one counts.
    ///
    /// # Errors
    /// If a group has no parameter, as a sentence.
    pub fn new(groups: &[GroupSpec], schema: &Schema) -> Result<Self, String> {
        let trained = || schema.entries().iter().filter(|entry| entry.kind == LeafKind::Trained);
        let is_in = |group: &GroupSpec, entry: &Entry| is_under(std::slice::from_ref(&group.path), &entry.path);
        if let Some(empty) = groups.iter().find(|group| !trained().any(|entry| is_in(group, entry))) {
            return Err(format!("the model trains no parameter `{}`, and none in it", empty.path));
        }
        let mut segments: Vec<Segment> = Vec::new();
        let mut end = 0;
        for entry in trained().filter(|_| !groups.is_empty()) {
            end += entry.elements();
            let group = groups.iter().rev().find(|group| is_in(group, entry));
            let (rate, decay) = group.map_or((1.0, 1.0), |group| (group.rate, group.decay));
            match segments.last_mut().filter(|last| (last.rate, last.decay) == (rate, decay)) {
                Some(last) => last.end = end,
                None => segments.push(Segment { end, rate, decay }),
            }
        }
        Ok(Self(segments))
    }

    /// The next step of an optimizer with this state.
    pub(super) fn begin(&self, spec: &OptimizerSpec, factors: StepFactors, scalars: &[f64]) -> GroupUpdate {
        let one = [Segment { end: usize::MAX, rate: 1.0, decay: 1.0 }];
        let segments = if self.0.is_empty() { &one[..] } else { &self.0 };
        let begin = |segment: &Segment| {
            let values: Vec<f32> = spec
                .settings()
                .take(spec.values().len())
                .map(|(setting, value)| match setting.name {
                    "learning_rate" => value * factors.learning_rate * segment.rate,
                    "weight_decay" => value * segment.decay,
                    _ => value,
                })
                .collect();
            (segment.end, spec.begin(&values, factors.gradient, scalars))
        };
        GroupUpdate(segments.iter().map(begin).collect())
    }
}

/// What one step does to each parameter, wherever it lies.
#[derive(Debug)]
pub struct GroupUpdate(Vec<(usize, Box<dyn Update>)>);

impl GroupUpdate {
    /// As [`Update::run`], of parameters from position `at` on.
    pub(super) fn run(&self, at: usize, parameters: &mut [f32], gradients: &[f32], moments: &mut [&mut [f32]]) {
        let (mut done, count) = (0, gradients.len());
        for (end, update) in self.0.iter().skip_while(|(end, _)| *end <= at) {
            let part = done..count.min(end.saturating_sub(at));
            let mut own: Vec<&mut [f32]> = moments.iter_mut().map(|moment| &mut moment[part.clone()]).collect();
            update.run(&mut parameters[part.clone()], &gradients[part.clone()], &mut own);
            done = part.end;
            if done == count {
                break;
            }
        }
    }

    /// As [`Update::is_safe`], of all of them.
    pub(super) fn is_safe(&self, state: f64, gradient: f64) -> bool {
        self.0.iter().all(|(_, update)| update.is_safe(state, gradient))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::optimizer::{BLOCK, NAMES, OptimizerState};

    fn schema() -> Schema {
        Schema::new(vec![
            Entry::trained("stem.weight", &[BLOCK + 3]),
            Entry::trained("stem.bias", &[5]),
            Entry { kind: LeafKind::Running, ..Entry::trained("norm.mean", &[4]) },
            Entry::trained("head.weight", &[BLOCK, 2]),
            Entry::trained("head.bias", &[1]),
        ])
    }

    fn groups(texts: &[&str]) -> Vec<GroupSpec> {
        texts.iter().map(|text| text.parse().expect("a group")).collect()
    }

    #[test]
    fn groups_are_read_written_and_bounded() {
        for text in ["stem:rate=0.1", "*.bias:decay=0", "a.b:rate=2:decay=0.5", "a"] {
            assert_eq!(text.parse::<GroupSpec>().expect("a group").to_string(), text);
        }
        for (text, reason) in [
            ("", "paths of 1 to 256"),
            ("a:rate=0", "multiplied by 0 "),
            ("a:rate=1e4", "multiplied by 10000 "),
            ("a:decay=-1", "a weight decay by -1"),
            ("a:rate=NaN", "multiplied by NaN"),
            ("a:rate", "`rate` is none of rate=FACTOR"),
            ("a:speed=1", "`speed=1` is none of"),
        ] {
            let error = text.parse::<GroupSpec>().expect_err("no group");
            assert!(error.contains(reason), "{error}");
        }
        assert!(GroupSpec::check(&groups(&["a"; 65])).is_err());
    }

    #[test]
    fn the_last_group_of_a_parameter_counts() {
        let layout = GroupLayout::new(&groups(&["*.bias:decay=0", "head:rate=0.5"]), &schema()).expect("possible");
        let ends: Vec<(usize, f32, f32)> = layout.0.iter().map(|it| (it.end, it.rate, it.decay)).collect();
        assert_eq!(ends, [(BLOCK + 3, 1.0, 1.0), (BLOCK + 8, 1.0, 0.0), (3 * BLOCK + 9, 0.5, 1.0)]);
        for path in ["bias", "norm", "head.w", "*.mean"] {
            let error = GroupLayout::new(&groups(&[path]), &schema()).expect_err("nobody is in it");
            assert!(error.contains("no parameter `"), "{error}");
        }
        assert_eq!(GroupLayout::new(&[], &schema()), Ok(GroupLayout::default()));
    }

    /// Each part moves as it would alone under the settings that the group makes.
    #[test]
    fn groups_move_as_optimizers_of_their_own_would() {
        let layout = GroupLayout::new(&groups(&["stem:rate=0.25", "*.bias:decay=0"]), &schema()).expect("possible");
        let total = 3 * BLOCK + 9;
        let factors = StepFactors { gradient: 0.5, learning_rate: 0.5 };
        for name in NAMES {
            let spec = OptimizerSpec::named(name).expect("listed").with("weight_decay", 0.125).with("ema", 0.5);
            let start: Vec<f32> = (0..total).map(|at| (at % 17) as f32 / 16.0).collect();
            let mut whole = (start.clone(), OptimizerState::new(spec, total).with_groups(layout.clone()));
            let parts = [
                (0..BLOCK + 3, 0.25, 1.0),
                (BLOCK + 3..BLOCK + 8, 1.0, 0.0),
                (BLOCK + 8..total - 1, 1.0, 1.0),
                (total - 1..total, 1.0, 0.0),
            ];
            let mut alone: Vec<_> = parts
                .iter()
                .map(|(range, rate, decay)| {
                    let rate = spec.setting("learning_rate").expect("the first") * rate;
                    let spec = spec.with("learning_rate", rate).with("weight_decay", 0.125 * decay);
                    (range.clone(), start[range.clone()].to_vec(), OptimizerState::new(spec, range.len()))
                })
                .collect();
            for step in 0..4 {
                let gradients: Vec<f32> = (0..total).map(|at| ((at + step) % 5) as f32 - 2.0).collect();
                whole.1.step(&mut whole.0, &gradients, factors).expect("finite");
                for (range, parameters, optimizer) in &mut alone {
                    optimizer.step(parameters, &gradients[range.clone()], factors).expect("finite");
                    assert_eq!(whole.0[range.clone()], *parameters, "{name}, step {step}, {range:?}");
                }
            }
        }
    }
}

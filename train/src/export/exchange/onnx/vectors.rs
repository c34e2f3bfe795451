//! What a graph does with parameters of one side: biases, and those of normalizations.
//!
//! Their names alone don't say that. One that is subtracted, negated, multiplied with or not used at all has the same name and shape as a bias
//! that is added, and a module of ours would compute something else with its values.

use std::collections::BTreeMap;

use starling_run::manifest::schema::Entry;

use super::parts::{Node, Parts};

/// How many operations lie between a normalization's product and its mean, at most.
const MAX_STEPS: usize = 8;
/// Those that may.
const OF_ROOTS: [&str; 6] = ["Add", "Cast", "Div", "Pow", "Reciprocal", "Sqrt"];

/// Parameters in a graph.
pub(super) struct Vectors<'p, 'a> {
    parts: &'p Parts<'a>,
    /// By what they are called there.
    parameters: BTreeMap<String, &'p Entry>,
}

impl<'p, 'a> Vectors<'p, 'a> {
    pub(super) fn new(parts: &'p Parts<'a>, parameters: BTreeMap<String, &'p Entry>) -> Self {
        Self { parts, parameters }
    }

    /// Those of one side that are not used as ours are, by their paths, with what is to be said of each.
    pub(super) fn misused(&self) -> BTreeMap<String, String> {
        let vectors = self.parameters.values().filter(|entry| is_vector(entry));
        // Until it is used.
        let unused = "is used by no operation of its graph".to_owned();
        let mut found: BTreeMap<&str, Option<String>> =
            vectors.map(|entry| (&*entry.path, Some(unused.clone()))).collect();
        let uses = self.parts.nodes.iter().flat_map(|node| (0..node.inputs.len()).map(move |slot| (node, slot)));
        for (node, slot) in uses {
            let Some(entry) = self.parameter(node, slot).filter(|entry| is_vector(entry)) else { continue };
            let known = found.entry(&entry.path).or_insert(None);
            match self.is_ours(node, slot, entry) {
                true if known.as_ref() == Some(&unused) => *known = None,
                true => {}
                false => *known = Some(other_use(node, entry)),
            }
        }
        let told = |reason| format!("{reason}; if its values are meant as they are, save them with `torch.save`");
        found.into_iter().filter_map(|(path, reason)| Some((path.to_owned(), told(reason?)))).collect()
    }

    /// The parameter that goes in there.
    fn parameter(&self, node: &Node<'a>, slot: usize) -> Option<&'p Entry> {
        let (name, _) = self.parts.before(node.input(slot)?, |name| self.parameters.contains_key(name))?;
        self.parameters.get(name).copied()
    }

    /// Whether a parameter is used there as modules of ours use it.
    fn is_ours(&self, node: &Node<'a>, slot: usize, entry: &Entry) -> bool {
        match (node.operator, slot) {
            ("Gemm" | "Conv", 2) => self.multiplies_with_own(node, entry),
            ("Add", 0 | 1) => self.other(node, slot).is_some_and(|product| {
                matches!(product.operator, "Gemm" | "MatMul") && self.multiplies_with_own(product, entry)
            }),
            // A normalization by the mean square comes as the operations that it is made of, too.
            ("Mul", 0 | 1) if leaf(entry) == "gamma" => {
                self.other(node, slot).is_some_and(|normalized| self.divides_by_mean(normalized))
            }
            _ => node.leaf(slot) == Some(leaf(entry)),
        }
    }

    /// What the other one of two inputs comes out of.
    fn other(&self, node: &Node<'a>, slot: usize) -> Option<&Node<'a>> {
        self.parts.producer(node.input(1 - slot)?)
    }

    /// Whether the matrix of this product is that of the parameter's own layer.
    fn multiplies_with_own(&self, product: &Node<'a>, entry: &Entry) -> bool {
        let is_own = |weight: &Entry| !is_vector(weight) && layer(weight) == layer(entry);
        self.parameter(product, 1).is_some_and(is_own)
    }

    /// Whether what comes out of this was divided by what a mean was made to.
    fn divides_by_mean(&self, node: &Node<'a>) -> bool {
        let from = |node: &Node<'a>, slot: usize| self.parts.producer(node.input(slot)?);
        let leads_to_mean = |slot: usize| {
            let mut at = from(node, slot);
            for _ in 0..MAX_STEPS {
                let Some(step) = at else { return false };
                if step.operator == "ReduceMean" {
                    return true;
                }
                if !OF_ROOTS.contains(&step.operator) {
                    return false;
                }
                // Of two, the other one is a number.
                at = from(step, 0).or_else(|| from(step, 1));
            }
            false
        };
        match node.operator {
            "Cast" => from(node, 0).is_some_and(|node| node.operator != "Cast" && self.divides_by_mean(node)),
            "Div" => leads_to_mean(1),
            "Mul" => leads_to_mean(0) || leads_to_mean(1),
            _ => false,
        }
    }
}

fn is_vector(entry: &Entry) -> bool {
    entry.shape.len() < 2
}

/// The path of what a parameter is part of.
fn layer(entry: &Entry) -> &str {
    entry.path.rsplit_once('.').map_or("", |(layer, _)| layer)
}

fn leaf(entry: &Entry) -> &str {
    entry.path.rsplit('.').next().unwrap_or_default()
}

/// What is to be said of a parameter that another operation takes.
fn other_use(node: &Node<'_>, entry: &Entry) -> String {
    let by = match node.operator {
        "" => "an operation that is none of ONNX's own".to_owned(),
        operator => format!("`{}`", starling_run::data::shorten(operator).escape_debug()),
    };
    let expected = match leaf(entry) {
        "gamma" | "beta" | "running_mean" | "running_var" => "in its place in a normalization".to_owned(),
        _ => {
            let own = if layer(entry).is_empty() { String::new() } else { format!(" of `{}`", layer(entry)) };
            format!("to be added to the product{own} (`Gemm`, `MatMul` and `Add`, `Conv`)")
        }
    };
    format!("is taken by {by} of its graph, where it is expected {expected}, so that the model would be another one")
}

//! A trained model as an ONNX file: a graph from samples as they are in the data to what they are predicted to be. And the way back, for weights
//! alone: [`Constants`].
//!
//! ```text
//!   input [samples, features] -> scaled -> { hidden: linear, perhaps normalized, relu } -> output: linear -> softmax, argmax, or unscaled
//!   input [samples, channels, height, width] -> scaled -> { 3x3, perhaps normalized, relu, 2x2 max } -> mean -> output
//!                                                      -> { perhaps 2x2 max, residual block } ->
//! ```
//!
//! The parameters say which layers there are, and one that has no place in such a graph is refused. Features of tables come in 64 bits and
//! are scaled in them, as ours are: a column of dates would lose in 32 what tells its rows apart.

mod constant;
mod constants;
mod messages;
mod parts;
#[cfg(test)]
mod tests;
mod vectors;
mod wire;

use std::path::Path;

use prost::Message;
use starling_run::FeatureScale;
use starling_run::data::LabelScale;

use super::super::read::Held;
use super::super::{DataOrigin, Description, ModelError};
use crate::network::forward::OutputKind;
pub(super) use constants::Constants;
use messages::{Attribute, FORMAT_VERSION, Graph, Kind, Model, Node, OPERATORS_VERSION, OperatorSet, Property, Value};

/// The longest message that readers of such files take.
const MAX_BYTES: usize = i32::MAX as usize;
/// What the metadata say, of those of the model's file. How data is scaled is part of the graph.
const PROPERTIES: [&str; 15] = [
    "run",
    "step",
    "model",
    "best_step",
    "best_loss",
    "ema",
    "data",
    "class_names",
    "feature_names",
    "columns",
    "label_column",
    "label_name",
    "labels",
    "header",
    "delimiter",
];
/// Who wrote such a file, if it was this program.
const PRODUCER: &str = "starling";
/// What the constants are called in which it says how samples and labels are scaled.
const MEANS: &str = "means";
const DEVIATIONS: &str = "deviations";
const LABEL_MEAN: &str = "label_mean";
const LABEL_DEVIATION: &str = "label_deviation";
/// All of these.
const SCALES: [&str; 4] = [MEANS, DEVIATIONS, LABEL_MEAN, LABEL_DEVIATION];
/// What goes in.
const INPUT: &str = "input";
/// What comes out: of a classifier, the place of the most probable class among `class_names`, and how probable each is; of a regression,
/// the number.
const CLASS: &str = "class";
const PROBABILITIES: &str = "probabilities";
const PREDICTION: &str = "prediction";
/// Of several columns of labels, 1 for each that a sample has, and 0 for others.
const LABELS: &str = "labels";

/// The bytes of the file, the same ones for the same model. `path` is for messages.
///
/// # Errors
/// If it is a language model, a program's own task or larger than such a file may be, or nothing says how its data is scaled.
pub(super) fn encode(held: &Held, path: &Path) -> Result<Vec<u8>, ModelError> {
    let Description { model, trained_on, shape, is_of_program, .. } = &held.description;
    let refused = |reason: String| ModelError::NoSuchExport { model: model.to_string(), how: "as ONNX", reason };
    let learns = match held.description.learns() {
        Some(learns @ (OutputKind::Classes | OutputKind::Numbers | OutputKind::Labels)) => learns,
        Some(OutputKind::Text) => {
            return Err(refused(
                "`layers.0.attention` turns queries and keys by their places (`RotaryEmbedding`), and `layers.0.attention_norm` divides by the \
                 root of the mean square (`RMSNormalization`), for which the operators of version 17 have none; take --layout hf, from \
                 which other tools make ONNX"
                    .to_owned(),
            ));
        }
        None if *is_of_program => {
            return Err(refused(
                "it is a program's own task, whose layers only its program knows; take --layout torch for its tensors"
                    .to_owned(),
            ));
        }
        None => return Err(refused("this program lacks it; use the release of Starling that trained it".to_owned())),
    };
    let on = trained_on.as_ref().ok_or_else(|| ModelError::NoScales { path: path.to_owned() })?;
    let size = held.values.len().saturating_mul(size_of::<f32>());
    if size > MAX_BYTES {
        return Err(refused(format!(
            "it has {size} bytes, where an ONNX file has at most {MAX_BYTES}; take --layout torch"
        )));
    }
    let mut builder = Builder { held, taken: Vec::new(), graph: Graph { name: model.to_string(), ..Graph::default() } };
    let mut features = builder.inputs(on, *shape).map_err(refused)?;
    features = builder.layers(features, *shape).map_err(refused)?;
    match learns {
        OutputKind::Classes => builder.classes(&features),
        OutputKind::Labels => builder.labels(&features),
        OutputKind::Numbers | OutputKind::Text => builder.numbers(&features, &on.preprocessing.labels),
    }
    let graph = builder.finish().map_err(refused)?;
    // Of a regression, they are the labels that there were.
    let is_meant = |key: &&&str| **key != "class_names" || learns == OutputKind::Classes;
    let property = |key: &&str| {
        let value = held.metadata.get(*key)?.clone();
        Some(Property { key: (*key).to_owned(), value })
    };
    let file = Model {
        format_version: FORMAT_VERSION,
        producer: PRODUCER.to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        graph: Some(graph),
        operators: vec![OperatorSet { domain: Some(String::new()), version: OPERATORS_VERSION }],
        metadata: PROPERTIES.iter().filter(is_meant).filter_map(property).collect(),
    };
    match file.encoded_len() {
        size if size > MAX_BYTES => Err(refused(format!(
            "it takes {size} bytes, where an ONNX file has at most {MAX_BYTES}; take --layout torch"
        ))),
        _ => Ok(file.encode_to_vec()),
    }
}

/// A graph as it comes about. What is computed is known by its name.
struct Builder<'a> {
    held: &'a Held,
    /// The parameters that are part of it.
    taken: Vec<&'a str>,
    graph: Graph,
}

impl<'a> Builder<'a> {
    /// Adds an operation with one output, which is called as it is, and gives that name back.
    fn node(&mut self, operator: &str, name: &str, inputs: &[&str], attributes: Vec<Attribute>) -> String {
        self.graph.nodes.push(Node {
            inputs: inputs.iter().map(|&input| input.to_owned()).collect(),
            outputs: vec![name.to_owned()],
            name: format!("{operator} {name}"),
            operator: operator.to_owned(),
            attributes,
        });
        name.to_owned()
    }

    fn constant(&mut self, name: &str, kind: Kind, shape: &[usize], bytes: Vec<u8>) -> String {
        let shape = shape.iter().map(|side| *side as i64).collect();
        self.graph.constants.push(messages::Tensor { shape, kind: kind as i32, name: name.to_owned(), bytes });
        name.to_owned()
    }

    fn doubles(&mut self, name: &str, numbers: &[f64]) -> String {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.constant(name, Kind::Double, &[numbers.len()], bytes)
    }

    /// The parameter of this name, as a constant of the same name.
    fn parameter(&mut self, path: &str) -> Result<String, String> {
        let mut start = 0;
        for entry in &self.held.description.parameters {
            let end = start + entry.elements();
            if entry.path == path {
                let bytes = self.held.values[start..end].iter().flat_map(|number| number.to_le_bytes()).collect();
                self.taken.push(&entry.path);
                return Ok(self.constant(path, Kind::Float, &entry.shape, bytes));
            }
            start = end;
        }
        Err(format!("its tensor `{path}` is missing"))
    }

    /// Whether there is a parameter of this name.
    fn has(&self, path: &str) -> bool {
        self.held.description.parameters.iter().any(|entry| entry.path == path)
    }

    /// How many layers are called so, with a number and this weight behind it.
    fn count(&self, prefix: &str, weight: &str) -> usize {
        (0..).take_while(|at: &usize| self.has(&format!("{prefix}.{at}.{weight}"))).count()
    }

    /// Samples as they are in the data, scaled: `[samples, features]`, or `[samples, channels, height, width]` of images.
    fn inputs(&mut self, on: &DataOrigin, shape: [u32; 3]) -> Result<String, String> {
        let [channels, height, width] = shape.map(i64::from);
        let is_image = channels > 1 || height > 1;
        let sides = if is_image { vec![channels, height, width] } else { vec![width] };
        let (means, deviations) = match &on.preprocessing.scales {
            FeatureScale::Divide(divisor) => {
                self.graph.inputs.push(Value::of_samples(INPUT, Kind::Float, &sides));
                let divisor = self.constant("divisor", Kind::Float, &[], (*divisor as f32).to_le_bytes().to_vec());
                return Ok(self.node("Div", "scaled", &[INPUT, &divisor], Vec::new()));
            }
            FeatureScale::Tokenize(_) => return Err("it says that its samples are tokens of a text".to_owned()),
            FeatureScale::Standardize { means, deviations } => (means, deviations),
        };
        self.graph.inputs.push(Value::of_samples(INPUT, Kind::Double, &sides));
        let sides: Vec<usize> = sides.iter().map(|side| *side as usize).collect();
        let numbers = |numbers: &[f64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let divisors: Vec<f64> = deviations.iter().map(|it| if *it == 0.0 { 1.0 } else { *it }).collect();
        let means = self.constant(MEANS, Kind::Double, &sides, numbers(means));
        let divisors = self.constant(DEVIATIONS, Kind::Double, &sides, numbers(&divisors));
        let centred = self.node("Sub", "centred", &[INPUT, &means], Vec::new());
        let scaled = self.node("Div", "standardized", &[&centred, &divisors], Vec::new());
        // What has no number counts as the mean, and so does all of a feature that is the same everywhere.
        let is_constant = deviations.iter().map(|deviation| u8::from(*deviation == 0.0)).collect();
        let is_constant = self.constant("is_constant", Kind::Bool, &sides, is_constant);
        let is_gap = self.node("IsNaN", "is_gap", &[INPUT], Vec::new());
        let is_mean = self.node("Or", "is_mean", &[&is_gap, &is_constant], Vec::new());
        let zero = self.constant("zero", Kind::Double, &[], 0_f64.to_le_bytes().to_vec());
        let filled = self.node("Where", "filled", &[&is_mean, &zero, &scaled], Vec::new());
        Ok(self.node("Cast", "scaled", &[&filled], vec![Attribute::of_int("to", Kind::Float as i64)]))
    }

    /// What the layers make of the features: `[samples, outputs]`.
    fn layers(&mut self, mut features: String, shape: [u32; 3]) -> Result<String, String> {
        let (convolutions, blocks) = (self.count("convolutions", "weight"), self.count("blocks", "first.weight"));
        for at in 0..convolutions {
            let name = format!("convolutions.{at}");
            features = self.convolution(&name, &format!("convolution_norms.{at}"), &features, 3)?;
            features = self.node("Relu", &format!("{name}.relu"), &[&features], Vec::new());
            features = self.halved(&name, &features);
        }
        for at in 0..blocks {
            let name = format!("blocks.{at}");
            // Where the width changes.
            if at > 0 && self.has(&format!("{name}.projection.weight")) {
                features = self.halved(&name, &features);
            }
            features = self.residual(&name, features)?;
        }
        if convolutions + blocks > 0 {
            features = self.node("GlobalAveragePool", "mean", &[&features], Vec::new());
        }
        if convolutions + blocks > 0 || shape[0] > 1 || shape[1] > 1 {
            features = self.node("Flatten", "flat", &[&features], vec![Attribute::of_int("axis", 1)]);
        }
        for at in 0..self.count("hidden", "weight") {
            let name = format!("hidden.{at}");
            features = self.linear(&name, &features)?;
            features = self.normalized(&format!("hidden_norms.{at}"), features)?;
            features = self.node("Relu", &format!("{name}.relu"), &[&features], Vec::new());
        }
        self.linear("output", &features)
    }

    /// What a residual block makes of the images.
    fn residual(&mut self, name: &str, images: String) -> Result<String, String> {
        let part = |part: &str| format!("{name}.{part}");
        let between = self.convolution(&part("first"), &part("first_norm"), &images, 3)?;
        let between = self.node("Relu", &part("first.relu"), &[&between], Vec::new());
        let outputs = self.convolution(&part("second"), &part("second_norm"), &between, 3)?;
        let around = match self.has(&part("projection.weight")) {
            true => self.convolution(&part("projection"), &part("projection_norm"), &images, 1)?,
            false => images,
        };
        let sum = self.node("Add", &part("sum"), &[&outputs, &around], Vec::new());
        Ok(self.node("Relu", &part("relu"), &[&sum], Vec::new()))
    }

    /// What a convolution over squares of this odd side makes of the images, and the normalization behind it, if there is one.
    fn convolution(&mut self, name: &str, norm: &str, images: &str, side: i64) -> Result<String, String> {
        let [weight, bias] = [self.parameter(&format!("{name}.weight"))?, self.parameter(&format!("{name}.bias"))?];
        let sizes = |name: &str, sizes: &[i64]| Attribute::of_ints(name, sizes);
        let window = vec![sizes("kernel_shape", &[side; 2]), sizes("pads", &[side / 2; 4])];
        let outputs = self.node("Conv", name, &[images, &weight, &bias], window);
        self.normalized(norm, outputs)
    }

    /// The images with the largest of each 2x2 pixels, in or before this part.
    fn halved(&mut self, name: &str, images: &str) -> String {
        let sizes = |name: &str| Attribute::of_ints(name, &[2, 2]);
        self.node("MaxPool", &format!("{name}.pool"), &[images], vec![sizes("kernel_shape"), sizes("strides")])
    }

    /// What a batch normalization makes of the features, if there is one. Its epsilon is the format's own, 1e-5.
    fn normalized(&mut self, name: &str, features: String) -> Result<String, String> {
        if !self.has(&format!("{name}.gamma")) {
            return Ok(features);
        }
        let mut inputs = vec![features];
        for leaf in ["gamma", "beta", "running_mean", "running_var"] {
            inputs.push(self.parameter(&format!("{name}.{leaf}"))?);
        }
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        Ok(self.node("BatchNormalization", name, &inputs, Vec::new()))
    }

    fn linear(&mut self, name: &str, features: &str) -> Result<String, String> {
        let [weight, bias] = [self.parameter(&format!("{name}.weight"))?, self.parameter(&format!("{name}.bias"))?];
        Ok(self.node("Gemm", name, &[features, &weight, &bias], Vec::new()))
    }

    fn classes(&mut self, outputs: &str) {
        let axis = || Attribute::of_int("axis", 1);
        self.node("ArgMax", CLASS, &[outputs], vec![axis(), Attribute::of_int("keepdims", 0)]);
        self.node("Softmax", PROBABILITIES, &[outputs], vec![axis()]);
        let classes = i64::from(self.held.description.classes);
        self.graph.outputs.extend([
            Value::of_samples(CLASS, Kind::Int64, &[]),
            Value::of_samples(PROBABILITIES, Kind::Float, &[classes]),
        ]);
    }

    fn labels(&mut self, outputs: &str) {
        let zero = self.constant("none", Kind::Float, &[], 0_f32.to_le_bytes().to_vec());
        let is_above = self.node("Greater", "is_above", &[outputs, &zero], Vec::new());
        self.node("Cast", LABELS, &[&is_above], vec![Attribute::of_int("to", Kind::Int64 as i64)]);
        self.node("Sigmoid", PROBABILITIES, &[outputs], Vec::new());
        let labels = i64::from(self.held.description.labels);
        self.graph.outputs.extend([
            Value::of_samples(LABELS, Kind::Int64, &[labels]),
            Value::of_samples(PROBABILITIES, Kind::Float, &[labels]),
        ]);
    }

    fn numbers(&mut self, outputs: &str, labels: &[LabelScale]) {
        let usual = [LabelScale { mean: 0.0, deviation: 1.0 }];
        let labels = if labels.is_empty() { &usual } else { labels };
        let row = match labels {
            [_] => {
                let axes = self.constant("outputs", Kind::Int64, &[1], 1_i64.to_le_bytes().to_vec());
                self.node("Squeeze", "row", &[outputs, &axes], Vec::new())
            }
            _ => outputs.to_owned(),
        };
        let wide = self.node("Cast", "wide", &[&row], vec![Attribute::of_int("to", Kind::Double as i64)]);
        let of = |of: fn(&LabelScale) -> f64| labels.iter().map(of).collect::<Vec<f64>>();
        let deviation = self.doubles(LABEL_DEVIATION, &of(|scale| scale.deviation));
        let mean = self.doubles(LABEL_MEAN, &of(|scale| scale.mean));
        let spread = self.node("Mul", "spread", &[&wide, &deviation], Vec::new());
        let number = self.node("Add", "number", &[&spread, &mean], Vec::new());
        self.node("Cast", PREDICTION, &[&number], vec![Attribute::of_int("to", Kind::Float as i64)]);
        let several: Vec<i64> = (labels.len() > 1).then_some(labels.len() as i64).into_iter().collect();
        self.graph.outputs.push(Value::of_samples(PREDICTION, Kind::Float, &several));
    }

    /// The graph, once each parameter has its place.
    fn finish(self) -> Result<Graph, String> {
        let other = self.held.description.parameters.iter().find(|entry| !self.taken.contains(&entry.path.as_str()));
        match other {
            Some(entry) => Err(format!("nothing is known there of its tensor `{}`; take --layout torch", entry.path)),
            None => Ok(self.graph),
        }
    }
}

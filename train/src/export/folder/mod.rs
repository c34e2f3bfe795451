//! A trained model as a folder: the model's file, and beside it what it is and how it is used.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use starling_run::data::columns::Column;
use starling_run::data::{IMAGES, LabelScale};
use starling_run::program::export::{CARD, DESCRIPTION, MODEL, SCRIPT};
use starling_run::{FeatureScale, Manifest, PreprocessingSpec};

use super::description::settings;
use super::read::Held;
use super::{BYTES, DataOrigin, Description, ExportOptions, FORMAT, Layout, NumberFormat, Origin, TOKENIZER};
use crate::network::forward::OutputKind;
use crate::network::transformer::Size;

/// Features and classes that the card names.
const MAX_NAMED: usize = 20;
/// What stands in the place of a description's own hash while that is computed.
const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// The parts of a script: what all have, how samples are read, and what layers make of them.
const START: &str = include_str!("start.py");
const OF_TABLES: &str = include_str!("table.py");
const OF_IMAGES: &str = include_str!("images.py");
const DENSE: &str = include_str!("dense.py");
const CONVOLUTIONAL: &str = include_str!("convolutional.py");

/// The files of the folder, by their names, with the bytes of the model's, which were written so. Two of one checkpoint are equal to the
/// byte, but for the measures, which only a run knows.
pub(super) fn files(held: &Held, model: Vec<u8>, options: &ExportOptions) -> Vec<(&'static str, Vec<u8>)> {
    let description = &held.description;
    let digest = blake3::hash(&model).to_string();
    let tokenizer = description.tokenizer();
    let of_tokenizer = tokenizer.map(|tokenizer| tokenizer.digest().to_string());
    let told = Told::of(held, options, (&digest, of_tokenizer.as_deref()));
    let mut text = serde_json::to_string_pretty(&told).expect("invariant: texts and finite numbers are always JSON");
    text.push('\n');
    let own = hash_of(&text, NO_HASH).expect("invariant: it holds the place of its own hash");
    let mut files = vec![(MODEL, model), (DESCRIPTION, text.replacen(NO_HASH, &own, 1).into_bytes())];
    files.push((CARD, card(description, told.task, options).into_bytes()));
    files.extend(tokenizer.map(|tokenizer| (TOKENIZER, tokenizer.json.clone().into_bytes())));
    if let Some(script) = script(description).filter(|_| options.is_plain()) {
        files.push((SCRIPT, script.into_bytes()));
    }
    files
}

/// The hash of a description that holds `own` as its hash: of its bytes, with zeros in the place of that. `None` if it does not hold it.
pub(super) fn hash_of(text: &str, own: &str) -> Option<String> {
    (own.len() == NO_HASH.len() && text.contains(own))
        .then(|| blake3::hash(text.replacen(own, NO_HASH, 1).as_bytes()).to_string())
}

/// What `model.json` says, in this order.
#[derive(Serialize)]
struct Told<'a> {
    format: &'static str,
    /// `classification`, `regression`, `text`, or a program's own.
    task: &'a str,
    model: String,
    settings: Value,
    run: &'a str,
    step: u64,
    digest: &'a Option<String>,
    values: &'a Option<String>,
    /// How the tensors are laid out and called, and of which kind their numbers are.
    layout: &'static str,
    dtype: &'static str,
    parameters: usize,
    tensors: Vec<Tensor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inputs: Option<Inputs<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    classes: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preprocessing: Option<Preprocessing<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: &'a Option<Data>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    measures: Vec<Measure<'a>>,
    files: Hashes<'a>,
}

/// A tensor of the model's file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
}

#[derive(Serialize)]
struct Inputs<'a> {
    shape: [u32; 3],
    features: usize,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    names: &'a [String],
    #[serde(skip_serializing_if = "<[Column]>::is_empty")]
    columns: &'a [Column],
    #[serde(skip_serializing_if = "Option::is_none")]
    label_column: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_scale: Option<LabelScale>,
    /// The same of several columns of labels, in the order of the outputs.
    #[serde(skip_serializing_if = "<[u32]>::is_empty")]
    label_columns: &'a [u32],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    label_names: &'a [String],
    #[serde(skip_serializing_if = "<[LabelScale]>::is_empty")]
    label_scales: &'a [LabelScale],
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delimiter: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(tag = "scaling", rename_all = "snake_case")]
enum Preprocessing<'a> {
    Divide { divisor: f64 },
    Standardize { means: &'a [f64], deviations: &'a [f64] },
}

/// Of a language model: how large it is, and what it takes.
#[derive(Serialize)]
struct Text {
    /// What tokens are.
    tokenizer: &'static str,
    tokens: u32,
    /// The one behind each document.
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<u32>,
    /// How many it sees at once.
    context: usize,
    layers: usize,
    width: usize,
    heads: usize,
    /// Of keys and values.
    key_heads: usize,
    /// Whether the embeddings are the weights of the output, too.
    tied_output: bool,
}

impl Text {
    fn of(description: &Description) -> Option<Self> {
        let Size { layers, width, heads, key_heads, context, tied_output, .. } = description.decoder()?;
        let tokens = description.classes;
        let end = description.tokenizer().map(|tokenizer| tokenizer.end);
        let tokenizer = if end.is_some() { TOKENIZER } else { BYTES };
        Some(Self { tokenizer, tokens, end, context, layers, width, heads, key_heads, tied_output })
    }
}

/// The data that it was trained on.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Data {
    kind: String,
    pub(super) samples: u64,
    held_out_permille: u32,
    seed: u64,
    pub(super) fingerprint: String,
}

impl Data {
    /// That of a run.
    pub(super) fn of(manifest: &Manifest) -> Self {
        let data = &manifest.data;
        Self {
            kind: data.kind.clone(),
            samples: data.samples,
            held_out_permille: data.held_out,
            seed: manifest.seed,
            fingerprint: data.fingerprint.to_string(),
        }
    }
}

#[derive(Serialize)]
struct Measure<'a> {
    name: &'a str,
    mean: f64,
}

#[derive(Serialize)]
struct Hashes<'a> {
    #[serde(rename = "model.safetensors")]
    model: &'a str,
    #[serde(rename = "tokenizer.json", skip_serializing_if = "Option::is_none")]
    tokenizer: Option<&'a str>,
    /// Of the description itself.
    #[serde(rename = "model.json")]
    description: &'static str,
}

impl<'a> Told<'a> {
    /// With the hashes of the model's file and of the tokenizer's, if there is one.
    fn of(held: &'a Held, options: &ExportOptions, (model_hash, tokenizer_hash): (&'a str, Option<&'a str>)) -> Self {
        let description = &held.description;
        let Description { model, origin, trained_on, shape, .. } = description;
        let Origin { run, step, digest: of_state, values, measures, .. } = origin;
        let ExportOptions { layout, numbers } = *options;
        let tensor = |entry| Some(Tensor { name: layout.tensor(entry)?, shape: layout.shape(entry) });
        let learns = description.learns();
        let inputs = |on: &'a DataOrigin| {
            let PreprocessingSpec { features, columns, label: names, labels: scales, .. } = &on.preprocessing;
            let are_several = description.labels > 1;
            let one = |is_it: bool| is_it && !are_several;
            Inputs {
                shape: *shape,
                features: description.features(),
                names: features,
                columns,
                label_column: on.label.first().copied().filter(|_| one(true)),
                label_name: names.first().map(String::as_str).filter(|_| one(true)),
                label_scale: scales.first().copied().filter(|_| one(learns == Some(OutputKind::Numbers))),
                label_columns: if are_several { &on.label } else { &[] },
                label_names: if are_several { names } else { &[] },
                label_scales: if are_several && learns == Some(OutputKind::Numbers) { scales } else { &[] },
                header: on.header,
                delimiter: on.delimiter.map(|delimiter| delimiter.name()),
            }
        };
        let scales = |on: &'a DataOrigin| match &on.preprocessing.scales {
            FeatureScale::Divide(divisor) => Some(Preprocessing::Divide { divisor: *divisor }),
            FeatureScale::Standardize { means, deviations } => Some(Preprocessing::Standardize { means, deviations }),
            FeatureScale::Tokenize(_) => None,
        };
        let on = trained_on.as_ref();
        Self {
            format: FORMAT,
            task: description.task(),
            model: model.to_string(),
            settings: settings(model),
            run,
            step: *step,
            digest: of_state,
            values,
            layout: layout.name(),
            dtype: numbers.name(),
            parameters: description.count(),
            tensors: description.parameters.iter().filter_map(tensor).collect(),
            inputs: on.map(inputs),
            classes: on
                .filter(|_| description.learns() == Some(OutputKind::Classes))
                .map(|on| &*on.preprocessing.classes),
            text: Text::of(description),
            preprocessing: on.filter(|_| description.learns() != Some(OutputKind::Text)).and_then(scales),
            data: &held.data,
            measures: measures
                .iter()
                .filter(|(_, mean)| mean.is_finite())
                .map(|(name, mean)| Measure { name, mean: *mean })
                .collect(),
            files: Hashes { model: model_hash, tokenizer: tokenizer_hash, description: NO_HASH },
        }
    }
}

/// What it is, for people.
fn card(description: &Description, task: &str, options: &ExportOptions) -> String {
    let Description { model, origin, shape, trained_on, .. } = description;
    let (run, step) = (&origin.run, origin.step);
    let mut card = format!("# {model}\n\nA {task} model, trained with Starling: run `{run}`, after step {step}.\n\n");
    if options.layout != Layout::Burn {
        card.push_str(&elsewhere(options));
        measured(&mut card, origin);
        return card;
    }
    if options.numbers != NumberFormat::F32 {
        card.push_str(&format!(
            "Its numbers are rounded to {}; what it was measured by are the whole ones.\n\n",
            options.numbers
        ));
    }
    let Some(on) = trained_on else {
        card.push_str(
            "The machine that exported it did not know how its data is scaled, or a program of its own trained it: `model.json` \
             has the names and shapes of its tensors.\n",
        );
        return card;
    };
    if description.learns() == Some(OutputKind::Text) {
        card.push_str(&of_text(description));
        measured(&mut card, origin);
        return card;
    }
    let is_table = !on.label.is_empty();
    // Those of IDX files are grey.
    let here = if is_table {
        "table.csv"
    } else if on.kind == IMAGES {
        "images/"
    } else {
        "images-idx3-ubyte"
    };
    card.push_str(&format!(
        "```sh\nstarling predict . --data {here} --out predictions.csv\nstarling eval . --data {here}\nstarling model show .\n```\n\n",
    ));
    if options.is_plain() {
        let (packages, what) = match is_table {
            true => ("numpy safetensors", ": of a CSV, or of JSON lines"),
            false => (
                "numpy safetensors pillow",
                ": of a PNG or JPEG image, of a folder of such, one line for each in the order of their names, or of a table of pixels",
            ),
        };
        let idx = if is_table || shape[0] > 1 { "" } else { ", or of an IDX file" };
        card.push_str(&format!(
            "Without Starling, `pip install {packages}` and `python predict.py {here}` do{what}{idx}.\n\n"
        ));
    }
    let [channels, height, width] = shape;
    let inputs = match is_table {
        false => format!("images of {channels}x{height}x{width}"),
        true if !on.preprocessing.columns.is_empty() => {
            let columns = description.columns(MAX_NAMED).into_iter().map(|column| column.replace(['\n', '\r'], " "));
            let columns = columns.collect::<Vec<_>>().join(", ");
            format!("{} columns: {columns}", on.preprocessing.columns.len())
        }
        true if on.preprocessing.features.is_empty() => format!("{} columns of numbers", description.features()),
        true => format!("{} columns: {}", description.features(), list(&on.preprocessing.features)),
    };
    card.push_str(&format!(
        "* **Inputs**: {inputs}. They are scaled as `model.json` says; `predict` and `predict.py` do that.\n"
    ));
    match description.learns() {
        Some(OutputKind::Classes) => card.push_str(&format!(
            "* **Classes**: {}. `starling predict --proba` says how probable each is, `--top-k 3` the most probable ones.\n",
            list(&on.preprocessing.classes)
        )),
        Some(OutputKind::Labels) => card.push_str(&format!(
            "* **Labels**: {}: 1 where a row has it, and 0 elsewhere. `starling predict --proba` says how probable each is.\n",
            list(&description.label_names())
        )),
        Some(OutputKind::Numbers) if description.labels > 1 => {
            card.push_str(&format!("* **Outputs**: a number for each of {}.\n", list(&description.label_names())));
        }
        Some(OutputKind::Numbers | OutputKind::Text) | None => card.push_str("* **Output**: a number.\n"),
    }
    measured(&mut card, origin);
    card
}

/// How it is used by other programs.
fn elsewhere(options: &ExportOptions) -> String {
    let how = match options.layout {
        Layout::Hf => {
            "```python\nfrom transformers import AutoTokenizer, LlamaForCausalLM\n\ntokenizer, model = AutoTokenizer.from_pretrained(\".\"), LlamaForCausalLM.from_pretrained(\".\")\n```"
        }
        Layout::Burn | Layout::Torch => {
            "```python\nfrom safetensors.torch import load_file\n\nmodule.load_state_dict(load_file(\"model.safetensors\"))\n```"
        }
    };
    let numbers = options.numbers;
    format!(
        "{how}\n\nIts layout is `{}`, its numbers are {numbers}. Of Starling's verbs, only `starling run --init model.safetensors` takes it.\n\n",
        options.layout
    )
}

/// How a language model is used, and what it takes.
fn of_text(description: &Description) -> String {
    let (what, one) = match description.tokenizer() {
        Some(tokenizer) => (
            format!(
                "the {} tokens that `{TOKENIZER}` knows (Hugging Face's `tokenizers` reads it, too), of which {} ends a document",
                description.classes, tokenizer.end
            ),
            "token",
        ),
        None => ("bytes (UTF-8)".to_owned(), "byte"),
    };
    format!(
        "```sh\nstarling generate . --prompt \"Once upon a time\"\nstarling eval . --data text.txt\nstarling model show .\n```\n\n\
         There is no `predict.py` for it: its tensors are those of a decoder in the shape of Llama (RMSNorm, rotated halves of heads, SwiGLU, \
         no biases).\n\n\
         * **Inputs**: text, as {what}, of which it sees {} at once.\n* **Output**: how probable each next {one} is.\n",
        description.features()
    )
}

/// What was measured of it, and what it can be compared by.
fn measured(card: &mut String, origin: &Origin) {
    for (name, mean) in &origin.measures {
        card.push_str(&format!("* **{}** on the samples that were held out: {mean}.\n", on_one_line(name)));
    }
    for (name, value) in [("Digest", &origin.digest), ("Values", &origin.values)] {
        if let Some(value) = value {
            card.push_str(&format!("* **{name}**: `{}`.\n", on_one_line(value)));
        }
    }
    card.push_str("\n`model.json` has all of this for programs, with the blake3 of `model.safetensors`.\n");
}

/// A text, which may be a stranger's, that stays within its line and its backticks.
fn on_one_line(text: &str) -> String {
    text.replace(['`', '\n', '\r'], " ")
}

/// Some names, the first of many, as Markdown takes them.
fn list(names: &[String]) -> String {
    let shown = names.iter().take(MAX_NAMED).map(|name| format!("`{}`", on_one_line(name)));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// How it is used from Python; `None` of what nobody can use without more.
fn script(description: &Description) -> Option<String> {
    let on = description.trained_on.as_ref()?;
    let samples = match on.preprocessing.scales {
        FeatureScale::Divide(_) => OF_IMAGES,
        FeatureScale::Standardize { .. } => OF_TABLES,
        FeatureScale::Tokenize(_) => return None,
    };
    description.learns().filter(|learns| *learns != OutputKind::Text)?;
    // Kernels have four sides.
    let is_convolutional = description.parameters.iter().any(|entry| entry.shape.len() == 4);
    Some([START, samples, if is_convolutional { CONVOLUTIONAL } else { DENSE }].concat())
}

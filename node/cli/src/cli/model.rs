//! Flags of the verbs that use a trained model.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

pub(super) const PREDICT_EXAMPLES: &str = "\
Examples:
  starling predict model.safetensors --data new.csv
  starling predict out/ --data new.csv --out predictions.csv --proba
  starling predict out/ --data new-images/ --out predictions.csv
  starling predict state/ --data images-idx3-ubyte.gz --top-k 3 --out predictions.jsonl
  ... | starling predict model.safetensors --data - | ...

MODEL is what `--export` or `starling checkpoint export` wrote, a checkpoint (step-*.json), or the data directory of a member, also of
one that trains. A table has the columns that the model was trained on, by their names if that table had a header, else in the same
order, with or without the column of the labels. It may be larger than memory. `starling model show MODEL` lists the columns.";

pub(super) const EXPORT_EXAMPLES: &str = "\
Examples:
  starling export out/ --out model.onnx
  starling export model.safetensors --out torch.safetensors --layout torch
  starling export state/ --out half/ --dtype f16
  starling export state/ --out llama/ --layout hf --dtype bf16

MODEL is what `predict` takes. An output that ends with .onnx is an ONNX graph, from samples as they are in the data to predictions; one
that ends with a slash, or is a folder, is a folder with a description; others are safetensors files. hf is a folder that Hugging Face's
tools open as a Llama: of a gpt alone.";

pub(super) const EVAL_EXAMPLES: &str = "\
Examples:
  starling eval model.safetensors --data table.csv
  starling eval model.safetensors --data table.csv --held-out
  starling eval state/ --data mnist/ --held-out --json

With --held-out and the data that the run was trained on, it prints what the run printed at its end.";

pub(super) const GENERATE_EXAMPLES: &str = "\
Examples:
  starling generate out/ --prompt \"In the beginning\" --seed 7
  starling generate state/ --prompt \"Q: \" --stop \"Q:\" --temperature 0.5 --top-k 40
  echo \"In the\" | starling generate out/ --tokens 1000 --json

MODEL is what `predict` takes, of a run with --model gpt. What it prints is what follows the prompt, as it comes. A token is a byte, or,
of a model that learned a text that was prepared, one of its tokenizer's; the one that ends a document ends the text. Of a prompt that is
longer than the model's context, the end counts; an empty one is as the end of a line, or of a document. The same seed gives the same text
on the same kind of device.";

/// Which checkpoint of a data directory.
#[derive(Debug, Clone, Default, Args)]
pub struct WhichFlags {
    /// Of a data directory: the run, by the first digits of its id [default: the run that was saved last]
    #[arg(long, value_name = "PREFIX")]
    pub run: Option<String>,
    /// Of a data directory: the checkpoint after this step [default: the newest]
    #[arg(long, value_name = "STEP")]
    pub step: Option<u64>,
}

impl WhichFlags {
    /// The place that they say, of what lies at a path.
    #[cfg(feature = "train")]
    pub(crate) fn of(&self, path: impl Into<PathBuf>) -> starling::export::ModelLocation {
        use starling::export::ModelLocation;
        let place = self.run.iter().fold(ModelLocation::at(path), |place, run| place.of_run(run));
        self.step.into_iter().fold(place, ModelLocation::after_step)
    }
}

/// A trained model.
#[derive(Debug, Clone, Args)]
pub struct ModelFlags {
    /// A .safetensors file or folder that was exported, a checkpoint (step-*.json), or a data directory
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// Which checkpoint.
    #[command(flatten)]
    pub which: WhichFlags,
}

impl ModelFlags {
    /// Where it lies.
    #[cfg(feature = "train")]
    pub(crate) fn place(&self) -> starling::export::ModelLocation {
        self.which.of(&self.model)
    }
}

/// How tensors are laid out and called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LayoutName {
    /// As Burn does it: a linear weight is inputs by outputs.
    Burn,
    /// As PyTorch does it: a linear weight is outputs by inputs.
    Torch,
    /// As a Llama of Hugging Face's `transformers`.
    Hf,
}

/// Of which kind numbers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NumberName {
    /// 32 bits, as they are computed.
    F32,
    /// 16 bits, with the same range.
    Bf16,
    /// 16 bits, up to 65,504.
    F16,
}

/// `starling export`.
#[derive(Debug, Clone, Args)]
pub struct OutputFlags {
    /// The model.
    #[command(flatten)]
    pub model: ModelFlags,
    /// The safetensors file to write; an ONNX file if it ends with .onnx; a folder if it ends with a slash or is one already, and for hf
    #[arg(long, visible_alias = "to", value_name = "FILE|DIR/")]
    pub out: PathBuf,
    /// How tensors are laid out and called: burn, torch, or hf, a folder for Hugging Face's tools [default: burn]
    #[arg(long, value_name = "LAYOUT")]
    pub layout: Option<LayoutName>,
    /// The numbers of tensors: f32, bf16 or f16, rounded to the nearest one [default: f32]
    #[arg(long, value_name = "KIND")]
    pub dtype: Option<NumberName>,
}

/// How predictions are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatName {
    /// A table with a header.
    Csv,
    /// A JSON object per line.
    Jsonl,
}

/// `starling predict`.
#[derive(Debug, Clone, Args)]
pub struct PredictFlags {
    /// The model.
    #[command(flatten)]
    pub model: ModelFlags,
    /// A table (CSV, JSON lines, Parquet), an IDX file of images or a folder of these, a PNG or JPEG file or a folder of these; `digits`
    /// for the built-in ones, `-` for the standard input
    #[arg(long, value_name = "FILE|DIR|digits|-")]
    pub data: String,
    /// What separates the cells of the table: comma, tab, semicolon, pipe or space [default: what separated those that the model was
    /// trained on, if the table has it, else what is found]
    #[arg(long, value_name = "DELIMITER")]
    pub delimiter: Option<starling_run::Delimiter>,
    /// The file to write; it is there once all is predicted [default: the standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// csv or jsonl, a JSON object per line [default: jsonl if FILE ends so or with --json, else csv]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<FormatName>,
    /// The N most probable classes, with their probabilities, behind each prediction [default: none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub top_k: Option<u16>,
    /// The probability of every class behind each prediction [default: none]
    #[arg(long)]
    pub proba: bool,
    /// auto, cpu, gpu or gpu:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
}

/// `starling generate`.
#[derive(Debug, Clone, Args)]
pub struct GenerateFlags {
    /// The model.
    #[command(flatten)]
    pub model: ModelFlags,
    /// What the text begins with [default: the standard input]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// How many tokens follow, if nothing ends the text before
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..))]
    pub tokens: u64,
    /// What the logits are divided by: the lower, the more probable is what is probable; 0 takes the most probable token
    #[arg(long, value_name = "NUMBER", default_value_t = 0.8, value_parser = temperature, allow_negative_numbers = true)]
    pub temperature: f64,
    /// Draw from the N most probable tokens [default: from all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), allow_negative_numbers = true)]
    pub top_k: Option<u16>,
    /// Draw from the fewest tokens that have this probability together; 1 is all
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = share, allow_negative_numbers = true)]
    pub top_p: f64,
    /// Seed of what is drawn
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub seed: u64,
    /// End before this text; may be given several times [default: --tokens ends it, or the token that ends a document]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub stop: Vec<String>,
    /// Compute everything anew for each token, to compare: slower by far
    #[arg(long)]
    pub no_cache: bool,
    /// auto, cpu, gpu or gpu:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
}

fn temperature(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "must be a number from 0 to 100".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| *number > 0.0 && *number <= 1.0);
    number.ok_or_else(|| "must be a share above 0, up to 1".to_owned())
}

/// `starling eval`.
#[derive(Debug, Clone, Args)]
pub struct EvalFlags {
    /// The model.
    #[command(flatten)]
    pub model: ModelFlags,
    /// A table with labels (CSV, JSON lines, Parquet), an IDX file of images whose labels lie beside it, a folder of these, a folder with a
    /// folder of images for each class, or for a gpt a text, also one that was prepared; `digits` for the built-in ones, `-` for a table or a text on the standard input
    #[arg(long, value_name = "FILE|DIR|digits|-")]
    pub data: String,
    /// What separates the cells of the table: comma, tab, semicolon, pipe or space [default: what separated those that the model was
    /// trained on, if the table has it, else what is found]
    #[arg(long, value_name = "DELIMITER")]
    pub delimiter: Option<starling_run::Delimiter>,
    /// Only the samples that the run kept from training, of the data that it was trained on [default: all]
    #[arg(long)]
    pub held_out: bool,
    /// auto, cpu, gpu or gpu:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
}

/// `starling model`.
#[derive(Debug, Clone, Subcommand)]
pub enum ModelVerb {
    /// Show what is known of a trained model: its task, inputs, classes, parameters, run and step
    Show(ModelFlags),
}

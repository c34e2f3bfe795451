//! Exports for other programs, as they are read: by our own code, and where there is a Python with what it needs, by theirs.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use starling_data::stream::{LabelPolicy, Reader};
use starling_run::manifest::schema::Entry;
use starling_run::program::export::{CONFIG, DESCRIPTION, MODEL, SCRIPT};
use starling_run::{Learner, Schema};

use super::super::tests::{options, python, several, table, trained, words};
use super::super::{Model, Prediction};
use super::*;
use crate::{DataOptions, DeviceSpec};

const CPU: DeviceSpec = DeviceSpec::Cpu;

/// What is known of a file: its metadata, and each tensor's type, shape and bytes.
struct Opened {
    metadata: HashMap<String, String>,
    tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>,
}

impl Opened {
    fn at(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("there");
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("a header");
        let file = SafeTensors::deserialize(&bytes).expect("tensors");
        let mut tensors: Vec<_> = file
            .tensors()
            .into_iter()
            .map(|(name, view)| (name, view.dtype(), view.shape().to_vec(), view.data().to_vec()))
            .collect();
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        Self { metadata: header.metadata().clone().unwrap_or_default(), tensors }
    }

    fn tensor(&self, name: &str) -> &(String, Dtype, Vec<usize>, Vec<u8>) {
        self.tensors.iter().find(|tensor| tensor.0 == name).unwrap_or_else(|| panic!("no tensor {name}"))
    }
}

/// A model that was trained, and its export in a folder of its own.
fn exported(model: &str, data: &DataOptions, folder: &Path) -> (Box<dyn Learner>, PathBuf) {
    let (learner, path) = (trained(model, data), folder.join(format!("{}.safetensors", model.replace(':', "-"))));
    learner.export(&path).expect("exported");
    (learner, path)
}

/// The parameters of an export, in the order of its module.
fn schema(path: &Path) -> Schema {
    Schema::new(open(path).expect("read back").description.parameters)
}

fn with(layout: Layout, numbers: NumberFormat) -> ExportOptions {
    ExportOptions::new(layout, numbers)
}

#[test]
fn what_is_written_in_a_layout_begins_a_run_with_the_same_bits() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    for (model, data, layouts) in [
        ("mlp:8,6", options(&table(path, 300)), &[Layout::Burn, Layout::Torch][..]),
        ("cnn:4,8", DataOptions::default(), &[Layout::Torch]),
        ("cnn:4,4,8+residual", DataOptions::default(), &[Layout::Torch]),
        ("gpt:2x16x2", words(path), &[Layout::Burn, Layout::Torch, Layout::Hf]),
        ("gpt:2x32x4x2+tied-output", words(path), &[Layout::Burn, Layout::Torch, Layout::Hf]),
    ] {
        let (learner, source) = exported(model, &data, path);
        let (state, schema) = (learner.state(), schema(&source));
        for layout in layouts {
            let to = path.join(format!("{}-{layout}", model.replace(':', "-"))).join("");
            write_exported(&source, &to, &with(*layout, NumberFormat::F32)).expect("written");
            let values = read_weights(&to.join(MODEL), &schema).expect("read back");
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
            assert!(bits(&values) == bits(&state.parameters), "{model} in {layout}");
            let opened = Opened::at(&to.join(MODEL));
            assert_eq!(opened.metadata["layout"], layout.name());
            // What the description says is so, and it and only it is what this program takes further.
            let told: serde_json::Value =
                serde_json::from_slice(&std::fs::read(to.join(DESCRIPTION)).expect("there")).expect("JSON");
            assert_eq!((&told["layout"], &told["dtype"]), (&layout.name().into(), &"f32".into()));
            let listed = told["tensors"].as_array().expect("a list");
            assert_eq!(listed.len(), opened.tensors.len());
            for tensor in listed {
                let (_, _, shape, _) = opened.tensor(tensor["name"].as_str().expect("a name"));
                assert_eq!(tensor["shape"], serde_json::json!(shape));
            }
            assert_eq!(to.join(SCRIPT).exists(), *layout == Layout::Burn && !model.starts_with("gpt"));
            assert_eq!(to.join(CONFIG).exists(), *layout == Layout::Hf);
            let reopened = Model::open(&to, CPU).map(|_| ()).map_err(|error| error.to_string());
            match layout {
                Layout::Burn => assert_eq!(reopened, Ok(())),
                Layout::Torch | Layout::Hf => {
                    let error = reopened.expect_err("of another layout");
                    assert!(
                        error.contains(&format!("its layout is `{layout}`")) && error.contains("--init"),
                        "{error}"
                    );
                    let error = write_exported(&to, &path.join("again/"), &with(Layout::Burn, NumberFormat::F32));
                    assert!(error.expect_err("of another layout").to_string().contains("its layout is"));
                }
            }
        }
        // As it stands, it is what the run wrote.
        let again = path.join("again.safetensors");
        write_exported(&source, &again, &ExportOptions::default()).expect("written");
        assert!(std::fs::read(&again).expect("there") == std::fs::read(&source).expect("there"), "{model}");
    }
}

#[test]
fn numbers_of_16_bits_are_rounded_once_and_read_by_all_verbs() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let data = options(&table(path, 300));
    let (_, source) = exported("mlp:8", &data, path);
    let schema = schema(&source);
    let rows = [12.5, 3.0, 7.0, 0.5, 9.0, 7.0];
    let most = |said: Vec<Prediction>| -> Vec<Vec<f64>> {
        let of = |prediction| match prediction {
            Prediction::Class { probabilities, .. } => probabilities,
            _ => panic!("of classes"),
        };
        said.into_iter().map(of).collect()
    };
    let whole = most(Model::open(&source, CPU).expect("read back").predict(&rows).expect("predicted"));
    for (numbers, dtype, other, apart) in [
        (NumberFormat::Bf16, Dtype::BF16, NumberFormat::F16, 0.03),
        (NumberFormat::F16, Dtype::F16, NumberFormat::Bf16, 0.004),
    ] {
        let to = path.join(numbers.name()).join("");
        write_exported(&source, &to, &with(Layout::Burn, numbers)).expect("written");
        let opened = Opened::at(&to.join(MODEL));
        assert!(opened.tensors.iter().all(|tensor| tensor.1 == dtype), "{numbers}");
        assert!(!to.join(SCRIPT).exists(), "it is for whole numbers");
        let said = most(Model::open(&to, CPU).expect("read back").predict(&rows).expect("predicted"));
        let distance =
            said.iter().flatten().zip(whole.iter().flatten()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(distance > 0.0 && distance < apart, "{numbers}: {distance}");
        // Read as they are: what is made of them in whole numbers has the values that they stand for.
        let again = path.join("again.safetensors");
        write_exported(&to, &again, &ExportOptions::default()).expect("widened");
        let (short, wide) = (read_weights(&to.join(MODEL), &schema), read_weights(&again, &schema));
        assert_eq!(short.expect("read back"), wide.expect("read back"));
        write_exported(&to, &again, &with(Layout::Torch, numbers)).expect("turned, and not rounded again");
        let error = write_exported(&to, &again, &with(Layout::Burn, other)).expect_err("twice").to_string();
        assert!(error.contains("would be rounded twice") && error.contains(&format!("--dtype {numbers}")), "{error}");
    }
}

/// The same file with one number of a tensor replaced.
fn with_number(source: &Path, to: &Path, tensor: &str, number: f32) {
    let mut bytes = std::fs::read(source).expect("there");
    let (header, _) = SafeTensors::read_metadata(&bytes).expect("a header");
    let file = SafeTensors::deserialize(&bytes).expect("tensors");
    let place = file.tensor(tensor).expect("there").data().as_ptr() as usize - bytes.as_ptr() as usize;
    assert!(place > header);
    bytes[place..place + 4].copy_from_slice(&number.to_le_bytes());
    std::fs::write(to, bytes).expect("written");
}

#[test]
fn what_can_not_be_written_so_is_refused_by_name_and_nothing_is_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let (_, mlp) = exported("mlp:8", &options(&table(path, 300)), path);
    let (_, gpt) = exported("gpt:1x16x2", &words(path), path);
    let large = path.join("large.safetensors");
    with_number(&mlp, &large, "hidden.0.bias", 70_000.0);
    let before = std::fs::read_dir(path).expect("read").count();
    let to = path.join("out/");
    let (plain, f32) = (Layout::Burn, NumberFormat::F32);
    for (source, options, parts) in [
        (&mlp, with(Layout::Hf, f32), ["`mlp:8` can't be written for Hugging Face's", "take --layout torch"]),
        (&large, with(plain, NumberFormat::F16), ["`hidden.0.bias` has the number 70000", "take --dtype bf16 or f32"]),
        (&path.join("none.safetensors"), with(plain, f32), ["cannot read the model", "none.safetensors"]),
    ] {
        let error = write_exported(source, &to, &options).expect_err("refused").to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{parts:?}: {error}");
    }
    with_number(&mlp, &large, "hidden.0.bias", f32::MAX);
    let error = write_exported(&large, &to, &with(plain, NumberFormat::Bf16)).expect_err("beyond").to_string();
    assert!(error.contains("`hidden.0.bias`") && error.ends_with("take --dtype f32"), "{error}");
    let error = write_exported_onnx(&gpt, &path.join("model.onnx")).expect_err("a text").to_string();
    assert!(error.contains("`gpt:1x16x2` can't be written as ONNX") && error.contains("--layout hf"), "{error}");
    assert!(error.contains("`layers.0.attention` turns") && error.contains("`RotaryEmbedding`"), "{error}");
    // A leaf that has no place in a graph is not left out of it.
    let mut held = open(&mlp).expect("read back");
    held.description.parameters[0].path = "hidden.0.scale".to_owned();
    let error = onnx::encode(&held, &mlp).expect_err("unknown").to_string();
    assert!(error.contains("as ONNX: nothing is known there of its tensor `hidden.0.scale`"), "{error}");
    held.description.trained_on = None;
    assert!(matches!(onnx::encode(&held, &mlp), Err(ModelError::NoScales { .. })));
    assert_eq!(std::fs::read_dir(path).expect("read").count(), before, "nothing is left");
    for (to, part) in [(mlp.join(""), "it is a file"), (path.join("missing/model.onnx"), "missing/model.onnx")] {
        let error = write_exported(&mlp, &to, &with(Layout::Torch, f32)).expect_err("no place").to_string();
        assert!(error.contains("cannot write the model to") && error.contains(part), "{error}");
    }
}

/// What a script prints, that must end well.
fn printed(python: &OsString, script: &str, arguments: &[&Path]) -> String {
    let output = Command::new(python).args(["-c", script]).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A model of each kind that has a graph, with data for it.
fn of_all_kinds(path: &Path) -> Vec<(&'static str, DataOptions)> {
    // A column of large numbers that are near to each other, one that is constant, one with gaps.
    let row = |at: u32| {
        let gap = if at % 7 == 3 { String::new() } else { (at % 5).to_string() };
        format!("{}.25,{gap},7,{},{}\n", 1_700_000_000 + at * 13 % 97, ["x", "y", "z"][at as usize % 3], at * 7 % 23)
    };
    let numbers = path.join("numbers.csv");
    std::fs::write(&numbers, format!("time,of five,same,kind,amount\n{}", (0..300).map(row).collect::<String>()))
        .expect("written");
    let label = |name: &str| Some(starling_data::TableColumn::Written(name.to_owned()));
    let of_numbers =
        DataOptions { source: numbers.display().to_string(), label: label("amount"), ..DataOptions::default() };
    let of_classes = DataOptions { label: label("kind"), ..of_numbers.clone() };
    let digits = DataOptions::default();
    vec![
        ("softmax", of_classes.clone()),
        ("mlp:8,6", of_classes.clone()),
        ("linear", of_numbers.clone()),
        ("regression:8", of_numbers),
        ("mlp:16", digits.clone()),
        ("cnn:4,8", digits.clone()),
        ("mlp:8,6+batch-norm", of_classes),
        ("cnn:4,8+batch-norm", digits.clone()),
        ("cnn:4,4,8+residual", digits.clone()),
        ("cnn:1,1+batch-norm+residual", digits),
        ("regression:8", several(path, "rent,price")),
        ("mlp:8", several(path, "wide,large")),
    ]
}

/// A model, what it says of the first samples of its data, and a file of these as JSON, for a script.
fn asked(source: &Path, data: &DataOptions, folder: &Path) -> (Model, Vec<Prediction>, PathBuf) {
    let model = Model::open(source, CPU).expect("read back");
    let mut reader = Reader::open(&data.source, &model.inputs().expect("inputs"), LabelPolicy::Unused).expect("data");
    let block = reader.next_block(64).expect("read").expect("a block");
    let said = model.predict(&block.values).expect("predicted");
    assert!(said.len() == 64, "{}", said.len());
    // JSON has no NaN, which stands for a gap.
    let values: Vec<Option<f64>> = block.values.iter().map(|it| it.is_finite().then_some(*it)).collect();
    let told = serde_json::json!({ "values": values, "shape": model.description().shape });
    let input = folder.join("input.json");
    std::fs::write(&input, told.to_string()).expect("written");
    (model, said, input)
}

/// Checks what a script has said of the same samples: `class` and `probabilities`, or `prediction`, so near to ours.
fn check(model: &Model, said: &[Prediction], printed: &str, distance: f64) {
    let theirs: serde_json::Value = serde_json::from_str(printed).expect("JSON");
    let near = |a: f64, b: &serde_json::Value| (a - b.as_f64().expect("a number")).abs() < distance * a.abs().max(1.0);
    for (at, ours) in said.iter().enumerate() {
        match ours {
            Prediction::Class { class, probabilities } => {
                assert_eq!(theirs["class"][at], *class, "{}, row {at}", model.name());
                let their = theirs["probabilities"][at].as_array().expect("a row");
                let is_near = probabilities.iter().zip(their).all(|(a, b)| near(*a, b));
                assert!(probabilities.len() == their.len() && is_near, "{}, row {at}: {ours:?}", model.name());
            }
            Prediction::Number(number) => {
                let their = &theirs["prediction"][at];
                assert!(near(f64::from(*number), their), "{}, row {at}: {number}, {their}", model.name());
            }
            Prediction::Numbers(numbers) => {
                let their = theirs["prediction"][at].as_array().expect("a row");
                let is_near = numbers.iter().zip(their).all(|(a, b)| near(f64::from(*a), b));
                assert!(numbers.len() == their.len() && is_near, "{}, row {at}: {ours:?}, {their:?}", model.name());
            }
            Prediction::Labels { marks, probabilities } => {
                let their = theirs["probabilities"][at].as_array().expect("a row");
                let is_near = probabilities.iter().zip(their).all(|(a, b)| near(*a, b));
                assert!(
                    probabilities.len() == their.len() && is_near,
                    "{}, row {at}: {ours:?}, {their:?}",
                    model.name()
                );
                let labels = theirs["labels"][at].as_array().expect("a row");
                let said = marks.iter().zip(labels).all(|(mark, label)| *label == u8::from(*mark));
                assert!(said && labels.len() == marks.len(), "{}, row {at}: {labels:?}", model.name());
            }
        }
    }
}

/// Scaling is part of the graph, and of no weight.
#[test]
fn what_is_written_as_onnx_begins_a_run_with_the_same_bits() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    for (model, data) in &of_all_kinds(path) {
        let (_, source) = exported(model, data, path);
        let to = path.join("model.onnx");
        write_exported_onnx(&source, &to).expect("written");
        let bits = |path: &Path| -> Vec<u32> {
            let values = read_weights(path, &schema(&source)).expect("read back");
            values.iter().map(|value| value.to_bits()).collect()
        };
        assert!(bits(&to) == bits(&source), "{model}");
    }
}

#[test]
fn onnxruntime_predicts_as_the_model_does() {
    let Some(python) = python("numpy, onnx, onnxruntime") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    for (model, data) in &of_all_kinds(path) {
        let (_, source) = exported(model, data, path);
        let to = path.join("model.onnx");
        write_exported_onnx(&source, &to).expect("written");
        let first = std::fs::read(&to).expect("there");
        write_exported_onnx(&source, &to).expect("written");
        assert!(std::fs::read(&to).expect("there") == first, "one model, one file");
        let (model, said, input) = asked(&source, data, path);
        let script = r#"
import json, sys
import numpy as np, onnx, onnxruntime
onnx.checker.check_model(sys.argv[1], full_check=True)
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
told = json.load(open(sys.argv[2]))
given = session.get_inputs()[0]
x = np.array(told["values"], float).reshape(-1, *(told["shape"] if len(given.shape) == 4 else told["shape"][2:]))
x = x.astype({"tensor(double)": np.float64, "tensor(float)": np.float32}[given.type])
out = dict(zip((it.name for it in session.get_outputs()), session.run(None, {given.name: x})))
meta = session.get_modelmeta().custom_metadata_map
assert meta["step"] == "60" and ("class_names" in meta) == ("class" in out), meta
one = session.run(None, {given.name: x[:1]})
assert one[0].shape == next(iter(out.values()))[:1].shape, one[0].shape
print(json.dumps({name: it.tolist() for name, it in out.items()}))
"#;
        check(&model, &said, &printed(&python, script, &[&to, &input]), 1e-4);
    }
}

#[test]
fn pytorch_predicts_as_the_model_does() {
    let Some(python) = python("numpy, safetensors, torch") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    for (model, data) in &of_all_kinds(path) {
        let (_, source) = exported(model, data, path);
        let to = path.join("torch.safetensors");
        write_exported(&source, &to, &with(Layout::Torch, NumberFormat::F32)).expect("written");
        let (model, said, input) = asked(&source, data, path);
        let script = r#"
import json, sys
import torch
from safetensors import safe_open
from safetensors.torch import load_file

class Block(torch.nn.Module):
    def __init__(self, out, ins, has_norms):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(ins, out, 3, padding=1), torch.nn.Conv2d(out, out, 3, padding=1)
        self.projection = torch.nn.Conv2d(ins, out, 1) if ins != out else None
        norm = lambda: torch.nn.BatchNorm2d(out) if has_norms else torch.nn.Identity()
        self.first_norm, self.second_norm = norm(), norm()
        self.projection_norm = norm() if self.projection else None

    def forward(self, x):
        around = self.projection_norm(self.projection(x)) if self.projection else x
        return torch.relu(self.second_norm(self.second(torch.relu(self.first_norm(self.first(x))))) + around)

class Net(torch.nn.Module):
    def __init__(self, tensors):
        super().__init__()
        blocks = [tensors[key].shape for key in sorted(tensors) if key.endswith(".first.weight")]
        self.blocks = torch.nn.ModuleList(Block(*shape[:2], "blocks.0.first_norm.weight" in tensors) for shape in blocks)
        shapes = lambda name: [tensors[key].shape for key in sorted(tensors) if key.startswith(name + ".") and key.endswith(".weight")]
        make = lambda name, layer: torch.nn.ModuleList(layer(*shape) for shape in shapes(name))
        self.convolutions = make("convolutions", lambda out, ins, *_: torch.nn.Conv2d(ins, out, 3, padding=1))
        self.convolution_norms = make("convolution_norms", torch.nn.BatchNorm2d)
        self.hidden = make("hidden", lambda out, ins: torch.nn.Linear(ins, out))
        self.hidden_norms = make("hidden_norms", torch.nn.BatchNorm1d)
        self.output = torch.nn.Linear(*reversed(tensors["output.weight"].shape))

    def forward(self, x):
        for at, layer in enumerate(self.convolutions):
            x = layer(x)
            x = self.convolution_norms[at](x) if self.convolution_norms else x
            x = torch.max_pool2d(torch.relu(x), 2)
        for at, block in enumerate(self.blocks):
            x = block(torch.max_pool2d(x, 2) if at > 0 and block.projection else x)
        x = x.mean((2, 3)) if self.convolutions or self.blocks else x.flatten(1)
        for at, layer in enumerate(self.hidden):
            x = layer(x)
            x = torch.relu(self.hidden_norms[at](x) if self.hidden_norms else x)
        return self.output(x)

tensors = load_file(sys.argv[1])
net = Net(tensors).eval()
told = net.load_state_dict(tensors, strict=False)
assert not told.unexpected_keys and all(key.endswith("num_batches_tracked") for key in told.missing_keys), told
with safe_open(sys.argv[1], "pt") as file:
    meta = file.metadata()
told = json.load(open(sys.argv[2]))
x = torch.tensor([float("nan") if it is None else it for it in told["values"]], dtype=torch.float64).reshape(-1, *told["shape"])
if meta["scaling"] == "divide":
    x = x / float(meta["divisor"])
else:
    means, deviations = (torch.tensor(json.loads(meta[key]), dtype=torch.float64) for key in ("means", "deviations"))
    x = torch.where((deviations > 0) & ~x.isnan(), (x - means) / deviations, 0.0)
with torch.no_grad():
    out = net(x.float())
if "labels" in meta and meta["model"].startswith("mlp"):
    print(json.dumps({"labels": (out > 0).int().tolist(), "probabilities": out.sigmoid().tolist()}))
elif "labels" in meta:
    mean, deviation = (torch.tensor(json.loads(meta[key]), dtype=torch.float64) for key in ("label_mean", "label_deviation"))
    print(json.dumps({"prediction": (out.double() * deviation + mean).tolist()}))
elif out.shape[1] == 1:
    number = out[:, 0].double() * float(meta["label_deviation"]) + float(meta["label_mean"])
    print(json.dumps({"prediction": number.tolist()}))
else:
    print(json.dumps({"class": out.argmax(1).tolist(), "probabilities": out.softmax(1).tolist()}))
"#;
        check(&model, &said, &printed(&python, script, &[&to, &input]), 1e-5);
    }
}

#[test]
fn transformers_goes_on_with_a_text_as_the_model_does() {
    let Some(python) = python("torch, transformers") else { return };
    for spec in ["gpt:2x32x2", "gpt:2x64x4x2+tied-output"] {
        transformers_takes(spec, &python);
    }
}

fn transformers_takes(spec: &str, python: &OsString) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let (_, source) = exported(spec, &words(path), path);
    let to = path.join("llama");
    write_exported(&source, &to, &with(Layout::Hf, NumberFormat::F32)).expect("written");
    // Logits of a prefix, by our module, and greedy bytes behind it.
    let model = Model::open(&source, CPU).expect("read back");
    let greedy = super::super::SamplingOptions { temperature: 0.0, ..Default::default() };
    let mut generation = model.generate(b"rose is", greedy).expect("a language model");
    let ours: Vec<u32> = (0..8).map(|_| generation.draw().expect("drawn")).collect();
    let (transformer, device) = model.transformer().expect("a language model");
    let tokens: Vec<i64> = b"rose is a rose".iter().map(|byte| i64::from(*byte)).collect();
    let tokens = burn::tensor::TensorData::new(tokens, [1, 14]);
    let logits = transformer.forward(burn::tensor::Tensor::from_data(tokens, device)).into_data();
    let given = path.join("logits.json");
    let text = serde_json::to_string(logits.as_slice::<f32>().expect("f32")).expect("JSON");
    std::fs::write(&given, text).expect("written");
    let script = r#"
import json, sys
import numpy as np, torch
from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM
config = AutoConfig.from_pretrained(sys.argv[1])
assert config.model_type == "llama" and config.eos_token_id is None, config
model, told = LlamaForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True)
assert not told["missing_keys"] and not told["unexpected_keys"] and not told["mismatched_keys"], told
tokens = torch.tensor([list(b"rose is a rose")])
with torch.no_grad():
    theirs = model(tokens).logits[0].numpy()
ours = np.array(json.load(open(sys.argv[2]))).reshape(theirs.shape)
distance = np.abs(ours - theirs).max()
assert distance < 1e-4, distance
out = model.generate(torch.tensor([list(b"rose is")]), max_new_tokens=8, do_sample=False, pad_token_id=0)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
text = "a\tzoë\n\0 — 日本"
assert tokenizer(text)["input_ids"] == list(text.encode()), tokenizer(text)
assert tokenizer.decode(list(text.encode())) == text
print(json.dumps(out[0, 7:].tolist()))
"#;
    let theirs: Vec<u32> = serde_json::from_str(&printed(python, script, &[&to, &given])).expect("JSON");
    assert_eq!(theirs, ours, "{spec}");
}

#[test]
fn a_tied_output_and_one_of_its_own_do_not_begin_each_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let [(tied, of_tied), (apart, of_apart)] = ["gpt:1x16x2+tied-output", "gpt:1x16x2"].map(|model| {
        let (_, source) = exported(model, &words(path), path);
        let to = path.join(model).join("");
        write_exported(&source, &to, &with(Layout::Hf, NumberFormat::F32)).expect("written");
        (to.join(MODEL), schema(&source))
    });
    let error = read_weights(&tied, &of_apart).expect_err("one is missing").to_string();
    assert!(
        error.contains("it has no tensor `lm_head.weight`") && error.contains("take --tied-output true"),
        "{error}"
    );
    let error = read_weights(&apart, &of_tied).expect_err("one is too many").to_string();
    assert!(error.contains("nothing that is called `lm_head.weight`; its output has weights of its own"), "{error}");
}

/// Files that both of PyTorch's exporters write: of modules whose layers are called as ours, and of one that subtracts its biases.
#[test]
fn weights_of_what_pytorch_exports_are_those_of_its_module() {
    let Some(python) = python("torch, onnx, onnxscript") else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let script = r#"
import contextlib, io, json, pathlib, sys
import torch

class Minus(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(torch.zeros(inputs, outputs)), torch.nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight - self.bias

class Mlp(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        layer = Minus if kind == "minus" else torch.nn.Linear
        self.hidden, self.output = torch.nn.ModuleList([layer(3, 4)]), layer(4, 4)
        if kind == "norm":
            self.hidden_norms = torch.nn.ModuleList([torch.nn.BatchNorm1d(4)])
        self.kind = kind
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter)

    def forward(self, x):
        x = self.hidden[0](x)
        x = self.hidden_norms[0](x) if self.kind == "norm" else x
        x = self.output(torch.relu(x))
        return x @ torch.arange(16.0).reshape(4, 4) if self.kind == "more" else x

torch.manual_seed(3)
for kind in ["plain", "norm", "minus", "more", "numbered"]:
    module = Mlp(kind)
    if kind == "numbered":
        module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
    # Modules in training mode keep their normalizations; the newer exporter has no such mode.
    for is_new in [False] if kind == "norm" else [False, True]:
        more = {"training": torch.onnx.TrainingMode.PRESERVE} if kind == "norm" else {}
        file = str(pathlib.Path(sys.argv[1], f"{kind}-{'new' if is_new else 'old'}.onnx"))
        with contextlib.redirect_stdout(io.StringIO()):
            torch.onnx.export(module.train(kind == "norm"), (torch.randn(5, 3),), file, dynamo=is_new, **more)
    values = {name: tensor.T.flatten().tolist() for name, tensor in module.state_dict().items()}
    pathlib.Path(sys.argv[1], f"{kind}.json").write_text(json.dumps(values))
"#;
    printed(&python, script, &[path]);
    let layers = [("hidden.0.weight", &[3, 4][..]), ("hidden.0.bias", &[4])];
    let norms = ["gamma", "beta", "running_mean", "running_var"].map(|leaf| format!("hidden_norms.0.{leaf}"));
    let output = [("output.weight", &[4, 4][..]), ("output.bias", &[4])];
    for (file, refused) in [
        ("plain-old", None),
        ("plain-new", None),
        ("norm-old", None),
        ("minus-old", Some("is taken by `Sub` of its graph")),
        ("minus-new", Some("is taken by `Sub` of its graph")),
        ("more-old", Some("the model has nothing that is called")),
        ("more-new", Some("the model has nothing that is called")),
        ("numbered-old", Some("as a `torch.nn.Sequential` calls its layers by numbers")),
        ("numbered-new", Some("as a `torch.nn.Sequential` calls its layers by numbers")),
    ] {
        let kind = file.split('-').next().expect("a kind");
        let entry = |(path, shape): (&str, &[usize])| Entry::trained(path, shape);
        let of_norm = norms.iter().filter(|_| kind == "norm").map(|path| Entry::trained(path, &[4]));
        let entries: Vec<Entry> =
            layers.into_iter().map(entry).chain(of_norm).chain(output.into_iter().map(entry)).collect();
        let schema = Schema::new(entries);
        let found = read_weights(&path.join(format!("{file}.onnx")), &schema).map_err(|error| error.to_string());
        if let Some(reason) = refused {
            assert!(found.as_ref().is_err_and(|error| error.contains(reason)), "{file}: {found:?}");
            continue;
        }
        let text = std::fs::read(path.join(format!("{kind}.json"))).expect("there");
        let theirs: HashMap<String, Vec<f32>> = serde_json::from_slice(&text).expect("JSON");
        let named = |entry: &Entry| theirs[&Layout::Torch.tensor(entry).expect("a name")].clone();
        let expected: Vec<f32> = schema.entries().iter().flat_map(named).collect();
        assert_eq!(found, Ok(expected), "{file}");
    }
}

//! What is known of a trained model besides its values: what the metadata of its file say.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;
use starling_data::stream::{InputSpec, RowSpec, SidePolicy, SplitSpec};
use starling_run::data::columns::{Column, ColumnKind};
use starling_run::data::{LabelScale, MAX_LABELS, MAX_TOKENS, TOKENS, are_coded, check_labels, column_of, shorten};
use starling_run::manifest::schema::Entry;
use starling_run::manifest::{MAX_CLASSES, MAX_FEATURES};
use starling_run::{Delimiter, FeatureScale, ModelSpec, PreprocessingSpec, TokenizerSpec};

use super::{BYTES, Export, FORMAT, Layout, ModelError, NumberFormat, TOKENIZER, read};
use crate::error::Error;
use crate::network::forward::OutputKind;
use crate::network::models;
use crate::network::transformer::Size;

/// What is known of a trained model besides its values.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Description {
    /// Its name and sizes, or settings.
    pub model: ModelSpec,
    /// Whether it is a program's own task, of which nothing else is known.
    pub is_of_program: bool,
    /// A sample as channels, height, width; a row of a table is `[1, 1, features]`.
    pub shape: [u32; 3],
    /// How many classes there are; of a regression, how many different labels there were.
    pub classes: u32,
    /// How many columns of labels there were, of a table; else 1.
    pub labels: u32,
    /// The parameters, as the file lists them.
    pub parameters: Vec<Entry>,
    /// As which kind of numbers the file holds them; they are computed with in f32.
    pub numbers: NumberFormat,
    /// What it was trained on; `None` if the machine that wrote it did not know.
    pub trained_on: Option<DataOrigin>,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a model comes from.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Origin {
    /// Its run's id, in hex.
    pub run: String,
    /// The last step that it includes.
    pub step: u64,
    /// The digest of the replicated state that it is of, in hex. A file alone does not say it.
    pub digest: Option<String>,
    /// The hash of that state's values, in hex. A file alone does not say it.
    pub values: Option<String>,
    /// How many samples its data had, those held out included. A file alone does not say it.
    pub samples: Option<u64>,
    /// The fingerprint of its data, in hex. A file alone does not say it.
    pub fingerprint: Option<String>,
    /// What was measured on the held-out samples, `loss` first, where that is known.
    pub measures: Vec<(String, f64)>,
}

/// The data that a model was trained on.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DataOrigin {
    /// `digits`, `csv`, `images`, `idx`, `idx with held-out files`, `text`, or `tokens`.
    pub kind: String,
    /// How values became inputs, and what inputs and classes are called.
    pub preprocessing: PreprocessingSpec,
    /// Of a table: the columns that held labels, from 0, in the order of the outputs.
    pub label: Vec<u32>,
    /// Of a table: whether its first row held names.
    pub header: Option<bool>,
    /// Of a table: what separated its cells.
    pub delimiter: Option<Delimiter>,
    /// The rows that were held out, ascending, from 0; `None` if the files or [a column](RowSpec::split_by) say that, or they are too many.
    pub held_out: Option<Vec<u32>>,
    /// Of a table: by what its rows were weighed and split.
    pub rows: RowSpec,
}

impl Description {
    /// Reads what is known of an exported file or folder, whatever task it is of.
    ///
    /// # Errors
    /// If it can't be read, is none, or is damaged.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        Ok(read::open(path)?.description)
    }

    /// What will be known of what is to be exported. `path` is for messages.
    ///
    /// # Errors
    /// If the parts of `export` are not of one run.
    pub fn of(export: &Export<'_>, path: &Path) -> Result<Self, Error> {
        let description = read::decode(&export.encode(path)?, path)?.description;
        Ok(Self { origin: export.origin(), ..description })
    }

    /// Reads the metadata of a file with these parameters, of such numbers. They may be a stranger's: what can't be is refused, and not repeated.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub(super) fn read(
        metadata: &HashMap<String, String>,
        parameters: Vec<Entry>,
        numbers: NumberFormat,
    ) -> Result<Self, String> {
        let metadata = Metadata(metadata);
        if let Some(layout) =
            metadata.0.get("layout").and_then(|name| Layout::named(name)).filter(|it| *it != Layout::Burn)
        {
            return Err(format!(
                "its layout is `{layout}`, for other programs; of ours, only `starling run --init` takes its values"
            ));
        }
        match metadata.0.get("format") {
            None => return Err("its metadata name no format, so that another program wrote it".to_owned()),
            Some(format) if format == FORMAT => {}
            Some(_) => return Err(format!("its format is not `{FORMAT}`, which this release of Starling reads")),
        }
        if metadata.text("layout")? != "burn" {
            return Err("its layout is not `burn`".to_owned());
        }
        let run = metadata.text("run")?.to_owned();
        if run.len() != 64 || !run.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("its `run` is not the id of one".to_owned());
        }
        let origin = Origin { run, step: metadata.number("step")?, ..Origin::default() };
        let name = metadata.text("model")?;
        let raw = (name == ModelSpec::Raw.to_string() && !metadata.0.contains_key("shape")).then_some(ModelSpec::Raw);
        let named = |settings: &String| ModelSpec::Named { name: name.to_owned(), settings: settings.clone() };
        if let Some(model) = raw.or_else(|| metadata.0.get("settings").map(named)) {
            model.check()?;
            let (shape, classes) = ([0; 3], 0);
            return Ok(Self {
                model,
                is_of_program: true,
                shape,
                classes,
                labels: 1,
                parameters,
                numbers,
                trained_on: None,
                origin,
            });
        }
        let model: ModelSpec = name.parse().map_err(|_| "its `model` is none".to_owned())?;
        let sides: Vec<u32> = metadata.text("shape")?.split(',').filter_map(|side| side.parse().ok()).collect();
        let shape: [u32; 3] = sides.try_into().map_err(|_| "its `shape` is not three numbers".to_owned())?;
        let features = shape.iter().try_fold(1_u32, |product, side| product.checked_mul(*side));
        let features = features.filter(|features| (1..=MAX_FEATURES).contains(features));
        let features = features.ok_or_else(|| format!("its `shape` has not 1 to {MAX_FEATURES} features"))?;
        let classes = metadata.number("classes")?;
        let labels: u32 = metadata.optional("labels")?.unwrap_or(1);
        if !(1..=MAX_LABELS as u32).contains(&labels) {
            return Err(format!("it has {labels} columns of labels, but 1 to {MAX_LABELS} are possible"));
        }
        let has_tokens = metadata.0.get("data").is_some_and(|kind| kind == TOKENS);
        let (what, most) = if has_tokens { ("tokens", MAX_TOKENS) } else { ("classes", MAX_CLASSES) };
        // Of numbers that are too many to be classes, none is told.
        let learns = model.name().and_then(models::find).map(|model| model.learns().of_labels(labels));
        let are_measured =
            classes == 0 && learns.is_some_and(|learns| [OutputKind::Numbers, OutputKind::Labels].contains(&learns));
        if !are_measured && !(2..=most).contains(&classes) {
            return Err(format!("it has {classes} {what}, but 2 to {most} are possible"));
        }
        let trained_on =
            metadata.0.contains_key("scaling").then(|| metadata.trained_on(features, classes, labels)).transpose()?;
        Ok(Self { model, is_of_program: false, shape, classes, labels, parameters, numbers, trained_on, origin })
    }

    /// What it is for: `classification`, `regression`, `labels` (which of several a sample has), `text`, or what a program calls its own task.
    pub fn task(&self) -> &str {
        match self.learns() {
            None => self.model.name().unwrap_or("buffers"),
            Some(OutputKind::Classes) => "classification",
            Some(OutputKind::Numbers) => "regression",
            Some(OutputKind::Labels) => "labels",
            Some(OutputKind::Text) => "text",
        }
    }

    /// What it learns; `None` of what the command line has not.
    pub(super) fn learns(&self) -> Option<OutputKind> {
        let name = self.model.name().filter(|_| !self.is_of_program)?;
        models::find(name).map(|model| model.learns().of_labels(self.labels))
    }

    /// What the columns of labels are called: by their names, or else by their numbers; by both where several have the same name.
    pub fn label_names(&self) -> Vec<String> {
        let Some(on) = &self.trained_on else { return Vec::new() };
        let names = &on.preprocessing.label;
        if names.is_empty() {
            return on.label.iter().map(|label| format!("column {label}")).collect();
        }
        let is_alone = |name: &String| names.iter().filter(|other| *other == name).count() == 1;
        let told = |(at, name): (usize, &String)| match on.label.get(at).filter(|_| !is_alone(name)) {
            Some(column) => format!("{name} (column {column})"),
            None => name.clone(),
        };
        names.iter().enumerate().map(told).collect()
    }

    /// How large it is, if it takes a text.
    pub(super) fn decoder(&self) -> Option<Size> {
        models::size_of(&self.model, u32::try_from(self.features()).ok()?, self.classes).filter(|_| !self.is_of_program)
    }

    /// How many different tokens the text has that it takes; 0 if it takes none.
    pub fn tokens(&self) -> u32 {
        if self.learns() == Some(OutputKind::Text) { self.classes } else { 0 }
    }

    /// What makes tokens of the text that it takes; `None` if it takes bytes, or no text.
    pub fn tokenizer(&self) -> Option<&TokenizerSpec> {
        self.trained_on.as_ref()?.preprocessing.tokenizer()
    }

    /// How many numbers its parameters have together.
    pub fn count(&self) -> usize {
        self.parameters.iter().map(Entry::elements).sum()
    }

    /// How many numbers a sample has.
    pub fn features(&self) -> usize {
        self.shape.iter().map(|side| *side as usize).product()
    }

    /// What the columns of a table hold that it takes, the first `most` of them, as people read it. Empty if each is a number.
    pub fn columns(&self, most: usize) -> Vec<String> {
        let columns = self.trained_on.as_ref().map(|on| &*on.preprocessing.columns).unwrap_or_default();
        let labels = self.trained_on.as_ref().map(|on| &*on.label).unwrap_or_default();
        let name = |(at, column): (usize, &Column)| match &*column.name {
            "" => format!("column {} ({})", column_of(labels, at), column.coding),
            name => format!("`{}` ({})", shorten(name), column.coding),
        };
        let shown = columns.iter().enumerate().take(most).map(name);
        let more = columns.len().saturating_sub(most);
        shown.chain((more > 0).then(|| format!("and {more} more"))).collect()
    }

    /// What it takes; `None` if that is not known.
    pub fn inputs(&self) -> Option<InputSpec> {
        let DataOrigin { preprocessing, label, header, delimiter, rows, .. } = self.trained_on.as_ref()?;
        Some(InputSpec {
            features: self.features(),
            shape: self.shape,
            is_text: self.learns() == Some(OutputKind::Text),
            tokenizer: preprocessing.tokenizer().cloned(),
            names: preprocessing.features.clone(),
            columns: preprocessing.columns.clone(),
            label: label.clone(),
            label_name: preprocessing.label.clone(),
            header: *header,
            delimiter: *delimiter,
            rows: *rows,
            separated_by: None,
        })
    }
}

/// The metadata of a file.
struct Metadata<'a>(&'a HashMap<String, String>);

impl Metadata<'_> {
    fn text(&self, key: &'static str) -> Result<&str, String> {
        self.0.get(key).map(String::as_str).ok_or_else(|| format!("its metadata lack `{key}`"))
    }

    fn number<N: std::str::FromStr>(&self, key: &'static str) -> Result<N, String> {
        self.text(key)?.parse().map_err(|_| format!("its `{key}` is not a number that is possible"))
    }

    /// A number or word that need not be there.
    fn optional<T: std::str::FromStr>(&self, key: &'static str) -> Result<Option<T>, String> {
        let found = self.0.get(key).map(|text| text.parse().map_err(|_| format!("its `{key}` is none")));
        found.transpose()
    }

    /// As many finite numbers as there are features. They are read exactly: parsers of JSON may be off by the last bit.
    fn numbers(&self, key: &'static str, count: u32) -> Result<Vec<f64>, String> {
        let text = self.text(key)?.trim();
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let numbers = inner.map(|inner| inner.split(',').map(|number| number.trim().parse::<f64>().ok()));
        let numbers = numbers.and_then(|numbers| numbers.collect::<Option<Vec<f64>>>());
        let fits =
            |numbers: &Vec<f64>| numbers.len() == count as usize && numbers.iter().all(|number| number.is_finite());
        numbers.filter(fits).ok_or_else(|| format!("its `{key}` are not a number for each of {count} features"))
    }

    /// The same, of which none is below 0 or so small that nothing can be divided by it.
    fn deviations(&self, count: u32) -> Result<Vec<f64>, String> {
        let deviations = self.numbers("deviations", count)?;
        match deviations.iter().all(|deviation| *deviation == 0.0 || (*deviation > 0.0 && deviation.is_normal())) {
            true => Ok(deviations),
            false => Err("one of its `deviations` scales nothing".to_owned()),
        }
    }

    /// As many names as this.
    fn names(&self, key: &'static str, count: u32) -> Result<Vec<String>, String> {
        let names: Option<Vec<String>> = serde_json::from_str(self.text(key)?).ok();
        let names = names.filter(|names| names.len() == count as usize);
        names.ok_or_else(|| format!("its `{key}` are not {count} names"))
    }

    /// The columns of a table that are no plain numbers, if there are such.
    fn columns(&self, features: u32) -> Result<Vec<Column>, String> {
        let Some(text) = self.0.get("columns") else { return Ok(Vec::new()) };
        let columns: Option<Vec<Column>> = serde_json::from_str(text).ok();
        let columns = columns.filter(|columns| !columns.is_empty() && are_coded(columns, features as usize));
        columns.ok_or_else(|| format!("its `columns` are not those of {features} features"))
    }

    /// The columns of so many labels, and what they are called.
    fn labels(&self, count: u32) -> Result<(Vec<u32>, Vec<String>), String> {
        let columns =
            self.0.get("label_column").map(|text| text.split(',').map(|column| column.trim().parse().ok()).collect());
        let columns: Option<Vec<u32>> = columns.unwrap_or(Some(Vec::new()));
        let columns = columns.ok_or("its `label_column` is none")?;
        check_labels(&columns, 0)?;
        if columns.len() != count as usize && (count > 1 || columns.len() > 1) {
            return Err(format!("its `label_column` are not {count} columns"));
        }
        match count {
            1 => Ok((columns, self.0.get("label_name").cloned().into_iter().collect())),
            _ if !self.0.contains_key("label_name") => Ok((columns, Vec::new())),
            _ => Ok((columns, self.names("label_name", count)?)),
        }
    }

    /// How so many labels are scaled; none if they are not.
    fn label_scales(&self, count: u32) -> Result<Vec<LabelScale>, String> {
        if ["label_mean", "label_deviation"].iter().any(|key| !self.0.contains_key(*key)) {
            return match count {
                1 => Ok(Vec::new()),
                _ => Err("its metadata lack `label_mean` or `label_deviation`".to_owned()),
            };
        }
        let numbers = |key| match count {
            1 => self.number(key).map(|number| vec![number]),
            _ => self.numbers(key, count),
        };
        let pairs = numbers("label_mean")?.into_iter().zip(numbers("label_deviation")?);
        let scales: Vec<LabelScale> = pairs.map(|(mean, deviation)| LabelScale { mean, deviation }).collect();
        match scales.iter().all(LabelScale::is_usable) {
            true => Ok(scales),
            false => Err("its `label_mean` and `label_deviation` scale nothing".to_owned()),
        }
    }

    /// By what the rows of a table with these columns of labels, and these others, were weighed and split.
    fn rows(&self, label: &[u32], columns: &[Column]) -> Result<RowSpec, String> {
        let held_out_last = self.optional("held_out_last")?;
        let weights: Option<u32> = self.optional("weights_column")?;
        let is_drawn = ["split_permille", "split_seed"].iter().any(|key| self.0.contains_key(*key));
        let split = self.optional("split_column")?.map(|column| {
            let sides = match is_drawn {
                true => {
                    SidePolicy::Drawn { permille: self.number("split_permille")?, seed: self.number("split_seed")? }
                }
                false => SidePolicy::Said,
            };
            Ok::<_, String>(SplitSpec { column, sides })
        });
        let split_by = split.transpose()?;
        let is_no_share = |split: SplitSpec| matches!(split.sides, SidePolicy::Drawn { permille: 1000.., .. });
        if split_by.is_some_and(is_no_share) || (split_by.is_some() && held_out_last.is_some()) {
            return Err("its `split_permille` is no share, or its `held_out_last` says another one".to_owned());
        }
        let is_no_feature = |column: &u32| {
            (0..columns.len())
                .any(|at| column_of(label, at) == *column as usize && columns[at].coding == ColumnKind::Ignored)
        };
        for (key, column) in [("weights_column", weights), ("split_column", split_by.map(|split| split.column))] {
            if column.is_some_and(|column| !is_no_feature(&column)) {
                return Err(format!("its `{key}` is none of its columns that are `ignored`"));
            }
        }
        Ok(RowSpec { weights, split_by, held_out_last })
    }

    fn trained_on(&self, features: u32, classes: u32, labels: u32) -> Result<DataOrigin, String> {
        let scales = match self.text("scaling")? {
            "divide" => {
                let divisor: f64 = self.number("divisor")?;
                if !divisor.is_normal() {
                    return Err("its `divisor` divides nothing".to_owned());
                }
                FeatureScale::Divide(divisor)
            }
            "standardize" => FeatureScale::Standardize {
                means: self.numbers("means", features)?,
                deviations: self.deviations(features)?,
            },
            "tokenize" => {
                let (json, end) = (self.text("tokenizer_json")?.to_owned(), self.number("end_token")?);
                if end >= classes {
                    return Err(format!("its `end_token` is none of its {classes} tokens"));
                }
                FeatureScale::Tokenize(TokenizerSpec { json, end })
            }
            _ => return Err("its `scaling` is none of `divide`, `standardize` and `tokenize`".to_owned()),
        };
        let has_names = self.0.contains_key("feature_names");
        let names = if has_names { self.names("feature_names", features)? } else { Vec::new() };
        let columns = self.columns(features)?;
        let others = if columns.is_empty() { features as usize } else { columns.len() };
        let (label, label_names) = self.labels(labels)?;
        if label.iter().any(|column| *column as usize >= others + label.len()) {
            return Err(format!("its `label_column` is beyond its {others} other columns"));
        }
        let rows = self.rows(&label, &columns)?;
        let labels = self.label_scales(labels)?;
        let has_tokenizer = matches!(scales, FeatureScale::Tokenize(_));
        let expected = if has_tokenizer { TOKENIZER } else { BYTES };
        if self.0.get("tokenizer").is_some_and(|tokenizer| tokenizer != expected) {
            return Err(format!(
                "its `tokenizer` is not `{expected}`, which this release of Starling expects with such a `scaling`"
            ));
        }
        let held_out = self.0.get("held_out_rows").map(|text| serde_json::from_str::<Vec<u32>>(text).ok());
        let held_out = held_out.map(|rows| rows.filter(|rows| rows.is_sorted_by(|a, b| a < b)));
        Ok(DataOrigin {
            kind: self.text("data")?.to_owned(),
            preprocessing: PreprocessingSpec {
                scales,
                classes: if has_tokenizer { Vec::new() } else { self.names("class_names", classes)? },
                features: names,
                label: label_names,
                columns,
                labels,
            },
            label,
            header: self.optional("header")?,
            delimiter: self.optional("delimiter")?,
            held_out: held_out.map(|rows| rows.ok_or("its `held_out_rows` are no rising numbers")).transpose()?,
            rows,
        })
    }
}

/// The settings of a task or model as JSON, as far as they are.
pub(super) fn settings(model: &ModelSpec) -> Value {
    match model {
        ModelSpec::Raw => Value::Null,
        ModelSpec::Named { settings, .. } => serde_json::from_str(settings).unwrap_or_default(),
    }
}

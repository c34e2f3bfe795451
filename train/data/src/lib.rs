//! The data a run trains on: read, checked, split, scaled. No models, and nothing that computes on them.
//!
//! Start reading at [`Dataset::load`].

mod digits;
mod error;
mod files;
#[cfg(feature = "fuzz")]
pub mod fuzzed;
mod idx;
mod images;
mod samples;
mod source;
pub mod stream;
mod table;
mod text;

/// Texts that are prepared: a folder with a tokenizer and tokens.
pub mod tokens {
    pub use crate::text::folder::{check, is_one, summary};
    pub use crate::text::prepare::{PrepareOptions, PrepareProgress, TokenizerPolicy, TokensSummary, part_of, prepare};
}

use std::path::Path;
use std::sync::Arc;

use starling_run::data::columns::ColumnKind;
use starling_run::data::{ArrivalTracker, DIGITS, IMAGES, MAX_PREPROCESSING_BYTES, USUAL_CONTEXT, shorten};
use starling_run::manifest::MAX_CLASSES;
use starling_run::{DataDescription, Delimiter, FeatureScale, Kind, PreprocessingSpec};
use starling_topology::Digest;

pub use error::DataError;
pub use samples::SampleSet;
pub use samples::labels::LabelTable;
pub use samples::split::held_out_rows;
pub use source::{files, kinds, shared_files};
pub use starling_run::data::{ClassSummary, DataOptions, DataSummary, TableColumn};
pub use table::survey::bad_rows::BadRowsReport;

pub use text::tokenizer::Tokenizer;

use samples::numbers::SampleNumbers;
use samples::raw::Raw;
use samples::split::{self, Split};
use samples::standards::label_numbers;
use text::Words;
use text::folder::{self, TokenFolder};

/// Columns that are named for programs.
const MAX_TOLD: usize = 100;
/// With fewer samples to train on, something is likely missing.
const FEW_SAMPLES: usize = 10;
/// What counts less beside the mean counts nothing.
const LEAST_WEIGHT: f64 = 1e-6;

/// A data set, split into training and held-out samples, scaled for training.
#[derive(Debug, Clone)]
pub struct Dataset {
    description: DataDescription,
    summary: DataSummary,
    preprocessing: PreprocessingSpec,
    doubts: Vec<String>,
    class_doubts: Vec<String>,
    seed: u64,
    training: SampleSet,
    held_out: SampleSet,
    /// Of a text that was prepared.
    tokenizer: Option<Arc<Tokenizer>>,
    /// Of labels that all are numbers: what each stands for.
    label_numbers: Arc<[f64]>,
    /// How much each sample counts, if they differ: of those to train on, and of those held out.
    weights: Option<[Arc<[f32]>; 2]>,
}

impl Dataset {
    /// Reads, checks and splits the data that `options` name.
    ///
    /// Features of digits are divided by 16, those of images by 255. Columns of a CSV file are standardized: less the
    /// mean of the training samples, divided by their standard deviation, in f64; a constant column becomes 0. A column of text becomes
    /// categories, and a gap among numbers their mean: [`ColumnKind`].
    ///
    /// The rows of a table that is larger than [`DataOptions::held_bytes`] stay in its file, which is read some times from its beginning to its end, and then
    /// by position. It must not change as long as the data set is there.
    ///
    /// A text is held once, as bytes; its samples are windows of [`DataOptions::context`] of them, one after another. Of one that was prepared,
    /// all is read once and checked, and what is asked for is read again.
    ///
    /// # Errors
    /// If a file cannot be read or does not hold what it should. The error names the file, and the row and column, the line and byte, or
    /// the offending header field.
    pub fn load(options: &DataOptions) -> Result<Self, DataError> {
        let permille = split::permille(options.held_out)?;
        if source::is_prepared(&options.source) {
            if options.text {
                return Self::load_tokens(options, permille);
            }
            let reason =
                "it is a text that was prepared, which only a language model learns; take --model gpt, or other data";
            return Err(DataError::Unusable { origin: options.source.clone(), reason: reason.to_owned() });
        }
        if options.text && options.source != DIGITS && text::is_for(&options.source) {
            return Self::load_text(options, permille);
        }
        let source = source::find(&options.source)?;
        if !options.said_of_tables().is_empty() {
            match source.without_columns(&options.source)? {
                Some(data) => check_no_table(options, data, "name a table with --data")?,
                None => check_no_folder(options)?,
            }
        }
        let raw = source.read(options);
        let raw = raw.map_err(|error| if is_plain_text(options) { error.of_a_text() } else { error })?;
        let mut dataset = Self::build(raw, permille, options.seed)?;
        if options.context.is_some() {
            dataset.doubts.push("--context says how much of a text a model sees; this data is none".to_owned());
        }
        if options.image_size.is_some() && dataset.description.kind != IMAGES {
            dataset.doubts.push("--image-size says how large images in folders become; this data is none".to_owned());
        }
        Ok(dataset)
    }

    /// The rows that can't be used of a table that is [refused](Self::load) for the first of them: of the first `most`, what is wrong and where. None of
    /// data that is no table.
    ///
    /// # Errors
    /// If the file can't be read, or its first row is none.
    pub fn bad_rows(options: &DataOptions, most: usize) -> Result<BadRowsReport, DataError> {
        source::find(&options.source)?.bad_rows(options, most)
    }

    /// What members compare.
    pub fn description(&self) -> DataDescription {
        self.description.clone()
    }

    /// The samples to train on.
    pub fn training(&self) -> &SampleSet {
        &self.training
    }

    /// The samples kept from training. May be empty.
    pub fn held_out(&self) -> &SampleSet {
        &self.held_out
    }

    /// The samples of these numbers and their places among them: those to train on are numbered from 0, those held out come behind
    /// them. All are of one kind.
    pub fn numbered(&self, numbers: &[u32]) -> (&SampleSet, Vec<u32>) {
        let training = u32::try_from(self.training.len()).expect("invariant: samples fit their description");
        match numbers.first() {
            Some(first) if *first >= training => {
                (&self.held_out, numbers.iter().map(|number| number - training).collect())
            }
            _ => (&self.training, numbers.to_vec()),
        }
    }

    /// The files of a text that was prepared, which may come while it is trained on; `None` of other data.
    pub fn arrivals(&self) -> Option<Arc<dyn ArrivalTracker>> {
        self.training.arrivals()
    }

    /// Whether all samples can be read: those of a text that is [arriving](DataOptions::arriving) once it is here.
    pub fn is_whole(&self) -> bool {
        self.training.is_whole()
    }

    /// Whether the samples of these numbers can be read, as [`Self::numbered`] has them.
    pub fn are_here(&self, numbers: &[u32]) -> bool {
        let training = self.training.len();
        numbers.iter().all(|number| match (*number as usize).checked_sub(training) {
            Some(place) => self.held_out.is_here(place as u32),
            None => self.training.is_here(*number),
        })
    }

    /// How much the samples of these numbers count in the loss, as [`Self::numbered`] has them. `None`: each counts 1.
    pub fn weights(&self, numbers: &[u32]) -> Option<Vec<f32>> {
        let [training, held_out] = self.weights.as_ref()?;
        let of = |number: &u32| match (*number as usize).checked_sub(training.len()) {
            Some(at) => held_out[at],
            None => training[*number as usize],
        };
        Some(numbers.iter().map(of).collect())
    }

    /// Whether samples count [differently](Self::weights).
    pub fn is_weighted(&self) -> bool {
        self.weights.is_some()
    }

    /// The seed of the split.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What each class is called in the source; a label is an index into this list. Empty where labels are too many numbers to be classes:
    /// [`Self::label_numbers`].
    pub fn class_names(&self) -> &[String] {
        &self.preprocessing.classes
    }

    /// What the labels stand for by which samples have them, if all are numbers that can be scaled: those of the classes, in their order. Of samples with several
    /// labels, so many numbers for each, one after another.
    pub fn label_numbers(&self) -> &[f64] {
        &self.label_numbers
    }

    /// What each feature is called in the source. Empty if it has no names.
    pub fn feature_names(&self) -> &[String] {
        &self.preprocessing.features
    }

    /// How values became features, and what classes and features are called.
    pub fn preprocessing(&self) -> &PreprocessingSpec {
        &self.preprocessing
    }

    /// What made tokens of the text, if it is one that was prepared.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.as_deref()
    }

    /// What was understood of the data.
    pub fn summary(&self) -> &DataSummary {
        &self.summary
    }

    /// What its user should look at before it is trained on in batches of `batch_size`, as sentences; its labels are learned as classes, or
    /// else as numbers.
    pub fn warnings(&self, batch_size: u32, as_classes: bool) -> Vec<String> {
        let mut warnings = self.doubts.clone();
        warnings.extend(self.class_doubts.iter().filter(|_| as_classes).cloned());
        let samples = self.training.len();
        if samples < FEW_SAMPLES {
            let noun = if samples == 1 { "sample" } else { "samples" };
            let held_out = self.held_out.len();
            let more = if self.description.is_text() { "take a longer text" } else { "add rows to the data" };
            warnings.push(format!("only {samples} {noun} to train on, and {held_out} held out: {more}"));
        }
        if batch_size as usize > samples {
            warnings.push(format!(
                "a batch of {batch_size} is larger than the {samples} samples to train on, so each step is a whole epoch; \
                 set --batch-size to {samples} at most"
            ));
        }
        warnings
    }

    /// Checks that the data was split as a run says.
    ///
    /// # Errors
    /// If it was split with another share or seed.
    pub fn check_split(&self, held_out: f32, seed: u64) -> Result<(), DataError> {
        let permille = split::permille(held_out)?;
        if (self.description.held_out, self.seed) == (permille, seed) {
            return Ok(());
        }
        Err(DataError::OtherSplit {
            held_out: self.description.held_out,
            seed: self.seed,
            wanted_held_out: permille,
            wanted_seed: seed,
        })
    }

    /// Reads a text, whose windows it splits.
    fn load_text(options: &DataOptions, permille: u32) -> Result<Self, DataError> {
        check_no_table(options, "it is read as a text, which has no columns", "take a model for tables")?;
        let context = options.context.unwrap_or(USUAL_CONTEXT);
        let text = text::read(Path::new(&options.source), options.max_file_bytes)?;
        let (windows, fingerprint) = (text.windows(context, 2)?, text.fingerprint(context));
        let (scales, classes) = (FeatureScale::Divide(1.0), text::token_names());
        let kind = (text::KIND, text::BYTES);
        Ok(Self::of_windows(
            options,
            permille,
            kind,
            (scales, classes),
            (context, windows, fingerprint),
            Words::Bytes(text.bytes),
        ))
    }

    /// Opens a text that was prepared, whose windows it splits.
    fn load_tokens(options: &DataOptions, permille: u32) -> Result<Self, DataError> {
        check_no_table(options, "it is a text that was prepared, which has no columns", "name a table with --data")?;
        let context = options.context.unwrap_or(USUAL_CONTEXT);
        let open = if options.arriving { TokenFolder::open_arriving } else { TokenFolder::open };
        let folder = open(Path::new(&options.source))?;
        let (windows, fingerprint) = (folder.windows(context, 2)?, folder.fingerprint(context));
        // What opening a tokenizer takes is up to its file: it has to be the run's.
        if options.expects.is_some_and(|expected| expected != fingerprint) {
            let reason = "it is another text, or has another tokenizer or context, than the run's".to_owned();
            return Err(DataError::File { path: Path::new(&options.source).to_owned(), reason });
        }
        let tokenizer = folder.tokenizer()?;
        if !options.arriving {
            folder.check(&mut |_, _| {})?;
        }
        let (doubt, scales) = (folder.summary().doubt(), FeatureScale::Tokenize(folder.tokenizer.clone()));
        let kind = (folder::KIND, folder.told.vocabulary);
        let windows = (context, windows, fingerprint);
        let loaded = Self::of_windows(options, permille, kind, (scales, Vec::new()), windows, Words::Tokens(folder));
        Ok(Self { doubts: doubt.into_iter().collect(), tokenizer: Some(Arc::new(tokenizer)), ..loaded })
    }

    /// Of windows of so many tokens that are the samples.
    fn of_windows(
        options: &DataOptions,
        permille: u32,
        (kind, tokens): (Kind, u32),
        (scales, classes): (FeatureScale, Vec<String>),
        (context, windows, fingerprint): (u32, u32, Digest),
        words: Words,
    ) -> Self {
        let preprocessing = PreprocessingSpec {
            scales,
            classes,
            features: Vec::new(),
            label: Vec::new(),
            columns: Vec::new(),
            labels: Vec::new(),
        };
        let description = DataDescription {
            kind: kind.name.to_owned(),
            samples: windows.into(),
            features: context,
            shape: [1, 1, context],
            classes: tokens,
            label: Vec::new(),
            header: None,
            delimiter: None,
            ignored: Vec::new(),
            categories: Vec::new(),
            weights: None,
            split_by: None,
            sides_said: false,
            held_out_last: None,
            held_out: permille,
            fingerprint,
            preprocessing: preprocessing.digest(),
        };
        let held_out: Arc<[u32]> = split::draw_held_out(windows, permille, options.seed).into();
        let summary = DataSummary {
            source: options.source.clone(),
            kind: description.kind.clone(),
            samples: description.samples,
            held_out: held_out.len() as u64,
            features: context,
            shape: description.shape,
            label: None,
            label_name: None,
            more_labels: Vec::new(),
            header: None,
            delimiter: None,
            category_columns: Vec::new(),
            gap_columns: 0,
            ignored_columns: 0,
            weights: None,
            split_by: None,
            are_numbers: false,
            classes: description.classes,
            counts: Vec::new(),
        };
        let words = Arc::new(words);
        let numbers = [SampleNumbers::Others(windows, held_out.clone()), SampleNumbers::Listed(held_out)];
        let [training, held_out] = numbers.map(|numbers| SampleSet::of_text(words.clone(), context as usize, numbers));
        let (doubts, class_doubts, seed, tokenizer) = (Vec::new(), Vec::new(), options.seed, None);
        let label_numbers = Arc::default();
        Self {
            description,
            summary,
            preprocessing,
            doubts,
            class_doubts,
            seed,
            training,
            held_out,
            tokenizer,
            label_numbers,
            weights: None,
        }
    }

    fn build(raw: Raw, permille: u32, seed: u64) -> Result<Self, DataError> {
        let (kind, origin, shape) = (raw.kind.name.to_owned(), raw.origin.clone(), raw.shape);
        let counts = raw.counts();
        let (columns, coded) = (raw.columns.clone(), raw.coded.clone());
        let (mut doubts, mut class_doubts) = (raw.doubts.clone(), raw.class_doubts.clone());
        let (mut classes, feature_names) = (raw.class_names.clone(), raw.feature_names.clone());
        let labels = raw.label_count();
        let numbers = label_numbers(&classes, labels);
        if classes.len() > MAX_CLASSES as usize || labels > 1 {
            // Nobody could learn them as classes, so that nobody is told them as such.
            classes.clear();
            class_doubts.clear();
        }
        let mut description = DataDescription {
            kind: kind.clone(),
            samples: counts.iter().sum(),
            features: shape.iter().product(),
            shape,
            classes: u32::try_from(classes.len()).expect("invariant: readers bound the classes"),
            label: columns.as_ref().map(|columns| columns.labels.clone()).unwrap_or_default(),
            header: columns.as_ref().map(|columns| columns.header),
            delimiter: columns.as_ref().map(|columns| columns.delimiter),
            ignored: columns.as_ref().map(|columns| columns.ignored.clone()).unwrap_or_default(),
            categories: columns.as_ref().map(|columns| columns.categories.clone()).unwrap_or_default(),
            weights: columns.as_ref().and_then(|columns| columns.weights),
            split_by: columns.as_ref().and_then(|columns| columns.split_by),
            sides_said: columns.as_ref().is_some_and(|columns| columns.sides_said),
            held_out_last: columns.as_ref().and_then(|columns| columns.held_out_last),
            held_out: permille,
            fingerprint: Digest([0; 32]),
            preprocessing: Digest([0; 32]),
        };
        description.check().map_err(|reason| DataError::Unusable { origin: origin.clone(), reason })?;
        let weights = raw.weights.clone();
        let Split { training, held_out, scales, label_scales, lost, fingerprint, held_out_rows } =
            split::split(raw, permille, seed)?;
        let weights = weights.map(|weights| {
            let others = SampleNumbers::Others(description.samples as u32, held_out_rows.clone());
            [others, SampleNumbers::Listed(held_out_rows)]
                .map(|numbers| (0..numbers.len() as u32).map(|at| weights[numbers.get(at) as usize]).collect())
        });
        let weights = weights.map(relative_weights).transpose();
        let weights = weights.map_err(|reason| DataError::Unusable { origin: origin.clone(), reason })?;
        description.fingerprint = fingerprint;
        let label = columns.map(|columns| columns.label_names).unwrap_or_default();
        let count = |is_counted: fn(&ColumnKind) -> bool| {
            let counted = coded.iter().filter(|column| is_counted(&column.coding)).count();
            u32::try_from(counted).expect("invariant: the number of columns is bounded")
        };
        let categories =
            coded.iter().enumerate().filter(|(_, column)| matches!(column.coding, ColumnKind::Category(_)));
        let category_columns = categories.take(MAX_TOLD).map(|(at, column)| match &*column.name {
            "" => format!("column {}", description.column_of(at)),
            name => shorten(name),
        });
        let category_columns: Vec<String> = category_columns.collect();
        let gap_columns = count(|coding| matches!(coding, ColumnKind::Gaps));
        // Columns without features that have an effect.
        let told = |number: Option<u32>| {
            let number = number?;
            let at = number as usize - description.label.iter().filter(|label| **label < number).count();
            Some(match &*coded.get(at)?.name {
                "" => format!("column {number}"),
                name => shorten(name),
            })
        };
        let (weights_column, split_by) = (told(description.weights), told(description.split_by));
        let with_effect = u32::from(weights_column.is_some()) + u32::from(split_by.is_some());
        let ignored_columns = count(|coding| matches!(coding, ColumnKind::Ignored)).saturating_sub(with_effect);
        let (features, columns) = (feature_names, coded);
        let preprocessing =
            PreprocessingSpec { scales, classes, features, label: label.clone(), columns, labels: label_scales };
        let bytes = preprocessing.encode().len();
        if bytes > MAX_PREPROCESSING_BYTES {
            let reason =
                format!("its names and categories take {bytes} bytes, but {MAX_PREPROCESSING_BYTES} are possible");
            return Err(DataError::Unusable { origin, reason });
        }
        description.preprocessing = preprocessing.digest();
        doubts.extend(lost_features(&lost, &description, &preprocessing));
        let constant = constant_features(&lost, &description, &preprocessing);
        // Of few samples, that is told instead.
        doubts.extend(constant.filter(|_| training.len() >= FEW_SAMPLES));
        let DataDescription { samples, features, classes, header, delimiter, .. } = description;
        let summary = DataSummary {
            source: origin,
            kind,
            samples,
            held_out: held_out.len() as u64,
            features,
            shape,
            label: description.label.first().copied(),
            label_name: label.first().map(|name| shorten(name)),
            more_labels: told_labels(&description.label, &label).skip(1).collect(),
            header,
            delimiter,
            category_columns,
            gap_columns,
            ignored_columns,
            weights: weights_column,
            split_by,
            // Which is for the model to say.
            are_numbers: false,
            classes,
            counts: DataSummary::told(&preprocessing.classes, &counts),
        };
        let label_numbers = numbers.filter(|_| !preprocessing.labels.is_empty()).unwrap_or_default().into();
        Ok(Self {
            description,
            summary,
            preprocessing,
            doubts,
            class_doubts,
            seed,
            training,
            held_out,
            tokenizer: None,
            label_numbers,
            weights,
        })
    }
}

/// The columns of labels, as they are told: by their names, if they have such.
fn told_labels<'a>(columns: &'a [u32], names: &'a [String]) -> impl Iterator<Item = String> + 'a {
    let name = |(at, column): (usize, &u32)| {
        let name = names.get(at).map(|name| format!(" `{}`", shorten(name))).unwrap_or_default();
        format!("{column}{name}")
    };
    columns.iter().enumerate().map(name)
}

/// Checks that nothing is said of data without columns that only a table has.
fn check_no_table(options: &DataOptions, data: &str, instead: &str) -> Result<(), DataError> {
    let checked = options.check_no_table(data, instead);
    checked.map_err(|reason| DataError::File { path: Path::new(&options.source).to_owned(), reason })
}

/// Checks that data of which is said how a table is read is one file.
fn check_no_folder(options: &DataOptions) -> Result<(), DataError> {
    let path = Path::new(&options.source);
    if !path.is_dir() {
        return Ok(());
    }
    let said = options.said_of_tables();
    let (flags, verb) = (said.join(" and "), if said.len() == 1 { "says" } else { "say" });
    let table = match options.run_is_table {
        true => "the run's data is a table".to_owned(),
        false => format!("{flags} {verb} how a table is read"),
    };
    let reason = format!("it is a folder in which no images are found, and {table}: name the table's file");
    Err(DataError::File { path: path.to_owned(), reason })
}

/// Whether a file is called as texts are, though it was to be a table.
fn is_plain_text(options: &DataOptions) -> bool {
    let name = options.source.strip_suffix(".gz").unwrap_or(&options.source);
    !options.text && name.to_ascii_lowercase().ends_with(".txt")
}

/// What to say of features that became 0 although they are no constants.
fn lost_features(lost: &[usize], description: &DataDescription, preprocessing: &PreprocessingSpec) -> Option<String> {
    named_features(lost, description, preprocessing).map(|told| {
        format!(
            "{told}: the numbers are so large, or so near to each other, that they can't be scaled, and count as 0; look for \
             values such as 1e308 that stand for a missing one"
        )
    })
}

/// What to say of numbers that are all alike, among the samples to train on, but for those that were `lost`.
fn constant_features(
    lost: &[usize],
    description: &DataDescription,
    preprocessing: &PreprocessingSpec,
) -> Option<String> {
    let FeatureScale::Standardize { deviations, .. } = &preprocessing.scales else { return None };
    let is_constant = |feature: &usize| deviations[*feature] == 0.0 && !lost.contains(feature);
    let constant: Vec<usize> = (0..deviations.len()).filter(is_constant).collect();
    named_features(&constant, description, preprocessing).map(|told| {
        format!(
            "{told}: all samples to train on have the same number there, or none, so that nothing is learned from it; leave it out with --ignore, \
             unless other data has others"
        )
    })
}

/// How much samples to train on, and those that are held out, count beside the mean of the first: so it is the same in which unit
/// their column says it. What is less than a millionth of that mean is nothing.
///
/// # Errors
/// If of either none counts, as a sentence.
fn relative_weights(weights: [Arc<[f32]>; 2]) -> Result<[Arc<[f32]>; 2], String> {
    let [training, held_out] = &weights;
    let mean = training.iter().map(|weight| f64::from(*weight)).sum::<f64>() / training.len().max(1) as f64;
    let relative = |weight: &f32| {
        let relative = f64::from(*weight) / mean;
        if relative < LEAST_WEIGHT { 0.0 } else { relative as f32 }
    };
    let counts_nothing = |weights: &[f32]| !weights.is_empty() && weights.iter().all(|weight| relative(weight) == 0.0);
    let refused = |rows: &str| {
        Err(format!(
            "the column of weights (--weights) is 0 in all rows {rows}; take another column, or another --held-out or --seed"
        ))
    };
    match mean > 0.0 {
        true if counts_nothing(held_out) => refused("held out"),
        true => Ok(weights.map(|weights| weights.iter().map(relative).collect())),
        false => refused("to train on"),
    }
}

/// Some features for messages, by their columns; `None` if there are none.
fn named_features(
    features: &[usize],
    description: &DataDescription,
    preprocessing: &PreprocessingSpec,
) -> Option<String> {
    let column = |feature: &usize| {
        let name =
            preprocessing.features.get(*feature).map(|name| format!(" (`{}`)", shorten(name))).unwrap_or_default();
        match preprocessing.columns.is_empty() {
            true => format!("column {}{name}", description.column_of(*feature)),
            false => format!("feature {feature}{name}"),
        }
    };
    let told = features.iter().take(3).map(column).collect::<Vec<_>>().join(", ");
    let more = features.len().saturating_sub(3);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    (!features.is_empty()).then(|| told + &more)
}

#[cfg(test)]
mod tests;

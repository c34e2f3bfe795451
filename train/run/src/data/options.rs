//! Where data comes from and how it is read.

use std::path::PathBuf;

use starling_topology::Digest;

use super::{DIGITS, Delimiter, IMAGES, ImageSize, is_text};
use crate::manifest::Manifest;

/// [`DataOptions::held_bytes`] where nobody says otherwise: beyond, memory is worth more than the time that reading takes.
pub const HELD_BYTES: u64 = 256 << 20;

/// Where data comes from and how it is read.
#[derive(Debug, Clone, PartialEq)]
pub struct DataOptions {
    /// `digits`, a CSV file, an IDX images file, a directory with IDX files or with a folder of images for each class, or a text: a
    /// file, or the folder of one that was prepared. Each file but an image may be gzipped.
    pub source: String,
    /// The label column of a CSV file. The last column by default.
    pub label: Option<TableColumn>,
    /// Further such columns, all of which hold numbers.
    pub more_labels: Vec<TableColumn>,
    /// Whether a CSV file starts with a header. `None`: found out from its first row.
    pub header: Option<bool>,
    /// What separates the cells of a CSV file. `None`: found out from its first rows.
    pub delimiter: Option<Delimiter>,
    /// Columns of a CSV file that are left out.
    pub ignored: Vec<TableColumn>,
    /// Columns of a CSV file whose cells are categories although they could be numbers.
    pub categories: Vec<TableColumn>,
    /// The column of a CSV file that says how much each row counts in the loss, 0 to 2^20. `None`: each counts 1.
    pub weights: Option<TableColumn>,
    /// The column of a CSV file by which rows are held out: those with the same text there are on the same side, drawn by the seed; or, if it says `train` or
    /// `test` in all rows, on that. `None`: each row is drawn by itself.
    pub split_by: Option<TableColumn>,
    /// A file of the rows of a table that are held out, with the columns of the others; then none of these is. `None`: there is none.
    pub held_out_file: Option<PathBuf>,
    /// How many rows at the end of a table are held out, if it says that: those of such a file, where both became one. It is the run's, and not a user's.
    pub held_out_last: Option<u64>,
    /// Whether they are for a run whose data is a table: what its user has not said of it, the run says.
    pub run_is_table: bool,
    /// Whether a file that is no table by its name is a text to be learned: what is trained on it says so.
    pub text: bool,
    /// How many tokens of a text a model sees at once, which are its bytes unless it was prepared. `None`: the [usual](super::USUAL_CONTEXT) number.
    pub context: Option<u32>,
    /// The size that images in folders are brought to. `None`: that of the first one, which all must have.
    pub image_size: Option<ImageSize>,
    /// How many channels images in folders are read with: 1 for grey, 3 for colours. `None`: 1 if all are grey.
    pub channels: Option<u32>,
    /// Share of the samples kept from training, 0 to below 1, counted in thousandths. Ignored if the source brings its
    /// own held-out samples.
    pub held_out: f32,
    /// Seed of the split. A run's members use the manifest's.
    pub seed: u64,
    /// The most bytes that a file may have, unpacked: files that come from others must not fill memory.
    pub max_file_bytes: u64,
    /// The most bytes that the values of a table take, eight each, if it is held in memory. Of a larger one, rows are read from its file when they
    /// are asked for; what is packed, and so can't be read by position, is held up to four times as much.
    pub held_bytes: u64,
    /// The fingerprint that the data has to have, where that can be known before it is read: of a text that was prepared, whose tokenizer is
    /// not opened if it is another's. `None`: whatever it is.
    pub expects: Option<Digest>,
    /// Whether files of a text that was prepared may not be here yet, because they come while it is trained on: as of
    /// [`ArrivalTracker`](super::ArrivalTracker), which each of them is to be taken in by.
    pub arriving: bool,
}

/// A column of a CSV file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableColumn {
    /// What a user wrote: a column's name or, if no column has it, a 0-based index.
    Written(String),
    /// A 0-based index, even where a column has that number for its name.
    Index(u32),
}

impl Default for DataOptions {
    fn default() -> Self {
        Self {
            source: DIGITS.to_owned(),
            label: None,
            more_labels: Vec::new(),
            header: None,
            delimiter: None,
            ignored: Vec::new(),
            categories: Vec::new(),
            weights: None,
            split_by: None,
            held_out_file: None,
            held_out_last: None,
            run_is_table: false,
            text: false,
            context: None,
            image_size: None,
            channels: None,
            held_out: 0.2,
            seed: 42,
            max_file_bytes: u64::MAX,
            held_bytes: HELD_BYTES,
            expects: None,
            arriving: false,
        }
    }
}

impl DataOptions {
    /// The flags of those that say how a table is read.
    pub fn said_of_tables(&self) -> Vec<&'static str> {
        let said = [
            (self.label.is_some(), "--label"),
            (self.header == Some(true), "--header"),
            (self.header == Some(false), "--no-header"),
            (self.delimiter.is_some(), "--delimiter"),
            (!self.ignored.is_empty(), "--ignore"),
            (!self.categories.is_empty(), "--categories"),
            (self.weights.is_some(), "--weights"),
            (self.split_by.is_some(), "--split-by"),
            (self.held_out_file.is_some(), "--held-out-file"),
        ];
        said.into_iter().filter(|(is_said, _)| *is_said).map(|(_, flag)| flag).collect()
    }

    /// Checks that nothing is said of how a table is read, for data that is none. `data` says what it is, as a sentence's beginning, and
    /// `instead` what else there is to do. Of a run whose data is a table nothing is refused here: that the kinds differ tells more.
    ///
    /// # Errors
    /// Which flags say so, and what to do, as a sentence.
    pub fn check_no_table(&self, data: &str, instead: &str) -> Result<(), String> {
        let said = self.said_of_tables();
        let (flags, verb, them) = match &*said {
            [] => return Ok(()),
            _ if self.run_is_table => return Ok(()),
            [flag] => ((*flag).to_owned(), "says", "it"),
            [flags @ .., last] => (format!("{} and {last}", flags.join(", ")), "say", "them"),
        };
        Err(format!(
            "{data}, but {flags} {verb} how a table is read; leave {them} out, as a flag, a variable or in the configuration file, or {instead}"
        ))
    }

    /// These options with the split that `manifest` prescribes, and with what it says of a table, a text or images where they say nothing:
    /// what a joiner uses.
    #[must_use]
    pub fn for_run(mut self, manifest: &Manifest) -> Self {
        self.held_out = manifest.data.held_out as f32 / 1000.0;
        self.seed = manifest.seed;
        if let (None, [label, more @ ..]) = (&self.label, &*manifest.data.label) {
            self.label = Some(TableColumn::Index(*label));
            self.more_labels = more.iter().map(|label| TableColumn::Index(*label)).collect();
        }
        self.weights = self.weights.or_else(|| manifest.data.weights.map(TableColumn::Index));
        self.split_by = self.split_by.or_else(|| manifest.data.split_by.map(TableColumn::Index));
        self.held_out_last = manifest.data.held_out_last;
        self.run_is_table = manifest.data.is_table();
        self.header = self.header.or(manifest.data.header);
        self.delimiter = self.delimiter.or(manifest.data.delimiter);
        self.text = is_text(&manifest.data.kind);
        self.context = self.context.or_else(|| self.text.then_some(manifest.data.features));
        if manifest.data.kind == IMAGES {
            let [channels, height, width] = manifest.data.shape;
            self.image_size = self.image_size.or(Some(ImageSize { height, width }));
            self.channels = Some(channels);
        }
        let said = [(&mut self.ignored, &manifest.data.ignored), (&mut self.categories, &manifest.data.categories)];
        for (ours, theirs) in said.into_iter().filter(|(ours, _)| ours.is_empty()) {
            *ours = theirs.iter().map(|column| TableColumn::Index(*column)).collect();
        }
        self
    }
}

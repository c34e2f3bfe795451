use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use starling_run::{Download, FeatureScale, Manifest, RunSpec, SharedDataset};
use starling_topology::SplitMix64Generator;
use tempfile::TempDir;

use super::*;
use crate::stream::{InputSpec, RowSpec, SidePolicy, SplitSpec};
use crate::table::csv::{TableForm, TableLimits};

/// A directory with one file.
fn file(name: &str, bytes: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).expect("written");
    (directory, path)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("in memory");
    encoder.finish().expect("in memory")
}

fn written(label: &str) -> TableColumn {
    TableColumn::Written(label.to_owned())
}

fn options(path: &Path) -> DataOptions {
    DataOptions { source: path.display().to_string(), held_out: 0.0, ..DataOptions::default() }
}

fn load_csv(bytes: &[u8], change: impl FnOnce(&mut DataOptions)) -> Result<Dataset, DataError> {
    let (_directory, path) = file("data.csv", bytes);
    let mut options = options(&path);
    change(&mut options);
    Dataset::load(&options)
}

/// Loading must fail, and the message must have all of `parts` and the file's name.
fn refused(bytes: impl AsRef<[u8]>, change: impl FnOnce(&mut DataOptions), parts: &[&str]) {
    let message = load_csv(bytes.as_ref(), change).expect_err("bad data").to_string();
    for part in parts.iter().chain(&["data.csv"]) {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

/// What a model that was trained on this reads.
pub(crate) fn inputs(dataset: &Dataset) -> InputSpec {
    let (description, preprocessing) = (dataset.description(), dataset.preprocessing());
    InputSpec {
        features: description.features as usize,
        shape: description.shape,
        is_text: false,
        tokenizer: None,
        names: preprocessing.features.clone(),
        columns: preprocessing.columns.clone(),
        label: description.label.clone(),
        label_name: preprocessing.label.clone(),
        header: description.header,
        delimiter: description.delimiter,
        rows: RowSpec {
            weights: description.weights,
            split_by: description.split_by.map(|column| SplitSpec {
                column,
                sides: match description.sides_said {
                    true => SidePolicy::Said,
                    false => SidePolicy::Drawn { permille: description.held_out, seed: dataset.seed() },
                },
            }),
            held_out_last: description.held_out_last,
        },
        separated_by: None,
    }
}

#[cfg(feature = "tokenizers")]
mod arrivals;
mod bad_rows;
mod columns;
mod joined;
mod labels;
mod other_kinds;
mod placed;
mod rows;
mod sides;
mod tables;
mod texts;
#[cfg(feature = "tokenizers")]
mod tokens;

mod digits {
    use super::*;

    #[test]
    fn the_embedded_digits_are_complete_and_never_change() {
        let dataset = Dataset::load(&DataOptions::default()).expect("embedded");
        let description = dataset.description();
        assert_eq!((description.kind.as_str(), description.samples, description.features), ("digits", 1797, 64));
        assert_eq!((description.shape, description.classes, description.held_out), ([1, 8, 8], 10, 200));
        assert_eq!((dataset.training().len(), dataset.held_out().len()), (1438, 359));
        assert_eq!(dataset.class_names(), ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
        assert_eq!(dataset.preprocessing().scales, FeatureScale::Divide(16.0));
        let (all, _) = dataset.training().read(&(0..1438).collect::<Vec<_>>()).expect("held");
        assert!(all.iter().all(|value| (0.0..=1.0).contains(value)) && all.contains(&1.0));
        assert_eq!(&description.fingerprint.to_string()[..16], PINNED_FINGERPRINT);
    }

    const PINNED_FINGERPRINT: &str = "117e8248c358f5ad";

    #[test]
    fn the_split_depends_on_the_seed_and_the_fingerprint_does_not() {
        let with = |seed| Dataset::load(&DataOptions { seed, ..DataOptions::default() }).expect("embedded");
        assert_eq!(with(1).held_out().labels(), with(1).held_out().labels());
        assert_ne!(with(1).held_out().labels(), with(2).held_out().labels());
        assert_eq!(with(1).description(), with(2).description());
        assert!(with(1).check_split(0.2, 1).is_ok());
        let message = with(1).check_split(0.2, 2).expect_err("another seed").to_string();
        assert!(message.contains("seed 1, but the run says 200/1000 and seed 2"), "{message}");
    }
}

mod csv {
    use super::*;

    #[test]
    fn a_header_is_recognized_and_the_last_column_is_the_label() {
        let dataset = load_csv(b"height,width,kind\n1,10,a\n2,20,b\n3,30,a\n", |_| {}).expect("good data");
        assert_eq!(dataset.feature_names(), ["height", "width"]);
        assert_eq!(dataset.class_names(), ["a", "b"]);
        assert_eq!(dataset.training().labels(), [0, 1, 0]);
        assert_eq!(dataset.description().shape, [1, 1, 2]);
        let deviation = (2.0_f64 / 3.0).sqrt();
        let expected = (-1.0 / deviation) as f32;
        assert_eq!(dataset.training().row(0), [expected; 2]);
        assert_eq!(dataset.training().row(1), [0.0; 2]);
    }

    #[test]
    fn a_file_without_a_header_is_read_whole() {
        let dataset = load_csv(b"1,10,0\n2,20,1\n\n3,30,1\n", |_| {}).expect("good data");
        assert_eq!(dataset.description().samples, 3);
        assert!(dataset.feature_names().is_empty());
        // Text labels in the first row are no header either.
        let dataset = load_csv(b"1,10,yes\n2,20,no\n", |_| {}).expect("good data");
        assert_eq!(dataset.training().labels(), [1, 0]);
        // Unless it is said: numbers may be names.
        let dataset = load_csv(b"1,2,3\n4,5,6\n7,8,9\n", |options| options.header = Some(true)).expect("good data");
        assert_eq!(
            (dataset.description().samples, dataset.feature_names()),
            (2, &["1".to_owned(), "2".to_owned()][..])
        );
    }

    #[test]
    fn the_label_is_found_by_name_or_index() {
        let text = b"kind,a,b\nx,1,2\ny,3,4\n";
        for label in ["kind", "0"] {
            let dataset = load_csv(text, |options| options.label = Some(written(label))).expect("good data");
            assert_eq!(dataset.class_names(), ["x", "y"], "label {label}");
            assert_eq!(dataset.feature_names(), ["a", "b"]);
        }
        let dataset = load_csv(b"5,1\n6,2\n", |options| options.label = Some(written("0"))).expect("good data");
        assert_eq!(dataset.class_names(), ["5", "6"]);
    }

    #[test]
    fn a_joiner_reads_the_table_as_the_run_says() {
        // The label's index is another column's name, and numbers are names.
        let text = b"1,0,2\n1,x,2\n2,y,3\n3,x,4\n";
        let founder = load_csv(text, |options| {
            (options.label, options.header) = (Some(written("0")), Some(true));
        });
        let founder = founder.expect("good data");
        let description = founder.description();
        assert_eq!((description.label.clone(), description.header), (vec![1], Some(true)));
        let spec = RunSpec { held_out: 0.0, ..RunSpec::default() };
        let manifest = Manifest::of(&spec, founder.description());
        let joiner = load_csv(text, |options| *options = options.clone().for_run(&manifest)).expect("the same data");
        assert_eq!(joiner.description(), description);
        // What its user says goes first.
        let other = load_csv(text, |options| {
            options.label = Some(written("2"));
            *options = options.clone().for_run(&manifest);
        });
        assert_eq!(other.expect("another label").description().label, [2]);
    }

    #[test]
    fn gzipped_quoted_and_windows_files_are_read() {
        let plain = load_csv(b"a,b\n1,x\n2,y\n", |_| {}).expect("good data");
        let zipped = load_csv(&gzip(b"a,b\n1,x\n2,y\n"), |_| {}).expect("good data");
        let windows = load_csv(b"\"a\",\"b\"\r\n1, x\r\n2 ,\"y\"\r\n", |_| {}).expect("good data");
        let marked = load_csv("\u{feff}a,b\n1,x\n2,y\n".as_bytes(), |_| {}).expect("good data");
        for other in [zipped, windows, marked] {
            assert_eq!(other.description().fingerprint, plain.description().fingerprint);
            assert_eq!(other.feature_names(), ["a"]);
        }
    }

    #[test]
    fn the_fingerprint_sees_every_value_and_label() {
        let fingerprint = |text: &str| load_csv(text.as_bytes(), |_| {}).expect("good data").description().fingerprint;
        let base = fingerprint("1,2,0\n3,4,1\n");
        assert_eq!(base, fingerprint("1.0,2,0\n3,4.00,1\n"));
        for other in ["1,2,0\n3,5,1\n", "1,2,1\n3,4,0\n", "1,2,0\n3,4,1\n3,4,1\n", "1,2,0\n3,4,2\n"] {
            assert_ne!(base, fingerprint(other), "{other}");
        }
    }

    #[test]
    fn a_constant_column_becomes_zero() {
        let dataset = load_csv(b"0.1,1,0\n0.1,2,1\n0.1,3,1\n", |_| {}).expect("good data");
        assert!((0..3).all(|row| dataset.training().row(row)[0] == 0.0));
        assert!(dataset.training().row(0)[1] < -1.0);
    }

    #[test]
    fn standards_come_from_the_training_samples_only() {
        let rows: String = (0..100).map(|row| format!("{},{}\n", row * row, row % 2)).collect();
        let dataset = load_csv(rows.as_bytes(), |options| options.held_out = 0.3).expect("good data");
        assert_eq!((dataset.training().len(), dataset.held_out().len()), (70, 30));
        let values =
            |samples: &SampleSet| (0..samples.len()).map(|row| f64::from(samples.row(row)[0])).collect::<Vec<_>>();
        let training = values(dataset.training());
        let mean = training.iter().sum::<f64>() / 70.0;
        let variance = training.iter().map(|value| value * value).sum::<f64>() / 70.0;
        assert!(mean.abs() < 1e-6 && (variance - 1.0).abs() < 1e-5, "{mean}, {variance}");
        let held_out = values(dataset.held_out()).iter().sum::<f64>() / 30.0;
        assert!(held_out.abs() > 1e-3, "the held-out mean is {held_out}, as if it had been used");
    }

    #[test]
    fn bad_cells_are_named_by_row_and_column() {
        let none = |_: &mut DataOptions| {};
        refused("a,b,c\n1,2,x\n3,oops,y\n5,6,x\n", none, &["row 3", "column 1 (`b`)", "`oops` is not a number"]);
        refused("1,2,0\n3,4,\n", none, &["row 2", "column 2", "the label is empty"]);
        refused("1,2,0\n3,inf,1\n", none, &["row 2", "column 1", "`inf` is not a finite number"]);
        refused("1,2,0\n3,4\n", none, &["row 2", "it has 2 columns, but the first row has 3"]);
        refused("1,2,0\n3,4,5,6\n", none, &["row 2", "it has 4 columns, but the first row has 3"]);
        refused(b"1,2,0\n3,\xff\xfe,1\n", none, &["row 2", "column 1", "it is not UTF-8 text"]);
        // Half a header is data, so that the message shows what is wrong.
        refused("1,name,kind\n2,3,x\n3,4,y\n", none, &["row 1", "column 1", "`name` is not a number"]);
        let long = format!("1,{},0\n2,3,1\n3,4,0\n", "y".repeat(500));
        refused(long, none, &["row 1", "column 1", &format!("`{}...`", "y".repeat(40))]);
    }

    #[test]
    fn files_that_cannot_be_trained_on_are_refused_with_the_reason() {
        let none = |_: &mut DataOptions| {};
        let label = |name: &'static str| move |options: &mut DataOptions| options.label = Some(written(name));
        refused("", none, &["it is empty"]);
        refused("\n\n", none, &["it is empty"]);
        refused("a,b\n", none, &["it has a header, but no rows"]);
        refused("1\n2\n", none, &["a single column", "separated by one of comma, tab"]);
        refused("1,0\n2,0\n", none, &["column 1", "all 2 labels are `0`", "two classes"]);
        refused("size,colour,kind\n1,2,x\n2,3,y\n", label("color"), &["no column `color`", "did you mean `colour`"]);
        refused("1,2,0\n2,3,1\n", label("kind"), &["no header", "no column `kind`", "0-based index"]);
        refused("1,2,0\n2,3,1\n", label("3"), &["the label is column 3, but columns run from 0 to 2"]);
        let cut = gzip(b"1,2,0\n2,3,1\n3,4,0\n");
        refused(&cut[..cut.len() - 9], none, &["cannot read"]);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let (_directory, path) = file("other.csv", b"1,0\n");
        let missing = path.with_file_name("missing.csv");
        let message = Dataset::load(&options(&missing)).expect_err("missing").to_string();
        assert!(message.contains("cannot read") && message.contains("missing.csv"), "{message}");
        let message = load_csv(b"1,0\n2,1\n", |options| options.held_out = 1.0).expect_err("no share").to_string();
        assert!(message.contains("held_out is 1,"), "{message}");
    }
}

mod idx {
    use super::*;

    const SIZE: usize = 6;

    fn images(count: u32) -> Vec<u8> {
        let pixels = (0..count as usize * SIZE).map(|at| (at % 256) as u8);
        header(&[0, 0, 8, 3], &[count, 2, 3]).into_iter().chain(pixels).collect()
    }

    fn labels(count: u32) -> Vec<u8> {
        header(&[0, 0, 8, 1], &[count]).into_iter().chain((0..count).map(|at| (at % 3) as u8)).collect()
    }

    fn header(magic: &[u8], sizes: &[u32]) -> Vec<u8> {
        magic.iter().copied().chain(sizes.iter().flat_map(|size| size.to_be_bytes())).collect()
    }

    fn directory(files: &[(&str, Vec<u8>)]) -> TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, bytes) in files {
            std::fs::write(directory.path().join(name), bytes).expect("written");
        }
        directory
    }

    fn refused(files: &[(&str, Vec<u8>)], source: &str, parts: &[&str]) {
        let directory = directory(files);
        let message = Dataset::load(&options(&directory.path().join(source))).expect_err("bad data").to_string();
        for part in parts {
            assert!(message.contains(part), "`{part}` is not in: {message}");
        }
    }

    const IMAGES: &str = "train-images-idx3-ubyte";
    const LABELS: &str = "train-labels-idx1-ubyte";

    #[test]
    fn a_directory_with_the_four_files_brings_its_own_held_out_samples() {
        let directory = directory(&[
            (IMAGES, images(30)),
            ("train-labels-idx1-ubyte.gz", gzip(&labels(30))),
            ("t10k-images-idx3-ubyte.gz", gzip(&images(6))),
            ("t10k-labels-idx1-ubyte", labels(6)),
            ("readme.txt", b"hello".to_vec()),
        ]);
        let dataset = Dataset::load(&DataOptions { held_out: 0.2, ..options(directory.path()) }).expect("good data");
        let description = dataset.description();
        assert_eq!((description.kind.as_str(), description.samples), ("idx with held-out files", 36));
        assert_eq!((description.shape, description.features, description.classes), ([1, 2, 3], 6, 3));
        assert_eq!((dataset.training().len(), dataset.held_out().len()), (30, 6));
        assert_eq!(dataset.training().row(1)[1], 7.0 / 255.0);
        assert_eq!(dataset.held_out().labels(), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn an_images_file_alone_is_split() {
        let directory = directory(&[("my.images.idx3", images(10)), ("my.labels.idx1", labels(10))]);
        let source = directory.path().join("my.images.idx3");
        let dataset = Dataset::load(&DataOptions { held_out: 0.2, ..options(&source) }).expect("good data");
        assert_eq!(dataset.description().kind, "idx");
        assert_eq!((dataset.training().len(), dataset.held_out().len()), (8, 2));
    }

    #[test]
    fn files_whose_headers_and_contents_disagree_are_refused() {
        let pair = |images: Vec<u8>, labels: Vec<u8>| [(IMAGES, images), (LABELS, labels)];
        let cut = images(5)[..30].to_vec();
        refused(&pair(cut, labels(5)), "", &[IMAGES, "the data", "30 bytes as the header says", "cut off after 14"]);
        let longer = [images(5), vec![0]].concat();
        refused(&pair(longer, labels(5)), "", &[IMAGES, "30 bytes as the header says", "longer"]);
        let swapped = labels(50);
        refused(&pair(swapped, labels(5)), "", &[IMAGES, "magic number is [00, 00, 08, 01]", "[00, 00, 08, 03]"]);
        refused(&pair(images(5), images(5)), "", &[LABELS, "magic number is [00, 00, 08, 03]"]);
        refused(&pair(images(5), labels(4)), "", &[LABELS, "number of labels is 4", "expected 5"]);
        refused(&pair(images(5)[..9].to_vec(), labels(5)), "", &[IMAGES, "the header is 9 bytes, expected 16"]);
        let none = header(&[0, 0, 8, 3], &[5, 0, 3]);
        refused(&pair(none, labels(5)), "", &[IMAGES, "height is 0, expected at least 1"]);
        let huge = header(&[0, 0, 8, 3], &[u32::MAX, u32::MAX, u32::MAX]);
        refused(&pair(huge, labels(5)), "", &[IMAGES, "the size in the header", "at most 2147483648 bytes in memory"]);
        // A claim of two gigabytes over four bytes of content: found out by reading, not by reserving.
        let claim = [header(&[0, 0, 8, 3], &[1 << 15, 1 << 8, 1 << 8]), vec![1; 4]].concat();
        refused(&pair(claim, labels(5)), "", &[IMAGES, "2147483648 bytes", "cut off after 4"]);
        let same = header(&[0, 0, 8, 1], &[5]).into_iter().chain([1; 5]).collect();
        refused(&pair(images(5), same), "", &["all 5 labels are `1`"]);
        let mut damaged = gzip(&images(5));
        damaged.truncate(20);
        refused(&pair(damaged, labels(5)), "", &["cannot read", IMAGES]);
    }

    #[test]
    fn files_that_do_not_go_together_are_refused() {
        refused(&[(IMAGES, images(5))], IMAGES, &["its labels file `train-labels-idx1-ubyte` is not beside it"]);
        refused(&[("data.bin", images(5))], "data.bin", &["has `images` in its name"]);
        refused(&[(LABELS, labels(5))], LABELS, &["has `images` in its name"]);
        refused(&[("readme.txt", vec![])], "", &["no `train-images-idx3-ubyte` file"]);
        let two = [("a-images-idx3-ubyte", images(5)), ("b-images-idx3-ubyte", images(5))];
        refused(&two, "", &["several files of training images: a-images-idx3-ubyte, b-images-idx3-ubyte"]);
        let other = header(&[0, 0, 8, 3], &[5, 1, 1]).into_iter().chain([0; 5]).collect();
        let sizes = [
            (IMAGES, images(5)),
            (LABELS, labels(5)),
            ("t10k-images-idx3-ubyte", other),
            ("t10k-labels-idx1-ubyte", labels(5)),
        ];
        refused(&sizes, "", &["t10k-images", "image size is 1x1, expected 2x3"]);
    }
}

#[test]
fn images_keep_their_kind_under_any_name_and_compressed() {
    let folder = tempfile::tempdir().expect("a folder");
    let images =
        |count: u8| [&[0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 1, 0, 0, 0, 2][..], &vec![7; 2 * count as usize]].concat();
    let labels = |count: u8| [vec![0, 0, 8, 1, 0, 0, 0, count], (0..count).map(|at| at % 2).collect()].concat();
    let write = |name: &str, bytes: Vec<u8>| std::fs::write(folder.path().join(name), bytes).expect("written");
    write("my-images-idx3", gzip(&images(4)));
    write("my-labels-idx1", labels(4));
    let alone = folder.path().join("my-images-idx3").display().to_string();
    for (source, kind, held_out) in
        [(alone, "idx", 0), (folder.path().display().to_string(), "idx with held-out files", 2)]
    {
        if held_out > 0 {
            write("test-images-idx3", images(held_out));
            write("test-labels-idx1", labels(held_out));
        }
        let (found, paths) = files(&source).expect("readable");
        let shared = SharedDataset::open(found.files, &paths).expect("readable").expect("files");
        let to = folder.path().join(kind);
        let mut download = Download::open(&to, shared.manifest().clone(), 1 << 20).expect("made");
        for chunk in download.missing() {
            download.insert(&shared.chunk(chunk).expect("read").expect("there")).expect("taken");
        }
        let load = |source: String| Dataset::load(&DataOptions { source, ..DataOptions::default() }).expect("images");
        let (ours, theirs) = (load(found.source_in(&to).display().to_string()), load(source.clone()));
        assert_eq!((ours.description(), ours.description().kind.as_str()), (theirs.description(), kind));
    }
    let (kind, files) = files("digits").expect("embedded");
    assert_eq!((kind.name, kind.source_in(folder.path()), files), ("digits", "digits".into(), Vec::new()));
}

#[test]
fn a_file_that_unpacks_to_more_than_it_may_is_not_read() {
    let text = format!("1.5,2,a\n2.5,1,b\n3.5,0,a\n{}4.5,7,b\n", " ".repeat(3 << 20));
    let (_directory, path) = file("table.csv", &gzip(text.as_bytes()));
    let load = |max_file_bytes| Dataset::load(&DataOptions { max_file_bytes, ..options(&path) });
    load(text.len() as u64).expect("as long as it may be");
    let error = load(text.len() as u64 - 1).expect_err("longer").to_string();
    assert!(error.contains("more than") && error.contains("unpacked"), "{error}");
}

#[test]
fn damaged_files_never_panic() {
    let mut generator = SplitMix64Generator::new(17);
    let mut damage = |valid: &[u8]| {
        let mut bytes = valid.to_vec();
        for _ in 0..=generator.below(3) {
            let at = generator.below(bytes.len() as u32) as usize;
            // Characters that mean something to one of the formats, more often than any byte.
            let special = b"\n\r,\"0.-\0\x08\xff"[generator.below(10) as usize];
            bytes[at] = if generator.below(4) == 0 { generator.next_u64() as u8 } else { special };
        }
        bytes.truncate(generator.below(bytes.len() as u32 * 3) as usize);
        bytes
    };
    let text = b"height,width,color,kind\n1,2.5,red,a\n-3,1e3,blue,b\n\"4\",,red,a\n";
    let limits = TableLimits { max: u64::MAX, held: 1 << 20 };
    let mut read = 0;
    for _ in 0..5_000 {
        let bytes = damage(text);
        let raw = crate::table::csv::parse(|| Ok(&bytes[..]), Path::new("damaged.csv"), TableForm::default(), limits);
        read += usize::from(raw.and_then(|raw| Dataset::build(raw, 200, 1)).is_ok());
    }
    assert!(read > 0, "some damage is harmless");

    let (directory, images) = file("x-images-idx3-ubyte", b"");
    let pixels = [&[0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 2][..], &[9; 8]].concat();
    let labels = [&[0, 0, 8, 1, 0, 0, 0, 4][..], &[0, 1, 2, 1]].concat();
    let zipped = [gzip(&pixels), gzip(&labels)];
    for round in 0..400 {
        let (pixels, labels) = if round % 2 == 0 { (&pixels, &labels) } else { (&zipped[0], &zipped[1]) };
        std::fs::write(&images, damage(pixels)).expect("written");
        std::fs::write(directory.path().join("x-labels-idx1-ubyte"), damage(labels)).expect("written");
        // Whatever comes of it, it is an answer that names the place.
        let answer = Dataset::load(&options(directory.path()));
        assert!(
            answer.is_ok()
                || answer.is_err_and(|error| error.to_string().contains(&*directory.path().to_string_lossy()))
        );
    }
}

//! What is said of how a table is read, where the data is none.

use super::*;

/// A change to what is said, and the flags that say it.
type Said = (fn(&mut DataOptions), &'static [&'static str]);

const SAID: [Said; 10] = [
    (|options| options.label = Some(written("0")), &["--label"]),
    (|options| options.header = Some(true), &["--header"]),
    (|options| options.header = Some(false), &["--no-header"]),
    (|options| options.delimiter = Some(Delimiter::Tab), &["--delimiter"]),
    (|options| options.ignored = vec![written("1")], &["--ignore"]),
    (|options| options.categories = vec![written("1")], &["--categories"]),
    (|options| options.weights = Some(written("w")), &["--weights"]),
    (|options| options.split_by = Some(written("s")), &["--split-by"]),
    (|options| options.held_out_file = Some("others.csv".into()), &["--held-out-file"]),
    (|options| (options.weights, options.label) = (Some(written("w")), Some(written("0"))), &["--label", "--weights"]),
];

const FLAGS: [&str; 9] = [
    "--label",
    "--header",
    "--no-header",
    "--delimiter",
    "--ignore",
    "--categories",
    "--weights",
    "--split-by",
    "--held-out-file",
];

/// Images of two by two in IDX, with their labels beside them.
fn images(folder: &Path) -> PathBuf {
    let bytes: Vec<u8> = (0..12 * 4).collect();
    let header = [0_u8, 0, 8, 3, 0, 0, 0, 12, 0, 0, 0, 2, 0, 0, 0, 2];
    let path = folder.join("images-idx3-ubyte");
    std::fs::write(&path, [&header[..], &bytes].concat()).expect("written");
    let labels: Vec<u8> = (0..12).map(|at| at % 2).collect();
    std::fs::write(folder.join("labels-idx1-ubyte"), [&[0, 0, 8, 1, 0, 0, 0, 12][..], &labels].concat())
        .expect("written");
    path
}

#[test]
fn flags_of_tables_are_refused_on_data_that_is_none_and_those_alone_are_named() {
    let folder = tempfile::tempdir().expect("a directory");
    let text = folder.path().join("a.txt");
    std::fs::write(&text, "In the beginning").expect("written");
    let source = |path: &Path| DataOptions { source: path.display().to_string(), ..DataOptions::default() };
    let of_text = DataOptions { text: true, context: Some(4), ..source(&text) };
    for (options, parts) in [
        (DataOptions::default(), ["`digits`: ", "built-in images", "name a table with --data"]),
        (source(&images(folder.path())), ["images-idx3-ubyte`: ", "IDX", "name a table with --data"]),
        (of_text, ["a.txt`: ", "read as a text", "take a model for tables"]),
    ] {
        Dataset::load(&options).expect("without them");
        for (say, flags) in SAID {
            let mut options = options.clone();
            say(&mut options);
            let told = Dataset::load(&options).expect_err("refused").to_string();
            assert!(parts.iter().all(|part| told.contains(part)), "{told}");
            for flag in FLAGS {
                let is_named = told.split([' ', ',', ';']).any(|word| word == flag);
                assert_eq!(is_named, flags.contains(&flag), "{flag}: {told}");
            }
            // Of a run on a table, the run has said what its user has not: that the data is none is told by what differs.
            Dataset::load(&DataOptions { run_is_table: true, ..options }).expect("not refused for these");
        }
    }
    // What is said of texts and of images may be meant for other data of the same configuration.
    let options = DataOptions { context: Some(4), image_size: "8".parse().ok(), ..DataOptions::default() };
    let warnings = Dataset::load(&options).expect("digits").warnings(1, true);
    assert!(warnings.len() == 2 && warnings[0].contains("--context") && warnings[1].contains("--image-size"));
}

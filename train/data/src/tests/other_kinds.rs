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

/// Nobody is told that a folder of tables holds images.
#[test]
fn a_folder_of_tables_is_said_to_be_one_and_images_are_called_what_they_are() {
    let folder = tempfile::tempdir().expect("a directory");
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(at("nested/parts")).expect("made");
    std::fs::create_dir_all(at("photos/cat")).expect("made");
    std::fs::create_dir_all(at("shards")).expect("made");
    for table in ["nested/a.csv", "nested/parts/a.csv"] {
        std::fs::write(at(table), "a,price\n1,2\n2,3\n").expect("written");
    }
    std::fs::write(at("photos/cat/1.png"), "").expect("written");
    let mut shard = tar::Builder::new(std::fs::File::create(at("shards/0.tar")).expect("made"));
    shard.append_dir_all("photos", at("photos")).and_then(|()| shard.finish()).expect("packed");
    let said = |name: &str| DataOptions {
        source: at(name).display().to_string(),
        label: Some(written("price")),
        ..DataOptions::default()
    };
    for (name, parts, not) in [
        (
            "nested/parts",
            ["it is a folder in which no images are found", "--label says", "name the table's file"],
            "holds",
        ),
        ("nested", ["it is a folder in which no images are found", "--label says", "name the table's file"], "holds"),
        ("photos", ["it holds images, in a folder for each class", "--label says", "leave it out"], "archives"),
        ("shards", ["it holds images, in tar archives", "--label says", "leave it out"], "folder for each"),
        ("shards/0.tar", ["it holds images, in tar archives", "--label says", "leave it out"], "folder for each"),
    ] {
        let told = Dataset::load(&said(name)).expect_err("refused").to_string();
        assert!(parts.iter().all(|part| told.contains(part)) && !told.contains(not), "{name}: {told}");
    }
    let joiner = DataOptions { run_is_table: true, ..said("nested") };
    let told = Dataset::load(&joiner).expect_err("refused").to_string();
    assert!(told.contains("the run's data is a table: name the table's file"), "{told}");
    let told = Dataset::load(&DataOptions { label: None, ..said("nested/parts") }).expect_err("refused").to_string();
    assert!(told.contains("no folders of images; of a table, name the file"), "{told}");
}

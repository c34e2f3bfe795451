//! Tables and images as they come to a trained model.

use std::io::Write;

use super::*;
use crate::{DataOptions, Dataset};

/// Of a table with a header, whose label was between its features.
fn of_table() -> InputSpec {
    InputSpec {
        features: 2,
        shape: [1, 1, 2],
        is_text: false,
        tokenizer: None,
        names: ["a", "b"].map(str::to_owned).to_vec(),
        columns: Vec::new(),
        label: vec![1],
        label_name: vec!["kind".to_owned()],
        header: Some(true),
        delimiter: Some(Delimiter::Comma),
        rows: RowSpec::default(),
        separated_by: None,
    }
}

fn of_images(shape: [u32; 3]) -> InputSpec {
    let features = shape.iter().map(|side| *side as usize).product();
    let (names, columns) = (Vec::new(), Vec::new());
    let (is_text, tokenizer, label, label_name) = (false, None, Vec::new(), Vec::new());
    let (header, delimiter, separated_by) = (None, None, None);
    InputSpec {
        features,
        shape,
        is_text,
        tokenizer,
        names,
        columns,
        label,
        label_name,
        header,
        delimiter,
        rows: RowSpec::default(),
        separated_by,
    }
}

fn read(text: &[u8], inputs: &InputSpec) -> Result<Vec<Block>, DataError> {
    let mut reader = Reader::of(io::Cursor::new(text.to_vec()), Path::new("table.csv"), inputs, LabelPolicy::Wanted)?;
    let mut blocks = Vec::new();
    while let Some(block) = reader.next_block(2)? {
        blocks.push(block);
    }
    Ok(blocks)
}

fn values(text: &str, inputs: &InputSpec) -> Vec<f64> {
    read(text.as_bytes(), inputs).expect("good data").into_iter().flat_map(|block| block.values).collect()
}

#[test]
fn columns_are_found_by_their_names_or_by_their_places() {
    let inputs = of_table();
    for text in ["a,b\n1,2\n3,4\n", "b,a\n2,1\n4,3\n", "kind,b,a\nx,2,1\ny,4,3\n", "b,kind,a\n2,x,1\n\n4,y,3\n"] {
        assert_eq!(values(text, &inputs), [1.0, 2.0, 3.0, 4.0], "{text}");
    }
    // What is to be predicted may be missing, and is taken as it is.
    let unlabelled = io::Cursor::new(b"b,kind,a\n2,,1\n4,x,3\n".to_vec());
    let mut reader = Reader::of(unlabelled, Path::new("table.csv"), &inputs, LabelPolicy::Unused).expect("a table");
    let block = reader.next_block(9).expect("good").expect("rows");
    assert_eq!((block.len(), &*block.labels, reader.has_labels()), (2, &["".to_owned(), "x".to_owned()][..], true));
    let labels = |text: &str| {
        let blocks = read(text.as_bytes(), &inputs).expect("good data");
        blocks.into_iter().flat_map(|block| block.labels).collect::<Vec<_>>()
    };
    assert_eq!(labels("b,kind,a\n2,x y,1\n4,\"y,z\",3\n"), ["x y", "y,z"]);
    assert_eq!(labels("a,b\n1,2\n"), [""; 0]);
    let by_place = InputSpec { names: Vec::new(), header: Some(false), ..inputs.clone() };
    assert_eq!(values("1,2\n3,4\n", &by_place), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(values("1,x,2\n3,y,4\n", &by_place), [1.0, 2.0, 3.0, 4.0]);
    // Of which several have one name: only the same table will do.
    let twice = InputSpec { names: vec!["a".to_owned(); 2], ..inputs };
    assert_eq!(values("a,a\n1,2\n", &twice), [1.0, 2.0]);
    assert_eq!(values("a,kind,a\n1,x,2\n", &twice), [1.0, 2.0]);
    let error = read(b"kind,a,a\nx,1,2\n", &twice).expect_err("another order").to_string();
    assert!(error.contains("several of the model's columns have one name"), "{error}");
    // Of a model of images, its pixels, with and without names.
    for text in ["1;2\n3;4\n", "p0;p1\n1;2\n3;4\n", "1;2;x\n3;4;y\n", "p0;p1;kind\n1;2;x\n3;4;y\n"] {
        assert_eq!(values(text, &of_images([1, 1, 2])), [1.0, 2.0, 3.0, 4.0], "{text}");
    }
    // A copy may be separated otherwise.
    assert_eq!(values("1;2\n3;4\n", &by_place), [1.0, 2.0, 3.0, 4.0]);
    for (text, part) in [
        ("1,2,3,4\n", "it has 4 columns, but the model takes 2 features, or these and a label as column 1"),
        ("1\n", "it has 1 columns, but the model takes 2 features"),
    ] {
        let error = read(text.as_bytes(), &by_place).expect_err("other columns").to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn blocks_are_no_larger_than_they_may_be_and_say_where_their_rows_are() {
    let blocks = read(b"a,b\n1,2\n3,4\n5,6\n", &of_table()).expect("good data");
    let rows: Vec<_> = blocks.iter().map(|block| block.rows.clone()).collect();
    assert_eq!(rows, [vec![2, 3], vec![4]]);
    let blocks = read(b"a,b\r\n\r\n1,2\r\n\"3\r\n\",4\r\n\r\n5,6", &of_table()).expect("good data");
    let rows: Vec<_> = blocks.iter().map(|block| block.rows.clone()).collect();
    assert_eq!(rows, [vec![3, 4], vec![7]]);
    let error = read(b"a,b\n1,2\n\n3,\"4\n", &of_table()).expect_err("open").to_string();
    assert!(error.contains("row 4: a quote opens in it that is never closed"), "{error}");
}

#[test]
fn a_table_is_scaled_from_the_same_numbers_as_for_training() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let row = |at: u32| format!("{}.1,{}e-3,{}\n", at * 7 % 13, at, ["x", "y"][at as usize % 2]);
    write!(file, "a,b,kind\n{}", (0..100).map(row).collect::<String>()).expect("written");
    let source = file.path().display().to_string();
    let options = DataOptions { source: source.clone(), held_out: 0.0, ..DataOptions::default() };
    let dataset = Dataset::load(&options).expect("good data");
    let inputs = InputSpec { label: vec![2], ..of_table() };
    let mut reader = Reader::open(&source, &inputs, LabelPolicy::Unused).expect("opened");
    let mut at = 0;
    while let Some(block) = reader.next_block(7).expect("good data") {
        for sample in block.values.chunks(2) {
            let scaled = [0, 1].map(|column| dataset.preprocessing().scales.scaled(column, sample[column]));
            assert_eq!(scaled, dataset.training().row(at), "sample {at}");
            at += 1;
        }
    }
    assert_eq!(at, 100);
}

#[test]
fn a_quote_that_is_never_closed_fills_no_memory() {
    let endless = b"a,b\n1,\"2".iter().copied().chain(std::iter::repeat_n(b'\n', 64 << 20));
    let error = read(&endless.collect::<Vec<u8>>(), &of_table()).expect_err("one row").to_string();
    assert!(error.contains("a row has more than 16 MiB") && error.contains("close the quotes"), "{error}");
    // One that can be trained on can be predicted.
    let label = "x".repeat(15 << 20);
    let blocks = read(format!("a,b,kind\n1,2,y\n3,4,{label}\n5,6,y\n").as_bytes(), &of_table()).expect("long");
    let lengths = blocks.iter().flat_map(|block| &block.labels).map(String::len);
    assert_eq!(lengths.collect::<Vec<_>>(), [1, label.len(), 1]);
    // However many rows there are.
    let rows = "1,2\n".repeat(1 << 20);
    let mut reader =
        Reader::of(io::Cursor::new(format!("a,b\n{rows}")), Path::new("table.csv"), &of_table(), LabelPolicy::Unused)
            .expect("opened");
    let mut count = 0;
    while let Some(block) = reader.next_block(512).expect("good data") {
        count += block.len();
    }
    assert_eq!(count, 1 << 20);
}

fn idx(sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
    let magic = if sizes.len() == 3 { idx::IMAGES } else { idx::LABELS };
    let sizes: Vec<u8> = sizes.iter().flat_map(|size| size.to_be_bytes()).collect();
    [&magic[..], &sizes, bytes].concat()
}

#[test]
fn images_come_with_their_labels_if_they_are_wanted() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: Vec<u8>| std::fs::write(folder.path().join(name), bytes).expect("written");
    write("train-images-idx3-ubyte", idx(&[3, 1, 2], &[1, 2, 3, 4, 5, 6]));
    write("t10k-images-idx3-ubyte", idx(&[1, 1, 2], &[7, 8]));
    let source = folder.path().display().to_string();
    let inputs = of_images([1, 1, 2]);
    let open = |labels| Reader::open(&source, &inputs, labels);
    let missing = open(LabelPolicy::Wanted).expect_err("no labels").to_string();
    assert!(missing.contains("its labels file `train-labels-idx1-ubyte` is not beside it"), "{missing}");
    let mut reader = open(LabelPolicy::Unused).expect("images alone");
    assert!(!reader.has_labels() && reader.holds_out());
    assert_eq!(reader.next_block(2).expect("good data").expect("a block").values, [1.0, 2.0, 3.0, 4.0]);
    write("train-labels-idx1-ubyte", idx(&[3], &[0, 1, 0]));
    write("t10k-labels-idx1-ubyte", idx(&[1], &[9]));
    let mut reader = open(LabelPolicy::Wanted).expect("with labels");
    let mut all = Vec::new();
    while let Some(block) = reader.next_block(2).expect("good data") {
        all.push((block.labels.join(" "), block.rows, block.held_out));
    }
    let expected = [("0 1", vec![1, 2], false), ("0", vec![3], false), ("9", vec![1], true)];
    assert_eq!(all, expected.map(|(labels, rows, held_out)| (labels.to_owned(), rows, held_out)));

    let refused = |name: &str, bytes: Vec<u8>, part: &str| {
        let before = std::fs::read(folder.path().join(name)).expect("read");
        write(name, bytes);
        let mut failed = None;
        match open(LabelPolicy::Wanted) {
            Err(error) => failed = Some(error.to_string()),
            Ok(mut reader) => {
                while failed.is_none() {
                    match reader.next_block(9) {
                        Err(error) => failed = Some(error.to_string()),
                        Ok(block) => assert!(block.is_some(), "{part} is not told"),
                    }
                }
            }
        }
        assert!(
            failed.as_ref().is_some_and(|error| error.contains(part) && error.contains(name)),
            "{part}: {failed:?}"
        );
        write(name, before);
    };
    let images = "train-images-idx3-ubyte";
    refused(images, idx(&[3, 1, 2], &[1, 2, 3, 4, 5]), "cut off");
    refused(images, idx(&[3, 1, 2], &[1, 2, 3, 4, 5, 6, 7]), "longer");
    refused(images, idx(&[3, 2, 1], &[1, 2, 3, 4, 5, 6]), "image size is 2x1, expected 1x2, as the model takes them");
    refused(images, idx(&[3, 0, 1], &[]), "height is 0");
    refused("train-labels-idx1-ubyte", idx(&[2], &[0, 1]), "number of labels is 2, expected 3");
    refused("train-labels-idx1-ubyte", idx(&[3], &[0, 1]), "cut off");
    let labels = folder.path().join("train-labels-idx1-ubyte").display().to_string();
    let error = Reader::open(&labels, &inputs, LabelPolicy::Unused).expect_err("labels").to_string();
    assert!(error.contains("name the file of the images"), "{error}");
}

#[test]
fn the_built_in_digits_are_there_for_whatever_takes_as_many_pixels() {
    let mut reader = Reader::open("digits", &of_images([1, 8, 8]), LabelPolicy::Wanted).expect("embedded");
    let (mut count, whole) = (0, Dataset::load(&DataOptions { held_out: 0.0, ..DataOptions::default() }));
    let whole = whole.expect("embedded");
    while let Some(block) = reader.next_block(100).expect("good data") {
        for (label, sample) in block.labels.iter().zip(block.values.chunks(64)) {
            assert_eq!(whole.class_names()[whole.training().labels()[count] as usize], *label);
            assert!(sample.iter().zip(whole.training().row(count)).all(|(raw, scaled)| (raw / 16.0) as f32 == *scaled));
            count += 1;
        }
    }
    assert_eq!(count, 1797);
    let error = Reader::open("digits", &of_images([1, 9, 9]), LabelPolicy::Wanted).expect_err("others").to_string();
    assert!(error.contains("it has 65 columns, but the model takes 81 features"), "{error}");
}

#[test]
fn a_text_comes_in_the_windows_that_it_was_trained_in() {
    let inputs = InputSpec { is_text: true, ..of_images([1, 1, 4]) };
    let read = |bytes: &'static [u8]| {
        let mut reader = Reader::of(bytes, Path::new("a.txt"), &inputs, LabelPolicy::Wanted)?;
        let mut all = Vec::new();
        while let Some(block) = reader.next_block(2)? {
            let text: Vec<u8> = block.values.iter().map(|byte| *byte as u8).collect();
            all.push((String::from_utf8_lossy(&text).into_owned(), block.rows));
        }
        Ok::<_, crate::DataError>(all)
    };
    let expected = [("In thhe be", vec![1, 2]), ("eginn", vec![3])];
    assert_eq!(read(b"In the beginning").expect("a text"), expected.map(|(text, rows)| (text.to_owned(), rows)));
    assert_eq!(read(b"12345").expect("one window").len(), 1);
    let error = read(b"1234").expect_err("too short").to_string();
    assert!(error.contains("it has 4 bytes, but one window of 4 and the byte behind need 5"), "{error}");
    let error = Reader::open(".", &inputs, LabelPolicy::Wanted).expect_err("a folder").to_string();
    assert!(error.contains("a text is one file"), "{error}");
    let table = tempfile::Builder::new().suffix(".csv").tempfile().expect("a file");
    std::fs::write(table.path(), "a,b\n1,2\n3,4\n").expect("written");
    let error = Reader::open(&table.path().display().to_string(), &inputs, LabelPolicy::Wanted).expect_err("a table");
    assert!(error.to_string().contains("it is a table by its name, but the model takes a text"), "{error}");
}

#[test]
fn a_folder_without_images_is_said_to_have_none() {
    let folder = tempfile::tempdir().expect("a directory");
    let source = folder.path().display().to_string();
    for (inputs, labels, part) in [
        (of_images([3, 8, 8]), LabelPolicy::Unused, "it has no image in it (.png, .jpg, .jpeg)"),
        (of_images([3, 8, 8]), LabelPolicy::Wanted, "it has no folders, but each class has one"),
        (of_table(), LabelPolicy::Unused, "it is a folder, but the model takes a table's rows"),
    ] {
        let error = Reader::open(&source, &inputs, labels).expect_err("nothing there").to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn the_fingerprint_of_blocks_is_that_of_the_whole_table() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("table.csv");
    let of_classes: String = (0..90).map(|at| format!("{},{},k{}\n", at % 7, ["x", "", "y"][at % 3], at % 4)).collect();
    let of_numbers: String = (0..90).map(|at| format!("{},{}.5,{}.50\n", at % 7, at % 5, at % 11)).collect();
    for (header, rows) in [("a,b,kind\n", of_classes), ("a,b,y\n", of_numbers)] {
        let text = format!("{header}{rows}");
        std::fs::write(&path, &text).expect("written");
        let source = path.display().to_string();
        let dataset =
            Dataset::load(&DataOptions { source: source.clone(), ..DataOptions::default() }).expect("a table");
        let (inputs, description) = (crate::tests::inputs(&dataset), dataset.description());
        let classes = &dataset.preprocessing().classes;
        let found = |text: &str, samples: u64| {
            std::fs::write(&path, text).expect("written");
            let mut tracker = FingerprintTracker::new(&inputs, classes, samples);
            let mut reader = Reader::open(&source, &inputs, LabelPolicy::Unused).expect("a table");
            while let Some(block) = reader.next_block(7).expect("rows") {
                tracker.add(&block);
            }
            tracker.finish()
        };
        assert_eq!(found(&text, 90), Some(description.fingerprint));
        assert_eq!(found(&text, 91), None, "shorter than the run's");
        assert_eq!(found(&text, 89), None, "longer");
        assert_eq!(
            found(&text.replacen(",k1\n", ",\n", 1).replacen(".50\n", ".5x\n", 1), 90),
            None,
            "a label that is none"
        );
        let other = found(&text.replacen("\n0,", "\n3,", 1), 90);
        assert!(other.is_some_and(|other| other != description.fingerprint), "{other:?}");
    }
}

/// Whether both columns are there, in whatever order, and none of their cells is another.
#[test]
fn the_fingerprint_of_blocks_covers_what_rows_count_and_which_are_held_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("table.csv");
    let source = path.display().to_string();
    let row = |at: usize| format!("{},k{},u{},{},{}\n", at % 7, at % 4, at % 9, at % 3, ["train", "Test"][at % 5 / 4]);
    let text = "a,kind,user,counts,side\n".to_owned() + &(0..90).map(row).collect::<String>();
    let written = |column: &str| Some(crate::TableColumn::Written(column.to_owned()));
    for (weights, split_by, held_out_last) in [
        ("counts", "", None),
        ("", "user", None),
        ("", "side", None),
        ("counts", "user", None),
        ("counts", "side", None),
        ("", "", Some(20)),
        ("counts", "", Some(20)),
    ] {
        let others = ["user", "counts", "side"].into_iter().filter(|name| ![weights, split_by].contains(name));
        let options = DataOptions {
            source: source.clone(),
            label: written("kind"),
            weights: written(weights).filter(|_| !weights.is_empty()),
            split_by: written(split_by).filter(|_| !split_by.is_empty()),
            held_out_last,
            ignored: others.filter_map(written).collect(),
            ..DataOptions::default()
        };
        std::fs::write(&path, &text).expect("written");
        let dataset = Dataset::load(&options).expect("a table");
        let (inputs, description) = (crate::tests::inputs(&dataset), dataset.description());
        let found = |text: &str, inputs: &InputSpec| {
            std::fs::write(&path, text).expect("written");
            let mut tracker = FingerprintTracker::new(inputs, &dataset.preprocessing().classes, 90);
            let mut reader = Reader::open(&source, inputs, LabelPolicy::Unused).expect("a table");
            let has_column = text.lines().next().is_some_and(|header| header.split(',').any(|name| name == split_by));
            assert_eq!(reader.has_sides(), inputs.rows.split_by.is_some() && has_column);
            let mut held_out = 0;
            while let Some(block) = reader.next_block(7).expect("rows") {
                let split = inputs.rows.split_by;
                let is_held_out = |note: &&RowRecord| split.and_then(|split| note.is_held_out(&split)) == Some(true);
                held_out += block.notes.iter().filter(is_held_out).count();
                tracker.add(&block);
            }
            (tracker.finish(), held_out)
        };
        let rows = dataset.held_out().len();
        let expected = (Some(description.fingerprint), if split_by.is_empty() { 0 } else { rows });
        assert_eq!(found(&text, &inputs), expected, "{weights} {split_by}");
        let turned: String =
            text.lines().map(|line| line.split(',').rev().collect::<Vec<_>>().join(",") + "\n").collect();
        assert_eq!(found(&turned, &inputs), expected, "columns go by their names");
        // What the run did not go by is not looked at.
        let other = RowSpec::default();
        assert_ne!(found(&text, &InputSpec { rows: other, ..inputs.clone() }).0, expected.0);
        for (name, from, to) in [
            ("counts", "u1,1,train", "u1,2,train"),
            ("side", ",train", ",test"),
            // Held out, which it was not.
            ("user", ",u1,", ",u5,"),
            // Trained on, as it was: which text it is does not matter.
            ("", ",u1,", ",u2,"),
        ] {
            let is_known = !name.is_empty() && [weights, split_by].contains(&name);
            let changed = text.replacen(from, to, 1);
            assert!(changed != text);
            let (changed, held_out) = found(&changed, &inputs);
            assert_eq!(changed == expected.0, !is_known, "{name}: {weights} {split_by}");
            assert_eq!(held_out != expected.1, is_known && name != "counts", "{name}: {weights} {split_by}");
        }
        let without = |name: &str| {
            let at =
                text.lines().next().and_then(|header| header.split(',').position(|it| it == name)).expect("a column");
            let cut = |line: &str| {
                let cells = line.split(',').enumerate().filter(|(place, _)| *place != at).map(|(_, cell)| cell);
                cells.collect::<Vec<_>>().join(",") + "\n"
            };
            text.lines().map(cut).collect::<String>()
        };
        for name in ["counts", "user", "side"] {
            let (found, _) = found(&without(name), &inputs);
            assert_eq!(found, expected.0.filter(|_| ![weights, split_by].contains(&name)), "without `{name}`");
        }
        for (name, bad) in [("counts", "u1,x,train"), ("user", ",,1,train")] {
            let (found, _) =
                found(&text.replacen(if name == "user" { ",u1,1,train" } else { "u1,1,train" }, bad, 1), &inputs);
            assert_eq!(found, expected.0.filter(|_| ![weights, split_by].contains(&name)), "a bad `{name}`");
        }
    }
}

#[test]
fn columns_are_coded_as_in_training() {
    let (directory, text) =
        (tempfile::tempdir().expect("a directory"), "id,age,sex,kind\n1,30,f,x\n2,,m,y\n3,50,m,x\n");
    let path = directory.path().join("table.csv");
    std::fs::write(&path, text).expect("written");
    let ignored = vec![crate::TableColumn::Written("id".to_owned())];
    let options = DataOptions { source: path.display().to_string(), held_out: 0.0, ignored, ..DataOptions::default() };
    let dataset = Dataset::load(&options).expect("a table");
    let preprocessing = dataset.preprocessing();
    let inputs = crate::tests::inputs(&dataset);
    let features = |text: &str, inputs: &InputSpec| {
        let values = read(text.as_bytes(), inputs).map(|blocks| blocks.into_iter().flat_map(|block| block.values));
        values.map(|values| values.collect::<Vec<f64>>()).map_err(|error| error.to_string())
    };
    let scaled = |values: &[f64]| {
        let width = inputs.features;
        let scaled = values.iter().enumerate().map(|(at, value)| preprocessing.scales.scaled(at % width, *value));
        scaled.collect::<Vec<f32>>()
    };
    let (all, _) = dataset.training().read(&[0, 1, 2]).expect("held");
    assert_eq!(scaled(&features(text, &inputs).expect("itself")), all);
    // In another order, without what is left out, and with it.
    let other = "sex,kind,age\nf,x,30\nm,y,na\nm,x,50\n";
    assert_eq!(scaled(&features(other, &inputs).expect("by name")), all);
    assert_eq!(scaled(&features("age,sex,id\n30,f,\n,m,?\n50,m,x\n", &inputs).expect("by name")), all);
    let by_place = InputSpec { names: Vec::new(), header: Some(false), ..inputs.clone() };
    assert_eq!(scaled(&features("1,30,f\n2,,m\n3,50,m\n", &by_place).expect("by place")), all);
    for (text, part) in [
        ("age,sex\n30,d\n", "row 2, column 1 (`sex`): `d` is none of the column's 2 categories: `f`, `m`"),
        ("age,sex\ntwo,f\n", "`two` is not a number"),
        ("age,kind\n1,x\n", "`sex` is missing"),
        ("age,sex,extra\n1,f,2\n", "`extra` is not the model's"),
    ] {
        let told = features(text, &inputs).expect_err("not such a table");
        assert!(told.contains(part), "{told}");
    }
    assert!(features("30,f\n", &by_place).expect_err("too few").contains("the model takes 3 columns"));
}

#[test]
fn what_separates_cells_can_be_said() {
    let inputs = of_table();
    // Commas separate the names as they did, and stand in the numbers.
    let text = "a;b,c\n1;2\n";
    let error = read(text.as_bytes(), &inputs).expect_err("a comma is there").to_string();
    assert!(error.contains("`a;b`"), "{error}");
    let said = InputSpec {
        names: ["a", "b,c"].map(str::to_owned).to_vec(),
        separated_by: Some(Delimiter::Semicolon),
        ..inputs
    };
    assert_eq!(values(text, &said), [1.0, 2.0]);
    let error = read(b"a\tb,c\n1\t2\n", &said).expect_err("no semicolon").to_string();
    assert!(error.contains("--delimiter says what separates its cells"), "{error}");
}

//! Tables whose rows are objects.

use starling_run::Delimiter;

use super::*;
use crate::stream::{LabelPolicy, Reader};

const ROWS: &str = r#"{"area": 50, "kind": "flat", "note": "a;b", "price": "low"}
{"area": 1.2e2, "price": "high", "kind": "house"}

{"kind": "flat", "note": null, "area": null, "price": "low"}
{"area": 70.50, "kind": "house", "note": "", "price": "high"}
"#;
const TEXT: &str = "area;kind;note;price\n50;flat;\"a;b\";low\n120;house;;high\n;flat;;low\n70.5;house;;high\n";

fn load(name: &str, bytes: &[u8], change: impl FnOnce(&mut DataOptions)) -> Result<Dataset, DataError> {
    let (_directory, path) = file(name, bytes);
    let mut options = options(&path);
    change(&mut options);
    Dataset::load(&options)
}

#[test]
fn objects_are_the_same_data_as_a_table_of_text() {
    let text = load("a.csv", TEXT.as_bytes(), |_| {}).expect("a table");
    for (name, bytes) in
        [("a.jsonl", ROWS.as_bytes().to_vec()), ("a.jsonl.gz", gzip(ROWS.as_bytes())), ("table.csv", ROWS.into())]
    {
        let rows = load(name, &bytes, |_| {}).expect("a table");
        assert_eq!(rows.description().in_form_of(&text.description()), text.description());
        assert_eq!(rows.preprocessing(), text.preprocessing());
        assert_eq!(rows.description().delimiter, Some(Delimiter::Comma));
        // As a member of a run whose founder has the text.
        let theirs = load(name, &bytes, |options| {
            (options.delimiter, options.header) = (Some(Delimiter::Semicolon), Some(true));
            options.label = Some(TableColumn::Index(3));
        });
        assert_eq!(theirs.expect("a table").description(), rows.description());
    }
    let ignored = load("a.jsonl", ROWS.as_bytes(), |options| options.ignored = vec![written("note")]).expect("a table");
    assert_eq!(ignored.feature_names(), ["area", "area is empty", "kind = flat", "kind = house"]);
}

#[test]
fn what_is_wrong_with_an_object_is_told_with_its_row_and_key() {
    let refused = |bytes: &str| load("a.jsonl", bytes.as_bytes(), |_| {}).expect_err("no table").to_string();
    for (rows, parts) in [
        ("{\"a\":1,\"b\":\"x\"}\n\n{\"a\":{\"c\":2},\"b\":\"y\"}\n", ["row 3, key `a`", "several values"]),
        ("{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y\",\"c\":3}\n", ["row 2, key `c`", "first row has no such key"]),
        ("{\"a\":1,\"b\":\"x\"}\n{\"a\":2}\n", ["row 2, column 1 (`b`)", "the label is empty"]),
        ("{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":\"y\"}\n{\"a\":3,\"b\":", ["row 3, key `b`", "no JSON object"]),
        ("{\"a\":1}\n{\"a\":2}\n", ["a single column", "a label"]),
        ("[{\"a\":1,\"b\":\"x\"}]", ["it is JSON", "an object per line"]),
    ] {
        let error = refused(rows);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let error = load("a.jsonl", ROWS.as_bytes(), |options| options.header = Some(false)).expect_err("it has one");
    assert!(error.to_string().contains("leave --no-header out"), "{error}");
}

#[test]
fn a_trained_model_takes_objects_by_their_keys() {
    let dataset = load("a.csv", TEXT.as_bytes(), |_| {}).expect("a table");
    let inputs = crate::tests::inputs(&dataset);
    let read = |text: &'static str| {
        let mut reader = Reader::of(text.as_bytes(), Path::new("new.jsonl"), &inputs, LabelPolicy::Unused)?;
        let (mut values, mut rows) = (Vec::new(), Vec::new());
        while let Some(block) = reader.next_block(2)? {
            values.extend(block.values);
            rows.extend(block.rows);
        }
        Ok::<_, DataError>((values, rows))
    };
    let (of_objects, rows) = read(ROWS).expect("objects");
    assert_eq!((format!("{of_objects:?}"), rows), (format!("{:?}", read(TEXT).expect("text").0), vec![1, 2, 4, 5]));
    let (unlabelled, _) = read("{\"note\":\"\",\"area\":50,\"kind\":\"flat\"}").expect("without the label");
    assert_eq!(unlabelled[..2], [50.0, 0.0]);
    let error =
        read("{\"area\":50,\"kind\":\"flat\",\"note\":\"\"}\n{\"kind\":\"tent\"}").expect_err("unknown").to_string();
    assert!(error.contains("row 2, column 1 (`kind`)") && error.contains("`tent`"), "{error}");
}

/// As programs of old save them.
#[test]
fn names_and_cells_that_are_no_utf8_are_refused_with_what_to_do() {
    for (text, place) in [
        (&b"h\xf6he,kind\n1,a\n2,b\n"[..], "row 1, column 0: "),
        (b"size,kind\n1,a\n2,gr\xfcn\n", "row 3, column 1 (`kind`): "),
    ] {
        let error = load_csv(text, |_| {}).expect_err("no text").to_string();
        assert!(error.contains(place) && error.contains("it is not UTF-8 text; save the table as UTF-8"), "{error}");
    }
    let training = file("training.csv", b"size,kind\n1,a\n2,b\n");
    let held_out = file("others.csv", b"size,k\xefnd\n1,a\n");
    let joined = DataOptions { held_out_file: Some(held_out.1.clone()), ..options(&training.1) };
    let error = Dataset::load(&joined).expect_err("no text").to_string();
    assert!(error.contains("others.csv`, row 1, column 1: it is not UTF-8 text"), "{error}");
    let dataset = Dataset::load(&options(&training.1)).expect("a table");
    let source = held_out.1.display().to_string();
    let error = crate::stream::Reader::open(&source, &inputs(&dataset), crate::stream::LabelPolicy::Unused);
    let error = error.expect_err("no text").to_string();
    assert!(error.contains("others.csv`, row 1, column 1: it is not UTF-8 text"), "{error}");
}

//! Rows that can't be used, all of them at once.

use super::*;

/// What is told of the bad rows of a file, and how many more there are.
fn found(name: &str, text: impl AsRef<[u8]>, most: usize) -> (Vec<String>, u64) {
    let (_directory, path) = file(name, text.as_ref());
    let report = Dataset::bad_rows(&options(&path), most).expect("read");
    let rows = report.rows.iter().map(|row| row.to_string().split_once(", ").expect("a row").1.to_owned());
    assert_eq!(report.count(), report.rows.len() as u64 + report.more);
    (rows.collect(), report.more)
}

fn check(found: &[String], expected: &[&str]) {
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found} instead of {expected}");
    }
}

#[test]
fn all_kinds_of_bad_rows_are_told_by_line_and_column() {
    let good: String = (0..200).map(|row| format!("{row},{}.5,{}\n", row * 7 % 11, ["cat", "dog"][row % 2])).collect();
    let text = format!("a,b,kind\n{good}5,oops,cat\n5,6\n\n7,8,\n{good}9,1 000,dog\n{good}inf,\u{1},dog\n");
    let text = [text.as_bytes(), b"4,5,\xff\n3,x\xfe,cat\n", good.as_bytes()].concat();
    let (rows, more) = found("table.csv", &text, 20);
    assert_eq!(more, 0);
    check(
        &rows,
        &[
            "row 202, column 1 (`b`): `oops` is not a number, as 800 of 803 cells of the column are; mend it",
            "row 203: it has 2 columns, but the first row has 3",
            "row 205, column 2 (`kind`): the label is empty; fill it in, or leave the row out",
            "row 406, column 1 (`b`): `1 000` is not a number as it is written",
            "row 607, column 0 (`a`): `inf` is not a finite number",
            "row 608, column 2 (`kind`): it is not UTF-8 text",
            "row 609, column 1 (`b`): it is not UTF-8 text",
        ],
    );
    let (first, more) = found("table.csv", &text, 2);
    assert_eq!((first.as_slice(), more), (&rows[..2], 5));
    // Whoever trains is told of the first one, in the same words or by what it is without the others.
    let (_directory, path) = file("table.csv", &text);
    let error = Dataset::load(&options(&path)).expect_err("bad").to_string();
    assert!(error.contains("row 203"), "{error}");
}

#[test]
fn what_is_behind_an_open_quote_is_one_row_and_what_is_behind_a_bad_object_are_others() {
    let good: String = (0..200).map(|row| format!("{row},{}\n", row % 2)).collect();
    let (rows, more) = found("table.csv", format!("{good}x,1\n{good}5,\"1\n{good}"), 20);
    check(&rows, &["row 201, column 0: `x` is not a number", "row 402: a quote opens in it that is never closed"]);
    assert_eq!(more, 0);
    let objects: String = (0..200).map(|row| format!("{{\"a\":{row},\"kind\":{}}}\n", row % 2)).collect();
    let bad = "{\"a\":1,\n{\"a\":1,\"kind\":2,\"c\":3}\n\n{\"a\":\"x\",\"kind\":1}\n";
    let (rows, more) = found("table.jsonl", format!("{objects}{bad}{objects}{{\"a\":[1],\"kind\":1}}"), 20);
    check(&rows, &["row 201", "row 202, key `c`", "row 204, column 0 (`a`): `x` is not a number", "row 405, key `a`"]);
    assert_eq!(more, 0);
}

#[test]
fn packed_tables_are_looked_through_too_and_other_data_has_no_rows() {
    let good: String = (0..50).map(|row| format!("{row},{}\n", row % 2)).collect();
    let (rows, _) = found("table.csv.gz", gzip(format!("{good}1,2,3\n4\n").as_bytes()), 20);
    check(&rows, &["row 51: it has 3 columns", "row 52: it has 1 columns"]);
    assert_eq!(Dataset::bad_rows(&DataOptions::default(), 20).expect("embedded").count(), 0);
    let (rows, more) = found("table.csv", good, 20);
    assert_eq!((rows.len(), more), (0, 0));
}

#[test]
fn columns_with_one_number_alone_are_doubted() {
    let rows = |of: fn(usize) -> String| -> String { (0..30).map(of).collect() };
    let doubts = |text: String| {
        let (_directory, path) = file("table.csv", text.as_bytes());
        Dataset::load(&options(&path)).expect("a table").warnings(8, true).join("\n")
    };
    let told = doubts("a,b,kind\n".to_owned() + &rows(|row| format!("7,{},{}\n", row * row, row % 2)));
    assert!(told.contains("column 0 (`a`): all samples to train on have the same number there"), "{told}");
    assert!(!told.contains("`b`"), "{told}");
    let told = doubts("a,b,kind\n".to_owned() + &rows(|row| format!("{},{},{}\n", row % 5, row * row, row % 2)));
    assert!(!told.contains("the same number"), "{told}");
    // Nothing but gaps is nothing to learn from either.
    let told = doubts("a,b,kind\n".to_owned() + &rows(|row| format!(",{},{}\n", row * row, row % 2)));
    assert!(told.contains("(`a`): all samples to train on"), "{told}");
}

#[test]
fn those_of_a_file_of_held_out_rows_are_told_with_it() {
    let good: String = (0..200).map(|row| format!("{row},{}.5,{}\n", row * 7 % 11, ["cat", "dog"][row % 2])).collect();
    let folder = TempDir::new().expect("a folder");
    let written = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, "a,b,kind\n".to_owned() + &text).expect("written");
        path
    };
    let training = written("training.csv", format!("{good}5,oops,cat\n"));
    let others = written("others.csv", format!("{good}5,6\n{good}7,8,\n"));
    let options = DataOptions { held_out_file: Some(others), ..options(&training) };
    let report = Dataset::bad_rows(&options, 20).expect("read");
    let told: Vec<String> = report.rows.iter().map(ToString::to_string).collect();
    assert_eq!((told.len(), report.more), (3, 0), "{told:#?}");
    for (told, parts) in told.iter().zip([
        ["training.csv`, row 202, column 1 (`b`)", "`oops` is not a number"],
        ["others.csv`, row 202: ", "it has 2 columns"],
        ["others.csv`, row 403, column 2 (`kind`)", "the label is empty"],
    ]) {
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
    }
    assert_eq!(Dataset::bad_rows(&options, 2).expect("read").more, 1);
}

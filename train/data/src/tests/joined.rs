//! Held-out rows in a file of their own.

use super::*;

fn row(row: u32) -> String {
    format!("{}.5,{},{}\n", row * 37 % 101, ["red", "\"light,\nblue\""][row as usize % 2], row % 3)
}

fn rows(numbers: std::ops::Range<u32>) -> String {
    "size,color,kind\n".to_owned() + &numbers.map(row).collect::<String>()
}

/// The two files in a folder.
fn files(training: &[u8], held_out: &[u8]) -> (TempDir, DataOptions) {
    let folder = TempDir::new().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("training.csv"), training).expect("written");
    std::fs::write(path("others.csv"), held_out).expect("written");
    let options = DataOptions { held_out_file: Some(path("others.csv")), ..options(&path("training.csv")) };
    (folder, options)
}

fn refused(training: &str, held_out: &str) -> String {
    let (_folder, options) = files(training.as_bytes(), held_out.as_bytes());
    Dataset::load(&options).expect_err("refused").to_string()
}

/// Whether the last row has an end, how either file is packed, and whether the rows are one file: that the run's description tells the rest.
#[test]
fn rows_of_a_file_of_their_own_are_held_out_and_travel_behind_the_others() {
    let (training, held_out) = (rows(0..90), rows(90..120));
    let (folder, options) = files(training.as_bytes(), held_out.as_bytes());
    let dataset = Dataset::load(&options).expect("two files");
    assert_eq!((dataset.training().len(), dataset.held_out().len()), (90, 30));
    let description = dataset.description();
    assert_eq!((description.held_out_last, description.samples), (Some(30), 120));
    assert_eq!(held_out_rows(&description, 42), Some((90..120).collect()), "whatever the seed");
    for (training, held_out) in [
        (training.trim_end().as_bytes().to_vec(), held_out.trim_end().as_bytes().to_vec()),
        (gzip(training.as_bytes()), held_out.clone().into_bytes()),
        (training.clone().into_bytes(), gzip(held_out.as_bytes())),
    ] {
        let (_folder, options) = files(&training, &held_out);
        assert_eq!(Dataset::load(&options).expect("two files").description(), description);
    }
    // What others get is one file, which they read as the run says: held, or in its place.
    let (kind, shared) = shared_files(&options, &folder.path().join("shared")).expect("written");
    assert_eq!((kind.name, shared.len()), ("csv", 1));
    assert_eq!(
        std::fs::read_to_string(&shared[0]).expect("read"),
        training.clone() + &held_out["size,color,kind\n".len()..]
    );
    for held_bytes in [1 << 20, 0] {
        let options = DataOptions {
            source: shared[0].display().to_string(),
            held_out_file: None,
            held_out_last: Some(30),
            held_bytes,
            ..options.clone()
        };
        let other = Dataset::load(&options).expect("one file");
        assert_eq!(other.description(), description);
        let all: Vec<u32> = (0..30).collect();
        assert_eq!(other.held_out().read(&all).expect("read"), dataset.held_out().read(&all).expect("read"));
    }
    // The seed and the share draw nothing.
    let other = DataOptions { seed: 9, ..options.clone() };
    assert_eq!(Dataset::load(&other).expect("two files").held_out().labels(), dataset.held_out().labels());
}

#[test]
fn lines_of_json_have_no_header_to_leave_out() {
    let line = |at: u32| format!("{{\"size\":{at},\"kind\":\"{}\"}}\n", at % 2);
    let lines = |numbers: std::ops::Range<u32>| numbers.map(line).collect::<String>();
    let (folder, options) = files(lines(0..50).as_bytes(), lines(50..60).as_bytes());
    let dataset = Dataset::load(&options).expect("two files");
    assert_eq!((dataset.training().len(), dataset.held_out().len()), (50, 10));
    let (_, shared) = shared_files(&options, &folder.path().join("shared")).expect("written");
    assert_eq!(std::fs::read_to_string(&shared[0]).expect("read"), lines(0..60));
}

#[test]
fn what_does_not_fit_is_refused_with_its_file_and_row() {
    let training = rows(0..90);
    let told = refused(&training, &(rows(90..100) + "7,red\n"));
    assert!(told.contains("others.csv`, row 17"), "five rows have two lines: {told}");
    let told = refused(&(training.clone() + "7,red\n"), &rows(90..100));
    assert!(told.contains("training.csv`, row 137"), "{told}");
    let told = refused(&training, &rows(90..100).replacen("size", "length", 1));
    assert!(told.contains("others.csv") && told.contains("its columns are not those of"), "{told}");
    for (held_out, found) in
        [("size,color,kind\n", "it has a header, but no rows"), ("", "it is empty"), ("\n\n", "it is empty")]
    {
        let told = refused(&training, held_out);
        assert!(told.contains(&format!("others.csv`: {found}, though it is said to have the held-out rows")), "{told}");
        assert!(told.contains("training.csv` is held out (--held-out)"), "{told}");
    }
    let told = refused("size,color,kind\n", &rows(90..100));
    assert!(told.contains("training.csv`: it has a header, but no rows to train on"), "{told}");
    let (_folder, options) = files(training.as_bytes(), rows(90..100).as_bytes());
    let both = DataOptions { split_by: Some(TableColumn::Written("color".to_owned())), ..options.clone() };
    assert!(Dataset::load(&both).expect_err("refused").to_string().contains("both say which rows are held out"));
    let digits = DataOptions { source: DIGITS.to_owned(), ..options.clone() };
    assert!(Dataset::load(&digits).expect_err("refused").to_string().contains("--held-out-file"));
    let large = DataOptions { held_bytes: 64, ..options };
    let told = Dataset::load(&large).expect_err("refused").to_string();
    assert!(told.contains("say by a column of one file which rows are held out (`--split-by`)"), "{told}");
}

#[test]
fn a_file_of_another_form_is_refused_by_what_is_otherwise_in_it() {
    let (training, held_out) = (rows(0..90), rows(90..100));
    let without_names = |text: &str| text["size,color,kind\n".len()..].to_owned();
    let lines = |numbers: std::ops::Range<u32>| {
        numbers.map(|at| format!("{{\"size\":{at},\"color\":\"red\",\"kind\":{}}}\n", at % 2)).collect::<String>()
    };
    for (training, held_out, parts) in [
        (
            training.clone(),
            held_out.replacen("kind", "sort", 1),
            ["its column 2 is `sort`, and the other's `kind`", "name them alike"],
        ),
        (
            training.clone(),
            held_out.replacen("size,color", "color,size", 1),
            ["its column 0 is `color`", "in the same order"],
        ),
        (training.clone(), without_names(&held_out), ["it begins with `", "write the other's first row above it"]),
        (
            without_names(&training),
            held_out.clone(),
            ["it begins with `size,color,kind`, which seem to be names", "leave them out"],
        ),
        (
            training.clone(),
            "size;color;kind\n1;red;0\n2;red;1\n".to_owned(),
            ["1 columns where there are 3", "semicolon seems to separate its cells, and comma"],
        ),
        (
            training.clone(),
            "size,kind\n1,0\n2,1\n".to_owned(),
            ["it begins with `size,kind`", "2 columns where there are 3 in the other; write both alike"],
        ),
        (
            training.clone(),
            lines(0..9),
            ["it is lines of JSON, and the other a table of cells", "save both in one form"],
        ),
        (
            lines(0..90),
            held_out.clone(),
            ["it is a table of cells, and the other lines of JSON", "save both in one form"],
        ),
        (lines(0..90), lines(0..9).replace("color", "colour"), ["its column 1 is `colour`", "name them alike"]),
    ] {
        let told = refused(&training, &held_out);
        let begins = told.contains("others.csv`: its columns are not those of `")
            && told.contains("training.csv`, whose held-out rows");
        assert!(begins && parts.iter().all(|part| told.contains(part)), "{parts:?}: {told}");
    }
    let (folder, options) = files(training.as_bytes(), held_out.as_bytes());
    let same = DataOptions { held_out_file: Some(folder.path().join("training.csv")), ..options };
    let told = Dataset::load(&same).expect_err("refused").to_string();
    assert!(told.contains("training.csv`: its rows are those to train on, and can't be held out"), "{told}");
}

//! Tables that stay in their files: the same data as those that are held, and errors where they are not.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};

use super::*;

/// The same file, held and by position.
fn both(name: &str, bytes: &[u8], change: impl Fn(&mut DataOptions)) -> [Dataset; 2] {
    // What is read by position stays open.
    let (_directory, path) = file(name, bytes);
    [u64::MAX / 8, 0].map(|held_bytes| {
        let mut options = DataOptions { held_bytes, held_out: 0.2, ..options(&path) };
        change(&mut options);
        Dataset::load(&options).expect("a table")
    })
}

/// All bits of all samples in the order of these places, with their labels.
fn samples(samples: &SampleSet, order: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let (rows, labels) = samples.read(order).expect("read");
    (rows.into_iter().map(f32::to_bits).collect(), labels)
}

fn check(name: &str, bytes: &[u8], change: impl Fn(&mut DataOptions)) {
    let [held, placed] = both(name, bytes, change);
    assert!(held.training().are_held() && !placed.training().are_held(), "{name}");
    assert_eq!(held.description(), placed.description(), "{name}");
    assert_eq!(held.preprocessing(), placed.preprocessing());
    assert_eq!((held.summary(), held.warnings(8, true)), (placed.summary(), placed.warnings(8, true)));
    let mut generator = SplitMix64Generator::new(9);
    for (ours, theirs) in [(held.training(), placed.training()), (held.held_out(), placed.held_out())] {
        let count = u32::try_from(ours.len()).expect("few");
        assert_eq!((ours.len(), ours.features()), (theirs.len(), theirs.features()));
        assert_eq!(ours.class_counts(held.class_names().len()), theirs.class_counts(held.class_names().len()));
        let ascending: Vec<u32> = (0..count).collect();
        // Some twice, some never.
        let any: Vec<u32> = (0..2 * count).map(|_| generator.below(count)).collect();
        for order in [ascending, generator.permutation(count), any] {
            assert_eq!(samples(ours, &order), samples(theirs, &order), "{name}");
        }
    }
}

/// Numbers with gaps, texts, and labels in quotes with line ends, separated by `between`.
fn mixed(rows: u32, between: &str, end: &str) -> String {
    let mut generator = SplitMix64Generator::new(5);
    let mut text = format!("size{between}color{between}age{between}kind{end}");
    for row in 0..rows {
        let size = f64::from(generator.below(1 << 20)) / 7.0;
        let age = if generator.below(5) == 0 { String::new() } else { generator.below(90).to_string() };
        let color = ["red", "\"light blue\"", "\"with \"\"quotes\"\"\""][generator.below(3) as usize];
        let kind = ["a", "b", "\"two\nlines\""][generator.below(3) as usize];
        write!(text, "{size}{between}{color}{between}\"{age}\"{between}{kind}{end}").expect("in memory");
        if row % 7 == 0 {
            text.push_str(end);
        }
    }
    text
}

#[test]
fn a_table_that_stays_in_its_file_is_the_same_data() {
    let none = |_: &mut DataOptions| {};
    for end in ["\n", "\r\n", "\r"] {
        for between in [",", ";", "\t", " "] {
            check("mixed.csv", mixed(60, between, end).as_bytes(), none);
        }
    }
    let marked = format!("\u{feff}{}", mixed(60, ",", "\n"));
    check("marked.csv", marked.trim_end().as_bytes(), none);
    check("without.csv", mixed(60, ",", "\n").split_once('\n').expect("a header").1.as_bytes(), none);
    for blank in [1, 30, 60] {
        check("blank.csv", ("\n".repeat(blank) + &mixed(60, ",", "\n")).as_bytes(), none);
    }
    let numbers: String = (0..300).map(|row| format!("{row},{}.25,{}\n", row * row, row % 3)).collect();
    check("numbers.csv", numbers.as_bytes(), none);
    check("numbers.csv", numbers.as_bytes(), |options| options.held_out = 0.0);
    check("numbers.csv", format!("a,b,c\n{}", numbers.trim_end()).as_bytes(), |options| {
        (options.ignored, options.label) = (vec![written("b")], Some(written("a")));
    });
    check("numbers.csv", numbers.as_bytes(), |options| options.categories = vec![written("2")].split_off(1));
    let objects: String = (0..200)
        .map(|row| match row % 3 {
            0 => format!("{{\"a\": {row}, \"b\": \"x\", \"kind\": true}}\n"),
            1 => "{\"kind\": false, \"a\": null, \"b\": \"y, \\\"z\\\"\"}\r\n\n".to_owned(),
            _ => "{\"kind\": true, \"a\": 1e3, \"b\": \"x\\ny\"}\n".to_owned(),
        })
        .collect();
    check("objects.jsonl", objects.as_bytes(), none);
    check("objects.jsonl", objects.trim_end().as_bytes(), none);
}

#[test]
fn a_file_that_changes_while_it_is_in_use_is_an_error_that_names_it() {
    let text = mixed(200, ",", "\n");
    let load = |path: &Path| Dataset::load(&DataOptions { held_bytes: 0, ..options(path) }).expect("a table");
    let (_directory, path) = file("table.csv", text.as_bytes());
    let all: Vec<u32> = (0..200).collect();
    for damage in 0..3 {
        fs::write(&path, &text).expect("written");
        let dataset = load(&path);
        dataset.training().read(&all).expect("as it was");
        match damage {
            0 => OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(1000)).expect("cut off"),
            1 => fs::write(&path, text.replace("red", "\"\n\"")).expect("written"),
            _ => OpenOptions::new().append(true).open(&path).and_then(|mut file| file.write_all(b"1")).expect("longer"),
        }
        let error = dataset.training().read(&all).expect_err("changed").to_string();
        assert!(error.contains("table.csv") && error.contains("changed while it was in use"), "{error}");
        // Whoever opens it now has what it is now.
        drop(dataset);
    }
}

#[test]
fn what_is_wrong_far_behind_is_told_with_its_row() {
    let placed = |options: &mut DataOptions| options.held_bytes = 0;
    let good: String = (0..400).map(|row| format!("{row},{},{}\n", row * 7 % 11, row % 2)).collect();
    refused(format!("a,b,kind\n{good}5,oops,1\n"), placed, &["row 402, column 1 (`b`): `oops` is not a number"]);
    refused(format!("{good}5,6\n7,8,1\n"), placed, &["row 401: it has 2 columns, but the first row has 3"]);
    refused(format!("{good}5,6,\n"), placed, &["row 401, column 2: the label is empty"]);
    refused(format!("{good}5,\"6,1\n7,8,1\n"), placed, &["row 401: a quote opens in it that is never closed"]);
    refused("a,b,kind\n", placed, &["it has a header, but no rows"]);
    refused(good.replace(",0\n", ",1\n"), placed, &["all 400 labels are `1`; training needs at least two classes"]);
    let long = format!("{good}5,\"{}\",1\n{good}", "x\n".repeat(9 << 20));
    refused(&long, placed, &["row 401: it has more than 16 MiB"]);
    let objects: String = (0..400).map(|row| format!("{{\"a\":{row},\"kind\":{}}}\n", row % 2)).collect();
    let bad = |row: &str| format!("{objects}{row}\n{objects}");
    refused(bad("{\"a\":1,\"kind\":2,\"c\":3}"), placed, &["row 401, key `c`: the first row has no such key"]);
    refused(bad("{\"a\":1,"), placed, &["row 401"]);
    refused(bad("{\"a\":\"x\",\"kind\":1}"), placed, &["row 401, column 0 (`a`): `x` is not a number"]);
}

#[test]
fn what_is_packed_is_held_up_to_a_bound() {
    let text: String = (0..400).map(|row| format!("{row},{}\n", row % 2)).collect();
    let packed = gzip(text.as_bytes());
    let load = |held_bytes: u64| {
        let (_directory, path) = file("table.csv.gz", &packed);
        Dataset::load(&DataOptions { held_bytes, ..options(&path) })
    };
    assert!(load(800).expect("3,200 bytes").training().are_held());
    let error = load(799).expect_err("more").to_string();
    assert!(error.contains("table.csv.gz") && error.contains("gunzip --keep"), "{error}");
}

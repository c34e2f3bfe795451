//! What is understood of tables as people have them, and what their users are told.

use starling_run::data::columns::ColumnKind;

use super::*;

fn doubts(text: &str, change: impl FnOnce(&mut DataOptions)) -> Vec<String> {
    load_csv(text.as_bytes(), change).expect("a table that can be trained on").warnings(1, true)
}

/// There must be one warning, and it must have all of `parts`.
fn warned(text: &str, parts: &[&str]) {
    let doubts = doubts(text, |_| {});
    assert_eq!(doubts.len(), 1, "{doubts:?}");
    for part in parts {
        assert!(doubts[0].contains(part), "`{part}` is not in: {}", doubts[0]);
    }
}

/// Rows of `row`, with `header` above them.
fn table(header: &str, rows: u32, row: impl Fn(u32) -> String) -> String {
    let rows: String = (0..rows).map(|at| row(at) + "\n").collect();
    if header.is_empty() { rows } else { format!("{header}\n{rows}") }
}

#[test]
fn classes_in_the_first_column_are_seen() {
    // The class first, a whole number last.
    let text = table("", 178, |row| format!("{},{}.5,{}", row % 3 + 1, row, 278 + 7 * (row % 121)));
    warned(&text, &["column 2", "121 different values in 178 rows", "column 0 has only 3 values: --label 0"]);
    let named = format!("my class,alcohol,proline\n{text}");
    warned(&named, &["column 2 (`proline`)", "column 0 (`my class`) has only 3 values: --label 'my class'"]);
    let right = load_csv(text.as_bytes(), |options| options.label = Some(written("0"))).expect("good data");
    assert_eq!((right.warnings(1, true), right.class_names().len()), (vec![], 3));
}

#[test]
fn a_measurement_as_label_is_seen() {
    let text = table("area,price", 200, |row| format!("{}.25,{}", row * row, 10_000 + 37 * row));
    warned(
        &text,
        &["column 1 (`price`)", "200 different values in 200 rows", "take --model regression", "with --label"],
    );
    let learned = load_csv(text.as_bytes(), |_| {}).expect("a table").warnings(1, false);
    assert_eq!(learned, Vec::<String>::new(), "it is learned as a number");
    // By the hundred, though some have several rows.
    let text = table("", 3000, |row| format!("{}.25,{}", row, row % 150));
    warned(&text, &["150 different values in 3000 rows"]);
    // Said or not, it is strange; but what was said is not suggested again.
    let text = table("", 100, |row| format!("{},{}.5,{row}", row % 2, row));
    let said = doubts(&text, |options| options.label = Some(written("2")));
    assert!(said.len() == 1 && !said[0].contains("--label 0"), "{said:?}");
}

#[test]
fn a_header_of_numbers_is_seen() {
    let rows = |columns: usize| move |row: u32| format!("{}{}", "0.25,".repeat(columns), row % 2);
    for (header, columns) in [
        ("2019,2020,2021,2022,2023", 4),
        ("1,2,3", 2),
        // As numbered by a program, with as many columns as there are classes and more.
        ("0,1,2,3,4,5", 5),
        // A name for the label alone.
        ("0.5,1.5,kind", 2),
    ] {
        let text = table(header, 60, rows(columns));
        let shown = header.get(..5).expect("longer");
        warned(&text, &["the first row", shown, "pass --header"]);
        for said in [true, false] {
            let told = doubts(&text, |options| options.header = Some(said));
            assert!(!told.iter().any(|doubt| doubt.contains("--header")), "{header}: {told:?}");
        }
    }
    // Numbered columns whose last number is a class too.
    warned(&table("0,1,2,3,4", 60, |row| format!("0.5,0.5,0.5,0.5,{}", row % 5)), &["--header"]);
    let long = (2000..2030).map(|year| year.to_string()).collect::<Vec<_>>().join(",");
    warned(&table(&long, 60, rows(29)), &["2000,2001,2002,2003,2004,2005,...`"]);
}

#[test]
fn classes_with_one_sample_are_named() {
    let kind = |row: u32| match row {
        0 => "only",
        1 => "lone",
        row if row % 2 == 0 => "a",
        _ => "b",
    };
    let text = table("height,kind", 60, |row| format!("{row}.5,{}", kind(row)));
    warned(&text, &["`lone`, `only` have a single sample each", "leave their rows out", "--label"]);
    let text = table("height,kind", 60, |row| format!("{row}.5,{}", kind(if row == 0 { 2 } else { row })));
    warned(&text, &["the class `lone` has a single sample"]);
    let text = table("", 90, |row| format!("{row}.5,{}", if row < 6 { 100 + row } else { row % 2 }));
    warned(&text, &["6 classes, as `100`, `101`, `102`, have a single sample each"]);
}

#[test]
fn sound_tables_draw_no_warning() {
    for (what, text) in [
        ("a few rows of each class", table("", 150, |row| format!("{row}.5,{},{}", row * row % 7, row % 3))),
        ("ten classes with few rows", table("", 40, |row| format!("{row}.5,{},{}", row * row % 7, row % 10))),
        ("letters", table("x,kind", 400, |row| format!("{row}.5,{}", char::from(b'a' + (row % 26) as u8)))),
        ("classes by the hundred with many rows each", table("", 12_000, |row| format!("{},{}", row * 7, row % 120))),
        (
            "whole numbers that rise in each row",
            table("", 60, |row| format!("{},{},{}", 2 * row, 2 * row + 5, row % 3)),
        ),
        (
            "a first row of whole numbers, of a class with others",
            table("", 60, |row| if row == 0 { "1,2,0".to_owned() } else { format!("0.5,0.25,{}", row % 2) }),
        ),
    ] {
        assert_eq!(doubts(&text, |_| {}), Vec::<String>::new(), "{what}");
    }
    assert_eq!(Dataset::load(&DataOptions::default()).expect("embedded").warnings(1438, true), Vec::<String>::new());
}

#[test]
fn a_column_that_counts_the_rows_and_a_class_that_may_be_a_gap_are_told() {
    let text = table("", 60, |row| format!("{},{}.5,{}", row + 1, row, row % 2));
    warned(&text, &["column 0 counts the rows", "--ignore 0"]);
    let text = table("id,x,kind", 60, |row| format!("{},{}.5,{}", 100_000 + row, row, row % 2));
    warned(&text, &["column 0 (`id`) counts the rows", "--ignore id"]);
    let text = table("id,x,kind", 60, |row| format!("{},{}.5,{}", 7 * row, row, ["a", "b", "NA"][row as usize % 3]));
    warned(&text, &["the class `NA` may stand for labels that are missing"]);
}

#[test]
fn little_data_and_large_batches_are_told() {
    let dataset = load_csv(b"1,2,a\n3,4,b\n", |options| options.held_out = 0.2).expect("two rows");
    let warnings = dataset.warnings(64, true).join("\n");
    for part in
        ["only 1 sample to train on, and 1 held out", "a batch of 64 is larger than the 1 samples", "--batch-size"]
    {
        assert!(warnings.contains(part), "`{part}` is not in: {warnings}");
    }
    let digits = Dataset::load(&DataOptions::default()).expect("embedded");
    assert_eq!(digits.warnings(1439, true).len(), 1);
    assert!(digits.warnings(1439, true)[0].contains("1438 samples"));
}

#[test]
fn columns_that_can_not_be_scaled_are_told() {
    let text = table("a,kind,b,c", 40, |row| {
        let b = if row == 7 { "1e308".to_owned() } else { row.to_string() };
        format!("{},{},{b},5", 3 * row, row % 2)
    });
    let dataset = load_csv(text.as_bytes(), |options| options.label = Some(written("kind"))).expect("finite numbers");
    let warnings = dataset.warnings(1, true);
    assert!(warnings.len() == 2 && warnings[0].starts_with("column 2 (`b`): the numbers are so large"), "{warnings:?}");
    assert!(warnings[1].starts_with("column 3 (`c`): all samples to train on have the same number"), "{warnings:?}");
    assert!((0..dataset.training().len()).all(|row| dataset.training().row(row)[1] == 0.0));
    let FeatureScale::Standardize { deviations, .. } = &dataset.preprocessing().scales else { panic!("a table") };
    assert_eq!((deviations[1], deviations[2]), (0.0, 0.0));
}

#[test]
fn a_text_column_is_offered_as_the_label() {
    let none = |_: &mut DataOptions| {};
    let asks =
        ["which column is the label?", "column 0 (`cultivar`) holds text", "pass --label cultivar, or --label alcohol"];
    refused("cultivar,alcohol\na,1.5\nb,2.5\n", none, &asks);
    refused("my kind,x\na,1.5\nb,2.5\n", none, &["pass --label 'my kind'"]);
    refused("a,1.5\nb,2.5\n", |options| options.header = Some(false), &["pass --label 0, or --label 1"]);
    // Whoever says it is believed, and few whole numbers are classes.
    let said = load_csv(b"cultivar,alcohol\na,1.5\nb,2.5\n", |options| options.label = Some(written("alcohol")));
    assert_eq!(said.expect("a table").description().features, 2);
    assert_eq!(load_csv(b"sex,class\nf,1\nm,2\n", none).expect("a table").description().classes, 2);
    refused("a;b;kind\n1,5;2;x\n2,5;3;y\n", none, &["`1,5` is not a number; write decimals with a point"]);
}

#[test]
fn what_separates_cells_is_found_or_said() {
    let plain = load_csv(b"a,b,kind\n1,2.5,x\n3,4.5,y\n", |_| {}).expect("good data").description();
    assert_eq!(plain.delimiter, Some(Delimiter::Comma));
    for (delimiter, between) in [("tab", "\t"), ("semicolon", ";"), ("pipe", "|"), ("space", "  ")] {
        let text = "a,b,kind\n1,2.5,x\n3,4.5,y\n".replace(',', between);
        let delimiter = delimiter.parse().expect("a name");
        let found = load_csv(text.as_bytes(), |_| {}).expect("good data").description();
        assert_eq!((found.delimiter, found.fingerprint), (Some(delimiter), plain.fingerprint));
        let said = load_csv(&gzip(text.as_bytes()), |options| options.delimiter = Some(delimiter)).expect("good data");
        assert_eq!(said.description(), found);
        // Members may have copies that are separated otherwise.
        assert_eq!(found.in_form_of(&plain), plain);
    }
    refused("a;b\n1;2\n", |options| options.delimiter = Some(Delimiter::Tab), &["a single column, separated by tab"]);
    // Far behind the rows that are looked at.
    let long = table("a;kind", 20_000, |row| format!("{row};{}", row % 2));
    assert_eq!(load_csv(long.as_bytes(), |_| {}).expect("good data").description().samples, 20_000);
}

#[test]
fn a_copy_with_other_names_is_the_same_data_but_other_values_are_not() {
    let load = |text: &str| load_csv(text.as_bytes(), |_| {}).expect("good data").description();
    let ours = load("height,kind\n1,x\n2,y\n");
    let renamed = load("h;kind\n1;x\n2;y\n");
    assert_ne!(renamed, ours);
    assert_eq!(renamed.in_form_of(&ours), ours);
    assert_ne!(load("height,kind\n1,x\n3,y\n").in_form_of(&ours), ours);
    // What is no table has no delimiter.
    let digits = Dataset::load(&DataOptions::default()).expect("embedded").description().in_form_of(&ours);
    assert_eq!((digits.delimiter, digits.check()), (None, Ok(())));
}

#[test]
fn the_run_says_what_separates_cells() {
    let text = b"1;2\n3;4\n5;6\n";
    let founder = load_csv(text, |_| {}).expect("good data");
    let spec = RunSpec { held_out: 0.0, ..RunSpec::default() };
    let manifest = Manifest::of(&spec, founder.description());
    let joiner = DataOptions::default().for_run(&manifest);
    assert_eq!(joiner.delimiter, Some(Delimiter::Semicolon));
    assert_eq!(
        DataOptions { delimiter: Some(Delimiter::Tab), ..joiner }.for_run(&manifest).delimiter,
        Some(Delimiter::Tab)
    );
}

#[test]
fn the_summary_is_that_of_the_file() {
    let text = table("cultivar;x", 50, |row| format!("{};{row}", ["a", "b", "b"][row as usize % 3]));
    let dataset = load_csv(text.as_bytes(), |options| {
        (options.label, options.held_out) = (Some(written("cultivar")), 0.2);
    });
    let dataset = dataset.expect("good data");
    let line = dataset.summary().to_string();
    let parts =
        ["data.csv: 50 rows, 1 feature, label column 0 `cultivar` (2 classes: a 17, b 33), header found, 10 held out"];
    assert!(line.contains(parts[0]) && line.ends_with(", separated by semicolon"), "{line}");
}

#[test]
fn rows_are_numbered_as_an_editor_does() {
    let none = |_: &mut DataOptions| {};
    for (text, row) in [
        ("a,b,kind\n1,2,x\n3,oops,y\n5,6,x\n", "row 3,"),
        ("\n\na,b,kind\n\n1,2,x\n\n\n3,oops,y\n5,6,x\n", "row 8,"),
        ("a,b,kind\n1,2,\"x\n\ny\"\n3,oops,z\n5,6,z\n", "row 5,"),
        ("a,\"b\n\"\"c\"\"\",kind\n\n1,2,x\n3,\"oops\n, \",x\n5,6,y", "row 5,"),
    ] {
        for end in ["\n", "\r\n", "\r"] {
            let text = text.replace('\n', end);
            refused(&text, none, &[row, "`oops"]);
            refused(gzip(text.as_bytes()), none, &[row]);
            refused(format!("\u{feff}{text}"), none, &[row]);
        }
    }
    refused("1 2 0\r\n\r\n 3   4 1 \r\n \t \r\n5 oops 1\r\n7 8 0\r\n", none, &["row 5,", "`oops`"]);
}

#[test]
fn a_cell_between_quotes_may_have_several_lines() {
    let text = "color,note,kind\nred,\"one\ntwo\",\"a\nb\"\nblue,\"\n\",c\nred,\"one\ntwo\",c\n";
    let load = |text: &str| load_csv(text.as_bytes(), |_| {}).expect("a table");
    let dataset = load(text);
    assert_eq!((dataset.description().samples, dataset.class_names()), (3, &["a\nb".to_owned(), "c".to_owned()][..]));
    let coding = &dataset.preprocessing().columns[1].coding;
    assert_eq!(*coding, ColumnKind::Category(["", "one\ntwo"].map(ToOwned::to_owned).to_vec()));
    // A copy with other line ends is the same data.
    for end in ["\r\n", "\r"] {
        let copy = load(&text.replace('\n', end));
        assert_eq!((copy.description(), copy.preprocessing()), (dataset.description(), dataset.preprocessing()));
    }
    // What is told of it is one line.
    assert!(!dataset.summary().to_string().contains('\n'));
    let none = |_: &mut DataOptions| {};
    refused("a,kind\n1,\"x\n2,y\n3,z\n", none, &["row 2: a quote opens in it that is never closed"]);
    let closes = "row 2: it has 3 columns, but the first row has 2; a quote opens in it that closes in row 4";
    refused("a,kind\n1,\"x\n2,y\n3,\"z,5\n4,u\n", none, &[closes]);
    // A quote in the middle of a cell is a part of it.
    assert_eq!(load("size,kind\n1,5\"\n2,6\"\n").class_names(), ["5\"", "6\""]);
}

#[test]
fn a_header_of_numbers_is_seen_beside_columns_that_are_left_out() {
    let text = table("2019,2020,2021,2022,2023", 60, |row| format!("0.25,0.25,0.25,0.25,{}", row % 2));
    for ignored in ["0", "3"] {
        let told = doubts(&text, |options| options.ignored = vec![written(ignored)]);
        assert!(told.len() == 1 && told[0].contains("the first row, `2019,2020"), "{told:?}");
    }
    // The classes are in the first column that is not left out.
    let text = table("", 178, |row| format!("{row}.5,{},{}.5,{}", row % 3 + 1, row, 278 + 7 * (row % 121)));
    let told = doubts(&text, |options| options.ignored = vec![written("0")]);
    assert!(told.len() == 1 && told[0].contains("column 1 has only 3 values: --label 1"), "{told:?}");
    let told = doubts(&text, |options| (options.ignored, options.label) = (vec![written("0")], Some(written("1"))));
    assert_eq!(told, Vec::<String>::new());
}

#[test]
fn a_column_that_is_said_by_its_name_proves_a_header() {
    let text = table("2019,id,color,kind", 60, |row| format!("{row}.5,{row},red,{}", row % 2));
    let load = |change: fn(&mut DataOptions)| load_csv(text.as_bytes(), change).expect("a table");
    for dataset in [
        load(|options| options.ignored = vec![written("id"), written("color")]),
        load(|options| (options.ignored, options.categories) = (vec![written("1")], vec![written("color")])),
    ] {
        assert_eq!((dataset.description().samples, dataset.description().header), (60, Some(true)));
        assert_eq!(dataset.warnings(1, true), Vec::<String>::new());
    }
    // A number may be a place.
    let text = table("red,small,a", 40, |row| {
        let at = row as usize % 2;
        format!("{},large,{}", ["red", "blue"][at], ["a", "b"][at])
    });
    let told = |column: &str| doubts(&text, |options| options.ignored = vec![written(column)]);
    assert!(told("1").join("").contains("was taken for the columns' names"));
    assert_eq!(told("small"), Vec::<String>::new());
}

#[test]
fn gaps_are_no_names() {
    for first in ["NA,NA,a", ",,a", "?,null,a"] {
        let text =
            table("", 40, |row| if row == 0 { first.to_owned() } else { format!("{row}.5,{}.5,a", row * 7 % 9) });
        let text = text.replacen("1.5,", "2.5,", 1) + "3,4,b\n";
        let dataset = load_csv(text.as_bytes(), |_| {}).expect("a table");
        assert_eq!((dataset.description().samples, dataset.description().header), (41, Some(false)), "{first}");
        // One of them beside text may be either.
        let text = text.replacen(first, "NA,red,a", 1).replace(".5,a", ".5 red,a").replace("4,b", "blue,b");
        assert!(doubts(&text, |_| {}).join("").contains("`NA,red,a`, was taken for the columns' names"), "{text}");
    }
    // Sodium, and a column of row numbers without a name.
    for header in ["Na,Mg,kind", ",size,kind"] {
        let text = table(header, 40, |row| format!("{}.5,{row}.5,{}", row * 7 % 9, row % 2));
        let dataset = load_csv(text.as_bytes(), |_| {}).expect("a table");
        assert_eq!((dataset.description().header, dataset.warnings(1, true)), (Some(true), vec![]), "{header}");
    }
}

#[test]
fn more_columns_than_can_be_said_are_refused_as_such() {
    let row = |last: &str| "1,".repeat(1100) + last + "\n";
    let text = row("a") + &row("b");
    let many = |options: &mut DataOptions| options.ignored = (0..1025).map(TableColumn::Index).collect();
    refused(&text, many, &["--ignore names 1025 columns, but 1024 are possible: leave them out of the file"]);
    let most = load_csv(text.as_bytes(), |options| options.ignored = (0..1024).map(TableColumn::Index).collect());
    assert_eq!(most.expect("as many as there may be").description().features, 1100 - 1024);
}

#[test]
fn a_table_of_two_bytes_for_each_character_is_the_same_table() {
    let text = "größe;art\r\n1.5;a\r\n2.5;b\r\n".to_owned() + &"3.5;a\r\n4.5;b\r\n".repeat(10);
    let marked = format!("\u{feff}{text}");
    let [little, big]: [Vec<u8>; 2] =
        [u16::to_le_bytes, u16::to_be_bytes].map(|to_bytes| marked.encode_utf16().flat_map(to_bytes).collect());
    let load = |bytes: &[u8]| {
        let (_directory, path) = file("table.csv", bytes);
        Dataset::load(&options(&path)).expect("a table").description()
    };
    let expected = load(text.as_bytes());
    let forms: [Vec<u8>; 4] = [gzip(&little), gzip(&big), little, big];
    assert!(forms.iter().all(|bytes| load(bytes) == expected));
}

/// More than there may be classes: they are learned as numbers.
#[test]
fn labels_that_are_many_numbers_are_numbers_and_no_classes() {
    let rows: String = (0..70_000).map(|row| format!("{},{}.25\n", row % 10, row)).collect();
    for held_bytes in [u64::MAX, 0] {
        let (_directory, path) = file("table.csv", rows.as_bytes());
        let dataset = Dataset::load(&DataOptions { held_bytes, ..options(&path) }).expect("a table");
        assert_eq!((dataset.description().classes, dataset.class_names().len()), (0, 0));
        assert_eq!(dataset.description().check(), Ok(()));
        let (_, labels) = dataset.training().read(&[0, 69_999]).expect("read");
        let numbers: Vec<f64> = labels.iter().map(|label| dataset.label_numbers()[*label as usize]).collect();
        assert_eq!(numbers, [0.25, 69_999.25]);
        assert!(dataset.summary().to_string().contains("more than 65536 different numbers"));
    }
    let texts: String = (0..70_000).map(|row| format!("{},x{row}\n", row % 10)).collect();
    let (_directory, path) = file("table.csv", texts.as_bytes());
    let error = Dataset::load(&options(&path)).expect_err("no classes").to_string();
    assert!(error.contains("70000 different labels"), "{error}");
}

/// Cells would move to other columns, of which nothing tells.
#[test]
fn empty_cells_between_tabs_are_none_of_what_is_beside_them() {
    let row = |at: u32| {
        let mut cells = [at % 7 + 1, at % 5 + 1, at % 3 + 1].map(|number| number.to_string());
        cells[at as usize % 3].clear();
        format!("{}\t{}\n", cells.join("\t"), ["x", "y"][at as usize % 2])
    };
    let text: String = (0..60).map(row).collect();
    let dataset = load_csv(text.as_bytes(), |_| {}).expect("a table");
    assert_eq!((dataset.summary().delimiter, dataset.summary().gap_columns), (Some(Delimiter::Tab), 3));
    // Aligned by tabs.
    let row = |at: u32| format!("{}\t{}{}\n", at % 100, if at % 100 < 10 { "\t" } else { "" }, at % 2);
    let text: String = (0..60).map(row).collect();
    let is_told = |doubts: Vec<String>| doubts.iter().any(|doubt| doubt.contains("several tabs behind each other"));
    assert!(is_told(doubts(&text, |_| {})));
    assert!(!is_told(doubts(&text, |options| options.delimiter = Some(Delimiter::Space))));
}

/// As tables from before there were headers often are.
#[test]
fn texts_in_the_first_column_alone_may_be_the_classes() {
    let rows =
        table("", 200, |row| format!("{},{},{},{}", ["T", "I", "D"][row as usize % 3], row % 9, row % 11, row % 5));
    warned(&rows, &["column 0 is the only one that holds text", "3, the last one,", "--label 0", "--label 3"]);
    assert_eq!(doubts(&rows, |options| options.label = Some(written("0"))), Vec::<String>::new());
    assert_eq!(doubts(&rows, |options| options.label = Some(written("3"))), Vec::<String>::new());
    // Names, and texts elsewhere, say what a column is, or leave it open.
    assert_eq!(doubts(&format!("kind,a,b,c\n{rows}"), |_| {}), Vec::<String>::new());
    let both = table("", 200, |row| format!("{},x{},{}", ["T", "I"][row as usize % 2], row % 3, row % 5));
    assert!(!doubts(&both, |_| {}).iter().any(|doubt| doubt.contains("the only one that holds text")));
}

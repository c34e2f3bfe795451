//! Columns that say something of rows: how much they count, and on which side they are.

use super::*;

/// Rows of 40 users, with what each counts and on which side it says it is.
fn table(side: impl Fn(u32) -> &'static str) -> String {
    let row = |row: u32| format!("{row}.5,u{},{},{},{}\n", row * 7 % 40, f64::from(row % 4) / 2.0, side(row), row % 2);
    "x,user,counts,side,kind\n".to_owned() + &(0..400).map(row).collect::<String>()
}

fn load(text: &str, change: impl Fn(&mut DataOptions)) -> Result<Dataset, String> {
    let (_directory, path) = file("table.csv", text.as_bytes());
    let mut options = options(&path);
    change(&mut options);
    Dataset::load(&options).map_err(|error| error.to_string())
}

fn column(name: &str) -> Option<TableColumn> {
    Some(TableColumn::Written(name.to_owned()))
}

fn ignored(names: &[&str]) -> Vec<TableColumn> {
    names.iter().map(|name| TableColumn::Written((*name).to_owned())).collect()
}

#[test]
fn rows_of_one_text_are_on_one_side_whatever_is_held_in_memory() {
    let change = |held_bytes: u64, seed: u64| {
        move |options: &mut DataOptions| {
            options.split_by = column("user");
            options.ignored = ignored(&["counts", "side"]);
            (options.held_bytes, options.seed, options.held_out) = (held_bytes, seed, 0.25);
        }
    };
    let text = table(|_| "");
    let [dataset, placed] = [1 << 20, 0].map(|held| load(&text, change(held, 3)).expect("a table"));
    assert_eq!(dataset.description(), placed.description());
    assert_eq!((dataset.description().split_by, dataset.training().features()), (Some(1), 1), "it is no feature");
    assert!(!dataset.description().sides_said, "they are drawn");
    let summary = dataset.summary();
    assert_eq!((summary.split_by.as_deref(), summary.ignored_columns), (Some("user"), 2));
    let rows = |dataset: &Dataset, of: &SampleSet| -> Vec<u32> {
        let FeatureScale::Standardize { means, deviations } = &dataset.preprocessing().scales else {
            panic!("a table")
        };
        let (values, _) = of.read(&(0..of.len() as u32).collect::<Vec<_>>()).expect("read");
        values.iter().map(|value| (f64::from(*value) * deviations[0] + means[0] - 0.4) as u32).collect()
    };
    for dataset in [&dataset, &placed] {
        let [training, held_out] = [dataset.training(), dataset.held_out()].map(|of| rows(dataset, of));
        assert_eq!(training.len() + held_out.len(), 400);
        let users = |rows: &[u32]| rows.iter().map(|row| row * 7 % 40).collect::<std::collections::BTreeSet<u32>>();
        assert!(users(&training).is_disjoint(&users(&held_out)));
        assert_eq!(held_out.len(), 10 * users(&held_out).len(), "all rows of each");
        assert!((3..20).contains(&users(&held_out).len()), "about a quarter of 40");
    }
    let other = load(&text, change(1 << 20, 4)).expect("a table");
    assert_ne!(rows(&other, other.held_out()), rows(&dataset, dataset.held_out()), "the seed draws");
    assert_eq!(held_out_rows(&dataset.description(), dataset.seed()), None, "the description does not say it");
}

#[test]
fn a_column_may_say_the_side_itself() {
    let text = table(|row| if row % 5 == 1 { "Test" } else { "train" });
    let split = |options: &mut DataOptions| {
        options.split_by = column("side");
        options.ignored = ignored(&["counts", "user"]);
    };
    let dataset = load(&text, split).expect("a table");
    assert_eq!((dataset.training().len(), dataset.held_out().len()), (320, 80));
    assert!(dataset.description().sides_said);
    let other = load(&text, |options| {
        split(options);
        (options.seed, options.held_out) = (9, 0.7);
    });
    assert_eq!(other.expect("a table").held_out().labels(), dataset.held_out().labels(), "nothing is drawn");
    for (side, reason) in [("train", "holds no row out"), ("test", "leaves no row to train on"), ("", "it is empty")] {
        let error = load(&table(|_| side), split).expect_err("one side alone");
        assert!(error.contains(reason) && error.contains("--split-by"), "{error}");
    }
}

#[test]
fn weights_are_those_of_their_rows_on_both_sides() {
    let text = table(|_| "");
    let weighted = |held_bytes: u64, split: bool| {
        let loaded = load(&text, |options| {
            options.weights = column("counts");
            options.split_by = column("user").filter(|_| split);
            options.ignored = if split { ignored(&["side"]) } else { ignored(&["side", "user"]) };
            options.held_bytes = held_bytes;
        });
        loaded.expect("a table")
    };
    for split in [false, true] {
        let [held, placed] = [1 << 20, 0].map(|held_bytes| weighted(held_bytes, split));
        assert_eq!(held.description(), placed.description());
        assert!(held.is_weighted() && held.description().weights == Some(2));
        let summary = held.summary();
        assert_eq!((summary.weights.as_deref(), summary.ignored_columns), (Some("counts"), if split { 1 } else { 2 }));
        let all: Vec<u32> = (0..400).collect();
        let weights = held.weights(&all).expect("they differ");
        assert_eq!(placed.weights(&all), Some(weights.clone()));
        // A row's number tells what it counts.
        let FeatureScale::Standardize { means, deviations } = &held.preprocessing().scales else { panic!("a table") };
        // Beside the mean of the rows to train on.
        let most = weights.iter().copied().fold(0.0, f32::max);
        assert!((1.8..2.2).contains(&most), "1.5 beside a mean of about 0.75: {most}");
        for (number, weight) in all.iter().zip(weights) {
            let (set, places) = held.numbered(&[*number]);
            let (values, _) = set.read(&places).expect("read");
            let row = (f64::from(values[0]) * deviations[0] + means[0] - 0.4) as u32;
            assert!((weight - (row % 4) as f32 / 3.0 * most).abs() < 1e-6, "row {row}: {weight}");
        }
    }
    let plain = load(&text, |options| options.ignored = ignored(&["counts", "side", "user"])).expect("a table");
    assert_eq!((plain.weights(&[0]), plain.is_weighted()), (None, false));
    assert_ne!(plain.description().fingerprint, weighted(1 << 20, false).description().fingerprint);
}

#[test]
fn what_is_no_weight_and_what_is_named_twice_is_refused() {
    let refused = |text: &str, change: &dyn Fn(&mut DataOptions), reason: &str| {
        let error = load(text, |options| {
            options.ignored = ignored(&["side"]);
            options.weights = column("counts");
            change(options);
        });
        let error = error.expect_err("refused");
        assert!(error.contains(reason), "{error}");
    };
    let text = table(|_| "");
    for bad in ["-1", "nan", "inf", "1048577", "", "x"] {
        let text = text.replacen("1.5,u7,0.5", &format!("1.5,u7,{bad}"), 1);
        refused(
            &text,
            &|_| {},
            &format!("row 3, column 2 (`counts`): `{bad}` is no weight: a row counts 0 to 1048576"),
        );
    }
    let none = "x,counts,side,kind\n".to_owned() + &"1,0,a,0\n2,0,a,1\n".repeat(20);
    refused(&none, &|_| {}, "(--weights) is 0 in all rows to train on");
    refused(
        &text,
        &|options| options.weights = column("kind"),
        "--weights names column 4 (`kind`), which is something else",
    );
    refused(&text, &|options| options.split_by = column("side"), "--split-by names column 3 (`side`)");
    refused(&text, &|options| options.split_by = column("counts"), "name the same column");
    refused(&text, &|options| options.split_by = column("usr"), "did you mean `user`?");
}

/// As a table and its copy in another format may.
#[test]
fn numbers_are_the_same_data_however_they_are_written() {
    let table = |user: fn(u32) -> String, counts: &str, label: fn(u32) -> String| {
        let row = |row: u32| {
            let counts = if row.is_multiple_of(4) { counts } else { "1" };
            format!("{row},{},{counts},{},{}\n", user(row * 7 % 40), label(row), row % 3)
        };
        "x,user,counts,y,z\n".to_owned() + &(0..400).map(row).collect::<String>()
    };
    let written = [
        table(|user| user.to_string(), "0", |row| format!("{}.5", row % 20)),
        table(|user| format!("{user}.0"), "-0.0", |row| format!("{}.50", row % 20)),
        table(|user| format!("{user}e0"), "-0", |row| format!("{}5e-1", row % 20)),
    ];
    for label in ["y", "y,z"] {
        let fingerprints = written.each_ref().map(|text| {
            let dataset = load(text, |options| {
                (options.split_by, options.weights, options.label) = (column("user"), column("counts"), column(label));
                options.ignored = if label == "y" { ignored(&["z"]) } else { Vec::new() };
                options.held_out = 0.25;
            });
            let dataset = dataset.expect("a table");
            assert!((20..200).contains(&dataset.held_out().len()));
            (dataset.description().fingerprint, dataset.description().preprocessing)
        });
        assert!(fingerprints.iter().all(|found| *found == fingerprints[0]), "{label}: {fingerprints:?}");
    }
}

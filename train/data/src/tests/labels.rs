//! Tables with several columns of labels.

use super::*;

const ROWS: &str = "price,size,rent,rooms\n1.5,10,4,2\n2.5,20,3,3\n1.5,30,4,1\n9,40,1,2\n";

#[test]
fn several_columns_are_labels_in_the_order_in_which_they_are_named() {
    let dataset = load_csv(ROWS.as_bytes(), |options| {
        (options.label, options.held_out) = (Some(written("rent,price")), 0.0);
    })
    .expect("good data");
    let description = dataset.description();
    assert_eq!((description.label.clone(), description.features, description.classes), (vec![2, 0], 2, 0));
    assert_eq!(description.check(), Ok(()));
    let preprocessing = dataset.preprocessing();
    assert_eq!(
        (&*preprocessing.label, preprocessing.features.join(",")),
        (&["rent".to_owned(), "price".to_owned()][..], "size,rooms".to_owned())
    );
    assert_eq!(PreprocessingSpec::decode(&preprocessing.encode(), &description).as_ref(), Ok(preprocessing));
    let (_, labels) = dataset.training().read(&[0, 1, 2, 3]).expect("in memory");
    let numbers: Vec<&[f64]> =
        labels.iter().map(|label| &dataset.label_numbers()[2 * *label as usize..][..2]).collect();
    assert_eq!(numbers, [[4.0, 1.5], [3.0, 2.5], [4.0, 1.5], [1.0, 9.0]]);
    let means: Vec<f64> = preprocessing.labels.iter().map(|scale| scale.mean).collect();
    assert_eq!(means, [3.0, 3.625]);
    assert!(
        dataset.summary().to_string().contains("label column 2 `rent` and 0 `price` (numbers)"),
        "{}",
        dataset.summary()
    );
    // So are those of JSON lines.
    let object = |row: &str| {
        let cells: Vec<&str> = row.split(',').collect();
        format!("{{\"price\":{},\"size\":{},\"rent\":{},\"rooms\":{}}}\n", cells[0], cells[1], cells[2], cells[3])
    };
    let lines: String = ROWS.lines().skip(1).map(object).collect();
    let of_lines = load_csv(lines.as_bytes(), |options| {
        (options.label, options.held_out) = (Some(written("rent,price")), 0.0);
    });
    assert_eq!(of_lines.expect("good data").description().fingerprint, description.fingerprint);
    // A joiner reads it as the run's manifest says.
    let again = load_csv(ROWS.as_bytes(), |options| {
        options.label = Some(TableColumn::Index(2));
        (options.more_labels, options.held_out) = (vec![TableColumn::Index(0)], 0.0);
    });
    assert_eq!(again.expect("good data").description(), description);
}

#[test]
fn what_stays_in_its_file_has_the_same_labels() {
    let rows: String = (0..200).map(|at| format!("{},{},{}\n", at % 5, at * at % 17, at % 3)).collect();
    let load = |held_bytes| {
        load_csv(rows.as_bytes(), |options| {
            (options.label, options.held_bytes) = (Some(written("0,2")), held_bytes);
        })
        .expect("good data")
    };
    let (held, placed) = (load(u64::MAX), load(0));
    assert!(held.training().are_held() && !placed.training().are_held());
    assert_eq!((held.description(), held.preprocessing()), (placed.description(), placed.preprocessing()));
    let all: Vec<u32> = (0..held.training().len() as u32).collect();
    assert_eq!(held.training().read(&all).expect("in memory"), placed.training().read(&all).expect("in its file"));
    assert_eq!(held.label_numbers(), placed.label_numbers());
}

#[test]
fn labels_that_can_not_be_several_are_refused_by_name() {
    let refused = |label: &str| {
        load_csv(b"a,b,c\n1,2,x\n2,3,y\n", |options| options.label = Some(written(label)))
            .expect_err("refused")
            .to_string()
    };
    for (label, reason) in [
        ("a,c", "the label `x` is no number"),
        ("a,a", "--label names 2 columns, but at most 256, each once"),
        ("a,d", "no column `d` for the label"),
        ("a,b,c", "--label leaves no column to learn from"),
    ] {
        let error = refused(label);
        assert!(error.contains(reason), "{label}: {error}");
    }
    // A column may be called so.
    let dataset =
        load_csv(b"\"a,b\",c\n1,2\n2,3\n3,2\n", |options| options.label = Some(written("a,b"))).expect("good data");
    assert_eq!(dataset.description().label, [0]);
}

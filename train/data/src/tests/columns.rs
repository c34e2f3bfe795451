//! Columns that are no plain numbers: categories, gaps, and what is left out.

use starling_run::data::columns::{Column, ColumnKind};

use super::*;

const PEOPLE: &str = "name,age,sex,port,fare,survived
Ann,30,female,S,7.5,1
Bob,,male,C,8,0
Cid,50,male,S,NA,0
Dot,40,female,,9.5,1
";

fn named(names: &str) -> Vec<TableColumn> {
    names.split(',').map(written).collect()
}

fn category(texts: &[&str]) -> ColumnKind {
    ColumnKind::Category(texts.iter().map(|&text| text.to_owned()).collect())
}

#[test]
fn texts_become_categories_and_gaps_the_mean() {
    let dataset = load_csv(PEOPLE.as_bytes(), |options| options.ignored = named("name")).expect("a table");
    let preprocessing = dataset.preprocessing();
    let column = |name: &str, coding| Column { name: name.to_owned(), coding };
    assert_eq!(
        preprocessing.columns,
        [
            column("name", ColumnKind::Ignored),
            column("age", ColumnKind::Gaps),
            column("sex", category(&["female", "male"])),
            column("port", category(&["", "C", "S"])),
            column("fare", ColumnKind::Gaps),
        ]
    );
    let names = [
        "age",
        "age is empty",
        "sex = female",
        "sex = male",
        "port = ",
        "port = C",
        "port = S",
        "fare",
        "fare is empty",
    ];
    assert_eq!(preprocessing.features, names);
    let rows: Vec<&[f32]> = (0..4).map(|row| dataset.training().row(row)).collect();
    // 30, 40 and 50: their mean is 40, and that of the squares of the distances 200 / 3.
    let far = (10.0 / (200.0_f64 / 3.0).sqrt()) as f32;
    assert_eq!(rows[0][..7], [-far, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(rows[1][..7], [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    assert_eq!(rows[3][..7], [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!((rows[2][7], rows[2][8]), (0.0, 1.0));
    let description = dataset.description();
    assert_eq!((description.features, description.shape, description.label.clone()), (9, [1, 1, 9], vec![5]));
    assert_eq!((description.ignored.as_slice(), description.categories.as_slice()), (&[0][..], &[][..]));
    assert_eq!(description.check(), Ok(()));
    let line = dataset.summary().to_string();
    let told =
        "4 rows, 9 features (2 columns with empty cells, 1 column left out, categories: sex, port), label column 5";
    assert!(line.contains(told), "{line}");
}

#[test]
fn a_joiner_reads_a_table_as_the_run_says_and_other_categories_are_other_data() {
    let (_directory, path) = file("data.csv", PEOPLE.as_bytes());
    let said = DataOptions { ignored: named("name"), categories: named("age"), ..options(&path) };
    let founder = Dataset::load(&said).expect("a table");
    let spec = RunSpec { held_out: 0.0, ..RunSpec::default() };
    let manifest = Manifest::of(&spec, founder.description());
    let joiner = DataOptions { source: path.display().to_string(), ..DataOptions::default() }.for_run(&manifest);
    let joined = Dataset::load(&joiner).expect("the same");
    assert_eq!((joined.description(), joined.preprocessing()), (founder.description(), founder.preprocessing()));
    assert_eq!(founder.preprocessing().columns[1].coding, category(&["", "30", "40", "50"]));
    let other = load_csv(PEOPLE.replace("female", "woman").as_bytes(), |options| options.ignored = named("name"));
    let same = load_csv(PEOPLE.as_bytes(), |options| options.ignored = named("0"));
    let fingerprint = |dataset: Result<Dataset, DataError>| dataset.expect("a table").description().fingerprint;
    assert_ne!(fingerprint(other), fingerprint(same));
}

#[test]
fn plain_numbers_are_read_as_before() {
    let plain = load_csv(b"a,b,kind\n1,2,x\n3,4,y\n", |_| {}).expect("a table");
    assert!(plain.preprocessing().columns.is_empty());
    let less = load_csv(b"a,b,kind\n1,2,x\n3,4,y\n", |options| options.ignored = named("a")).expect("a table");
    assert_eq!(less.preprocessing().features, ["b"]);
    assert_eq!(less.training().row(0), [-1.0]);
    let codings: Vec<ColumnKind> = less.preprocessing().columns.iter().map(|column| column.coding.clone()).collect();
    assert_eq!(codings, [ColumnKind::Ignored, ColumnKind::Number]);
    let alone = load_csv(b"b,kind\n2,x\n4,y\n", |_| {}).expect("a table");
    assert_eq!(alone.description().fingerprint, less.description().fingerprint);
}

#[test]
fn columns_without_a_single_number_are_constants() {
    let dataset = load_csv(b"a,b,kind\n1,,x\n3,?,y\n", |_| {}).expect("a table");
    assert_eq!(dataset.preprocessing().columns[1].coding, ColumnKind::Number);
    assert!((0..2).all(|row| dataset.training().row(row)[1] == 0.0));
}

#[test]
fn columns_that_are_no_categories_are_refused_together() {
    let rows: String = (0..60).map(|row| format!("n{row},2024-01-{row},{},{}\n", row % 7, row % 2)).collect();
    let text = format!("full name,day,x,kind\n{rows}");
    let parts = [
        "column 0 (`full name`) holds 60 different texts in 60 rows, and day hold as much",
        "--ignore 'full name,day'",
    ];
    refused(&text, |_| {}, &parts);
    let kept = load_csv(text.as_bytes(), |options| options.ignored = named("full name,day")).expect("a table");
    assert_eq!(kept.description().features, 1);
    let many: String = (0..5000).map(|row| format!("n{},{}\n", row % 1500, row % 2)).collect();
    refused(format!("id,kind\n{many}"), |_| {}, &["more than 1000 different texts", "--ignore id"]);
}

#[test]
fn a_text_among_numbers_is_a_fault_and_not_a_category() {
    let typo = "height,kind\n1.5,x\n1O.5,y\n2.5,x\n3.5,y\n";
    refused(typo, |_| {}, &["row 3", "`1O.5` is not a number, as 3 of 4 cells", "--categories height"]);
    let said = load_csv(typo.as_bytes(), |options| options.categories = named("height")).expect("as it is said");
    assert_eq!(said.description().features, 4);
    refused(
        "2019,kind,2020\n1,2,3\n4,5,6\n",
        |_| {},
        &["row 1", "pass --header if the first row has the columns' names"],
    );
    refused("a,kind\ninf,x\n1,y\n", |_| {}, &["`inf` is not a finite number"]);
    refused("a,kind\n1,x\n2,\n", |_| {}, &["row 3", "the label is empty; fill it in"]);
}

#[test]
fn columns_that_are_said_have_to_be_there() {
    let refuse = |change: fn(&mut DataOptions), parts: &[&str]| refused(PEOPLE, change, parts);
    refuse(|options| options.ignored = named("nme"), &["no column `nme` for --ignore; did you mean `name`?"]);
    refuse(|options| options.categories = named("9"), &["--categories is column 9, but columns run from 0 to 5"]);
    refuse(
        |options| options.ignored = named("survived"),
        &["--ignore names column 5 (`survived`), which is the label"],
    );
    refuse(
        |options| (options.ignored, options.categories) = (named("sex"), named("sex")),
        &["--ignore and --categories both name column 2 (`sex`)"],
    );
    refuse(|options| options.ignored = named("0,1,2,3,4"), &["--ignore leaves no column"]);
}

#[test]
fn a_table_without_a_number_may_have_no_header() {
    let rows = "red,small,a\nblue,large,b\nred,large,a\nblue,small,b\n".repeat(4);
    let doubts = |change: fn(&mut DataOptions)| load_csv(rows.as_bytes(), change).expect("a table").warnings(1, true);
    let told = doubts(|_| {});
    assert!(told.len() == 1 && told[0].contains("was taken for the columns' names: pass --no-header"), "{told:?}");
    assert_eq!(doubts(|options| options.header = Some(false)), Vec::<String>::new());
}

#[test]
fn numbers_for_people_are_no_categories_unless_it_is_said() {
    for cell in ["\"1,5\"", "$1.50", "30%", "\"1,000\""] {
        let rows: String = (0..6).map(|row| format!("{cell},{}\n", row % 2)).collect();
        let text = format!("x,kind\n{rows}");
        refused(&text, |_| {}, &["row 2", "is not a number as it is written", "--categories x"]);
        let said = load_csv(text.as_bytes(), |options| options.categories = named("x")).expect("as it is said");
        assert_eq!(said.description().features, 1);
    }
}

#[test]
fn quotes_behind_a_blank_are_quotes() {
    let plain = load_csv(b"x,col,kind\n1,red,a\n3,blue,b\n5,red,a\n", |_| {}).expect("a table");
    let spaced = load_csv(b"x, \"col\", \"kind\"\n1, \"red\", \"a\"\n3, \"blue\", b\n5, red, \"a\"\n", |_| {});
    let spaced = spaced.expect("a table");
    assert_eq!((spaced.description(), spaced.preprocessing()), (plain.description(), plain.preprocessing()));
}

#[cfg(unix)]
#[test]
fn what_can_be_read_only_once_is_no_table() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("data.csv");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
    let options = DataOptions { source: socket.display().to_string(), ..DataOptions::default() };
    let refused = Dataset::load(&options).expect_err("no file").to_string();
    assert!(refused.contains("data.csv") && refused.contains("write it to a file first"), "{refused}");
}

#[test]
fn a_name_that_several_columns_have_tells_none_of_them() {
    let text = "a,price,price,b\n1,2,3,4\n2,3,4,5\n3,2,3,4\n";
    type Say = fn(&mut DataOptions);
    let said: [(Say, &str); 3] = [
        (|options| options.label = Some(written("price")), "the label"),
        (|options| options.ignored = vec![written("price")], "--ignore"),
        (|options| options.weights = Some(written("price")), "--weights"),
    ];
    for (say, flag) in said {
        let error = load_csv(text.as_bytes(), say).expect_err("which one?").to_string();
        let told = format!("its columns 1, 2 are all called `price`, so that {flag} can't be told by that");
        assert!(error.contains(&told) && error.contains("give the 0-based index"), "{error}");
    }
    let dataset = load_csv(text.as_bytes(), |options| options.label = Some(written("2"))).expect("said by its number");
    assert_eq!(dataset.description().label, [2]);
    // A number is the number of a column then.
    let dataset = load_csv(b"a,0,0\n1,2,3\n2,3,4\n3,2,3\n", |options| {
        (options.label, options.header) = (Some(written("0")), Some(true));
    });
    assert_eq!(dataset.expect("said by its number").description().label, [0]);
}

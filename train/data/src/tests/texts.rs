use super::*;

/// Loads a text.
fn load(name: &str, bytes: &[u8], change: impl FnOnce(&mut DataOptions)) -> Result<Dataset, DataError> {
    let (_directory, path) = file(name, bytes);
    let mut options = DataOptions { text: true, context: Some(4), ..options(&path) };
    change(&mut options);
    Dataset::load(&options)
}

fn windows(samples: &SampleSet) -> Vec<String> {
    let all: Vec<u32> = (0..samples.len() as u32).collect();
    let bytes = samples.windows(&all).expect("a text");
    let bytes: Vec<u8> = bytes.into_iter().map(|byte| byte as u8).collect();
    bytes.chunks(samples.features() + 1).map(|window| String::from_utf8_lossy(window).into_owned()).collect()
}

#[test]
fn a_text_is_cut_into_windows_each_with_the_byte_behind() {
    let dataset = load("a.txt", b"In the beginning", |_| {}).expect("a text");
    assert_eq!(windows(dataset.training()), ["In th", "he be", "eginn"]);
    let description = dataset.description();
    assert_eq!((&*description.kind, description.samples, description.features), ("text", 3, 4));
    assert_eq!((description.shape, description.classes, description.check()), ([1, 1, 4], 256, Ok(())));
    assert!(description.is_text() && dataset.training().labels().is_empty());
    let preprocessing = dataset.preprocessing();
    assert_eq!(PreprocessingSpec::decode(&preprocessing.encode(), &description).as_ref(), Ok(preprocessing));
    assert!(dataset.summary().to_string().contains("a text of 3 windows of 4 bytes, 0 held out"));
    // As long as two windows and a byte is enough, with one byte less it is not.
    assert_eq!(load("a.txt", b"123456789", |_| {}).expect("a text").training().len(), 2);
    // A mark before it, and compression, make no difference.
    for bytes in [b"\xef\xbb\xbfIn the beginning".to_vec(), gzip(b"In the beginning")] {
        assert_eq!(load("b", &bytes, |_| {}).expect("a text").description(), description);
    }
    for (bytes, context) in [(&b"In the beginninG"[..], 4), (b"In the beginning", 5)] {
        let other = load("a.txt", bytes, |options| options.context = Some(context)).expect("a text").description();
        assert_ne!(other.fingerprint, description.fingerprint);
    }
}

#[test]
fn what_is_held_out_is_drawn_as_of_a_table_and_the_text_is_there_once() {
    let text: String = (0..100).map(|at| format!("{at:03}.")).collect();
    let dataset = load("a.txt", (text + "!").as_bytes(), |options| options.held_out = 0.2).expect("a text");
    let (training, held_out) = (windows(dataset.training()), windows(dataset.held_out()));
    assert_eq!((training.len(), held_out.len()), (80, 20));
    let mut all = [training, held_out.clone()].concat();
    all.sort();
    assert!(all.iter().enumerate().all(|(at, window)| window.starts_with(&format!("{at:03}."))), "{all:?}");
    let rows = held_out_rows(&dataset.description(), dataset.seed()).expect("few");
    let of_rows: Vec<String> = rows.iter().map(|row| format!("{row:03}.")).collect();
    assert!(held_out.iter().zip(of_rows).all(|(window, row)| window.starts_with(&row)));
    // A joiner reads its copy as the run's.
    let (_directory, path) = file("copy.md", b"0123456789");
    let manifest = Manifest::of(&RunSpec::default(), dataset.description());
    let joiner = options(&path).for_run(&manifest);
    assert_eq!((joiner.text, joiner.context), (true, Some(4)));
    assert_eq!(Dataset::load(&joiner).expect("a text").description().features, 4);
}

#[test]
fn what_is_no_text_is_refused_with_its_place() {
    let refused = |name: &str, bytes: &[u8], change: fn(&mut DataOptions), part: &str| {
        let message = load(name, bytes, change).expect_err("no text").to_string();
        assert!(message.contains(part) && message.contains(name), "`{part}` is not in: {message}");
    };
    let none = |_: &mut DataOptions| {};
    refused("a.txt", b"", none, "it is empty");
    refused("a.txt", b"\xef\xbb\xbf", none, "it is empty");
    refused("a.txt", b"12345678", none, "it has 8 bytes, but two windows of 4 and the byte behind need 9");
    refused("a.txt", b"caf\xc3\xa9\nna\xefve and more", none, "line 2, byte 3 (0xef) is no UTF-8");
    refused("a.txt", b"one\ntwo\0three", none, "line 2, byte 4 (0x00) is a zero byte");
    refused("a.txt", b"a\0b\0c\0d\0", none, "it is UTF-16 text without its mark; save it as UTF-8");
    refused("a.txt", b"PK\x03\x04 and so on", none, "it is a ZIP archive");
    refused("a.txt", b"In the beginning", |options| options.context = Some(1), "2 to 4096 are possible");
    refused("a.txt", b"In the beginning", |options| options.max_file_bytes = 9, "it has more than 9 bytes, unpacked");
    for (change, flag) in [
        ((|options| options.label = Some(written("y"))) as fn(&mut DataOptions), "--label"),
        (|options| options.ignored = vec![written("y")], "--ignore"),
        (|options| options.header = Some(true), "--header"),
    ] {
        refused("a.txt", b"In the beginning", change, flag);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let options = DataOptions { text: true, ..options(directory.path()) };
    let message = Dataset::load(&options).expect_err("a folder").to_string();
    assert!(message.contains("a text is one file"), "{message}");
}

#[test]
fn a_table_is_none_and_a_text_is_no_table() {
    let table = load("a.csv", b"a,b\n1,x\n2,y\n3,x\n", |_| {}).expect("a table");
    assert_eq!(table.description().kind, "csv");
    assert!(table.warnings(1, true)[0].contains("--context says how much of a text"));
    let prose = b"Call me Ishmael.\nSome years ago, never mind how long, precisely\n";
    let message = load("a.txt", prose, |options| options.text = false).expect_err("no table").to_string();
    assert!(message.contains("to learn it as a text, take `--model gpt`"), "{message}");
    let digits = load("a.txt", prose, |options| options.source = "digits".to_owned()).expect("embedded");
    assert_eq!(digits.description().kind, "digits");
}

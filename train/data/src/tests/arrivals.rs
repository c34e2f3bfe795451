//! Texts of which files are still on their way: what is read of them, and which files come first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use starling_run::data::{ArrivalTracker, RunPosition, SampleSchedule};
use starling_topology::ledger::{STARVED, UNMEASURED};
use starling_topology::{Ledger, PeerId, ShufflePolicy};

use super::tokens::{Prepared, story};
use super::*;

const ME: PeerId = PeerId([1; 32]);
const CONTEXT: u32 = 8;

/// A text in several files, and a folder that has what says of them all.
struct Coming {
    prepared: Prepared,
    folder: PathBuf,
}

impl Coming {
    fn new() -> Self {
        let prepared = Prepared::new("bytes", &[&story()]);
        let summary = prepared.make().expect("prepared");
        assert!(summary.shards > 5, "{summary:?}");
        let folder = prepared.directory.path().join("here");
        fs::create_dir(&folder).expect("made");
        let coming = Self { prepared, folder };
        [0, 1].into_iter().for_each(|file| coming.bring(file));
        coming
    }

    fn name(file: usize) -> String {
        crate::text::folder::KIND.file(file).expect("a file")
    }

    fn bring(&self, file: usize) {
        let name = Self::name(file);
        fs::copy(self.prepared.path(&name), self.folder.join(name)).expect("copied");
    }

    fn open(&self, held_out: f32) -> Dataset {
        let source = self.folder.display().to_string();
        let options = DataOptions { source, held_out, arriving: true, ..DataOptions::default() };
        Dataset::load(&DataOptions { text: true, context: Some(CONTEXT), ..options }).expect("what says of it is here")
    }
}

#[test]
fn samples_are_read_from_the_files_that_are_here() {
    let coming = Coming::new();
    let (whole, dataset) = (coming.prepared.load(CONTEXT).expect("a text"), coming.open(0.0));
    assert_eq!(dataset.description(), whole.description(), "it is known which text it is before its tokens are here");
    let arrivals = dataset.arrivals().expect("of a text in files");
    let all: Vec<u32> = (0..whole.training().len() as u32).collect();
    let read = |sample: u32| dataset.training().windows(&[sample]).map_err(|error| error.to_string());
    let here = |dataset: &Dataset| all.iter().filter(|sample| dataset.are_here(&[**sample])).count();
    assert_eq!((arrivals.here(), here(&dataset), dataset.is_whole()), (2, 0, false));
    let error = read(0).expect_err("not here");
    assert!(error.contains("tokens-00000.bin") && error.contains("on its way"), "{error}");

    // Not before it was taken in, however long it lies there.
    coming.bring(2);
    assert_eq!((here(&dataset), arrivals.is_here(2)), (0, false));
    arrivals.take_in(2).expect("as it should be");
    let first = here(&dataset);
    // 1000 tokens are 125 windows, and of the last one the token behind is in the next file.
    assert_eq!((first, dataset.are_here(&[0, 123]), dataset.are_here(&[0, 124])), (124, true, false));
    for sample in all.iter().filter(|sample| dataset.are_here(&[**sample])) {
        assert_eq!(read(*sample), Ok(whole.training().windows(&[*sample]).expect("read")));
    }
    assert!(read(124).is_err());
    for file in 3..arrivals.files() {
        coming.bring(file);
        arrivals.take_in(file).expect("as it should be");
    }
    assert_eq!((arrivals.here(), here(&dataset), dataset.is_whole()), (arrivals.files(), all.len(), true));
    assert_eq!(dataset.training().windows(&all).expect("read"), whole.training().windows(&all).expect("read"));
}

#[test]
fn what_is_not_what_it_has_to_be_is_never_a_sample() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(Change, &str); 5] = [
        (|bytes| bytes[70] ^= 1, "the blake3 of its tokens is"),
        (|bytes| bytes[65] = 0xff, "the vocabulary has 257"),
        (|bytes| bytes[40] ^= 1, "but `tokens.json` says"),
        (|bytes| bytes.truncate(bytes.len() - 2), "it was cut off or changed"),
        (|bytes| bytes.clear(), "its header alone has 64"),
    ];
    let coming = Coming::new();
    let dataset = coming.open(0.0);
    let arrivals = dataset.arrivals().expect("of a text in files");
    coming.bring(2);
    arrivals.take_in(2).expect("as it should be");
    for (change, part) in changes {
        let name = Coming::name(3);
        let mut bytes = fs::read(coming.prepared.path(&name)).expect("read");
        change(&mut bytes);
        fs::write(coming.folder.join(&name), bytes).expect("written");
        let reason = arrivals.take_in(3).expect_err("changed");
        assert!(reason.contains(part) && reason.contains(&name), "{reason}");
        assert!(!arrivals.is_here(3) && !dataset.are_here(&[125]) && dataset.training().windows(&[125]).is_err());
        assert!(dataset.training().windows(&[7]).is_ok(), "others are read");
    }
    assert!(arrivals.take_in(4).expect_err("not there").contains("cannot read"));
    // The right one may come from somebody else.
    coming.bring(3);
    arrivals.take_in(3).expect("as it should be");
    assert!(dataset.are_here(&[125]));
    // One that is changed later is seen as one that was there from the beginning is.
    let path = coming.folder.join(Coming::name(3));
    let bytes = fs::read(&path).expect("read");
    fs::write(&path, &bytes[..bytes.len() - 2]).expect("written");
    let error = dataset.training().windows(&[125]).expect_err("changed").to_string();
    assert!(error.contains("tokens-00001.bin"), "{error}");
    // Of another text, nothing is opened at all.
    fs::write(coming.folder.join("tokens.json"), b"{}").expect("written");
    let source = coming.folder.display().to_string();
    let options = DataOptions { source, arriving: true, text: true, context: Some(CONTEXT), ..DataOptions::default() };
    assert!(Dataset::load(&options).is_err());
}

/// The file that a sample to train on begins in: by what is missing where nothing is here, so that nothing of how windows are numbered is known.
fn file_of(dataset: &Dataset, arrivals: &dyn ArrivalTracker, sample: u32) -> usize {
    let error = dataset.training().windows(&[sample]).expect_err("nothing is here").to_string();
    (2..arrivals.files()).find(|file| error.contains(&Coming::name(*file))).expect("it names one")
}

#[test]
fn files_come_in_the_order_in_which_steps_need_them() {
    let coming = Coming::new();
    for held_out in [0.0, 0.2] {
        let dataset = coming.open(held_out);
        let arrivals = dataset.arrivals().expect("of a text in files");
        let samples = dataset.training().len() as u32;
        let places: Vec<usize> = (0..samples).map(|sample| file_of(&dataset, &*arrivals, sample)).collect();
        for (rows, blocks, batch_size, seed) in
            [(40, 1, 16, 1), (40, 2, 16, 2), (25, 3, 7, 3), (1000, 1, 16, 4), (1, 1, 5, 5)]
        {
            let shuffle = ShufflePolicy::Blocks { rows, blocks };
            let schedule = SampleSchedule { seed, batch_size, shuffle };
            let mut ledger = Ledger::new(seed, samples, batch_size).with_shuffle(shuffle);
            ledger.assign(&[ME]);
            // Behind each step, which files the next ones need.
            let needed: Vec<BTreeSet<usize>> = (1..=400)
                .map(|step| {
                    let share = ledger.indices(ledger.share_of(ME));
                    ledger.commit(step, &[ME], &[UNMEASURED]);
                    // The token behind a window begins the next one, if that is not held out.
                    let behind = share.iter().filter(|_| held_out == 0.0).map(|sample| (sample + 1).min(samples - 1));
                    share.iter().copied().chain(behind).map(|sample| places[sample as usize]).collect()
                })
                .collect();
            for (from, to) in [(0, 0), (0, 5), (1, 1), (30, 30), (30, 44), (100, 103), (137, 150)] {
                let order = arrivals.order(schedule, RunPosition::Behind(from..=to)).expect("by blocks");
                let mut sorted = order.files.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..arrivals.files()).collect::<Vec<_>>(), "each once");
                assert_eq!(order.files[..2], [0, 1]);
                let begun: BTreeSet<usize> = order.files[..order.to_begin].iter().copied().collect();
                // All steps that it may stand before, and as many as the next window has at least: that of the last block alone may be one.
                let least = (samples.min(rows)).min(if samples.is_multiple_of(rows) { rows } else { samples % rows });
                let ahead = (least / batch_size) as usize;
                for step in &needed[from as usize..=to as usize + ahead] {
                    assert!(step.is_subset(&begun), "{rows}x{blocks} from {from} to {to}: {step:?} of {order:?}");
                }
                // What is needed first comes first, but for files that a window needs together, and what is computed before the first step.
                let (first, window) = (from.saturating_sub(8) as usize, ((rows * blocks) / batch_size + 2) as usize);
                let mut when = BTreeMap::new();
                for (at, step) in needed[first..].iter().enumerate() {
                    step.iter().for_each(|file| _ = when.entry(*file).or_insert(at));
                }
                let before: Vec<usize> = order.files[2..].iter().filter_map(|file| when.get(file)).copied().collect();
                let mut latest = 0;
                for at in &before[1..] {
                    assert!(at + window >= latest, "{rows}x{blocks} from {from}: {before:?}");
                    latest = latest.max(*at);
                }
            }
        }
        let full = SampleSchedule { seed: 1, batch_size: 16, shuffle: ShufflePolicy::Full };
        assert_eq!(arrivals.order(full, RunPosition::Behind(0..=0)), None, "any sample may be the next one");
    }
}

/// Where samples were given back, the run is not where the number of its steps says.
#[test]
fn files_follow_the_ledger_where_samples_came_again() {
    let coming = Coming::new();
    let dataset = coming.open(0.0);
    let arrivals = dataset.arrivals().expect("of a text in files");
    let samples = dataset.training().len() as u32;
    let places: Vec<usize> = (0..samples).map(|sample| file_of(&dataset, &*arrivals, sample)).collect();
    let shuffle = ShufflePolicy::Blocks { rows: 20, blocks: 1 };
    let schedule = SampleSchedule { seed: 3, batch_size: 10, shuffle };
    let mut ledger = Ledger::new(3, samples, 10).with_shuffle(shuffle);
    ledger.assign(&[ME]);
    let mut behind = 0;
    for step in 1..=150 {
        let share = ledger.share_of(ME);
        let needed: BTreeSet<usize> = ledger.indices(share).iter().map(|sample| places[*sample as usize]).collect();
        let (epoch, pending, cursor) = (ledger.epoch(), share[0].start, ledger.cursor());
        let begun = |position| {
            let order = arrivals.order(schedule, position).expect("by blocks");
            order.files[..order.to_begin].iter().copied().collect::<BTreeSet<usize>>()
        };
        let at = begun(RunPosition::At { epoch, pending, cursor });
        assert!(needed.is_subset(&at), "step {step}: {needed:?} of {at:?}");
        behind += usize::from(!needed.is_subset(&begun(RunPosition::Behind(step - 1..=step - 1))));
        ledger.commit(step, &[ME], &[if step % 3 == 0 { UNMEASURED } else { STARVED }]);
    }
    assert!(behind > 10, "that it makes a difference shows in {behind} steps");
    assert_eq!(arrivals.bytes(1), None);
    let length = |file| fs::metadata(coming.prepared.path(&Coming::name(file))).expect("there").len();
    assert!((2..arrivals.files()).all(|file| arrivals.bytes(file) == Some(length(file))));
}

#[test]
fn a_part_is_enough_to_begin_with() {
    let coming = Coming::new();
    let dataset = coming.open(0.0);
    let arrivals = dataset.arrivals().expect("of a text in files");
    let to_begin = |seed| {
        let shuffle = ShufflePolicy::Blocks { rows: 40, blocks: 1 };
        let schedule = SampleSchedule { seed, batch_size: 2, shuffle };
        arrivals.order(schedule, RunPosition::Behind(20..=22)).expect("by blocks").to_begin
    };
    // The two that say what it is, that of the first samples, and those of a window or two.
    let begun: Vec<usize> = (0..20).map(to_begin).collect();
    assert!(begun.iter().all(|files| (3..arrivals.files()).contains(files)), "{begun:?} of {}", arrivals.files());
}

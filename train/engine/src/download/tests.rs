//! Small worlds, all of them.

use std::collections::BTreeMap;

use super::*;

const STALL: Duration = Duration::from_secs(10);
const TRIP: Duration = Duration::from_millis(50);
/// The names of manifests.
const TRUE: u8 = 1;
const FALSE: u8 = 2;

/// What a donor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Donor {
    Good,
    /// It names another manifest, and hands that out.
    NamesFalse,
    /// It names another manifest, and hands out nothing.
    NamesInVain,
    /// It has it after so many questions.
    Later(u32),
    /// It says so for ever.
    AlwaysLater,
    /// It never answers.
    Mute,
    /// It dies after so many answers.
    Dies(u32),
    /// Each of its chunks is rotten.
    Rots,
    /// Two of three of them are.
    Falters,
    /// It drops what it has after so many answers.
    Drops(u32),
    /// It gives what is no manifest.
    Babbles,
}

const DONORS: [Donor; 11] = [
    Donor::Good,
    Donor::NamesFalse,
    Donor::NamesInVain,
    Donor::Later(3),
    Donor::AlwaysLater,
    Donor::Mute,
    Donor::Dies(0),
    Donor::Dies(1),
    Donor::Rots,
    Donor::Drops(2),
    Donor::Babbles,
];

impl Donor {
    /// What it answers to its question of that number; `None` if nothing.
    fn answer(self, question: &DownloadRequest<u32>, asked: u32) -> Option<DownloadReply<u8>> {
        let names = |manifest| DownloadReply::Manifest(manifest);
        Some(match (self, question) {
            (Self::Mute, _) => return None,
            (Self::AlwaysLater, DownloadRequest::Manifest) => DownloadReply::Later,
            (Self::Later(after), DownloadRequest::Manifest) if asked < after => DownloadReply::Later,
            (Self::Dies(after), _) if asked >= after => DownloadReply::Failed("it died".into()),
            (Self::Drops(after), _) if asked >= after => DownloadReply::NotHere,
            (Self::Babbles, _) => DownloadReply::Wrong("it babbles".into()),
            (Self::NamesFalse | Self::NamesInVain, DownloadRequest::Manifest) => names(FALSE),
            (_, DownloadRequest::Manifest) => names(TRUE),
            (Self::NamesInVain, DownloadRequest::Chunk(_)) => DownloadReply::NotHere,
            (Self::Rots, DownloadRequest::Chunk(_)) => DownloadReply::Chunk { fits: false },
            (Self::Falters, DownloadRequest::Chunk(_)) => DownloadReply::Chunk { fits: asked.is_multiple_of(3) },
            (_, DownloadRequest::Chunk(_)) => DownloadReply::Chunk { fits: true },
        })
    }

    fn named(self) -> Option<u8> {
        match self {
            Self::Good | Self::Later(_) | Self::Dies(1..) | Self::Rots | Self::Falters | Self::Drops(1..) => Some(TRUE),
            Self::NamesFalse | Self::NamesInVain => Some(FALSE),
            Self::AlwaysLater | Self::Mute | Self::Dies(0) | Self::Babbles | Self::Drops(0) => None,
        }
    }

    /// Whether all can be had of it alone.
    fn hands_out(self) -> bool {
        matches!(self, Self::Good | Self::Later(_) | Self::NamesFalse)
    }
}

/// What came of a download.
#[derive(Debug)]
struct Came {
    /// The manifest of what was loaded.
    loaded: Result<u8, String>,
    took: Duration,
    /// The chunks that were put in for it, and by whom they were handed out.
    chunks: Vec<(u32, usize)>,
    unverified: bool,
    faults: Vec<(usize, bool)>,
    /// Questions that were under way at once with a donor, at most.
    most_at_once: usize,
}

fn peer(at: usize) -> PeerId {
    PeerId([u8::try_from(at).expect("few"); 32])
}

/// Downloads `chunks` chunks; what is made of `spoils` is of no use: of an even number the last chunk shows it, else the whole.
fn download(
    donors: &[Donor],
    terms: DownloadConfig,
    chunks: u32,
    seed: u64,
    flaw: Option<FlawKind>,
    spoils: Option<u8>,
) -> Came {
    download_of(donors, terms, (chunks, seed), (flaw, None), spoils)
}

/// The same where one of the manifests may be known to be what is wanted.
fn download_of(
    donors: &[Donor],
    terms: DownloadConfig,
    (chunks, seed): (u32, u64),
    (flaw, preferred): (Option<FlawKind>, Option<u8>),
    spoils: Option<u8>,
) -> Came {
    let names: Vec<PeerId> = (0..donors.len()).map(peer).collect();
    let mut now = Time::ZERO;
    let mut machine = Download::new(now, terms, &names, seed);
    machine.flaw = flaw;
    preferred.into_iter().for_each(|preferred| machine.prefer(preferred));
    let mut asked = vec![0; donors.len()];
    let mut under_way: BTreeMap<u64, (usize, DownloadRequest<u32>)> = BTreeMap::new();
    let mut arrivals: BTreeMap<(Time, u64), DownloadReply<u8>> = BTreeMap::new();
    let (mut timer, mut loading, mut fitted) = (None, None, true);
    let mut came = Came {
        loaded: Err(String::new()),
        took: Duration::ZERO,
        chunks: Vec::new(),
        unverified: false,
        faults: Vec::new(),
        most_at_once: 0,
    };
    let at = |donor: PeerId| usize::from(donor.0[0]);
    for _ in 0..10_000 {
        while let Some(output) = machine.poll() {
            match output {
                Output::Ask { number, donor, question } => {
                    let donor = at(donor);
                    if let Some(answer) = donors[donor].answer(&question, asked[donor]) {
                        arrivals.insert((now + TRIP, number), answer);
                    }
                    asked[donor] += 1;
                    under_way.insert(number, (donor, question));
                    let at_once = under_way.values().filter(|(other, _)| *other == donor).count();
                    came.most_at_once = came.most_at_once.max(at_once);
                }
                Output::GiveUp(number) => {
                    assert!(under_way.remove(&number).is_some(), "it was asked");
                    arrivals.retain(|(_, other), _| *other != number);
                }
                Output::SetTimer(at) => timer = Some(at),
                Output::Load(manifest) => {
                    (loading, came.chunks) = (Some(manifest), Vec::new());
                    machine.handle(now, Input::Lacks((0..chunks).collect()));
                }
                Output::Take(number) => {
                    let (donor, question) = under_way.get(&number).expect("it was asked").clone();
                    let DownloadRequest::Chunk(chunk) = question else { panic!("no chunk was asked for") };
                    came.unverified |= !fitted;
                    came.chunks.push((chunk, donor));
                }
                Output::Assemble => {
                    let is_spoilt = loading == spoils && spoils.is_some();
                    let of_no_use = Input::Spoiled("it is of no use".to_owned());
                    machine.handle(now, if is_spoilt { of_no_use } else { Input::Whole });
                }
                Output::Differ(named) => assert!(named.len() > 1 || terms.rule != Rule::Majority),
                Output::Fault { donor, is_wrong, .. } => came.faults.push((at(donor), is_wrong)),
                Output::End(outcome) => {
                    came.loaded = outcome.map(|()| loading.expect("something was loaded"));
                    came.took = now - Time::ZERO;
                    assert_eq!(machine.poll(), None, "nothing follows");
                    return came;
                }
            }
        }
        let next = arrivals.first_key_value().map(|((at, number), _)| (*at, *number));
        match (next, timer) {
            (Some((at, number)), timer) if timer.is_none_or(|timer| at <= timer) => {
                now = at;
                let answer = arrivals.remove(&(at, number)).expect("it is there");
                fitted = answer != DownloadReply::Chunk { fits: false };
                machine.handle(now, Input::Answered { number, answer });
                while let Some(output) = machine.poll() {
                    // Taken while what came is still known.
                    if let Output::Take(taken) = output {
                        assert_eq!(taken, number, "what has just come");
                        let (donor, question) = under_way[&taken].clone();
                        let DownloadRequest::Chunk(chunk) = question else { panic!("no chunk was asked for") };
                        came.unverified |= !fitted;
                        came.chunks.push((chunk, donor));
                        let is_last = came.chunks.len() == usize::try_from(chunks).expect("few");
                        if is_last && chunks.is_multiple_of(2) && spoils.is_some() && loading == spoils {
                            machine.handle(now, Input::Spoiled("the last chunk is too long".to_owned()));
                            break;
                        }
                    } else {
                        machine.outputs.push_front(output);
                        break;
                    }
                }
                under_way.remove(&number);
            }
            (_, Some(at)) => {
                (now, timer) = (now.max(at), None);
                machine.handle(now, Input::Expired);
            }
            (_, None) => panic!("nothing will happen any more: {machine:?}"),
        }
    }
    panic!("it lasts for ever: {machine:?}");
}

fn all_worlds() -> impl Iterator<Item = [Donor; 3]> {
    DONORS.into_iter().flat_map(|a| DONORS.into_iter().flat_map(move |b| DONORS.into_iter().map(move |c| [a, b, c])))
}

/// Any three donors, any terms: it ends, what is loaded is whole and verified, and it is what most of those name who answer.
#[test]
fn every_small_world_ends_with_what_most_name_or_says_why_not() {
    for donors in all_worlds() {
        for terms in [DownloadConfig::of_state(STALL), DownloadConfig::of_checkpoint(STALL), DownloadConfig::of_data()]
        {
            for chunks in [0, 1, 4] {
                for seed in 0..2 {
                    let came = download(&donors, terms, chunks, seed, None, None);
                    check(&donors, terms, chunks, &came);
                }
            }
        }
    }
}

#[track_caller]
fn check(donors: &[Donor], terms: DownloadConfig, chunks: u32, came: &Came) {
    let seen = format!("{donors:?}, {terms:?}, {chunks} chunks: {came:?}");
    assert!(!came.unverified, "{seen}");
    assert_eq!(came.most_at_once.max(1), 1, "{seen}");
    // Naming, then three failures of each donor for each manifest.
    let limit = terms.patience + terms.answer * 2 + terms.chunk * 6 * 2 + Duration::from_secs(2);
    assert!(came.took <= limit, "{seen}");
    let named = |what: u8| donors.iter().filter(|donor| donor.named() == Some(what)).count();
    let (true_ones, false_ones) = (named(TRUE), named(FALSE));
    if let Ok(loaded) = came.loaded {
        let mut whole: Vec<u32> = came.chunks.iter().map(|(chunk, _)| *chunk).collect();
        whole.sort_unstable();
        assert_eq!(whole, (0..chunks).collect::<Vec<u32>>(), "each chunk once: {seen}");
        let (least, most) = (named(loaded), true_ones.max(false_ones));
        assert!(terms.rule != Rule::Majority || true_ones == false_ones || least == most, "{seen}");
    }
    let has = |what| donors.iter().any(|donor| donor.named() == Some(what) && donor.hands_out());
    let takes = |what| match terms.rule {
        Rule::Majority => has(what) && named(what) >= true_ones.max(false_ones),
        Rule::Named | Rule::Each => false,
    };
    let is_there =
        takes(TRUE) || takes(FALSE) || (terms.rule == Rule::Each && (has_now(donors, TRUE) || has_now(donors, FALSE)));
    assert!(came.loaded.is_ok() || !is_there, "somebody hands it out: {seen}");
    let wrong = |at: usize| matches!(donors[at], Donor::Rots | Donor::Babbles);
    assert!(
        came.faults.iter().all(|(at, is_wrong)| *is_wrong == wrong(*at)),
        "who sends what can't be right is named: {seen}"
    );
}

/// Of a donor that need not be asked twice.
fn has_now(donors: &[Donor], what: u8) -> bool {
    donors.iter().any(|donor| donor.named() == Some(what) && matches!(donor, Donor::Good | Donor::NamesFalse))
}

#[test]
fn one_liar_of_two_donors_keeps_nobody_out() {
    let terms = DownloadConfig::of_state(STALL);
    for liar in [Donor::NamesFalse, Donor::NamesInVain] {
        let mut loaded = BTreeSet::new();
        for seed in 0..16 {
            for chunks in [3, 4] {
                let came = download(&[liar, Donor::Good], terms, chunks, seed, None, Some(FALSE));
                assert_eq!(came.loaded, Ok(TRUE), "what is of no use is not kept");
            }
            loaded.extend(download(&[liar, Donor::Good], terms, 4, seed, None, None).loaded);
        }
        assert_eq!(loaded.len(), if liar == Donor::NamesFalse { 2 } else { 1 }, "either, by the seed");
        let outvoted = download(&[liar, liar, Donor::Good], terms, 4, 0, None, Some(FALSE));
        outvoted.loaded.expect_err("most name another one");
    }
}

#[test]
fn all_donors_die_but_one() {
    for deaths in 0..4 {
        let donors: Vec<Donor> = std::iter::repeat_n(Donor::Dies(deaths), 7).chain([Donor::Good]).collect();
        for terms in [DownloadConfig::of_state(STALL), DownloadConfig::of_checkpoint(STALL), DownloadConfig::of_data()]
        {
            let came = download(&donors, terms, 40, 1, None, None);
            assert_eq!(came.loaded, Ok(TRUE), "{deaths}");
            assert!(came.took < STALL, "nobody waits for who is dead: {:?}", came.took);
        }
    }
}

#[test]
fn a_donor_that_brings_something_now_and_then_is_not_left_alone() {
    let came = download(&[Donor::Falters], DownloadConfig::of_state(STALL), 40, 1, None, None);
    assert_eq!((came.loaded, came.faults.len()), (Ok(TRUE), 80));
}

#[test]
fn chunks_come_from_all_donors_and_nobody_waits_for_a_silent_one_once_it_is_certain_what_is_loaded() {
    let came = download(&[Donor::Good; 8], DownloadConfig::of_state(STALL), 64, 1, None, None);
    for donor in 0..8 {
        assert_eq!(came.chunks.iter().filter(|(_, by)| *by == donor).count(), 8);
    }
    let donors = [Donor::Mute, Donor::Good, Donor::Good];
    let came = download(&donors, DownloadConfig::of_state(STALL), 4, 1, None, None);
    assert!(came.loaded.is_ok() && came.took < STALL / 4, "{:?}", came.took);
    // One that answers later than that still hands out chunks.
    let donors = [Donor::Later(60), Donor::Good, Donor::Good];
    let came = download(&donors, DownloadConfig::of_state(STALL), 200, 1, None, None);
    assert!(came.chunks.iter().any(|(_, by)| *by == 0), "{came:?}");
}

#[test]
fn what_is_known_to_be_wanted_is_begun_with_whoever_names_something_else_or_nothing() {
    let terms = DownloadConfig::of_data();
    let donors = [Donor::Mute, Donor::NamesFalse, Donor::NamesFalse, Donor::Good, Donor::Good];
    for seed in 0..8 {
        let came = download_of(&donors, terms, (40, seed), (None, Some(TRUE)), None);
        assert_eq!(came.loaded, Ok(TRUE));
        assert!(came.took < terms.answer, "nobody waits for who is silent: {:?}", came.took);
        assert!(
            [3, 4].iter().all(|good| came.chunks.iter().any(|(_, by)| by == good)),
            "who names it later serves, too"
        );
        // Unknown, what most name comes first, once all have had their time.
        let came = download_of(&donors, terms, (40, seed), (None, None), Some(FALSE));
        assert!(came.loaded == Ok(TRUE) && came.took >= terms.answer, "{came:?}");
    }
    // It is not what is wanted after all: those who had yet to answer then are heard.
    for seed in 0..8 {
        for donors in [&donors[1..], &donors[..]] {
            let came = download_of(donors, terms, (4, seed), (None, Some(FALSE)), Some(FALSE));
            assert_eq!(came.loaded, Ok(TRUE));
        }
    }
    // Nobody names it: the others are tried as ever.
    let came = download_of(&donors[..3], terms, (4, 1), (None, Some(TRUE)), None);
    assert_eq!(came.loaded, Ok(FALSE));
}

#[test]
fn a_planted_mistake_shows() {
    let unverified = Some(FlawKind::TakesUnverified);
    assert!(download(&[Donor::Rots], DownloadConfig::of_state(STALL), 1, 1, unverified, None).unverified);
    let donors = [Donor::NamesFalse, Donor::Good, Donor::Good];
    let came = download(&donors, DownloadConfig::of_state(STALL), 1, 1, Some(FlawKind::TakesFirstNamed), None);
    assert_eq!(came.loaded, Ok(FALSE));
}

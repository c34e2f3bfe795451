//! What others say to the machines by which a member asks around, in any order, and none of what they should.
//!
//! A byte chooses the machine, a second one how it begins; then come inputs of three bytes each: which, and two that say what is in it.
//! The one numbered 0 is what an honest driver and honest others say next. In the end all are silent, and the machine has to end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use starling_engine::download::result_download;
use starling_engine::download::{self, DownloadRequest};
use starling_engine::member::quorum_search::{self, AbsenceReason, SearchResult};
use starling_engine::return_engine::twin::{self, Process};
use starling_engine::return_engine::{self, DiskSummary, ReturnOptions, SavedState};
use starling_engine::search::{self, SearchReply};
use starling_engine::{Download, QuorumSearch, ResultDownload, ReturnEngine, Search, TwinSearch};
use starling_topology::{Digest, Head, MarkStatus, PeerId, Proof, Root, SplitMix64Generator, Time, View};

use crate::seeds::{RUN, STEPS, peer, recorded};
use crate::target::Target;

/// The most that one input may bring about.
const MOST_OUTPUTS: usize = 200;
/// So often a timer may come to its time, or the driver do what it is told, until a machine ends to which nobody says anything.
const MOST_TURNS: usize = 2_000;
const STALL: Duration = Duration::from_secs(20);

pub(super) const ENGINE: Target = Target {
    name: "engine",
    seeds: || {
        let honest = |(machine, form): (u8, u8)| [&[machine, form][..], &[0; 3].repeat(40)].concat();
        let random = |machine: u8| {
            let mut generator = SplitMix64Generator::for_purpose("fuzz engine", u64::from(machine), 0);
            let inputs = (0..120).map(|_| generator.next_u64() as u8);
            [machine].into_iter().chain(inputs).collect()
        };
        let forms = (0..6).flat_map(|machine| [1, 38, 75, 112, 250].map(|form| (machine, form)));
        forms.map(honest).chain((0..6).map(random)).collect()
    },
    take: |bytes| {
        let [machine, form, inputs @ ..] = bytes else { return false };
        let inputs = inputs.chunks_exact(3).map(|input| [input[0], input[1], input[2]]);
        match machine % 6 {
            0 => downloads(*form, inputs),
            1 => fetches(*form, inputs),
            2 => searches(*form, inputs),
            3 => looks_out(inputs),
            4 => looks_for_twins(*form, inputs),
            _ => comes_back(*form, inputs),
        }
        true
    },
    longest: 6 * 1024,
    per_byte: 512,
    besides: 512 * 1024,
};

/// Time, and what a machine has asked for of it.
#[derive(Debug, Default)]
struct Clock {
    now: Time,
    timer: Option<Time>,
}

impl Clock {
    fn now(&self) -> Time {
        self.now
    }

    fn pass(&mut self, by: u8) {
        self.now = self.now + Duration::from_millis(u64::from(by) * u64::from(by));
    }

    /// Goes on to the time that was asked for. False if there is none.
    fn reach(&mut self) -> bool {
        let Some(at) = self.timer.take() else { return false };
        self.now = self.now.max(at);
        true
    }
}

/// Counts what one input brings about.
fn drained<T>(mut poll: impl FnMut() -> Option<T>) -> Vec<T> {
    let mut outputs = Vec::new();
    while let Some(output) = poll() {
        outputs.push(output);
        assert!(outputs.len() <= MOST_OUTPUTS, "one input has brought about more than {MOST_OUTPUTS}");
    }
    outputs
}

fn donors(form: u8) -> Vec<PeerId> {
    (0..form % 12).map(|at| peer(1 + at % 9)).collect()
}

/// What a download's driver has to keep in mind.
#[derive(Debug, Default)]
struct Asked {
    clock: Clock,
    asked: BTreeMap<u64, (PeerId, DownloadRequest<u8>)>,
    numbers: BTreeSet<u64>,
    /// Chunks that fit, which may be taken once.
    fitting: BTreeSet<u64>,
    loads: bool,
    assembles: bool,
    ended: bool,
}

impl Asked {
    fn obey(&mut self, machine: &mut Download<u8, u8>) {
        for output in drained(|| machine.poll()) {
            assert!(!self.ended, "it goes on after its end: {output:?}");
            match output {
                download::Output::Ask { number, donor, question } => {
                    assert!(self.numbers.insert(number), "two questions have one number");
                    assert!(self.asked.values().all(|(other, _)| *other != donor), "a donor is asked twice at once");
                    self.asked.insert(number, (donor, question));
                }
                download::Output::GiveUp(number) => {
                    assert!(self.asked.remove(&number).is_some(), "what nobody has asked is given up");
                }
                download::Output::SetTimer(at) => self.clock.timer = Some(at),
                download::Output::Load(_) => (self.loads, self.assembles) = (true, false),
                download::Output::Take(number) => assert!(self.fitting.remove(&number), "what does not fit is taken"),
                download::Output::Assemble => self.assembles = true,
                download::Output::Differ(_) | download::Output::Fault { .. } => {}
                download::Output::End(_) => self.ended = true,
            }
        }
    }

    /// What an honest driver and honest others say next, if they say anything.
    fn honest(&mut self, chunks: u8) -> Option<download::Input<u8, u8>> {
        if std::mem::take(&mut self.loads) {
            return Some(download::Input::Lacks((0..chunks % 16).collect()));
        }
        if std::mem::take(&mut self.assembles) {
            return Some(download::Input::Whole);
        }
        let (number, (_, question)) = self.asked.pop_first()?;
        let answer = match question {
            DownloadRequest::Manifest => download::DownloadReply::Manifest(1),
            DownloadRequest::Chunk(_) => {
                self.fitting.insert(number);
                download::DownloadReply::Chunk { fits: true }
            }
        };
        Some(download::Input::Answered { number, answer })
    }

    fn answered(&mut self, which: u8, what: u8) -> download::Input<u8, u8> {
        // Now and then the answer to a question that nobody waits for.
        let open = self.asked.keys().copied().nth(usize::from(which) % (self.asked.len() + 1));
        let number = open.unwrap_or_else(|| u64::from(which));
        let was_chunk = self.asked.remove(&number).is_some_and(|(_, question)| question != DownloadRequest::Manifest);
        let answer = match what % 7 {
            0 => {
                if was_chunk {
                    self.fitting.insert(number);
                }
                download::DownloadReply::Chunk { fits: true }
            }
            1 => download::DownloadReply::Chunk { fits: false },
            2 => download::DownloadReply::Later,
            3 => download::DownloadReply::NotHere,
            4 => download::DownloadReply::Wrong("it lied".to_owned()),
            5 => download::DownloadReply::Failed("it is gone".to_owned()),
            _ => download::DownloadReply::Manifest(what / 7 % 4),
        };
        download::Input::Answered { number, answer }
    }
}

fn downloads(form: u8, inputs: impl Iterator<Item = [u8; 3]>) {
    let terms = [
        download::DownloadConfig::of_state(STALL),
        download::DownloadConfig::of_checkpoint(STALL),
        download::DownloadConfig::of_data(),
    ][usize::from(form / 12 % 3)];
    let mut machine = Download::new(Time::ZERO, terms, &donors(form), u64::from(form));
    let mut asked = Asked::default();
    asked.obey(&mut machine);
    for [kind, which, what] in inputs {
        let input = match kind % 8 {
            0 => asked.honest(form),
            1 | 2 => Some(asked.answered(which, what)),
            3 => {
                asked.loads = false;
                Some(download::Input::Lacks((0..which % 20).collect()))
            }
            4 => Some(download::Input::Whole),
            5 => Some(download::Input::Spoiled("it is torn".to_owned())),
            6 => {
                asked.clock.pass(which);
                Some(download::Input::Expired)
            }
            _ => asked.clock.reach().then_some(download::Input::Expired),
        };
        if let Some(input) = input {
            machine.handle(asked.clock.now(), input);
            asked.obey(&mut machine);
        }
    }
    for turn in 0.. {
        if asked.ended {
            break;
        }
        assert!(turn < MOST_TURNS, "it does not end");
        let is_up_to_us = std::mem::take(&mut asked.loads) | std::mem::take(&mut asked.assembles);
        let input = match is_up_to_us {
            true => download::Input::Spoiled("it is torn".to_owned()),
            false if asked.clock.reach() => download::Input::Expired,
            // What was said in place of the driver has lost what it was to do.
            false => download::Input::Spoiled("nothing else comes".to_owned()),
        };
        machine.handle(asked.clock.now(), input);
        asked.obey(&mut machine);
    }
}

fn fetches(form: u8, inputs: impl Iterator<Item = [u8; 3]>) {
    let mut machine = ResultDownload::new(Time::ZERO, STALL, &donors(form));
    let (mut clock, mut asked, mut ended, mut last) = (Clock::default(), None, false, 0);
    let mut obey = |machine: &mut ResultDownload, clock: &mut Clock, asked: &mut Option<u64>| {
        for output in drained(|| machine.poll()) {
            assert!(!ended, "it goes on after its end: {output:?}");
            match output {
                result_download::Output::Ask { number, .. } => {
                    assert!(asked.replace(number).is_none() && number > last, "two holders are asked at once");
                    last = number;
                }
                result_download::Output::GiveUp(number) => assert_eq!(asked.take(), Some(number), "it is not asked"),
                result_download::Output::SetTimer(at) => clock.timer = Some(at),
                result_download::Output::Fault { .. } => {}
                result_download::Output::End(_) => ended = true,
            }
        }
        ended
    };
    obey(&mut machine, &mut clock, &mut asked);
    for [kind, which, what] in inputs {
        let number = if kind & 0x80 == 0 { asked.unwrap_or_else(|| u64::from(which)) } else { u64::from(which) };
        let answer = match what % 5 {
            0 => result_download::ResultReply::Here,
            1 => result_download::ResultReply::Later,
            2 => result_download::ResultReply::NotHere,
            3 => result_download::ResultReply::Wrong("it lied".to_owned()),
            _ => result_download::ResultReply::Failed("it is gone".to_owned()),
        };
        let input = match kind % 5 {
            0 | 1 => result_download::Input::Answered { number, answer },
            2 => result_download::Input::Begun { number, bytes: 1 << (what % 32) },
            3 => {
                clock.pass(which);
                result_download::Input::Expired
            }
            _ if clock.reach() => result_download::Input::Expired,
            _ => continue,
        };
        asked.take_if(|asked| matches!(&input, result_download::Input::Answered { number, .. } if number == asked));
        machine.handle(clock.now(), input);
        obey(&mut machine, &mut clock, &mut asked);
    }
    for turn in 0.. {
        if obey(&mut machine, &mut clock, &mut asked) {
            break;
        }
        assert!(turn < MOST_TURNS && clock.reach(), "it does not end");
        machine.handle(clock.now(), result_download::Input::Expired);
    }
}

/// A proof that its driver has verified, of a step that this says.
fn proof(of: u8) -> Proof {
    let view = View::found(RUN, peer(1)).on_branch(u64::from(of % 3));
    let step = u64::from(of) % (STEPS + 1);
    let head = Head { run: RUN, step, view: view.id(), digest: Digest([of; 32]), manifest: Digest([of / 2; 32]) };
    Proof { head, view, signatures: vec![(peer(1), [1; 64])] }
}

fn searches(form: u8, inputs: impl Iterator<Item = [u8; 3]>) {
    let root = (form & 0x40 != 0).then(Root::default);
    let beyond = (form & 0x20 != 0).then_some(2);
    let (even_if_live, from_forks) = (form & 0x10 != 0, form & 0x80 != 0);
    let terms = search::SearchConfig { root, even_if_live, from_forks, beyond, last_step: STEPS, max_stall: STALL };
    let mut machine = Search::new(terms, &donors(form), Time::ZERO);
    let (mut clock, mut asked, mut looks, mut loads, mut ended) =
        (Clock::default(), BTreeSet::new(), false, false, false);
    let mut turns = 0;
    let mut inputs = inputs.map(Some).chain(std::iter::repeat(None));
    loop {
        for output in drained(|| machine.poll()) {
            assert!(!ended, "it goes on after its end: {output:?}");
            match output {
                search::Output::Ask(peer) => _ = asked.insert(peer),
                search::Output::SetTimer(at) => clock.timer = Some(at),
                search::Output::Look => looks = true,
                search::Output::Fetch { from, .. } => {
                    assert!(!from.is_empty() && !loads, "it fetches from nobody, or twice at once");
                    loads = true;
                }
                search::Output::Lost { .. } => {}
                search::Output::Done => ended = true,
            }
        }
        let next = inputs.next().flatten();
        if next.is_none() && ended {
            break;
        }
        let said = |from, kind: u8, what: u8| search::Input::Answered {
            from,
            live: kind & 0x40 != 0,
            looks_out: kind & 0x80 != 0,
            proofs: (0..what % 4).map(|at| proof(what / 4 + at)).collect(),
        };
        let input = match next.map(|[kind, which, what]| (kind, kind % 8, which, what)) {
            Some((_, 0, _, what)) if !asked.is_empty() => said(asked.pop_first().expect("some are"), 0, what | 1),
            Some((kind, 1 | 2, which, what)) => said(peer(1 + which % 10), kind, what),
            Some((_, 3, which, _)) => search::Input::Unanswered(peer(1 + which % 10)),
            Some((_, 4, which, _)) => search::Input::Holds((which < 128).then_some(u64::from(which % 10))),
            Some((_, 5, _, what)) => {
                loads = false;
                if what % 2 == 0 { search::Input::Fetched } else { search::Input::Missed }
            }
            Some((_, 6, which, _)) => {
                clock.pass(which);
                search::Input::Expired
            }
            Some(_) | None if std::mem::take(&mut looks) => search::Input::Holds(None),
            Some(_) | None if std::mem::take(&mut loads) => search::Input::Missed,
            Some(_) => continue,
            None => {
                turns += 1;
                assert!(turns < MOST_TURNS, "it does not end");
                clock.reach();
                search::Input::Expired
            }
        };
        machine.handle(clock.now(), input);
    }
}

fn answers(of: u8) -> Vec<(PeerId, SearchReply)> {
    let answer = |at: u8| {
        let step = (at & 4 != 0).then_some(u64::from(of) % (STEPS + 1));
        let answer = SearchReply {
            live: at & 1 != 0,
            looks_out: at & 2 != 0,
            stable_step: step,
            forked: at & 8 != 0,
            ours: step,
        };
        (peer(1 + at % 9), answer)
    };
    (0..of % 4).map(|at| answer(of.wrapping_mul(29).wrapping_add(at * 7))).collect()
}

fn looks_out(inputs: impl Iterator<Item = [u8; 3]>) {
    let mut machine = QuorumSearch::new(STEPS, STALL);
    let mut clock = Clock::default();
    for [kind, which, what] in inputs {
        let root = Root { branch: u64::from(what % 3), ..Root::default() };
        let apart = match what / 3 % 3 {
            0 => AbsenceReason::Paused(root),
            1 => AbsenceReason::Outside(root),
            _ => AbsenceReason::Waits { root, forked: which % 2 == 0 },
        };
        match kind % 4 {
            0 => {
                clock.reach();
                machine.expired(clock.now(), u64::from(which), apart);
            }
            1 => machine.note(clock.now(), (which < 200).then_some(apart)),
            2 => {
                let stable = (which < 128).then_some(u64::from(which));
                let (answers, keepers) = (answers(what), donors(which));
                let came_to = SearchResult { fetched: kind & 0x80 != 0, stable, answers: &answers, keepers: &keepers };
                machine.searched(clock.now(), came_to);
            }
            _ => clock.pass(which),
        }
        let outputs = drained(|| machine.poll());
        assert!(outputs.len() <= 2, "it wants several things at once: {outputs:?}");
        for output in outputs {
            if let quorum_search::Output::SetTimer(at) = output {
                clock.timer = Some(at);
            }
        }
    }
}

fn looks_for_twins(form: u8, inputs: impl Iterator<Item = [u8; 3]>) {
    let mut machine = TwinSearch::new(usize::from(form % 4), STALL, Time::ZERO);
    let (mut clock, mut refuses, mut goes_on) = (Clock::default(), false, false);
    for [kind, which, what] in [[6, 0, 0]].into_iter().chain(inputs) {
        let theirs = Process { takes_part: what & 1 != 0, incarnation: u64::from(what) };
        match kind % 7 {
            0 => {
                clock.reach();
                machine.handle(clock.now(), twin::Input::Expired);
            }
            1 => machine.handle(clock.now(), twin::Input::Found),
            2 => machine.handle(clock.now(), twin::Input::Answered { ours: u64::from(which), theirs }),
            3 => machine.handle(clock.now(), twin::Input::Unanswered),
            4 => machine.note(clock.now(), which % 2 == 0),
            5 => {
                clock.pass(which);
                machine.handle(clock.now(), twin::Input::Expired);
            }
            _ => {}
        }
        let outputs = drained(|| machine.poll());
        assert!(outputs.len() <= 3, "it wants several things at once: {outputs:?}");
        for output in outputs {
            assert!(!refuses, "it goes on after it has refused: {output:?}");
            match output {
                twin::Output::SetTimer(at) => clock.timer = Some(at),
                twin::Output::Refuse => refuses = true,
                twin::Output::GoOn => assert!(!std::mem::replace(&mut goes_on, true), "it says so twice"),
                twin::Output::Dial => {}
            }
        }
    }
}

fn comes_back(form: u8, inputs: impl Iterator<Item = [u8; 3]>) {
    thread_local! {
        static SEAT: Option<starling_topology::Record> = recorded().1.pop();
    }
    let has = |bit: u8| form & bit != 0;
    let past = SavedState {
        me: peer(1),
        was_here: has(1),
        seat: SEAT.with(|seat| seat.clone().filter(|_| has(2))),
        noted: MarkStatus::Nothing,
        has_lost_its_seat: has(4) && !has(2),
        has_lost_its_contacts: has(8),
        members: if has(16) { vec![peer(2), peer(3)] } else { Vec::new() },
        keepers: if has(32) { vec![peer(4)] } else { Vec::new() },
        left: None,
    };
    let word = ReturnOptions { joins: has(64), alone: has(128), goes_back: has(64) && has(128) };
    let terms = return_engine::ReturnConfig { last_step: STEPS, stride: 2, max_stall: STALL };
    let mut machine = ReturnEngine::new(past, word, terms, Time::ZERO);
    let (mut clock, mut searches, mut looks, mut ended, mut turns) = (Clock::default(), false, false, false, 0);
    let mut inputs = inputs.map(Some).chain(std::iter::repeat(None));
    let holds = |of: u8| {
        let loadable = (of & 1 != 0).then_some(u64::from(of / 4) % (STEPS + 1));
        return_engine::Input::Holds(DiskSummary {
            loadable,
            can_begin: of & 2 != 0,
            stable: loadable.filter(|_| of & 4 != 0),
            ended: None,
        })
    };
    loop {
        for output in drained(|| machine.poll()) {
            assert!(!ended, "it goes on after its end: {output:?}");
            match output {
                return_engine::Output::Search { .. } => searches = true,
                return_engine::Output::Look { .. } => looks = true,
                return_engine::Output::SetTimer(at) => clock.timer = Some(at),
                return_engine::Output::Done(_) => ended = true,
            }
        }
        let next = inputs.next().flatten();
        if next.is_none() && ended {
            break;
        }
        let input = match next {
            Some([kind, which, what]) => match kind % 4 {
                0 if std::mem::take(&mut searches) => {
                    return_engine::Input::Searched { answers: answers(what), fetched: false }
                }
                0 if std::mem::take(&mut looks) => holds(what),
                0 | 3 => {
                    clock.pass(which);
                    return_engine::Input::Expired
                }
                1 => return_engine::Input::Searched { answers: answers(which), fetched: what & 1 != 0 },
                _ => holds(what),
            },
            None => {
                turns += 1;
                assert!(turns < MOST_TURNS, "it does not end");
                // Whatever of it is waited for.
                match turns % 3 {
                    0 => return_engine::Input::Searched { answers: Vec::new(), fetched: false },
                    1 => holds(form),
                    _ => {
                        clock.reach();
                        return_engine::Input::Expired
                    }
                }
            }
        };
        machine.handle(clock.now(), input);
    }
}

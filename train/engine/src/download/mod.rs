//! Downloading what is cut into chunks from several donors: the replicated state, a checkpoint, the files of a data set.
//!
//! All donors are asked at once for their manifests, and one is chosen. Then each donor of it is asked for one chunk after the other, all
//! at once, so a fast one hands out more. What one fails to hand out in time is asked for elsewhere; what has come, never again. A step's
//! result is not cut: [`result_download`]. Which states a donor has ready: [`SnapshotStore`](crate::SnapshotStore).

pub mod result_download;
pub(crate) mod snapshots;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use starling_topology::{FlawKind, PeerId, Time};

/// Donors that chunks are asked of at a time.
pub const MAX_DONORS: usize = 8;
/// Donors of a data set that are asked what they have: each has files, which may differ.
const MAX_ASKED: usize = 64;
/// When a donor is asked again for a manifest that it will have.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How often in a row a donor may fail before it is left alone: few failures among many chunks end nothing.
const MAX_FAILURES: u32 = 3;

/// Which of the manifests that donors name is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// That of more than half of those who answer; if there is none, each in turn: one liar of two donors must keep nobody out.
    Majority,
    /// Any: drivers take only the one whose name they know for a manifest at all.
    Named,
    /// Each in turn, those that more donors name first.
    Each,
}

/// How long donors may take, and which of their manifests counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DownloadConfig {
    rule: Rule,
    /// For the manifest, connecting included.
    answer: Duration,
    /// For a chunk.
    chunk: Duration,
    /// How long a donor may say that it will have the manifest.
    patience: Duration,
    /// How long the others may take once it is certain which manifest is chosen.
    grace: Duration,
}

impl DownloadConfig {
    /// Of the replicated state, from members of the view. A donor takes its snapshot between two steps, and a step may take as
    /// long as a stall.
    pub fn of_state(max_stall: Duration) -> Self {
        let (answer, patience, grace) = (max_stall, max_stall * 2, max_stall / 8);
        Self { rule: Rule::Majority, answer, chunk: max_stall, patience, grace }
    }

    /// Of a checkpoint whose manifest is known by its hash.
    pub fn of_checkpoint(max_stall: Duration) -> Self {
        let (patience, grace) = (Duration::ZERO, max_stall / 8);
        Self { rule: Rule::Named, answer: max_stall, chunk: max_stall, patience, grace }
    }

    /// Of the files of a data set, whose donors have a run to take part in and serve many joiners, one after the other. What the
    /// files read as is checked in the end.
    pub fn of_data() -> Self {
        let (answer, chunk) = (Duration::from_secs(15), Duration::from_secs(30));
        Self { rule: Rule::Each, answer, chunk, patience: Duration::ZERO, grace: Duration::ZERO }
    }
}

/// What a donor is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownloadRequest<C> {
    /// What it has.
    Manifest,
    /// This chunk of what has the manifest that is being loaded.
    Chunk(C),
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownloadReply<M> {
    /// A manifest that may be what is wanted.
    Manifest(M),
    /// A chunk, and whether its hash is that of the one that was asked for.
    Chunk {
        /// Whether it is.
        fits: bool,
    },
    /// It will have it.
    Later,
    /// It has none and will have none.
    NotHere,
    /// Something that no correct donor says, and why.
    Wrong(String),
    /// None: why.
    Failed(String),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input<M, C> {
    /// What became of the question with this number. What it brought is kept until the outputs have been polled.
    Answered {
        /// Of [`Output::Ask`].
        number: u64,
        /// What came.
        answer: DownloadReply<M>,
    },
    /// To [`Output::Load`]: these distinct chunks are not here yet, in the order in which they are best asked for.
    Lacks(Vec<C>),
    /// To [`Output::Assemble`]: it is whole, and what is wanted.
    Whole,
    /// Nothing can come of what is being loaded, for this reason: no donor is to blame.
    Spoiled(String),
    /// The timer that was set last has come to its time.
    Expired,
}

/// What the driver does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<M, C> {
    /// Ask a donor, which is asked nothing else.
    Ask {
        /// What to name the answer with.
        number: u64,
        /// Whom.
        donor: PeerId,
        /// What.
        question: DownloadRequest<C>,
    },
    /// Nobody waits for the answer to this question any more.
    GiveUp(u64),
    /// Say [`Input::Expired`] then; replaces the timer set before.
    SetTimer(Time),
    /// Begin to load what has this manifest; answer with [`Input::Lacks`] or [`Input::Spoiled`].
    Load(M),
    /// Put in the chunk that came with this answer.
    Take(u64),
    /// All chunks are here: put them together, and answer with [`Input::Whole`] or [`Input::Spoiled`].
    Assemble,
    /// No manifest is named by most of those who answered: these are, by these donors.
    Differ(Vec<(M, Vec<PeerId>)>),
    /// For the log: a donor did not give what it was asked for.
    Fault {
        /// Which donor.
        donor: PeerId,
        /// What it did instead.
        reason: String,
        /// Whether no correct donor does so.
        is_wrong: bool,
    },
    /// It is over: all is here, or why it can't be had.
    End(Result<(), String>),
}

#[derive(Debug)]
struct Asked<C> {
    donor: PeerId,
    question: DownloadRequest<C>,
    until: Time,
}

#[derive(Debug)]
enum Stage<M, C> {
    /// Donors say what they have.
    Naming,
    /// The driver looks what is missing.
    Loading(M, Vec<PeerId>),
    Fetching(M, Fetching<C>),
    /// The driver puts it together.
    Assembling,
    Ended,
}

#[derive(Debug)]
struct Fetching<C> {
    missing: VecDeque<C>,
    here: BTreeSet<C>,
    of: usize,
    idle: VecDeque<PeerId>,
    failures: BTreeMap<PeerId, u32>,
    /// How many donors have been counted on.
    donors: usize,
}

/// One download. `M` is a manifest, `C` the name of a chunk.
#[derive(Debug)]
pub struct Download<M, C> {
    terms: DownloadConfig,
    /// Who comes again begins with another one of several manifests: a liar may answer first each time.
    seed: u64,
    began: Time,
    /// How many donors there are.
    donors: usize,
    asked: BTreeMap<u64, Asked<C>>,
    questions: u64,
    /// Who will have the manifest, and when it is asked again.
    later: Vec<(Time, PeerId)>,
    /// Who named what: the manifests that have not been tried.
    named: Vec<(M, Vec<PeerId>)>,
    /// One that is known to be what is wanted.
    preferred: Option<M>,
    /// Since when it is certain which one is chosen.
    certain: Option<Time>,
    stage: Stage<M, C>,
    timer: Option<Time>,
    reason: String,
    flaw: Option<FlawKind>,
    outputs: VecDeque<Output<M, C>>,
}

impl<M: Clone + PartialEq, C: Clone + Ord> Download<M, C> {
    /// Asks `donors`, those that are asked first being first.
    pub fn new(now: Time, terms: DownloadConfig, donors: &[PeerId], seed: u64) -> Self {
        let most = if terms.rule == Rule::Each { MAX_ASKED } else { MAX_DONORS };
        let mut distinct: Vec<PeerId> = Vec::new();
        for donor in donors {
            if distinct.len() < most && !distinct.contains(donor) {
                distinct.push(*donor);
            }
        }
        let mut download = Self {
            terms,
            seed,
            began: now,
            donors: distinct.len(),
            asked: BTreeMap::new(),
            questions: 0,
            later: Vec::new(),
            named: Vec::new(),
            preferred: None,
            certain: None,
            stage: Stage::Naming,
            timer: None,
            reason: "there is no donor".to_owned(),
            flaw: None,
            outputs: VecDeque::new(),
        };
        distinct.into_iter().for_each(|donor| download.ask(now, donor, DownloadRequest::Manifest));
        download.go_on(now);
        download
    }

    /// Has it begin with this manifest, which is known to be what is wanted, as soon as a donor names it: nobody else is waited for then. Donors that
    /// name it later hand out chunks as well.
    pub fn prefer(&mut self, manifest: M) {
        self.preferred = Some(manifest);
    }

    /// Has it make a mistake from now on.
    #[cfg(feature = "flaws")]
    pub fn plant(&mut self, flaw: FlawKind) {
        self.flaw = Some(flaw);
    }

    /// What the driver does next; `None` until something happens.
    pub fn poll(&mut self) -> Option<Output<M, C>> {
        self.outputs.pop_front()
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Time, input: Input<M, C>) {
        match input {
            Input::Answered { number, answer } => {
                if let Some(asked) = self.asked.remove(&number) {
                    self.take(now, number, asked, answer);
                }
            }
            Input::Lacks(chunks) => self.fetch(chunks),
            Input::Whole if matches!(self.stage, Stage::Assembling) => self.end(Ok(())),
            Input::Spoiled(reason) if !matches!(self.stage, Stage::Naming | Stage::Ended) => self.try_next(reason),
            Input::Whole | Input::Spoiled(_) => {}
            Input::Expired => self.expire(now),
        }
        self.go_on(now);
    }

    fn ask(&mut self, now: Time, donor: PeerId, question: DownloadRequest<C>) {
        self.questions += 1;
        let limit = if question == DownloadRequest::Manifest { self.terms.answer } else { self.terms.chunk };
        let (number, until) = (self.questions, now + limit);
        self.outputs.push_back(Output::Ask { number, donor, question: question.clone() });
        self.asked.insert(number, Asked { donor, question, until });
    }

    fn take(&mut self, now: Time, number: u64, asked: Asked<C>, answer: DownloadReply<M>) {
        let Asked { donor, question, .. } = asked;
        let takes_unverified = self.flaw == Some(FlawKind::TakesUnverified);
        match (question, answer) {
            (DownloadRequest::Manifest, DownloadReply::Manifest(manifest)) => self.name(now, donor, manifest),
            (DownloadRequest::Manifest, DownloadReply::Later) if now - self.began < self.terms.patience => {
                self.later.push((now + ASK_AGAIN, donor));
            }
            (DownloadRequest::Chunk(chunk), DownloadReply::Chunk { fits }) if fits || takes_unverified => {
                if let Stage::Fetching(_, fetching) = &mut self.stage {
                    fetching.failures.remove(&donor);
                    fetching.idle.push_back(donor);
                    if fetching.here.insert(chunk) {
                        self.outputs.push_back(Output::Take(number));
                    }
                }
            }
            (question, answer) => {
                let (reason, is_wrong) = match answer {
                    DownloadReply::Chunk { .. } => ("it sent bytes that are not the chunk's".to_owned(), true),
                    DownloadReply::Manifest(_) => ("it sent a manifest for a chunk".to_owned(), true),
                    DownloadReply::Later => ("it did not have it ready in time".to_owned(), false),
                    DownloadReply::NotHere => ("it does not have it".to_owned(), false),
                    DownloadReply::Wrong(reason) => (reason, true),
                    DownloadReply::Failed(reason) => (reason, false),
                };
                self.fail(donor, question, reason, is_wrong);
            }
        }
    }

    fn name(&mut self, now: Time, donor: PeerId, manifest: M) {
        if let Stage::Fetching(chosen, fetching) = &mut self.stage
            && *chosen == manifest
        {
            if fetching.donors < MAX_DONORS {
                fetching.donors += 1;
                fetching.idle.push_back(donor);
            }
            return;
        }
        if let Stage::Loading(chosen, donors) = &mut self.stage
            && *chosen == manifest
        {
            return donors.push(donor);
        }
        let place = self.named.iter_mut().find(|(other, _)| *other == manifest);
        match (place, &self.stage) {
            (Some((_, donors)), _) => donors.push(donor),
            (None, Stage::Naming) => self.named.push((manifest, vec![donor])),
            // What was taken for what is wanted may not be.
            (None, _) if self.terms.rule == Rule::Each => self.named.push((manifest, vec![donor])),
            // What was chosen is what most of all name.
            (None, _) => {}
        }
        let is_certain = match self.terms.rule {
            Rule::Majority => self.named.iter().any(|(_, donors)| 2 * donors.len() > self.donors),
            Rule::Named => true,
            Rule::Each => self.is_preferred_here(),
        };
        if is_certain || self.flaw == Some(FlawKind::TakesFirstNamed) {
            self.certain = self.certain.or(Some(now));
        }
    }

    fn is_preferred_here(&self) -> bool {
        self.preferred.as_ref().is_some_and(|preferred| self.named.iter().any(|(manifest, _)| manifest == preferred))
    }

    fn fail(&mut self, donor: PeerId, question: DownloadRequest<C>, reason: String, is_wrong: bool) {
        self.reason.clone_from(&reason);
        self.outputs.push_back(Output::Fault { donor, reason, is_wrong });
        if let (DownloadRequest::Chunk(chunk), Stage::Fetching(_, fetching)) = (question, &mut self.stage) {
            fetching.missing.push_front(chunk);
            let failed = fetching.failures.entry(donor).or_default();
            *failed += 1;
            if *failed < MAX_FAILURES {
                fetching.idle.push_back(donor);
            }
        }
    }

    fn expire(&mut self, now: Time) {
        self.timer = None;
        while let Some(number) = self.asked.iter().find(|(_, asked)| asked.until <= now).map(|(number, _)| *number) {
            self.outputs.push_back(Output::GiveUp(number));
            if let Some(asked) = self.asked.remove(&number) {
                self.fail(asked.donor, asked.question, "it did not answer in time".to_owned(), false);
            }
        }
        for (_, donor) in self.later.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            self.ask(now, donor, DownloadRequest::Manifest);
        }
    }

    /// Whether somebody may still say what it has.
    fn is_naming(&self) -> bool {
        !self.later.is_empty() || self.asked.values().any(|asked| asked.question == DownloadRequest::Manifest)
    }

    fn go_on(&mut self, now: Time) {
        let is_late = self.certain.is_some_and(|since| now >= since + self.grace());
        match &self.stage {
            Stage::Naming if is_late || !self.is_naming() => self.choose(),
            Stage::Fetching(..) => self.schedule(now),
            Stage::Naming | Stage::Loading(..) | Stage::Assembling | Stage::Ended => {}
        }
        self.set_timer();
    }

    fn grace(&self) -> Duration {
        if self.flaw == Some(FlawKind::TakesFirstNamed) { Duration::ZERO } else { self.terms.grace }
    }

    /// Orders what was named, and begins with the first.
    fn choose(&mut self) {
        let seed = self.seed;
        let mut named: Vec<_> = std::mem::take(&mut self.named).into_iter().zip(1..).collect();
        named.sort_by_key(|((_, donors), place)| (Reverse(donors.len()), mix(seed, *place)));
        let mut named: Vec<(M, Vec<PeerId>)> = named.into_iter().map(|(named, _)| named).collect();
        // Stable: the others stay in order.
        named.sort_by_key(|(manifest, _)| self.preferred.as_ref() != Some(manifest));
        let answered: usize = named.iter().map(|(_, donors)| donors.len()).sum();
        if self.terms.rule == Rule::Majority && !named.is_empty() {
            if named.first().is_some_and(|(_, donors)| 2 * donors.len() > answered) {
                named.truncate(1);
            } else {
                self.outputs.push_back(Output::Differ(named.clone()));
            }
        }
        self.named = named;
        self.begin_next();
    }

    fn begin_next(&mut self) {
        if self.named.is_empty() {
            let reason = std::mem::take(&mut self.reason);
            return self.end(Err(reason));
        }
        let (manifest, donors) = self.named.remove(0);
        self.outputs.push_back(Output::Load(manifest.clone()));
        self.stage = Stage::Loading(manifest, donors);
    }

    /// What is being loaded can't be had.
    fn try_next(&mut self, reason: String) {
        self.reason = reason;
        self.give_up(|question| *question != DownloadRequest::Manifest);
        // What was to be done with it is void.
        self.outputs.retain(|output| !matches!(output, Output::Assemble | Output::Take(_)));
        self.preferred = None;
        if self.terms.rule == Rule::Each && self.is_naming() {
            // It was begun with before all had said what they have.
            (self.stage, self.certain) = (Stage::Naming, None);
            return;
        }
        self.begin_next();
    }

    fn fetch(&mut self, chunks: Vec<C>) {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Loading(manifest, mut donors) => {
                donors.truncate(MAX_DONORS);
                let (here, failures) = (BTreeSet::new(), BTreeMap::new());
                let (of, donors, idle) = (chunks.len(), donors.len(), donors.into());
                let fetching = Fetching { missing: chunks.into(), here, of, idle, failures, donors };
                self.stage = Stage::Fetching(manifest, fetching);
            }
            other @ (Stage::Naming | Stage::Fetching(..) | Stage::Assembling | Stage::Ended) => self.stage = other,
        }
    }

    /// Asks each idle donor for a chunk.
    fn schedule(&mut self, now: Time) {
        let Stage::Fetching(_, fetching) = &mut self.stage else { return };
        if fetching.here.len() == fetching.of {
            self.stage = Stage::Assembling;
            self.give_up(|question| *question != DownloadRequest::Manifest);
            return self.outputs.push_back(Output::Assemble);
        }
        let mut asks = Vec::new();
        while !fetching.idle.is_empty() {
            let Some(chunk) = fetching.missing.pop_front() else { break };
            if fetching.here.contains(&chunk) {
                continue;
            }
            let Some(donor) = fetching.idle.pop_front() else { break };
            if fetching.failures.contains_key(&donor) {
                // It may be gone, which takes long to learn: others need not wait for it.
                fetching.missing.push_back(chunk.clone());
            }
            asks.push((donor, chunk));
        }
        for (donor, chunk) in asks {
            self.ask(now, donor, DownloadRequest::Chunk(chunk));
        }
        if self.asked.is_empty() && self.later.is_empty() {
            self.try_next(format!("no donor is left: {}", self.reason));
        }
    }

    /// Waits no more for the answers to these questions.
    fn give_up(&mut self, is_moot: impl Fn(&DownloadRequest<C>) -> bool) {
        for (number, _) in self.asked.extract_if(.., |_, asked| is_moot(&asked.question)) {
            self.outputs.push_back(Output::GiveUp(number));
        }
    }

    fn end(&mut self, outcome: Result<(), String>) {
        self.stage = Stage::Ended;
        self.give_up(|_| true);
        self.later.clear();
        self.outputs.push_back(Output::End(outcome));
    }

    fn set_timer(&mut self) {
        let grace = self.certain.filter(|_| matches!(self.stage, Stage::Naming)).map(|since| since + self.grace());
        let answers = self.asked.values().map(|asked| asked.until);
        let next = answers.chain(self.later.iter().map(|(at, _)| *at)).chain(grace).min();
        if let Some(at) = next.filter(|at| self.timer != Some(*at)) {
            self.timer = Some(at);
            self.outputs.push_back(Output::SetTimer(at));
        }
    }
}

/// A number that looks like any other.
fn mix(seed: u64, place: u64) -> u64 {
    let mut word = seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests;

//! Fetching the result of one step, which is handed out whole: from one holder after the other, because it may be large.

use std::collections::VecDeque;
use std::time::Duration;

use starling_topology::{PeerId, Time};

/// When a holder is asked again for a result that it is fetching itself.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// For so many bytes more, an answer may take as much longer as a holder may take to begin it.
const PIECE_BYTES: u64 = 1 << 20;

/// What became of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultReply {
    /// The result, which can be right.
    Here,
    /// It has yet to get it itself.
    Later,
    /// It has none and will have none.
    NotHere,
    /// Something that no correct holder says, and why.
    Wrong(String),
    /// None: why.
    Failed(String),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The answer to the question with this number has begun, and will have so many bytes: no more than are possible.
    Begun {
        /// Of [`Output::Ask`].
        number: u64,
        /// How long it will be.
        bytes: u64,
    },
    /// What became of the question with this number. What it brought is kept until the outputs have been polled.
    Answered {
        /// Of [`Output::Ask`].
        number: u64,
        /// What came.
        answer: ResultReply,
    },
    /// The timer that was set last has come to its time.
    Expired,
}

/// What the driver does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Ask a holder.
    Ask {
        /// What to name the answer with.
        number: u64,
        /// Whom.
        holder: PeerId,
    },
    /// Nobody waits for the answer to this question any more.
    GiveUp(u64),
    /// Say [`Input::Expired`] then; replaces the timer set before.
    SetTimer(Time),
    /// For the log: a holder did not give what it was asked for.
    Fault {
        /// Which holder.
        holder: PeerId,
        /// What it did instead.
        reason: String,
        /// Whether no correct holder does so.
        is_wrong: bool,
    },
    /// It is over: the result came with the answer of this number, or why it can't be had.
    End(Result<u64, String>),
}

#[derive(Debug)]
struct Asked {
    number: u64,
    holder: PeerId,
    until: Time,
    /// Whether its answer has begun.
    begun: bool,
}

/// One result on its way.
///
/// A holder has a quarter of `max_stall` to begin its answer, and as much again for it and for each MiB of it, so none holds the
/// others up for longer by giving it byte by byte. Who is fetching the result itself is asked again, for half of `max_stall`. The first one
/// that does not begin to answer is asked once more after the others: an answer may get lost, and where only one holds the result, nobody else is
/// there to give it.
#[derive(Debug)]
pub struct ResultDownload {
    quarter: Duration,
    /// How long holders may say that they will have it, from when the first one does.
    patience: Duration,
    patient_until: Option<Time>,
    holders: VecDeque<PeerId>,
    /// Holders that will have it, to be asked again then.
    later: VecDeque<(Time, PeerId)>,
    /// Whether a holder that does not begin to answer is asked once more.
    may_repeat: bool,
    asked: Option<Asked>,
    questions: u64,
    timer: Option<Time>,
    reason: String,
    is_over: bool,
    outputs: VecDeque<Output>,
}

impl ResultDownload {
    /// Asks `holders`, in their order.
    pub fn new(now: Time, max_stall: Duration, holders: &[PeerId]) -> Self {
        let mut fetch = Self {
            quarter: max_stall / 4,
            patience: max_stall / 2,
            patient_until: None,
            holders: holders.iter().copied().collect(),
            later: VecDeque::new(),
            may_repeat: true,
            asked: None,
            questions: 0,
            timer: None,
            reason: "nobody holds it".to_owned(),
            is_over: false,
            outputs: VecDeque::new(),
        };
        fetch.go_on(now);
        fetch
    }

    /// What the driver does next; `None` until something happens.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Begun { number, bytes } => {
                let pieces = u32::try_from(bytes / PIECE_BYTES).unwrap_or(u32::MAX).saturating_add(1);
                let limit = self.quarter.saturating_mul(pieces);
                if let Some(asked) = self.asked.as_mut().filter(|asked| asked.number == number) {
                    (asked.until, asked.begun) = (now + limit, true);
                }
            }
            Input::Answered { number, answer } => {
                if let Some(asked) = self.asked.take_if(|asked| asked.number == number) {
                    self.take(now, &asked, answer);
                }
            }
            Input::Expired => {
                self.timer = None;
                if let Some(asked) = self.asked.take_if(|asked| asked.until <= now) {
                    if !asked.begun && std::mem::take(&mut self.may_repeat) {
                        self.holders.push_back(asked.holder);
                    }
                    self.outputs.push_back(Output::GiveUp(asked.number));
                    self.take(now, &asked, ResultReply::Failed("it did not answer in time".to_owned()));
                }
            }
        }
        self.go_on(now);
    }

    fn take(&mut self, now: Time, asked: &Asked, answer: ResultReply) {
        let holder = asked.holder;
        let (reason, is_wrong) = match answer {
            ResultReply::Here => {
                self.is_over = true;
                return self.outputs.push_back(Output::End(Ok(asked.number)));
            }
            ResultReply::Later => {
                let until = *self.patient_until.get_or_insert(now + self.patience);
                if now < until {
                    return self.later.push_back((now + ASK_AGAIN, holder));
                }
                ("it did not have it in time".to_owned(), false)
            }
            ResultReply::NotHere => ("it does not hold it".to_owned(), false),
            ResultReply::Wrong(reason) => (reason, true),
            ResultReply::Failed(reason) => (reason, false),
        };
        self.reason.clone_from(&reason);
        self.outputs.push_back(Output::Fault { holder, reason, is_wrong });
    }

    fn go_on(&mut self, now: Time) {
        if self.asked.is_none() && !self.is_over {
            let later = &mut self.later;
            let due = || later.pop_front_if(|(at, _)| *at <= now).map(|(_, holder)| holder);
            match self.holders.pop_front().or_else(due) {
                Some(holder) => {
                    self.questions += 1;
                    let number = self.questions;
                    self.asked = Some(Asked { number, holder, until: now + self.quarter, begun: false });
                    self.outputs.push_back(Output::Ask { number, holder });
                }
                None if self.later.is_empty() => {
                    self.is_over = true;
                    self.outputs.push_back(Output::End(Err(std::mem::take(&mut self.reason))));
                }
                None => {}
            }
        }
        let next = self.asked.as_ref().map(|asked| asked.until).or_else(|| self.later.front().map(|(at, _)| *at));
        if let Some(at) = next.filter(|at| !self.is_over && self.timer != Some(*at)) {
            self.timer = Some(at);
            self.outputs.push_back(Output::SetTimer(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const STALL: Duration = Duration::from_secs(8);
    const TRIP: Duration = Duration::from_millis(50);

    /// What a holder does.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Holder {
        Good,
        /// It gets it itself after that many milliseconds.
        Later(u64),
        AlwaysLater,
        NotHere,
        Mute,
        /// It answers the second question alone.
        Forgets,
        Dead,
        Lies,
        /// It begins an answer of so many bytes and gives it byte by byte.
        Trickles(u64),
    }

    const HOLDERS: [Holder; 9] = [
        Holder::Good,
        Holder::Later(700),
        Holder::AlwaysLater,
        Holder::NotHere,
        Holder::Mute,
        Holder::Dead,
        Holder::Lies,
        Holder::Trickles(9),
        Holder::Trickles(5 << 20),
    ];

    fn peer(at: usize) -> PeerId {
        PeerId([u8::try_from(at).expect("few"); 32])
    }

    /// Who handed it out, or why nobody did; after what time; and who has given what no correct holder gives.
    fn fetch(holders: &[Holder]) -> (Result<usize, String>, Duration, Vec<usize>) {
        let names: Vec<PeerId> = (0..holders.len()).map(peer).collect();
        let mut now = Time::ZERO;
        let mut machine = ResultDownload::new(now, STALL, &names);
        let mut arrivals: BTreeMap<Time, Input> = BTreeMap::new();
        let (mut timer, mut wrong, mut asked) = (None, Vec::new(), BTreeMap::new());
        for _ in 0..1_000 {
            while let Some(output) = machine.poll() {
                match output {
                    Output::Ask { number, holder } => {
                        let at = usize::from(holder.0[0]);
                        asked.insert(number, at);
                        let questions = asked.values().filter(|other| **other == at).count();
                        let then = now + TRIP;
                        let answer = match holders[at] {
                            Holder::Good => ResultReply::Here,
                            Holder::Later(millis) if then >= Time::ZERO + Duration::from_millis(millis) => {
                                ResultReply::Here
                            }
                            Holder::Later(_) | Holder::AlwaysLater => ResultReply::Later,
                            Holder::NotHere => ResultReply::NotHere,
                            Holder::Dead => ResultReply::Failed("refused".into()),
                            Holder::Lies => ResultReply::Wrong("of another step".into()),
                            Holder::Mute => continue,
                            Holder::Forgets if questions == 1 => continue,
                            Holder::Forgets => ResultReply::Here,
                            Holder::Trickles(bytes) => {
                                arrivals.insert(then, Input::Begun { number, bytes });
                                continue;
                            }
                        };
                        arrivals.insert(then, Input::Answered { number, answer });
                    }
                    Output::GiveUp(number) => assert!(asked.contains_key(&number)),
                    Output::SetTimer(at) => timer = Some(at),
                    Output::Fault { holder, is_wrong, .. } => wrong.extend(is_wrong.then(|| usize::from(holder.0[0]))),
                    Output::End(outcome) => return (outcome.map(|number| asked[&number]), now - Time::ZERO, wrong),
                }
            }
            match (arrivals.first_entry(), timer) {
                (Some(first), timer) if timer.is_none_or(|timer| *first.key() <= timer) => {
                    let (at, input) = first.remove_entry();
                    now = at;
                    machine.handle(now, input);
                }
                (_, at) => {
                    (now, timer) = (now.max(at.expect("something will happen")), None);
                    machine.handle(now, Input::Expired);
                }
            }
        }
        panic!("it lasts for ever: {machine:?}");
    }

    #[test]
    fn every_small_world_ends_with_the_result_of_whoever_has_it() {
        for first in HOLDERS {
            for second in HOLDERS {
                for third in HOLDERS {
                    let holders = [first, second, third];
                    let (outcome, took, wrong) = fetch(&holders);
                    let may_have = |holder: &Holder| matches!(holder, Holder::Good | Holder::Later(_));
                    match &outcome {
                        Ok(by) => assert!(may_have(&holders[*by]), "{holders:?}"),
                        Err(_) => assert!(!holders.iter().any(may_have), "{holders:?}"),
                    }
                    // Each has a quarter to begin, and that again for each MiB; and who says "later" half.
                    let limit = holders.iter().fold(STALL, |limit, holder| match holder {
                        Holder::Trickles(bytes) => {
                            limit + STALL / 4 * u32::try_from(bytes >> 20).expect("few") + STALL / 4
                        }
                        _ => limit + STALL / 4,
                    });
                    assert!(took <= limit, "{holders:?}: {took:?}");
                    assert!(wrong.iter().all(|at| holders[*at] == Holder::Lies), "{holders:?}");
                }
            }
        }
    }

    #[test]
    fn who_gives_it_byte_by_byte_is_given_up_and_the_next_is_asked() {
        let (outcome, took, _) = fetch(&[Holder::Trickles(9), Holder::Trickles(900), Holder::Good]);
        assert_eq!(outcome, Ok(2));
        assert!(took < STALL * 3 / 4, "{took:?}");
    }

    #[test]
    fn who_has_not_answered_is_asked_once_more_if_nobody_else_has_it() {
        let (outcome, took, _) = fetch(&[Holder::Forgets, Holder::NotHere]);
        assert_eq!(outcome, Ok(0));
        assert!(took < STALL / 2, "{took:?}");
        assert_eq!(fetch(&[Holder::Forgets, Holder::Good]).0, Ok(1), "the others come first");
        let (outcome, took, _) = fetch(&[Holder::Mute, Holder::Forgets]);
        assert!(outcome.is_err(), "of several one alone");
        assert!(took <= STALL * 3 / 4, "{took:?}");
    }

    /// The only holder can't be heard from here, but from others, which are fetching the result as well.
    #[test]
    fn who_is_fetching_it_too_is_asked_again_within_a_bound() {
        let (outcome, took, _) = fetch(&[Holder::Dead, Holder::Later(1_500), Holder::AlwaysLater]);
        assert_eq!(outcome, Ok(1));
        assert!(took < Duration::from_secs(2), "{took:?}");
        let (outcome, took, _) = fetch(&[Holder::Dead, Holder::AlwaysLater]);
        assert_eq!(outcome, Err("it did not have it in time".to_owned()));
        assert!(took < STALL, "{took:?}");
        assert_eq!(fetch(&[]).0, Err("nobody holds it".to_owned()));
    }
}

//! Catching up with the others: a result from a holder, a state from donors, by the production machines.

use std::collections::BTreeMap;
use std::rc::Rc;

use starling_engine::download::result_download;
use starling_engine::{Download, ResultDownload, download};
use starling_topology::{Generation, Lineage, PeerId, Time};

use super::{Effect, Peer};
use crate::steps::message::{Chunk, Message, Reply, Request, Snapshot};
use crate::steps::state::{ResultRecord, State};
use crate::sweep::canary::Sabotage;
use crate::verdict::invariants::WhatMostName;

/// A question on its way.
#[derive(Debug)]
pub(super) struct Asked {
    peer: PeerId,
    /// What its machine calls it.
    number: u64,
    wanted: Request,
}

/// A result on its way.
#[derive(Debug)]
pub(super) struct Fetch {
    number: u64,
    step: u64,
    lineage: Lineage,
    machine: ResultDownload,
    timer: Option<Time>,
}

/// A state on its way.
#[derive(Debug)]
pub(super) struct Loading {
    number: u64,
    generation: Generation,
    step: u64,
    lineage: Lineage,
    machine: Download<Snapshot, u32>,
    timer: Option<Time>,
    named: WhatMostName,
    /// What is being loaded.
    of: Option<Snapshot>,
    chunks: BTreeMap<u32, Chunk>,
    state: Option<Rc<State>>,
}

impl Peer {
    pub(super) fn fetch_result(&mut self, now: Time, number: u64, (step, lineage): (u64, Lineage), from: &[PeerId]) {
        self.asked.retain(|_, asked| !matches!(asked.wanted, Request::Result(_)));
        let machine = ResultDownload::new(now, self.max_stall, from);
        self.fetch = Some(Fetch { number, step, lineage, machine, timer: None });
        self.go_on_fetching(now, None);
    }

    pub(super) fn begin_download(
        &mut self,
        now: Time,
        number: u64,
        generation: Generation,
        (step, lineage): (u64, Lineage),
        from: &[PeerId],
    ) {
        self.reached = None;
        self.syncs = Some(number);
        self.asked.retain(|_, asked| matches!(asked.wanted, Request::Result(_)));
        let terms = download::DownloadConfig::of_state(self.max_stall);
        let seed = u64::from(self.name.0[0]) ^ (number << 8);
        let mut machine = Download::new(now, terms, from, seed);
        if let Some(Sabotage::Machine(flaw)) = self.sabotage {
            machine.plant(flaw);
        }
        self.download = Some(Loading {
            number,
            generation,
            step,
            lineage,
            machine,
            timer: None,
            named: WhatMostName::default(),
            of: None,
            chunks: BTreeMap::new(),
            state: None,
        });
        self.go_on_downloading(now, None);
    }

    /// An answer has come, or has begun to.
    pub(super) fn take_reply(&mut self, now: Time, from: PeerId, question: u64, reply: Reply) {
        let Some(asked) = self.asked.get(&question).filter(|asked| asked.peer == from) else { return };
        let (number, wanted) = (asked.number, asked.wanted);
        if let Reply::Begins(bytes) = reply {
            if let (Request::Result(_), Some(fetch)) = (wanted, &mut self.fetch) {
                fetch.machine.handle(now, result_download::Input::Begun { number, bytes });
                self.go_on_fetching(now, None);
            }
            return;
        }
        self.asked.remove(&question);
        self.take_answer(now, from, (number, wanted), Ok(reply));
    }

    /// The connection to somebody has closed: what it was asked for does not come.
    pub(super) fn asked_is_gone(&mut self, now: Time, peer: PeerId) {
        for (_, asked) in self.asked.extract_if(.., |_, asked| asked.peer == peer).collect::<Vec<_>>() {
            self.take_answer(now, peer, (asked.number, asked.wanted), Err("the connection closed".to_owned()));
        }
    }

    fn take_answer(&mut self, now: Time, from: PeerId, (number, wanted): (u64, Request), reply: Result<Reply, String>) {
        if let Request::Result(_) = wanted {
            use result_download::ResultReply;
            let after = self.steps.progress().lineage;
            let Some(fetch) = &mut self.fetch else { return };
            let fits = |record: &ResultRecord| {
                (record.step, record.lineage, record.after) == (fetch.step, fetch.lineage, after)
            };
            let (answer, record) = match reply {
                Ok(Reply::Result(record)) if fits(&record) => (ResultReply::Here, Some(record)),
                Ok(Reply::Later) => (ResultReply::Later, None),
                Ok(Reply::NotHeld) => (ResultReply::NotHere, None),
                Ok(Reply::Result(_) | Reply::Snapshot(_) | Reply::Chunk(_) | Reply::Begins(_)) => {
                    (ResultReply::Wrong("it sent another result".to_owned()), None)
                }
                Err(reason) => (ResultReply::Failed(reason), None),
            };
            fetch.machine.handle(now, result_download::Input::Answered { number, answer });
            return self.go_on_fetching(now, record);
        }
        use download::DownloadReply;
        let Some(download) = &mut self.download else { return };
        let is_wanted = |offered: &Snapshot| (offered.step, offered.lineage) == (download.step, download.lineage);
        let (answer, chunk) = match (wanted, reply) {
            (Request::Snapshot(..), Ok(Reply::Snapshot(offered))) if is_wanted(&offered) => {
                download.named.names(from, offered);
                (DownloadReply::Manifest(offered), None)
            }
            (Request::Chunk(of, index), Ok(Reply::Chunk(chunk))) => {
                (DownloadReply::Chunk { fits: chunk.intact && (chunk.of, chunk.index) == (of, index) }, Some(chunk))
            }
            (_, Ok(Reply::Later)) => (DownloadReply::Later, None),
            (_, Ok(Reply::NotHeld)) => (DownloadReply::NotHere, None),
            (_, Ok(Reply::Snapshot(_) | Reply::Chunk(_) | Reply::Result(_) | Reply::Begins(_))) => {
                (DownloadReply::Wrong("it named another state".to_owned()), None)
            }
            (_, Err(reason)) => (DownloadReply::Failed(reason), None),
        };
        download.machine.handle(now, download::Input::Answered { number, answer });
        self.go_on_downloading(now, chunk);
    }

    /// An alarm rings.
    pub(super) fn look_at_timers(&mut self, now: Time) {
        let is_due = |at: &mut Time| *at <= now;
        if let Some(fetch) = self.fetch.as_mut().filter(|fetch| fetch.timer.is_some_and(|at| at <= now)) {
            fetch.timer = None;
            fetch.machine.handle(now, result_download::Input::Expired);
            self.go_on_fetching(now, None);
        }
        if let Some(download) = &mut self.download
            && download.timer.take_if(is_due).is_some()
        {
            download.machine.handle(now, download::Input::Expired);
            self.go_on_downloading(now, None);
        }
        self.hand_out(now);
        self.look_at_carrier_timer(now);
    }

    fn ask(&mut self, peer: PeerId, number: u64, wanted: Request) {
        self.questions += 1;
        self.asked.insert(self.questions, Asked { peer, number, wanted });
        self.send(peer, Message::Asked(self.questions, wanted));
    }

    /// Does what the machine of the result asks for. `came` came with the answer that it has just taken.
    fn go_on_fetching(&mut self, now: Time, came: Option<Rc<ResultRecord>>) {
        use result_download::Output;
        while let Some((fetch, output)) =
            self.fetch.as_mut().and_then(|it| it.machine.poll().map(|output| (it, output)))
        {
            match output {
                Output::Ask { number, holder } => {
                    let step = fetch.step;
                    self.ask(holder, number, Request::Result(step));
                }
                Output::GiveUp(number) => {
                    self.asked.retain(|_, asked| asked.number != number || !matches!(asked.wanted, Request::Result(_)))
                }
                Output::SetTimer(at) => {
                    fetch.timer = Some(at);
                    self.effects.push(Effect::Alarm(at));
                }
                Output::Fault { .. } => {}
                Output::End(outcome) => {
                    let number = fetch.number;
                    self.fetch = None;
                    let result = outcome.and_then(|_| came.clone().ok_or_else(|| "it did not come".to_owned()));
                    if let (Ok(record), Some(view), true) = (&result, self.view_id(), self.member.is_waiting())
                        && record.step == self.step() + 1
                    {
                        self.committed(record, view);
                    }
                    let action = self.member.fetched(&mut self.steps, number, result);
                    action.into_iter().for_each(|action| self.follow(now, action));
                    self.go_on(now);
                }
            }
        }
    }

    /// Does what the machine of the state asks for. `came` came with the answer that it has just taken.
    fn go_on_downloading(&mut self, now: Time, came: Option<Chunk>) {
        use download::{DownloadRequest, Input, Output};
        while let Some((load, output)) =
            self.download.as_mut().and_then(|it| it.machine.poll().map(|output| (it, output)))
        {
            match output {
                Output::Ask { number, donor, question } => {
                    let wanted = match (question, load.of) {
                        (DownloadRequest::Chunk(index), Some(of)) => Request::Chunk(of, index),
                        (DownloadRequest::Chunk(_) | DownloadRequest::Manifest, _) => {
                            Request::Snapshot(load.generation, load.step)
                        }
                    };
                    self.ask(donor, number, wanted);
                }
                Output::GiveUp(number) => {
                    self.asked.retain(|_, asked| asked.number != number || matches!(asked.wanted, Request::Result(_)))
                }
                Output::SetTimer(at) => {
                    load.timer = Some(at);
                    self.effects.push(Effect::Alarm(at));
                }
                Output::Load(of) => {
                    load.of = Some(of);
                    load.chunks.clear();
                    load.machine.handle(now, Input::Lacks((0..of.chunks).collect()));
                }
                Output::Take(_) => {
                    load.chunks.extend(came.clone().map(|chunk| (chunk.index, chunk)));
                    self.effects.push(Effect::Downloads);
                }
                Output::Assemble => {
                    load.state = load.assemble();
                    let input = match &load.state {
                        Some(_) => Input::Whole,
                        None => Input::Spoiled("it is of another model".to_owned()),
                    };
                    load.machine.handle(now, input);
                    let held = load.of.map_or(Ok(()), |of| load.named.loaded(of));
                    self.effects.extend(held.err().map(Effect::Broken));
                }
                Output::Differ(_) | Output::Fault { .. } => {}
                Output::End(outcome) => {
                    let (number, state) = (load.number, load.state.take());
                    self.download = None;
                    let state = outcome.and_then(|()| state.ok_or_else(|| "it did not come".to_owned()));
                    let action = self.member.arrived(&mut self.steps, number, state);
                    action.into_iter().for_each(|action| self.follow(now, action));
                    self.go_on(now);
                }
            }
        }
    }
}

impl Loading {
    /// What the chunks come to; `None` if that is not a state of the run.
    fn assemble(&self) -> Option<Rc<State>> {
        let first = self.chunks.values().next()?;
        let mut state = Rc::clone(&first.state);
        if state.digest != first.of.digest {
            return None;
        }
        if self.chunks.values().any(|chunk| !chunk.intact) {
            Rc::make_mut(&mut state).digest.0[0] ^= 1;
        }
        Some(state)
    }
}

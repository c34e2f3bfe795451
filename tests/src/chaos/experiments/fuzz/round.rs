//! One round: processes to which a schedule happens, and what becomes of them.

use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::disk::Disk;
use super::findings::Findings;
use super::judge::Judge;
use super::place::{Circumstances, Place};
use super::schedule::{self, Move, Schedule, Way};
use crate::processes::peer::tied;
use crate::{Feed, Peer, PeerOptions, Word, starling};

/// How long a process may take to start, on a machine that does other work, besides what the run promises.
const STARTING: Duration = Duration::from_secs(40);
/// How many of its longest stalls a healed run may take to come together.
const STALLS: u32 = 3;
/// How often a process is started again that had a reason to end while all came together.
const MAX_TRIES: u32 = 10;
/// How soon it is.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// What Ctrl-C sends.
const SIGINT: i32 = 2;
/// The longest that something that is due goes unnoticed.
const GLANCE: Duration = Duration::from_millis(100);

/// The round as it happens.
pub(super) struct Round<'a> {
    schedule: &'a Schedule,
    folder: &'a Path,
    mounts: bool,
    places: Vec<Place>,
    feed: Feed,
    judge: Judge,
    findings: Findings,
    began: Instant,
    story: fs::File,
    is_healing: bool,
    is_leaving: bool,
}

impl<'a> Round<'a> {
    /// One in an empty folder.
    pub(super) fn new(schedule: &'a Schedule, folder: &'a Path, mounts: bool) -> Result<Self> {
        Ok(Self {
            schedule,
            folder,
            mounts,
            places: Vec::new(),
            feed: Feed::default(),
            judge: Judge::default(),
            findings: Findings::default(),
            began: Instant::now(),
            story: fs::File::create(folder.join("story.txt"))?,
            is_healing: false,
            is_leaving: false,
        })
    }

    /// Does all that is to be done.
    ///
    /// # Errors
    /// If it can't be done here. An offence of the run is no error.
    pub(super) fn run(mut self) -> Result<Findings> {
        self.found()?;
        for (pause, step) in &self.schedule.moves {
            self.go_on_until(Instant::now() + *pause)?;
            self.say(step);
            self.apply(step)?;
        }
        if self.heal()? {
            self.leave()?;
        }
        self.bury_all();
        self.audit()?;
        self.findings.lost_stable.append(&mut self.judge.lost);
        self.findings.divergences.append(&mut self.judge.diverged);
        self.findings.unjudged.append(&mut self.judge.unjudged);
        let is_kept = self.findings.offences().iter().any(|(_, found)| !found.is_empty());
        for place in &mut self.places {
            place.disk.unmount(is_kept)?;
        }
        self.findings.step = self.findings.step.max(self.judge.step());
        Ok(self.findings)
    }

    /// Starts the first members.
    fn found(&mut self) -> Result<()> {
        self.add(None)?;
        self.start(0, &Way::Same)?;
        if !self.wait(STARTING, |round| round.places[0].ticket.is_some())? {
            self.findings.hangs.push("the founder prints no ticket".to_owned());
            return Ok(());
        }
        for _ in 1..self.schedule.members {
            self.join()?;
        }
        if self.schedule.waits_for_all {
            let all: Vec<usize> = (0..self.schedule.members).collect();
            let limit = STARTING + STALLS * self.schedule.max_stall;
            if !self.wait(limit, |round| round.judge.together(&all).is_ok())? {
                let views = self.judge.together(&all).err().unwrap_or_default();
                self.findings.hangs.push(format!("the first members don't come together: {views}"));
            }
            self.say("all first members are there");
        }
        Ok(())
    }

    fn add(&mut self, through: Option<String>) -> Result<usize> {
        let number = self.places.len();
        self.places.push(Place::new(Disk::new(self.folder, number, self.mounts)?, through)?);
        Ok(number)
    }

    /// A new member joins through the first one that it knows of, as it was told when it was set up.
    fn join(&mut self) -> Result<()> {
        let ticket = self.ticket_besides(usize::MAX).context("invariant: the founder has printed a ticket")?;
        let place = self.add(Some(ticket))?;
        self.start(place, &Way::Same)
    }

    /// The ticket of somebody else: one who is there and a member, if there is one.
    fn ticket_besides(&self, place: usize) -> Option<String> {
        let others = self.places.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, other)| other);
        let rank = |other: &&Place| (other.was_member, other.peer.is_some() && other.goes_on_at.is_none());
        // The first of the best.
        let best = others.filter(|other| other.ticket.is_some()).rev().max_by_key(rank);
        best.and_then(|other| other.ticket.clone())
    }

    /// Starts a process in a place, by the way that leads anywhere: what has never taken part can only join.
    fn start(&mut self, number: usize, way: &Way) -> Result<()> {
        let Schedule { model, checkpoint_every, max_stall, state_rate, .. } = self.schedule;
        let rate = state_rate.map(|rate| format!(" --state-rate {rate}")).unwrap_or_default();
        let place = &self.places[number];
        let own = format!("--checkpoint-every {checkpoint_every}{rate}");
        let run = format!(
            "{own} --model {model} --steps 100000000 --max-stall-ms {} --fork-after never",
            max_stall.as_millis()
        );
        let through = match way {
            Way::Resume if place.was_member => None,
            Way::Join(other) => {
                let named = self.places.get(*other).and_then(|other| other.ticket.clone());
                named.or_else(|| self.ticket_besides(number)).or_else(|| place.through.clone())
            }
            Way::Same | Way::Resume => place.through.clone(),
        };
        let more = if *way == Way::Resume && through.is_none() { " --resume" } else { "" };
        let options = PeerOptions {
            listen: Some(place.listen.clone()),
            prefix: tied([]),
            ear: Some(self.feed.ear(number, place.life)),
            ..PeerOptions::flags(&through.as_ref().map_or_else(|| format!("{run}{more}"), |_| own))
        };
        let options = options.with("--audit", self.audit_of(number));
        let dir = place.disk.dir();
        let peer = match &through {
            Some(ticket) => Peer::join_in(dir, ticket, &options),
            None => Peer::run_in(dir, &options),
        };
        let place = &mut self.places[number];
        let bad_disk = place.mended_at.is_some();
        place.now = Circumstances { bad_disk, damaged: place.now.damaged, ..Circumstances::default() };
        (place.peer, place.retry_at) = (Some(peer), None);
        self.judge.start(number);
        Ok(())
    }

    fn audit_of(&self, number: usize) -> PathBuf {
        self.folder.join(format!("audit-{number}.jsonl"))
    }

    fn apply(&mut self, step: &Move) -> Result<()> {
        match step {
            Move::Kill(places) => {
                // All are gone before anybody can notice.
                places.iter().for_each(|place| self.places[*place].send_kill());
                places.iter().for_each(|place| self.bury(*place));
            }
            Move::Stop(place, time) => self.places[*place].stop(Instant::now() + *time),
            Move::Leave(place) => self.places[*place].tell_to_leave(),
            Move::Start { place, disk, way } => {
                self.await_end(*place)?;
                let is_ready = self.change(*place, disk)?;
                if self.places[*place].peer.is_none() {
                    self.start(*place, if is_ready { way } else { &Way::Same })?;
                }
            }
            Move::Join(count) => (0..*count).try_for_each(|_| self.join())?,
            Move::Copy(place) => self.places[*place].copy()?,
            Move::Fill(number, time) => self.spoil(*number, *time, |disk| disk.fill().map(|()| true))?,
            Move::ReadOnly(number, time) => self.spoil(*number, *time, |disk| disk.protect().map(|()| true))?,
            Move::Freeze(number, time) => self.spoil(*number, *time, |disk| disk.freeze())?,
        }
        Ok(())
    }

    /// Has a disk be bad for a while, as `how` does, which says whether it could.
    fn spoil(&mut self, number: usize, time: Duration, how: impl FnOnce(&mut Disk) -> Result<bool>) -> Result<()> {
        let place = &mut self.places[number];
        if !place.disk.is_mounted() || place.mended_at.is_some() || !how(&mut place.disk)? {
            self.say("  left out: it has no such file system of its own, or a bad one already");
            return Ok(());
        }
        place.mended_at = Some(Instant::now() + time);
        place.now.bad_disk = true;
        Ok(())
    }

    /// Changes a disk that nobody uses. Returns whether what is there can still be come back with.
    fn change(&mut self, number: usize, disk: &schedule::Disk) -> Result<bool> {
        if self.places[number].peer.is_some() {
            return Ok(true);
        }
        if *disk != schedule::Disk::Kept {
            self.places[number].mend()?;
        }
        match disk {
            schedule::Disk::Kept => return Ok(true),
            // Then only the user could make them go on, with --alone.
            schedule::Disk::Wiped | schedule::Disk::Flipped { .. } if !self.judge.can_lose(number) => {
                self.say("  its disk is kept: the others are no majority without it");
            }
            schedule::Disk::Wiped => {
                self.wipe(number)?;
                return Ok(false);
            }
            schedule::Disk::Restored if self.places[number].disk.has_copy() => {
                self.places[number].disk.restore()?;
                self.judge.set_back(number);
            }
            schedule::Disk::Restored => self.say("  not restored: there is no copy"),
            schedule::Disk::Flipped { file, bit } => {
                if let Some(flipped) = self.places[number].disk.flip(*file, *bit)? {
                    self.say(format!("  {flipped}"));
                    self.judge.damage(number);
                    self.places[number].now.damaged = true;
                }
            }
        }
        Ok(true)
    }

    fn wipe(&mut self, number: usize) -> Result<()> {
        self.places[number].disk.wipe()?;
        self.judge.damage(number);
        self.places[number].now.damaged = false;
        self.forget(number);
        Ok(())
    }

    /// A place whose disk is empty is a new machine: it joins through somebody who is there.
    fn forget(&mut self, number: usize) {
        let ticket = self.ticket_besides(number);
        let place = &mut self.places[number];
        place.was_member = false;
        place.through = ticket.or_else(|| place.through.take());
    }

    /// Waits for the end of a process that was told to leave.
    fn await_end(&mut self, number: usize) -> Result<()> {
        if !self.places[number].now.leaves || self.places[number].peer.is_none() {
            return Ok(());
        }
        let limit = STARTING + STALLS * self.schedule.max_stall;
        if !self.wait(limit, |round| round.places[number].peer.is_none())? {
            self.findings.hangs.push(format!("{number} was told to leave and is still there after {limit:?}"));
            self.kill(number);
        }
        Ok(())
    }

    /// Mends all, starts who is missing, and waits until all are together again. Returns whether they are.
    fn heal(&mut self) -> Result<bool> {
        self.say("all is mended");
        self.is_healing = true;
        for number in 0..self.places.len() {
            self.places[number].mend()?;
            self.places[number].go_on();
        }
        for number in 0..self.places.len() {
            self.await_end(number)?;
            if self.places[number].peer.is_none() {
                self.start(number, &Way::Same)?;
            }
        }
        let all: Vec<usize> = (0..self.places.len()).collect();
        let healed = Instant::now();
        let limit = STARTING + STALLS * self.schedule.max_stall;
        if !self.wait(limit, |round| round.judge.together(&all).is_ok())? {
            let views = self.judge.together(&all).err().unwrap_or_default();
            self.findings.hangs.push(format!("not together {limit:?} after all was mended: {views}"));
            return Ok(false);
        }
        self.say(format!("all are together after {:.1?}", healed.elapsed()));
        let from = self.judge.step().max(self.judge.highest().unwrap_or_default());
        if !self.wait(limit, |round| round.judge.settled(&all, from).is_ok())? {
            let lack = self.judge.settled(&all, from).err().unwrap_or_default();
            self.findings.hangs.push(format!("{limit:?} after all came together: {lack}"));
            return Ok(false);
        }
        self.say("all have a stable checkpoint in common");
        Ok(true)
    }

    /// All leave in order.
    fn leave(&mut self) -> Result<()> {
        self.findings.step = self.judge.step();
        (self.is_healing, self.is_leaving) = (false, true);
        if self.schedule.leaves_at_once {
            (0..self.places.len()).for_each(|number| self.places[number].tell_to_leave());
        }
        for number in 0..self.places.len() {
            self.places[number].tell_to_leave();
            self.await_end(number)?;
        }
        Ok(())
    }

    /// Kills a process and waits for its end.
    fn kill(&mut self, number: usize) {
        self.places[number].send_kill();
        self.bury(number);
    }

    fn bury_all(&mut self) {
        (0..self.places.len()).for_each(|number| self.kill(number));
    }

    /// Takes down how a process ended.
    fn bury(&mut self, number: usize) {
        let Some(peer) = self.places[number].peer.take() else { return };
        let outcome = peer.finish();
        // What it said before counts.
        while let Some(heard) = self.feed.next(Instant::now()) {
            self.hear(heard.slot, heard.life, heard.word);
        }
        let place = &mut self.places[number];
        let name = format!("{number}-{}", place.life);
        (place.life, place.goes_on_at) = (place.life + 1, None);
        let now = place.now;
        let events: String =
            outcome.events.iter().map(|(at, event)| format!("{:.3} {event}\n", at.as_secs_f64())).collect();
        // They are there to look at; the round does not need them.
        let _ = fs::write(self.folder.join(format!("log-{name}")), &outcome.stderr);
        let _ = fs::write(self.folder.join(format!("events-{name}")), events);
        let error = outcome.stderr.lines().rfind(|line| line.starts_with("error: ")).unwrap_or_default();
        if outcome.stderr.contains("panicked") {
            self.findings.unexpected_exits.push(format!("{number} panicked (log-{name})"));
        } else if !now.killed {
            self.judge_end(number, now, outcome.status, error);
        }
    }

    fn judge_end(&mut self, number: usize, now: Circumstances, status: ExitStatus, error: &str) {
        self.say(format!("{number} ended with {status}: {error}"));
        // Before it can hear of a signal, that ends it.
        let is_interrupted = status.signal() == Some(SIGINT) && !now.was_member;
        if now.leaves && (status.success() || is_interrupted) {
            return;
        }
        // Its user starts those first that may hold more.
        let is_behind = error.contains("they may hold one that all had signed");
        let lacks_others = self.places.iter().enumerate().any(|(other, place)| other != number && place.peer.is_none());
        let is_explained = now.explain(error) || (is_behind && lacks_others);
        if status.code() != Some(1) || !is_explained || self.is_leaving {
            self.findings.unexpected_exits.push(format!("{number} ended with {status}: {error}"));
        }
        if self.is_healing {
            self.places[number].retry_at = Some(Instant::now() + RETRY_AFTER);
        }
    }

    /// Starts one again that had a reason to end, as a person would who reads it.
    fn retry(&mut self, number: usize) -> Result<()> {
        let place = &mut self.places[number];
        place.retry_at = None;
        place.tries += 1;
        if place.tries > MAX_TRIES || place.peer.is_some() {
            return Ok(());
        }
        if place.now.damaged {
            self.say(format!("{number} begins anew: its disk is damaged"));
            self.wipe(number)?;
        }
        if !self.places[number].was_member {
            self.forget(number);
        }
        self.say(format!("start {number} again"));
        self.start(number, &Way::Same)
    }

    /// Goes on until then.
    fn go_on_until(&mut self, until: Instant) -> Result<()> {
        self.wait(until.saturating_duration_since(Instant::now()), |_| false)?;
        Ok(())
    }

    /// Goes on until something is so; returns whether it is, within `limit`.
    fn wait(&mut self, limit: Duration, is_so: impl Fn(&Self) -> bool) -> Result<bool> {
        let deadline = Instant::now() + limit;
        loop {
            if is_so(self) {
                return Ok(true);
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(false);
            }
            let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            for number in 0..self.places.len() {
                if is_due(self.places[number].goes_on_at) {
                    self.places[number].go_on();
                }
                if is_due(self.places[number].mended_at) {
                    self.places[number].mend()?;
                }
                if is_due(self.places[number].retry_at) {
                    self.retry(number)?;
                }
            }
            let due = self.places.iter().flat_map(|place| [place.goes_on_at, place.mended_at]).flatten().min();
            let until = deadline.min(now + GLANCE).min(due.unwrap_or(deadline));
            if let Some(heard) = self.feed.next(until) {
                self.hear(heard.slot, heard.life, heard.word);
            }
        }
    }

    fn hear(&mut self, number: usize, life: u32, word: Word) {
        let place = &mut self.places[number];
        if place.life != life {
            return;
        }
        let event = match word {
            Word::Said(event) => event,
            Word::Ended => return self.bury(number),
        };
        match event["event"].as_str().unwrap_or_default() {
            "listening" | "invitation" => place.ticket = event["ticket"].as_str().map(str::to_owned),
            "view" => (place.was_member, place.now.was_member) = (true, true),
            _ => {}
        }
        self.judge.hear(number, &event);
    }

    fn audit(&mut self) -> Result<()> {
        let files = (0..self.places.len()).map(|number| self.audit_of(number)).filter(|file| file.is_file());
        let output = starling(self.folder).args(["audit", "--json"]).args(files).output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stderr, output.stdout].map(|said| String::from_utf8_lossy(&said).trim().to_owned());
        let text = format!("audit: {}", said.join(" "));
        if self.judge.is_damaged() {
            self.findings.unjudged.push(text)
        } else {
            self.findings.audits_failed.push(text)
        }
        Ok(())
    }

    /// Takes down what happens and when.
    fn say(&mut self, text: impl Display) {
        let line = format!("{:7.2} s  step {:6}  {text}\n", self.began.elapsed().as_secs_f64(), self.judge.step());
        // It is there to look at; the round does not need it.
        let _ = self.story.write_all(line.as_bytes());
    }
}

//! All processes of one run on this machine.

mod starting;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use self::starting::new_dir;
use super::ProgressProbe;
use super::slot::{Said, Slot};
use crate::networks::ports::free_port;
use crate::{Feed, Lan, Peer, Word, starling};

/// How long a run may take to have all its first members. Generous: the machine is shared.
const FOUNDING_LIMIT: Duration = Duration::from_secs(120);
/// Steps that all take before anything happens to them.
const STEPS_TOGETHER: u64 = 200;
/// How long a process may take to leave.
const LEAVING_LIMIT: Duration = Duration::from_secs(60);
/// Where hosts of a network of their own listen.
const PORT: u16 = 4001;
/// Lines of a failed process's log that are shown.
const LAST_LINES: usize = 5;

/// How a fleet is set up.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How many processes.
    pub peers: usize,
    /// Flags of `starling run`: what is trained, and how long a peer may stall it.
    pub run: String,
    /// Flags of every process.
    pub machine: String,
    /// Seed of all that happens by chance.
    pub seed: u64,
    /// Whether each process has a host of its own, in a network whose links can be cut.
    pub hosts: bool,
    /// Where to keep what the processes say and log.
    pub logs: Option<PathBuf>,
}

/// Processes in numbered places. Whoever drives an experiment takes their events from [`pump`](Self::pump).
#[derive(Debug)]
pub struct Fleet {
    plan: Plan,
    slots: Vec<Slot>,
    feed: Feed,
    lan: Option<Lan>,
    /// By how much each batch takes longer.
    longer: Option<Duration>,
    folder: TempDir,
    began: Instant,
    progress_probe: ProgressProbe,
    /// The digest after each step at which checkpoints were saved, and who said so.
    saved: BTreeMap<u64, (String, BTreeSet<usize>)>,
    broken: Vec<String>,
    has_diverged: bool,
    may_fork: bool,
    is_going_back: bool,
    is_leaving: bool,
}

impl Fleet {
    /// Founds a run and waits until all processes are members that take steps.
    ///
    /// # Errors
    /// If they don't in time, or if the network that they need can't be made.
    pub fn found(plan: Plan) -> Result<Self> {
        Self::empty(plan)?.begin()
    }

    /// The same, where each batch that a process computes takes so much longer: then processes that share a processor are each as fast as
    /// alone.
    ///
    /// # Errors
    /// As [`found`](Self::found).
    pub fn found_slow(plan: Plan, longer: Duration) -> Result<Self> {
        let mut fleet = Self::empty(plan)?;
        fleet.longer = Some(longer);
        fleet.begin()
    }

    fn begin(self) -> Result<Self> {
        let mut fleet = self;
        for slot in 0..fleet.plan.peers {
            fleet.start(slot)?;
        }
        let all = fleet.plan.peers;
        fleet.wait(&format!("{all} members"), FOUNDING_LIMIT, |fleet| fleet.are_full(all))?;
        // What each did alone is in files by then, so that it can be proved even if it is killed at once.
        let together = fleet.progress_probe.step() + STEPS_TOGETHER;
        fleet.wait("first steps of all", FOUNDING_LIMIT, |fleet| fleet.progress_probe.step() >= together)?;
        fleet.say("all are members");
        Ok(fleet)
    }

    /// Places without processes.
    ///
    /// # Errors
    /// If the network that they need can't be made.
    pub fn empty(plan: Plan) -> Result<Self> {
        let lan = if plan.hosts { Some(Lan::new(plan.peers)?) } else { None };
        let listen = |number: usize| match &lan {
            Some(lan) => Ok(format!("/ip4/{}/tcp/{PORT}", lan.host(number).address)),
            None => free_port().map(|port| format!("/ip4/127.0.0.1/tcp/{port}")),
        };
        let folder = TempDir::with_prefix("starling-chaos-")?;
        let slot = |number| {
            Ok(Slot {
                dir: new_dir()?,
                listen: listen(number)?,
                peer: None,
                life: 0,
                through: None,
                is_stopped: false,
                said: Said::default(),
                audits: Vec::new(),
            })
        };
        let slots = (0..plan.peers).map(slot).collect::<Result<_>>()?;
        // Processes work in folders of their own.
        let whole = |logs: PathBuf| {
            std::fs::create_dir_all(&logs)?;
            logs.canonicalize()
        };
        let logs = plan.logs.clone().map(whole).transpose().context("can't make the folder for logs")?;
        Ok(Self {
            plan: Plan { logs, ..plan },
            slots,
            feed: Feed::default(),
            lan,
            longer: None,
            folder,
            began: Instant::now(),
            progress_probe: ProgressProbe::new(),
            saved: BTreeMap::new(),
            broken: Vec::new(),
            has_diverged: false,
            may_fork: false,
            is_going_back: false,
            is_leaving: false,
        })
    }

    /// Kills a process with SIGKILL; nobody may have the place.
    pub fn kill(&mut self, number: usize) {
        if let Some(peer) = self.slots[number].peer.take() {
            peer.signal("KILL");
            self.bury(number, peer);
        }
    }

    /// Stops a process with SIGSTOP.
    pub fn stop(&mut self, number: usize) {
        if let Some(peer) = &self.slots[number].peer {
            peer.signal("STOP");
            self.slots[number].is_stopped = true;
        }
    }

    /// Lets a stopped process go on.
    pub fn cont(&mut self, number: usize) {
        if let Some(peer) = &self.slots[number].peer {
            peer.signal("CONT");
            self.slots[number].is_stopped = false;
        }
    }

    /// Takes in what was said until then, at most one event, which is returned with its speaker.
    pub fn pump(&mut self, until: Instant) -> Option<(usize, Value)> {
        loop {
            let heard = self.feed.next(until)?;
            if heard.life != self.slots[heard.slot].life {
                continue;
            }
            let event = match heard.word {
                Word::Said(event) => event,
                Word::Ended => {
                    self.ended(heard.slot);
                    return Some((heard.slot, Value::Null));
                }
            };
            self.slots[heard.slot].said.take(&event);
            match event["event"].as_str().unwrap_or_default() {
                "progress" => self.progress_probe.beat(self.slots[heard.slot].said.step, heard.at),
                "saved" => self.compare(heard.slot, &event),
                _ => {}
            }
            return Some((heard.slot, event));
        }
    }

    /// Goes on until then.
    pub fn run_until(&mut self, until: Instant) {
        while self.pump(until).is_some() {}
    }

    /// Goes on until something is so.
    ///
    /// # Errors
    /// If it is not within `limit`.
    pub fn wait(&mut self, what: &str, limit: Duration, is_so: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !is_so(self) {
            let nobody_left = self.slots.iter().all(|slot| slot.peer.is_none());
            if nobody_left || self.pump(deadline).is_none() {
                let limit = if nobody_left { "before all ended".to_owned() } else { format!("within {limit:?}") };
                bail!("no {what} {limit}; {}", self.describe());
            }
        }
        Ok(())
    }

    /// Lets all processes that are there come together: each becomes a full member, and all save a checkpoint after the
    /// same step. Returns that step.
    ///
    /// # Errors
    /// If they don't within `limit`.
    pub fn settle(&mut self, limit: Duration) -> Result<u64> {
        let awake = (0..self.slots.len()).filter(|slot| self.slots[*slot].is_awake()).count();
        self.wait(&format!("{awake} members at the end"), limit, |fleet| fleet.are_full(awake))?;
        let from = self.progress_probe.step();
        let common = move |fleet: &Self| {
            let later = fleet.saved.range(from..);
            later.filter(|(_, (_, savers))| savers.len() == awake).map(|(step, _)| *step).next()
        };
        self.wait("checkpoint that all saved", limit, |fleet| common(fleet).is_some())?;
        let step = common(self).context("it was there just now")?;
        self.say(&format!("settled: all {awake} hold the same digest after step {step}"));
        Ok(step)
    }

    /// Ends all processes in order.
    ///
    /// # Errors
    /// If one does not end.
    pub fn leave(&mut self) -> Result<()> {
        self.is_leaving = true;
        for slot in &self.slots {
            if let Some(peer) = &slot.peer {
                peer.signal("TERM");
            }
        }
        self.wait("end of all processes", LEAVING_LIMIT, |fleet| fleet.slots.iter().all(|slot| slot.peer.is_none()))
    }

    /// Puts the audit files of all lives to `starling audit`, and returns its report.
    ///
    /// # Errors
    /// If it can't be run or read. Offences are no error; they are in the report.
    pub fn audit(&self) -> Result<(bool, Value)> {
        let files = self.slots.iter().flat_map(|slot| &slot.audits).filter(|file| file.is_file());
        let output = starling(self.folder.path()).args(["audit", "--json"]).args(files).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().last().with_context(|| {
            format!("`starling audit` said nothing: {}", String::from_utf8_lossy(&output.stderr).trim())
        })?;
        Ok((output.status.success(), serde_json::from_str(line)?))
    }

    /// Tells on stderr what happens.
    pub fn say(&self, text: &str) {
        eprintln!("{:7.1} s  step {:6}  {text}", self.began.elapsed().as_secs_f64(), self.progress_probe.step());
    }

    /// The places.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The network, if the fleet has one.
    ///
    /// # Errors
    /// If it has none.
    pub fn lan(&self) -> Result<&Lan> {
        self.lan.as_ref().context("the fleet was planned without hosts")
    }

    /// What to put before a command to run it in a [home](Lan::home) of the fleet's network, as slow as its processes.
    ///
    /// # Errors
    /// If there is no network, or no home can be made.
    pub fn home(&mut self) -> Result<Vec<String>> {
        let home = self.lan.as_mut().context("the fleet was planned without hosts")?.home()?;
        Ok(self.before(home.prefix))
    }

    /// The run's steps.
    pub fn progress_probe(&mut self) -> &mut ProgressProbe {
        &mut self.progress_probe
    }

    /// What was wrong so far, at whatever time.
    pub fn broken(&self) -> &[String] {
        &self.broken
    }

    /// From now on two sides may hold different states after the same step, as long as they come together at the end.
    pub fn expect_forks(&mut self) {
        self.may_fork = true;
    }

    /// Whether two processes ever told different digests after one step.
    pub fn has_diverged(&self) -> bool {
        self.has_diverged
    }

    /// Says that the run goes on from the checkpoint after this step, so that later ones are taken anew. Those without
    /// their disks can't take back what they told of them.
    pub fn go_back(&mut self, step: u64, wiped: &[usize]) {
        self.saved.split_off(&(step + 1));
        self.progress_probe = ProgressProbe::new();
        self.is_going_back = true;
        wiped.iter().for_each(|slot| self.slots[*slot].audits.clear());
    }

    /// The digest that somebody saved after a step.
    pub fn digest_after(&self, step: u64) -> Option<&str> {
        self.saved.get(&step).map(|(digest, _)| digest.as_str())
    }

    /// Whether `count` processes are awake, full members, and share a view of just that many.
    pub fn are_full(&self, count: usize) -> bool {
        let awake: Vec<&Slot> = self.slots.iter().filter(|slot| slot.is_awake()).collect();
        let is_in = |slot: &&&Slot| {
            slot.said.is_full && slot.said.view.as_ref().is_some_and(|(_, members)| members.len() == count)
        };
        awake.len() == count && awake.iter().filter(is_in).count() == count
    }

    /// Whether a quorum and two holders of the state stay if these places lose their processes, or can't reach the others.
    pub fn can_lose(&self, lost: &[usize]) -> bool {
        let stays = |number: &usize| self.slots[*number].is_awake() && !lost.contains(number);
        let staying: Vec<&Said> = (0..self.slots.len()).filter(stays).map(|number| &self.slots[number].said).collect();
        let newest = staying.iter().filter_map(|said| said.view.as_ref()).max_by_key(|(generation, _)| *generation);
        let Some((_, members)) = newest else { return false };
        let in_view = |said: &&&Said| said.id.as_ref().is_some_and(|id| members.contains(id));
        let full = staying.iter().filter(in_view).filter(|said| said.is_full).count();
        full >= 2 && 2 * staying.iter().filter(in_view).count() > members.len()
    }

    fn compare(&mut self, slot: usize, event: &Value) {
        let (Some(step), Some(digest)) = (event["step"].as_u64(), event["digest"].as_str()) else { return };
        let (first, savers) = self.saved.entry(step).or_insert_with(|| (digest.to_owned(), BTreeSet::new()));
        if first == digest {
            savers.insert(slot);
            return;
        }
        if self.may_fork {
            return;
        }
        let text = format!("after step {step}, {slot} holds {digest}, but {savers:?} hold {first}");
        self.say(&text);
        self.broken.push(text);
        self.has_diverged = true;
    }

    /// The process of a place has ended by itself.
    fn ended(&mut self, number: usize) {
        let Some(peer) = self.slots[number].peer.take() else { return };
        let outcome = self.bury(number, peer);
        if self.is_leaving && outcome.0 {
            return;
        }
        if self.slots[number].said.finished.as_ref().is_some_and(|last| last["outcome"] == "complete") {
            return;
        }
        // Nobody can join through somebody who is killed meanwhile. A person would try again, and so do we.
        let slot = &self.slots[number];
        let is_orphan = slot.said.view.is_none()
            && slot
                .through
                .is_some_and(|(other, life)| !self.slots[other].is_awake() || self.slots[other].life != life);
        if is_orphan {
            self.say(&format!("start {number} again: whom it joined through is gone"));
            if let Err(error) = self.start(number) {
                self.broken.push(format!("{number} can't be started again: {error:#}"));
            }
            return;
        }
        let text = format!("the process of {number} ended by itself: {}", outcome.1);
        self.say(&text);
        self.broken.push(text);
    }

    /// Waits for the end of a process that ends; returns whether it ended well, and the end of its log.
    fn bury(&mut self, number: usize, peer: Peer) -> (bool, String) {
        let outcome = peer.finish();
        if let Some(logs) = &self.plan.logs {
            let name = format!("peer-{number}-{}", self.slots[number].life);
            let events: String =
                outcome.events.iter().map(|(at, event)| format!("{:.3} {event}\n", at.as_secs_f64())).collect();
            // They are there to look at; the experiment does not need them.
            let _ = std::fs::write(logs.join(format!("{name}.log")), &outcome.stderr);
            let _ = std::fs::write(logs.join(format!("{name}.events")), events);
        }
        self.slots[number].life += 1;
        let lines: Vec<&str> = outcome.stderr.lines().collect();
        let last = lines[lines.len().saturating_sub(LAST_LINES)..].join(" | ");
        (outcome.status.success(), last)
    }

    fn describe(&self) -> String {
        let slot = |(number, slot): (usize, &Slot)| {
            let said = &slot.said;
            let life = match (&slot.peer, slot.is_stopped) {
                (None, _) => "nobody",
                (Some(_), true) => "stopped",
                (Some(_), false) if said.is_full => "full",
                (Some(_), false) => "not full",
            };
            let view =
                said.view.as_ref().map(|(generation, members)| format!("view {generation} of {}", members.len()));
            format!("{number}: {life}, {}, step {}", view.unwrap_or_default(), said.step)
        };
        self.slots.iter().enumerate().map(slot).collect::<Vec<_>>().join("; ")
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for number in 0..self.slots.len() {
            self.kill(number);
        }
    }
}

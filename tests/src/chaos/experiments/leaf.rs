//! A machine behind a router that lets nothing in.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use crate::chaos::experiments::churn::conclude;
use crate::chaos::{Fleet, Plan, Verdict};
use crate::{Peer, PeerOptions};

/// Members beside the leaf.
const MEMBERS: usize = 3;
/// What is trained: in micro-batches, each of which takes so much longer that all machines are equally fast.
const RUN: &str = "--model softmax --batch-size 720 --micro-batch 8 --steps 100000000 --checkpoint-every 100";
const LONGER: Duration = Duration::from_millis(16);
/// How long anything else may take. Generous: nothing is measured by it.
const LIMIT: Duration = Duration::from_secs(90);
/// Parts that a leaf brings before the next thing happens.
const PARTS: u64 = 20;
/// How often it is looked whether something is so.
const LOOK: Duration = Duration::from_millis(100);

/// Three members, and beside them a machine that they can't dial. It takes part as a leaf; then it is killed again and again; then its
/// carrier is. Promised: steps are as fast as all machines together, dying leaves cost next to nothing, the leaf finds another carrier, and
/// each sample counts once.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// For how long each thing is measured: more than ten seconds, of which processes tell how fast they are.
    pub each: Duration,
    /// How often the leaf is killed.
    pub kills: u32,
    /// How long it lives each time.
    pub life: Duration,
    /// Of the sum of all speeds, the part that the run has to come to.
    pub of_speeds: f64,
    /// As a part of a step without a leaf, how long a step may take while leaves die.
    pub of_step: f64,
    /// The run's longest stall.
    pub max_stall: Duration,
    /// Seed of all that happens by chance.
    pub seed: u64,
    /// Where to keep logs.
    pub logs: Option<PathBuf>,
}

/// How fast a run was for a while.
struct Pace {
    step: Duration,
    samples_per_s: f64,
    /// What the members told of their speeds, and their leaves', together.
    speeds: f64,
}

/// The leaf's place, which one process after the other has.
struct Home {
    prefix: Vec<String>,
    dir: Arc<TempDir>,
    ticket: String,
    peer: Option<Peer>,
}

impl Leaf {
    /// Runs the experiment.
    ///
    /// # Errors
    /// If it could not be carried out. A broken promise is no error.
    pub fn run(&self) -> Result<Verdict> {
        let mut verdict = Verdict::new("leaf", self.seed);
        let plan = Plan {
            peers: MEMBERS,
            run: format!("--max-stall-ms {} {RUN}", self.max_stall.as_millis()),
            machine: String::new(),
            seed: self.seed,
            hosts: true,
            logs: self.logs.clone(),
        };
        let mut fleet = Fleet::found_slow(plan, LONGER)?;
        let ticket = fleet.slots()[0].said().ticket.clone().context("a member has a ticket")?;
        let dir = Arc::new(TempDir::with_prefix("starling-chaos-")?);
        let mut home = Home { prefix: fleet.home()?, dir, ticket, peer: None };

        fleet.say("measure without a leaf");
        let alone = self.measure(&mut fleet)?;
        verdict.decimal("step_without_ms", alone.step.as_secs_f64() * 1e3);
        verdict.decimal("samples_per_s_without", alone.samples_per_s);

        fleet.say("start a leaf behind a router that lets nothing in");
        home.start();
        home.brings(&mut fleet, PARTS)?;
        fleet.say("measure with it");
        let with = self.measure(&mut fleet)?;
        verdict.decimal("step_with_ms", with.step.as_secs_f64() * 1e3);
        verdict.decimal("samples_per_s_with", with.samples_per_s);
        verdict.decimal("speeds", with.speeds);
        let part = with.samples_per_s / with.speeds;
        verdict.decimal("of_speeds", part);
        verdict.promise(part >= self.of_speeds, format!("the run is {part:.2} as fast as all machines together"));

        self.kill_again_and_again(&mut fleet, &mut home, &alone, &mut verdict)?;
        self.kill_its_carrier(&mut fleet, &mut home, &mut verdict)?;
        home.end(&mut verdict)?;
        conclude(&mut fleet, LIMIT, &mut verdict);
        Ok(verdict)
    }

    /// The leaf dies every so often, and is started again at once.
    fn kill_again_and_again(
        &self,
        fleet: &mut Fleet,
        home: &mut Home,
        alone: &Pace,
        verdict: &mut Verdict,
    ) -> Result<()> {
        fleet.progress_probe().rest();
        let (began, first) = (Instant::now(), fleet.progress_probe().step());
        for number in 0..self.kills {
            fleet.run_until(Instant::now() + self.life);
            fleet.say(&format!("kill the leaf, {} of {}", number + 1, self.kills));
            home.kill()?;
            home.start();
        }
        let steps = fleet.progress_probe().step() - first;
        let step = began.elapsed().div_f64(steps.max(1) as f64);
        let (gap, _) = fleet.progress_probe().longest_gap();
        verdict.decimal("step_while_leaves_die_ms", step.as_secs_f64() * 1e3);
        verdict.decimal("longest_without_a_step_s", gap.as_secs_f64());
        let of_step = step.as_secs_f64() / alone.step.as_secs_f64();
        verdict.decimal("of_step", of_step);
        verdict.promise(
            of_step <= self.of_step,
            format!("while leaves die a step takes {of_step:.2} times as long as without"),
        );
        home.brings(fleet, PARTS)
    }

    /// The leaf's carrier dies: it goes on with another one, and so does the run.
    fn kill_its_carrier(&self, fleet: &mut Fleet, home: &mut Home, verdict: &mut Verdict) -> Result<()> {
        let carriers = home.carriers();
        let carrier = carriers.last().cloned().context("it was carried just now")?;
        let slot = fleet.slots().iter().position(|slot| slot.said().id.as_ref() == Some(&carrier));
        let slot = slot.context("its carrier is a member")?;
        fleet.say(&format!("kill its carrier, {slot}"));
        let killed = Instant::now();
        fleet.kill(slot);
        home.until(fleet, "another carrier", |home| home.carriers().len() > carriers.len())?;
        verdict.decimal("carried_again_after_s", killed.elapsed().as_secs_f64());
        let before = home.parts();
        home.until(fleet, "parts for another carrier", |home| home.parts() >= before + PARTS)?;
        fleet.start(slot)?;
        fleet.wait("the member back", LIMIT, |fleet| fleet.are_full(MEMBERS))
    }

    /// How fast the run is now.
    fn measure(&self, fleet: &mut Fleet) -> Result<Pace> {
        let until = Instant::now() + self.each;
        let (mut first, mut last, mut told, mut samples_per_s) = (None, None, Vec::new(), 0.0);
        while let Some((slot, event)) = fleet.pump(until) {
            if slot != 0 {
                continue;
            }
            match event["event"].as_str().unwrap_or_default() {
                "progress" => {
                    let here = (Instant::now(), event["step"].as_u64().unwrap_or_default());
                    first.get_or_insert(here);
                    last = Some(here);
                    // Of the last ten seconds.
                    samples_per_s = event["samples_per_s"].as_f64().unwrap_or_default();
                }
                "members" => {
                    let members = event["members"].as_array().into_iter().flatten();
                    let speeds: Option<Vec<f64>> = members.map(|member| member["samples_per_s"].as_f64()).collect();
                    told.extend(speeds.map(|speeds| speeds.iter().sum::<f64>()));
                }
                _ => {}
            }
        }
        let (Some((began, from)), Some((ended, to))) = (first, last) else { bail!("no steps to measure") };
        let (steps, took) = ((to - from).max(1) as f64, ended - began);
        let speeds = told.iter().sum::<f64>() / told.len().max(1) as f64;
        Ok(Pace { step: took.div_f64(steps), samples_per_s, speeds })
    }
}

impl Home {
    fn start(&mut self) {
        let options = PeerOptions { listen: None, prefix: self.prefix.clone(), ..PeerOptions::flags("--role leaf") };
        self.peer = Some(Peer::join_in(self.dir.clone(), &self.ticket, &options));
    }

    fn kill(&mut self) -> Result<()> {
        let peer = self.peer.take().context("it lives")?;
        peer.signal("KILL");
        drop(peer.finish());
        Ok(())
    }

    fn told(&self) -> Vec<Value> {
        self.peer.as_ref().map(Peer::told).unwrap_or_default()
    }

    /// Who has carried this process, one after the other.
    fn carriers(&self) -> Vec<String> {
        let told = self.told();
        let attached = told.iter().filter(|event| event["event"] == "attached");
        attached.filter_map(|event| event["carrier"].as_str().map(str::to_owned)).collect()
    }

    /// How many parts it has brought, as it tells.
    fn parts(&self) -> u64 {
        let told = self.told();
        let brought = told.iter().rev().find(|event| event["event"] == "leaves");
        brought.and_then(|event| event["leaves"][0]["parts"].as_u64()).unwrap_or_default()
    }

    fn brings(&mut self, fleet: &mut Fleet, parts: u64) -> Result<()> {
        self.until(fleet, "parts of the leaf", |home| home.parts() >= parts)
    }

    fn until(&self, fleet: &mut Fleet, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while !is_so(self) {
            if Instant::now() >= deadline {
                bail!("no {what}; the leaf's last words: {:?}", self.told().last());
            }
            fleet.run_until(Instant::now() + LOOK);
        }
        Ok(())
    }

    /// Ends it in order: it has never held another state than its carrier.
    fn end(&mut self, verdict: &mut Verdict) -> Result<()> {
        let peer = self.peer.take().context("it lives")?;
        peer.signal("TERM");
        let outcome = peer.finish();
        verdict
            .promise(outcome.status.success(), format!("the leaf ended with {}: {}", outcome.status, outcome.stderr));
        let wrong = outcome.events.iter().find(|(_, event)| event["event"] == "warning");
        verdict.promise(wrong.is_none(), format!("the leaf was warned: {wrong:?}"));
        Ok(())
    }
}

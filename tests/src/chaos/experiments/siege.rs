//! Strangers that hold all places they can.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use crate::chaos::Verdict;
use crate::{Peer, PeerOptions, Strangers};

/// A joiner's own network, and four others.
const NETWORKS: [[u8; 3]; 5] = [[127, 0, 0], [127, 0, 1], [127, 0, 2], [127, 1, 0], [127, 2, 0]];
const QUIC: &str = "--listen /ip4/127.0.0.1/udp/0/quic-v1";
/// How often the member is killed and comes back.
const RETURNS: usize = 2;
/// Reasons that are told at once, before there is one a second.
const TOLD: u64 = 16;

/// Strangers come to a member and hold places there: silent, slow, babbling. Promised: meanwhile joiners join over TCP, a member
/// that is killed comes back, and the strangers take little memory.
#[derive(Debug, Clone)]
pub struct Siege {
    /// How many over TCP, all the time.
    pub strangers: usize,
    /// How many over QUIC besides, which the member listens on then.
    pub quic: usize,
    /// For how long.
    pub lasts: Duration,
    /// How long a joiner may take, from the start of its process to its place in the view.
    pub patience: Option<Duration>,
    /// What the strangers may make the member grow by, in bytes.
    pub memory: u64,
    /// Tells this one from others.
    pub seed: u64,
}

impl Siege {
    /// Runs the experiment.
    ///
    /// # Errors
    /// If it could not be carried out. A broken promise is no error.
    pub fn run(&self) -> Result<Verdict> {
        let mut verdict = Verdict::new("strangers", self.seed);
        let quic = if self.quic > 0 { QUIC } else { "" };
        let flags = format!("--model mlp:16 --steps 100000000 --checkpoint-every 0 {quic}");
        let founder = Peer::run(&PeerOptions::flags(&flags));
        let (ticket, saves) = (founder.ticket(), PeerOptions::flags("--checkpoint-every 0"));
        let away = Peer::join(&ticket, &saves);
        founder.wait_for_view(2);
        away.wait_for_step(1);
        let [before, _] = founder.memory();
        let began = Instant::now();
        let strangers = Strangers::visit(founder.place("tcp"), &NETWORKS, self.strangers);
        strangers.wait_until_all_came();
        let others = (self.quic > 0).then(|| Strangers::visit_quic(founder.place("udp"), &NETWORKS, self.quic));
        others.iter().for_each(Strangers::wait_until_all_came);
        let mut joins: Vec<Duration> = Vec::new();
        let (mut away, mut returned) = (away, 0);
        while joins.is_empty() || began.elapsed() < self.lasts {
            let at = Instant::now();
            let joiner = Peer::join(&ticket, &saves);
            let id = joiner.id();
            is_seen(&founder, &id);
            joins.push(at.elapsed());
            eprintln!("  {:6.2} a peer joined in {:?}", began.elapsed().as_secs_f64(), at.elapsed());
            let is_slow = self.patience.is_some_and(|patience| at.elapsed() * 2 > patience);
            joiner.signal("INT");
            let outcome = joiner.finish();
            if is_slow {
                eprintln!("{}", outcome.stderr);
            }
            // Who is lost again and again has to wait, strangers or not.
            if returned == RETURNS {
                continue;
            }
            returned += 1;
            let dir = away.dir();
            away.signal("KILL");
            drop(away.finish());
            away = Peer::join_in(Arc::clone(&dir), &ticket, &saves);
            let reached = away.wait_for_step(1);
            away.wait_for_step(reached + 1);
            eprintln!("  {:6.2} the member came back", began.elapsed().as_secs_f64());
        }
        drop((strangers, others));
        let seconds = began.elapsed().as_secs();
        let [_, most] = founder.memory();
        let told = founder.told().iter().filter(|event| event["event"] == "turned").count() as u64;
        for peer in [away, founder] {
            peer.signal("INT");
            let outcome = peer.finish();
            verdict.promise(outcome.status.success(), format!("a member ended with {}", outcome.status));
        }
        let slowest = joins.iter().max().copied().unwrap_or_default();
        let mib = |bytes: u64| bytes.saturating_sub(before) as f64 / f64::from(1 << 20);
        verdict.figure("strangers", self.strangers);
        verdict.figure("over_quic", self.quic);
        verdict.figure("joined", joins.len());
        verdict.decimal("slowest_join_s", slowest.as_secs_f64());
        verdict.decimal("more_mib", mib(most));
        verdict.figure("told", told);
        let is_soon = self.patience.is_none_or(|patience| slowest <= patience);
        verdict.promise(is_soon, format!("a joiner took {slowest:?}"));
        verdict.promise(most <= before + self.memory, format!("strangers took {:.1} MiB", mib(most)));
        verdict.promise(told <= TOLD + seconds + 1, format!("{told} refusals were told in {seconds} s"));
        Ok(verdict)
    }
}

/// Waits until a member has this peer in its view.
fn is_seen(member: &Peer, id: &str) {
    let is_member = |event: &Value| event["members"].as_array().is_some_and(|list| list.iter().any(|name| name == id));
    member.wait_for("the joiner", |event| event["event"] == "view" && is_member(event));
}

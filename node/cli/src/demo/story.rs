//! What happens in a demo: all train, one is killed, the ring heals, one joins.

use std::time::{Duration, Instant};

use starling::Report;
use starling_topology::SplitMix64Generator;

use super::Plan;
use super::outcome::Figures;

/// With fewer peers, a survivor may be no quorum.
const FEWEST: usize = 3;
/// The kill comes after this part of the steps.
const KILL_AFTER: u64 = 5;

impl Plan {
    /// Whether one is killed and one joins.
    fn is_eventful(&self) -> bool {
        self.peers >= FEWEST
    }

    /// Members needed to take steps: all, or those who are left.
    pub(super) fn min_peers(&self) -> usize {
        if self.is_eventful() { self.peers - 1 } else { self.peers }
    }

    /// How many processes are started.
    pub(super) fn started(&self) -> usize {
        self.peers + usize::from(self.is_eventful()) + usize::from(self.leaf)
    }

    /// Whether this peer is the leaf: it starts with the first members, and comes after them.
    pub(super) fn is_leaf(&self, index: usize) -> bool {
        self.leaf && index == self.peers
    }
}

/// What the demo is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Kill this peer.
    Kill(usize),
    /// Start another one.
    Join,
}

/// Listens to the peers.
#[derive(Debug)]
pub(super) struct Story {
    phase: Phase,
    peers: usize,
    kill_at: u64,
    /// Whom to kill.
    victim: usize,
    victim_id: String,
    /// Of the newest view that the first peer told of.
    generation: u64,
    is_complete: bool,
    killed: Option<Instant>,
    joining: Option<(usize, Instant)>,
    figures: Figures,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// All train.
    Together,
    /// One is gone, and no step was committed without it.
    Bereft,
    /// The others go on; one joins, or has joined.
    Healed,
    /// Nothing more is to happen.
    Quiet,
}

impl Story {
    pub(super) fn new(plan: &Plan) -> Self {
        let others = u32::try_from(plan.peers.saturating_sub(1)).unwrap_or(u32::MAX).max(1);
        let victim = 1 + SplitMix64Generator::new(plan.seed).below(others) as usize;
        Self {
            phase: if plan.is_eventful() { Phase::Together } else { Phase::Quiet },
            peers: plan.peers,
            kill_at: plan.steps / KILL_AFTER,
            victim,
            victim_id: String::new(),
            generation: 0,
            is_complete: false,
            killed: None,
            joining: None,
            figures: Figures::default(),
        }
    }

    /// Takes in what peer `index` reports.
    pub(super) fn hear(&mut self, index: usize, report: &Report, now: Instant) -> Option<Act> {
        if let (Report::Started { peer, .. }, true) = (report, index == self.victim) {
            self.victim_id.clone_from(peer);
        }
        match self.phase {
            Phase::Together => self.hear_together(index, report),
            Phase::Bereft => self.hear_bereft(index, report, now),
            Phase::Healed => {
                let (joiner, since) = self.joining?;
                if index == joiner && matches!(report, Report::Synced { .. } | Report::Progress { .. }) {
                    self.figures.joined = 1;
                    self.figures.join_ms = Some(milliseconds(now - since));
                    self.phase = Phase::Quiet;
                }
                None
            }
            Phase::Quiet => None,
        }
    }

    /// Peer `index` was killed.
    pub(super) fn killed(&mut self, index: usize, now: Instant) {
        debug_assert_eq!(index, self.victim);
        self.figures.killed = 1;
        self.killed = Some(now);
        self.phase = Phase::Bereft;
    }

    /// Peer `index` was started to join.
    pub(super) fn started(&mut self, index: usize, now: Instant) {
        self.joining = Some((index, now));
    }

    /// What it came to.
    pub(super) fn figures(&self) -> Figures {
        self.figures
    }

    fn hear_together(&mut self, index: usize, report: &Report) -> Option<Act> {
        match report {
            Report::View { generation, members, .. } if index == 0 => {
                self.generation = *generation;
                self.is_complete = members.len() == self.peers;
                None
            }
            Report::Progress { step, .. } => {
                (index == 0 && self.is_complete && *step >= self.kill_at).then_some(Act::Kill(self.victim))
            }
            _ => None,
        }
    }

    fn hear_bereft(&mut self, index: usize, report: &Report, now: Instant) -> Option<Act> {
        let passed = self.killed.map(|killed| milliseconds(now - killed));
        match report {
            _ if index == self.victim => None,
            Report::Suspected { peer, .. } if *peer == self.victim_id => {
                self.figures.detect_ms = self.figures.detect_ms.or(passed);
                None
            }
            Report::View { generation, .. } if index == 0 && *generation > self.generation => {
                self.figures.rering_ms = self.figures.rering_ms.or(passed);
                self.heal_if_done()
            }
            Report::Progress { generation, .. } if *generation > self.generation => {
                self.figures.recovery_ms = self.figures.recovery_ms.or(passed);
                self.heal_if_done()
            }
            _ => None,
        }
    }

    fn heal_if_done(&mut self) -> Option<Act> {
        self.figures.rering_ms.and(self.figures.recovery_ms)?;
        self.phase = Phase::Healed;
        Some(Act::Join)
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Detail;

    fn plan(peers: usize) -> Plan {
        Plan { peers, leaf: false, steps: 100, seed: 7, device: "cpu".to_owned(), keep: None, detail: Detail::Changes }
    }

    #[test]
    fn a_leaf_is_one_more_and_comes_after_the_members() {
        let plan = Plan { leaf: true, ..plan(4) };
        assert_eq!((plan.started(), plan.min_peers()), (6, 3));
        assert_eq!([3, 4, 5].map(|index| plan.is_leaf(index)), [false, true, false]);
    }

    fn progress(step: u64, generation: u64) -> Report {
        Report::Progress {
            step,
            generation,
            steps: 100,
            epoch: 0,
            loss: 1.0,
            samples_per_s: 1.0,
            waiting_share: 0.0,
            data_wait_share: 0.0,
            members: 3,
            eta_s: 1.0,
            skipped: 0,
        }
    }

    fn view(generation: u64, members: usize) -> Report {
        Report::View {
            generation,
            view: String::new(),
            rank: 0,
            members: vec![String::new(); members],
            newcomers: Vec::new(),
            step: 0,
            reason: String::new(),
            promised: 0,
            of: 0,
            took_ms: 0,
            forked: false,
        }
    }

    #[test]
    fn one_is_killed_once_all_train_and_one_joins_once_the_others_go_on() {
        let (mut story, start) = (Story::new(&plan(4)), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(story.hear(0, &view(3, 3), at(0)), None);
        assert_eq!(story.hear(0, &progress(50, 3), at(0)), None, "not all are there");
        story.hear(0, &view(4, 4), at(0));
        assert_eq!(story.hear(0, &progress(19, 4), at(0)), None, "too early");
        let act = story.hear(0, &progress(20, 4), at(0));
        let Some(Act::Kill(victim)) = act else { panic!("{act:?}") };
        assert!((1..4).contains(&victim));
        story.killed(victim, at(10));
        let other = if victim == 1 { 2 } else { 1 };
        let suspected = Report::Suspected { peer: String::new(), evidence: String::new(), seen_by: None, step: 20 };
        assert_eq!(story.hear(other, &suspected, at(13)), None);
        assert_eq!(story.hear(0, &progress(21, 4), at(14)), None, "of the old view");
        assert_eq!(story.hear(other, &progress(22, 5), at(30)), None, "the first peer has yet to tell of its view");
        assert_eq!(story.hear(0, &view(5, 3), at(31)), Some(Act::Join));
        story.started(4, at(40));
        assert_eq!(story.hear(0, &progress(30, 6), at(50)), None);
        assert_eq!(story.hear(4, &Report::Synced { step: 30 }, at(60)), None);
        let expected = Figures {
            killed: 1,
            joined: 1,
            detect_ms: Some(3),
            rering_ms: Some(21),
            recovery_ms: Some(20),
            join_ms: Some(20),
        };
        assert_eq!(story.figures(), expected);
    }

    #[test]
    fn two_are_left_alone() {
        let (mut story, now) = (Story::new(&plan(2)), Instant::now());
        story.hear(0, &view(2, 2), now);
        assert_eq!(story.hear(0, &progress(50, 2), now), None);
        assert_eq!((plan(2).min_peers(), plan(2).started()), (2, 2));
    }
}

//! What each member did, from the speeds that travel in every reduction.

use std::collections::BTreeMap;
use std::time::Duration;

use starling_run::StepReport;
use starling_run::training::contribution;
use starling_topology::PeerId;
use starling_topology::ledger::{STARVED, SYNCING};

use crate::credentials::identity::to_libp2p;
use crate::observe::report::{MemberPaceReport, Report};

/// How much stepping time one report covers, among few members.
const INTERVAL: Duration = Duration::from_secs(1);
/// Among more than so many members, reports are longer, and come more rarely.
const FEW: usize = 32;

/// Counts until there is something to report.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// Of the view that reduced the steps.
    members: Vec<PeerId>,
    tallies: BTreeMap<PeerId, Tally>,
    steps: u64,
    took: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    samples: u64,
    /// Of these, those of which it is known how long they took.
    measured: u64,
    computing_s: f64,
    syncing: bool,
    starved: bool,
}

impl Census {
    /// Takes in a step that these members reduced, and that took so long here. A report, once there are enough of them.
    pub(super) fn count(&mut self, members: &[PeerId], report: &StepReport, took: Duration) -> Option<Report> {
        if self.members != members {
            *self = Self { members: members.to_vec(), ..Self::default() };
        }
        self.steps += 1;
        self.took += took;
        for (member, speed) in members.iter().zip(&report.speeds) {
            let share = report.contributions.binary_search_by_key(member, |(peer, _)| *peer);
            let samples = share.map_or(0, |at| report.contributions[at].1.iter().map(|range| range.len() as u64).sum());
            let tally = self.tallies.entry(*member).or_default();
            tally.samples += samples;
            tally.syncing = *speed == SYNCING;
            tally.starved |= *speed == STARVED;
            if let Some(per_s) = contribution::samples_per_s(*speed) {
                tally.measured += samples;
                tally.computing_s += samples as f64 / per_s;
            }
        }
        let interval = INTERVAL * u32::try_from(members.len().div_ceil(FEW)).unwrap_or(u32::MAX);
        (self.took >= interval).then(|| self.take())
    }

    fn take(&mut self) -> Report {
        let (tallies, seconds) = (std::mem::take(&mut self.tallies), std::mem::take(&mut self.took).as_secs_f64());
        let steps = std::mem::take(&mut self.steps);
        let pace = |(peer, tally): (PeerId, Tally)| MemberPaceReport {
            peer: to_libp2p(peer).to_string(),
            samples: tally.samples,
            samples_per_s: (tally.computing_s > 0.0).then(|| tally.measured as f64 / tally.computing_s),
            computing_share: (tally.computing_s / seconds).min(1.0),
            syncing: tally.syncing,
            starved: tally.starved,
        };
        Report::Members { seconds, steps, members: tallies.into_iter().map(pace).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(count: usize) -> Vec<PeerId> {
        let key = || libp2p::identity::Keypair::generate_ed25519().public().to_peer_id();
        let mut peers: Vec<_> = (0..count).filter_map(|_| crate::credentials::identity::from_libp2p(&key())).collect();
        peers.sort_unstable();
        peers
    }

    fn step(members: &[PeerId], speeds: &[u32]) -> StepReport {
        let ten = |at: u32| at * 10..at * 10 + 10;
        let contributions = (0..).zip(members).map(|(at, peer)| (*peer, vec![ten(at)])).collect();
        StepReport {
            step: 1,
            loss: 0.0,
            samples: 20,
            epoch: 0,
            contributions,
            returned: 0,
            speeds: speeds.to_vec(),
            skipped: None,
            given_up: Vec::new(),
            evaluated: None,
            unevaluated: None,
            judged: None,
            rescaled: None,
            dropped: Vec::new(),
        }
    }

    #[test]
    fn a_report_has_what_each_did_in_the_time_that_steps_took() {
        let members = peers(2);
        let mut census = Census::default();
        let half = Duration::from_millis(500);
        // 10 samples at 100/s and at 20/s; then the second one could not tell.
        assert_eq!(census.count(&members, &step(&members, &[800, 160]), half), None);
        let report = census.count(&members, &step(&members, &[800, 1]), half);
        let Some(Report::Members { seconds, steps, members: paces }) = report else { panic!("{report:?}") };
        assert_eq!((seconds, steps), (1.0, 2));
        assert_eq!((paces[0].samples, paces[0].samples_per_s), (20, Some(100.0)));
        assert!((paces[0].computing_share - 0.2).abs() < 1e-9 && (paces[1].computing_share - 0.5).abs() < 1e-9);
        assert_eq!((paces[1].samples, paces[1].samples_per_s, paces[1].syncing), (20, Some(20.0), false));
        assert!(paces.iter().all(|pace| !pace.starved));
        assert_eq!(census.count(&members, &step(&members, &[0, STARVED]), half), None, "counting began anew");
        // Who takes part and computes nothing is named, though it says something else the next time.
        let report = census.count(&members, &step(&members, &[0, 1]), half);
        let Some(Report::Members { members: paces, .. }) = report else { panic!("{report:?}") };
        assert_eq!([0, 1].map(|at| (paces[at].syncing, paces[at].starved)), [(true, false), (false, true)]);
    }

    #[test]
    fn steps_of_another_view_begin_anew() {
        let members = peers(3);
        let mut census = Census::default();
        let most = Duration::from_millis(900);
        assert_eq!(census.count(&members, &step(&members, &[800; 3]), most), None);
        assert_eq!(census.count(&members[..2], &step(&members[..2], &[800; 2]), most), None);
        let many = peers(FEW + 1);
        assert_eq!(census.count(&many, &step(&many, &[800; FEW + 1]), INTERVAL), None, "reports are long among many");
        assert!(census.count(&many, &step(&many, &[800; FEW + 1]), INTERVAL).is_some());
    }
}

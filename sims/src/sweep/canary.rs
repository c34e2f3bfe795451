//! Planted faults: the simulator is worth something only if it finds them.
//!
//! Most of them are in the simulated driver, which misbehaves in a way in which a real one could; the others are in the
//! machines that it drives ([`FlawKind`]).

use starling_topology::{FlawKind, Quorum};

use crate::hostile::Attack;
use crate::scenario::{Scenario, Setup};
use crate::simulation::Simulation;
use crate::verdict::report::Outcome;

/// Something that a peer does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// Commits a step after it has said that its steps are held.
    CommitsAfterPromise,
    /// Applies what an aborted operation has come to so far.
    AppliesAborted,
    /// Goes on in the view before when it is told to go on in the next.
    IgnoresResume,
    /// Adds its contribution twice when a step is reduced again.
    CountsTwice,
    /// Contributes the gradient of the step before.
    StaleGradient,
    /// Says how fast others compute.
    SpeaksForOthers,
    /// Makes up for what an operation dropped whose step was not committed.
    SettlesUncommitted,
    /// Loads a checkpoint without verifying it.
    TrustsItsDisk,
    /// Goes back to the checkpoint of a branch that it has left.
    RevivesAbandoned,
    /// Comes back with the state before the first step although the run had gone past it.
    ClaimsInitialState,
    /// Comes back with the state of another attempt, and says that it is of this one's lineage.
    MistakesLineage,
    /// Comes back with the newest checkpoint that it knows to be stable, although it has signed a newer one.
    PrefersStable,
    /// Deletes older checkpoints before it has read the new one back.
    DeletesLastCheckpoint,
    /// A keeper deletes all others for one that nobody may ever sign.
    KeeperPrunes,
    /// Takes the samples of those who are lost for done.
    DropsReturned,
    /// Takes the samples of the starved for done.
    DropsStarved,
    /// Deals nothing to whoever has nothing.
    ForgetsStarved,
    /// Says, where it is starved, that it computes.
    StarvesInSilence,
    /// Goes on without samples for ever.
    StarvesOn,
    /// Takes a lost note of what it had saved for one that says: nothing.
    TakesLostForNothing,
    /// Starts again without what it promised and accepted.
    ForgetsPromise,
    /// Gives its vote before that is stored.
    VotesUnstored,
    /// Takes what its files are called for what can be loaded from them.
    BelievesNames,
    /// A leaf applies results in another way than members.
    LeafMisapplies,
    /// A leaf asks to be let in as a member, and is carried all the same.
    LeafJoins,
    /// Runs machines with a mistake in them.
    Machine(FlawKind),
}

/// A planted fault and what should find it.
#[derive(Debug, Clone, Copy)]
pub struct Plant {
    /// The fault.
    pub sabotage: Sabotage,
    /// In which runs it is looked for.
    pub scenario: Scenario,
    /// What hostile members do in them, if any are.
    pub attack: Option<Attack>,
    /// Which members of a view decide in them, if that matters.
    pub quorum: Option<Quorum>,
    /// How many peers there are in them, if that matters.
    pub peers: Option<u32>,
    /// The invariants of which one must name it.
    pub found_by: &'static [&'static str],
}

/// A planted fault and what found it.
#[derive(Debug, Clone)]
pub struct Catch {
    /// The fault.
    pub sabotage: Sabotage,
    /// The seed and the invariant, if it was found.
    pub caught: Option<(u64, &'static str)>,
    /// What was seen.
    pub seen: String,
    /// How many seeds were tried.
    pub seeds: u64,
}

/// All planted faults.
pub const PLANTS: &[Plant] = &[
    plant(
        Sabotage::Machine(FlawKind::HoldsAhead),
        Scenario::Crash,
        &["nothing_undone", "exactly_once", "bitwise_agreement"],
    ),
    plant(Sabotage::CommitsAfterPromise, Scenario::Crash, &["nothing_undone", "bitwise_agreement", "no_split_brain"]),
    plant(Sabotage::AppliesAborted, Scenario::Crash, &["exactly_once"]),
    plant(Sabotage::IgnoresResume, Scenario::Churn, &["no_split_brain", "progress", "only_members_step"]),
    plant(Sabotage::CountsTwice, Scenario::Crash, &["exactly_once"]),
    plant(Sabotage::StaleGradient, Scenario::Steady, &["exactly_once"]),
    plant(Sabotage::SpeaksForOthers, Scenario::Steady, &["no_violations"]),
    plant(Sabotage::SettlesUncommitted, Scenario::Crash, &["nothing_dropped"]),
    plant(Sabotage::TrustsItsDisk, Scenario::Disk, &["verified_checkpoints"]),
    plant(Sabotage::BelievesNames, Scenario::Disk, &["holds_what_it_says"]),
    plant(Sabotage::RevivesAbandoned, Scenario::Churn, &["own_branch"]),
    // Who came last has no vote where most join in one go and all die.
    plant(Sabotage::ClaimsInitialState, Scenario::Newcomers, &["stable_survives"]),
    plant(Sabotage::PrefersStable, Scenario::Outage, &["stable_survives"]),
    plant(Sabotage::MistakesLineage, Scenario::Crash, &["bitwise_agreement"]),
    plant(Sabotage::DeletesLastCheckpoint, Scenario::Disk, &["last_checkpoint"]),
    plant(Sabotage::KeeperPrunes, Scenario::Crash, &["last_checkpoint"]),
    plant(Sabotage::DropsReturned, Scenario::Crash, &["every_sample_once"]),
    plant(Sabotage::DropsStarved, Scenario::Arriving, &["starved_shares"]),
    plant(Sabotage::ForgetsStarved, Scenario::Arriving, &["starved_shares"]),
    plant(Sabotage::StarvesInSilence, Scenario::Arriving, &["exactly_once"]),
    plant(Sabotage::StarvesOn, Scenario::Arriving, &["starved_shares"]),
    // Who comes back asks others first, and they show it what it has signed before it can sign something else.
    plant(
        Sabotage::ForgetsPromise,
        Scenario::Churn,
        &["one_decision", "nothing_undone", "no_split_brain", "set_back_told"],
    ),
    plant(Sabotage::TakesLostForNothing, Scenario::Disk, &["stable_survives"]),
    plant(Sabotage::VotesUnstored, Scenario::Disk, &["one_decision"]),
    machine(FlawKind::IgnoresAccepted, Scenario::Churn, &["one_decision", "no_split_brain"]),
    machine(FlawKind::DecidesAlone, Scenario::Partition, &["one_decision", "no_split_brain"]),
    machine(FlawKind::PromisesRunning, Scenario::Crash, &["nothing_undone", "views_change_at_a_boundary"]),
    machine(FlawKind::ForksUnmarked, Scenario::Partition, &["one_decision", "no_split_brain"]),
    machine(FlawKind::IgnoresSilence, Scenario::Pause, &["progress"]),
    machine(FlawKind::NeverTakesOver, Scenario::Crash, &["progress"]),
    machine(FlawKind::TakesOldest, Scenario::Crash, &["progress", "nothing_undone", "stable_survives"]),
    machine(FlawKind::HidesLoss, Scenario::Disk, &["stable_survives"]),
    machine(FlawKind::StaysOutside, Scenario::Crash, &["progress"]),
    machine(FlawKind::WaitsInSilence, Scenario::Partition, &["progress"]),
    machine(FlawKind::NeverSyncs, Scenario::Join, &["progress", "nothing_undone", "bitwise_agreement"]),
    machine(FlawKind::HoldsLate, Scenario::Join, &["nothing_undone", "views_change_at_a_boundary"]),
    machine(FlawKind::DropsKept, Scenario::Join, &["results_fit", "bitwise_agreement"]),
    machine(FlawKind::TakesUnverified, Scenario::Join, &["bitwise_agreement"]),
    machine(FlawKind::TakesFirstNamed, Scenario::Join, &["what_most_name"]),
    machine(FlawKind::ClaimsState, Scenario::Disk, &["holds_what_it_says", "stable_survives"]),
    machine(FlawKind::AsksOnce, Scenario::Churn, &["asks_again"]),
    machine(FlawKind::FetchesAnyBranch, Scenario::Crash, &["own_branch"]),
    machine(FlawKind::HidesSetBack, Scenario::Disk, &["set_back_told"]),
    machine(FlawKind::IgnoresTwin, Scenario::Twin, &["twin_told"]),
    machine(FlawKind::OverlooksTwin, Scenario::Twin, &["twin_told"]),
    machine(FlawKind::VotesAtOnce, Scenario::Newcomers, &["votes_given"]),
    machine(FlawKind::OwesNothing, Scenario::Newcomers, &["votes_given"]),
    machine(FlawKind::NeedsRing, Scenario::Star, &["hub_keeps_all"]),
    machine(FlawKind::SparesNobody, Scenario::Star, &["hub_keeps_all"]),
    machine(FlawKind::NeverDamps, Scenario::Flapping, &["damped_links"]),
    machine(FlawKind::DampsForEver, Scenario::Flapping, &["damped_links"]),
    gullible(FlawKind::BelievesInstalls, Attack::Installs, &["nothing_undone", "one_decision", "no_split_brain"]),
    gullible(FlawKind::EndsForDigest, Attack::TellsDigests, &["endings"]),
    gullible(FlawKind::TakesGenerations, Attack::JoinsAgain, &["no_violations", "progress"]),
    gullible(FlawKind::CountsWithoutBound, Attack::CountsBeyond, &["progress"]),
    gullible(FlawKind::EndsForRefusal, Attack::Refuses, &["endings"]),
    // Of more, those who were told nothing go on meanwhile, and let the others in again.
    Plant { peers: Some(4), ..gullible(FlawKind::GoesWhereTold, Attack::ShowsOut, &["progress"]) },
    Plant {
        quorum: Some(Quorum::TwoThirds),
        ..gullible(FlawKind::BelievesClaims, Attack::SplitsViews, &["one_decision", "no_split_brain"])
    },
    // Somebody must ask between the end of the others' run and that of their processes.
    Plant { peers: Some(5), ..machine(FlawKind::RefusesTheLate, Scenario::Outage, &["endings"]) },
    machine(FlawKind::LeavesKeepers, Scenario::Crash, &["end_is_kept"]),
    gullible(FlawKind::BelievesFinished, Attack::Finishes, &["endings", "progress"]),
    machine(FlawKind::WaitsForLeaves, Scenario::Leaf, &["progress"]),
    machine(FlawKind::CountsLeavesTwice, Scenario::Leaf, &["leaf_counts_once", "exactly_once"]),
    machine(FlawKind::CountsWithoutLeaves, Scenario::Leaf, &["leaf_counts_once", "exactly_once"]),
    machine(FlawKind::TakesLateGradients, Scenario::Leaf, &["leaf_counts_once", "exactly_once"]),
    machine(FlawKind::StaysWithCarrier, Scenario::Leaf, &["leaf_goes_on"]),
    plant(Sabotage::LeafMisapplies, Scenario::Leaf, &["leaf_state"]),
    plant(Sabotage::LeafJoins, Scenario::Leaf, &["leaf_is_no_member"]),
];

/// What a machine believes that it should not, and the lie that shows it.
const fn gullible(flaw: FlawKind, attack: Attack, found_by: &'static [&'static str]) -> Plant {
    Plant { attack: Some(attack), ..plant(Sabotage::Machine(flaw), Scenario::Byzantine, found_by) }
}

const fn plant(sabotage: Sabotage, scenario: Scenario, found_by: &'static [&'static str]) -> Plant {
    Plant { sabotage, scenario, attack: None, quorum: None, peers: None, found_by }
}

const fn machine(flaw: FlawKind, scenario: Scenario, found_by: &'static [&'static str]) -> Plant {
    plant(Sabotage::Machine(flaw), scenario, found_by)
}

impl Plant {
    /// Looks for this fault in up to `most` runs.
    pub fn find(&self, most: u64) -> Catch {
        let (scenario, attack, quorum) = (self.scenario, self.attack, self.quorum);
        let setup = Setup { scenario, attack, quorum, peers: self.peers, ..Setup::default() };
        for seed in 0..most {
            let outcome = Simulation::new(seed, setup).with_sabotage(self.sabotage).run();
            if let Some((invariant, seen)) = self.recognises(&outcome) {
                return Catch { sabotage: self.sabotage, caught: Some((seed, invariant)), seen, seeds: seed + 1 };
            }
        }
        Catch { sabotage: self.sabotage, caught: None, seen: String::new(), seeds: most }
    }

    fn recognises(&self, outcome: &Outcome) -> Option<(&'static str, String)> {
        let broken = outcome.broken.iter().find(|broken| self.found_by.contains(&broken.invariant));
        let hangs = outcome.stuck.as_ref().filter(|_| self.found_by.contains(&"progress"));
        let hangs = hangs.map(|stuck| ("progress", format!("hung, and these still run: {stuck:?}")));
        broken.map(|broken| (broken.invariant, broken.seen.clone())).or(hangs)
    }
}

//! A member's place in a view, and what it knows of the others in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::config::Config;
use crate::id::{Digest, Generation, PeerId, ViewId};
use crate::membership::decree::agreement::{Acceptor, Round};
use crate::membership::decree::link_matrix::LinkMatrix;
use crate::membership::decree::proposal_inputs::is_reached;
use crate::membership::decree::votes::Due;
use crate::membership::failure_detector::FailureDetector;
use crate::membership::interface::BlockReason;
use crate::membership::outside::suspicion_reports::SuspicionReports;
use crate::membership::running::link_failures::LinkFailures;
use crate::membership::running::owing::Owing;
use crate::membership::running::standstill::Standstill;
use crate::message::{BranchPosition, Evidence};
use crate::plan::Link;
use crate::time::Time;
use crate::view::View;
use crate::view::lineage::Root;
use crate::view::ring::star_hubs;
use crate::vote::certificate::{Acceptance, Certificate, WireSignature};
use crate::vote::promise::{JustifiedProposal, Promise};
use crate::vote::proposal::{Ballot, Progress, Proposal, ResumePlan};

/// How many members on each side a member watches, and tells that it lives.
const NEIGHBOURS: usize = 4;
/// How many hubs of a star watch all others, and tell them that they live.
const WATCHING_HUBS: usize = 2;
/// How far a message may raise what all count together: generations, and the attempts of who was away. Who was cut off for
/// days is no further behind, and nobody comes to their end that way.
pub(super) const MAX_RISE: u64 = 1 << 20;
/// So many attempts count from the beginning of a view at least.
const LEAST_ATTEMPTS: u64 = 64;
/// Takeovers are staggered by rank up to this one.
const MAX_STAGGER: usize = 8;

/// A member's place in a view. Made anew with each view.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) view: View,
    pub(super) id: ViewId,
    /// In which order its members propose.
    precedence: Vec<PeerId>,
    /// What made the view; kept for those who have not heard of it.
    pub(super) origin: Option<Proposal>,
    /// Who accepted that.
    pub(super) certificate: Option<Certificate>,
    /// The ballot of it, if it is a fork.
    pub(super) fork: Option<Ballot>,
    /// From where on what this member has saved counts.
    pub(super) root: Root,
    /// We entered the view by the word of one that we asked, and have taken no step in it.
    pub(super) by_word: bool,
    /// The generation in which this process was let in, or has taken a step, in this view or in one that led here: no process before
    /// it can have said anything since.
    pub(super) ours_since: Option<Generation>,
    /// Who was let in to this view, or to one that led here, as which process and in which generation.
    pub(super) let_in: BTreeMap<PeerId, (Generation, u64)>,
    /// Who has been shown how often that another process of it has a seat here.
    pub(super) shown_seated: BTreeMap<PeerId, u32>,
    /// Too few members: steps are held until more have joined.
    pub(super) waiting: bool,
    pub(super) recovering: Option<Recovering>,

    /// Our part as one who votes.
    pub(super) acceptor: Acceptor<JustifiedProposal>,
    /// What we echoed last, to be accepted once we are shown that a quorum did.
    pub(super) shown: Option<(Ballot, JustifiedProposal)>,
    /// Where we stood when we last promised.
    pub(super) pledged: Option<Progress>,
    /// Whether the ballot that we have promised awaits our answer.
    pub(super) owed: bool,
    /// Our part as one who proposes.
    pub(super) decree: Option<Decree>,
    /// By how much the first attempts count before time passes.
    first_attempts: u64,
    /// The highest attempt that we have heard of.
    pub(super) attempt: u64,
    /// How often we have tried in vain.
    pub(super) tries: u32,
    pub(super) paused: Option<Paused>,
    /// We have proposed although another had, because somebody can't reach that one.
    pub(super) overruled: bool,
    /// We were outside, and nobody who goes on has answered for long.
    pub(super) returned: bool,
    /// Somebody has asked us to propose in its place.
    pub(super) asked: bool,
    /// Whom we have asked to propose in our place.
    pub(super) agents: BTreeSet<PeerId>,
    /// Whom we have given time to propose.
    pub(super) timed: BTreeSet<PeerId>,
    /// In which ballot we were last shown what is proposed, if we have no vote: its proposer got its time then.
    pub(super) timed_value: Option<Ballot>,
    /// When we propose, if nobody else has by then.
    pub(super) takeover_at: Option<Time>,

    /// Members that we can't reach, or that can't stay.
    pub(super) suspects: BTreeMap<PeerId, Evidence>,
    /// Members that we saw do what no correct peer does: it counts with what others see later, also where a view severs them from us.
    pub(super) accused: BTreeSet<PeerId>,
    /// Members to which our link failed, in this view or an earlier one.
    pub(super) broken: BTreeMap<PeerId, Broken>,
    /// Members that owed us something in earlier tries of a step.
    pub(super) owing: BTreeMap<PeerId, Owing>,
    /// Members that others can't reach.
    pub(super) suspicion_reports: SuspicionReports,
    /// Of whom we have told whom.
    pub(super) told: BTreeMap<PeerId, PeerId>,
    pub(super) leavers: BTreeSet<PeerId>,
    pub(super) syncing: BTreeSet<PeerId>,
    pub(super) lacks: Option<PeerId>, // This member, if it took its seat without the state: its disk alone says so.
    /// Members to which a vote is due.
    pub(super) due: BTreeMap<PeerId, Due>,
    /// After which step those who have no vote were let in, or we first saw them here.
    pub(super) came_after: BTreeMap<PeerId, u64>,
    /// Who has spoken in this view.
    pub(super) heard: BTreeSet<PeerId>,
    /// Who has committed the run's last step, and its state if it says so itself.
    pub(super) finished: BTreeMap<PeerId, (u64, Option<Digest>)>,
    pub(super) gone: BTreeSet<PeerId>,
    /// Who has told us again that it has finished, since we have said goodbye: it has not heard that we have.
    pub(super) unheard: BTreeSet<PeerId>,
    pub(super) detector: FailureDetector,
    /// When we last tried the links that the view says are broken.
    pub(super) tried_at: Time,

    /// What links cost, by the view and by what members have said since.
    pub(super) link_matrix: LinkMatrix,
    /// Our own row as the others know it.
    pub(super) told_row: Vec<(PeerId, Link)>,
    /// Whether something of that is new since we last looked if another plan would be better.
    pub(super) unjudged: bool,
    /// Whether one would be, so that the view is to be changed.
    pub(super) outdated: bool,
    /// Those who are severed from nobody, if the members reduce by a star: as no ring leads around, or the view is unsteady.
    pub(super) hubs: Vec<PeerId>,
    /// How many views before this one had the same members, one after the other.
    pub(super) replans: u32,
    /// The links that failed on the way here.
    pub(super) link_failures: LinkFailures,
    /// When we entered the view.
    pub(super) entered: Time,
    /// Whether all wait in vain.
    pub(super) standstill: Standstill,
}

/// A link that failed. The next view tries it anew; if it fails again before another step, it is given up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Broken {
    step: u64,
    at: Time,
    again: bool,
}

/// No quorum, since when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paused {
    pub(super) since: Time,
    pub(super) present: usize,
    /// What a member that is not there may hold.
    pub(super) missed: Option<BlockReason>,
    /// Whether the user knows, and has not heard since that the others go on.
    pub(super) is_told: bool,
}

impl Paused {
    /// Those who were said to go on have not answered: there is no quorum still. The user hears so again, and a `stall` at least before a fork that
    /// comes after `fork_after`.
    pub(super) fn begin_again(&mut self, now: Time, fork_after: Option<Duration>, stall: Duration) {
        self.is_told = false;
        if let Some(most) = fork_after.map(|limit| limit.saturating_sub(stall)) {
            let waited = now - self.since;
            self.since = self.since + waited.saturating_sub(most);
        }
    }
}

/// We came back from a record, and wait for others that did.
#[derive(Debug)]
pub(super) struct Recovering {
    pub(super) returned: BTreeSet<PeerId>,
    /// When we stop waiting for more.
    pub(super) until: Time,
}

/// An attempt to have the next view decided.
#[derive(Debug)]
pub(super) struct Decree {
    pub(super) ballot: Ballot,
    pub(super) boundary: Option<u64>,
    pub(super) stage: Stage,
    pub(super) round: Round<JustifiedProposal>,
    pub(super) promises: BTreeMap<PeerId, Promise>,
    /// What shows that they were given.
    pub(super) signatures: BTreeMap<PeerId, WireSignature>,
    pub(super) proposal: Option<Proposal>,
    /// That with what it rests on, until it is accepted.
    pub(super) shown: Option<JustifiedProposal>,
    /// Who has echoed it.
    pub(super) echoes: BTreeMap<PeerId, WireSignature>,
    /// What those sign who accept it.
    pub(super) accepted: Option<Acceptance>,
    /// Of those who have accepted it.
    pub(super) seals: BTreeMap<PeerId, WireSignature>,
    /// Who has promised a higher one.
    pub(super) refused: BTreeSet<PeerId>,
    /// Whether all the time that promises may take has passed.
    pub(super) late: bool,
}

impl Decree {
    pub(super) fn new(ballot: Ballot, boundary: Option<u64>, stage: Stage) -> Self {
        let (round, promises) = (Round::new(ballot), BTreeMap::new());
        Self {
            ballot,
            boundary,
            stage,
            round,
            promises,
            signatures: BTreeMap::new(),
            proposal: None,
            shown: None,
            echoes: BTreeMap::new(),
            accepted: None,
            seals: BTreeMap::new(),
            refused: BTreeSet::new(),
            late: false,
        }
    }
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Our own steps are about to be held at a boundary.
    Stopping,
    Promising,
    /// What we propose is shown to the others: [`crate::vote::echo`].
    Echoing,
    Accepting,
    /// It failed; the next one follows.
    Resting,
}

impl Seat {
    pub(super) fn new(view: View, origin: Option<Proposal>, config: &Config, now: Time) -> Self {
        let resumed = origin.as_ref().map_or(0, |origin| origin.resume.step);
        let joiners = origin.iter().flat_map(|origin| &origin.joiners);
        let let_in = joiners.map(|joiner| (joiner.contact.peer, (view.generation, joiner.incarnation))).collect();
        Self {
            link_matrix: LinkMatrix::of(&view),
            told_row: Vec::new(),
            unjudged: true,
            outdated: false,
            hubs: star_hubs(&view),
            replans: 0,
            link_failures: LinkFailures::new(now),
            entered: now,
            standstill: Standstill::new(view.members().len(), 2 * NEIGHBOURS),
            id: view.id(),
            precedence: precedence(&view),
            origin,
            certificate: None,
            fork: None,
            root: Root::default(),
            by_word: false,
            ours_since: None,
            let_in,
            shown_seated: BTreeMap::new(),
            waiting: false,
            recovering: None,
            acceptor: Acceptor::new(),
            shown: None,
            pledged: None,
            owed: false,
            decree: None,
            first_attempts: milliseconds(config.max_stall / 4).max(LEAST_ATTEMPTS),
            attempt: 0,
            tries: 0,
            paused: None,
            asked: false,
            agents: BTreeSet::new(),
            returned: false,
            timed: BTreeSet::new(),
            timed_value: None,
            takeover_at: None,
            suspects: BTreeMap::new(),
            accused: BTreeSet::new(),
            broken: BTreeMap::new(),
            owing: BTreeMap::new(),
            suspicion_reports: SuspicionReports::default(),
            overruled: false,
            told: BTreeMap::new(),
            leavers: BTreeSet::new(),
            syncing: BTreeSet::new(),
            lacks: None,
            due: BTreeMap::new(),
            came_after: view.newcomers().iter().map(|peer| (*peer, resumed)).collect(),
            heard: BTreeSet::new(),
            finished: BTreeMap::new(),
            gone: BTreeSet::new(),
            unheard: BTreeSet::new(),
            detector: FailureDetector::new(config.silence_limit()),
            tried_at: Time::ZERO,
            view,
        }
    }

    pub(super) fn branch_position(&self, step: u64) -> BranchPosition {
        BranchPosition {
            step,
            branch: self.view.branch,
            parent: self.view.parent,
            forked: self.view.forked,
            paused: self.paused.is_some(),
            recovering: self.recovering.is_some(),
        }
    }

    /// The highest attempt that counts by now: one for each millisecond of the view, far more than anybody needs. All are in
    /// the view for about as long, so who goes up to the bound is followed at once, and nobody uses up all that there are. Who
    /// comes back from a record was away for longer, and follows in leaps.
    fn most_attempts(&self, now: Time) -> u64 {
        let age = milliseconds(now - self.entered);
        let leap = if self.recovering.is_some() { self.attempt.saturating_add(MAX_RISE) } else { 0 };
        age.saturating_add(self.first_attempts).max(leap)
    }

    /// What keeps others from going beyond what we may attempt ourselves by now.
    fn most_own_attempts(&self, now: Time) -> u64 {
        self.most_attempts(now) - self.first_attempts / 2
    }

    /// Whether the next attempt of our own counts for all by now, also for those who came to the view a little later.
    pub(super) fn may_attempt(&self, now: Time) -> bool {
        self.attempt < self.most_own_attempts(now)
    }

    /// Notes the attempt of a ballot. False if it does not count yet; whoever is there by right tries again. Nobody who counts
    /// too far takes us along, but if we were away for so long that it may be we who are behind.
    pub(super) fn raise(&mut self, now: Time, ballot: Ballot) -> bool {
        let most = self.most_attempts(now);
        let counts = ballot.attempt <= most;
        if counts || self.recovering.is_some() {
            self.attempt = self.attempt.max(ballot.attempt.min(most));
        }
        counts
    }

    /// Notes the attempt of a ballot that is said to stand against ours, but no higher than leaves us another attempt.
    pub(super) fn raise_by_word(&mut self, now: Time, ballot: Ballot) {
        let most = self.most_own_attempts(now).saturating_sub(1);
        self.attempt = self.attempt.max(ballot.attempt.min(most));
    }

    /// Whether a correct proposer may propose this in our view: it follows the view, takes in nobody who has not asked, takes its vote
    /// from nobody, counts up by no more than others may have done meanwhile, and goes on from a step that the run has.
    pub(super) fn may_be_followed_by(&self, proposal: &Proposal, last_step: u64) -> bool {
        let (next, view) = (&proposal.view, &self.view);
        let asked = |peer: &PeerId| proposal.joiners.iter().any(|joiner| joiner.contact.peer == *peer);
        let generations = view.generation.0.saturating_add(1)..=view.generation.0.saturating_add(MAX_RISE);
        next.run == view.run
            && next.parent == Some(self.id)
            && next.branch == view.branch
            && next.quorum == view.quorum
            && generations.contains(&next.generation.0)
            && proposal.resume.step <= last_step
            && next.members().iter().all(|peer| view.contains(*peer) || asked(peer))
            && next.newcomers().iter().all(|peer| !view.votes(*peer))
    }

    /// The other members.
    pub(super) fn others(&self, me: PeerId) -> Vec<PeerId> {
        self.view.members().iter().copied().filter(|peer| *peer != me).collect()
    }

    /// Whether we believe that this member can take part: a broken link does not keep it from that.
    pub(super) fn trusts(&self, peer: PeerId) -> bool {
        matches!(self.suspects.get(&peer), None | Some(Evidence::LinkFailed))
    }

    /// The member that is to propose: the first one that nobody has spoken against, as far as we know, and that stays if there is
    /// one: what is decided is told by who is there to tell it again.
    pub(super) fn proposer(&self, me: PeerId) -> PeerId {
        let is_sound =
            |peer: &PeerId| *peer == me || (self.trusts(*peer) && self.suspicion_reports.of(*peer).is_none());
        let sound = || self.precedence.iter().copied().filter(is_sound);
        sound().find(|peer| !self.leavers.contains(peer)).or_else(|| sound().next()).unwrap_or(me)
    }

    /// How many trusted members stand before us.
    pub(super) fn stagger(&self, me: PeerId) -> u32 {
        let before = self.precedence.iter().take_while(|peer| **peer != me).filter(|peer| self.trusts(**peer));
        u32::try_from(before.count().min(MAX_STAGGER)).expect("invariant: bounded above")
    }

    /// The members that we can't reach, sorted: those that we miss, those to which a link failed again, and those that the
    /// view says we can't reach, unless we have heard from them since.
    pub(super) fn unreachable(&self, me: PeerId) -> Vec<PeerId> {
        let given_up = |peer: &PeerId| self.broken.get(peer).is_some_and(|broken| broken.again);
        let is_apart = |peer: &PeerId| !self.heard.contains(peer) || given_up(peer) || self.owing.contains_key(peer);
        let apart = self.severed_from(me).filter(is_apart);
        let owing = self.owing.iter().filter(|(_, owing)| owing.tries > 1).map(|(peer, _)| *peer);
        let missed = self.suspects.iter().filter(|(peer, evidence)| match evidence {
            Evidence::Closed | Evidence::Silent(_) | Evidence::Unanswered => true,
            Evidence::LinkFailed => given_up(peer),
            Evidence::Restarted | Evidence::Elsewhere | Evidence::Misbehaved | Evidence::Revoked => false,
        });
        let unreachable: BTreeSet<PeerId> = apart.chain(missed.map(|(peer, _)| *peer)).chain(owing).collect();
        unreachable.into_iter().collect()
    }

    /// Whether this member has taken part in all steps of the view, as far as we know: then nobody is more than one ahead of it.
    pub(super) fn is_steady(&self, peer: PeerId) -> bool {
        self.recovering.is_none() && !self.syncing.contains(&peer)
    }

    /// Whether we have heard this member within `limit`, and miss it for no other reason.
    pub(super) fn hears(&self, now: Time, peer: PeerId, limit: Duration) -> bool {
        let is_missed = self.suspects.contains_key(&peer) || self.suspicion_reports.of(peer).is_some();
        !is_missed && self.heard.contains(&peer) && self.detector.last_heard(peer).is_some_and(|at| now - at <= limit)
    }

    /// Our link to this member has failed after `step`.
    pub(super) fn note_broken(&mut self, now: Time, peer: PeerId, step: u64) {
        let again = self.broken.get(&peer).is_some_and(|broken| broken.step == step);
        self.broken.insert(peer, Broken { step, at: now, again });
    }

    /// This member's process is another one now. Links end with their process: there is nothing about ours to damp.
    pub(super) fn note_restarted(&mut self, peer: PeerId) {
        self.suspects.insert(peer, Evidence::Restarted);
        self.broken.remove(&peer);
    }

    /// The members to which our link has failed of late, sorted, if `step` is the last one now.
    pub(super) fn failed_of_late(&self, config: &Config, now: Time, step: u64) -> Vec<PeerId> {
        let is_near = |broken: &Broken| LinkFailures::are_near(config, (broken.step, broken.at), (step, now));
        self.broken.iter().filter(|(_, broken)| is_near(broken)).map(|(peer, _)| *peer).collect()
    }

    /// The members that the view says `peer` can't reach.
    pub(super) fn severed_from(&self, peer: PeerId) -> impl Iterator<Item = PeerId> + '_ {
        let pairs = self.view.severed().iter();
        pairs.filter_map(move |(a, b)| if *a == peer { Some(*b) } else { (*b == peer).then_some(*a) })
    }

    /// Whom we tell that we live, and who tells us.
    pub(super) fn neighbours(&self, me: PeerId) -> BTreeSet<PeerId> {
        let members = self.view.members();
        let Ok(place) = members.binary_search(&me) else { return BTreeSet::new() };
        let reach = NEIGHBOURS.min(members.len());
        let around = (0..=2 * reach).map(|offset| members[(place + members.len() + offset - reach) % members.len()]);
        // Whoever stands beside a member may be severed from it: a hub is not.
        let hubs = &self.hubs[..self.hubs.len().min(WATCHING_HUBS)];
        let watched = if hubs.contains(&me) { members } else { hubs };
        let all = around.chain(watched.iter().copied());
        all.filter(|peer| *peer != me && !self.view.is_severed(me, *peer)).collect()
    }

    /// Whether the decree at hand is ours and of this ballot, at this stage.
    pub(super) fn is_at(&self, ballot: Ballot, stage: Stage) -> bool {
        self.decree.as_ref().is_some_and(|decree| decree.ballot == ballot && decree.stage == stage)
    }

    /// Whether a ballot is put to this member: to those we can reach, also if they are to go, and after a failure to all
    /// that may have come back. Who comes back from a record knows at first only of those who did the same.
    pub(super) fn asks(&self, peer: PeerId, again: bool) -> bool {
        if let Some(recovering) = self.recovering.as_ref().filter(|_| !again) {
            return recovering.returned.contains(&peer);
        }
        match self.suspects.get(&peer) {
            None | Some(Evidence::LinkFailed | Evidence::Elsewhere | Evidence::Restarted) => true,
            Some(Evidence::Misbehaved) => true, // It votes until others have seen it too.
            Some(Evidence::Revoked) => false,
            Some(Evidence::Closed | Evidence::Silent(_) | Evidence::Unanswered) => again,
        }
    }

    /// Whether it is worth waiting for this member's promise. If we can't reach it ourselves but somebody else can, it
    /// is: that one will propose instead, and evict nobody.
    pub(super) fn expects(&self, peer: PeerId, decree: &Decree) -> bool {
        if decree.refused.contains(&peer) && decree.late {
            return false;
        }
        if self.recovering.as_ref().is_some_and(|recovering| !recovering.returned.contains(&peer)) {
            return false;
        }
        let is_told = self.suspicion_reports.of(peer).is_some();
        match self.suspects.get(&peer) {
            None | Some(Evidence::LinkFailed | Evidence::Misbehaved) => true,
            Some(Evidence::Elsewhere | Evidence::Restarted | Evidence::Revoked) => false,
            // Two connections that close are a death. One that never was tells nothing: whoever has joined may reach others alone.
            Some(Evidence::Closed) if is_told && self.heard.contains(&peer) => false,
            // All who watch notice silence at about the same time: who does not say so may hear it.
            Some(Evidence::Silent(_) | Evidence::Unanswered) if is_told => {
                let watching = self.neighbours(peer);
                self.who_reaches(peer, decree, |other| watching.contains(other)).is_some()
            }
            Some(Evidence::Closed | Evidence::Silent(_) | Evidence::Unanswered) => {
                self.who_reaches(peer, decree, |_| true).is_some()
            }
        }
    }

    /// How the view went on, if others made it.
    pub(super) fn resumed(&self) -> Option<&ResumePlan> {
        self.origin.as_ref().map(|origin| &origin.resume)
    }

    /// The step that the view goes on from.
    pub(super) fn least(&self) -> u64 {
        self.origin.as_ref().map_or(0, |origin| origin.resume.step)
    }

    /// Whether one of those who promised holds what the view goes on from, or can get there.
    pub(super) fn is_reached(&self, decree: &Decree) -> bool {
        is_reached(self.least(), &decree.promises)
    }

    /// The member that has promised and may reach `peer`: of several one with a vote, whose turn it may be, and the one that reaches most
    /// others, which may be a hub.
    fn who_reaches(&self, peer: PeerId, decree: &Decree, may_be: impl Fn(&PeerId) -> bool) -> Option<PeerId> {
        let may_be = |other: &PeerId| *other != decree.ballot.proposer && may_be(other);
        let others = decree.promises.iter().filter(|(other, _)| may_be(other));
        let misses = |other: &PeerId, promised: &Promise| {
            promised.unreachable.contains(&peer) || self.suspicion_reports.knows(*other, peer)
        };
        let reach = others.filter(|(other, promised)| !promised.leaving && !misses(other, promised));
        let reach = reach.map(|(other, promised)| (!self.view.votes(*other), promised.unreachable.len(), *other));
        reach.min().map(|(.., other)| other)
    }

    /// The member that should propose in our place, if we suspect one that it may reach, or have no link to that, or hear that one and
    /// get no answer: what we say may not get there. Who was heard within `limit` is.
    pub(super) fn agent(&self, now: Time, limit: Duration, me: PeerId, decree: &Decree) -> Option<PeerId> {
        let missing = self.others(me).into_iter().filter(|peer| !decree.promises.contains_key(peer));
        let mut unreached = missing.filter(|peer| {
            // Whoever misbehaved is missed by nobody.
            // Who has yet to come to a boundary answers once it has.
            let is_deaf = decree.boundary.is_none() && self.hears(now, *peer, limit);
            let is_apart = is_deaf || self.suspects.contains_key(peer) || self.view.is_severed(me, *peer);
            is_apart && !self.accused.contains(peer) && self.expects(*peer, decree)
        });
        let agent = unreached.find_map(|peer| self.who_reaches(peer, decree, |other| !self.agents.contains(other)));
        // One of so many is honest, and may have been right.
        agent.filter(|_| self.agents.len() <= self.view.most_hostile())
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// In which order the members of `view` propose: those first that vote, of these those that can reach most, and of these the lowest.
fn precedence(view: &View) -> Vec<PeerId> {
    let mut severed: BTreeMap<PeerId, usize> = BTreeMap::new();
    for (a, b) in view.severed() {
        *severed.entry(*a).or_default() += 1;
        *severed.entry(*b).or_default() += 1;
    }
    let mut order = view.members().to_vec();
    order.sort_by_key(|peer| (!view.votes(*peer), severed.get(peer).copied().unwrap_or(0)));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    /// A seat of the first of five members, and its ballot, which these have promised, each with whom it can't reach.
    fn promised(promises: &[(u8, &[u8])]) -> (Seat, Decree) {
        let view = View::found(RunId([7; 32]), peer(1)).succeed((1..=5).map(peer));
        let mut decree = Decree::new(Ballot { attempt: 1, proposer: peer(1) }, None, Stage::Promising);
        for (by, missed) in promises {
            let unreachable = missed.iter().map(|name| peer(*name)).collect();
            decree.promises.insert(peer(*by), Promise { unreachable, ..Promise::at(Progress::default()) });
        }
        (Seat::new(view, None, &Config::default(), Time::ZERO), decree)
    }

    #[test]
    fn silence_is_waited_for_while_one_that_watches_does_not_tell_of_it() {
        let expects = |evidence, promises: &[(u8, &[u8])], told: &[u8]| {
            let (mut seat, decree) = promised(promises);
            seat.heard.insert(peer(5));
            seat.suspects.insert(peer(5), evidence);
            told.iter().for_each(|by| _ = seat.suspicion_reports.report(peer(*by), peer(5), evidence));
            seat.expects(peer(5), &decree)
        };
        let silent = Evidence::Silent(Duration::from_secs(6));
        assert!(expects(silent, &[(2, &[5]), (3, &[])], &[2]));
        assert!(!expects(silent, &[(2, &[5]), (3, &[])], &[2, 3]), "it has told of it since");
        assert!(!expects(silent, &[(2, &[5]), (3, &[5])], &[2]));
        assert!(expects(Evidence::Closed, &[(2, &[]), (3, &[])], &[]));
        assert!(!expects(Evidence::Closed, &[(2, &[5]), (3, &[])], &[2]), "so deaths look");
        let (mut seat, decree) = promised(&[(2, &[5]), (3, &[])]);
        seat.suspects.insert(peer(5), Evidence::Closed);
        seat.suspicion_reports.report(peer(2), peer(5), Evidence::Closed);
        assert!(seat.expects(peer(5), &decree), "it never spoke here, and the third may reach it");
    }

    #[test]
    fn whom_we_hear_and_get_no_answer_from_another_asks() {
        let (mut seat, mut decree) = promised(&[(2, &[5]), (3, &[])]);
        let limit = Duration::from_secs(1);
        let agent = |seat: &Seat, decree: &Decree, at: Time| seat.agent(at, limit, peer(1), decree);
        assert_eq!(agent(&seat, &decree, Time::ZERO), None, "nobody has heard it yet");
        seat.detector.watch(Time::ZERO, [peer(5)]);
        seat.heard.insert(peer(5));
        assert_eq!(agent(&seat, &decree, Time::ZERO + limit), Some(peer(3)));
        assert_eq!(agent(&seat, &decree, Time::ZERO + limit * 2), None, "it may be gone");
        decree.boundary = Some(7);
        assert_eq!(agent(&seat, &decree, Time::ZERO), None, "it may have yet to come there");
    }

    #[test]
    fn links_that_ended_with_a_process_are_not_given_up() {
        let (mut seat, _) = promised(&[]);
        let fail = |seat: &mut Seat| {
            seat.note_broken(Time::ZERO, peer(5), 7);
            seat.suspects.insert(peer(5), Evidence::LinkFailed);
        };
        (0..2).for_each(|_| fail(&mut seat));
        assert!(seat.unreachable(peer(1)).contains(&peer(5)), "its link failed twice in a step");
        (0..2).for_each(|_| {
            fail(&mut seat);
            seat.note_restarted(peer(5));
        });
        fail(&mut seat);
        assert!(!seat.unreachable(peer(1)).contains(&peer(5)), "that of its new process has failed but once");
    }
}

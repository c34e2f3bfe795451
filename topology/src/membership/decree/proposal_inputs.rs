//! What a proposer proposes if it is free to choose: a pure function of the promises that it holds.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use crate::config::Config;
use crate::id::{Generation, PeerId, ViewId};
use crate::membership::decree::claims::Claims;
use crate::membership::decree::link_matrix::LinkMatrix;
use crate::membership::decree::losses::{missed, restarted_in, signable};
use crate::membership::decree::votes::Votes;
use crate::membership::outside::suspicion_reports::SuspicionReports;
use crate::membership::running::link_failures::LinkFailures;
use crate::message::Evidence;
use crate::message::stall_report::owed;
use crate::time::Time;
use crate::view::lineage::Lineage;
use crate::view::mark::LostState;
use crate::view::obstacles::Obstacles;
use crate::view::ring::{is_way, ring_around};
use crate::view::{MAX_SEVERED, View};
use crate::vote::promise::Promise;
use crate::vote::proposal::{JoinRequest, MAX_REASONS, MAX_SOURCES, Progress, Proposal, Reason, ResumePlan};
use crate::vote::quorum::Quorum;

/// All that a proposal follows from.
#[derive(Debug)]
pub(in crate::membership) struct ProposalInputs<'a> {
    pub(in crate::membership) config: &'a Config,
    pub(in crate::membership) view: &'a View,
    /// How the view went on.
    pub(in crate::membership) resumed: Option<&'a ResumePlan>,
    pub(in crate::membership) promises: &'a BTreeMap<PeerId, Promise>,
    /// Members that can't stay, and why.
    pub(in crate::membership) excluded: &'a BTreeMap<PeerId, Evidence>,
    /// Members that have lost their seats, and ask to be let in.
    pub(in crate::membership) restarted: &'a BTreeSet<PeerId>,
    /// What others saw of members that did not promise.
    pub(in crate::membership) suspicion_reports: &'a SuspicionReports,
    /// Pairs of members whose link failed. The next view tries it anew, unless they say that they can't.
    pub(in crate::membership) failed: Vec<(PeerId, PeerId)>,
    pub(in crate::membership) candidates: Vec<JoinRequest>,
    /// What links cost.
    pub(in crate::membership) link_matrix: &'a LinkMatrix,
    /// If no member holds the state: the candidate from whose state all go on.
    pub(in crate::membership) donor: Option<PeerId>,
    /// Whether another plan is worth a change of view, as far as the proposer sees.
    pub(in crate::membership) outdated: bool,
    /// Whether the next view is unsteady.
    pub(in crate::membership) steadiness: Steadiness<'a>,
    pub(in crate::membership) forked: bool,
    /// A mistake: whoever stands in the way of a ring goes, though a hub reaches it.
    pub(in crate::membership) needs_ring: bool,
    /// A mistake: whoever has no vote goes first where links are down, whoever is in the way.
    pub(in crate::membership) spares_nobody: bool,
}

/// How it is found whether a view is unsteady.
#[derive(Debug)]
pub(in crate::membership) enum Steadiness<'a> {
    /// Its proposer says it.
    Said(bool),
    /// From the links that have failed, by now.
    Seen(&'a LinkFailures, Time),
}

/// So many pairs are tried one by one whether there is a way without them.
const MAX_TRIED: usize = 64;

impl ProposalInputs<'_> {
    /// The step that the view went on from.
    pub(in crate::membership) fn least(&self) -> u64 {
        self.resumed.map_or(0, |resume| resume.step)
    }

    /// The next view and how its members go on; `None` if nobody in it would hold the replicated state, or they would go back behind one
    /// that somebody else may hold.
    pub(in crate::membership) fn answer(mut self) -> Option<Proposal> {
        let mut staying: BTreeMap<PeerId, Progress> = BTreeMap::new();
        let claims = Claims::new(self.view, self.resumed, self.promises);
        let (convicted, believed) = (claims.convicted(), claims.believed());
        for (peer, promised) in self.promises {
            if !promised.leaving && !self.excluded.contains_key(peer) && !convicted.contains(peer) {
                staying.insert(*peer, believed[peer]);
            }
        }
        // Those who come back from a record may have been behind when they died, and those who wait for members may not have
        // what their view goes on from yet.
        let steady = |peer: &PeerId| {
            let is_steady = |promised: &Promise| !promised.recovering && believed[peer].step >= self.least();
            self.promises.get(peer).is_some_and(is_steady)
        };
        // Whoever alone holds the newest state can't leave yet, and is welcome even if it comes back from a record.
        let can_stay = |peer: &PeerId, promised: &Promise| match self.excluded.get(peer) {
            None => !convicted.contains(peer),
            Some(Evidence::Restarted | Evidence::Elsewhere) => promised.recovering,
            Some(_) => false,
        };
        let holders = || {
            let held = believed.iter().filter(|(_, progress)| progress.has_state);
            held.filter(|(peer, _)| can_stay(peer, &self.promises[peer]))
        };
        let newest = |progress: &Progress, peer: PeerId| (progress.step, Reverse(peer));
        if staying.iter().any(|(peer, progress)| progress.has_state && steady(peer)) {
            // A step that was committed in this view counts, also if all who took it have died since.
            let (id, reached) = (self.view.id(), staying.values().map(|progress| progress.step).max());
            let ahead = |progress: &Progress| progress.lineage.view == id && Some(progress.step) > reached;
            let holder = holders().filter(|(_, progress)| ahead(progress));
            if let Some((peer, progress)) = holder.max_by_key(|(peer, progress)| newest(progress, **peer)) {
                staying.insert(*peer, *progress);
            }
        } else {
            let holder = holders().max_by_key(|(peer, progress)| newest(progress, **peer));
            let reached = staying.values().filter(|progress| progress.has_state).map(|progress| progress.step).max();
            match holder {
                Some((_, progress)) if Some(progress.step) <= reached => {}
                Some((peer, progress)) => drop(staying.insert(*peer, *progress)),
                None => drop(self.donor?),
            }
        }
        if self.donor.is_none() {
            // No more come in one go than members stay a quorum of with the casting vote, once all vote.
            self.candidates.truncate(self.view.quorum.most_added(staying.len()));
        }
        let donor = self.candidates.iter().find(|candidate| Some(candidate.contact.peer) == self.donor);
        let mut doubted = BTreeSet::new();
        let resumed = |staying: &BTreeMap<PeerId, Progress>, severed: &[(PeerId, PeerId)]| match donor {
            None => resume(self.view.id(), staying, severed, &self.candidates),
            Some(donor) => resume_from(donor, staying, &self.candidates),
        };
        let (severed, resume) = loop {
            // Who was in the way of one that is of no use need not be in that of the others.
            let mut left = staying.clone();
            doubted.clear();
            let severed = self.sever(&mut left, &mut doubted);
            let resume = resumed(&left, &severed);
            match stranded(&left, &severed, &resume) {
                Some(peer) => drop(staying.remove(&peer)),
                None => {
                    staying = left;
                    break (severed, resume);
                }
            }
        };
        let has_failed = !self.fresh(&staying, &severed).is_empty();
        let is_unsteady = self.is_unsteady(has_failed.then_some(resume.step));
        let (severed, resume) = match is_unsteady {
            true => self.damp(&staying, severed, resumed),
            false => (severed, resume),
        };
        let signable = signable(self.config, &claims);
        if !self.forked && missed(self.view, self.promises, self.restarted, resume.step, signable).is_some() {
            return None; // Who is not there may hold what is stable.
        }
        let votes = Votes::of(&self, &staying, &resume);
        let mut reasons = self.reasons(&staying, &severed, &convicted, &votes);
        // From whichever branch they come, they go to no view that is not later than theirs.
        let theirs = self.candidates.iter().map(|candidate| candidate.generation);
        let generation = theirs.fold(self.view.generation, Generation::max);
        let joiners = self.candidates.iter().map(|candidate| candidate.contact.peer);
        let mut view = self.view.succeed(staying.keys().copied().chain(joiners)).with_severed(severed);
        view = view.with_unsteady(is_unsteady).with_newcomers(votes.newcomers);
        if doubted.contains(&view.casting()) {
            let is_sound = |peer: &PeerId| view.votes(*peer) && !doubted.contains(peer);
            let other = self.view.voters().find(is_sound);
            view = other.into_iter().fold(view, View::with_casting);
        }
        view.generation = generation.next();
        view.forked |= self.forked;
        view = self.link_matrix.put_into(view);
        reasons.extend(match (self.view.is_unsteady(), view.is_unsteady()) {
            (false, true) => Some(Reason::Unsteady),
            (true, false) => Some(Reason::Steady),
            (false, false) | (true, true) => None,
        });
        reasons.truncate(MAX_REASONS);
        if reasons.is_empty() {
            let differs = view.costs() != self.view.costs() || view.severed() != self.view.severed();
            let replanned = self.outdated && differs;
            reasons.push(if replanned { Reason::Replanned } else { Reason::StoodStill });
        }
        Some(Proposal {
            view,
            resume,
            reasons,
            joiners: self.candidates,
            promised: count(self.promises.keys().filter(|peer| self.view.votes(**peer)).count()),
            of: count(self.view.voter_count()),
        })
    }

    /// Where nobody who holds the state was there all the time: the newest step that voters bring, if more say so than may be lying. It may
    /// be stable, and who holds it does not go for a link that failed to one who was still down.
    fn irreplaceable(&self, staying: &BTreeMap<PeerId, Progress>) -> Option<u64> {
        let was_there = |(peer, progress): (&PeerId, &Progress)| {
            let came_back = self.promises.get(peer).is_none_or(|promised| promised.recovering);
            progress.has_state && !came_back && progress.step >= self.least()
        };
        if staying.iter().any(was_there) {
            return None;
        }
        let held =
            || staying.iter().filter(|(peer, it)| it.has_state && self.view.votes(**peer)).map(|(_, it)| it.step);
        let newest = held().max()?;
        let hidden = if self.view.quorum == Quorum::TwoThirds { self.view.most_hostile() } else { 0 };
        (held().filter(|step| *step == newest).count() > hidden).then_some(newest)
    }

    /// The severed pairs among those who stay. Where no ring leads around them, all stay if one of them is severed from nobody: they reduce by a
    /// star. Else those go who are [in the way](Obstacles). The last one with the state stays, and the last one with what is
    /// [irreplaceable](Self::irreplaceable). Where a voter goes that can't reach one alone of those who stay, that one may be as wrong as it is,
    /// and is `doubted`: whoever is not has the casting vote rather. A liar that alone stays of the two would else decide what it
    /// likes, or nothing.
    fn sever(&self, staying: &mut BTreeMap<PeerId, Progress>, doubted: &mut BTreeSet<PeerId>) -> Vec<(PeerId, PeerId)> {
        // Who accuses another has no link to it, whichever of the two is wrong.
        let named = |promise: &Promise| promise.unreachable.iter().chain(&promise.accused).copied().collect::<Vec<_>>();
        let told = self.promises.iter().flat_map(|(a, promise)| named(promise).into_iter().map(|b| (*a, b)));
        let told: BTreeSet<(PeerId, PeerId)> = told.collect();
        let kept = self.irreplaceable(staying);
        let holds = |(peer, it): (&PeerId, &Progress)| {
            (*peer, it.has_state && kept.is_none_or(|step| it.step == step && self.view.votes(*peer)))
        };
        let members: BTreeMap<PeerId, bool> = staying.iter().map(holds).collect();
        let is_way = |members: &[PeerId], severed: &[(PeerId, PeerId)]| {
            severed.len() <= MAX_SEVERED && self.is_way(members, severed)
        };
        let obstacles = Obstacles::among(self.view, &members, &told, &is_way);
        let gone = if self.spares_nobody { obstacles.worst_first().into_iter().collect() } else { obstacles.find() };
        staying.retain(|peer, _| !gone.contains(peer));
        for peer in gone.iter().filter(|peer| self.view.votes(**peer)) {
            let is_apart = |other: &&PeerId| told.contains(&(*peer, **other)) || told.contains(&(**other, *peer));
            let apart: Vec<PeerId> = staying.keys().filter(is_apart).take(2).copied().collect();
            doubted.extend(if let [one] = apart[..] { Some(one) } else { None });
        }
        let members: Vec<PeerId> = staying.keys().copied().collect();
        self.sever_owed(&members, obstacles.severed_without(&gone))
    }

    fn is_way(&self, members: &[PeerId], severed: &[(PeerId, PeerId)]) -> bool {
        if self.needs_ring { ring_around(members, severed).is_some() } else { is_way(members, severed) }
    }

    /// These, and the pairs that do not get to each other what one owes the other, as far as there is a way without them: nobody has
    /// to go for a segment that may just have been lost.
    fn sever_owed(&self, members: &[PeerId], mut severed: Vec<(PeerId, PeerId)>) -> Vec<(PeerId, PeerId)> {
        let stay = |(a, b): &(PeerId, PeerId)| members.contains(a) && members.contains(b);
        // Nor do all take a star for it.
        let has_ring = ring_around(members, &severed).is_some();
        let is_way = |severed: &[(PeerId, PeerId)]| match has_ring {
            true => ring_around(members, severed).is_some(),
            false => self.is_way(members, severed),
        };
        for pair in self.owed().filter(stay) {
            if let Err(at) = severed.binary_search(&pair)
                && severed.len() < MAX_SEVERED
            {
                severed.insert(at, pair);
                if !is_way(&severed) {
                    severed.remove(at);
                }
            }
        }
        severed
    }

    /// The pairs that do not get to each other what one owes the other, lower one first.
    fn owed(&self) -> impl Iterator<Item = (PeerId, PeerId)> + '_ {
        owed(self.promises).map(|(a, b)| (a.min(b), a.max(b)))
    }

    fn reasons(
        &self,
        staying: &BTreeMap<PeerId, Progress>,
        severed: &[(PeerId, PeerId)],
        convicted: &BTreeSet<PeerId>,
        votes: &Votes,
    ) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if self.forked {
            reasons.push(Reason::Forked);
        }
        if staying.keys().any(|peer| self.promises.get(peer).is_some_and(|promised| promised.recovering)) {
            reasons.push(Reason::Recovered);
        }
        for peer in self.view.members().iter().copied().filter(|peer| !staying.contains_key(peer)) {
            reasons.push(match (self.excluded.get(&peer), self.promises.get(&peer)) {
                (Some(Evidence::Restarted), _) => Reason::Restarted(peer),
                (_, Some(promised)) if promised.leaving => Reason::Left(peer),
                (Some(Evidence::Revoked), _) => Reason::Lost { peer, evidence: Evidence::Revoked },
                // Also one that has promised nothing.
                _ if convicted.contains(&peer) => Reason::Lost { peer, evidence: Evidence::Misbehaved },
                (Some(evidence), _) => Reason::Lost { peer, evidence: *evidence },
                (None, Some(_)) => Reason::Lost { peer, evidence: Evidence::LinkFailed },
                (None, None) => {
                    let evidence = self.suspicion_reports.of(peer).unwrap_or(Evidence::Unanswered);
                    Reason::Lost { peer, evidence }
                }
            });
        }
        reasons.extend(self.fresh(staying, severed).into_iter().map(|(a, b)| Reason::Severed(a, b)));
        reasons.extend(self.candidates.iter().map(|candidate| Reason::Joined(candidate.contact.peer)));
        reasons.extend(votes.given.iter().map(|peer| Reason::Votes(*peer)));
        reasons
    }

    /// The pairs of those who stay whose link has failed since the view began: those that are `severed` now, and those that are to be tried
    /// again. Among these are pairs without which there is no way: who waits in vain once more gives the other one up.
    fn fresh(&self, staying: &BTreeMap<PeerId, Progress>, severed: &[(PeerId, PeerId)]) -> BTreeSet<(PeerId, PeerId)> {
        let failed = self.failed.iter().map(|(a, b)| (*a.min(b), *a.max(b))).chain(self.owed());
        let tried = failed.filter(|(a, b)| staying.contains_key(a) && staying.contains_key(b));
        tried.chain(severed.iter().copied()).filter(|(a, b)| !self.view.is_severed(*a, *b)).collect()
    }

    /// Whether the next view is unsteady, if links have `failed` after that step, or none has.
    fn is_unsteady(&self, failed: Option<u64>) -> bool {
        match self.steadiness {
            Steadiness::Said(unsteady) => unsteady,
            Steadiness::Seen(seen, now) => seen.call_for(self.config, now, self.view.is_unsteady(), failed),
        }
    }

    /// These pairs, and those that an unsteady view damps: whose link has failed of late, as one of the two says, or that were severed
    /// before. As far as there is a way without them, and each gets what it needs from somebody: nobody goes for a link that may
    /// be there. With how all go on then.
    fn damp(
        &self,
        staying: &BTreeMap<PeerId, Progress>,
        severed: Vec<(PeerId, PeerId)>,
        resumed: impl Fn(&BTreeMap<PeerId, Progress>, &[(PeerId, PeerId)]) -> ResumePlan,
    ) -> (Vec<(PeerId, PeerId)>, ResumePlan) {
        let members: Vec<PeerId> = staying.keys().copied().collect();
        let say = self.promises.iter().flat_map(|(a, promise)| promise.failed.iter().map(|b| (*a, *b)));
        let failed =
            say.map(|(a, b)| (a.min(b), a.max(b))).chain(self.owed()).chain(self.view.severed().iter().copied());
        let is_new = |pair: &(PeerId, PeerId)| severed.binary_search(pair).is_err();
        let stay = |(a, b): &(PeerId, PeerId)| a != b && staying.contains_key(a) && staying.contains_key(b);
        let damped: Vec<(PeerId, PeerId)> = failed.filter(stay).filter(is_new).collect();
        let with = |more: &[(PeerId, PeerId)]| {
            let all: BTreeSet<(PeerId, PeerId)> = severed.iter().chain(more).copied().collect();
            let all: Vec<(PeerId, PeerId)> = all.into_iter().collect();
            let resume = resumed(staying, &all);
            let is_way = all.len() <= MAX_SEVERED && self.is_way(&members, &all);
            let serves = is_way && stranded(staying, &all, &resume).is_none();
            serves.then_some((all, resume))
        };
        if let Some(all) = with(&damped) {
            return all;
        }
        let mut kept = Vec::new();
        for pair in damped.into_iter().take(MAX_TRIED) {
            kept.push(pair);
            if with(&kept).is_none() {
                kept.pop();
            }
        }
        with(&kept).unwrap_or_else(|| (severed.clone(), resumed(staying, &severed)))
    }
}

/// Whether one of those who promised holds the state after `least`, or can get there.
pub(in crate::membership) fn is_reached(least: u64, promises: &BTreeMap<PeerId, Promise>) -> bool {
    let all = || promises.values().map(|promised| promised.progress);
    let result = all().any(|progress| progress.has_result && progress.step >= least);
    let least = least.saturating_sub(u64::from(result));
    all().any(|progress| progress.has_state && progress.step >= least)
}

/// The candidate from whose state all go on, where no member holds what the view went on from. An older state that members hold is
/// replaced only where all of them came back from records, so that none has seen where the others stood, by somebody who was a
/// member, and by a newer one that was committed on the way to the view or in it, not beside that. Where no member holds any,
/// whoever was one may bring any, unless it was put out for what it did; who was one `earlier` than in the view before, one of the
/// view's branch. How far back it may be, and who those are, who proposes knows. Where members hold what the view went on from, and say
/// that they have lost a later state, that one counts alone.
pub(in crate::membership) fn donor(
    view: &View,
    origin: Option<&Proposal>,
    promises: &BTreeMap<PeerId, Promise>,
    candidates: &[JoinRequest],
    earlier: &BTreeSet<PeerId>,
) -> Option<PeerId> {
    let least = origin.map_or(0, |origin| origin.resume.step);
    let held = promises.values().map(|promise| promise.progress).filter(|progress| progress.has_state);
    let held = held.map(|progress| progress.step).max();
    let lost = sure_loss(view, promises).filter(|lost| Some(*lost) > held);
    let is_reached = is_reached(least, promises);
    if is_reached && lost.is_none() {
        return None;
    }
    let is_guilty = |reason: &&Reason| matches!(reason, Reason::Lost { evidence: Evidence::Misbehaved, .. });
    let reasons = || origin.iter().flat_map(|origin| &origin.reasons);
    let gone: Vec<PeerId> = reasons().filter(|reason| !is_guilty(reason)).filter_map(Reason::gone).collect();
    let guilty: Vec<PeerId> = reasons().filter(is_guilty).filter_map(Reason::gone).collect();
    let all_came_back = promises.values().all(|promise| promise.recovering);
    let was_here = |peer: PeerId| view.contains(peer) || gone.contains(&peer);
    let was_earlier = |peer: PeerId| earlier.contains(&peer) && !guilty.contains(&peer);
    let is_ours = |step: u64, lineage: Lineage| match step.cmp(&least) {
        Ordering::Less => lineage.branch == view.branch && lineage.generation < view.generation,
        Ordering::Equal => origin.is_none_or(|origin| lineage == origin.resume.lineage),
        Ordering::Greater => lineage == Lineage::of(view),
    };
    let holders = candidates.iter().filter_map(|joiner| Some((joiner.state?, joiner.contact.peer)));
    let counts = |((step, lineage), peer): &((u64, Lineage), PeerId)| match held {
        Some(held) => {
            let is_enough = *step > held && (!is_reached || lost == Some(*step));
            is_enough && all_came_back && was_here(*peer) && is_ours(*step, *lineage)
        }
        None => *step >= least || was_here(*peer) || (was_earlier(*peer) && is_ours(*step, *lineage)),
    };
    holders.filter(counts).max().map(|(_, peer)| peer)
}

/// The newest step that voters say they had saved and have lost, of which one at least is not hostile.
fn sure_loss(view: &View, promises: &BTreeMap<PeerId, Promise>) -> Option<u64> {
    let lost = |peer: PeerId| match promises.get(&peer)?.lost {
        LostState::Step(step) => Some(step),
        LostState::Nothing | LostState::Unknown => None,
    };
    let mut steps: Vec<u64> = view.voters().filter_map(lost).collect();
    steps.sort_unstable_by_key(|step| Reverse(*step));
    steps.get(view.most_hostile()).copied()
}

/// Whether `proposal` is what a proposer finds that has these promises, could not keep those whom it has `excluded`, and was
/// asked to let in whom it lets in. What links cost it may say as it likes, and whether they fail again and again: not what follows from
/// that.
pub(in crate::membership) fn follows(
    config: &Config,
    view: &View,
    origin: Option<&Proposal>,
    promises: &BTreeMap<PeerId, Promise>,
    excluded: &BTreeMap<PeerId, Evidence>,
    proposal: &Proposal,
) -> bool {
    let resumed = origin.map(|origin| &origin.resume);
    // Whether the one that it names was a member earlier, who accepts it asks what it knows itself: that is no breach of the rules.
    let named = proposal.resume.donors.iter().copied().collect();
    let donor = donor(view, origin, promises, &proposal.joiners, &named);
    let inputs = ProposalInputs {
        config,
        view,
        resumed,
        promises,
        excluded,
        restarted: &restarted_in(proposal),
        suspicion_reports: &SuspicionReports::default(),
        failed: Vec::new(),
        candidates: proposal.joiners.clone(),
        link_matrix: &LinkMatrix::of(&proposal.view),
        donor,
        outdated: false,
        steadiness: Steadiness::Said(proposal.view.is_unsteady()),
        forked: false,
        needs_ring: false,
        spares_nobody: false,
    };
    let joins = |peer: PeerId| proposal.joiners.iter().any(|joiner| joiner.contact.peer == peer);
    let stays = |peer: PeerId| proposal.view.contains(peer) && view.contains(peer);
    // Who comes back with what all go on from is lost and joins at once.
    let goes = |peer: PeerId| view.contains(peer) && (!stays(peer) || joins(peer));
    let convicted = Claims::new(view, resumed, promises).convicted();
    // Of who has promised, nothing is said that nobody has signed; of who has not, its proposer's word is all that there is.
    let is_shown = |peer: &PeerId, evidence: &Evidence| {
        let is_grave = matches!(evidence, Evidence::Misbehaved | Evidence::Revoked);
        let is_signed = convicted.contains(peer) || excluded.get(peer) == Some(evidence);
        !is_grave || is_signed || !promises.contains_key(peer)
    };
    let holds = |reason: &Reason| match reason {
        Reason::Lost { peer, evidence } => goes(*peer) && is_shown(peer, evidence),
        Reason::Restarted(peer) => goes(*peer),
        Reason::Left(peer) => goes(*peer) && promises.get(peer).is_some_and(|promise| promise.leaving),
        Reason::Joined(peer) => joins(*peer),
        Reason::Votes(peer) => proposal.view.votes(*peer) && !view.votes(*peer),
        Reason::Severed(a, b) => view.contains(*a) && view.contains(*b),
        Reason::Recovered => promises.values().any(|promise| promise.recovering),
        Reason::Forked => false,
        Reason::Unsteady => proposal.view.is_unsteady() && !view.is_unsteady(),
        Reason::Steady => view.is_unsteady() && !proposal.view.is_unsteady(),
        Reason::Replanned | Reason::StoodStill => true,
    };
    let strays = |joiner: &JoinRequest| view.contains(joiner.contact.peer);
    let alike = |answer: Proposal| {
        let Proposal { view, resume, joiners, promised, of, reasons: _ } = answer;
        let same = (&proposal.view, &proposal.resume, &proposal.joiners, proposal.promised, proposal.of);
        (&view, &resume, &joiners, promised, of) == same
    };
    let gone: Vec<PeerId> = proposal.reasons.iter().filter_map(Reason::gone).collect();
    let is_told_once = gone.iter().collect::<BTreeSet<_>>().len() == gone.len();
    (donor.is_some() || !proposal.joiners.iter().any(strays))
        && is_told_once
        && proposal.reasons.iter().all(holds)
        && inputs.answer().is_some_and(alike)
}

/// The highest step that the members can go on from, and who helps whom to get there: of many those that reach most others, so that hubs
/// are among them.
fn resume(
    view: ViewId,
    staying: &BTreeMap<PeerId, Progress>,
    severed: &[(PeerId, PeerId)],
    candidates: &[JoinRequest],
) -> ResumePlan {
    let mut apart: BTreeMap<PeerId, usize> = BTreeMap::new();
    severed.iter().flat_map(|(a, b)| [a, b]).for_each(|peer| *apart.entry(*peer).or_default() += 1);
    let apart = |peer: &PeerId| apart.get(peer).copied().unwrap_or(0);
    let full = staying.values().filter(|progress| progress.has_state).map(|progress| progress.step);
    let stated = full.max().unwrap_or(0);
    // A member that is still syncing may be the only one left that has reduced the last step.
    let ahead = staying.values().any(|progress| progress.has_result && stated.checked_add(1) == Some(progress.step));
    let step = stated.saturating_add(u64::from(ahead));
    let lineage = lineage(view, staying, step, ahead);
    let is_there = |progress: &Progress| progress.step == step && progress.lineage == lineage;
    let holds = |progress: &Progress| is_there(progress) && progress.has_result;
    let mut holders: Vec<PeerId> =
        staying.iter().filter(|(_, progress)| holds(progress)).map(|(peer, _)| *peer).collect();
    holders.sort_by_key(apart);
    holders.truncate(MAX_SOURCES);
    holders.sort_unstable();
    let reaches = |progress: &Progress| {
        progress.has_state
            && (is_there(progress) || (progress.step.checked_add(1) == Some(step) && !holders.is_empty()))
    };
    let mut donors: Vec<(bool, usize, PeerId)> = staying
        .iter()
        .filter(|(_, progress)| reaches(progress))
        .map(|(peer, progress)| (progress.step != step, apart(peer), *peer))
        .collect();
    donors.sort_unstable();
    donors.truncate(MAX_SOURCES);
    let donors: BTreeSet<PeerId> = donors.into_iter().map(|(.., peer)| peer).collect();
    let behind = staying.iter().filter(|(_, progress)| !reaches(progress)).map(|(peer, _)| *peer);
    // Who has been in a view and holds nothing has given up what it held, and can't draw the initial state any more.
    let has_lost = |candidate: &JoinRequest| candidate.generation.0 > 0 && candidate.state.is_none();
    let needs_state = |candidate: &&JoinRequest| step > 0 || candidate.step > 0 || has_lost(candidate);
    let joining = candidates.iter().filter(needs_state).map(|candidate| candidate.contact.peer);
    let syncing: BTreeSet<PeerId> = behind.chain(joining).collect();
    ResumePlan { step, lineage, holders, donors: donors.into_iter().collect(), syncing: syncing.into_iter().collect() }
}

/// Of the lineages in which members hold the state after `step`, or its result if nobody `ahead` holds the state: that of the
/// view that ends, as no other was committed by its members; else the one of most members; of several, the lowest.
fn lineage(view: ViewId, staying: &BTreeMap<PeerId, Progress>, step: u64, ahead: bool) -> Lineage {
    let counts = |progress: &&Progress| if ahead { progress.has_result } else { progress.has_state };
    let mut members: BTreeMap<Lineage, usize> = BTreeMap::new();
    for progress in staying.values().filter(|progress| progress.step == step).filter(counts) {
        *members.entry(progress.lineage).or_default() += 1;
    }
    let most = members.into_iter().max_by_key(|(lineage, count)| (lineage.view == view, *count, Reverse(*lineage)));
    most.map_or(Lineage::NONE, |(lineage, _)| lineage)
}

/// All go on from what a joiner still holds of an earlier view.
fn resume_from(donor: &JoinRequest, staying: &BTreeMap<PeerId, Progress>, candidates: &[JoinRequest]) -> ResumePlan {
    let donors = vec![donor.contact.peer];
    let all = staying.keys().copied().chain(candidates.iter().map(|candidate| candidate.contact.peer));
    let syncing: BTreeSet<PeerId> = all.filter(|peer| !donors.contains(peer)).collect();
    let (step, lineage) = donor.state.unwrap_or((0, Lineage::NONE));
    ResumePlan { step, lineage, holders: Vec::new(), donors, syncing: syncing.into_iter().collect() }
}

/// A member that needs the state, or the last result, and can reach nobody who has it: it would be of no use. Donors that lack the
/// result hand it on once they have it; those that have loaded the state after it never have it.
fn stranded(staying: &BTreeMap<PeerId, Progress>, severed: &[(PeerId, PeerId)], resume: &ResumePlan) -> Option<PeerId> {
    let apart = |a: PeerId, b: PeerId| severed.binary_search(&(a.min(b), a.max(b))).is_ok();
    let reaches = |peer: PeerId, sources: &[PeerId]| sources.iter().any(|it| *it != peer && !apart(*it, peer));
    let needs_state = |peer: PeerId| resume.syncing.binary_search(&peer).is_ok();
    let lacks_result = |peer: PeerId, it: &Progress| it.step != resume.step && !needs_state(peer);
    let mut sources = resume.holders.clone();
    let mut lacking: Vec<PeerId> =
        staying.iter().filter(|(peer, it)| lacks_result(**peer, it)).map(|(peer, _)| *peer).collect();
    loop {
        let (served, others): (Vec<_>, Vec<_>) = lacking.iter().copied().partition(|peer| reaches(*peer, &sources));
        lacking = others;
        sources.extend(served.iter().filter(|peer| resume.donors.binary_search(peer).is_ok()));
        if served.is_empty() {
            break;
        }
    }
    let cut_off = |peer: PeerId| match needs_state(peer) {
        true => !reaches(peer, &resume.donors),
        false => lacking.contains(&peer),
    };
    let stranded = staying.iter().filter(|(peer, _)| cut_off(**peer));
    // Rather one without the state.
    stranded.min_by_key(|(_, progress)| progress.has_state).map(|(peer, _)| *peer)
}

fn count(peers: usize) -> u32 {
    u32::try_from(peers).expect("invariant: members are bounded")
}

/// What promises lead to where nothing else is known: of no failures and no joiners, but for what `change` says.
#[cfg(test)]
pub(in crate::membership) fn answer_to(
    (view, resumed): (&View, Option<&ResumePlan>),
    promises: &BTreeMap<PeerId, Promise>,
    restarted: &BTreeSet<PeerId>,
    change: impl FnOnce(&mut ProposalInputs<'_>),
) -> Option<Proposal> {
    let (config, excluded) = (Config::default(), BTreeMap::new());
    let (suspicion_reports, link_matrix) = (SuspicionReports::default(), LinkMatrix::of(view));
    let mut inputs = ProposalInputs {
        config: &config,
        view,
        resumed,
        promises,
        excluded: &excluded,
        restarted,
        suspicion_reports: &suspicion_reports,
        failed: Vec::new(),
        candidates: Vec::new(),
        link_matrix: &link_matrix,
        donor: None,
        outdated: false,
        steadiness: Steadiness::Said(false),
        forked: false,
        needs_ring: false,
        spares_nobody: false,
    };
    change(&mut inputs);
    inputs.answer()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;

    fn peer(name: u8) -> PeerId {
        PeerId([name; 32])
    }

    /// Of as many members as these promise: of where they stand, whether with a state, and whether with the step's result.
    fn decided(least: u64, standings: &[(u64, bool, bool)]) -> Proposal {
        let view = View::found(RunId([7; 32]), peer(0)).succeed((0..standings.len() as u8).map(peer));
        let lineage = |step| if step > least { Lineage::of(&view) } else { Lineage::NONE };
        let promise = |(step, has_state, has_result): (u64, bool, bool)| {
            Promise::at(Progress { step, lineage: lineage(step), has_state, has_result })
        };
        let promises: BTreeMap<PeerId, Promise> =
            standings.iter().enumerate().map(|(at, stands)| (peer(at as u8), promise(*stands))).collect();
        answered(&view, least, &promises)
    }

    /// What these promises lead to in a view that began at the step `least`.
    fn answered(view: &View, least: u64, promises: &BTreeMap<PeerId, Promise>) -> Proposal {
        let origin = made_of(view, least, Vec::new());
        let answer = answer_to((view, Some(&origin.resume)), promises, &BTreeSet::new(), |_| {});
        let proposal = answer.expect("somebody holds a state");
        assert!(
            follows(&Config::default(), view, Some(&origin), promises, &BTreeMap::new(), &proposal),
            "who accepts it finds the same"
        );
        proposal
    }

    /// What `view` was made by, after `least` steps.
    fn made_of(view: &View, least: u64, reasons: Vec<Reason>) -> Proposal {
        let (lineage, donors) = (Lineage::NONE, vec![peer(0)]);
        let resume = ResumePlan { step: least, lineage, holders: Vec::new(), donors, syncing: Vec::new() };
        Proposal { view: view.clone(), resume, reasons, joiners: Vec::new(), promised: 0, of: 0 }
    }

    #[test]
    fn who_was_a_member_and_kept_what_all_lost_gives_it_back() {
        let view = View::found(RunId([7; 32]), peer(0)).succeed([0, 1].map(peer));
        let guilty = Reason::Lost { peer: peer(6), evidence: Evidence::Misbehaved };
        let origin = made_of(&view, 20, vec![Reason::Left(peer(8)), guilty]);
        let earlier = [6, 7].map(peer).into();
        let joiner = |name: u8, step: u64| JoinRequest {
            step,
            state: Some((step, Lineage::NONE)),
            branch: view.branch,
            generation: Generation(1),
            ..JoinRequest::new(crate::Contact { peer: peer(name), addresses: Vec::new() }, 1)
        };
        let found = |step: u64, recovering: bool, joiner: JoinRequest| {
            let progress = Progress { step, lineage: Lineage::NONE, has_state: step > 0, has_result: false };
            let promise = Promise { recovering, ..Promise::at(progress) };
            let promises = [0, 1].map(|name| (peer(name), promise.clone())).into();
            donor(&view, Some(&origin), &promises, &[joiner], &earlier)
        };
        assert_eq!(found(10, true, joiner(8, 20)), Some(peer(8)));
        assert_eq!(found(20, true, joiner(8, 30)), None, "what they have is enough");
        let lost = |lost: [LostState; 2], joiner: JoinRequest| {
            let progress = Progress { step: 20, lineage: Lineage::NONE, has_state: true, has_result: false };
            let promise = |lost| Promise { recovering: true, lost, ..Promise::at(progress) };
            donor(
                &view,
                Some(&origin),
                &[0, 1].map(peer).into_iter().zip(lost.map(promise)).collect(),
                &[joiner],
                &earlier,
            )
        };
        let of_view = |step: u64| JoinRequest { state: Some((step, Lineage::of(&view))), ..joiner(8, step) };
        let one = [LostState::Step(30), LostState::Nothing];
        assert_eq!(lost(one, of_view(30)), Some(peer(8)), "it brings what one of them has lost");
        assert_eq!(lost(one, of_view(31)), None, "nobody knows of that");
        assert_eq!((lost(one, joiner(8, 30)), lost([LostState::Nothing; 2], of_view(30))), (None, None));
        assert_eq!(found(10, true, joiner(8, 10)), None, "what it has is no newer");
        assert_eq!(found(10, true, joiner(8, 19)), Some(peer(8)), "what it has is newer");
        let beside = Lineage { generation: view.generation, ..Lineage::NONE };
        let beside = JoinRequest { state: Some((20, beside)), ..joiner(8, 20) };
        assert_eq!(found(10, true, beside), None, "it has gone on beside them");
        assert_eq!(found(10, true, joiner(8, 21)), None, "so has this one, in a view before");
        let later = JoinRequest { state: Some((21, Lineage::of(&view))), ..joiner(8, 21) };
        assert_eq!(found(10, true, later), Some(peer(8)), "committed in the view");
        assert_eq!(found(10, true, joiner(9, 20)), None, "a stranger's word is not");
        assert_eq!(found(10, false, joiner(8, 20)), None, "who was there knows where the others stood");
        assert_eq!(found(0, false, joiner(8, 19)), Some(peer(8)), "what it has is all that there is");
        assert_eq!(found(0, false, joiner(9, 19)), None, "what a stranger has may be anything");
        assert_eq!(found(0, false, joiner(7, 19)), Some(peer(7)), "it was a member some views ago");
        assert_eq!(found(10, true, joiner(7, 19)), None, "only where nobody holds any");
        assert_eq!(found(0, false, joiner(6, 19)), None, "it was put out for what it did");
        let elsewhere = Lineage { branch: view.branch + 1, ..Lineage::NONE };
        let elsewhere = JoinRequest { state: Some((19, elsewhere)), ..joiner(7, 19) };
        assert_eq!(found(0, false, elsewhere), None, "of another branch");
    }

    #[test]
    fn nobody_gives_up_a_state_for_one_that_a_few_say_they_have() {
        let honest = (23, true, true);
        // Also where an earlier decree has believed one that said it had the result of the next step.
        for least in [20, 24] {
            for claim in [(24, true, false), (25, true, true), (25, false, true), (60, true, true)] {
                let Proposal { view, resume, reasons, .. } = decided(least, &[honest, honest, honest, claim]);
                assert_eq!((resume.step, resume.syncing), (23, Vec::new()), "{claim:?}");
                assert_eq!(view.members(), [0, 1, 2].map(peer), "{claim:?}");
                assert_eq!(reasons, [Reason::Lost { peer: peer(3), evidence: Evidence::Misbehaved }], "{claim:?}");
            }
        }
    }

    #[test]
    fn who_alone_brings_back_the_newest_state_does_not_go_for_a_link() {
        let view = View::found(RunId([7; 32]), peer(0)).succeed((0..5).map(peer));
        let back = |step, unreachable: Vec<PeerId>| {
            let progress = Progress { step, lineage: Lineage::of(&view), has_state: true, has_result: false };
            Promise { unreachable, recovering: true, ..Promise::at(progress) }
        };
        let promises = [back(3, Vec::new()), back(3, Vec::new()), back(6, vec![peer(1)])];
        let promises: BTreeMap<PeerId, Promise> = (0..).map(peer).zip(promises).collect();
        let proposal = answered(&view, 0, &promises);
        assert_eq!((proposal.resume.step, proposal.view.members()), (6, &[peer(0), peer(2)][..]));
    }

    #[test]
    fn who_stays_of_two_of_which_one_had_to_go_has_no_casting_vote() {
        let casting = |founder: u8, newcomers: &[u8], said: &[(u8, &[u8], &[u8])]| {
            let view = View::found(RunId([7; 32]), peer(founder)).succeed((0..4).map(peer));
            let view = view.with_newcomers(newcomers.iter().map(|name| peer(*name)));
            let progress = Progress { step: 3, lineage: Lineage::of(&view), has_state: true, has_result: true };
            let named = |names: &[u8]| names.iter().map(|name| peer(*name)).collect();
            let promise = |(name, unreachable, accused): &(u8, &[u8], &[u8])| {
                let (unreachable, accused) = (named(unreachable), named(accused));
                (peer(*name), Promise { unreachable, accused, ..Promise::at(progress) })
            };
            let Proposal { view, .. } = answered(&view, 0, &said.iter().map(promise).collect());
            (view.members().to_vec(), view.casting())
        };
        let all = [0, 1, 3].map(peer).to_vec();
        // Whether it accuses the lowest one, or can't reach it, and whoever says so.
        let sound: (u8, &[u8], &[u8]) = (1, &[], &[]);
        for said in [[(0, &[][..], &[][..]), (3, &[], &[0])], [(0, &[3], &[]), (3, &[], &[])]] {
            let said = [said[0], sound, said[1]];
            for newcomers in [&[][..], &[3]] {
                assert_eq!(casting(2, newcomers, &said), (all.clone(), peer(0)), "a hub reaches both: {said:?}");
            }
        }
        assert_eq!(casting(2, &[], &[(0, &[], &[]), sound, (3, &[], &[])]), (all, peer(0)), "all get on");
        let between = [(0, &[1][..], &[][..]), sound, (3, &[1], &[])];
        assert_eq!(casting(2, &[], &between), ([0, 3].map(peer).to_vec(), peer(0)), "one of them is at both ends");
        assert_eq!(casting(0, &[], &[(0, &[3], &[]), (3, &[], &[])]), ([0].map(peer).to_vec(), peer(0)), "nobody else");
    }

    /// Who stays of members of which each names those that it can't reach.
    fn staying(named: &[&[u8]]) -> (Vec<u8>, usize) {
        let view = View::found(RunId([7; 32]), peer(0)).succeed((0..named.len() as u8).map(peer));
        let progress = Progress { step: 3, lineage: Lineage::of(&view), has_state: true, has_result: true };
        let promise = |named: &&[u8]| {
            let unreachable = named.iter().map(|name| peer(*name)).collect();
            Promise { unreachable, ..Promise::at(progress) }
        };
        let Proposal { view, .. } = answered(&view, 0, &(0..).map(peer).zip(named.iter().map(promise)).collect());
        let stays = (0..named.len() as u8).filter(|name| view.contains(peer(*name)));
        (stays.collect(), view.severed().len())
    }

    #[test]
    fn nobody_goes_as_long_as_one_reaches_all() {
        assert_eq!(staying(&[&[], &[2], &[1]]), (vec![0, 1, 2], 1), "the first one is a hub");
        assert_eq!(staying(&[&[1, 2], &[2], &[], &[]]), (vec![0, 1, 2, 3], 3), "so is the last one");
        assert_eq!(staying(&[&[1], &[], &[3], &[]]), (vec![0, 1, 2, 3], 2), "a ring leads around");
        assert_eq!(
            staying(&[&[1, 2], &[3], &[], &[]]),
            (vec![0, 2, 3], 1),
            "one goes, and the last one reaches the rest"
        );
        assert_eq!(staying(&[&[1], &[0]]), (vec![0], 0), "neither reaches all");
        assert_eq!(staying(&[&[1, 2], &[2], &[]]), (vec![0], 0), "nobody reaches anybody");
    }

    /// What follows from these promises, each with whom it can't reach and to whom its link has failed, in a view of which these pairs are
    /// severed, where the proposer says whether the next one is unsteady.
    fn damped(severed: &[(u8, u8)], said: &[(&[u8], &[u8])], unsteady: bool) -> Proposal {
        let named = |names: &[u8]| names.iter().map(|name| peer(*name)).collect::<Vec<_>>();
        let view = View::found(RunId([7; 32]), peer(0)).succeed((0..said.len() as u8).map(peer));
        let view = view.with_severed(severed.iter().map(|(a, b)| (peer(*a), peer(*b))));
        let progress = Progress { step: 3, lineage: Lineage::of(&view), has_state: true, has_result: true };
        let promise = |(unreachable, failed): &(&[u8], &[u8])| Promise {
            unreachable: named(unreachable),
            failed: named(failed),
            ..Promise::at(progress)
        };
        let promises: BTreeMap<PeerId, Promise> = (0..).map(peer).zip(said.iter().map(promise)).collect();
        let origin = made_of(&view, 0, Vec::new());
        let follows = |proposal: &Proposal| {
            follows(&Config::default(), &view, Some(&origin), &promises, &BTreeMap::new(), proposal)
        };
        let answer = answer_to((&view, Some(&origin.resume)), &promises, &BTreeSet::new(), |inputs| {
            inputs.steadiness = Steadiness::Said(unsteady)
        });
        let proposal = answer.expect("somebody holds a state");
        assert!(follows(&proposal), "who accepts it finds the same");
        // What the mark does not say is refused.
        let all = proposal.view.severed();
        let other = proposal.view.clone().with_unsteady(!proposal.view.is_unsteady());
        let fewer = proposal.view.clone().with_severed(all.iter().skip(1).copied());
        let pairs = view.members().iter().flat_map(|a| view.members().iter().map(|b| (*a, *b)));
        let more = pairs.filter(|(a, b)| a < b && !all.contains(&(*a, *b))).take(1);
        let more = proposal.view.clone().with_severed(all.iter().copied().chain(more));
        for view in [other, fewer, more].into_iter().filter(|view| *view != proposal.view) {
            let differs =
                view.is_unsteady() == proposal.view.is_unsteady() || said.iter().any(|(_, it)| !it.is_empty());
            assert!(!differs || !follows(&Proposal { view, ..proposal.clone() }), "{severed:?}, {said:?}");
        }
        assert_eq!(proposal.view.members().len(), said.len(), "nobody goes for it");
        proposal
    }

    #[test]
    fn an_unsteady_view_keeps_apart_those_whose_link_fails_as_far_as_there_is_a_way() {
        let pairs = |severed: &[(u8, u8)], said: &[(&[u8], &[u8])]| {
            let of = |unsteady| {
                let Proposal { view, reasons, .. } = damped(severed, said, unsteady);
                assert_eq!(view.is_unsteady(), unsteady && !view.severed().is_empty());
                assert_eq!(reasons.contains(&Reason::Unsteady), view.is_unsteady());
                view.severed().iter().map(|(a, b)| (a.0[0], b.0[0])).collect::<Vec<_>>()
            };
            (of(false), of(true))
        };
        let none: (&[u8], &[u8]) = (&[], &[]);
        assert_eq!(pairs(&[], &[(&[], &[1]), none, none]), (vec![], vec![(0, 1)]), "one of them says so");
        assert_eq!(pairs(&[], &[none, none, none]), (vec![], vec![]), "nothing has failed");
        assert_eq!(pairs(&[], &[(&[], &[1]), (&[], &[0])]), (vec![], vec![]), "there is no other way");
        assert_eq!(pairs(&[(1, 2)], &[none, none, none, none]), (vec![], vec![(1, 2)]), "they were severed");
        assert_eq!(pairs(&[(1, 2)], &[none, (&[2], &[]), none]), (vec![(1, 2)], vec![(1, 2)]), "they still are");
        let all: (&[u8], &[u8]) = (&[], &[0, 1, 2, 3]);
        assert_eq!(pairs(&[], &[all, none, none, none]).1, [(0, 1), (0, 2), (0, 3)][..2], "one link is left to it");
        let ring = pairs(&[], &[(&[], &[1]), none, (&[], &[3]), none]);
        assert_eq!(ring.1, [(0, 1), (2, 3)], "no hub, and a ring");
        let apart = pairs(&[(0, 1)], &[(&[2], &[]), none, none, (&[], &[0])]);
        assert_eq!(
            apart,
            (vec![(0, 2)], vec![(0, 2), (0, 3)]),
            "of two without which there is no way that which failed last"
        );
    }

    #[test]
    fn no_link_is_damped_over_which_alone_one_gets_what_it_needs() {
        let view = View::found(RunId([7; 32]), peer(0)).succeed((0..3).map(peer));
        let stands = |step, has_result| Progress { step, lineage: Lineage::of(&view), has_state: true, has_result };
        // The first one alone has the result of the step, and hands it to the second through nobody else.
        let promise = |progress, failed: &[u8]| {
            let failed = failed.iter().map(|name| peer(*name)).collect();
            Promise { failed, ..Promise::at(progress) }
        };
        let said = [(stands(24, true), &[1][..]), (stands(23, true), &[]), (stands(24, false), &[])];
        let promises = (0..).map(peer).zip(said.map(|(progress, failed)| promise(progress, failed))).collect();
        let origin = made_of(&view, 0, Vec::new());
        let answer = answer_to((&view, Some(&origin.resume)), &promises, &BTreeSet::new(), |inputs| {
            inputs.steadiness = Steadiness::Said(true)
        });
        let Proposal { view, resume, .. } = answer.expect("somebody holds a state");
        assert_eq!((view.members().len(), view.severed(), view.is_unsteady()), (3, &[][..], false), "{resume:?}");
    }

    #[test]
    fn nobody_goes_back_behind_what_another_may_hold_but_as_a_fork() {
        let view = View::found(RunId([7; 32]), peer(0)).succeed((0..5).map(peer));
        let back = |step, lost| {
            let progress = Progress { step, lineage: Lineage::of(&view), has_state: step > 0, has_result: false };
            Promise { recovering: true, lost, ..Promise::at(progress) }
        };
        let promises =
            |said: &[(u64, LostState)]| (0..).map(peer).zip(said.iter().map(|it| back(it.0, it.1))).collect();
        let origin = made_of(&view, 0, Vec::new());
        let step = |said: &[(u64, LostState)], gone: &[u8], forked| {
            let promises: BTreeMap<PeerId, Promise> = promises(said);
            let answer = answer_to(
                (&view, Some(&origin.resume)),
                &promises,
                &gone.iter().map(|name| peer(*name)).collect(),
                |inputs| inputs.forked = forked,
            );
            answer.map(|proposal| proposal.resume.step)
        };
        let most_lost = [(100, LostState::Step(120)), (100, LostState::Step(120)), (90, LostState::Nothing)];
        assert_eq!(step(&most_lost, &[], false), None, "two may hold what they and two others have signed");
        assert_eq!(step(&most_lost, &[], true), Some(100), "a fork leaves it behind");
        assert_eq!(step(&most_lost, &[3], false), None, "one of them may");
        assert_eq!(step(&most_lost, &[3, 4], false), Some(100), "they have lost their seats");
        assert_eq!(step(&[(100, LostState::Nothing); 3], &[], false), Some(100), "nobody has lost anything");
        let held = [
            (100, LostState::Step(120)),
            (100, LostState::Step(120)),
            (90, LostState::Nothing),
            (120, LostState::Nothing),
        ];
        assert_eq!(step(&held, &[], false), Some(120), "one of those who are here holds it");
        let all = [
            (100, LostState::Step(120)),
            (0, LostState::Step(120)),
            (90, LostState::Step(120)),
            (90, LostState::Step(110)),
            (0, LostState::Step(120)),
        ];
        assert_eq!(step(&all, &[], false), Some(100), "nobody else can");
        let unknown = [(100, LostState::Unknown), (120, LostState::Nothing), (90, LostState::Nothing)];
        assert_eq!(step(&unknown, &[], false), None, "it may have signed more, with those who are away");
        let all = [100, 0, 90, 110, 0].map(|step| (step, LostState::Unknown));
        assert_eq!(step(&all, &[], false), Some(110), "all are here");
        let few = [
            (100, LostState::Step(120)),
            (100, LostState::Nothing),
            (90, LostState::Nothing),
            (90, LostState::Nothing),
        ];
        assert_eq!(step(&few, &[], false), Some(100), "two are no quorum");
        // Who accepts finds the same: what somebody proposes who overlooks a loss does not follow.
        let promised: BTreeMap<PeerId, Promise> =
            promises(&[(100, LostState::Nothing), (100, LostState::Nothing), (90, LostState::Nothing)]);
        let (proposal, lost) = (answered(&view, 0, &promised), promises(&most_lost));
        let follows =
            |promises| follows(&Config::default(), &view, Some(&origin), promises, &BTreeMap::new(), &proposal);
        assert!(follows(&promised) && !follows(&lost));
    }

    #[test]
    fn who_can_reach_nobody_that_will_have_the_result_is_of_no_use() {
        let stands = |step, has_result| Progress { step, lineage: Lineage::NONE, has_state: true, has_result };
        // The first one has reduced the step, the second has loaded the state after it, and two are a step behind.
        let staying = [stands(20, true), stands(20, false), stands(19, true), stands(19, true)];
        let staying: BTreeMap<PeerId, Progress> = (0..).map(peer).zip(staying).collect();
        let (holders, donors) = (vec![peer(0)], (0..4).map(peer).collect());
        let resume = ResumePlan { step: 20, lineage: Lineage::NONE, holders, donors, syncing: Vec::new() };
        let stranded = |severed: &[(u8, u8)]| {
            let severed: Vec<_> = severed.iter().map(|(one, other)| (peer(*one), peer(*other))).collect();
            super::stranded(&staying, &severed, &resume)
        };
        assert_eq!(stranded(&[]), None);
        assert_eq!(stranded(&[(0, 2)]), None, "the other one hands it on");
        assert_eq!(stranded(&[(0, 2), (2, 3)]), Some(peer(2)), "who has loaded the state has no result of it");
        assert_eq!(stranded(&[(0, 2), (0, 3)]), Some(peer(2)), "neither gets it from the other");
    }

    #[test]
    fn of_many_that_hold_a_result_those_are_named_that_reach_most() {
        let stands = Progress { step: 20, lineage: Lineage::NONE, has_state: true, has_result: true };
        let (hub, others) = (peer(20), (0..20).map(peer));
        let staying = others.clone().chain([hub]).map(|peer| (peer, stands)).collect();
        let severed: Vec<_> =
            others.clone().flat_map(|a| others.clone().filter(move |b| a < *b).map(move |b| (a, b))).collect();
        let names_hub = |severed: &[(PeerId, PeerId)]| {
            let ResumePlan { holders, donors, .. } = resume(ViewId::NONE, &staying, severed, &[]);
            [holders, donors].map(|named| named.len() == MAX_SOURCES && named.contains(&hub))
        };
        assert_eq!((names_hub(&[]), names_hub(&severed)), ([false; 2], [true; 2]));
    }

    #[test]
    fn a_step_that_one_has_reduced_counts() {
        let behind = (23, true, true);
        for ahead in [(24, true, true), (24, false, true)] {
            let Proposal { view, resume, .. } = decided(20, &[behind, behind, behind, ahead]);
            assert_eq!((resume.step, resume.holders, view.members().len()), (24, vec![peer(3)], 4), "{ahead:?}");
        }
        // One that claims to be far behind speaks against nobody.
        let Proposal { view, resume, .. } = decided(0, &[(2, true, true), behind, behind, (24, true, true)]);
        assert_eq!((resume.step, resume.syncing, view.members().len()), (24, vec![peer(0)], 4));
        // Who has just got the state has no result of it; of three nobody knows who is wrong.
        let Proposal { resume, .. } = decided(20, &[behind, (24, true, false), behind]);
        assert_eq!((resume.step, resume.donors), (24, vec![peer(1)]));
    }
}

//! Hears what members do and what links cost, and tells when it becomes clear what slows the steps down.
//!
//! It owns no clock: what it hears says how long it took.

mod verdict;

use std::collections::{BTreeMap, VecDeque};

use crate::observe::report::{Limit, LinkCost, MeasuredLink, MemberPaceReport, Report};
use verdict::{Load, Strictness, limit};

/// So many reports of members in a row must show a thing, together and each, before it is told: some seconds.
const NEEDED: usize = 3;
/// So many in a row must not show it any more before that is told.
const GONE: usize = 6;

/// What each member did in one report's time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Second {
    pub(crate) seconds: f64,
    pub(crate) steps: u64,
    pub(crate) members: Vec<MemberPaceReport>,
}

impl Second {
    /// Several taken for one.
    fn of<'a>(seconds: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let total: f64 = seconds.clone().map(|second| second.seconds).sum();
        let mut members: BTreeMap<&str, (f64, MemberPaceReport)> = BTreeMap::new();
        for second in seconds.clone() {
            for pace in &second.members {
                let (computed, sum) = members.entry(&pace.peer).or_insert_with(|| (0.0, MemberPaceReport::default()));
                let computing_s = pace.computing_share * second.seconds;
                *computed += pace.samples_per_s.unwrap_or_default() * computing_s;
                sum.computing_share += computing_s / total;
                (sum.samples, sum.syncing) = (sum.samples + pace.samples, pace.syncing);
                sum.starved |= pace.starved;
            }
        }
        let whole = |(peer, (computed, sum)): (&str, (f64, MemberPaceReport))| {
            let computing_s = sum.computing_share * total;
            let samples_per_s = (computing_s > 0.0).then(|| computed / computing_s);
            MemberPaceReport { peer: peer.to_owned(), samples_per_s, ..sum }
        };
        let members = members.into_iter().map(whole).collect();
        Self { seconds: total, steps: seconds.map(|second| second.steps).sum(), members }
    }
}

/// Decides when what slows the steps down is clear.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    /// The newest, at most [`GONE`].
    window: VecDeque<Second>,
    links: Vec<LinkCost>,
    codec: String,
    /// This peer, and what it has measured of its links by itself: newer than what is agreed.
    me: String,
    measured: BTreeMap<String, MeasuredLink>,
    told: Option<Limit>,
}

impl Limits {
    /// Takes in a report. What is to be told after it, if anything.
    pub(crate) fn hear(&mut self, report: &Report) -> Option<Report> {
        match report {
            Report::View { members, .. } => {
                self.links.clear();
                self.measured.retain(|peer, _| members.contains(peer));
                // What was seen among others says nothing of these.
                self.window.clear();
                let stays = |peer: &String| members.contains(peer);
                let is_over = self.told.as_ref().is_some_and(|told| match told {
                    Limit::Member { peer, .. } => !stays(peer) || members.len() < 2,
                    Limit::Link { from, to, .. } => !stays(from) || !stays(to),
                });
                is_over.then(|| self.tell(None))
            }
            Report::Started { peer, .. } => {
                self.me.clone_from(peer);
                None
            }
            Report::Costs { links, codec } => {
                (self.links, self.codec) = (links.clone(), codec.clone());
                None
            }
            Report::Measured { links } => {
                self.measured.extend(links.iter().map(|(peer, link)| (peer.clone(), *link)));
                None
            }
            Report::Members { seconds, steps, members } => {
                self.window.push_front(Second { seconds: *seconds, steps: *steps, members: members.clone() });
                self.window.truncate(GONE);
                self.judge()
            }
            _ => None,
        }
    }

    /// The links of which it is known how long their bytes take, in milliseconds.
    fn loads(&self) -> Vec<Load<'_>> {
        let load = |link: &'_ LinkCost| {
            let own = self.measured.get(&link.to).copied().filter(|_| link.from == self.me);
            let mbit = own.or(link.agreed)?.mbit;
            (mbit > 0.0).then(|| link.bytes as f64 * 8.0 / 1e3 / mbit)
        };
        self.links.iter().filter_map(|link| Some(Load { link, step_ms: load(link)? })).collect()
    }

    fn judge(&mut self) -> Option<Report> {
        let loads = self.loads();
        let see = |second: &Second, strictness| limit(second, &loads, &self.codec, strictness);
        if let Some(told) = &self.told {
            let shows = |second: &Second| see(second, Strictness::Stay).is_some_and(|seen| is_same(&seen, told));
            let is_gone = self.window.len() == GONE && !self.window.iter().any(shows);
            drop(loads);
            return is_gone.then(|| self.tell(None));
        }
        let newest = || self.window.iter().take(NEEDED);
        let seen = see(&Second::of(newest()), Strictness::Enter)?;
        // All together clearly, and each by itself: one bad second is none of this.
        let shows = |second: &Second| see(second, Strictness::Stay).is_some_and(|each| is_same(&each, &seen));
        let is_clear = newest().count() == NEEDED && newest().all(shows);
        drop(loads);
        is_clear.then(|| self.tell(Some(seen)))
    }

    fn tell(&mut self, limit: Option<Limit>) -> Report {
        self.told.clone_from(&limit);
        Report::Limit { limit }
    }
}

/// Whether both are about the same member or link.
fn is_same(one: &Limit, other: &Limit) -> bool {
    match (one, other) {
        (Limit::Member { peer: one, .. }, Limit::Member { peer: other, .. }) => one == other,
        (Limit::Link { from, to, .. }, Limit::Link { from: other_from, to: other_to, .. }) => {
            (from, to) == (other_from, other_to)
        }
        (Limit::Member { .. }, Limit::Link { .. }) | (Limit::Link { .. }, Limit::Member { .. }) => false,
    }
}

#[cfg(test)]
mod tests;

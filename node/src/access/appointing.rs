//! Who has the founder's place: whose consent is heard, and when it counts.

use std::time::Duration;

use starling_topology::{PeerId, Quorum, View};
use tokio::time::Instant;

use super::{Access, State};
use crate::credentials::appointment::{Appointments, Consent, Consents, Electors, Line, Office, name};
use crate::credentials::identity::{Identity, to_libp2p};

/// Members that don't say that they have heard of an appointment are waited for so long.
const HEARING: Duration = Duration::from_secs(20);

impl Access {
    /// That of a member, which consents by this key to what counts in its view.
    pub(crate) fn signing(self, identity: &Identity) -> Self {
        self.lock().signer = Some(identity.clone());
        self
    }

    /// What counts as a quorum from now on. Nothing does in a fork: what was decided before stays.
    pub(crate) fn counts_by(&self, view: &View) {
        let mut state = self.lock();
        state.electors = Electors::of(view);
        self.settle(&mut state);
    }

    /// The same of a keeper, which is in no view: those whom its user names have to agree.
    pub(super) fn counts_named(state: &mut State, rule: Quorum) {
        let members = state.named.clone();
        state.electors = (!members.is_empty()).then_some(Electors { members, rule, casting: None });
    }

    /// Takes in what this machine's user consents to.
    pub(crate) fn consent(&self, consent: &Consent) {
        let (office, me) = {
            let state = self.lock();
            (state.office.clone(), state.pass.me)
        };
        // Not under the lock: signatures take time.
        let Some((office, me)) = office.zip(me) else { return };
        let Some(signature) = consent.signature(office.run, me) else { return };
        let mut state = self.lock();
        if consent.line.is_sound(office.founder) && !state.consents.has(&consent.line, &me) {
            state.consents.insert(&consent.line, me, signature);
            state.tidy();
            self.settle(&mut state);
            self.0.news.notify_one();
        }
    }

    /// Takes in what a peer tells of the members' consents. They are looked at one by one: who tells is not believed.
    pub(super) fn hear_consents(&self, from: PeerId, told: &Consents) -> bool {
        let (office, news) = {
            let mut state = self.lock();
            let Some(office) = state.office.clone() else { return false };
            let state = &mut *state;
            let (consents, electors, renewal) = (&state.consents, state.electors.as_ref(), state.renewal.as_ref());
            let Some(shown) = state.shown.get_mut(&from) else { return false };
            let now = Instant::now();
            let is_news = |(line, peer, _): &(&Line, &PeerId, &Vec<u8>)| {
                line.is_sound(office.founder)
                    && (**line == office.line || line.precedes(&office.line))
                    && electors.is_none_or(|electors| electors.members.contains(peer))
                    && !renewal.is_some_and(|renewal| renewal.list.names(peer))
                    && !consents.has(line, peer)
            };
            let news = told.iter().filter(is_news).take_while(|_| shown.allowance.take(1, now));
            let news: Vec<_> = news.map(|(line, peer, it)| (line.clone(), *peer, it.clone())).collect();
            (office, news)
        };
        // Not under the lock. What is wrong was paid for.
        let sound: Vec<_> = news.into_iter().filter(|(line, peer, it)| line.is_signed(office.run, *peer, it)).collect();
        let mut state = self.lock();
        let mut is_news = false;
        for (line, peer, signature) in sound {
            let State { consents, electors, .. } = &mut *state;
            if !consents.has(&line, &peer) && consents.has_room(&peer, electors.as_ref()) {
                consents.insert(&line, peer, signature);
                is_news = true;
            }
        }
        state.tidy();
        self.settle(&mut state);
        is_news
    }

    /// Has the line count to which a quorum has consented, and consents to it.
    fn settle(&self, state: &mut State) {
        let State { office: Some(office), electors: Some(electors), consents, .. } = state else { return };
        if let Some(line) = consents.winner(electors, &office.line) {
            let (before, is_other) = (office.holder(), line.number() <= office.line.number());
            office.line = line;
            let key = to_libp2p(office.holder());
            let what = if is_other {
                "instead of another, which a quorum had named too"
            } else {
                "by a quorum of the members"
            };
            state.warning = Some(format!(
                "the key {key} has the founder's place now, {what}: it invites and revokes, and {} does not any more",
                to_libp2p(before)
            ));
            state.proven.clear();
            state.appointed = Some(Instant::now());
            state.tidy();
            self.0.news.notify_one();
        }
        let State { office: Some(office), electors: Some(electors), signer: Some(signer), consents, .. } = state else {
            return;
        };
        let me = name(signer);
        if office.line.number() > 0 && electors.members.contains(&me) && !consents.has(&office.line, &me) {
            consents.insert(&office.line, me, office.line.sign(office.run, signer));
            self.0.news.notify_one();
        }
    }

    /// Whether a peer knows of fewer appointments than we: it is told again, also of what it could not count before.
    pub(super) fn note_number(&self, from: PeerId, number: usize) {
        let mut state = self.lock();
        if state.number() > number
            && let Some(shown) = state.shown.get_mut(&from)
        {
            shown.told = super::telling::NEVER;
            self.0.news.notify_one();
        }
    }
}

impl State {
    /// How many appointments there have been.
    pub(super) fn number(&self) -> usize {
        self.office.as_ref().map_or(0, |office| office.line.number())
    }

    /// What is to be kept of the founder's place, if anything ever happened to it.
    pub(super) fn appointments(&self) -> Option<Appointments> {
        let line = self.office.as_ref().map(|office| office.line.clone()).unwrap_or_default();
        let kept = Appointments { line, consents: self.consents.clone() };
        (kept != Appointments::default()).then_some(kept)
    }

    /// The place as it would be by what our user has consented to: elsewhere it may be so already.
    pub(super) fn may_count(&self) -> Vec<Office> {
        let of = |office: &Office, line: &Line| Office { line: line.clone(), ..office.clone() };
        let Some((office, me)) = self.office.as_ref().zip(self.pass.me) else { return Vec::new() };
        let own = self.consents.iter().filter(|(_, peer, _)| **peer == me);
        own.map(|(line, ..)| of(office, line)).collect()
    }

    /// Whether members may not have heard who has the place since a moment ago: they consent to it once they have.
    pub(super) fn is_being_heard(&self) -> bool {
        let Self { office: Some(office), electors: Some(electors), appointed: Some(since), consents, .. } = self else {
            return false;
        };
        let has_heard = |peer: &PeerId| consents.has(&office.line, peer);
        since.elapsed() < HEARING && !electors.members.iter().all(has_heard)
    }

    fn tidy(&mut self) {
        if let Some(office) = &self.office {
            self.consents.retain(&office.line);
        }
    }
}

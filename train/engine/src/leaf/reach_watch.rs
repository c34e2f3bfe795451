//! When a leaf asks again whether members can dial it by now: its router may let others in since.

use std::time::Duration;

use starling_topology::{PeerId, Time};

use crate::leaf::reach_search::{Input, MAX_DIALERS, Output, ReachSearch, ReachStatus};

/// It asks after so many of the longest stalls first.
const FIRST_STALLS: u32 = 4;
/// The wait doubles so often.
const MAX_DOUBLINGS: u32 = 5;

/// See the module.
#[derive(Debug)]
pub(super) struct ReachWatch {
    max_stall: Duration,
    /// Whether all that answer have to reach it.
    all: bool,
    doublings: u32,
    /// Where it begins among members besides the first: others are asked each time.
    turn: usize,
    /// When it looks next: to ask, or whether who was asked has answered.
    due: Time,
    search: Option<ReachSearch>,
}

impl ReachWatch {
    /// Of a leaf that has changed its role so often before: each change has cost the others something.
    pub(super) fn new(now: Time, max_stall: Duration, changes: u32) -> Self {
        let (all, doublings) = (changes > 0, changes.min(MAX_DOUBLINGS));
        Self { max_stall, all, doublings, turn: 0, due: now + wait(max_stall, doublings), search: None }
    }

    /// When to look.
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// Whom to ask now, of its carrier and these members; whether they reach it.
    pub(super) fn look(
        &mut self,
        now: Time,
        carrier: PeerId,
        members: impl Iterator<Item = PeerId>,
    ) -> (Vec<PeerId>, bool) {
        if now < self.due {
            return (Vec::new(), false);
        }
        match &mut self.search {
            Some(search) => search.handle(now, Input::Expired),
            None => {
                let mut others: Vec<PeerId> = members.filter(|member| *member != carrier).collect();
                let first = self.turn % others.len().max(1);
                others.rotate_left(first);
                self.turn = first + MAX_DIALERS - 1;
                let asked = std::iter::once(carrier).chain(others);
                self.search = Some(ReachSearch::new(now, asked, self.all, self.max_stall));
            }
        }
        self.go_on(now)
    }

    /// A member that was asked has dialled back: whether it got through. Returns whether it is known by now that they reach it.
    pub(super) fn answered(&mut self, now: Time, peer: PeerId, reached: bool) -> bool {
        if let Some(search) = &mut self.search {
            search.handle(now, Input::Answered { peer, reached });
        }
        self.go_on(now).1
    }

    fn go_on(&mut self, now: Time) -> (Vec<PeerId>, bool) {
        let (mut asked, mut ended) = (Vec::new(), None);
        while let Some(output) = self.search.as_mut().and_then(ReachSearch::poll) {
            match output {
                Output::Ask(peer) => asked.push(peer),
                Output::SetTimer(at) => self.due = at,
                Output::End(status) => ended = Some(status),
            }
        }
        if ended.is_some() {
            self.search = None;
            self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
            self.due = now + wait(self.max_stall, self.doublings);
        }
        (asked, ended == Some(ReachStatus::Reached))
    }
}

fn wait(max_stall: Duration, doublings: u32) -> Duration {
    max_stall * FIRST_STALLS * (1 << doublings)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(32);

    fn peers(names: &[u8]) -> Vec<PeerId> {
        names.iter().map(|name| PeerId([*name; 32])).collect()
    }

    #[test]
    fn it_asks_later_and_later_until_it_is_reached() {
        let members = peers(&[1, 2]);
        let mut watch = ReachWatch::new(Time::ZERO, STALL, 0);
        let look = |watch: &mut ReachWatch, now: Time| watch.look(now, members[0], members.iter().copied());
        let (mut now, mut waits) = (Time::ZERO, Vec::new());
        for _ in 0..7 {
            waits.push((watch.due() - now).as_secs() / STALL.as_secs());
            assert_eq!(look(&mut watch, now), (Vec::new(), false), "it is not asked before");
            now = watch.due();
            assert_eq!(look(&mut watch, now), (members.clone(), false));
            assert!(!watch.answered(now, members[0], false) && !watch.answered(now, members[0], true));
            now = watch.due();
            assert_eq!(look(&mut watch, now), (Vec::new(), false), "the other one says nothing");
        }
        assert_eq!(waits, [4, 8, 16, 32, 64, 128, 128]);
        now = watch.due();
        _ = look(&mut watch, now);
        assert!(watch.answered(now, members[1], true));
    }

    #[test]
    fn who_had_no_place_asks_later_and_others_each_time_and_nobody_may_say_no() {
        let members = peers(&[1, 2, 3, 4, 5, 6]);
        let mut watch = ReachWatch::new(Time::ZERO, STALL, 2);
        let mut now = watch.due();
        assert_eq!(now, Time::ZERO + STALL * 16);
        for asked in [[2, 1, 3], [2, 4, 5], [2, 6, 1]] {
            let asked = peers(&asked);
            assert_eq!(watch.look(now, asked[0], members.iter().copied()), (asked.clone(), false));
            assert!(!watch.answered(now, asked[1], true) && !watch.answered(now, asked[2], false));
            now = watch.due();
        }
        let (asked, _) = watch.look(now, members[1], members.iter().copied());
        assert!(!watch.answered(now, asked[1], true) && !watch.answered(now, asked[0], true));
        assert!(watch.answered(now, asked[2], true));
    }
}

//! Runs with hostile members.

use std::time::Duration;

use starling_topology::Quorum;

use super::{MAX_STALL, Plan, Setup};
use crate::hardware::network::Seat;
use crate::hardware::network::rng::Rng;
use crate::hostile::Hostility;
use crate::steps::message::Lane;
use crate::sweep::fault::{Crash, DiskFate, Fault, Kind, When};

impl Plan {
    /// Worlds of 4 to 16 peers, half of them of 4 to 6, in which fewer than a third are hostile. What else happens, happens to
    /// so few of the others that those who are left are a quorum, and outnumber the hostile ones by more than two to one.
    pub(super) fn draw_byzantine(rng: &mut Rng, setup: &Setup) -> Self {
        let most = if rng.one_in(2) { 6 } else { 16 };
        let drawn = rng.between(4, most);
        let peers =
            usize::try_from(setup.peers.map_or(drawn, u64::from).max(1)).expect("invariant: there are few peers");
        let hostility = Hostility::draw(rng, peers, setup.attack);
        let mut plan = Self {
            peers,
            founders: peers,
            min_members: 1,
            patience: rng.micros(3_000_000, 25_000_000),
            quorum: setup.quorum.unwrap_or_default(),
            fork_after: None,
            gated: rng.one_in(2),
            rots: false,
            more_steps: 0,
            arrives: false,
            micro_batches: 0,
            measures: rng.one_in(3).then(|| rng.spread(200_000, 10_000_000)),
            words: false,
            drifts: rng.one_in(4),
            keepers: 0,
            faults: Vec::new(),
            hostility,
            leaves: 0,
            hostile_leaves: Vec::new(),
        };
        for seat in 1..peers {
            let delay = rng.micros(1, 20_000);
            plan.faults.push(Fault { when: When::After { step: 0, delay }, kind: Kind::Join(seat) });
        }
        let hostile = plan.hostility.seats.len();
        let spare = match plan.quorum {
            Quorum::Majority => peers.saturating_sub(1) / 2,
            Quorum::TwoThirds => plan.quorum.spare(peers),
        };
        let spare = spare.saturating_sub(hostile).min(peers.saturating_sub(3 * hostile + 1));
        let honest: Vec<Seat> = (0..peers).filter(|seat| !plan.hostility.seats.contains(seat)).collect();
        let victims: Vec<Seat> = (0..spare).filter_map(|_| rng.pick(&honest)).collect();
        for _ in 0..rng.between(0, 4) {
            let (Some(victim), Some(other)) = (rng.pick(&victims), rng.pick(&honest)) else { break };
            let when = When::After { step: rng.between(1, setup.steps.max(2) - 1), delay: rng.spread(10, 20_000_000) };
            let kind = strike(rng, victim, other);
            plan.faults.push(Fault { when, kind });
        }
        plan
    }
}

fn strike(rng: &mut Rng, victim: Seat, other: Seat) -> Kind {
    let lasts = rng.spread(1_000, 3 * u64::try_from(MAX_STALL.as_micros()).unwrap_or(1));
    match rng.between(0, 5) {
        0 | 1 => {
            let at_record = if rng.one_in(4) { Some(rng.one_in(2)) } else { None };
            Kind::Crash(victim, Crash { down: lasts, power: rng.one_in(3), fate: DiskFate::Kept, at_record })
        }
        2 => Kind::Pause(victim, lasts),
        3 => Kind::Clog(victim, lasts.min(Duration::from_secs(30))),
        4 if other != victim => Kind::Cut(victim, other, lasts),
        _ if other != victim => Kind::Break(victim, other, rng.pick(&Lane::OF_MEMBERS).unwrap_or(Lane::Ring)),
        _ => Kind::Swallow(victim),
    }
}

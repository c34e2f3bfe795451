//! A run of a few members with leaves behind routers that let nothing in: leaves are killed, freeze, are slow and are cut off, and so are
//! members, which carry them; some leaves are hostile.

use std::time::Duration;

use super::Draft;
use crate::hardware::network::Seat;
use crate::hostile::leaf::LeafAttack;
use crate::steps::message::Lane;
use crate::sweep::fault::{Crash, DiskFate, Fault, Kind, When};

impl Draft<'_> {
    /// What happens to members. Many links of theirs at once are down in other scenarios.
    pub(super) fn carriers(&mut self) {
        let mut is_cut = false;
        for _ in 0..self.rng.between(0, 4) {
            let (seat, lasts) = (self.seat(), self.long());
            match self.rng.between(0, 6) {
                0 | 1 => {
                    let crash = self.crash(false);
                    self.at_some_time(Kind::Crash(seat, crash));
                }
                2 => self.at_some_time(Kind::Pause(seat, lasts)),
                3 => self.at_some_time(Kind::Slow(seat, 20, lasts)),
                4 if !is_cut => {
                    is_cut = true;
                    let side = (0..self.plan.peers).filter(|_| self.rng.one_in(2)).collect();
                    self.at_some_time(Kind::Partition(side, lasts));
                }
                5 => self.at_some_time(Kind::Leave(seat)),
                _ => {
                    let other = self.seat();
                    if other != seat {
                        self.at_some_time(Kind::Break(seat, other, Lane::Ring));
                    }
                }
            }
        }
        if self.rng.one_in(8) {
            self.all_die();
        }
    }

    /// How many leaves there are, which of them are hostile, and what happens to them. Drawn last: where they sit, follows from the rest.
    pub(super) fn leaves_of_a_run(&mut self) {
        self.plan.leaves = usize::try_from(self.rng.between(1, 5)).unwrap_or(1);
        let first = self.plan.peers + self.plan.keepers;
        let seats: Vec<Seat> = (first..first + self.plan.leaves).collect();
        let hostile = if self.rng.one_in(2) { self.rng.between(1, 2) } else { 0 };
        for _ in 0..hostile {
            let (seat, attack) = (self.rng.pick(&seats), self.rng.pick(&LeafAttack::ALL));
            if let (Some(seat), Some(attack)) = (seat, attack)
                && self.plan.hostile_leaves.iter().all(|(other, _)| *other != seat)
            {
                self.plan.hostile_leaves.push((seat, attack));
            }
        }
        if self.rng.one_in(3)
            && let Some(seat) = self.rng.pick(&seats)
        {
            let (step, delay) = (self.rng.between(1, self.steps - 1), self.rng.spread(10, 2_000_000));
            self.plan.faults.push(Fault { when: When::After { step, delay }, kind: Kind::Opens(seat) });
        }
        for seat in seats {
            for _ in 0..self.rng.between(0, 4) {
                let step = self.rng.between(1, self.steps - 1);
                let delay = self.rng.spread(10, 2_000_000);
                let lasts = self.long();
                let member = self.seat();
                let kind = match self.rng.between(0, 6) {
                    0 | 1 => {
                        let crash = Crash {
                            down: self.rng.spread(1_000, 20_000_000),
                            power: self.rng.one_in(3),
                            fate: DiskFate::Kept,
                            at_record: None,
                        };
                        Kind::Crash(seat, crash)
                    }
                    2 => Kind::Pause(seat, lasts),
                    3 => Kind::Slow(seat, 50, lasts),
                    4 => Kind::Break(seat, member, if self.rng.one_in(2) { Lane::Leaf } else { Lane::State }),
                    5 => Kind::Cut(seat, member, lasts),
                    _ => Kind::Clog(seat, lasts.min(Duration::from_secs(20))),
                };
                self.plan.faults.push(Fault { when: When::After { step, delay }, kind });
            }
        }
    }
}

//! Nobody puts itself out for the sake of one that lies: what a member decides that nothing is wrong with has a place for it.

use starling_topology::PeerId;

use super::super::World;
use crate::hardware::network::Seat;
use crate::verdict::invariants::Broken;

const NAME: &str = "honest_stay";

impl World {
    /// `seat`, which does not lie, goes: as `by` has it.
    ///
    /// # Errors
    /// If its own decree put it out among members that lie, though nothing else has happened for a while, and nobody has given up
    /// objecting to what leaves out others.
    pub(in crate::world) fn keeps_who_proposes(&self, seat: Seat, by: PeerId) -> Result<(), Broken> {
        let noticed = self.config.silence_limit() + self.config.heartbeat_interval() * 2;
        let is_calm = self.now - self.invariants.progress.calm_since() >= noticed;
        let objects = !self.invariants.progress.stands_still(self.now, self.config.max_stall / 2);
        let is_judged = !self.plan.hostility.seats.is_empty() && is_calm && objects && !self.damaged;
        if !is_judged || by != self.hosts[seat].name() || self.was_late(seat) {
            return Ok(());
        }
        Err(Broken::new(NAME, format!("{seat} puts itself out")))
    }

    /// Whether it was long in storing its vote when that was proposed first which it has proposed again: what may be decided already
    /// it can't keep itself in.
    fn was_late(&self, seat: Seat) -> bool {
        let late = || {
            let record = self.hosts[seat].disk.newest_record()?;
            let (_, justified) = record.accepted.as_ref()?;
            Some(self.proposed.get(&(record.view.id(), justified.ballot))?.late.contains(&seat))
        };
        late().unwrap_or(false)
    }
}

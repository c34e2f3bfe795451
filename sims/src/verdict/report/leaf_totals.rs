//! What leaves did, so that a run in which none did anything is not taken for one in which all went well.

use std::time::Duration;

use serde::Serialize;
use starling_engine::leaf::carrier::CarrierEvent;

/// What leaves and their carriers did in a run, or in many.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct LeafTotals {
    /// Parts of contributions that leaves brought.
    pub parts: u64,
    /// How often a leaf was taken on, and lost.
    pub attached: u64,
    /// See there.
    pub lost: u64,
    /// Parts that a carrier began to compute in a leaf's place.
    pub backups: u64,
    /// Gradients that came too late to count.
    pub late: u64,
    /// How often a leaf was let go for what no correct one does.
    pub refused: u64,
    /// States that leaves loaded.
    pub loaded: u64,
    /// Members that became leaves.
    pub displaced: u64,
    /// Leaves that became members.
    pub joined: u64,
    /// Leaves that held the last state when the run was complete.
    pub completed: u64,
    /// The longest that one stood still though somebody could carry it further, in seconds.
    pub longest_stall_s: f64,
}

impl LeafTotals {
    /// Something happened to a carrier's leaves.
    pub fn happened(&mut self, event: &CarrierEvent) {
        match event {
            // What leaves have brought is counted by those who check it.
            CarrierEvent::Brought { .. } => {}
            CarrierEvent::Attached(_) => self.attached += 1,
            CarrierEvent::Lost { .. } => self.lost += 1,
            CarrierEvent::Backup { .. } => self.backups += 1,
            CarrierEvent::Late { .. } => self.late += 1,
        }
    }

    /// One stood still for so long.
    pub fn stood_still(&mut self, longest: Duration) {
        self.longest_stall_s = self.longest_stall_s.max(longest.as_secs_f64());
    }

    /// Takes in those of another run.
    pub fn add(&mut self, other: &Self) {
        let Self {
            parts,
            attached,
            lost,
            backups,
            late,
            refused,
            loaded,
            displaced,
            joined,
            completed,
            longest_stall_s,
        } = other;
        self.parts += parts;
        self.attached += attached;
        self.lost += lost;
        self.backups += backups;
        self.late += late;
        self.refused += refused;
        self.loaded += loaded;
        self.displaced += displaced;
        self.joined += joined;
        self.completed += completed;
        self.longest_stall_s = self.longest_stall_s.max(*longest_stall_s);
    }
}

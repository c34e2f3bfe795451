//! In which phases of a step, and of a change of view, faults have struck members: what was never tried proves nothing.

use std::collections::BTreeMap;

use crate::sweep::fault::Kind;

/// What a member does when a fault strikes it.
pub type Phase = &'static str;

/// All phases: of a step, of a change of view, and writing a record down, which goes on beside these.
pub const PHASES: [Phase; 18] = [
    "computes", "reduces", "fetches", "loads", LAST, "idles", "asks", "recovers", "waits", "stops", "prepares",
    "proposes", "rests", "pauses", "promises", "accepts", STORES, SEEKS,
];
/// It waits for the disk to have the last state.
pub const LAST: Phase = "saves";
/// It asks others what they hold, before it takes part.
pub const SEEKS: Phase = "seeks";
/// It writes its record.
pub const STORES: Phase = "stores";

/// Which faults have struck members in which phases, and how often; and how machines took part that were started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    struck: BTreeMap<(&'static str, Phase), u64>,
    ways: BTreeMap<&'static str, u64>,
}

impl Coverage {
    /// A fault of this name has struck a member in `phase`.
    pub fn note(&mut self, fault: &'static str, phase: Phase) {
        *self.struck.entry((fault, phase)).or_default() += 1;
    }

    /// A machine was started, and came to this.
    pub fn note_way(&mut self, way: &'static str) {
        *self.ways.entry(way).or_default() += 1;
    }

    /// What machines came to that were started, and how often.
    pub fn ways(&self) -> &BTreeMap<&'static str, u64> {
        &self.ways
    }

    /// Takes in what another run has seen.
    pub fn add(&mut self, other: &Self) {
        for (pair, times) in &other.struck {
            *self.struck.entry(*pair).or_default() += times;
        }
        for (way, times) in &other.ways {
            *self.ways.entry(way).or_default() += times;
        }
    }

    /// How often this pair was seen.
    pub fn of(&self, fault: &'static str, phase: Phase) -> u64 {
        self.struck.get(&(fault, phase)).copied().unwrap_or(0)
    }

    /// The pairs that were never seen.
    pub fn missing(&self) -> Vec<String> {
        let all = Kind::NAMES.into_iter().flat_map(|fault| PHASES.map(|phase| (fault, phase)));
        all.filter(|pair| !self.struck.contains_key(pair)).map(|(fault, phase)| format!("{fault}: {phase}")).collect()
    }

    /// How many pairs were seen.
    pub fn seen(&self) -> usize {
        self.struck.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_seen_is_named() {
        let mut coverage = Coverage::default();
        assert_eq!(coverage.missing().len(), Kind::NAMES.len() * PHASES.len());
        coverage.note(Kind::NAMES[0], PHASES[0]);
        let mut both = coverage.clone();
        both.add(&coverage);
        assert_eq!((both.of(Kind::NAMES[0], PHASES[0]), both.seen()), (2, 1));
        assert!(!both.missing().contains(&format!("{}: {}", Kind::NAMES[0], PHASES[0])));
    }
}

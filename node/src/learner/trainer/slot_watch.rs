//! What this member says of itself, and whether that is what the others are told.

use starling_engine::ActiveView;
use starling_run::ResultRecord;
use starling_run::training::contribution;
use starling_topology::ledger::GAVE_UP;
use starling_topology::{Lineage, PeerId};

/// For tests, in the environment: what this member says of all others from a step on, as `step:number`.
const OTHERS: &str = "STARLING_TEST_OTHERS_SLOTS";

/// What was said last, in which step and view.
#[derive(Debug)]
pub(super) struct SlotWatch {
    said: Option<(u64, Lineage, u32)>,
    /// From which step on, what a test has it say of others.
    of_others: Option<(u64, f32)>,
}

/// Others were told something that this member had not said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rewritten {
    pub(super) said: u32,
    pub(super) told: u32,
}

impl SlotWatch {
    pub(super) fn new() -> Self {
        let of_others = std::env::var(OTHERS).ok();
        let of_others = of_others.and_then(|text| {
            let (step, number) = text.split_once(':')?;
            Some((step.parse().ok()?, number.parse().ok()?))
        });
        Self { said: None, of_others }
    }

    /// This member says in `slots` how fast it is.
    pub(super) fn say(&mut self, step: u64, active: &ActiveView, speed: u32, slots: &mut [f32]) {
        self.said = Some((step, active.lineage, contribution::word(speed)));
        if let Some((_, number)) = self.of_others.filter(|(from, _)| step >= *from) {
            slots.iter_mut().filter(|slot| **slot == 0.0).for_each(|slot| *slot = number);
        }
    }

    /// What was said last has reached nobody.
    pub(super) fn forget(&mut self) {
        self.said = None;
    }

    /// What all were told of `me`, among `speeds`, if it is not what was said: a member that may have `given up` meanwhile.
    pub(super) fn compare(
        &mut self,
        record: &ResultRecord,
        speeds: &[u32],
        me: PeerId,
        gave_up: bool,
    ) -> Option<Rewritten> {
        let (_, _, said) =
            self.said.take().filter(|(step, view, _)| (*step, *view) == (record.step, record.lineage))?;
        let said = if gave_up { GAVE_UP } else { said };
        let told = *speeds.get(record.members.binary_search(&me).ok()?)?;
        (told != said).then_some(Rewritten { said, told })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use starling_topology::ledger::{SYNCING, UNMEASURED};
    use starling_topology::{RunId, View};

    use super::*;

    #[test]
    fn a_word_that_was_changed_on_its_way_is_noticed() {
        let members = [1, 2].map(|name| PeerId([name; 32]));
        let view = View::found(RunId([1; 32]), members[0]).succeed(members);
        let active =
            ActiveView { number: 1, lineage: Lineage::of(&view), parent: view.parent, members: Arc::from(members) };
        let record = |lineage| {
            let (step, members) = (7, members.to_vec());
            ResultRecord { step, lineage, after: Lineage::NONE, members, mean: Vec::new() }
        };
        let told = |said: u32, step, gave_up, told| {
            let mut word = SlotWatch { said: None, of_others: None };
            word.say(step, &active, said, &mut [0.0; 2]);
            let noticed = word.compare(&record(active.lineage), &[5, told], members[1], gave_up);
            assert_eq!(word.compare(&record(active.lineage), &[5, told], members[1], gave_up), None, "once");
            noticed
        };
        assert_eq!(told(512, 7, false, 512), None);
        assert_eq!(told(SYNCING, 7, false, UNMEASURED), None, "that is how it is written");
        assert_eq!(told(512, 7, true, GAVE_UP), None);
        assert_eq!(told(512, 7, false, GAVE_UP), Some(Rewritten { said: 512, told: GAVE_UP }));
        assert_eq!(told(512, 7, true, 512), Some(Rewritten { said: GAVE_UP, told: 512 }));
        assert_eq!(told(512, 6, false, 1), None, "nothing was said to this step");
        let mut word = SlotWatch { said: None, of_others: None };
        word.say(7, &active, 512, &mut [0.0; 2]);
        word.forget();
        assert_eq!(word.compare(&record(active.lineage), &[5, SYNCING], members[1], false), None, "it reached nobody");
        let mut word = SlotWatch { said: None, of_others: Some((7, -3.0)) };
        let mut slots = [0.0, 512.0];
        word.say(7, &active, 512, &mut slots);
        assert_eq!(slots, [-3.0, 512.0]);
        assert_eq!(word.compare(&record(Lineage::NONE), &[5, 1], members[1], false), None, "another view's");
    }
}

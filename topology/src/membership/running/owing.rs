//! Members that owed us something in earlier tries of a step.

use crate::id::PeerId;
use crate::membership::seat::Seat;
use crate::message::stall_report::StallReport;
use crate::vote::proposal::Reason;

/// For which step a member has owed us something, and in how many tries. Until it is taken we keep no link to one that the view
/// has severed from us for it, though it speaks: else who withholds from one after the other would be back at the first. Nor to
/// one that no ring goes without, once it has done so twice.
#[derive(Debug, Clone, Copy)]
pub(in crate::membership) struct Owing {
    pub(in crate::membership) step: u64,
    pub(in crate::membership) tries: u32,
}

impl Seat {
    /// We have waited for these in vain, and enter the next view. Its reasons say which of them could have sent what they owed.
    pub(in crate::membership) fn note_owing(&mut self, me: PeerId, awaited: &StallReport, reasons: &[Reason]) {
        let with_us = reasons.iter().filter_map(|reason| match reason {
            Reason::Severed(a, b) if *a == me => Some(*b),
            Reason::Severed(a, b) if *b == me => Some(*a),
            _ => None,
        });
        for peer in with_us.filter(|peer| awaited.from.contains(peer) && self.view.contains(*peer)) {
            let owing = self.owing.entry(peer).or_insert(Owing { step: awaited.step, tries: 0 });
            owing.tries = owing.tries.saturating_add(1);
        }
    }
}

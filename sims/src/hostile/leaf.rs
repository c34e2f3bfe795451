//! Leaves that do what no correct one does: each runs the shipped machine, and what that says passes through its hands.

use starling_topology::{Body, CarrierBody, DeclineReason, Envelope, Generation, LeafBody, RunId, ViewId};

use crate::hardware::network::rng::Rng;
use crate::steps::message::{LeafGradient, Message, Sealed};
use crate::world::RUN;

/// What a hostile leaf does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeafAttack {
    /// Its gradients have another length, by what they say or by what comes.
    Length,
    /// They have numbers that are not finite.
    NotFinite,
    /// They have numbers beyond the run's bound.
    TooLarge,
    /// They are of other samples, or of another weight.
    OtherSamples,
    /// They are of another step.
    OtherStep,
    /// They answer what it was not given.
    NotGiven,
    /// It answers twice.
    Twice,
    /// It answers what is over, as if that were new.
    Late,
    /// It says far too much.
    Floods,
    /// It attaches again and again.
    AttachesAgain,
    /// It says that it has applied what it has not.
    AppliesAhead,
    /// It tells another digest each time.
    OtherDigest,
    /// It votes, and says that it contributes.
    ClaimsVotes,
    /// It sends bytes that are no message.
    Garbage,
    /// It never answers.
    Mute,
}

impl LeafAttack {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Length,
        Self::NotFinite,
        Self::TooLarge,
        Self::OtherSamples,
        Self::OtherStep,
        Self::NotGiven,
        Self::Twice,
        Self::Late,
        Self::Floods,
        Self::AttachesAgain,
        Self::AppliesAhead,
        Self::OtherDigest,
        Self::ClaimsVotes,
        Self::Garbage,
        Self::Mute,
    ];
}

/// What a hostile leaf says.
#[derive(Debug)]
pub struct LeafLiar {
    attack: LeafAttack,
    rng: Rng,
    /// The last answer that it has given.
    last: Option<Message>,
    view: (Generation, ViewId),
}

impl LeafLiar {
    /// One that does this, at times that `rng` determines.
    pub fn new(attack: LeafAttack, rng: Rng) -> Self {
        Self { attack, rng, last: None, view: (Generation(1), ViewId::NONE) }
    }

    /// What it says of its own accord when it hears something.
    pub fn hears(&mut self, body: &CarrierBody) -> Vec<Message> {
        if let CarrierBody::Start { generation, lineage, .. } = body {
            self.view = (*generation, lineage.view);
        }
        let word = |body: LeafBody| Message::OfLeaf(body.encode(), None);
        match self.attack {
            LeafAttack::Floods if self.rng.one_in(3) => {
                (0..self.rng.between(1, 400)).map(|_| word(LeafBody::Alive)).collect()
            }
            LeafAttack::AttachesAgain if self.rng.one_in(2) => {
                let run = if self.rng.one_in(4) { RunId([1; 32]) } else { RUN };
                vec![word(LeafBody::Attach { run, progress: None }); 1 + self.rng.one_in(3) as usize * 20]
            }
            LeafAttack::NotGiven if self.rng.one_in(4) => {
                let number = self.rng.between(0, 50);
                vec![word(LeafBody::Declines { number, reason: DeclineReason::Over })]
            }
            LeafAttack::Late => self.last.take().into_iter().collect(),
            LeafAttack::ClaimsVotes => {
                let (generation, view) = self.view;
                let body = match self.rng.between(0, 3) {
                    0 => Body::Contributes { step: self.rng.between(0, 30) },
                    1 => Body::Synced,
                    2 => Body::Heartbeat { step: self.rng.between(0, 30), waiting: 0 },
                    _ => Body::Leave,
                };
                let envelope = Envelope { run: RUN, generation, view, body };
                vec![Message::Control(Sealed::new(&envelope))]
            }
            LeafAttack::Garbage if self.rng.one_in(2) => {
                let length = self.rng.between(0, 40);
                vec![Message::OfLeaf((0..length).map(|_| self.rng.bits() as u8).collect(), None)]
            }
            _ => Vec::new(),
        }
    }

    /// What it says when its machine wants to say something.
    pub fn says(&mut self, body: &LeafBody, message: Message) -> Vec<Message> {
        let LeafBody::Gradient { number, step, weight, ranges, elements } = body.clone() else {
            return self.says_else(body, message);
        };
        let Message::OfLeaf(_, Some(numbers)) = &message else { return vec![message] };
        let numbers = *numbers;
        let of = |body: LeafBody, numbers: Option<LeafGradient>| vec![Message::OfLeaf(body.encode(), numbers)];
        let same = |elements| LeafBody::Gradient { number, step, weight, ranges: ranges.clone(), elements };
        let first = ranges.first().map_or(0, |range| range.start);
        match self.attack {
            LeafAttack::Mute => Vec::new(),
            LeafAttack::Length => match self.rng.between(0, 3) {
                0 => of(same(elements + 1), Some(LeafGradient { elements: elements + 1, ..numbers })),
                1 => of(same(u64::MAX), Some(numbers)),
                2 => of(same(elements), Some(LeafGradient { elements: 0, ..numbers })),
                _ => of(same(elements), None),
            },
            LeafAttack::NotFinite => {
                let largest = if self.rng.one_in(2) { f32::NAN } else { f32::INFINITY };
                of(same(elements), Some(LeafGradient { largest, ..numbers }))
            }
            LeafAttack::TooLarge => of(same(elements), Some(LeafGradient { largest: 1e9, ..numbers })),
            LeafAttack::OtherSamples => {
                let (weight, ranges) = match self.rng.between(0, 2) {
                    0 => (weight + 1, ranges),
                    1 => (1, std::iter::once(first..first + 1).collect()),
                    _ => (weight, std::iter::once(first + 1..first.saturating_add(2)).collect()),
                };
                of(LeafBody::Gradient { number, step, weight, ranges, elements }, Some(numbers))
            }
            LeafAttack::OtherStep => {
                of(LeafBody::Gradient { number, step: step + 1, weight, ranges, elements }, Some(numbers))
            }
            LeafAttack::NotGiven => {
                let number = number + self.rng.between(1, 9);
                of(LeafBody::Gradient { number, step, weight, ranges, elements }, Some(numbers))
            }
            LeafAttack::Twice => vec![message.clone(), message],
            LeafAttack::Late => {
                self.last = Some(message);
                Vec::new()
            }
            LeafAttack::Floods
            | LeafAttack::AttachesAgain
            | LeafAttack::AppliesAhead
            | LeafAttack::OtherDigest
            | LeafAttack::ClaimsVotes
            | LeafAttack::Garbage => vec![message],
        }
    }

    fn says_else(&mut self, body: &LeafBody, message: Message) -> Vec<Message> {
        match (self.attack, body) {
            (LeafAttack::AppliesAhead, LeafBody::Applied { start, step, digest }) => {
                let step = step + self.rng.between(0, 3);
                vec![Message::OfLeaf(LeafBody::Applied { start: *start, step, digest: *digest }.encode(), None)]
            }
            (LeafAttack::OtherDigest, LeafBody::Applied { start, step, .. }) => {
                let digest = Some(starling_topology::Digest([self.rng.bits() as u8; 32]));
                vec![Message::OfLeaf(LeafBody::Applied { start: *start, step: *step, digest }.encode(), None)]
            }
            _ => vec![message],
        }
    }
}

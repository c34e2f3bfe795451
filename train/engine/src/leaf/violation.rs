//! What a leaf, or a carrier, can do wrong.

use starling_topology::Violation;

/// What no correct leaf, or no correct carrier, does. Whoever does it is let go, and the step goes on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LeafViolation {
    /// What came is no message, or exceeds a bound.
    Message(Violation),
    /// A gradient of a work that it was not given.
    NotGiven {
        /// The work's number.
        number: u64,
    },
    /// A second answer to one work.
    Twice {
        /// The work's number.
        number: u64,
    },
    /// A gradient of another step than the work's.
    OtherStep {
        /// The step that it names.
        step: u64,
    },
    /// A gradient over other samples than the work's, or with another weight.
    OtherSamples {
        /// The work's number.
        number: u64,
    },
    /// A gradient of another length than the run's.
    Length {
        /// How many numbers it has.
        elements: u64,
        /// How many it should have.
        expected: u64,
    },
    /// A number that is not finite.
    NotFinite {
        /// Its place.
        at: u64,
    },
    /// A number that is larger than the run allows.
    TooLarge {
        /// Its place.
        at: u64,
        /// The number.
        value: f32,
    },
    /// A gradient without its numbers, or numbers without a gradient.
    Detached,
    /// It has applied a step that it got no result of, or one before it.
    Beyond {
        /// The step.
        step: u64,
    },
    /// More messages than what it was sent calls for.
    Floods,
    /// Its state differs from its carrier's again, after it has loaded that.
    Differs {
        /// The step.
        step: u64,
    },
    /// A carrier's work over samples that are not of its share, or of another step or epoch than the ledger's.
    NotItsShare {
        /// The step that it names.
        step: u64,
    },
    /// A second work before the first is answered.
    TooMuchWork,
    /// A result that does not follow the one before.
    DoesNotFollow {
        /// Its step.
        step: u64,
    },
    /// Something that is said out of turn: a start of a state that the leaf does not hold, a result before any start.
    OutOfTurn,
}

impl std::fmt::Display for LeafViolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Message(violation) => write!(f, "{violation}"),
            Self::NotGiven { number } => write!(f, "sent a gradient of work {number}, which it was not given"),
            Self::Twice { number } => write!(f, "answered work {number} twice"),
            Self::OtherStep { step } => write!(f, "sent a gradient of step {step}, for which it was given no work"),
            Self::OtherSamples { number } => {
                write!(f, "sent a gradient over other samples than those of work {number}")
            }
            Self::Length { elements, expected } => {
                write!(f, "sent a gradient of {elements} numbers, where the run has {expected}")
            }
            Self::NotFinite { at } => write!(f, "sent a gradient whose number {at} is not finite"),
            Self::TooLarge { at, value } => {
                write!(f, "sent a gradient whose number {at}, {value}, is beyond the run's bound")
            }
            Self::Detached => f.write_str("sent a gradient without numbers, or numbers without a gradient"),
            Self::Beyond { step } => write!(f, "said that it has applied step {step}, whose result it was not sent"),
            Self::Floods => f.write_str("sent more than what it was sent calls for"),
            Self::Differs { step } => write!(f, "holds another state after step {step} again"),
            Self::NotItsShare { step } => write!(f, "handed on samples of step {step} that are not of its share"),
            Self::TooMuchWork => f.write_str("handed on work before the one before was answered"),
            Self::DoesNotFollow { step } => {
                write!(f, "sent a result of step {step}, which does not follow the one before")
            }
            Self::OutOfTurn => f.write_str("said something out of turn"),
        }
    }
}

impl std::error::Error for LeafViolation {}

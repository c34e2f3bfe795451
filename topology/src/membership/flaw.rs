//! Mistakes that can be planted, to see that whoever tests the machines finds them. Without the feature `flaws` nothing plants
//! any.

/// A mistake in the membership machine, or in the steps that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlawKind {
    /// A proposer proposes anew although a value was accepted.
    IgnoresAccepted,
    /// A proposal is decided as soon as its proposer has accepted it, and believed without proof.
    DecidesAlone,
    /// A member promises while its steps run.
    PromisesRunning,
    /// A fork does not say that it is one, nor wait.
    ForksUnmarked,
    /// Who is silent is not suspected.
    IgnoresSilence,
    /// Nobody takes over from a proposer that is gone.
    NeverTakesOver,
    /// All go on from the oldest state that one of them holds.
    TakesOldest,
    /// Who comes back with less than it had saved does not say so.
    HidesLoss,
    /// Those who came back go on at once from less than their view began with.
    GoesBack,
    /// Who asks to be let in and holds no state never takes its own seat again.
    StaysOutside,
    /// Who waits in vain does not say so.
    WaitsInSilence,
    /// Members are let in with the state before the first step.
    NeverSyncs,
    /// Held steps let one more through.
    HoldsLate,
    /// A member says that one more step is committed than its held steps have.
    HoldsAhead,
    /// What is reduced while the state is on its way is not kept.
    DropsKept,
    /// A view is installed that nobody has signed.
    BelievesInstalls,
    /// A member ends for one digest that differs from its own.
    EndsForDigest,
    /// A joiner's generation counts, whatever it says.
    TakesGenerations,
    /// One message may use up all attempts.
    CountsWithoutBound,
    /// A joiner ends when one member refuses it.
    EndsForRefusal,
    /// A member goes outside for what one peer says.
    GoesWhereTold,
    /// Who is introduced is let in, whether it has asked or not.
    AdmitsIntroduced,
    /// What a member says of the end of another is believed.
    BelievesFinished,
    /// Who is shown what it said and has forgotten does not tell its user.
    HidesSetBack,
    /// What those say counts who have signed on two ways that part.
    CountsDoubleSigners,
    /// Who is shown that another process has taken its seat, or is answered by it, asks for that again.
    IgnoresTwin,
    /// Who starts although another process answers as this machine takes part.
    OverlooksTwin,
    /// Who comes back says that it holds a state, whatever its disk has.
    ClaimsState,
    /// Who comes back and may be behind asks only once.
    AsksOnce,
    /// Who comes back takes a checkpoint of any branch.
    FetchesAnyBranch,
    /// What a member says that it has accepted counts without the echoes of a quorum.
    BelievesClaims,
    /// A chunk of a state is taken whatever its hash is.
    TakesUnverified,
    /// The state that the first donor names is loaded, not that which most do.
    TakesFirstNamed,
    /// Who has finished lets nobody in any more, and waits for nobody.
    RefusesTheLate,
    /// Who has finished ends before keepers that are there hold the last state.
    LeavesKeepers,
    /// Whoever is let in has a vote at once.
    VotesAtOnce,
    /// Who has no vote says once that it contributes, and never again.
    OwesNothing,
    /// Where no ring leads around links that failed, somebody is put out, though a hub reaches all.
    NeedsRing,
    /// Where one voter alone is in the way of a hub, all go who have no vote.
    SparesNobody,
    /// However often links fail, no view is unsteady.
    NeverDamps,
    /// A view that is unsteady stays so for ever.
    DampsForEver,
    /// A carrier waits for what its leaves owe, however long that takes.
    WaitsForLeaves,
    /// A carrier counts what it has computed in a leaf's place beside what the leaf brings.
    CountsLeavesTwice,
    /// A carrier contributes without what its leaves owe.
    CountsWithoutLeaves,
    /// A carrier counts what a leaf brings after the step that it is of.
    TakesLateGradients,
    /// A leaf that has lost its carrier tries no other one.
    StaysWithCarrier,
}

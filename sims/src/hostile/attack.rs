//! What a hostile member does.

/// One kind of lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Attack {
    /// Installs views that nobody has decided, with forged certificates or none, and forks.
    Installs,
    /// Opens ballots, and says that it has promised such ones, further ahead than one message may lead.
    CountsBeyond,
    /// As far ahead as one message may lead, again and again.
    CountsAhead,
    /// Opens one ballot after the other.
    OpensBallots,
    /// Has the others hold after a step that never comes.
    HoldsNever,
    /// Promises with a step that it does not have.
    PromisesAhead,
    /// Promises with an acceptance of what nobody proposed.
    AcceptsFalsely,
    /// Promises without what it accepted.
    Conceals,
    /// Proposes one thing to some and another one to others, in one ballot, and has both accepted.
    ProposesTwice,
    /// Makes two proposals of one ballot, has one decided in silence, and says that it has accepted the other one since.
    SplitsViews,
    /// Echoes and accepts all that it is shown, also two proposals of one ballot.
    EchoesTwice,
    /// Says that a quorum has echoed what it has accepted, or has proposed, with made-up echoes.
    ForgesEchoes,
    /// Promises without what it accepted, and keeps echoes from some.
    HidesEchoes,
    /// Proposes what does not follow from the promises, and installs it if it is accepted.
    ProposesAnything,
    /// Promises nothing, and says each time that a higher ballot stands against it.
    Refutes,
    /// Says that others are outside, with forged chains and old ones.
    ShowsOut,
    /// Refuses whoever it hears of, for every reason.
    Refuses,
    /// Wants to leave, and stays.
    Leaves,
    /// Says that innocents are gone.
    Accuses,
    /// Says that its links fail, again and again.
    FailsLinks,
    /// Introduces peers that are not there.
    Introduces,
    /// Asks to be let in although it is, and claims what it does not hold.
    JoinsAgain,
    /// Tells other digests than its own, and other ones to others.
    TellsDigests,
    /// Says that it, or another, has finished, and that it needs nothing more.
    Finishes,
    /// Says that it holds the state.
    Syncs,
    /// Says that it contributes, whatever it does, and when it promises that others do which do not, or that nobody does.
    Contributes,
    /// Has measured nonsense.
    Measures,
    /// Says that it waits in vain or does not, and is far ahead.
    Beats,
    /// Does not send its share of sums to some.
    Withholds,
    /// Does not send its share of sums to the first whom it owes some in each view.
    WithholdsInTurn,
    /// Is silent towards some.
    IsSilent,
    /// Changes a field of what its machine says.
    Distorts,
    /// Says again what it has said before.
    Repeats,
    /// Says to one what its machine says to another.
    Misdirects,
    /// Says what others have said.
    Parrots,
}

impl Attack {
    /// Those that a seed draws from. What the others lead to is not bounded yet; each can be chosen by its name.
    pub const DRAWN: &[Self] = &[
        Self::Installs,
        Self::Conceals,
        Self::SplitsViews,
        Self::EchoesTwice,
        Self::ForgesEchoes,
        Self::HidesEchoes,
        Self::ShowsOut,
        Self::Refuses,
        Self::Leaves,
        Self::Accuses,
        Self::Introduces,
        Self::JoinsAgain,
        Self::TellsDigests,
        Self::Finishes,
        Self::Syncs,
        Self::Measures,
        Self::Beats,
        Self::Repeats,
        Self::Parrots,
    ];

    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Installs,
        Self::CountsBeyond,
        Self::CountsAhead,
        Self::OpensBallots,
        Self::HoldsNever,
        Self::PromisesAhead,
        Self::AcceptsFalsely,
        Self::Conceals,
        Self::ProposesTwice,
        Self::SplitsViews,
        Self::EchoesTwice,
        Self::ForgesEchoes,
        Self::HidesEchoes,
        Self::ProposesAnything,
        Self::Refutes,
        Self::ShowsOut,
        Self::Refuses,
        Self::Leaves,
        Self::Accuses,
        Self::FailsLinks,
        Self::Introduces,
        Self::JoinsAgain,
        Self::TellsDigests,
        Self::Finishes,
        Self::Syncs,
        Self::Contributes,
        Self::Measures,
        Self::Beats,
        Self::Withholds,
        Self::WithholdsInTurn,
        Self::IsSilent,
        Self::Distorts,
        Self::Repeats,
        Self::Misdirects,
        Self::Parrots,
    ];
}

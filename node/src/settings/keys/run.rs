//! Keys of what all members share, and of what a founder says besides.

use starling_run::manifest::spec::MAX_DROPOUT;
use starling_run::training::optimizer::{NAMES, OptimizerSpec, SettingSpec};
use starling_run::{
    AugmentPolicy, CLIP, ClassWeightPolicy, GroupSpec, LossKind, MAX_PATIENCE, MAX_STALL_MS, ModelOptions, ModelSpec,
    RunSpec,
};

use super::DefaultValue::{None as Unset, Value as Is};
use super::{DefaultValue, FILES, Key, KeyTarget, Kind, NETWORKS, TRAINING, Value};
use crate::settings::RunLimit;

/// The most members that a run may have. The wire format has the same bound.
pub(super) const MAX_PEERS: i64 = starling_topology::message::MAX_MEMBERS as i64;
/// A checkpoint's file name has room for twelve digits.
pub(super) const MAX_STEPS: i64 = 999_999_999_999;
/// Of so many samples as a run may have, a pass takes less steps than 2^32.
const MAX_EPOCHS: i64 = 1_000_000;
/// What a setting of an optimizer is that nobody said.
const OWN: DefaultValue = Unset("the optimizer's own");

pub(super) static RUN: &[Key] = &[
    Key::new(
        "run.model",
        Kind::Text,
        Is("mlp:64"),
        "softmax, mlp:64,64 (hidden layers) or cnn:8,16 (channels) for classes; linear or regression:64,64 (hidden layers) for labels that are numbers; \
         gpt:4x128 (layers x width, x heads, x heads of keys) for a text.",
        KeyTarget::Run(|run, value| {
            let said: ModelSpec = value.parse()?;
            // Options that are known stay, unless it says some.
            let known = run.model.parts().map(|(_, options)| options).unwrap_or_default();
            let is_plain = said.parts().is_some_and(|(_, options)| options == ModelOptions::default());
            run.model = if is_plain { said.having(|options| *options = known) } else { said };
            Ok(())
        }),
    )
    .flag("--model", "MODEL"),
    Key::new(
        "run.dropout",
        Kind::Float(0.0, MAX_DROPOUT),
        Unset("what the model says, or none"),
        "Share of the numbers between the layers of an mlp, a regression, a cnn or a gpt that is dropped in training, drawn for each micro-batch: it \
         needs micro-batches.",
        KeyTarget::Run(|run, value| option(run, |options| options.dropout = value.float())),
    )
    .flag("--dropout", "SHARE")
    .under(TRAINING),
    Key::new(
        "run.batch_norm",
        Kind::Bool,
        Unset("what the model says, or false"),
        "Whether the hidden layers of an mlp or a regression, or the convolutions of a cnn, are followed by batch normalizations; they go by \
         micro-batches, and need them.",
        KeyTarget::Run(|run, value| option(run, |options| options.batch_norm = value.bool())),
    )
    .flag("--batch-norm", "BOOL")
    .under(TRAINING),
    Key::new(
        "run.residual",
        Kind::Bool,
        Unset("what the model says, or false"),
        "Whether each convolution of a cnn is a residual block instead: two convolutions, to which what goes in is added; images are halved \
         between blocks of different widths.",
        KeyTarget::Run(|run, value| option(run, |options| options.residual = value.bool())),
    )
    .flag("--residual", "BOOL")
    .under(TRAINING),
    Key::new(
        "run.tied_output",
        Kind::Bool,
        Unset("what the model says, or false"),
        "Whether the embeddings of a gpt are the weights of its output, too.",
        KeyTarget::Run(|run, value| option(run, |options| options.tied_output = value.bool())),
    )
    .flag("--tied-output", "BOOL")
    .under(TRAINING),
    Key::new(
        "run.freeze",
        Kind::List,
        Unset("nothing"),
        "Parameters that stay as they are, by path, as hidden.0.weight, or all in a part of the model, as convolutions; they don't travel in a \
         step.",
        KeyTarget::Run(|run, value| {
            run.freeze = value.list().to_vec();
            Ok(())
        }),
    )
    .flag("--freeze", "PATHS")
    .under(TRAINING),
    Key::new(
        "run.groups",
        Kind::List,
        Unset("nothing"),
        "Parameters whose learning rate or weight decay is multiplied by a factor, by path, as convolutions:rate=0.1, or by the last part of a \
         path, as *.bias:decay=0.",
        KeyTarget::Run(|run, value| {
            run.groups = value.list().iter().map(|group| group.parse()).collect::<Result<Vec<GroupSpec>, _>>()?;
            Ok(())
        }),
    )
    .flag("--groups", "GROUPS")
    .under(TRAINING),
    Key::new(
        "run.augment",
        Kind::List,
        Unset("what the model says, or nothing"),
        "How a cnn's images are changed each time they are trained on: crop (moved a little), flip (mirrored) or both.",
        KeyTarget::Run(|run, value| {
            let ways = value.list().iter().map(|way| way.parse()).collect::<Result<Vec<AugmentPolicy>, _>>()?;
            option(run, |options| options.augment = ModelOptions::augmented(ways))
        }),
    )
    .flag("--augment", "WAYS")
    .under(TRAINING),
    Key::new(
        "run.loss",
        Kind::Text,
        Unset("what the model says, or the usual one"),
        "What linear and regression make small: squared (outputs become means), absolute (medians), huber (in between), or \
         quantile:0.9 (that quantile).",
        KeyTarget::Run(|run, value| {
            let loss = value.text().parse::<LossKind>()?;
            option(run, |options| options.loss = Some(loss))
        }),
    )
    .flag("--loss", "LOSS")
    .under(TRAINING),
    Key::new(
        "run.class_weights",
        Kind::Choice(&ClassWeightPolicy::NAMES),
        Unset("what the model says, or equal"),
        "How much the classes of softmax, mlp or cnn count in the loss: equal (each sample as much as any other) or balanced (each class).",
        KeyTarget::Run(|run, value| {
            let weights = value.text().parse::<ClassWeightPolicy>()?;
            option(run, |options| options.class_weights = weights)
        }),
    )
    .flag("--class-weights", "WEIGHTS")
    .under(TRAINING),
    Key::new(
        "run.optimizer",
        Kind::Choice(&NAMES),
        Is("adamw"),
        "How parameters follow gradients.",
        KeyTarget::Run(|run, value| {
            // Settings that are known stay.
            if run.optimizer.name() != value.text() {
                run.optimizer = OptimizerSpec::named(value.text()).expect("invariant: one of the registry");
            }
            Ok(())
        }),
    )
    .flag("--optimizer", "NAME")
    .under(TRAINING),
    setting(
        "run.learning_rate",
        SettingSpec::LEARNING_RATE,
        OWN,
        "Step size.",
        KeyTarget::Run(|run, value| tune(run, "learning_rate", value)),
    )
    .flag("--learning-rate", "RATE")
    .alias("lr")
    .under(TRAINING),
    setting(
        "run.momentum",
        SettingSpec::MOMENTUM,
        Is("0.9"),
        "Share of the velocity that momentum and nesterov keep.",
        KeyTarget::Run(|run, value| tune(run, "momentum", value)),
    )
    .flag("--momentum", "SHARE")
    .under(TRAINING),
    setting(
        "run.beta1",
        SettingSpec::BETA1,
        OWN,
        "Share of the first moment that is kept.",
        KeyTarget::Run(|run, value| tune(run, "beta1", value)),
    )
    .flag("--beta1", "SHARE")
    .under(TRAINING),
    setting(
        "run.beta2",
        SettingSpec::BETA2,
        OWN,
        "Share of the second moment that is kept.",
        KeyTarget::Run(|run, value| tune(run, "beta2", value)),
    )
    .flag("--beta2", "SHARE")
    .under(TRAINING),
    setting(
        "run.epsilon",
        SettingSpec::EPSILON,
        OWN,
        "What is added to the root of the second moment, against a division by nothing.",
        KeyTarget::Run(|run, value| tune(run, "epsilon", value)),
    )
    .flag("--epsilon", "NUMBER")
    .under(TRAINING),
    setting(
        "run.weight_decay",
        SettingSpec::WEIGHT_DECAY,
        Is("0.0"),
        "Penalty on large parameters.",
        KeyTarget::Run(|run, value| tune(run, "weight_decay", value)),
    )
    .flag("--weight-decay", "RATE")
    .under(TRAINING),
    setting(
        "run.ema",
        SettingSpec::AVERAGE,
        Is("0.0"),
        "Share of a moving average of the parameters that is kept in a step: it is evaluated and exported. 0: there is none.",
        KeyTarget::Run(|run, value| tune(run, "ema", value)),
    )
    .flag("--ema", "SHARE")
    .under(TRAINING),
    Key::new(
        "run.schedule",
        Kind::Text,
        Is("constant"),
        "How the learning rate falls: constant, linear:0.1 (to a tenth by the run's end), cosine:0.1,5000 (within 5000 steps), \
         step:0.5,1000 (halved after each 1000 steps), exponential:0.999 (each step), inverse-root:1000, plateau:0.5,3 (halved after each 3 \
         evaluations without a lower held-out loss), or several with * between them; @2000 behind one: it begins 2000 steps later.",
        KeyTarget::Run(|run, value| value.parse().map(|decay| run.schedule.decay = decay)),
    )
    .flag("--schedule", "SCHEDULE")
    .under(TRAINING),
    Key::new(
        "run.warm_up",
        Kind::Integer(0, MAX_STEPS),
        Is("0"),
        "Steps in which the learning rate goes up to its full value, before it falls.",
        KeyTarget::Run(put!(|run, value| run.schedule.warm_up = value.count())),
    )
    .flag("--warm-up", "N")
    .under(TRAINING),
    Key::new(
        "run.plateau",
        Kind::Integer(0, MAX_STEPS),
        Is("0"),
        "Steps for which the learning rate stays at its full value after the warm-up, before it falls.",
        KeyTarget::Run(put!(|run, value| run.schedule.plateau = value.count())),
    )
    .flag("--plateau", "N")
    .under(TRAINING),
    Key::new(
        "run.clip",
        Kind::Float(*CLIP.start(), *CLIP.end()),
        Unset("gradients are as long as they are"),
        "The largest norm of a step's mean gradient: a longer one is made as short, before the optimizer has it.",
        KeyTarget::Run(put!(|run, value| run.clip = Some(value.float() as f32))),
    )
    .flag("--clip", "NORM")
    .under(TRAINING),
    Key::new(
        "run.clip_by",
        Kind::Text,
        Is("norm"),
        "What may not be longer than run.clip: norm (all of the gradient), tensor (that of each parameter) or value (each number).",
        KeyTarget::Run(put!(|run, value| run.clip_by = value.parse()?)),
    )
    .flag("--clip-by", "WHAT")
    .under(TRAINING),
    Key::new(
        "run.batch_size",
        Kind::Integer(1, 1 << 20),
        Is("64"),
        "Samples per step, over all members together.",
        KeyTarget::Run(put!(|run, value| run.batch_size = value.small())),
    )
    .flag("--batch-size", "N")
    .under(TRAINING),
    Key::new(
        "run.micro_batch",
        Kind::Integer(0, 1 << 20),
        Is("0"),
        "Samples that are computed together, from a seed of their own, so that it does not matter which member does it; the \
         batch is a multiple of it. Bounds the memory that a step takes. 0: each member computes its whole share at once.",
        KeyTarget::Run(put!(|run, value| run.micro_batch = value.small())),
    )
    .flag("--micro-batch", "N")
    .under(TRAINING),
    Key::new(
        "run.precision",
        Kind::Text,
        Is("f32"),
        "In what numbers devices go forward and backward: f32, bf16 or f16 (whose losses are scaled). The state, the update and what is evaluated \
         are f32 in any case.",
        KeyTarget::Run(put!(|run, value| run.precision = value.parse()?)),
    )
    .flag("--precision", "NUMBERS")
    .under(TRAINING),
    Key::new(
        "run.shuffle",
        Kind::Text,
        Is("full"),
        "In what order an epoch visits samples: full (any), or blocks: 8192 samples that lie behind each other stay together, and 16 such blocks at \
         a time are shuffled; blocks:ROWSxBLOCKS says other numbers. Fast where data stays in its files.",
        KeyTarget::Run(put!(|run, value| run.shuffle = value.parse()?)),
    )
    .flag("--shuffle", "ORDER")
    .under(TRAINING),
    Key::new(
        "run.steps",
        Kind::Integer(1, MAX_STEPS),
        Unset("600, but at least 50 epochs and at most 100"),
        "The run's last step.",
        KeyTarget::Run(put!(|run, value| run.steps = value.count())),
    )
    .flag("--steps", "N"),
    Key::new(
        "run.epochs",
        Kind::Integer(1, MAX_EPOCHS),
        Unset("run.steps says how long it is"),
        "Passes over the samples to train on, instead of steps; those are told when the run is founded.",
        KeyTarget::Founding(put!(|founding, value| founding.length = RunLimit::Epochs(value.count()))),
    )
    .flag("--epochs", "N")
    .under(TRAINING),
    Key::new(
        "run.evaluate_every_steps",
        Kind::Integer(0, MAX_STEPS),
        Is("0"),
        "Members evaluate the held-out samples together every so many steps. 0: at the end alone, or every 100 steps if --early-stop or a \
         schedule goes by it.",
        KeyTarget::Run(put!(|run, value| run.evaluate_every = value.count())),
    )
    .flag("--evaluate-every", "N")
    .under(TRAINING),
    Key::new(
        "run.early_stop",
        Kind::Integer(0, MAX_PATIENCE as i64),
        Is("0"),
        "Evaluations in a row without a lower held-out loss after which the run ends before its last step; its model is the best one \
         that was evaluated. 0: it takes all steps, and its model is the last one.",
        KeyTarget::Run(put!(|run, value| run.early_stop = value.small())),
    )
    .flag("--early-stop", "N")
    .under(TRAINING),
    Key::new(
        "run.seed",
        Kind::Integer(0, i64::MAX),
        Is("42"),
        "Seed of the initial parameters, the sample order and the held-out split.",
        KeyTarget::Run(put!(|run, value| run.seed = value.count())),
    )
    .flag("--seed", "N")
    .under(TRAINING),
    Key::new(
        "run.held_out",
        Kind::Float(0.001, 0.9),
        Is("0.2"),
        "Share of the samples kept from training, to measure accuracy on.",
        KeyTarget::Founding(put!(|founding, value| founding.run.held_out = value.float() as f32)),
    )
    .flag("--held-out", "SHARE")
    .under(TRAINING),
    Key::new(
        "run.balance",
        Kind::Choice(&["speed", "equal"]),
        Is("speed"),
        "speed (a faster machine computes more samples of each step) or equal.",
        KeyTarget::Run(|run, value| value.parse().map(|balance| run.balance = balance)),
    )
    .flag("--balance", "HOW")
    .under(TRAINING),
    Key::new(
        "run.min_peers",
        Kind::Integer(1, MAX_PEERS),
        Is("1"),
        "Members needed to take steps.",
        KeyTarget::Founding(put!(|founding, value| founding.min_peers = value.small() as usize)),
    )
    .flag("--min-peers", "N"),
    Key::new(
        "run.checkpoint_every_steps",
        Kind::Integer(0, MAX_STEPS),
        Is("100"),
        "All members save a checkpoint every so many steps; 0 saves only at the end.",
        KeyTarget::Run(put!(|run, value| run.checkpoint_every = value.count())),
    )
    .flag("--checkpoint-every", "N")
    .under(FILES),
    Key::new(
        "run.public",
        Kind::Bool,
        Is("false"),
        "Whether anyone who knows an address may join, without the ticket's secret.",
        KeyTarget::Founding(put!(|founding, value| founding.public = value.bool())),
    )
    .flag("--public", "BOOL"),
];

pub(super) static COLLECTIVE: &[Key] = &[
    Key::new(
        "collective.codec",
        Kind::Choice(&["f32", "bf16", "f16", "int8"]),
        Is("f32"),
        "How gradients are written on the wire: f32, or shorter as bf16, f16 or int8. What is lost is made up for later.",
        KeyTarget::Run(|run, value| value.parse().map(|codec| run.codec = codec)),
    )
    .flag("--codec", "CODEC")
    .under(NETWORKS),
    Key::new(
        "collective.plan",
        Kind::Choice(&["ring", "tree", "mesh", "auto", "hierarchical", "star"]),
        Is("ring"),
        "Who sends to whom: ring, tree (few hops), mesh (two hops, a link to each other member), hierarchical (sites as \
         measured links show them, a ring if there are none), star (all through one member) or auto.",
        KeyTarget::Run(|run, value| value.parse().map(|plan| run.plan = plan)),
    )
    .flag("--plan", "PLAN")
    .under(NETWORKS),
    Key::new(
        "collective.bound",
        Kind::Float(1e-6, 1e24),
        Is("1e12"),
        "The largest number of a member's mean gradient or loss. Who sends more is left out. Joiners take it from the run.",
        KeyTarget::Run(put!(|run, value| run.bound = value.float() as f32)),
    ),
    Key::new(
        "collective.bucket_kib",
        Kind::Integer(1, 262_144),
        Is("4096"),
        "KiB of gradient reduced together. Joiners take it from the run.",
        KeyTarget::Run(put!(|run, value| run.layout.bucket_bytes = value.small() * 1024)),
    ),
    Key::new(
        "collective.segment_kib",
        Kind::Integer(1, 1024),
        Is("128"),
        "Unit of IO within a chunk, in KiB, at most bucket_kib. Joiners take it from the run.",
        KeyTarget::Run(|run, value| {
            run.layout.segment_bytes = value.small() * 1024;
            run.layout.check()
        }),
    ),
    Key::new(
        "collective.in_flight",
        Kind::Integer(1, 1024),
        Is("4"),
        "Buckets that this machine has in flight together.",
        KeyTarget::Machine(put!(|machine, value| machine.buckets_in_flight = value.small())),
    ),
];

pub(super) static SECURITY: &[Key] = &[Key::new(
    "security.quorum",
    Kind::Choice(&["majority", "two-thirds"]),
    Is("majority"),
    "Which members decide who is a member: a majority, so that any fewer may die, or two-thirds, so that fewer than a third \
     can't split the run if they are hostile; with fewer than four members, it then stands still at the first death. Joiners \
     take it from the run.",
    KeyTarget::Run(|run, value| value.parse().map(|quorum| run.quorum = quorum)),
)
.flag("--quorum", "RULE")];

/// It stands among the keys of the network.
pub(super) const MAX_STALL: Key = Key::new(
    "network.max_stall_ms",
    Kind::Milliseconds(*MAX_STALL_MS.start() as i64, *MAX_STALL_MS.end() as i64),
    Is("10s"),
    "The longest that a run may stand still because of one peer: milliseconds, or a duration such as 10s. All deadlines derive \
     from it. Joiners take it from the run.",
    KeyTarget::Run(put!(|run, value| run.max_stall_ms = value.count())),
)
.flag("--max-stall", "DURATION")
.alias("max-stall-ms")
.under(NETWORKS);

/// The key of a setting of optimizers.
const fn setting(
    id: &'static str,
    setting: SettingSpec,
    default: DefaultValue,
    about: &'static str,
    sets: KeyTarget,
) -> Key {
    Key::new(id, Kind::Float(setting.least, setting.most), default, about, sets)
}

/// Changes one of the model's options.
fn option(run: &mut RunSpec, change: impl FnOnce(&mut ModelOptions)) -> Result<(), String> {
    if run.model.parts().is_none() {
        return Err(format!("`{}` is no model of the command line, and has settings of its own", run.model));
    }
    run.model = std::mem::take(&mut run.model).having(change);
    Ok(())
}

/// Changes one setting of the optimizer, if that has it.
fn tune(run: &mut RunSpec, setting: &str, value: &Value) -> Result<(), String> {
    if run.optimizer.setting(setting).is_some() {
        run.optimizer = run.optimizer.with(setting, value.float() as f32);
    }
    Ok(())
}

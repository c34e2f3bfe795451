//! What holds for every optimizer, and what those of their own tests are proven by.

use starling_collective::codec::kernel;
use starling_topology::SplitMix64Generator;

use super::*;

const PARAMETERS: usize = 1003;
const STEPS: usize = 40;

/// All optimizers, each with its defaults and with other values of all of its settings.
fn specs() -> Vec<OptimizerSpec> {
    let of = |name: &&str| {
        let spec = OptimizerSpec::named(name).expect("it is in the list");
        let other = |spec: OptimizerSpec, (setting, value): (&SettingSpec, f32)| {
            let most = if setting.name == "epsilon" { 1e-3 } else { setting.most.min(0.3) as f32 };
            spec.with(setting.name, (value * 0.8 + 0.05).min(most))
        };
        [spec, spec.settings().fold(spec, other)]
    };
    NAMES.iter().flat_map(of).collect()
}

fn numbers(seed: u64, limit: f64) -> Vec<f32> {
    let mut generator = SplitMix64Generator::new(seed);
    (0..PARAMETERS).map(|_| crate::state::initial::symmetric(&mut generator, limit)).collect()
}

/// One parameter with its moments, as a textbook has them.
#[derive(Debug, Default)]
pub(super) struct Textbook {
    pub(super) p: f64,
    pub(super) m: f64,
    pub(super) v: f64,
    pub(super) largest: f64,
}

/// Checks that steps of `spec` follow `step`, which is told the gradient and the step's number from 1, in f64.
pub(super) fn follows(spec: OptimizerSpec, step: impl Fn(&mut Textbook, f64, i32)) {
    assert_eq!(spec.check(), Ok(()));
    let start = numbers(1, 1.0);
    let gradients: Vec<_> = (0..STEPS as u64).map(|step| numbers(100 + step, 2.0)).collect();
    let mut parameters = start.clone();
    let mut optimizer = OptimizerState::new(spec, PARAMETERS);
    for gradients in &gradients {
        optimizer.step(&mut parameters, gradients, WHOLE).expect("finite");
    }
    for (at, ours) in parameters.iter().enumerate() {
        let mut theirs = Textbook { p: start[at].into(), ..Textbook::default() };
        (1..).zip(&gradients).for_each(|(t, gradients)| step(&mut theirs, gradients[at].into(), t));
        let difference = (f64::from(*ours) - theirs.p).abs();
        assert!(difference < 2e-5, "{spec:?}, parameter {at}: {ours} instead of {}", theirs.p);
    }
}

/// The value of a setting, as a textbook takes it.
pub(super) fn value(spec: OptimizerSpec, setting: &str) -> f64 {
    spec.setting(setting).expect("it has the setting").into()
}

/// The parameter after the first step.
pub(super) fn first(spec: OptimizerSpec, parameter: f32, gradient: f32) -> f32 {
    let mut parameters = [parameter];
    OptimizerState::new(spec, 1).step(&mut parameters, &[gradient], WHOLE).expect("finite");
    parameters[0]
}

/// The beginning of the digest of what many steps lead to. Another compiler, release or processor must come to the same:
/// members may differ in all three.
pub(super) fn fingerprint(spec: OptimizerSpec) -> String {
    let mut parameters = numbers(7, 1.0);
    let mut optimizer = OptimizerState::new(spec, PARAMETERS);
    for step in 0..STEPS as u64 {
        optimizer.step(&mut parameters, &numbers(200 + step, 1.0), WHOLE).expect("finite");
    }
    crate::state::initial::digest(&parameters).to_string()[..16].to_owned()
}

/// The bits of four parameters after ten steps along gradients of few digits, some of which are 0: few enough to be worked
/// out by another program.
pub(super) fn bits(spec: OptimizerSpec) -> [u32; 4] {
    let mut parameters = [0.5, -1.25, 2.0, -0.125];
    let mut optimizer = OptimizerState::new(spec, 4);
    for step in 0..10_u8 {
        let gradients = [0, 1, 2, 3].map(|at: u8| (f32::from((at * 7 + step * 5) % 11) - 5.0) / 8.0);
        optimizer.step(&mut parameters, &gradients, WHOLE).expect("finite");
    }
    parameters.map(f32::to_bits)
}

const WHOLE: StepFactors = StepFactors { gradient: 1.0, learning_rate: 1.0 };

#[test]
fn the_registry_is_a_table_without_surprises() {
    for (at, row) in REGISTRY.iter().enumerate() {
        assert!(REGISTRY[..at].iter().all(|before| before.name != row.name), "{} is there twice", row.name);
        let settings = row.optimizer.settings();
        assert_eq!(settings[0].name, "learning_rate", "{}: schedules change the first setting", row.name);
        assert!(settings.len() <= OptimizerSpec::MAX_SETTINGS);
        let StateSize { moments, scalars } = row.optimizer.shape();
        // An average is one more of each.
        assert!((moments as u32) < crate::state::MAX_MOMENTS && (scalars as u32) < crate::state::MAX_SCALARS);
    }
    assert!(find("adamx").is_none() && OptimizerSpec::named("").is_none());
}

#[test]
fn half_the_learning_rate_is_that_of_the_setting() {
    for spec in specs() {
        let half = spec.with("learning_rate", spec.setting("learning_rate").expect("each has one") * 0.5);
        let run = |spec, factors| {
            let (mut parameters, mut optimizer) = (numbers(8, 1.0), OptimizerState::new(spec, PARAMETERS));
            for step in 0..STEPS as u64 {
                optimizer.step(&mut parameters, &numbers(300 + step, 1.0), factors).expect("finite");
            }
            (parameters, optimizer.moments().to_vec(), optimizer.scalars().to_vec())
        };
        let factors = StepFactors { learning_rate: 0.5, ..WHOLE };
        assert_eq!(run(spec, factors), run(half, WHOLE), "{spec:?}");
    }
}

#[test]
fn equal_inputs_give_equal_bits_wherever_an_element_lies() {
    for spec in specs() {
        let run = |parameters: &[f32], gradients: &[f32]| {
            let mut parameters = parameters.to_vec();
            let mut optimizer = OptimizerState::new(spec, parameters.len());
            for _ in 0..STEPS {
                optimizer.step(&mut parameters, gradients, WHOLE).expect("finite");
            }
            parameters.iter().map(|parameter| parameter.to_bits()).collect::<Vec<_>>()
        };
        let (parameters, gradients) = (numbers(5, 1.0), numbers(6, 1.0));
        let whole = run(&parameters, &gradients);
        // A shifted start moves elements between the vectorized body and the rest of the loop.
        for shift in [1, 2, 3, 5, 1000] {
            assert_eq!(run(&parameters[shift..], &gradients[shift..]), whole[shift..], "{spec:?} shifted by {shift}");
        }
    }
}

#[test]
fn a_scaled_gradient_is_the_product() {
    for spec in specs() {
        let (mut scaled, mut multiplied) = (numbers(8, 1.0), numbers(8, 1.0));
        let (mut ours, mut theirs) = (OptimizerState::new(spec, PARAMETERS), OptimizerState::new(spec, PARAMETERS));
        for step in 0..STEPS as u64 {
            let gradients = numbers(300 + step, 1.0);
            ours.step(&mut scaled, &gradients, StepFactors::scaled(64.0 / 37.0)).expect("finite");
            let gradients: Vec<f32> = gradients.iter().map(|gradient| 64.0 / 37.0 * gradient).collect();
            theirs.step(&mut multiplied, &gradients, WHOLE).expect("finite");
        }
        assert_eq!((scaled, ours), (multiplied, theirs));
    }
}

/// Whatever the numbers: either all that comes of a step is finite, or nothing has changed. What is said to be safe is.
#[test]
fn a_step_leaves_the_finite_numbers_or_the_state_alone() {
    let mut generator = SplitMix64Generator::new(17);
    let (mut taken, mut refused, mut safe) = (0, 0, 0);
    for round in 0..3_000 {
        let spec = specs()[round % specs().len()];
        let mut parameters = numbers(round as u64, 1.0);
        let mut optimizer = OptimizerState::new(spec, PARAMETERS);
        for step in 0..4 {
            // From ordinary to far beyond what can be squared, now and then in one element alone.
            let size = 10_f64.powi(generator.below(39) as i32).min(f64::from(f32::MAX));
            let mut gradients = numbers(1_000 + step, if generator.below(2) == 0 { size } else { 1.0 });
            gradients[generator.below(PARAMETERS as u32) as usize] = size as f32;
            if generator.below(50) == 0 {
                gradients[7] = [f32::NAN, f32::INFINITY][generator.below(2) as usize];
            }
            let factors = StepFactors::scaled([1.0, 64.0][generator.below(2) as usize]);
            let before = (parameters.clone(), optimizer.clone());
            let (largest, gradient) = (optimizer.largest.into(), kernel::magnitude(&gradients).into());
            let is_safe = optimizer.next(factors).is_safe(largest, gradient);
            match optimizer.step(&mut parameters, &gradients, factors) {
                Ok(()) => {
                    let moments = optimizer.moments().iter().map(|moment| moment.as_slice());
                    let all = moments.chain([parameters.as_slice()]).map(kernel::magnitude);
                    assert_eq!(all.fold(0.0, f32::max), optimizer.largest);
                    taken += 1;
                }
                Err(StepError { at, .. }) => {
                    assert_eq!((&parameters, &optimizer), (&before.0, &before.1));
                    let gradient = gradients[at].abs();
                    assert!(!is_safe && (gradient > 1e15 || gradient.is_nan()), "{gradient}");
                    refused += 1;
                }
            }
            safe += u32::from(is_safe);
        }
    }
    assert!(taken > 1_000 && refused > 500 && safe > 1_000, "{taken}, {refused}, {safe}");
}

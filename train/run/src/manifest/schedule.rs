//! How the learning rate goes with the steps: a function of the step's number, with the same bits on every machine.
//!
//! It is computed in f64, with the operations that IEEE 754 defines to the last bit and a cosine in software: that of the
//! platform may differ in its last bits from that of another one.

use std::f64::consts::PI;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The most steps that a schedule may speak of.
const MAX_STEPS: u64 = u64::MAX >> 1;

/// What the learning rate is multiplied by in each step: up to 1, there for a while, then as [`DecayKind`] says.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Steps in which the factor goes up evenly, to 1 in the last of them (Goyal et al. 2017). 0: it begins with 1.
    pub warm_up: u64,
    /// Steps with the full value after them, before it falls (Hu et al.: "MiniCPM", 2024: warm up, stay, decay).
    pub plateau: u64,
    /// What comes after all these.
    pub decay: DecayKind,
}

/// How the learning rate falls after the warm-up and the plateau, beginning with its full value.
///
/// As text: `constant`, `linear`, `linear:0.1` (to a tenth), `linear:0.1,5000` (within 5000 steps), `cosine` likewise,
/// `step:0.5,1000` (halved after each 1000 steps), `exponential:0.999` (the same after each single one), `inverse-root:1000`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DecayKind {
    /// It does not.
    #[default]
    Constant,
    /// In equal steps.
    Linear {
        /// The factor at the end, 0 to 1.
        to: f32,
        /// Within how many steps; `None`: by the run's end.
        within: Option<u64>,
    },
    /// Along half a cosine (Loshchilov, Hutter: "SGDR", 2017, without restarts).
    Cosine {
        /// The factor at the end, 0 to 1.
        to: f32,
        /// Within how many steps; `None`: by the run's end.
        within: Option<u64>,
    },
    /// By a factor now and then.
    Step {
        /// The factor, above 0 and at most 1.
        gamma: f32,
        /// After how many steps each time.
        each: u64,
    },
    /// With the root of the steps (Vaswani et al.: "Attention Is All You Need", 2017).
    InverseRoot {
        /// After three times as many steps it has fallen to a half. The paper's is the warm-up's length.
        over: u64,
    },
}

impl Schedule {
    /// The factor of a step, counted from 1, in a run whose last step is `last`.
    pub fn factor(&self, step: u64, last: u64) -> f32 {
        if step < self.warm_up {
            return (step as f64 / self.warm_up as f64) as f32;
        }
        // Steps after the plateau and before this one.
        let before = self.warm_up.saturating_add(self.plateau);
        let done = step.saturating_sub(1).saturating_sub(before);
        // What part of the way is behind, from 0 to 1.
        let part = |within: Option<u64>| {
            let within = within.unwrap_or_else(|| last.saturating_sub(before)).max(1);
            done.min(within) as f64 / within as f64
        };
        let between = |to: f32, left: f64| (f64::from(to) + (1.0 - f64::from(to)) * left) as f32;
        match self.decay {
            DecayKind::Constant => 1.0,
            DecayKind::Linear { to, within } => between(to, 1.0 - part(within)),
            DecayKind::Cosine { to, within } => between(to, 0.5 * (1.0 + libm::cos(PI * part(within)))),
            DecayKind::Step { gamma, each } => power(gamma.into(), done / each.max(1)) as f32,
            DecayKind::InverseRoot { over } => {
                let over = over.max(1) as f64;
                (over / (over + done as f64)).sqrt() as f32
            }
        }
    }

    /// Checks that all values are within their bounds.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let steps = |what: &str, steps: u64, least: u64| match (least..=MAX_STEPS).contains(&steps) {
            true => Ok(()),
            false => Err(format!("{what} is {steps} steps, but {least} to 2^63 - 1 are possible")),
        };
        steps("its warm-up", self.warm_up, 0)?;
        steps("its plateau", self.plateau, 0)?;
        match self.decay {
            DecayKind::Constant => Ok(()),
            DecayKind::Linear { to, within } | DecayKind::Cosine { to, within } => {
                if !(0.0..=1.0).contains(&to) {
                    return Err(format!("it ends at {to} of the learning rate, but 0 to 1 are possible"));
                }
                steps("its way down", within.unwrap_or(1), 1)
            }
            DecayKind::Step { gamma, each } => {
                if !(f32::MIN_POSITIVE..=1.0).contains(&gamma) {
                    return Err(format!("it multiplies by {gamma}, but numbers above 0 up to 1 are possible"));
                }
                steps("the time between two falls", each, 1)
            }
            DecayKind::InverseRoot { over } => steps("what it falls over", over, 1),
        }
    }
}

/// `base` to the power of `exponent`, by multiplication alone.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut power = 1.0;
    while exponent > 0 {
        if exponent % 2 == 1 {
            power *= base;
        }
        base *= base;
        exponent /= 2;
    }
    power
}

/// A text that is not a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{text}` is not a schedule: {reason}; write constant, linear, cosine:0.1, cosine:0.1,5000, \
         step:0.5,1000, exponential:0.999 or inverse-root:1000"
)]
pub struct DecayError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

impl FromStr for DecayKind {
    type Err = DecayError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = |reason: String| DecayError { text: text.to_owned(), reason };
        let (name, values) = match text.split_once(':') {
            Some((name, values)) => (name.trim(), values.split(',').map(str::trim).collect()),
            None => (text.trim(), Vec::new()),
        };
        let factor = |text: &str| text.parse::<f32>().map_err(|_| fail(format!("`{text}` is not a number")));
        let steps = |text: &str| text.parse::<u64>().map_err(|_| fail(format!("`{text}` is not a number of steps")));
        let to = values.first().map_or(Ok(0.0), |text| factor(text));
        let within = values.get(1).map(|text| steps(text)).transpose();
        let decay = match (name, values.as_slice()) {
            ("constant", []) => Self::Constant,
            ("constant", _) => return Err(fail("what is constant has no numbers".to_owned())),
            ("linear", [] | [_] | [_, _]) => Self::Linear { to: to?, within: within? },
            ("cosine", [] | [_] | [_, _]) => Self::Cosine { to: to?, within: within? },
            ("linear" | "cosine", _) => {
                return Err(fail("it takes the last factor, and within how many steps".to_owned()));
            }
            ("step", [gamma, each]) => Self::Step { gamma: factor(gamma)?, each: steps(each)? },
            ("exponential", [gamma]) => Self::Step { gamma: factor(gamma)?, each: 1 },
            ("exponential", _) => return Err(fail("it takes the factor of each step".to_owned())),
            ("inverse-root", [over]) => Self::InverseRoot { over: steps(over)? },
            ("inverse-root", _) => return Err(fail("it takes a number of steps".to_owned())),
            ("step", _) => return Err(fail("it takes a factor, and after how many steps each time".to_owned())),
            (other, _) => return Err(fail(format!("there is none named `{other}`"))),
        };
        Schedule { decay, ..Schedule::default() }.check().map_err(fail)?;
        Ok(decay)
    }
}

impl fmt::Display for DecayKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, to, within) = match self {
            Self::Constant => return f.write_str("constant"),
            Self::Step { gamma, each } => return write!(f, "step:{gamma},{each}"),
            Self::InverseRoot { over } => return write!(f, "inverse-root:{over}"),
            Self::Linear { to, within } => ("linear", to, within),
            Self::Cosine { to, within } => ("cosine", to, within),
        };
        write!(f, "{name}:{to}")?;
        within.map_or(Ok(()), |within| write!(f, ",{within}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(text: &str, warm_up: u64) -> Schedule {
        Schedule { warm_up, decay: text.parse().expect("a schedule"), ..Schedule::default() }
    }

    /// As the documentation of `torch.optim.lr_scheduler` has them (LinearLR from a factor of 1, CosineAnnealingLR, StepLR),
    /// whose steps count from 0.
    #[test]
    fn schedules_follow_the_textbook() {
        for step in 1..=150_u64 {
            let t = (step - 1) as f64;
            let part = (t / 100.0).min(1.0);
            for (text, expected) in [
                ("constant", 1.0),
                ("linear:0.25,100", 1.0 + part * (0.25 - 1.0)),
                ("cosine:0.1,100", 0.1 + (1.0 - 0.1) * (1.0 + (PI * part).cos()) / 2.0),
                ("step:0.5,30", 0.5_f64.powi((t / 30.0) as i32)),
                ("exponential:0.75", 0.75_f64.powi(t as i32)),
                ("inverse-root:20", (20.0 / (20.0 + t)).sqrt()),
            ] {
                let found = f64::from(schedule(text, 0).factor(step, 1_000));
                assert!((found - expected).abs() < 1e-7, "{text}, step {step}: {found} instead of {expected}");
                // The same, later, after a climb.
                let warm = schedule(text, 8);
                assert_eq!(warm.factor(step + 8, 1_000), schedule(text, 0).factor(step, 1_000));
                assert_eq!(warm.factor(step.min(8), 1_000), step.min(8) as f32 / 8.0);
            }
        }
    }

    #[test]
    fn a_plateau_lies_between_climb_and_fall() {
        let plain = schedule("linear:0.5", 10);
        let long = Schedule { plateau: 30, ..plain };
        for step in 0..=140 {
            let expected = if step <= 10 { plain.factor(step, 100) } else { plain.factor(step.max(40) - 30, 70) };
            assert_eq!(long.factor(step, 100), expected, "step {step}");
        }
        assert_eq!([11, 41, 101].map(|step| long.factor(step, 100)), [1.0, 1.0, 0.5]);
        assert!(Schedule { plateau: u64::MAX, ..plain }.check().expect_err("too long").contains("its plateau"));
    }

    #[test]
    fn without_a_number_of_steps_it_ends_with_the_run() {
        let (whole, within) = (schedule("cosine:0.1", 10), schedule("cosine:0.1,90", 10));
        for step in 1..=120 {
            assert_eq!(whole.factor(step, 100), within.factor(step, 7), "step {step}");
        }
        assert_eq!(whole.factor(101, 100), 0.1);
        // A warm-up beyond the run's end is all there is of it.
        assert_eq!(schedule("linear", 200).factor(100, 100), 0.5);
        for step in [0, 1, u64::MAX] {
            for text in ["constant", "linear", "cosine", "step:0.5,1", "inverse-root:1"] {
                for warm_up in [0, MAX_STEPS] {
                    let factor = schedule(text, warm_up).factor(step, MAX_STEPS);
                    assert!((0.0..=1.0).contains(&factor), "{text}, {warm_up}, step {step}: {factor}");
                }
            }
        }
    }

    /// Another language, with its own cosine and each result rounded to f32, came to the same.
    #[test]
    fn the_bits_are_pinned() {
        for (text, expected) in PINNED {
            let schedule = schedule(text, 5);
            let found = [1, 4, 6, 7, 33, 50, 77, 99, 106].map(|step| schedule.factor(step, 105).to_bits());
            assert_eq!(found, expected, "{text}: {found:#x?}");
        }
    }

    const PINNED: [(&str, [u32; 9]); 5] = [
        (
            "linear:0.1",
            [
                0x3e4c_cccd,
                0x3f4c_cccd,
                0x3f80_0000,
                0x3f7d_b22d,
                0x3f41_cac1,
                0x3f1a_9fbe,
                0x3eb8_d4fe,
                0x3e26_e979,
                0x3dcc_cccd,
            ],
        ),
        (
            "cosine:0.1",
            [
                0x3e4c_cccd,
                0x3f4c_cccd,
                0x3f80_0000,
                0x3f7f_f173,
                0x3f58_fbae,
                0x3f22_62e6,
                0x3e8c_62df,
                0x3de2_fec0,
                0x3dcc_cccd,
            ],
        ),
        (
            "step:0.7,9",
            [
                0x3e4c_cccd,
                0x3f4c_cccd,
                0x3f80_0000,
                0x3f80_0000,
                0x3eaf_9db2,
                0x3e75_dcc5,
                0x3da8_a95e,
                0x3ce7_6758,
                0x3ca1_fb8a,
            ],
        ),
        (
            "exponential:0.98",
            [
                0x3e4c_cccd,
                0x3f4c_cccd,
                0x3f80_0000,
                0x3f7a_e148,
                0x3f14_5e8f,
                0x3ed2_7bba,
                0x3e73_fa8d,
                0x3e1c_6e9c,
                0x3e07_cd7d,
            ],
        ),
        (
            "inverse-root:20",
            [
                0x3e4c_cccd,
                0x3f4c_cccd,
                0x3f80_0000,
                0x3f79_d496,
                0x3f26_fef9,
                0x3f0f_1bbd,
                0x3ef0_0780,
                0x3ed7_6668,
                0x3ed1_05ec,
            ],
        ),
    ];

    #[test]
    fn schedules_are_read_and_written_as_text() {
        for (text, decay) in [
            ("constant", DecayKind::Constant),
            ("linear", DecayKind::Linear { to: 0.0, within: None }),
            ("linear:0.1", DecayKind::Linear { to: 0.1, within: None }),
            ("cosine: 0.1, 500", DecayKind::Cosine { to: 0.1, within: Some(500) }),
            ("step:0.5,1000", DecayKind::Step { gamma: 0.5, each: 1000 }),
            ("exponential:0.99", DecayKind::Step { gamma: 0.99, each: 1 }),
            ("inverse-root:400", DecayKind::InverseRoot { over: 400 }),
        ] {
            assert_eq!(text.parse(), Ok(decay));
            assert_eq!(decay.to_string().parse(), Ok(decay));
        }
        for (text, reason) in [
            ("polynomial", "there is none named `polynomial`"),
            ("exponential", "it takes the factor of each step"),
            ("exponential:1.5", "it multiplies by 1.5"),
            ("inverse-root:0", "what it falls over is 0 steps, but 1 to"),
            ("inverse-root:0.5", "`0.5` is not a number of steps"),
            ("", "there is none named ``"),
            ("constant:1", "what is constant has no numbers"),
            ("linear:", "`` is not a number"),
            ("linear:0.1,x", "`x` is not a number of steps"),
            ("linear:0.1,5,5", "it takes the last factor"),
            ("cosine:2", "it ends at 2 of the learning rate, but 0 to 1"),
            ("cosine:nan", "it ends at NaN"),
            ("cosine:0,0", "its way down is 0 steps, but 1 to"),
            ("step:0.5", "it takes a factor, and after how many steps"),
            ("step:0,5", "it multiplies by 0"),
            ("step:0.5,0", "the time between two falls is 0 steps"),
        ] {
            let error = text.parse::<DecayKind>().expect_err("not a schedule").to_string();
            assert!(error.contains(reason) && error.contains(&format!("`{text}`")), "{error}");
        }
    }
}

//! How the learning rate goes with the steps: a function of the step's number, and of how often the held-out loss has stopped falling, with the
//! same bits on every machine.
//!
//! It is computed in f64, with the operations that IEEE 754 defines to the last bit and a cosine in software: that of the
//! platform may differ in its last bits from that of another one.

use std::f64::consts::PI;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::manifest::evaluation::MAX_PATIENCE;

/// The most steps that a schedule may speak of.
const MAX_STEPS: u64 = u64::MAX >> 1;
/// The most ways in which a rate falls at once.
const MAX_PARTS: usize = 8;

/// What the learning rate is multiplied by in each step: up to 1, there for a while, then as [`DecayKind`] says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Steps in which the factor goes up evenly, to 1 in the last of them (Goyal et al. 2017). 0: it begins with 1.
    pub warm_up: u64,
    /// Steps with the full value after them, before it falls (Hu et al.: "MiniCPM", 2024: warm up, stay, decay).
    pub plateau: u64,
    /// What comes after all these.
    pub decay: DecaySpec,
}

/// How the learning rate falls after the warm-up and the plateau, beginning with its full value: by the product of its parts, each of which begins
/// at once or after so many steps, so that they are composed or in sequence. Without any, it does not.
///
/// As text: `constant`, or parts with `*` between them. A part is `linear`, `linear:0.1` (to a tenth), `linear:0.1,5000` (within 5000 steps), `cosine`
/// likewise, `step:0.5,1000` (halved after each 1000 steps), `exponential:0.999` (the same after each single one), `inverse-root:1000` or
/// `plateau:0.5,3` (halved after each 3 evaluations without a lower held-out loss), and `@2000` behind it if it begins 2000 steps later.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DecaySpec {
    parts: Vec<DecayPart>,
}

/// One of the ways in which a rate falls.
#[derive(Debug, Clone, Copy, PartialEq)]
struct DecayPart {
    kind: DecayKind,
    /// So many steps later it begins.
    after: u64,
}

/// How a learning rate falls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DecayKind {
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
    /// By a factor whenever the held-out loss has not become lower for a while.
    Plateau {
        /// The factor, above 0 and at most 1.
        gamma: f32,
        /// After how many evaluations in a row each time.
        evaluations: u32,
    },
}

impl From<DecayKind> for DecaySpec {
    /// This way alone, from the beginning.
    fn from(kind: DecayKind) -> Self {
        Self { parts: vec![DecayPart { kind, after: 0 }] }
    }
}

impl DecaySpec {
    /// After how many evaluations without a lower held-out loss it falls; `None` if it does not go by these.
    pub fn evaluations(&self) -> Option<u32> {
        self.parts.iter().find_map(|part| match part.kind {
            DecayKind::Plateau { evaluations, .. } => Some(evaluations),
            _ => None,
        })
    }

    fn check(&self) -> Result<(), String> {
        if self.parts.len() > MAX_PARTS {
            return Err(format!("it falls in {} ways at once, but at most {MAX_PARTS} are possible", self.parts.len()));
        }
        let is_plateau = |part: &&DecayPart| matches!(part.kind, DecayKind::Plateau { .. });
        if self.parts.iter().filter(is_plateau).count() > 1 {
            return Err("it goes by the held-out loss twice; once is possible".to_owned());
        }
        if self.parts.iter().filter(is_plateau).any(|part| part.after > 0) {
            return Err(
                "what goes by the held-out loss does so from the beginning, and not after some steps".to_owned()
            );
        }
        self.parts.iter().try_for_each(|part| {
            check_steps("what a part begins after", part.after, 0)?;
            part.kind.check()
        })
    }
}

impl DecayKind {
    fn check(self) -> Result<(), String> {
        let is_factor = |gamma: f32| match (f32::MIN_POSITIVE..=1.0).contains(&gamma) {
            true => Ok(()),
            false => Err(format!("it multiplies by {gamma}, but numbers above 0 up to 1 are possible")),
        };
        match self {
            Self::Linear { to, within } | Self::Cosine { to, within } => {
                if !(0.0..=1.0).contains(&to) {
                    return Err(format!("it ends at {to} of the learning rate, but 0 to 1 are possible"));
                }
                check_steps("its way down", within.unwrap_or(1), 1)
            }
            Self::Step { gamma, each } => {
                is_factor(gamma)?;
                check_steps("the time between two falls", each, 1)
            }
            Self::InverseRoot { over } => check_steps("what it falls over", over, 1),
            Self::Plateau { gamma, evaluations } => {
                is_factor(gamma)?;
                match (1..=MAX_PATIENCE).contains(&evaluations) {
                    true => Ok(()),
                    false => {
                        Err(format!("it waits for {evaluations} evaluations, but 1 to {MAX_PATIENCE} are possible"))
                    }
                }
            }
        }
    }

    /// The factor once it has gone on for `done` of `whole` steps that there are until the run's end, and the loss has stopped falling so often.
    fn factor(self, done: u64, whole: u64, falls: u32) -> f64 {
        // What part of the way is behind, from 0 to 1.
        let part = |within: Option<u64>| {
            let within = within.unwrap_or(whole).max(1);
            done.min(within) as f64 / within as f64
        };
        let between = |to: f32, left: f64| f64::from(to) + (1.0 - f64::from(to)) * left;
        match self {
            Self::Linear { to, within } => between(to, 1.0 - part(within)),
            Self::Cosine { to, within } => between(to, 0.5 * (1.0 + libm::cos(PI * part(within)))),
            Self::Step { gamma, each } => power(gamma.into(), done / each.max(1)),
            Self::InverseRoot { over } => {
                let over = over.max(1) as f64;
                (over / (over + done as f64)).sqrt()
            }
            Self::Plateau { gamma, .. } => power(gamma.into(), falls.into()),
        }
    }
}

fn check_steps(what: &str, steps: u64, least: u64) -> Result<(), String> {
    match (least..=MAX_STEPS).contains(&steps) {
        true => Ok(()),
        false => Err(format!("{what} is {steps} steps, but {least} to 2^63 - 1 are possible")),
    }
}

impl Schedule {
    /// The factor of a step, counted from 1, in a run whose last step is `last`, once the held-out loss has stopped falling `falls` times, each
    /// for as long as a [plateau](DecayKind::Plateau) waits.
    pub fn factor(&self, step: u64, last: u64, falls: u32) -> f32 {
        if step < self.warm_up {
            return (step as f64 / self.warm_up as f64) as f32;
        }
        // Steps after the plateau and before this one.
        let before = self.warm_up.saturating_add(self.plateau);
        let done = step.saturating_sub(1).saturating_sub(before);
        let factor = |part: &DecayPart| {
            let whole = last.saturating_sub(before).saturating_sub(part.after);
            part.kind.factor(done.saturating_sub(part.after), whole, falls)
        };
        self.decay.parts.iter().map(factor).product::<f64>() as f32
    }

    /// Checks that all values are within their bounds.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        check_steps("its warm-up", self.warm_up, 0)?;
        check_steps("its plateau", self.plateau, 0)?;
        self.decay.check()
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
         step:0.5,1000, exponential:0.999, inverse-root:1000 or plateau:0.5,3, several with * between them, and @2000 behind what begins later"
)]
pub struct DecayError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: String,
}

impl FromStr for DecaySpec {
    type Err = DecayError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = |reason: String| DecayError { text: text.to_owned(), reason };
        let part = |text: &str| {
            let (kind, after) = match text.rsplit_once('@') {
                Some((kind, after)) => (kind, steps(after.trim())?),
                None => (text, 0),
            };
            Ok(DecayPart { kind: kind.trim().parse()?, after })
        };
        let parts = match text.trim() {
            "constant" => Vec::new(),
            // Whatever is behind the last one that may be is looked at no more than that it is there.
            parts => parts.split('*').take(MAX_PARTS + 1).map(part).collect::<Result<_, String>>().map_err(fail)?,
        };
        let decay = Self { parts };
        decay.check().map_err(fail)?;
        Ok(decay)
    }
}

impl TryFrom<String> for DecaySpec {
    type Error = DecayError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<DecaySpec> for String {
    fn from(decay: DecaySpec) -> Self {
        decay.to_string()
    }
}

impl fmt::Display for DecaySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.parts.is_empty() {
            return f.write_str("constant");
        }
        for (at, part) in self.parts.iter().enumerate() {
            let between = if at > 0 { "*" } else { "" };
            write!(f, "{between}{}", part.kind)?;
            if part.after > 0 {
                write!(f, "@{}", part.after)?;
            }
        }
        Ok(())
    }
}

fn steps(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number of steps"))
}

impl FromStr for DecayKind {
    /// What is wrong with the text.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, values) = match text.split_once(':') {
            Some((name, values)) => (name.trim(), values.split(',').map(str::trim).collect()),
            None => (text.trim(), Vec::new()),
        };
        let factor = |text: &str| text.parse::<f32>().map_err(|_| format!("`{text}` is not a number"));
        let count = |text: &str| text.parse::<u32>().map_err(|_| format!("`{text}` is not a number of evaluations"));
        let to = values.first().map_or(Ok(0.0), |text| factor(text));
        let within = values.get(1).map(|text| steps(text)).transpose();
        Ok(match (name, values.as_slice()) {
            ("constant", []) => return Err("what is constant falls in no way, and stands alone".to_owned()),
            ("constant", _) => return Err("what is constant has no numbers".to_owned()),
            ("linear", [] | [_] | [_, _]) => Self::Linear { to: to?, within: within? },
            ("cosine", [] | [_] | [_, _]) => Self::Cosine { to: to?, within: within? },
            ("linear" | "cosine", _) => return Err("it takes the last factor, and within how many steps".to_owned()),
            ("step", [gamma, each]) => Self::Step { gamma: factor(gamma)?, each: steps(each)? },
            ("exponential", [gamma]) => Self::Step { gamma: factor(gamma)?, each: 1 },
            ("exponential", _) => return Err("it takes the factor of each step".to_owned()),
            ("inverse-root", [over]) => Self::InverseRoot { over: steps(over)? },
            ("inverse-root", _) => return Err("it takes a number of steps".to_owned()),
            ("step", _) => return Err("it takes a factor, and after how many steps each time".to_owned()),
            ("plateau", [gamma, evaluations]) => {
                Self::Plateau { gamma: factor(gamma)?, evaluations: count(evaluations)? }
            }
            ("plateau", _) => return Err("it takes a factor, and after how many evaluations each time".to_owned()),
            (other, _) => return Err(format!("there is none named `{other}`")),
        })
    }
}

impl fmt::Display for DecayKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, to, within) = match self {
            Self::Step { gamma, each } => return write!(f, "step:{gamma},{each}"),
            Self::InverseRoot { over } => return write!(f, "inverse-root:{over}"),
            Self::Plateau { gamma, evaluations } => return write!(f, "plateau:{gamma},{evaluations}"),
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
                let found = f64::from(schedule(text, 0).factor(step, 1_000, 0));
                assert!((found - expected).abs() < 1e-7, "{text}, step {step}: {found} instead of {expected}");
                // The same, later, after a climb.
                let warm = schedule(text, 8);
                assert_eq!(warm.factor(step + 8, 1_000, 0), schedule(text, 0).factor(step, 1_000, 0));
                assert_eq!(warm.factor(step.min(8), 1_000, 0), step.min(8) as f32 / 8.0);
            }
        }
    }

    #[test]
    fn a_plateau_lies_between_climb_and_fall() {
        let plain = schedule("linear:0.5", 10);
        let long = Schedule { plateau: 30, ..plain.clone() };
        for step in 0..=140 {
            let expected = if step <= 10 { plain.factor(step, 100, 0) } else { plain.factor(step.max(40) - 30, 70, 0) };
            assert_eq!(long.factor(step, 100, 0), expected, "step {step}");
        }
        assert_eq!([11, 41, 101].map(|step| long.factor(step, 100, 0)), [1.0, 1.0, 0.5]);
        assert!(Schedule { plateau: u64::MAX, ..plain }.check().expect_err("too long").contains("its plateau"));
    }

    #[test]
    fn without_a_number_of_steps_it_ends_with_the_run() {
        let (whole, within) = (schedule("cosine:0.1", 10), schedule("cosine:0.1,90", 10));
        for step in 1..=120 {
            assert_eq!(whole.factor(step, 100, 0), within.factor(step, 7, 0), "step {step}");
        }
        assert_eq!(whole.factor(101, 100, 0), 0.1);
        // A warm-up beyond the run's end is all there is of it.
        assert_eq!(schedule("linear", 200).factor(100, 100, 0), 0.5);
        for step in [0, 1, u64::MAX] {
            for text in ["constant", "linear", "cosine", "step:0.5,1", "inverse-root:1"] {
                for warm_up in [0, MAX_STEPS] {
                    let factor = schedule(text, warm_up).factor(step, MAX_STEPS, 0);
                    assert!((0.0..=1.0).contains(&factor), "{text}, {warm_up}, step {step}: {factor}");
                }
            }
        }
    }

    #[test]
    fn parts_are_multiplied_and_begin_when_they_are_to() {
        let part = |text: &str, step| f64::from(schedule(text, 0).factor(step, 1_000, 0));
        let both = "linear:0.5,100*step:0.1,30";
        for step in [1, 50, 100, 101, 900] {
            let expected = part("linear:0.5,100", step) * part("step:0.1,30", step);
            assert!((part(both, step) - expected).abs() < 1e-7, "step {step}");
        }
        // In sequence: down to a half, there for a while, and from there to a twentieth by the end.
        let sequence = schedule("linear:0.5,100*cosine:0.1@400", 10);
        let of = |step| sequence.factor(step, 1_010, 0);
        assert_eq!([11, 111, 411, 1_011].map(of), [1.0, 0.5, 0.5, 0.05]);
        assert_eq!(of(711), 0.5 * (0.1 + 0.9 * 0.5), "half of the way that is left");
        let written = "linear:0.5,100*cosine:0.1@400".parse::<DecaySpec>().expect("a schedule").to_string();
        assert_eq!(written, "linear:0.5,100*cosine:0.1@400");
    }

    #[test]
    fn a_plateau_of_the_loss_lets_it_fall_as_often_as_that_stopped_falling() {
        let schedule = schedule("cosine:1*plateau:0.5,3", 4);
        assert_eq!(schedule.decay.evaluations(), Some(3));
        assert_eq!([0, 1, 2, u32::MAX].map(|falls| schedule.factor(9, 100, falls)), [1.0, 0.5, 0.25, 0.0]);
        assert_eq!(schedule.factor(2, 100, 1), 0.5, "while it climbs, that alone counts");
    }

    /// Another language, with its own cosine and each result rounded to f32, came to the same.
    #[test]
    fn the_bits_are_pinned() {
        for (text, expected) in PINNED {
            let schedule = schedule(text, 5);
            let found = [1, 4, 6, 7, 33, 50, 77, 99, 106].map(|step| schedule.factor(step, 105, 0).to_bits());
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
        assert_eq!(
            ("constant".parse(), DecaySpec::default().to_string()),
            (Ok(DecaySpec::default()), "constant".to_owned())
        );
        for (text, decay) in [
            ("linear", DecayKind::Linear { to: 0.0, within: None }),
            ("linear:0.1", DecayKind::Linear { to: 0.1, within: None }),
            ("cosine: 0.1, 500", DecayKind::Cosine { to: 0.1, within: Some(500) }),
            ("step:0.5,1000", DecayKind::Step { gamma: 0.5, each: 1000 }),
            ("exponential:0.99", DecayKind::Step { gamma: 0.99, each: 1 }),
            ("inverse-root:400", DecayKind::InverseRoot { over: 400 }),
            ("plateau:0.1,5", DecayKind::Plateau { gamma: 0.1, evaluations: 5 }),
        ] {
            let decay = DecaySpec::from(decay);
            assert_eq!(text.parse(), Ok(decay.clone()));
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
            ("plateau:0.5", "it takes a factor, and after how many evaluations"),
            ("plateau:0.5,0", "it waits for 0 evaluations"),
            ("plateau:2,1", "it multiplies by 2"),
            ("plateau:0.5,1@5", "from the beginning"),
            ("plateau:0.5,1*plateau:0.5,1", "twice"),
            ("linear*constant", "stands alone"),
            ("linear*", "there is none named ``"),
            ("linear@", "`` is not a number of steps"),
            ("linear@9223372036854775808", "what a part begins after is 9223372036854775808"),
            (
                "linear*linear*linear*linear*linear*linear*linear*linear*linear*linear",
                "in 9 ways at once, but at most 8",
            ),
        ] {
            let error = text.parse::<DecaySpec>().expect_err("not a schedule").to_string();
            assert!(error.contains(reason) && error.contains(&format!("`{text}`")), "{error}");
        }
    }
}

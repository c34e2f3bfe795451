//! Where a model computes: on the CPU, or, with the feature `gpu`, on any GPU that wgpu reaches.

mod compute;
#[cfg(feature = "gpu")]
mod gpu;

use std::fmt;
use std::str::FromStr;

use burn::tensor::Device;
use starling_run::Precision;
use thiserror::Error;

pub use compute::ComputeSpec;

/// Which device a user wants. As text: `auto`, `cpu`, `gpu`, `gpu:1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceSpec {
    /// The first real GPU, or the CPU if there is none that works. A software renderer is no GPU.
    #[default]
    Auto,
    /// The CPU. No graphics driver is touched.
    Cpu,
    /// The adapter of this number, or the first one. A software renderer is allowed.
    Gpu(Option<usize>),
}

/// A text that is not a device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not a device; write auto, cpu, gpu or gpu:N with N counted from 0")]
pub struct DeviceSpecError {
    /// The text.
    pub text: String,
}

/// A device that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// This build reaches no GPU.
    #[error(
        "there is no device `{wanted}`: this build computes on the CPU alone, it was built without `gpu`; use `--device cpu`"
    )]
    NotBuilt {
        /// What was asked for.
        wanted: DeviceSpec,
    },
    /// There is no adapter, or not that many.
    #[error(
        "there is no device `{wanted}`: {}; use another one, `--device cpu`, or install a graphics driver (for a software one: mesa-vulkan-drivers)",
        found(adapters)
    )]
    NotFound {
        /// What was asked for.
        wanted: DeviceSpec,
        /// What there is.
        adapters: Vec<String>,
    },
    /// It does not compute in such numbers.
    #[error(
        "the run computes in {precision}, which `{wanted}` ({device}) does not; take another device, or found a run with `--precision f32`"
    )]
    Precision {
        /// What was asked for.
        wanted: DeviceSpec,
        /// What that is.
        device: String,
        /// The run's.
        precision: Precision,
    },
    /// The adapter is there, but does not work.
    #[error(
        "the device `{wanted}` ({adapter}) does not work: {reason}; {}; update its driver or use `--device cpu`",
        found(adapters)
    )]
    Unusable {
        /// What was asked for.
        wanted: DeviceSpec,
        /// The adapter tried.
        adapter: String,
        /// What it or its driver says.
        reason: String,
        /// What there is.
        adapters: Vec<String>,
    },
}

/// A device that has computed something, so it works.
#[derive(Debug, Clone)]
pub struct OpenDevice {
    /// The device, without autodiff.
    pub device: Device,
    /// What it is called, for people.
    pub name: String,
    /// Whether it compiles what it computes, for the shapes that it meets.
    pub compiles: bool,
}

impl DeviceSpec {
    /// The variable by which the command line takes it, too.
    pub const VARIABLE: &str = "STARLING_TRAIN_DEVICE";

    /// What the environment says, in [`Self::VARIABLE`]; `Auto` if it says nothing.
    ///
    /// # Errors
    /// If that is no device.
    pub fn from_env() -> Result<Self, DeviceSpecError> {
        std::env::var_os(Self::VARIABLE).map_or(Ok(Self::Auto), |text| text.to_string_lossy().parse())
    }

    /// Opens the device and computes a little on it.
    ///
    /// # Errors
    /// If the adapter is not there or does not work. Never for `Auto` and `Cpu`.
    pub fn open(self) -> Result<OpenDevice, DeviceError> {
        match self {
            Self::Cpu => Ok(cpu()),
            #[cfg(feature = "gpu")]
            Self::Auto => Ok(gpu::first_real().unwrap_or_else(cpu)),
            #[cfg(feature = "gpu")]
            Self::Gpu(number) => gpu::open(number.unwrap_or(0), self),
            #[cfg(not(feature = "gpu"))]
            Self::Auto => Ok(cpu()),
            #[cfg(not(feature = "gpu"))]
            Self::Gpu(_) => Err(DeviceError::NotBuilt { wanted: self }),
        }
    }

    /// All adapters that `gpu:N` can name, in the order of N. Empty if the graphics stack does not work at all.
    #[cfg(feature = "gpu")]
    pub fn list_adapters() -> Vec<String> {
        gpu::list(&gpu::adapters().unwrap_or_default())
    }
}

impl FromStr for DeviceSpec {
    type Err = DeviceSpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "auto" => Some(Self::Auto),
            None if text == "cpu" => Some(Self::Cpu),
            None if text == "gpu" => Some(Self::Gpu(None)),
            Some(("gpu", number)) => number.parse().ok().map(|number| Self::Gpu(Some(number))),
            _ => None,
        }
        .ok_or_else(|| DeviceSpecError { text: text.to_owned() })
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Gpu(None) => f.write_str("gpu"),
            Self::Gpu(Some(number)) => write!(f, "gpu:{number}"),
        }
    }
}

fn cpu() -> OpenDevice {
    OpenDevice { device: Device::flex(), name: "cpu (flex)".to_owned(), compiles: false }
}

fn found(adapters: &[String]) -> String {
    if adapters.is_empty() { "no adapter was found".to_owned() } else { format!("found: {}", adapters.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_and_written_as_text() {
        for (text, choice) in [
            ("auto", DeviceSpec::Auto),
            ("cpu", DeviceSpec::Cpu),
            ("gpu", DeviceSpec::Gpu(None)),
            ("gpu:3", DeviceSpec::Gpu(Some(3))),
        ] {
            assert_eq!(text.parse(), Ok(choice));
            assert_eq!(choice.to_string(), text);
        }
        for bad in ["", "cuda", "gpu:", "gpu:-1", "gpu:x", "cpu:0", "CPU"] {
            let error = bad.parse::<DeviceSpec>().expect_err("no device").to_string();
            assert!(error.contains(&format!("`{bad}`")) && error.contains("auto, cpu, gpu or gpu:N"), "{error}");
        }
    }

    #[cfg(not(feature = "gpu"))]
    #[test]
    fn a_build_without_gpu_says_so() {
        let error = DeviceSpec::Gpu(None).open().expect_err("no GPU is built in").to_string();
        assert!(error.contains("`gpu`") && error.contains("--device cpu"), "{error}");
        assert_eq!(DeviceSpec::Auto.open().expect("the CPU").name, "cpu (flex)");
    }

    #[test]
    fn the_cpu_is_always_there() {
        assert_eq!(DeviceSpec::Cpu.open().expect("the CPU").name, "cpu (flex)");
        assert!(!DeviceSpec::Auto.open().expect("some device").name.is_empty());
    }
}

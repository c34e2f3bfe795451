//! Where a model computes: on the CPU, or on any GPU that wgpu reaches.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use burn::tensor::wgpu::WgpuInitError;
use burn::tensor::{Device, DeviceKind, DeviceType, Tensor};
use starling_run::panics::said;
use thiserror::Error;

/// How many adapters of one kind are looked for.
const MAX_ADAPTERS: usize = 16;

/// Which device a user wants. As text: `auto`, `cpu`, `gpu`, `gpu:1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
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
pub struct DeviceChoiceError {
    /// The text.
    pub text: String,
}

/// A device that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeviceError {
    /// There is no adapter, or not that many.
    #[error(
        "there is no device `{wanted}`: {}; use another one, `--device cpu`, or install a graphics driver (for a software one: mesa-vulkan-drivers)",
        found(adapters)
    )]
    NotFound {
        /// What was asked for.
        wanted: DeviceChoice,
        /// What there is.
        adapters: Vec<String>,
    },
    /// The adapter is there, but does not work.
    #[error(
        "the device `{wanted}` ({adapter}) does not work: {reason}; {}; update its driver or use `--device cpu`",
        found(adapters)
    )]
    Unusable {
        /// What was asked for.
        wanted: DeviceChoice,
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

impl DeviceChoice {
    /// Opens the device and computes a little on it.
    ///
    /// # Errors
    /// If the adapter is not there or does not work. Never for `Auto` and `Cpu`.
    pub fn open(self) -> Result<OpenDevice, DeviceError> {
        match self {
            Self::Cpu => Ok(cpu()),
            Self::Auto => {
                // Asking drivers for what cannot be there takes time, and some of them complain to the terminal.
                let adapters = if has_gpu_node() { adapters().unwrap_or_default() } else { Vec::new() };
                let real = adapters.iter().find(|adapter| **adapter != DeviceKind::Cpu);
                Ok(real.and_then(|kind| open_adapter(kind).ok()).unwrap_or_else(cpu))
            }
            Self::Gpu(number) => {
                let adapters = adapters().unwrap_or_default();
                let list = || adapters.iter().enumerate().map(describe).collect::<Vec<_>>();
                let Some(kind) = adapters.get(number.unwrap_or(0)) else {
                    return Err(DeviceError::NotFound { wanted: self, adapters: list() });
                };
                open_adapter(kind).map_err(|reason| DeviceError::Unusable {
                    wanted: self,
                    adapter: kind_name(kind),
                    reason,
                    adapters: list(),
                })
            }
        }
    }

    /// All adapters that `gpu:N` can name, in the order of N. Empty if the graphics stack does not work at all.
    pub fn list_adapters() -> Vec<String> {
        adapters().unwrap_or_default().iter().enumerate().map(describe).collect()
    }
}

impl FromStr for DeviceChoice {
    type Err = DeviceChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "auto" => Some(Self::Auto),
            None if text == "cpu" => Some(Self::Cpu),
            None if text == "gpu" => Some(Self::Gpu(None)),
            Some(("gpu", number)) => number.parse().ok().map(|number| Self::Gpu(Some(number))),
            _ => None,
        }
        .ok_or_else(|| DeviceChoiceError { text: text.to_owned() })
    }
}

impl fmt::Display for DeviceChoice {
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

/// Whether the system shows a device that a GPU driver could stand behind. Where it does not show them as files: yes.
fn has_gpu_node() -> bool {
    /// Direct rendering, NVIDIA's own driver, WSL, and the GPUs of phones and small boards.
    const NODES: [&str; 6] = ["/dev/dri", "/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg", "/dev/kgsl-3d0", "/dev/mali0"];
    !cfg!(target_os = "linux") || NODES.iter().any(|node| Path::new(node).exists())
}

/// All adapters, those of wgpu's discrete kind first.
fn adapters() -> Result<Vec<DeviceKind>, String> {
    quietly(|| {
        let found = Device::enumerate(DeviceType::Wgpu);
        let indexed = |kind: fn(usize) -> DeviceKind| (0..MAX_ADAPTERS).map(kind);
        // Burn lists devices without saying their kinds, but knows equal ones.
        let mut kinds: Vec<DeviceKind> = indexed(DeviceKind::DiscreteGpu)
            .chain(indexed(DeviceKind::IntegratedGpu))
            .chain(indexed(DeviceKind::VirtualGpu))
            .chain([DeviceKind::Cpu])
            .collect();
        kinds.retain(|kind| found.contains(&Device::wgpu(kind.clone())));
        kinds
    })
}

/// Opens an adapter and checks that it computes.
fn open_adapter(kind: &DeviceKind) -> Result<OpenDevice, String> {
    let open = quietly(|| match Device::wgpu_options().device_kind(kind.clone()).init_with_setup() {
        Ok((device, setup)) => {
            let info = setup.adapter.get_info();
            let name = format!("{} ({}, {:?})", info.name, kind_name(kind), info.backend);
            Ok(OpenDevice { device, name, compiles: true })
        }
        // It is open already: this process computes on it.
        Err(WgpuInitError::Registration { .. }) => {
            let device = Device::wgpu(kind.clone());
            let name = device.identity().map_or_else(|| "GPU".to_owned(), |identity| identity.name);
            Ok(OpenDevice { device, name: format!("{name} ({})", kind_name(kind)), compiles: true })
        }
        Err(error) => Err(error.to_string()),
    })??;
    let device = open.device.clone();
    let sum = quietly(move || Tensor::<1>::from_floats([1.0, 2.0, 4.0], &device).sum().try_into_scalar::<f32>())?;
    match sum {
        Ok(7.0) => Ok(open),
        Ok(sum) => Err(format!("it computes 1 + 2 + 4 = {sum}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs what may panic in a driver. The panic becomes an error and is not printed.
fn quietly<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    // The hook belongs to the whole process: two threads must not take each other's silent hook for the real one.
    static HOOK: Mutex<()> = Mutex::new(());
    let _guard = HOOK.lock().unwrap_or_else(PoisonError::into_inner);
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    panic::set_hook(hook);
    result.map_err(|payload| said(&*payload).unwrap_or("the graphics driver panicked").to_owned())
}

fn describe((number, kind): (usize, &DeviceKind)) -> String {
    format!("gpu:{number} is a {}", kind_name(kind))
}

fn kind_name(kind: &DeviceKind) -> String {
    match kind {
        DeviceKind::DiscreteGpu(_) => "discrete GPU",
        DeviceKind::IntegratedGpu(_) => "integrated GPU",
        DeviceKind::VirtualGpu(_) => "virtual GPU",
        DeviceKind::Cpu => "software renderer",
        DeviceKind::DefaultDevice | DeviceKind::Existing(_) => "GPU",
    }
    .to_owned()
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
            ("auto", DeviceChoice::Auto),
            ("cpu", DeviceChoice::Cpu),
            ("gpu", DeviceChoice::Gpu(None)),
            ("gpu:3", DeviceChoice::Gpu(Some(3))),
        ] {
            assert_eq!(text.parse(), Ok(choice));
            assert_eq!(choice.to_string(), text);
        }
        for bad in ["", "cuda", "gpu:", "gpu:-1", "gpu:x", "cpu:0", "CPU"] {
            let error = bad.parse::<DeviceChoice>().expect_err("no device").to_string();
            assert!(error.contains(&format!("`{bad}`")) && error.contains("auto, cpu, gpu or gpu:N"), "{error}");
        }
    }

    #[test]
    fn an_adapter_that_is_not_there_is_an_error_that_lists_those_that_are() {
        let error = DeviceChoice::Gpu(Some(99)).open().expect_err("nobody has a hundred GPUs").to_string();
        assert!(error.contains("no device `gpu:99`"), "{error}");
        assert!(error.contains("found: gpu:0 is a") || error.contains("no adapter was found"), "{error}");
        assert!(error.contains("--device cpu"), "{error}");
    }

    #[test]
    fn an_adapter_can_be_opened_again() {
        let adapters = DeviceChoice::list_adapters();
        assert!(
            adapters.first().is_some_and(|adapter| adapter.starts_with("gpu:0 is a ")),
            "no Vulkan adapter is installed, not even a software one; run: apt-get install mesa-vulkan-drivers libvulkan1"
        );
        let first = DeviceChoice::Gpu(None).open().expect("the adapter that was listed");
        let again = DeviceChoice::Gpu(Some(0)).open().expect("the same adapter");
        assert_eq!(first.device, again.device);
        assert_ne!(first.device, DeviceChoice::Cpu.open().expect("the CPU").device);
        let name = |open: &OpenDevice| open.name.split(" (").next().map(str::to_owned);
        assert_eq!(name(&first), name(&again));
    }

    #[test]
    fn a_panic_becomes_an_error_and_the_hook_comes_back() {
        assert_eq!(quietly(|| -> u8 { panic!("driver said {}", 7) }), Err("driver said 7".to_owned()));
        assert_eq!(quietly(|| 3), Ok(3));
    }

    #[test]
    fn the_cpu_is_always_there() {
        assert_eq!(DeviceChoice::Cpu.open().expect("the CPU").name, "cpu (flex)");
        assert!(!DeviceChoice::Auto.open().expect("some device").name.is_empty());
    }
}

//! GPUs, through wgpu.

use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use burn::tensor::wgpu::WgpuInitError;
use burn::tensor::{Device, DeviceKind, DeviceType, Tensor};
use starling_run::panics::said;

use super::{DeviceError, DeviceSpec, OpenDevice};

/// How many adapters of one kind are looked for.
const MAX_ADAPTERS: usize = 16;

/// Whether the system shows a device that a GPU driver could stand behind. Where it does not show them as files: yes.
fn has_gpu_node() -> bool {
    /// Direct rendering, NVIDIA's own driver, WSL, and the GPUs of phones and small boards.
    const NODES: [&str; 6] = ["/dev/dri", "/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg", "/dev/kgsl-3d0", "/dev/mali0"];
    !cfg!(target_os = "linux") || NODES.iter().any(|node| Path::new(node).exists())
}

/// The first real GPU that works.
pub(super) fn first_real() -> Option<OpenDevice> {
    // Asking drivers for what cannot be there takes time, and some of them complain to the terminal.
    let adapters = if has_gpu_node() { adapters().unwrap_or_default() } else { Vec::new() };
    let real = adapters.iter().find(|adapter| **adapter != DeviceKind::Cpu);
    real.and_then(|kind| open_adapter(kind).ok())
}

/// The adapter of this number, which was asked for as `wanted`.
pub(super) fn open(number: usize, wanted: DeviceSpec) -> Result<OpenDevice, DeviceError> {
    let adapters = adapters().unwrap_or_default();
    let Some(kind) = adapters.get(number) else {
        return Err(DeviceError::NotFound { wanted, adapters: list(&adapters) });
    };
    open_adapter(kind).map_err(|reason| {
        let adapter = kind_name(kind);
        DeviceError::Unusable { wanted, adapter, reason, adapters: list(&adapters) }
    })
}

/// What adapters are called, for people.
pub(super) fn list(adapters: &[DeviceKind]) -> Vec<String> {
    adapters.iter().enumerate().map(describe).collect()
}

/// All adapters, those of wgpu's discrete kind first.
pub(super) fn adapters() -> Result<Vec<DeviceKind>, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_that_is_not_there_is_an_error_that_lists_those_that_are() {
        let error = DeviceSpec::Gpu(Some(99)).open().expect_err("nobody has a hundred GPUs").to_string();
        assert!(error.contains("no device `gpu:99`"), "{error}");
        assert!(error.contains("found: gpu:0 is a") || error.contains("no adapter was found"), "{error}");
        assert!(error.contains("--device cpu"), "{error}");
    }

    #[test]
    fn an_adapter_can_be_opened_again() {
        let adapters = DeviceSpec::list_adapters();
        assert!(
            adapters.first().is_some_and(|adapter| adapter.starts_with("gpu:0 is a ")),
            "no Vulkan adapter is installed, not even a software one; run: apt-get install mesa-vulkan-drivers libvulkan1"
        );
        let first = DeviceSpec::Gpu(None).open().expect("the adapter that was listed");
        let again = DeviceSpec::Gpu(Some(0)).open().expect("the same adapter");
        assert_eq!(first.device, again.device);
        assert_ne!(first.device, DeviceSpec::Cpu.open().expect("the CPU").device);
        let name = |open: &OpenDevice| open.name.split(" (").next().map(str::to_owned);
        assert_eq!(name(&first), name(&again));
    }

    #[test]
    fn a_panic_becomes_an_error_and_the_hook_comes_back() {
        assert_eq!(quietly(|| -> u8 { panic!("driver said {}", 7) }), Err("driver said 7".to_owned()));
        assert_eq!(quietly(|| 3), Ok(3));
    }
}

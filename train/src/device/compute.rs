//! How a member computes: on which device, and with how much memory.

use burn::tensor::Device;

use super::{DeviceError, DeviceSpec, OpenDevice};

/// A device, and whether it computes some of a forward pass again where backward needs it, instead of keeping it. Either way it comes to the same
/// numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ComputeSpec {
    /// What computes.
    pub device: DeviceSpec,
    /// Gradient checkpointing, in Burn's balanced way: what takes memory rather than time is computed again (Chen et al.: "Training Deep Nets with
    /// Sublinear Memory Cost", 2016).
    pub checkpointing: bool,
}

impl ComputeSpec {
    /// Opens the device; with the same that has autodiff, where training is.
    ///
    /// # Errors
    /// As [`DeviceSpec::open`].
    pub(crate) fn open(self) -> Result<(OpenDevice, Device), DeviceError> {
        let open = self.device.open()?;
        let device = open.device.clone().autodiff();
        Ok((open, if self.checkpointing { device.gradient_checkpointing() } else { device }))
    }
}

impl From<DeviceSpec> for ComputeSpec {
    /// On this device, as it is.
    fn from(device: DeviceSpec) -> Self {
        Self { device, checkpointing: false }
    }
}

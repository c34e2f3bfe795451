//! How a member computes: on which device, and with how much memory.

use burn::tensor::Device;

use super::{DeviceError, DeviceSpec, OpenDevice};

/// How many bytes of samples are loaded ahead where nobody says otherwise: of most models, many micro-batches.
const AHEAD_BYTES: u64 = 64 << 20;

/// A device, whether it computes some of a forward pass again where backward needs it, instead of keeping it, and how far samples are loaded ahead of
/// it. In whatever way, it comes to the same numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComputeSpec {
    /// What computes.
    pub device: DeviceSpec,
    /// Gradient checkpointing, in Burn's balanced way: what takes memory rather than time is computed again (Chen et al.: "Training Deep Nets with
    /// Sublinear Memory Cost", 2016).
    pub checkpointing: bool,
    /// How many bytes of samples are loaded beside what is computed, in threads of their own, by tasks [that can](crate::Task::loads_beside): one
    /// micro-batch at least, which with 0 is read in their turn, or while members reduce.
    pub ahead_bytes: u64,
}

impl Default for ComputeSpec {
    fn default() -> Self {
        Self { device: DeviceSpec::default(), checkpointing: false, ahead_bytes: AHEAD_BYTES }
    }
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
        Self { device, ..Self::default() }
    }
}

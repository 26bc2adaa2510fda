//! Set-up registers: what the driver wrote before it enabled the device.
//!
//! *Owns*: plain values. *Must not*: have an effect.

/// Registers that the driver writes before it starts the device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setup {
    pub(crate) cmd_base: u64,
    pub(crate) rsp_base: u64,
    pub(crate) cmd_depth: u32,
    pub(crate) aeq_base: u64,
    pub(crate) aeq_depth: u32,
    pub(crate) control: u32,
}

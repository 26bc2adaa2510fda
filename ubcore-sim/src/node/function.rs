//! A function of a node, for a driver in another process.
//!
//! *Owns*: the function. *Takes*: register accesses and memory of that process. *Gives*: the function's answers. *Must not*: outlive its driver: dropped, it ends with everything that it has.

use std::sync::Arc;

use udma_abi::{BackingError, DmaSpace};
use urma_mem::lull::Lull;

use super::backing::{NodeDma, reset};
use crate::{device::DeviceFunction, host::shared::SharedNode};

/// A function of a node, for a driver in another process.
#[derive(Debug)]
pub struct ClientFunction {
    node: Arc<SharedNode>,
    function: Arc<DeviceFunction>,
}

impl ClientFunction {
    pub(super) fn new(node: Arc<SharedNode>, function: Arc<DeviceFunction>) -> Self {
        Self { node, function }
    }

    /// Returns its number, quotas and their use.
    #[must_use]
    pub fn function(&self) -> &Arc<DeviceFunction> {
        &self.function
    }

    /// Returns its view of its driver's memory.
    #[must_use]
    pub fn dma(&self) -> Arc<dyn DmaSpace> {
        Arc::new(NodeDma { node: Arc::clone(&self.node), function: Arc::clone(&self.function) })
    }

    /// Reads a register of the function.
    #[must_use]
    pub fn read(&self, offset: u64) -> u64 {
        self.node.read(&self.function, offset)
    }

    /// Writes a 32-bit register of the function.
    pub fn write32(&self, offset: u64, value: u32) {
        self.node.write32(&self.function, (offset, value));
    }

    /// Writes a 64-bit register of the function.
    pub fn write64(&self, offset: u64, value: u64) {
        self.node.write64(&self.function, (offset, value));
    }

    /// Writes 64 bytes at once.
    pub fn write_block(&self, offset: u64, words: &[u64; 8]) {
        self.node.write_block(&self.function, (offset, words));
    }

    /// Resets it: all its objects are gone when this returns, those of other functions stay.
    ///
    /// # Errors
    /// The node is closed.
    pub fn reset(&self) -> Result<(), BackingError> {
        reset(&self.node, &self.function)
    }

    /// Makes one bounded step of the node.
    pub fn progress(&self) {
        self.node.on_poll(&mut Lull::never());
    }
}

impl Drop for ClientFunction {
    fn drop(&mut self) {
        self.node.remove_function(&self.function);
    }
}

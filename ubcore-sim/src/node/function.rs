//! A function of a node, for a driver in another process.
//!
//! *Owns*: the function. *Takes*: register accesses and memory of that process. *Gives*: the function's answers. *Must not*: outlive its driver: dropped, it ends with everything that it has.

use std::{io, sync::Arc};

use udma_abi::{BackingError, DmaSpace, RegisterRegion, regs};
use urma_mem::doorbells::RungSlot;

use super::backing::{NodeDma, reset};
use crate::{
    device::DeviceFunction,
    host::{shared::SharedNode, slots::ServedSlots},
};

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

    /// Creates its doorbell memory; JFCs created later read their arms there. Called once, before its driver starts
    /// it.
    ///
    /// # Errors
    /// No memory or no descriptors.
    pub fn serve_slots(&self) -> io::Result<ServedSlots> {
        let slots = ServedSlots::new()?;
        self.function.ring_by(slots.memory());
        Ok(slots)
    }

    /// Takes a doorbell from a slot of its doorbell memory.
    #[inline]
    pub fn ring_slot(&self, rung: RungSlot) {
        self.node.ring_slot(&self.function, rung);
    }

    /// Resets it: all its objects are gone when this returns, those of other functions stay.
    ///
    /// # Errors
    /// The node is closed.
    pub fn reset(&self) -> Result<(), BackingError> {
        reset(&self.node, &self.function)
    }
}

impl RegisterRegion for ClientFunction {
    fn len(&self) -> u64 {
        regs::BAR_LEN
    }

    fn read(&self, offset: u64) -> u64 {
        self.node.read(&self.function, offset)
    }

    fn write32(&self, offset: u64, value: u32) {
        self.node.write32(&self.function, (offset, value));
    }

    fn write64(&self, offset: u64, value: u64) {
        self.node.write64(&self.function, (offset, value));
    }

    fn write_block(&self, offset: u64, words: &[u64; 8]) {
        self.node.write_block(&self.function, (offset, words));
    }
}

impl Drop for ClientFunction {
    fn drop(&mut self) {
        self.node.remove_function(&self.function);
    }
}

//! A function of the node as its client drives it.
//!
//! - owns: one function. takes: checked accesses of the client. gives: register accesses, maps and vectors of the function. must
//!   not: read a ring or a descriptor of memory by itself.

use std::{os::fd::OwnedFd, sync::Arc};

use rustix::io::Errno;
use ubcore_sim::node::{ClientFunction, VECTORS};
use udma_abi::{
    BackingError, DmaAccess, DmaSpace,
    backing::{DEVICE_ID, VENDOR_ID},
    regs,
};
use udma_vfio::user::{ServedFunction, ServedShape};
use urma_mem::Region;

use crate::vectors::ClientVectors;

/// A function of the node that is served to one client.
pub(crate) struct NodeFunction {
    client: ClientFunction,
    dma: Arc<dyn DmaSpace>,
    vectors: Arc<ClientVectors>,
}

impl NodeFunction {
    pub(crate) fn new(client: ClientFunction, vectors: Arc<ClientVectors>) -> Self {
        Self { dma: client.dma(), client, vectors }
    }
}

impl ServedFunction for NodeFunction {
    fn shape(&self, index: u32) -> ServedShape {
        match index {
            BAR0 => ServedShape { len: regs::BAR_LEN, is_writable: true },
            CONFIG => ServedShape { len: CONFIG_LEN, is_writable: false },
            _ => ServedShape::default(),
        }
    }

    fn vectors(&self, index: u32) -> u32 {
        if index == MSIX { u32::from(VECTORS) } else { 0 }
    }

    fn read(&mut self, index: u32, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        if index == CONFIG {
            let [v0, v1] = VENDOR_ID.to_le_bytes();
            let [d0, d1] = DEVICE_ID.to_le_bytes();
            let head = [v0, v1, d0, d1];
            for (at, byte) in (offset..).zip(bytes) {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                *byte = head.get(at).copied().unwrap_or(0);
            }
            return Ok(());
        }
        if !offset.is_multiple_of(bytes.len() as u64) {
            return Err(Errno::INVAL);
        }
        let value = self.client.read(offset).to_le_bytes();
        match bytes.len() {
            4 | 8 => bytes.copy_from_slice(value.get(..bytes.len()).ok_or(Errno::INVAL)?),
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn write(&mut self, _: u32, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        if !offset.is_multiple_of(bytes.len() as u64) {
            return Err(Errno::INVAL);
        }
        if let Ok(word) = bytes.try_into() {
            self.client.write32(offset, u32::from_le_bytes(word));
        } else if let Ok(long) = bytes.try_into() {
            self.client.write64(offset, u64::from_le_bytes(long));
        } else {
            let block: &[u8; 64] = bytes.try_into().map_err(|_| Errno::INVAL)?;
            let mut words = [0; 8];
            for (word, bytes) in words.iter_mut().zip(block.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            self.client.write_block(offset, &words);
        }
        Ok(())
    }

    fn map(&mut self, address: u64, memory: Option<(Region, DmaAccess)>) -> Result<(), Errno> {
        let result = match memory {
            Some((region, access)) => self.dma.map(address, &region, access),
            None => self.dma.unmap(address),
        };
        result.map_err(|error| errno(&error))
    }

    fn set_vector(&mut self, _: u32, vector: u32, fd: Option<OwnedFd>) -> Result<(), Errno> {
        let vector = u16::try_from(vector).map_err(|_| Errno::INVAL)?;
        if self.vectors.set(vector, fd) { Ok(()) } else { Err(Errno::INVAL) }
    }

    fn reset(&mut self) -> Result<(), Errno> {
        self.client.reset().map_err(|error| errno(&error))
    }
}

/// What a client finds that is not served: each access says why.
pub(crate) struct RefusedFunction {
    pub(crate) errno: Errno,
}

impl ServedFunction for RefusedFunction {
    fn shape(&self, index: u32) -> ServedShape {
        let len = if index == CONFIG { CONFIG_LEN } else { 0 };
        ServedShape { len, is_writable: false }
    }

    fn vectors(&self, _: u32) -> u32 {
        0
    }

    fn read(&mut self, _: u32, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(self.errno)
    }

    fn write(&mut self, _: u32, _: u64, _: &[u8]) -> Result<(), Errno> {
        Err(self.errno)
    }

    fn map(&mut self, _: u64, _: Option<(Region, DmaAccess)>) -> Result<(), Errno> {
        Err(self.errno)
    }

    fn set_vector(&mut self, _: u32, _: u32, _: Option<OwnedFd>) -> Result<(), Errno> {
        Err(self.errno)
    }

    fn reset(&mut self) -> Result<(), Errno> {
        Err(self.errno)
    }
}

fn errno(error: &BackingError) -> Errno {
    match error {
        BackingError::IovaTaken { .. } => Errno::EXIST,
        BackingError::IovaRange { .. } | BackingError::Vector(_) => Errno::INVAL,
        BackingError::NotMapped(_) => Errno::NOENT,
        BackingError::Unreachable(_) => Errno::FAULT,
        BackingError::Gone(_) => Errno::NODEV,
        BackingError::Os(error) => Errno::from_io_error(error).unwrap_or(Errno::IO),
    }
}

const BAR0: u32 = 0;
const CONFIG: u32 = 7;
const CONFIG_LEN: u64 = 256;
const MSIX: u32 = 2;

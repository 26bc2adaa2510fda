//! A function of a node as its client drives it.
//!
//! - owns: one function. takes: checked accesses of the client. gives: register accesses, maps and vectors of the function. must
//!   not: read a ring or a descriptor of memory by itself.

use std::{io, os::fd::OwnedFd, sync::Arc};

use rustix::io::Errno;
use ubcore_sim::{
    Node,
    device::{DeviceFunction, FunctionCfg},
    node::VECTORS,
};
use udma_abi::{
    BackingError, DmaAccess, DmaSpace, RegisterRegion,
    backing::{DEVICE_ID, VENDOR_ID},
    regs,
    slots::{SLOT_BAR, SLOT_LEN},
};
use udma_vfio::user::{ServedBar, ServedConfig, ServedFunction, ServedIdentity, ServedShape};
use urma_mem::Region;

use crate::{
    attend::{Attendants, Attended},
    blocks::{BlockWrite, DirectBlocks},
    vectors::{ClientVectors, VectorThread},
};

/// A function of a node that is served to one client. Dropped, it ends with everything that it has.
#[derive(Debug)]
pub struct NodeFunction {
    dma: Arc<dyn DmaSpace>,
    config: ServedConfig,
    blocks: DirectBlocks,
    attended: Arc<Attended>,
    attendants: Arc<Attendants>,
    vectors: Arc<ClientVectors>,
    /// Ends behind the function, which raises them.
    _thread: VectorThread,
}

impl NodeFunction {
    /// A new function of `node`, to which `attendants` attend.
    ///
    /// # Errors
    /// No memory, no descriptors, no thread; `QuotaExceeded`: the node has as many functions as it can have.
    pub fn new(
        node: &Arc<Node>,
        cfg: FunctionCfg,
        attendants: Arc<Attendants>,
    ) -> io::Result<Self> {
        let (vectors, thread) = ClientVectors::start()?;
        let client = node.add_function(cfg, Arc::<ClientVectors>::clone(&vectors))?;
        let bars = [
            ServedBar { index: 0, len: client.len().next_power_of_two(), is_memory: false },
            ServedBar { index: SLOT_BAR, len: SLOT_LEN as u64, is_memory: true },
            ServedBar { index: TABLE_BAR, len: ServedConfig::TABLE_LEN, is_memory: false },
        ];
        let identity = ServedIdentity { vendor: VENDOR_ID, device: DEVICE_ID, vectors: VECTORS };
        let config = ServedConfig::new(identity, &bars, TABLE_BAR);
        let dma = client.dma();
        let attended = attendants.attend(Arc::clone(node), client)?;
        let blocks = DirectBlocks::default();
        Ok(Self { dma, config, blocks, attended, attendants, vectors, _thread: thread })
    }

    /// Returns its number, quotas and their use.
    #[must_use]
    pub fn function(&self) -> &Arc<DeviceFunction> {
        self.attended.client().function()
    }
}

impl Drop for NodeFunction {
    fn drop(&mut self) {
        self.attendants.leave(&self.attended);
    }
}

impl ServedFunction for NodeFunction {
    fn shape(&self, index: u32) -> ServedShape {
        let len = match index {
            BAR0 => self.attended.client().len().next_power_of_two(),
            SLOTS => SLOT_LEN as u64,
            TABLE => ServedConfig::TABLE_LEN,
            CONFIG => ServedConfig::LEN as u64,
            _ => 0,
        };
        ServedShape { len, is_writable: true }
    }

    fn memory(&self, index: u32) -> Option<Region> {
        (index == SLOTS).then(|| self.attended.memory().clone())
    }

    fn vectors(&self, index: u32) -> u32 {
        if index == MSIX { u32::from(VECTORS) } else { 0 }
    }

    fn read(&mut self, index: u32, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        self.attended.pass_on();
        match index {
            BAR0 => {}
            CONFIG => {
                self.config.read(offset, bytes);
                return Ok(());
            }
            SLOTS => {
                let at = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
                return self.attended.memory().read(at, bytes).map_err(|_| Errno::INVAL);
            }
            // The table of vectors: the client keeps it.
            _ => {
                bytes.fill(0);
                return Ok(());
            }
        }
        if !offset.is_multiple_of(bytes.len() as u64) {
            return Err(Errno::INVAL);
        }
        let value = self.attended.client().read(offset).to_le_bytes();
        match bytes.len() {
            4 | 8 => bytes.copy_from_slice(value.get(..bytes.len()).ok_or(Errno::INVAL)?),
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn write(&mut self, index: u32, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.attended.pass_on();
        match index {
            BAR0 if offset == regs::SLOT_WAKE => {
                self.attendants.wake();
                return Ok(());
            }
            BAR0 => {}
            CONFIG if self.config.write(offset, bytes) => return self.reset(),
            SLOTS => {
                let at = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
                return self.attended.memory().write(at, bytes).map_err(|_| Errno::INVAL);
            }
            _ => return Ok(()),
        }
        if !offset.is_multiple_of(bytes.len() as u64) {
            return Err(Errno::INVAL);
        }
        if let Ok(word) = bytes.try_into() {
            self.attended.client().write32(offset, u32::from_le_bytes(word));
        } else if let Ok(long) = bytes.try_into() {
            let value = u64::from_le_bytes(long);
            let client = self.attended.client();
            match self.blocks.take(offset, value) {
                BlockWrite::Other => client.write64(offset, value),
                BlockWrite::Part => {}
                BlockWrite::Whole(offset, words) => client.write_block(offset, &words),
            }
        } else {
            let block: &[u8; 64] = bytes.try_into().map_err(|_| Errno::INVAL)?;
            let mut words = [0; 8];
            for (word, bytes) in words.iter_mut().zip(block.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            self.attended.client().write_block(offset, &words);
        }
        self.attendants.wake_for_register();
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
        self.attended.pass_on();
        self.config.reset();
        self.blocks.clear();
        self.attended.client().reset().map_err(|error| errno(&error))
    }
}

/// What a client finds that is not served: each access says why.
#[derive(Debug)]
pub struct RefusedFunction {
    /// The error number of every reply.
    pub errno: Errno,
}

impl ServedFunction for RefusedFunction {
    fn shape(&self, index: u32) -> ServedShape {
        let len = if index == CONFIG { ServedConfig::LEN as u64 } else { 0 };
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
        BackingError::IovaRange { .. } => Errno::RANGE,
        BackingError::Vector(_) => Errno::INVAL,
        BackingError::NotMapped(_) => Errno::NOENT,
        BackingError::Unreachable(_) => Errno::FAULT,
        BackingError::Gone(_) => Errno::NODEV,
        BackingError::Os(error) => Errno::from_io_error(error).unwrap_or(Errno::IO),
    }
}

const BAR0: u32 = 0;
const SLOTS: u32 = SLOT_BAR as u32;
/// Window of the table of vectors.
const TABLE_BAR: u8 = 4;
const TABLE: u32 = TABLE_BAR as u32;
const CONFIG: u32 = 7;
const MSIX: u32 = 2;

//! A function of a node as its client drives it: checked accesses become register accesses, maps and vectors.
//!
//! Must not read a ring or a descriptor of memory by itself.

use std::{collections::BTreeMap, io, os::fd::OwnedFd, sync::Arc};

use rustix::io::Errno;
use ubcore_sim::{
    Node,
    device::{DeviceFunction, FunctionCfg},
    node::VECTORS,
};
use udma_abi::{
    BackingError, DmaAccess, DmaSpace, RegisterRegion,
    backing::{DEVICE_ID, VENDOR_ID},
    doorbell, regs,
    slots::{SLOT_BAR, SLOT_LEN},
    sqe::BLOCK_WORDS,
};
use udma_vfio::user::{ServedBar, ServedConfig, ServedFunction, ServedIdentity, ServedShape};
use urma_mem::Region;

use crate::{
    attend::{Attendants, Attended},
    descriptors::{ClientDescriptors, DescriptorBudget},
    vectors::{ClientVectors, VectorChange, VectorThread},
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
    descriptors: ClientDescriptors,
    /// Memory that is mapped, by its device address: each has a descriptor.
    mapped: BTreeMap<u64, Region>,
    /// Ends behind the function, which raises them.
    _thread: VectorThread,
}

impl NodeFunction {
    /// A new function of `node`, to which the attendants attend, and whose memory has descriptors of the budget.
    ///
    /// # Errors
    /// No memory, no descriptors, no thread; `QuotaExceeded`: the node has as many functions as it can have.
    pub fn new(
        node: &Arc<Node>,
        cfg: FunctionCfg,
        (attendants, budget): (Arc<Attendants>, Arc<DescriptorBudget>),
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
        let (blocks, mapped) = (DirectBlocks::default(), BTreeMap::new());
        let descriptors = ClientDescriptors::new(budget);
        Ok(Self {
            dma,
            config,
            blocks,
            attended,
            attendants,
            vectors,
            descriptors,
            mapped,
            _thread: thread,
        })
    }

    /// Returns its number, quotas and their use.
    #[must_use]
    pub fn function(&self) -> &Arc<DeviceFunction> {
        self.attended.client().function()
    }

    #[cfg(test)]
    fn descriptors_used(&self) -> u64 {
        self.descriptors.used()
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
        let Some((region, access)) = memory else {
            self.dma.unmap(address).map_err(|error| errno(&error))?;
            if let Some(region) = self.mapped.remove(&address) {
                self.descriptors.give_back_with(region);
            }
            return Ok(());
        };
        if !self.descriptors.take() {
            return Err(Errno::DQUOT);
        }
        match self.dma.map(address, &region, access) {
            Ok(()) => {
                self.mapped.insert(address, region);
                Ok(())
            }
            Err(error) => {
                self.descriptors.give_back(1);
                Err(errno(&error))
            }
        }
    }

    fn set_vector(&mut self, _: u32, vector: u32, fd: Option<OwnedFd>) -> Result<(), Errno> {
        let vector = u16::try_from(vector).map_err(|_| Errno::INVAL)?;
        if fd.is_some() && !self.descriptors.take() {
            return Err(Errno::DQUOT);
        }
        let is_new = fd.is_some();
        match self.vectors.set(vector, fd) {
            VectorChange::None => {
                self.descriptors.give_back(usize::from(is_new));
                Err(Errno::INVAL)
            }
            VectorChange::Set { had_fd } => {
                self.descriptors.give_back(usize::from(had_fd));
                Ok(())
            }
        }
    }

    fn reset(&mut self) -> Result<(), Errno> {
        self.attended.pass_on();
        self.config.reset();
        self.blocks.clear();
        self.attended.client().reset().map_err(|error| errno(&error))
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

/// Pages with a block that is not whole, at most: more than a driver has posters.
const PAGES_MAX: usize = 4096;

/// What a write of 8 bytes is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockWrite {
    /// No part of a block.
    Other,
    /// A part, after which the block is not whole.
    Part,
    /// The last part of the block at this offset.
    Whole(u64, [u64; BLOCK_WORDS]),
}

/// Blocks that are not whole: words by the offset of their first one. A word is expected after the one before it, as a
/// driver writes them.
///
/// A bus or a hypervisor cuts a write of 64 bytes into eight. There are never more pages here than there can be
/// queues.
#[derive(Debug, Default)]
pub(crate) struct DirectBlocks(BTreeMap<u64, Vec<u64>>);

impl DirectBlocks {
    /// Takes a write at a multiple of 8. A part that is not the next one of its block ends the block, and is dropped.
    pub(crate) fn take(&mut self, offset: u64, value: u64) -> BlockWrite {
        let Some(inside) = offset.checked_sub(regs::JETTY_PAGES) else { return BlockWrite::Other };
        let at = (inside % doorbell::PAGE_LEN).wrapping_sub(doorbell::DWQE);
        if at >= 8 * BLOCK_WORDS as u64 {
            return BlockWrite::Other;
        }
        let (first, position) = (offset - at, at / 8);
        let mut words = self.0.remove(&first).unwrap_or_default();
        if position == 0 {
            words.clear();
        } else if words.len() as u64 != position {
            return BlockWrite::Part;
        }
        words.push(value);
        match words.first_chunk() {
            Some(block) => BlockWrite::Whole(first, *block),
            None => {
                if self.0.len() < PAGES_MAX {
                    self.0.insert(first, words);
                }
                BlockWrite::Part
            }
        }
    }

    /// Forgets the blocks that are not whole.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {

    use ubcore_sim::{NodeCfg, device::FunctionQuota};
    use udma_abi::doorbell;

    use super::*;

    fn function() -> NodeFunction {
        let node = Node::open(NodeCfg::from_env().unwrap()).unwrap();
        let cfg = FunctionCfg { uasid: 1, quota: FunctionQuota::NONE };
        let shared = (Attendants::start().unwrap(), DescriptorBudget::new(64, 1));
        NodeFunction::new(&node, cfg, shared).unwrap()
    }

    #[test]
    fn a_register_is_reached_whole_or_not_at_all() {
        let mut function = function();
        let at = regs::CAPS;
        for (offset, len) in
            [(at, 1), (at, 2), (at, 3), (at, 16), (at + 1, 4), (at + 2, 4), (at + 4, 8)]
        {
            let mut bytes = vec![0; len];
            assert_eq!(
                function.read(BAR0, offset, &mut bytes),
                Err(Errno::INVAL),
                "{offset} {len}"
            );
            assert_eq!(function.write(BAR0, offset, &bytes), Err(Errno::INVAL), "{offset} {len}");
        }
        for len in [4, 8] {
            assert_eq!(function.read(BAR0, at, &mut vec![0; len]), Ok(()), "{len}");
        }
        let block = regs::JETTY_PAGES + doorbell::DWQE;
        for offset in [block + 8, block + 4] {
            assert_eq!(function.write(BAR0, offset, &[0; 64]), Err(Errno::INVAL), "{offset}");
        }
    }

    #[test]
    fn regions_and_vectors_are_those_of_the_device() {
        let mut function = function();
        let len = |index| function.shape(index).len;
        assert_eq!([BAR0, SLOTS, TABLE, CONFIG].map(len).map(u64::is_power_of_two), [true; 4]);
        assert_eq!((len(SLOTS), len(CONFIG)), (SLOT_LEN as u64, ServedConfig::LEN as u64));
        assert!((0..16).filter(|index| len(*index) > 0).eq([BAR0, SLOTS, TABLE, CONFIG]));
        let memory: Vec<u32> = (0..16).filter(|index| function.memory(*index).is_some()).collect();
        assert_eq!(memory, [SLOTS], "registers are no memory");
        let vectors: Vec<u32> = (0..8).map(|index| function.vectors(index)).collect();
        assert_eq!(vectors, [0, 0, u32::from(VECTORS), 0, 0, 0, 0, 0], "MSI-X alone");
        // Doorbell memory is read and written as such, within its end; the table of vectors is the client's.
        let mut word = [9; 8];
        assert_eq!(function.write(SLOTS, 64, &[1, 2, 3, 4, 5, 6, 7, 8]), Ok(()));
        assert_eq!(function.read(SLOTS, 64, &mut word), Ok(()));
        assert_eq!(word, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(function.read(SLOTS, SLOT_LEN as u64 - 4, &mut word), Err(Errno::INVAL));
        assert_eq!(function.write(SLOTS, SLOT_LEN as u64 - 4, &word), Err(Errno::INVAL));
        assert_eq!(function.write(TABLE, 0, &[1; 8]), Ok(()));
        assert_eq!((function.read(TABLE, 0, &mut word), word), (Ok(()), [0; 8]));
    }

    #[test]
    fn half_a_block_does_not_outlive_a_reset() {
        let block = regs::JETTY_PAGES + doorbell::DWQE;
        for is_reset in [false, true] {
            let mut function = function();
            for word in 0..7 {
                function.write(BAR0, block + 8 * word, &[1; 8]).unwrap();
            }
            if is_reset {
                function.reset().unwrap();
            }
            let last = function.blocks.take(block + 56, 1);
            assert_eq!(matches!(last, BlockWrite::Whole(..)), !is_reset, "{last:?}");
        }
    }

    #[test]
    fn memory_and_vectors_take_descriptors_of_the_budget() {
        let mut function = function();
        let region = |len| Region::shared(len, urma_mem::Pages::Base).unwrap();
        let used = |function: &NodeFunction| function.descriptors_used();
        function.map(0x10000, Some((region(4096), DmaAccess::Both))).unwrap();
        // What the function does not take costs nothing.
        assert!(function.map(0x10000, Some((region(4096), DmaAccess::Both))).is_err());
        assert!(function.map(0, Some((region(4096), DmaAccess::Both))).is_err());
        let fd = || rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).ok();
        function.set_vector(MSIX, 0, fd()).unwrap();
        function.set_vector(MSIX, 0, fd()).unwrap();
        assert_eq!(function.set_vector(MSIX, u32::from(VECTORS), fd()), Err(Errno::INVAL));
        assert_eq!(used(&function), 2);
        for page in 2..64 {
            function.map(page << 16, Some((region(4096), DmaAccess::Both))).unwrap_or(());
        }
        // Three quarters of 64: the rest are for others.
        assert_eq!(used(&function), 48);
        let more = function.map(0x100_0000, Some((region(4096), DmaAccess::Both)));
        assert_eq!(more, Err(Errno::DQUOT));
        assert_eq!(function.set_vector(MSIX, 1, fd()), Err(Errno::DQUOT));
        function.set_vector(MSIX, 0, None).unwrap();
        function.map(0x10000, None).unwrap();
        assert_eq!(used(&function), 46);
        function.map(0x100_0000, Some((region(4096), DmaAccess::Both))).unwrap();
    }

    #[test]
    fn eight_writes_in_order_are_a_block_also_between_those_of_another_page() {
        let mut blocks = DirectBlocks::default();
        let pages = [0, 7].map(|id| regs::JETTY_PAGES + id * doorbell::PAGE_LEN);
        for word in 0..8 {
            for page in pages {
                let words = std::array::from_fn(|at| page + at as u64);
                let whole = BlockWrite::Whole(page, words);
                let expected = if word == 7 { whole } else { BlockWrite::Part };
                assert_eq!(blocks.take(page + 8 * word, page + word), expected);
            }
        }
        assert!(blocks.0.is_empty());
    }

    #[test]
    fn what_is_no_next_part_makes_no_block() {
        let mut blocks = DirectBlocks::default();
        let page = regs::JETTY_PAGES;
        for offset in [0, regs::JFC_DB, page + 64, page + doorbell::SQ_PI] {
            assert_eq!(blocks.take(offset, 1), BlockWrite::Other);
        }
        for word in [1, 0, 1, 3, 4, 5, 6, 7] {
            assert_eq!(blocks.take(page + 8 * word, 1), BlockWrite::Part, "{word}");
        }
        // Eight words that are no block: one came twice, or one is missing.
        for words in [[0, 1, 2, 2, 3, 4, 5, 6], [0, 1, 2, 4, 5, 6, 7, 7], [0, 2, 3, 4, 5, 6, 7, 1]]
        {
            blocks.clear();
            for word in words {
                assert_eq!(blocks.take(page + 8 * word, 1), BlockWrite::Part, "{words:?}");
            }
        }
        blocks.clear();
        for id in 0..2 * PAGES_MAX as u64 {
            blocks.take(page + id * doorbell::PAGE_LEN, 1);
        }
        assert_eq!(blocks.0.len(), PAGES_MAX);
    }
}

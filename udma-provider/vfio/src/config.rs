//! The configuration space of a PCI function.
//!
//! - owns: the numbers of the standard header that drivers need. takes: a window. gives: ids; switches bus mastering.
//!   must not: know a device.

use std::sync::Arc;

use crate::device::{AccessWidth, PciDevice, PciError, PciWindow, WindowId};

/// Offset of the vendor id; the device id follows.
const IDS: u64 = 0x00;
/// Offset of the command register.
const COMMAND: u64 = 0x04;
/// Offset of the class code and revision.
const CLASS: u64 = 0x08;
/// Bit of the command register: answer accesses to BARs.
const MEMORY: u64 = 1 << 1;
/// Bit of the command register: do DMA, and send interrupt messages.
const BUS_MASTER: u64 = 1 << 2;

/// Names of a function, as its header has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PciIds {
    /// Vendor id, at offset 0.
    pub vendor: u16,
    /// Device id, at offset 2.
    pub device: u16,
    /// Class code: class, subclass, interface.
    pub class: u32,
}

fn config(device: &dyn PciDevice) -> Result<Arc<dyn PciWindow>, PciError> {
    device.window(WindowId::Config)
}

/// Returns the ids of a function.
///
/// # Errors
/// [`PciError::Gone`] if the header reads as all ones; else the error of the access.
pub fn ids(device: &dyn PciDevice) -> Result<PciIds, PciError> {
    let config = config(device)?;
    let word = |offset| config.read(offset, AccessWidth::W16);
    let half = |value: u64| u16::try_from(value).unwrap_or(u16::MAX);
    let (vendor, product) = (half(word(IDS)?), half(word(IDS + 2)?));
    if vendor == u16::MAX {
        let why = "its configuration space reads as all ones".to_owned();
        return Err(PciError::Gone { device: device.name(), why });
    }
    let class = config.read(CLASS, AccessWidth::W32)? >> 8;
    Ok(PciIds { vendor, device: product, class: u32::try_from(class).unwrap_or(u32::MAX) })
}

/// Lets the function do DMA and send interrupt messages, or stops it. Its BARs answer in both cases.
///
/// # Errors
/// The error of the access; [`PciError::Unsupported`] if the function does not keep the bits.
pub fn set_bus_master(device: &dyn PciDevice, is_master: bool) -> Result<(), PciError> {
    let config = config(device)?;
    let before = config.read(COMMAND, AccessWidth::W16)? | MEMORY;
    let wanted = if is_master { before | BUS_MASTER } else { before & !BUS_MASTER };
    config.write(COMMAND, AccessWidth::W16, wanted)?;
    let after = config.read(COMMAND, AccessWidth::W16)?;
    if (after ^ wanted) & (MEMORY | BUS_MASTER) == 0 {
        return Ok(());
    }
    Err(PciError::Unsupported { device: device.name(), what: "bus mastering" })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use udma_abi::DmaSpace;

    use super::*;
    use crate::device::{InterruptKind, PciInterrupts, check_access};

    /// A configuration space of 64 bytes, of whose command register some bits can be changed.
    #[derive(Debug)]
    struct Header {
        bytes: Mutex<[u8; 64]>,
        command: u64,
        writes: Mutex<Vec<(u64, u64)>>,
    }

    impl PciWindow for Header {
        fn len(&self) -> u64 {
            64
        }

        fn read(&self, offset: u64, width: AccessWidth) -> Result<u64, PciError> {
            check_access(64, offset, width)?;
            let (at, mut value) = (usize::try_from(offset).unwrap(), [0; 8]);
            let len = usize::from(width.count());
            value[..len].copy_from_slice(&self.bytes.lock().unwrap()[at..at + len]);
            Ok(u64::from_le_bytes(value))
        }

        fn write(&self, offset: u64, width: AccessWidth, value: u64) -> Result<(), PciError> {
            check_access(64, offset, width)?;
            let (at, len) = (usize::try_from(offset).unwrap(), usize::from(width.count()));
            self.writes.lock().unwrap().push((offset, value));
            let kept = if offset == COMMAND { value & self.command } else { value };
            self.bytes.lock().unwrap()[at..at + len].copy_from_slice(&kept.to_le_bytes()[..len]);
            Ok(())
        }
    }

    #[derive(Debug)]
    struct Function(Arc<Header>);

    impl PciDevice for Function {
        fn name(&self) -> String {
            "toy".to_owned()
        }

        fn window(&self, id: WindowId) -> Result<Arc<dyn PciWindow>, PciError> {
            match id {
                WindowId::Config => Ok(Arc::clone(&self.0) as Arc<dyn PciWindow>),
                WindowId::Bar(_) => Err(PciError::NoWindow { device: self.name(), id }),
            }
        }

        fn interrupts(&self, kind: InterruptKind) -> Result<Arc<dyn PciInterrupts>, PciError> {
            Err(PciError::NoInterrupt { device: self.name(), kind })
        }

        fn dma(&self) -> Arc<dyn DmaSpace> {
            panic!("the header does not ask for memory")
        }

        fn reset(&self) -> Result<(), PciError> {
            Ok(())
        }
    }

    fn function(first: [u8; 16], command: u64) -> Function {
        let mut bytes = [0; 64];
        bytes[..16].copy_from_slice(&first);
        let writes = Mutex::default();
        Function(Arc::new(Header { bytes: Mutex::new(bytes), command, writes }))
    }

    #[test]
    fn ids_are_read_where_the_header_has_them() {
        let first = [0x86, 0x80, 0xD3, 0x10, 0, 0, 0x10, 0, 0xFF, 0x01, 0x03, 0x81, 8, 9, 10, 11];
        let device = function(first, 0xFFFF);
        let found = ids(&device).unwrap();
        assert_eq!(found, PciIds { vendor: 0x8086, device: 0x10D3, class: 0x81_03_01 });
        let device = function([0xFF; 16], 0xFFFF);
        assert!(matches!(ids(&device), Err(PciError::Gone { .. })));
        let mut odd = first;
        (odd[2], odd[3]) = (0xFF, 0xFF);
        assert_eq!(
            ids(&function(odd, 0xFFFF)).unwrap().device,
            0xFFFF,
            "only the vendor says that it is gone"
        );
    }

    #[test]
    fn bus_mastering_changes_no_other_bit_and_must_be_kept() {
        let mut first = [0; 16];
        (first[4], first[5]) = (0x41, 0x05);
        let device = function(first, 0xFFFF);
        let command = || device.0.read(COMMAND, AccessWidth::W16).unwrap();
        set_bus_master(&device, true).unwrap();
        assert_eq!(command(), 0x0547);
        set_bus_master(&device, false).unwrap();
        assert_eq!(command(), 0x0543, "BARs answer all the same");
        assert_eq!(*device.0.writes.lock().unwrap(), [(COMMAND, 0x0547), (COMMAND, 0x0543)]);
        // A function without one of the two bits; another one whose other bits cannot be set.
        for (command, is_kept) in
            [(!BUS_MASTER, false), (!MEMORY, false), (MEMORY | BUS_MASTER, true)]
        {
            let set = set_bus_master(&function(first, command), true);
            assert_eq!(set.is_ok(), is_kept, "{command:#x}");
            assert!(is_kept || matches!(set, Err(PciError::Unsupported { .. })));
        }
    }

    /// What a function or window without such things of its own answers.
    #[test]
    fn a_block_is_eight_words_in_order() {
        let device = function([0; 16], 0xFFFF);
        let window = device.window(WindowId::Config).unwrap();
        assert!(!window.is_empty() && !window.is_mapped(0, 8) && window.memory(0, 8).is_none());
        assert!(!device.is_gone() && device.merges_interrupts());
        window.write_block(0, &[11, 12, 13, 14, 15, 16, 17, 18]).unwrap();
        let written: Vec<_> = (0..8).map(|word| (8 * word, 11 + word)).collect();
        assert_eq!(*device.0.writes.lock().unwrap(), written);
        assert!(window.write_block(8, &[0; 8]).is_err(), "its last word is outside");
        assert_eq!(device.0.writes.lock().unwrap().len(), 15);
    }
}

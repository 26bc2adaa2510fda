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

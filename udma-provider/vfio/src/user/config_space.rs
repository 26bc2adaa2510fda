//! The configuration space that a server shows of its function.
//!
//! - owns: the 256 bytes of a standard header, the capabilities MSI-X and function-level reset, and which bits a client can
//!   change. takes: accesses of any length. gives: bytes; whether a reset is asked for. must not: overflow on any offset.

/// What a function is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServedIdentity {
    /// Vendor id, at offset 0 of the header.
    pub vendor: u16,
    /// Device id, at offset 2 of the header.
    pub device: u16,
    /// Number of MSI-X vectors, 1 to 2048.
    pub vectors: u16,
}

/// A window that the header names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServedBar {
    /// Its first register, 0, 2 or 4: all windows have addresses of 64 bits.
    pub index: u8,
    /// Bytes, a power of two of at least 4096.
    pub len: u64,
    /// Whether it is memory, without side effects of reads.
    pub is_memory: bool,
}

/// Configuration space of a function.
#[derive(Clone, Debug)]
pub struct ServedConfig {
    bytes: [u8; Self::LEN],
    /// Bits that a client can change.
    writable: [u8; Self::LEN],
}

impl ServedConfig {
    /// Bytes of the space.
    pub const LEN: usize = 256;
    /// Bytes of the window with the MSI-X table; a table of more vectors than fit in half of it needs another one.
    pub const TABLE_LEN: u64 = 4096;

    /// The header of `identity`, with these windows. The table of vectors lies at the start of window `table`, its pending
    /// bits at half of [`ServedConfig::TABLE_LEN`].
    #[must_use]
    pub fn new(identity: ServedIdentity, bars: &[ServedBar], table: u8) -> Self {
        let mut config = Self { bytes: [0; Self::LEN], writable: [0; Self::LEN] };
        config.put(0x00, &identity.vendor.to_le_bytes());
        config.put(0x02, &identity.device.to_le_bytes());
        config.allow(COMMAND, &COMMAND_BITS.to_le_bytes());
        config.put(0x06, &HAS_CAPABILITIES.to_le_bytes());
        config.put(0x09, &CLASS_NETWORK_OTHER);
        for bar in bars.iter().filter(|bar| bar.index < 6 && bar.index.is_multiple_of(2)) {
            let at = 0x10 + 4 * usize::from(bar.index);
            let kind = ADDRESS_64 | (u64::from(bar.is_memory) * PREFETCHABLE);
            config.put(at, &kind.to_le_bytes());
            config.allow(at, &(!bar.len.wrapping_sub(1) & !0xf).to_le_bytes());
        }
        config.put(0x34, &[MSIX]);
        let last = identity.vectors.wrapping_sub(1) & 0x7ff;
        config.put(usize::from(MSIX), &[MSIX_ID, RESET]);
        config.put(usize::from(MSIX) + 2, &last.to_le_bytes());
        config.allow(usize::from(MSIX) + 2, &MSIX_BITS.to_le_bytes());
        let place = u32::from(table & 7);
        let half = u32::try_from(Self::TABLE_LEN / 2).unwrap_or(0);
        config.put(usize::from(MSIX) + 4, &place.to_le_bytes());
        config.put(usize::from(MSIX) + 8, &(half | place).to_le_bytes());
        config.put(usize::from(RESET), &[RESET_ID, 0, 6, RESET_BITS]);
        config
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (byte, value) in self.bytes.iter_mut().skip(at).zip(bytes) {
            *byte = *value;
        }
    }

    fn allow(&mut self, at: usize, bits: &[u8]) {
        for (byte, value) in self.writable.iter_mut().skip(at).zip(bits) {
            *byte = *value;
        }
    }

    /// Reads bytes; beyond the end they are zeros.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let all = self.bytes.iter().copied().chain(std::iter::repeat(0));
        let start = from.min(Self::LEN);
        for (byte, value) in bytes.iter_mut().zip(all.skip(start)) {
            *byte = value;
        }
    }

    /// Writes the bits that can be changed. Returns whether a reset of the function is asked for.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let pairs = self.bytes.iter_mut().zip(&self.writable).skip(from.min(Self::LEN));
        for ((byte, bits), value) in pairs.zip(bytes) {
            *byte = *byte & !bits | value & bits;
        }
        let at = (usize::from(RESET) + 4).checked_sub(from);
        at.and_then(|at| bytes.get(at)).is_some_and(|control| control & 1 != 0)
    }

    /// As after a reset: what a client changed has its initial value.
    pub fn reset(&mut self) {
        for (byte, bits) in self.bytes.iter_mut().zip(&self.writable) {
            *byte &= !bits;
        }
        // Of a window's register only the address was changed; what kind it is stays.
    }
}

const COMMAND: usize = 0x04;
/// Memory accesses, bus mastering, no pin.
const COMMAND_BITS: u16 = 1 << 1 | 1 << 2 | 1 << 10;
const HAS_CAPABILITIES: u16 = 1 << 4;
/// Interface, subclass and class of a network controller that is none of the usual ones.
const CLASS_NETWORK_OTHER: [u8; 3] = [0x00, 0x80, 0x02];
const ADDRESS_64: u64 = 1 << 2;
const PREFETCHABLE: u64 = 1 << 3;
/// Offset of the capability MSI-X.
const MSIX: u8 = 0x40;
const MSIX_ID: u8 = 0x11;
/// All vectors masked, and enabled.
const MSIX_BITS: u16 = 1 << 14 | 1 << 15;
/// Offset of the capability Advanced Features: function-level reset.
const RESET: u8 = 0x50;
const RESET_ID: u8 = 0x13;
/// Transactions pending and function-level reset are there.
const RESET_BITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ServedConfig {
        let bars = [
            ServedBar { index: 0, len: 1 << 26, is_memory: false },
            ServedBar { index: 2, len: 1 << 17, is_memory: true },
            ServedBar { index: 4, len: 4096, is_memory: false },
        ];
        let identity = ServedIdentity { vendor: 0xcc08, device: 0xa001, vectors: 64 };
        ServedConfig::new(identity, &bars, 4)
    }

    fn word(config: &ServedConfig, at: u64) -> u32 {
        let mut bytes = [0; 4];
        config.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn a_driver_finds_ids_windows_and_capabilities() {
        let mut config = config();
        assert_eq!(word(&config, 0), 0xa001_cc08);
        assert_eq!(word(&config, 8) >> 8, 0x02_8000);
        // What a system does to find the lengths.
        for (at, kind, len) in [(0x10, 0x4, 1_u64 << 26), (0x18, 0xc, 1 << 17), (0x20, 0x4, 4096)] {
            assert!(!config.write(at, &[0xff; 8]));
            let seen = u64::from(word(&config, at)) | u64::from(word(&config, at + 4)) << 32;
            assert_eq!((seen & 0xf, !(seen & !0xf) + 1), (kind, len));
        }
        assert_eq!((word(&config, 4) >> 20 & 1, word(&config, 0x34)), (1, 0x40));
        assert_eq!(
            (word(&config, 0x40), word(&config, 0x44), word(&config, 0x48)),
            (0x003f_5011, 4, 0x804)
        );
        assert_eq!((word(&config, 0x50) & 0xffff, word(&config, 0x50) >> 24), (0x13, 3));
    }

    /// A window has two registers: none begins at the second one of another, or beyond the six.
    #[test]
    fn a_window_that_has_no_place_changes_nothing() {
        let identity = ServedIdentity { vendor: 0xcc08, device: 0xa001, vectors: 64 };
        let none = ServedConfig::new(identity, &[], 4);
        for index in [1, 3, 5, 6, 7, 255] {
            let bar = ServedBar { index, len: 4096, is_memory: true };
            let config = ServedConfig::new(identity, &[bar], 4);
            assert_eq!((config.bytes, config.writable), (none.bytes, none.writable), "{index}");
        }
    }

    #[test]
    fn only_bits_that_can_be_changed_change_and_a_reset_takes_them_back() {
        let mut config = config();
        let before = config.clone();
        assert!(config.write(0, &[0xff; 300]), "the reset's bit is among them");
        assert_eq!(word(&config, 0), 0xa001_cc08);
        assert_eq!(word(&config, 4) & 0xffff, 0x406);
        // The two switches of MSI-X, beside the number of its vectors.
        assert_eq!(word(&config, 0x40), word(&before, 0x40) | 0xc000_0000);
        config.reset();
        assert_eq!(config.bytes, before.bytes);
        assert!(config.write(0x54, &[1]) && !config.write(0x54, &[2]) && !config.write(0x55, &[1]));
        for offset in [255, 256, u64::MAX] {
            assert!(!config.write(offset, &[0xff; 8]));
            let mut bytes = [7; 8];
            config.read(offset, &mut bytes);
            assert_eq!(bytes, [0; 8]);
        }
    }
}

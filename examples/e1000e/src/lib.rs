//! A driver for Intel's 82574L, an Ethernet card which QEMU calls e1000e.
//!
//! *Owns*: the card: one ring each way, one interrupt. *Takes*: a [`PciDevice`], whatever is behind it. *Gives*: frames.
//! *Must not*: contain unsafe code, or wait without a bound.
//!
//! Numbers of sections are those of Intel's data sheet of the 82574.
#![forbid(unsafe_code)]

pub mod answer;
mod reg;
mod ring;

use std::{sync::Arc, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use udma_abi::BackingError;
use udma_vfio::{
    AccessWidth, DmaBuffer, InterruptKind, InterruptSignal, PciDevice, PciError, PciInterrupts,
    PciWindow, WindowId, config,
};
use urma_mem::barrier;

use crate::ring::{DescriptorRing, RxDescriptor, TxDescriptor};

/// Ids of the card.
pub const IDS: (u16, u16) = (0x8086, 0x10D3);
/// Longest frame in bytes, without its check sequence.
pub const FRAME_MAX: usize = 1514;
/// Longest time for a reset or for the link to come up.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Why the driver cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum CardError {
    /// An access to the card.
    #[error(transparent)]
    Pci(#[from] PciError),
    /// Memory for the card.
    #[error("memory for the card: {0}")]
    Memory(#[from] BackingError),
    /// The function is another device.
    #[error("{0:04x}:{1:04x} is not the card that this driver is for")]
    OtherDevice(u16, u16),
    /// The card did not do something in time.
    #[error("the card did not {0} within 10 s")]
    Late(&'static str),
    /// A frame that cannot be sent.
    #[error("a frame of {0} bytes; a frame has 14 to 1514")]
    FrameLength(usize),
    /// The transmit ring is full: call [`E1000e::reap`].
    #[error("the transmit ring is full")]
    Full,
    /// The card wrote something that cannot be.
    #[error("the card wrote {0}")]
    Nonsense(&'static str),
}

/// The card, its two rings and its interrupt.
#[derive(Debug)]
pub struct E1000e {
    device: Arc<dyn PciDevice>,
    bar: Arc<dyn PciWindow>,
    interrupts: Arc<dyn PciInterrupts>,
    signal: InterruptSignal,
    rx: DescriptorRing<RxDescriptor>,
    tx: DescriptorRing<TxDescriptor>,
    mac: [u8; 6],
}

impl E1000e {
    /// Takes over the card: resets it, reads its address, gives it its rings, waits for the link.
    ///
    /// # Errors
    /// Another device, or one that does not answer.
    pub fn new(device: Arc<dyn PciDevice>) -> Result<Self, CardError> {
        let ids = config::ids(&*device)?;
        if (ids.vendor, ids.device) != IDS {
            return Err(CardError::OtherDevice(ids.vendor, ids.device));
        }
        let bar = device.window(WindowId::Bar(0))?;
        reset(&*device, &*bar)?;
        config::set_bus_master(&*device, true)?;
        let mac = read_mac(&*bar)?;
        let rx = DescriptorRing::new(memory(&*device)?)?;
        let tx = DescriptorRing::new(memory(&*device)?)?;
        let interrupts = device.interrupts(InterruptKind::Msi)?;
        let signal = InterruptSignal::new().map_err(BackingError::Os)?;
        interrupts.enable(&[Some(signal.fd())])?;
        let mut card = Self { device, bar, interrupts, signal, rx, tx, mac };
        card.start()?;
        Ok(card)
    }

    /// Returns the Ethernet address.
    #[must_use]
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Hands a frame to the card. It is sent some time later.
    ///
    /// # Errors
    /// [`CardError::Full`], [`CardError::FrameLength`], or the card does not answer.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), CardError> {
        if !(14..=FRAME_MAX).contains(&frame.len()) {
            return Err(CardError::FrameLength(frame.len()));
        }
        self.reap()?;
        let tail = self.tx.post(frame)?;
        self.notify(reg::TDT, tail)
    }

    /// Takes back the transmit descriptors that the card has finished; returns their number.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn reap(&mut self) -> Result<u32, CardError> {
        self.tx.reap()
    }

    /// Takes the next frame that arrived; frames with errors are dropped. `None`: there is none.
    ///
    /// # Errors
    /// The card wrote a length that is longer than the buffer, or does not answer.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, CardError> {
        // At most one pass over the ring, so that a stream of bad frames ends the call.
        for _ in 0..ring::ENTRIES {
            let Some(frame) = self.rx.take()? else { return Ok(None) };
            let tail = self.rx.give_back()?;
            self.notify(reg::RDT, tail)?;
            if frame.is_some() {
                return Ok(frame);
            }
        }
        Ok(None)
    }

    /// Waits for an interrupt, at most `bound`, and clears its causes. Returns the number of interrupts.
    ///
    /// # Errors
    /// The card does not answer.
    pub fn wait(&mut self, bound: Duration) -> Result<u64, CardError> {
        let count = self.signal.wait(bound);
        if count > 0 {
            let causes = read(&*self.bar, reg::ICR)?;
            write(&*self.bar, reg::ICR, causes)?;
        }
        Ok(count)
    }

    /// Sets up both directions (sections 4.6.5 and 4.6.6), then waits for the link.
    fn start(&mut self) -> Result<(), CardError> {
        let bar = Arc::clone(&self.bar);
        for (base, iova) in [(reg::RDBAL, self.rx.iova()), (reg::TDBAL, self.tx.iova())] {
            write(&*bar, base, iova & 0xFFFF_FFFF)?;
            write(&*bar, base + reg::HIGH, iova >> 32)?;
            write(&*bar, base + reg::LENGTH, ring::BYTES)?;
            write(&*bar, base + reg::HEAD, 0)?;
            write(&*bar, base + reg::TAIL, 0)?;
        }
        for offset in (reg::MTA..reg::MTA + reg::MTA_LEN).step_by(4) {
            write(&*bar, offset, 0)?;
        }
        write(&*bar, reg::TIPG, reg::TIPG_COPPER)?;
        write(&*bar, reg::TXDCTL, reg::TXDCTL_ALWAYS)?;
        write(&*bar, reg::TCTL, reg::TCTL_ON)?;
        write(&*bar, reg::RCTL, reg::RCTL_ON)?;
        let tail = self.rx.fill()?;
        self.notify(reg::RDT, tail)?;
        write(&*bar, reg::IMS, reg::CAUSE_RX | reg::CAUSE_LINK)?;
        write(&*bar, reg::CTRL, read(&*bar, reg::CTRL)? | reg::CTRL_LINK_UP)?;
        until("bring the link up", || Ok(read(&*bar, reg::STATUS)? & reg::STATUS_LINK != 0))
    }

    /// Tells the card about entries before `tail`, after they are in memory.
    fn notify(&self, register: u64, tail: u32) -> Result<(), CardError> {
        barrier::to_device();
        write(&*self.bar, register, u64::from(tail))
    }
}

impl Drop for E1000e {
    fn drop(&mut self) {
        // The rings go next: the card must not reach them any more. A card that is gone does not.
        let _ = config::set_bus_master(&*self.device, false);
        let _ = reset(&*self.device, &*self.bar);
        let _ = self.interrupts.disable();
    }
}

fn memory(device: &dyn PciDevice) -> Result<DmaBuffer, BackingError> {
    DmaBuffer::new(device.dma(), ring::MEMORY, u64::MAX)
}

/// Resets the card: as a PCI function where that works, and by its own register (section 4.6.1).
fn reset(device: &dyn PciDevice, bar: &dyn PciWindow) -> Result<(), CardError> {
    match device.reset() {
        Ok(()) | Err(PciError::Unsupported { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    write(bar, reg::IMC, u64::from(u32::MAX))?;
    write(bar, reg::CTRL, read(bar, reg::CTRL)? | reg::CTRL_RESET)?;
    until("come back from a reset", || Ok(read(bar, reg::CTRL)? & reg::CTRL_RESET == 0))?;
    // A reset leaves interrupts as they are after power-on; causes of before are cleared by a read.
    write(bar, reg::IMC, u64::from(u32::MAX))?;
    read(bar, reg::ICR).map(|_| ())
}

fn read_mac(bar: &dyn PciWindow) -> Result<[u8; 6], CardError> {
    let (low, high) = (read(bar, reg::RAL0)?, read(bar, reg::RAH0)?);
    if high & reg::RAH_VALID == 0 {
        return Err(CardError::Nonsense("no Ethernet address"));
    }
    let [a, b, c, d, ..] = low.to_le_bytes();
    let [e, f, ..] = high.to_le_bytes();
    Ok([a, b, c, d, e, f])
}

fn read(bar: &dyn PciWindow, offset: u64) -> Result<u64, CardError> {
    Ok(bar.read(offset, AccessWidth::W32)?)
}

fn write(bar: &dyn PciWindow, offset: u64, value: u64) -> Result<(), CardError> {
    Ok(bar.write(offset, AccessWidth::W32, value)?)
}

/// Waits until `is_done`, within the bound.
fn until(
    what: &'static str,
    is_done: impl Fn() -> Result<bool, CardError>,
) -> Result<(), CardError> {
    let end = now_ns() + PATIENCE_NS;
    while !is_done()? {
        if now_ns() > end {
            return Err(CardError::Late(what));
        }
        std::thread::yield_now();
    }
    Ok(())
}

fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

//! Bring-up of a device, and what all its contexts share.
//!
//! *Owns*: identification, reset, the command queue, the table of queues, the interrupt vectors. *Takes*: a backing.
//! *Gives*: an enabled [`Driver`]. *Must not*: leave rings in memory that is freed while the device is enabled (drop
//! resets the device first).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
};

use udma_abi::{
    DeviceBacking, Eqe, EqeKind, Nanos, RegisterRegion,
    caps::{Caps, Features},
    cmd::Command,
    regs,
};
use urma_core::{Status, TokenId};
use urma_mem::{
    fork::{FlagWatch, watch_flag},
    sync::{AtomicBool, Ordering},
};

use crate::{
    alloc::{DmaAlloc, DmaBuf, DmaMap, RingPages, lock},
    cmdq::{CmdResults, CommandError, CommandQueue},
    doorbell::SlotRegisters,
    events::EventRing,
    table::{PolledQueue, QueueTable},
    vectors::QueueVectors,
};

/// Settings of the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriverCfg {
    /// Pages of rings and pools.
    pub ring_pages: RingPages,
    /// Longest wait for the answer to a command, in nanoseconds of the device's clock. A handshake with a silent peer
    /// must end within it.
    pub command_timeout_ns: Nanos,
    /// Commands that may be outstanding, a power of two from 1 to 256.
    pub command_depth: u32,
    /// Bytes given to the device as knitting pool at bring-up; 0 gives none.
    pub knit_pool_len: u32,
}

impl Default for DriverCfg {
    fn default() -> Self {
        Self {
            ring_pages: RingPages::Base,
            command_timeout_ns: 10_000_000_000,
            command_depth: 32,
            knit_pool_len: 1 << 20,
        }
    }
}

/// A device that is up, shared by its contexts.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) backing: Arc<dyn DeviceBacking>,
    pub(crate) regs: Arc<dyn RegisterRegion>,
    pub(crate) caps: Caps,
    pub(crate) dma: Arc<DmaAlloc>,
    pub(crate) queues: Arc<QueueTable>,
    /// Receive queues by number, for jetties that share them.
    pub(crate) jfrs: Mutex<BTreeMap<u32, Weak<PolledQueue>>>,
    /// Registered memory by token id; `None` while the device is being asked.
    pub(crate) segments: Mutex<BTreeMap<TokenId, Option<DmaMap>>>,
    pub(crate) async_events: EventRing,
    pub(crate) failed: Arc<AtomicBool>,
    /// Whether the event of the failure was taken: later waiters for events get an error.
    fatal_taken: Arc<AtomicBool>,
    /// A forked child has no device: its calls find both flags set.
    _forked: [FlagWatch; 2],
    /// The device was reset since: its registers belong to a successor.
    retired: AtomicBool,
    commands: CommandQueue,
    pub(crate) vectors: QueueVectors,
    /// Memory that the device may still use because it did not answer: freed after the reset.
    limbo: Mutex<Vec<Arc<DmaBuf>>>,
}

impl Driver {
    /// Resets the device, gives it its rings and enables it.
    ///
    /// # Errors
    /// `NoDevice`: not a device of this contract, or it does not come up. `NoMemory`.
    pub(crate) fn bring_up(
        backing: Arc<dyn DeviceBacking>,
        dma: Arc<DmaAlloc>,
        cfg: &DriverCfg,
    ) -> Result<Arc<Self>, Status> {
        let regs = SlotRegisters::over(backing.registers(), backing.doorbell_slots());
        identify(&*regs)?;
        reset(&*backing, &*regs, cfg.command_timeout_ns)?;
        let caps = read_caps(&*regs);
        let failed = Arc::new(AtomicBool::new(false));
        let fatal_taken = Arc::new(AtomicBool::new(false));
        let watch = |flag| watch_flag(Arc::clone(flag)).map_err(|_| Status::NoMemory);
        let forked = [watch(&failed)?, watch(&fatal_taken)?];
        let depth = cfg.command_depth.clamp(1, 256).next_power_of_two();
        let rings = dma.alloc(CommandQueue::ring_len(depth))?;
        let commands =
            CommandQueue::new(Arc::clone(&backing), rings, depth, cfg.command_timeout_ns);
        let async_events = EventRing::asynchronous(&backing, &dma, &failed)?;
        regs.write32(regs::CONTROL, regs::control::ENABLE);
        let is_decided = regs::status::READY | regs::status::FATAL;
        wait_status(&*backing, &*regs, cfg.command_timeout_ns, |status| status & is_decided != 0)?;
        if regs.read(regs::STATUS) & u64::from(regs::status::FATAL) != 0 {
            tracing::error!(
                device = backing.info().name,
                "the device does not reach the memory of its rings; in a virtual machine that must be a shared file (QEMU: -object memory-backend-memfd,share=on)"
            );
            return Err(Status::NoDevice);
        }
        let vectors = u16::try_from(caps.vectors).unwrap_or(u16::MAX).min(VECTORS_MAX);
        let driver = Arc::new(Self {
            regs,
            caps,
            dma,
            queues: Arc::default(),
            jfrs: Mutex::default(),
            segments: Mutex::default(),
            async_events,
            failed,
            fatal_taken,
            _forked: forked,
            retired: AtomicBool::new(false),
            commands,
            vectors: QueueVectors::new(vectors),
            limbo: Mutex::default(),
            backing,
        });
        driver.fill_knitting_pool(cfg.knit_pool_len)?;
        Ok(driver)
    }

    /// Executes a command.
    ///
    /// # Errors
    /// The device's answer; `NoDevice` if it does not answer.
    pub(crate) fn execute(&self, command: &Command) -> Result<CmdResults, Status> {
        self.execute_with(command, &mut || {})
    }

    /// Executes a command and calls `idle` between two checks for the response.
    ///
    /// # Errors
    /// The same as those of [`Driver::execute`].
    pub(crate) fn execute_with(
        &self,
        command: &Command,
        idle: &mut dyn FnMut(),
    ) -> Result<CmdResults, Status> {
        self.check()?;
        self.commands.execute_with(command, idle).map_err(|error| {
            tracing::debug!(%error, opcode = command.opcode(), "a command failed");
            let status = Status::from(error);
            status
                .why(format_args!("the device did not do {}: {error}; {status}", name_of(command)))
        })
    }

    /// # Errors
    /// `NoDevice`: the device failed or was reset.
    pub(crate) fn check(&self) -> Result<(), Status> {
        if self.failed.load(Ordering::Acquire) { Err(Status::NoDevice) } else { Ok(()) }
    }

    /// Marks the device as gone: nothing is sent to it any more, outstanding requests end flushed.
    pub(crate) fn on_failure(&self) {
        if !self.failed.swap(true, Ordering::AcqRel) {
            tracing::error!("the device failed; outstanding requests end flushed");
            self.commands.fail();
            // A waiter for events must be woken too.
            self.async_events.raise(Eqe::Async { code: EqeKind::DevFatal as u8, object: 0 });
        }
    }

    /// Takes the event of the failure, raised by the driver or by the device itself. Returns whether it is the first:
    /// both may have noticed.
    pub(crate) fn take_fatal_event(&self) -> bool {
        self.failed.store(true, Ordering::Release);
        self.commands.fail();
        !self.fatal_taken.swap(true, Ordering::AcqRel)
    }

    /// Checks that events may still come. A device that failed has one more, which may not be raised yet.
    ///
    /// # Errors
    /// `NoDevice`: the event of its failure was taken.
    pub(crate) fn check_events(&self) -> Result<(), Status> {
        if self.fatal_taken.load(Ordering::Acquire) { Err(Status::NoDevice) } else { Ok(()) }
    }

    /// Marks the device as failed if it reports a fatal error, or its registers read as all ones. Returns whether it
    /// did.
    pub(crate) fn look_for_failure(&self) -> bool {
        let status = self.backing.status().unwrap_or_else(|| self.regs.read(regs::STATUS));
        let is_failed = status == u64::MAX || status & u64::from(regs::status::FATAL) != 0;
        if is_failed {
            self.on_failure();
        }
        is_failed
    }

    /// Resets the device under running queues: they fail, their requests end flushed.
    ///
    /// # Errors
    /// `NoDevice`: it did not come back.
    pub(crate) fn reset(&self) -> Result<(), Status> {
        self.on_failure();
        let done = self.backing.reset();
        self.retired.store(done.is_ok(), Ordering::Release);
        done.map_err(|error| {
            tracing::error!(%error, "the device did not come back from its reset");
            Status::NoDevice
        })
    }

    /// Retires this driver, because a successor is about to reset the device.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// Keeps memory until the device was reset, because it may still be used.
    pub(crate) fn keep(&self, buf: Arc<DmaBuf>) {
        lock(&self.limbo).push(buf);
    }

    /// Keeps memory that a failed command named, if it is unknown whether the device uses it.
    pub(crate) fn keep_if_failed(&self, buf: &Arc<DmaBuf>, error: Status) {
        if error == Status::NoDevice {
            self.keep(Arc::clone(buf));
        }
    }

    pub(crate) fn features(&self) -> Features {
        Features::from_bits_truncate(self.caps.features)
    }

    /// Gives the device host memory for its loss records, if it uses that.
    fn fill_knitting_pool(&self, len: u32) -> Result<(), Status> {
        let sizes = self.caps.knit_block_sizes;
        let Ok(block_log2) = u8::try_from(sizes.trailing_zeros()) else { return Ok(()) };
        let most = u32::try_from(self.caps.knit_blocks_max).unwrap_or(u32::MAX);
        let blocks = len.checked_shr(u32::from(block_log2)).unwrap_or(0).min(most);
        if sizes == 0 || blocks == 0 {
            return Ok(());
        }
        let buf = self.dma.alloc((blocks as usize) << block_log2)?;
        let command = Command::PoolGrow { base: buf.iova(), block_log2, blocks };
        match self.commands.execute(&command) {
            Ok(_) => self.keep(Arc::new(buf)),
            Err(CommandError::Refused(status)) => {
                tracing::info!(%status, "the device takes no knitting pool");
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if *self.retired.get_mut() {
            return;
        }
        if self.regs.read(regs::CONTROL) == u64::MAX {
            // It is gone, and reaches nothing.
            return;
        }
        // Rings are freed after this: the device must have forgotten them.
        self.regs.write32(regs::CONTROL, regs::control::RESET);
        let limit = RESET_TIMEOUT_NS;
        if wait_control_clear(&*self.backing, &*self.regs, limit).is_err() {
            tracing::error!("the device does not answer a reset; its rings stay mapped");
        }
    }
}

/// The name of a command, without its arguments, which include tokens.
fn name_of(command: &Command) -> String {
    let text = format!("{command:?}");
    text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// # Errors
/// `NoDevice`: another device, another version, or nothing.
pub(crate) fn identify(regs: &dyn RegisterRegion) -> Result<(), Status> {
    let (id, version) = (regs.read(regs::ID), regs.read(regs::VERSION_REG));
    let version_low = version & 0xffff_ffff;
    if id != regs::MAGIC || version_low != u64::from(regs::VERSION) {
        tracing::error!(
            id,
            version,
            "the registers ID and VERSION are not those of a device that this driver supports"
        );
        return Err(Status::NoDevice);
    }
    Ok(())
}

/// Reads the capability registers, in register order.
pub(crate) fn read_caps(regs: &dyn RegisterRegion) -> Caps {
    let mut words = [0; Caps::COUNT];
    for (index, word) in (0u64..).zip(&mut words) {
        *word = regs.read(regs::CAPS + 8 * index);
    }
    Caps::from_words(&words)
}

fn reset(backing: &dyn DeviceBacking, regs: &dyn RegisterRegion, ns: Nanos) -> Result<(), Status> {
    regs.write32(regs::CONTROL, regs::control::RESET);
    wait_control_clear(backing, regs, ns)?;
    let busy = regs::status::RESETTING | regs::status::FATAL;
    wait_status(backing, regs, ns, |status| status & busy == 0)
}

fn wait_control_clear(
    backing: &dyn DeviceBacking,
    regs: &dyn RegisterRegion,
    ns: Nanos,
) -> Result<(), Status> {
    let bit = u64::from(regs::control::RESET);
    wait_until(backing, ns, || regs.read(regs::CONTROL) & bit == 0)
}

fn wait_status(
    backing: &dyn DeviceBacking,
    regs: &dyn RegisterRegion,
    ns: Nanos,
    is_good: impl Fn(u32) -> bool,
) -> Result<(), Status> {
    wait_until(backing, ns, || {
        // The upper half belongs to the next register or is zero.
        u32::try_from(regs.read(regs::STATUS) & 0xffff_ffff).is_ok_and(&is_good)
    })
}

fn wait_until(
    backing: &dyn DeviceBacking,
    ns: Nanos,
    mut is_done: impl FnMut() -> bool,
) -> Result<(), Status> {
    let deadline = backing.now().saturating_add(ns);
    while !is_done() {
        if backing.now() >= deadline {
            tracing::error!("the status register did not reach the awaited state in time");
            return Err(Status::NoDevice);
        }
        backing.progress();
        urma_mem::sync::spin_hint();
    }
    Ok(())
}

/// Most vectors that this driver uses: 0 for asynchronous events, one for each JFCE, the last for all further ones.
const VECTORS_MAX: u16 = 1024;
/// Time limit of the reset at the end, in nanoseconds.
const RESET_TIMEOUT_NS: Nanos = 1_000_000_000;

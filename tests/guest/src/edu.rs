//! A driver for QEMU's `edu` device, and the checks over it: the control, a model that is not of this project.
//!
//! *Owns*: the device's registers, as QEMU's docs/specs/edu.rst has them. *Takes*: a [`PciDevice`]. *Must not*: know what
//! is below the traits.

use std::{
    os::fd::BorrowedFd,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use udma_abi::{BackingError, DmaAccess, DmaSpace};
use udma_vfio::{
    AccessWidth, InterruptKind, InterruptSignal, PciDevice, PciError, PciInterrupts, PciWindow,
    WindowId, config,
    kernel::{KernelDevice, KernelInterface, KernelOpenError, PciFunction, PciSysfs},
};
use urma_mem::{Pages, Region};

use crate::{
    CheckResult, Suite, during, expect,
    planted::{DeviceFault, FaultyDevice, found},
};

const VENDOR: u16 = 0x1234;
const DEVICE: u16 = 0x11E8;

/// Registers of BAR 0.
mod reg {
    pub(super) const ID: u64 = 0x00;
    pub(super) const LIVENESS: u64 = 0x04;
    pub(super) const FACTORIAL: u64 = 0x08;
    pub(super) const STATUS: u64 = 0x20;
    pub(super) const IRQ_STATUS: u64 = 0x24;
    pub(super) const IRQ_RAISE: u64 = 0x60;
    pub(super) const IRQ_ACK: u64 = 0x64;
    pub(super) const DMA_SOURCE: u64 = 0x80;
    pub(super) const DMA_TARGET: u64 = 0x88;
    pub(super) const DMA_COUNT: u64 = 0x90;
    pub(super) const DMA_COMMAND: u64 = 0x98;
}

/// Of `STATUS`: interrupt when a factorial is done.
const RAISES: u64 = 0x80;
/// Of `STATUS` and of a DMA command: at work.
const BUSY: u64 = 1;
/// Of a DMA command: from the device to memory.
const FROM_DEVICE: u64 = 2;
/// Of a DMA command: interrupt at the end.
const WITH_INTERRUPT: u64 = 4;
/// Where the device's own memory begins in its addresses.
const BUFFER: u64 = 0x40000;
/// Longest time for one job of the device, in an emulated machine under load.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time for a job of a device with a fault, which never ends it.
const PATIENCE_PLANTED: Duration = Duration::from_millis(500);
/// Device address of the checks' memory; the device has 28 address bits.
const IOVA: u64 = 0x100_0000;
/// Bytes of one transfer: fewer than the device's 4096, at which old versions of QEMU stop.
const LEN: u64 = 2048;

/// A check of a device that works.
type EduCheck = fn(&Edu) -> CheckResult;

/// Binds, opens and checks the device.
pub(crate) fn run(suite: &mut Suite) {
    let sysfs = PciSysfs::default();
    let found = match find(&sysfs) {
        Ok(found) => found,
        Err(why) => return suite.check("edu: found in sysfs", Err(why)),
    };
    suite.check("edu: not bound is an error that says what to run", unbound(&found));
    suite.check("edu: bound to vfio-pci", sysfs.bind(found.address).map_err(|e| e.to_string()));
    let device = match KernelDevice::open(found.address) {
        Ok(device) => device,
        Err(error) => return suite.check("edu: opened", Err(error.to_string())),
    };
    suite.check("edu: opened by the interface that the kernel has", interface(&device));
    suite.check("edu: a second open is refused as busy", second_open(&found));
    let checks: &[(&str, EduCheck)] = &[
        ("edu: ids in configuration space", ids),
        ("edu: windows and their limits", windows),
        ("edu: identification by a mapped BAR", identification),
        ("edu: liveness", liveness),
        ("edu: factorial with an interrupt", factorial),
        ("edu: a masked interrupt is delivered when unmasked", masking),
        ("edu: device addresses are asked for and respected", addresses),
        ("edu: DMA both ways", dma_both_ways),
        ("edu: DMA with 2 MiB pages", dma_huge),
        ("edu: DMA of private memory", dma_private),
        ("edu: DMA into memory mapped for reading is refused", dma_read_only),
        ("edu: DMA is refused after unmap", dma_unmapped),
        ("edu: no DMA without bus mastering", dma_no_master),
        ("edu: reset", reset),
        ("edu: kinds of interrupts", kinds),
    ];
    let device: Arc<dyn PciDevice> = Arc::new(device);
    let edu = match Edu::new(Arc::clone(&device), PATIENCE) {
        Ok(edu) => edu,
        Err(why) => return suite.check("edu: started", Err(why)),
    };
    for (name, check) in checks {
        suite.check(name, check(&edu));
    }
    drop(edu);
    for (fault, name, check) in PLANTED {
        suite.check(&format!("planted in edu: {name}"), planted(&device, *fault, *check));
    }
    drop(device);
    suite.check("edu: memory is unmapped after close", unmapped_late(&found));
    suite.check("edu: opened again after close, then given back", given_back(&sysfs, &found));
}

/// Faults, each with the check that must find it.
const PLANTED: &[(DeviceFault, &str, EduCheck)] = &[
    (DeviceFault::OffsetWrong, "registers at other offsets", liveness),
    (DeviceFault::InterruptsLost, "no interrupts", factorial),
    (DeviceFault::MaskIgnored, "masking does nothing", masking),
    (DeviceFault::MapForgotten, "memory is not mapped", dma_both_ways),
    (DeviceFault::WritableAlways, "all memory is writable", dma_read_only),
    (DeviceFault::UnmapForgotten, "memory stays mapped", dma_unmapped),
    (DeviceFault::ConfigReadOnly, "bus mastering cannot be switched", dma_no_master),
];

/// Runs a check on the device with a fault; then the device is as before.
fn planted(device: &Arc<dyn PciDevice>, fault: DeviceFault, check: EduCheck) -> CheckResult {
    config::set_bus_master(&**device, true).map_err(during("bus mastering"))?;
    let faulty = Arc::new(FaultyDevice { inner: Arc::clone(device), fault });
    let result = Edu::new(faulty, PATIENCE_PLANTED).and_then(|edu| check(&edu));
    let _ = device.dma().unmap(IOVA);
    // A cause that no interrupt reported is acknowledged, and the device is idle.
    let edu = Edu::new(Arc::clone(device), PATIENCE)?;
    edu.write(reg::IRQ_ACK, 0xFFFF_FFFF)?;
    edu.until_clear(reg::STATUS, BUSY)?;
    edu.until_clear(reg::DMA_COMMAND, BUSY)?;
    found(result)
}

fn find(sysfs: &PciSysfs) -> Result<PciFunction, String> {
    let all = sysfs.functions().map_err(during("sysfs"))?;
    let is_it = |function: &PciFunction| (function.vendor, function.device) == (VENDOR, DEVICE);
    all.into_iter().find(is_it).ok_or_else(|| "no function has its ids".to_owned())
}

fn unbound(function: &PciFunction) -> CheckResult {
    match KernelDevice::open(function.address) {
        Err(error @ KernelOpenError::NotBound { .. })
            if error.to_string().contains("urma_admin bind") =>
        {
            Ok(())
        }
        Err(error) => Err(error.to_string()),
        Ok(_) => Err("it was opened".to_owned()),
    }
}

/// iommufd where the kernel has its file, else the group.
fn interface(device: &KernelDevice) -> CheckResult {
    let has_iommufd = cfg!(feature = "iommufd") && Path::new("/dev/iommu").exists();
    let wanted = if has_iommufd { KernelInterface::Iommufd } else { KernelInterface::Group };
    expect("the interface", device.interface(), wanted)
}

fn second_open(function: &PciFunction) -> CheckResult {
    match KernelDevice::open(function.address) {
        Err(KernelOpenError::Busy { .. }) => Ok(()),
        Err(error) => Err(error.to_string()),
        Ok(_) => Err("it was opened twice".to_owned()),
    }
}

/// Memory may outlive its function, and the view of memory keeps what the kernel needs to unmap it.
fn unmapped_late(function: &PciFunction) -> CheckResult {
    let device = KernelDevice::open(function.address).map_err(during("opening again"))?;
    let dma = device.dma();
    let region = Region::shared(4096, Pages::Base).map_err(during("memory"))?;
    dma.map(IOVA, &region, DmaAccess::Both).map_err(during("map"))?;
    drop(device);
    dma.unmap(IOVA).map_err(during("unmap after close"))
}

fn given_back(sysfs: &PciSysfs, function: &PciFunction) -> CheckResult {
    KernelDevice::open(function.address).map(drop).map_err(during("opening again"))?;
    let driver = sysfs.unbind(function.address).map_err(during("unbind"))?;
    expect("its driver", driver, None)
}

/// The driver of one edu device.
#[derive(Debug)]
struct Edu {
    device: Arc<dyn PciDevice>,
    bar: Arc<dyn PciWindow>,
    dma: Arc<dyn DmaSpace>,
    interrupts: Arc<dyn PciInterrupts>,
    signal: InterruptSignal,
    /// Longest time for one job.
    patience: Duration,
}

impl Edu {
    fn new(device: Arc<dyn PciDevice>, patience: Duration) -> Result<Self, String> {
        config::set_bus_master(&*device, true).map_err(during("bus mastering"))?;
        let bar = device.window(WindowId::Bar(0)).map_err(during("BAR 0"))?;
        let interrupts = device.interrupts(InterruptKind::Msi).map_err(during("MSI"))?;
        let signal = InterruptSignal::new().map_err(during("an eventfd"))?;
        interrupts.enable(&[Some(signal.fd())]).map_err(during("enabling MSI"))?;
        Ok(Self { dma: device.dma(), device, bar, interrupts, signal, patience })
    }

    fn read(&self, offset: u64) -> Result<u64, String> {
        self.bar.read(offset, AccessWidth::W32).map_err(during("reading"))
    }

    fn write(&self, offset: u64, value: u64) -> CheckResult {
        self.bar.write(offset, AccessWidth::W32, value).map_err(during("writing"))
    }

    fn write_long(&self, offset: u64, value: u64) -> CheckResult {
        self.bar.write(offset, AccessWidth::W64, value).map_err(during("writing"))
    }

    /// Waits for the interrupt, checks its cause, acknowledges it.
    fn interrupt(&self, cause: u64) -> CheckResult {
        expect("number of interrupts", self.signal.wait(self.patience), 1)?;
        expect("cause of the interrupt", self.read(reg::IRQ_STATUS)?, cause)?;
        self.write(reg::IRQ_ACK, cause)
    }

    /// Waits until the register has none of `bits`.
    fn until_clear(&self, offset: u64, bits: u64) -> CheckResult {
        let end = now() + self.patience;
        while self.read(offset)? & bits != 0 {
            if now() > end {
                return Err(format!("the device is still busy after {:?}", self.patience));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// One transfer of `LEN` bytes, to its end.
    fn transfer(&self, source: u64, target: u64, command: u64) -> CheckResult {
        self.write_long(reg::DMA_SOURCE, source)?;
        self.write_long(reg::DMA_TARGET, target)?;
        self.write_long(reg::DMA_COUNT, LEN)?;
        self.write_long(reg::DMA_COMMAND, command | BUSY)?;
        self.until_clear(reg::DMA_COMMAND, BUSY)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a device that is not of this process takes real time"
)]
fn now() -> Instant {
    Instant::now()
}

fn ids(edu: &Edu) -> CheckResult {
    let ids = config::ids(&*edu.device).map_err(during("ids"))?;
    expect("ids", (ids.vendor, ids.device), (VENDOR, DEVICE))
}

fn windows(edu: &Edu) -> CheckResult {
    expect("length of BAR 0", edu.bar.len(), 1 << 20)?;
    for (offset, width) in
        [(1 << 20, AccessWidth::W32), (2, AccessWidth::W32), (4, AccessWidth::W64)]
    {
        match edu.bar.read(offset, width) {
            Err(PciError::Access { .. }) => {}
            other => return Err(format!("{width:?} at {offset:#x}: {other:?}")),
        }
    }
    for id in [WindowId::Bar(1), WindowId::Bar(5), WindowId::Bar(6)] {
        match edu.device.window(id) {
            Err(PciError::NoWindow { .. }) => {}
            other => return Err(format!("{id:?}: {other:?}")),
        }
    }
    let config = edu.device.window(WindowId::Config).map_err(during("configuration space"))?;
    let is_standard = config.len() == 256 || config.len() == 4096;
    if is_standard { Ok(()) } else { Err(format!("configuration space of {} bytes", config.len())) }
}

fn identification(edu: &Edu) -> CheckResult {
    expect("BAR 0 is mapped", edu.bar.is_mapped(0, 1 << 20), true)?;
    expect("identification", edu.read(reg::ID)? & 0xFFFF, 0x00ED)
}

fn liveness(edu: &Edu) -> CheckResult {
    for value in [0x1234_5678, 0, 0xFFFF_FFFF, 0xA5A5_5A5A] {
        edu.write(reg::LIVENESS, value)?;
        expect("liveness", edu.read(reg::LIVENESS)?, !value & 0xFFFF_FFFF)?;
    }
    Ok(())
}

fn factorial(edu: &Edu) -> CheckResult {
    edu.write(reg::STATUS, RAISES)?;
    edu.write(reg::FACTORIAL, 10)?;
    edu.interrupt(1)?;
    edu.until_clear(reg::STATUS, BUSY)?;
    edu.write(reg::STATUS, 0)?;
    expect("factorial of 10", edu.read(reg::FACTORIAL)?, 3_628_800)
}

fn masking(edu: &Edu) -> CheckResult {
    let mask = |is_masked| edu.interrupts.set_masked(0, is_masked).map_err(during("masking"));
    mask(true)?;
    edu.write(reg::IRQ_RAISE, 0x10)?;
    expect("interrupts while masked", edu.signal.wait(Duration::from_millis(200)), 0)?;
    mask(false)?;
    edu.interrupt(0x10)?;
    edu.write(reg::IRQ_RAISE, 0x20)?;
    edu.interrupt(0x20)?;
    match edu.interrupts.set_masked(1, true) {
        Err(PciError::Vectors { .. }) => Ok(()),
        other => Err(format!("masking a vector that is not there: {other:?}")),
    }
}

fn memory(len: usize, pages: Pages) -> Result<Region, String> {
    Region::shared(len, pages).map_err(during("memory"))
}

fn addresses(edu: &Edu) -> CheckResult {
    let ranges = edu.dma.ranges();
    let is_there = ranges.iter().any(|range| range.0 <= IOVA && IOVA + LEN <= range.1);
    expect("usable addresses", is_there, true)?;
    // x86 has its interrupts there, in every machine.
    let msi = 0xFEE0_0000;
    let has_msi = ranges.iter().any(|range| range.0 <= msi && msi <= range.1);
    expect("interrupts among usable addresses", has_msi, false)?;
    let region = memory(8192, Pages::Base)?;
    let map = |iova: u64, region: &Region| edu.dma.map(iova, region, DmaAccess::Both);
    for iova in [msi, !0xFFF, msi - 0x1000] {
        match map(iova, &region) {
            Err(BackingError::IovaRange { .. }) => {}
            other => return Err(format!("mapping at {iova:#x}: {other:?}")),
        }
    }
    match map(IOVA + 8, &region) {
        Err(BackingError::Unreachable(_)) => {}
        other => return Err(format!("mapping inside a page: {other:?}")),
    }
    map(IOVA, &region).map_err(during("mapping"))?;
    match map(IOVA + 4096, &region) {
        Err(BackingError::IovaTaken { .. }) => {}
        other => return Err(format!("mapping over a mapping: {other:?}")),
    }
    match edu.dma.unmap(IOVA + 4096) {
        Err(BackingError::NotMapped(_)) => {}
        other => return Err(format!("unmapping the middle: {other:?}")),
    }
    edu.dma.unmap(IOVA).map_err(during("unmapping"))
}

fn pattern(region: &Region, offset: usize, seed: u8) -> Result<Vec<u8>, String> {
    let bytes = (0..LEN).map(|i| seed.wrapping_add(i.to_le_bytes()[0].wrapping_mul(7)));
    let bytes = bytes.collect::<Vec<_>>();
    region.write(offset, &bytes).map_err(during("writing memory"))?;
    Ok(bytes)
}

fn content(region: &Region, offset: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; usize::try_from(LEN).unwrap_or(0)];
    region.read(offset, &mut bytes).map_err(during("reading memory"))?;
    Ok(bytes)
}

/// Moves bytes at `iova` to the device and back to `iova + to`; the memory is mapped.
fn there_and_back(edu: &Edu, region: &Region, from: usize, to: usize) -> CheckResult {
    let bytes = pattern(region, from, 3)?;
    edu.transfer(IOVA + from as u64, BUFFER, WITH_INTERRUPT)?;
    edu.interrupt(0x100)?;
    edu.transfer(BUFFER, IOVA + to as u64, FROM_DEVICE | WITH_INTERRUPT)?;
    edu.interrupt(0x100)?;
    if content(region, to)? == bytes { Ok(()) } else { Err("other bytes came back".to_owned()) }
}

fn mapped(
    edu: &Edu,
    region: &Region,
    access: DmaAccess,
    work: impl FnOnce() -> CheckResult,
) -> CheckResult {
    edu.dma.map(IOVA, region, access).map_err(during("mapping"))?;
    let result = work();
    let unmapped = edu.dma.unmap(IOVA).map_err(during("unmapping"));
    result.and(unmapped)
}

fn dma_both_ways(edu: &Edu) -> CheckResult {
    let region = memory(8192, Pages::Base)?;
    mapped(edu, &region, DmaAccess::Both, || there_and_back(edu, &region, 0, 4096))
}

fn dma_huge(edu: &Edu) -> CheckResult {
    let len = 4 << 20;
    let region = memory(len, Pages::Huge2M)?;
    mapped(edu, &region, DmaAccess::Both, || there_and_back(edu, &region, 4096, len - 4096))
}

/// Memory as a program has it, without a file.
fn dma_private(edu: &Edu) -> CheckResult {
    let region = Region::private(8192).map_err(during("memory"))?;
    mapped(edu, &region, DmaAccess::Both, || there_and_back(edu, &region, 0, 4096))
}

/// A transfer from the device into `region`, which the IOMMU must stop.
fn stopped(edu: &Edu, region: &Region) -> CheckResult {
    let bytes = pattern(region, 0, 90)?;
    edu.transfer(BUFFER, IOVA, FROM_DEVICE)?;
    if content(region, 0)? == bytes {
        Ok(())
    } else {
        Err("the device changed the memory".to_owned())
    }
}

fn dma_read_only(edu: &Edu) -> CheckResult {
    let region = memory(4096, Pages::Base)?;
    mapped(edu, &region, DmaAccess::ToDevice, || stopped(edu, &region))
}

fn dma_unmapped(edu: &Edu) -> CheckResult {
    let region = memory(4096, Pages::Base)?;
    // The transfer works while it is mapped, so what stops it afterwards is the unmap.
    mapped(edu, &region, DmaAccess::Both, || there_and_back(edu, &region, 0, 2048))?;
    stopped(edu, &region)
}

fn dma_no_master(edu: &Edu) -> CheckResult {
    let master = |is_master| {
        config::set_bus_master(&*edu.device, is_master).map_err(during("bus mastering"))
    };
    let region = memory(4096, Pages::Base)?;
    mapped(edu, &region, DmaAccess::Both, || {
        master(false)?;
        let result = stopped(edu, &region);
        master(true)?;
        result?;
        there_and_back(edu, &region, 0, 2048)
    })
}

fn reset(edu: &Edu) -> CheckResult {
    match edu.device.reset() {
        Ok(()) => config::set_bus_master(&*edu.device, true).map_err(during("bus mastering")),
        // This model has no function-level reset: then it is said so.
        Err(PciError::Unsupported { .. }) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn kinds(edu: &Edu) -> CheckResult {
    match edu.device.interrupts(InterruptKind::MsiX) {
        Err(PciError::NoInterrupt { .. }) => {}
        other => return Err(format!("MSI-X of a device without it: {other:?}")),
    }
    let fd = edu.signal.fd();
    for fds in [vec![], vec![Some(fd); 2]] {
        let fds: Vec<Option<BorrowedFd<'_>>> = fds;
        match edu.interrupts.enable(&fds) {
            Err(PciError::Vectors { .. }) => {}
            other => return Err(format!("{} vectors of one: {other:?}", fds.len())),
        }
    }
    let request =
        edu.device.interrupts(InterruptKind::Request).map_err(during("removal notice"))?;
    expect("vectors of the removal notice", request.count(), 1)?;
    request.enable(&[Some(fd)]).map_err(during("removal notice"))?;
    request.disable().map_err(during("removal notice"))?;
    edu.interrupts.disable().map_err(during("disabling"))?;
    edu.write(reg::IRQ_RAISE, 0x40)?;
    expect("interrupts while disabled", edu.signal.wait(Duration::from_millis(200)), 0)?;
    edu.write(reg::IRQ_ACK, 0x40)
}

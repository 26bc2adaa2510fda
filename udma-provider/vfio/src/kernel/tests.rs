//! The kernel backing on its twin: what a machine at hand does not answer, and what must be refused.

#![expect(unsafe_code, reason = "calls of a kernel that has no device")]

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use rustix::event::{EventfdFlags, eventfd};
use udma_abi::{BackingError, DeviceBacking, DmaAccess};
use urma_mem::{Pages, Region};

use super::{
    layout::NumberPair,
    sysfs::tests::FakeSysfs,
    twin::{BAR_LEN, Twin, TwinFaults, VECTORS},
    *,
};
use crate::{AccessWidth, PciNic, config};

fn address() -> PciAddress {
    "0000:00:03.0".parse().unwrap()
}

/// What differs only in how a function is opened is tested with both.
const BOTH: [KernelInterface; 2] = [KernelInterface::Group, KernelInterface::Iommufd];

/// A tree with the function, bound to VFIO, and a neighbour in its group.
fn tree(interface: KernelInterface) -> FakeSysfs {
    let tree = FakeSysfs::new();
    tree.function("0000:00:03.0", (0xCC08, 0xA001), Some("7"), Some(VFIO_DRIVER));
    tree.function("0000:00:03.1", (0x8086, 0x10D3), Some("7"), Some("e1000e"));
    if interface == KernelInterface::Iommufd {
        tree.character_device("0000:00:03.0", "vfio0");
    }
    tree
}

type Opened = (KernelDevice, Arc<Twin>);

fn open(interface: KernelInterface, faults: TwinFaults) -> Result<Opened, KernelOpenError> {
    let twin = Arc::new(Twin::default());
    *twin.faults.lock().unwrap() = faults;
    let calls = Arc::clone(&twin) as Arc<dyn VfioCalls>;
    let tree = tree(interface);
    KernelDevice::open_with(calls, &tree.sysfs(), address()).map(|device| (device, twin))
}

/// A function opened by this interface, which must be the one that was chosen.
fn opened_by(interface: KernelInterface) -> Opened {
    let (device, twin) = open(interface, TwinFaults::default()).unwrap();
    assert_eq!(device.interface(), interface);
    (device, twin)
}

fn opened() -> Opened {
    opened_by(KernelInterface::Group)
}

/// The words of a refusal.
fn words(interface: KernelInterface, faults: TwinFaults) -> String {
    open(interface, faults).unwrap_err().to_string()
}

#[test]
fn each_obstacle_has_words_that_say_what_to_run() {
    let words = |faults| words(KernelInterface::Group, faults);
    let other = |open| TwinFaults { open: Some(open), ..TwinFaults::default() };
    assert!(words(other(("vfio", libc::ENOENT))).contains("modprobe vfio-pci"));
    assert!(words(other(("7", libc::EACCES))).contains("chown $USER /dev/vfio/7"));
    assert!(words(other(("7", libc::EBUSY))).contains("one process at a time"));
    let shared = TwinFaults { is_group_shared: true, ..TwinFaults::default() };
    assert!(words(shared).contains("shared with 0000:00:03.1 (e1000e)"));
    let other_bus = TwinFaults { is_no_pci: true, ..TwinFaults::default() };
    assert!(words(other_bus).contains("this function, but not as a PCI function"));
    let none = TwinFaults { has_no_iommu: true, ..TwinFaults::default() };
    assert!(words(none).contains("modprobe vfio_iommu_type1"));
    assert!(words(TwinFaults { version: 1, ..TwinFaults::default() }).contains("another version"));

    let tree = FakeSysfs::new();
    tree.function("0000:00:03.0", (1, 2), Some("7"), None);
    tree.function("0000:00:04.0", (1, 2), None, Some(VFIO_DRIVER));
    let open = |address: &str| {
        let calls = Arc::new(Twin::default()) as Arc<dyn VfioCalls>;
        KernelDevice::open_with(calls, &tree.sysfs(), address.parse().unwrap())
    };
    let text = |address: &str| open(address).unwrap_err().to_string();
    assert!(text("0000:00:03.0").contains("urma_admin bind 0000:00:03.0"));
    assert!(text("0000:00:04.0").contains("intel_iommu=on"));
    assert!(text("0000:00:05.0").contains("there is no PCI function 0000:00:05.0"));
}

#[test]
fn a_window_is_mapped_where_the_kernel_allows_it_and_the_same_elsewhere() {
    let (device, twin) = opened();
    let bar = device.window(WindowId::Bar(0)).unwrap();
    for (at, value) in [(0, 3), (4088, 4), (4096, 5), (4104, 6), (8184, 7)] {
        bar.write(at, AccessWidth::W64, value).unwrap();
        assert_eq!(twin.stored(at), value, "{at}");
    }
    assert_eq!(bar.len(), BAR_LEN);
    let mapped = |offset, len| bar.is_mapped(offset, len);
    assert_eq!((mapped(4096, 4096), mapped(0, 8), mapped(4092, 8)), (true, false, false));
    let widths = [AccessWidth::W8, AccessWidth::W16, AccessWidth::W32, AccessWidth::W64];
    for (offset, width) in [0, 4096].into_iter().flat_map(|at| widths.map(|width| (at, width))) {
        bar.write(offset, AccessWidth::W64, 0).unwrap();
        bar.write(offset, width, 0x8877_6655_4433_2211).unwrap();
        let kept = u64::MAX >> (64 - 8 * width.bytes());
        assert_eq!(bar.read(offset, width).unwrap(), 0x8877_6655_4433_2211 & kept);
        assert_eq!(bar.read(offset, AccessWidth::W64).unwrap(), 0x8877_6655_4433_2211 & kept);
    }
    for (offset, width) in [(BAR_LEN, AccessWidth::W8), (4100, AccessWidth::W64)] {
        assert!(matches!(bar.read(offset, width), Err(PciError::Access { .. })));
        assert!(matches!(bar.write(offset, width, 0), Err(PciError::Access { .. })));
    }
    for id in [WindowId::Bar(1), WindowId::Bar(6), WindowId::Bar(255)] {
        assert!(matches!(device.window(id), Err(PciError::NoWindow { .. })));
    }
}

/// Which bytes of the first region are mapped, by what the kernel says of it.
#[test]
fn areas_are_mapped_as_flags_and_list_say_and_within_the_region() {
    use vfio_bindings::bindings::vfio::{
        VFIO_REGION_INFO_FLAG_CAPS as CAPS, VFIO_REGION_INFO_FLAG_MMAP as MMAP,
    };
    let mapped = |flags: u32, areas: &[(u64, u64)]| {
        let areas = areas.iter().map(|&(offset, len)| NumberPair(offset, len)).collect();
        let faults = TwinFaults { areas: Some((flags, areas)), ..TwinFaults::default() };
        let (device, _) = open(KernelInterface::Group, faults).unwrap();
        let bar = device.window(WindowId::Bar(0)).unwrap();
        [(0, 4096), (4096, 4096), (0, BAR_LEN)].map(|(offset, len)| bar.is_mapped(offset, len))
    };
    assert_eq!(mapped(MMAP, &[(4096, 4096)]), [true, true, true], "all of it without a list");
    assert_eq!(mapped(CAPS, &[(4096, 4096)]), [false, false, false], "the flag says whether any");
    assert_eq!(mapped(0, &[]), [false, false, false]);
    let listed = |areas: &[(u64, u64)]| mapped(MMAP | CAPS, areas);
    assert_eq!(listed(&[(0, 4096)]), [true, false, false]);
    assert_eq!(listed(&[(0, 4096), (4096, 4096)]), [true, true, false], "an access is in one area");
    assert_eq!(listed(&[(0, BAR_LEN)]), [true, true, true]);
    assert_eq!(listed(&[]), [false, false, false]);
    assert_eq!(listed(&[(0, 0), (4096, 4096)]), [false, true, false]);
    assert_eq!(listed(&[(4096, 8192), (u64::MAX - 4095, 4096)]), [false, false, false]);
    let one = TwinFaults {
        areas: Some((MMAP | CAPS, vec![NumberPair(4096, 1)])),
        ..TwinFaults::default()
    };
    let (device, _) = open(KernelInterface::Group, one).unwrap();
    let bar = device.window(WindowId::Bar(0)).unwrap();
    assert_eq!(
        [(4096, 1), (4096, 2), (4095, 1)].map(|(at, len)| bar.is_mapped(at, len)),
        [true, false, false]
    );
}

/// Page and ranges of an IOMMU that says less than those of today do.
#[test]
fn an_iommu_that_says_no_page_size_has_pages_of_4_kib() {
    use vfio_bindings::bindings::vfio::{
        VFIO_IOMMU_INFO_CAPS as CAPS, VFIO_IOMMU_INFO_PGSIZES as PGSIZES,
    };
    let page = |flags: u32, sizes: u64| {
        let faults = TwinFaults { iommu: Some((flags, sizes)), ..TwinFaults::default() };
        let (device, _) = open(KernelInterface::Group, faults).unwrap();
        let dma = device.dma();
        assert_eq!(dma.ranges(), [(1 << 32, (1 << 39) - 1)], "no list of ranges");
        let region = Region::shared(1, Pages::Base).unwrap();
        let Err(error) = dma.map((1 << 32) + 1, &region, DmaAccess::Both) else {
            panic!("it is odd")
        };
        error.to_string()
    };
    for (flags, sizes, bytes) in [
        (PGSIZES, !0xFFF, 4096),
        (PGSIZES | CAPS, 0x4000_0000 | 0x20_0000, 0x20_0000),
        (PGSIZES, 0x1_0000, 0x1_0000),
        (0, 0x1_0000, 4096),
        (CAPS, 0x1_0000, 4096),
        (PGSIZES, 0, 4096),
    ] {
        let text = page(flags, sizes);
        assert!(text.contains(&format!("the IOMMU's page, {bytes} bytes")), "{bytes}: {text}");
    }
}

#[test]
fn a_kernel_that_wants_too_much_room_is_refused() {
    let (device, twin) = opened();
    for (wants, is_given) in [(u32::MAX, false), ((64 << 10) + 1, false), (64 << 10, true)] {
        twin.faults.lock().unwrap().wants = Some(wants);
        match device.window(WindowId::Bar(0)) {
            Ok(_) => assert!(is_given, "{wants}"),
            Err(PciError::System { source, .. }) => {
                assert!(!is_given && source.to_string().contains(&format!("wants {wants} bytes")));
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn mappings_respect_ranges_pages_and_each_other() {
    BOTH.map(opened_by).iter().for_each(|(device, twin)| respects_ranges(device, twin));
}

fn respects_ranges(device: &KernelDevice, twin: &Twin) {
    let dma = device.dma();
    assert_eq!(dma.ranges(), [(0x1000, 0xF_FFFF), (0x20_0000, 0xFF_FFFF)]);
    let region = Region::shared(8000, Pages::Base).unwrap();
    let map = |iova| dma.map(iova, &region, DmaAccess::Both);
    for iova in [0, 0xF_F000, 0x10_0000, 0x1F_F000, 0x100_0000, !0xFFF] {
        assert!(matches!(map(iova), Err(BackingError::IovaRange { .. })), "{iova:#x}");
    }
    assert!(matches!(map(0x1001), Err(BackingError::Unreachable(_))));
    map(0xF_E000).unwrap();
    map(0x1000).unwrap();
    for iova in [0x1000, 0x2000] {
        assert!(matches!(map(iova), Err(BackingError::IovaTaken { .. })), "{iova:#x}");
    }
    dma.map(0x3000, &region, DmaAccess::ToDevice).unwrap();
    let maps = twin.maps();
    assert_eq!(maps.get(&0x1000), Some(&(8192, DmaAccess::Both)), "whole pages");
    assert_eq!(maps.get(&0x3000), Some(&(8192, DmaAccess::ToDevice)));
    assert!(matches!(dma.unmap(0x2000), Err(BackingError::NotMapped(0x2000))));
    dma.unmap(0x1000).unwrap();
    assert!(!twin.maps().contains_key(&0x1000));
    map(0x1000).unwrap();
    let private = Region::private(4096).unwrap();
    dma.map(0x8000, &private, DmaAccess::Both).unwrap();
    assert_eq!(twin.maps().get(&0x8000), Some(&(4096, DmaAccess::Both)), "private memory");
}

#[test]
fn what_is_mapped_ends_with_the_last_that_holds_it() {
    for interface in BOTH {
        let (device, twin) = opened_by(interface);
        let dma = device.dma();
        let region = Region::shared(4096, Pages::Base).unwrap();
        dma.map(0x1000, &region, DmaAccess::Both).unwrap();
        dma.map(0x2000, &region, DmaAccess::Both).unwrap();
        assert_eq!(twin.iommu_objects().1, interface == KernelInterface::Iommufd);
        drop(device);
        assert!(!twin.iommu_objects().1, "the function reaches nothing any more");
        dma.unmap(0x1000).unwrap();
        assert_eq!(twin.maps().len(), 1, "{interface:?}");
        drop(dma);
        assert_eq!(twin.maps().len(), 0, "closing unmaps");
        assert_eq!(twin.iommu_objects(), (0, false), "{interface:?}");
    }
}

#[test]
fn refused_mappings_say_which_limit_and_leave_nothing() {
    BOTH.map(opened_by).iter().for_each(|(device, twin)| says_which_limit(device, twin));
}

fn says_which_limit(device: &KernelDevice, twin: &Twin) {
    let dma = device.dma();
    let region = Region::shared(4096, Pages::Base).unwrap();
    let words = |error| {
        twin.faults.lock().unwrap().map = Some(error);
        dma.map(0x1000, &region, DmaAccess::Both).unwrap_err().to_string()
    };
    assert!(words(libc::ENOMEM).contains("ulimit -l"));
    // iommufd has no limit of its own.
    let has_limit = device.interface() == KernelInterface::Group;
    assert_eq!(words(libc::ENOSPC).contains("dma_entry_limit"), has_limit);
    twin.faults.lock().unwrap().map = None;
    dma.map(0x1000, &region, DmaAccess::Both).unwrap();
    twin.faults.lock().unwrap().unmap_short = 4096;
    assert!(dma.unmap(0x1000).is_err(), "an unmap that did less than asked");
}

#[test]
fn a_kernel_without_a_file_of_iommufd_gives_the_group() {
    for (file, error) in [("iommu", libc::ENOENT), ("iommu", libc::ENODEV), ("vfio0", libc::ENOENT)]
    {
        let faults = || TwinFaults { open: Some((file, error)), ..TwinFaults::default() };
        let (device, twin) = open(KernelInterface::Iommufd, faults()).unwrap();
        assert_eq!(device.interface(), KernelInterface::Group, "{file}");
        assert_eq!(twin.iommu_objects(), (0, false));
    }
}

#[test]
fn each_obstacle_of_iommufd_has_words_that_say_what_to_run() {
    let only = |interface, open| {
        let twin = Arc::new(Twin::default());
        twin.faults.lock().unwrap().open = open;
        let calls = twin as Arc<dyn VfioCalls>;
        let tree = tree(interface);
        KernelDevice::open_iommufd_with(calls, &tree.sysfs(), address()).map_err(|e| e.to_string())
    };
    let refused = |interface, open| only(interface, open).unwrap_err();
    assert!(refused(KernelInterface::Group, None).contains("CONFIG_VFIO_DEVICE_CDEV"));
    let by = |file, error| refused(KernelInterface::Iommufd, Some((file, error)));
    assert!(by("iommu", libc::ENOENT).contains("modprobe iommufd"));
    assert!(by("vfio0", libc::ENOENT).contains("udevadm trigger"));
    only(KernelInterface::Iommufd, None).unwrap();

    let words = |faults| words(KernelInterface::Iommufd, faults);
    let denied = |file| TwinFaults { open: Some((file, libc::EACCES)), ..TwinFaults::default() };
    assert!(words(denied("iommu")).contains("chown $USER /dev/iommu"));
    assert!(words(denied("vfio0")).contains("chown $USER /dev/vfio/devices/vfio0"));
    let bind = |error| words(TwinFaults { bind: Some(error), ..TwinFaults::default() });
    assert!(bind(libc::EBUSY).contains("shared with 0000:00:03.1 (e1000e)"));
    assert!(bind(libc::EPERM).contains("allow_unsafe_interrupts"));
    assert!(bind(libc::EINVAL).contains("binding to an iommufd of 0000:00:03.0 failed"));
    let many = TwinFaults { ranges: Some(usize::MAX), ..TwinFaults::default() };
    assert!(words(many).contains("more than 4096"));
}

#[test]
fn each_step_of_a_group_that_the_kernel_refuses_is_named() {
    let words = |faults| words(KernelInterface::Group, faults);
    let joining = TwinFaults { container: Some(libc::EINVAL), ..TwinFaults::default() };
    assert!(words(joining).contains("joining a container of 0000:00:03.0 failed"));
    let iommu = TwinFaults { set_iommu: Some(libc::EPERM), ..TwinFaults::default() };
    assert!(words(iommu).contains("setting the IOMMU of 0000:00:03.0 failed"));
}

#[test]
fn a_function_of_a_free_group_that_is_refused_is_in_use() {
    let tree = FakeSysfs::new();
    tree.function("0000:00:03.0", (1, 2), Some("7"), Some(VFIO_DRIVER));
    tree.character_device("0000:00:03.0", "vfio0");
    // The kernel refuses a second process with the one error or the other.
    for (bind, open) in [(libc::EBUSY, None), (libc::EINVAL, Some(("7", libc::EBUSY)))] {
        let twin = Arc::new(Twin::default());
        let faults = TwinFaults { bind: Some(bind), open, ..TwinFaults::default() };
        *twin.faults.lock().unwrap() = faults;
        let opened = KernelDevice::open_with(twin, &tree.sysfs(), address());
        assert!(matches!(opened, Err(KernelOpenError::Busy { .. })), "{opened:?}");
    }
}

fn signal() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

fn count(fd: &OwnedFd) -> u64 {
    let mut bytes = [0; 8];
    rustix::io::read(fd, &mut bytes).map_or(0, |_| u64::from_le_bytes(bytes))
}

#[test]
fn a_masked_vector_holds_its_interrupts() {
    let (device, twin) = opened();
    let irqs = device.interrupts(InterruptKind::MsiX).unwrap();
    assert_eq!(irqs.count(), VECTORS);
    let fds = [signal(), signal(), signal()];
    irqs.enable(&[Some(fds[0].as_fd()), None, Some(fds[2].as_fd())]).unwrap();
    let raise = |vector| twin.raise(2, vector);
    assert!(raise(0) && !raise(1) && raise(2) && !raise(3));
    assert_eq!((count(&fds[0]), count(&fds[2])), (1, 1));
    irqs.set_masked(0, true).unwrap();
    irqs.set_masked(0, true).unwrap();
    assert!(raise(0) && raise(0) && raise(2));
    assert_eq!((count(&fds[0]), count(&fds[2])), (0, 1));
    irqs.set_masked(0, false).unwrap();
    assert_eq!(count(&fds[0]), 2, "what was held");
    irqs.set_masked(0, false).unwrap();
    assert!(raise(0));
    assert_eq!(count(&fds[0]), 1);
    assert!(matches!(irqs.set_masked(3, true), Err(PciError::Vectors { .. })));
    irqs.enable(&[Some(fds[1].as_fd())]).unwrap();
    assert!(raise(0) && !raise(2), "replaced");
    assert_eq!((count(&fds[0]), count(&fds[1])), (0, 1));
    irqs.disable().unwrap();
    assert!(!raise(0));
    for wrong in [0, 5] {
        let list = vec![None; wrong];
        assert!(matches!(irqs.enable(&list), Err(PciError::Vectors { .. })));
    }
    for kind in [InterruptKind::Error, InterruptKind::Request] {
        assert!(matches!(device.interrupts(kind), Err(PciError::NoInterrupt { .. })));
    }
    let pin = device.interrupts(InterruptKind::Intx).unwrap();
    pin.enable(&[Some(fds[0].as_fd())]).unwrap();
    pin.set_masked(0, true).unwrap();
    assert_eq!(twin.masked(), [0]);
    pin.set_masked(0, false).unwrap();
    assert!(twin.masked().is_empty());
}

#[test]
fn a_function_that_cannot_be_reset_alone_says_so() {
    let faults = TwinFaults { can_not_reset: true, ..TwinFaults::default() };
    let (device, _) = open(KernelInterface::Group, faults).unwrap();
    assert!(matches!(device.reset(), Err(PciError::Unsupported { .. })));
}

#[test]
fn the_nic_is_taken_over_and_given_back() {
    BOTH.map(opened_by).into_iter().for_each(taken_over);
}

fn taken_over((device, twin): Opened) {
    let device = Arc::new(device);
    let command = || {
        let config = device.window(WindowId::Config).unwrap();
        config.read(4, AccessWidth::W16).unwrap()
    };
    let nic = PciNic::new(Arc::clone(&device) as Arc<dyn PciDevice>).unwrap();
    assert_eq!((twin.resets(), command()), (1, 6));
    let fd = nic.interrupt(3).unwrap();
    assert!(twin.raise(2, 3) && twin.raise(2, 3));
    assert_eq!((count(&fd), count(&fd), count(&fd)), (1, 1, 0), "one for each interrupt");
    assert!(matches!(nic.interrupt(4), Err(BackingError::Vector(4))));
    let registers = nic.registers();
    registers.write32(12, 7);
    assert_eq!((registers.read(12), registers.read(8)), (7, 7 << 32));
    registers.write_block(4096, &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(registers.read(4096 + 56), 8);
    registers.write64(BAR_LEN, 1);
    assert_eq!((registers.read(BAR_LEN), nic.failed_accesses()), (u64::MAX, 2));
    assert!(!nic.is_wanted_back(Duration::ZERO));
    drop(nic);
    assert_eq!(command(), 2, "no DMA after the end");
    assert!(!twin.raise(2, 3));
    device.window(WindowId::Config).unwrap().write(0, AccessWidth::W16, 0x8086).unwrap();
    let refused = PciNic::new(Arc::clone(&device) as Arc<dyn PciDevice>).unwrap_err();
    assert!(refused.to_string().contains("8086:a001"), "{refused}");
    device.window(WindowId::Config).unwrap().write(0, AccessWidth::W16, 0xFFFF).unwrap();
    assert!(matches!(config::ids(&*device), Err(PciError::Gone { .. })));
}

/// What the kernel is called for when a function is opened, mapped and closed: by the group, and by iommufd.
const OPENED: [&[&str]; 2] = [
    &[
        "open /dev/vfio/vfio",
        "ApiVersion 0",
        "CheckExtension 3",
        "open /dev/vfio/7",
        "GroupStatus",
        "join",
        "SetIommu 3",
        "IommuFacts",
        "IommuFacts",
        "function 0000:00:03.0",
        "DeviceFacts",
    ],
    &[
        "open /dev/iommu",
        "open /dev/vfio/devices/vfio0",
        "AllocSpace",
        "Bind 0x0 fd",
        "Attach 0x0 0x3",
        "IovaRanges 3 0",
        "IovaRanges 3 2",
        "DeviceFacts",
    ],
];
const MAPPED: [&[&str]; 2] = [
    &[
        "map 32 0x3 ADDRESS 0x1000 0x1000",
        "map 32 0x1 ADDRESS 0x2000 0x1000",
        "UnmapDma 0x0 0x1000 0x0 0x1000",
    ],
    &[
        "map 0x7 3 ADDRESS 0x1000 0x1000",
        "map 0x5 3 ADDRESS 0x2000 0x1000",
        "UnmapSpace 0x3 0x1000 0x0 0x1000",
    ],
];
const CLOSED: [&[&str]; 2] = [
    &["UnmapDma 0x0 0x2000 0x0 0x1000"],
    &["Detach", "UnmapSpace 0x3 0x2000 0x0 0x1000", "Destroy 0x3"],
];

/// Every call of a function's life.
#[test]
fn the_kernel_is_called_in_this_order_with_these_arguments() {
    for (at, interface) in BOTH.into_iter().enumerate() {
        let (device, twin) = opened_by(interface);
        assert_eq!(twin.calls(), OPENED[at]);
        let dma = device.dma();
        let region = Region::shared(4096, Pages::Base).unwrap();
        dma.map(0x1000, &region, DmaAccess::Both).unwrap();
        dma.map(0x2000, &region, DmaAccess::ToDevice).unwrap();
        dma.unmap(0x1000).unwrap();
        let address = format!("{:#x}", region.addr());
        let calls = twin.calls().into_iter().map(|call| call.replace(&address, "ADDRESS"));
        assert!(calls.eq(MAPPED[at].iter().copied()));
        // A window that is known is not asked for again; one beyond the last is not asked for.
        for id in [WindowId::Bar(0), WindowId::Bar(0), WindowId::Config, WindowId::Config] {
            device.window(id).unwrap();
        }
        assert!([5, 6].map(WindowId::Bar).iter().all(|id| device.window(*id).is_err()));
        let asked = ["RegionFacts", "RegionFacts", "RegionFacts 0x0 0x7", "RegionFacts 0x0 0x5"];
        assert_eq!(twin.calls(), asked);
        vectors_are_called_for(&device, &twin);
        device.reset().unwrap();
        assert_eq!(twin.calls(), ["Reset 0"]);
        drop((dma, device));
        assert_eq!(twin.calls(), CLOSED[at]);
    }
}

/// Flags, kind, first vector, their number, descriptors.
fn vectors_are_called_for(device: &KernelDevice, twin: &Twin) {
    let irqs = device.interrupts(InterruptKind::MsiX).unwrap();
    let again = device.interrupts(InterruptKind::MsiX).unwrap();
    let fds = [signal(), signal()];
    irqs.disable().unwrap();
    again.enable(&[Some(fds[0].as_fd()), None, Some(fds[1].as_fd())]).unwrap();
    assert_eq!(twin.calls(), ["IrqFacts 0x0 0x2", "SetIrqs 0x24 0x2 0x0 0x3 fd none fd"]);
    for (vector, is_masked) in [(2, true), (2, true), (2, false), (2, false), (1, true), (1, false)]
    {
        irqs.set_masked(vector, is_masked).unwrap();
    }
    let masked = [
        "SetIrqs 0x24 0x2 0x2 0x1 fd",
        "SetIrqs 0x24 0x2 0x2 0x1 fd",
        "SetIrqs 0x24 0x2 0x1 0x1 fd",
        "SetIrqs 0x24 0x2 0x1 0x1 none",
    ];
    assert_eq!(twin.calls(), masked);
    irqs.enable(&[Some(fds[0].as_fd())]).unwrap();
    irqs.disable().unwrap();
    irqs.disable().unwrap();
    let anew = ["SetIrqs 0x21 0x2", "SetIrqs 0x24 0x2 0x0 0x1 fd", "SetIrqs 0x21 0x2"];
    assert_eq!(twin.calls(), anew);
    let pin = device.interrupts(InterruptKind::Intx).unwrap();
    pin.enable(&[Some(fds[0].as_fd())]).unwrap();
    pin.set_masked(0, true).unwrap();
    pin.set_masked(0, false).unwrap();
    let pinned = [
        "IrqFacts",
        "SetIrqs 0x24 0x0 0x0 0x1 fd",
        "SetIrqs 0x9 0x0 0x0 0x1",
        "SetIrqs 0x11 0x0 0x0 0x1",
    ];
    assert_eq!(twin.calls(), pinned);
}

/// Memory that the kernel may still reach is never given back.
#[test]
fn memory_that_is_not_unmapped_outlives_its_function() {
    for short in [0, 4096] {
        let (device, twin) = opened();
        let region = Region::shared(4096, Pages::Base).unwrap();
        device.dma().map(0x1000, &region, DmaAccess::Both).unwrap();
        twin.faults.lock().unwrap().unmap_short = short;
        drop(device);
        assert_eq!(region.is_last(), short == 0, "{short}");
    }
}

#[test]
fn interrupts_that_the_kernel_refuses_are_named() {
    let (device, twin) = opened();
    assert_eq!(device.name(), "0000:00:03.0");
    for (error, is_none) in [(libc::EINVAL, true), (libc::EIO, false)] {
        twin.faults.lock().unwrap().irqs = Some(error);
        let refused = device.interrupts(InterruptKind::MsiX).unwrap_err().to_string();
        let wanted = match is_none {
            true => "has no interrupts of kind MsiX",
            false => "asking for interrupts of 0000:00:03.0 failed",
        };
        assert!(refused.contains(wanted), "{refused}");
    }
    twin.faults.lock().unwrap().irqs = None;
    let irqs = device.interrupts(InterruptKind::MsiX).unwrap();
    for (len, wanted) in [(0, Some((0, 0, 4))), (4, None), (5, Some((0, 4, 4)))] {
        let refused = match irqs.enable(&vec![None; len]) {
            Err(PciError::Vectors { first, last, count }) => Some((first, last, count)),
            Ok(()) => None,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(refused, wanted, "{len} vectors");
    }
}

/// A mapping that begins one byte behind another one, or ends one before it.
#[test]
fn mappings_may_touch() {
    let (device, _) = opened();
    let dma = device.dma();
    let page = Region::shared(4096, Pages::Base).unwrap();
    dma.map(0x3000, &page, DmaAccess::Both).unwrap();
    for iova in [0x2000, 0x4000] {
        dma.map(iova, &page, DmaAccess::Both).unwrap();
    }
    let two = Region::shared(8192, Pages::Base).unwrap();
    for (iova, is_free) in [(0x1000, false), (0x4000, false), (0x5000, true), (0x6000, false)] {
        assert_eq!(dma.map(iova, &two, DmaAccess::Both).is_ok(), is_free, "{iova:#x}");
    }
    // The last page of a range of usable addresses, and one beyond.
    dma.map(0xF_F000, &page, DmaAccess::Both).unwrap();
    assert!(dma.map(0xF_F000 + 0x1000, &page, DmaAccess::Both).is_err());
    dma.unmap(0x3000).unwrap();
    dma.map(0x3000, &page, DmaAccess::Both).unwrap();
}

/// Each call of the kernel, as `strace` prints it: at a file that has none of them each is an error.
#[test]
fn each_call_is_the_request_of_its_number() {
    let folder = std::env::temp_dir().join(format!("urma-vfio-calls-{}", std::process::id()));
    let exe = std::env::current_exe().unwrap();
    let mut strace = std::process::Command::new("strace");
    strace.args(["-f", "-qq", "-X", "raw", "-e", "trace=ioctl", "-o"]).arg(&folder).arg(exe);
    strace.args(["--exact", "kernel::tests::calls_at_a_file_without_them", "--ignored"]);
    let output = strace.output().expect("strace is installed");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    let calls = std::fs::read_to_string(&folder).unwrap();
    std::fs::remove_file(&folder).unwrap();
    let requests: Vec<u32> = calls
        .lines()
        .filter_map(|line| line.split_once("ioctl(")?.1.split(", ").nth(1))
        .filter_map(|number| u32::from_str_radix(number.strip_prefix("0x")?, 16).ok())
        .filter(|number| number >> 8 == 0x3b)
        .collect();
    let wanted = [
        0x3b64, 0x3b65, 0x3b66, 0x3b6f, 0x3b67, 0x3b6b, 0x3b6c, 0x3b6d, 0x3b6e, 0x3b70, 0x3b72,
        0x3b68, 0x3b6a, 0x3b71, 0x3b76, 0x3b77, 0x3b78, 0x3b80, 0x3b81, 0x3b86, 0x3b84, 0x3b85,
    ];
    assert_eq!(requests, wanted, "{calls}");
}

#[test]
#[ignore = "the process of another test"]
fn calls_at_a_file_without_them() {
    use super::{
        calls::{NumberCommand, StructCommand},
        ioctl::SystemCalls,
        iommu_calls::{IommuCalls as _, IommuCommand, SpaceMap},
        layout::DmaMap,
    };
    let calls = SystemCalls;
    let fd = calls.open(std::path::Path::new("/dev/null")).unwrap();
    let fd = fd.as_fd();
    let refused = |result: Result<(), io::Error>| {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    };
    for command in [
        NumberCommand::ApiVersion,
        NumberCommand::CheckExtension,
        NumberCommand::SetIommu,
        NumberCommand::Reset,
    ] {
        refused(calls.number(fd, command, 0).map(drop));
    }
    for command in [
        StructCommand::GroupStatus,
        StructCommand::DeviceFacts,
        StructCommand::RegionFacts,
        StructCommand::IrqFacts,
        StructCommand::SetIrqs,
        StructCommand::IommuFacts,
        StructCommand::UnmapDma,
    ] {
        let mut bytes = [0; 24];
        refused(calls.structure(fd, command, &mut bytes).map(drop));
        assert_eq!(bytes[..5], [24, 0, 0, 0, 0], "its length is in front");
    }
    assert!(calls.structure(fd, StructCommand::SetIrqs, &mut [0; 3]).is_err());
    refused(calls.set_container(fd, fd));
    refused(calls.device(fd, c"0000:00:03.0").map(drop));
    let (map, space) = (DmaMap::default(), SpaceMap::default());
    // SAFETY: no device is behind the file, and the range is empty.
    refused(unsafe { calls.map_dma(fd, &map) });
    for command in [
        IommuCommand::Bind,
        IommuCommand::Attach,
        IommuCommand::Detach,
        IommuCommand::Destroy,
        IommuCommand::AllocSpace,
        IommuCommand::UnmapSpace,
    ] {
        refused(calls.iommu(fd, command, &mut [0; 24]));
    }
    refused(calls.iova_ranges(fd, 1, &mut []).map(drop));
    // SAFETY: no device is behind the file, and the range is empty.
    refused(unsafe { calls.map_space(fd, &space) });
}

#[test]
fn a_function_that_is_wanted_back_says_so() {
    use rustix::time::{ClockId, clock_gettime};

    for has_request in [false, true] {
        let faults = TwinFaults { has_request, ..TwinFaults::default() };
        let (device, twin) = open(KernelInterface::Group, faults).unwrap();
        let nic = PciNic::new(Arc::new(device)).unwrap();
        assert_eq!(nic.removal().is_some(), has_request);
        assert!(!nic.is_wanted_back(Duration::from_millis(1)));
        assert_eq!(twin.raise(4, 0), has_request);
        assert_eq!(nic.is_wanted_back(Duration::ZERO), has_request);
        let info = nic.info();
        assert_eq!((info.name.as_str(), info.driver_name.as_str()), ("0000:00:03.0", "udma"));
        assert_eq!((info.vendor_id, info.device_id), (0xCC08, 0xA001));
        assert!(nic.status().is_none() && nic.doorbell_slots().is_none());
        assert_eq!(
            (nic.registers().len(), nic.registers().map(4096, 8).is_none()),
            (BAR_LEN, true)
        );
        assert!(nic.merges_interrupts(), "hardware may");
        let clock = || {
            let time = clock_gettime(ClockId::Monotonic);
            u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap()
        };
        let (before, now, after) = (clock(), nic.now(), clock());
        assert!((before..=after).contains(&now), "{before} {now} {after}");
        // A vector is made once.
        twin.calls();
        let fds = [nic.interrupt(0).unwrap(), nic.interrupt(0).unwrap()];
        assert_eq!(twin.calls(), Vec::<String>::new());
        assert!(twin.raise(2, 0));
        assert_eq!(fds.each_ref().map(count), [1, 0], "both are the same one");
    }
}

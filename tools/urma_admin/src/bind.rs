//! PCI functions for programs, and back for the kernel.
//!
//! *Takes*: an address. *Gives*: words for what happened, and for what to do next. *Must not*: hide that the other
//! functions of a group come along.

use std::fmt::Write as _;

use udma_vfio::kernel::{PciAddress, PciFunction, PciSysfs, SysfsError, VFIO_DRIVER};

/// Binds a function to `vfio-pci`.
pub(crate) fn bind(sysfs: &PciSysfs, address: PciAddress) -> Result<String, SysfsError> {
    sysfs.bind(address)?;
    let Some(group) = sysfs.function(address)?.group else {
        return Ok(format!(
            "{address} is with {VFIO_DRIVER}, but in no IOMMU group: no program can open it until the IOMMU is on (boot \
             with intel_iommu=on)\n"
        ));
    };
    let mut text = format!(
        "{address} is with {VFIO_DRIVER}; its file is /dev/vfio/{group}: `chown USER /dev/vfio/{group}` lets a user \
         open it\n"
    );
    let is_in_the_way = |function: &&PciFunction| {
        function.driver.as_deref().is_some_and(|driver| driver != VFIO_DRIVER)
    };
    for other in sysfs.group(group)?.iter().filter(is_in_the_way) {
        let driver = other.driver.as_deref().unwrap_or_default();
        let address = other.address;
        let _ = writeln!(
            text,
            "{address} is in the same group, and with {driver}: run `urma_admin bind {address}`, or no program can \
             open any of them"
        );
    }
    Ok(text)
}

/// Gives a function back.
pub(crate) fn unbind(sysfs: &PciSysfs, address: PciAddress) -> Result<String, SysfsError> {
    Ok(match sysfs.unbind(address)? {
        Some(driver) => format!("{address} is with {driver}\n"),
        None => format!("{address} is with no driver: the kernel has none for it\n"),
    })
}

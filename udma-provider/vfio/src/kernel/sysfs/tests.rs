//! PciSysfs as a folder of this test.

use std::os::unix::fs::symlink;

use urma_mem::sync::{AtomicU32, Ordering};

use super::*;

/// A folder that looks like `/sys`; it goes with the value. Nothing reacts to what is written.
#[derive(Debug)]
pub(in crate::kernel) struct FakeSysfs(PathBuf);

impl FakeSysfs {
    pub(in crate::kernel) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("urma-sysfs-{}-{number}", std::process::id()));
        for folder in ["bus/pci/devices", "bus/pci/drivers/vfio-pci", "kernel/iommu_groups"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("bus/pci/drivers_probe"), "").unwrap();
        Self(root)
    }

    pub(in crate::kernel) fn sysfs(&self) -> PciSysfs {
        PciSysfs::at(&self.0)
    }

    pub(in crate::kernel) fn function(
        &self,
        address: &str,
        ids: (u16, u16),
        group: Option<&str>,
        driver: Option<&str>,
    ) {
        let folder = self.0.join("bus/pci/devices").join(address);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("vendor"), format!("{:#06x}\n", ids.0)).unwrap();
        fs::write(folder.join("device"), format!("{:#06x}\n", ids.1)).unwrap();
        fs::write(folder.join("class"), "0x020000\n").unwrap();
        fs::write(folder.join("driver_override"), "(null)\n").unwrap();
        if let Some(group) = group {
            let target = self.0.join("kernel/iommu_groups").join(group);
            symlink(target, folder.join("iommu_group")).unwrap();
        }
        if let Some(driver) = driver {
            let target = self.0.join("bus/pci/drivers").join(driver);
            fs::create_dir_all(&target).unwrap();
            fs::write(target.join("unbind"), "").unwrap();
            symlink(target, folder.join("driver")).unwrap();
        }
    }

    /// Gives a function the character device `name`.
    pub(in crate::kernel) fn character_device(&self, address: &str, name: &str) {
        let folder = self.0.join("bus/pci/devices").join(address);
        fs::create_dir_all(folder.join("vfio-dev").join(name)).unwrap();
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.0.join("bus/pci").join(file)).unwrap()
    }
}

impl Drop for FakeSysfs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn parsed(text: &str) -> Option<String> {
    text.parse::<PciAddress>().ok().map(|address| address.to_string())
}

#[test]
fn addresses_are_read_and_written() {
    assert_eq!(parsed("0000:00:1f.7").as_deref(), Some("0000:00:1f.7"));
    assert_eq!(parsed("3a:02.1").as_deref(), Some("0000:3a:02.1"));
    assert_eq!(parsed("10000:e1:00.0").as_deref(), Some("10000:e1:00.0"));
    assert_eq!(parsed("ffffffff:ff:1f.7").as_deref(), Some("ffffffff:ff:1f.7"));
    assert_eq!(parsed("0:0:0.0").as_deref(), Some("0000:00:00.0"));
    assert_eq!(parsed("100000000:00:00.0"), None);
    let wrong =
        ["", "00:20.0", "00:00.8", "100:00.0", "00.0", "0:0:0:0.0", "00:00", "00:+1.0", "../x.0"];
    for text in wrong {
        assert_eq!(parsed(text), None, "{text:?}");
    }
}

#[test]
fn functions_are_listed_with_group_and_driver() {
    let tree = FakeSysfs::new();
    tree.function("0000:00:04.0", (0x8086, 0x10D3), Some("9"), Some("e1000e"));
    tree.function("0000:00:03.0", (0xCC08, 0xA001), Some("7"), None);
    let all = tree.sysfs().functions().unwrap();
    let [nic, other] = &all[..] else { panic!("{all:?}") };
    assert_eq!((nic.vendor, nic.device, nic.class), (0xCC08, 0xA001, 0x0002_0000));
    assert_eq!((nic.group, nic.driver.as_deref()), (Some(7), None));
    assert_eq!((other.group, other.driver.as_deref()), (Some(9), Some("e1000e")));
    assert_eq!(tree.sysfs().group(9).unwrap(), std::slice::from_ref(other));
}

#[test]
fn binding_takes_the_function_from_its_driver_and_says_if_that_failed() {
    let tree = FakeSysfs::new();
    tree.function("0000:00:04.0", (0x8086, 0x10D3), Some("9"), Some("e1000e"));
    let address = "0000:00:04.0".parse().unwrap();
    let refused = tree.sysfs().bind(address).unwrap_err();
    assert!(
        matches!(&refused, SysfsError::NotTaken { found, .. } if found == "e1000e"),
        "{refused}"
    );
    assert_eq!(tree.text("devices/0000:00:04.0/driver_override").get(..8), Some("vfio-pci"));
    assert_eq!(tree.text("drivers/e1000e/unbind"), "0000:00:04.0");
    assert_eq!(tree.text("drivers_probe"), "0000:00:04.0");
    assert_eq!(tree.sysfs().unbind(address).unwrap().as_deref(), Some("e1000e"));
    assert!(tree.text("devices/0000:00:04.0/driver_override").starts_with('\n'));
}

#[test]
fn a_bound_function_is_left_alone_and_a_missing_driver_named() {
    let tree = FakeSysfs::new();
    tree.function("0000:00:03.0", (1, 2), Some("7"), Some(VFIO_DRIVER));
    let address = "0000:00:03.0".parse().unwrap();
    tree.sysfs().bind(address).unwrap();
    assert_eq!(tree.text("drivers_probe"), "");
    tree.sysfs().unbind(address).unwrap();
    assert_eq!(tree.text("drivers/vfio-pci/unbind"), "0000:00:03.0");
    let absent = tree.sysfs().bind("0000:00:09.0".parse().unwrap()).unwrap_err();
    assert!(matches!(absent, SysfsError::Absent(_)));
    fs::remove_dir_all(tree.0.join("bus/pci/drivers/vfio-pci")).unwrap();
    let words = tree.sysfs().bind(address).unwrap_err().to_string();
    assert!(words.contains("modprobe vfio-pci"), "{words}");
}

#[test]
fn a_function_that_is_not_with_vfio_is_offered_and_not_taken_from_others() {
    let tree = FakeSysfs::new();
    tree.function("0000:00:04.0", (0x8086, 0x10D3), Some("9"), Some("e1000e"));
    tree.function("0000:00:05.0", (0x8086, 0x10D3), None, None);
    let (with_driver, without): (PciAddress, PciAddress) =
        ("0000:00:04.0".parse().unwrap(), "0000:00:05.0".parse().unwrap());
    assert_eq!(tree.sysfs().unbind(with_driver).unwrap().as_deref(), Some("e1000e"));
    assert_eq!(tree.text("drivers/e1000e/unbind"), "", "it is not VFIO's to give back");
    assert_eq!(tree.text("drivers_probe"), "0000:00:04.0");
    let refused = tree.sysfs().bind(without).unwrap_err().to_string();
    assert_eq!(
        refused,
        "0000:00:05.0 is with no driver after it was offered to vfio-pci; `dmesg` has the reason"
    );
    assert_eq!(tree.text("drivers_probe"), "0000:00:05.0");
    assert_eq!(tree.sysfs().unbind(without).unwrap(), None);
}

#[test]
fn files_that_say_something_else_are_named() {
    let tree = FakeSysfs::new();
    tree.function("0000:00:04.0", (0xFFFF, 0), Some("none"), None);
    let address = "0000:00:04.0".parse().unwrap();
    let found = tree.sysfs().function(address).unwrap();
    assert_eq!((found.vendor, found.device, found.group), (0xFFFF, 0, None));
    let folder = tree.0.join("bus/pci/devices/0000:00:04.0");
    for (file, text) in [("vendor", "0x10000"), ("device", "x"), ("class", "")] {
        let before = fs::read(folder.join(file)).unwrap();
        fs::write(folder.join(file), text).unwrap();
        let refused = tree.sysfs().function(address).unwrap_err().to_string();
        assert!(refused.starts_with(&folder.join(file).display().to_string()), "{refused}");
        fs::write(folder.join(file), before).unwrap();
    }
    tree.sysfs().function(address).unwrap();
    for name in ["other", "vfio3"] {
        assert_eq!(tree.sysfs().character_device(address), None);
        tree.character_device("0000:00:04.0", name);
    }
    assert_eq!(tree.sysfs().character_device(address).as_deref(), Some("vfio3"));
    let hints = [io::ErrorKind::PermissionDenied, io::ErrorKind::NotFound];
    assert_eq!(hints.map(|kind| hint(&kind.into())), ["; run this as root", ""]);
    // A name that is no address stops the list.
    fs::create_dir(tree.0.join("bus/pci/devices/what")).unwrap();
    assert!(matches!(tree.sysfs().functions(), Err(SysfsError::Address(name)) if name == "what"));
}

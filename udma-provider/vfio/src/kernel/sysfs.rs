//! PCI functions as sysfs shows them.
//!
//! - owns: which functions there are, their groups and drivers; binding to `vfio-pci` and back. takes: the folder that
//!   is `/sys` (tests give another one). gives: facts, and errors that say what to run. must not: open a device.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

/// Driver that gives functions to processes.
pub const VFIO_DRIVER: &str = "vfio-pci";

/// Address of a PCI function: domain, bus, device, function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for PciAddress {
    type Err = SysfsError;

    /// Takes `0000:00:03.0`, or `00:03.0` in domain 0.
    fn from_str(text: &str) -> Result<Self, SysfsError> {
        let parsed = || {
            let (front, function) = text.rsplit_once('.')?;
            let (front, device) = front.rsplit_once(':')?;
            let (domain, bus) = front.rsplit_once(':').unwrap_or(("0", front));
            let hex = |part: &str, max: u32| {
                let is_hex = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
                let number = u32::from_str_radix(part, 16).ok();
                number.filter(|number| is_hex && *number <= max)
            };
            let small = |part: &str, max: u32| u8::try_from(hex(part, max)?).ok();
            Some(Self {
                domain: hex(domain, u32::MAX)?,
                bus: small(bus, 0xFF)?,
                device: small(device, 0x1F)?,
                function: small(function, 7)?,
            })
        };
        parsed().ok_or_else(|| SysfsError::Address(text.to_owned()))
    }
}

/// A PCI function of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PciFunction {
    /// Address of the function.
    pub address: PciAddress,
    /// PCI vendor id of the function.
    pub vendor: u16,
    /// PCI device id of the function.
    pub device: u16,
    /// Class code: class, subclass, interface.
    pub class: u32,
    /// Driver that has it.
    pub driver: Option<String>,
    /// Number of its IOMMU group; `None` if no IOMMU is in use.
    pub group: Option<u32>,
}

/// What sysfs did not show or allow.
#[derive(Debug, thiserror::Error)]
pub enum SysfsError {
    /// Not an address of a PCI function.
    #[error("{0:?} is not the address of a PCI function, such as 0000:00:03.0")]
    Address(String),
    /// There is no such function.
    #[error("there is no PCI function {0}; `lspci -D` lists them")]
    Absent(PciAddress),
    /// The module of the driver is not loaded.
    #[error("the driver {VFIO_DRIVER} is not there: run `modprobe {VFIO_DRIVER}` as root")]
    NoDriver,
    /// The kernel let no driver have it.
    #[error("{address} is with {found} after it was offered to {wanted}; `dmesg` has the reason")]
    NotTaken {
        /// The function that was offered.
        address: PciAddress,
        /// Driver that should have it.
        wanted: String,
        /// Driver that has it.
        found: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}{}", hint(source))]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied { "; run this as root" } else { "" }
}

/// The folder that is `/sys`.
#[derive(Clone, Debug)]
pub struct PciSysfs(PathBuf);

impl Default for PciSysfs {
    fn default() -> Self {
        Self::at("/sys")
    }
}

impl PciSysfs {
    /// Takes the folder `root` for `/sys`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// Returns the PCI functions, in the order of their addresses.
    ///
    /// # Errors
    /// A folder or file cannot be read.
    pub fn functions(&self) -> Result<Vec<PciFunction>, SysfsError> {
        let folder = self.0.join("bus/pci/devices");
        let failed = |source| SysfsError::File { path: folder.clone(), source };
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            found.push(self.function(name.to_string_lossy().parse()?)?);
        }
        found.sort_by_key(|function| function.address);
        Ok(found)
    }

    /// Returns one function.
    ///
    /// # Errors
    /// [`SysfsError::Absent`], or a file cannot be read.
    pub fn function(&self, address: PciAddress) -> Result<PciFunction, SysfsError> {
        let folder = self.folder(address);
        if !folder.exists() {
            return Err(SysfsError::Absent(address));
        }
        let number = |file: &str| -> Result<u32, SysfsError> {
            let path = folder.join(file);
            let failed = |source| SysfsError::File { path: path.clone(), source };
            let text = fs::read_to_string(&path).map_err(failed)?;
            let digits = text.trim().trim_start_matches("0x");
            u32::from_str_radix(digits, 16).map_err(|error| failed(io::Error::other(error)))
        };
        let id = |file: &str| {
            let wide = number(file)?;
            u16::try_from(wide).map_err(|error| SysfsError::File {
                path: folder.join(file),
                source: io::Error::other(error),
            })
        };
        let group = link_name(&folder.join("iommu_group"));
        Ok(PciFunction {
            address,
            vendor: id("vendor")?,
            device: id("device")?,
            class: number("class")?,
            driver: link_name(&folder.join("driver")),
            group: group.and_then(|name| name.parse().ok()),
        })
    }

    /// Returns the functions of a group, all of which the owner of one of them must have.
    ///
    /// # Errors
    /// A folder or file cannot be read.
    pub fn group(&self, group: u32) -> Result<Vec<PciFunction>, SysfsError> {
        let all = self.functions()?;
        Ok(all.into_iter().filter(|function| function.group == Some(group)).collect())
    }

    /// The name of the function's character device in `/dev/vfio/devices`, if this kernel made one.
    #[cfg(any(test, feature = "iommufd"))]
    pub(super) fn character_device(&self, address: PciAddress) -> Option<String> {
        let entries = fs::read_dir(self.folder(address).join("vfio-dev")).ok()?;
        let names = entries.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.into_string().ok()).find(|name| name.starts_with("vfio"))
    }

    /// Gives the function to `vfio-pci`, and takes it from the driver that has it.
    ///
    /// # Errors
    /// The driver is not loaded, this process may not, or the kernel refused.
    pub fn bind(&self, address: PciAddress) -> Result<(), SysfsError> {
        if !self.0.join("bus/pci/drivers").join(VFIO_DRIVER).exists() {
            return Err(SysfsError::NoDriver);
        }
        let function = self.function(address)?;
        if function.driver.as_deref() == Some(VFIO_DRIVER) {
            return Ok(());
        }
        self.override_driver(address, VFIO_DRIVER)?;
        self.release(&function)?;
        self.probe(address)?;
        let found = self.function(address)?.driver;
        if found.as_deref() == Some(VFIO_DRIVER) {
            return Ok(());
        }
        let found = found.unwrap_or_else(|| "no driver".to_owned());
        Err(SysfsError::NotTaken { address, wanted: VFIO_DRIVER.to_owned(), found })
    }

    /// Takes the function from `vfio-pci` and lets the kernel's own drivers have it again. Returns the driver that
    /// took it.
    ///
    /// # Errors
    /// This process may not, or the kernel refused. A function that another driver has stays where it is.
    pub fn unbind(&self, address: PciAddress) -> Result<Option<String>, SysfsError> {
        let function = self.function(address)?;
        // An empty name takes the override away; the kernel does not take an empty write.
        self.override_driver(address, "\n")?;
        if function.driver.as_deref() == Some(VFIO_DRIVER) {
            self.release(&function)?;
        }
        self.probe(address)?;
        Ok(self.function(address)?.driver)
    }

    fn folder(&self, address: PciAddress) -> PathBuf {
        self.0.join("bus/pci/devices").join(address.to_string())
    }

    fn override_driver(&self, address: PciAddress, driver: &str) -> Result<(), SysfsError> {
        write(&self.folder(address).join("driver_override"), driver)
    }

    fn release(&self, function: &PciFunction) -> Result<(), SysfsError> {
        if function.driver.is_none() {
            return Ok(());
        }
        let address = function.address;
        write(&self.folder(address).join("driver/unbind"), &address.to_string())
    }

    fn probe(&self, address: PciAddress) -> Result<(), SysfsError> {
        write(&self.0.join("bus/pci/drivers_probe"), &address.to_string())
    }
}

fn write(path: &Path, text: &str) -> Result<(), SysfsError> {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).open(path);
    file.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()))
        .map_err(|source| SysfsError::File { path: path.to_path_buf(), source })
}

/// The last part of what a link names.
fn link_name(link: &Path) -> Option<String> {
    let target = fs::read_link(link).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
pub(super) mod tests;

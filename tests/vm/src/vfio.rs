//! A machine with an IOMMU, whose kernel has VFIO.
//!
//! *Owns*: QEMU's command line. *Takes*: packages, and the program that is the first process. *Gives*: a command that
//! runs the machine. *Must not*: use the system's own QEMU, which may be too old.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    archive::GuestFiles,
    packages::{Missing, VmTree, find},
};

/// Modules of a network card of the machine's own, and of VFIO, in the order in which they are loaded. Debian's kernels
/// have no iommufd.
const MODULES: [&str; 9] = [
    "failover",
    "net_failover",
    "virtio_net",
    "irqbypass",
    "iommufd",
    "vfio",
    "vfio_iommu_type1",
    "vfio-pci-core",
    "vfio-pci",
];
/// Libraries of the packages.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// What a machine is started for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MachineUse {
    /// It runs the checks and ends. `peers` names tests of `urma_perftest`, for which a peer each waits at the port of this
    /// host's loopback.
    Checks {
        /// TCP port of the peers' exchange.
        port: u16,
        /// Commands of `urma_perftest`, in turn.
        peers: &'static [&'static str],
        /// Options that both sides of each have.
        options: &'static [&'static str],
    },
    /// Its device has requests under way until it is killed.
    Victim,
    /// It runs a shell; Ctrl-A is the key for QEMU.
    Shell,
}

/// A program of this system that the machine has.
#[derive(Clone, Copy, Debug)]
pub struct GuestProgram<'a> {
    /// Its file on this system.
    pub file: &'a Path,
    /// Its name in the machine's `/bin`.
    pub name: &'a str,
}

/// What a machine is made of.
#[derive(Clone, Debug)]
pub struct VfioMachine {
    tree: PathBuf,
    kernel: PathBuf,
    initrd: PathBuf,
}

impl VfioMachine {
    /// Makes the machine's file system in `folder`; `init` is a static program that needs `programs`.
    ///
    /// # Errors
    /// What is missing on this system, or could not be made.
    pub fn make(
        tree: &VmTree,
        folder: &Path,
        init: &Path,
        programs: &[GuestProgram<'_>],
    ) -> Result<Self, Missing> {
        let tree = tree.0.clone();
        let files = GuestFiles::new(folder)?;
        files.add(init, "init")?;
        files.add(init, "bin/checks")?;
        files.add(&tree.join("usr/bin/busybox"), "bin/busybox")?;
        for GuestProgram { file, name } in programs {
            files.add_program(file, &format!("bin/{name}"))?;
        }
        files.add_modules(&tree.join("usr/lib/modules"), &MODULES, "vfio-pci")?;
        let kernel = find(&tree.join("boot"), "vmlinuz-")?;
        Ok(Self { kernel, initrd: files.pack()?, tree })
    }

    /// The machine whose file system an earlier call made in `folder`.
    ///
    /// # Errors
    /// None did.
    pub fn made(tree: &VmTree, folder: &Path) -> Result<Self, Missing> {
        let tree = tree.0.clone();
        Ok(Self {
            kernel: find(&tree.join("boot"), "vmlinuz-")?,
            initrd: GuestFiles::packed(folder)?,
            tree,
        })
    }

    /// Returns the command that runs the machine, its console on standard input and output. `cable` is the path of a socket,
    /// to which a network card of the machine, if it is to have that, sends frames, and one at which it takes them; another card reaches this host as
    /// 10.0.2.2. `nics` are the paths of a vfio-user server's socket, a function for each: different ones, because QEMU takes the path
    /// for the name of the device, and gives devices of one name the same interrupts.
    #[must_use]
    pub fn command(
        &self,
        purpose: MachineUse,
        cable: Option<&WirePaths>,
        nics: &[PathBuf],
    ) -> Command {
        let (words, serial) = match purpose {
            MachineUse::Checks { port, peers, options } => {
                let [peers, options] = [peers, options].map(|words| words.join(","));
                (format!("urma.peers={port}:{peers}:{options}"), "stdio")
            }
            MachineUse::Victim => ("urma.victim".to_owned(), "stdio"),
            MachineUse::Shell => ("urma.shell".to_owned(), "mon:stdio"),
        };
        let mut qemu = self.qemu();
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-m", "512"])
            // The server of the NIC maps the machine's memory.
            .args(["-object", "memory-backend-memfd,id=ram,size=512M,share=on"])
            .args(["-machine", "q35,kernel-irqchip=off,memory-backend=ram"])
            .args(["-nodefaults", "-no-reboot"])
            .args(["-display", "none", "-serial", serial])
            .args(["-device", "intel-iommu,intremap=on,caching-mode=on", "-device", "edu"])
            .args(["-netdev", "user,id=u", "-device", "virtio-net-pci,netdev=u,romfile="]);
        for nic in nics {
            qemu.arg("-device").arg(nic_device(nic));
        }
        if let Some(cable) = cable {
            let card = "e1000e,netdev=n,mac=02:00:00:00:00:02,romfile=";
            qemu.arg("-netdev").arg(cable.netdev()).args(["-device", card]);
        }
        qemu.arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initrd)
            .arg("-append")
            .arg(format!("console=ttyS0 intel_iommu=on quiet panic=-1 no_timer_check {words}"));
        qemu
    }

    /// QEMU of the packages, with their C library.
    fn qemu(&self) -> Command {
        let libraries = self.tree.join(LIBRARIES);
        let mut qemu = Command::new(libraries.join("ld-linux-x86-64.so.2"));
        qemu.arg("--library-path")
            .arg(&libraries)
            .arg(self.tree.join("usr/bin/qemu-system-x86_64"))
            .env("QEMU_MODULE_DIR", libraries.join("qemu"));
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            qemu.arg("-L").arg(self.tree.join(data));
        }
        qemu
    }
}

/// The device that the vfio-user server at `socket` serves. Its options are JSON: the socket is one with members.
fn nic_device(socket: &Path) -> OsString {
    let mut text = OsString::from(r#"{"driver":"vfio-user-pci","socket":{"type":"unix","path":""#);
    text.push(socket);
    text.push(r#""}}"#);
    text
}

/// Sockets of the two ends of a network cable.
#[derive(Clone, Debug)]
pub struct WirePaths {
    /// Path of this side's socket.
    pub host: PathBuf,
    /// Path of the machine's socket.
    pub guest: PathBuf,
}

impl WirePaths {
    /// Sockets in `folder`, whose path must be short.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self { host: folder.join("wire-host"), guest: folder.join("wire-guest") }
    }

    fn netdev(&self) -> OsString {
        let mut text = OsString::from("dgram,id=n,local.type=unix,local.path=");
        text.push(&self.guest);
        text.push(",remote.type=unix,remote.path=");
        text.push(&self.host);
        text
    }
}

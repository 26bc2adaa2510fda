//! What the virtual machine boots: Debian's kernel, and a file system with one program.
//!
//! *Owns*: which files the guest needs and where they are found. *Gives*: kernel and initial file system,
//! or what is missing. *Must not*: install anything; a kernel package is only unpacked.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use urma_vm::{
    archive::GuestFiles,
    packages::{Missing, copy, failed, find, missing, program, run, system_kernel, system_package},
};

/// Program of the guest, and its first process.
const PROGRAM: &str = "guest/guest.c";
const INIT: &str = "guest/init";
/// First process of a guest with a shell, a verbs program for it, and those of Debian's package.
const INIT_SHELL: &str = "guest/init-shell";
const ALLREDUCE: &str = "guest/allreduce.c";
const UTILITIES: &str = "ibverbs-utils";
const PINGPONGS: [&str; 2] = ["ibv_rc_pingpong", "ibv_uc_pingpong"];
/// Modules in the order in which they are loaded. What the kernel has built in has no file.
const MODULES: [&str; 14] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
    "crc32_generic",
    "udp_tunnel",
    "ip6_udp_tunnel",
    "ib_core",
    "ib_uverbs",
    "rdma_rxe",
];

/// Kernel and initial file system.
#[derive(Clone, Debug)]
pub struct Image {
    pub(crate) kernel: PathBuf,
    pub(crate) initrd: PathBuf,
}

impl Image {
    /// Makes the files below `folder`; a kernel that was unpacked there before is used again.
    ///
    /// # Errors
    /// What is missing on this system, or could not be made.
    pub fn make(folder: &Path) -> Result<Self, Missing> {
        let tree = ready(folder)?;
        let guest = compile(folder, PROGRAM, "guest")?;
        Self::pack(folder, &tree, INIT, &[(guest, "guest")])
    }

    /// An image for guests that do what a shell's lines say: with a verbs program for an allreduce and Debian's pingpong
    /// programs.
    ///
    /// # Errors
    /// As [`Image::make`].
    pub fn make_with_shell(folder: &Path) -> Result<Self, Missing> {
        let tree = ready(folder)?;
        let mut programs = vec![(compile(folder, ALLREDUCE, "allreduce")?, "allreduce")];
        let utilities = system_package(folder, UTILITIES)?.join("usr/bin");
        programs.extend(PINGPONGS.map(|name| (utilities.join(name), name)));
        Self::pack(folder, &tree, INIT_SHELL, &programs)
    }

    fn pack(
        folder: &Path,
        tree: &Path,
        init: &str,
        own: &[(PathBuf, &str)],
    ) -> Result<Self, Missing> {
        let busybox = program("busybox", "busybox-static")?;
        let rdma = program("rdma", "iproute2")?;
        let files = GuestFiles::new(folder)?;
        let named = [(&busybox, "busybox"), (&rdma, "rdma")];
        let all: Vec<_> =
            named.into_iter().chain(own.iter().map(|(from, to)| (from, *to))).collect();
        for (from, to) in &all {
            files.add(from, &format!("bin/{to}"))?;
        }
        files.add(&source(init), "init")?;
        let all: Vec<_> = all.into_iter().map(|(from, _)| from).collect();
        copy_provider(files.root(), &all)?;
        files.add_modules(&tree.join("lib/modules"), &MODULES, "rdma_rxe")?;
        Ok(Self { kernel: find(&tree.join("boot"), "vmlinuz-")?, initrd: files.pack()? })
    }
}

/// The kernel's files, if all that boots them is there.
fn ready(folder: &Path) -> Result<PathBuf, Missing> {
    program("qemu-system-x86_64", "qemu-system-x86")?;
    program("busybox", "busybox-static")?;
    fs::create_dir_all(folder).map_err(failed("a folder for the guest"))?;
    system_kernel(folder)
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn compile(folder: &Path, from: &str, name: &str) -> Result<PathBuf, Missing> {
    let program = folder.join(name);
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-Wall", "-Wextra", "-o"]).arg(&program).arg(source(from)).arg("-libverbs");
    run(&mut gcc, "the guest's program (apt-get install gcc libibverbs-dev)")?;
    Ok(program)
}

/// The verbs provider of rxe, and the libraries of it and of the programs.
fn copy_provider(root: &Path, programs: &[&PathBuf]) -> Result<(), Missing> {
    let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let driver = Path::new("/etc/libibverbs.d/rxe.driver");
    let folder = Path::new("/usr/lib/x86_64-linux-gnu/libibverbs");
    if !driver.exists() || !folder.exists() {
        return Err(missing("the verbs provider of rxe", "ibverbs-providers"));
    }
    let provider = find(folder, "librxe")?;
    copy(driver, &inside(driver))?;
    copy(&provider, &inside(&provider))?;
    for program in programs.iter().map(|path| path.as_path()).chain([&*provider]) {
        // A static program has no libraries: ldd fails.
        let listed = run(Command::new("ldd").arg(program), "ldd").unwrap_or_default();
        for library in listed.split_whitespace().filter(|word| word.starts_with('/')) {
            copy(Path::new(library), &inside(Path::new(library)))?;
        }
    }
    Ok(())
}

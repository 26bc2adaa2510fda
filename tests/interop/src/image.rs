//! What the virtual machine boots: Debian's kernel, and a file system with one program.
//!
//! *Owns*: which files the guest needs and where they are found. *Gives*: kernel and initial file system,
//! or what is missing. *Must not*: install anything; a kernel package is only unpacked.

use std::{
    fmt,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Program of the guest, and its first process.
const PROGRAM: &str = "guest/guest.c";
const INIT: &str = "guest/init";
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

/// A program or package that is not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

fn missing(what: &str, package: &str) -> Missing {
    Missing(format!("{what} is missing: apt-get install {package}"))
}

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
        let program = |name: &str, package: &str| which(name).ok_or_else(|| missing(name, package));
        program("qemu-system-x86_64", "qemu-system-x86")?;
        let busybox = program("busybox", "busybox-static")?;
        let rdma = program("rdma", "iproute2")?;
        program("cpio", "cpio")?;
        fs::create_dir_all(folder).map_err(|error| failed("a folder for the guest", &error))?;
        let tree = kernel_tree(folder)?;
        let root = folder.join("root");
        // What an earlier run left may be of another kernel.
        let _ = fs::remove_dir_all(&root);
        let guest = compile(folder)?;
        let files = [(&busybox, "bin/busybox"), (&rdma, "bin/rdma"), (&guest, "bin/guest")];
        for (from, to) in files {
            copy(from, &root.join(to))?;
        }
        copy(&source(INIT), &root.join("init"))?;
        copy_provider(&root, &[&busybox, &rdma, &guest])?;
        copy_modules(&tree, &root)?;
        for empty in ["proc", "sys", "dev"] {
            fs::create_dir_all(root.join(empty)).map_err(|error| failed(empty, &error))?;
        }
        let initrd = pack(folder, &root)?;
        Ok(Self { kernel: find(&tree.join("boot"), "vmlinuz-")?, initrd })
    }
}

fn failed(what: &str, error: &io::Error) -> Missing {
    Missing(format!("{what}: {error}"))
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn which(name: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|path| path.join(name)).find(|path| path.is_file())
}

/// Runs a program to its end; its output.
fn run(command: &mut Command, what: &str) -> Result<String, Missing> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| failed(what, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(Missing(format!("{what}: {}", errors.trim())))
}

/// The kernel package of Debian, unpacked and not installed.
fn kernel_tree(folder: &Path) -> Result<PathBuf, Missing> {
    let tree = folder.join("kernel");
    if tree.join("boot").is_dir() {
        return Ok(tree);
    }
    let depends =
        run(Command::new("apt-cache").args(["depends", "linux-image-amd64"]), "apt-cache")?;
    let package = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: linux-image-"))
        .ok_or_else(|| {
            missing("a kernel with rdma_rxe", "linux-image-amd64 (a name in apt's lists)")
        })?;
    let package = format!("linux-image-{package}");
    let mut download = Command::new("apt-get");
    download.args(["download", &package]).current_dir(folder);
    run(&mut download, "apt-get download of the kernel")?;
    let file = find(folder, &package)?;
    // Renamed when whole: a run that was ended leaves no half of a kernel.
    let part = folder.join("kernel.part");
    let _ = fs::remove_dir_all(&part);
    run(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&part), "dpkg-deb")?;
    fs::rename(&part, &tree).map_err(|error| failed("the kernel's folder", &error))?;
    fs::remove_file(&file).map_err(|error| failed("the kernel's package", &error))?;
    Ok(tree)
}

/// The entry of a folder that begins with `start`.
fn find(folder: &Path, start: &str) -> Result<PathBuf, Missing> {
    let entries = fs::read_dir(folder).map_err(|error| failed(start, &error))?;
    let found =
        entries.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with(start));
    found
        .map(|entry| entry.path())
        .ok_or_else(|| Missing(format!("{start} is not in {}", folder.display())))
}

fn compile(folder: &Path) -> Result<PathBuf, Missing> {
    let program = folder.join("guest");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-Wall", "-Wextra", "-o"]).arg(&program).arg(source(PROGRAM)).arg("-libverbs");
    run(&mut gcc, "the guest's program (apt-get install gcc libibverbs-dev)")?;
    Ok(program)
}

fn copy(from: &Path, to: &Path) -> Result<(), Missing> {
    let parent = to.parent().unwrap_or(to);
    fs::create_dir_all(parent).map_err(|error| failed("a folder of the guest", &error))?;
    fs::copy(from, to).map(|_| ()).map_err(|error| failed(&from.display().to_string(), &error))
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

fn copy_modules(tree: &Path, root: &Path) -> Result<(), Missing> {
    let release = find(&tree.join("lib/modules"), "")?;
    let listed = run(Command::new("find").arg(&release).args(["-name", "*.ko"]), "find")?;
    let mut order = String::new();
    for module in MODULES {
        let name = format!("/{module}.ko");
        let Some(file) = listed.lines().find(|line| line.ends_with(&name)) else { continue };
        copy(Path::new(file), &root.join(format!("modules{name}")))?;
        order.push_str(module);
        order.push('\n');
    }
    if !order.ends_with("rdma_rxe\n") {
        return Err(Missing("this kernel package has no rdma_rxe module".to_owned()));
    }
    fs::write(root.join("modules/order"), order).map_err(|error| failed("the modules", &error))
}

/// The tree as an archive that the kernel unpacks.
fn pack(folder: &Path, root: &Path) -> Result<PathBuf, Missing> {
    let initrd = folder.join("initrd");
    let names = run(Command::new("find").arg(".").current_dir(root), "find")?;
    let list = folder.join("files");
    fs::write(&list, names).map_err(|error| failed("the list of files", &error))?;
    let open = |file: io::Result<File>| file.map_err(|error| failed("the guest's files", &error));
    let (input, output) = (open(File::open(&list))?, open(File::create(&initrd))?);
    let status = Command::new("cpio")
        .args(["-o", "-H", "newc", "--quiet"])
        .current_dir(root)
        .stdin(input)
        .stdout(output)
        .status()
        .map_err(|error| failed("cpio", &error))?;
    if status.success() { Ok(initrd) } else { Err(Missing("cpio failed".to_owned())) }
}

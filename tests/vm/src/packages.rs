//! Debian's packages, unpacked in a folder and not installed; and programs and files of this system.
//!
//! Must not change what is installed or configured on this system, or name a server: the system's own sources say
//! where Debian is.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Suites with QEMU 10 or newer, the newest last, which is preferred for QEMU: older versions have no
/// `vfio-user-pci`.
const SUITES: [&str; 2] = ["trixie", "trixie-backports"];
/// Its small kernel has VFIO and the IOMMU.
const KERNEL: &str = "linux-image-cloud-amd64";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// QEMU, a kernel and busybox, unpacked below one folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VmTree(pub PathBuf);

impl VmTree {
    /// Unpacks the packages below `folder`, if an earlier call did not.
    ///
    /// # Errors
    /// What cannot be had: no network, no apt, no Debian.
    pub fn fetch(folder: &Path) -> Result<Self, Missing> {
        let tree = folder.join("tree");
        if tree.is_dir() {
            return Ok(Self(tree));
        }
        for tool in ["apt-get", "apt-cache"] {
            program(tool, "apt")?;
        }
        let apt = PrivateApt::new(&folder.join("apt"))?;
        run(apt.command("apt-get").arg("update"), "apt-get update")?;
        let depends = run(apt.command("apt-cache").args(["depends", KERNEL]), "apt-cache")?;
        let kernel = kernel_name(&depends)?;
        let newest = SUITES.last().copied().unwrap_or_default();
        let qemu = ["install", "-y", "--download-only", "-t", newest, "qemu-system-x86"];
        run(apt.command("apt-get").args(qemu), "apt-get of QEMU")?;
        let mut rest = apt.command("apt-get");
        rest.args(["download", &kernel, "busybox-static"]).current_dir(apt.archives());
        run(&mut rest, "apt-get of the kernel and busybox")?;
        let part = folder.join("tree.part");
        let _ = fs::remove_dir_all(&part);
        let archives = fs::read_dir(apt.archives()).map_err(failed("packages"))?;
        for file in archives.flatten().map(|entry| entry.path()) {
            if file.extension().is_some_and(|end| end == "deb") {
                unpack(&file, &part)?;
            }
        }
        // Renamed when whole: a run that was ended leaves no half of a tree.
        fs::rename(&part, &tree).map_err(failed("the folder of packages"))?;
        fs::remove_dir_all(folder.join("apt")).map_err(failed("the folder of apt"))?;
        Ok(Self(tree))
    }
}

/// Unpacks a package.
///
/// # Errors
/// What `dpkg-deb` printed.
pub fn unpack(package: &Path, folder: &Path) -> Result<(), Missing> {
    fs::create_dir_all(folder).map_err(failed("a folder for packages"))?;
    run(Command::new("dpkg-deb").arg("-x").arg(package).arg(folder), "dpkg-deb").map(|_| ())
}

/// Returns the package of a kernel's image in what `apt-cache depends` of its metapackage printed.
fn kernel_name(depends: &str) -> Result<String, Missing> {
    let found = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
    let name = found.map(|rest| format!("linux-image-{rest}"));
    name.ok_or_else(|| missing("a kernel's image", "linux-image-amd64 (a name in apt's lists)"))
}

/// The kernel of this system's release, with all modules, unpacked below `folder` if an earlier call did not.
///
/// # Errors
/// What cannot be had.
pub fn system_kernel(folder: &Path) -> Result<PathBuf, Missing> {
    let tree = folder.join("kernel");
    if tree.join("boot").is_dir() {
        return Ok(tree);
    }
    let depends =
        run(Command::new("apt-cache").args(["depends", "linux-image-amd64"]), "apt-cache")?;
    download(folder, &kernel_name(&depends)?, &tree)?;
    Ok(tree)
}

/// A package of this system's release, unpacked below `folder` if an earlier call did not: one that is not installed here.
///
/// # Errors
/// What cannot be had.
pub fn system_package(folder: &Path, name: &str) -> Result<PathBuf, Missing> {
    let tree = folder.join(name);
    if !tree.is_dir() {
        fs::create_dir_all(folder).map_err(failed("a folder for packages"))?;
        download(folder, name, &tree)?;
    }
    Ok(tree)
}

/// Downloads a package to `folder`, and unpacks it as `tree`.
fn download(folder: &Path, name: &str, tree: &Path) -> Result<(), Missing> {
    let what = format!("apt-get download of {name}");
    run(Command::new("apt-get").args(["download", name]).current_dir(folder), &what)?;
    // A package's version follows its name.
    let file = find(folder, &format!("{name}_"))?;
    let part = tree.with_extension("part");
    let _ = fs::remove_dir_all(&part);
    unpack(&file, &part)?;
    // Renamed when whole: a run that was ended leaves no half of it.
    fs::rename(&part, tree).map_err(failed("a package's folder"))?;
    fs::remove_file(&file).map_err(failed("a package"))
}

/// Apt with a configuration, lists and packages of its own.
#[derive(Debug)]
struct PrivateApt(PathBuf);

impl PrivateApt {
    fn new(folder: &Path) -> Result<Self, Missing> {
        let apt = Self(folder.to_path_buf());
        for empty in ["lists/partial", "archives/partial", "state", "parts"] {
            fs::create_dir_all(folder.join(empty)).map_err(failed("a folder for apt"))?;
        }
        if !Path::new(KEYS).is_file() {
            return Err(missing(KEYS, "debian-archive-keyring"));
        }
        let server = debian_server()?;
        let line = |suite| format!("deb [signed-by={KEYS}] {server} {suite} main\n");
        let here = folder.display();
        let configuration = format!(
            "Dir::State \"{here}/state\";\nDir::State::lists \"{here}/lists\";\n\
             Dir::State::status \"{here}/status\";\nDir::Cache \"{here}\";\n\
             Dir::Etc::sourcelist \"{here}/sources.list\";\nDir::Etc::sourceparts \"{here}/parts\";\n\
             Dir::Etc::preferences \"{here}/none\";\nDir::Etc::preferencesparts \"{here}/parts\";\n\
             APT::Architecture \"amd64\";\nAPT::Install-Recommends \"false\";\n\
             APT::Sandbox::User \"root\";\nAcquire::Languages \"none\";\n\
             Acquire::http::Timeout \"20\";\nAcquire::Retries \"1\";\n"
        );
        let files = [
            ("apt.conf", configuration),
            ("sources.list", SUITES.map(line).concat()),
            ("status", String::new()),
            ("none", String::new()),
        ];
        for (name, text) in files {
            fs::write(folder.join(name), text).map_err(failed("the configuration of apt"))?;
        }
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.0.join("apt.conf")).env("LC_ALL", "C");
        command
    }

    fn archives(&self) -> PathBuf {
        self.0.join("archives")
    }
}

/// Where this system has Debian's own release from.
fn debian_server() -> Result<String, Missing> {
    let format = "$(ORIGIN)|$(SUITE)|$(REPO_URI)";
    let targets =
        run(Command::new("apt-get").args(["indextargets", "--format", format]), "apt-get")?;
    server_of(&targets).ok_or_else(|| {
        Missing("no source of apt is Debian's own: run `apt-get update` on a Debian".to_owned())
    })
}

fn server_of(targets: &str) -> Option<String> {
    targets.lines().find_map(|line| {
        let mut words = line.split('|');
        let (origin, suite, server) = (words.next()?, words.next()?, words.next()?);
        (origin == "Debian" && !suite.contains("security")).then(|| server.to_owned())
    })
}

/// A program or package that is not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// Returns the error for `what`, which Debian's `package` has.
#[must_use]
pub fn missing(what: &str, package: &str) -> Missing {
    Missing(format!("{what} is missing: apt-get install {package}"))
}

/// Returns the error for `what`, with the system's error.
pub fn failed(what: &str) -> impl FnOnce(io::Error) -> Missing {
    move |error| Missing(format!("{what}: {error}"))
}

/// Returns the path of a program that Debian's `package` has.
///
/// # Errors
/// It is not in PATH.
pub fn program(name: &str, package: &str) -> Result<PathBuf, Missing> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&paths).map(|path| path.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| missing(name, package))
}

/// Runs a program to its end; returns its output.
///
/// # Errors
/// It cannot be started, or fails: what it printed.
pub fn run(command: &mut Command, what: &str) -> Result<String, Missing> {
    let output = command.stdin(Stdio::null()).output().map_err(failed(what))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(Missing(format!("{what}: {}", errors.trim())))
}

/// Returns the entry of a folder that begins with `start`.
///
/// # Errors
/// There is none.
pub fn find(folder: &Path, start: &str) -> Result<PathBuf, Missing> {
    let entries = fs::read_dir(folder).map_err(failed(start))?;
    let found =
        entries.flatten().find(|entry| entry.file_name().to_string_lossy().starts_with(start));
    found
        .map(|entry| entry.path())
        .ok_or_else(|| Missing(format!("{start} is not in {}", folder.display())))
}

/// Copies a file; makes the folders of its target.
///
/// # Errors
/// The system's error.
pub fn copy(from: &Path, to: &Path) -> Result<(), Missing> {
    let parent = to.parent().unwrap_or(to);
    fs::create_dir_all(parent).map_err(failed("a folder of the guest"))?;
    fs::copy(from, to).map(|_| ()).map_err(failed(&from.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_that_of_debians_release() {
        let targets = "Debian|oldstable-security|http://a/security/\nOther|stable|http://b/\n\
                       Debian|oldstable|http://c/debian/\n";
        assert_eq!(server_of(targets).as_deref(), Some("http://c/debian/"));
        assert_eq!(server_of("Other|stable|http://b/\n"), None);
    }

    #[test]
    fn the_kernel_is_the_first_image_that_is_depended_on() {
        let depends = "linux-image-amd64\n  Depends: linux-image-6.1.0-51-amd64\n";
        assert_eq!(kernel_name(depends), Ok("linux-image-6.1.0-51-amd64".to_owned()));
        assert!(kernel_name("linux-image-amd64\n").is_err());
    }
}

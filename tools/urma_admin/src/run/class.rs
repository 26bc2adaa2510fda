//! A `/sys/class` with the device's folder, for this process and what it becomes.
//!
//! *Owns*: the namespaces, what is mounted in them. *Takes*: a device's folder, its names. *Gives*:
//! nothing; paths mean something else afterwards. *Must not*: be seen by other processes.
//!
//! Nothing can be made in sysfs. A small file system is mounted over `/sys/class` instead, and each
//! class that was there is bound into it, so that its files and its relative links
//! (`../../devices/...`) are the kernel's own.

use std::{
    fs::{self, File},
    io,
    os::{fd::AsRawFd, unix::fs::symlink},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    unistd::{Gid, Uid},
};

use super::device::Folder;

/// Where the kernel has classes of devices.
const CLASSES: &str = "/sys/class";
/// The class of URMA devices.
const CLASS: &str = "ubcore";
/// The file system over the classes: a hundred small files.
const SIZE: &str = "size=4m,mode=755";

/// Moves this process into a mount namespace with the device's folder under all its names.
///
/// # Errors
/// What is missing, and how to get it.
pub(super) fn enter(device: &Folder, aliases: &[String]) -> Result<(), String> {
    if !Path::new(CLASSES).is_dir() {
        return Err(format!("there is no {CLASSES}: mount -t sysfs sysfs /sys"));
    }
    separate()?;
    let refused = |what: &str, error: io::Error| format!("{what}: {error}");
    cover().map_err(|error| refused("mounting over /sys/class", error))?;
    let class = Path::new(CLASSES).join(CLASS);
    for name in std::iter::once(&device.name).chain(aliases) {
        let folder = class.join(name);
        // A device of the kernel keeps its name.
        if folder.symlink_metadata().is_err() {
            write(&folder, name, device)
                .map_err(|error| refused("describing the device", error))?;
        }
    }
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | flags();
    mount_at(None, Path::new(CLASSES), None, read_only, None)
        .map_err(|error| refused("making /sys/class read-only", error))
}

const fn flags() -> MsFlags {
    MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC)
}

/// A mount namespace of this process's own; with a user namespace where it may not have one alone.
fn separate() -> Result<(), String> {
    let (user, group) = (Uid::effective(), Gid::effective());
    match unshare(CloneFlags::CLONE_NEWNS) {
        Ok(()) => {}
        Err(Errno::EPERM) => {
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).map_err(no_namespace)?;
            let refused = |error: io::Error| format!("keeping this user in the namespace: {error}");
            // Its own number stays, so that its files are its own and peers see the same user.
            fs::write("/proc/self/setgroups", "deny").map_err(refused)?;
            fs::write("/proc/self/uid_map", format!("{user} {user} 1\n")).map_err(refused)?;
            fs::write("/proc/self/gid_map", format!("{group} {group} 1\n")).map_err(refused)?;
        }
        Err(error) => return Err(no_namespace(error)),
    }
    // What is mounted here is not seen elsewhere; what is mounted elsewhere is seen here.
    let slave = MsFlags::MS_SLAVE | MsFlags::MS_REC;
    mount_at(None, Path::new("/"), None, slave, None)
        .map_err(|error| format!("parting from the mounts of others: {error}"))
}

/// What a system that refuses namespaces has to allow.
fn no_namespace(error: Errno) -> String {
    let how = match error {
        Errno::ENOSPC => {
            "the limit is user.max_user_namespaces or user.max_mnt_namespaces: raise it"
        }
        Errno::EPERM | Errno::EACCES => {
            "as root it needs CAP_SYS_ADMIN; as another user the system has to allow user \
             namespaces (kernel.unprivileged_userns_clone=1, \
             kernel.apparmor_restrict_unprivileged_userns=0, no seccomp filter against unshare: \
             docker run --security-opt seccomp=unconfined)"
        }
        Errno::EINVAL | Errno::ENOSYS => "this kernel has none: CONFIG_USER_NS, CONFIG_NAMESPACES",
        _ => "see unshare(2)",
    };
    format!("the system gives no mount namespace ({error}): {how}")
}

/// Mounts an empty file system over the classes, and binds those that were there into it.
fn cover() -> io::Result<()> {
    let classes = Path::new(CLASSES);
    // Opened before it is covered: below this descriptor lies what the kernel has.
    let old = File::open(classes)?;
    let below = PathBuf::from(format!("/proc/self/fd/{}", old.as_raw_fd()));
    mount_at(Some(Path::new("urma")), classes, Some("tmpfs"), flags(), Some(SIZE))?;
    for entry in fs::read_dir(&below)? {
        let entry = entry?;
        let (from, to) = (below.join(entry.file_name()), classes.join(entry.file_name()));
        let is_ours = entry.file_name() == CLASS;
        if entry.file_type()?.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
        } else if entry.file_type()?.is_dir() && is_ours {
            // Devices of the kernel stay: the same links, to the same places.
            fs::create_dir(&to)?;
            for device in fs::read_dir(&from)? {
                let device = device?.file_name();
                symlink(fs::read_link(from.join(&device))?, to.join(&device))?;
            }
        } else if entry.file_type()?.is_dir() {
            fs::create_dir(&to)?;
            mount_at(Some(&from), &to, None, MsFlags::MS_BIND | MsFlags::MS_REC, None)?;
        }
    }
    Ok(())
}

fn write(folder: &Path, name: &str, device: &Folder) -> io::Result<()> {
    for (file, value) in &device.files {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        let value = if file == "ubdev" { name } else { value };
        fs::write(path, format!("{value}\n"))?;
    }
    Ok(())
}

fn mount_at(
    source: Option<&Path>,
    target: &Path,
    kind: Option<&str>,
    flags: MsFlags,
    data: Option<&str>,
) -> io::Result<()> {
    Ok(mount(source, target, kind, flags, data)?)
}

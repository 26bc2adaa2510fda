//! The files of the software device, as the kernel's `ubcore` class has them, in a `/sys/class` that only this
//! process and what it becomes can see.
//!
//! Nothing can be made in sysfs. A small file system is mounted over `/sys/class` instead, and each class that was
//! there is bound into it, so that its files and its relative links (`../../devices/...`) are the kernel's own.
//! Which file says what is in docs/c-api.md, "Their devices".

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
use ubcore_sim::{
    NodeCfg,
    node::{ConfigError, DRIVER},
};
use udma_abi::{
    RawEid,
    backing::{DEVICE_ID, VENDOR_ID},
};
use urma::{DeviceAttr, DeviceCaps, DeviceFeatures, PortAttr};

/// Folder of one device in the class folder, with its files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Folder {
    /// Name of the folder, which is the device's.
    pub(super) name: String,
    /// Files below it, each with its value. Their folders come first.
    pub(super) files: Vec<(String, String)>,
}

/// Bits of `feature` that the C library has for this device beside those of the device itself:
/// several segments for a token id, and compact paths.
const FEATURES_OF_C: u32 = 1 << 16 | 1 << 18;
/// `congestion_ctrl_alg`: the bit for none.
const CONGESTION_NONE: u64 = 1;
/// Bit of `feature`: payload in completions.
const JFC_INLINE: u32 = 1 << 6;

/// Describes the software device as the kernel would.
pub(super) fn describe() -> Result<Folder, String> {
    let eid = NodeCfg::from_env().map_err(|error: ConfigError| error.to_string())?.eid;
    // A node of its own with any EID: the program's EID stays free.
    let opened = urma::open_node(NodeCfg::default());
    let opened = opened.map_err(|error| format!("looking at the device: {error}"))?;
    Ok(Folder { name: NodeCfg::default().name, files: files(opened.context.attr(), eid) })
}

fn files(attr: &DeviceAttr, eid: Option<RawEid>) -> Vec<(String, String)> {
    let mut files = vec![
        ("ubdev".to_owned(), NodeCfg::default().name),
        ("driver_name".to_owned(), DRIVER.to_owned()),
        ("device/vendor".to_owned(), format!("{VENDOR_ID:#06x}")),
        ("device/device".to_owned(), format!("{DEVICE_ID:#06x}")),
        ("transport_type".to_owned(), "0".to_owned()),
        ("eids/eid0".to_owned(), text(eid.unwrap_or_default())),
        ("port_count".to_owned(), attr.ports.len().to_string()),
        (
            "reserved_jetty_id".to_owned(),
            format!("{}-{}", attr.reserved_id_min, attr.reserved_id_max),
        ),
    ];
    files.extend(numbers(&attr.caps).map(|(name, value)| (name.to_owned(), value.to_string())));
    for (index, port) in attr.ports.iter().enumerate() {
        files.extend(
            of_port(port).map(|(name, value)| (format!("port{index}/{name}"), value.to_string())),
        );
    }
    files
}

/// An EID in eight groups. All of it zero: each process that opens the device has one of its own.
fn text(eid: RawEid) -> String {
    let groups = eid.0.chunks(2).map(|two| format!("{:02x}{:02x}", two[0], two[1]));
    groups.collect::<Vec<_>>().join(":")
}

fn numbers(caps: &DeviceCaps) -> [(&'static str, u64); 34] {
    let inline = if caps.features.contains(DeviceFeatures::JFC_INLINE) { JFC_INLINE } else { 0 };
    let features = caps.features.bits() & !JFC_INLINE | FEATURES_OF_C | inline;
    let atomic = u64::from(caps.max_atomic_size);
    [
        ("max_jfc", caps.max_jfc.into()),
        ("max_jfs", caps.max_jfs.into()),
        ("max_jfr", caps.max_jfr.into()),
        ("max_jetty", caps.max_jetty.into()),
        ("max_jetty_grp", caps.max_jetty_grp.into()),
        ("max_jetty_in_jetty_grp", caps.max_jetty_in_grp.into()),
        ("max_jfc_depth", caps.max_jfc_depth.into()),
        ("max_jfs_depth", caps.max_jfs_depth.into()),
        ("max_jfr_depth", caps.max_jfr_depth.into()),
        ("max_jfs_inline_size", caps.max_jfs_inline.into()),
        ("max_jfs_sge", caps.max_jfs_sge.into()),
        ("max_jfs_rsge", caps.max_jfs_sge.into()),
        ("max_jfr_sge", caps.max_jfr_sge.into()),
        ("max_msg_size", caps.max_msg_size),
        ("max_read_size", caps.max_read_size.into()),
        ("max_write_size", caps.max_write_size.into()),
        ("max_cas_size", atomic),
        ("max_swap_size", atomic),
        ("max_fetch_and_add_size", atomic),
        ("max_fetch_and_sub_size", atomic),
        ("max_fetch_and_and_size", atomic),
        ("max_fetch_and_or_size", atomic),
        ("max_fetch_and_xor_size", atomic),
        ("feature", features.into()),
        ("atomic_feat", caps.atomics.bits().into()),
        ("trans_mode", caps.modes.bits().into()),
        ("congestion_ctrl_alg", CONGESTION_NONE),
        ("ceq_cnt", caps.ceq_cnt.into()),
        ("max_tp_in_tpg", 1),
        ("max_eid_cnt", caps.max_eid_cnt.into()),
        ("max_netaddr_cnt", caps.max_eid_cnt.into()),
        ("max_oor_cnt", 0),
        ("mn", 0),
        ("page_size_cap", caps.page_size_cap),
    ]
}

fn of_port(port: &PortAttr) -> [(&'static str, u64); 5] {
    [
        ("max_mtu", port.max_mtu as u64),
        ("state", port.state as u64),
        ("active_width", port.width.into()),
        ("active_speed", port.speed.into()),
        ("active_mtu", port.active_mtu as u64),
    ]
}

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

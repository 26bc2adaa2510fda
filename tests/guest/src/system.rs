//! The machine as a whole.
//!
//! *Owns*: mounts, modules, the end of the machine. *Must not*: know a device.

use std::{ffi::CString, fs, io, process::Command};

use rustix::{
    mount::{MountFlags, mount},
    system::{RebootCommand, finit_module, reboot},
};

/// File with the modules, in the order in which they are loaded.
const ORDER: &str = "/modules/order";
/// 2 MiB pages for memory of devices.
const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

/// Mounts the kernel's file systems, loads the modules, reserves huge pages.
///
/// # Errors
/// What could not be made.
pub(crate) fn prepare() -> Result<(), String> {
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        let mounted = mount(kind, target, kind, MountFlags::empty(), None::<&std::ffi::CStr>);
        mounted.map_err(|error| format!("mounting {target}: {error}"))?;
    }
    let order = fs::read_to_string(ORDER).map_err(|error| format!("{ORDER}: {error}"))?;
    for name in order.lines() {
        load(name).map_err(|error| format!("loading the module {name}: {error}"))?;
    }
    fs::write(HUGE_PAGES, "40").map_err(|error| format!("{HUGE_PAGES}: {error}"))
}

fn load(name: &str) -> io::Result<()> {
    let file = fs::File::open(format!("/modules/{name}.ko"))?;
    finit_module(&file, &CString::default(), 0)?;
    Ok(())
}

/// Whether the kernel's command line has this word.
pub(crate) fn has_word(word: &str) -> bool {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    line.split_whitespace().any(|there| there == word)
}

/// The rest of the kernel's word that begins with `start`.
pub(crate) fn word(start: &str) -> Option<String> {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    line.split_whitespace().find_map(|word| word.strip_prefix(start)).map(str::to_owned)
}

/// Gives the machine's own card an address, by which it reaches the host as 10.0.2.2.
///
/// # Errors
/// What the system's tool said.
pub(crate) fn network() -> Result<(), String> {
    for arguments in ["link set lo up", "link set eth0 up", "addr add 10.0.2.15/24 dev eth0"] {
        let mut ip = Command::new("/bin/busybox");
        ip.arg("ip").args(arguments.split(' '));
        let output = ip.output().map_err(|error| format!("ip: {error}"))?;
        if !output.status.success() {
            return Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    Ok(())
}

/// Runs a shell to its end.
///
/// # Errors
/// It cannot be started.
pub(crate) fn shell() -> io::Result<()> {
    let script = "/bin/busybox --install -s /bin; exec setsid cttyhack sh";
    let mut shell = Command::new("/bin/busybox");
    shell.args(["sh", "-c", script]).env("PATH", "/bin").env("PS1", "guest:\\w# ");
    shell.status().map(|_| ())
}

/// Ends the machine, also where a restart is refused.
pub(crate) fn end() -> ! {
    // The machine ends on a restart; whether or not that works, this process is over, which stops the kernel.
    let _ = reboot(RebootCommand::Restart);
    std::process::exit(1)
}

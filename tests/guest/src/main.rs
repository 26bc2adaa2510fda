//! First process of the virtual machine: makes VFIO ready, runs the checks, and says how they went.
//!
//! Takes words of the kernel's command line; prints a line for each check on the console, then the line of the
//! result. Must not end without that line, but for a crash, which the host takes for a failure.
#![forbid(unsafe_code)]

mod edu;
mod ethernet;
mod nic;
mod planted;
mod programs;

use std::{
    ffi::CString,
    fs,
    io::{self, Write as _},
    process::Command,
};

use rustix::{
    mount::{MountFlags, mount},
    system::{RebootCommand, finit_module, reboot},
};

fn main() {
    // In a shell of the machine, this is a program like others.
    if std::process::id() != 1 {
        say(&checks());
        return;
    }
    if let Err(error) = prepare() {
        say(&format!("[guest] FAIL prepare -- {error}"));
        say("[guest] test rc=1 passed=0 failed=1");
        end();
    }
    if has_word("urma.shell") {
        if let Err(error) = network() {
            say(&format!("without a network: {error}"));
        }
        if let Err(error) = shell() {
            say(&format!("cannot start a shell: {error}"));
        }
        end();
    }
    if has_word("urma.victim") {
        if let Err(why) = programs::victim() {
            say(&format!("[guest] the victim did not start: {why}"));
        }
        end();
    }
    say(&checks());
    end();
}

/// Runs all checks; returns the line of the result.
fn checks() -> String {
    let mut suite = Suite::default();
    edu::run(&mut suite);
    ethernet::run(&mut suite);
    nic::run(&mut suite);
    programs::run(&mut suite);
    suite.line()
}

/// Prints a line on the console.
fn say(line: &str) {
    // Without a console there is no other place for the line.
    let _ = writeln!(io::stdout(), "{line}");
}

/// Why a check failed.
type CheckResult = Result<(), String>;

/// What passed and failed.
#[derive(Debug, Default)]
struct Suite {
    passed: u32,
    failed: u32,
}

impl Suite {
    /// Notes and prints the result of the check `name`.
    pub(crate) fn check(&mut self, name: &str, result: CheckResult) {
        match result {
            Ok(()) => {
                self.passed += 1;
                say(&format!("[guest] pass {name}"));
            }
            Err(why) => {
                self.failed += 1;
                say(&format!("[guest] FAIL {name} -- {}", why.replace('\n', " ")));
            }
        }
    }

    /// The line of the result.
    pub(crate) fn line(&self) -> String {
        let Self { passed, failed } = self;
        let rc = u8::from(*failed > 0 || *passed == 0);
        format!("[guest] test rc={rc} passed={passed} failed={failed}")
    }
}

/// An error, with what was tried in front.
fn during<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Whether a value is the expected one.
fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> CheckResult {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{what} is {found:x?}, should be {wanted:x?}"))
}

/// File with the modules, in the order in which they are loaded.
const ORDER: &str = "/modules/order";
/// 2 MiB pages for memory of devices.
const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

/// Mounts the kernel's file systems, loads the modules, reserves huge pages.
///
/// # Errors
/// What could not be made.
fn prepare() -> Result<(), String> {
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
fn has_word(word: &str) -> bool {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    line.split_whitespace().any(|there| there == word)
}

/// The rest of the kernel's word that begins with `start`.
fn word(start: &str) -> Option<String> {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    line.split_whitespace().find_map(|word| word.strip_prefix(start)).map(str::to_owned)
}

/// Gives the machine's own card an address, by which it reaches the host as 10.0.2.2.
///
/// # Errors
/// What the system's tool said.
fn network() -> Result<(), String> {
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
fn shell() -> io::Result<()> {
    let script = "/bin/busybox --install -s /bin; exec setsid cttyhack sh";
    let mut shell = Command::new("/bin/busybox");
    shell.args(["sh", "-c", script]).env("PATH", "/bin").env("PS1", "guest:\\w# ");
    shell.status().map(|_| ())
}

/// Ends the machine, also where a restart is refused.
fn end() -> ! {
    // The machine ends on a restart; whether or not that works, this process is over, which stops the kernel.
    let _ = reboot(RebootCommand::Restart);
    std::process::exit(1)
}

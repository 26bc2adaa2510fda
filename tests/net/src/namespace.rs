//! A network namespace without a name: threads in it, and commands of `ip`.
//!
//! Must not move the calling thread. A refusal of the kernel is told from a wrong command.

use std::{
    fs::File,
    io::Write,
    os::fd::{AsFd, AsRawFd},
    panic,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
};

/// Why there are no namespaces here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused(pub String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no hosts in network namespaces: {}", self.0)
    }
}

/// A network namespace; it ends with this value and the sockets and processes in it.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

impl Namespace {
    /// Makes an empty one.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn new() -> Result<Self, Refused> {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|error| Refused(format!("unshare: {error}")))?;
            File::open(OWN).map_err(|error| Refused(format!("{OWN}: {error}")))
        };
        Ok(Self { file: in_thread(make)? })
    }

    /// A namespace for virtual machines on taps; `None`: the test is counted as skipped, with the reason.
    #[must_use]
    pub fn with_taps_or_skip() -> Option<Self> {
        if !Path::new("/dev/net/tun").exists() {
            urma_skip::skip("/dev/net/tun is missing: modprobe tun");
            return None;
        }
        Self::new().map_err(urma_skip::skip).ok()
    }

    /// Calls `what` in a thread of this namespace: sockets that it opens, and threads and processes
    /// that it starts, belong to the namespace. A panic goes on in the caller.
    ///
    /// # Panics
    /// When the kernel refuses the namespace; as `what`.
    pub fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        in_thread(|| {
            setns(self.file.as_fd(), CloneFlags::CLONE_NEWNET)
                .expect("the namespace can be entered");
            what()
        })
    }

    /// As [`Namespace::run`], with a `/sys` that shows the interfaces of this namespace: programs that look for them
    /// there find those of the caller's otherwise.
    ///
    /// # Errors
    /// The kernel refused the mount; `what` was not called.
    ///
    /// # Panics
    /// As [`Namespace::run`].
    pub fn run_with_sys<T: Send>(&self, what: impl FnOnce() -> T + Send) -> Result<T, Refused> {
        self.run(|| {
            let mount_all = || {
                unshare(CloneFlags::CLONE_NEWNS)?;
                let none = None::<&str>;
                // What is mounted here stays here.
                mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)?;
                mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none)
            };
            mount_all().map_err(|error: nix::Error| Refused(format!("mount of /sys: {error}")))?;
            Ok(what())
        })
    }

    /// The file by which other programs of this user find it while this process lives.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

/// Calls `what` in a thread with the name of this one, for messages.
fn in_thread<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    let name = thread::current().name().unwrap_or("?").to_owned();
    let ended = thread::scope(|scope| {
        let started = thread::Builder::new().name(name).spawn_scoped(scope, what);
        started.expect("a thread starts").join()
    });
    ended.unwrap_or_else(|panicked| panic::resume_unwind(panicked))
}

/// The namespace of the thread that opens it.
const OWN: &str = "/proc/thread-self/ns/net";

/// Runs the commands in `namespace`, in order, until one fails.
///
/// # Errors
/// There is no `ip`, or the kernel has no such interfaces or refuses them.
///
/// # Panics
/// When a command fails for another reason: it is wrong.
pub(crate) fn ip(namespace: &Namespace, commands: &[String]) -> Result<(), Refused> {
    let input = commands.join("\n");
    let output = namespace.run(|| {
        let mut command = Command::new("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        // Closed behind the last command, so that `ip` ends.
        child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(input.as_bytes()))?;
        child.wait_with_output()
    });
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(REFUSALS.iter().any(|refusal| said.contains(refusal)), "ip: {said}: {input}");
            Err(Refused(format!("ip: {}", said.trim())))
        }
        Err(error) => Err(Refused(format!("ip (apt-get install iproute2): {error}"))),
    }
}

/// What `ip` prints where the kernel refuses.
const REFUSALS: [&str; 3] = ["Unknown device type", "not supported", "not permitted"];

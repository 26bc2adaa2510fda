//! Virtual machines in which drivers run over the kernel's real VFIO.
//!
//! *Owns*: when a machine is started, its time, the one repetition. *Takes*: the program of `tests/guest`. *Gives*:
//! its checks as results. *Must not*: take for passed what did not run.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use urma_vm::{
    Missing,
    console::{Console, ConsoleLine},
    packages::VmTree,
    report::GuestReport,
    vfio::{MachineUse, VfioMachine, WirePaths},
    wire::WireEnd,
};

use crate::{
    cargo,
    clock::{now, pause},
    say::{Failure, TaskResult, say},
    step::{RunningStep, StepResult, Steps},
};

/// Longest time of one machine, from its start to its result.
const BOUND: Duration = Duration::from_secs(180);
/// Target of the program that is the machine's first process: named, so that macros are built without its flags.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Package and name of that program.
const GUEST: &str = "urma-guest";
/// Package and name of the server of the machine's NIC.
const SERVER: &str = "ubcored";
/// Longest time until it listens.
const SERVER_BOUND: Duration = Duration::from_secs(10);

/// The checks of the machine only.
pub(crate) fn test() -> TaskResult {
    let mut steps = Steps::new("vm", 1)?;
    steps.step("real VFIO in a virtual machine", found);
    steps.end()
}

/// A shell in a machine.
pub(crate) fn shell() -> TaskResult {
    let folder = folder()?;
    let init = program()?;
    let built = build_server().arg("--quiet").status();
    if !built.map_err(Failure::system("starting cargo"))?.success() {
        return Err(Failure(format!("{SERVER} cannot be built")));
    }
    let machine = machine(&folder, &init).map_err(|Missing(why)| Failure(why))?;
    say("a shell in the machine; `checks` runs the checks, `exit` or Ctrl-A x ends it");
    let wire = CableFolder::new()?;
    let nic = ServedNic::start(&wire.folder)?;
    let status = machine
        .command(MachineUse::Shell, &wire.paths, &nic.socket)
        .status()
        .map_err(Failure::system("starting QEMU"))?;
    if status.success() { Ok(()) } else { Err(Failure(format!("QEMU ended with {status}"))) }
}

/// The checks of the machine, as a step.
pub(crate) fn found(step: &mut RunningStep) -> StepResult {
    let failed = |Failure(why): Failure| StepResult::one("the machine", Err(Failure(why)));
    let built = step.check("build of the first process", build());
    let built = built.plus(step.check("build of the NIC's server", build_server()));
    if !built.failed.is_empty() {
        return built;
    }
    let made = folder().and_then(|folder| Ok((machine(&folder, &program()?), folder)));
    let machine = match made {
        Ok((Ok(machine), _)) => machine,
        Ok((Err(Missing(why)), _)) => {
            let skipped = vec![format!("real-VFIO tests NOT RUN: {}", why.replace('\n', " "))];
            return built.plus(StepResult { skipped, ..StepResult::default() });
        }
        Err(failure) => return failed(failure),
    };
    for attempt in ["first", "second and last"] {
        let log = step.log_of(&format!("{}.console", attempt.split(' ').next().unwrap_or("")));
        match run(&machine, &log) {
            Ok(run) if run.report.whole().is_ok() => return built.plus(results(run)),
            Ok(run) => {
                let why = run.report.whole().err().unwrap_or_default();
                say(&format!(
                    "        {attempt} run of the machine: {why}; {}",
                    cargo::shown(&log)
                ));
                if attempt != "first" {
                    let name = "real VFIO: the machine's result";
                    return built.plus(results(run)).plus(StepResult::one(name, Err(Failure(why))));
                }
            }
            Err(failure) => return failed(failure),
        }
    }
    built
}

/// Checks of the machine, each a result.
fn results(run: MachineRun) -> StepResult {
    let passed = run.report.passed.into_iter().map(|name| (name, Ok(())));
    let failed = run.report.failed.into_iter().map(|(name, why)| (name, Err(why)));
    passed
        .chain(failed)
        .chain(run.outside)
        .map(|(name, result)| (name, result.map_err(Failure)))
        .map(|(name, result)| StepResult::one(&format!("real VFIO: {name}"), result))
        .fold(StepResult::default(), StepResult::plus)
}

/// Where packages and file systems stay between runs.
fn folder() -> Result<PathBuf, Failure> {
    let folder = cargo::target_dir()?.join("vm");
    fs::create_dir_all(&folder).map_err(Failure::system("making a folder"))?;
    Ok(folder)
}

/// The build of the static program that the machine starts first.
fn build() -> Command {
    let mut command = cargo::command(&["build", "-p", GUEST, "--target", TARGET]);
    command.env("RUSTFLAGS", "-C target-feature=+crt-static");
    command
}

/// The build of the server of the machine's NIC.
fn build_server() -> Command {
    cargo::command(&["build", "-p", SERVER])
}

/// A server of the machine's NIC. It ends with the value.
struct ServedNic {
    server: Child,
    socket: PathBuf,
}

impl ServedNic {
    fn start(folder: &Path) -> Result<Self, Failure> {
        let program = cargo::target_dir()?.join("debug").join(SERVER);
        let socket = folder.join("nic");
        let mut command = Command::new(program);
        // A node of its own, whatever the settings of this process say, that leaves the address of the host free.
        command.arg("--socket").arg(&socket).env("URMA_EID", "random").stderr(Stdio::null());
        let server = command.spawn().map_err(Failure::system("starting the NIC's server"))?;
        let served = Self { server, socket };
        let end = now() + SERVER_BOUND;
        while !served.socket.exists() {
            if now() > end {
                return Err(Failure("the NIC's server does not listen".to_owned()));
            }
            pause(Duration::from_millis(5));
        }
        Ok(served)
    }
}

impl Drop for ServedNic {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Builds the program; returns its path.
fn program() -> Result<PathBuf, Failure> {
    let status = build().arg("--quiet").status().map_err(Failure::system("starting cargo"))?;
    if !status.success() {
        return Err(Failure(format!("{GUEST} cannot be built")));
    }
    Ok(cargo::target_dir()?.join(TARGET).join("debug").join(GUEST))
}

fn machine(folder: &Path, init: &Path) -> Result<VfioMachine, Missing> {
    if env::consts::ARCH != "x86_64" {
        return Err(Missing("the machine's program is built for x86-64 only".to_owned()));
    }
    VfioMachine::make(&VmTree::fetch(folder)?, folder, init)
}

/// A folder for the sockets of a network cable, whose paths must be short. It goes with the value.
struct CableFolder {
    folder: PathBuf,
    paths: WirePaths,
}

impl CableFolder {
    fn new() -> Result<Self, Failure> {
        let folder = env::temp_dir().join(format!("urma-vm-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(Failure::system("making a folder"))?;
        Ok(Self { paths: WirePaths::in_folder(&folder), folder })
    }
}

impl Drop for CableFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What a run of the machine gave.
struct MachineRun {
    /// Lines of the machine.
    report: GuestReport,
    /// Checks of this side.
    outside: Vec<(String, Result<(), String>)>,
}

/// One run of the machine, with its console in `log`.
fn run(machine: &VfioMachine, log: &Path) -> Result<MachineRun, Failure> {
    let wire = CableFolder::new()?;
    let nic = ServedNic::start(&wire.folder)?;
    let mut command = machine.command(MachineUse::Checks, &wire.paths, &nic.socket);
    let errors = fs::File::create(log.with_extension("qemu"));
    command.stderr(errors.map_err(Failure::system("making a log"))?);
    let mut cable = WireEnd::open(&wire.paths).map_err(Failure::system("opening the cable"))?;
    let mut console = Console::start(&mut command).map_err(Failure::system("starting QEMU"))?;
    let end = now() + BOUND;
    let (mut report, mut text) = (GuestReport::default(), String::new());
    while report.result.is_none() && now() < end {
        cable.step(now());
        match console.line(Duration::from_millis(2)) {
            ConsoleLine::Text(line) => {
                report.on_line(&line);
                text.push_str(&line);
                text.push('\n');
            }
            ConsoleLine::Silence => {}
            ConsoleLine::End => break,
        }
    }
    fs::write(log, text).map_err(Failure::system("writing a log"))?;
    Ok(MachineRun { report, outside: cable.results().to_vec() })
}

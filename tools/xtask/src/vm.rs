//! Virtual machines in which drivers run over the kernel's real VFIO, with the programs of both sides.
//!
//! Says when a machine is started, how long it may take, and that it is tried once more. Must not take for passed
//! what did not run.

use std::{
    env,
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use urma_vm::{
    Missing,
    console::{Console, ConsoleLine, GuestReport},
    packages::VmTree,
    vfio::{GuestProgram, MachineUse, VfioMachine, WirePaths},
    wire::WireEnd,
};

use crate::{
    cargo,
    clock::{now, pause},
    say::{Failure, TaskResult, say},
    step::{RunningStep, StepResult, Steps},
    suite::{self, TestProgram},
};

/// Longest time of one machine, from its start to its result.
const BOUND: Duration = Duration::from_secs(180);
/// Longest time until the server of the machine's NIC listens.
const SERVER_BOUND: Duration = Duration::from_secs(10);
/// Machines that are killed in `test`: what the first one leaves is what the second one is compared with.
const KILLS: u32 = 2;
/// The test that kills.
const KILL_TEST: [&str; 3] = [
    "--exact",
    "kill::survivors_of_killed_clients_get_one_completion_for_each_request",
    "--nocapture",
];
/// Variable with the socket of the daemon whose client a victim is.
const SOCKET: &str = "UBCORED_TEST_SOCKET";

/// The checks of the machine only.
pub(crate) fn test() -> TaskResult {
    let mut steps = Steps::new("vm", 1)?;
    steps.step("real VFIO in a virtual machine", found);
    steps.end()
}

/// Verbs programs of Linux rxe, each in a machine of its own, as hosts of in-network computing.
pub(crate) fn inc() -> TaskResult {
    // The test looks for programs of other packages beside its own.
    cargo::run(&["build", "-p", "inc-tools", "-p", "inc-controller", "--bins"])?;
    let test = ["test", "-p", "urma-interop", "--test", "inc"];
    cargo::run(&[&test[..], &["--", "--ignored", "--nocapture"]].concat())
}

/// A shell in a machine.
pub(crate) fn shell() -> TaskResult {
    let mut steps = Steps::new("vm", 1)?;
    steps.step("programs of the machine", |step| match ready(step) {
        Ok(Ok((programs, machine))) => {
            StepResult::one("the machine", in_shell(&machine, &programs))
        }
        Ok(Err(Missing(why))) => StepResult::one("the machine", Err(Failure(why))),
        Err(found) => found,
    });
    steps.end()
}

fn in_shell(machine: &VfioMachine, programs: &VmPrograms) -> TaskResult {
    say("a shell in the machine; `checks` runs the checks, `exit` or Ctrl-A x ends it");
    let wire = CableFolder::new()?;
    let nic = ServedNic::start(&programs.server, &wire.folder)?;
    let status = machine
        .command(MachineUse::Shell, Some(&wire.paths), &nic.sockets)
        .status()
        .map_err(Failure::system("starting QEMU"))?;
    if status.success() { Ok(()) } else { Err(Failure(format!("QEMU ended with {status}"))) }
}

/// Kills `rounds` machines, each at a random moment.
pub(crate) fn kill(rounds: u32) -> TaskResult {
    let mut steps = Steps::new("vm", 1)?;
    steps.step("machines that are killed", |step| match ready(step) {
        Ok(Ok((programs, _))) => killed(step, &programs, rounds),
        Ok(Err(missing)) => not_run(&missing),
        Err(found) => found,
    });
    steps.end()
}

/// What survivors of killed machines get: a test of the daemon, whose victims are machines.
fn killed(step: &mut RunningStep, programs: &VmPrograms, rounds: u32) -> StepResult {
    // Not the file that runs here: the build of the test programs may have replaced it.
    let own = match cargo::target_dir() {
        Ok(target) => target.join("debug/xtask").to_string_lossy().into_owned(),
        Err(failure) => return StepResult::one("this program", Err(failure)),
    };
    let rounds = rounds.to_string();
    let environment = [("UBCORED_VICTIM", own.as_str()), ("UBCORED_KILLS", &rounds)];
    let (found, empty) = suite::run(step, &[(&programs.daemon, &KILL_TEST)], &environment);
    found.or_empty(empty)
}

/// Becomes a machine whose device has requests under way, of the file system that was made last.
pub(crate) fn victim() -> TaskResult {
    let folder = folder()?;
    let missing = |Missing(why): Missing| Failure(why);
    let tree = VmTree::fetch(&folder).map_err(missing)?;
    let machine = VfioMachine::made(&tree, &folder).map_err(missing)?;
    let socket = env::var_os(SOCKET).ok_or_else(|| Failure(format!("{SOCKET} is not set")))?;
    let error = machine.command(MachineUse::Victim, None, &[socket.into()]).exec();
    Err(Failure(format!("starting QEMU: {error}")))
}

/// The checks of the machine, as a step.
pub(crate) fn found(step: &mut RunningStep) -> StepResult {
    let (programs, machine) = match ready(step) {
        Ok(Ok(ready)) => ready,
        Ok(Err(missing)) => return not_run(&missing),
        Err(found) => return found,
    };
    let found = checked(step, &machine, &programs);
    found.plus(killed(step, &programs, KILLS))
}

fn not_run(Missing(why): &Missing) -> StepResult {
    let skipped = vec![format!("real-VFIO tests NOT RUN: {}", why.replace('\n', " "))];
    StepResult { skipped, ..StepResult::default() }
}

/// Runs the checks in the machine, once more if its result is not whole.
fn checked(step: &mut RunningStep, machine: &VfioMachine, programs: &VmPrograms) -> StepResult {
    for attempt in ["first", "second and last"] {
        let log = step.log_of(&format!("{}.console", attempt.split(' ').next().unwrap_or("")));
        match run(machine, programs, &log) {
            Ok(run) if run.report.whole().is_ok() => return results(run),
            Ok(run) => {
                let why = run.report.whole().err().unwrap_or_default();
                say(&format!(
                    "        {attempt} run of the machine: {why}; {}",
                    cargo::shown(&log)
                ));
                if attempt != "first" {
                    let name = "real VFIO: the machine's result";
                    return results(run).plus(StepResult::one(name, Err(Failure(why))));
                }
            }
            Err(failure) => return StepResult::one("the machine", Err(failure)),
        }
    }
    StepResult::default()
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

/// A server of the machine's NIC. It ends with the value.
struct ServedNic {
    server: Child,
    /// Its socket, by a path for each function of the machine.
    sockets: [PathBuf; 2],
}

impl ServedNic {
    fn start(program: &Path, folder: &Path) -> Result<Self, Failure> {
        let socket = folder.join("nic");
        let mut command = Command::new(program);
        // A node of its own, whatever the settings of this process say, that leaves the address of the host free, and
        // reaches others by packets only.
        command.env("URMA_EID", "random").env("URMA_PATH", "packets");
        command.arg("--socket").arg(&socket).stderr(Stdio::null());
        // Tests reach the limits of the device, not those of a client.
        for quota in ["--jetties", "--jfcs", "--segments", "--paths", "--work", "--mappings"] {
            command.args([quota, "4294967295"]);
        }
        let server = command.spawn().map_err(Failure::system("starting the NIC's server"))?;
        let other = folder.join("nic-b");
        let linked = std::os::unix::fs::symlink(&socket, &other);
        let served = Self { server, sockets: [socket, other] };
        linked.map_err(Failure::system("making a link"))?;
        let end = now() + SERVER_BOUND;
        while !served.sockets[0].exists() {
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

/// Builds the programs and makes the machine with them. What fails is a result.
fn ready(step: &mut RunningStep) -> Result<Result<(VmPrograms, VfioMachine), Missing>, StepResult> {
    if env::consts::ARCH != "x86_64" {
        let why = "the machine's program is built for x86-64 only".to_owned();
        return Ok(Err(Missing(why)));
    }
    let programs = VmPrograms::build(step)?;
    let folder =
        folder().map_err(|failure| StepResult::one("the machine's folder", Err(failure)))?;
    let machine = VmTree::fetch(&folder)
        .and_then(|tree| VfioMachine::make(&tree, &folder, &programs.init, &programs.inside()));
    Ok(machine.map(|machine| (programs, machine)))
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
fn run(machine: &VfioMachine, programs: &VmPrograms, log: &Path) -> Result<MachineRun, Failure> {
    let wire = CableFolder::new()?;
    let nic = ServedNic::start(&programs.server, &wire.folder)?;
    let mut peers = HostPeers::new(&programs.perftest, log)?;
    let mut command = machine.command(peers.purpose(), Some(&wire.paths), &nic.sockets);
    let errors = File::create(log.with_extension("qemu"));
    command.stderr(errors.map_err(Failure::system("making a log"))?);
    let mut cable = WireEnd::open(&wire.paths).map_err(Failure::system("opening the cable"))?;
    let mut console = Console::start(&mut command).map_err(Failure::system("starting QEMU"))?;
    let end = now() + BOUND;
    let (mut report, mut text) = (GuestReport::default(), String::new());
    while report.result.is_none() && now() < end {
        cable.step(now());
        peers.step();
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
    let outside = cable.results().into_iter().chain(peers.results()).collect();
    Ok(MachineRun { report, outside })
}

/// Tests that run one after the other.
const TESTS: &[&str] = &["write_lat", "read_lat", "send_bw", "write_bw"];
/// What both sides of a test have.
const OPTIONS: &[&str] = &["-n", "50", "-s", "4096", "--wait-timeout", "170"];

/// Longest time from the machine's result to the end of the last process.
const LAST_BOUND: Duration = Duration::from_secs(10);

/// One process at a time.
struct HostPeers {
    program: PathBuf,
    log: PathBuf,
    port: u16,
    waiting: std::slice::Iter<'static, &'static str>,
    running: Option<(&'static str, Child)>,
    ended: Vec<(&'static str, Result<(), String>)>,
}

impl HostPeers {
    /// Starts the first one; what they print is kept beside `log`.
    fn new(program: &Path, log: &Path) -> Result<Self, Failure> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|found| found.local_addr());
        let port = free.map_err(Failure::system("looking for a free port"))?.port();
        let (program, log) = (program.to_path_buf(), log.with_extension("peers"));
        let (waiting, ended) = (TESTS.iter(), Vec::new());
        let mut peers = Self { program, log, port, waiting, running: None, ended };
        peers.step();
        Ok(peers)
    }

    /// What the machine is to do.
    const fn purpose(&self) -> MachineUse {
        MachineUse::Checks { port: self.port, peers: TESTS, options: OPTIONS }
    }

    /// Starts the next one when one has ended. To be called every few milliseconds.
    fn step(&mut self) {
        if let Some((name, child)) = &mut self.running {
            let result = match child.try_wait() {
                Ok(None) => return,
                Ok(Some(status)) if status.success() => Ok(()),
                Ok(Some(status)) => Err(format!("it ended with {status}")),
                Err(error) => Err(error.to_string()),
            };
            self.ended.push((name, result));
            self.running = None;
        }
        let Some(name) = self.waiting.next() else { return };
        match self.start(name) {
            Ok(child) => self.running = Some((name, child)),
            Err(error) => self.ended.push((name, Err(error.to_string()))),
        }
    }

    fn start(&self, name: &str) -> std::io::Result<Child> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.program);
        command.arg(name).args(["-P", &self.port.to_string(), "--bind_ip", "127.0.0.1"]);
        command.args(OPTIONS).env("URMA_EID", "random").env("URMA_PATH", "packets");
        command.stdout(log.try_clone()?).stderr(log).spawn()
    }

    /// A result of each test. The last process may end a little later than the machine's side of its test.
    fn results(&mut self) -> Vec<(String, Result<(), String>)> {
        let end = now() + LAST_BOUND;
        while self.running.is_some() && self.waiting.len() == 0 && now() < end {
            pause(Duration::from_millis(2));
            self.step();
        }
        let result = |name: &&str| {
            let ended = self.ended.iter().find(|(ended, _)| ended == name);
            let none = || Err("the machine did not come to its end".to_owned());
            let result = ended.map_or_else(none, |(_, result)| result.clone());
            (format!("urma_perftest {name}, seen from the host"), result)
        };
        TESTS.iter().map(result).collect()
    }
}

impl Drop for HostPeers {
    fn drop(&mut self) {
        if let Some((_, child)) = &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Target of the program that is the machine's first process: named, so that macros are built without its flags.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Package and name of that program.
const GUEST: &str = "urma-guest";
/// Test programs that are needed, or whose build brings a program that is. As in the other steps, the whole workspace is
/// selected, so that what it shares is not built once more.
const TEST_PROGRAMS: [&str; 7] =
    ["--workspace", "--test", "conformance", "--test", "daemon", "--test", "loopback"];

/// Files of the programs.
struct VmPrograms {
    /// The machine's first process, a static program.
    init: PathBuf,
    /// The server of the machine's NIC.
    server: PathBuf,
    perftest: PathBuf,
    /// Tests of the server.
    daemon: TestProgram,
    conformance: TestProgram,
}

impl VmPrograms {
    /// Builds them. What fails is a result.
    fn build(step: &mut RunningStep) -> Result<Self, StepResult> {
        let built = step.check("build of the first process", guest());
        if !built.failed.is_empty() {
            return Err(built);
        }
        let programs = suite::build(step, &TEST_PROGRAMS)?;
        Self::of(programs)
            .map_err(|failure| StepResult::one("programs of the machine", Err(failure)))
    }

    fn of(programs: Vec<TestProgram>) -> Result<Self, Failure> {
        let target = cargo::target_dir()?;
        let programs = programs.into_iter();
        let test = |package: &str, name: &str| {
            let found = programs.clone().find(|program| program.is_of(&[(package, name)]));
            found.ok_or_else(|| {
                Failure(format!("the test program {name} of {package} was not built"))
            })
        };
        Ok(Self {
            init: target.join(TARGET).join("debug").join(GUEST),
            server: target.join("debug/ubcored"),
            perftest: target.join("debug/urma_perftest"),
            daemon: test("ubcored", "daemon")?,
            conformance: test("urma-tests", "conformance")?,
        })
    }

    /// Programs in the machine beside the first one.
    fn inside(&self) -> [GuestProgram<'_>; 3] {
        [
            GuestProgram { file: self.conformance.file(), name: "conformance" },
            GuestProgram { file: self.daemon.file(), name: "daemon" },
            GuestProgram { file: &self.perftest, name: "urma_perftest" },
        ]
    }
}

fn guest() -> Command {
    let mut command = cargo::command(&["build", "-p", GUEST, "-F", "iommufd", "--target", TARGET]);
    command.env("RUSTFLAGS", "-C target-feature=+crt-static");
    command
}

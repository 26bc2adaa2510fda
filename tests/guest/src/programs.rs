//! Programs of this project in the machine, on functions of its NIC: the conformance suite, and `urma_perftest` with a peer
//! on the host.
//!
//! *Owns*: what they are started with. *Takes*: their output. *Gives*: a check for each test. *Must not*: know what they
//! do.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use udma_vfio::kernel::PciSysfs;

use crate::{CheckResult, Suite, during, nic, say};

/// Setup of the conformance suite on functions behind VFIO.
const SETUP: &str = "own.moved.rm.vfio";
/// The host, as the machine's card reaches it.
const HOST: &str = "10.0.2.2";

/// Runs each of them once.
pub(crate) fn run(suite: &mut Suite) {
    let functions = match functions() {
        Ok(functions) if functions.len() == 2 => functions,
        other => return suite.check("programs: two functions", Err(format!("{other:?}"))),
    };
    conformance(suite, &functions);
    let Some(peers) = super::word("urma.peers=") else { return };
    suite.check("programs: network", super::network());
    let words: Vec<_> = peers.split(':').collect();
    let &[port, tests, options] = words.as_slice() else {
        return suite.check("programs: peers", Err(format!("{peers:?} is not PORT:TESTS:OPTIONS")));
    };
    let options: Vec<_> = options.split(',').collect();
    for test in tests.split(',') {
        let name = format!("urma_perftest {test} with a peer on the host");
        suite.check(&name, perftest((test, port), &options, &functions[0]));
    }
}

/// Keeps a function busy until the machine is killed.
///
/// # Errors
/// It could not be started.
pub(crate) fn victim() -> CheckResult {
    let functions = functions()?;
    let mut victim = Command::new("/bin/daemon");
    victim.args(["--exact", "kill::victim", "--ignored", "--nocapture"]);
    let function = functions.first().ok_or("no function has the ids of the NIC")?;
    let status = victim.env("URMA_VFIO", function).status().map_err(during("starting it"))?;
    Err(format!("it ended with {status}"))
}

/// Addresses of the NIC's functions, bound to VFIO.
fn functions() -> Result<Vec<String>, String> {
    let sysfs = PciSysfs::default();
    let bind = |address| sysfs.bind(address).map(|()| address.to_string());
    let found = nic::functions(&sysfs).into_iter().map(|found| bind(found.address));
    found.collect::<Result<_, _>>().map_err(during("bind"))
}

/// Each test of the suite is a check.
fn conformance(suite: &mut Suite, functions: &[String]) {
    let mut command = Command::new("/bin/conformance");
    command.args([SETUP, "--test-threads", "1", "--color", "never"]);
    command.env("URMA_TEST_FUNCTIONS", functions.join(","));
    let ran = (|| {
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(during("starting it"))?;
        let output = child.stdout.take().ok_or("it has no output")?;
        let (mut passed, mut line) = (0, String::new());
        let mut output = BufReader::new(output);
        while matches!(output.read_line(&mut line), Ok(1..)) {
            match result(line.trim_end()) {
                Some((name, result)) => {
                    passed += u32::from(result.is_ok());
                    suite.check(&format!("conformance: {name}"), result);
                }
                None if line.trim().is_empty() => {}
                None => say(line.trim_end()),
            }
            line.clear();
        }
        let status = child.wait().map_err(during("waiting for it"))?;
        match passed {
            0 => Err(format!("no test passed; it ended with {status}")),
            _ if status.success() => Ok(()),
            _ => Err(format!("it ended with {status}")),
        }
    })();
    suite.check("conformance: the suite", ran);
}

/// The name and result of a test, if a line is that of a test.
fn result(line: &str) -> Option<(&str, CheckResult)> {
    let (name, word) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let why = || format!("{word}; what it says is below");
    Some((name.trim_end(), if word == "ok" { Ok(()) } else { Err(why()) }))
}

/// One test with the peer on the host.
fn perftest((test, port): (&str, &str), options: &[&str], function: &str) -> CheckResult {
    let mut command = Command::new("/bin/urma_perftest");
    command.args([test, "-S", HOST, "-P", port]).args(options).env("URMA_VFIO", function);
    let output = command.output().map_err(during("starting it"))?;
    for bytes in [&output.stdout, &output.stderr] {
        String::from_utf8_lossy(bytes).lines().for_each(say);
    }
    if output.status.success() { Ok(()) } else { Err(format!("it ended with {}", output.status)) }
}

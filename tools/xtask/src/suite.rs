//! Test programs: built by cargo in one go, then run from here.
//!
//! *Owns*: which of them run beside each other. *Takes*: arguments that select targets and features.
//! *Gives*: results, each by program. *Must not*: change what a program would do under `cargo test`:
//! its folder, its environment and its arguments are the same.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;

use crate::{
    cargo,
    child::{ChildEnd, LOOK, RunningChild},
    clock::pause,
    report::Report,
    say::{Failure, LogTail},
    step::{COMMAND_MAX, Failed, RunningStep, SKIPS, StepResult, whole},
};

/// Programs, each with its package, that run beside the others: some wait for timers and other
/// processes most of the time, some compute or build what is the same however long it takes.
const BESIDE: [(&str, &str); 10] = [
    ("urma-kill", "planted"),
    ("urma_perftest", "loopback"),
    ("urma-tests", "conformance"),
    ("urma-kill", "fork"),
    ("urma-tests", "urma_tests"),
    ("urma-core", "ui"),
    ("urma-contexts", "golden"),
    ("urma-contexts", "urma_contexts"),
    ("urma-recovery", "paths"),
    ("lab", "slice"),
];
/// Programs that only compute, in virtual time, for long: they come first.
const COMPUTING: [(&str, &str); 1] = [("urma-tests", "simulation")];
/// Programs that must have the machine for themselves: one runs C programs under valgrind, for which
/// the timeouts of the packet path are short, two count what a process does while none takes its
/// processor, two run a virtual machine whose timers are short.
const ALONE: [(&str, &str); 5] = [
    ("urma-c-tests", "installed"),
    ("urma-budget", "budget"),
    ("urma-budget", "instructions"),
    ("urma-interop", "rxe"),
    ("urma-interop", "jetties"),
];

/// Test program: a binary that cargo has built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TestProgram {
    /// Package that the program belongs to.
    pub(crate) package: String,
    /// Name of its target within the package.
    pub(crate) target: String,
    /// Whether it holds the unit tests of a library or program.
    is_unit: bool,
    /// Its main source, from the workspace's folder.
    source: String,
    version: String,
    dir: PathBuf,
    file: PathBuf,
}

impl TestProgram {
    /// Reads a message of cargo about something that it built; `None` if that is no test program.
    fn of(message: &Value) -> Option<Self> {
        let text = |value: &Value, key: &str| Some(value.get(key)?.as_str()?.to_owned());
        let is_test = message.get("profile")?.get("test")?.as_bool()?;
        let file = is_test.then(|| text(message, "executable"))??;
        let target = message.get("target")?;
        let kinds = target.get("kind")?.as_array()?;
        let id = text(message, "package_id")?;
        let (place, end) = id.rsplit_once('#')?;
        // The name is left out where it is that of the folder.
        let (package, version) = end.split_once('@').or(Some((place.rsplit('/').next()?, end)))?;
        let source = cargo::shown(Path::new(&text(target, "src_path")?));
        Some(Self {
            package: package.to_owned(),
            target: text(target, "name")?,
            is_unit: !kinds.iter().any(|kind| kind == "test"),
            source,
            version: version.to_owned(),
            dir: Path::new(&text(message, "manifest_path")?).parent()?.to_path_buf(),
            file: PathBuf::from(file),
        })
    }

    /// Returns the path of its file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The line by which cargo names a program that it runs.
    fn line(&self) -> String {
        let unit = if self.is_unit { "unittests " } else { "" };
        format!("     Running {unit}{} ({})\n", self.source, cargo::shown(&self.file))
    }

    /// Whether it is in `list`, which names packages and targets.
    pub(crate) fn is_of(&self, list: &[(&str, &str)]) -> bool {
        list.contains(&(self.package.as_str(), self.target.as_str()))
    }

    /// The program as cargo starts it.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.file);
        command.args(arguments).current_dir(&self.dir);
        command.env("CARGO_MANIFEST_DIR", &self.dir);
        command.env("CARGO_PKG_NAME", &self.package).env("CARGO_PKG_VERSION", &self.version);
        if env::var_os("URMA_EID").is_none() {
            // Nodes of tests are reached from this host only; those of other hosts have namespaces.
            command.env("URMA_EID", "random");
        }
        let old = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let own = self.file.ancestors().skip(1).take(2).map(Path::to_path_buf);
        if let Ok(paths) = env::join_paths(own.chain(env::split_paths(&old))) {
            command.env("LD_LIBRARY_PATH", paths);
        }
        command
    }
}

/// Builds the test programs that `arguments` of `cargo test` select. What fails is a result.
pub(crate) fn build(
    step: &mut RunningStep,
    arguments: &[&str],
) -> Result<Vec<TestProgram>, StepResult> {
    let how = ["test", "--no-run", "--message-format", "json-render-diagnostics"];
    let command = cargo::command(&[&how[..], arguments].concat());
    let text = step.output(command)?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs: Vec<TestProgram> =
        messages.filter_map(|message| TestProgram::of(&message)).collect();
    programs.sort_by(|a, b| (&a.source, &a.target).cmp(&(&b.source, &b.target)));
    Ok(programs)
}

/// A program, and the arguments that it is started with.
pub(crate) type ProgramJob<'a> = (&'a TestProgram, &'a [&'a str]);

/// A program at work.
struct RunningProgram<'a> {
    program: &'a TestProgram,
    running: RunningChild,
    tail: LogTail,
    log: PathBuf,
    skips: PathBuf,
}

/// Runs `jobs`, with `environment` besides the usual one. Two run at a time where one of them may
/// run beside others; those that need the machine for themselves come last.
///
/// Gives the results, and the programs that ran no test.
pub(crate) fn run(
    step: &mut RunningStep,
    jobs: &[ProgramJob<'_>],
    environment: &[(&str, &str)],
) -> (StepResult, Vec<String>) {
    let is_alone = |job: &&ProgramJob<'_>| job.0.is_of(&ALONE);
    let is_beside = |job: &&ProgramJob<'_>| job.0.is_of(&BESIDE) && !is_alone(job);
    let is_usual = |job: &&ProgramJob<'_>| !is_beside(job) && !is_alone(job);
    let of = |which: &dyn Fn(&&ProgramJob<'_>) -> bool| -> Vec<ProgramJob<'_>> {
        jobs.iter().filter(|job| which(job)).copied().collect()
    };
    let (count, found) = (jobs.len(), StepResult::default());
    let mut all =
        ProgramRuns { done: 0, count, environment, found, empty: Vec::new(), times: Vec::new() };
    let mut usual = of(&is_usual);
    usual.sort_by_key(|(program, _)| !program.is_of(&COMPUTING));
    all.side_by_side(step, [usual, of(&is_beside)]);
    all.side_by_side(step, [of(&is_alone), Vec::new()]);
    all.times.sort();
    let line =
        |(took, name): &(Duration, String)| format!("{:7.2} s  {name}\n", took.as_secs_f64());
    let times: String = all.times.iter().rev().map(line).collect();
    // For who wonders; the result does not depend on it.
    let _ = fs::write(step.log_of("times"), times);
    (all.found, all.empty)
}

/// Programs that run, and what those that ended gave.
struct ProgramRuns<'a> {
    done: usize,
    count: usize,
    environment: &'a [(&'a str, &'a str)],
    found: StepResult,
    /// Programs that ran no test.
    empty: Vec<String>,
    times: Vec<(Duration, String)>,
}

impl ProgramRuns<'_> {
    /// Runs the lists beside each other, the programs of each one after the other.
    fn side_by_side(&mut self, step: &mut RunningStep, lists: [Vec<ProgramJob<'_>>; 2]) {
        let mut waiting = lists.map(Vec::into_iter);
        let mut lanes: [Option<RunningProgram<'_>>; 2] = [None, None];
        loop {
            for (lane, jobs) in lanes.iter_mut().zip(&mut waiting) {
                if lane.is_none()
                    && let Some(job) = jobs.next()
                {
                    *lane = self.start(step, job);
                }
                if let Some(running) = lane {
                    match running.running.ended() {
                        Ok(None) => {}
                        Ok(Some(ended)) => {
                            self.end(running, ended);
                            *lane = None;
                        }
                        Err(failure) => {
                            self.fail(running.program, failure);
                            *lane = None;
                        }
                    }
                }
            }
            if lanes.iter().all(Option::is_none) && waiting.iter().all(|jobs| jobs.len() == 0) {
                return;
            }
            let counts = format!("{}/{}", self.done, self.count);
            let states = |lanes: &mut [Option<RunningProgram<'_>>; 2]| {
                let states = lanes.iter_mut().flatten().map(|lane| lane.state());
                states.collect::<Vec<_>>().join(", ")
            };
            step.progress().show(|| format!("{counts} {}", states(&mut lanes)));
            pause(LOOK);
        }
    }

    fn start<'p>(
        &mut self,
        step: &RunningStep,
        (program, arguments): ProgramJob<'p>,
    ) -> Option<RunningProgram<'p>> {
        let unit = if program.is_unit { "-unit" } else { "" };
        let name = format!("{}.{}{unit}", program.package, program.target);
        let (log, skips) =
            (step.log_of(&format!("{name}.log")), step.log_of(&format!("{name}.skips")));
        let _ = fs::remove_file(&skips);
        let mut command = whole(program.command(arguments));
        command.envs(self.environment.iter().copied()).env(SKIPS, &skips);
        match RunningChild::start(command, &log, COMMAND_MAX) {
            Ok(running) => {
                let tail = LogTail::new(&log);
                Some(RunningProgram { program, running, tail, log, skips })
            }
            Err(failure) => {
                self.fail(program, failure);
                None
            }
        }
    }

    fn end(&mut self, lane: &RunningProgram<'_>, ended: ChildEnd) {
        let text = format!("{}{}", lane.program.line(), ended.text);
        let skips = fs::read_to_string(&lane.skips).unwrap_or_default();
        let report = Report::of(&text, ended.is_success());
        self.empty.extend(report.empty.iter().cloned());
        self.found =
            std::mem::take(&mut self.found).plus(StepResult::of(report, &skips, &lane.log));
        self.times.push((ended.took, format!("{} {}", lane.program.package, lane.program.source)));
        self.done += 1;
    }

    fn fail(&mut self, program: &TestProgram, Failure(message): Failure) {
        let name = format!("{} {}", program.target, program.source);
        self.found.failed.push(Failed { name, message, log: None });
        self.done += 1;
    }
}

impl RunningProgram<'_> {
    /// The program and how many of its tests ended.
    fn state(&mut self) -> String {
        format!("{} {}", self.program.target, self.tail.state())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::step::Steps;

    /// A program that is a script of the shell with the body `body`, in a folder of the test `test`.
    pub(crate) fn script(test: &str, package: &str, target: &str, body: &str) -> TestProgram {
        let dir = folder(test);
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join(format!("{target}-1"));
        // A file that this process writes is busy while another thread starts a program.
        let mut write = Command::new("sh");
        write.args(["-c", "printf '#!/bin/sh\n%s\n' \"$BODY\" > \"$FILE\" && chmod 755 \"$FILE\""]);
        assert!(write.env("BODY", body).env("FILE", &file).status().unwrap().success());
        TestProgram {
            package: package.to_owned(),
            target: target.to_owned(),
            is_unit: false,
            source: format!("tests/{target}.rs"),
            version: "0.1.0".to_owned(),
            dir,
            file,
        }
    }

    fn folder(test: &str) -> PathBuf {
        cargo::target_dir().unwrap().join("tmp").join(test)
    }

    /// What a test program prints for `names`, all of which pass.
    fn ok(names: &[&str]) -> String {
        let lines: String =
            names.iter().map(|name| format!("echo 'test {name} ... ok'\n")).collect();
        format!("{lines}echo 'test result: ok. {} passed; 0 failed;'", names.len())
    }

    /// Runs `programs` in a step of their own.
    fn ran(task: &str, programs: &[TestProgram], arguments: &[&str]) -> (StepResult, Vec<String>) {
        let jobs: Vec<ProgramJob<'_>> =
            programs.iter().map(|program| (program, arguments)).collect();
        let mut result = None;
        let mut steps = Steps::new(task, 1).unwrap();
        steps.step("programs", |step| {
            result = Some(run(step, &jobs, &[("MORE", "more")]));
            StepResult::default()
        });
        result.unwrap()
    }

    #[test]
    fn only_test_programs_are_read_from_messages() {
        let root = cargo::root();
        let message = |is_test: bool, kind: &str, id: &str| {
            json!({
                "reason": "compiler-artifact",
                "package_id": id,
                "manifest_path": root.join("tests/kill/Cargo.toml"),
                "target": { "kind": [kind], "name": "x", "src_path": root.join("tests/kill/x.rs") },
                "profile": { "test": is_test },
                "executable": is_test.then_some("/built/deps/x-1"),
            })
        };
        let read = |kind, id| TestProgram::of(&message(true, kind, id)).unwrap();
        let integration = read("test", "path+file:///a/tests/kill#urma-kill@0.2.0");
        assert_eq!((&*integration.package, &*integration.version), ("urma-kill", "0.2.0"));
        assert_eq!(integration.line(), "     Running tests/kill/x.rs (/built/deps/x-1)\n");
        assert_eq!(integration.dir, root.join("tests/kill"));
        let unit = read("lib", "path+file:///a/urma-mem#0.1.0");
        assert_eq!((&*unit.package, &*unit.version), ("urma-mem", "0.1.0"));
        assert_eq!(unit.line(), "     Running unittests tests/kill/x.rs (/built/deps/x-1)\n");
        assert_eq!(TestProgram::of(&message(false, "bin", "path+file:///a/b#0.1.0")), None);
    }

    #[test]
    fn programs_run_as_cargo_runs_them() {
        let script_text = format!(
        "[ \"$(basename \"$PWD\")\" = test-suite-env ] && [ \"$CARGO_MANIFEST_DIR\" = \"$PWD\" ] || exit 1
         [ \"$CARGO_PKG_NAME $1 $MORE\" = 'suite-env planted more' ] || exit 2
         case $LD_LIBRARY_PATH in \"$PWD\":*) ;; *) exit 3;; esac\n{}",
        ok(&["a"])
    );
        let (found, empty) = ran(
            "test-suite-env",
            &[script("test-suite-env", "suite-env", "env", &script_text)],
            &["planted"],
        );
        assert_eq!((found.failed, empty), (Vec::new(), Vec::new()));
        assert_eq!(found.passed, ["env tests/env.rs::a"]);
    }

    #[test]
    fn every_program_runs_and_is_named_in_its_results() {
        let skips = "echo 'SKIPPED: a: no reason' >> $URMA_SKIPS\n";
        let programs = [
            script("test-suite-all", "urma-kill", "planted", &format!("sleep 0.1; {}", ok(&["w"]))),
            script("test-suite-all", "x", "one", &ok(&["a", "b"])),
            script("test-suite-all", "x", "two", &format!("{skips}{}", ok(&["a", "b"]))),
            script("test-suite-all", "x", "three", "echo 'test c ... ok'; kill -9 $$"),
            script("test-suite-all", "x", "four", &ok(&[])),
            script("test-suite-all", "urma-budget", "budget", &ok(&["alone"])),
        ];
        let (mut found, empty) = ran("test-suite-all", &programs, &[]);
        found.passed.sort();
        let passed = [
            "budget tests/budget.rs::alone",
            "one tests/one.rs::a",
            "one tests/one.rs::b",
            "planted tests/planted.rs::w",
            "two tests/two.rs::b",
        ];
        assert_eq!(found.passed, passed);
        assert_eq!(found.skipped, ["a: no reason"]);
        let failed: Vec<_> = found.failed.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(failed, ["three tests/three.rs"]);
        assert_eq!(empty, ["four tests/four.rs"]);
        let log = found.failed[0].log.clone().unwrap();
        assert!(log.ends_with("xtask/logs/test-suite-all/01-programs.x.three.log"), "{log:?}");
    }

    #[test]
    fn programs_that_wait_run_beside_others_and_some_run_alone() {
        let mark = folder("test-suite-beside").join("beside");
        let _ = fs::remove_dir_all(&mark);
        fs::create_dir_all(&mark).unwrap();
        // Each sees what runs beside it: the first two wait for each other, the last one sees neither.
        let meets = |own: &str, other: &str| {
            format!(
                "touch beside/{own}; for i in 1 2 3 4 5 6 7 8 9 10; do [ -e beside/{other} ] && break; \
             sleep 0.2; done; [ -e beside/{other} ] || exit 1; sleep 0.1; touch beside/{own}-ended\n{}",
                ok(&[own])
            )
        };
        let alone =
            format!("[ -e beside/one-ended ] && [ -e beside/two-ended ] || exit 1\n{}", ok(&["x"]));
        let programs = [
            script("test-suite-beside", "urma-budget", "budget", &alone),
            script("test-suite-beside", "urma-kill", "planted", &meets("one", "two")),
            script("test-suite-beside", "x", "usual", &meets("two", "one")),
        ];
        let (found, _) = ran("test-suite-beside", &programs, &[]);
        assert_eq!(found.failed, []);
    }
}

//! Programs that `urma_admin run` starts, as root and as another user.
//!
//! *Takes*: `launched/client.c`, a program in the manner of known clients, which drop a device that the
//! kernel's class does not have.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::LazyLock,
};

use urma_c_tests::{GCC, Prefix, root};

/// An installation: libraries, the launcher, the client.
struct Tree {
    admin: PathBuf,
    client: PathBuf,
}

static TREE: LazyLock<Tree> = LazyLock::new(|| {
    let prefix = Prefix::install("launcher", &[]);
    let include = format!("-I{}", root().join("examples/c").display());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/launched/client.c");
    let mut flags = vec![include, "-Wl,--no-as-needed".to_owned()];
    flags.extend(prefix.flags(&["--libs"]));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    // Without a run path: the library comes from the environment alone.
    let client = GCC.build_alone(&prefix, &source, &flags);
    let admin = prefix.path.join("bin/urma_admin");
    fs::create_dir_all(prefix.path.join("bin")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_urma_admin"), &admin).unwrap();
    Tree { admin, client }
});

/// Starts the launcher as the user of this test, or by way of `before`.
fn launch(before: &[&str], options: &[&str], args: &[&str]) -> Output {
    let (admin, client) = (TREE.admin.to_str().unwrap(), TREE.client.to_str().unwrap());
    let words = [before, &[admin, "run"], options, &["--", client], args].concat();
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5", "120"])
        .args(words)
        .env_remove("LD_LIBRARY_PATH")
        .env("URMA_EID", "random");
    command.current_dir("/").output().unwrap()
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether the system gives no namespaces; the test is counted as skipped then.
fn is_refused(output: &Output) -> bool {
    let why = said(&output.stderr);
    let is_refused = output.status.code() == Some(125) && why.contains("gives no mount namespace");
    if is_refused {
        urma_skip::skip(why.trim());
    }
    is_refused
}

fn is_good(output: &Output, lines: &[&str]) {
    let (out, err) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{:?}: {out}{err}", output.status);
    for line in lines {
        assert!(out.contains(line), "{line}: {out}{err}");
    }
}

#[test]
fn a_client_finds_its_device_and_moves_data() {
    let output = launch(&[], &[], &[]);
    if is_refused(&output) {
        return;
    }
    is_good(&output, &["device udma0 user", "release 2606 moved data"]);
    assert!(!Path::new("/sys/class/ubcore/udma0").exists(), "nothing is seen outside");
}

#[test]
fn another_user_keeps_its_number() {
    if !nix::unistd::Uid::effective().is_root() {
        return urma_skip::skip("only root becomes another user");
    }
    let other = ["setpriv", "--reuid", "4711", "--regid", "4711", "--clear-groups"];
    let reads = [&other[..], &["test", "-x", TREE.client.to_str().unwrap()]].concat();
    if !Command::new(reads[0]).args(&reads[1..]).status().is_ok_and(|status| status.success()) {
        return urma_skip::skip("another user does not reach the folder of the build");
    }
    let output = launch(&other, &[], &[]);
    if is_refused(&output) {
        return;
    }
    is_good(&output, &["device udma0 user 4711", "release 2606 moved data"]);
}

#[test]
fn an_alias_is_a_device_of_the_class() {
    let output = launch(&[], &["--alias", "bonding_dev_0"], &[]);
    if is_refused(&output) {
        return;
    }
    is_good(&output, &["device udma0 ", "device bonding_dev_0 ", "moved data"]);
    let refused = launch(&[], &["--alias", "../x"], &[]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(said(&refused.stderr).contains("has to be a file name"), "{refused:?}");
}

#[test]
fn the_end_of_the_program_is_its_own() {
    let output = launch(&[], &[], &["--exit", "42"]);
    if is_refused(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(42), "{output:?}");
    // `timeout` dies by no signal of its child's; a shell says 128 more.
    let output = launch(&["sh", "-c", "\"$@\"; exit $?", "sh"], &[], &["--signal"]);
    assert_eq!((output.status.code(), output.status.signal()), (Some(128 + 15), None));
}

#[test]
fn releases_are_those_that_are_installed() {
    let output = launch(&[], &["--release", "26.06"], &[]);
    if is_refused(&output) {
        return;
    }
    is_good(&output, &["release 2606 moved data"]);
    assert!(!said(&output.stderr).contains("was built for"), "it is of that release: {output:?}");
    let missing = launch(&[], &["--release", "25.12.0.B081"], &[]);
    let why = said(&missing.stderr);
    assert_eq!(missing.status.code(), Some(125), "{why}");
    assert!(
        why.contains("no liburma.so.0 of release 25.12.0.B081") && why.contains("install --abi")
    );
    assert_eq!(launch(&[], &["--release", "1.0"], &[]).status.code(), Some(2));
}

/// A program without the project's headers, with the structs of a release in its debug information.
fn stranger(name: &str, device_attr: u32, flags: &[&str]) -> PathBuf {
    let folder = urma_c_tests::scratch(&format!("launched-{name}"));
    let source = folder.join("stranger.c");
    let text = format!(
        "#include <stdio.h>\n\
         typedef struct urma_device_attr {{ char bytes[{device_attr}]; }} urma_device_attr_t;\n\
         int urma_init(void *);\nint urma_uninit(void);\n\
         int main(void) {{ urma_device_attr_t attr = {{{{0}}}}; urma_init(0); urma_uninit();\n\
         printf(\"stranger runs %d\\n\", attr.bytes[0]); return 0; }}\n"
    );
    fs::write(&source, text).unwrap();
    let program = folder.join("stranger");
    let mut gcc = Command::new("gcc");
    gcc.args(flags).arg("-o").arg(&program).arg(&source);
    gcc.arg(TREE.admin.with_file_name("../lib/liburma.so.0"));
    assert!(gcc.status().unwrap().success());
    program
}

fn launch_stranger(options: &[&str], program: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120"]).arg(&TREE.admin).arg("run").args(options);
    command.arg("--").arg(program).env_remove("LD_LIBRARY_PATH").env("URMA_EID", "random");
    command.output().unwrap()
}

#[test]
fn a_program_of_a_release_without_a_library_is_refused_with_the_cure() {
    let program = stranger("older", 488, &["-g"]);
    let output = launch_stranger(&[], &program);
    let why = said(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{why}{}", said(&output.stdout));
    for part in [
        "was built for release 25.12.0.B081",
        "urma_device_attr has 488 bytes",
        "no liburma.so.0 of release 25.12.0.B081 lies in",
        "install --abi 26.06 --abi 25.12.0.B081",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let oldest = launch_stranger(&[], &stranger("oldest", 312, &["-g"]));
    assert_eq!(oldest.status.code(), Some(125));
    let why = said(&oldest.stderr);
    assert!(why.contains("release 24.12") && why.contains("there is no library of it"), "{why}");
    // Who says so gets it, and reads what it is.
    let forced = launch_stranger(&["--release", "26.06"], &program);
    if is_refused(&forced) {
        return;
    }
    is_good(&forced, &["stranger runs"]);
    let notice = said(&forced.stderr);
    assert!(notice.contains("25.12.0.B081") && notice.contains("--release gives it 26.06"));
}

#[test]
fn a_program_without_debug_information_is_named_as_unknown() {
    let output = launch_stranger(&[], &stranger("stripped", 488, &["-s"]));
    if is_refused(&output) {
        return;
    }
    is_good(&output, &["stranger runs"]);
    let notice = said(&output.stderr);
    let parts = ["is unknown", "it gets the library of 26.06", "--release RELEASE"];
    assert!(parts.iter().all(|part| notice.contains(part)), "{notice}");
    // One that has nothing to do with URMA, and one of the library's release, are started without a word.
    for (program, says) in [(Path::new("/bin/echo"), ""), (&*TREE.client, "moved data")] {
        let quiet = launch_stranger(&[], program);
        is_good(&quiet, &[says]);
        assert!(!said(&quiet.stderr).contains("release"), "{quiet:?}");
    }
}

#[test]
fn a_bonding_device_is_there_unless_it_is_not_wanted_and_is_found_by_the_eid() {
    let output = launch(&[], &[], &[]);
    if is_refused(&output) {
        return;
    }
    let lines = ["device bonding_dev_0 ", "device udma0 ", "by EID bonding_dev_0", "moved data"];
    is_good(&output, &lines);
    let text = said(&output.stdout);
    assert!(text.find("device bonding_dev_0") < text.find("device udma0"), "{text}");
    let alone = launch(&[], &["--alias", ""], &[]);
    is_good(&alone, &["device udma0 ", "by EID udma0", "moved data"]);
    assert!(!said(&alone.stdout).contains("bonding"), "{alone:?}");
    let other = launch(&[], &["--alias", "second"], &[]);
    is_good(&other, &["device second ", "by EID udma0"]);
    assert!(!said(&other.stdout).contains("bonding"), "{other:?}");
}

/// A launcher beside which no library lies leaves the choice to the loader, and looks at what it will choose.
#[test]
fn a_library_of_the_environment_is_judged_as_an_installed_one() {
    let folder = urma_c_tests::scratch("launched-alone");
    let admin = folder.join("urma_admin");
    fs::copy(&TREE.admin, &admin).unwrap();
    let lib = TREE.admin.with_file_name("../lib").canonicalize().unwrap();
    let launch = |program: &Path| {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "120"]).arg(&admin).args(["run", "--"]).arg(program);
        command.env("LD_LIBRARY_PATH", &lib).env("URMA_EID", "random").output().unwrap()
    };
    let output = launch(&TREE.client);
    if is_refused(&output) {
        return;
    }
    is_good(&output, &["release 2606 moved data"]);
    let refused = launch(&stranger("elsewhere", 488, &["-g"]));
    let why = said(&refused.stderr);
    assert_eq!(refused.status.code(), Some(125), "{why}");
    assert!(why.contains("was built for release 25.12.0.B081"), "{why}");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let output =
        Command::new(&TREE.admin).args(["run", "--", "/nowhere/program"]).output().unwrap();
    if is_refused(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert!(said(&output.stderr).contains("/nowhere/program: "), "{output:?}");
}

//! Each sign of more rights than the caller's is enough by itself.
//!
//! *Takes*: this test program, started again: not dumpable, with another effective user, or as a copy with setgid; signs that
//! the kernel adds to another one are taken back first. *Gives*: whether the environment was obeyed.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use nix::{
    sys::prctl::set_dumpable,
    unistd::{Gid, Uid, getegid, geteuid, getgid, setegid, seteuid},
};
use urma_mem::environment::{more_rights, variable};

/// Says to the program that was started again what it is to be.
const ROLE: &str = "URMA_RIGHTS_ROLE";
/// A user and a group of this number, who own nothing.
const OTHER: u32 = 4711;
/// What the program says when the kernel gave it no more rights.
const NO_MORE: &str = "no more rights";

/// The program that was started again; nothing in a usual run.
#[test]
fn in_its_role() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    let why = match role.to_str() {
        Some("undumpable") => {
            assert!(variable(ROLE).is_some());
            set_dumpable(false).unwrap();
            "it is not dumpable"
        }
        Some("other user") => {
            seteuid(Uid::from_raw(OTHER)).unwrap();
            set_dumpable(true).unwrap();
            "its effective user or group is another one"
        }
        _ => {
            if getgid() == getegid() {
                println!("{NO_MORE}");
                return;
            }
            setegid(getgid()).unwrap();
            set_dumpable(true).unwrap();
            "setuid, setgid or capabilities of its file"
        }
    };
    assert_eq!((variable(ROLE), more_rights()), (None, Some(why)));
    println!("obeyed nothing");
}

fn start(program: &Path, role: &str, user: &[&str]) -> Output {
    let words =
        [user, &[program.to_str().unwrap(), "--exact", "in_its_role", "--nocapture"]].concat();
    Command::new(words[0]).args(&words[1..]).env(ROLE, role).output().unwrap()
}

fn obeys_nothing(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("obeyed nothing"), "{output:?}");
}

#[test]
fn a_process_that_is_not_dumpable_obeys_no_variable() {
    obeys_nothing(&start(&std::env::current_exe().unwrap(), "undumpable", &[]));
}

#[test]
fn each_sign_of_more_rights_is_enough() {
    if !geteuid().is_root() {
        return urma_skip::skip("only root makes programs with more rights");
    }
    let own = std::env::current_exe().unwrap();
    obeys_nothing(&start(&own, "other user", &[]));
    let copy = std::env::temp_dir().join(format!("urma-rights-{}", std::process::id()));
    fs::copy(own, &copy).unwrap();
    std::os::unix::fs::chown(&copy, None, Some(Gid::from_raw(65534).as_raw())).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o2755)).unwrap();
    let other = OTHER.to_string();
    let user = ["setpriv", "--reuid", &other, "--regid", &other, "--clear-groups"];
    let output = start(&copy, "setgid", &user);
    fs::remove_file(&copy).unwrap();
    if String::from_utf8_lossy(&output.stdout).contains(NO_MORE) {
        return urma_skip::skip("programs of the folder for temporary files get no rights");
    }
    obeys_nothing(&output);
}

//! A program with more rights than its caller takes no setting from that caller.
//!
//! *Takes*: copies of the built program with setuid, setgid or capabilities of the file; started as
//! another user, who chose the environment and the files. *Gives*: where each setting came from.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

/// A user and a group of this number, who own nothing.
const CALLER: &str = "4711";
/// Extended attribute with the capabilities of a file: version 2, effective, CAP_NET_RAW permitted.
const CAPABILITIES: (&str, [u8; 20]) =
    ("security.capability", [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);

/// A folder that every user reaches; gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("urma-rights-{}", std::process::id()));
        // What an earlier process of this number left.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("home/urma")).unwrap();
        for folder in [path.clone(), path.join("home"), path.join("home/urma")] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(path.join("home/urma/urma.toml"), "lane = false\n").unwrap();
        fs::write(path.join("other.toml"), "prepare = 0\n").unwrap();
        Self(path)
    }

    /// A copy of the program with these bits.
    fn copy(&self, name: &str, mode: u32) -> PathBuf {
        let to = self.0.join(name);
        fs::copy(env!("CARGO_BIN_EXE_urma_admin"), &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).unwrap();
        to
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing else is known of it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What keeps files of this folder from giving rights; `None`: nothing.
fn obstacle(folder: &Path) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root makes programs with more rights".to_owned());
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    if status.lines().any(|line| line.starts_with("NoNewPrivs:") && line.ends_with('1')) {
        return Some("no process here gets new privileges".to_owned());
    }
    let flags = rustix::fs::statvfs(folder).unwrap().f_flag;
    let is_off = flags.contains(rustix::fs::StatVfsMountFlags::NOSUID);
    is_off.then(|| format!("{} is mounted with nosuid", folder.display()))
}

fn start(program: &Path, folder: &Folder, named: bool) -> Output {
    let mut command = Command::new("timeout");
    command.args(["60", "setpriv", "--reuid", CALLER, "--regid", CALLER, "--clear-groups"]);
    command.arg(program).args(["config", "--json"]).env_clear().current_dir("/");
    command.env("PATH", "/usr/bin:/bin").env("URMA_UBCORED", "/tmp/of-the-caller.sock");
    command.env("URMA_MTU", "1024").env("XDG_CONFIG_HOME", folder.0.join("home"));
    if named {
        command.env("URMA_CONFIG", folder.0.join("other.toml"));
    }
    command.output().unwrap()
}

/// Where each setting was set.
fn origins(output: &Output) -> BTreeMap<String, String> {
    assert!(output.status.success(), "{output:?}");
    let document: BTreeMap<String, Value> = serde_json::from_slice(&output.stdout).unwrap();
    let origin = |value: Value| value["origin"].as_str().unwrap().to_owned();
    document.into_iter().map(|(key, value)| (key, origin(value))).collect()
}

#[test]
fn a_program_with_more_rights_takes_nothing_of_its_caller() {
    let folder = Folder::new();
    if let Some(why) = obstacle(&folder.0) {
        return urma_skip::skip(why);
    }
    // Without more rights the caller is obeyed, so that what follows is no accident.
    let plain = folder.copy("plain", 0o755);
    let of_plain = origins(&start(&plain, &folder, false));
    assert_eq!(of_plain["ubcored"], "environment");
    assert!(of_plain["lane"].starts_with(folder.0.to_str().unwrap()), "{of_plain:?}");
    assert!(origins(&start(&plain, &folder, true))["prepare"].ends_with("other.toml:1"));

    let with_capabilities = folder.copy("capabilities", 0o755);
    let (name, value) = CAPABILITIES;
    rustix::fs::setxattr(&with_capabilities, name, &value, rustix::fs::XattrFlags::empty())
        .unwrap();
    let programs =
        [folder.copy("setuid", 0o4755), folder.copy("setgid", 0o2755), with_capabilities];
    for program in programs {
        for named in [false, true] {
            let output = start(&program, &folder, named);
            let ours = |of: &&String| *of == "environment" || of.starts_with("/tmp");
            let origins = origins(&output);
            assert_eq!(origins.values().find(ours), None, "{program:?}: {origins:?}");
            let said = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<_> = said.lines().filter(|line| line.contains("ignored: ")).collect();
            assert_eq!(lines.len(), 1, "{program:?}: {said}");
            assert!(lines[0].contains("URMA_MTU, URMA_UBCORED"), "{program:?}: {said}");
        }
    }
}

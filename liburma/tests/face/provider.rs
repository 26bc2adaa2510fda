//! Third-party providers: built from C, found in a folder, matched with devices, run and unloaded.
//!
//! *Owns*: a folder of providers, one that works among many that do not, and a folder of devices in
//! the form of the kernel's class. *Takes*: `tests/c/provider*.c`, `registry.c`. *Gives*: a failure with what the
//! program said; the log must name each provider that was skipped, and why.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::{build, here, soname};

/// A fresh folder of this test.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("provider-{name}"));
    // What an earlier run left.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Builds a shared object from `tests/c/<source>.c`.
fn object(source: &str, to: &Path, more: &[&str]) {
    let mut command = Command::new("gcc");
    command.args(["-shared", "-fPIC", "-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror"]);
    if cfg!(feature = "abi-25-12-0-b081") {
        command.arg("-DURMA_ABI_PROFILE=2512");
    }
    command.arg("-I").arg(here("include")).arg("-o").arg(to);
    command.arg(here("tests/c").join(format!("{source}.c"))).args(more).arg(soname());
    let built = command.output().expect("gcc starts");
    assert!(built.status.success(), "{source}: {}", String::from_utf8_lossy(&built.stderr));
}

/// One device of the class, as the kernel's module describes devices.
fn device(class: &Path, name: &str, driver: &str, ids: (&str, &str)) {
    let files = [
        ("ubdev", name),
        ("driver_name", driver),
        ("transport_type", "0"),
        ("device/vendor", ids.0),
        ("device/device", ids.1),
        ("max_eid_cnt", "4"),
        ("eids/eid0", "0000:0000:0000:0000:0000:ffff:7f09:0009"),
        ("eids/eid2", if name == "sample0" { "127.9.0.11" } else { "127.9.0.12" }),
        ("max_jfc_depth", "64"),
        ("max_jfs_depth", "64"),
        ("max_jfr_depth", "64"),
        ("max_jfs_sge", "4"),
        ("max_jfs_rsge", "4"),
        ("max_jfr_sge", "4"),
        ("max_jfs_inline_size", "64"),
        ("max_msg_size", "0x10000"),
        ("port_count", "1"),
        ("port0/active_mtu", "4"),
        ("reserved_jetty_id", "2-9"),
    ];
    for (file, value) in files {
        let path = class.join(name).join(file);
        fs::create_dir_all(path.parent().expect("inside the class")).expect("a folder");
        fs::write(path, format!("{value}\n")).expect("a value");
    }
}

/// Three devices that providers drive, one of which has the name of another, and one of no provider.
fn class(name: &str) -> PathBuf {
    let class = folder(name);
    device(&class, "sample0", "sample", ("0x1", "0x2"));
    device(&class, "by_ids", "another", ("0x5a5a", "1"));
    device(&class, "stranger", "another", ("0x5a5a", "2"));
    device(&class, "zz_copy", "sample", ("0", "0"));
    fs::write(class.join("zz_copy/ubdev"), "udma0\n").expect("a value");
    // The class's own file, and what else may lie there.
    fs::create_dir(class.join("ubcore")).expect("a folder");
    fs::write(class.join("version"), "1\n").expect("a file");
    class
}

/// Each broken provider by file name, with what the log must say of it.
fn broken(folder: &Path) -> Vec<(&'static str, &'static str)> {
    let kinds = [
        (1, "liburma_silent.so", "it registers no provider when it is loaded"),
        (2, "liburma_null.so", "it registers no provider when it is loaded"),
        (3, "liburma_nameless.so", "it registers no provider when it is loaded"),
        (4, "liburma_no_init.so", "it lacks init"),
        (5, "liburma_no_context.so", "it lacks create_context or delete_context"),
        (6, "liburma_failing.so", "its init fails"),
        (7, "liburma_undefined.so", "undefined symbol: broken_elsewhere"),
    ];
    for (number, file, _) in kinds {
        object("provider_broken", &folder.join(file), &[&format!("-DBROKEN={number}")]);
    }
    needy(folder);
    fs::write(folder.join("liburma_garbage.so.1"), "not an object").expect("a file");
    fs::write(folder.join("liburma_empty.so"), "").expect("a file");
    let more = [
        (0, "liburma_needy.so", "libbroken_elsewhere.so: cannot open shared object file"),
        (0, "liburma_garbage.so.1", "liburma_garbage.so.1: file too short"),
        (0, "liburma_empty.so", "liburma_empty.so: file too short"),
    ];
    kinds.into_iter().chain(more).map(|(_, file, why)| (file, why)).collect()
}

/// A provider whose dependency is not there any more.
fn needy(folder: &Path) {
    let (source, library) = (folder.join("elsewhere.c"), folder.join("libbroken_elsewhere.so"));
    fs::write(&source, "int broken_elsewhere(void) { return 0; }\n").expect("a file");
    let mut command = Command::new("gcc");
    command.args(["-shared", "-fPIC", "-Wl,-soname,libbroken_elsewhere.so", "-o"]);
    let built = command.arg(&library).arg(&source).status().expect("gcc starts");
    assert!(built.success());
    let text = library.to_str().expect("a path of text");
    object("provider_broken", &folder.join("liburma_needy.so"), &["-DBROKEN=8", text]);
    fs::remove_file(&library).expect("it was there");
}

fn run(program: &Path, environment: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(program);
    command.envs(environment.iter().copied());
    command.output().expect("the program starts")
}

#[test]
fn a_provider_in_the_path_drives_its_devices() {
    let (folder, class) = (folder("path"), class("class"));
    let sample = folder.join("liburma_sample.so.1");
    object("provider_sample", &sample, &[]);
    // A second name of the same object, which is loaded once.
    std::os::unix::fs::symlink("liburma_sample.so.1", folder.join("liburma_sample.so"))
        .expect("a link");
    fs::create_dir(folder.join("liburma_folder.so")).expect("a folder");
    let skipped = broken(&folder);
    let program = build("provider", "provider", &[]);
    let environment =
        [("URMA_PROVIDER_PATH", &*folder), ("URMA_SYSFS_PATH", &*class), ("SAMPLE", &*sample)];
    let run = run(&program, &environment);
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}\n{said}", run.status);
    for (file, why) in skipped {
        let tells = |line: &str| {
            line.contains("provider skipped") && line.contains(file) && line.contains(why)
        };
        assert!(said.lines().any(tells), "{file}: {why}\n{said}");
    }
    assert!(said.contains("device skipped: one of this name is listed"), "{said}");
}

#[test]
fn a_provider_beside_the_library_is_found_without_a_setting() {
    let (folder, class) = (folder("beside"), class("class-beside"));
    let library = folder.join("liburma.so.0");
    fs::copy(soname(), &library).expect("a copy of the library");
    fs::create_dir(folder.join("urma")).expect("a folder");
    let sample = folder.join("urma/liburma_sample.so");
    object("provider_sample", &sample, &[]);
    let program = build("provider", "provider-beside", &[]);
    // The library beside the provider, not the one that the program was built with.
    let environment =
        [("LD_PRELOAD", &*library), ("URMA_SYSFS_PATH", &*class), ("SAMPLE", &*sample)];
    let run = run(&program, &environment);
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}\n{said}", run.status);
    assert!(!said.contains("provider skipped"), "{said}");
}

#[test]
fn a_provider_of_the_program_itself_needs_no_file() {
    let (class, folder) = (class("class-registry"), folder("none"));
    let program = build("registry", "registry", &[]);
    let mut command = Command::new(&program);
    command.env("URMA_SYSFS_PATH", &class).env("URMA_PROVIDER_PATH", &folder);
    let run = command.arg(class.join("sample0")).output().expect("the program starts");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}\n{said}", run.status);
    assert!(said.contains("path=the program name=sample status=4096 why=its init fails"), "{said}");
}

#[test]
fn a_program_with_more_rights_than_its_user_loads_nothing_from_the_environment() {
    /// A group without members.
    const NO_GROUP: u32 = 65534;
    /// What the program ends with when it has no more rights.
    const NO_MORE: i32 = 77;
    let (folder, class) = (folder("secure"), class("class-secure"));
    let sample = folder.join("liburma_sample.so");
    object("provider_sample", &sample, &[]);
    let program = build("registry", "registry-secure", &[]);
    let is_made = std::os::unix::fs::chown(&program, None, Some(NO_GROUP))
        .and_then(|()| fs::set_permissions(&program, fs::Permissions::from_mode(0o2755)));
    let mut command = Command::new(&program);
    command.env("URMA_PROVIDER_PATH", &folder).env("URMA_SYSFS_PATH", &class);
    let run = command.arg("secure").env("SAMPLE", &sample).output().expect("the program starts");
    let said = String::from_utf8_lossy(&run.stderr);
    if is_made.is_err() || run.status.code() == Some(NO_MORE) {
        return urma_skip::skip("a program cannot be given another group here");
    }
    assert!(run.status.success(), "{}\n{said}", run.status);
    let lines: Vec<_> = said.lines().filter(|line| line.contains("ignored: ")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    for name in ["URMA_PROVIDER_PATH", "URMA_SYSFS_PATH"] {
        assert!(lines[0].contains(name), "{said}");
    }
}

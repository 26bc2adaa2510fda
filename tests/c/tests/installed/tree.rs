//! The installed tree itself: what is in it, what is left after `uninstall`, the Debian package.

use std::{fs, path::Path, process::Command};

use urma_c_tests::{Prefix, xtask};

/// What a tree has at least; the package has the libraries in a folder of their own.
const FILES: [&str; 22] = [
    "liburma.so.0",
    "liburma.so",
    "liburma.a",
    "liburma_common.so.0",
    "libtpsa.so.0",
    "pkgconfig/urma.pc",
    "cmake/urma/urma-config.cmake",
    "cmake/urma/urma-config-version.cmake",
    "liburma_ubagg.so.0",
    "liburma_ubagg.so",
    "liburma-udma.so",
    "libummu.so",
    "include/ub/umdk/urma/urma_api.h",
    "include/ub/umdk/urma/urma_types.h",
    "include/ub/umdk/urma/urma_opcode.h",
    "include/ub/umdk/urma/urma_provider.h",
    "include/ub/umdk/urma/urma_cmd.h",
    "include/ub/umdk/urma/urma_types_str.h",
    "include/ub/umdk/urma/urma_perf.h",
    "include/ub/umdk/urma/urma_ubagg.h",
    "include/ub/umdk/urma/uvs_api.h",
    "include/ub/umdk/urma/udma/udma_u_ctl.h",
];

fn below(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let one = |path: &Path| {
        if path.is_dir() { below(path) } else { vec![path.to_string_lossy().into_owned()] }
    };
    entries.flat_map(|entry| one(&entry.expect("an entry").path())).collect()
}

fn has_all(files: &[String]) {
    for wanted in FILES {
        assert!(files.iter().any(|file| file.ends_with(wanted)), "{wanted} is not in {files:#?}");
    }
}

#[test]
fn what_is_installed_goes_and_nothing_else() {
    let prefix = Prefix::install("goes", &[]);
    has_all(&below(&prefix.path));
    let own = prefix.lib().join("own.txt");
    fs::write(&own, "a user's file").expect("a file");
    let path = prefix.path.to_string_lossy().into_owned();
    let gone = xtask(&["uninstall", "--prefix", &path], &[]);
    assert!(gone.status.success(), "{}", String::from_utf8_lossy(&gone.stderr));
    assert_eq!(below(&prefix.path), [own.to_string_lossy()]);
    let entries: Vec<_> = fs::read_dir(&prefix.path).expect("a folder").flatten().collect();
    assert_eq!(entries.len(), 1, "empty folders are gone: {entries:?}");
    let again = xtask(&["uninstall", "--prefix", &path], &[]);
    assert!(!again.status.success(), "what is not installed cannot go");
}

#[test]
fn a_second_installation_takes_the_place_of_the_first() {
    let first = Prefix::install("twice", &[]);
    let path = first.path.to_string_lossy().into_owned();
    let manifest = first.path.join("share/urma/installed-files");
    let stale = first.path.join("lib/stale.txt");
    fs::write(&stale, "of an older release").expect("a file");
    let list = fs::read_to_string(&manifest).expect("a list");
    fs::write(&manifest, format!("{list}lib/stale.txt\n../outside.txt\n")).expect("a list");
    let outside = first.path.with_file_name("outside.txt");
    fs::write(&outside, "not ours").expect("a file");
    let built = urma_c_tests::built().to_string_lossy().into_owned();
    let again = ["install", "--prefix", &path, "--built", &built, "--parts", "libraries"];
    assert!(xtask(&again, &[]).status.success());
    assert!(!stale.exists() && outside.exists() && first.lib().join("liburma.so").exists());
}

#[test]
fn debian_package() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        return urma_skip::skip("no dpkg-deb");
    }
    let built = urma_c_tests::built().to_string_lossy().into_owned();
    let made = xtask(&["deb", "--built", &built, "--parts", "libraries"], &[]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = String::from_utf8_lossy(&made.stdout).into_owned();
    let package = text.lines().find(|line| line.ends_with(".deb")).expect("its path is said");
    let said = |option: &str| {
        let output = Command::new("dpkg-deb").args([option, package]).output().expect("dpkg-deb");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // A link's line ends with what it points to.
    let names = |line: &str| line.split(" -> ").next().unwrap_or(line).to_owned();
    let files: Vec<String> = said("-c").lines().map(names).collect();
    has_all(&files);
    assert!(files.iter().all(|line| line.contains("root/root")), "owners: {files:#?}");
    let control = said("-f");
    assert!(
        control.contains("Package: urma\n") && control.contains("Conflicts: urma-25.12.0.b081")
    );
}

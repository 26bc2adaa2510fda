//! A Debian package of what `install` installs.
//!
//! *Owns*: the control file. *Takes*: an ABI profile. *Gives*: a `.deb` under the build folder.

use std::{fs, path::Path, process::Command};

use super::{Abi, InstallPlan, tree};
use crate::{
    cargo, child,
    say::{Failure, TaskResult, say},
};

/// Builds the Debian package from an installed tree.
pub(crate) fn run(what: &InstallPlan) -> TaskResult {
    let abi = what.first();
    let (architecture, triplet) = ("dpkg", "dpkg-architecture");
    let architecture = said(Command::new(architecture).arg("--print-architecture"))?;
    let lib = format!("lib/{}", said(Command::new(triplet).args(["-q", "DEB_HOST_MULTIARCH"]))?);
    let work = cargo::target_dir()?.join("deb");
    let root = work.join("root");
    let _ = fs::remove_dir_all(&root);
    tree::put(&root.join("usr"), Path::new("/usr"), &lib, what)?;
    tree::write(&root.join("DEBIAN/control"), control(abi, &architecture).as_bytes())?;
    // New libraries: the loader's cache is updated.
    tree::write(&root.join("DEBIAN/triggers"), b"activate-noawait ldconfig\n")?;
    let package = work.join(format!("{}_{}_{architecture}.deb", name(abi), version()));
    let mut build = Command::new("dpkg-deb");
    // Fast, and every dpkg opens it.
    build.args(["--root-owner-group", "-Zgzip", "-z1", "--build"]).args([&root, &package]);
    said(&mut build)?;
    say(&format!("{}", package.display()));
    say(&format!("install it: apt install {}", package.display()));
    Ok(())
}

const fn name(abi: Abi) -> &'static str {
    match abi {
        Abi::V2606 => "urma",
        Abi::B081 => "urma-25.12.0.b081",
    }
}

const fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

fn control(abi: Abi, architecture: &str) -> String {
    let other = name(if abi == Abi::V2606 { Abi::B081 } else { Abi::V2606 });
    format!(
        "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nSection: libs\n\
         Priority: optional\nMaintainer: The urma project <urma@localhost>\nDepends: libc6, libgcc-s1\n\
         Provides: liburma0\nConflicts: {other}, liburma0\n\
         Description: URMA C library, headers and tools on a software UDMA device\n\
         \x20Programs written for the URMA C API, release {abi}, compile and run unchanged,\n\
         \x20without hardware and without kernel modules.\n",
        name = name(abi),
        version = version(),
        abi = abi.name(),
    )
}

/// Runs a tool of dpkg; what it says, or why it did not.
fn said(command: &mut Command) -> Result<String, Failure> {
    let said = child::output(command).map(|text| text.trim().to_owned());
    said.map_err(|Failure(why)| Failure(format!("{why} (the tools are of Debian's dpkg-dev)")))
}

//! `cargo xtask install`, `uninstall` and `deb`: the C face of the project on a machine, or in a Debian package.
//!
//! Builds for release, for an ABI profile, and writes a list of files that `uninstall` takes back. Must not remove
//! what it did not put there.

mod tree;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use clap::{Args, ValueEnum};

use crate::{
    cargo, child,
    say::{Failure, TaskResult, say},
};

/// The release of the C API whose structs and numbers the libraries and headers have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Abi {
    /// Release 26.06 of the C API
    #[value(name = "26.06")]
    V2606,
    /// Release 25.12.0.B081 of the C API
    #[value(name = "25.12.0.B081")]
    B081,
}

impl Abi {
    /// Returns the release as the command line names it.
    const fn name(self) -> &'static str {
        match self {
            Self::V2606 => "26.06",
            Self::B081 => "25.12.0.B081",
        }
    }

    /// Returns the macro that selects it in the headers.
    const fn macro_name(self) -> &'static str {
        match self {
            Self::V2606 => "URMA_ABI_26_06",
            Self::B081 => "URMA_ABI_25_12_0_B081",
        }
    }

    /// The feature of the library crates that chooses it.
    const fn feature(self) -> Option<&'static str> {
        match self {
            Self::V2606 => None,
            Self::B081 => Some("abi-25-12-0-b081"),
        }
    }
}

/// Parts of the project that an installation can be limited to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum InstalledParts {
    /// Libraries, headers, programs with their manual pages and completions
    All,
    /// The libraries and headers of the C API alone
    Libraries,
    /// The library of in-network computing alone, with its header and manual page
    Inccl,
}

impl InstalledParts {
    /// Whether the C API belongs to it.
    const fn has_c_api(self) -> bool {
        matches!(self, Self::All | Self::Libraries)
    }

    /// Whether libinccl belongs to it.
    const fn has_inccl(self) -> bool {
        matches!(self, Self::All | Self::Inccl)
    }
}

/// What is installed, and from which build.
#[derive(Clone, Debug, Args)]
pub(crate) struct InstallPlan {
    /// Release of the C API; given again: one more, which programs choose with URMA_ABI
    #[arg(long, value_enum, default_value = "26.06")]
    abi: Vec<Abi>,
    /// Which parts to install
    #[arg(long, value_enum, default_value = "all")]
    parts: InstalledParts,
    /// Cargo's profile: release for use, dev for a quick build
    #[arg(long, default_value = "release")]
    profile: String,
    /// Folder in which everything is already built for the first release
    #[arg(long)]
    built: Option<PathBuf>,
    /// Folder in which the libraries are already built for the other release
    #[arg(long)]
    built_other: Option<PathBuf>,
}

impl InstallPlan {
    /// The release of the headers, and of the libraries that programs find.
    fn first(&self) -> Abi {
        self.abi.first().copied().unwrap_or(Abi::V2606)
    }

    /// Returns the releases that are not the chosen one.
    fn others(&self) -> impl Iterator<Item = Abi> {
        let others = [Abi::V2606, Abi::B081].into_iter();
        others.filter(|abi| *abi != self.first() && self.abi.contains(abi))
    }
}

/// Where the list of installed files lies under a prefix.
const MANIFEST: &str = "share/urma/installed-files";

/// Installs under `prefix`, after removing what an earlier call put there.
pub(crate) fn run(prefix: &Path, what: &InstallPlan) -> TaskResult {
    let prefix = std::path::absolute(prefix).map_err(Failure::system("the prefix"))?;
    if prefix.join(MANIFEST).is_file() {
        uninstall(&prefix)?;
    }
    let files = tree::put(&prefix, &prefix, "lib", what)?;
    let list: String = files.iter().map(|file| format!("{}\n", file.display())).collect();
    tree::write(&prefix.join(MANIFEST), list.as_bytes())?;
    let (count, place, abi) = (files.len(), prefix.display(), what.first().name());
    say(&format!("{count} files under {place} (ABI {abi})"));
    for other in what.others() {
        say(&format!("programs built with other headers choose: URMA_ABI={}", other.name()));
    }
    let package = if what.parts.has_c_api() { "urma" } else { "inccl" };
    say(&format!(
        "try: cc $(PKG_CONFIG_PATH={0}/lib/pkgconfig pkg-config --cflags --libs {package}) program.c",
        prefix.display()
    ));
    Ok(())
}

/// Removes what [`run`] put under `prefix`, and folders that are empty then.
pub(crate) fn uninstall(prefix: &Path) -> TaskResult {
    let manifest = prefix.join(MANIFEST);
    let list = fs::read_to_string(&manifest)
        .map_err(|error| Failure(format!("{}: {error}; nothing removed", manifest.display())))?;
    for file in list.lines().map(|line| prefix.join(line)).chain([manifest]) {
        if file.strip_prefix(prefix).is_ok_and(tree::stays_inside) {
            remove(prefix, &file)?;
        }
    }
    say(&format!("removed from {}", prefix.display()));
    Ok(())
}

fn remove(prefix: &Path, file: &Path) -> TaskResult {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure(format!("{}: {error}", file.display())));
        }
        _ => {}
    }
    let parents = file.ancestors().skip(1).take_while(|dir| *dir != prefix);
    for dir in parents {
        // Others' files keep it.
        if fs::remove_dir(dir).is_err() {
            break;
        }
    }
    Ok(())
}

/// Folders in which what is installed lies built.
struct Built {
    /// Of the libraries of the C API, for one of its releases.
    libraries: PathBuf,
    /// Of what is the same for all releases.
    same: PathBuf,
}

/// Builds what is installed, unless that was done.
fn build(what: &InstallPlan) -> Result<Built, Failure> {
    if let Some(built) = &what.built {
        let dir = std::path::absolute(built).map_err(Failure::system("the build's folder"))?;
        return Ok(Built { libraries: dir.clone(), same: dir });
    }
    let mut same = Vec::new();
    if what.parts == InstalledParts::All {
        same.extend(tree::TOOLS.iter().map(|tool| tool.package));
    }
    if what.parts.has_inccl() {
        same.push(tree::INCCL.package);
    }
    if !same.is_empty() {
        let base = ["build", "--quiet", "--profile", &what.profile];
        let packages = same.iter().flat_map(|package| ["-p", package]);
        cargo::run(&base.into_iter().chain(packages).collect::<Vec<_>>())?;
    }
    let same = cargo::target_dir()?.join(folder(&what.profile));
    if !what.parts.has_c_api() {
        return Ok(Built { libraries: same.clone(), same });
    }
    let packages: Vec<_> = tree::LIBRARIES.iter().map(|library| library.package).collect();
    let libraries = build_libraries(&packages, &what.profile, what.first())?;
    Ok(Built { libraries, same })
}

/// Builds libraries for a release; the folder that they lie in.
fn build_libraries(packages: &[&str], profile: &str, abi: Abi) -> Result<PathBuf, Failure> {
    let mut args = vec!["build", "--quiet", "--profile", profile];
    args.extend(packages.iter().flat_map(|package| ["-p", package]));
    let target = cargo::target_dir()?;
    let Some(feature) = abi.feature() else {
        cargo::run(&args)?;
        return Ok(target.join(folder(profile)));
    };
    // Cargo gives a library one name whatever its features, and takes what lies there for its own.
    let target = target.join(format!("abi-{}", abi.name()));
    let (feature, text) = (format!("liburma/{feature}"), target.to_string_lossy().into_owned());
    args.extend(["--features", &feature, "--target-dir", &text]);
    cargo::run(&args)?;
    Ok(target.join(folder(profile)))
}

/// The folder, below cargo's, of what a profile builds.
fn folder(profile: &str) -> &str {
    match profile {
        "dev" | "test" => "debug",
        "bench" => "release",
        other => other,
    }
}

/// Builds the Debian package from an installed tree.
pub(crate) fn deb(what: &InstallPlan) -> TaskResult {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn what(abi: &[Abi]) -> InstallPlan {
        InstallPlan {
            abi: abi.to_vec(),
            parts: InstalledParts::All,
            profile: "dev".to_owned(),
            built: None,
            built_other: None,
        }
    }

    #[test]
    fn the_first_release_is_the_one_of_the_headers() {
        let both = what(&[Abi::B081, Abi::V2606, Abi::B081]);
        assert_eq!((both.first(), both.others().collect()), (Abi::B081, vec![Abi::V2606]));
        let one = what(&[Abi::V2606]);
        assert_eq!((one.first(), one.others().count()), (Abi::V2606, 0));
    }

    #[test]
    fn profiles_build_where_cargo_says() {
        let folders = ["dev", "test", "release", "bench", "dist"].map(folder);
        assert_eq!(folders, ["debug", "debug", "release", "release", "dist"]);
    }
}

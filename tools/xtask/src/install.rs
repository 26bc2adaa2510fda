//! `cargo xtask install`, `uninstall` and `deb`: the C face of the project on a machine.
//!
//! *Owns*: building for release, a prefix's manifest. *Takes*: a prefix, an ABI profile.
//! *Gives*: files, and a list of them that `uninstall` takes back. *Must not*: remove what it did
//! not put there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};

use crate::{
    cargo,
    say::{Done, Failure, say},
};

mod deb;
mod tree;

pub(crate) use deb::run as deb;

/// The release of the C API whose structs and numbers the libraries and headers have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Abi {
    /// Release 26.06
    #[value(name = "26.06")]
    V2606,
    /// Release 25.12.0.B081
    #[value(name = "25.12.0.B081")]
    B081,
}

impl Abi {
    /// As people write it.
    const fn name(self) -> &'static str {
        match self {
            Self::V2606 => "26.06",
            Self::B081 => "25.12.0.B081",
        }
    }

    /// Its macro in the headers.
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

/// What is installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Parts {
    /// Libraries, headers, programs with their manual pages and completions
    All,
    /// Libraries and headers
    Libraries,
}

/// What is installed, and from which build.
#[derive(Clone, Debug, Args)]
pub(crate) struct What {
    /// Release of the C API
    #[arg(long, value_enum, default_value = "26.06")]
    abi: Abi,
    /// Everything, or what programs are built with
    #[arg(long, value_enum, default_value = "all")]
    parts: Parts,
    /// Cargo's profile: release for use, dev for a quick build
    #[arg(long, default_value = "release")]
    profile: String,
    /// A folder in which everything is built already for this release of the C API
    #[arg(long)]
    built: Option<PathBuf>,
}

/// Where the list of installed files lies under a prefix.
const MANIFEST: &str = "share/urma/installed-files";

/// Installs under `prefix`; what an earlier call put there goes first.
pub(crate) fn run(prefix: &Path, what: &What) -> Done {
    let prefix = std::path::absolute(prefix).map_err(Failure::system("the prefix"))?;
    if prefix.join(MANIFEST).is_file() {
        uninstall(&prefix)?;
    }
    let files = tree::put(&prefix, &prefix, "lib", what)?;
    let list: String = files.iter().map(|file| format!("{}\n", file.display())).collect();
    tree::write(&prefix.join(MANIFEST), list.as_bytes())?;
    say(&format!("{} files under {} (ABI {})", files.len(), prefix.display(), what.abi.name()));
    say(&format!(
        "try: cc $(PKG_CONFIG_PATH={0}/lib/pkgconfig pkg-config --cflags --libs urma) program.c",
        prefix.display()
    ));
    Ok(())
}

/// Takes back what [`run`] put under `prefix`, and the folders that are empty then.
pub(crate) fn uninstall(prefix: &Path) -> Done {
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

fn remove(prefix: &Path, file: &Path) -> Done {
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
    libraries: PathBuf,
    tools: PathBuf,
}

/// Builds what is installed, unless that was done.
fn build(what: &What) -> Result<Built, Failure> {
    if let Some(built) = &what.built {
        let dir = std::path::absolute(built).map_err(Failure::system("the build's folder"))?;
        return Ok(Built { libraries: dir.clone(), tools: dir });
    }
    let base = ["build", "--quiet", "--profile", &what.profile];
    if what.parts == Parts::All {
        let tools = tree::TOOLS.iter().flat_map(|tool| ["-p", tool]);
        cargo::run(&base.into_iter().chain(tools).collect::<Vec<_>>())?;
    }
    let target = cargo::target_dir()?;
    let tools = target.join(folder(&what.profile));
    let mut args = base.to_vec();
    args.extend(tree::LIBRARIES.iter().flat_map(|library| ["-p", library.package]));
    let Some(feature) = what.abi.feature() else {
        cargo::run(&args)?;
        return Ok(Built { libraries: tools.clone(), tools });
    };
    // Cargo gives a library one name whatever its features, and takes what lies there for its own.
    let target = target.join(format!("abi-{}", what.abi.name()));
    let (feature, text) = (format!("urma-ffi/{feature}"), target.to_string_lossy().into_owned());
    args.extend(["--features", &feature, "--target-dir", &text]);
    cargo::run(&args)?;
    Ok(Built { libraries: target.join(folder(&what.profile)), tools })
}

/// The folder, below cargo's, of what a profile builds.
fn folder(profile: &str) -> &str {
    match profile {
        "dev" | "test" => "debug",
        "bench" => "release",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_build_where_cargo_says() {
        let folders = ["dev", "test", "release", "bench", "dist"].map(folder);
        assert_eq!(folders, ["debug", "debug", "release", "release", "dist"]);
    }
}

//! Cargo as a tool: where it builds to, and how it is called.
//!
//! *Owns*: paths of the workspace. *Takes*: arguments. *Gives*: commands and their results.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    child,
    say::{Failure, TaskResult},
};

/// Returns the folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Returns `path` as messages show it: relative to the workspace's folder if it is inside it.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// A call of cargo in the workspace's folder.
pub(crate) fn command(args: &[&str]) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root());
    command
}

/// Calls cargo, its output going where ours goes.
pub(crate) fn run(args: &[&str]) -> TaskResult {
    let status = command(args).status().map_err(Failure::system("starting cargo"))?;
    if status.success() { Ok(()) } else { Err(Failure(format!("cargo {} failed", args.join(" ")))) }
}

/// What cargo says about the workspace.
pub(crate) fn metadata() -> Result<Value, Failure> {
    let mut command = command(&["metadata", "--no-deps", "--format-version", "1"]);
    serde_json::from_str(&child::output(&mut command)?)
        .map_err(|error| Failure(format!("cargo metadata: {error}")))
}

/// Where it builds to.
pub(crate) fn target_dir() -> Result<PathBuf, Failure> {
    let metadata = metadata()?;
    let dir = metadata.get("target_directory").and_then(Value::as_str);
    dir.map(PathBuf::from).ok_or_else(|| Failure("cargo metadata names no target".to_owned()))
}

/// Builds `packages` for release; returns the folder of the binaries.
pub(crate) fn build_release(packages: &[&str]) -> Result<PathBuf, Failure> {
    let mut args = vec!["build", "--release", "--quiet"];
    for package in packages {
        args.extend(["-p", package]);
    }
    run(&args)?;
    Ok(target_dir()?.join("release"))
}

/// Folder of a package of the workspace.
pub(crate) fn folder_of(name: &str) -> Result<PathBuf, Failure> {
    let metadata = metadata()?;
    let mut packages = metadata.get("packages").and_then(Value::as_array).into_iter().flatten();
    let package = packages.find(|package| package.get("name").is_some_and(|there| there == name));
    let manifest = package.and_then(|package| package.get("manifest_path")?.as_str());
    let folder = manifest.and_then(|manifest| Path::new(manifest).parent());
    folder.map(Path::to_path_buf).ok_or_else(|| Failure(format!("{name}: no package")))
}

/// Packages of the workspace that declare some of `wanted`, each with those that it declares,
/// joined by commas.
pub(crate) fn packages_with(wanted: &[&str]) -> Result<Vec<(String, String)>, Failure> {
    let metadata = metadata()?;
    let packages = metadata.get("packages").and_then(Value::as_array);
    let declaring = packages.into_iter().flatten().filter_map(|package| {
        let name = package.get("name").and_then(Value::as_str)?;
        let features = package.get("features").and_then(Value::as_object)?;
        let known = wanted.iter().filter(|feature| features.contains_key(**feature));
        let known: Vec<&str> = known.copied().collect();
        (!known.is_empty()).then(|| (name.to_owned(), known.join(",")))
    });
    Ok(declaring.collect())
}

/// A tool of cargo's (`cargo NAME`), installed under the build folder when it is missing.
/// Returns the folder to put in front of PATH.
pub(crate) fn tool(name: &str, version: &str) -> Result<PathBuf, Failure> {
    let binary = format!("cargo-{name}");
    let path = env::var_os("PATH").unwrap_or_default();
    if let Some(dir) = env::split_paths(&path).find(|dir| dir.join(&binary).is_file()) {
        return Ok(dir);
    }
    let home = target_dir()?.join("tools");
    if !home.join("bin").join(&binary).is_file() {
        install(&home, &format!("{binary}@{version}"), &[])?;
    }
    Ok(home.join("bin"))
}

/// The program `name` of the package of that name in exactly this version, installed under the
/// build folder, without default features, when it is missing. Returns its path.
pub(crate) fn program(name: &str, version: &str, features: &str) -> Result<PathBuf, Failure> {
    let home = target_dir()?.join("tools");
    let path = home.join("bin").join(name);
    let output = Command::new(&path).arg("--version").output();
    let is_it = |text: &[u8]| String::from_utf8_lossy(text).trim_end().ends_with(version);
    if !output.is_ok_and(|output| is_it(&output.stdout)) {
        let features = ["--no-default-features", "--features", features];
        install(&home, &format!("{name}@{version}"), &features)?;
    }
    Ok(path)
}

fn install(home: &Path, package: &str, more: &[&str]) -> TaskResult {
    let root = home.to_string_lossy().into_owned();
    // Unoptimised: a tool that runs for a second is not worth two more minutes of building it.
    let args = ["install", "--locked", "--quiet", "--debug", "--root", &root, package];
    let mut install = command(&args);
    let status = install.args(more).status().map_err(Failure::system("starting cargo"))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure(format!("{package} is missing: cargo install --locked {package}")))
}

/// PATH with `dir` in front.
pub(crate) fn path_with(dir: &Path) -> std::ffi::OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(dir.to_path_buf()).chain(env::split_paths(&path));
    env::join_paths(dirs).unwrap_or(path)
}

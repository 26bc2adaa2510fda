//! Installed trees.
//!
//! *Owns*: the folder for results, calls of `cargo xtask`. *Gives*: prefixes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The folder of the workspace.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The folder of what cargo built with the test that runs: `target/debug` for most.
///
/// # Panics
/// When the test was not started by cargo.
#[must_use]
pub fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.ancestors().nth(2).expect("a test lies in `deps` of the folder").to_path_buf()
}

/// The folder in which cargo built the test that runs, for all its profiles: `target` for most.
///
/// # Panics
/// When the test was not started by cargo.
#[must_use]
pub fn target() -> PathBuf {
    built().parent().expect("a build has a folder").to_path_buf()
}

/// An empty folder of this name below cargo's.
///
/// # Panics
/// When it cannot be made.
#[must_use]
pub fn scratch(name: &str) -> PathBuf {
    let folder = built().join("c-tests").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// `cargo xtask` with these arguments and this environment. Another build folder in the environment is
/// for what it builds, not for itself.
///
/// # Panics
/// When cargo cannot be started.
#[must_use]
pub fn xtask(args: &[&str], environment: &[(&str, &Path)]) -> Output {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--package", "xtask", "--target-dir"]).arg(target());
    command.arg("--").args(args);
    command.current_dir(root()).envs(environment.iter().copied());
    command.output().expect("cargo starts")
}

/// A tree that was installed.
#[derive(Debug)]
pub struct Prefix {
    /// Folder that the files are installed below.
    pub path: PathBuf,
}

impl Prefix {
    /// Installs what cargo built with the test, with more options, under a scratch prefix.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn install(name: &str, options: &[&str]) -> Self {
        let built = built().to_string_lossy().into_owned();
        let all = [&["--built", &built, "--parts", "libraries"], options].concat();
        Self::install_with(name, &all, &[])
    }

    /// Installs with these options and this environment under a scratch prefix.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn install_with(name: &str, options: &[&str], environment: &[(&str, &Path)]) -> Self {
        let path = scratch(name);
        let text = path.to_string_lossy().into_owned();
        let args = [&["install", "--prefix", &text], options].concat();
        let done = xtask(&args, environment);
        assert!(done.status.success(), "install: {}", String::from_utf8_lossy(&done.stderr));
        Self { path }
    }

    /// What pkg-config answers about the tree.
    ///
    /// # Panics
    /// When there is no pkg-config, or it refuses.
    #[must_use]
    pub fn flags(&self, asked: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(asked).arg("urma").env("PKG_CONFIG_PATH", self.lib().join("pkgconfig"));
        let output = command.output().expect("pkg-config is needed: apt-get install pkg-config");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// The folder of the libraries.
    #[must_use]
    pub fn lib(&self) -> PathBuf {
        self.path.join("lib")
    }
}

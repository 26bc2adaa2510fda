//! C and C++ programs against an installed library: compiled with what `pkg-config` says, run.
//!
//! Has scratch folders, installed trees, strict compilers called as users call them, and programs with a limit of
//! time, none of which is left behind. Must not know what a program is about.
#![forbid(unsafe_code)]

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
    thread::JoinHandle,
};

/// A compiler and the language that it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Compiler {
    program: &'static str,
    language: &'static [&'static str],
}

/// C11 compiled by gcc.
pub const GCC: Compiler = Compiler { program: "gcc", language: &["-std=c11"] };
/// C++17 compiled by g++.
pub const GXX: Compiler = Compiler { program: "g++", language: &["-x", "c++", "-std=c++17"] };
/// C11 compiled by clang.
pub const CLANG: Compiler = Compiler { program: "clang", language: &["-std=c11"] };

const STRICT: [&str; 6] = ["-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic"];

impl Compiler {
    /// Compiles a program of one source against the shared library of `prefix`, which it will find.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn build(self, prefix: &Prefix, source: &Path, more: &[&str]) -> PathBuf {
        let rpath = format!("-Wl,-rpath,{}", prefix.lib().display());
        let mut libraries = prefix.flags(&["--libs"]);
        libraries.push(rpath);
        self.link(prefix, source, more, &libraries)
    }

    /// Compiles and links `source` against the installed archive; returns the program.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn build_static(self, prefix: &Prefix, source: &Path) -> PathBuf {
        let all = prefix.flags(&["--libs", "--static"]);
        let archive = prefix.lib().join("liburma.a").to_string_lossy().into_owned();
        let with = |flag: String| if flag == "-lurma" { archive.clone() } else { flag };
        let libraries: Vec<String> = all.into_iter().map(with).collect();
        self.link(prefix, source, &[], &libraries)
    }

    /// Compiles a program that brings the library itself.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn build_alone(self, prefix: &Prefix, source: &Path, more: &[&str]) -> PathBuf {
        self.link(prefix, source, more, &[])
    }

    fn link(self, prefix: &Prefix, source: &Path, more: &[&str], libraries: &[String]) -> PathBuf {
        let name = source.file_stem().expect("a source has a name").to_string_lossy();
        // Tests run at once: each has its own.
        let thread = std::thread::current();
        let user = thread.name().unwrap_or("main").replace("::", "-");
        let target = prefix.path.join(format!("{name}-{}-{user}", self.program));
        let mut command = Command::new(self.program);
        command.args(self.language).args(STRICT).args(more).args(prefix.flags(&["--cflags"]));
        // `-x` ends before the libraries, which are not C++.
        command.arg(source).args(["-x", "none", "-lpthread"]).args(libraries);
        command.arg("-o").arg(&target);
        let failed = format!("{} is needed: cargo xtask test installs it", self.program);
        let output = command.output().expect(&failed);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", source.display());
        target
    }
}

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

/// A program that runs under `timeout`, so that nothing that hangs stays.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    out: BufReader<ChildStdout>,
    err: Option<JoinHandle<String>>,
}

/// What a program said, and how it ended.
#[derive(Debug)]
pub struct Said {
    /// Text that the program wrote to standard output.
    pub out: String,
    /// Text that the program wrote to standard error.
    pub err: String,
    /// Exit code or signal of the program.
    pub status: ExitStatus,
}

/// Seconds that a program has; generous, for hangs only.
const LIMIT: &str = "400";

/// Starts a program.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn start(command: &Command) -> Running {
    let name = format!("{command:?}");
    let mut limited = Command::new("timeout");
    limited.args(["-k", "5", LIMIT]).arg(command.get_program()).args(command.get_args());
    // A test is reached from its own host only, unless it says otherwise.
    limited.env("URMA_EID", "random");
    limited.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    limited.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = limited.spawn().expect("the program starts");
    let out = BufReader::new(child.stdout.take().expect("piped"));
    let mut pipe = child.stderr.take().expect("piped");
    let read = move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("standard error");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Running { name, child, out, err: Some(std::thread::spawn(read)) }
}

impl Running {
    /// The next line of its standard output.
    ///
    /// # Panics
    /// When standard output cannot be read.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("standard output");
        line
    }

    /// Waits for its end, whatever it is.
    ///
    /// # Panics
    /// When that cannot be waited for.
    #[must_use]
    pub fn end(mut self) -> Said {
        let mut out = String::new();
        self.out.read_to_string(&mut out).expect("standard output");
        let err = self.err.take().expect("read once").join().expect("the reader ends");
        Said { out, err, status: self.child.wait().expect("an end") }
    }

    /// Waits for its good end.
    ///
    /// # Panics
    /// When it ends badly, or not in time.
    #[must_use]
    pub fn good(self) -> Said {
        let name = self.name.clone();
        let said = self.end();
        assert!(said.status.success(), "{name}: {}\n{}\n{}", said.status, said.out, said.err);
        said
    }
}

/// Runs a program to its good end.
///
/// # Panics
/// When it ends badly, or not in time.
#[must_use]
pub fn finish(command: &Command) -> Said {
    start(command).good()
}

//! What goes where under a prefix: libraries, headers, tools, and what build systems of clients look for beside
//! them.

use std::{
    fs,
    io::Write,
    path::{Component, Path, PathBuf},
    process::{Command, Stdio},
};

use super::{Abi, InstallPlan, InstalledParts, build, build_libraries};
use crate::{
    cargo,
    say::{Failure, TaskResult},
};

/// A library: its package, the name of its crate, its own name without `lib`, whether there is an
/// archive too.
pub(super) struct InstalledLibrary {
    pub(super) package: &'static str,
    target: &'static str,
    name: &'static str,
    archive: bool,
}

/// In the order of need: each may be linked alone.
pub(super) const LIBRARIES: &[InstalledLibrary] = &[
    InstalledLibrary { package: "liburma", target: "liburma", name: "urma", archive: true },
    InstalledLibrary {
        package: "liburma-common",
        target: "urma_common",
        name: "urma_common",
        archive: false,
    },
    InstalledLibrary { package: "libtpsa", target: "tpsa", name: "tpsa", archive: false },
];

/// The library of in-network computing, which is the same for all releases of the C API.
pub(super) const INCCL: InstalledLibrary =
    InstalledLibrary { package: "inccl", target: "inccl", name: "inccl", archive: false };

/// A package of programs that are installed, with their manual pages.
pub(super) struct InstalledTool {
    pub(super) package: &'static str,
    programs: &'static [&'static str],
}

pub(super) const TOOLS: &[InstalledTool] = &[
    InstalledTool { package: "urma_perftest", programs: &["urma_perftest"] },
    InstalledTool { package: "urma_admin", programs: &["urma_admin"] },
    InstalledTool { package: "urma_ping", programs: &["urma_ping"] },
    InstalledTool { package: "inc-tools", programs: &["inc-switch", "inc-host", "inc-attach"] },
    InstalledTool { package: "inc-controller", programs: &["inc-controller", "inc-admin"] },
];

/// Folder of the headers in the sources.
const HEADERS: &str = "liburma/include";
/// Header and manual page of libinccl in the sources.
const INCCL_HEADER: &str = "inc/inccl/include/inccl.h";
const INCCL_PAGE: &str = "inc/inccl/inccl.3";
/// The header that says which release the others describe.
const PROFILE: &str = "urma_profile.h";
/// Folder, beside the library, in which providers of others are looked for.
const PROVIDERS: &str = "urma";
/// Folder, beside the library, in which it looks for libraries of other releases. The others of the
/// project's libraries are the same in all.
const OTHERS: &str = "urma-abi";

/// Builds and puts everything under `root`, to be found under `prefix` later; `lib` is the folder
/// of the libraries.
pub(super) fn put(
    root: &Path,
    prefix: &Path,
    lib: &str,
    what: &InstallPlan,
) -> Result<Vec<PathBuf>, Failure> {
    let built = build(what)?;
    let mut files = Files { root, list: Vec::new() };
    if what.parts.has_c_api() {
        files.c_api(&built.libraries, prefix, lib, what)?;
    }
    if what.parts.has_inccl() {
        files.inccl(&built.same, prefix, lib)?;
    }
    let tools = if what.parts == InstalledParts::All { TOOLS } else { &[] };
    for tool in tools.iter().flat_map(|tool| tool.programs) {
        files.copy(&built.same.join(tool), &Path::new("bin").join(tool))?;
        files.pages(&built.same.join(tool))?;
    }
    Ok(files.list)
}

/// Writes a file and the folders above it.
pub(super) fn write(path: &Path, bytes: &[u8]) -> TaskResult {
    let failed = |error| Failure(format!("{}: {error}", path.display()));
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
    fs::write(path, bytes).map_err(failed)
}

/// Whether a relative path stays where it starts.
pub(super) fn stays_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

struct Files<'a> {
    root: &'a Path,
    list: Vec<PathBuf>,
}

impl Files<'_> {
    /// Libraries and headers of the C API, and what finds them.
    fn c_api(&mut self, built: &Path, prefix: &Path, lib: &str, what: &InstallPlan) -> TaskResult {
        let abi = what.first();
        for library in LIBRARIES {
            self.library(built, lib, library)?;
        }
        for other in what.others() {
            let of_c = &LIBRARIES[0];
            let built = match &what.built_other {
                Some(built) => built.clone(),
                None => build_libraries(&[of_c.package], &what.profile, other)?,
            };
            self.shared(&built, &Path::new(lib).join(OTHERS).join(other.name()), of_c)?;
        }
        for one in &STAND_INS {
            self.made(&Path::new(lib).join(one.file), |path| one.make(path))?;
            if let Some(link) = one.link {
                self.link(one.file, &Path::new(lib).join(link))?;
            }
        }
        self.headers(&cargo::root().join(HEADERS), Path::new("include"), abi)?;
        // Some clients look for the headers here.
        self.link("ub/umdk/urma", Path::new("include/urma"))?;
        let package = Path::new(lib).join(CMAKE);
        self.write(&package.join("urma-config.cmake"), cmake(lib, abi).as_bytes())?;
        self.write(&package.join("urma-config-version.cmake"), cmake_version().as_bytes())?;
        let pc = pkg_config(prefix, lib, abi);
        self.write(&Path::new(lib).join("pkgconfig/urma.pc"), pc.as_bytes())?;
        let about = "Shared objects liburma*.so in this folder are loaded as providers.\n";
        self.write(&Path::new(lib).join(PROVIDERS).join("README"), about.as_bytes())
    }

    /// The library of in-network computing, its header and manual page, and what finds them.
    fn inccl(&mut self, built: &Path, prefix: &Path, lib: &str) -> TaskResult {
        self.library(built, lib, &INCCL)?;
        self.copy(&cargo::root().join(INCCL_HEADER), Path::new("include/inccl.h"))?;
        self.copy(&cargo::root().join(INCCL_PAGE), Path::new("share/man/man3/inccl.3"))?;
        let pc = pkg_config_inccl(prefix, lib);
        self.write(&Path::new(lib).join("pkgconfig/inccl.pc"), pc.as_bytes())
    }

    fn library(&mut self, built: &Path, lib: &str, library: &InstalledLibrary) -> TaskResult {
        let (name, lib) = (library.name, Path::new(lib));
        let soname = self.shared(built, lib, library)?;
        self.link(&soname, &lib.join(format!("lib{name}.so")))?;
        if library.archive {
            let archive = format!("lib{name}.a");
            self.copy(&result(built, &format!("lib{}.a", library.target)), &lib.join(&archive))?;
        }
        Ok(())
    }

    /// A library under the name that the loader looks for.
    fn shared(
        &mut self,
        built: &Path,
        lib: &Path,
        library: &InstalledLibrary,
    ) -> Result<String, Failure> {
        let soname = format!("lib{}.so.0", library.name);
        self.copy(&result(built, &format!("lib{}.so", library.target)), &lib.join(&soname))?;
        Ok(soname)
    }

    /// Copies a tree of headers; the one that names the profile gets the installed one as default.
    fn headers(&mut self, from: &Path, to: &Path, abi: Abi) -> TaskResult {
        for path in entries(from)? {
            let to = to.join(path.file_name().unwrap_or_default());
            if path.is_dir() {
                self.headers(&path, &to, abi)?;
            } else if path.ends_with(PROFILE) {
                self.write(&to, profile(&path, abi)?.as_bytes())?;
            } else {
                self.copy(&path, &to)?;
            }
        }
        Ok(())
    }

    /// The manual pages and completions that a tool makes of itself.
    fn pages(&mut self, tool: &Path) -> TaskResult {
        let name = tool.file_name().unwrap_or_default();
        let scratch = cargo::target_dir()?.join("pages").join(name);
        let _ = fs::remove_dir_all(&scratch);
        let mut command = Command::new(tool);
        let status = command.arg("--generate").arg(&scratch).status();
        if !status.map_err(Failure::system("a tool"))?.success() {
            return Err(Failure(format!("{} --generate failed", tool.display())));
        }
        for page in entries(&scratch)? {
            let file = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let to = match file.rsplit_once('.') {
                Some((_, "1")) => format!("share/man/man1/{file}"),
                Some((name, "bash")) => format!("share/bash-completion/completions/{name}"),
                Some((_, "fish")) => format!("share/fish/vendor_completions.d/{file}"),
                _ => format!("share/zsh/site-functions/{file}"),
            };
            self.copy(&page, Path::new(&to))?;
        }
        Ok(())
    }

    fn write(&mut self, to: &Path, bytes: &[u8]) -> TaskResult {
        write(&self.root.join(to), bytes)?;
        self.list.push(to.to_path_buf());
        Ok(())
    }

    /// A file that `make` writes.
    fn made(&mut self, to: &Path, make: impl FnOnce(&Path) -> TaskResult) -> TaskResult {
        let place = self.root.join(to);
        // As for a copy.
        let _ = fs::remove_file(&place);
        make(&place)?;
        self.list.push(to.to_path_buf());
        Ok(())
    }

    fn copy(&mut self, from: &Path, to: &Path) -> TaskResult {
        let place = self.root.join(to);
        let failed = |error| Failure(format!("{} to {}: {error}", from.display(), place.display()));
        fs::create_dir_all(place.parent().unwrap_or(&place)).map_err(failed)?;
        // A library in use must not change under its users: the new file takes the name.
        let _ = fs::remove_file(&place);
        fs::copy(from, &place).map_err(failed)?;
        self.list.push(to.to_path_buf());
        Ok(())
    }

    fn link(&mut self, target: &str, to: &Path) -> TaskResult {
        let place = self.root.join(to);
        let _ = fs::remove_file(&place);
        std::os::unix::fs::symlink(target, &place)
            .map_err(|error| Failure(format!("{}: {error}", place.display())))?;
        self.list.push(to.to_path_buf());
        Ok(())
    }
}

/// A library that cargo built: beside the programs when it was asked for by itself, always in the
/// folder of dependencies.
fn result(built: &Path, file: &str) -> PathBuf {
    let dependency = built.join("deps").join(file);
    if dependency.is_file() { dependency } else { built.join(file) }
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error| Failure(format!("{}: {error}", dir.display()));
    let entries = fs::read_dir(dir).map_err(failed)?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    paths.sort();
    Ok(paths)
}

/// The header of the profile, with `abi` as the default.
fn profile(header: &Path, abi: Abi) -> Result<String, Failure> {
    let failed = |error| Failure(format!("{}: {error}", header.display()));
    let text = fs::read_to_string(header).map_err(failed)?;
    let (from, to) = (default_line(Abi::V2606), default_line(abi));
    if text.matches(&from).count() != 1 {
        return Err(Failure(format!("{} has not one line {from:?}", header.display())));
    }
    Ok(text.replace(&from, &to))
}

fn default_line(abi: Abi) -> String {
    format!("#define URMA_ABI_PROFILE {}\n", abi.macro_name())
}

fn pkg_config(prefix: &Path, lib: &str, abi: Abi) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "prefix={prefix}\nlibdir=${{prefix}}/{lib}\nincludedir=${{prefix}}/include\n\n\
         Name: urma\nDescription: URMA C API, release {abi}, on a software UDMA device\n\
         Version: {version}\nLibs: -L${{libdir}} -lurma -Wl,--push-state,--as-needed \
         -lurma_common -Wl,--pop-state\nLibs.private: -lpthread -ldl -lm\n\
         Cflags: -I${{includedir}} -I${{includedir}}/ub/umdk/urma\n",
        prefix = prefix.display(),
        abi = abi.name(),
    )
}

fn pkg_config_inccl(prefix: &Path, lib: &str) -> String {
    format!(
        "prefix={prefix}\nlibdir=${{prefix}}/{lib}\nincludedir=${{prefix}}/include\n\n\
         Name: inccl\nDescription: collectives that switches reduce on the way\n\
         Version: {version}\nLibs: -L${{libdir}} -linccl\nCflags: -I${{includedir}}\n",
        prefix = prefix.display(),
        version = env!("CARGO_PKG_VERSION"),
    )
}

/// A library that stands for one of hardware.
///
/// `liburma_ubagg`, `liburma-udma` and `libummu` are providers of hardware and what they need: the built-in provider
/// does without. Clients link the first for `urma_write_affinity`, and only look whether the others are there. All
/// three hand lookups on to `liburma.so.0`, as filters of the loader (`DT_FILTER`), which they need.
pub(super) struct StandIn {
    /// The file that the loader looks for.
    pub(super) file: &'static str,
    /// The name that the linker looks for, where that is another one.
    pub(super) link: Option<&'static str>,
    /// What clients link from it; `liburma.so.0` has the function.
    functions: &'static [&'static str],
}

pub(super) const STAND_INS: [StandIn; 3] = [
    StandIn {
        file: "liburma_ubagg.so.0",
        link: Some("liburma_ubagg.so"),
        functions: &["urma_write_affinity"],
    },
    StandIn { file: "liburma-udma.so", link: None, functions: &[] },
    StandIn { file: "libummu.so.0", link: Some("libummu.so"), functions: &[] },
];

impl StandIn {
    /// Makes the library at `path`, which lies beside `liburma.so.0`.
    pub(super) fn make(&self, path: &Path) -> TaskResult {
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut command = Command::new(compiler);
        command.args(["-shared", "-nostdlib", "-x", "assembler", "-", "-o"]).arg(path);
        command.arg(format!("-Wl,-soname,{}", self.file));
        command.args(["-Wl,-F,liburma.so.0", "-Wl,--enable-new-dtags,-rpath,$ORIGIN"]);
        let beside = path.with_file_name("liburma.so.0");
        command.arg("-Wl,--no-as-needed").args(["-x", "none"]).arg(beside);
        let failed =
            Failure::system("the C compiler (cc, or CC), which makes libraries to look for");
        let mut child = command.stdin(Stdio::piped()).spawn().map_err(failed)?;
        let mut source = String::from(".text\n");
        for function in self.functions {
            source.push_str(&format!(
                ".globl {function}\n.type {function}, %function\n{function}:\n.long 0\n"
            ));
        }
        let input = child.stdin.take();
        let written = input.map(|mut input| input.write_all(source.as_bytes()));
        let status = child.wait().map_err(Failure::system("the C compiler"))?;
        if !status.success() || written.is_some_and(|written| written.is_err()) {
            return Err(Failure(format!("{}: the C compiler made none: {status}", path.display())));
        }
        Ok(())
    }
}

/// Libraries as CMake targets: name of the target, file, what it needs.
const TARGETS: [(&str, &str); 3] =
    [("urma_common", "liburma_common.so"), ("urma", "liburma.so"), ("tpsa", "libtpsa.so")];

/// Folder of the package below that of the libraries; `find_package` finds it as `urma` and as `URMA`.
pub(super) const CMAKE: &str = "cmake/urma";

/// `urma-config.cmake`. Paths follow from its own, so that the tree can be moved; `up` leads from its folder to
/// the prefix.
pub(super) fn cmake(lib: &str, abi: Abi) -> String {
    let up = "/..".repeat(Path::new(lib).join(CMAKE).components().count());
    let mut text = format!(
        "# The URMA C API, release {abi}: find_package(urma), then link urma::urma.\n\
         get_filename_component(URMA_PREFIX \"${{CMAKE_CURRENT_LIST_DIR}}{up}\" ABSOLUTE)\n\
         set(URMA_FOUND TRUE)\n\
         set(URMA_ABI \"{abi}\")\n\
         set(URMA_INCLUDE_DIR \"${{URMA_PREFIX}}/include\")\n\
         set(URMA_INCLUDE_DIRS \"${{URMA_PREFIX}}/include\" \"${{URMA_PREFIX}}/include/ub/umdk/urma\")\n\
         set(URMA_LIB_LOCATION \"${{URMA_PREFIX}}/{lib}\")\n\
         set(URMA_LIBRARY \"${{URMA_LIB_LOCATION}}/liburma.so\")\n\
         set(URMA_LIBRARIES \"${{URMA_LIBRARY}}\" \"${{URMA_LIB_LOCATION}}/liburma_common.so\")\n",
        abi = abi.name(),
    );
    for (target, file) in TARGETS {
        let needs = if target == "urma" { "urma::urma_common" } else { "" };
        text.push_str(&format!(
            "if(NOT TARGET urma::{target})\n  add_library(urma::{target} SHARED IMPORTED)\n  \
             set_target_properties(urma::{target} PROPERTIES\n    \
             IMPORTED_LOCATION \"${{URMA_LIB_LOCATION}}/{file}\"\n    \
             INTERFACE_INCLUDE_DIRECTORIES \"${{URMA_INCLUDE_DIRS}}\"\n    \
             INTERFACE_LINK_LIBRARIES \"{needs}\")\nendif()\n"
        ));
    }
    text
}

/// `urma-config-version.cmake`: any version up to this one.
pub(super) fn cmake_version() -> String {
    format!(
        "set(PACKAGE_VERSION \"{}\")\n\
         if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)\n  \
         set(PACKAGE_VERSION_COMPATIBLE FALSE)\nelse()\n  set(PACKAGE_VERSION_COMPATIBLE TRUE)\n  \
         if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)\n    \
         set(PACKAGE_VERSION_EXACT TRUE)\n  endif()\nendif()\n",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn paths_that_leave_the_prefix_are_reported() {
        assert!(stays_inside(Path::new("lib/liburma.so")));
        assert!(!stays_inside(Path::new("../lib")) && !stays_inside(Path::new("/etc/passwd")));
    }

    #[test]
    fn the_installed_profile_is_the_default() {
        let header = cargo::root().join(HEADERS).join("ub/umdk/urma").join(PROFILE);
        let text = profile(&header, Abi::B081).unwrap();
        assert!(text.contains("#define URMA_ABI_PROFILE URMA_ABI_25_12_0_B081\n"), "{text}");
        assert!(profile(Path::new(file!()), Abi::B081).is_err());
    }

    #[test]
    fn flags_name_both_ways_to_include() {
        let pc = pkg_config(Path::new("/opt/urma"), "lib", Abi::B081);
        assert!(pc.contains("prefix=/opt/urma\n") && pc.contains("-I${includedir}/ub/umdk/urma"));
        assert!(pc.contains("release 25.12.0.B081") && pc.contains(" -lurma_common "));
    }

    #[test]
    fn the_package_finds_the_prefix_from_its_own_place() {
        let text = cmake("lib/x86_64-linux-gnu", Abi::B081);
        assert!(text.contains("${CMAKE_CURRENT_LIST_DIR}/../../../..\" ABSOLUTE"), "{text}");
        assert!(text.contains("set(URMA_ABI \"25.12.0.B081\")"), "{text}");
        assert!(cmake("lib", Abi::V2606).contains("LIST_DIR}/../../..\" ABSOLUTE"));
    }
}

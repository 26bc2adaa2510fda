//! The file system that a machine boots.
//!
//! *Owns*: the folder that it is made from. *Takes*: files. *Gives*: an archive that the kernel unpacks.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use crate::packages::{Missing, copy, failed, program, run};

/// A file system that is being made.
#[derive(Debug)]
pub struct GuestFiles {
    folder: PathBuf,
    root: PathBuf,
}

impl GuestFiles {
    /// An empty file system in `folder`, with the folders that every kernel mounts on.
    ///
    /// # Errors
    /// `cpio` is missing, or the system's error.
    pub fn new(folder: &Path) -> Result<Self, Missing> {
        program("cpio", "cpio")?;
        let root = folder.join("root");
        // What an earlier run left may be of another kernel.
        let _ = fs::remove_dir_all(&root);
        for empty in ["proc", "sys", "dev", "modules", "bin", "tmp"] {
            fs::create_dir_all(root.join(empty)).map_err(failed(empty))?;
        }
        Ok(Self { folder: folder.to_path_buf(), root })
    }

    /// Returns the folder that becomes the root.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Copies a file to the place `to`, from the root.
    ///
    /// # Errors
    /// The system's error.
    pub fn add(&self, from: &Path, to: &str) -> Result<(), Missing> {
        copy(from, &self.root.join(to))
    }

    /// Copies a program of this system to the place `to`, without what only debuggers read, and the libraries that it is
    /// linked with to where it looks for them.
    ///
    /// # Errors
    /// `strip` or `ldd` is missing, or the system's error.
    pub fn add_program(&self, from: &Path, to: &str) -> Result<(), Missing> {
        let target = self.root.join(to);
        copy(from, &target)?;
        run(
            Command::new(program("strip", "binutils")?).arg("--strip-debug").arg(&target),
            "strip",
        )?;
        let libraries = run(Command::new(program("ldd", "libc-bin")?).arg(from), "ldd")?;
        for path in libraries.lines().filter_map(library) {
            copy(Path::new(path), &self.root.join(path.trim_start_matches('/')))?;
        }
        Ok(())
    }

    /// Copies modules of the kernel below `tree` to `modules`, with a file `order` that lists their files in the given
    /// order. A module that the kernel has built in has no file, and is left out.
    ///
    /// # Errors
    /// `last`, the one that matters, is not there; or the system's error.
    pub fn add_modules(&self, tree: &Path, names: &[&str], last: &str) -> Result<(), Missing> {
        let listed = run(
            Command::new("find").arg(tree).args(["-name", "*.ko", "-o", "-name", "*.ko.xz"]),
            "find",
        )?;
        let mut order = String::new();
        for name in names {
            let is_it = |line: &&str| {
                let file = line.rsplit('/').next().unwrap_or(line);
                let file = file.strip_suffix(".xz").unwrap_or(file);
                file.strip_suffix(".ko") == Some(name)
            };
            let Some(file) = listed.lines().find(is_it) else { continue };
            let target = self.root.join(format!("modules/{name}.ko"));
            if file.ends_with(".xz") {
                program("xz", "xz-utils")?;
                let out = File::create(&target).map_err(failed("a module"))?;
                let status = Command::new("xz").args(["-dc", file]).stdout(out).status();
                if !status.map_err(failed("xz"))?.success() {
                    return Err(Missing(format!("xz cannot unpack {file}")));
                }
            } else {
                copy(Path::new(file), &target)?;
            }
            order.push_str(name);
            order.push('\n');
        }
        if !order.ends_with(&format!("{last}\n")) {
            return Err(Missing(format!("this kernel package has no module {last}")));
        }
        fs::write(self.root.join("modules/order"), order).map_err(failed("the modules"))
    }

    /// The archive that an earlier call packed in `folder`.
    ///
    /// # Errors
    /// None did.
    pub fn packed(folder: &Path) -> Result<PathBuf, Missing> {
        let initrd = folder.join("initrd");
        let none = || Missing(format!("{} was not made", initrd.display()));
        if initrd.is_file() { Ok(initrd.clone()) } else { Err(none()) }
    }

    /// Packs the tree; returns the archive.
    ///
    /// # Errors
    /// `cpio` failed.
    pub fn pack(self) -> Result<PathBuf, Missing> {
        let initrd = self.folder.join("initrd");
        let names = run(Command::new("find").arg(".").current_dir(&self.root), "find")?;
        let list = self.folder.join("files");
        fs::write(&list, names).map_err(failed("the list of files"))?;
        let input = File::open(&list).map_err(failed("the guest's files"))?;
        let output = File::create(&initrd).map_err(failed("the guest's files"))?;
        let status = Command::new("cpio")
            .args(["-o", "-H", "newc", "--quiet"])
            .current_dir(&self.root)
            .stdin(input)
            .stdout(output)
            .status()
            .map_err(failed("cpio"))?;
        if status.success() { Ok(initrd) } else { Err(Missing("cpio failed".to_owned())) }
    }
}

/// The file of a line of `ldd`: `name => /path (address)`, or `/path (address)` for the program that loads the others.
fn library(line: &str) -> Option<&str> {
    let found = line.split_once("=> ").map_or(line, |(_, found)| found);
    found.split_whitespace().next().filter(|path| path.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ldd_name_files_or_none() {
        assert_eq!(library("\tlibm.so.6 => /lib/libm.so.6 (0x7f)"), Some("/lib/libm.so.6"));
        assert_eq!(library("\t/lib64/ld.so.2 (0x7f)"), Some("/lib64/ld.so.2"));
        assert_eq!(library("\tlinux-vdso.so.1 (0x7f)"), None);
        assert_eq!(library("\tlibx.so.1 => not found"), None);
    }
}

//! Programs of the system that tasks call.
//!
//! *Owns*: how one is looked for and installed. *Takes*: its name and Debian's package. *Gives*: whether
//! it is there. *Must not*: decide what its lack means.

use std::{path::Path, process::Command};

use crate::say::{Failure, TaskResult};

/// Installs a program when it is missing and may be.
pub(crate) fn tool(tool: &str, package: &str) -> TaskResult {
    let is_there = || {
        if tool.starts_with('/') {
            return Path::new(tool).exists();
        }
        Command::new(tool)
            .arg(if matches!(tool, "ip" | "iverilog") { "-V" } else { "--version" })
            .output()
            .is_ok_and(|out| out.status.success())
    };
    if is_there() {
        return Ok(());
    }
    for args in [&["update"][..], &["install", "-y", package]] {
        // What became of it shows below: without the right to install, or without apt, nothing.
        let _ =
            Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive").output();
    }
    if is_there() {
        return Ok(());
    }
    Err(Failure(format!("{tool} is missing: apt-get install {package} (as root)")))
}

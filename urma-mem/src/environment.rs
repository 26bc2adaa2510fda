//! What the process was given by the process that started it, and whether that is believed.
//!
//! *Owns*: every read of the environment by this workspace's libraries and tools, and the rule whether the process has
//! more rights than its caller. *Gives*: variables, and one line about those that were ignored. *Must not*: know what a
//! variable means; show a value, which is the caller's.
//!
//! A setting names sockets, files and libraries to use: in a process with more rights than its caller they would be a
//! way to those rights. The loader's rule is the same (`AT_SECURE`), and that of glibc's `secure_getenv`. This one adds
//! processes that are not dumpable: the kernel keeps other processes of their user from their memory, and a file of
//! that user must not undo it.
#![expect(unsafe_code, reason = "asks the kernel about this process")]

use std::{ffi::OsString, sync::Once};

use nix::unistd::{getegid, geteuid, getgid, getuid};

/// All variables of this workspace begin so.
const PREFIX: &str = "URMA_";
/// Most names in the line about what was ignored.
const NAMES_MAX: usize = 8;

/// A variable of the environment; none in a process that has more rights than its caller, which is said once.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    if more_rights().is_none() {
        return std::env::var_os(name);
    }
    say();
    None
}

/// Why the process has more rights than its caller, or than other processes of its user; `None`: it has not.
#[must_use]
pub fn more_rights() -> Option<&'static str> {
    if is_secure() {
        return Some("setuid, setgid or capabilities of its file");
    }
    if getuid() != geteuid() || getgid() != getegid() {
        return Some("its effective user or group is another one");
    }
    (!is_dumpable()).then_some("it is not dumpable")
}

/// Whether the kernel started this program with more rights than its caller has.
fn is_secure() -> bool {
    // SAFETY: it reads a number that the kernel gave this process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether other processes of the same user may look into this one, as far as it goes by `PR_SET_DUMPABLE`.
#[must_use]
pub fn is_dumpable() -> bool {
    // SAFETY: this request takes no pointer and changes nothing.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) == 1 }
}

/// What is ignored in this process, and why; `None`: nothing.
#[must_use]
pub fn ignored() -> Option<String> {
    let why = more_rights()?;
    let is_ours = |name: &OsString| name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
    let set = std::env::vars_os().map(|(name, _)| name).filter(is_ours);
    // Who chose the names may have put anything into them.
    let mut names: Vec<String> =
        set.map(|name| name.to_string_lossy().escape_debug().collect()).collect();
    if names.is_empty() {
        return None;
    }
    names.sort_unstable();
    let more = names.len().saturating_sub(NAMES_MAX);
    names.truncate(NAMES_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some(format!(
        "ignored: {}{more}, and settings in files of the user: the program runs with more rights than its user ({why}); \
         settings for it belong into /etc/urma/urma.toml",
        names.join(", ")
    ))
}

/// Says once what is ignored, as soon as a log takes the line.
fn say() {
    static SAID: Once = Once::new();
    if tracing::dispatcher::has_been_set()
        && let Some(line) = ignored()
    {
        SAID.call_once(|| tracing::warn!(target: "urma", "{line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_has_the_rights_of_its_caller() {
        assert_eq!((more_rights(), ignored()), (None, None));
        assert!(is_dumpable());
        assert_eq!(variable("PATH"), std::env::var_os("PATH"));
    }
}

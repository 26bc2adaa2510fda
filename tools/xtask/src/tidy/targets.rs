//! Rules about targets that cargo does not test.
//!
//! *Owns*: the look for tests in targets that say that they have none.

use toml::{Table, Value};

use super::File;

/// Whether a source has something that cargo would run.
type TargetLook = fn(&str) -> bool;

/// Keys of a target, and what it must not have where they are `false`.
const CHECKS: [(&str, TargetLook); 2] = [("test", has_test), ("doctest", has_example)];

/// A target with `test = false` has no test, one with `doctest = false` no example in its
/// documentation: nothing is left out by it.
pub(super) fn untested(files: &[File]) -> Vec<String> {
    let manifests = files.iter().filter(|file| file.path.ends_with("Cargo.toml"));
    manifests.flat_map(|manifest| of_manifest(manifest, files)).collect()
}

fn of_manifest(manifest: &File, files: &[File]) -> Vec<String> {
    let Ok(table) = manifest.text.parse::<Table>() else {
        return vec![format!("{}: cannot be read", manifest.path)];
    };
    let folder = manifest.path.trim_end_matches("Cargo.toml");
    let mut wrong = Vec::new();
    let library = table.get("lib").and_then(Value::as_table);
    let programs = table.get("bin").and_then(Value::as_array).into_iter().flatten();
    let programs = programs.filter_map(Value::as_table).map(|target| (target, "src/main.rs"));
    for (target, usual) in library.map(|target| (target, "src/lib.rs")).into_iter().chain(programs)
    {
        let path = target.get("path").and_then(Value::as_str).unwrap_or(usual);
        let sources = sources(&format!("{folder}{path}"), files);
        let is_off = |key: &str| target.get(key).and_then(Value::as_bool) == Some(false);
        for (key, is_there) in CHECKS.into_iter().filter(|(key, _)| is_off(key)) {
            let found = sources.iter().filter(|file| is_there(&file.text));
            wrong.extend(found.map(|file| format!("{}: {key} = false, and it has one", file.path)));
        }
    }
    wrong
}

/// The source `root` of a target, with all files of its folder if modules of it may lie there.
fn sources<'a>(root: &str, files: &'a [File]) -> Vec<&'a File> {
    let folder = ["/lib.rs", "/main.rs"].iter().find_map(|name| root.strip_suffix(name));
    let is_in = |path: &str| {
        let below = folder.and_then(|folder| path.strip_prefix(folder)?.strip_prefix('/'));
        // Programs beside a library are targets of their own.
        path == root || below.is_some_and(|below| !below.starts_with("bin/"))
    };
    files.iter().filter(|file| file.is_rust() && is_in(&file.path)).collect()
}

fn has_test(text: &str) -> bool {
    text.lines()
        .map(str::trim_start)
        .any(|line| line.starts_with("#[test]") || line.starts_with("proptest!"))
}

/// Whether the documentation has an example that would be compiled, or takes a text that may have.
fn has_example(text: &str) -> bool {
    let mut is_inside = false;
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#![doc = include_str!") || line.starts_with("#[doc = include_str!") {
            return true;
        }
        let doc = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"));
        let Some(fence) = doc.and_then(|doc| doc.trim_start().strip_prefix("```")) else {
            continue;
        };
        is_inside = !is_inside;
        let is_other = ["text", "console", "c", "toml", "sh", "json"].contains(&fence.trim());
        if is_inside && !is_other {
            return true;
        }
    }
    false
}

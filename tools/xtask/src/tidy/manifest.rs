//! Rules about manifests, lint files, the table of crates in ARCHITECTURE.md, and targets that cargo does not test.
//!
//! [`ALLOWED`] says which crate may depend on which; [`self`] shows what each does use.

use std::{collections::BTreeMap, fmt::Write as _};

use toml::{Table, Value};

use super::File;
use crate::say::Failure;

/// Dependencies of each crate on others of the workspace that are allowed, lowest crate first.
const ALLOWED: &[(&str, &[&str])] = &[
    ("urma-mem", &[]),
    ("urma-core", &["urma-mem"]),
    ("urma-answer", &["urma-core", "urma-mem"]),
    ("udma-abi", &["urma-mem"]),
    ("udma-provider", &["urma-core", "udma-abi", "urma-mem"]),
    ("urma-packet", &[]),
    ("urma-rc", &["urma-packet"]),
    ("inc", &["urma-mem", "urma-packet"]),
    ("inc-control", &["inc", "urma-packet"]),
    ("inc-net", &["inc", "inc-control", "urma-mem", "urma-packet", "urma-xdp"]),
    ("udma-vfio", &["udma-abi", "urma-mem"]),
    ("urma-recovery", &["udma-abi", "urma-mem"]),
    ("urma-contexts", &["urma-mem"]),
    ("urma-splice", &["urma-packet"]),
    ("urma-xdp", &["urma-mem"]),
    ("ubcore-sim", &["udma-abi", "urma-packet", "urma-rc", "urma-recovery", "urma-mem"]),
    ("urma-nic", &["udma-abi", "ubcore-sim", "urma-contexts", "urma-splice"]),
    ("inc-node", &["inc-net", "ubcore-sim", "urma-packet"]),
    (
        "urma",
        &[
            "urma-core",
            "urma-answer",
            "udma-provider",
            "udma-vfio",
            "udma-abi",
            "ubcore-sim",
            "urma-nic",
            "urma-mem",
        ],
    ),
    ("inccl", &["inc", "inc-control", "inc-net", "inc-node", "ubcore-sim", "urma", "urma-mem"]),
    (
        "liburma",
        &[
            "urma",
            "urma-core",
            "urma-answer",
            "udma-provider",
            "udma-abi",
            "ubcore-sim",
            "urma-nic",
            "urma-mem",
        ],
    ),
    ("liburma-common", &[]),
    ("libtpsa", &[]),
    ("urma-tools", &["urma-mem"]),
    (
        "inc-tools",
        &[
            "inc",
            "inc-control",
            "inc-net",
            "inc-node",
            "ubcore-sim",
            "urma",
            "urma-packet",
            "urma-tools",
        ],
    ),
    ("inc-controller", &["inc", "inc-control", "urma-tools"]),
    ("urma_ping", &["urma", "urma-tools"]),
    ("urma_perftest", &["urma", "urma-tools"]),
    (
        "urma_admin",
        &["urma", "udma-abi", "udma-vfio", "ubcore-sim", "urma-nic", "urma-packet", "urma-tools"],
    ),
    ("ubcored", &["urma", "ubcore-sim", "udma-abi", "udma-vfio", "urma-mem", "urma-tools"]),
    ("urma-examples", &["urma"]),
    ("urma-e1000e", &["udma-vfio", "udma-abi", "urma-mem"]),
    (
        "lab",
        &[
            "urma-mem",
            "urma-recovery",
            "urma-contexts",
            "urma-splice",
            "udma-abi",
            "ubcore-sim",
            "urma",
        ],
    ),
];

/// Composition roots: crates that may depend on any other.
const ROOTS: &[&str] = &["xtask", "urma-tests", "urma-fuzz"];

fn manifests(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.path.ends_with("/Cargo.toml"))
}

/// Lines of a table of a manifest.
fn table<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let header = format!("[{name}]");
    let lines = text.lines().skip_while(move |line| line.trim() != header).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    lines.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn name(text: &str) -> &str {
    let line = table(text, "package").find(|line| line.starts_with("name"));
    line.and_then(|line| line.split('"').nth(1)).unwrap_or("")
}

/// Finds dependencies that [`ALLOWED`] does not have: driver and device share the contract only, and
/// no crate depends on one above it.
pub(super) fn dependencies(files: &[File]) -> Vec<String> {
    let mut wrong = Vec::new();
    for file in manifests(files) {
        let package = name(&file.text);
        if ROOTS.contains(&package) || file.path.starts_with("tests/") {
            continue;
        }
        let Some((_, below)) = ALLOWED.iter().find(|(name, _)| *name == package) else {
            wrong.push(format!(
                "{}: {package} has no row in ALLOWED (tools/xtask/src/tidy/manifest.rs)",
                file.path
            ));
            continue;
        };
        for line in table(&file.text, "dependencies") {
            let dependency = line.split([' ', '=', '.']).next().unwrap_or("");
            let is_ours =
                ALLOWED.iter().any(|(name, _)| *name == dependency) || ROOTS.contains(&dependency);
            if is_ours && !below.contains(&dependency) {
                wrong.push(format!("{}: {package} must not depend on {dependency}", file.path));
            }
        }
    }
    wrong
}

/// A version is written once, in the root manifest.
pub(super) fn versions(files: &[File]) -> Vec<String> {
    let mut wrong = Vec::new();
    for file in manifests(files).filter(|file| !file.path.contains("fuzz")) {
        for table_name in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for line in table(&file.text, table_name) {
                let is_inherited = line.contains("workspace = true") || !line.contains('=');
                let is_continued = line.starts_with(['"', ']', '}']);
                if !is_inherited && !is_continued {
                    wrong.push(format!("{}: {line}", file.path));
                }
            }
        }
    }
    wrong
}

/// A crate's own clippy.toml replaces the root's: it must repeat it.
pub(super) fn clippy(files: &[File]) -> Vec<String> {
    let Some(root) = files.iter().find(|file| file.path == "clippy.toml") else {
        return vec!["clippy.toml: missing".to_owned()];
    };
    let mut wrong = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with("/clippy.toml")) {
        let lines = root.text.lines().map(str::trim).filter(|line| !line.is_empty());
        for line in lines.filter(|line| !file.text.contains(line)) {
            wrong.push(format!("{}: lacks {line}", file.path));
        }
    }
    wrong
}

/// The document that has the table.
pub(crate) const PAGE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- crates: written by `cargo xtask docs` from the manifests -->\n";
const END: &str = "<!-- end of the crates -->\n";

/// The table in the document is what `cargo xtask docs` writes.
pub(super) fn listed(files: &[File]) -> Vec<String> {
    match current(files) {
        Ok(page) if files.iter().any(|file| file.path == PAGE && file.text == page) => Vec::new(),
        Ok(_) => vec![format!("{PAGE}: run cargo xtask docs")],
        Err(Failure(why)) => vec![why],
    }
}

/// The page with the table as the manifests have it now.
pub(crate) fn current(files: &[File]) -> Result<String, Failure> {
    let page = files.iter().find(|file| file.path == PAGE).map_or("", |file| file.text.as_str());
    let marks = page.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) =
        marks.ok_or_else(|| Failure(format!("{PAGE} lacks the marks of the table of crates")))?;
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", crates(files)?))
}

/// A row for each crate, in the order of the workspace's members.
fn crates(files: &[File]) -> Result<String, Failure> {
    let mut manifests: BTreeMap<&str, Table> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.ends_with("Cargo.toml")) {
        let folder = file.path.trim_end_matches("Cargo.toml").trim_end_matches('/');
        let table = file.text.parse().map_err(|why| Failure(format!("{}: {why}", file.path)))?;
        manifests.insert(folder, table);
    }
    let names: Vec<&str> = manifests.values().filter_map(|table| package(table, "name")).collect();
    let mut rows = String::from("| folder | crate | what it is | uses |\n|---|---|---|---|\n");
    for folder in ["members", "exclude"].iter().flat_map(|key| folders(&manifests, key)) {
        let Some(manifest) = manifests.get(folder) else { continue };
        let text = |key| package(manifest, key).unwrap_or("?");
        let used = manifest.get("dependencies").and_then(Value::as_table);
        let used = used.into_iter().flat_map(Table::keys).map(String::as_str);
        let used: Vec<&str> = used.filter(|name| names.contains(name)).collect();
        let _ = writeln!(
            rows,
            "| `{folder}` | `{}` | {} | {} |",
            text("name"),
            text("description"),
            used.join(", ")
        );
    }
    Ok(rows)
}

/// Folders of a list in the workspace's table.
fn folders<'m>(manifests: &'m BTreeMap<&str, Table>, key: &str) -> impl Iterator<Item = &'m str> {
    let workspace = manifests.get("").and_then(|root| root.get("workspace"));
    let list = workspace.and_then(|table| table.get(key)).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

fn package<'m>(manifest: &'m Table, key: &str) -> Option<&'m str> {
    manifest.get("package")?.get(key)?.as_str()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn each_crate_has_a_row_from_its_manifest() {
        let page = format!("# A\n{BEGIN}old\n{END}B\n");
        let upper =
            "[package]\nname = \"b\"\ndescription = \"Upper\"\n[dependencies]\na = {}\nx = {}\n";
        let files = [
            file("ARCHITECTURE.md", &page),
            file("Cargo.toml", "[workspace]\nmembers = [\"up\", \"low\"]\nexclude = []\n"),
            file("low/Cargo.toml", "[package]\nname = \"a\"\ndescription = \"Lower\"\n"),
            file("up/Cargo.toml", upper),
        ];
        let page = current(&files).expect("the page");
        let rows = "| `up` | `b` | Upper | a |\n| `low` | `a` | Lower |  |\n";
        let head = "| folder | crate | what it is | uses |\n|---|---|---|---|\n";
        assert_eq!(page, format!("# A\n{BEGIN}\n{head}{rows}\n{END}B\n"));
        assert!(current(&files[1..]).is_err(), "a page without marks");
        assert_eq!(listed(&files), ["ARCHITECTURE.md: run cargo xtask docs"], "the old table");
        let now = [&[file("ARCHITECTURE.md", &page)][..], &files[1..]].concat();
        assert_eq!(listed(&now), [""; 0]);
    }
}

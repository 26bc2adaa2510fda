//! Rules about manifests and lint files.
//!
//! [`ALLOWED`] says which crate may depend on which; [`super::crates`] shows what each does use.

use super::File;

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
    ("urma-splice", &[]),
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

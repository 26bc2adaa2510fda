//! Rules about Rust sources.
//!
//! *Owns*: first lines, lengths, reachability, expectations, where unsafe code may be.

use syn::punctuated::Punctuated;

use super::File;

/// Most lines of a file, net of its tests.
const LINES_MAX: usize = 1000;
/// Where unsafe code may be: memory shared with others, devices of other owners, the C face, and the tests' calls of it.
const UNSAFE_HOMES: &[&str] =
    &["urma-mem/", "udma-provider/vfio/", "liburma/", "inc/inccl/", "tests/adapter/"];

fn rust(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.is_rust())
}

/// Whether a file holds tests only.
pub(super) fn is_test(path: &str) -> bool {
    path.starts_with("tests/")
        || path.contains("/tests/")
        || path.contains("/benches/")
        || path.ends_with("/tests.rs")
}

/// Whether code with this attribute is never there without `test`: `cfg(test)`, `cfg(all(test, …))`, but not
/// `cfg(any(test, feature = "…"))`.
pub(super) fn is_for_tests(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args().is_ok_and(|condition| needs_test(&condition))
}

fn needs_test(condition: &syn::Meta) -> bool {
    let syn::Meta::List(list) = condition else { return condition.path().is_ident("test") };
    type Conditions = Punctuated<syn::Meta, syn::Token![,]>;
    let Ok(inner) = list.parse_args_with(Conditions::parse_terminated) else { return false };
    if list.path.is_ident("all") {
        inner.iter().any(needs_test)
    } else {
        list.path.is_ident("any") && inner.iter().all(needs_test)
    }
}

/// A file begins with a line that says what it is for.
pub(super) fn purposes(files: &[File]) -> Vec<String> {
    let without = rust(files).filter(|file| !file.text.starts_with("//! "));
    without.map(|file| format!("{}: begins without //!", file.path)).collect()
}

/// No file is longer than [`LINES_MAX`], net of its tests.
pub(super) fn lengths(files: &[File]) -> Vec<String> {
    let code = rust(files).filter(|file| !is_test(&file.path));
    let lengths = code.map(|file| {
        let tests = file.text.find("#[cfg(test)]\nmod tests {");
        let net = tests.map_or(file.text.as_str(), |at| &file.text[..at]);
        (file, net.lines().count())
    });
    let long = lengths.filter(|(_, lines)| *lines > LINES_MAX);
    long.map(|(file, lines)| format!("{}: {lines} lines", file.path)).collect()
}

/// The mirror that is checked in is what `cargo xtask mirror` makes.
pub(super) fn mirror(files: &[File]) -> Vec<String> {
    let find = |path: &str| files.iter().find(|file| file.path == path);
    let made = match crate::mirror::generate(|path| find(path).map(|file| file.text.clone())) {
        Ok(made) => made,
        Err(wrong) => return wrong,
    };
    let is_stale =
        |(path, text): &(String, String)| find(path).is_none_or(|file| file.text != *text);
    let stale = made.into_iter().filter(is_stale);
    stale.map(|(path, _)| format!("{path}: run cargo xtask mirror")).collect()
}

/// Each file is declared as a module of its crate.
pub(super) fn reachable(files: &[File]) -> Vec<String> {
    let lost = rust(files).filter(|file| !is_reachable(file, files));
    lost.map(|file| format!("{}: no module declares it", file.path)).collect()
}

fn is_reachable(file: &File, files: &[File]) -> bool {
    let Some((before, inside)) = file.path.split_once("src/") else { return true };
    if matches!(inside, "main.rs" | "lib.rs")
        || inside.starts_with("bin/")
        || before.contains("fuzz")
    {
        return true;
    }
    let path = file.path.trim_end_matches(".rs").trim_end_matches("/mod");
    let Some((folder, name)) = path.rsplit_once('/') else { return true };
    let parents = [
        format!("{folder}.rs"),
        format!("{folder}/mod.rs"),
        format!("{folder}/lib.rs"),
        format!("{folder}/main.rs"),
    ];
    let declares = |text: &str| {
        text.lines().any(|line| {
            let Some((_, after)) = line.split_once("mod ") else { return false };
            after.trim_end_matches([';', '{', ' ']) == name
        })
    };
    // A package with explicit paths names its targets in the manifest.
    let is_named = |other: &&File| {
        other.path.ends_with("Cargo.toml") && other.text.contains(&format!("{inside}\""))
    };
    let declared = files.iter().filter(|other| parents.contains(&other.path));
    declared.clone().any(|parent| declares(&parent.text)) || files.iter().any(|f| is_named(&f))
}

/// `expect` with a reason; never `allow`.
pub(super) fn expectations(files: &[File]) -> Vec<String> {
    let mut wrong = Vec::new();
    for file in rust(files).filter(|file| !file.path.starts_with("tools/xtask/src/tidy")) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let line_at = index + 1;
            let code = line.trim_start();
            if code.starts_with("#[allow(") || code.starts_with("#![allow(") {
                wrong.push(format!("{}:{line_at}: allow; use expect with a reason", file.path));
            }
            if code.starts_with("#[expect(") || code.starts_with("#![expect(") {
                let rest = lines[index..].iter().take(6).copied().collect::<Vec<_>>().join(" ");
                let attribute = rest.split_once(")]").map_or(rest.as_str(), |(before, _)| before);
                if !attribute.contains("reason") {
                    wrong.push(format!("{}:{line_at}: expect without a reason", file.path));
                }
            }
        }
    }
    wrong
}

/// Unsafe code lives where memory and C callers are met; every other crate forbids it.
pub(super) fn unsafety(files: &[File]) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_home = |file: &File| UNSAFE_HOMES.iter().any(|home| file.path.starts_with(home));
    let outside = rust(files).filter(|file| !is_home(file));
    for file in outside.filter(|file| !file.path.starts_with("tools/xtask/src/tidy")) {
        for (index, line) in file.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            let is_unsafe = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe("]
                .iter()
                .any(|form| code.contains(form));
            if is_unsafe {
                wrong.push(format!("{}:{}: unsafe code", file.path, index + 1));
            }
        }
        let is_root = file.path.ends_with("src/lib.rs") || file.path.ends_with("src/main.rs");
        if is_root && !file.path.contains("fuzz") && !file.text.contains("#![forbid(unsafe_code)]")
        {
            wrong.push(format!("{}: does not forbid unsafe code", file.path));
        }
    }
    wrong
}

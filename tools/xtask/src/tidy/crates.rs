//! The table of crates in ARCHITECTURE.md, made from the manifests.

use std::{collections::BTreeMap, fmt::Write as _};

use toml::{Table, Value};

use super::File;
use crate::say::Failure;

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

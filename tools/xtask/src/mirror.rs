//! `cargo xtask mirror`: writes the Rust mirror of the C API.
//!
//! *Owns*: the form of the table `liburma/src/abi/mirror.txt`, and of the files made from it. *Takes*: the
//! table, which says what is mirrored and of which Rust type each member is, and the golden layouts of both
//! releases, which have every number. *Gives*: `shared.rs`, `fabric.rs` (the part that libtpsa includes too)
//! and `providers.rs`, which both releases have alike, and a file for each release. *Must not*: take a number from the table.
//!
//! Lines of the table begin an entry, or belong to the last one when they are indented:
//!
//! * `consts TYPE: NAME ...`, `enum NAME TYPE: VALUE ...`: constants, whose values are golden;
//! * `flags NAME TYPE`: a word with the bit fields `bs.*` of that type; `flags NAME TYPE in PARENT: FIELD ...`:
//!   a word with bit fields that lie in a parent; `bits NAME TYPE`: the fields only, of a struct of the table;
//! * `struct NAME`, `union NAME`, with `member: TYPE` or `member=path: TYPE`, and `-path` for what is left out;
//!   `packed`; `unique`: not `Copy`; `in PARENT` or `in PARENT.path`: a part that C gives no name;
//! * `@RELEASE` in front of an entry or member: in that release only. `///` and `#[` go with the next entry.

mod layout;
mod write;

use std::{collections::BTreeSet, fs, path::Path};

use crate::say::{Failure, say};
use layout::Golden;

/// Folder of the mirror.
const FOLDER: &str = "liburma/src/abi";
/// Path of the table that the mirror is made from.
const TABLE: &str = "liburma/src/abi/mirror.txt";
/// The releases: name, golden layout, module; the first is the default one.
const RELEASES: [(&str, &str, &str); 2] = [
    ("26.06", "liburma/tests/data/layout-26.06.txt", "v26_06"),
    ("25.12.0.B081", "liburma/tests/data/layout-25.12.0.B081.txt", "v25_12_0_b081"),
];

/// An entry of the table.
#[derive(Clone, Debug, Default)]
struct MirrorEntry {
    /// The one release that has it; empty: both.
    only: String,
    /// `consts`, `enum`, `flags`, `bits`, `struct` or `union`.
    kind: String,
    /// Name of the type; empty for `consts`.
    name: String,
    /// Integer type of a word or of constants.
    word: String,
    /// `PARENT` or `PARENT.path` of a part.
    parent: Option<String>,
    is_packed: bool,
    is_unique: bool,
    /// Documentation and attributes, as they are written.
    above: Vec<String>,
    /// Constants and bit fields.
    names: Vec<String>,
    members: Vec<MirrorMember>,
    /// Golden paths that have no member.
    left_out: Vec<String>,
}

/// A member of a struct or union.
#[derive(Clone, Debug)]
struct MirrorMember {
    only: String,
    name: String,
    /// Path in the golden data.
    path: String,
    kind: String,
}

/// Reads the entries of the table, or says which line is wrong.
fn entries(table: &str) -> Result<Vec<MirrorEntry>, String> {
    let mut entries: Vec<MirrorEntry> = Vec::new();
    let mut above = Vec::new();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
        let wrong = || format!("{TABLE}: {line}");
        if line.starts_with("///") || line.starts_with("#[") {
            above.push(line.to_owned());
        } else if let Some(more) = line.strip_prefix("  ") {
            let entry = entries.last_mut().ok_or_else(wrong)?;
            extend(entry, more).ok_or_else(wrong)?;
        } else {
            let mut entry = begin(line).ok_or_else(wrong)?;
            entry.above = core::mem::take(&mut above);
            entries.push(entry);
        }
    }
    Ok(entries)
}

fn release_of(text: &str) -> Option<(String, &str)> {
    match text.strip_prefix('@') {
        None => Some((String::new(), text)),
        Some(rest) => rest.split_once(' ').map(|(release, rest)| (release.to_owned(), rest)),
    }
}

fn begin(line: &str) -> Option<MirrorEntry> {
    let (only, rest) = release_of(line)?;
    let (head, names) = rest.split_once(':').unwrap_or((rest, ""));
    let mut words = head.split(' ');
    let kind = words.next()?.to_owned();
    let mut entry = MirrorEntry { only, kind, ..MirrorEntry::default() };
    if entry.kind != "consts" {
        words.next()?.clone_into(&mut entry.name);
    }
    if !matches!(entry.kind.as_str(), "struct" | "union") {
        words.next()?.clone_into(&mut entry.word);
    }
    while let Some(word) = words.next() {
        match word {
            "packed" => entry.is_packed = true,
            "unique" => entry.is_unique = true,
            "in" => entry.parent = Some(words.next()?.to_owned()),
            _ => return None,
        }
    }
    entry.names = names.split_whitespace().map(str::to_owned).collect();
    Some(entry)
}

fn extend(entry: &mut MirrorEntry, line: &str) -> Option<()> {
    if let Some(path) = line.strip_prefix('-') {
        entry.left_out.push(path.to_owned());
    } else if matches!(entry.kind.as_str(), "struct" | "union") {
        let (only, rest) = release_of(line)?;
        let (name, kind) = rest.split_once(": ")?;
        let (name, path) = name.split_once('=').unwrap_or((name, name));
        let path = path.trim_start_matches("r#").to_owned();
        entry.members.push(MirrorMember {
            only,
            name: name.to_owned(),
            path,
            kind: kind.to_owned(),
        });
    } else {
        entry.names.extend(line.split_whitespace().map(str::to_owned));
    }
    Some(())
}

/// The files of the mirror: path and text.
///
/// # Errors
/// A line that cannot be read; something that no release has; a golden member that no entry mirrors.
pub(crate) fn generate(
    read: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(String, String)>, Vec<String>> {
    let text = |path: &str| read(path).ok_or_else(|| vec![format!("{path} is not readable")]);
    let entries = entries(&text(TABLE)?).map_err(|why| vec![why])?;
    let mut golden = Vec::new();
    for (_, path, _) in RELEASES {
        golden.push(Golden::of(&text(path)?).map_err(|line| vec![format!("{path}: {line}")])?);
    }
    let [newer, older] = &golden[..] else { return Err(vec!["two releases".to_owned()]) };
    let mut wrong = unused(&entries, &golden);
    wrong.extend(entries.iter().flat_map(|entry| unknown(entry, &golden)));
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let of = |entry: &MirrorEntry, at: usize| write::entry(entry, RELEASES[at].0, &golden[at]);
    let mut files = [(); 5].map(|()| write::WrittenFile::default());
    let mut wrong = Vec::new();
    for entry in &entries {
        let both = (of(entry, 0), of(entry, 1));
        match both {
            (Some(one), Some(other)) if one == other => {
                files[room(entry, newer)].add(entry, one);
            }
            (None, None) => wrong.push(format!("{TABLE}: no release has {}", entry.name)),
            (one, other) => {
                one.into_iter().for_each(|text| files[3].add(entry, text));
                other.into_iter().for_each(|text| files[4].add(entry, text));
            }
        }
    }
    files[4].add_absent(&entries, newer, older);
    let [shared, fabric, providers, first, second] = files;
    let name = |module: &str| format!("{FOLDER}/{module}.rs");
    let made = vec![
        (name("shared"), shared.text("what both releases have alike")),
        (name("fabric"), fabric.text("EIDs, and the fabric service of `uvs_api.h`")),
        (name("providers"), providers.text("providers, and what a device defines")),
        (name(RELEASES[0].2), first.text("what release 26.06 has of its own")),
        (name(RELEASES[1].2), second.text("what release 25.12.0.B081 has of its own")),
    ];
    if wrong.is_empty() { Ok(made) } else { Err(wrong) }
}

/// What an entry names and no release has.
fn unknown(entry: &MirrorEntry, golden: &[Golden]) -> Vec<String> {
    let of = entry
        .parent
        .as_deref()
        .map_or(entry.name.as_str(), |parent| parent.split('.').next().unwrap_or(parent));
    let types = || golden.iter().filter_map(|golden| golden.types.get(of));
    let is_value = |name: &String| golden.iter().any(|golden| golden.values.contains_key(name));
    let is_known = |name: &String| is_value(name) || types().any(|of| of.bits(name).is_some());
    let path = |member: &MirrorMember| format!("{}{}", entry.prefix(), member.path);
    let names = entry.names.iter().filter(|name| !is_known(name)).cloned();
    let members = entry.members.iter().map(path);
    let members = members.filter(|path| !types().any(|of| of.offset(path).is_some()));
    names.chain(members).map(|name| format!("{TABLE}: {of} has no {name}")).collect()
}

/// The file of what both releases have alike: 1 is libtpsa's too, 2 is about providers.
fn room(entry: &MirrorEntry, golden: &Golden) -> usize {
    let name = entry.parent.as_deref().unwrap_or(&entry.name);
    let name = if name.is_empty() { entry.names.first().map_or("", String::as_str) } else { name };
    let header = golden.header(name.split('.').next().unwrap_or(name));
    if name.starts_with("uvs_") || header.starts_with("uvs_") || name == "urma_eid_t" {
        1
    } else {
        2 * usize::from(!matches!(header, "" | "urma_types.h" | "urma_opcode.h"))
    }
}

/// Golden members and bits of mirrored types that no entry mirrors.
fn unused(entries: &[MirrorEntry], golden: &[Golden]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, golden) in golden.iter().enumerate() {
        let release = RELEASES[at].0;
        let here = |only: &str| only.is_empty() || only == release;
        for entry in entries.iter().filter(|entry| here(&entry.only) && entry.parent.is_none()) {
            let Some(of) = golden.types.get(&entry.name) else { continue };
            let mut used = BTreeSet::new();
            for part in entries.iter().filter(|part| part.is_of(&entry.name) && here(&part.only)) {
                let prefix = part.prefix();
                let paths = part.members.iter().filter(|member| here(&member.only));
                used.extend(paths.map(|member| format!("{prefix}{}", member.path)));
                used.extend(part.names.iter().map(|name| format!("{prefix}{name}")));
                used.extend(part.left_out.iter().cloned());
                if matches!(part.kind.as_str(), "flags" | "bits") {
                    used.extend(of.flags().map(|(name, ..)| format!("bs.{name}")));
                    used.insert("value".to_owned());
                }
            }
            let is_used = |path: &str| {
                used.iter().any(|known| path == known || path.starts_with(&format!("{known}.")))
            };
            for path in of.paths().filter(|path| !is_used(path)) {
                wrong.push(format!("{release}: {}.{path} is not in the mirror", entry.name));
            }
        }
    }
    wrong
}

impl MirrorEntry {
    /// Whether it is the type of this name or a part of it.
    fn is_of(&self, name: &str) -> bool {
        let parent = self.parent.as_deref().map(|parent| parent.split('.').next());
        self.name == name || parent == Some(Some(name))
    }

    /// What paths of its members begin with in the golden data of its parent.
    fn prefix(&self) -> String {
        let path = self.parent.as_deref().and_then(|parent| parent.split_once('.'));
        path.map_or(String::new(), |(_, path)| format!("{path}."))
    }
}

/// Writes the files.
///
/// # Errors
/// What [`generate`] says; a file that cannot be written.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    for (path, text) in generate(read).map_err(|wrong| Failure(wrong.join("\n")))? {
        if read(&path).as_deref() != Some(text.as_str()) {
            fs::write(root.join(&path), text).map_err(Failure::system("writing the mirror"))?;
            say(&format!("{path} is new"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! `cargo xtask mirror`: writes the Rust mirror of the C API, from the table `liburma/src/abi/mirror.txt` and the
//! golden layouts of both releases (`liburma/tests/data/layout-*.txt`), which have every number.
//!
//! The table says what is mirrored and of which Rust type each member is; no number is taken from it. The files are
//! `shared.rs`, `fabric.rs` (the part that libtpsa includes too) and `providers.rs`, which both releases have alike,
//! and one for each release.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::say::{Failure, say};

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
///
/// Lines of the table begin an entry, or belong to the last one when they are indented:
///
/// * `consts TYPE: NAME ...`, `enum NAME TYPE: VALUE ...`: constants, whose values are golden;
/// * `flags NAME TYPE`: a word with the bit fields `bs.*` of that type; `flags NAME TYPE in PARENT: FIELD ...`:
///   a word with bit fields that lie in a parent; `bits NAME TYPE`: the fields only, of a struct of the table;
/// * `struct NAME`, `union NAME`, with `member: TYPE` or `member=path: TYPE`, and `-path` for what is left out;
///   `packed`; `unique`: not `Copy`; `in PARENT` or `in PARENT.path`: a part that C gives no name;
/// * `@RELEASE` in front of an entry or member: in that release only. `///` and `#[` go with the next entry.
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
    let of = |one: &MirrorEntry, at: usize| entry(one, RELEASES[at].0, &golden[at]);
    let mut files = [(); 5].map(|()| WrittenFile::default());
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

/// The numbers of one release.
#[derive(Debug, Default)]
struct Golden {
    types: BTreeMap<String, Type>,
    values: BTreeMap<String, i64>,
    /// The headers of the values.
    headers: BTreeMap<String, String>,
}

/// A struct or union of C.
#[derive(Debug, Default)]
struct Type {
    /// Size of the type in bytes.
    size: usize,
    header: String,
    rows: Vec<Row>,
}

/// Something inside of a type.
#[derive(Debug)]
struct Row {
    /// `at`, `part`, `anon` or `bits`.
    kind: String,
    /// Byte offset; first bit of bits.
    first: usize,
    /// Bytes of a part, width of bits; 0 of a member.
    len: usize,
    path: String,
}

impl Golden {
    /// # Errors
    /// The line that cannot be read.
    fn of(text: &str) -> Result<Self, String> {
        let mut golden = Self::default();
        let mut current = String::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            golden.take(line, &mut current).ok_or_else(|| line.to_owned())?;
        }
        Ok(golden)
    }

    fn take(&mut self, line: &str, current: &mut String) -> Option<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words {
            ["type", name, size, header] => {
                name.rsplit(':').next()?.clone_into(current);
                let of = Type { size: size.parse().ok()?, header: header.to_owned(), rows: vec![] };
                self.types.insert(current.clone(), of);
            }
            ["enum", _, header] | ["const", header] => header.clone_into(current),
            ["is", value, name] => {
                self.values.insert(name.to_owned(), value.parse().ok()?);
                self.headers.insert(name.to_owned(), current.clone());
            }
            ["at", first, path] => self.row(current, "at", (first, "0"), path)?,
            [kind @ ("part" | "anon" | "bits"), first, len, path] => {
                self.row(current, kind, (first, len), path)?;
            }
            _ => return None,
        }
        Some(())
    }

    fn row(&mut self, of: &str, kind: &str, (first, len): (&str, &str), path: &str) -> Option<()> {
        let (first, len) = (first.parse().ok()?, len.parse().ok()?);
        let row = Row { kind: kind.to_owned(), first, len, path: path.to_owned() };
        self.types.get_mut(of)?.rows.push(row);
        Some(())
    }

    /// The header that defines a type or a value; empty where the golden data has no such name.
    fn header(&self, name: &str) -> &str {
        let of_type = self.types.get(name).map(|of| of.header.as_str());
        of_type.or_else(|| self.headers.get(name).map(String::as_str)).unwrap_or("")
    }
}

impl Type {
    /// Byte offset of a member, part or bit field. A member `u` is what has no name.
    fn offset(&self, path: &str) -> Option<usize> {
        let is_it = |row: &&Row| row.path == path || path == "u" && row.kind == "anon";
        let row = self.rows.iter().find(is_it)?;
        Some(if row.kind == "bits" { row.first / 8 } else { row.first })
    }

    /// Offset and size of a part with a name, or of the one without (`""`).
    fn part(&self, path: &str) -> Option<(usize, usize)> {
        let kind = if path.is_empty() { "anon" } else { "part" };
        let is_it = |row: &&Row| row.kind == kind && (path.is_empty() || row.path == path);
        self.rows.iter().find(is_it).map(|row| (row.first, row.len))
    }

    /// First bit and width of a bit field.
    fn bits(&self, path: &str) -> Option<(usize, usize)> {
        let row = self.rows.iter().find(|row| row.kind == "bits" && row.path == path)?;
        Some((row.first, row.len))
    }

    /// The bit fields `bs.*` that have a use: name, first bit, width.
    fn flags(&self) -> impl Iterator<Item = (&str, usize, usize)> {
        let bits = self.rows.iter().filter(|row| row.kind == "bits");
        let named =
            bits.filter_map(|row| Some((row.path.strip_prefix("bs.")?, row.first, row.len)));
        named.filter(|(name, ..)| !name.starts_with("reserved"))
    }

    /// Paths of members and bit fields that have a use.
    fn paths(&self) -> impl Iterator<Item = &str> {
        let rows = self.rows.iter().filter(|row| matches!(row.kind.as_str(), "at" | "bits"));
        let is_reserved = |row: &&Row| {
            row.kind == "bits"
                && row.path.rsplit('.').next().is_some_and(|name| name.starts_with("reserve"))
        };
        rows.filter(move |row| !is_reserved(row)).map(|row| row.path.as_str())
    }
}

/// Most characters of a line.
const WIDTH: usize = 100;

/// The entry in a release, as the body of its macro; `None`: the release does not have it.
fn entry(of: &MirrorEntry, release: &str, golden: &Golden) -> Option<String> {
    if !of.only.is_empty() && of.only != release {
        return None;
    }
    let (head, items) = match of.kind.as_str() {
        "consts" => (format!("{} {{", of.word), values(of, golden)?),
        "enum" => (format!("{}: {} {{", of.name, of.word), values(of, golden)?),
        "flags" | "bits" => (format!("{}: {} {{", of.name, of.word), bits(of, golden)?),
        _ => {
            let (size, items) = members(of, release, golden)?;
            (format!("{} {}[{size}] {{", of.kind, of.name), items)
        }
    };
    let mut text: String = of.above.iter().map(|line| format!("    {line}\n")).collect();
    if of.is_packed {
        text.push_str("    #[repr(packed)]\n");
    }
    text.push_str(&filled(&head, &items));
    Some(text)
}

/// `    head item item }`, in lines of at most [`WIDTH`] where an item is no longer.
fn filled(head: &str, items: &[String]) -> String {
    let one = format!("    {head} {} }}\n", items.join(" "));
    if one.len() <= WIDTH {
        return one.replace("{  }", "{}");
    }
    let (mut text, mut line) = (format!("    {head}\n"), String::new());
    for item in items {
        if !line.is_empty() && 8 + line.len() + 1 + item.len() > WIDTH {
            text.push_str(&format!("        {line}\n"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(item);
    }
    text + &format!("        {line}\n    }}\n")
}

/// Constants; one that only another release has is written in that release's file alone.
fn values(of: &MirrorEntry, golden: &Golden) -> Option<Vec<String>> {
    let known = of.names.iter().filter_map(|name| Some((name, golden.values.get(name)?)));
    let items: Vec<String> = known.map(|(name, value)| format!("{name} = {value},")).collect();
    (!items.is_empty() || of.kind == "enum").then_some(items)
}

fn bits(of: &MirrorEntry, golden: &Golden) -> Option<Vec<String>> {
    let item =
        |name: &str, first: usize, width: usize| format!("{first}, {width} => {name}, set_{name};");
    let Some(parent) = &of.parent else {
        let all = golden.types.get(&of.name)?.flags();
        return Some(all.map(|(name, first, width)| item(name, first, width)).collect());
    };
    let parent = golden.types.get(parent)?;
    let base = parent.bits(of.names.first()?)?.0 / 8 * 8;
    of.names
        .iter()
        .map(|name| parent.bits(name).map(|(first, width)| item(name, first - base, width)))
        .collect()
}

/// Size in bytes, and the members.
fn members(of: &MirrorEntry, release: &str, golden: &Golden) -> Option<(usize, Vec<String>)> {
    let parent = of.parent.as_deref().unwrap_or(&of.name);
    let (name, path) = parent.split_once('.').unwrap_or((parent, ""));
    let parent = golden.types.get(name)?;
    let (base, size) = if of.parent.is_none() { (0, parent.size) } else { parent.part(path)? };
    let mut items = Vec::new();
    for member in &of.members {
        let path = format!("{}{}", of.prefix(), member.path);
        let is_here = member.only.is_empty() || member.only == release;
        if let Some(offset) = parent.offset(&path).filter(|_| is_here) {
            items.push(format!("{} => {}: {},", offset - base, member.name, member.kind));
        }
    }
    (!items.is_empty()).then_some((size, items))
}

/// One file of the mirror while it is written.
#[derive(Debug, Default)]
struct WrittenFile {
    /// Name of the macro, and its body.
    groups: Vec<(&'static str, String)>,
    after: String,
}

impl WrittenFile {
    /// Adds the text that was made for an entry.
    fn add(&mut self, entry: &MirrorEntry, text: String) {
        let name = match entry.kind.as_str() {
            "consts" => "c_consts",
            "enum" => "c_enums",
            "flags" => "c_flags",
            "bits" => "c_bits",
            _ if entry.is_unique => "c_unique",
            _ => "c_structs",
        };
        match self.groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, body)) => body.push_str(&text),
            None => self.groups.push((name, text)),
        }
    }

    /// What the older release does not have, for code that is written once: values, and bits that are 0.
    fn add_absent(&mut self, entries: &[MirrorEntry], newer: &Golden, older: &Golden) {
        let mut bits = String::new();
        for entry in entries {
            let is_enum = entry.kind == "enum";
            for name in entry.names.iter().filter(|_| is_enum) {
                if let (Some(value), None) = (newer.values.get(name), older.values.get(name)) {
                    let text = format!(
                        "/// Of the later release; known here so that its refusal needs no other code.\n\
                         pub const {name}: {} = {value};\n",
                        entry.name
                    );
                    self.after.push_str(&text);
                }
            }
            let flags = matches!(entry.kind.as_str(), "flags") && entry.parent.is_none();
            let both = newer.types.get(&entry.name).zip(older.types.get(&entry.name));
            let Some((one, other)) = both.filter(|_| flags) else { continue };
            let has = |name: &str| other.flags().any(|(known, ..)| known == name);
            let absent: Vec<String> = one
                .flags()
                .filter(|(name, ..)| !has(name))
                .map(|(name, ..)| format!("{name} = set_{name},"))
                .collect();
            if !absent.is_empty() {
                bits.push_str(&filled(&format!("{} {{", entry.name), &absent));
            }
        }
        if !bits.is_empty() {
            self.groups.push(("c_absent", bits));
        }
    }

    /// The text of the file.
    fn text(self, what: &str) -> String {
        let mut macros: Vec<&str> = self.groups.iter().map(|(name, _)| *name).collect();
        macros.sort_unstable();
        let body: String =
            self.groups.iter().map(|(name, body)| format!("\n{name}! {{\n{body}}}\n")).collect();
        let has = |name: &&&str| {
            body.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == **name)
        };
        let list = |names: &[&str]| match names {
            [one] => (*one).to_owned(),
            more => format!("{{{}}}", more.join(", ")),
        };
        let ffi: Vec<&str> = ["c_char", "c_int", "c_void"].iter().filter(has).copied().collect();
        let is_type = |name: &&&str| body.contains(&format!(": {name},"));
        let libc: Vec<&str> = LIBC.iter().filter(is_type).copied().collect();
        let mut uses = String::new();
        if body.contains(" AtomicU64,") {
            uses.push_str(ATOMIC);
        }
        for (names, from) in [(ffi, "core::ffi"), (libc, "libc")] {
            if !names.is_empty() {
                uses.push_str(&format!("use {from}::{};\n\n", list(&names)));
            }
        }
        format!(
            "//! The mirror of the C API: {what}.\n//!\n\
             //! `cargo xtask mirror` writes this file from `mirror.txt` and the golden layouts.\n//!\n\
             //! *Owns*: layouts and numbers. *Must not*: do anything.\n\n\
             {uses}use super::layout::{};\nuse super::*;\n{body}{}{}",
            list(&macros),
            if self.after.is_empty() { "" } else { "\n" },
            self.after
        )
    }
}

/// Types of the C library that members may have.
const LIBC: [&str; 6] =
    ["in_addr", "in6_addr", "pthread_cond_t", "pthread_mutex_t", "sa_family_t", "timespec"];

/// The counter that C programs share.
const ATOMIC: &str = "#[expect(\n    clippy::disallowed_types,\n    reason = \"C programs share this memory: it is atomic_ulong\"\n)]\nuse core::sync::atomic::AtomicU64;\n\n";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(path: &str) -> Option<String> {
        fs::read_to_string(crate::cargo::root().join(path)).ok()
    }

    /// What `generate` makes, or says, when a file has another text.
    fn with(path: &str, from: &str, to: &str) -> Result<Vec<(String, String)>, Vec<String>> {
        generate(|file| {
            let text = read(file)?;
            if file != path {
                return Some(text);
            }
            assert!(text.contains(from), "{path} has no {from}");
            Some(text.replacen(from, to, 1))
        })
    }

    #[test]
    fn the_checked_in_files_are_current() {
        for (path, text) in generate(read).expect("a mirror") {
            assert!(
                read(&path).as_deref() == Some(text.as_str()),
                "{path}: run cargo xtask mirror"
            );
        }
    }

    #[test]
    fn a_change_of_a_golden_number_changes_the_mirror() {
        let current = generate(read).expect("a mirror");
        let golden = RELEASES[0].1;
        for (from, to) in [
            ("type urma_jfs_t 256", "type urma_jfs_t 264"),
            ("at 72 next", "at 64 next"),
            ("is 16 URMA_OPC_READ\n", "is 17 URMA_OPC_READ\n"),
            ("bits 0 3 bs.token_policy", "bits 0 4 bs.token_policy"),
        ] {
            assert_ne!(with(golden, from, to).expect("a mirror"), current, "{from}");
        }
    }

    #[test]
    fn a_golden_member_that_is_not_mirrored_is_named() {
        let wrong = with(TABLE, "  rnr_retry: u8\n", "").expect_err("a member less");
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong.iter().all(|line| line.contains("urma_jfs_cfg_t.rnr_retry")), "{wrong:?}");
    }

    #[test]
    fn a_name_that_no_release_has_is_named() {
        for (from, to) in
            [("  rnr_retry: u8", "  rnr_retries: u8"), ("URMA_OPC_NOP", "URMA_OPC_NOPE")]
        {
            let wrong = with(TABLE, from, to).expect_err("another name").join("\n");
            assert!(wrong.contains(to.trim().split(':').next().unwrap_or(to)), "{wrong}");
        }
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let wrong = with(TABLE, "struct urma_jfs_cfg_t", "struct urma_jfs_cfg_t round")
            .expect_err("a word");
        assert!(wrong[0].contains("round"), "{wrong:?}");
    }
}

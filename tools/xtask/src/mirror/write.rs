//! The Rust text of the mirror.
//!
//! *Owns*: how an entry is written with the macros of `abi/layout.rs`. *Takes*: an entry and the numbers of
//! a release. *Must not*: know where a file lies.

use super::{MirrorEntry, layout::Golden};

/// Most characters of a line.
const WIDTH: usize = 100;

/// The entry in a release, as the body of its macro; `None`: the release does not have it.
pub(super) fn entry(of: &MirrorEntry, release: &str, golden: &Golden) -> Option<String> {
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
pub(super) struct WrittenFile {
    /// Name of the macro, and its body.
    groups: Vec<(&'static str, String)>,
    after: String,
}

impl WrittenFile {
    /// Adds the text that was made for an entry.
    pub(super) fn add(&mut self, entry: &MirrorEntry, text: String) {
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
    pub(super) fn add_absent(&mut self, entries: &[MirrorEntry], newer: &Golden, older: &Golden) {
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
    pub(super) fn text(self, what: &str) -> String {
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

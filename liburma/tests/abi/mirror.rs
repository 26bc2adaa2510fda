//! The mirror in Rust against the golden data.
//!
//! *Takes*: the text of `src/abi`, whose numbers the compiler asserts where they are written.
//! *Gives*: a failure that names what is missing or elsewhere, for both releases in one build.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use crate::facts::{Facts, RELEASES, Release, Row, Type, here};

/// What a struct of the mirror says: its size, its members and their types, its bits.
#[derive(Debug, Default)]
struct Shape {
    size: usize,
    members: Vec<(String, usize, String)>,
    bits: Vec<(String, usize, usize)>,
}

/// The mirror of a release, read from its text.
#[derive(Debug, Default)]
struct Mirror {
    shapes: BTreeMap<String, Shape>,
    values: BTreeMap<String, i64>,
    /// Types that C has a name for; the others are parts of these.
    named: BTreeSet<String>,
}

/// Two numbers by the path of C: an offset and 0, or a first bit and a width.
type Places = BTreeSet<(String, usize, usize)>;

/// Where a word, or a pair of words, stands for a union, and where attributes end inside of bytes.
const BY_HAND: [&str; 4] =
    ["urma_eid_t", "uvs_eid_t", "union urma_cmd_net_addr_union", "urma_tp_attr_value_t"];
/// Alternatives of the same type as the one before them, which stands for both.
const SECOND: [&str; 3] = ["cmp_addr", "swap_addr", "operand_addr"];

#[test]
fn every_size_offset_bit_and_value_is_mirrored() {
    for release in RELEASES {
        let wrong = compare(&Facts::of(release), &Mirror::of(release));
        assert!(wrong.is_empty(), "{}:\n{}", release.name, wrong.join("\n"));
    }
}

#[test]
fn planted_differences_are_found() {
    let mut facts = Facts::of(RELEASES[0]);
    facts.of_type("urma_context_t").size += 8;
    facts.of_type("urma_seg_t").rows.remove(0);
    for name in ["urma_jfc_t", "urma_jfs_wr_flag_t", "urma_jetty_cfg_t"] {
        match &mut facts.of_type(name).rows[1] {
            Row::At { offset, .. } | Row::Part { offset, .. } => *offset += 4,
            Row::Bits { width, .. } => *width += 1,
        }
    }
    facts.values[3].value += 1;
    let wrong = compare(&facts, &Mirror::of(RELEASES[0])).join("\n");
    for name in ["urma_context_t", "urma_seg_t", "urma_jfc_t", "urma_jfs_wr_flag_t"] {
        assert!(wrong.contains(name), "{name} passes: {wrong}");
    }
    assert!(wrong.contains(&facts.values[3].name) && wrong.contains("urma_jetty_cfg_t"));
}

fn compare(facts: &Facts, mirror: &Mirror) -> Vec<String> {
    let mut wrong = Vec::new();
    for one in facts.types.iter().filter(|one| !is_by_hand(one)) {
        compare_type(bare(&one.name), one, mirror, &mut wrong);
    }
    for value in &facts.values {
        if mirror.values.get(&value.name) != Some(&value.value) {
            wrong.push(format!("{} is not {}", value.name, value.value));
        }
    }
    wrong
}

/// Types that the mirror words otherwise; the compiler asserts their sizes.
fn is_by_hand(one: &Type) -> bool {
    // In 25.12.0.B081 the tags of the user lie over the flags.
    let has_tags = one.name == "urma_import_jetty_flag_t" && one.size == 24;
    has_tags || BY_HAND.contains(&one.name.as_str())
}

/// Without `struct` or `union`.
fn bare(name: &str) -> &str {
    name.rsplit(' ').next().unwrap_or(name)
}

fn compare_type(name: &str, one: &Type, mirror: &Mirror, wrong: &mut Vec<String>) {
    let Some(shape) = mirror.shapes.get(name) else {
        wrong.push(format!("{name} is missing"));
        return;
    };
    if shape.size != one.size {
        wrong.push(format!("{name} has {} bytes, not {}", shape.size, one.size));
    }
    let stated: Places = one.rows.iter().filter_map(place).collect();
    let mut mirrored = Places::new();
    mirror.walk(name, "", 0, &mut mirrored);
    for place in stated.symmetric_difference(&mirrored) {
        let side = if stated.contains(place) { "mirror" } else { "golden data" };
        wrong.push(format!("{name}.{} ({}, {}) is not in the {side}", place.0, place.1, place.2));
    }
}

/// What a row says, unless it is of no use to anybody or said by the rows of its members.
fn place(row: &Row) -> Option<(String, usize, usize)> {
    match row {
        Row::At { offset, path } if !SECOND.contains(&path.as_str()) => {
            Some((path.clone(), *offset, 0))
        }
        Row::Bits { first, width, path } if !is_reserved(path) => {
            Some((path.clone(), *first, *width))
        }
        _ => None,
    }
}

fn is_reserved(path: &str) -> bool {
    path.rsplit('.').next().is_some_and(|last| last.starts_with("reserved"))
}

impl Mirror {
    fn of(release: Release) -> Self {
        let mut mirror = Self::default();
        let types = Facts::of(release).types;
        mirror.named = types.iter().map(|one| bare(&one.name).to_owned()).collect();
        let others: Vec<&str> = RELEASES
            .iter()
            .filter(|other| other.number != release.number)
            .map(|other| other.module)
            .collect();
        for folder in ["src/abi", "src/abi/cmd"] {
            for entry in fs::read_dir(here(folder)).expect("the mirror") {
                let path = entry.expect("a file").path();
                let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                if path.is_file() && stem != "layout" && !others.contains(&stem.as_str()) {
                    mirror.read(&fs::read_to_string(&path).expect("a text"));
                }
            }
        }
        mirror
    }

    /// Collects the places of a type, and of the types that are parts of it only.
    fn walk(&self, name: &str, prefix: &str, base: usize, places: &mut Places) {
        let Some(shape) = self.shapes.get(name) else { return };
        for (member, first, width) in &shape.bits {
            places.insert((format!("{prefix}bs.{member}"), base * 8 + first, *width));
        }
        let part_prefix = format!("{}_", name.trim_end_matches("_t"));
        for (member, offset, kind) in &shape.members {
            // What has no name in C is called u here.
            let path = if is_unnamed(member) { String::new() } else { format!("{member}.") };
            if kind.starts_with(&part_prefix) && self.is_part(kind) {
                self.walk(kind, &format!("{prefix}{path}"), base + offset, places);
            } else {
                places.insert((format!("{prefix}{member}"), base + offset, 0));
            }
        }
    }

    fn is_part(&self, kind: &str) -> bool {
        self.shapes.contains_key(kind) && !self.named.contains(kind) && !kind.ends_with("_t")
    }

    /// Reads a file whose macros hold one fact to a line.
    fn read(&mut self, text: &str) {
        let mut current = String::new();
        for line in text.lines().map(str::trim) {
            if let Some((name, size)) = opening(line) {
                name.clone_into(&mut current);
                self.shapes.entry(current.clone()).or_default().size = size;
            } else if let Some((name, word)) = flags(line) {
                name.clone_into(&mut current);
                self.shapes.entry(current.clone()).or_default().size = word;
                let value = ("value".to_owned(), 0, "word".to_owned());
                self.shapes.entry(current.clone()).or_default().members.push(value);
            } else if let Some((at, what)) = line.split_once(" => ") {
                self.member(&current, at, what);
            } else if let Some((name, value)) = line.trim_end_matches(',').split_once(" = ")
                && let Ok(value) = value.parse()
            {
                self.values.insert(name.to_owned(), value);
            }
        }
    }

    fn member(&mut self, current: &str, at: &str, what: &str) {
        let shape = self.shapes.entry(current.to_owned()).or_default();
        if let Some((first, width)) = at.split_once(", ")
            && let (Ok(first), Ok(width)) = (first.parse(), width.parse())
        {
            let name = what.split(',').next().unwrap_or(what);
            shape.bits.push((name.to_owned(), first, width));
        } else if let Ok(offset) = at.parse()
            && let Some((name, kind)) = what.split_once(": ")
        {
            let kind = kind.trim_end_matches(',').to_owned();
            shape.members.push((name.trim_start_matches("r#").to_owned(), offset, kind));
        }
    }
}

fn is_unnamed(member: &str) -> bool {
    member == "u" || member == "u2"
}

/// `struct name[SIZE] {`
fn opening(line: &str) -> Option<(&str, usize)> {
    let rest = line.strip_prefix("struct ").or_else(|| line.strip_prefix("union "))?;
    let (name, rest) = rest.split_once('[')?;
    Some((name, rest.strip_suffix("] {")?.parse().ok()?))
}

/// `name: u32 {`, with the bytes of the word.
fn flags(line: &str) -> Option<(&str, usize)> {
    let (name, word) = line.strip_suffix(" {")?.split_once(": ")?;
    let size = match word {
        "u8" => 1,
        "u32" | "i32" => 4,
        "u64" => 8,
        _ => return None,
    };
    Some((name, size))
}

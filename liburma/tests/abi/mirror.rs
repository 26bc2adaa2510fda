//! The mirror in Rust against the golden data.
//!
//! *Takes*: the text of `src/abi`, whose numbers the compiler asserts where they are written. The
//! mirror has the types and values that the library uses; `headers` compares the C headers with all
//! of the golden data. *Gives*: a failure that names what differs, for both releases in one build.

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

impl Shape {
    /// Whether it has a value and no bits: the mirror words enumerations like flags.
    fn is_enumeration(&self) -> bool {
        self.bits.is_empty() && self.members.iter().all(|(_, _, kind)| kind == "word")
    }
}

/// Two numbers by the path of C: an offset and 0, or a first bit and a width.
type Places = BTreeSet<(String, usize, usize)>;

/// Where a word, or a pair of words, stands for a union, and where attributes end inside of bytes.
const BY_HAND: [&str; 3] = ["urma_eid_t", "uvs_eid_t", "urma_tp_attr_value_t"];
/// A flag that a header of ours defines and the golden data does not list.
const NOT_GOLDEN: &str = "URMA_SYSFS_DEV_FLAG_DRIVER_CREATED";
/// Alternatives of the same type as the one before them, which stands for both.
const SECOND: [&str; 3] = ["cmp_addr", "swap_addr", "operand_addr"];

#[test]
fn every_mirrored_size_offset_bit_and_value_is_golden() {
    for release in RELEASES {
        let mirror = Mirror::of(release);
        let wrong = compare(&Facts::of(release), &mirror);
        assert!(wrong.is_empty(), "{}:\n{}", release.name, wrong.join("\n"));
        assert!(mirror.shapes.len() > 100 && mirror.values.len() > 100, "the mirror is not read");
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
    let write = facts.values.iter_mut().find(|value| value.name == "URMA_OPC_WRITE");
    write.expect("a value").value += 1;
    facts.types.retain(|one| one.name != "urma_rjfr_t");
    facts.values.retain(|value| value.name != "URMA_OPC_READ");
    let wrong = compare(&facts, &Mirror::of(RELEASES[0])).join("\n");
    for name in ["urma_context_t", "urma_seg_t", "urma_jfc_t", "urma_jfs_wr_flag_t"] {
        assert!(wrong.contains(name), "{name} passes: {wrong}");
    }
    assert!(wrong.contains("URMA_OPC_WRITE") && wrong.contains("urma_jetty_cfg_t"));
    assert!(wrong.contains("urma_rjfr_t is not") && wrong.contains("URMA_OPC_READ is not"));
}

fn compare(facts: &Facts, mirror: &Mirror) -> Vec<String> {
    let mut wrong = Vec::new();
    for one in facts.types.iter().filter(|one| !is_by_hand(one)) {
        compare_type(bare(&one.name), one, mirror, &mut wrong);
    }
    let golden: BTreeMap<_, _> =
        facts.values.iter().map(|value| (&value.name, value.value)).collect();
    for (name, value) in mirror.values.iter().filter(|(name, _)| *name != NOT_GOLDEN) {
        if golden.get(name) != Some(value) {
            wrong.push(format!("{name} is not {value} in the golden data"));
        }
    }
    let is_known = |name: &str| facts.types.iter().any(|one| name.starts_with(one.stem()));
    let types = mirror.shapes.iter().filter(|(_, shape)| !shape.is_enumeration());
    for (name, _) in types.filter(|(name, _)| !is_known(name)) {
        wrong.push(format!("{name} is not a type of the golden data, nor a part of one"));
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
    let Some(shape) = mirror.shapes.get(name) else { return };
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
        for entry in fs::read_dir(here("src/abi")).expect("the mirror") {
            let path = entry.expect("a file").path();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_file() && stem != "layout" && !others.contains(&stem.as_str()) {
                mirror.read(&fs::read_to_string(&path).expect("a text"));
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

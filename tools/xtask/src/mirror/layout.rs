//! The golden layouts, read.
//!
//! *Owns*: the form of `liburma/tests/data/layout-*.txt`. *Gives*: sizes, places and values by name.

use std::collections::BTreeMap;

/// The numbers of one release.
#[derive(Debug, Default)]
pub(super) struct Golden {
    pub(super) types: BTreeMap<String, Type>,
    pub(super) values: BTreeMap<String, i64>,
    /// The headers of the values.
    headers: BTreeMap<String, String>,
}

/// A struct or union of C.
#[derive(Debug, Default)]
pub(super) struct Type {
    /// Size of the type in bytes.
    pub(super) size: usize,
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
    pub(super) fn of(text: &str) -> Result<Self, String> {
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
    pub(super) fn header(&self, name: &str) -> &str {
        let of_type = self.types.get(name).map(|of| of.header.as_str());
        of_type.or_else(|| self.headers.get(name).map(String::as_str)).unwrap_or("")
    }
}

impl Type {
    /// Byte offset of a member, part or bit field. A member `u` is what has no name.
    pub(super) fn offset(&self, path: &str) -> Option<usize> {
        let is_it = |row: &&Row| row.path == path || path == "u" && row.kind == "anon";
        let row = self.rows.iter().find(is_it)?;
        Some(if row.kind == "bits" { row.first / 8 } else { row.first })
    }

    /// Offset and size of a part with a name, or of the one without (`""`).
    pub(super) fn part(&self, path: &str) -> Option<(usize, usize)> {
        let kind = if path.is_empty() { "anon" } else { "part" };
        let is_it = |row: &&Row| row.kind == kind && (path.is_empty() || row.path == path);
        self.rows.iter().find(is_it).map(|row| (row.first, row.len))
    }

    /// First bit and width of a bit field.
    pub(super) fn bits(&self, path: &str) -> Option<(usize, usize)> {
        let row = self.rows.iter().find(|row| row.kind == "bits" && row.path == path)?;
        Some((row.first, row.len))
    }

    /// The bit fields `bs.*` that have a use: name, first bit, width.
    pub(super) fn flags(&self) -> impl Iterator<Item = (&str, usize, usize)> {
        let bits = self.rows.iter().filter(|row| row.kind == "bits");
        let named =
            bits.filter_map(|row| Some((row.path.strip_prefix("bs.")?, row.first, row.len)));
        named.filter(|(name, ..)| !name.starts_with("reserved"))
    }

    /// Paths of members and bit fields that have a use.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        let rows = self.rows.iter().filter(|row| matches!(row.kind.as_str(), "at" | "bits"));
        let is_reserved = |row: &&Row| {
            row.kind == "bits"
                && row.path.rsplit('.').next().is_some_and(|name| name.starts_with("reserve"))
        };
        rows.filter(move |row| !is_reserved(row)).map(|row| row.path.as_str())
    }
}

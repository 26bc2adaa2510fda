//! The golden data: layouts and numbers of the C API, one file for each release.
//!
//! *Owns*: the form of `data/layout-*.txt`. *Gives*: types and values. *Must not*: judge.

use std::path::PathBuf;

/// A release of the C API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release {
    /// As people write it.
    pub(crate) name: &'static str,
    /// Its number in the headers.
    pub(crate) number: u32,
    /// The symbol that programs reach `urma_init` by.
    pub(crate) marker: &'static str,
    /// File of its golden data.
    pub(crate) text: &'static str,
}

/// Both, the default first.
pub(crate) const RELEASES: [Release; 2] = [
    Release {
        name: "26.06",
        number: 2606,
        marker: "urma_init_abi_26_06",
        text: include_str!("../data/layout-26.06.txt"),
    },
    Release {
        name: "25.12.0.B081",
        number: 2512,
        marker: "urma_init_abi_25_12_0_b081",
        text: include_str!("../data/layout-25.12.0.B081.txt"),
    },
];

/// A struct or a union of C.
#[derive(Clone, Debug)]
pub(crate) struct Type {
    /// As C spells it, with `struct` or `union` where there is no short name.
    pub(crate) name: String,
    /// Number of bytes that it has.
    pub(crate) size: usize,
    /// Offset of each member.
    pub(crate) rows: Vec<Row>,
}

/// Something inside of a type. Paths are those of C: what has no name is not in them.
#[derive(Clone, Debug)]
pub(crate) enum Row {
    /// A member of a struct, by its path.
    At { offset: usize, path: String },
    /// A struct or union with a name.
    Part { offset: usize, size: usize, path: String },
    /// A bit field: its first bit from the start of the type, its width.
    Bits { first: usize, width: usize, path: String },
}

impl Row {
    /// Where it is, if it is a mutex.
    fn mutex(&self) -> Option<usize> {
        match self {
            Self::At { offset, path } if path.ends_with("mutex") => Some(*offset),
            _ => None,
        }
    }
}

/// Values of an enumeration, or of the constants of a header.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    /// Name of the constant.
    pub(crate) name: String,
    /// Value of the constant.
    pub(crate) value: i64,
}

/// Everything about a release.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Structs and unions, by name.
    pub(crate) types: Vec<Type>,
    /// Values of enumerations and constants.
    pub(crate) values: Vec<Value>,
}

impl Facts {
    /// Reads the data of a release.
    pub(crate) fn of(release: Release) -> Self {
        let mut facts = Self { types: Vec::new(), values: Vec::new() };
        for line in release.text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            facts.take(&words).unwrap_or_else(|| panic!("{}: {line}", release.name));
        }
        assert!(facts.types.len() > 200 && facts.values.len() > 500, "the data is cut");
        facts
    }

    fn take(&mut self, words: &[&str]) -> Option<()> {
        let row = match *words {
            ["type", name, size, _header] => {
                let (name, size) = (name.replace(':', " "), size.parse().ok()?);
                self.types.push(Type { name, size, rows: Vec::new() });
                return Some(());
            }
            // The rows of what has no name follow, with their own offsets.
            ["enum", ..] | ["const", ..] | ["anon", ..] => return Some(()),
            ["is", value, name] => {
                self.values.push(Value { name: name.to_owned(), value: value.parse().ok()? });
                return Some(());
            }
            ["at", offset, path] => Row::At { offset: offset.parse().ok()?, path: path.to_owned() },
            ["part", offset, size, path] => {
                let (offset, size) = (offset.parse().ok()?, size.parse().ok()?);
                Row::Part { offset, size, path: path.to_owned() }
            }
            ["bits", first, width, path] => {
                let (first, width) = (first.parse().ok()?, width.parse().ok()?);
                Row::Bits { first, width, path: path.to_owned() }
            }
            _ => return None,
        };
        self.types.last_mut()?.rows.push(row);
        Some(())
    }

    /// The same on aarch64, where a `pthread_mutex_t` has 48 bytes and not 40.
    pub(crate) fn on_aarch64(mut self) -> Self {
        for of in &mut self.types {
            let mutexes: Vec<usize> = of.rows.iter().filter_map(Row::mutex).collect();
            of.size += 8 * mutexes.len();
            for row in &mut of.rows {
                if let Row::At { offset, .. } | Row::Part { offset, .. } = row {
                    *offset += 8 * mutexes.iter().filter(|mutex| **mutex < *offset).count();
                }
            }
        }
        self
    }

    /// The type of this name.
    pub(crate) fn of_type(&mut self, name: &str) -> &mut Type {
        let found = self.types.iter_mut().find(|one| one.name == name);
        found.unwrap_or_else(|| panic!("no type {name}"))
    }
}

/// A path in the folder of this crate.
pub(crate) fn here(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

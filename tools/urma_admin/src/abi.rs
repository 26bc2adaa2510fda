//! `abi PROGRAM`: for which release of the C API was a program built?
//!
//! *Owns*: what distinguishes the releases: the marker symbol of our headers, sizes of structs in
//! the debug information. *Takes*: an ELF file. *Gives*: a release, or that it cannot be found.
//! *Must not*: guess.

use std::{borrow::Cow, fs, path::Path};

use gimli::{DW_AT_byte_size, DW_AT_name, DW_AT_type, DW_TAG_structure_type, DW_TAG_typedef};
use object::{Object, ObjectSection, ObjectSymbol};

/// Symbols that programs built with our headers ask for, and their releases.
const MARKERS: [(&str, &str); 2] =
    [("urma_init_abi_26_06", "26.06"), ("urma_init_abi_25_12_0_b081", "25.12.0.B081")];

/// The releases that there are libraries for.
pub(crate) const RELEASES: [&str; 2] = [MARKERS[0].1, MARKERS[1].1];

/// Structs whose size changed, bytes, and the releases with that size (UMDK, public headers).
const SIZES: [(&str, u64, &str); 7] = [
    ("urma_device_attr", 312, "24.12"),
    ("urma_device_attr", 368, "25.12.0"),
    ("urma_device_attr", 488, "25.12.0.B081"),
    ("urma_device_attr", 496, "26.06"),
    ("urma_rjetty", 40, "24.12"),
    ("urma_rjetty", 48, "25.12.0 or 26.06"),
    ("urma_rjetty", 72, "25.12.0.B081"),
];

/// What is known of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ProgramAbi {
    /// The release; `None`: unknown.
    pub(crate) release: Option<&'static str>,
    /// Where the release was found in the file.
    pub(crate) because: String,
    /// What its environment must say where the library of another release comes first; `None`: it
    /// needs nothing, for it has the marker, or nothing helps.
    pub(crate) environment: Option<String>,
    /// It names the library, or asks for a function of it.
    pub(crate) is_of_urma: bool,
}

/// Why a file is no program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AbiError {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It is no ELF file.
    #[error("not a program: {0}")]
    Object(#[from] object::Error),
    /// Its debug information is broken.
    #[error("its debug information cannot be read: {0}")]
    Dwarf(#[from] gimli::Error),
}

/// The release of the library at `path`; `None`: it is none of this project's.
pub(crate) fn of_library(path: &Path) -> Option<&'static str> {
    let bytes = fs::read(path).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let mut exported = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    exported.find_map(|symbol| {
        let name = symbol.name().ok()?;
        MARKERS.iter().find(|(marker, _)| *marker == name).map(|(_, release)| *release)
    })
}

/// Looks at the file at `path`.
///
/// # Errors
/// [`AbiError`]
pub(crate) fn of(path: &Path) -> Result<ProgramAbi, AbiError> {
    let bytes = fs::read(path)?;
    let file = object::File::parse(&*bytes)?;
    let is_of_urma = is_of_urma(&bytes, &file);
    if let Some((marker, release)) = marker(&file) {
        let because = format!("it asks for the symbol {marker}");
        return Ok(ProgramAbi { release: Some(release), because, environment: None, is_of_urma });
    }
    let sizes = sizes(&file)?;
    let known = |(name, size): &(&'static str, u64)| {
        let found = SIZES.iter().find(|(known, bytes, _)| known == name && bytes == size);
        found.map(|(.., release)| (*release, format!("{name} has {size} bytes")))
    };
    if let Some((release, because)) = sizes.iter().find_map(known) {
        let is_served = MARKERS.iter().any(|(_, served)| *served == release);
        let environment = is_served.then(|| format!("URMA_ABI={release}"));
        return Ok(ProgramAbi { release: Some(release), because, environment, is_of_urma });
    }
    let because = match sizes.first() {
        Some((name, size)) => format!("{name} has {size} bytes, as in no known release"),
        None => {
            "it has neither a marker symbol nor debug information about URMA structs; build it \
                 with -g, or with the headers of this library"
                .to_owned()
        }
    };
    Ok(ProgramAbi { release: None, because, environment: None, is_of_urma })
}

/// Whether it needs the library, loads it by its name, or asks for one of its functions.
fn is_of_urma(bytes: &[u8], file: &object::File<'_>) -> bool {
    const NAME: &[u8] = b"liburma.so";
    let asks = |symbol: object::Symbol<'_, '_>| {
        symbol.is_undefined() && symbol.name().is_ok_and(|name| name.starts_with("urma_"))
    };
    bytes.windows(NAME.len()).any(|window| window == NAME) || file.dynamic_symbols().any(asks)
}

fn marker(file: &object::File<'_>) -> Option<(&'static str, &'static str)> {
    let symbols = file.dynamic_symbols().chain(file.symbols());
    symbols
        .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
        .find_map(|name| MARKERS.into_iter().find(|(marker, _)| *marker == name))
}

/// Sizes of the structs that differ between releases, the most specific first.
fn sizes(file: &object::File<'_>) -> Result<Vec<(&'static str, u64)>, AbiError> {
    let endian = if file.is_little_endian() {
        gimli::RunTimeEndian::Little
    } else {
        gimli::RunTimeEndian::Big
    };
    let load = |id: gimli::SectionId| -> Result<Cow<'_, [u8]>, object::Error> {
        let section = file.section_by_name(id.name());
        Ok(section.map(|section| section.uncompressed_data()).transpose()?.unwrap_or_default())
    };
    let sections = gimli::DwarfSections::load(load)?;
    let dwarf = sections.borrow(|section| gimli::EndianSlice::new(section, endian));
    let mut found = Vec::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        let unit = dwarf.unit(header)?;
        let mut entries = unit.entries();
        while let Some((_, entry)) = entries.next_dfs()? {
            if entry.tag() != DW_TAG_structure_type && entry.tag() != DW_TAG_typedef {
                continue;
            }
            let Some(name) = entry.attr_value(DW_AT_name)? else { continue };
            let name = dwarf.attr_string(&unit, name)?.to_string_lossy().into_owned();
            let name = name.strip_suffix("_t").unwrap_or(&name);
            let Some((known, ..)) = SIZES.iter().find(|(known, ..)| *known == name) else {
                continue;
            };
            let size = match entry.attr_value(DW_AT_type)? {
                Some(gimli::AttributeValue::UnitRef(at)) => {
                    unit.entry(at)?.attr_value(DW_AT_byte_size)?
                }
                _ => entry.attr_value(DW_AT_byte_size)?,
            };
            found.extend(size.and_then(|size| size.udata_value()).map(|size| (*known, size)));
        }
    }
    // Of two structs the attributes of the device are more specific.
    found.sort_by_key(|(name, _)| SIZES.iter().position(|(known, ..)| known == name));
    found.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Builds `source` with the C compiler of this machine and looks at the result.
    fn built(name: &str, flags: &[&str], source: &str) -> ProgramAbi {
        let dir = std::env::temp_dir();
        let at = |end: &str| dir.join(format!("urma-abi-{}-{name}{end}", std::process::id()));
        let (input, output) = (at(".c"), at(".so"));
        fs::write(&input, source).unwrap();
        let done = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&output, &input])
            .args(flags)
            .status()
            .unwrap();
        assert!(done.success());
        let abi = of(&output).unwrap();
        fs::remove_file(input).unwrap();
        fs::remove_file(output).unwrap();
        abi
    }

    #[test]
    fn markers_and_sizes_tell_the_release() {
        let marked = "void urma_init_abi_25_12_0_b081(void); void f(void) \
                      { urma_init_abi_25_12_0_b081(); }";
        let abi = built("marked", &[], marked);
        assert_eq!((abi.release, abi.environment), (Some("25.12.0.B081"), None));
        let sized = "typedef struct { char bytes[496]; } urma_device_attr_t; \
                     struct urma_rjetty { char bytes[72]; }; \
                     urma_device_attr_t a; struct urma_rjetty r;";
        let abi = built("sized", &["-g"], sized);
        assert_eq!((abi.release, &*abi.because), (Some("26.06"), "urma_device_attr has 496 bytes"));
        assert_eq!(abi.environment.as_deref(), Some("URMA_ABI=26.06"));
        let bare = built("bare", &["-g0"], sized);
        assert_eq!((bare.release, bare.is_of_urma), (None, false));
        let asks =
            built("asks", &["-g0"], "void urma_uninit(void); void f(void) { urma_uninit(); }");
        assert_eq!((asks.release, asks.is_of_urma), (None, true));
        let loads = built("loads", &["-g0"], "const char *name = \"liburma.so.0\";");
        assert!(loads.is_of_urma);
        let other = "struct urma_rjetty { char bytes[56]; }; struct urma_rjetty r;";
        let abi = built("other", &["-g"], other);
        assert_eq!(abi.release, None);
        assert!(abi.because.contains("no known release"), "{abi:?}");
    }

    #[test]
    fn each_size_names_its_release() {
        for (at, (name, bytes, release)) in SIZES.into_iter().enumerate() {
            let source = format!("struct {name} {{ char bytes[{bytes}]; }}; struct {name} a;");
            let abi = built(&format!("size{at}"), &["-g"], &source);
            assert_eq!(abi.release, Some(release), "{name} {bytes}");
            assert_eq!(abi.because, format!("{name} has {bytes} bytes"));
            // Only where there is a library of it.
            let helps = ["26.06", "25.12.0.B081"].contains(&release);
            let environment = helps.then(|| format!("URMA_ABI={release}"));
            assert_eq!(abi.environment, environment, "{name} {bytes}");
        }
        // The attributes of the device say more, in whatever order they stand.
        let both = "struct urma_rjetty { char bytes[48]; }; struct urma_rjetty r; \
                    struct urma_device_attr { char bytes[368]; }; struct urma_device_attr a;";
        assert_eq!(built("both", &["-g"], both).release, Some("25.12.0"));
        let unknown = "struct urma_rjetty { char bytes[48]; }; struct urma_rjetty r; \
                       struct urma_device_attr { char bytes[369]; }; struct urma_device_attr a;";
        assert_eq!(built("unknown", &["-g"], unknown).release, Some("25.12.0 or 26.06"));
        let defines = "void urma_init_abi_26_06(void) { }";
        assert_eq!(built("defines", &["-g0"], defines).release, Some("26.06"));
    }

    #[test]
    fn other_files_are_refused() {
        assert!(of(Path::new("/etc/hostname")).is_err());
        assert!(of(Path::new("/nowhere")).is_err());
    }
}

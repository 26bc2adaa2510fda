//! The headers against the golden data, and alone under strict compilers.
//!
//! Writes the C program that states every size, offset, bit and value of `data/layout-*.txt` for each release, calls
//! the compilers of this machine as programs call them, and names what is elsewhere.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The public headers, as programs name them, and the four beside them.
const HEADERS: [&str; 15] = [
    "urma_api.h",
    "urma_cmd.h",
    "urma_device.h",
    "urma_log.h",
    "urma_opcode.h",
    "urma_perf.h",
    "urma_private.h",
    "urma_profile.h",
    "urma_provider.h",
    "urma_types.h",
    "urma_types_str.h",
    "urma_ubagg.h",
    "uvs_api.h",
    "uvs_types.h",
    "udma/udma_u_ctl.h",
];

/// What the C program begins with. Positions of bits are known at run time only.
const PROLOGUE: &str = r#"
#include <stdio.h>
#include <string.h>
#ifdef __cplusplus
#define _Static_assert static_assert
#endif
static int wrong;
static void bits(const void *value, size_t size, size_t first, size_t width, const char *what)
{
    const unsigned char *byte = (const unsigned char *)value;
    for (size_t at = 0; at < size * 8; at++) {
        int is = byte[at / 8] >> (at % 8) & 1;
        int should = at >= first && at < first + width;
        if (is != should) {
            printf("%s: bit %zu is %d\n", what, at, is);
            wrong = 1;
        }
    }
}
#define BITS(T, path, first, width, ones)       \
    do {                                        \
        T value;                                \
        memset(&value, 0, sizeof(value));       \
        value.path = (ones);                    \
        bits(&value, sizeof(value), first, width, #T "." #path); \
    } while (0)
"#;

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "the golden data is of x86-64")]
fn sizes_offsets_bits_and_values_are_those_of_the_release() {
    for release in RELEASES {
        let program = program(&Facts::of(release));
        for compiler in installed() {
            let build = compiler.compile("layout", &program, release, &[]);
            let target = build.expect("the layout of the headers");
            let run = Command::new(target).output().expect("the program starts");
            let said = String::from_utf8_lossy(&run.stdout);
            assert!(run.status.success(), "{} {}: {said}", compiler.program, release.name);
        }
    }
}

/// Bits lie in their bytes there as here: both are little-endian.
#[test]
fn sizes_offsets_and_values_on_aarch64_differ_by_its_mutex_only() {
    let Some(compiler) = for_aarch64() else {
        return urma_skip::skip("no aarch64-linux-gnu-gcc");
    };
    for release in RELEASES {
        let facts = Facts::of(release).on_aarch64();
        let build = compiler.compile("layout", &program(&facts), release, &["-c"]);
        build.expect("the layout of the headers");
        let build = compiler.compile("planted", &program(&Facts::of(release)), release, &["-c"]);
        assert!(!build.is_good() && build.said().contains("offset of urma_jetty_t.event_cond"));
    }
}

#[test]
fn a_planted_wrong_offset_is_found() {
    let mut facts = Facts::of(RELEASES[0]);
    for row in &mut facts.of_type("urma_jetty_t").rows {
        if let Row::At { offset, path } = row
            && path == "handle"
        {
            *offset += 8;
        }
    }
    let build = installed()[0].compile("planted-offset", &program(&facts), RELEASES[0], &[]);
    assert!(!build.is_good() && build.said().contains("urma_jetty_t.handle"), "{}", build.said());
}

#[test]
fn a_planted_wrong_size_or_value_is_found() {
    let mut facts = Facts::of(RELEASES[0]);
    facts.of_type("urma_cr_t").size += 8;
    facts.values[0].value += 1;
    let build = installed()[0].compile("planted-size", &program(&facts), RELEASES[0], &[]);
    assert!(!build.is_good() && build.said().contains("size of urma_cr_t"), "{}", build.said());
    assert!(build.said().contains(&format!("value of {}", facts.values[0].name)));
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "the golden data is of x86-64")]
fn a_planted_wrong_bit_is_found() {
    let mut facts = Facts::of(RELEASES[0]);
    for row in &mut facts.of_type("urma_jfs_wr_flag_t").rows {
        if let Row::Bits { first, path, .. } = row
            && path == "bs.udf"
        {
            *first += 1;
        }
    }
    let build = installed()[0].compile("planted-bit", &program(&facts), RELEASES[0], &[]);
    let run = Command::new(build.expect("it compiles")).output().expect("it starts");
    assert!(!run.status.success());
    assert!(String::from_utf8_lossy(&run.stdout).contains("urma_jfs_wr_flag_t.bs.udf: bit 8"));
}

#[test]
fn the_releases_do_not_pass_for_each_other() {
    for (facts_of, compiled_for) in [(0, 1), (1, 0)] {
        let program = program(&Facts::of(RELEASES[facts_of]));
        let build = installed()[0].compile("crossed", &program, RELEASES[compiled_for], &[]);
        assert!(!build.is_good() && build.said().contains("size of urma_rjetty_t"));
    }
}

#[test]
fn every_header_stands_alone_and_twice() {
    for release in RELEASES {
        for header in HEADERS {
            let text = format!(
                "#include <ub/umdk/urma/{header}>\n#include <ub/umdk/urma/{header}>\n\
                 int main(void) {{ return 0; }}\n"
            );
            let name = header.replace(['/', '.'], "-");
            for compiler in installed() {
                compiler.compile(&name, &text, release, &["-fsyntax-only"]).expect(header);
            }
        }
    }
}

/// What programs take for granted after one header of ours: known ones include nothing else for it.
const TAKEN_FOR_GRANTED: [(&str, &str); 4] = [
    (
        "urma_opcode.h",
        "int use(void); int use(void) { return URMA_EINVAL == EINVAL && URMA_EAGAIN == EAGAIN; }",
    ),
    (
        "urma_types.h",
        "int use(void); int use(void) { urma_eid_t eid; struct in_addr a; \
         return inet_pton(AF_INET6, \"::1\", &eid) + inet_pton(AF_INET, \"1.2.3.4\", &a) - EINVAL; }",
    ),
    ("urma_provider.h", "int use(void); int use(void) { return urma_uninit(); }"),
    ("urma_cmd.h", "__u32 use(void); __u32 use(void) { return sizeof(urma_cmd_hdr_t); }"),
];

#[test]
fn headers_bring_what_known_programs_take_from_them() {
    for (header, body) in TAKEN_FOR_GRANTED {
        let text =
            format!("#include <ub/umdk/urma/{header}>\n{body}\nint main(void) {{ return 0; }}\n");
        let name = format!("granted-{}", header.trim_end_matches(".h"));
        for compiler in installed() {
            compiler.compile(&name, &text, RELEASES[0], &["-fsyntax-only"]).expect(header);
        }
    }
}

#[test]
fn names_that_programs_define_again_are_spelled_as_there() {
    let text = "#define EID_LEN (16)\n#define MAX_PORT_NUM (9)\n#define IODIE_NUM (2)\n\
                #define PORT_NUM (9)\n#define DEV_NUM (256)\n#define IODIE_NUM_PER_CHIP (1)\n\
                #include <ub/umdk/urma/uvs_api.h>\nint main(void) { return 0; }\n";
    for compiler in installed() {
        compiler.compile("again", text, RELEASES[0], &["-fsyntax-only"]).expect("uvs_api.h");
    }
}

#[test]
fn headers_stand_inside_of_somebodys_extern_c() {
    let all: String = HEADERS.map(|header| format!("#include \"{header}\"\n")).concat();
    let text = format!("extern \"C\" {{\n{all}}}\nint main() {{ return 0; }}\n");
    for compiler in installed().into_iter().filter(|one| one.ending == "cpp") {
        let build = compiler.compile("extern-c", &text, RELEASES[0], &["-fsyntax-only"]);
        build.expect("all headers");
    }
}

#[test]
fn no_header_is_forgotten() {
    let folder = here("include/ub/umdk/urma");
    let mut found = Vec::new();
    for place in ["", "udma/"] {
        for entry in fs::read_dir(folder.join(place)).expect("the headers") {
            let name = entry.expect("a header").file_name().into_string().expect("a plain name");
            if name.contains('.') {
                found.push(format!("{place}{name}"));
            }
        }
    }
    found.sort();
    let mut known = HEADERS.map(str::to_owned);
    known.sort();
    assert_eq!(found, known);
}

#[test]
fn an_unknown_release_is_refused() {
    let unknown = Release { number: 1, ..RELEASES[0] };
    let build = installed()[0].compile("unknown", "#include <urma_api.h>\n", unknown, &["-c"]);
    assert!(!build.is_good() && build.said().contains("names no known release"));
}

/// The C program that states the facts.
fn program(facts: &Facts) -> String {
    let mut text: String = HEADERS.map(|header| format!("#include \"{header}\"\n")).concat();
    text.push_str(PROLOGUE);
    let mut checks = String::new();
    for one in &facts.types {
        let (name, size) = (&one.name, one.size);
        state(&mut text, &format!("sizeof({name}) == {size}"), &format!("size of {name}"));
        for row in &one.rows {
            match row {
                Row::At { offset, path } => {
                    let claim = format!("offsetof({name}, {path}) == {offset}");
                    state(&mut text, &claim, &format!("offset of {name}.{path}"));
                }
                Row::Part { offset, size, path } => {
                    let claim = format!("offsetof({name}, {path}) == {offset}");
                    state(&mut text, &claim, &format!("offset of {name}.{path}"));
                    let claim = format!("sizeof((({name} *)0)->{path}) == {size}");
                    state(&mut text, &claim, &format!("size of {name}.{path}"));
                }
                Row::Bits { first, width, path } => {
                    let ones = u64::MAX >> (64 - width);
                    writeln!(checks, "    BITS({name}, {path}, {first}, {width}, {ones}ULL);")
                        .expect("a string takes all");
                }
            }
        }
    }
    for value in &facts.values {
        let (name, value) = (&value.name, value.value);
        let claim = format!("(long long)({name}) == {value}LL");
        state(&mut text, &claim, &format!("value of {name}"));
    }
    format!("{text}int main(void)\n{{\n{checks}    return wrong;\n}}\n")
}

fn state(text: &mut String, claim: &str, what: &str) {
    writeln!(text, "_Static_assert({claim}, \"{what}\");").expect("a string takes all");
}

/// A compiler and the language that it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compiler {
    /// Name of its program.
    pub(crate) program: &'static str,
    /// Its name of the standard.
    pub(crate) standard: &'static str,
    /// File name ending of the language.
    pub(crate) ending: &'static str,
}

const KNOWN: [Compiler; 4] = [
    Compiler { program: "gcc", standard: "-std=c11", ending: "c" },
    Compiler { program: "g++", standard: "-std=c++17", ending: "cpp" },
    Compiler { program: "clang", standard: "-std=c11", ending: "c" },
    Compiler { program: "clang++", standard: "-std=c++17", ending: "cpp" },
];

/// What compiles for aarch64, when it is installed.
pub(crate) fn for_aarch64() -> Option<Compiler> {
    let program = "aarch64-linux-gnu-gcc";
    let cross = Compiler { program, standard: "-std=c11", ending: "c" };
    cross.answers().then_some(cross)
}

/// Those that are installed; gcc and g++ are needed, clang is used when it is there.
pub(crate) fn installed() -> Vec<Compiler> {
    let found: Vec<Compiler> = KNOWN.into_iter().filter(|one| one.answers()).collect();
    let has = |name: &str| found.iter().any(|one| one.program == name);
    assert!(has("gcc") && has("g++"), "gcc and g++ are needed to check the headers");
    found
}

impl Compiler {
    fn answers(&self) -> bool {
        let version = Command::new(self.program).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    }

    /// Compiles `text` for a release, as strictly as the headers promise to be usable.
    pub(crate) fn compile(self, name: &str, text: &str, release: Release, more: &[&str]) -> Build {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let base = folder.join(format!("{name}-{}-{}", self.program, release.number));
        let source = base.with_extension(self.ending);
        fs::write(&source, text).expect("a file in the folder for tests");
        let target = base.with_extension("out");
        let mut command = Command::new(self.program);
        command.args([self.standard, "-Wall", "-Wextra", "-Werror", "-pedantic"]);
        command.arg(format!("-DURMA_ABI_PROFILE={}", release.number));
        command.arg("-I").arg(here("include")).arg("-I").arg(here("include/ub/umdk/urma"));
        command.arg("-o").arg(&target).arg(&source).args(more);
        Build { output: command.output().expect("the compiler starts"), target }
    }
}

/// What became of a compilation.
#[derive(Debug)]
pub(crate) struct Build {
    output: Output,
    /// The result, when there is one.
    pub(crate) target: PathBuf,
}

impl Build {
    /// Whether the compiler succeeded.
    pub(crate) fn is_good(&self) -> bool {
        self.output.status.success()
    }

    /// What the compiler said.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// The result of a compilation that must succeed.
    pub(crate) fn expect(&self, what: &str) -> &Path {
        assert!(self.is_good(), "{what}: {}", self.said());
        &self.target
    }
}

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

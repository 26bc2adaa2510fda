//! Names of UMDK's installed headers and libraries against ours.
//!
//! Every macro, enumeration value, type and function of `data/names-*.txt` is in our header of the same name, with
//! the same value, size and type; what the headers declare is what `src/symbols.txt` lists; and a program for one
//! release on a library of another is named by the loader.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::headers::{Compiler, RELEASES, Release, here, installed};

/// Names of both releases, in the order of [`RELEASES`].
const NAMES: [&str; 2] =
    [include_str!("../data/names-26.06.txt"), include_str!("../data/names-25.12.0.B081.txt")];

/// What release 25.12.0.B081 has and this project does not: the topology as that release lays it out, which
/// `libtpsa` (one library for both releases) refuses by its size, and two functions that no known program calls.
const NOT_IN_B081: [&str; 11] = [
    "MAX_NODE_NUM",
    "struct urma_topo_ue",
    "struct urma_topo_agg_dev",
    "struct urma_topo_link",
    "struct urma_topo_node",
    "uvs_get_route_list",
    "urma_config_perf_attr",
    "URMA_PERF_BUCKET_MAX_NUM",
    "URMA_PERF_MAX_THRESH_NS",
    "urma_perf_attr_t",
    "struct urma_perf_attr",
];

/// One header and the lines of the data about it.
struct Header<'a> {
    name: &'a str,
    lines: Vec<&'a str>,
}

fn headers(text: &str) -> Vec<Header<'_>> {
    let mut headers: Vec<Header<'_>> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match (line.strip_prefix("header "), headers.last_mut()) {
            (Some(name), _) => headers.push(Header { name, lines: Vec::new() }),
            (None, Some(header)) => header.lines.push(line),
            (None, None) => panic!("a line before the first header: {line}"),
        }
    }
    headers
}

/// The C program that states what a header has; other headers come after it, for what its macros need
/// where they are used.
fn program(header: &Header<'_>, left_out: &[&str]) -> String {
    let mut text = format!(
        "#include <stdbool.h>\n#include <ub/umdk/urma/{}>\n#include <sys/ioctl.h>\n\
         #include <ub/umdk/urma/uvs_api.h>\n#include <ub/umdk/urma/urma_types.h>\n\
         #define TEXT_OF(...) #__VA_ARGS__\n#define TEXT(...) TEXT_OF(__VA_ARGS__)\n",
        header.name
    );
    for line in &header.lines {
        let words: Vec<&str> = line.split(' ').collect();
        let claim = match *words {
            ["macro", name, ..] | ["is", _, name] if left_out.contains(&name) => continue,
            ["macro", name, "-" | "text"] => defined(name, "1"),
            ["macro", name, "args", count] => {
                let zeros = vec!["0"; count.parse().expect("a number of arguments")].join(", ");
                defined(name, &format!("sizeof(TEXT({name}({zeros}))) > 1"))
            }
            ["macro", name, value] => defined(name, &format!("(long long)({name}) == {value}LL")),
            ["is", value, name] => {
                format!("_Static_assert((long long)({name}) == {value}LL, \"value of {name}\");\n")
            }
            ["type", size, name] => {
                let name = name.replace(':', " ");
                if left_out.contains(&&*name) {
                    continue;
                }
                format!("_Static_assert(sizeof({name}) == {size}, \"size of {name}\");\n")
            }
            ["function" | "inline", name, ..] => {
                if left_out.contains(&name) {
                    continue;
                }
                let of = line.splitn(3, ' ').nth(2).expect("a type");
                format!(
                    "_Static_assert(__builtin_types_compatible_p(__typeof__({name}), {of}), \
                     \"type of {name}\");\n"
                )
            }
            _ => panic!("{}: {line}", header.name),
        };
        text.push_str(&claim);
    }
    text.push_str("int main(void)\n{\n    return 0;\n}\n");
    text
}

fn defined(name: &str, claim: &str) -> String {
    let mut text = String::new();
    writeln!(text, "#ifndef {name}\n#error \"{name} is not defined\"\n#else").expect("a string");
    writeln!(text, "_Static_assert({claim}, \"value of {name}\");\n#endif").expect("a string");
    text
}

/// Compiles what one release says of one header.
fn said_about(
    user: &str,
    header: &Header<'_>,
    release: Release,
    left_out: &[&str],
) -> Result<(), String> {
    let text = program(header, left_out);
    let name = format!("{user}-{}", header.name.replace(['/', '.'], "-"));
    // Types are compared by an extension of gcc.
    let flags = ["-fsyntax-only", "-std=gnu11", "-Wno-pedantic", "-Wno-unused"];
    let build = installed()[0].compile(&name, &text, release, &flags);
    if build.is_good() { Ok(()) } else { Err(build.said()) }
}

/// A name that the header has no more is an error of the compiler, too: it says which.
#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "sizes of mutexes are those of x86-64")]
fn every_name_of_the_installed_headers_is_in_ours() {
    for (release, names) in RELEASES.into_iter().zip(NAMES) {
        let left_out = if release.number == 2512 { &NOT_IN_B081[..] } else { &[] };
        let headers = headers(names);
        assert_eq!(headers.len(), 11, "{}: the data is cut", release.name);
        let wrong: Vec<String> = headers
            .iter()
            .filter_map(|header| said_about("names", header, release, left_out).err())
            .collect();
        assert!(wrong.is_empty(), "{}: {}", release.name, wrong.join("\n"));
    }
}

#[test]
fn a_planted_wrong_name_value_or_type_is_found() {
    for (line, found) in [
        ("macro URMA_NOWHERE -", "URMA_NOWHERE is not defined"),
        ("macro URMA_EID_SIZE 17", "value of URMA_EID_SIZE"),
        ("macro URMA_GET_VERSION args 3", "URMA_GET_VERSION"),
        ("is 8 URMA_OPC_WRITE", "value of URMA_OPC_WRITE"),
        ("type 17 urma_eid_t", "size of urma_eid_t"),
        ("function urma_uninit int (int)", "type of urma_uninit"),
    ] {
        let header = Header { name: "urma_api.h", lines: vec![line] };
        let said = said_about("planted-name", &header, RELEASES[0], &[]);
        assert!(said.as_ref().is_err_and(|said| said.contains(found)), "{line}: {said:?}");
    }
}

/// An exception that is none any more leaves the list.
#[test]
fn what_is_left_out_is_in_the_data() {
    for name in NOT_IN_B081 {
        let word = format!(" {}", name.replace(' ', ":"));
        let is_named = |line: &str| {
            line.split_once(&word).is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with(' '))
        };
        assert!(NAMES[1].lines().any(is_named), "{name}");
    }
}

const LIST: &str = include_str!("../../src/symbols.txt");

/// Library and release of each symbol.
fn listed() -> BTreeMap<&'static str, (&'static str, &'static str)> {
    let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut list = BTreeMap::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let [library, symbol, release] = words[..] else { panic!("not three words: {line}") };
        assert!(list.insert(symbol, (library, release)).is_none(), "{symbol} is listed twice");
    }
    list
}

/// Functions that a header declares.
fn declared(header: &str) -> Vec<String> {
    let path = here("include/ub/umdk/urma").join(header);
    let text = fs::read_to_string(&path).expect("a header");
    let lines = text.lines().filter(|line| {
        line.starts_with(|c: char| c.is_ascii_lowercase())
            && !["static", "typedef", "extern"].iter().any(|word| line.starts_with(word))
    });
    let names = lines
        .filter_map(|line| line.split_once('('))
        .map(|(before, _)| before.rsplit([' ', '*']).next().unwrap_or_default().to_owned());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with("__")).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn what_the_headers_declare_is_listed() {
    let list = listed();
    for (header, library) in [
        ("urma_api.h", "liburma"),
        ("urma_types.h", "liburma"),
        ("urma_log.h", "liburma"),
        ("urma_perf.h", "liburma"),
        ("urma_provider.h", "liburma"),
        ("urma_private.h", "liburma"),
        ("urma_ubagg.h", "liburma"),
        ("uvs_api.h", "libtpsa"),
    ] {
        let names = declared(header);
        assert!(!names.is_empty(), "{header}");
        for name in names {
            assert_eq!(list.get(&*name).map(|one| one.0), Some(library), "{header}: {name}");
        }
    }
}

#[test]
fn there_are_133_public_functions() {
    let count = ["urma_api.h", "urma_types.h", "urma_perf.h"].map(|header| declared(header).len());
    assert_eq!(count, [128, 2, 3]);
}

#[test]
fn each_release_has_its_marker() {
    let list = listed();
    for release in RELEASES {
        assert_eq!(list.get(release.marker), Some(&("liburma", release.name)));
    }
}

/// The types of `libtpsa`, line by line.
fn fabric(release: Release) -> Vec<&'static str> {
    let mut is_fabric = false;
    let ours = |line: &&str| {
        if line.starts_with(|first: char| first != ' ') && !line.starts_with('#') {
            let of_type = ["type ", "enum ", "const "].iter().any(|word| line.starts_with(word));
            if of_type {
                is_fabric = line.contains(" uvs_api.h") || line.contains(" uvs_types.h");
            }
        }
        is_fabric
    };
    release.text.lines().filter(ours).collect()
}

#[test]
fn the_other_libraries_are_the_same_in_all_releases() {
    // So they need no choice by URMA_ABI. Those of liburma_common take numbers and text only.
    let [newer, older] = RELEASES.map(fabric);
    assert!(newer.len() > 50, "{}", newer.len());
    assert_eq!(newer, older);
    let names = listed().into_iter().filter(|(_, (library, _))| *library != "liburma");
    assert!(names.into_iter().all(|(_, (_, release))| release == "all"));
}

#[test]
fn what_the_known_clients_import_beside_is_listed() {
    let list = listed();
    for symbol in ["urma_log", "urma_log_drop", "urma_cmd_get_eid_list", "urma_open_cdev"] {
        assert_eq!(list.get(symbol).map(|one| one.0), Some("liburma"), "{symbol}");
    }
    for symbol in ["get_cpu_mhz", "ub_hugemalloc", "ub_hugefree", "ub_str_to_u64"] {
        assert_eq!(list.get(symbol).map(|one| one.0), Some("liburma_common"), "{symbol}");
    }
    assert_eq!(list.get("uvs_get_path_set").map(|one| one.0), Some("libtpsa"));
}

const PROGRAM: &str = "#include <ub/umdk/urma/urma_api.h>\n\
    int main(void) { return urma_init(NULL) == URMA_SUCCESS ? 0 : 1; }\n";

/// Looks its functions up, as some clients do, and so needs no library to link.
const BY_NAME: &str = "#include <ub/umdk/urma/urma_api.h>\n\
    #include <dlfcn.h>\n\
    int main(int count, char **args) {\n\
        urma_status_t (*init)(urma_init_attr_t *) = NULL;\n\
        void *library = count > 1 ? dlopen(args[1], RTLD_NOW) : NULL;\n\
        if (library == NULL) { return 2; }\n\
        *(void **)&init = dlsym(library, \"urma_init\");\n\
        return init != NULL && init(NULL) == URMA_SUCCESS ? 0 : 1;\n\
    }\n";

/// What strips unreferenced sections must not strip the reference.
const SECTIONS: [&str; 4] = ["-O2", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"];

/// A library, for one test, with the plain name, and with the marker of its release.
fn library(user: &str, release: Release) -> std::path::PathBuf {
    let text = format!(
        "int {0}(void *conf);\nint urma_init(void *conf);\n\
         int {0}(void *conf) {{ return conf != 0; }}\nint urma_init(void *conf) {{ return {0}(conf); }}\n",
        release.marker
    );
    let flags = ["-shared", "-fPIC", "-Wl,-soname,liburma-marker-test.so.0"];
    let built = installed()[0].compile(&format!("library-{user}"), &text, release, &flags);
    let folder = built.target.with_extension("dir");
    fs::create_dir_all(&folder).expect("a folder");
    let place = folder.join("liburma-marker-test.so.0");
    fs::copy(built.expect("a library"), &place).expect("a copy");
    place
}

fn run(program: &Path, library: &Path, now: &str) -> Output {
    let mut command = Command::new(program);
    command.arg(library).env("LD_LIBRARY_PATH", library.parent().unwrap_or(library));
    command.env("LD_BIND_NOW", now).env("LC_ALL", "C");
    command.output().expect("the program starts")
}

fn built(compiler: Compiler, release: Release, library: &Path) -> std::path::PathBuf {
    let name = format!("marker-{}", release.number);
    let path = library.to_string_lossy();
    let flags: Vec<&str> = SECTIONS.into_iter().chain([&*path]).collect();
    compiler.compile(&name, PROGRAM, release, &flags).expect("a program").to_path_buf()
}

#[test]
fn the_loader_names_a_library_of_another_release() {
    let libraries = RELEASES.map(|release| library("named", release));
    for compiler in installed() {
        for (mine, other) in [(0, 1), (1, 0)] {
            let program = built(compiler, RELEASES[mine], &libraries[mine]);
            for now in ["", "1"] {
                assert!(run(&program, &libraries[mine], now).status.success());
                let stopped = run(&program, &libraries[other], now);
                let said = String::from_utf8_lossy(&stopped.stderr);
                assert!(
                    !stopped.status.success() && said.contains(RELEASES[mine].marker),
                    "{said}"
                );
            }
        }
    }
}

#[test]
fn programs_that_look_functions_up_are_not_bound() {
    let libraries = RELEASES.map(|release| library("looked-up", release));
    let compiler = installed()[0];
    let flags = ["-Wno-pedantic", "-ldl"];
    let build = compiler.compile("marker-by-name", BY_NAME, RELEASES[0], &flags);
    let program = build.expect("no library is linked");
    for library in &libraries {
        assert!(run(program, library, "").status.success());
    }
}

#[test]
fn the_plain_name_is_there_for_those_who_ask() {
    let libraries = RELEASES.map(|release| library("plain", release));
    let path = libraries[0].to_string_lossy();
    let flags = ["-DURMA_NO_ABI_MARKER", &*path];
    let build = installed()[0].compile("marker-plain", PROGRAM, RELEASES[0], &flags);
    assert!(run(build.expect("a program"), &libraries[1], "1").status.success());
}

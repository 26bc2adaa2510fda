//! Every macro, enumeration value, type and function of UMDK's installed headers is in ours: in the header of the
//! same name, with the same value, size and type.
//!
//! *Takes*: `data/names-*.txt`, names and numbers that were read from UMDK's headers. *Gives*: a failure that
//! names what a program looks for in a header and does not find there.

use std::fmt::Write as _;

use crate::{
    compilers::installed,
    facts::{RELEASES, Release},
};

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

//! Every exported function: it refuses what it must, and leaves `errno` as it was where it succeeds.
//!
//! `programs/refuses.c` calls each with bad arguments from the table of all functions. `programs/watch.c` counts
//! between the library and programs whose calls succeed: those of the C face's tests, and `programs/succeeds.c` for
//! the rest.

use std::{collections::BTreeMap, fs, path::PathBuf};

use urma_c_tests::{GCC, Prefix, Said, finish, root, scratch, start};

use crate::{
    INSTALLED, command,
    releases::B081,
    table::{Function, functions, left_out},
};

/// Who refuses with another code than EINVAL, and which (docs/c-api.md says why).
/// The converters of text say ENOEXEC to a text without a number.
const CODES: [(&str, i32); 5] = [
    ("ub_str_to_int", ENOEXEC),
    ("ub_str_to_u8", ENOEXEC),
    ("ub_str_to_u16", ENOEXEC),
    ("ub_str_to_u32", ENOEXEC),
    ("ub_str_to_u64", ENOEXEC),
];
const ENOEXEC: i32 = 8;
/// Commands that are supported; the others answer EOPNOTSUPP, whatever their arguments are.
const COMMANDS: [&str; 2] = ["urma_cmd_get_eid_list", "urma_cmd_query_device_attr"];
const EOPNOTSUPP: i32 = 95;

/// Compiles and runs the program with a table, against a tree.
fn run(tree: &Prefix, name: &str, rows: &str, more: &[&str]) -> Said {
    let folder = scratch(name);
    fs::write(folder.join("rows.h"), rows).expect("a table");
    let code = |(name, code): &(&str, i32)| format!("{{\"{name}\", {code}}},\n");
    let all = functions(tree);
    let is_refused = |name: &str| name.starts_with("urma_cmd_") && !COMMANDS.contains(&name);
    let refused = all.iter().map(|of| &*of.name).filter(|name| is_refused(name));
    let refused: Vec<_> = refused.map(|name| (name, EOPNOTSUPP)).collect();
    let codes: String = CODES.iter().chain(&refused).map(code).collect();
    fs::write(folder.join("codes.h"), codes).expect("codes");
    let ends = root().join("liburma/tests/c");
    let include = [folder, ends].map(|folder| format!("-I{}", folder.display()));
    let lib = format!("-L{}", tree.lib().display());
    let beside = ["-Wl,--no-as-needed", "-ltpsa", "-lurma_common"];
    let flags = ["-std=gnu11", "-Wno-pedantic", "-ldl", &include[0], &include[1], &lib];
    let source = root().join("tests/c/programs/refuses.c");
    let program = GCC.build(tree, &source, &[&flags, &beside[..], more].concat());
    // Objects live at exit: what they hold is no leak.
    start(&command(&program, &[], &[])).end()
}

fn rows(tree: &Prefix) -> String {
    let all = functions(tree);
    assert!(all.len() >= 250, "{} functions", all.len());
    all.iter().map(Function::row).collect()
}

/// What the program counted.
fn refuses(tree: &Prefix, name: &str, more: &[&str]) -> String {
    let said = run(tree, name, &rows(tree), more);
    assert!(said.status.success() && said.out.contains("calls refused"), "{}", said.err);
    said.out
}

#[test]
fn every_function_refuses_what_is_bad() {
    println!("{}", refuses(&INSTALLED, "refusals", &[]));
}

#[test]
fn every_function_refuses_what_is_bad_in_release_25_12_0_b081() {
    println!("{}", refuses(&B081, "refusals-b081", &[]));
}

#[test]
fn every_function_refuses_under_address_sanitizer() {
    println!("{}", refuses(&INSTALLED, "refusals-asan", &["-fsanitize=address"]));
}

#[test]
fn every_function_refuses_under_address_sanitizer_in_release_25_12_0_b081() {
    println!("{}", refuses(&B081, "refusals-asan-b081", &["-fsanitize=address"]));
}

#[test]
fn a_function_that_refuses_nothing_is_found() {
    let planted = "urma_status_t urma_log_get_level(urma_context_t *ctx)";
    let rows = Function::of(planted).expect("a function").row();
    let said = run(&INSTALLED, "refusals-planted", &rows, &[]);
    assert!(!said.status.success() && said.err.contains("is not refused"), "{}", said.err);
}

/// Programs of the C face's tests.
const PROGRAMS: [&str; 18] = [
    "atomics",
    "batch",
    "commands",
    "compact",
    "counted",
    "data",
    "describe",
    "events",
    "family",
    "first",
    "lifecycle",
    "limits",
    "odd",
    "paths",
    "pings",
    "rare",
    "rules",
    "states",
];

/// Programs that need the device under the name of a bonding device, too.
const ALIASED: [&str; 3] = ["describe", "paths", "states"];

/// Functions that never succeed here, or not on every machine, and why.
const NEVER: [(&str, &str); 3] = [
    ("urma_modify_tp", "not supported"),
    ("ub_hugemalloc", "needs huge pages that were set aside"),
    ("ub_hugefree", "as above"),
];

/// Commands that are supported; the others answer EOPNOTSUPP.
const ERRNO_COMMANDS: [&str; 2] = ["urma_cmd_get_eid_list", "urma_cmd_query_device_attr"];

/// Functions without a result. The programs call them with bad arguments too, which sets `errno`: at
/// least one of the calls must have left it alone.
const SILENT: [&str; 3] = ["urma_ack_async_event", "urma_ack_jfc", "urma_uninit_jetty_cfg"];

/// Calls that succeeded, and those of them that changed `errno`, by function.
type Counts = BTreeMap<String, (u64, u64)>;

/// The watcher, which stands before all functions, and their names.
fn watcher(folder: &std::path::Path) -> (PathBuf, Vec<String>) {
    let other = |name: &&str| !name.starts_with("urma_init_abi");
    // The headers call urma_init by the name of their release.
    let of_release =
        |name: &str| if name == "urma_init" { "urma_init_abi_26_06" } else { name }.to_owned();
    let listed = functions(&INSTALLED);
    let mut all: Vec<_> = listed.iter().map(|of| (of_release(&of.name), of.form())).collect();
    all.extend(left_out().filter(other).map(|name| (name.to_owned(), 'v')));
    let stub = |(index, (name, form)): (usize, &(String, char))| {
        format!("STUB({index}, {name}, '{form}')\n")
    };
    let stubs: String = all.iter().enumerate().map(stub).collect();
    fs::write(folder.join("stubs.h"), stubs).expect("a list of functions");
    let include = format!("-I{}", folder.display());
    let flags = ["-std=gnu11", "-shared", "-fPIC", "-ldl", &include];
    let built = GCC.build_alone(&INSTALLED, &root().join("tests/c/programs/watch.c"), &flags);
    (built, all.into_iter().map(|(name, _)| name).collect())
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "the watcher's stubs are for x86-64")]
fn no_call_that_succeeds_changes_errno() {
    let folder = scratch("errno");
    let (watcher, names) = watcher(&folder);
    let ends = root().join("liburma/tests/c");
    let (include, lib) =
        (format!("-I{}", ends.display()), format!("-L{}", INSTALLED.lib().display()));
    let beside = ["-Wl,--no-as-needed", "-ltpsa", "-lurma_common", "-ldl"];
    let flags = [&["-std=gnu11", "-Wno-pedantic", &include, &lib][..], &beside].concat();
    let file = folder.join("counts").to_string_lossy().into_owned();
    let preload = watcher.to_string_lossy();
    let mut sources: Vec<_> =
        PROGRAMS.iter().map(|name| (*name, ends.join(name).with_extension("c"))).collect();
    sources.push(("succeeds", root().join("tests/c/programs/succeeds.c")));
    for (name, source) in sources {
        let program = GCC.build(&INSTALLED, &source, &flags);
        let alias = if ALIASED.contains(&name) { "bonding_dev_0" } else { "" };
        // Over packets, system calls that find nothing to receive set errno.
        for path in ["auto", "packets"] {
            let environment = [
                ("URMA_DEVICE_ALIAS", alias),
                ("URMA_PATH", path),
                ("WATCH_FILE", &file),
                ("LD_PRELOAD", &preload),
            ];
            let _ = finish(&command(&program, &[], &environment[usize::from(alias.is_empty())..]));
        }
    }
    let mut counts = Counts::new();
    for line in fs::read_to_string(&file).expect("counts").lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [name, succeeded, changed] = words[..] else { panic!("{line}") };
        let count = counts.entry(name.to_owned()).or_default();
        count.0 += succeeded.parse::<u64>().expect("a number");
        count.1 += changed.parse::<u64>().expect("a number");
    }
    let is_silent =
        |name: &str, (all, changed): (u64, u64)| SILENT.contains(&name) && changed < all;
    let changed: Vec<_> = counts
        .iter()
        .filter(|(name, count)| count.1 != 0 && !is_silent(name.as_str(), **count))
        .collect();
    assert!(
        changed.is_empty(),
        "errno changed in calls that succeeded (all, changed): {changed:?}"
    );
    let is_refused = |name: &str| name.starts_with("urma_cmd_") && !ERRNO_COMMANDS.contains(&name);
    let is_known = |name: &str| is_refused(name) || NEVER.iter().any(|(never, _)| *never == name);
    let never: Vec<_> =
        names.iter().filter(|name| !counts.contains_key(*name) && !is_known(name)).collect();
    assert!(never.is_empty(), "no program calls these with success: {never:?}");
    assert!(counts.len() >= 170, "{} functions", counts.len());
}

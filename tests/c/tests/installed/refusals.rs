//! Every exported function, with arguments that it must refuse.
//!
//! *Takes*: the table of all functions. *Gives*: what `programs/refuses.c` found.

use std::fs;

use urma_c_tests::{GCC, Prefix, Said, root, scratch, start};

use crate::{
    INSTALLED, command,
    profiles::B081,
    table::{Function, functions},
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

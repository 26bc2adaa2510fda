//! Every function of the header, with arguments that it must refuse.
//!
//! *Takes*: `urma_api.h` as installed. *Gives*: the table of `programs/refuses.c`. *Must not*: leave
//! a function out because nobody thought of it.

use std::fs;

use urma_c_tests::{GCC, Prefix, Said, root, scratch, start};

use crate::{INSTALLED, command};

/// Types that are objects of the library, and their names in the table.
const OBJECTS: [(&str, &str); 12] = [
    ("urma_context_t", "CTX"),
    ("urma_jfce_t", "JFCE"),
    ("urma_jfc_t", "JFC"),
    ("urma_jfs_t", "JFS"),
    ("urma_jfr_t", "JFR"),
    ("urma_jetty_t", "JETTY"),
    ("urma_jetty_grp_t", "GRP"),
    ("urma_target_jetty_t", "TARGET"),
    ("urma_target_seg_t", "SEG"),
    ("urma_token_id_t", "TOKEN_ID"),
    ("urma_notifier_t", "NOTIFIER"),
    ("urma_device_t", "DEVICE"),
];

/// Declarations of the header, each on one line.
fn declarations(prefix: &Prefix) -> Vec<String> {
    let path = prefix.path.join("include/ub/umdk/urma/urma_api.h");
    let text = fs::read_to_string(path).expect("the header");
    let pieces = text.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, rest)| rest));
    let code: String = pieces.collect();
    let lines =
        code.lines().filter(|line| !line.starts_with('#') && !line.contains("extern \"C\""));
    let joined = lines.collect::<Vec<_>>().join(" ");
    joined.split(';').map(|one| one.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn argument(text: &str) -> Option<&'static str> {
    let text = text.trim().trim_start_matches("const ");
    let kind = text.split([' ', '*']).next().unwrap_or_default();
    let stars = text.matches('*').count() + text.matches('[').count();
    let object = OBJECTS.iter().find(|(name, _)| *name == kind);
    match (stars, object) {
        (0, _) if kind == "void" => None,
        (0, _) if kind == "urma_eid_t" => Some("EID"),
        (0, _) if kind.contains("_cb") => Some("FUNCTION"),
        (0, _) => Some("NUMBER"),
        (1, Some((_, object))) => Some(object),
        _ => Some("POINTER"),
    }
}

/// One row of the table; `None` for what is no function.
fn row(declaration: &str) -> Option<String> {
    let (head, arguments) = declaration.split_once('(')?;
    let (answer, name) = head.rsplit_once([' ', '*'])?;
    if !name.starts_with("urma_") || declaration.starts_with("typedef") || head.contains('=') {
        return None;
    }
    let form = match (head.contains('*'), answer.trim()) {
        (true, _) => 'p',
        (false, "void") => 'v',
        // An int that is a status.
        (false, "int") if name == "urma_modify_tp" => 's',
        (false, "int") => 'i',
        (false, _) => 's',
    };
    let kinds: Vec<_> = arguments.trim_end_matches(')').split(", ").filter_map(argument).collect();
    let list = if kinds.is_empty() { "NUMBER".to_owned() } else { kinds.join(", ") };
    Some(format!("{{\"{name}\", '{form}', {}, {{{list}}}}},\n", kinds.len()))
}

/// Compiles and runs the program with a table.
fn run(name: &str, rows: &str, more: &[&str]) -> Said {
    let folder = scratch(name);
    fs::write(folder.join("rows.h"), rows).expect("a table");
    let ends = root().join("urma-core/ffi/tests/c");
    let include = [folder, ends].map(|folder| format!("-I{}", folder.display()));
    let flags = ["-std=gnu11", "-Wno-pedantic", "-ldl", &include[0], &include[1]];
    let source = root().join("tests/c/programs/refuses.c");
    let program = GCC.build(&INSTALLED, &source, &[&flags, more].concat());
    // Objects live at exit: their memory is the library's own, which leak detection does not look into.
    start(&command(&program, &[], &[("ASAN_OPTIONS", "detect_leaks=0")])).end()
}

fn rows() -> Vec<String> {
    declarations(&INSTALLED).iter().filter_map(|one| row(one)).collect()
}

#[test]
fn every_function_refuses_what_is_no_object() {
    let rows = rows();
    assert!(rows.len() >= 120, "{} functions", rows.len());
    let said = run("refusals", &rows.concat(), &[]);
    assert!(said.status.success() && said.out.contains("calls refused"), "{}", said.err);
}

#[test]
fn every_function_refuses_under_address_sanitizer() {
    let said = run("refusals-asan", &rows().concat(), &["-fsanitize=address"]);
    assert!(said.status.success() && said.out.contains("calls refused"), "{}", said.err);
}

#[test]
fn a_function_that_refuses_nothing_is_found() {
    let rows = "{\"urma_log_get_level\", 's', 1, {CTX}},\n";
    let said = run("refusals-planted", rows, &[]);
    assert!(!said.status.success() && said.err.contains("is not refused"), "{}", said.err);
}

#[test]
fn arguments_are_told_apart() {
    let send = "urma_status_t urma_send( urma_jfs_t *jfs, const urma_token_t *token, uint64_t src)";
    assert_eq!(row(send).expect("a row"), "{\"urma_send\", 's', 3, {JFS, POINTER, NUMBER}},\n");
    let list = "int urma_wait_jfc(urma_jfce_t *jfce, urma_jfc_t *jfc[])";
    assert_eq!(row(list).expect("a row"), "{\"urma_wait_jfc\", 'i', 2, {JFCE, POINTER}},\n");
}

//! docs/conformance.md and the table of behaviours say the same.
//!
//! *Owns*: the format of the list: a Markdown table `| name | flow | statement |`.

use std::collections::BTreeMap;

use libtest_mimic::{Failed, Trial};

use urma_tests::world::Setup;

use crate::{
    behaviours::{self, Behaviour, Flow},
    c_face, served, standard,
};

const DOC: &str = include_str!("../../../docs/conformance.md");
/// Behaviours that the suite must have.
const COUNT_MIN: usize = 120;

/// The checks of the list itself.
pub(crate) fn checks() -> Vec<Trial> {
    vec![
        Trial::test("the_document_lists_every_behaviour", listed),
        Trial::test("the_document_lists_nothing_else", nothing_else),
        Trial::test("there_are_enough_behaviours", enough),
        Trial::test("every_behaviour_has_its_own_name", unique),
        Trial::test("the_document_lists_what_is_left_out", left_out),
        Trial::test("c_has_enough_behaviours", enough_in_c),
        Trial::test("a_c_program_makes_the_calls_that_urma_core_refuses", refused_in_c),
    ]
}

/// Name to (flow, statement).
fn in_document() -> BTreeMap<&'static str, (&'static str, &'static str)> {
    let rows = DOC.lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|row| {
        let mut cells = row.trim_matches('|').splitn(3, '|').map(str::trim);
        let name = cells.next()?.trim_matches('`');
        Some((name, (cells.next()?, cells.next()?)))
    })
    .collect()
}

fn row(behaviour: &Behaviour) -> String {
    format!("| `{}` | {} | {} |", behaviour.name, behaviour.flow.word(), behaviour.says)
}

fn listed() -> Result<(), Failed> {
    let document = in_document();
    let missing: Vec<String> = behaviours::all()
        .filter(|known| document.get(known.name) != Some(&(known.flow.word(), known.says)))
        .map(row)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("missing or different in docs/conformance.md:\n{}", missing.join("\n")).into())
}

fn nothing_else() -> Result<(), Failed> {
    let extra: Vec<&str> = in_document()
        .into_keys()
        .filter(|name| !behaviours::all().any(|known| known.name == *name))
        .collect();
    if extra.is_empty() { Ok(()) } else { Err(format!("no such behaviours: {extra:?}").into()) }
}

fn enough() -> Result<(), Failed> {
    let count = behaviours::all().count();
    let bad = behaviours::all().filter(|known| known.flow == Flow::Bad).count();
    if count >= COUNT_MIN && bad * 3 >= count {
        return Ok(());
    }
    Err(format!("{count} behaviours, {bad} of them bad-flow").into())
}

fn unique() -> Result<(), Failed> {
    let mut names: Vec<_> = behaviours::all().map(|known| known.name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(format!("two behaviours are named {}", pair[0]).into()),
    }
}

/// Behaviours that are tried through C in some setup, at least; so many of them bad-flow.
const IN_C_MIN: (usize, usize) = (250, 100);

/// Rows `- `name`: reason` of the document are the lists of what C, standard packets and served devices leave out.
fn left_out() -> Result<(), Failed> {
    let mut listed: Vec<&str> = DOC.lines().filter(|line| line.starts_with("- `")).collect();
    let mut known: Vec<String> = c_face::LEFT_OUT
        .iter()
        .chain(standard::LEFT_OUT)
        .chain(served::LEFT_OUT)
        .chain(served::LEFT_OUT_OF_REGISTERS)
        .chain(served::LEFT_OUT_OF_VFIO)
        .map(left_out_row)
        .collect();
    listed.sort_unstable();
    known.sort_unstable();
    if listed == known {
        return Ok(());
    }
    Err(format!("docs/conformance.md lists {listed:#?}, left out are {known:#?}").into())
}

fn left_out_row((name, why): &(&str, &str)) -> String {
    format!("- `{name}`: {why}")
}

fn enough_in_c() -> Result<(), Failed> {
    let setups = Setup::all_through_c();
    let is_tried = |known: &&Behaviour| {
        c_face::has(known.name) && setups.iter().any(|setup| (known.applies)(*setup))
    };
    let count = behaviours::all().filter(is_tried).count();
    let bad = behaviours::all().filter(is_tried).filter(|known| known.flow == Flow::Bad).count();
    if count >= IN_C_MIN.0 && bad >= IN_C_MIN.1 {
        return Ok(());
    }
    Err(format!("{count} behaviours through C, {bad} of them bad-flow").into())
}

/// Behaviours that the C program calls, as its text says: `    name(...);` at the start of a line.
fn called(program: &str) -> Vec<&str> {
    let lines = program.lines().filter_map(|line| line.strip_prefix("    ")?.split_once('('));
    let is_bad =
        |name: &&str| behaviours::all().any(|known| known.name == *name && known.flow == Flow::Bad);
    lines.map(|(name, _)| name).filter(is_bad).collect()
}

fn refused_in_c() -> Result<(), Failed> {
    let mut listed = c_face::REFUSED_IN_C.to_vec();
    let mut called_in_c = called(c_face::REFUSALS);
    let planted =
        called("    write_with_too_much_inline_is_refused();\n    CHECK(write_every_size());\n");
    listed.sort_unstable();
    called_in_c.sort_unstable();
    if listed == called_in_c && planted == ["write_with_too_much_inline_is_refused"] {
        return Ok(());
    }
    Err(format!("listed are {listed:#?}, refusals.c calls {called_in_c:#?}").into())
}

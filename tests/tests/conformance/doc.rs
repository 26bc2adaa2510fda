//! The lists of docs/conformance.md are those of the code.

use std::collections::BTreeMap;

use libtest_mimic::{Failed, Trial};

use urma_tests::world::Setup;

use crate::{
    behaviours::{self, Behaviour, Flow},
    left_out,
};

const DOC: &str = include_str!("../../../docs/conformance.md");
const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/conformance.md");
/// Behaviours that the suite must have.
const COUNT_MIN: usize = 120;

/// The checks of the list itself.
pub(crate) fn checks() -> Vec<Trial> {
    vec![
        Trial::test("the_document_lists_what_the_code_has", listed),
        Trial::test("there_are_enough_behaviours", enough),
        Trial::test("every_behaviour_has_its_own_name", unique),
        Trial::test("c_has_enough_behaviours", enough_in_c),
        Trial::test("a_c_program_makes_the_calls_that_urma_core_refuses", refused_in_c),
    ]
}

/// Where the lists begin; everything before is written by hand.
const MARK: &str = "<!-- from here on written by `cargo xtask docs` -->\n";

/// What the suite tries and what it leaves out, as Markdown.
fn lists() -> String {
    let mut page =
        String::from("\n## Left out\n\n`left_out.rs` beside the behaviours has all names.\n");
    for (title, list) in [
        ("Through the C functions", left_out::C_FACE_LEFT_OUT),
        ("In standard packets", left_out::STANDARD_LEFT_OUT),
        ("Behind a socket", left_out::SERVED_LEFT_OUT),
        ("Where drivers ring by messages, too", left_out::LEFT_OUT_OF_REGISTERS),
        ("In a virtual machine, too", left_out::LEFT_OUT_OF_VFIO),
    ] {
        let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (name, why) in list {
            reasons.entry(why).or_default().push(format!("`{name}`"));
        }
        page += &format!("\n### {title}\n\n| why | behaviours |\n|---|---|\n");
        for (why, names) in reasons {
            let more = match names.len() {
                0 | 1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            page += &format!("| {} | {}{more} |\n", why.trim_end_matches('.'), names[0]);
        }
    }
    page += "\n## Behaviours\n\nWhat each one says stands in the table at the top of its file below `behaviours/`. `-- --list` names all.\n\n";
    let (good, bad) = (Flow::Good.word(), Flow::Bad.word());
    page += &format!("| file | subject | {good} | {bad} |\n|---|---|---|---|\n");
    for (title, file, behaviours) in behaviours::SUBJECTS {
        let good = behaviours.iter().filter(|behaviour| behaviour.flow == Flow::Good).count();
        let (subject, bad) = (title.trim_end_matches('.'), behaviours.len() - good);
        page += &format!("| `{file}.rs` | {subject} | {good} | {bad} |\n");
    }
    page
}

/// With `URMA_WRITE_DOCS=1`, as `cargo xtask docs` sets it, writes the lists instead.
fn listed() -> Result<(), Failed> {
    let Some((by_hand, after)) = DOC.split_once(MARK) else {
        return Err(format!("docs/conformance.md lacks the line {MARK:?}").into());
    };
    let lists = lists();
    if std::env::var_os("URMA_WRITE_DOCS").is_some() {
        std::fs::write(PATH, format!("{by_hand}{MARK}{lists}"))?;
        return Ok(());
    }
    match lists.lines().zip(after.lines()).find(|(made, written)| made != written) {
        None if lists == after => Ok(()),
        None => Err("docs/conformance.md is not current: cargo xtask docs".into()),
        Some((made, written)) => {
            Err(format!("{written:?}, should be {made:?}: cargo xtask docs").into())
        }
    }
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

fn enough_in_c() -> Result<(), Failed> {
    let setups = Setup::all_through_c();
    let is_tried = |known: &&Behaviour| {
        left_out::has(known.name) && setups.iter().any(|setup| (known.applies)(*setup))
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
    let mut listed = left_out::REFUSED_IN_C.to_vec();
    let mut called_in_c = called(left_out::REFUSALS);
    let planted =
        called("    write_with_too_much_inline_is_refused();\n    CHECK(write_every_size());\n");
    listed.sort_unstable();
    called_in_c.sort_unstable();
    if listed == called_in_c && planted == ["write_with_too_much_inline_is_refused"] {
        return Ok(());
    }
    Err(format!("listed are {listed:#?}, refusals.c calls {called_in_c:#?}").into())
}

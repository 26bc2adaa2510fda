//! Rules about documents: what Markdown files, the promises of docs/security.md and tests/mutants/survivors.toml
//! name exists.
//!
//! Addresses of other sites are not looked at. What a named test checks, or whether a mutant survives, is not judged
//! here (`cargo xtask mutants --crates` tries the latter).

use std::collections::BTreeSet;

use super::File;
use crate::{
    markdown::{CodeBlock, Document, FigureKind},
    plot::Plot,
    say::Failure,
};

/// A file that speaks of files that were there once.
const HISTORY: &str = "CHANGELOG.md";
/// The book's list of chapters.
const SUMMARY: &str = "docs/SUMMARY.md";
/// Most columns of a drawing: more would not fit a page.
const COLUMNS_MAX: usize = 100;
/// Ends of names that are files of this project when a document names them.
const ENDS: [&str; 4] = [".rs", ".md", ".toml", ".c"];

fn documents(files: &[File]) -> impl Iterator<Item = (&File, Document)> {
    let ours = files.iter().filter(|file| file.path.ends_with(".md"));
    ours.map(|file| (file, Document::of(&file.text)))
}

/// Every relative link leads to a file or folder, and to a heading that is there.
pub(super) fn links(files: &[File]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (file, document) in documents(files) {
        for link in &document.links {
            if let Err(why) = leads(files, &file.path, &link.dest) {
                wrong.push(format!("{}:{}: {}: {why}", file.path, link.line, link.dest));
            }
        }
    }
    wrong
}

fn leads(files: &[File], from: &str, dest: &str) -> Result<(), &'static str> {
    if dest.contains("://") || dest.starts_with("mailto:") {
        return Ok(());
    }
    if dest.starts_with('/') {
        return Err("an absolute path");
    }
    let (path, anchor) = dest.split_once('#').unwrap_or((dest, ""));
    let path = if path.is_empty() { from.to_owned() } else { target(from, path) };
    let file = files.iter().find(|file| file.path == path);
    if file.is_none() && !is_folder(files, &path) {
        return Err("no such file");
    }
    if anchor.is_empty() {
        return Ok(());
    }
    let has = file.is_some_and(|file| Document::of(&file.text).anchors.iter().any(|a| a == anchor));
    if has { Ok(()) } else { Err("no such heading") }
}

/// The path from the workspace's folder to which the link `to` of the file `from` leads.
pub(crate) fn target(from: &str, to: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

fn is_folder(files: &[File], path: &str) -> bool {
    let inside = format!("{}/", path.trim_end_matches('/'));
    path.is_empty() || files.iter().any(|file| file.path.starts_with(&inside))
}

/// A path that a document names exists. A path may begin at any folder: `host/udp.rs`.
pub(super) fn paths(files: &[File]) -> Vec<String> {
    let roots: BTreeSet<&str> =
        files.iter().filter_map(|file| Some(file.path.split_once('/')?.0)).collect();
    let mut wrong = Vec::new();
    for (file, document) in documents(files).filter(|(file, _)| file.path != HISTORY) {
        for code in document.codes.iter().filter(|code| is_path(&roots, &code.text)) {
            if !is_there(files, &file.path, &code.text) {
                wrong.push(format!("{}:{}: no such path: {}", file.path, code.line, code.text));
            }
        }
    }
    wrong
}

fn is_path(roots: &BTreeSet<&str>, text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let begins_here = text.split_once('/').is_some_and(|(first, _)| roots.contains(first));
    let is_file = ENDS.iter().any(|end| text.len() > end.len() && text.ends_with(end));
    text.chars().all(is_plain) && (begins_here || is_file) && !text.starts_with(['/', '.'])
}

fn is_there(files: &[File], from: &str, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let end = format!("/{path}");
    let is_it = |file: &File| file.path == path || file.path.ends_with(&end);
    files.iter().any(is_it) || is_folder(files, path) || is_folder(files, &target(from, path))
}

/// In a table, functions that stand in a row with files are defined in one of them.
pub(super) fn functions(files: &[File]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (file, document) in documents(files).filter(|(file, _)| file.path != HISTORY) {
        let codes: Vec<&CodeBlock> =
            document.codes.iter().filter(|code| code.is_in_table).collect();
        for row in codes.chunk_by(|one, next| one.line == next.line) {
            let sources: Vec<&File> = row.iter().flat_map(|code| sources(files, code)).collect();
            if sources.is_empty() {
                continue;
            }
            for call in row.iter().filter_map(|code| code.text.strip_suffix("()")) {
                let name = call.rsplit("::").next().unwrap_or(call);
                if !sources.iter().any(|source| defines(&source.text, name)) {
                    let place = format!("{}:{}", file.path, row[0].line);
                    wrong.push(format!("{place}: {call} is no function of the row's files"));
                }
            }
        }
    }
    wrong
}

fn sources<'f>(files: &'f [File], code: &CodeBlock) -> Vec<&'f File> {
    if !code.text.ends_with(".rs") {
        return Vec::new();
    }
    let end = format!("/{}", code.text);
    files.iter().filter(|file| file.path == code.text || file.path.ends_with(&end)).collect()
}

fn defines(text: &str, name: &str) -> bool {
    let heads = [format!("fn {name}("), format!("fn {name}<"), format!("macro_rules! {name} ")];
    heads.iter().any(|head| text.contains(head))
}

/// Every page of docs/ is a chapter.
pub(super) fn chapters(files: &[File]) -> Vec<String> {
    let Some(summary) = files.iter().find(|file| file.path == SUMMARY) else { return Vec::new() };
    let listed = Document::of(&summary.text).links;
    let listed: BTreeSet<String> = listed.iter().map(|link| target(SUMMARY, &link.dest)).collect();
    let pages = files
        .iter()
        .map(|file| file.path.as_str())
        .filter(|path| path.starts_with("docs/") && path.ends_with(".md") && *path != SUMMARY);
    let lost = pages.filter(|path| !listed.contains(*path));
    lost.map(|path| format!("{path}: not in {SUMMARY}")).collect()
}

/// Every crate says in a README what it is. One README stands for all crates of tests.
pub(super) fn readmes(files: &[File]) -> Vec<String> {
    let folders = files.iter().filter_map(|file| file.path.strip_suffix("/Cargo.toml"));
    let crates = folders.filter(|folder| !folder.starts_with("tests/"));
    let is_there = |folder: &&str| {
        let readme = format!("{folder}/README.md");
        files.iter().any(|file| file.path == readme)
    };
    let without = crates.filter(|folder| !is_there(folder));
    without.map(|folder| format!("{folder}: no README.md")).collect()
}

/// A drawing has a title, lines, and no more columns than a page.
pub(super) fn figures(files: &[File]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (file, document) in documents(files) {
        for figure in &document.figures {
            let place = format!("{}:{}", file.path, figure.line);
            if figure.title.is_empty() {
                wrong.push(format!("{place}: a figure without a title"));
            }
            if figure.body.trim().is_empty() {
                wrong.push(format!("{place}: an empty figure"));
            }
            if figure.kind == FigureKind::Plot
                && let Err(Failure(why)) = Plot::of(&figure.body)
            {
                wrong.push(format!("{place}: no plot: {why}"));
            }
            if figure.body.lines().any(|line| line.chars().count() > COLUMNS_MAX) {
                wrong.push(format!("{place}: a figure of more than {COLUMNS_MAX} columns"));
            }
        }
    }
    wrong
}

/// The page with the promises.
const PAGE: &str = "docs/security.md";
/// Fewer promises than these mean that the tables were not found.
const PROMISES_MIN: usize = 10;

/// Every promise is guarded by a test, a module or a folder that is there.
pub(super) fn guarded(files: &[File]) -> Vec<String> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return vec![format!("{PAGE}: missing")];
    };
    let rows = page.text.lines().skip_while(|line| !line.starts_with("| promise"));
    let rows = rows.filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let (mut wrong, mut promises) = (Vec::new(), 0);
    for row in rows.filter(|row| !row.starts_with("promise")) {
        let Some((promise, guards)) = row.rsplit_once(" | ") else { continue };
        promises += 1;
        let guards_of: Vec<&str> = guards.split('`').skip(1).step_by(2).collect();
        if guards_of.is_empty() && guards != "the same" {
            wrong.push(format!("{PAGE}: {promise}: nothing guards it"));
        }
        let lost = guards_of.into_iter().filter(|guard| !guard_is_there(guard, files));
        wrong.extend(lost.map(|guard| format!("{PAGE}: {promise}: there is no {guard}")));
    }
    if promises < PROMISES_MIN {
        wrong.push(format!("{PAGE}: {promises} promises"));
    }
    wrong
}

fn guard_is_there(guard: &str, files: &[File]) -> bool {
    let name = guard.rsplit("::").next().unwrap_or(guard);
    let forms = [format!("fn {name}("), format!("mod {name};")];
    let folder = format!("{guard}/");
    files.iter().any(|file| {
        file.path.starts_with(&folder)
            || file.is_rust() && forms.iter().any(|form| file.text.contains(form))
    })
}

/// The list of mutants that no test finds.
const LIST: &str = "tests/mutants/survivors.toml";

/// Every row names a function of its file.
pub(super) fn survivors(files: &[File]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut path = "";
    let list = files.iter().filter(|file| file.path == LIST).flat_map(|file| file.text.lines());
    for (index, line) in list.enumerate() {
        if let Some(file) = value(line, "file") {
            path = file;
        }
        let Some(mutation) = value(line, "mutation") else { continue };
        let text = files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
        if !text.is_some_and(|text| has(text, function_of(mutation))) {
            wrong.push(format!("{LIST}:{}: {path} has no such function: {mutation}", index + 1));
        }
    }
    wrong
}

fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key)?
        .trim_start()
        .strip_prefix('=')?
        .trim()
        .strip_prefix('"')?
        .strip_suffix('"')
}

/// The function in a mutant's name: behind `in`, or first behind `replace` when the whole body is.
fn function_of(mutation: &str) -> &str {
    if let Some((_, function)) = mutation.rsplit_once(" in ") {
        return function;
    }
    let whole = mutation.strip_prefix("replace ").unwrap_or(mutation);
    whole.split([' ', '(']).next().unwrap_or(whole)
}

/// Whether a file has the function `f`, or the method `f` of the type or trait `T` for `T::f`.
fn has(text: &str, function: &str) -> bool {
    let (owner, name) = function.rsplit_once("::").unwrap_or(("", function));
    let mut is_inside = owner.is_empty();
    text.lines().any(|line| {
        if !owner.is_empty() && !line.starts_with([' ', '}', '/', '#']) && !line.is_empty() {
            is_inside = words(line).any(|word| word == "impl" || word == "trait")
                && words(line).any(|word| word == owner);
        }
        let mut names = words(line).skip_while(|word| *word != "fn");
        is_inside && !line.trim_start().starts_with("//") && names.nth(1) == Some(name)
    })
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
}

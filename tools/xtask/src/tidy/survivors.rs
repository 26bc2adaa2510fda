//! A rule about tests/mutants/survivors.toml: what a row names exists.
//!
//! *Owns*: reading the rows and the names that cargo-mutants gives to mutants. *Takes*: the files of
//! the workspace. *Gives*: rows whose file or function is gone. *Must not*: decide whether a mutant
//! survives; `cargo xtask mutants --crates` does.

use super::File;

/// The list of mutants that no test finds.
const LIST: &str = "tests/mutants/survivors.toml";

/// Every row names a function of its file.
pub(super) fn functions(files: &[File]) -> Vec<String> {
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

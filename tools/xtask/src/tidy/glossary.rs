//! Rules about the vocabulary.
//!
//! *Owns*: reading GLOSSARY.md: its terms, and the words that its column "not" forbids. *Takes*: all
//! files. *Gives*: terms listed twice, and the first use of a forbidden word in each file.
//!
//! A cell of the column "not" lists words or phrases, separated by semicolons. Behind a word may
//! stand `(but: PHRASE, PHRASE)`: phrases in which the word means something else, and which are
//! allowed. Words are compared without case and regardless of how an identifier joins them, so that
//! a forbidden `two words` is found in `two_words` and `TwoWords`, too.

use super::{File, words::is_foreign};

/// The file that lists the terms.
const GLOSSARY: &str = "GLOSSARY.md";

/// A forbidden word or phrase.
struct Forbidden {
    /// Its parts in lower case, at least one.
    parts: Vec<String>,
    /// Phrases that contain it and are allowed.
    allowed: Vec<Vec<String>>,
    /// What to write instead: the term of its line.
    term: String,
}

/// A line of a table of the glossary, without those of headers.
struct GlossaryLine<'a> {
    /// First cell: a term, or several with commas between them.
    term: &'a str,
    /// Cell of the column "not", if the table has one.
    not: Option<&'a str>,
}

/// Each term is listed once.
pub(super) fn terms(files: &[File]) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    let mut wrong = Vec::new();
    for entry in entries(files) {
        for term in plain(entry.term).split(',').map(str::trim) {
            if seen.iter().any(|other| other == term) {
                wrong.push(format!("{GLOSSARY}: {term} is listed twice"));
            }
            seen.push(term.to_owned());
        }
    }
    wrong
}

/// No file uses a word that the glossary forbids.
pub(super) fn forbidden(files: &[File]) -> Vec<String> {
    let rules: Vec<Forbidden> = entries(files).iter().flat_map(rules_of).collect();
    let checked = files.iter().filter(|file| !is_foreign(&file.path) && file.path != GLOSSARY);
    checked.filter_map(|file| first_use(file, &rules)).collect()
}

fn first_use(file: &File, rules: &[Forbidden]) -> Option<String> {
    file.text.lines().enumerate().find_map(|(index, line)| {
        let parts = parts(line);
        let rule = rules.iter().find(|rule| rule.is_in(&parts))?;
        let (word, term) = (rule.parts.join(" "), &rule.term);
        Some(format!("{}:{}: {word:?}; GLOSSARY says: {term}", file.path, index + 1))
    })
}

impl Forbidden {
    fn is_in(&self, line: &[String]) -> bool {
        let len = self.parts.len();
        let places = (0..line.len()).filter(|at| line[*at..].starts_with(&self.parts));
        places.into_iter().any(|at| !self.is_allowed(line, at, at + len))
    }

    fn is_allowed(&self, line: &[String], from: usize, to: usize) -> bool {
        self.allowed.iter().any(|phrase| {
            let covers = |at: usize| at + phrase.len() >= to && line[at..].starts_with(phrase);
            (0..=from).any(covers)
        })
    }
}

fn rules_of(entry: &GlossaryLine<'_>) -> Vec<Forbidden> {
    let words = entry.not.unwrap_or("").split(';').map(str::trim).filter(|word| !word.is_empty());
    let rule = |word: &str| {
        let (word, rest) = word.split_once("(but:").unwrap_or((word, ""));
        let allowed = rest.trim_end_matches(')').split(',').map(parts);
        let allowed = allowed.filter(|phrase| !phrase.is_empty()).collect();
        Forbidden { parts: parts(word), allowed, term: plain(entry.term) }
    };
    words.map(rule).collect()
}

fn entries(files: &[File]) -> Vec<GlossaryLine<'_>> {
    let glossary = files.iter().filter(|file| file.path == GLOSSARY);
    let mut entries = Vec::new();
    let mut has_not = None;
    for line in glossary.flat_map(|file| file.text.lines()) {
        let Some(cells) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            has_not = None;
            continue;
        };
        let cells: Vec<&str> = cells.split('|').map(str::trim).collect();
        let last = cells.last().copied();
        match has_not {
            None => has_not = Some(last == Some("not")),
            Some(_) if cells[0].starts_with("--") => {}
            Some(has_not) => {
                entries.push(GlossaryLine { term: cells[0], not: last.filter(|_| has_not) })
            }
        }
    }
    entries
}

/// A cell without its marks: what stands between asterisks or in brackets.
fn plain(cell: &str) -> String {
    let unmarked = cell.split('*').step_by(2).collect::<String>();
    let outside = unmarked.split('(').map(|part| part.split_once(')').map_or(part, |(_, end)| end));
    outside.collect::<String>().trim().to_owned()
}

/// Words of a line in lower case; identifiers fall into the words that they are made of.
fn parts(line: &str) -> Vec<String> {
    let letters: Vec<char> = line.chars().collect();
    let mut parts = vec![String::new()];
    for (at, letter) in letters.iter().enumerate() {
        let is_before_small = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let is_after_small = at > 0 && letters[at - 1].is_lowercase();
        let starts = letter.is_uppercase() && (is_after_small || is_before_small);
        if starts || !letter.is_alphabetic() {
            parts.push(String::new());
        }
        if letter.is_alphabetic()
            && let Some(last) = parts.last_mut()
        {
            last.extend(letter.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests;

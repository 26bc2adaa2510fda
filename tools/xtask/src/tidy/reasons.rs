//! Rule about refusals: each path to `Status::Invalid` says why.
//!
//! *Owns*: what counts as a reason. *Takes*: the sources of the crates that refuse calls. *Gives*: the places that refuse
//! without one. *Must not*: judge the words.

use super::{File, source};

/// Crates whose statuses reach programs. In `liburma` the type of an answer asks for a reason by itself
/// (`call::refuse!`); this rule is for the statuses that it passes on.
const CRATES: &[&str] =
    &["urma-core/src/", "urma-core/answer/src/", "udma-provider/src/", "liburma/src/", "urma/src/"];

const STATUS: &str = "Status::Invalid";

/// Each `Status::Invalid` is compared with, or has its reason.
pub(super) fn given(files: &[File]) -> Vec<String> {
    let code = files.iter().filter(|file| {
        file.is_rust()
            && !source::is_test(&file.path)
            && CRATES.iter().any(|folder| file.path.starts_with(folder))
    });
    code.flat_map(without).collect()
}

fn without(file: &File) -> Vec<String> {
    let end = file.text.find("#[cfg(test)]\nmod tests {").unwrap_or(file.text.len());
    // Comments keep their places, so that lines are counted as they are.
    let lines = file.text[..end].split_inclusive('\n');
    let code: String =
        lines.map(|line| if line.trim_start().starts_with("//") { "\n" } else { line }).collect();
    let places = code.match_indices(STATUS).filter(|(at, _)| {
        let is_other = code[..*at].ends_with(|letter: char| letter.is_alphanumeric());
        !is_other && !has_reason(code[..*at].trim_end(), code[at + STATUS.len()..].trim_start())
    });
    let tell = |(at, _)| {
        let line = code[..at].matches('\n').count() + 1;
        format!(
            "{}:{line}: {STATUS} without .why(...): what, on which object, by which rule",
            file.path
        )
    };
    places.map(tell).collect()
}

fn has_reason(before: &str, after: &str) -> bool {
    let is_compared = before.ends_with("==") || before.ends_with("!=");
    is_compared || before.ends_with("refuse(") || after.starts_with(".why(")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> Vec<String> {
        let path = "udma-provider/src/some.rs".to_owned();
        given(&[File { path, text: text.to_owned() }])
    }

    #[test]
    fn a_status_without_a_reason_is_found_wherever_it_stands() {
        let planted = [
            "fn f() -> Result<(), Status> {\n    Err(Status::Invalid)\n}",
            "let x = y.ok_or(urma_core::Status::Invalid)?;",
            "y.map_err(|_| {\n    Status::Invalid\n})",
            "match code {\n    0 => Status::Invalid,\n}",
        ];
        for text in planted {
            assert_eq!(wrong(text).len(), 1, "{text}");
        }
        assert!(wrong(planted[2])[0].starts_with("udma-provider/src/some.rs:2: "));
    }

    #[test]
    fn reasons_comparisons_and_other_statuses_pass() {
        let fine = [
            "Err(Status::Invalid.why(format_args!(\"{x}\")))",
            "refuse(\n    Status::Invalid,\n    why,\n)",
            "Status::Invalid\n    .why(words)",
            "if status == Status::Invalid {}",
            "CmdStatus::Invalid => 3,",
            "/// `Status::Invalid`\n// Status::Invalid",
            "#[cfg(test)]\nmod tests {\n    Err(Status::Invalid)\n}",
        ];
        for text in fine {
            assert_eq!(wrong(text), Vec::<String>::new(), "{text}");
        }
        let elsewhere =
            File { path: "ubcore-sim/src/some.rs".into(), text: "Err(Status::Invalid)".into() };
        assert!(given(&[elsewhere]).is_empty());
    }
}

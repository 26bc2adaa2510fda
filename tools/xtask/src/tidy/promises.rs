//! The promises of docs/security.md: each names tests or rooms that exist.
//!
//! *Owns*: reading the tables. *Must not*: judge what a test checks.

use super::File;

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
        let lost = guards_of.into_iter().filter(|guard| !is_there(guard, files));
        wrong.extend(lost.map(|guard| format!("{PAGE}: {promise}: there is no {guard}")));
    }
    if promises < PROMISES_MIN {
        wrong.push(format!("{PAGE}: {promises} promises"));
    }
    wrong
}

fn is_there(guard: &str, files: &[File]) -> bool {
    let name = guard.rsplit("::").next().unwrap_or(guard);
    let forms = [format!("fn {name}("), format!("mod {name};")];
    let folder = format!("{guard}/");
    files.iter().any(|file| {
        file.path.starts_with(&folder)
            || file.is_rust() && forms.iter().any(|form| file.text.contains(form))
    })
}

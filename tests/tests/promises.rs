//! The promises of docs/security.md: each names tests that exist.
//!
//! *Owns*: reading the tables. *Takes*: the page and the sources of the workspace. *Must not*: judge
//! what a test checks.
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    /// Source files below `folder`, in one text.
    fn sources(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let is_built = path.file_name().is_some_and(|name| name == "target");
            if path.is_dir() && !is_built {
                sources(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }

    #[test]
    fn every_promise_names_a_test_or_a_room_that_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut text = String::new();
        let folders =
            ["urma-mem", "urma-core", "udma-provider", "ubcore-sim", "liburma", "tests", "tools"];
        for folder in folders {
            sources(&root.join(folder), &mut text);
        }
        let page = fs::read_to_string(root.join("docs/security.md")).unwrap();
        let rows = page.lines().skip_while(|line| !line.starts_with("| promise"));
        let rows = rows.filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
        let mut promises = 0;
        for row in rows.filter(|row| !row.starts_with("promise")) {
            let (promise, guards) = row.rsplit_once(" | ").unwrap();
            let quoted = guards.split('`').skip(1).step_by(2);
            for guard in quoted.clone() {
                let name = guard.rsplit("::").next().unwrap();
                let is_there = [format!("fn {name}("), format!("mod {name};")];
                let is_there = is_there.iter().any(|found| text.contains(found.as_str()))
                    || root.join(guard).is_dir();
                assert!(is_there, "{promise}: there is no {guard}");
            }
            assert!(quoted.count() > 0 || guards == "the same", "{promise}: nothing guards it");
            promises += 1;
        }
        assert!(promises > 10, "{promises} promises");
    }
}

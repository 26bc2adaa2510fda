//! `cargo xtask docs`: writes the parts of documents that are made from the code.
//!
//! The table of crates in ARCHITECTURE.md comes from the manifests and is compared by `tidy`. The lists of
//! `docs/conformance.md` come from the conformance suite, which compares them itself.

use std::{fs, path::Path};

use crate::{
    cargo,
    say::{Failure, TaskResult, say},
    tidy::{self, crates},
};

/// Writes all of them.
pub(crate) fn run(root: &Path) -> TaskResult {
    let page = crates::current(&tidy::files(root)?)?;
    fs::write(root.join(crates::PAGE), page).map_err(Failure::system(crates::PAGE))?;
    say(&format!("written: {}", crates::PAGE));
    let args = ["test", "-p", "urma-tests", "--test", "conformance", "--", "the_document"];
    let status = cargo::command(&args).env("URMA_WRITE_DOCS", "1").status();
    if status.map_err(Failure::system("starting cargo"))?.success() {
        return Ok(());
    }
    Err(Failure("docs/conformance.md was not written".to_owned()))
}

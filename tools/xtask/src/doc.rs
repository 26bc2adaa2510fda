//! `cargo xtask doc`: the book and the pages of the API, in `target`; `cargo xtask docs`: the parts of documents
//! that are made from the code.
//!
//! In the folder from which mdBook builds, plots are drawings and links out of the book are addresses; none may lead
//! nowhere. `doc` must not change a file of the workspace.

use std::{fs, path::Path, process::Command};

use crate::{
    cargo,
    markdown::{Document, FigureKind},
    plot::Plot,
    say::{Failure, TaskResult, say},
    step::{RunningStep, StepResult, Steps},
    tidy::{self, File, manifest},
};

/// mdBook, which is installed in this version when it is missing.
const MDBOOK: &str = "0.5.4";
/// Where pages lie that are no chapter.
const REPOSITORY: &str = "https://github.com/urma-rs/urma/blob/main/";
/// The book's list of chapters; its folder is the root of their links.
const SUMMARY: &str = "docs/SUMMARY.md";

/// The task; the pages of the API are left out when only the book is wanted.
pub(crate) fn run(only_book: bool) -> TaskResult {
    let mut steps = Steps::new("doc", if only_book { 2 } else { 3 })?;
    steps.step("rules about documents", |_| rules());
    steps.step("the book", book);
    if !only_book {
        steps.step("the API", api);
    }
    steps.end()?;
    let target = cargo::target_dir()?;
    say(&format!("the book:  {}", cargo::shown(&target.join("book/html/index.html"))));
    if !only_book {
        say(&format!("the API:   {}", cargo::shown(&target.join("doc/urma/index.html"))));
    }
    Ok(())
}

fn rules() -> StepResult {
    let rules = tidy::documents(&cargo::root()).into_iter();
    rules
        .map(|(name, result)| StepResult::one(name, result))
        .fold(StepResult::default(), StepResult::plus)
}

/// The pages of the API, without a warning.
pub(crate) fn api(step: &mut RunningStep) -> StepResult {
    let mut command = cargo::command(&["doc", "--workspace", "--no-deps", "--quiet"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    step.check("cargo doc", command)
}

fn book(step: &mut RunningStep) -> StepResult {
    match staged() {
        Ok(command) => step.check("mdbook build", command),
        Err(failure) => StepResult::one("the book", Err(failure)),
    }
}

/// Writes what mdBook reads; the command that builds the book.
fn staged() -> Result<Command, Failure> {
    let folder = cargo::target_dir()?.join("book");
    let pages = pages(&tidy::files(&cargo::root())?);
    // Pages of an earlier book would stay in this one.
    let _ = fs::remove_dir_all(&folder);
    for page in &pages {
        write(&folder.join(&page.path), &page.text)?;
    }
    let mut command = Command::new(cargo::program("mdbook", MDBOOK, "search")?);
    command.arg("build").arg(&folder);
    Ok(command)
}

fn write(path: &Path, text: &str) -> TaskResult {
    let failed = || Failure::system("writing the book's pages");
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed())?;
    fs::write(path, text).map_err(failed())
}

/// The folder of the book: its settings and `src/`, in which every page has the path that it has in
/// the workspace.
fn pages(files: &[File]) -> Vec<File> {
    let chapters = files.iter().find(|file| file.path == SUMMARY).map_or_else(Vec::new, chapters);
    let mut pages = Vec::new();
    for file in files {
        let text = match file.path.as_str() {
            "docs/book.toml" | "docs/figures.css" => {
                let path = file.path.trim_start_matches("docs/").to_owned();
                pages.push(File { path, text: file.text.clone() });
                continue;
            }
            SUMMARY => {
                let text = changed(&file.text, |dest| Some(tidy::target(SUMMARY, dest)));
                pages.push(File { path: "src/SUMMARY.md".to_owned(), text });
                continue;
            }
            path if path.starts_with("docs/") && is_drawing(path) => file.text.clone(),
            path if chapters.iter().any(|chapter| chapter == path) => {
                let text = changed(&file.text, |dest| outside(&chapters, path, dest));
                drawn(&text)
            }
            _ => continue,
        };
        pages.push(File { path: format!("src/{}", file.path), text });
    }
    pages
}

fn chapters(summary: &File) -> Vec<String> {
    let links = Document::of(&summary.text).links;
    links.iter().map(|link| tidy::target(SUMMARY, &link.dest)).collect()
}

/// Whether the book has the file as it is.
fn is_drawing(path: &str) -> bool {
    path.ends_with(".svg")
}

/// The address of what is not in the book.
fn outside(chapters: &[String], from: &str, dest: &str) -> Option<String> {
    let path = dest.split('#').next().unwrap_or(dest);
    if path.is_empty() || dest.contains("://") || is_drawing(path) {
        return None;
    }
    let anchor = &dest[path.len()..];
    let target = tidy::target(from, path);
    let is_inside = chapters.contains(&target);
    (!is_inside).then(|| format!("{REPOSITORY}{target}{anchor}"))
}

/// `text` with the destinations of links as `change` wants them.
fn changed(text: &str, change: impl Fn(&str) -> Option<String>) -> String {
    let mut text = text.to_owned();
    for link in Document::of(&text).links.iter().rev() {
        let Some(dest) = change(&link.dest) else { continue };
        let whole = &text[link.range.clone()];
        let new = whole.replace(&format!("]({})", link.dest), &format!("]({dest})"));
        text.replace_range(link.range.clone(), &new);
    }
    text
}

/// `text` with its figures and plots under their titles, plots as drawings.
fn drawn(text: &str) -> String {
    let mut text = text.to_owned();
    for figure in Document::of(&text).figures.iter().rev() {
        let shown = match figure.kind {
            FigureKind::Boxes => format!("\n```text\n{}```\n", figure.body),
            // What is no plot stays text; `tidy` names it.
            FigureKind::Plot => match Plot::of(&figure.body).and_then(|plot| plot.svg()) {
                Ok(svg) => svg,
                Err(_) => continue,
            },
        };
        let title = &figure.title;
        let html = format!("<figure>\n{shown}\n<figcaption>{title}</figcaption>\n</figure>\n");
        text.replace_range(figure.range.clone(), &html);
    }
    text
}

/// Writes the parts of documents that are made from the code.
///
/// The table of crates in ARCHITECTURE.md comes from the manifests and is compared by `tidy`. The lists of
/// `docs/conformance.md` come from the conformance suite, which compares them itself.
pub(crate) fn write_parts(root: &Path) -> TaskResult {
    let page = manifest::current(&tidy::files(root)?)?;
    fs::write(root.join(manifest::PAGE), page).map_err(Failure::system(manifest::PAGE))?;
    say(&format!("written: {}", manifest::PAGE));
    let args = ["test", "-p", "urma-tests", "--test", "conformance", "--", "the_document"];
    let status = cargo::command(&args).env("URMA_WRITE_DOCS", "1").status();
    if status.map_err(Failure::system("starting cargo"))?.success() {
        return Ok(());
    }
    Err(Failure("docs/conformance.md was not written".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_captions_and_links_out_of_the_book_are_addresses() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(SUMMARY, "- [A](a/x.md)\n- [B](../B.md)\n"),
            file(
                "docs/a/x.md",
                "[b](../../B.md#h) [c](../../c/src/lib.rs) [d](#e)\n\n```figure T\n│\n```\n\n```plot P\nus\nbytes | a\n8 | 1\n16 | 2\n```\n",
            ),
            file("B.md", "[a](docs/a/x.md)\n"),
            file("docs/book.toml", "[book]\n"),
            file("c/README.md", "no chapter\n"),
        ];
        let pages = pages(&files);
        let text = |path: &str| pages.iter().find(|page| page.path == path).unwrap().text.as_str();
        assert_eq!(pages.len(), 4);
        assert_eq!(text("src/SUMMARY.md"), "- [A](docs/a/x.md)\n- [B](B.md)\n");
        let page = text("src/docs/a/x.md");
        let links =
            format!("[b](../../B.md#h) [c]({REPOSITORY}c/src/lib.rs) [d](#e)\n\n<figure>\n");
        assert!(page.starts_with(&links), "{page}");
        // Blank lines around the block: HTML goes on to the next one.
        assert!(page.contains("\n\n```text\n│\n```\n\n<figcaption>T</figcaption>"), "{page}");
        assert!(page.contains("<svg class=\"plot\""), "{page}");
        assert_eq!(text("src/B.md"), "[a](docs/a/x.md)\n");
    }
}

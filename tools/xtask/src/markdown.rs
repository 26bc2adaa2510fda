//! Markdown files, as far as the project checks and draws them.
//!
//! *Owns*: what a link, an anchor, a code span and a figure is. *Takes*: a file's text. *Gives*:
//! them with their places. *Must not*: know where a link leads.

use std::{collections::BTreeMap, ops::Range};

use pulldown_cmark::{CodeBlockKind, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd};

/// What the book shows of a code block, by the first word of its language.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FigureKind {
    /// `figure`: boxes and arrows.
    Boxes,
    /// `plot`: curves over a table of numbers.
    Plot,
}

impl FigureKind {
    /// The kind and the title of a code block with this information; `None`: it is no figure.
    fn of(info: &str) -> Option<(Self, &str)> {
        let (language, title) = info.split_once(' ').unwrap_or((info, ""));
        let kind = match language {
            "figure" => Self::Boxes,
            "plot" => Self::Plot,
            _ => return None,
        };
        Some((kind, title.trim()))
    }
}

/// A link or an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DocLink {
    /// Line in the file, from 1.
    pub(crate) line: usize,
    /// Destination as it is written.
    pub(crate) dest: String,
    /// Bytes of the whole link in the text.
    pub(crate) range: Range<usize>,
}

/// Code span of a document, with its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CodeBlock {
    /// Line in the file, from 1. The spans of one table row share it.
    pub(crate) line: usize,
    /// What stands between the backquotes.
    pub(crate) text: String,
    /// Whether it stands in a table.
    pub(crate) is_in_table: bool,
}

/// A figure: a code block whose language is a [`FigureKind`], followed by the title.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Figure {
    /// What is drawn of it.
    pub(crate) kind: FigureKind,
    /// Line of its first fence, from 1.
    pub(crate) line: usize,
    /// What it shows, in words.
    pub(crate) title: String,
    /// What stands in it, as text.
    pub(crate) body: String,
    /// Bytes of the block in the text, fences included.
    pub(crate) range: Range<usize>,
}

/// What a file has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Document {
    /// Links and images, in order.
    pub(crate) links: Vec<DocLink>,
    /// Code spans, in order.
    pub(crate) codes: Vec<CodeBlock>,
    /// Drawings of the document, in order.
    pub(crate) figures: Vec<Figure>,
    /// Anchors of its headings.
    pub(crate) anchors: Vec<String>,
}

impl Document {
    /// Reads a Markdown file.
    pub(crate) fn of(text: &str) -> Self {
        let lines = TextLines::of(text);
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
        // A reference without a definition is a link to nothing; `[x]` alone is text.
        let mut lost = |link: pulldown_cmark::BrokenLink<'_>| {
            let is_link = matches!(link.link_type, LinkType::Reference | LinkType::Collapsed);
            is_link.then(|| (format!("[{}]", link.reference).into(), CowStr::Borrowed("")))
        };
        let parser = Parser::new_with_broken_link_callback(text, options, Some(&mut lost));
        let mut document = Self::default();
        let mut heading: Option<String> = None;
        let mut figure: Option<Figure> = None;
        let mut is_in_table = false;
        for (event, range) in parser.into_offset_iter() {
            let line = lines.at(range.start);
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    document.links.push(DocLink { line, dest: dest_url.into_string(), range });
                }
                Event::Start(Tag::Table(_)) => is_in_table = true,
                Event::End(TagEnd::Table) => is_in_table = false,
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    document.anchors.extend(heading.take().map(|words| anchor(&words)));
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    figure = FigureKind::of(&info).map(|(kind, title)| {
                        let (title, body) = (title.to_owned(), String::new());
                        Figure { kind, line, title, body, range }
                    });
                }
                Event::End(TagEnd::CodeBlock) => document.figures.extend(figure.take()),
                Event::Text(words) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&words);
                    }
                    if let Some(figure) = &mut figure {
                        figure.body.push_str(&words);
                    }
                }
                Event::Code(words) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&words);
                    }
                    document.codes.push(CodeBlock { line, text: words.into_string(), is_in_table });
                }
                _ => {}
            }
        }
        document.anchors = numbered(document.anchors);
        document
    }
}

/// Offsets at which the lines of a text begin.
struct TextLines(Vec<usize>);

impl TextLines {
    fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// Line of the byte at `at`, from 1.
    fn at(&self, at: usize) -> usize {
        self.0.partition_point(|end| *end < at) + 1
    }
}

/// Anchor of a heading: lower case, blanks as hyphens, no other signs.
fn anchor(words: &str) -> String {
    let kept = words.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    kept.collect::<String>().to_lowercase()
}

/// The second heading with the same words has `-1` behind its anchor, and so on.
fn numbered(anchors: Vec<String>) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let number = |anchor: String| {
        let count = seen.entry(anchor.clone()).or_default();
        *count += 1;
        if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
    };
    anchors.into_iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_anchors_spans_and_figures_have_their_places() {
        let text = "# A b: `c`\n\n## A b: c\n\nSee [x](y.md#z) and\n[lost][ref], [not].\n\n\
                    | `a.rs` |\n|---|\n| `b.rs` |\n\n```figure Two boxes\n+-+\n```\n\n```rust\n```\n";
        let document = Document::of(text);
        assert_eq!(document.anchors, ["a-b-c", "a-b-c-1"]);
        let links: Vec<_> = document.links.iter().map(|l| (l.line, l.dest.as_str())).collect();
        assert_eq!(links, [(5, "y.md#z"), (6, "[ref]")]);
        assert_eq!(&text[document.links[0].range.clone()], "[x](y.md#z)");
        let codes: Vec<_> =
            document.codes.iter().map(|c| (c.line, c.text.as_str(), c.is_in_table)).collect();
        assert_eq!(codes, [(1, "c", false), (8, "a.rs", true), (10, "b.rs", true)]);
        let [figure] = &document.figures[..] else { panic!("{document:?}") };
        assert_eq!((figure.line, figure.title.as_str()), (12, "Two boxes"));
        assert_eq!(figure.kind, FigureKind::Boxes);
        let plot = &Document::of("```plot A curve\nus\n```\n").figures[0];
        assert_eq!((plot.kind, plot.title.as_str()), (FigureKind::Plot, "A curve"));
        assert_eq!(figure.body, "+-+\n");
        assert_eq!(&text[figure.range.clone()], "```figure Two boxes\n+-+\n```");
    }
}

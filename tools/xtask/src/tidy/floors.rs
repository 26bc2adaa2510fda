//! Rules about which file imports which.
//!
//! *Owns*: the graph of a crate's files, from the paths that their code names. *Gives*: the circles
//! in it. A parent and its child may know each other: what a child takes from its parent counts as
//! no arrow. Rooms are a crate's modules at the top, each with its folder.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use super::{
    File,
    source::{is_for_tests, is_test},
};

/// Which file takes something from which.
type Graph = BTreeMap<String, BTreeSet<String>>;
/// Names that modules show of others: the path under which one shows it, and where it is.
type Exports = BTreeMap<Vec<String>, Vec<String>>;

/// Names that are shown by way of so many modules at most.
const EXPORTS_MAX: usize = 8;

/// No file, and no room, imports itself through others.
pub(super) fn circles(files: &[File]) -> Vec<String> {
    crates(files).iter().flat_map(|krate| circles_of(krate, files)).collect()
}

/// Folders with a `src/lib.rs` or `src/main.rs`.
fn crates(files: &[File]) -> BTreeSet<String> {
    let roots = files.iter().filter_map(|file| {
        let root = ["/src/lib.rs", "/src/main.rs"].iter().find_map(|r| file.path.strip_suffix(r));
        root.map(str::to_owned)
    });
    roots.collect()
}

fn circles_of(krate: &str, files: &[File]) -> Vec<String> {
    let source = format!("{krate}/src/");
    let modules: BTreeMap<Vec<String>, &File> = files
        .iter()
        .filter(|file| file.is_rust() && !is_test(&file.path))
        .filter_map(|file| Some((module(file.path.strip_prefix(&source)?), file)))
        .collect();
    let exports = modules.iter().flat_map(|(at, file)| exports_of(at, &file.text)).collect();
    let mut of_files = Graph::new();
    let mut of_rooms = Graph::new();
    for (from, file) in &modules {
        for to in taken(from, &file.text, (&modules, &exports)) {
            let is_own_parent = from.starts_with(&to);
            if !is_own_parent {
                of_files.entry(from.join("::")).or_default().insert(to.join("::"));
            }
            // The root declares the rooms and knows all of them.
            if let (Some(a), Some(b)) = (from.first(), to.first())
                && a != b
            {
                of_rooms.entry(a.clone()).or_default().insert(b.clone());
            }
        }
    }
    let named = |kind: &str, graph: &Graph| {
        let circles = strongly_connected(graph).into_iter();
        circles.map(|circle| named(krate, kind, &circle, graph)).collect::<Vec<_>>()
    };
    [named("files", &of_files), named("rooms", &of_rooms)].concat()
}

/// A circle, with who takes from whom in it.
fn named(krate: &str, kind: &str, circle: &[String], graph: &Graph) -> String {
    let arrows = circle.iter().map(|from| {
        let to: Vec<_> = circle.iter().filter(|to| graph[from].contains(*to)).cloned().collect();
        format!("{from} takes from {}", to.join(", "))
    });
    let arrows: Vec<_> = arrows.collect();
    format!("{krate}: {} {kind} in a circle: {}", circle.len(), arrows.join("; "))
}

/// Path of a module from the path of its file below `src/`; the root's is empty.
fn module(path: &str) -> Vec<String> {
    let path = path.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if matches!(path, "lib" | "main") {
        return Vec::new();
    }
    path.split('/').map(str::to_owned).collect()
}

/// The modules out of which the code of `from` names something.
fn taken(
    from: &[String],
    text: &str,
    (modules, exports): (&BTreeMap<Vec<String>, &File>, &Exports),
) -> BTreeSet<Vec<String>> {
    // A file that does not parse is the compiler's to refuse.
    let Ok(parsed) = syn::parse_file(text) else { return BTreeSet::new() };
    let mut names = Names { here: from.to_vec(), all: Vec::new() };
    names.visit_file(&parsed);
    let deepest = names.all.into_iter().filter_map(|path| {
        let path = resolved(path, exports);
        (1..=path.len()).rev().map(|len| path[..len].to_vec()).find(|p| modules.contains_key(p))
    });
    deepest.filter(|to| to != from).collect()
}

/// The path at which a name is, that a module may show of another one.
fn resolved(mut path: Vec<String>, exports: &Exports) -> Vec<String> {
    for _ in 0..EXPORTS_MAX {
        let shown = (1..=path.len()).find_map(|len| Some((len, exports.get(&path[..len])?)));
        let Some((len, to)) = shown else { break };
        path = [to, &path[len..]].concat();
    }
    path
}

/// What the module at `at` shows of others, by `pub use` of any reach.
fn exports_of(at: &[String], text: &str) -> Exports {
    let Ok(parsed) = syn::parse_file(text) else { return Exports::new() };
    let mut exports = Exports::new();
    for item in parsed.items {
        let syn::Item::Use(item) = item else { continue };
        if matches!(item.vis, syn::Visibility::Inherited) || item.attrs.iter().any(is_for_tests) {
            continue;
        }
        let mut names = Names { here: at.to_vec(), all: Vec::new() };
        names.add_tree(&[], &item.tree);
        for to in names.all {
            if let Some(name) = to.last() {
                exports.insert([at, std::slice::from_ref(name)].concat(), to.clone());
            }
        }
    }
    // A name that stands for itself leads nowhere.
    exports.retain(|shown, to| shown != to);
    exports
}

/// Paths of this crate that code names, from the root.
struct Names {
    here: Vec<String>,
    all: Vec<Vec<String>>,
}

impl Names {
    fn add(&mut self, path: &[String]) {
        let Some((first, rest)) = path.split_first() else { return };
        let mut whole = match first.as_str() {
            "crate" => Vec::new(),
            "super" => self.here[..self.here.len().saturating_sub(1)].to_vec(),
            "self" => self.here.clone(),
            // A child of this module, or another crate's name, which no module here has.
            name => [&self.here[..], &[name.to_owned()]].concat(),
        };
        for name in rest {
            if name == "super" {
                whole.pop();
            } else {
                whole.push(name.clone());
            }
        }
        self.all.push(whole);
    }

    fn add_tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.add(&with(&name.ident)),
            syn::UseTree::Rename(name) => self.add(&with(&name.ident)),
            syn::UseTree::Glob(_) => self.add(before),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_tree(before, tree));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            _ => return syn::visit::visit_item(self, item),
        };
        if !attributes.iter().any(is_for_tests) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if names.len() > 1 {
            self.add(&names);
        }
        syn::visit::visit_path(self, path);
    }
}

/// Groups of two and more that reach each other.
fn strongly_connected(graph: &Graph) -> Vec<Vec<String>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|from| (from.as_str(), reachable(graph, from))).collect();
    let mut circles = BTreeSet::new();
    for (from, there) in &reach {
        let back = there.iter().filter(|to| reach.get(*to).is_some_and(|all| all.contains(from)));
        let circle: Vec<String> = back.map(|name| (*name).to_owned()).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reachable<'g>(graph: &'g Graph, from: &str) -> BTreeSet<&'g str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(next) = open.pop() {
        for to in graph.get(next).into_iter().flatten() {
            if found.insert(to.as_str()) {
                open.push(to);
            }
        }
    }
    found
}

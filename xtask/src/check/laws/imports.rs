//! The law against import cycles between the folders of a crate. A reader of a folder needs to know only its imports.
//!
//! A folder is an entry directly below `src`: `x.rs` belongs to the folder `x`, and counts as a folder if there is no
//! `x`. A name that `lib.rs` re-exports belongs to the folder that it comes from. Tests may import anything.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use syn::visit::Visit;
use syn::{Attribute, ImplItemFn, Item, ItemFn, ItemImpl, ItemMod, ItemUse, Meta, UseTree};

/// Source folders of the crates that the law applies to.
pub(super) const CHECKED: [&str; 7] = [
    "api/src/",
    "controller/src/",
    "controller/core/src/",
    "cri-proto/src/",
    "daemon/src/",
    "daemon/core/src/",
    "kit/src/",
];

/// Imported folders of each folder, and the files with the import.
type Imports = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Import cycles of a crate. `sources`: each text by its path below `src`.
pub(super) fn circles(sources: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let imports = imports(sources)?;
    let mut breaches = Vec::new();
    let mut reported = BTreeSet::new();
    for folder in imports.keys() {
        let reached = reached(&imports, folder);
        let circle: Vec<_> =
            reached.iter().filter(|other| self::reached(&imports, other).contains(folder)).collect();
        if circle.len() < 2 || !reported.insert(circle.clone().into_iter().cloned().collect::<Vec<_>>()) {
            continue;
        }
        let mut ties = Vec::new();
        for from in &circle {
            for (to, files) in imports.get(*from).into_iter().flatten().filter(|(to, _)| circle.contains(to))
            {
                let files = files.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                ties.push(format!("  {from} -> {to}: {files}"));
            }
        }
        let names = circle.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
        breaches.push(format!("{names} import each other in a circle:\n{}", ties.join("\n")));
    }
    Ok(breaches)
}

/// All folders that a folder imports, directly or indirectly.
fn reached(imports: &Imports, folder: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![folder];
    while let Some(folder) = next.pop() {
        for to in imports.get(folder).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(to.clone()) {
                next.push(to);
            }
        }
    }
    reached
}

fn imports(sources: &BTreeMap<String, String>) -> Result<Imports> {
    let mut parsed = BTreeMap::new();
    for (file, text) in sources {
        let mut seen = Seen::default();
        let source = syn::parse_file(text).with_context(|| format!("{file} is not understood"))?;
        seen.visit_file(&source);
        parsed.insert(file, (seen, source));
    }
    let tests: BTreeSet<_> = parsed.iter().flat_map(|(file, (seen, _))| seen.tests_below(file)).collect();
    let folders: BTreeSet<_> = sources.keys().filter_map(|file| folder(file)).collect();
    let shown: BTreeMap<_, _> =
        parsed.get(&"lib.rs".to_owned()).map(|(_, root)| shown(&root.items)).unwrap_or_default();

    let mut imports = Imports::new();
    for (file, (seen, _)) in &parsed {
        let Some(from) = folder(file).filter(|_| !is_test(file, &tests)) else { continue };
        for name in &seen.names {
            let to = shown.get(name).unwrap_or(name);
            if to != from && folders.contains(to.as_str()) {
                let ties = imports.entry(from.to_owned()).or_default();
                ties.entry(to.clone()).or_default().insert((*file).clone());
            }
        }
    }
    Ok(imports)
}

/// The folder of a file. None for `lib.rs` and `main.rs`.
fn folder(file: &str) -> Option<&str> {
    let first = file.split('/').next().unwrap_or(file);
    let name = first.strip_suffix(".rs").unwrap_or(first);
    Some(name).filter(|_| !["lib.rs", "main.rs"].contains(&file))
}

/// Whether a file belongs to tests, by its name or because it lies below a test module.
fn is_test(file: &str, tests: &BTreeSet<String>) -> bool {
    let named = |part: &str| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs");
    file.split('/').any(named)
        || tests.iter().any(|test| {
            file.strip_prefix(test.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        })
}

/// Names that the root of a crate re-exports, each with its folder.
fn shown(items: &[Item]) -> BTreeMap<String, String> {
    let mut shown = BTreeMap::new();
    for item in items {
        if let Item::Use(ItemUse { tree: UseTree::Path(path), .. }) = item {
            leaves(&path.tree, &mut |name| drop(shown.insert(name, path.ident.to_string())));
        }
    }
    shown
}

/// Passes the last names of an import to `visit`.
fn leaves(tree: &UseTree, visit: &mut impl FnMut(String)) {
    match tree {
        UseTree::Path(path) => leaves(&path.tree, visit),
        UseTree::Name(name) => visit(name.ident.to_string()),
        UseTree::Rename(name) => visit(name.rename.to_string()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, visit)),
        UseTree::Glob(_) => {}
    }
}

/// Names of its own crate that a source uses outside tests.
#[derive(Default)]
struct Seen {
    /// Names after `crate::`.
    names: BTreeSet<String>,
    /// Test modules in files of their own.
    tests: BTreeSet<String>,
}

impl Seen {
    /// Paths of the test modules that a file declares, without the extension.
    fn tests_below(&self, file: &str) -> Vec<String> {
        let (folder, name) = file.rsplit_once('/').map_or(("", file), |(folder, name)| (folder, name));
        let own = name.strip_suffix(".rs").filter(|own| !["lib", "main", "mod"].contains(own));
        let parts =
            |test| [folder, own.unwrap_or_default(), test].into_iter().filter(|part: &&str| !part.is_empty());
        self.tests.iter().map(|test| parts(test.as_str()).collect::<Vec<_>>().join("/")).collect()
    }

    /// Adds the first names of an import from the crate.
    fn imported(&mut self, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => drop(self.names.insert(path.ident.to_string())),
            UseTree::Name(name) => drop(self.names.insert(name.ident.to_string())),
            UseTree::Rename(name) => drop(self.names.insert(name.ident.to_string())),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.imported(tree)),
            UseTree::Glob(_) => {}
        }
    }
}

impl<'ast> Visit<'ast> for Seen {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !tests(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        } else if item.content.is_none() {
            self.tests.insert(item.ident.to_string());
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if let UseTree::Path(path) = &item.tree
            && path.ident == "crate"
            && !tests(&item.attrs)
        {
            self.imported(&path.tree);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !tests(&item.attrs) {
            syn::visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if !tests(&item.attrs) {
            syn::visit::visit_item_impl(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !tests(&item.attrs) {
            syn::visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if let (Some(first), Some(name)) = (segments.next(), segments.next())
            && first.ident == "crate"
        {
            self.names.insert(name.ident.to_string());
        }
        syn::visit::visit_path(self, path);
    }
}

/// Whether the attributes include `cfg(test)`.
fn tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        list.path.is_ident("cfg") && list.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(sources: &[(&str, &str)]) -> Vec<String> {
        let sources = sources.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned()));
        circles(&sources.collect()).unwrap()
    }

    #[test]
    fn a_circle_is_told_with_the_files_that_tie_it() {
        let sources = [
            ("a/mod.rs", "use crate::{b::X, c};"),
            ("a/deep/er.rs", "use std::fmt;\npub(crate) use crate::b as d;"),
            ("b.rs", "mod x;"),
            ("b/x.rs", "fn f() -> crate::c::C { crate::c::new() }"),
            ("c.rs", "impl X { fn f() { use crate::a; } }"),
            ("d.rs", "use crate::a::A;"),
            ("main.rs", "use crate::d;"),
        ];
        assert_eq!(
            circles_of(&sources),
            [
                "a, b, c import each other in a circle:\n  a -> b: a/deep/er.rs, a/mod.rs\n  a -> c: a/mod.rs\n  b -> c: b/x.rs\n  c -> a: c.rs"
            ]
        );
    }

    #[test]
    fn two_circles_are_two() {
        let sources = [
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::a;"),
            ("c.rs", "use crate::d; use crate::b;"),
            ("d.rs", "use crate::c;"),
        ];
        assert_eq!(circles_of(&sources).len(), 2);
    }

    #[test]
    fn what_the_root_shows_belongs_to_its_folder() {
        let sources = [
            ("lib.rs", "pub use a::{A, sub::B as C};\nuse elsewhere::D;"),
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::{C, D, b};"),
        ];
        assert_eq!(circles_of(&sources).len(), 1);
    }

    #[test]
    fn tests_and_folders_below_one_another_are_free() {
        let sources = [
            ("lib.rs", "#[cfg(test)]\nmod fake;"),
            ("a.rs", "use crate::b;\n#[cfg(test)]\nmod unit { use crate::d; }\n#[cfg(test)]\nmod more;"),
            ("a/more.rs", "use crate::d;"),
            ("b.rs", "#[cfg(test)]\nuse crate::a;\n#[cfg(test)]\nimpl B { fn f() { crate::a::new() } }"),
            ("b_tests.rs", "use crate::a;"),
            ("b/tests/x.rs", "use crate::a;"),
            ("d.rs", "use crate::{a, d::x};"),
            ("fake.rs", "use crate::a;"),
            ("a/x.rs", "use crate::a::y; // crate::d"),
            ("a/y.rs", "use crate::a::x;"),
        ];
        assert_eq!(circles_of(&sources), [""; 0]);
    }
}

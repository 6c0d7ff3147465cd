//! `docs/design/kruise-defects.md`: every defect has a row, and every test in a row exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use pitstop_manifests_test::root;

const PAGE: &str = "docs/design/kruise-defects.md";

/// A row: the defect's ID, and pairs of a file's name and a test.
struct Row {
    id: String,
    tests: Vec<(String, String)>,
}

/// The cells of a table row; `None` for other lines.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix("| ")?.strip_suffix(" |")?;
    Some(inner.split(" | ").collect())
}

/// Parses the last cell: files in brackets, each followed by a colon and its tests.
fn tests(cell: &str) -> Vec<(String, String)> {
    let of = |group: &str| {
        let file = group.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        let (file, names) = file.unwrap_or_else(|| panic!("no file: {group}"));
        let names = names.split(", ").map(|name| name.trim_matches('`').to_owned());
        names.map(|name| (file.to_owned(), name)).collect::<Vec<_>>()
    };
    cell.split("; ").flat_map(of).collect()
}

fn rows(page: &str) -> Vec<Row> {
    let of = |line| {
        let cells = cells(line).filter(|cells| cells[0] != "id")?;
        let [id, elsewhere, here, names] = cells[..] else { panic!("not four cells: {line}") };
        assert!(!elsewhere.is_empty() && !here.is_empty(), "{line}");
        Some(Row { id: id.to_owned(), tests: tests(names) })
    };
    page.lines().filter_map(of).collect()
}

/// Parses the lines `[name]: ../../path` at the end of the page.
fn files(page: &str) -> BTreeMap<String, PathBuf> {
    let of = |line: &str| {
        let (name, path) = line.strip_prefix('[')?.split_once("]: ../../")?;
        Some((name.to_owned(), root().join(path)))
    };
    page.lines().filter_map(of).collect()
}

/// The names of the functions under `#[test]` or `#[tokio::test]` in a source file.
fn functions(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if !line.starts_with("#[") && std::mem::take(&mut is_test) {
            let function =
                line.trim_start_matches("async ").strip_prefix("fn ").unwrap_or_else(|| panic!("{line}"));
            found.extend(function.split('(').next().map(str::to_owned));
        }
    }
    found
}

#[test]
fn every_defect_has_one_row() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let found: Vec<String> = rows(&page).into_iter().map(|row| row.id).collect();
    let wanted: Vec<String> =
        (1..=7).map(|n| format!("K{n}")).chain((1..=30).map(|n| format!("D{n}"))).collect();
    assert_eq!(found, wanted);
}

#[test]
fn every_test_that_is_named_exists_where_it_is_said_to_be() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let files = files(&page);
    let functions: BTreeMap<&String, BTreeSet<String>> =
        files.iter().map(|(name, path)| (name, functions(&fs::read_to_string(path).unwrap()))).collect();
    let named: Vec<(String, String, String)> = rows(&page)
        .into_iter()
        .flat_map(|row| row.tests.into_iter().map(move |(file, test)| (row.id.clone(), file, test)))
        .collect();
    let missing: Vec<_> = named
        .iter()
        .filter(|(_, file, test)| functions.get(file).is_none_or(|all| !all.contains(test)))
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
    let used: BTreeSet<&String> = named.iter().map(|(_, file, _)| file).collect();
    assert_eq!(used, files.keys().collect(), "files that no row names");
}

#[test]
fn the_readme_says_how_many_are_open() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let open = page.lines().filter(|line| line.starts_with("| ") && line.contains("**Open:**")).count();
    let all = rows(&page).len();
    let (closed, open) = (format!("{} are closed", all - open), format!("{open} are open"));
    assert!(readme.contains(&format!("Of the {all} ")), "{all}");
    assert!(readme.contains(&closed) && readme.contains(&open), "{closed}, {open}");
}

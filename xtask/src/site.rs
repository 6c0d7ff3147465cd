//! `cargo xtask docs`: builds the pages as a website under `target/docs` with mdBook. The table of contents is from
//! `docs/README.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::progress::Step;
use crate::sh::Cmd;
use crate::tools::Tool;
use crate::workspace::shown;

const MDBOOK: Tool = Tool { name: "mdbook", version: "0.5.4", args: &["--version"] };
/// Pages, and files that they link to, as `git ls-files` takes them.
const SOURCES: [&str; 4] = ["*.md", "docs", "LICENSE", ":!.github"];
/// The page with the table of contents.
const CONTENTS: &str = "docs/README.md";
const BOOK: &str = "[book]\ntitle = \"pitstop\"\nsrc = \"src\"\n\n[build]\nbuild-dir = \"book\"\n\n\
                    [output.html]\nno-section-label = true\n\n[output.html.fold]\nenable = true\n\n\
                    [output.html.print]\nenable = false\n";

/// The command. The last line is the page to open.
pub(crate) fn build(root: &Path) -> Result<()> {
    let tool = MDBOOK.installed(root)?;
    let step = Step::begin("building the website");
    let folder = root.join("target/docs");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let listed = Cmd::new("git").args(["ls-files", "--cached", "--others", "--exclude-standard", "--"]);
    let listed = listed.args(SOURCES).dir(root).read()?;
    let files: BTreeSet<&str> = listed.lines().collect();
    let sources = folder.join("src");
    for file in &files {
        copy(root, &sources, file)?;
    }
    let contents =
        fs::read_to_string(root.join(CONTENTS)).with_context(|| format!("cannot read {CONTENTS}"))?;
    let pages = files.iter().filter(|file| is_page(file)).map(|file| (*file).to_owned()).collect();
    let title = |page: &str| Ok(title(&fs::read_to_string(root.join(page))?, page));
    write(&sources.join("SUMMARY.md"), summary(&contents, pages, title)?.as_bytes())?;
    write(&folder.join("book.toml"), BOOK.as_bytes())?;
    Cmd::new(tool).arg("build").arg(&folder).run_quiet()?;
    let book = folder.join("book");
    check(root, &book)?;
    step.done();
    println!("{}", shown(root, &book.join("index.html")));
    Ok(())
}

/// Copies a file. mdBook makes `index.html` of `README.md`, but does not change links to it.
fn copy(root: &Path, sources: &Path, file: &str) -> Result<()> {
    let content = fs::read(root.join(file)).with_context(|| format!("cannot read {file}"))?;
    match String::from_utf8(content) {
        Ok(text) if is_page(file) => write(&sources.join(renamed(file)), relinked(&text).as_bytes()),
        Ok(text) => write(&sources.join(file), text.as_bytes()),
        Err(other) => write(&sources.join(file), other.as_bytes()),
    }
}

fn is_page(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "md")
}

/// Changes links to `README.md` to the new name, except those to other sites.
fn relinked(text: &str) -> String {
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (target, rest) = part.split_at(part.find([')', '#', ' ']).unwrap_or(part.len()));
        let target = if target.contains("://") { target.to_owned() } else { renamed(target) };
        text + "](" + &target + rest
    })
}

fn renamed(page: &str) -> String {
    page.strip_suffix("README.md").map_or_else(|| page.to_owned(), |folder| format!("{folder}index.md"))
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    let folder = path.parent().context("a file in no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// mdBook's table of contents: each link of `contents`, below the last line before it that ends in a colon. Pages
/// without a link come at the end.
fn summary(
    contents: &str,
    pages: BTreeSet<String>,
    title: impl Fn(&str) -> Result<String>,
) -> Result<String> {
    let mut text = format!("[pitstop](index.md)\n[All pages]({})\n", renamed(CONTENTS));
    let mut left = pages;
    left.remove("README.md");
    left.remove(CONTENTS);
    for line in contents.lines() {
        if let Some(part) = line.strip_suffix(':').filter(|line| !line.starts_with([' ', '-'])) {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n# {part}\n\n");
        }
        for (name, target) in links(line) {
            let page = joined("docs", target);
            if left.remove(&page) {
                let _ = writeln!(text, "- [{name}]({})", renamed(&page));
            }
        }
    }
    text.push_str("\n# More\n\n");
    for page in &left {
        let _ = writeln!(text, "- [{}]({})", title(page)?, renamed(page));
    }
    Ok(text)
}

/// Texts and targets of the links to pages in a line.
fn links(line: &str) -> Vec<(&str, &str)> {
    line.match_indices("](")
        .filter_map(|(at, _)| {
            let (before, rest) = (line.get(..at)?, line.get(at + 2..)?);
            let (_, name) = before.rsplit_once('[')?;
            Some((name, rest.split_once(')')?.0))
        })
        .collect()
}

/// A link of a page in that folder, as a path from the root.
fn joined(folder: &str, target: &str) -> String {
    let mut path = PathBuf::new();
    for part in Path::new(folder).join(target).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            other => path.push(other),
        }
    }
    path.display().to_string()
}

fn title(text: &str, page: &str) -> String {
    text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(page).to_owned()
}

/// Fails unless every link and picture of the website leads to an existing place in it, or to the web. Copies linked
/// sources from the checkout.
fn check(root: &Path, book: &Path) -> Result<()> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![book.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                let text =
                    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                pages.insert(path, text);
            }
        }
    }
    let mut broken = Vec::new();
    for (path, text) in &pages {
        for target in targets(text) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let from = path.parent().unwrap_or(book);
            let led = if file.is_empty() {
                path.clone()
            } else {
                PathBuf::from(joined(&from.display().to_string(), file))
            };
            let source = root.join(led.strip_prefix(book).unwrap_or(&led));
            if !led.exists() && source.is_file() {
                let content =
                    fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?;
                write(&led, &content)?;
            }
            let is_there = led.exists()
                && (anchor.is_empty()
                    || pages.get(&led).is_none_or(|text| text.contains(&format!("id=\"{anchor}\""))));
            if !is_there {
                broken.push(format!("{}: {target}", shown(book, path)));
            }
        }
    }
    if broken.is_empty() { Ok(()) } else { bail!("links that lead nowhere:\n{}", broken.join("\n")) }
}

/// Targets of a page's links and pictures on its own site.
fn targets(html: &str) -> impl Iterator<Item = &str> {
    ["href=\"", "src=\""]
        .into_iter()
        .flat_map(|attribute| html.split(attribute).skip(1))
        .filter_map(|rest| rest.split('"').next())
        .filter(|target| !target.is_empty() && !target.contains(':') && !target.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contents_are_those_of_the_page_and_then_the_rest() {
        let contents = "# Documentation\n\nStart here:\n\n- [Install](install.md): images\n\
                        - Fields: [A](reference/a.md),\n  [Security](../SECURITY.md), again [A](reference/a.md)\n";
        let pages = [
            "README.md",
            CONTENTS,
            "docs/install.md",
            "docs/reference/a.md",
            "SECURITY.md",
            "docs/adr/0001.md",
            "tests/cluster/README.md",
        ];
        let pages = pages.map(str::to_owned).into();
        let expected = "[pitstop](index.md)\n[All pages](docs/index.md)\n\n# Start here\n\n- [Install](docs/install.md)\n- [A](docs/reference/a.md)\n\
                        - [Security](SECURITY.md)\n\n# More\n\n- [1](docs/adr/0001.md)\n\
                        - [1](tests/cluster/index.md)\n";
        assert_eq!(summary(contents, pages, |_| Ok("1".to_owned())).unwrap(), expected);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_named() {
        let (root, book) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let check = |book: &Path| check(root.path(), book);
        let page = |links: &str| fs::write(book.path().join("index.html"), links).unwrap();
        page(
            r##"<h2 id="x"><a href="index.html#x">a</a> <a href="#x">b</a> <a href="https://example.com/c">c</a>"##,
        );
        check(book.path()).unwrap();
        for wrong in ["install.html", "#y", "index.html#y"] {
            page(&format!(r#"<h2 id="x"><a href="{wrong}">a</a>"#));
            let error = check(book.path()).unwrap_err().to_string();
            assert_eq!(error, format!("links that lead nowhere:\nindex.html: {wrong}"));
        }
        page(r#"<img src="a.svg"> <a href="b/c.rs">c</a>"#);
        let error = check(book.path()).unwrap_err().to_string();
        assert_eq!(error, "links that lead nowhere:\nindex.html: b/c.rs\nindex.html: a.svg");
        fs::create_dir(root.path().join("b")).unwrap();
        for source in ["a.svg", "b/c.rs"] {
            fs::write(root.path().join(source), "").unwrap();
        }
        check(book.path()).unwrap();
        assert!(book.path().join("b/c.rs").is_file());
    }

    #[test]
    fn links_to_pages_that_get_another_name_follow_them() {
        let text = "[a](README.md) [b](x/README.md#c) [d](https://e/README.md) `README.md)`";
        assert_eq!(relinked(text), "[a](index.md) [b](x/index.md#c) [d](https://e/README.md) `README.md)`");
    }
}

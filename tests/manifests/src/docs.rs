//! The pages of the documentation, and their blocks of commands, YAML and other code.
//!
//! The comment `<!-- run: NAME -->` on the line before a block of commands marks it. The tests on the real cluster run
//! marked blocks from the page's text. `NOT_RUN` in `tests/deploy/docs.rs` has the others.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::root;

/// A fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The text after the opening fence.
    pub language: String,
    /// The name in the comment before the block; `None` without a mark.
    pub mark: Option<String>,
    /// The content, without the indentation of the fence.
    pub text: String,
    /// The number of its first line in the page.
    pub line: usize,
}

/// The pages at the top and every page under `docs/`, in order.
pub fn pages() -> Result<Vec<PathBuf>> {
    let mut pages = ["README.md", "SECURITY.md"].map(|name| root().join(name)).to_vec();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// The blocks of a page.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut last = "";
    let mut open: Option<(usize, Block)> = None;
    for (at, line) in page.lines().enumerate() {
        let trimmed = line.trim();
        match &mut open {
            None => {
                if let Some(language) = trimmed.strip_prefix("```") {
                    let mark = last.strip_prefix("<!-- run: ").and_then(|rest| rest.strip_suffix(" -->"));
                    let (language, mark) = (language.to_owned(), mark.map(str::to_owned));
                    let indent = line.len() - line.trim_start().len();
                    open = Some((indent, Block { language, mark, text: String::new(), line: at + 2 }));
                }
            }
            Some(_) if trimmed == "```" => found.extend(open.take().map(|(_, block)| block)),
            Some((indent, block)) => {
                block.text.push_str(line.get(*indent..).unwrap_or(line.trim_start()));
                block.text.push('\n');
            }
        }
        if !trimmed.is_empty() {
            last = trimmed;
        }
    }
    found
}

/// The blocks of all pages with that mark, each text once.
pub fn marked(mark: &str) -> Result<Vec<Block>> {
    let mut found: Vec<Block> = Vec::new();
    for page in pages()? {
        for block in blocks(&read(&page)?) {
            if block.mark.as_deref() == Some(mark) && found.iter().all(|other| other.text != block.text) {
                found.push(block);
            }
        }
    }
    Ok(found)
}

/// The text of a page.
pub fn read(page: &Path) -> Result<String> {
    fs::read_to_string(page).with_context(|| page.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_the_block_that_follows_it() {
        let page = "# T\n\n<!-- run: install -->\n```sh\na\n  b\n```\n\n1. x:\n\n   <!-- run: else -->\n   ```sh\n   c\n\n   \
                    d\n   ```\n\nText.\n\n```yaml\ne: 1\n```\n";
        let block = |language: &str, mark: Option<&str>, text: &str, line| Block {
            language: language.to_owned(),
            mark: mark.map(str::to_owned),
            text: text.to_owned(),
            line,
        };
        assert_eq!(
            blocks(page),
            [
                block("sh", Some("install"), "a\n  b\n", 5),
                block("sh", Some("else"), "c\n\nd\n", 13),
                block("yaml", None, "e: 1\n", 21),
            ]
        );
    }
}

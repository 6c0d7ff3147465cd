//! The planted bugs, as `tests/sim/planted/*.toml` describe them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::workspace::shown;

/// Folder of their descriptions.
const FOLDER: &str = "tests/sim/planted";

/// Invariants (I) and progress promises (L) of the design's list, with their number.
const LAWS: [(&str, u32); 2] = [("I", 16), ("L", 7)];
/// Prefix of a rule of the design without a number.
const RULE: &str = "design: ";

/// A file: the bugs of one area.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Area {
    bug: Vec<Bug>,
}

/// A mistake that a programmer may make.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bug {
    /// Its name.
    pub(super) id: String,
    /// What goes wrong.
    pub(super) title: String,
    /// Source of the idea.
    pub(super) origin: String,
    /// What a schedule must contain to show the bug.
    pub(super) shows: String,
    /// The laws that it breaks.
    pub(super) violates: Vec<String>,
    /// Changes that make the bug.
    pub(super) edit: Vec<Edit>,
}

/// One change of the sources.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    /// The source, from the root of the checkout.
    pub(super) file: String,
    /// Text that occurs there once.
    pub(super) find: String,
    /// Text that replaces it.
    pub(super) replace: String,
}

/// All bugs, in the order of the files and within them.
pub(super) fn load(root: &Path) -> Result<Vec<Bug>> {
    let folder = root.join(FOLDER);
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        files.push(entry.with_context(|| format!("cannot read {}", folder.display()))?.path());
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let mut bugs = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let area: Area =
            toml::from_str(&text).with_context(|| format!("{} cannot be read", shown(root, &path)))?;
        bugs.extend(area.bug);
    }
    check(&bugs)?;
    Ok(bugs)
}

/// Checks the descriptions, without the sources.
fn check(bugs: &[Bug]) -> Result<()> {
    let mut names = BTreeSet::new();
    for bug in bugs {
        let id = &bug.id;
        if id.is_empty() || !id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
            bail!("a planted bug's id is made of small letters, digits and dashes, not {id:?}");
        }
        if !names.insert(id) {
            bail!("two planted bugs are called {id}");
        }
        if [&bug.title, &bug.origin, &bug.shows].into_iter().any(|text| text.trim().is_empty()) {
            bail!("planted bug {id}: title, origin and shows must say something");
        }
        if bug.violates.is_empty() || bug.edit.is_empty() {
            bail!("planted bug {id} must violate a law and edit a source");
        }
        if bug.edit.iter().any(|edit| edit.find == edit.replace) {
            bail!("planted bug {id}: an edit must change something");
        }
        if let Some(law) = bug.violates.iter().find(|law| !is_law(law)) {
            bail!(
                "planted bug {id}: {law} is no law; there are I1 to I16, L1 to L7, and `{RULE}` with a rule"
            );
        }
    }
    Ok(())
}

fn is_law(text: &str) -> bool {
    let numbered = |(letter, count): (&str, u32)| {
        let number = text.strip_prefix(letter).and_then(|number| number.parse().ok());
        number.is_some_and(|number: u32| (1..=count).contains(&number))
    };
    LAWS.into_iter().any(numbered) || text.strip_prefix(RULE).is_some_and(|rule| !rule.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bug(id: &str) -> Bug {
        Bug {
            id: id.into(),
            title: "t".into(),
            origin: "own".into(),
            shows: "s".into(),
            violates: vec!["I1".into()],
            edit: vec![Edit { replace: "r".into(), ..Edit::default() }],
        }
    }

    #[test]
    fn a_bug_is_described_in_full_and_once() {
        assert!(check(&[bug("a-1"), bug("b")]).is_ok());
        for wrong in [
            vec![bug("a"), bug("a")],
            vec![bug("A")],
            vec![bug("")],
            vec![Bug { title: " ".into(), ..bug("a") }],
            vec![Bug { violates: vec!["I17".into()], ..bug("a") }],
            vec![Bug { edit: Vec::new(), ..bug("a") }],
            vec![Bug { edit: vec![Edit::default()], ..bug("a") }],
        ] {
            assert!(check(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn laws_have_numbers_or_words() {
        for law in ["I1", "I16", "L7", "design: orders of one Pod one after another"] {
            assert!(is_law(law), "{law}");
        }
        for wrong in ["", "I", "I0", "I17", "L8", "P2", "design: ", "one after another"] {
            assert!(!is_law(wrong), "{wrong}");
        }
    }

    #[test]
    fn there_are_as_many_as_the_simulator_must_find() {
        assert!(load(&crate::workspace::root().unwrap()).unwrap().len() >= 48);
    }
}

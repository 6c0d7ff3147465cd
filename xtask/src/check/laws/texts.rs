//! The law against Rust's debug output in messages and log lines. Production sources format nothing with `{:?}`. At
//! the edge, where libraries return errors, only `pitstop_kit::describe` shows an error: the messages of some
//! libraries contain debug output.

use std::path::Path;

/// Production sources.
const PRODUCTION: [&str; 7] = [
    "api/src/",
    "controller/core/src/",
    "controller/src/",
    "cri-proto/src/",
    "daemon/core/src/",
    "daemon/src/",
    "kit/src/",
];
/// Production sources with errors of libraries.
const EDGE: [&str; 3] = ["controller/src/", "daemon/src/", "kit/src/"];
/// Exceptions: generated code that is never shown, the only file that shows an error's own message, a test server.
const EXEMPT: [&str; 3] =
    ["cri-proto/src/gen/runtime.v1.rs", "kit/src/describe.rs", "controller/src/certs/fake_api.rs"];
/// Variable names of errors.
const ERRORS: [&str; 3] = ["error", "err", "e"];

/// Whether the law applies to a source, named from the root of the checkout.
pub(super) fn is_bound(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    let test = name == "tests.rs" || name.ends_with("_tests.rs") || file.contains("/tests/");
    !test
        && Path::new(file).extension().is_some_and(|extension| extension == "rs")
        && !EXEMPT.contains(&file)
        && PRODUCTION.iter().any(|folder| file.starts_with(folder))
}

/// Breaches in a source.
pub(super) fn breaches(file: &str, text: &str) -> Vec<String> {
    let edge = EDGE.iter().any(|folder| file.starts_with(folder));
    let mut breaches = Vec::new();
    for (line, code) in code(text) {
        let mut report = |what: &str| breaches.push(format!("{file}:{line}: {what}"));
        if is_debug(code) {
            report("debug output in a text; write words, or use `quoted` or `shown`");
        }
        if edge && ERRORS.iter().any(|name| is_shown(code, name)) {
            report("an error in its own words, which may hold debug output; use `describe`");
        }
    }
    breaches
}

/// The numbered lines of a source, without comments and test modules.
fn code(text: &str) -> Vec<(usize, &str)> {
    let mut code = Vec::new();
    let (mut attributed, mut inside) = (false, false);
    for (at, line) in (1..).zip(text.lines()) {
        if inside {
            inside = line != "}";
            continue;
        }
        inside = attributed && line.contains("mod ") && line.ends_with('{');
        attributed = line == "#[cfg(test)]" || attributed && line.starts_with("#[");
        if !inside && !line.trim_start().starts_with("//") {
            code.push((at, line));
        }
    }
    code
}

/// `{x:?}` in a format string, or `?x` among the fields of a log line.
fn is_debug(code: &str) -> bool {
    let formats = code.match_indices("?}").any(|(at, _)| {
        let before = code.get(..at).unwrap_or_default();
        let inner = before.rsplit('{').next().unwrap_or_default();
        inner.len() < before.len() && inner.contains(':') && !inner.contains([' ', '(', '}'])
    });
    let fields = code.match_indices('?').any(|(at, _)| {
        let (before, after) = (code.get(..at).unwrap_or_default(), code.get(at..).unwrap_or_default());
        let begins = before.trim_end().is_empty() || before.trim_end().ends_with(['(', ',', '=']);
        begins && after.chars().nth(1).is_some_and(|c| c.is_ascii_lowercase() || c == '_' || c == '&')
    });
    formats || fields || code.contains("field::debug(")
}

/// `%x` among the fields of a log line, `{x}` in a format string, or `x.to_string()`.
fn is_shown(code: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    code.match_indices(name).any(|(at, _)| {
        let before = code.get(..at).and_then(|before| before.chars().next_back()).unwrap_or(' ');
        let after = code.get(at.saturating_add(name.len())..).unwrap_or_default();
        let next = after.chars().next().unwrap_or(' ');
        match before {
            '%' => !is_word(next) && next != '.',
            '{' => next == '}' || next == ':',
            c => !is_word(c) && c != '.' && after.starts_with(".to_string()"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_is_found() {
        for wrong in [
            r#"format!("image {image:?}")"#,
            r#"format!("{:?}", image)"#,
            r#"format!("{0:#?} and {1}", a, b)"#,
            r#"#[error("{code:?}")]"#,
            r#"debug!(?facts, "asked")"#,
            r#"info!(order_id, state = ?answer.state, "answers");"#,
            "            ?deed,",
            r#"info!(x = tracing::field::debug(&x), "y")"#,
        ] {
            assert_eq!(breaches("api/src/a.rs", wrong).len(), 1, "{wrong}");
        }
        for right in [
            "let Some(x) = self.x? else { return None };",
            "fn f<T: ?Sized>(t: &T) {}",
            "let y = x?.y;",
            r#"debug!(state = shown(&answer.state), "answers")"#,
            r#"format!("is it {what}?")"#,
            "// not {x:?}",
            r#"format!("{a:>8}{}", b()?)"#,
        ] {
            assert_eq!(breaches("api/src/a.rs", right), [""; 0], "{right}");
        }
    }

    #[test]
    fn an_error_in_its_own_words_is_found_at_the_edge() {
        for wrong in [
            r#"warn!(%error, "cannot")"#,
            r#"warn!(why = %err, "cannot")"#,
            r#"format!("cannot: {error}")"#,
            r#"format!("cannot: {error:#}")"#,
            ".map_err(|e| e.to_string())",
        ] {
            assert_eq!(breaches("kit/src/a.rs", wrong).len(), 1, "{wrong}");
            assert_eq!(breaches("daemon/core/src/a.rs", wrong), [""; 0], "{wrong}");
        }
        for right in [
            r#"warn!(error = describe(&error), "cannot")"#,
            r#"format!("{errors}: {terror}")"#,
            "name.to_string()",
            "failure.error.message.to_string()",
        ] {
            assert_eq!(breaches("kit/src/a.rs", right), [""; 0], "{right}");
        }
    }

    #[test]
    fn tests_may_show_what_they_like() {
        let text = "fn a() {}\n#[cfg(test)]\n#[allow(dead_code)]\nmod tests {\n    dbg(\"{x:?}\");\n}\nfn b() {\n    c(\"{y:?}\");\n}\n";
        let found = breaches("api/src/a.rs", text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("api/src/a.rs:8: "), "{found:?}");
        let text = "#[cfg(test)]\nmod tests;\nfn b() {\n    c(\"{y:?}\");\n}\n";
        assert_eq!(breaches("api/src/a.rs", text).len(), 1);
        for (file, bound) in [
            ("kit/src/watch.rs", true),
            ("kit/src/watch_tests.rs", false),
            ("controller/core/src/index/tests/kept.rs", false),
            ("daemon/core/src/tests.rs", false),
            ("xtask/src/main.rs", false),
            ("api/src/a.json", false),
        ] {
            assert_eq!(is_bound(file), bound, "{file}");
        }
    }
}

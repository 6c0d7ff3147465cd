//! Quotes texts from outside in messages.

/// The text between double quotes, with quotes, backslashes and control characters escaped. So a reader sees where it
/// begins and ends, and it cannot break its line.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.extend(c.escape_default()),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_line_and_its_letters() {
        assert_eq!(quoted(""), r#""""#);
        assert_eq!(quoted("größer x1.5"), r#""größer x1.5""#);
        assert_eq!(quoted("a\"b\\\n\u{1b}[0m"), r#""a\"b\\\n\u{1b}[0m""#);
    }
}

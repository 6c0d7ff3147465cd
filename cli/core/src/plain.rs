//! Makes texts from the API safe for a terminal.

/// Most characters of a text from the API that are shown in one line.
pub const MOST: usize = 1024;

/// The text in one line of at most `most` characters, and `...` if it is longer. Escapes control characters, which a
/// terminal obeys, and characters that change the direction of writing, which deceive its reader.
pub fn line(text: &str, most: usize) -> String {
    shown(text, most, |_| false)
}

/// The text with its own lines, of at most 16 times [`MOST`] characters; for refusals, which others write for users.
pub fn lines(text: &str) -> String {
    shown(text, MOST.saturating_mul(16), |c| c == '\n')
}

/// JSON, or YAML whose texts are quoted if they are not plain. Characters that mislead are written as `\uXXXX`, which
/// both formats read as the same.
pub fn structured(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if misleads(c) && c != '\n' {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                shown.push_str("\\u");
                shown.extend([12, 8, 4, 0].map(|shift| hex(*unit >> shift)));
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The last four bits as a digit.
fn hex(bits: u16) -> char {
    char::from_digit(u32::from(bits & 15), 16).unwrap_or('0')
}

fn shown(text: &str, most: usize, keeps: impl Fn(char) -> bool) -> String {
    let mut shown = String::new();
    let mut left = most;
    for c in text.chars() {
        if left == 0 {
            shown.push_str("...");
            break;
        }
        if misleads(c) && !keeps(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        left = left.saturating_sub(1);
    }
    shown
}

/// The character controls the terminal, or changes the order of the text.
fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_from_outside_moves_the_cursor_or_turns_the_writing() {
        assert_eq!(line("größer: 10 µs, 日本", MOST), "größer: 10 µs, 日本");
        assert_eq!(line("a\u{1b}[2Jb\r\nc\td\u{9b}e", MOST), "a\\u{1b}[2Jb\\r\\nc\\td\\u{9b}e");
        assert_eq!(line("web\u{202e}gnp\u{200b}", MOST), "web\\u{202e}gnp\\u{200b}");
        assert_eq!(lines("one\ntwo\u{7}"), "one\ntwo\\u{7}");
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(line("ääää", 3), "äää...");
        assert_eq!(line("äää", 3), "äää");
        assert_eq!(lines(&"x".repeat(20_000)).len(), 1024 * 16 + 3);
    }
}

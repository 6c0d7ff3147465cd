//! Text in lines, and rows in columns, for a terminal of a width.

use unicode_width::UnicodeWidthStr as _;

use crate::draw::cut;

/// The text in lines of at most `width` columns, folded at blanks; in one line where no width is given. A word that is longer stays
/// whole: it may be a name that somebody copies.
pub fn wrapped(text: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else { return vec![text.to_owned()] };
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        if let Some(line) = lines.last_mut() {
            if line.is_empty() {
                line.push_str(word);
                continue;
            }
            if line.width() + 1 + word.width() <= width {
                line.push(' ');
                line.push_str(word);
                continue;
            }
        }
        lines.push(word.to_owned());
    }
    lines
}

/// Rows below their headings. The last column takes what is left of the width, and what has no room is cut; without a width,
/// nothing is. Every row must have a cell for each heading.
pub fn table(headings: &[&str], rows: &[Vec<String>], width: Option<usize>) -> Vec<String> {
    let headings: Vec<String> = headings.iter().map(|it| (*it).to_owned()).collect();
    let all = || std::iter::once(&headings).chain(rows);
    let widths: Vec<usize> = (0..headings.len())
        .map(|column| all().filter_map(|row| Some(row.get(column)?.width())).max().unwrap_or_default())
        .collect();
    let last = headings.len().saturating_sub(1);
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line.push_str(cell);
            if column < last {
                let gap = width.saturating_sub(cell.width()) + 3;
                line.push_str(&" ".repeat(gap));
            }
        }
        cut(line.trim_end(), width.unwrap_or(usize::MAX))
    };
    all().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_folded_at_blanks_and_long_words_stay_whole() {
        assert_eq!(wrapped("one two three", Some(7)), ["one two", "three"]);
        assert_eq!(wrapped("a-long-name b", Some(4)), ["a-long-name", "b"]);
        assert_eq!(wrapped("one two", None), ["one two"]);
        assert_eq!(wrapped("", Some(4)), [""]);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [vec!["web".to_owned(), "a long message".to_owned()], vec!["日本".to_owned(), String::new()]];
        assert_eq!(table(&["POD", "TEXT"], &rows, None), ["POD    TEXT", "web    a long message", "日本"]);
        assert_eq!(table(&["POD", "TEXT"], &rows, Some(12)), ["POD    TEXT", "web    a lo~", "日本"]);
    }
}

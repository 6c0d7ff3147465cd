//! `cargo xtask recording`: draws the frames of `kubectl pitstop status --watch --frames FILE` as an animated SVG.
//!
//! The SVG has a style of its own, so that it moves when pages show it as an image, without further downloads. The
//! frames lie side by side in a strip, which jumps from one to the next at the times of the recording.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What `kubectl pitstop status --watch --frames` has written.
    frames: PathBuf,
    /// The SVG to write.
    picture: PathBuf,
}

/// One frame, with the fields that the picture needs.
#[derive(Debug, Deserialize)]
struct Frame {
    /// Milliseconds since the first one.
    at: u64,
    /// What the terminal shows.
    lines: Vec<String>,
}

/// How long the last frame stays, in milliseconds.
const LAST: u64 = 4_000;
/// A character's width and a line's height, in pixels.
const CELL: (usize, usize) = (8, 18);
/// Border around the text, in pixels.
const BORDER: usize = 14;

/// The command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let frames = read(&args.frames)?;
    fs::write(&args.picture, drawn(&frames)).with_context(|| format!("writing {}", args.picture.display()))
}

fn read(path: &Path) -> Result<Vec<Frame>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let frame = |(number, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("{}, line {}", path.display(), number + 1))
    };
    let frames: Vec<Frame> = text.lines().enumerate().map(frame).collect::<Result<_>>()?;
    ensure!(!frames.is_empty(), "{} has no frame", path.display());
    Ok(frames)
}

/// The picture.
fn drawn(frames: &[Frame]) -> String {
    let columns = frames.iter().flat_map(|frame| &frame.lines).map(|line| line.chars().count()).max();
    let rows = frames.iter().map(|frame| frame.lines.len()).max();
    let width = columns.unwrap_or_default() * CELL.0 + 2 * BORDER;
    let height = rows.unwrap_or_default() * CELL.1 + 2 * BORDER;
    let total = frames.last().map_or(LAST, |last| last.at + LAST);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <style>\ntext{{font:13px monospace;fill:#d8dee9;white-space:pre}}\n\
         .strip{{animation:play {:.1}s steps(1,end) infinite}}\n@keyframes play{{\n",
        seconds(total)
    );
    for (number, frame) in frames.iter().enumerate() {
        // In thousandths of a percent, which is finer than the times.
        let share = frame.at.saturating_mul(100_000).checked_div(total).unwrap_or_default();
        let _ = writeln!(
            svg,
            "{}.{:03}%{{transform:translateX(-{}px)}}",
            share / 1_000,
            share % 1_000,
            number * width
        );
    }
    svg.push_str("}\n</style>\n");
    let _ = writeln!(svg, "<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#1f2430\"/>");
    let lines = defined(frames, &mut svg);
    svg.push_str("<g class=\"strip\">\n");
    for (number, frame) in frames.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate({} 0)\">", number * width + BORDER);
        for (row, line) in frame.lines.iter().enumerate() {
            if let Some(id) = lines.get(line.as_str()) {
                let _ = writeln!(svg, "<use href=\"#l{id}\" y=\"{}\"/>", BORDER + (row + 1) * CELL.1 - 5);
            }
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

/// Writes each line once, since most are in many frames. Returns their numbers.
fn defined<'a>(frames: &'a [Frame], svg: &mut String) -> BTreeMap<&'a str, usize> {
    let mut lines = BTreeMap::new();
    svg.push_str("<defs>\n");
    for line in frames.iter().flat_map(|frame| &frame.lines).filter(|line| !line.trim().is_empty()) {
        let next = lines.len();
        lines.entry(line.as_str()).or_insert_with(|| {
            let _ = writeln!(svg, "<text id=\"l{next}\">{}</text>", escaped(line));
            next
        });
    }
    svg.push_str("</defs>\n");
    lines
}

/// The line, escaped for XML.
fn escaped(line: &str) -> String {
    line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[allow(clippy::cast_precision_loss, reason = "a recording takes minutes")]
fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(at: u64, lines: &[&str]) -> Frame {
        Frame { at, lines: lines.iter().map(|&line| line.to_owned()).collect() }
    }

    #[test]
    fn frames_follow_each_other_at_their_times() {
        let svg = drawn(&[frame(0, &["web <1>", "  pod a"]), frame(1_000, &["web <2>", "  pod a"])]);
        assert!(svg.contains("animation:play 5.0s steps(1,end) infinite"), "{svg}");
        // Seven characters of 8 pixels, and the border.
        assert!(svg.contains("width=\"84\" height=\"64\""), "{svg}");
        assert!(
            svg.contains("0.000%{transform:translateX(-0px)}\n20.000%{transform:translateX(-84px)}"),
            "{svg}"
        );
        assert_eq!(svg.matches("<text ").count(), 3, "a line that stays is written once: {svg}");
        assert_eq!(svg.matches("<use ").count(), 4);
        assert!(svg.contains(">web &lt;1&gt;</text>"));
    }

    #[test]
    fn what_is_no_recording_is_refused_with_its_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "{\"at\":0,\"lines\":[]}\n{\"lines\":[]}\n").unwrap();
        let error = format!("{:#}", read(file.path()).unwrap_err());
        assert!(error.contains("line 2") && error.contains("`at`"), "{error}");
        fs::write(file.path(), "").unwrap();
        assert!(read(file.path()).unwrap_err().to_string().contains("no frame"));
    }
}

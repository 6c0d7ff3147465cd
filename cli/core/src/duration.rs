//! Durations as kubectl reads and writes them.

use std::time::Duration;

use pitstop_api::text::quoted;

/// Reads `90s`, `1m30s`, `2h`, `250ms`, or a number of whole seconds.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!("{} is not a duration: write numbers with h, m, s, ms, such as 90s or 1m30s", quoted(text))
    };
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(Duration::from_secs(seconds.into()));
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let number: u32 = number.parse().map_err(|_| wrong())?;
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let milliseconds: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong()),
        };
        total += Duration::from_millis(u64::from(number) * milliseconds);
        rest = after;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

/// As [`parse`], for fields that count whole seconds.
pub fn seconds(text: &str) -> Result<i64, String> {
    let duration = parse(text)?;
    if duration.subsec_nanos() > 0 {
        return Err(format!("{} is not a whole number of seconds", quoted(text)));
    }
    i64::try_from(duration.as_secs()).map_err(|_| format!("{} is too long", quoted(text)))
}

/// How long ago something was, as kubectl shows an age: `5s`, `2m30s`, `45m`, `3h`, `6d`.
pub fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 != 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_kubectl_does() {
        for (text, milliseconds) in
            [("0", 0), ("30", 30_000), ("90s", 90_000), ("1m30s", 90_000), ("2h", 7_200_000), ("250ms", 250)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "s", "5x", "1m30", "-5s", "5 s", "99999999999s", "1d"] {
            assert!(parse(text).unwrap_err().contains("is not a duration"), "{text}");
        }
    }

    #[test]
    fn fields_take_whole_seconds() {
        assert_eq!(seconds("1m30s"), Ok(90));
        assert_eq!(seconds("2000ms"), Ok(2));
        assert!(seconds("1500ms").unwrap_err().contains("whole number of seconds"));
        assert!(seconds("soon").unwrap_err().contains("is not a duration"));
    }

    #[test]
    fn ages_are_short() {
        for (seconds, shown) in [
            (-3, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (2_700, "45m"),
            (10_799, "179m"),
            (12_000, "3h20m"),
            (90_000, "25h"),
            (600_000, "6d"),
        ] {
            assert_eq!(age(seconds), shown, "{seconds}");
        }
    }
}

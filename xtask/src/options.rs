//! Options that a command takes for itself out of arguments that it passes on.

/// Takes every `FLAG VALUE` and `FLAG=VALUE` out of the arguments. Returns the last value and the rest.
pub(crate) fn taken<'a>(args: &[&'a str], flag: &str) -> (Option<&'a str>, Vec<&'a str>) {
    let (mut value, mut rest) = (None, Vec::new());
    let mut args = args.iter().copied();
    while let Some(arg) = args.next() {
        match arg.split_once('=') {
            Some((name, given)) if name == flag => value = Some(given),
            None if arg == flag => value = Some(args.next().unwrap_or_default()),
            _ => rest.push(arg),
        }
    }
    (value, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_option_is_taken_and_the_rest_is_left() {
        assert_eq!(taken(&["--a", "1", "--b"], "--a"), (Some("1"), vec!["--b"]));
        assert_eq!(taken(&["--b", "--a=1", "--a=2"], "--a"), (Some("2"), vec!["--b"]));
        assert_eq!(taken(&["--a"], "--a"), (Some(""), vec![]));
        assert_eq!(taken(&["--ab", "1"], "--a"), (None, vec!["--ab", "1"]));
    }
}

//! Removes secrets from messages of runtimes and registries.
//!
//! The messages quote URLs, which may hold a user with a password or a signed query, and headers. This code hides too
//! much rather than too little: a name in a sentence may be lost, but no secret is shown.

/// Placeholder for hidden text.
const HIDDEN: &str = "[hidden]";

/// Names of secrets, or parts of such names.
const NAMES: [&str; 9] =
    ["token", "passw", "secret", "signature", "sig", "credential", "auth", "apikey", "api_key"];

/// Names of authentication schemes; a secret follows them.
const SCHEMES: [&str; 4] = ["bearer", "basic", "digest", "negotiate"];

/// Words that may follow such a name in sentences.
const HARMLESS: [&str; 5] = ["auth", "authentication", "authorization", "credentials", "token"];

/// The text without users, passwords and queries of URLs, and without values named as secrets.
pub fn without_secrets(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    let mut next = Next::Anything;
    let mut before = "";
    while !rest.is_empty() {
        let (gap, after) = split_at_first(rest, |c| !ends_word(c));
        clean.push_str(gap);
        let (word, after_word) = split_at_first(after, ends_word);
        let quote = gap.chars().next_back().filter(|c| is_quote(*c));
        if next == Next::Secret && !word.is_empty() {
            let is = |names: &[&str]| names.iter().any(|name| bare(word).eq_ignore_ascii_case(name));
            if !is(&SCHEMES) && !is(&HARMLESS) {
                clean.push_str(HIDDEN);
                (rest, next, before) = (end_of_value(after, quote), Next::Anything, "");
                continue;
            }
        }
        rest = after_word;
        match assigned(word) {
            Assigned::Url => clean.push_str(&url_without(word)),
            Assigned::Secret(name) => {
                rest = value_end(after.get(name.len()..).unwrap_or_default());
                clean.extend([url_without(name).as_str(), HIDDEN]);
            }
            Assigned::Nothing => clean.push_str(user_without(word)),
        }
        next = following(word, before, quote.is_some());
        before = word;
    }
    clean
}

/// The kind of the next word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Anything,
    Secret,
}

fn following(word: &str, before: &str, quoted: bool) -> Next {
    let is_scheme = SCHEMES.iter().any(|scheme| bare(word).eq_ignore_ascii_case(scheme));
    let is_header = word.to_ascii_lowercase().ends_with("authorization:");
    // `"token":"value"`
    let is_member = quoted && matches!(word, ":" | "=") && is_name(before) && is_secret(before);
    if is_scheme || is_header || is_member { Next::Secret } else { Next::Anything }
}

/// What a word assigns a value to.
enum Assigned<'a> {
    Nothing,
    /// It is a URL.
    Url,
    /// The word up to its `=`; a secret follows.
    Secret(&'a str),
}

fn assigned(word: &str) -> Assigned<'_> {
    let named = |(at, _): (usize, &str)| {
        let name = word.get(..=at)?;
        is_secret(name).then_some(name)
    };
    let url = word.find("://");
    match word.match_indices('=').find_map(named) {
        // A name after `://` is part of the URL; `url_without` hides the value.
        Some(name) if url.is_none_or(|url| name.len() <= url) => Assigned::Secret(name),
        _ if url.is_some() => Assigned::Url,
        _ => Assigned::Nothing,
    }
}

/// A URL, and the text before it in its word, without user, query and fragment.
fn url_without(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return user_without(word).to_owned() };
    let end = rest.find(['?', '#', '=', '&', ';']);
    let (address, query) = (end.map_or(rest, |end| rest.get(..end).unwrap_or_default()), end.is_some());
    let address = user_without(address);
    let (host, path) = address.split_at(address.find('/').unwrap_or(address.len()));
    // The text may have been cut within a password.
    let odd = host.rsplit_once(':').is_some_and(|(_, port)| {
        !port.trim_end_matches([',', '.', ':', ')', ']']).bytes().all(|b| b.is_ascii_digit())
    });
    let (host, path) = if odd && !host.starts_with('[') { (HIDDEN, "") } else { (host, path) };
    let mark = rest.get(end.unwrap_or(rest.len())..).and_then(|query| query.chars().next());
    let mark = mark.map(String::from).unwrap_or_default();
    format!("{scheme}://{host}{path}{mark}{}", if query { HIDDEN } else { "" })
}

/// The text after the last `@` that no digest follows; without such an `@`, the word.
fn user_without(word: &str) -> &str {
    let ends_user = |rest: &&str| !rest.starts_with("sha256:") && !rest.starts_with("sha512:");
    let mut users = word.match_indices('@').filter_map(|(at, _)| word.get(at.saturating_add(1)..));
    users.rfind(ends_user).unwrap_or(word)
}

fn is_secret(name: &str) -> bool {
    let low = name.to_ascii_lowercase();
    NAMES.iter().any(|word| low.contains(word))
}

fn is_name(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_ascii_alphanumeric())
}

/// The text after a value that may begin with a quote.
fn value_end(text: &str) -> &str {
    match text.chars().next().filter(|c| is_quote(*c)) {
        Some(quote) => end_of_value(text.get(quote.len_utf8()..).unwrap_or_default(), Some(quote)),
        None => end_of_value(text, None),
    }
}

/// The text after a value. The value ends at its quote, which is removed too, or without one at white space.
fn end_of_value(text: &str, quote: Option<char>) -> &str {
    match quote {
        Some(quote) => text.split_once(quote).map_or("", |(_, rest)| rest),
        None => split_at_first(text, char::is_whitespace).1,
    }
}

fn split_at_first(text: &str, at: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(at).unwrap_or(text.len()))
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`')
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || c.is_control() || is_quote(c) || matches!(c, '\\' | '<' | '>')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_secret_is_told_and_the_sentence_stays_whole() {
        for (text, clean) in [
            ("GET \"https://me:pass@r.example.com/v2/\": 401", "GET \"https://r.example.com/v2/\": 401"),
            (
                "Get \"https://s3.example.com/blob?X-Amz-Signature=abc&x=1\": EOF",
                "Get \"https://s3.example.com/blob?[hidden]\": EOF",
            ),
            ("Authorization: Bearer abc.def refused", "Authorization: Bearer [hidden] refused"),
            ("authorization:\tBasic YTpi, refused", "authorization:\tBasic [hidden] refused"),
            ("Authorization: abc", "Authorization: [hidden]"),
            ("with Bearer abc.def refused", "with Bearer [hidden] refused"),
            ("token=abc is old", "token=[hidden] is old"),
            ("account=me,token=abc is old", "account=me,token=[hidden] is old"),
            ("password=\"a b\" is wrong", "password=[hidden] is wrong"),
            ("{\"access_token\":\"a b\",\"x\":1}", "{\"access_token\":\"[hidden],\"x\":1}"),
            ("me:pass@r.example.com: no such host", "r.example.com: no such host"),
            ("parse \"https://me:pa/ss@host\": invalid port", "parse \"https://host\": invalid port"),
            ("cut at https://me:pas", "cut at https://[hidden]"),
        ] {
            assert_eq!(without_secrets(text), clean);
        }
    }

    /// Real messages of runtimes.
    #[test]
    fn sentences_without_secrets_are_left_alone() {
        for text in [
            "nothing to hide: r/web:v2@sha256:12",
            "failed to pull and unpack image \"127.0.0.1:5000/web:v9\": failed to resolve reference \
             \"127.0.0.1:5000/web:v9\": 127.0.0.1:5000/web:v9: not found",
            "failed to do request: Head \"https://r.example.com:5000/v2/web/manifests/v9\": dial tcp: lookup \
             r.example.com on 10.0.0.10:53: no such host",
            "failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized",
            "no basic auth credentials",
            "Head \"http://[fe80::1]:5000/v2/\": http: server gave HTTP response to HTTPS client",
            "GET \"https://r/v2/web/blobs/sha256:12@sha256:34\": EOF",
        ] {
            assert_eq!(without_secrets(text), text);
        }
    }

    proptest! {
        #[test]
        fn no_secret_of_a_url_survives(
            before in "[a-z :,(\"'\n\t=]{0,12}",
            scheme in "https?|s3|oci",
            user in "[a-zA-Z0-9%._-]{0,6}",
            secret in "S3CR[A-Za-z0-9%._~!$*+/-]{4,16}",
            host in "[a-z.]{1,8}(:[0-9]{1,4})?",
            after in "[a-z :,)\"'\n\t=]{0,12}",
        ) {
            for url in [
                format!("{scheme}://{user}:{secret}@{host}/path"),
                format!("{scheme}://{user}:{secret}@{host}"),
                format!("{scheme}://{secret}@{host}/path@sha256:12"),
                format!("{scheme}://{host}/path?sig={secret}"),
                format!("{scheme}://{host}/path?{user}&{secret}=1"),
                format!("{scheme}://{host}?x={secret}&y=1#{secret}"),
                format!("{scheme}://{host}/path#{secret}"),
                format!("{scheme}://{host}/{user},{scheme}://{user}:{secret}@{host}"),
            ] {
                let clean = without_secrets(&format!("{before}{url}{after} {url}"));
                prop_assert!(!clean.contains("S3CR"), "{clean}");
            }
        }

        #[test]
        fn no_named_secret_survives(
            before in "[a-z :,(\"']{0,12}",
            secret in "S3CR[A-Za-z0-9%._~!$*+/=-]{4,16}",
            after in "[a-z :,)\n]{0,12}",
        ) {
            for named in [
                format!(" Bearer {secret} "),
                format!(" Authorization: Bearer {secret} "),
                format!("Authorization: {secret} "),
                format!("Authorization: \"Basic {secret}\""),
                format!("password={secret} "),
                format!("x=1&token={secret} "),
                format!("refresh_token=\"{secret}\""),
                format!("{{\"token\":\"{secret}\",\"n\":1}}"),
                format!("{{\"token\": \"{secret}\"}}"),
            ] {
                let clean = without_secrets(&format!("{before}{named}{after}"));
                prop_assert!(!clean.contains("S3CR"), "{clean}");
            }
        }

        #[test]
        fn no_text_breaks_it(text in ".{0,80}") {
            without_secrets(&text);
        }
    }
}

//! One probe: what is asked, what the answer must be, and whether it was.

use std::fmt;

use pitstop_e2e::system::WEBHOOK_NAME;
use serde_json::Value;

use crate::ask::Ask;

/// The name that the daemon's policy has in its refusals.
const POLICY: &str = "ValidatingAdmissionPolicy 'pitstop-daemon'";
/// Most of a message that the table shows.
const SHOWN: usize = 240;

/// One request and the answer that it must have.
#[derive(Debug)]
pub struct Probe {
    /// For people: what is tried.
    pub what: String,
    /// The request.
    pub ask: Ask,
    /// The answer that it must have.
    pub expected: Expected,
}

/// What an answer must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The HTTP code; 0 for a connection that is refused.
    pub code: u16,
    /// Who decides, and the words of the answer.
    pub decider: Decider,
}

/// Who decides about a request, as the words of the answer show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decider {
    /// The code alone shows it.
    Code,
    /// RBAC, the node authorizer, or the kubelet's own question to the API server.
    Rights,
    /// The daemon's admission policy, with these words among its own.
    Policy(String),
    /// pitstop's webhook, with these words among its own.
    Webhook(String),
    /// Another part, with these words.
    Words(String),
}

/// Answered with success.
pub fn granted(code: u16) -> Expected {
    assert!((200..300).contains(&code), "{code} grants nothing");
    Expected { code, decider: Decider::Code }
}

/// 401: nobody that the server knows.
pub fn nobody() -> Expected {
    Expected { code: 401, decider: Decider::Words("Unauthorized".to_owned()) }
}

/// 403 for want of rights.
pub fn rights() -> Expected {
    Expected { code: 403, decider: Decider::Rights }
}

/// 403 by the daemon's policy, with these words.
pub fn policy(words: &str) -> Expected {
    Expected { code: 403, decider: Decider::Policy(words.to_owned()) }
}

/// 400 by pitstop's webhook, with these words.
pub fn webhook(words: &str) -> Expected {
    Expected { code: 400, decider: Decider::Webhook(words.to_owned()) }
}

/// Refused with that code and these words.
pub fn refused(code: u16, words: &str) -> Expected {
    assert!(code >= 400, "{code} refuses nothing");
    Expected { code, decider: Decider::Words(words.to_owned()) }
}

/// No connection.
pub fn unreachable() -> Expected {
    Expected { code: 0, decider: Decider::Code }
}

/// What came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP code; 0 when there was none.
    pub code: u16,
    /// The whole body, or why there is none.
    pub text: String,
}

impl Answer {
    /// The body, where it is JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// What it says to people: the message of a Status, else the text.
    pub fn message(&self) -> String {
        let json = self.json();
        json.get("message").and_then(Value::as_str).map_or_else(|| self.text.clone(), str::to_owned)
    }
}

impl Expected {
    /// What the table shows as expected.
    pub fn label(&self) -> String {
        if self.code == 0 { "no connection".to_owned() } else { format!("{}{}", self.code, self.decider) }
    }

    /// What the table shows as seen: the same words when the answer is the expected one.
    pub fn seen(&self, answer: &Answer) -> String {
        if self.is_met(answer) {
            return self.label();
        }
        if answer.code == 0 {
            return format!("no connection: {}", shortened(&answer.text));
        }
        if answer.code < 300 {
            return answer.code.to_string();
        }
        format!("{}: {}", answer.code, shortened(&answer.message()))
    }

    /// Whether the answer is the expected one, words included.
    pub fn is_met(&self, answer: &Answer) -> bool {
        let message = answer.message();
        let words = match &self.decider {
            Decider::Code => true,
            Decider::Rights => is_for_want_of_rights(&message),
            Decider::Policy(words) => message.contains(POLICY) && message.contains(words),
            Decider::Webhook(words) => message.contains(WEBHOOK_NAME) && message.contains(words),
            Decider::Words(words) => message.contains(words),
        };
        answer.code == self.code && words
    }
}

/// The API server's words, then the kubelet's.
fn is_for_want_of_rights(message: &str) -> bool {
    !message.contains(POLICY)
        && (message.contains("orbidden: User \"") && message.contains("\" cannot ")
            || message.starts_with("Forbidden (user=")
            || message.contains("forbidden: node requested ")
            || message.contains("can only "))
}

fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(SHOWN).collect()
}

impl fmt::Display for Decider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code | Self::Words(_) => Ok(()),
            Self::Rights => write!(f, " rights"),
            Self::Policy(_) => write!(f, " policy"),
            Self::Webhook(_) => write!(f, " webhook"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(code: u16, message: &str) -> Answer {
        Answer { code, text: json!({"kind": "Status", "code": code, "message": message}).to_string() }
    }

    const BY_RBAC: &str = "pods is forbidden: User \"system:serviceaccount:a:b\" cannot list resource \"pods\" in \
                           API group \"\" at the cluster scope";
    const BY_POLICY: &str = "nodeworks.pitstop.dev \"node2\" is forbidden: ValidatingAdmissionPolicy 'pitstop-daemon' \
                             with binding 'pitstop-daemon' denied request: the node is not its own";

    #[test]
    fn the_same_code_from_another_part_is_not_what_was_expected() {
        assert!(rights().is_met(&status(403, BY_RBAC)));
        assert!(!rights().is_met(&status(403, BY_POLICY)));
        assert!(!rights().is_met(&status(401, BY_RBAC)));
        assert!(policy("not its own").is_met(&status(403, BY_POLICY)));
        assert!(!policy("names no node").is_met(&status(403, BY_POLICY)));
        assert!(!policy("").is_met(&status(403, BY_RBAC)));
        assert!(!policy("").is_met(&status(422, BY_POLICY)));
    }

    #[test]
    fn a_grant_is_never_a_refusal() {
        assert!(granted(200).is_met(&status(200, "")));
        assert!(!granted(200).is_met(&status(201, "")));
        assert!(!rights().is_met(&status(200, BY_RBAC)));
        assert!(!nobody().is_met(&Answer { code: 401, text: "who?".to_owned() }));
    }

    #[test]
    fn the_table_shows_what_was_seen_instead() {
        assert_eq!(rights().seen(&status(403, BY_RBAC)), "403 rights");
        assert_eq!(rights().seen(&status(200, "")), "200");
        assert!(rights().seen(&status(403, BY_POLICY)).starts_with("403: nodeworks.pitstop.dev"));
        assert_eq!(unreachable().seen(&Answer::default()), "no connection");
        let dead = Answer { code: 0, text: "timed out".to_owned() };
        assert_eq!(rights().seen(&dead), "no connection: timed out");
        assert!(shortened(&"a b\n".repeat(500)).chars().count() <= SHOWN);
    }

    #[test]
    fn the_kubelets_words_are_understood() {
        let words =
            "Forbidden (user=system:serviceaccount:a:b, verb=get, resource=nodes, subresource(s)=[proxy])";
        assert!(rights().is_met(&Answer { code: 403, text: words.to_owned() }));
    }
}

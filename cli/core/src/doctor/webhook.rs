//! The admission webhook: its configuration, its certificate, and whether the API server reaches it.

use chrono::{DateTime, Utc};

use super::{Facts, Finding, Level, Probe, SELF_CHECK, WEBHOOK, count, name_list};
use crate::known::Known;
use crate::plain;

const CHECK: &str = "webhook";
const CERTIFICATE: &str = "certificate";
const ANSWER: &str = "answer";
/// Webhooks of every installation (deploy/base/controller/webhook.yaml).
const REQUIRED: [&str; 3] =
    ["mcontainerrecreaterequest.pitstop.dev", "mpodimageupdate.pitstop.dev", "mpodresize.pitstop.dev"];
/// Days before its end when a certificate must have been renewed: the controller renews it 30 days before
/// (controller/src/certs/keeper.rs).
const LATE: i64 = 25;
/// The webhook fails open: docs/adr/0004-fail-open-webhook.md.
const OPEN: &str = "the controller validates requests later, and the webhook sets no defaults";

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let configuration = match &facts.webhook {
        Known::Unread(why) => return vec![Finding::unknown(CHECK, "its configuration", why)],
        Known::Missing => {
            let text = format!("there is no MutatingWebhookConfiguration {WEBHOOK}: {OPEN}");
            return vec![Finding::error(CHECK, text, "Apply the installation again: docs/install.md.")];
        }
        Known::Is(configuration) => configuration.webhooks.as_deref().unwrap_or_default(),
    };
    let missing: Vec<&str> =
        REQUIRED.into_iter().filter(|name| !configuration.iter().any(|it| it.name == *name)).collect();
    let mut findings = Vec::new();
    if !missing.is_empty() {
        let text = format!("the configuration {WEBHOOK} lacks {}", name_list(&missing));
        findings.push(Finding::error(CHECK, text, "Apply the installation again: docs/install.md."));
    }
    let ready = match &facts.endpoints {
        Known::Unread(why) => {
            findings.push(Finding::unknown(CHECK, "the addresses of its Service", why));
            return findings;
        }
        slices => slices.all().iter().flat_map(|it| &it.endpoints).filter(|it| {
            // Absent means ready (the API's description of `ready`).
            it.conditions.as_ref().and_then(|it| it.ready).unwrap_or(true)
        }),
    };
    findings.push(match ready.count() {
        0 => {
            let text = format!("no controller is ready behind the Service pitstop-webhook: {OPEN}");
            Finding::error(CHECK, text, format!("See kubectl -n {} get endpointslices,pods.", facts.system))
        }
        ready => {
            Finding::ok(CHECK, format!("configured, with {} behind its Service", count(ready, "ready Pod")))
        }
    });
    findings
}

pub(super) fn certificate(facts: &Facts) -> Vec<Finding> {
    match &facts.webhook {
        Known::Unread(why) => return vec![Finding::unknown(CERTIFICATE, "the webhook's authority", why)],
        Known::Missing => return Vec::new(),
        Known::Is(_) => {}
    }
    let to_do = format!(
        "See the leader's log: kubectl -n {} logs deployment/pitstop-controller. The leader makes the certificate, and writes its authority.",
        facts.system
    );
    let none: Vec<&str> =
        facts.authorities.iter().filter(|it| it.ends.is_none()).map(|it| it.webhook.as_str()).collect();
    if !none.is_empty() {
        let text = format!("no readable caBundle for {}: {OPEN}", name_list(&none));
        return vec![Finding::error(CERTIFICATE, text, to_do)];
    }
    let Some(ends) = facts.authorities.iter().filter_map(|it| it.ends).min() else { return Vec::new() };
    let Known::Is(now) = &facts.now else {
        return vec![Finding::unknown(CERTIFICATE, "the API server's time", "no time in the response")];
    };
    vec![dated(ends, *now, to_do)]
}

fn dated(ends: DateTime<Utc>, now: DateTime<Utc>, to_do: String) -> Finding {
    let left = ends.signed_duration_since(now).num_days();
    let on = ends.format("%Y-%m-%d");
    if ends <= now {
        let text = format!("the webhook's certificate authority expired on {on}: {OPEN}");
        return Finding::error(CERTIFICATE, text, to_do);
    }
    let text = format!(
        "the webhook's certificate authority expires on {on}, in {}",
        count(usize::try_from(left).unwrap_or(0), "day")
    );
    if left < LATE {
        return Finding::warning(CERTIFICATE, format!("{text}: it should have been renewed"), to_do);
    }
    Finding::ok(CERTIFICATE, text)
}

/// Judges a dry-run request for a Pod that does not exist: only the webhook refuses it.
pub(super) fn answer(facts: &Facts) -> Vec<Finding> {
    let finding = match &facts.request {
        Probe::Allowed => Finding::error(
            ANSWER,
            format!("the API server does not reach the webhook: {OPEN}"),
            "Let the API server reach port 9443 of the controller's Pods: docs/tasks/harden.md#network. Look for \"failed calling webhook\" in its log.",
        ),
        Probe::Refused { message, .. } if message.contains("mcontainerrecreaterequest.pitstop.dev") => {
            Finding::ok(ANSWER, "the webhook answers the API server")
        }
        Probe::Refused { code: 404, message } if !message.contains(SELF_CHECK) => Finding {
            verdict: Level::Error,
            text: "ContainerRecreateRequests are not served, or the namespace does not exist".to_owned(),
            to_do: format!("{}; see docs/install.md.", plain::line(message, 200)),
            check: ANSWER,
        },
        Probe::Refused { message, .. } | Probe::Unanswered(message) => {
            Finding::unknown(ANSWER, "whether the webhook answers", message)
        }
    };
    vec![finding]
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use serde_json::json;

    use super::super::Expiry;
    use super::super::fixtures::{at, healthy, read};
    use super::*;

    fn ending(days: i64) -> Finding {
        let ends = Some(at(0) + TimeDelta::days(days));
        let authorities = vec![Expiry { webhook: REQUIRED[0].into(), ends }];
        certificate(&Facts { authorities, now: Known::Is(at(0)), ..healthy() }).remove(0)
    }

    #[test]
    fn a_certificate_that_ends_soon_was_not_renewed() {
        assert_eq!(
            ending(90),
            Finding::ok(CERTIFICATE, "the webhook's certificate authority expires on 2024-02-12, in 90 days")
        );
        assert_eq!(ending(25).verdict, Level::Ok);
        assert_eq!(ending(24).verdict, Level::Warning);
        assert_eq!(ending(0).verdict, Level::Error);
        let authorities = vec![Expiry { webhook: REQUIRED[0].into(), ends: None }];
        let none = certificate(&Facts { authorities, ..healthy() });
        assert!(none[0].verdict == Level::Error && none[0].text.contains(REQUIRED[0]), "{none:?}");
    }

    #[test]
    fn a_service_without_a_ready_address_is_an_error() {
        let slice = |ready: bool| {
            read(json!({"addressType": "IPv4", "metadata": {}, "endpoints": [{"addresses": ["10.0.0.1"],
                "conditions": {"ready": ready}}]}))
        };
        let with =
            |ready: bool| check(&Facts { endpoints: Known::Is(vec![slice(ready)]), ..healthy() }).remove(0);
        assert_eq!(with(true), Finding::ok(CHECK, "configured, with 1 ready Pod behind its Service"));
        assert_eq!(with(false).verdict, Level::Error);
    }

    #[test]
    fn a_refusal_by_the_webhook_shows_that_it_answers() {
        let result = |request: Probe| answer(&Facts { request, ..healthy() }).remove(0).verdict;
        let refused = |code: u16, message: &str| Probe::Refused { code, message: message.to_owned() };
        let webhook = "admission webhook \"mcontainerrecreaterequest.pitstop.dev\" denied the request: no found Pod named x";
        assert_eq!(result(refused(400, webhook)), Level::Ok);
        assert_eq!(result(Probe::Allowed), Level::Error);
        assert_eq!(result(refused(403, "User \"u\" cannot create")), Level::Unknown);
        assert_eq!(result(refused(404, "404 page not found")), Level::Error);
    }
}

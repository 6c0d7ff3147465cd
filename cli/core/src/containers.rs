//! Chooses the containers of a Pod or template for a command.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use pitstop_api::text::quoted;

/// The annotation that names kubectl's default container.
/// <https://kubernetes.io/docs/reference/labels-annotations-taints/#kubectl-kubernetes-io-default-container>
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Most containers that a message lists.
const MOST_LISTED: usize = 20;

/// Which containers the user chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// These; empty: the default container.
    Named(Vec<String>),
    /// All main containers and sidecars.
    All,
}

/// Names of the containers that can be restarted, resized and updated: sidecars and main containers, in the order in
/// which the Pod starts them.
pub fn serviceable(spec: &PodSpec) -> Vec<&str> {
    let sidecars = spec.init_containers.iter().flatten().filter(|it| is_sidecar(it));
    sidecars.chain(&spec.containers).map(|it| it.name.as_str()).collect()
}

/// An init container that runs for as long as the Pod.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The chosen containers. `target` is their Pod or workload; `default` is its value of [`DEFAULT_CONTAINER`].
/// The error says what is wrong, and lists the possible containers.
pub fn choose(
    target: &str,
    spec: &PodSpec,
    default: Option<&str>,
    choice: &Choice,
) -> Result<Vec<String>, String> {
    let named = match choice {
        Choice::All => return Ok(serviceable(spec).into_iter().map(str::to_owned).collect()),
        Choice::Named(named) => named,
    };
    if !named.is_empty() {
        return check_each(target, spec, named).map(|()| named.clone());
    }
    match (spec.containers.as_slice(), default) {
        ([only], _) => Ok(vec![only.name.clone()]),
        (_, Some(default)) => {
            let named = vec![default.to_owned()];
            check_each(target, spec, &named)
                .map(|()| named)
                .map_err(|why| format!("{why} (named by the annotation {DEFAULT_CONTAINER} of {target})"))
        }
        (_, None) => Err(format!("name a container of {target} with -c: {}", list(spec))),
    }
}

/// Fails unless each container exists, can be serviced, and is named once.
fn check_each(target: &str, spec: &PodSpec, named: &[String]) -> Result<(), String> {
    let all = serviceable(spec);
    for (i, name) in named.iter().enumerate() {
        if !all.contains(&name.as_str()) {
            let inits = spec.init_containers.iter().flatten();
            let what = match inits.into_iter().find(|it| it.name == *name) {
                Some(_) => "is an init container of it, which runs only once",
                None => "is not a container of it",
            };
            return Err(format!("{target}: {} {what}; it has {}", quoted(name), list(spec)));
        }
        if named.iter().take(i).any(|before| before == name) {
            return Err(format!("{target}: container {} is named twice", quoted(name)));
        }
    }
    Ok(())
}

fn list(spec: &PodSpec) -> String {
    let all = serviceable(spec);
    let more = all.len().saturating_sub(MOST_LISTED);
    let text = all.into_iter().take(MOST_LISTED).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{text} and {more} more") } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(mains: &[&str]) -> PodSpec {
        let mains: Vec<_> = mains.iter().map(|name| json!({"name": name})).collect();
        serde_json::from_value(json!({"containers": mains,
            "initContainers": [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}]}))
        .unwrap()
    }

    fn chosen(mains: &[&str], default: Option<&str>, named: &[&str]) -> Result<Vec<String>, String> {
        let named = named.iter().map(|&name| name.to_owned()).collect();
        choose("pod/web", &spec(mains), default, &Choice::Named(named))
    }

    #[test]
    fn named_containers_go_before_the_only_one_and_the_default() {
        assert_eq!(chosen(&["app"], None, &[]).unwrap(), ["app"]);
        assert_eq!(chosen(&["app"], Some("proxy"), &[]).unwrap(), ["app"]);
        assert_eq!(chosen(&["app", "log"], Some("log"), &[]).unwrap(), ["log"]);
        assert_eq!(chosen(&["app", "log"], Some("log"), &["proxy", "app"]).unwrap(), ["proxy", "app"]);
        let all = choose("pod/web", &spec(&["app", "log"]), None, &Choice::All).unwrap();
        assert_eq!(all, ["proxy", "app", "log"]);
    }

    #[test]
    fn what_cannot_be_meant_lists_what_can() {
        for (named, default, expected) in [
            (&[][..], None, "name a container of pod/web with -c: proxy, app, log"),
            (
                &[],
                Some("gone"),
                "pod/web: \"gone\" is not a container of it; it has proxy, app, log (named by the annotation",
            ),
            (&["x\u{1b}"], None, "pod/web: \"x\\u{1b}\" is not a container of it; it has proxy, app, log"),
            (&["setup"], None, "\"setup\" is an init container of it, which runs only once"),
            (&["app", "app"], None, "pod/web: container \"app\" is named twice"),
        ] {
            let error = chosen(&["app", "log"], default, named).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let many: Vec<String> = (0..30).map(|i| format!("c{i}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(chosen(&many, None, &[]).unwrap_err().ends_with("c18 and 11 more"));
    }
}

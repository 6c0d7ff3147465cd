//! The preStop hook of a container, as the kubelet leaves it in the runtime.
//!
//! The kubelet writes the handler and the container's ports as JSON annotations on every container
//! (`pkg/kubelet/kuberuntime/labels.go`). So it can run the hook when the Pod is gone from the API. pitstop reads them
//! too, and runs nothing else. What each handler means is read from `pkg/kubelet/lifecycle/handlers.go`,
//! `pkg/probe/http/request.go` and `pkg/probe/util.go` of Kubernetes 1.36.

use pitstop_api::text::quoted;
use serde::Deserialize;

/// Longest annotation that is read, in bytes: the limit of Linux for one program argument.
pub const MAX_ANNOTATION: usize = 128 * 1024;

/// Port of a request if the handler names none. The API server requires one; kubelets before 1.26 used this.
const DEFAULT_PORT: u16 = 80;

/// What to do before a container is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Run a program inside the container; its exit code must be 0.
    Exec {
        /// Program and arguments, no shell.
        command: Vec<String>,
    },
    /// Send a GET request; any answer is a success, whatever its status.
    HttpGet(HttpGet),
    /// Wait.
    Sleep {
        /// How many seconds, at most the grace period.
        seconds: u64,
    },
    /// A hook that cannot run: it fails, and the stop goes ahead.
    Unsupported {
        /// For people.
        why: String,
    },
}

impl Hook {
    /// Its kind, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Exec { .. } => "exec",
            Self::HttpGet(_) => "http_get",
            Self::Sleep { .. } => "sleep",
            Self::Unsupported { .. } => "unsupported",
        }
    }
}

/// A GET request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpGet {
    /// Whether to use TLS; the server's certificate is not verified.
    pub https: bool,
    /// Name or address; absent: the Pod's own address.
    pub host: Option<String>,
    /// Port number; a port name is already resolved.
    pub port: u16,
    /// Path and query, as the Pod writes them.
    pub path: String,
    /// Names and values, in the Pod's order.
    pub headers: Vec<(String, String)>,
}

/// The API's `LifecycleHandler`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Handler {
    exec: Option<ExecAction>,
    http_get: Option<HttpGetAction>,
    tcp_socket: Option<serde::de::IgnoredAny>,
    sleep: Option<SleepAction>,
}

#[derive(Deserialize)]
struct ExecAction {
    command: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HttpGetAction {
    path: Option<String>,
    port: Option<IntOrString>,
    host: Option<String>,
    scheme: Option<String>,
    http_headers: Option<Vec<Header>>,
}

#[derive(Deserialize)]
struct SleepAction {
    seconds: Option<i64>,
}

#[derive(Deserialize)]
struct Header {
    name: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum IntOrString {
    Int(i64),
    String(String),
}

/// The API's `ContainerPort`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPort {
    name: Option<String>,
    container_port: Option<i64>,
}

/// Reads the annotations `io.kubernetes.container.preStopHandler` and `.ports`.
pub fn parse(handler: &str, ports: Option<&str>) -> Hook {
    read(handler, ports).unwrap_or_else(|why| Hook::Unsupported { why })
}

fn read(handler: &str, ports: Option<&str>) -> Result<Hook, String> {
    if handler.len() > MAX_ANNOTATION {
        return Err(format!("the handler is longer than {MAX_ANNOTATION} bytes"));
    }
    // The parser's message would quote the handler.
    let handler: Handler =
        serde_json::from_str(handler).map_err(|_| "it is not a Kubernetes lifecycle handler".to_owned())?;
    match handler {
        Handler { exec: Some(exec), .. } => match exec.command {
            Some(command) if !command.is_empty() => Ok(Hook::Exec { command }),
            _ => Err("exec names no command".to_owned()),
        },
        Handler { http_get: Some(action), .. } => http_get(action, ports).map(Hook::HttpGet),
        Handler { sleep: Some(sleep), .. } => {
            // Go's timer fires at once for a negative duration.
            Ok(Hook::Sleep { seconds: u64::try_from(sleep.seconds.unwrap_or(0)).unwrap_or(0) })
        }
        // The API accepts it for old objects; the kubelet calls it an invalid handler.
        Handler { tcp_socket: Some(_), .. } => Err("tcpSocket is not supported for preStop hooks".to_owned()),
        Handler { .. } => Err("the handler names none of exec, httpGet and sleep".to_owned()),
    }
}

fn http_get(action: HttpGetAction, ports: Option<&str>) -> Result<HttpGet, String> {
    let scheme = action.scheme.unwrap_or_default().to_ascii_lowercase();
    let https = match scheme.as_str() {
        "" | "http" => false,
        "https" => true,
        _ => return Err("httpGet.scheme is neither HTTP nor HTTPS".to_owned()),
    };
    let headers = action.http_headers.unwrap_or_default().into_iter();
    Ok(HttpGet {
        https,
        host: action.host.filter(|host| !host.is_empty()),
        port: port(action.port, ports)?,
        path: action.path.unwrap_or_default(),
        headers: headers.map(|h| (h.name.unwrap_or_default(), h.value.unwrap_or_default())).collect(),
    })
}

/// Resolves a number, the name of a container port, or a number as text.
fn port(port: Option<IntOrString>, ports: Option<&str>) -> Result<u16, String> {
    let number = match port {
        None => return Ok(DEFAULT_PORT),
        Some(IntOrString::String(name)) if name.is_empty() => return Ok(DEFAULT_PORT),
        Some(IntOrString::Int(number)) => number,
        Some(IntOrString::String(name)) => named_port(&name, ports)
            .or_else(|| name.parse().ok())
            .ok_or_else(|| format!("the container has no port named {}", quoted(&head(&name))))?,
    };
    match u16::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("invalid port number: {number}")),
    }
}

fn named_port(name: &str, ports: Option<&str>) -> Option<i64> {
    let ports = ports.filter(|text| text.len() <= MAX_ANNOTATION)?;
    // As with the kubelet, ports that cannot be read count as none.
    let ports: Vec<ContainerPort> = serde_json::from_str(ports).ok()?;
    ports.into_iter().find(|p| p.name.as_deref() == Some(name))?.container_port
}

fn head(text: &str) -> String {
    pitstop_api::condition::truncate(text, 63)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PORTS: &str = r#"[{"containerPort":9},{"name":"web","containerPort":8080,"protocol":"TCP"},{"name":"far","containerPort":70000},{"name":"81","containerPort":82}]"#;

    fn why(handler: &str) -> String {
        match parse(handler, Some(PORTS)) {
            Hook::Unsupported { why } => why,
            hook => panic!("{hook:?}"),
        }
    }

    fn get(handler: &str) -> HttpGet {
        match parse(handler, Some(PORTS)) {
            Hook::HttpGet(get) => get,
            hook => panic!("{hook:?}"),
        }
    }

    #[test]
    fn commands() {
        let hook = parse(r#"{"exec":{"command":["/bin/sh","-c","sleep 3"]}}"#, None);
        assert_eq!(hook, Hook::Exec { command: vec!["/bin/sh".into(), "-c".into(), "sleep 3".into()] });
        for empty in [r#"{"exec":{}}"#, r#"{"exec":{"command":[]}}"#, r#"{"exec":{"command":null}}"#] {
            assert_eq!(why(empty), "exec names no command");
        }
    }

    #[test]
    fn requests() {
        let full = r#"{"httpGet":{"path":"/bye?now=1","port":"web","host":"db","scheme":"HTTPS",
            "httpHeaders":[{"name":"X-A","value":"1"},{"name":"X-A","value":"2"}]}}"#;
        assert_eq!(
            get(full),
            HttpGet {
                https: true,
                host: Some("db".into()),
                port: 8080,
                path: "/bye?now=1".into(),
                headers: vec![("X-A".into(), "1".into()), ("X-A".into(), "2".into())],
            }
        );
        let least = HttpGet { port: 80, ..HttpGet::default() };
        assert_eq!(get(r#"{"httpGet":{}}"#), least);
        assert_eq!(get(r#"{"httpGet":{"host":"","port":"","scheme":"","httpHeaders":null}}"#), least);
        assert!(why(r#"{"httpGet":{"scheme":"gopher"}}"#).contains("neither"));
    }

    #[test]
    fn ports_go_by_number_or_by_name() {
        let port = |port: &str| parse(&format!(r#"{{"httpGet":{{"port":{port}}}}}"#), Some(PORTS));
        for (given, expected) in [("8081", 8081), (r#""web""#, 8080), (r#""81""#, 82), (r#""83""#, 83)] {
            assert!(matches!(port(given), Hook::HttpGet(get) if get.port == expected), "{given}");
        }
        for wrong in ["0", "-1", "65536", r#""far""#, r#""none""#, r#""99999999999999999999""#] {
            assert!(matches!(port(wrong), Hook::Unsupported { .. }), "{wrong}");
        }
        for unreadable in [None, Some("{"), Some("{}")] {
            let hook = parse(r#"{"httpGet":{"port":"web"}}"#, unreadable);
            assert!(matches!(hook, Hook::Unsupported { why } if why.contains("no port named \"web\"")));
        }
    }

    #[test]
    fn sleeps() {
        assert_eq!(parse(r#"{"sleep":{"seconds":7}}"#, None), Hook::Sleep { seconds: 7 });
        assert_eq!(parse(r#"{"sleep":{"seconds":-7}}"#, None), Hook::Sleep { seconds: 0 });
        assert_eq!(parse(r#"{"sleep":{}}"#, None), Hook::Sleep { seconds: 0 });
    }

    #[test]
    fn what_cannot_be_run_says_why() {
        assert!(why(r#"{"tcpSocket":{"port":80}}"#).contains("tcpSocket"));
        assert!(why("{}").contains("names none"));
        assert!(why(r#"{"grpc":{"port":1}}"#).contains("names none"));
        for garbage in
            ["", "null ", "[]1", "7", r#"{"exec":"#, r#"{"exec":7}"#, r#"{"sleep":{"seconds":"x"}}"#]
        {
            assert!(matches!(parse(garbage, None), Hook::Unsupported { .. }), "{garbage}");
        }
        let deep = "[".repeat(MAX_ANNOTATION);
        assert!(matches!(parse(&deep, None), Hook::Unsupported { .. }));
    }

    #[test]
    fn a_handler_may_be_as_long_as_an_argument_of_a_program_on_linux() {
        let handler = |length: usize| {
            let text = "x".repeat(length - r#"{"exec":{"command":[""]}}"#.len());
            format!(r#"{{"exec":{{"command":["{text}"]}}}}"#)
        };
        assert!(matches!(parse(&handler(131_072), None), Hook::Exec { .. }));
        assert!(why(&handler(131_073)).contains("longer than 131072 bytes"));
    }

    #[test]
    fn every_kind_is_told_by_the_name_that_the_reference_of_the_metrics_lists() {
        let reference = include_str!("../../../docs/reference/metrics.md");
        let row = reference.lines().find(|row| row.contains("`pitstop_daemon_hooks_total`")).unwrap();
        let listed = row.split_once("`kind`: ").and_then(|(_, rest)| rest.split_once(';')).unwrap().0;
        let handlers = [r#"{"exec":{"command":["a"]}}"#, r#"{"httpGet":{}}"#, r#"{"sleep":{}}"#, "{}"];
        assert_eq!(handlers.map(|h| format!("`{}`", parse(h, None).kind())).join(", "), listed);
    }

    #[test]
    fn the_first_handler_counts_as_with_the_kubelet() {
        let both = r#"{"sleep":{"seconds":1},"httpGet":{"port":1},"exec":{"command":["a"]}}"#;
        assert_eq!(parse(both, None), Hook::Exec { command: vec!["a".into()] });
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(handler in ".*", ports in proptest::option::of(".*")) {
            let _ = parse(&handler, ports.as_deref());
        }

        #[test]
        fn nothing_of_the_right_shape_makes_it_panic(
            kind in "exec|httpGet|sleep|tcpSocket",
            field in "command|port|path|host|scheme|httpHeaders|seconds",
            value in r#"-?[0-9]{1,30}|"[a-z/]{0,9}"|null|\[\]|\["a",null\]|\{\}|\[\{"name":1\}\]"#,
            ports in r#"\[\{"name":("web"|null),"containerPort":-?[0-9]{1,30}\}\]"#,
        ) {
            let handler = format!(r#"{{"{kind}":{{"{field}":{value}}}}}"#);
            if let Hook::HttpGet(get) = parse(&handler, Some(&ports)) {
                prop_assert!(get.port > 0);
            }
        }
    }
}

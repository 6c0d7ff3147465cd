//! Requests over the loopback.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;

use super::*;

/// A server that gives each connection its next answer, and repeats the last one.
struct Server {
    port: u16,
    /// The heads of the requests that came, as text.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(answers: &[&str]) -> Self {
        Self::with(answers, None).await
    }

    async fn tls(answers: &[&str]) -> Self {
        let key = rcgen::generate_simple_self_signed(["somebody.example".to_owned()]).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![key.cert.der().clone()],
                key.signing_key.serialize_der().try_into().unwrap(),
            )
            .unwrap();
        Self::with(answers, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn with(answers: &[&str], tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let answers: Vec<String> = answers.iter().map(|a| a.replace("PORT", &port.to_string())).collect();
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            for n in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let answer = answers.get(n).or(answers.last()).unwrap().clone();
                let (tls, seen) = (tls.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &answer, &seen).await,
                        Some(tls) => serve(tls.accept(stream).await.unwrap(), &answer, &seen).await,
                    }
                });
            }
        });
        Self { port, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> HttpGet {
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        HttpGet { port: self.port, path: path.into(), headers, ..HttpGet::default() }
    }

    async fn ask(&self, path: &str, headers: &[(&str, &str)]) -> Result<(), String> {
        get(&self.get(path, headers), "127.0.0.1", Loopback::Allow).await
    }

    async fn ask_tls(&self, headers: &[(&str, &str)]) -> Result<(), String> {
        get(&HttpGet { https: true, ..self.get("/bye", headers) }, "127.0.0.1", Loopback::Allow).await
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str, seen: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
        // A TLS greeting has no empty line.
        if head[0] == 0x16 {
            // Unread data would make the kernel reset the connection before the answer arrives.
            let _ = stream.read(&mut [0; 4096]).await;
            break;
        }
    }
    seen.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
    stream.write_all(answer.as_bytes()).await.unwrap();
    if answer.contains("chunked") {
        // A body without end.
        let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
        while stream.write_all(chunk.as_bytes()).await.is_ok() {}
    }
    let _ = stream.shutdown().await;
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn a_plain_request_carries_what_the_kubelets_does() {
    let server = Server::start(&[OK]).await;
    server.ask("bye?a=b c#end", &[("X-One", "1"), ("X-One", "2")]).await.unwrap();
    let expected = format!(
        "GET /bye?a=b%20c HTTP/1.1\r\nx-one: 1\r\nx-one: 2\r\nuser-agent: {AGENT}\r\naccept: */*\r\nhost: 127.0.0.1:{}\r\n\r\n",
        server.port
    );
    assert_eq!(server.requests(), [expected]);
}

#[tokio::test]
async fn the_hooks_own_headers_win() {
    let server = Server::start(&[OK]).await;
    let headers = [
        ("Host", "web.example"),
        ("User-Agent", "me"),
        ("Accept", ""),
        ("Content-Length", "9"),
        ("Transfer-Encoding", "chunked"),
    ];
    server.ask("", &headers).await.unwrap();
    assert_eq!(server.requests(), ["GET / HTTP/1.1\r\nuser-agent: me\r\nhost: web.example\r\n\r\n"]);
    for bad in [("X Y", ""), ("", ""), ("X", "a\r\nb: c")] {
        assert_eq!(server.ask("/", &[bad]).await.unwrap_err(), "a header is invalid");
    }
}

#[tokio::test]
async fn any_answer_is_a_success_and_what_is_none_is_not() {
    for answer in [
        "HTTP/1.1 500 No\r\n\r\n",
        "HTTP/1.0 404 No\r\ncontent-length: 100\r\n\r\ncut",
        "HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\nxxx",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 302 Found\r\n\r\n",
    ] {
        assert_eq!(Server::start(&[answer]).await.ask("/", &[]).await, Ok(()), "{answer}");
    }
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(MAX_BUFFER));
    for answer in ["", "SSH-2.0-dropbear\r\n", "HTTP/1.1 2", &long] {
        let failure = Server::start(&[answer]).await.ask("/", &[]).await.unwrap_err();
        assert!(failure.starts_with("the request failed: ") && !failure.contains("SSH"), "{failure}");
    }
    let nobody = HttpGet { port: 1, ..HttpGet::default() };
    let failure = get(&nobody, "127.0.0.1", Loopback::Allow).await.unwrap_err();
    assert!(failure.starts_with("cannot connect to 127.0.0.1:1: "), "{failure}");
}

#[tokio::test]
async fn d19_certificates_are_not_verified() {
    let server = Server::tls(&[OK]).await;
    server.ask_tls(&[("Authorization", "secret")]).await.unwrap();
    assert!(server.requests()[0].contains("authorization: secret"));
}

#[tokio::test]
async fn a_server_without_tls_is_asked_in_plain_http_without_authorization() {
    let server = Server::start(&["HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n", OK]).await;
    server.ask_tls(&[("Authorization", "secret"), ("X", "1")]).await.unwrap();
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests[1].starts_with("GET /bye HTTP/1.1\r\n"), "{requests:?}");
    assert!(requests[1].contains("x: 1\r\n") && !requests[1].contains("secret"), "{requests:?}");
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host() {
    let moved = |to: &str| format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
    let absolute = moved("http://127.0.0.1:PORT/there");
    let server = Server::start(&[&moved("there#x"), &absolute, OK]).await;
    server.ask("/a/bye", &[("Host", "web.example")]).await.unwrap();
    let requests = server.requests();
    let lines: Vec<_> = requests.iter().map(|r| r.lines().next().unwrap()).collect();
    assert_eq!(lines, ["GET /a/bye HTTP/1.1", "GET /a/there HTTP/1.1", "GET /there HTTP/1.1"]);
    assert!(requests[1].contains("host: web.example") && requests[2].contains("host: 127.0.0.1:"));

    let server = Server::start(&[&moved("http://elsewhere.example/")]).await;
    assert_eq!(server.ask("/", &[]).await, Ok(()), "nobody goes there");
    let server = Server::start(&[&moved("/")]).await;
    assert_eq!(server.ask("/", &[]).await.unwrap_err(), "stopped after 10 redirects");
    assert_eq!(server.requests().len(), 11);
    let server = Server::start(&[&moved("gopher://127.0.0.1/")]).await;
    assert!(server.ask("/", &[]).await.unwrap_err().contains("invalid URL"));
}

#[tokio::test]
async fn the_daemon_never_asks_itself() {
    let server = Server::start(&[OK]).await;
    let literal = ["127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "[::1]", "::", "::ffff:127.0.0.1"];
    for host in literal.into_iter().chain(["localhost", "web@127.0.0.1"]) {
        let failure = get(&server.get("/", &[]), host, Loopback::Refuse).await.unwrap_err();
        assert!(failure.ends_with("means the node, whose network the daemon does not share"), "{failure}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_request_that_is_given_up_closes_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for https in [false, true] {
        let asked = HttpGet { https, port, ..HttpGet::default() };
        let asked = tokio::spawn(async move { get(&asked, "127.0.0.1", Loopback::Allow).await });
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        asked.abort();
        let mut rest = Vec::new();
        let end =
            tokio::time::timeout(std::time::Duration::from_secs(5), stream.read_to_end(&mut rest)).await;
        assert!(end.is_ok() && rest.is_empty(), "closed");
    }
}

#[test]
fn paths_begin_at_the_root_and_are_escaped() {
    for (given, expected) in [
        ("", "/"),
        ("?a", "/?a"),
        ("bye", "/bye"),
        ("/bye#x", "/bye"),
        ("/a%20b/ü \"<", "/a%20b/%C3%BC%20%22%3C"),
        ("/a\r\nX: 1", "/a%0D%0AX:%201"),
    ] {
        assert_eq!(path(given).unwrap().as_str(), expected);
    }
}

#[test]
fn locations_are_understood() {
    let from = url(Scheme::HTTPS, &authority("fd00::1", 443).unwrap(), "/a/b?c").unwrap();
    let at = |location: &str| {
        let (to, relative) = redirected(&from, location).unwrap();
        (to.to_string(), relative)
    };
    let own = "https://[fd00::1]:443";
    assert_eq!(at("/x"), (format!("{own}/x"), true));
    assert_eq!(at("x/y"), (format!("{own}/a/x/y"), true));
    assert_eq!(at("?x"), (format!("{own}/a/b?x"), true));
    assert_eq!(at("/x?to=http://y/"), (format!("{own}/x?to=http://y/"), true));
    assert_eq!(at(""), (format!("{own}/a/b"), true));
    assert_eq!(at("http://[fd00::1]:8080"), ("http://[fd00::1]:8080/".into(), false));
    assert_eq!(at("https://other/x#y"), ("https://other/x".into(), false));
    for bad in ["http://", "://", "gopher://other/", "http:// /"] {
        assert!(redirected(&from, bad).is_err(), "{bad}");
    }
}

#[test]
fn hosts_are_names_and_addresses() {
    let of = |host| authority(host, 80).map(|authority| authority.to_string());
    for host in ["::1", "[::1]"] {
        assert_eq!(of(host), Ok("[::1]:80".to_owned()));
    }
    assert_eq!(of("web_1.shop"), Ok("web_1.shop:80".to_owned()));
    for bad in ["a b", "a/b", "a?b", "a\r\nb"] {
        assert_eq!(of(bad).unwrap_err(), "the host is invalid", "{bad}");
    }
}

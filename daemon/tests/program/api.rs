//! A minimal API server for one `NodeWork`: a watch, and status writes. It speaks TLS, with a certificate that its
//! kubeconfig names.

use std::{
    convert::Infallible,
    fs,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use http_body_util::{BodyExt as _, Collected, Either, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Bytes, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring},
};

use super::process::kubeconfig;

const PATH: &str = "/apis/pitstop.dev/v1alpha1/nodeworks";

/// A server that ends with the test's runtime.
pub(crate) struct Api {
    store: Arc<Mutex<Store>>,
    /// Path of its kubeconfig.
    pub(crate) kubeconfig: PathBuf,
}

/// The object and its watches.
struct Store {
    book: Value,
    version: u64,
    watches: Vec<mpsc::UnboundedSender<String>>,
}

impl Api {
    /// Serves a `NodeWork` with that name and spec. Writes its files into a folder.
    pub(crate) async fn start(folder: &Path, name: &str, spec: Value) -> Self {
        let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        fs::write(folder.join("ca.pem"), key.cert.pem()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![key.cert.der().clone()],
                key.signing_key.serialize_der().try_into().unwrap(),
            )
            .unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let authority = "    certificate-authority: ca.pem\n";
        let kubeconfig = kubeconfig(folder, &format!("https://127.0.0.1:{port}"), authority);

        let book = json!({
            "apiVersion": "pitstop.dev/v1alpha1",
            "kind": "NodeWork",
            "metadata": {"name": name, "uid": "uid-of-book", "generation": 1, "resourceVersion": "1"},
            "spec": spec,
        });
        let store = Arc::new(Mutex::new(Store { book, version: 1, watches: Vec::new() }));
        let serving = Arc::clone(&store);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, store) = (tls.clone(), Arc::clone(&serving));
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let answer = service_fn(|request| answer(Arc::clone(&store), request));
                    // Errors of a connection do not matter.
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
        Self { store, kubeconfig }
    }

    /// The status as it was last written; null before.
    pub(crate) fn status(&self) -> Value {
        self.store.lock().unwrap().book["status"].clone()
    }

    /// Adds an order to the book.
    pub(crate) fn order(&self, order: Value) {
        let mut store = self.store.lock().unwrap();
        store.book["spec"]["orders"].as_array_mut().unwrap().push(order);
        let generation = store.book["metadata"]["generation"].as_u64().unwrap() + 1;
        store.book["metadata"]["generation"] = json!(generation);
        store.changed();
    }
}

impl Store {
    /// Makes a new version, and sends it to the watches.
    fn changed(&mut self) {
        self.version += 1;
        self.book["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let line = event("MODIFIED", &self.book);
        self.watches.retain(|watch| watch.send(line.clone()).is_ok());
    }

    /// Lists by a watch, as a client with streaming lists requests it.
    fn watch(&mut self) -> Lines {
        let (sender, lines) = mpsc::unbounded_channel();
        let bookmark = json!({
            "apiVersion": "pitstop.dev/v1alpha1",
            "kind": "NodeWork",
            "metadata": {
                "resourceVersion": self.version.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"},
            },
        });
        for line in [event("ADDED", &self.book), event("BOOKMARK", &bookmark)] {
            sender.send(line).unwrap();
        }
        self.watches.push(sender);
        Lines(lines)
    }

    /// Stores a status if its version is the current one.
    fn write(&mut self, object: &Value) -> Response<Answer> {
        if object["metadata"]["resourceVersion"] != self.book["metadata"]["resourceVersion"] {
            return failure(StatusCode::CONFLICT);
        }
        self.book["status"] = object["status"].clone();
        self.changed();
        respond(StatusCode::OK, &self.book)
    }
}

type Answer = Either<Full<Bytes>, Lines>;

async fn answer(
    store: Arc<Mutex<Store>>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let query = head.uri.query().unwrap_or_default();
    let mut store = store.lock().unwrap();
    let own = format!("{PATH}/{}/status", store.book["metadata"]["name"].as_str().unwrap());
    Ok(match (&head.method, head.uri.path()) {
        (&Method::GET, PATH) if query.contains("sendInitialEvents=true") => {
            Response::new(Either::Right(store.watch()))
        }
        (&Method::PUT, path) if path == own => store.write(&serde_json::from_slice(&body).unwrap()),
        _ => failure(StatusCode::NOT_FOUND),
    })
}

/// A line of a watch. The type comes first, as servers write it: clients rely on that.
fn event(kind: &str, object: &Value) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn respond(status: StatusCode, object: &Value) -> Response<Answer> {
    let mut response = Response::new(Either::Left(Full::from(object.to_string())));
    *response.status_mut() = status;
    response
}

fn failure(status: StatusCode) -> Response<Answer> {
    let reason = status.canonical_reason().unwrap();
    let object = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status.as_u16(),
        "reason": reason, "message": reason,
    });
    respond(status, &object)
}

/// Lines that are written while the client reads.
struct Lines(mpsc::UnboundedReceiver<String>);

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line.into()))))
    }
}

//! An image registry with one image, for pulls: `HOST:PORT/good:1`. It reads only requests of containerd. It refuses
//! every name that begins with `private`, and finds no other name.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use super::images::{config, layer, sha256};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The first byte of a client that speaks TLS.
const TLS_HANDSHAKE: u8 = 22;

/// The answer of each path: media type and content.
type Pages = BTreeMap<String, (&'static str, Vec<u8>)>;

/// A running registry on the loopback interface. It ends when dropped.
pub(crate) struct Registry {
    address: SocketAddr,
    done: Arc<AtomicBool>,
    server: Option<thread::JoinHandle<()>>,
    /// Digest of the image's manifest, `sha256:...`.
    pub(crate) digest: String,
    /// Digest of the image's configuration: its ID.
    pub(crate) image_id: String,
}

impl Registry {
    pub(crate) fn start() -> Self {
        let layer = layer().unwrap();
        // Differs from the imported images, so that it is an image of its own.
        let config = config(&layer, r#""Cmd":["/bin/cat"]"#);
        let digest_of = |data: &[u8]| format!("sha256:{}", sha256(data));
        let (config_digest, layer_digest) = (digest_of(config.as_bytes()), digest_of(&layer));
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":"{MANIFEST}",
              "config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{config_digest}","size":{}}},
              "layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"{layer_digest}","size":{}}}]}}"#,
            config.len(),
            layer.len(),
        );
        let digest = digest_of(manifest.as_bytes());
        let blob = "application/octet-stream";
        let pages = Pages::from([
            ("/v2/good/manifests/1".to_owned(), (MANIFEST, manifest.clone().into_bytes())),
            (format!("/v2/good/manifests/{digest}"), (MANIFEST, manifest.into_bytes())),
            (format!("/v2/good/blobs/{config_digest}"), (blob, config.into_bytes())),
            (format!("/v2/good/blobs/{layer_digest}"), (blob, layer)),
        ]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&done);
        let server = thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                // An error means that containerd no longer wants the answer.
                let _ = answer(&stream, &pages);
            }
        });
        Self { address, done, server: Some(server), digest, image_id: config_digest }
    }

    /// The reference of an image here, for example of `good:1`.
    pub(crate) fn reference(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        // Wakes the thread.
        let _ = TcpStream::connect(self.address);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// Reads one request and answers it.
fn answer(mut stream: &TcpStream, pages: &Pages) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    if reader.fill_buf()?.first() == Some(&TLS_HANDSHAKE) {
        // As web servers do: containerd 2 then knows that the registry speaks HTTP, and asks again.
        return write!(stream, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    }
    let mut lines = reader.lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let (status, kind, body) = match pages.get(path) {
        Some((kind, body)) => ("200 OK", *kind, body.as_slice()),
        None if path.starts_with("/v2/private") => ("401 Unauthorized", "application/json", &b"{}"[..]),
        None => ("404 Not Found", "application/json", &b"{}"[..]),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    if method == "HEAD" { Ok(()) } else { stream.write_all(body) }
}

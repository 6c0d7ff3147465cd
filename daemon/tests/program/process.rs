//! A pitstop program as a process: started, asked over HTTP, and asked to stop.
//!
//! By default it is the one that cargo built. The environment can name others: `PITSTOP_TEST_PROGRAMS` is a folder with
//! programs of the same names, and `PITSTOP_TEST_RUNNER` runs them. `cargo xtask arm64` does so.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Pause between questions, and their number: a minute together, since a program may be emulated on a busy machine.
const PAUSE: Duration = Duration::from_millis(50);
const TIMES: usize = 1200;

/// A running program. Dropping it kills it, and shows its log when the test has failed.
pub(crate) struct Process {
    child: Child,
    /// Port of health and metrics.
    port: u16,
    log: PathBuf,
}

impl Process {
    /// Starts a program, which finds its API server by a kubeconfig and logs into a folder.
    pub(crate) async fn start(built: &str, folder: &Path, kubeconfig: &Path, args: &[&str]) -> Self {
        let port = free_port().await;
        let log = folder.join("log");
        let mut command = command(Path::new(built));
        let child = command
            .args(args)
            .args(["--log-level=info,pitstop=debug", "--metrics-address", &format!("127.0.0.1:{port}")])
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, port, log }
    }

    /// The body of the answer to a GET; `None` without an answer.
    pub(crate) async fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        Some(body.to_owned())
    }

    /// Waits for a good answer to a GET, and returns its body.
    pub(crate) async fn answers(&mut self, path: &str, good: impl Fn(&str) -> bool) -> String {
        for _ in 0..TIMES {
            let status = self.child.try_wait().unwrap();
            assert!(status.is_none(), "it has ended: {status:?}");
            if let Some(body) = self.get(path).await.filter(|body| good(body)) {
                return body;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("waited a minute for a good answer to {path}; the last: {:?}", self.get(path).await);
    }

    /// Asks it to stop, and waits for its end.
    pub(crate) async fn end(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        for _ in 0..TIMES {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("it does not end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("the log:\n{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// The program, or its replacement.
fn command(built: &Path) -> Command {
    let program = match env::var_os("PITSTOP_TEST_PROGRAMS") {
        Some(folder) => Path::new(&folder).join(built.file_name().unwrap()),
        None => built.to_owned(),
    };
    match env::var_os("PITSTOP_TEST_RUNNER") {
        Some(runner) => {
            let mut command = Command::new(runner);
            command.arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// A port that is free now.
pub(crate) async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

/// Writes a kubeconfig for a server without credentials. `cluster`: further fields of the cluster, each in a line of
/// YAML.
pub(crate) fn kubeconfig(folder: &Path, server: &str, cluster: &str) -> PathBuf {
    let path = folder.join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters:\n- name: c\n  cluster:\n    server: {server}\n{cluster}\
         contexts:\n- name: c\n  context: {{cluster: c, user: u}}\n\
         users:\n- name: u\n  user: {{}}\n"
    );
    fs::write(&path, text).unwrap();
    path
}

//! The client against sockets without a runtime at the other end. Has no requirements.

use std::{
    os::unix::net::UnixListener,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use pitstop_cri::{Class, ContainerId, Deadlines, Error, connect};

/// A file, a folder, a missing path, and a path too long for a socket give one kind of failure.
#[tokio::test]
async fn what_is_no_socket_is_unreachable() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a file with spaces, ü and ?#%");
    std::fs::write(&file, "").unwrap();
    for path in [file.as_path(), folder.path(), Path::new("/no/such/socket"), Path::new(&"/x".repeat(100))] {
        let runtime = connect(path, Deadlines::default()).unwrap();
        assert_eq!(runtime.socket(), path);
        let error = runtime.version().await.unwrap_err();
        assert_eq!((error.category(), error.class()), ("unreachable", Class::Retry), "{error}");
        assert!(error.to_string().starts_with(&format!("Version on {}: ", path.display())), "{error}");
    }
}

#[tokio::test]
async fn a_path_must_be_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let path = Path::new(std::ffi::OsStr::from_bytes(b"/run/\xff"));
    let error = connect(path, Deadlines::default()).unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
}

/// A runtime that accepts and then hangs: every call ends by its own deadline.
#[tokio::test]
async fn silence_ends_at_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("silent.sock");
    let _silent = UnixListener::bind(&path).unwrap();
    let short = Duration::from_millis(100);
    let deadlines =
        Deadlines { read: short, update: short, stop_margin: short, exec_margin: short, pull: short };
    let runtime = connect(&path, deadlines).unwrap();
    let id = ContainerId::parse(&"0".repeat(64)).unwrap();

    let begin = Instant::now();
    let second = Duration::from_secs(1);
    let (version, images, stop, exec) = tokio::join!(
        runtime.version(),
        runtime.list_images(),
        runtime.stop_container(&id, second),
        runtime.exec_sync(&id, vec!["/bin/true".to_owned()], second),
    );
    assert!(begin.elapsed() < Duration::from_secs(5));
    let limits = [
        (version.map(drop), short),
        (images.map(drop), short),
        (stop, second + short),
        (exec.map(drop), second + short),
    ];
    for (answer, wanted) in limits {
        let error = answer.unwrap_err();
        assert!(matches!(&error, Error::Deadline { limit, .. } if *limit == wanted), "{error}");
        assert_eq!(error.class(), Class::Retry);
    }
}

/// Garbage, and a connection that ends at once: an error each time, never a hang or a panic.
#[tokio::test]
async fn garbage_is_unreachable() {
    for greeting in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", &[0xff; 4096]] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("garbage.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            use std::io::Write as _;
            let (mut stream, _) = listener.accept().unwrap();
            // The client may be gone already.
            let _ = stream.write_all(greeting);
        });
        let runtime = connect(&path, Deadlines::default()).unwrap();
        let error = runtime.version().await.unwrap_err();
        assert_eq!((error.category(), error.class()), ("unreachable", Class::Retry), "{error:?}");
        server.join().unwrap();
    }
}

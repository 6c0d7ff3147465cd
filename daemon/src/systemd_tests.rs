use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use zbus::connection::Builder;
use zbus::zvariant::OwnedValue;
use zbus::{fdo, interface};

use super::*;

fn numbers(version: Version, setting: Setting) -> Vec<(&'static str, u64)> {
    let number = |value| match value {
        Value::U64(number) => number,
        other => panic!("{other:?}"),
    };
    properties(version, setting).into_iter().map(|(name, value)| (name, number(value))).collect()
}

#[test]
fn settings_are_systemds_properties_of_each_version() {
    use Version::{V1, V2};
    let quota = |quota, period| Setting::Quota { quota, period };
    let none = u64::MAX;
    for (version, setting, expected) in [
        (V1, Setting::Shares(1024), vec![("CPUShares", 1024)]),
        (V2, Setting::Shares(1024), vec![("CPUWeight", 39)]),
        (V2, Setting::Weight(79), vec![("CPUWeight", 79)]),
        (V1, Setting::Memory(Some(7)), vec![("MemoryLimit", 7)]),
        (V2, Setting::Memory(Some(7)), vec![("MemoryMax", 7)]),
        (V2, Setting::Memory(None), vec![("MemoryMax", none)]),
        (V2, quota(Some(50_000), 100_000), vec![("CPUQuotaPerSecUSec", 500_000)]),
        // Whole percents of a CPU, rounded up.
        (V2, quota(Some(1_500), 100_000), vec![("CPUQuotaPerSecUSec", 20_000)]),
        (V1, quota(None, 100_000), vec![("CPUQuotaPerSecUSec", none)]),
        (
            V2,
            quota(Some(25_000), 50_000),
            vec![("CPUQuotaPerSecUSec", 500_000), ("CPUQuotaPeriodUSec", 50_000)],
        ),
    ] {
        assert_eq!(numbers(version, setting), expected, "{setting:?}");
    }
}

type Calls = Arc<Mutex<Vec<(String, bool, Vec<(String, u64)>)>>>;

/// Listens at the other end instead of systemd.
struct Manager(Calls);

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    #[zbus(name = "SetUnitProperties")]
    fn set(&self, name: String, runtime: bool, properties: Vec<(String, OwnedValue)>) -> fdo::Result<()> {
        if name == "no.slice" {
            return Err(fdo::Error::UnknownProperty("no such property".into()));
        }
        let number = |value: OwnedValue| u64::try_from(value).unwrap();
        let properties = properties.into_iter().map(|(name, value)| (name, number(value))).collect();
        self.0.lock().unwrap().push((name, runtime, properties));
        Ok(())
    }
}

/// The real protocol, with another program at the other end than systemd.
#[tokio::test]
async fn systemd_is_told_over_its_own_socket() {
    let root = tempfile::tempdir().unwrap();
    let systemd = Systemd::new(root.path());
    let failure = systemd.set(Version::V2, "a.slice", Setting::Memory(None)).await.unwrap_err();
    assert!(failure.retry && failure.message.contains("run/systemd/private"), "{failure:?}");

    let path = root.path().join("run/systemd/private");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    let calls = Calls::default();
    let served = calls.clone();
    let serving = tokio::spawn(async move {
        let mut connections = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            let builder = Builder::unix_stream(stream).server(zbus::Guid::generate()).unwrap().p2p();
            let builder = builder.serve_at("/org/freedesktop/systemd1", Manager(served.clone())).unwrap();
            connections.push(builder.build().await.unwrap());
        }
    });
    systemd.set(Version::V2, "kubepods-pod1.slice", Setting::Memory(Some(7))).await.unwrap();
    let expected = ("kubepods-pod1.slice".to_owned(), true, vec![("MemoryMax".to_owned(), 7)]);
    assert_eq!(*calls.lock().unwrap(), [expected]);
    let failure = systemd.set(Version::V2, "no.slice", Setting::Memory(None)).await.unwrap_err();
    assert!(!failure.retry, "{failure:?}");
    assert!(
        failure.message.contains("no.slice") && failure.message.contains("no such property"),
        "{failure:?}"
    );
    serving.abort();
}

/// systemd's answer, byte for byte: its well-known name as the sender, and a signal before it.
#[tokio::test]
async fn systemds_own_name_as_the_sender_is_taken() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let call = message("a.slice", properties(Version::V2, Setting::Memory(None))).unwrap();
    let (serial, length) = (call.primary_header().serial_num().get(), call.data().len());
    let calling = tokio::spawn(async move { private::call(ours, &call).await });

    let mut line = [0; 64];
    let read = theirs.read(&mut line).await.unwrap();
    assert!(line[..read].starts_with(b"\0AUTH EXTERNAL "), "{:?}", &line[..read]);
    theirs.write_all(b"OK 0123456789abcdef0123456789abcdef\r\n").await.unwrap();
    let mut received = vec![0; b"BEGIN\r\n".len() + length];
    theirs.read_exact(&mut received).await.unwrap();
    assert!(received.starts_with(b"BEGIN\r\n"));

    let sender = Value::from("org.freedesktop.systemd1");
    let signal = vec![(2_u8, Value::from("a.b")), (3, Value::from("C")), (7, sender.try_clone().unwrap())];
    theirs.write_all(&bytes(4, signal)).await.unwrap();
    theirs.write_all(&bytes(2, vec![(5, Value::U32(serial)), (7, sender)])).await.unwrap();
    calling.await.unwrap().unwrap();
}

/// A message without a body.
fn bytes(kind: u8, fields: Vec<(u8, Value<'_>)>) -> Vec<u8> {
    let header = (b'l', kind, 1_u8, 1_u8, 0_u32, 9_u32, fields);
    let context = zbus::zvariant::serialized::Context::new_dbus(zbus::zvariant::Endian::Little, 0);
    let mut bytes = zbus::zvariant::to_bytes(context, &header).unwrap().to_vec();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

#[tokio::test]
async fn what_is_no_answer_is_said() {
    for (sent, expected) in [
        (&b"REJECTED EXTERNAL\r\n"[..], "it answered \"REJECTED EXTERNAL\""),
        (&[b'x'; 2000], "its first line is too long"),
        (b"OK 0\r\nl\x02\0\x01\xff\xff\xff\xff\x01\0\0\0\0\0\0\0", "a message that is too long"),
        (b"OK 0\r\n", "early eof"),
    ] {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let call = message("a.slice", Vec::new()).unwrap();
        let calling = tokio::spawn(async move { private::call(ours, &call).await });
        theirs.write_all(sent).await.unwrap();
        theirs.shutdown().await.unwrap();
        let failure = calling.await.unwrap().unwrap_err();
        assert!(matches!(&failure, Failure::Broken(why) if why.contains(expected)), "{failure:?}");
    }
}

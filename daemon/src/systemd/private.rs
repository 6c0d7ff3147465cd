//! One call over systemd's private socket, which has no other peer.
//!
//! zbus builds the message, but cannot hold this connection. systemd gives its well-known name as the sender of its
//! answers (`sd_bus_set_sender` in `src/core/dbus.c`), where zbus (5.19) expects a unique name, and panics.

use std::fmt::Write as _;
use std::io;

use nix::unistd::Uid;
use pitstop_api::text::quoted;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use zbus::message::Message;
use zbus::zvariant::serialized::{Context, Data};
use zbus::zvariant::{Endian, Value};

/// Most bytes of a message; systemd answers in a few hundred.
const LONGEST: usize = 1 << 20;
/// Most bytes of a line before the first message.
const LINE: usize = 1024;
/// Bytes of a header that are always there; the last four are the length of its fields.
const START: usize = 16;
/// Kinds of messages: an answer, and an error.
const RETURN: u8 = 2;
const ERROR: u8 = 3;
/// Fields of a header.
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// A broken connection, or an invalid message.
    Broken(String),
    /// An error as the answer: its name and message.
    Refused { name: String, text: String },
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Broken(pitstop_kit::describe(&error))
    }
}

fn broken(what: impl Into<String>) -> Failure {
    Failure::Broken(what.into())
}

/// Makes a call over a fresh connection, and waits for its answer.
pub(super) async fn call(mut stream: UnixStream, call: &Message) -> Result<(), Failure> {
    authenticate(&mut stream).await?;
    stream.write_all(call.data()).await?;
    let serial = call.primary_header().serial_num().get();
    loop {
        if let Some(answer) = answer(&receive(&mut stream).await?, serial)? {
            return answer;
        }
    }
}

/// Authenticates as this user, whom the kernel has already named to the other end.
async fn authenticate(stream: &mut UnixStream) -> Result<(), Failure> {
    // The digits of the user's ID, in hexadecimal.
    let mut request = "\0AUTH EXTERNAL ".to_owned();
    for digit in Uid::effective().to_string().bytes() {
        // Writing to a String cannot fail.
        let _ = write!(request, "{digit:02x}");
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        if line.len() == LINE {
            return Err(broken("its first line is too long"));
        }
        line.push(stream.read_u8().await?);
    }
    if !line.starts_with(b"OK ") {
        return Err(broken(format!("it answered {}", quoted(String::from_utf8_lossy(&line).trim_end()))));
    }
    stream.write_all(b"BEGIN\r\n").await?;
    Ok(())
}

/// Reads the next whole message.
async fn receive(stream: &mut UnixStream) -> Result<Vec<u8>, Failure> {
    let mut message = vec![0; START];
    stream.read_exact(&mut message).await?;
    let number = |at: usize| -> Option<usize> {
        let bytes: [u8; 4] = message.get(at..at + 4)?.try_into().ok()?;
        let number = if message.first() == Some(&b'B') {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        };
        usize::try_from(number).ok()
    };
    let (body, fields) = number(4).zip(number(12)).ok_or_else(|| broken("a header without lengths"))?;
    let rest = fields.checked_next_multiple_of(8).and_then(|fields| fields.checked_add(body));
    let rest = rest.filter(|rest| *rest <= LONGEST).ok_or_else(|| broken("a message that is too long"))?;
    message.resize(START + rest, 0);
    let (_, unread) = message.split_at_mut(START);
    stream.read_exact(unread).await?;
    Ok(message)
}

/// The answer in a message to the call with that serial number; `None` if it belongs to another.
fn answer(message: &[u8], serial: u32) -> Result<Option<Result<(), Failure>>, Failure> {
    type Header<'m> = (u8, u8, u8, u8, u32, u32, Vec<(u8, Value<'m>)>);
    let endian = if message.first() == Some(&b'B') { Endian::Big } else { Endian::Little };
    let unread = |error| broken(format!("a message that cannot be read: {}", pitstop_kit::describe(&error)));
    let data = Data::new(message, Context::new_dbus(endian, 0));
    let (header, read): (Header<'_>, usize) = data.deserialize().map_err(unread)?;
    let (_, kind, .., fields) = header;
    let field = |code| fields.iter().find(|(one, _)| *one == code).map(|(_, value)| value);
    if !matches!(field(REPLY_SERIAL), Some(Value::U32(one)) if *one == serial) {
        return Ok(None);
    }
    match kind {
        RETURN => Ok(Some(Ok(()))),
        ERROR => {
            let name = match field(ERROR_NAME) {
                Some(Value::Str(name)) => name.to_string(),
                _ => String::new(),
            };
            // The error message is the first value of the body, if any.
            let body = message.get(read.next_multiple_of(8)..).unwrap_or_default();
            let text = Data::new(body, Context::new_dbus(endian, 0)).deserialize::<String>();
            let text = text.map(|(text, _)| text).unwrap_or_default();
            Ok(Some(Err(Failure::Refused { name, text })))
        }
        _ => Ok(None),
    }
}

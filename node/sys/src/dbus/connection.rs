//! A connection to a bus: it begins with the user's id, and then sends calls one at a time.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use machinery_runtime::Runtime;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use super::address;
use super::message::{self, Call, HEAD, Kind, Malformed, Message};
use super::value::Value;

/// Time limit for an answer; then the connection is unusable.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Unread signals that are kept; the oldest of more are dropped.
const SIGNALS_MAX: usize = 32;
/// Files that come with a message, the bus's own bound.
const FILES_MAX: usize = 16;
/// Files that the kernel hands over at once, its `SCM_MAX_FD`.
const FILES_OF_THE_KERNEL: usize = 253;
/// Bytes of a line before the first message.
const LINE_MAX: usize = 512;
/// Bytes that are read at once.
const PIECE: usize = 4096;
/// Characters of another's text that an error has.
const TEXT_MAX: usize = 200;

/// Failure of a connection or a call.
#[derive(Debug, thiserror::Error)]
pub enum DbusError {
    /// The address names no socket of this machine.
    #[error("no address of a D-Bus socket")]
    NoAddress,
    /// Nothing listens there, or the connection is lost.
    #[error("no connection to D-Bus")]
    Connection(#[from] io::Error),
    /// The bus does not know this user, or passes no files.
    #[error("D-Bus refused the connection")]
    Refused,
    /// No answer in time.
    #[error("no answer over D-Bus in time")]
    TimedOut,
    /// The bus sent bytes that are no message, or too large a one.
    #[error("malformed D-Bus message")]
    Malformed,
    /// The service answers with an error.
    #[error("{name}: {text}")]
    Answer {
        /// Name of the error.
        name: String,
        /// The service's message, cut.
        text: String,
    },
}

impl From<Malformed> for DbusError {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

/// The answer of a call.
#[derive(Debug)]
pub struct Reply {
    /// Its values.
    pub values: Vec<Value>,
    /// Files that came with it.
    pub files: Vec<OwnedFd>,
}

/// See the module. Dropped, it ends.
#[derive(Debug)]
pub struct Connection {
    runtime: Runtime,
    stream: UnixStream,
    serial: u32,
    /// The message that is being received, and its files.
    incoming: Vec<u8>,
    files: Vec<OwnedFd>,
    signals: VecDeque<Message>,
}

impl Connection {
    /// Connects to the first socket of the address that takes it.
    ///
    /// # Errors
    /// None does, or the bus refuses it.
    pub async fn open(runtime: Runtime, address: &str) -> Result<Self, DbusError> {
        let opening = Self::connect(runtime.clone(), address);
        let opened = runtime.timeout(ANSWER_WITHIN, opening).await;
        opened.map_err(|_| DbusError::TimedOut)?
    }

    async fn connect(runtime: Runtime, address: &str) -> Result<Self, DbusError> {
        let mut failure = DbusError::NoAddress;
        for socket in address::sockets(address) {
            // A bus that takes no more connections is an error at once: waiting for it would hold up the thread.
            match UnixStream::connect_addr(&socket.into()).await {
                Ok(stream) => return Self::begin(runtime, stream).await,
                Err(error) => failure = error.into(),
            }
        }
        Err(failure)
    }

    async fn begin(runtime: Runtime, mut stream: UnixStream) -> Result<Self, DbusError> {
        let uid = nix::unistd::geteuid().to_string();
        let uid: String = uid.bytes().map(|digit| format!("{digit:02x}")).collect();
        let steps = [
            (format!("\0AUTH EXTERNAL {uid}\r\n"), "OK "),
            ("NEGOTIATE_UNIX_FD\r\n".to_owned(), "AGREE_UNIX_FD"),
        ];
        for (line, expected) in steps {
            stream.write_all(line.as_bytes()).await?;
            if !read_line(&mut stream).await?.starts_with(expected.as_bytes()) {
                return Err(DbusError::Refused);
            }
        }
        stream.write_all(b"BEGIN\r\n").await?;
        let mut connection = Self {
            runtime,
            stream,
            serial: 0,
            incoming: Vec::new(),
            files: Vec::new(),
            signals: VecDeque::new(),
        };
        connection.call_bus("Hello", &[]).await?;
        Ok(connection)
    }

    /// Calls a method of the bus itself.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn call_bus(&mut self, member: &str, arguments: &[Value]) -> Result<Reply, DbusError> {
        let call = Call {
            destination: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member,
            arguments,
        };
        self.call(call).await
    }

    /// Calls a method and waits for its answer. Signals that come before it are kept.
    ///
    /// # Errors
    /// The service answers with one, or nothing in time: then the connection is of no more use.
    pub async fn call(&mut self, call: Call<'_>) -> Result<Reply, DbusError> {
        let runtime = self.runtime.clone();
        let answer = runtime.timeout(ANSWER_WITHIN, self.answer(call)).await;
        answer.map_err(|_| DbusError::TimedOut)?
    }

    async fn answer(&mut self, call: Call<'_>) -> Result<Reply, DbusError> {
        // Zero is no serial (specification, "Header").
        self.serial = self.serial.wrapping_add(1).max(1);
        self.stream.write_all(&call.encode(self.serial)).await?;
        loop {
            let (message, files) = self.receive().await?;
            let is_answer = message.reply_serial == Some(self.serial);
            match message.kind {
                Kind::Signal => self.keep_signal(message),
                Kind::Return if is_answer => {
                    let values = message.values;
                    return Ok(Reply { values, files });
                }
                Kind::Error if is_answer => return Err(error_of(message)),
                _ => {}
            }
        }
    }

    fn keep_signal(&mut self, signal: Message) {
        if self.signals.len() >= SIGNALS_MAX {
            self.signals.pop_front();
        }
        self.signals.push_back(signal);
    }

    /// The next signal. It can be dropped at any time: nothing is lost.
    ///
    /// # Errors
    /// The connection is lost, or the bus breaks the specification.
    pub async fn next_signal(&mut self) -> Result<Message, DbusError> {
        loop {
            if let Some(signal) = self.signals.pop_front() {
                return Ok(signal);
            }
            let (message, _files) = self.receive().await?;
            if message.kind == Kind::Signal {
                self.keep_signal(message);
            }
        }
    }

    /// Receives a whole message with its files. The part that has come stays here if this is dropped.
    async fn receive(&mut self) -> Result<(Message, Vec<OwnedFd>), DbusError> {
        loop {
            let whole = match self.incoming.len() {
                0..HEAD => HEAD,
                _ => message::length(&self.incoming)?,
            };
            let missing = whole - self.incoming.len();
            if missing == 0 && whole > HEAD {
                let bytes = std::mem::take(&mut self.incoming);
                let files = std::mem::take(&mut self.files);
                return Ok((message::decode(&bytes)?, files));
            }
            if missing == 0 {
                // Header fields are required: nothing of this length is a message.
                return Err(DbusError::Malformed);
            }
            let mut piece = vec![0; missing.min(PIECE)];
            let (count, files) = self
                .stream
                .async_io(Interest::READABLE, || receive_some(&self.stream, &mut piece))
                .await?;
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            self.incoming.extend(&piece[..count]);
            self.files.extend(files);
            if self.files.len() > FILES_MAX {
                return Err(DbusError::Malformed);
            }
        }
    }
}

/// Reads a line, one byte at a time: nothing behind it is taken.
async fn read_line(stream: &mut UnixStream) -> Result<Vec<u8>, DbusError> {
    let mut line = Vec::new();
    while line.len() < LINE_MAX {
        match stream.read_u8().await? {
            b'\n' => return Ok(line),
            byte => line.push(byte),
        }
    }
    Err(DbusError::Malformed)
}

/// Reads bytes and the files that come with them, none of which is ever passed on to a program that starts.
fn receive_some(stream: &UnixStream, piece: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut room = nix::cmsg_space!([RawFd; FILES_OF_THE_KERNEL]);
    let mut pieces = [IoSliceMut::new(piece)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let received = recvmsg::<()>(stream.as_raw_fd(), &mut pieces, Some(&mut room), flags)?;
    let mut files = Vec::new();
    for control in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(handles) = control {
            files.extend(handles.into_iter().map(owned));
        }
    }
    Ok((received.bytes, files))
}

fn owned(handle: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just made it for this process, and nothing else knows its number.
    #[expect(unsafe_code, reason = "handles come from the kernel as numbers")]
    unsafe {
        OwnedFd::from_raw_fd(handle)
    }
}

fn error_of(message: Message) -> DbusError {
    let text = message.values.into_iter().find_map(|value| match value {
        Value::Text(text) => Some(text),
        _ => None,
    });
    DbusError::Answer {
        name: printable(&message.error_name.unwrap_or_default()),
        text: printable(&text.unwrap_or_default()),
    }
}

/// The beginning of another's text, without what would break a line of the log.
fn printable(text: &str) -> String {
    let shown = |character: char| if character.is_control() { ' ' } else { character };
    text.chars().take(TEXT_MAX).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    const RETURN_OF_HELLO: [u8; 24] = [
        b'l', 2, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 5, 1, b'u', 0, 1, 0, 0, 0,
    ];

    /// Opens a connection to a bus that says these bytes after its two lines.
    async fn opened(bytes: Vec<u8>, lines: [&'static str; 2]) -> Result<Connection, DbusError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bus");
        let listener = UnixListener::bind(&path).unwrap();
        #[expect(clippy::disallowed_methods, reason = "a bus of the test, which blocks")]
        let bus = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut begun = Vec::new();
            for (line, end) in lines.into_iter().zip(["AUTH EXTERNAL ", "NEGOTIATE_UNIX_FD"]) {
                let mut piece = [0; 256];
                let count = stream.read(&mut piece).unwrap();
                begun.extend(&piece[..count]);
                assert!(String::from_utf8_lossy(&begun).contains(end), "{begun:?}");
                stream.write_all(line.as_bytes()).unwrap();
                if !line.starts_with("OK") && !line.starts_with("AGREE") {
                    return;
                }
            }
            let _ = stream.write_all(&bytes);
            let mut rest = Vec::new();
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut rest);
        });
        let address = format!("unix:path={}", path.display());
        let opened = Connection::open(Runtime::real(), &address).await;
        if opened.is_err() {
            bus.join().unwrap();
        }
        opened
    }

    const LINES: [&str; 2] = ["OK 0123\r\n", "AGREE_UNIX_FD\r\n"];

    #[tokio::test]
    async fn dbus_connection_begins_with_the_user_and_says_hello() {
        assert!(opened(RETURN_OF_HELLO.to_vec(), LINES).await.is_ok());
        let refused = opened(Vec::new(), ["REJECTED EXTERNAL\r\n", ""]).await;
        assert!(matches!(refused, Err(DbusError::Refused)), "{refused:?}");
        let no_files = opened(Vec::new(), ["OK 0123\r\n", "ERROR\r\n"]).await;
        assert!(matches!(no_files, Err(DbusError::Refused)), "{no_files:?}");
    }

    #[tokio::test]
    async fn dbus_connection_to_a_bus_that_takes_none_fails_without_a_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bus");
        let listener = UnixListener::bind(&path).unwrap();
        let mut waiting = Vec::new();
        // The bus accepts nothing, as one that is stopped: here its queue is full.
        let refused = loop {
            match UnixStream::connect(&path).await {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        #[expect(clippy::disallowed_methods, reason = "ends a wait that should not be")]
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(60));
            let _ = listener.accept();
        });
        let address = format!("unix:path={}", path.display());
        let opened = Connection::open(Runtime::real(), &address).now_or_never();
        let refused = opened.expect("nothing is waited for");
        let Err(DbusError::Connection(refused)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }

    #[tokio::test]
    async fn dbus_connection_ends_at_bytes_that_are_no_message() {
        let large = [&[b'l', 2, 1, 1][..], &[0xff; 12]].concat();
        let empty = [&[b'l', 2, 1, 1][..], &[0; 12]].concat();
        for bytes in [b"HTTP/1.1 200 OK\r\n".to_vec(), large, empty] {
            let ended = opened(bytes, LINES).await;
            assert!(matches!(ended, Err(DbusError::Malformed)), "{ended:?}");
        }
        let ended = opened(RETURN_OF_HELLO[..20].to_vec(), LINES).await;
        assert!(matches!(ended, Err(DbusError::Connection(_))), "{ended:?}");
    }

    #[tokio::test]
    async fn dbus_signals_that_nobody_reads_are_bounded() {
        // Signals of members "0" to "9" and so on, with nothing else.
        let signal = |number: u8| {
            let mut bytes = vec![b'l', 4, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 10, 0, 0, 0];
            bytes.extend([3, 1, b's', 0, 1, 0, 0, 0, number, 0, 0, 0, 0, 0, 0, 0]);
            bytes
        };
        let many = u8::try_from(SIGNALS_MAX).unwrap() + 8;
        let mut bytes: Vec<u8> = (1..=many).flat_map(signal).collect();
        bytes.extend(RETURN_OF_HELLO);
        let mut connection = opened(bytes, LINES).await.unwrap();
        assert_eq!(connection.signals.len(), SIGNALS_MAX);
        let oldest = connection.next_signal().await.unwrap();
        assert_eq!(oldest.member.as_deref(), Some("\u{9}"));
    }
}

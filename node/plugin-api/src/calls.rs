//! A call, from the client's side and from the server's.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::uri::PathAndQuery;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tonic::body::Body;
use tonic::transport::{Endpoint, Uri};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use crate::authority::Readable;

/// Carries calls to a program: over its socket, or to the program itself.
pub type Transport = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Status>;

/// Calls of one connection that are served at once.
const CALLS_MAX: u32 = 16;
/// All headers of a call together.
const HEAD_BYTES_MAX: u32 = 16 << 10;
/// Bytes of a call that lie unread.
const WINDOW_BYTES: u32 = 64 << 10;

/// Connects to the program behind a socket.
///
/// # Errors
/// Nothing listens there.
pub async fn connect(socket: &Path) -> Result<Transport, Status> {
    Ok(open(socket).await?.0)
}

/// A connection that is made once.
#[derive(Debug)]
pub struct Connection {
    /// Its calls. After its end each of them makes another connection.
    pub transport: Transport,
    /// Ends with the connection, without a call that would find out.
    pub ended: Ended,
}

/// The end of a connection.
#[derive(Debug)]
pub struct Ended(oneshot::Receiver<()>);

/// Held by a connection; it ends when it is dropped.
#[derive(Debug)]
pub struct Live {
    _sender: oneshot::Sender<()>,
}

impl Ended {
    /// The end of a connection that is there as long as the other value is.
    pub fn of_live() -> (Live, Self) {
        let (sender, ended) = oneshot::channel();
        (Live { _sender: sender }, Self(ended))
    }

    /// Waits for it.
    pub async fn wait(&mut self) {
        let _ = (&mut self.0).await;
    }
}

/// Connects to the program behind a socket, and says when the connection ends.
///
/// # Errors
/// Nothing listens there.
pub async fn connect_once(socket: &Path) -> Result<Connection, Status> {
    let (transport, ended) = open(socket).await?;
    Ok(Connection { transport, ended })
}

async fn open(socket: &Path) -> Result<(Transport, Ended), Status> {
    let failed = |error: tonic::transport::Error| Status::from_error(error.into());
    let path = socket.to_owned();
    let (live, ended) = Ended::of_live();
    // The first connection's: what is made later has another end, of which nothing is known here.
    let first = Arc::new(Mutex::new(Some(live)));
    let connector = tower::service_fn(move |_: Uri| {
        let (path, first) = (path.clone(), Arc::clone(&first));
        async move {
            let stream = UnixStream::connect(path).await?;
            let live = first.lock().ok().and_then(|mut first| first.take());
            Ok::<_, std::io::Error>(Held {
                stream: TokioIo::new(stream),
                _live: live,
            })
        }
    });
    // As upstream's: servers in Go refuse a socket's path for an authority.
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await.map_err(failed)?;
    Ok((Transport::new(channel.map_err(failed)), ended))
}

/// A stream, and the word of its end.
struct Held {
    stream: TokioIo<UnixStream>,
    _live: Option<Live>,
}

impl hyper::rt::Read for Held {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl hyper::rt::Write for Held {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Answers the calls of a connection until it ends.
///
/// # Errors
/// The other side breaks the protocol.
pub async fn serve(stream: UnixStream, service: Transport) -> Result<(), hyper::Error> {
    let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        service.clone().oneshot(request.map(Body::new))
    });
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(CALLS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .serve_connection(Readable::new(TokioIo::new(stream)), service)
        .await
}

/// Makes one call; an answer of more than `bytes_max` is refused.
///
/// # Errors
/// The status of a call that failed.
pub async fn call<Input, Answer>(
    transport: &Transport,
    path: &'static str,
    input: Input,
    bytes_max: usize,
) -> Result<Answer, Status>
where
    Input: Message + 'static,
    Answer: Message + Default + 'static,
{
    let mut client = tonic::client::Grpc::new(transport.clone()).max_decoding_message_size(bytes_max);
    client.ready().await?;
    let codec = ProstCodec::<Input, Answer>::default();
    let answer = client
        .unary(Request::new(input), PathAndQuery::from_static(path), codec)
        .await?;
    Ok(answer.into_inner())
}

/// Makes a call whose answers come one after another, each of at most `bytes_max`.
///
/// # Errors
/// The status of a call that failed.
pub async fn follow<Input, Answer>(
    transport: &Transport,
    path: &'static str,
    input: Input,
    bytes_max: usize,
) -> Result<Streaming<Answer>, Status>
where
    Input: Message + 'static,
    Answer: Message + Default + 'static,
{
    let mut client = tonic::client::Grpc::new(transport.clone()).max_decoding_message_size(bytes_max);
    client.ready().await?;
    let codec = ProstCodec::<Input, Answer>::default();
    let answers = client
        .server_streaming(Request::new(input), PathAndQuery::from_static(path), codec)
        .await?;
    Ok(answers.into_inner())
}

/// Answers one call whose message has at most `bytes_max`.
pub async fn answer<Input, Answer, F, A>(
    request: http::Request<Body>,
    bytes_max: usize,
    handle: F,
) -> http::Response<Body>
where
    Input: Message + Default + Send + 'static,
    Answer: Message + Send + 'static,
    F: Fn(Input) -> A + Send,
    A: Future<Output = Result<Answer, Status>> + Send,
{
    let handle = |input: Request<Input>| {
        let answer = handle(input.into_inner());
        async move { answer.await.map(Response::new) }
    };
    tonic::server::Grpc::new(ProstCodec::<Answer, Input>::default())
        .max_decoding_message_size(bytes_max)
        .unary(tower::service_fn(handle), request)
        .await
}

/// Answers a call that no service here has.
pub fn unknown() -> http::Response<Body> {
    Status::unimplemented("unknown service or method").into_http()
}

/// A failed call as upstream prints it: `rpc error: code = X desc = Y`.
pub fn rpc_text(status: &Status) -> String {
    let (code, message) = (code_name(status.code()), status.message());
    format!("rpc error: code = {code} desc = {message}")
}

/// A code as Go spells it.
pub fn code_name(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    }
}

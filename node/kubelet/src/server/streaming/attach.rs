//! attach: to the container's own process, through the runtime's streaming server, which holds its pipes.
//!
//! The runtime speaks SPDY there, in which input can be half-closed.

use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use machinery_runtime::Runtime;
use node_cri::v1;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::super::query::Query;
use super::super::response::Body;
use super::channels::{Channels, Input, Output, failure, verdict};
use super::session::{self, Session, Target};
use super::spdy::session::{SpdySession, SpdyStream};
use super::stream_slots::StreamSlot;
use crate::managers::ManagerContext;
use crate::pods::container_named::container_named;

pub(in crate::server) async fn attach(
    context: &ManagerContext,
    slot: StreamSlot,
    request: Request<Incoming>,
    target: Target<'_>,
    query: &Query,
) -> Response<Body> {
    // Whether there is a terminal was decided when the container was made.
    let found = context.pods.find(target.namespace, target.pod);
    let tty = found
        .as_deref()
        .and_then(|pod| container_named(pod, target.container))
        .is_some_and(|(_, container)| container.tty == Some(true));
    let talk = move |mut session: Session| async move {
        session.wanted.tty = tty;
        session.wanted.stderr &= !tty;
        match join(session).await {
            Ok(()) => verdict(0),
            Err(message) => failure(&message),
        }
    };
    session::open(context, slot, request, target, query, talk).await
}

/// Joins the client to the runtime's streaming server until either has ended.
async fn join(session: Session) -> Result<(), String> {
    let Session {
        context,
        container_id,
        wanted,
        channels,
    } = session;
    let runtime = &context.runtime;
    let request = v1::AttachRequest {
        container_id,
        stdin: wanted.stdin,
        tty: wanted.tty,
        stdout: wanted.stdout,
        stderr: wanted.stderr,
    };
    let answer = context.workers.control.cri.attach(request).await;
    let url = answer.map_err(|error| error.message())?.url;
    let mut session = connect(runtime, &url).await?;
    let error = open(&mut session, "error").await?;
    let stdin = open_if(wanted.stdin, &mut session, "stdin").await?;
    let stdout = open_if(wanted.stdout, &mut session, "stdout").await?;
    let stderr = open_if(wanted.stderr, &mut session, "stderr").await?;
    let resize = open_if(wanted.tty, &mut session, "resize").await?;
    let Channels { input, output } = channels;
    let outputs = async {
        tokio::join!(
            copy(stdout, output.clone(), Output::Stdout),
            copy(stderr, output.clone(), Output::Stderr)
        );
    };
    let ended = verdict_of(error);
    let fed = feed(input, stdin, resize);
    tokio::pin!(outputs, fed, ended);
    let outcome = tokio::select! {
        biased;
        outcome = &mut ended => {
            let _ = runtime.timeout(std::time::Duration::from_secs(1), &mut outputs).await;
            outcome
        }
        () = &mut outputs => Ok(()),
        () = &mut fed => Ok(()),
        () = output.closed() => Ok(()),
    };
    drop(session);
    outcome
}

async fn open(session: &mut SpdySession, kind: &str) -> Result<SpdyStream, String> {
    session
        .open(&[("streamtype", kind)])
        .await
        .ok_or_else(|| "the runtime ended the connection".to_string())
}

async fn open_if(wanted: bool, session: &mut SpdySession, kind: &str) -> Result<Option<SpdyStream>, String> {
    match wanted {
        true => open(session, kind).await.map(Some),
        false => Ok(None),
    }
}

/// Upgrades a connection to the runtime's streaming server.
async fn connect(runtime: &Runtime, url: &str) -> Result<SpdySession, String> {
    let uri: http::Uri = url
        .parse()
        .map_err(|_| "the runtime gave an unreadable address".to_string())?;
    let address = uri
        .authority()
        .ok_or("the runtime gave an address without a host")?
        .to_string();
    let stream = TcpStream::connect(&address)
        .await
        .map_err(|error| error.to_string())?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    runtime.spawn("attach connection", async move {
        // How it ended is seen by the session on it.
        let _ = connection.with_upgrades().await;
    });
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::post(path)
        .header("host", &address)
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .header("x-stream-protocol-version", "v4.channel.k8s.io")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let response = sender
        .send_request(request)
        .await
        .map_err(|error| error.to_string())?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(format!("the runtime answered {}", response.status()));
    }
    let upgraded = hyper::upgrade::on(response)
        .await
        .map_err(|error| error.to_string())?;
    Ok(SpdySession::client(runtime, TokioIo::new(upgraded)))
}

async fn copy(from: Option<SpdyStream>, to: mpsc::Sender<Output>, wrap: fn(Bytes) -> Output) {
    let Some(mut from) = from else { return };
    while let Some(piece) = from.read().await {
        if to.send(wrap(piece)).await.is_err() {
            return;
        }
    }
}

async fn feed(mut input: mpsc::Receiver<Input>, stdin: Option<SpdyStream>, resize: Option<SpdyStream>) {
    while let Some(piece) = input.recv().await {
        match piece {
            Input::Stdin(data) => {
                if let Some(stream) = &stdin {
                    stream.writer().write(data).await;
                }
            }
            Input::StdinEnd => {
                if let Some(stream) = &stdin {
                    stream.writer().finish().await;
                }
            }
            Input::Resize { width, height } => {
                if let Some(stream) = &resize {
                    let text = format!("{{\"Width\":{width},\"Height\":{height}}}\n");
                    stream.writer().write(text.into()).await;
                }
            }
        }
    }
}

/// Reads the runtime's final error; none is success.
async fn verdict_of(mut error: SpdyStream) -> Result<(), String> {
    let mut text = BytesMut::new();
    while let Some(piece) = error.read().await {
        text.extend_from_slice(&piece);
    }
    let value: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    match value["status"].as_str() {
        Some("Failure") => Err(value["message"].as_str().unwrap_or("attach failed").to_string()),
        _ => Ok(()),
    }
}

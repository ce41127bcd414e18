//! port-forward: SPDY streams joined to connections inside the pod's network namespace.
//!
//! For each forwarded connection the client opens an error stream and a data stream with the same
//! request id. The SPDY connection is the upgraded one itself, or comes in the messages of a WebSocket. Clients that
//! speak no SPDY at all have [`port_channels`].

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use machinery_meta::dial::dial_error;
use machinery_runtime::Runtime;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use super::super::routes::{Body, Query, text};
use super::spdy::session::{SpdySession, SpdyStream};
use super::stream_slots::StreamSlot;
use super::upgrade::{Accepted, Carrier, Taken, accept};
use super::websocket::Framing;
use super::{port_channels, websocket};
use crate::managers::ManagerContext;
use crate::pods::observed::observe;
use crate::pods::{spec, uid};

/// SPDY inside a WebSocket; the others have channels, two to a port.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const WEB_SOCKET_PROTOCOLS: &[&str] = &[TUNNEL, "v4.channel.k8s.io", "v4.base64.channel.k8s.io", ""];
const SPDY_PROTOCOLS: &[&str] = &["portforward.k8s.io"];
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const CHUNK_BYTES: usize = 32 << 10;
/// Halves of connections waiting for their other half.
const HALVES_MAX: usize = 256;

pub(in crate::server) async fn port_forward(
    context: &ManagerContext,
    slot: StreamSlot,
    mut request: Request<Incoming>,
    namespace: &str,
    pod: &str,
) -> Response<Body> {
    let network = match network_of(context, namespace, pod).await {
        Ok(network) => network,
        Err(response) => return *response,
    };
    let accepted = match accept(&mut request, WEB_SOCKET_PROTOCOLS, SPDY_PROTOCOLS) {
        Ok(accepted) => accepted,
        Err(response) => return *response,
    };
    let Accepted {
        carrier,
        protocol,
        connection,
        response,
    } = accepted;
    let has_channels = carrier == Carrier::WebSocket && protocol != TUNNEL;
    let ports = match has_channels {
        true => port_channels::ports(&Query::parse(request.uri().query().unwrap_or_default())),
        false => Ok(Vec::new()),
    };
    let ports = match ports {
        Ok(ports) => ports,
        Err(refusal) => return text(StatusCode::BAD_REQUEST, refusal),
    };
    let runtime = context.runtime.clone();
    runtime.clone().spawn("port-forward session", async move {
        let _slot = slot;
        let Ok(connection) = connection.await else { return };
        let connection = TokioIo::new(connection);
        let session = match carrier {
            Carrier::Spdy => SpdySession::server(&runtime, connection),
            Carrier::WebSocket if has_channels => {
                let framing = Framing::of(protocol);
                return port_channels::serve(&runtime, connection, framing, &ports, network).await;
            }
            Carrier::WebSocket => SpdySession::server(&runtime, tunnel(&runtime, connection).await),
        };
        serve(&runtime, session, network).await;
    });
    response
}

/// The network namespace of a running pod; `None` is the node's own.
async fn network_of(
    context: &ManagerContext,
    namespace: &str,
    pod: &str,
) -> Result<Option<PathBuf>, Box<Response<Body>>> {
    let answer = |status, message: String| Box::new(text(status, message));
    let not_found = || answer(StatusCode::NOT_FOUND, "pod does not exist".into());
    let pod = context.pods.find(namespace, pod).ok_or_else(not_found)?;
    if spec(&pod).host_network == Some(true) {
        return Ok(None);
    }
    let cri = &context.workers.control.cri;
    let failed = |error: node_cri::CriError| answer(StatusCode::INTERNAL_SERVER_ERROR, error.message());
    let observed = observe(&context.runtime, cri, uid(&pod)).await.map_err(failed)?;
    let sandbox = observed.sandbox().filter(|sandbox| sandbox.ready);
    let sandbox = sandbox.ok_or_else(|| answer(StatusCode::NOT_FOUND, "pod does not run".into()))?;
    let request = node_cri::v1::PodSandboxStatusRequest {
        pod_sandbox_id: sandbox.id.clone(),
        verbose: true,
    };
    let status = cri.pod_sandbox_status(request).await.map_err(failed)?;
    // containerd tells the pause process's pid in its verbose answer; its namespace is the pod's.
    let info: serde_json::Value = status
        .info
        .get("info")
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let pid = info["pid"].as_u64().ok_or_else(|| {
        answer(
            StatusCode::INTERNAL_SERVER_ERROR,
            "pod has no network namespace".into(),
        )
    })?;
    Ok(Some(PathBuf::from(format!("/proc/{pid}/ns/net"))))
}

/// The byte stream that a WebSocket's messages make up.
async fn tunnel(runtime: &Runtime, connection: Taken) -> DuplexStream {
    let socket = websocket::open(connection).await;
    let (ours, theirs) = tokio::io::duplex(CHUNK_BYTES);
    let (mut sink, mut stream) = socket.split();
    let (mut from, mut to) = tokio::io::split(ours);
    let reader = runtime.spawn("tunnel reader", async move {
        while let Some(Ok(message)) = stream.next().await {
            let data = match message {
                Message::Binary(data) => data,
                Message::Close(_) => break,
                _ => continue,
            };
            // A session that has ended takes no more; the rest is read for the farewell's sake.
            let _ = to.write_all(&data).await;
        }
        let _ = to.shutdown().await;
    });
    let own = runtime.clone();
    runtime.spawn("tunnel writer", async move {
        let mut buffer = vec![0; CHUNK_BYTES];
        while let Ok(count) = from.read(&mut buffer).await {
            if count == 0
                || sink
                    .send(Message::Binary(Bytes::copy_from_slice(&buffer[..count])))
                    .await
                    .is_err()
            {
                break;
            }
        }
        websocket::part(&own, sink, reader).await;
    });
    theirs
}

/// Pairs streams and forwards each pair, until the client has gone.
async fn serve(runtime: &Runtime, mut session: SpdySession, network: Option<PathBuf>) {
    let mut halves: HashMap<(String, String), SpdyStream> = HashMap::new();
    let connections = runtime.child_scope();
    while let Some(stream) = session.accept().await {
        let key = (
            stream.header("requestid").to_string(),
            stream.header("port").to_string(),
        );
        let Some(other) = halves.remove(&key) else {
            if halves.len() >= HALVES_MAX {
                return;
            }
            halves.insert(key, stream);
            continue;
        };
        let (error, data) = if stream.header("streamtype") == "error" {
            (stream, other)
        } else {
            (other, stream)
        };
        let (task, network) = (runtime.clone(), network.clone());
        connections.runtime().spawn("forwarded connection", async move {
            if let Err(message) = forward(&task, network, &error, data).await {
                error.writer().write(message.into()).await;
            }
            error.writer().finish().await;
        });
    }
}

async fn forward(
    runtime: &Runtime,
    network: Option<PathBuf>,
    error: &SpdyStream,
    mut data: SpdyStream,
) -> Result<(), String> {
    let port: u16 = error
        .header("port")
        .parse()
        .map_err(|_| "the port is not a number".to_string())?;
    let refused = |reason: &dyn std::fmt::Display| {
        format!("failed to connect to localhost:{port} inside the pod: {reason}")
    };
    let outcome = connect(runtime, network, port).await;
    let socket = match outcome {
        Ok(socket) => socket,
        Err(reason) => {
            data.writer().reset().await;
            return Err(refused(&reason));
        }
    };
    let (mut from, mut to) = socket.into_split();
    let writer = data.writer();
    let outward = async {
        while let Some(piece) = data.read().await {
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    let inward = async {
        let mut buffer = vec![0; CHUNK_BYTES];
        while let Ok(count) = from.read(&mut buffer).await {
            if count == 0 || !writer.write(Bytes::copy_from_slice(&buffer[..count])).await {
                break;
            }
        }
        writer.finish().await;
    };
    tokio::pin!(outward);
    // What the server in the pod has to say ends the connection, not what the client has.
    tokio::pin!(inward);
    tokio::select! {
        biased;
        () = &mut inward => {}
        () = &mut outward => inward.await,
    }
    Ok(())
}

/// A connection to a port as the pod itself would make it.
pub(super) async fn connect(
    runtime: &Runtime,
    network: Option<PathBuf>,
    port: u16,
) -> Result<TcpStream, String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let connect = move || -> Result<std::net::TcpStream, String> {
        let stream = match network {
            Some(path) => node_sys::namespace::connect_in(&path, address, CONNECT_TIMEOUT)
                .map_err(|error| error.to_string())?,
            None => std::net::TcpStream::connect_timeout(&address, CONNECT_TIMEOUT),
        };
        let stream = stream.map_err(|error| dial_error(&address.ip().to_string(), port, &error))?;
        stream.set_nonblocking(true).map_err(|error| error.to_string())?;
        Ok(stream)
    };
    let stream = runtime
        .blocking(connect)
        .await
        .map_err(|error| error.to_string())??;
    TcpStream::from_std(stream).map_err(|error| error.to_string())
}

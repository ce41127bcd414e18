//! port-forward: SPDY streams joined to connections inside the pod's network namespace.
//!
//! For each forwarded connection the client opens an error stream and a data stream with the same
//! request id ([`pairs`]), and both are joined to one [`connection`]. The SPDY connection is the upgraded one itself, or comes in
//! the messages of a WebSocket ([`tunnel`]). Clients that speak no SPDY at all have [`port_channels`].

pub(super) mod connection;
mod pairs;
mod tunnel;

use std::path::PathBuf;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use machinery_runtime::Runtime;

use super::idle::Activity;
use super::port_channels;
use super::spdy::session::SpdySession;
use super::stream_slots::StreamSlot;
use super::upgrade::{Accepted, Carrier, Taken, accept};
use super::websocket::Framing;
use crate::managers::ManagerContext;
use crate::pods::observed::observe;
use crate::pods::{spec, uid};
use crate::server::query::Query;
use crate::server::response::{Body, text};
use connection::Dialer;

/// SPDY inside a WebSocket; the others have channels, two to a port.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const WEB_SOCKET_PROTOCOLS: &[&str] = &[TUNNEL, "v4.channel.k8s.io", "v4.base64.channel.k8s.io", ""];
const SPDY_PROTOCOLS: &[&str] = &["portforward.k8s.io"];

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
    let connects = slot.connects();
    let dialer = Dialer { network, connects };
    runtime.clone().spawn("port-forward session", async move {
        let _slot = slot;
        let Ok(connection) = connection.await else { return };
        let connection = TokioIo::new(connection);
        let (carried, activity) = (runtime.child_scope(), Activity::begin(&runtime));
        let served = serve(
            carried.runtime(),
            connection,
            (carrier, protocol),
            &ports,
            dialer,
            &activity,
        );
        tokio::select! {
            biased;
            () = served => {}
            () = activity.over() => {}
        }
    });
    response
}

/// Serves a connection in the protocol that was chosen.
async fn serve(
    runtime: &Runtime,
    connection: Taken,
    chosen: (Carrier, &'static str),
    ports: &[u16],
    dialer: Dialer,
    activity: &Activity,
) {
    match chosen {
        (Carrier::Spdy, _) => {
            let session = SpdySession::server(runtime, activity.watch(connection));
            pairs::serve(runtime, session, dialer).await;
        }
        (Carrier::WebSocket, TUNNEL) => {
            let tunnel = tunnel::open(runtime, connection).await;
            let session = SpdySession::server(runtime, activity.watch(tunnel));
            pairs::serve(runtime, session, dialer).await;
        }
        (Carrier::WebSocket, protocol) => {
            let framing = Framing::of(protocol);
            port_channels::serve(runtime, connection, framing, ports, &dialer, activity).await;
        }
    }
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
    // containerd has the pause process's pid in its verbose answer; its namespace is the pod's.
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

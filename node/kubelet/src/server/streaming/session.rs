//! Common parts of exec and attach: finding the container, upgrading the client's connection, and the final status.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::super::query::Query;
use super::super::response::{Body, text};
use super::channels::{Channels, Output, Wanted};
use super::idle::Activity;
use super::stream_slots::StreamSlot;
use super::upgrade::{Accepted, Carrier, accept};
use super::{spdy_channels, websocket};
use crate::managers::ManagerContext;
use crate::pods::observed::{ContainerState, observe};
use crate::pods::uid;

/// The container a client wants to talk to.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct Target<'a> {
    pub(in crate::server) namespace: &'a str,
    pub(in crate::server) pod: &'a str,
    pub(in crate::server) container: &'a str,
}

/// A client that is listening, and the running container it wants.
pub(super) struct Session {
    pub(super) context: ManagerContext,
    pub(super) container_id: String,
    pub(super) wanted: Wanted,
    pub(super) channels: Channels,
}

/// Answers the request, and lets `talk` go on with the client; its result is sent to the client last.
pub(super) async fn open<Talk>(
    context: &ManagerContext,
    slot: StreamSlot,
    mut request: Request<Incoming>,
    target: Target<'_>,
    query: &Query,
    talk: impl FnOnce(Session) -> Talk + Send + 'static,
) -> Response<Body>
where
    Talk: Future<Output = Bytes> + Send + 'static,
{
    let wanted = Wanted::of(query);
    if !wanted.any() {
        return text(
            StatusCode::BAD_REQUEST,
            "you must specify at least 1 of stdin, stdout, stderr",
        );
    }
    let container_id = match running_container(context, target).await {
        Ok(id) => id,
        Err(response) => return *response,
    };
    let accepted = match accept(&mut request, websocket::PROTOCOLS, spdy_channels::PROTOCOLS) {
        Ok(accepted) => accepted,
        Err(response) => return *response,
    };
    let Accepted {
        carrier,
        protocol,
        connection,
        response,
    } = accepted;
    let context = context.clone();
    let runtime = context.runtime.clone();
    runtime.clone().spawn("streaming session", async move {
        let _slot = slot;
        let Ok(connection) = connection.await else { return };
        let connection = TokioIo::new(connection);
        // The client's side, which ends when nothing happens, and takes the other side with it.
        let (carried, activity) = (runtime.child_scope(), Activity::begin(&runtime));
        let own = carried.runtime();
        let channels = match carrier {
            Carrier::WebSocket => {
                let head = websocket::Framing::of(protocol).head();
                let socket = websocket::open(connection, head).await;
                Some(websocket::carry(own, socket, protocol, wanted, activity.clone()))
            }
            Carrier::Spdy => spdy_channels::carry(own, activity.watch(connection), wanted).await,
        };
        let Some(channels) = channels else { return };
        let output = channels.output.clone();
        let talk = async {
            let last = talk(Session {
                context,
                container_id,
                wanted,
                channels,
            });
            // A client that has gone needs no status.
            let _ = output.send(Output::Verdict(last.await)).await;
            drop(output);
            carried.drained().await;
        };
        tokio::pin!(talk);
        tokio::select! {
            biased;
            () = &mut talk => {}
            () = activity.over() => {
                carried.cancel();
                talk.await;
            }
        }
    });
    response
}

/// The running container of a name.
pub(in crate::server) async fn running_container(
    context: &ManagerContext,
    target: Target<'_>,
) -> Result<String, Box<Response<Body>>> {
    let not_found = |message: String| Box::new(text(StatusCode::NOT_FOUND, message));
    let pod = context
        .pods
        .find(target.namespace, target.pod)
        .ok_or_else(|| not_found("pod does not exist".into()))?;
    let observed = observe(&context.runtime, &context.workers.control.cri, uid(&pod)).await;
    let observed =
        observed.map_err(|error| Box::new(text(StatusCode::INTERNAL_SERVER_ERROR, error.message())))?;
    let latest = observed
        .latest(target.container)
        .filter(|found| found.state == ContainerState::Running);
    latest.map(|found| found.id.clone()).ok_or_else(|| {
        let words = format!("container not found (\"{}\")", target.container);
        // As upstream's kubelet, which answers so for every error without a code of its own.
        Box::new(text(StatusCode::INTERNAL_SERVER_ERROR, words))
    })
}

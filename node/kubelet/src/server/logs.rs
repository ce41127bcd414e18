//! A container's log over HTTP.

use std::convert::Infallible;
use std::path::PathBuf;

use bytes::Bytes;
use futures::StreamExt;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use node_cri::{CriClient, v1};
use tokio::sync::{mpsc, oneshot};

use super::log_options::Wanted;
use super::log_runs::choose;
use super::query::Query;
use super::response::{Body, text};
use super::streaming::StreamSlot;
use crate::logs::following::StillRunning;
use crate::logs::reader::stream;
use crate::logs::writer::LogOptions;
use crate::managers::ManagerContext;
use crate::pods::container_named::container_named;

/// Pieces of a log on their way to a client that reads slowly.
const PIECES_MAX: usize = 4;

pub(super) async fn answer(
    context: &ManagerContext,
    slot: StreamSlot,
    namespace: &str,
    pod_name: &str,
    container: &str,
    query: &Query,
) -> Response<Body> {
    let wanted = match Wanted::read(query, context.runtime.now()) {
        Ok(wanted) => wanted,
        Err((status, message)) => return text(status, message),
    };
    let Some(pod) = context.pods.find(namespace, pod_name) else {
        return text(
            StatusCode::NOT_FOUND,
            format!("pod \"{pod_name}\" does not exist"),
        );
    };
    if container_named(&pod, container).is_none() {
        let message = format!("container \"{container}\" not found in pod \"{pod_name}\"");
        return text(StatusCode::NOT_FOUND, message);
    }
    let status = context.pods.status(&pod);
    let id = match choose(&status, pod_name, container, wanted.previous) {
        Ok(id) => id,
        Err(message) => return text(StatusCode::BAD_REQUEST, message),
    };
    match log_path(&context.workers.control.cri, id).await {
        Some(path) => respond(context, slot, id, path, wanted.options).await,
        None => {
            let runtime = &context.workers.control.runtime_name;
            let message = format!("unable to retrieve container logs for {runtime}://{id}");
            text(failed(&wanted.options), message)
        }
    }
}

/// Path of a container's log; `None` if the runtime reports none.
async fn log_path(cri: &CriClient, id: &str) -> Option<PathBuf> {
    let request = v1::ContainerStatusRequest {
        container_id: id.to_owned(),
        verbose: false,
    };
    let answer = cri.container_status(request).await.ok()?;
    Some(answer.status?.log_path.into())
}

/// Status code of an answer with the reason why there is no log: upstream has sent 200 by then, unless the log is of standard
/// error alone.
fn failed(options: &LogOptions) -> StatusCode {
    match options.stream {
        Some("stderr") => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

async fn respond(
    context: &ManagerContext,
    slot: StreamSlot,
    id: &str,
    path: PathBuf,
    options: LogOptions,
) -> Response<Body> {
    let (sender, receiver) = mpsc::channel::<Bytes>(PIECES_MAX);
    let (failure, failed_with) = oneshot::channel();
    let runtime = context.runtime.clone();
    let follower = options.follow.then(|| {
        let running = still_running(context.workers.control.cri.clone(), id.to_owned());
        let followed = &context.workers.followed;
        followed.follow(&context.runtime, id, &path, running)
    });
    let status = failed(&options);
    context.runtime.spawn("log stream", async move {
        let _slot = slot;
        if let Err(words) = stream(&runtime, path, options, follower, sender).await {
            // A client that has gone needs no reason.
            let _ = failure.send(words);
        }
    });
    begun(receiver, failed_with, status).await
}

/// The answer of a log: its pieces, and behind them why there are no more, without a line end. Where nothing was sent before
/// the reason, as upstream does for standard error alone, the reason is the whole answer, with `status`.
async fn begun(
    mut pieces: mpsc::Receiver<Bytes>,
    failed_with: oneshot::Receiver<String>,
    status: StatusCode,
) -> Response<Body> {
    let mut first = None;
    if status != StatusCode::OK {
        first = pieces.recv().await;
        if first.is_none() {
            return match failed_with.await {
                Ok(words) => text(status, words),
                Err(_) => text(StatusCode::OK, ""),
            };
        }
    }
    let pieces = futures::stream::poll_fn(move |task| pieces.poll_recv(task));
    let reason = futures::stream::once(failed_with).filter_map(|words| async { words.ok().map(Bytes::from) });
    let frames = futures::stream::iter(first).chain(pieces).chain(reason);
    let frames = frames.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response
        .headers_mut()
        .insert("content-type", http::HeaderValue::from_static("text/plain"));
    response
}

/// Asks the runtime about one container; one that it does not know runs no longer.
fn still_running(cri: CriClient, id: String) -> StillRunning {
    Box::new(move || {
        let request = v1::ContainerStatusRequest {
            container_id: id.clone(),
            verbose: false,
        };
        let answer = cri.container_status(request);
        Box::pin(async move {
            match answer.await {
                Ok(answer) => {
                    let state = answer.status.map(|status| status.state);
                    Some(state == Some(v1::ContainerState::ContainerRunning as i32))
                }
                Err(error) => error.is_not_found().then_some(false),
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn log_that_fails_before_its_first_byte_has_the_status_of_its_reason() {
        for (pieces, status, expected, words) in [
            (vec![], StatusCode::BAD_REQUEST, StatusCode::BAD_REQUEST, "why"),
            (vec!["text"], StatusCode::BAD_REQUEST, StatusCode::OK, "textwhy"),
            (vec![], StatusCode::OK, StatusCode::OK, "why"),
        ] {
            let (sender, receiver) = mpsc::channel(PIECES_MAX);
            let (failure, failed_with) = oneshot::channel();
            for piece in pieces {
                sender.send(Bytes::from(piece)).await.unwrap();
            }
            drop(sender);
            failure.send("why".to_owned()).unwrap();
            let answer = begun(receiver, failed_with, status).await;
            assert_eq!(answer.status(), expected);
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, words);
        }
    }
}

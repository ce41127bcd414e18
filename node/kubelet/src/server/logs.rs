//! A container's log over HTTP.

use std::convert::Infallible;
use std::path::PathBuf;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use k8s_openapi::api::core::v1::Pod;
use node_cri::{CriClient, v1};
use tokio::sync::mpsc;

use super::routes::{Body, Query, text};
use super::streaming::Place;
use crate::logs::following::StillRunning;
use crate::logs::reader::{LogOptions, stream};
use crate::managers::ManagerContext;
use crate::pods::observed::{ContainerState, ObservedContainer, observe};
use crate::pods::{plan::container_named, uid};

/// Pieces of a log on their way to a client that reads slowly.
const PIECES_MAX: usize = 4;

pub(super) async fn answer(
    context: &ManagerContext,
    place: Place,
    namespace: &str,
    pod_name: &str,
    container: &str,
    query: &Query,
) -> Response<Body> {
    let Some(pod) = context.pods.find(namespace, pod_name) else {
        return text(
            StatusCode::NOT_FOUND,
            format!("pod \"{pod_name}\" does not exist\n"),
        );
    };
    if container_named(&pod, container).is_none() {
        let message = format!("container \"{container}\" not found in pod \"{pod_name}\"\n");
        return text(StatusCode::NOT_FOUND, message);
    }
    let options = match options(query, context.runtime.now()) {
        Ok(options) => options,
        Err(message) => return text(StatusCode::UNPROCESSABLE_ENTITY, message),
    };
    let found = find(context, &pod, container, query.flag("previous")).await;
    match found {
        Ok((found, path)) => respond(context, place, &found, path, options),
        Err((status, message)) => text(status, message),
    }
}

fn options(query: &Query, now: jiff::Timestamp) -> Result<LogOptions, String> {
    let number = |name: &str| match query.get(name).filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => text
            .parse::<i64>()
            .map(Some)
            .map_err(|_| format!("invalid value {text:?} for {name}\n")),
    };
    let since = match (query.get("sinceTime"), number("sinceSeconds")?) {
        (Some(text), _) if !text.is_empty() => Some(
            text.parse()
                .map_err(|_| format!("invalid value {text:?} for sinceTime\n"))?,
        ),
        (_, Some(seconds)) => now.checked_sub(jiff::SignedDuration::from_secs(seconds)).ok(),
        _ => None,
    };
    let stream = match query.get("stream") {
        Some("Stdout") => Some("stdout".to_string()),
        Some("Stderr") => Some("stderr".to_string()),
        _ => None,
    };
    let size = |value: Option<i64>| value.and_then(|value| usize::try_from(value).ok());
    Ok(LogOptions {
        follow: query.flag("follow"),
        tail: size(number("tailLines")?),
        since,
        timestamps: query.flag("timestamps"),
        limit_bytes: size(number("limitBytes")?),
        stream,
    })
}

/// The container whose log is wanted, and where that is.
async fn find(
    context: &ManagerContext,
    pod: &Pod,
    name: &str,
    previous: bool,
) -> Result<(ObservedContainer, PathBuf), (StatusCode, String)> {
    let observed = observe(&context.runtime, &context.workers.control.cri, uid(pod)).await;
    let observed = observed.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.message()))?;
    let refused = |text: String| (StatusCode::BAD_REQUEST, text);
    let pod_name = crate::pods::name(pod);
    let latest = observed.latest(name);
    let waits =
        |found: &ObservedContainer| matches!(found.state, ContainerState::Created | ContainerState::Unknown);
    let found = match (previous, latest) {
        (true, _) => observed
            .containers
            .iter()
            .filter(|found| found.name == name && found.state == ContainerState::Exited)
            .find(|found| latest.is_none_or(|latest| latest.id != found.id))
            .or(latest.filter(|found| found.state == ContainerState::Exited && pod_waits(pod, name)))
            .ok_or_else(|| {
                refused(format!(
                    "previous terminated container \"{name}\" in pod \"{pod_name}\" not found"
                ))
            })?,
        (false, Some(found)) if !waits(found) => found,
        _ => {
            // What fails most often has a sentence, as upstream.
            let reason = waiting_reason(pod, name);
            let reason = match reason.as_str() {
                "ErrImagePull" => "image can't be pulled",
                "ImagePullBackOff" => "trying and failing to pull image",
                reason => reason,
            };
            return Err(refused(format!(
                "container \"{name}\" in pod \"{pod_name}\" is waiting to start: {reason}"
            )));
        }
    };
    Ok((found.clone(), PathBuf::from(&found.log_path)))
}

fn state_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a k8s_openapi::api::core::v1::ContainerState> {
    let status = pod.status.as_ref()?;
    let all = status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
        .flatten();
    all.into_iter().find(|status| status.name == name)?.state.as_ref()
}

/// A container that waits to be started again has its last run as the previous one.
fn pod_waits(pod: &Pod, name: &str) -> bool {
    state_of(pod, name).is_some_and(|state| state.waiting.is_some())
}

fn waiting_reason(pod: &Pod, name: &str) -> String {
    let state = state_of(pod, name).and_then(|state| state.waiting.as_ref());
    state
        .and_then(|waiting| waiting.reason.clone())
        .unwrap_or_else(|| "ContainerCreating".into())
}

fn respond(
    context: &ManagerContext,
    place: Place,
    found: &ObservedContainer,
    path: PathBuf,
    options: LogOptions,
) -> Response<Body> {
    let (sender, mut receiver) = mpsc::channel::<Bytes>(PIECES_MAX);
    let runtime = context.runtime.clone();
    let follower = options.follow.then(|| {
        let running = still_running(context.workers.control.cri.clone(), found.id.clone());
        let followed = &context.workers.followed;
        followed.follow(&context.runtime, &found.id, &path, running)
    });
    context.runtime.spawn("log stream", async move {
        let _place = place;
        if let Err(error) = stream(&runtime, path, options, follower, sender.clone()).await {
            let _ = sender
                .send(format!("unable to retrieve container logs: {error}\n").into())
                .await;
        }
    });
    let frames = futures::stream::poll_fn(move |task| receiver.poll_recv(task));
    let frames = futures::StreamExt::map(frames, |piece| Ok::<_, Infallible>(Frame::data(piece)));
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

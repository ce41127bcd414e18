//! exec: a process beside the container's own.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use machinery_runtime::Runtime;
use node_cri::process::{Process, ProcessControl, ProcessOptions, start};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::super::routes::{Body, Query, text};
use super::channels::{Channels, Input, Output, Wanted, failure, verdict};
use super::upgrade::{Accepted, Carrier, accept};
use super::{spdy_channels, websocket};
use crate::managers::ManagerContext;
use crate::pods::observed::{ContainerState, observe};
use crate::pods::uid;

const CHUNK_BYTES: usize = 32 << 10;
/// After the process has ended its output may be held open by children of it; this long they are waited for.
const DRAIN_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// The running container of a name.
pub(super) async fn running_container(
    context: &ManagerContext,
    namespace: &str,
    pod: &str,
    container: &str,
) -> Result<String, Box<Response<Body>>> {
    let not_found = |message: String| Box::new(text(StatusCode::NOT_FOUND, message));
    let pod = context
        .pods
        .find(namespace, pod)
        .ok_or_else(|| not_found("pod does not exist".into()))?;
    let observed = observe(&context.workers.control.cri, uid(&pod)).await;
    let observed =
        observed.map_err(|error| Box::new(text(StatusCode::INTERNAL_SERVER_ERROR, error.message())))?;
    let latest = observed
        .latest(container)
        .filter(|found| found.state == ContainerState::Running);
    latest
        .map(|found| found.id.clone())
        .ok_or_else(|| not_found(format!("container not found (\"{container}\")")))
}

pub(in crate::server) async fn exec(
    context: &ManagerContext,
    mut request: Request<Incoming>,
    namespace: &str,
    pod: &str,
    container: &str,
    query: &Query,
) -> Response<Body> {
    let wanted = Wanted::of(query);
    if !wanted.any() {
        return text(
            StatusCode::BAD_REQUEST,
            "you must specify at least 1 of stdin, stdout, stderr",
        );
    }
    let container_id = match running_container(context, namespace, pod, container).await {
        Ok(id) => id,
        Err(response) => return *response,
    };
    let accepted = match accept(&mut request, websocket::PROTOCOLS, spdy_channels::PROTOCOLS) {
        Ok(accepted) => accepted,
        Err(response) => return *response,
    };
    let Accepted {
        carrier,
        connection,
        response,
    } = accepted;
    let process_id = format!("exec-{:016x}", context.runtime.random_u64());
    let options = ProcessOptions {
        pipes: context.config.run_folder().join(&process_id),
        container_id,
        process_id,
        command: query.all("command"),
        tty: wanted.tty,
        stdin: wanted.stdin,
    };
    let context = context.clone();
    let runtime = context.runtime.clone();
    runtime.clone().spawn("exec session", async move {
        let Ok(connection) = connection.await else { return };
        let connection = TokioIo::new(connection);
        let channels = match carrier {
            Carrier::WebSocket => Some(websocket::carry(&runtime, websocket::open(connection).await)),
            Carrier::Spdy => spdy_channels::carry(&runtime, connection, wanted).await,
        };
        let Some(channels) = channels else { return };
        match start(&context.workers.control.cri, options).await {
            Ok(process) => join(&runtime, process, channels).await,
            Err(error) => {
                let message = format!("error executing command in container: {}", error.message());
                let _ = channels.output.send(Output::Verdict(failure(&message))).await;
            }
        }
    });
    response
}

/// Joins a process and a client until the process has ended or the client has gone.
async fn join(runtime: &Runtime, process: Process, channels: Channels) {
    let (stdin, stdout, stderr, control, folder) = process.into_parts();
    let Channels { input, output } = channels;
    let pump = {
        let (control, runtime) = (control.clone(), runtime.clone());
        feed(runtime, input, stdin, control)
    };
    let out = copy(stdout, output.clone(), Output::Stdout);
    let errors = async {
        if let Some(stderr) = stderr {
            copy(stderr, output.clone(), Output::Stderr).await;
        }
    };
    let outputs = async { tokio::join!(out, errors) };
    tokio::pin!(pump, outputs);
    let mut drained = false;
    let wait = control.wait();
    tokio::pin!(wait);
    let exit = loop {
        tokio::select! {
            biased;
            exit = &mut wait => break Some(exit),
            _ = &mut outputs, if !drained => drained = true,
            () = &mut pump => break None,
        }
    };
    match exit {
        Some(exit) => {
            if !drained {
                let _ = runtime.timeout(DRAIN_TIMEOUT, &mut outputs).await;
            }
            let verdict = exit.map_or_else(|error| failure(&error.message()), verdict);
            let _ = output.send(Output::Verdict(verdict)).await;
        }
        // Nobody listens any more: what was started for them ends with them.
        None => control.kill().await,
    }
    control.delete().await;
    drop(folder);
}

/// Carries the client's side until the client has gone.
async fn feed(
    _runtime: Runtime,
    mut input: mpsc::Receiver<Input>,
    stdin: Option<tokio::net::unix::pipe::Sender>,
    control: ProcessControl,
) {
    let mut stdin = stdin;
    while let Some(piece) = input.recv().await {
        match piece {
            Input::Stdin(data) => {
                if let Some(pipe) = &mut stdin
                    && pipe.write_all(&data).await.is_err()
                {
                    stdin = None;
                }
            }
            Input::StdinEnd => {
                stdin = None;
                let _ = control.close_stdin().await;
            }
            Input::Resize { width, height } => {
                let _ = control.resize(width.into(), height.into()).await;
            }
        }
    }
}

async fn copy(mut from: impl AsyncRead + Unpin, to: mpsc::Sender<Output>, wrap: fn(Bytes) -> Output) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0
            || to
                .send(wrap(Bytes::copy_from_slice(&buffer[..count])))
                .await
                .is_err()
        {
            return;
        }
    }
}

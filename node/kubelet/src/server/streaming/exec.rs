//! exec: a process beside the container's own.

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use machinery_runtime::Runtime;
use node_cri::process::{Process, ProcessControl, ProcessOptions, start};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::super::query::Query;
use super::super::response::Body;
use super::channels::{Channels, Input, Output, failure, verdict};
use super::session::{self, Session, Target};
use super::stream_slots::StreamSlot;
use crate::managers::ManagerContext;

const CHUNK_BYTES: usize = 32 << 10;
/// Wait for children of an ended process, which may hold its output open.
const DRAIN_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

pub(in crate::server) async fn exec(
    context: &ManagerContext,
    slot: StreamSlot,
    request: Request<Incoming>,
    target: Target<'_>,
    query: &Query,
) -> Response<Body> {
    let command = query.all("command");
    session::open(context, slot, request, target, query, |session| {
        run(session, command)
    })
    .await
}

/// Runs the command to its end, or until the client leaves.
async fn run(session: Session, command: Vec<String>) -> Bytes {
    let Session {
        context,
        container_id,
        wanted,
        channels,
    } = session;
    let process_id = format!("exec-{:016x}", context.runtime.random_u64());
    let options = ProcessOptions {
        pipes: context.config.run_folder().join(&process_id),
        container_id,
        process_id,
        command,
        tty: wanted.tty,
        stdin: wanted.stdin,
    };
    match start(&context.workers.control.cri, options).await {
        Ok(process) => join(&context.runtime, process, channels).await,
        Err(error) => failure(&format!(
            "error executing command in container: {}",
            error.message()
        )),
    }
}

/// Joins a process and a client until the process has ended or the client has gone.
async fn join(runtime: &Runtime, process: Process, channels: Channels) -> Bytes {
    let (stdin, stdout, stderr, control, folder) = process.into_parts();
    let Channels { input, output } = channels;
    let pump = feed(input, stdin, control.clone());
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
            // The pump may wait for a process that reads nothing.
            () = output.closed() => break None,
        }
    };
    let last = match exit {
        Some(exit) => {
            if !drained {
                let _ = runtime.timeout(DRAIN_TIMEOUT, &mut outputs).await;
            }
            exit.map_or_else(|error| failure(&error.message()), verdict)
        }
        // The client has gone: what was started for it ends with it.
        None => {
            control.kill().await;
            failure("the client has gone")
        }
    };
    control.delete().await;
    drop(folder);
    last
}

/// Carries the client's side until the client has gone.
async fn feed(
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

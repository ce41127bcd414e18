//! The socket that the plugin's program calls. Its folder is root's alone, and the kernel names the user of every caller.

use super::frame;
use super::install::socket;
use super::links::AT_ONCE;
use super::plugin::Plugin;
use machinery_runtime::Runtime;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// Calls in progress, queued ones included; the kernel's backlog has the others.
const CALLS_MAX: usize = 256;
/// Time limit for reading a request, and for writing an answer.
const TRANSFER_WITHIN: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the plugin at the socket in its folder, until it is dropped.
///
/// # Errors
/// There can be no socket.
pub async fn serve(folder: &Path, plugin: Arc<Plugin>, runtime: &Runtime) -> io::Result<()> {
    let (listener, user) = listen(&socket(folder))?;
    let (calls, work) = (
        Arc::new(Semaphore::new(CALLS_MAX)),
        Arc::new(Semaphore::new(AT_ONCE)),
    );
    loop {
        // The permit comes before accept, so that the kernel's backlog is the queue and no task exists for a
        // call beyond the bound.
        let place = Arc::clone(&calls).acquire_owned().await;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "call of the CNI plugin not accepted");
                runtime.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if stream.peer_cred().map(|peer| peer.uid()).ok() != Some(user) {
            tracing::warn!("call of the CNI plugin by another user refused");
            continue;
        }
        let (plugin, work, own) = (Arc::clone(&plugin), Arc::clone(&work), runtime.clone());
        let handling = async move {
            if let Err(error) = handle(stream, plugin, work, &own).await {
                tracing::debug!(%error, "call of the CNI plugin ended early");
            }
            drop(place);
        };
        runtime.spawn_request("cni call", handling).detach();
    }
}

/// The listener in the place of an earlier agent's, and the user of this process. The folder is closed to other users before
/// the socket is.
fn listen(path: &Path) -> io::Result<(UnixListener, u32)> {
    // The socket's file outlives its listener, and bind refuses a name that is taken.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok((listener, std::fs::symlink_metadata(path)?.uid()))
}

async fn handle(
    mut stream: UnixStream,
    plugin: Arc<Plugin>,
    work: Arc<Semaphore>,
    runtime: &Runtime,
) -> io::Result<()> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let body: Arc<[u8]> = runtime
        .timeout(TRANSFER_WITHIN, read(&mut stream))
        .await
        .map_err(late)??
        .into();
    let place = work.acquire().await.map_err(io::Error::other)?;
    let (worker, request) = (Arc::clone(&plugin), Arc::clone(&body));
    let answer = runtime.blocking(move || worker.answer(&request)).await;
    let answer = answer.map_err(io::Error::other)?;
    let frame = frame::answer(answer.code, answer.text.as_bytes());
    let written = runtime.timeout(TRANSFER_WITHIN, stream.write_all(&frame)).await;
    let written = written.map_err(late).and_then(|done| done);
    // Still under the permit of work: the addition that is undone held one, and a flood of abandoned calls
    // stays bounded.
    if written.is_err() && answer.code == 0 {
        // The runtime's call has timed out, and it may have deleted the link before it was made.
        let undone = runtime.blocking(move || plugin.undo(&body)).await;
        undone.map_err(io::Error::other)?;
    }
    drop(place);
    written
}

/// Reads the body of a request. Memory grows with the bytes received, not with the length that the header claims.
async fn read(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut header = [0; frame::HEADER];
    stream.read_exact(&mut header).await?;
    let length = frame::body_length(&header).ok_or(io::ErrorKind::InvalidData)?;
    let mut body = Vec::new();
    let most = u64::try_from(length).unwrap_or(u64::MAX);
    stream.take(most).read_to_end(&mut body).await?;
    match body.len() == length {
        true => Ok(body),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

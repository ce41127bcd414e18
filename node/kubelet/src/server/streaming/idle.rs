//! Sessions on which nothing happens end after four hours, as upstream's (`StreamIdleTimeout`).
//!
//! SPDY counts every byte either way, pings too; a WebSocket counts messages of channels and not its pings.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use machinery_runtime::Runtime;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(in crate::server) const IDLE_TIMEOUT: Duration = Duration::from_secs(4 * 60 * 60);

/// Time of the last activity of a session.
#[derive(Debug, Clone)]
pub(super) struct Activity {
    runtime: Runtime,
    last: Arc<Mutex<Duration>>,
}

/// A connection whose bytes are activity.
#[derive(Debug)]
pub(super) struct Watched<T> {
    io: T,
    activity: Activity,
}

impl Activity {
    pub(super) fn begin(runtime: &Runtime) -> Self {
        Self {
            runtime: runtime.clone(),
            last: Arc::new(Mutex::new(runtime.monotonic())),
        }
    }

    /// Notes that something happens.
    pub(super) fn note(&self) {
        *self.last.lock() = self.runtime.monotonic();
    }

    /// Waits until nothing has happened for [`IDLE_TIMEOUT`].
    pub(super) async fn over(&self) {
        loop {
            let deadline = *self.last.lock() + IDLE_TIMEOUT;
            if self.runtime.monotonic() >= deadline {
                return;
            }
            self.runtime.sleep_until(deadline).await;
        }
    }

    pub(super) fn watch<T>(&self, io: T) -> Watched<T> {
        let activity = self.clone();
        Watched { io, activity }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(task, buffer);
        if read.is_ready() {
            self.activity.note();
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(task, data);
        if written.is_ready() {
            self.activity.note();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_runtime::Simulation;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn idle_session_ends_four_hours_after_the_last_byte() {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            let activity = Activity::begin(&runtime);
            let (ours, mut theirs) = tokio::io::duplex(8);
            let mut ours = activity.watch(ours);
            let hours = |count: u32| IDLE_TIMEOUT / 4 * count;
            let over = runtime.spawn("idle", {
                let (activity, runtime) = (activity.clone(), runtime.clone());
                async move {
                    activity.over().await;
                    runtime.monotonic()
                }
            });
            let start = runtime.monotonic();
            runtime.sleep(hours(3)).await;
            theirs.write_all(b"in").await.unwrap();
            ours.read_exact(&mut [0; 2]).await.unwrap();
            runtime.sleep(hours(3)).await;
            ours.write_all(b"out").await.unwrap();
            runtime.sleep(hours(3)).await;
            activity.note();
            let ended = over.await.unwrap() - start;
            assert!(ended >= hours(13) && ended < hours(14), "{ended:?}");
        });
    }
}

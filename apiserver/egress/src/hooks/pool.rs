//! Open connections to one webhook. They speak HTTP/1.1, as upstream's, so that each call may reach another endpoint.

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// Connections that wait for the next call.
const MAX_IDLE: usize = 16;
/// Go's.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// An open connection.
#[derive(Debug)]
pub(super) struct Connection(SendRequest<Full<Bytes>>);

impl Connection {
    /// Speaks HTTP over a stream.
    pub(super) async fn begin<S>(stream: S, runtime: &Runtime) -> Result<Self, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| error.to_string())?;
        runtime
            .spawn("webhook-connection", async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to a webhook ended");
                }
            })
            .detach();
        Ok(Self(sender))
    }

    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        self.0.ready().await?;
        self.0.send_request(request).await
    }
}

/// Connections with the time since which each is idle; the last one used is the first one taken.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<(Duration, Connection)>>);

impl Pool {
    /// A connection that is open, as far as this side knows.
    pub(super) fn take(&self, now: Duration) -> Option<Connection> {
        let mut idle = self.0.lock();
        idle.retain(|(since, own)| now.saturating_sub(*since) < IDLE_TIMEOUT && !own.0.is_closed());
        idle.pop().map(|(_, own)| own)
    }

    pub(super) fn keep(&self, connection: Connection, now: Duration) {
        let mut idle = self.0.lock();
        if idle.len() < MAX_IDLE && !connection.0.is_closed() {
            idle.push((now, connection));
        }
    }
}

//! Open connections to one webhook or one API extension. They speak HTTP/1.1, so that each call may reach another endpoint.

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use std::error::Error;
use std::fmt;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// Connections that wait for the next call.
const MAX_IDLE: usize = 16;
/// The head of an answer, and what is read of a body before its caller takes it.
const MAX_BUFFER_BYTES: usize = 64 << 10;
/// Go's.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// An open connection.
pub(crate) struct Connection<B>(SendRequest<B>);

impl<B> fmt::Debug for Connection<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl<B> Connection<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// Speaks HTTP over a stream.
    pub(crate) async fn begin<S>(stream: S, runtime: &Runtime) -> Result<Self, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shaken = http1::Builder::new()
            .max_buf_size(MAX_BUFFER_BYTES)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection) = shaken.map_err(|error| error.to_string())?;
        runtime
            .spawn("service-connection", async move {
                if let Err(error) = connection.with_upgrades().await {
                    tracing::debug!(%error, "a connection to a webhook or an extension ended");
                }
            })
            .detach();
        Ok(Self(sender))
    }

    pub(crate) async fn send(&mut self, request: Request<B>) -> Result<Response<Incoming>, hyper::Error> {
        self.0.ready().await?;
        self.0.send_request(request).await
    }
}

/// Connections with the time since which each is idle; the last one used is the first one taken.
pub(crate) struct Pool<B>(Mutex<Vec<(Duration, Connection<B>)>>);

impl<B> Default for Pool<B> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<B> fmt::Debug for Pool<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl<B> Pool<B> {
    /// A connection that is open, as far as this side knows.
    pub(crate) fn take(&self, now: Duration) -> Option<Connection<B>> {
        let mut idle = self.0.lock();
        idle.retain(|(since, own)| now.saturating_sub(*since) < IDLE_TIMEOUT && !own.0.is_closed());
        idle.pop().map(|(_, own)| own)
    }

    pub(crate) fn keep(&self, connection: Connection<B>, now: Duration) {
        let mut idle = self.0.lock();
        if idle.len() < MAX_IDLE && !connection.0.is_closed() {
            idle.push((now, connection));
        }
    }
}

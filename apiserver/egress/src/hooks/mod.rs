//! Calls of webhooks: a POST of JSON to a service of the cluster or to a URL, over TLS, and its answer.
//!
//! A [`HookTarget`] is one webhook's address with the authorities that its certificate must come from; connections stay open with it
//! and end with it. [`HookClient::post`] takes one of them, or resolves and dials; the endpoint of a service is resolved at every
//! dial, and the dialer looks at the very address that it connects to: of services only what pods and others outside of this
//! machine can have, of URLs anything but the way back to this server.
//!
//! Bounded: calls under way by webhook and namespace ([`HookPlace`]), the bytes of an answer, and how many large answers are held at
//! once, of a webhook and of all. Time is the caller's: a call that is dropped ends its connection.

mod credentials;
mod gate;
mod status;
mod target;

#[cfg(test)]
mod tests;

pub use credentials::{CredentialsByHost, HookCredentials};
pub use gate::{Gate as CallGate, HookPlace};
pub use status::message as answer_message;
pub use target::{HookTarget, TargetError};

use crate::dialer::Dialer;
use crate::exchange::{Connection, Outgoing, exchange};
use http::Request;
use http_body_util::Full;
use hyper::body::Bytes;
use machinery_meta::reader::ObjectReader;

use std::fmt;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// An answer up to here is small.
const SMALL_ANSWER_BYTES: usize = 256 << 10;
/// Larger answers that are held at once, of all webhooks.
const LARGE_ANSWERS: usize = 16;

/// A call that came to no answer that counts.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HookError {
    /// In the words of Go's client.
    #[error("Post {url:?}: {why}")]
    Failed { url: String, why: String },
    /// Another answer than what was requested.
    #[error("{message}")]
    Answered { code: u16, message: String },
}

/// Calls webhooks.
#[derive(Clone)]
pub struct HookClient {
    dialer: Dialer,
    reader: Arc<dyn ObjectReader>,
    large: Arc<Semaphore>,
}

impl fmt::Debug for HookClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookClient").finish_non_exhaustive()
    }
}

/// A call.
#[derive(Debug)]
pub struct HookCall<'a> {
    pub target: &'a HookTarget,
    /// The target's places for it ([`HookTarget::enter`]): a caller without one has no reason to make a body.
    pub place: HookPlace<'a>,
    /// Without a question mark; empty for none.
    pub query: &'a str,
    pub body: Bytes,
    /// Most bytes of an answer.
    pub limit: usize,
}

impl HookClient {
    pub fn new(dialer: Dialer, reader: Arc<dyn ObjectReader>) -> Self {
        Self {
            dialer,
            reader,
            large: Arc::new(Semaphore::new(LARGE_ANSWERS)),
        }
    }

    /// Posts JSON, and returns the answer's body.
    ///
    /// # Errors
    /// See [`HookError`].
    pub async fn post(&self, call: HookCall<'_>) -> Result<Vec<u8>, HookError> {
        let failed = |why: String| HookError::Failed {
            url: call.target.url(call.query),
            why,
        };
        let target = call.target;
        let outgoing = Outgoing {
            request: request(&call).map_err(|error| failed(error.to_string()))?,
            limit: call.limit,
            leaves_rest: false,
            small: SMALL_ANSWER_BYTES,
            room: target.large(&self.large),
        };
        let (pool, runtime) = (target.pool(), self.dialer.runtime());
        let answer = exchange((pool, runtime), self.dial(target), outgoing).await;
        let answer = answer.map_err(failed)?;
        let code = answer.head.status.as_u16();
        if !(200..=206).contains(&code) {
            let message = status::message(code, &answer.body);
            return Err(HookError::Answered { code, message });
        }
        Ok(answer.body)
    }

    async fn dial(&self, target: &HookTarget) -> Result<Connection, String> {
        let choice = self.dialer.runtime().random_u64();
        let destination = target.destination(&*self.reader, choice).await?;
        let stream = self.dialer.connect(&destination).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let stream = target.shake_hands(stream).await?;
        Connection::begin(stream, self.dialer.runtime()).await
    }
}

fn request(call: &HookCall<'_>) -> Result<Request<Full<Bytes>>, http::Error> {
    let request = Request::post(call.target.path_and_query(call.query))
        .header(http::header::HOST, call.target.authority())
        .header(http::header::CONTENT_TYPE, "application/json")
        .header(http::header::ACCEPT, "application/json, */*")
        .header(http::header::USER_AGENT, "kube-apiserver-admission");
    let headers = call.target.headers().iter();
    headers
        .fold(request, |request, (name, value)| request.header(name, value))
        .body(Full::new(call.body.clone()))
}

//! Calls of webhooks: a POST of JSON to a service of the cluster or to a URL, over TLS, and its answer.
//!
//! A [`HookTarget`] is one webhook's address with the authorities that its certificate must come from; connections stay open with it
//! and end with it. [`HookClient::post`] takes one of them, or resolves and dials; whom a service leads to is asked at every
//! dial, and the dialer looks at the very address that it connects to: of services only what pods and others outside of this
//! machine can have, of URLs anything but the way back to this server.
//!
//! Bounded: calls under way by webhook and namespace ([`HookPlace`]), the bytes of an answer, and how many large answers are held at
//! once, of a webhook and of all. Time is the caller's: a call that is dropped ends its connection.

mod gate;
mod status;
mod target;

#[cfg(test)]
mod tests;

pub use gate::HookPlace;
pub use target::{HookTarget, TargetError};

use crate::dialer::Dialer;
use crate::pool;
use gate::LargeRoom;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
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
    /// Another answer than what was asked for.
    #[error("{message}")]
    Answered { code: u16, message: String },
}

type Connection = pool::Connection<Full<Bytes>>;

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
    /// The target's places for it ([`HookTarget::enter`]): who has none has no reason to make a body.
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
        let kept = call.target.pool().take(self.dialer.runtime().monotonic());
        if let Some(connection) = kept {
            match self.exchange(&call, connection).await {
                // The other side has closed it meanwhile: nothing was read of the call.
                Err(Exchange::Closed) => {}
                Err(Exchange::Failed(why)) => return Err(failed(why)),
                Err(Exchange::Answered(error)) => return Err(error),
                Ok(answer) => return Ok(answer),
            }
        }
        let connection = self.dial(call.target).await.map_err(failed)?;
        match self.exchange(&call, connection).await {
            Ok(answer) => Ok(answer),
            Err(Exchange::Closed) => Err(failed("EOF".to_owned())),
            Err(Exchange::Failed(why)) => Err(failed(why)),
            Err(Exchange::Answered(error)) => Err(error),
        }
    }

    async fn dial(&self, target: &HookTarget) -> Result<Connection, String> {
        let choice = self.dialer.runtime().random_u64();
        let destination = target.destination(&*self.reader, choice).await?;
        let stream = self.dialer.connect(&destination).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let stream = target.shake_hands(stream).await?;
        Connection::begin(stream, self.dialer.runtime()).await
    }

    async fn exchange(&self, call: &HookCall<'_>, mut connection: Connection) -> Result<Vec<u8>, Exchange> {
        let path = call.target.path_and_query(call.query);
        let request = Request::post(path)
            .header(http::header::HOST, call.target.authority())
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json, */*")
            .header(http::header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(call.body.clone()))
            .map_err(|error| Exchange::Failed(error.to_string()))?;
        let answer = connection.send(request).await.map_err(Exchange::of)?;
        let code = answer.status().as_u16();
        let (body, _room) = self.read(call.target, answer.into_body(), call.limit).await?;
        if !(200..=206).contains(&code) {
            let message = status::message(code, &body);
            return Err(Exchange::Answered(HookError::Answered { code, message }));
        }
        call.target
            .pool()
            .keep(connection, self.dialer.runtime().monotonic());
        Ok(body)
    }

    /// Reads an answer, a large one when there is room for it.
    async fn read<'a>(
        &'a self,
        target: &'a HookTarget,
        mut body: Incoming,
        limit: usize,
    ) -> Result<(Vec<u8>, Option<LargeRoom<'a>>), Exchange> {
        let too_large = || Exchange::Failed(format!("the answer has more than {limit} bytes"));
        if body.size_hint().lower() > limit as u64 {
            return Err(too_large());
        }
        let (mut read, mut room) = (Vec::new(), None);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(Exchange::of)?;
            let Some(data) = frame.data_ref() else { continue };
            if read.len() + data.len() > limit {
                return Err(too_large());
            }
            if room.is_none() && read.len() + data.len() > SMALL_ANSWER_BYTES {
                room = Some(target.large(&self.large).await);
            }
            read.extend_from_slice(data);
        }
        Ok((read, room))
    }
}

/// The end of an exchange without an answer that counts.
enum Exchange {
    /// Before anything of the answer came.
    Closed,
    Failed(String),
    Answered(HookError),
}

impl Exchange {
    fn of(error: hyper::Error) -> Self {
        match error.is_canceled() || error.is_closed() || error.is_incomplete_message() {
            true => Self::Closed,
            false => Self::Failed(error.to_string()),
        }
    }
}

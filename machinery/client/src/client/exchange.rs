//! Requests as they are sent, and their answers within bounds.

use super::Client;
use super::paths::with_query;
use super::written::Written;
use crate::answer::{self, transport};
use crate::error::ClientError;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::{Method, Request, header};
use http_body_util::BodyExt;
use kube::client::Body;
use machinery_meta::SharedEvents;
use machinery_runtime::AnswerRoom;
use serde::Serialize;
use std::time::Duration;

/// Longest duration of an answer; the server bounds its own work at 34 s, and lists at 60 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(70);

/// Times that a request is sent again, as client-go has it.
const MAX_RETRIES: usize = 10;
/// The server has no place for the request now.
const TOO_MANY_REQUESTS: i32 = 429;

/// A request that may be sent more than once.
pub(super) struct Outgoing {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) accept: &'static str,
    /// With its content type.
    pub(super) body: Option<(&'static str, Bytes)>,
}

impl Outgoing {
    /// A request for a path; `body` is JSON of this content type.
    pub(super) fn of_body(
        method: Method,
        path: Result<String, ClientError>,
        content_type: &'static str,
        body: &impl Serialize,
    ) -> Result<Self, ClientError> {
        let body = serde_json::to_vec(body).map_err(|source| ClientError::Decode {
            what: "the request's body".to_owned(),
            source,
        })?;
        Ok(Self {
            method,
            path: path?,
            accept: "application/json",
            body: Some((content_type, body.into())),
        })
    }

    fn build(&self, client: &Client) -> Result<Request<Body>, ClientError> {
        let request = client
            .request(self.method.clone(), &self.path)
            .header(header::ACCEPT, self.accept);
        let request = match &self.body {
            Some((content_type, body)) => request
                .header(header::CONTENT_TYPE, *content_type)
                .body(Body::from(body.clone())),
            None => request.body(Body::empty()),
        };
        Ok(request?)
    }
}

/// A stream of an answer.
pub(crate) struct Opened {
    pub(crate) pieces: BoxStream<'static, Result<Bytes, ClientError>>,
    /// Room of the API extension that answers, if one does.
    pub(crate) room: Option<AnswerRoom>,
    /// Events that pieces announce, where the server is of this process.
    pub(crate) shared: SharedEvents,
}

impl Client {
    /// The same as [`Client::get_path`], with the room of the API extension that answers, if one does.
    pub(crate) async fn get_answer(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<(Bytes, Option<AnswerRoom>), ClientError> {
        let request = self
            .request(Method::GET, &with_query(path, query))
            .header(header::ACCEPT, "application/json")
            .body(Body::empty())?;
        let exchange = async {
            let response = self.transport.send(request).await.map_err(transport)?;
            let room = answer::room_of(&response);
            let body = answer::read(response, self.max_answer_bytes).await?;
            Ok((body, room))
        };
        self.limited(exchange).await?
    }

    /// The same as [`Client::stream`], for readers of a watch: a server of this process shares its events.
    pub(crate) async fn open_watch(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> Result<Opened, ClientError> {
        self.open(path, query, self.shares_memory()).await
    }

    pub(super) async fn open(
        &self,
        path: &str,
        query: &[(&str, String)],
        shares: bool,
    ) -> Result<Opened, ClientError> {
        let mut request = self
            .request(Method::GET, &with_query(path, query))
            // An extension that compresses would have to be unpacked.
            .header(header::ACCEPT_ENCODING, "identity")
            .body(Body::empty())?;
        let shared = SharedEvents::default();
        if shares {
            request.extensions_mut().insert(shared.clone());
        }
        let response = self
            .limited(self.transport.send(request))
            .await?
            .map_err(transport)?;
        if !response.status().is_success() {
            let refusal = answer::refusal(response, self.max_answer_bytes);
            return Err(self.limited(refusal).await?);
        }
        let room = answer::room_of(&response);
        let pieces = response.into_body().into_data_stream();
        Ok(Opened {
            pieces: pieces.map(|piece| piece.map_err(transport)).boxed(),
            room,
            shared,
        })
    }

    pub(super) fn send_body(
        &self,
        method: Method,
        path: Result<String, ClientError>,
        content_type: &'static str,
        body: &impl Serialize,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        match Outgoing::of_body(method, path, content_type, body) {
            Ok(request) => self.answer(request),
            Err(error) => Box::pin(async move { Err(error) }),
        }
    }

    pub(super) fn call_without_body(
        &self,
        method: Method,
        path: Result<String, ClientError>,
    ) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        let path = match path {
            Ok(path) => path,
            Err(error) => return Box::pin(async move { Err(error) }),
        };
        self.answer(Outgoing {
            method,
            path,
            accept: "application/json",
            body: None,
        })
    }

    pub(super) fn request(&self, method: Method, path: &str) -> http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::USER_AGENT, &*self.user_agent)
    }

    /// Sends a request, as [`Client::again_in_time`] does.
    pub(super) fn answer(&self, request: Outgoing) -> BoxFuture<'static, Result<Bytes, ClientError>> {
        let client = self.clone();
        Box::pin(async move { client.again_in_time(|| client.exchange(&request)).await })
    }

    /// Sends a request. One that the server has no place for (429) is sent again when the server wants it, as client-go sends it:
    /// it was not carried out. All waits together are no longer than [`REQUEST_TIMEOUT`].
    pub(super) async fn again_in_time<T, F>(&self, send: impl Fn() -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut waited = Duration::ZERO;
        let mut answer = send().await;
        for _ in 0..MAX_RETRIES {
            let refusal = answer
                .as_ref()
                .err()
                .filter(|error| error.code() == TOO_MANY_REQUESTS);
            let seconds = refusal.and_then(ClientError::retry_after_seconds);
            let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
            let Some(wait) = seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs) else {
                break;
            };
            waited += wait;
            if waited > REQUEST_TIMEOUT {
                break;
            }
            self.runtime.sleep(wait).await;
            answer = send().await;
        }
        answer
    }

    async fn exchange(&self, request: &Outgoing) -> Result<Bytes, ClientError> {
        let request = request.build(self)?;
        let exchange = async {
            let response = self.transport.send(request).await.map_err(transport)?;
            answer::read(response, self.max_answer_bytes).await
        };
        self.limited(exchange).await?
    }

    /// Sends a write. A server of this process shares the written object instead of sending it; the body of its answer is not read.
    pub(super) async fn write(&self, request: &Outgoing) -> Result<Written, ClientError> {
        let mut request = request.build(self)?;
        let shared = SharedEvents::default();
        if self.shares_memory() {
            request.extensions_mut().insert(shared.clone());
        }
        let exchange = async {
            let response = self.transport.send(request).await.map_err(transport)?;
            if let (true, Some(event)) = (response.status().is_success(), shared.take().pop_front()) {
                return Ok(Written::of_event(event));
            }
            let body = answer::read(response, self.max_answer_bytes).await?;
            Ok(Written::of_answer(body))
        };
        self.limited(exchange).await?
    }

    async fn limited<T>(&self, future: impl Future<Output = T>) -> Result<T, ClientError> {
        let limit = self.runtime.timeout(REQUEST_TIMEOUT, future).await;
        limit.map_err(|_| ClientError::TimedOut {
            seconds: REQUEST_TIMEOUT.as_secs(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use machinery_runtime::{Runtime, Simulation};
    use std::sync::{Arc, Mutex};

    /// The outcome of a request whose first answers are 429 with these seconds of `Retry-After`, the times at which it was sent, and
    /// the bodies.
    fn sent(waits: &[u64]) -> (Result<Bytes, ClientError>, Vec<u64>, Vec<Bytes>) {
        let simulation = Simulation::new(1);
        let runtime = simulation.runtime();
        let sent: Arc<Mutex<Vec<(u64, Bytes)>>> = Arc::default();
        let outcome = Arc::new(Mutex::new(None));
        let (noted, waits, clock, kept) = (sent.clone(), waits.to_vec(), runtime.clone(), outcome.clone());
        simulation.run(async move {
            let client = Client::in_process(busy(noted, waits, clock), runtime);
            let done = client.send_body(Method::POST, Ok("/api".to_owned()), "application/json", &"body");
            *kept.lock().unwrap() = Some(done.await);
        });
        let (times, bodies) = std::mem::take(&mut *sent.lock().unwrap()).into_iter().unzip();
        let outcome = outcome.lock().unwrap().take().unwrap();
        (outcome, times, bodies)
    }

    type Answering = tower::util::BoxCloneSyncService<Request<Body>, Response<Body>, tower::BoxError>;

    fn busy(noted: Arc<Mutex<Vec<(u64, Bytes)>>>, waits: Vec<u64>, clock: Runtime) -> Answering {
        let service = tower::service_fn(move |request: Request<Body>| {
            let (noted, waits, clock) = (noted.clone(), waits.clone(), clock.clone());
            async move {
                let body = request.into_body().collect_bytes().await?;
                let mut noted = noted.lock().unwrap();
                let wait = waits.get(noted.len());
                noted.push((clock.monotonic().as_secs(), body));
                let answer = match wait {
                    Some(wait) => Response::builder().status(429).header(header::RETRY_AFTER, *wait),
                    None => Response::builder(),
                };
                Ok::<_, tower::BoxError>(answer.body(Body::from(b"{}".to_vec()))?)
            }
        });
        tower::util::BoxCloneSyncService::new(service)
    }

    #[test]
    fn requests_without_a_place_are_sent_again_when_the_server_wants_them() {
        let (outcome, times, bodies) = sent(&[2, 5]);
        assert_eq!(outcome.unwrap(), "{}");
        assert_eq!((times, bodies), (vec![0, 2, 7], vec![Bytes::from("\"body\""); 3]));
        // Not for ever: so often, and so long.
        let (outcome, times, _) = sent(&[1; 20]);
        assert_eq!((outcome.unwrap_err().code(), times.len()), (429, 11));
        let (outcome, times, _) = sent(&[40, 40]);
        assert_eq!((outcome.unwrap_err().code(), times), (429, vec![0, 40]));
        let (_, times, _) = sent(&[u64::MAX]);
        assert_eq!(times, [0]);
        // At no time that the server wants, the caller decides.
        let (outcome, times, _) = sent(&[0]);
        assert_eq!((outcome.unwrap_err().code(), times), (429, vec![0]));
    }
}

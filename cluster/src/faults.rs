//! A transport that delays, loses and breaks, by the runtime's randomness, so that a seed decides what happens.
//!
//! A request may be late, be lost before it is sent, or be carried out and its answer lost; a stream (a watch) may
//! break between any two frames, and frames may be late. Answers overtake each other because each has its own delay.

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use machinery_runtime::Runtime;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

type BoxError = Box<dyn Error + Send + Sync>;

/// Rates of faults, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// A request is lost before the server sees it.
    pub lose_request: u64,
    /// A request is carried out and its answer is lost.
    pub lose_answer: u64,
    /// A request gets no answer, and its connection does not end.
    pub hang: u64,
    /// A stream breaks, per frame.
    pub break_stream: u64,
    /// A request, an answer or a frame is late.
    pub delay: u64,
    /// Longest delay.
    pub longest_delay: Duration,
}

impl Rates {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        lose_request: 0,
        lose_answer: 0,
        hang: 0,
        break_stream: 0,
        delay: 0,
        longest_delay: Duration::ZERO,
    };
    /// Enough of everything that every story meets each kind.
    pub const SOME: Self = Self {
        lose_request: 20,
        lose_answer: 40,
        hang: 0,
        break_stream: 15,
        delay: 400,
        longest_delay: Duration::from_millis(400),
    };
}

/// A request that a component sent and the server answered, as invariants look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Such as `DELETE`.
    pub method: String,
    /// Without the query.
    pub path: String,
    /// The answer's code, whether or not it arrived.
    pub code: u16,
}

/// The faults of one cluster; clones are the same faults.
#[derive(Debug, Clone)]
pub struct Faults {
    inner: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    rates: Rates,
    /// Mutations that the server answered.
    mutations: Vec<Request>,
}

impl Faults {
    /// Faults at these rates.
    pub fn new(rates: Rates) -> Self {
        Self {
            inner: Arc::new(Mutex::new(State {
                rates,
                mutations: Vec::new(),
            })),
        }
    }

    /// Changes the rates; [`Rates::NONE`] heals the world.
    pub fn set(&self, rates: Rates) {
        self.state(|state| state.rates = rates);
    }

    /// Every mutation that the server answered so far.
    pub fn mutations(&self) -> Vec<Request> {
        self.state(|state| state.mutations.clone())
    }

    fn rates(&self) -> Rates {
        self.state(|state| state.rates)
    }

    fn note(&self, request: Request) {
        if request.method != "GET" {
            self.state(|state| state.mutations.push(request));
        }
    }

    fn state<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn happens(runtime: &Runtime, thousandths: u64) -> bool {
    thousandths > 0 && runtime.random_u64() % 1000 < thousandths
}

fn lateness(runtime: &Runtime, rates: Rates) -> Option<Duration> {
    let longest = u64::try_from(rates.longest_delay.as_micros()).unwrap_or(0).max(1);
    happens(runtime, rates.delay).then(|| Duration::from_micros(runtime.random_u64() % longest))
}

/// Error of a fault, as a client sees it.
#[derive(Debug)]
struct Broken(&'static str);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Broken {}

/// A service behind faults.
pub(crate) struct FaultyService<S> {
    inner: S,
    faults: Faults,
    runtime: Runtime,
}

impl<S> FaultyService<S> {
    pub(crate) fn new(inner: S, faults: Faults, runtime: Runtime) -> Self {
        Self {
            inner,
            faults,
            runtime,
        }
    }
}

impl<S, B, R> tower::Service<http::Request<B>> for FaultyService<S>
where
    S: tower::Service<http::Request<B>, Response = http::Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Send + 'static,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = http::Response<FaultyBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let (mut inner, faults, runtime) = (self.inner.clone(), self.faults.clone(), self.runtime.clone());
        Box::pin(async move {
            if let Some(late) = lateness(&runtime, faults.rates()) {
                runtime.sleep(late).await;
            }
            if happens(&runtime, faults.rates().lose_request) {
                return Err(Broken("the request was lost").into());
            }
            if happens(&runtime, faults.rates().hang) {
                std::future::pending::<()>().await;
            }
            let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
            let response = inner.call(request).await.map_err(Into::into)?;
            faults.note(Request {
                method,
                path,
                code: response.status().as_u16(),
            });
            if let Some(late) = lateness(&runtime, faults.rates()) {
                runtime.sleep(late).await;
            }
            if happens(&runtime, faults.rates().lose_answer) {
                return Err(Broken("the answer was lost").into());
            }
            Ok(response.map(|body| FaultyBody::new(body, faults, runtime)))
        })
    }
}

/// A body whose frames may be late, and that may break between two of them.
pub(crate) struct FaultyBody {
    inner: Pin<Box<dyn HttpBody<Data = Bytes, Error = BoxError> + Send>>,
    faults: Faults,
    runtime: Runtime,
    waiting: Option<BoxFuture<'static, ()>>,
    /// True once the fault of the next frame is drawn.
    decided: bool,
}

impl FaultyBody {
    fn new<R>(body: R, faults: Faults, runtime: Runtime) -> Self
    where
        R: HttpBody<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        use http_body_util::BodyExt;
        Self {
            inner: Box::pin(body.map_err(Into::into)),
            faults,
            runtime,
            waiting: None,
            decided: false,
        }
    }
}

impl HttpBody for FaultyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Some(waiting) = &mut this.waiting {
            std::task::ready!(waiting.as_mut().poll(cx));
            this.waiting = None;
        }
        let rates = this.faults.rates();
        if !std::mem::replace(&mut this.decided, true) {
            if happens(&this.runtime, rates.break_stream) {
                return Poll::Ready(Some(Err(Broken("the stream broke").into())));
            }
            if let Some(late) = lateness(&this.runtime, rates) {
                let mut waiting = this.runtime.sleep(late);
                if waiting.as_mut().poll(cx).is_pending() {
                    this.waiting = Some(waiting);
                    return Poll::Pending;
                }
            }
        }
        let frame = std::task::ready!(this.inner.as_mut().poll_frame(cx));
        this.decided = false;
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

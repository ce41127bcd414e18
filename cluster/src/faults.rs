//! A transport that delays, loses and breaks, by the runtime's randomness, so that a seed decides what happens.
//!
//! A request may be late, be lost before it is sent, or be carried out and its answer lost; it may be refused by an answer
//! that the server never gave ([`Rates::conflict`] and the like). A stream (a watch) may break between any two frames, and
//! frames may be late, by minutes too. Answers overtake each other because each has its own delay.

use crate::refusals::Refusal;
use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use machinery_runtime::Runtime;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    /// A change (PUT, PATCH) is answered with 409, and not made.
    pub conflict: u64,
    /// A request is answered with 429 and a time after which to try again.
    pub throttle: u64,
    /// A request is answered with 500, 503 or 504, and not carried out.
    pub fail_before: u64,
    /// A mutation is carried out, and answered with 500, 503 or 504.
    pub fail_after: u64,
    /// A watch that resumes is answered with 410.
    pub expire: u64,
    /// A creation is refused as by a quota or a webhook.
    pub deny: u64,
    /// A stream falls behind, per frame; one that is behind already falls no further.
    pub lag: u64,
    /// Longest time by which it does.
    pub longest_lag: Duration,
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
        conflict: 0,
        throttle: 0,
        fail_before: 0,
        fail_after: 0,
        expire: 0,
        deny: 0,
        lag: 0,
        longest_lag: Duration::ZERO,
    };
    /// Enough of everything that every story meets each kind.
    pub const SOME: Self = Self {
        lose_request: 20,
        lose_answer: 40,
        hang: 0,
        break_stream: 15,
        delay: 400,
        longest_delay: Duration::from_millis(400),
        ..Self::NONE
    };
    /// Everything that an API server and the way to it do to components: also refusals, and watches that are minutes behind.
    pub const HARSH: Self = Self {
        hang: 2,
        conflict: 20,
        throttle: 15,
        fail_before: 15,
        fail_after: 15,
        expire: 150,
        deny: 60,
        lag: 2,
        longest_lag: Duration::from_secs(180),
        ..Self::SOME
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
    rates: Arc<Mutex<Rates>>,
    /// Mutations that the server answered.
    mutations: Arc<Mutex<Vec<Request>>>,
}

impl Faults {
    /// Faults at these rates.
    pub fn new(rates: Rates) -> Self {
        Self {
            rates: Arc::new(Mutex::new(rates)),
            mutations: Arc::default(),
        }
    }

    /// Faults at rates of their own, whose mutations are recorded with these.
    #[must_use]
    pub fn beside(&self, rates: Rates) -> Self {
        Self {
            rates: Arc::new(Mutex::new(rates)),
            mutations: Arc::clone(&self.mutations),
        }
    }

    /// Changes the rates; [`Rates::NONE`] heals the world.
    pub fn set(&self, rates: Rates) {
        *locked(&self.rates) = rates;
    }

    /// Every mutation that the server answered so far.
    pub fn mutations(&self) -> Vec<Request> {
        locked(&self.mutations).clone()
    }

    fn rates(&self) -> Rates {
        *locked(&self.rates)
    }

    fn note(&self, request: Request) {
        if request.method != "GET" {
            locked(&self.mutations).push(request);
        }
    }
}

fn locked<T>(own: &Mutex<T>) -> MutexGuard<'_, T> {
    own.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn happens(runtime: &Runtime, thousandths: u64) -> bool {
    thousandths > 0 && runtime.random_u64() % 1000 < thousandths
}

fn lateness(runtime: &Runtime, rates: Rates) -> Option<Duration> {
    up_to(runtime, rates.delay, rates.longest_delay)
}

/// Time by which a stream falls behind.
fn lag(runtime: &Runtime, rates: Rates) -> Option<Duration> {
    up_to(runtime, rates.lag, rates.longest_lag)
}

fn up_to(runtime: &Runtime, thousandths: u64, longest: Duration) -> Option<Duration> {
    let longest = u64::try_from(longest.as_micros()).unwrap_or(0).max(1);
    happens(runtime, thousandths).then(|| Duration::from_micros(runtime.random_u64() % longest))
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
            if let Some(refusal) = Refusal::before(&runtime, faults.rates(), &request) {
                return Ok(refused(refusal, faults, runtime));
            }
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let response = inner.call(request).await.map_err(Into::into)?;
            faults.note(Request {
                method: method.to_string(),
                path,
                code: response.status().as_u16(),
            });
            if let Some(refusal) = Refusal::after(&runtime, faults.rates(), &method) {
                return Ok(refused(refusal, faults, runtime));
            }
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

fn refused(refusal: Refusal, faults: Faults, runtime: Runtime) -> http::Response<FaultyBody> {
    refusal
        .response()
        .map(|body| FaultyBody::new(body, faults, runtime))
}

/// A body whose frames may be late, and that may break between two of them.
pub(crate) struct FaultyBody {
    inner: Pin<Box<dyn HttpBody<Data = Bytes, Error = BoxError> + Send>>,
    faults: Faults,
    runtime: Runtime,
    waiting: Option<BoxFuture<'static, ()>>,
    /// True once the fault of the next frame is drawn.
    decided: bool,
    /// True from falling behind until all that was waiting has been delivered.
    behind: bool,
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
            behind: false,
        }
    }

    fn lateness(&mut self, rates: Rates) -> Option<Duration> {
        let lag = if self.behind {
            None
        } else {
            lag(&self.runtime, rates)
        };
        self.behind |= lag.is_some();
        lag.or_else(|| lateness(&self.runtime, rates))
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
            if let Some(late) = this.lateness(rates) {
                let mut waiting = this.runtime.sleep(late);
                if waiting.as_mut().poll(cx).is_pending() {
                    this.waiting = Some(waiting);
                    return Poll::Pending;
                }
            }
        }
        let Poll::Ready(frame) = this.inner.as_mut().poll_frame(cx) else {
            this.behind = false;
            return Poll::Pending;
        };
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

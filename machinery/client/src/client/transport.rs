//! Ways of requests to the server: a `kube::Client` over TLS, or a call of a service in this process.

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock};

/// The body of an answer.
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, kube::Error>;

type Answer = BoxFuture<'static, Result<Response<AnswerBody>, kube::Error>>;
type Call = dyn Fn(Request<Body>) -> Answer + Send + Sync;
type BoxError = tower::BoxError;

/// Transport of a client. Cheap to clone.
#[derive(Clone)]
pub(super) enum Transport {
    Kube(kube::Client),
    InProcess(InProcess),
}

/// A service of this process. Its requests are calls: they pass no queue and no task.
#[derive(Clone)]
pub(super) struct InProcess {
    call: Arc<Call>,
    /// For callers that need one; made at the first such call.
    kube: Arc<OnceLock<kube::Client>>,
}

impl Transport {
    pub(super) fn in_process<S, B>(service: S) -> Self
    where
        S: tower::Service<Request<Body>, Response = Response<B>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        // Held while a request is taken up, not while it is answered.
        let service = Arc::new(Mutex::new(service));
        let call = move |request: Request<Body>| -> Answer { Box::pin(call(Arc::clone(&service), request)) };
        Self::InProcess(InProcess {
            call: Arc::new(call),
            kube: Arc::default(),
        })
    }

    pub(super) fn shares_memory(&self) -> bool {
        matches!(self, Self::InProcess(_))
    }

    pub(super) fn kube(&self) -> &kube::Client {
        match self {
            Self::Kube(kube) => kube,
            Self::InProcess(own) => own.kube.get_or_init(|| {
                let call = Arc::clone(&own.call);
                kube::Client::new(tower::service_fn(move |request| call(request)), "default")
            }),
        }
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<AnswerBody>, kube::Error> {
        match self {
            Self::Kube(kube) => Ok(kube.send(request).await?.map(BodyExt::boxed_unsync)),
            Self::InProcess(own) => (own.call)(request).await,
        }
    }
}

async fn call<S, B>(
    service: Arc<Mutex<S>>,
    request: Request<Body>,
) -> Result<Response<AnswerBody>, kube::Error>
where
    S: tower::Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let failed = |error: S::Error| kube::Error::Service(error.into());
    poll_fn(|cx| service.lock().poll_ready(cx))
        .await
        .map_err(failed)?;
    let answer = service.lock().call(request);
    let answer = answer.await.map_err(failed)?;
    Ok(answer.map(|body| {
        body.map_err(|error| kube::Error::Service(error.into()))
            .boxed_unsync()
    }))
}

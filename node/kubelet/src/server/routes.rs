//! From a request to its answer.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{RETRY_AFTER, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use jiff::Timestamp;
use machinery_meta::UserInfo;
use machinery_runtime::Watched;
use machinery_x509::{PeerCertificate, bearer_tokens};

use super::attributes::{subresources_of, verb_of};
use super::auth::{Delegated, Refusal};
use super::clients::Clients;
use super::query::Query;
use super::requests::{OpenRequest, OpenRequests};
use super::response::{Body, json, text};
use super::streaming::{self, StreamSlots};
use super::system_logs::SystemLogs;
use super::tls::ServingCertificate;
use super::usage::Usage;
use super::{
    cadvisor, checkpoint, components, configz, debug_pages, local_volumes, logs, methods, metrics, run,
    running_pods, stats,
};
use crate::local_volumes::LocalVolumes;
use crate::managers::ManagerContext;
use crate::metrics::requests::ServerMetrics;

/// The authenticated server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(super) context: ManagerContext,
    delegated: Delegated,
    clients: Option<Arc<Clients>>,
    serving: Arc<ServingCertificate>,
    stream_slots: Arc<StreamSlots>,
    local_volumes: Arc<LocalVolumes>,
    usage: Usage,
    metrics: Arc<ServerMetrics>,
    system_logs: SystemLogs,
    /// Time of its start.
    began: Timestamp,
}

/// The other side of a connection.
#[derive(Debug)]
pub(crate) struct Caller {
    /// The certificate of its handshake.
    pub(crate) peer: Option<PeerCertificate>,
    /// Address of the client.
    pub(crate) address: IpAddr,
    /// Its requests that were admitted.
    pub(crate) requests: OpenRequests,
    /// The user of the first of them.
    pub(crate) admitted: Arc<Watched<Option<String>>>,
}

impl Caller {
    /// Counts a request of this user, which is admitted.
    fn begin(&self, user: UserInfo) -> OpenRequest {
        if self.admitted.get().is_none() {
            self.admitted.replace(Some(user.name));
        }
        self.requests.begin()
    }
}

impl Server {
    /// Answers with what these managers know.
    pub(crate) fn new(
        context: ManagerContext,
        clients: Option<Arc<Clients>>,
        serving: Arc<ServingCertificate>,
    ) -> Self {
        let node = context.config.node_name.clone();
        let local_volumes = LocalVolumes::new(context.config.local_volumes_folder());
        let usage = Usage::new(&context);
        let metrics = ServerMetrics::new(&context.runtime);
        let delegated = Delegated::new(context.runtime.clone(), context.client.clone(), node);
        Self {
            began: context.runtime.now(),
            system_logs: SystemLogs::default(),
            context,
            delegated,
            clients,
            serving,
            stream_slots: Arc::default(),
            local_volumes: Arc::new(local_volumes),
            usage,
            metrics,
        }
    }

    /// The user whom a certificate names at this moment.
    pub(crate) fn known(&self, peer: Option<&PeerCertificate>) -> Option<UserInfo> {
        let clients = self.clients.as_ref()?;
        clients.user(peer, self.context.runtime.now())
    }

    /// Answers one request of this caller's connection.
    pub(crate) async fn handle(&self, caller: &Caller, request: Request<Incoming>) -> Response<Body> {
        let served = self.metrics.begin(request.method(), request.uri().path());
        match self.admit(caller, &request).await {
            Ok(user) => {
                let name = user.name.clone();
                let open = caller.begin(user).counted(served);
                let answer = self.route(&name, request).await;
                open.until_answered(answer.unwrap_or_else(|refusal| *refusal))
            }
            Err(refusal) => refused(refusal),
        }
    }

    async fn admit(&self, caller: &Caller, request: &Request<Incoming>) -> Result<UserInfo, Refusal> {
        let user = self.authenticate(caller, request.headers()).await?;
        let path = request.uri().path();
        let verb = verb_of(request.method(), path);
        self.delegated
            .authorize(&user, verb, subresources_of(path))
            .await?;
        Ok(user)
    }

    /// The user of a certificate, or of the first token that is good.
    async fn authenticate(&self, caller: &Caller, headers: &HeaderMap) -> Result<UserInfo, Refusal> {
        if let Some(known) = self.known(caller.peer.as_ref()) {
            return Ok(known);
        }
        let mut refusal = Refusal::Unauthorized;
        for token in bearer_tokens(headers).filter_map(Result::ok) {
            match self.delegated.authenticate(&token, caller.address).await {
                Ok(user) => return Ok(user),
                Err(Refusal::Unauthorized) => {}
                Err(other) => refusal = other,
            }
        }
        Err(refusal)
    }

    /// Answers a user's request.
    async fn route(
        &self,
        user: &str,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Box<Response<Body>>> {
        let path = request.uri().path().to_string();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let context = &self.context;
        if let Some(refusal) = methods::refusal(request.method(), &parts) {
            return Err(Box::new(refusal));
        }
        if let Some(answer) = debug_pages::disabled(&parts) {
            return Ok(answer);
        }
        Ok(match parts.as_slice() {
            ["healthz" | "livez" | "readyz"] => {
                let (code, words) = components::health(&context.runtime);
                text(StatusCode::from_u16(code).unwrap_or_default(), words)
            }
            ["pods"] => self.pods(),
            ["stats", "summary"] => stats::summary(context, &self.usage).await,
            ["metrics"] => metrics::metrics(context, &self.usage, &self.serving).await,
            ["metrics", "resource"] => metrics::resource(context, &self.usage).await,
            ["configz"] => json(&configz::configz(&context.config, &context.facts)),
            ["statusz"] => debug_pages::statusz(self.agent(), request.headers()),
            ["flagz"] => debug_pages::flagz(&context.config.flags, request.headers()),
            ["logs", ..] => {
                let logs = &self.system_logs;
                logs.answer(context, user, request.uri(), request.headers()).await
            }
            ["runningpods"] => running_pods::running_pods(context).await,
            ["metrics", "cadvisor"] => cadvisor::answer(context, &self.usage).await,
            ["metrics", "probes"] => metrics::probes(context),
            ["containerLogs", namespace, pod, container] => {
                let slot = self.stream_slots.enter(namespace, pod)?;
                logs::answer(context, slot, namespace, pod, container, &query).await
            }
            [verb @ ("exec" | "attach"), namespace, pod, container]
            | [verb @ ("exec" | "attach"), namespace, pod, _, container] => {
                let target = streaming::Target {
                    namespace,
                    pod,
                    container,
                };
                let slot = self.stream_slots.enter(namespace, pod)?;
                self.count_stream(&request, verb);
                match *verb {
                    "exec" => streaming::exec(context, slot, request, target, &query).await,
                    _ => streaming::attach(context, slot, request, target, &query).await,
                }
            }
            [verb @ ("run" | "checkpoint"), namespace, pod, container]
            | [verb @ "run", namespace, pod, _, container] => {
                let target = streaming::Target {
                    namespace,
                    pod,
                    container,
                };
                let slot = self.stream_slots.enter(namespace, pod)?;
                match *verb {
                    "run" => run::answer(context, slot, target, &query).await,
                    _ => checkpoint::answer(context, slot, target, &query).await,
                }
            }
            ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
                let slot = self.stream_slots.enter(namespace, pod)?;
                self.count_stream(&request, "portforward");
                streaming::port_forward(context, slot, request, namespace, pod).await
            }
            ["localVolumes", name] if request.method() == Method::POST => {
                local_volumes::make(&context.runtime, &self.local_volumes, name).await
            }
            ["localVolumes", name, "removal"] if request.method() == Method::POST => {
                local_volumes::remove(&context.runtime, &self.local_volumes, name)
            }
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        })
    }

    fn agent(&self) -> debug_pages::Agent<'_> {
        debug_pages::Agent {
            began: self.began,
            now: self.context.runtime.now(),
            version: &self.context.config.version,
        }
    }

    fn count_stream(&self, request: &Request<Incoming>, subresource: &str) {
        let upgrade = request.headers().get(UPGRADE).map(HeaderValue::as_bytes);
        if upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case(b"websocket")) {
            self.metrics.websocket(subresource);
        }
    }

    fn pods(&self) -> Response<Body> {
        let items: Vec<_> = self
            .context
            .pods
            .list()
            .iter()
            .map(|pod| (**pod).clone())
            .collect();
        json(&serde_json::json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
    }
}

fn refused(refusal: Refusal) -> Response<Body> {
    match refusal {
        Refusal::Unauthorized => text(StatusCode::UNAUTHORIZED, "Unauthorized"),
        Refusal::Forbidden(why) => text(StatusCode::FORBIDDEN, why),
        Refusal::TooMany => {
            let words = "Too many requests, please try again later.\n";
            let mut answer = text(StatusCode::TOO_MANY_REQUESTS, words);
            let headers = answer.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            answer
        }
        Refusal::Unavailable(why) => text(StatusCode::INTERNAL_SERVER_ERROR, why),
    }
}

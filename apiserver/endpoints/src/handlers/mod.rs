//! From a request to its handler.
//!
//! The address finds a row, the verb of [`RequestInfo`] a handler. All of them answer in the caller's task; that a client
//! that leaves never stops a mutation halfway is the caller's to see to.

mod apply;
mod binding;
mod collection;
mod component_status;
mod connect;
mod disruption_budget;
mod event_writer;
mod eviction;
mod read;
mod resource_metrics;
mod review;
mod routed;
mod scale;
mod token;
mod unreadable;
mod watch;
mod watch_throttle;
mod write;

pub use routed::is_routed;

use crate::body::Body;
use crate::error::ApiError;
use crate::hooks::Hooks;
use crate::list_memory::ListMemory;
use crate::negotiation::{self, Representation, ResponseFormat, SupportedFormats};
use crate::request_info::{Query, RequestInfo};
use crate::respond::ResponseOptions;
use crate::shared_document::SharedDocuments;
use crate::table::IncludeObject;
use crate::unread_memory::UnreadMemory;
use crate::version::VersionInfo;
use crate::{discovery, openapi, status};
use apiserver_registry::context::flow_of;
use apiserver_registry::{
    Admission, Attributes, Door, Operation, OperationOptions, Registry, RegistryError, RequestContext,
    ResourceRow, Scope, Store, SubresourceRole, Verb,
};
use futures::future::BoxFuture;
use http::header::CONTENT_ENCODING;
use http::{Method, Request, Response};
use std::sync::Arc;
use std::time::Duration;

/// The API's handlers over one registry. Cheap to clone.
#[derive(Clone)]
pub struct Endpoints(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) registry: Registry,
    pub(crate) admission: Arc<dyn Admission>,
    pub(crate) hooks: Arc<dyn Hooks>,
    pub(crate) version: VersionInfo,
    pub(crate) list_memory: ListMemory,
    pub(crate) min_request_timeout: Duration,
    pub(crate) watch_throttle: Arc<watch_throttle::WatchThrottle>,
    pub(crate) unread_memory: Arc<UnreadMemory>,
    pub(crate) documents: SharedDocuments,
}

impl std::fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Endpoints")
    }
}

/// A request that has found its resource.
pub(crate) struct Call {
    pub(crate) ctx: RequestContext,
    pub(crate) info: RequestInfo,
    pub(crate) query: Query,
    pub(crate) store: Store,
    pub(crate) request: Request<Body>,
}

impl Call {
    pub(crate) fn row(&self) -> &ResourceRow {
        &self.store.row
    }

    pub(crate) fn offer(&self) -> SupportedFormats {
        if self.row().custom {
            return SupportedFormats::CUSTOM;
        }
        SupportedFormats {
            streams: matches!(&*self.info.verb, "list" | "watch"),
            ..SupportedFormats::ALL
        }
    }

    /// Attributes for admission of an operation that stores nothing of this kind: a connection, a review, a
    /// subresource with a kind of its own.
    pub(crate) fn attributes(&self, operation: Operation, name: &str, dry_run: bool) -> Attributes {
        let row = self.row();
        let sub = row.subresource(&self.info.subresource);
        Attributes {
            operation,
            kind: sub.map_or_else(|| row.gvk.clone(), |sub| sub.gvk.clone()),
            resource: row.group_version().resource(&row.plural),
            built_in: row.built_in,
            subresource: self.info.subresource.clone(),
            namespace: self.info.scope.namespace().to_owned(),
            name: name.to_owned(),
            addressed: !self.info.name.is_empty(),
            dry_run,
            options: OperationOptions::None,
        }
    }

    /// The form of the answer, negotiated before anything is done.
    pub(crate) fn response_options(&self) -> Result<ResponseOptions, ApiError> {
        self.response_options_of(self.offer())
    }

    /// The same for answers that have no rows and no metadata to show: reviews.
    pub(crate) fn negotiate_without_views(&self) -> Result<ResponseOptions, ApiError> {
        self.response_options_of(SupportedFormats {
            views: false,
            ..self.offer()
        })
    }

    fn response_options_of(&self, offer: SupportedFormats) -> Result<ResponseOptions, ApiError> {
        let mut form = negotiation::accept(self.request.headers(), offer)?;
        form.pretty = negotiation::wants_pretty(&self.query, self.request.headers());
        Ok(ResponseOptions {
            form,
            include: IncludeObject::parse(self.query.get("includeObject"))?,
            now: self.ctx.runtime.now(),
        })
    }

    /// The form of an answer that is always the object itself.
    pub(crate) fn negotiate_object(&self) -> Result<ResponseOptions, ApiError> {
        let mut showing = self.response_options()?;
        showing.form.view = Representation::Object;
        Ok(showing)
    }
}

impl Endpoints {
    /// A watch without `timeoutSeconds` ends after `min_request_timeout`, or up to twice as long.
    pub fn new(
        registry: Registry,
        admission: Arc<dyn Admission>,
        hooks: Arc<dyn Hooks>,
        version: VersionInfo,
        list_memory: ListMemory,
        min_request_timeout: Duration,
    ) -> Self {
        let unread_memory = UnreadMemory::new(registry.runtime().clone(), Arc::clone(list_memory.waiting()));
        Self(Arc::new(Inner {
            registry,
            admission,
            hooks,
            version,
            list_memory,
            min_request_timeout,
            watch_throttle: Arc::default(),
            unread_memory,
            documents: SharedDocuments::default(),
        }))
    }

    /// The way to storage for what clients ask.
    pub(crate) fn door(&self) -> Door<'_> {
        Door::new(self.0.admission.as_ref())
    }

    /// Memory of answers that are not read.
    pub fn unread_memory(&self) -> Arc<UnreadMemory> {
        Arc::clone(&self.0.unread_memory)
    }

    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Answers a request that passed the filters.
    pub fn handle(
        &self,
        ctx: RequestContext,
        info: RequestInfo,
        request: Request<Body>,
    ) -> BoxFuture<'static, Response<Body>> {
        let endpoints = self.clone();
        let form = negotiation::of_errors(&request);
        let (runtime, weight) = (ctx.runtime.clone(), ctx.weight.clone());
        let (within, user, namespace) = (runtime.clone(), Arc::clone(&ctx.user), Arc::clone(&ctx.namespace));
        let answer = Box::pin(async move {
            match endpoints.route(ctx, info, request).await {
                Ok(response) if response.headers().contains_key(CONTENT_ENCODING) => {
                    response.map(|body| body.in_turn(&within, &flow_of(&user, &namespace)))
                }
                Ok(response) => response,
                Err(error) => status::response(&error, form),
            }
        });
        Box::pin(runtime.by_weight(&weight, answer))
    }

    async fn route(
        self,
        ctx: RequestContext,
        info: RequestInfo,
        request: Request<Body>,
    ) -> Result<Response<Body>, ApiError> {
        if info.path.starts_with("//") {
            return Ok(not_found_page());
        }
        if !info.is_resource_request {
            let answer = self.non_resource(&info, &request)?;
            drop(request);
            return answer.response(&ctx.runtime, &self.0.documents).await;
        }
        let (group, version) = (info.api_group.as_str(), info.api_version.as_str());
        if group.is_empty() && info.api_prefix == "apis" {
            return Ok(not_found_page());
        }
        let registry = &self.0.registry;
        let Some(store) = registry.served_store(group, version, &info.resource) else {
            if registry.served().is_built_in_group(group) {
                return Err(RegistryError::NoSuchResource.into());
            }
            return Ok(not_found_page());
        };
        match check_scope(&store.row, &info) {
            // Upstream looks for custom kinds last, behind all that says more than a page.
            Err(ApiError::Registry(RegistryError::NoSuchResource)) if store.row.custom => {
                return Ok(not_found_page());
            }
            checked => checked?,
        }
        let store = store.read_by(&ctx.user, &ctx.namespace);
        // `/watch/` in an address is a way to get.
        if info.verb == "watch" && *request.method() != Method::GET {
            return Err(ApiError::MethodNotAllowed);
        }
        if let Some(warning) = &store.row.deprecation_warning {
            ctx.warnings.add(warning.as_str());
            ctx.audit.add("k8s.io/deprecated", "true");
        }
        let query = Query::of(request.uri());
        self.dispatch(Call {
            ctx,
            info,
            query,
            store,
            request,
        })
        .await
    }

    fn non_resource(&self, info: &RequestInfo, request: &Request<Body>) -> Result<openapi::Answer, ApiError> {
        let path = info.path.trim_end_matches('/');
        if let Some(found) = openapi::answer(&self.0, path, request)? {
            return Ok(found);
        }
        let found = discovery::answer(&self.0, path, request)?;
        Ok(openapi::Answer::Ready(found.unwrap_or_else(not_found_page)))
    }

    async fn dispatch(self, call: Call) -> Result<Response<Body>, ApiError> {
        if !call.info.subresource.is_empty() {
            return self.dispatch_subresource(call).await;
        }
        let row = call.row();
        // Upstream's router knows no HEAD and no create under a name; custom kinds pass it by.
        if *call.request.method() == Method::HEAD && !(row.custom && call.info.verb != "watch") {
            return Err(ApiError::MethodNotAllowed);
        }
        if !row.has_store {
            return self.dispatch_virtual(call).await;
        }
        let Some(verb) = Verb::parse(&call.info.verb).filter(|verb| row.verbs.has(*verb)) else {
            return Err(ApiError::MethodNotAllowed);
        };
        // What changes something is boxed: a read need not carry its state.
        match verb {
            Verb::Get => read::get(&call, &self.0).await,
            Verb::List => read::list(&call, &self.0).await,
            Verb::Watch => watch::watch(call, &self.0).await,
            // A create names no object, everything else does.
            Verb::Create if !call.info.name.is_empty() && !row.custom => Err(ApiError::MethodNotAllowed),
            Verb::Create => Box::pin(write::create(self, call)).await,
            Verb::Update | Verb::Patch if call.info.name.is_empty() => Err(ApiError::MethodNotAllowed),
            Verb::Update => Box::pin(write::update(self, call)).await,
            Verb::Patch => Box::pin(write::patch(self, call)).await,
            Verb::Delete => Box::pin(write::delete(self, call)).await,
            Verb::DeleteCollection => Box::pin(collection::delete_collection(self, call)).await,
        }
    }

    async fn dispatch_subresource(self, call: Call) -> Result<Response<Body>, ApiError> {
        let row = call.row();
        let Some(sub) = row.subresource(&call.info.subresource).cloned() else {
            let missing = match row.custom {
                true => RegistryError::not_found(&row.group_resource(), &call.info.name),
                false => RegistryError::NoSuchResource,
            };
            return Err(missing.into());
        };
        match sub.role {
            SubresourceRole::Connect => return Box::pin(connect::connect(self, call, &sub)).await,
            SubresourceRole::Log => return connect::log(self, call, &sub).await,
            _ => {}
        }
        if call.info.parts.len() > 3 {
            return Err(RegistryError::NoSuchResource.into());
        }
        let Some(verb) = Verb::parse(&call.info.verb).filter(|verb| sub.verbs.has(*verb)) else {
            return Err(ApiError::MethodNotAllowed);
        };
        match (sub.role, verb) {
            (SubresourceRole::Scale(paths), Verb::Get) => scale::get(&call, &paths).await,
            (SubresourceRole::Scale(paths), _) => Box::pin(scale::change(self, call, paths)).await,
            (SubresourceRole::Status | SubresourceRole::Whole(_), Verb::Get) => {
                read::get(&call, &self.0).await
            }
            (SubresourceRole::Status | SubresourceRole::Whole(_), Verb::Update) => {
                Box::pin(write::update(self, call)).await
            }
            (SubresourceRole::Status | SubresourceRole::Whole(_), Verb::Patch) => {
                Box::pin(write::patch(self, call)).await
            }
            (SubresourceRole::Binding, Verb::Create) => Box::pin(binding::bind(self, call)).await,
            (SubresourceRole::Eviction, Verb::Create) => Box::pin(eviction::evict(self, call)).await,
            (SubresourceRole::Token, Verb::Create) => Box::pin(token::token(self, call)).await,
            _ => Err(ApiError::MethodNotAllowed),
        }
    }

    /// Kinds that nothing stores: reviews, `bindings`, and those that can be read, `componentstatuses` and metrics.
    async fn dispatch_virtual(self, call: Call) -> Result<Response<Body>, ApiError> {
        let row = call.row();
        let verb = Verb::parse(&call.info.verb).filter(|verb| row.verbs.has(*verb));
        if let Some(Verb::Get | Verb::List) = verb {
            if row.gvk.group == resource_metrics::GROUP {
                return resource_metrics::answer(&call, &self.0).await;
            }
            return component_status::answer(&call, &*self.0.hooks).await;
        }
        // Nothing is stored that a name could be of.
        if call.info.parts.len() > 1 && !row.verbs.has(Verb::Get) {
            return Err(RegistryError::NoSuchResource.into());
        }
        if verb != Some(Verb::Create) {
            return Err(ApiError::MethodNotAllowed);
        }
        if call.row().gvk.kind == "Binding" {
            return Box::pin(binding::bind(self, call)).await;
        }
        Box::pin(review::review(self, call)).await
    }
}

/// Namespaced kinds have their objects below a namespace, others do not; only lists and watches span all namespaces.
fn check_scope(row: &ResourceRow, info: &RequestInfo) -> Result<(), ApiError> {
    if !row.namespaced {
        return match info.scope {
            Scope::Cluster => Ok(()),
            Scope::Namespace(_) => Err(RegistryError::NoSuchResource.into()),
        };
    }
    if info.scope != Scope::Cluster {
        return Ok(());
    }
    match info.verb.as_str() {
        // A name may come from the selector; one in the address belongs below a namespace.
        "list" | "watch" if info.parts.len() == 1 => Ok(()),
        // An empty segment stands where the namespace should.
        _ if info.path.contains("/namespaces//") => {
            Err(RegistryError::BadRequest("Namespace parameter required.".into()).into())
        }
        _ if info.parts.len() == 1 && row.has_store => Err(ApiError::MethodNotAllowed),
        _ => Err(RegistryError::NoSuchResource.into()),
    }
}

/// Upstream's answer to paths that it does not serve.
pub(crate) fn not_found_page() -> Response<Body> {
    http::Response::builder()
        .status(404)
        .header(http::header::CONTENT_TYPE, "text/plain; charset=utf-8")
        .header("X-Content-Type-Options", "nosniff")
        .body(Body::from("404 page not found\n"))
        .expect("headers are well formed")
}

/// The form discovery and other small answers take.
pub(crate) fn small_form(request: &Request<Body>) -> Result<ResponseFormat, ApiError> {
    let mut form = negotiation::accept(
        request.headers(),
        SupportedFormats {
            protobuf: true,
            views: false,
            streams: false,
        },
    )?;
    form.pretty = negotiation::wants_pretty(&Query::of(request.uri()), request.headers());
    Ok(form)
}

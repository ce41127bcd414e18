//! Labels of a request, as upstream's `MonitorRequest` finds them.

use crate::debug_pages;
use crate::exchange::RequestExchange;
use apiserver_endpoints::{Query, RequestInfo, is_routed, negotiation};
use apiserver_registry::{Registry, ResourceRow, SubresourceRole};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use std::sync::Arc;

const COMPONENT: &str = "apiserver";
const APPLY: &str = "application/apply-patch+yaml";
/// Upstream's `validConnectRequests`.
const CONNECTS: [&str; 5] = ["log", "exec", "portforward", "attach", "proxy"];
pub(super) const LABELS: usize = 8;

/// See the module. Labels are those of a route, and so there are as many as there are kinds, whatever clients send.
#[derive(Debug, Clone)]
pub(crate) struct RequestLabels {
    pub(super) verb: &'static str,
    pub(super) dry_run: &'static str,
    pub(super) scope: &'static str,
    pub(super) component: &'static str,
    pub(super) route: Route,
    pub(crate) field_validation: &'static str,
    /// The verb while it runs: a `/watch/` path reads, for upstream's gauge.
    pub(crate) running: &'static str,
    /// A route of GET: the sizes of its answers are counted.
    pub(crate) reads: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Route {
    /// A resource, and which of its subresources.
    Resource(Arc<ResourceRow>, Option<usize>),
    Page(Page),
}

/// Labels of a path that is no resource's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Page {
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    component: &'static str,
}

impl RequestLabels {
    /// `None` for a request that upstream does not count: no handler that counts serves it.
    pub(crate) fn of(registry: &Registry, exchange: &RequestExchange) -> Option<Self> {
        let (info, request) = (&*exchange.info, &exchange.request);
        if exchange.delegate.is_some() {
            return None;
        }
        if !info.is_resource_request {
            let page = page(info, request)?;
            return Some(Self::of_page(page, info, request));
        }
        let row = registry
            .store(&info.api_group, &info.api_version, &info.resource)?
            .row;
        if !is_routed(&row, info, request.method()) {
            return None;
        }
        let sub = row
            .subresources
            .iter()
            .position(|sub| sub.name == info.subresource);
        let streams = sub
            .and_then(|at| row.subresources.get(at))
            .is_some_and(|sub| matches!(sub.role, SubresourceRole::Connect | SubresourceRole::Log));
        let has_handler = || negotiation::has_handler(request.method(), request.headers());
        if !row.custom && !streams && !has_handler() {
            return None;
        }
        let scope = scope(&row, info);
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_watch_route =
            info.verb == "watch" && (row.custom || !exchange_query(request).contains("watch"));
        Some(Self {
            verb: verb(request, info, scope),
            running: match info.verb.as_str() {
                "watch" => method_verb(request, scope),
                _ => verb(request, info, scope),
            },
            dry_run: dry_run(exchange_query(request)),
            field_validation: field_validation(exchange_query(request)),
            scope,
            component: COMPONENT,
            reads: is_read && !streams && !is_watch_route,
            route: Route::Resource(row, sub),
        })
    }

    /// Labels of a request that was refused because there were too many; upstream counts it whatever its path is.
    pub(crate) fn of_dropped(registry: &Registry, exchange: &RequestExchange) -> Self {
        let (info, request) = (&*exchange.info, &exchange.request);
        Self::of(registry, exchange)
            .filter(|_| info.is_resource_request)
            .unwrap_or_else(|| {
                let page = Page {
                    component: COMPONENT,
                    ..Page::default()
                };
                Self::of_page(page, info, request)
            })
    }

    fn of_page(page: Page, info: &RequestInfo, request: &Request<apiserver_endpoints::Body>) -> Self {
        Self {
            verb: verb(request, info, ""),
            running: verb(request, info, ""),
            dry_run: dry_run(exchange_query(request)),
            field_validation: field_validation(exchange_query(request)),
            scope: "",
            component: page.component,
            reads: true,
            route: Route::Page(page),
        }
    }

    /// The same request without its resource.
    pub(super) fn without_resource(&self) -> Self {
        let page = Page {
            component: self.component,
            ..Page::default()
        };
        Self {
            route: Route::Page(page),
            ..self.clone()
        }
    }

    pub(super) fn is_deprecated(&self) -> bool {
        matches!(&self.route, Route::Resource(row, _) if row.deprecation_warning.is_some())
    }

    /// verb, dry_run, group, version, resource, subresource, scope, component.
    pub(super) fn values(&self) -> [&str; LABELS] {
        let [group, version, resource, subresource] = match &self.route {
            Route::Resource(row, sub) => {
                let sub = sub.and_then(|at| row.subresources.get(at));
                [
                    row.gvk.group.as_str(),
                    &row.gvk.version,
                    &row.plural,
                    sub.map_or("", |sub| &sub.name),
                ]
            }
            Route::Page(page) => [page.group, page.version, page.resource, page.subresource],
        };
        let (verb, dry_run) = (self.verb, self.dry_run);
        [
            verb,
            dry_run,
            group,
            version,
            resource,
            subresource,
            self.scope,
            self.component,
        ]
    }
}

fn exchange_query(request: &Request<apiserver_endpoints::Body>) -> &str {
    request.uri().query().unwrap_or_default()
}

/// A path with a name, and a create, are about one object; custom kinds are scoped by what their selector names as well.
fn scope(row: &ResourceRow, info: &RequestInfo) -> &'static str {
    let is_one = info.parts.len() > 1 || info.verb == "create" || (row.custom && !info.name.is_empty());
    match is_one {
        true => "resource",
        false if !info.namespace.is_empty() => "namespace",
        false => "cluster",
    }
}

fn verb(request: &Request<apiserver_endpoints::Body>, info: &RequestInfo, scope: &str) -> &'static str {
    if info.is_resource_request && CONNECTS.contains(&info.subresource.as_str()) {
        return "CONNECT";
    }
    if info.is_resource_request && info.verb == "watch" {
        return "WATCH";
    }
    method_verb(request, scope)
}

fn method_verb(request: &Request<apiserver_endpoints::Body>, scope: &str) -> &'static str {
    let query = exchange_query(request);
    match *request.method() {
        Method::GET if query.contains("watch") && Query::parse(query).boolean("watch") => "WATCH",
        Method::GET | Method::HEAD if matches!(scope, "namespace" | "cluster") => "LIST",
        Method::GET | Method::HEAD => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH
            if request
                .headers()
                .get(CONTENT_TYPE)
                .is_some_and(|own| own == APPLY) =>
        {
            "APPLY"
        }
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::CONNECT => "CONNECT",
        _ => "other",
    }
}

fn dry_run(query: &str) -> &'static str {
    if !query.contains("dryRun") {
        return "";
    }
    let query = Query::parse(query);
    let mut values = query.all("dryRun").peekable();
    if values.peek().is_none() {
        return "";
    }
    match values.all(|value| value == "All") {
        true => "All",
        false => "invalid",
    }
}

/// Upstream's `cleanFieldValidation`.
fn field_validation(query: &str) -> &'static str {
    if !query.contains("fieldValidation") {
        return "";
    }
    let query = Query::parse(query);
    let mut values = query.all("fieldValidation");
    match (values.next(), values.next()) {
        (Some(""), None) => "",
        (Some("Ignore"), None) => "Ignore",
        (Some("Warn"), None) => "Warn",
        (Some("Strict"), None) => "Strict",
        _ => "invalid",
    }
}

fn page(info: &RequestInfo, request: &Request<apiserver_endpoints::Body>) -> Option<Page> {
    let sub = |subresource, component| Page {
        subresource,
        component,
        ..Page::default()
    };
    let object = |resource| {
        let (group, version) = debug_pages::object_version(&info.path, request.headers());
        Page {
            group,
            version,
            resource,
            component: COMPONENT,
            ..Page::default()
        }
    };
    let accepts_groups = || {
        let mut all = request.headers().get_all(ACCEPT).iter();
        all.any(|own| {
            own.to_str()
                .is_ok_and(|own| own.contains("as=APIGroupDiscoveryList"))
        })
    };
    Some(match info.path.as_str() {
        "/healthz" => sub("/healthz", ""),
        "/livez" => sub("/livez", ""),
        "/readyz" => sub("/readyz", ""),
        "/statusz" => object("statusz"),
        "/flagz" => object("flagz"),
        "/openapi/v3" => sub("openapi/v3", ""),
        path if path.starts_with("/openapi/v3/") => sub("openapi/v3/", ""),
        "/api" if accepts_groups() => sub("api", COMPONENT),
        "/apis" if accepts_groups() => sub("apis", COMPONENT),
        _ => return None,
    })
}

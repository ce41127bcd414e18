//! Streams and proxies: admission, and then what the server has behind them.

use super::{Call, Endpoints};
use crate::body::Body;
use crate::hooks::ConnectRequest;
use crate::request_info::RequestInfo;
use apiserver_registry::{Operation, RegistryError, Subresource, Verb};
use http::{Method, Response};
use machinery_schema::{Step, Tree, Value};

/// `exec`, `attach`, `portforward` and `proxy`: a connection is admitted with the options that its query is.
pub(super) async fn connect(
    this: Endpoints,
    call: Call,
    sub: &Subresource,
) -> Result<Response<Body>, RegistryError> {
    if !connects(sub, &call.info, call.request.method()) {
        return Err(RegistryError::MethodNotAllowed);
    }
    let mut options = options(&call, sub)?;
    let attributes = call.attributes(Operation::Connect, &call.info.name, false);
    let mutated = this
        .door()
        .mutate(&call.ctx, attributes, &mut options, None)
        .await?;
    let admitted = mutated.validate(&call.ctx, &options, None).await?;
    if opens_a_process(&call.info) && call.info.verb != "create" {
        this.0.hooks.authorize(&call.ctx, "create", &call.info).await?;
    }
    let request = ConnectRequest {
        info: &call.info,
        row: &call.store.row,
        subresource: sub,
        request: call.request,
    };
    this.0.hooks.connect(&call.ctx, &admitted, request).await
}

/// `log` is read; admission is not asked about reads.
pub(super) async fn log(
    this: Endpoints,
    call: Call,
    sub: &Subresource,
) -> Result<Response<Body>, RegistryError> {
    if !connects(sub, &call.info, call.request.method()) {
        return Err(RegistryError::MethodNotAllowed);
    }
    let request = ConnectRequest {
        info: &call.info,
        row: &call.store.row,
        subresource: sub,
        request: call.request,
    };
    this.0.hooks.log(&call.ctx, request).await
}

/// `exec`, `attach` and `portforward` need the right to create, also where a WebSocket asks for them by GET: reading
/// rights open no shells (upstream's `AuthorizePodWebsocketUpgradeCreatePermission`). Upstream's refusal gives only the
/// authorizer's reason, which RBAC leaves empty; ours says what is missing.
fn opens_a_process(info: &RequestInfo) -> bool {
    info.resource == "pods" && matches!(info.subresource.as_str(), "attach" | "exec" | "portforward")
}

/// Reports whether a connection may be requested with this method. Proxies accept every method for which they have a
/// verb; other methods are decided by the server behind them.
pub(super) fn connects(sub: &Subresource, info: &RequestInfo, method: &Method) -> bool {
    match *method {
        Method::HEAD | Method::OPTIONS => sub.verbs.has(Verb::Delete),
        _ => Verb::parse(&info.verb).is_some_and(|verb| sub.verbs.has(verb)),
    }
}

/// The query as an object of the subresource's options kind (`PodExecOptions`, `ServiceProxyOptions` …).
fn options(call: &Call, sub: &Subresource) -> Result<Tree, RegistryError> {
    let gvk = &sub.gvk;
    let (schema, ty) = machinery_api::schema_for(&gvk.group, &gvk.version, &gvk.kind)
        .ok_or_else(|| RegistryError::Internal(format!("the table has no {}", gvk.kind)))?;
    let mut options = Tree::new(schema, ty);
    options.set_str(&["kind"], &gvk.kind);
    options.set_str(&["apiVersion"], &gvk.api_version());
    let query = &call.query;
    match sub.name.as_str() {
        "proxy" => {
            let rest = call.info.parts.get(3..).unwrap_or_default();
            if !rest.is_empty() {
                options.set_str(&["path"], &rest.join("/"));
            }
        }
        "portforward" => {
            for port in query.all("ports").filter_map(|port| port.parse::<i64>().ok()) {
                options.push(&["ports"], Value::Int(port));
            }
        }
        _ => {
            for stream in ["stdin", "stdout", "stderr", "tty"] {
                if query.boolean(stream) {
                    options.set(&[Step::Name(stream)], true);
                }
            }
            if let Some(container) = query.get("container").filter(|name| !name.is_empty()) {
                options.set_str(&["container"], container);
            }
            for word in query.all("command").filter(|_| sub.name == "exec") {
                options.push(&["command"], word);
            }
        }
    }
    Ok(options)
}

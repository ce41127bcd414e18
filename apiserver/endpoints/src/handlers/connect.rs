//! Streams and proxies: admission, and then what the server has behind them.
//!
//! The options of a connection are its query as an object (upstream's `getRequestOptions`). Admission may change them, and it
//! is the changed ones that decide about the connection.

use super::{Call, Endpoints};
use crate::body::Body;
use crate::error::ApiError;
use crate::hooks::ConnectRequest;
use crate::request_info::RequestInfo;
use apiserver_registry::{Operation, RegistryError, Subresource, Verb};
use http::{Method, Response};
use machinery_meta::go_text::go_quote;
use machinery_schema::{Step, Tree, Value};

/// `exec`, `attach`, `portforward` and `proxy`: a connection is admitted with the options that its query is.
pub(super) async fn connect(
    this: Endpoints,
    call: Call,
    sub: &Subresource,
) -> Result<Response<Body>, ApiError> {
    if !connects(sub, &call.info, call.request.method()) {
        return Err(ApiError::MethodNotAllowed);
    }
    if call.query.all("dryRun").next().is_some() {
        return Err(RegistryError::BadRequest("dryRun is not supported".into()).into());
    }
    let mut options = options(&call, sub)?;
    let asked = options.str_at(&["path"]).to_owned();
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
        options: Some(&options),
        path: Some(options.str_at(&["path"])).filter(|path| *path != asked),
        request: call.request,
    };
    this.0.hooks.connect(&call.ctx, &admitted, request).await
}

/// `log` is read; admission is not asked about reads.
pub(super) async fn log(this: Endpoints, call: Call, sub: &Subresource) -> Result<Response<Body>, ApiError> {
    if !connects(sub, &call.info, call.request.method()) {
        return Err(ApiError::MethodNotAllowed);
    }
    let request = ConnectRequest {
        info: &call.info,
        row: &call.store.row,
        subresource: sub,
        options: None,
        path: None,
        request: call.request,
    };
    this.0.hooks.log(&call.ctx, request).await
}

/// `exec`, `attach` and `portforward` need the right to create, also where a WebSocket requests them by GET: reading
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
            if let Some(path) = proxied_path(&call.info) {
                options.set_str(&["path"], &path);
            }
        }
        "portforward" => {
            for port in query.all("ports").flat_map(|ports| ports.split(',')) {
                options.push(&["ports"], Value::Int(port_number(port)?.into()));
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

/// The path behind a proxy, with the slashes at its ends.
fn proxied_path(info: &RequestInfo) -> Option<String> {
    let rest = info.parts.get(3..).unwrap_or_default();
    let mut path = rest.join("/");
    if !path.is_empty() && !path.starts_with('/') {
        path.insert(0, '/');
    }
    if info.path.ends_with('/') && !path.ends_with('/') {
        path.push('/');
    }
    (!path.is_empty()).then_some(path)
}

/// A port of a query, or upstream's refusal (`Convert_Slice_string_To_Slice_int32`).
fn port_number(text: &str) -> Result<u16, RegistryError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|_| digits);
    port.ok_or_else(|| {
        let why = if digits {
            "value out of range"
        } else {
            "invalid syntax"
        };
        let text = go_quote(text);
        RegistryError::BadRequest(format!(
            "cannot convert to []int32: strconv.ParseUint: parsing {text}: {why}"
        ))
    })
}

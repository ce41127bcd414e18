//! Sending a request on and passing the answer through.

use apiserver_egress::{Destination, Dialer, tunnel};
use apiserver_endpoints::Body;
use apiserver_registry::RegistryError;
use http::header::{CONNECTION, HOST, LOCATION, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::upgrade::OnUpgrade;

/// Headers that belong to one connection and are not passed on.
const HOP_BY_HOP: [HeaderName; 5] = [CONNECTION, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE];

/// Sends a request for a subresource there under this path; joins the connections when the other side switches protocols.
pub(super) async fn send(
    dialer: &Dialer,
    to: &Destination,
    path: &str,
    subresource: &str,
    mut request: Request<Body>,
) -> Result<Response<Body>, RegistryError> {
    let client = request.extensions_mut().remove::<OnUpgrade>();
    let upgrade = request
        .headers()
        .get(UPGRADE)
        .cloned()
        .filter(|_| client.is_some());
    let outgoing = outgoing(request, path, upgrade.as_ref())?;
    let answered = dialer.send(to, outgoing).await;
    let mut response = answered.map_err(|error| {
        tracing::info!(%error, "proxying a request");
        match (upgrade, subresource) {
            (Some(_), _) => failed(&format!("error dialing backend: {error}")),
            (None, "log") => failed(&format!("Get \"https://{to}{path}\": {error}")),
            (None, _) => RegistryError::Unavailable(format!("error trying to reach service: {error}")),
        }
    })?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = client else {
            return Err(RegistryError::Unavailable(
                "the other side switched protocols unasked".to_owned(),
            ));
        };
        tunnel(dialer.runtime(), client, hyper::upgrade::on(&mut response));
        let (parts, _) = response.into_parts();
        return Ok(Response::from_parts(parts, Body::empty()));
    }
    let (mut parts, body) = response.into_parts();
    remove_hop_by_hop(&mut parts.headers);
    // The answer's own framing is made anew for the client's connection.
    parts.version = http::Version::default();
    Ok(Response::from_parts(parts, Body::wrap(body)))
}

fn outgoing(
    request: Request<Body>,
    path: &str,
    upgrade: Option<&HeaderValue>,
) -> Result<Request<apiserver_egress::OutgoingBody>, RegistryError> {
    let (mut parts, body) = request.into_parts();
    parts.uri = path
        .parse()
        .map_err(|_| RegistryError::BadRequest(format!("cannot proxy to path {path:?}")))?;
    parts.version = http::Version::HTTP_11;
    remove_hop_by_hop(&mut parts.headers);
    parts.headers.remove(HOST);
    parts.extensions.clear();
    if let Some(upgrade) = upgrade {
        parts
            .headers
            .insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        parts.headers.insert(UPGRADE, upgrade.clone());
    }
    Ok(Request::from_parts(parts, body.boxed_unsync()))
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers.remove("keep-alive");
}

/// What is read of a node's complaint.
const COMPLAINT_BYTES_MAX: usize = 50_000;

/// Passes a log through; where the node refuses, its words become the answer's, as upstream's.
pub(super) async fn check_log(pod: &str, response: Response<Body>) -> Result<Response<Body>, RegistryError> {
    let code = response.status().as_u16();
    if (200..=206).contains(&code) {
        return Ok(response);
    }
    let body = Limited::new(response.into_body(), COMPLAINT_BYTES_MAX)
        .collect()
        .await;
    let body = body.map_err(|error| RegistryError::Internal(error.to_string()))?;
    let said = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    Err(match code {
        400 => RegistryError::BadRequest(said),
        500 => RegistryError::Internal(said),
        _ => unexplained(pod, code),
    })
}

/// An answer of which only the code is passed on.
fn unexplained(pod: &str, code: u16) -> RegistryError {
    let (reason, message) = match code {
        404 => (
            "NotFound",
            "the server could not find the requested resource".to_owned(),
        ),
        401 => (
            "Unauthorized",
            "the server has asked for the client to provide credentials".to_owned(),
        ),
        403 => (
            "Forbidden",
            "the server does not allow access to the requested resource".to_owned(),
        ),
        _ => (
            "Unknown",
            format!("the server responded with the status code {code} but did not return more information"),
        ),
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("{message} ( pods/log {pod})"), "reason": reason,
        "details": {"name": pod, "kind": "pods/log"}, "code": code,
    });
    RegistryError::Foreign {
        code,
        status_json: status.to_string(),
    }
}

/// An error that upstream names no reason for.
fn failed(message: &str) -> RegistryError {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": 500,
    });
    RegistryError::Foreign {
        code: 500,
        status_json: status.to_string(),
    }
}

pub(super) fn redirect(to: &str) -> Result<Response<Body>, RegistryError> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let to =
        HeaderValue::from_str(to).map_err(|_| RegistryError::BadRequest("cannot redirect".to_owned()))?;
    response.headers_mut().insert(LOCATION, to);
    Ok(response)
}

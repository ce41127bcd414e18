//! Streams and proxies: `pods/log`, `exec`, `attach`, `portforward`, and `proxy` of pods, services and nodes.
//!
//! [`location`] (and [`proxied`]) decides where a request goes and under which path, from the objects alone; [`forward`] sends it there,
//! to kubelets with our client certificate, and passes bytes through, upgrades included. What is inside a stream, the kubelet knows.

mod forward;
mod location;
mod options;
mod proxied;

use apiserver_egress::Dialer;
use apiserver_endpoints::{Body, ConnectRequest};
use apiserver_registry::RegistryError;
use location::Route;
use machinery_meta::reader::ObjectReader;

/// Answers one such request.
pub(crate) async fn connect(
    reader: &dyn ObjectReader,
    dialer: &Dialer,
    connect: ConnectRequest<'_>,
) -> Result<http::Response<Body>, RegistryError> {
    let query = connect.request.uri().query().unwrap_or_default().to_owned();
    match location::route(reader, connect.info, &query, dialer.runtime().random_u64()).await? {
        Route::Nowhere => {
            let mut response = http::Response::new(Body::empty());
            *response.status_mut() = http::StatusCode::NO_CONTENT;
            Ok(response)
        }
        Route::Redirect(to) => forward::redirect(&to),
        Route::To { destination, path } => {
            let subresource = connect.info.subresource.as_str();
            let response = forward::send(dialer, &destination, &path, subresource, connect.request).await?;
            match subresource == "log" {
                true => forward::check_log(&connect.info.name, response).await,
                false => Ok(response),
            }
        }
    }
}

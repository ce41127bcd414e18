//! Streams and proxies: `pods/log`, `exec`, `attach`, `portforward`, and `proxy` of pods, services and nodes.
//!
//! [`location`] (and [`proxied`]) decides where a request goes and under which [`path`], from the objects alone ([`lookup`]
//! reads them, and [`service_endpoint`] those of a service); [`forward`]
//! sends it there, to kubelets with our client certificate, and passes bytes through, upgrades included. The content of a
//! stream is the kubelet's. Pages that come through the proxy have their [`links`] led through it as well ([`page`],
//! [`html`]). [`connections`] are bounded by
//! user, namespace and pod.

mod connections;
mod forward;
mod html;
mod links;
mod location;
mod lookup;
mod options;
mod page;
mod path;
mod proxied;
mod service_endpoint;

use apiserver_egress::Dialer;
use apiserver_endpoints::{ApiError, Body, ConnectRequest};
use apiserver_registry::{RegistryError, RequestContext};
pub(crate) use connections::{ProxiedConnections, Wanted as WantedConnection};
use forward::Forwarding;
use http::header::UPGRADE;
use hyper::upgrade::OnUpgrade;
pub(crate) use location::own_kubelet as kubelet_of;
use location::{LocationRequest, Route};
use lookup::Lookup;
use machinery_meta::reader::ObjectReader;
use machinery_schema::Tree;
use std::sync::Arc;

/// The parts with which requests to kubelets are answered.
pub(crate) struct Kubelets {
    pub(crate) dialer: Dialer,
    pub(crate) connections: Arc<ProxiedConnections>,
}

impl Kubelets {
    /// Answers one such request.
    pub(crate) async fn connect(
        &self,
        reader: &dyn ObjectReader,
        ctx: &RequestContext,
        connect: ConnectRequest<'_>,
    ) -> Result<http::Response<Body>, ApiError> {
        let (info, request) = (connect.info, connect.request);
        let wanted = LocationRequest {
            method: request.method(),
            path: request.uri().path(),
            query: request.uri().query().unwrap_or_default(),
            options: connect.options.map(Tree::root),
            path_instead: connect.path,
            upgrades: request.extensions().get::<OnUpgrade>().is_some()
                && request.headers().contains_key(UPGRADE),
        };
        let choice = self.dialer.runtime().random_u64();
        let mut lookup = Lookup::new(reader, ctx);
        let (destination, path, proxied) = match location::route(&mut lookup, info, &wanted, choice).await? {
            Route::Nowhere => {
                let mut response = http::Response::new(Body::empty());
                *response.status_mut() = http::StatusCode::NO_CONTENT;
                return Ok(response);
            }
            Route::Redirect(to) => return Ok(forward::redirect(&to)?),
            Route::To {
                destination,
                path,
                proxied,
            } => (destination, path, proxied),
        };
        let node = destination.to_string();
        let wanted = WantedConnection {
            user: &ctx.user,
            namespace: &info.namespace,
            stream: proxied.is_none().then_some((info.name.as_str(), node.as_str())),
            extension: None,
        };
        let permit = self.connections.open(wanted).ok_or_else(too_many)?;
        let subresource = info.subresource.as_str();
        let forwarding = Forwarding {
            dialer: &self.dialer,
            to: &destination,
            path: &path,
            subresource,
            proxied,
            permit,
        };
        let response = forwarding.send(request).await?;
        match subresource == "log" {
            true => forward::check_log(&info.name, response).await,
            false => Ok(response),
        }
    }
}

fn too_many() -> RegistryError {
    RegistryError::TooManyRequests {
        message: "too many connections to nodes, pods and services are open, please try again later"
            .to_owned(),
        seconds: 1,
        causes: Vec::new(),
    }
}

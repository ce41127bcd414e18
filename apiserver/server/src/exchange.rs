//! One request on its way through the filters.

use crate::aggregation::ApiService;
use crate::connections::Connection;
use apiserver_auth::authn::PeerCertificate;
use apiserver_endpoints::{Body, RequestInfo};
use apiserver_registry::RequestContext;
use apiserver_registry::kinds::is_long_running;
use machinery_meta::UserInfo;
use std::net::SocketAddr;
use std::sync::Arc;

/// The client's end of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) certificate: Option<Arc<PeerCertificate>>,
    /// In process the identity is given, not proven.
    pub(crate) identity: Option<Arc<UserInfo>>,
    /// `None` in process.
    pub(crate) connection: Option<Arc<Connection>>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RequestExchange {
    pub(crate) request: http::Request<Body>,
    pub(crate) info: Arc<RequestInfo>,
    pub(crate) context: RequestContext,
    pub(crate) peer: Peer,
    /// The APIService of the extension that answers in place of this server.
    pub(crate) delegate: Option<Arc<ApiService>>,
}

pub(crate) type Response = http::Response<Body>;

const LONG_RUNNING_VERBS: [&str; 2] = ["watch", "proxy"];

impl RequestExchange {
    /// Watches and streams: no deadline, no in-flight limit (upstream's `BasicLongRunningRequestCheck`).
    pub(crate) fn is_long_running(&self) -> bool {
        let info = &self.info;
        info.is_resource_request
            && (LONG_RUNNING_VERBS.contains(&info.verb.as_str()) || is_long_running(&info.subresource))
    }

    pub(crate) fn is_mutating(&self) -> bool {
        !matches!(
            self.info.verb.as_str(),
            "get" | "list" | "watch" | "head" | "options"
        )
    }
}

//! From HTTP to the handler chain: what a request is, before any filter sees it.

use crate::exchange::{Peer, RequestExchange, Response};
use crate::filters::filter::HandlerChain;
use crate::filters::refuse;
use crate::handler_chain;
use crate::state::ServerState;
use apiserver_endpoints::{Body, RequestInfo};
use apiserver_registry::{RegistryError, RequestContext, Warnings};
use futures::future::BoxFuture;
use machinery_meta::UserInfo;
use std::sync::Arc;

/// Entry of every request, from the network or in process.
#[derive(Clone)]
pub(crate) struct RequestEntry {
    pub(crate) core: Arc<ServerState>,
    pub(crate) chain: Arc<HandlerChain>,
}

impl RequestEntry {
    pub(crate) fn new(core: Arc<ServerState>) -> Self {
        Self {
            chain: handler_chain::chain(Arc::clone(&core)),
            core,
        }
    }

    pub(crate) fn handle(
        &self,
        mut request: http::Request<Body>,
        peer: Peer,
    ) -> BoxFuture<'static, Response> {
        // What is proxied says whom it is for.
        if let Some(address) = peer.address {
            request.extensions_mut().insert(address);
        }
        let uri = request.uri();
        let info = match RequestInfo::parse(request.method(), uri) {
            Ok(info) => info,
            Err(error) => {
                let error = RegistryError::Internal(format!("failed to create RequestInfo: {error}"));
                return Box::pin(std::future::ready(refuse(&error)));
            }
        };
        let runtime = self.core.runtime.clone();
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let agent = request.headers().get(http::header::USER_AGENT);
        let agent = agent.map(|value| String::from_utf8_lossy(value.as_bytes()));
        // A client may have its own name for the request.
        let audit_id = header("audit-id").filter(|own| !own.is_empty());
        let context = RequestContext {
            // Replaced by the authentication filter; until then there is no user.
            user: Arc::new(UserInfo::default()),
            namespace: info.namespace.as_str().into(),
            deadline: None,
            audit_id: audit_id.map_or_else(|| runtime.uuid().to_string().into(), Arc::from),
            user_agent: agent.unwrap_or_default().as_ref().into(),
            client_address: peer.address.map(|address| address.ip().to_canonical()),
            warnings: Warnings::default(),
            audit: Default::default(),
            recorder: None,
            latency: Default::default(),
            runtime,
            weight: Default::default(),
            point_of_no_return: Default::default(),
        };
        self.chain.handle(RequestExchange {
            request,
            delegate: self.core.aggregation.delegate(&info),
            info: Arc::new(info),
            context,
            peer,
        })
    }
}

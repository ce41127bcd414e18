//! API aggregation: group versions that other servers answer, behind Services that APIServices name.
//!
//! [`follow`] keeps a [`table`] of all APIServices by their events, so that a request reads none. A request for a group version
//! of an extension is marked when it enters ([`Aggregation::delegate`]); the filters pass it like any other, and in place of the
//! endpoints [`proxy`] answers it: the extension is shown this server's certificate of a front proxy, and reads the user in
//! headers ([`identity`]). Each extension has tasks of its own, which end with it: [`availability`] writes the condition
//! `Available`, by which requests are passed on or refused, and [`discovery`] and [`openapi`] keep what its
//! [`documents`] say of its own group version; the endpoints merge that into the server's.
//!
//! Never here: admission, validation and storage of aggregated kinds, which are the extension's; credentials of clients, which
//! end at this server.

mod availability;
mod discovery;
mod documents;
mod follow;
mod identity;
mod openapi;
mod proxy;
mod table;

pub(crate) use follow::start;
pub(crate) use table::{ApiService, Table};

use crate::exchange::{RequestExchange, Response};
use crate::kubelet::ProxiedConnections;
use crate::metrics::AggregationMetrics;
use apiserver_egress::{ClientIdentity, ExtensionClient};
use apiserver_endpoints::{ExtensionGroups, MemoryShares, RequestInfo};
use arc_swap::ArcSwap;
use machinery_runtime::{AnswerRooms, Runtime};
use std::sync::Arc;
use tokio::sync::Mutex;

/// See the module.
pub(crate) struct Aggregation {
    pub(crate) table: Arc<ArcSwap<Table>>,
    /// Groups in discovery, of the table and of the discovery of extensions.
    shown: ArcSwap<ExtensionGroups>,
    client: ExtensionClient,
    /// The certificate that extensions are shown.
    pub(crate) identity: Arc<ClientIdentity>,
    connections: Arc<ProxiedConnections>,
    /// Memory of bodies on their way to extensions, by extension: one that does not read them holds no more than it leaves to
    /// others, whatever their senders.
    bodies: Arc<MemoryShares>,
    metrics: Arc<AggregationMetrics>,
    /// Held while a document of an extension is read.
    reading: Mutex<()>,
    /// Room of extensions' answers in clients of this process.
    rooms: Arc<AnswerRooms>,
    runtime: Runtime,
}

impl std::fmt::Debug for Aggregation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aggregation").finish_non_exhaustive()
    }
}

impl Aggregation {
    /// At most so many requests are passed on at once, by [`ProxiedConnections`]' rules, with a half of the memory of all bodies.
    pub(crate) fn new(
        client: ExtensionClient,
        identity: Arc<ClientIdentity>,
        most: usize,
        body_memory_bytes: usize,
        metrics: Arc<AggregationMetrics>,
        runtime: Runtime,
    ) -> Arc<Self> {
        Arc::new(Self {
            table: Arc::default(),
            shown: ArcSwap::default(),
            client,
            identity,
            connections: ProxiedConnections::new(most),
            bodies: MemoryShares::leaving_free(body_memory_bytes / 2, body_memory_bytes / 2),
            metrics,
            reading: Mutex::new(()),
            rooms: Arc::default(),
            runtime,
        })
    }

    /// The APIService of the extension that a request is for, if there is one.
    pub(crate) fn delegate(&self, info: &RequestInfo) -> Option<Arc<ApiService>> {
        self.table.load().extension_of(&info.path).cloned()
    }

    /// Answers in place of the endpoints. Clients of this process learn from an answer whose it is.
    pub(crate) async fn answered(&self, own: &ApiService, exchange: RequestExchange) -> Response {
        let mut response = self.answer(own, exchange).await;
        response.extensions_mut().insert(self.rooms.of(&own.name));
        response
    }

    /// Group versions for discovery.
    pub(crate) fn shown(&self) -> Arc<ExtensionGroups> {
        self.shown.load_full()
    }

    /// Shows what the table and the documents of extensions say now.
    fn show(&self) {
        let shown = self.table.load().shown();
        self.shown.store(Arc::new(shown));
    }
}

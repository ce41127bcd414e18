//! Statuses of components: read-only, of the whole cluster, and made by the server as they are read.

use serde_json::json;

use super::OWN;
use super::run::Ask;

const COLLECTION: &str = "/api/v1/componentstatuses";

/// Every verb at both addresses, and the same below a namespace.
pub(super) fn requests() -> Vec<Ask> {
    let nested = format!("/api/v1/namespaces/{OWN}/componentstatuses");
    let mut asks = vec![Ask::plain(
        "GET",
        &format!("{COLLECTION}?watch=true&timeoutSeconds=1"),
    )];
    let body = json!({"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": "etcd-0"}});
    let label = json!({"metadata": {"labels": {"t": "x"}}});
    for collection in [COLLECTION, &nested] {
        let item = format!("{collection}/etcd-0");
        let dry = |path: &str| format!("{path}?dryRun=All");
        asks.extend([
            Ask::plain("GET", collection),
            Ask::plain("GET", &item),
            Ask::plain("GET", &format!("{collection}/nothing")),
            Ask::plain("DELETE", &dry(collection)),
            Ask::plain("DELETE", &dry(&item)),
            Ask::with_body("POST", &dry(collection), "application/json", &body),
            Ask::with_body("PUT", &dry(&item), "application/json", &body),
            Ask::with_body("PATCH", &dry(&item), "application/merge-patch+json", &label),
        ]);
    }
    asks
}

//! Names in use: those of one group are read from its own definitions alone.

use super::controller::Definitions;
use crate::engine::registry::Registry;
use crate::engine::scope::Scope;
use crate::engine::store::Store;
use crate::kinds;
use apiserver_storage::{LogStorage, Storage, Write};
use bytes::Bytes;
use machinery_runtime::Runtime;
use machinery_schema::{Strictness, decode_json};
use serde_json::json;
use std::sync::Arc;

/// Stores a definition that holds its names; a damaged one cannot be decoded.
async fn hold(storage: &Arc<dyn Storage>, store: &Store, plural: &str, group: &str, damaged: bool) {
    let name = format!("{plural}.{group}");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "uid": "u"},
        "spec": {"group": group, "scope": "Cluster", "names": {"plural": plural, "kind": plural}, "versions": []},
        "status": {"acceptedNames": {"plural": plural, "kind": plural}},
    });
    let row = &store.row;
    let decoded = decode_json(
        &row.schema,
        row.ty,
        definition.to_string().as_bytes(),
        Strictness::Report,
    );
    let mut record = store.encode(&decoded.unwrap().tree).unwrap();
    if damaged {
        record.parts[2] = Bytes::from_static(b"{");
    }
    let key = store.key(&Scope::Cluster, &name).unwrap();
    storage.commit(vec![Write::create(key, record)]).await.unwrap();
}

#[tokio::test]
async fn definitions_of_other_groups_are_not_decoded() {
    let runtime = Runtime::real();
    let storage: Arc<dyn Storage> = Arc::new(LogStorage::memory(&runtime).await.unwrap());
    let registry = Registry::new(Arc::clone(&storage), runtime.clone(), kinds::built_in());
    let definitions = Definitions::new(&registry).unwrap();
    let store = registry
        .store("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        .unwrap();
    hold(&storage, &store, "boats", "knarr.test", false).await;
    hold(&storage, &store, "ships", "knarr.test", false).await;
    hold(&storage, &store, "carts", "land.test", true).await;
    let taken = definitions.taken("boats.knarr.test", "knarr.test").await.unwrap();
    assert!(taken.resources.contains("ships"));
    assert!(!taken.resources.contains("boats"), "its own names are free to it");
}

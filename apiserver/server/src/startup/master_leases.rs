//! Which servers of a shared store are alive, as upstream's lease reconciler has it: each keeps an entry under its address
//! that goes by itself soon after the server has.

use super::{Place, Startup};
use apiserver_registry::RegistryError;
use apiserver_storage::{Expect, Key, Op, Prefix, RangeOptions, Storage, StorageError, Write};
use machinery_schema::{Strictness, decode_json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Upstream's keys, so that its servers and ours count each other.
const PREFIX: &str = "/registry/masterleases/";
/// Upstream's `--endpoint-reconciler` time to live.
const TTL: Duration = Duration::from_secs(15);

/// Says that this server is alive. `false` where no other can be, and nothing is kept.
pub(super) async fn renew(facts: &Startup) -> Result<bool, RegistryError> {
    let storage = facts.core.registry.storage();
    if storage.shared().is_none() {
        return Ok(false);
    }
    let address = facts.advertised.ip();
    let store = facts.store(Place {
        group: "",
        plural: "endpoints",
        namespace: "",
        name: "",
    })?;
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"Endpoints","metadata":{{}},"subsets":[{{"addresses":[{{"ip":"{address}"}}]}}]}}"#
    );
    let (schema, ty) = (&store.row.schema, store.row.ty);
    let object = decode_json(schema, ty, json.as_bytes(), Strictness::Ignore)
        .map_err(|error| RegistryError::Internal(error.to_string()))?;
    let record = store.encode(&object.tree)?;
    let put = Op::Put {
        record,
        ttl: Some(TTL),
    };
    commit(storage, address, put).await?;
    Ok(true)
}

/// Says that this server is going; whether it had said that it is there.
pub(super) async fn give_up(facts: &Startup) -> Result<bool, RegistryError> {
    let storage = facts.core.registry.storage();
    if storage.shared().is_none() {
        return Ok(false);
    }
    commit(storage, facts.advertised.ip(), Op::Delete).await?;
    Ok(true)
}

/// The addresses of all servers that are alive, in order.
pub(super) async fn addresses(facts: &Startup) -> Result<Vec<IpAddr>, RegistryError> {
    let prefix = Prefix::parse(PREFIX).map_err(|error| internal(&error))?;
    let storage = facts.core.registry.storage();
    let page = storage.range(&prefix, &RangeOptions::default()).await;
    let page = page.map_err(|error| internal(&error))?;
    let below = page.entries.iter().filter_map(|entry| entry.key.below(&prefix));
    Ok(below.filter_map(|address| address.parse().ok()).collect())
}

async fn commit(storage: &Arc<dyn Storage>, address: IpAddr, op: Op) -> Result<(), RegistryError> {
    let key = Key::parse(&format!("{PREFIX}{address}")).map_err(|error| internal(&error))?;
    let write = Write {
        key,
        expect: Expect::Any,
        op,
    };
    match storage.commit(vec![write]).await {
        // It has run out already.
        Ok(_) | Err(StorageError::Conflict { .. }) => Ok(()),
        Err(error) => Err(internal(&error)),
    }
}

fn internal(error: &StorageError) -> RegistryError {
    RegistryError::Internal(error.to_string())
}

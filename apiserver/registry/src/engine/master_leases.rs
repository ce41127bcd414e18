//! Leases of the servers of a shared store, as upstream's lease reconciler has it: each keeps an entry under its address
//! that goes by itself soon after the server has.

use crate::engine::admission::SystemDoors;
use crate::engine::error::RegistryError;
use crate::engine::registry::Registry;
use apiserver_storage::{Expect, Key, Op, Prefix, RangeOptions, StorageError, Write};
use machinery_schema::{Strictness, decode_json};
use std::net::IpAddr;
use std::time::Duration;

/// Upstream's keys, so that its servers and ours count each other.
const PREFIX: &str = "/registry/masterleases/";
/// Upstream's `--endpoint-reconciler` time to live.
const TTL: Duration = Duration::from_secs(15);

/// The entries of a store that servers share.
#[derive(Debug)]
pub struct MasterLeases<'a>(&'a Registry);

impl Registry {
    /// The entries of the servers that are alive; `None` where no other server can be, and nothing is kept.
    pub fn master_leases(&self, _doors: SystemDoors) -> Option<MasterLeases<'_>> {
        self.stored().is_shared().then_some(MasterLeases(self))
    }
}

impl MasterLeases<'_> {
    /// Says that the server of this address is alive.
    pub async fn renew(&self, address: IpAddr) -> Result<(), RegistryError> {
        let store = self.0.store("", "v1", "endpoints");
        let store = store.ok_or_else(|| RegistryError::Internal("endpoints are not served".to_owned()))?;
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"Endpoints","metadata":{{}},"subsets":[{{"addresses":[{{"ip":"{address}"}}]}}]}}"#
        );
        let (schema, ty) = (&store.row.schema, store.row.ty);
        let object = decode_json(schema, ty, json.as_bytes(), Strictness::Ignore)
            .map_err(|error| RegistryError::Internal(error.to_string()))?;
        let record = store.encode(&object.tree)?;
        let ttl = Some(TTL);
        self.commit(address, Op::Put { record, ttl }).await
    }

    /// Says that the server of this address is going.
    pub async fn give_up(&self, address: IpAddr) -> Result<(), RegistryError> {
        self.commit(address, Op::Delete).await
    }

    /// The addresses of all servers that are alive, in order.
    pub async fn addresses(&self) -> Result<Vec<IpAddr>, RegistryError> {
        let prefix = Prefix::parse(PREFIX).map_err(|error| internal(&error))?;
        let options = RangeOptions::default();
        let page = self.0.stored().range(&prefix, &options).await;
        let page = page.map_err(|error| internal(&error))?;
        let below = page.entries.iter().filter_map(|entry| entry.key.below(&prefix));
        Ok(below.filter_map(|address| address.parse().ok()).collect())
    }

    async fn commit(&self, address: IpAddr, op: Op) -> Result<(), RegistryError> {
        let key = Key::parse(&format!("{PREFIX}{address}")).map_err(|error| internal(&error))?;
        let write = Write {
            key,
            expect: Expect::Any,
            op,
        };
        match self.0.storage().commit(vec![write]).await {
            // It has run out already.
            Ok(_) | Err(StorageError::Conflict { .. }) => Ok(()),
            Err(error) => Err(internal(&error)),
        }
    }
}

fn internal(error: &StorageError) -> RegistryError {
    RegistryError::Internal(error.to_string())
}

//! What all servers over one etcd agree on, outside of the prefix of the objects: no watch, list or request shows it.

use super::EtcdStorage;
use crate::{SharedValues, StorageError};
use async_trait::async_trait;
use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnOpResponse};

/// Before the objects' own prefix, so that clusters with different ones can share an etcd.
const BEFORE: &str = "/knarr";

#[async_trait]
impl SharedValues for EtcdStorage {
    async fn agree(&self, name: &str, offered: Vec<u8>) -> Result<Vec<u8>, StorageError> {
        let key = format!("{BEFORE}{}{name}", self.mirror.prefix);
        let transaction = Txn::new()
            .when([Compare::version(key.as_str(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key.as_str(), offered.clone(), None)])
            .or_else([TxnOp::get(key.as_str(), None)]);
        let answer = self.remote.waiting(self.remote.kv()?.txn(transaction)).await?;
        if answer.succeeded() {
            return Ok(offered);
        }
        let found = answer
            .op_responses()
            .into_iter()
            .find_map(|response| match response {
                TxnOpResponse::Get(found) => found.kvs().first().map(|kv| kv.value().to_vec()),
                _ => None,
            });
        found.ok_or_else(|| StorageError::Unavailable(format!("etcd has no {key} after all")))
    }
}

//! Upstream's default roles and bindings: what is missing is made, what lacks rules or subjects is completed.

use super::{ObjectAddress, Startup};
use apiserver_auth::bootstrap::{self, DefaultObject, Missing};
use apiserver_registry::options::DeleteOptions;
use apiserver_registry::{ObjectPart, RegistryError};
use futures::future::{BoxFuture, try_join_all};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn reconcile(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        // All at once: storage makes few groups of them.
        let all = bootstrap::default_objects()
            .into_iter()
            .map(|object| ensure(facts, object));
        try_join_all(all).await.map(|_| ())
    })
}

async fn ensure(facts: &Startup, object: DefaultObject) -> Result<(), RegistryError> {
    let DefaultObject {
        resource,
        namespace,
        name,
        json,
    } = object;
    let address = ObjectAddress {
        group: GROUP,
        plural: resource,
        namespace,
        name,
    };
    let Some(existing) = facts.read(address).await? else {
        return facts.create(address, json).await.map(|_| ());
    };
    match bootstrap::missing(existing.root().to_json().as_bytes(), json) {
        Missing::Nothing => Ok(()),
        Missing::Patch(patch) => facts.patch(address, ObjectPart::Main, &patch).await,
        Missing::Replace => {
            let store = facts.store(address)?;
            store
                .delete(
                    &facts.context(),
                    &address.scope(),
                    name,
                    &DeleteOptions::default(),
                    facts.door(),
                )
                .await?;
            facts.create(address, json).await.map(|_| ())
        }
    }
}

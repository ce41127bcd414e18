//! The day since which the use of tokens in Secrets is noted, in the ConfigMap where the token cleaner looks for it.

use super::{ObjectAddress, Startup};
use apiserver_registry::{ObjectPart, RegistryError};
use futures::future::BoxFuture;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::json;

const PLACE: ObjectAddress<'_> = ObjectAddress {
    group: "",
    plural: "configmaps",
    namespace: "kube-system",
    name: "kube-apiserver-legacy-service-account-token-tracking",
};

pub(super) fn reconcile(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        let today = facts
            .core
            .runtime
            .now()
            .to_zoned(TimeZone::UTC)
            .date()
            .to_string();
        let data = json!({ "since": today });
        let Some(existing) = facts.read(PLACE).await? else {
            let object = json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": { "name": PLACE.name, "namespace": PLACE.namespace },
                "data": data,
            });
            return facts.create(PLACE, &object.to_string()).await.map(drop);
        };
        let since = existing.str_at(&["data", "since"]);
        if since.len() == 10 && since.parse::<Date>().is_ok() {
            return Ok(());
        }
        facts
            .patch(PLACE, ObjectPart::Main, &json!({ "data": data }).to_string())
            .await
    })
}

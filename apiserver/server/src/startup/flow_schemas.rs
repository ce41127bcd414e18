//! Whether the priority level that a FlowSchema names is there, as its condition `Dangling` says.

use super::{Place, Startup};
use apiserver_registry::conditions::Condition;
use apiserver_registry::{RegistryError, metadata};
use futures::future::{BoxFuture, try_join_all};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const SCHEMAS: &str = "flowschemas";
const LEVELS: &str = "prioritylevelconfigurations";

/// Says it of all there are, and goes on doing so.
pub(super) fn keep(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    let resources = [(GROUP, SCHEMAS), (GROUP, LEVELS)];
    Box::pin(facts.keep("flow schemas", resources, reconcile))
}

fn place(name: &str) -> Place<'_> {
    Place {
        group: GROUP,
        plural: SCHEMAS,
        namespace: "",
        name,
    }
}

fn reconcile(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        let levels = facts.objects((GROUP, LEVELS)).await?;
        let schemas = facts.objects((GROUP, SCHEMAS)).await?;
        let said = schemas.iter().map(|schema| async {
            let level = schema.str_at(&["spec", "priorityLevelConfiguration", "name"]);
            let found = levels.iter().any(|own| metadata::name(own) == level);
            let subject =
                format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?}");
            let (status, reason, message) = if found {
                ("False", "Found", format!("{subject} and it exists"))
            } else {
                (
                    "True",
                    "NotFound",
                    format!("{subject} but there is no such object"),
                )
            };
            let dangling = Condition {
                kind: "Dangling",
                status,
                reason,
                message: &message,
            };
            facts.say(place(metadata::name(schema)), dangling).await
        });
        try_join_all(said).await.map(drop)
    })
}

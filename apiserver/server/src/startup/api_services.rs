//! An APIService for every group version that this server answers itself, as upstream's aggregator has them.
//!
//! Those of built-in versions are made when the server starts, and left alone afterwards; those of custom versions
//! come and go with their definitions. Both, and local ones that others made, are marked available. `metrics.k8s.io`
//! has none, as upstream: this server answers the group until a metrics-server registers itself.

use super::{ObjectAddress, Startup};
use apiserver_registry::kinds::apiregistration::api_service::LOCAL;
use apiserver_registry::options::{DeleteOptions, Preconditions};
use apiserver_registry::{ObjectPart, RegistryError, Scope, metadata};
use futures::future::{BoxFuture, try_join_all};
use machinery_meta::Uid;
use machinery_schema::{Ref, Tree};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const GROUP: &str = "apiregistration.k8s.io";
const PLURAL: &str = "apiservices";
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");
/// The label with the upkeep of an APIService: `onstart`, or `true` for always.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
const CUSTOM_GROUP_PRIORITY: i64 = 1_000;
const CUSTOM_VERSION_PRIORITY: i64 = 100;

/// A group, its priority, and its versions with theirs.
type Group = (&'static str, i64, &'static [(&'static str, i64)]);

/// Upstream's priorities of its groups, and of versions in them. The group of APIServices itself has none.
const PRIORITIES: [Group; 21] = [
    ("", 18_000, &[("v1", 1)]),
    ("apps", 17_800, &[("v1", 15)]),
    ("events.k8s.io", 17_750, &[("v1", 15)]),
    ("authentication.k8s.io", 17_700, &[("v1", 15)]),
    ("authorization.k8s.io", 17_600, &[("v1", 15)]),
    ("autoscaling", 17_500, &[("v1", 15), ("v2", 30)]),
    ("batch", 17_400, &[("v1", 15)]),
    ("certificates.k8s.io", 17_300, &[("v1", 15)]),
    ("networking.k8s.io", 17_200, &[("v1", 15)]),
    ("policy", 17_100, &[("v1", 15)]),
    ("rbac.authorization.k8s.io", 17_000, &[("v1", 15)]),
    ("storage.k8s.io", 16_800, &[("v1", 15)]),
    ("admissionregistration.k8s.io", 16_700, &[("v1", 15)]),
    ("apiextensions.k8s.io", 16_700, &[("v1", 15)]),
    ("scheduling.k8s.io", 16_600, &[("v1", 15)]),
    ("coordination.k8s.io", 16_500, &[("v1", 15)]),
    ("node.k8s.io", 16_300, &[("v1", 15)]),
    ("discovery.k8s.io", 16_200, &[("v1", 15)]),
    ("resource.k8s.io", 16_200, &[("v1", 21)]),
    ("flowcontrol.apiserver.k8s.io", 16_100, &[("v1", 21)]),
    ("storagemigration.k8s.io", 15_800, &[("v1", 15)]),
];

/// A group version as an APIService names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    group: String,
    version: String,
    group_priority: i64,
    version_priority: i64,
}

impl Wanted {
    fn name(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }

    fn spec(&self) -> Value {
        json!({
            "group": self.group,
            "version": self.version,
            "groupPriorityMinimum": self.group_priority,
            "versionPriority": self.version_priority,
        })
    }

    fn object(&self, managed: &str) -> String {
        let object = json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": self.name(), "labels": {MANAGED: managed}},
            "spec": self.spec(),
        });
        object.to_string()
    }

    /// Makes the rest of a spec go as well.
    fn patch(&self) -> String {
        let mut spec = self.spec();
        for other in ["service", "caBundle", "insecureSkipTLSVerify"] {
            spec[other] = Value::Null;
        }
        json!({"spec": spec}).to_string()
    }
}

fn address(name: &str) -> ObjectAddress<'_> {
    ObjectAddress {
        group: GROUP,
        plural: PLURAL,
        namespace: "",
        name,
    }
}

/// Registers what is built in, then keeps the others.
pub(super) fn keep(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        register_built_in(facts).await?;
        let resources = [DEFINITIONS, (GROUP, PLURAL)];
        facts.keep("API services", resources, reconcile).await
    })
}

/// The built-in versions of this server.
fn built_in() -> Vec<Wanted> {
    let of_group = |(group, priority, versions): &(&str, i64, &[(&str, i64)])| {
        let (group, priority) = ((*group).to_owned(), *priority);
        let wanted = versions.iter().map(move |(version, own)| Wanted {
            group: group.clone(),
            version: (*version).to_owned(),
            group_priority: priority,
            version_priority: *own,
        });
        wanted.collect::<Vec<_>>()
    };
    PRIORITIES.iter().flat_map(of_group).collect()
}

/// Makes what is missing, puts right what was made by another release, and takes away what is no longer served.
async fn register_built_in(facts: &Startup) -> Result<(), RegistryError> {
    let served = facts.core.registry.served();
    let is_served = |own: &Wanted| {
        let group = served.group(&own.group);
        group.is_some_and(|group| group.versions.iter().any(|version| version.name == own.version))
    };
    let wanted: Vec<Wanted> = built_in().into_iter().filter(is_served).collect();
    let present = facts.objects((GROUP, PLURAL)).await?;
    let all = wanted.iter().map(|wanted| async {
        let name = wanted.name();
        let found = present.iter().find(|own| metadata::name(own) == name);
        match found {
            None => facts
                .create(address(&name), &wanted.object("onstart"))
                .await
                .map(drop),
            Some(own) if is_managed(own) => {
                facts
                    .patch(address(&name), ObjectPart::Main, &wanted.patch())
                    .await
            }
            Some(_) => Ok(()),
        }
    });
    try_join_all(all).await?;
    let ours = |own: &&Tree| managed(own) == "onstart" && is_local(own);
    for own in present.iter().filter(ours) {
        if !wanted.iter().any(|wanted| wanted.name() == metadata::name(own)) {
            remove(facts, own).await?;
        }
    }
    Ok(())
}

/// Reports whether this server answers.
fn is_local(service: &Tree) -> bool {
    service.at(&["spec", "service"]).is_none_or(Ref::is_null)
}

fn managed(service: &Tree) -> &str {
    service.str_at(&["metadata", "labels", MANAGED])
}

fn is_managed(service: &Tree) -> bool {
    matches!(managed(service), "onstart" | "true")
}

async fn remove(facts: &Startup, service: &Tree) -> Result<(), RegistryError> {
    let name = metadata::name(service);
    let options = DeleteOptions {
        preconditions: Preconditions {
            uid: Some(Uid(metadata::uid(service).to_owned())),
            ..Preconditions::default()
        },
        ..DeleteOptions::default()
    };
    let store = facts.store(address(name))?;
    let deleted = store
        .delete(&facts.context(), &Scope::Cluster, name, &options, facts.door())
        .await;
    match deleted {
        Ok(_) | Err(RegistryError::NotFound { .. } | RegistryError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The versions of custom kinds that are to be served.
async fn custom(facts: &Startup) -> Result<BTreeSet<Wanted>, RegistryError> {
    let mut wanted = BTreeSet::new();
    for definition in facts.objects(DEFINITIONS).await? {
        let Some(spec) = definition.get("spec") else {
            continue;
        };
        let served = |version: &Ref<'_>| version.get("served").and_then(Ref::as_bool) == Some(true);
        wanted.extend(spec.list("versions").filter(served).map(|version| Wanted {
            group: spec.str("group").to_owned(),
            version: version.str("name").to_owned(),
            group_priority: CUSTOM_GROUP_PRIORITY,
            version_priority: CUSTOM_VERSION_PRIORITY,
        }));
    }
    Ok(wanted)
}

fn reconcile(facts: &Startup) -> BoxFuture<'_, Result<(), RegistryError>> {
    Box::pin(async move {
        let wanted = custom(facts).await?;
        let present = facts.objects((GROUP, PLURAL)).await?;
        for wanted in &wanted {
            let name = wanted.name();
            match present.iter().find(|own| metadata::name(own) == name) {
                None => drop(facts.create(address(&name), &wanted.object("true")).await?),
                Some(own) if is_managed(own) => {
                    facts
                        .patch(address(&name), ObjectPart::Main, &wanted.patch())
                        .await?;
                }
                Some(_) => {}
            }
        }
        let built_in = built_in();
        for own in present.iter().filter(|own| managed(own) == "true") {
            let mut kept = wanted.iter().chain(&built_in);
            if !kept.any(|wanted| wanted.name() == metadata::name(own)) {
                remove(facts, own).await?;
            }
        }
        let local = facts.objects((GROUP, PLURAL)).await?;
        let local = local.iter().filter(|own| is_local(own));
        let said = local.map(|own| facts.set_condition(address(metadata::name(own)), LOCAL));
        try_join_all(said).await.map(drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver_registry::kinds;

    #[test]
    fn api_service_priority_exists_for_every_version() {
        let wanted = built_in();
        for row in kinds::built_in_rows() {
            let (group, version) = (&row.gvk.group, &row.gvk.version);
            let known = wanted
                .iter()
                .any(|own| own.group == *group && own.version == *version);
            let unregistered = [GROUP, "metrics.k8s.io"];
            assert!(
                known || unregistered.contains(&group.as_str()),
                "{group}/{version}"
            );
        }
    }
}

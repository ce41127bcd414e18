//! The rows of all built-in kinds: what the generated table says, and what each kind says itself.

use super::{apiextensions, autoscaling, core, find};
use crate::columns;
use crate::kind::Kind;
use crate::row::{
    Conversion, ResourceRow, ScalePaths, Selectable, StoredForm, Subresource, SubresourceRole,
    record_fingerprint,
};
use crate::strategy::Strategy;
use crate::table_strategy::TableStrategy;
use crate::verbs::{Verb, Verbs};
use base64::Engine;
use machinery_api::KindInfo;
use machinery_meta::GroupVersionKind;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Rows of every GA kind.
pub fn built_in() -> Vec<ResourceRow> {
    machinery_api::table().kinds().iter().map(row).collect()
}

fn row(info: &'static KindInfo) -> ResourceRow {
    let gvk = info.gvk.clone();
    let schema = Arc::clone(machinery_api::schema());
    let kind = find(&gvk.group, &info.plural);
    let kind = kind.unwrap_or_else(|| panic!("{}/{} has no folder", gvk.group, info.plural));
    let stored = stored_form(info);
    let has_store = info.etcd_prefix.is_some();
    ResourceRow {
        plural: info.plural.clone(),
        singular: info.singular.clone(),
        short_names: info.short_names.clone(),
        categories: info.categories.clone(),
        list_kind: format!("{}List", gvk.kind),
        namespaced: info.namespaced,
        verbs: verbs(&info.verbs),
        subresources: info
            .subresources
            .iter()
            .map(|sub| subresource(info, sub))
            .collect(),
        ty: info.ty,
        schema,
        custom: false,
        built_in: Some(kind),
        columns: columns::built_in(&gvk.group, &gvk.version, &info.plural),
        selectable: selectable(&gvk.group, &info.plural).into(),
        strategy: strategy(kind),
        has_store,
        openapi_schema: None,
        terminating: machinery_runtime::CancellationToken::new(),
        superseded: machinery_runtime::CancellationToken::new(),
        deprecation_warning: deprecation(&gvk),
        storage_version_hash: if !has_store {
            String::new()
        } else {
            storage_version_hash(&stored.gvk)
        },
        stored,
        gvk,
    }
}

/// Upstream's hash of the version a resource is stored in.
pub fn storage_version_hash(gvk: &GroupVersionKind) -> String {
    let digest = Sha256::digest(format!("{}/{}/{}", gvk.group, gvk.version, gvk.kind));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

fn verbs(names: &[String]) -> Verbs {
    Verbs::of(names.iter().filter_map(|name| Verb::parse(name)))
}

/// Two addresses of one stored object share its form.
fn stored_form(info: &KindInfo) -> StoredForm {
    let stored_in = match (info.gvk.group.as_str(), info.gvk.kind.as_str()) {
        ("events.k8s.io", "Event") => Some(("", "v1")),
        ("autoscaling", "HorizontalPodAutoscaler") if info.gvk.version == "v1" => Some(("autoscaling", "v2")),
        _ => None,
    };
    let conversion: Option<Arc<dyn Conversion>> = match info.gvk.kind.as_str() {
        _ if stored_in.is_none() => None,
        "Event" => Some(Arc::new(core::event::EventsConversion)),
        _ => Some(Arc::new(
            autoscaling::horizontal_pod_autoscaler::conversion::HpaConversion,
        )),
    };
    let table = machinery_api::table();
    let own = stored_in
        .and_then(|(group, version)| table.kind(group, version, &info.gvk.kind))
        .unwrap_or(info);
    StoredForm {
        prefix: format!("/registry/{}/", own.etcd_prefix.as_deref().unwrap_or(&own.plural)),
        gvk: own.gvk.clone(),
        schema: Arc::clone(table.schema()),
        ty: own.ty,
        fingerprint: record_fingerprint(table.schema(), &selectable(&own.gvk.group, &own.plural)),
        conversion,
    }
}

fn subresource(info: &KindInfo, sub: &machinery_api::Subresource) -> Subresource {
    let role = match sub.name.as_str() {
        "status" => SubresourceRole::Status,
        "scale" => SubresourceRole::Scale(scale_paths()),
        "binding" => SubresourceRole::Binding,
        "eviction" => SubresourceRole::Eviction,
        "token" => SubresourceRole::Token,
        "finalize" => SubresourceRole::Whole("finalize"),
        "approval" => SubresourceRole::Whole("approval"),
        "ephemeralcontainers" => SubresourceRole::Whole("ephemeralcontainers"),
        "resize" => SubresourceRole::Whole("resize"),
        "log" => SubresourceRole::Log,
        "attach" | "exec" | "portforward" | "proxy" => SubresourceRole::Connect,
        unknown => unreachable!("the table has a subresource {unknown:?} that nothing serves"),
    };
    let own = &sub.gvk;
    let gvk = if own.version.is_empty() {
        info.gvk.group_version().kind(&own.kind)
    } else {
        own.clone()
    };
    Subresource {
        name: sub.name.clone(),
        gvk,
        verbs: verbs(&sub.verbs),
        role,
    }
}

fn scale_paths() -> ScalePaths {
    let path = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    ScalePaths {
        spec_replicas: path(["spec", "replicas"]),
        status_replicas: path(["status", "replicas"]),
        custom: false,
        selector: Some(path(["spec", "selector"])),
    }
}

fn deprecation(gvk: &GroupVersionKind) -> Option<String> {
    let text = match (gvk.group.as_str(), gvk.version.as_str(), gvk.kind.as_str()) {
        ("", "v1", "ComponentStatus") => "v1 ComponentStatus is deprecated in v1.19+",
        ("", "v1", "Endpoints") => {
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// The strategy of a built-in kind.
fn strategy(kind: &'static Kind) -> Arc<dyn Strategy> {
    match (kind.group, kind.plural) {
        ("", "configmaps") => Arc::new(core::config_map::ConfigMapStrategy),
        ("", "namespaces") => Arc::new(core::namespace::NamespaceStrategy),
        ("", "nodes") => Arc::new(core::node::NodeStrategy),
        ("", "pods") => Arc::new(core::pod::PodStrategy),
        ("", "secrets") => Arc::new(core::secret::SecretStrategy),
        ("", "services") => Arc::new(core::service::ServiceStrategy),
        ("" | "events.k8s.io", "events") => Arc::new(core::event::EventStrategy {
            core: kind.group.is_empty(),
        }),
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            Arc::new(apiextensions::custom_resource_definition::CrdStrategy)
        }
        _ => Arc::new(TableStrategy::of(kind)),
    }
}

/// Fields that field selectors may ask for, besides name and namespace.
fn selectable(group: &str, plural: &str) -> Vec<Selectable> {
    let texts = |labels: &[&str]| {
        labels
            .iter()
            .map(|label| Selectable::text(label))
            .collect::<Vec<_>>()
    };
    match (group, plural) {
        ("", "pods") => {
            let mut all = texts(&[
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "status.phase",
                "status.podIP",
                "status.nominatedNodeName",
            ]);
            all.push(Selectable::with_absent("spec.hostNetwork", "false"));
            all
        }
        ("", "nodes") => vec![Selectable::with_absent("spec.unschedulable", "false")],
        ("", "namespaces") => texts(&["status.phase"]),
        ("", "secrets") => texts(&["type"]),
        ("", "services") => texts(&["spec.clusterIP", "spec.type"]),
        ("", "replicationcontrollers") | ("apps", "replicasets") => {
            vec![Selectable::with_absent("status.replicas", "0")]
        }
        ("batch", "jobs") => {
            vec![Selectable {
                label: "status.successful".into(),
                path: path("status.succeeded"),
                absent: "0",
                otherwise: None,
            }]
        }
        ("certificates.k8s.io", "certificatesigningrequests" | "clustertrustbundles") => {
            texts(&["spec.signerName"])
        }
        ("certificates.k8s.io", "podcertificaterequests") => {
            texts(&["spec.signerName", "spec.podName", "spec.nodeName"])
        }
        ("resource.k8s.io", "resourceslices") => texts(&["spec.nodeName", "spec.driver", "spec.pool.name"]),
        ("" | "events.k8s.io", "events") => core::event::selectable(),
        _ => Vec::new(),
    }
}

fn path(text: &str) -> Vec<String> {
    text.split('.').map(str::to_owned).collect()
}

//! Warnings about a valid Service.

use machinery_schema::Ref;

/// The annotation that topology hints were requested with, and its successor.
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";

/// Upstream's warnings, in its order.
pub(super) fn of(service: Ref<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let Some(spec) = service.get("spec") else {
        return warnings;
    };
    if service.at(&["metadata", "annotations", TOPOLOGY_HINTS]).is_some() {
        warnings.push(format!(
            "annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"
        ));
    }
    let kind = spec.str("type");
    let headless = kind == "ClusterIP" && spec.str("clusterIP") == "None";
    let external_ips = spec.list("externalIPs").len() > 0;
    if headless {
        warnings.extend(ignored_by_headless(spec));
    }
    if external_ips && !headless && kind != "ExternalName" {
        warnings
            .push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".into());
    }
    if kind == "ExternalName" && external_ips {
        warnings.push(r#"spec.externalIPs is ignored when spec.type is "ExternalName""#.into());
    }
    if kind != "ExternalName" && !spec.str("externalName").is_empty() {
        warnings.push(r#"spec.externalName is ignored when spec.type is not "ExternalName""#.into());
    }
    if spec.str("trafficDistribution") == "PreferClose" {
        warnings
            .push(r#"spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone""#.into());
    }
    warnings
}

fn ignored_by_headless(spec: Ref<'_>) -> Vec<String> {
    let mut ignored = Vec::new();
    if !spec.str("loadBalancerIP").is_empty() {
        ignored.push("spec.loadBalancerIP");
    }
    if spec.list("externalIPs").len() > 0 {
        ignored.push("spec.externalIPs");
    }
    if spec.str("sessionAffinity") != "None" {
        ignored.push("spec.SessionAffinity");
    }
    ignored
        .into_iter()
        .map(|field| format!("{field} is ignored for headless services"))
        .collect()
}

//! Derived fields of a service: traffic policies, address families, values kept over an update.

use super::{may_have_node_ports, needs_health_port, service_type};
use machinery_schema::{Ref, Step, Tree, Value};
use std::collections::{HashMap, HashSet};

/// Three hours, the stickiness of `ClientIP` when none is set.
const DEFAULT_STICKINESS_SECONDS: i64 = 10800;

/// Defaults that depend on other fields.
pub(super) fn defaults(service: &mut Tree) {
    let kind = service_type(service.root()).to_owned();
    let sticky = service.str_at(&["spec", "sessionAffinity"]) == "ClientIP";
    let external = service
        .at(&["spec", "externalIPs"])
        .is_some_and(|ips| !ips.is_empty());
    if kind == "LoadBalancer" {
        service.with(&["status", "loadBalancer"], |mut status| {
            status.each("ingress", |mut point| {
                if !point.as_ref().str("ip").is_empty() {
                    point.default("ipMode", "VIP");
                }
            });
        });
    }
    let unsticky = service.str_at(&["spec", "sessionAffinity"]) == "None";
    service.with(&["spec"], |mut spec| {
        if unsticky {
            spec.remove("sessionAffinityConfig");
        }
        if sticky {
            let mut config = spec.entry("sessionAffinityConfig");
            let mut client = config.entry("clientIP");
            client.default("timeoutSeconds", DEFAULT_STICKINESS_SECONDS);
        }
        spec.each("ports", |mut port| {
            port.default("protocol", "TCP");
            let unset = port.as_ref().get("targetPort").is_none_or(|target| {
                target.is_null() || target.as_i64() == Some(0) || target.as_str() == Some("")
            });
            let own = port.as_ref().get("port").and_then(Ref::as_i64);
            if let (true, Some(own)) = (unset, own) {
                port.set("targetPort", own);
            }
        });
        let accessible =
            matches!(kind.as_str(), "NodePort" | "LoadBalancer") || kind == "ClusterIP" && external;
        if accessible {
            spec.default("externalTrafficPolicy", "Cluster");
        }
        if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
            spec.default("internalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            spec.default("allocateLoadBalancerNodePorts", true);
        }
    });
}

/// Brings addresses and families into their normal form; on update, values the client left out are kept.
pub(super) fn normalise(service: &mut Tree, old: Option<&Tree>) {
    if let Some(old) = old {
        keep_allocated(service, old);
        drop_unused(service, old);
    }
    mirror_cluster_ip(service, old);
    if service_type(service.root()) == "ExternalName" {
        return;
    }
    let headless = service.str_at(&["spec", "clusterIP"]) == "None";
    let selectorless = service.at(&["spec", "selector"]).is_none_or(Ref::is_empty);
    let both = headless && selectorless;
    service.with(&["spec"], |mut spec| {
        spec.default(
            "ipFamilyPolicy",
            if both { "RequireDualStack" } else { "SingleStack" },
        );
        let policy = spec.as_ref().str("ipFamilyPolicy").to_owned();
        let known = spec.as_ref().get("ipFamilies").map_or(0, Ref::len);
        let mut families = spec.entry("ipFamilies");
        if known == 0 {
            families.push("IPv4");
        }
        if both && known < 2 && policy != "SingleStack" {
            families.push("IPv6");
        }
    });
}

/// `clusterIP` and the first of `clusterIPs` are one value; old clients know only the former.
fn mirror_cluster_ip(service: &mut Tree, old: Option<&Tree>) {
    let first = |tree: &Tree| {
        let listed = tree.get("spec").and_then(|spec| spec.list("clusterIPs").next());
        listed.and_then(Ref::as_str).unwrap_or_default().to_owned()
    };
    let (single, listed) = (service.str_at(&["spec", "clusterIP"]).to_owned(), first(service));
    let old_single = old.map(|old| old.str_at(&["spec", "clusterIP"]).to_owned());
    if single == listed {
        return;
    }
    let changed_single = old_single.as_deref().is_none_or(|was| was != single);
    if single.is_empty() && changed_single && old.is_some() {
        service.remove(&["spec", "clusterIPs"]);
    } else if !single.is_empty() && (listed.is_empty() || (changed_single && old.is_some())) {
        service.set(&[Step::Name("spec"), Step::Name("clusterIPs")], Value::EmptyList);
        service.push(&["spec", "clusterIPs"], single.as_str());
    }
}

/// Keeps allocated values that the client leaves out.
fn keep_allocated(service: &mut Tree, old: &Tree) {
    // That a service has no address is a value, too.
    let has_address = |service: &Tree| service_type(service.root()) != "ExternalName";
    let (was, is) = (
        old.str_at(&["spec", "clusterIP"]),
        service.str_at(&["spec", "clusterIP"]),
    );
    if has_address(old) && has_address(service) && !was.is_empty() && is.is_empty() {
        let unlisted = service.at(&["spec", "clusterIPs"]).is_none_or(Ref::is_empty);
        service.set_str(&["spec", "clusterIP"], old.str_at(&["spec", "clusterIP"]));
        if unlisted && let Some(listed) = old.at(&["spec", "clusterIPs"]) {
            service.set(&[Step::Name("spec"), Step::Name("clusterIPs")], listed);
        }
    }
    if may_have_node_ports(old.root()) && may_have_node_ports(service.root()) {
        let mut known = HashMap::new();
        for (number, protocol, node) in old
            .get("spec")
            .into_iter()
            .flat_map(|s| s.list("ports"))
            .map(port_key)
        {
            known.entry((number, protocol)).or_insert(node);
        }
        let taken: HashSet<i64> = service
            .get("spec")
            .into_iter()
            .flat_map(|s| s.list("ports"))
            .map(|p| port_key(p).2)
            .collect();
        service.with(&["spec"], |mut spec| {
            spec.each("ports", |mut port| {
                let (number, protocol, node) = port_key(port.as_ref());
                let own = known.get(&(number, protocol));
                if let Some(before) = own.filter(|own| node == 0 && **own != 0 && !taken.contains(*own)) {
                    port.set("nodePort", *before);
                }
            });
        });
    }
    let health = |tree: &Tree| {
        tree.at(&["spec", "healthCheckNodePort"])
            .and_then(Ref::as_i64)
            .unwrap_or(0)
    };
    if needs_health_port(old.root())
        && needs_health_port(service.root())
        && health(service) == 0
        && health(old) != 0
    {
        service.set_i64(&["spec", "healthCheckNodePort"], health(old));
    }
}

fn port_key(port: Ref<'_>) -> (i64, String, i64) {
    let number = |name: &str| port.get(name).and_then(Ref::as_i64).unwrap_or(0);
    (
        number("port"),
        port.str("protocol").to_owned(),
        number("nodePort"),
    )
}

/// A type that has no use for a value loses it, unless the client changed the value itself.
fn drop_unused(service: &mut Tree, old: &Tree) {
    let same = |service: &Tree, field: &str| service.at(&["spec", field]) == old.at(&["spec", field]);
    let is_elsewhere = |service: &Tree| service_type(service.root()) == "ExternalName";
    if !is_elsewhere(old) && is_elsewhere(service) {
        let unlisted = service.at(&["spec", "clusterIPs"]).is_none_or(Ref::is_empty);
        if same(service, "clusterIP") && (unlisted || same(service, "clusterIPs")) {
            service.remove(&["spec", "clusterIP"]);
            service.remove(&["spec", "clusterIPs"]);
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if same(service, field) {
                service.remove(&["spec", field]);
            }
        }
    }
    if may_have_node_ports(old.root()) && !may_have_node_ports(service.root()) {
        service.with(&["spec"], |mut spec| {
            spec.each("ports", |mut port| {
                port.remove("nodePort");
            });
        });
    }
    if needs_health_port(old.root())
        && !needs_health_port(service.root())
        && same(service, "healthCheckNodePort")
    {
        service.remove(&["spec", "healthCheckNodePort"]);
    }
    let is_load_balancer = service_type(service.root()) == "LoadBalancer";
    if !is_load_balancer {
        drop_status(service);
    }
    if service_type(old.root()) == "LoadBalancer" && !is_load_balancer {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same(service, field) {
                service.remove(&["spec", field]);
            }
        }
    }
    let external = matches!(service_type(service.root()), "NodePort" | "LoadBalancer");
    let listed = service
        .at(&["spec", "externalIPs"])
        .is_some_and(|ips| !ips.is_empty());
    if service_type(service.root()) == "ExternalName" && same(service, "internalTrafficPolicy") {
        service.remove(&["spec", "internalTrafficPolicy"]);
    }
    if !external && !listed && same(service, "externalTrafficPolicy") {
        service.remove(&["spec", "externalTrafficPolicy"]);
    }
}

/// Addresses where no load balancer listens any more.
fn drop_status(service: &mut Tree) {
    let listens = service.at(&["status", "loadBalancer", "ingress"]);
    if listens.is_some_and(|points| !points.is_empty()) {
        service.set(
            &[Step::Name("status"), Step::Name("loadBalancer")],
            Value::EmptyMap,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    /// Changes a service, and compares a member of what comes of it.
    #[track_caller]
    fn check(old: Json, new: Json, (member, expected): (&[&str], Json)) {
        let tree = |service: &Json| Tree::from_json(&service.to_string()).unwrap();
        let (old, mut changed) = (tree(&old), tree(&new));
        normalise(&mut changed, Some(&old));
        let found = changed.at(member).map_or(Json::Null, |found| {
            serde_json::from_str(&found.to_json()).unwrap()
        });
        assert_eq!(found, expected, "{new}");
    }

    #[test]
    fn load_balancer_keeps_node_ports_when_it_asks_for_no_more() {
        let service = |allocates: bool| {
            json!({"spec": {
                "type": "LoadBalancer",
                "allocateLoadBalancerNodePorts": allocates,
                "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30201}],
            }})
        };
        let ports = service(true)["spec"]["ports"].clone();
        check(service(true), service(false), (&["spec", "ports"], ports));
    }

    fn headless() -> Json {
        json!({"spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "clusterIPs": ["None"],
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
        }})
    }

    #[test]
    fn headless_service_stays_without_an_address() {
        let headless = headless();
        for new in [
            json!({"spec": {"type": "ClusterIP"}}),
            json!({"spec": {"type": "ClusterIP", "clusterIP": null}}),
            json!({"spec": {"type": "ClusterIP", "clusterIP": "", "clusterIPs": ["None"]}}),
        ] {
            check(
                headless.clone(),
                new.clone(),
                (&["spec", "clusterIP"], json!("None")),
            );
            check(headless.clone(), new, (&["spec", "clusterIPs"], json!(["None"])));
        }
    }

    #[test]
    fn headless_service_that_is_elsewhere_has_no_families() {
        let headless = headless();
        let mut elsewhere = headless.clone();
        elsewhere["spec"]["type"] = json!("ExternalName");
        elsewhere["spec"]["clusterIP"] = Json::Null;
        elsewhere["spec"]["clusterIPs"] = Json::Null;
        for member in ["ipFamilies", "ipFamilyPolicy"] {
            check(
                headless.clone(),
                elsewhere.clone(),
                (&["spec", member], Json::Null),
            );
        }
    }

    #[test]
    fn service_that_is_no_load_balancer_listens_nowhere() {
        let service = |kind: &str| {
            json!({
                "spec": {"type": kind, "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"]},
                "status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}},
            })
        };
        let status = ["status", "loadBalancer"];
        check(
            service("LoadBalancer"),
            service("ClusterIP"),
            (&status, json!({})),
        );
        let kept = service("LoadBalancer")["status"]["loadBalancer"].clone();
        check(service("LoadBalancer"), service("LoadBalancer"), (&status, kept));
    }
}

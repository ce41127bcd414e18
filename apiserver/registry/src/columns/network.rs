//! Networking, discovery and certificates.

use super::format::{NONE, UNSET, first_then_more, labels, name, object_age, or, selector, text};
use super::{Cell, KindCells, human_duration};
use jiff::Timestamp;
use machinery_schema::Ref;

pub(super) fn cells(group: &str, plural: &str) -> Option<KindCells> {
    Some(match (group, plural) {
        ("networking.k8s.io", "ingresses") => ingress,
        ("networking.k8s.io", "ingressclasses") => ingress_class,
        ("networking.k8s.io", "networkpolicies") => network_policy,
        ("networking.k8s.io", "ipaddresses") => ip_address,
        ("networking.k8s.io", "servicecidrs") => service_cidr,
        ("discovery.k8s.io", "endpointslices") => endpoint_slice,
        ("certificates.k8s.io", "certificatesigningrequests") => signing_request,
        ("certificates.k8s.io", "clustertrustbundles") => trust_bundle,
        ("certificates.k8s.io", "podcertificaterequests") => pod_certificate_request,
        _ => return None,
    })
}

fn ingress(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let spec = object.get("spec");
    let hosts: Vec<String> = spec
        .into_iter()
        .flat_map(|spec| spec.list("rules"))
        .map(|rule| rule.str("host").to_owned())
        .filter(|host| !host.is_empty())
        .collect();
    let shown = if hosts.is_empty() {
        "*".to_owned()
    } else {
        first_then_more(&hosts, 3)
    };
    let balancer = object
        .at(&["status", "loadBalancer"])
        .into_iter()
        .flat_map(|lb| lb.list("ingress"));
    let mut addresses: Vec<&str> = balancer
        .map(|own| {
            if own.str("ip").is_empty() {
                own.str("hostname")
            } else {
                own.str("ip")
            }
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let secure = spec.is_some_and(|spec| spec.list("tls").next().is_some());
    vec![
        name(object),
        or(object.str_at(&["spec", "ingressClassName"]), NONE).into(),
        shown.into(),
        addresses.join(",").into(),
        if secure { "80, 443" } else { "80" }.into(),
        object_age(object, now),
    ]
}

fn ingress_class(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let parameters = object.at(&["spec", "parameters"]).map_or_else(
        || NONE.to_owned(),
        |own| {
            let kind = match own.str("apiGroup") {
                "" => own.str("kind").to_owned(),
                group => format!("{}.{group}", own.str("kind")),
            };
            format!("{kind}/{}", own.str("name"))
        },
    );
    vec![
        name(object),
        text(object, &["spec", "controller"]),
        parameters.into(),
        object_age(object, now),
    ]
}

fn network_policy(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    vec![
        name(object),
        selector(object.at(&["spec", "podSelector"])).into(),
        object_age(object, now),
    ]
}

fn ip_address(object: Ref<'_>, _now: Timestamp) -> Vec<Cell> {
    let parent = object.at(&["spec", "parentRef"]);
    let field = |name: &str| parent.map_or("", |own| own.str(name));
    let resource = match field("group") {
        "" => field("resource").to_owned(),
        group => format!("{}.{group}", field("resource")),
    };
    let parts = [resource.as_str(), field("namespace"), field("name")];
    let shown: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    vec![name(object), shown.join("/").into()]
}

fn service_cidr(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let cidrs: Vec<&str> = object
        .get("spec")
        .into_iter()
        .flat_map(|spec| spec.list("cidrs"))
        .filter_map(Ref::as_str)
        .collect();
    vec![name(object), cidrs.join(",").into(), object_age(object, now)]
}

fn endpoint_slice(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let ports: Vec<String> = object
        .list("ports")
        .map(
            |port| match (port.get("port").and_then(Ref::as_i64), port.str("name")) {
                (Some(number), _) => number.to_string(),
                (None, "") => "*".to_owned(),
                (None, name) => name.to_owned(),
            },
        )
        .collect();
    let endpoints: Vec<String> = object
        .list("endpoints")
        .flat_map(|endpoint| endpoint.list("addresses"))
        .filter_map(Ref::as_str)
        .map(str::to_owned)
        .collect();
    let all = |list: &[String]| {
        if list.is_empty() {
            UNSET.to_owned()
        } else {
            first_then_more(list, 3)
        }
    };
    vec![
        name(object),
        text(object, &["addressType"]),
        all(&ports).into(),
        all(&endpoints).into(),
        object_age(object, now),
    ]
}

fn signing_request(object: Ref<'_>, now: Timestamp) -> Vec<Cell> {
    let duration = object.at(&["spec", "expirationSeconds"]).and_then(Ref::as_i64);
    let mut states: Vec<&str> = Vec::new();
    for condition in object
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("conditions"))
    {
        states.push(condition.str("type"));
    }
    let decided = ["Approved", "Denied", "Failed"]
        .into_iter()
        .filter(|state| states.contains(state));
    let mut shown: Vec<&str> = decided.collect();
    if shown.is_empty() {
        shown.push("Pending");
    }
    if !object.str_at(&["status", "certificate"]).is_empty() {
        shown.push("Issued");
    }
    vec![
        name(object),
        object_age(object, now),
        or(object.str_at(&["spec", "signerName"]), NONE).into(),
        text(object, &["spec", "username"]),
        duration.map_or_else(|| NONE.to_owned(), human_duration).into(),
        shown.join(",").into(),
    ]
}

fn trust_bundle(object: Ref<'_>, _now: Timestamp) -> Vec<Cell> {
    vec![
        name(object),
        or(object.str_at(&["spec", "signerName"]), NONE).into(),
    ]
}

fn pod_certificate_request(object: Ref<'_>, _now: Timestamp) -> Vec<Cell> {
    let conditions = object
        .get("status")
        .into_iter()
        .flat_map(|status| status.list("conditions"));
    let states = ["Issued", "Denied", "Failed"];
    let state = conditions
        .map(|condition| condition.str("type"))
        .rfind(|own| states.contains(own));
    vec![
        name(object),
        text(object, &["spec", "podName"]),
        text(object, &["spec", "serviceAccountName"]),
        text(object, &["spec", "nodeName"]),
        text(object, &["spec", "signerName"]),
        state.unwrap_or("Pending").into(),
        labels(object.at(&["spec", "unverifiedUserAnnotations"])).into(),
    ]
}

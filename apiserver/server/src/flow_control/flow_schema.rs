//! Matching of requests by FlowSchemas, and their division into flows.

use super::objects::{
    DistinguisherMethod, EXEMPT, FlowSchema, FlowSchemaRules, NonResourceRule, ResourceRule, Subject,
};
use apiserver_endpoints::RequestInfo;
use machinery_meta::UserInfo;
use sha2::{Digest, Sha256};

const ALL: &str = "*";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The order in which schemas are tried: by precedence, and `exempt` before one that should not have been stored.
pub(super) fn in_order(schemas: &mut [FlowSchema]) {
    schemas.sort_by(|one, other| {
        let key = |schema: &FlowSchema| {
            let name = schema.metadata.name.clone();
            (name != EXEMPT, schema.spec.matching_precedence, name)
        };
        key(one).cmp(&key(other))
    });
}

pub(super) fn matches(schema: &FlowSchema, user: &UserInfo, info: &RequestInfo) -> bool {
    schema.spec.rules.iter().any(|rules| {
        matches_user(rules, user)
            && if info.is_resource_request {
                rules
                    .resource_rules
                    .iter()
                    .any(|rule| matches_resource(rule, info))
            } else {
                rules
                    .non_resource_rules
                    .iter()
                    .any(|rule| matches_path(rule, info))
            }
    })
}

/// The text that distinguishes the flow from others of its schema.
pub(super) fn distinguisher<'a>(
    method: Option<DistinguisherMethod>,
    user: &'a UserInfo,
    info: &'a RequestInfo,
) -> &'a str {
    match method {
        None => "",
        Some(DistinguisherMethod::ByUser) => &user.name,
        Some(DistinguisherMethod::ByNamespace) => &info.namespace,
    }
}

/// The hash by which queues are dealt.
pub(super) fn flow_hash(schema: &str, distinguisher: &str) -> u64 {
    let sum = Sha256::new()
        .chain_update(schema)
        .chain_update([0])
        .chain_update(distinguisher)
        .finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&sum[..8]);
    u64::from_le_bytes(first)
}

fn matches_user(rules: &FlowSchemaRules, user: &UserInfo) -> bool {
    rules.subjects.iter().any(|subject| match subject {
        Subject::User { user: wanted } => wanted.name == ALL || wanted.name == user.name,
        Subject::Group { group } => group.name == ALL || user.in_group(&group.name),
        Subject::ServiceAccount {
            service_account: wanted,
        } => {
            let own = user
                .name
                .strip_prefix(SERVICE_ACCOUNT)
                .and_then(|name| name.split_once(':'));
            own.is_some_and(|(namespace, name)| {
                namespace == wanted.namespace && (wanted.name == ALL || wanted.name == name)
            })
        }
    })
}

/// The wildcard is one only where it stands alone, which validation sees to.
fn lists(list: &[String], value: &str) -> bool {
    matches!(list, [only] if only == ALL) || list.iter().any(|own| own == value)
}

fn lists_resource(list: &[String], info: &RequestInfo) -> bool {
    if info.subresource.is_empty() {
        return lists(list, &info.resource);
    }
    let is_of = |own: &str| own.split_once('/') == Some((&info.resource, &info.subresource));
    matches!(list, [only] if only == ALL) || list.iter().any(|own| is_of(own))
}

fn matches_resource(rule: &ResourceRule, info: &RequestInfo) -> bool {
    lists(&rule.verbs, &info.verb)
        && lists_resource(&rule.resources, info)
        && lists(&rule.api_groups, &info.api_group)
        && if info.namespace.is_empty() {
            rule.cluster_scope
        } else {
            lists(&rule.namespaces, &info.namespace)
        }
}

fn matches_path(rule: &NonResourceRule, info: &RequestInfo) -> bool {
    lists(&rule.verbs, &info.verb) && rule.non_resource_urls.iter().any(|url| is_below(&info.path, url))
}

/// `/healthz` has `/healthz/etcd` below it, as `/healthz/*` has.
fn is_below(path: &str, url: &str) -> bool {
    if url == ALL || url == path {
        return true;
    }
    let prefix = url.strip_suffix('*').unwrap_or(url);
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| prefix.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_control::bootstrap;
    use http::{Method, Uri};

    /// The bootstrap schema that a request falls into.
    #[track_caller]
    fn check(user: &UserInfo, method: Method, path: &'static str, expected: &str) {
        let mut schemas = bootstrap::flow_schemas();
        in_order(&mut schemas);
        let info = RequestInfo::parse(&method, &Uri::from_static(path)).unwrap();
        let found = schemas.iter().find(|schema| matches(schema, user, &info));
        assert_eq!(
            found.map(|schema| schema.metadata.name.as_str()),
            Some(expected),
            "{} {path}",
            user.name
        );
    }

    /// As upstream's bootstrap objects mean it.
    #[test]
    fn flow_schemas_of_every_cluster_match_as_upstreams() {
        let get = || Method::GET;
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a";
        let node = UserInfo::node("a");
        let user = UserInfo::named("anna", [UserInfo::AUTHENTICATED]);
        let admin = UserInfo::named("admin", [UserInfo::MASTERS, UserInfo::AUTHENTICATED]);
        let scheduler = UserInfo::named("system:kube-scheduler", [UserInfo::AUTHENTICATED]);
        let account = |namespace| UserInfo::service_account(namespace, "default");
        check(&admin, get(), "/api/v1/pods", "exempt");
        check(&UserInfo::anonymous(), get(), "/readyz", "probes");
        check(&UserInfo::anonymous(), get(), "/readyz/etcd", "probes");
        check(&UserInfo::anonymous(), get(), "/readyzetcd", "global-default");
        check(&user, get(), "/livez", "probes");
        check(&scheduler, get(), lease, "system-leader-election");
        check(&scheduler, Method::DELETE, lease, "kube-scheduler");
        check(
            &account("kube-system"),
            Method::PUT,
            lease,
            "system-leader-election",
        );
        check(
            &account("kube-system"),
            get(),
            "/api/v1/pods",
            "kube-system-service-accounts",
        );
        check(&node, Method::PUT, lease, "system-node-high");
        check(&node, Method::PATCH, "/api/v1/nodes/a/status", "system-node-high");
        check(&node, get(), "/api/v1/nodes/a/proxy", "system-nodes");
        check(&node, get(), "/api/v1/pods", "system-nodes");
        check(&account("evil"), get(), "/api/v1/pods", "service-accounts");
        check(
            &account("kube-systemx"),
            get(),
            "/api/v1/pods",
            "service-accounts",
        );
        check(&user, get(), "/api/v1/pods", "global-default");
    }

    /// Values of upstream's `hashFlowID`, whose queues ours are.
    #[test]
    fn flow_hash_is_upstreams() {
        assert_ne!(flow_hash("a", "bc"), flow_hash("ab", "c"));
        assert_eq!(
            flow_hash("", ""),
            u64::from_le_bytes([0x6e, 0x34, 0x0b, 0x9c, 0xff, 0xb3, 0x7a, 0x98])
        );
    }
}

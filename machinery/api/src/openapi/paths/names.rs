//! Names of operations: the rules of upstream's `GetOperationIDAndTags` and `GetArticleForNoun`.

/// Verbs that a route's operation may begin with. None of upstream's others begins with one of these; `deletecollection`
/// begins with `delete`, which is found first.
const VERBS: [&str; 10] = [
    "get", "log", "read", "replace", "patch", "delete", "watch", "connect", "list", "create",
];

/// The id and the tag of an operation. The id names the group and the version between the verb and the rest, so that it is the
/// only one of its name in a document.
///
/// `listNamespacedPod` of `/api/v1/…` is `listCoreV1NamespacedPod`, tagged `core_v1`.
pub(super) fn id_and_tag(operation: &str, path: &str) -> (String, String) {
    let verb = VERBS.iter().find(|verb| operation.starts_with(**verb));
    let (mut id, rest) = operation.split_at(verb.map_or(0, |verb| verb.len()));
    let mut parts = path.trim_matches('/').split('/');
    let (group, version) = match parts.next().unwrap_or_default() {
        "api" => (Some("core"), parts.next()),
        "apis" => (parts.next(), parts.next()),
        root => return (joined([id, rest]), camel_case(root, false)),
    };
    let Some(group) = group else {
        return (joined([id, rest]), "apis".to_owned());
    };
    let group = group.strip_suffix(".k8s.io").unwrap_or(group);
    let mut tag = camel_case(group, false);
    let named;
    if let Some(version) = version {
        tag = format!("{tag}_{}", camel_case(version, false));
        named = joined([id, group, version]);
    } else {
        named = joined([id, group]);
    }
    id = &named;
    (joined([id, rest]), tag)
}

/// The first as it is, the others in camel case.
fn joined<const N: usize>(parts: [&str; N]) -> String {
    let mut out = String::new();
    for part in parts {
        match out.is_empty() {
            true => out.push_str(part),
            false => out.push_str(&camel_case(part, true)),
        }
    }
    out
}

/// Leaves out what no identifier has; the letter after it is in upper case.
fn camel_case(text: &str, mut upper: bool) -> String {
    let mut out = String::new();
    for (at, own) in text.char_indices() {
        if own.is_alphabetic() || own == '_' || (at != 0 && own.is_numeric()) {
            match upper {
                true => out.extend(own.to_uppercase()),
                false => out.push(own),
            }
            upper = false;
        } else {
            upper = true;
        }
    }
    out
}

/// `ephemeralcontainers` → `Ephemeralcontainers`
pub(super) fn title(text: &str) -> String {
    camel_case(text, true)
}

/// The article before the name of a kind, with a space on both sides; plurals have none.
pub(super) fn article(kind: &str) -> &'static str {
    if kind.ends_with('s') && !kind.ends_with("ss") {
        return " ";
    }
    match kind.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O', 'U']) {
        true => " an ",
        false => " a ",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(operation: &str, path: &str, id: &str, tag: &str) {
        let (own_id, own_tag) = id_and_tag(operation, path);
        assert_eq!((own_id.as_str(), own_tag.as_str()), (id, tag));
    }

    #[test]
    fn operation_ids_name_group_and_version() {
        check(
            "listNamespacedPod",
            "/api/v1/namespaces/{namespace}/pods",
            "listCoreV1NamespacedPod",
            "core_v1",
        );
        check(
            "deletecollectionClusterRole",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "deleteRbacAuthorizationV1CollectionClusterRole",
            "rbacAuthorization_v1",
        );
        check(
            "listCronTabForAllNamespaces",
            "/apis/stable.my-example.com/v1beta1/crontabs",
            "listStableMyExampleComV1beta1CronTabForAllNamespaces",
            "stableMyExampleCom_v1beta1",
        );
        check("getAPIVersions", "/api/", "getCoreAPIVersions", "core");
        check("getAPIVersions", "/apis/", "getAPIVersions", "apis");
        check("getAPIGroup", "/apis/apps/", "getAppsAPIGroup", "apps");
        check("getCodeVersion", "/version/", "getCodeVersion", "version");
        check(
            "getServiceAccountIssuerOpenIDConfiguration",
            "/.well-known/openid-configuration/",
            "getServiceAccountIssuerOpenIDConfiguration",
            "WellKnown",
        );
    }

    #[test]
    fn article_goes_by_the_first_letter_and_the_plural() {
        let all = ["Pod", "Ingress", "Endpoints", "StorageClass", "APIService"];
        assert_eq!(all.map(article), [" a ", " an ", " ", " a ", " an "]);
    }
}

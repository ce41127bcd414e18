use super::*;
use crate::authz::attributes::ResourceTarget;
use crate::authz::{AuthorizerChain, Target, masters::Masters};
use crate::testing::Objects;
use machinery_schema::Tree;
use serde::Deserialize;
use std::collections::BTreeMap;

fn reader() -> Arc<Objects> {
    let objects = Objects::default();
    let group = "rbac.authorization.k8s.io";
    let rules = r#"{"rules":[{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"]}]}"#;
    objects.put(group, "clusterroles", "", "view", rules);
    objects.put(group, "roles", "a", "edit", &rules.replace("get", "patch"));
    let bind = |kind: &str, name: &str, subject: &str| {
        format!(r#"{{"roleRef":{{"kind":"{kind}","name":"{name}"}},"subjects":[{subject}]}}"#)
    };
    objects.put(
        group,
        "clusterrolebindings",
        "",
        "viewers",
        &bind("ClusterRole", "view", r#"{"kind":"Group","name":"dev"}"#),
    );
    objects.put(
        group,
        "clusterrolebindings",
        "",
        "lost",
        &bind("ClusterRole", "gone", r#"{"kind":"User","name":"joe"}"#),
    );
    objects.put(
        group,
        "rolebindings",
        "a",
        "editors",
        &bind("Role", "edit", r#"{"kind":"ServiceAccount","name":"sa"}"#),
    );
    Arc::new(objects)
}

fn ask(rbac: &RbacAuthorizer, user: &UserInfo, verb: &str, namespace: &str) -> Decision {
    let target = ResourceTarget {
        version: "v1",
        resource: "pods",
        namespace,
        ..ResourceTarget::default()
    };
    let attributes = Attributes {
        user,
        verb,
        target: Target::Resource(target),
    };
    crate::testing::block_on(rbac.authorize(&attributes))
}

#[test]
fn bindings_decide_and_explain() {
    let reader = reader();
    let rbac = RbacAuthorizer::new(reader);
    let dev = UserInfo::named("jane", ["dev"]);
    let decision = ask(&rbac, &dev, "get", "b");
    assert!(decision.is_allowed());
    assert_eq!(
        decision.reason().to_string(),
        r#"RBAC: allowed by ClusterRoleBinding "viewers" of ClusterRole "view" to Group "dev""#
    );
    let account = UserInfo::service_account("a", "sa");
    let decision = ask(&rbac, &account, "patch", "a");
    assert_eq!(
        decision.reason().to_string(),
        r#"RBAC: allowed by RoleBinding "editors/a" of Role "edit" to ServiceAccount "sa/a""#
    );
    assert!(!ask(&rbac, &account, "patch", "b").is_allowed());
    let joe = UserInfo::named("joe", ["x"]);
    assert_eq!(
        ask(&rbac, &joe, "get", "a").reason().to_string(),
        r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#
    );
}

#[test]
fn a_change_counts_at_once() {
    let reader = reader();
    let rbac = RbacAuthorizer::new(Arc::clone(&reader) as Arc<dyn ObjectReader>);
    let dev = UserInfo::named("jane", ["dev"]);
    assert!(!ask(&rbac, &dev, "delete", "a").is_allowed());
    let rules = r#"{"rules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]}"#;
    reader.put("rbac.authorization.k8s.io", "clusterroles", "", "view", rules);
    assert!(ask(&rbac, &dev, "delete", "a").is_allowed());
}

#[derive(Deserialize)]
struct GrantCases {
    roles: BTreeMap<String, serde_json::Value>,
    bindings: BTreeMap<String, String>,
    cases: Vec<GrantCase>,
}

#[derive(Deserialize)]
struct GrantCase {
    name: String,
    user: Author,
    #[serde(default = "cluster_roles")]
    resource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    at: String,
    old: Option<serde_json::Value>,
    new: serde_json::Value,
    #[serde(default)]
    why: String,
}

#[derive(Deserialize)]
struct Author {
    name: String,
    #[serde(default)]
    groups: Vec<String>,
}

fn cluster_roles() -> String {
    "clusterroles".to_owned()
}

impl GrantCase {
    fn run(&self, rbac: &RbacAuthorizer, chain: &AuthorizerChain) -> String {
        let tree = |value: &serde_json::Value| Tree::from_json(&value.to_string()).unwrap();
        let (old, new) = (self.old.as_ref().map(tree), tree(&self.new));
        let change = escalation::GrantChange {
            old: old.as_ref(),
            new: &new,
        };
        let target = escalation::GrantTarget {
            resource: &self.resource,
            namespace: &self.namespace,
            name: &self.at,
        };
        let user = UserInfo::named(&self.user.name, self.user.groups.iter().map(String::as_str));
        let check = escalation::check(rbac, chain, &user, target, change);
        match crate::testing::block_on(check).unwrap() {
            escalation::GrantCheck::Allowed => String::new(),
            escalation::GrantCheck::Refused(why) => why,
            escalation::GrantCheck::RoleMissing(role) => format!("{} {:?} not found", role.kind, role.name),
        }
    }
}

#[test]
fn escalation_is_refused_as_upstream() {
    let table: GrantCases = crate::testing::yaml(include_str!("../../../testdata/rbac/escalation.yaml"));
    let objects = Objects::default();
    let group = "rbac.authorization.k8s.io";
    for (name, rules) in &table.roles {
        let role = serde_json::json!({ "rules": rules });
        objects.put(group, "clusterroles", "", name, &role.to_string());
    }
    for (user, role) in &table.bindings {
        let binding = serde_json::json!({"roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": user}]});
        objects.put(group, "clusterrolebindings", "", user, &binding.to_string());
    }
    let rbac = Arc::new(RbacAuthorizer::new(Arc::new(objects)));
    let chain = AuthorizerChain::new(vec![Arc::new(Masters), Arc::clone(&rbac) as Arc<dyn Authorizer>]);
    for case in &table.cases {
        assert_eq!(case.run(&rbac, &chain), case.why, "{}", case.name);
    }
}

#[test]
fn escalation_by_aggregation_needs_resources_and_paths() {
    let aggregated = Tree::from_json(r#"{"aggregationRule":{"clusterRoleSelectors":[{}]}}"#).unwrap();
    let change = escalation::GrantChange {
        old: None,
        new: &aggregated,
    };
    let all = || vec!["*".to_owned()];
    let resources = PolicyRule {
        verbs: all(),
        api_groups: all(),
        resources: all(),
        ..PolicyRule::default()
    };
    let paths = PolicyRule {
        verbs: all(),
        non_resource_urls: all(),
        ..PolicyRule::default()
    };
    let refused = Err(escalation::Escalation::Aggregates);
    assert_eq!(
        escalation::check_role(change, std::slice::from_ref(&resources)),
        refused
    );
    assert_eq!(
        escalation::check_role(change, std::slice::from_ref(&paths)),
        refused
    );
    assert_eq!(escalation::check_role(change, &[resources, paths]), Ok(()));
}

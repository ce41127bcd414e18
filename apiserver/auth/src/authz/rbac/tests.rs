use super::*;
use crate::authz::attributes::ResourceTarget;
use crate::authz::{AttributesTarget, AuthorizerChain, masters::Masters};
use machinery_schema::Tree;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

fn put(rbac: &RbacAuthorizer, resource: &str, namespace: &str, name: &str, json: &str) {
    let key = ObjectKey::new(namespace, name);
    rbac.apply(&GroupResource::new(GROUP, resource), &key, Some(json.as_bytes()));
}

fn remove(rbac: &RbacAuthorizer, resource: &str, namespace: &str, name: &str) {
    let key = ObjectKey::new(namespace, name);
    rbac.apply(&GroupResource::new(GROUP, resource), &key, None);
}

fn bind(kind: &str, name: &str, subject: &str) -> String {
    format!(r#"{{"roleRef":{{"kind":"{kind}","name":"{name}"}},"subjects":[{subject}]}}"#)
}

const DEV: &str = r#"{"kind":"Group","name":"dev"}"#;

fn rbac() -> RbacAuthorizer {
    let rbac = RbacAuthorizer::default();
    let rules = r#"{"rules":[{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"]}]}"#;
    put(&rbac, "clusterroles", "", "view", rules);
    put(&rbac, "roles", "a", "edit", &rules.replace("get", "patch"));
    let viewers = bind("ClusterRole", "view", DEV);
    put(&rbac, "clusterrolebindings", "", "viewers", &viewers);
    let lost = bind("ClusterRole", "gone", r#"{"kind":"User","name":"joe"}"#);
    put(&rbac, "clusterrolebindings", "", "lost", &lost);
    let editors = bind("Role", "edit", r#"{"kind":"ServiceAccount","name":"sa"}"#);
    put(&rbac, "rolebindings", "a", "editors", &editors);
    rbac
}

fn ask(rbac: &RbacAuthorizer, user: &UserInfo, verb: &str, namespace: &str) -> Decision {
    let target = ResourceTarget {
        version: "v1",
        resource: "pods",
        namespace,
        ..ResourceTarget::default()
    };
    let attributes = Attributes {
        asker: None,
        user,
        verb,
        target: AttributesTarget::Resource(target),
    };
    crate::testing::block_on(rbac.authorize(&attributes)).unwrap()
}

#[test]
fn bindings_decide_and_explain() {
    let rbac = rbac();
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
fn rbac_rules_name_missing_roles_once() {
    let rbac = rbac();
    let joe = UserInfo::named("joe", ["x"]);
    let rules = |namespace: &str| {
        let found = crate::testing::block_on(rbac.rules_for(&joe, namespace));
        found.error.unwrap_or_default()
    };
    let gone = r#"clusterrole.rbac.authorization.k8s.io "gone" not found"#;
    assert_eq!(rules("a"), gone);
    let user = r#"{"kind":"User","name":"joe"}"#;
    put(&rbac, "rolebindings", "a", "lost", &bind("Role", "none", user));
    put(
        &rbac,
        "rolebindings",
        "a",
        "again",
        &bind("ClusterRole", "gone", user),
    );
    let none = r#"role.rbac.authorization.k8s.io "none" not found"#;
    assert!([format!("[{gone}, {none}]"), format!("[{none}, {gone}]")].contains(&rules("a")));
    assert_eq!(rules("b"), gone);
    // However many there are, a refusal stays short.
    for at in 0..1_000 {
        put(
            &rbac,
            "rolebindings",
            "a",
            &format!("b{at}"),
            &bind("Role", &format!("r{at}"), user),
        );
    }
    assert_eq!(rules("a").matches("not found").count(), crate::MAX_AGGREGATED);
}

#[test]
fn authorizer_chain_names_reasons_and_counts_decisions() {
    let rbac = Arc::new(rbac());
    let chain = AuthorizerChain::new(vec![Arc::new(Masters), Arc::clone(&rbac) as Arc<dyn Authorizer>]);
    let decide = |user: &UserInfo| {
        let target = AttributesTarget::Path("/metrics");
        let attributes = Attributes {
            asker: None,
            user,
            verb: "get",
            target,
        };
        crate::testing::block_on(chain.authorize(&attributes)).unwrap()
    };
    let refused = decide(&UserInfo::named("joe", ["x"]));
    let words = r#"rbac: RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#;
    assert_eq!(refused.reason().to_string(), words);
    assert!(decide(&UserInfo::named("root", [UserInfo::MASTERS])).is_allowed());
    let rules = r#"{"rules":[{"verbs":["get"],"nonResourceURLs":["/metrics"]}]}"#;
    put(&rbac, "clusterroles", "", "view", rules);
    assert!(decide(&UserInfo::named("jane", ["dev"])).is_allowed());
    let counts: Vec<_> = chain
        .decisions()
        .into_iter()
        .map(|own| (own.mode, own.name, own.allowed, own.denied))
        .collect();
    assert_eq!(
        counts,
        [("RBAC", "rbac".to_owned(), 1, 0)],
        "masters are asked first and not counted"
    );
}

#[test]
fn rbac_change_counts_at_once() {
    let rbac = rbac();
    let dev = UserInfo::named("jane", ["dev"]);
    assert!(!ask(&rbac, &dev, "delete", "a").is_allowed());
    let rules = r#"{"rules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]}"#;
    put(&rbac, "clusterroles", "", "view", rules);
    assert!(ask(&rbac, &dev, "delete", "a").is_allowed());
    let others = bind("ClusterRole", "view", r#"{"kind":"Group","name":"ops"}"#);
    put(&rbac, "clusterrolebindings", "", "viewers", &others);
    assert!(!ask(&rbac, &dev, "delete", "a").is_allowed());
    let ops = UserInfo::named("jane", ["ops"]);
    assert!(ask(&rbac, &ops, "delete", "a").is_allowed());
    remove(&rbac, "clusterrolebindings", "", "viewers");
    assert!(!ask(&rbac, &ops, "delete", "a").is_allowed());
}

#[test]
fn rbac_replaced_resource_drops_removed_objects() {
    let rbac = rbac();
    let dev = UserInfo::named("jane", ["dev"]);
    assert!(ask(&rbac, &dev, "get", "a").is_allowed());
    let resource = GroupResource::new(GROUP, "clusterrolebindings");
    rbac.replace(&resource, std::iter::empty());
    assert!(!ask(&rbac, &dev, "get", "a").is_allowed());
    let account = UserInfo::service_account("a", "sa");
    assert!(ask(&rbac, &account, "patch", "a").is_allowed());
}

#[test]
fn rbac_unreadable_object_costs_only_itself() {
    let rbac = rbac();
    let dev = UserInfo::named("jane", ["dev"]);
    put(&rbac, "clusterrolebindings", "", "broken", r#"{"roleRef":7}"#);
    put(&rbac, "clusterroles", "", "broken", r#"{"rules":{}}"#);
    assert!(ask(&rbac, &dev, "get", "a").is_allowed());
    // What was readable and no longer is grants nothing any more.
    put(
        &rbac,
        "clusterrolebindings",
        "",
        "viewers",
        r#"{"subjects":"all"}"#,
    );
    assert!(!ask(&rbac, &dev, "get", "a").is_allowed());
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
    let rbac = Arc::new(RbacAuthorizer::default());
    for (name, rules) in &table.roles {
        let role = serde_json::json!({ "rules": rules });
        put(&rbac, "clusterroles", "", name, &role.to_string());
    }
    for (user, role) in &table.bindings {
        let binding = serde_json::json!({"roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": user}]});
        put(&rbac, "clusterrolebindings", "", user, &binding.to_string());
    }
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
    let check = |rules: Vec<PolicyRule>| escalation::check_role(change, &vec![rules.into()]);
    assert_eq!(check(vec![resources.clone()]), refused);
    assert_eq!(check(vec![paths.clone()]), refused);
    assert_eq!(check(vec![resources, paths]), Ok(()));
}

/// Grants visited and rules compared by one decision.
fn cost(rbac: &RbacAuthorizer, user: &UserInfo, namespace: &str) -> (usize, usize) {
    let mut grants = 0;
    rbac.0.read().visit(user, namespace, |_, _| grants += 1);
    lookup::looked_at::RULES.with(|count| count.set(0));
    assert!(!ask(rbac, user, "delete", namespace).is_allowed());
    (grants, lookup::looked_at::RULES.with(std::cell::Cell::get))
}

#[test]
fn rbac_decision_costs_what_its_user_holds() {
    const BINDINGS: usize = 5_000;
    let rbac = rbac();
    let (dev, few) = (UserInfo::named("jane", ["dev"]), UserInfo::named("few", ["x"]));
    let before = cost(&rbac, &dev, "a");
    assert_eq!(before, (1, 1));
    // 5,000 bindings of others in the cluster and in the namespace, each to a role of its own with 20 rules.
    let rule = |at: usize| format!(r#"{{"verbs":["get"],"apiGroups":[""],"resources":["pods","r{at}"]}}"#);
    let rules: Vec<String> = (0..20).map(rule).collect();
    let role = format!(r#"{{"rules":[{}]}}"#, rules.join(","));
    for at in 0..BINDINGS {
        let (name, user) = (format!("b{at}"), format!(r#"{{"kind":"User","name":"u{at}"}}"#));
        put(&rbac, "clusterroles", "", &name, &role);
        put(
            &rbac,
            "clusterrolebindings",
            "",
            &name,
            &bind("ClusterRole", &name, &user),
        );
        put(
            &rbac,
            "rolebindings",
            "a",
            &name,
            &bind("ClusterRole", &name, &user),
        );
    }
    assert_eq!(cost(&rbac, &dev, "a"), before, "others' bindings cost nothing");
    // Of 20 rules of which each speaks of pods, 20 are compared: once for the cluster, once for the namespace.
    let one = UserInfo::named("u7", ["x"]);
    assert_eq!(cost(&rbac, &one, "a"), (2, 40));
    assert_eq!(cost(&rbac, &one, "b"), (1, 20));

    // A user who holds one role by 5,000 bindings: its rules are compared for the first few, not for each.
    let subject = r#"{"kind":"User","name":"few"}"#;
    for at in 0..BINDINGS {
        put(
            &rbac,
            "rolebindings",
            "a",
            &format!("f{at}"),
            &bind("ClusterRole", "b1", subject),
        );
    }
    let (grants, compared) = cost(&rbac, &few, "a");
    assert_eq!(grants, BINDINGS);
    assert_eq!(compared, 20 * (FEW_GRANTS + 1));
    // Of a role with 5,000 rules only those of the resource are compared.
    let rules: Vec<String> = (0..BINDINGS)
        .map(|at| format!(r#"{{"verbs":["*"],"apiGroups":[""],"resources":["r{at}"]}}"#))
        .collect();
    put(
        &rbac,
        "clusterroles",
        "",
        "view",
        &format!(r#"{{"rules":[{}]}}"#, rules.join(",")),
    );
    assert_eq!(cost(&rbac, &dev, "a"), (1, 0));
}

#[test]
fn subject_that_is_named_many_times_is_granted_once() {
    let rbac = rbac();
    let subjects = vec![r#"{"kind":"User","name":"jane"}"#; 1_000].join(",");
    for binding in ["one", "two"] {
        put(
            &rbac,
            "rolebindings",
            "a",
            binding,
            &bind("Role", "edit", &subjects),
        );
    }
    let dev = UserInfo::named("joe", ["dev"; 1_000]);
    let mut of_group = 0;
    rbac.0.read().visit(&dev, "a", |_, _| of_group += 1);
    assert_eq!(of_group, 1, "a group counts once");
    let jane = UserInfo::named::<&str>("jane", []);
    let mut grants = 0;
    rbac.0.read().visit(&jane, "a", |_, _| grants += 1);
    assert_eq!((grants, rbac.held(&jane, "a").len()), (2, 1));
    let found = crate::testing::block_on(rbac.rules_for(&jane, "a"));
    assert_eq!((found.rules.len(), found.incomplete), (1, false));
    remove(&rbac, "rolebindings", "a", "one");
    assert!(ask(&rbac, &jane, "patch", "a").is_allowed());
    remove(&rbac, "rolebindings", "a", "two");
    assert!(!ask(&rbac, &jane, "patch", "a").is_allowed());
}

#[test]
fn review_lists_a_bounded_number_of_rules() {
    let rbac = rbac();
    let rules = vec![r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}"#; 20_000].join(",");
    for role in ["x", "y"] {
        put(&rbac, "roles", "a", role, &format!(r#"{{"rules":[{rules}]}}"#));
        let binding = bind("Role", role, r#"{"kind":"User","name":"jane"}"#);
        put(&rbac, "rolebindings", "a", role, &binding);
    }
    let jane = UserInfo::named::<&str>("jane", []);
    let found = crate::testing::block_on(rbac.rules_for(&jane, "a"));
    assert!(
        (5_000..20_000).contains(&found.rules.len()),
        "{}",
        found.rules.len()
    );
    let error = found.error.unwrap();
    assert!(found.incomplete && error.ends_with("there are more"), "{error}");
}

/// A binding of a namespace may name as many subjects as it has room for.
#[test]
fn rbac_subjects_take_about_what_they_were_written_with() {
    let subject = |at: usize| format!(r#"{{"kind":"ServiceAccount","name":"{at:x}","namespace":"a"}}"#);
    let subjects: Vec<String> = (0..10_000).map(subject).collect();
    let binding = bind("Role", "edit", &subjects.join(","));
    let rbac = RbacAuthorizer::default();
    let before = machinery_fuzz::resident();
    put(&rbac, "rolebindings", "a", "many", &binding);
    let taken = machinery_fuzz::resident() - before;
    assert!(
        taken <= 4 * binding.len(),
        "{taken} bytes for {} of JSON",
        binding.len()
    );
    remove(&rbac, "rolebindings", "a", "many");
    let left = machinery_fuzz::resident().saturating_sub(before);
    assert!(left < binding.len(), "{left} bytes are left");
}

/// Neither a grant beyond what its author holds, nor its refusal: no authorizer has decided whether the author may escalate.
#[test]
fn grant_that_nobody_decided_is_no_refusal() {
    let rbac = rbac();
    let chain = crate::testing::crowded();
    let user = UserInfo::named("anna", [UserInfo::AUTHENTICATED]);
    let role = Tree::from_json(
        r#"{"metadata": {"name": "a"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}"#,
    );
    let change = escalation::GrantChange {
        old: None,
        new: &role.unwrap(),
    };
    let target = escalation::GrantTarget {
        resource: "roles",
        namespace: "blue",
        name: "",
    };
    let check = escalation::check(&rbac, &chain, &user, target, change);
    assert_eq!(crate::testing::block_on(check), Err(crate::authz::Busy));
}

use super::*;
use crate::authz::attributes::ResourceTarget;
use crate::authz::{AuthorizerChain, Target, masters::Masters};
use crate::testing::Objects;

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

#[test]
fn nobody_grants_what_they_do_not_hold() {
    let rbac = Arc::new(RbacAuthorizer::new(reader()));
    let chain = AuthorizerChain::new(vec![Arc::new(Masters), Arc::clone(&rbac) as Arc<dyn Authorizer>]);
    let rule = |verb: &str| PolicyRule {
        verbs: vec![verb.to_owned()],
        api_groups: vec![String::new()],
        resources: vec!["pods".to_owned()],
        ..PolicyRule::default()
    };
    let check = |user: &UserInfo, verb: &str| {
        let target = escalation::GrantTarget {
            resource: "roles",
            namespace: "a",
            name: "new",
        };
        crate::testing::block_on(escalation::may_hold_role(
            &rbac,
            &chain,
            user,
            target,
            &[rule(verb)],
        ))
        .unwrap()
    };
    let dev = UserInfo::named("jane", ["dev"]);
    assert_eq!(check(&dev, "get"), escalation::GrantCheck::Allowed);
    assert_eq!(
        check(&UserInfo::named("root", [UserInfo::MASTERS]), "delete"),
        escalation::GrantCheck::Allowed
    );
    let escalation::GrantCheck::Refused(why) = check(&dev, "delete") else {
        panic!("she may not")
    };
    assert_eq!(
        why,
        "user \"jane\" (groups=[\"dev\"]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\"]}"
    );
}

//! Secrets that pods may name: cases of upstream's `serviceaccount/admission_test.go`.

use super::*;
use crate::plugins::tests::{Objects, block_on};
use machinery_meta::UserInfo;

const LIMITED: &str = r#"{"metadata":{"name":"lim","annotations":{"kubernetes.io/enforce-mountable-secrets":"true"}},
    "secrets":[{"name":"foo"}],"imagePullSecrets":[{"name":"pull"}]}"#;

fn plugin() -> ServiceAccount {
    let off = r#"{"metadata":{"annotations":{"kubernetes.io/enforce-mountable-secrets":"false"}}}"#;
    let odd = r#"{"metadata":{"annotations":{"kubernetes.io/enforce-mountable-secrets":"yes"}}}"#;
    let objects = Objects::default()
        .with("serviceaccounts", "a", "lim", LIMITED)
        .with("serviceaccounts", "a", "off", off)
        .with("serviceaccounts", "a", "odd", odd)
        .with("serviceaccounts", "a", "free", "{}");
    let reader: Arc<dyn ObjectReader> = Arc::new(objects);
    ServiceAccount::new(&reader, Arc::new(|| 0))
}

/// Compares the refusal of a pod with this spec, by `validate` and, on create, by `mutate`, with the expected one.
#[track_caller]
fn check(operation: Operation, metadata: &str, spec: &str, expected: Option<&str>) {
    let user = UserInfo::named("jane", ["dev"]);
    let request = Request {
        user: &user,
        operation,
        group: "",
        kind: "Pod",
        resource: "pods",
        subresource: if operation == Operation::Create {
            ""
        } else {
            "ephemeralcontainers"
        },
        namespace: "a",
        name: "p",
        dry_run: false,
        remarks: &crate::Unheard,
        host: None,
        reinvocation: None,
    };
    let plugin = plugin();
    assert!(plugin.handles(&request));
    let pod = format!(r#"{{"metadata":{{"name":"p"{metadata}}},"spec":{{{spec}}}}}"#);
    let mut pod = Tree::from_json(&pod).expect(&pod);
    let complete = pod.clone();
    let text = |result: Result<(), AdmissionError>| result.err().map(|error| error.to_string());
    let found = text(block_on(plugin.validate(&request, Some(&complete), None)));
    assert_eq!(found.as_deref(), expected, "validate {spec}");
    if operation == Operation::Create {
        let found = text(block_on(plugin.mutate(&request, &mut pod, None)));
        assert_eq!(found.as_deref(), expected, "mutate {spec}");
    }
}

/// The members of a spec that name a secret, and how a refusal names them.
fn references(secret: &str) -> [(String, String); 5] {
    let env = format!(
        r#""name":"c","env":[{{"name":"E","valueFrom":{{"secretKeyRef":{{"name":"{secret}","key":"k"}}}}}}]"#
    );
    let env_from = format!(r#""name":"c","envFrom":[{{"secretRef":{{"name":"{secret}"}}}}]"#);
    let volume = format!(r#""volumes":[{{"name":"v","secret":{{"secretName":"{secret}"}}}}]"#);
    let tail = format!("referencing secret.secretName=\"{secret}\"");
    [
        (volume, format!("volume with secret.secretName=\"{secret}\"")),
        (
            format!(r#""containers":[{{{env}}}]"#),
            format!("container c with envVar E {tail}"),
        ),
        (
            format!(r#""containers":[{{{env_from}}}]"#),
            format!("container c with envFrom {tail}"),
        ),
        (
            format!(r#""initContainers":[{{{env}}}]"#),
            format!("init container c with envVar E {tail}"),
        ),
        (
            format!(r#""initContainers":[{{{env_from}}}]"#),
            format!("init container c with envFrom {tail}"),
        ),
    ]
}

fn of(account: &str, spec: &str) -> String {
    format!(r#""serviceAccountName":"{account}",{spec}"#)
}

#[test]
fn service_account_limits_the_secrets_of_its_pods() {
    for (spec, subject) in references("bar") {
        let refused =
            format!("{subject} is not allowed because service account lim does not reference that secret");
        check(Operation::Create, "", &of("lim", &spec), Some(&refused));
        for account in ["free", "off", "odd"] {
            check(Operation::Create, "", &of(account, &spec), None);
        }
    }
    for (spec, _) in references("foo") {
        check(Operation::Create, "", &of("lim", &spec), None);
    }
}

#[test]
fn service_account_limits_pull_secrets_to_its_own() {
    let pull = |name: &str| {
        of(
            "lim",
            &format!(r#""imagePullSecrets":[{{"name":"pull"}},{{"name":"{name}"}}]"#),
        )
    };
    check(Operation::Create, "", &pull("pull"), None);
    let refused = "imagePullSecrets[1].name=\"foo\" is not allowed because service account lim does not reference that imagePullSecret";
    check(Operation::Create, "", &pull("foo"), Some(refused));
}

#[test]
fn service_account_limits_ephemeral_containers() {
    let from = |secret: &str| {
        let container = format!(r#"{{"name":"c","envFrom":[{{"secretRef":{{"name":"{secret}"}}}}]}}"#);
        of("lim", &format!(r#""ephemeralContainers":[{container}]"#))
    };
    check(Operation::Update, "", &from("foo"), None);
    let refused = "ephemeral container c with envFrom referencing secret.secretName=\"bar\" is not allowed because service account lim does not reference that secret";
    check(Operation::Update, "", &from("bar"), Some(refused));
    // What was there before is not looked at again.
    let volume = of("lim", r#""volumes":[{"name":"v","secret":{"secretName":"bar"}}]"#);
    check(Operation::Update, "", &volume, None);
}

#[test]
fn service_account_keeps_mirror_pods_from_secrets() {
    let mirror = r#","annotations":{"kubernetes.io/config.mirror":"x"}"#;
    let secrets = "a mirror pod may not reference secrets";
    check(Operation::Create, mirror, r#""containers":[{"name":"c"}]"#, None);
    for (spec, _) in references("bar") {
        check(Operation::Create, mirror, &spec, Some(secrets));
    }
    for spec in [
        r#""imagePullSecrets":[{"name":"s"}]"#,
        r#""volumes":[{"name":"v","projected":{"sources":[{"secret":{"name":"s"}}]}}]"#,
        r#""volumes":[{"name":"v","csi":{"driver":"d","nodePublishSecretRef":{"name":"s"}}}]"#,
        r#""volumes":[{"name":"v","azureFile":{"secretName":"s","shareName":"s"}}]"#,
        r#""ephemeralContainers":[{"name":"c","envFrom":[{"secretRef":{"name":"s"}}]}]"#,
    ] {
        check(Operation::Create, mirror, spec, Some(secrets));
    }
    let token = r#""volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}}]"#;
    let refused = "a mirror pod may not use ServiceAccountToken volume projections";
    check(Operation::Create, mirror, token, Some(refused));
    let refused = "a mirror pod may not reference service accounts";
    check(
        Operation::Create,
        mirror,
        &of("free", r#""containers":[]"#),
        Some(refused),
    );
}

//! Owners of fields, by upstream's kubectl: what it shows of them, how an object moves from client-side to server-side apply,
//! and how Argo CD and Flux take objects over (both patch `metadata.managedFields` before they apply with a manager of their
//! own, see `k8s.io/client-go/util/csaupgrade` and `fluxcd/pkg/ssa`).

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use serde_json::{Value, json};
use support::Server;

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web, tier: front}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'example/web:1', ports: [{containerPort: 80}]}]}
";

fn object(server: &Server) -> Value {
    let shown = server.kubectl(&["get", "deployment", "web", "-o", "json", "--show-managed-fields"]);
    serde_json::from_str(&shown).expect("JSON")
}

/// `manager operation subresource` of each entry.
fn owners(server: &Server) -> Vec<String> {
    let object = object(server);
    let entries = object["metadata"]["managedFields"].as_array().cloned();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    let shown = |entry: &Value| {
        let words = ["manager", "operation", "subresource"].map(|name| text(entry, name));
        words.join(" ").trim().to_owned()
    };
    let mut owners: Vec<String> = entries.unwrap_or_default().iter().map(shown).collect();
    owners.sort();
    owners
}

/// A deployment applied by the client that others have written to since: a scale, finalizers, an annotation.
fn applied_by_the_client(test: &str) -> Option<Server> {
    let server = Server::start_with_or_skip(test, &["--controllers=-*"])?;
    server.feed(&["apply"], WEB);
    server.kubectl(&["scale", "deployment", "web", "--replicas=5"]);
    let other = |manager: &str, patch: Value| {
        let manager = format!("--field-manager={manager}");
        server.kubectl(&[
            "patch",
            "deployment",
            "web",
            "--type=merge",
            &manager,
            "-p",
            &patch.to_string(),
        ]);
    };
    other(
        "guard",
        json!({"metadata": {"finalizers": ["example.com/guard"]}}),
    );
    other(
        "roller",
        json!({"metadata": {"annotations": {"example.com/revision": "7"}}}),
    );
    Some(server)
}

/// Fields of other managers are still there; of the configuration only the new ones.
#[track_caller]
fn others_keep_theirs(server: &Server) {
    let object = object(server);
    assert_eq!(object["spec"]["replicas"], 5);
    assert_eq!(object["metadata"]["finalizers"], json!(["example.com/guard"]));
    assert_eq!(object["metadata"]["annotations"]["example.com/revision"], "7");
    assert_eq!(
        object["metadata"]["labels"],
        json!({"app": "web"}),
        "a label was left out"
    );
}

fn without_label() -> String {
    WEB.replace(", tier: front", "")
}

#[test]
fn owners_are_shown_by_kubectl() {
    let Some(server) = Server::start_with_or_skip("owners_are_shown_by_kubectl", &["--controllers=-*"])
    else {
        return;
    };
    server.kubectl(&["create", "configmap", "settings", "--from-literal=color=blue"]);
    let shown = server.kubectl(&[
        "get",
        "configmap",
        "settings",
        "-o",
        "yaml",
        "--show-managed-fields",
    ]);
    assert!(
        shown.contains("manager: kubectl-create") && shown.contains("f:color: {}"),
        "{shown}"
    );
    let hidden = server.kubectl(&["get", "configmap", "settings", "-o", "yaml"]);
    assert!(!hidden.contains("managedFields"), "{hidden}");
    let output = server
        .command(&["edit", "configmap", "settings"])
        .env("KUBE_EDITOR", "sed -i s/blue/green/")
        .output()
        .expect("kubectl starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let managers = "jsonpath={.metadata.managedFields[*].manager} {.data.color}";
    assert_eq!(
        server.kubectl(&[
            "get",
            "configmap",
            "settings",
            "-o",
            managers,
            "--show-managed-fields"
        ]),
        "kubectl-create kubectl-edit green"
    );
    server.feed(&["apply"], WEB);
    let last = server.kubectl(&["apply", "view-last-applied", "deployment", "web"]);
    assert!(last.contains("image: example/web:1"), "{last}");
    assert_eq!(owners(&server), ["kubectl-client-side-apply Update"]);
}

#[test]
fn owners_move_from_client_side_to_server_side_apply() {
    let Some(server) = applied_by_the_client("owners_move_from_client_side_to_server_side_apply") else {
        return;
    };
    assert_eq!(
        owners(&server),
        [
            "guard Update",
            "kubectl Update scale",
            "kubectl-client-side-apply Update",
            "roller Update"
        ]
    );
    server.feed(&["apply", "--server-side"], WEB);
    server.feed(&["apply", "--server-side"], &without_label());
    others_keep_theirs(&server);
    assert_eq!(
        owners(&server),
        [
            "guard Update",
            "kubectl Apply",
            "kubectl Update scale",
            "kubectl-last-applied Apply",
            "roller Update"
        ]
    );
    let file = server.dir.path().join("scaled.yaml");
    std::fs::write(
        &file,
        WEB.replace("spec:\n  selector", "spec:\n  replicas: 1\n  selector"),
    )
    .expect("written");
    let refused = server.refused(&["apply", "--server-side", "-f", &file.display().to_string()]);
    assert!(
        refused
            .contains("conflict with \"kubectl\" with subresource \"scale\" using apps/v1: .spec.replicas"),
        "{refused}"
    );
}

/// Gives the entries of kubectl's client-side apply to a manager that applies, as csaupgrade and Flux do: one JSON patch of
/// the whole record, bound to the revision it was read at.
fn take_over(server: &Server, manager: &str) {
    let object = object(server);
    let mut entries = object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .expect("entries");
    for entry in &mut entries {
        if entry["manager"] == "kubectl-client-side-apply" {
            entry["manager"] = manager.into();
            entry["operation"] = "Apply".into();
        }
    }
    let patch = json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": object["metadata"]["resourceVersion"]},
    ]);
    server.kubectl(&[
        "patch",
        "deployment",
        "web",
        "--type=json",
        "-p",
        &patch.to_string(),
    ]);
}

fn apply_as(server: &Server, manager: &str, manifest: &str) {
    let manager = format!("--field-manager={manager}");
    server.feed(
        &["apply", "--server-side", "--force-conflicts", &manager],
        manifest,
    );
}

#[test]
fn owners_are_taken_over_by_argo_cd() {
    let Some(server) = applied_by_the_client("owners_are_taken_over_by_argo_cd") else {
        return;
    };
    take_over(&server, "argocd-controller");
    apply_as(&server, "argocd-controller", &without_label());
    others_keep_theirs(&server);
    assert_eq!(
        owners(&server),
        [
            "argocd-controller Apply",
            "guard Update",
            "kubectl Update scale",
            "roller Update"
        ]
    );
    // Its applies of the same write nothing, so that nothing is ever out of sync.
    let revision = object(&server)["metadata"]["resourceVersion"].clone();
    apply_as(&server, "argocd-controller", &without_label());
    assert_eq!(object(&server)["metadata"]["resourceVersion"], revision);
}

#[test]
fn owners_are_taken_over_by_flux() {
    let Some(server) = applied_by_the_client("owners_are_taken_over_by_flux") else {
        return;
    };
    let annotation = "kubectl.kubernetes.io~1last-applied-configuration";
    let patch = json!([{"op": "remove", "path": format!("/metadata/annotations/{annotation}")}]);
    server.kubectl(&[
        "patch",
        "deployment",
        "web",
        "--type=json",
        "-p",
        &patch.to_string(),
    ]);
    take_over(&server, "kustomize-controller");
    // A dry run shows Flux what would drift; then it applies.
    let manager = "--field-manager=kustomize-controller";
    let dry = [
        "apply",
        "--server-side",
        "--force-conflicts",
        manager,
        "--dry-run=server",
    ];
    server.feed(&dry, &without_label());
    assert_eq!(object(&server)["metadata"]["labels"]["tier"], "front");
    apply_as(&server, "kustomize-controller", &without_label());
    others_keep_theirs(&server);
    assert!(owners(&server).contains(&"kustomize-controller Apply".to_owned()));
    assert!(!owners(&server).contains(&"kubectl-client-side-apply Update".to_owned()));
}

//! Commands of a user: upstream's kubectl against the built binary, without a node.

mod support;

use support::Server;

/// Every scenario runs on each backend: users see no difference.
macro_rules! on_every_backend {
    ($($story:ident),+ $(,)?) => {
        mod in_the_data_directory {
            $(#[test]
            fn $story() {
                if let Some(server) = crate::support::Server::start_or_skip(stringify!($story)) {
                    super::$story(server);
                }
            })+
        }
        mod in_etcd {
            $(#[test]
            fn $story() {
                if let Some(server) = crate::support::Server::start_on_etcd_or_skip(stringify!($story)) {
                    super::$story(server);
                }
            })+
        }
    };
}

on_every_backend!(
    objects_are_created_read_and_changed,
    a_deployment_is_applied_scaled_and_rolled,
    a_server_says_what_it_serves,
    a_custom_kind_behaves_like_a_built_in_one,
    two_managers_apply_one_object,
    applying_moves_from_the_client_to_the_server,
    nothing_acknowledged_is_lost_by_a_kill,
    bad_input_gets_upstreams_answer,
);

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'example/web:1', ports: [{containerPort: 80}]}]}
";

fn objects_are_created_read_and_changed(server: Server) {
    server.kubectl(&["create", "namespace", "shop"]);
    server.kubectl(&[
        "-n",
        "shop",
        "create",
        "configmap",
        "settings",
        "--from-literal=color=blue",
    ]);
    let get = |path: &str| {
        server.kubectl(&[
            "-n",
            "shop",
            "get",
            "configmap",
            "settings",
            "-o",
            &format!("jsonpath={path}"),
        ])
    };
    assert_eq!(get("{.data.color}"), "blue");
    server.kubectl(&["-n", "shop", "label", "configmap", "settings", "tier=front"]);
    server.kubectl(&["-n", "shop", "annotate", "configmap", "settings", "note=mine"]);
    server.kubectl(&[
        "-n",
        "shop",
        "patch",
        "configmap",
        "settings",
        "-p",
        r#"{"data":{"size":"9"}}"#,
    ]);
    assert_eq!(
        get("{.metadata.labels.tier}/{.metadata.annotations.note}/{.data.size}"),
        "front/mine/9"
    );
    let merge = [
        "-n",
        "shop",
        "patch",
        "configmap",
        "settings",
        "--type=merge",
        "-p",
        r#"{"data":{"size":null}}"#,
    ];
    server.kubectl(&merge);
    let json = r#"[{"op":"replace","path":"/data/color","value":"red"}]"#;
    server.kubectl(&[
        "-n",
        "shop",
        "patch",
        "configmap",
        "settings",
        "--type=json",
        "-p",
        json,
    ]);
    assert_eq!(get("{.data}"), r#"{"color":"red"}"#);
    assert!(
        server
            .kubectl(&["-n", "shop", "get", "configmap", "-l", "tier=front", "-o", "name"])
            .contains("settings")
    );
    assert!(
        server
            .kubectl(&["-n", "shop", "describe", "configmap", "settings"])
            .contains("red")
    );
    assert!(
        server
            .kubectl(&["-n", "shop", "get", "configmap", "settings"])
            .contains("DATA")
    );
    assert!(
        server
            .kubectl(&["-n", "shop", "get", "configmap", "settings", "-o", "yaml"])
            .contains("color: red")
    );
    server.kubectl(&["-n", "shop", "delete", "configmap", "settings"]);
    let complaint = server.refused(&["-n", "shop", "get", "configmap", "settings"]);
    assert_eq!(
        complaint.trim(),
        r#"Error from server (NotFound): configmaps "settings" not found"#
    );
}

fn a_deployment_is_applied_scaled_and_rolled(server: Server) {
    server.feed(&["apply"], WEB);
    assert!(server.feed(&["apply"], WEB).contains("unchanged"));
    let pods = || {
        server
            .kubectl(&["get", "pods", "-l", "app=web", "-o", "name"])
            .lines()
            .count()
    };
    server.until("three pods", || pods() == 3);
    server.kubectl(&["scale", "deployment", "web", "--replicas=5"]);
    server.until("five pods", || pods() == 5);
    server.kubectl(&["rollout", "restart", "deployment", "web"]);
    server.until("a second revision", || {
        server
            .kubectl(&["rollout", "history", "deployment", "web"])
            .contains("\n2 ")
    });
    server.kubectl(&["expose", "deployment", "web", "--port=80"]);
    let address = server.kubectl(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]);
    assert!(address.starts_with("10.96."), "{address}");
    assert!(
        server
            .kubectl(&["describe", "deployment", "web"])
            .contains("RollingUpdateStrategy")
    );
    server.kubectl(&["delete", "deployment", "web"]);
    server.until("no pods", || pods() == 0);
}

fn a_server_says_what_it_serves(server: Server) {
    let resources = server.kubectl(&["api-resources"]);
    for kind in [
        "deployments",
        "cronjobs",
        "customresourcedefinitions",
        "leases",
        "networkpolicies",
    ] {
        assert!(resources.contains(kind), "{kind} is not listed");
    }
    assert!(
        server
            .kubectl(&["explain", "pod.spec.containers"])
            .contains("FIELDS")
    );
    assert!(server.kubectl(&["version"]).contains("Server Version: v1.37"));
    assert_eq!(server.kubectl(&["auth", "can-i", "create", "pods"]).trim(), "yes");
    let shown = "custom-columns=NAME:.metadata.name,HEALTHY:.conditions[0].status";
    let parts = server.kubectl(&["get", "componentstatuses", "--no-headers", "-o", shown]);
    let parts: Vec<&str> = parts.split_whitespace().collect();
    let expected = [
        "controller-manager",
        "True",
        "etcd-0",
        "True",
        "scheduler",
        "True",
    ];
    assert_eq!(parts, expected);
    assert!(server.kubectl(&["get", "cs", "etcd-0"]).contains("Healthy"));
    assert!(server.refused(&["get", "cs", "nobody"]).contains("NotFound"));
    let token = server.kubectl(&["create", "token", "default"]);
    assert_eq!(token.trim().split('.').count(), 3, "a JWT has three parts");
    let account = "--as=system:serviceaccount:default:default";
    let refused = server.refused(&["get", "secrets", account]);
    assert!(
        refused.contains("Forbidden") && refused.contains("cannot list resource \"secrets\""),
        "{refused}"
    );
}

const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.knarr.test}
spec:
  group: knarr.test
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, shortNames: [bo]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.crew, statusReplicasPath: .status.crew}}
    additionalPrinterColumns: [{name: Oars, type: integer, jsonPath: .spec.oars}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [oars]
            properties:
              oars: {type: integer, minimum: 2}
              sail: {type: string, default: square}
              crew: {type: integer}
          status: {type: object, properties: {afloat: {type: boolean}, crew: {type: integer}}}
";

fn a_custom_kind_behaves_like_a_built_in_one(server: Server) {
    server.feed(&["apply"], CRD);
    // Retried because a definition has no conditions for a few milliseconds after its create, here as in upstream
    // (`"conditions":null`), and kubectl takes that for an error.
    let wait = [
        "wait",
        "--for=condition=Established",
        "crd/boats.knarr.test",
        "--timeout=60s",
    ];
    server.until("an established kind", || {
        server.try_kubectl(&wait).status.success()
    });
    let boat = "
apiVersion: knarr.test/v1
kind: Boat
metadata: {name: ormen}
spec: {oars: 34}
";
    server.feed(&["apply"], boat);
    let spec = |path: &str| server.kubectl(&["get", "boat", "ormen", "-o", &format!("jsonpath={path}")]);
    assert_eq!(spec("{.spec.sail}"), "square");
    let changed = server.feed(&["apply"], &boat.replace("oars: 34", "oars: 32, sail: lateen"));
    assert!(changed.contains("configured"), "{changed}");
    assert_eq!(spec("{.spec.oars} {.spec.sail}"), "32 lateen");
    server.feed(&["apply"], boat);
    assert_eq!(
        spec("{.spec.oars} {.spec.sail}"),
        "34 square",
        "what is left out goes back"
    );
    server.kubectl(&["scale", "boat", "ormen", "--replicas=68"]);
    assert_eq!(spec("{.spec.crew}"), "68", "from no number at all");
    let listed = server.kubectl(&["get", "bo"]);
    assert!(listed.contains("OARS") && listed.contains("34"), "{listed}");
    let refused = server.refused(&[
        "patch",
        "boat",
        "ormen",
        "--type=merge",
        "-p",
        r#"{"spec":{"oars":1}}"#,
    ]);
    assert!(
        refused
            .contains("spec.oars: Invalid value: 1: spec.oars in body should be greater than or equal to 2"),
        "{refused}"
    );
    server.kubectl(&["delete", "crd", "boats.knarr.test"]);
    // kubectl requests a kind it remembers; upstream's server gives it the same sentence.
    let gone = server.refused(&["get", "boats"]);
    assert_eq!(
        gone.trim(),
        "Error from server (NotFound): Unable to list \"knarr.test/v1, Resource=boats\": the server could not find the requested resource (get boats.knarr.test)"
    );
}

fn two_managers_apply_one_object(server: Server) {
    let apply = ["apply", "--server-side", "--field-manager=team-a"];
    server.feed(&apply, WEB);
    server.feed(&apply, WEB);
    let other = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {tier: front}}
spec: {replicas: 5}
";
    let file = server.dir.path().join("other.yaml");
    std::fs::write(&file, other).expect("written");
    let file = file.display().to_string();
    let second = ["apply", "--server-side", "--field-manager=team-b", "-f", &file];
    let refused = server.refused(&second);
    assert!(
        refused.contains("Apply failed with 1 conflict: conflict with \"team-a\"")
            && refused.contains(".spec.replicas"),
        "{refused}"
    );
    let forced = [&second[..], &["--force-conflicts"]].concat();
    server.kubectl(&forced);
    let get = |path: &str| server.kubectl(&["get", "deployment", "web", "-o", &format!("jsonpath={path}")]);
    assert_eq!(get("{.spec.replicas} {.metadata.labels.tier}"), "5 front");
    // What a manager no longer says goes, and what others say stays.
    server.feed(
        &apply,
        &WEB.replace(", labels: {app: web}}\nspec:", "}\nspec:")
            .replace("  replicas: 3\n", ""),
    );
    assert_eq!(
        get("{.spec.replicas} {.metadata.labels.tier} [{.metadata.labels.app}]"),
        "5 front []"
    );
}

fn applying_moves_from_the_client_to_the_server(server: Server) {
    let manifest = "
apiVersion: v1
kind: ConfigMap
metadata: {name: moving}
data: {a: first, b: first}
";
    server.feed(&["apply"], manifest);
    let data = || server.kubectl(&["get", "configmap", "moving", "-o", "jsonpath={.data}"]);
    server.feed(
        &["apply", "--server-side"],
        &manifest.replace("a: first", "a: second"),
    );
    assert_eq!(data(), r#"{"a":"second","b":"first"}"#, "no conflict with itself");
    server.feed(
        &["apply", "--server-side"],
        &manifest.replace("a: first, b: first", "a: third"),
    );
    assert_eq!(
        data(),
        r#"{"a":"third"}"#,
        "what the client applied is the server's to remove"
    );
    server.kubectl(&[
        "patch",
        "configmap",
        "moving",
        "--type=merge",
        "-p",
        r#"{"metadata":{"managedFields":[{}]}}"#,
    ]);
    let owners = "jsonpath={.metadata.managedFields}";
    assert_eq!(server.kubectl(&["get", "configmap", "moving", "-o", owners]), "");
}

fn nothing_acknowledged_is_lost_by_a_kill(mut server: Server) {
    for round in 0..3 {
        for number in 0..10 {
            let name = format!("kept-{round}-{number}");
            server.kubectl(&["create", "configmap", &name, "--from-literal=a=b"]);
        }
        server.kill_and_restart();
        let names = server.kubectl(&["get", "configmaps", "-o", "name"]);
        let kept = names.lines().filter(|name| name.contains("/kept-")).count();
        assert_eq!(kept, (round + 1) * 10);
    }
}

fn bad_input_gets_upstreams_answer(server: Server) {
    let refused = server.refused(&["create", "deployment", "Bad_Name", "--image=x"]);
    assert!(
        refused.contains("a lowercase RFC 1123 subdomain must consist of"),
        "{refused}"
    );
    let file = server.dir.path().join("unknown.yaml");
    std::fs::write(&file, WEB.replace("replicas: 3", "replicass: 3")).expect("written");
    let refused = server.refused(&["create", "-f", &file.display().to_string()]);
    assert!(
        refused.contains("strict decoding error: unknown field \"spec.replicass\""),
        "{refused}"
    );
    let refused = server.refused(&["get", "pods", "-l", "a in"]);
    assert!(
        refused.contains("unable to parse requirement") || refused.contains("expected"),
        "{refused}"
    );
}

//! Cost of the record of owners in a create and in a patch, beside decoding the pod and filling its defaults: `cargo
//! bench -p apiserver-registry`.
//!
//! Times are the thread's time on a processor, so that other work on the machine matters less.
#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use apiserver_registry::managed_fields::{Subject, Writer, track};
use apiserver_registry::{ObjectPart, ResourceRow, kinds};
use machinery_schema::{Step, Strictness, Tree, apply_defaults, decode_json, encode_json};
use std::hint::black_box;

const ROUNDS: u32 = 500;
const REPEATS: u32 = 15;

fn main() {
    let rows = kinds::built_in_rows();
    let pods = rows
        .iter()
        .find(|row| row.plural == "pods")
        .expect("pods are built in");
    let text = pod();
    println!("pod of {} bytes", text.len());
    let nothing = Tree::new(&pods.schema, pods.ty);
    let fresh = decoded(pods, &text);
    measure("decode, default", || drop(black_box(decoded(pods, &text))));
    let tracked = |live: &Tree, object: &Tree, part: ObjectPart, manager: &str| {
        let writer = Writer {
            manager: manager.to_owned(),
            now: "2026-01-01T00:00:00Z".to_owned(),
        };
        let mut object = object.clone();
        track(Subject::part(pods, part, &()), &writer, live, &mut object).expect("few steps");
        object
    };
    measure("copy", || drop(black_box(fresh.clone())));
    measure("create: copy, record", || {
        drop(black_box(tracked(&nothing, &fresh, ObjectPart::Main, "kubectl")));
    });
    let mut live = tracked(&nothing, &fresh, ObjectPart::Main, "kubectl");
    live.set_str(&["metadata", "uid"], "u");
    println!(
        "record of {} bytes",
        live.at(&["metadata", "managedFields"])
            .map_or(0, |own| own.to_json().len())
    );
    let noted = annotated(&live, "a");
    measure("first patch by another manager: copy, record", || {
        drop(black_box(tracked(&live, &noted, ObjectPart::Main, "controller")));
    });
    measure("first patch by the creator: copy, record", || {
        drop(black_box(tracked(&live, &noted, ObjectPart::Main, "kubectl")));
    });
    let live = tracked(&live, &noted, ObjectPart::Main, "controller");
    let again = annotated(&live, "b");
    measure("next patch: copy, record", || {
        drop(black_box(tracked(&live, &again, ObjectPart::Main, "controller")));
    });
    let mut ready = live.clone();
    ready.set_str(&["status", "phase"], "Running");
    ready.set_str(&["status", "podIP"], "10.0.0.1");
    measure("first status: copy, record", || {
        drop(black_box(tracked(&live, &ready, ObjectPart::Status, "kubelet")));
    });
    let mut out = Vec::new();
    encode_json(&live, &mut out);
    let stored = String::from_utf8(out).expect("JSON");
    measure("decode with the record", || {
        drop(black_box(decoded(pods, &stored)))
    });
}

fn decoded(row: &ResourceRow, text: &str) -> Tree {
    let decoded = decode_json(&row.schema, row.ty, text.as_bytes(), Strictness::Report);
    let mut tree = decoded.expect("it is a pod").tree;
    apply_defaults(&mut tree);
    row.strategy.defaults(&mut tree);
    tree
}

fn annotated(live: &Tree, value: &str) -> Tree {
    let mut object = live.clone();
    let path = ["metadata", "annotations", "example.com/note"].map(Step::Name);
    object.set(&path, value);
    object
}

/// The best of some repeats: the one that was disturbed least.
fn measure(what: &str, mut run: impl FnMut()) {
    let mut best = u64::MAX;
    for _ in 0..REPEATS {
        let start = on_processor();
        for _ in 0..ROUNDS {
            run();
        }
        best = best.min(on_processor() - start);
    }
    let nanos = best / u64::from(ROUNDS);
    println!("{what}: {}.{:02} µs", nanos / 1000, nanos % 1000 / 10);
}

/// Nanoseconds this thread has run so far.
fn on_processor() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux says");
    text.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .expect("its first number is the time")
}

/// A pod of about 1.5 KB, as a Deployment's controller would create it.
fn pod() -> String {
    let mut text = String::from(
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-6d4b75cb6d-x7x9z","generateName":"web-6d4b75cb6d-","namespace":"default","labels":{"app":"web","pod-template-hash":"6d4b75cb6d","tier":"frontend"},"annotations":{"kubernetes.io/description":"A \"web\" server\nof ours","checksum/config":"01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-6d4b75cb6d","uid":"5c9f1d8c-0c55-4f6b-9d2c-6a1f7f1f9d11","controller":true,"blockOwnerDeletion":true}]},"spec":{"containers":[{"name":"web","image":"registry.example.com/web:1.27.3","args":["--port=8080","--log-level=info"],"ports":[{"name":"http","containerPort":8080},{"name":"metrics","containerPort":9090,"protocol":"TCP"}],"env":[{"name":"POD_NAME","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"MODE","value":"production"}],"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},"livenessProbe":{"httpGet":{"path":"/healthz","port":"http"},"initialDelaySeconds":5,"periodSeconds":10},"readinessProbe":{"httpGet":{"path":"/ready","port":8080},"periodSeconds":5},"volumeMounts":[{"name":"config","mountPath":"/etc/web","readOnly":true}]}],"volumes":[{"name":"config","configMap":{"name":"web-config"}}],"serviceAccountName":"web","nodeSelector":{"kubernetes.io/os":"linux"},"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"#,
    );
    text.push_str(r#""terminationGracePeriodSeconds":30}}"#);
    text
}

//! Costs of one pod: decode, default, encode. `cargo bench -p machinery-api`.
//!
//! Times are the thread's time on a processor, so that what else runs there matters less.
#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use machinery_schema::{Strictness, apply_defaults, decode_json, encode_json, encode_split};
use std::hint::black_box;

const ROUNDS: u32 = 5_000;
const REPEATS: u32 = 15;

fn main() {
    let text = pod();
    let (schema, ty) = machinery_api::schema_for("", "v1", "Pod").expect("the table has pods");
    println!("pod of {} bytes", text.len());
    let decode = || {
        decode_json(schema, ty, text.as_bytes(), Strictness::Report)
            .expect("it is a pod")
            .tree
    };
    let tree = decode();
    println!("tree: {} nodes, {} bytes in all", tree.node_count(), tree.size());
    measure("decode", || drop(black_box(decode())));
    measure("decode, default", || {
        let mut tree = decode();
        apply_defaults(&mut tree);
        drop(black_box(tree));
    });
    measure("encode", || {
        let mut out = Vec::with_capacity(2048);
        encode_json(&tree, &mut out);
        drop(black_box(out));
    });
    measure("decode, default, encode", || {
        let mut tree = decode();
        apply_defaults(&mut tree);
        drop(black_box(encode_split(&tree)));
    });
    measure("serde_json value: decode, encode", || {
        let value: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        drop(black_box(serde_json::to_vec(&value)));
    });
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

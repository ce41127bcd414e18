//! Pods of the scenario, and what they are for.

use crate::simulated_node::World;
use node_cri_model::Program;
use serde_json::{Value, json};

pub(crate) const IMAGE: &str = "knarr.test/tools:1";
/// An image in the registry, not on the machine.
pub(crate) const REMOTE_IMAGE: &str = "knarr.test/remote:1";
/// Label that says what a pod is for.
pub(crate) const PURPOSE: &str = "purpose";

/// Purposes of pods, each by the name of its label.
pub(crate) const PURPOSES: [&str; 12] = [
    "serves",
    "serves",
    "crashes",
    "completes",
    "fails",
    "retries",
    "inits",
    "unwell",
    "stubborn",
    "hooked",
    "volumes",
    "misses",
];

/// A port of the node that no other pod requests, of pods with a number.
fn own_host_port(name: &str) -> Option<u16> {
    let number: u16 = name
        .trim_start_matches(|letter: char| !letter.is_ascii_digit())
        .parse()
        .ok()?;
    number.checked_add(1024)
}

fn container(name: &str, program: &Program) -> Value {
    json!({"name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": program.command()})
}

fn exec(program: &Program) -> Value {
    json!({"exec": {"command": program.command()}})
}

/// A pod of this purpose, bound to the node.
pub(crate) fn pod(world: &World, name: &str, purpose: &str) -> Value {
    let seconds = world.dice(20);
    let grace = [0, 1, 5, 30][world.dice(4) as usize];
    let missing = [REMOTE_IMAGE, "knarr.test/nowhere:1"][world.dice(2) as usize];
    let mut spec = json!({
        "nodeName": world.node_name(),
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": grace,
        "containers": [container("main", &Program::serving())],
    });
    match purpose {
        "serves" => {
            let extra = container(
                "extra",
                &Program {
                    prints: "hello".into(),
                    ..Program::serving()
                },
            );
            spec["containers"] = json!([spec["containers"][0], extra]);
            if let Some(port) = own_host_port(name) {
                spec["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": port}]);
            }
        }
        "crashes" => spec["containers"] = json!([container("main", &Program::ending(seconds, 1))]),
        "completes" => {
            spec["restartPolicy"] = json!("Never");
            let other = container(
                "other",
                &Program {
                    last_words: "done".into(),
                    ..Program::ending(1, 0)
                },
            );
            spec["containers"] = json!([container("main", &Program::ending(seconds, 0)), other]);
        }
        "fails" => {
            spec["restartPolicy"] = json!("Never");
            spec["containers"] = json!([container("main", &Program::ending(seconds, 3))]);
        }
        "retries" => {
            spec["restartPolicy"] = json!("OnFailure");
            spec["containers"] = json!([container("main", &Program::ending(seconds, 0))]);
        }
        "inits" => {
            let mut sidecar = container("sidecar", &Program::serving());
            sidecar["restartPolicy"] = json!("Always");
            spec["initContainers"] = json!([
                container("first", &Program::ending(2, 0)),
                sidecar,
                container("second", &Program::ending(1, 0))
            ]);
        }
        "unwell" => {
            let mut main = container(
                "main",
                &Program {
                    unwell_after: Some(20 + seconds),
                    ..Program::serving()
                },
            );
            main["livenessProbe"] = exec(&Program::question());
            main["livenessProbe"]["periodSeconds"] = json!(3);
            main["readinessProbe"] = exec(&Program::question());
            spec["containers"] = json!([main]);
        }
        "stubborn" => spec["containers"] = json!([container("main", &Program::default())]),
        "hooked" => {
            let mut main = container("main", &Program::serving());
            main["lifecycle"] = json!({"preStop": exec(&Program::ending(seconds, 0)), "postStart": exec(&Program::ending(1, 0))});
            spec["containers"] = json!([main]);
        }
        "volumes" => {
            spec["volumes"] = json!([{"name": "memory", "emptyDir": {"medium": "Memory"}}, {"name": "plain", "emptyDir": {}},
                {"name": "secret", "secret": {"secretName": "s"}}, {"name": "map", "configMap": {"name": "m"}}]);
            let mounts = ["memory", "plain", "secret", "map"];
            spec["containers"][0]["volumeMounts"] = mounts
                .map(|name| json!({"name": name, "mountPath": format!("/{name}")}))
                .into();
        }
        _ => spec["containers"][0]["image"] = json!(missing),
    }
    json!({"metadata": {"name": name, "labels": {PURPOSE: purpose}}, "spec": spec})
}

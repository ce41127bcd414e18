//! Static pods and their mirrors: cases of upstream's `common_test.go`, `file_linux_test.go` and `mirror_client_test.go`.

use std::path::Path;
use std::slice::from_ref;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use crate::pods::{CONFIG_HASH, CONFIG_MIRROR, is_critical, is_static, name, namespace, uid};
use crate::static_pods::StaticPodSource;
use crate::static_pods::folder::Folder;
use crate::static_pods::manifest::{Origin, pod_of};
use crate::static_pods::mirror::{MirrorAction, mirror_of, plan};

fn manifest(rest: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "main", "image": "tools:1"}]});
    let own = rest.as_object().cloned().unwrap_or_default();
    spec.as_object_mut().unwrap().extend(own);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"a": "b"}}, "spec": spec})
}

fn made(value: Value) -> Result<Pod, String> {
    pod_of(value, Origin::File(Path::new("/manifests/web.yaml")), "Node-1")
}

#[test]
fn static_pod_has_the_name_uid_and_annotations_of_its_file() {
    let pod = made(manifest(json!({}))).unwrap();
    assert_eq!(name(&pod), "web-node-1");
    assert_eq!(namespace(&pod), "default");
    assert_eq!(uid(&pod).len(), 32);
    let annotations = pod.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations[CONFIG_HASH], uid(&pod));
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert!(is_static(&pod) && is_critical(&pod));
    let spec = pod.spec.as_ref().unwrap();
    assert_eq!(spec.node_name.as_deref(), Some("Node-1"));
    let tolerations = serde_json::to_value(spec.tolerations.as_ref().unwrap()).unwrap();
    assert_eq!(
        tolerations,
        json!([{"operator": "Exists", "effect": "NoExecute"}])
    );
    let again = made(manifest(json!({}))).unwrap();
    assert_eq!(uid(&again), uid(&pod));
    let changed = made(manifest(json!({"hostNetwork": true}))).unwrap();
    assert_ne!(uid(&changed), uid(&pod));
    let other = Origin::File(Path::new("/manifests/other.yaml"));
    let elsewhere = pod_of(manifest(json!({})), other, "Node-1").unwrap();
    assert_ne!(uid(&elsewhere), uid(&pod));
    let mut own = manifest(json!({}));
    own["metadata"]["uid"] = json!("1234");
    assert_eq!(uid(&made(own).unwrap()), "1234");
}

#[test]
fn static_pod_gets_the_defaults_that_the_node_reads() {
    let containers = json!([{"name": "main", "image": "registry.test:5000/tools", "ports": [{"containerPort": 80}],
        "livenessProbe": {"httpGet": {"port": 80}}, "resources": {"limits": {"cpu": "1"}}},
        {"name": "other", "image": "tools@sha256:0", "imagePullPolicy": "Never"}]);
    let pod = made(manifest(json!({"containers": containers, "hostNetwork": true}))).unwrap();
    let spec = serde_json::to_value(pod.spec.unwrap()).unwrap();
    assert_eq!(spec["restartPolicy"], "Always");
    assert_eq!(spec["terminationGracePeriodSeconds"], 30);
    let main = &spec["containers"][0];
    assert_eq!(main["imagePullPolicy"], "Always");
    assert_eq!(main["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(main["ports"][0]["hostPort"], 80);
    assert_eq!(main["resources"]["requests"]["cpu"], "1");
    assert_eq!(main["livenessProbe"]["periodSeconds"], 10);
    assert_eq!(main["livenessProbe"]["httpGet"]["scheme"], "HTTP");
    assert_eq!(spec["containers"][1]["imagePullPolicy"], "Never");
}

#[test]
fn static_pod_that_could_not_run_is_refused_in_upstreams_words() {
    let refused = |value: Value| made(value).unwrap_err();
    let volume = |source: Value| {
        let mut volume = json!({"name": "v"});
        volume
            .as_object_mut()
            .unwrap()
            .extend(source.as_object().cloned().unwrap());
        manifest(json!({"volumes": [volume]}))
    };
    let env = |source: Value| {
        manifest(
            json!({"containers": [{"name": "main", "image": "i", "env": [{"name": "A", "valueFrom": source}]}]}),
        )
    };
    for (value, words) in [
        (
            manifest(json!({"serviceAccountName": "a"})),
            "static pods may not reference serviceaccounts",
        ),
        (
            manifest(json!({"imagePullSecrets": [{"name": "a"}]})),
            "static pods may not reference secrets",
        ),
        (
            manifest(json!({"resourceClaims": [{"name": "a"}]})),
            "static pods may not reference resourceclaims",
        ),
        (
            env(json!({"secretKeyRef": {"name": "s", "key": "k"}})),
            "static pods may not reference secrets",
        ),
        (
            env(json!({"configMapKeyRef": {"name": "s", "key": "k"}})),
            "static pods may not reference configmaps",
        ),
        (
            volume(json!({"configMap": {"name": "m"}})),
            "static pods may not reference configmaps (via configmap volumes)",
        ),
        (
            volume(json!({"persistentVolumeClaim": {"claimName": "m"}})),
            "static pods may not reference persistentvolumeclaims",
        ),
        (
            volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}})),
            "static pods may not reference serviceaccounts (via projected volumes)",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret"}),
            "invalid pod: it is of kind \"Secret\" of \"v1\"",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}}),
            "invalid pod: name is needed for the pod",
        ),
        (
            manifest(json!({"containers": []})),
            "invalid pod: spec.containers: Required value",
        ),
        (
            manifest(json!({"containers": [{"name": "a"}]})),
            "invalid pod: spec.containers: image of \"a\": Required value",
        ),
    ] {
        assert_eq!(refused(value), words);
    }
    for uid in ["..", "../../victim", "/victim", "a/", "a/b", &"x".repeat(254)] {
        let mut pod = manifest(json!({}));
        pod["metadata"]["uid"] = uid.into();
        assert!(
            refused(pod).contains("metadata.uid: Invalid value"),
            "{uid} is no name of a folder"
        );
    }
    let volumes = json!({"volumes": [{"name": "../../victim", "emptyDir": {}}]});
    assert!(refused(manifest(volumes)).contains("spec.volumes: name: Invalid value"));
    let twice = json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "hostPath": {"path": "/"}}]});
    assert!(refused(manifest(twice)).contains("spec.volumes: name: Duplicate value"));
    made(volume(json!({"hostPath": {"path": "/etc"}}))).unwrap();
    made(volume(json!({"emptyDir": {}}))).unwrap();
}

fn decode(content: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(content).map_err(|error| error.to_string())
}

#[test]
fn static_pods_are_those_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("manifests");
    let source = StaticPodSource {
        path: path.clone(),
        decode,
    };
    let mut manifests = Folder::new(source, "n".to_owned());
    let names = |folder: &mut Folder| -> Vec<String> {
        let pods = folder.read().unwrap();
        pods.iter().map(|pod| name(pod).to_owned()).collect()
    };
    assert!(names(&mut manifests).is_empty(), "there is no folder yet");
    std::fs::create_dir_all(path.join("inner")).unwrap();
    let write = |file: &str, pod: &str, host_network: bool| {
        let mut value = manifest(json!({"hostNetwork": host_network}));
        value["metadata"]["name"] = json!(pod);
        std::fs::write(path.join(file), value.to_string()).unwrap();
    };
    write("b.json", "b", false);
    write("a.json", "a", false);
    write(".hidden.json", "hidden", false);
    write("inner/c.json", "c", false);
    write("z.json", "a", true);
    assert_eq!(
        names(&mut manifests),
        ["a-n", "b-n"],
        "the first of a name, none that is hidden or deeper"
    );
    let before = manifests.read().unwrap();
    std::fs::write(path.join("b.json"), "{").unwrap();
    assert_eq!(manifests.read().unwrap(), before, "half a file changes nothing");
    write("b.json", "b", true);
    let after = manifests.read().unwrap();
    assert_ne!(uid(&after[1]), uid(&before[1]));
    std::fs::write(path.join("large.json"), vec![b' '; (1 << 20) + 1]).unwrap();
    std::fs::remove_file(path.join("b.json")).unwrap();
    assert_eq!(names(&mut manifests), ["a-n"]);
    std::fs::remove_dir_all(&path).unwrap();
    assert!(names(&mut manifests).is_empty());
}

#[test]
fn mirror_pods_are_made_mended_and_deleted() {
    let pod = |change: &dyn Fn(&mut Pod)| {
        let mut pod = made(manifest(json!({}))).unwrap();
        change(&mut pod);
        Arc::new(pod)
    };
    let node: Node =
        serde_json::from_value(json!({"metadata": {"name": "Node-1", "uid": "node-uid"}})).unwrap();
    let own = pod(&|_| {});
    let mirror = |change: &dyn Fn(&mut Pod)| {
        let mut mirror = mirror_of(&own, &node).unwrap();
        mirror.metadata.uid = Some("mirror-uid".to_owned());
        change(&mut mirror);
        Arc::new(mirror)
    };
    let fitting = mirror(&|_| {});
    let annotations = fitting.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations[CONFIG_MIRROR], uid(&own));
    let owner = serde_json::to_value(&fitting.metadata.owner_references).unwrap();
    assert_eq!(
        owner,
        json!([{"apiVersion": "v1", "kind": "Node", "name": "Node-1", "uid": "node-uid", "controller": true}])
    );
    assert!(
        mirror_of(&own, &Node::default()).is_none(),
        "the node is not registered"
    );
    let (create, delete) = (MirrorAction::Create, MirrorAction::Delete);
    assert_eq!(plan(from_ref(&own), &[], true), [create(own.clone())]);
    assert!(plan(from_ref(&own), from_ref(&fitting), true).is_empty());
    assert_eq!(plan(&[], from_ref(&fitting), true), [delete(fitting.clone())]);
    assert!(
        plan(&[], from_ref(&fitting), false).is_empty(),
        "its pod may be one of a source that was not read yet"
    );
    let of_another = mirror(&|mirror| {
        let annotations = mirror.metadata.annotations.as_mut().unwrap();
        annotations.insert(CONFIG_MIRROR.to_owned(), "other".to_owned());
    });
    assert_eq!(
        plan(from_ref(&own), from_ref(&of_another), true),
        [delete(of_another)]
    );
    let now = || {
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            jiff::Timestamp::UNIX_EPOCH,
        ))
    };
    let deleted = mirror(&|mirror| mirror.metadata.deletion_timestamp = now());
    assert_eq!(plan(from_ref(&own), from_ref(&deleted), true), [delete(deleted)]);
    let ending = pod(&|pod| pod.metadata.deletion_timestamp = now());
    assert!(plan(from_ref(&ending), &[], true).is_empty());
    assert!(
        plan(&[ending], &[fitting], true).is_empty(),
        "it is shown until it has ended"
    );
}

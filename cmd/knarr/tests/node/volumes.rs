//! Volumes of each kind, and what a container sees in them.

use crate::support::cluster::Cluster;
use crate::support::image::TOOLS;

/// Everything there is, in one pod.
fn pod(host_folder: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: main, labels: {{tier: front}}, annotations: {{note: first}}}}
spec:
  securityContext: {{fsGroup: 4242}}
  volumes:
  - {{name: scratch, emptyDir: {{}}}}
  - {{name: memory, emptyDir: {{medium: Memory, sizeLimit: 1Mi}}}}
  - {{name: machine, hostPath: {{path: '{host_folder}', type: Directory}}}}
  - {{name: settings, configMap: {{name: settings, items: [{{key: color, path: deep/color}}]}}}}
  - {{name: all-settings, configMap: {{name: settings}}}}
  - {{name: optional, configMap: {{name: missing, optional: true}}}}
  - {{name: password, secret: {{secretName: password, defaultMode: 0400}}}}
  - name: about
    downwardAPI:
      items:
      - {{path: labels, fieldRef: {{fieldPath: metadata.labels}}}}
      - {{path: name, fieldRef: {{fieldPath: metadata.name}}}}
      - {{path: cpu, resourceFieldRef: {{containerName: main, resource: limits.cpu, divisor: 1m}}}}
  - name: together
    projected:
      sources:
      - serviceAccountToken: {{path: token, audience: somewhere, expirationSeconds: 600}}
      - configMap: {{name: settings, items: [{{key: color, path: color}}]}}
      - secret: {{name: password, items: [{{key: word, path: word}}]}}
      - downwardAPI: {{items: [{{path: namespace, fieldRef: {{fieldPath: metadata.namespace}}}}]}}
  containers:
  - name: main
    image: {TOOLS}
    imagePullPolicy: IfNotPresent
    command: [sleep, '10000']
    resources: {{limits: {{cpu: 250m, memory: 64Mi}}}}
    env: [{{name: COLOR, valueFrom: {{configMapKeyRef: {{name: settings, key: color}}}}}}]
    volumeMounts:
    - {{name: scratch, mountPath: /scratch}}
    - {{name: memory, mountPath: /memory}}
    - {{name: machine, mountPath: /machine}}
    - {{name: settings, mountPath: /settings}}
    - {{name: all-settings, mountPath: /all-settings}}
    - {{name: all-settings, mountPath: /one/color, subPath: color}}
    - {{name: optional, mountPath: /optional}}
    - {{name: password, mountPath: /password, readOnly: true}}
    - {{name: about, mountPath: /about}}
    - {{name: together, mountPath: /together}}
  - name: other
    image: {TOOLS}
    imagePullPolicy: IfNotPresent
    command: [sleep, '10000']
    volumeMounts: [{{name: scratch, mountPath: /shared, subPath: part}}]
"
    )
}

fn prepare(cluster: &Cluster, name: &str, host_folder: &str) -> crate::support::Kubectl {
    let story = cluster.namespace(name);
    story.kubectl(&[
        "create",
        "configmap",
        "settings",
        "--from-literal=color=blue",
        "--from-literal=size=9",
    ]);
    story.kubectl(&[
        "create",
        "secret",
        "generic",
        "password",
        "--from-literal=word=open sesame",
    ]);
    story.feed(&["apply"], &pod(host_folder));
    story.wait("pod/main", "condition=Ready");
    story
}

pub(crate) fn volumes_of_every_kind_hold_what_they_say(cluster: &Cluster) {
    let machine = tempfile::tempdir().expect("a folder");
    std::fs::write(machine.path().join("from-machine"), "hello\n").expect("a file");
    let story = prepare(cluster, "volumes", &machine.path().display().to_string());
    let shell = |script: &str| story.kubectl(&["exec", "main", "-c", "main", "--", "sh", "-c", script]);
    let expected = [
        (
            "cat /settings/deep/color /all-settings/size /one/color",
            "blue9blue",
        ),
        ("ls /optional", ""),
        (
            "cat /password/word; stat -Lc ' %a %g' /password/word",
            "open sesame 440 4242\n",
        ),
        (
            "cat /about/labels /about/name /about/cpu",
            "tier=\"front\"main250",
        ),
        (
            "cat /together/color /together/word /together/namespace",
            "blueopen sesamevolumes",
        ),
        (
            "cat /machine/from-machine; echo back > /machine/from-pod",
            "hello\n",
        ),
        (
            "stat -c %g /scratch; mkdir /scratch/part 2>/dev/null; echo seen > /scratch/part/file",
            "4242\n",
        ),
        (
            "stat -c '%a %g' /settings /password /about /together",
            "2777 4242\n2777 4242\n2777 4242\n2777 4242\n",
        ),
        ("grep -c ' /memory tmpfs ' /proc/mounts", "1\n"),
        ("echo $COLOR", "blue\n"),
        ("id -G | tr ' ' '\\n' | grep 4242", "4242\n"),
        ("echo x > /password/new 2>/dev/null || echo refused", "refused\n"),
        (
            "dd if=/dev/zero of=/memory/file bs=1M count=2 2>/dev/null || echo full",
            "full\n",
        ),
    ];
    for (script, output) in expected {
        assert_eq!(shell(script), output, "{script}");
    }
    assert_eq!(
        std::fs::read_to_string(machine.path().join("from-pod")).expect("written by the pod"),
        "back\n"
    );
    assert_eq!(
        story.kubectl(&["exec", "main", "-c", "other", "--", "cat", "/shared/file"]),
        "seen\n"
    );
    let token = shell("cat /together/token");
    let review = format!(
        "{{apiVersion: authentication.k8s.io/v1, kind: TokenReview, spec: {{token: '{token}', audiences: [somewhere]}}}}"
    );
    let answer = story.feed(
        &[
            "create",
            "--validate=false",
            "-o",
            "jsonpath={.status.authenticated} {.status.user.username}",
        ],
        &review,
    );
    assert_eq!(answer, "true system:serviceaccount:volumes:default");
    let own = shell("cat /var/run/secrets/kubernetes.io/serviceaccount/namespace");
    assert_eq!(own, "volumes");
}

pub(crate) fn a_running_pod_sees_changed_objects(cluster: &Cluster) {
    let story = prepare(cluster, "changing", "/tmp");
    let sees = |path: &str, content: &str| {
        story.until(&format!("{path} to be {content}"), || {
            story.kubectl(&["exec", "main", "-c", "main", "--", "cat", path]) == content
        });
    };
    story.kubectl(&[
        "patch",
        "configmap",
        "settings",
        "-p",
        r#"{"data":{"color":"red"}}"#,
    ]);
    sees("/settings/deep/color", "red");
    sees("/together/color", "red");
    story.kubectl(&[
        "patch",
        "secret",
        "password",
        "-p",
        r#"{"stringData":{"word":"other"}}"#,
    ]);
    sees("/password/word", "other");
    story.kubectl(&["label", "pod", "main", "tier=back", "--overwrite"]);
    sees("/about/labels", "tier=\"back\"");
    story.kubectl(&["create", "configmap", "missing", "--from-literal=late=yes"]);
    sees("/optional/late", "yes");
    // As upstream: a sub path is what it was when the container started.
    assert_eq!(
        story.kubectl(&["exec", "main", "-c", "main", "--", "cat", "/one/color"]),
        "blue"
    );
    assert_eq!(
        story.field("pod/main", "{.status.containerStatuses[*].restartCount}"),
        "0 0"
    );
}

pub(crate) fn a_deleted_object_keeps_no_container_from_starting(cluster: &Cluster) {
    let story = cluster.namespace("deleted-object");
    for name in ["hashed", "settings"] {
        story.kubectl(&["create", "configmap", name, "--from-literal=color=blue"]);
    }
    story.feed(&["apply"], &pod_that_ends_once());
    story.wait("pod/main", "condition=Ready");
    story.kubectl(&["delete", "configmap", "hashed"]);
    story.until("an event that says what is not there", || {
        let events = story.kubectl(&["events", "--for", "pod/main"]);
        events.contains("MountVolume.SetUp failed for volume \"hashed\" : configmap \"hashed\" not found")
    });
    // The first container ends as soon as it sees the change.
    let change = r#"{"data":{"color":"red"}}"#;
    story.kubectl(&["patch", "configmap", "settings", "-p", change]);
    story.wait_value("pod/main", "{.status.containerStatuses[0].restartCount}", "1");
    story.until("the second to have both", || {
        story.kubectl(&["logs", "main"]) == "blue red\n"
    });
}

/// Ends when a ConfigMap has changed; names a third one that is not there, and mounts it nowhere.
fn pod_that_ends_once() -> String {
    let script = "echo $(cat /hashed/color) $(cat /settings/color); until grep -q red /settings/color; do sleep 0.1; done; test -e /own/ran && exec sleep 10000; touch /own/ran";
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: main}}
spec:
  volumes:
  - {{name: hashed, configMap: {{name: hashed}}}}
  - {{name: settings, configMap: {{name: settings}}}}
  - {{name: switched-off, configMap: {{name: never-there}}}}
  - {{name: own, emptyDir: {{}}}}
  containers:
  - name: main
    image: {TOOLS}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, '{script}']
    volumeMounts:
    - {{name: hashed, mountPath: /hashed}}
    - {{name: settings, mountPath: /settings}}
    - {{name: own, mountPath: /own}}
"
    )
}

pub(crate) fn a_sub_path_cannot_leave_its_volume(cluster: &Cluster) {
    let story = cluster.namespace("escaping");
    let container = |name: &str, script: &str, mounts: &str| {
        format!(
            "{{name: {name}, image: '{TOOLS}', imagePullPolicy: IfNotPresent, command: [sh, -c, '{script}'], volumeMounts: [{mounts}]}}"
        )
    };
    let whole = "{name: shared, mountPath: /shared}";
    let prepare = container(
        "prepare",
        "ln -s /etc /shared/away; mkdir /shared/in; ln -s in /shared/link; echo inside > /shared/in/file",
        whole,
    );
    let pod = |name: &str, sub_path: &str| {
        let main = container(
            "main",
            "cat /part/file; sleep 10000",
            &format!("{{name: shared, mountPath: /part, subPath: {sub_path}}}"),
        );
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{volumes: [{{name: shared, emptyDir: {{}}}}], initContainers: [{prepare}], containers: [{main}]}}}}"
        )
    };
    story.feed(&["apply"], &pod("away", "away"));
    story.feed(&["apply"], &pod("link", "link"));
    story.wait_value(
        "pod/away",
        "{.status.containerStatuses[0].state.waiting.reason}",
        "CreateContainerConfigError",
    );
    story.until("an event that says why", || {
        story
            .kubectl(&["events", "--for", "pod/away"])
            .contains("failed to prepare subPath for volumeMount \"shared\" of container \"main\"")
    });
    story.wait("pod/link", "condition=Ready");
    story.until("what is inside", || {
        story.kubectl(&["logs", "link", "-c", "main"]) == "inside\n"
    });
}

/// A mount whose server never answers, in the place where containers are started. Dropped, it answers with an error.
struct DeadMount {
    folder: tempfile::TempDir,
    agent: String,
    _server: std::fs::File,
}

impl DeadMount {
    fn new(cluster: &Cluster) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let record = std::fs::read_to_string(cluster.data_dir().join("agent/agent.pid")).expect("a pid file");
        let agent = record.split(' ').next().unwrap_or_default().to_owned();
        let server = std::fs::File::options().read(true).write(true).open("/dev/fuse");
        let server = server.expect("the kernel has FUSE");
        let options = "fd=0,rootmode=40000,user_id=0,group_id=0";
        let mut mount = Self::inside(&agent);
        mount
            .args(["mount", "-i", "-t", "fuse", "-o", options, "none"])
            .arg(folder.path());
        mount.stdin(server.try_clone().expect("a descriptor"));
        assert!(
            mount.status().is_ok_and(|status| status.success()),
            "it is mounted"
        );
        Self {
            folder,
            agent,
            _server: server,
        }
    }

    fn inside(agent: &str) -> std::process::Command {
        let mut command = std::process::Command::new("nsenter");
        command.args(["--mount", "--target", agent]);
        command
    }
}

impl Drop for DeadMount {
    fn drop(&mut self) {
        let mut unmount = Self::inside(&self.agent);
        let _ = unmount
            .args(["umount", "--lazy"])
            .arg(self.folder.path())
            .status();
    }
}

pub(crate) fn a_dead_file_system_stops_no_other_pod(cluster: &Cluster) {
    const STUCK: usize = 6;
    let story = cluster.namespace("dead-mount");
    let dead = DeadMount::new(cluster);
    let path = dead.folder.path().display().to_string();
    let stuck = |number| {
        format!(
            "
apiVersion: v1
kind: Pod
metadata: {{name: stuck-{number}}}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{{name: dead, hostPath: {{path: '{path}', type: Directory}}}}]
  containers: [{{name: main, image: {TOOLS}, imagePullPolicy: IfNotPresent, command: [sleep, '10000'], volumeMounts: [{{name: dead, mountPath: /dead}}]}}]
"
        )
    };
    let pods: Vec<String> = (0..STUCK).map(stuck).collect();
    story.feed(&["apply"], &pods.join("---"));
    for number in 0..STUCK {
        story.wait_value(
            &format!("pod/stuck-{number}"),
            "{.status.containerStatuses[0].state.waiting.reason}",
            "ContainerCreating",
        );
    }
    let script = "until nslookup kubernetes.default.svc.cluster.local; do sleep 0.1; done; echo named; exec sleep 10000";
    let run = [
        "run",
        "other",
        "--image",
        TOOLS,
        "--image-pull-policy=IfNotPresent",
        "--",
        "sh",
        "-c",
        script,
    ];
    story.kubectl(&run);
    story.wait("pod/other", "condition=Ready");
    story.until("a name", || story.kubectl(&["logs", "other"]).contains("named"));
    drop(dead);
    story.kubectl(&["delete", "pod", "--all", "--timeout=100s"]);
}

/// Folders in folders as a pod makes them: from the inside out, deeper than any path may be long.
fn deep(root: &std::path::Path, levels: usize) {
    let (chain, next) = (root.join("d"), root.join("n"));
    std::fs::create_dir(&chain).expect("a folder");
    for _ in 0..levels {
        std::fs::create_dir(&next).expect("a folder");
        std::fs::rename(&chain, next.join("d")).expect("it moves");
        std::fs::rename(&next, &chain).expect("it moves");
    }
}

pub(crate) fn a_volume_deeper_than_any_stack_goes_with_its_pod(cluster: &Cluster) {
    let story = cluster.namespace("deep");
    let pod = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: deep}}, spec: {{terminationGracePeriodSeconds: 1, volumes: [{{name: scratch, emptyDir: {{}}}}], \
         containers: [{{name: main, image: {TOOLS}, imagePullPolicy: IfNotPresent, command: [sleep, '10000'], volumeMounts: [{{name: scratch, mountPath: /scratch}}]}}]}}}}"
    );
    story.feed(&["apply"], &pod);
    story.wait("pod/deep", "condition=Ready");
    let uid = story.field("pod/deep", "{.metadata.uid}");
    let folder = cluster.data_dir().join("agent/pods").join(uid);
    deep(&folder.join("volumes/kubernetes.io~empty-dir/scratch"), 20_000);
    story.kubectl(&["delete", "pod", "deep", "--timeout=100s"]);
    story.until("its folder to be gone", || {
        folder.try_exists().is_ok_and(|there| !there)
    });
    // The agent goes on.
    story.feed(&["apply"], &pod);
    story.wait("pod/deep", "condition=Ready");
}

pub(crate) fn claims_are_bound_and_their_volumes_outlive_pods(cluster: &Cluster) {
    let machine = tempfile::tempdir().expect("a folder");
    let below = machine.path().join("disk");
    std::fs::create_dir(&below).expect("a folder");
    let story = cluster.namespace("claims");
    story.feed(&["apply"], &claimed(&machine.path().display().to_string()));
    for pod in ["writer", "reader"] {
        story.feed(&["apply"], &pod_with_claims(pod));
        story.wait(&format!("pod/{pod}"), "condition=Ready");
        assert_eq!(story.field("pvc/on-path", "{.status.phase}"), "Bound");
        assert_eq!(story.field("pvc/on-disk", "{.spec.volumeName}"), "claims-disk");
        let say = "for d in /path /disk; do echo $HOSTNAME >> $d/said; cat $d/said; done; touch /locked/x || echo locked";
        let said = story.kubectl(&["exec", pod, "--", "sh", "-c", say]);
        let expected = match pod {
            "writer" => "writer\nwriter\nlocked\n",
            _ => "writer\nreader\nwriter\nreader\nlocked\n",
        };
        assert_eq!(said, expected, "{pod}");
        let groups = story.kubectl(&["exec", pod, "--", "id", "-G"]);
        assert!(groups.split_whitespace().any(|group| group == "1234"), "{groups}");
        let mounts = story.kubectl(&["exec", pod, "--", "grep", " /disk ", "/proc/mounts"]);
        assert!(mounts.contains("nosuid"), "{mounts}");
        story.kubectl(&["delete", "pod", pod, "--grace-period=1"]);
    }
    story.kubectl(&["delete", "pvc", "--all"]);
    story.wait_value("pv/claims-disk", "{.status.phase}", "Released");
    let kept = std::fs::read_to_string(below.join("said")).expect("what the pods wrote");
    assert_eq!(
        kept, "writer\nreader\n",
        "a volume that is retained keeps its data"
    );
    story.kubectl(&["delete", "pv", "claims-path", "claims-disk"]);
}

/// A volume by path and one of a local folder, and a claim of each.
fn claimed(folder: &str) -> String {
    let pair = |name: &str, source: &str| {
        format!(
            "
apiVersion: v1
kind: PersistentVolume
metadata: {{name: claims-{name}, annotations: {{pv.beta.kubernetes.io/gid: '1234'}}}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteOnce]
  storageClassName: claims-{name}
  {source}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: on-{name}}}
spec: {{accessModes: [ReadWriteOnce], storageClassName: claims-{name}, resources: {{requests: {{storage: 500Mi}}}}}}
"
        )
    };
    let local = format!(
        "local: {{path: '{folder}/disk'}}
  mountOptions: [nosuid]
  nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: kubernetes.io/os, operator: Exists}}]}}]}}}}"
    );
    // Nothing is there yet, and no type says what is to be made.
    let path = format!("hostPath: {{path: '{folder}/path'}}");
    format!("{}---{}", pair("path", &path), pair("disk", &local))
}

fn pod_with_claims(name: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  volumes:
  - {{name: path, persistentVolumeClaim: {{claimName: on-path}}}}
  - {{name: disk, persistentVolumeClaim: {{claimName: on-disk}}}}
  - {{name: locked, persistentVolumeClaim: {{claimName: on-disk, readOnly: true}}}}
  containers:
  - name: main
    image: {TOOLS}
    imagePullPolicy: IfNotPresent
    command: [sleep, '10000']
    volumeMounts:
    - {{name: path, mountPath: /path}}
    - {{name: disk, mountPath: /disk}}
    - {{name: locked, mountPath: /locked}}
"
    )
}

/// A manifest of `docs/volumes.md`, with an image that the node has.
fn from_page(kind: &str) -> String {
    let page = include_str!("../../../../docs/volumes.md");
    let blocks = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|block| block.split("```").next());
    let found = blocks
        .into_iter()
        .find(|block| block.contains(&format!("kind: {kind}\n")));
    let block = found.expect("the page has it");
    block.replace(
        "image: busybox:1.37",
        &format!("image: {TOOLS}\n        imagePullPolicy: IfNotPresent"),
    )
}

/// The folder of a claim's volume.
fn folder_of(story: &crate::support::Kubectl, claim: &str) -> std::path::PathBuf {
    let volume = story.field(&format!("pvc/{claim}"), "{.spec.volumeName}");
    assert!(volume.starts_with("pvc-"), "{volume}");
    story.field(&format!("pv/{volume}"), "{.spec.local.path}").into()
}

fn is_gone(path: &std::path::Path) -> bool {
    path.try_exists().is_ok_and(|there| !there)
}

pub(crate) fn stateful_sets_keep_their_volumes_of_the_default_class(cluster: &Cluster) {
    let story = cluster.namespace("local-path");
    story.feed(&["apply"], &from_page("StatefulSet"));
    let rolled = || story.kubectl(&["rollout", "status", "statefulset/db", "--timeout=150s"]);
    rolled();
    for claim in ["data-db-0", "data-db-1"] {
        let what = story.field(
            &format!("pvc/{claim}"),
            "{.status.phase} {.spec.storageClassName}",
        );
        assert_eq!(what, "Bound local-path");
        let path = folder_of(&story, claim);
        assert!(path.starts_with(cluster.agent_dir()), "{path:?}");
    }
    let events = story.kubectl(&["events", "--for", "pvc/data-db-0"]);
    assert!(
        events.contains("Successfully provisioned volume pvc-"),
        "{events}"
    );
    story.kubectl(&["scale", "statefulset/db", "--replicas=1"]);
    story.until("the second pod to be gone", || {
        story.kubectl(&["get", "pods", "-o", "name"]) == "pod/db-0\n"
    });
    story.kubectl(&["scale", "statefulset/db", "--replicas=2"]);
    rolled();
    story.kubectl(&["rollout", "restart", "statefulset/db"]);
    rolled();
    for (pod, starts) in [("db-0", 2), ("db-1", 3)] {
        let log = story.kubectl(&["exec", pod, "--", "cat", "/data/log"]);
        assert_eq!(log, format!("{pod} started\n").repeat(starts));
    }
    let folders = ["data-db-0", "data-db-1"].map(|claim| folder_of(&story, claim));
    story.kubectl(&["delete", "statefulset", "db", "--timeout=100s"]);
    story.until("the pods to be gone", || {
        story.kubectl(&["get", "pods", "-o", "name"]).is_empty()
    });
    assert!(
        folders.iter().all(|folder| folder.join("log").is_file()),
        "claims keep their data"
    );
    story.kubectl(&["delete", "pvc", "--all", "--timeout=100s"]);
    for folder in &folders {
        story.until("its folder to be gone", || is_gone(folder));
    }
    story.until("the volumes to be gone", || {
        let claims = "-o=jsonpath={.items[*].spec.claimRef.namespace}";
        !story.kubectl(&["get", "pv", claims]).contains("local-path")
    });
}

pub(crate) fn ephemeral_volumes_go_with_their_pods(cluster: &Cluster) {
    let story = cluster.namespace("ephemeral");
    let pod = from_page("Pod").replace("\n        imagePullPolicy", "\n    imagePullPolicy");
    story.feed(&["apply"], &pod);
    story.wait("pod/worker", "condition=Ready");
    let owner = story.field("pvc/worker-scratch", "{.metadata.ownerReferences[*].kind}");
    assert_eq!(owner, "Pod");
    let folder = folder_of(&story, "worker-scratch");
    story.until("what the pod wrote", || {
        std::fs::read_to_string(folder.join("file")).is_ok_and(|text| text == "here\n")
    });
    story.kubectl(&["delete", "pod", "worker", "--timeout=100s"]);
    story.until("its claim to be gone", || {
        story.kubectl(&["get", "pvc", "-o", "name"]).is_empty()
    });
    story.until("its folder to be gone", || is_gone(&folder));
    // Another's claim of that name is left alone.
    let taken = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: worker-scratch}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}";
    story.feed(&["apply"], taken);
    story.feed(&["apply"], &pod);
    story.until("an event that says why", || {
        let why = "PVC ephemeral/worker-scratch was not created for pod ephemeral/worker (pod is not owner)";
        story.kubectl(&["events", "--for", "pod/worker"]).contains(why)
    });
    story.kubectl(&["delete", "pvc", "worker-scratch"]);
    story.wait("pod/worker", "condition=Ready");
    story.kubectl(&["delete", "pod", "worker", "--timeout=100s"]);
}

pub(crate) fn claims_of_what_their_class_cannot_give_say_why(cluster: &Cluster) {
    let story = cluster.namespace("unmet");
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: shared}, spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Mi}}}}";
    story.feed(&["apply"], claim);
    story.until("an event that it waits", || {
        let why = "waiting for first consumer to be created before binding";
        story.kubectl(&["events", "--for", "pvc/shared"]).contains(why)
    });
    let pod = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: user}}, spec: {{volumes: [{{name: v, persistentVolumeClaim: {{claimName: shared}}}}], \
         containers: [{{name: main, image: {TOOLS}, imagePullPolicy: IfNotPresent, command: [sleep, '10000'], volumeMounts: [{{name: v, mountPath: /v}}]}}]}}}}"
    );
    story.feed(&["apply"], &pod);
    story.until("an event that says why", || {
        let why = "access mode ReadWriteMany is not supported";
        story.kubectl(&["events", "--for", "pvc/shared"]).contains(why)
    });
    assert_eq!(story.field("pvc/shared", "{.status.phase}"), "Pending");
    // The node's folders are the control plane's alone to make.
    let account = "--as=system:serviceaccount:unmet:default";
    let path = "/api/v1/nodes/x/proxy/localVolumes/pvc-x";
    let refused = story.refused(&["create", "--raw", path, "-f", "/dev/null", account]);
    assert!(refused.contains("forbidden"), "{refused}");
    story.kubectl(&["delete", "pod", "user", "--grace-period=1"]);
    story.kubectl(&["delete", "pvc", "shared"]);
}

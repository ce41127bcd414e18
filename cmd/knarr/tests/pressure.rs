//! A node that runs short, with real containers: the evicted pods, and the reports of it. Its pods may have 700 MiB of memory
//! together, so that the machine itself never runs short; its first processor is reserved, and others are given to containers.
//! Needs root: `cargo test --test pressure -- --ignored`.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use std::process::ExitCode;
use support::cluster::Cluster;
use support::harness::{Pace, Scenario, run_with};
use support::image::TOOLS;
use support::kubectl::Kubectl;

const PODS_BYTES: u64 = 700 << 20;

const SCENARIOS: &[Scenario] = &[
    (
        "a_guaranteed_pod_has_its_processor_alone",
        a_guaranteed_pod_has_its_processor_alone,
    ),
    (
        "pods_above_their_limits_of_local_storage_are_evicted",
        pods_above_their_limits_of_local_storage_are_evicted,
    ),
    (
        "a_static_pod_comes_changes_and_goes_with_its_file",
        a_static_pod_comes_changes_and_goes_with_its_file,
    ),
    (
        "a_pod_that_takes_the_memory_of_others_is_evicted",
        a_pod_that_takes_the_memory_of_others_is_evicted,
    ),
];

fn main() -> ExitCode {
    let memory = node_sys::machine::memory_bytes().1;
    let flags = [
        format!("--system-reserved=memory={}", memory.saturating_sub(PODS_BYTES)),
        "--eviction-hard=memory.available<200Mi".to_owned(),
        "--eviction-pressure-transition-period=10s".to_owned(),
        "--pod-manifest-path=DIR/manifests".to_owned(),
        "--cpu-manager-policy=static".to_owned(),
        "--reserved-cpus=0".to_owned(),
    ];
    run_with("pressure", &flags, SCENARIOS, Pace::OneByOne)
}

/// A pod that runs a script once it is there, with members of its own and of its container.
fn pod(story: &Kubectl, name: &str, own: &str, container: &str, script: &str) {
    let script = format!("{script}; sleep 100000");
    story.feed(
        &["apply"],
        &format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{terminationGracePeriodSeconds: 0, {own} \
             containers: [{{name: main, image: '{TOOLS}', imagePullPolicy: IfNotPresent, {container} \
             command: [sh, -c, {script:?}]}}]}}}}"
        ),
    );
}

fn write(mebibytes: u32, path: &str) -> String {
    format!("head -c {} /dev/zero > {path}", mebibytes << 20)
}

const STATUS: &str = "{.status.phase} {.status.reason}: {.status.message}";

fn evicted(story: &Kubectl, name: &str) -> String {
    let object = format!("pod/{name}");
    let mut status = String::new();
    story.until(&format!("{name} to be evicted"), || {
        status = story.field(&object, STATUS);
        status.starts_with("Failed ")
    });
    status
}

fn events(story: &Kubectl, name: &str) -> String {
    let selector = format!("involvedObject.name={name},reason=Evicted");
    let columns = "custom-columns=T:.type,M:.message,A:.metadata.annotations.offending_containers";
    story.kubectl(&["get", "events", "--field-selector", &selector, "-o", columns])
}

/// Processors on which a pod runs, in the kernel's list format.
fn processors(story: &Kubectl, name: &str) -> String {
    let read = [
        "exec",
        name,
        "--",
        "sed",
        "-n",
        "s/^Cpus_allowed_list:\\s*//p",
        "/proc/self/status",
    ];
    let found = story.try_kubectl(&read);
    String::from_utf8_lossy(&found.stdout).trim().to_owned()
}

fn a_guaranteed_pod_has_its_processor_alone(cluster: &Cluster) {
    let story = cluster.namespace("processors");
    pod(&story, "shared", "", "", "true");
    story.wait("pod/shared", "condition=Ready");
    let all = processors(&story, "shared");
    assert!(all.starts_with('0') && all.len() > 1, "{all}");
    let amounts = "{cpu: 1, memory: 32Mi}";
    let whole = format!("resources: {{requests: {amounts}, limits: {amounts}}},");
    pod(&story, "alone", "", &whole, "true");
    story.wait("pod/alone", "condition=Ready");
    let own = processors(&story, "alone");
    let number: u32 = own.parse().expect("one processor");
    assert_ne!(number, 0, "it is reserved");
    story.until("the others to make room", || {
        let left = processors(&story, "shared");
        !left.is_empty() && left != all
    });
    if all == "0-1" {
        assert_eq!((own.as_str(), processors(&story, "shared").as_str()), ("1", "0"));
    }
    let node = story.field("nodes", "{.items[0].metadata.name}");
    let metrics = || story.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/metrics")]);
    let exclusive = "kubelet_cpu_manager_exclusive_cpu_allocation_count";
    assert!(metrics().contains(&format!("\n{exclusive} 1\n")));
    let resize = r#"{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"500m"},"limits":{"cpu":"500m"}}}]}}"#;
    story.kubectl(&["patch", "pod", "alone", "--subresource=resize", "-p", resize]);
    let pending = "{.status.conditions[?(@.type==\"PodResizePending\")].reason}";
    story.wait_value("pod/alone", pending, "Infeasible");
    story.kubectl(&["delete", "pod", "alone"]);
    story.until("its processor to be shared again", || {
        processors(&story, "shared") == all
    });
    assert!(metrics().contains(&format!("\n{exclusive} 0\n")));
    story.kubectl(&["delete", "pods", "--all"]);
}

fn pods_above_their_limits_of_local_storage_are_evicted(cluster: &Cluster) {
    let story = cluster.namespace("storage");
    let volume = |limit: &str| format!("volumes: [{{name: scratch, emptyDir: {{sizeLimit: {limit}}}}}],");
    let mount = "volumeMounts: [{name: scratch, mountPath: /scratch}],";
    let limit = "resources: {limits: {ephemeral-storage: 2Mi}},";
    pod(
        &story,
        "volume",
        &volume("1Mi"),
        mount,
        &write(3, "/scratch/file"),
    );
    pod(
        &story,
        "modest",
        &volume("50Mi"),
        mount,
        &write(3, "/scratch/file"),
    );
    pod(&story, "layer", "", limit, &write(8, "/tmp/file"));
    assert_eq!(
        evicted(&story, "volume"),
        "Failed Evicted: Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Mi\". "
    );
    let words = "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ";
    assert_eq!(evicted(&story, "layer"), format!("Failed Evicted: {words}"));
    assert_eq!(story.field("pod/modest", "{.status.phase}"), "Running");
    story.until("its event", || events(&story, "layer").contains(words.trim()));
    let warned = story.field(
        "pod/layer",
        "{.status.conditions[?(@.type==\"DisruptionTarget\")].status}",
    );
    assert_eq!(warned, "", "as upstream: a limit is the pod's own");
    story.kubectl(&["delete", "pods", "--all"]);
}

fn a_static_pod_comes_changes_and_goes_with_its_file(cluster: &Cluster) {
    let story = cluster.namespace("static");
    let folder = cluster.own_dir().join("manifests");
    std::fs::create_dir_all(&folder).expect("a folder");
    let write = |word: &str| {
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: static}}\nspec:\n  \
             terminationGracePeriodSeconds: 0\n  containers:\n  - name: main\n    image: {TOOLS}\n    \
             imagePullPolicy: IfNotPresent\n    command: [sh, -c, 'echo {word}; sleep 100000']\n"
        );
        std::fs::write(folder.join("web.yaml"), manifest).expect("a manifest");
    };
    write("first");
    let node = story.field("nodes", "{.items[0].metadata.name}");
    let name = format!("web-{node}");
    let object = format!("pod/{name}");
    let logs = || String::from_utf8_lossy(&story.try_kubectl(&["logs", &name]).stdout).into_owned();
    story.until("its first log", || logs() == "first\n");
    story.wait(&object, "condition=Ready");
    assert_eq!(
        story.field(&object, "{.metadata.ownerReferences[0].kind}"),
        "Node"
    );
    assert_eq!(story.kubectl(&["exec", &name, "--", "echo", "well"]), "well\n");
    let container = "{.status.containerStatuses[0].containerID}";
    let first = story.field(&object, container);
    // A deletion in the API takes away what shows it alone.
    let uid = story.field(&object, "{.metadata.uid}");
    story.kubectl(&["delete", "pod", &name, "--wait=false"]);
    story.until("it to be shown again", || {
        let again = story.try_kubectl(&["get", &object, "-o", "jsonpath={.metadata.uid} {.status.phase}"]);
        let again = String::from_utf8_lossy(&again.stdout).into_owned();
        again.ends_with(" Running") && !again.starts_with(&uid)
    });
    assert_eq!(story.field(&object, container), first);
    write("second");
    story.until("its second log", || logs() == "second\n");
    std::fs::remove_file(folder.join("web.yaml")).expect("it was there");
    story.until("it to go", || {
        let left = story.kubectl(&["get", "pods", "-o", "name"]);
        left.trim().is_empty()
    });
}

fn a_pod_that_takes_the_memory_of_others_is_evicted(cluster: &Cluster) {
    let story = cluster.namespace("memory");
    let request = "resources: {requests: {memory: 64Mi}},";
    pod(&story, "modest", "", request, "true");
    story.wait("pod/modest", "condition=Ready");
    let volume = "volumes: [{name: held, emptyDir: {medium: Memory}}],";
    let mount = "volumeMounts: [{name: held, mountPath: /held}],";
    pod(&story, "hog", volume, mount, &write(550, "/held/file"));
    let pressure = "{.items[0].status.conditions[?(@.type==\"MemoryPressure\")].reason}";
    story.until("the node to say so", || {
        story.field("nodes", pressure) == "KubeletHasInsufficientMemory"
    });
    let status = evicted(&story, "hog");
    let words = "The node was low on resource: memory. Threshold quantity: 200Mi, available: ";
    assert!(
        status.starts_with(&format!("Failed Evicted: {words}")),
        "{status}"
    );
    assert!(status.contains("Container main was using "), "{status}");
    assert!(
        status.ends_with(", request is 0, has larger consumption of memory. "),
        "{status}"
    );
    let target = "{.status.conditions[?(@.type==\"DisruptionTarget\")].reason}";
    assert_eq!(story.field("pod/hog", target), "TerminationByKubelet");
    assert_eq!(story.field("pod/modest", "{.status.phase}"), "Running");
    story.until("its event", || {
        let told = events(&story, "hog");
        told.contains("Warning") && told.trim_end().ends_with("main")
    });
    story.until("the node to have memory again", || {
        story.field("nodes", pressure) == "KubeletHasSufficientMemory"
    });
    let node = story.field("nodes", "{.items[0].metadata.name}");
    let metrics = story.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/metrics")]);
    for line in [
        "kubelet_evictions{eviction_signal=\"allocatableMemory.available\"} 1",
        "kubelet_evictions{eviction_signal=\"emptydirfs.limit\"} 1",
        "kubelet_evictions{eviction_signal=\"ephemeralpodfs.limit\"} 1",
    ] {
        assert!(metrics.lines().any(|own| own == line), "{line}: {metrics}");
    }
}

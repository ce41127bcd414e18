//! The commands of `docs/workloads.md`, `docs/volumes.md`, `docs/csi.md`, `docs/node-metrics.md`, `docs/device-plugins.md`
//! and `docs/dynamic-resources.md`, in their order, on a real node.

use crate::support::cluster::Cluster;
use crate::support::csi_driver::TestDriver;
use crate::support::device_plugin::TestPlugin;
use crate::support::dra_driver::TestDraDriver;
use crate::support::image::TOOLS;
use crate::support::page::{blocks, script};
use crate::support::{Kubectl, text};

/// Runs a page's scripts in a namespace of their own; `busybox` of a page is the tests' own image, which the node has.
fn check(cluster: &Cluster, namespace: &str, page: &str) {
    let story = cluster.namespace(namespace);
    for block in blocks(page) {
        run(cluster, &story, &with_own_image(&script(block)));
    }
    // What is left holds the node's pods and folders until the cluster goes.
    story.kubectl(&["delete", "namespace", namespace, "--wait=false"]);
}

fn with_own_image(script: &str) -> String {
    let line = |line: &str| {
        let own = |field: &str, policy: &str| {
            let indent = line.strip_suffix(&format!("{field}: busybox:1.37"))?;
            Some(format!(
                "{indent}{field}: {TOOLS}\n{indent}{policy}: IfNotPresent\n"
            ))
        };
        let replaced = own("image", "imagePullPolicy").or_else(|| own("reference", "pullPolicy"));
        replaced.unwrap_or_else(|| format!("{line}\n"))
    };
    script.lines().map(line).collect()
}

#[track_caller]
fn run(cluster: &Cluster, story: &Kubectl, script: &str) {
    let call = story.command(&[]);
    let words = call.get_args().map(|word| format!("'{}'", word.display()));
    let kubectl = [format!("'{}'", call.get_program().display())]
        .into_iter()
        .chain(words);
    let kubectl = kubectl.collect::<Vec<_>>().join(" ");
    let mut shell = cluster.host.command("sh");
    shell.args(["-ec", &format!("kubectl() {{ {kubectl} \"$@\"; }}\n{script}")]);
    let output = shell
        .env("HOME", &story.folder)
        .current_dir(&story.folder)
        .stdin(std::process::Stdio::null())
        .output()
        .expect("a shell");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{script}\n{said}\n{}",
        output.status,
        story.log()
    );
}

pub(crate) fn page_workloads_commands_work(cluster: &Cluster) {
    check(
        cluster,
        "page-workloads",
        include_str!("../../../../docs/workloads.md"),
    );
}

pub(crate) fn page_volumes_commands_work(cluster: &Cluster) {
    check(
        cluster,
        "page-volumes",
        include_str!("../../../../docs/volumes.md"),
    );
}

pub(crate) fn page_node_metrics_commands_work(cluster: &Cluster) {
    check(
        cluster,
        "page-node-metrics",
        include_str!("../../../../docs/node-metrics.md"),
    );
}

pub(crate) fn page_csi_commands_work(cluster: &Cluster) {
    let (agent_dir, store) = (cluster.agent_dir(), tempfile::tempdir().expect("a folder"));
    let _driver = TestDriver::start(&agent_dir, "disks.example", store.path());
    cluster.kubectl.until("the driver in the CSINode object", || {
        let shown = "jsonpath={.items[*].spec.drivers[*].name}";
        cluster.kubectl.kubectl(&["get", "csinodes", "-o", shown]) == "disks.example"
    });
    check(cluster, "page-csi", include_str!("../../../../docs/csi.md"));
    // Everything was taken away while the driver was there.
    let staged = agent_dir.join("plugins/kubernetes.io/csi/disks.example");
    cluster.kubectl.until("the volume is not staged any more", || {
        std::fs::read_dir(&staged).is_ok_and(|mut left| left.next().is_none())
    });
}

pub(crate) fn page_device_plugins_commands_work(cluster: &Cluster) {
    let (agent_dir, files) = (cluster.agent_dir(), tempfile::tempdir().expect("a folder"));
    let ids = ["dongle-a", "dongle-b", "dongle-c"];
    let _plugin = TestPlugin::start(&agent_dir, "vendor.example/dongle", &ids, files.path());
    let shown = "{.items[*].status.allocatable.vendor\\.example/dongle}";
    cluster.kubectl.until("the devices of the plugin", || {
        cluster
            .kubectl
            .kubectl(&["get", "nodes", "-o", &format!("jsonpath={shown}")])
            == "3"
    });
    check(
        cluster,
        "page-device-plugins",
        include_str!("../../../../docs/device-plugins.md"),
    );
}

pub(crate) fn page_dynamic_resources_commands_work(cluster: &Cluster) {
    let driver = TestDraDriver::start(&cluster.agent_dir(), "dongles.example", &cluster.kubectl);
    check(
        cluster,
        "page-dynamic-resources",
        include_str!("../../../../docs/dynamic-resources.md"),
    );
    // Everything was taken back while the driver was there.
    cluster
        .kubectl
        .until("no claim is prepared any more", || driver.prepared().is_empty());
}

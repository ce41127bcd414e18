//! The commands of `docs/workloads.md` and `docs/volumes.md`, in their order, on a real node.

use crate::support::cluster::Cluster;
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

//! Requests to a node's own server, by way of the API server and at its own address.

use super::access::{ask, token_of};
use crate::support::cluster::Cluster;
use crate::support::image::TOOLS;
use crate::support::kubectl::{Kubectl, text};

pub(crate) fn the_node_runs_commands_and_shows_logs_and_pages(cluster: &Cluster) {
    let story = cluster.namespace("requests");
    story.feed(
        &["apply"],
        &format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: main}}, spec: {{terminationGracePeriodSeconds: 1, containers: [{{name: main, image: '{TOOLS}', imagePullPolicy: IfNotPresent, command: [sleep, '10000']}}]}}}}"
        ),
    );
    story.wait("pod/main", "condition=Ready");
    let node = story.field("pod/main", "{.spec.nodeName}");
    let path = |path: &str| format!("/api/v1/nodes/{node}/proxy/{path}");
    let get = |own: &str| story.kubectl(&["get", "--raw", &path(own)]);
    let post = |own: &str| story.kubectl(&["create", "--raw", &path(own), "-f", "/dev/null"]);
    let refused = |own: &str| story.refused(&["create", "--raw", &path(own), "-f", "/dev/null"]);
    assert_eq!(post("run/requests/main/main?cmd=echo+one+two"), "one two\n");
    let words = refused("run/requests/main/main?cmd=ls+/none");
    assert!(words.contains("command 'ls /none' exited with"), "{words}");
    let words = refused("run/requests/main/other?cmd=ls");
    assert!(words.contains("container not found"), "{words}");
    let words = refused("checkpoint/requests/main/main");
    // The role of the API server's own account has no such right, as upstream's `system:kubelet-api-admin`.
    assert!(words.contains("subresource(s)=[checkpoint]"), "{words}");
    // The machine's folder of logs, and in it those of the pods.
    let page = get("logs/");
    assert!(
        page.contains(">containers/</a>") && page.contains(">pods/</a>"),
        "{page}"
    );
    let own = get("logs/pods/");
    assert!(own.contains("requests_main_"), "{own}");
    let words = story.refused(&["get", "--raw", &path("logs/none")]);
    assert!(words.contains("404") || words.contains("not find"), "{words}");
    let words = story.refused(&["get", "--raw", &path("statusz")]);
    assert!(words.contains("subresource(s)=[statusz]"), "{words}");
    let flags = get("flagz");
    assert!(flags.contains("\nenable-system-log-query=false\n"), "{flags}");
    answers_at_its_own_address(&story);
}

/// Asks the node at its own address, as an account whose role names what the role of the API server leaves out.
fn answers_at_its_own_address(story: &Kubectl) {
    let name = "node-requests";
    let create = |words: &[&str]| story.kubectl(&[&["create"], words].concat());
    let resources = "--resource=nodes/statusz,nodes/checkpoint";
    create(&["clusterrole", name, "--verb=get,create", resources]);
    create(&["serviceaccount", "keeper"]);
    let (role, account) = ("--clusterrole=node-requests", "--serviceaccount=requests:keeper");
    create(&["clusterrolebinding", name, role, account]);
    let node = "{.items[0].status.addresses[?(@.type==\"InternalIP\")].address}";
    let server = format!("https://{}:10250", story.field("nodes", node));
    let token = token_of(story, "keeper");
    let at = |words: &[&str]| ask(story, &server, &[&token], words);
    let page = at(&["get", "--raw", "/statusz"]);
    assert!(text(&page.stdout).contains("kubelet statusz"), "{page:?}");
    let refused = at(&[
        "create",
        "--raw",
        "/checkpoint/requests/main/main",
        "-f",
        "/dev/null",
    ]);
    let without = "checkpointing of requests/main/main failed (rpc error: code = Unimplemented desc = ";
    assert!(text(&refused.stderr).contains(without), "{refused:?}");
}

//! Requests to a node's own server, by way of the API server.

use crate::support::cluster::Cluster;
use crate::support::image::TOOLS;

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
}

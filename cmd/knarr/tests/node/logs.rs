//! Logs as kubectl and the node's own port show them.

use crate::commands::run;
use crate::support::cluster::Cluster;
use crate::support::image::TOOLS;

/// Length beyond what the runtime writes as one line of a log.
const LONG: usize = 40_000;

pub(crate) fn a_long_line_has_one_time_and_its_length(cluster: &Cluster) {
    let story = cluster.namespace("long-lines");
    let script =
        format!("echo began; head -c {LONG} /dev/zero | tr '\\0' x; echo; echo ended; exec sleep 10000");
    run(&story, &script);
    let plain = format!("began\n{}\nended\n", "x".repeat(LONG));
    story.until("its last line", || story.kubectl(&["logs", "main"]) == plain);
    let stamped = story.kubectl(&["logs", "main", "--timestamps"]);
    let (times, texts): (Vec<&str>, Vec<&str>) =
        stamped.lines().filter_map(|line| line.split_once(' ')).unzip();
    assert_eq!(texts.join("\n") + "\n", plain);
    let digits = |time: &&str| time.split(['.', 'Z', '+']).nth(1).map(str::len);
    assert!(times.iter().all(|time| digits(time) == Some(9)), "{times:?}");
    let ended = times.last().copied().unwrap_or_default();
    let since = format!("--since-time={ended}");
    assert!(
        story.kubectl(&["logs", "main", &since]).ends_with("ended\n"),
        "in whole seconds"
    );
    assert_eq!(story.kubectl(&["logs", "main", "--tail=1"]), "ended\n");
    assert_eq!(story.kubectl(&["logs", "main", "--limit-bytes=7"]), "began\nx");
}

pub(crate) fn the_node_checks_what_is_asked_of_a_log(cluster: &Cluster) {
    let story = cluster.namespace("asked-logs");
    run(&story, "echo one; echo two >&2; exec sleep 10000");
    let node = story.field("nodes", "{.items[0].metadata.name}");
    let path = |query: &str| format!("/api/v1/nodes/{node}/proxy/containerLogs/asked-logs/main/main{query}");
    story.until("both lines", || {
        story.kubectl(&["get", "--raw", &path("")]).lines().count() == 2
    });
    assert_eq!(story.kubectl(&["get", "--raw", &path("?stream=Stderr")]), "two\n");
    assert_eq!(
        story
            .kubectl(&["get", "--raw", &path("?tail=all&limitBytes=2")])
            .len(),
        2
    );
    for (query, words) in [
        ("?limitBytes=0", "Invalid request."),
        ("?stream=Stdout&tailLines=1", "Invalid request."),
        ("?sinceTime=yesterday", "BadRequest"),
        ("?previous=1", "BadRequest"),
    ] {
        let refused = story.refused(&["get", "--raw", &path(query)]);
        assert!(refused.contains(words), "{query}: {refused}");
    }
}

/// A log agent as DaemonSets of fluent-bit and others are: it follows the links of `/var/log/containers`.
pub(crate) fn log_agents_find_logs_where_they_look(cluster: &Cluster) {
    let story = cluster.namespace("log-agent");
    run(&story, "echo found; exec sleep 10000");
    let links = "/var/log/containers/main_log-agent_main-*.log";
    let read = format!("until grep -q found {links}; do sleep 0.2; done; cat {links}");
    let agent = format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: agent}}
spec:
  restartPolicy: Never
  volumes: [{{name: logs, hostPath: {{path: /var/log}}}}]
  containers:
  - name: main
    image: {TOOLS}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, '{read}']
    volumeMounts: [{{name: logs, mountPath: /var/log, readOnly: true}}]
"
    );
    story.feed(&["apply"], &agent);
    story.wait_value("pod/agent", "{.status.phase}", "Succeeded");
    let collected = story.kubectl(&["logs", "agent"]);
    assert!(collected.ends_with(" stdout F found\n"), "{collected}");
}

//! Usage that the node reports.

use crate::support::Kubectl;
use crate::support::cluster::Cluster;
use crate::support::image::TOOLS;

pub(crate) fn the_node_tells_what_is_used_since_when(cluster: &Cluster) {
    let story = cluster.namespace("figures");
    let container = |name: &str, command: &str| {
        format!("{{name: {name}, image: '{TOOLS}', imagePullPolicy: IfNotPresent, command: [{command}]}}")
    };
    for (name, main) in [("runs", "sleep, '10000'"), ("ended", "'true'")] {
        let (first, main) = (container("first", "'true'"), container("main", main));
        story.feed(
            &["apply"],
            &format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{terminationGracePeriodSeconds: 1, restartPolicy: Never, initContainers: [{first}], containers: [{main}]}}}}"
            ),
        );
    }
    story.wait("pod/runs", "condition=Ready");
    story.wait_value("pod/ended", "{.status.phase}", "Succeeded");
    let node = story.field("pod/runs", "{.spec.nodeName}");
    let ask = |path: &str| story.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/{path}")]);
    let document = |path: &str| serde_json::from_str::<serde_json::Value>(&ask(path)).expect("JSON");
    let config = &document("configz")["kubeletconfig"];
    assert_eq!(
        (&config["maxPods"], &config["registerNode"]),
        (&110.into(), &true.into())
    );
    let running = document("runningpods/");
    let running = running["items"].as_array().expect("pods").iter();
    let running: Vec<_> = running.map(|pod| &pod["metadata"]["name"]).collect();
    assert!(
        running.contains(&&"runs".into()) && !running.contains(&&"ended".into()),
        "{running:?}"
    );
    let summary = || serde_json::from_str::<serde_json::Value>(&ask("stats/summary")).expect("JSON");
    // What was read for another client may be a moment old.
    story.until("figures of the pod that runs", || {
        let told = summary();
        let mut pods = told["pods"].as_array().expect("pods").iter();
        pods.any(|pod| pod["podRef"]["name"] == "runs" && pod["podRef"]["namespace"] == "figures")
    });
    let told = summary();
    let pods: Vec<_> = told["pods"].as_array().expect("pods").iter().collect();
    let named = |name: &str| pods.iter().find(|pod| pod["podRef"]["name"] == name).copied();
    let runs = named("runs").expect("the pod that runs");
    assert_eq!(named("ended"), None, "what has ended uses nothing");
    let containers = runs["containers"].as_array().expect("containers");
    assert_eq!(containers.len(), 1, "{containers:?}");
    assert_eq!(containers[0]["name"], "main");
    // Each began when it began, whenever one asks.
    let times = |told: &serde_json::Value| {
        let mut pods = told["pods"].as_array().expect("pods").iter();
        let pod = pods.find(|pod| pod["podRef"]["name"] == "runs").expect("the pod");
        let all = [
            &told["node"]["startTime"],
            &pod["startTime"],
            &pod["containers"][0]["startTime"],
        ];
        all.map(|time| {
            time.as_str()
                .expect("a time")
                .parse::<jiff::Timestamp>()
                .expect("a time")
        })
    };
    let [booted, sandbox, main] = times(&told);
    assert!(booted < sandbox && sandbox <= main, "{booted} {sandbox} {main}");
    let started = story.field(
        "pod/runs",
        "{.status.containerStatuses[0].state.running.startedAt}",
    );
    assert!(main <= started.parse().expect("a time"), "{main} {started}");
    let metrics = ask("metrics/resource");
    let of_main = r#"{container="main",namespace="figures",pod="runs"}"#;
    let of_pod = r#"{namespace="figures",pod="runs"}"#;
    for sample in [
        format!("container_cpu_usage_seconds_total{of_main} "),
        format!("container_memory_working_set_bytes{of_main} "),
        format!("container_start_time_seconds{of_main} {}.", main.as_second()),
        format!("pod_cpu_usage_seconds_total{of_pod} "),
        format!("pod_memory_working_set_bytes{of_pod} "),
        "node_cpu_usage_seconds_total ".to_owned(),
        "node_memory_working_set_bytes ".to_owned(),
        "resource_scrape_error 0".to_owned(),
    ] {
        assert!(
            metrics.lines().any(|line| line.starts_with(&sample)),
            "{sample}\n{metrics}"
        );
    }
    let probes = ask("metrics/probes");
    assert!(probes.contains("\nprocess_start_time_seconds "), "{probes}");
    assert_eq!(times(&summary()), [booted, sandbox, main]);
    rows_of_cadvisor(&story, &ask);
    let told = summary();
    let mut pods = told["pods"].as_array().expect("pods").iter();
    let pod = pods.find(|pod| pod["podRef"]["name"] == "runs").expect("the pod");
    assert_eq!(pod["network"]["name"], "eth0", "{pod}");
    assert!(pod["process_stats"]["process_count"].as_u64() >= Some(2), "{pod}");
    assert!(
        pod["containers"][0]["rootfs"]["availableBytes"].as_u64() > Some(0),
        "{pod}"
    );
}

/// Rows of a pod, its sandbox and its container, and of the machine.
fn rows_of_cadvisor(story: &Kubectl, ask: &dyn Fn(&str) -> String) {
    let of_main = r#"container="main","#;
    let of_pod = r#"namespace="figures",pod="runs"}"#;
    story.until("rows of the container", || {
        let has = |line: &str| line.contains(of_main) && line.contains(of_pod);
        ask("metrics/cadvisor").lines().any(has)
    });
    let text = ask("metrics/cadvisor");
    let value = |family: &str, parts: &[&str]| {
        let is_it = |line: &&str| {
            line.starts_with(&format!("{family}{{")) && parts.iter().all(|part| line.contains(part))
        };
        let line = text.lines().find(is_it);
        let line = line.unwrap_or_else(|| panic!("{family} {parts:?}\n{text}"));
        let number = line
            .rsplit_once("} ")
            .and_then(|(_, rest)| rest.split(' ').next());
        number.expect("a value").parse::<f64>().expect("a number")
    };
    for family in [
        "container_memory_working_set_bytes",
        "container_memory_usage_bytes",
        "container_threads",
    ] {
        assert!(value(family, &[of_main, of_pod]) > 0.0, "{family}");
        assert!(
            value(family, &[r#"container="","#, of_pod]) > 0.0,
            "{family} of the pod"
        );
    }
    assert!(value("container_processes", &[of_main, of_pod]) >= 1.0);
    assert!(value("container_file_descriptors", &[of_main, of_pod]) >= 1.0);
    assert!(value("container_spec_cpu_shares", &[of_main, of_pod]) >= 2.0);
    let received = ("container_network_receive_bytes_total", r#"interface="eth0""#);
    assert!(value(received.0, &[r#"container="","#, received.1, of_pod]) >= 0.0);
    assert!(value("container_memory_working_set_bytes", &[r#"id="/","#]) > 0.0);
    assert!(value("container_fs_limit_bytes", &[r#"id="/","#]) > 0.0);
    assert!(value("machine_memory_bytes", &[]) > 0.0);
    assert!(text.contains("\ncontainer_scrape_error 0\n"), "{text}");
}

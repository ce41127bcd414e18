//! Huge pages: the node counts those of the kernel, and a pod has a volume of them.

use crate::support::cluster::Cluster;
use crate::support::image::TOOLS;
use crate::support::kubectl::skipped;

/// Pages of 2 MiB that the kernel keeps.
const FILE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
/// Pages for the suite.
const PAGES: &str = "8";

/// Pages that the kernel keeps while the suite runs: an agent counts them at its start.
pub(crate) struct KernelPages {
    before: String,
}

impl KernelPages {
    /// Has them kept where a scenario is to run and the kernel permits it.
    pub(crate) fn keep() -> Option<Self> {
        let runs = std::env::args().any(|word| word == "--ignored" || word == "--include-ignored");
        let before = std::fs::read_to_string(FILE).ok().filter(|_| runs)?;
        std::fs::write(FILE, PAGES).ok()?;
        Some(Self { before })
    }
}

impl Drop for KernelPages {
    fn drop(&mut self) {
        // The suite is over, and nothing can be done about a failure.
        let _ = std::fs::write(FILE, &self.before);
    }
}

fn pod(name: &str, limits: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  volumes: [{{name: pages, emptyDir: {{medium: HugePages}}}}]
  containers:
  - name: main
    image: {TOOLS}
    imagePullPolicy: IfNotPresent
    command: [sleep, '10000']
    resources: {{limits: {{memory: 32Mi{limits}}}}}
    volumeMounts: [{{name: pages, mountPath: /pages}}]
"
    )
}

pub(crate) fn huge_pages_are_counted_and_mounted(cluster: &Cluster) {
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    if kept.trim() != PAGES {
        return skipped(
            "huge_pages_are_counted_and_mounted",
            "the kernel keeps no huge pages for it",
        );
    }
    let story = cluster.namespace("huge-pages");
    for list in ["capacity", "allocatable"] {
        let path = format!("jsonpath={{.items[0].status.{list}.hugepages-2Mi}}");
        assert_eq!(story.kubectl(&["get", "nodes", "-o", &path]), "16Mi", "{list}");
    }
    story.feed(&["apply"], &pod("main", ", hugepages-2Mi: 4Mi"));
    story.feed(&["apply"], &pod("without", ""));
    story.wait("pod/main", "condition=Ready");
    let mount = story.kubectl(&["exec", "main", "--", "grep", " /pages ", "/proc/mounts"]);
    for part in [" hugetlbfs ", "pagesize=2M", "size=4194304"] {
        assert!(mount.contains(part), "{part}: {mount}");
    }
    let in_use = ["exec", "main", "--", "truncate", "-s", "4M", "/pages/file"];
    story.kubectl(&in_use);
    story.until("the pod without a request says why its volume is missing", || {
        let events = story.kubectl(&["get", "events", "-o", "jsonpath={.items[*].message}"]);
        events.contains("there is no resource request for huge pages")
    });
    story.feed(&["apply"], &pod("too-many", ", hugepages-2Mi: 16Mi"));
    story.until("the scheduler has no node with so many", || {
        let events = story.kubectl(&["get", "events", "-o", "jsonpath={.items[*].message}"]);
        events.contains("Insufficient hugepages-2Mi")
    });
}

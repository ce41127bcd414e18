//! Clients that write and watch while processes are killed.

use crate::support::kubectl::Kubectl;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Creates ConfigMaps as fast as it can, and remembers which were acknowledged.
pub(crate) struct Writer {
    end: Arc<AtomicBool>,
    thread: JoinHandle<BTreeSet<String>>,
}

impl Writer {
    pub(crate) fn start(kubectl: &Kubectl, name: &str) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let (told, kubectl, name) = (Arc::clone(&end), kubectl.clone(), name.to_owned());
        let thread = std::thread::spawn(move || {
            let mut acknowledged = BTreeSet::new();
            for number in 0.. {
                if told.load(Ordering::Relaxed) {
                    break;
                }
                let name = format!("{name}-{number}");
                if kubectl
                    .try_kubectl(&["create", "configmap", &name])
                    .status
                    .success()
                {
                    acknowledged.insert(name);
                }
            }
            acknowledged
        });
        Self { end, thread }
    }

    /// The names that were acknowledged.
    pub(crate) fn end(self) -> BTreeSet<String> {
        self.end.store(true, Ordering::Relaxed);
        self.thread.join().expect("writing does not panic")
    }
}

/// A watch of the namespace's ConfigMaps from a revision on; it ends with the server.
pub(crate) struct Watch {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

/// Events of a watch: each object's name and the revision of the event, in order.
pub(crate) type Seen = Vec<(String, u64)>;

impl Watch {
    pub(crate) fn start(kubectl: &Kubectl, revision: u64) -> Self {
        let namespace = kubectl.namespace.as_deref().unwrap_or("default");
        let path = format!("/api/v1/namespaces/{namespace}/configmaps?watch=1&resourceVersion={revision}");
        let mut command = kubectl.command(&["get", "--raw", &path]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("kubectl starts");
        let lines = BufReader::new(child.stdout.take().expect("its output is ours"));
        Self { child, lines }
    }

    /// Reads on until `enough`, or until the server has gone.
    pub(crate) fn read(&mut self, enough: impl Fn(&Seen) -> bool) -> Seen {
        let mut seen = Seen::new();
        let mut line = String::new();
        while !enough(&seen) && self.lines.read_line(&mut line).is_ok_and(|count| count > 0) {
            // The last line of a killed server may be cut off: that event was not delivered.
            if let Ok(event) = serde_json::from_str::<Value>(&line) {
                let metadata = &event["object"]["metadata"];
                let name = metadata["name"].as_str().unwrap_or_default().to_owned();
                let revision = metadata["resourceVersion"]
                    .as_str()
                    .and_then(|text| text.parse().ok());
                seen.push((name, revision.expect("an event has a revision")));
            }
            line.clear();
        }
        seen
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

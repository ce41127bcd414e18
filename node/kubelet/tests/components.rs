//! Loops of the agent are supervised: what is spawned without belongs to one pod, connection or question.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

use std::collections::BTreeSet;
use std::path::Path;

/// Tasks that end with what they belong to, or with the component that spawned them.
const OF_ONE_THING: &[&str] = &[
    "attach connection",
    "DRA plugin",
    // A pod that waits for it asks again.
    "checkpoint",
    // Its end is the end of its devices.
    "device plugin",
    // The scope of their component begins again whole.
    "dns address",
    "dns upstream",
    "dns zone",
    // Followers see its end, whatever ended it.
    "CSINode object",
    "end of a followed container",
    "folders of plugins",
    "growing volume",
    "staged volume",
    "usage of a volume",
    "volume of a driver",
    "forwarded connection",
    "forwarded port",
    "healthz connection",
    "kubelet connection",
    "log query",
    "log stream",
    "system log",
    // These begin again by themselves.
    "object watch",
    "pod certificate request watch",
    "pod worker",
    "probe",
    "removal of a local volume",
    "plugin connection",
    "port channels reader",
    "port-forward session",
    "service health",
    "spdy reader",
    "spdy session input",
    "spdy session output",
    "spdy writer",
    "streaming session",
    "tunnel reader",
    "tunnel writer",
    "websocket reader",
    "websocket writer",
    "wiping of ResourceSlices",
];

fn spawned(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            spawned(&path, found);
            continue;
        }
        if path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().ends_with("tests.rs"))
        {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for call in product.split(".spawn(").skip(1) {
            let name = call
                .trim_start()
                .strip_prefix('"')
                .and_then(|rest| rest.split('"').next());
            found.extend(name.map(str::to_owned));
        }
    }
}

#[test]
fn agent_loops_are_supervised() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut found = BTreeSet::new();
    for part in ["dns", "kubelet", "network", "proxy", "volume"] {
        spawned(&root.join("node").join(part).join("src"), &mut found);
    }
    spawned(&root.join("cmd/knarr/src"), &mut found);
    let listed: BTreeSet<String> = OF_ONE_THING.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(
        found, listed,
        "a loop is kept by `Runtime::keep` or `supervise`; what ends by itself is listed here"
    );
}

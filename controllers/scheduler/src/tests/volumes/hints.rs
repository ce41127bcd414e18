//! Changes that wake a pod that a plugin rejected.

use super::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    /// Plugin and kind of object.
    kind: String,
    pod: Value,
    #[serde(default)]
    old: Value,
    #[serde(default)]
    new: Value,
    queue: bool,
}

fn change(scheduler: &mut Scheduler, kind: &str, object: &Value, is_gone: bool) {
    let (key, now) = (key_of(object), Duration::ZERO);
    let name = &key.name;
    fn some<T>(is_gone: bool, of: fn(&Value) -> T, object: &Value) -> Option<T> {
        (!is_gone).then(|| of(object))
    }
    match kind {
        "claim" => scheduler.claim_changed(&key, some(is_gone, claim_of, object), now),
        "class" => scheduler.class_changed(name, some(is_gone, class_of, object), now),
        "volume" => scheduler.volume_changed(name, some(is_gone, volume_of, object), now),
        "capacity" => scheduler.capacity_changed(&key, some(is_gone, capacity_of, object), now),
        "driver" => scheduler.driver_changed(name, some(is_gone, driver_of, object), now),
        "csi-node" => scheduler.csi_node_changed(name, some(is_gone, csi_node_of, object), now),
        "attachment" => scheduler.attachment_changed(name, some(is_gone, attachment_of, object), now),
        "pod" => {
            let pod = (!is_gone).then(|| pod_of(object));
            scheduler.pod_changed(&key, pod.as_ref(), now);
        }
        other => panic!("{other}"),
    }
}

#[test]
fn changes_wake_rejected_pods_as_upstreams() {
    let mut count = 0;
    for line in include_str!("data/volume_hints.jsonl").lines() {
        let mut case: Case = serde_json::from_str(line).unwrap();
        let (plugin, kind) = case.kind.split_once(' ').unwrap();
        if kind == "pod" {
            case.old["metadata"]["name"] = json!("gone");
            if plugin == "VolumeRestrictions" {
                case.old["spec"]["nodeName"] = json!("n");
            }
        }
        let mut scheduler = Scheduler::default();
        if !case.old.is_null() {
            change(&mut scheduler, kind, &case.old, false);
        }
        let rows = default_plugins().filter;
        let row = rows.iter().find(|row| row.name() == plugin).unwrap();
        let pod = pod_of(&case.pod);
        scheduler.queue.set(Arc::clone(&pod), None, Duration::ZERO);
        scheduler.queue.pop(Duration::ZERO).unwrap();
        scheduler.queue.reject(
            &pod.key,
            BTreeSet::from([row.name()]),
            row.plugin.requeue_on(),
            Duration::ZERO,
        );
        let is_gone = case.new.is_null();
        if !is_gone && kind == "claim" {
            // An update comes with a new version, whatever it changes.
            case.new["metadata"]["resourceVersion"] = json!("2");
        }
        let object = if is_gone { &case.old } else { &case.new };
        change(&mut scheduler, kind, object, is_gone);
        let woken = scheduler.queue.has_next(Duration::ZERO);
        assert_eq!(woken, case.queue, "{}: {}", case.kind, case.name);
        count += 1;
    }
    assert_eq!(count, 65);
}

//! Devices of files of descriptions, given to a container.

use super::*;
use node_cri::v1::{CdiDevice, KeyValue};
use serde_json::{Value, json};
use std::path::Path;

fn source(folders: &[&Path]) -> CdiSource {
    CdiSource {
        folders: folders.iter().map(|own| own.to_path_buf()).collect(),
        ..CdiSource::default()
    }
}

fn write(folder: &Path, name: &str, devices: &[(&str, Value)], shared: Value) {
    let devices: Vec<Value> = devices
        .iter()
        .map(|(name, edits)| json!({"name": name, "containerEdits": edits}))
        .collect();
    let text = json!({
        "cdiVersion": "0.6.0", "kind": "vendor.example/dongle", "devices": devices, "containerEdits": shared,
    });
    std::fs::write(folder.join(name), text.to_string()).unwrap();
}

fn named(names: &[&str]) -> ContainerConfig {
    let cdi_devices = names.iter().map(|name| CdiDevice {
        name: format!("vendor.example/dongle={name}"),
    });
    ContainerConfig {
        cdi_devices: cdi_devices.collect(),
        envs: vec![KeyValue {
            key: "A".to_owned(),
            value: "own".to_owned(),
        }],
        ..ContainerConfig::default()
    }
}

fn injected(folders: &[&Path], names: &[&str]) -> Result<ContainerConfig, String> {
    let mut config = named(names);
    inject(&source(folders), &mut config).map(|()| config)
}

#[track_caller]
fn check_refused(edits: Value, expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.json", &[("x", edits)], json!({}));
    let refused = injected(&[folder.path()], &["x"]).unwrap_err();
    let expected = format!("CDI device injection failed: CDI device \"vendor.example/dongle=x\" {expected}");
    assert_eq!(refused, expected);
}

#[test]
fn cdi_device_gives_what_its_description_says() {
    let folder = tempfile::tempdir().unwrap();
    let node = json!({"path": "/dev/dongle", "hostPath": "/dev/null", "type": "c", "major": 1, "minor": 3});
    let mount =
        json!({"hostPath": "/usr", "containerPath": "/opt/dongle", "options": ["ro", "rbind", "rslave"]});
    let own = json!({"env": ["A=1", "B=x=y"], "deviceNodes": [node], "hooks": []});
    let shared = json!({"env": ["ALL=yes"], "mounts": [mount], "additionalGids": [0, 7, 7]});
    write(
        folder.path(),
        "a.json",
        &[("x", own), ("y", json!({"env": ["C=3"]}))],
        shared,
    );
    let config = injected(&[folder.path()], &["x", "y"]).unwrap();
    assert!(config.cdi_devices.is_empty());
    let variables: Vec<String> = config
        .envs
        .iter()
        .map(|own| format!("{}={}", own.key, own.value))
        .collect();
    assert_eq!(variables, ["ALL=yes", "A=1", "B=x=y", "C=3"]);
    let device = &config.devices[0];
    assert_eq!(
        (
            device.container_path.as_str(),
            device.host_path.as_str(),
            device.permissions.as_str()
        ),
        ("/dev/dongle", "/dev/null", "rwm")
    );
    let mount = &config.mounts[0];
    assert!(mount.readonly && config.mounts.len() == 1);
    assert_eq!((mount.host_path.as_str(), mount.propagation), ("/usr", 1));
    let security = config.linux.unwrap().security_context.unwrap();
    assert_eq!(security.supplemental_groups, [7]);
}

#[test]
fn cdi_device_that_needs_more_than_the_runtime_has_is_refused() {
    let needs = "which needs containerd 1.7.2 or later";
    check_refused(
        json!({"hooks": [{"path": "/bin/true"}]}),
        &format!("has hooks, {needs}"),
    );
    check_refused(
        json!({"mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["nosuid"]}]}),
        &format!("mounts /b with the option \"nosuid\", {needs}"),
    );
    check_refused(
        json!({"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "tmpfs"}]}),
        &format!("mounts tmpfs at /b, {needs}"),
    );
    check_refused(
        json!({"deviceNodes": [{"path": "/dev/null", "fileMode": 1}]}),
        &format!("changes mode or owner of /dev/null, {needs}"),
    );
    check_refused(
        json!({"deviceNodes": [{"path": "/dev/null", "uid": 7}]}),
        &format!("changes mode or owner of /dev/null, {needs}"),
    );
    check_refused(
        json!({"deviceNodes": [{"path": "/dev/null", "major": 7}]}),
        "describes /dev/null as another device than it is",
    );
    check_refused(
        json!({"deviceNodes": [{"path": "/dev/null", "type": "b"}]}),
        "describes /dev/null as another device than it is",
    );
    check_refused(
        json!({"deviceNodes": [{"path": "/etc/passwd"}]}),
        "has /etc/passwd, which is no device",
    );
    check_refused(
        json!({"mounts": [{"hostPath": "/none/such", "containerPath": "/b"}]}),
        "has no /none/such: No such file or directory (os error 2)",
    );
    for (host_path, container_path) in [("usr", "/b"), ("", "/b"), ("/usr", "b"), ("/usr", "")] {
        check_refused(
            json!({"mounts": [{"hostPath": host_path, "containerPath": container_path}]}),
            &format!("mounts {host_path:?} at {container_path:?}, which are no absolute paths"),
        );
    }
    check_refused(
        json!({"env": ["=x"]}),
        "has the variable \"=x\" without a name and a value",
    );
    let many: Vec<String> = (0..5_000).map(|number| format!("V{number}=1")).collect();
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.json", &[("x", json!({"env": many}))], json!({}));
    injected(&[folder.path()], &["x"]).unwrap_err();
}

#[test]
fn cdi_device_is_found_in_the_last_folder_and_in_one_file() {
    let [first, last] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let both = [first.path(), last.path()];
    let of = |value: &str| json!({"env": [format!("FROM={value}")]});
    write(
        first.path(),
        "a.json",
        &[("x", of("first")), ("y", of("first"))],
        json!({}),
    );
    write(last.path(), "a.json", &[("x", of("last"))], json!({}));
    std::fs::write(last.path().join("damaged.json"), "{").unwrap();
    std::fs::write(last.path().join("other.txt"), "{").unwrap();
    std::os::unix::fs::symlink(first.path().join("a.json"), last.path().join("link.json")).unwrap();
    let value = |names: &[&str]| injected(&both, names).map(|config| config.envs[1].value.clone());
    assert_eq!(value(&["x"]).unwrap(), "last");
    assert_eq!(value(&["y"]).unwrap(), "first");
    assert_eq!(
        value(&["x", "z", "none"]).unwrap_err(),
        "CDI device injection failed: unresolvable CDI devices vendor.example/dongle=z, vendor.example/dongle=none"
    );
    write(last.path(), "b.json", &[("x", of("other"))], json!({}));
    let refused = value(&["x"]).unwrap_err();
    assert!(
        refused.contains("conflicting device \"vendor.example/dongle=x\""),
        "{refused}"
    );
}

#[track_caller]
fn check_known(runtime: &str, expected: bool) {
    assert_eq!(is_known_to(runtime), expected, "{runtime}");
}

#[test]
fn cdi_is_known_to_runtimes_from_their_versions_on() {
    check_known("containerd://1.6.20~ds1", false);
    check_known("containerd://1.7.1", false);
    check_known("containerd://1.7.2", true);
    check_known("containerd://2.0", true);
    check_known("containerd://2.0.5", true);
    check_known("containerd://1.10.0-rc.1", true);
    check_known("containerd://unknown", true);
    check_known("cri-o://1.34.0", true);
}

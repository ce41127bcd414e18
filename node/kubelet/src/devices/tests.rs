//! Cases of upstream's `manager_test.go` and `pod_devices_test.go`, and of what a plugin may do wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use node_plugin_api::calls::{Transport, unknown};
use node_plugin_api::device_plugin::client::PluginClient;
use node_plugin_api::device_plugin::messages::{
    CdiDevice, ContainerAllocateResponse, Device, DevicePluginOptions, DeviceSpec, Mount, NumaNode,
    TopologyInfo,
};
use serde_json::{Value, json};

use super::allocations::{Allocation, Allocations};
use super::checkpoint::Data;
use super::choice::{Choice, Request, choose};
use super::container_options::ContainerOptions;
use super::inventory::{Absence, Inventory, STOP_GRACE, devices};
use super::{DEVICES_MAX, ID_BYTES_MAX, PLUGINS_MAX};
use crate::pods::all_containers;

const GPU: &str = "example.com/gpu";
const NOW: Duration = Duration::from_secs(1_000);

fn nobody() -> PluginClient {
    let answer = |_| std::future::ready(Ok(unknown()));
    PluginClient::new(Transport::new(tower::service_fn(answer)))
}

fn device(id: &str, health: &str) -> Device {
    Device {
        id: id.to_owned(),
        health: health.to_owned(),
        topology: None,
    }
}

/// A plugin that has listed so many devices, the last of which are not healthy.
fn registered(inventory: &mut Inventory, resource: &str, all: usize, unhealthy: usize) -> u64 {
    let options = DevicePluginOptions::default();
    let (registration, _) = inventory.connect(resource, nobody(), options).unwrap();
    let health = |at: usize| {
        if at < all - unhealthy {
            "Healthy"
        } else {
            "Unhealthy"
        }
    };
    let listed = (0..all)
        .map(|at| device(&format!("dev{at}"), health(at)))
        .collect();
    assert_eq!(
        inventory.list(resource, registration, devices(listed).unwrap()),
        Ok(true)
    );
    registration
}

#[track_caller]
fn check_numbers(inventory: &Inventory, resource: &str, capacity: usize, allocatable: usize) {
    let numbers = inventory.node_devices();
    let found = (numbers.capacity[resource], numbers.allocatable[resource]);
    assert_eq!(found, (capacity, allocatable), "{resource}");
}

/// Upstream's `TestUpdateCapacityAllocatable`.
#[test]
fn devices_of_a_node_are_those_that_plugins_list() {
    let mut inventory = Inventory::default();
    let first = registered(&mut inventory, GPU, 3, 1);
    check_numbers(&inventory, GPU, 3, 2);
    for (listed, capacity, allocatable) in [
        (&[("a", "Healthy"), ("b", "Healthy")][..], 2, 2),
        (&[("a", "Unhealthy"), ("b", "healthy")], 2, 0),
        (&[], 0, 0),
        (&[("a", "Healthy"), ("a", "Unhealthy")], 1, 0),
        (&[("a", "Healthy"), ("b", "Unhealthy"), ("c", "Healthy")], 3, 2),
    ] {
        let listed = listed.iter().map(|(id, health)| device(id, health)).collect();
        assert_eq!(inventory.list(GPU, first, devices(listed).unwrap()), Ok(true));
        check_numbers(&inventory, GPU, capacity, allocatable);
    }
    registered(&mut inventory, "example.com/nic", 1, 0);
    check_numbers(&inventory, "example.com/nic", 1, 1);
    // Its plugin goes: its devices stay for a while, and none is healthy.
    assert!(inventory.stop(GPU, first, NOW));
    check_numbers(&inventory, GPU, 3, 0);
    assert!(!inventory.expire(NOW + STOP_GRACE));
    assert!(inventory.expire(NOW + STOP_GRACE + Duration::from_secs(1)));
    check_numbers(&inventory, GPU, 0, 0);
    assert!(!inventory.is_registered(GPU));
    assert_eq!(inventory.registered().len(), 1);
}

#[test]
fn plugin_that_registers_again_takes_the_place_of_the_one_before() {
    let mut inventory = Inventory::default();
    let options = DevicePluginOptions::default();
    let first = registered(&mut inventory, GPU, 2, 0);
    let (second, replaced) = inventory.connect(GPU, nobody(), options).unwrap();
    check_numbers(&inventory, GPU, 2, 2);
    assert!(inventory.awaits(GPU));
    assert_eq!(
        inventory.list(GPU, first, BTreeMap::new()),
        Ok(false),
        "it is not asked any more"
    );
    assert!(!inventory.stop(GPU, first, NOW));
    assert!(!replaced.is_cancelled());
    inventory.connect(GPU, nobody(), options).unwrap();
    assert!(replaced.is_cancelled());
    assert!(!inventory.is_current(GPU, second));
}

#[test]
fn plugins_of_the_agent_before_are_awaited() {
    let mut inventory = Inventory::default();
    inventory.expect([GPU.to_owned()], NOW);
    check_numbers(&inventory, GPU, 0, 0);
    assert!(inventory.awaits(GPU) && inventory.is_registered(GPU));
    assert_eq!(inventory.connected(GPU).unwrap_err(), Absence::Awaited);
    registered(&mut inventory, GPU, 2, 0);
    check_numbers(&inventory, GPU, 2, 2);
    assert!(!inventory.awaits(GPU));
}

#[test]
fn plugins_and_their_devices_are_bounded() {
    let mut inventory = Inventory::default();
    let options = DevicePluginOptions::default();
    let name = |at: usize| format!("example.com/gpu-{at}");
    let mut last = 0;
    for at in 0..PLUGINS_MAX {
        last = registered(&mut inventory, &name(at), 1, 0);
    }
    assert!(inventory.connect("example.com/more", nobody(), options).is_none());
    assert!(
        inventory.connect(&name(7), nobody(), options).is_some(),
        "it is there"
    );
    assert!(inventory.stop(&name(PLUGINS_MAX - 1), last, NOW));
    assert!(inventory.connect("example.com/more", nobody(), options).is_none());
    inventory.expire(NOW + STOP_GRACE * 2);
    assert!(inventory.connect("example.com/more", nobody(), options).is_some());

    let many = |count: usize| (0..count).map(|at| device(&at.to_string(), "Healthy")).collect();
    assert_eq!(devices(many(DEVICES_MAX)).unwrap().len(), DEVICES_MAX);
    assert!(devices(many(DEVICES_MAX + 1)).is_err());
    assert!(devices(vec![device(&"x".repeat(ID_BYTES_MAX), "Healthy")]).is_ok());
    for id in ["", &"x".repeat(ID_BYTES_MAX + 1)] {
        assert!(devices(vec![device(id, "Healthy")]).is_err());
    }
    let nodes = |count: usize| Device {
        topology: Some(TopologyInfo {
            nodes: vec![NumaNode { id: 0 }; count],
        }),
        ..device("a", "Healthy")
    };
    assert!(devices(vec![nodes(64)]).is_ok() && devices(vec![nodes(65)]).is_err());
}

/// One program can have many plugins; all of them together have a bound.
#[test]
fn devices_of_all_plugins_together_are_bounded() {
    let mut inventory = Inventory::default();
    let long = |count: usize| -> Vec<Device> {
        let id = |at: usize| format!("{at:0>1000}");
        (0..count).map(|at| device(&id(at), "Healthy")).collect()
    };
    let options = DevicePluginOptions::default();
    let (first, _) = inventory.connect(GPU, nobody(), options).unwrap();
    let (second, _) = inventory.connect("example.com/nic", nobody(), options).unwrap();
    assert_eq!(
        inventory.list(GPU, first, devices(long(3_000)).unwrap()),
        Ok(true)
    );
    let more = devices(long(1_000)).unwrap();
    assert!(inventory.list("example.com/nic", second, more.clone()).is_err());
    assert_eq!(inventory.list(GPU, first, devices(long(100)).unwrap()), Ok(true));
    assert_eq!(inventory.list("example.com/nic", second, more), Ok(true));
}

#[test]
fn weight_of_allocations_is_no_less_than_what_the_checkpoint_takes() {
    let mut allocations = Allocations::default();
    let ids = ["\u{1}".repeat(1_000), "\"".repeat(1_000)];
    let devices = ids.map(|id| (id, vec![0, 1, 2]));
    let given = Allocation {
        devices: devices.into(),
        response: Arc::new(response()),
        is_seen: true,
    };
    allocations.insert("u", "c", GPU, given);
    let folder = tempfile::tempdir().unwrap();
    Data::new(&Inventory::default(), &allocations)
        .store(folder.path())
        .unwrap();
    let file = folder.path().join("kubelet_internal_checkpoint");
    let bytes = std::fs::metadata(file).unwrap().len();
    assert!(allocations.weight() as u64 + 300 > bytes, "{bytes}");
}

fn request(required: usize) -> Request<'static> {
    Request {
        uid: "u",
        container: "c",
        resource: GPU,
        required,
        own: None,
        reusable: [].into(),
        healthy: Some(["a", "b", "c", "d"].into()),
        allocated: ["b"].into(),
    }
}

#[test]
fn devices_that_cannot_be_had_are_refused_in_upstreams_words() {
    let cases = [
        (
            Request {
                healthy: None,
                ..request(1)
            },
            "cannot allocate unregistered device example.com/gpu",
        ),
        (
            Request {
                healthy: Some([].into()),
                ..request(1)
            },
            "no healthy devices present; cannot allocate unhealthy devices example.com/gpu",
        ),
        (
            Request {
                own: Some(["x"].into()),
                ..request(1)
            },
            "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/gpu",
        ),
        (
            request(4),
            "requested number of devices unavailable for example.com/gpu. Requested: 4, Available: 3",
        ),
        (
            Request {
                reusable: ["b".to_owned()].into(),
                ..request(5)
            },
            "requested number of devices unavailable for example.com/gpu. Requested: 4, Available: 3",
        ),
        (
            Request {
                own: Some(["a", "b"].into()),
                ..request(1)
            },
            "pod \"u\" container \"c\" changed request for resource \"example.com/gpu\" from 2 to 1",
        ),
    ];
    for (request, expected) in cases {
        assert_eq!(choose(&request), Err(expected.to_owned()));
    }
}

/// Checks the devices that are chosen when the plugin prefers these.
#[track_caller]
fn check_chosen(request: &Request<'_>, preferred: &[&str], expected: &[&str]) {
    let preferred: Vec<String> = preferred.iter().map(|id| (*id).to_owned()).collect();
    let chosen = match choose(request).unwrap() {
        Choice::Kept => Default::default(),
        Choice::Chosen(chosen) => chosen,
        Choice::Open(open) => open.complete(&preferred),
    };
    assert_eq!(chosen.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn devices_are_those_of_init_containers_then_preferred_then_any() {
    check_chosen(&request(0), &[], &[]);
    check_chosen(&request(2), &[], &["a", "c"]);
    check_chosen(&request(3), &[], &["a", "c", "d"]);
    check_chosen(&request(1), &["d", "c"], &["d"]);
    // What a pod has, and what there is not, is no plugin's to prefer.
    check_chosen(&request(2), &["b", "zzz", "d"], &["a", "d"]);
    let after_init = Request {
        reusable: ["b".to_owned(), "c".to_owned()].into(),
        allocated: ["b", "c"].into(),
        ..request(1)
    };
    check_chosen(&after_init, &["d"], &["b"]);
    let more = Request {
        required: 3,
        ..after_init
    };
    check_chosen(&more, &["d"], &["b", "c", "d"]);
    check_chosen(
        &Request {
            own: Some(["a"].into()),
            ..request(1)
        },
        &["d"],
        &[],
    );
}

fn pod(inits: &[(&str, bool)], mains: &[&str]) -> Pod {
    let init = |(name, is_sidecar): &(&str, bool)| match is_sidecar {
        true => json!({"name": name, "restartPolicy": "Always"}),
        false => json!({"name": name}),
    };
    let spec = json!({
        "initContainers": inits.iter().map(init).collect::<Vec<Value>>(),
        "containers": mains.iter().map(|name| json!({"name": name})).collect::<Vec<Value>>(),
    });
    serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": spec})).unwrap()
}

/// Gives every container of a pod so many of four devices, and says which.
fn given(pod: &Pod, amounts: &[usize]) -> Result<Vec<String>, String> {
    let mut allocations = Allocations::default();
    let mut given = Vec::new();
    for ((_, container), required) in all_containers(pod).zip(amounts) {
        let choice = choose(&Request {
            own: allocations.devices_of("u", &container.name, GPU),
            reusable: allocations.reusable(pod, &container.name, GPU),
            allocated: allocations.allocated(GPU),
            ..request(*required)
        })?;
        let chosen = match choice {
            Choice::Kept => Default::default(),
            Choice::Chosen(chosen) => chosen,
            Choice::Open(open) => open.complete(&[]),
        };
        given.push(chosen.iter().cloned().collect::<String>());
        let allocation = Allocation {
            devices: chosen.into_iter().map(|id| (id, Vec::new())).collect(),
            ..Allocation::default()
        };
        allocations.insert("u", &container.name, GPU, allocation);
    }
    Ok(given)
}

/// Upstream's `TestInitContainerDeviceAllocation` and `TestRestartableInitContainerDeviceAllocation`.
#[test]
fn devices_of_init_containers_are_used_again_and_those_of_sidecars_are_not() {
    let plain = pod(&[("i", false), ("j", false)], &["c", "d"]);
    assert_eq!(given(&plain, &[2, 1, 1, 1]).unwrap(), ["ab", "a", "a", "b"]);
    assert_eq!(given(&plain, &[1, 3, 2, 2]).unwrap(), ["a", "abc", "ab", "cd"]);
    assert_eq!(
        given(&plain, &[4, 4, 2, 2]).unwrap(),
        ["abcd", "abcd", "ab", "cd"]
    );
    let sidecar = pod(&[("i", false), ("s", true), ("j", false)], &["c"]);
    assert_eq!(given(&sidecar, &[1, 2, 1, 1]).unwrap(), ["a", "ab", "c", "c"]);
    assert_eq!(given(&sidecar, &[2, 1, 3, 3]).unwrap(), ["ab", "a", "bcd", "bcd"]);
    let refused = given(&sidecar, &[0, 2, 2, 3]).unwrap_err();
    assert!(refused.ends_with("Requested: 1, Available: 0"), "{refused}");
}

fn response() -> ContainerAllocateResponse {
    let spec = |path: &str| DeviceSpec {
        container_path: path.to_owned(),
        host_path: format!("/host{path}"),
        permissions: "mrw".to_owned(),
    };
    ContainerAllocateResponse {
        envs: [("GPU".to_owned(), "a".to_owned())].into(),
        mounts: vec![Mount {
            container_path: "/lib/gpu".to_owned(),
            host_path: "/host/lib/gpu".to_owned(),
            read_only: true,
        }],
        devices: vec![spec("/dev/gpu0"), spec("/dev/gpuctl")],
        annotations: [("example.com/gpu".to_owned(), "a".to_owned())].into(),
        cdi_devices: vec![CdiDevice {
            name: "example.com/gpu=a".to_owned(),
        }],
    }
}

/// Upstream's `TestDeviceRunContainerOptions`.
#[test]
fn answers_of_plugins_are_put_into_a_containers_configuration() {
    let mut other = response();
    other.envs = [
        ("GPU".to_owned(), "b".to_owned()),
        ("NIC".to_owned(), "n".to_owned()),
    ]
    .into();
    other.devices[0].host_path = "/host/dev/other".to_owned();
    other.mounts[0].host_path = "/other".to_owned();
    let mut options = ContainerOptions::default();
    options.add(GPU, &response());
    options.add("example.com/nic", &other);
    let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let environment = options.before(vec![own("PATH", "/bin"), own("NIC", "mine")]);
    assert_eq!(
        environment,
        [own("GPU", "a"), own("PATH", "/bin"), own("NIC", "mine")]
    );
    let mut config = node_cri::v1::ContainerConfig {
        mounts: vec![node_cri::v1::Mount {
            container_path: "/data".to_owned(),
            ..node_cri::v1::Mount::default()
        }],
        annotations: [own("example.com/gpu", "mine")].into(),
        ..node_cri::v1::ContainerConfig::default()
    };
    options.apply(&mut config);
    let mounts: Vec<_> = config
        .mounts
        .iter()
        .map(|mount| (mount.host_path.as_str(), mount.readonly))
        .collect();
    assert_eq!(mounts, [("/host/lib/gpu", true), ("", false)]);
    let devices: Vec<_> = config
        .devices
        .iter()
        .map(|device| device.host_path.as_str())
        .collect();
    assert_eq!(devices, ["/host/dev/gpu0", "/host/dev/gpuctl"]);
    assert_eq!(config.devices[0].permissions, "mrw");
    assert_eq!(config.annotations["example.com/gpu"], "mine");
    assert_eq!(config.cdi_devices.len(), 1);
}

/// Upstream's `TestCheckpoint`.
#[test]
fn allocations_outlive_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Data::load(folder.path()).unwrap().is_none());
    let mut inventory = Inventory::default();
    registered(&mut inventory, GPU, 2, 1);
    let mut allocations = Allocations::default();
    let given = Allocation {
        devices: [("a".to_owned(), vec![0, 1]), ("b".to_owned(), Vec::new())].into(),
        response: Arc::new(response()),
        is_seen: false,
    };
    allocations.insert("u", "c", GPU, given.clone());
    allocations.insert("v", "c", GPU, Allocation::default());
    Data::new(&inventory, &allocations).store(folder.path()).unwrap();
    let data = Data::load(folder.path()).unwrap().unwrap();
    assert_eq!(data.resources().collect::<Vec<_>>(), [GPU]);
    let mut loaded = data.allocations();
    assert_eq!(loaded.of("u", "c").unwrap()[GPU], given);
    assert!(loaded.has_pod("v"));
    assert_eq!(loaded.counts(), [(GPU.to_owned(), 2)].into());
    assert!(loaded.retain(|uid| uid == "v") && !loaded.has_pod("u"));

    // The form is upstream's.
    let file = folder.path().join("kubelet_internal_checkpoint");
    let text: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let entry = &text["Data"]["PodDeviceEntries"][0];
    assert_eq!(entry["PodUID"], "u");
    assert_eq!(entry["DeviceIDs"], json!({"-1": ["b"], "0": ["a"], "1": ["a"]}));
    assert_eq!(text["Data"]["RegisteredDevices"], json!({GPU: ["dev0"]}));

    let whole = std::fs::read_to_string(&file).unwrap();
    for damaged in [
        whole[..whole.len() / 2].to_owned(),
        whole.replace("\"u\"", "\"w\""),
    ] {
        std::fs::write(&file, damaged).unwrap();
        assert!(Data::load(folder.path()).is_err());
    }
}

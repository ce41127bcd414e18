//! Pods that are given processors and devices, rejected ones, and agents that end.

use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use machinery_runtime::Runtime;
use serde_json::json;

use super::config::{CpuManagerPolicy, TopologyManagerPolicy, TopologyManagerScope};
use super::manager::ResourceManagers;
use super::rejection::AllocationError;
use crate::config::KubeletConfig;
use crate::devices::manager::DeviceManager;
use crate::devices::manager_tests::{GPU, agent, in_simulation, with_plugin};

/// A machine of two NUMA nodes with two processors each: 0 and 1, and 2 and 3.
fn make_machine(system: &Path) {
    let write = |name: &str, text: &str| {
        let file = system.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    write("cpu/online", "0-3");
    write("node/online", "0-1");
    write("node/node0/cpulist", "0-1");
    write("node/node1/cpulist", "2-3");
    for cpu in 0..4 {
        let folder = format!("cpu/cpu{cpu}/topology");
        write(&format!("{folder}/physical_package_id"), &(cpu / 2).to_string());
        write(&format!("{folder}/thread_siblings_list"), &cpu.to_string());
    }
}

fn config(folder: &Path, topology: TopologyManagerPolicy) -> KubeletConfig {
    let mut config = KubeletConfig::for_data_dir(folder.join("data"));
    config.resource_managers.cpu_policy = CpuManagerPolicy::Static;
    config.resource_managers.reserved_cpus = "0".to_owned();
    config.resource_managers.topology_policy = topology;
    let own = config.resource_managers.clone();
    own.override_reserve(&mut config.reserve);
    config
}

async fn managers(runtime: &Runtime, folder: &Path, config: &KubeletConfig) -> Arc<ResourceManagers> {
    let system = folder.join("system");
    make_machine(&system);
    std::fs::create_dir_all(&config.data_dir).unwrap();
    let managers = ResourceManagers::on(runtime, config, &system).unwrap();
    managers.load(&config.data_dir).await.unwrap();
    managers.settle(|_| true);
    Arc::new(managers)
}

async fn devices(runtime: &Runtime, folder: &Path, ids: &'static [&'static str]) -> Arc<DeviceManager> {
    let folder = folder.join("devices");
    std::fs::create_dir_all(&folder).unwrap();
    let devices = agent(runtime, &folder, ids).await;
    with_plugin(&devices).await;
    devices
}

/// A Guaranteed pod that requests so many processors and devices.
fn pod(uid: &str, cpus: u32, devices: u32) -> Pod {
    let mut amounts = json!({"cpu": cpus.to_string(), "memory": "1Gi"});
    if devices > 0 {
        amounts[GPU] = devices.to_string().into();
    }
    let container = json!({"name": "c", "resources": {"requests": amounts, "limits": amounts}});
    let spec = json!({"containers": [container]});
    serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": spec})).unwrap()
}

fn own(managers: &ResourceManagers, uid: &str) -> String {
    managers.cpus_of(uid, "c").to_string()
}

#[test]
fn pod_has_its_processors_until_it_ends_and_the_next_agent_knows() {
    in_simulation(|runtime, folder| async move {
        let config = config(folder.path(), TopologyManagerPolicy::None);
        let managers = self::managers(&runtime, folder.path(), &config).await;
        let devices = devices(&runtime, folder.path(), &[]).await;
        assert_eq!(own(&managers, "other"), "0-3");
        managers
            .admit(&devices, &pod("u", 2, 0), false)
            .await
            .unwrap()
            .keep();
        assert_eq!(
            (own(&managers, "u"), own(&managers, "other")),
            ("2-3".to_owned(), "0-1".to_owned())
        );
        // Another that is rejected gives back what it was given, and so does one for which there are not enough.
        let second = pod("v", 1, 0);
        let rejected = managers.admit(&devices, &second, false).await.unwrap();
        assert_eq!(own(&managers, "v"), "1");
        drop(rejected);
        assert_eq!(own(&managers, "v"), "0-1");
        let short = managers.admit(&devices, &pod("v", 2, 0), false).await.map(|_| ());
        let why = "not enough cpus available to satisfy request: requested=2, available=1";
        assert_eq!(short, Err(AllocationError::Unexpected(why.to_owned())));
        managers.save().await.unwrap();
        let next = self::managers(&runtime, folder.path(), &config).await;
        assert_eq!(own(&next, "u"), "2-3");
        next.settle(|uid| uid != "u");
        assert_eq!(own(&next, "other"), "0-3");
        next.save().await.unwrap();
        let mut other = config.clone();
        other.resource_managers.cpu_policy = CpuManagerPolicy::None;
        let other = ResourceManagers::on(&runtime, &other, &folder.path().join("system")).unwrap();
        let refused = other.load(&config.data_dir).await.unwrap_err();
        assert!(
            refused.contains("configured policy \"none\" differs from state checkpoint policy \"static\""),
            "{refused}"
        );
    });
}

#[test]
fn reserved_processors_are_of_the_machine() {
    in_simulation(|runtime, folder| async move {
        let mut config = config(folder.path(), TopologyManagerPolicy::None);
        make_machine(folder.path());
        config.resource_managers.reserved_cpus = "0,7".to_owned();
        let refused = ResourceManagers::on(&runtime, &config, folder.path()).unwrap_err();
        assert_eq!(refused, "reserved-cpus: 0,7 is not a subset of online-cpus: 0-3");
        config.resource_managers.reserved_cpus = String::new();
        config.reserve.system.clear();
        let refused = ResourceManagers::on(&runtime, &config, folder.path()).unwrap_err();
        assert!(refused.ends_with("to be greater than zero"), "{refused}");
    });
}

#[test]
fn pod_has_devices_and_processors_of_one_numa_node() {
    in_simulation(|runtime, folder| async move {
        let config = config(folder.path(), TopologyManagerPolicy::SingleNumaNode);
        let managers = self::managers(&runtime, folder.path(), &config).await;
        let devices = devices(&runtime, folder.path(), &["a@0", "b@1"]).await;
        let device = |uid: &str| {
            let own = devices.devices_of(uid, "c");
            own.get(GPU)
                .map(|own| own.keys().cloned().collect::<Vec<_>>().join(","))
        };
        // The first device by name is of node 0, which has but one processor to give.
        managers
            .admit(&devices, &pod("u", 2, 1), false)
            .await
            .unwrap()
            .keep();
        assert_eq!(
            (own(&managers, "u"), device("u").unwrap()),
            ("2-3".to_owned(), "b@1".to_owned())
        );
        let refused = managers.admit(&devices, &pod("v", 2, 1), false).await.map(|_| ());
        assert_eq!(refused, Err(AllocationError::TopologyAffinity));
        assert_eq!(device("v"), None);
        managers
            .admit(&devices, &pod("w", 1, 1), false)
            .await
            .unwrap()
            .keep();
        assert_eq!(
            (own(&managers, "w"), device("w").unwrap()),
            ("1".to_owned(), "a@0".to_owned())
        );
        let text = runtime.metrics().text();
        for line in [
            "kubelet_topology_manager_admission_requests_total 3",
            "kubelet_topology_manager_admission_errors_total 1",
            "kubelet_container_aligned_compute_resources_count{boundary=\"numa_node\",scope=\"container\"} 2",
            "kubelet_cpu_manager_allocation_per_numa{numa_node=\"1\"} 2",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}: {text}");
        }
    });
}

#[test]
fn pod_is_aligned_as_a_whole() {
    in_simulation(|runtime, folder| async move {
        let mut config = config(folder.path(), TopologyManagerPolicy::Restricted);
        config.resource_managers.topology_scope = TopologyManagerScope::Pod;
        let managers = self::managers(&runtime, folder.path(), &config).await;
        let devices = devices(&runtime, folder.path(), &["a@0", "b@1"]).await;
        let mut pod = pod("u", 1, 0);
        let containers = &mut pod.spec.as_mut().unwrap().containers;
        containers.push(containers[0].clone());
        containers[1].name = "d".to_owned();
        managers.admit(&devices, &pod, false).await.unwrap().keep();
        let both = [own(&managers, "u"), managers.cpus_of("u", "d").to_string()];
        assert_eq!(both, ["2", "3"], "each for itself would be of the fuller node");
    });
}

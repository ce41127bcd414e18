//! Slices of a real systemd, with either version of cgroups. Needs root and systemd: `cargo test --test slices -- --ignored`.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

use std::path::Path;
use std::sync::Arc;

use machinery_runtime::Runtime;
use node_sys::cgroup::{CgroupDriver, CgroupResources, Cgroups, SystemdCgroups, detect};
use node_sys::systemd::{SystemdManager, is_running};

fn can_run() -> bool {
    let can = is_running() && Path::new("/run/dbus/system_bus_socket").exists();
    if !can {
        eprintln!("SKIPPED, not passed: slices, since systemd or its bus does not run");
    }
    can
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and systemd"]
async fn slices_of_systemd_have_limits_and_go() {
    if !can_run() {
        return;
    }
    let runtime = Runtime::real();
    let manager = SystemdManager::new(runtime.clone(), None);
    let groups = SystemdCgroups::new(detect(), Arc::new(manager));
    let outcome = runtime.blocking(move || {
        let root = format!("knarr-slices-{}", std::process::id());
        let all = CgroupDriver::Systemd.path([root.as_str()]);
        let pod = CgroupDriver::Systemd.path([root.as_str(), "pod1-a"]);
        limits_are_set_and_changed(&groups, &pod);
        groups.remove(&pod).unwrap();
        assert!(!groups.exists(&pod), "it is gone");
        groups.remove(&pod).unwrap();
        groups.remove(&all).unwrap();
        assert!(!groups.exists(&all), "and the one around it");
    });
    outcome.await.unwrap();
}

fn limits_are_set_and_changed(groups: &dyn Cgroups, pod: &str) {
    let mut wanted = CgroupResources {
        cpu_shares: Some(512),
        cpu_quota_us: Some(20_400),
        cpu_period_us: Some(100_000),
        memory_limit_bytes: Some(64 << 20),
        pids_limit: Some(9),
    };
    groups.apply(pod, &wanted).expect("systemd takes it");
    let found = groups.limits(pod);
    assert_eq!(
        (found.cpu_quota_us, found.memory_limit_bytes),
        (Some(21_000), Some(64 << 20))
    );
    wanted.cpu_quota_us = Some(-1);
    wanted.memory_limit_bytes = Some(32 << 20);
    groups.apply(pod, &wanted).expect("systemd takes it");
    let found = groups.limits(pod);
    assert_eq!(
        (found.cpu_quota_us, found.memory_limit_bytes),
        (None, Some(32 << 20))
    );
}

//! Paths of the groups of pods and containers. Pure.

use k8s_openapi::api::core::v1::Pod;
use node_sys::cgroup::CgroupDriver;

use super::resources::{Qos, qos};
use crate::pods::uid;

/// Groups below a node's parent, as its driver names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PodGroups<'a> {
    /// The parent, upstream's `cgroupRoot`: a path of names, whatever the driver.
    pub(crate) root: &'a str,
    pub(crate) driver: CgroupDriver,
}

impl PodGroups<'_> {
    fn below(self, names: &[&str]) -> String {
        let parent = self.root.split('/').chain(["kubepods"]);
        self.driver.path(parent.chain(names.iter().copied()))
    }

    /// The group above the groups of all pods.
    pub(crate) fn all(self) -> String {
        self.below(&[])
    }

    /// The group of the pods of a class.
    pub(crate) fn of_class(self, class: Qos) -> String {
        self.below(names(class))
    }

    /// The pod's own group.
    pub(crate) fn of_pod(self, pod: &Pod) -> String {
        self.of_uid(qos(pod), uid(pod))
    }

    fn of_uid(self, class: Qos, uid: &str) -> String {
        let own = format!("pod{uid}");
        let names: Vec<&str> = names(class).iter().copied().chain([&*own]).collect();
        self.below(&names)
    }

    /// Possible groups of a pod, one for each class.
    pub(crate) fn possible(self, uid: &str) -> [String; 3] {
        [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort].map(|class| self.of_uid(class, uid))
    }

    /// A container's own group, which the runtime makes in the pod's.
    pub(crate) fn of_container(self, pod: &Pod, id: &str) -> String {
        self.driver.container_path(&self.of_pod(pod), id)
    }
}

fn names(class: Qos) -> &'static [&'static str] {
    match class {
        Qos::Guaranteed => &[],
        Qos::Burstable => &["burstable"],
        Qos::BestEffort => &["besteffort"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(root: &str, driver: CgroupDriver, class: &str, expected: &str) {
        let text = format!(r#"{{"metadata":{{"uid":"1-f"}},"status":{{"qosClass":"{class}"}}}}"#);
        let pod: Pod = serde_json::from_str(&text).unwrap();
        let groups = PodGroups { root, driver };
        assert_eq!(groups.of_pod(&pod), expected);
        assert!(groups.possible("1-f").contains(&expected.to_owned()));
        assert!(expected.starts_with(&groups.all()));
        assert!(expected.starts_with(&groups.of_class(qos(&pod))));
    }

    #[test]
    fn pod_groups_are_where_the_driver_has_them() {
        let driver = CgroupDriver::Cgroupfs;
        check("/", driver, "BestEffort", "/kubepods/besteffort/pod1-f");
        check("/n/", driver, "Guaranteed", "/n/kubepods/pod1-f");
        let driver = CgroupDriver::Systemd;
        check(
            "/",
            driver,
            "Burstable",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_f.slice",
        );
        check(
            "/my-node",
            driver,
            "Guaranteed",
            "/my_node.slice/my_node-kubepods.slice/my_node-kubepods-pod1_f.slice",
        );
    }
}

//! Names of groups, as a driver has them. Pure. Upstream: `pkg/kubelet/cm/cgroup_manager_linux.go`.

use std::fmt;
use std::str::FromStr;

/// Ending of the names of slices.
const SLICE: &str = ".slice";

/// The program that makes groups, upstream's `cgroupDriver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CgroupDriver {
    /// The agent and the runtime themselves.
    #[default]
    Cgroupfs,
    /// systemd: the groups of pods are slices, those of containers scopes.
    Systemd,
}

impl CgroupDriver {
    /// Upstream's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
        }
    }

    /// Path of the group with these names, the outermost first. A slice has the names of those around it in its own, with `-`
    /// between them, so that `-` within a name becomes `_`.
    pub fn path<'a>(self, names: impl IntoIterator<Item = &'a str>) -> String {
        let mut path = String::new();
        let mut slice = String::new();
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            path.push('/');
            match self {
                Self::Cgroupfs => path.push_str(name),
                Self::Systemd => {
                    if !slice.is_empty() {
                        slice.push('-');
                    }
                    // As upstream's `escapeSystemdCgroupName`: `-` is systemd's separator of nested slices.
                    slice.push_str(&name.replace('-', "_"));
                    path.push_str(&slice);
                    path.push_str(SLICE);
                }
            }
        }
        if path.is_empty() { "/".to_owned() } else { path }
    }

    /// Path of a group that others have made, by a path or the name of a slice.
    pub fn path_of_existing(self, named: &str) -> String {
        match self {
            Self::Cgroupfs => self.path(named.split('/')),
            Self::Systemd => {
                let last = named.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
                self.path(last.strip_suffix(SLICE).unwrap_or(last).split('-'))
            }
        }
    }

    /// Path of a container's group in that of its pod. Both runtimes and the agent count on this name, containerd's.
    pub fn container_path(self, pod: &str, id: &str) -> String {
        match self {
            Self::Cgroupfs => format!("{pod}/{id}"),
            Self::Systemd => format!("{pod}/cri-containerd-{id}.scope"),
        }
    }
}

impl fmt::Display for CgroupDriver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for CgroupDriver {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cgroupfs" => Ok(Self::Cgroupfs),
            "systemd" => Ok(Self::Systemd),
            other => Err(format!("{other:?} must be one of: \"cgroupfs\" or \"systemd\"")),
        }
    }
}

/// The slice of a path, and the one around it; `None` for the root, and for a group that is none.
pub(super) fn slice_and_parent(path: &str) -> Option<(&str, &str)> {
    let mut names = path.rsplit('/').filter(|name| !name.is_empty());
    let slice = names.next().filter(|name| name.ends_with(SLICE))?;
    // `-.slice` is systemd's name of the root.
    Some((slice, names.next().unwrap_or("-.slice")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's `TestCgroupNameToSystemd`, `TestCgroupNameToSystemdBasename` and `TestCgroupNameToCgroupfs`.
    #[test]
    fn cgroup_names_of_drivers_are_upstreams() {
        let pod = "pod-6c1a4e95-6bb6-11e6-bc26-28d2444e470d";
        for (names, systemd, cgroupfs) in [
            (&[][..], "/", "/"),
            (&["Burstable"], "/Burstable.slice", "/Burstable"),
            (
                &["Burstable", "pod-123"],
                "/Burstable.slice/Burstable-pod_123.slice",
                "/Burstable/pod-123",
            ),
            (
                &["BestEffort", pod],
                "/BestEffort.slice/BestEffort-pod_6c1a4e95_6bb6_11e6_bc26_28d2444e470d.slice",
                "/BestEffort/pod-6c1a4e95-6bb6-11e6-bc26-28d2444e470d",
            ),
            (&["kubepods"], "/kubepods.slice", "/kubepods"),
            (
                &["test", "a", "b", "Burstable"],
                "/test.slice/test-a.slice/test-a-b.slice/test-a-b-Burstable.slice",
                "/test/a/b/Burstable",
            ),
        ] {
            let path = |driver: CgroupDriver| driver.path(names.iter().copied());
            assert_eq!(path(CgroupDriver::Systemd), systemd);
            assert_eq!(path(CgroupDriver::Cgroupfs), cgroupfs);
        }
    }

    /// Upstream's `ParseSystemdToCgroupName` and `ParseCgroupfsToCgroupName`, and `Name` of what they return.
    #[test]
    fn cgroup_of_others_is_found_by_its_path_or_its_slice() {
        for (named, path) in [
            ("system.slice", "/system.slice"),
            ("/system.slice/", "/system.slice"),
            (
                "/runtime.slice/runtime-a_b.slice",
                "/runtime.slice/runtime-a_b.slice",
            ),
            ("runtime-a_b.slice", "/runtime.slice/runtime-a_b.slice"),
            ("/system", "/system.slice"),
        ] {
            assert_eq!(CgroupDriver::Systemd.path_of_existing(named), path, "{named}");
        }
        for (named, path) in [
            ("/a/b-c", "/a/b-c"),
            ("system.slice", "/system.slice"),
            ("/", "/"),
        ] {
            assert_eq!(CgroupDriver::Cgroupfs.path_of_existing(named), path, "{named}");
        }
    }

    #[test]
    fn slice_of_a_path_has_the_one_around_it() {
        let pod = "/kubepods.slice/kubepods-pod1.slice";
        assert_eq!(
            slice_and_parent(pod),
            Some(("kubepods-pod1.slice", "kubepods.slice"))
        );
        assert_eq!(
            slice_and_parent("/kubepods.slice"),
            Some(("kubepods.slice", "-.slice"))
        );
        let container = CgroupDriver::Systemd.container_path(pod, "7");
        assert_eq!(container, format!("{pod}/cri-containerd-7.scope"));
        for other in ["/", "", "/kubepods", &container] {
            assert_eq!(slice_and_parent(other), None, "{other}");
        }
        assert_eq!("systemd".parse(), Ok(CgroupDriver::Systemd));
        assert!("Systemd".parse::<CgroupDriver>().is_err());
    }
}

//! Groups of which the slices are systemd's: it makes and removes them and has their limits as properties, and the kernel's files
//! say the same. Upstream: libcontainer's `systemd/v1.go` and `systemd/v2.go`.
//!
//! Limits are written twice, to systemd and to the kernel's files: systemd writes its own again at `daemon-reload`, and knows
//! nothing of some controllers (`cpuset`, `freezer`, `hugetlb` of version 1), whose groups it does not make either.

use std::path::PathBuf;
use std::sync::Arc;

use super::driver::slice_and_parent;
use super::{
    CgroupError, CgroupResources, CgroupStats, Cgroups, DEFAULT_PERIOD_US, GroupFigures, HugePageLimits,
    cpu_weight,
};
use crate::dbus::Value;
use crate::systemd::{Property, SystemdError};

/// systemd's word for no limit, in all of these properties.
const INFINITY: u64 = u64::MAX;
/// systemd keeps quotas as hundredths of a processor: ten milliseconds in a second.
const QUOTA_STEP_US: u64 = 10_000;
const SECOND_US: u64 = 1_000_000;

/// The slices of a machine, as its systemd has them, or a model of it. Both block.
pub trait Slices: Send + Sync + std::fmt::Debug {
    /// Starts a slice with these properties where it does not run, and sets others.
    fn apply(&self, slice: &str, first: Vec<Property>, always: Vec<Property>) -> Result<(), SystemdError>;
    /// Ends what runs in a slice, and removes it. A missing one is fine.
    fn stop(&self, slice: &str) -> Result<(), SystemdError>;
}

/// See the module.
#[derive(Debug)]
pub struct SystemdCgroups {
    files: Arc<dyn Cgroups>,
    slices: Arc<dyn Slices>,
}

impl SystemdCgroups {
    /// Groups with these files.
    pub fn new(files: Arc<dyn Cgroups>, slices: Arc<dyn Slices>) -> Self {
        Self { files, slices }
    }
}

/// Properties with which a slice starts: it belongs to the one around it, does not end with the machine's other units, and counts
/// what is used.
fn first_properties(version: u8, slice: &str, parent: &str) -> Vec<Property> {
    let io = match version {
        1 => "BlockIOAccounting",
        _ => "IOAccounting",
    };
    let counted = ["MemoryAccounting", "CPUAccounting", io, "TasksAccounting"];
    let mut properties = vec![
        ("Description", Value::Text(format!("group of pods {slice}"))),
        ("Wants", Value::Texts(vec![parent.to_owned()])),
    ];
    properties.extend(counted.map(|name| (name, Value::Bool(true))));
    // With default dependencies systemd would stop the slice at shutdown before the runtime has stopped its
    // containers.
    properties.push(("DefaultDependencies", Value::Bool(false)));
    properties
}

/// Limits as properties. A limit that stays as it is has none.
fn limits_as_properties(version: u8, resources: &CgroupResources) -> Vec<Property> {
    let limit = |limit: i64| Value::Uint64(u64::try_from(limit).unwrap_or(INFINITY));
    let (memory, weight) = match version {
        1 => ("MemoryLimit", ("CPUShares", resources.cpu_shares)),
        _ => ("MemoryMax", ("CPUWeight", resources.cpu_shares.map(cpu_weight))),
    };
    let quota = resources.cpu_quota_us.map(|quota| match u64::try_from(quota) {
        Ok(quota) => quota.saturating_mul(SECOND_US) / period(resources),
        Err(_) => INFINITY,
    });
    let all = [
        (memory, resources.memory_limit_bytes.map(limit)),
        (weight.0, weight.1.map(Value::Uint64)),
        ("CPUQuotaPeriodUSec", resources.cpu_period_us.map(Value::Uint64)),
        ("CPUQuotaPerSecUSec", quota.map(Value::Uint64)),
        ("TasksMax", resources.pids_limit.map(limit)),
    ];
    let known = all.into_iter();
    known.filter_map(|(name, value)| Some((name, value?))).collect()
}

fn period(resources: &CgroupResources) -> u64 {
    resources.cpu_period_us.unwrap_or(DEFAULT_PERIOD_US).max(1)
}

/// Limits with a quota that systemd can keep: the next one above.
fn keepable(resources: &CgroupResources) -> CgroupResources {
    let period = period(resources);
    let above = |quota: i64| {
        let Some(quota) = u64::try_from(quota).ok().filter(|quota| *quota > 0) else {
            return quota;
        };
        let in_a_second = quota.saturating_mul(SECOND_US).div_ceil(period);
        let steps = in_a_second.div_ceil(QUOTA_STEP_US).saturating_mul(QUOTA_STEP_US);
        i64::try_from(steps.saturating_mul(period) / SECOND_US).unwrap_or(i64::MAX)
    };
    CgroupResources {
        cpu_quota_us: resources.cpu_quota_us.map(above),
        ..*resources
    }
}

fn failed(action: &'static str, slice: &str) -> impl FnOnce(SystemdError) -> CgroupError {
    let path = PathBuf::from(slice);
    move |error| CgroupError {
        action,
        path,
        source: std::io::Error::other(error),
    }
}

impl Cgroups for SystemdCgroups {
    fn apply(&self, path: &str, resources: &CgroupResources) -> Result<(), CgroupError> {
        // The same rounded quota for both: with the exact one in the kernel's file, every `daemon-reload` would
        // change it.
        let resources = keepable(resources);
        if let Some((slice, parent)) = slice_and_parent(path) {
            let version = self.version();
            let first = first_properties(version, slice, parent);
            let always = limits_as_properties(version, &resources);
            let applied = self.slices.apply(slice, first, always);
            applied.map_err(failed("starting", slice))?;
        }
        // After systemd, which writes the files itself while it starts the slice.
        self.files.apply(path, &resources)
    }

    fn limit_huge_pages(&self, path: &str, limits: &HugePageLimits) -> Result<(), CgroupError> {
        self.files.limit_huge_pages(path, limits)
    }

    fn remove(&self, path: &str) -> Result<(), CgroupError> {
        let stopped = match slice_and_parent(path) {
            Some((slice, _)) => self.slices.stop(slice).map_err(failed("stopping", slice)),
            None => Ok(()),
        };
        // Groups that systemd does not know are removed in any case.
        self.files.remove(path).and(stopped)
    }

    fn limits(&self, path: &str) -> CgroupResources {
        self.files.limits(path)
    }

    fn stats(&self, path: &str) -> CgroupStats {
        self.files.stats(path)
    }

    fn figures(&self, path: &str) -> Option<GroupFigures> {
        self.files.figures(path)
    }

    fn exists(&self, path: &str) -> bool {
        self.files.exists(path)
    }

    fn children(&self, path: &str) -> Vec<String> {
        self.files.children(path)
    }

    fn version(&self) -> u8 {
        self.files.version()
    }

    fn has_memory_file(&self, path: &str, name: &str) -> bool {
        self.files.has_memory_file(path, name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CgroupsV1, CgroupsV2};
    use super::*;
    use std::sync::Mutex;

    fn numbers(version: u8, resources: CgroupResources) -> Vec<(&'static str, u64)> {
        let properties = limits_as_properties(version, &keepable(&resources));
        let number = |(name, value): Property| match value {
            Value::Uint64(number) => (name, number),
            other => panic!("{name}: {other:?}"),
        };
        properties.into_iter().map(number).collect()
    }

    #[test]
    fn slice_limits_are_the_properties_of_the_cgroup_version() {
        let resources = CgroupResources {
            cpu_shares: Some(1024),
            cpu_quota_us: Some(20_000),
            cpu_period_us: Some(100_000),
            memory_limit_bytes: Some(64 << 20),
            pids_limit: Some(9),
        };
        let quota = [("CPUQuotaPeriodUSec", 100_000), ("CPUQuotaPerSecUSec", 200_000)];
        let first = [("MemoryLimit", 64 << 20), ("CPUShares", 1024)];
        assert_eq!(
            numbers(1, resources),
            [&first[..], &quota, &[("TasksMax", 9)]].concat()
        );
        let first = [("MemoryMax", 64 << 20), ("CPUWeight", 39)];
        assert_eq!(
            numbers(2, resources),
            [&first[..], &quota, &[("TasksMax", 9)]].concat()
        );
        assert_eq!(numbers(2, CgroupResources::default()), [], "as they are");
        let without = CgroupResources {
            cpu_quota_us: Some(-1),
            memory_limit_bytes: Some(-1),
            pids_limit: Some(-1),
            ..CgroupResources::default()
        };
        let names = ["MemoryMax", "CPUQuotaPerSecUSec", "TasksMax"];
        assert_eq!(numbers(2, without), names.map(|name| (name, u64::MAX)));
    }

    /// Quotas of libcontainer's `addCPUQuota`: a part of a hundredth counts as one.
    #[test]
    fn slice_quota_is_one_that_systemd_keeps() {
        let quota = |quota: i64, period: Option<u64>| {
            let resources = CgroupResources {
                cpu_quota_us: Some(quota),
                cpu_period_us: period,
                ..CgroupResources::default()
            };
            let kept = keepable(&resources);
            let last = numbers(2, resources).pop().unwrap();
            (kept.cpu_quota_us.unwrap(), last.1)
        };
        assert_eq!(quota(20_000, Some(100_000)), (20_000, 200_000));
        assert_eq!(quota(20_400, Some(100_000)), (21_000, 210_000));
        assert_eq!(quota(1_000, None), (1_000, 10_000));
        assert_eq!(quota(2_500, None), (3_000, 30_000));
        assert_eq!(quota(-1, Some(100_000)), (-1, u64::MAX));
        assert!(quota(i64::MAX, Some(1)).1 > 0, "no overflow");
    }

    #[test]
    fn slice_starts_within_the_one_around_it_and_without_dependencies() {
        let properties = first_properties(1, "kubepods-pod1.slice", "kubepods.slice");
        let of = |wanted: &str| {
            let mut found = properties.iter().filter(|(name, _)| *name == wanted);
            found.next().map(|(_, value)| value.clone())
        };
        assert_eq!(of("Wants"), Some(Value::Texts(vec!["kubepods.slice".to_owned()])));
        assert_eq!(of("DefaultDependencies"), Some(Value::Bool(false)));
        for counted in [
            "MemoryAccounting",
            "CPUAccounting",
            "BlockIOAccounting",
            "TasksAccounting",
        ] {
            assert_eq!(of(counted), Some(Value::Bool(true)), "{counted}");
        }
        let unified = first_properties(2, "a.slice", "-.slice");
        assert!(unified.contains(&("IOAccounting", Value::Bool(true))));
    }

    /// Slices that write down what is done with them.
    #[derive(Debug, Default)]
    struct Recorded(Mutex<Vec<String>>);

    impl Slices for Recorded {
        fn apply(
            &self,
            slice: &str,
            first: Vec<Property>,
            always: Vec<Property>,
        ) -> Result<(), SystemdError> {
            let line = format!("apply {slice} {} {}", first.len(), always.len());
            self.0.lock().unwrap().push(line);
            Ok(())
        }

        fn stop(&self, slice: &str) -> Result<(), SystemdError> {
            self.0.lock().unwrap().push(format!("stop {slice}"));
            Err(SystemdError::Stuck(slice.to_owned()))
        }
    }

    #[test]
    fn slices_have_their_limits_in_files_too_and_go_with_them() {
        let root = tempfile::tempdir().unwrap();
        let slices = Arc::new(Recorded::default());
        let groups = SystemdCgroups::new(Arc::new(CgroupsV2::new(root.path())), slices.clone());
        let resources = CgroupResources {
            cpu_quota_us: Some(20_400),
            ..CgroupResources::default()
        };
        let pod = "/kubepods.slice/kubepods-pod1.slice";
        groups.apply(pod, &resources).unwrap();
        let folder = root.path().join("kubepods.slice/kubepods-pod1.slice");
        assert_eq!(
            std::fs::read_to_string(folder.join("cpu.max")).unwrap(),
            "21000 100000"
        );
        std::fs::remove_file(folder.join("cpu.max")).unwrap();
        let error = groups.remove(pod).unwrap_err();
        assert_eq!(error.to_string(), "stopping kubepods-pod1.slice");
        assert!(!folder.try_exists().unwrap(), "its files are gone in any case");
        groups.apply("/other", &CgroupResources::default()).unwrap();
        groups.remove("/other").unwrap();
        let done = slices.0.lock().unwrap().clone();
        assert_eq!(
            done,
            ["apply kubepods-pod1.slice 7 1", "stop kubepods-pod1.slice"]
        );
        assert_eq!(
            SystemdCgroups::new(Arc::new(CgroupsV1::from_mounts()), slices).version(),
            1
        );
    }
}

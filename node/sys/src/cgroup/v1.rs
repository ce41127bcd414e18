//! cgroup v1: one tree per controller, the same path in each.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{
    CgroupError, CgroupResources, CgroupStats, Cgroups, GroupFigures, HugePageLimits, below, figures,
    folders, names, read_keyed, read_limit, read_number, remove_tree, write, write_huge_page_limits,
};

/// The mounted v1 hierarchies.
#[derive(Debug, Clone)]
pub struct CgroupsV1 {
    /// Controller (or named hierarchy) to where it is mounted.
    roots: BTreeMap<String, PathBuf>,
}

/// Controllers in which a pod gets a group of its own.
const POD_CONTROLLERS: [&str; 9] = [
    "cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer", "blkio", "hugetlb",
];

impl CgroupsV1 {
    /// Reads the controllers in `/proc/mounts`.
    pub fn from_mounts() -> Self {
        Self::from_table(&std::fs::read_to_string("/proc/mounts").unwrap_or_default())
    }

    fn from_table(table: &str) -> Self {
        let mut roots = BTreeMap::new();
        for line in table.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, folder, kind, options, ..] = fields.as_slice() else {
                continue;
            };
            match *kind {
                "cgroup" => {
                    let known =
                        |option: &&str| POD_CONTROLLERS.contains(option) || option.starts_with("name=");
                    for option in options.split(',').filter(known) {
                        roots
                            // Of a controller that is mounted twice the first mount counts; the others show the
                            // same tree.
                            .entry(option.to_string())
                            .or_insert_with(|| PathBuf::from(folder));
                    }
                }
                "cgroup2" => {
                    roots.insert("unified".to_string(), PathBuf::from(folder));
                }
                _ => {}
            }
        }
        Self { roots }
    }

    fn group(&self, controller: &str, path: &str) -> Option<PathBuf> {
        self.roots.get(controller).map(|root| below(root, path))
    }

    fn set(&self, controller: &str, path: &str, file: &str, value: &str) -> Result<(), CgroupError> {
        match self.group(controller, path) {
            Some(folder) => write(&folder.join(file), value),
            None => Ok(()),
        }
    }

    fn make(&self, path: &str) -> Result<(), CgroupError> {
        for controller in POD_CONTROLLERS {
            let Some(folder) = self.group(controller, path) else {
                continue;
            };
            std::fs::create_dir_all(&folder).map_err(|source| CgroupError {
                action: "making",
                path: folder.clone(),
                source,
            })?;
            // Before any process joins: a v1 cpuset without CPUs and memory nodes refuses every process
            // (ENOSPC).
            if controller == "cpuset" {
                self.fill_cpuset(path)?;
            }
        }
        Ok(())
    }

    /// A new cpuset group is empty and takes no process; each level inherits its parent's sets.
    fn fill_cpuset(&self, path: &str) -> Result<(), CgroupError> {
        let Some(root) = self.roots.get("cpuset") else {
            return Ok(());
        };
        let mut folder = root.clone();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let parent = folder.clone();
            folder.push(name);
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let current = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
                if current.trim().is_empty() {
                    let inherited = std::fs::read_to_string(parent.join(file)).unwrap_or_default();
                    write(&folder.join(file), inherited.trim())?;
                }
            }
        }
        Ok(())
    }
}

impl Cgroups for CgroupsV1 {
    fn apply(&self, path: &str, resources: &CgroupResources) -> Result<(), CgroupError> {
        self.make(path)?;
        if let Some(shares) = resources.cpu_shares {
            self.set("cpu", path, "cpu.shares", &shares.to_string())?;
        }
        if let Some(period) = resources.cpu_period_us {
            // The period first: the kernel checks a quota against the period that is there.
            self.set("cpu", path, "cpu.cfs_period_us", &period.to_string())?;
        }
        if let Some(quota) = resources.cpu_quota_us {
            self.set("cpu", path, "cpu.cfs_quota_us", &quota.to_string())?;
        }
        if let Some(limit) = resources.memory_limit_bytes {
            self.set("memory", path, "memory.limit_in_bytes", &limit.to_string())?;
        }
        if let Some(limit) = resources.pids_limit {
            let text = if limit < 0 {
                "max".to_string()
            } else {
                limit.to_string()
            };
            self.set("pids", path, "pids.max", &text)?;
        }
        Ok(())
    }

    fn limit_huge_pages(&self, path: &str, limits: &HugePageLimits) -> Result<(), CgroupError> {
        match self.group("hugetlb", path) {
            Some(folder) => write_huge_page_limits(&folder, "limit_in_bytes", limits),
            None => Ok(()),
        }
    }

    fn remove(&self, path: &str) -> Result<(), CgroupError> {
        self.roots
            .values()
            .try_for_each(|root| remove_tree(&below(root, path)))
    }

    fn limits(&self, path: &str) -> CgroupResources {
        let cpu = self.group("cpu", path).unwrap_or_default();
        let memory = self.group("memory", path).unwrap_or_default();
        CgroupResources {
            cpu_quota_us: read_limit(&cpu.join("cpu.cfs_quota_us")),
            cpu_period_us: Some(read_number(&cpu.join("cpu.cfs_period_us"))).filter(|period| *period > 0),
            memory_limit_bytes: read_limit(&memory.join("memory.limit_in_bytes")),
            ..CgroupResources::default()
        }
    }

    fn stats(&self, path: &str) -> CgroupStats {
        let cpu = self.group("cpuacct", path).unwrap_or_default();
        let memory = self.group("memory", path).unwrap_or_default();
        let pids = self.group("pids", path).unwrap_or_default();
        let usage = read_number(&memory.join("memory.usage_in_bytes"));
        let detail = memory.join("memory.stat");
        CgroupStats {
            cpu_usage_nanoseconds: read_number(&cpu.join("cpuacct.usage")),
            memory_usage_bytes: usage,
            memory_working_set_bytes: usage.saturating_sub(read_keyed(&detail, "total_inactive_file")),
            memory_rss_bytes: read_keyed(&detail, "total_rss"),
            pids: read_number(&pids.join("pids.current")),
            swap_bytes: detail
                .try_exists()
                .unwrap_or(false)
                .then(|| read_keyed(&detail, "total_swap")),
            swap_limit_bytes: read_limit(&memory.join("memory.memsw.limit_in_bytes"))
                .and_then(|limit| u64::try_from(limit).ok()),
        }
    }

    fn figures(&self, path: &str) -> Option<GroupFigures> {
        figures::v1::read(|controller| self.group(controller, path))
    }

    fn exists(&self, path: &str) -> bool {
        self.group("memory", path).is_some_and(|folder| folder.is_dir())
    }

    fn children(&self, path: &str) -> Vec<String> {
        names(
            self.group("memory", path)
                .map(|folder| folders(&folder))
                .unwrap_or_default(),
        )
    }

    fn version(&self) -> u8 {
        1
    }

    fn has_memory_file(&self, path: &str, name: &str) -> bool {
        let folder = self.group("memory", path);
        folder.is_some_and(|folder| folder.join(name).try_exists().unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_of_v1_are_limited_by_size() {
        let root = tempfile::tempdir().unwrap();
        let pod = root.path().join("kubepods/pod1");
        std::fs::create_dir_all(&pod).unwrap();
        let files = [
            "2MB.limit_in_bytes",
            "2MB.rsvd.limit_in_bytes",
            "2MB.failcnt",
            "1GB.limit_in_bytes",
        ];
        for file in files {
            std::fs::write(pod.join(format!("hugetlb.{file}")), "max").unwrap();
        }
        let table = format!("cgroup {} cgroup rw,hugetlb 0 0\n", root.path().display());
        let groups = CgroupsV1::from_table(&table);
        groups
            .limit_huge_pages("/kubepods/pod1", &[(2 << 20, 4 << 20)].into())
            .unwrap();
        let read = |file: &str| std::fs::read_to_string(pod.join(format!("hugetlb.{file}"))).unwrap();
        assert_eq!(files.map(read), ["4194304", "4194304", "max", "0"]);
        CgroupsV1::from_table("")
            .limit_huge_pages("/kubepods/pod1", &HugePageLimits::new())
            .unwrap();
    }

    #[test]
    fn hierarchies_are_found_in_the_mount_table() {
        let table = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
                     cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd 0 0\n\
                     cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                     tmpfs /tmp tmpfs rw 0 0\n";
        let found = CgroupsV1::from_table(table);
        let names: Vec<&str> = found.roots.keys().map(String::as_str).collect();
        assert_eq!(names, ["cpu", "cpuacct", "name=systemd", "unified"]);
    }
}

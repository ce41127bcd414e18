//! cgroup v2: one tree, controllers handed down level by level.

use std::path::{Path, PathBuf};

use crate::machine;

use super::{
    CgroupError, CgroupResources, CgroupStats, Cgroups, DEFAULT_PERIOD_US, GroupFigures, HugePageLimits,
    below, cpu_weight, figures, folders, names, read_keyed, read_limit, read_number, read_number_of,
    remove_tree, write, write_huge_page_limits,
};

/// The unified hierarchy.
#[derive(Debug, Clone)]
pub struct CgroupsV2 {
    root: PathBuf,
}

const CONTROLLERS: [&str; 6] = ["cpu", "cpuset", "memory", "pids", "io", "hugetlb"];

fn is_root(path: &str) -> bool {
    path.trim_matches('/').is_empty()
}

fn limit_text(limit: i64) -> String {
    if limit < 0 {
        "max".to_string()
    } else {
        limit.to_string()
    }
}

impl CgroupsV2 {
    /// The hierarchy mounted at `root`.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
        }
    }

    fn make(&self, path: &str) -> Result<PathBuf, CgroupError> {
        let mut folder = self.root.clone();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            self.hand_down(&folder);
            folder.push(name);
            match std::fs::create_dir(&folder) {
                Err(source) if source.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(CgroupError {
                        action: "making",
                        path: folder,
                        source,
                    });
                }
                _ => {}
            }
        }
        Ok(folder)
    }

    /// Enables what there is for the level below. One by one: a line with one unknown name fails whole.
    fn hand_down(&self, folder: &Path) {
        let available = std::fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
        let control = folder.join("cgroup.subtree_control");
        let enabled = std::fs::read_to_string(&control).unwrap_or_default();
        for name in CONTROLLERS {
            let has = |list: &str| list.split_whitespace().any(|found| found == name);
            if has(&available) && !has(&enabled) {
                // A controller that cannot be handed down leaves its limits unset, which writing them reports.
                let _ = std::fs::write(&control, format!("+{name}"));
            }
        }
    }
}

impl Cgroups for CgroupsV2 {
    fn apply(&self, path: &str, resources: &CgroupResources) -> Result<(), CgroupError> {
        let folder = self.make(path)?;
        if let Some(shares) = resources.cpu_shares {
            write(&folder.join("cpu.weight"), &cpu_weight(shares).to_string())?;
        }
        if let Some(quota) = resources.cpu_quota_us {
            let period = resources.cpu_period_us.unwrap_or(DEFAULT_PERIOD_US);
            write(
                &folder.join("cpu.max"),
                &format!("{} {period}", limit_text(quota)),
            )?;
        }
        if let Some(limit) = resources.memory_limit_bytes {
            write(&folder.join("memory.max"), &limit_text(limit))?;
        }
        if let Some(limit) = resources.pids_limit {
            write(&folder.join("pids.max"), &limit_text(limit))?;
        }
        Ok(())
    }

    fn limit_huge_pages(&self, path: &str, limits: &HugePageLimits) -> Result<(), CgroupError> {
        write_huge_page_limits(&below(&self.root, path), "max", limits)
    }

    fn remove(&self, path: &str) -> Result<(), CgroupError> {
        remove_tree(&below(&self.root, path))
    }

    fn limits(&self, path: &str) -> CgroupResources {
        let folder = below(&self.root, path);
        let cpu = std::fs::read_to_string(folder.join("cpu.max")).unwrap_or_default();
        // The quota says `max` where there is none.
        let (quota, period) = cpu.trim().split_once(' ').unwrap_or_default();
        CgroupResources {
            cpu_quota_us: quota.parse().ok(),
            cpu_period_us: period.parse().ok(),
            memory_limit_bytes: read_limit(&folder.join("memory.max")),
            ..CgroupResources::default()
        }
    }

    fn stats(&self, path: &str) -> CgroupStats {
        let folder = below(&self.root, path);
        // The root has no such file: the machine's own figure stands for it.
        let usage = match is_root(path) {
            true => machine::memory_used_bytes(),
            false => read_number(&folder.join("memory.current")),
        };
        let detail = folder.join("memory.stat");
        CgroupStats {
            cpu_usage_nanoseconds: read_keyed(&folder.join("cpu.stat"), "usage_usec") * 1000,
            memory_usage_bytes: usage,
            memory_working_set_bytes: usage.saturating_sub(read_keyed(&detail, "inactive_file")),
            memory_rss_bytes: read_keyed(&detail, "anon"),
            pids: read_number(&folder.join("pids.current")),
            swap_bytes: match is_root(path) {
                true => Some(machine::swap_used_bytes()),
                false => read_number_of(&folder.join("memory.swap.current")),
            },
            swap_limit_bytes: read_number_of(&folder.join("memory.swap.max")),
        }
    }

    fn figures(&self, path: &str) -> Option<GroupFigures> {
        figures::v2::read(&below(&self.root, path), is_root(path))
    }

    fn exists(&self, path: &str) -> bool {
        below(&self.root, path).is_dir()
    }

    fn children(&self, path: &str) -> Vec<String> {
        names(folders(&below(&self.root, path)))
    }

    fn version(&self) -> u8 {
        2
    }

    fn has_memory_file(&self, path: &str, name: &str) -> bool {
        below(&self.root, path).join(name).try_exists().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_land_in_the_files_of_v2() {
        let root = std::env::temp_dir().join(format!("knarr-cgroup2-{}", std::process::id()));
        std::fs::create_dir_all(root.join("kubepods/pod1")).unwrap();
        let groups = CgroupsV2::new(&root);
        let resources = CgroupResources {
            cpu_shares: Some(1024),
            cpu_quota_us: Some(20_000),
            cpu_period_us: Some(100_000),
            memory_limit_bytes: Some(-1),
            pids_limit: Some(9),
        };
        groups.apply("/kubepods/pod1", &resources).unwrap();
        let read = |file: &str| std::fs::read_to_string(root.join("kubepods/pod1").join(file)).unwrap();
        assert_eq!(read("cpu.weight"), "39");
        assert_eq!(read("cpu.max"), "20000 100000");
        assert_eq!(read("memory.max"), "max");
        assert_eq!(read("pids.max"), "9");
        let found = groups.limits("/kubepods/pod1");
        assert_eq!(
            (found.cpu_quota_us, found.cpu_period_us),
            (Some(20_000), Some(100_000))
        );
        assert_eq!(found.memory_limit_bytes, None);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn huge_pages_of_v2_are_limited_by_size() {
        let root = tempfile::tempdir().unwrap();
        let pod = root.path().join("kubepods/pod1");
        std::fs::create_dir_all(&pod).unwrap();
        let files = ["2MB.max", "2MB.rsvd.max", "2MB.current", "1GB.max", "64KB.max"];
        for file in files {
            std::fs::write(pod.join(format!("hugetlb.{file}")), "max").unwrap();
        }
        let limits = [(64 << 10, 1 << 20), (1 << 30, 2 << 30)].into();
        CgroupsV2::new(root.path())
            .limit_huge_pages("/kubepods/pod1", &limits)
            .unwrap();
        let read = |file: &str| std::fs::read_to_string(pod.join(format!("hugetlb.{file}"))).unwrap();
        assert_eq!(files.map(read), ["0", "0", "max", "2147483648", "1048576"]);
    }
}

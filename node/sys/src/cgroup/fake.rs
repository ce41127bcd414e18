//! Remembers groups instead of making them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::{CgroupError, CgroupResources, CgroupStats, Cgroups};

/// Groups in memory.
#[derive(Debug, Clone, Default)]
pub struct FakeCgroups {
    groups: Arc<Mutex<BTreeMap<String, (CgroupResources, CgroupStats)>>>,
}

impl FakeCgroups {
    /// The limits of every group there is.
    pub fn groups(&self) -> BTreeMap<String, CgroupResources> {
        let groups = self.groups.lock().expect("no panic while held");
        groups
            .iter()
            .map(|(path, (resources, _))| (path.clone(), *resources))
            .collect()
    }
}

impl Cgroups for FakeCgroups {
    fn apply(&self, path: &str, resources: &CgroupResources) -> Result<(), CgroupError> {
        self.groups
            .lock()
            .expect("no panic while held")
            .entry(path.to_string())
            .or_default()
            .0 = *resources;
        Ok(())
    }

    fn remove(&self, path: &str) -> Result<(), CgroupError> {
        let mut groups = self.groups.lock().expect("no panic while held");
        let prefix = format!("{path}/");
        groups.retain(|name, _| name != path && !name.starts_with(&prefix));
        Ok(())
    }

    fn limits(&self, path: &str) -> CgroupResources {
        self.groups().get(path).copied().unwrap_or_default()
    }

    fn stats(&self, path: &str) -> CgroupStats {
        self.groups
            .lock()
            .expect("no panic while held")
            .get(path)
            .map(|group| group.1)
            .unwrap_or_default()
    }

    fn children(&self, path: &str) -> Vec<String> {
        let groups = self.groups.lock().expect("no panic while held");
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let mut names: Vec<String> = groups
            .keys()
            .filter_map(|name| name.strip_prefix(&prefix))
            .filter_map(|rest| rest.split('/').next())
            .map(str::to_string)
            .collect();
        names.dedup();
        names
    }

    fn version(&self) -> u8 {
        1
    }
}

//! emptyDir: a folder of the pod's own, or a file system of memory or of huge pages.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod};
use machinery_meta::Quantity;
use machinery_semantics::resources::pod_requests;
use node_sys::mount::{HugetlbfsOptions, Mounter, TmpfsOptions};

use crate::VolumeError;

/// Upstream's name of the folder of these volumes.
pub(crate) const PLUGIN_FOLDER: &str = "kubernetes.io~empty-dir";

/// Path of a volume's content below the pod's folder.
pub fn empty_dir_path(pod_folder: &Path, volume: &str) -> PathBuf {
    pod_folder.join("volumes").join(PLUGIN_FOLDER).join(volume)
}

/// `memory_bytes_max` is what the pod may use of the machine's memory.
pub(crate) fn set_up(
    path: &Path,
    source: &EmptyDirVolumeSource,
    mounter: &dyn Mounter,
    group: Option<u32>,
    memory_bytes_max: u64,
) -> Result<(), VolumeError> {
    match source.medium.as_deref().unwrap_or_default() {
        "" => make_folder(path, group),
        "Memory" => {
            std::fs::create_dir_all(path).map_err(VolumeError::io("making", path))?;
            if mounter.is_mount_point(path)? {
                return Ok(());
            }
            let options = TmpfsOptions {
                size_bytes: Some(size(source, memory_bytes_max)),
                mode: if group.is_some() { 0o2777 } else { 0o777 },
                group,
            };
            Ok(mounter.tmpfs(path, &options)?)
        }
        other => Err(VolumeError::Invalid(format!("unknown storage medium {other:?}"))),
    }
}

/// Huge pages of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HugePages {
    page_bytes: u64,
    /// All pages of this size that the pod requests.
    size_bytes: u64,
}

/// Medium of the pages of the only size that the pod requests, and beginning of those that name a size.
const HUGE_PAGES: &str = "HugePages";
/// Prefix of resources of huge pages.
const RESOURCE: &str = "hugepages-";

/// The pages of a volume, where it is one of huge pages.
///
/// # Errors
/// In upstream's words: the pod requests none of this size, or of several where the medium names none.
pub(crate) fn huge_pages(pod: &Pod, source: &EmptyDirVolumeSource) -> Result<Option<HugePages>, VolumeError> {
    let medium = source.medium.as_deref().unwrap_or_default();
    let Some(rest) = medium.strip_prefix(HUGE_PAGES) else {
        return Ok(None);
    };
    let unknown = || VolumeError::Invalid(format!("unknown storage medium {medium:?}"));
    let wanted = match rest {
        "" => None,
        named => Some(named.strip_prefix('-').and_then(page_bytes).ok_or_else(unknown)?),
    };
    let mut found: Option<HugePages> = None;
    let requests = pod.spec.as_ref().map(pod_requests).unwrap_or_default();
    for (name, amount) in requests.iter() {
        let Some(page_bytes) = name.strip_prefix(RESOURCE).and_then(page_bytes) else {
            continue;
        };
        if wanted.is_some_and(|wanted| wanted != page_bytes) {
            continue;
        }
        if found.is_some_and(|other| other.page_bytes != page_bytes) {
            return Err(VolumeError::Invalid(format!(
                "medium: {medium} can't be used if container requests multiple huge page sizes"
            )));
        }
        found = Some(HugePages {
            page_bytes,
            size_bytes: u64::try_from(amount.units()).unwrap_or(0),
        });
    }
    let missing = || {
        VolumeError::Invalid(format!(
            "medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
        ))
    };
    found.map(Some).ok_or_else(missing)
}

fn page_bytes(size: &str) -> Option<u64> {
    let size: Quantity = size.parse().ok()?;
    u64::try_from(size.units()).ok().filter(|bytes| *bytes > 0)
}

/// The file system holds no more than the pod requests: machines without the controller of huge pages bound them nowhere else.
pub(crate) fn set_up_huge_pages(
    path: &Path,
    pages: &HugePages,
    mounter: &dyn Mounter,
    group: Option<u32>,
) -> Result<(), VolumeError> {
    std::fs::create_dir_all(path).map_err(VolumeError::io("making", path))?;
    if mounter.is_mount_point(path)? {
        return Ok(());
    }
    let options = HugetlbfsOptions {
        page_bytes: pages.page_bytes,
        size_bytes: pages.size_bytes,
        mode: if group.is_some() { 0o2777 } else { 0o777 },
        group,
    };
    Ok(mounter.hugetlbfs(path, &options)?)
}

/// The limit that is requested, as far as the pod may use so much.
fn size(source: &EmptyDirVolumeSource, memory_bytes_max: u64) -> u64 {
    let limit = source
        .size_limit
        .as_ref()
        .and_then(|limit| limit.0.parse::<Quantity>().ok());
    limit
        .and_then(|limit| u64::try_from(limit.units()).ok())
        .filter(|bytes| (1..=memory_bytes_max).contains(bytes))
        .unwrap_or(memory_bytes_max)
}

/// The folder appears with its mode and group, or not at all; once there it is the pod's, and is left alone.
fn make_folder(path: &Path, group: Option<u32>) -> Result<(), VolumeError> {
    if path.try_exists().map_err(VolumeError::io("looking at", path))? {
        return Ok(());
    }
    let new = unfinished(path);
    std::fs::create_dir_all(&new).map_err(VolumeError::io("making", &new))?;
    node_sys::fs::set_mode(&new, 0o777).map_err(VolumeError::io("setting the mode of", &new))?;
    if let Some(group) = group {
        node_sys::fs::give_to_group(&new, group, false)
            .map_err(VolumeError::io("giving to its group", &new))?;
    }
    std::fs::rename(&new, path).map_err(VolumeError::io("renaming", &new))
}

/// A path beside it, under a name that no volume can have.
fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn empty_dir_begun_by_an_agent_that_was_killed_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("volume");
        std::fs::create_dir(unfinished(&path)).unwrap();
        make_folder(&path, None).unwrap();
        assert_eq!(mode(&path), 0o777);
        node_sys::fs::set_mode(&path, 0o700).unwrap();
        make_folder(&path, None).unwrap();
        assert_eq!(mode(&path), 0o700, "as the pod has made it");
    }

    #[test]
    fn empty_dir_of_huge_pages_has_the_size_of_the_medium_or_of_the_requests() {
        let pod = |requests: &[&str]| -> Pod {
            let containers = requests.iter().map(|requests| {
                let requests: serde_json::Value = serde_json::from_str(requests).unwrap();
                serde_json::json!({"name": "c", "resources": {"requests": requests}})
            });
            let containers: Vec<_> = containers.collect();
            serde_json::from_value(serde_json::json!({"spec": {"containers": containers}})).unwrap()
        };
        let of = |requests: &[&str], medium: &str| {
            let source = EmptyDirVolumeSource {
                medium: Some(medium.to_owned()),
                ..EmptyDirVolumeSource::default()
            };
            let pages = huge_pages(&pod(requests), &source).map_err(|error| error.to_string())?;
            Ok::<_, String>(pages.map(|pages| (pages.page_bytes >> 20, pages.size_bytes >> 20)))
        };
        let small = r#"{"hugepages-2Mi": "4Mi"}"#;
        let both = r#"{"hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}"#;
        assert_eq!(of(&[small], ""), Ok(None));
        assert_eq!(of(&[small], "Memory"), Ok(None));
        assert_eq!(of(&[small, small], "HugePages"), Ok(Some((2, 8))));
        assert_eq!(of(&[both], "HugePages-1Gi"), Ok(Some((1024, 1024))));
        assert_eq!(of(&[both], "HugePages-2048Ki"), Ok(Some((2, 4))));
        let refused = |requests: &[&str], medium: &str, words: &str| {
            let why = of(requests, medium).unwrap_err();
            assert!(why.contains(words), "{why}");
        };
        refused(
            &[both],
            "HugePages",
            "can't be used if container requests multiple huge page sizes",
        );
        refused(
            &[small],
            "HugePages-1Gi",
            "there is no resource request for huge pages",
        );
        refused(
            &[r#"{"cpu": "1"}"#],
            "HugePages",
            "there is no resource request for huge pages",
        );
        refused(&[small], "HugePages-x", "unknown storage medium");
        refused(&[small], "HugePages2Mi", "unknown storage medium");
    }

    #[test]
    fn empty_dir_in_memory_is_no_larger_than_what_the_pod_may_use() {
        let limited = |limit: Option<&str>| EmptyDirVolumeSource {
            size_limit: limit
                .map(|limit| k8s_openapi::apimachinery::pkg::api::resource::Quantity(limit.to_owned())),
            ..EmptyDirVolumeSource::default()
        };
        for (limit, expected) in [
            (None, 1000),
            (Some("0"), 1000),
            (Some("10"), 10),
            (Some("1Gi"), 1000),
        ] {
            assert_eq!(size(&limited(limit), 1000), expected, "{limit:?}");
        }
    }
}

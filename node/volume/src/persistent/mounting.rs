//! Mount of a claim's volume below the pod's folder.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::HostPathVolumeSource;
use node_sys::mount::Mounter;
use node_sys::mount_flags::MountFlags;
use parking_lot::Mutex;

use super::{Place, Source};
use crate::{Notice, VolumeError, host_path};

/// Levels from a volume's folder up to that of all pods: `pods/UID/volumes/PLUGIN/NAME`.
const LEVELS_BELOW_PODS: usize = 4;

/// A claim's volume that is mounted.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// Supplemental group of the pod's containers.
    pub(crate) group: Option<i64>,
    pub(crate) notice: Option<Notice>,
}

/// Mounts a volume at a place below a pod's folder. Blocks.
pub(crate) fn set_up(
    mounter: &dyn Mounter,
    target: &Path,
    source: &Source,
    fs_group: Option<u32>,
) -> Result<Shown, VolumeError> {
    let mut shown = Shown {
        group: source.group,
        notice: None,
    };
    if mounter.is_mount_point(target)? {
        return Ok(shown);
    }
    record_group(target, source.group)?;
    match &source.place {
        Place::HostPath(path) => {
            let from = host_path_or_new(path)?;
            mount(mounter, &from, target, MountFlags::default())?;
        }
        Place::Local(path) => {
            let from = local(path)?;
            shown.notice = in_turn(&from, || mount_local(mounter, &from, target, source, fs_group))?;
        }
    }
    Ok(shown)
}

/// A local volume is given to a group by the first pod that mounts it, and by none that only reads.
fn mount_local(
    mounter: &dyn Mounter,
    from: &Path,
    target: &Path,
    source: &Source,
    fs_group: Option<u32>,
) -> Result<Option<Notice>, VolumeError> {
    let mut notice = None;
    if let Some(group) = fs_group {
        let is_in_use = is_in_use(mounter, from, target)?;
        if is_in_use {
            notice = not_shareable(from, group, &source.volume)?;
        } else if !source.is_read_only {
            node_sys::fs::give_to_group(from, group, false)
                .map_err(VolumeError::io("giving to its group", from))?;
        }
    }
    let read_only = source.is_read_only.then_some("ro");
    let options = source.options.iter().map(String::as_str).chain(read_only);
    mount(mounter, from, target, MountFlags::of(options))?;
    Ok(notice)
}

/// Reports whether a pod has the path mounted already.
fn is_in_use(mounter: &dyn Mounter, from: &Path, target: &Path) -> Result<bool, VolumeError> {
    let Some(pods) = target.ancestors().nth(LEVELS_BELOW_PODS) else {
        return Ok(false);
    };
    let points = mounter.showing(from)?;
    Ok(points.iter().any(|point| point.starts_with(pods)))
}

/// The warning of a pod whose group is not that of the pods before it.
fn not_shareable(from: &Path, group: u32, volume: &str) -> Result<Option<Notice>, VolumeError> {
    let found = std::fs::metadata(from).map_err(VolumeError::io("looking at", from))?;
    let own = found.gid();
    Ok((own != group).then(|| Notice {
        reason: "AlreadyMountedVolume",
        message: format!(
            "The requested fsGroup is {group}, but the volume {volume} has GID {own}. The volume may not be shareable."
        ),
    }))
}

fn mount(mounter: &dyn Mounter, from: &Path, target: &Path, flags: MountFlags) -> Result<(), VolumeError> {
    let found = std::fs::metadata(from).map_err(VolumeError::io("looking for", from))?;
    if found.is_dir() {
        std::fs::create_dir_all(target).map_err(VolumeError::io("making", target))?;
    } else {
        let parent = target.parent().unwrap_or(target);
        std::fs::create_dir_all(parent).map_err(VolumeError::io("making", parent))?;
        std::fs::File::create(target).map_err(VolumeError::io("making", target))?;
    }
    Ok(mounter.bind_apart(from, target, flags)?)
}

/// Path of a hostPath source. One without a type that is not there is made, as the runtime makes those of pods.
fn host_path_or_new(source: &HostPathVolumeSource) -> Result<PathBuf, VolumeError> {
    if source.type_.as_deref().unwrap_or_default().is_empty() {
        host_path::make_if_missing(Path::new(&source.path))?;
    }
    host_path::set_up(source)
}

fn local(path: &str) -> Result<PathBuf, VolumeError> {
    let from = PathBuf::from(path);
    let is_plain = |part| !matches!(part, std::path::Component::ParentDir);
    if !from.is_absolute() || !from.components().all(is_plain) {
        return Err(VolumeError::Invalid(format!(
            "path {path:?} of a local volume is not absolute and plain"
        )));
    }
    match std::fs::metadata(&from) {
        Ok(found) if found.is_dir() => Ok(from),
        Ok(_) => Err(VolumeError::Invalid(format!("path {path:?} is no directory"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(VolumeError::Invalid(format!("path {path:?} does not exist")))
        }
        Err(error) => Err(VolumeError::io("looking for", &from)(error)),
    }
}

/// Paths that are being mounted.
static TURNS: Mutex<BTreeMap<PathBuf, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());

/// Runs work on a path while no other pod does (upstream's `volumeLocks`).
fn in_turn<T>(path: &Path, work: impl FnOnce() -> T) -> T {
    let turn = TURNS.lock().entry(path.to_owned()).or_default().clone();
    let done = {
        let _mine = turn.lock();
        work()
    };
    drop(turn);
    let mut turns = TURNS.lock();
    if turns.get(path).is_some_and(|turn| Arc::strong_count(turn) == 1) {
        turns.remove(path);
    }
    done
}

/// Group of a volume that was mounted before, perhaps by an earlier agent. Blocks.
pub(crate) fn group_of_mounted(target: &Path) -> Option<i64> {
    let text = std::fs::read_to_string(record_of_group(target)).ok()?;
    text.parse().ok()
}

fn record_group(target: &Path, group: Option<i64>) -> Result<(), VolumeError> {
    let path = record_of_group(target);
    let outcome = match group {
        Some(group) => {
            let folder = target.parent().unwrap_or(target);
            std::fs::create_dir_all(folder).map_err(VolumeError::io("making", folder))?;
            std::fs::write(&path, group.to_string())
        }
        None => match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    };
    outcome.map_err(VolumeError::io("writing", &path))
}

/// A path beside the volume, under a name that no volume can have.
fn record_of_group(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.gid"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_sys::mount::{MountError, TmpfsOptions};
    use std::os::unix::fs::PermissionsExt;

    /// Mounts by target: their source and flags.
    #[derive(Debug, Default)]
    struct Mounts(Mutex<BTreeMap<PathBuf, (PathBuf, MountFlags)>>);

    impl Mounter for Mounts {
        fn bind(&self, _: &Path, _: &Path) -> Result<(), MountError> {
            unreachable!("claims are mounted apart")
        }

        fn bind_apart(&self, source: &Path, target: &Path, flags: MountFlags) -> Result<(), MountError> {
            let mount = (source.to_owned(), flags);
            assert!(self.0.lock().insert(target.to_owned(), mount).is_none());
            Ok(())
        }

        fn tmpfs(&self, _: &Path, _: &TmpfsOptions) -> Result<(), MountError> {
            Ok(())
        }

        fn unmount(&self, target: &Path) -> Result<(), MountError> {
            self.0.lock().remove(target);
            Ok(())
        }

        fn below(&self, prefix: &Path) -> Result<Vec<PathBuf>, MountError> {
            let mounts = self.0.lock();
            Ok(mounts
                .keys()
                .filter(|path| path.starts_with(prefix))
                .cloned()
                .collect())
        }

        fn showing(&self, path: &Path) -> Result<Vec<PathBuf>, MountError> {
            let mounts = self.0.lock();
            let same = mounts.iter().filter(|(_, (source, _))| source == path);
            Ok(same.map(|(target, _)| target.clone()).collect())
        }
    }

    fn source(place: Place) -> Source {
        Source {
            place,
            volume: "v".to_owned(),
            options: Vec::new(),
            group: None,
            is_read_only: false,
        }
    }

    fn target(folder: &Path, pod: &str) -> PathBuf {
        folder.join(format!("pods/{pod}/volumes/kubernetes.io~local-volume/data"))
    }

    #[test]
    fn host_path_without_a_type_is_made_for_a_claim() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mnt/data");
        let of = |kind: Option<&str>| {
            let (path, type_) = (path.display().to_string(), kind.map(str::to_owned));
            source(Place::HostPath(HostPathVolumeSource { path, type_ }))
        };
        let mounts = Mounts::default();
        let target = target(folder.path(), "a");
        set_up(&mounts, &target, &of(Some("Directory")), None).unwrap_err();
        assert!(!path.try_exists().unwrap(), "its type says that it is there");
        set_up(&mounts, &target, &of(None), None).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
            0o755
        );
        node_sys::fs::set_mode(&path, 0o700).unwrap();
        mounts.unmount(&target).unwrap();
        set_up(&mounts, &target, &of(Some("")), None).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "it is left as it was found");
    }

    #[test]
    fn local_volume_in_use_is_not_given_to_another_group() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        std::fs::create_dir(&disk).unwrap();
        let (mounts, local) = (
            Mounts::default(),
            source(Place::Local(disk.display().to_string())),
        );
        let own = nix_gid(&disk);
        let reader = Source {
            is_read_only: true,
            ..local.clone()
        };
        let mode = || std::fs::metadata(&disk).unwrap().permissions().mode() & 0o7777;
        let before = mode();
        set_up(&mounts, &target(folder.path(), "reader"), &reader, Some(own)).unwrap();
        assert_eq!(mode(), before, "a reader changes nothing");
        mounts.unmount(&target(folder.path(), "reader")).unwrap();
        let first = set_up(&mounts, &target(folder.path(), "first"), &local, Some(own)).unwrap();
        assert_eq!(first.notice, None);
        assert_eq!(mode(), before | 0o2070, "the first gives it to its group");
        node_sys::fs::set_mode(&disk, 0o700).unwrap();
        let second = set_up(&mounts, &target(folder.path(), "second"), &local, Some(own + 1)).unwrap();
        assert_eq!((mode(), nix_gid(&disk)), (0o700, own), "the second does not");
        let text = format!(
            "The requested fsGroup is {}, but the volume v has GID {own}. The volume may not be shareable.",
            own + 1
        );
        let notice = second.notice.unwrap();
        assert_eq!((notice.reason, notice.message), ("AlreadyMountedVolume", text));
        assert!(TURNS.lock().get(&disk).is_none());
    }

    fn nix_gid(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().gid()
    }

    #[test]
    fn local_volume_is_mounted_with_its_options() {
        let folder = tempfile::tempdir().unwrap();
        let mounts = Mounts::default();
        let local = Source {
            options: vec!["noexec".into(), "nosuid".into()],
            group: Some(1234),
            is_read_only: true,
            ..source(Place::Local(folder.path().display().to_string()))
        };
        let target = target(folder.path(), "a");
        let shown = set_up(&mounts, &target, &local, None).unwrap();
        assert_eq!((shown.group, group_of_mounted(&target)), (Some(1234), Some(1234)));
        let flags = mounts.0.lock()[&target].1;
        assert_eq!(flags, MountFlags::of(["noexec", "nosuid", "ro"]));
        mounts.unmount(&target).unwrap();
        let without = Source { group: None, ..local };
        set_up(&mounts, &target, &without, None).unwrap();
        assert_eq!(group_of_mounted(&target), None);
    }

    #[test]
    fn local_volume_is_a_folder_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        assert_eq!(local(&path).unwrap(), folder.path());
        for wrong in ["relative", &format!("{path}/../x"), &format!("{path}/missing")] {
            local(wrong).unwrap_err();
        }
        std::fs::write(folder.path().join("file"), "").unwrap();
        local(&format!("{path}/file")).unwrap_err();
    }
}

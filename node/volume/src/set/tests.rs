use super::*;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret};
use node_sys::mount::MountError;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A kernel that answers no mount until it is released.
#[derive(Debug)]
struct DeadMounter {
    released: Mutex<Receiver<()>>,
}

impl Mounter for DeadMounter {
    fn bind(&self, _: &Path, _: &Path) -> Result<(), MountError> {
        Ok(())
    }

    fn tmpfs(&self, _: &Path, _: &TmpfsOptions) -> Result<(), MountError> {
        let _ = self.released.lock().recv();
        Ok(())
    }

    fn unmount(&self, _: &Path) -> Result<(), MountError> {
        Ok(())
    }

    fn showing(&self, _: &Path) -> Result<Vec<PathBuf>, MountError> {
        Ok(Vec::new())
    }

    fn below(&self, _: &Path) -> Result<Vec<PathBuf>, MountError> {
        Ok(Vec::new())
    }
}

/// One ConfigMap, as long as the API server is there and it is not deleted.
#[derive(Default)]
struct Api {
    away: AtomicBool,
    deleted: AtomicBool,
}

#[async_trait]
impl ObjectSource for Api {
    async fn config_map(&self, _: &str, _: &str) -> Result<Option<Arc<ConfigMap>>, VolumeError> {
        if self.away.load(Ordering::Relaxed) {
            return Err(VolumeError::Source("away".into()));
        }
        if self.deleted.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let data = BTreeMap::from([("key".to_owned(), "value".to_owned())]);
        Ok(Some(Arc::new(ConfigMap {
            data: Some(data),
            ..ConfigMap::default()
        })))
    }

    async fn secret(&self, _: &str, _: &str) -> Result<Option<Arc<Secret>>, VolumeError> {
        Ok(None)
    }

    async fn token(&self, _: &crate::TokenRequest) -> Result<String, VolumeError> {
        Err(VolumeError::Source("none".into()))
    }

    async fn trust_anchors(&self, _: &crate::TrustAnchors) -> Result<Arc<[u8]>, VolumeError> {
        Err(VolumeError::Source("none".into()))
    }

    async fn pod_certificate(
        &self,
        _: &Pod,
        _: &crate::ProjectionPlace,
    ) -> Result<Arc<crate::Credentials>, VolumeError> {
        Err(VolumeError::Source("none".into()))
    }

    async fn claim(&self, _: &str, _: &str) -> Result<Option<PersistentVolumeClaim>, VolumeError> {
        Ok(None)
    }

    async fn persistent_volume(&self, _: &str) -> Result<Option<PersistentVolume>, VolumeError> {
        Ok(None)
    }
}

/// A driver's calls.
#[derive(Default)]
struct Driver {
    calls: Mutex<Vec<String>>,
    away: AtomicBool,
    again_at: Mutex<Option<Timestamp>>,
}

#[async_trait]
impl CsiVolumes for Driver {
    async fn publish(&self, volume: &CsiVolume, _: &BlockingLane) -> Result<crate::CsiShown, VolumeError> {
        self.calls.lock().push(format!("+{}", volume.name()));
        match self.away.load(Ordering::Relaxed) {
            true => Err(VolumeError::Source("the driver is away".into())),
            false => Ok(crate::CsiShown {
                path: PathBuf::from("/shown").join(volume.name()),
                again_at: *self.again_at.lock(),
            }),
        }
    }

    async fn unpublish(&self, _: &Path, _: &BlockingLane) -> Result<(), VolumeError> {
        self.calls.lock().push("-".to_owned());
        match self.away.load(Ordering::Relaxed) {
            true => Err(VolumeError::Source("the driver is away".into())),
            false => Ok(()),
        }
    }
}

fn set(folder: &Path, deadline: Duration) -> (VolumeSet, Arc<Api>, Sender<()>) {
    set_with(folder, deadline, Arc::new(Driver::default()))
}

fn set_with(folder: &Path, deadline: Duration, driver: Arc<Driver>) -> (VolumeSet, Arc<Api>, Sender<()>) {
    let (release, released) = channel();
    let runtime = Runtime::real();
    let lane = BlockingLane::with_deadline(runtime.clone(), deadline);
    let mounter = Arc::new(DeadMounter {
        released: Mutex::new(released),
    });
    let node = NodeResources::default();
    let folder = folder.join("pod");
    let api = Arc::new(Api::default());
    let own = ThisNode::new("n1", &folder, Arc::default());
    let set = VolumeSet::new(
        runtime,
        lane,
        folder,
        mounter,
        api.clone(),
        driver,
        node,
        own,
        1 << 20,
    );
    (set, api, release)
}

fn pod(volume: &Value) -> Pod {
    pod_of(std::slice::from_ref(volume))
}

/// A pod whose container mounts them all.
fn pod_of(volumes: &[Value]) -> Pod {
    let mounts = volumes
        .iter()
        .map(|volume| json!({"name": volume["name"], "mountPath": "/v"}));
    let container = json!({"name": "c", "volumeMounts": mounts.collect::<Vec<_>>()});
    serde_json::from_value(json!({"spec": {"containers": [container], "volumes": volumes}})).unwrap()
}

#[tokio::test]
async fn volume_on_a_dead_file_system_stops_no_thread_of_the_executor() {
    let folder = tempfile::tempdir().unwrap();
    let (set, _, release) = set(folder.path(), Duration::from_millis(20));
    let pod = pod(&json!({"name": "memory", "emptyDir": {"medium": "Memory"}}));
    let outcome = set.set_up(&pod).await;
    assert!(!outcome.are_mounted);
    let (volume, error) = &outcome.failures[0];
    assert_eq!(volume, "memory");
    assert!(matches!(error, VolumeError::Blocking(_)), "{error}");
    assert!(
        set.tear_down().await.is_err(),
        "while it hangs nothing is removed"
    );
    release.send(()).unwrap();
    while set.tear_down().await.is_err() {}
    assert!(!set.pod_folder().try_exists().unwrap());
}

#[tokio::test]
async fn volume_stays_as_it_was_while_the_api_server_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let (set, api, _release) = set(folder.path(), Duration::from_secs(60));
    let pod = pod(&json!({"name": "map", "configMap": {"name": "m"}}));
    let volume = &pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0];
    let file = set.host_path(volume).join("key");
    api.away.store(true, Ordering::Relaxed);
    let failed = |outcome: SetUp| {
        let failures = outcome.failures.into_iter();
        let names: Vec<String> = failures.map(|(name, _)| name).collect();
        (names.join(","), outcome.are_mounted)
    };
    let never = ("map".to_owned(), false);
    assert_eq!(failed(set.set_up(&pod).await), never, "it never was there");
    api.away.store(false, Ordering::Relaxed);
    assert_eq!(failed(set.set_up(&pod).await), (String::new(), true));
    api.away.store(true, Ordering::Relaxed);
    assert_eq!(failed(set.set_up(&pod).await), ("map".to_owned(), true));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "value");
    std::fs::remove_file(file).unwrap();
    assert_eq!(failed(set.set_up(&pod).await), never);
}

#[tokio::test]
async fn volume_whose_object_is_deleted_keeps_what_it_showed_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (set, api, release) = set(folder.path(), Duration::from_secs(60));
    (0..3).for_each(|_| release.send(()).unwrap());
    let map = json!({"name": "map", "configMap": {"name": "m"}});
    let labels = json!({"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}});
    let about = json!({"name": "about", "projected": {"sources": [{"downwardAPI": {"items": [labels]}}]}});
    let later = json!({"name": "later", "emptyDir": {}});
    let mut pod = pod_of(&[map, about, later]);
    let volumes = pod.spec.as_ref().unwrap().volumes.clone().unwrap();
    let path = |at: usize| set.host_path(&volumes[at]);
    let (map, about, later) = (path(0).join("key"), path(1).join("labels"), path(2));
    api.deleted.store(true, Ordering::Relaxed);
    let outcome = set.set_up(&pod).await;
    assert!(!outcome.are_mounted, "it never was there");
    assert_eq!(outcome.failures[0].1.to_string(), "configmap \"m\" not found");
    assert!(later.is_dir(), "volumes after it are set up");
    api.deleted.store(false, Ordering::Relaxed);
    assert!(set.set_up(&pod).await.are_mounted);
    api.deleted.store(true, Ordering::Relaxed);
    pod.metadata.labels = Some(BTreeMap::from([("color".to_owned(), "red".to_owned())]));
    let outcome = set.set_up(&pod).await;
    assert!(outcome.are_mounted, "what it has shown is good enough to start");
    assert_eq!(
        (outcome.failures[0].0.as_str(), outcome.failures.len()),
        ("map", 1)
    );
    assert_eq!(std::fs::read_to_string(map).unwrap(), "value");
    assert_eq!(std::fs::read_to_string(about).unwrap(), "color=\"red\"");
}

#[tokio::test]
async fn volume_that_no_container_mounts_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let (set, api, _release) = set(folder.path(), Duration::from_secs(60));
    api.deleted.store(true, Ordering::Relaxed);
    let volumes = [
        json!({"name": "map", "configMap": {"name": "m"}}),
        json!({"name": "nfs", "nfs": {"server": "s", "path": "/"}}),
        json!({"name": "claim", "persistentVolumeClaim": {"claimName": "none"}}),
        json!({"name": "socket", "hostPath": {"path": "/nothing", "type": "Socket"}}),
    ];
    let mut pod = pod_of(&volumes);
    assert_eq!(set.set_up(&pod).await.failures.len(), 4);
    pod.spec.as_mut().unwrap().containers[0].volume_mounts = None;
    let outcome = set.set_up(&pod).await;
    assert!(outcome.are_mounted && outcome.failures.is_empty(), "{outcome:?}");
}

#[tokio::test]
async fn volume_of_the_machine_is_checked_before_it_is_first_used() {
    let folder = tempfile::tempdir().unwrap();
    let (set, _, _release) = set(folder.path(), Duration::from_secs(60));
    let path = folder.path().join("here");
    let pod = pod(&json!({"name": "here", "hostPath": {"path": path, "type": "Directory"}}));
    assert!(!set.set_up(&pod).await.are_mounted);
    std::fs::create_dir(&path).unwrap();
    assert!(set.set_up(&pod).await.are_mounted);
    std::fs::remove_dir(&path).unwrap();
    assert!(set.set_up(&pod).await.are_mounted, "it stays mounted");
}

#[tokio::test]
async fn volume_of_a_driver_is_asked_for_once_and_again_when_the_driver_says() {
    let folder = tempfile::tempdir().unwrap();
    let driver = Arc::new(Driver::default());
    let (set, _, _release) = set_with(folder.path(), Duration::from_secs(60), driver.clone());
    let pod = pod(&json!({"name": "v", "csi": {"driver": "d"}}));
    let volume = pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0].clone();
    let calls = || std::mem::take(&mut *driver.calls.lock());
    driver.away.store(true, Ordering::Relaxed);
    assert!(!set.set_up(&pod).await.are_mounted, "it was never shown");
    driver.away.store(false, Ordering::Relaxed);
    assert!(set.set_up(&pod).await.are_mounted);
    assert_eq!(calls(), ["+v", "+v"]);
    assert_eq!(set.host_path(&volume), Path::new("/shown/v"));
    assert!(set.set_up(&pod).await.are_mounted && calls().is_empty());
    // Another agent begins with nothing shown.
    let (next, _, _released) = set_with(folder.path(), Duration::from_secs(60), driver.clone());
    *driver.again_at.lock() = Some(Timestamp::UNIX_EPOCH);
    next.set_up(&pod).await;
    assert_eq!(next.publish_again_at(), Some(Timestamp::UNIX_EPOCH));
    driver.away.store(true, Ordering::Relaxed);
    let outcome = next.set_up(&pod).await;
    assert_eq!(calls(), ["+v", "+v"]);
    assert!(
        outcome.are_mounted && outcome.failures.len() == 1,
        "it stays as it was shown"
    );
    assert!(next.tear_down().await.is_err(), "its driver is waited for");
    driver.away.store(false, Ordering::Relaxed);
    next.tear_down().await.unwrap();
    assert_eq!(calls(), ["-", "-"]);
}

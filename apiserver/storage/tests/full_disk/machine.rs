//! The real thing: a file system of this machine, filled by another.

use super::{delete, is_refused, put};
use apiserver_storage::{LogOptions, LogStorage, Storage};
use machinery_runtime::Runtime;
use std::sync::Arc;
use std::time::Duration;

/// A file system of its own, unmounted when dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn tmpfs(megabytes: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let none = nix::mount::MsFlags::empty();
        nix::mount::mount(
            Some("tmpfs"),
            dir.path(),
            Some("tmpfs"),
            none,
            Some(size.as_str()),
        )
        .unwrap();
        Self(dir)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let path = self.0.path();
        nix::mount::umount2(path, nix::mount::MntFlags::MNT_DETACH).unwrap();
    }
}

/// Fills the file system as a pod would, to the last byte.
fn fill_up(path: &std::path::Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path).unwrap();
    for size in [1 << 16, 4096, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root"]
async fn full_disk_of_the_machine_is_survived() {
    let mounted = Mounted::tmpfs(32);
    let (runtime, pod) = (Runtime::real(), mounted.0.path().join("pod"));
    let options = || LogOptions {
        space_retry: Duration::from_millis(20),
        on_fatal: Arc::new(|error| panic!("{error}")),
        ..LogOptions::new(mounted.0.path().join("storage"))
    };
    let (storage, _) = LogStorage::open(&runtime, options()).await.unwrap();
    for name in 0..100 {
        storage.commit(vec![put(name, 3000, false)]).await.unwrap();
    }
    let settled = async |storage: &LogStorage, full: bool| {
        while {
            let now = storage.statistics().unwrap();
            now.full != full || now.reserve_bytes == 0
        } {
            runtime.sleep(Duration::from_millis(5)).await;
        }
    };
    settled(&storage, false).await;
    fill_up(&pod);
    // The active segment has room laid out.
    while !is_refused(storage.commit(vec![put(0, 3000, false)]).await) {}
    fill_up(&pod);
    storage.commit(vec![delete(1)]).await.unwrap();
    storage.close().await;
    for round in 2..12 {
        let (storage, report) = LogStorage::open(&runtime, options()).await.unwrap();
        assert_eq!((report.objects, report.problems.len()), (101 - round as usize, 0));
        fill_up(&pod);
        storage.commit(vec![delete(round)]).await.unwrap();
        storage.close().await;
    }
    let (storage, _) = LogStorage::open(&runtime, options()).await.unwrap();
    std::fs::remove_file(&pod).unwrap();
    settled(&storage, false).await;
    storage.commit(vec![put(0, 3000, false)]).await.unwrap();
    storage.close().await;
    drop(mounted);
}

//! A started server, made once per process: its disk and its keys. Every world begins as a copy of it, so that a seed
//! pays for its scenario and not for the start of a server. It is the same in every process.

use apiserver_server::pki::Pki;
use apiserver_storage::{LogOptions, LogStorage};
use cluster::{Cluster, known_keys};
use k8s_openapi::api::core::v1::ServiceAccount;
use machinery_client::ApiResource;
use machinery_runtime::{Disk, OpenMode, Runtime, Simulation};
use serde_json::json;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

pub(crate) struct Image {
    files: Vec<(PathBuf, Vec<u8>)>,
    pub(crate) keys: Arc<Pki>,
}

/// The store of every world. Errors of a dead store are of no interest.
pub(crate) async fn open(runtime: &Runtime) -> Arc<LogStorage> {
    let options = LogOptions {
        on_fatal: Arc::new(|_| {}),
        // The disk of these worlds does not fill, and every world copies it.
        reserve_bytes: 0,
        ..LogOptions::new("/data")
    };
    let (storage, report) = LogStorage::open(runtime, options).await.unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    Arc::new(storage)
}

impl Image {
    pub(crate) fn get() -> &'static Self {
        static IMAGE: OnceLock<Image> = OnceLock::new();
        IMAGE.get_or_init(Self::make)
    }

    fn make() -> Self {
        let simulation = Simulation::new(0);
        let runtime = simulation.runtime();
        let keys = simulation.run(async move {
            let keys = known_keys(&runtime).unwrap();
            let storage = open(&runtime).await;
            let cluster = Cluster::builder()
                .runtime(runtime)
                .storage(storage)
                .keys(keys.clone())
                .start()
                .await
                .unwrap();
            // Without it no pod is admitted, and most scenarios do not test the controller that makes it.
            let account =
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
            let accounts = ApiResource::of::<ServiceAccount>();
            cluster
                .admin()
                .create(&accounts, "default", &account)
                .await
                .unwrap();
            cluster.shutdown().await;
            keys
        });
        let disk = simulation.disk();
        let names = disk.files().into_iter().map(|(name, _)| name);
        let files = names.map(|name| {
            let bytes = disk.read(&name).unwrap();
            (name, bytes)
        });
        Self {
            files: files.collect(),
            keys,
        }
    }

    /// Copies the files to an empty disk, durably: also the names of the folders.
    pub(crate) fn write_to(&self, disk: &dyn Disk) {
        for (name, bytes) in &self.files {
            let folder = name.parent().unwrap();
            disk.create_dir_all(folder).unwrap();
            let file = disk.open(name, OpenMode::CreateNew).unwrap();
            file.write_at(0, bytes).unwrap();
            file.sync_data().unwrap();
            for above in folder.ancestors() {
                disk.sync_dir(above).unwrap();
            }
        }
    }
}
